"""The files beside a `.log`: `.index`, `.timeindex`, `.txnindex` and `.snapshot` (OffsetIndex, TimeIndex, TransactionIndex,
ProducerStateManager).
"""

import struct
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import numpy as np

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import (
    INDEX_ENTRY_SIZE,
    INT64_MAX,
    PRODUCER_SNAPSHOT_ENTRY_SIZE,
    TIME_INDEX_ENTRY_SIZE,
    TXN_INDEX_ENTRY_SIZE,
)
from kafka_forensics.model.files import AbortedTxns, OffsetIndex, ProducerEntry, ProducerSnapshot, TimeIndex, TransactionIndex
from kafka_forensics.parsers.bounded import DamageList, read_index_entries
from kafka_forensics.storage.source import ByteFile

if TYPE_CHECKING:
    from numpy.typing import NDArray


_OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
assert _OFFSET_ENTRY.itemsize == INDEX_ENTRY_SIZE


def parse_offset_index(file: ByteFile, base_offset: int) -> OffsetIndex:
    """The entries of the `.index` of a segment with `base_offset` (not negative); their order is not checked.

    Offsets are absolute, at most 2^63 - 1; positions are bytes of the `.log`. A live index is preallocated, so zero entries at its
    end are counted but not returned: no real entry is (0, 0).
    """
    index = read_index_entries(file, _OFFSET_ENTRY)
    offsets = absolute_offsets(index.entries["relative_offset"], base_offset)
    return OffsetIndex(offsets, index.entries["position"].astype(np.int64), index.zero_tail_bytes, index.damage)


def absolute_offsets(relative_offsets: "NDArray[Any]", base_offset: int) -> "NDArray[np.int64]":
    """`base_offset` (0 to 2^63 - 1) plus each relative offset, as int64, at most 2^63 - 1."""
    assert 0 <= base_offset <= INT64_MAX
    if not relative_offsets.size:
        return np.empty(0, np.int64)
    return np.minimum(relative_offsets.astype(np.int64), INT64_MAX - base_offset) + base_offset


# `.snapshot`: the state of every producer before an offset (ProducerStateManager, ProducerSnapshot.json).


_HEADER: Final = struct.Struct(">hIi")
_CRC_POSITION: Final = 2
_CRC_START: Final = 6
_VERSION: Final = 1
_PRODUCER_ENTRY: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_txn_first_offset", ">i8"),
    ]
)
assert _PRODUCER_ENTRY.itemsize == PRODUCER_SNAPSHOT_ENTRY_SIZE

MAX_CHECKED_BYTES: Final = 1 << 30
"""A larger snapshot is not read to its end, and its CRC is not computed."""
MAX_DECODED_BYTES: Final = 32 << 20
"""About 700,000 producers; the CRC covers the rest, but it is not decoded."""
_WINDOW: Final = 1 << 20


