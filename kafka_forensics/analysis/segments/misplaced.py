"""Batches whose base offset is wrong: bytes 0 to 7, which no CRC covers, contradict all that is known of the place they stand at.

Within a log a batch is held between its neighbours, and where both are against it the offset is known. The last batch has one
neighbour; there segment names, checkpoints, indexes, snapshots and other replicas' equal bytes are asked, each of which may speak
for the offset as written or for the one that follows from the batch before.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchChunk, BatchColumn, has_right_crc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.segments.continuity import Run

NEIGHBOURS: Final = "neighbouring batches"
_OFFSET: Final = struct.Struct(">q")
BATCH_BEFORE: Final = "the batch before"
SUSPECTED_FROM: Final = 256
"""A last batch that lies at least so far ahead, just one bit from where it joins, is suspected where nothing else tells: in one
segment a cleaner's or a leader's gap of such a width is next to impossible. Smaller gaps may be what an earlier cleaning left."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A batch of `offsets` offsets at a byte of a segment, the base offset written there, and the one it must have.

    The right one lies in `[lowest, highest]`; on logs that were never cleaned the two are equal.
    """

    segment: int
    position: int
    offsets: int
    written: int
    lowest: int
    highest: int
    witnesses: tuple[str, ...] = (NEIGHBOURS,)

    @property
    def place(self) -> tuple[int, int]:
        """Segment and byte position."""
        return self.segment, self.position

    @property
    def offset(self) -> int:
        """The base offset it is given: where there is a choice, one that a single bit turns into what is written."""
        if self.lowest < self.highest:
            near = (*(self.written ^ (1 << bit) for bit in range(63)), self.written + 2**63)
            return next((place for place in near if self.lowest <= place <= self.highest), self.lowest)
        return self.lowest

    @property
    def end_offset(self) -> int:
        """Offset behind it, where it is held to be."""
        return self.offset + self.offsets

    def rewritten(self, batch: bytes) -> bytes:
        """The bytes of the batch with the right offset in their first field, which of an old compressed one is the last."""
        if len(batch) < _OFFSET.size:
            return batch
        offset = _OFFSET.unpack_from(batch)[0] + self.offset - self.written
        return _OFFSET.pack(offset) + batch[_OFFSET.size :] if -(2**63) <= offset < 2**63 else batch


def put_right(chunk: BatchChunk, offsets: Mapping[int, int]) -> BatchChunk:
    """The chunk with other base offsets for the batches at these byte positions; as it is where it holds none of them."""
    rows = np.flatnonzero(np.isin(chunk.columns[BatchColumn.POSITION], np.array(list(offsets), np.int64)))
    if not rows.size:
        return chunk
    columns = chunk.columns.copy()
    for row in rows:
        move(columns[:, row], offsets[int(columns[BatchColumn.POSITION, row])])
    return replace(chunk, columns=columns)


def by_neighbours(columns: "NDArray[np.int64]", segment: int, before: int | None, behind: int | None) -> list[Misplaced]:
    """Batches of a matrix of one segment that lie elsewhere than between two neighbours that leave just their room.

    `before` is where the batch in front of the matrix ends, `behind` where the one behind it begins, both int64; None where that is
    not known. No offset follows the largest of int64.
    """
    good = has_right_crc(columns)
    if not good.all():
        columns = columns[:, good]
    if not columns.shape[1]:
        return []
    base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
    size = last - base + 1
    ends, begins = np.empty_like(base), np.empty_like(base)
    ends[1:], begins[:-1] = last[:-1] + 1, base[1:]
    ends[:1] = base[:1] if before is None else before
    begins[-1:] = last[-1:] + 1 if behind is None else behind
    wrong = np.flatnonzero((base != ends) & (ends + size == begins) & (size > 0) & (ends >= 0) & (begins > ends))
    position = columns[BatchColumn.POSITION]
    facts = zip(*(column[wrong].tolist() for column in (position, size, base, ends, ends)), strict=True)
    return [Misplaced(segment, *fact) for fact in facts]


def move(column: "NDArray[np.int64]", offset: int) -> None:
    """Give a batch, a column by BatchColumn, another base offset."""
    moved = column[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET]]  # as arrays, which wrap around as the kernels do
    column[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET]] = moved - moved[:1] + np.array([offset], np.int64)


def out_of_line(runs: "Sequence[Run]") -> Iterator[Misplaced]:
    """Batches of a cleaned log, whose gaps are in order, that lie above the one behind them or below the one before.

    Of two that contradict each other the one is wrong without which the others are in order, and which a single bit puts where
    there is room for it; where either may be, none is named.
    """
    misplaceds = [_below_name(runs), *(_of_two(runs, number) for number in range(len(runs) - 1))]
    yield from (
        misplaced
        for misplaced in misplaceds
        if misplaced is not None and (misplaced.lowest == misplaced.highest or _one_bit(misplaced))
    )


def _below_name(runs: "Sequence[Run]") -> Misplaced | None:
    """The first batch of the log, if it alone lies below the name of its segment."""
    first = runs[0] if runs else None
    if first is None or first.start_offset >= first.segment or first.second_start is None or first.after_damage is not None:
        return None
    highest = first.second_start - first.first_offsets
    if highest < first.segment:
        return None
    return Misplaced(first.segment, first.position, first.first_offsets, first.start_offset, first.segment, highest)


def _of_two(runs: "Sequence[Run]", number: int) -> Misplaced | None:
    """Which of two batches is wrong, the last of a run or the first of the next."""
    left, right = runs[number], runs[number + 1]
    if right.start_offset >= left.end_offset or right.after_damage is not None:
        return None
    before, behind = _end_without_last(runs, number), _start_without_first(runs, number + 1)
    ahead = before is not None and before + left.last_offsets <= right.start_offset
    back = behind is not None and left.end_offset + right.first_offsets <= behind
    if ahead and not back and before is not None:
        highest = right.start_offset - left.last_offsets
        return Misplaced(*left.last_place, left.last_offsets, left.last_start, before, highest)
    if back and not ahead and behind is not None:
        highest = behind - right.first_offsets
        return Misplaced(right.segment, right.position, right.first_offsets, right.start_offset, left.end_offset, highest)
    return None


def _one_bit(batch: Misplaced) -> bool:
    return (batch.offset ^ batch.written).bit_count() == 1 or batch.written == batch.offset - 2**63


def _end_without_last(runs: "Sequence[Run]", number: int) -> int | None:
    """Where the log ends before the last batch of a run; the segment's name where nothing stands before it, None if damage does."""
    run = runs[number]
    if run.batches > 1:
        return run.end_before_last
    if run.after_damage is not None:
        return None
    return runs[number - 1].end_offset if number else run.segment


