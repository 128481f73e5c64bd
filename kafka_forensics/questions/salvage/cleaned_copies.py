"""Copies of a cleaned log as their batches show them: which are good, which damaged ones are proven, and where a copy has a hole.

A cleaner leaves gaps, so that offsets alone do not tell what is missing. Damage does; so do the file of a segment that is gone
while its index is there, and gaps where the copy was not cleaned yet, at or above its first dirty offset (`LogCleanerManager`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import HARMLESS_TAILS, LOG_DAMAGE, BatchColumn
from kafka_forensics.parsers.log import SegmentReader, believed_to, inspector
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.replication.offset_ranges import Range, Ranges, clipped, normalised
from kafka_forensics.replication.planner import NO_END
from kafka_forensics.replication.recovery import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.batches import BatchChunk
    from kafka_forensics.parsers.log_dir import SegmentFiles

    Rows = NDArray[np.int64]

HEAD_BYTES: Final = 21
"""What a batch begins with up to its CRC, that included: all that the CRC does not cover."""
_OFFSET, _EPOCH, _CRC = slice(0, 8), slice(12, 16), slice(17, HEAD_BYTES)
_SEGMENT_SHIFT: Final = 40
"""No position in a segment has more bits."""


class Held(IntEnum):
    """Row of the matrix that holds each fact about a good batch of a copy."""

    PLACE = 0
    """Number of the segment in its copy and byte in it, see `_place`: sorts as the log is written."""
    BASE_OFFSET = 1
    LAST_OFFSET = 2
    EPOCH = 3
    MAGIC = 4
    CRC = 5
    SIZE_IN_BYTES = 6
    RECORDS_COUNT = 7
    GIVER = 8
    """Number of the copy whose bytes it is: another one's where the own are damaged and prove to have been the same."""
    SEGMENT = 9
    POSITION = 10
    """Where it stands in that copy."""
    IS_SEARCHED = 11
    """Whether it was found behind lost framing."""


SAME: Final = slice(Held.BASE_OFFSET, Held.GIVER)
"""Facts that batches of two copies share if they are the same."""
_FROM: Final = (
    BatchColumn.BASE_OFFSET,
    BatchColumn.LAST_OFFSET,
    BatchColumn.PARTITION_LEADER_EPOCH,
    BatchColumn.MAGIC,
    BatchColumn.CRC,
    BatchColumn.SIZE_IN_BYTES,
    BatchColumn.RECORDS_COUNT,
)


class Stretch(NamedTuple):
    """Bytes of a copy that are no good batches: `place` as `Held.PLACE` has it; `is_tail`: as a crash leaves the end of a log."""

    place: int
    size_in_bytes: int
    is_tail: bool = False


@dataclass(slots=True)
class CleanedCopy:
    """One copy, by its number: good batches in a matrix (facts, n) in the order of its log, and what is not good."""

    number: int
    source: Source
    rows: "Rows"
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
        last = int(self.rows[Held.LAST_OFFSET, -1]) + 1 if self.rows.shape[1] else 0
        return max(last, self.named_end, self.start_offset)

    @property
    def end_is_sound(self) -> bool:
        """Whether nothing stands behind its last good batch but what a crash leaves there."""
        last = int(self.rows[Held.PLACE, -1]) if self.rows.shape[1] else -1
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
        base, end = self.rows[Held.BASE_OFFSET], self.rows[Held.LAST_OFFSET] + 1
        behind = np.searchsorted(self.rows[Held.PLACE], [stretch.place for stretch in self.stretches])
        for row, stretch in zip(behind.tolist(), self.stretches, strict=True):
            start = int(end[row - 1]) if row else self.start_offset
            in_last = stretch.place >> _SEGMENT_SHIFT == len(self.source.plan.directory.segments) - 1
            if row < base.size:
                yield stretch, (start, int(base[row]))
            elif not (in_last and stretch.is_tail):
                yield stretch, (start, NO_END if in_last else self.named_end)

    def between(self, start: int, end: int) -> "Rows":
        """Batches that have an offset in `[start, end)`."""
        low = int(np.searchsorted(self.rows[Held.LAST_OFFSET], start))
        high = int(np.searchsorted(self.rows[Held.BASE_OFFSET], end))
        return self.rows[:, low : max(low, high)]


