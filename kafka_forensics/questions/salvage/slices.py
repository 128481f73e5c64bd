"""Byte ranges of the copies' segments that hold the batches of a lineage, found before anything is written."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import LOG_DAMAGE, BatchColumn, has_right_crc
from kafka_forensics.model.constants import MAX_RELATIVE_OFFSET
from kafka_forensics.model.findings import Finding, Severity, TopicPartition
from kafka_forensics.model.offset_ranges import Ranges, holds, normalised, without
from kafka_forensics.parsers.log import BatchChecks, SegmentReader
from kafka_forensics.parsers.log_dir import SegmentLog
from kafka_forensics.questions.plan import Planned
from kafka_forensics.questions.salvage.lineage import LineageRange, LogLineage
from kafka_forensics.replication.planner import NO_END, Broker
from kafka_forensics.scanning.rereading.seeking import start_position

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

_WRONG_UNCHECKED_FIELD: Final = kinds_with(Trait.OUT_OF_ORDER, Trait.EPOCH_IN_DOUBT)
"""Findings about header fields that no CRC covers; all other damage shows when the bytes are read."""


class FoundBatches(NamedTuple):
    """Offsets `[start_offset, end_offset)` of batches found by a search after lost framing, and the CRC of the first batch."""

    start_offset: int
    end_offset: int
    crc: int


class SourceCopy(Struct, frozen=True):
    """A copy whose bytes may be used."""

    plan: ReplicaPlan
    replica: Replica
    untrusted: frozenset[tuple[int, int]]
    """(segment, byte position) of batches with implausible offsets or epochs."""
    deep: bool
    """Whether every batch is decompressed and checked before it is used."""

    good: Ranges
    """Offsets of its good batches, without the untrusted ones."""

    @property
    def broker(self) -> Broker:
        """The broker of the copy."""
        return self.plan.context.broker

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return self.plan.context.topic_partition

    @classmethod
    def of(cls, plan: ReplicaPlan, replica: Replica, findings: Sequence[Finding], *, deep: bool) -> "SourceCopy":
        """A copy with the results of the scan."""
        untrusted = {misplaced.place for misplaced in replica.misplaced}
        doubted = [(misplaced.offset, misplaced.end_offset) for misplaced in replica.misplaced]
        runs = replica.good_ranges
        context = plan.context
        files = {f"{context.directory}/{log.entry.name}": log.base_offset for log in plan.directory.logs()}
        for finding in findings:
            place = finding.place
            is_ours = (place.broker, place.log_dir) == (context.broker, context.log_dir)
            segment = files.get(place.file or "") if is_ours and finding.kind in _WRONG_UNCHECKED_FIELD else None
            if segment is not None and place.byte_start is not None and finding.severity.rank > Severity.INFO.rank:
                untrusted.add((segment, place.byte_start))
                is_good = place.offset_start is not None and holds(runs, place.offset_start)
                if finding.kind in kinds_with(Trait.EPOCH_IN_DOUBT) and is_good and place.offset_end is not None:
                    doubted.append((int(place.offset_start or 0), place.offset_end))
        return cls(plan, replica, frozenset(untrusted), deep, without(runs, normalised(doubted)))

    def found_batches(self) -> list[FoundBatches]:
        """The batches found by a search after lost framing, up to the end of each segment. Raises SourceError."""
        state = self.replica.state
        found = []
        for segment, damage in state.framing.damage.get("FRAMING_LOST", ()):
            totals, files = state.framing.by_segment.get(segment), self.plan.directory.segment(segment)
            if totals is None or files is None or files.log is None:
                continue
            with self.plan.log_dir.source.open(files.log.path) as file:
                reader = SegmentReader(file, inspect=BatchChecks(deep=False))
                columns = next(reader.chunks(damage.position + damage.size_in_bytes)).columns
            if columns.size:
                first = int(columns[BatchColumn.BASE_OFFSET, 0])
                found.append(FoundBatches(first, totals.last_offset + 1, int(columns[BatchColumn.CRC, 0])))
        return found

    @property
    def is_whole(self) -> bool:
        """Whether its whole log was read and has no damage except a torn or zero tail at its end."""
        state = self.replica.state
        last = max(self.replica.context.segment_base_offsets, default=0)
        damaged = any(
            kind not in kinds_with(Trait.IS_TAIL) or any(segment != last for segment, _ in sample)
            for kind, sample in state.framing.damage.items()
            if kind in LOG_DAMAGE
        )
        return not (
            damaged or self.untrusted or state.unread or self.replica.offset_sequence.anomalies or state.continuity.dropped_runs
        )


class SegmentSlice(Struct, frozen=True):
    """Bytes `[byte_start, byte_end)` of a segment of a copy (by its number): batches of offsets `[start_offset, end_offset)`."""

    copy: int
    segment: int
    byte_start: int
    byte_end: int
    start_offset: int
    end_offset: int
    why: str

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the slice."""
        return self.byte_end - self.byte_start


