"""Records of a decompressed payload as columns, and the same walk as a check without output (DefaultRecord, LegacyRecord).

Buffers are read-only uint8 arrays for compiled kernels and memoryviews for interpreted ones, see `readable`. Layouts:
`spec.record_batch`. A kernel stops at the first invalid record and returns its position and an error code.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import MarkerColumn
from kafka_forensics.model.constants import CONTROL_ABORT, CONTROL_COMMIT
from kafka_forensics.parsers.kernels import batch_column, record_column
from kafka_forensics.parsers.kernels.compiling import inlined_kernel, kernel, using_compiled
from kafka_forensics.parsers.kernels.crc import byte_at, crc32, load_i16, load_i32, load_i64

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8] | memoryview
    Columns = NDArray[np.int64]

OK: Final = 0
VARINT_OVERLONG: Final = 1
OUT_OF_BOUNDS: Final = 2
MALFORMED: Final = 3
WRONG_COUNT: Final = 4
INNER_CRC: Final = 5
"""A message inside a legacy wrapper has a wrong CRC."""
NESTED: Final = 6
"""A message inside a legacy wrapper is itself compressed."""
FULL: Final = 7
"""No error: the matrix is full; call again from the returned position."""
MORE: Final = 8
"""No error: the record at the returned position continues after the end of the buffer."""
NOT_PLAIN: Final = 9
"""No error: a batch that must be decompressed first, or a control batch that is not a plain transaction marker."""

RECORD_KINDS: Final = {
    VARINT_OVERLONG: "RECORD_VARINT_OVERLONG",
    OUT_OF_BOUNDS: "RECORD_LENGTH_OUT_OF_BOUNDS",
    MALFORMED: "RECORD_MALFORMED",
    WRONG_COUNT: "BATCH_COUNT_LIE",
    INNER_CRC: "RECORD_MALFORMED",
    NESTED: "LEGACY_NESTED_COMPRESSION",
}
"""Finding kind by error code."""

IS_COMPLETE: Final = True
"""Nothing follows the bytes in the buffer."""
_CUT: Final = -1
OVERLONG: Final = -2
MAX_SHORT_VARINT_BYTES: Final = 3
"""Bytes of the longest varint that `read_short` reads."""
_MIN_BYTES_LEFT: Final = 16
"""More bytes than the numbers of an ordinary record take, up to the length of its key."""
_MARKER_OFFSET_DELTA, _MARKER_TIMESTAMP_DELTA, _MARKER_TYPE, _MARKER_VERSION, _MARKER_EPOCH = map(int, MarkerColumn)


def readable(data: "bytes | bytearray | memoryview | NDArray[np.uint8]", *, compiled: bool | None = None) -> "Buffer":
    """`data` without a copy, as compiled kernels read it or as interpreted ones do (None: those chosen for this process)."""
    if using_compiled() if compiled is None else compiled:
        array = np.frombuffer(data, np.uint8)
        array.flags.writeable = False
        return array
    return memoryview(data)  # type: ignore[arg-type]


@kernel
def read_varint(buffer: "Buffer", position: int, end: int) -> tuple[int, int]:
    """(value, position after it) of a zig-zag int32; the position is -1 if `end` cuts it, -2 if it is longer than five bytes."""
    if position >= end:
        return 0, _CUT
    byte = int(buffer[position])
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 0x7F
    for step in range(1, 5):
        if position + step >= end:
            return 0, _CUT
        byte = int(buffer[position + step])
        raw |= (byte & 0x7F) << (7 * step)
        if byte < 128:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position + step + 1
    return 0, OVERLONG


@kernel
def read_varlong(buffer: "Buffer", position: int, end: int) -> tuple[int, int]:
    """Like `read_varint` for an int64 of at most ten bytes; the tenth has one bit."""
    raw = 0
    for step in range(9):
        if position + step >= end:
            return 0, _CUT
        byte = int(buffer[position + step])
        raw |= (byte & 0x7F) << (7 * step)
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position + step + 1
    if position + 9 >= end:
        return 0, _CUT
    byte = int(buffer[position + 9])
    if byte >= 128:
        return 0, OVERLONG
    return ((raw >> 1) | ((byte & 1) << 62)) ^ -(raw & 1), position + 10


@kernel
def skip_headers(buffer: "Buffer", start: int, end: int, count: int, final: bool) -> tuple[int, int, int]:
    """Skip `count` headers in `buffer[start:end]`: (headers skipped, OK or error or MORE, position of the next or the invalid one).

    MORE only if not `final`: then a header that `end` cuts may continue after it.
    """
    position = start
    for index in range(count):
        at = position
        for part in range(2):
            length, after = read_varint(buffer, at, end)
            if after == OVERLONG:
                return index, VARINT_OVERLONG, position
            if after == _CUT:
                return index, MALFORMED if final else MORE, position
            if length < 0 and part == 0:
                return index, OUT_OF_BOUNDS, position
            if length > end - after:
                return index, OUT_OF_BOUNDS if final else MORE, position
            at = after + max(length, 0)
        position = at
    return count, OK, position


@kernel
def read_fields(buffer: "Buffer", start: int, end: int, out: "Columns", row: int) -> tuple[int, int]:
    """Write the fields of the record body at `buffer[start:end]` up to its headers: (OK or error, position of the first header)."""
    if start >= end:
        return MALFORMED, start
    out[record_column.ATTRIBUTES, row] = int(buffer[start]) - ((int(buffer[start]) & 0x80) << 1)
    delta, at = read_varlong(buffer, start + 1, end)
    if at < 0:
        return VARINT_OVERLONG if at == OVERLONG else MALFORMED, start
    out[record_column.TIMESTAMP_DELTA, row] = delta
    delta, at = read_varint(buffer, at, end)
    if at < 0:
        return VARINT_OVERLONG if at == OVERLONG else MALFORMED, start
    out[record_column.OFFSET_DELTA, row] = delta
    for part in range(2):
        length, at = read_varint(buffer, at, end)
        if at < 0:
            return VARINT_OVERLONG if at == OVERLONG else MALFORMED, start
        if length > end - at:
            return OUT_OF_BOUNDS, start
        out[record_column.KEY_POSITION + 2 * part, row] = at
        out[record_column.KEY_LENGTH + 2 * part, row] = max(length, -1)
        at += max(length, 0)
    count, at = read_varint(buffer, at, end)
    if at < 0:
        return VARINT_OVERLONG if at == OVERLONG else MALFORMED, start
    if count < 0 or count > end - at:
        return OUT_OF_BOUNDS, start
    out[record_column.HEADERS_POSITION, row] = at
    out[record_column.HEADERS_COUNT, row] = count
    return OK, at


@kernel
def scan_records(buffer: "Buffer", start: int, end: int, final: bool, out: "Columns", step: int) -> tuple[int, int, int]:
    """Walk the records of `buffer[start:end]`: (valid records, OK, error, MORE or FULL, position of the record with that code).

    Record `i` is written to column `i * step` of `out`, a (RECORD_COLUMNS, n) matrix: `step` 1 keeps all, 0 keeps the last. MORE
    only if not `final`.
    """
    columns = out.shape[1]
    position = start
    records = 0
    while position < end:
        if records * step >= columns:
            return records, FULL, position
        length, body = read_varint(buffer, position, end)
        if body == OVERLONG:
            return records, VARINT_OVERLONG, position
        if body == _CUT:
            return records, OUT_OF_BOUNDS if final else MORE, position
        if length < 0:
            return records, OUT_OF_BOUNDS, position
        if length > end - body:
            return records, OUT_OF_BOUNDS if final else MORE, position
        row = records * step
        code, at = read_fields(buffer, body, body + length, out, row)
        if code == OK and out[record_column.HEADERS_COUNT, row] > 0:
            _, code, at = skip_headers(buffer, at, body + length, out[record_column.HEADERS_COUNT, row], IS_COMPLETE)
        if code != OK:
            return records, code, position
        if at != body + length:
            return records, MALFORMED, position
        out[record_column.POSITION, row] = position
        out[record_column.SIZE_IN_BYTES, row] = at - position
        position = at
        records += 1
    return records, OK, position


@kernel
def counted(records: int, code: int, position: int, count: int) -> tuple[int, int, int]:
    """The result of a finished walk, compared with the header's `count`: bytes after the last counted record are WRONG_COUNT."""
    if code == FULL or (code != OK and records < count):
        return records, code, position
    if code != OK or records != count:
        return records, WRONG_COUNT, position
    return records, OK, position


