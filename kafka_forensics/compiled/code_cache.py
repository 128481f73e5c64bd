"""Where machine code is kept between processes: in a directory that nobody but its user can change, and never in evidence.

What lies there is run, so whoever can write there, or swap a directory on the way there, runs his code as whoever scans. Therefore
the way is walked down from the root, each directory opened relative to the one before and judged before anything below it is
looked at; and what the walk ends with is a descriptor, relative to which files are opened and judged in their turn.

The place is what `keep_in` was told, else XDG_CACHE_HOME where that is absolute, else `.cache` in the home directory that the
password database knows; the environment's HOME, which may be anything, is not asked.
"""

import errno
import os
import pwd
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from typing import Final

Identity = tuple[int, int]
"""(device, inode)."""

_FOLDER: Final = "kafka-forensics"
_PASS_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A directory on the way need not be readable."""
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
"""Rights that an access control list gives to others show in the group's."""
_MOST_LINKS: Final = 40
_KEPT_SECONDS: Final = 30 * 24 * 3600
_KEY_LENGTH: Final = 16

_asked: dict[str, str] = {}
_inputs: dict[Identity, str] = {}
"""Identity of each input → its path, links resolved."""
_around: dict[Identity, str] = {}
"""Identity of each directory above an input → its path, links resolved."""


class NoPlaceError(Exception):
    """Why machine code cannot be kept, in words that go behind a colon."""


def keep_in(place: str | None) -> None:
    """Keep machine code below `place`, an absolute path, from now on in this process; None: where it is usual."""
    assert place is None or os.path.isabs(place)
    _asked.clear()
    if place is not None:
        _asked["place"] = place


def asked_place() -> str | None:
    """What `keep_in` was told."""
    return _asked.get("place")


def keep_out_of(path: str) -> None:
    """Never keep code inside or above `path`, a file or directory that is read as evidence; what is not there is no evidence."""
    real = os.path.realpath(path)
    identity = _identity(real)
    if identity is None:
        return
    _inputs[identity] = real
    while real != "/":
        real = os.path.dirname(real)
        above = _identity(real)
        if above is not None:
            _around[above] = real


class CodeCache:
    """What is kept under one key, which names all that the code was made of. Looking makes no directory; writing does."""

    def __init__(self, key: str) -> None:
        assert len(key) == _KEY_LENGTH
        self._key = key

    def names(self) -> list[str]:
        """Names of what is kept, sorted; none where nothing can be, or is."""
        try:
            with self._opened(make=False) as directory:
                return sorted(name for name in _names_in(directory) if name.endswith(".o"))
        except (NoPlaceError, OSError):
            return []

    def can_keep(self) -> bool:
        """Whether there is a place for it, or one can be made."""
        try:
            with self._opened(make=True):
                return True
        except (NoPlaceError, OSError):
            return False

    def read(self, name: str) -> bytes | None:
        """The content of a file that this user wrote and nobody else can; None if there is no such file."""
        try:
            with self._opened(make=False) as directory:
                descriptor = os.open(name, _READ_FLAGS, dir_fd=directory)
                with open(descriptor, "rb") as file:
                    info = os.fstat(descriptor)
                    return file.read() if stat.S_ISREG(info.st_mode) and is_own(info) else None
        except (NoPlaceError, OSError):
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole or not at all; where it cannot be kept that is said once, and the next process makes it again."""
        try:
            with self._opened(make=True) as directory:
                _write(directory, name, content)
        except NoPlaceError as error:
            _say_not_kept(str(error))
        except OSError as error:
            _say_not_kept((error.strerror or str(error)).lower())

    def path(self) -> str:
        """Where code is or would be kept. Raises NoPlaceError where that is no place for it."""
        with suppress(FileNotFoundError), self._opened(make=False):
            pass
        return os.path.join(*_place(), _FOLDER, self._key)

    @contextmanager
    def _opened(self, *, make: bool) -> Iterator[int]:
        """The directory, held open. Raises NoPlaceError, and FileNotFoundError if it is not there and not to be made."""
        with _way_to(_FOLDER, make=make) as way:
            if make:
                _forget_old(way.last, self._key)
            way.go_to_own(self._key, make=make)
            yield way.last


@contextmanager
def own_directory(name: str) -> Iterator[tuple[int, str]]:
    """The directory `name` where code may be kept, made if it is not there: held open, and its path without links.

    Raises NoPlaceError.
    """
    with _way_to(name, make=True) as way:
        yield way.last, way.path()


def safe_path(directory: str) -> str:
    """The path, without links, of a directory in which only this user and root can change what is this user's, and no input.

    Raises NoPlaceError for any other, and for one that is not there.
    """
    assert os.path.isabs(directory)
    with closing(_Way()) as way:
        way.descend(directory, make=False, must_be=True)
        return way.path()


def is_own(info: os.stat_result) -> bool:
    """Whether a file or directory is this user's, and nobody else may write to it."""
    return info.st_uid == os.geteuid() and not info.st_mode & _OTHERS_WRITE


@contextmanager
def _way_to(folder: str, *, make: bool) -> "Iterator[_Way]":
    """The way to a folder of the place. Raises as `CodeCache._opened`."""
    start, base = _place()
    with closing(_Way()) as way:
        way.descend(start, make=False, must_be=True)
        way.descend(base, make=make, must_be=make)
        way.require_not_above()
        way.go_to_own(folder, make=make)
        yield way


