"""Magic 0 and 1: single messages, and wrappers whose value is a compressed message set (AbstractLegacyRecordBatch)."""

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from kafka_forensics.model.batches import (
    NO_TIMESTAMP_TYPE,
    RECORD_COLUMNS,
    RECORD_ROWS,
    RECORD_TIMESTAMP_TYPES,
    TIMESTAMP_TYPES,
    Damage,
    Record,
    RecordColumn,
)
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    LEGACY_V0_OVERHEAD,
    LEGACY_V1_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_OFFSET,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
)
from kafka_forensics.parsers.kernels.records import (
    FULL,
    INNER_CRC,
    NESTED,
    OK,
    RECORD_KINDS,
    check_message,
    readable,
    scan_messages,
)
from kafka_forensics.parsers.log.codecs import decompress
from kafka_forensics.parsers.log.damage import Detail
from kafka_forensics.parsers.spec.batch_header import as_int64

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEGACY_HELD_BYTES: Final = 64 << 20
"""Most decompressed bytes of a wrapper; the offset of its first message needs all of them at once."""
MAX_BAD_MESSAGES: Final = 64
"""Invalid inner messages after which the rest of a wrapper is not read."""
_HEADER: Final = struct.Struct(">qiIbb")
_INT64: Final = struct.Struct(">q")


class _EntryHeader(NamedTuple):
    offset: int
    size: int
    crc: int
    magic: int
    attributes: int


class LegacyWrapper(Struct):
    """An opened legacy entry: a compressed wrapper with its inner messages, or a single plain message.

    `base_offset` and `last_offset` are absolute and inclusive; both are the entry's offset if no inner message can be read or the
    last is missing. `records_count` is the number of messages present. `payload` is the message set.
    """

    base_offset: int
    last_offset: int
    records_count: int
    payload: bytes | memoryview
    magic: int
    timestamp: int
    timestamp_type: str
    offset_shift: int | None
    """Added to inner offsets, makes them absolute; None if unknown: then records have offset -1."""
    problems: list[Damage] = field(default_factory=list)
    is_wrapper: bool = True

    def iter_records(self) -> Iterator[Record]:
        """The messages in order, including damaged ones with a valid length."""
        for columns in self.iter_columns():
            absolute = np.stack(self.absolute(columns), axis=1).tolist()
            yield from map(self._record, columns.T.tolist(), absolute)

    def iter_columns(self) -> "Iterator[NDArray[np.int64]]":
        """The messages as (RECORD_COLUMNS, n) matrices of at most 8192; positions count in `payload`."""
        return _Messages(self.payload, is_wrapper=self.is_wrapper).walk(1)

    def absolute(self, columns: "NDArray[np.int64]") -> "tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]":
        """(offsets, timestamps, indexes in RECORD_TIMESTAMP_TYPES) of messages, from their columns."""
        has_timestamp = np.frombuffer(self.payload, np.uint8)[columns[RecordColumn.POSITION] + MAGIC_AT] == 1
        by_broker = self.is_wrapper and self.timestamp_type == TIMESTAMP_TYPES[1]
        timestamps = np.where(has_timestamp & by_broker, self.timestamp, columns[RecordColumn.TIMESTAMP_DELTA])
        timestamp_type, no_type = map(RECORD_TIMESTAMP_TYPES.index, (self.timestamp_type, NO_TIMESTAMP_TYPE))
        types = np.where(has_timestamp, timestamp_type, no_type).astype(np.int8)
        if self.offset_shift is None:
            return np.full(columns.shape[1], NO_OFFSET), timestamps, types
        return columns[RecordColumn.OFFSET_DELTA] + as_int64(self.offset_shift), timestamps, types

    def _record(self, row: list[int], absolute: list[int]) -> Record:
        offset, timestamp, timestamp_type = absolute
        key_length, value_length = row[RecordColumn.KEY_LENGTH], row[RecordColumn.VALUE_LENGTH]
        key_at, value_at = row[RecordColumn.KEY_POSITION], row[RecordColumn.VALUE_POSITION]
        return Record(
            offset=offset,
            timestamp=timestamp,
            timestamp_type=RECORD_TIMESTAMP_TYPES[timestamp_type],
            sequence=NO_SEQUENCE,
            key=None if key_length < 0 else bytes(self.payload[key_at : key_at + key_length]),
            value=None if value_length < 0 else bytes(self.payload[value_at : value_at + value_length]),
            headers=(),
            size_in_bytes=row[RecordColumn.SIZE_IN_BYTES],
            key_length=key_length,
            value_length=value_length,
        )


