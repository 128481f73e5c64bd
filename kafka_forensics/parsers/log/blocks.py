"""Records of many batches as columns over the bytes they lie in: what lists, exports and searches need no object a record for.

The rows are those of `DecodedBatch.iter_records`, in the same order: a batch that breaks in the middle gives what can be read.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.model.batches import MARKER_COLUMNS, RECORD_COLUMNS, BatchColumn, MarkerColumn, RecordColumn
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)
from kafka_forensics.parsers.kernels.records import gather_records, read_markers, readable
from kafka_forensics.parsers.log.codecs import HELD_BYTES, decompress, decompress_into
from kafka_forensics.parsers.log.records import MARKER_VALUE_SIZE, MIN_CONTROL_KEY_SIZE, decode_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.kernels.records import Buffer

    Ints = NDArray[np.int64]

READ_BYTES: Final = 4 << 20
"""Of batches that are read at once, and of records that are held at once, unless one batch has more."""
Read = Callable[[int, int], bytes]
BLOCK_RECORDS: Final = 64 << 10
"""Records of a block at most."""
_GAP_BYTES: Final = 64 << 10
"""Bytes that nobody asks for and that are read nevertheless, for they cost less than one more reading."""


class RecordBlock(NamedTuple):
    """Some records that follow each other: all arrays have one entry for each, `columns` is (RECORD_COLUMNS, n).

    Positions in `columns` count in `payload`, which is None where a single record is too large to be held. `batches` is each one's
    row in the matrix of batches. Offsets, times and sequences are absolute, -1 is none; types of timestamps are indexes in
    RECORD_TIMESTAMP_TYPES.
    """

    payload: "Buffer | None"
    columns: "Ints"
    batches: "Ints"
    offsets: "Ints"
    timestamps: "Ints"
    timestamp_types: "NDArray[np.int8]"
    sequences: "Ints"


def record_blocks(batches: "Ints", rows: "Ints", read: Read) -> Iterator[RecordBlock]:
    """Every record of the batches of these rows, rising, of a (BATCH_COLUMNS, n) matrix.

    `read(position, size)` gives bytes of their file; what it raises is raised. A block is to be used before the next is asked for.
    """
    for piece in sound_blocks(batches, rows, read):
        if isinstance(piece, RecordBlock):
            yield piece
        else:
            yield from _one_batch(batches, *piece)


def sound_blocks(batches: "Ints", rows: "Ints", read: Read) -> Iterator[RecordBlock | tuple[int, memoryview]]:
    """The same, of batches in which nothing is wrong; (row, bytes) of one that may be broken, is large or of an old format."""
    matrix = np.empty((RECORD_COLUMNS, BLOCK_RECORDS), np.int64)
    batch_of = np.empty(BLOCK_RECORDS, np.int64)
    room = np.empty(READ_BYTES + HELD_BYTES, np.uint8).data
    for group in _read_together(batches, rows):
        start = int(batches[BatchColumn.POSITION, group[0]])
        end = int(batches[BatchColumn.POSITION, group[-1]] + batches[BatchColumn.SIZE_IN_BYTES, group[-1]])
        reading = _Reading(batches, memoryview(read(start, end - start)), start)
        for opened in _opened(reading, group, room):
            if isinstance(opened, int):
                yield opened, reading.bytes_of(opened)
                continue
            held, payloads, owners = opened.take()
            buffer = readable(held)
            gather = gather_records.compiled if gather_records.is_ready() else gather_records
            index = 0
            while index < len(owners):
                stop, records, _ = gather(buffer, payloads, index, matrix, batch_of)
                if records:
                    yield block_of(batches, buffer, matrix[:, :records], owners[batch_of[:records]])
                elif stop < len(owners):
                    yield int(owners[stop]), reading.bytes_of(int(owners[stop]))
                    stop += 1
                index = stop


def _read_together(batches: "Ints", rows: "Ints") -> "Iterator[Ints]":
    """`rows` in pieces whose batches lie near each other and are read at once."""
    starts = batches[BatchColumn.POSITION, rows]
    ends = starts + batches[BatchColumn.SIZE_IN_BYTES, rows]
    gaps = (np.flatnonzero(starts[1:] - ends[:-1] > _GAP_BYTES) + 1).tolist()
    for near, behind in pairwise([0, *gaps, len(rows)]):
        first = near
        while first < behind:
            fitting = first + int(np.searchsorted(ends[first:behind], starts[first] + READ_BYTES, side="right"))
            stop = max(fitting, first + 1)
            yield rows[first:stop]
            first = stop


class _Reading(NamedTuple):
    """Batches whose bytes were read together: `data` begins at byte `start` of the file."""

    batches: "Ints"
    data: memoryview
    start: int

    def bytes_of(self, row: int) -> memoryview:
        """The bytes of a batch, fewer where the file ended before it."""
        at = int(self.batches[BatchColumn.POSITION, row]) - self.start
        return self.data[at : at + int(self.batches[BatchColumn.SIZE_IN_BYTES, row])]

    def plain(self, rows: "Ints") -> "NDArray[np.bool_]":
        """Which of these batches need no opening: of magic 2, not compressed, whole and not large."""
        sizes = self.batches[BatchColumn.SIZE_IN_BYTES, rows]
        ends = self.batches[BatchColumn.POSITION, rows] - self.start + sizes
        is_plain = (self.batches[BatchColumn.MAGIC, rows] >= 2) & (
            self.batches[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK == 0
        )
        answer: NDArray[np.bool_] = is_plain & (sizes >= RECORD_BATCH_OVERHEAD) & (sizes < HELD_BYTES) & (ends <= len(self.data))
        return answer


class _Payloads:
    """Payloads of several batches, side by side, as `gather_records` takes them."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[tuple[memoryview, int, int]] = []
        self._spans: list[Ints] = []
        self._rows: list[Ints] = []
        self._inflated: list[tuple[int, int, int, int]] = []
        """Of payloads that came one by one: begin, end, promised records, row."""

    def add_plain(self, buffer: memoryview, start: int, spans: "Ints", rows: "Ints") -> None:
        """Add payloads that lie in `buffer` from byte `start` on, (3, n): where each begins and ends there, and how many records it
        promises."""
        self._settle()
        size = int(spans[1, -1])
        spans[:2] += self.size
        self._spans.append(spans)
        self._rows.append(rows)
        self._extend(buffer, start, start + size)

    def add_inflated(self, buffer: memoryview, start: int, end: int, count: int, row: int) -> None:
        """Add the payload `buffer[start:end]`, which promises `count` records."""
        self._inflated.append((self.size, self.size + end - start, count, row))
        self._extend(buffer, start, end)

    def take(self) -> "tuple[bytes | memoryview, Ints, Ints]":
        """(bytes, payloads, row of each), of which none are left; the bytes are copied only if they do not lie side by side."""
        self._settle()
        parts, spans, rows = [buffer[start:end] for buffer, start, end in self._parts], self._spans, self._rows
        self.__init__()  # type: ignore[misc]
        return parts[0] if len(parts) == 1 else b"".join(parts), np.concatenate(spans, axis=1), np.concatenate(rows)

    def _extend(self, buffer: memoryview, start: int, end: int) -> None:
        self.size += end - start
        if self._parts and self._parts[-1][0] is buffer and self._parts[-1][2] == start:
            start = self._parts.pop()[1]
        self._parts.append((buffer, start, end))

    def _settle(self) -> None:
        if self._inflated:
            columns = np.array(self._inflated, np.int64).T
            self._spans.append(columns[:3])
            self._rows.append(columns[3])
            self._inflated = []


