"""Records of `__remote_log_metadata` (KIP-405): four record types, in the frame of `__cluster_metadata`.

Exact and slow; `parsers.internal_topics.remote_log_metadata` is the fast twin.
"""

from base64 import b64decode, b64encode
from typing import Final

from construct import ExprAdapter, Flag, Int8sb, Int32sb, Int64sb, Struct

from kafka_forensics.model.json_objects import Json
from tests.support.layouts.flexible import COMPACT_STRING, UUID_TEXT, Array, Flexible, Sized, Tag
from tests.support.layouts.metadata_records import Message, write_framed

_CUSTOM_METADATA: Final = "custom_metadata" / ExprAdapter(
    Sized(nullable=True),
    lambda data, _: None if data is None else b64encode(data).decode(),
    lambda text, _: None if text is None else b64decode(text, validate=True),
)
_TOPIC_ID_PARTITION: Final = "topic_id_partition" / Flexible("name" / COMPACT_STRING, "id" / UUID_TEXT, "partition" / Int32sb)
_SEGMENT_ID: Final = "remote_log_segment_id" / Flexible(_TOPIC_ID_PARTITION, "id" / UUID_TEXT)
_STATE: Final = "remote_log_segment_state" / Int8sb
_EVENT_TIMESTAMP: Final = "event_timestamp_ms" / Int64sb
_SEGMENT: Final = (
    "start_offset" / Int64sb,
    "end_offset" / Int64sb,
    "broker_id" / Int32sb,
    "max_timestamp_ms" / Int64sb,
    _EVENT_TIMESTAMP,
    "segment_leader_epochs" / Array(Flexible("leader_epoch" / Int32sb, "offset" / Int64sb)),
    "segment_size_in_bytes" / Int32sb,
    _CUSTOM_METADATA,
    _STATE,
)
_TXN_INDEX_EMPTY: Final = Tag(0, "txn_index_empty", Flag, default=False)

REMOTE_LOG_MESSAGES: Final[dict[int, Message]] = {
    0: Message(Struct(_SEGMENT_ID, *_SEGMENT), (_TXN_INDEX_EMPTY,)),
    1: Message(Struct(_SEGMENT_ID, "broker_id" / Int32sb, _EVENT_TIMESTAMP, _CUSTOM_METADATA, _STATE)),
    2: Message(Struct(_TOPIC_ID_PARTITION, "broker_id" / Int32sb, _EVENT_TIMESTAMP, "remote_partition_delete_state" / Int8sb)),
    3: Message(Struct("segment_id" / UUID_TEXT, *_SEGMENT), (_TXN_INDEX_EMPTY,)),
}
"""apiKey → layout of version 0, the only version up to Kafka 4.4."""


def write_remote_log_record(api_key: int, fields: Json) -> bytes:
    """The value of a record; a tagged field that is missing or has its default is not written, as in Kafka."""
    return write_framed(REMOTE_LOG_MESSAGES[api_key], api_key, 0, fields)
