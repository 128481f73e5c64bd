# mypy: disallow-subclassing-any=False
"""What control records hold: ControlRecordType, EndTxnMarker.json, and KRaft's flexible messages (all of schema version 0)."""

from typing import Any, Final

from construct import (
    Bytes,
    Construct,
    ConstructError,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
    StringError,
    Struct,
    stream_read,
    stream_write,
)

from kafka_forensics.parsers.spec.record import LengthError, OverlongVarintError, encode_unsigned

CONTROL_RECORD_KEY: Final = Struct("version" / Int16sb, "type" / Int16sb)
"""Key of every control record; a reader takes any version from 0 up, and more bytes than these four."""

END_TXN_MARKER: Final = Struct("version" / Int16sb, "coordinator_epoch" / Int32sb)
"""Value of an ABORT or COMMIT marker."""


class UnsignedVarint(Construct):
    """An LEB128 integer of 32 bits without zig-zag, at most 5 bytes."""

    def _parse(self, stream: Any, _context: Any, path: str) -> int:
        raw = 0
        for index in range(5):
            byte = stream_read(stream, 1, path)[0]
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return raw & 0xFFFFFFFF
        raise OverlongVarintError("varint longer than 5 bytes", path=path)

    def _build(self, obj: int, stream: Any, _context: Any, path: str) -> int:
        encoded = encode_unsigned(obj)
        stream_write(stream, encoded, len(encoded), path)
        return obj


UNSIGNED_VARINT: Final = UnsignedVarint()


class CompactString(Construct):
    """Length + 1 as an unsigned varint, then UTF-8; 0 would be null and is an error here."""

    def _parse(self, stream: Any, context: Any, path: str) -> str:
        length = UNSIGNED_VARINT._parse(stream, context, path) - 1
        if length < 0:
            raise LengthError("null where a string must be", path=path)
        data: bytes = stream_read(stream, length, path)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise StringError(f"not UTF-8: {error.reason}", path=path) from error

    def _build(self, obj: str, stream: Any, context: Any, path: str) -> str:
        data = obj.encode()
        UNSIGNED_VARINT._build(len(data) + 1, stream, context, path)
        stream_write(stream, data, len(data), path)
        return obj


class CompactArray(Construct):
    """Count + 1 as an unsigned varint, then the elements; 0 would be null and is an error here."""

    def __init__(self, element: Any) -> None:
        super().__init__()
        self.element = element

    def _parse(self, stream: Any, context: Any, path: str) -> list[Any]:
        count = UNSIGNED_VARINT._parse(stream, context, path) - 1
        if count < 0:
            raise LengthError("null where an array must be", path=path)
        elements: list[Any] = []
        while len(elements) < count:
            elements.append(self.element.parse_stream(stream))
        return elements

    def _build(self, obj: list[Any], stream: Any, context: Any, path: str) -> list[Any]:
        UNSIGNED_VARINT._build(len(obj) + 1, stream, context, path)
        for element in obj:
            self.element.build_stream(element, stream)
        return obj


class TaggedFields(Construct):
    """The section that ends every flexible structure: count, then tag, size and bytes of each; tags rise."""

    def _parse(self, stream: Any, context: Any, path: str) -> dict[int, bytes]:
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

    def _build(self, obj: dict[int, bytes] | None, stream: Any, context: Any, path: str) -> dict[int, bytes]:
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


COMPACT_STRING: Final = CompactString()
TAGGED_FIELDS: Final = _Tagged()
UUID: Final = Bytes(16)

LEADER_CHANGE_VOTER: Final = Struct("voter_id" / Int32sb, "tagged_fields" / TAGGED_FIELDS)
LEADER_CHANGE: Final = Struct(
    "version" / Int16sb,
    "leader_id" / Int32sb,
    "voters" / CompactArray(LEADER_CHANGE_VOTER),
    "granting_voters" / CompactArray(LEADER_CHANGE_VOTER),
    "tagged_fields" / TAGGED_FIELDS,
)
"""LeaderChangeMessage.json, version 0."""

SNAPSHOT_HEADER: Final = Struct("version" / Int16sb, "last_contained_log_timestamp" / Int64sb, "tagged_fields" / TAGGED_FIELDS)
"""SnapshotHeaderRecord.json: the time is that of the last record the snapshot holds, in ms."""

SNAPSHOT_FOOTER: Final = Struct("version" / Int16sb, "tagged_fields" / TAGGED_FIELDS)
"""SnapshotFooterRecord.json."""

KRAFT_VERSION: Final = Struct("version" / Int16sb, "kraft_version" / Int16sb, "tagged_fields" / TAGGED_FIELDS)
"""KRaftVersionRecord.json."""

ENDPOINT: Final = Struct(
    "name" / COMPACT_STRING,
    "host" / COMPACT_STRING,
    "port" / Int16ub,
    "tagged_fields" / TAGGED_FIELDS,
)
KRAFT_VERSION_FEATURE: Final = Struct(
    "min_supported_version" / Int16sb,
    "max_supported_version" / Int16sb,
    "tagged_fields" / TAGGED_FIELDS,
)
KRAFT_VOTER: Final = Struct(
    "voter_id" / Int32sb,
    "voter_directory_id" / UUID,
    "endpoints" / CompactArray(ENDPOINT),
    "kraft_version_feature" / KRAFT_VERSION_FEATURE,
    "tagged_fields" / TAGGED_FIELDS,
)
KRAFT_VOTERS: Final = Struct("version" / Int16sb, "voters" / CompactArray(KRAFT_VOTER), "tagged_fields" / TAGGED_FIELDS)
"""VotersRecord.json."""

CONTROL_RECORD_VALUES: Final = (
    END_TXN_MARKER,
    END_TXN_MARKER,
    LEADER_CHANGE,
    SNAPSHOT_HEADER,
    SNAPSHOT_FOOTER,
    KRAFT_VERSION,
    KRAFT_VOTERS,
)
"""Layout of the value by control record type."""


def read_control_value(control_record_type: int, value: bytes) -> dict[str, Any] | None:
    """Fields of a control record's value, nested structures as dicts, uuids as bytes; None if it is not laid out so.

    Bytes behind the last field are ignored, as Kafka's readers ignore them.
    """
    try:
        fields = CONTROL_RECORD_VALUES[control_record_type].parse(value)
    except ConstructError:
        return None
    plain: dict[str, Any] = _plain(fields)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name not in ("_io", "tagged_fields")}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
