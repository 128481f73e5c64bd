"""Leaves the page cache as it was: drops the pages that reading brings in, and keeps those that were already cached.

Beside a running broker the cache holds what consumers are about to read; a pass over all logs would evict that. Linux reports the
cached pages by cachestat(2), since 6.5 and only for files that the user owns or may write; otherwise preadv2's RWF_NOWAIT reads
what is cached and nothing else. Since 5.10 such a read also starts fetching the rest, so a page that arrives before it is checked
counts as cached, and stays.
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
MAX_ADDED_BYTES: Final = 8 << 20
"""Once a file has brought in more than this, its pages are dropped before it is closed."""
STRETCH_BYTES: Final = 128 << 10
"""Checked by one RWF_NOWAIT read."""
_CACHESTAT: Final = 451
"""The number of the system call, on every architecture."""
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_CAN_DROP: Final = hasattr(os, "posix_fadvise") and sys.maxsize > 1 << 32

Ranges = list[tuple[int, int]]
FindMissing = Callable[[int, int, int], Ranges]
"""(descriptor, first page, end page) → the ranges of pages that are not in the cache. Raises OSError."""


class PageCache:
    """Finds out which pages of files are cached; used for all files of a source, in one thread."""

    def __init__(self) -> None:
        self._methods: list[tuple[str, FindMissing]] = []
        """In order of preference; one that fails is removed."""
        if _CAN_DROP and sys.platform == "linux":
            self._methods.append(("cachestat", _Cachestat().missing))
        if _CAN_DROP and _NOWAIT:
            self._methods.append(("RWF_NOWAIT", _NowaitReads().missing))
        self._logged_method: str | None = None
        if not self._methods:
            _log("the page cache: this system does not report its content, so nothing is dropped from it")

    def pages_added_by(self, descriptor: int) -> "AddedPages":
        """The pages that reading a newly opened file adds."""
        if self._methods:
            _advise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead: its pages would not be recorded
        return AddedPages(self, descriptor)

    def missing(self, descriptor: int, first: int, end: int) -> Ranges:
        """Ranges of pages in `[first, end)` that are not in the cache; none if the system cannot tell."""
        while self._methods:
            name, find_missing = self._methods[0]
            try:
                ranges = find_missing(descriptor, first, end)
            except OSError as error:
                if error.errno == errno.EIO:
                    return []  # the read itself reports it
                del self._methods[0]
                if not self._methods:
                    _log(f"the page cache: {name} fails here ({os.strerror(error.errno or 0)}), so nothing is dropped from it")
                continue
            if self._logged_method != name:
                self._logged_method = name
                _log(f"the page cache: {name} reports its content; pages that were not in it before are dropped again")
            return ranges
        return []


def _log(message: str) -> None:
    logging.getLogger(__name__).info(message)


class AddedPages:
    """The pages that reading one file adds to the cache: call `will_read` before each read, and `drop` at the end."""

    def __init__(self, cache: PageCache, descriptor: int) -> None:
        self._cache = cache
        self._descriptor = descriptor
        self._added: Ranges = []
        self._bytes = 0

    def will_read(self, start: int, end: int) -> None:
        """Record the pages that reading bytes `[start, end)` adds; `end` is not after the end of the file."""
        if self._bytes >= MAX_ADDED_BYTES:
            self.drop()
        if start < end:
            missing = self._cache.missing(self._descriptor, start // PAGE_BYTES, -(-end // PAGE_BYTES))
            self._added += missing
            self._bytes += sum(after - first for first, after in missing) * PAGE_BYTES

    def drop(self) -> None:
        """Drop all recorded pages from the cache."""
        for first, end in normalised(self._added):
            _advise(self._descriptor, first * PAGE_BYTES, (end - first) * PAGE_BYTES, os.POSIX_FADV_DONTNEED)
        self._added, self._bytes = [], 0


def _advise(descriptor: int, start: int, size: int, advice: int) -> None:
    """Call posix_fadvise; a file system that does not support the advice does no harm."""
    with suppress(OSError):
        os.posix_fadvise(descriptor, start, size, advice)


class _CachestatRange(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _CachestatResult(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted"))


class _Cachestat:
    """Finds missing pages by counts of cachestat(2): a range is halved until all or none of each part is cached."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._range, self._result = _CachestatRange(), _CachestatResult()
        self._arguments = ctypes.byref(self._range), ctypes.byref(self._result), 0

    def missing(self, descriptor: int, first: int, end: int) -> Ranges:
        """See `FindMissing`."""
        self._range.start, self._range.size = first * PAGE_BYTES, (end - first) * PAGE_BYTES
        if self._call(_CACHESTAT, descriptor, *self._arguments):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        cached = int(self._result.cached)
        if cached >= end - first:
            return []
        if not cached:
            return [(first, end)]
        middle = (first + end) // 2
        return self.missing(descriptor, first, middle) + self.missing(descriptor, middle, end)


class _NowaitReads:
    """Finds missing pages by reads that do not wait: a stretch at once, then one byte of each page after the first missing one."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(STRETCH_BYTES))

    def missing(self, descriptor: int, first: int, end: int) -> Ranges:
        """See `FindMissing`."""
        ranges: Ranges = []
        pages = STRETCH_BYTES // PAGE_BYTES
        for start in range(first, end, pages):
            stop = min(start + pages, end)
            size = (stop - start) * PAGE_BYTES
            cached_end = start + -(-_read_cached(descriptor, start, self._buffer[:size]) // PAGE_BYTES)
            if cached_end < stop:
                pages_after = range(cached_end + 1, stop)
                missing = [cached_end, *(page for page in pages_after if not _read_cached(descriptor, page, self._buffer[:1]))]
                ranges += [(page, page + 1) for page in missing]
        return ranges


def _read_cached(descriptor: int, page: int, buffer: memoryview) -> int:
    """The number of bytes from the start of the page that can be read without waiting."""
    try:
        return os.preadv(descriptor, [buffer], page * PAGE_BYTES, _NOWAIT)
    except BlockingIOError:
        return 0
