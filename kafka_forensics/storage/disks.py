"""Files that are written whole or not at all, and which disk is full where writing fails."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk, or the user's quota, is full."""
UNFINISHED: Final = ".unfinished"
"""Suffix of the name of a file or directory while it is being written."""
_SYNC_THREADS: Final = 8


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


@contextmanager
def publish_directory(unfinished: Path, output: Path) -> Iterator[Path]:
    """Rename the directory `unfinished`, which the block fills, to `output` once all of it is on disk; remove it on failure.

    If it stands in `output`, which may be a mount point, its files move there in the order of their names, and replace none.
    The new names are on disk after `sync_directory` of the directory that holds them. Raises OSError.
    """
    try:
        yield unfinished
        _sync_tree(unfinished)
        if unfinished.parent == output:
            for file in sorted(unfinished.iterdir()):
                os.link(file, output / file.name)  # unlike a rename, never replaces a file
        else:
            unfinished.rename(output)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _sync_tree(root: Path) -> None:
    """Wait until all files and names below `root` are on disk. Raises OSError."""
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        for folder, _, names in os.walk(root, topdown=False):
            list(pool.map(sync_file, [Path(folder, name) for name in names]))
            sync_directory(folder)


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
