"""Which batches of a log a bundle has by themselves, and which it has only as blocks.

By themselves stay the newest of a log, all that anything is wrong with or that the analysis looks at one by one (of transactions,
control batches, those of which records were asked for, the old formats), and the first and the last of each row of others, so that
whatever begins, ends or breaks there is where it was. What stands between these becomes blocks.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.model.batches import CHUNK_ROWS, BatchColumn, Damage
from kafka_forensics.model.constants import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafka_forensics.parsers.log import MOST_RECORDS, Blocks, as_blocks
from kafka_forensics.replication.recovery import MAX_RELATIVE_OFFSET
from kafka_forensics.storage.bundles import SectionKind
from kafka_forensics.writers.bundle_columns import write_batches, write_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

NEWEST_BATCHES: Final = 512
"""So many at the end of a partition's log stay by themselves: there replicas part."""
EDGE_BATCHES: Final = 8
"""So many at either end of batches that go on with each other."""
LEAST_BATCHES: Final = 64
"""Fewer in a row are no block: its section would take as many bytes."""
_BY_THEMSELVES: Final = CONTROL_MASK | TRANSACTIONAL_MASK | DELETE_HORIZON_MASK
_LAST_TIME: Final = 1 << 62


class Facts(NamedTuple):
    """Batches with what is known of each: a (BATCH_COLUMNS, n) matrix, the offsets that old entries bear, digests (n, 1 or 2), of
    zeros where none was taken, and which of them may stand in a block."""

    columns: "Ints"
    written: "Ints"
    digests: "NDArray[np.uint64]"
    plain: "Mask"

    def rows(self, start: int, end: int) -> "Facts":
        """Rows `[start, end)`."""
        return Facts(self.columns[:, start:end], self.written[start:end], self.digests[start:end], self.plain[start:end])


def _one_after_the_other(facts: list[Facts]) -> Facts:
    return Facts(
        np.concatenate([of_some.columns for of_some in facts], axis=1),
        *(np.concatenate([of_some[column] for of_some in facts]) for column in (1, 2, 3)),
    )


def plain_batches(columns: "Ints", damage: list[tuple[Damage, bool]], by_themselves: "Mask", base_offset: int) -> "Mask":
    """Which batches of a segment of this base offset may stand in a block; none of those that must stay `by_themselves`."""
    base, last, count = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET], columns[BatchColumn.RECORDS_COUNT]
    plain: Mask = (columns[BatchColumn.MAGIC] == 2) & (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED])
    plain &= (columns[BatchColumn.ATTRIBUTES] & _BY_THEMSELVES == 0) & ~by_themselves
    plain &= (base >= base_offset) & (last - base_offset <= MAX_RELATIVE_OFFSET)
    plain &= (count >= 1) & (count <= MOST_RECORDS) & (count == last - base + 1)
    plain &= (columns[BatchColumn.SIZE_IN_BYTES] >= RECORD_BATCH_OVERHEAD) & (columns[BatchColumn.PARTITION_LEADER_EPOCH] >= -1)
    for column in (BatchColumn.BASE_TIMESTAMP, BatchColumn.MAX_TIMESTAMP):
        plain &= (columns[column] >= -1) & (columns[column] <= _LAST_TIME)
    if damage:
        places = np.array([found.position for found, _ in damage], np.int64)
        plain &= ~np.isin(columns[BatchColumn.POSITION], places)
    return plain


def _joined(columns: "Ints") -> "Mask":
    """Of each batch but the first whether it goes on with the one before: in bytes, offsets, epoch and kind of timestamps."""
    behind, before = columns[:, 1:], columns[:, :-1]
    joined: Mask = before[BatchColumn.POSITION] + before[BatchColumn.SIZE_IN_BYTES] == behind[BatchColumn.POSITION]
    joined &= before[BatchColumn.LAST_OFFSET] + 1 == behind[BatchColumn.BASE_OFFSET]
    joined &= before[BatchColumn.PARTITION_LEADER_EPOCH] == behind[BatchColumn.PARTITION_LEADER_EPOCH]
    joined &= (before[BatchColumn.ATTRIBUTES] ^ behind[BatchColumn.ATTRIBUTES]) & TIMESTAMP_TYPE_MASK == 0
    return joined


def _of_blocks(columns: "Ints", plain: "Mask") -> "Mask":
    """Which batches stand in blocks: of those that are plain and go on with each other all but the first and the last few,
    if they are enough. With more batches before and behind them these do, too, and maybe others."""
    size = plain.size
    begins = np.ones(size, np.bool_)
    begins[1:] = ~(_joined(columns) & plain[1:] & plain[:-1])
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=size)
    at, length = np.arange(size) - np.repeat(starts, lengths), np.repeat(lengths, lengths)
    inner: Mask = plain & (at >= EDGE_BATCHES) & (at < length - EDGE_BATCHES)
    return inner & (length >= 2 * EDGE_BATCHES + LEAST_BATCHES)


def surely_in_blocks(columns: "Ints", plain: "Mask", size_in_bytes: int, newest: int) -> "Mask":
    """Of some batches, one behind the other in a log of so many bytes, those that stand in blocks whatever the others are, if the
    `newest`, which stay by themselves at its end, are no larger than the largest of these."""
    apart = newest + EDGE_BATCHES if newest else 0
    begins = columns[BatchColumn.POSITION]
    inner: Mask = begins < size_in_bytes - apart * int(columns[BatchColumn.SIZE_IN_BYTES].max(initial=0))
    return inner & _of_blocks(columns, plain)


Section = tuple[SectionKind, int, int, bytes]


