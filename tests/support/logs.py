"""Logs written batch by batch: by producers, by the clock, and keyed records of which cleaners leave some.

A log is built as brokers build one: batches with sequences and transactions, rolled segments, and what the indexes, snapshots and
checkpoints beside it hold. `tests.support.brokers` makes directories of it.
"""

import hashlib
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, Self

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

    def times_of(self, segment: int) -> list[tuple[int, int]]:
        """Entries of its time index: of each batch but the first, also where its timestamp is not the largest."""
        return [(batch.max_timestamp, batch.last_offset) for batch in self.of_segment(segment)[1:]]

    def at(self, offset: int) -> Written:
        return next(batch for batch in self.batches if batch.base_offset <= offset <= batch.last_offset)

    def grown(self, batches: int = 2, *, roll: bool = False, epoch: int | None = None, tag: str = "") -> Self:
        """The log with more batches of three records each after it."""
        longer = deepcopy(self)
        longer.tag = tag
        if roll:
            longer.roll()
        longer.lead(longer.leader_epoch if epoch is None else epoch)
        for _ in range(batches):
            longer.plain()
        return longer

    def cut(self, end: int) -> Self:
        """The log as far as an offset where a batch begins, after whatever cut it there."""
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

    def expired(self, start: int) -> Self:
        """The log from a segment on, after retention deleted those before it."""
        later = deepcopy(self)
        later.batches = [batch for batch in later.batches if batch.segment >= start]
        later.segments = [segment for segment in later.segments if segment >= start]
        later.aborted = {base: entries for base, entries in later.aborted.items() if base >= start}
        later.snapshots = {offset: entries for offset, entries in later.snapshots.items() if offset >= start}
        later.epochs = [entry for entry in later.epochs if entry.start_offset >= start] or later.epochs[-1:]
        return later


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


HEALTHY: Final = Log()
write_base(HEALTHY)
LOG_END: Final = HEALTHY.next_offset
HIGH_WATERMARK: Final = HEALTHY.batches[-1].base_offset
"""Of every replica: all but the last batch is committed."""


def history(*batches: tuple[str, int], records: int = 1) -> Log:
    """A log of plain batches, each with the history its records belong to and its leader epoch; `|` begins a segment."""
    log = Log()
    for tag, leader_epoch in batches:
        if tag == "|":
            log.roll()
            continue
        log.tag = tag
        log.lead(leader_epoch)
        log.plain(records)
    return log


# By the clock: times are given in seconds after `BASE_TIMESTAMP`, so that a test says what happened when.

APP, OTHER = "app-1", "other-1"
APP_ID, OTHER_ID = 1000, 2000
"""Producer ids of the two transactional ids."""


def ms(seconds: float) -> int:
    return BASE_TIMESTAMP + round(1000 * seconds)


class ClockLog(Log):
    def times_of(self, segment: int) -> list[tuple[int, int]]:
        """Entries of its time index, as brokers write them: only where the largest timestamp has risen."""
        times = super().times_of(segment)
        return [entry for number, entry in enumerate(times) if entry[0] > max((stamp for stamp, _ in times[:number]), default=-1)]


@dataclass(slots=True)
class DataLog(ClockLog):
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    def data(self, at: float, producer_id: int = APP_ID, epoch: int = 0, count: int = 2) -> Written:
        sequence = self.sequences.get((producer_id, epoch), 0)
        self.sequences[producer_id, epoch] = sequence + count
        records = [replace(write, key=None, timestamp_delta=2) for write in self.records(count)]
        header = {"producer_id": producer_id, "epoch": epoch, "sequence": sequence}
        return self.write(records, ms(at), transactional=True, base_timestamp=ms(at) - 2, **header)

    def marker(self, at: float, *, commit: bool, producer_id: int = APP_ID, epoch: int = 0, coordinator_epoch: int = 0) -> Written:
        return self.end(producer_id, ms(at), commit=commit, epoch=epoch, coordinator_epoch=coordinator_epoch)

    def traffic(self, at: float) -> Written:
        """A transaction of somebody else, as a clock."""
        self.data(at, OTHER_ID)
        return self.marker(at + 0.02, commit=True, producer_id=OTHER_ID)


class CoordinatorLog(ClockLog):
    def value(self, at: float, key: bytes, value: bytes | None) -> Written:
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
    ) -> Written:
        """The state of a transactional id from now on; `partitions` are those of `t`."""
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
        """A whole transaction: 50 ms of data, then the decision, 40 ms for the markers; the epoch rises in version 2."""
        verdict, after = ("Commit" if commit else "Abort"), epoch + (client == 2)
        self.state(at, "Ongoing", partitions, name=name, epoch=epoch, client=client)
        self.state(at + 0.05, f"Prepare{verdict}", partitions, name=name, epoch=after, since=at, client=client)
        self.state(at + 0.09, f"Complete{verdict}", name=name, epoch=after, since=at, client=client)

    def expire(self, at: float, name: str = APP) -> Written:
        return self.value(at, write_transaction_log_key(name), None)


# Of a compacted topic: one history, and what each broker's cleaner has left of it.

CLEANED = 12
"""Where the active segment of `history` begins, and so the farthest a cleaner comes."""
FUTURE_MS = 4_000_000_000_000
"""Times that no file's age reaches."""
Keyed = tuple[str | None, str | None]
"""Key and value; None is null, so that a key without a value is a tombstone."""


@dataclass(frozen=True, slots=True)
class Step:
    """A batch of the history: records, or the marker that ends a producer's transaction."""

    records: tuple[Keyed, ...] = ()
    producer_id: int = -1
    commit: bool | None = None

    @property
    def offsets(self) -> int:
        return max(len(self.records), 1)


@dataclass(slots=True)
class History:
    """What the leader wrote, batch by batch; offsets are counted from 0."""

    steps: list[Step] = field(default_factory=list)
    start_ms: int = BASE_TIMESTAMP

    def put(self, *records: Keyed) -> "History":
        self.steps.append(Step(records))
        return self

    def fill(self, count: int, name: str = "fill") -> "History":
        """Batches of one record each, with keys of their own."""
        for _ in range(count):
            self.put((f"{name}-{self.end}", "x"))
        return self

    def transaction(self, producer_id: int, *records: Keyed, commit: bool | None) -> "History":
        """A batch in a transaction, and its marker unless it stays open."""
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
        """A replica's log up to `end` without the dropped offsets; batches with nothing left are gone, segments keep their names.

        The active segment begins at `roll`; `horizon` is the delete horizon of the batches before it.
        """
        log, gone, offset = Log(), set(dropped), 0
        log.roll()
        for step in self.steps:
            span = range(offset, offset + step.offsets)
            offset = span.stop
            if end is not None and span.start >= end:
                break
            if roll is not None and span.start == roll and log.batches:
                log.next_offset = roll
                log.roll()
            kept = [one for one in span if one not in gone]
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
    """Offsets [0, 16): 0 a=1, 1 b=1, 2 a=2, 3 c=1, 4 c deleted, then keys of their own."""
    story = History(start_ms=start_ms)
    story.put(("a", "1")).put(("b", "1"), ("a", "2")).put(("c", "1")).put(("c", None))
    return fill_segment(story)


def fill_segment(story: History) -> History:
    """The same, followed by keys of their own up to behind where the active segment begins."""
    return story.fill(CLEANED + 4 - story.end)
