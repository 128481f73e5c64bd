"""Opens what a user typed as a source, and records what was read, to notice changes."""

import errno
import hashlib
import json
import os
import re
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kafka_forensics.errors import PathMissingError, SourceError, UsageError, nearest
from kafka_forensics.storage.archives import ArchiveSource, TarSource, ZipSource, container_of
from kafka_forensics.storage.bundles import SUFFIX, BundleSource
from kafka_forensics.storage.code_cache import exclude_input
from kafka_forensics.storage.local import LocalSource, Roots, directory_kept_open
from kafka_forensics.storage.source import (
    URI,
    ByteFile,
    ByteSource,
    Entry,
    EntryKind,
    ListedSource,
    NotRegularError,
    path_in,
    place_of,
)
from kafka_forensics.storage.tiered import LAYOUTS, DecodedStore, layout_of

if TYPE_CHECKING:
    from kafka_forensics.storage.remote import OptionsArgument, StorageOptions

Opener = Callable[[str], ByteSource]

ARCHIVES: Final[dict[str, Opener]] = {
    ".tar": TarSource,
    ".tar.gz": lambda path: TarSource(path, "gz"),
    ".tgz": lambda path: TarSource(path, "gz"),
    ".tar.xz": lambda path: TarSource(path, "xz"),
    ".txz": lambda path: TarSource(path, "xz"),
    ".tar.zst": lambda path: TarSource(path, "zst"),
    ".tzst": lambda path: TarSource(path, "zst"),
    ".zip": ZipSource,
    SUFFIX: BundleSource,
}
"""How a regular file is opened, by the end of its name."""
OTHER_CONTAINERS: Final = (
    *(".tar.bz2", ".tbz", ".tbz2", ".tar.lz", ".tar.lz4", ".tar.lzma", ".tar.z"),
    *(".7z", ".rar", ".gz", ".xz", ".zst", ".bz2"),
)
"""Ends of names that Kafka never uses: such a file is refused, and not read as a segment."""
SCHEMES: Final[dict[str, Opener]] = {"file": lambda uri: open_source(_path_of_file_uri(uri))}
"""How a URI of a file of this machine is opened, by its scheme; all other schemes are storage services (`remote.open`)."""
_ONE_SLASH: Final = re.compile(r"(?:(file|dbfs):|dbfs://(?=/))(/(?!/).*)", re.IGNORECASE | re.DOTALL)
"""Paths in the form of Hadoop and Databricks; fsspec opens `dbfs:///` if nothing is mounted."""
DBFS: Final = "/dbfs"
"""Mount point of Databricks' file system."""
VOLUMES: Final = "/Volumes"
"""Mount point of the volumes of Unity Catalog, also called `dbfs:/Volumes`."""
_MAX_SIBLINGS: Final = 10_000
"""Names considered for a hint."""


def open_source(path: str, storage_options: "OptionsArgument" = None) -> ByteSource:
    """The evidence at `path`: a directory, a file, an archive (a regular file named like one), or a URI.

    No compiled kernels are kept inside or above it afterwards, or loaded from there. `storage_options` of storage services default
    to the environment's. Raises PathMissingError; UsageError for a URI that cannot be opened; SourceError for what cannot be read.
    """
    if not path or "\0" in path:
        hint = "name a log directory, a folder of them, a partition directory, a file, an archive or a URI"
        raise UsageError("an empty path" if not path else "a path with a NUL character", hint=hint)
    path = local_spelling(path)
    uri = URI.match(path)
    if uri is not None and not os.path.lexists(path):
        return _open_uri(path, uri[1].lower(), storage_options)
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            raise _missing(path) from error
        raise SourceError(path, (error.strerror or str(error)).lower()) from error
    exclude_input(path)
    if stat.S_ISDIR(mode):
        return LocalSource(path)
    if not stat.S_ISREG(mode):
        raise NotRegularError(path, "neither a regular file nor a directory; a pipe must be saved to a file first")
    name = os.path.basename(path).lower()
    for suffix, opener in ARCHIVES.items():
        if name.endswith(suffix):
            if suffix != SUFFIX:
                _require_named_kind(path, name)
            return opener(path)
    if name.endswith(OTHER_CONTAINERS):
        raise SourceError(path, f"an unsupported container; supported are {', '.join(ARCHIVES)}")
    return LocalSource(path)


