"""Fast readers for records of `__consumer_offsets`, for logs with millions of records.

Readers return the record, or a `str` with a short reason why it cannot be read.
"""

from base64 import urlsafe_b64encode
from struct import Struct
from typing import Final

from kafka_forensics.model.coordinators import (
    MEMBER_TYPES,
    MEMBERS_LISTED,
    OFFSET_COMMIT_TYPES,
    RECORD_TYPES,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetCommit,
)
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.flexible_fields import (
    BASE64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTS,
    LEFT_OUT,
    NULLABLE_INTS,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UNREADABLE,
    FieldCursor,
    Layout,
    Malformed,
    Read,
    Tags,
    array,
    nullable_structure,
    read_message,
    structure,
    uuid,
    write_message,
)

_WITH_EPOCH: Final = Struct(">hqih")
_INT64: Final = Struct(">q")
_FLEXIBLE: Final = 4
_NEWEST: Final = 4
_TOPIC_ID_SIZE: Final = 16


def read_key(key: bytes | None) -> GroupKey | str:
    """The key of a record. An unknown type is not a fault: coordinators skip it (CoordinatorRecordSerde)."""
    if key is None or len(key) < 2:
        return "key"
    record_type = int.from_bytes(key[:2], "big", signed=True)
    if record_type not in RECORD_TYPES:
        return GroupKey(record_type, "")
    cursor = FieldCursor(key, 2)
    try:
        group = cursor.short_string()
        if record_type in OFFSET_COMMIT_TYPES:
            return GroupKey(record_type, group, cursor.short_string(), cursor.integer(4))
        return GroupKey(record_type, group, member_id=cursor.short_string() if record_type in MEMBER_TYPES else None)
    except Malformed:
        return "key"


def read_offset_commit(value: bytes) -> OffsetCommit | str:
    """An OffsetCommitValue of any version."""
    size = len(value)
    if size >= _WITH_EPOCH.size and value[:2] == b"\x00\x03":
        _, offset, leader_epoch, length = _WITH_EPOCH.unpack_from(value)
        end = _WITH_EPOCH.size + length
        if length == 0 and size >= end + 8:
            return OffsetCommit(offset, leader_epoch, "", _INT64.unpack_from(value, end)[0], -1, None)
    try:
        return _offset_commit(value)
    except Malformed as fault:
        return str(fault)


def _cursor_and_version(value: bytes) -> tuple[FieldCursor, int]:
    """The start of a value: its version, 0 to 4."""
    cursor = FieldCursor(value)
    version = cursor.integer(2)
    if not 0 <= version <= _NEWEST:
        raise Malformed("version")
    return cursor, version


def _offset_commit(value: bytes) -> OffsetCommit:
    cursor, version = _cursor_and_version(value)
    offset = cursor.integer(8)
    leader_epoch = cursor.integer(4) if version >= 3 else -1
    metadata = cursor.compact_string() if version >= _FLEXIBLE else cursor.short_string()
    commit_timestamp = cursor.integer(8)
    expire_timestamp = cursor.integer(8) if version == 1 else -1
    topic_id = None
    if version >= _FLEXIBLE:
        tag = cursor.tagged_fields().get(0)
        if tag is not None:
            if len(tag) < _TOPIC_ID_SIZE:
                raise Malformed("topic_id")
            topic_id = urlsafe_b64encode(tag[:_TOPIC_ID_SIZE]).decode().rstrip("=")
    return OffsetCommit(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id)


def read_group_metadata(value: bytes) -> GroupMetadata | str:
    """A GroupMetadataValue of any version; members after the first 1024 are only counted."""
    try:
        return _group_metadata(value)
    except Malformed as fault:
        return str(fault)


def _group_metadata(value: bytes) -> GroupMetadata:
    cursor, version = _cursor_and_version(value)
    flexible = version >= _FLEXIBLE
    string = cursor.compact_string if flexible else cursor.short_string

    def nullable() -> str | None:
        length = cursor.varint() - 1 if flexible else cursor.integer(2)
        return None if length == -1 else cursor.text(length)

    def sized() -> int:
        return len(cursor.take(cursor.varint() - 1 if flexible else cursor.integer(4)))

    protocol_type, generation, protocol, leader = string(), cursor.integer(4), nullable(), nullable()
    timestamp = cursor.integer(8) if version >= 2 else -1
    count = cursor.varint() - 1 if flexible else cursor.integer(4)
    if count < 0:
        raise Malformed("array")
    members = []
    for index in range(count):
        member = GroupMember(
            string(),
            nullable() if version >= 3 else None,
            string(),
            string(),
            cursor.integer(4) if version >= 1 else -1,
            cursor.integer(4),
            sized(),
            sized(),
        )
        if flexible:
            cursor.tagged_fields()
        if index < MEMBERS_LISTED:
            members.append(member)
    if flexible:
        cursor.tagged_fields()
    return GroupMetadata(protocol_type, generation, protocol, leader, timestamp, count, tuple(members))


