"""The flexible encoding of Kafka's messages (KIP-482): unsigned varints, compact strings and arrays, tagged fields; and strings and
arrays as they were before it.

Exact and slow; nothing is allocated from a declared length before its bytes exist.
"""

from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO, Final

from construct import (
    Bytes,
    Construct,
    ConstructError,
    Container,
    ExprAdapter,
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


def read_text(stream: BinaryIO, length: int, path: str) -> str:
    """`length` bytes of UTF-8, `length` ≥ 0."""
    data: bytes = stream_read(stream, length, path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StringError(f"not UTF-8: {error.reason}", path=path) from error


def read_elements(element: Construct, count: int, stream: BinaryIO, path: str, *, nullable: bool) -> list[object] | None:
    """`count` elements, none of which is empty; a negative count is null, an error unless `nullable`."""
    if count < 0:
        if nullable:
            return None
        raise LengthError("null where an array must be", path=path)
    elements: list[object] = []
    while len(elements) < count:
        elements.append(element.parse_stream(stream))
    return elements


def plain(value: JsonValue) -> JsonValue:
    """A parsed structure as dictionaries, lists and values, without what construct and the encoding add."""
    if isinstance(value, dict):
        fields = {name: plain(item) for name, item in value.items() if name not in ("_io", "tagged_fields")}
        return fields | unknown_tags(value.get("tagged_fields"))
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def unknown_tags(tagged: JsonValue, known: Collection[int] = ()) -> Json:
    """Tagged fields of a newer version, which are kept as they are: `unknown_tags`, tag → base64 of its bytes; {} without any."""
    items = tagged.items() if isinstance(tagged, dict) else ()
    unknown = {str(number): b64encode(data).decode() for number, data in items if number not in known}
    return {"unknown_tags": unknown} if unknown else {}


class ShortString(Construct):
    """Length in 16 bits, then UTF-8, as before flexible messages; -1 is null, an error unless `nullable`."""

    def __init__(self, *, nullable: bool = False) -> None:
        super().__init__()
        self.nullable = nullable

    def _parse(self, stream: BinaryIO, _context: Container, path: str) -> str | None:
        length = int.from_bytes(stream_read(stream, 2, path), "big", signed=True)
        if length < 0:
            if self.nullable and length == -1:
                return None
            raise LengthError(f"a string of {length} bytes", path=path)
        return read_text(stream, length, path)

    def _build(self, obj: str | None, stream: BinaryIO, _context: Container, path: str) -> str | None:
        data = b"" if obj is None else obj.encode()
        stream_write(stream, (-1 if obj is None else len(data)).to_bytes(2, "big", signed=True), 2, path)
        stream_write(stream, data, len(data), path)
        return obj


class CountedArray(Construct):
    """A 32-bit count, then as many elements, none of which is empty; a negative count is null, an error unless `nullable`."""

    def __init__(self, element: Construct, *, nullable: bool = False) -> None:
        super().__init__()
        self.element = element
        self.nullable = nullable

    def _parse(self, stream: BinaryIO, _context: Container, path: str) -> list[object] | None:
        count = int.from_bytes(stream_read(stream, 4, path), "big", signed=True)
        return read_elements(self.element, count, stream, path, nullable=self.nullable)

    def _build(self, obj: list[object] | None, stream: BinaryIO, _context: Container, path: str) -> list[object] | None:
        stream_write(stream, (-1 if obj is None else len(obj)).to_bytes(4, "big", signed=True), 4, path)
        for element in obj or ():
            self.element.build_stream(element, stream)
        return obj


class CompactString(Construct):
    """Length + 1 as an unsigned varint, then UTF-8; 0 is null, an error unless `nullable`."""

    def __init__(self, *, nullable: bool = False) -> None:
        super().__init__()
        self.nullable = nullable

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> str | None:
        length = UNSIGNED_VARINT._parse(stream, context, path) - 1
        if length < 0:
            if self.nullable:
                return None
            raise LengthError("null where a string must be", path=path)
        return read_text(stream, length, path)

    def _build(self, obj: str | None, stream: BinaryIO, context: Container, path: str) -> str | None:
        if obj is None and self.nullable:
            UNSIGNED_VARINT._build(0, stream, context, path)
            return None
        if obj is None:
            raise LengthError("null where a string must be", path=path)
        data = obj.encode()
        UNSIGNED_VARINT._build(len(data) + 1, stream, context, path)
        stream_write(stream, data, len(data), path)
        return obj


class CompactArray(Construct):
    """Count + 1 as an unsigned varint, then the elements, none of which is empty; 0 is null, an error unless `nullable`."""

    def __init__(self, element: Construct, *, nullable: bool = False) -> None:
        super().__init__()
        self.element = element
        self.nullable = nullable

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> list[object] | None:
        count = UNSIGNED_VARINT._parse(stream, context, path) - 1
        return read_elements(self.element, count, stream, path, nullable=self.nullable)

    def _build(self, obj: list[object] | None, stream: BinaryIO, context: Container, path: str) -> list[object] | None:
        if obj is None and self.nullable:
            UNSIGNED_VARINT._build(0, stream, context, path)
            return None
        if obj is None:
            raise LengthError("null where an array must be", path=path)
        UNSIGNED_VARINT._build(len(obj) + 1, stream, context, path)
        for element in obj:
            self.element.build_stream(element, stream)
        return obj


class TaggedFields(Construct):
    """The section that ends every flexible structure: count, then tag, size and bytes of each; tags rise."""

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
    """Tagged fields that may be left out when a structure is built."""

    def __init__(self) -> None:
        super().__init__()
        self.flagbuildnone = True


@dataclass(frozen=True, slots=True)
class Tag:
    """A tagged field: its number, name, layout, and its value where it is left out."""

    number: int
    name: str
    layout: Construct
    default: object


def whole(layout: Construct, data: bytes) -> JsonValue:
    """The value that takes all of `data`."""
    stream = BytesIO(data)
    value = plain(layout.parse_stream(stream))
    if stream.read(1):
        raise ConstructError("bytes behind a tagged field")
    return value


class Flexible(Construct):
    """A structure with its tagged fields, each where Kafka's schema declares it: a dictionary, without tags that are left out."""

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
    """A byte, negative for null, else with the structure behind it; in a tagged field an unsigned varint, 0 for null."""

    def __init__(self, layout: Flexible, *, tagged: bool = False) -> None:
        super().__init__()
        self.layout = layout
        self.tagged = tagged

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> Json | None:
        if self.tagged:
            is_there = 0 < UNSIGNED_VARINT._parse(stream, context, path) < 1 << 31
        else:
            is_there = stream_read(stream, 1, path)[0] < 0x80
        return self.layout._parse(stream, context, path) if is_there else None

    def _build(self, obj: Json | None, stream: BinaryIO, context: Container, path: str) -> Json | None:
        stream_write(stream, b"\1" if obj is not None else b"\0" if self.tagged else b"\xff", 1, path)
        if obj is not None:
            self.layout._build(obj, stream, context, path)
        return obj


def blank(layout: Construct) -> JsonValue:
    """The least that can be built: 0, empty, null where that may be, and structures of these without tagged fields."""
    match layout:
        case Renamed():
            return blank(layout.subcon)
        case Struct():
            return {field.name: blank(field) for field in layout.subcons}
        case Flexible():
            return {field.name: blank(field) for field in layout.fields if not isinstance(field, Tag)}
        case ShortString() | CompactString():
            return None if layout.nullable else ""
        case CountedArray() | CompactArray():
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


SHORT_STRING: Final = ShortString()
NULLABLE_SHORT_STRING: Final = ShortString(nullable=True)
COMPACT_STRING: Final = CompactString()
NULLABLE_STRING: Final = CompactString(nullable=True)
TAGGED_FIELDS: Final = _Tagged()
UUID: Final = Bytes(16)
UUID_TEXT: Final = ExprAdapter(
    UUID, lambda raw, _: urlsafe_b64encode(raw).decode().rstrip("="), lambda text, _: urlsafe_b64decode(f"{text}==")
)
"""An id as Kafka writes it: 22 characters of base64url."""
