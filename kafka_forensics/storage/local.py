"""Directories and single files of this machine, read without changing anything, access times included where the system permits.

Files are opened read-only and without blocking; links are followed by this module, only to what was given. Files are read with
`pread`, never mapped or locked: a file that is truncated while mapped would kill the process; while read it merely ends early.
"""

import errno
import os
import stat
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.source import (
    NOT_REGULAR,
    ByteFile,
    ByteSource,
    Entry,
    EntryKind,
    Identity,
    path_parts,
    require_below_root,
)

if TYPE_CHECKING:
    from kafka_forensics.storage.page_cache import PageCache

# Symbolic links are followed by this module, name by name from an open directory (openat), never by the system.
#
# A link is followed if its target is a path that was given, or lies below one. Directories are compared by device and inode while
# they are open, never by their path. Outside of the given paths, directories are passed through without being read, and only on
# file systems on which a given path lies: no link can trigger an automount.


MAX_LINKS: Final = 8
"""Links followed to reach one file."""
MAX_DEPTH: Final = 128
"""Directories open at once to reach one file through links."""
OUTSIDE: Final = "it leads outside the given paths"
CIRCLE: Final = "it leads in a circle"
TOO_MANY: Final = f"more than {MAX_LINKS} links follow each other"
TOO_DEEP: Final = f"it leads more than {MAX_DEPTH} directories deep"
DANGLING: Final = "its target does not exist"

_PASS_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For a directory that is only passed through; with O_PATH it need not be readable."""
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIST_FLAGS: Final = _FILE_FLAGS | os.O_DIRECTORY
_NO_ACCESS_TIME: Final[int] = getattr(os, "O_NOATIME", 0)
_ONE_READ: Final = 1 << 30
"""Most bytes per system call."""
_HAS_PREADV: Final = hasattr(os, "preadv")
_HAS_SEEK_DATA: Final = hasattr(os, "SEEK_DATA")
_NO_HOLES_KNOWN: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS})


@dataclass
class LinkError(Exception):
    """A link that is not followed, and why; `info` is the link's status if it is the last part of the path, else None."""

    reason: str
    info: os.stat_result | None


class Roots:
    """The paths that were given, by device and inode."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = {os.path.realpath(path) for path in paths} | {os.path.abspath(path) for path in paths}
        self._by_identity: dict[Identity, str] = {}
        for path in map(os.path.realpath, paths):
            if (info := _stat(path)) is not None:
                self._by_identity.setdefault(_identity(info), path)
        self._devices: frozenset[int] | None = None

    def path_of(self, info: os.stat_result) -> str | None:
        """The given path of the file or directory with this status, None if it was not given."""
        return self._by_identity.get(_identity(info))

    def has_device(self, device: int) -> bool:
        """Whether a given path, or a directory above one, is on this file system."""
        if self._devices is None:
            above: set[str] = set()
            for path in self._paths:
                while path not in above:
                    above.add(path)
                    path = os.path.dirname(path)
            self._devices = frozenset(info.st_dev for path in above if (info := _stat(path)) is not None)
        return device in self._devices


class _Location(Struct):
    """Entry `name` of an open directory, and its status: a context manager, which closes the directories in `to_close`."""

    directory: int | None
    """None if `name` is an absolute path."""
    name: str
    info: os.stat_result
    root: str
    """The given path that it is or lies below."""
    to_close: Sequence[int] = ()
    expected: Identity | None = None
    """What must be opened, if nothing else in that directory was given."""
    target: str | None = None
    """Where links have led; None if there was no link."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for descriptor in self.to_close:
            os.close(descriptor)

    def opened(self, flags: int) -> tuple[int, os.stat_result]:
        """A descriptor of the entry, and its status. Raises OSError, also if it is not the `expected` one."""
        descriptor = _open(self.name, flags, self.directory)
        info = os.fstat(descriptor)
        if self.expected is not None and self.expected != _identity(info):
            os.close(descriptor)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return descriptor, info


