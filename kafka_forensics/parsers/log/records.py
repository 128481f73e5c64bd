"""The records inside a batch: one by one, or only whether they are valid (DefaultRecordBatch, AbstractLegacyRecordBatch)."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from kafka_forensics.model.batches import (
    KEY_SAMPLE_COLUMNS,
    RECORD_COLUMNS,
    TIMESTAMP_TYPES,
    BatchColumn,
    Damage,
    Record,
    RecordColumn,
    has_right_crc,
)
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    CONTROL_COMMIT,
    CONTROL_MASK,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    control_record_name,
)
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.kernels.partitioners import MAX_RECORDS_OF_BATCH, max_samples, sample_batches, sample_payload
from kafka_forensics.parsers.kernels.records import (
    NOT_PLAIN,
    OK,
    RECORD_KINDS,
    check_batches,
    check_payloads,
    read_varint,
    readable,
)
from kafka_forensics.parsers.log.codecs import HELD_BYTES, PIECE_BYTES, Decompression, decompress, decompress_into
from kafka_forensics.parsers.log.control_values import read_control_value
from kafka_forensics.parsers.log.legacy import LegacyWrapper, open_wrapper
from kafka_forensics.parsers.log.record_stream import RecordStream
from kafka_forensics.parsers.spec.batch_header import BATCH_HEADER, BatchHeader, as_int64

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.log.damage import Detail
    from kafka_forensics.storage.source import ByteFile

# Control records: transaction markers, and the records of KRaft's leaders and snapshots.


MIN_CONTROL_KEY_SIZE: Final = 4
MARKER_VALUE_SIZE: Final = 6


class ControlRecord(Struct, frozen=True):
    """A control record; `problem` names what cannot be read: "key", "value", or None.

    `type` is Kafka's number, -1 without a readable key; `name` is UNKNOWN for types that readers ignore. `version` and
    `coordinator_epoch` are None where absent; `fields` has the rest of the value under Kafka's names in snake case.
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
    fields = read_control_value(control_type, value)
    if fields is None:
        return ControlRecord(control_type, name, problem="value")
    return ControlRecord(control_type, name, fields.pop("version"), None, fields)


MAX_BATCH_BYTES: Final = 128 << 20
"""No reader opens a larger batch for its records."""

_PAYLOADS_BUFFER_BYTES: Final = 1 << 20
_CHECKED_BYTES: Final = 256 << 10
"""Bytes of payloads per check: enough that the call costs little, few enough for a core's cache."""
_CHECKED_PAYLOADS: Final = 1024
_CODECS_WITH_COPY: Final = frozenset({1, 2})
"""gzip and snappy."""
_scratch: Final = threading.local()

RecordFilter = Callable[["BatchHeader", bytes | memoryview | None, "NDArray[np.int64]"], "NDArray[np.bool_]"]


class DecodedBatch(Struct):
    """An opened batch: `problems` is the damage inside, `records_count` the number of valid records.

    `header` is None for magic 0 and 1, `legacy` for magic 2. `payload` has the decompressed records: the first 16 MiB, up to
    256 KiB more.
    """

    header: BatchHeader | None
    legacy: LegacyWrapper | None
    payload: bytes | memoryview
    records_count: int
    problems: list[Damage] = field(default_factory=list)
    _stored: memoryview = field(default_factory=lambda: memoryview(b""))

    def iter_records(self, choose: "RecordFilter | None" = None) -> Iterator[Record]:
        """Every readable record, in order, decoded lazily.

        For magic 2 only those for which `choose(header, window, columns)` is true: a boolean for each of the (RECORD_COLUMNS, n)
        columns, whose positions count in `window`; the window is None for one record that is too large to hold.
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
        """The records as (RECORD_COLUMNS, n) matrices of at most 8192 records, magic 2 only; the next overwrites each."""
        if self.header is not None:
            for _, columns in self.windows():
                yield columns

    def windows(self) -> "Iterator[tuple[bytes | memoryview | None, NDArray[np.int64]]]":
        """(bytes in which positions count, matrix of at most 8192 records) in order, for any magic; None instead of bytes with one
        record that is too large to hold. The next matrix overwrites each."""
        if self.legacy is not None:
            return ((self.legacy.payload, columns) for columns in self.legacy.iter_columns())
        if self.header is None:
            return iter(())
        if len(self.payload) < HELD_BYTES or self.header.codec == 0:
            return RecordStream(self.payload, None, self.header.records_count).windows()
        pieces = Decompression(self.header.codec, self._stored)
        return RecordStream(b"", iter(pieces), self.header.records_count).windows()


def decode_batch(batch: bytes | memoryview, *, position: int = 0, needles: Sequence[bytes] = ()) -> DecodedBatch:
    """Open one whole batch of any magic at byte `position` of its file. Accepts any bytes.

    It walks the records once to find the first fault, the only row of `problems`. For a compressed batch of magic 2 whose complete
    payload does not contain all `needles`, it walks nothing and returns no record.
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
    is_complete = source is not None and rest is None and source.problem is None
    if is_complete and not all(needle in payload for needle in needles):
        return DecodedBatch(header, None, b"", 0)
    records = RecordStream(payload, rest, header.records_count)
    records.check()
    for _ in rest or ():
        pass  # the walk may stop before the stream turns out to exceed its limit
    problem = _problem(header, records, source, position, len(view))
    decoded = DecodedBatch(header, None, payload, records.records, [] if problem is None else [problem], stored)
    if problem is None and header.is_control_batch:
        decoded.problems.extend(_control_damage(decoded, position, len(view)))
    return decoded


