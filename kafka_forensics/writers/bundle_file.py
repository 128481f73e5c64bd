"""A bundle as it is written: a tar from front to end, part by part. One that was begun is gone on with behind its last part."""

import hashlib
import json
import tarfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO, Final

import cramjam

from kafka_forensics.errors import FormatError, SourceError, UsageError
from kafka_forensics.model.json_objects import Json
from kafka_forensics.storage.archives import BLOCK, Member, MemberTree, TarIndex, TarPlace, padded
from kafka_forensics.storage.bundles import (
    ABOUT,
    FORMAT,
    LEVEL,
    LISTING,
    MAX_PART_BYTES,
    PART_BYTES,
    QUICK_LEVEL,
    SEAL,
    TELLING,
    TRANSACTION_PARTITIONS,
    VERSION,
    Section,
    SectionKind,
    inflated,
    json_of,
    part_name,
    pieces_of_part,
    read_index,
)

PART_OF_BYTES: Final = 64 << 20
"""A part is written behind the file with which it speaks of so many bytes, however few it has: so much is read again at most, with
the file that was being read, where its making is stopped."""
_OF_A_RUN: Final = frozenset({"started_ms", TRANSACTION_PARTITIONS})
"""What a bundle says of itself that is another when its making is gone on with."""


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
        self._part, self._packed, self._member = _Room(), _Room(), _Room()
        self._parts = 0
        self._members: dict[str, tuple[int, str]] = {}
        self.size_in_bytes = 0
        self._places: dict[str, list[Section]] = {}
        """Sections of files that have not ended."""
        self._listing = _Listing()
        self._before: dict[str, bytes] = {}
        """The rows of files that had ended when the bundle was left, as they are listed, by their paths."""
        said = {"format": FORMAT, "version": VERSION} | about
        self._mtime = int(about.get("started_ms", 0)) // 1000
        if not self._go_on(said):
            self._add_member(ABOUT, json.dumps(said, indent=1).encode())

    def keep_file(self, path: str, is_same: Callable[[list[object]], bool]) -> bool:
        """Leave a file as it is in what was there, if that is whole and its row `is_same`; whether it is."""
        row = self._before.get(path)
        if row is None or not is_same(json.loads(row)):
            return False
        self._listing.add(self._before.pop(path))
        return True

    def begin_file(self, path: str) -> None:
        """What follows is of this file; what was there of another reading of it is no more."""
        known = self._places.pop(path, None), self._before.pop(path, None)
        if known != (None, None):
            self._begun.append(path)

    def add(self, path: str, kind: SectionKind, start: int, end: int, data: bytes) -> None:
        """Add a section of the file, of its bytes `[start, end)`."""
        self._sections.append((path, kind, start, end, data))
        self._waiting_bytes += len(data) + len(path) + _ROW_BYTES
        if kind in TELLING:
            self._told_bytes += end - start
        if self._waiting_bytes >= PART_BYTES:
            self._flush()

    def end_file(self, row: list[object]) -> None:
        """A file is over; its row in the listing, without sections and beginning with its path."""
        self._rows.append(row)
        self._waiting_bytes += len(str(row[0])) + _ROW_BYTES
        if self._waiting_bytes >= PART_BYTES or self._told_bytes >= PART_OF_BYTES:
            self._flush()

    def finish(self, directories: list[tuple[str, int]], said: Json) -> None:
        """Write the listing of the directories and of the files that were kept or taken, and the seal with what is `said` at the
        end."""
        self._flush()
        self._add_member(LISTING, self._listing.whole(directories))
        members = {name: list(member) for name, member in self._members.items()}
        self._add_member(SEAL, json.dumps({**said, "members": members}, indent=1).encode())
        self._write(bytes(2 * BLOCK))
        self._output.truncate()

    def _flush(self) -> None:
        """Write what waits as a part."""
        if not self._sections and not self._rows:
            return
        with self._part.joined(pieces_of_part(self._sections, self._rows, self._begun)) as part:
            for _, row in self._take_index(part):
                self._listing.add(row)
            with self._packed.compressed(part, self._level()) as packed:
                self._add_member(part_name(self._parts - 1), packed)
        self._sections, self._rows, self._begun, self._waiting_bytes, self._told_bytes = [], [], [], 0, 0

    def _level(self) -> int:
        """The level of the next part: a quick one if nearly all of it is columns of batches, and its index little beside them."""
        of_batches = sum(len(data) for _, kind, _, _, data in self._sections if kind is SectionKind.BATCHES)
        return QUICK_LEVEL if of_batches * _NEARLY > self._waiting_bytes * (_NEARLY - 1) else LEVEL

    def _take_index(self, part: bytes | memoryview) -> list[tuple[str, bytes]]:
        """Know the sections of the next part; the paths of the files that end in it, and their rows as they are listed."""
        index = read_index(part, self._parts)
        for path in index.begun:
            self._places.pop(path, None)
            self._before.pop(path, None)
        for path, section in index.sections:
            self._places.setdefault(path, []).append(section)
        self._parts += 1
        ended = []
        for row in index.files:
            if isinstance(row, list) and row:
                known = [_numbers(section) for section in self._places.pop(str(row[0]), ())]
                ended.append((str(row[0]), json.dumps([*row, known]).encode()))
        return ended

    def _add_member(self, name: str, data: bytes | memoryview) -> None:
        header = tarfile.TarInfo(name)
        header.size, header.mtime, header.mode = len(data), self._mtime, 0o644
        with self._member.joined([header.tobuf(tarfile.USTAR_FORMAT), data, bytes(-len(data) % BLOCK)]) as member:
            self._write(member)
        self._members[name] = len(data), hashlib.sha256(data).hexdigest()
        self._output.flush()

    def _write(self, data: bytes | memoryview) -> None:
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
                self._before.update(self._take_index(inflated(data, MAX_PART_BYTES)))
            except FormatError:
                break
            self._take_member(part_name(self._parts - 1), data)
        self._output.seek(self.size_in_bytes)
        self._output.truncate()
        return True

    def _there(self, members: MemberTree, name: str) -> bytes | None:
        """The bytes of a member that is whole and stands behind those that were taken."""
        found = _placed(members, name)
        if found is None or found[0] != self.size_in_bytes + BLOCK:
            return None
        position, size = found
        data = _Read(self._output).read_at(position, padded(size))
        return data[:size] if len(data) == padded(size) else None

    def _take_member(self, name: str, data: bytes) -> None:
        self._members[name] = len(data), hashlib.sha256(data).hexdigest()
        self.size_in_bytes += BLOCK + padded(len(data))


