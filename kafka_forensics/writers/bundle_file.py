"""Writes a bundle: a tar from front to end, part by part. An unfinished bundle is continued after its last whole part."""

import hashlib
import json
import tarfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO, Final

import cramjam

from kafka_forensics.errors import FormatError, SourceError, UsageError
from kafka_forensics.model.json_objects import Json
from kafka_forensics.storage.archives import BLOCK, ArchiveMember, MemberTree, TarIndex, TarPlace, padded
from kafka_forensics.storage.bundles import (
    CHECKSUMS,
    DESCRIPTION,
    EXCLUSIVE_KINDS,
    FAST_COMPRESSION_LEVEL,
    FORMAT,
    LEVEL,
    LISTING,
    MAX_PART_BYTES,
    PART_BYTES,
    TRANSACTION_PARTITIONS,
    VERSION,
    BundleSection,
    SectionKind,
    decompressed,
    parse_json,
    part_chunks,
    part_name,
    read_index,
)

PART_OF_BYTES: Final = 64 << 20
"""A part is written after the file with which it describes so many bytes, even if it is small: a run that was stopped has to read
no more than this again, and the file that it was reading."""
_OF_THIS_RUN: Final = frozenset({"started_ms", TRANSACTION_PARTITIONS})
"""Fields of the description that may differ when an unfinished bundle is continued."""
_ROW_BYTES: Final = 400
"""About the memory of a pending row of a file, and of a section without its bytes."""
_ROWS_OF_FRAME: Final = 4096
_NEARLY: Final = 16
"""All except one in so many bytes are nearly all."""
_FRAME_BYTES: Final = 1024
"""The most bytes of a zstd frame outside its blocks, none of which is larger than its content except for a few bytes."""


class BundleWriter:
    """Writes a bundle; sections come file by file, between `begin_file` and `end_file`.

    `output` is read and written from its start. Whole parts of an unfinished bundle with the same description `about` are kept.
    Raises UsageError if another bundle is there.
    """

    def __init__(self, output: BinaryIO, about: Json) -> None:
        self._output = output
        self._sections: list[tuple[str, SectionKind, int, int, bytes]] = []
        self._rows: list[list[object]] = []
        self._reread: list[str] = []
        """Files whose earlier sections are replaced."""
        self._pending_bytes = 0
        self._described_bytes = 0
        self._part, self._compressed, self._member = _ReusedBuffer(), _ReusedBuffer(), _ReusedBuffer()
        self._parts = 0
        self._members: dict[str, tuple[int, str]] = {}
        self.size_in_bytes = 0
        self._unfinished: dict[str, list[BundleSection]] = {}
        """Sections of files that have not ended."""
        self._listing = _FileListing()
        self._kept: dict[str, bytes] = {}
        """Path → row in the listing of each file that the unfinished bundle has whole."""
        description: Json = {"format": FORMAT, "version": VERSION} | about
        self._mtime = int(about.get("started_ms", 0)) // 1000
        if not self._continue(description):
            self._add_member(DESCRIPTION, json.dumps(description, indent=1).encode())

    def keep_file(self, path: str, is_same: Callable[[list[object]], bool]) -> bool:
        """Keep the sections of a file if the unfinished bundle has it whole and its row `is_same`; whether they were kept."""
        row = self._kept.get(path)
        if row is None or not is_same(json.loads(row)):
            return False
        self._listing.add(self._kept.pop(path))
        return True

    def begin_file(self, path: str) -> None:
        """Start a file; earlier sections of it are dropped."""
        earlier = self._unfinished.pop(path, None), self._kept.pop(path, None)
        if earlier != (None, None):
            self._reread.append(path)

    def add(self, path: str, kind: SectionKind, start: int, end: int, data: bytes) -> None:
        """Add a section of the file, about its bytes `[start, end)`."""
        self._sections.append((path, kind, start, end, data))
        self._pending_bytes += len(data) + len(path) + _ROW_BYTES
        if kind in EXCLUSIVE_KINDS:
            self._described_bytes += end - start
        if self._pending_bytes >= PART_BYTES:
            self._flush()

    def end_file(self, row: list[object]) -> None:
        """End a file with its row of the listing, which starts with its path; the sections are appended to it."""
        self._rows.append(row)
        self._pending_bytes += len(str(row[0])) + _ROW_BYTES
        if self._pending_bytes >= PART_BYTES or self._described_bytes >= PART_OF_BYTES:
            self._flush()

    def finish(self, directories: list[tuple[str, int]], ending: Json) -> None:
        """Write the listing, and the checksums of all members with the fields of `ending`."""
        self._flush()
        self._add_member(LISTING, self._listing.whole(directories))
        members = {name: list(member) for name, member in self._members.items()}
        self._add_member(CHECKSUMS, json.dumps({**ending, "members": members}, indent=1).encode())
        self._write(bytes(2 * BLOCK))
        self._output.truncate()

    def _flush(self) -> None:
        """Write a part of all pending sections and rows."""
        if not self._sections and not self._rows:
            return
        # batches are as small at the quick level; it is used if the index and other sections are little next to them
        of_batches = sum(len(data) for _, kind, _, _, data in self._sections if kind is SectionKind.BATCHES)
        level = FAST_COMPRESSION_LEVEL if of_batches * _NEARLY > self._pending_bytes * (_NEARLY - 1) else LEVEL
        with self._part.joined(part_chunks(self._sections, self._rows, self._reread)) as part:
            for _, row in self._take_index(part):
                self._listing.add(row)
            with self._compressed.compressed(part, level) as compressed:
                self._add_member(part_name(self._parts - 1), compressed)
        self._sections, self._rows, self._reread, self._pending_bytes, self._described_bytes = [], [], [], 0, 0

    def _take_index(self, part: bytes | memoryview) -> list[tuple[str, bytes]]:
        """Add the sections in the index of the next part; the paths and listing rows of the files that end in it."""
        index = read_index(part, self._parts)
        for path in index.begun:
            self._unfinished.pop(path, None)
            self._kept.pop(path, None)
        for path, section in index.sections:
            self._unfinished.setdefault(path, []).append(section)
        self._parts += 1
        ended = []
        for row in index.files:
            if isinstance(row, list) and row:
                sections = [
                    [section.part, section.position, section.size_in_bytes, section.kind.value, section.start, section.end]
                    for section in self._unfinished.pop(str(row[0]), ())
                ]
                ended.append((str(row[0]), json.dumps([*row, sections]).encode()))
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

    def _continue(self, about: Json) -> bool:
        """Read what is there of an unfinished bundle, up to the end of its last whole part; whether there is any."""
        members = MemberTree()
        with suppress(SourceError):  # it is not a bundle
            TarIndex(_OutputReader(self._output), members, [], None).run()
        data = self._member_data(members, DESCRIPTION)
        if data is None:
            self._output.seek(0)
            self._output.truncate()
            return False
        if _comparable(data) != {name: value for name, value in about.items() if name not in _OF_THIS_RUN}:
            hint = "remove it, or give --output another path; it continues only with the options with which it was started"
            raise UsageError("the unfinished file belongs to another bundle, or to other options", hint=hint)
        self._keep_member(DESCRIPTION, data)
        while (data := self._member_data(members, part_name(self._parts))) is not None:
            try:
                self._kept.update(self._take_index(decompressed(data, MAX_PART_BYTES)))
            except FormatError:
                break
            self._keep_member(part_name(self._parts - 1), data)
        self._output.seek(self.size_in_bytes)
        self._output.truncate()
        return True

    def _member_data(self, members: MemberTree, name: str) -> bytes | None:
        """The bytes of a member if it is whole and follows the members that are kept."""
        member = members.find(name)
        if not isinstance(member, ArchiveMember) or not isinstance(member.place, TarPlace):
            return None
        position, size = member.place.position, member.size_in_bytes
        if position != self.size_in_bytes + BLOCK:
            return None
        data = _OutputReader(self._output).read_at(position, padded(size))
        return data[:size] if len(data) == padded(size) else None

    def _keep_member(self, name: str, data: bytes) -> None:
        self._members[name] = len(data), hashlib.sha256(data).hexdigest()
        self.size_in_bytes += BLOCK + padded(len(data))


