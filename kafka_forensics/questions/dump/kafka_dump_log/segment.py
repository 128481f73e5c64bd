"""A segment as Kafka's own reader sees it: batch behind batch, no search, no doubt, and an end at the first length that lies.

For `dump --format kafka-dump-log` (org.apache.kafka.tools.DumpLogSegments) alone: everything else in this package reads on behind
damage. What makes Kafka's tool end with an exception is a `PeerGivesUpError` here, raised at the same record.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import google_crc32c
import numpy as np

from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    COMPRESSION_TYPES,
    CONTROL_MASK,
    CRC_START,
    LEGACY_V0_OVERHEAD,
    LOG_OVERHEAD,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)
from kafka_forensics.model.records import NO_TIMESTAMP_TYPE, RECORD_COLUMNS, TIMESTAMP_TYPES, RecordColumn
from kafka_forensics.parsers.kernels.records import OK, check_message, read_varint, readable, scan_records
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, decompress
from kafka_forensics.parsers.spec.legacy import LEGACY_ENTRY_HEADER, LEGACY_MESSAGE_V1
from kafka_forensics.parsers.spec.record_batch import RECORD_BATCH_HEADER

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile

MAX_PAYLOAD_BYTES: Final = 256 << 20
"""Nor those of one that decompresses to more."""
HEADER_UP_TO_MAGIC: Final = 17
_WINDOW_BYTES: Final = 1 << 20
_ROWS: Final = 256


def struct_of(fields: Iterable[Any]) -> struct.Struct:
    """Declared integer fields of a fixed size as a `struct.Struct`, for reading many."""
    return struct.Struct(">" + "".join(part.subcon.fmtstr[1:] for part in fields))


_HEADER: Final = struct_of(RECORD_BATCH_HEADER.subcons)
_START: Final = struct_of(LEGACY_ENTRY_HEADER.subcons)
"""What all formats begin with: offset and length."""
_ENTRY: Final = struct_of([*LEGACY_ENTRY_HEADER.subcons, *LEGACY_MESSAGE_V1.subcons[:4]])
"""A legacy entry up to the timestamp, which magic 0 has not."""


class PeerGivesUpError(Exception):
    """Kafka's tool ends here with an exception that says about this."""


class PeerLimitError(PeerGivesUpError):
    """We end here, at a limit of our own; Kafka's tool would go on."""


@dataclass(slots=True)
class PeerBatch:
    """One batch, or legacy entry: the fields Kafka's tool shows. Before magic 2 `base_offset` and `last_offset` are the entry's."""

    position: int
    size_in_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    records_count: int
    is_valid: bool

    @property
    def timestamp_type(self) -> str:
        """CreateTime, LogAppendTime, or NoTimestampType for magic 0."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return TIMESTAMP_TYPES[bool(self.attributes & TIMESTAMP_TYPE_MASK)]

    @property
    def compression_type(self) -> str | None:
        """Name of the codec; None for the three illegal values."""
        codec = self.attributes & COMPRESSION_MASK
        return COMPRESSION_TYPES[codec] if codec < len(COMPRESSION_TYPES) else None

    @property
    def is_control_batch(self) -> bool:
        """Whether it holds control records."""
        return self.magic >= 2 and bool(self.attributes & CONTROL_MASK)


class PeerRecord(NamedTuple):
    """One record; `crc` and `is_valid` are those of a legacy message, None since magic 2."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    header_keys: tuple[bytes, ...]
    crc: int | None
    is_valid: bool | None


