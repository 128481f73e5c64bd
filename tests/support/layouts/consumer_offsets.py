"""Records of `__consumer_offsets`: keys, OffsetCommitValue.json and GroupMetadataValue.json in all their versions."""

from typing import Final

from construct import Int8sb, Int16sb, Int16ub, Int32sb, Int64sb, Struct

from kafka_forensics.model.coordinators import MEMBER_TYPES, OFFSET_COMMIT_TYPES
from kafka_forensics.model.json_objects import Json
from tests.support.layouts.flexible import (
    COMPACT_NUMBER,
    COMPACT_STRING,
    NULLABLE_SHORT_STRING,
    NULLABLE_STRING,
    SHORT_STRING,
    TAGGED_FIELDS,
    UUID_TEXT,
    Array,
    Flexible,
    NullableStruct,
    Sized,
    Tag,
)

OFFSET_COMMIT_KEY: Final = Struct("record_type" / Int16sb, "group" / SHORT_STRING, "topic" / SHORT_STRING, "partition" / Int32sb)
"""OffsetCommitKey.json; type 0 is from before Kafka 0.9."""
GROUP_KEY: Final = Struct("record_type" / Int16sb, "group" / SHORT_STRING)
MEMBER_KEY: Final = Struct("record_type" / Int16sb, "group" / SHORT_STRING, "member_id" / SHORT_STRING)
"""Keys of members of KIP-848 groups; for type 16 the last field is a regular expression."""


def _offset_commit(version: int) -> Struct:
    flexible = version >= 4
    fields = ["version" / Int16sb, "offset" / Int64sb]
    fields += ["leader_epoch" / Int32sb] if version >= 3 else []
    fields += ["metadata" / (COMPACT_STRING if flexible else SHORT_STRING), "commit_timestamp" / Int64sb]
    fields += ["expire_timestamp" / Int64sb] if version == 1 else []
    fields += ["tagged_fields" / TAGGED_FIELDS] if flexible else []
    return Struct(*fields)


OFFSET_COMMIT_VALUES: Final = tuple(_offset_commit(version) for version in range(5))
"""By version; tag 0 of version 4 is the topic's id (16 bytes)."""


def _group_metadata(version: int) -> Struct:
    flexible = version >= 4
    string = COMPACT_STRING if flexible else SHORT_STRING
    nullable = NULLABLE_STRING if flexible else NULLABLE_SHORT_STRING
    sized = Sized() if flexible else Sized(Int32sb)
    member = ["member_id" / string]
    member += ["group_instance_id" / nullable] if version >= 3 else []
    member += ["client_id" / string, "client_host" / string]
    member += ["rebalance_timeout" / Int32sb] if version >= 1 else []
    member += ["session_timeout" / Int32sb]
    member += ["subscription" / sized, "assignment" / sized]
    member += ["tagged_fields" / TAGGED_FIELDS] if flexible else []
    fields = [
        "version" / Int16sb,
        "protocol_type" / string,
        "generation" / Int32sb,
        "protocol" / nullable,
        "leader" / nullable,
    ]
    fields += ["current_state_timestamp" / Int64sb] if version >= 2 else []
    fields += ["members" / Array(Struct(*member), COMPACT_NUMBER if flexible else Int32sb)]
    fields += ["tagged_fields" / TAGGED_FIELDS] if flexible else []
    return Struct(*fields)


GROUP_METADATA_VALUES: Final = tuple(_group_metadata(version) for version in range(5))
"""By version."""


def key_layout(record_type: int) -> Struct:
    """The layout of keys of a record type; for an unknown type as far as the group."""
    if record_type in OFFSET_COMMIT_TYPES:
        return OFFSET_COMMIT_KEY
    return MEMBER_KEY if record_type in MEMBER_TYPES else GROUP_KEY


# Values of `__consumer_offsets` about KIP-848, KIP-932 and KIP-1071 groups, and records of `__share_group_state`.
#
# The layouts of Kafka 4.3, all of version 0, which precedes the fields of every value. Fields of later releases are tagged, so the
# layouts read what 4.0 and later write. Share groups were a preview in 4.0, with other layouts for four types. Exact and slow;
# `parsers.internal_topics` has the fast twins.


INTS: Final = Array(Int32sb)
SHORTS: Final = Array(Int16sb)
STRINGS: Final = Array(COMPACT_STRING)

