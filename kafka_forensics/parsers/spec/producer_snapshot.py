"""`.snapshot`: state of every producer before an offset (ProducerSnapshot.json, version 1)."""

from typing import Final

from construct import Int16sb, Int32sb, Int32ub, Int64sb, Struct

from kafka_forensics.model.constants import PRODUCER_SNAPSHOT_ENTRY_SIZE

SNAPSHOT_HEADER: Final = Struct(
    "version" / Int16sb,
    "crc" / Int32ub,  # CRC-32C of everything behind it
    "count" / Int32sb,
)
SNAPSHOT_HEADER_SIZE: Final = 10
assert SNAPSHOT_HEADER.sizeof() == SNAPSHOT_HEADER_SIZE

SNAPSHOT_CRC_START: Final = 6
"""First byte under the CRC: that of `count`."""
SNAPSHOT_VERSION: Final = 1

PRODUCER_ENTRY: Final = Struct(
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "last_sequence" / Int32sb,
    "last_offset" / Int64sb,
    "offset_delta" / Int32sb,  # last sequence - first sequence of the last batch
    "timestamp" / Int64sb,
    "coordinator_epoch" / Int32sb,
    "current_txn_first_offset" / Int64sb,
)
assert PRODUCER_ENTRY.sizeof() == PRODUCER_SNAPSHOT_ENTRY_SIZE
