"""A losing version of a log read record by record: what is given, and why the rest is not. Each offset is counted once."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from kafka_forensics.model.batches import BatchColumn, Record
from kafka_forensics.model.offset_ranges import normalised
from kafka_forensics.model.recovered import Count, Proof, RecoveredRecord
from kafka_forensics.questions.plan import Amount
from kafka_forensics.questions.recover.copies import Copies, Source
from kafka_forensics.questions.recover.matching import Matches, Sought
from kafka_forensics.replication.planner import NO_END, Broker, Loss
from kafka_forensics.scanning.rereading.log_ranges import ReadBatch
from kafka_forensics.scanning.rereading.record_states import ABORTED, OPEN

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
    unreadable: str = ""
    """Of one that is: `damaged`, `too_large` or `not_collected`."""


class _Version:
    """What the same brokers hold: `numbers` of ranges in their order, and how far a round of it has come."""

    def __init__(self, holders: tuple[Broker, ...]) -> None:
        self.holders = holders
        self.numbers: list[int] = []
        self.starts: list[int] = []
        """First offsets of the ranges."""
        self.found: _Found | None = None
        self.found_to: tuple[int, int] = (-1, -1)
        """Number of a range and offset behind the last record that the present round looked for."""

    def number_of(self, offset: int) -> int:
        """The range in which an offset of this version lies."""
        return self.numbers[bisect_right(self.starts, offset) - 1]


@dataclass(slots=True)
class _Found:
    """Which records of a round are elsewhere: on the surviving side, and in other versions."""

    surviving: Matches
    superseded: set[int]
    others: list[tuple[_Version, Matches]]

    def reason(self, number: int, offset: int) -> str | None:
        """Why a record of a range is not given, None if it is."""
        if offset in self.surviving.strong:
            return "surviving"
        if offset in self.superseded:
            return "superseded"
        if offset in self.surviving.weak:
            return "surviving_by_content"
        return "merged" if any(other < number for other, _ in self._elsewhere(offset)) else None

    def holders(self, offset: int) -> Iterator[Broker]:
        """Who holds it as well, in another version."""
        for _, version in self._elsewhere(offset):
            yield from version.holders

    def _elsewhere(self, offset: int) -> Iterator[tuple[int, _Version]]:
        """Other versions that hold it, with the range where."""
        for version, matches in self.others:
            place = matches.strong.get(offset, matches.weak.get(offset))
            if place is not None:
                yield version.number_of(place), version


class Versions:
    """All that the surviving side, broker `kept`, loses of a partition; `ranges` by their offsets.

    Each version is read twice, once to look for its records elsewhere, some at a time, and once to give them.
    """

    def __init__(self, copies: Copies, kept: Broker, ranges: Sequence[RecoveredRange]) -> None:
        self._copies, self._kept, self._ranges = copies, kept, ranges
        self.unreadable: Counter[str] = Counter()
        """Why no copy gives what stood at some offsets → how many."""
        self._topic, self._partition = copies.given.topic, copies.given.partition
        self._versions: dict[tuple[Broker, ...], _Version] = {}
        for number, recovered in enumerate(ranges):
            version = self._versions.setdefault(recovered.loss.held_by, _Version(recovered.loss.held_by))
            version.numbers.append(number)
            version.starts.append(recovered.loss.start)

    def records(self) -> Iterator[RecoveredRecord]:
        """The records given, by the order of the ranges, which count meanwhile."""
        given = {holders: groupby(self._given(version), key=itemgetter(0)) for holders, version in self._versions.items()}
        for number, recovered in enumerate(self._ranges):
            of_range, stretches = next(given[recovered.loss.held_by])
            assert of_range == number
            yield from (record for _, record in stretches if record is not None)

    def _given(self, version: _Version) -> Iterator[tuple[int, RecoveredRecord | None]]:
        """Every stretch of a version, counted: the number of its range, and its record if it is given."""
        ahead = self._stretches(version)
        for number, stretch in self._stretches(version):
            recovered, reason = self._ranges[number], stretch.reason
            if reason is None:
                if version.found is None or (number, stretch.end) > version.found_to:
                    self._look_ahead(version, ahead)
                assert version.found is not None
                reason = version.found.reason(number, stretch.start)
            recovered.count.note(reason or "recovered", stretch.start, stretch.end, recovered.loss.committed_end)
            if stretch.unreadable:
                self.unreadable[stretch.unreadable] += stretch.end - stretch.start
            yield number, None if reason else self._record(recovered.loss, stretch, version.found)

    def _look_ahead(self, version: _Version, ahead: Iterator[tuple[int, _Stretch]]) -> None:
        """Look for the next records of a version everywhere else, as many as are looked for at once."""
        sought = Sought(self._copies.given.compacted)
        for number, stretch in ahead:
            if stretch.reason is None:
                assert stretch.record is not None
                assert stretch.batch is not None
                sought.add(stretch.record, stretch.batch.facts)
                version.found_to = number, stretch.end
                if sought.is_full:
                    break
        version.found = found = _Found(Matches(sought), set(), [])
        log = self._copies.log(self._kept)
        if log is not None:
            own, alike = (ranges(self._kept, version.holders) for ranges in (self._copies.own, self._copies.alike))
            endings = self._copies.surviving_endings(self._kept)
            found.surviving.look(log, own, endings)
            if sought.with_keys:
                found.surviving.look_for_keys(log, own, alike, endings)
                found.superseded = found.surviving.superseded()
        for other in self._versions.values():
            if set(other.holders).isdisjoint(version.holders):  # what stands twice in one log was written twice
                found.others.append((other, Matches(sought)))
                self._look_in(other, found.others[-1][1])

    def _look_in(self, version: _Version, matches: Matches) -> None:
        by_broker: dict[Broker, list[tuple[int, int]]] = {}
        for number in version.numbers:
            for start, end, broker in self._ranges[number].sources:
                if broker is not None:
                    by_broker.setdefault(broker, []).append((start, end))
        for broker, spans in by_broker.items():
            log = self._copies.log(broker)
            assert log is not None
            matches.look(log, normalised(spans), self._copies.endings(broker))

    def _record(self, loss: Loss, stretch: _Stretch, found: _Found | None) -> RecoveredRecord:
        batch, record, broker, witness = stretch.batch, stretch.record, stretch.broker, loss.witness
        assert batch is not None
        assert record is not None
        assert broker is not None
        assert found is not None
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
            tuple(dict.fromkeys((*loss.held_by, *found.holders(record.offset)))),
            proof,
            broker,
            log.shown(batch.segment),
            batch.facts[BatchColumn.POSITION],
        )

    def _stretches(self, version: _Version) -> Iterator[tuple[int, _Stretch]]:
        """The offsets of a version, each once and in order, as they are read, with the numbers of their ranges."""
        sources = [(number, *source) for number in version.numbers for source in self._ranges[number].sources]
        for broker, group in groupby(sources, key=itemgetter(3)):
            spans = [(number, start, end) for number, start, end, _ in group]
            if broker is None or self._copies.log(broker) is None:
                for number, start, end in spans:
                    yield from self._gap(number, start, end)
            else:
                yield from self._of_log(broker, spans)

    def _of_log(self, broker: Broker, spans: list[tuple[int, int, int]]) -> Iterator[tuple[int, _Stretch]]:
        """The same of some ranges (number, start, end) that are read from one log."""
        log = self._copies.log(broker)
        assert log is not None
        left = iter(spans)
        number, at, end = next(left)
        for batch in log.batches(normalised((start, end) for _, start, end in spans)):
            base, behind = batch.facts[BatchColumn.BASE_OFFSET], batch.facts[BatchColumn.LAST_OFFSET] + 1
            while at < behind:
                start, stop = max(base, at), min(behind, end)
                yield from self._gap(number, at, min(start, end))
                if start < stop:
                    of_batch = self._of_batch(self._ranges[number].loss, batch, broker, (start, stop))
                    yield from ((number, stretch) for stretch in of_batch)
                at = max(start, stop)
                if at < end:
                    break
                number, at, end = next(left, (number, NO_END, NO_END))
        while at < NO_END:
            yield from self._gap(number, at, end)
            number, at, end = next(left, (number, NO_END, NO_END))

    def _gap(self, number: int, start: int, end: int) -> Iterator[tuple[int, _Stretch]]:
        """Offsets of a range of which no copy has a good batch: a cleaner may have taken them."""
        remote_end = min(end, max(start, self._remote_end(self._ranges[number].loss)))
        if start < remote_end:
            yield number, _unreadable(start, remote_end, "in_remote_storage")
        start = remote_end
        if start < end:
            is_cleaned = self._copies.given.compacted and not self._copies.is_damaged(self._ranges[number].loss, start, end)
            yield number, _Stretch(start, end, "no_record") if is_cleaned else _unreadable(start, end, "damaged")

    def _remote_end(self, loss: Loss) -> int:
        """Up to where the logs of those who hold a loss are in remote storage alone; 0 of a topic that is not tiered."""
        holding = [replica for replica in self._copies.given.replicas if replica.broker in loss.held_by]
        return min((replica.local_log_start_offset or 0 for replica in holding), default=0)

    def _of_batch(self, loss: Loss, batch: ReadBatch, broker: Broker, offsets: tuple[int, int]) -> Iterator[_Stretch]:
        at, end = offsets
        if batch.is_control:
            yield _Stretch(at, end, "control")
            return
        if batch.data is None:
            log = self._copies.log(broker)
            yield _unreadable(at, end, "not_collected" if log is not None and log.in_bundle else "too_large")
            return
        state = self._copies.txn_state(loss, batch.facts)
        records, is_whole = batch.opened()
        for record in records:
            if not at <= record.offset < end:
                continue
            if record.offset > at:
                yield _Stretch(at, record.offset, "no_record") if is_whole else _unreadable(at, record.offset, "damaged")
            at = record.offset + 1
            if record.is_oversized:
                yield _unreadable(record.offset, at, "too_large")
            else:
                yield _Stretch(record.offset, at, _BY_STATE.get(state), broker, batch, record, state)
        if at < end:
            yield _Stretch(at, end, "no_record") if is_whole else _unreadable(at, end, "damaged")


def _unreadable(start: int, end: int, why: str) -> _Stretch:
    return _Stretch(start, end, "unreadable", unreadable=why)