_ASSIGNMENT_EPOCHS: Final = Tag(0, "assignment_epochs", Array(Int32sb, nullable=True), [])
_ASSIGNED: Final = Flexible("topic_id" / UUID_TEXT, "partitions" / INTS)
_ASSIGNED_WITH_EPOCHS: Final = Flexible("topic_id" / UUID_TEXT, "partitions" / INTS, _ASSIGNMENT_EPOCHS)
_TASKS: Final = Flexible("subtopology_id" / COMPACT_STRING, "partitions" / INTS)
_TASKS_WITH_EPOCHS: Final = Flexible("subtopology_id" / COMPACT_STRING, "partitions" / INTS, _ASSIGNMENT_EPOCHS)
_KEY_VALUE: Final = Flexible("key" / COMPACT_STRING, "value" / COMPACT_STRING)
_RACKS: Final = Flexible("partition" / Int32sb, "racks" / STRINGS)
_PARTITION_METADATA: Final = Flexible(
    "topics"
    / Array(
        Flexible(
            "topic_id" / UUID_TEXT,
            "topic_name" / COMPACT_STRING,
            "num_partitions" / Int32sb,
            "partition_metadata" / Array(_RACKS),
        )
    )
)
_CLASSIC_PROTOCOL: Final = Flexible("name" / COMPACT_STRING, "metadata" / Sized())
_CLASSIC_MEMBER: Final = Flexible("session_timeout_ms" / Int32sb, "supported_protocols" / Array(_CLASSIC_PROTOCOL))
_NO_CLASSIC_MEMBER: Final = {"session_timeout_ms": 0, "supported_protocols": []}
_TARGET_EPOCH: Final = Flexible("assignment_epoch" / Int32sb, Tag(0, "assignment_timestamp", Int64sb, 0))
_TARGET: Final = Flexible("topic_partitions" / Array(_ASSIGNED))
_MEMBER_EPOCHS: Final = ("member_epoch" / Int32sb, "previous_member_epoch" / Int32sb, "state" / Int8sb)

CONSUMER_MEMBER: Final = Flexible(
    "instance_id" / NULLABLE_STRING,
    "rack_id" / NULLABLE_STRING,
    "client_id" / COMPACT_STRING,
    "client_host" / COMPACT_STRING,
    "subscribed_topic_names" / STRINGS,
    "subscribed_topic_regex" / NULLABLE_STRING,
    "rebalance_timeout_ms" / Int32sb,
    "server_assignor" / NULLABLE_STRING,
    Tag(0, "classic_member_metadata", NullableStruct(_CLASSIC_MEMBER, tagged=True), _NO_CLASSIC_MEMBER),
)
SHARE_MEMBER: Final = Flexible(
    "rack_id" / NULLABLE_STRING, "client_id" / COMPACT_STRING, "client_host" / COMPACT_STRING, "subscribed_topic_names" / STRINGS
)
_SHARED: Final = Array(Flexible("topic_id" / UUID_TEXT, "topic_name" / COMPACT_STRING, "partitions" / INTS))
_DELETING: Final = Array(Flexible("topic_id" / UUID_TEXT, "topic_name" / COMPACT_STRING))
_ENDPOINT: Final = Flexible("host" / COMPACT_STRING, "port" / Int16ub)
STREAMS_MEMBER: Final = Flexible(
    "instance_id" / NULLABLE_STRING,
    "rack_id" / NULLABLE_STRING,
    "client_id" / COMPACT_STRING,
    "client_host" / COMPACT_STRING,
    "rebalance_timeout_ms" / Int32sb,
    "topology_epoch" / Int32sb,
    "process_id" / COMPACT_STRING,
    "user_endpoint" / NullableStruct(_ENDPOINT),
    "client_tags" / Array(_KEY_VALUE),
)
STREAMS_CURRENT: Final = Flexible(
    *_MEMBER_EPOCHS,
    *(
        f"{kind}_tasks{pending}" / Array(_TASKS_WITH_EPOCHS)
        for pending in ("", "_pending_revocation")
        for kind in ("active", "standby", "warmup")
    ),
)
_TOPIC: Final = Flexible(
    "name" / COMPACT_STRING,
    "partitions" / Int32sb,
    "replication_factor" / Int16sb,
    "topic_configs" / Array(_KEY_VALUE),
)
_COPARTITIONED: Final = Flexible("source_topics" / SHORTS, "source_topic_regex" / SHORTS, "repartition_source_topics" / SHORTS)
SUBTOPOLOGY: Final = Flexible(
    "subtopology_id" / COMPACT_STRING,
    "source_topics" / STRINGS,
    "source_topic_regex" / STRINGS,
    "state_changelog_topics" / Array(_TOPIC),
    "repartition_sink_topics" / STRINGS,
    "repartition_source_topics" / Array(_TOPIC),
    "copartition_groups" / Array(_COPARTITIONED),
)

