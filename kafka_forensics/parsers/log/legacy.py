"""Magic 0 and 1: single messages, and wrappers whose value is a compressed message set (AbstractLegacyRecordBatch)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

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

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEGACY_HELD_BYTES: Final = 64 << 20
"""Most bytes that a wrapper may hold; its messages must be held to know the offset of the first."""
MAX_BAD_MESSAGES: Final = 64
"""Bad inner messages after which the rest of a wrapper is given up."""
_HEAD: Final = Struct(">qiIbb")
_INT64: Final = Struct(">q")
_MASK64: Final = 2**64 - 1


class _Entry(NamedTuple):
    offset: int
    size: int
    crc: int
    magic: int
    attributes: int


@dataclass(slots=True)
class LegacyWrapper:
    """A legacy entry opened: a wrapper with its inner messages, or a plain message, which is its own only one.

    `base_offset` and `last_offset` are absolute and inclusive; both are the entry's own offset where no inner message could be
    read or the last is missing. `records_count` counts the messages there are. `payload` is the message set they lie in.
    """

    base_offset: int
    last_offset: int
    records_count: int
    payload: bytes | memoryview
    magic: int
    timestamp: int
    timestamp_type: str
    offset_shift: int | None
    """What makes an inner offset absolute; None if that cannot be known: then records have offset -1."""
    problems: list[Damage] = field(default_factory=list)
    is_wrapper: bool = True

    def iter_records(self) -> Iterator[Record]:
        """The messages in order, those that are damaged but framed included."""
        for columns in self.iter_columns():
            absolute = np.stack(self.absolute(columns), axis=1).tolist()
            yield from map(self._record, columns.T.tolist(), absolute)

    def iter_columns(self) -> "Iterator[NDArray[np.int64]]":
        """The same as (RECORD_COLUMNS, n) matrices of at most 8192 messages; positions count in `payload`."""
        return _Messages(self.payload, is_wrapper=self.is_wrapper).walk(1)

    def absolute(self, columns: "NDArray[np.int64]") -> "tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]":
        """(offsets, timestamps, index in RECORD_TIMESTAMP_TYPES of each) of messages by their columns."""
        has_timestamp = np.frombuffer(self.payload, np.uint8)[columns[RecordColumn.POSITION] + MAGIC_AT] == 1
        by_broker = self.is_wrapper and self.timestamp_type == TIMESTAMP_TYPES[1]
        timestamps = np.where(has_timestamp & by_broker, self.timestamp, columns[RecordColumn.TIMESTAMP_DELTA])
        kind = RECORD_TIMESTAMP_TYPES.index(self.timestamp_type)
        kinds = np.where(has_timestamp, kind, RECORD_TIMESTAMP_TYPES.index(NO_TIMESTAMP_TYPE)).astype(np.int8)
        if self.offset_shift is None:
            return np.full(columns.shape[1], NO_OFFSET), timestamps, kinds
        return columns[RecordColumn.OFFSET_DELTA] + as_int64(self.offset_shift), timestamps, kinds

    def _record(self, row: list[int], absolute: list[int]) -> Record:
        offset, timestamp, kind = absolute
        key_length, value_length = row[RecordColumn.KEY_LENGTH], row[RecordColumn.VALUE_LENGTH]
        key_at, value_at = row[RecordColumn.KEY_POSITION], row[RecordColumn.VALUE_POSITION]
        return Record(
            offset=offset,
            timestamp=timestamp,
            timestamp_type=RECORD_TIMESTAMP_TYPES[kind],
            sequence=NO_SEQUENCE,
            key=None if key_length < 0 else bytes(self.payload[key_at : key_at + key_length]),
            value=None if value_length < 0 else bytes(self.payload[value_at : value_at + value_length]),
            headers=(),
            size_in_bytes=row[RecordColumn.SIZE_IN_BYTES],
            key_length=key_length,
            value_length=value_length,
        )


def open_wrapper(entry: bytes | memoryview, position: int = 0) -> LegacyWrapper:
    """Open one whole magic 0 or 1 entry that stands at byte `position` of its file. Any bytes give an answer."""
    view = memoryview(entry)
    minimum = LEGACY_V0_OVERHEAD
    if len(view) >= LOG_OVERHEAD + minimum and view[MAGIC_AT] == 1:
        minimum = LEGACY_V1_OVERHEAD
    declared = int.from_bytes(view[8:LOG_OVERHEAD], "big", signed=True)
    if len(view) < LOG_OVERHEAD + minimum or view[MAGIC_AT] > 1 or declared < minimum:
        opened = LegacyWrapper(NO_OFFSET, NO_OFFSET, 0, b"", 0, NO_TIMESTAMP, NO_TIMESTAMP_TYPE, None)
        opened.problems.append(Damage("RECORD_MALFORMED", position, len(view), detail={"reason": "header"}))
        return opened
    head = _Entry(*_HEAD.unpack_from(view))
    view = view[: LOG_OVERHEAD + head.size]
    timestamp = _INT64.unpack_from(view, LOG_OVERHEAD + 6)[0] if head.magic == 1 else NO_TIMESTAMP
    timestamp_type = TIMESTAMP_TYPES[bool(head.attributes & TIMESTAMP_TYPE_MASK)] if head.magic == 1 else NO_TIMESTAMP_TYPE
    opened = LegacyWrapper(head.offset, head.offset, 0, b"", head.magic, timestamp, timestamp_type, 0)
    fields = np.empty((RECORD_COLUMNS, 1), np.int64)
    code = check_message.interpreted(view, 0, len(view), fields, 0)
    fault: tuple[str, dict[str, int | str | bool | list[int]]] | None = None
    if code != OK:
        fault = RECORD_KINDS[code], {"record_index": 0}
    elif not head.attributes & COMPRESSION_MASK:
        opened.payload, opened.records_count, opened.is_wrapper = view, 1, False
    else:
        fault = _open_value(opened, view, head, fields[:, 0])
    if fault is not None:
        opened.problems.append(Damage(fault[0], position, len(view), opened.base_offset, opened.last_offset, fault[1]))
    return opened


def _open_value(
    opened: LegacyWrapper, view: memoryview, head: _Entry, fields: "NDArray[np.int64]"
) -> tuple[str, dict[str, int | str | bool | list[int]]] | None:
    """Decompress the value of a wrapper and find the offsets of its messages: (finding kind, detail) of the first fault."""
    length, start = int(fields[RecordColumn.VALUE_LENGTH]), int(fields[RecordColumn.VALUE_POSITION])
    if length < 0:
        return "RECORD_MALFORMED", {"reason": "null_value"}
    codec = head.attributes & COMPRESSION_MASK
    plain = decompress(codec, view[start : start + length], magic=head.magic, limit=LEGACY_HELD_BYTES)
    opened.payload = plain.data
    messages = _Messages(plain.data, is_wrapper=True)
    for _ in messages.walk(0):
        pass
    opened.records_count = messages.count
    whole = plain.problem is None and not messages.gave_up
    if messages.count:
        opened.offset_shift = _offset_shift(head, messages.last_offset, whole=whole)
        if opened.offset_shift is not None:
            opened.base_offset = as_int64(opened.offset_shift + messages.first_offset)
            opened.last_offset = as_int64(opened.offset_shift + messages.last_offset)
    if plain.problem is not None:
        return plain.problem, plain.detail
    if messages.code != OK:
        reason = {INNER_CRC: "inner_crc", NESTED: "nested"}.get(messages.code, "inner_message")
        detail: dict[str, int | str | bool | list[int]] = {"reason": reason, "record_index": messages.error_index}
        return RECORD_KINDS[messages.code], detail | {"payload_position": messages.error_position}
    if not messages.count:
        return "RECORD_MALFORMED", {"reason": "empty"}
    if head.magic == 1 and 0 != head.offset < messages.last_offset:
        return "RECORD_MALFORMED", {"reason": "inner_offset", "inner_offset": messages.last_offset}
    return None


def _offset_shift(head: _Entry, last_inner_offset: int, *, whole: bool) -> int | None:
    """What makes inner offsets absolute. A magic 1 wrapper has the offset of its last message; 0 there is an old client's bug."""
    if head.magic == 0 or head.offset == 0:
        return 0
    return head.offset - last_inner_offset if whole else None


