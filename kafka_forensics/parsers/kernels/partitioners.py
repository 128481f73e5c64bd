"""Hashes by which clients choose a record's partition, over the keys of some records of plain batches.

Java's producer uses murmur2 of the key (BuiltInPartitioner.partitionForKey), librdkafka and all built on it CRC-32
(`consistent`, `consistent_random`). Buffers are those of `records.readable`.
"""

from typing import TYPE_CHECKING, Final

from kafka_forensics.model.batches import BatchColumn, KeySampleColumn, RecordColumn
from kafka_forensics.model.constants import MIN_RECORD_SIZE, NO_TIMESTAMP
from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.parsers.kernels.crc import crc32
from kafka_forensics.parsers.kernels.records import OK, check_message, read_fields, read_varint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8] | memoryview
    Columns = NDArray[np.int64]

MOST_OF_A_BATCH: Final = 64
"""Records of a batch that are looked at, at most: its first ones."""
_NO_TIMESTAMP: Final = NO_TIMESTAMP
_LEAST_RECORD: Final = MIN_RECORD_SIZE

_SEED: Final = 0x9747B28C
_ODD: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_FAR: Final = 1 << 62
"""Offsets and times beyond are no broker's; sums of two below cannot overflow."""

_OFFSET: Final = int(KeySampleColumn.OFFSET)
_TIMESTAMP: Final = int(KeySampleColumn.TIMESTAMP)
_LENGTH: Final = int(KeySampleColumn.KEY_LENGTH)
_MURMUR2: Final = int(KeySampleColumn.MURMUR2)
_CRC32: Final = int(KeySampleColumn.CRC32)
_KEY_POSITION: Final = int(RecordColumn.KEY_POSITION)
_KEY_LENGTH: Final = int(RecordColumn.KEY_LENGTH)
_TIMESTAMP_DELTA: Final = int(RecordColumn.TIMESTAMP_DELTA)
_OFFSET_DELTA: Final = int(RecordColumn.OFFSET_DELTA)
_POSITION: Final = int(BatchColumn.POSITION)
_SIZE: Final = int(BatchColumn.SIZE_IN_BYTES)
_BASE_OFFSET: Final = int(BatchColumn.BASE_OFFSET)
_BASE_TIMESTAMP: Final = int(BatchColumn.BASE_TIMESTAMP)
_MAX_TIMESTAMP: Final = int(BatchColumn.MAX_TIMESTAMP)
_MAGIC: Final = int(BatchColumn.MAGIC)
_ATTRIBUTES: Final = int(BatchColumn.ATTRIBUTES)
_COUNT: Final = int(BatchColumn.RECORDS_COUNT)
_STORED: Final = int(BatchColumn.CRC)
_COMPUTED: Final = int(BatchColumn.CRC_COMPUTED)


@kernel
def murmur2(buffer: "Buffer", start: int, end: int) -> int:
    """Kafka's murmur2 of `buffer[start:end]`, unsigned (Utils.murmur2)."""
    length = end - start
    digest = (_SEED ^ length) & _MASK
    at = start
    while end - at >= 4:
        word = int(buffer[at]) | int(buffer[at + 1]) << 8 | int(buffer[at + 2]) << 16 | int(buffer[at + 3]) << 24
        word = (word * _ODD) & _MASK
        word ^= word >> 24
        word = (word * _ODD) & _MASK
        digest = ((digest * _ODD) & _MASK) ^ word
        at += 4
    if at < end:
        shift = 0
        while at < end:
            digest ^= int(buffer[at]) << shift
            shift += 8
            at += 1
        digest = (digest * _ODD) & _MASK
    digest ^= digest >> 13
    digest = (digest * _ODD) & _MASK
    return digest ^ (digest >> 15)


@kernel
def sample_one(buffer: "Buffer", start: int, length: int, offset: int, timestamp: int, out: "Columns", row: int) -> None:
    """Write the key of `length` bytes (-1: null) at `start` to column `row` of a (KEY_SAMPLE_COLUMNS, n) matrix."""
    out[_OFFSET, row] = offset
    out[_TIMESTAMP, row] = timestamp
    out[_LENGTH, row] = length
    out[_MURMUR2, row] = 0 if length < 0 else murmur2(buffer, start, start + length)
    out[_CRC32, row] = 0 if length < 0 else crc32(buffer, start, start + length, 0)