def read_copies(sources: Sequence[Source]) -> list[CleanedCopy]:
    """Every copy batch by batch, with damaged batches made good where another copy holds them for certain.

    What cannot be read is a hole. Memory: 96 bytes a batch.
    """
    copies = _without_planted([_read(number, source) for number, source in enumerate(sources)])
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
    start, copy = kept_start(sources), _read(number, sources[number])
    if (start is not None and copy.start_offset > start) or not all(stretch.is_tail for stretch in copy.stretches):
        return True
    if next(_gaps(copy), None) is None:
        return False
    others = [_read(other, source) for other, source in enumerate(sources) if other != number]
    return next(_missing(copy, [copy, *others]), None) is not None


def _place(number: int, position: int) -> int:
    return (number << _SEGMENT_SHIFT) + position


def _read(number: int, source: Source) -> CleanedCopy:
    """A copy as it stands in its files."""
    parts, stretches = [np.empty((len(Held), 0), np.int64)], list[Stretch]()
    segments = source.plan.directory.segments
    for at, segment in enumerate(segments):
        if segment.log is None:
            stretches.append(Stretch(_place(at, 0), 0))
            continue
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        read_to, is_lost = 0, False
        try:
            for chunk in _chunks(source, segment, following):
                rows = _good(source, segment, chunk)
                own = set(chunk.columns[BatchColumn.POSITION].tolist()) if chunk.damage else set[int]()
                lost = [damage for damage in chunk.damage if damage.position not in own]
                opened = min([damage.position for damage in lost if damage.kind not in HARMLESS_TAILS], default=NO_END)
                rows[Held.IS_SEARCHED] = is_lost | (rows[Held.POSITION] > opened)
                is_lost |= opened < NO_END
                rows[Held.PLACE], rows[Held.GIVER] = _place(at, 0) + rows[Held.POSITION], number
                parts.append(rows)
                stretches += [_bad(at, *batch) for batch in _not_good(chunk, rows)]
                stretches += [_bad(at, found.position, found.size_in_bytes, found.kind in HARMLESS_TAILS) for found in lost]
                read_to += chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped
        except SourceError:
            stretches.append(Stretch(_place(at, read_to), 0))
        if source.replica.entries_beyond[segment.base_offset, "index"]:
            stretches.append(Stretch(_place(at, segment.log.size_in_bytes), 0))
    return _rising(CleanedCopy(number, source, np.concatenate(parts, axis=1), sorted(stretches)))


def _bad(number: int, position: int, size: int, is_tail: bool = False) -> Stretch:
    return Stretch(_place(number, position), size, is_tail)


def _chunks(source: Source, segment: "SegmentFiles", following: int | None) -> "Iterator[BatchChunk]":
    """All of a segment. Raises SourceError."""
    assert segment.log is not None
    with source.plan.log_dir.source.open(segment.log.path) as file:
        limit = believed_to(segment.base_offset, following)
        yield from SegmentReader(file, next_base_offset=limit, inspect=inspector(deep=source.deep)).chunks()


def _good(source: Source, segment: "SegmentFiles", chunk: "BatchChunk") -> "Rows":
    """The batches of a chunk that nothing is wrong with."""
    columns = chunk.columns
    base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
    good = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    good &= (segment.base_offset <= base) & (base <= last) & (last <= segment.base_offset + MAX_RELATIVE_OFFSET)
    bad = {damage.position for damage in chunk.damage if damage.kind in LOG_DAMAGE}
    bad |= {position for base_offset, position in source.lies if base_offset == segment.base_offset}
    if bad:
        good &= ~np.isin(columns[BatchColumn.POSITION], np.fromiter(bad, np.int64))
    rows = np.zeros((len(Held), int(good.sum())), np.int64)
    rows[SAME] = columns[list(_FROM)][:, good]
    rows[Held.SEGMENT], rows[Held.POSITION] = segment.base_offset, columns[BatchColumn.POSITION, good]
    return rows


