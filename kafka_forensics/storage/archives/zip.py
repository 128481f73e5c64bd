"""Finds the members of a zip archive by the directory at its end, or one by one if that is missing.

Not `zipfile`: that reads the whole directory into memory, cuts names at a NUL, and refuses an archive without its end, although
each member has a header.
"""

import calendar
import stat
import struct
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.storage.archives.decoders import measure_deflate
from kafka_forensics.storage.archives.members import ArchiveMember, MemberTree, ZipPlace, note
from kafka_forensics.storage.source import ByteFile, EntryKind

# Records of zip archives: local headers, directory entries, end records, 64-bit fields (PKWARE APPNOTE 6.3, chapter 4).


STORED: Final = 0
DEFLATED: Final = 8
ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
"""Flags of the three kinds of encryption."""
SIZES_FOLLOW: Final = 0x8
"""Flag: sizes and CRC follow the data, because the writer could not go back."""
_UTF_8: Final = 0x800
_DIRECTORY: Final = 0x10
"""MS-DOS attribute."""
_UNIX_SYSTEMS: Final = frozenset({3, 19})
"""UNIX and macOS: the upper half of the attributes is the file's mode."""
_WINDOWS_SYSTEMS: Final = frozenset({0, 10, 14})
_WIDE: Final = 0xFFFFFFFF
"""Value of a field whose number is in the zip64 extra field."""
_WIDE_FIELD: Final = 0x0001
_TIME_FIELD: Final = 0x5455

LOCAL: Final = struct.Struct("<4s5H3I2H")
CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
END: Final = struct.Struct("<4s4H2IH")
END64: Final = struct.Struct("<4sQ2H2I4Q")
LOCATOR64: Final = struct.Struct("<4sIQI")
LOCAL_SIGN: Final = b"PK\x03\x04"
CENTRAL_SIGN: Final = b"PK\x01\x02"
END_SIGN: Final = b"PK\x05\x06"
END64_SIGN: Final = b"PK\x06\x06"
LOCATOR64_SIGN: Final = b"PK\x06\x07"

METHOD_NAMES: Final = {1: "shrink", 6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 99: "AES"}
"""Compression methods that are not read here, by number."""


class ZipRecord(Struct, frozen=True):
    """The fields of a member's header, with 64-bit ones resolved; its local header starts at `position`."""

    raw_name: bytes
    flags: int
    method: int
    dos_time: int
    """Date in the upper 16 bits."""
    crc: int
    compressed_size: int
    size_in_bytes: int
    position: int
    system: int
    attributes: int
    extra: bytes

    @property
    def name(self) -> str:
        """The name with `/` between parts; a Windows path with a drive becomes absolute, and the tree rejects it."""
        windows = self.system in _WINDOWS_SYSTEMS
        if self.flags & _UTF_8 or not windows:
            name = self.raw_name.decode("utf-8", "surrogateescape")
        else:
            name = self.raw_name.decode("cp437")
        if windows and "/" not in name:
            name = name.replace("\\", "/")
        return f"/{name}" if windows and name[1:3] == ":/" else name

    @property
    def kind(self) -> EntryKind:
        """By the file's mode if the system recorded one; otherwise a file, or a directory by its attribute or name."""
        mode = self.attributes >> 16 if self.system in _UNIX_SYSTEMS else 0
        if stat.S_ISLNK(mode):
            return EntryKind.SYMLINK
        if self.raw_name.endswith((b"/", b"\\")) or stat.S_ISDIR(mode) or (stat.S_IFMT(mode) == 0 and self.attributes & _DIRECTORY):
            return EntryKind.DIRECTORY
        return EntryKind.FILE if stat.S_ISREG(mode) or stat.S_IFMT(mode) == 0 else EntryKind.OTHER

    @property
    def mtime_ns(self) -> int:
        """By the extra field's UNIX time, else by MS-DOS's local time, read as UTC; 0 if neither is valid."""
        for field, data in _extra_fields(self.extra):
            if field == _TIME_FIELD and len(data) >= 5 and data[0] & 1:
                return int.from_bytes(data[1:5], "little", signed=True) * 10**9
        date, time = divmod(self.dos_time, 1 << 16)
        year, month, day = 1980 + (date >> 9), date >> 5 & 0xF, date & 0x1F
        if not 1 <= month <= 12:
            return 0
        return calendar.timegm((year, month, day, time >> 11, time >> 5 & 0x3F, (time & 0x1F) * 2)) * 10**9

    def member(self) -> ArchiveMember:
        """The member for the tree; the target of a link is its content."""
        if self.kind is EntryKind.OTHER:
            return ArchiveMember(self.kind, 0, self.mtime_ns)
        place = ZipPlace(self.position, self.compressed_size, self.method, self.flags, self.crc)
        return ArchiveMember(self.kind, self.size_in_bytes, self.mtime_ns, place)


