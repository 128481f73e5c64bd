"""Flexible structures of Kafka's messages (KIP-482) with their tagged fields, as declarations.

Exact and slow: `parsers.internal_topics` is the fast twin.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO, Final

from construct import Bytes, Construct, ConstructError, Container, ExprAdapter, Renamed, Struct, stream_read, stream_write

from kafka_forensics.model.json_objects import Json, JsonValue
from kafka_forensics.parsers.spec.flexible import (
    TAGGED_FIELDS,
    UNSIGNED_VARINT,
    UUID,
    Array,
    TaggedFields,
    TextField,
    plain,
    unknown_tags,
)


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


UUID_TEXT: Final = ExprAdapter(
    UUID, lambda raw, _: urlsafe_b64encode(raw).decode().rstrip("="), lambda text, _: urlsafe_b64decode(f"{text}==")
)
"""An id as Kafka prints it: 22 characters of base64url."""
