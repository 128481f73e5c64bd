"""Records with hashes instead of keys and values, for the comparison of compacted logs."""

import hashlib
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Final, Protocol, Self

import numpy as np
import xxhash
from msgspec import Struct, field

from kafka_forensics.model.batches import RECORD_COLUMNS, RECORD_ROWS, BatchColumn, Damage, RecordColumn, has_right_crc
from kafka_forensics.model.constants import COMPRESSION_MASK, CONTROL_MASK, RECORD_BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK
from kafka_forensics.parsers.kernels.records import gather_records, readable
from kafka_forensics.parsers.log.codecs import HELD_BYTES
from kafka_forensics.parsers.log.records import MAX_BATCH_BYTES, DecodedBatch, decode_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]


class HashedRecords(Struct, frozen=True):
    """Records as int64 arrays of equal length, in log order.

    `keys` is (n, 2), the two halves of a hash. The hash of a null key or value, with length -1, has no meaning.
    """

    positions: "Ints"
    """Position in the segment of each record's batch."""
    offsets: "Ints"
    timestamps: "Ints"
    """For LogAppendTime that of the batch."""
    keys: "Ints"
    key_lengths: "Ints"
    shown: "Ints"
    """64 bits that identify the key in outputs."""
    values: "Ints"
    value_lengths: "Ints"
    headers: "Ints"
    """32 bits of a hash of all headers; 0 without headers, or if headers are not hashed."""
    unread: "Ints"
    """Positions of batches with missing records: the batch is damaged or too large, or a record is too large."""

    @classmethod
    def none(cls, *unread: int) -> Self:
        """No records; `unread` are positions of batches."""
        nothing, keys = np.empty(0, np.int64), np.empty((0, 2), np.int64)
        return cls(nothing, nothing, nothing, keys, nothing, nothing, nothing, nothing, nothing, np.array(unread, np.int64))

    @classmethod
    def together(cls, parts: list["HashedRecords"]) -> "HashedRecords":
        """All parts, ordered by batch position."""
        if not parts:
            return HashedRecords.none()
        joined = {column: np.concatenate([getattr(records, column) for records in parts]) for column in cls.__struct_fields__}
        order, unread = np.argsort(joined["positions"], kind="stable"), np.unique(joined.pop("unread"))
        return HashedRecords(**{name: column[order] for name, column in joined.items()}, unread=unread)

    def part(self, start: int, end: int) -> "HashedRecords":
        """Elements `[start, end)` of every array, `unread` included."""
        return HashedRecords(*(getattr(self, column)[start:end] for column in self.__struct_fields__))

    def of(self, positions: "Ints") -> "HashedRecords":
        """The records of the batches at these positions; the records must be ordered by batch position."""
        positions = np.sort(positions)
        starts = np.searchsorted(self.positions, positions, "left")
        counts = np.searchsorted(self.positions, positions, "right") - starts
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
        chosen = {column: getattr(self, column)[rows] for column in self.__struct_fields__ if column != "unread"}
        return HashedRecords(**chosen, unread=self.unread[np.isin(self.unread, positions)])


KEY_BYTES: Final = 10
VALUE_BYTES: Final = 8
_LOW_32_BITS: Final = 0xFFFFFFFF


class RecordHasher(Protocol):
    """Hashes keys and values; only hashes of the same hasher can be compared.

    Both methods take `payload[position : position + size]` for each position and size; null has a size of -1.
    """

    def keys(self, payload: bytes, positions: "Ints", sizes: "Ints") -> "tuple[Ints, Ints]":
        """(hashes, (n, 2); the 64 bits that identify each key in outputs, (n,))."""

    def values(self, payload: bytes, positions: "Ints", sizes: "Ints") -> "Ints":
        """Hashes, (n,)."""


