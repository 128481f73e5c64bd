"""The layout of a bundle: a plain tar of parts, each a zstd frame with an index and sections, a listing, and checksums.

`bundle.json` comes first and says who made it, where and how. `parts/NNNNNN.zst` hold the sections in the order in which files were
read; each part can be read by itself. `listing.zst` names every file and its sections. `seal.json` comes last: size and SHA-256 of
every member before it. A truncated bundle has no checksums; the indexes of its complete parts are read instead.
"""

import io
import json
import struct
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from kafka_forensics.errors import FormatError

DESCRIPTION: Final = "bundle.json"
LISTING: Final = "listing.zst"
CHECKSUMS: Final = "seal.json"
PARTS: Final = "parts"
TRANSACTION_PARTITIONS: Final = "transaction_partitions"
"""Key in bundle.json of the number of partitions of the transaction coordinators' log, which grow while a broker runs."""
FORMAT: Final = "kafka-forensics bundle"
VERSION: Final = 1
SUFFIX: Final = ".kfb"

PART_BYTES: Final = 4 << 20
"""A part ends as soon as its sections have this many bytes."""
LEVEL: Final = 1
"""zstd's compression level: delta-coded columns hardly get smaller at higher levels,"""
FAST_COMPRESSION_LEVEL: Final = -1
"""and alone they are as small at this one, which is faster."""
MAX_PART_BYTES: Final = 48 << 20
"""A part that decompresses to more is refused."""
MAX_SECTION_BYTES: Final = 36 << 20
MAX_LISTING_BYTES: Final = 512 << 20
MAX_DESCRIPTION_BYTES: Final = 1 << 20
MAX_CHECKSUM_BYTES: Final = 128 << 20
MAX_VALUES: Final = 1 << 20
"""Most JSON values in the index of a part, or in bundle.json,"""
MAX_CHECKSUM_VALUES: Final = 4 << 20
"""in the checksums,"""
MAX_LISTED_VALUES: Final = 24 << 20
"""and in a listing: about twenty for each of the files that a source may have."""
MAX_FILE_BYTES: Final = 1 << 62
"""Bound of file sizes, and of times in nanoseconds."""
_PART_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"KFP1"
_BATCH_HEADER: Final = struct.Struct("<qI")
_READ: Final = 1 << 20


class SectionKind(StrEnum):
    """What a section holds of its file."""

    BYTES = "bytes"
    """Bytes `[start, end)` unchanged."""
    BATCHES = "batches"
    """Columns of the batches in `[start, end)`, and the damage there."""
    RAW = "raw"
    """Batches as they are stored, by position."""
    REDUCED = "reduced"
    """Batches reduced to what the analysis uses of their records, by position."""
    FRAMES = "frames"
    """The bytes at each place in `[start, end)` where damage begins, read as a batch header."""
    KEYS = "keys"
    """Hashes of keys and values of the batches in `[start, end)`."""


SECTION_KINDS: Final = frozenset(kind.value for kind in SectionKind)
EXCLUSIVE_KINDS: Final = frozenset({SectionKind.BYTES, SectionKind.BATCHES})
"""Kinds of which at most one section covers any byte of a file."""


class BundleSection(NamedTuple):
    """A section: its part, its place in the decompressed part, and the bytes `[start, end)` of the file that it describes."""

    part: int
    position: int
    size_in_bytes: int
    kind: SectionKind
    start: int
    end: int


def part_name(number: int) -> str:
    """Name of the tar member of a part."""
    return f"{PARTS}/{number:06}.zst"


class PartIndex(NamedTuple):
    """The index of a part: the paths whose sections in earlier parts are void, because this part and later ones have them again;
    (path, section) of its sections; the rows of the files that end in it."""

    begun: list[str]
    sections: list[tuple[str, BundleSection]]
    files: list[object]


def part_chunks(
    sections: list[tuple[str, SectionKind, int, int, bytes]], files: list[list[object]], begun: Sequence[str] = ()
) -> list[bytes]:
    """The uncompressed bytes of a part, in chunks: `sections` are (path, kind, start, end, data); for `files` and `begun` see
    PartIndex."""
    rows = [[path, kind.value, start, end, len(data)] for path, kind, start, end, data in sections]
    index = json.dumps({"begun": list(begun), "sections": rows, "files": files}).encode()
    return [_PART_HEADER.pack(_MAGIC, len(index)), index, *(data for *_, data in sections)]


