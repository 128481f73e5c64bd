"""How much the folds remember of producers and transactions, however many a log has.

A state with nothing left of it forgets what has been silent longest. One that may have something left of it cannot know what
that is, and forgets nothing: it ends early instead, and another goes on behind it (`ReplicaState.filled`).
"""

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

MAX_PRODUCERS: Final = 65_536
"""Producers of a log that are remembered; of more, the half that has been silent longest is forgotten."""
MAX_OPEN: Final = 65_536
"""Open transactions of a log that are remembered; of more, those with the smallest first offsets, which hold readers back."""
STRETCH_PRODUCERS: Final = 24_576
"""Producers that a stretch may have met before it ends: with those of another chunk, half of MAX_PRODUCERS."""
STRETCH_BATCHES: Final = 57_344
"""First batches of producers, and aborted transactions, of such a stretch."""
SETTLED_ABOVE: Final = 4096
"""Producers of a log above which the batches that wait for what stands left of them are judged at once, nothing being left."""
MAX_ENDINGS: Final = 32_768
"""Aborted transactions of a log above which those that their `.txnindex` lists are let go of at once."""
MAX_UNLISTED: Final = 4096
"""Then, of each segment: entries without a transaction, and transactions without an entry, that are kept."""


# A list that stays small: the first and last few rows and the exact count, mergeable in order.


T = TypeVar("T")

KEPT_AT_EACH_END = 16


class Sample(Generic[T]):
    """The first and last `KEPT_AT_EACH_END` of a sequence, and how long it was.

    Merging is associative: cutting a sequence anywhere and merging the samples gives the sample of the whole.
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
            self._last.append(item)
            if len(self._last) > KEPT_AT_EACH_END:
                del self._last[0]

    def extend(self, right: "Sample[T]") -> None:
        """Add all of `right`, whose rows stand behind ours."""
        hidden = right.count - len(right._first) - len(right._last)
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
        """Rows kept; `count` says how many there were."""
        return len(self._first) + len(self._last)
