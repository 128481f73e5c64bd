"""Directories and single files of this machine, read without a trace.

Files are opened read-only, links followed by ourselves and only within what was given (`storage.links`), without blocking on
what is no regular file, and (where the system lets us) without touching access times; they are read with `pread`, never mapped
or locked: a file cut while it is mapped would kill the process, one cut while it is read merely ends early.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.local.links import Identity, LinkError, Roots, Way
from kafka_forensics.storage.source import NOT_REGULAR, ByteFile, Entry, EntryKind

_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIST_FLAGS: Final = _FILE_FLAGS | os.O_DIRECTORY
_PASS_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For a directory that is only passed through; with O_PATH it need not be readable."""
_NO_ACCESS_TIME: Final[int] = getattr(os, "O_NOATIME", 0)
_ONE_READ: Final = 1 << 30
"""Most bytes asked of one system call."""
_HAS_PREADV: Final = hasattr(os, "preadv")
_NO_HOLES_KNOWN: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS})


class LocalSource:
    """A directory, or a single file whose path in the source is "".

    The path itself may be a symbolic link and is resolved once, here; a link below it is followed within it, and to the other
    `roots` that were given. Holds no descriptor between calls, so it may be shared by threads, forked and pickled. Errors carry the
    path below the root, as entries do.
    """

    def __init__(self, path: str, roots: Roots | None = None) -> None:
        self.name = path
        self.seekable = True
        self.rejected: list[str] = []
        self.replaced: list[str] = []
        self.problems: list[str] = []
        self.refused: dict[str, str] = {}
        self.roots_used: set[str] = set()
        """Of the other paths given, those to which links have led."""
        self._root = os.path.realpath(path)
        self._roots = Roots([path]) if roots is None else roots

    def give_roots(self, roots: Roots) -> None:
        """Follow links to these paths too; the source's own is one of them."""
        self._roots = roots

    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name; none for a root that is a file. Raises SourceError."""
        entries, links = [], []
        with self._reasons(path), self._at(path) as place:
            if not path and not stat.S_ISDIR(place.info.st_mode):
                return []
            descriptor = place.opened(_LIST_FLAGS)
            try:
                with os.scandir(descriptor) as found:
                    for item in found:
                        inner = f"{path}/{item.name}" if path else item.name
                        try:
                            info = item.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # gone since it was listed: a running broker deletes files
                        if stat.S_ISLNK(info.st_mode):
                            links.append(inner)
                        else:
                            through = None if place.target is None else os.path.join(place.target, item.name)
                            entries.append(_entry(inner, info, through))
            finally:
                os.close(descriptor)
        entries += [entry for inner in links if (entry := self._linked(inner)) is not None]
        return sorted(entries, key=lambda entry: entry.path)

    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root); of a link that is followed, what is there. Raises SourceError if there is none."""
        with self._reasons(path):
            try:
                with self._at(path) as place:
                    return _entry(path, place.info, place.target)
            except LinkError as error:
                if error.info is None:
                    raise
                return replace(_entry(path, error.info), refused=_not_followed(error.reason))

    def open(self, path: str) -> ByteFile:
        """Open regular file `path` ("" is a root that is a file). Raises SourceError for anything else."""
        if path in self.refused:
            raise SourceError(path, self.refused[path])
        with self._reasons(path), self._at(path) as place:
            _require_regular(place.info)
            descriptor = place.opened(_FILE_FLAGS)
        try:
            with self._reasons(path):
                info = os.fstat(descriptor)
                _require_regular(info)
        except SourceError:
            os.close(descriptor)
            raise
        return _LocalFile(descriptor, path, info.st_size)

    def _linked(self, path: str) -> Entry | None:
        """The entry of a link that was listed; None if it is gone."""
        try:
            return self.stat(path)
        except SourceError:
            return None

    @contextmanager
    def _reasons(self, path: str) -> Iterator[None]:
        """Turn the system's errors about `path`, and links that are not followed, into SourceError."""
        try:
            yield
        except OSError as error:
            raise SourceError(path, _reason(error)) from error
        except LinkError as error:
            raise SourceError(path, _not_followed(error.reason)) from error

    @contextmanager
    def _at(self, path: str) -> "Iterator[_Place]":
        """What is at `path`, and the directory that holds it, open; the resolved root itself needs none.

        Each directory on the way is opened relative to the one before, so that no part can become a link meanwhile.
        """
        if not path:
            yield _Place(None, self._root, os.lstat(self._root))
            return
        parts = path.split("/")
        if "\0" in path or any(part in {"", ".", ".."} for part in parts):
            raise SourceError(path, "not a path below the root")
        directory = _plain(self._root, parts[:-1])
        try:
            info = None if directory is None else os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            if info is not None and not stat.S_ISLNK(info.st_mode):
                yield _Place(directory, parts[-1], info)
                return
        finally:
            if directory is not None:
                os.close(directory)
        with Way(self._root, path, self._roots) as way:
            if way.root != self._root:
                self.roots_used.add(way.root)
            yield _Place(way.descriptor, way.name, way.info, way.expected, way.target)


