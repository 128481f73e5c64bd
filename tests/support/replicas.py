"""Brokers' log directories: one partition of given segments, large logs of one batch again and again, and many equal partitions."""

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from kafka_forensics.writers.files import write_leader_epochs, write_meta_properties
from tests.support.controller_log import CONTROLLER, ControllerLog, change, partition, topic
from tests.support.faults import CLUSTER_ID, TOPIC_ID
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP

_BATCHES_AT_ONCE: Final = 4096


def put_replica(
    folder: Path,
    broker: int | str,
    log: bytes | Mapping[int, bytes],
    *,
    partition: str = "orders-0",
    high_watermark: int = 0,
    base_offset: int = 0,
    topic_id: str | None = None,
    epochs: Sequence[tuple[int, int]] | None = None,
) -> Path:
    """`folder/broker-N`, a log directory whose segments are `log`, by base offset if there are several.

    `epochs` is its leader-epoch-checkpoint. A broker that is no number has no `meta.properties`.
    """
    log_dir = folder / f"broker-{broker}"
    directory = log_dir / partition
    directory.mkdir(parents=True)
    for offset, data in (log if isinstance(log, Mapping) else {base_offset: log}).items():
        (directory / f"{offset:020d}.log").write_bytes(data)
    if isinstance(broker, int):
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    checkpoint, line = log_dir / "replication-offset-checkpoint", f"{' '.join(partition.rsplit('-', 1))} {high_watermark}"
    lines = [*(checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []), line]
    checkpoint.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    if topic_id is not None:
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    if epochs is not None:
        (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(*entry) for entry in epochs]))
    return log_dir


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
        return self.folder / f"broker-{broker}" / f"{self.topic}-{partition}" / f"{0:020}.log"

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


SAMPLE: Final = SAMPLES / "unclean-election"
AUDIT: Final = "audit"
STARTED_MS: Final = 1_795_240_000_000
"""Of the first record in the controllers' log: after the last of the sample."""
HIGH_WATERMARKS: Final = {1: 345, 2: 370, 3: 300}
"""By broker, as in the sample."""


def unclean_election(root: Path, count: int, *, controller: bool = True) -> list[Path]:
    """`count` times the sample's partition that lost data, by an unclean election that a controllers' log has, or nobody tells;
    the log directories."""
    log_dirs = [
        _log_dir(root, broker, SAMPLE / f"broker-{broker}" / "audit-0", count, high_watermark)
        for broker, high_watermark in HIGH_WATERMARKS.items()
    ]
    if controller:
        log = ControllerLog(start_ms=STARTED_MS).lead([CONTROLLER])
        log.append(topic(AUDIT), *(partition([2], 2, partition_id=number, replicas=[1, 2, 3]) for number in range(count)))
        log.append(*(change(partition_id=number, leader=-1, isr=[2]) for number in range(count)))
        log.append(*(change(partition_id=number, leader=1, isr=[1], leader_recovery_state=1) for number in range(count)))
        log.put(root / f"controller-{CONTROLLER}")
        log_dirs.append(root / f"controller-{CONTROLLER}")
    return log_dirs


def old_directory(root: Path, count: int) -> list[Path]:
    """`count` partitions on three brokers in sync, of which broker 3's log directory was put back from an older copy."""
    newest, older = SAMPLE / "broker-2" / "audit-0", SAMPLE / "broker-3" / "audit-0"
    log_dirs = [_log_dir(root, broker, newest, count, HIGH_WATERMARKS[2]) for broker in (1, 2)]
    log_dirs.append(_log_dir(root, 3, older, count, HIGH_WATERMARKS[3]))
    log = ControllerLog(start_ms=STARTED_MS).lead([CONTROLLER])
    log.append(topic(AUDIT), *(partition([1, 2, 3], 1, partition_id=number) for number in range(count)))
    log.put(root / f"controller-{CONTROLLER}")
    return [*log_dirs, root / f"controller-{CONTROLLER}"]


def _log_dir(root: Path, broker: int, replica: Path, count: int, high_watermark: int) -> Path:
    for number in range(count):
        known: dict[str, Any] = {"topic_id": TOPIC_ID, "high_watermark": high_watermark}
        log_dir = put_replica(root, broker, {}, partition=f"{AUDIT}-{number}", **known)
        shutil.copytree(replica, log_dir / f"{AUDIT}-{number}", dirs_exist_ok=True)
        (log_dir / f"{AUDIT}-{number}" / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, cluster_id=CLUSTER_ID))
    return log_dir
