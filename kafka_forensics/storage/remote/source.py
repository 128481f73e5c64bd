"""Directories and objects of a storage service as evidence, through any file system of `pyarrow.fs`.

Names of objects are not trusted: names that are not safe paths are `rejected`, as in archives. Every directory is listed once,
those below it ahead on threads, and everything below a log directory in one request; sizes and times are those of the listing until
it is dropped.
"""

import logging
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives import MAX_MEMBERS, MAX_NAME, note
from kafka_forensics.storage.remote.errors import attempt, failures_named
from kafka_forensics.storage.remote.file import EDGE, SMALL_OBJECT, EdgedObject, ObjectReader, RemoteFile, SmallObjects
from kafka_forensics.storage.remote.options import StorageOptions
from kafka_forensics.storage.source import ByteFile, BytesFile, ByteSource, Entry, EntryKind, is_below_root, require_below_root
from kafka_forensics.storage.tiered import is_named_by_id

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

    Infos = list[FileInfo]


def list_children(filesystem: "FileSystem", directory: str, *, allow_not_found: bool) -> "tuple[list[FileInfo], int]":
    """Objects and directories directly in `directory`, in no order, and how many objects the service listed for that.

    Raises OSError, as the file system does.

    On Google's storage pyarrow lists only directories that have a marker object, which `gsutil` and most others do not create
    (Arrow's issue 35993). So there everything below is listed, and the directories are derived from the objects' names.
    """
    from pyarrow.fs import FileInfo, FileSelector, FileType

    is_recursive = filesystem.type_name == "gcs"
    infos = filesystem.get_file_info(FileSelector(directory, recursive=is_recursive, allow_not_found=allow_not_found))
    if not is_recursive:
        return infos, len(infos)
    prefix = directory.rstrip("/") + "/"
    direct, directories = [], set()
    for info in infos:
        name, slash, _ = info.path.removeprefix(prefix).partition("/")
        if slash and name:
            directories.add(prefix + name)
        elif info.type == FileType.Directory:
            directories.add(info.path)
        else:
            direct.append(info)
    return [*direct, *(FileInfo(path, FileType.Directory) for path in directories)], len(infos)


def below(filesystem: "FileSystem", directory: str, *, allow_not_found: bool) -> "tuple[dict[str, list[FileInfo]], int]":
    """Objects and directories in `directory` ("") and in every directory below it, by its path from there, and how many in all.

    One listing, however many directories there are: services list by names, a thousand per answer. Raises OSError, as the file
    system does.
    """
    from pyarrow.fs import FileInfo, FileSelector, FileType

    prefix = directory.rstrip("/") + "/"
    found: dict[str, list[FileInfo]] = {"": []}
    infos = filesystem.get_file_info(FileSelector(directory, recursive=True, allow_not_found=allow_not_found))
    for info in infos:
        path = info.path.removeprefix(prefix)
        parent = path if info.type == FileType.Directory else _parent_directory(path)
        while parent not in found:  # a service does not list all directories
            found[parent] = []
            parent = _parent_directory(parent)
        if info.type != FileType.Directory:
            found[_parent_directory(path)].append(info)
    for path in [path for path in found if path]:
        found[_parent_directory(path)].append(FileInfo(prefix + path, FileType.Directory))
    return found, len(infos)


