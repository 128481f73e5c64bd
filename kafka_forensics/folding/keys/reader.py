"""A replica of a compacted partition read as rows of its keys: one pass, each batch opened while its bytes are at hand."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from kafka_forensics.analysis.compaction import ROW_WIDTH, TOMBSTONE, TRANSACTIONAL, RecordState, Row, place
from kafka_forensics.analysis.segments import Misplaced, move
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.folding.keys.question import Decided, KeyCounts, KeyPart, KeyRuns
from kafka_forensics.model.batches import RECORD_COLUMNS, RECORD_ROWS, BatchChunk, BatchColumn, Damage, RecordColumn
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    INT64_MAX,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.kernels.records import gather_records, readable
from kafka_forensics.parsers.log import (
    HELD_BYTES,
    MAX_BATCH_BYTES,
    DecodedBatch,
    SegmentReader,
    believed_to,
    decode_batch,
    inspector,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]

_EATING: Final = frozenset({"FRAMING_LOST", "SEG_HOLE", "BUDGET_EXCEEDED"})
_open_legacy = inspector(deep=False)


@dataclass(slots=True)
class KeyReader:
    """Reads a replica, `number` among those compared, into `runs`; rows are cut at `cuts`, ascending offsets.

    `seed` keys the hashes, drawn for the comparison: keys cannot be crafted to look alike. Tombstones expire `delete_retention_ms`
    after their timestamp or at their batch's horizon, whichever is earlier: no replica's clock is known. Where the plan has some of
    the replica's segments only, `next_base_offset` is that of the segment behind them. With `strict`, a log that cannot be read
    raises SourceError.
    """

    plan: ReplicaPlan
    decided: Decided
    number: int
    cuts: "Ints"
    seed: int
    delete_retention_ms: int
    runs: KeyRuns
    next_base_offset: int | None = None
    strict: bool = False
    part: KeyPart = field(init=False)
    _bad: set[int] = field(default_factory=set)
    _moved: dict[tuple[int, int], Misplaced] = field(init=False)
    _segment: int = 0
    _matrix: "Ints" = field(default_factory=lambda: np.empty((RECORD_COLUMNS, 0), np.int64))
    _batch_of: "Ints" = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        self._moved = {misplaced.place: misplaced for misplaced in self.decided.misplaced}
        self.part = KeyPart(KeyCounts.none(len(self.cuts) + 1))

    def read(self) -> None:
        """Read the whole log. What cannot be read is told in the part's `incomplete`, and counts as damage."""
        self._matrix, self._batch_of = np.empty((RECORD_COLUMNS, RECORD_ROWS), np.int64), np.empty(RECORD_ROWS, np.int64)
        logs = [segment for segment in self.plan.directory.segments if segment.log is not None]
        source = self.plan.log_dir.source
        for index, segment in enumerate(logs):
            following = logs[index + 1].base_offset if index + 1 < len(logs) else self.next_base_offset
            if following is not None and following <= self.cuts[0]:
                continue
            assert segment.log is not None
            self._segment = segment.base_offset
            try:
                with source.open(segment.log.path) as file:
                    limit = believed_to(segment.base_offset, following)
                    reader = SegmentReader(file, next_base_offset=limit, inspect=self._inspect, inspect_alone=self._inspect_alone)
                    for chunk in reader.chunks():
                        self._follow(chunk, last=following is None)
            except SourceError as error:
                if not error.path or self.strict:
                    raise
                self.part.incomplete.append(Incomplete(typed_path(source, segment.log.path), error.reason))
                self.part.damage.step(bad=True, good=None)
            if self._bad:
                self._bad.clear()
                self.part.damage.step(bad=True, good=None)
        self._matrix, self._batch_of = self._matrix[:, :0].copy(), self._batch_of[:0].copy()

    def _follow(self, chunk: BatchChunk, *, last: bool) -> None:
        """Note where damage ends: with the next batch that is good."""
        columns = chunk.columns
        good = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
        position = columns[BatchColumn.POSITION]
        eaten = [
            damage.position for damage in chunk.damage if damage.kind in _EATING or (damage.kind == "SEG_TORN_TAIL" and not last)
        ]
        if good.any():
            newest = int(columns[BatchColumn.MAX_TIMESTAMP, good].max())
            self.part.newest_timestamp = max(self.part.newest_timestamp, newest)
        if self._bad:
            good &= ~np.isin(position, list(self._bad))
            self._bad.clear()
        bad = max([*eaten, *position[~good].tolist()], default=-1)
        behind = np.flatnonzero(good & (position > bad))
        self.part.damage.step(bad=bad >= 0, good=int(columns[BatchColumn.BASE_OFFSET, behind[0]]) if len(behind) else None)

    def _inspect(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """Open the batches of rows `[first, end)` that hold records of the compared range, see `Inspector`."""
        _open_legacy(buffer, position, columns, first, end)
        for row in range(first, end) if self._moved else ():
            if (wrong := self._moved.get((self._segment, int(columns[BatchColumn.POSITION, row])))) is not None:
                move(columns[:, row], wrong.offset)
        good = columns[BatchColumn.CRC, first:end] == columns[BatchColumn.CRC_COMPUTED, first:end]
        wanted = good & (columns[BatchColumn.LAST_OFFSET, first:end] >= self.cuts[0])
        control = columns[BatchColumn.ATTRIBUTES, first:end] & CONTROL_MASK != 0
        control &= columns[BatchColumn.MAGIC, first:end] >= 2
        marked = columns[BatchColumn.BASE_OFFSET, first:end][wanted & control]
        np.add.at(self.part.counts.markers, np.searchsorted(self.cuts, marked, side="right"), 1)
        wanted &= ~control & (columns[BatchColumn.RECORDS_COUNT, first:end] != 0)
        plain = np.zeros(columns.shape[1], bool)
        plain[first:end] = wanted & (columns[BatchColumn.MAGIC, first:end] >= 2)
        plain[first:end] &= columns[BatchColumn.ATTRIBUTES, first:end] & COMPRESSION_MASK == 0
        alone = np.flatnonzero(wanted & ~plain[first:end]) + first
        for row in [*alone.tolist(), *self._gather(buffer, position, columns, plain, (first, end))]:
            start, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
            self._open(buffer[start - position : start - position + size].tobytes(), start)
        return []

    def _gather(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "Ints", plain: "NDArray[np.bool_]", rows: tuple[int, int]
    ) -> Iterator[int]:
        """Add the records of plain batches, many at a time; gives those that must be opened by themselves."""
        wanted = np.flatnonzero(plain[rows[0] : rows[1]]) + rows[0]
        starts = columns[BatchColumn.POSITION, wanted] - position
        payloads = np.stack(
            [
                starts + RECORD_BATCH_OVERHEAD,
                starts + columns[BatchColumn.SIZE_IN_BYTES, wanted],
                columns[BatchColumn.RECORDS_COUNT, wanted],
            ]
        )
        readable_buffer = readable(buffer)
        index = 0
        while index < wanted.size:
            stop, records, _ = gather_records(readable_buffer, payloads, index, self._matrix, self._batch_of)
            if records:
                self._add_gathered(buffer, columns, self._matrix[:, :records], wanted[self._batch_of[:records]])
            elif stop < wanted.size:
                yield int(wanted[stop])
                stop += 1
            index = stop

    def _add_gathered(self, buffer: "NDArray[np.uint8]", columns: "Ints", records: "Ints", batch_of: "Ints") -> None:
        """Add records of several batches; their positions count in `buffer`."""
        attributes, base = columns[BatchColumn.ATTRIBUTES], columns[BatchColumn.BASE_TIMESTAMP]
        start, end = (
            int(records[RecordColumn.POSITION, 0]),
            int((records[RecordColumn.POSITION] + records[RecordColumn.SIZE_IN_BYTES])[-1]),
        )
        payload = buffer[start:end].tobytes()
        keys = _pieces(payload, records[RecordColumn.KEY_POSITION] - start, records[RecordColumn.KEY_LENGTH])
        values = _pieces(payload, records[RecordColumn.VALUE_POSITION] - start, records[RecordColumn.VALUE_LENGTH])
        stamped = attributes[batch_of] & TIMESTAMP_TYPE_MASK != 0
        deltas = records[RecordColumn.TIMESTAMP_DELTA]
        transactional = attributes[batch_of] & TRANSACTIONAL_MASK != 0
        states = np.zeros(len(batch_of), np.int64)
        batches, batch = np.unique(batch_of[transactional], return_inverse=True)
        owners = zip(
            columns[BatchColumn.PRODUCER_ID, batches].tolist(), columns[BatchColumn.BASE_OFFSET, batches].tolist(), strict=True
        )
        states[transactional] = np.array([self.decided.state(*owner) for owner in owners], np.int64)[batch]
        self._add(
            _Records(
                records[RecordColumn.OFFSET_DELTA] + columns[BatchColumn.BASE_OFFSET][batch_of],
                np.where(stamped, columns[BatchColumn.MAX_TIMESTAMP][batch_of], base[batch_of] + deltas),
                _hashed(keys, self.seed),
                records[RecordColumn.KEY_LENGTH],
                _shown(keys),
                _hashed(values, self.seed)[:, 0],
                records[RecordColumn.VALUE_LENGTH],
            ),
            states,
            TRANSACTIONAL * transactional,
            np.where(attributes[batch_of] & DELETE_HORIZON_MASK != 0, base[batch_of], INT64_MAX),
        )

    def _inspect_alone(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Open a batch that stands behind damage or is large."""
        if size <= MAX_BATCH_BYTES:
            self._open(file.read_at(position, size), position)
            return []
        source, segment = self.plan.log_dir.source, self._segment
        path = next(
            files.log.path for files in self.plan.directory.segments if files.log is not None and files.base_offset == segment
        )
        reason = f"batch of {size} bytes at byte {position} is too large to compare its records"
        self.part.incomplete.append(Incomplete(typed_path(source, path), reason))
        self._bad.add(position)
        return []

    def _open(self, data: bytes, position: int) -> None:
        """Add the records of a batch, which is none that a log without damage holds if it cannot be opened."""
        moved = self._moved.get((self._segment, position))
        batch = decode_batch(data if moved is None else moved.rewritten(data), position=position)
        header = batch.header
        if batch.problems:
            self.part.problems += [(self._segment, damage) for damage in batch.problems]
            self._bad.add(position)
            return
        if header is not None and header.is_control_batch:
            interval = int(np.searchsorted(self.cuts, header.base_offset, side="right"))
            self.part.counts.markers[interval] += 1
            return
        state, flags, horizon = RecordState.VISIBLE, 0, INT64_MAX
        if header is not None:
            if header.attributes & TRANSACTIONAL_MASK:
                flags = TRANSACTIONAL
                state = self.decided.state(header.producer_id, header.base_offset)
            if header.delete_horizon_ms is not None:
                horizon = header.delete_horizon_ms
        for records in _columns(batch, self.seed):
            if records is None:
                self._bad.add(position)
                continue
            every = np.ones(len(records.offsets), np.int64)
            self._add(records, state * every, flags * every, horizon * every)

    def _add(self, records: "_Records", states: "Ints", flags: "Ints", horizons: "Ints") -> None:
        """Add some records as rows, each with its `RecordState`, its flags but for TOMBSTONE, and its batch's delete horizon."""
        intervals = np.searchsorted(self.cuts, records.offsets, side="right")
        wanted = intervals > 0
        keyless = wanted & (records.key_lengths < 0)
        np.add.at(self.part.counts.keyless, intervals[keyless], 1)
        wanted &= ~keyless
        np.add.at(self.part.counts.records, (states[wanted], intervals[wanted]), 1)
        count = int(wanted.sum())
        if not count:
            return
        deleted = records.value_lengths[wanted] < 0
        timestamps = records.timestamps[wanted]
        rows = np.empty((count, ROW_WIDTH), np.int64)
        rows[:, Row.KEY_HIGH : Row.PLACE] = records.keys[wanted]
        rows[:, Row.PLACE] = place(self.number, intervals[wanted], states[wanted])
        rows[:, Row.OFFSET] = records.offsets[wanted]
        rows[:, Row.VALUE] = np.where(deleted, 0, records.values[wanted])
        rows[:, Row.EXPIRY] = np.minimum(
            np.minimum(timestamps, INT64_MAX - self.delete_retention_ms) + self.delete_retention_ms, horizons[wanted]
        )
        rows[:, Row.FLAGS] = flags[wanted] + TOMBSTONE * deleted
        rows[:, Row.RECORDS] = 1
        rows[:, Row.KEY_SHOWN] = records.shown[wanted]
        self.runs.add(rows)


@dataclass(frozen=True, slots=True)
class _Records:
    """Records as arrays of one length; `keys` is (n, 2), of no meaning where a length is negative, as are `values`."""

    offsets: "Ints"
    timestamps: "Ints"
    keys: "Ints"
    key_lengths: "Ints"
    shown: "Ints"
    values: "Ints"
    value_lengths: "Ints"


def _columns(batch: DecodedBatch, seed: int) -> Iterator[_Records | None]:
    """Records of a batch, keys and values hashed; None for one that is too large to be held."""
    header = batch.header
    if header is None or (len(batch.payload) >= HELD_BYTES and header.codec != 0):
        yield from _one_by_one(batch, seed)
        return
    payload = bytes(batch.payload)
    stamped = header.timestamp_type == "LogAppendTime"
    for columns in batch.iter_columns():
        keys = _pieces(payload, columns[RecordColumn.KEY_POSITION], columns[RecordColumn.KEY_LENGTH])
        values = _pieces(payload, columns[RecordColumn.VALUE_POSITION], columns[RecordColumn.VALUE_LENGTH])
        deltas = columns[RecordColumn.TIMESTAMP_DELTA]
        yield _Records(
            columns[RecordColumn.OFFSET_DELTA] + header.base_offset,
            np.full(len(keys), header.max_timestamp) if stamped else deltas + header.base_timestamp,
            _hashed(keys, seed),
            columns[RecordColumn.KEY_LENGTH].copy(),
            _shown(keys),
            _hashed(values, seed)[:, 0],
            columns[RecordColumn.VALUE_LENGTH].copy(),
        )


def _one_by_one(batch: DecodedBatch, seed: int) -> Iterator[_Records | None]:
    """The same for batches of the old formats, and those of which only a part is held at a time."""
    for record in batch.iter_records():
        if record.is_oversized or record.offset < 0:
            yield None
            continue
        numbers = [record.offset, record.timestamp, record.key_length, record.value_length]
        offset, timestamp, key_length, value_length = (np.array([number], np.int64) for number in numbers)
        key, value = [record.key or b""], [record.value or b""]
        yield _Records(offset, timestamp, _hashed(key, seed), key_length, _shown(key), _hashed(value, seed)[:, 0], value_length)


def _pieces(payload: bytes, positions: "Ints", sizes: "Ints") -> list[bytes]:
    """`payload[position : position + size]` for each; of null something that nobody looks at."""
    return [payload[at : at + size] for at, size in zip(positions.tolist(), sizes.tolist(), strict=True)]


def _hashed(pieces: list[bytes], seed: int) -> "Ints":
    """128-bit hashes, (n, 2)."""
    digest = xxhash.xxh3_128_digest
    return np.frombuffer(b"".join([digest(piece, seed) for piece in pieces]), np.int64).reshape(-1, 2)


def _shown(pieces: list[bytes]) -> "Ints":
    """`Row.KEY_SHOWN` of keys."""
    digest = xxhash.xxh3_64_digest
    return np.frombuffer(b"".join([digest(piece) for piece in pieces]), ">i8").astype(np.int64)
