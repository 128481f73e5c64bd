"""Files that are written whole or not at all, and which disk is full where writing fails."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk, or the user's quota, is full."""
UNFINISHED: Final = ".unfinished"
"""Suffix of the name of a file or directory while it is being written."""


def why(error: OSError, path: str) -> str:
    """Why nothing could be written to `path`, in the system's words; if a disk is full, also which one."""
    reason = str(error.strerror or error)
    return f"{reason}: {mounted_disk(path)} is full" if error.errno in FULL else reason


def mounted_disk(path: str) -> str:
    """The disk of `path`, which need not exist, by its mount point."""
    place = os.path.realpath(path)
    while not os.path.ismount(place) and (parent := os.path.dirname(place)) != place:
        place = parent
    return f"the disk mounted at {place}"


@contextmanager
def atomic_text_file(path: Path, opener: Callable[[str, int], int] | None = None, *, replace: bool = True) -> Iterator[TextIO]:
    """Open a text file that appears at `path` only after all of it is on disk; after a failure nothing is left.

    With `replace` it replaces a file of that name; otherwise FileExistsError is raised if there is one. Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "x", encoding="utf-8", newline="\n", opener=opener) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_file(path: "os.PathLike[str]") -> None:
    """Wait until a file, which is not a symbolic link, is on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(folder: str) -> None:
    """Wait until the names in a directory are on disk, if its file system supports that. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
