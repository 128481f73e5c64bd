"""Directories and objects of a storage service as evidence, through any file system of `pyarrow.fs`.

Names of objects come from outside and are believed in nothing: what makes no safe path is `rejected`, as in archives. Every
directory is listed once, those below it ahead on threads, and all that lies below a log directory at once; sizes and times are
those of the listing until it is forgotten.
"""

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives import MAX_MEMBERS, MAX_NAME, HeldBytes, MemberFile, note
from kafka_forensics.storage.remote.errors import Answer, RequestFailedError, attempt, source_error
from kafka_forensics.storage.remote.file import EDGE, SMALL_OBJECT, EdgedObject, ObjectReader, RemoteFile, SmallObjects
from kafka_forensics.storage.remote.options import StorageOptions
from kafka_forensics.storage.source import ByteFile, Entry, EntryKind

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


# What lies directly in a directory of a storage service, also where pyarrow tells of half of it.


def children(filesystem: "FileSystem", directory: str, *, allow_not_found: bool) -> "tuple[list[FileInfo], int]":
    """Objects and directories directly in `directory`, in no order, and of how many the service told for that.

    Raises OSError, as the file system does.

    On Google's storage pyarrow names only directories that have a marker object, which `gsutil` and most others do not make
    (Arrow's issue 35993). So there everything below is listed, and the directories are worked out from the objects' names.
    """
    from pyarrow.fs import FileInfo, FileSelector, FileType

    if filesystem.type_name != "gcs":
        infos = filesystem.get_file_info(FileSelector(directory, recursive=False, allow_not_found=allow_not_found))
        return infos, len(infos)
    prefix = directory.rstrip("/") + "/"
    direct, directories = [], set()
    infos = filesystem.get_file_info(FileSelector(directory, recursive=True, allow_not_found=allow_not_found))
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
    """What lies directly in `directory` ("") and in every directory below it, by its path from there, and of how many objects.

    One listing, whatever number of directories: services list by names, a thousand an answer. Raises OSError, as the file system
    does.
    """
    from pyarrow.fs import FileInfo, FileSelector, FileType

    prefix = directory.rstrip("/") + "/"
    found: dict[str, list[FileInfo]] = {"": []}
    infos = filesystem.get_file_info(FileSelector(directory, recursive=True, allow_not_found=allow_not_found))
    for info in infos:
        path = info.path.removeprefix(prefix)
        above = path if info.type == FileType.Directory else _above(path)
        while above not in found:  # a service does not tell of all directories
            found[above] = []
            above = _above(above)
        if info.type != FileType.Directory:
            found[_above(path)].append(info)
    for path in [path for path in found if path]:
        found[_above(path)].append(FileInfo(prefix + path, FileType.Directory))
    return found, len(infos)


