"""The directory in which compiled code is kept between processes: only its user can change it, and it is never part of an input.

Code in it is run, so whoever can write there, or can replace a directory above it, runs code as the user who scans. So every
directory from the root down must belong to this user or to root, and others may write to it only if its sticky bit protects this
user's files. Then nobody else can change what the path leads to.

The place is the argument of `set_cache_directory`, else XDG_CACHE_HOME if that is absolute, else `.cache` in the home directory of
the password database; the environment's HOME may be anything and is ignored.
"""

import os
import pwd
import stat
import time
from contextlib import suppress
from functools import cache
from pathlib import PurePath
from typing import Final

Identity = tuple[int, int]
"""(device, inode)."""

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
"""Rights granted to others by an access control list show up as the group's."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_EXPIRES_AFTER_SECONDS: Final = 30 * 24 * 3600

_requested: list[str] = []
"""The place set by `set_cache_directory`, if any."""
_inputs: dict[Identity, str] = {}
"""Identity of each input → its path, links resolved."""
_above_inputs: dict[Identity, str] = {}
"""Identity of each directory above an input → its path, links resolved."""


class NoCacheDirectoryError(Exception):
    """Why code cannot be kept, as words that follow a colon."""


def set_cache_directory(place: str | None) -> None:
    """Keep this process's code below `place`, an absolute path; None: in the default place."""
    assert place is None or os.path.isabs(place)
    _requested[:] = [] if place is None else [place]


def exclude_input(path: str) -> None:
    """Never keep code inside or above `path`, a file or directory that is read as evidence; a missing path is ignored."""
    real = os.path.realpath(path)
    identity = _identity(real)
    if identity is None:
        return
    _inputs[identity] = real
    for directory in map(str, PurePath(real).parents):
        if (above := _identity(directory)) is not None:
            _above_inputs[above] = directory


def private_cache_directory(*names: str, make: bool) -> str:
    """The path, without links, of directory `names` in the place; with `make` missing directories are created with mode 0700.

    Raises NoCacheDirectoryError.
    """
    path = _safe_path(_place(), make=make)
    for name in names:
        path = _safe_path(os.path.join(path, name), make=make)
        with suppress(FileNotFoundError):
            info = os.lstat(path)
            if info.st_uid != os.geteuid() or info.st_mode & _OTHERS:
                raise NoCacheDirectoryError(f"{path} is not accessible only by this user (mode 0700)")
    return path


def _safe_path(path: str, *, make: bool = False) -> str:
    """`path` without links. Raises NoCacheDirectoryError if others can change what it leads to, or it is inside or above an input.

    Missing directories are created if `make`, and are not checked otherwise.
    """
    assert os.path.isabs(path)
    try:
        for above in _from_root(path):
            with suppress(FileNotFoundError):
                _require_trusted_owner(above, os.lstat(above))
        real = os.path.realpath(path)
        for directory in _from_root(real):
            if make and not os.path.lexists(directory):
                with suppress(FileExistsError):
                    os.mkdir(directory, 0o700)
            with suppress(FileNotFoundError):
                _require_safe(directory, os.lstat(directory))
    except OSError as error:
        raise NoCacheDirectoryError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from error
    with suppress(OSError):
        if _is_in(_above_inputs, os.lstat(real)):
            raise NoCacheDirectoryError(f"an input is below {real}")
    return real


@cache
def mark_used(directory: str) -> None:
    """Mark a directory as used now, and remove directories with similar names beside it that were not used for a month."""
    import shutil  # few processes compile anything

    with suppress(OSError):
        os.utime(directory)
        for entry in os.scandir(os.path.dirname(directory)):
            is_similar = len(entry.name) == len(os.path.basename(directory)) and not entry.name.strip("0123456789abcdef")
            if is_similar and entry.stat(follow_symlinks=False).st_mtime < time.time() - _EXPIRES_AFTER_SECONDS:
                shutil.rmtree(entry.path, ignore_errors=True)


def _place() -> str:
    place = _requested[0] if _requested else os.environ.get("XDG_CACHE_HOME", "")
    if place.startswith("/"):
        return place
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        home = ""
    if not home.startswith("/"):
        raise NoCacheDirectoryError(f"the password database knows no home directory of user {os.geteuid()}")
    if not os.path.isdir(home):
        raise NoCacheDirectoryError(f"{home}: no such directory")
    return os.path.join(home, ".cache")


def _from_root(path: str) -> list[str]:
    pure = PurePath(path)
    return [*map(str, reversed(pure.parents)), str(pure)]


def _require_safe(directory: str, info: os.stat_result) -> None:
    if not stat.S_ISDIR(info.st_mode):
        raise NoCacheDirectoryError(f"{directory} is not a directory")
    _require_trusted_owner(directory, info)
    if info.st_mode & _OTHERS_WRITE and not info.st_mode & stat.S_ISVTX:
        raise NoCacheDirectoryError(f"others can write to {directory}")
    if _is_in(_inputs, info):
        raise NoCacheDirectoryError(f"it would be inside the input {directory}")


def _require_trusted_owner(path: str, info: os.stat_result) -> None:
    if info.st_uid not in (0, os.geteuid()):
        raise NoCacheDirectoryError(f"{path} belongs to another user")


def _identity(path: str) -> Identity | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _is_in(directories: dict[Identity, str], info: os.stat_result) -> bool:
    """Whether `info` is of one of these directories; the inode of a deleted one may have been reused."""
    identity = info.st_dev, info.st_ino
    path = directories.get(identity)
    return path is not None and _identity(path) == identity