_ROW_BYTES: Final = 400
"""About what a row of a file takes that waits, and a section beside its bytes."""
_LISTED_AT_ONCE: Final = 4096
_NEARLY: Final = 16
"""All but one in so many bytes are nearly all."""


class _Room:
    """Memory that is used again: to ask for it anew for every part would take as long as to compress one."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def joined(self, pieces: Sequence[bytes | memoryview]) -> memoryview:
        """The pieces one behind the other, until the next call."""
        view, at = self._of(sum(map(len, pieces))), 0
        for piece in pieces:
            view[at : at + len(piece)] = piece
            at += len(piece)
        return view

    def compressed(self, data: memoryview, level: int) -> memoryview:
        """A frame of zstd of the data, until the next call."""
        view = self._of(len(data) + (len(data) >> 7) + _FRAME_BYTES)
        return view[: cramjam.zstd.compress_into(data, view, level=level)]

    def _of(self, size_in_bytes: int) -> memoryview:
        if len(self._bytes) < size_in_bytes:
            self._bytes = bytearray(size_in_bytes)
        return memoryview(self._bytes)[:size_in_bytes]


_FRAME_BYTES: Final = 1024
"""What a frame takes at most beside its blocks, of which none is larger than what it holds but for some bytes."""


class _Listing:
    """The listing while it grows: JSON in frames of zstd, one behind the other."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._rows: list[bytes] = []

    def add(self, row: bytes) -> None:
        """Add the row of a file."""
        self._rows.append(row)
        if len(self._rows) == _LISTED_AT_ONCE:
            self._pack()

    def whole(self, directories: list[tuple[str, int]]) -> bytes:
        """All of it."""
        self._pack()
        self._frame(b'{"files": [' if not self._frames else b"")
        self._frame(b'], "directories": ' + json.dumps(directories).encode() + b"}")
        return b"".join(self._frames)

    def _pack(self) -> None:
        if self._rows:
            self._frame((b", " if self._frames else b'{"files": [') + b", ".join(self._rows))
            self._rows = []

    def _frame(self, text: bytes) -> None:
        if text:
            self._frames.append(bytes(cramjam.zstd.compress(text, level=LEVEL)))


class _Read:
    """The output, read at a place."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, fewer only where it ends."""
        self._output.seek(position)
        return self._output.read(size)


def _placed(members: MemberTree, name: str) -> tuple[int, int] | None:
    """Where the data of a member begin, and how many bytes they have; None of what is no file of the tar."""
    member = members.find(name)
    if not isinstance(member, Member) or not isinstance(member.place, TarPlace):
        return None
    return member.place.position, member.size_in_bytes


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
