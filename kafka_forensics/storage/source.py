"""What a source of evidence can do; every room above sees only this."""

import os
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from types import TracebackType
from typing import Final, NamedTuple, NoReturn, Protocol, Self, cast, runtime_checkable

from kafka_forensics.errors import ForensicsError, PathMissingError, SourceError

NOT_REGULAR: Final = "not a regular file"


class NotRegularError(SourceError):
    """What was given is a pipe, a socket or a device."""


class EntryKind(StrEnum):
    """What an entry of a listing is; only `file` and `directory` are ever opened. A link that is followed is what it leads to."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    """One that is not followed."""
    OTHER = "other"
    """FIFO, socket, device: listed, never opened."""


class Entry(NamedTuple):
    """One entry; a scan holds very many. `path` is relative to the root, parts joined by `/`, undecodable bytes as surrogates."""

    path: str
    kind: EntryKind
    size_in_bytes: int
    mtime_ns: int
    identity: tuple[int, int] | None
    """(device, inode), or None where the source has none (archives)."""
    allocated_bytes: int | None = None
    """Bytes that occupy storage; less than the size for a sparse file; None if unknown."""
    link: str | None = None
    """Where links on the way to it or at its end have led, of which the rest tells; None without links."""
    refused: str | None = None
    """Why a link was not followed."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def unreadable(self) -> str | None:
        """Why it cannot be read: a link that is not followed, a pipe, a socket, a device; None for a file or directory."""
        if self.kind in (EntryKind.FILE, EntryKind.DIRECTORY):
            return None
        return self.refused or NOT_REGULAR


class ByteFile(Protocol):
    """An open file of evidence. Reads past the end return what there is; never writes, locks or maps."""

    @property
    def size_in_bytes(self) -> int:
        """Size when opened."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the file. Raises SourceError on I/O errors."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only at the end of the file."""

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the ranges that are not holes; the whole file where the source cannot tell."""

    def close(self) -> None:
        """Give the descriptor back."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class OpenFile:
    """What open files of all kinds share: without holes and with nothing to give back unless they say otherwise."""

    size_in_bytes: int

    def data_ranges(self) -> list[tuple[int, int]]:
        """The whole file."""
        return [(0, self.size_in_bytes)] if self.size_in_bytes else []

    def close(self) -> None:
        """Nothing to give back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@runtime_checkable
class RangeReader(Protocol):
    """An open file that reads better when it knows what will be read."""

    def will_read(self, start: int, end: int) -> None:
        """Announce that `[start, end)` is going to be read from left to right."""


def range_reader(file: ByteFile) -> RangeReader | None:
    """The file as one whose bytes are fetched range by range; None for one that is not."""
    return cast("RangeReader", file) if _reads_ranges(type(file)) else None


@cache
def _reads_ranges(kind: type) -> bool:
    """Whether files of this class want to know what will be read; asked once, as protocols are slow to compare."""
    return issubclass(kind, RangeReader)


@runtime_checkable
class ListedSource(Protocol):
    """A source that answers `stat` from listings it keeps."""

    def believe(self, entries: Iterable[Entry]) -> None:
        """Files were listed elsewhere as these entries: to open one nothing need be listed here."""

    def forget_listings(self) -> None:
        """Look at everything again from now on."""


@runtime_checkable
class DistantSource(Protocol):
    """A source whose every file costs requests."""

    request_seconds: float
    """How long one takes."""


@runtime_checkable
class ByteSource(Protocol):
    """A tree of evidence: a directory, a file, an archive."""

    rejected: list[str]
    """Names of archive members that are listed nowhere, because no safe path can be made of them; empty for directories."""
    replaced: list[str]
    """Names that several archive members have, of which the last is listed and read, as tar does; empty for directories."""
    problems: list[str]
    """What is wrong with the container itself (cut short, damaged), a sentence each; may grow while it is read."""
    refused: dict[str, str]
    """Why a path is not opened although it could be, by path: what is there is read by another name."""

    @property
    def name(self) -> str:
        """As the user gave it."""

    @property
    def seekable(self) -> bool:
        """False where reading backwards costs a new pass (`.tar.gz`, `.tar.xz`, `.tar.zst`)."""

    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name. Raises SourceError."""

    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root); of a link that is followed, what is there. Raises SourceError if there is none."""

    def open(self, path: str) -> ByteFile:
        """Open regular file `path`. Raises SourceError for anything else."""


def place_of(source: ByteSource) -> str:
    """Where another process finds the source."""
    return source.name if "://" in source.name else os.path.abspath(source.name)


# A source that was there when it was listed, and cannot be opened any more.


class LostSource:
    """Stands for evidence at `name` that `error` kept from being opened: whatever is asked of it raises SourceError."""

    def __init__(self, name: str, error: ForensicsError) -> None:
        self.name = name
        self.seekable = True
        self.rejected: list[str] = []
        self.replaced: list[str] = []
        self.problems: list[str] = []
        self.refused: dict[str, str] = {}
        self.is_special = isinstance(error, NotRegularError)
        """Whether it is a pipe, a socket or a device."""
        self.reason = error.reason if isinstance(error, SourceError) else str(error)
        if isinstance(error, PathMissingError):
            self.reason = "no such file or directory"

    def list(self, path: str = "") -> list[Entry]:
        """Raises SourceError."""
        self._refuse(path)

    def stat(self, path: str) -> Entry:
        """Raises SourceError."""
        self._refuse(path)

    def open(self, path: str) -> ByteFile:
        """Raises SourceError."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise SourceError(path, self.reason)
