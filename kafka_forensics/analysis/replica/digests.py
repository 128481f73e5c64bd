"""Digests of a log in blocks of offsets, by which replicas are compared without moving their data.

A block is a range of 2^shift offsets; a batch belongs to the block of its last offset. A digest is the number of batches and
the sums of the four 32-bit parts of their keyed hashes, so digests add over any split. Sums of parts need no carries: 2^31
batches of one block fit an int64.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.segments import Survey
from kafka_forensics.compiled import kernel
from kafka_forensics.model.batches import BatchColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_SHIFT: Final = 16
MAX_BLOCKS: Final = 1 << 18
_LAST_OFFSET: Final = int(BatchColumn.LAST_OFFSET)
_HIGH: Final = int(BatchColumn.HASH_HIGH)
_LOW: Final = int(BatchColumn.HASH_LOW)
_PARTS: Final = 5


@kernel
def add_batches(columns: "NDArray[np.int64]", first_block: int, shift: int, sums: "NDArray[np.int64]") -> None:
    """Add every batch to its block's row of `sums` (blocks, 5); all blocks must lie inside."""
    for row in range(columns.shape[1]):
        block = (int(columns[_LAST_OFFSET, row]) >> shift) - first_block
        high = int(columns[_HIGH, row])
        low = int(columns[_LOW, row])
        sums[block, 0] += 1
        sums[block, 1] += high & 0xFFFFFFFF
        sums[block, 2] += (high >> 32) & 0xFFFFFFFF
        sums[block, 3] += low & 0xFFFFFFFF
        sums[block, 4] += (low >> 32) & 0xFFFFFFFF


class BlockDigests:
    """State: `sums` (blocks, 5) int64 for the blocks from `first_block` on, each of 2^`shift` offsets."""

    def __init__(self) -> None:
        self.shift = FIRST_SHIFT
        self.first_block = 0
        self.sums: NDArray[np.int64] = np.zeros((0, _PARTS), np.int64)

    def step(self, columns: "NDArray[np.int64]", seen: Survey | None = None) -> None:
        """Add the batches of a chunk, of which `seen` is the survey. Negative offsets (hostile) count as block 0's."""
        if columns.shape[1] == 0:
            return
        last = columns[_LAST_OFFSET]
        if seen is not None and seen.joined:
            low, high = int(last[0]), int(last[-1])
        else:
            low, high = int(last.min()), int(last.max())
        if low < 0:
            columns = columns.copy()
            np.maximum(columns[_LAST_OFFSET], 0, out=columns[_LAST_OFFSET])
            low, high = max(low, 0), max(high, 0)
        self._cover(low, high)
        add_batches(columns, self.first_block, self.shift, self.sums)

    def _cover(self, low: int, high: int) -> None:
        """Make room for the blocks of offsets `low` to `high`, coarser blocks if they would be too many."""
        while True:
            first, end = low >> self.shift, (high >> self.shift) + 1
            if len(self.sums):
                first, end = min(first, self.first_block), max(end, self.first_block + len(self.sums))
            if end - first <= MAX_BLOCKS:
                break
            self.coarsen(self.shift + 1)
        if len(self.sums) and first == self.first_block and end == self.first_block + len(self.sums):
            return
        grown = np.zeros((end - first, _PARTS), np.int64)
        if len(self.sums):
            start = self.first_block - first
            grown[start : start + len(self.sums)] = self.sums
        self.first_block, self.sums = first, grown

    def coarsen(self, shift: int) -> None:
        """Add neighbours until a block has 2^`shift` offsets."""
        while self.shift < shift:
            lead = self.first_block & 1
            padded = np.zeros(((len(self.sums) + lead + 1) // 2 * 2, _PARTS), np.int64)
            padded[lead : lead + len(self.sums)] = self.sums
            self.sums = padded[0::2] + padded[1::2]
            self.first_block >>= 1
            self.shift += 1

    def merge(self, right: "BlockDigests") -> None:
        """Add the digests of another stretch of the same log."""
        if not len(right.sums):
            return
        shift = max(self.shift, right.shift)
        self.coarsen(shift)
        right.coarsen(shift)
        start = right.first_block << shift
        self._cover(start, ((right.first_block + len(right.sums)) << shift) - 1)
        right.coarsen(self.shift)
        row = right.first_block - self.first_block
        self.sums[row : row + len(right.sums)] += right.sums


def differing_blocks(left: BlockDigests, right: BlockDigests, start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of offsets in `[start, end)` that must be read again: runs of blocks whose digests differ.

    Equal digests prove equal batches, also of a block that the range covers only in part; there, different ones prove nothing yet.
    Both states must be of the same scan's key.
    """
    if start >= end:
        return []
    shift = max(left.shift, right.shift)
    while (end - 1 >> shift) - (start >> shift) >= MAX_BLOCKS:
        shift += 1
    left.coarsen(shift)
    right.coarsen(shift)
    first, last = start >> shift, (end - 1) >> shift
    differs = np.any(_rows(left, first, last) != _rows(right, first, last), axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], differs, [False])).astype(np.int8)))
    ranges = zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(max((first + a) << shift, start), min((first + b) << shift, end)) for a, b in ranges]


def _rows(digests: BlockDigests, first: int, last: int) -> "NDArray[np.int64]":
    """Sums of blocks `first` to `last` inclusive, zeros where there are none."""
    rows = np.zeros((last - first + 1, _PARTS), np.int64)
    low, high = max(first, digests.first_block), min(last + 1, digests.first_block + len(digests.sums))
    if low < high:
        rows[low - first : high - first] = digests.sums[low - digests.first_block : high - digests.first_block]
    return rows
