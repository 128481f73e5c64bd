"""Writes records of `__consumer_offsets` and `__share_group_state` as group and share coordinators do."""

from typing import Any

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.layouts import consumer_offsets
from tests.support.layouts.flexible import Array, NullableStruct, Tag, TextField
from tests.support.segments import BASE_TIMESTAMP, marker

TOPIC_ID_BYTES = bytes(range(16))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def commit_key(group: str = "billing", topic: str = "t", partition: int = 0, *, record_type: int = 1) -> bytes:
    fields = {"record_type": record_type, "group": group, "topic": topic, "partition": partition}
    key: bytes = consumer_offsets.key_layout(record_type).build(fields)
    return key


def group_key(group: str = "billing", record_type: int = 2, member_id: str | None = None) -> bytes:
    """The key of a record about a group, or about one of its members."""
    key: bytes = consumer_offsets.key_layout(record_type).build(
        {"record_type": record_type, "group": group, "member_id": member_id}
    )
    return key


def commit_value(
    offset: int, *, version: int = 3, timestamp: int = BASE_TIMESTAMP, topic_id: bytes | None = None, **given: Any
) -> bytes:
    fields = {
        "version": version,
        "offset": offset,
        "leader_epoch": -1,
        "metadata": "",
        "commit_timestamp": timestamp,
        "expire_timestamp": -1,
        "tagged_fields": {} if topic_id is None else {0: topic_id},
    }
    value: bytes = consumer_offsets.OFFSET_COMMIT_VALUES[version].build(fields | given)
    return value


def member(name: str = "m-1", **given: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "member_id": name,
        "group_instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 300_000,
        "session_timeout": 45_000,
        "subscription": b"subscription",
        "assignment": b"assigned",
        "tagged_fields": {},
    }
    return fields | given


def group_value(*members: dict[str, Any], version: int = 3, **given: Any) -> bytes:
    fields = {
        "version": version,
        "protocol_type": "consumer",
        "generation": 7,
        "protocol": "range" if members else None,
        "leader": None,
        "current_state_timestamp": BASE_TIMESTAMP,
        "members": list(members),
        "tagged_fields": {},
    }
    value: bytes = consumer_offsets.GROUP_METADATA_VALUES[version].build(fields | given)
    return value


def new_group_value(record_type: int, **given: Any) -> bytes:
    """The value of a record of the new group protocol (KIP-848); fields not passed are 0, empty or null."""
    layout = consumer_offsets.GROUP_VALUES[record_type]
    empty = {field.name: _empty_value(field) for field in layout.fields if not isinstance(field, Tag)}
    return consumer_offsets.write_value(layout, empty | given)


def _empty_value(field: Any) -> Any:
    if isinstance(field.subcon, Array):
        return []
    if isinstance(field.subcon, TextField):
        return None if field.subcon.nullable else ""
    return None if isinstance(field.subcon, NullableStruct) else 0


def share_key(group: str = "workers", topic_id: str = TOPIC_ID_TEXT, partition: int = 0, *, record_type: int = 0) -> bytes:
    fields = {"record_type": record_type, "group": group, "topic_id": topic_id, "partition": partition}
    key: bytes = consumer_offsets.SHARE_STATE_KEY.build(fields)
    return key


def share_value(start_offset: int, *batches: tuple[int, int, int, int], record_type: int = 0, **given: Any) -> bytes:
    """The value of a share snapshot or share update; batches are (first offset, last offset, delivery state, delivery count)."""
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    fields = {
        "snapshot_epoch": 1,
        "state_epoch": 2,
        "leader_epoch": 3,
        "start_offset": start_offset,
        "create_timestamp": BASE_TIMESTAMP,
        "write_timestamp": BASE_TIMESTAMP,
        "state_batches": [dict(zip(names, batch, strict=True)) for batch in batches],
    }
    return consumer_offsets.write_value(consumer_offsets.SHARE_STATE_VALUES[record_type], fields | given)


def coordinator_batches(*records: tuple[bytes | None, bytes | None], start: int = 0, **given: Any) -> bytes:
    """One batch per record, as a coordinator writes them."""
    given.setdefault("base_timestamp", BASE_TIMESTAMP)
    return b"".join(
        write_batch([RecordToWrite(key, value)], base_offset=start + number, **given) for number, (key, value) in enumerate(records)
    )


def transaction_batches(
    *records: tuple[bytes | None, bytes | None], start: int, producer_id: int = 7, commit: bool | None = None
) -> bytes:
    """One batch per record in a transaction; with `commit`, followed by its commit or abort marker."""
    data = coordinator_batches(
        *records, start=start, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    if commit is None:
        return data
    return data + marker(start + len(records), commit=commit, producer=producer_id)