def _above(path: str) -> str:
    """The directory of `path`; of a name that begins with a slash one without a name, which is none that is read."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") and path != "/" else "")


THREADS: Final = 16
"""Requests under way at once for one source."""
LISTED_AHEAD: Final = 4
"""Levels below the root whose directories are listed before they are asked for: as deep as log directories are looked for."""
NEIGHBOURS_AHEAD: Final = 16
"""Directories in which the small object of the same name is fetched ahead: a scan reads them in that order."""


class RemoteSource:
    """A directory (prefix) or one object of a storage service; an object's path in the source is "".

    `name` is the URI without credentials; `root` the path in `filesystem`. Threads may share it. Errors carry the path below the
    root, as entries do. Directories down to `ahead` levels below the root are listed before they are asked for. Raises SourceError
    if the root cannot be looked at; nothing being there is no error (`is_missing`).
    """

    def __init__(
        self, name: str, filesystem: "FileSystem", root: str, options: StorageOptions | None = None, ahead: int = LISTED_AHEAD
    ) -> None:
        self.name = name
        self.seekable = True
        self.rejected: list[str] = []
        self.replaced: list[str] = []
        self.problems: list[str] = []
        self.refused: dict[str, str] = {}
        self._filesystem = filesystem
        self._root = root
        self._options = options or StorageOptions()
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="storage")
        self._lock = threading.Lock()
        self._listings: dict[str, Future[dict[str, Entry]]] = {}
        self._known: dict[str, dict[str, Entry]] = {}
        self._believed: dict[str, Entry] = {}
        self._directories: dict[str, Sequence[str]] = {}
        self._refused: dict[str, list[str]] = {}
        self._small = SmallObjects(self._pool, self._read_small)
        self._etags: dict[str, bytes] = {}
        self._count = 0
        begin = time.monotonic()
        self._stat_root: Entry | None = self._root_entry()
        self.request_seconds = time.monotonic() - begin
        """What the quickest request took: the first finds and greets the service."""

    @property
    def is_missing(self) -> bool:
        """Whether nothing is at the root."""
        return self._stat_root is None

    @property
    def backend(self) -> str:
        """The name of the file system's class: pyarrow's own, or the adapter of fsspec's."""
        return type(self._filesystem).__name__

    def beside(self) -> "RemoteSource":
        """The directory in which the root lies. Raises SourceError."""
        return RemoteSource(_parent(self.name), self._filesystem, _parent(self._root), self._options, ahead=0)

    def at(self, root: str) -> "RemoteSource":
        """Another place in the same file system, not listed ahead. Raises SourceError."""
        return RemoteSource(f"{self.name.partition('://')[0]}://{root}", self._filesystem, root, self._options, ahead=0)

    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name; none for a root that is an object. Raises SourceError."""
        if not path and self._stat_root is not None and self._stat_root.kind is EntryKind.FILE:
            return []
        _require_inside(path)
        return sorted(self._listing(path).values(), key=lambda entry: entry.path)

    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root), as the listing told it. Raises SourceError if there is none."""
        if not path:
            entry = self._stat_root
        else:
            _require_inside(path)
            entry = self._listing(path.rpartition("/")[0]).get(path)
        if entry is None:
            raise SourceError(path, "no such object or directory")
        return entry

    def open(self, path: str) -> ByteFile:
        """Open object `path` ("" is a root that is one). Raises SourceError for anything else, and if it became shorter."""
        entry = self._believed.get(path) or self.stat(path)
        if entry.kind is EntryKind.DIRECTORY:
            raise SourceError(path, "is a directory")
        size = entry.size_in_bytes
        if _is_fetched_ahead(entry):
            self._begin_neighbours(path)
            data = self._small.bytes_of(path, size)
            if size <= SMALL_OBJECT:
                return MemberFile(path, len(data), HeldBytes(data), 0)
            edges = EdgedObject(size, data, partial(self._reader, path, size))
            return RemoteFile(path, edges, self._pool, self._options.block_mib << 20)
        return RemoteFile(path, self._reader(path, size), self._pool, self._options.block_mib << 20)

    def believe(self, entries: Iterable[Entry]) -> None:
        """Files were listed elsewhere as these entries: to open one nothing need be listed here."""
        self._believed.update((entry.path, entry) for entry in entries)

    def forget_listings(self) -> None:
        """Look at everything again from now on; what was listed before is listed anew on threads.

        Where that fails, the entries stay as they were, and a warning says so: not to know is no sign of a change.
        """
        with self._lock:
            done = {path: future for path, future in self._listings.items() if future.done() and future.exception() is None}
            self._known = {path: future.result() for path, future in done.items()}
            self._listings = {}
            self._directories = {}
            self._count = 0
        self._believed = {}
        self._small.forget()
        for path, entries in self._known.items():
            self._begin_all(path, [entry for entry in entries.values() if entry.path in self._known or not _is_directory(entry)])
        for path in self._known:
            self._begin(path)
        if self._stat_root is not None and self._stat_root.kind is EntryKind.FILE:
            try:
                self._stat_root = self._root_entry()
            except SourceError as error:
                self._unknown_now("", error)

    def _root_entry(self) -> Entry | None:
        info = self._answer("", lambda: self._filesystem.get_file_info(self._root))
        return self._entry("", info)

    def _listing(self, path: str) -> dict[str, Entry]:
        """Entries of a directory by path."""
        future = self._begin(path)
        try:
            entries = future.result()
        except SourceError as error:
            if path not in self._known:
                raise
            self._unknown_now(path, error)
            return self._known[path]
        with self._lock:
            for name in self._refused.get(path, ()):  # now, and not when it was listed ahead: what is asked for decides
                note(self.rejected, name)
        depth = path.count("/") + 2 if path else 1
        if depth <= self._ahead and not self._known:
            self._begin_all(path, entries.values())
        return entries

    def _begin(self, path: str) -> "Future[dict[str, Entry]]":
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
            waiting: dict[str, Future[dict[str, Entry]]] = {
                directory: Future() for directory in directories if directory not in self._listings
            }
            self._listings.update(waiting)
        if waiting:
            self._pool.submit(self._list_below, path, waiting)

    def _list_below(self, path: str, waiting: "dict[str, Future[dict[str, Entry]]]") -> None:
        """List all that lies below directory `path`, for directories in it that are waited for. Where that fails, and what it does
        not tell of, each is asked for by itself, and then has an error of its own."""
        try:
            with suppress(SourceError):
                for directory, entries in self._below_now(path).items():
                    if directory in waiting:
                        waiting[directory].set_result(entries)
        finally:
            for directory, future in waiting.items():
                if not future.done():
                    self._pool.submit(self._list_now, directory).add_done_callback(partial(_hand_on, future))

    def _below_now(self, path: str) -> dict[str, dict[str, Entry]]:
        """Entries of all directories below `path`, by the directory's path."""
        full = self._full(path)
        found, count = self._answer(path, lambda: below(self._filesystem, full, allow_not_found=bool(self._known)))
        self._count_in(path, count, count)
        inside = f"{path}/" if path else ""
        return {inside + name: self._entries(inside + name, infos) for name, infos in found.items() if name}

    def _list_now(self, path: str) -> dict[str, Entry]:
        full, begin = self._full(path), time.monotonic()
        infos, entry_count = self._answer(path, lambda: children(self._filesystem, full, allow_not_found=bool(self._known)))
        with self._lock:
            self.request_seconds = min(self.request_seconds, time.monotonic() - begin)
        self._count_in(path, len(infos), entry_count)
        return self._entries(path, infos)

    def _count_in(self, path: str, count: int, told: int) -> None:
        """Count what was listed. Raises SourceError where that, or what the service `told` of for it, is too much."""
        with self._lock:
            self._count += count
            if max(self._count, told) > MAX_MEMBERS:  # not added up: each level may tell again of what lies below
                raise SourceError(path, f"more than {MAX_MEMBERS:,} objects: give the log directories as paths themselves")

    def _entries(self, path: str, infos: "Iterable[FileInfo]") -> dict[str, Entry]:
        """What was listed of directory `path` as entries by path; what has no safe name, or one that is there, is refused."""
        full = self._full(path)
        entries: dict[str, Entry] = {}
        refused = self._refused[path] = []
        for info in sorted(infos, key=lambda info_listed: (info_listed.path, info_listed.is_file)):
            name = _child_name(full, info.path)
            inner = (f"{path}/" if path else "") + (name or info.path[len(full) :].lstrip("/") or "/")
            entry = None if name is None else self._entry(inner, info)
            if entry is None or inner in entries:
                refused.append(inner[:MAX_NAME])
            else:
                entries[inner] = entry
        return entries

    def _entry(self, path: str, info: "FileInfo") -> Entry | None:
        """`info` as an entry; None for what is not there. Directories have an identity, so that none is read twice."""
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
        """Bytes of an object, asked for where the listing does not tell. Raises SourceError if nobody knows."""
        size: int | None = info.size
        if size is None:
            size = self._answer(path, lambda: self._filesystem.get_file_info(info.path)).size
        if size is None:
            raise SourceError(path, "the service does not tell how large this object is, so its end cannot be known")
        return size

    def _reader(self, path: str, listed: int) -> ObjectReader:
        return ObjectReader(self._filesystem, self._full(path), path, listed, self._options, self._is_known)

    def _is_known(self, path: str, etag: bytes) -> bool:
        return self._etags.setdefault(path, etag) == etag

    def _read_small(self, path: str, listed: int) -> bytes:
        """All bytes of an object, as many as were listed; one that has grown since gives those only. Of a large one its edges."""
        if not listed:
            return b""
        with closing(self._reader(path, listed)) as reader:
            if listed <= SMALL_OBJECT:
                return reader.part(0, listed)
            return reader.part(0, EDGE) + reader.part(listed - EDGE, EDGE)

    def _begin_neighbours(self, path: str) -> None:
        """Fetch the objects of the same name in the next directories ahead, if they are small, or of indexes the edges."""
        directory, _, name = path.rpartition("/")
        if not directory:
            return
        above = directory.rpartition("/")[0]
        for neighbour in self._next_directories(above, directory):
            listed = self._listings.get(neighbour)
            if listed is None or not listed.done() or listed.exception() is not None:
                continue
            entry = listed.result().get(f"{neighbour}/{name}")
            if entry is not None and _is_fetched_ahead(entry) and entry.size_in_bytes:
                self._small.begin(entry.path, entry.size_in_bytes)

    def _next_directories(self, above: str, directory: str) -> "Sequence[str]":
        """Paths of the directories that follow `directory` among those directly below `above`, as far as they are listed."""
        if above not in self._directories:
            listed = self._listings.get(above)
            if listed is None or not listed.done() or listed.exception() is not None:
                return []
            entries = listed.result().values()
            self._directories[above] = sorted(entry.path for entry in entries if entry.kind is EntryKind.DIRECTORY)
        directories = self._directories[above]
        at = bisect_right(directories, directory)
        return directories[at : at + NEIGHBOURS_AHEAD]

    def _answer(self, path: str, ask: Callable[[], Answer]) -> Answer:
        try:
            return attempt(ask, self._options)
        except RequestFailedError as error:
            raise source_error(path, error.failure) from None

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}" if path else self._root

    def _unknown_now(self, path: str, error: SourceError) -> None:
        where = f"{self.name}/{path}" if path else self.name
        logging.getLogger(__name__).warning("%s: whether it changed meanwhile is not known: %s", where, error.reason)


