"""A bundle as it is written: a tar from front to end, part by part. One that was begun is gone on with behind its last part."""

import hashlib
import json
import tarfile
from contextlib import suppress
from typing import BinaryIO, Final

import cramjam

from kafka_forensics.errors import FormatError, SourceError, UsageError
from kafka_forensics.model.json_objects import Json
from kafka_forensics.storage.archives import Member, MemberTree, TarIndex, TarPlace
from kafka_forensics.storage.bundles import (
    ABOUT,
    FORMAT,
    LISTING,
    MAX_ABOUT_BYTES,
    MAX_PART_BYTES,
    PART_BYTES,
    SEAL,
    VERSION,
    Section,
    SectionKind,
    inflated,
    json_of,
    part_name,
    read_index,
    write_part,
)

LEVEL: Final = 1
"""Of compression: what is left after the columns are foretold hardly gets smaller by more."""
PART_OF_BYTES: Final = 64 << 20
"""A part is written behind the file with which it speaks of so many bytes, however few it has: so much is read again at most, with
the file that was being read, where its making is stopped."""
_BLOCK: Final = 512
_OF_A_RUN: Final = frozenset({"started_ms"})
"""What a bundle says of itself that is another when its making is gone on with."""


def begun(output: BinaryIO) -> Json | None:
    """What the bundle that was begun in `output` says of itself; None if there is none."""
    members = MemberTree()
    with suppress(SourceError):  # too many members: then it is no bundle
        TarIndex(_Read(output), members, [], None).run()
    member = members.find(ABOUT)
    if not isinstance(member, Member) or not isinstance(member.place, TarPlace) or member.size_in_bytes > MAX_ABOUT_BYTES:
        return None
    said = _said(_Read(output).read_at(member.place.position, member.size_in_bytes))
    return said if isinstance(said, dict) else None


