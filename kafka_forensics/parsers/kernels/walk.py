"""The header walk: batches of a window of a segment become columns, each proved by its CRC.

The walk stops at the first bytes that are not a valid batch and returns why; `damage` decides what is wrong there. Buffers are
writable uint8 arrays, `columns` is a (BATCH_COLUMNS, n) int64 matrix. Layouts: `spec.batch_header`, `spec.record_batch`.
"""

from typing import TYPE_CHECKING, Final

from kafka_forensics.model.constants import INT64_MAX, RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.kernels import batch_column
from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.parsers.kernels.crc import crc32, crc32c, identity, load_i16, load_i32, load_i64
from kafka_forensics.parsers.spec import batch_header

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8]
    Columns = NDArray[np.int64]

MORE: Final = 0
"""The window ends inside a batch or at its end: call again with bytes from where the walk stopped."""
FULL: Final = 1
"""The matrix has no room for another row."""
NOT_A_BATCH: Final = 2
"""The bytes where the walk stopped are not a valid batch."""
DONE: Final = 3
"""The walk reached the end of its range."""

_INT64_MIN: Final = -(2**63)


@kernel
def fill_row(
    buffer: "Buffer", start: int, file_position: int, computed: int, keys: "Columns", columns: "Columns", row: int
) -> None:
    """Write the row of the magic 2 batch whose 61-byte header begins at `buffer[start]`; `computed` is the CRC of its bytes.

    `keys` holds the two halves of the scan's hash key. The fields of control records are set to -1.
    """
    base_offset = load_i64(buffer, start)
    size = load_i32(buffer, start + batch_header.LENGTH_AT) + 12
    epoch = load_i32(buffer, start + batch_header.EPOCH_AT)
    magic = int(buffer[start + batch_header.MAGIC_AT])
    crc = load_i32(buffer, start + batch_header.CRC_AT) & 0xFFFFFFFF
    delta = load_i32(buffer, start + batch_header.DELTA_AT)
    if delta >= 0:
        last_offset = base_offset + delta if base_offset <= INT64_MAX - delta else INT64_MAX
    else:
        last_offset = base_offset + delta if base_offset >= _INT64_MIN - delta else _INT64_MIN
    columns[batch_column.POSITION, row] = file_position + start
    columns[batch_column.SIZE_IN_BYTES, row] = size
    columns[batch_column.BASE_OFFSET, row] = base_offset
    columns[batch_column.LAST_OFFSET, row] = last_offset
    columns[batch_column.LAST_OFFSET_DELTA, row] = delta
    columns[batch_column.PARTITION_LEADER_EPOCH, row] = epoch
    columns[batch_column.MAGIC, row] = magic
    columns[batch_column.CRC, row] = crc
    columns[batch_column.CRC_COMPUTED, row] = computed
    columns[batch_column.ATTRIBUTES, row] = load_i16(buffer, start + batch_header.ATTRIBUTES_AT)
    columns[batch_column.BASE_TIMESTAMP, row] = load_i64(buffer, start + batch_header.BASE_TIMESTAMP_AT)
    columns[batch_column.MAX_TIMESTAMP, row] = load_i64(buffer, start + batch_header.MAX_TIMESTAMP_AT)
    columns[batch_column.PRODUCER_ID, row] = load_i64(buffer, start + batch_header.PRODUCER_ID_AT)
    columns[batch_column.PRODUCER_EPOCH, row] = load_i16(buffer, start + batch_header.PRODUCER_EPOCH_AT)
    columns[batch_column.BASE_SEQUENCE, row] = load_i32(buffer, start + batch_header.BASE_SEQUENCE_AT)
    columns[batch_column.RECORDS_COUNT, row] = load_i32(buffer, start + batch_header.RECORDS_COUNT_AT)
    columns[batch_column.CONTROL_RECORD_TYPE, row] = -1
    columns[batch_column.COORDINATOR_EPOCH, row] = -1
    place = (epoch & 0xFFFFFFFF) * 2147483648 + (size & 0x7FFFFFFF)
    checks = (crc & 0x7FFFFFFF) * 4294967296 + computed
    kind = last_offset ^ ((magic & 0x7F) * 72057594037927936) ^ ((crc >> 31) * 36028797018963968)
    high, low = identity(base_offset, kind, place, checks, keys[0, 0], keys[0, 1])
    columns[batch_column.HASH_HIGH, row] = high
    columns[batch_column.HASH_LOW, row] = low