class _Way:
    """Directories from the root down, each held open, which only this user and root can change."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._names: list[str] = []
        self._links = 0

    @property
    def last(self) -> int:
        """Descriptor of the last one."""
        return self._held[-1]

    def close(self) -> None:
        """Let all go."""
        self._back_to(0)

    def descend(self, path: str, *, make: bool, must_be: bool) -> None:
        """Go on by `path`, from the root if it is absolute; links are followed if those laid them who may.

        What is missing is made if it may be. Raises NoPlaceError, and FileNotFoundError where something else is missing, unless
        it must be there.
        """
        try:
            self._descend(path, make=make)
        except FileNotFoundError as error:
            if not must_be:
                raise
            raise self._no_place(error) from error
        except OSError as error:
            raise self._no_place(error) from error

    def go_to_own(self, name: str, *, make: bool) -> None:
        """Go on to a directory that is this user's alone and above no input. Raises as `descend`."""
        self.descend(name, make=make, must_be=make)
        self.require_not_above()
        if not is_own(os.fstat(self.last)):
            raise NoPlaceError(f"{self.path()} is not this user's alone")

    def require_not_above(self) -> None:
        """Raise NoPlaceError if an input lies below the last directory."""
        if _is_still(_around, os.fstat(self.last)):
            raise NoPlaceError(f"an input lies below {self.path()}")

    def _descend(self, path: str, *, make: bool) -> None:
        todo = _parts(path)
        if path.startswith("/"):
            self._back_to(0)
            self._hold("", None)
        while todo:
            name = todo.pop()
            if name == "..":
                self._back_to(max(1, len(self._held) - 1))
                continue
            info = self._found(name, make=make)
            if not stat.S_ISLNK(info.st_mode):
                self._hold(name, self.last)
                continue
            _require_trusted(info, self.path(name))
            self._links += 1
            if self._links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(name, dir_fd=self.last)
            if target.startswith("/"):
                self._back_to(1)
            todo += _parts(target)

    def _found(self, name: str, *, make: bool) -> os.stat_result:
        try:
            return os.stat(name, dir_fd=self.last, follow_symlinks=False)
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self.last)
        return os.stat(name, dir_fd=self.last, follow_symlinks=False)

    def _hold(self, name: str, directory: int | None) -> None:
        self._held.append(os.open(name or "/", _PASS_FLAGS, dir_fd=directory))
        self._names.append(name)
        info = os.fstat(self.last)
        _require_trusted(info, self.path())
        if info.st_mode & _OTHERS_WRITE and not info.st_mode & stat.S_ISVTX:
            raise NoPlaceError(f"others can write to {self.path()}")
        if _is_still(_inputs, info):
            raise NoPlaceError(f"it would lie inside the input {self.path()}")

    def _back_to(self, length: int) -> None:
        while len(self._held) > length:
            os.close(self._held.pop())
            self._names.pop()

    def path(self, *names: str) -> str:
        """Of the last one, or of what is in it, without links."""
        return "/".join([*self._names, *names]) or "/"

    def _no_place(self, error: OSError) -> NoPlaceError:
        return NoPlaceError(f"below {self.path()}: {(error.strerror or str(error)).lower()}")


def _require_trusted(info: os.stat_result, path: str) -> None:
    if info.st_uid not in (0, os.geteuid()):
        raise NoPlaceError(f"{path} belongs to another user")


def _parts(path: str) -> list[str]:
    """What a path names, the last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _place() -> tuple[str, str]:
    """The directory that must be there, and by which path the place is reached from it. Raises NoPlaceError."""
    named = asked_place() or os.environ.get("XDG_CACHE_HOME", "")
    if named.startswith("/"):
        return "/", named
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        home = ""
    if not home.startswith("/"):
        raise NoPlaceError(f"the password database knows no home directory of user {os.geteuid()}")
    return home, ".cache"


def _identity(path: str) -> Identity | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _is_still(known: dict[Identity, str], info: os.stat_result) -> bool:
    """Whether this is one of the known; numbers of what was deleted meanwhile may have been given to another."""
    identity = info.st_dev, info.st_ino
    path = known.get(identity)
    return path is not None and _identity(path) == identity


def _names_in(directory: int) -> list[str]:
    """What lies in a directory that may be held without the right to read it."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def _write(directory: int, name: str, content: bytes) -> None:
    temporary = f"{os.urandom(8).hex()}.part"
    descriptor = os.open(temporary, _WRITE_FLAGS, 0o600, dir_fd=directory)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(temporary, dir_fd=directory)
        raise


def _forget_old(caches: int, key: str) -> None:
    """Before a directory for `key` is made: remove those of other keys that have not been touched for a month."""
    names = _names_in(caches)
    if key in names:
        return
    import shutil  # more than a start should load

    for name in names:
        with suppress(OSError):
            info = os.stat(name, dir_fd=caches, follow_symlinks=False)
            keyed = len(name) == _KEY_LENGTH and not name.strip("0123456789abcdef")
            if keyed and stat.S_ISDIR(info.st_mode) and info.st_mtime < time.time() - _KEPT_SECONDS:
                shutil.rmtree(name, ignore_errors=True, dir_fd=caches)


@cache
def _say_not_kept(reason: str) -> None:
    import logging  # few processes compile anything

    logging.getLogger(__name__).info("kernels are compiled in memory, for this process alone: %s", reason)
