"""Finds the members of a tar archive in one pass from its start, even if it is damaged.

Not `tarfile`: that silently takes a damaged header for the end of the archive, keeps a kilobyte for each member, and reads a header
of any declared size into memory.
"""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.storage.archives.inflate import BLOCK_SIZE, Budget
from kafka_forensics.storage.archives.members import MAX_NAME, ArchiveBytes, ArchiveMember, Extents, MemberTree, TarPlace, note
from kafka_forensics.storage.source import EntryKind

# Headers of tar archives: POSIX ustar and pax, GNU, star, V7 (IEEE 1003.1 `pax`, GNU tar manual, "Basic Tar Format").


BLOCK: Final = 512
ZERO_BLOCK: Final = bytes(BLOCK)
MAX_EXTENTS: Final = 1_000_000
"""Stored parts of all sparse members of one archive."""
_DECIMAL: Final = re.compile(rb"[0-9]{1,19}\Z")
_TIME: Final = re.compile(rb"(-?[0-9]{1,10})(?:\.([0-9]{1,64}))?\Z")
_GNU_SPARSE_IN_HEADER: Final = (386, 4, 482)
_GNU_SPARSE_IN_EXTENSION: Final = (0, 21, 504)
"""(first entry, number of entries, flag that another extension block follows)."""


class SparseMapError(Exception):
    """A damaged map of a sparse member."""


class TarHeader(Struct, frozen=True):
    """One header block; `size_in_bytes` is the size of the data that follow in the archive."""

    name: bytes
    link_name: bytes
    type_flag: bytes
    size_in_bytes: int
    mtime_ns: int
    block: bytes


def parse_header(block: bytes) -> TarHeader | None:
    """The header in 512 bytes, or None if its checksum or size is invalid."""
    assert len(block) == BLOCK
    checksum = parse_number(block[148:156])
    unsigned = sum(block) - sum(block[148:156]) + 8 * 32
    if checksum != unsigned and checksum != unsigned - 256 * sum(byte > 127 for byte in block[:148] + block[156:]):
        return None
    size_in_bytes = parse_number(block[124:136])
    if size_in_bytes is None or not 0 <= size_in_bytes <= INT64_MAX:
        return None
    name = _text(block[:100])
    prefix = b""
    if block[257:263] == b"ustar\0":
        prefix = _text(block[345:476] if block[508:512] == b"tar\0" else block[345:500])
    seconds = parse_number(block[136:148]) or 0
    return TarHeader(
        name=prefix + b"/" + name if prefix else name,
        link_name=_text(block[157:257]),
        type_flag=block[156:157],
        size_in_bytes=size_in_bytes,
        mtime_ns=seconds * 10**9 if abs(seconds) < 2**33 else 0,
        block=block,
    )


def parse_number(text: bytes) -> int | None:
    """A number field: octal digits, or GNU's base 256 (first bit set); None if it is invalid."""
    if text[0] in {0x80, 0xFF}:
        return int.from_bytes(text[1:], "big") - (256 ** (len(text) - 1) if text[0] == 0xFF else 0)
    digits = text.split(b"\0", 1)[0].strip()
    if not digits:
        return 0
    return int(digits, 8) if re.fullmatch(rb"[0-7]+", digits) else None


def parse_pax(data: bytes) -> list[tuple[bytes, bytes]] | None:
    """(keyword, value) of a pax header's records in order, None if they do not fill the data exactly."""
    records: list[tuple[bytes, bytes]] = []
    position = 0
    while position < len(data):
        if data[position] == 0:
            return None if data[position:].strip(b"\0") else records  # some writers leave zeros after the last record
        space = data.find(b" ", position, position + 20)
        length = decimal(data[position:space]) if space > 0 else None
        if length is None or position + length > len(data) or length < space - position + 3:
            return None
        keyword, equals, value = data[space + 1 : position + length - 1].partition(b"=")
        if not equals or data[position + length - 1 : position + length] != b"\n":
            return None
        records.append((keyword, value))
        position += length
    return records


def parse_time_ns(text: bytes) -> int:
    """Nanoseconds of pax's decimal seconds; 0 if the number is invalid."""
    match = _TIME.match(text)
    if match is None:
        return 0
    seconds, fraction = match.groups()
    nanoseconds = int((fraction or b"")[:9].ljust(9, b"0"))
    return int(seconds) * 10**9 + (-nanoseconds if text.startswith(b"-") else nanoseconds)


