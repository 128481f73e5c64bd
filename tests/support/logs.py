"""Builds logs batch by batch: of producers, by time, and of keyed records that cleaners remove in part.

A log is built as a broker builds it: batches with sequences and transactions, rolled segments, and the contents of indexes,
snapshots and checkpoints. `tests.support.brokers` writes it as a directory.
"""

import hashlib
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from msgspec.structs import replace

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.coordinators import TransactionMetadata
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.writers.batches import (
    RecordToWrite,
    write_batch,
    write_marker,
    write_transaction_log_key,
    write_transaction_log_value,
)
from tests.support.segments import BASE_TIMESTAMP

IDEMPOTENT, COMMITTING, ABORTING = 3000, 1000, 2000
"""Producer ids."""
VALUE_BYTES: Final = 480


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch with its segment; `position` is its first byte in the segment's file."""

    data: bytes
    base_offset: int
    last_offset: int
    segment: int
    position: int
    max_timestamp: int

    @property
    def end(self) -> int:
        """Position after its last byte."""
        return self.position + len(self.data)


@dataclass(slots=True)
class Log:
    """A replica's log while it is written; `tag` makes record values differ between histories."""

    tag: str = ""
    next_offset: int = 0
    leader_epoch: int = 0
    batches: list[WrittenBatch] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    epochs: list[EpochEntry] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    aborted: dict[int, list[AbortedTxn]] = field(default_factory=dict)
    snapshots: dict[int, list[ProducerEntry]] = field(default_factory=dict)

    def roll(self) -> None:
        """Begin a segment and take a producer snapshot at its base offset."""
        if self.segments:
            self.snapshots[self.next_offset] = list(self.producers.values())
        self.segments.append(self.next_offset)

    def lead(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch

    def append(self, data: bytes, last_offset: int, max_timestamp: int) -> WrittenBatch:
        """Add a batch as it is."""
        if not self.segments:
            self.roll()
        segment = self.segments[-1]
        position = sum(len(batch.data) for batch in self.batches if batch.segment == segment)
        written = WrittenBatch(data, self.next_offset, last_offset, segment, position, max_timestamp)
        if not self.epochs or self.epochs[-1].leader_epoch < self.leader_epoch:
            self.epochs.append(EpochEntry(self.leader_epoch, self.next_offset))
        self.batches.append(written)
        self.next_offset = last_offset + 1
        return written

    def records(self, count: int) -> list[RecordToWrite]:
        """Records with a key and value derived from their offset; values compress badly and hold no long runs."""
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
    ) -> WrittenBatch:
        """Append a batch of these records that spans `offsets` offsets, and update the state of its idempotent producer."""
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

    def end(self, producer_id: int, stamp: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> WrittenBatch:
        """Append the marker that ends a producer's transaction; an abort adds an entry to the segment's transaction index."""
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

    def plain(self, count: int = 3) -> WrittenBatch:
        """Append a batch of a producer that is not idempotent."""
        return self.write(self.records(count), BASE_TIMESTAMP + 1000 * self.next_offset)

    def produce(self, producer_id: int = IDEMPOTENT, count: int = 3, *, transactional: bool = False, skip: int = 0) -> WrittenBatch:
        """Append a batch of an idempotent producer that skips `skip` sequence numbers after its last batch."""
        state = self.producers.get(producer_id)
        sequence = 0 if state is None else (state.last_sequence + 1 + skip) & MAX_SEQUENCE
        stamp = BASE_TIMESTAMP + 1000 * self.next_offset
        return self.write(self.records(count), stamp, producer_id=producer_id, sequence=sequence, transactional=transactional)

    def end_transaction(self, producer_id: int, *, commit: bool) -> WrittenBatch:
        """Append the marker that ends a producer's transaction, with the timestamps of `produce`."""
        return self.end(producer_id, BASE_TIMESTAMP + 1000 * self.next_offset, commit=commit)

    def batches_of_segment(self, segment: int) -> list[WrittenBatch]:
        return [batch for batch in self.batches if batch.segment == segment]

    def time_index_entries(self, segment: int) -> list[tuple[int, int]]:
        """Entries of a segment's time index: one per batch after the first, even where its timestamp is not the largest."""
        return [(batch.max_timestamp, batch.last_offset) for batch in self.batches_of_segment(segment)[1:]]

    def at(self, offset: int) -> WrittenBatch:
        return next(batch for batch in self.batches if batch.base_offset <= offset <= batch.last_offset)

    def extended(self, batches: int = 2, *, roll: bool = False, epoch: int | None = None, tag: str = "") -> Self:
        """A copy of the log with more batches of three records appended."""
        longer = deepcopy(self)
        longer.tag = tag
        if roll:
            longer.roll()
        longer.lead(longer.leader_epoch if epoch is None else epoch)
        for _ in range(batches):
            longer.plain()
        return longer

    def truncated_to(self, end: int) -> Self:
        """A copy of the log truncated to an offset where a batch begins."""
        shorter = deepcopy(self)
        shorter.batches = [batch for batch in shorter.batches if batch.base_offset < end]
        shorter.segments = [segment for segment in shorter.segments if segment < end]
        shorter.epochs = [entry for entry in shorter.epochs if entry.start_offset < end]
        shorter.snapshots = {offset: entries for offset, entries in shorter.snapshots.items() if offset < end}
        aborted = shorter.aborted.items()
        shorter.aborted = {base: [txn for txn in txns if txn.last_offset < end] for base, txns in aborted if base < end}
        shorter.producers = {}
        shorter.next_offset = end
        shorter.leader_epoch = shorter.epochs[-1].leader_epoch
        return shorter

    def after_retention(self, start: int) -> Self:
        """A copy of the log after retention deleted the segments before `start`."""
        later = deepcopy(self)
        later.batches = [batch for batch in later.batches if batch.segment >= start]
        later.segments = [segment for segment in later.segments if segment >= start]
        later.aborted = {base: entries for base, entries in later.aborted.items() if base >= start}
        later.snapshots = {offset: entries for offset, entries in later.snapshots.items() if offset >= start}
        later.epochs = [entry for entry in later.epochs if entry.start_offset >= start] or later.epochs[-1:]
        return later


class LogWriter(Protocol):
    """A writer of a log: `Log` batch by batch, or the brokers of `lab/fault_base.py`."""

    def produce(self, producer_id: int = IDEMPOTENT, count: int = 3, *, transactional: bool = False) -> object:
        """Append a batch of one of the three producers; begin a transaction if none is open."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> object:
        """Append the marker that ends the producer's transaction."""

    def roll(self) -> None:
        """Begin a segment with the next batch."""

    def lead(self, leader_epoch: int) -> None:
        """Use this leader epoch for the next batches."""


def write_healthy_history(log: LogWriter) -> None:
    """Write offsets [0, 75) in three segments (0, 29, 55) with leader epochs 0, 1 and 2 and two transactional producers."""
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


HEALTHY: Final = Log()
write_healthy_history(HEALTHY)
LOG_END: Final = HEALTHY.next_offset
HIGH_WATERMARK: Final = HEALTHY.batches[-1].base_offset
"""High watermark of every replica: all but the last batch is committed."""


def history(*batches: tuple[str, int], records: int = 1) -> Log:
    """A log of plain batches from (history tag, leader epoch) pairs; the tag `|` begins a segment."""
    log = Log()
    for tag, leader_epoch in batches:
        if tag == "|":
            log.roll()
            continue
        log.tag = tag
        log.lead(leader_epoch)
        log.plain(records)
    return log


# Logs with explicit times, in seconds after `BASE_TIMESTAMP`.

APP, OTHER = "app-1", "other-1"
APP_ID, OTHER_ID = 1000, 2000
"""Producer ids of the two transactional ids."""


def ms(seconds: float) -> int:
    return BASE_TIMESTAMP + round(1000 * seconds)


class ClockLog(Log):
    def time_index_entries(self, segment: int) -> list[tuple[int, int]]:
        """Entries of a segment's time index as brokers write them: only where the largest timestamp rises."""
        times = super().time_index_entries(segment)
        return [entry for number, entry in enumerate(times) if entry[0] > max((stamp for stamp, _ in times[:number]), default=-1)]


@dataclass(slots=True)
class DataLog(ClockLog):
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    def data(self, at: float, producer_id: int = APP_ID, epoch: int = 0, count: int = 2) -> WrittenBatch:
        sequence = self.sequences.get((producer_id, epoch), 0)
        self.sequences[producer_id, epoch] = sequence + count
        records = [replace(write, key=None, timestamp_delta=2) for write in self.records(count)]
        header = {"producer_id": producer_id, "epoch": epoch, "sequence": sequence}
        return self.write(records, ms(at), transactional=True, base_timestamp=ms(at) - 2, **header)

    def marker(
        self, at: float, *, commit: bool, producer_id: int = APP_ID, epoch: int = 0, coordinator_epoch: int = 0
    ) -> WrittenBatch:
        return self.end(producer_id, ms(at), commit=commit, epoch=epoch, coordinator_epoch=coordinator_epoch)

    def traffic(self, at: float) -> WrittenBatch:
        """Append a transaction of another producer, whose timestamps move the log's time forward."""
        self.data(at, OTHER_ID)
        return self.marker(at + 0.02, commit=True, producer_id=OTHER_ID)


class CoordinatorLog(ClockLog):
    def value(self, at: float, key: bytes, value: bytes | None) -> WrittenBatch:
        return self.write([RecordToWrite(key, value)], ms(at))

    def state(
        self,
        at: float,
        state: str,
        partitions: tuple[int, ...] = (),
        *,
        name: str = APP,
        epoch: int = 0,
        version: int = 1,
        since: float | None = None,
        client: int = 0,
    ) -> WrittenBatch:
        """Append a transaction-log record with the state of a transactional id; `partitions` are partitions of `t`."""
        producer_id = APP_ID if name == APP else OTHER_ID
        listed = tuple(("t", number) for number in partitions)
        started = ms(at if since is None else since)
        metadata = TransactionMetadata(
            producer_id, epoch, 60_000, state, listed, ms(at), started, client_transaction_version=client
        )
        return self.value(at, write_transaction_log_key(name), write_transaction_log_value(metadata, version))

    def transaction(
        self, at: float, partitions: tuple[int, ...], *, commit: bool, name: str = APP, epoch: int = 0, client: int = 0
    ) -> None:
        """Append a whole transaction: data for 50 ms, then the decision, markers after 40 ms; version 2 raises the epoch."""
        verdict, after = ("Commit" if commit else "Abort"), epoch + (client == 2)
        self.state(at, "Ongoing", partitions, name=name, epoch=epoch, client=client)
        self.state(at + 0.05, f"Prepare{verdict}", partitions, name=name, epoch=after, since=at, client=client)
        self.state(at + 0.09, f"Complete{verdict}", name=name, epoch=after, since=at, client=client)

    def expire(self, at: float, name: str = APP) -> WrittenBatch:
        return self.value(at, write_transaction_log_key(name), None)


# Compacted topics: one history, and the records that each broker's cleaner left of it.

CLEANED = 12
"""Base offset of the active segment of `keyed_history`, where every cleaner ends."""
FUTURE_MS = 4_000_000_000_000
"""A time later than the age of any file."""
Keyed = tuple[str | None, str | None]
"""Key and value; None is null, and a key with a null value is a tombstone."""


@dataclass(frozen=True, slots=True)
class Step:
    """A batch of a history: records, or the marker that ends a producer's transaction."""

    records: tuple[Keyed, ...] = ()
    producer_id: int = -1
    commit: bool | None = None

    @property
    def offsets(self) -> int:
        return max(len(self.records), 1)


@dataclass(slots=True)
class History:
    """The batches that the leader wrote, from offset 0."""

    steps: list[Step] = field(default_factory=list)
    start_ms: int = BASE_TIMESTAMP

    def put(self, *records: Keyed) -> "History":
        self.steps.append(Step(records))
        return self

    def fill(self, count: int, name: str = "fill") -> "History":
        """Append `count` batches of one record, each with a different key."""
        for _ in range(count):
            self.put((f"{name}-{self.end}", "x"))
        return self

    def transaction(self, producer_id: int, *records: Keyed, commit: bool | None) -> "History":
        """Append a batch in a transaction and its marker; with `commit=None` the transaction stays open."""
        self.steps.append(Step(records, producer_id))
        return self if commit is None else self.marker(producer_id, commit=commit)

    def marker(self, producer_id: int, *, commit: bool) -> "History":
        self.steps.append(Step((), producer_id, commit))
        return self

    @property
    def end(self) -> int:
        return sum(step.offsets for step in self.steps)

    def left(
        self, dropped: Iterable[int] = (), *, end: int | None = None, roll: int | None = None, horizon: int | None = None
    ) -> Log:
        """A replica's log up to `end` without the dropped offsets; empty batches are left out, segments keep their base offsets.

        The active segment begins at `roll`; `horizon` is the delete horizon of the batches before it.
        """
        log, removed, offset = Log(), set(dropped), 0
        log.roll()
        for step in self.steps:
            span = range(offset, offset + step.offsets)
            offset = span.stop
            if end is not None and span.start >= end:
                break
            if roll is not None and span.start == roll and log.batches:
                log.next_offset = roll
                log.roll()
            kept = [number for number in span if number not in removed]
            if kept:
                log.next_offset = span.start
                self._write(log, step, kept, None if roll is not None and span.start >= roll else horizon)
            log.next_offset = span.stop
        return log

    def _write(self, log: Log, step: Step, kept: list[int], horizon: int | None) -> None:
        base, stamp = log.next_offset, self.start_ms + 1000 * log.next_offset
        if step.commit is not None:
            log.end(step.producer_id, stamp, commit=step.commit)
            return
        records = [
            RecordToWrite(_bytes(key), _bytes(value), timestamp_delta=2, offset_delta=delta)
            for delta, (key, value) in enumerate(step.records)
            if base + delta in kept
        ]
        state, is_transactional = log.producers.get(step.producer_id), step.producer_id >= 0
        sequence = -1 if not is_transactional else 0 if state is None else state.last_sequence + 1
        numbers = {"producer_id": step.producer_id, "sequence": sequence, "offsets": len(step.records)}
        times: dict[str, Any] = {"base_timestamp": stamp - 2, "max_timestamp": stamp, "delete_horizon_ms": horizon}
        log.write(records, stamp, transactional=is_transactional, **numbers, **times)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def keyed_history(start_ms: int = BASE_TIMESTAMP) -> History:
    """Offsets [0, 16): 0 a=1, 1 b=1, 2 a=2, 3 c=1, 4 c deleted, then keys that occur once."""
    story = History(start_ms=start_ms)
    story.put(("a", "1")).put(("b", "1"), ("a", "2")).put(("c", "1")).put(("c", None))
    return fill_segment(story)


def fill_segment(story: History) -> History:
    """Append records with keys that occur once, up to four offsets into the active segment."""
    return story.fill(CLEANED + 4 - story.end)