def _child_name(directory: str, path: str) -> str | None:
    """The last part of what lies directly in `directory`; None for a name that is none, or leads elsewhere."""
    prefix = directory.rstrip("/") + "/" if directory.strip("/") else directory
    name = path[len(prefix) :].rstrip("/") if path.startswith(prefix) else ""
    if not name or name in {".", ".."} or "/" in name or "\0" in name or len(name) > MAX_NAME:
        return None
    return name


def _is_directory(entry: Entry) -> bool:
    return entry.kind is EntryKind.DIRECTORY


def _is_fetched_ahead(entry: Entry) -> bool:
    """Whether it is a file that is held once it was fetched: all of a small one, the edges of an index."""
    return entry.kind is EntryKind.FILE and (entry.size_in_bytes <= SMALL_OBJECT or entry.path.endswith("index"))


def _is_of_log_directory(entry: Entry) -> bool:
    """Whether such a file lies in log directories alone."""
    return entry.kind is EntryKind.FILE and (entry.name == "meta.properties" or entry.name.endswith("-offset-checkpoint"))


def _hand_on(future: "Future[dict[str, Entry]]", done: "Future[dict[str, Entry]]") -> None:
    """Let whoever waits for `future` have what `done` gave."""
    error = done.exception()
    if error is None:
        future.set_result(done.result())
    else:
        future.set_exception(error)


def _require_inside(path: str) -> None:
    if "\0" in path or (path and any(part in {"", ".", ".."} for part in path.split("/"))):
        raise SourceError(path, "not a path below the root")


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]