class Choice(Struct):
    """The copies and bytes that a partition's salvaged log consists of."""

    lineage: LogLineage
    chosen_by: str
    sources: list[SourceCopy]
    planned: Planned | None
    """None for the controllers' log, which has no plan."""
    is_cleaned: bool = False
    """Whether the log is one copy of a compacted or internal topic."""
    slices: list[SegmentSlice] = field(default_factory=list)
    damaged: list[Ranges] | None = None
    """Offsets at which each copy is damaged, if more is known than in the plan."""
    warning: str | None = None
    """What may be wrong with the rest of the log if some of it is left out, and why the preferred broker's copy is not used."""


def slices_of(
    source: SourceCopy, ranges: Sequence[LineageRange], *, compacted: bool = False, starts_log: bool = False
) -> Iterator[SegmentSlice]:
    """The bytes of a copy's ranges, ascending, as far as the offsets of batches are contiguous (`compacted`: ascending).

    If the first range `starts_log`, its first batch may start below it: DeleteRecords moves a log's start into a batch. A segment
    without any damage is used whole; of other segments every batch is checked again, once for all ranges. Raises SourceError.
    """
    readers = [SliceReader(range_, compacted, starts_log and not number) for number, range_ in enumerate(ranges)]
    for log in source.plan.directory.logs():
        next_base_offset = NO_END if log.next_base_offset is None else log.next_base_offset
        wanted = [reader for reader in readers if reader.needs(log.base_offset, next_base_offset)]
        whole = _whole_segment(source, log, wanted[0]) if len(wanted) == 1 else None
        if whole is not None:
            wanted[0].next_offset = whole.end_offset
            yield whole
        elif wanted:
            yield from _slices_of_segment(source, log, wanted)


def _slices_of_segment(source: SourceCopy, log: SegmentLog, readers: "Sequence[SliceReader]") -> Iterator[SegmentSlice]:
    untrusted = {position for base_offset, position in source.untrusted if base_offset == log.base_offset}
    with source.plan.log_dir.source.open(log.entry.path) as file:
        reader = SegmentReader(file, max_plausible_offset=log.max_plausible_offset, inspect=BatchChecks(deep=source.deep))
        for chunk in reader.chunks(_start_byte(source, log, file, readers[0].next_offset)):
            base, last = chunk.columns[BatchColumn.BASE_OFFSET], chunk.columns[BatchColumn.LAST_OFFSET]
            if not base.size:
                continue
            low, high = int(base.min()), int(last.max())
            bad = untrusted | {damage.position for damage in chunk.damage if damage.kind in LOG_DAMAGE}
            for range_reader in readers:
                if low < range_reader.range.end and range_reader.next_offset <= high:
                    yield from range_reader.step(log.base_offset, chunk.columns, bad)
            if low >= readers[-1].range.end:
                break
    for range_reader in readers:
        yield from range_reader.finish()


def _start_byte(source: SourceCopy, log: SegmentLog, file: "ByteFile", offset: int) -> int:
    """A byte of a segment at or before the batch of an offset: the start of its run, or a later one by the index."""
    runs = [run for run in source.replica.state.continuity.runs if run.segment == log.base_offset]
    start = max((run.position for run in runs if run.start_offset <= offset < run.end_offset), default=0)
    if log.segment.index is None:
        return start
    try:
        with source.plan.log_dir.source.open(log.segment.index.path) as index:
            return max(start, start_position(file, index, log.base_offset, offset))
    except SourceError:
        return start


