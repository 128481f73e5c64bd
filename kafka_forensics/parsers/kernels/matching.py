"""A search for bytes, and for the records of payloads that match a query, about as fast as memory is read.

Buffers are as from `records.readable`. A query consists of numbers (`Criterion`), byte strings in one array `text`, and headers.
`spans`, (4, n), has start and length in `text` of each byte string, and the two of its bytes that are compared first. `headers`,
(2, n), has the numbers of the byte strings of name and value, NO_STRING for any value.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kafka_forensics.parsers.kernels import record_column
from kafka_forensics.parsers.kernels.compiling import inlined_kernel, kernel
from kafka_forensics.parsers.kernels.crc import LANES, byte_at, lowest_bit, pair_mask
from kafka_forensics.parsers.kernels.records import (
    FULL,
    IS_COMPLETE,
    MALFORMED,
    MAX_SHORT_VARINT_BYTES,
    OK,
    OUT_OF_BOUNDS,
    WRONG_COUNT,
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
    Query = tuple[Columns, Columns, Bytes, Columns]

NOT_FOUND: Final = -1
COSTLY: Final = -2
"""No error: the search gave up, because too many long comparisons failed; a library's search has no such worst case."""
UNDECIDED: Final = 10
"""No error: this kernel cannot decide about the batch, which must be opened separately."""
NO_STRING: Final = -1
"""Instead of the number of a byte string: the query has none."""
FAR: Final = 1 << 61
"""Sums of larger offsets and times may not fit into 64 bits."""

_COMPARED_PER_BYTE: Final = 4
_COMPARED_FREE: Final = 1 << 10


class Criterion(IntEnum):
    """Position of each number of a query. Ends are exclusive; KEY and VALUE_PART are numbers of byte strings."""

    OFFSET_START = 0
    OFFSET_END = 1
    HAS_TIME = 2
    """1 if the query has a range of times, else 0; a record without a timestamp (-1) is in no range."""
    TIME_START = 3
    TIME_END = 4
    KEY = 5
    VALUE_PART = 6


class PayloadRow(IntEnum):
    """Row of the int64 matrix for each fact about a payload of magic 2."""

    SEARCH_START = 0
    """Where the search for the byte strings begins in the buffer: without all of them no record is read."""
    START = 1
    """Of the first record."""
    END = 2
    RECORDS_COUNT = 3
    BASE_OFFSET = 4
    BASE_TIMESTAMP = 5
    """The timestamp of all its records where the broker set it."""
    BY_BROKER = 6


CRITERIA: Final = len(Criterion)
PAYLOAD_ROWS: Final = len(PayloadRow)
_OFFSET_START, _OFFSET_END, _HAS_TIME, _TIME_START, _TIME_END, _KEY, _VALUE_PART = map(int, Criterion)
_SEARCH_START, _START, _END, _RECORDS_COUNT, _BASE_OFFSET, _BASE_TIMESTAMP, _BY_BROKER = map(int, PayloadRow)


@kernel
def equal_bytes(buffer: "Buffer", position: int, text: "Bytes", begin: int, length: int) -> int:
    """How many bytes at `position` equal those of `text` from `begin` on, at most `length`."""
    for index in range(length):
        if byte_at(buffer, position + index) != byte_at(text, begin + index):
            return index
    return length


@kernel
def find_bytes(buffer: "Buffer", start: int, end: int, text: "Bytes", spans: "Columns", string: int) -> int:
    """First position of the byte string `string` in `buffer[start:end]`, NOT_FOUND, or COSTLY.

    32 positions at a time are compared with its two rarest bytes; only where both are equal, all bytes are compared.
    """
    begin, length = int(spans[0, string]), int(spans[1, string])
    last = end - length
    if length == 0:
        return start
    left, right = int(spans[2, string]), int(spans[3, string])
    first, second = byte_at(text, begin + left), byte_at(text, begin + right)
    compared = 0
    position = start
    while position + right + LANES <= end:
        mask = pair_mask(buffer, position + left, right - left, first, second)
        while mask != 0:
            at = position + lowest_bit(mask)
            if at > last:
                return NOT_FOUND
            same = equal_bytes(buffer, at, text, begin, length)
            if same == length:
                return at
            compared += same + 1
            if compared > _COMPARED_FREE + _COMPARED_PER_BYTE * (at - start):
                return COSTLY
            mask &= mask - 1
        position += LANES
    while position <= last:
        same = equal_bytes(buffer, position, text, begin, length)
        if same == length:
            return position
        compared += same + 1
        if compared > _COMPARED_FREE + _COMPARED_PER_BYTE * (position - start):
            return COSTLY
        position += 1
    return NOT_FOUND


