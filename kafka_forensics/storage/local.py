"""Directories and single files of this machine, read without a trace.

Files are opened read-only, links followed by ourselves and only within what was given, without blocking on what is no
regular file, and (where the system lets us) without touching access times; they are read with `pread`, never mapped or locked: a
file cut while it is mapped would kill the process, one cut while it is read merely ends early.
"""

import errno
import os
import stat
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.source import NOT_REGULAR, ByteFile, ByteSource, Entry, EntryKind, OpenFile

if TYPE_CHECKING:
    from kafka_forensics.storage.page_cache import PageCache

# Where symbolic links lead: followed by us, name by name from a held directory, to what was given and nowhere else.
#
# The system follows no link for us. A link leads on if what it names lies below a path that was given, or is one; paths are told
# apart by device and inode of directories that are held open on the way, never by their text. Beyond what was given, directories
# are passed without being read, and only on the file systems of the paths given, so that no link can wake up a mount.


MAX_LINKS: Final = 8
"""Links on the way to one file."""
MAX_DEPTH: Final = 128
"""Directories held on the way to one file."""
OUTSIDE: Final = "it leads out of what was given"
CIRCLE: Final = "it leads in a circle"
TOO_MANY: Final = f"more than {MAX_LINKS} links follow each other"
TOO_DEEP: Final = f"it leads more than {MAX_DEPTH} directories deep"
DANGLING: Final = "nothing is where it leads"

Identity = tuple[int, int]
"""(device, inode)."""

_PASS_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For a directory that is only passed through; with O_PATH it need not be readable."""


class LinkError(Exception):
    """A link that is not followed, and why; `info` is what is at the path itself, None where the link is on the way to it."""

    def __init__(self, reason: str, info: os.stat_result | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.info = info


class Roots:
    """The paths that were given, by device and inode."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(dict.fromkeys(os.path.realpath(path) for path in paths))
        self._typed = tuple(dict.fromkeys(map(os.path.abspath, paths)))
        self._known: dict[Identity, str] = {}
        for path in self.paths:
            if (info := _stat(path)) is not None:
                self._known.setdefault((info.st_dev, info.st_ino), path)
        self._devices: frozenset[int] | None = None

    def of(self, identity: Identity) -> str | None:
        """The given path that this is, None for any other."""
        return self._known.get(identity)

    def on_the_way(self, device: int) -> bool:
        """Whether a path that was given leads over this file system."""
        if self._devices is None:
            above: set[str] = set()
            for path in (*self.paths, *self._typed):
                while path not in above:
                    above.add(path)
                    path = os.path.dirname(path)
            self._devices = frozenset(info.st_dev for path in above if (info := _stat(path)) is not None)
        return device in self._devices


