"""Batches with a wrong base offset: bytes 0 to 7, which no CRC covers, contradict everything else known about the batch.

Inside a log, the batches before and after it give the right offset. The last batch has only one neighbour: there, segment names,
checkpoints, indexes, snapshots and equal bytes on other replicas are witnesses, each for the written offset or for the one after
the previous batch.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.model.batches import BatchChunk, BatchColumn, has_right_crc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.segments.continuity import Run

NEIGHBOURS: Final = "neighbouring batches"
_OFFSET: Final = struct.Struct(">q")
BATCH_BEFORE: Final = "the batch before"
SUSPECTED_FROM: Final = 256
"""Without any witness, a last batch this many offsets after the previous one, and one bit from joining it, is suspected: within one
segment, cleaning or a leader leaves such a gap almost never. Earlier cleaning may leave smaller gaps."""


class MisplacedBatch(Struct, frozen=True):
    """A batch of `offsets` offsets at a byte of a segment, the base offset written there, and the right one.

    The right offset is in `[lowest, highest]`; on logs that were never cleaned the two are equal.
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
        """The assumed base offset: of several possible ones, one that differs from the written offset by a single bit."""
        if self.lowest < self.highest:
            one_bit_away = (*(self.written ^ (1 << bit) for bit in range(63)), self.written + 2**63)
            return next((offset for offset in one_bit_away if self.lowest <= offset <= self.highest), self.lowest)
        return self.lowest

    @property
    def end_offset(self) -> int:
        """Offset after it, by the assumed base offset."""
        return self.offset + self.offsets

    def rewritten(self, batch: bytes) -> bytes:
        """The bytes of the batch with the right offset in their first field, which for an old compressed one is the last offset."""
        if len(batch) < _OFFSET.size:
            return batch
        offset = _OFFSET.unpack_from(batch)[0] + self.offset - self.written
        return _OFFSET.pack(offset) + batch[_OFFSET.size :] if -(2**63) <= offset < 2**63 else batch


def correct_base_offsets(chunk: BatchChunk, offsets: Mapping[int, int]) -> BatchChunk:
    """The chunk with other base offsets for the batches at these byte positions; unchanged if it contains none of them."""
    rows = np.flatnonzero(np.isin(chunk.columns[BatchColumn.POSITION], np.array(list(offsets), np.int64)))
    columns = chunk.columns.copy() if rows.size else chunk.columns
    for row in rows:
        move(columns[:, row], offsets[int(columns[BatchColumn.POSITION, row])])
    return replace(chunk, columns=columns) if rows.size else chunk


def misplaced_between_neighbours(
    columns: "NDArray[np.int64]", segment: int, before: int | None, after: int | None
) -> list[MisplacedBatch]:
    """Batches of a matrix of one segment whose neighbours leave exactly room for them, at another offset.

    `before` is the end of the batch before the matrix, `after` the start of the one after it, both int64; None if unknown. No
    offset follows the largest of int64.
    """
    good = has_right_crc(columns)
    columns = columns if good.all() else columns[:, good]
    base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
    size = last - base + 1
    ends, starts = np.empty_like(base), np.empty_like(base)
    ends[1:], starts[:-1] = last[:-1] + 1, base[1:]
    ends[:1] = base[:1] if before is None else before
    starts[-1:] = last[-1:] + 1 if after is None else after
    wrong = np.flatnonzero((base != ends) & (ends + size == starts) & (size > 0) & (ends >= 0) & (starts > ends))
    facts = np.stack((columns[BatchColumn.POSITION], size, base, ends, ends))[:, wrong]
    return [MisplacedBatch(segment, *batch) for batch in facts.T.tolist()]


def move(column: "NDArray[np.int64]", offset: int) -> None:
    """Set the base offset of a batch, a column by BatchColumn."""
    moved = column[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET]]  # as arrays, which wrap as in the kernels
    column[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET]] = moved - moved[:1] + np.array([offset], np.int64)


def misplaced_in_cleaned_log(runs: "Sequence[Run]") -> Iterator[MisplacedBatch]:
    """Batches of a cleaned log, where gaps are legal, that are above the next batch or below the previous one.

    Of two contradicting batches, the wrong one is the one without which the others are in order and which a single bit moves to a
    free place; if that applies to both, neither is reported.
    """
    for batch in (_below_segment(runs), *(_wrong_neighbour(runs, number) for number in range(len(runs) - 1))):
        if batch is not None and (batch.lowest == batch.highest or _one_bit(batch)):
            yield batch


