"""Records of Kafka's internal topics as `dump` shows them: the named fields of key and value."""

from collections.abc import Callable
from typing import Final

from msgspec import to_builtins

from kafka_forensics.model.constants import (
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    delivery_state_name,
)
from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.model.coordinators import GROUP_METADATA_TYPE, OFFSET_COMMIT_TYPES, RECORD_TYPES
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.remote_log import RemotePartitionDeleteState, RemoteSegmentState
from kafka_forensics.parsers.internal_topics.consumer_offsets import (
    check_value,
    read_group_metadata,
    read_group_value,
    read_key,
    read_offset_commit,
)
from kafka_forensics.parsers.internal_topics.metadata_log import decode_metadata_record
from kafka_forensics.parsers.internal_topics.remote_log_metadata import decode_remote_log_record
from kafka_forensics.parsers.internal_topics.share_state import (
    SHARE_RECORDS,
    parse_transaction_log_key,
    parse_transaction_log_value,
    read_share_key,
    read_share_value,
)

Describe = Callable[[bytes | None, bytes | None, bool], Json]

_CONFIG: Final = "CONFIG_RECORD"
_TOPIC_RESOURCE: Final = 2
_SECRETS: Final = frozenset({"salt", "stored_key", "server_key"})
"""Fields of SCRAM credentials."""


def record_describer(topic: str | None) -> Describe | None:
    """The function that describes (key, value, payloads) of a topic's records; None for topics that are not internal.

    Its result has the type of the record as `record`, the fields of `key` and `value` (None for a tombstone), and a reason as
    `problem` if something cannot be read. Any bytes are accepted. Without `payloads`, values that may be secret or are a client's
    (values of broker configs, credentials, metadata of offsets) are left out.
    """
    return None if topic is None else _DESCRIBERS.get(topic)


def _metadata(_: bytes | None, value: bytes | None, payloads: bool) -> Json:
    record = decode_metadata_record(value)
    written = _framed(record)
    if record.fields is not None:
        fields = dict(record.fields)
        if record.name == _CONFIG and fields["resource_type"] != _TOPIC_RESOURCE and not payloads:
            del fields["value"]
        if not payloads:
            fields = {name: value for name, value in fields.items() if name not in _SECRETS}
        written["value"] = fields
    return written


def _framed(record: MetadataRecord) -> Json:
    """The frame of a record, and the reason why it has no fields."""
    written: Json = {"record": record.name}
    if record.api_key >= 0:
        written |= {"api_key": record.api_key, "version": record.version}
    return written if record.problem is None else written | {"problem": record.problem}


def _remote_log(_: bytes | None, value: bytes | None, payloads: bool) -> Json:
    record = decode_remote_log_record(value)
    written = _framed(record)
    if record.fields is None:
        return written
    states = {"remote_log_segment_state": RemoteSegmentState, "remote_partition_delete_state": RemotePartitionDeleteState}
    fields = {name: states[name](number).name if name in states else number for name, number in record.fields.items()}
    if not payloads:
        fields.pop("custom_metadata", None)
    return written | {"value": fields}


def _transaction(key: bytes | None, value: bytes | None, _: bool) -> Json:
    transactional_id, problem = parse_transaction_log_key(key)
    if problem is not None:
        return {"record": "TransactionLog", "problem": problem}
    fields: Json = {"record": "TransactionLog", "key": {"transactional_id": transactional_id}}
    if value is None:
        return fields | {"value": None}
    metadata, problem = parse_transaction_log_value(value)
    if metadata is None:
        return fields | {"problem": problem}
    return fields | {
        "value": to_builtins(metadata) | {"partitions": [f"{topic}-{partition}" for topic, partition in metadata.partitions]}
    }


def _group(key: bytes | None, value: bytes | None, payloads: bool) -> Json:
    read = read_key(key)
    if isinstance(read, str):
        return {"record": "UNKNOWN", "problem": read}
    if read.record_type not in RECORD_TYPES:
        return {"record": "UNKNOWN", "record_type": read.record_type, "problem": "kind"}
    named = {name: part for name, part in read._asdict().items() if part is not None}
    fields: Json = {"record": RECORD_TYPES[read.record_type], "key": named}
    if value is None:
        return fields | {"value": None}
    if read.record_type in OFFSET_COMMIT_TYPES:
        return fields | _offset_commit(value, payloads)
    if read.record_type == GROUP_METADATA_TYPE:
        group = read_group_metadata(value)
        return fields | ({"problem": group} if isinstance(group, str) else {"value": to_builtins(group)})
    return fields | _new_group(read.record_type, value, payloads)


def _offset_commit(value: bytes, payloads: bool) -> Json:
    commit = read_offset_commit(value)
    if isinstance(commit, str):
        return {"problem": commit}
    return {"value": {name: part for name, part in commit._asdict().items() if payloads or name != "metadata"}}


def _new_group(record_type: int, value: bytes, payloads: bool) -> Json:
    """The value of a record of a KIP-848 group."""
    group = read_group_value(record_type, value)
    if isinstance(group, str):
        problem = check_value(value) if group == "kind" else group
        return {} if problem is None else {"problem": problem}
    if not payloads:
        for protocol in (group.get("classic_member_metadata") or {}).get("supported_protocols", ()):
            del protocol["metadata"]
    return {"value": group}


def _share(key: bytes | None, value: bytes | None, _: bool) -> Json:
    read = read_share_key(key)
    if isinstance(read, str):
        return {"record": "UNKNOWN", "problem": read}
    if read.record_type not in SHARE_RECORDS:
        return {"record": "UNKNOWN", "record_type": read.record_type, "problem": "kind"}
    written: Json = {"record": SHARE_RECORDS[read.record_type], "key": read._asdict()}
    if value is None:
        return written | {"value": None}
    fields = read_share_value(read.record_type, value)
    if isinstance(fields, str):
        return written | {"problem": fields}
    for batch in fields["state_batches"]:
        batch["delivery_state"] = delivery_state_name(batch["delivery_state"])
    return written | {"value": fields}


_DESCRIBERS: Final[dict[str, Describe]] = {
    CLUSTER_METADATA_TOPIC: _metadata,
    TRANSACTION_STATE_TOPIC: _transaction,
    CONSUMER_OFFSETS_TOPIC: _group,
    REMOTE_LOG_METADATA_TOPIC: _remote_log,
    SHARE_GROUP_STATE_TOPIC: _share,
}