def _parent_directory(path: str) -> str:
    """The directory of `path`; "/" for a name that begins with a slash, because its first part is empty and so never read."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") and path != "/" else "")


THREADS: Final = 16
"""Concurrent requests of one source."""
LISTED_AHEAD: Final = 4
"""Levels below the root whose directories are listed ahead: as deep as log directories are searched."""
MAX_WALKED_DIRECTORIES: Final = 30_000
"""Directories that `walk` lists each by itself."""
LISTED_TOGETHER: Final = 250_000
"""Objects in the listings of `walk` that run at the same time, if one has as many as the one before: for their memory."""
NEIGHBOURS_AHEAD: Final = 16
"""Directories whose small object of the same name is fetched ahead, because a scan reads them in that order."""

Listing = dict[str, Entry]
"""Entries of a directory by path."""


class RemoteSource(ByteSource):
    """A directory (prefix) or one object of a storage service; an object's path in the source is "".

    `name` is the URI without credentials; `root` the path in `filesystem`. Threads may share it. Errors and entries carry the path
    below the root. Directories down to `ahead` levels below the root are listed ahead. Raises SourceError if the root cannot be
    looked up; a missing root is not an error (`is_missing`).
    """

    def __init__(
        self, name: str, filesystem: "FileSystem", root: str, options: StorageOptions | None = None, ahead: int = LISTED_AHEAD
    ) -> None:
        super().__init__(name)
        self._filesystem = filesystem
        self._root = root
        self._options = options or StorageOptions()
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="storage")
        self._lock = threading.Lock()
        self._listings: dict[str, Future[Listing]] = {}
        self._old_listings: dict[str, Listing] = {}
        """Before `forget_listings`."""
        self._accepted: dict[str, Entry] = {}
        self._directories: dict[str, Sequence[str]] = {}
        """Directory → sorted paths of the directories in it."""
        self._rejected_in: dict[str, list[str]] = {}
        """Directory → names that are not safe paths."""
        self._small = SmallObjects(self._pool, self._read_small)
        self._etags: dict[str, bytes] = {}
        self._listed_count = 0
        begin = time.monotonic()
        self._root_entry: Entry | None = self._look_up_root()
        self.request_seconds: float = time.monotonic() - begin
        """Of the fastest request; the first one includes connecting."""

    @property
    def is_missing(self) -> bool:
        """Whether nothing is at the root."""
        return self._root_entry is None

    @property
    def backend(self) -> str:
        """The name of the file system's class: pyarrow's own, or the adapter of fsspec's."""
        return type(self._filesystem).__name__

    def beside(self) -> "RemoteSource":
        """The directory that contains the root. Raises SourceError."""
        return RemoteSource(_parent(self.name), self._filesystem, _parent(self._root), self._options, ahead=0)

    def at(self, root: str) -> "RemoteSource":
        """Another path in the same file system, not listed ahead. Raises SourceError."""
        return RemoteSource(f"{self.name.partition('://')[0]}://{root}", self._filesystem, root, self._options, ahead=0)

    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name; none for a root that is an object. Raises SourceError."""
        if not path and self._root_entry is not None and self._root_entry.kind is EntryKind.FILE:
            return []
        require_below_root(path)
        return sorted(self._listing(path).values(), key=lambda entry: entry.path)

    def walk(self, path: str = "") -> Iterator[tuple[str, int]]:
        """See ByteSource: each directory in `path` with everything below it in one listing, some on threads at the same time.

        Services list a thousand names per answer, however many directories these are in; of very many directories, most have few.
        So with these, and on Google's storage (see `list_children`), everything is in one listing.
        """
        require_below_root(path)
        is_flat = self._filesystem.type_name == "gcs"
        infos = self._infos(path, recursive=is_flat)
        directories = deque() if is_flat else deque(inner for info in infos if not info.is_file and (inner := self._inner(info)))
        if len(directories) > MAX_WALKED_DIRECTORIES:
            infos, directories = self._infos(path, recursive=True), deque()
        yield from self._files(infos)
        _allow_concurrent_requests()
        running: deque[Future[Infos]] = deque()
        most_running = 1
        while directories or running:
            while directories and len(running) < most_running:
                running.append(self._pool.submit(self._infos, directories.popleft(), recursive=True))
            infos = running.popleft().result()
            most_running = max(1, min(most_running * 2, THREADS, LISTED_TOGETHER // (len(infos) + 1)))
            yield from self._files(infos)

    def _infos(self, path: str, *, recursive: bool) -> "Infos":
        from pyarrow.fs import FileSelector

        with failures_named(path):
            return attempt(
                lambda: self._filesystem.get_file_info(FileSelector(self._full(path), recursive=recursive)), self._options
            )

    def _files(self, infos: "Infos") -> Iterator[tuple[str, int]]:
        """(path, size in bytes) of the files; `infos` is emptied, because very many need much memory."""
        while infos:
            info = infos.pop()
            if info.is_file and (inner := self._inner(info)):
                yield inner, self._size_of(inner, info)

    def _inner(self, info: "FileInfo") -> str:
        """The path below the root; "" if it is not a safe one."""
        inner: str = info.path[len(self._root.rstrip("/")) + 1 :]
        return inner if is_below_root(inner) else ""

    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root), by its listing. Raises SourceError if there is none."""
        require_below_root(path)
        entry = self._listing(path.rpartition("/")[0]).get(path) if path else self._root_entry
        if entry is None:
            raise SourceError(path, "no such object or directory")
        return entry

    def open(self, path: str) -> ByteFile:
        """Open object `path` ("" is a root that is one). Raises SourceError for anything else, and if it became shorter."""
        entry = self._accepted.get(path) or self.stat(path)
        if entry.kind is EntryKind.DIRECTORY:
            raise SourceError(path, "is a directory")
        size, block_bytes = entry.size_in_bytes, self._options.block_mib << 20
        if not _is_fetched_ahead(entry):
            return RemoteFile(path, self._reader(path, size), self._pool, block_bytes)
        self._fetch_neighbours(path)
        data = self._small.bytes_of(path, size)
        if size <= SMALL_OBJECT:
            return BytesFile(data)
        return RemoteFile(path, EdgedObject(size, data, partial(self._reader, path, size)), self._pool, block_bytes)

    def accept_listing(self, entries: Iterable[Entry]) -> None:
        """Accept entries that were listed in another process: opening them then needs no listing here."""
        self._accepted.update((entry.path, entry) for entry in entries)

    def forget_listings(self) -> None:
        """List everything again: directories that were listed before are listed again on threads.

        If that fails, the entries stay as they were, with a warning, because a failure does not show a change.
        """
        with self._lock:
            done = {path: future for path, future in self._listings.items() if future.done() and future.exception() is None}
            self._old_listings = {path: future.result() for path, future in done.items()}
            self._listings = {}
            self._directories = {}
            self._listed_count = 0
        self._accepted = {}
        self._small.forget()
        for path, entries in self._old_listings.items():
            known = [entry for entry in entries.values() if entry.path in self._old_listings or not _is_directory(entry)]
            self._begin_all(path, known)
        for path in self._old_listings:
            self._begin(path)
        if self._root_entry is not None and self._root_entry.kind is EntryKind.FILE:
            try:
                self._root_entry = self._look_up_root()
            except SourceError as error:
                self._warn_unknown("", error)

    def _look_up_root(self) -> Entry | None:
        with failures_named(""):
            info = attempt(lambda: self._filesystem.get_file_info(self._root), self._options)
        return self._entry("", info)

    def _listing(self, path: str) -> Listing:
        """The listing of a directory, which starts those of the directories in it. Raises SourceError."""
        future = self._begin(path)
        try:
            entries = future.result()
        except SourceError as error:
            if path not in self._old_listings:
                raise
            self._warn_unknown(path, error)
            return self._old_listings[path]
        with self._lock:
            for name in self._rejected_in.get(path, ()):  # not when it was listed ahead: only listings that are used count
                note(self.rejected, name)
        depth = path.count("/") + 2 if path else 1
        if depth <= self._ahead and not self._old_listings and not is_named_by_id(self._full(path)):
            self._begin_all(path, [entry for entry in entries.values() if not is_named_by_id(entry.name)])  # not remote stores'
        return entries

    def _begin(self, path: str) -> "Future[Listing]":
        """Start to list a directory unless that was started before."""
        with self._lock:
            if path not in self._listings:
                self._listings[path] = self._pool.submit(self._list_now, path)
            return self._listings[path]

    def _begin_all(self, path: str, entries: Iterable[Entry]) -> None:
        """List the directories among the entries of directory `path`; those of a log directory, which may be thousands, at once."""
        directories = [entry.path for entry in entries if _is_directory(entry)]
        if len(directories) < 2 or not any(map(_is_of_log_directory, entries)):
            for directory in directories:
                self._begin(directory)
            return
        with self._lock:
            waiting: dict[str, Future[Listing]] = {
                directory: Future() for directory in directories if directory not in self._listings
            }
            self._listings.update(waiting)
        if waiting:
            self._pool.submit(self._list_below, path, waiting)

    def _list_below(self, path: str, waiting: "dict[str, Future[Listing]]") -> None:
        """List everything below directory `path`, and set the `waiting` listings of directories in it; the others are listed
        separately, each with its error."""
        full, prefix = self._full(path), f"{path}/" if path else ""
        try:
            with suppress(SourceError):
                with failures_named(path):
                    found, count = attempt(
                        lambda: below(self._filesystem, full, allow_not_found=bool(self._old_listings)), self._options
                    )
                self._add_count(path, count, count)
                listings = {prefix + name: self._entries(prefix + name, infos) for name, infos in found.items() if name}
                for directory in waiting.keys() & listings.keys():
                    waiting[directory].set_result(listings[directory])
        finally:
            for directory, future in waiting.items():
                if not future.done():
                    self._pool.submit(self._list_now, directory).add_done_callback(partial(_copy_result, future))

    def _list_now(self, path: str) -> Listing:
        full, begin = self._full(path), time.monotonic()
        with failures_named(path):
            infos, count = attempt(
                lambda: list_children(self._filesystem, full, allow_not_found=bool(self._old_listings)), self._options
            )
        with self._lock:
            self.request_seconds = min(self.request_seconds, time.monotonic() - begin)
        self._add_count(path, len(infos), count)
        return self._entries(path, infos)

    def _add_count(self, path: str, count: int, service_count: int) -> None:
        """Count listed objects. Raises SourceError if they, or those of this one listing of the service, are too many."""
        with self._lock:
            self._listed_count += count
            if max(self._listed_count, service_count) > MAX_MEMBERS:  # not added: each level may list all objects below it again
                raise SourceError(path, f"more than {MAX_MEMBERS:,} objects: give the log directories as paths themselves")

    def _entries(self, path: str, infos: "Iterable[FileInfo]") -> Listing:
        """The listing of directory `path`; names that are not safe, or occur twice, are rejected."""
        full = self._full(path)
        entries: Listing = {}
        rejected = self._rejected_in[path] = []
        for info in sorted(infos, key=lambda info: (info.path, info.is_file)):
            name = _child_name(full, info.path)
            inner = (f"{path}/" if path else "") + (name or info.path[len(full) :].lstrip("/") or "/")
            entry = None if name is None else self._entry(inner, info)
            if entry is None or inner in entries:
                rejected.append(inner[:MAX_NAME])
            else:
                entries[inner] = entry
        return entries

    def _entry(self, path: str, info: "FileInfo") -> Entry | None:
        """`info` as an entry, None if nothing is there. Directories get an identity, to read each once."""
        from pyarrow.fs import FileType

        if info.type == FileType.Directory:
            digest = blake2b(f"{self._filesystem.type_name}\0{self._options.endpoint}".encode(), digest_size=7).digest()
            full = blake2b(self._full(path).encode("utf-8", "surrogateescape"), digest_size=8).digest()
            identity = (-1 - int.from_bytes(digest, "big"), int.from_bytes(full, "big"))
            return Entry(path, EntryKind.DIRECTORY, 0, 0, identity)
        if info.type == FileType.File:
            return Entry(path, EntryKind.FILE, self._size_of(path, info), info.mtime_ns or 0, None)
        return None

    def _size_of(self, path: str, info: "FileInfo") -> int:
        """Size of an object, by another request if the listing does not say. Raises SourceError if the service does not."""
        size: int | None = info.size
        if size is None:
            with failures_named(path):
                size = attempt(lambda: self._filesystem.get_file_info(info.path), self._options).size
        if size is None:
            raise SourceError(path, "the service does not report the size of this object, so its end is unknown")
        return size

    def _reader(self, path: str, listed: int) -> ObjectReader:
        return ObjectReader(self._filesystem, self._full(path), path, listed, self._options, self._is_known_etag)

    def _is_known_etag(self, path: str, etag: bytes) -> bool:
        return self._etags.setdefault(path, etag) == etag

    def _read_small(self, path: str, listed: int) -> bytes:
        """As many bytes of an object as were listed, even if it has grown since; of a large one its edges."""
        if not listed:
            return b""
        with closing(self._reader(path, listed)) as reader:
            if listed <= SMALL_OBJECT:
                return reader.part(0, listed)
            return reader.part(0, EDGE) + reader.part(listed - EDGE, EDGE)

    def _fetch_neighbours(self, path: str) -> None:
        """Start to fetch the objects of the same name in the next directories, whole if they are small, the edges of indexes."""
        directory, _, name = path.rpartition("/")
        if not directory:
            return
        for neighbour in self._next_directories(directory):
            entry = (self._finished_listing(neighbour) or {}).get(f"{neighbour}/{name}")
            if entry is not None and _is_fetched_ahead(entry) and entry.size_in_bytes:
                self._small.begin(entry.path, entry.size_in_bytes)

    def _next_directories(self, directory: str) -> "Sequence[str]":
        """Paths of the directories that follow `directory` in its parent; none if that is not listed yet."""
        parent = directory.rpartition("/")[0]
        if parent not in self._directories:
            listing = self._finished_listing(parent)
            if listing is None:
                return []
            self._directories[parent] = sorted(entry.path for entry in listing.values() if entry.kind is EntryKind.DIRECTORY)
        directories = self._directories[parent]
        index = bisect_right(directories, directory)
        return directories[index : index + NEIGHBOURS_AHEAD]

    def _finished_listing(self, path: str) -> Listing | None:
        future = self._listings.get(path)
        return future.result() if future is not None and future.done() and future.exception() is None else None

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}" if path else self._root

    def _warn_unknown(self, path: str, error: SourceError) -> None:
        where = f"{self.name}/{path}" if path else self.name
        logging.getLogger(__name__).warning("%s: it is unknown whether it changed while it was read: %s", where, error.reason)