def _not_good(chunk: "BatchChunk", rows: "Rows") -> list[tuple[int, int]]:
    """(byte position, size) of the other batches of a chunk."""
    columns = chunk.columns
    bad = ~np.isin(columns[BatchColumn.POSITION], rows[Held.POSITION])
    return [(position, size) for position, size in columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]][:, bad].T.tolist()]


def _rising(copy: CleanedCopy) -> CleanedCopy:
    """The copy without neighbours whose offsets fall: one of the two lies, and the bytes do not tell which. Nor then without those
    that come to be neighbours so and fall, too."""
    base, last = copy.rows[Held.BASE_OFFSET], copy.rows[Held.LAST_OFFSET]
    before, behind = np.arange(base.size) - 1, np.arange(base.size) + 1
    gone = set[int]()
    lefts = np.flatnonzero(base[1:] <= last[:-1]).tolist()
    while lefts:
        fallen = sorted({row for left in lefts for row in (left, int(behind[left]))})
        gone.update(fallen)
        for row in fallen:
            if before[row] >= 0:
                behind[before[row]] = behind[row]
            if behind[row] < base.size:
                before[behind[row]] = before[row]
        seams = {int(before[row]) for row in fallen} - gone - {-1}
        lefts = [left for left in seams if behind[left] < base.size and base[behind[left]] <= last[left]]
    return _less(copy, np.array(sorted(gone))) if gone else copy


def _less(copy: CleanedCopy, rows: "NDArray[np.int64]") -> CleanedCopy:
    """The copy with some of its batches held to be damaged."""
    places, sizes = copy.rows[Held.PLACE, rows].tolist(), copy.rows[Held.SIZE_IN_BYTES, rows].tolist()
    stretches = sorted([*copy.stretches, *map(Stretch, places, sizes)])
    return replace(copy, rows=np.delete(copy.rows, rows, axis=1), stretches=stretches)


# Batches behind lost framing: the value of a record may hold the bytes of a batch.


def _without_planted(copies: list[CleanedCopy]) -> list[CleanedCopy]:
    """The copies without what was found behind lost framing, up to the first batch that another copy holds, too; but for offsets at
    which no other is good, so that nobody contradicts."""
    holes = [copy.holes() for copy in copies]
    believed = []
    for copy in copies:
        doubted = list[int]()
        others = [(other, holes[other.number]) for other in copies if other is not copy]
        borne_out = -1
        for row in np.flatnonzero(copy.rows[Held.IS_SEARCHED]).tolist():
            start, end = int(copy.rows[Held.BASE_OFFSET, row]), int(copy.rows[Held.LAST_OFFSET, row]) + 1
            segment = int(copy.rows[Held.SEGMENT, row])
            if segment == borne_out:
                continue
            if any(_has(other, copy.rows[SAME, row]) for other, _ in others):
                borne_out = segment
            elif any(not clipped(missing, start, end) for _, missing in others):
                doubted.append(row)
        believed.append(_less(copy, np.array(doubted)) if doubted else copy)
    return believed


def _has(copy: CleanedCopy, batch: "NDArray[np.int64]") -> bool:
    """Whether a copy has a batch that is the same by all of `SAME`."""
    base_offset = int(batch[0])
    return any(bool((row == batch).all()) for row in copy.between(base_offset, base_offset + 1)[SAME].T)


# Damaged batches that another copy holds. A CRC covers all of a batch but its offset, length, epoch and magic: where a good batch
# has the CRC that stands in the header of a damaged one, the same offset and the same epoch, the damaged one was that batch. In the
# formats before, the CRC stands where the epoch does now, and the first bytes that it covers where it stands now.


