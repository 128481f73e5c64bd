"""A file and a tree in memory with the interfaces of `kafka_forensics.storage`, for tests of the packages above it."""

from collections.abc import Iterable, Mapping

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.source import ByteFile, ByteSource, Entry, EntryKind


class MemoryFile(ByteFile):
    """A `ByteFile` over `content`; `ranges` are the data ranges it reports, as a sparse file does (default: the whole file).

    Tests check the limits of a reader by `bytes_read` and `furthest_byte`.
    """

    def __init__(self, content: bytes, ranges: Iterable[tuple[int, int]] | None = None, size_in_bytes: int | None = None) -> None:
        self.content = content
        self.closed = False
        self.bytes_read = 0
        self.furthest_byte = 0
        self.size_in_bytes = len(content) if size_in_bytes is None else size_in_bytes
        """Past `content` the file is a hole."""
        self._ranges = None if ranges is None else list(ranges)

    def read_at(self, position: int, size: int) -> bytes:
        assert position >= 0
        assert size >= 0
        end = min(position + size, self.size_in_bytes)
        data = self.content[position:end]
        data += bytes(max(0, end - position - len(data)))
        self.bytes_read += len(data)
        self.furthest_byte = max(self.furthest_byte, position + len(data))
        return data

    def data_ranges(self) -> list[tuple[int, int]]:
        return super().data_ranges() if self._ranges is None else list(self._ranges)

    def close(self) -> None:
        self.closed = True


class MemorySource(ByteSource):
    """A `ByteSource` over `files` (path → content); with the single path "" the root is a file.

    `kinds` adds entries that are not regular files (empty directories, symlinks, FIFOs); `unreadable` lists paths that cannot be
    listed or opened, as without permission. `name` is the path that a user would type.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        *,
        name: str = "memory",
        kinds: Mapping[str, EntryKind] | None = None,
        unreadable: Iterable[str] = (),
        seekable: bool = True,
    ) -> None:
        super().__init__(name)
        self.seekable = seekable
        self._files = dict(files)
        self._unreadable = frozenset(unreadable)
        self._entries: dict[str, Entry] = {}
        for path, content in self._files.items():
            self._add(path, EntryKind.FILE, len(content))
        for path, kind in (kinds or {}).items():
            self._add(path, kind, 0)
        if "" not in self._entries:
            self._add("", EntryKind.DIRECTORY, 0)
        self._children: dict[str, list[Entry]] = {}
        for path in sorted(self._entries):
            if path:
                self._children.setdefault(path.rpartition("/")[0], []).append(self._entries[path])

    def _add(self, path: str, kind: EntryKind, size_in_bytes: int) -> None:
        self._entries[path] = Entry(path, kind, size_in_bytes, mtime_ns=0, identity=None)
        parent = path.rpartition("/")[0]
        if path and parent not in self._entries:
            self._add(parent, EntryKind.DIRECTORY, 0)

    def list(self, path: str = "") -> list[Entry]:
        if path in self._unreadable:
            raise SourceError(path, "permission denied")
        if self.stat(path).kind is not EntryKind.DIRECTORY:
            raise SourceError(path, "not a directory")
        return sorted(self._children.get(path, []), key=lambda entry: entry.name)

    def stat(self, path: str) -> Entry:
        if path not in self._entries:
            raise SourceError(path, "does not exist")
        return self._entries[path]

    def open(self, path: str) -> MemoryFile:
        if path in self._unreadable:
            raise SourceError(path, "permission denied")
        if self.stat(path).kind is not EntryKind.FILE:
            raise SourceError(path, "not a regular file")
        return MemoryFile(self._files[path])
