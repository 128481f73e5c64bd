"""Records of a decompressed payload as columns, and the same walk without output for checking (DefaultRecord, LegacyRecord).

Buffers are read-only uint8 arrays for the compiled form and memoryviews for the interpreted one: `readable` gives the right one.
Layouts: `spec.record_batch`. A kernel stops at the first record that is not right and says where and why.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn, MarkerColumn, RecordColumn
from kafka_forensics.model.constants import CONTROL_ABORT, CONTROL_COMMIT
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
COUNT_LIE: Final = 4
INNER_CRC: Final = 5
"""A message inside a legacy wrapper does not give its own CRC."""
NESTED: Final = 6
"""A message inside a legacy wrapper is itself compressed."""
FULL: Final = 7
"""No error: the matrix is full, come again from the position given."""
MORE: Final = 8
"""No error: the record at the position given goes on past the bytes at hand."""
NOT_PLAIN: Final = 9
"""No error: a batch that must be decompressed first, or a control batch that is no plain marker."""

RECORD_KINDS: Final = {
    VARINT_OVERLONG: "RECORD_VARINT_OVERLONG",
    OUT_OF_BOUNDS: "RECORD_LENGTH_OUT_OF_BOUNDS",
    MALFORMED: "RECORD_MALFORMED",
    COUNT_LIE: "BATCH_COUNT_LIE",
    INNER_CRC: "RECORD_MALFORMED",
    NESTED: "LEGACY_NESTED_COMPRESSION",
}
"""Finding kind by error code."""

_ALL: Final = True
"""Nothing follows the bytes at hand."""
_SHORT: Final = -1
_OVERLONG: Final = -2
SHORT_ROOM: Final = 3
"""Bytes of the longest varint that `read_short` reads."""
_USUAL_ROOM: Final = 16
"""More than the numbers of a usual record up to the length of its key."""
_POSITION: Final = int(RecordColumn.POSITION)
_SIZE: Final = int(RecordColumn.SIZE_IN_BYTES)
_ATTRIBUTES: Final = int(RecordColumn.ATTRIBUTES)
_TIMESTAMP_DELTA: Final = int(RecordColumn.TIMESTAMP_DELTA)
_OFFSET_DELTA: Final = int(RecordColumn.OFFSET_DELTA)
_KEY_POSITION: Final = int(RecordColumn.KEY_POSITION)
_KEY_LENGTH: Final = int(RecordColumn.KEY_LENGTH)
_VALUE_POSITION: Final = int(RecordColumn.VALUE_POSITION)
_VALUE_LENGTH: Final = int(RecordColumn.VALUE_LENGTH)
_HEADERS_POSITION: Final = int(RecordColumn.HEADERS_POSITION)
_HEADERS_COUNT: Final = int(RecordColumn.HEADERS_COUNT)
_OFFSETS: Final = int(MarkerColumn.OFFSET_DELTA)
_TIMES: Final = int(MarkerColumn.TIMESTAMP_DELTA)
_TYPES: Final = int(MarkerColumn.CONTROL_RECORD_TYPE)
_VERSIONS: Final = int(MarkerColumn.VERSION)
_COORDINATORS: Final = int(MarkerColumn.COORDINATOR_EPOCH)
_BATCH_POSITION: Final = int(BatchColumn.POSITION)
_BATCH_SIZE: Final = int(BatchColumn.SIZE_IN_BYTES)
_BATCH_MAGIC: Final = int(BatchColumn.MAGIC)
_BATCH_CRC: Final = int(BatchColumn.CRC)
_BATCH_CRC_COMPUTED: Final = int(BatchColumn.CRC_COMPUTED)
_BATCH_ATTRIBUTES: Final = int(BatchColumn.ATTRIBUTES)
_BATCH_RECORDS_COUNT: Final = int(BatchColumn.RECORDS_COUNT)
_BATCH_CONTROL_TYPE: Final = int(BatchColumn.CONTROL_RECORD_TYPE)
_BATCH_COORDINATOR_EPOCH: Final = int(BatchColumn.COORDINATOR_EPOCH)


def readable(data: "bytes | bytearray | memoryview | NDArray[np.uint8]", *, compiled: bool | None = None) -> "Buffer":
    """`data` without a copy, as the form of kernels wants it that `compiled` names (None: the one chosen for this process)."""
    if using_compiled() if compiled is None else compiled:
        array = np.frombuffer(data, np.uint8)
        array.flags.writeable = False
        return array
    exporter: Any = data
    return memoryview(exporter)


@kernel
def read_varint(buffer: "Buffer", position: int, end: int) -> tuple[int, int]:
    """(value, position behind it) of a zig-zag int32; the position is -1 if it is cut by `end`, -2 if a sixth byte would follow."""
    if position >= end:
        return 0, _SHORT
    byte = int(buffer[position])
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 0x7F
    for step in range(1, 5):
        if position + step >= end:
            return 0, _SHORT
        byte = int(buffer[position + step])
        raw |= (byte & 0x7F) << (7 * step)
        if byte < 128:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position + step + 1
    return 0, _OVERLONG


@kernel
def read_varlong(buffer: "Buffer", position: int, end: int) -> tuple[int, int]:
    """Like `read_varint` for an int64 of at most ten bytes; the tenth gives one bit."""
    raw = 0
    for step in range(9):
        if position + step >= end:
            return 0, _SHORT
        byte = int(buffer[position + step])
        raw |= (byte & 0x7F) << (7 * step)
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position + step + 1
    if position + 9 >= end:
        return 0, _SHORT
    byte = int(buffer[position + 9])
    if byte >= 128:
        return 0, _OVERLONG
    return ((raw >> 1) | ((byte & 1) << 62)) ^ -(raw & 1), position + 10


@kernel
def skip_headers(buffer: "Buffer", start: int, end: int, count: int, final: bool) -> tuple[int, int, int]:
    """Pass over `count` headers in `buffer[start:end]`: (headers passed, OK or error or MORE, position of the next or the bad one).

    MORE only if not `final`: then what is cut at `end` may go on behind it.
    """
    position = start
    for index in range(count):
        at = position
        for part in range(2):
            length, after = read_varint(buffer, at, end)
            if after == _OVERLONG:
                return index, VARINT_OVERLONG, position
            if after == _SHORT:
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
    """Write the fields of the record body at `buffer[start:end]` up to its count of headers: (OK or error, position behind)."""
    if start >= end:
        return MALFORMED, start
    out[_ATTRIBUTES, row] = int(buffer[start]) - ((int(buffer[start]) & 0x80) << 1)
    delta, at = read_varlong(buffer, start + 1, end)
    if at < 0:
        return VARINT_OVERLONG if at == _OVERLONG else MALFORMED, start
    out[_TIMESTAMP_DELTA, row] = delta
    delta, at = read_varint(buffer, at, end)
    if at < 0:
        return VARINT_OVERLONG if at == _OVERLONG else MALFORMED, start
    out[_OFFSET_DELTA, row] = delta
    for part in range(2):
        length, at = read_varint(buffer, at, end)
        if at < 0:
            return VARINT_OVERLONG if at == _OVERLONG else MALFORMED, start
        if length > end - at:
            return OUT_OF_BOUNDS, start
        out[_KEY_POSITION + 2 * part, row] = at
        out[_KEY_LENGTH + 2 * part, row] = max(length, -1)
        at += max(length, 0)
    count, at = read_varint(buffer, at, end)
    if at < 0:
        return VARINT_OVERLONG if at == _OVERLONG else MALFORMED, start
    if count < 0 or count > end - at:
        return OUT_OF_BOUNDS, start
    out[_HEADERS_POSITION, row] = at
    out[_HEADERS_COUNT, row] = count
    return OK, at


@kernel
def scan_records(buffer: "Buffer", start: int, end: int, final: bool, out: "Columns", step: int) -> tuple[int, int, int]:
    """Walk the records of `buffer[start:end]`: (records passed, OK, error, MORE or FULL, position it stopped at).

    Record `i` is written to column `i * step` of `out`, a (RECORD_COLUMNS, n) matrix: 1 keeps all, 0 keeps the last. The position
    is that of the record the code speaks of. MORE only if not `final`.
    """
    columns = out.shape[1]
    position = start
    records = 0
    while position < end:
        if records * step >= columns:
            return records, FULL, position
        length, body = read_varint(buffer, position, end)
        if body == _OVERLONG:
            return records, VARINT_OVERLONG, position
        if body == _SHORT:
            return records, OUT_OF_BOUNDS if final else MORE, position
        if length < 0:
            return records, OUT_OF_BOUNDS, position
        if length > end - body:
            return records, OUT_OF_BOUNDS if final else MORE, position
        row = records * step
        code, at = read_fields(buffer, body, body + length, out, row)
        if code == OK and out[_HEADERS_COUNT, row] > 0:
            _, code, at = skip_headers(buffer, at, body + length, out[_HEADERS_COUNT, row], _ALL)
        if code != OK:
            return records, code, position
        if at != body + length:
            return records, MALFORMED, position
        out[_POSITION, row] = position
        out[_SIZE, row] = at - position
        position = at
        records += 1
    return records, OK, position


@kernel
def counted(records: int, code: int, position: int, count: int) -> tuple[int, int, int]:
    """The answer of a finished walk in the light of the header's `count`: bytes behind the last record counted are a lie of it."""
    if code == FULL or (code != OK and records < count):
        return records, code, position
    if code != OK or records != count:
        return records, COUNT_LIE, position
    return records, OK, position


