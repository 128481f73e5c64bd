"""Large logs that repeat one batch, equal on three brokers."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.brokers import TOPIC_ID, put_replica
from tests.support.segments import BASE_TIMESTAMP, segment_file

_BATCHES_AT_ONCE: Final = 4096


def noisy_batch(records: int, value_bytes: int, compression_type: str, seed: int = 1) -> bytes:
    """A batch at offset 0 with random values, which do not compress."""
    noise = random.Random(seed)
    values = [noise.randbytes(value_bytes) for _ in range(records)]
    return write_batch(
        [RecordToWrite(b"key", value, timestamp_delta=number) for number, value in enumerate(values)],
        base_offset=0,
        base_timestamp=BASE_TIMESTAMP,
        compression_type=compression_type,
    )


def moved(batch: bytes, base_offset: int) -> bytes:
    """The batch at another base offset, which the CRC does not cover."""
    return base_offset.to_bytes(8, "big") + batch[8:]


def repeated(batch: bytes, records: int, count: int) -> Iterator[bytes]:
    """The bytes of `count` batches of `records` offsets each, in chunks of many batches."""
    for first in range(0, count, _BATCHES_AT_ONCE):
        yield b"".join(moved(batch, number * records) for number in range(first, min(first + _BATCHES_AT_ONCE, count)))


class RepeatedLogs:
    """Log directories of three brokers, with partitions of one topic that all have the same batches."""

    def __init__(self, folder: Path, topic: str, *, partitions: int, batches: int, batch: bytes, records: int) -> None:
        self.folder, self.topic, self.batch, self.records, self.batches = folder, topic, batch, records, batches
        log = folder / "whole.log"
        folder.mkdir(parents=True)
        with log.open("wb") as file:
            for chunk in repeated(batch, records, batches):
                file.write(chunk)
        self.log_dirs = []
        for broker in (1, 2, 3):
            for number in range(partitions):
                small_files: dict[str, Any] = {"topic_id": TOPIC_ID, "epochs": [(0, 0)], "high_watermark": records * batches}
                log_dir = put_replica(folder, broker, {}, partition=f"{topic}-{number}", **small_files)
                self.log_of(broker, number).hardlink_to(log)
            self.log_dirs.append(log_dir)
        log.unlink()

    def log_of(self, broker: int, partition: int) -> Path:
        return self.folder / f"broker-{broker}" / f"{self.topic}-{partition}" / segment_file(0)

    def change(self, broker: int, partition: int, number: int, replacement: bytes) -> None:
        """Overwrite the beginning of the n-th batch of one replica."""
        data, start = self.log_of(broker, partition).read_bytes(), number * len(self.batch)
        self._replace(broker, partition, data[:start] + replacement + data[start + len(replacement) :])

    def cut(self, broker: int, partition: int, size_in_bytes: int) -> None:
        self._replace(broker, partition, self.log_of(broker, partition).read_bytes()[:size_in_bytes])

    def _replace(self, broker: int, partition: int, data: bytes) -> None:
        """Replace the log of one replica, which is a link to the log of all."""
        changed = self.log_of(broker, partition).with_suffix(".changed")
        changed.write_bytes(data)
        changed.replace(self.log_of(broker, partition))