class _Walk:
    """A walk from `root` to a path below it, with all directories kept open until `finish` gives what is at the path.

    Each directory is opened relative to the one before: no part can become a link in between.
    """

    def __init__(self, root: str, roots: Roots) -> None:
        self._root = root
        self._roots = roots
        self._directories: list[tuple[int, str]] = []
        """(descriptor, name) from the start of the walk."""
        self._start = root
        """Path of the first of them: the root, or `/` after a link with an absolute target."""
        self._links: list[tuple[Identity, str]] = []
        """(directory, name) of the links followed."""
        self._last_link: os.stat_result | None = None
        """Status of the link that the path itself is."""

    def finish(self, path: str) -> _Location:
        """What is at `path`, after all links. Raises LinkError, and OSError for errors that do not concern links."""
        try:
            name, info = self._walk(path)
            root, expected = self._given_root(info)
        except OSError as error:
            self._close()
            if not self._links:
                raise
            text = error.strerror or str(error)
            reason = DANGLING if error.errno in {errno.ENOENT, errno.ENOTDIR} else text[:1].lower() + text[1:]
            raise LinkError(reason, self._last_link) from error
        except LinkError:
            self._close()
            raise
        descriptors, names = zip(*self._directories, strict=True)
        target = os.path.join(self._start, *names[1:], *([] if name == "." else [name])) if self._links else None
        return _Location(descriptors[-1], name, info, root, descriptors, expected, target)

    def _walk(self, path: str) -> tuple[str, os.stat_result]:
        """The last name, which the last directory opened contains, and its status."""
        self._restart(self._root)
        parts = deque(path.split("/"))
        left = len(parts)
        """Parts of `path` itself that are left; those of link targets are not counted."""
        while parts:
            left = min(left, len(parts))
            part = parts.popleft()
            if part == "..":
                self._go_up(parts)
                continue
            info = os.stat(part, dir_fd=self._directories[-1][0], follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                if left == 1 and self._last_link is None and not parts:
                    self._last_link = info
                self._follow(part, parts)
            elif parts:
                self._enter(part, info)
            else:
                return part, info
        return ".", os.fstat(self._directories[-1][0])

    def _close(self) -> None:
        while self._directories:
            os.close(self._directories.pop()[0])

    def _restart(self, path: str) -> None:
        self._close()
        self._directories.append((os.open(path, _PASS_FLAGS), ""))
        self._start = path

    def _enter(self, name: str, info: os.stat_result) -> None:
        if self._links:
            if not self._roots.has_device(info.st_dev) and self._given_above() is None:
                raise LinkError(OUTSIDE, self._last_link)
            if len(self._directories) >= MAX_DEPTH:
                raise LinkError(TOO_DEEP, self._last_link)
        if not stat.S_ISDIR(info.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._directories.append((os.open(name, _PASS_FLAGS, dir_fd=self._directories[-1][0]), name))

    def _go_up(self, parts: "deque[str]") -> None:
        """Go back to the directory before; from the first one, to its parent by walking there from `/`."""
        if len(self._directories) > 1:
            os.close(self._directories.pop()[0])
        elif self._start != "/":
            parts.extendleft(reversed(path_parts(os.path.dirname(self._start))))
            self._restart("/")

    def _follow(self, name: str, parts: "deque[str]") -> None:
        """Put the target of link `name` before the remaining parts."""
        directory = self._directories[-1][0]
        link = _identity(os.fstat(directory)), name
        is_circle = link in self._links
        self._links.append(link)
        if len(self._links) > MAX_LINKS:
            raise LinkError(CIRCLE if is_circle else TOO_MANY, self._last_link)
        text = os.readlink(name, dir_fd=directory)
        parts.extendleft(reversed(path_parts(text)))
        if text.startswith("/"):
            self._restart("/")

    def _given_above(self) -> str | None:
        """The given path among the open directories, None if there is none."""
        paths = (self._roots.path_of(os.fstat(descriptor)) for descriptor, _ in self._directories)
        return next((path for path in paths if path is not None), None)

    def _given_root(self, info: os.stat_result) -> tuple[str, Identity | None]:
        """The given path that the end of the walk, of status `info`, is or lies below; its identity if only it was given.

        Raises LinkError if there is none.
        """
        if not self._links:
            return self._root, None
        if (above := self._given_above()) is not None:
            return above, None
        if self._start == self._root:
            return self._root, None
        if (path := self._roots.path_of(info)) is None:
            raise LinkError(OUTSIDE, self._last_link)
        return path, _identity(info)


class LocalSource(ByteSource):
    """A directory, or a single file, whose path in the source is "".

    The path itself may be a symbolic link and is resolved once, here; links below it are followed within it, and to the other paths
    that were given (`set_roots`). Holds no descriptor between calls (except in `holding`), so it may be shared by threads, forked
    and pickled. Errors and entries carry the path below the root.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.roots_used: set[str] = set()
        """Other given paths to which links have led."""
        self.page_cache: PageCache | None = None
        """If set, reading leaves the page cache as it was; only for one thread."""
        self._root = os.path.realpath(path)
        self._roots = Roots([path])

    def set_roots(self, roots: Roots) -> None:
        """Follow links to all of these paths; the source's own is one of them."""
        self._roots = roots

    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name; none for a root that is a file. Raises SourceError."""
        entries, links = [], []
        prefix = f"{path}/" if path else ""
        with _SourceErrors(path), self._find(path) as location:
            if not path and not stat.S_ISDIR(location.info.st_mode):
                return []
            descriptor, _ = location.opened(_LIST_FLAGS)
            try:
                with os.scandir(descriptor) as scanned:
                    for item in scanned:
                        try:
                            info = item.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # a running broker deletes files
                        if stat.S_ISLNK(info.st_mode):
                            links.append(prefix + item.name)
                        else:
                            target = None if location.target is None else os.path.join(location.target, item.name)
                            entries.append(_entry(prefix + item.name, info, target))
            finally:
                os.close(descriptor)
        entries += [entry for link in links if (entry := self.stat_or_none(link)) is not None]
        return sorted(entries, key=attrgetter("path"))

    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root); of a link that is followed, its target's. Raises SourceError if there is none."""
        with _SourceErrors(path):
            try:
                with self._find(path) as location:
                    return _entry(path, location.info, location.target)
            except LinkError as error:
                if error.info is None:
                    raise
                return _entry(path, error.info)._replace(refused=_not_followed(error.reason))

    def open(self, path: str) -> ByteFile:
        """Open regular file `path` ("" is a root that is a file). Raises SourceError for anything else."""
        if path in self.refused:
            raise SourceError(path, self.refused[path])
        with _SourceErrors(path), self._find(path) as location:
            _require_regular(location.info)
            descriptor, info = location.opened(_FILE_FLAGS)
            cache, size = self.page_cache, info.st_size
            file = LocalFile(descriptor, path, size) if cache is None else _UncachedFile(descriptor, path, size, cache)
            _require_regular(info)
            return file

    def _find(self, path: str) -> _Location:
        """What is at `path`, and the directory that contains it, open. Raises OSError, LinkError, SourceError."""
        if not path:
            return _Location(None, self._root, os.lstat(self._root), self._root)
        require_below_root(path)
        directory, _, name = path.rpartition("/")
        descriptor = _open_directories.by_path.get((self, directory))
        if descriptor is not None:
            info = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISLNK(info.st_mode):
                return _Location(descriptor, name, info, self._root)
        location = _Walk(self._root, self._roots).finish(path)
        if location.root != self._root:
            self.roots_used.add(location.root)
        return location

    def open_directory(self, path: str) -> int | None:
        """A descriptor of directory `path`; None if it does not exist, or links lead there."""
        try:
            require_below_root(path)
            with _Walk(self._root, self._roots).finish(f"{path}/." if path else ".") as location:
                assert location.directory is not None
                return os.dup(location.directory) if location.target is None else None
        except (OSError, LinkError, SourceError):
            return None


class _OpenDirectories(threading.local):
    """The directories that a thread keeps open."""

    def __init__(self) -> None:
        self.by_path: dict[tuple[LocalSource, str], int] = {}


_open_directories: Final = _OpenDirectories()


@contextmanager
def directory_kept_open(source: ByteSource, directory: str) -> Iterator[None]:
    """Keep a directory open in this thread while the block runs: its entries are found without a walk.

    Does nothing for other sources than a LocalSource, and for a directory that cannot be opened: reading in it then says why.
    """
    by_path = _open_directories.by_path
    descriptor = None
    if isinstance(source, LocalSource) and (source, directory) not in by_path:
        descriptor = source.open_directory(directory)
    if descriptor is None or not isinstance(source, LocalSource):
        yield
        return
    by_path[source, directory] = descriptor
    try:
        yield
    finally:
        del by_path[source, directory]
        os.close(descriptor)


class _SourceErrors:
    """Raises an OSError or LinkError of the block as a SourceError of `path`; a class, because generators take longer."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise SourceError(self._path, _reason(error)) from error
        if isinstance(error, LinkError):
            raise SourceError(self._path, _not_followed(error.reason)) from error


class LocalFile(ByteFile):
    """An open regular file; any number of threads may read it at once.

    Reads stop at the size that the file had when it was opened: a file that is still being written reads the same twice.
    """

    def __init__(self, descriptor: int, path: str, size_in_bytes: int) -> None:
        self.size_in_bytes = size_in_bytes
        self._descriptor = descriptor
        self._path = path

    def _before_read(self, start: int, end: int) -> None:
        """Called before bytes `[start, end)` are read; `end` is at most the size of the file."""

    def read_at(self, position: int, size: int) -> bytes:
        """See ByteFile."""
        requested = self.available(position, size)
        self._before_read(position, position + requested)
        chunks = []
        try:
            while requested > 0:
                chunk = os.pread(self._descriptor, min(requested, _ONE_READ), position)
                if not chunk:
                    break  # truncated since it was opened
                chunks.append(chunk)
                position += len(chunk)
                requested -= len(chunk)
        except OSError as error:
            raise SourceError(self._path, _reason(error)) from error
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """See ByteFile."""
        buffer = buffer.cast("B")
        requested = self.available(position, len(buffer))
        self._before_read(position, position + requested)
        done = 0
        try:
            while done < requested:
                target = buffer[done : min(requested, done + _ONE_READ)]
                count = _pread_into(self._descriptor, target, position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise SourceError(self._path, _reason(error)) from error
        return done

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the ranges that are not holes; the whole file if the system or its file system cannot tell.

        `lseek` moves the descriptor's own position, from which nothing is ever read.
        """
        size = self.size_in_bytes
        if not _HAS_SEEK_DATA:
            return [(0, size)]
        ranges = []
        position = 0
        while position < size:
            try:
                start = os.lseek(self._descriptor, position, os.SEEK_DATA)
                end = os.lseek(self._descriptor, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break  # only a hole is left
                if error.errno in _NO_HOLES_KNOWN:
                    return [(0, size)]
                raise SourceError(self._path, _reason(error)) from error
            if start >= size or end <= start:
                break
            ranges.append((start, min(end, size)))
            position = end
        return ranges

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def descriptor_of(file: ByteFile) -> int | None:
    """The descriptor of an open file of this machine, to be read by position only; None for any other file."""
    return file._descriptor if isinstance(file, LocalFile) else None


class _UncachedFile(LocalFile):
    """A file of which no more pages are cached after it is closed than before; for one thread."""

    def __init__(self, descriptor: int, path: str, size_in_bytes: int, cache: "PageCache") -> None:
        super().__init__(descriptor, path, size_in_bytes)
        self._pages = cache.pages_added_by(descriptor)

    def _before_read(self, start: int, end: int) -> None:
        """Record the pages that the read adds."""
        self._pages.will_read(start, end)

    def close(self) -> None:
        """Drop the added pages, and close the descriptor."""
        if self._descriptor >= 0:
            self._pages.drop()
        super().close()


def _open(name: str, flags: int, directory: int | None) -> int:
    """A descriptor that does not change the access time where the system permits (to the owner and root)."""
    if _NO_ACCESS_TIME:
        try:
            return os.open(name, flags | _NO_ACCESS_TIME, dir_fd=directory)
        except PermissionError:
            pass  # another user's file
    return os.open(name, flags, dir_fd=directory)


def _pread_into(descriptor: int, buffer: memoryview, position: int) -> int:
    if _HAS_PREADV:
        return os.preadv(descriptor, [buffer], position)
    data = os.pread(descriptor, len(buffer), position)  # Python has no preadv on macOS
    buffer[: len(data)] = data
    return len(data)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _identity(info: os.stat_result) -> Identity:
    return info.st_dev, info.st_ino


_FILE: Final = EntryKind.FILE


def _entry(path: str, info: os.stat_result, link: str | None = None) -> Entry:
    identity = info.st_dev, info.st_ino
    if stat.S_ISREG(info.st_mode):
        return Entry(path, _FILE, info.st_size, info.st_mtime_ns, identity, info.st_blocks * 512, link)
    not_directory = EntryKind.SYMLINK if stat.S_ISLNK(info.st_mode) else EntryKind.OTHER
    kind = EntryKind.DIRECTORY if stat.S_ISDIR(info.st_mode) else not_directory
    return Entry(path, kind, 0, info.st_mtime_ns, identity, None, link)


def _require_regular(info: os.stat_result) -> None:
    """Raise OSError for anything that opening could block on, follow or trigger."""
    if stat.S_ISREG(info.st_mode):
        return
    if stat.S_ISLNK(info.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if stat.S_ISDIR(info.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, NOT_REGULAR)


def _not_followed(reason: str) -> str:
    return f"a symbolic link, not followed: {reason}"


def _reason(error: OSError) -> str:
    """The error in common words, without the path, which SourceError carries."""
    if error.errno == errno.ELOOP:
        return "a symbolic link, not followed: it changed while it was read"
    if error.errno == errno.ENOTDIR:
        return "not a directory"
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