def decimal(text: bytes) -> int | None:
    """A pax number of at most 63 bits, None if it is invalid."""
    value = int(text) if _DECIMAL.match(text) else None
    return value if value is None or value <= INT64_MAX else None


def gnu_sparse_map(block: bytes, read_block: Callable[[], bytes]) -> tuple[list[int], int]:
    """([offset, size, …], real size) of GNU's old sparse header `block`; `read_block` gives the extension blocks after it.

    Raises SparseMapError, after all extension blocks were read, unless the archive ended.
    """
    numbers: list[int | None] = []
    real_size = parse_number(block[483:495])
    first, count, more = _GNU_SPARSE_IN_HEADER
    while True:
        for at in range(first, first + 24 * count, 24):
            if block[at + 12] == 0:
                break  # no further entry
            if len(numbers) <= 2 * MAX_EXTENTS:
                numbers += [parse_number(block[at : at + 12]), parse_number(block[at + 12 : at + 24])]
        if not block[more]:
            break
        block = read_block()
        if len(block) < BLOCK:
            raise SparseMapError("the sparse map is cut short")
        first, count, more = _GNU_SPARSE_IN_EXTENSION
    valid = [number for number in numbers if number is not None]
    if real_size is None or not 0 <= real_size <= INT64_MAX or len(valid) < len(numbers):
        raise SparseMapError("the sparse map is damaged")
    return valid, real_size


def pax_sparse_map(read: Callable[[], bytes]) -> tuple[list[int], int]:
    """([offset, size, …], size of the map) of PAX 1.0's map before the data; `read` gives the next bytes, b"" at the end.

    The map has a decimal number per line: the count of entries, then two per entry; padded to whole blocks. Raises SparseMapError.
    """
    lines = _lines(read)
    first = next(lines)
    count = decimal(first)
    if count is None or count > MAX_EXTENTS:
        raise SparseMapError("the sparse map is damaged")
    numbers = []
    size = len(first) + 1
    for line in islice(lines, 2 * count):
        number = decimal(line)
        if number is None:
            raise SparseMapError("the sparse map is damaged")
        numbers.append(number)
        size += len(line) + 1
    return numbers, padded(size)


def extents_of(numbers: Sequence[int], real_size: int, position: int, stored: int) -> Extents:
    """The stored parts of a file of `real_size` whose `stored` bytes begin at `position`. Raises SparseMapError."""
    extents = Extents(array("q"), array("q"), array("q"))
    end_before = 0
    stored_end = position + stored
    for start, size in zip(numbers[::2], numbers[1::2], strict=True):
        if start < end_before or size < 0 or start + size > real_size or position + size > stored_end:
            raise SparseMapError("the sparse map contradicts itself")
        if size:
            extents.starts.append(start)
            extents.ends.append(start + size)
            extents.positions.append(position)
        end_before = start + size
        position += size
    return extents


def padded(size: int) -> int:
    """`size` rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _lines(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Lines without their ends, as many as are needed. Raises SparseMapError if the data end, or a line is not a number."""
    rest = b""
    while data := read():
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if len(rest) > 20:
            break
    raise SparseMapError("the sparse map is cut short or damaged")


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


_MAX_EXTENDED: Final = 1 << 20
"""Bytes of a long name or a pax header, which are read into memory; nobody writes more."""
_READ_AFTER_END: Final = 16 << 20
"""Bytes checked after the end marker."""
_KEEP_BELOW: Final = 16 << 10
"""Members up to this size are kept from the first pass through a compressed archive: checkpoints, epochs, snapshots."""

_REGULAR: Final = frozenset({b"0", b"\0", b"7", b"S"})
_DIRECTORIES: Final = frozenset({b"5", b"D"})
_WITHOUT_DATA: Final = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
"""Types without data in the archive, whatever their size field says."""
_VOLUME_LABEL: Final = b"V"