def read_index(part: bytes | memoryview, number: int) -> PartIndex:
    """The index of a decompressed part. Raises FormatError."""
    if len(part) < _PART_HEADER.size:
        raise FormatError("a part of a bundle without a header")
    magic, size = _PART_HEADER.unpack_from(part)
    if magic != _MAGIC or size > len(part) - _PART_HEADER.size:
        raise FormatError("not a part of a bundle")
    position = _PART_HEADER.size + size
    match parse_json(bytes(part[_PART_HEADER.size : position])):
        case {"begun": list(begun), "sections": list(rows), "files": list(files)} if all(isinstance(path, str) for path in begun):
            sections = []
            for row in rows:
                path, section = _section(row, number, position)
                position += section.size_in_bytes
                sections.append((path, section))
            if position != len(part):
                raise FormatError(f"the sections of a part have {position} bytes, and it has {len(part)}")
            return PartIndex(begun, sections, files)
    raise FormatError("a part of a bundle without an index")


def _section(row: object, number: int, position: int) -> tuple[str, BundleSection]:
    match row:
        case [str(path), str(kind), int(start), int(end), int(size)] if kind in SECTION_KINDS:
            if all(map(is_number, (start, end, size))) and start <= end and size <= MAX_SECTION_BYTES:
                return path, BundleSection(number, position, size, SectionKind(kind), start, end)
    raise FormatError("an invalid section of a bundle")


def is_number(value: object, least: int = 0, end: int = MAX_FILE_BYTES) -> bool:
    """Whether this is an integer in `[least, end)`, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < end


def parse_json(data: bytes, most: int = MAX_VALUES) -> object:
    """Parse JSON. Raises FormatError if it is invalid, nested too deeply, or may have more than `most` values, which would need
    many times the memory of their bytes."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > most:
        raise FormatError(f"JSON of more than {most:,} values")
    try:
        parsed: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError("invalid JSON in a bundle") from error
    return parsed


class Frame(NamedTuple):
    """The bytes at `position`, read as a batch header, valid or not."""

    position: int
    base_offset: int
    batch_length: int
    magic: int
    last_offset_delta: int
    """0 if the file ends before this field."""


MAX_HELD: Final = 1 << 15
"""Most batches, or places where damage begins, in a section: those of two chunks."""
_FRAME: Final = struct.Struct("<qqibi")


def write_frames(frames: list[Frame]) -> bytes:
    """The bytes of a section of frames."""
    return b"".join(_FRAME.pack(*frame) for frame in frames)


def read_frames(section: bytes) -> list[Frame]:
    """The frames of a section. Raises FormatError."""
    if len(section) % _FRAME.size or len(section) > _FRAME.size * MAX_HELD:
        raise FormatError("truncated frames, or too many")
    return [Frame(*numbers) for numbers in _FRAME.iter_unpack(section)]


def write_batches_section(batches: list[tuple[int, bytes]]) -> bytes:
    """The bytes of a section of (position in the file, batch)."""
    return b"".join(piece for position, data in batches for piece in (_BATCH_HEADER.pack(position, len(data)), data))


def read_batches_section(section: bytes) -> dict[int, bytes]:
    """Batches by position. Raises FormatError."""
    batches: dict[int, bytes] = {}
    start = 0
    while start < len(section):
        if start + _BATCH_HEADER.size > len(section):
            raise FormatError("a stored batch without a header")
        position, size = _BATCH_HEADER.unpack_from(section, start)
        start += _BATCH_HEADER.size
        if start + size > len(section):
            raise FormatError("a truncated stored batch")
        if position in batches or len(batches) == MAX_HELD:
            raise FormatError("two stored batches at one byte, or too many")
        batches[position] = section[start : start + size]
        start += size
    return batches


def decompressed(data: bytes, limit: int) -> bytes:
    """Decompress one or more zstd frames. Raises FormatError if they are damaged, or give more than `limit` bytes."""
    import pyarrow as pa  # slow to import, and bundles are rare

    stream = pa.CompressedInputStream(pa.BufferReader(data), "zstd")
    output = io.BytesIO()
    try:
        while chunk := stream.read(min(_READ, limit + 1 - output.tell())):
            output.write(chunk)
            if output.tell() > limit:
                raise FormatError(f"inflates to more than {limit} bytes")
    except (OSError, ValueError) as error:
        raise FormatError("a zstd frame that is damaged or cut short") from error
    return output.getvalue()
