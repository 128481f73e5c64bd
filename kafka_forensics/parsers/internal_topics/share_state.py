"""Records of `__share_group_state` read fast: the twin of `spec.group_records.SHARE_STATE_KEY` and `SHARE_STATE_VALUES`."""

from struct import Struct
from typing import Any, Final, NamedTuple

from kafka_forensics.parsers.internal_topics.consumer_offsets import read_alternatives
from kafka_forensics.parsers.internal_topics.flexible_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    LEFT_OUT,
    UINT16,
    UNREADABLE,
    Layout,
    Tags,
    array,
    number,
    structure,
    uuid_text,
)

SNAPSHOT: Final = 0
UPDATE: Final = 1
SHARE_RECORDS: Final = {SNAPSHOT: "ShareSnapshot", UPDATE: "ShareUpdate"}
"""Kafka's names by the number a key begins with."""
_PARTITION: Final = Struct(">16si")
_LENGTH: Final = number(">h")


class ShareKey(NamedTuple):
    """The key of a record: a group, and a partition by its topic's id."""

    record_type: int
    group: str
    topic_id: str
    partition: int


def read_share_key(key: bytes | None) -> ShareKey | str:
    """The key of a record, `key` if it is none; of an unknown type the group and the id are empty."""
    if key is None or len(key) < 2:
        return "key"
    record_type = int.from_bytes(key[:2], "big", signed=True)
    if record_type not in SHARE_RECORDS:
        return ShareKey(record_type, "", "", -1)
    try:
        length, position = _LENGTH(key, 2)
        end = position + length
        if length < 0 or end > len(key):
            return "key"
        topic_id, partition = _PARTITION.unpack_from(key, end)
        return ShareKey(record_type, key[position:end].decode(), uuid_text(topic_id), partition)
    except UNREADABLE:
        return "key"


def read_share_value(record_type: int, value: bytes) -> dict[str, Any] | str:
    """The fields of a snapshot or an update; reasons as `group_records.read_group_value` gives them."""
    return read_alternatives(_LAYOUTS.get(record_type, ()), value)


_BATCHES: Final = array(
    structure(("first_offset", INT64), ("last_offset", INT64), ("delivery_state", INT8), ("delivery_count", INT16))
)
_COMPLETE: Final[Tags] = {0: ("delivery_complete_count", INT32, LEFT_OUT)}
_LAYOUTS: Final[dict[int, tuple[Layout, ...]]] = {
    SNAPSHOT: (
        (
            (
                *((f"{name}_epoch", INT32) for name in ("snapshot", "state", "leader")),
                *((name, INT64) for name in ("start_offset", "create_timestamp", "write_timestamp")),
                ("state_batches", _BATCHES),
            ),
            _COMPLETE,
        ),
        (
            (
                ("snapshot_epoch", UINT16),
                *((f"{name}_epoch", INT32) for name in ("state", "leader")),
                ("start_offset", INT64),
                ("state_batches", _BATCHES),
            ),
            {},
        ),
    ),
    UPDATE: (
        (
            (("snapshot_epoch", INT32), ("leader_epoch", INT32), ("start_offset", INT64), ("state_batches", _BATCHES)),
            _COMPLETE,
        ),
        (
            (("snapshot_epoch", UINT16), ("leader_epoch", INT32), ("start_offset", INT64), ("state_batches", _BATCHES)),
            {},
        ),
    ),
}
"""By type: the layout of Kafka 4.1 and later, and that of the preview in 4.0."""
