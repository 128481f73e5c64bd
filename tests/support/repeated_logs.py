"""Logs of any size made quickly: one batch again and again, at ever later offsets, which no CRC covers."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from kafka_forensics.writers.files import (
    write_leader_epochs,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
)

BASE_TIMESTAMP: Final = 1_750_000_000_000
CLUSTER_ID: Final = "cluster-of-the-tests-0"
TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_BATCHES_AT_ONCE: Final = 4096


def batch(records: int, value_bytes: int, compression_type: str, seed: int = 1) -> bytes:
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
    """The batch at another offset."""
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
        self.log_dirs = [self._log_dir(broker, partitions, log) for broker in (1, 2, 3)]
        log.unlink()

    def _log_dir(self, broker: int, partitions: int, log: Path) -> Path:
        log_dir = self.folder / f"broker-{broker}"
        log_dir.mkdir()
        (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, cluster_id=CLUSTER_ID))
        high_watermarks = {(self.topic, number): self.records * self.batches for number in range(partitions)}
        (log_dir / "replication-offset-checkpoint").write_bytes(write_offset_checkpoint(high_watermarks))
        for number in range(partitions):
            directory = log_dir / f"{self.topic}-{number}"
            directory.mkdir()
            (directory / "partition.metadata").write_bytes(write_partition_metadata(TOPIC_ID))
            (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(0, 0)]))
            self.log_of(broker, number).hardlink_to(log)
        return log_dir

    def log_of(self, broker: int, partition: int) -> Path:
        """The only segment of a replica."""
        return self.folder / f"broker-{broker}" / f"{self.topic}-{partition}" / f"{0:020}.log"

    def change(self, broker: int, partition: int, number: int, wrong: bytes) -> None:
        """Write other bytes in place of one replica's batch of a number, from its first on."""
        log = self.log_of(broker, partition)
        own = log.with_suffix(".own")
        own.write_bytes(log.read_bytes())
        with own.open("r+b") as written:
            written.seek(number * len(self.batch))
            written.write(wrong)
        own.replace(log)

    def cut(self, broker: int, partition: int, size_in_bytes: int) -> None:
        """Leave one replica's log only its first bytes."""
        log = self.log_of(broker, partition)
        own = log.with_suffix(".own")
        own.write_bytes(log.read_bytes()[:size_in_bytes])
        own.replace(log)
