"""What is inside a batch: its records one by one, or whether they are right (DefaultRecordBatch, AbstractLegacyRecordBatch)."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.model.batches import (
    KEY_SAMPLE_COLUMNS,
    RECORD_COLUMNS,
    TIMESTAMP_TYPES,
    BatchColumn,
    Damage,
    Record,
    RecordColumn,
)
from kafka_forensics.model.constants import (
    BATCH_HEADER,
    COMPRESSION_MASK,
    CONTROL_COMMIT,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    control_record_name,
)
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.kernels.partitioners import MOST_OF_A_BATCH, room_for, sample_batches, sample_payload
from kafka_forensics.parsers.kernels.records import (
    NOT_PLAIN,
    OK,
    RECORD_KINDS,
    check_batches,
    check_payloads,
    read_varint,
    readable,
)
from kafka_forensics.parsers.log.codecs import HELD_BYTES, PIECE_BYTES, Decompression, Detail, decompress, decompress_into, stream
from kafka_forensics.parsers.log.legacy import LegacyWrapper, as_int64, open_wrapper
from kafka_forensics.parsers.log.record_stream import RecordStream
from kafka_forensics.parsers.log.segment import BatchChecks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

# Control records: what ends a transaction, and what KRaft's leaders and snapshots write beside their records.


MIN_CONTROL_KEY_SIZE: Final = 4
MARKER_VALUE_SIZE: Final = 6


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record read; `problem` names what could not be: "key" or "value", None if all was.

    `type` is Kafka's number, -1 without a readable key; `name` its name, UNKNOWN for those that readers ignore. `version` and
    `coordinator_epoch` are None where there are none; `fields` holds the rest of the value under Kafka's names in snake case.
    """

    type: int
    name: str
    version: int | None = None
    coordinator_epoch: int | None = None
    fields: Json = field(default_factory=dict)
    problem: str | None = None


def parse_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """The control record of `key` and `value` (ControlRecordType, EndTransactionMarker, ControlRecordUtils)."""
    if key is None or len(key) < MIN_CONTROL_KEY_SIZE or key[0] & 0x80:
        return ControlRecord(-1, control_record_name(-1), problem="key")
    control_type = int.from_bytes(key[2:4], "big", signed=True)
    name = control_record_name(control_type)
    if name == "UNKNOWN":
        return ControlRecord(control_type, name)
    if value is None:
        return ControlRecord(control_type, name, problem="value")
    if 0 <= control_type <= CONTROL_COMMIT:
        if len(value) < MARKER_VALUE_SIZE or value[0] & 0x80:
            return ControlRecord(control_type, name, problem="value")
        version = int.from_bytes(value[:2], "big")
        return ControlRecord(control_type, name, version, int.from_bytes(value[2:6], "big", signed=True))
    return _parse_kraft(control_type, name, value)


def _parse_kraft(control_type: int, name: str, value: bytes) -> ControlRecord:
    """A KRaft control record, whose value is read through its declaration: such records are few."""
    from kafka_forensics.parsers.spec.control import read_control_value

    fields = read_control_value(control_type, value)
    if fields is None:
        return ControlRecord(control_type, name, problem="value")
    return ControlRecord(control_type, name, fields.pop("version"), None, fields)


MAX_BATCH_BYTES: Final = 128 << 20
"""A batch larger than this is not opened for its records, by any reader."""
_LOG_APPEND_TIME: Final = TIMESTAMP_TYPES[1]

_TOGETHER_ROOM: Final = 1 << 20
_TOGETHER_BYTES: Final = 256 << 10
"""Of payloads that are checked by one call: enough that calls cost nothing, little enough to be in a core's cache still."""
_TOGETHER_BATCHES: Final = 1024
_POSITION: Final = int(BatchColumn.POSITION)
_SIZE: Final = int(BatchColumn.SIZE_IN_BYTES)
_COPIED_CODECS: Final = frozenset({1, 2})
"""gzip and snappy."""
_scratch: Final = threading.local()

Chooser = Callable[["BatchHeader", bytes | memoryview | None, "NDArray[np.int64]"], "NDArray[np.bool_]"]


