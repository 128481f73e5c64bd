"""Values of `__consumer_offsets` that tell of new groups, read fast: the twin of `spec.group_records`.

Every kind that Kafka has had in a release from 4.0 on is taken apart; what is larger than any coordinator writes is only measured.
Everything here answers with what was read, or with a short word for why it could not be: `str` is never a good answer.
"""

from typing import Any, Final

from kafka_forensics.parsers.internal_topics.flexible_fields import (
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
    Layout,
    Read,
    Tags,
    array,
    base64_text,
    nullable_structure,
    read_message,
    structure,
    uuid,
)

MAX_VALUE_BYTES: Final = 2 << 20
"""Larger values are not taken apart. Coordinators write none larger than a batch may be: 1 MiB unless that is set otherwise."""
_VERSION_SIZE: Final = 2


def read_group_value(record_type: int, value: bytes) -> dict[str, Any] | str:
    """The fields of a value of one of the types 3 to 23; tagged ones that are left out are not among them.

    `kind`: no such type is known here; `version`, `truncated`: its version is not 0, or not there; `oversized`; `fields`: it is not
    laid out so. Bytes behind the fields are passed over, as coordinators do.
    """
    return read_alternatives(_LAYOUTS.get(record_type, ()), value)


def read_alternatives(layouts: tuple[Layout, ...], value: bytes) -> dict[str, Any] | str:
    """The fields by the first layout that takes the whole value, else by the first that can be read at all."""
    if not layouts:
        return "kind"
    if value[:_VERSION_SIZE] != b"\0\0":
        return "version" if len(value) >= _VERSION_SIZE else "truncated"
    if len(value) > MAX_VALUE_BYTES:
        return "oversized"
    first: dict[str, Any] | None = None
    for layout in layouts:
        try:
            fields, position = read_message(value, _VERSION_SIZE, layout)
        except UNREADABLE:
            continue
        if position == len(value):
            return fields
        first = first or fields
    return "fields" if first is None else first


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
_PROTOCOLS: Final = array(structure(("name", STRING), ("metadata", base64_text)))
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
"""Type of the key → layout of Kafka 4.3, and that of the preview of share groups in 4.0 where it was another."""
