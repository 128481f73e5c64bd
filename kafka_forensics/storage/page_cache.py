"""The page cache as it was: pages that reading brings in are dropped again, and pages that were there stay.

Beside a running broker the cache holds what consumers are about to read; a pass over all logs would push that out. Linux tells
which pages it holds by cachestat(2), from 6.5 on and to those who own the file or may write it; before that, and to others, by
preadv2's RWF_NOWAIT, which gives what is there and no more. From 5.10 on such a read also has the rest fetched meanwhile, so that a
page whose bytes arrive before it is asked about is taken for one that was there, and stays.
"""

import ctypes
import errno
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kafka_forensics.model.offset_ranges import normalised

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MOST_BROUGHT_BYTES: Final = 8 << 20
"""Pages of more bytes are dropped before the file is closed."""
STRETCH_BYTES: Final = 128 << 10
"""Asked for at once by RWF_NOWAIT."""
_CACHESTAT: Final = 451
"""The number of the system call, on every machine."""
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_CAN_DROP: Final = hasattr(os, "posix_fadvise") and sys.maxsize > 1 << 32

Ranges = list[tuple[int, int]]
Way = Callable[[int, int, int], Ranges]
"""Asked of a descriptor about pages `[first, end)`: the ranges of those that are not in the cache. Raises OSError."""


class PageCache:
    """What is known of the page cache below some files: one for all files of a source, of one thread."""

    def __init__(self) -> None:
        self._ways: list[tuple[str, Way]] = []
        if _CAN_DROP and sys.platform == "linux":
            self._ways.append(("cachestat", _Counting().missing))
        if _CAN_DROP and _NOWAIT:
            self._ways.append(("RWF_NOWAIT", _Trying().missing))
        self._way: str | None = None
        if not self._ways:
            _say("the page cache: this system does not tell what is in it, so nothing is dropped from it")

    def brought_by(self, descriptor: int) -> "BroughtPages":
        """The pages that reading a file, just opened, will bring in."""
        if self._ways:
            _advise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead, of which nobody would know
        return BroughtPages(self, descriptor)

    def missing(self, descriptor: int, first: int, end: int) -> Ranges:
        """Ranges of pages in `[first, end)` that are not in the cache; none where the system cannot tell."""
        while self._ways:
            name, way = self._ways[0]
            try:
                ranges = way(descriptor, first, end)
            except OSError as error:
                if error.errno == errno.EIO:
                    return []  # the read itself will say so
                del self._ways[0]
                if not self._ways:
                    _say(f"the page cache: {name} fails here ({os.strerror(error.errno or 0)}), so nothing is dropped from it")
                continue
            if self._way != name:
                self._way = name
                _say(f"the page cache: {name} tells what is in it; pages that were not are dropped again")
            return ranges
        return []


def _say(words: str) -> None:
    logging.getLogger(__name__).info(words)


class BroughtPages:
    """The pages that reading one file brings into the cache. It is to be asked before each read, and to drop them at the end."""

    def __init__(self, cache: PageCache, descriptor: int) -> None:
        self._cache = cache
        self._descriptor = descriptor
        self._brought: Ranges = []
        self._bytes = 0

    def will_read(self, start: int, end: int) -> None:
        """Bytes `[start, end)` of the file, none behind its end, are read next."""
        if self._bytes >= MOST_BROUGHT_BYTES:
            self.drop()
        if start < end:
            for first, after in self._cache.missing(self._descriptor, start // PAGE_BYTES, -(-end // PAGE_BYTES)):
                self._brought.append((first, after))
                self._bytes += (after - first) * PAGE_BYTES

    def drop(self) -> None:
        """Drop all of them."""
        for first, end in normalised(self._brought):
            _advise(self._descriptor, first * PAGE_BYTES, (end - first) * PAGE_BYTES, os.POSIX_FADV_DONTNEED)
        self._brought, self._bytes = [], 0


def _advise(descriptor: int, start: int, size: int, advice: int) -> None:
    """Advice that a file system does not take harms nobody."""
    with suppress(OSError):
        os.posix_fadvise(descriptor, start, size, advice)


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Statistics(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted"))


class _Counting:
    """By counts of cachestat: halves are asked about until all or none of each is there."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._range, self._statistics = _Range(), _Statistics()
        self._arguments = ctypes.byref(self._range), ctypes.byref(self._statistics), 0

    def missing(self, descriptor: int, first: int, end: int) -> Ranges:
        """See `Way`."""
        cached = self._cached(descriptor, first, end)
        if cached >= end - first:
            return []
        if not cached:
            return [(first, end)]
        middle = (first + end) // 2
        return self.missing(descriptor, first, middle) + self.missing(descriptor, middle, end)

    def _cached(self, descriptor: int, first: int, end: int) -> int:
        self._range.start, self._range.size = first * PAGE_BYTES, (end - first) * PAGE_BYTES
        if self._call(_CACHESTAT, descriptor, *self._arguments):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(self._statistics.cached)


class _Trying:
    """By reads that do not wait: some pages at once; of those behind the first that is missing, a byte each."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(STRETCH_BYTES))
        self._pages = STRETCH_BYTES // PAGE_BYTES

    def missing(self, descriptor: int, first: int, end: int) -> Ranges:
        """See `Way`."""
        ranges: Ranges = []
        for start in range(first, end, self._pages):
            stop = min(start + self._pages, end)
            there = start + -(-_read(descriptor, start, self._room[: (stop - start) * PAGE_BYTES]) // PAGE_BYTES)
            if there < stop:
                ranges.append((there, there + 1))
                ranges += [(page, page + 1) for page in range(there + 1, stop) if not _read(descriptor, page, self._room[:1])]
        return ranges


def _read(descriptor: int, page: int, buffer: memoryview) -> int:
    """Bytes of the page and those behind it that can be had without waiting."""
    try:
        return os.preadv(descriptor, [buffer], page * PAGE_BYTES, _NOWAIT)
    except BlockingIOError:
        return 0