class TarIndex:
    """Fills `tree` with the members that `reader` contains; `problems` gets a sentence for each fault.

    `keep` is the budget for keeping small members in memory, None if reading them again is cheap.
    """

    def __init__(self, reader: ArchiveBytes, tree: MemberTree, problems: list[str], keep: Budget | None) -> None:
        self.kept_bytes = 0
        """Bytes taken from `keep`."""
        self._reader = reader
        self._tree = tree
        self._problems = problems
        self._keep = keep
        self._position = 0
        self._extents_left = MAX_EXTENTS
        self._mtime: bytes | None = None
        """From a global pax header, for all members after it."""
        self._last = ("", 0)
        """Name of the last regular member, end of its data."""
        self._long_name = b""
        self._long_link = b""
        self._pax: list[tuple[bytes, bytes]] = []

    def run(self) -> None:
        """Read up to the end marker, the end of the bytes, or an invalid header. Raises TooManyMembersError."""
        while True:
            start = self._position
            block = self._reader.read_at(start, BLOCK)
            if len(block) < BLOCK:
                self._note_truncation(start + len(block))
                return
            if block == ZERO_BLOCK:
                self._check_after_end()
                return
            header = parse_header(block)
            if header is None:
                note(self._problems, f"no tar header at byte {start}: the rest is not read")
                return
            self._position = start + BLOCK
            if not self._read_member(header):
                return

    def _note_truncation(self, end: int) -> None:
        """Note that the archive ends at byte `end`, where a header should be, or before that if data are missing."""
        name, data_end = self._last
        if data_end and not self._reader.read_at(data_end - 1, 1):
            note(self._problems, f"cut short in the data of {name}")
        else:
            note(self._problems, f"ends at byte {end} without an end marker: it may be cut short")

    def _check_after_end(self) -> None:
        """Note bytes other than zeros after the end marker; reading them also makes a compressed stream verify its checksums."""
        start = self._position
        limit = start + _READ_AFTER_END
        for position in range(start, limit, BLOCK_SIZE):
            data = self._reader.read_at(position, BLOCK_SIZE)
            if data.strip(b"\0"):
                note(self._problems, f"bytes after the end marker at byte {start} are not read")
                return
            if len(data) < BLOCK_SIZE:
                return

    def _read_member(self, header: TarHeader) -> bool:
        """Read a header and its data; False if nothing after them can be read."""
        if header.type_flag in {b"L", b"K", b"x", b"X", b"g"}:
            return self._read_extension(header)
        pax = dict(self._pax)
        size_in_bytes = decimal(pax[b"size"]) if b"size" in pax else header.size_in_bytes
        if header.type_flag in _WITHOUT_DATA:
            size_in_bytes = 0
        if size_in_bytes is None or self._position + padded(size_in_bytes) > INT64_MAX:
            note(self._problems, f"impossible size before byte {self._position}: the rest is not read")
            return False
        mtime = pax.get(b"mtime", self._mtime)
        header = replace(
            header,
            name=pax.get(b"GNU.sparse.name") or pax.get(b"path") or self._long_name or header.name,
            link_name=pax.get(b"linkpath") or self._long_link or header.link_name,
            size_in_bytes=size_in_bytes,
            mtime_ns=header.mtime_ns if mtime is None else parse_time_ns(mtime),
        )
        self._add_member(header, pax)
        self._long_name = self._long_link = b""
        self._pax = []
        return True

    def _read_extension(self, header: TarHeader) -> bool:
        """Read a header that describes the next one; False if nothing after it can be read."""
        start = self._position
        if header.size_in_bytes > _MAX_EXTENDED:
            note(self._problems, f"extended header of {header.size_in_bytes} bytes at byte {start}: the rest is not read")
            return False
        data = self._reader.read_at(start, header.size_in_bytes)
        if len(data) < header.size_in_bytes:
            note(self._problems, f"cut short at byte {start + len(data)}, in an extended header")
            return False
        self._position = start + padded(header.size_in_bytes)
        if header.type_flag == b"L":
            self._long_name = data.split(b"\0", 1)[0]
        elif header.type_flag == b"K":
            self._long_link = data.split(b"\0", 1)[0]
        else:
            records = parse_pax(data)
            if records is None:
                note(self._problems, f"damaged pax header at byte {start}: the member after it may have a wrong name or size")
            elif header.type_flag == b"g":
                self._mtime = dict(records).get(b"mtime", self._mtime)
            else:
                self._pax = records
        return True

    def _add_member(self, header: TarHeader, pax: dict[bytes, bytes]) -> None:
        """Put the member into the tree, and move past its data."""
        name = header.name.decode("utf-8", "surrogateescape")
        kind = header.type_flag
        if kind in _REGULAR and not (kind == b"\0" and header.name.endswith(b"/")):
            self._tree.add(name, self._regular(header, name, pax))
            return
        self._position += padded(header.size_in_bytes)
        if kind in _DIRECTORIES or kind == b"\0":
            self._tree.add_directory(name, header.mtime_ns)
        elif kind == b"1":
            target = self._tree.resolve(header.link_name.decode("utf-8", "surrogateescape"))
            self._tree.add(name, target or ArchiveMember(EntryKind.OTHER, 0, header.mtime_ns))
        elif kind == b"2":
            target_name = header.link_name.decode("utf-8", "surrogateescape")[: MAX_NAME + 1]
            self._tree.add(name, ArchiveMember(EntryKind.SYMLINK, 0, header.mtime_ns, target=target_name))
        elif kind != _VOLUME_LABEL:
            if kind == b"M":
                note(self._problems, f"one part of several: {name} began in the previous part")
            self._tree.add(name, ArchiveMember(EntryKind.OTHER, 0, header.mtime_ns))

    def _regular(self, header: TarHeader, name: str, pax: dict[bytes, bytes]) -> ArchiveMember:
        """A regular file; moves past its data."""
        size_in_bytes = header.size_in_bytes
        if header.type_flag == b"S" or any(keyword.startswith(b"GNU.sparse.") for keyword in pax):
            member = self._sparse(header, pax)
        else:
            place = TarPlace(self._position)
            if self._keep is not None and 0 < size_in_bytes <= _KEEP_BELOW and self._keep.take(size_in_bytes):
                self.kept_bytes += size_in_bytes
                data = self._reader.read_at(self._position, size_in_bytes)
                place.kept = data if len(data) == size_in_bytes else None
            member = ArchiveMember(EntryKind.FILE, size_in_bytes, header.mtime_ns, place)
        self._last = (name, self._position + size_in_bytes)
        self._position += padded(size_in_bytes)
        return member

    def _sparse(self, header: TarHeader, pax: dict[bytes, bytes]) -> ArchiveMember:
        """A sparse file in any of the four formats; unreadable if its map is damaged."""
        declared = decimal(pax.get(b"GNU.sparse.realsize", pax.get(b"GNU.sparse.size", b"")))
        real_size = header.size_in_bytes if declared is None else declared
        map_size = 0
        place = TarPlace(self._position)
        try:
            if header.type_flag == b"S":
                numbers, real_size = gnu_sparse_map(header.block, self._next_block)
            elif pax.get(b"GNU.sparse.major") == b"1":
                numbers, map_size = pax_sparse_map(self._map_reader(header.size_in_bytes))
            else:
                numbers = _map_in_header(self._pax)
            place.position = self._position + map_size
            place.extents = extents_of(numbers, real_size, place.position, header.size_in_bytes - map_size)
            self._count_extents(place.extents)
        except SparseMapError as error:
            place.extents = None
            place.unreadable = str(error)
        return ArchiveMember(EntryKind.FILE, real_size, header.mtime_ns, place)

    def _count_extents(self, extents: Extents) -> None:
        self._extents_left -= len(extents.starts)
        if self._extents_left < 0:
            raise SparseMapError(f"the archive has more than {MAX_EXTENTS:,} sparse parts")

    def _next_block(self) -> bytes:
        block = self._reader.read_at(self._position, BLOCK)
        self._position += len(block)
        return block

    def _map_reader(self, stored: int) -> Callable[[], bytes]:
        """A function that gives the next bytes of the current member."""
        starts = iter(range(self._position, self._position + stored, 8 * BLOCK))
        end = self._position + stored

        def read() -> bytes:
            start = next(starts, end)
            return self._reader.read_at(start, min(8 * BLOCK, end - start))

        return read


def _map_in_header(records: list[tuple[bytes, bytes]]) -> list[int]:
    """The sparse map of PAX 0.1 (one keyword with all numbers) or 0.0 (two keywords, repeated). Raises SparseMapError."""
    values: list[bytes] = []
    for keyword, value in records:
        if keyword == b"GNU.sparse.map":
            values = value.split(b",") if value else []
            break
        if keyword in {b"GNU.sparse.offset", b"GNU.sparse.numbytes"}:
            values.append(value)
    numbers = [number for number in map(decimal, values) if number is not None]
    if len(numbers) < len(values) or len(numbers) % 2:
        raise SparseMapError("the sparse map is damaged")
    return numbers
