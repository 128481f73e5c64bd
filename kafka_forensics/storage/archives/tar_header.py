"""Headers of tar archives: POSIX ustar and pax, GNU, star, V7 (IEEE 1003.1 `pax`, GNU tar manual, "Basic Tar Format")."""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.storage.archives.members import Extents

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
    """A sparse member's map makes no sense."""


@dataclass(frozen=True, slots=True)
class Header:
    """One header block. `name` and `link_name` as bytes; `size_in_bytes` of what follows in the archive."""

    name: bytes
    link_name: bytes
    type_flag: bytes
    size_in_bytes: int
    mtime_ns: int
    block: bytes


def parse_header(block: bytes) -> Header | None:
    """The header in 512 bytes, or None if they are none: the checksum or the size is wrong."""
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
    return Header(
        name=prefix + b"/" + name if prefix else name,
        link_name=_text(block[157:257]),
        type_flag=block[156:157],
        size_in_bytes=size_in_bytes,
        mtime_ns=seconds * 10**9 if abs(seconds) < 2**33 else 0,
        block=block,
    )


def parse_number(text: bytes) -> int | None:
    """A number field: octal digits, or GNU's base 256 (first bit set); None if it is neither."""
    if text[0] in {0x80, 0xFF}:
        return int.from_bytes(text[1:], "big") - (256 ** (len(text) - 1) if text[0] == 0xFF else 0)
    digits = text.split(b"\0", 1)[0].strip()
    if not digits:
        return 0
    return int(digits, 8) if re.fullmatch(rb"[0-7]+", digits) else None


def parse_pax(data: bytes) -> list[tuple[bytes, bytes]] | None:
    """(keyword, value) of a pax header's records in their order, None if the records do not tile the data."""
    records: list[tuple[bytes, bytes]] = []
    position = 0
    while position < len(data):
        if data[position] == 0:
            return None if data[position:].strip(b"\0") else records  # zeros behind the last record, as some writers leave them
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
    """Nanoseconds of pax's decimal seconds; 0 if it is no such number."""
    match = _TIME.match(text)
    if match is None:
        return 0
    seconds, fraction = match.groups()
    nanoseconds = int((fraction or b"")[:9].ljust(9, b"0"))
    return int(seconds) * 10**9 + (-nanoseconds if text.startswith(b"-") else nanoseconds)


def decimal(text: bytes) -> int | None:
    """A pax number of at most 63 bits, None if it is none."""
    value = int(text) if _DECIMAL.match(text) else None
    return value if value is None or value <= INT64_MAX else None


def gnu_sparse_map(block: bytes, read_block: Callable[[], bytes]) -> tuple[list[int], int]:
    """(offset, size, offset, size, …; real size) of GNU's old sparse header `block`; `read_block` gives the blocks that extend it.

    Raises SparseMapError; by then every extending block was taken, unless the archive ended.
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
    known = [number for number in numbers if number is not None]
    if real_size is None or not 0 <= real_size <= INT64_MAX or len(known) < len(numbers):
        raise SparseMapError("the sparse map is damaged")
    return known, real_size


def pax_sparse_map(read: Callable[[], bytes]) -> tuple[list[int], int]:
    """(offset, size, …; bytes it takes) of the map that PAX 1.0 puts before the data; `read` gives the next bytes, b"" at the end.

    Decimal numbers, a line each: the count of entries, then two per entry; padded to whole blocks. Raises SparseMapError.
    """
    lines = _lines(read)
    first = next(lines)
    count = decimal(first)
    if count is None or count > MAX_EXTENTS:
        raise SparseMapError("the sparse map is damaged")
    numbers = []
    taken = len(first) + 1
    for line in islice(lines, 2 * count):
        number = decimal(line)
        if number is None:
            raise SparseMapError("the sparse map is damaged")
        numbers.append(number)
        taken += len(line) + 1
    return numbers, padded(taken)


def extents_of(numbers: Sequence[int], real_size: int, position: int, stored: int) -> Extents:
    """The stored parts of a file of `real_size` whose data, `stored` bytes, begin at `position`. Raises SparseMapError."""
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
    """Lines without their ends; raises SparseMapError rather than end, or give a long one."""
    rest = b""
    while data := read():
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if len(rest) > 20:
            break
    raise SparseMapError("the sparse map is cut short or damaged")


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]
