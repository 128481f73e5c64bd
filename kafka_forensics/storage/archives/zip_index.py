"""Finding the members of a zip archive: by its directory at the end, or one by one if that is gone.

Own code rather than `zipfile`: that one holds the whole directory whatever its size, cuts names at a NUL, and gives up an
archive whose end is missing, although each member has a header of its own.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kafka_forensics.storage.archives.decoders import measure_deflate
from kafka_forensics.storage.archives.members import MemberTree, note
from kafka_forensics.storage.archives.zip_header import (
    CENTRAL_SIGN,
    DEFLATED,
    ENCRYPTED,
    END,
    END64,
    END64_SIGN,
    END_SIGN,
    LOCAL_SIGN,
    LOCATOR64,
    LOCATOR64_SIGN,
    SIZES_FOLLOW,
    ZipRecord,
    central_record,
    local_record,
)
from kafka_forensics.storage.source import ByteFile, EntryKind

_LONGEST_COMMENT: Final = 0xFFFF
_LONGEST_ENTRY: Final = 46 + 3 * 0xFFFF
_WINDOW: Final = 1 << 20
_DESCRIPTOR_SIZES: Final = (16, 24, 12, 20)
"""Of what stands behind data of unknown size: with or without a signature, 32 or 64 bit."""


class ZipIndex:
    """Fills `tree` with the members of the zip in `file`; `problems` gets a sentence for each thing that is wrong."""

    def __init__(self, file: ByteFile, tree: MemberTree, problems: list[str]) -> None:
        self._file = file
        self._tree = tree
        self._problems = problems

    def run(self) -> None:
        """Read the directory; without one, walk from local header to local header. Raises SourceError, TooManyMembersError."""
        found = self._find_directory()
        if found is not None:
            for record in self._directory(*found):
                self._add(record)
        elif self._file.read_at(0, 4) == LOCAL_SIGN:
            note(self._problems, "no zip directory at the end, so it is cut short; members are taken from their own headers")
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
        """(start, end) of the directory, and how far all positions in it are off because bytes were put before the archive."""
        size = self._file.size_in_bytes
        tail_start = max(0, size - END.size - _LONGEST_COMMENT)
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
        """(size of the directory, its position, its end) by the zip64 records before the end record at `end`, if there are any."""
        start = end - LOCATOR64.size - END64.size
        data = self._file.read_at(start, end - start) if start >= 0 else b""
        if not data.startswith(END64_SIGN) or data[END64.size : END64.size + 4] != LOCATOR64_SIGN:
            return None
        *_, directory_size, position = END64.unpack_from(data)
        return directory_size, position, start

    def _directory(self, start: int, end: int, shift: int) -> Iterator[ZipRecord]:
        """Its entries, read window by window."""
        position = window_start = start
        window = b""
        while position < end:
            at = position - window_start
            if at + _LONGEST_ENTRY > len(window) and window_start + len(window) < end:
                window = self._file.read_at(position, min(_WINDOW, end - position))
                window_start, at = position, 0
            found = central_record(window, at, shift)
            if found is None:
                note(self._problems, f"damaged zip directory at byte {position}: members behind it are not listed")
                return
            record, at = found
            yield record
            position = window_start + at

    def _walk(self) -> Iterator[ZipRecord]:
        """Members by their local headers, until the first place that has none."""
        position = 0
        while found := local_record(self._file, position):
            record, data_start = found
            data_end = data_start + record.compressed_size
            is_whole = data_end <= self._file.size_in_bytes
            if record.flags & SIZES_FOLLOW and record.compressed_size == 0:
                if record.method != DEFLATED or record.flags & ENCRYPTED:
                    note(self._problems, f"nothing tells where the data of {record.name} end: what follows is not read")
                    return
                data_end, size_in_bytes, crc, is_whole = measure_deflate(self._file, data_start)
                record = replace(record, compressed_size=data_end - data_start, size_in_bytes=size_in_bytes, crc=crc)
            yield record
            if not is_whole:
                note(self._problems, f"cut short or damaged in the data of {record.name}")
                return
            position = self._behind_descriptor(data_end) if record.flags & SIZES_FOLLOW else data_end
        if self._file.read_at(position, 4) not in {CENTRAL_SIGN, b""}:
            note(self._problems, f"no zip header at byte {position}: what follows is not read")

    def _behind_descriptor(self, position: int) -> int:
        """Where the next header starts behind the sizes at `position`; the position itself if there is none."""
        for size in _DESCRIPTOR_SIZES:
            if position + size == self._file.size_in_bytes or self._file.read_at(position + size, 4) in {LOCAL_SIGN, CENTRAL_SIGN}:
                return position + size
        return position
