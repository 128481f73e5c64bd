"""Reads logs at low priority next to a running broker, which needs the processor, the disk and the page cache."""

import ctypes
import logging
import os
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteFile

if TYPE_CHECKING:
    from kafka_forensics.storage.page_cache import PageCache
    from kafka_forensics.storage.source import ByteSource

NICE: Final = 10
"""Added to the nice value: next to a broker that uses every core, about a tenth of a core remains."""
IDLE: Final = 3 << 13
"""IOPRIO_CLASS_IDLE: time of the disk that no one else wants, with the schedulers BFQ and mq-deadline."""
_THIS_THREAD: Final = 1, 0
"""IOPRIO_WHO_PROCESS, and 0 for the calling thread."""
_SYSTEM_CALLS: Final = {"x86_64": (251, 252), "aarch64": (30, 31)}
"""Machine → numbers of ioprio_set and ioprio_get."""
_MAX_CREDIT_SECONDS: Final = 1.0


@contextmanager
def at_low_priority() -> Iterator[None]:
    """Give this thread idle disk time and little processor time in the `with` block, as far as the system allows; logs which.

    Only privileged processes may lower the nice value again; any other process keeps it until it ends.
    """
    disk = _disk_priority()
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    is_idle = disk is not None and _set_disk_priority(IDLE)
    os.nice(NICE)
    words = "the disk's idle time" if is_idle else "normal disk priority, because this system has no idle priority"
    logging.getLogger(__name__).info("priority: nice %d, %s", os.getpriority(os.PRIO_PROCESS, 0), words)
    try:
        yield
    finally:
        if is_idle and disk is not None:
            _set_disk_priority(disk)
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)


def bypass_page_cache(sources: "Iterable[ByteSource]", cache: "PageCache") -> None:
    """From now on leave the page cache unchanged when this thread reads files of local sources."""
    for source in sources:
        if isinstance(source, LocalSource):
            source.page_cache = cache


def _disk_priority() -> int | None:
    """Class and level by ioprio_get; None if there is no such call, or it fails."""
    calls = _system_calls()
    priority: int = -1 if calls is None else ctypes.CDLL(None).syscall(calls[1], *_THIS_THREAD)
    return None if priority < 0 else priority


def _set_disk_priority(priority: int) -> bool:
    """Whether it could be set."""
    calls = _system_calls()
    return calls is not None and not ctypes.CDLL(None).syscall(calls[0], *_THIS_THREAD, priority)


def _system_calls() -> tuple[int, int] | None:
    return _SYSTEM_CALLS.get(platform.machine()) if platform.system() == "Linux" else None


class RateLimiter:
    """Limits reads of all its files together to `max_rate` bytes per second; None: no limit.

    After a pause, reads are faster for no more than what one second allows.
    """

    def __init__(self, max_rate: int | None) -> None:
        self._max_rate = max_rate
        self._due = time.monotonic()

    def limited(self, file: "ByteFile") -> "ByteFile":
        """The file, read at no more than this rate."""
        return file if self._max_rate is None else _LimitedFile(file, self)

    def wait(self, size_in_bytes: int) -> None:
        """Wait after a read of so many bytes until the rate is no longer exceeded."""
        assert self._max_rate is not None
        now = time.monotonic()
        self._due = max(self._due, now - _MAX_CREDIT_SECONDS) + size_in_bytes / self._max_rate
        if self._due > now:
            time.sleep(self._due - now)


class _LimitedFile(ByteFile):
    """A file that waits after every read; its methods are those of `ByteFile`."""

    def __init__(self, file: "ByteFile", limiter: RateLimiter) -> None:
        self.size_in_bytes = file.size_in_bytes
        self._file, self._limiter = file, limiter

    def read_at(self, position: int, size: int) -> bytes:
        data = self._file.read_at(position, size)
        self._limiter.wait(len(data))
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self._file.read_into(position, buffer)
        self._limiter.wait(count)
        return count

    def data_ranges(self) -> list[tuple[int, int]]:
        return self._file.data_ranges()

    def close(self) -> None:
        self._file.close()
