"""Hashes by which clients choose a record's partition, computed for the keys of a sample of records.

Java's producer uses murmur2 of the key (BuiltInPartitioner.partitionForKey), librdkafka and all built on it CRC-32
(`consistent`, `consistent_random`). Buffers are those of `records.readable`.
"""

from typing import TYPE_CHECKING, Final

from kafka_forensics.model.batches import KeySampleColumn
from kafka_forensics.model.constants import MIN_RECORD_SIZE, NO_TIMESTAMP
from kafka_forensics.parsers.kernels import batch_column, record_column
from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.parsers.kernels.crc import crc32
from kafka_forensics.parsers.kernels.records import OK, check_message, read_fields, read_varint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8] | memoryview
    Columns = NDArray[np.int64]

MAX_RECORDS_OF_BATCH: Final = 64
"""Most records of a batch that are sampled: its first ones."""
_SEED: Final = 0x9747B28C
_ODD: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_FAR: Final = 1 << 62
"""No broker writes larger offsets or times; the sum of two smaller ones cannot overflow."""

_OFFSET, _TIMESTAMP, _LENGTH, _MURMUR2, _CRC32 = map(int, KeySampleColumn)


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
def write_sample(buffer: "Buffer", record: "Columns", offset: int, timestamp: int, out: "Columns", row: int) -> None:
    """Write the key of `record`, a (RECORD_COLUMNS, 1) matrix, to column `row` of a (KEY_SAMPLE_COLUMNS, n) matrix."""
    start, length = int(record[record_column.KEY_POSITION, 0]), int(record[record_column.KEY_LENGTH, 0])
    out[_OFFSET, row] = offset
    out[_TIMESTAMP, row] = timestamp
    out[_LENGTH, row] = length
    out[_MURMUR2, row] = 0 if length < 0 else murmur2(buffer, start, start + length)
    out[_CRC32, row] = 0 if length < 0 else crc32(buffer, start, start + length, 0)


@kernel
def sample_payload(
    buffer: "Buffer",
    start: int,
    end: int,
    batch: "Columns",
    column: int,
    records_per_sample: int,
    scratch: "Columns",
    out: "Columns",
    row: int,
) -> int:
    """Write the keys of the first records in the payload `buffer[start:end]` from column `row` of `out` on; the next column.

    `batch[:, column]` is the magic 2 batch of the payload, `scratch` a (RECORD_COLUMNS, 1) matrix. The sample is one record, and
    one more for each `records_per_sample` records of the batch. Stops at an invalid record.
    """
    count = int(batch[batch_column.RECORDS_COUNT, column])
    base_offset = int(batch[batch_column.BASE_OFFSET, column])
    base_timestamp = int(batch[batch_column.BASE_TIMESTAMP, column])
    if base_offset < 0 or base_offset > _FAR:
        return row
    at = start
    count = min(count, (end - start) // MIN_RECORD_SIZE)
    for _ in range(min(count, 1 + min(count // records_per_sample, MAX_RECORDS_OF_BATCH - 1))):
        length, body = read_varint(buffer, at, end)
        if body < 0 or length < 0 or length > end - body:
            return row
        code, _ = read_fields(buffer, body, body + length, scratch, 0)
        if code != OK:
            return row
        timestamp = int(batch[batch_column.MAX_TIMESTAMP, column])
        if int(batch[batch_column.ATTRIBUTES, column]) & 8 == 0:
            delta = int(scratch[record_column.TIMESTAMP_DELTA, 0])
            near = -_FAR < base_timestamp < _FAR and -_FAR < delta < _FAR
            timestamp = base_timestamp + delta if near else NO_TIMESTAMP
        offset = base_offset + int(scratch[record_column.OFFSET_DELTA, 0])
        write_sample(buffer, scratch, offset, timestamp, out, row)
        row += 1
        at = body + length
    return row


@kernel
def is_sampled(position: int, size: int, interval: int) -> bool:
    """Whether a batch of `size` bytes at byte `position` of its file is sampled: a multiple of `interval` is inside it."""
    return (interval - position % interval) % interval < size


def max_samples(columns: "Columns", records_per_sample: int) -> int:
    """Most records that are sampled from these batches: one of each, and one for each `records_per_sample` records of minimal
    size."""
    return int(columns.shape[1] + columns[batch_column.SIZE_IN_BYTES].sum() // (MIN_RECORD_SIZE * records_per_sample))


@kernel
def sample_batches(
    buffer: "Buffer",
    buffer_position: int,
    columns: "Columns",
    first: int,
    end: int,
    interval: int,
    records_per_sample: int,
    scratch: "Columns",
    out: "Columns",
) -> int:
    """Write the keys of some records of the batches in rows `[first, end)`, whose bytes are in `buffer`; returns how many.

    `buffer[0]` is byte `buffer_position` of the file. Compressed batches, control batches and batches with a wrong CRC are skipped.
    `records_per_sample` is as in `sample_payload`; `out` has at least `max_samples` columns.
    """
    written = 0
    for row in range(first, end):
        position, size = int(columns[batch_column.POSITION, row]), int(columns[batch_column.SIZE_IN_BYTES, row])
        if columns[batch_column.CRC, row] != columns[batch_column.CRC_COMPUTED, row] or not is_sampled(position, size, interval):
            continue
        start = position - buffer_position
        magic, attributes = int(columns[batch_column.MAGIC, row]), int(columns[batch_column.ATTRIBUTES, row])
        if attributes & 7 != 0 or (magic >= 2 and attributes & 0x20 != 0):
            continue
        if magic >= 2:
            written = sample_payload(buffer, start + 61, start + size, columns, row, records_per_sample, scratch, out, written)
        elif check_message(buffer, start, size, scratch, 0) == OK:
            offset, timestamp = int(columns[batch_column.BASE_OFFSET, row]), int(columns[batch_column.MAX_TIMESTAMP, row])
            write_sample(buffer, scratch, offset, timestamp, out, written)
            written += 1
    return written