def _comparable(about: bytes) -> object:
    """The description of an unfinished bundle without the fields of its run; None if it is not JSON object."""
    try:
        fields = parse_json(about)
    except FormatError:
        return None
    return {name: value for name, value in fields.items() if name not in _OF_THIS_RUN} if isinstance(fields, dict) else None


class _ReusedBuffer:
    """Memory that is used for every part: allocating it again would take as long as compressing a part."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def joined(self, pieces: Sequence[bytes | memoryview]) -> memoryview:
        """The pieces one after the other, valid until the next call."""
        view, at = self._of(sum(map(len, pieces))), 0
        for piece in pieces:
            view[at : at + len(piece)] = piece
            at += len(piece)
        return view

    def compressed(self, data: memoryview, level: int) -> memoryview:
        """A zstd frame of the data, valid until the next call."""
        view = self._of(len(data) + (len(data) >> 7) + _FRAME_BYTES)
        return view[: cramjam.zstd.compress_into(data, view, level=level)]

    def _of(self, size_in_bytes: int) -> memoryview:
        if len(self._bytes) < size_in_bytes:
            self._bytes = bytearray(size_in_bytes)
        return memoryview(self._bytes)[:size_in_bytes]


class _FileListing:
    """The listing while it grows: JSON in zstd frames."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._rows: list[bytes] = []

    def add(self, row: bytes) -> None:
        """Add the row of a file."""
        self._rows.append(row)
        if len(self._rows) == _ROWS_OF_FRAME:
            self._pack()

    def whole(self, directories: list[tuple[str, int]]) -> bytes:
        """The whole listing."""
        if self._rows or not self._frames:
            self._pack()
        ending = b'], "directories": ' + json.dumps(directories).encode() + b"}"
        return b"".join((*self._frames, bytes(cramjam.zstd.compress(ending, level=LEVEL))))

    def _pack(self) -> None:
        start = b", " if self._frames else b'{"files": ['
        self._frames.append(bytes(cramjam.zstd.compress(start + b", ".join(self._rows), level=LEVEL)))
        self._rows = []


class _OutputReader:
    """Reads the output at a position, for `TarIndex`."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        self._output.seek(position)
        return self._output.read(size)
