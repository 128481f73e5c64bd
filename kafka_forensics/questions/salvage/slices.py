"""Where in the copies' segments the batches of a lineage lie: byte ranges, whole batches each, found before anything is written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import LOG_DAMAGE, BatchColumn, has_right_crc
from kafka_forensics.model.constants import MAX_RELATIVE_OFFSET
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.offset_ranges import Ranges, holds, normalised, without
from kafka_forensics.parsers.log import SegmentReader, inspector
from kafka_forensics.parsers.log_dir import SegmentFiles, SegmentLog
from kafka_forensics.questions.plan import Planned
from kafka_forensics.questions.salvage.lineage import Lineage, Piece
from kafka_forensics.replication.planner import NO_END
from kafka_forensics.scanning.rereading.seeking import start_position

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

_OUTSIDE_THE_CRC: Final = kinds_with(Trait.OUT_OF_ORDER, Trait.EPOCH_IN_DOUBT)
"""Findings that tell of a lie in a field that no CRC covers; the rest of what is damaged the bytes themselves tell."""


class Searched(NamedTuple):
    """Offsets `[start_offset, end_offset)` of batches found behind lost framing, and the CRC of the first."""

    start_offset: int
    end_offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class Source:
    """One copy whose bytes are taken."""

    plan: ReplicaPlan
    replica: Replica
    lies: frozenset[tuple[int, int]]
    """(segment, byte position) of batches whose offsets or epoch cannot be believed."""
    deep: bool
    """Whether batches are opened before they are taken."""

    good: Ranges
    """Offsets of its good batches, without those."""

    @classmethod
    def of(cls, plan: ReplicaPlan, replica: Replica, findings: Sequence[Finding], *, deep: bool) -> "Source":
        """The copy, with what a scan found of it."""
        lies = {misplaced.place for misplaced in replica.misplaced}
        doubted = [(misplaced.offset, misplaced.end_offset) for misplaced in replica.misplaced]
        runs = normalised((run.start_offset, run.end_offset) for run in replica.state.continuity.runs)
        files = {
            f"{plan.context.directory}/{segment.log.name}": segment.base_offset
            for segment in plan.directory.segments
            if segment.log is not None
        }
        for finding in findings:
            place = finding.place
            own = (place.broker, place.log_dir) == (plan.context.broker, plan.context.log_dir)
            segment = files.get(place.file or "") if own and finding.kind in _OUTSIDE_THE_CRC else None
            if segment is not None and place.byte_start is not None and finding.severity.rank > Severity.INFO.rank:
                lies.add((segment, place.byte_start))
                is_good = place.offset_start is not None and holds(runs, place.offset_start)
                if finding.kind in kinds_with(Trait.EPOCH_IN_DOUBT) and is_good and place.offset_end is not None:
                    doubted.append((int(place.offset_start or 0), place.offset_end))
        return cls(plan, replica, frozenset(lies), deep, without(runs, normalised(doubted)))

    def searched(self) -> list[Searched]:
        """What was found by searching, behind lost framing, to the ends of its segments. Raises SourceError."""
        state = self.replica.state
        ranges = []
        for segment, damage in state.framing.damage.get("FRAMING_LOST", ()):
            totals, files = state.framing.by_segment.get(segment), self.plan.directory.segment(segment)
            if totals is None or files is None or files.log is None:
                continue
            with self.plan.log_dir.source.open(files.log.path) as file:
                reader = SegmentReader(file, inspect=inspector(deep=False))
                behind = next(reader.chunks(damage.position + damage.size_in_bytes)).columns
            if behind.size:
                first = int(behind[BatchColumn.BASE_OFFSET, 0])
                ranges.append(Searched(first, totals.last_offset + 1, int(behind[BatchColumn.CRC, 0])))
        return ranges

    @property
    def is_whole(self) -> bool:
        """Whether all of it was read, and nothing is wrong with its log but a torn or zero tail at its end."""
        state = self.replica.state
        last = max(self.replica.context.segment_base_offsets, default=0)
        damaged = any(
            kind not in kinds_with(Trait.IS_TAIL) or any(segment != last for segment, _ in sample)
            for kind, sample in state.framing.damage.items()
            if kind in LOG_DAMAGE
        )
        return not (damaged or self.lies or state.unread or self.replica.course.irregularities or state.continuity.dropped_runs)


@dataclass(frozen=True, slots=True)
class Slice:
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
        """How many bytes."""
        return self.byte_end - self.byte_start


@dataclass(slots=True)
class Choice:
    """What a partition's log is to be made of."""

    lineage: Lineage
    chosen_by: str
    sources: list[Source]
    planned: Planned | None
    """None of the controllers' log, for which there is no plan."""
    is_cleaned: bool = False
    """Whether it is one copy of a topic that cleaners change."""
    slices: list[Slice] = field(default_factory=list)
    damaged: list[Ranges] | None = None
    """Offsets at which each copy is damaged, where that is better known than to the plan."""
    warning: str | None = None
    """What may be wrong with the rest where something was left out, and why the copy of the preferred broker was not taken."""