class Way:
    """The way from a root to `path` below it, its directories held open: a context manager, left when all is opened.

    `name` in directory `descriptor` is what the path means, `info` its status, a link no more. Where that is nothing but one of the
    roots itself, `expected` is its identity, which what is opened there must have. `target` is where links have led, None if there
    was no link; `root` the given path below which it lies. Raises LinkError, and OSError for what is no matter of links.
    """

    def __init__(self, root: str, path: str, roots: Roots) -> None:
        self._roots = roots
        self._root = root
        self._held: list[tuple[int, Identity, str]] = []
        self._links: list[tuple[Identity, str]] = []
        self._anchor = root
        self._info: os.stat_result | None = None
        """Of the link that `path` itself is."""
        self.expected: Identity | None = None
        try:
            self.name, self.info = self._walk(path)
            self.descriptor = self._held[-1][0]
            self.root = self._given_root()
        except OSError as error:
            self.close()
            if not self._links:
                raise
            gone = error.errno in {errno.ENOENT, errno.ENOTDIR}
            text = error.strerror or str(error)
            raise LinkError(DANGLING if gone else text[:1].lower() + text[1:], self._info) from error
        except LinkError:
            self.close()
            raise

    @property
    def target(self) -> str | None:
        """Where the links have led; None if there was none."""
        if not self._links:
            return None
        names = [name for _, _, name in self._held[1:]] + ([] if self.name == "." else [self.name])
        return os.path.join(self._anchor, *names)

    def close(self) -> None:
        """Give the descriptors back."""
        while self._held:
            os.close(self._held.pop()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _walk(self, path: str) -> tuple[str, os.stat_result]:
        """The last name and its status, the directory that holds it on top of those held."""
        self._begin(self._root)
        parts = deque(path.split("/"))
        own = len(parts)
        while parts:
            own = min(own, len(parts))
            part = parts.popleft()
            if part == "..":
                self._up(parts)
                continue
            directory, identity, _ = self._held[-1]
            info = os.stat(part, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                if own == 1 and self._info is None and not parts:
                    self._info = info
                self._follow(identity, part, parts)
            elif parts:
                self._enter(part, info)
            else:
                return part, info
        return ".", os.fstat(self._held[-1][0])

    def _begin(self, path: str) -> None:
        self.close()
        descriptor = os.open(path, _PASS_FLAGS)
        self._anchor = path
        self._hold(descriptor, "")

    def _hold(self, descriptor: int, name: str) -> None:
        info = os.fstat(descriptor)
        self._held.append((descriptor, (info.st_dev, info.st_ino), name))

    def _enter(self, name: str, info: os.stat_result) -> None:
        """Hold directory `name` too."""
        if not self._is_inside() and not self._roots.on_the_way(info.st_dev):
            raise LinkError(OUTSIDE, self._info)
        if len(self._held) >= MAX_DEPTH:
            raise LinkError(TOO_DEEP, self._info)
        self._hold(os.open(name, _PASS_FLAGS, dir_fd=self._held[-1][0]), name)

    def _up(self, parts: "deque[str]") -> None:
        """One directory up: the one that is held, or above a root the one in which the root lies."""
        if len(self._held) > 1:
            os.close(self._held.pop()[0])
        elif self._anchor != "/":
            parts.extendleft(reversed(_parts(os.path.dirname(self._anchor))))
            self._begin("/")

    def _follow(self, directory: Identity, name: str, parts: "deque[str]") -> None:
        """Put where link `name` leads before what is left of the way."""
        seen = (directory, name) in self._links
        self._links.append((directory, name))
        if len(self._links) > MAX_LINKS:
            raise LinkError(CIRCLE if seen else TOO_MANY, self._info)
        text = os.readlink(name, dir_fd=self._held[-1][0])
        parts.extendleft(reversed(_parts(text)))
        if text.startswith("/"):
            self._begin("/")

    def _is_inside(self) -> bool:
        return any(self._roots.of(identity) is not None for _, identity, _ in self._held)

    def _given_root(self) -> str:
        """The given path below which the end of the way lies. Raises LinkError if there is none."""
        for _, identity, _ in self._held:
            if (root := self._roots.of(identity)) is not None:
                return root
        if self._anchor == self._root:
            return self._root
        own = self.info.st_dev, self.info.st_ino
        if (root := self._roots.of(own)) is None:
            raise LinkError(OUTSIDE, self._info)
        self.expected = own
        return root


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIST_FLAGS: Final = _FILE_FLAGS | os.O_DIRECTORY
_NO_ACCESS_TIME: Final[int] = getattr(os, "O_NOATIME", 0)
_ONE_READ: Final = 1 << 30
"""Most bytes asked of one system call."""
_HAS_PREADV: Final = hasattr(os, "preadv")
_TELLS_HOLES: Final = hasattr(os, "SEEK_DATA")
_NO_HOLES_KNOWN: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS})


