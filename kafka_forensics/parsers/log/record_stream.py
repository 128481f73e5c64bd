"""Records of a magic 2 payload of any size, with at most 16 MiB of it in memory.

For a larger record only the sizes of its fields are read. After an invalid record the walk continues at the next one, if the length
of the record is plausible.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.model.batches import RECORD_COLUMNS, RECORD_ROWS, RecordColumn
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    INT64_MAX,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)
from kafka_forensics.parsers.kernels.compiling import Kernel, using_compiled
from kafka_forensics.parsers.kernels.records import (
    FULL,
    MALFORMED,
    MORE,
    OK,
    OUT_OF_BOUNDS,
    OVERLONG,
    VARINT_OVERLONG,
    WRONG_COUNT,
    read_varint,
    read_varlong,
    readable,
    scan_records,
    skip_headers,
)
from kafka_forensics.parsers.log.codecs import HELD_BYTES
from kafka_forensics.parsers.spec.batch_header import BATCH_HEADER

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MIN_ROWS: Final = 64
"""Rows of the matrix if the header declares fewer records: its count may be wrong."""
MAX_BAD_RECORDS: Final = 64
"""Invalid records after which the rest of a batch is not read."""
_VARINT_BYTES: Final = 10


class RecordStream:
    """One walk over the records of a payload: `window` is its beginning, `pieces` the rest, or None.

    `count` is the number of records in the batch's header. After the walk `records` is the number of valid records, `code` the
    first fault (`kernels.records`), `error_index` and `error_position` its place, in records and in bytes of the payload.
    """

    def __init__(
        self, window: bytes | memoryview, pieces: Iterator[bytes] | None, count: int, *, held_bytes: int = HELD_BYTES
    ) -> None:
        self.records = 0
        self.code = OK
        self.error_index = -1
        self.error_position = -1
        self._bad = 0
        self._lost_end = False
        self._count = count
        self._payload = _PayloadReader(window, pieces)
        self._held_bytes = held_bytes
        self._is_large = pieces is not None
        self._compiled = using_compiled() or self._is_large

    def check(self) -> None:
        """Walk to the end without output."""
        for _ in self._walk(np.empty((RECORD_COLUMNS, 1), np.int64), 0):
            pass

    def windows(self) -> Iterator[tuple[bytes | memoryview | None, "NDArray[np.int64]"]]:
        """(bytes in which positions count, matrix of at most 8192 records) in order; None with one record that is too large.

        The next matrix overwrites each.
        """
        rows = min(max(self._count, _MIN_ROWS), RECORD_ROWS)
        return self._walk(np.empty((RECORD_COLUMNS, rows), np.int64), 1)

    def _walk(self, out: "NDArray[np.int64]", step: int) -> Iterator[tuple[bytes | memoryview | None, "NDArray[np.int64]"]]:
        payload = self._payload
        while self._bad < MAX_BAD_RECORDS:
            payload.hold(self._held_bytes)
            if payload.at == len(payload.window):
                break
            code = MORE
            if payload.is_last or self._next_record_fits():
                records, code, at = self._scan(out, step)
                self.records += records
                if records and step:
                    yield payload.window, out[:, :records]
                payload.at = at
                if code in (OK, FULL) or (code == MORE and records):
                    continue
            is_large = code == MORE
            if is_large:
                code = self._measure(out)
                if code == OK:
                    self.records += 1
                    if step:
                        yield None, out[:, :1]
                    continue
            if is_large:  # the record is skipped already, unless its end is unknown
                may_continue = self._note(code, out[RecordColumn.POSITION, 0]) and not self._lost_end
            else:
                may_continue = self._note(code, payload.position) and self._skip_record()
            if not may_continue:
                break
        if self.code == OK and self.records != self._count:
            self.code, self.error_index, self.error_position = WRONG_COUNT, self.records, payload.position

    def _next_record_fits(self) -> bool:
        payload = self._payload
        length, body = read_varint.interpreted(payload.window, payload.at, len(payload.window))
        return bool(body >= 0 and length <= len(payload.window) - body)

    def _scan(self, out: "NDArray[np.int64]", step: int) -> tuple[int, int, int]:
        payload = self._payload
        window = readable(payload.window, compiled=self._compiled)
        plain = scan_records if self._compiled else scan_records.interpreted
        scan = scan_records.compiled if self._is_large else plain
        records, code, at = scan(window, payload.at, len(payload.window), payload.is_last, out, step)
        return records, code, at

    def _note(self, code: int, position: int) -> bool:
        """Note the first fault; returns whether the walk may continue. A fault after the last counted record is WRONG_COUNT."""
        index = self.records + self._bad
        self._bad += 1
        if self.code == OK:
            beyond = index >= self._count
            self.code, self.error_index, self.error_position = (WRONG_COUNT if beyond else code), index, int(position)
        return index < self._count

    def _skip_record(self) -> bool:
        """Skip the current record by its length; False if that is wrong."""
        payload = self._payload
        length, body = read_varint.interpreted(payload.window, payload.at, len(payload.window))
        if body < 0 or not 0 <= length <= len(payload.window) - body:
            return False
        payload.at = body + length
        return True

    def _measure(self, out: "NDArray[np.int64]") -> int:
        """Skip the current record, which exceeds the window, and write its sizes to column 0 of `out`: OK or error."""
        payload = self._payload
        start = payload.position
        out[:, 0] = -1
        out[RecordColumn.POSITION, 0] = start
        length, code = payload.varint(read_varint, None)
        if code != OK or length < 0:
            self._lost_end = True
            return OUT_OF_BOUNDS if code == OK else code
        end = payload.position + length
        code = _measure_body(payload, end, out, self._held_bytes)
        if not payload.skip(end - payload.position):
            self._lost_end = True
            return OUT_OF_BOUNDS
        out[RecordColumn.SIZE_IN_BYTES, 0] = end - start
        return code


def _measure_body(payload: "_PayloadReader", end: int, out: "NDArray[np.int64]", held_bytes: int) -> int:
    """Skip the fields of a record whose body ends at payload position `end`: OK or error."""
    payload.hold(1)
    if payload.position >= end or payload.at == len(payload.window):
        return MALFORMED
    attributes = payload.window[payload.at]
    out[RecordColumn.ATTRIBUTES, 0] = attributes - ((attributes & 0x80) << 1)
    payload.at += 1
    for column, kernel in ((RecordColumn.TIMESTAMP_DELTA, read_varlong), (RecordColumn.OFFSET_DELTA, read_varint)):
        out[column, 0], code = payload.varint(kernel, end)
        if code != OK:
            return code
    for column in (RecordColumn.KEY_LENGTH, RecordColumn.VALUE_LENGTH):
        length, code = payload.sized(end)
        if code != OK:
            return code
        out[column, 0] = max(length, -1)
    count, code = payload.varint(read_varint, end)
    if code != OK:
        return code
    if not 0 <= count <= end - payload.position:
        return OUT_OF_BOUNDS
    out[RecordColumn.HEADERS_COUNT, 0] = count
    code = _measure_headers(payload, end, count, held_bytes)
    if code == OK and payload.position != end:
        return MALFORMED
    return code


def _measure_headers(payload: "_PayloadReader", end: int, count: int, held_bytes: int) -> int:
    """Skip `count` headers: OK or error."""
    while count > 0:
        payload.hold(held_bytes)
        limit = min(len(payload.window), payload.at + end - payload.position)
        final = payload.is_last or limit < len(payload.window)
        buffer = readable(payload.window, compiled=True)
        headers, code, at = skip_headers.compiled(buffer, payload.at, limit, count, final)
        payload.at = at
        count -= headers
        if code == MORE and headers == 0:
            length, code = payload.sized(end)
            if code == OK and length < 0:
                code = OUT_OF_BOUNDS
            if code == OK:
                _, code = payload.sized(end)
            count -= 1
        if code not in (OK, MORE):
            return int(code)
    return OK


class _PayloadReader:
    """Reads a payload that comes in pieces; `at` is the current position in `window`."""

    def __init__(self, window: bytes | memoryview, pieces: Iterator[bytes] | None) -> None:
        self.window = window
        self.at = 0
        self.is_last = pieces is None
        """Whether nothing follows the window."""
        self._pieces = pieces
        self._start = 0

    @property
    def position(self) -> int:
        """The current position in the payload."""
        return self._start + self.at

    def hold(self, size: int) -> None:
        """Extend the window to `size` bytes from `at`, or to the end of the payload."""
        available = len(self.window) - self.at
        if self.is_last or available >= size:
            return
        parts: list[bytes | memoryview] = [self.window[self.at :]]
        self._start += self.at
        self.at = 0
        while available < size:
            piece = self._next()
            if piece is None:
                break
            parts.append(piece)
            available += len(piece)
        self.window = b"".join(parts)

    def skip(self, size: int) -> bool:
        """Skip `size` bytes without keeping them; False if the payload ends before."""
        while size > len(self.window) - self.at:
            size -= len(self.window) - self.at
            self._start += len(self.window)
            self.at = 0
            piece = self._next()
            self.window = piece or b""
            if piece is None:
                return False
        self.at += size
        return True

    def varint(self, kernel: Kernel[tuple[int, int]], end: int | None) -> tuple[int, int]:
        """(value, OK or error) of the varint at the current position; it must end before payload position `end`."""
        self.hold(_VARINT_BYTES)
        limit = len(self.window) if end is None else min(len(self.window), self.at + end - self.position)
        value, after = kernel.interpreted(self.window, self.at, limit)
        if after < 0:
            short = OUT_OF_BOUNDS if end is None else MALFORMED
            return 0, VARINT_OVERLONG if after == OVERLONG else short
        self.at = after
        return value, OK

    def sized(self, end: int) -> tuple[int, int]:
        """Skip bytes that a length precedes: (length, OK or error); negative is null."""
        length, code = self.varint(read_varint, end)
        if code == OK and length > end - self.position:
            return length, OUT_OF_BOUNDS
        if code == OK:
            self.skip(max(length, 0))
        return length, code

    def _next(self) -> bytes | None:
        piece = None if self._pieces is None else next(self._pieces, None)
        self.is_last = piece is None
        return piece


# Records of a small uncompressed batch, in one walk: the fast twin of `log.records` for internal topics.
#
# A coordinator's log has a million batches of one record, for which `decode_batch` would take longer than this.


class PlainRecord(NamedTuple):
    """A record; `timestamp` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def plain_records(batch: bytes) -> list[PlainRecord] | None:
    """The records of a whole magic 2 batch that is valid, uncompressed, no control batch and without record headers; else None."""
    if len(batch) < RECORD_BATCH_OVERHEAD or batch[MAGIC_AT] != CURRENT_MAGIC:
        return None
    base_offset, length, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = BATCH_HEADER.unpack_from(batch)
    if attributes & (COMPRESSION_MASK | CONTROL_MASK) or length + LOG_OVERHEAD != len(batch) or base_offset < 0:
        return None
    by_broker = attributes & TIMESTAMP_TYPE_MASK
    records: list[PlainRecord] = []
    at = RECORD_BATCH_OVERHEAD
    try:
        while at < len(batch):
            size, at = _varint(batch, at, 5)
            end = at + size
            timestamp_delta, at = _varint(batch, at + 1, 10)
            offset_delta, at = _varint(batch, at, 5)
            key, at = _sized(batch, at)
            value, at = _sized(batch, at)
            headers, at = _varint(batch, at, 5)
            offset, timestamp = base_offset + offset_delta, max_timestamp if by_broker else base_timestamp + timestamp_delta
            if size < 0 or headers or at != end or not 0 <= offset <= INT64_MAX or not -INT64_MAX <= timestamp <= INT64_MAX:
                return None
            records.append(PlainRecord(offset, timestamp, key, value))
    except (IndexError, ValueError):
        return None
    return records if len(records) == count else None


def _varint(data: bytes, at: int, longest: int) -> tuple[int, int]:
    """(zig-zag integer of 32 or 64 bits, position after it). Raises IndexError after the end and ValueError if it is too long."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = 0
    for index in range(longest):
        byte = data[at + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            raw &= 0xFFFFFFFF if longest == 5 else 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at + index + 1
    raise ValueError


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    """(bytes that a length precedes, None for null; position after them). Raises ValueError if they are cut."""
    size, at = _varint(data, at, 5)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise ValueError
    return data[at : at + size], at + size
