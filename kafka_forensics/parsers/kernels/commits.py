"""Batches of `__consumer_offsets` that nothing remembers: all they say, later batches of the same keys say anew.

A log that was not cleaned yet holds the same few keys millions of times. This kernel knows only the plainest records (offset
commits of versions 0 to 4 outside of transactions, names in ASCII); whatever else it meets is kept, and nothing before it is
passed over for what comes behind.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import RECORD_COLUMNS, BatchColumn, RecordColumn
from kafka_forensics.model.constants import COMPRESSION_MASK, CONTROL_MASK, RECORD_BATCH_OVERHEAD, TRANSACTIONAL_MASK
from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.parsers.kernels.crc import load_i16, load_i64
from kafka_forensics.parsers.kernels.records import OK, read_fields, read_varint, readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.kernels.records import Buffer, Columns

SLOTS: Final = 1 << 14
"""Keys remembered at a time, each at the place its hash gives; one that is driven out is merely kept longer."""
_SLOT_WIDTH: Final = 5
_AGE: Final = 0
_ROW: Final = 1
_KEY: Final = 2
_KEY_SIZE: Final = 3
_OFFSET: Final = 4
_ODD: Final = 1 << 40
"""Added to the records of a batch that must be kept."""
_NOT_PLAIN_ATTRIBUTES: Final = COMPRESSION_MASK | CONTROL_MASK | TRANSACTIONAL_MASK
_OVERHEAD: Final = RECORD_BATCH_OVERHEAD
_NEVER: Final = -1
_ANOTHER: Final = 0
_COMMIT: Final = 1
_GROUP: Final = 2
_POSITION: Final = int(BatchColumn.POSITION)
_SIZE: Final = int(BatchColumn.SIZE_IN_BYTES)
_MAGIC: Final = int(BatchColumn.MAGIC)
_ATTRIBUTES: Final = int(BatchColumn.ATTRIBUTES)
_COUNT: Final = int(BatchColumn.RECORDS_COUNT)
_CRC: Final = int(BatchColumn.CRC)
_CRC_COMPUTED: Final = int(BatchColumn.CRC_COMPUTED)
_KEY_POSITION: Final = int(RecordColumn.KEY_POSITION)
_KEY_LENGTH: Final = int(RecordColumn.KEY_LENGTH)
_VALUE_POSITION: Final = int(RecordColumn.VALUE_POSITION)
_VALUE_LENGTH: Final = int(RecordColumn.VALUE_LENGTH)


class Superseded:
    """What the kernel remembers from one run of rows to the next: nothing but room, and how old it is."""

    def __init__(self, *, compiled: bool) -> None:
        self._slots: NDArray[np.int64] = np.full((SLOTS, _SLOT_WIDTH), _NEVER, np.int64)
        self._scratch: NDArray[np.int64] = np.empty((RECORD_COLUMNS, 1), np.int64)
        self._compiled = compiled
        self._mark = mark_alive.compiled if compiled else mark_alive.interpreted
        self._age = 0

    def alive(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> "NDArray[np.bool_]":
        """Which of the rows `[first, end)` say something that no later one of them says anew; `buffer[0]` is byte `position`."""
        alive = np.zeros((1, end), np.int64)
        data = readable(buffer, compiled=self._compiled)
        self._age = int(self._mark(data, position, columns, first, end, self._age, self._scratch, self._slots, alive))
        answer: NDArray[np.bool_] = alive[0, first:] > 0
        return answer


@kernel
def is_ascii(buffer: "Buffer", start: int, end: int) -> bool:
    """Whether all bytes of `buffer[start:end]` are below 128."""
    for at in range(start, end):  # noqa: SIM110 - kernels have no generators
        if int(buffer[at]) >= 128:
            return False
    return True


@kernel
def key_kind(buffer: "Buffer", start: int, size: int) -> int:
    """_COMMIT for a whole key of an offset commit with ASCII names, _GROUP for one of another known type, else _ANOTHER."""
    end = start + size
    if size < 4:
        return _ANOTHER
    record_type = load_i16(buffer, start)
    if 2 <= record_type <= 24:
        return _GROUP
    if record_type < 0 or record_type > 1:
        return _ANOTHER
    at = start + 2
    for _ in range(2):
        if at + 2 > end:
            return _ANOTHER
        length = load_i16(buffer, at)
        if length < 0 or length > end - at - 2 or not is_ascii(buffer, at + 2, at + 2 + length):
            return _ANOTHER
        at += 2 + length
    return _COMMIT if at + 4 <= end else _ANOTHER


@kernel
def is_commit(buffer: "Buffer", start: int, size: int) -> bool:
    """Whether the value is a whole offset commit of a version known here."""
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
    behind = at + length + (16 if version == 1 else 8)
    if length < 0 or behind > end or not is_ascii(buffer, at, at + length):
        return False
    if version < 4:
        return True
    if behind + 1 > end:
        return False
    if int(buffer[behind]) == 0:
        return True
    return behind + 19 <= end and int(buffer[behind]) == 1 and int(buffer[behind + 1]) == 0 and int(buffer[behind + 2]) == 16


@kernel
def slot_of(buffer: "Buffer", start: int, size: int) -> int:
    """Where a key is remembered."""
    mixed = 0
    for at in range(start, start + size):
        mixed = (mixed * 31 + int(buffer[at])) & 0x7FFFFFFF
    return (mixed ^ (mixed >> 15)) & (SLOTS - 1)


@kernel
def same_bytes(buffer: "Buffer", start: int, other: int, size: int) -> bool:
    """Whether `size` bytes at two places are equal."""
    for at in range(size):  # noqa: SIM110 - kernels have no generators
        if buffer[start + at] != buffer[other + at]:
            return False
    return True


@kernel
def take_commit(buffer: "Buffer", scratch: "Columns", row: int, age: int, slots: "Columns", alive: "Columns") -> int:
    """Look at the record in `scratch`: _COMMIT if it is plain, and then what it supersedes has one record less that is alive."""
    key, size = int(scratch[_KEY_POSITION, 0]), int(scratch[_KEY_LENGTH, 0])
    kind = key_kind(buffer, key, size)
    if kind != _COMMIT:
        return kind
    value = int(scratch[_VALUE_POSITION, 0])
    if not is_commit(buffer, value, int(scratch[_VALUE_LENGTH, 0])):
        return _ANOTHER
    offset = load_i64(buffer, value + 2)
    slot = slot_of(buffer, key, size)
    known = slots[slot, _AGE] == age and slots[slot, _KEY_SIZE] == size and same_bytes(buffer, int(slots[slot, _KEY]), key, size)
    if known and slots[slot, _OFFSET] <= offset:
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
    """Look at every record of a plain batch: _COMMIT if all are commits, _GROUP if some are about groups, else _ANOTHER."""
    position, end = start + _OVERHEAD, start + size
    answer = _COMMIT
    if count < 1:
        return _ANOTHER
    for _ in range(count):
        length, body = read_varint(buffer, position, end)
        if body < 0 or length < 0 or length > end - body:
            return _ANOTHER
        position = body + length
        code, headers = read_fields(buffer, body, position, scratch, 0)
        if code != OK or headers != position:
            return _ANOTHER
        kind = take_commit(buffer, scratch, row, age, slots, alive)
        if kind == _ANOTHER:
            return _ANOTHER
        if kind == _GROUP:
            answer = _GROUP
    return answer if position == end else _ANOTHER


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
    """Say of rows `[first, end)` of a chunk, whose bytes lie in `buffer`, whether they must be looked at: the next free age.

    `alive`, (1, n) for all rows of the chunk, is above 0 where a batch says something that no later one of these rows says anew.
    Batches with a wrong CRC are passed over. A commit is superseded only by one that is not smaller.
    """
    for row in range(first, end):
        alive[0, row] = 0
        if columns[_CRC, row] != columns[_CRC_COMPUTED, row]:
            continue
        kind = _ANOTHER
        if columns[_MAGIC, row] == 2 and int(columns[_ATTRIBUTES, row]) & _NOT_PLAIN_ATTRIBUTES == 0:
            start, size = int(columns[_POSITION, row]) - buffer_position, int(columns[_SIZE, row])
            kind = take_batch(buffer, start, size, int(columns[_COUNT, row]), row, age, scratch, slots, alive)
        if kind != _COMMIT:
            alive[0, row] += _ODD
        if kind == _ANOTHER:
            age += 1
    return age + 1
