"""Batches of `__consumer_offsets` that need not be read because later batches replace all their offset commits.

A log that has not been cleaned holds the same few keys millions of times. The kernel reads only the simplest records: offset
commits of versions 0 to 4 outside of transactions, with names in ASCII. Any other record is kept, and a batch before it is not
superseded by a batch after it.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import RECORD_COLUMNS
from kafka_forensics.model.constants import COMPRESSION_MASK, CONTROL_MASK, RECORD_BATCH_OVERHEAD, TRANSACTIONAL_MASK
from kafka_forensics.parsers.kernels import batch_column, record_column
from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.parsers.kernels.crc import load_i16, load_i64
from kafka_forensics.parsers.kernels.records import OK, read_fields, read_varint, readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.kernels.records import Buffer, Columns

SLOTS: Final = 1 << 14
"""Slots of the hash table of keys. A key that another key replaces in its slot is kept longer, which costs only time."""
_SLOT_WIDTH: Final = 5
_AGE, _ROW, _KEY, _KEY_SIZE, _OFFSET = range(_SLOT_WIDTH)
_MUST_BE_KEPT: Final = 1 << 40
"""Added to the number of live records of a batch that must be kept."""
_NOT_PLAIN_ATTRIBUTES: Final = COMPRESSION_MASK | CONTROL_MASK | TRANSACTIONAL_MASK
_EMPTY: Final = -1
_OTHER, _COMMIT, _GROUP = range(3)


class Superseded:
    """Finds superseded offset commits in runs of rows; all runs use the same memory for the hash table."""

    def __init__(self, *, compiled: bool) -> None:
        self._slots: NDArray[np.int64] = np.full((SLOTS, _SLOT_WIDTH), _EMPTY, np.int64)
        self._scratch: NDArray[np.int64] = np.empty((RECORD_COLUMNS, 1), np.int64)
        self._compiled = compiled
        self._age = 0

    def alive(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> "NDArray[np.bool_]":
        """Which of the rows `[first, end)` have a record that no later row replaces; `buffer[0]` is byte `position`."""
        alive = np.zeros((1, end), np.int64)
        data = readable(buffer, compiled=self._compiled)
        mark = mark_alive.compiled if self._compiled else mark_alive.interpreted
        self._age = int(mark(data, position, columns, first, end, self._age, self._scratch, self._slots, alive))
        return np.greater(alive[0, first:], 0)


@kernel
def is_ascii(buffer: "Buffer", start: int, end: int) -> bool:
    """Whether all bytes of `buffer[start:end]` are below 128."""
    for at in range(start, end):  # noqa: SIM110 - kernels have no generators
        if int(buffer[at]) >= 128:
            return False
    return True


@kernel
def key_kind(buffer: "Buffer", start: int, size: int) -> int:
    """_COMMIT for a complete key of an offset commit with ASCII names, _GROUP for a key of another known type, else _OTHER."""
    end = start + size
    if size < 4:
        return _OTHER
    record_type = load_i16(buffer, start)
    if 2 <= record_type <= 24:
        return _GROUP
    if record_type < 0 or record_type > 1:
        return _OTHER
    at = start + 2
    for _ in range(2):
        if at + 2 > end:
            return _OTHER
        length = load_i16(buffer, at)
        if length < 0 or length > end - at - 2 or not is_ascii(buffer, at + 2, at + 2 + length):
            return _OTHER
        at += 2 + length
    return _COMMIT if at + 4 <= end else _OTHER


@kernel
def is_commit(buffer: "Buffer", start: int, size: int) -> bool:
    """Whether the value is a complete offset commit of versions 0 to 4."""
    end = start + size
    if size < 20:
        return False
    version = load_i16(buffer, start)
    if version < 0 or version > 4:
        return False
    at = start + (14 if version >= 3 else 10)
    if version == 4:
        length = int(buffer[at]) - 1
        at += 1
        if length < 0 or length > 126:
            return False
    else:
        length = load_i16(buffer, at)
        at += 2
    after = at + length + (16 if version == 1 else 8)
    if length < 0 or after > end or not is_ascii(buffer, at, at + length):
        return False
    if version < 4:
        return True
    if after + 1 > end:
        return False
    if int(buffer[after]) == 0:
        return True
    return after + 19 <= end and int(buffer[after]) == 1 and int(buffer[after + 1]) == 0 and int(buffer[after + 2]) == 16


@kernel
def slot_of(buffer: "Buffer", start: int, size: int) -> int:
    """Slot of a key, by its hash."""
    mixed = 0
    for at in range(start, start + size):
        mixed = (mixed * 31 + int(buffer[at])) & 0x7FFFFFFF
    return (mixed ^ (mixed >> 15)) & (SLOTS - 1)


@kernel
def same_bytes(buffer: "Buffer", start: int, other: int, size: int) -> bool:
    """Whether the `size` bytes at `start` and at `other` are equal."""
    for at in range(size):  # noqa: SIM110 - kernels have no generators
        if buffer[start + at] != buffer[other + at]:
            return False
    return True


@kernel
def take_commit(buffer: "Buffer", scratch: "Columns", row: int, age: int, slots: "Columns", alive: "Columns") -> int:
    """Read the record in `scratch`; a commit that it supersedes is no longer counted as alive.

    Returns its `key_kind`, _OTHER also if the value is not a plain commit.
    """
    key, size = int(scratch[record_column.KEY_POSITION, 0]), int(scratch[record_column.KEY_LENGTH, 0])
    kind = key_kind(buffer, key, size)
    if kind != _COMMIT:
        return kind
    value = int(scratch[record_column.VALUE_POSITION, 0])
    if not is_commit(buffer, value, int(scratch[record_column.VALUE_LENGTH, 0])):
        return _OTHER
    offset = load_i64(buffer, value + 2)
    slot = slot_of(buffer, key, size)
    is_same_key = (
        slots[slot, _AGE] == age and slots[slot, _KEY_SIZE] == size and same_bytes(buffer, int(slots[slot, _KEY]), key, size)
    )
    if is_same_key and slots[slot, _OFFSET] <= offset:
        alive[0, int(slots[slot, _ROW])] -= 1
    alive[0, row] += 1
    slots[slot, _AGE] = age
    slots[slot, _ROW] = row
    slots[slot, _KEY] = key
    slots[slot, _KEY_SIZE] = size
    slots[slot, _OFFSET] = offset
    return _COMMIT


@kernel
def take_batch(
    buffer: "Buffer", start: int, size: int, count: int, row: int, age: int, scratch: "Columns", slots: "Columns", alive: "Columns"
) -> int:
    """Read every record of an uncompressed batch: _COMMIT if all are commits, _GROUP if some have keys of groups, else _OTHER."""
    position, end = start + RECORD_BATCH_OVERHEAD, start + size
    answer = _COMMIT
    if count < 1:
        return _OTHER
    for _ in range(count):
        length, body = read_varint(buffer, position, end)
        if body < 0 or length < 0 or length > end - body:
            return _OTHER
        position = body + length
        code, headers = read_fields(buffer, body, position, scratch, 0)
        if code != OK or headers != position:
            return _OTHER
        kind = take_commit(buffer, scratch, row, age, slots, alive)
        if kind == _OTHER:
            return _OTHER
        if kind == _GROUP:
            answer = _GROUP
    return answer if position == end else _OTHER


@kernel
def mark_alive(
    buffer: "Buffer",
    buffer_position: int,
    columns: "Columns",
    first: int,
    end: int,
    age: int,
    scratch: "Columns",
    slots: "Columns",
    alive: "Columns",
) -> int:
    """Set `alive` for rows `[first, end)` of a chunk whose bytes are in `buffer`; returns the next free age.

    `alive`, (1, n) for all rows of the chunk, becomes above 0 for a batch with a record that no later one of these rows replaces.
    Batches with a wrong CRC are skipped. A commit is superseded only by one whose offset is not smaller.
    """
    for row in range(first, end):
        alive[0, row] = 0
        if columns[batch_column.CRC, row] != columns[batch_column.CRC_COMPUTED, row]:
            continue
        kind = _OTHER
        if columns[batch_column.MAGIC, row] == 2 and int(columns[batch_column.ATTRIBUTES, row]) & _NOT_PLAIN_ATTRIBUTES == 0:
            start, size = int(columns[batch_column.POSITION, row]) - buffer_position, int(columns[batch_column.SIZE_IN_BYTES, row])
            kind = take_batch(buffer, start, size, int(columns[batch_column.RECORDS_COUNT, row]), row, age, scratch, slots, alive)
        if kind != _COMMIT:
            alive[0, row] += _MUST_BE_KEPT
        if kind == _OTHER:
            age += 1
    return age + 1
