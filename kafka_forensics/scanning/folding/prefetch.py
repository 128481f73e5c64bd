"""Folding splits ahead of the merge: on several threads, in the order of the splits, and in bounded memory."""

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from kafka_forensics.scanning.folding.fold_split import Folded, Pause
from kafka_forensics.scanning.folding.splits import Split

Walk = Callable[[Split, Pause], Iterator[Folded]]
"""Folds a split, a stretch after the other; tells the second argument, again and again, how many bytes its stretch holds."""

LARGE: Final = 1 << 20
"""Bytes of a stretch that count; nearly all hold less."""
ROOM: Final = 32 << 20
"""Bytes of large stretches that may wait for the merge together."""

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BLOCK: Final = 4 << 20


class Room:
    """What splits may hold that are folded ahead. One that has grown large while there is no room waits for its turn.

    Waiting changes nothing in what is folded, so that the answer does not depend on the number of threads.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[int, int] = {}
        self._turn = 0
        self._open = False

    def hold(self, number: int, size_in_bytes: int) -> None:
        """The split of this number holds so much; returns when it may go on."""
        if size_in_bytes < LARGE:
            return
        with self._changed:
            self._held[number] = size_in_bytes
            while not self._open and number > self._turn and sum(self._held.values()) > ROOM:
                self._changed.wait()

    def turn(self, number: int) -> None:
        """The split of this number is merged now, and those before it are gone."""
        with self._changed:
            self._turn = number
            self._held = {held_number: size for held_number, size in self._held.items() if held_number >= number}
            self._changed.notify_all()

    def open(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


@dataclass(slots=True)
class _Begun:
    """A split whose first stretch is folded on a thread, or by the merging one (`first` is None), as all further ones are."""

    number: int
    stretches: Iterator[Folded]
    first: Future[Folded] | None


def in_order(
    walk: Walk, splits: Iterator[Split | None], jobs: Callable[[], int], alone: Callable[[Split], bool]
) -> Iterator[Folded | None]:
    """The stretches of all splits in order, the first of each folded on one of `jobs()` threads, a few splits ahead; None passes
    through. Splits that are `alone` are folded only when it is their turn.

    Of one thread none is made; how many there shall be is then asked again for the next split.
    """
    for split in splits:
        if split is None:
            yield None
        elif jobs() <= 1:
            yield from walk(split, never)
        else:
            yield from _in_order_ahead(walk, chain([split], splits), jobs(), alone)


def _in_order_ahead(
    walk: Walk, splits: Iterator[Split | None], jobs: int, alone: Callable[[Split], bool]
) -> Iterator[Folded | None]:
    """`in_order` on threads."""
    _give_large_blocks_back()
    room = Room()
    with ThreadPoolExecutor(jobs) as pool:
        ahead: deque[_Begun | None] = deque()
        try:
            for number, split in enumerate(splits):
                if split is None:
                    ahead.append(None)
                else:
                    stretches = walk(split, partial(room.hold, number))
                    ahead.append(_Begun(number, stretches, None if alone(split) else pool.submit(next, stretches)))
                while len(ahead) > 3 * jobs:
                    yield from _stretches(ahead.popleft(), room)
            while ahead:
                yield from _stretches(ahead.popleft(), room)
        finally:
            room.open()
            pool.shutdown(wait=False, cancel_futures=True)


def _stretches(begun: _Begun | None, room: Room) -> Iterator[Folded | None]:
    if begun is None:
        yield None
        return
    room.turn(begun.number)
    if begun.first is not None:
        yield begun.first.result()
        begun.first = None
    yield from begun.stretches


def _give_large_blocks_back() -> None:
    """Have glibc return large blocks to the system when they are freed. Left to itself it comes to keep what one thread freed for
    that thread, up to 32 MiB a block, and several threads then hold several times what they use. Other C libraries do not."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


def never(_size_in_bytes: int) -> None:
    """The pause of what is folded by itself."""