@inlined_kernel
def read_short(buffer: "Buffer", position: int) -> tuple[int, int]:
    """Like `read_varint`, of at most three bytes, which must be there; the position is -1 of a longer one."""
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
    return 0, _SHORT


@kernel
def pass_usual(buffer: "Buffer", start: int, end: int) -> tuple[int, int]:
    """Pass over records as nearly all are: right, without headers, of short numbers, not at the very end of `buffer[start:end]`.

    Answers (records passed, position of the first that must be looked at closely); nothing but right records is passed.
    """
    position = start
    records = 0
    while end - position >= _USUAL_ROOM:
        length, at = read_short(buffer, position)
        if at < 0 or length < 0 or length > end - at:
            break
        behind = at + length
        _, at = read_short(buffer, at + 1)
        if at < 0:
            break
        _, at = read_short(buffer, at)
        if at < 0:
            break
        length, at = read_short(buffer, at)
        if at < 0 or length > end - at - SHORT_ROOM:
            break
        length, at = read_short(buffer, at + max(length, 0))
        if at < 0 or length > end - at - SHORT_ROOM:
            break
        at += max(length, 0)
        if int(buffer[at]) != 0 or at + 1 != behind:
            break
        position = behind
        records += 1
    return records, position


@kernel
def check_records(buffer: "Buffer", start: int, end: int, count: int, scratch: "Columns") -> tuple[int, int, int]:
    """Pass the records of the payload `buffer[start:end]`, of which the header promises `count`; `scratch` is a (RECORD_COLUMNS, 1)
    matrix. Answers (records passed, OK or error, position), whatever `count` says."""
    records, position = pass_usual(buffer, start, end)
    code = OK
    while position < end:
        passed, code, position = scan_records(buffer, position, end, _ALL, scratch, 1)
        records += passed
        if code != FULL:
            break
        code = OK
        passed, position = pass_usual(buffer, position, end)
        records += passed
    return counted(records, code, position, count)