GROUP_VALUES: Final[dict[int, Flexible]] = {
    3: Flexible("epoch" / Int32sb, Tag(0, "metadata_hash", Int64sb, 0)),
    4: _PARTITION_METADATA,
    5: CONSUMER_MEMBER,
    6: _TARGET_EPOCH,
    7: _TARGET,
    8: Flexible(
        *_MEMBER_EPOCHS,
        "assigned_partitions" / Array(_ASSIGNED_WITH_EPOCHS),
        "partitions_pending_revocation" / Array(_ASSIGNED_WITH_EPOCHS),
    ),
    10: SHARE_MEMBER,
    11: Flexible("epoch" / Int32sb, "metadata_hash" / Int64sb),
    12: _TARGET_EPOCH,
    13: _TARGET,
    14: Flexible(*_MEMBER_EPOCHS, "assigned_partitions" / Array(_ASSIGNED)),
    15: Flexible("initializing_topics" / _SHARED, "initialized_topics" / _SHARED, "deleting_topics" / _DELETING),
    16: Flexible("topics" / STRINGS, "version" / Int64sb, "timestamp" / Int64sb),
    17: Flexible(
        "epoch" / Int32sb,
        "metadata_hash" / Int64sb,
        Tag(0, "validated_topology_epoch", Int32sb, -1),
        Tag(1, "last_assignment_configs", Array(_KEY_VALUE, nullable=True), []),
        Tag(2, "stored_description_topology_epoch", Int32sb, -1),
        Tag(3, "failed_description_topology_epoch", Int32sb, -1),
    ),
    19: STREAMS_MEMBER,
    20: _TARGET_EPOCH,
    21: Flexible(*(f"{kind}_tasks" / Array(_TASKS) for kind in ("active", "standby", "warmup"))),
    22: STREAMS_CURRENT,
    23: Flexible("epoch" / Int32sb, "subtopologies" / Array(SUBTOPOLOGY)),
}
"""Layout after the version, by record type, in Kafka 4.3.0."""
EARLY_GROUP_VALUES: Final[dict[int, Flexible]] = {
    9: _PARTITION_METADATA,
    11: Flexible("epoch" / Int32sb),
    15: Flexible("initialized_topics" / _SHARED, "deleting_topics" / _DELETING),
}
"""Layouts of the preview of share groups in Kafka 4.0."""

SHARE_STATE_KEY: Final = Struct("record_type" / Int16sb, "group" / SHORT_STRING, "topic_id" / UUID_TEXT, "partition" / Int32sb)
"""ShareSnapshotKey.json (type 0) and ShareUpdateKey.json (1)."""
_STATE_BATCHES: Final = Array(
    Flexible("first_offset" / Int64sb, "last_offset" / Int64sb, "delivery_state" / Int8sb, "delivery_count" / Int16sb)
)
_COMPLETE: Final = Tag(0, "delivery_complete_count", Int32sb, -1)
SHARE_STATE_VALUES: Final[dict[int, Flexible]] = {
    0: Flexible(
        *(f"{name}_epoch" / Int32sb for name in ("snapshot", "state", "leader")),
        "start_offset" / Int64sb,
        _COMPLETE,
        "create_timestamp" / Int64sb,
        "write_timestamp" / Int64sb,
        "state_batches" / _STATE_BATCHES,
    ),
    1: Flexible(
        "snapshot_epoch" / Int32sb, "leader_epoch" / Int32sb, "start_offset" / Int64sb, _COMPLETE, "state_batches" / _STATE_BATCHES
    ),
}
"""By record type: a snapshot, and an update of it."""


def write_value(layout: Flexible, fields: Json) -> bytes:
    """The value of version 0 with these fields; tagged fields that are missing are not written."""
    return b"\0\0" + bytes(layout.build(fields))