class BatchHeader(NamedTuple):
    """The header of a magic 2 batch as stored: the fast twin of `spec.record_batch`."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        """Inclusive; wraps at the ends of int64, as Kafka's does."""
        return as_int64(self.base_offset + self.last_offset_delta)

    @property
    def codec(self) -> int:
        """Attribute bits 0-2."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> str:
        """CreateTime or LogAppendTime."""
        return TIMESTAMP_TYPES[bool(self.attributes & TIMESTAMP_TYPE_MASK)]

    @property
    def is_transactional(self) -> bool:
        """Attribute bit 4."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control_batch(self) -> bool:
        """Attribute bit 5."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers in the batch may go, None if the cleaner has set no time (attribute bit 6)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


@dataclass(slots=True)
class DecodedBatch:
    """A batch opened: `problems` is what is wrong inside, `records_count` how many records are there and right.

    `header` is None before magic 2, `legacy` from then on. `payload` is what holds the records, decompressed, or its first 16 MiB.
    """

    header: BatchHeader | None
    legacy: LegacyWrapper | None
    payload: bytes | memoryview
    records_count: int
    problems: list[Damage] = field(default_factory=list)
    _stored: memoryview = field(default_factory=lambda: memoryview(b""))

    def iter_records(self, choose: "Chooser | None" = None) -> Iterator[Record]:
        """Every record that can be read, in order, decoded while it is asked for.

        Of magic 2 only those that `choose(header, window, matrix)` marks, a boolean each: of the (RECORD_COLUMNS, n) columns it is
        given, whose positions count in `window`; None of one record too large to hold.
        """
        if self.legacy is not None:
            yield from self.legacy.iter_records()
        if self.header is None:
            return
        for window, columns in self.windows():
            chosen = columns if choose is None else columns[:, choose(self.header, window, columns)]
            for row in chosen.T.tolist():
                yield _record(self.header, window, row)

    def iter_columns(self) -> "Iterator[NDArray[np.int64]]":
        """The same as (RECORD_COLUMNS, n) matrices of at most 8192 records, magic 2 only; each is used again for the next."""
        if self.header is not None:
            for _, columns in self.windows():
                yield columns

    def windows(self) -> "Iterator[tuple[bytes | memoryview | None, NDArray[np.int64]]]":
        """(bytes the positions count in, matrix of at most 8192 records) in order, of any magic; None with one record too large to
        hold. The matrix is used again for the next."""
        if self.legacy is not None:
            return ((self.legacy.payload, columns) for columns in self.legacy.iter_columns())
        if self.header is None:
            return iter(())
        if len(self.payload) < HELD_BYTES or self.header.codec == 0:
            return RecordStream(self.payload, None, self.header.records_count).windows()
        pieces = stream(self.header.codec, self._stored)
        return RecordStream(b"", iter(pieces), self.header.records_count).windows()


def decode_batch(batch: bytes | memoryview, *, position: int = 0, needles: Sequence[bytes] = ()) -> DecodedBatch:
    """Open one whole batch of any magic that stands at byte `position` of its file. Any bytes give an answer.

    The records are walked once here to find what is wrong; `problems` has at most one row, for the first fault. Of a compressed
    batch of magic 2 whose payload is whole and does not hold all `needles` nothing is walked, and no record given.
    """
    view = memoryview(batch)
    if len(view) > MAGIC_AT and (view[MAGIC_AT] < 2 or view[MAGIC_AT] > 127):
        legacy = open_wrapper(view, position)
        return DecodedBatch(None, legacy, legacy.payload, legacy.records_count, legacy.problems)
    header = BatchHeader(*BATCH_HEADER.unpack_from(view)) if len(view) >= RECORD_BATCH_OVERHEAD else None
    if header is None or header.batch_length < RECORD_BATCH_OVERHEAD - LOG_OVERHEAD:
        broken = Damage("RECORD_MALFORMED", position, len(view), detail={"reason": "header"})
        return DecodedBatch(None, None, b"", 0, [broken])
    stored = view[RECORD_BATCH_OVERHEAD : header.batch_length + LOG_OVERHEAD]
    payload, rest, source = _open_payload(header, stored)
    is_whole = source is not None and rest is None and source.problem is None
    if is_whole and not all(needle in payload for needle in needles):
        return DecodedBatch(header, None, b"", 0)
    records = RecordStream(payload, rest, header.records_count)
    records.check()
    for _ in rest or ():
        pass  # records may have been given up before the stream showed that it is a bomb
    problem = _problem(header, records, source, position, len(view))
    decoded = DecodedBatch(header, None, payload, records.records, [] if problem is None else [problem], stored)
    if problem is None and header.is_control_batch:
        decoded.problems.extend(_control_damage(decoded, position, len(view)))
    return decoded


def check_batch(batch: bytes | memoryview, position: int = 0) -> list[Damage]:
    """What is wrong inside one whole batch of any magic, at most one row; `position` is where it stands in its file."""
    return decode_batch(batch, position=position).problems


def check_rows(
    buffer: "NDArray[np.uint8]",
    position: int,
    columns: "NDArray[np.int64]",
    first: int,
    end: int,
    keys: "KeySampler | None" = None,
) -> list[Damage]:
    """What is wrong inside the batches of rows `[first, end)` of a chunk, at most one row each; for millions of batches.

    `buffer[0]` is byte `position` of the file, and the bytes of every one of the batches are in `buffer`. Batches whose CRC is
    wrong are passed over. `keys` looks at some of the others, too.
    """
    verdicts = np.empty((4, end - first), np.int64)
    good = check_batches(readable(buffer), position, columns, first, end, np.empty((RECORD_COLUMNS, 1), np.int64), verdicts)
    damage: list[Damage] = []
    wanted = keys.among(columns, first, end) if keys is not None and good else set()
    for row, payload in _look_into(_Batches(buffer, position, columns), verdicts[0, :good].tolist(), wanted, damage):
        if keys is not None and row in wanted and _holds_compressed_records(columns, row):
            keys.opened(columns, row, payload)
    if keys is not None and (good < end - first or np.any(verdicts[1, :good] != NOT_PLAIN)):
        keys.plain(buffer, position, columns, first, end)
    return damage


class _Batches(NamedTuple):
    """Batches whose bytes lie in `buffer`, from byte `position` of their file on."""

    buffer: "NDArray[np.uint8]"
    position: int
    columns: "NDArray[np.int64]"

    def bytes_of(self, row: int) -> memoryview:
        """The whole batch."""
        start = int(self.columns[BatchColumn.POSITION, row]) - self.position
        return self.buffer.data[start : start + int(self.columns[BatchColumn.SIZE_IN_BYTES, row])]


class _Together:
    """Payloads of several batches, side by side in one buffer that a core's cache holds, so that one call checks them all."""

    def __init__(self) -> None:
        self.buffer = bytearray(_TOGETHER_ROOM)
        self.spans = np.empty((3, _TOGETHER_BATCHES), np.int64)
        """Where each payload begins and ends, and how many records its header promises."""
        self._scratch = np.empty((RECORD_COLUMNS, 1), np.int64)
        self._wrong = np.empty(_TOGETHER_BATCHES, np.int64)

    def add(self, index: int, batches: _Batches, row: int) -> bool:
        """Decompress a batch as payload `index`, behind the one before it; False of one that must be opened by itself."""
        attributes = int(batches.columns[BatchColumn.ATTRIBUTES, row])
        if batches.columns[BatchColumn.MAGIC, row] < 2 or attributes & CONTROL_MASK or not attributes & COMPRESSION_MASK:
            return False
        start = int(self.spans[1, index - 1]) if index else 0
        stored = batches.bytes_of(row)[RECORD_BATCH_OVERHEAD:]
        size = _decompress_to(memoryview(self.buffer)[start:], attributes & COMPRESSION_MASK, stored)
        self.spans[:, index] = start, start + size, batches.columns[BatchColumn.RECORDS_COUNT, row]
        return size > 0

    def payload(self, index: int) -> memoryview:
        """What one of them holds."""
        return memoryview(self.buffer)[self.spans[0, index] : self.spans[1, index]]

    def wrong(self, count: int) -> set[int]:
        """Which of the first `count` payloads are not right."""
        wrong = check_payloads(readable(self.buffer), self.spans, count, self._scratch, self._wrong)
        return set(self._wrong[:wrong].tolist())


