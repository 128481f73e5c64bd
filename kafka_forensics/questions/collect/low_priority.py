"""Behind all others: how logs are read beside a running broker, which needs the processor, the disk and the page cache."""

import ctypes
import logging
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kafka_forensics.storage.local import LocalSource

if TYPE_CHECKING:
    from kafka_forensics.storage.page_cache import PageCache
    from kafka_forensics.storage.source import ByteSource

NICE: Final = 10
"""Added to the nice value: beside a broker that leaves no core idle there is still about a tenth of one."""
IDLE: Final = 3 << 13
"""IOPRIO_CLASS_IDLE: the disk's time that nobody else wants. Schedulers BFQ and mq-deadline heed it."""
_THIS_THREAD: Final = 1, 0
"""IOPRIO_WHO_PROCESS, and 0 for whoever asks."""
_CALLS: Final = {"x86_64": (251, 252), "aarch64": (30, 31)}
"""Machine → numbers of ioprio_set and ioprio_get."""


@contextmanager
def behind_all_others() -> Iterator[None]:
    """Give this thread the disk's idle time and few of the processor's until it is left, where the system lets us; the log says.

    A nice value goes down again only for those who may lower it; any other process keeps it to its end.
    """
    disk = _disk_priority()
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    idle = disk is not None and _set_disk_priority(IDLE)
    os.nice(NICE)
    words = "the disk's idle time" if idle else "the disk's time as any other, for no idle priority can be set here"
    logging.getLogger(__name__).info("priority: nice %d, %s", os.getpriority(os.PRIO_PROCESS, 0), words)
    try:
        yield
    finally:
        if idle and disk is not None:
            _set_disk_priority(disk)
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)


def leave_page_cache(sources: "Iterable[ByteSource]", cache: "PageCache") -> None:
    """From now on leave the page cache as it is when files of these are read, in this thread alone."""
    for source in sources:
        if isinstance(source, LocalSource):
            source.page_cache = cache


def _disk_priority() -> int | None:
    """Class and level, as ioprio_get tells them; None where there is no such call, or it fails."""
    numbers = _numbers()
    if numbers is None:
        return None
    priority: int = ctypes.CDLL(None).syscall(numbers[1], *_THIS_THREAD)
    return None if priority < 0 else priority


def _set_disk_priority(priority: int) -> bool:
    """Whether it could be set."""
    numbers = _numbers()
    return numbers is not None and not ctypes.CDLL(None).syscall(numbers[0], *_THIS_THREAD, priority)


def _numbers() -> tuple[int, int] | None:
    return _CALLS.get(platform.machine()) if platform.system() == "Linux" else None
