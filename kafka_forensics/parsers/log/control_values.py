"""Values of KRaft's control records (ControlRecordType): leader changes, starts and ends of snapshots, kraft.version, voters."""

from typing import Final

from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.flexible_fields import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UNREADABLE,
    Layout,
    Read,
    array,
    raw_uuid,
    read_message,
    structure,
    write_message,
)


def read_control_value(control_record_type: int, value: bytes) -> Json | None:
    """The fields of a value of types 2 to 6, ids as 16 bytes; None if it does not match the layout.

    Bytes after the last field are ignored, as in Kafka's readers.
    """
    version = int.from_bytes(value[:2], "big", signed=True)
    try:
        return read_message(value, 0, _layout(control_record_type, version))[0]
    except UNREADABLE:
        return None


def write_control_value(control_record_type: int, fields: Json) -> bytes:
    """The value of the `version` in its fields; missing fields are 0 or empty."""
    return write_message(_layout(control_record_type, fields["version"]), fields)


def _layout(control_record_type: int, version: int) -> Layout:
    layouts = _LAYOUTS[control_record_type]
    return layouts[min(max(version, 0), len(layouts) - 1)]


def _versioned(*fields: tuple[str, Read]) -> Layout:
    return (("version", INT16), *fields), {}


def _leader_change(*voter: tuple[str, Read]) -> Layout:
    voters = array(structure(*voter))
    return _versioned(("leader_id", INT32), ("voters", voters), ("granting_voters", voters))


_VOTER: Final = (("voter_id", INT32), ("voter_directory_id", raw_uuid))
_END_POINTS: Final = array(structure(("name", STRING), ("host", STRING), ("port", UINT16)))
_FEATURE: Final = structure(("min_supported_version", INT16), ("max_supported_version", INT16))
_LAYOUTS: Final[dict[int, tuple[Layout, ...]]] = {
    2: (_leader_change(_VOTER[0]), _leader_change(*_VOTER)),
    3: (_versioned(("last_contained_log_timestamp", INT64)),),
    4: (_versioned(),),
    5: (_versioned(("kraft_version", INT16)),),
    6: (_versioned(("voters", array(structure(*_VOTER, ("endpoints", _END_POINTS), ("kraft_version_feature", _FEATURE))))),),
}
"""Control record type → layout by version; type 2 has ids of directories since Kafka 3.9."""
