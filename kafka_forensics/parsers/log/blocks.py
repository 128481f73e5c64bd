"""Records of many batches as columns, for lists, exports and searches, which need no object for each record.

The records are those of `DecodedBatch.iter_records`, in the same order, including the readable records of damaged batches.
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
from kafka_forensics.parsers.log.records import MARKER_VALUE_SIZE, MIN_CONTROL_KEY_SIZE, BatchBytes, decode_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.kernels.records import Buffer

    Ints = NDArray[np.int64]

READ_BYTES: Final = 4 << 20
"""Most bytes of batches in one read, and of decompressed payloads in memory, unless one batch has more."""
Read = Callable[[int, int], bytes]
"""`read(position, size)` returns bytes of the file."""
BLOCK_RECORDS: Final = 64 << 10
"""Most records of a block."""
_GAP_BYTES: Final = 64 << 10
"""Largest gap between requested batches that is read, because it costs less than another read."""


class RecordBlock(NamedTuple):
    """Consecutive records; all arrays have one entry per record, `columns` is (RECORD_COLUMNS, n).

    Positions in `columns` count in `payload`, which is None with a single record that is too large. `batches` has the column of
    each record's batch in the matrix of batches. Offsets, times and sequences are absolute, -1 is none; `timestamp_types` are
    indexes in RECORD_TIMESTAMP_TYPES.
    """

    payload: "Buffer | None"
    columns: "Ints"
    batches: "Ints"
    offsets: "Ints"
    timestamps: "Ints"
    timestamp_types: "NDArray[np.int8]"
    sequences: "Ints"


def record_blocks(batches: "Ints", rows: "Ints", read: Read) -> Iterator[RecordBlock]:
    """Every record of the batches of `rows`, ascending, of a (BATCH_COLUMNS, n) matrix. Raises what `read` raises.

    The next block overwrites each.
    """
    for block in valid_blocks(batches, rows, read):
        if isinstance(block, RecordBlock):
            yield block
        else:
            yield from _blocks_of_batch(batches, *block)


def valid_blocks(batches: "Ints", rows: "Ints", read: Read) -> Iterator[RecordBlock | tuple[int, memoryview]]:
    """The same for valid batches; (row, bytes) of a batch that may be damaged, is large or has an old format."""
    matrix = np.empty((RECORD_COLUMNS, BLOCK_RECORDS), np.int64)
    batch_of = np.empty(BLOCK_RECORDS, np.int64)
    scratch = np.empty(READ_BYTES + HELD_BYTES, np.uint8).data
    for group, batch_bytes in _read_groups(batches, rows, read):
        for opened in _open_payloads(batch_bytes, group, scratch):
            if isinstance(opened, int):
                yield opened, batch_bytes.bytes_of(opened)
                continue
            data, payloads, owners = opened.take()
            buffer = readable(data)
            gather = gather_records.compiled if gather_records.is_ready() else gather_records
            index = 0
            while index < len(owners):
                stop, records, _ = gather(buffer, payloads, index, matrix, batch_of)
                if records:
                    yield block_of(batches, buffer, matrix[:, :records], owners[batch_of[:records]])
                elif stop < len(owners):
                    yield int(owners[stop]), batch_bytes.bytes_of(int(owners[stop]))
                    stop += 1
                index = stop


def _read_groups(batches: "Ints", rows: "Ints", read: Read) -> "Iterator[tuple[Ints, BatchBytes]]":
    """`rows` in groups whose batches are near each other, each with the result of one read."""
    starts = batches[BatchColumn.POSITION, rows]
    ends = starts + batches[BatchColumn.SIZE_IN_BYTES, rows]
    gaps = (np.flatnonzero(starts[1:] - ends[:-1] > _GAP_BYTES) + 1).tolist()
    for first, end in pairwise([0, *gaps, len(rows)]):
        while first < end:
            fitting = first + int(np.searchsorted(ends[first:end], starts[first] + READ_BYTES, side="right"))
            stop, position = max(fitting, first + 1), int(starts[first])
            data = memoryview(read(position, int(ends[stop - 1]) - position))
            yield rows[first:stop], BatchBytes(batches, data, position)
            first = stop


def _is_plain(batches: BatchBytes, rows: "Ints") -> "NDArray[np.bool_]":
    """Which of these batches are of magic 2, uncompressed, complete and not large."""
    columns = batches.columns[:, rows]
    sizes = columns[BatchColumn.SIZE_IN_BYTES]
    is_complete = columns[BatchColumn.POSITION] - batches.start + sizes <= len(batches.data)
    is_uncompressed = (columns[BatchColumn.MAGIC] >= 2) & (columns[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK == 0)
    answer: NDArray[np.bool_] = is_uncompressed & is_complete & (sizes >= RECORD_BATCH_OVERHEAD) & (sizes < HELD_BYTES)
    return answer


class _Payloads:
    """Payloads of several batches as `gather_records` takes them, with as few copies as possible."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[tuple[memoryview, int, int]] = []
        self._spans: list[Ints] = []
        self._rows: list[Ints] = []
        self._inflated: list[tuple[int, int, int, int]] = []
        """Start, end, declared number of records and row of payloads that were added one by one."""

    def add_plain(self, buffer: memoryview, start: int, spans: "Ints", rows: "Ints") -> None:
        """Add payloads of `buffer` from byte `start` on; `spans`, (3, n), has start, end and declared number of records of each."""
        self._flush()
        size = int(spans[1, -1])
        spans[:2] += self.size
        self._spans.append(spans)
        self._rows.append(rows)
        self._extend(buffer, start, start + size)

    def add_inflated(self, buffer: memoryview, start: int, end: int, count: int, row: int) -> None:
        """Add the payload `buffer[start:end]`, which declares `count` records."""
        self._inflated.append((self.size, self.size + end - start, count, row))
        self._extend(buffer, start, end)

    def take(self) -> "tuple[bytes | memoryview, Ints, Ints]":
        """(bytes, payloads, row of each), and remove them; bytes are copied only if they are not adjacent."""
        self._flush()
        parts, spans, rows = [buffer[start:end] for buffer, start, end in self._parts], self._spans, self._rows
        self.__init__()  # type: ignore[misc]
        return parts[0] if len(parts) == 1 else b"".join(parts), np.concatenate(spans, axis=1), np.concatenate(rows)

    def _extend(self, buffer: memoryview, start: int, end: int) -> None:
        self.size += end - start
        if self._parts and self._parts[-1][0] is buffer and self._parts[-1][2] == start:
            start = self._parts.pop()[1]
        self._parts.append((buffer, start, end))

    def _flush(self) -> None:
        if self._inflated:
            columns = np.array(self._inflated, np.int64).T
            self._spans.append(columns[:3])
            self._rows.append(columns[3])
            self._inflated = []