@inlined_kernel
def small_or_varint(buffer: "Buffer", position: int, end: int) -> tuple[int, int]:
    """The same as `read_varint`, faster for few bytes."""
    if end - position >= MAX_SHORT_VARINT_BYTES:
        value, after = read_short(buffer, position)
        if after >= 0:
            return value, after
    return read_varint(buffer, position, end)


@inlined_kernel
def small_or_varlong(buffer: "Buffer", position: int, end: int) -> tuple[int, int]:
    """The same as `read_varlong`, faster for few bytes."""
    if end - position >= MAX_SHORT_VARINT_BYTES:
        value, after = read_short(buffer, position)
        if after >= 0:
            return value, after
    return read_varlong(buffer, position, end)


@kernel
def has_headers(buffer: "Buffer", position: int, end: int, count: int, query: "Query") -> bool:
    """Whether the query's headers are all among the `count` headers at `position`, which a walk found valid."""
    _, headers, text, spans = query
    for wanted in range(headers.shape[1]):
        name, value = int(headers[0, wanted]), int(headers[1, wanted])
        is_found = False
        at = position
        for _ in range(count):
            length, at = read_varint(buffer, at, end)
            same = length == spans[1, name] and equal_bytes(buffer, at, text, spans[0, name], length) == length
            length, at = read_varint(buffer, at + length, end)
            if same and value != NO_STRING:
                same = length == spans[1, value] and equal_bytes(buffer, at, text, spans[0, value], length) == length
            at += max(length, 0)
            if same:
                is_found = True
                break
        if not is_found:
            return False
    return True


