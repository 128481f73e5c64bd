"""Records of `__cluster_metadata` (KRaft): their frame, and every record type of any Kafka release.

Record types by apiKey and version, with tagged fields and their defaults (Kafka's `metadata` messages, all flexible from version
0). Exact and slow; `parsers.internal_topics.metadata_log` is the fast twin.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final

from construct import Construct, ExprAdapter, Flag, Float64b, Int8sb, Int16sb, Int16ub, Int32sb, Int64sb, Struct

from kafka_forensics.model.json_objects import Json
from tests.support.layouts.flexible import (
    COMPACT_STRING,
    NULLABLE_STRING,
    TAGGED_FIELDS,
    UNSIGNED_VARINT,
    UUID,
    Array,
    Sized,
    Tag,
)

FRAME_VERSION: Final = 1
"""Version 0 is the preview of Kafka 2.8, which no release reads."""
FRAME: Final = Struct("frame_version" / UNSIGNED_VARINT, "api_key" / UNSIGNED_VARINT, "version" / UNSIGNED_VARINT)
"""The start of every record (AbstractApiMessageSerde)."""

INTS: Final = Array(Int32sb)
NULLABLE_INTS: Final = Array(Int32sb, nullable=True)
UUIDS: Final = Array(UUID)
NULLABLE_UUIDS: Final = Array(UUID, nullable=True)


@dataclass(frozen=True, slots=True)
class Message:
    """A record type in one version: the fields before the tagged fields, and the tagged fields."""

    body: Construct
    tags: tuple[Tag, ...] = ()


ENDPOINT: Final = Struct(
    "name" / COMPACT_STRING,
    "host" / COMPACT_STRING,
    "port" / Int16ub,
    "security_protocol" / Int16sb,
    "tagged_fields" / TAGGED_FIELDS,
)
FEATURE: Final = Struct(
    "name" / COMPACT_STRING,
    "min_supported_version" / Int16sb,
    "max_supported_version" / Int16sb,
    "tagged_fields" / TAGGED_FIELDS,
)
_BROKER: Final = Struct("broker_id" / Int32sb, "broker_epoch" / Int64sb)
_OLD_BROKER: Final = Struct("id" / Int32sb, "epoch" / Int64sb)
_REGISTRATION: Final = (
    "incarnation_id" / UUID,
    "broker_epoch" / Int64sb,
    "end_points" / Array(ENDPOINT),
    "features" / Array(FEATURE),
    "rack" / NULLABLE_STRING,
    "fenced" / Flag,
)
_MIGRATING: Final = "is_migrating_zk_broker" / Flag
_SHUTDOWN: Final = "in_controlled_shutdown" / Flag
_REGISTER_BROKER: Final = (
    Struct("broker_id" / Int32sb, *_REGISTRATION),
    Struct("broker_id" / Int32sb, *_REGISTRATION, _SHUTDOWN),
    Struct("broker_id" / Int32sb, _MIGRATING, *_REGISTRATION, _SHUTDOWN),
)
_LOG_DIRS: Final = Tag(0, "log_dirs", UUIDS, [])
_CORDONED: Final = Tag(1, "cordoned_log_dirs", NULLABLE_UUIDS, None)
_PARTITION: Final = (
    "partition_id" / Int32sb,
    "topic_id" / UUID,
    "replicas" / INTS,
    "isr" / INTS,
    "removing_replicas" / NULLABLE_INTS,
    "adding_replicas" / NULLABLE_INTS,
    "leader" / Int32sb,
    "leader_epoch" / Int32sb,
    "partition_epoch" / Int32sb,
)
_WITH_DIRECTORIES: Final = Struct(*_PARTITION, "directories" / UUIDS)
_RECOVERY: Final = Tag(0, "leader_recovery_state", Int8sb, 0)
_ELR: Final = (Tag(1, "eligible_leader_replicas", NULLABLE_INTS, None), Tag(2, "last_known_elr", NULLABLE_INTS, None))
_CHANGE: Final = Struct("partition_id" / Int32sb, "topic_id" / UUID)
_CHANGE_TAGS: Final = (
    Tag(0, "isr", NULLABLE_INTS, None),
    Tag(1, "leader", Int32sb, -2),
    Tag(2, "replicas", NULLABLE_INTS, None),
    Tag(3, "removing_replicas", NULLABLE_INTS, None),
    Tag(4, "adding_replicas", NULLABLE_INTS, None),
    Tag(5, "leader_recovery_state", Int8sb, -1),
)
_CHANGE_ELR: Final = (Tag(6, "eligible_leader_replicas", NULLABLE_INTS, None), Tag(7, "last_known_elr", NULLABLE_INTS, None))
_CHANGE_DIRECTORIES: Final = Tag(8, "directories", NULLABLE_UUIDS, None)
_CONTROLLER: Final = Struct(
    "controller_id" / Int32sb,
    "incarnation_id" / UUID,
    "zk_migration_ready" / Flag,
    "end_points" / Array(ENDPOINT),
    "features" / Array(FEATURE),
)
_FENCED: Final = Tag(0, "fenced", Int8sb, 0)
_IN_SHUTDOWN: Final = Tag(1, "in_controlled_shutdown", Int8sb, 0)
_CHANGED_DIRS: Final = Tag(2, "log_dirs", UUIDS, [])
_CHANGED_CORDONED: Final = Tag(3, "cordoned_log_dirs", NULLABLE_UUIDS, None)
_CONFIG: Final = Struct(
    "resource_type" / Int8sb, "resource_name" / COMPACT_STRING, "name" / COMPACT_STRING, "value" / NULLABLE_STRING
)

BASE64: Final = ExprAdapter(Sized(), lambda data, _: b64encode(data).decode(), lambda text, _: b64decode(text, validate=True))
_TOKEN: Final = Struct(
    "owner" / COMPACT_STRING,
    "requester" / COMPACT_STRING,
    "renewers" / Array(COMPACT_STRING),
    "issue_timestamp" / Int64sb,
    "max_timestamp" / Int64sb,
    "expiration_timestamp" / Int64sb,
    "token_id" / COMPACT_STRING,
)
_SCRAM: Final = Struct(
    "name" / COMPACT_STRING,
    "mechanism" / Int8sb,
    "salt" / BASE64,
    "stored_key" / BASE64,
    "server_key" / BASE64,
    "iterations" / Int32sb,
)
_ENTITY: Final = Struct("entity_type" / COMPACT_STRING, "entity_name" / NULLABLE_STRING, "tagged_fields" / TAGGED_FIELDS)
_QUOTA: Final = Struct("entity" / Array(_ENTITY), "key" / COMPACT_STRING, "value" / Float64b, "remove" / Flag)
_ACCESS: Final = Struct(
    "id" / UUID,
    "resource_type" / Int8sb,
    "resource_name" / COMPACT_STRING,
    "pattern_type" / Int8sb,
    "principal" / COMPACT_STRING,
    "host" / COMPACT_STRING,
    "operation" / Int8sb,
    "permission_type" / Int8sb,
)

MESSAGES: Final[dict[int, tuple[Message, ...]]] = {
    0: (
        Message(_REGISTER_BROKER[0]),
        Message(_REGISTER_BROKER[1]),
        Message(_REGISTER_BROKER[2]),
        Message(_REGISTER_BROKER[2], (_LOG_DIRS,)),
        Message(_REGISTER_BROKER[2], (_LOG_DIRS, _CORDONED)),
    ),
    1: (Message(_BROKER),),
    2: (Message(Struct("name" / COMPACT_STRING, "topic_id" / UUID)),),
    3: (
        Message(Struct(*_PARTITION), (_RECOVERY,)),
        Message(_WITH_DIRECTORIES, (_RECOVERY,)),
        Message(_WITH_DIRECTORIES, (_RECOVERY, *_ELR)),
    ),
    4: (Message(_CONFIG),),
    5: (
        Message(_CHANGE, _CHANGE_TAGS),
        Message(_CHANGE, (*_CHANGE_TAGS, _CHANGE_DIRECTORIES)),
        Message(_CHANGE, (*_CHANGE_TAGS, *_CHANGE_ELR, _CHANGE_DIRECTORIES)),
    ),
    7: (Message(_OLD_BROKER),),
    8: (Message(_OLD_BROKER),),
    9: (Message(Struct("topic_id" / UUID)),),
    10: (Message(_TOKEN),),
    11: (Message(_SCRAM),),
    12: (Message(Struct("name" / COMPACT_STRING, "feature_level" / Int16sb)),),
    14: (Message(_QUOTA),),
    15: (Message(Struct("broker_id" / Int32sb, "broker_epoch" / Int64sb, "next_producer_id" / Int64sb)),),
    17: (
        Message(_BROKER, (_FENCED,)),
        Message(_BROKER, (_FENCED, _IN_SHUTDOWN)),
        Message(_BROKER, (_FENCED, _IN_SHUTDOWN, _CHANGED_DIRS)),
        Message(_BROKER, (_FENCED, _IN_SHUTDOWN, _CHANGED_DIRS, _CHANGED_CORDONED)),
    ),
    18: (Message(_ACCESS),),
    19: (Message(Struct("id" / UUID)),),
    20: (Message(Struct()),),
    21: (Message(Struct("zk_migration_state" / Int8sb)),),
    22: (Message(Struct("name" / COMPACT_STRING, "mechanism" / Int8sb)),),
    23: (Message(Struct(), (Tag(0, "name", NULLABLE_STRING, None),)),),
    24: (Message(Struct()),),
    25: (Message(Struct(), (Tag(0, "reason", NULLABLE_STRING, None),)),),
    26: (Message(Struct("token_id" / COMPACT_STRING)),),
    27: (Message(_CONTROLLER),),
    28: (Message(Struct("topic_name" / COMPACT_STRING)),),
    29: (Message(Struct("controller_id" / Int32sb)),),
}
"""apiKey → layout by version."""


def write_metadata_record(api_key: int, version: int, fields: Json) -> bytes:
    """The value of a record; tagged fields that are missing or have their default are not written, as in Kafka."""
    return write_framed(MESSAGES[api_key][version], api_key, version, fields)


def write_framed(message: Message, api_key: int, version: int, fields: Json) -> bytes:
    """The same for any topic whose records have this frame."""
    tagged = {
        tag.number: tag.layout.build(fields[tag.name]) for tag in message.tags if fields.get(tag.name, tag.default) != tag.default
    }
    frame: bytes = FRAME.build({"frame_version": FRAME_VERSION, "api_key": api_key, "version": version})
    return frame + bytes(message.body.build(fields)) + bytes(TAGGED_FIELDS.build(tagged))
