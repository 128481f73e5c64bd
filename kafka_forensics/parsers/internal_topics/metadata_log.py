"""Fast readers and writers for records of `__cluster_metadata`, every type of any Kafka release."""

from collections.abc import Mapping
from typing import Final

from kafka_forensics.model.controller import UNKNOWN_KIND, MetadataRecord
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.flexible_fields import (
    BASE64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTS,
    NULLABLE_INTS,
    NULLABLE_STRING,
    NULLABLE_UUIDS,
    STRING,
    UINT16,
    UNREADABLE,
    UUIDS,
    Layout,
    Read,
    Tags,
    UnsignedVarintError,
    array,
    flag,
    float64,
    read_message,
    read_unsigned,
    structure,
    unsigned_varint,
    uuid,
    write_message,
)

NAMES: Final = {
    0: "REGISTER_BROKER_RECORD",
    1: "UNREGISTER_BROKER_RECORD",
    2: "TOPIC_RECORD",
    3: "PARTITION_RECORD",
    4: "CONFIG_RECORD",
    5: "PARTITION_CHANGE_RECORD",
    7: "FENCE_BROKER_RECORD",
    8: "UNFENCE_BROKER_RECORD",
    9: "REMOVE_TOPIC_RECORD",
    10: "DELEGATION_TOKEN_RECORD",
    11: "USER_SCRAM_CREDENTIAL_RECORD",
    12: "FEATURE_LEVEL_RECORD",
    14: "CLIENT_QUOTA_RECORD",
    15: "PRODUCER_IDS_RECORD",
    17: "BROKER_REGISTRATION_CHANGE_RECORD",
    18: "ACCESS_CONTROL_ENTRY_RECORD",
    19: "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
    20: "NO_OP_RECORD",
    21: "ZK_MIGRATION_STATE_RECORD",
    22: "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
    23: "BEGIN_TRANSACTION_RECORD",
    24: "END_TRANSACTION_RECORD",
    25: "ABORT_TRANSACTION_RECORD",
    26: "REMOVE_DELEGATION_TOKEN_RECORD",
    27: "REGISTER_CONTROLLER_RECORD",
    28: "CLEAR_ELR_RECORD",
    29: "UNREGISTER_CONTROLLER_RECORD",
}
"""apiKey → Kafka's name of the record type (MetadataRecordType)."""
REPLAYED_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    0: ("broker_id", "broker_epoch", "fenced"),
    1: ("broker_id", "broker_epoch"),
    2: ("name", "topic_id"),
    3: (
        *("partition_id", "topic_id", "replicas", "isr", "removing_replicas", "adding_replicas", "leader", "leader_epoch"),
        *("partition_epoch", "directories", "leader_recovery_state", "eligible_leader_replicas", "last_known_elr"),
    ),
    4: ("resource_type", "resource_name", "name", "value"),
    5: (
        *("partition_id", "topic_id", "replicas", "isr", "removing_replicas", "adding_replicas", "leader"),
        *("directories", "leader_recovery_state", "eligible_leader_replicas", "last_known_elr"),
    ),
    7: ("id", "epoch"),
    8: ("id", "epoch"),
    9: ("topic_id",),
    11: ("name", "mechanism"),
    12: ("name", "feature_level"),
    15: ("broker_epoch", "next_producer_id"),
    17: ("broker_id", "broker_epoch", "fenced", "in_controlled_shutdown"),
    18: ("id",),
    19: ("id",),
    22: ("name", "mechanism"),
    23: (),
    24: (),
    25: (),
    27: ("controller_id",),
    28: ("topic_name",),
    29: ("controller_id",),
}
"""apiKey of record types that a replay applies → the fields that it reads."""
_NO_OP_FRAME: Final = bytes((1, 20, 0, 0))
_NO_OP_BYTES: Final = 72
"""Size of a batch with only a NO_OP_RECORD, whose value is at bytes 67 to 71."""


def is_no_op_batch(batch: bytes | memoryview, attributes: int) -> bool:
    """Whether a batch is the NO_OP_RECORD that an idle controller appends twice a second."""
    return len(batch) == _NO_OP_BYTES and batch[67:71] == _NO_OP_FRAME and not attributes


