"""`.index` and `.timeindex`: entries without a header, one behind the other, all numbers big-endian."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from construct import ConstructError, GreedyRange, Int32sb, Int64sb, Struct

from kafka_forensics.errors import FormatError
from kafka_forensics.model.constants import INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE

OFFSET_INDEX_ENTRY: Final = Struct(
    "relative_offset" / Int32sb,  # of the last offset of what was appended, from the segment's base offset
    "position" / Int32sb,  # first byte of it in the .log
)
assert OFFSET_INDEX_ENTRY.sizeof() == INDEX_ENTRY_SIZE

TIME_INDEX_ENTRY: Final = Struct(
    "timestamp" / Int64sb,  # milliseconds, the largest so far
    "relative_offset" / Int32sb,  # where it was met
)
assert TIME_INDEX_ENTRY.sizeof() == TIME_INDEX_ENTRY_SIZE


def parse_entries(layout: Struct, data: bytes) -> list[dict[str, int]]:
    """Every whole entry of `layout` in `data`, as name → number; a partial last one is left out."""
    return [{name: entry[name] for name in entry if name != "_io"} for entry in GreedyRange(layout).parse(data)]


def build_entries(layout: Struct, entries: Iterable[Mapping[str, Any]]) -> bytes:
    """The bytes of `entries`, each a mapping of every name of `layout`; raises FormatError for a number that does not fit."""
    try:
        return b"".join(layout.build(dict(entry)) for entry in entries)
    except ConstructError as error:
        raise FormatError(f"an entry cannot be written: {error}") from error
