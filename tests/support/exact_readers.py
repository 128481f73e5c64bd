"""What the declarations of `parsers.spec` read, exact and slow: the twins of the fast parsers."""

from io import BytesIO
from typing import Final

from construct import Construct, ConstructError, GreedyBytes, GreedyRange, Int16ub, Int32sb, Int64sb, Struct

from kafka_forensics.model.coordinators import GROUP_METADATA_TYPE, OFFSET_COMMIT_TYPES
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.spec.consumer_offsets import _STATE_BATCHES, GROUP_METADATA_VALUES, OFFSET_COMMIT_VALUES
from kafka_forensics.parsers.spec.flexible import TAGGED_FIELDS, Flexible, plain, whole
from kafka_forensics.parsers.spec.metadata_records import FRAME, FRAME_VERSION, MESSAGES

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
    """The fields that `data` begins with, as `plain` gives them; or what is wrong with it."""
    try:
        fields: Json = plain(layout.parse(data))
    except ConstructError as error:
        return str(error).partition("\n")[0]
    return fields


def parse_entries(layout: Struct, data: bytes) -> list[dict[str, int]]:
    """Every whole entry of `layout` in `data`, as name → number; a partial last one is left out."""
    return [{name: entry[name] for name in entry if name != "_io"} for entry in GreedyRange(layout).parse(data)]


def value_layout(record_type: int, version: int) -> Struct | None:
    """The layout of values of a record type and version; None for those that are only named and measured."""
    layouts = {GROUP_METADATA_TYPE: GROUP_METADATA_VALUES} | dict.fromkeys(OFFSET_COMMIT_TYPES, OFFSET_COMMIT_VALUES)
    known = layouts.get(record_type, ())
    return known[version] if 0 <= version < len(known) else None


def read_value(layout: Flexible, value: bytes) -> tuple[Json, int] | None:
    """(fields, bytes behind them) of a value of version 0; None if it is not laid out so."""
    if value[:2] != b"\0\0":
        return None
    try:
        read = Struct("fields" / layout, "rest" / GreedyBytes).parse(value[2:])
    except ConstructError:
        return None
    return plain(read.fields), len(read.rest)


def read_metadata_record(value: bytes) -> tuple[int, int, Json] | None:
    """(apiKey, version, fields) of a record's value, ids as 16 bytes; None if it is not laid out so, to the last byte."""
    stream = BytesIO(value)
    try:
        frame = FRAME.parse_stream(stream)
        versions = MESSAGES.get(frame.api_key, ())
        if frame.frame_version != FRAME_VERSION or frame.version >= len(versions):
            return None
        message = versions[frame.version]
        fields = plain(message.body.parse_stream(stream))
        tagged = TAGGED_FIELDS.parse_stream(stream)
        for tag in message.tags:
            fields[tag.name] = whole(tag.layout, tagged[tag.number]) if tag.number in tagged else tag.default
    except ConstructError:
        return None
    return None if stream.read(1) else (frame.api_key, frame.version, fields)
