"""A bundle as it is written: a tar from front to end, part by part, each on disk before the next is begun."""

import hashlib
import json
import tarfile
from typing import BinaryIO, Final

import cramjam

from kafka_forensics.model.json_objects import Json
from kafka_forensics.storage.bundles import (
    ABOUT,
    FORMAT,
    LISTING,
    PART_BYTES,
    SEAL,
    VERSION,
    Section,
    SectionKind,
    part_name,
    read_index,
    write_part,
)

LEVEL: Final = 1
"""Of compression: what is left after the columns are foretold hardly gets smaller by more."""
_BLOCK: Final = 512


class BundleWriter:
    """Writes a bundle to `file` from its beginning; sections come in the order of their files, and `about` says what it is of."""

    def __init__(self, file: BinaryIO, about: Json, mtime: int = 0) -> None:
        self._file = file
        self._mtime = mtime
        self._waiting: list[tuple[str, SectionKind, int, int, bytes]] = []
        self._waiting_bytes = 0
        self._parts = 0
        self._members: dict[str, tuple[int, str]] = {}
        self.size_in_bytes = 0
        self.sections: dict[str, list[Section]] = {}
        """Of every file, by path, as far as they are in parts that are written."""
        self._add_member(ABOUT, json.dumps({"format": FORMAT, "version": VERSION} | about, indent=1).encode())

    def add(self, path: str, kind: SectionKind, start: int, end: int, data: bytes) -> None:
        """Add a section of the file at `path`, of its bytes `[start, end)`."""
        self._waiting.append((path, kind, start, end, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a part."""
        if not self._waiting:
            return
        part = write_part(self._waiting)
        for path, section in read_index(part, self._parts):
            self.sections.setdefault(path, []).append(section)
        self._add_member(part_name(self._parts), bytes(cramjam.zstd.compress(part, level=LEVEL)))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._parts += 1

    def finish(self, directories: list[tuple[str, int]], files: list[list[object]], said: Json) -> None:
        """Write the listing, of directories with their times and files as rows without their sections, and the seal with what is
        `said` at the end."""
        self.flush()
        rows = [[*row, [_row(section) for section in self.sections.get(str(row[0]), ())]] for row in files]
        listing = json.dumps({"directories": directories, "files": rows}).encode()
        self._add_member(LISTING, bytes(cramjam.zstd.compress(listing, level=LEVEL)))
        members = {name: list(member) for name, member in self._members.items()}
        self._add_member(SEAL, json.dumps({**said, "members": members}, indent=1).encode())
        self._write(bytes(2 * _BLOCK))

    def _add_member(self, name: str, data: bytes) -> None:
        header = tarfile.TarInfo(name)
        header.size, header.mtime, header.mode = len(data), self._mtime, 0o644
        self._write(header.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % _BLOCK))
        self._members[name] = len(data), hashlib.sha256(data).hexdigest()
        self._file.flush()

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.size_in_bytes += len(data)


def _row(section: Section) -> list[object]:
    return [section.part, section.position, section.size_in_bytes, section.kind.value, section.start, section.end]
