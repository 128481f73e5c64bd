"""A losing version of a log read record by record: what is given, and why the rest is not. Each offset is counted once."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_forensics.model.batches import BatchColumn, Record
from kafka_forensics.model.recovered import Count, Proof, RecoveredRecord
from kafka_forensics.questions.plan import Amount
from kafka_forensics.questions.recover.copies import Copies, Source
from kafka_forensics.questions.recover.matching import Matches, Sought
from kafka_forensics.questions.recover.reading import ReadBatch
from kafka_forensics.replication.offset_ranges import normalised
from kafka_forensics.replication.planner import Broker, Loss
from kafka_forensics.rereading.record_states import ABORTED, OPEN

_BY_STATE: Final = {ABORTED: "aborted", OPEN: "open"}


@dataclass(slots=True)
class RecoveredRange:
    """One loss of the surviving side's election, and what became of its offsets."""

    loss: Loss
    planned: Amount
    """What the plan says that it comes to."""
    sources: list[Source] = field(default_factory=list)
    count: Count = field(default_factory=Count)


class _Stretch(NamedTuple):
    """Offsets that are counted together; with a record they are its one, and `reason` is None if nothing speaks against it yet."""

    start: int
    end: int
    reason: str | None
    broker: Broker | None = None
    batch: ReadBatch | None = None
    record: Record | None = None
    txn_state: str = ""


@dataclass(slots=True)
class _Found:
    """Which records of a round are elsewhere: on the surviving side, in versions given before, and in those to come."""

    surviving: Matches
    before: Matches
    behind: list[tuple[tuple[Broker, ...], Matches]]
    superseded: set[int]

    def reason(self, offset: int) -> str | None:
        """Why a record is not given, None if it is."""
        if offset in self.surviving.strong:
            return "surviving"
        if offset in self.superseded:
            return "superseded"
        if offset in self.surviving.weak:
            return "surviving_by_content"
        return "merged" if offset in self.before.strong or offset in self.before.weak else None

    def others(self, offset: int) -> Iterator[Broker]:
        """Who holds it as well, in another version."""
        for holders, matches in self.behind:
            if offset in matches.strong or offset in matches.weak:
                yield from holders