def _below_segment(runs: "Sequence[Run]") -> MisplacedBatch | None:
    """The first batch of the log, if it alone is below the base offset of its segment."""
    first = runs[0] if runs else None
    if first is None or first.start_offset >= first.segment or first.second_start is None or first.after_damage is not None:
        return None
    highest = first.second_start - first.first_offsets
    if highest < first.segment:
        return None
    return MisplacedBatch(first.segment, first.position, first.first_offsets, first.start_offset, first.segment, highest)


def _wrong_neighbour(runs: "Sequence[Run]", number: int) -> MisplacedBatch | None:
    """Which of two batches is wrong: the last of a run or the first of the next."""
    left, right = runs[number], runs[number + 1]
    if right.start_offset >= left.end_offset or right.after_damage is not None:
        return None
    before, after = _end_without_last(runs, number), right.second_start
    if right.batches == 1:
        after = runs[number + 2].start_offset if number + 2 < len(runs) else None
    ahead = before is not None and before + left.last_offsets <= right.start_offset
    back = after is not None and left.end_offset + right.first_offsets <= after
    if ahead and not back and before is not None:
        highest = right.start_offset - left.last_offsets
        return MisplacedBatch(*left.last_place, left.last_offsets, left.last_start, before, highest)
    if back and not ahead and after is not None:
        highest = after - right.first_offsets
        return MisplacedBatch(right.segment, right.position, right.first_offsets, right.start_offset, left.end_offset, highest)
    return None


def _one_bit(batch: MisplacedBatch) -> bool:
    return (batch.offset ^ batch.written).bit_count() == 1 or batch.written == batch.offset - 2**63


def _end_without_last(runs: "Sequence[Run]", number: int) -> int | None:
    """Where the log ends before the last batch of a run; the base offset of the segment if that is its first batch, None after
    damage."""
    run = runs[number]
    if run.batches > 1:
        return run.end_before_last
    if run.after_damage is not None:
        return None
    return runs[number - 1].end_offset if number else run.segment


def doubtful_last_batch(runs: "Sequence[Run]") -> MisplacedBatch | None:
    """The last batch of a log if it does not begin where the previous one ends; after damage it may begin anywhere."""
    if not runs:
        return None
    run, before = runs[-1], _end_without_last(runs, len(runs) - 1)
    if before is None or before == run.last_start or before < 0:
        return None
    return MisplacedBatch(*run.last_place, run.last_offsets, run.last_start, before, before, (BATCH_BEFORE,))


class LogEndWitnesses(Struct):
    """Witnesses of the end of a log other than its own batches: offsets, each with the name of the witness."""

    ends: list[tuple[int, str]]
    """Present or past ends of the log, exclusive: checkpoints, indexes, and snapshots taken at a clean shutdown."""
    starts: list[tuple[int, str]]
    """First offsets of the last batch: segment names, epoch entries, equal bytes on other replicas."""
    elsewhere: list[tuple[int, str]] = field(default_factory=list)
    """Ends of other replicas, which may be longer or shorter."""


def misplaced_last_batch(last: MisplacedBatch, witnesses: LogEndWitnesses, *, cleaned: bool) -> MisplacedBatch | None:
    """The last batch if its written offset contradicts the witnesses; None if any supports it, or none contradicts it.

    A high watermark or a recovery point may be old, so an end supports the right offset only if it equals its end, and contradicts
    it if it is greater. A cleaned log may continue anywhere after the previous batch; there only a witness of the batch itself
    counts, and the offsets must differ by a single bit.
    """
    right, wrong = last.offset, last.written
    right_end, wrong_end = right + last.offsets, wrong + last.offsets
    if (
        any(start == wrong for start, _ in witnesses.starts)
        or any(right_end < end <= wrong_end for end, _ in witnesses.ends)
        or any(end == wrong_end for end, _ in witnesses.elsewhere)
    ):
        return None
    one_bit = _one_bit(last)
    far = wrong < right or wrong - right >= SUSPECTED_FROM
    by_start = [witness for start, witness in witnesses.starts if start == right]
    by_end = [witness for end, witness in (*witnesses.ends, *witnesses.elsewhere) if end == right_end]
    if cleaned:
        supporting = by_start if one_bit else []
    else:
        supporting = by_start + (by_end if one_bit or far else [])
    if supporting:
        return replace(last, witnesses=(*last.witnesses, *dict.fromkeys(supporting + by_end)))
    return last if one_bit and far and not cleaned else None