def decode_metadata_record(value: bytes | None) -> MetadataRecord:
    """The record in a value of `__cluster_metadata`, see `decode_framed`."""
    return decode_framed(value, NAMES, _LAYOUTS)


def decode_framed(value: bytes | None, names: Mapping[int, str], layouts: Mapping[int, tuple[Layout, ...]]) -> MetadataRecord:
    """The record in a value of a topic with these names and layouts of record types, by apiKey. Accepts any bytes.

    `problem`, without fields: `value` (null, or too large to hold), `frame` (no frame of version 1), `kind` or `version` (unknown),
    `fields` (the bytes do not match the layout exactly).
    """
    if value is None:
        return MetadataRecord(-1, "UNKNOWN", -1, 0, None, "value")
    size = len(value)
    try:
        frame_version, position = read_unsigned(value, 0)
        api_key, position = read_unsigned(value, position)
        version, position = read_unsigned(value, position)
    except (IndexError, UnsignedVarintError):
        return MetadataRecord(-1, "UNKNOWN", -1, size, None, "frame")
    if frame_version != 1:
        return MetadataRecord(-1, "UNKNOWN", -1, size, None, "frame")
    name = names.get(api_key)
    if name is None:
        return MetadataRecord(api_key, "UNKNOWN", version, size, None, UNKNOWN_KIND)
    if version >= len(layouts[api_key]):
        return MetadataRecord(api_key, name, version, size, None, "version")
    try:
        fields, position = read_message(value, position, layouts[api_key][version])
    except UNREADABLE:
        fields, position = None, size + 1
    if position != size:
        return MetadataRecord(api_key, name, version, size, None, "fields")
    return MetadataRecord(api_key, name, version, size, fields)


def write_frame(api_key: int, version: int) -> bytes:
    """The start of every record (AbstractApiMessageSerde): its version, 1, and the type and version of the record."""
    return b"\1" + unsigned_varint(api_key) + unsigned_varint(version)


def write_metadata_record(api_key: int, version: int | None, fields: Json) -> bytes:
    """The value of a record, by default of the newest version; missing fields are 0, empty or null."""
    version = len(_LAYOUTS[api_key]) - 1 if version is None else version
    return write_frame(api_key, version) + write_message(_LAYOUTS[api_key][version], fields)


_END_POINTS = array(structure(("name", STRING), ("host", STRING), ("port", UINT16), ("security_protocol", INT16)))
_FEATURES = array(structure(("name", STRING), ("min_supported_version", INT16), ("max_supported_version", INT16)))


def _register_broker(version: int) -> Layout:
    body: list[tuple[str, Read]] = [("broker_id", INT32)]
    body += [("is_migrating_zk_broker", flag)] if version >= 2 else []
    body += [("incarnation_id", uuid), ("broker_epoch", INT64), ("end_points", _END_POINTS), ("features", _FEATURES)]
    body += [("rack", NULLABLE_STRING), ("fenced", flag)]
    body += [("in_controlled_shutdown", flag)] if version >= 1 else []
    tags: Tags = {0: ("log_dirs", UUIDS, [])} if version >= 3 else {}
    if version >= 4:
        tags[1] = ("cordoned_log_dirs", NULLABLE_UUIDS, None)
    return tuple(body), tags


def _partition(version: int) -> Layout:
    body: list[tuple[str, Read]] = [("partition_id", INT32), ("topic_id", uuid), ("replicas", INTS), ("isr", INTS)]
    body += [("removing_replicas", NULLABLE_INTS), ("adding_replicas", NULLABLE_INTS)]
    body += [(name, INT32) for name in ("leader", "leader_epoch", "partition_epoch")]
    body += [("directories", UUIDS)] if version >= 1 else []
    tags: Tags = {0: ("leader_recovery_state", INT8, 0)}
    if version >= 2:
        tags |= {1: ("eligible_leader_replicas", NULLABLE_INTS, None), 2: ("last_known_elr", NULLABLE_INTS, None)}
    return tuple(body), tags


