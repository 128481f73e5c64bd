"""Records of `__transaction_state` (TransactionLogKey.json, TransactionLogValue.json; TransactionLog). Exact and slow.

Version 0 has counts of 32 bits; version 1 (transaction.version 1 and later, KIP-890) is flexible, with the added fields tagged.
The array of partitions is null in the state Empty, and may be null in the Complete states.
"""

from typing import Final

from construct import Int8sb, Int16sb, Int32sb, Int64sb, Struct

from tests.support.layouts.flexible import COMPACT_STRING, SHORT_STRING, TAGGED_FIELDS, Array

TRANSACTION_LOG_KEY: Final = Struct("version" / Int16sb, "transactional_id" / SHORT_STRING)
"""Key of every record; `version` is always 0."""

_PARTITIONS_V0: Final = Struct("topic" / SHORT_STRING, "partition_ids" / Array(Int32sb, Int32sb))
_PARTITIONS_V1: Final = Struct("topic" / COMPACT_STRING, "partition_ids" / Array(Int32sb), "tagged_fields" / TAGGED_FIELDS)
_HEAD: Final = (
    "version" / Int16sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "transaction_timeout_ms" / Int32sb,
    "transaction_status" / Int8sb,
)
_TAIL: Final = ("transaction_last_update_timestamp_ms" / Int64sb, "transaction_start_timestamp_ms" / Int64sb)

TRANSACTION_LOG_VALUE_V0: Final = Struct(*_HEAD, "transaction_partitions" / Array(_PARTITIONS_V0, Int32sb, nullable=True), *_TAIL)
TRANSACTION_LOG_VALUE_V1: Final = Struct(
    *_HEAD, "transaction_partitions" / Array(_PARTITIONS_V1, nullable=True), *_TAIL, "tagged_fields" / TAGGED_FIELDS
)
TRANSACTION_LOG_VALUES: Final = (TRANSACTION_LOG_VALUE_V0, TRANSACTION_LOG_VALUE_V1)
"""Layout by version, the first field of the value."""

TRANSACTION_LOG_TAGS: Final = {
    0: ("previous_producer_id", Int64sb),
    1: ("next_producer_id", Int64sb),
    2: ("client_transaction_version", Int16sb),
    3: ("next_producer_epoch", Int16sb),
}
"""Tagged fields of version 1 by tag: Kafka's name in snake case, and the layout."""
