"""How a bundle is laid out: a plain tar of parts, each a zstd frame of sections behind their index, a listing, and a seal.

`bundle.json` comes first and says who made it, where and how. `parts/NNNNNN.zst` hold the sections, in the order in which files
were read; a part is whole by itself. `listing.zst` names every file and where its sections are. `seal.json` comes last: the size
and SHA-256 of every member before it. What is cut short has no seal, and is read by the indexes of the parts that are whole.
"""

import io
import json
import struct
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from kafka_forensics.errors import FormatError

ABOUT: Final = "bundle.json"
LISTING: Final = "listing.zst"
SEAL: Final = "seal.json"
PARTS: Final = "parts"
TRANSACTION_PARTITIONS: Final = "transaction_partitions"
"""How bundle.json calls the partitions of the transaction coordinators' log, which grow while a broker runs."""
FORMAT: Final = "kafka-forensics bundle"
VERSION: Final = 1
SUFFIX: Final = ".kfb"

PART_BYTES: Final = 4 << 20
"""Sections are put into one part until they have so many bytes."""
LEVEL: Final = 1
"""Of compression, by zstd's numbers: what is left after columns are foretold hardly gets smaller by more;"""
QUICK_LEVEL: Final = -1
"""and of these alone it is as small by less."""
MAX_PART_BYTES: Final = 48 << 20
"""A part that inflates to more is refused."""
MAX_SECTION_BYTES: Final = 36 << 20
MAX_LISTING_BYTES: Final = 512 << 20
MAX_ABOUT_BYTES: Final = 1 << 20
MAX_SEAL_BYTES: Final = 128 << 20
MAX_VALUES: Final = 1 << 20
"""In the JSON of a part's index, or of what a bundle says of itself;"""
MAX_SEALED_VALUES: Final = 4 << 20
"""in a seal;"""
MAX_LISTED_VALUES: Final = 24 << 20
"""and in a listing, where as many files as a tree may have take some twenty each."""
MAX_FILE_BYTES: Final = 1 << 62
"""No file, and no time in nanoseconds, is beyond that."""
_HEAD: Final = struct.Struct("<4sI")
_MAGIC: Final = b"KFP1"
_HELD: Final = struct.Struct("<qI")
_READ: Final = 1 << 20


class SectionKind(StrEnum):
    """What a section holds of its file."""

    BYTES = "bytes"
    """Bytes `[start, end)` as they are."""
    BATCHES = "batches"
    """Columns of the batches in `[start, end)`, and what is damaged there."""
    KEPT = "kept"
    """Batches as they are stored, by position."""
    TOLD = "told"
    """Batches with as much of their records as the analysis uses, by position."""
    FRAMES = "frames"
    """What a header would say at each place in `[start, end)` where damage begins."""
    KEYS = "keys"
    """Hashes of keys and values of the batches in `[start, end)`."""


SECTION_KINDS: Final = frozenset(kind.value for kind in SectionKind)
TELLING: Final = frozenset({SectionKind.BYTES, SectionKind.BATCHES})
"""Of these every byte of a file has one at most."""


class Section(NamedTuple):
    """A section of a file: its part, where it lies in that part's sections, and which bytes of the file it speaks of."""

    part: int
    position: int
    size_in_bytes: int
    kind: SectionKind
    start: int
    end: int


def part_name(number: int) -> str:
    """The member that holds a part."""
    return f"{PARTS}/{number:06}.zst"


class PartIndex(NamedTuple):
    """What an inflated part holds: the files that are read anew from it on, of which all that came before is no more; sections,
    each with the path of its file; the rows of the files that end in it."""

    begun: list[str]
    sections: list[tuple[str, Section]]
    files: list[object]


def pieces_of_part(
    sections: list[tuple[str, SectionKind, int, int, bytes]], files: list[list[object]], begun: Sequence[str] = ()
) -> list[bytes]:
    """A part of sections, not compressed yet and piece by piece: each with the path of its file, and the bytes of that it speaks
    of; the rows of the files that end in it; and the files of which all that came before is no more."""
    rows = [[path, kind.value, start, end, len(data)] for path, kind, start, end, data in sections]
    index = json.dumps({"begun": list(begun), "sections": rows, "files": files}).encode()
    return [_HEAD.pack(_MAGIC, len(index)), index, *(data for *_, data in sections)]