def local_spelling(path: str) -> str:
    """The path on this machine of `file:/path` or `dbfs:/path`; any other path unchanged.

    Raises UsageError for a `dbfs:/` path if Databricks mounts nothing.
    """
    match = _ONE_SLASH.fullmatch(path)
    if match is None or os.path.lexists(path):
        return path
    inner = match[2]
    if (match[1] or "").lower() == "file":
        return inner if os.path.lexists(inner) else unquote(inner, errors="surrogateescape")
    in_volume = f"{inner}/".startswith(f"{VOLUMES}/")
    mount = VOLUMES if in_volume else DBFS
    if not os.path.isdir(mount):
        if match[1] is None:
            return path
        hint = "outside Databricks give the storage path, such as s3://bucket/path or abfss://container@account/path"
        raise UsageError(f"{path}: dbfs:/ is read as files below {mount}, and there is no {mount} here", hint=hint)
    return inner if in_volume else f"{mount}{inner}"


def expand_patterns(path: str, storage_options: "OptionsArgument" = None) -> "list[tuple[str, StorageOptions | None]]":
    """(path, options): the matches of a pattern in a URI, without credentials; else `path` itself."""
    path = local_spelling(path)
    uri = URI.match(path)
    if uri is None or uri[1].lower() in SCHEMES or os.path.lexists(path):
        return [(path, None)]
    from kafka_forensics.storage.remote import expand, storage_options as gathered

    return list(expand(path, gathered(storage_options, uri=path)))


def follow_links_between(sources: "Iterable[ByteSource]") -> None:
    """Let links in each local source lead to all other local sources."""
    local = [source for source in sources if isinstance(source, LocalSource)]
    roots = Roots([source.name for source in local])
    for source in local:
        source.set_roots(roots)


def address_of(source: ByteSource) -> str:
    """An address for `open_address` in another process: the path, and what it needs to read the same files by the same names."""
    if isinstance(source, DecodedStore):
        return "\0" + json.dumps({"layout": source.layout.name, "stored": address_of(source.stored)})
    path = place_of(source)
    roots = sorted(source.roots_used) if isinstance(source, LocalSource) else []
    if "://" in path or not (roots or source.refused):
        return path
    return "\0" + json.dumps({"path": path, "roots": roots, "refused": source.refused})


def open_address(place: str, storage_options: "OptionsArgument" = None) -> ByteSource:
    """Open the source with this address (`address_of`). Raises as `open_source` does."""
    if not place.startswith("\0"):
        return open_source(place, storage_options)
    fields = json.loads(place[1:])
    if "layout" in fields:
        layout = next(layout for layout in LAYOUTS if layout.name == fields["layout"])
        return DecodedStore(open_address(fields["stored"], storage_options), layout)
    source = open_source(fields["path"])
    source.refused.update(fields["refused"])
    if isinstance(source, LocalSource):
        source.set_roots(Roots([fields["path"], *fields["roots"]]))
        source.roots_used.update(fields["roots"])
    return source


def path_of_address(address: str) -> str:
    """The path or URI in an address (`address_of`)."""
    if not address.startswith("\0"):
        return address
    fields = json.loads(address[1:])
    return path_of_address(fields["stored"]) if "stored" in fields else str(fields["path"])


def open_parent(source: ByteSource) -> ByteSource:
    """The directory of a source that is one file. Raises PathMissingError and SourceError, here or when it is read."""
    from kafka_forensics.storage.remote import RemoteSource

    if isinstance(source, RemoteSource):
        return source.beside()
    return LocalSource(
        os.path.dirname(os.path.abspath(source.name))
    )  # not an input, so kernels may be kept in it: it may be the user's home directory


