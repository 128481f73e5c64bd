"""Copies of a cleaned log as their batches show them: which are good, which damaged ones are proven, and where a copy has a hole.

A cleaner leaves gaps, so that offsets alone do not tell what is missing. Damage does; so do the file of a segment that is gone
while its index is there, and gaps where the copy was not cleaned yet, at or above its first dirty offset (`LogCleanerManager`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import HARMLESS_TAILS, LOG_DAMAGE, BatchColumn
from kafka_forensics.parsers.log import SegmentReader, believed_to, inspector
from kafka_forensics.questions.salvage.batch_runs import Run, RunReader, place_in, place_of, runs_of
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.replication.offset_ranges import Range, Ranges, clipped, normalised
from kafka_forensics.replication.planner import NO_END
from kafka_forensics.replication.recovery import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.batches import BatchChunk
    from kafka_forensics.parsers.log_dir import SegmentFiles

    Columns = NDArray[np.int64]
    Offsets = NDArray[np.int64]
    Flags = NDArray[np.bool_]

HEAD_BYTES: Final = 21
"""What a batch begins with up to its CRC, that included: all that the CRC does not cover."""
_OFFSET, _EPOCH, _CRC = slice(0, 8), slice(12, 16), slice(17, HEAD_BYTES)
_SAME: Final = [
    BatchColumn.BASE_OFFSET,
    BatchColumn.LAST_OFFSET,
    BatchColumn.PARTITION_LEADER_EPOCH,
    BatchColumn.MAGIC,
    BatchColumn.CRC,
    BatchColumn.SIZE_IN_BYTES,
    BatchColumn.RECORDS_COUNT,
]
"""Facts that batches of two copies share if they are the same."""


class Stretch(NamedTuple):
    """Bytes of a copy that are no good batches: `place` as `Run.place` has it; `is_tail`: as a crash leaves the end of a log."""

    place: int
    size_in_bytes: int
    is_tail: bool = False


@dataclass(slots=True)
class CleanedCopy:
    """One copy, by its number: runs of good batches in the order of its log, whose offsets rise, and what is not good."""

    number: int
    source: Source
    reader: RunReader
    runs: list[Run]
    stretches: list[Stretch] = field(default_factory=list)
    more_holes: Ranges = ()
    """Offsets that are missing though no damage shows."""

    @property
    def start_offset(self) -> int:
        """Where its log starts."""
        return self.source.replica.log_start_offset

    @property
    def named_end(self) -> int:
        """Its log goes on to here at least: the last segment is named so."""
        return max((segment.base_offset for segment in self.source.plan.directory.segments), default=0)

    @property
    def end_offset(self) -> int:
        """Where its log ends, as far as that is known."""
        return max(self.runs[-1].end_offset if self.runs else 0, self.named_end, self.start_offset)

    @property
    def end_is_sound(self) -> bool:
        """Whether nothing stands behind its last good batch but what a crash leaves there."""
        last = self.runs[-1].place if self.runs else -1
        return not any(stretch.place > last and not stretch.is_tail for stretch in self.stretches)

    @property
    def first_dirty_offset(self) -> int:
        """Nothing at or above it was cleaned: 0 where its checkpoint does not tell, which only makes more of gaps."""
        return max(self.source.plan.context.cleaner_checkpoint or 0, 0)

    def holes(self) -> Ranges:
        """Offsets of which it is not known what the copy held: damaged, missing, before its start, behind its end."""
        eaten = [span for _, span in self._eaten()]
        return normalised([(0, self.start_offset), (self.end_offset, NO_END), *self.more_holes, *eaten])

    def damaged(self) -> Ranges:
        """Those of which it has bytes that are no good batches."""
        return normalised(span for stretch, span in self._eaten() if stretch.size_in_bytes)

    def _eaten(self) -> Iterator[tuple[Stretch, Range]]:
        """What stretches have eaten: all between the good batches before and behind; of a tail at the log's end, nothing."""
        for stretch in self.stretches:
            behind = bisect_left(self.runs, stretch.place, key=_place)
            start = self.runs[behind - 1].end_offset if behind else self.start_offset
            in_last = place_in(stretch.place)[0] == len(self.source.plan.directory.segments) - 1
            if behind < len(self.runs):
                yield stretch, (start, self.runs[behind].base_offset)
            elif not (in_last and stretch.is_tail):
                yield stretch, (start, NO_END if in_last else self.named_end)

    def between(self, start: int, end: int) -> list[Run]:
        """Batches that have an offset in `[start, end)`. Raises SourceError."""
        found = self._around(start, end)
        if found:
            found[:1] = self.reader.split(found[0], BatchColumn.LAST_OFFSET, start)[1]
        if found:
            found[-1:] = self.reader.split(found[-1], BatchColumn.BASE_OFFSET, end)[0]
        return found

    def _around(self, start: int, end: int) -> list[Run]:
        """Runs that have an offset in `[start, end)`, whole."""
        return self.runs[bisect_right(self.runs, start, key=_end_offset) : bisect_left(self.runs, end, key=_base_offset)]

    def last_begun(self, end: int) -> int | None:
        """The base offset of the last batch that begins below `end`; None where none does. Raises SourceError."""
        number = bisect_left(self.runs, end, key=_base_offset)
        return self.reader.split(self.runs[number - 1], BatchColumn.BASE_OFFSET, end)[0][0].last_base_offset if number else None

    def touched(self, starts: "Offsets", ends: "Offsets") -> "Flags":
        """Of ascending ranges of offsets, in which there is a batch. Raises SourceError."""
        found = np.zeros(starts.size, np.bool_)
        for run in self._around(int(starts[0]), int(ends[-1])):
            if run.is_complete:
                found |= (starts < run.end_offset) & (run.base_offset < ends)
                continue
            columns = self.reader.columns(run)
            found |= np.searchsorted(columns[BatchColumn.LAST_OFFSET], starts) < np.searchsorted(
                columns[BatchColumn.BASE_OFFSET], ends
            )
        return found

    def held(self, columns: "Columns") -> "Flags":
        """Which of some batches, ascending, it has, too. Raises SourceError."""
        found = np.zeros(columns.shape[1], np.bool_)
        base = columns[BatchColumn.BASE_OFFSET]
        for run in self._around(int(base[0]), int(base[-1]) + 1):
            ours = self.reader.columns(run)
            at = np.minimum(np.searchsorted(ours[BatchColumn.BASE_OFFSET], base), run.batches - 1)
            found |= (ours[_SAME][:, at] == columns[_SAME]).all(axis=0)
        return found