class SeededHasher:
    """XXH3 with a random seed for each scan, which is never stored: 128 bits of keys, 64 of values; the fastest.

    Keys in outputs are XXH3 without a seed, equal in every scan.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def keys(self, payload: bytes, positions: "Ints", sizes: "Ints") -> "tuple[Ints, Ints]":
        """See `RecordHasher`."""
        slices = _slices(payload, positions, sizes)
        shown = np.frombuffer(b"".join(map(xxhash.xxh3_64_digest, slices)), ">i8").astype(np.int64)
        return self._hashed(slices), shown

    def values(self, payload: bytes, positions: "Ints", sizes: "Ints") -> "Ints":
        """See `RecordHasher`."""
        return self._hashed(_slices(payload, positions, sizes))[:, 0]

    def _hashed(self, slices: list[bytes]) -> "Ints":
        digests = map(xxhash.xxh3_128_digest, slices, repeat(self._seed))
        return np.frombuffer(b"".join(digests), np.int64).reshape(-1, 2)


class StrongHasher:
    """BLAKE2b, with or without a secret: 80 bits of keys, 64 of values.

    A collision takes 2^40 keys or 2^32 values, a collision with a given key or value 2^80 or 2^64.
    """

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret

    def keys(self, payload: bytes, positions: "Ints", sizes: "Ints") -> "tuple[Ints, Ints]":
        """See `RecordHasher`; 48 bits of the second half are 0."""
        hashes = np.zeros((len(positions), 2), "<i8")
        hashes.view(np.uint8)[:, :KEY_BYTES] = self._digests(payload, positions, sizes, KEY_BYTES)
        return hashes.astype(np.int64), hashes[:, 0].astype(np.int64)

    def values(self, payload: bytes, positions: "Ints", sizes: "Ints") -> "Ints":
        """See `RecordHasher`."""
        return self._digests(payload, positions, sizes, VALUE_BYTES).view("<i8").ravel().astype(np.int64)

    def _digests(self, payload: bytes, positions: "Ints", sizes: "Ints", digest_size: int) -> "NDArray[np.uint8]":
        """(n, digest_size); digests of different sizes have nothing in common."""
        slices = _slices(payload, positions, sizes)
        digests = [hashlib.blake2b(data, digest_size=digest_size, key=self._secret).digest() for data in slices]
        return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, digest_size)


def _slices(payload: bytes, positions: "Ints", sizes: "Ints") -> list[bytes]:
    return [payload[start:end] for start, end in zip(positions.tolist(), (positions + sizes).tolist(), strict=True)]


# Reading: many plain batches at once, others one by one.


class HashingReader(Struct):
    """Reads and hashes the records of batches; keeps memory for many batches until `release`."""

    hasher: RecordHasher
    with_headers: bool = False
    """Whether to hash headers."""
    _matrix: "Ints" = field(default_factory=lambda: np.empty((RECORD_COLUMNS, 0), np.int64))
    _batch_numbers: "Ints" = field(default_factory=lambda: np.empty(0, np.int64))

    def release(self) -> None:
        """Free the memory for many records."""
        self._matrix, self._batch_numbers = np.empty((RECORD_COLUMNS, 0), np.int64), np.empty(0, np.int64)

    def plain(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "Ints", rows: "Ints"
    ) -> "Iterator[tuple[Ints, HashedRecords | None]]":
        """(row of each record's batch, records) of plain batches of magic 2, whose bytes are in `buffer`.

        `buffer[0]` is byte `position` of the file. Base offsets are those in `columns`. A row with None is a batch that must be
        opened separately, see `opened`.
        """
        if not len(self._batch_numbers):
            self._matrix, self._batch_numbers = np.empty((RECORD_COLUMNS, RECORD_ROWS), np.int64), np.empty(RECORD_ROWS, np.int64)
        starts = columns[BatchColumn.POSITION, rows] - position
        ends = starts + columns[BatchColumn.SIZE_IN_BYTES, rows]
        payloads = np.stack([starts + RECORD_BATCH_OVERHEAD, ends, columns[BatchColumn.RECORDS_COUNT, rows]])
        readable_buffer = readable(buffer)
        index = 0
        while index < rows.size:
            stop, records, _ = gather_records(readable_buffer, payloads, index, self._matrix, self._batch_numbers)
            if records:
                batch_of = rows[self._batch_numbers[:records]]
                yield batch_of, self._gathered(buffer, columns, self._matrix[:, :records], batch_of)
            elif stop < rows.size:
                yield rows[stop : stop + 1], None
                stop += 1
            index = stop

    def _gathered(self, buffer: "NDArray[np.uint8]", columns: "Ints", records: "Ints", batch_of: "Ints") -> HashedRecords:
        """The records of several batches; positions in `records` count in `buffer`."""
        start = int(records[RecordColumn.POSITION, 0])
        end = int(records[RecordColumn.POSITION, -1] + records[RecordColumn.SIZE_IN_BYTES, -1])
        has_append_time = columns[BatchColumn.ATTRIBUTES][batch_of] & TIMESTAMP_TYPE_MASK != 0
        created = columns[BatchColumn.BASE_TIMESTAMP][batch_of] + records[RecordColumn.TIMESTAMP_DELTA]
        return self._of_columns(
            columns[BatchColumn.POSITION][batch_of],
            records[RecordColumn.OFFSET_DELTA] + columns[BatchColumn.BASE_OFFSET][batch_of],
            np.where(has_append_time, columns[BatchColumn.MAX_TIMESTAMP][batch_of], created),
            (buffer[start:end].tobytes(), start),
            records,
        )

    def _of_columns(
        self, positions: "Ints", offsets: "Ints", timestamps: "Ints", payload: tuple[bytes, int], records: "Ints"
    ) -> HashedRecords:
        """The records with these columns; `payload` is (bytes, where its first byte is, counted as the positions in `records`)."""
        data, start = payload
        key_lengths, value_lengths = records[RecordColumn.KEY_LENGTH].copy(), records[RecordColumn.VALUE_LENGTH].copy()
        keys, shown = self.hasher.keys(data, records[RecordColumn.KEY_POSITION] - start, key_lengths)
        values = self.hasher.values(data, records[RecordColumn.VALUE_POSITION] - start, value_lengths)
        unread, headers = np.empty(0, np.int64), np.zeros(records.shape[1], np.int64)
        rows = np.flatnonzero(records[RecordColumn.HEADERS_COUNT] > 0) if self.with_headers else headers[:0]
        if rows.size:
            begins = records[RecordColumn.HEADERS_POSITION, rows]
            ends = records[RecordColumn.POSITION, rows] + records[RecordColumn.SIZE_IN_BYTES, rows]
            headers[rows] = self.hasher.values(data, begins - start, ends - begins) & _LOW_32_BITS
        return HashedRecords(positions, offsets, timestamps, keys, key_lengths, shown, values, value_lengths, headers, unread)

    def opened(self, batch: DecodedBatch, position: int) -> Iterator[HashedRecords]:
        """The records of an opened batch of any magic at byte `position` of the segment."""
        header = batch.header
        if header is None or (len(batch.payload) >= HELD_BYTES and header.codec != 0):
            yield from self._one_by_one(batch, position)
            return
        payload = bytes(batch.payload)
        has_append_time = header.timestamp_type == "LogAppendTime"
        for records in batch.iter_columns():
            count, deltas = records.shape[1], records[RecordColumn.TIMESTAMP_DELTA]
            yield self._of_columns(
                np.full(count, position),
                records[RecordColumn.OFFSET_DELTA] + header.base_offset,
                np.full(count, header.max_timestamp) if has_append_time else deltas + header.base_timestamp,
                (payload, 0),
                records,
            )

    def _one_by_one(self, batch: DecodedBatch, position: int) -> Iterator[HashedRecords]:
        """The same for batches of old formats, and for those too large to hold at once."""
        at, nothing = np.zeros(1, np.int64), np.empty(0, np.int64)
        for record in batch.iter_records():
            if record.is_oversized or record.offset < 0:
                yield HashedRecords.none(position)
                continue
            key, value = record.key or b"", record.value or b""
            keys, shown = self.hasher.keys(key, at, np.array([len(key)]))
            values = self.hasher.values(value, at, np.array([len(value)]))
            headers = np.zeros(1, np.int64)
            if self.with_headers and record.headers:
                encoded = encode_headers(record.headers)
                headers = self.hasher.values(encoded, at, np.array([len(encoded)])) & _LOW_32_BITS
            numbers = [position, record.offset, record.timestamp, record.key_length, record.value_length]
            place, offset, timestamp, key_length, value_length = (np.array([number], np.int64) for number in numbers)
            yield HashedRecords(place, offset, timestamp, keys, key_length, shown, values, value_length, headers, nothing)


def encode_headers(headers: tuple[tuple[bytes, bytes | None], ...]) -> bytes:
    """Headers as in a batch of magic 2, without their count."""
    from kafka_forensics.parsers.spec.record_batch import encode_zigzag  # few batches need it

    parts: list[bytes] = []
    for key, value in headers:
        parts += [encode_zigzag(len(key)), key, encode_zigzag(-1 if value is None else len(value)), value or b""]
    return b"".join(parts)


def data_batches(columns: "Ints", first: int, end: int) -> "tuple[NDArray[np.bool_], NDArray[np.bool_]]":
    """(which rows of `[first, end)` are data batches with the right CRC, which are control batches with the right CRC)."""
    rows = columns[:, first:end]
    good = has_right_crc(rows)
    control = (rows[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (rows[BatchColumn.MAGIC] >= 2)
    return good & ~control & (rows[BatchColumn.RECORDS_COUNT] != 0), good & control


def split_plain_rows(columns: "Ints", rows: "Ints") -> "tuple[Ints, Ints]":
    """(rows that `HashingReader.plain` reads, other rows)."""
    plain = (columns[BatchColumn.MAGIC, rows] >= 2) & (columns[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK == 0)
    return rows[plain], rows[~plain]


class SegmentHashes:
    """Hashes the records of a segment's batches as the inspector of a `SegmentReader`: those of `KeyReader`, for all offsets.

    A damaged batch, or one of more than `MAX_BATCH_BYTES`, is in `unread`.
    """

    def __init__(self, hasher: RecordHasher) -> None:
        self._reader = HashingReader(hasher, with_headers=True)
        self._parts: list[HashedRecords] = []

    def inspect(
        self, buffer: "NDArray[np.uint8]", buffer_position: int, columns: "Ints", first_row: int, end_row: int
    ) -> list[Damage]:
        """Hash the records of rows `[first_row, end_row)`, see `Inspector`; returns no damage."""
        data_rows = np.flatnonzero(data_batches(columns, first_row, end_row)[0]) + first_row
        plain, others = split_plain_rows(columns, data_rows)
        separate = others.tolist()
        for rows, records in self._reader.plain(buffer, buffer_position, columns, plain):
            if records is None:
                separate += rows.tolist()
            else:
                self._parts.append(records)
        for row in separate:
            position, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
            start = position - buffer_position
            self._open(buffer[start : start + size].tobytes(), position)
        return []

    def inspect_batch(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Hash the records of one batch of `size` bytes at `position`; returns no damage. Raises SourceError."""
        if size <= MAX_BATCH_BYTES:
            self._open(file.read_at(position, size), position)
        else:
            self._parts.append(HashedRecords.none(position))
        return []

    def _open(self, data: bytes, position: int) -> None:
        batch = decode_batch(data, position=position)
        if batch.problems:
            self._parts.append(HashedRecords.none(position))
        elif batch.header is None or not batch.header.is_control_batch:
            self._parts += self._reader.opened(batch, position)

    @property
    def count(self) -> int:
        """Number of records so far."""
        return sum(len(part.offsets) for part in self._parts)

    def take(self) -> HashedRecords:
        """All records so far, ordered by batch position; removes them."""
        parts, self._parts = self._parts, []
        return HashedRecords.together(parts)