def _open_payloads(batches: BatchBytes, rows: "Ints", scratch: memoryview) -> "Iterator[_Payloads | int]":
    """Payloads of the batches of `rows`, in order, many at once; the row of a batch that must be opened separately.

    Decompressed payloads are in `scratch`, with space for a block and one more batch, until the next payloads are returned.
    """
    payloads = _Payloads()
    used = 0
    is_plain = _is_plain(batches, rows)
    edges = [0, *(np.flatnonzero(np.diff(is_plain)) + 1).tolist(), len(rows)]
    for first, end in pairwise(edges):
        run = rows[first:end]
        if is_plain[first]:
            if payloads.size >= READ_BYTES:
                yield payloads
                used = 0
            payloads.add_plain(batches.data, *_spans(batches, run), run)
            continue
        for row, count in zip(run.tolist(), batches.columns[BatchColumn.RECORDS_COUNT, run].tolist(), strict=True):
            if payloads.size >= READ_BYTES:
                yield payloads
                used = 0
            size = _inflated(batches, row, scratch[used:])
            if payloads.size and (size < 0 or payloads.size + size > READ_BYTES):
                yield payloads
                if size > 0:
                    scratch[:size] = scratch[used : used + size]
                used = 0
            if size < 0:
                yield row
                continue
            payloads.add_inflated(scratch, used, used + size, count, row)
            used += size
    if payloads.size:
        yield payloads


def _spans(batches: BatchBytes, rows: "Ints") -> "tuple[int, Ints]":
    """The payloads of plain batches: the first byte of the first batch, and (3, n) as `gather_records` takes it."""
    columns = batches.columns[:, rows]
    positions = columns[BatchColumn.POSITION]
    starts = positions - positions[0]
    ends = starts + columns[BatchColumn.SIZE_IN_BYTES]
    return int(positions[0]) - batches.start, np.stack([starts + RECORD_BATCH_OVERHEAD, ends, columns[BatchColumn.RECORDS_COUNT]])


