"""Whether two batches hold the same records, by their headers, digests, hashes or bytes."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafka_forensics.model.batches import BatchColumn, RecordColumn
from kafka_forensics.model.constants import COMPRESSION_MASK, TIMESTAMP_TYPE_MASK
from kafka_forensics.parsers.log import HELD_BYTES, DecodedBatch, HashedRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.int64]

_PRODUCER = (BatchColumn.PRODUCER_ID, BatchColumn.PRODUCER_EPOCH)
_REPEATED = (BatchColumn.BASE_TIMESTAMP, BatchColumn.MAX_TIMESTAMP, BatchColumn.RECORDS_COUNT, BatchColumn.SIZE_IN_BYTES)
_ENCODING = COMPRESSION_MASK | TIMESTAMP_TYPE_MASK


class BatchFacts(NamedTuple):
    """A batch with a right CRC: a column by BatchColumn, and the digest of its records' bytes; None if it cannot be compared."""

    row: "Row"
    digest: bytes | None


def have_same_records(left: BatchFacts, right: BatchFacts, *, common: bool) -> bool | None:
    """Whether two batches hold equal records (`common`: equal wherever both hold the offset); None if the facts do not decide.

    They are equal if digests and the headers that give them meaning are. They differ if headers differ for every record, or if both
    batches are whole and uncompressed with different digests, because equal records then have equal bytes.
    """
    a, b = left.row, right.row
    if any(a[column] != b[column] for column in _PRODUCER):
        return False
    old = bool(a[BatchColumn.MAGIC] < 2 or b[BatchColumn.MAGIC] < 2)
    if old and a[BatchColumn.MAGIC] != b[BatchColumn.MAGIC]:
        return None
    same_digest = None if left.digest is None or right.digest is None else left.digest == right.digest
    same_offset = bool(a[BatchColumn.BASE_OFFSET] == b[BatchColumn.BASE_OFFSET])
    same_encoding = bool((a[BatchColumn.ATTRIBUTES] ^ b[BatchColumn.ATTRIBUTES]) & _ENCODING == 0)
    same_base_timestamp = bool(a[BatchColumn.BASE_TIMESTAMP] == b[BatchColumn.BASE_TIMESTAMP])
    same_max_timestamp = bool(a[BatchColumn.MAX_TIMESTAMP] == b[BatchColumn.MAX_TIMESTAMP])
    if same_digest and same_offset and same_encoding and same_base_timestamp and same_max_timestamp:
        return True
    if common or not (_is_whole(a) and _is_whole(b)):
        return None
    if a[BatchColumn.RECORDS_COUNT] != b[BatchColumn.RECORDS_COUNT] or not same_max_timestamp or not same_offset:
        return False
    is_plain = not (a[BatchColumn.ATTRIBUTES] | b[BatchColumn.ATTRIBUTES]) & COMPRESSION_MASK
    return False if same_digest is False and is_plain and same_encoding and (same_base_timestamp or old) else None


def _is_whole(row: "Row") -> bool:
    """Whether there is a record for each offset: the log cleaner removed none."""
    return int(row[BatchColumn.RECORDS_COUNT]) == int(row[BatchColumn.LAST_OFFSET]) - int(row[BatchColumn.BASE_OFFSET]) + 1


def is_repeated(left: BatchFacts, right: BatchFacts) -> bool:
    """Whether a producer sent the same records in both batches, under any producer epoch."""
    same_header = all(left.row[column] == right.row[column] for column in _REPEATED)
    return same_header and left.digest is not None and left.digest == right.digest


def equal_common_hashes(left: HashedRecords, right: HashedRecords) -> bool | None:
    """Whether records at offsets that both batches hold have equal timestamps and hashes; None if not all records are hashed."""
    if left.unread.size or right.unread.size or not (left.offsets.size and right.offsets.size):
        return None
    _, ours, theirs = np.intersect1d(left.offsets, right.offsets, return_indices=True)
    same = all(
        np.array_equal(getattr(left, name)[ours], getattr(right, name)[theirs])
        for name in ("timestamps", "key_lengths", "value_lengths", "headers")
    )
    has_key, has_value = left.key_lengths[ours] >= 0, left.value_lengths[ours] >= 0
    same = same and np.array_equal(left.keys[ours][has_key], right.keys[theirs][has_key])
    return same and np.array_equal(left.values[ours][has_value], right.values[theirs][has_value])


def equal_common_records(left: DecodedBatch, right: DecodedBatch) -> bool:
    """Whether records at offsets that both batches hold have equal bytes, timestamps and producers.

    False proves no difference: it is also the answer for old formats, very large batches, and records that are encoded differently.
    Neither batch may have problems.
    """
    ours, theirs = left.header, right.header
    if ours is None or theirs is None or (ours.producer_id, ours.producer_epoch) != (theirs.producer_id, theirs.producer_epoch):
        return False
    if len(left.payload) >= HELD_BYTES or len(right.payload) >= HELD_BYTES:
        return False
    fewer, more = sorted((_record_bytes(left), _record_bytes(right)), key=len)
    return all(offset not in more or more[offset] == record for offset, record in fewer.items())


def _record_bytes(batch: DecodedBatch) -> dict[int, tuple[int, int, bytes]]:
    """Offset → (timestamp, key length, all bytes of the record from its key on)."""
    header = batch.header
    assert header is not None
    payload = bytes(batch.payload)
    is_log_append_time = header.timestamp_type == "LogAppendTime"
    records = {}
    for columns in batch.iter_columns():
        offsets = (columns[RecordColumn.OFFSET_DELTA] + header.base_offset).tolist()
        created = columns[RecordColumn.TIMESTAMP_DELTA] + header.base_timestamp
        timestamps = (np.full_like(created, header.max_timestamp) if is_log_append_time else created).tolist()
        ends = (columns[RecordColumn.POSITION] + columns[RecordColumn.SIZE_IN_BYTES]).tolist()
        keys, key_lengths = columns[RecordColumn.KEY_POSITION].tolist(), columns[RecordColumn.KEY_LENGTH].tolist()
        for offset, timestamp, key_length, key, end in zip(offsets, timestamps, key_lengths, keys, ends, strict=True):
            records[offset] = timestamp, key_length, payload[key:end]
    return records