@kernel
def check_payloads(buffer: "Buffer", payloads: "Columns", count: int, scratch: "Columns", wrong: "NDArray[np.int64]") -> int:
    """Check the records of the first `count` payloads that lie in `buffer`; how many are not right, whose numbers begin `wrong`.

    `payloads` is a (3, n) matrix: where each one begins and ends, and how many records its header promises.
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
    """Write the fields of the legacy entry of `size` bytes at `start` to column `row`: OK or error. Its CRC is not looked at."""
    magic = int(buffer[start + 16])
    at = start + 18 + 8 * magic
    end = start + size
    out[_POSITION, row] = start
    out[_SIZE, row] = size
    out[_ATTRIBUTES, row] = int(buffer[start + 17])
    out[_TIMESTAMP_DELTA, row] = load_i64(buffer, start + 18) if magic == 1 else -1
    out[_OFFSET_DELTA, row] = load_i64(buffer, start)
    for part in range(2):
        if end - at < 4:
            return MALFORMED
        length = load_i32(buffer, at)
        at += 4
        if length > end - at:
            return OUT_OF_BOUNDS
        out[_KEY_POSITION + 2 * part, row] = at
        out[_KEY_LENGTH + 2 * part, row] = max(length, -1)
        at += max(length, 0)
    out[_HEADERS_POSITION, row] = at
    out[_HEADERS_COUNT, row] = 0
    return OK if at == end else MALFORMED


@kernel
def scan_messages(buffer: "Buffer", start: int, end: int, out: "Columns", step: int) -> tuple[int, int, int]:
    """Walk the message set `buffer[start:end]` inside a wrapper: (messages passed, OK, error or FULL, position).

    Columns as in `scan_records`; those of a message that is compressed or gives a wrong CRC are written, too. An entry cut by
    `end` ends the set silently, as Kafka's readers do.
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
    """Check the records of the batches in rows `[first, end)` of a chunk, whose bytes lie in `buffer`; the number of verdicts.

    `buffer[0]` is byte `buffer_position` of the file. A verdict is a column (row, code, records passed, position in the buffer) of
    `verdicts`, (4, n) with room for every row; batches that are right give none, those with a wrong CRC are passed over.
    """
    listed = 0
    for row in range(first, end):
        if columns[_BATCH_CRC, row] != columns[_BATCH_CRC_COMPUTED, row]:
            continue
        start = int(columns[_BATCH_POSITION, row]) - buffer_position
        size = int(columns[_BATCH_SIZE, row])
        attributes = int(columns[_BATCH_ATTRIBUTES, row])
        records = 0
        position = start
        if attributes & 7 != 0:
            code = NOT_PLAIN
        elif columns[_BATCH_MAGIC, row] < 2:
            code = check_message(buffer, start, size, scratch, 0)
        else:
            count = int(columns[_BATCH_RECORDS_COUNT, row])
            records, code, position = check_records(buffer, start + 61, start + size, count, scratch)
            if code == OK and attributes & 0x20 != 0 and count > 0:
                control_type = int(columns[_BATCH_CONTROL_TYPE, row])
                if (control_type != 0 and control_type != 1) or columns[_BATCH_COORDINATOR_EPOCH, row] < 0:
                    code = NOT_PLAIN
        if code != OK:
            verdicts[0, listed] = row
            verdicts[1, listed] = code
            verdicts[2, listed] = records
            verdicts[3, listed] = position
            listed += 1
    return listed