def place_of_log(source: ByteSource) -> tuple[ByteSource, str]:
    """The source and the path in it by which a source that is one `.log` is read: of an object of a remote store, with the bytes
    that the broker copied. Raises PathMissingError and SourceError, here or when it is read."""
    place = place_of(source)
    layout = layout_of(place)
    if layout is None or layout.is_plain:
        return source, ""
    return DecodedStore(open_parent(source), layout), place.rpartition("/")[2]


def local_path(location: str) -> str | None:
    """The path on this machine of a path or a `file:` URI; None for a URI of a storage service.

    Raises UsageError for a file URI of another host, and for a `dbfs:/` path if Databricks mounts nothing.
    """
    path = local_spelling(location)
    uri = URI.match(path)
    if uri is None or os.path.lexists(path):
        return path
    return _path_of_file_uri(path) if uri[1].lower() in SCHEMES else None


def _require_named_kind(path: str, name: str) -> None:
    """Raise UsageError if an archive is, by its bytes, of another kind than its (lower-case) name says."""
    container = container_of(LocalSource(path))
    if container is not None and not name.endswith(container.ends):
        readable = [end for end in container.ends if end in ARCHIVES]
        hint = f"rename it to end in {' or '.join(readable)}" if readable else f"supported are {', '.join(ARCHIVES)}"
        raise UsageError(f"{path}: it holds {container.words}, but its name has another ending", hint=hint)


def _open_uri(uri: str, scheme: str, storage_options: "OptionsArgument") -> ByteSource:
    if (opener := SCHEMES.get(scheme)) is not None:
        return opener(uri)
    if scheme == "local":
        exclude_input(_path_of_file_uri(uri.replace(uri[: len(scheme)], "file", 1)))
    from kafka_forensics.storage.remote import open_remote, storage_options as gathered

    source = open_remote(uri, gathered(storage_options, uri=uri))
    name = source.name.lower()
    if name.endswith(SUFFIX) and source.stat("").kind is EntryKind.FILE:
        return BundleSource(source.name, source)
    if name.endswith((*ARCHIVES, *OTHER_CONTAINERS)) and source.stat("").kind is EntryKind.FILE:
        raise UsageError(f"{source.name}: archives are read only from local disks", hint="copy it here first, or unpack it there")
    return source


def _path_of_file_uri(uri: str) -> str:
    """The path in `file:///path` (RFC 8089). Raises UsageError if it names another host."""
    host, slash, path = uri[len("file://") :].partition("/")
    if host not in {"", "localhost"} or not slash:
        raise UsageError(f"{uri}: a file URI looks like file:///directory/file", hint="three slashes and no host")
    return "/" + unquote(path, errors="surrogateescape")


def _missing(path: str) -> PathMissingError:
    """The error for a missing path, with the most similar existing one."""
    if os.path.islink(path):
        dangling = f"{path}: a symbolic link to {os.readlink(path)}, which does not exist"
        return PathMissingError(dangling, hint="give the path of its target")
    missing = path.rstrip("/") or path
    while (parent := os.path.dirname(missing)) and parent != missing and not os.path.isdir(parent):
        missing = parent
    try:
        with os.scandir(parent or ".") as entries:
            names = [item.name for item in islice(entries, _MAX_SIBLINGS)]
    except OSError:
        names = []
    near = nearest(os.path.basename(missing), sorted(names))
    hint = f"did you mean {os.path.join(parent, near)}?" if near else None
    if not os.path.isabs(path) and os.path.lexists(f"/{path}"):
        hint = f"did you mean /{path}?"
    elif missing == VOLUMES:
        hint = f"volumes of Unity Catalog are at {VOLUMES} on Databricks alone, where Spark's Python runs"
    if hint is None and missing != path.rstrip("/"):
        hint = f"{missing} does not exist either"
    return PathMissingError(f"{path}: no such file or directory", hint=hint)


def back_end_counts(sources: Iterable[ByteSource]) -> list[str]:
    """The back ends of these sources, each with its number of sources: `local files (3)`, `tar.xz archives (1)`."""
    counts = Counter(map(_backend, sources))
    return [f"{name} ({count})" for name, count in sorted(counts.items())]