def as_int64(value: int) -> int:
    """`value` as Java's long would hold it."""
    value = int(value) & _MASK64
    return value - ((value >> 63) << 64)


class _Messages:
    """A walk over a message set, once; afterwards its numbers tell what it met."""

    def __init__(self, payload: bytes | memoryview, *, is_wrapper: bool) -> None:
        self._payload = memoryview(payload)
        self._is_wrapper = is_wrapper
        self.count = 0
        self.first_offset = self.last_offset = NO_OFFSET
        self.code = OK
        self.error_index = self.error_position = -1
        self.gave_up = False

    def walk(self, step: int) -> "Iterator[NDArray[np.int64]]":
        """Matrices of at most 8192 messages; with `step` 0 they hold the last one alone."""
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
            behind = self._behind(at)
            if bad == MAX_BAD_MESSAGES or behind < 0:
                self.gave_up = True
                return
            self.last_offset = _INT64.unpack_from(self._payload, at)[0]
            at = behind

    def _behind(self, position: int) -> int:
        """Where the entry behind the one at `position` stands, -1 if its size cannot be believed."""
        size = _HEAD.unpack_from(self._payload, position)[1] if len(self._payload) - position >= _HEAD.size else -1
        return position + LOG_OVERHEAD + size if 0 <= size <= len(self._payload) - position - LOG_OVERHEAD else -1
