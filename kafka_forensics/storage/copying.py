"""Bytes of evidence copied into a file of ours, by the system where it can: no byte then passes through this process."""

import os
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.local import descriptor_of

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile

_HAS_COPY_FILE_RANGE: Final = hasattr(os, "copy_file_range")
_BLOCK_BYTES: Final = 4 << 20
_AT_ONCE: Final = 256 << 20


def copy_range(file: "ByteFile", path: str, start: int, end: int, to: int) -> None:
    """Append bytes `[start, end)` of `file`, whose path is `path`, to the open descriptor `to`.

    Raises SourceError where they cannot be read, or are not there any more; OSError where they cannot be written.
    """
    position = _by_the_system(descriptor_of(file), start, end, to)
    while position < end:
        data = file.read_at(position, min(end - position, _BLOCK_BYTES))
        if not data:
            raise SourceError(path, f"it ends at byte {position} now, and had {end} when it was scanned")
        write_all(to, data)
        position += len(data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _by_the_system(source: int | None, start: int, end: int, to: int) -> int:
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
        position += count
    return position
