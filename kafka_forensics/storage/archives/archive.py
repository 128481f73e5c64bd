"""Archives as sources: `.tar`, plain or compressed, and `.zip`, read where they lie and never unpacked to disk."""

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives.decoders import Decoder, DeflateDecoder, GzipDecoder, XzDecoder, ZstdDecoder
from kafka_forensics.storage.archives.inflate import CACHE, KEPT, InflatedStream
from kafka_forensics.storage.archives.members import (
    MAX_NAME,
    Directory,
    HeldBytes,
    Member,
    MemberFile,
    MemberTree,
    Reached,
    Stored,
    TarPlace,
    TooManyMembersError,
    ZipPlace,
    note,
)
from kafka_forensics.storage.archives.tar import TarIndex
from kafka_forensics.storage.archives.zip import DEFLATED, ENCRYPTED, METHOD_NAMES, STORED, ZipIndex, local_record
from kafka_forensics.storage.local import DANGLING, LocalSource
from kafka_forensics.storage.source import NOT_REGULAR, ByteFile, ByteSource, Entry, EntryKind

DECODERS: Final[dict[str, Callable[[ByteFile], Decoder]]] = {"gz": GzipDecoder, "xz": XzDecoder, "zst": ZstdDecoder}
"""How the whole of a tar may be compressed."""
_numbers = count()


class ArchiveSource(ABC):
    """The members of an archive as a tree.

    Opening it reads the archive, or a zip's directory, once and in bounded memory: it holds names, sizes and places, and of a
    compressed tar the smallest members. `problems` says what is wrong with it; what stands before a cut or damaged place is
    still listed and read. Threads may share it; processes open their own.
    """

    def __init__(self, path: str, container: ByteSource | None = None) -> None:
        self.name = path
        self.problems: list[str] = []
        self.seekable = True
        self.container: ByteSource = LocalSource(path) if container is None else container
        """The archive as a plain file, for the manifest."""
        try:
            self.container_entry = self.container.stat("")
            """What that file was when it was opened."""
            self._file = self.container.open("")
        except SourceError as error:
            raise SourceError(path, error.reason) from error
        self._number = next(_numbers)
        self._tree = MemberTree()
        self.rejected = self._tree.rejected
        self.replaced = self._tree.replaced
        self.refused: dict[str, str] = {}

    def list(self, path: str = "") -> list[Entry]:
        """Entries directly below directory `path`, sorted by name. Raises SourceError."""
        directory = self._node(path)
        if not isinstance(directory, Directory):
            raise SourceError(path, "not a directory")
        prefix = f"{path}/" if path else ""
        above = self._reached(path)
        entries = [self._entry(prefix + name, node) for name, node in sorted(directory.children.items())]
        if not above.linked:
            return entries
        return [entry._replace(link=entry.link or f"{above.path}/{entry.name}".lstrip("/")) for entry in entries]

    def stat(self, path: str) -> Entry:
        """The entry at `path` ("" is the root); of a link that is followed, what is there. Raises SourceError if there is none."""
        own = self._tree.find(path)
        return self._entry(path, self._node(path) if own is None else own)

    def open(self, path: str) -> ByteFile:
        """Open regular member `path`. Raises SourceError for anything else."""
        if path in self.refused:
            raise SourceError(path, self.refused[path])
        node = self._node(path)
        if isinstance(node, Directory):
            raise SourceError(path, "is a directory")
        if node.place is None:
            raise SourceError(path, NOT_REGULAR)
        return self._open_member(path, node)

    def position_of(self, path: str) -> int:
        """Where member `path` lies in the archive; 0 for what has no bytes. Raises SourceError if there is none."""
        node = self._reached(path).node
        if node is None and self._tree.find(path) is None:
            raise SourceError(path, "no such member")
        return node.place.position if isinstance(node, Member) and node.place is not None else 0

    def close(self) -> None:
        """Give the archive's descriptor and its cached blocks back; nothing of it can be read afterwards."""
        self._file.close()
        CACHE.forget(self._number)

    @abstractmethod
    def _open_member(self, path: str, member: Member) -> ByteFile:
        """The bytes of a regular member."""

    def _node(self, path: str) -> Directory | Member:
        """What `path` means, links followed. Raises SourceError."""
        reached = self._reached(path)
        if reached.node is None:
            raise SourceError(path, "no such member" if reached.reason is None else _not_followed(reached.reason))
        return reached.node

    def _reached(self, path: str) -> Reached:
        node = self._tree.find(path)
        if isinstance(node, Directory) or (node is not None and node.kind is not EntryKind.SYMLINK):
            return Reached(node, path)
        return self._tree.follow(path, self._target)

    def _target(self, path: str, link: Member) -> str:
        """Where a link leads; nowhere if that cannot be read."""
        if link.target is None:
            link.target = ""
            if link.place is not None and 0 < link.size_in_bytes <= MAX_NAME:
                try:
                    with self._open_member(path, link) as file:
                        link.target = file.read_at(0, link.size_in_bytes).decode("utf-8", "surrogateescape")
                except SourceError as error:
                    note(self.problems, f"{path}: {error.reason}")
        # a name that no member can have, so that an empty link leads nowhere
        return link.target if 0 < len(link.target) <= MAX_NAME and "\0" not in link.target else "\0"

    def _entry(self, path: str, node: Directory | Member) -> Entry:
        """The entry of a node by the name `path`; of a link, what it leads to."""
        if isinstance(node, Directory) or node.kind is not EntryKind.SYMLINK:
            return _entry(path, node)
        reached = self._reached(path)
        if reached.node is not None:
            return _entry(path, reached.node)._replace(link=reached.path)
        return Entry(path, EntryKind.SYMLINK, 0, node.mtime_ns, None, refused=_not_followed(reached.reason or DANGLING))

    def _read_index(self, run: Callable[[], None]) -> None:
        """Fill the tree; a failure midway leaves what came before it. Raises SourceError if that is nothing, or too much."""
        try:
            run()
        except TooManyMembersError as error:
            raise SourceError(self.name, error.reason) from error
        except SourceError as error:
            note(self.problems, error.reason)
        if self.problems and not self._tree.root.children and not self.rejected:
            raise SourceError(self.name, f"nothing can be read of this archive: {self.problems[-1]}")


