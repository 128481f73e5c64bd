"""Looking for bytes, and for the records of payloads that fit what is asked, at the speed at which memory is read.

Buffers as `records.readable` gives them. What is asked is numbers (`Wanted`), headers, and pieces of bytes in one array `text`, of
which `spans`, (4, n), says where each begins, how long it is, and which two of its bytes are looked for first; `headers`, (2, n),
are pieces of name and value, NEVER where any value will do.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kafka_forensics.model.batches import RecordColumn
from kafka_forensics.parsers.kernels.compiling import inlined_kernel, kernel
from kafka_forensics.parsers.kernels.crc import LANES, byte_at, lowest_bit, pair_mask
from kafka_forensics.parsers.kernels.records import (
    COUNT_LIE,
    FULL,
    MALFORMED,
    OK,
    OUT_OF_BOUNDS,
    SHORT_ROOM,
    read_short,
    read_varint,
    read_varlong,
    skip_headers,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.parsers.kernels.records import Buffer

    Columns = NDArray[np.int64]
    Bytes = NDArray[np.uint8]
    Sought = tuple[Columns, Columns, Bytes, Columns]

NOT_THERE: Final = -1
COSTLY: Final = -2
"""No error: the bytes are such that each place costs a long comparison; another way knows how to pass over them."""
UNSURE: Final = 10
"""No error, as those of `records`: a batch that must be looked at by itself, for what is asked of it cannot be told here."""
NEVER: Final = -1
"""In place of the number of a piece of bytes: none is asked for."""
FAR: Final = 1 << 61
"""Offsets and times from which on sums might not fit 64 bits."""

_SPENT_A_BYTE: Final = 4
_SPENT_ANYWAY: Final = 1 << 10
_ALL: Final = True
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


class Wanted(IntEnum):
    """Place of each number that a record is asked for. Ends are exclusive; keys, values and headers are numbers of pieces."""

    OFFSET_START = 0
    OFFSET_END = 1
    ASKS_TIME = 2
    """0 or 1; a record without a timestamp (-1) lies in no range of times."""
    TIME_START = 3
    TIME_END = 4
    KEY = 5
    VALUE_PART = 6


class PayloadRow(IntEnum):
    """Row of the int64 matrix that holds each fact about a payload of magic 2."""

    SEARCHED = 0
    """Where in the buffer the bytes begin in which all pieces must stand, or no record is looked at."""
    START = 1
    """Of the first record."""
    END = 2
    RECORDS_COUNT = 3
    BASE_OFFSET = 4
    BASE_TIMESTAMP = 5
    """The timestamp of all its records where the broker set it."""
    BY_BROKER = 6


WANTED: Final = len(Wanted)
PAYLOAD_ROWS: Final = len(PayloadRow)
_OFFSET_START: Final = int(Wanted.OFFSET_START)
_OFFSET_END: Final = int(Wanted.OFFSET_END)
_ASKS_TIME: Final = int(Wanted.ASKS_TIME)
_TIME_START: Final = int(Wanted.TIME_START)
_TIME_END: Final = int(Wanted.TIME_END)
_KEY: Final = int(Wanted.KEY)
_VALUE_PART: Final = int(Wanted.VALUE_PART)
_SEARCHED: Final = int(PayloadRow.SEARCHED)
_START: Final = int(PayloadRow.START)
_END: Final = int(PayloadRow.END)
_RECORDS_COUNT: Final = int(PayloadRow.RECORDS_COUNT)
_BASE_OFFSET: Final = int(PayloadRow.BASE_OFFSET)
_BASE_TIMESTAMP: Final = int(PayloadRow.BASE_TIMESTAMP)
_BY_BROKER: Final = int(PayloadRow.BY_BROKER)


@kernel
def equal_bytes(buffer: "Buffer", position: int, text: "Bytes", begin: int, length: int) -> int:
    """How many bytes at `position` are those of `text` from `begin` on, `length` at most."""
    for index in range(length):
        if byte_at(buffer, position + index) != byte_at(text, begin + index):
            return index
    return length


@kernel
def find_bytes(buffer: "Buffer", start: int, end: int, text: "Bytes", spans: "Columns", piece: int) -> int:
    """First position in `buffer[start:end]` from which this piece stands there, else NOT_THERE, or COSTLY.

    32 places at a time are asked for the two bytes of it that are rarest; only where both are right all are compared.
    """
    begin, length = int(spans[0, piece]), int(spans[1, piece])
    last = end - length
    if length == 0:
        return start
    left, right = int(spans[2, piece]), int(spans[3, piece])
    first, second = byte_at(text, begin + left), byte_at(text, begin + right)
    spent = 0
    position = start
    while position + right + LANES <= end:
        mask = pair_mask(buffer, position + left, right - left, first, second)
        while mask != 0:
            at = position + lowest_bit(mask)
            if at > last:
                return NOT_THERE
            same = equal_bytes(buffer, at, text, begin, length)
            if same == length:
                return at
            spent += same + 1
            if spent > _SPENT_ANYWAY + _SPENT_A_BYTE * (at - start):
                return COSTLY
            mask &= mask - 1
        position += LANES
    while position <= last:
        same = equal_bytes(buffer, position, text, begin, length)
        if same == length:
            return position
        spent += same + 1
        if spent > _SPENT_ANYWAY + _SPENT_A_BYTE * (position - start):
            return COSTLY
        position += 1
    return NOT_THERE


@inlined_kernel
def small_or_varint(buffer: "Buffer", position: int, end: int) -> tuple[int, int]:
    """As `read_varint`, whose answers of few bytes it gives sooner."""
    if end - position >= SHORT_ROOM:
        value, behind = read_short(buffer, position)
        if behind >= 0:
            return value, behind
    return read_varint(buffer, position, end)


@inlined_kernel
def small_or_varlong(buffer: "Buffer", position: int, end: int) -> tuple[int, int]:
    """As `read_varlong`, whose answers of few bytes it gives sooner."""
    if end - position >= SHORT_ROOM:
        value, behind = read_short(buffer, position)
        if behind >= 0:
            return value, behind
    return read_varlong(buffer, position, end)


@kernel
def has_headers(buffer: "Buffer", position: int, end: int, count: int, sought: "Sought") -> bool:
    """Whether among the `count` headers at `position`, which a walk has proved to be there, each that is asked for is found."""
    _, headers, text, spans = sought
    for wanted in range(headers.shape[1]):
        name, value = int(headers[0, wanted]), int(headers[1, wanted])
        is_there = False
        at = position
        for _ in range(count):
            length, at = read_varint(buffer, at, end)
            same = length == spans[1, name] and equal_bytes(buffer, at, text, spans[0, name], length) == length
            length, at = read_varint(buffer, at + length, end)
            if same and value != NEVER:
                same = length == spans[1, value] and equal_bytes(buffer, at, text, spans[0, value], length) == length
            at += max(length, 0)
            if same:
                is_there = True
                break
        if not is_there:
            return False
    return True


@kernel
def match_records(  # noqa: C901 - one walk; a call for each step of it would cost more than the step
    buffer: "Buffer",
    payloads: "Columns",
    first: int,
    sought: "Sought",
    out: "Columns",
    batch_of: "Columns",
) -> tuple[int, int, int]:
    """Write the records of payloads `first` and following that are `sought` to the columns of `out`: as `gather_records` does.

    (payload it stopped at, records, code). `payloads` is (PAYLOAD_ROWS, n);
    of a payload in which one of the pieces, all of which a record needs, stands nowhere nothing is looked at. It stops at a payload
    that is not right, with an error code, at one for which there is no room, with FULL, and with UNSURE at one about which it
    cannot tell; of these nothing is given.
    """
    wanted, headers, text, spans = sought
    offset_start, offset_end = int(wanted[_OFFSET_START]), int(wanted[_OFFSET_END])
    asks_time, time_start, time_end = int(wanted[_ASKS_TIME]), int(wanted[_TIME_START]), int(wanted[_TIME_END])
    key, part = int(wanted[_KEY]), int(wanted[_VALUE_PART])
    room = out.shape[1]
    given = 0
    for payload in range(first, payloads.shape[1]):
        start, end = int(payloads[_START, payload]), int(payloads[_END, payload])
        base_offset, base_timestamp = int(payloads[_BASE_OFFSET, payload]), int(payloads[_BASE_TIMESTAMP, payload])
        by_broker = int(payloads[_BY_BROKER, payload])
        if max(abs(base_offset), abs(base_timestamp)) > FAR:
            return payload, given, UNSURE
        place = start
        for piece in range(spans.shape[1] - 1, -1, -1):
            if place >= 0:
                place = find_bytes(buffer, payloads[_SEARCHED, payload], end, text, spans, piece)
        if place == COSTLY:
            return payload, given, UNSURE
        if place == NOT_THERE:
            continue
        position, records, listed = start, 0, given
        while position < end:
            length, body = small_or_varint(buffer, position, end)
            if body < 0 or length < 1 or length > end - body:
                return payload, given, OUT_OF_BOUNDS
            behind = body + length
            delta, at = small_or_varlong(buffer, body + 1, behind)
            if at < 0:
                return payload, given, MALFORMED
            offset_delta, at = small_or_varint(buffer, at, behind)
            if at < 0:
                return payload, given, MALFORMED
            key_length, key_at = small_or_varint(buffer, at, behind)
            if key_at < 0 or key_length > behind - key_at:
                return payload, given, OUT_OF_BOUNDS
            value_length, value_at = small_or_varint(buffer, key_at + max(key_length, 0), behind)
            if value_at < 0 or value_length > behind - value_at:
                return payload, given, OUT_OF_BOUNDS
            count, at = small_or_varint(buffer, value_at + max(value_length, 0), behind)
            if at < 0 or count < 0 or count > behind - at:
                return payload, given, OUT_OF_BOUNDS
            headers_at = at
            if count > 0:
                _, code, at = skip_headers(buffer, at, behind, count, _ALL)
                if code != OK:
                    return payload, given, code
            if at != behind:
                return payload, given, MALFORMED
            if abs(delta) > FAR:
                return payload, given, UNSURE
            offset, timestamp = base_offset + offset_delta, base_timestamp + delta * (1 - by_broker)
            fits = offset_start <= offset < offset_end
            if asks_time != 0:
                fits = fits and timestamp != -1 and time_start <= timestamp < time_end
            if fits and spans.shape[1] > 0:
                if place < position and place != NOT_THERE:
                    place = find_bytes(buffer, position, end, text, spans, 0)
                    if place == COSTLY:
                        return payload, given, UNSURE
                fits = place >= position and place + spans[1, 0] <= behind
            if fits and key != NEVER:
                fits = key_length == spans[1, key] and equal_bytes(buffer, key_at, text, spans[0, key], key_length) == key_length
            if fits and part != NEVER:
                at = find_bytes(buffer, value_at, value_at + max(value_length, 0), text, spans, part)
                if at == COSTLY:
                    return payload, given, UNSURE
                fits = value_length >= 0 and at >= 0
            if fits and headers.shape[1] > 0:
                fits = has_headers(buffer, headers_at, behind, count, sought)
            if fits:
                if listed >= room:
                    return payload, given, FULL
                out[_POSITION, listed] = position
                out[_SIZE, listed] = behind - position
                out[_ATTRIBUTES, listed] = byte_at(buffer, body) - ((byte_at(buffer, body) & 0x80) << 1)
                out[_TIMESTAMP_DELTA, listed] = delta
                out[_OFFSET_DELTA, listed] = offset_delta
                out[_KEY_POSITION, listed] = key_at
                out[_KEY_LENGTH, listed] = max(key_length, -1)
                out[_VALUE_POSITION, listed] = value_at
                out[_VALUE_LENGTH, listed] = max(value_length, -1)
                out[_HEADERS_POSITION, listed] = headers_at
                out[_HEADERS_COUNT, listed] = count
                batch_of[listed] = payload
                listed += 1
            position = behind
            records += 1
        if records != payloads[_RECORDS_COUNT, payload]:
            return payload, given, COUNT_LIE
        given = listed
    return payloads.shape[1], given, OK


@kernel
def mark_holding(
    buffer: "Buffer", starts: "Columns", sizes: "Columns", text: "Bytes", spans: "Columns", holding: "Columns"
) -> None:
    """Set 1 in `holding` for each stretch of `buffer` in which all pieces stand, or may, and 0 for any other."""
    for stretch in range(len(starts)):
        place = 0
        for piece in range(spans.shape[1]):
            if place != NOT_THERE:
                place = find_bytes(buffer, starts[stretch], starts[stretch] + sizes[stretch], text, spans, piece)
        holding[stretch] = 0 if place == NOT_THERE else 1


@kernel
def move_records(buffer: "Buffer", columns: "Columns", out: "Bytes", at: int) -> int:
    """Copy the bytes of records to `out`, which has room, from `at` on, and let their columns say so: the position behind them."""
    for record in range(columns.shape[1]):
        position, size = int(columns[_POSITION, record]), int(columns[_SIZE, record])
        for index in range(size):
            out[at + index] = byte_at(buffer, position + index)
        columns[_POSITION, record] = at
        columns[_KEY_POSITION, record] += at - position
        columns[_VALUE_POSITION, record] += at - position
        columns[_HEADERS_POSITION, record] += at - position
        at += size
    return at