@kernel
def match_records(  # noqa: C901 - one walk; a call for each step of it would cost more than the step
    buffer: "Buffer",
    payloads: "Columns",
    first: int,
    query: "Query",
    out: "Columns",
    batch_of: "Columns",
) -> tuple[int, int, int]:
    """Write the records of payloads `first` and following that match `query` to the columns of `out`, as `gather_records` does.

    Returns (payload where it stopped, records, code). `payloads` is (PAYLOAD_ROWS, n). The records of a payload without all byte
    strings of the query are not read. It stops at an invalid payload, with an error code, at one that does not fit into `out`, with
    FULL, and at one about which it cannot decide, with UNDECIDED, and returns no record of that payload.
    """
    criteria, headers, text, spans = query
    offset_start, offset_end = int(criteria[_OFFSET_START]), int(criteria[_OFFSET_END])
    has_time, time_start, time_end = int(criteria[_HAS_TIME]), int(criteria[_TIME_START]), int(criteria[_TIME_END])
    key, part = int(criteria[_KEY]), int(criteria[_VALUE_PART])
    room = out.shape[1]
    written = 0
    for payload in range(first, payloads.shape[1]):
        start, end = int(payloads[_START, payload]), int(payloads[_END, payload])
        base_offset, base_timestamp = int(payloads[_BASE_OFFSET, payload]), int(payloads[_BASE_TIMESTAMP, payload])
        by_broker = int(payloads[_BY_BROKER, payload])
        if max(abs(base_offset), abs(base_timestamp)) > FAR:
            return payload, written, UNDECIDED
        found_at = start
        for string in range(spans.shape[1] - 1, -1, -1):
            if found_at >= 0:
                found_at = find_bytes(buffer, payloads[_SEARCH_START, payload], end, text, spans, string)
        if found_at == COSTLY:
            return payload, written, UNDECIDED
        if found_at == NOT_FOUND:
            continue
        position, records, listed = start, 0, written
        while position < end:
            length, body = small_or_varint(buffer, position, end)
            if body < 0 or length < 1 or length > end - body:
                return payload, written, OUT_OF_BOUNDS
            record_end = body + length
            delta, at = small_or_varlong(buffer, body + 1, record_end)
            if at < 0:
                return payload, written, MALFORMED
            offset_delta, at = small_or_varint(buffer, at, record_end)
            if at < 0:
                return payload, written, MALFORMED
            key_length, key_at = small_or_varint(buffer, at, record_end)
            if key_at < 0 or key_length > record_end - key_at:
                return payload, written, OUT_OF_BOUNDS
            value_length, value_at = small_or_varint(buffer, key_at + max(key_length, 0), record_end)
            if value_at < 0 or value_length > record_end - value_at:
                return payload, written, OUT_OF_BOUNDS
            count, at = small_or_varint(buffer, value_at + max(value_length, 0), record_end)
            if at < 0 or count < 0 or count > record_end - at:
                return payload, written, OUT_OF_BOUNDS
            headers_at = at
            if count > 0:
                _, code, at = skip_headers(buffer, at, record_end, count, IS_COMPLETE)
                if code != OK:
                    return payload, written, code
            if at != record_end:
                return payload, written, MALFORMED
            if abs(delta) > FAR:
                return payload, written, UNDECIDED
            offset, timestamp = base_offset + offset_delta, base_timestamp + delta * (1 - by_broker)
            fits = offset_start <= offset < offset_end
            if has_time != 0:
                fits = fits and timestamp != -1 and time_start <= timestamp < time_end
            if fits and spans.shape[1] > 0:
                if found_at < position and found_at != NOT_FOUND:
                    found_at = find_bytes(buffer, position, end, text, spans, 0)
                    if found_at == COSTLY:
                        return payload, written, UNDECIDED
                fits = found_at >= position and found_at + spans[1, 0] <= record_end
            if fits and key != NO_STRING:
                fits = key_length == spans[1, key] and equal_bytes(buffer, key_at, text, spans[0, key], key_length) == key_length
            if fits and part != NO_STRING:
                at = find_bytes(buffer, value_at, value_at + max(value_length, 0), text, spans, part)
                if at == COSTLY:
                    return payload, written, UNDECIDED
                fits = value_length >= 0 and at >= 0
            if fits and headers.shape[1] > 0:
                fits = has_headers(buffer, headers_at, record_end, count, query)
            if fits:
                if listed >= room:
                    return payload, written, FULL
                out[record_column.POSITION, listed] = position
                out[record_column.SIZE_IN_BYTES, listed] = record_end - position
                out[record_column.ATTRIBUTES, listed] = byte_at(buffer, body) - ((byte_at(buffer, body) & 0x80) << 1)
                out[record_column.TIMESTAMP_DELTA, listed] = delta
                out[record_column.OFFSET_DELTA, listed] = offset_delta
                out[record_column.KEY_POSITION, listed] = key_at
                out[record_column.KEY_LENGTH, listed] = max(key_length, -1)
                out[record_column.VALUE_POSITION, listed] = value_at
                out[record_column.VALUE_LENGTH, listed] = max(value_length, -1)
                out[record_column.HEADERS_POSITION, listed] = headers_at
                out[record_column.HEADERS_COUNT, listed] = count
                batch_of[listed] = payload
                listed += 1
            position = record_end
            records += 1
        if records != payloads[_RECORDS_COUNT, payload]:
            return payload, written, WRONG_COUNT
        written = listed
    return payloads.shape[1], written, OK


@kernel
def mark_containing(
    buffer: "Buffer", starts: "Columns", sizes: "Columns", text: "Bytes", spans: "Columns", contains: "Columns"
) -> None:
    """Set `contains` to 1 for each range of `buffer` that contains all byte strings, or may, and to 0 for any other."""
    for index in range(len(starts)):
        found_at = 0
        for string in range(spans.shape[1]):
            if found_at != NOT_FOUND:
                found_at = find_bytes(buffer, starts[index], starts[index] + sizes[index], text, spans, string)
        contains[index] = 0 if found_at == NOT_FOUND else 1


@kernel
def move_records(buffer: "Buffer", columns: "Columns", out: "Bytes", at: int) -> int:
    """Copy the bytes of records to `out` from `at` on and adjust their columns; returns the position after them."""
    for record in range(columns.shape[1]):
        position, size = int(columns[record_column.POSITION, record]), int(columns[record_column.SIZE_IN_BYTES, record])
        for index in range(size):
            out[at + index] = byte_at(buffer, position + index)
        columns[record_column.POSITION, record] = at
        columns[record_column.KEY_POSITION, record] += at - position
        columns[record_column.VALUE_POSITION, record] += at - position
        columns[record_column.HEADERS_POSITION, record] += at - position
        at += size
    return at