def _partition_change(version: int) -> Layout:
    tags: Tags = {
        0: ("isr", NULLABLE_INTS, None),
        1: ("leader", INT32, -2),
        2: ("replicas", NULLABLE_INTS, None),
        3: ("removing_replicas", NULLABLE_INTS, None),
        4: ("adding_replicas", NULLABLE_INTS, None),
        5: ("leader_recovery_state", INT8, -1),
    }
    if version >= 2:
        tags |= {6: ("eligible_leader_replicas", NULLABLE_INTS, None), 7: ("last_known_elr", NULLABLE_INTS, None)}
    if version >= 1:
        tags[8] = ("directories", NULLABLE_UUIDS, None)
    return (("partition_id", INT32), ("topic_id", uuid)), tags


def _registration_change(version: int) -> Layout:
    tags: list[tuple[str, Read, object]] = [
        ("fenced", INT8, 0),
        ("in_controlled_shutdown", INT8, 0),
        ("log_dirs", UUIDS, []),
        ("cordoned_log_dirs", NULLABLE_UUIDS, None),
    ]
    return (("broker_id", INT32), ("broker_epoch", INT64)), dict(enumerate(tags[: version + 1]))


def _plain(*fields: tuple[str, Read]) -> tuple[Layout, ...]:
    """A record type with only version 0, without tagged fields."""
    return ((fields, {}),)


_CONTROLLER: Final = (
    ("controller_id", INT32),
    ("incarnation_id", uuid),
    ("zk_migration_ready", flag),
    ("end_points", _END_POINTS),
    ("features", _FEATURES),
)
_CONFIG: Final = (("resource_type", INT8), ("resource_name", STRING), ("name", STRING), ("value", NULLABLE_STRING))
_TOKEN: Final = (
    *(("owner", STRING), ("requester", STRING), ("renewers", array(STRING))),
    *((name, INT64) for name in ("issue_timestamp", "max_timestamp", "expiration_timestamp")),
    ("token_id", STRING),
)
_SCRAM: Final = (
    ("name", STRING),
    ("mechanism", INT8),
    *((name, BASE64) for name in ("salt", "stored_key", "server_key")),
    ("iterations", INT32),
)
_ENTITY: Final = array(structure(("entity_type", STRING), ("entity_name", NULLABLE_STRING)))
_ACCESS: Final = (
    *(("id", uuid), ("resource_type", INT8), ("resource_name", STRING), ("pattern_type", INT8)),
    *(("principal", STRING), ("host", STRING), ("operation", INT8), ("permission_type", INT8)),
)
_LAYOUTS: Final[dict[int, tuple[Layout, ...]]] = {
    0: tuple(map(_register_broker, range(5))),
    1: _plain(("broker_id", INT32), ("broker_epoch", INT64)),
    2: _plain(("name", STRING), ("topic_id", uuid)),
    3: tuple(map(_partition, range(3))),
    4: _plain(*_CONFIG),
    5: tuple(map(_partition_change, range(3))),
    7: _plain(("id", INT32), ("epoch", INT64)),
    8: _plain(("id", INT32), ("epoch", INT64)),
    9: _plain(("topic_id", uuid)),
    10: _plain(*_TOKEN),
    11: _plain(*_SCRAM),
    12: _plain(("name", STRING), ("feature_level", INT16)),
    14: _plain(("entity", _ENTITY), ("key", STRING), ("value", float64), ("remove", flag)),
    15: _plain(("broker_id", INT32), ("broker_epoch", INT64), ("next_producer_id", INT64)),
    17: tuple(map(_registration_change, range(4))),
    18: _plain(*_ACCESS),
    19: _plain(("id", uuid)),
    20: _plain(),
    21: _plain(("zk_migration_state", INT8)),
    22: _plain(("name", STRING), ("mechanism", INT8)),
    23: (((), {0: ("name", NULLABLE_STRING, None)}),),
    24: _plain(),
    25: (((), {0: ("reason", NULLABLE_STRING, None)}),),
    26: _plain(("token_id", STRING)),
    27: _plain(*_CONTROLLER),
    28: _plain(("topic_name", STRING)),
    29: _plain(("controller_id", INT32)),
}
"""apiKey → layout by version."""
