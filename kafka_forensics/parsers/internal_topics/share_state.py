"""Fast readers for records of `__share_group_state` and `__transaction_state`."""

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.model.coordinators import TRANSACTION_STATES, TransactionMetadata
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.flexible_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    LEFT_OUT,
    UINT16,
    FieldCursor,
    Layout,
    Malformed,
    Tags,
    array,
    structure,
    uuid_text,
)
from kafka_forensics.parsers.internal_topics.consumer_offsets import read_alternatives, write_newest

if TYPE_CHECKING:
    from kafka_forensics.model.findings import TopicPartition

SNAPSHOT: Final = 0
UPDATE: Final = 1
SHARE_RECORDS: Final = {SNAPSHOT: "ShareSnapshot", UPDATE: "ShareUpdate"}
"""Kafka's names by record type, the first field of a key."""


class ShareKey(NamedTuple):
    """The key of a record: a group, and a partition of a topic id."""

    record_type: int
    group: str
    topic_id: str
    partition: int


def read_share_key(key: bytes | None) -> ShareKey | str:
    """The key of a record, or the reason `key`; for an unknown type group and id are empty."""
    if key is None or len(key) < 2:
        return "key"
    record_type = int.from_bytes(key[:2], "big", signed=True)
    if record_type not in SHARE_RECORDS:
        return ShareKey(record_type, "", "", -1)
    cursor = FieldCursor(key, 2)
    try:
        return ShareKey(record_type, cursor.short_string(), uuid_text(cursor.take(16)), cursor.integer(4))
    except Malformed:
        return "key"


def read_share_value(record_type: int, value: bytes) -> Json | str:
    """The fields of a snapshot or an update, or a reason as from `consumer_offsets.read_group_value`."""
    return read_alternatives(_LAYOUTS.get(record_type, ()), value)


def write_share_value(record_type: int, fields: Json) -> bytes:
    """The value of a snapshot or an update; missing fields are 0 or empty."""
    return write_newest(_LAYOUTS[record_type], fields)


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
"""Record type → layout of Kafka 4.1 and later, and of the preview in 4.0."""


# Records of `__transaction_state` (TransactionLogKey.json, TransactionLogValue.json; TransactionLog).
#
# Version 1 (transaction.version 1 and later, KIP-890) is flexible. The array of partitions is null in the state Empty, and may be
# null in the Complete states.


_HEADER: Final = Struct(">qhib")
_TIMES: Final = Struct(">qq")
_INT32: Final = Struct(">i")
MAX_PARTITIONS: Final = 1 << 16
"""No transaction has more partitions."""
_TAG_SIZES: Final = {0: 8, 1: 8, 2: 2, 3: 2}
"""Size of each known tagged field."""
_REASONS: Final = {"truncated": "short", "length": "null", "text": "string"}
"""Reasons of `FieldCursor` with other names here."""


def parse_transaction_log_key(key: bytes | None) -> tuple[str | None, str | None]:
    """(transactional id, None), or (None, reason): `key_null`, `key_version`, `key_short`, `key_string`."""
    if key is None:
        return None, "key_null"
    if len(key) < 2:
        return None, "key_short"
    if key[:2] != b"\0\0":
        return None, "key_version"
    try:
        return FieldCursor(key, 2).short_string(), None
    except Malformed as fault:
        return None, f"key_{_REASONS[str(fault)]}"


def parse_transaction_log_value(value: bytes) -> tuple[TransactionMetadata | None, str | None]:
    """(metadata, None), or (None, reason): `version`, `short`, `null`, `string`, `varint`, `state`, `tag`, `partitions`.

    Bytes after the last field are ignored, as in Kafka's readers.
    """
    cursor = FieldCursor(value)
    try:
        version = cursor.integer(2)
        return (None, "version") if version not in (0, 1) else (_transaction(cursor, flexible=version == 1), None)
    except Malformed as fault:
        return None, _REASONS.get(str(fault), str(fault))


def _transaction(cursor: FieldCursor, *, flexible: bool) -> TransactionMetadata:
    producer_id, producer_epoch, timeout, status = _HEADER.unpack(cursor.take(_HEADER.size))
    partitions: list[TopicPartition] = []
    count = cursor.varint() - 1 if flexible else cursor.integer(4)
    for _ in range(count):  # a negative count is null
        topic = cursor.compact_string() if flexible else cursor.short_string()
        numbers = cursor.take(4 * (cursor.varint() - 1 if flexible else cursor.integer(4)))
        if len(partitions) + len(numbers) // 4 > MAX_PARTITIONS:
            raise Malformed("partitions")
        partitions += ((topic, number) for (number,) in _INT32.iter_unpack(numbers))
        if flexible:
            cursor.tagged_fields()
    updated, started = _TIMES.unpack(cursor.take(_TIMES.size))
    tagged = cursor.tagged_fields(_TAG_SIZES) if flexible else {}
    tags = {tag: int.from_bytes(data, "big", signed=True) for tag, data in tagged.items()}
    if not 0 <= status < len(TRANSACTION_STATES):
        raise Malformed("state")
    return TransactionMetadata(
        producer_id,
        producer_epoch,
        timeout,
        TRANSACTION_STATES[status],
        tuple(partitions),
        updated,
        started,
        tags.get(0, -1),
        tags.get(1, -1),
        tags.get(2, 0),
        tags.get(3, -1),
    )
