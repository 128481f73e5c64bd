"""Large logs of one batch again and again, the same on three brokers."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.brokers import TOPIC_ID, put_replica
from tests.support.segments import BASE_TIMESTAMP, segment_file

_BATCHES_AT_ONCE: Final = 4096


def noisy_batch(records: int, value_bytes: int, compression_type: str, seed: int = 1) -> bytes:
    """A batch at offset 0 of records with values that hardly compress."""
    noise = random.Random(seed)
    values = [noise.randbytes(value_bytes) for _ in range(records)]
    return write_batch(
        [RecordToWrite(b"key", value, timestamp_delta=number) for number, value in enumerate(values)],
        base_offset=0,
        base_timestamp=BASE_TIMESTAMP,
        compression_type=compression_type,
    )


def moved(one: bytes, base_offset: int) -> bytes:
    return base_offset.to_bytes(8, "big") + one[8:]


def repeated(one: bytes, records: int, count: int) -> Iterator[bytes]:
    """`count` batches of `records` offsets each, some at a time."""
    for first in range(0, count, _BATCHES_AT_ONCE):
        yield b"".join(moved(one, number * records) for number in range(first, min(first + _BATCHES_AT_ONCE, count)))


class RepeatedLogs:
    """Three brokers' log directories below a folder, with one topic of some partitions, all of the same batches."""

    def __init__(self, folder: Path, topic: str, *, partitions: int, batches: int, batch: bytes, records: int) -> None:
        self.folder, self.topic, self.batch, self.records, self.batches = folder, topic, batch, records, batches
        log = folder / "whole.log"
        folder.mkdir(parents=True)
        with log.open("wb") as written:
            for some in repeated(batch, records, batches):
                written.write(some)
        self.log_dirs = []
        for broker in (1, 2, 3):
            for number in range(partitions):
                known: dict[str, Any] = {"topic_id": TOPIC_ID, "epochs": [(0, 0)], "high_watermark": records * batches}
                log_dir = put_replica(folder, broker, {}, partition=f"{topic}-{number}", **known)
                self.log_of(broker, number).hardlink_to(log)
            self.log_dirs.append(log_dir)
        log.unlink()

    def log_of(self, broker: int, partition: int) -> Path:
        return self.folder / f"broker-{broker}" / f"{self.topic}-{partition}" / segment_file(0)

    def change(self, broker: int, partition: int, number: int, wrong: bytes) -> None:
        """Write other bytes in place of one replica's batch of a number, from its first on."""
        data, start = self.log_of(broker, partition).read_bytes(), number * len(self.batch)
        self._replace(broker, partition, data[:start] + wrong + data[start + len(wrong) :])

    def cut(self, broker: int, partition: int, size_in_bytes: int) -> None:
        self._replace(broker, partition, self.log_of(broker, partition).read_bytes()[:size_in_bytes])

    def _replace(self, broker: int, partition: int, data: bytes) -> None:
        """Give a replica a file of its own, which the others share."""
        own = self.log_of(broker, partition).with_suffix(".own")
        own.write_bytes(data)
        own.replace(self.log_of(broker, partition))