class BatchBytes(NamedTuple):
    """Batches of a (BATCH_COLUMNS, n) matrix and their bytes: `data` begins at byte `start` of the file."""

    columns: "NDArray[np.int64]"
    data: memoryview
    start: int

    def bytes_of(self, row: int) -> memoryview:
        """The bytes of a batch, fewer where the file has ended before it."""
        at = int(self.columns[BatchColumn.POSITION, row]) - self.start
        return self.data[at : at + int(self.columns[BatchColumn.SIZE_IN_BYTES, row])]


def check_rows(
    buffer: "NDArray[np.uint8]",
    position: int,
    columns: "NDArray[np.int64]",
    first: int,
    end: int,
    keys: "KeySampler | None" = None,
) -> list[Damage]:
    """Damage inside the batches of rows `[first, end)` of a chunk, at most one row each; for millions of batches.

    `buffer[0]` is byte `position` of the file, and `buffer` has the bytes of all these batches. Batches with a wrong CRC are
    skipped. `keys` samples some of the others.
    """
    verdicts = np.empty((4, end - first), np.int64)
    count = check_batches(readable(buffer), position, columns, first, end, np.empty((RECORD_COLUMNS, 1), np.int64), verdicts)
    damage: list[Damage] = []
    sampled = keys.sampled_rows(columns, first, end) if keys is not None and count else set()
    batches = BatchBytes(columns, buffer.data, position)
    for row, payload in _open_batches(batches, verdicts[0, :count].tolist(), sampled, damage):
        if keys is not None and row in sampled and _is_compressed_data(columns[:, row]):
            keys.sample_payload(columns, row, payload)
    if keys is not None and (count < end - first or np.any(verdicts[1, :count] != NOT_PLAIN)):
        keys.sample_batches(buffer, position, columns, first, end)
    return damage


def _is_compressed_data(column: "NDArray[np.int64]") -> bool:
    """Whether a batch of magic 2 is compressed and not a control batch."""
    attributes = int(column[BatchColumn.ATTRIBUTES])
    return bool(column[BatchColumn.MAGIC] >= 2 and attributes & COMPRESSION_MASK and not attributes & CONTROL_MASK)


