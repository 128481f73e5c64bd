"""The markers of a log that did not commit: what `.txnindex` files list, and what hides records from readers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.transactions import rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

PRODUCER_ID, FIRST_OFFSET, LAST_OFFSET, IS_ABORT, BEGIN_SEGMENT, BEGIN_POSITION, SEGMENT, POSITION = range(8)
"""Columns of an ending; what they mean says `Ending`."""
ENDING_WIDTH: Final = 8
_FROM_FOUND: Final = (6, 8, 4, 2, 9, 10, 0, 1)
"""Their columns in what the kernels find; of the kind follows `IS_ABORT`."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A marker that did not commit: ABORT, or unreadable. `first_offset` of its transaction, -1 if none is in the log; places are
    (segment base offset, position) of the transaction's first batch and of the marker."""

    producer_id: int
    is_abort: bool
    first_offset: int
    last_offset: int
    begins: tuple[int, int]
    ends: tuple[int, int]

    @property
    def key(self) -> tuple[int, int]:
        """What it has in common with its entry in an index."""
        return self.producer_id, self.last_offset


class Endings:
    """Endings as rows of ENDING_WIDTH columns, 64 bytes each."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size_in_bytes(self) -> int:
        """Memory held."""
        return self._count * ENDING_WIDTH * 8

    def add(self, endings: "NDArray[np.int64]") -> None:
        """Take the markers among the rows that the kernels found, but for those that commit."""
        lasting = endings[(endings[:, 2] != rules.COMMIT) & (endings[:, 2] != rules.LATE)]
        if len(lasting):
            rows = lasting[:, _FROM_FOUND]
            rows[:, IS_ABORT] = rows[:, IS_ABORT] == rules.ABORT
            self._append(rows)

    def merge(self, right: "Endings") -> None:
        """Add those of the stretch behind ours."""
        for part in right._parts:
            self._append(part)

    def _append(self, rows: "NDArray[np.int64]") -> None:
        self._parts.append(rows)
        self._count += len(rows)

    def rows(self, more: "Iterable[NDArray[np.int64]]" = ()) -> "NDArray[np.int64]":
        """All of them, in file order; `more` are rows that the kernels found."""
        together = Endings()
        together._parts = list(self._parts)
        for ending in more:
            together.add(ending)
        if not together._parts:
            return np.empty((0, ENDING_WIDTH), np.int64)
        rows: NDArray[np.int64] = np.concatenate(together._parts)
        return rows[np.lexsort((rows[:, POSITION], rows[:, SEGMENT]))]

    def replace(self, rows: "NDArray[np.int64]") -> None:
        """Keep these rows instead."""
        self._parts = [rows] if len(rows) else []
        self._count = len(rows)


def as_endings(rows: "NDArray[np.int64]") -> list[Ending]:
    """Rows as values."""
    return [
        Ending(row[PRODUCER_ID], bool(row[IS_ABORT]), row[FIRST_OFFSET], row[LAST_OFFSET], (row[4], row[5]), (row[6], row[7]))
        for row in rows.tolist()
    ]


def paired(endings: "NDArray[np.int64]", entries: "NDArray[np.int64]") -> "tuple[NDArray[np.bool_], ...]":
    """Which endings and which entries are one another's only ones by producer and marker, and agree; and which endings any entry
    names. `entries` are rows of producer id, first offset and marker; the masks are (of endings, of entries, of endings named).

    An abort of nothing agrees with the entry that brokers before 2.8 write, in which it begins with itself (KAFKA-10702).
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