@inlined_kernel
def read_short(buffer: "Buffer", position: int) -> tuple[int, int]:
    """Like `read_varint` for at most three bytes, which the caller has checked; the position is -1 for a longer varint."""
    raw = byte_at(buffer, position)
    if raw < 128:
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw &= 0x7F
    byte = byte_at(buffer, position + 1)
    raw |= (byte & 0x7F) << 7
    if byte < 128:
        return (raw >> 1) ^ -(raw & 1), position + 2
    byte = byte_at(buffer, position + 2)
    raw |= (byte & 0x7F) << 14
    if byte < 128:
        return (raw >> 1) ^ -(raw & 1), position + 3
    return 0, _CUT


@kernel
def skip_ordinary(buffer: "Buffer", start: int, end: int) -> tuple[int, int]:
    """Skip ordinary records: valid, without headers, with short numbers, not at the very end of `buffer[start:end]`.

    Returns (records skipped, position of the first record that is not ordinary); only valid records are skipped.
    """
    position = start
    records = 0
    while end - position >= _MIN_BYTES_LEFT:
        length, at = read_short(buffer, position)
        if at < 0 or length < 0 or length > end - at:
            break
        record_end = at + length
        _, at = read_short(buffer, at + 1)
        if at < 0:
            break
        _, at = read_short(buffer, at)
        if at < 0:
            break
        length, at = read_short(buffer, at)
        if at < 0 or length > end - at - MAX_SHORT_VARINT_BYTES:
            break
        length, at = read_short(buffer, at + max(length, 0))
        if at < 0 or length > end - at - MAX_SHORT_VARINT_BYTES:
            break
        at += max(length, 0)
        if int(buffer[at]) != 0 or at + 1 != record_end:
            break
        position = record_end
        records += 1
    return records, position


