"""Records of a magic 2 payload of any size: at most 16 MiB of it are held, whatever its records say about themselves.

A record larger than that is measured field by field while its bytes pass. After a record that is not right the walk goes on
behind it, if the length before it can be believed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.model.batches import RECORD_COLUMNS, RECORD_ROWS, RecordColumn
from kafka_forensics.model.constants import (
    BATCH_HEADER,
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
    COUNT_LIE,
    FULL,
    MALFORMED,
    MORE,
    OK,
    OUT_OF_BOUNDS,
    VARINT_OVERLONG,
    read_varint,
    read_varlong,
    readable,
    scan_records,
    skip_headers,
)
from kafka_forensics.parsers.log.codecs import HELD_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray


_LEAST_ROWS: Final = 64
"""Of a matrix whose batch declares fewer records: its count may be a lie."""
MAX_BAD_RECORDS: Final = 64
"""Bad records after which the rest of a batch is given up."""
_VARINT_BYTES: Final = 10
_OVERLONG: Final = -2


class RecordStream:
    """Walks the records of one payload, once: `window` is its beginning, `pieces` the rest (None: there is no more).

    `count` is what the batch's header promises. Afterwards `records` tells how many were right, `code` what was wrong first
    (`kernels.records`), `error_index` and `error_position` where, counted in records and in bytes of the payload.
    """

    def __init__(
        self, window: bytes | memoryview, pieces: Iterator[bytes] | None, count: int, *, held_bytes: int = HELD_BYTES
    ) -> None:
        self.records = 0
        self.code = OK
        self.error_index = -1
        self.error_position = -1
        self._bad = 0
        self._gave_up = False
        self._count = count
        self._bytes = _PassingBytes(window, pieces)
        self._held_bytes = held_bytes
        self._is_large = pieces is not None
        self._compiled = using_compiled() or self._is_large

    def check(self) -> None:
        """Walk to the end, keeping nothing."""
        for _ in self._walk(np.empty((RECORD_COLUMNS, 1), np.int64), 0):
            pass

    def windows(self) -> Iterator[tuple[bytes | memoryview | None, "NDArray[np.int64]"]]:
        """(bytes the positions count in, matrix of at most 8192 records) in order; None with one record too large to hold.

        The matrix is used again for the next window.
        """
        rows = min(max(self._count, _LEAST_ROWS), RECORD_ROWS)
        return self._walk(np.empty((RECORD_COLUMNS, rows), np.int64), 1)

    def _walk(self, out: "NDArray[np.int64]", step: int) -> Iterator[tuple[bytes | memoryview | None, "NDArray[np.int64]"]]:
        passing = self._bytes
        while self._bad < MAX_BAD_RECORDS:
            passing.hold(self._held_bytes)
            if passing.at == len(passing.window):
                break
            code = MORE
            if passing.is_last or self._next_record_fits():
                records, code, at = self._scan(out, step)
                self.records += records
                if records and step:
                    yield passing.window, out[:, :records]
                passing.at = at
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
            if not self._passes(code, out, is_large=is_large):
                break
        self._compare_count()

    def _next_record_fits(self) -> bool:
        passing = self._bytes
        length, body = read_varint.interpreted(passing.window, passing.at, len(passing.window))
        return bool(body >= 0 and length <= len(passing.window) - body)

    def _scan(self, out: "NDArray[np.int64]", step: int) -> tuple[int, int, int]:
        passing = self._bytes
        window = readable(passing.window, compiled=self._compiled)
        plain = scan_records if self._compiled else scan_records.interpreted
        scan = scan_records.compiled if self._is_large else plain
        records, code, at = scan(window, passing.at, len(passing.window), passing.is_last, out, step)
        return records, code, at

    def _passes(self, code: int, out: "NDArray[np.int64]", *, is_large: bool) -> bool:
        """Note a bad record and go on behind it, if that can be; a large one is passed already, or nobody knows where it ends."""
        if is_large:
            return self._note(code, out[RecordColumn.POSITION, 0]) and not self._gave_up
        return self._note(code, self._bytes.position) and self._skip_record()

    def _compare_count(self) -> None:
        if self.code == OK and self.records != self._count:
            self.code, self.error_index, self.error_position = COUNT_LIE, self.records, self._bytes.position

    def _note(self, code: int, position: int) -> bool:
        """Keep the first fault; whether the walk may go on behind it. What follows the last counted record speaks of the count."""
        index = self.records + self._bad
        self._bad += 1
        if self.code == OK:
            beyond = index >= self._count
            self.code, self.error_index, self.error_position = (COUNT_LIE if beyond else code), index, int(position)
        return index < self._count

    def _skip_record(self) -> bool:
        """Pass the record at hand by its length; False if that cannot be believed."""
        passing = self._bytes
        length, body = read_varint.interpreted(passing.window, passing.at, len(passing.window))
        if body < 0 or not 0 <= length <= len(passing.window) - body:
            return False
        passing.at = body + length
        return True

    def _measure(self, out: "NDArray[np.int64]") -> int:
        """Pass the record at hand, which the window cannot hold, and write its sizes to column 0 of `out`: OK or error."""
        passing = self._bytes
        start = passing.position
        out[:, 0] = -1
        out[RecordColumn.POSITION, 0] = start
        length, code = passing.varint(read_varint, None)
        if code != OK or length < 0:
            self._gave_up = True
            return OUT_OF_BOUNDS if code == OK else code
        end = passing.position + length
        code = _measure_body(passing, end, out, self._held_bytes)
        if not passing.skip(end - passing.position):
            self._gave_up = True
            return OUT_OF_BOUNDS
        out[RecordColumn.SIZE_IN_BYTES, 0] = end - start
        return code


def _measure_body(passing: "_PassingBytes", end: int, out: "NDArray[np.int64]", held_bytes: int) -> int:
    """Pass the fields of a record whose body ends at payload position `end`: OK or error."""
    passing.hold(1)
    if passing.position >= end or passing.at == len(passing.window):
        return MALFORMED
    attributes = passing.window[passing.at]
    out[RecordColumn.ATTRIBUTES, 0] = attributes - ((attributes & 0x80) << 1)
    passing.at += 1
    for column, kernel in ((RecordColumn.TIMESTAMP_DELTA, read_varlong), (RecordColumn.OFFSET_DELTA, read_varint)):
        out[column, 0], code = passing.varint(kernel, end)
        if code != OK:
            return code
    for column in (RecordColumn.KEY_LENGTH, RecordColumn.VALUE_LENGTH):
        length, code = passing.sized(end)
        if code != OK:
            return code
        out[column, 0] = max(length, -1)
    count, code = passing.varint(read_varint, end)
    if code != OK:
        return code
    if not 0 <= count <= end - passing.position:
        return OUT_OF_BOUNDS
    out[RecordColumn.HEADERS_COUNT, 0] = count
    code = _measure_headers(passing, end, count, held_bytes)
    if code == OK and passing.position != end:
        return MALFORMED
    return code


def _measure_headers(passing: "_PassingBytes", end: int, count: int, held_bytes: int) -> int:
    """Pass `count` headers: OK or error."""
    while count > 0:
        passing.hold(held_bytes)
        limit = min(len(passing.window), passing.at + end - passing.position)
        final = passing.is_last or limit < len(passing.window)
        buffer = readable(passing.window, compiled=True)
        headers, code, at = skip_headers.compiled(buffer, passing.at, limit, count, final)
        passing.at = at
        count -= headers
        if code == MORE and headers == 0:
            length, code = passing.sized(end)
            if code == OK and length < 0:
                code = OUT_OF_BOUNDS
            if code == OK:
                _, code = passing.sized(end)
            count -= 1
        if code not in (OK, MORE):
            return int(code)
    return OK


class _PassingBytes:
    """Bytes of a payload that come in pieces; `at` is where in `window` the next of them stands."""

    def __init__(self, window: bytes | memoryview, pieces: Iterator[bytes] | None) -> None:
        self.window = window
        self.at = 0
        self.is_last = pieces is None
        """Whether nothing follows the window."""
        self._pieces = pieces
        self._start = 0

    @property
    def position(self) -> int:
        """How many bytes of the payload have passed."""
        return self._start + self.at

    def hold(self, size: int) -> None:
        """Make the window hold `size` bytes from `at`, or all there are."""
        held = len(self.window) - self.at
        if self.is_last or held >= size:
            return
        parts: list[bytes | memoryview] = [self.window[self.at :]]
        self._start += self.at
        self.at = 0
        while held < size:
            piece = self._next()
            if piece is None:
                break
            parts.append(piece)
            held += len(piece)
        self.window = b"".join(parts)

    def skip(self, size: int) -> bool:
        """Pass `size` bytes without holding them; False if the payload ends before."""
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
        """(value, OK or error) of the varint at hand, read by `kernel`; it may not pass payload position `end`."""
        self.hold(_VARINT_BYTES)
        limit = len(self.window) if end is None else min(len(self.window), self.at + end - self.position)
        value, after = kernel.interpreted(self.window, self.at, limit)
        if after < 0:
            short = OUT_OF_BOUNDS if end is None else MALFORMED
            return 0, VARINT_OVERLONG if after == _OVERLONG else short
        self.at = after
        return value, OK

    def sized(self, end: int) -> tuple[int, int]:
        """(length, OK or error) of the bytes at hand behind their length, which are passed; negative is null."""
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


# Records of a small uncompressed batch, read by hand in one walk: the fast twin of `log.records` for internal topics.
#
# A coordinator's log holds a million batches of one record, where opening each one costs more than reading it.


class PlainRecord(NamedTuple):
    """What a record says; `timestamp` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def plain_records(batch: bytes) -> list[PlainRecord] | None:
    """The records of a whole magic 2 batch, if it is plain and without fault; None leaves it to `decode_batch`.

    Plain is: not compressed, no control batch, no record headers.
    """
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
    """(zig-zag integer of 32 or 64 bits, position behind it). Raises IndexError behind the end and ValueError if it is too long."""
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
    """(bytes behind their length, None for null; position behind them). Raises ValueError if they are not there."""
    size, at = _varint(data, at, 5)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise ValueError
    return data[at : at + size], at + size
