"""Records of `__transaction_state` (TransactionLogKey.json, TransactionLogValue.json; TransactionLog). Exact and slow.

Version 0 counts with 32-bit integers, version 1 (transaction.version 1 and up, KIP-890) is flexible: what it adds stands in
tagged fields. A null array is the state Empty's, or what the Complete states leave of their partitions.
"""

from typing import Final

from construct import Int8sb, Int16sb, Int32sb, Int64sb, Struct

from kafka_forensics.parsers.spec.flexible import COMPACT_STRING, SHORT_STRING, TAGGED_FIELDS, CompactArray, CountedArray

TRANSACTION_LOG_KEY: Final = Struct("version" / Int16sb, "transactional_id" / SHORT_STRING)
"""Key of every record; `version` 0 is the only type there is."""

_PARTITIONS_V0: Final = Struct("topic" / SHORT_STRING, "partition_ids" / CountedArray(Int32sb))
_PARTITIONS_V1: Final = Struct("topic" / COMPACT_STRING, "partition_ids" / CompactArray(Int32sb), "tagged_fields" / TAGGED_FIELDS)
_HEAD: Final = (
    "version" / Int16sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "transaction_timeout_ms" / Int32sb,
    "transaction_status" / Int8sb,
)
_TAIL: Final = ("transaction_last_update_timestamp_ms" / Int64sb, "transaction_start_timestamp_ms" / Int64sb)

TRANSACTION_LOG_VALUE_V0: Final = Struct(*_HEAD, "transaction_partitions" / CountedArray(_PARTITIONS_V0, nullable=True), *_TAIL)
TRANSACTION_LOG_VALUE_V1: Final = Struct(
    *_HEAD, "transaction_partitions" / CompactArray(_PARTITIONS_V1, nullable=True), *_TAIL, "tagged_fields" / TAGGED_FIELDS
)
TRANSACTION_LOG_VALUES: Final = (TRANSACTION_LOG_VALUE_V0, TRANSACTION_LOG_VALUE_V1)
"""Layout by version, which is the value's first field."""

TRANSACTION_LOG_TAGS: Final = {
    0: ("previous_producer_id", Int64sb),
    1: ("next_producer_id", Int64sb),
    2: ("client_transaction_version", Int16sb),
    3: ("next_producer_epoch", Int16sb),
}
"""Tagged fields of version 1 by tag: Kafka's name in snake case, and the layout of its bytes."""