def slices_of(source: Source, pieces: Sequence[Piece], *, gaps: bool = False, begins: bool = False) -> Iterator[Slice]:
    """The bytes of a copy's pieces, ascending, as far as batches follow each other (with `gaps`, as a cleaner leaves them, rise).

    Where a piece `begins` the log, its first batch may begin below it: DeleteRecords moves a log's start into a batch. A segment of
    which all is sound is taken as it is; of others every batch is looked at again, once for all pieces. Raises SourceError.
    """
    takings = [_Taking(piece, gaps=gaps, is_first=begins and not number) for number, piece in enumerate(pieces)]
    for log in source.plan.directory.logs():
        following = NO_END if log.next_base_offset is None else log.next_base_offset
        wanted = [taking for taking in takings if taking.reaches(log.base_offset, following)]
        whole = _whole(source, log, wanted[0], gaps=gaps) if len(wanted) == 1 else None
        if whole is not None:
            wanted[0].expected = whole.end_offset
            yield whole
        elif wanted:
            yield from _of_segment(source, log, wanted)


def _of_segment(source: Source, log: SegmentLog, takings: "Sequence[_Taking]") -> Iterator[Slice]:
    """The bytes of some pieces in one segment."""
    segment = log.segment
    lies = {position for base_offset, position in source.lies if base_offset == segment.base_offset}
    with source.plan.log_dir.source.open(log.entry.path) as file:
        reader = SegmentReader(file, max_plausible_offset=log.max_plausible_offset, inspect=inspector(deep=source.deep))
        for chunk in reader.chunks(_start(source, segment, file, takings[0].expected)):
            base, last = chunk.columns[BatchColumn.BASE_OFFSET], chunk.columns[BatchColumn.LAST_OFFSET]
            if not base.size:
                continue
            low, high = int(base.min()), int(last.max())
            bad = lies | {damage.position for damage in chunk.damage if damage.kind in LOG_DAMAGE}
            for taking in takings:
                if low < taking.piece.end and taking.expected <= high:
                    yield from taking.step(segment.base_offset, chunk.columns, bad)
            if low >= takings[-1].piece.end:
                break
    for taking in takings:
        yield from taking.rest()


def _start(source: Source, segment: SegmentFiles, log: "ByteFile", offset: int) -> int:
    """Byte of a segment from which an offset is met: where its run begins, or later by the index. Raises SourceError."""
    runs = [run for run in source.replica.state.continuity.runs if run.segment == segment.base_offset]
    start = max((run.position for run in runs if run.start_offset <= offset < run.end_offset), default=0)
    if segment.index is None:
        return start
    try:
        with source.plan.log_dir.source.open(segment.index.path) as index:
            return max(start, start_position(log, index, segment.base_offset, offset))
    except SourceError:
        return start


