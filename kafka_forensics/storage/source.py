"""What a source of evidence can do; all other packages read evidence only through these classes."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, cast, runtime_checkable

from kafka_forensics.errors import ForensicsError, PathMissingError, SourceError

NOT_REGULAR: Final = "not a regular file"
URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
"""The start of a URI, with its scheme as group 1."""
_ARCHIVE_SUFFIX: Final = re.compile(r"\.(?:tar|tar\.gz|tgz|tar\.xz|txz|tar\.zst|zip|kfb)\Z", re.IGNORECASE)
Identity = tuple[int, int]
"""(device, inode)."""


class NotRegularError(SourceError):
    """The path of an input is a pipe, a socket or a device."""


class EntryKind(StrEnum):
    """What an entry of a listing is; only files and directories are ever opened. A link that is followed has its target's kind."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    """A link that is not followed."""
    OTHER = "other"
    """FIFO, socket, device: listed, never opened."""


class Entry(NamedTuple):
    """One entry of a listing; a scan holds very many.

    `path` is relative to the root of the source, with `/` between parts and undecodable bytes as surrogates.
    """

    path: str
    kind: EntryKind
    size_in_bytes: int
    mtime_ns: int
    identity: Identity | None
    """None if the source has none (archives)."""
    allocated_bytes: int | None = None
    """Bytes that occupy storage; less than the size for a sparse file; None if unknown."""
    link: str | None = None
    """The target of the links that lead to it; the other fields describe that target. None without links."""
    refused: str | None = None
    """Why a link was not followed."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def unreadable(self) -> str | None:
        """Why it cannot be read (a link that is not followed, a pipe, a socket, a device); None for a file or directory."""
        if self.kind in (EntryKind.FILE, EntryKind.DIRECTORY):
            return None
        return self.refused or NOT_REGULAR


class ByteFile(ABC):
    """An open file of evidence. Reads past the end are short; nothing is ever written, locked or mapped."""

    size_in_bytes: int
    """Size when opened."""

    @abstractmethod
    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the file. Raises SourceError on I/O errors."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only at the end of the file. Raises SourceError."""
        target = buffer.cast("B")
        data = self.read_at(position, len(target))
        target[: len(data)] = data
        return len(data)

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the ranges that are not holes; the whole file if the source cannot tell."""
        return [(0, self.size_in_bytes)] if self.size_in_bytes else []

    def close(self) -> None:
        """Release the descriptor, if there is one."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def available(self, position: int, size: int) -> int:
        """How many of `size` bytes from `position` lie within the file."""
        assert position >= 0
        assert size >= 0
        return max(0, min(size, self.size_in_bytes - position))


class BytesFile(ByteFile):
    """A file whose bytes are in memory."""

    def __init__(self, data: bytes) -> None:
        self.size_in_bytes = len(data)
        self._data = data

    def read_at(self, position: int, size: int) -> bytes:
        """See ByteFile."""
        return self._data[position : position + self.available(position, size)]


@runtime_checkable
class RangeReader(Protocol):
    """An open file that reads faster if the range is announced first."""

    def will_read(self, start: int, end: int) -> None:
        """Announce that `[start, end)` is going to be read from left to right."""


def range_reader(file: ByteFile) -> RangeReader | None:
    """The file as a RangeReader, or None if it is not one."""
    return cast("RangeReader", file) if _reads_ranges(type(file)) else None


@cache
def _reads_ranges(file_class: type) -> bool:
    """Whether files of this class are RangeReaders; cached, because comparing with a protocol is slow."""
    return issubclass(file_class, RangeReader)


@runtime_checkable
class ListedSource(Protocol):
    """A source that answers `stat` from listings that it keeps."""

    def accept_listing(self, entries: Iterable[Entry]) -> None:
        """Accept entries that were listed in another process: opening them then needs no listing here."""

    def forget_listings(self) -> None:
        """Drop all listings; later calls list again."""


