"""The index files of a segment and the `.snapshot` of producers, all numbers big-endian."""

from collections.abc import Iterable, Mapping
from typing import Final

from construct import ConstructError, Int16sb, Int32sb, Int32ub, Int64sb, Struct

from kafka_forensics.errors import FormatError
from kafka_forensics.model.constants import (
    INDEX_ENTRY_SIZE,
    PRODUCER_SNAPSHOT_ENTRY_SIZE,
    TIME_INDEX_ENTRY_SIZE,
    TXN_INDEX_ENTRY_SIZE,
)

# `.index` and `.timeindex`: entries without a file header.


OFFSET_INDEX_ENTRY: Final = Struct(
    "relative_offset" / Int32sb,  # last offset of the append - base offset of the segment
    "position" / Int32sb,  # first byte of the append in the .log
)
assert OFFSET_INDEX_ENTRY.sizeof() == INDEX_ENTRY_SIZE

TIME_INDEX_ENTRY: Final = Struct(
    "timestamp" / Int64sb,  # milliseconds, the largest so far
    "relative_offset" / Int32sb,  # of the record with this timestamp
)
assert TIME_INDEX_ENTRY.sizeof() == TIME_INDEX_ENTRY_SIZE


def build_entries(layout: Struct, entries: Iterable[Mapping[str, object]]) -> bytes:
    """The bytes of `entries`, mappings with every field of `layout`. Raises FormatError for a number that does not fit."""
    try:
        return b"".join(layout.build(dict(entry)) for entry in entries)
    except ConstructError as error:
        raise FormatError(f"an entry cannot be written: {error}") from error


# `.txnindex`: aborted transactions of a segment (AbortedTxn.json), entries without a file header.


ABORTED_TXN: Final = Struct(
    "version" / Int16sb,
    "producer_id" / Int64sb,
    "first_offset" / Int64sb,  # of the transaction's records, possibly in an earlier segment
    "last_offset" / Int64sb,  # of the ABORT marker
    "last_stable_offset" / Int64sb,  # after the abort
)
assert ABORTED_TXN.sizeof() == TXN_INDEX_ENTRY_SIZE


# `.snapshot`: state of every producer before an offset (ProducerSnapshot.json, version 1).


SNAPSHOT_HEADER: Final = Struct(
    "version" / Int16sb,
    "crc" / Int32ub,  # CRC-32C of everything after it
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
