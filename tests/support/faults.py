"""The patient of the fault gallery: three replicas of topic `t`, partition 0, as real log directories written batch by batch.

A log is built as brokers build one: batches with sequences and transactions, rolled segments, and beside them the indexes,
snapshots and checkpoints that Kafka 4 would have left there after a clean shutdown. Faults are injected into these files.
"""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from kafka_forensics.writers.files import (
    write_clean_shutdown,
    write_leader_epochs,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
    write_producer_snapshot,
    write_transaction_index,
)
from tests.support.segments import write_offset_index, write_time_index

TOPIC: Final = "t"
DIRECTORY: Final = "t-0"
TOPIC_ID: Final = "q1w2e3r4t5y6u7i8o9p0aQ"
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
BASE_TIMESTAMP: Final = 1_700_000_000_000
IDEMPOTENT, COMMITTING, ABORTING = 3000, 1000, 2000
"""Producer ids."""
VALUE_BYTES: Final = 480


@dataclass(frozen=True, slots=True)
class Written:
    """A batch and where it stands; `position` counts from the start of its segment's file."""

    data: bytes
    base_offset: int
    last_offset: int
    segment: int
    position: int
    max_timestamp: int

    @property
    def end(self) -> int:
        """Byte behind it."""
        return self.position + len(self.data)