class BundleWriter:
    """Writes a bundle; sections come file by file, between `begin_file` and `end_file`.

    `output` is read and written from its beginning. What is there is kept as far as it is whole parts of a bundle of which the same
    is said as in `about`. Raises UsageError where it is of another.
    """

    def __init__(self, output: BinaryIO, about: Json) -> None:
        self._output = output
        self._sections: list[tuple[str, SectionKind, int, int, bytes]] = []
        self._rows: list[list[object]] = []
        self._begun: list[str] = []
        self._waiting_bytes = 0
        self._told_bytes = 0
        self._parts = 0
        self._members: dict[str, tuple[int, str]] = {}
        self.size_in_bytes = 0
        self.finished: dict[str, list[object]] = {}
        """The row of every file that has ended, by its path."""
        self._places: dict[str, list[Section]] = {}
        said = {"format": FORMAT, "version": VERSION} | about
        self._mtime = int(about.get("started_ms", 0)) // 1000
        if not self._go_on(said):
            self._add_member(ABOUT, json.dumps(said, indent=1).encode())

    def begin_file(self, path: str) -> None:
        """What follows is of this file; what was there of an unfinished reading of it is no more."""
        known = self._places.pop(path, None), self.finished.pop(path, None)
        if known != (None, None):
            self._begun.append(path)

    def add(self, path: str, kind: SectionKind, start: int, end: int, data: bytes) -> None:
        """Add a section of the file, of its bytes `[start, end)`."""
        self._sections.append((path, kind, start, end, data))
        self._waiting_bytes += len(data) + len(path) + _ROW_BYTES
        if kind in _TELLING:
            self._told_bytes += end - start
        if self._waiting_bytes >= PART_BYTES:
            self._flush()

    def end_file(self, row: list[object]) -> None:
        """A file is over; its row in the listing, without sections and beginning with its path."""
        self._rows.append(row)
        self._waiting_bytes += len(str(row[0])) + _ROW_BYTES
        if self._waiting_bytes >= PART_BYTES or self._told_bytes >= PART_OF_BYTES:
            self._flush()

    def finish(self, directories: list[tuple[str, int]], paths: list[str], said: Json) -> None:
        """Write the listing of the directories and of the files at `paths`, and the seal with what is `said` at the end."""
        self._flush()
        rows = [[*self.finished[path], [_numbers(section) for section in self._places.get(path, ())]] for path in paths]
        listing = json.dumps({"directories": directories, "files": rows}).encode()
        self._add_member(LISTING, bytes(cramjam.zstd.compress(listing, level=LEVEL)))
        members = {name: list(member) for name, member in self._members.items()}
        self._add_member(SEAL, json.dumps({**said, "members": members}, indent=1).encode())
        self._write(bytes(2 * _BLOCK))
        self._output.truncate()

    def _flush(self) -> None:
        """Write what waits as a part."""
        if not self._sections and not self._rows:
            return
        part = write_part(self._sections, self._rows, self._begun)
        self._take_index(part)
        self._add_member(part_name(self._parts - 1), bytes(cramjam.zstd.compress(part, level=LEVEL)))
        self._sections, self._rows, self._begun, self._waiting_bytes, self._told_bytes = [], [], [], 0, 0

    def _take_index(self, part: bytes) -> None:
        """Know the sections and rows of the next part."""
        index = read_index(part, self._parts)
        for path in index.begun:
            self._places.pop(path, None)
            self.finished.pop(path, None)
        for path, section in index.sections:
            self._places.setdefault(path, []).append(section)
        self.finished |= {str(row[0]): row for row in index.files if isinstance(row, list) and row}
        self._parts += 1

    def _add_member(self, name: str, data: bytes) -> None:
        header = tarfile.TarInfo(name)
        header.size, header.mtime, header.mode = len(data), self._mtime, 0o644
        self._write(header.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % _BLOCK))
        self._members[name] = len(data), hashlib.sha256(data).hexdigest()
        self._output.flush()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:  # a disk that is nearly full takes a part of it
            rest = rest[self._output.write(rest) :]
        self.size_in_bytes += len(data)

    def _go_on(self, said: Json) -> bool:
        """Take what is there of a bundle that was begun, and stand behind its last whole part; whether there is any."""
        members = MemberTree()
        with suppress(SourceError):  # then what was begun there is no bundle
            TarIndex(_Read(self._output), members, [], None).run()
        about = self._there(members, ABOUT)
        if about is None:
            self._output.seek(0)
            self._output.truncate()
            return False
        before = _said(about)
        if not isinstance(before, dict) or _essence(before) != _essence(said):
            hint = "remove it, or give --output another place; it is gone on with by the options with which it was begun"
            raise UsageError("what was begun there is another bundle, or one made with other options", hint=hint)
        self._take_member(ABOUT, about)
        while (data := self._there(members, part_name(self._parts))) is not None:
            try:
                self._take_index(inflated(data, MAX_PART_BYTES))
            except FormatError:
                break
            self._take_member(part_name(self._parts - 1), data)
        self._output.seek(self.size_in_bytes)
        self._output.truncate()
        return True

    def _there(self, members: MemberTree, name: str) -> bytes | None:
        """The bytes of a member that is whole and stands behind those that were taken."""
        member = members.find(name)
        place = None if member is None else getattr(member, "place", None)
        if member is None or not isinstance(place, TarPlace) or place.position != self.size_in_bytes + _BLOCK:
            return None
        size = int(getattr(member, "size_in_bytes", 0))
        self._output.seek(place.position)
        data = self._output.read(size + -size % _BLOCK)
        return data[:size] if len(data) == size + -size % _BLOCK else None

    def _take_member(self, name: str, data: bytes) -> None:
        self._members[name] = len(data), hashlib.sha256(data).hexdigest()
        self.size_in_bytes += _BLOCK + len(data) + -len(data) % _BLOCK


_TELLING: Final = frozenset({SectionKind.BYTES, SectionKind.BATCHES})
"""Of these every byte of a file has one at most."""
_ROW_BYTES: Final = 100
"""About what a row of a file takes."""


class _Read:
    """The output, read at a place."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, fewer only where it ends."""
        self._output.seek(position)
        return self._output.read(size)


def _said(about: bytes) -> object:
    """What a bundle says of itself; nothing if that is no JSON."""
    try:
        return json_of(about)
    except FormatError:
        return None


def _essence(said: Json) -> Json:
    return {name: value for name, value in said.items() if name not in _OF_A_RUN}


def _numbers(section: Section) -> list[object]:
    return [section.part, section.position, section.size_in_bytes, section.kind.value, section.start, section.end]
