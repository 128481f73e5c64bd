"""Fast readers and writers for records of `__remote_log_metadata` (KIP-405), in the frame of `__cluster_metadata`."""

from typing import Final

from msgspec.structs import replace

from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.remote_log import RemotePartitionDeleteState, RemoteSegment, RemoteSegmentState
from kafka_forensics.parsers.flexible_fields import (
    INT8,
    INT32,
    INT64,
    NULLABLE_BASE64,
    STRING,
    Layout,
    Tags,
    array,
    flag,
    structure,
    uuid,
    write_message,
)
from kafka_forensics.parsers.internal_topics.metadata_log import decode_framed, write_frame

SEGMENT: Final = 0
SEGMENT_UPDATE: Final = 1
PARTITION_DELETE: Final = 2
SEGMENT_SNAPSHOT: Final = 3
REMOTE_LOG_RECORDS: Final = {
    SEGMENT: "RemoteLogSegmentMetadataRecord",
    SEGMENT_UPDATE: "RemoteLogSegmentMetadataUpdateRecord",
    PARTITION_DELETE: "RemotePartitionDeleteMetadataRecord",
    SEGMENT_SNAPSHOT: "RemoteLogSegmentMetadataSnapshotRecord",
}
"""apiKey → Kafka's name of the record type."""


def decode_remote_log_record(value: bytes | None) -> MetadataRecord:
    """The record in a value of `__remote_log_metadata`. Accepts any bytes.

    `problem`, without fields, is as from `metadata_log.decode_framed`, or what RemoteLogSegmentMetadata refuses: `state` (unknown),
    `offsets` (a negative start, or an end before it), `epochs` (none).
    """
    record = decode_framed(value, REMOTE_LOG_RECORDS, _LAYOUTS)
    problem = None if record.fields is None else _refusal(record.fields)
    return record if problem is None else replace(record, fields=None, problem=problem)


def write_remote_log_record(api_key: int, fields: Json) -> bytes:
    """The value of a record; missing fields are 0, empty or null."""
    return write_frame(api_key, 0) + write_message(_LAYOUTS[api_key][0], fields)


def write_copied_segment(topic: str, topic_id: str, partition: int, segment: RemoteSegment) -> list[bytes]:
    """The values of the records by which brokers learn that a segment was copied: its copy started, and finished."""
    event: Json = {
        "remote_log_segment_id": {
            "topic_id_partition": {"name": topic, "id": topic_id, "partition": partition},
            "id": segment.segment_id,
        },
        "broker_id": segment.broker_id,
        "event_timestamp_ms": segment.event_timestamp_ms,
    }
    started: Json = {
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "segment_leader_epochs": [
            {"leader_epoch": entry.leader_epoch, "offset": entry.start_offset} for entry in segment.leader_epochs
        ],
        "segment_size_in_bytes": segment.size_in_bytes,
        "txn_index_empty": segment.txn_index_empty,
        "remote_log_segment_state": int(RemoteSegmentState.COPY_SEGMENT_STARTED),
    }
    finished: Json = {"remote_log_segment_state": int(RemoteSegmentState.COPY_SEGMENT_FINISHED)}
    return [write_remote_log_record(SEGMENT, event | started), write_remote_log_record(SEGMENT_UPDATE, event | finished)]


def _refusal(fields: Json) -> str | None:
    """Why Kafka's classes refuse these fields; None if they do not."""
    if "remote_partition_delete_state" in fields:
        return None if fields["remote_partition_delete_state"] in _PARTITION_STATES else "state"
    if fields["remote_log_segment_state"] not in _SEGMENT_STATES:
        return "state"
    if "start_offset" not in fields:
        return None
    if fields["start_offset"] < 0 or fields["end_offset"] < fields["start_offset"]:
        return "offsets"
    return None if fields["segment_leader_epochs"] else "epochs"


_SEGMENT_STATES: Final = frozenset(map(int, RemoteSegmentState))
_PARTITION_STATES: Final = frozenset(map(int, RemotePartitionDeleteState))
_TOPIC_ID_PARTITION: Final = structure(("name", STRING), ("id", uuid), ("partition", INT32))
_SEGMENT_ID: Final = ("remote_log_segment_id", structure(("topic_id_partition", _TOPIC_ID_PARTITION), ("id", uuid)))
_STATE: Final = ("remote_log_segment_state", INT8)
_EVENT: Final = (("broker_id", INT32), ("event_timestamp_ms", INT64))
_CUSTOM_METADATA: Final = ("custom_metadata", NULLABLE_BASE64)
_SEGMENT: Final = (
    *(("start_offset", INT64), ("end_offset", INT64), ("broker_id", INT32)),
    *(("max_timestamp_ms", INT64), ("event_timestamp_ms", INT64)),
    ("segment_leader_epochs", array(structure(("leader_epoch", INT32), ("offset", INT64)))),
    *(("segment_size_in_bytes", INT32), _CUSTOM_METADATA, _STATE),
)
_TXN_INDEX_EMPTY: Final[Tags] = {0: ("txn_index_empty", flag, False)}
_LAYOUTS: Final[dict[int, tuple[Layout, ...]]] = {
    SEGMENT: (((_SEGMENT_ID, *_SEGMENT), _TXN_INDEX_EMPTY),),
    SEGMENT_UPDATE: (((_SEGMENT_ID, *_EVENT, _CUSTOM_METADATA, _STATE), {}),),
    PARTITION_DELETE: (((("topic_id_partition", _TOPIC_ID_PARTITION), *_EVENT, ("remote_partition_delete_state", INT8)), {}),),
    SEGMENT_SNAPSHOT: (((("segment_id", uuid), *_SEGMENT), _TXN_INDEX_EMPTY),),
}
"""apiKey → layout by version; Kafka 4.4 has one version of each."""