def parse_producer_snapshot(file: ByteFile, offset: int) -> ProducerSnapshot:
    """The producers of the `.snapshot` at `offset`: every complete entry, whatever the declared count.

    Damage `PRODUCER_SNAPSHOT_CORRUPT`, reasons: `short` (header or declared entries missing), `version` (not 1; read as version 1),
    `crc`, `count` (smaller than the entries present, or negative). With a cut header `version`, `crc` and `crc_computed` are -1. A
    file of ten bytes is a valid snapshot without producers.
    """
    size = file.size_in_bytes
    damage = DamageList("PRODUCER_SNAPSHOT_CORRUPT")
    header = file.read_at(0, _HEADER.size)
    if len(header) < _HEADER.size:
        damage.add(0, len(header), "short", declared=-1, present=0)
        return ProducerSnapshot(offset, -1, -1, -1, [], damage.rows())
    version, crc, count = _HEADER.unpack(header)
    if version != _VERSION:
        damage.add(0, _CRC_POSITION, "version", version=version)
    body, crc_computed = _read_body(file, header, size)
    if crc_computed not in (-1, crc):
        damage.add(_CRC_POSITION, _CRC_START - _CRC_POSITION, "crc", stored=crc, computed=crc_computed)
    present, trailing_bytes = divmod(size - _HEADER.size, _PRODUCER_ENTRY.itemsize)
    if count > present:
        damage.add(size - trailing_bytes, trailing_bytes, "short", declared=count, present=present)
    elif count < present or trailing_bytes:
        damage.add(_CRC_START, _HEADER.size - _CRC_START, "count", declared=count, present=present, trailing_bytes=trailing_bytes)
    entries = [ProducerEntry(*row) for row in np.frombuffer(body, _PRODUCER_ENTRY, len(body) // _PRODUCER_ENTRY.itemsize).tolist()]
    rows = damage.rows()
    if len(entries) < present:
        position = _HEADER.size + len(entries) * _PRODUCER_ENTRY.itemsize
        detail: dict[str, int | str | bool | list[int]] = {"reason": "snapshot_too_large", "crc_checked": crc_computed != -1}
        rows.append(Damage("BUDGET_EXCEEDED", position, size - position, detail=detail))
    return ProducerSnapshot(offset, version, crc, crc_computed, entries, rows)


def _read_body(file: ByteFile, header: bytes, size: int) -> tuple[bytes, int]:
    """The entries' bytes up to the limit, and the CRC-32C from `count` to the end, -1 if the file is too large."""
    crc = google_crc32c.value(header[_CRC_START:])
    parts = []
    for position in range(_HEADER.size, size if size <= MAX_CHECKED_BYTES else MAX_DECODED_BYTES, _WINDOW):
        window = file.read_at(position, min(_WINDOW, size - position))
        crc = google_crc32c.extend(crc, window)
        if position < MAX_DECODED_BYTES:
            parts.append(window)
    return b"".join(parts), crc if size <= MAX_CHECKED_BYTES else -1


# `.timeindex`: the largest timestamp so far and its offset (TimeIndex).


_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
assert _TIME_ENTRY.itemsize == TIME_INDEX_ENTRY_SIZE


def parse_time_index(file: ByteFile, base_offset: int) -> TimeIndex:
    """The entries of the `.timeindex` of a segment with `base_offset` (not negative); their order is not checked.

    Timestamps are milliseconds, offsets absolute and at most 2^63 - 1. Zero entries at the end are preallocation.
    """
    index = read_index_entries(file, _TIME_ENTRY)
    offsets = absolute_offsets(index.entries["relative_offset"], base_offset)
    return TimeIndex(index.entries["timestamp"].astype(np.int64), offsets, index.zero_tail_bytes, index.damage)


# `.txnindex`: the aborted transactions with a marker in the segment (TransactionIndex, AbortedTxn.json).


_TRANSACTION_ENTRY: Final = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first_offset", ">i8"), ("last_offset", ">i8"), ("last_stable_offset", ">i8")]
)
assert _TRANSACTION_ENTRY.itemsize == TXN_INDEX_ENTRY_SIZE

MAX_TRANSACTION_INDEX_BYTES: Final = 32 << 20
"""Close to a million entries; the rest is `BUDGET_EXCEEDED`."""


def parse_transaction_index(file: ByteFile) -> TransactionIndex:
    """Every whole entry of a `.txnindex`, in file order.

    Damage `INDEX_MISMATCH`: `version` for an entry that is not of version 0 (it is read as version 0), `partial_entry` for trailing
    bytes, `zero_tail` for zero entries at the end, which are not returned: Kafka does not preallocate this file, and no transaction
    begins at its own marker, so these bytes are lost.
    """
    index = read_index_entries(file, _TRANSACTION_ENTRY, MAX_TRANSACTION_INDEX_BYTES)
    damage = DamageList("INDEX_MISMATCH")
    count = len(index.entries)
    positions = np.arange(0, count * TXN_INDEX_ENTRY_SIZE, TXN_INDEX_ENTRY_SIZE)
    strange = np.flatnonzero(index.entries["version"])
    for version, position in zip(index.entries["version"][strange].tolist(), positions[strange].tolist(), strict=True):
        damage.add(position, TXN_INDEX_ENTRY_SIZE, "version", version=version)
    if index.zero_tail_bytes:
        damage.add(count * TXN_INDEX_ENTRY_SIZE, index.zero_tail_bytes, "zero_tail")
    return TransactionIndex(AbortedTxns(index.entries, positions), damage.rows() + index.damage)