def open_wrapper(entry: bytes | memoryview, position: int = 0) -> LegacyWrapper:
    """Open one whole entry of magic 0 or 1 at byte `position` of its file. Accepts any bytes."""
    view = memoryview(entry)
    minimum = LEGACY_V0_OVERHEAD
    if len(view) >= LOG_OVERHEAD + minimum and view[MAGIC_AT] == 1:
        minimum = LEGACY_V1_OVERHEAD
    declared = int.from_bytes(view[8:LOG_OVERHEAD], "big", signed=True)
    if len(view) < LOG_OVERHEAD + minimum or view[MAGIC_AT] > 1 or declared < minimum:
        opened = LegacyWrapper(NO_OFFSET, NO_OFFSET, 0, b"", 0, NO_TIMESTAMP, NO_TIMESTAMP_TYPE, None)
        opened.problems.append(Damage("RECORD_MALFORMED", position, len(view), detail={"reason": "header"}))
        return opened
    header = _EntryHeader(*_HEADER.unpack_from(view))
    view = view[: LOG_OVERHEAD + header.size]
    timestamp = _INT64.unpack_from(view, LOG_OVERHEAD + 6)[0] if header.magic == 1 else NO_TIMESTAMP
    timestamp_type = TIMESTAMP_TYPES[bool(header.attributes & TIMESTAMP_TYPE_MASK)] if header.magic == 1 else NO_TIMESTAMP_TYPE
    opened = LegacyWrapper(header.offset, header.offset, 0, b"", header.magic, timestamp, timestamp_type, 0)
    fields = np.empty((RECORD_COLUMNS, 1), np.int64)
    code = check_message.interpreted(view, 0, len(view), fields, 0)
    fault: tuple[str, Detail] | None = None
    if code != OK:
        fault = RECORD_KINDS[code], {"record_index": 0}
    elif not header.attributes & COMPRESSION_MASK:
        opened.payload, opened.records_count, opened.is_wrapper = view, 1, False
    else:
        fault = _open_value(opened, view, header, fields[:, 0])
    if fault is not None:
        opened.problems.append(Damage(fault[0], position, len(view), opened.base_offset, opened.last_offset, fault[1]))
    return opened


def _open_value(
    opened: LegacyWrapper, view: memoryview, header: _EntryHeader, fields: "NDArray[np.int64]"
) -> tuple[str, Detail] | None:
    """Decompress the value of a wrapper and find the offsets of its messages; (finding kind, detail) of the first fault."""
    length, start = int(fields[RecordColumn.VALUE_LENGTH]), int(fields[RecordColumn.VALUE_POSITION])
    if length < 0:
        return "RECORD_MALFORMED", {"reason": "null_value"}
    codec = header.attributes & COMPRESSION_MASK
    plain = decompress(codec, view[start : start + length], magic=header.magic, limit=LEGACY_HELD_BYTES)
    opened.payload = plain.data
    messages = _Messages(plain.data, is_wrapper=True)
    for _ in messages.walk(0):
        pass
    opened.records_count = messages.count
    is_complete = plain.problem is None and not messages.gave_up
    if messages.count:
        opened.offset_shift = _offset_shift(header, messages.last_offset, is_complete=is_complete)
        if opened.offset_shift is not None:
            opened.base_offset = as_int64(opened.offset_shift + messages.first_offset)
            opened.last_offset = as_int64(opened.offset_shift + messages.last_offset)
    if plain.problem is not None:
        return plain.problem, plain.detail
    if messages.code != OK:
        reason = {INNER_CRC: "inner_crc", NESTED: "nested"}.get(messages.code, "inner_message")
        detail: Detail = {"reason": reason, "record_index": messages.error_index}
        return RECORD_KINDS[messages.code], detail | {"payload_position": messages.error_position}
    if not messages.count:
        return "RECORD_MALFORMED", {"reason": "empty"}
    if header.magic == 1 and 0 != header.offset < messages.last_offset:
        return "RECORD_MALFORMED", {"reason": "inner_offset", "inner_offset": messages.last_offset}
    return None


def _offset_shift(header: _EntryHeader, last_inner_offset: int, *, is_complete: bool) -> int | None:
    """The `offset_shift`: a magic 1 wrapper has the offset of its last message; 0 instead is a bug of old clients."""
    if header.magic == 0 or header.offset == 0:
        return 0
    return header.offset - last_inner_offset if is_complete else None


class _Messages:
    """One walk over a message set; its attributes are valid after the walk."""

    def __init__(self, payload: bytes | memoryview, *, is_wrapper: bool) -> None:
        self._payload = memoryview(payload)
        self._is_wrapper = is_wrapper
        self.count = 0
        self.first_offset = self.last_offset = NO_OFFSET
        self.code = OK
        self.error_index = self.error_position = -1
        self.gave_up = False

    def walk(self, step: int) -> "Iterator[NDArray[np.int64]]":
        """Matrices of at most 8192 messages; with `step` 0 each has only the last message."""
        out = np.empty((RECORD_COLUMNS, RECORD_ROWS if step else 1), np.int64)
        if not self._is_wrapper:
            check_message.interpreted(self._payload, 0, len(self._payload), out, 0)
            yield out[:, :1]
            return
        buffer = readable(self._payload)
        at, bad = 0, 0
        while True:
            start = at
            messages, code, at = scan_messages(buffer, start, len(self._payload), out, step)
            if code in (NESTED, INNER_CRC):
                messages += 1
            if messages:
                last = int(out[RecordColumn.OFFSET_DELTA, (messages - 1) * step])
                if self.count == 0:
                    self.first_offset = _INT64.unpack_from(self._payload, start)[0]
                self.count += messages
                self.last_offset = last
                yield out[:, : messages if step else 1]
            if code == FULL:
                continue
            if code == OK:
                return
            if self.code == OK:
                framed = code in (NESTED, INNER_CRC)
                self.code, self.error_index, self.error_position = code, self.count - framed, at
            bad += 1
            next_position = self._next_entry(at)
            if bad == MAX_BAD_MESSAGES or next_position < 0:
                self.gave_up = True
                return
            self.last_offset = _INT64.unpack_from(self._payload, at)[0]
            at = next_position

    def _next_entry(self, position: int) -> int:
        """Position of the entry after the one at `position`, -1 if that one's size is wrong."""
        size = _HEADER.unpack_from(self._payload, position)[1] if len(self._payload) - position >= _HEADER.size else -1
        return position + LOG_OVERHEAD + size if 0 <= size <= len(self._payload) - position - LOG_OVERHEAD else -1
