"""Records of compacted logs as rows: one for the last record of a key between two cuts of a replica's offsets, however many it had.

Rows add over any split of a log: sorted by key and reduced, they are the same whatever part was read, sorted or spilled first.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class Row(IntEnum):
    """Column of each fact in a matrix of rows, (n, ROW_WIDTH) int64."""

    KEY_HIGH = 0
    KEY_LOW = 1
    """128 bits of a keyed hash of the key."""
    PLACE = 2
    """Replica, interval between cuts and `State`, see `place`."""
    OFFSET = 3
    """Of the last record."""
    VALUE = 4
    """Hash of its value."""
    EXPIRY = 5
    """Milliseconds since 1970 from which a cleaner may drop it, if it is a tombstone."""
    FLAGS = 6
    """TOMBSTONE, TRANSACTIONAL."""
    RECORDS = 7
    """How many records the row stands for."""
    KEY_SHOWN = 8
    """64 bits of a hash of the key that is the same in every scan (XXH3), to name the key by."""


class State(IntEnum):
    """What a read_committed reader makes of a record, by the markers of its own log."""

    VISIBLE = 0
    ABORTED = 1
    OPEN = 2


ROW_WIDTH: Final = len(Row)
TOMBSTONE: Final = 1
TRANSACTIONAL: Final = 2


def place(replica: int, interval: "Ints", state: "int | Ints") -> "Ints":
    """`Row.PLACE`: sorts by replica, then by interval."""
    packed: Ints = (replica << 32) + (interval << 2) + state
    return packed


def reduced(rows: "Ints") -> "Ints":
    """Rows sorted by key and place, of each place the last record, with the number of all."""
    order = np.lexsort((rows[:, Row.OFFSET], rows[:, Row.PLACE], rows[:, Row.KEY_LOW], rows[:, Row.KEY_HIGH]))
    rows = rows[order]
    if not len(rows):
        return rows
    changes = np.any(rows[1:, : Row.OFFSET] != rows[:-1, : Row.OFFSET], axis=1)
    first = np.flatnonzero(np.concatenate(([True], changes)))
    answer: Ints = rows[np.append(first[1:], len(rows)) - 1]
    answer[:, Row.RECORDS] = np.add.reduceat(rows[:, Row.RECORDS], first)
    return answer


class KeyBlock:
    """Reduced rows with all rows of their keys; answers are arrays with an entry for each key, in the order of the rows.

    `cuts` are the offsets, ascending, between which the rows' intervals lie: interval n begins with cut n - 1.
    """

    def __init__(self, rows: "Ints", cuts: "Ints") -> None:
        changes = np.any(rows[1:, : Row.PLACE] != rows[:-1, : Row.PLACE], axis=1)
        self._rows = rows
        self._key = np.concatenate(([0], np.cumsum(changes)))
        self.keys = int(self._key[-1]) + 1
        self._cuts = cuts
        self._replica = rows[:, Row.PLACE] >> 32
        self._interval = (rows[:, Row.PLACE] & 0xFFFFFFFF) >> 2
        self._state = rows[:, Row.PLACE] & 3

    def _within(self, replica: int, state: int, start: int, end: int | None) -> "Ints":
        """Rows of a replica's records in `[start, end)`, which are cuts; None is the log's end."""
        low = np.searchsorted(self._cuts, start, side="right")
        mask = (self._replica == replica) & (self._state == state) & (self._interval >= low)
        if end is not None:
            mask &= self._interval < np.searchsorted(self._cuts, end, side="right")
        return np.flatnonzero(mask)

    def last(self, replica: int, state: int, start: int, end: int | None) -> "Ints":
        """The row of the replica's last record in this state in `[start, end)`, -1 for none."""
        rows = self._within(replica, state, start, end)
        answer = np.full(self.keys, -1, np.int64)
        answer[self._key[rows]] = rows  # rows of a key ascend by offset, and of equal indexes numpy keeps the last
        return answer

    def records(self, replica: int, start: int, end: int) -> "Ints":
        """How many visible records the replica has in `[start, end)`."""
        rows = self._within(replica, State.VISIBLE, start, end)
        answer = np.zeros(self.keys, np.int64)
        np.add.at(answer, self._key[rows], self._rows[rows, Row.RECORDS])
        return answer

    def fact(self, rows: "Ints", column: int) -> "Ints":
        """A column of rows, -1 where there is none."""
        return np.where(rows >= 0, self._rows[rows, column], -1)

    def has_flag(self, rows: "Ints", flag: int) -> "Mask":
        """Whether there is a row, and it carries the flag."""
        flagged: Mask = (rows >= 0) & (self._rows[rows, Row.FLAGS] & flag != 0)
        return flagged