def _mended(copy: CleanedCopy, copies: Sequence[CleanedCopy]) -> CleanedCopy:
    """The copy with batches of others in the place of its damaged ones, where its own bytes prove that they were the same."""
    found, left = [copy.rows], list[Stretch]()
    others = [other for other in copies if other is not copy]
    for stretch in copy.stretches:
        rows, rest = _proven(copy, stretch, others)
        found += rows
        left += rest
    if len(found) == 1:
        return copy
    together = np.concatenate(found, axis=1)
    together = together[:, np.argsort(together[Held.PLACE], kind="stable")]
    return _rising(replace(copy, rows=together, stretches=sorted(left)))


def _proven(copy: CleanedCopy, stretch: Stretch, others: Sequence[CleanedCopy]) -> tuple[list["Rows"], list[Stretch]]:
    """What batches a stretch of bad bytes was, as far as each begins where the one before ends; and what is left of it."""
    number, position = stretch.place >> _SEGMENT_SHIFT, stretch.place & ((1 << _SEGMENT_SHIFT) - 1)
    log = copy.source.plan.directory.segments[number].log
    end, rows = position + stretch.size_in_bytes, list["Rows"]()
    while log is not None and position < end and (head := _head(copy.source, log.path, position)) is not None:
        batch = _same_head(others, head)
        if batch is None:
            break
        batch[Held.PLACE] = _place(number, position)
        rows.append(batch[:, np.newaxis])
        position += int(batch[Held.SIZE_IN_BYTES])
    in_last = number == len(copy.source.plan.directory.segments) - 1
    if rows and (position == end or (position > end and in_last)):
        return rows, []
    return rows, [Stretch(_place(number, min(position, end)), max(end - position, 0), stretch.is_tail)]


def _head(source: Source, path: str, position: int) -> bytes | None:
    """The first bytes of a batch, None where there are too few."""
    try:
        with source.plan.log_dir.source.open(path) as file:
            data = file.read_at(position, HEAD_BYTES)
    except SourceError:
        return None
    return data if len(data) == HEAD_BYTES else None


def _same_head(others: Sequence[CleanedCopy], head: bytes) -> "NDArray[np.int64] | None":
    """The batch of another copy that has the offset, the epoch and the CRC of this head: it tells the length and the magic, too."""
    offset = int.from_bytes(head[_OFFSET], "big", signed=True)
    for other in others:
        for row in other.between(offset, offset + 1).T:
            theirs = _head(other.source, _log_path(other.source, int(row[Held.SEGMENT])), int(row[Held.POSITION]))
            if theirs is not None and all(theirs[part] == head[part] for part in (_OFFSET, _EPOCH, _CRC)):
                batch: NDArray[np.int64] = row.copy()
                return batch
    return None


def _log_path(source: Source, base_offset: int) -> str:
    entry = next(segment.log for segment in source.plan.directory.segments if segment.base_offset == base_offset)
    assert entry is not None
    return entry.path


def _missing(copy: CleanedCopy, copies: Sequence[CleanedCopy]) -> Iterator[Range]:
    """Gaps of a copy where it was not cleaned yet, but for those in which another copy is good and has no batch either."""
    others = [(other, other.holes()) for other in copies if other is not copy]
    for gap in _gaps(copy):
        rest: Ranges = (gap,)
        if not any(other.between(*gap).shape[1] for other, _ in others):
            for _, holes in others:
                rest = tuple(span for low, high in rest for span in clipped(holes, low, high))
        yield from rest


def _gaps(copy: CleanedCopy) -> Iterator[tuple[int, int]]:
    """Offsets at or above the first dirty one that no batch of a copy has."""
    dirty = max(copy.first_dirty_offset, copy.start_offset)
    starts = np.concatenate(([copy.start_offset], copy.rows[Held.LAST_OFFSET] + 1))
    ends = np.concatenate((copy.rows[Held.BASE_OFFSET], [copy.end_offset]))
    for at in np.flatnonzero((starts < ends) & (ends > dirty)).tolist():
        yield max(int(starts[at]), dirty), int(ends[at])