def check_value(value: bytes) -> str | None:
    """The fault of a value of which only type and size are reported: its version is not 0, or absent; else None."""
    return None if value[:2] == b"\0\0" else "version" if len(value) >= 2 else "truncated"


# Values of `__consumer_offsets` about KIP-848, KIP-932 and KIP-1071 groups: every type of any release from Kafka 4.0 on.


MAX_VALUE_BYTES: Final = 2 << 20
"""Larger values are not parsed. A coordinator's value is not larger than a batch: 1 MiB unless configured otherwise."""
_VERSION_SIZE: Final = 2


def read_group_value(record_type: int, value: bytes) -> Json | str:
    """The fields of a value of one of the types 3 to 23, without absent tagged fields.

    Reasons: `kind` (unknown type), `version` (not 0), `truncated` (no version), `oversized`, `fields` (other layout). Bytes after
    the fields are ignored, as by coordinators.
    """
    return read_alternatives(_LAYOUTS.get(record_type, ()), value)


def read_alternatives(layouts: tuple[Layout, ...], value: bytes) -> Json | str:
    """The fields by the first layout that matches the whole value, else by the first that matches its beginning."""
    if not layouts:
        return "kind"
    if value[:_VERSION_SIZE] != b"\0\0":
        return "version" if len(value) >= _VERSION_SIZE else "truncated"
    if len(value) > MAX_VALUE_BYTES:
        return "oversized"
    first: Json | None = None
    for layout in layouts:
        try:
            fields, position = read_message(value, _VERSION_SIZE, layout)
        except UNREADABLE:
            continue
        if position == len(value):
            return fields
        first = first or fields
    return "fields" if first is None else first


def write_group_value(record_type: int, fields: Json) -> bytes:
    """The value of a record of one of these types, in the newest layout; missing fields are 0, empty or null."""
    return write_newest(_LAYOUTS[record_type], fields)


def write_newest(layouts: tuple[Layout, ...], fields: Json) -> bytes:
    """A value: version 0, then the fields in the first layout; missing fields are 0, empty or null."""
    return b"\0\0" + write_message(layouts[0], fields)


def _plain(*fields: tuple[str, Read], tags: Tags | None = None) -> Layout:
    return fields, tags or {}