class TarSource(ArchiveSource):
    """A tar archive; `compression` is "gz", "xz", "zst", or None for a plain one. Raises SourceError if nothing can be read."""

    def __init__(self, path: str, compression: str | None = None) -> None:
        super().__init__(path)
        self.seekable = compression is None
        self._whole: Stored = self._file
        if compression is not None:
            self._whole = _inflated(self._file, DECODERS[compression], self._number)
        index = TarIndex(self._whole, self._tree, self.problems, None if self.seekable else KEPT)
        try:
            self._read_index(lambda: self._run(index))
        finally:
            weakref.finalize(self, _release, self._number, index.kept_bytes)

    def _run(self, index: TarIndex) -> None:
        index.run()
        if isinstance(self._whole, InflatedStream) and self._whole.broken:
            note(self.problems, self._whole.broken)

    def _open_member(self, path: str, member: Member) -> ByteFile:
        place = member.place
        assert isinstance(place, TarPlace)
        if place.unreadable:
            raise SourceError(path, place.unreadable)
        if place.kept is not None:
            return MemberFile(path, member.size_in_bytes, HeldBytes(place.kept), 0)
        return MemberFile(path, member.size_in_bytes, self._whole, place.position, place.extents)


class ZipSource(ArchiveSource):
    """A zip archive with stored and deflated members. Raises SourceError if nothing can be read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._lock = threading.Lock()
        self._streams: weakref.WeakValueDictionary[int, InflatedStream] = weakref.WeakValueDictionary()
        """Of the deflated members that are open, by position: two readers of one member share its snapshots."""
        self._read_index(ZipIndex(self._file, self._tree, self.problems).run)
        weakref.finalize(self, _release, self._number, 0)

    def _open_member(self, path: str, member: Member) -> ByteFile:
        place = member.place
        assert isinstance(place, ZipPlace)
        if place.flags & ENCRYPTED:
            raise SourceError(path, "encrypted")
        if place.method not in {STORED, DEFLATED}:
            method = METHOD_NAMES.get(place.method, "unknown")
            raise SourceError(path, f"compressed with method {place.method} ({method}), which is not read; stored and deflated are")
        record = local_record(self._file, place.position)
        if record is None:
            raise SourceError(path, f"no header of this member at byte {place.position} of the archive")
        start = record[1]
        if place.method == DEFLATED:
            return MemberFile(path, member.size_in_bytes, self._stream(path, member.size_in_bytes, start, place), 0)
        if place.compressed_size != member.size_in_bytes:
            raise SourceError(
                path, f"stored, but of {place.compressed_size} bytes in the archive and {member.size_in_bytes} outside"
            )
        return MemberFile(path, member.size_in_bytes, self._file, start)

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
    """`paths` of files in the order in which reading them costs least: as they lie in an archive, as given elsewhere.

    A compressed tar read in this order is inflated once; in any other, perhaps once for every file.
    """
    return sorted(paths, key=source.position_of) if isinstance(source, ArchiveSource) else list(paths)


def _inflated(file: ByteFile, decoder: Callable[[ByteFile], Decoder], number: int) -> InflatedStream:
    return InflatedStream(lambda: decoder(file), (number, 0))


def _release(number: int, kept_bytes: int) -> None:
    """An archive is gone: make room in the caches."""
    CACHE.forget(number)
    KEPT.give_back(kept_bytes)


def _not_followed(reason: str) -> str:
    return f"a link, not followed: {reason}"


def _entry(path: str, node: Directory | Member) -> Entry:
    if isinstance(node, Directory):
        return Entry(path, EntryKind.DIRECTORY, 0, node.mtime_ns, None)
    extents = node.place.extents if isinstance(node.place, TarPlace) else None
    return Entry(path, node.kind, node.size_in_bytes, node.mtime_ns, None, None if extents is None else extents.stored_bytes)