def _opened(reading: _Reading, rows: "Ints", room: memoryview) -> "Iterator[_Payloads | int]":
    """Payloads of the batches of `rows`, in order, many together; the row of one that must be opened by itself.

    What is inflated lies in `room`, which holds a block and one batch more, until the next are asked for.
    """
    payloads = _Payloads()
    used = 0
    is_plain = reading.plain(rows)
    edges = [0, *(np.flatnonzero(np.diff(is_plain)) + 1).tolist(), len(rows)]
    for first, behind in pairwise(edges):
        run = rows[first:behind]
        if is_plain[first]:
            if payloads.size >= READ_BYTES:
                yield payloads
                used = 0
            payloads.add_plain(reading.data, *_spans(reading, run), run)
            continue
        for row, count in zip(run.tolist(), reading.batches[BatchColumn.RECORDS_COUNT, run].tolist(), strict=True):
            if payloads.size >= READ_BYTES:
                yield payloads
                used = 0
            size = _inflated(reading, row, room[used:])
            if payloads.size and (size < 0 or payloads.size + size > READ_BYTES):
                yield payloads
                if size > 0:
                    room[:size] = room[used : used + size]
                used = 0
            if size < 0:
                yield row
                continue
            payloads.add_inflated(room, used, used + size, count, row)
            used += size
    if payloads.size:
        yield payloads


def _spans(reading: _Reading, rows: "Ints") -> "tuple[int, Ints]":
    """Where the payloads of plain batches lie: the first byte of the first batch, and (3, n) as `gather_records` takes it."""
    positions = reading.batches[BatchColumn.POSITION, rows]
    sizes, counts = reading.batches[BatchColumn.SIZE_IN_BYTES, rows], reading.batches[BatchColumn.RECORDS_COUNT, rows]
    starts = positions - positions[0]
    return int(positions[0]) - reading.start, np.stack([starts + RECORD_BATCH_OVERHEAD, starts + sizes, counts])