def _allow_concurrent_requests() -> None:
    """Let pyarrow list as many directories at the same time as there are threads here; it has 8 threads for that by default."""
    import pyarrow as pa

    if pa.io_thread_count() < THREADS:
        pa.set_io_thread_count(THREADS)


def _child_name(directory: str, path: str) -> str | None:
    """The last part of the path of an object directly in `directory`; None if it is not safe, or is elsewhere."""
    prefix = directory.rstrip("/") + "/" if directory.strip("/") else directory
    name = path[len(prefix) :].rstrip("/") if path.startswith(prefix) else ""
    if not name or name in {".", ".."} or "/" in name or "\0" in name or len(name) > MAX_NAME:
        return None
    return name


def _is_directory(entry: Entry) -> bool:
    return entry.kind is EntryKind.DIRECTORY


def _is_fetched_ahead(entry: Entry) -> bool:
    """Whether it is a file that is cached after it was fetched: a small one, or an index, of which the edges are."""
    return entry.kind is EntryKind.FILE and (entry.size_in_bytes <= SMALL_OBJECT or entry.path.endswith("index"))


def _is_of_log_directory(entry: Entry) -> bool:
    """Whether it is a file that only log directories contain."""
    return entry.kind is EntryKind.FILE and (entry.name == "meta.properties" or entry.name.endswith("-offset-checkpoint"))


def _copy_result(future: "Future[Listing]", done: "Future[Listing]") -> None:
    """Set the result or error of `future` to that of `done`."""
    error = done.exception()
    if error is None:
        future.set_result(done.result())
    else:
        future.set_exception(error)


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]