@kernel
def check_records(buffer: "Buffer", start: int, end: int, count: int, scratch: "Columns") -> tuple[int, int, int]:
    """Check the records of the payload `buffer[start:end]`, whose header declares `count`: (valid records, OK or error, position).

    `scratch` is a (RECORD_COLUMNS, 1) matrix. The time does not depend on `count`.
    """
    records, position = skip_ordinary(buffer, start, end)
    code = OK
    while position < end:
        passed, code, position = scan_records(buffer, position, end, IS_COMPLETE, scratch, 1)
        records += passed
        if code != FULL:
            break
        code = OK
        passed, position = skip_ordinary(buffer, position, end)
        records += passed
    return counted(records, code, position, count)


@kernel
def check_payloads(buffer: "Buffer", payloads: "Columns", count: int, scratch: "Columns", wrong: "NDArray[np.int64]") -> int:
    """Check the records of the first `count` payloads in `buffer`: writes the invalid ones' numbers to `wrong`, returns how many.

    `payloads` is a (3, n) matrix: start, end and declared number of records of each payload.
    """
    listed = 0
    for index in range(count):
        _, code, _ = check_records(buffer, int(payloads[0, index]), int(payloads[1, index]), int(payloads[2, index]), scratch)
        if code != OK:
            wrong[listed] = index
            listed += 1
    return listed