def read_index(part: bytes | memoryview, number: int) -> PartIndex:
    """What an inflated part holds. Raises FormatError."""
    if len(part) < _HEAD.size:
        raise FormatError("a part of a bundle without a head")
    magic, size = _HEAD.unpack_from(part)
    if magic != _MAGIC or size > len(part) - _HEAD.size:
        raise FormatError("no part of a bundle")
    position = _HEAD.size + size
    match json_of(bytes(part[_HEAD.size : position])):
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


def _section(row: object, number: int, position: int) -> tuple[str, Section]:
    match row:
        case [str(path), str(kind), int(start), int(end), int(size)] if kind in SECTION_KINDS:
            if all(map(is_number, (start, end, size))) and start <= end and size <= MAX_SECTION_BYTES:
                return path, Section(number, position, size, SectionKind(kind), start, end)
    raise FormatError("a section of a bundle that makes no sense")


def is_number(value: object, least: int = 0, end: int = MAX_FILE_BYTES) -> bool:
    """Whether this is an integer of `[least, end)`, and not true or false."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < end


def json_of(data: bytes, most: int = MAX_VALUES) -> object:
    """The JSON in these bytes. Raises FormatError if there is none, it is nested without end, or it may have more than `most`
    values, which would take many times the memory of their bytes."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > most:
        raise FormatError(f"JSON of more than {most:,} values")
    try:
        parsed: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError("no JSON where a bundle has some") from error
    return parsed


class Frame(NamedTuple):
    """What the bytes at a place say if they are taken for a batch's header, as they are written."""

    position: int
    base_offset: int
    batch_length: int
    magic: int
    last_offset_delta: int
    """0 where the file ends before it."""


MAX_HELD: Final = 1 << 15
"""Batches, or places where damage begins, that a section holds at most: those of two chunks."""
_FRAME: Final = struct.Struct("<qqibi")


def write_frames(frames: list[Frame]) -> bytes:
    """A section of frames."""
    return b"".join(_FRAME.pack(*frame) for frame in frames)


def read_frames(section: bytes) -> list[Frame]:
    """The frames of a section. Raises FormatError."""
    if len(section) % _FRAME.size or len(section) > _FRAME.size * MAX_HELD:
        raise FormatError("frames that are cut short, or too many")
    return [Frame(*numbers) for numbers in _FRAME.iter_unpack(section)]


def write_held(batches: list[tuple[int, bytes]]) -> bytes:
    """A section of batches, each with its position in the file."""
    return b"".join(piece for position, data in batches for piece in (_HELD.pack(position, len(data)), data))


def read_held(section: bytes) -> dict[int, bytes]:
    """Batches by position. Raises FormatError."""
    held: dict[int, bytes] = {}
    at = 0
    while at < len(section):
        if at + _HELD.size > len(section):
            raise FormatError("a held batch without a head")
        position, size = _HELD.unpack_from(section, at)
        at += _HELD.size
        if at + size > len(section):
            raise FormatError("a held batch that is cut short")
        if position in held or len(held) == MAX_HELD:
            raise FormatError("two held batches at one byte, or too many")
        held[position] = section[at : at + size]
        at += size
    return held


def inflated(data: bytes, limit: int) -> bytes:
    """What one or more zstd frames inflate to. Raises FormatError if that is more than `limit` bytes, or they are damaged."""
    import pyarrow as pa  # a bundle is rare, and this takes a moment

    stream = pa.CompressedInputStream(pa.BufferReader(data), "zstd")
    pieces, size = io.BytesIO(), 0
    try:
        while piece := stream.read(min(_READ, limit + 1 - size)):
            size += len(piece)
            if size > limit:
                raise FormatError(f"inflates to more than {limit} bytes")
            pieces.write(piece)
    except (OSError, ValueError) as error:
        raise FormatError("a zstd frame that is damaged or cut short") from error
    return pieces.getvalue()
