"""Losing versions of a log, read record by record: which records to recover, and why not the others. Each offset counts once."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from msgspec import Struct, field

from kafka_forensics.model.batches import BatchColumn, Record
from kafka_forensics.model.offset_ranges import normalised
from kafka_forensics.model.recovered import CommittedCounts, Proof, RecoveredRecord
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.questions.plan import LossSize
from kafka_forensics.questions.recover.matching import Matches, SearchedRecords
from kafka_forensics.questions.recover.partition_logs import LogOf, LossSource, PartitionLogs
from kafka_forensics.replication.planner import NO_END, Broker, Loss
from kafka_forensics.scanning.rereading.log_ranges import LogRangeReader, ReadBatch
from kafka_forensics.scanning.rereading.record_states import ABORTED, OPEN

_BY_STATE: Final = {ABORTED: "aborted", OPEN: "open"}


class RecoveredRange(Struct):
    """One loss of the election that is kept, and the outcome of its offsets."""

    loss: Loss
    planned: LossSize
    """The size of the loss by the plan."""
    sources: list[LossSource] = field(default_factory=list)
    count: CommittedCounts = field(default_factory=CommittedCounts)


class _LostRecord(NamedTuple):
    """A record that may be recovered, and where it was read."""

    record: Record
    batch: ReadBatch
    log: LogRangeReader
    txn_state: str


class _Offsets(NamedTuple):
    """Offsets `[start, end)` with one outcome; with a record that may be recovered they are its offset, and `reason` is None."""

    start: int
    end: int
    reason: str | None
    lost: _LostRecord | None = None
    unreadable: str = ""
    """Why offsets with the reason `unreadable` are: a word of `model.recovered.UNREADABLE`."""


class _Version:
    """One version of the log, which all its `holders` have: the ranges where it is lost, and the present search for its records."""

    def __init__(self, holders: tuple[Broker, ...]) -> None:
        self.holders = holders
        self.numbers: list[int] = []
        """Numbers of its ranges, ascending."""
        self.starts: list[int] = []
        """First offsets of the same ranges."""
        self.search: _VersionSearch | None = None
        self.searched_to: tuple[int, int] = (-1, -1)
        """Number of a range, and the offset after the last record of the present search."""


class _VersionSearch(Struct):
    """Which of some lost records exist elsewhere: on the surviving side, and in other losing versions."""

    surviving: Matches
    superseded: set[int]
    others: list[tuple[_Version, Matches]]

    def reason(self, number: int, offset: int) -> str | None:
        """Why not to recover a record of a range; None if it is recovered."""
        if offset in self.surviving.by_producer:
            return "surviving"
        if offset in self.superseded:
            return "superseded"
        if offset in self.surviving.by_content:
            return "surviving_by_content"
        return "merged" if any(other < number for other, _ in self.elsewhere(offset)) else None

    def elsewhere(self, offset: int) -> Iterator[tuple[int, _Version]]:
        """Other versions that hold the record, and the range in which they do."""
        for version, matches in self.others:
            found = matches.by_producer.get(offset, matches.by_content.get(offset))
            if found is not None:
                yield version.numbers[bisect_right(version.starts, found) - 1], version


class LosingVersions:
    """Everything that a partition loses if the kept log wins; `ranges` are ordered by their offsets.

    Each version is read twice: to search for its records elsewhere, some at a time, and to recover them.
    """

    def __init__(self, logs: PartitionLogs, ranges: Sequence[RecoveredRange]) -> None:
        self._logs, self._ranges = logs, ranges
        self.unreadable: Counter[str] = Counter()
        """Why no copy has the records of some offsets → how many offsets."""
        self._versions: dict[tuple[Broker, ...], _Version] = {}
        for number, recovered in enumerate(ranges):
            version = self._versions.setdefault(recovered.loss.held_by, _Version(recovered.loss.held_by))
            version.numbers.append(number)
            version.starts.append(recovered.loss.start)

    def records(self) -> Iterator[RecoveredRecord]:
        """The recovered records in the order of the ranges, whose counts are filled on the way."""
        outcomes = {holders: groupby(self._outcomes(version), key=itemgetter(0)) for holders, version in self._versions.items()}
        for number, recovered in enumerate(self._ranges):
            of_range, records = next(outcomes[recovered.loss.held_by])
            assert of_range == number
            yield from (record for _, record in records if record is not None)

    def _outcomes(self, version: _Version) -> Iterator[tuple[int, RecoveredRecord | None]]:
        """(number of the range, recovered record or None) of all offsets of a version, which are counted."""
        ahead = self._read(version)
        for number, offsets in self._read(version):
            loss, count = self._ranges[number].loss, self._ranges[number].count
            record, reason = None, offsets.reason
            if offsets.lost is not None and reason is None:
                search = version.search
                if search is None or (number, offsets.end) > version.searched_to:
                    search = version.search = self._search(version, ahead)
                reason = search.reason(number, offsets.start)
                if reason is None:
                    others = (broker for _, other in search.elsewhere(offsets.start) for broker in other.holders)
                    record = self._recovered(loss, offsets.lost, tuple(dict.fromkeys((*loss.held_by, *others))))
            count.note(reason or "recovered", offsets.start, offsets.end, loss.committed_end)
            if offsets.unreadable:
                self.unreadable[offsets.unreadable] += offsets.end - offsets.start
            yield number, record

    def _search(self, version: _Version, ahead: Iterator[tuple[int, _Offsets]]) -> _VersionSearch:
        """Search everywhere else for the next records of a version, as many as one search takes."""
        searched = SearchedRecords(self._logs.planned.compacted)
        for number, offsets in ahead:
            if offsets.lost is not None and offsets.reason is None:
                searched.add(offsets.lost.record, offsets.lost.batch.facts)
                version.searched_to = number, offsets.end
                if searched.is_full:
                    break
        search = _VersionSearch(Matches(searched), set(), [])
        log = self._logs.log(self._logs.kept)
        if log is not None:
            equal, others = self._logs.surviving(version.holders)
            endings = self._logs.surviving_endings()
            search.surviving.search(log, others, endings)
            if searched.with_keys:
                search.surviving.search_keys(log, equal, others, endings)
                search.superseded = search.surviving.superseded()
        for remote_log, ranges, endings in self._logs.surviving_remote():
            search.surviving.search(remote_log, ranges, endings)
        for other in self._versions.values():
            if set(other.holders).isdisjoint(version.holders):  # a record that one log holds twice was written twice
                search.others.append((other, Matches(searched)))
                self._search_version(other, search.others[-1][1])
        return search

    def _search_version(self, version: _Version, matches: Matches) -> None:
        by_broker: dict[LogOf, list[tuple[int, int]]] = {}
        for number in version.numbers:
            for start, end, broker in self._ranges[number].sources:
                if broker is not None:
                    by_broker.setdefault(broker, []).append((start, end))
        for broker, spans in by_broker.items():
            log = self._logs.log(broker)
            assert log is not None
            matches.search(log, normalised(spans), self._logs.endings(broker))

    def _recovered(self, loss: Loss, lost: _LostRecord, holders: tuple[Broker, ...]) -> RecoveredRecord:
        facts, witness, proof = lost.batch.facts, loss.witness, None
        if witness is not None and lost.record.offset < loss.committed_end:
            proof = Proof(witness.kind, witness.broker, witness.name, witness.end_offset)
        has_producer = facts[BatchColumn.MAGIC] >= 2
        return RecoveredRecord(
            self._logs.planned.topic,
            self._logs.planned.partition,
            lost.record,
            facts[BatchColumn.PARTITION_LEADER_EPOCH] if has_producer else -1,
            facts[BatchColumn.PRODUCER_ID] if has_producer else -1,
            facts[BatchColumn.PRODUCER_EPOCH] if has_producer else -1,
            lost.txn_state,
            (*holders, REMOTE) if lost.log.replica.context.is_remote else holders,
            proof,
            lost.log.replica.broker,
            lost.log.log_path(lost.batch.segment),
            facts[BatchColumn.POSITION],
        )

    def _read(self, version: _Version) -> Iterator[tuple[int, _Offsets]]:
        """(number of the range, offsets) of a version, each offset once and in order."""
        sources = [(number, *source) for number in version.numbers for source in self._ranges[number].sources]
        for broker, group in groupby(sources, key=itemgetter(3)):
            spans = [(number, start, end) for number, start, end, _ in group]
            log = None if broker is None else self._logs.log(broker)
            if log is None or broker is None:
                for number, start, end in spans:
                    yield from self._without_batch(number, start, end)
            else:
                yield from self._read_log(broker, log, spans)

    def _read_log(self, broker: LogOf, log: LogRangeReader, spans: list[tuple[int, int, int]]) -> Iterator[tuple[int, _Offsets]]:
        """The same for spans (number of the range, start, end) that one log is read for."""
        left = iter(spans)
        number, at, end = next(left)
        for batch in log.batches(normalised((start, end) for _, start, end in spans)):
            base, behind = batch.facts[BatchColumn.BASE_OFFSET], batch.facts[BatchColumn.LAST_OFFSET] + 1
            while at < behind:
                start, stop = max(base, at), min(behind, end)
                yield from self._without_batch(number, at, min(start, end))
                if start < stop:
                    state = self._logs.txn_state(self._ranges[number].loss, batch.facts, broker)
                    yield from ((number, offsets) for offsets in self._of_batch(batch, log, state, (start, stop)))
                at = max(start, stop)
                if at < end:
                    break
                number, at, end = next(left, (number, NO_END, NO_END))
        while at < NO_END:
            yield from self._without_batch(number, at, end)
            number, at, end = next(left, (number, NO_END, NO_END))

    def _without_batch(self, number: int, start: int, end: int) -> Iterator[tuple[int, _Offsets]]:
        """Offsets of a range for which no log has a good batch: in remote storage, removed by the cleaner, or damaged."""
        loss, planned = self._ranges[number].loss, self._logs.planned
        holders = [replica for replica in planned.replicas if replica.broker in loss.held_by]
        remote_end = min((replica.local_log_start_offset or 0 for replica in holders), default=0 if loss.held_by else NO_END)
        local_start = min(end, max(start, remote_end))
        if start < local_start:
            yield number, _unreadable(start, local_start, "in_remote_storage")
        if local_start < end:
            is_cleaned = planned.compacted and not self._logs.is_damaged(loss, local_start, end)
            yield number, _no_record(local_start, end, is_certain=is_cleaned)

    def _of_batch(self, batch: ReadBatch, log: LogRangeReader, state: str, offsets: tuple[int, int]) -> Iterator[_Offsets]:
        at, end = offsets
        if batch.is_control:
            yield _Offsets(at, end, "control")
            return
        if batch.data is None:
            yield _unreadable(at, end, "not_collected" if log.is_collected else "too_large")
            return
        records, is_whole = batch.opened()
        for record in records:
            if not at <= record.offset < end:
                continue
            if record.offset > at:
                yield _no_record(at, record.offset, is_certain=is_whole)
            at = record.offset + 1
            if record.is_oversized:
                yield _unreadable(record.offset, at, "too_large")
            else:
                yield _Offsets(record.offset, at, _BY_STATE.get(state), _LostRecord(record, batch, log, state))
        if at < end:
            yield _no_record(at, end, is_certain=is_whole)


def _no_record(start: int, end: int, *, is_certain: bool) -> _Offsets:
    return _Offsets(start, end, "no_record") if is_certain else _unreadable(start, end, "damaged")


def _unreadable(start: int, end: int, why: str) -> _Offsets:
    return _Offsets(start, end, "unreadable", unreadable=why)
