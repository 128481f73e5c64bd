"""Fast readers for the fields of Kafka's messages, flexible (KIP-482) and older, and writers by the same layouts.

A reader takes bytes and a position, and returns a value and the position after it. Nothing is allocated for a declared length or
count. Bytes that do not match the layout raise one of `UNREADABLE`, which parsers catch.
"""

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import isfinite
from struct import Struct, error, pack, unpack_from
from types import MappingProxyType
from typing import Any, Final

from kafka_forensics.model.json_objects import Json, JsonArray, JsonValue

Read = Callable[[bytes, int], tuple[JsonValue, int]]
Write = Callable[[Any], bytes]

Fields = tuple[tuple[str, Read], ...]
Tags = dict[int, tuple[str, Read, object]]
"""Name, reader and default by the tag."""
Layout = tuple[Fields, Tags]


class UnsignedVarintError(Exception):
    """A varint of more than five bytes; parsers catch it."""


def read_unsigned(data: bytes, position: int) -> tuple[int, int]:
    """(unsigned 32-bit integer at `position`, position after it); bits beyond 32 are dropped, as in ByteUtils.readUnsignedVarint.

    Raises IndexError where the bytes end first, and UnsignedVarintError.
    """
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position + 1
    raise UnsignedVarintError


class Malformed(Exception):  # noqa: N818 - not an error of the program; parsers catch it
    """The bytes do not match the layout; the argument is a short reason."""


UNREADABLE: Final = (IndexError, error, UnicodeDecodeError, UnsignedVarintError, Malformed)
UNKNOWN_TAGS: Final = "unknown_tags"
LEFT_OUT: Final = object()
"""The default of a tagged field that is absent from the fields if it is absent from the record."""


def read_message(data: bytes, position: int, layout: Layout) -> tuple[Json, int]:
    """The fields of one structure, tagged fields included, and the position after it.

    Tagged fields that are not in the layout are in `unknown_tags`, tag → base64 of its bytes, which is absent without any.
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


_WRITERS: Final[dict[Read, tuple[Write, JsonValue]]] = {}
"""Reader of a field → its writer, and the value that is written for a missing field: 0, empty or null."""


def write_message(layout: Layout, fields: Json) -> bytes:
    """The bytes of one structure; missing fields are 0, empty or null, and tagged fields with their default are not written."""
    body, tags = layout
    data = b"".join(write(fields.get(name, blank)) for name, read in body for write, blank in (_WRITERS[read],))
    tagged = [
        (tag, _WRITERS[read][0](value))
        for tag, (name, read, default) in sorted(tags.items())
        if (value := fields.get(name, default)) != default
    ]
    return b"".join((data, unsigned_varint(len(tagged)), *(unsigned_varint(tag) + _sized(content) for tag, content in tagged)))


def unsigned_varint(value: int) -> bytes:
    """An unsigned varint."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*data, value))


def compact_string(text: str) -> bytes:
    """A string of UTF-8 with its length + 1 in front."""
    return _compact(text.encode())


def _compact(content: bytes) -> bytes:
    return unsigned_varint(len(content) + 1) + content


def _sized(content: bytes) -> bytes:
    return unsigned_varint(len(content)) + content


def _with_writer(read: Read, write: Write, blank: JsonValue) -> Read:
    """The reader, with the writer of what it reads and the value of a missing field."""
    _WRITERS[read] = write, blank
    return read


def number(form: str) -> Read:
    """A reader for a number of this `struct` format."""
    layout = Struct(form)

    def read(data: bytes, position: int) -> tuple[JsonValue, int]:
        return layout.unpack_from(data, position)[0], position + layout.size

    return _with_writer(read, layout.pack, 0)


def flag(data: bytes, position: int) -> tuple[bool, int]:
    """A boolean."""
    return data[position] != 0, position + 1


def float64(data: bytes, position: int) -> tuple[float | str, int]:
    """A float; as text if it is infinite or NaN, for which JSON has no number."""
    value, position = _DOUBLE(data, position)
    return value if isfinite(value) else str(value), position


def uuid(data: bytes, position: int) -> tuple[str, int]:
    """A UUID, as Kafka prints it."""
    end = position + 16
    if end > len(data):
        raise Malformed("uuid")
    return uuid_text(data[position:end]), end


def raw_uuid(data: bytes, position: int) -> tuple[bytes, int]:
    """A UUID, as 16 bytes."""
    end = position + 16
    if end > len(data):
        raise Malformed("uuid")
    return data[position:end], end


@lru_cache(maxsize=4096)
def uuid_text(raw: bytes) -> str:
    """16 bytes as Kafka prints UUIDs: 22 characters of base64url."""
    return urlsafe_b64encode(raw)[:22].decode()


