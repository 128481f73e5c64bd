"""Where the order of a log breaks or bytes are missing: context for the rules about producers and transactions.

A `break` is a place between two consecutive good batches whose offsets do not join, or with damage between them. Other findings
report what is missing, duplicated or out of order at a break.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.segments import ChunkFacts
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import INT64_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEPT: Final = 16


class FirstAndLastRows:
    """The first and last few of many rows in the order of (segment base offset, position), their columns 0 and 1; and their number.

    Rows may come in any order: the result depends only on the set of rows, so merging is associative.
    """

    __slots__ = ("_first", "_last", "count", "rows")

    def __init__(self, width: int, first: int = _KEPT, last: int = _KEPT) -> None:
        self._first, self._last = first, last
        self.rows: NDArray[np.int64] = np.empty((0, width), np.int64)
        self.count = 0

    def add(self, rows: "NDArray[np.int64]", count: int | None = None) -> None:
        """Add rows; `count` is the number that they represent, if some between them were dropped before."""
        if not len(rows):
            return
        self.count += len(rows) if count is None else count
        together = np.concatenate((self.rows, rows))
        together = together[np.lexsort((together[:, 1], together[:, 0]))]
        if len(together) > self._first + self._last:
            together = np.concatenate((together[: self._first], together[len(together) - self._last :]))
        self.rows = together

    def merge(self, other: "FirstAndLastRows") -> None:
        """Add all rows of `other`."""
        self.add(other.rows, other.count)

    @property
    def complete(self) -> bool:
        """Whether no row was dropped."""
        return self.count == len(self.rows)


class OffsetRuns:
    """State: places of the first and last good batch; `breaks` as rows (segment, position of the batch after the break, expected
    offset, found offset); and whether damage precedes the first or follows the last good batch.

    `breaks_count` counts the breaks so far; two batches with different numbers of breaks before them have a break between them.
    """

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self.first_place = (-1, -1)
        """Segment and position of the first good batch."""
        self.start_offset = -1
        self.last_offset = -1
        """Of the last good batch. Both are -1 before any."""
        self.breaks_count = 0
        self.breaks = FirstAndLastRows(4)
        self._damaged_before = False
        self._damaged_after = False

    def damage(self) -> None:
        """Bytes are missing after the last batch added."""
        self._damaged_after = True
        self._damaged_before = self._damaged_before or self.start_offset < 0

    def step(self, columns: "NDArray[np.int64]", facts: ChunkFacts) -> "tuple[NDArray[np.bool_], NDArray[np.int64]] | None":
        """Add the next batches.

        Returns (which are good, number of breaks before each), or None if all are good and none breaks: then `breaks_count` is the
        number of every batch.
        """
        if columns.shape[1] == 0:
            return None
        if not self._damaged_after and facts.joined:
            first = int(columns[BatchColumn.BASE_OFFSET, 0])
            if self.start_offset < 0 or first - 1 == self.last_offset:
                self._begin(first, int(columns[BatchColumn.POSITION, 0]))
                self.last_offset = int(columns[BatchColumn.LAST_OFFSET, -1])
                return None
        base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
        position = columns[BatchColumn.POSITION]
        good = has_right_crc(columns) & (base >= 0) & (last >= base)
        rows = np.flatnonzero(good)
        if not rows.size:
            self.damage()
            return good, np.full(good.size, self.breaks_count, np.int64)
        before = np.concatenate(([self.last_offset], last[rows[:-1]]))
        lost = np.concatenate(([rows[0] > 0 or self._damaged_after], np.diff(rows) > 1))
        breaks = lost | (base[rows] - 1 != before)
        if self.start_offset < 0:
            breaks[0] = False
            self._damaged_before = bool(lost[0])
        numbers = np.full(good.size, self.breaks_count, np.int64)
        numbers[rows] += np.cumsum(breaks)
        at = np.flatnonzero(breaks)
        expected = np.minimum(before[at], INT64_MAX - 1) + 1
        places = rows[at]
        self.breaks.add(np.stack((np.full(at.size, self._segment), position[places], expected, base[places]), axis=1))
        self.breaks_count += int(at.size)
        self._begin(int(base[rows[0]]), int(position[rows[0]]))
        self.last_offset = int(last[rows[-1]])
        self._damaged_after = bool(rows[-1] < good.size - 1)
        return good, numbers

    def _begin(self, start_offset: int, position: int) -> None:
        if self.start_offset < 0:
            self.start_offset = start_offset
            self.first_place = (self._segment, position)

    def merge(self, right: "OffsetRuns") -> int:
        """Add the part of the log that follows; returns what to add to every number of breaks counted in it."""
        self._segment = right._segment
        if right.start_offset < 0:
            if right._damaged_after:
                self.damage()
            return self.breaks_count
        if self.start_offset < 0:
            self._damaged_before = self._damaged_before or right._damaged_before
            self.first_place, self.start_offset = right.first_place, right.start_offset
        elif self._damaged_after or right._damaged_before or right.start_offset - 1 != self.last_offset:
            self.breaks.add(np.array([[*right.first_place, self.end_offset, right.start_offset]], np.int64))
            self.breaks_count += 1
        shift = self.breaks_count
        self.breaks_count += right.breaks_count
        self.breaks.merge(right.breaks)
        self.last_offset = right.last_offset
        self._damaged_after = right._damaged_after
        return shift

    @property
    def end_offset(self) -> int:
        """Offset after the last good batch."""
        return offset_after(self.last_offset)

    def broken_between(self, earlier: tuple[int, int], later: tuple[int, int] | None = None) -> bool:
        """Whether a break is, or may be where not all were kept, after the batch at place `earlier` and up to the one at place
        `later`, or the end. Places are (segment base offset, position)."""
        if later is None and self._damaged_after:
            return True
        places = [(int(row[0]), int(row[1])) for row in self.breaks.rows]
        if any(earlier < place and (later is None or place <= later) for place in places):
            return True
        if self.breaks.complete:
            return False
        return earlier < places[_KEPT] and (later is None or later > places[_KEPT - 1])

    def known_runs(self) -> list[tuple[int, int, tuple[int, int] | None]]:
        """Runs of joining good batches in file order: start offset, end offset (exclusive), and the place of the break that ends
        them (None: the end of the log). Runs whose start or end was not kept are left out."""
        if self.start_offset < 0:
            return []
        runs: list[tuple[int, int, tuple[int, int] | None]] = []
        start = self.start_offset
        for index, (segment, position, expected, found) in enumerate(self.breaks.rows.tolist()):
            if self.breaks.complete or index != _KEPT:
                runs.append((start, expected, (segment, position)))
            start = found
        runs.append((start, self.end_offset, None))
        return runs

    def covers(self, start_offset: int, end_offset: int, before: tuple[int, int] | None = None) -> bool:
        """Whether all of `[start_offset, end_offset)` is in good batches, of the whole log or before the last break at or before
        the place `before`."""
        needed = start_offset
        ended = [run for run in self.known_runs() if before is None or (run[2] is not None and run[2] <= before)]
        for start, end, _ in sorted(ended, key=lambda run: run[:2]):
            if start > needed:
                break
            needed = max(needed, end)
        return needed >= end_offset


def offset_after(last_offset: int) -> int:
    """The next offset, saturated at the end of int64."""
    return min(last_offset, INT64_MAX - 1) + 1
