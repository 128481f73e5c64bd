"""Limits of what the folds remember of producers and transactions, and lists that keep their first and last rows.

A state at the start of a log forgets producers and transactions that are silent longest. A state in the middle of a log does not
know which of them the earlier batches need, so it forgets none: it ends early, and a new state follows (`ReplicaState.filled`).
"""

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

MAX_PRODUCERS: Final = 65_536
"""Producers remembered per log. Beyond that, the half that is silent longest is forgotten."""
MAX_OPEN: Final = 65_536
"""Open transactions remembered per log: those with the smallest first offsets, which hold the last stable offset back."""
STRETCH_PRODUCERS: Final = 24_576
"""Producers after which a state in the middle of a log ends; with another chunk's producers it stays within MAX_PRODUCERS / 2."""
STRETCH_BATCHES: Final = 57_344
"""First batches of producers, and aborted transactions, after which such a state ends."""
SETTLED_ABOVE: Final = 4096
"""Producers above which a state at the start of a log judges at once the batches that wait for earlier ones."""
MAX_ENDINGS: Final = 32_768
"""Aborted transactions of a log above which those listed in their `.txnindex` are dropped at once."""
MAX_UNLISTED: Final = 4096
"""Per segment, once they are dropped: entries kept without a transaction, and transactions kept without an entry."""
KEPT_AT_EACH_END: Final = 16

T = TypeVar("T")


class FirstAndLast(Generic[T]):
    """The first and last `KEPT_AT_EACH_END` rows of a sequence, and the exact `count` of all rows.

    Merging is associative: the merged samples of the parts of a sequence equal the sample of the whole.
    """

    __slots__ = ("_first", "_last", "count")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._first: list[T] = []
        self._last: list[T] = []
        self.count = 0
        for item in items:
            self.append(item)

    def append(self, item: T) -> None:
        """Add the next row."""
        self.count += 1
        if len(self._first) < KEPT_AT_EACH_END:
            self._first.append(item)
        else:
            self._last = [*self._last[1 - KEPT_AT_EACH_END :], item]

    def extend(self, right: "FirstAndLast[T]") -> None:
        """Add the rows of `right`, which follow ours."""
        hidden = right.count - len(right)
        for item in right._first:
            self.append(item)
        if hidden:
            self._last = []
            self.count += hidden
        for item in right._last:
            self.append(item)

    def __iter__(self) -> Iterator[T]:
        yield from self._first
        yield from self._last

    def __len__(self) -> int:
        """How many rows are kept."""
        return len(self._first) + len(self._last)