class Versions:
    """All that the surviving side, broker `kept`, loses of a partition; `ranges` by their offsets."""

    def __init__(self, copies: Copies, kept: Broker, ranges: Sequence[RecoveredRange]) -> None:
        self._copies, self._kept, self._ranges = copies, kept, ranges
        self._topic, self._partition = copies.given.topic, copies.given.partition

    def records(self, first: int, behind: int) -> Iterator[RecoveredRecord]:
        """The records given of `ranges[first:behind]`, which the same brokers hold; the ranges count meanwhile."""
        of_version = self._ranges[first:behind]
        left = deque((recovered, recovered.loss.start, recovered.loss.end) for recovered in of_version)
        while left:
            sought = Sought(self._copies.given.compacted)
            taken = []
            while left and not sought.is_full:
                recovered, low, high = left.popleft()
                stop = self._seek(sought, recovered.loss, low, high)
                taken.append((recovered, low, stop))
                if stop < high:
                    left.appendleft((recovered, stop, high))
            found = self._found(sought, first, behind)
            for recovered, low, stop in taken:
                yield from self._given(recovered, low, stop, found)

    def _seek(self, sought: Sought, loss: Loss, low: int, high: int) -> int:
        """Look for the records of a range, as many as are looked for at once; the offset behind the last of them."""
        for stretch in self._stretches(loss, low, high):
            if stretch.record is not None and stretch.batch is not None and stretch.reason is None:
                sought.add(stretch.record, stretch.batch.facts)
                if sought.is_full:
                    return stretch.end
        return high

    def _found(self, sought: Sought, first: int, behind: int) -> _Found:
        """Look for the records of a round everywhere else."""
        holders = self._ranges[first].loss.held_by
        found = _Found(Matches(sought), Matches(sought), [], set())
        log = self._copies.log(self._kept)
        if log is not None and sought.count:
            endings = self._copies.endings(self._kept)
            found.surviving.look(log, self._copies.own(self._kept, holders), endings)
            if sought.with_keys:
                found.surviving.look_for_keys(log, self._copies.start, self._copies.alike(self._kept, holders), endings)
                found.superseded = found.surviving.superseded()
        self._look(found.before, holders, self._ranges[:first])
        others: dict[tuple[Broker, ...], list[RecoveredRange]] = {}
        for recovered in self._ranges[behind:]:
            others.setdefault(recovered.loss.held_by, []).append(recovered)
        for other_holders, ranges in others.items():
            found.behind.append((other_holders, Matches(sought)))
            self._look(found.behind[-1][1], holders, ranges)
        return found

    def _look(self, matches: Matches, holders: Sequence[Broker], ranges: Sequence[RecoveredRange]) -> None:
        """Look in other versions; what stands twice in one log was written twice."""
        by_broker: dict[Broker, list[tuple[int, int]]] = {}
        for recovered in ranges if matches.sought.count else ():
            if set(holders).isdisjoint(recovered.loss.held_by):
                for start, end, broker in recovered.sources:
                    if broker is not None:
                        by_broker.setdefault(broker, []).append((start, end))
        for broker, spans in by_broker.items():
            log = self._copies.log(broker)
            assert log is not None
            matches.look(log, normalised(spans), self._copies.endings(broker))

    def _given(self, recovered: RecoveredRange, low: int, high: int, found: _Found) -> Iterator[RecoveredRecord]:
        loss = recovered.loss
        for stretch in self._stretches(loss, low, high):
            reason = stretch.reason or found.reason(stretch.start)
            recovered.count.note(reason or "recovered", stretch.start, stretch.end, loss.committed_end)
            if reason is None:
                yield self._record(loss, stretch, found)

    def _record(self, loss: Loss, stretch: _Stretch, found: _Found) -> RecoveredRecord:
        batch, record, broker, witness = stretch.batch, stretch.record, stretch.broker, loss.witness
        assert batch is not None
        assert record is not None
        assert broker is not None
        log = self._copies.log(broker)
        assert log is not None
        proof = None
        if witness is not None and record.offset < loss.committed_end:
            proof = Proof(witness.kind, witness.broker, witness.name, witness.end_offset)
        is_old = batch.facts[BatchColumn.MAGIC] < 2
        return RecoveredRecord(
            self._topic,
            self._partition,
            record,
            -1 if is_old else batch.facts[BatchColumn.PARTITION_LEADER_EPOCH],
            -1 if is_old else batch.facts[BatchColumn.PRODUCER_ID],
            -1 if is_old else batch.facts[BatchColumn.PRODUCER_EPOCH],
            stretch.txn_state,
            tuple(dict.fromkeys((*loss.held_by, *found.others(record.offset)))),
            proof,
            broker,
            log.shown(batch.segment),
            batch.facts[BatchColumn.POSITION],
        )

    def _stretches(self, loss: Loss, low: int, high: int) -> Iterator[_Stretch]:
        """The offsets `[low, high)` of a loss, each once and in order, as they are read."""
        for source_start, source_end, broker in self._copies.sources(loss):
            at, end = max(low, source_start), min(high, source_end)
            log = None if broker is None or at >= end else self._copies.log(broker)
            if log is not None and broker is not None:
                for batch in log.batches(((at, end),)):
                    start = max(batch.facts[BatchColumn.BASE_OFFSET], at)
                    behind = min(batch.facts[BatchColumn.LAST_OFFSET] + 1, end)
                    if start >= behind:
                        continue
                    yield from self._gap(loss, at, start)
                    yield from self._of_batch(loss, batch, broker, (start, behind))
                    at = behind
            yield from self._gap(loss, at, end)

    def _gap(self, loss: Loss, start: int, end: int) -> Iterator[_Stretch]:
        """Offsets of which no copy has a good batch: a cleaner may have taken them."""
        if start < end:
            is_cleaned = self._copies.given.compacted and not self._copies.is_damaged(loss, start, end)
            yield _Stretch(start, end, "no_record" if is_cleaned else "unreadable")

    def _of_batch(self, loss: Loss, batch: ReadBatch, broker: Broker, offsets: tuple[int, int]) -> Iterator[_Stretch]:
        at, end = offsets
        if batch.is_control or batch.data is None:
            yield _Stretch(at, end, "control" if batch.is_control else "unreadable")
            return
        state = self._copies.txn_state(loss, batch.facts)
        records, is_whole = batch.opened()
        missing = "no_record" if is_whole else "unreadable"
        for record in records:
            if not at <= record.offset < end:
                continue
            if record.offset > at:
                yield _Stretch(at, record.offset, missing)
            at = record.offset + 1
            reason = "unreadable" if record.is_oversized else _BY_STATE.get(state)
            yield _Stretch(record.offset, at, reason, broker, batch, record, state)
        if at < end:
            yield _Stretch(at, end, missing)