def _backend(source: ByteSource) -> str:
    if isinstance(source, LocalSource):
        return "local files"
    if isinstance(source, BundleSource):
        return "bundles"
    if isinstance(source, ArchiveSource):
        ending = next((ending for ending in sorted(ARCHIVES, key=len, reverse=True) if source.name.lower().endswith(ending)), "")
        return f"{ending.lstrip('.')} archives".lstrip()
    backend = getattr(source, "backend", None)
    scheme = source.name.partition("://")[0] if "://" in source.name else "paths that could not be opened"
    return scheme if backend is None else f"{scheme} by {backend}"


_READ: Final = 1 << 20


class Manifest:
    """Size, modification time and identity of every file read, when it was first seen; threads may share it.

    Files have their paths as the user would type them. An archive is recorded as one file, without its members.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[ByteSource, Entry]] = {}
        """(name of the source, path in it) → file."""

    def record(self, source: ByteSource, *entries: Entry) -> None:
        """Record `entries` of `source`, unless they were recorded before."""
        name = source.name
        if isinstance(source, ArchiveSource):
            entries, source = (source.container_entry,), source.container
        with self._lock:
            for entry in entries:
                self._seen.setdefault((name, entry.path), (source, entry))

    def entries(self) -> list[tuple[str, Entry]]:
        """(path, entry at first sight) of every file, sorted by path; of a path in two sources, the one recorded first."""
        entries: dict[str, Entry] = {}
        with self._lock:
            for place, (_, entry) in self._seen.items():
                entries.setdefault(path_in(*place), entry)
        return sorted(entries.items(), key=itemgetter(0))

    @property
    def count(self) -> int:
        """Files recorded."""
        return len(self._seen)

    def files(self, first: int = 0) -> list[tuple[ByteSource, Entry]]:
        """(source, entry) of the files after the `first` ones recorded, for `record` in another process; sorted by path."""
        with self._lock:
            return [file for _, file in sorted(islice(self._seen.items(), first, None), key=lambda item: path_in(*item[0]))]

    def changes(self) -> list[tuple[str, Entry, Entry | None]]:
        """(path, entry at first sight, current entry or None if it is missing) of every file that changed, sorted by path."""
        by_directory: dict[tuple[str, str], list[tuple[ByteSource, Entry]]] = {}
        with self._lock:
            for (name, path), file in self._seen.items():
                by_directory.setdefault((name, path.rpartition("/")[0]), []).append(file)
        sources = {id(files[0][0]): files[0][0] for files in by_directory.values()}
        for listed in sources.values():
            if isinstance(listed, ListedSource):
                listed.forget_listings()
        changed: dict[str, tuple[Entry, Entry | None]] = {}
        for (name, directory), files in by_directory.items():
            with directory_kept_open(files[0][0], directory):
                current = [source.stat_or_none(entry.path) for source, entry in files]
            for (_, before), after in zip(files, current, strict=True):
                if after is None or (after != before and _identifying_fields(after) != _identifying_fields(before)):
                    changed.setdefault(path_in(name, before.path), (before, after))
        return [(path, *changed[path]) for path in sorted(changed)]


def sha256(source: ByteSource, path: str) -> str:
    """SHA-256 of regular file `path` of `source` in hexadecimal. Raises SourceError."""
    with source.open(path) as file:
        return sha256_of(file)


def sha256_of(file: ByteFile, start: int = 0, end: int | None = None) -> str:
    """SHA-256 of a file in hexadecimal, or of bytes `[start, end)` of it. Raises SourceError."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_READ))
    while (requested := _READ if end is None else min(end - start, _READ)) > 0 and (
        count := file.read_into(start, buffer[:requested])
    ):
        digest.update(buffer[:count])
        start += count
    return digest.hexdigest()


def _identifying_fields(entry: Entry) -> tuple[object, ...]:
    """The fields that must not change; allocated bytes may, when a file system writes back or compresses."""
    return entry.kind, entry.size_in_bytes, entry.mtime_ns, entry.identity, entry.link
