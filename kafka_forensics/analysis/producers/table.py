"""Producer id → row of a matrix, as an open-addressing table that kernels fill and look up.

Rows keep the order in which producers were met, so nothing that is counted or printed depends on the hash. The hash is keyed
at random, so that crafted producer ids cannot all fall into one slot and make a scan quadratic.
"""

import secrets
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.compiled import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST_CAPACITY: Final = 16
_SLOTS_PER_ROW: Final = 4
_MOVED_AT_ONCE: Final = 1024
_PRIME: Final = 2**31 - 1
_LOW_BITS: Final = 2**31 - 1


@kernel
def slot_of(producer_id: int, key_low: int, key_high: int, mask: int) -> int:
    """Where the search for a producer id >= 0 starts; the sums stay below 2^62."""
    low = producer_id & _LOW_BITS
    high = (producer_id >> 31) & _LOW_BITS
    return ((low * key_low + high * key_high) % _PRIME) & mask


@kernel
def find_producer(
    producer_id: int, rows: "NDArray[np.int64]", slots: "NDArray[np.int64]", keys: "NDArray[np.int64]", used: "NDArray[np.int64]"
) -> int:
    """Row of a producer id >= 0, added if it is new: there must be room for it. `used[0]` counts the rows."""
    mask = slots.size - 1
    slot = slot_of(producer_id, int(keys[0]), int(keys[1]), mask)
    while True:
        row = int(slots[slot])
        if row < 0:
            row = int(used[0])
            rows[row, 0] = producer_id
            slots[slot] = row
            used[0] = row + 1
            return row
        if rows[row, 0] == producer_id:
            return row
        slot = (slot + 1) & mask


@kernel
def fill_slots(rows: "NDArray[np.int64]", slots: "NDArray[np.int64]", keys: "NDArray[np.int64]", count: int) -> None:
    """Enter the first `count` rows into empty slots."""
    mask = slots.size - 1
    for row in range(count):
        slot = slot_of(int(rows[row, 0]), int(keys[0]), int(keys[1]), mask)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row


class ProducerTable:
    """`rows` (capacity, width) int64, zeros where unused, column 0 the producer id; `used[0]` rows are taken.

    `used` has room for `counters` more counts of the caller's. Made of arrays only, so a copy in another process works alike.
    """

    def __init__(self, width: int, counters: int = 0) -> None:
        self.rows: NDArray[np.int64] = np.zeros((_FIRST_CAPACITY, width), np.int64)
        self.slots: NDArray[np.int64] = np.full(_FIRST_CAPACITY * _SLOTS_PER_ROW, -1, np.int64)
        self.keys: NDArray[np.int64] = np.array([1 + secrets.randbelow(2**30), 1 + secrets.randbelow(2**30)], np.int64)
        self.used: NDArray[np.int64] = np.zeros(1 + counters, np.int64)

    def __len__(self) -> int:
        return int(self.used[0])

    @property
    def full(self) -> bool:
        """Whether `find_producer` may not add another row before `grow`."""
        return len(self) == len(self.rows)

    def grow(self) -> None:
        """Double the room."""
        self.rows = doubled(self.rows)
        self.slots = np.full(len(self.rows) * _SLOTS_PER_ROW, -1, np.int64)
        fill_slots(self.rows, self.slots, self.keys, len(self))

    def keep(self, kept: "NDArray[np.int64]") -> None:
        """Forget all rows but those numbered `kept`, ascending; they move up."""
        count = len(kept)
        move_up(self.rows, kept)
        self.rows[count:] = 0
        self.used[0] = count
        self.slots.fill(-1)
        fill_slots(self.rows, self.slots, self.keys, count)

    def shrink(self) -> None:
        """Give back the room of rows that are not used."""
        capacity = _FIRST_CAPACITY
        while capacity < len(self):
            capacity *= 2
        self.rows = self.rows[:capacity].copy()
        self.slots = np.full(capacity * _SLOTS_PER_ROW, -1, np.int64)
        fill_slots(self.rows, self.slots, self.keys, len(self))

    def among(self, others: "ProducerTable") -> "NDArray[np.bool_]":
        """For each of our rows, whether `others` have its producer."""
        return np.isin(self.taken()[:, 0], others.taken()[:, 0])

    def taken(self) -> "NDArray[np.int64]":
        """The rows in use, in the order the producers were met."""
        return self.rows[: len(self)]

    def find(self, producer_id: int) -> int:
        """Row of a producer, -1 if it was never met."""
        if producer_id < 0:
            return -1
        mask = self.slots.size - 1
        slot = slot_of(producer_id, int(self.keys[0]), int(self.keys[1]), mask)
        while True:
            row = int(self.slots[slot])
            if row < 0 or self.rows[row, 0] == producer_id:
                return row
            slot = (slot + 1) & mask


def move_up(array: "NDArray[np.int64]", kept: "NDArray[np.int64]") -> None:
    """Move what is numbered `kept`, ascending, to the beginning, a little at a time, so that no second array is needed."""
    for start in range(0, len(kept), _MOVED_AT_ONCE):
        some = kept[start : start + _MOVED_AT_ONCE]
        array[start : start + len(some)] = array[some]


def doubled(array: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """A copy with twice the rows, the new ones zero."""
    grown = np.zeros((2 * len(array), *array.shape[1:]), np.int64)
    grown[: len(array)] = array
    return grown
