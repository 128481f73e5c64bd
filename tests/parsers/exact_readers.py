"""Slow, exact readers made of the declarations in `parsers.spec`, the twins of the fast parsers; records built field by field."""

from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import construct
import numpy as np
from construct import Construct, ConstructError, GreedyBytes, GreedyRange, Int16ub, Int32sb, Int64sb, Struct

from kafka_forensics.model.batches import RECORD_COLUMNS, RecordColumn
from kafka_forensics.model.coordinators import GROUP_METADATA_TYPE, OFFSET_COMMIT_TYPES
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.kernels.records import MALFORMED, OK, OUT_OF_BOUNDS, VARINT_OVERLONG, WRONG_COUNT
from kafka_forensics.parsers.spec import record_batch
from tests.support.layouts.consumer_offsets import _STATE_BATCHES, GROUP_METADATA_VALUES, OFFSET_COMMIT_VALUES
from tests.support.layouts.flexible import TAGGED_FIELDS, Flexible, plain, unknown_tags, whole
from tests.support.layouts.metadata_records import FRAME, FRAME_VERSION, MESSAGES, Message
from tests.support.layouts.remote_log_metadata import REMOTE_LOG_MESSAGES

if TYPE_CHECKING:
    from numpy.typing import NDArray


EARLY_SHARE_STATE_VALUES: Final[dict[int, Flexible]] = {
    0: Flexible(
        "snapshot_epoch" / Int16ub,
        "state_epoch" / Int32sb,
        "leader_epoch" / Int32sb,
        "start_offset" / Int64sb,
        "state_batches" / _STATE_BATCHES,
    ),
    1: Flexible("snapshot_epoch" / Int16ub, "leader_epoch" / Int32sb, "start_offset" / Int64sb, "state_batches" / _STATE_BATCHES),
}
"""Values of `__share_group_state` in the preview of Kafka 4.0, by the type of the key."""


def parsed(layout: Construct, data: bytes) -> Json | str:
    """The fields at the start of `data`, as `plain` returns them; or the first line of the error."""
    try:
        fields: Json = plain(layout.parse(data))
    except ConstructError as error:
        return str(error).partition("\n")[0]
    return fields


def parse_entries(layout: Struct, data: bytes) -> list[dict[str, int]]:
    """Every whole entry of `layout` in `data`, as name → number, without a partial last entry."""
    return [{name: entry[name] for name in entry if name != "_io"} for entry in GreedyRange(layout).parse(data)]


def value_layout(record_type: int, version: int) -> Struct | None:
    """The layout of values of a record type and version; None for types and versions that the parser does not decode."""
    layouts = {GROUP_METADATA_TYPE: GROUP_METADATA_VALUES} | dict.fromkeys(OFFSET_COMMIT_TYPES, OFFSET_COMMIT_VALUES)
    versions = layouts.get(record_type, ())
    return versions[version] if 0 <= version < len(versions) else None


def read_value(layout: Flexible, value: bytes) -> tuple[Json, int] | None:
    """(fields, number of bytes after them) of a value of version 0; None if `layout` cannot read it."""
    if value[:2] != b"\0\0":
        return None
    try:
        read = Struct("fields" / layout, "rest" / GreedyBytes).parse(value[2:])
    except ConstructError:
        return None
    return plain(read.fields), len(read.rest)


def read_metadata_record(value: bytes) -> tuple[int, int, Json] | None:
    """(apiKey, version, fields) of a record's value, ids as 16 bytes; None if the message does not fill the value."""
    return _read_framed(value, MESSAGES)


def read_remote_log_record(value: bytes) -> tuple[int, int, Json] | None:
    """(apiKey, version, fields) of a value in `__remote_log_metadata`, ids as text; None if the message does not fill the value."""
    return _read_framed(value, {api_key: (message,) for api_key, message in REMOTE_LOG_MESSAGES.items()})


def _read_framed(value: bytes, messages: Mapping[int, tuple[Message, ...]]) -> tuple[int, int, Json] | None:
    stream = BytesIO(value)
    try:
        frame = FRAME.parse_stream(stream)
        versions = messages.get(frame.api_key, ())
        if frame.frame_version != FRAME_VERSION or frame.version >= len(versions):
            return None
        message = versions[frame.version]
        fields = plain(message.body.parse_stream(stream))
        tagged = TAGGED_FIELDS.parse_stream(stream)
        for tag in message.tags:
            fields[tag.name] = whole(tag.layout, tagged[tag.number]) if tag.number in tagged else tag.default
        fields |= unknown_tags(tagged, {tag.number for tag in message.tags})
    except ConstructError:
        return None
    return None if stream.read(1) else (frame.api_key, frame.version, fields)


Row = tuple[int, ...]


def spec_records(payload: bytes, count: int) -> tuple[list[Row], int, int]:
    """(rows as the kernels write them, code, position) of a payload, read with the spec."""
    rows: list[Row] = []
    position = 0
    while position < len(payload):
        try:
            rows.append(_spec_row(payload, position))
        except record_batch.OverlongVarintError:
            return rows, VARINT_OVERLONG if len(rows) < count else WRONG_COUNT, position
        except record_batch.LengthError:
            return rows, OUT_OF_BOUNDS if len(rows) < count else WRONG_COUNT, position
        except construct.ConstructError:
            return rows, MALFORMED if len(rows) < count else WRONG_COUNT, position
        position += rows[-1][RecordColumn.SIZE_IN_BYTES]
    return rows, OK if len(rows) == count else WRONG_COUNT, position


def _spec_row(payload: bytes, start: int) -> Row:
    stream = BytesIO(payload)
    stream.seek(start)
    record_batch.RECORD.parse_stream(stream)
    end = stream.tell()
    stream.seek(start)
    length = record_batch.VARINT.parse_stream(stream)
    body = stream.tell()
    parsed = construct.FocusedSeq("record", "record" / record_batch.RECORD_BODY, construct.Terminated).parse(
        payload[body : body + length]
    )
    numbers = parsed.attributes, parsed.timestamp_delta, parsed.offset_delta
    return start, end - start, *numbers, *_positions(payload, body), len(parsed.headers)


def _positions(payload: bytes, body: int) -> tuple[int, int, int, int, int]:
    """Key position and length, value position and length, headers position."""
    stream = BytesIO(payload)
    stream.seek(body + 1)
    record_batch.VARLONG.parse_stream(stream)
    record_batch.VARINT.parse_stream(stream)
    positions = []
    for _ in range(2):
        length = record_batch.VARINT.parse_stream(stream)
        positions += [stream.tell(), max(length, -1)]
        stream.seek(max(length, 0), 1)
    record_batch.VARINT.parse_stream(stream)
    key_position, key_length, value_position, value_length = positions
    return key_position, key_length, value_position, value_length, stream.tell()


def matrix(rows: int) -> "NDArray[np.int64]":
    """An output matrix for `rows` records, filled with a value that no record has."""
    return np.full((RECORD_COLUMNS, rows), -77, np.int64)


def varint(value: int) -> bytes:
    return record_batch.encode_zigzag(value)


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


def body(**parts: Any) -> bytes:
    """A record's body, field by field; `parts` replace the bytes of fields."""
    fields = {
        "attributes": b"\0",
        "timestamp_delta": b"\0",
        "offset_delta": b"\0",
        "key": varint(1) + b"k",
        "value": varint(2) + b"vv",
        "headers_count": varint(1),
        "headers": record_batch.RECORD_HEADER.build({"key": b"h", "value": None}),
        "rest": b"",
    }
    return b"".join((fields | parts).values())