@kernel
def fill_legacy_row(
    buffer: "Buffer", start: int, file_position: int, computed: int, keys: "Columns", columns: "Columns", row: int
) -> None:
    """Write the row of the magic 0 or 1 entry at `buffer[start]`; of a compressed wrapper both offsets are the wrapper's."""
    offset = load_i64(buffer, start)
    size = load_i32(buffer, start + 8) + 12
    crc = load_i32(buffer, start + 12) & 0xFFFFFFFF
    magic = int(buffer[start + 16])
    attributes = int(buffer[start + 17])
    timestamp = load_i64(buffer, start + 18) if magic == 1 else -1
    columns[batch_column.POSITION, row] = file_position + start
    columns[batch_column.SIZE_IN_BYTES, row] = size
    columns[batch_column.BASE_OFFSET, row] = offset
    columns[batch_column.LAST_OFFSET, row] = offset
    columns[batch_column.LAST_OFFSET_DELTA, row] = 0
    columns[batch_column.PARTITION_LEADER_EPOCH, row] = -1
    columns[batch_column.MAGIC, row] = magic
    columns[batch_column.CRC, row] = crc
    columns[batch_column.CRC_COMPUTED, row] = computed
    columns[batch_column.ATTRIBUTES, row] = attributes
    columns[batch_column.BASE_TIMESTAMP, row] = timestamp
    columns[batch_column.MAX_TIMESTAMP, row] = timestamp
    columns[batch_column.PRODUCER_ID, row] = -1
    columns[batch_column.PRODUCER_EPOCH, row] = -1
    columns[batch_column.BASE_SEQUENCE, row] = -1
    columns[batch_column.RECORDS_COUNT, row] = 1 if attributes & 7 == 0 else -1
    columns[batch_column.CONTROL_RECORD_TYPE, row] = -1
    columns[batch_column.COORDINATOR_EPOCH, row] = -1
    checks = (crc & 0x7FFFFFFF) * 4294967296 + computed
    kind = offset ^ (magic * 72057594037927936) ^ ((crc >> 31) * 36028797018963968)
    high, low = identity(offset, kind, size, checks, keys[0, 0], keys[0, 1])
    columns[batch_column.HASH_HIGH, row] = high
    columns[batch_column.HASH_LOW, row] = low


@kernel
def skip_varint(buffer: "Buffer", position: int, end: int) -> int:
    """Position after the varint at `position`, or -1 if it does not end within ten bytes and before `end`."""
    for step in range(10):
        if position + step >= end:
            return -1
        if int(buffer[position + step]) < 128:
            return position + step + 1
    return -1


@kernel
def small_varint(buffer: "Buffer", position: int, end: int) -> int:
    """Value of a zigzag varint of one or two bytes at `position`, or -1 if it is longer, negative or cut."""
    if position >= end:
        return -1
    first = int(buffer[position])
    raw = first & 0x7F
    if first >= 128:
        if position + 1 >= end or int(buffer[position + 1]) >= 128:
            return -1
        raw |= int(buffer[position + 1]) << 7
    if raw & 1:
        return -1
    return raw >> 1