def _whole_segment(source: SourceCopy, log: SegmentLog, reader: "SliceReader") -> SegmentSlice | None:
    """A whole segment as one slice, if the scan found nothing wrong with it and all of it belongs to the range."""
    base_offset, state = log.base_offset, source.replica.state
    totals, first = state.framing.by_segment.get(base_offset), state.continuity.first_in_segment.get(base_offset)
    damage = state.framing.damage.values()
    if totals is None or first is None or any(sample.count > len(sample) for sample in damage) or state.continuity.dropped_runs:
        return None
    doubted = {segment for sample in damage for segment, _ in sample} | {segment for segment, _ in source.untrusted} | state.unread
    end = totals.last_offset + 1
    is_contiguous = reader.compacted or (first == reader.next_offset and not without([(first, end)], source.good))
    is_in_segment = base_offset <= first < end <= base_offset + MAX_RELATIVE_OFFSET and (
        log.next_base_offset is None or end <= log.next_base_offset
    )
    is_irregular = any(
        base_offset == found.run.segment or first <= found.run.start_offset < end
        for found in source.replica.offset_sequence.anomalies
    )
    if base_offset in doubted or is_irregular or not (is_contiguous and is_in_segment):
        return None
    if first < reader.next_offset or end > reader.range.end or totals.end_position != log.entry.size_in_bytes:
        return None
    return SegmentSlice(reader.range.copy, base_offset, 0, totals.end_position, first, end, reader.range.why)


class SliceReader:
    """Finds a range batch by batch, as slices of adjacent bytes; `next_offset` is the next offset to be found."""

    def __init__(self, range_: LineageRange, compacted: bool, starts_log: bool) -> None:
        self.range, self.compacted, self.next_offset = range_, compacted, range_.start
        self._starts_log = starts_log
        self._slice: SegmentSlice | None = None

    def needs(self, start: int, end: int) -> bool:
        """Whether offsets of `[start, end)` are still to be found."""
        return start < self.range.end and self.next_offset < min(end, self.range.end)

    def step(self, segment: int, columns: "NDArray[np.int64]", bad: set[int]) -> Iterator[SegmentSlice]:
        """Add the batches of a chunk except those at the `bad` byte positions; the slices that end in the chunk."""
        base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
        position = columns[BatchColumn.POSITION]
        end_position = position + columns[BatchColumn.SIZE_IN_BYTES]
        usable = has_right_crc(columns)
        usable &= (base >= 0) & (last >= np.maximum(base, self.range.start)) & (last < self.range.end)
        usable &= last <= segment + MAX_RELATIVE_OFFSET
        if bad:
            usable &= ~np.isin(position, np.fromiter(bad, np.int64))
        rows = np.flatnonzero(usable)
        adjacent = (base[rows[1:]] == last[rows[:-1]] + 1) & (position[rows[1:]] == end_position[rows[:-1]])
        for run in np.split(rows, np.flatnonzero(~adjacent) + 1):
            at = int(np.searchsorted(last[run], self.next_offset))
            if at < run.size and self._is_next(int(base[run[at]])):
                first, final = run[at], run[-1]
                yield from self._add(
                    segment, (int(position[first]), int(end_position[final])), (int(base[first]), int(last[final]) + 1)
                )

    def _is_next(self, base_offset: int) -> bool:
        """Whether a batch that ends at or after the next offset may follow; only the first one of a log may start below."""
        if base_offset < self.next_offset:
            return self._starts_log and self.next_offset == self.range.start
        return base_offset == self.next_offset or self.compacted

    def _add(self, segment: int, positions: tuple[int, int], offsets: tuple[int, int]) -> Iterator[SegmentSlice]:
        before = self._slice
        self.next_offset = offsets[1]
        if before is not None and before.byte_end == positions[0]:
            positions, offsets = (before.byte_start, positions[1]), (before.start_offset, offsets[1])
        else:
            yield from self.finish()
        self._slice = SegmentSlice(self.range.copy, segment, *positions, *offsets, self.range.why)

    def finish(self) -> Iterator[SegmentSlice]:
        """The last slice, if there is one."""
        if self._slice is not None:
            yield self._slice
        self._slice = None
