"""The markers of a log that did not commit: what `.txnindex` files list, and what hides records from readers."""

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from kafka_forensics.analysis.transactions import rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRODUCER_ID, FIRST_OFFSET, LAST_OFFSET, IS_ABORT, BEGIN_SEGMENT, BEGIN_POSITION, SEGMENT, POSITION = range(8)
"""Columns of an ending, as in `Ending`."""
ENDING_WIDTH: Final = 8
_FROM_FOUND: Final = (
    *(rules.FOUND_PRODUCER_ID, rules.DATA_FIRST_OFFSET, rules.FOUND_OFFSET, rules.FOUND_KIND),
    *(rules.DATA_SEGMENT, rules.DATA_POSITION, rules.FOUND_SEGMENT, rules.FOUND_POSITION),
)
"""The same columns in what the kernels report; `IS_ABORT` follows from the kind."""


class Ending(Struct, frozen=True):
    """A marker that did not commit: ABORT, or unreadable. `first_offset` of its transaction, -1 if that has no data in the log;
    places are (segment base offset, position) of the transaction's first batch and of the marker."""

    producer_id: int
    is_abort: bool
    first_offset: int
    last_offset: int
    begins: tuple[int, int]
    ends: tuple[int, int]

    @property
    def key(self) -> tuple[int, int]:
        """What identifies its entry in an index."""
        return self.producer_id, self.last_offset


class NonCommitEndings:
    """Endings as rows of ENDING_WIDTH columns, 64 bytes each."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def size_in_bytes(self) -> int:
        """Memory used."""
        return len(self) * ENDING_WIDTH * 8

    def add(self, reports: "NDArray[np.int64]") -> None:
        """Add the markers among the rows reported by the kernels, except those that commit."""
        rows = reports[(reports[:, rules.FOUND_KIND] != rules.COMMIT) & (reports[:, rules.FOUND_KIND] != rules.LATE)][
            :, _FROM_FOUND
        ]
        rows[:, IS_ABORT] = rows[:, IS_ABORT] == rules.ABORT
        if len(rows):
            self._parts.append(rows)

    def merge(self, right: "NonCommitEndings") -> None:
        """Add those of the part of the log that follows."""
        self._parts += right._parts

    def rows(self, reports: "NDArray[np.int64] | None" = None) -> "NDArray[np.int64]":
        """All of them, in file order, including the rows `reports` of the kernels."""
        if not self._parts and (reports is None or not len(reports)):
            return np.empty((0, ENDING_WIDTH), np.int64)
        together = NonCommitEndings()
        together.merge(self)
        if reports is not None:
            together.add(reports)
        rows = np.concatenate([np.empty((0, ENDING_WIDTH), np.int64), *together._parts])
        return rows[np.lexsort((rows[:, POSITION], rows[:, SEGMENT]))]

    def replace(self, rows: "NDArray[np.int64]") -> None:
        """Keep only these rows."""
        self._parts = [rows] if len(rows) else []


def endings_of(rows: "NDArray[np.int64]") -> list[Ending]:
    """Rows as objects."""
    return [
        Ending(row[PRODUCER_ID], bool(row[IS_ABORT]), row[FIRST_OFFSET], row[LAST_OFFSET], (row[4], row[5]), (row[6], row[7]))
        for row in rows.tolist()
    ]


def paired(endings: "NDArray[np.int64]", entries: "NDArray[np.int64]") -> "tuple[NDArray[np.bool_], ...]":
    """Which endings and which entries are each other's only ones by producer and marker, and agree; and which endings any entry
    names. `entries` are rows of producer id, first offset and marker; the masks are (of endings, of entries, of endings named).

    An abort without data agrees with the entry that brokers before 2.8 write, in which it begins with itself (KAFKA-10702).
    """
    count = len(endings)
    ours = endings[:, [PRODUCER_ID, LAST_OFFSET, FIRST_OFFSET]]
    ours[:, 2] = np.where(ours[:, 2] < 0, ours[:, 1], ours[:, 2])
    ours[:, 2] = np.where(endings[:, IS_ABORT] != 0, ours[:, 2], -2)
    together = np.concatenate((ours, entries[:, [0, 2, 1]]))
    order = np.lexsort((together[:, 0], together[:, 1]))
    together = together[order]
    starts = np.ones(len(order), bool)
    starts[1:] = (together[1:, :2] != together[:-1, :2]).any(axis=1)
    group = np.cumsum(starts) - 1
    is_entry = order >= count
    named = np.bincount(group, is_entry)
    sizes = np.bincount(group)
    pair = np.flatnonzero(starts & (sizes[group] == 2) & (named[group] == 1))
    pair = pair[together[pair, 2] == together[pair + 1, 2]]
    matched = np.zeros(len(order), bool)
    matched[order[pair]] = matched[order[pair + 1]] = True
    is_named = np.zeros(len(order), bool)
    is_named[order] = named[group] > 0
    return matched[:count], matched[count:], is_named[:count]