class LocalSource:
    """A directory, or a single file whose path in the source is "".

    The path itself may be a symbolic link and is resolved once, here; a link below it is followed within it, and to the other
    paths that were given (`give_roots`). Holds no descriptor between calls (but see `holding`), so it may be shared by threads,
    forked and pickled. Errors carry the path below the root, as entries do.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self.seekable = True
        self.rejected: list[str] = []
        self.replaced: list[str] = []
        self.problems: list[str] = []
        self.refused: dict[str, str] = {}
        self.roots_used: set[str] = set()
        """Of the other paths given, those to which links have led."""
        self.page_cache: PageCache | None = None
        """What leaves the page cache as it is while files are read; given by whoever wants that, in one thread."""
        self._root = os.path.realpath(path)
        self._roots = Roots([path])

    def give_roots(self, roots: Roots) -> None:
        """Follow links to these paths too; the source's own is one of them."""
        self._roots = roots

    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name; none for a root that is a file. Raises SourceError."""
        entries, links = [], []
        above = f"{path}/" if path else ""
        with _Reasons(path):
            descriptor, target = self._directory(path)
            if descriptor is None:
                return []
            try:
                with os.scandir(descriptor) as scanned:
                    for item in scanned:
                        try:
                            info = item.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # gone since it was listed: a running broker deletes files
                        if stat.S_ISLNK(info.st_mode):
                            links.append(above + item.name)
                        else:
                            through = None if target is None else os.path.join(target, item.name)
                            entries.append(_entry(above + item.name, info, through))
            finally:
                os.close(descriptor)
        entries += [entry for inner in links if (entry := self._linked(inner)) is not None]
        return sorted(entries, key=attrgetter("path"))

    def _directory(self, path: str) -> tuple[int | None, str | None]:
        """Directory `path`, open, and where links have led to it; no descriptor for a root that is a file."""
        above, name = _parted(path)
        held = _held.directories.get((self, above)) if path else None
        if held is not None:
            with suppress(OSError):  # told below
                if _is_directory(name, held):
                    return _open(name, _LIST_FLAGS, held), None
        with self._at(path) as place:
            if not path and not stat.S_ISDIR(place.info.st_mode):
                return None, None
            return place.opened(_LIST_FLAGS)[0], place.target

    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root); of a link that is followed, what is there. Raises SourceError if there is none."""
        with _Reasons(path):
            try:
                with self._at(path) as place:
                    return _entry(path, place.info, place.target)
            except LinkError as error:
                if error.info is None:
                    raise
                return _entry(path, error.info)._replace(refused=_not_followed(error.reason))

    def stat_all(self, directory: str, names: Sequence[str]) -> Sequence[Entry | None]:
        """Of files in a directory below the root, which is opened once, what `stat` gives; None for what it cannot tell."""
        try:
            opened = self.walk_to(directory)
        except OSError:
            return [None] * len(names)
        if opened is None:
            return [self._linked(f"{directory}/{name}") for name in names]
        try:
            return [self._stat_in(opened, name, f"{directory}/{name}") for name in names]
        finally:
            os.close(opened)

    def _stat_in(self, directory: int, name: str, path: str) -> Entry | None:
        try:
            info = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return None
        return self._linked(path) if stat.S_ISLNK(info.st_mode) else _entry(path, info)

    def open(self, path: str) -> ByteFile:
        """Open regular file `path` ("" is a root that is a file). Raises SourceError for anything else."""
        if path in self.refused:
            raise SourceError(path, self.refused[path])
        with _Reasons(path), self._at(path) as place:
            _require_regular(place.info)
            descriptor, info = place.opened(_FILE_FLAGS)
            cache = self.page_cache
            file = (
                LocalFile(descriptor, path, info.st_size)
                if cache is None
                else _LocalFileLeftUncached(descriptor, path, info.st_size, cache)
            )
            _require_regular(info)
            return file

    def _linked(self, path: str) -> Entry | None:
        """What `stat` gives for a link, or for what lies behind one; None if it is gone."""
        try:
            return self.stat(path)
        except SourceError:
            return None

    def _at(self, path: str) -> "_Place":
        """What is at `path`, and the directory that holds it, open; the resolved root itself needs none.

        Each directory on the way is opened relative to the one before, so that no part can become a link meanwhile.
        """
        if not path:
            return _Place(None, self._root, os.lstat(self._root))
        above, name = _parted(path)
        held = _held.directories.get((self, above))
        directory = self.walk_to(above) if held is None else held
        if directory is not None:
            info = None
            try:
                info = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if not stat.S_ISLNK(info.st_mode):
                    return _Place(directory, name, info, is_held=held is not None)
            finally:
                if held is None and (info is None or stat.S_ISLNK(info.st_mode)):
                    os.close(directory)
        way = Way(self._root, path, self._roots)
        if way.root != self._root:
            self.roots_used.add(way.root)
        return _Place(way.descriptor, way.name, way.info, way.expected, way.target, way)

    def walk_to(self, path: str) -> int | None:
        """Directory `path`, open; None if the way there is not of directories alone. Raises OSError."""
        return _plain(self._root, path.split("/") if path else [])


class _Held(threading.local):
    """The directories that a thread holds."""

    def __init__(self) -> None:
        self.directories: dict[tuple[LocalSource, str], int] = {}


_held: Final = _Held()


@contextmanager
def holding(source: ByteSource, directory: str) -> Iterator[None]:
    """Until it is left, this thread finds what lies in a directory without walking there each time; no source but a `LocalSource`
    knows of that. A directory that cannot be held is not: whoever asks for something in it is told why."""
    held = _held.directories
    descriptor = None
    if isinstance(source, LocalSource) and (source, directory) not in held:
        try:
            descriptor = source.walk_to("/".join(filter(None, _parted(directory))))
        except (OSError, SourceError):
            descriptor = None
    if descriptor is None or not isinstance(source, LocalSource):
        yield
        return
    held[source, directory] = descriptor
    try:
        yield
    finally:
        del held[source, directory]
        os.close(descriptor)