def _whole(source: Source, log: SegmentLog, taking: "_Taking", *, gaps: bool) -> Slice | None:
    """All of a segment as one slice, if all that was read of it is sound and in the piece."""
    piece = taking.piece._replace(start=taking.expected)
    base_offset, state = log.base_offset, source.replica.state
    totals, first = state.framing.by_segment.get(base_offset), state.continuity.first_in_segment.get(base_offset)
    damage = state.framing.damage.values()
    if totals is None or first is None or any(sample.count > len(sample) for sample in damage) or state.continuity.dropped_runs:
        return None
    doubted = {number for sample in damage for number, _ in sample} | {number for number, _ in source.lies} | state.unread
    end = totals.last_offset + 1
    joined = gaps or (first == piece.start and not without([(first, end)], source.good))
    orderly = base_offset <= first < end <= base_offset + MAX_RELATIVE_OFFSET and (
        log.next_base_offset is None or end <= log.next_base_offset
    )
    irregular = any(
        base_offset == found.run.segment or first <= found.run.start_offset < end for found in source.replica.course.irregularities
    )
    if base_offset in doubted or irregular or not (joined and orderly) or first < piece.start or end > piece.end:
        return None
    if totals.end_position != log.entry.size_in_bytes:
        return None
    return Slice(piece.copy, base_offset, 0, totals.end_position, first, end, piece.why)


class _Taking:
    """A piece that is found batch by batch, as slices as long as their bytes join; `expected` is the next offset."""

    def __init__(self, piece: Piece, *, gaps: bool, is_first: bool) -> None:
        self.piece, self.expected = piece, piece.start
        self._gaps, self._is_first = gaps, is_first
        self._open: Slice | None = None

    def reaches(self, start: int, end: int) -> bool:
        """Whether offsets of `[start, end)` are still to be found."""
        return start < self.piece.end and self.expected < min(end, self.piece.end)

    def step(self, segment: int, columns: "NDArray[np.int64]", bad: set[int]) -> Iterator[Slice]:
        """Add the batches of a chunk of a segment but those that begin at a byte of `bad`; the slices that end with it."""
        base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
        position = columns[BatchColumn.POSITION]
        behind = position + columns[BatchColumn.SIZE_IN_BYTES]
        fit = has_right_crc(columns)
        fit &= (base >= 0) & (last >= np.maximum(base, self.piece.start)) & (last < self.piece.end)
        fit &= last <= segment + MAX_RELATIVE_OFFSET
        if bad:
            fit &= ~np.isin(position, np.fromiter(bad, np.int64))
        rows = np.flatnonzero(fit)
        joined = (base[rows[1:]] == last[rows[:-1]] + 1) & (position[rows[1:]] == behind[rows[:-1]])
        for run in np.split(rows, np.flatnonzero(~joined) + 1):
            at = int(np.searchsorted(last[run], self.expected))
            if at < run.size and self._follows(int(base[run[at]])):
                first, final = run[at], run[-1]
                yield from self._take(segment, int(base[first]), int(last[final]) + 1, int(position[first]), int(behind[final]))

    def _follows(self, base_offset: int) -> bool:
        """Whether a batch that ends at or behind the expected offset is the next: at the log's start it may begin below."""
        if base_offset < self.expected:
            return self._is_first and self.expected == self.piece.start
        return base_offset == self.expected or self._gaps

    def _take(self, segment: int, start: int, end: int, byte_start: int, byte_end: int) -> Iterator[Slice]:
        before, piece = self._open, self.piece
        self.expected = end
        if before is not None and before.byte_end == byte_start:
            self._open = Slice(piece.copy, segment, before.byte_start, byte_end, before.start_offset, end, piece.why)
            return
        yield from self.rest()
        self._open = Slice(piece.copy, segment, byte_start, byte_end, start, end, piece.why)

    def rest(self) -> Iterator[Slice]:
        """The slice that is not ended yet."""
        if self._open is not None:
            yield self._open
        self._open = None
