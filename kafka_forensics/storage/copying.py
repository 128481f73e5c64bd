"""Bytes of evidence copied into a file of ours, by the system where it can: no byte then passes through this process. Others may
read what is copied already.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.local import LocalFile, descriptor_of

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile

_HAS_COPY_FILE_RANGE: Final = hasattr(os, "copy_file_range")
_BLOCK_BYTES: Final = 4 << 20
_AT_ONCE: Final = 32 << 20

Appended = Callable[[int], None]
"""Called with the number of bytes that were appended."""


def copy_range(file: "ByteFile", path: str, start: int, end: int, to: int, appended: Appended = lambda _: None) -> None:
    """Append bytes `[start, end)` of `file`, whose path is `path`, to the open descriptor `to`; `appended` hears of each piece.

    Raises SourceError where they cannot be read, or are not there any more; OSError where they cannot be written.
    """
    position = _by_the_system(descriptor_of(file), start, end, to, appended)
    while position < end:
        data = file.read_at(position, min(end - position, _BLOCK_BYTES))
        if not data:
            raise SourceError(path, f"it ends at byte {position} now, and had {end} when it was scanned")
        write_all(to, data)
        appended(len(data))
        position += len(data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _by_the_system(source: int | None, start: int, end: int, to: int, appended: Appended) -> int:
    """How far the system has copied; whatever keeps it from going on shows when the rest is read and written."""
    if source is None or not _HAS_COPY_FILE_RANGE:
        return start
    position = start
    while position < end:
        try:
            count = os.copy_file_range(source, to, min(end - position, _AT_ONCE), offset_src=position)
        except OSError:
            break
        if not count:
            break
        appended(count)
        position += count
    return position


class Growth:
    """How far a file has come that one thread fills, in a `with` block, and others read meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reached = -1
        """-1 until there is a file."""
        self._is_over = False
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._is_over, self._error = True, error
            self._changed.notify_all()

    def begin(self) -> None:
        """The file is there, and empty."""
        self.grow(1)

    def grow(self, count: int) -> None:
        """So many bytes were appended."""
        with self._changed:
            self._reached += count
            self._changed.notify_all()

    def wait_for(self, position: int) -> None:
        """Return once the file has so many bytes, or will have no more. Raises the error that ended it."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._reached >= position)
            if self._error is not None:
                raise self._error


class GrowingFile(LocalFile):
    """A file of ours that will have a known size: reads wait until the bytes are there, and raise what ended its growth."""

    def __init__(self, descriptor: int, path: str, size_in_bytes: int, growth: Growth) -> None:
        super().__init__(descriptor, path, size_in_bytes)
        self._growth = growth

    def read_at(self, position: int, size: int) -> bytes:
        """See `LocalFile`."""
        self._growth.wait_for(min(position + size, self.size_in_bytes))
        return super().read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """See `LocalFile`."""
        self._growth.wait_for(min(position + buffer.nbytes, self.size_in_bytes))
        return super().read_into(position, buffer)

    def data_ranges(self) -> list[tuple[int, int]]:
        """See `LocalFile`."""
        self._growth.wait_for(self.size_in_bytes)
        return super().data_ranges()


def open_growing(path: Path, size_in_bytes: int, growth: Growth) -> GrowingFile:
    """The file, once it is there. Raises OSError, and what ended its growth."""
    growth.wait_for(0)
    return GrowingFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), path.name, size_in_bytes, growth)