def _place(run: Run) -> int:
    return run.place


def _base_offset(run: Run) -> int:
    return run.base_offset


def _end_offset(run: Run) -> int:
    return run.end_offset


def read_copies(sources: Sequence[Source]) -> list[CleanedCopy]:
    """Every copy batch by batch, with damaged batches made good where another copy holds them for certain.

    What cannot be read is a hole. Memory is taken by runs (`Run`), damage and gaps, and by few batches at a time.
    """
    reader = RunReader(sources)
    copies = _without_planted([_read(number, source, reader) for number, source in enumerate(sources)])
    mended = [_mended(copy, copies) for copy in copies]
    missing = [normalised(_missing(copy, mended)) for copy in mended]
    return [replace(copy, more_holes=holes) for copy, holes in zip(mended, missing, strict=True)]


def kept_start(sources: Sequence[Source]) -> int | None:
    """Where the log starts if none but a cleaner took anything from it: at the lowest start of all copies. None where retention or
    DeleteRecords may have moved the start of some, or where no copy has a batch."""
    for context in [source.plan.context for source in sources]:
        policy = None if context.control is None else context.control.setting("cleanup.policy")
        if context.log_start_checkpoint or "delete" in (policy or ""):
            return None
    return min((source.replica.log_start_offset for source in sources if source.replica.state.framing.batches), default=None)


def lacks(number: int, sources: Sequence[Source]) -> bool:
    """Whether a copy, sound by its bytes, lacks the head of the log, or what an index tells of, or has gaps where it was not
    cleaned yet and no other bears that out; the others are read only if it has gaps there."""
    reader = RunReader(sources)
    start, copy = kept_start(sources), _read(number, sources[number], reader)
    if (start is not None and copy.start_offset > start) or not all(stretch.is_tail for stretch in copy.stretches):
        return True
    if next(_gaps(copy), None) is None:
        return False
    others = [_read(other, source, reader) for other, source in enumerate(sources) if other != number]
    return next(_missing(copy, [copy, *others]), None) is not None