class _RecordPayloads:
    """Payloads of several batches, one after the other in a buffer that fits a core's cache, for one call that checks them all."""

    def __init__(self) -> None:
        self.buffer = bytearray(_PAYLOADS_BUFFER_BYTES)
        self.spans = np.empty((3, _CHECKED_PAYLOADS), np.int64)
        """Start, end and declared number of records of each payload."""
        self.rows: list[int] = []
        self._scratch = np.empty((RECORD_COLUMNS, 1), np.int64)
        self._invalid = np.empty(_CHECKED_PAYLOADS, np.int64)

    @property
    def is_full(self) -> bool:
        """Whether the payloads must be checked before the next one."""
        count = len(self.rows)
        return count == _CHECKED_PAYLOADS or (count > 0 and bool(self.spans[1, count - 1] >= _CHECKED_BYTES))

    def add(self, batches: BatchBytes, row: int) -> bool:
        """Decompress a batch after the previous one; False if it must be opened separately."""
        column, index = batches.columns[:, row], len(self.rows)
        if not _is_compressed_data(column):
            return False
        codec = int(column[BatchColumn.ATTRIBUTES]) & COMPRESSION_MASK
        start = int(self.spans[1, index - 1]) if index else 0
        output, stored = memoryview(self.buffer)[start:], batches.bytes_of(row)[RECORD_BATCH_OVERHEAD:]
        if codec in _CODECS_WITH_COPY:
            plain = decompress(codec, stored, limit=len(output))
            size = len(plain.data) if plain.problem is None else -1
            output[: max(size, 0)] = plain.data[: max(size, 0)]
        else:
            size = decompress_into(codec, stored, output)
        self.spans[:, index] = start, start + size, column[BatchColumn.RECORDS_COUNT]
        if size > 0:
            self.rows.append(row)
        return size > 0

    def check(self, batches: BatchBytes, sampled: set[int], damage: list[Damage]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Check all payloads and remove them; (row, payload) of the sampled and the invalid ones, whose damage it adds."""
        rows, self.rows = self.rows, []
        count = check_payloads(readable(self.buffer), self.spans, len(rows), self._scratch, self._invalid) if rows else 0
        invalid = set(self._invalid[:count].tolist())
        if not invalid and sampled.isdisjoint(rows):
            return
        for index, row in enumerate(rows):
            if index in invalid:
                yield row, _open_batch(batches, row, damage)
            elif row in sampled:
                yield row, memoryview(self.buffer)[self.spans[0, index] : self.spans[1, index]]


def _open_batches(
    batches: BatchBytes, rows: list[int], sampled: set[int], damage: list[Damage]
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Open the batches of `rows`, in order, and add their damage: (row, payload) of those sampled or opened separately."""
    if not hasattr(_scratch, "payloads"):
        _scratch.payloads = _RecordPayloads()
    payloads: _RecordPayloads = _scratch.payloads
    payloads.rows = []
    for row in rows:
        if payloads.add(batches, row):
            if payloads.is_full:
                yield from payloads.check(batches, sampled, damage)
            continue
        yield from payloads.check(batches, sampled, damage)
        yield row, _open_batch(batches, row, damage)
    yield from payloads.check(batches, sampled, damage)


def _open_batch(batches: BatchBytes, row: int, damage: list[Damage]) -> bytes | memoryview:
    decoded = decode_batch(batches.bytes_of(row), position=int(batches.columns[BatchColumn.POSITION, row]))
    damage.extend(decoded.problems)
    return decoded.payload


def check_batch_in_file(file: "ByteFile", position: int, size: int) -> list[Damage]:
    """Damage inside the batch of `size` bytes at `position`, at most one row; uncompressed batches are streamed.

    A compressed batch above 128 MiB is not opened: BUDGET_EXCEEDED. Raises SourceError if the file cannot be read.
    """
    head = file.read_at(position, min(size, RECORD_BATCH_OVERHEAD))
    plain = len(head) == RECORD_BATCH_OVERHEAD and 2 <= head[MAGIC_AT] <= 127 and head[22] & COMPRESSION_MASK == 0
    if not plain:
        if size > MAX_BATCH_BYTES:
            return [Damage("BUDGET_EXCEEDED", position, size, detail={"limit": MAX_BATCH_BYTES, "reason": "batch"})]
        return decode_batch(file.read_at(position, size), position=position).problems
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
    """(the decompressed payload or its first 16 MiB, up to 256 KiB more; the pieces after it or None; the stream of the pieces or
    None)."""
    if header.codec == 0:
        return stored, None, None
    source = Decompression(header.codec, stored)
    if not len(stored) and header.records_count == 0:
        return b"", None, None
    pieces = iter(source)
    first_pieces: list[bytes] = []
    size = 0
    for piece in pieces:
        first_pieces.append(piece)
        size += len(piece)
        if size >= HELD_BYTES:
            break
    payload = first_pieces[0] if len(first_pieces) == 1 else b"".join(first_pieces)
    return payload, pieces if size >= HELD_BYTES else None, source


def _problem(header: BatchHeader, records: RecordStream, source: Decompression | None, position: int, size: int) -> Damage | None:
    """The first fault of a batch: of its compression, which may cause others, or of its records."""
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
    """Damage of the first control record that Kafka cannot read."""
    header = decoded.header
    assert header is not None
    for index, record in enumerate(decoded.iter_records()):
        fault = parse_control_record(record.key, record.value).problem
        if fault is not None and not record.is_oversized:
            detail: Detail = {"reason": f"control_{fault}", "record_index": index}
            yield Damage("RECORD_MALFORMED", position, size, header.base_offset, header.last_offset, detail)
            return


def _record(header: BatchHeader, window: bytes | memoryview | None, row: list[int]) -> Record:
    """The record of one column of the matrix, with the fields that come from its batch."""
    offset_delta = row[RecordColumn.OFFSET_DELTA]
    timestamp = header.max_timestamp
    if header.timestamp_type != TIMESTAMP_TYPES[1]:
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
    """`count` headers at `position`, which the walk has found valid."""
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


# A sample of record keys, which a deep scan takes while it opens batches.


SAMPLED_BATCHES: Final = 1024
"""About how many batches of a log are sampled at most."""
MIN_SAMPLE_INTERVAL: Final = 64
"""Bytes of log for each sampled batch, at least."""
COMPRESSED_INTERVALS: Final = 4
"""Factor for compressed batches, each of which is opened separately and costs more."""
MAX_RECORDS_PER_SAMPLE: Final = 32
"""Records per sampled record of a batch, at most; its first record is always sampled."""
BYTES_PER_STEP: Final = 2048
"""Bytes of log that add one to that number: small logs are sampled more densely."""


class KeySampler:
    """Samples keys from a log of `log_bytes` bytes; the sample depends only on that number and on the batches' positions.

    Compressed messages of magic 0 and 1 are not sampled.
    """

    def __init__(self, log_bytes: int) -> None:
        self._interval = max(MIN_SAMPLE_INTERVAL, log_bytes // SAMPLED_BATCHES)
        self._compressed_interval = COMPRESSED_INTERVALS * self._interval
        self._records_per_sample = min(max(log_bytes // BYTES_PER_STEP, 1), MAX_RECORDS_PER_SAMPLE)
        self._scratch = np.empty((RECORD_COLUMNS, 1), np.int64)
        self._out = np.empty((KEY_SAMPLE_COLUMNS, MAX_RECORDS_OF_BATCH), np.int64)
        self._samples: list[NDArray[np.int64]] = []

    def sample_batches(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> None:
        """Sample the uncompressed batches of rows `[first, end)`, whose bytes are in `buffer`, byte `position` of the file on."""
        room = max_samples(columns[:, first:end], self._records_per_sample)
        if self._out.shape[1] < room:
            self._out = np.empty((KEY_SAMPLE_COLUMNS, room), np.int64)
        intervals = self._interval, self._records_per_sample
        self._keep(sample_batches(readable(buffer), position, columns, first, end, *intervals, self._scratch, self._out))

    def sampled_rows(self, columns: "NDArray[np.int64]", first: int, end: int) -> set[int]:
        """The rows of `[first, end)` that are sampled if they are compressed batches of records."""
        to_grain = -columns[BatchColumn.POSITION, first:end] % self._compressed_interval  # as the kernel `is_sampled`
        sampled = (to_grain < columns[BatchColumn.SIZE_IN_BYTES, first:end]).nonzero()[0] + first
        return set(sampled.tolist())

    def sample_payload(self, columns: "NDArray[np.int64]", row: int, payload: bytes | memoryview) -> None:
        """Sample the decompressed payload of a batch."""
        self._keep(
            sample_payload(readable(payload), 0, len(payload), columns, row, self._records_per_sample, self._scratch, self._out, 0)
        )

    def _keep(self, written: int) -> None:
        if written:
            self._samples.append(self._out[:, : int(written)].copy())

    def take(self) -> "NDArray[np.int64]":
        """The samples since the last call, a (KEY_SAMPLE_COLUMNS, n) matrix in file order; per run of rows compressed batches come
        first."""
        samples, self._samples = self._samples, []
        return np.concatenate([np.empty((KEY_SAMPLE_COLUMNS, 0), np.int64), *samples], axis=1)


class BatchChecks:
    """The inspector of a `SegmentReader` that opens legacy wrappers, and with `deep` every batch, to find damage inside.

    If `deep`, `keys` samples keys of records. A collected log has the results among its facts.
    """

    def __init__(self, *, deep: bool, keys: KeySampler | None = None) -> None:
        self.deep = deep
        self._keys = keys

    def __call__(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """Damage inside the batches of rows `[first, end)`; `buffer[0]` is byte `position` of the file.

        Rows of compressed messages of magic 0 and 1 get the offsets and the number of the messages inside.
        """
        damage = check_rows(buffer, position, columns, first, end, self._keys) if self.deep else []
        rows = columns[:, first:end]
        if int(rows[BatchColumn.MAGIC].min()) >= 2:
            return damage
        is_wrapper = has_right_crc(rows) & (rows[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK != 0) & (rows[BatchColumn.MAGIC] < 2)
        for row in np.flatnonzero(is_wrapper).tolist():
            opened = open_wrapper(bytes(BatchBytes(rows, buffer.data, position).bytes_of(row)))
            if opened.records_count > 0:
                rows[BatchColumn.BASE_OFFSET, row] = opened.base_offset
                rows[BatchColumn.LAST_OFFSET, row] = opened.last_offset
                rows[BatchColumn.RECORDS_COUNT, row] = opened.records_count
        return damage
