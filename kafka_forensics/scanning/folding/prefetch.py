"""Folding splits ahead of the merge, on several threads, in the order of the splits and in bounded memory."""

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Final

from msgspec import Struct

from kafka_forensics.scanning.folding.fold_split import FoldedStretch, Pause, no_wait
from kafka_forensics.scanning.folding.splits import Split

FoldStretches = Callable[[Split, Pause], Iterator[FoldedStretch]]
"""Folds a split, stretch by stretch, and calls the second argument repeatedly with the size of the current stretch."""

LARGE: Final = 1 << 20
"""Size in bytes of the smallest stretch that is counted; nearly all are smaller."""
MAX_WAITING_BYTES: Final = 32 << 20
"""Total size of the large stretches that may wait for the merge."""

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BLOCK: Final = 4 << 20


class MemoryBudget:
    """Limits the total size of large stretches that are folded ahead; a thread whose stretch exceeds it blocks until its turn.

    Blocking does not change what is folded, so the answer does not depend on the number of threads.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sizes: dict[int, int] = {}
        self._turn = 0
        self._unlimited = False

    def wait_for_memory(self, number: int, size_in_bytes: int) -> None:
        """Record the size of the current stretch of a split; returns when folding it may go on."""
        if size_in_bytes < LARGE:
            return
        with self._changed:
            self._sizes[number] = size_in_bytes
            while not self._unlimited and number > self._turn and sum(self._sizes.values()) > MAX_WAITING_BYTES:
                self._changed.wait()

    def start_merging(self, number: int) -> None:
        """The split of this number is merged from now on; those before it are done."""
        with self._changed:
            self._turn = number
            self._sizes = {waiting: size for waiting, size in self._sizes.items() if waiting >= number}
            self._changed.notify_all()

    def stop_blocking(self) -> None:
        """Stop blocking: no thread waits any longer."""
        with self._changed:
            self._unlimited = True
            self._changed.notify_all()


class _StartedSplit(Struct):
    """A split whose first stretch a thread folds (None: the merging thread does, as it does all later ones)."""

    number: int
    stretches: Iterator[FoldedStretch]
    first: Future[FoldedStretch] | None


def in_order(
    fold: FoldStretches, splits: Iterator[Split | None], jobs: Callable[[], int], must_run_in_order: Callable[[Split], bool]
) -> Iterator[FoldedStretch | None]:
    """Yield the stretches of all splits, in order; None passes through.

    `jobs()` threads fold the first stretch of each split, a few splits ahead, except of splits that `must_run_in_order`. If
    `jobs()` is 1, no thread is started, and it is called again for the next split.
    """
    for split in splits:
        if split is None:
            yield None
        elif jobs() <= 1:
            yield from fold(split, no_wait)
        else:
            yield from _in_order_ahead(fold, chain([split], splits), jobs(), must_run_in_order)


def _in_order_ahead(
    fold: FoldStretches, splits: Iterator[Split | None], jobs: int, must_run_in_order: Callable[[Split], bool]
) -> Iterator[FoldedStretch | None]:
    """`in_order` on threads."""
    _make_malloc_return_large_blocks()
    budget = MemoryBudget()
    with ThreadPoolExecutor(jobs) as pool:
        ahead: deque[_StartedSplit | None] = deque()
        try:
            for number, split in enumerate(splits):
                if split is None:
                    ahead.append(None)
                else:
                    stretches = fold(split, partial(budget.wait_for_memory, number))
                    first = None if must_run_in_order(split) else pool.submit(next, stretches)
                    ahead.append(_StartedSplit(number, stretches, first))
                while len(ahead) > 3 * jobs:
                    yield from _stretches(ahead.popleft(), budget)
            while ahead:
                yield from _stretches(ahead.popleft(), budget)
        finally:
            budget.stop_blocking()
            pool.shutdown(wait=False, cancel_futures=True)


def _stretches(started: _StartedSplit | None, budget: MemoryBudget) -> Iterator[FoldedStretch | None]:
    if started is None:
        yield None
        return
    budget.start_merging(started.number)
    if started.first is not None:
        yield started.first.result()
        started.first = None
    yield from started.stretches


def _make_malloc_return_large_blocks() -> None:
    """Have glibc return freed large blocks to the system. By default it comes to keep blocks of up to 32 MiB for the thread that
    freed them, and several threads hold several times what they use. Other C libraries do not."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
