"""The flexible encoding of Kafka's messages (KIP-482): unsigned varints, compact strings and arrays, tagged fields; and the older
encoding of strings and arrays.

Exact and slow; nothing is allocated for a declared length before its bytes exist.
"""

from base64 import b64encode
from collections.abc import Collection
from typing import Any, BinaryIO, Final

from construct import (
    Bytes,
    Construct,
    ConstructError,
    Container,
    ExprAdapter,
    Int16sb,
    StringError,
    stream_read,
    stream_write,
)

from kafka_forensics.model.json_objects import Json, JsonValue
from kafka_forensics.parsers.spec.record_batch import LengthError, OverlongVarintError, encode_unsigned


class UnsignedVarint(Construct):
    """An LEB128 integer of 32 bits without zig-zag, at most 5 bytes."""

    def _parse(self, stream: BinaryIO, _context: Container, path: str) -> int:
        raw = 0
        for index in range(5):
            byte = stream_read(stream, 1, path)[0]
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return raw & 0xFFFFFFFF
        raise OverlongVarintError("varint longer than 5 bytes", path=path)

    def _build(self, obj: int, stream: BinaryIO, _context: Container, path: str) -> int:
        encoded = encode_unsigned(obj)
        stream_write(stream, encoded, len(encoded), path)
        return obj


UNSIGNED_VARINT: Final = UnsignedVarint()
COMPACT_NUMBER: Final = ExprAdapter(UNSIGNED_VARINT, lambda number, _: number - 1, lambda number, _: number + 1)
"""A length or count + 1 as an unsigned varint; 0 is null."""


def plain(value: JsonValue) -> JsonValue:
    """A parsed structure as dictionaries, lists and values; without `_io`, and of tagged fields only the unknown ones."""
    if isinstance(value, dict):
        fields = {name: plain(item) for name, item in value.items() if name not in ("_io", "tagged_fields")}
        return fields | unknown_tags(value.get("tagged_fields"))
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def unknown_tags(tagged: JsonValue, known: Collection[int] = ()) -> Json:
    """`unknown_tags` of a structure: tag → base64 of its bytes, for tags that are not `known`; {} without any."""
    items = tagged.items() if isinstance(tagged, dict) else ()
    unknown = {str(number): b64encode(data).decode() for number, data in items if number not in known}
    return {"unknown_tags": unknown} if unknown else {}


class Sized(Construct):
    """A value behind its length or count, which `number` reads; a negative number is null, an error unless `nullable`."""

    def __init__(self, number: Construct = COMPACT_NUMBER, *, nullable: bool = False) -> None:
        super().__init__()
        self.number = number
        self.nullable = nullable

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> object:
        number = self.number._parse(stream, context, path)
        if number >= 0:
            return self.read(number, stream, path)
        if not self.nullable or (self.number is Int16sb and number != -1):
            raise LengthError(f"a length of {number}", path=path)
        return None

    def _build(self, obj: Any, stream: BinaryIO, context: Container, path: str) -> object:
        if obj is None and not self.nullable and self.number is COMPACT_NUMBER:
            raise LengthError("null is not allowed", path=path)
        content = b"" if obj is None else self.content(obj)
        length = len(obj if isinstance(self, Array) else content) if obj is not None else -1
        self.number._build(length, stream, context, path)
        stream_write(stream, content, len(content), path)
        return obj

    def read(self, number: int, stream: BinaryIO, path: str) -> object:
        """The value, of `number` bytes or elements."""
        data: bytes = stream_read(stream, number, path)
        return data

    def content(self, value: Any) -> bytes:
        """The bytes of a value that is not null, without its length."""
        return bytes(value)


class TextField(Sized):
    """A string of UTF-8."""

    def read(self, number: int, stream: BinaryIO, path: str) -> str:
        """The string of `number` bytes."""
        try:
            return bytes(stream_read(stream, number, path)).decode()
        except UnicodeDecodeError as error:
            raise StringError(f"not UTF-8: {error.reason}", path=path) from error

    def content(self, value: str) -> bytes:
        """The string as UTF-8."""
        return value.encode()


class Array(Sized):
    """An array of elements, none of which has an empty encoding."""

    def __init__(self, element: Construct, number: Construct = COMPACT_NUMBER, *, nullable: bool = False) -> None:
        super().__init__(number, nullable=nullable)
        self.element = element

    def read(self, number: int, stream: BinaryIO, _path: str) -> list[object]:
        """`number` elements, read one by one."""
        elements: list[object] = []
        while len(elements) < number:
            elements.append(self.element.parse_stream(stream))
        return elements

    def content(self, value: list[object]) -> bytes:
        """The elements one after the other."""
        return b"".join(map(self.element.build, value))


class TaggedFields(Construct):
    """The end of every flexible structure: a count, then tag, size and bytes of each field, in ascending order of tags."""

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> dict[int, bytes]:
        fields: dict[int, bytes] = {}
        last = -1
        for _ in range(UNSIGNED_VARINT._parse(stream, context, path)):
            tag = UNSIGNED_VARINT._parse(stream, context, path)
            size = UNSIGNED_VARINT._parse(stream, context, path)
            if tag <= last:
                raise ConstructError(f"tag {tag} after tag {last}", path=path)
            fields[tag] = stream_read(stream, size, path)
            last = tag
        return fields

    def _build(self, obj: dict[int, bytes] | None, stream: BinaryIO, context: Container, path: str) -> dict[int, bytes]:
        fields = obj or {}
        UNSIGNED_VARINT._build(len(fields), stream, context, path)
        for tag in sorted(fields):
            UNSIGNED_VARINT._build(tag, stream, context, path)
            UNSIGNED_VARINT._build(len(fields[tag]), stream, context, path)
            stream_write(stream, fields[tag], len(fields[tag]), path)
        return fields


class _Tagged(TaggedFields):
    """Tagged fields that a caller may omit when it builds a structure."""

    def __init__(self) -> None:
        super().__init__()
        self.flagbuildnone = True


SHORT_STRING: Final = TextField(Int16sb)
NULLABLE_SHORT_STRING: Final = TextField(Int16sb, nullable=True)
COMPACT_STRING: Final = TextField()
NULLABLE_STRING: Final = TextField(nullable=True)
TAGGED_FIELDS: Final = _Tagged()
UUID: Final = Bytes(16)
