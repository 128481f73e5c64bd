"""Copies bytes of evidence into a file of ours, by copy_file_range(2) where possible; others may read the copied part meanwhile."""

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
"""Bytes per read,"""
_AT_ONCE: Final = 32 << 20
"""and per call of copy_file_range."""

Appended = Callable[[int], None]
"""Called with the number of bytes that were appended."""


def copy_range(file: "ByteFile", path: str, start: int, end: int, to: int, appended: Appended = lambda _: None) -> None:
    """Append bytes `[start, end)` of `file`, whose path is `path`, to the open descriptor `to`, calling `appended` after each step.

    Raises SourceError if they cannot be read or no longer exist, OSError if they cannot be written.
    """
    position = _copy_in_kernel(descriptor_of(file), start, end, to, appended)
    while position < end:
        data = file.read_at(position, min(end - position, _BLOCK_BYTES))
        if not data:
            raise SourceError(path, f"it now ends at byte {position}, but had {end} bytes when it was scanned")
        write_all(to, data)
        appended(len(data))
        position += len(data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _copy_in_kernel(source: int | None, start: int, end: int, to: int, appended: Appended) -> int:
    """Copy with copy_file_range as far as it works, and return the position reached; `copy_range` meets and reports any error."""
    position = start
    while source is not None and _HAS_COPY_FILE_RANGE and position < end:
        try:
            count = os.copy_file_range(source, to, min(end - position, _AT_ONCE), offset_src=position)
        except OSError:
            break
        if not count:
            break
        appended(count)
        position += count
    return position


class WriteProgress:
    """Progress of a file that one thread writes, in a `with` block, while other threads read it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._written_bytes = -1
        """-1 until the file exists."""
        self._is_finished = False
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._is_finished, self._error = True, error
            self._changed.notify_all()

    def begin(self) -> None:
        """Record that the file exists and is empty."""
        self.grow(1)

    def grow(self, count: int) -> None:
        """Record that `count` bytes were appended."""
        with self._changed:
            self._written_bytes += count
            self._changed.notify_all()

    def wait_for(self, position: int) -> None:
        """Wait until the file has `position` bytes or is finished. Raises the error that ended the writing."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_finished or self._written_bytes >= position)
            if self._error is not None:
                raise self._error


class FileBeingWritten(LocalFile):
    """A file of ours that will have `size_in_bytes`: reads wait for their bytes, and raise the error that ended the writing."""

    def __init__(self, descriptor: int, path: str, size_in_bytes: int, growth: WriteProgress) -> None:
        super().__init__(descriptor, path, size_in_bytes)
        self._growth = growth

    def _before_read(self, _start: int, end: int) -> None:
        """Wait for the bytes."""
        self._growth.wait_for(min(end, self.size_in_bytes))

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the ranges that are not holes, after all bytes were written."""
        self._growth.wait_for(self.size_in_bytes)
        return super().data_ranges()


def open_while_written(path: Path, size_in_bytes: int, growth: WriteProgress) -> FileBeingWritten:
    """Open the file as soon as it exists. Raises OSError, and the error that ended the writing."""
    growth.wait_for(0)
    return FileBeingWritten(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), path.name, size_in_bytes, growth)