@kernel
def check_message(buffer: "Buffer", start: int, size: int, out: "Columns", row: int) -> int:
    """Write the fields of the legacy entry of `size` bytes at `start` to column `row`: OK or error. Its CRC is not checked."""
    magic = int(buffer[start + 16])
    at = start + 18 + 8 * magic
    end = start + size
    out[record_column.POSITION, row] = start
    out[record_column.SIZE_IN_BYTES, row] = size
    out[record_column.ATTRIBUTES, row] = int(buffer[start + 17])
    out[record_column.TIMESTAMP_DELTA, row] = load_i64(buffer, start + 18) if magic == 1 else -1
    out[record_column.OFFSET_DELTA, row] = load_i64(buffer, start)
    for part in range(2):
        if end - at < 4:
            return MALFORMED
        length = load_i32(buffer, at)
        at += 4
        if length > end - at:
            return OUT_OF_BOUNDS
        out[record_column.KEY_POSITION + 2 * part, row] = at
        out[record_column.KEY_LENGTH + 2 * part, row] = max(length, -1)
        at += max(length, 0)
    out[record_column.HEADERS_POSITION, row] = at
    out[record_column.HEADERS_COUNT, row] = 0
    return OK if at == end else MALFORMED


@kernel
def scan_messages(buffer: "Buffer", start: int, end: int, out: "Columns", step: int) -> tuple[int, int, int]:
    """Walk the message set `buffer[start:end]` inside a wrapper: (valid messages, OK, error or FULL, position).

    Columns as in `scan_records`; a message that is compressed or has a wrong CRC is written, too. An entry that `end` cuts ends the
    set without an error, as in Kafka's readers.
    """
    columns = out.shape[1]
    position = start
    messages = 0
    while end - position >= 12:
        if messages * step >= columns:
            return messages, FULL, position
        length = load_i32(buffer, position + 8)
        if length < 14:
            return messages, OUT_OF_BOUNDS, position
        if length > end - position - 12:
            return messages, OK, position
        magic = int(buffer[position + 16])
        if magic > 1 or length < 14 + 8 * magic:
            return messages, MALFORMED, position
        code = check_message(buffer, position, length + 12, out, messages * step)
        if code != OK:
            return messages, code, position
        if int(buffer[position + 17]) & 7 != 0:
            return messages, NESTED, position
        if crc32(buffer, position + 16, position + 12 + length, 0) != load_i32(buffer, position + 12) & 0xFFFFFFFF:
            return messages, INNER_CRC, position
        position += length + 12
        messages += 1
    return messages, OK, position


@kernel
def check_batches(
    buffer: "Buffer", buffer_position: int, columns: "Columns", first: int, end: int, scratch: "Columns", verdicts: "Columns"
) -> int:
    """Check the records of the batches in rows `[first, end)`, whose bytes are in `buffer`; returns the number of verdicts.

    `buffer[0]` is byte `buffer_position` of the file. A verdict is a column (row, code, valid records, position in the buffer) of
    `verdicts`, (4, n) with a column for every row. Valid batches have none; batches with a wrong CRC are skipped.
    """
    listed = 0
    for row in range(first, end):
        if columns[batch_column.CRC, row] != columns[batch_column.CRC_COMPUTED, row]:
            continue
        start = int(columns[batch_column.POSITION, row]) - buffer_position
        size = int(columns[batch_column.SIZE_IN_BYTES, row])
        attributes = int(columns[batch_column.ATTRIBUTES, row])
        records = 0
        position = start
        if attributes & 7 != 0:
            code = NOT_PLAIN
        elif columns[batch_column.MAGIC, row] < 2:
            code = check_message(buffer, start, size, scratch, 0)
        else:
            count = int(columns[batch_column.RECORDS_COUNT, row])
            records, code, position = check_records(buffer, start + 61, start + size, count, scratch)
            if code == OK and attributes & 0x20 != 0 and count > 0:
                control_type = int(columns[batch_column.CONTROL_RECORD_TYPE, row])
                if (control_type != 0 and control_type != 1) or columns[batch_column.COORDINATOR_EPOCH, row] < 0:
                    code = NOT_PLAIN
        if code != OK:
            verdicts[0, listed] = row
            verdicts[1, listed] = code
            verdicts[2, listed] = records
            verdicts[3, listed] = position
            listed += 1
    return listed


