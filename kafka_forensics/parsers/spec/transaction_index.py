"""`.txnindex`: aborted transactions of a segment (AbortedTxn.json), entries without a header."""

from typing import Final

from construct import Int16sb, Int64sb, Struct

from kafka_forensics.model.constants import TXN_INDEX_ENTRY_SIZE

ABORTED_TXN: Final = Struct(
    "version" / Int16sb,
    "producer_id" / Int64sb,
    "first_offset" / Int64sb,  # of the transaction's data, perhaps in an earlier segment
    "last_offset" / Int64sb,  # of the ABORT marker
    "last_stable_offset" / Int64sb,  # right after the abort
)
assert ABORTED_TXN.sizeof() == TXN_INDEX_ENTRY_SIZE

ABORTED_TXN_VERSION: Final = 0
