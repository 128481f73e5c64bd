# mypy: disallow-subclassing-any=False
"""Records of `__consumer_offsets`: keys, OffsetCommitValue.json and GroupMetadataValue.json in all their versions."""

from typing import Any, Final

from construct import Construct, Int16sb, Int32sb, Int64sb, StringError, Struct, stream_read, stream_write

from kafka_forensics.model.group_log import GROUP_METADATA_TYPE, MEMBER_TYPES, OFFSET_COMMIT_TYPES
from kafka_forensics.parsers.spec.flexible import (
    COMPACT_STRING,
    NULLABLE_STRING,
    TAGGED_FIELDS,
    UNSIGNED_VARINT,
    CompactArray,
)
from kafka_forensics.parsers.spec.record import LengthError


class ShortString(Construct):
    """Length in 16 bits, then UTF-8; -1 is null, an error unless `nullable`."""

    def __init__(self, *, nullable: bool = False) -> None:
        super().__init__()
        self.nullable = nullable

    def _parse(self, stream: Any, _context: Any, path: str) -> str | None:
        length = int.from_bytes(stream_read(stream, 2, path), "big", signed=True)
        if length < 0:
            if self.nullable and length == -1:
                return None
            raise LengthError(f"a string of {length} bytes", path=path)
        data: bytes = stream_read(stream, length, path)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise StringError(f"not UTF-8: {error.reason}", path=path) from error

    def _build(self, obj: str | None, stream: Any, _context: Any, path: str) -> str | None:
        data = b"" if obj is None else obj.encode()
        stream_write(stream, (-1 if obj is None else len(data)).to_bytes(2, "big", signed=True), 2, path)
        stream_write(stream, data, len(data), path)
        return obj


class SizedBytes(Construct):
    """Bytes behind their length: 32 bits, or `compact`, length + 1 as an unsigned varint. Null is an error unless `nullable`."""

    def __init__(self, *, compact: bool = False, nullable: bool = False) -> None:
        super().__init__()
        self.compact = compact
        self.nullable = nullable

    def _parse(self, stream: Any, context: Any, path: str) -> bytes | None:
        if self.compact:
            length = UNSIGNED_VARINT._parse(stream, context, path) - 1
        else:
            length = int.from_bytes(stream_read(stream, 4, path), "big", signed=True)
        if length < 0:
            if self.nullable and length == -1:
                return None
            raise LengthError("null where bytes must be", path=path)
        data: bytes = stream_read(stream, length, path)
        return data

    def _build(self, obj: bytes | None, stream: Any, context: Any, path: str) -> bytes | None:
        length = -1 if obj is None else len(obj)
        if self.compact:
            UNSIGNED_VARINT._build(length + 1, stream, context, path)
        else:
            stream_write(stream, length.to_bytes(4, "big", signed=True), 4, path)
        stream_write(stream, obj or b"", max(length, 0), path)
        return obj


class Array(Construct):
    """Count in 32 bits, then the elements, none of which is empty; never null."""

    def __init__(self, element: Any) -> None:
        super().__init__()
        self.element = element

    def _parse(self, stream: Any, _context: Any, path: str) -> list[Any]:
        count = int.from_bytes(stream_read(stream, 4, path), "big", signed=True)
        if count < 0:
            raise LengthError("null where an array must be", path=path)
        elements: list[Any] = []
        while len(elements) < count:
            elements.append(self.element.parse_stream(stream))
        return elements

    def _build(self, obj: list[Any], stream: Any, _context: Any, path: str) -> list[Any]:
        stream_write(stream, len(obj).to_bytes(4, "big"), 4, path)
        for element in obj:
            self.element.build_stream(element, stream)
        return obj


SHORT_STRING: Final = ShortString()
NULLABLE_SHORT_STRING: Final = ShortString(nullable=True)

OFFSET_COMMIT_KEY: Final = Struct("record_type" / Int16sb, "group" / SHORT_STRING, "topic" / SHORT_STRING, "partition" / Int32sb)
"""OffsetCommitKey.json; type 0 was written before Kafka 0.9."""
GROUP_KEY: Final = Struct("record_type" / Int16sb, "group" / SHORT_STRING)
MEMBER_KEY: Final = Struct("record_type" / Int16sb, "group" / SHORT_STRING, "member_id" / SHORT_STRING)
"""Keys of the new groups' members; of type 16 the last field is a regular expression."""


def _offset_commit(version: int) -> Any:
    flexible = version >= 4
    fields = ["version" / Int16sb, "offset" / Int64sb]
    fields += ["leader_epoch" / Int32sb] if version >= 3 else []
    fields += ["metadata" / (COMPACT_STRING if flexible else SHORT_STRING), "commit_timestamp" / Int64sb]
    fields += ["expire_timestamp" / Int64sb] if version == 1 else []
    fields += ["tagged_fields" / TAGGED_FIELDS] if flexible else []
    return Struct(*fields)


OFFSET_COMMIT_VALUES: Final = tuple(_offset_commit(version) for version in range(5))
"""By version; tag 0 of version 4 is the topic's id (16 bytes)."""


def _group_metadata(version: int) -> Any:
    flexible = version >= 4
    string = COMPACT_STRING if flexible else SHORT_STRING
    nullable = NULLABLE_STRING if flexible else NULLABLE_SHORT_STRING
    member = ["member_id" / string]
    member += ["group_instance_id" / nullable] if version >= 3 else []
    member += ["client_id" / string, "client_host" / string]
    member += ["rebalance_timeout" / Int32sb] if version >= 1 else []
    member += ["session_timeout" / Int32sb]
    member += ["subscription" / SizedBytes(compact=flexible), "assignment" / SizedBytes(compact=flexible)]
    member += ["tagged_fields" / TAGGED_FIELDS] if flexible else []
    fields = [
        "version" / Int16sb,
        "protocol_type" / string,
        "generation" / Int32sb,
        "protocol" / nullable,
        "leader" / nullable,
    ]
    fields += ["current_state_timestamp" / Int64sb] if version >= 2 else []
    fields += ["members" / (CompactArray if flexible else Array)(Struct(*member))]
    fields += ["tagged_fields" / TAGGED_FIELDS] if flexible else []
    return Struct(*fields)


GROUP_METADATA_VALUES: Final = tuple(_group_metadata(version) for version in range(5))
"""By version."""


def key_layout(record_type: int) -> Any:
    """The layout of keys of a record type; of unknown ones, as far as the group."""
    if record_type in OFFSET_COMMIT_TYPES:
        return OFFSET_COMMIT_KEY
    return MEMBER_KEY if record_type in MEMBER_TYPES else GROUP_KEY


def value_layout(record_type: int, version: int) -> Any | None:
    """The layout of values of a record type and version; None for those that are only named and measured."""
    layouts = {GROUP_METADATA_TYPE: GROUP_METADATA_VALUES} | dict.fromkeys(OFFSET_COMMIT_TYPES, OFFSET_COMMIT_VALUES)
    known = layouts.get(record_type, ())
    return known[version] if 0 <= version < len(known) else None