def _decompress_to(output: memoryview, codec: int, stored: memoryview) -> int:
    """`decompress_into`, with a copy where the codec knows no other way."""
    if codec not in _COPIED_CODECS:
        return decompress_into(codec, stored, output)
    whole = decompress(codec, stored, limit=len(output))
    if whole.problem is not None:
        return -1
    output[: len(whole.data)] = whole.data
    return len(whole.data)


def _look_into(
    batches: _Batches, rows: list[int], wanted: set[int], damage: list[Damage]
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Look into the batches of `rows`, in order, and add to `damage`: (row, payload) of those that are wanted or opened alone."""
    if not hasattr(_scratch, "together"):
        _scratch.together = _Together()
    together: _Together = _scratch.together
    held: list[int] = []
    for row in rows:
        if together.add(len(held), batches, row):
            held.append(row)
            if len(held) == _TOGETHER_BATCHES or together.spans[1, len(held) - 1] >= _TOGETHER_BYTES:
                yield from _checked_together(batches, together, held, wanted, damage)
                held = []
            continue
        yield from _checked_together(batches, together, held, wanted, damage)
        held = []
        yield row, _opened_alone(batches, row, damage)
    yield from _checked_together(batches, together, held, wanted, damage)


def _checked_together(
    batches: _Batches, together: _Together, held: list[int], wanted: set[int], damage: list[Damage]
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Check the payloads of the rows `held`."""
    wrong = together.wrong(len(held)) if held else set()
    if not wrong and wanted.isdisjoint(held):
        return
    for index, row in enumerate(held):
        if index in wrong:
            yield row, _opened_alone(batches, row, damage)
        elif row in wanted:
            yield row, together.payload(index)


def _holds_compressed_records(columns: "NDArray[np.int64]", row: int) -> bool:
    attributes = int(columns[BatchColumn.ATTRIBUTES, row])
    of_records = attributes & COMPRESSION_MASK != 0 and attributes & CONTROL_MASK == 0
    return of_records and bool(columns[BatchColumn.MAGIC, row] >= 2)


def _opened_alone(batches: _Batches, row: int, damage: list[Damage]) -> bytes | memoryview:
    decoded = decode_batch(batches.bytes_of(row), position=int(batches.columns[BatchColumn.POSITION, row]))
    damage.extend(decoded.problems)
    return decoded.payload


def check_batch_in_file(file: "ByteFile", position: int, size: int) -> list[Damage]:
    """Like `check_batch` for `size` bytes of `file` at `position`, for batches too large to be held: plain ones are streamed.

    A compressed one above 128 MiB is not opened and gives BUDGET_EXCEEDED. Raises SourceError if the file cannot be read.
    """
    head = file.read_at(position, min(size, RECORD_BATCH_OVERHEAD))
    plain = len(head) == RECORD_BATCH_OVERHEAD and 2 <= head[MAGIC_AT] <= 127 and head[22] & COMPRESSION_MASK == 0
    if not plain:
        if size > MAX_BATCH_BYTES:
            return [Damage("BUDGET_EXCEEDED", position, size, detail={"limit": MAX_BATCH_BYTES, "reason": "batch"})]
        return check_batch(file.read_at(position, size), position)
    header = BatchHeader(*BATCH_HEADER.unpack(head))
    records = RecordStream(b"", _file_pieces(file, position + RECORD_BATCH_OVERHEAD, position + size), header.records_count)
    records.check()
    problem = _problem(header, records, None, position, size)
    return [] if problem is None else [problem]


def _file_pieces(file: "ByteFile", start: int, end: int) -> Iterator[bytes]:
    while start < end and (piece := file.read_at(start, min(PIECE_BYTES, end - start))):
        start += len(piece)
        yield piece


def _open_payload(
    header: BatchHeader, stored: memoryview
) -> tuple[bytes | memoryview, Iterator[bytes] | None, Decompression | None]:
    """(the decompressed payload or its first 16 MiB, the pieces that follow or None, the stream they come from)."""
    if header.codec == 0:
        return stored, None, None
    source = stream(header.codec, stored)
    if not len(stored) and header.records_count == 0:
        return b"", None, None
    pieces = iter(source)
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= HELD_BYTES:
            break
    payload = held[0] if len(held) == 1 else b"".join(held)
    return payload, pieces if size >= HELD_BYTES else None, source


def _problem(header: BatchHeader, records: RecordStream, source: Decompression | None, position: int, size: int) -> Damage | None:
    """The first fault of a batch: that of its compression, of which any other would be a consequence, or of its records."""
    if source is not None and source.problem is not None:
        return Damage(source.problem, position, size, header.base_offset, header.last_offset, source.detail)
    if records.code == OK:
        return None
    detail: Detail = {
        "records_count": header.records_count,
        "records_found": records.records,
        "record_index": records.error_index,
        "payload_position": records.error_position,
    }
    return Damage(RECORD_KINDS[records.code], position, size, header.base_offset, header.last_offset, detail)


def _control_damage(decoded: DecodedBatch, position: int, size: int) -> Iterator[Damage]:
    """Damage of the first control record that Kafka could not read."""
    header = decoded.header
    assert header is not None
    for index, record in enumerate(decoded.iter_records()):
        fault = parse_control_record(record.key, record.value).problem
        if fault is not None and not record.is_oversized:
            detail: Detail = {"reason": f"control_{fault}", "record_index": index}
            yield Damage("RECORD_MALFORMED", position, size, header.base_offset, header.last_offset, detail)
            return


def _record(header: BatchHeader, window: bytes | memoryview | None, row: list[int]) -> Record:
    """The record of one row of the matrix, with what its batch says about it."""
    offset_delta = row[RecordColumn.OFFSET_DELTA]
    timestamp = header.max_timestamp
    if header.timestamp_type != _LOG_APPEND_TIME:
        timestamp = as_int64(header.base_timestamp + row[RecordColumn.TIMESTAMP_DELTA])
    return Record(
        offset=as_int64(header.base_offset + offset_delta),
        timestamp=timestamp,
        timestamp_type=header.timestamp_type,
        sequence=(header.base_sequence + offset_delta) & MAX_SEQUENCE if header.base_sequence >= 0 else NO_SEQUENCE,
        key=_slice(window, row[RecordColumn.KEY_POSITION], row[RecordColumn.KEY_LENGTH]),
        value=_slice(window, row[RecordColumn.VALUE_POSITION], row[RecordColumn.VALUE_LENGTH]),
        headers=() if window is None else _headers(window, row[RecordColumn.HEADERS_POSITION], row[RecordColumn.HEADERS_COUNT]),
        size_in_bytes=row[RecordColumn.SIZE_IN_BYTES],
        key_length=row[RecordColumn.KEY_LENGTH],
        value_length=row[RecordColumn.VALUE_LENGTH],
        is_oversized=window is None,
    )


def _headers(window: bytes | memoryview, position: int, count: int) -> tuple[tuple[bytes, bytes | None], ...]:
    """`count` headers at `position`, which the walk has already proved to be there."""
    headers = []
    end = len(window)
    for _ in range(count):
        length, position = read_varint.interpreted(window, position, end)
        key = _slice(window, position, length)
        position += length
        length, position = read_varint.interpreted(window, position, end)
        value = _slice(window, position, length)
        position += max(length, 0)
        assert key is not None
        headers.append((key, value))
    return tuple(headers)


def _slice(window: bytes | memoryview | None, position: int, length: int) -> bytes | None:
    return None if window is None or length < 0 else bytes(window[position : position + length])


# Keys of some records, gathered while a deep scan looks into batches anyway.


SAMPLED_BATCHES: Final = 1024
"""Batches of a log that are looked at, at most and about."""
LEAST_GRAIN: Final = 64
"""At most one batch is looked at for so many bytes of log."""
COMPRESSED_GRAINS: Final = 4
"""How many times more for a compressed one: each is looked at by itself, which costs more."""
MOST_FOR_ONE_MORE: Final = 32
"""Of a batch the first record is looked at, and one more for each so many it holds; for fewer in small logs."""
BYTES_FOR_EACH: Final = 2048
"""By one more for so many bytes of log, so that of a log of some kilobytes nearly every record is looked at."""


class KeySampler:
    """Looks at batches of a log of `log_bytes` bytes; which ones depends on nothing but that and where they stand in their file.

    Compressed messages of magic 0 and 1 are passed over.
    """

    def __init__(self, log_bytes: int) -> None:
        self._grain = max(LEAST_GRAIN, log_bytes // SAMPLED_BATCHES)
        self._compressed_grain = COMPRESSED_GRAINS * self._grain
        self._every = min(max(log_bytes // BYTES_FOR_EACH, 1), MOST_FOR_ONE_MORE)
        self._scratch = np.empty((RECORD_COLUMNS, 1), np.int64)
        self._out = np.empty((KEY_SAMPLE_COLUMNS, MOST_OF_A_BATCH), np.int64)
        self._taken: list[NDArray[np.int64]] = []

    def plain(self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int) -> None:
        """Look at the uncompressed batches of rows `[first, end)`, whose bytes are in `buffer`, byte `position` of the file on."""
        room = room_for(columns[:, first:end], self._every)
        if self._out.shape[1] < room:
            self._out = np.empty((KEY_SAMPLE_COLUMNS, room), np.int64)
        written = sample_batches(
            readable(buffer), position, columns, first, end, self._grain, self._every, self._scratch, self._out
        )
        self._keep(int(written))

    def among(self, columns: "NDArray[np.int64]", first: int, end: int) -> set[int]:
        """Which rows of `[first, end)` are looked at, if they are of compressed batches of records."""
        to_go = -columns[_POSITION, first:end] % self._compressed_grain
        chosen: list[int] = (to_go < columns[_SIZE, first:end]).nonzero()[0].tolist()  # as `is_sampled` says it of one
        return {first + row for row in chosen}

    def opened(self, columns: "NDArray[np.int64]", row: int, payload: bytes | memoryview) -> None:
        """Look at a batch; `payload` is what it holds."""
        view = readable(payload)
        self._keep(int(sample_payload(view, 0, len(payload), columns, row, self._every, self._scratch, self._out, 0)))

    def _keep(self, written: int) -> None:
        if written:
            self._taken.append(self._out[:, :written].copy())

    def take(self) -> "NDArray[np.int64]":
        """What was gathered since the last time, as a (KEY_SAMPLE_COLUMNS, n) matrix in order of the file; compressed ones after
        plain ones of the same stretch."""
        taken, self._taken = self._taken, []
        return np.concatenate([np.empty((KEY_SAMPLE_COLUMNS, 0), np.int64), *taken], axis=1)


# The unsigned varint of Kafka's flexible messages (KIP-482), read fast: the twin of `spec.flexible.UNSIGNED_VARINT`.


class UnsignedVarintError(Exception):
    """Five bytes, and the last still promises more; no parser lets this out."""


def read_unsigned(data: bytes, position: int) -> tuple[int, int]:
    """(unsigned 32-bit integer at `position`, position behind it); bits beyond 32 are dropped, as Kafka's reader drops them.

    Raises IndexError where the bytes end first, and UnsignedVarintError (ByteUtils.readUnsignedVarint).
    """
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position + 1
    raise UnsignedVarintError


# Looking inside batches while their bytes are at hand: legacy wrappers always, every record when a scan is deep.


class _Inspection(BatchChecks):
    """Opens legacy wrappers, and every batch if it is deep."""

    def __init__(self, keys: KeySampler | None, *, deep: bool) -> None:
        self.deep = deep
        self._keys = keys

    def __call__(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """What is wrong inside of the batches."""
        damage = check_rows(buffer, position, columns, first, end, self._keys) if self.deep else []
        if int(columns[BatchColumn.MAGIC, first:end].min()) < 2:
            _open_wrappers(buffer, position, columns, first, end)
        return damage


def inspector(*, deep: bool, keys: KeySampler | None = None) -> BatchChecks:
    """What a `SegmentReader` calls with each run of fresh rows; a deep one lets `keys` look at some records' keys."""
    return _Inspection(keys, deep=deep)


def _open_wrappers(buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int) -> None:
    """Give compressed messages of the old formats the offsets and the number of the messages inside them."""
    good = columns[BatchColumn.CRC, first:end] == columns[BatchColumn.CRC_COMPUTED, first:end]
    compressed = columns[BatchColumn.ATTRIBUTES, first:end] & COMPRESSION_MASK != 0
    for row in np.flatnonzero(good & compressed & (columns[BatchColumn.MAGIC, first:end] < 2)):
        column = columns[:, first + int(row)]
        start = int(column[BatchColumn.POSITION]) - position
        opened = open_wrapper(buffer[start : start + int(column[BatchColumn.SIZE_IN_BYTES])].tobytes())
        if opened.records_count > 0:
            column[BatchColumn.BASE_OFFSET] = opened.base_offset
            column[BatchColumn.LAST_OFFSET] = opened.last_offset
            column[BatchColumn.RECORDS_COUNT] = opened.records_count