class PeerLog:
    """Batches of one file in order; `end` is the first byte behind the last batch."""

    def __init__(self, file: "ByteFile", name: str, position: int = 0) -> None:
        self._file = file
        self._name = name
        self._size = file.size_in_bytes
        self._window = b""
        self._window_position = 0
        self.end = position

    def batches(self) -> Iterator[PeerBatch]:
        """Every batch up to the file's end or a cut one (FileLogInputStream). Raises PeerGivesUpError, SourceError."""
        while self.end < self._size - HEADER_UP_TO_MAGIC:
            start = self._bytes(self.end, HEADER_UP_TO_MAGIC)
            if len(start) < HEADER_UP_TO_MAGIC:
                return
            _, length = _START.unpack_from(start)
            if length < LEGACY_V0_OVERHEAD:
                raise PeerGivesUpError(
                    f"Found record size {length} smaller than minimum record overhead ({LEGACY_V0_OVERHEAD}) in file {self._name}."
                )
            if self.end > self._size - LOG_OVERHEAD - length:
                return
            size = length + LOG_OVERHEAD
            magic = start[16] - ((start[16] & 0x80) << 1)
            batch = self._batch(size) if magic >= 2 else self._entry(size, magic)
            self.end += size
            yield batch

    def records(self, batch: PeerBatch) -> Iterator[PeerRecord]:
        """The records of `batch` as Kafka's iterators give them. Raises PeerGivesUpError where they throw, SourceError."""
        if batch.size_in_bytes > MAX_BATCH_BYTES:
            raise PeerLimitError(f"a batch of more than {MAX_BATCH_BYTES} bytes is not opened")
        data = self._file.read_at(batch.position, batch.size_in_bytes)
        if batch.magic >= 2:
            yield from _records(batch, data)
        else:
            yield from _messages(batch, data)

    def _bytes(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, small ones from a window that moves forward."""
        start = position - self._window_position
        if start < 0 or start + size > len(self._window):
            if size > _WINDOW_BYTES:
                return self._file.read_at(position, size)
            self._window = self._file.read_at(position, _WINDOW_BYTES)
            self._window_position, start = position, 0
        return self._window[start : start + size]

    def _batch(self, size: int) -> PeerBatch:
        header = self._bytes(self.end, RECORD_BATCH_OVERHEAD)
        if len(header) < RECORD_BATCH_OVERHEAD:
            raise PeerGivesUpError(f"Failed to read record batch header at position {self.end}")
        fields = _HEADER.unpack(header)
        base_offset, _, epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp = fields[:9]
        producer_id, producer_epoch, base_sequence, records_count = fields[9:]
        return PeerBatch(
            position=self.end,
            size_in_bytes=size,
            magic=magic,
            base_offset=base_offset,
            last_offset=_wrapped(base_offset + delta),
            partition_leader_epoch=epoch,
            crc=crc,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            last_sequence=NO_SEQUENCE if base_sequence == NO_SEQUENCE else _increment(base_sequence, delta),
            records_count=records_count,
            is_valid=size >= RECORD_BATCH_OVERHEAD and self._crc(google_crc32c.extend, CRC_START, size) == crc,
        )

    def _entry(self, size: int, magic: int) -> PeerBatch:
        if size < _ENTRY.size:
            raise PeerGivesUpError(f"an entry of magic {magic} at position {self.end} is too small for its fields")
        offset, _, crc, _, attributes, timestamp = _ENTRY.unpack(self._bytes(self.end, _ENTRY.size))
        timestamp = timestamp if magic == 1 else NO_TIMESTAMP
        valid = self._crc(_crc32, 16, size) == crc
        nothing = (-1, -1, NO_SEQUENCE, NO_SEQUENCE, 1)
        return PeerBatch(self.end, size, magic, offset, offset, -1, crc, attributes, timestamp, timestamp, *nothing, valid)

    def _crc(self, extend: Any, start: int, size: int) -> int:
        """CRC of bytes `[start, size)` of the batch at `end`, in windows."""
        crc = 0
        position, end = self.end + start, self.end + size
        while position < end:
            data = self._bytes(position, min(end - position, _WINDOW_BYTES))
            if not data:
                break
            crc = extend(crc, data)
            position += len(data)
        return int(crc)


def _crc32(crc: int, data: bytes) -> int:
    return zlib.crc32(data, crc)


def _wrapped(offset: int) -> int:
    """`offset` as Java's long holds it."""
    return (offset + 2**63) % 2**64 - 2**63


def _increment(sequence: int, delta: int) -> int:
    """DefaultRecordBatch.incrementSequence: the ring of 31 bits."""
    return delta - (MAX_SEQUENCE - sequence) - 1 if sequence > MAX_SEQUENCE - delta else sequence + delta


def _payload(batch: PeerBatch, data: bytes) -> tuple[bytes, str | None]:
    """`data` decompressed, and what was wrong with it."""
    if batch.attributes & COMPRESSION_MASK == 0:
        return data, None
    opened = decompress(batch.attributes & COMPRESSION_MASK, data, magic=batch.magic, limit=MAX_PAYLOAD_BYTES)
    if opened.problem == "DECOMP_LIMIT_EXCEEDED":
        raise PeerLimitError(f"a batch of more than {MAX_PAYLOAD_BYTES} bytes decompressed is not opened")
    return opened.data, opened.problem


def _records(batch: PeerBatch, data: bytes) -> Iterator[PeerRecord]:
    """Records of a magic 2 batch. The last one that the header counts is given only if nothing stands behind it."""
    if batch.records_count < 0 or batch.size_in_bytes < RECORD_BATCH_OVERHEAD:
        raise PeerGivesUpError(f"Found invalid record count {batch.records_count} in magic v{batch.magic} batch")
    if batch.records_count == 0:
        return
    payload, problem = _payload(batch, data[RECORD_BATCH_OVERHEAD:])
    append_time = bool(batch.attributes & TIMESTAMP_TYPE_MASK)
    buffer, given = readable(payload), 0
    for row in _rows(payload):
        given += 1
        if given == batch.records_count and (
            problem or row[RecordColumn.POSITION] + row[RecordColumn.SIZE_IN_BYTES] < len(payload)
        ):
            raise PeerGivesUpError("Incorrect declared batch size, records still remaining in file")
        delta = row[RecordColumn.OFFSET_DELTA]
        yield PeerRecord(
            batch.base_offset + delta,
            batch.max_timestamp if append_time else batch.base_timestamp + row[RecordColumn.TIMESTAMP_DELTA],
            _increment(batch.base_sequence, delta) if batch.base_sequence >= 0 else NO_SEQUENCE,
            _part(payload, row, RecordColumn.KEY_POSITION),
            _part(payload, row, RecordColumn.VALUE_POSITION),
            tuple(_header_keys(buffer, payload, row)) if row[RecordColumn.HEADERS_COUNT] else (),
            None,
            None,
        )
    if given < batch.records_count:
        raise PeerGivesUpError(problem or "Incorrect declared batch size, premature EOF reached")


def _rows(payload: bytes) -> Iterator[list[int]]:
    """Columns of each record of `payload` that can be read, one by one."""
    buffer = readable(payload)
    out = np.empty((RECORD_COLUMNS, _ROWS), np.int64)
    position, before, final = 0, -1, True
    while before != position:
        before = position
        passed, _, position = scan_records(buffer, position, len(payload), final, out, 1)
        yield from out[:, :passed].T.tolist()


def _part(payload: bytes, row: list[int], column: int) -> bytes | None:
    """The bytes whose position is in `column` and whose length in the next; None where that is negative."""
    length = row[column + 1]
    return None if length < 0 else payload[row[column] : row[column] + length]


def _header_keys(buffer: Any, payload: bytes, row: list[int]) -> Iterator[bytes]:
    position = row[RecordColumn.HEADERS_POSITION]
    for _ in range(row[RecordColumn.HEADERS_COUNT]):
        length, position = read_varint(buffer, position, len(payload))
        yield payload[position : position + length]
        length, position = read_varint(buffer, position + length, len(payload))
        position += max(length, 0)


def _messages(batch: PeerBatch, data: bytes) -> Iterator[PeerRecord]:
    """The message that a legacy entry is, or those in its wrapper (AbstractLegacyRecordBatch)."""
    row = _message(data, 0, batch.size_in_bytes)
    if batch.attributes & COMPRESSION_MASK == 0:
        yield _legacy_record(batch, data, row, batch.base_offset, batch.base_timestamp)
        return
    value = _part(data, row, RecordColumn.VALUE_POSITION)
    if value is None:
        raise PeerGivesUpError("Found invalid compressed record set with null value")
    payload, problem = _payload(batch, value)
    inner = []
    position = 0
    while len(payload) - position >= LOG_OVERHEAD:
        _, length = _START.unpack_from(payload, position)
        if length < LEGACY_V0_OVERHEAD:
            raise PeerGivesUpError(f"Record size {length} is less than the minimum record overhead ({LEGACY_V0_OVERHEAD})")
        if position + LOG_OVERHEAD + length > len(payload):
            break
        inner.append(_message(payload, position, length + LOG_OVERHEAD))
        position += length + LOG_OVERHEAD
    if problem or not inner:
        raise PeerGivesUpError(problem or "Found invalid compressed record set with no inner records")
    first = 0
    if batch.magic == 1 and batch.base_offset != 0:
        first = batch.base_offset - inner[-1][RecordColumn.OFFSET_DELTA]
    append_time = batch.magic == 1 and bool(batch.attributes & TIMESTAMP_TYPE_MASK)
    for row in inner:
        timestamp = batch.max_timestamp if append_time else row[RecordColumn.TIMESTAMP_DELTA]
        yield _legacy_record(batch, payload, row, first + row[RecordColumn.OFFSET_DELTA], timestamp)


def _message(data: bytes, start: int, size: int) -> list[int]:
    """Columns of the legacy entry of `size` bytes at `start`."""
    out = np.empty((RECORD_COLUMNS, 1), np.int64)
    magic = data[start + 16]
    sound = magic <= 1 and size >= LOG_OVERHEAD + LEGACY_V0_OVERHEAD + 8 * magic
    if not sound or check_message(readable(data), start, size, out, 0) != OK:
        raise PeerGivesUpError("a message is not what its lengths say")
    return [int(value) for value in out[:, 0]]


def _legacy_record(batch: PeerBatch, data: bytes, row: list[int], offset: int, timestamp: int) -> PeerRecord:
    start, size = row[RecordColumn.POSITION], row[RecordColumn.SIZE_IN_BYTES]
    crc = int.from_bytes(data[start + 12 : start + 16], "big")
    valid = zlib.crc32(data[start + 16 : start + size]) == crc
    key, value = (_part(data, row, column) for column in (RecordColumn.KEY_POSITION, RecordColumn.VALUE_POSITION))
    return PeerRecord(offset, timestamp if batch.magic else NO_TIMESTAMP, NO_SEQUENCE, key, value, (), crc, valid)