def _length(data: bytes, position: int, *, nullable: bool) -> tuple[int, int]:
    """A compact length, -1 for null."""
    length, position = read_unsigned(data, position)
    if length == 0 and not nullable:
        raise Malformed("null")
    return length - 1, position


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _of_length(kind: str, text_of: Callable[[bytes], str], bytes_of: Callable[[str], bytes], *, nullable: bool) -> Read:
    """A reader for bytes with a compact length, as text; `kind` is the reason if they are cut."""

    def read(data: bytes, position: int) -> tuple[str | None, int]:
        length, position = _length(data, position, nullable=nullable)
        if length < 0:
            return None, position
        end = position + length
        if end > len(data):
            raise Malformed(kind)
        return text_of(data[position:end]), end

    def write(text: str | None) -> bytes:
        return b"\0" if text is None else _compact(bytes_of(text))

    return _with_writer(read, write, None if nullable and kind == "string" else "")


def integers(*, nullable: bool) -> Read:
    """A reader for a compact array of 32-bit integers."""

    def read(data: bytes, position: int) -> tuple[list[int] | None, int]:
        count, position = _length(data, position, nullable=nullable)
        if count < 0:
            return None, position
        end = position + 4 * count
        if end > len(data):
            raise Malformed("array")
        return list(unpack_from(f">{count}i", data, position)), end

    def write(numbers: list[int] | None) -> bytes:
        return b"\0" if numbers is None else unsigned_varint(len(numbers) + 1) + pack(f">{len(numbers)}i", *numbers)

    return _with_writer(read, write, None if nullable else [])


def array(element: Read, *, nullable: bool = False) -> Read:
    """A reader for a compact array of elements, none of which has an empty encoding."""

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

    def write(values: JsonArray | None) -> bytes:
        if values is None:
            return b"\0"
        return unsigned_varint(len(values) + 1) + b"".join(map(_WRITERS[element][0], values))

    return _with_writer(read, write, None if nullable else [])


INT8, INT16, UINT16, INT32, INT64 = map(number, (">b", ">h", ">H", ">i", ">q"))
_DOUBLE = number(">d")
STRING, NULLABLE_STRING = (_of_length("string", bytes.decode, str.encode, nullable=nullable) for nullable in (False, True))
BASE64, NULLABLE_BASE64 = (_of_length("bytes", _base64, b64decode, nullable=nullable) for nullable in (False, True))
_with_writer(flag, lambda value: b"\1" if value else b"\0", blank=False)
_with_writer(float64, lambda value: pack(">d", float(value)), 0)
_with_writer(raw_uuid, bytes, bytes(16))
_with_writer(uuid, lambda text: urlsafe_b64decode(f"{text}=="), uuid_text(bytes(16)))
INTS, NULLABLE_INTS = integers(nullable=False), integers(nullable=True)
UUIDS, NULLABLE_UUIDS = array(uuid), array(uuid, nullable=True)


def structure(*fields: tuple[str, Read], tags: Tags | None = None) -> Read:
    """A reader for a structure inside a message, as a dict."""
    layout: Layout = (fields, tags or {})

    def read(data: bytes, position: int) -> tuple[Json, int]:
        return read_message(data, position, layout)

    return _with_writer(read, partial(write_message, layout), {})


def nullable_structure(read: Read, *, tagged: bool = False) -> Read:
    """A reader for a byte, negative for null, then the structure; in a tagged field an unsigned varint, 0 for null."""

    def read_nullable(data: bytes, position: int) -> tuple[Json | None, int]:
        if tagged:
            mark, after = read_unsigned(data, position)
            is_present = 0 < mark < 1 << 31
        else:
            after, is_present = position + 1, data[position] < 0x80
        return read(data, after) if is_present else (None, after)

    def write(value: Json | None) -> bytes:
        return b"\1" + _WRITERS[read][0](value) if value is not None else b"\0" if tagged else b"\xff"

    return _with_writer(read_nullable, write, None)


class FieldCursor:
    """Reads the fields of a key or value one after the other; raises `Malformed` where the bytes end.

    Reasons: `truncated`, `length` (negative), `varint`, `text` (not UTF-8), `tag`.
    """

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise Malformed("length" if size < 0 else "truncated")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def integer(self, size: int) -> int:
        """A signed big-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self) -> int:
        """An unsigned varint of at most five bytes."""
        try:
            value, self._position = read_unsigned(self._data, self._position)
        except IndexError:
            raise Malformed("truncated") from None
        except UnsignedVarintError:
            raise Malformed("varint") from None
        return value

    def text(self, length: int) -> str:
        """`length` bytes of UTF-8."""
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise Malformed("text") from None

    def short_string(self) -> str:
        """A string with a length of 16 bits."""
        return self.text(self.integer(2))

    def compact_string(self) -> str:
        """A string with a varint of length + 1."""
        return self.text(self.varint() - 1)

    def tagged_fields(self, sizes: Mapping[int, int] = MappingProxyType({})) -> dict[int, bytes]:
        """Tagged fields by tag, which must ascend; a field in `sizes` must have that size."""
        fields: dict[int, bytes] = {}
        last = -1
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            if tag <= last:
                raise Malformed("tag")
            fields[tag] = self.take(size)
            if sizes.get(tag, size) != size:
                raise Malformed("tag")
            last = tag
        return fields