def _start_without_first(runs: "Sequence[Run]", number: int) -> int | None:
    """Where the log goes on behind the first batch of a run, None if it does not."""
    run = runs[number]
    if run.batches > 1:
        return run.second_start
    return runs[number + 1].start_offset if number + 1 < len(runs) else None


def last_in_doubt(runs: "Sequence[Run]") -> Misplaced | None:
    """The last batch of a log, if it does not begin where the one before it ends; one behind damage may have begun anywhere."""
    if not runs:
        return None
    run, before = runs[-1], _end_without_last(runs, len(runs) - 1)
    if before is None or before == run.last_start or before < 0:
        return None
    return Misplaced(*run.last_place, run.last_offsets, run.last_start, before, before, (BATCH_BEFORE,))


@dataclass(slots=True)
class Witnessed:
    """What is known of the end of a log beside its own batches: offsets that witnesses name, each with who names it."""

    ends: list[tuple[int, str]]
    """Ends of the log, exclusive, which it has or had: checkpoints, indexes, and snapshots that a clean end leaves there."""
    starts: list[tuple[int, str]]
    """First offsets of the last batch: segment names, epoch entries, other replicas' equal bytes."""
    elsewhere: list[tuple[int, str]] = field(default_factory=list)
    """Ends of other replicas, which may be longer or shorter."""


def at_end(last: Misplaced, heard: Witnessed, *, cleaned: bool) -> Misplaced | None:
    """The last batch, if its written offset contradicts what is known; None if anything speaks for it, or nothing against it.

    A watermark or a recovery point may lag behind, so an end speaks for the right offset only where it is just there, and against
    it wherever it lies beyond. A cleaned log may go on anywhere behind the batch before; there only a witness of the batch itself
    is heard, and a single bit must be the cause.
    """
    right, wrong = last.offset, last.written
    one_bit = _one_bit(last)
    far = wrong < right or wrong - right >= SUSPECTED_FROM
    by_start = [witness for start, witness in heard.starts if start == right]
    by_end = [witness for end, witness in (*heard.ends, *heard.elsewhere) if end == right + last.offsets]
    if _speaks_for_it(last, heard):
        return None
    if cleaned:
        named = by_start if one_bit else []
    else:
        named = by_start + (by_end if one_bit or far else [])
    if named:
        return replace(last, witnesses=(*last.witnesses, *dict.fromkeys(named + by_end)))
    return last if one_bit and far and not cleaned else None


def _speaks_for_it(last: Misplaced, heard: Witnessed) -> bool:
    """Whether any witness knows the last batch at the offset that is written."""
    right_end, wrong_end = last.offset + last.offsets, last.written + last.offsets
    return (
        any(start == last.written for start, _ in heard.starts)
        or any(right_end < end <= wrong_end for end, _ in heard.ends)
        or any(end == wrong_end for end, _ in heard.elsewhere)
    )