# Records of many batches in one matrix, so that what is done with records need not be done batch by batch.


@kernel
def gather_records(
    buffer: "Buffer", payloads: "Columns", first: int, out: "Columns", batch_of: "NDArray[np.int64]"
) -> tuple[int, int, int]:
    """Write the records of payloads `first` and following to the columns of `out`: (payload it stopped at, records, code).

    `payloads` is a (3, n) matrix: where in `buffer` (see `readable`) each one begins and ends, and how many records its header
    promises. `batch_of` has room for the payload of every record; positions of records count in `buffer`. It stops at a payload
    that is not right, with an error code, or at one for which there is no room, with FULL; of neither anything is given.
    """
    records = 0
    for index in range(first, payloads.shape[1]):
        start, end = int(payloads[0, index]), int(payloads[1, index])
        gathered, code, _ = scan_records(buffer, start, end, _ALL, out[:, records:], 1)
        if code == OK and gathered != payloads[2, index]:
            code = COUNT_LIE
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
    """Write what the markers of transactions say to the columns of `out`, by MarkerColumn: how many payloads were read.

    `payloads` is a (2, n) matrix: where in `buffer` (see `readable`) each one begins and ends. It stops at one that is anything but
    a single right record without headers, whose key of `min_key_size` bytes or more and value of `value_size` or more are those of
    an ABORT or a COMMIT. `scratch` is a (RECORD_COLUMNS, 1) matrix.
    """
    for index in range(payloads.shape[1]):
        end = int(payloads[1, index])
        length, body = read_varint(buffer, int(payloads[0, index]), end)
        if body < 0 or length != end - body:
            return index
        code, at = read_fields(buffer, body, end, scratch, 0)
        if code != OK or at != end or scratch[_HEADERS_COUNT, 0] != 0:
            return index
        if scratch[_KEY_LENGTH, 0] < min_key_size or scratch[_VALUE_LENGTH, 0] < value_size:
            return index
        key, value = int(scratch[_KEY_POSITION, 0]), int(scratch[_VALUE_POSITION, 0])
        kind = load_i16(buffer, key + 2)
        version = load_i16(buffer, value)
        if load_i16(buffer, key) < 0 or version < 0 or (kind != CONTROL_ABORT and kind != CONTROL_COMMIT):
            return index
        out[_OFFSETS, index] = scratch[_OFFSET_DELTA, 0]
        out[_TIMES, index] = scratch[_TIMESTAMP_DELTA, 0]
        out[_TYPES, index] = kind
        out[_VERSIONS, index] = version
        out[_COORDINATORS, index] = load_i32(buffer, value + 2)
    return payloads.shape[1]


@kernel
def locate_headers(buffer: "Buffer", columns: "Columns", out: "Columns") -> int:
    """Where the headers of records lie, which a walk has proved to be there: (position, length) of key and value, (4, n) in `out`.

    The length of a null value is -1. Answers how many they are; `out` has room for the sum of HEADERS_COUNT.
    """
    headers = 0
    end = len(buffer)
    for record in range(columns.shape[1]):
        position = int(columns[_HEADERS_POSITION, record])
        for _ in range(columns[_HEADERS_COUNT, record]):
            for part in range(2):
                length, position = read_varint(buffer, position, end)
                out[2 * part, headers] = position
                out[2 * part + 1, headers] = max(length, -1)
                position += max(length, 0)
            headers += 1
    return headers