_STRINGS: Final = array(STRING)
_SHORTS: Final = array(INT16)
_EPOCHS: Final[Tags] = {0: ("assignment_epochs", NULLABLE_INTS, LEFT_OUT)}
_ASSIGNED: Final = array(structure(("topic_id", uuid), ("partitions", INTS)))
_ASSIGNED_WITH_EPOCHS: Final = array(structure(("topic_id", uuid), ("partitions", INTS), tags=_EPOCHS))
_TASKS: Final = array(structure(("subtopology_id", STRING), ("partitions", INTS)))
_TASKS_WITH_EPOCHS: Final = array(structure(("subtopology_id", STRING), ("partitions", INTS), tags=_EPOCHS))
_KEY_VALUE: Final = structure(("key", STRING), ("value", STRING))
_KEY_VALUES: Final = array(_KEY_VALUE)
_RACKS: Final = array(structure(("partition", INT32), ("racks", _STRINGS)))
_PARTITION_METADATA: Final = _plain(
    (
        "topics",
        array(structure(("topic_id", uuid), ("topic_name", STRING), ("num_partitions", INT32), ("partition_metadata", _RACKS))),
    )
)
_PROTOCOLS: Final = array(structure(("name", STRING), ("metadata", BASE64)))
_CLASSIC_MEMBER: Final = structure(("session_timeout_ms", INT32), ("supported_protocols", _PROTOCOLS))
_TARGET_EPOCH: Final = _plain(("assignment_epoch", INT32), tags={0: ("assignment_timestamp", INT64, LEFT_OUT)})
_TARGET: Final = _plain(("topic_partitions", _ASSIGNED))
_MEMBER_EPOCHS: Final = (("member_epoch", INT32), ("previous_member_epoch", INT32), ("state", INT8))
_CLIENT: Final = (("client_id", STRING), ("client_host", STRING))
_STATIC: Final = (("instance_id", NULLABLE_STRING), ("rack_id", NULLABLE_STRING), *_CLIENT)
_TASK_KINDS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
_SHARED: Final = array(structure(("topic_id", uuid), ("topic_name", STRING), ("partitions", INTS)))
_DELETING: Final = array(structure(("topic_id", uuid), ("topic_name", STRING)))
_INITIALIZED: Final = (("initialized_topics", _SHARED), ("deleting_topics", _DELETING))
_TOPICS: Final = array(
    structure(("name", STRING), ("partitions", INT32), ("replication_factor", INT16), ("topic_configs", _KEY_VALUES))
)
_COPARTITIONED: Final = array(
    structure(("source_topics", _SHORTS), ("source_topic_regex", _SHORTS), ("repartition_source_topics", _SHORTS))
)
_SUBTOPOLOGIES: Final = array(
    structure(
        ("subtopology_id", STRING),
        ("source_topics", _STRINGS),
        ("source_topic_regex", _STRINGS),
        ("state_changelog_topics", _TOPICS),
        ("repartition_sink_topics", _STRINGS),
        ("repartition_source_topics", _TOPICS),
        ("copartition_groups", _COPARTITIONED),
    )
)
_LAYOUTS: Final[dict[int, tuple[Layout, ...]]] = {
    3: (_plain(("epoch", INT32), tags={0: ("metadata_hash", INT64, LEFT_OUT)}),),
    4: (_PARTITION_METADATA,),
    5: (
        _plain(
            *_STATIC,
            ("subscribed_topic_names", _STRINGS),
            ("subscribed_topic_regex", NULLABLE_STRING),
            ("rebalance_timeout_ms", INT32),
            ("server_assignor", NULLABLE_STRING),
            tags={0: ("classic_member_metadata", nullable_structure(_CLASSIC_MEMBER, tagged=True), LEFT_OUT)},
        ),
    ),
    6: (_TARGET_EPOCH,),
    7: (_TARGET,),
    8: (
        _plain(
            *_MEMBER_EPOCHS,
            ("assigned_partitions", _ASSIGNED_WITH_EPOCHS),
            ("partitions_pending_revocation", _ASSIGNED_WITH_EPOCHS),
        ),
    ),
    9: (_PARTITION_METADATA,),
    10: (_plain(("rack_id", NULLABLE_STRING), *_CLIENT, ("subscribed_topic_names", _STRINGS)),),
    11: (_plain(("epoch", INT32), ("metadata_hash", INT64)), _plain(("epoch", INT32))),
    12: (_TARGET_EPOCH,),
    13: (_TARGET,),
    14: (_plain(*_MEMBER_EPOCHS, ("assigned_partitions", _ASSIGNED)),),
    15: (_plain(("initializing_topics", _SHARED), *_INITIALIZED), _plain(*_INITIALIZED)),
    16: (_plain(("topics", _STRINGS), ("version", INT64), ("timestamp", INT64)),),
    17: (
        _plain(
            ("epoch", INT32),
            ("metadata_hash", INT64),
            tags={
                0: ("validated_topology_epoch", INT32, LEFT_OUT),
                1: ("last_assignment_configs", array(_KEY_VALUE, nullable=True), LEFT_OUT),
                2: ("stored_description_topology_epoch", INT32, LEFT_OUT),
                3: ("failed_description_topology_epoch", INT32, LEFT_OUT),
            },
        ),
    ),
    19: (
        _plain(
            *_STATIC,
            ("rebalance_timeout_ms", INT32),
            ("topology_epoch", INT32),
            ("process_id", STRING),
            ("user_endpoint", nullable_structure(structure(("host", STRING), ("port", UINT16)))),
            ("client_tags", _KEY_VALUES),
        ),
    ),
    20: (_TARGET_EPOCH,),
    21: (_plain(*((kind, _TASKS) for kind in _TASK_KINDS)),),
    22: (
        _plain(
            *_MEMBER_EPOCHS,
            *((f"{kind}{pending}", _TASKS_WITH_EPOCHS) for pending in ("", "_pending_revocation") for kind in _TASK_KINDS),
        ),
    ),
    23: (_plain(("epoch", INT32), ("subtopologies", _SUBTOPOLOGIES)),),
}
"""Record type → layout in Kafka 4.3, and where it differs in the preview of share groups in 4.0."""
