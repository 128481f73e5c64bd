"""What facts alone tell of two batches whose records are not at hand: whether they hold the same."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import COMPRESSION_MASK, TIMESTAMP_TYPE_MASK
from kafka_forensics.parsers.log import HashedRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.int64]

_WRITER = (BatchColumn.PRODUCER_ID, BatchColumn.PRODUCER_EPOCH)
_ENCODING = COMPRESSION_MASK | TIMESTAMP_TYPE_MASK


class BatchFacts(NamedTuple):
    """A batch with a right CRC: a column by BatchColumn, and the digest of its content, None if there is none to be compared."""

    row: "Row"
    digest: bytes | None


def hold_the_same(left: BatchFacts, right: BatchFacts, *, common: bool) -> bool | None:
    """Whether two batches hold equal records (`common`: equal wherever both hold the offset); None if facts cannot tell.

    Equal content behind headers that say the same of it is equal records. It is told to be different where headers say so of every
    record; and where both batches are whole and not compressed, for then equal records are equal bytes.
    """
    a, b = left.row, right.row
    if any(a[column] != b[column] for column in _WRITER):
        return False
    old = bool(a[BatchColumn.MAGIC] < 2 or b[BatchColumn.MAGIC] < 2)
    if old and a[BatchColumn.MAGIC] != b[BatchColumn.MAGIC]:
        return None
    alike = None if left.digest is None or right.digest is None else left.digest == right.digest
    in_one_place = bool(a[BatchColumn.BASE_OFFSET] == b[BatchColumn.BASE_OFFSET])
    encoded_alike = bool((a[BatchColumn.ATTRIBUTES] ^ b[BatchColumn.ATTRIBUTES]) & _ENCODING == 0)
    timed_alike = bool(a[BatchColumn.BASE_TIMESTAMP] == b[BatchColumn.BASE_TIMESTAMP])
    stamped_alike = bool(a[BatchColumn.MAX_TIMESTAMP] == b[BatchColumn.MAX_TIMESTAMP])
    if alike and in_one_place and encoded_alike and timed_alike and stamped_alike:
        return True
    if common or not (_is_whole(a) and _is_whole(b)):
        return None
    if a[BatchColumn.RECORDS_COUNT] != b[BatchColumn.RECORDS_COUNT] or not stamped_alike or not in_one_place:
        return False
    is_plain = not (a[BatchColumn.ATTRIBUTES] | b[BatchColumn.ATTRIBUTES]) & COMPRESSION_MASK
    return False if alike is False and is_plain and encoded_alike and (timed_alike or old) else None


def hold_the_same_as_written(left: BatchFacts, right: BatchFacts) -> bool:
    """Whether one batch is the other written again by its producer, whatever it calls itself: its records are sent as they were."""
    a, b = left.row, right.row
    columns = (BatchColumn.BASE_TIMESTAMP, BatchColumn.MAX_TIMESTAMP, BatchColumn.RECORDS_COUNT, BatchColumn.SIZE_IN_BYTES)
    alike = all(a[column] == b[column] for column in columns)
    return alike and left.digest is not None and left.digest == right.digest


def same_hashes_where_both(left: HashedRecords, right: HashedRecords) -> bool | None:
    """Whether every record whose offset both batches hold has the same time, key, value and headers by hashes; None if a batch is
    not known whole."""
    if left.unread.size or right.unread.size or not (left.offsets.size and right.offsets.size):
        return None
    _, ours, theirs = np.intersect1d(left.offsets, right.offsets, return_indices=True)
    alike = all(
        np.array_equal(getattr(left, name)[ours], getattr(right, name)[theirs])
        for name in ("timestamps", "key_lengths", "value_lengths", "headers")
    )
    keyed, valued = left.key_lengths[ours] >= 0, left.value_lengths[ours] >= 0
    alike = alike and np.array_equal(left.keys[ours][keyed], right.keys[theirs][keyed])
    return alike and np.array_equal(left.values[ours][valued], right.values[theirs][valued])


def _is_whole(row: "Row") -> bool:
    """Whether there is a record for each offset, so that no cleaner has been there."""
    return int(row[BatchColumn.RECORDS_COUNT]) == int(row[BatchColumn.LAST_OFFSET]) - int(row[BatchColumn.BASE_OFFSET]) + 1