def _read(number: int, source: Source, reader: RunReader) -> CleanedCopy:
    """A copy as it stands in its files."""
    runs, stretches = list[Run](), list[Stretch]()
    segments = source.plan.directory.segments
    for at, segment in enumerate(segments):
        if segment.log is None:
            stretches.append(Stretch(place_of(at, 0), 0))
            continue
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        read_to, is_lost = 0, False
        try:
            for chunk in _chunks(source, segment, following, reader):
                good = _good(source, segment, chunk)
                own = set(chunk.columns[BatchColumn.POSITION].tolist()) if chunk.damage else set[int]()
                lost = [damage for damage in chunk.damage if damage.position not in own]
                opened = min([damage.position for damage in lost if damage.kind not in HARMLESS_TAILS], default=NO_END)
                columns = chunk.columns[:, good]
                searched = is_lost | (columns[BatchColumn.POSITION] > opened)
                is_lost |= opened < NO_END
                runs += runs_of(columns, searched, sorted(damage.position for damage in lost), at, number, segment.base_offset)
                bad = chunk.columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]][:, ~good]
                stretches += [_bad(at, *batch) for batch in bad.T.tolist()]
                stretches += [_bad(at, found.position, found.size_in_bytes, found.kind in HARMLESS_TAILS) for found in lost]
                read_to += chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped
        except SourceError:
            stretches.append(Stretch(place_of(at, read_to), 0))
        if source.replica.entries_beyond[segment.base_offset, "index"]:
            stretches.append(Stretch(place_of(at, segment.log.size_in_bytes), 0))
    return _rising(CleanedCopy(number, source, reader, runs, sorted(stretches)))


def _bad(number: int, position: int, size: int, is_tail: bool = False) -> Stretch:
    return Stretch(place_of(number, position), size, is_tail)


def _chunks(source: Source, segment: "SegmentFiles", following: int | None, reader: RunReader) -> "Iterator[BatchChunk]":
    """All of a segment. Raises SourceError."""
    assert segment.log is not None
    with source.plan.log_dir.source.open(segment.log.path) as file:
        limit = believed_to(segment.base_offset, following)
        yield from SegmentReader(file, key=reader.key, next_base_offset=limit, inspect=inspector(deep=source.deep)).chunks()


def _good(source: Source, segment: "SegmentFiles", chunk: "BatchChunk") -> "Flags":
    """The batches of a chunk that nothing is wrong with."""
    columns = chunk.columns
    base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
    good: Flags = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    good &= (segment.base_offset <= base) & (base <= last) & (last <= segment.base_offset + MAX_RELATIVE_OFFSET)
    bad = {damage.position for damage in chunk.damage if damage.kind in LOG_DAMAGE}
    bad |= {position for base_offset, position in source.lies if base_offset == segment.base_offset}
    if bad:
        good &= ~np.isin(columns[BatchColumn.POSITION], np.fromiter(bad, np.int64))
    return good


def _rising(copy: CleanedCopy) -> CleanedCopy:
    """The copy without neighbours whose offsets fall: one of the two lies, and the bytes do not tell which. Nor then without those
    that come to be neighbours so and fall, too."""
    runs, fallen = copy.runs, list[Run]()
    while falls := {number for number, (left, right) in enumerate(pairwise(runs)) if right.base_offset < left.end_offset}:
        left_over = list[Run]()
        for number, run in enumerate(runs):
            low, high = int(number - 1 in falls), run.batches - (number in falls)
            ends = {0} if low else set()
            ends |= {high} if high < run.batches else set()
            fallen += [copy.reader.part(run, at, at + 1) for at in sorted(ends)]
            left_over += [copy.reader.part(run, low, high)] if low < high else []
        runs = left_over
    return _less(copy, runs, fallen) if fallen else copy


def _less(copy: CleanedCopy, runs: list[Run], taken: Sequence[Run]) -> CleanedCopy:
    """The copy with these runs left, and others held to be damaged."""
    stretches = sorted([*copy.stretches, *(Stretch(run.place, run.size_in_bytes) for run in taken)])
    return replace(copy, runs=runs, stretches=stretches)


# Batches behind lost framing: the value of a record may hold the bytes of a batch.


def _without_planted(copies: list[CleanedCopy]) -> list[CleanedCopy]:
    """The copies without what was found behind lost framing, up to the first batch that another copy holds, too; but for offsets at
    which no other is good, so that nobody contradicts."""
    if len(copies) == 1:
        return copies
    holes = [copy.holes() for copy in copies]
    believed = []
    for copy in copies:
        kept, doubted = list[Run](), list[Run]()
        others = [other for other in copies if other is not copy]
        borne_out = -1
        for run in copy.runs:
            if not run.is_searched or run.segment == borne_out:
                kept.append(run)
                continue
            columns = copy.reader.columns(run)
            base, end = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET] + 1
            doubts = ~np.logical_and.reduce([_overlapped(holes[other.number], base, end) for other in others])
            held = np.flatnonzero(np.logical_or.reduce([other.held(columns) for other in others]))
            if held.size:
                borne_out = run.segment
                doubts[held[0] :] = False
            for low, high in pairwise([0, *(np.flatnonzero(doubts[1:] != doubts[:-1]) + 1).tolist(), run.batches]):
                (doubted if doubts[low] else kept).append(copy.reader.part(run, low, high))
        believed.append(_less(copy, kept, doubted) if doubted else copy)
    return believed


