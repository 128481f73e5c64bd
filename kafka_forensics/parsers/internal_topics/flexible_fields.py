"""Fields of Kafka's flexible messages (KIP-482), read fast, and put together into layouts: the twin of `spec.flexible`.

A reader takes bytes and a position, and gives a value and the position behind it. Nothing is allocated because a length or a count
says so. Bytes that are not laid out so raise one of `UNREADABLE`, which no parser lets out.
"""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from struct import Struct, error, unpack_from
from typing import Final

from kafka_forensics.model.json_objects import Json, JsonArray, JsonValue
from kafka_forensics.parsers.log import UnsignedVarintError, read_unsigned

Read = Callable[[bytes, int], tuple[JsonValue, int]]

Fields = tuple[tuple[str, Read], ...]
Tags = dict[int, tuple[str, Read, object]]
"""Name, reader and default by the tag."""
Layout = tuple[Fields, Tags]


class Malformed(Exception):  # noqa: N818 - no error of the program; parsers catch it
    """The bytes break the layout; the argument names how."""


UNREADABLE: Final = (IndexError, error, UnicodeDecodeError, UnsignedVarintError, Malformed)
UNKNOWN_TAGS: Final = "unknown_tags"
LEFT_OUT: Final = object()
"""The default of a tagged field that has no place among the fields where it is left out."""


def read_message(data: bytes, position: int, layout: Layout) -> tuple[Json, int]:
    """Fields of one structure, its tagged fields among them, and the position behind.

    Tagged fields that the layout does not know are `unknown_tags`, tag → base64 of its bytes; absent without any.
    """
    body, tags = layout
    fields: Json = {}
    for name, read in body:
        fields[name], position = read(data, position)
    for name, _, default in tags.values():
        if default is not LEFT_OUT:
            fields[name] = [] if default == [] else default
    last = -1
    count, position = read_unsigned(data, position)
    while count > 0:
        tag, position = read_unsigned(data, position)
        size, position = read_unsigned(data, position)
        end = position + size
        if tag <= last or end > len(data):
            raise Malformed("tag")
        if tag in tags:
            name, read, _ = tags[tag]
            fields[name], stop = read(data[position:end], 0)
            if stop != size:
                raise Malformed("tag")
        else:
            fields.setdefault(UNKNOWN_TAGS, {})[str(tag)] = b64encode(data[position:end]).decode()
        last, position, count = tag, end, count - 1
    return fields, position


def number(form: str) -> Read:
    """A number of this `struct` format."""
    layout = Struct(form)

    def read(data: bytes, position: int) -> tuple[JsonValue, int]:
        return layout.unpack_from(data, position)[0], position + layout.size

    return read


def flag(data: bytes, position: int) -> tuple[bool, int]:
    """A boolean."""
    return data[position] != 0, position + 1


def float64(data: bytes, position: int) -> tuple[float | str, int]:
    """A number, or the name of what is none and JSON cannot say."""
    value, position = _DOUBLE(data, position)
    return value if isfinite(value) else str(value), position


def base64_bytes(*, nullable: bool) -> Read:
    """Compact bytes, as Kafka's JSON has them, null an error unless `nullable`."""
    return _of_length("bytes", lambda raw: b64encode(raw).decode(), nullable=nullable)


def uuid(data: bytes, position: int) -> tuple[str, int]:
    """An id, as Kafka writes it."""
    end = position + 16
    if end > len(data):
        raise Malformed("uuid")
    return uuid_text(data[position:end]), end


@lru_cache(maxsize=4096)
def uuid_text(raw: bytes) -> str:
    """16 bytes as Kafka writes ids: 22 characters of base64url."""
    return urlsafe_b64encode(raw)[:22].decode()


def _length(data: bytes, position: int, *, nullable: bool) -> tuple[int, int]:
    """A compact length, -1 for null."""
    length, position = read_unsigned(data, position)
    if length == 0 and not nullable:
        raise Malformed("null")
    return length - 1, position


def string(*, nullable: bool) -> Read:
    """A compact string, null an error unless `nullable`."""
    return _of_length("string", bytes.decode, nullable=nullable)


def _of_length(kind: str, text_of: Callable[[bytes], str], *, nullable: bool) -> Read:
    """Bytes behind their compact length, as text; `kind` is the reason where they end too early."""

    def read(data: bytes, position: int) -> tuple[str | None, int]:
        length, position = _length(data, position, nullable=nullable)
        if length < 0:
            return None, position
        end = position + length
        if end > len(data):
            raise Malformed(kind)
        return text_of(data[position:end]), end

    return read


def integers(*, nullable: bool) -> Read:
    """A compact array of 32-bit integers."""

    def read(data: bytes, position: int) -> tuple[list[int] | None, int]:
        count, position = _length(data, position, nullable=nullable)
        if count < 0:
            return None, position
        end = position + 4 * count
        if end > len(data):
            raise Malformed("array")
        return list(unpack_from(f">{count}i", data, position)), end

    return read


def array(element: Read, *, nullable: bool = False) -> Read:
    """A compact array of elements, none of which is empty."""

    def read(data: bytes, position: int) -> tuple[JsonArray | None, int]:
        count, position = _length(data, position, nullable=nullable)
        if count < 0:
            return None, position
        if count > len(data) - position:
            raise Malformed("array")
        values = []
        for _ in range(count):
            value, position = element(data, position)
            values.append(value)
        return values, position

    return read


INT8, INT16, UINT16, INT32, INT64 = map(number, (">b", ">h", ">H", ">i", ">q"))
_DOUBLE = number(">d")
STRING, NULLABLE_STRING = string(nullable=False), string(nullable=True)
BASE64, NULLABLE_BASE64 = base64_bytes(nullable=False), base64_bytes(nullable=True)
INTS, NULLABLE_INTS = integers(nullable=False), integers(nullable=True)
UUIDS, NULLABLE_UUIDS = array(uuid), array(uuid, nullable=True)


def structure(*fields: tuple[str, Read], tags: Tags | None = None) -> Read:
    """A structure inside of a message, as a mapping."""
    layout: Layout = (fields, tags or {})

    def read(data: bytes, position: int) -> tuple[Json, int]:
        return read_message(data, position, layout)

    return read


def nullable_structure(read: Read, *, tagged: bool = False) -> Read:
    """A byte, negative for null, else with the structure behind it; in a tagged field an unsigned varint, 0 for null."""

    def read_nullable(data: bytes, position: int) -> tuple[Json | None, int]:
        if tagged:
            mark, behind = read_unsigned(data, position)
            is_there = 0 < mark < 1 << 31
        else:
            behind, is_there = position + 1, data[position] < 0x80
        return read(data, behind) if is_there else (None, behind)

    return read_nullable