def _inflated(reading: _Reading, row: int, output: memoryview) -> int:
    """How many bytes a compressed batch of magic 2 gave, which are written to `output`.

    -1 if they are many or none, the batch cannot be read to its end, or is of an old format.
    """
    batch, attributes = reading.bytes_of(row), int(reading.batches[BatchColumn.ATTRIBUTES, row])
    if reading.batches[BatchColumn.MAGIC, row] < 2 or not attributes & COMPRESSION_MASK:
        return -1
    if len(batch) < reading.batches[BatchColumn.SIZE_IN_BYTES, row]:
        return -1
    payload = batch[RECORD_BATCH_OVERHEAD:]
    size = decompress_into(attributes & COMPRESSION_MASK, payload, output)
    if size < 0:
        plain = decompress(attributes & COMPRESSION_MASK, payload)
        size = len(plain.data) if plain.problem is None else 0
        if 0 < size < HELD_BYTES:
            output[:size] = plain.data
    return size if 0 < size < HELD_BYTES else -1


def _one_batch(batches: "Ints", row: int, batch: memoryview) -> Iterator[RecordBlock]:
    """Records of a batch that is opened by itself."""
    decoded = decode_batch(batch, position=int(batches[BatchColumn.POSITION, row]))
    for window, columns in decoded.windows():
        rows = np.full(columns.shape[1], row)
        payload = None if window is None else readable(window)
        if decoded.legacy is None:
            yield block_of(batches, payload, columns, rows)
        else:
            offsets, timestamps, kinds = decoded.legacy.absolute(columns)
            yield RecordBlock(payload, columns, rows, offsets, timestamps, kinds, np.full(len(rows), NO_SEQUENCE))


def block_of(batches: "Ints", payload: "Buffer | None", columns: "Ints", rows: "Ints") -> RecordBlock:
    """A block of records of magic 2."""
    deltas = columns[RecordColumn.OFFSET_DELTA]
    timestamps, by_broker = _timestamps(batches, rows, columns[RecordColumn.TIMESTAMP_DELTA])
    sequences = batches[BatchColumn.BASE_SEQUENCE][rows]
    return RecordBlock(
        payload,
        columns,
        rows,
        batches[BatchColumn.BASE_OFFSET][rows] + deltas,
        timestamps,
        by_broker.astype(np.int8),
        np.where(sequences >= 0, (sequences + deltas) & MAX_SEQUENCE, NO_SEQUENCE),
    )


# Markers of transactions, which are batches of one record each: what they say is read without a column for every field.


class MarkerBlock(NamedTuple):
    """What markers say, one entry for each; offsets and times are absolute, `columns` is (MARKER_COLUMNS, n)."""

    columns: "Ints"
    offsets: "Ints"
    timestamps: "Ints"


def marker_block(batches: "Ints", rows: "Ints", read: Read) -> MarkerBlock | None:
    """What the control batches of these rows, rising, say; None if they hold anything but a marker that can be read.

    `batches` and `read` are those of `record_blocks`.
    """
    columns = np.empty((MARKER_COLUMNS, len(rows)), np.int64)
    scratch = np.empty((RECORD_COLUMNS, 1), np.int64)
    done = 0
    for group in _read_together(batches, rows):
        start = int(batches[BatchColumn.POSITION, group[0]])
        end = int(batches[BatchColumn.POSITION, group[-1]] + batches[BatchColumn.SIZE_IN_BYTES, group[-1]])
        reading = _Reading(batches, memoryview(read(start, end - start)), start)
        if not (reading.plain(group) & (batches[BatchColumn.RECORDS_COUNT, group] == 1)).all():
            return None
        positions = batches[BatchColumn.POSITION, group] - start
        payloads = np.stack([positions + RECORD_BATCH_OVERHEAD, positions + batches[BatchColumn.SIZE_IN_BYTES, group]])
        markers = np.empty((MARKER_COLUMNS, len(group)), np.int64)
        least = MIN_CONTROL_KEY_SIZE, MARKER_VALUE_SIZE
        if read_markers(readable(reading.data), payloads, *least, scratch, markers) < len(group):
            return None
        columns[:, done : done + len(group)] = markers
        done += len(group)
    offsets = batches[BatchColumn.BASE_OFFSET][rows] + columns[MarkerColumn.OFFSET_DELTA]
    timestamps, _ = _timestamps(batches, rows, columns[MarkerColumn.TIMESTAMP_DELTA])
    return MarkerBlock(columns, offsets, timestamps)


def _timestamps(batches: "Ints", rows: "Ints", deltas: "Ints") -> "tuple[Ints, NDArray[np.bool_]]":
    """Times of records of magic 2 by those of their batches, and whether each is the broker's."""
    by_broker = batches[BatchColumn.ATTRIBUTES][rows] & TIMESTAMP_TYPE_MASK != 0
    stamped = batches[BatchColumn.BASE_TIMESTAMP][rows] + deltas
    return np.where(by_broker, batches[BatchColumn.MAX_TIMESTAMP][rows], stamped), by_broker