def _parted(path: str) -> tuple[str, str]:
    """The directory in which something below the root lies, and its name there. Raises SourceError if it may be elsewhere."""
    above, _, name = path.rpartition("/")
    if path and ("\0" in path or not _NO_NAMES.isdisjoint(path.split("/"))):
        raise SourceError(path, "not a path below the root")
    return above, name


_NO_NAMES: Final = frozenset({"", ".", ".."})


@dataclass(slots=True)
class _Place:
    """`name` in directory `descriptor` (or as a path, without one), and its status when it was found: a context manager."""

    descriptor: int | None
    name: str
    info: os.stat_result
    expected: Identity | None = None
    """What must be opened, where nothing else in that directory was given."""
    target: str | None = None
    """Where links have led."""
    way: Way | None = None
    """Whose directory it is; without one it is ours."""
    is_held: bool = False
    """Whether the directory stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.way is not None:
            self.way.close()
        elif self.descriptor is not None and not self.is_held:
            os.close(self.descriptor)

    def opened(self, flags: int) -> tuple[int, os.stat_result]:
        """A descriptor of what is there, and its status. Raises OSError, also if that is no more what it was where that matters."""
        descriptor = _open(self.name, flags, self.descriptor)
        info = os.fstat(descriptor)
        if self.expected is not None and self.expected != (info.st_dev, info.st_ino):
            os.close(descriptor)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return descriptor, info


class _Reasons:
    """Turns the system's errors about `path`, and links that are not followed, into SourceError."""

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


def _plain(root: str, parts: list[str]) -> int | None:
    """The directory at `parts` below `root`, open; None if the way there is not of directories alone."""
    directory = os.open(root, _PASS_FLAGS)
    try:
        for part in parts:
            deeper = os.open(part, _PASS_FLAGS, dir_fd=directory) if _is_directory(part, directory) else None
            os.close(directory)
            if deeper is None:
                return None
            directory = deeper
    except OSError as error:
        os.close(directory)
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            return None
        raise
    return directory


def _is_directory(name: str, directory: int) -> bool:
    """Whether it is one, and no link to one: nothing else is opened to be passed through. Raises OSError."""
    return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


class LocalFile(OpenFile):
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
        """(start, end) of the ranges that are not holes; the whole file where the system or its file system cannot tell.

        Asks with `lseek`, which moves the descriptor's own position; nothing here reads from that position.
        """
        size = self.size_in_bytes
        if not _TELLS_HOLES:
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
        """Give the descriptor back; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def descriptor_of(file: ByteFile) -> int | None:
    """The descriptor of an open file of this machine, to be read by position only; None for any other file."""
    return file._descriptor if isinstance(file, LocalFile) else None


class _LocalFileLeftUncached(LocalFile):
    """One of which no more is in the page cache once it is closed than was before; for one thread."""

    def __init__(self, descriptor: int, path: str, size_in_bytes: int, cache: "PageCache") -> None:
        super().__init__(descriptor, path, size_in_bytes)
        self._pages = cache.brought_by(descriptor)

    def read_at(self, position: int, size: int) -> bytes:
        """See `LocalFile`."""
        self._pages.will_read(position, min(position + size, self.size_in_bytes))
        return super().read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """See `LocalFile`."""
        self._pages.will_read(position, min(position + buffer.nbytes, self.size_in_bytes))
        return super().read_into(position, buffer)

    def close(self) -> None:
        """Drop what was brought in, and give the descriptor back."""
        if self._descriptor >= 0:
            self._pages.drop()
        super().close()


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


_FILE: Final = EntryKind.FILE


def _entry(path: str, info: os.stat_result, link: str | None = None) -> Entry:
    identity = info.st_dev, info.st_ino
    if stat.S_ISREG(info.st_mode):
        return Entry(path, _FILE, info.st_size, info.st_mtime_ns, identity, info.st_blocks * 512, link)
    return Entry(path, _kind(info.st_mode), 0, info.st_mtime_ns, identity, None, link)


def _kind(mode: int) -> EntryKind:
    """Of anything but a regular file."""
    if stat.S_ISDIR(mode):
        return EntryKind.DIRECTORY
    return EntryKind.SYMLINK if stat.S_ISLNK(mode) else EntryKind.OTHER


def _require_regular(info: os.stat_result) -> None:
    """Refuse what opening could block on, follow or set in motion."""
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
    """The error in the words a person knows, without the path (SourceError carries it)."""
    if error.errno == errno.ELOOP:
        return "a symbolic link, not followed: it changed meanwhile"
    if error.errno == errno.ENOTDIR:
        return "not a directory"
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