# Records of many batches in one matrix, for code that works on records and not batch by batch.


@kernel
def gather_records(
    buffer: "Buffer", payloads: "Columns", first: int, out: "Columns", batch_of: "NDArray[np.int64]"
) -> tuple[int, int, int]:
    """Write the records of payloads `first` and following to the columns of `out`: (payload where it stopped, records, code).

    `payloads` is as for `check_payloads`, `buffer` as from `readable`. `batch_of` receives the payload of every record; record
    positions count in `buffer`. It stops at an invalid payload, with an error code, or at one that does not fit into `out`,
    with FULL, and returns no record of that payload.
    """
    records = 0
    for index in range(first, payloads.shape[1]):
        start, end = int(payloads[0, index]), int(payloads[1, index])
        gathered, code, _ = scan_records(buffer, start, end, IS_COMPLETE, out[:, records:], 1)
        if code == OK and gathered != payloads[2, index]:
            code = WRONG_COUNT
        if code != OK:
            return index, records, code
        for record in range(records, records + gathered):
            batch_of[record] = index
        records += gathered
    return payloads.shape[1], records, OK


@kernel
def read_markers(
    buffer: "Buffer", payloads: "Columns", min_key_size: int, value_size: int, scratch: "Columns", out: "Columns"
) -> int:
    """Write the fields of transaction markers to the columns of `out`, by MarkerColumn; returns how many payloads it read.

    `payloads` is a (2, n) matrix: start and end of each in `buffer` (see `readable`). It stops at a payload that is not a single
    valid record without headers, with the key (at least `min_key_size` bytes) and the value (at least `value_size`) of an ABORT or
    a COMMIT. `scratch` is a (RECORD_COLUMNS, 1) matrix.
    """
    for index in range(payloads.shape[1]):
        end = int(payloads[1, index])
        length, body = read_varint(buffer, int(payloads[0, index]), end)
        if body < 0 or length != end - body:
            return index
        code, at = read_fields(buffer, body, end, scratch, 0)
        if code != OK or at != end or scratch[record_column.HEADERS_COUNT, 0] != 0:
            return index
        if scratch[record_column.KEY_LENGTH, 0] < min_key_size or scratch[record_column.VALUE_LENGTH, 0] < value_size:
            return index
        key, value = int(scratch[record_column.KEY_POSITION, 0]), int(scratch[record_column.VALUE_POSITION, 0])
        kind = load_i16(buffer, key + 2)
        version = load_i16(buffer, value)
        if load_i16(buffer, key) < 0 or version < 0 or (kind != CONTROL_ABORT and kind != CONTROL_COMMIT):
            return index
        out[_MARKER_OFFSET_DELTA, index] = scratch[record_column.OFFSET_DELTA, 0]
        out[_MARKER_TIMESTAMP_DELTA, index] = scratch[record_column.TIMESTAMP_DELTA, 0]
        out[_MARKER_TYPE, index] = kind
        out[_MARKER_VERSION, index] = version
        out[_MARKER_EPOCH, index] = load_i32(buffer, value + 2)
    return payloads.shape[1]


@kernel
def locate_headers(buffer: "Buffer", columns: "Columns", out: "Columns") -> int:
    """Write (position, length) of key and value of the records' headers to `out`, (4, n); returns how many headers.

    The records come from a walk that found them valid. The length of a null value is -1; `out` has HEADERS_COUNT columns in all.
    """
    headers = 0
    end = len(buffer)
    for record in range(columns.shape[1]):
        position = int(columns[record_column.HEADERS_POSITION, record])
        for _ in range(columns[record_column.HEADERS_COUNT, record]):
            for part in range(2):
                length, position = read_varint(buffer, position, end)
                out[2 * part, headers] = position
                out[2 * part + 1, headers] = max(length, -1)
                position += max(length, 0)
            headers += 1
    return headers