def _overlapped(ranges: Ranges, starts: "Offsets", ends: "Offsets") -> "Flags":
    """Which of some ranges of offsets have one in a set."""
    lows, highs = np.array([*ranges, (NO_END, NO_END)], np.int64).T
    found: Flags = lows[np.searchsorted(highs[:-1], starts, side="right")] < ends
    return found


# Damaged batches that another copy holds. A CRC covers all of a batch but its offset, length, epoch and magic: where a good batch
# has the CRC that stands in the header of a damaged one, the same offset and the same epoch, the damaged one was that batch. In the
# formats before, the CRC stands where the epoch does now, and the first bytes that it covers where it stands now.


def _mended(copy: CleanedCopy, copies: Sequence[CleanedCopy]) -> CleanedCopy:
    """The copy with batches of others in the place of its damaged ones, where its own bytes prove that they were the same."""
    found, left = list[Run](), list[Stretch]()
    others = [other for other in copies if other is not copy]
    for stretch in copy.stretches:
        runs, rest = _proven(copy, stretch, others)
        found += runs
        left += rest
    return _rising(replace(copy, runs=sorted([*copy.runs, *found]), stretches=sorted(left))) if found else copy


def _proven(copy: CleanedCopy, stretch: Stretch, others: Sequence[CleanedCopy]) -> tuple[list[Run], list[Stretch]]:
    """What batches a stretch of bad bytes was, as far as each begins where the one before ends; and what is left of it."""
    number, position = place_in(stretch.place)
    log = copy.source.plan.directory.segments[number].log
    end, runs = position + stretch.size_in_bytes, list[Run]()
    while log is not None and position < end and (head := _head(copy.source, log.path, position)) is not None:
        batch = _same_head(others, head)
        if batch is None:
            break
        runs.append(batch._replace(place=place_of(number, position)))
        position += batch.size_in_bytes
    in_last = number == len(copy.source.plan.directory.segments) - 1
    if runs and (position == end or (position > end and in_last)):
        return runs, []
    return runs, [Stretch(place_of(number, min(position, end)), max(end - position, 0), stretch.is_tail)]


def _head(source: Source, path: str, position: int) -> bytes | None:
    """The first bytes of a batch, None where there are too few."""
    try:
        with source.plan.log_dir.source.open(path) as file:
            data = file.read_at(position, HEAD_BYTES)
    except SourceError:
        return None
    return data if len(data) == HEAD_BYTES else None


def _same_head(others: Sequence[CleanedCopy], head: bytes) -> Run | None:
    """The batch of another copy that has the offset, the epoch and the CRC of this head: it tells the length and the magic, too."""
    offset = int.from_bytes(head[_OFFSET], "big", signed=True)
    for other in others:
        for run in other.between(offset, offset + 1):
            theirs = _head(other.source, other.reader.path(run.giver, run.segment), run.position)
            if theirs is not None and all(theirs[part] == head[part] for part in (_OFFSET, _EPOCH, _CRC)):
                return run
    return None


def _missing(copy: CleanedCopy, copies: Sequence[CleanedCopy]) -> Iterator[Range]:
    """Gaps of a copy where it was not cleaned yet, but for those in which another copy is good and has no batch either."""
    others = [(other, other.holes()) for other in copies if other is not copy]
    for starts, ends in _gaps(copy):
        touched, unknown = np.zeros(starts.size, np.bool_), np.ones(starts.size, np.bool_)
        for other, holes in others:
            touched |= other.touched(starts, ends)
            unknown &= _overlapped(holes, starts, ends)
        for at in np.flatnonzero(touched | unknown).tolist():
            rest: Ranges = ((int(starts[at]), int(ends[at])),)
            for _, holes in () if touched[at] else others:
                rest = tuple(span for low, high in rest for span in clipped(holes, low, high))
            yield from rest


def _gaps(copy: CleanedCopy) -> "Iterator[tuple[Offsets, Offsets]]":
    """Offsets at or above the first dirty one that no batch of a copy has: starts and ends of ranges, some at a time."""
    dirty, before = max(copy.first_dirty_offset, copy.start_offset), copy.start_offset
    for run in copy.runs:
        starts, ends = np.array([before]), np.array([run.base_offset])
        if not run.is_complete and run.end_offset > dirty:
            columns = copy.reader.columns(run)
            starts = np.concatenate((starts, columns[BatchColumn.LAST_OFFSET, :-1] + 1))
            ends = columns[BatchColumn.BASE_OFFSET]
        before = run.end_offset
        found = (starts < ends) & (ends > dirty)
        if found.any():
            yield np.maximum(starts[found], dirty), ends[found]
    if max(before, dirty) < copy.end_offset:
        yield np.array([max(before, dirty)]), np.array([copy.end_offset])