@dataclass(slots=True)
class Log:
    """A replica's log while it is written. `tag` makes the records of one history differ from another's."""

    tag: str = ""
    next_offset: int = 0
    leader_epoch: int = 0
    batches: list[Written] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    epochs: list[EpochEntry] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    aborted: dict[int, list[AbortedTxn]] = field(default_factory=dict)
    snapshots: dict[int, list[ProducerEntry]] = field(default_factory=dict)

    def roll(self) -> None:
        """Begin a segment; the producers' state is written down there."""
        if self.segments:
            self.snapshots[self.next_offset] = list(self.producers.values())
        self.segments.append(self.next_offset)

    def lead(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch

    def append(self, data: bytes, last_offset: int, max_timestamp: int) -> Written:
        """Add a batch as it is."""
        if not self.segments:
            self.roll()
        segment = self.segments[-1]
        position = sum(len(batch.data) for batch in self.batches if batch.segment == segment)
        written = Written(data, self.next_offset, last_offset, segment, position, max_timestamp)
        if not self.epochs or self.epochs[-1].leader_epoch < self.leader_epoch:
            self.epochs.append(EpochEntry(self.leader_epoch, self.next_offset))
        self.batches.append(written)
        self.next_offset = last_offset + 1
        return written

    def records(self, count: int) -> list[RecordToWrite]:
        """Records of their own offsets, with values that compress badly and hold no long runs."""
        numbers = range(self.next_offset, self.next_offset + count)
        values = [hashlib.shake_128(f"{self.tag}/{number}".encode()).digest(VALUE_BYTES) for number in numbers]
        return [RecordToWrite(f"key-{number}".encode(), value) for number, value in zip(numbers, values, strict=True)]

    def write(
        self,
        records: list[RecordToWrite],
        stamp: int,
        *,
        producer_id: int = -1,
        epoch: int = 0,
        sequence: int = -1,
        transactional: bool = False,
        offsets: int | None = None,
        **header: Any,
    ) -> Written:
        """A batch of these records that takes so many `offsets`; the state of an idempotent producer follows it."""
        base, delta = self.next_offset, (len(records) if offsets is None else offsets) - 1
        data = write_batch(
            records,
            base_offset=base,
            partition_leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else epoch,
            base_sequence=sequence,
            is_transactional=transactional,
            last_offset_delta=delta,
            **{"base_timestamp": stamp} | header,
        )
        if producer_id >= 0:
            state, last_sequence = self.producers.get(producer_id), (sequence + delta) & MAX_SEQUENCE
            first, coordinator_epoch = (-1, -1) if state is None else (state.current_txn_first_offset, state.coordinator_epoch)
            first = base if transactional and first < 0 else first
            entry = ProducerEntry(producer_id, epoch, last_sequence, base + delta, delta, stamp, coordinator_epoch, first)
            self.producers[producer_id] = entry
        return self.append(data, base + delta, stamp)

    def end(self, producer_id: int, stamp: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> Written:
        """The marker that ends a producer's transaction; an abort goes to the segment's transaction index."""
        offset = self.next_offset
        data = write_marker(
            commit,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=stamp,
            partition_leader_epoch=self.leader_epoch,
        )
        written = self.append(data, offset, stamp)
        state = self.producers.get(producer_id, ProducerEntry(producer_id, epoch, -1, -1, 0, stamp, coordinator_epoch, -1))
        ended = replace(state, timestamp=stamp, coordinator_epoch=coordinator_epoch, current_txn_first_offset=-1)
        if epoch != state.producer_epoch:
            ended = replace(ended, producer_epoch=epoch, last_sequence=-1, last_offset=-1, offset_delta=0)
        self.producers[producer_id] = ended
        if not commit and state.current_txn_first_offset >= 0:
            opened = [entry.current_txn_first_offset for entry in self.producers.values() if entry.current_txn_first_offset >= 0]
            aborted = AbortedTxn(producer_id, state.current_txn_first_offset, offset, min(opened, default=offset + 1))
            self.aborted.setdefault(written.segment, []).append(aborted)
        return written

    def plain(self, count: int = 3) -> Written:
        """A batch of a producer that is not idempotent."""
        return self.write(self.records(count), BASE_TIMESTAMP + 1000 * self.next_offset)

    def produce(self, producer_id: int = IDEMPOTENT, count: int = 3, *, transactional: bool = False, skip: int = 0) -> Written:
        """A batch of an idempotent producer, `skip` sequence numbers further than its last."""
        state = self.producers.get(producer_id)
        sequence = 0 if state is None else (state.last_sequence + 1 + skip) & MAX_SEQUENCE
        stamp = BASE_TIMESTAMP + 1000 * self.next_offset
        return self.write(self.records(count), stamp, producer_id=producer_id, sequence=sequence, transactional=transactional)

    def end_transaction(self, producer_id: int, *, commit: bool) -> Written:
        """The marker that ends a producer's transaction, by the clock of `produce`."""
        return self.end(producer_id, BASE_TIMESTAMP + 1000 * self.next_offset, commit=commit)

    def of_segment(self, segment: int) -> list[Written]:
        return [batch for batch in self.batches if batch.segment == segment]

    def at(self, offset: int) -> Written:
        return next(batch for batch in self.batches if batch.base_offset <= offset <= batch.last_offset)


class Historian(Protocol):
    """Who writes a log: `Log` batch by batch, or the brokers of `lab/fault_base.py`."""

    def produce(self, producer_id: int = IDEMPOTENT, count: int = 3, *, transactional: bool = False) -> object:
        """A batch of one of the three producers; a transaction begins if it has none open."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> object:
        """The marker that ends its transaction."""

    def roll(self) -> None:
        """What follows stands in a new segment."""

    def lead(self, leader_epoch: int) -> None:
        """What follows is appended under this leader epoch."""


def write_base(log: Historian) -> None:
    """Offsets [0, 75) in three segments (0, 29, 55), leader epochs 0, 1 and 2, two transactional producers."""
    _ = log.produce(), log.produce(), log.produce(COMMITTING, transactional=True), log.produce()
    log.end_transaction(COMMITTING, commit=True)
    _ = log.produce(ABORTING, transactional=True), log.produce(), log.produce(ABORTING, transactional=True)
    log.end_transaction(ABORTING, commit=False)
    _ = log.produce(), log.produce(ABORTING, transactional=True)
    log.roll()
    log.produce()
    log.lead(1)
    log.produce()
    log.end_transaction(ABORTING, commit=False)
    _ = log.produce(COMMITTING, transactional=True), log.produce()
    log.end_transaction(COMMITTING, commit=True)
    _ = log.produce(), log.produce(), log.produce(), log.produce()
    log.roll()
    log.produce()
    log.lead(2)
    _ = log.produce(), log.produce(ABORTING, transactional=True)
    log.end_transaction(ABORTING, commit=False)
    log.produce(COMMITTING, transactional=True)
    log.end_transaction(COMMITTING, commit=True)
    _ = log.produce(), log.produce()


def healthy_log() -> Log:
    log = Log()
    write_base(log)
    return log


HEALTHY: Final = healthy_log()
LOG_END: Final = HEALTHY.next_offset
HIGH_WATERMARK: Final = HEALTHY.batches[-1].base_offset
"""Of every replica: all but the last batch is committed."""


def write_files(directory: Path, log: Log) -> None:
    """Everything of a partition directory that follows from the log."""
    directory.mkdir(parents=True)
    for segment in log.segments or [0]:
        batches = log.of_segment(segment)
        put(directory, segment, "log", b"".join(batch.data for batch in batches))
        indexed = batches[1:]
        put(directory, segment, "index", write_offset_index([(one.last_offset, one.position) for one in indexed], segment))
        times = [(one.max_timestamp, one.last_offset) for one in indexed]
        put(directory, segment, "timeindex", write_time_index(times, segment))
        if segment in log.aborted:
            put(directory, segment, "txnindex", write_transaction_index(log.aborted[segment]))
    for offset, entries in [*log.snapshots.items(), (log.next_offset, list(log.producers.values()))]:
        put(directory, offset, "snapshot", write_producer_snapshot(entries))
    (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs(log.epochs))
    (directory / "partition.metadata").write_bytes(write_partition_metadata(TOPIC_ID))


def put(directory: Path, offset: int, suffix: str, data: bytes) -> None:
    (directory / f"{offset:020d}.{suffix}").write_bytes(data)


def write_checkpoint(log_dir: Path, which: str, offset: int) -> None:
    """`<which>-offset-checkpoint` with another offset of `t-0`; what it says of other partitions stays."""
    path = log_dir / f"{which}-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    others = {(name, int(number)): int(end) for name, number, end in (line.rsplit(" ", 2) for line in lines)}
    path.write_bytes(write_offset_checkpoint(others | {(TOPIC, 0): offset}))


def write_replica(log_dir: Path, node_id: int, log: Log, high_watermark: int, *, cluster_id: str = CLUSTER_ID) -> None:
    """A broker's log directory that holds this log alone, after a clean shutdown."""
    write_files(log_dir / DIRECTORY, log)
    (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=node_id, cluster_id=cluster_id))
    (log_dir / ".kafka_cleanshutdown").write_bytes(write_clean_shutdown(7))
    write_checkpoint(log_dir, "replication", high_watermark)
    write_checkpoint(log_dir, "recovery-point", log.next_offset)
    write_checkpoint(log_dir, "log-start", 0)
    (log_dir / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint({}))


@dataclass(frozen=True, slots=True)
class Brokers:
    """The log directories of brokers 1, 2 and 3, and the tools injectors work with."""

    root: Path
    log: Log

    def log_dir(self, broker: int) -> Path:
        return self.root / f"b{broker}"

    @property
    def log_dirs(self) -> list[Path]:
        return sorted(self.root.iterdir())

    def file(self, broker: int, segment: int, suffix: str = "log") -> Path:
        return self.log_dir(broker) / DIRECTORY / f"{segment:020d}.{suffix}"

    def named(self, broker: int, name: str) -> Path:
        return self.log_dir(broker) / DIRECTORY / name

    def overwrite(self, broker: int, batch: Written, data: bytes, start: int = 0) -> None:
        path = self.file(broker, batch.segment)
        log = bytearray(path.read_bytes())
        assert bytes(log[batch.position : batch.end]) == batch.data
        assert start + len(data) <= len(batch.data)
        log[batch.position + start : batch.position + start + len(data)] = data
        path.write_bytes(log)

    def flip(self, broker: int, batch: Written, byte: int, bit: int = 0) -> None:
        self.overwrite(broker, batch, bytes([batch.data[byte] ^ 1 << bit]), byte)

    def crash(self, broker: int) -> None:
        """Take away what only a clean shutdown writes: its mark, the last snapshot, a recovery point at the log end."""
        (self.log_dir(broker) / ".kafka_cleanshutdown").unlink()
        self.file(broker, self.log.next_offset, "snapshot").unlink()
        write_checkpoint(self.log_dir(broker), "recovery-point", self.log.segments[-1])


def healthy(root: Path, high_watermark: int = HIGH_WATERMARK) -> Brokers:
    for broker in (1, 2, 3):
        write_replica(root / f"b{broker}", broker, HEALTHY, high_watermark)
    return Brokers(root, HEALTHY)


def histories(root: Path, logs: dict[int, Log], high_watermarks: dict[int, int]) -> Brokers:
    """Replicas that hold different histories; a high watermark of 0 is written as such."""
    for broker, log in logs.items():
        write_replica(root / f"b{broker}", broker, log, high_watermarks[broker])
    return Brokers(root, next(iter(logs.values())))