@kernel
def fill_control(buffer: "Buffer", start: int, end: int, columns: "Columns", row: int) -> None:
    """Read type and coordinator epoch of the first record of an uncompressed control batch in `buffer[start:end]`.

    A field stays -1 where the record is missing or is not a control record (see `parse_control_record`).
    """
    position = skip_varint(buffer, start + RECORD_BATCH_OVERHEAD, end)
    if position < 0:
        return
    position = skip_varint(buffer, position + 1, end)
    if position < 0:
        return
    position = skip_varint(buffer, position, end)
    if position < 0:
        return
    key_length = small_varint(buffer, position, end)
    position = skip_varint(buffer, position, end)
    if position < 0 or key_length < 4 or position + key_length > end:
        return
    if load_i16(buffer, position) < 0:
        return
    control_type = load_i16(buffer, position + 2)
    columns[batch_column.CONTROL_RECORD_TYPE, row] = control_type
    position += key_length
    value_length = small_varint(buffer, position, end)
    position = skip_varint(buffer, position, end)
    if position < 0 or value_length < 6 or position + value_length > end:
        return
    if control_type == 0 or control_type == 1:
        columns[batch_column.COORDINATOR_EPOCH, row] = load_i32(buffer, position + 2)


@kernel
def has_right_crc_at(buffer: "Buffer", start: int, size: int) -> bool:
    """Whether the `size` bytes at `start` are a batch with the right CRC, by the rules of its magic byte."""
    magic = int(buffer[start + batch_header.MAGIC_AT])
    if magic == 0 or magic == 1:
        if size < 26 + 8 * magic:
            return False
        return crc32(buffer, start + 16, start + size, 0) == load_i32(buffer, start + 12) & 0xFFFFFFFF
    if size < RECORD_BATCH_OVERHEAD:
        return False
    return (
        crc32c(buffer, start + batch_header.ATTRIBUTES_AT, start + size, 0)
        == load_i32(buffer, start + batch_header.CRC_AT) & 0xFFFFFFFF
    )


@kernel
def walk(
    buffer: "Buffer",
    start: int,
    length: int,
    file_position: int,
    end_position: int,
    file_size: int,
    keys: "Columns",
    columns: "Columns",
    row: int,
) -> tuple[int, int, int, int]:
    """Write the batches of `buffer[start:length]` to rows from `row` on, until one begins at or after `end_position`.

    `buffer[0]` is byte `file_position` of a file of `file_size` bytes. Returns (where it stopped, next free row, why, bytes
    needed from there for MORE). A batch with a wrong CRC becomes a row if its length is right: if the file ends with the batch, or
    a batch with the right CRC follows. Anything else is NOT_A_BATCH.
    """
    rows = columns.shape[1]
    while True:
        position = file_position + start
        if position >= end_position:
            return start, row, DONE, 0
        if row >= rows:
            return start, row, FULL, 0
        if position + 17 > file_size:
            return start, row, NOT_A_BATCH, 0
        if start + RECORD_BATCH_OVERHEAD > length and position + RECORD_BATCH_OVERHEAD <= file_size:
            return start, row, MORE, RECORD_BATCH_OVERHEAD
        if start + 17 > length:
            return start, row, MORE, 17
        size = load_i32(buffer, start + batch_header.LENGTH_AT) + 12
        magic = int(buffer[start + batch_header.MAGIC_AT])
        minimum = 61 if magic >= 2 else 26 + 8 * magic
        if size < minimum or position + size > file_size or (magic > 2):
            return start, row, NOT_A_BATCH, 0
        if start + size > length:
            return start, row, MORE, size
        legacy = magic < 2
        if legacy:
            computed = crc32(buffer, start + 16, start + size, 0)
            good = computed == load_i32(buffer, start + 12) & 0xFFFFFFFF
        else:
            computed = crc32c(buffer, start + batch_header.ATTRIBUTES_AT, start + size, 0)
            good = computed == load_i32(buffer, start + batch_header.CRC_AT) & 0xFFFFFFFF
        if not good:
            if legacy:
                return start, row, NOT_A_BATCH, 0
            follows = length_is_right(buffer, start + size, length, position + size, file_size)
            if follows > 0:
                return start, row, MORE, size + follows
            if follows < 0:
                return start, row, NOT_A_BATCH, 0
        if legacy:
            fill_legacy_row(buffer, start, file_position, computed, keys, columns, row)
        else:
            fill_row(buffer, start, file_position, computed, keys, columns, row)
            if good and columns[batch_column.ATTRIBUTES, row] & 0x27 == 0x20:
                fill_control(buffer, start, start + size, columns, row)
        row += 1
        start += size