@dataclass(frozen=True, slots=True)
class _Place:
    """`name` in directory `descriptor` (or as a path, without one), and its status when it was found."""

    descriptor: int | None
    name: str
    info: os.stat_result
    expected: Identity | None = None
    """What must be opened, where nothing else in that directory was given."""
    target: str | None = None
    """Where links have led."""

    def opened(self, flags: int) -> int:
        """A descriptor of what is there. Raises OSError, also if that is no more what it was where that matters."""
        descriptor = _open(self.name, flags, self.descriptor)
        info = os.fstat(descriptor)
        if self.expected is not None and self.expected != (info.st_dev, info.st_ino):
            os.close(descriptor)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return descriptor


def _plain(root: str, parts: list[str]) -> int | None:
    """The directory at `parts` below `root`, open; None if the way there is not of directories alone."""
    directory = os.open(root, _PASS_FLAGS)
    try:
        for part in parts:
            deeper = os.open(part, _PASS_FLAGS, dir_fd=directory)
            os.close(directory)
            directory = deeper
    except OSError as error:
        os.close(directory)
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            return None
        raise
    return directory


class _LocalFile:
    """An open regular file; any number of threads may read it at once.

    Reads stop at the size the file had when it was opened, so that a file still being written reads the same twice.
    """

    def __init__(self, descriptor: int, path: str, size_in_bytes: int) -> None:
        self.size_in_bytes = size_in_bytes
        self._descriptor = descriptor
        self._path = path

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the file. Raises SourceError on I/O errors."""
        assert position >= 0
        assert size >= 0
        wanted = min(size, self.size_in_bytes - position)
        pieces = []
        try:
            while wanted > 0:
                piece = os.pread(self._descriptor, min(wanted, _ONE_READ), position)
                if not piece:
                    break  # cut since it was opened
                pieces.append(piece)
                position += len(piece)
                wanted -= len(piece)
        except OSError as error:
            raise SourceError(self._path, _reason(error)) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only at the end of the file."""
        assert position >= 0
        buffer = buffer.cast("B")
        wanted = max(0, min(len(buffer), self.size_in_bytes - position))
        done = 0
        try:
            while done < wanted:
                target = buffer[done : min(wanted, done + _ONE_READ)]
                count = _pread_into(self._descriptor, target, position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise SourceError(self._path, _reason(error)) from error
        return done

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the ranges that are not holes; the whole file where the file system cannot tell.

        Asks with `lseek`, which moves the descriptor's own position; nothing here reads from that position.
        """
        size = self.size_in_bytes
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
        """Give the descriptor back; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _open(name: str, flags: int, directory: int | None) -> int:
    """A descriptor that leaves the access time alone where the system permits (owner or root only)."""
    if _NO_ACCESS_TIME:
        try:
            return os.open(name, flags | _NO_ACCESS_TIME, dir_fd=directory)
        except PermissionError:
            pass  # not ours: open it as anybody would
    return os.open(name, flags, dir_fd=directory)


def _pread_into(descriptor: int, buffer: memoryview, position: int) -> int:
    if _HAS_PREADV:
        return os.preadv(descriptor, [buffer], position)
    data = os.pread(descriptor, len(buffer), position)  # macOS: Python has no preadv there
    buffer[: len(data)] = data
    return len(data)


def _entry(path: str, info: os.stat_result, link: str | None = None) -> Entry:
    kind = _kind(info.st_mode)
    is_file = kind is EntryKind.FILE
    return Entry(
        path=path,
        kind=kind,
        size_in_bytes=info.st_size if is_file else 0,
        mtime_ns=info.st_mtime_ns,
        identity=(info.st_dev, info.st_ino),
        allocated_bytes=info.st_blocks * 512 if is_file else None,
        link=link,
    )


def _kind(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISDIR(mode):
        return EntryKind.DIRECTORY
    return EntryKind.SYMLINK if stat.S_ISLNK(mode) else EntryKind.OTHER


def _require_regular(info: os.stat_result) -> None:
    """Refuse what opening could block on, follow or set in motion."""
    if stat.S_ISLNK(info.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if stat.S_ISDIR(info.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, NOT_REGULAR)


def _not_followed(reason: str) -> str:
    return f"a symbolic link, not followed: {reason}"


def _reason(error: OSError) -> str:
    """The error in the words a person knows, without the path (SourceError carries it)."""
    if error.errno == errno.ELOOP:
        return "a symbolic link, not followed: it changed meanwhile"
    if error.errno == errno.ENOTDIR:
        return "not a directory"
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