def central_record(data: bytes, start: int, shift: int) -> tuple[ZipRecord, int] | None:
    """(entry at `start` of `data`, its end), None if it is invalid or incomplete; `shift` is added to positions in the archive."""
    if len(data) < start + CENTRAL.size or not data.startswith(CENTRAL_SIGN, start):
        return None
    fields = CENTRAL.unpack_from(data, start)
    _, made_by, _, flags, method, time, date, crc, compressed, size, name_size, extra_size, comment_size = fields[:13]
    attributes, position = fields[15:]
    name_start = start + CENTRAL.size
    extra_start = name_start + name_size
    end = extra_start + extra_size + comment_size
    extra = data[extra_start : extra_start + extra_size]
    wide = _widened(extra, size, compressed, position)
    if end > len(data) or wide is None:
        return None
    size, compressed, position = wide
    name, dos_time = data[name_start:extra_start], date << 16 | time
    record = ZipRecord(name, flags, method, dos_time, crc, compressed, size, position + shift, made_by >> 8, attributes, extra)
    return record, end


def local_record(file: ByteFile, position: int) -> tuple[ZipRecord, int] | None:
    """(member whose local header is at `position`, start of its data), None if there is no complete header.

    A local header has neither system nor attributes: the member counts as a regular file from UNIX.
    """
    head = file.read_at(position, LOCAL.size)
    if len(head) < LOCAL.size or not head.startswith(LOCAL_SIGN):
        return None
    _, _, flags, method, time, date, crc, compressed, size, name_size, extra_size = LOCAL.unpack(head)
    rest = file.read_at(position + LOCAL.size, name_size + extra_size)
    wide = _widened(rest[name_size:], size, compressed, 0)
    if len(rest) < name_size + extra_size or wide is None:
        return None
    size, compressed, _ = wide
    dos_time = date << 16 | time
    record = ZipRecord(rest[:name_size], flags, method, dos_time, crc, compressed, size, position, 3, 0, rest[name_size:])
    return record, position + LOCAL.size + len(rest)


def _widened(extra: bytes, *numbers: int) -> tuple[int, ...] | None:
    """`numbers` with those equal to `_WIDE` replaced by their 64-bit values; None if one is missing or impossible."""
    wide = next((data for field, data in _extra_fields(extra) if field == _WIDE_FIELD), b"")
    result = []
    at = 0
    for number in numbers:
        if number == _WIDE and wide:
            if at + 8 > len(wide):
                return None
            number = int.from_bytes(wide[at : at + 8], "little")
            at += 8
        if number > INT64_MAX:
            return None
        result.append(number)
    return tuple(result)


