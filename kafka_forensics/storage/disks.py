"""Writing that lasts: names that are put on disk, and which disk is full where that fails."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""There is no room, or none for this user."""
UNFINISHED: Final = ".unfinished"
"""Behind the name of a file or directory while it is being made."""


def why(error: OSError, path: str) -> str:
    """Why nothing could be written to `path`, in the system's words; of a disk that is full, also which one."""
    said = str(error.strerror or error)
    return f"{said}: {disk_of(path)} is full" if error.errno in FULL else said


def disk_of(path: str) -> str:
    """The disk that `path` lies on, or would lie on, by the directory at which it is mounted."""
    place = os.path.realpath(path)
    while not os.path.ismount(place) and (above := os.path.dirname(place)) != place:
        place = above
    return f"the disk mounted at {place}"


@contextmanager
def whole_file(path: Path, opener: Callable[[str, int], int] | None = None, *, replace: bool = True) -> Iterator[TextIO]:
    """A text file that gets its name only once all is written and on disk, and leaves nothing behind if anything failed.

    With `replace` it takes the place of a file of that name; else it raises FileExistsError where there is one. Raises OSError.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "x", encoding="utf-8", newline="\n", opener=opener) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            beside.replace(path)
        else:
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def sync_file(path: "os.PathLike[str]") -> None:
    """Wait until a file, which is none's link, is on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync(folder: str) -> None:
    """Put the names in a directory on disk, where its file system knows how."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