@kernel
def length_is_right(buffer: "Buffer", start: int, length: int, position: int, file_size: int) -> int:
    """Whether a batch with the right CRC, or the end of the file, is at `start`: 0 yes, -1 no, else the bytes needed to decide."""
    if position == file_size:
        return 0
    if position + RECORD_BATCH_OVERHEAD > file_size:
        return -1
    if start + RECORD_BATCH_OVERHEAD > length:
        return RECORD_BATCH_OVERHEAD
    size = load_i32(buffer, start + batch_header.LENGTH_AT) + 12
    if size < RECORD_BATCH_OVERHEAD or position + size > file_size or int(buffer[start + batch_header.MAGIC_AT]) != 2:
        return -1
    if start + size > length:
        return size
    return 0 if has_right_crc_at(buffer, start, size) else -1


# After damage: search for the next header whose batch has the right CRC.
#
# The work is bounded: CRCs are computed over at most a few bytes for each byte searched (`budget`).


FOUND: Final = 0
"""A batch with the right CRC begins where the search stopped."""
PLAUSIBLE: Final = 1
"""A plausible header begins there, but its batch does not end inside the window."""
EXHAUSTED: Final = 2
"""No header begins before the place where the search stopped."""


@kernel
def plausible_size(
    buffer: "Buffer", start: int, position: int, file_size: int, min_offset: int, max_offset: int, legacy: bool
) -> int:
    """Size of the batch whose header may begin at `start`, 0 if no plausible header does; the buffer must hold 61 bytes from there.

    Its offsets must be in `(min_offset, max_offset)`. Magic 0 and 1 are considered only with `legacy`.
    """
    magic = int(buffer[start + batch_header.MAGIC_AT])
    if magic > 2 or (magic < 2 and not legacy):
        return 0
    size = load_i32(buffer, start + batch_header.LENGTH_AT) + 12
    if size < (61 if magic == 2 else 26 + 8 * magic) or position + size > file_size:
        return 0
    base_offset = load_i64(buffer, start)
    if base_offset < 0 or base_offset >= max_offset:
        return 0
    if magic < 2:
        if base_offset <= min_offset or int(buffer[start + 17]) > 15:
            return 0
        return size
    delta = load_i32(buffer, start + batch_header.DELTA_AT)
    attributes = load_i16(buffer, start + batch_header.ATTRIBUTES_AT)
    if delta < 0 or attributes < 0 or attributes > 127 or attributes & 7 > 4:
        return 0
    if base_offset > max_offset - 1 - delta or base_offset <= min_offset:
        return 0
    return size


@kernel
def search(
    buffer: "Buffer",
    start: int,
    length: int,
    file_position: int,
    file_size: int,
    min_offset: int,
    max_offset: int,
    legacy: bool,
    budget: int,
) -> tuple[int, int, int, int]:
    """Search `buffer[start:length]` for the next batch.

    Returns (where, FOUND | PLAUSIBLE | EXHAUSTED, budget left, headers skipped because their batch is larger than the budget).
    """
    refused = 0
    while start + RECORD_BATCH_OVERHEAD <= length:
        size = plausible_size(buffer, start, file_position + start, file_size, min_offset, max_offset, legacy)
        if size > budget:
            refused += 1
        elif size > 0:
            if start + size > length:
                return start, PLAUSIBLE, budget, refused
            budget -= size
            if has_right_crc_at(buffer, start, size):
                return start, FOUND, budget, refused
        start += 1
    return start, EXHAUSTED, budget, refused


@kernel
def longest_zero_run(buffer: "Buffer", start: int, end: int) -> int:
    """Length of the longest run of zero bytes in `buffer[start:end]`."""
    longest = 0
    run = 0
    for index in range(start, end):
        if buffer[index] == 0:
            run += 1
            if run > longest:
                longest = run
        else:
            run = 0
    return longest