@kernel
def sample_payload(
    buffer: "Buffer", start: int, end: int, batch: "Columns", column: int, every: int, scratch: "Columns", out: "Columns", row: int
) -> int:
    """Write the keys of the first records in the payload `buffer[start:end]` from column `row` of `out` on; the next free column.

    `batch[:, column]` is the magic 2 batch they are of, `scratch` a (RECORD_COLUMNS, 1) matrix. One record is looked at, and one
    more for `every` so many that the batch holds. Stops at a record that is not right.
    """
    count = int(batch[_COUNT, column])
    base_offset = int(batch[_BASE_OFFSET, column])
    base_timestamp = int(batch[_BASE_TIMESTAMP, column])
    if base_offset < 0 or base_offset > _FAR:
        return row
    at = start
    count = min(count, (end - start) // _LEAST_RECORD)
    for _ in range(min(count, 1 + min(count // every, MOST_OF_A_BATCH - 1))):
        length, body = read_varint(buffer, at, end)
        if body < 0 or length < 0 or length > end - body:
            return row
        code, _ = read_fields(buffer, body, body + length, scratch, 0)
        if code != OK:
            return row
        timestamp = int(batch[_MAX_TIMESTAMP, column])
        if int(batch[_ATTRIBUTES, column]) & 8 == 0:
            delta = int(scratch[_TIMESTAMP_DELTA, 0])
            near = -_FAR < base_timestamp < _FAR and -_FAR < delta < _FAR
            timestamp = base_timestamp + delta if near else _NO_TIMESTAMP
        offset = base_offset + int(scratch[_OFFSET_DELTA, 0])
        sample_one(buffer, int(scratch[_KEY_POSITION, 0]), int(scratch[_KEY_LENGTH, 0]), offset, timestamp, out, row)
        row += 1
        at = body + length
    return row


@kernel
def is_sampled(position: int, size: int, grain: int) -> bool:
    """Whether a batch of `size` bytes at byte `position` of its file is one that is looked at: it holds a multiple of `grain`."""
    return (grain - position % grain) % grain < size


def room_for(columns: "Columns", every: int) -> int:
    """Records that are looked at in so many batches, at most: one of each, and one for `every` so many of seven bytes."""
    return int(columns.shape[1] + columns[_SIZE].sum() // (MIN_RECORD_SIZE * every))


@kernel
def sample_batches(
    buffer: "Buffer",
    buffer_position: int,
    columns: "Columns",
    first: int,
    end: int,
    grain: int,
    every: int,
    scratch: "Columns",
    out: "Columns",
) -> int:
    """Write the keys of some records of the plain batches in rows `[first, end)`, whose bytes lie in `buffer`: how many it wrote.

    `buffer[0]` is byte `buffer_position` of the file. Compressed and control batches, and those with a wrong CRC, are passed over.
    `every` is as in `sample_payload`; `out` has room for what the batches promise, see `room_for`.
    """
    written = 0
    for row in range(first, end):
        position, size = int(columns[_POSITION, row]), int(columns[_SIZE, row])
        if columns[_STORED, row] != columns[_COMPUTED, row] or not is_sampled(position, size, grain):
            continue
        start = position - buffer_position
        magic, attributes = int(columns[_MAGIC, row]), int(columns[_ATTRIBUTES, row])
        if attributes & 7 != 0 or (magic >= 2 and attributes & 0x20 != 0):
            continue
        if magic >= 2:
            written = sample_payload(buffer, start + 61, start + size, columns, row, every, scratch, out, written)
        elif check_message(buffer, start, size, scratch, 0) == OK:
            offset, timestamp = int(columns[_BASE_OFFSET, row]), int(columns[_MAX_TIMESTAMP, row])
            sample_one(buffer, int(scratch[_KEY_POSITION, 0]), int(scratch[_KEY_LENGTH, 0]), offset, timestamp, out, written)
            written += 1
    return written
