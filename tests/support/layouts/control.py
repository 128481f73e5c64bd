"""Keys and values of control records: ControlRecordType, EndTxnMarker.json, and KRaft's flexible messages."""

from typing import Final

from construct import ConstructError, Int16sb, Int16ub, Int32sb, Int64sb, Struct

from kafka_forensics.model.json_objects import Json
from tests.support.layouts.flexible import COMPACT_STRING, TAGGED_FIELDS, UUID, Array, plain

CONTROL_RECORD_KEY: Final = Struct("version" / Int16sb, "type" / Int16sb)
"""Key of every control record; readers accept any version from 0 on, and more bytes than these four."""

END_TXN_MARKER: Final = Struct("version" / Int16sb, "coordinator_epoch" / Int32sb)
"""Value of an ABORT or COMMIT marker."""


def _leader_change(voter: Struct) -> Struct:
    return Struct(
        "version" / Int16sb,
        "leader_id" / Int32sb,
        "voters" / Array(voter),
        "granting_voters" / Array(voter),
        "tagged_fields" / TAGGED_FIELDS,
    )


LEADER_CHANGE: Final = _leader_change(Struct("voter_id" / Int32sb, "tagged_fields" / TAGGED_FIELDS))
"""LeaderChangeMessage.json, version 0."""
LEADER_CHANGE_1: Final = _leader_change(Struct("voter_id" / Int32sb, "voter_directory_id" / UUID, "tagged_fields" / TAGGED_FIELDS))
"""Version 1, since Kafka 3.9."""

SNAPSHOT_HEADER: Final = Struct("version" / Int16sb, "last_contained_log_timestamp" / Int64sb, "tagged_fields" / TAGGED_FIELDS)
"""SnapshotHeaderRecord.json; the timestamp in ms is that of the last record in the snapshot."""

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
    "endpoints" / Array(ENDPOINT),
    "kraft_version_feature" / KRAFT_VERSION_FEATURE,
    "tagged_fields" / TAGGED_FIELDS,
)
KRAFT_VOTERS: Final = Struct("version" / Int16sb, "voters" / Array(KRAFT_VOTER), "tagged_fields" / TAGGED_FIELDS)
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
"""Layout of the value by control record type, of version 0."""


def value_layout(control_record_type: int, version: int) -> Struct:
    """Layout of the value of a control record."""
    layout = CONTROL_RECORD_VALUES[control_record_type]
    return LEADER_CHANGE_1 if layout is LEADER_CHANGE and version > 0 else layout


def read_control_value(control_record_type: int, value: bytes) -> Json | None:
    """Fields of a control record's value, nested structures as dicts, uuids as bytes; None if it does not match the layout.

    Bytes after the last field are ignored, as in Kafka's readers.
    """
    try:
        fields = value_layout(control_record_type, int.from_bytes(value[:2], "big", signed=True)).parse(value)
    except ConstructError:
        return None
    values: Json = plain(fields)
    return values