class ByteSource(ABC):
    """A tree of evidence: a directory, a file, an archive, a bundle, a path of a storage service."""

    request_seconds: float | None = None
    """How long a request takes to a service that needs requests for every file; None without a service."""

    def __init__(self, name: str) -> None:
        self.name = name
        """As the user typed it."""
        self.seekable = True
        """False if reading backwards costs a new pass (`.tar.gz`, `.tar.xz`, `.tar.zst`)."""
        self.rejected: list[str] = []
        """Names of archive members that are not listed, because they are not safe paths; empty for directories."""
        self.replaced: list[str] = []
        """Names that several archive members have; the last is listed and read, as tar does; empty for directories."""
        self.problems: list[str] = []
        """What is wrong with the container itself (truncated, damaged), a sentence each; may grow while it is read."""
        self.refused: dict[str, str] = {}
        """By path, why a file that could be read is not opened by it: it is read under another name."""

    @abstractmethod
    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name. Raises SourceError."""

    @abstractmethod
    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root); of a link that is followed, its target's. Raises SourceError if there is none."""

    def walk(self, path: str = "") -> Iterator[tuple[str, int]]:
        """(path, size in bytes) of every regular file in directory `path` and below it, in no order. Raises SourceError.

        A directory is entered once, even if links lead to it, too.
        """
        directories, links, seen = [self.stat(path)], list[Entry](), set[object]()
        while directories or links:
            directory = (directories or links).pop()
            if directory_key(directory) in seen:
                continue
            seen.add(directory_key(directory))
            for entry in self.list(directory.path):
                if entry.kind is EntryKind.FILE:
                    yield entry.path, entry.size_in_bytes
                elif entry.kind is EntryKind.DIRECTORY:
                    (directories if entry.link is None else links).append(entry)

    def stat_or_none(self, path: str) -> Entry | None:
        """As `stat`; None if nothing is there or it cannot be read."""
        try:
            return self.stat(path)
        except SourceError:
            return None

    @abstractmethod
    def open(self, path: str) -> ByteFile:
        """Open regular file `path`. Raises SourceError for anything else."""


def place_of(source: ByteSource) -> str:
    """The URI or absolute path by which another process finds the source."""
    return source.name if "://" in source.name else os.path.abspath(source.name)


def root_path(source: ByteSource) -> str:
    """The path that the root has by its name: as `place_of`, of an archive or bundle without the suffix."""
    return _ARCHIVE_SUFFIX.sub("", place_of(source))


def directory_key(entry: Entry) -> object:
    """Identity of a directory with several names: device and inode, in an archive its path."""
    return entry.identity or (entry.path if entry.link is None else entry.link)


def is_below_root(path: str) -> bool:
    """Whether a path in a source has no NUL and no empty, `.` or `..` part; "" is the root."""
    return not path or ("\0" not in path and {"", ".", ".."}.isdisjoint(path.split("/")))


def require_below_root(path: str) -> None:
    """Raise SourceError unless `is_below_root`."""
    if not is_below_root(path):
        raise SourceError(path, "not a path below the root")


def path_parts(path: str) -> list[str]:
    """The parts of a path, without empty ones and `.`."""
    return [part for part in path.split("/") if part not in {"", "."}]


@contextmanager
def errors_named(path: str) -> Iterator[None]:
    """Raise a SourceError of the block as one of `path`."""
    try:
        yield
    except SourceError as error:
        raise SourceError(path, error.reason) from error


def path_in(name: str, path: str) -> str:
    """A path inside the source called `name`, as the user would type it."""
    return name + path if not path or name.endswith("/") else f"{name}/{path}"


class UnopenedSource(ByteSource):
    """Stands for evidence at `name` that could not be opened because of `error`: every call raises SourceError."""

    def __init__(self, name: str, error: ForensicsError) -> None:
        super().__init__(name)
        self.is_special = isinstance(error, NotRegularError)
        """Whether it is a pipe, a socket or a device."""
        self.reason = error.reason if isinstance(error, SourceError) else str(error)
        if isinstance(error, PathMissingError):
            self.reason = "no such file or directory"

    def list(self, path: str = "") -> list[Entry]:
        """Raises SourceError."""
        raise SourceError(path, self.reason)

    def stat(self, path: str) -> Entry:
        """Raises SourceError."""
        raise SourceError(path, self.reason)

    def open(self, path: str) -> ByteFile:
        """Raises SourceError."""
        raise SourceError(path, self.reason)
