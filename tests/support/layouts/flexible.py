"""The flexible encoding of Kafka's messages (KIP-482): unsigned varints, compact strings and arrays, tagged fields; and the older
encoding of strings and arrays.

Exact and slow, the twin of `parsers.flexible_fields`; nothing is allocated for a declared length before its bytes exist.
"""

from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, Final

from construct import (
    Bytes,
    Construct,
    ConstructError,
    Container,
    ExprAdapter,
    Int16sb,
    Renamed,
    StringError,
    Struct,
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


@dataclass(frozen=True, slots=True)
class Tag:
    """A tagged field: number, name, layout, and the value of a record without it."""

    number: int
    name: str
    layout: Construct
    default: object


def whole(layout: Construct, data: bytes) -> JsonValue:
    """The value that takes all bytes of `data`."""
    stream = BytesIO(data)
    value = plain(layout.parse_stream(stream))
    if stream.read(1):
        raise ConstructError("bytes after a tagged field")
    return value


class Flexible(Construct):
    """A structure with its tagged fields, in the order of Kafka's schema: a dictionary, without absent tagged fields."""

    def __init__(self, *fields: Renamed | Tag) -> None:
        super().__init__()
        self.fields = fields
        self.tags = tuple(field for field in fields if isinstance(field, Tag))

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> Json:
        values = {field.name: field.parse_stream(stream) for field in self.fields if not isinstance(field, Tag)}
        tagged = TAGGED_FIELDS._parse(stream, context, path)
        values |= {tag.name: whole(tag.layout, tagged[tag.number]) for tag in self.tags if tag.number in tagged}
        fields = {field.name: values[field.name] for field in self.fields if field.name in values}
        return fields | unknown_tags(tagged, {tag.number for tag in self.tags})

    def _build(self, obj: Json, stream: BinaryIO, context: Container, path: str) -> Json:
        for field in self.fields:
            if not isinstance(field, Tag):
                field.build_stream(obj[field.name], stream)
        tagged = {tag.number: tag.layout.build(obj[tag.name]) for tag in self.tags if tag.name in obj}
        TAGGED_FIELDS._build(tagged, stream, context, path)
        return obj


class NullableStruct(Construct):
    """A byte, negative for null, then the structure; in a tagged field an unsigned varint, 0 for null."""

    def __init__(self, layout: Flexible, *, tagged: bool = False) -> None:
        super().__init__()
        self.layout = layout
        self.tagged = tagged

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> Json | None:
        if self.tagged:
            is_present = 0 < UNSIGNED_VARINT._parse(stream, context, path) < 1 << 31
        else:
            is_present = stream_read(stream, 1, path)[0] < 0x80
        return self.layout._parse(stream, context, path) if is_present else None

    def _build(self, obj: Json | None, stream: BinaryIO, context: Container, path: str) -> Json | None:
        stream_write(stream, b"\1" if obj is not None else b"\0" if self.tagged else b"\xff", 1, path)
        if obj is not None:
            self.layout._build(obj, stream, context, path)
        return obj


def blank(layout: Construct) -> JsonValue:
    """The smallest value that can be built: 0, empty or null, and structures of such values without tagged fields."""
    match layout:
        case Renamed():
            return blank(layout.subcon)
        case Struct():
            return {field.name: blank(field) for field in layout.subcons}
        case Flexible():
            return {field.name: blank(field) for field in layout.fields if not isinstance(field, Tag)}
        case TextField():
            return None if layout.nullable else ""
        case Array():
            return None if layout.nullable else []
        case NullableStruct():
            return None
        case TaggedFields():
            return {}
        case Bytes():
            return bytes(layout.sizeof())
        case ExprAdapter():
            return layout.parse(bytes(16)) if isinstance(layout.subcon, Bytes) else ""
        case _:
            return 0


SHORT_STRING: Final = TextField(Int16sb)
NULLABLE_SHORT_STRING: Final = TextField(Int16sb, nullable=True)
COMPACT_STRING: Final = TextField()
NULLABLE_STRING: Final = TextField(nullable=True)
TAGGED_FIELDS: Final = _Tagged()
UUID: Final = Bytes(16)
UUID_TEXT: Final = ExprAdapter(
    UUID, lambda raw, _: urlsafe_b64encode(raw).decode().rstrip("="), lambda text, _: urlsafe_b64decode(f"{text}==")
)
"""An id as Kafka prints it: 22 characters of base64url."""