def _inflated(batches: BatchBytes, row: int, output: memoryview) -> int:
    """Decompress a batch of magic 2 to `output`; returns how many bytes, -1 if they are too many or none, or the batch is damaged,
    cut, uncompressed or of an old format."""
    batch, column = batches.bytes_of(row), batches.columns[:, row]
    codec = int(column[BatchColumn.ATTRIBUTES]) & COMPRESSION_MASK
    if column[BatchColumn.MAGIC] < 2 or not codec or len(batch) < column[BatchColumn.SIZE_IN_BYTES]:
        return -1
    payload = batch[RECORD_BATCH_OVERHEAD:]
    size = decompress_into(codec, payload, output)
    if size < 0:
        plain = decompress(codec, payload)
        size = len(plain.data) if plain.problem is None else 0
        if 0 < size < HELD_BYTES:
            output[:size] = plain.data
    return size if 0 < size < HELD_BYTES else -1


def _blocks_of_batch(batches: "Ints", row: int, batch: memoryview) -> Iterator[RecordBlock]:
    """Records of a batch that is opened separately."""
    decoded = decode_batch(batch, position=int(batches[BatchColumn.POSITION, row]))
    for window, columns in decoded.windows():
        rows = np.full(columns.shape[1], row)
        payload = None if window is None else readable(window)
        if decoded.legacy is None:
            yield block_of(batches, payload, columns, rows)
        else:
            offsets, timestamps, types = decoded.legacy.absolute(columns)
            yield RecordBlock(payload, columns, rows, offsets, timestamps, types, np.full(len(rows), NO_SEQUENCE))


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


# Transaction markers, batches of one record each: read without a column for every field of a record.


class MarkerBlock(NamedTuple):
    """Transaction markers, one entry each; offsets and times are absolute, `columns` is (MARKER_COLUMNS, n)."""

    columns: "Ints"
    offsets: "Ints"
    timestamps: "Ints"


def marker_block(batches: "Ints", rows: "Ints", read: Read) -> MarkerBlock | None:
    """The markers in the control batches of `rows`, ascending; None if any of them is not a readable marker.

    `batches` and `read` are as for `record_blocks`.
    """
    columns = np.empty((MARKER_COLUMNS, len(rows)), np.int64)
    scratch = np.empty((RECORD_COLUMNS, 1), np.int64)
    done = 0
    for group, batch_bytes in _read_groups(batches, rows, read):
        if not (_is_plain(batch_bytes, group) & (batches[BatchColumn.RECORDS_COUNT, group] == 1)).all():
            return None
        positions = batches[BatchColumn.POSITION, group] - batch_bytes.start
        payloads = np.stack([positions + RECORD_BATCH_OVERHEAD, positions + batches[BatchColumn.SIZE_IN_BYTES, group]])
        markers = np.empty((MARKER_COLUMNS, len(group)), np.int64)
        sizes = MIN_CONTROL_KEY_SIZE, MARKER_VALUE_SIZE
        if read_markers(readable(batch_bytes.data), payloads, *sizes, scratch, markers) < len(group):
            return None
        columns[:, done : done + len(group)] = markers
        done += len(group)
    offsets = batches[BatchColumn.BASE_OFFSET][rows] + columns[MarkerColumn.OFFSET_DELTA]
    timestamps, _ = _timestamps(batches, rows, columns[MarkerColumn.TIMESTAMP_DELTA])
    return MarkerBlock(columns, offsets, timestamps)


def _timestamps(batches: "Ints", rows: "Ints", deltas: "Ints") -> "tuple[Ints, NDArray[np.bool_]]":
    """Timestamps of records of magic 2, and whether each is LogAppendTime."""
    by_broker = batches[BatchColumn.ATTRIBUTES][rows] & TIMESTAMP_TYPE_MASK != 0
    stamped = batches[BatchColumn.BASE_TIMESTAMP][rows] + deltas
    return np.where(by_broker, batches[BatchColumn.MAX_TIMESTAMP][rows], stamped), by_broker
