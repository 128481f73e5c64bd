"""What the evidence was when it was first seen, so that a change meanwhile is noticed."""

import hashlib
import os
import threading
from typing import Final

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives import ArchiveSource
from kafka_forensics.storage.source import ByteSource, Entry, ListedSource

_READ: Final = 1 << 20


class Manifest:
    """Size, modification time and identity of every file read; threads may share it.

    Files are named by their paths as the user would type them. Of an archive the archive itself is recorded, not its members.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[ByteSource, Entry]] = {}

    def record(self, source: ByteSource, entry: Entry) -> None:
        """Remember `entry` of `source` unless its file is known already."""
        path = source.name
        file: tuple[ByteSource, Entry] = source, entry
        if isinstance(source, ArchiveSource):
            file = source.container, source.container_entry
        elif entry.path:
            path = os.path.join(path, entry.path)
        with self._lock:
            self._seen.setdefault(path, file)

    def entries(self) -> list[tuple[str, Entry]]:
        """(path, entry at first sight) of every file, sorted by path."""
        with self._lock:
            return sorted((path, entry) for path, (_, entry) in self._seen.items())

    def files(self) -> list[tuple[ByteSource, Entry]]:
        """What to hand to `record` elsewhere, so that the same files are known there."""
        with self._lock:
            return [file for _, file in sorted(self._seen.items(), key=lambda item: item[0])]

    def changes(self) -> list[tuple[str, Entry, Entry | None]]:
        """(path, entry at first sight, entry now or None if it is gone) of every file that changed, sorted by path."""
        with self._lock:
            seen = sorted(self._seen.items(), key=lambda item: item[0])
        for listed in {id(source): source for _, (source, _) in seen}.values():
            if isinstance(listed, ListedSource):
                listed.forget_listings()
        changed: list[tuple[str, Entry, Entry | None]] = []
        for path, (source, before) in seen:
            after = _stat(source, before.path)
            if after is None or _essence(after) != _essence(before):
                changed.append((path, before, after))
        return changed


def sha256(source: ByteSource, path: str) -> str:
    """SHA-256 of regular file `path` of `source` in hexadecimal, read piece by piece. Raises SourceError."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_READ))
    position = 0
    with source.open(path) as file:
        while count := file.read_into(position, buffer):
            digest.update(buffer[:count])
            position += count
    return digest.hexdigest()


def _stat(source: ByteSource, path: str) -> Entry | None:
    try:
        return source.stat(path)
    except SourceError:
        return None


def _essence(entry: Entry) -> tuple[object, ...]:
    """What must not change; allocated bytes may, when a file system writes back or compresses."""
    return entry.kind, entry.size_in_bytes, entry.mtime_ns, entry.identity, entry.link