def _extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, data) of the complete extra fields."""
    at = 0
    while at + 4 <= len(extra):
        field, size = struct.unpack_from("<2H", extra, at)
        if at + 4 + size > len(extra):
            return
        yield field, extra[at + 4 : at + 4 + size]
        at += 4 + size


_MAX_COMMENT_BYTES: Final = 0xFFFF
_MAX_ENTRY_BYTES: Final = 46 + 3 * 0xFFFF
_WINDOW: Final = 1 << 20
_DESCRIPTOR_SIZES: Final = (16, 24, 12, 20)
"""Of the descriptor after data of unknown size: with or without a signature, 32 or 64 bit."""


class ZipIndex:
    """Fills `tree` with the members of the zip in `file`; `problems` gets a sentence for each fault."""

    def __init__(self, file: ByteFile, tree: MemberTree, problems: list[str]) -> None:
        self._file = file
        self._tree = tree
        self._problems = problems

    def run(self) -> None:
        """Read the directory; without one, go from local header to local header. Raises SourceError, TooManyMembersError."""
        directory = self._find_directory()
        if directory is not None:
            for record in self._directory(*directory):
                self._add(record)
        elif self._file.read_at(0, 4) == LOCAL_SIGN:
            note(self._problems, "no zip directory at the end: the archive is cut short; members are read from their local headers")
            for record in self._walk():
                self._add(record)
        else:
            note(self._problems, "not a zip archive")

    def _add(self, record: ZipRecord) -> None:
        if record.kind is EntryKind.DIRECTORY:
            self._tree.add_directory(record.name, record.mtime_ns)
        else:
            self._tree.add(record.name, record.member())

    def _find_directory(self) -> tuple[int, int, int] | None:
        """(start, end, shift) of the directory; `shift` is the number of bytes that were put before the archive."""
        size = self._file.size_in_bytes
        tail_start = max(0, size - END.size - _MAX_COMMENT_BYTES)
        tail = self._file.read_at(tail_start, size - tail_start)
        at = tail.rfind(END_SIGN, 0, max(0, len(tail) - END.size + len(END_SIGN)))
        while at >= 0:
            *_, directory_size, position, _comment_size = END.unpack_from(tail, at)
            directory_size, position, end = self._wide_end(tail_start + at) or (directory_size, position, tail_start + at)
            start = end - directory_size
            if start >= position and (directory_size == 0 or self._file.read_at(start, 4) == CENTRAL_SIGN):
                return start, end, start - position
            at = tail.rfind(END_SIGN, 0, at)
        return None

    def _wide_end(self, end: int) -> tuple[int, int, int] | None:
        """(size of the directory, its position, its end) by the zip64 records before the end record at `end`; None without them."""
        start = end - LOCATOR64.size - END64.size
        data = self._file.read_at(start, end - start) if start >= 0 else b""
        if not data.startswith(END64_SIGN) or data[END64.size : END64.size + 4] != LOCATOR64_SIGN:
            return None
        *_, directory_size, position = END64.unpack_from(data)
        return directory_size, position, start

    def _directory(self, start: int, end: int, shift: int) -> Iterator[ZipRecord]:
        """The entries of the directory, read window by window."""
        position = window_start = start
        window = b""
        while position < end:
            at = position - window_start
            if at + _MAX_ENTRY_BYTES > len(window) and window_start + len(window) < end:
                window = self._file.read_at(position, min(_WINDOW, end - position))
                window_start, at = position, 0
            central = central_record(window, at, shift)
            if central is None:
                note(self._problems, f"damaged zip directory at byte {position}: members after it are not listed")
                return
            record, at = central
            yield record
            position = window_start + at

    def _walk(self) -> Iterator[ZipRecord]:
        """Members by their local headers, up to the first invalid one."""
        position = 0
        while record_at := local_record(self._file, position):
            record, data_start = record_at
            data_end = data_start + record.compressed_size
            is_whole = data_end <= self._file.size_in_bytes
            if record.flags & SIZES_FOLLOW and record.compressed_size == 0:
                if record.method != DEFLATED or record.flags & ENCRYPTED:
                    note(self._problems, f"the end of the data of {record.name} is unknown: the rest is not read")
                    return
                data_end, size_in_bytes, crc, is_whole = measure_deflate(self._file, data_start)
                record = replace(record, compressed_size=data_end - data_start, size_in_bytes=size_in_bytes, crc=crc)
            yield record
            if not is_whole:
                note(self._problems, f"cut short or damaged in the data of {record.name}")
                return
            position = self._after_descriptor(data_end) if record.flags & SIZES_FOLLOW else data_end
        if self._file.read_at(position, 4) not in {CENTRAL_SIGN, b""}:
            note(self._problems, f"no zip header at byte {position}: the rest is not read")

    def _after_descriptor(self, position: int) -> int:
        """The position of the next header after the descriptor at `position`; `position` itself if there is none."""
        for size in _DESCRIPTOR_SIZES:
            if position + size == self._file.size_in_bytes or self._file.read_at(position + size, 4) in {LOCAL_SIGN, CENTRAL_SIGN}:
                return position + size
        return position
