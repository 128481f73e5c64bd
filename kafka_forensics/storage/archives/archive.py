"""Archives as sources: `.tar`, plain or compressed, and `.zip`, read in place and never unpacked to disk."""

import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives.decoders import Decoder, DeflateDecoder, GzipDecoder, XzDecoder, ZstdDecoder
from kafka_forensics.storage.archives.inflate import CACHE, KEPT, InflatedStream
from kafka_forensics.storage.archives.members import (
    MAX_NAME,
    ArchiveMember,
    MemberDirectory,
    MemberFile,
    MemberTree,
    Resolved,
    Stored,
    TarPlace,
    TooManyMembersError,
    ZipPlace,
    note,
)
from kafka_forensics.storage.archives.tar import TarIndex
from kafka_forensics.storage.archives.zip import DEFLATED, ENCRYPTED, METHOD_NAMES, STORED, ZipIndex, local_record
from kafka_forensics.storage.local import DANGLING, LocalSource
from kafka_forensics.storage.source import (
    NOT_REGULAR,
    ByteFile,
    BytesFile,
    ByteSource,
    Entry,
    EntryKind,
    errors_named,
)

DECODERS: Final[dict[str, Callable[[ByteFile], Decoder]]] = {"gz": GzipDecoder, "xz": XzDecoder, "zst": ZstdDecoder}
"""Compressions of a whole tar."""
_numbers = count()


class ArchiveSource(ByteSource):
    """The members of an archive as a tree.

    Opening it reads the archive, or a zip's directory, once and in bounded memory, which then holds names, sizes and positions, and
    the smallest members of a compressed tar. `problems` says what is wrong with it; members before a truncated or damaged place are
    still listed and read. Threads may share it; processes open their own.
    """

    def __init__(self, path: str, container: ByteSource | None = None) -> None:
        super().__init__(path)
        self.container: ByteSource = LocalSource(path) if container is None else container
        """The archive as a plain file, for the manifest."""
        with errors_named(path):
            self.container_entry = self.container.stat("")
            """That file when it was opened."""
            self._file = self.container.open("")
        self._number = next(_numbers)
        self._set_tree(MemberTree())

    def _set_tree(self, tree: MemberTree) -> None:
        self._tree = tree
        self.rejected, self.replaced = tree.rejected, tree.replaced

    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name. Raises SourceError."""
        directory = self._node(path)
        if not isinstance(directory, MemberDirectory):
            raise SourceError(path, "not a directory")
        prefix = f"{path}/" if path else ""
        resolved = self._resolve(path)
        entries = [self._entry(prefix + name, node) for name, node in sorted(directory.children.items())]
        if not resolved.is_linked:
            return entries
        return [entry._replace(link=entry.link or f"{resolved.path}/{entry.name}".lstrip("/")) for entry in entries]

    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root); of a link that is followed, its target's. Raises SourceError if there is none."""
        node = self._tree.find(path)
        return self._entry(path, self._node(path) if node is None else node)

    def open(self, path: str) -> ByteFile:
        """Open regular member `path`. Raises SourceError for anything else."""
        if path in self.refused:
            raise SourceError(path, self.refused[path])
        node = self._node(path)
        if isinstance(node, MemberDirectory):
            raise SourceError(path, "is a directory")
        if node.place is None:
            raise SourceError(path, NOT_REGULAR)
        return self._open_member(path, node)

    def position_of(self, path: str) -> int:
        """The position of member `path` in the archive; 0 if it has no bytes. Raises SourceError if there is none."""
        node = self._resolve(path).node
        if node is None and self._tree.find(path) is None:
            raise SourceError(path, "no such member")
        return node.place.position if isinstance(node, ArchiveMember) and node.place is not None else 0

    @abstractmethod
    def _open_member(self, path: str, member: ArchiveMember) -> ByteFile:
        """The bytes of a regular member."""

    def _node(self, path: str) -> MemberDirectory | ArchiveMember:
        """What `path` leads to, links followed. Raises SourceError."""
        resolved = self._resolve(path)
        if resolved.node is None:
            raise SourceError(path, "no such member" if resolved.reason is None else _not_followed(resolved.reason))
        return resolved.node

    def _resolve(self, path: str) -> Resolved:
        node = self._tree.find(path)
        if isinstance(node, MemberDirectory) or (node is not None and node.kind is not EntryKind.SYMLINK):
            return Resolved(node, path)
        return self._tree.follow(path, self._target)

    def _target(self, path: str, link: ArchiveMember) -> str:
        """The target of a link; if that is not readable, a name that no member can have: the link leads nowhere."""
        if link.target is None:
            link.target = ""
            if link.place is not None and 0 < link.size_in_bytes <= MAX_NAME:
                try:
                    with self._open_member(path, link) as file:
                        link.target = file.read_at(0, link.size_in_bytes).decode("utf-8", "surrogateescape")
                except SourceError as error:
                    note(self.problems, f"{path}: {error.reason}")
        return link.target if 0 < len(link.target) <= MAX_NAME and "\0" not in link.target else "\0"

    def _entry(self, path: str, node: MemberDirectory | ArchiveMember) -> Entry:
        """The entry of a node under the name `path`; of a link that is followed, its target's."""
        if isinstance(node, MemberDirectory):
            return Entry(path, EntryKind.DIRECTORY, 0, node.mtime_ns, None)
        if node.kind is EntryKind.SYMLINK:
            resolved = self._resolve(path)
            if resolved.node is not None:
                return self._entry(path, resolved.node)._replace(link=resolved.path)
            return Entry(path, EntryKind.SYMLINK, 0, node.mtime_ns, None, refused=_not_followed(resolved.reason or DANGLING))
        extents = node.place.extents if isinstance(node.place, TarPlace) else None
        return Entry(path, node.kind, node.size_in_bytes, node.mtime_ns, None, extents.stored_bytes if extents else None)

    def _read_index(self, run: Callable[[], None]) -> None:
        """Fill the tree; after a failure the members before it stay. Raises SourceError if there are none, or too many."""
        try:
            run()
        except TooManyMembersError as error:
            raise SourceError(self.name, error.reason) from error
        except SourceError as error:
            note(self.problems, error.reason)
        if self.problems and not self._tree.root.children and not self.rejected:
            raise SourceError(self.name, f"nothing in this archive can be read: {self.problems[-1]}")