class Sections:
    """The sections of a log of which a bundle has blocks, as its chunks come: those of a chunk once so many batches follow it as
    stay by themselves at its end, `newest`.

    `digests_of` takes the digests of batches, (BATCH_COLUMNS, n): of good ones that stay by themselves and have none.
    """

    def __init__(self, newest: int, digests_of: "Callable[[Ints], NDArray[np.uint64]]") -> None:
        self._newest = newest
        self._digests_of = digests_of
        self._chunks: deque[Facts] = deque()
        self._held = 0
        """Batches of the chunks that wait for what follows."""
        self._context: list[Facts] = []
        """The last batches that were placed, and those behind them that are not."""
        self._placed = 0
        """How many of these are."""
        self._damage: list[tuple[Damage, bool]] = []
        self._at = 0
        """The byte up to which sections are made."""
        self._end = 0
        self._batches: list[Facts] = []
        self._rows = 0
        self._blocks: list[Blocks] = []

    def take(self, facts: Facts, damage: list[tuple[Damage, bool]], end: int) -> Iterator[Section]:
        """Add a chunk, which reaches to byte `end`."""
        self._end = end
        self._damage += damage
        if facts.plain.size:
            self._chunks.append(facts)
            self._held += facts.plain.size
        while self._chunks and self._held - self._chunks[0].plain.size >= self._newest:
            chunk = self._chunks.popleft()
            self._held -= chunk.plain.size
            yield from self._place(chunk)

    def finish(self) -> Iterator[Section]:
        """All that is left: the log is over."""
        if self._chunks:
            rest = _one_after_the_other(list(self._chunks))
            rest.plain[max(rest.plain.size - self._newest, 0) :] = False
            yield from self._place(rest)
        for rest in self._context:
            yield from self._add_batches(rest.rows(self._placed, rest.plain.size))
        yield from self._end_blocks()
        yield from self._end_batches(self._end)

    def _place(self, facts: Facts) -> Iterator[Section]:
        """Put batches into blocks or by themselves, all but the last few: what follows says where these belong."""
        placed = self._placed
        facts = _one_after_the_other([*self._context, facts])
        inner = _of_blocks(facts.columns, facts.plain)
        end = max(inner.size - EDGE_BATCHES, placed)
        edges = [placed, *(row for row in (np.flatnonzero(inner[1:] != inner[:-1]) + 1).tolist() if placed < row < end), end]
        for start, until in pairwise(edges):
            if start < until and inner[start]:
                yield from self._add_blocks(as_blocks(facts.columns[:, start:until]).together())
            elif start < until:
                yield from self._add_batches(facts.rows(start, until))
        first = max(end - EDGE_BATCHES - LEAST_BATCHES - EDGE_BATCHES, 0)
        self._context, self._placed = [_copied(facts.rows(first, inner.size))], end - first

    def _add_batches(self, facts: Facts) -> Iterator[Section]:
        yield from self._end_blocks()
        self._batches.append(facts)
        self._rows += facts.plain.size
        while self._rows > CHUNK_ROWS:
            together = _one_after_the_other(self._batches)
            self._batches = [together.rows(0, CHUNK_ROWS)]
            rest = together.rows(CHUNK_ROWS, self._rows)
            yield from self._end_batches(int(rest.columns[BatchColumn.POSITION, 0]))
            self._batches, self._rows = [rest], rest.plain.size

    def _add_blocks(self, blocks: Blocks) -> Iterator[Section]:
        if not self._blocks:
            yield from self._end_batches(int(blocks.columns[BatchColumn.POSITION, 0]))
        self._blocks.append(blocks)
        if sum(some.sums.shape[1] for some in self._blocks) >= CHUNK_ROWS:
            yield from self._end_blocks()

    def _end_batches(self, end: int) -> Iterator[Section]:
        """The section of the batches that wait, which speaks of all bytes up to `end`."""
        if end == self._at:
            return
        here = [row for row in self._damage if row[0].position < end]
        self._damage = [row for row in self._damage if row[0].position >= end]
        facts = _one_after_the_other(self._batches) if self._batches else None
        if facts is None:
            data = write_batches(np.empty((len(BatchColumn), 0), np.int64), here)
        else:
            digests = facts.digests.copy()
            good = facts.columns[BatchColumn.CRC] == facts.columns[BatchColumn.CRC_COMPUTED]
            lacking = np.flatnonzero(good & (facts.columns[BatchColumn.MAGIC] >= 2) & ~digests.any(axis=1))
            if lacking.size:
                digests[lacking] = self._digests_of(facts.columns[:, lacking])
            data = write_batches(facts.columns, here, written=facts.written, digests=digests)
        yield SectionKind.BATCHES, self._at, end, data
        self._at, self._batches, self._rows = end, [], 0

    def _end_blocks(self) -> Iterator[Section]:
        if not self._blocks:
            return
        blocks = Blocks(*(np.concatenate([some[part] for some in self._blocks], axis=1) for part in (0, 1))).together()
        self._blocks = []
        end = int(blocks.columns[BatchColumn.POSITION, -1] + blocks.columns[BatchColumn.SIZE_IN_BYTES, -1])
        for start in range(0, blocks.sums.shape[1], CHUNK_ROWS):
            some = Blocks(blocks.columns[:, start : start + CHUNK_ROWS], blocks.sums[:, start : start + CHUNK_ROWS])
            begin = int(some.columns[BatchColumn.POSITION, 0])
            behind = start + CHUNK_ROWS
            until = int(blocks.columns[BatchColumn.POSITION, behind]) if behind < blocks.sums.shape[1] else end
            yield SectionKind.BLOCKS, begin, until, write_blocks(some)
        self._at = end


def _copied(facts: Facts) -> Facts:
    """By itself, without the larger matrix that it is a part of."""
    return Facts(facts.columns.copy(), facts.written.copy(), facts.digests.copy(), facts.plain.copy())
