"""The 61-byte header of a magic 2 batch (DefaultRecordBatch), as one declaration."""

from typing import Final

from construct import Int8sb, Int16sb, Int32sb, Int32ub, Int64sb, Struct

from kafka_forensics.model.constants import RECORD_BATCH_OVERHEAD

RECORD_BATCH_HEADER: Final = Struct(
    "base_offset" / Int64sb,
    "batch_length" / Int32sb,
    "partition_leader_epoch" / Int32sb,
    "magic" / Int8sb,
    "crc" / Int32ub,
    "attributes" / Int16sb,
    "last_offset_delta" / Int32sb,
    "base_timestamp" / Int64sb,
    "max_timestamp" / Int64sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "base_sequence" / Int32sb,
    "records_count" / Int32sb,
)
"""What follows are `records_count` records, or one compressed stream of them, up to `12 + batch_length` bytes in all.

`crc` is CRC-32C over everything from `attributes` to the end of the batch, as stored.
"""
assert RECORD_BATCH_HEADER.sizeof() == RECORD_BATCH_OVERHEAD