class TarSource(ArchiveSource):
    """A tar archive; `compression` is "gz", "xz", "zst", or None for a plain one. Raises SourceError if nothing can be read."""

    def __init__(self, path: str, compression: str | None = None) -> None:
        super().__init__(path)
        file = self._file
        self.seekable = compression is None
        self._bytes: Stored = file
        if compression is not None:
            decoder = DECODERS[compression]
            self._bytes = InflatedStream(lambda: decoder(file), (self._number, 0))
        index = TarIndex(self._bytes, self._tree, self.problems, None if self.seekable else KEPT)

        def run() -> None:
            index.run()
            if isinstance(self._bytes, InflatedStream) and self._bytes.broken:
                note(self.problems, self._bytes.broken)

        try:
            self._read_index(run)
        finally:
            weakref.finalize(self, _release, self._number, index.kept_bytes)

    def _open_member(self, path: str, member: ArchiveMember) -> ByteFile:
        place = member.place
        assert isinstance(place, TarPlace)
        if place.unreadable:
            raise SourceError(path, place.unreadable)
        if place.kept is not None:
            return BytesFile(place.kept)
        return MemberFile(path, member.size_in_bytes, self._bytes, place.position, place.extents)


class ZipSource(ArchiveSource):
    """A zip archive with stored and deflated members. Raises SourceError if nothing can be read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._lock = threading.Lock()
        self._streams: weakref.WeakValueDictionary[int, InflatedStream] = weakref.WeakValueDictionary()
        """Deflated members that are open, by position: two readers of one member share its snapshots."""
        self._read_index(ZipIndex(self._file, self._tree, self.problems).run)
        weakref.finalize(self, _release, self._number, 0)

    def _open_member(self, path: str, member: ArchiveMember) -> ByteFile:
        place = member.place
        assert isinstance(place, ZipPlace)
        if place.flags & ENCRYPTED:
            raise SourceError(path, "encrypted")
        if place.method not in {STORED, DEFLATED}:
            method = METHOD_NAMES.get(place.method, "unknown")
            raise SourceError(
                path, f"compressed with method {place.method} ({method}), which is not supported; supported are stored and deflated"
            )
        record = local_record(self._file, place.position)
        if record is None:
            raise SourceError(path, f"no header of this member at byte {place.position} of the archive")
        start, size = record[1], member.size_in_bytes
        if place.method == DEFLATED:
            return MemberFile(path, size, self._stream(path, size, start, place), 0)
        if place.compressed_size != size:
            raise SourceError(path, f"stored, but with {place.compressed_size} bytes in the archive and {size} bytes declared")
        return MemberFile(path, size, self._file, start)

    def _stream(self, path: str, size_in_bytes: int, start: int, place: ZipPlace) -> InflatedStream:
        file, problems = self._file, self.problems

        def report(problem: str) -> None:
            note(problems, f"{path}: {problem}")

        def decoder() -> Decoder:
            end = start + place.compressed_size
            return DeflateDecoder(file, (start, end), size_in_bytes=size_in_bytes, crc=place.crc, report=report)

        with self._lock:
            stream = self._streams.get(place.position)
            if stream is None:
                stream = self._streams[place.position] = InflatedStream(decoder, (self._number, place.position))
        return stream


def reading_order(source: ByteSource, paths: Iterable[str]) -> list[str]:
    """`paths` of files in the cheapest order to read them: by position in an archive, unchanged in other sources.

    A compressed tar read in this order is decompressed once; in any other order, possibly once per file.
    """
    return sorted(paths, key=source.position_of) if isinstance(source, ArchiveSource) else list(paths)


def _release(number: int, kept_bytes: int) -> None:
    """Free what the caches hold of an archive that is no longer used."""
    CACHE.forget(number)
    KEPT.put_back(kept_bytes)


def _not_followed(reason: str) -> str:
    return f"a link, not followed: {reason}"
