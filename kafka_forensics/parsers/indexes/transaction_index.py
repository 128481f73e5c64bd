"""`.txnindex`: the aborted transactions whose markers lie in a segment (TransactionIndex, AbortedTxn.json)."""

from typing import Final

import numpy as np

from kafka_forensics.model.constants import TXN_INDEX_ENTRY_SIZE
from kafka_forensics.model.files import AbortedTxns, TransactionIndex
from kafka_forensics.parsers.bounded import DamageList, read_index_entries
from kafka_forensics.storage.source import ByteFile

_ENTRY: Final = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first_offset", ">i8"), ("last_offset", ">i8"), ("last_stable_offset", ">i8")]
)
assert _ENTRY.itemsize == TXN_INDEX_ENTRY_SIZE

MAX_TRANSACTION_INDEX_BYTES: Final = 32 << 20
"""Close to a million entries; the rest is `BUDGET_EXCEEDED`."""


def parse_transaction_index(file: ByteFile) -> TransactionIndex:
    """Every whole entry of a `.txnindex`, in file order.

    Damage `INDEX_MISMATCH`: `version` for an entry that is not of version 0 (it is kept, its numbers read as version 0's),
    `partial_entry` for trailing bytes, `zero_tail` for entries at the end that are all zeros: Kafka never preallocates this file,
    and no transaction begins at its own marker, so they are lost bytes and not handed out.
    """
    index = read_index_entries(file, _ENTRY, MAX_TRANSACTION_INDEX_BYTES)
    damage = DamageList("INDEX_MISMATCH")
    count = len(index.entries)
    positions = np.arange(0, count * TXN_INDEX_ENTRY_SIZE, TXN_INDEX_ENTRY_SIZE)
    strange = np.flatnonzero(index.entries["version"])
    for version, position in zip(index.entries["version"][strange].tolist(), positions[strange].tolist(), strict=True):
        damage.add(position, TXN_INDEX_ENTRY_SIZE, "version", version=version)
    if index.zero_tail_bytes:
        damage.add(count * TXN_INDEX_ENTRY_SIZE, index.zero_tail_bytes, "zero_tail")
    return TransactionIndex(AbortedTxns(index.entries, positions), damage.rows() + index.damage)
