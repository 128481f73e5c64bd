"""A replica of a compacted partition read as rows of its keys: one pass, each batch opened while its bytes are at hand."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.analysis.compaction import ROW_WIDTH, TOMBSTONE, TRANSACTIONAL, RecordState, Row, pack_place
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.segments import Misplaced, move
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    INT64_MAX,
    TRANSACTIONAL_MASK,
)
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    BatchChecks,
    HashedRecords,
    HashingReader,
    SeededHasher,
    SegmentReader,
    decode_batch,
    plain_rows,
    with_records,
)
from kafka_forensics.scanning.folding.keys.collected import CollectedHashes, hash_key_of, hasher_of
from kafka_forensics.scanning.folding.keys.question import Decided, KeyCounts, KeyPart, KeyRuns
from kafka_forensics.storage.bundles import CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]

_open_legacy = BatchChecks(deep=False)


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
    _reader: HashingReader = field(init=False)
    _held: CollectedHashes | None = None
    _hash_key: str | None = None

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        self._reader = HashingReader(SeededHasher(self.seed))
        self._moved = {misplaced.place: misplaced for misplaced in self.decided.misplaced}
        self.part = KeyPart(KeyCounts.none(len(self.cuts) + 1))

    def hash_as(self, hash_key: str | None) -> None:
        """Hash keys and values as those of the collected logs with which this one is compared, see `hash_key_of`."""
        self._hash_key = hash_key
        if (hasher := hasher_of(hash_key, self.seed)) is not None:
            self._reader = HashingReader(hasher)

    def _holding(self, file: "ByteFile") -> CollectedHashes | None:
        """What holds the records of a file hashed; None where they are read from its bytes. Raises SourceError for those of a
        collected log that are not there, or cannot be compared."""
        if not isinstance(file, CollectedLog):
            if self._hash_key:
                reason = "its keys cannot be compared with those of a redacted bundle: collect it with the same --redact-map"
                raise SourceError(self._segment_path(), reason)
            return None
        if not file.has_hashes:
            raise file.needs_hashes()
        if self._hash_key is not None and self._hash_key != hash_key_of([self.plan]):
            reason = "its key hashes use another key: collect both with the same --redact-map, or both without"
            raise SourceError(self._segment_path(), reason)
        return CollectedHashes(file)

    def _segment_path(self) -> str:
        segment = self.plan.directory.segment(self._segment)
        assert segment is not None
        assert segment.log is not None
        return segment.log.path

    def read(self) -> None:
        """Read the whole log. What cannot be read is told in the part's `incomplete`, and counts as damage."""
        source = self.plan.log_dir.source
        for log in self.plan.directory.logs(self.next_base_offset):
            if not log.reaches(self.cuts[0]):
                continue
            self._segment = log.base_offset
            try:
                with source.open(log.entry.path) as file:
                    self._held = self._holding(file)
                    for chunk in self._chunks(file, log.max_plausible_offset):
                        self._follow(chunk, last=log.next_base_offset is None)
            except SourceError as error:
                if not error.path or self.strict:
                    raise
                self.part.incomplete.append(Incomplete(typed_path(source, log.entry.path), error.reason))
                self.part.damage.step(bad=True, good=None)
            if self._bad:
                self._bad.clear()
                self.part.damage.step(bad=True, good=None)
        self._reader.release()

    def _chunks(self, file: "ByteFile", limit: int) -> Iterator[BatchChunk]:
        """The chunks of a file, whose records are taken on the way."""
        if self._held is None:
            reader = SegmentReader(file, limit, inspect=self._inspect, inspect_alone=self._inspect_alone)
            yield from reader.chunks()
            return
        for chunk in SegmentReader.with_checks(file, limit).chunks():
            if chunk.rows:
                self._inspect(np.empty(0, np.uint8), 0, chunk.columns, 0, chunk.rows)
            yield chunk

    def _follow(self, chunk: BatchChunk, *, last: bool) -> None:
        """Note where damage ends: with the next batch that is good."""
        columns = chunk.columns
        good = has_right_crc(columns)
        position = columns[BatchColumn.POSITION]
        eaten = [
            damage.position
            for damage in chunk.damage
            if damage.kind in kinds_with(Trait.HIDES_OFFSETS) or (damage.kind == "SEG_TORN_TAIL" and not last)
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
        if self._held is None:
            _open_legacy(buffer, position, columns, first, end)
        else:
            _span_legacy(self._held, columns, first, end)
        self._move(columns, first, end)
        reaches = columns[BatchColumn.LAST_OFFSET, first:end] >= self.cuts[0]
        wanted, control = with_records(columns, first, end)
        marked = columns[BatchColumn.BASE_OFFSET, first:end][reaches & control]
        np.add.at(self.part.counts.markers, np.searchsorted(self.cuts, marked, side="right"), 1)
        rows = np.flatnonzero(wanted & reaches) + first
        if self._held is not None:
            self._take_held(self._held, columns, rows)
            return []
        plain, others = plain_rows(columns, rows)
        alone = others.tolist()
        for batch_of, records in self._reader.plain(buffer, position, columns, plain):
            if records is None:
                alone += batch_of.tolist()
            else:
                self._add_records(columns, batch_of, records)
        for row in alone:
            start, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
            self._open(buffer[start - position : start - position + size].tobytes(), start)
        return []

    def _move(self, columns: "Ints", first: int, end: int) -> None:
        """Give batches of rows `[first, end)` that bear a wrong base offset the right one."""
        for row in range(first, end) if self._moved else ():
            if (wrong := self._moved.get((self._segment, int(columns[BatchColumn.POSITION, row])))) is not None:
                move(columns[:, row], wrong.offset)

    def _add_records(self, columns: "Ints", batch_of: "Ints", records: HashedRecords) -> None:
        """Add records of several batches, whose rows are given for each, with attributes as magic 2 has them."""
        attributes = columns[BatchColumn.ATTRIBUTES][batch_of]
        transactional = attributes & TRANSACTIONAL_MASK != 0
        states = np.zeros(len(batch_of), np.int64)
        batches, batch = np.unique(batch_of[transactional], return_inverse=True)
        owners = zip(
            columns[BatchColumn.PRODUCER_ID, batches].tolist(), columns[BatchColumn.BASE_OFFSET, batches].tolist(), strict=True
        )
        states[transactional] = np.array([self.decided.state(*owner) for owner in owners], np.int64)[batch]
        has_horizon = attributes & DELETE_HORIZON_MASK != 0
        horizons = np.where(has_horizon, columns[BatchColumn.BASE_TIMESTAMP][batch_of], INT64_MAX)
        self._add(records, states, TRANSACTIONAL * transactional, horizons)

    def _take_held(self, held: CollectedHashes, columns: "Ints", rows: "Ints") -> None:
        """Add the records of batches whose bytes are not opened."""
        places = columns[BatchColumn.POSITION, rows]
        records = held.hashed_records(places)
        self._bad.update(records.unread.tolist())
        batch_of = rows[np.searchsorted(places, records.positions)]
        if self._moved:
            records = replace(records, offsets=records.offsets + self._shifts(columns, rows)[np.searchsorted(rows, batch_of)])
        legacy = columns[BatchColumn.MAGIC] < 2
        if legacy.any():
            columns = columns.copy()
            columns[BatchColumn.ATTRIBUTES, legacy] = 0
        self._add_records(columns, batch_of, records)

    def _shifts(self, columns: "Ints", rows: "Ints") -> "Ints":
        """By how much the records of rows' batches move with these; inside a wrapper of magic 0 they bear offsets of their own."""
        shifts = np.zeros(len(rows), np.int64)
        own = (columns[BatchColumn.MAGIC, rows] == 0) & (columns[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK != 0)
        for index in np.flatnonzero(~own).tolist():
            wrong = self._moved.get((self._segment, int(columns[BatchColumn.POSITION, rows[index]])))
            if wrong is not None:
                shifts[index : index + 1] = np.array([wrong.offset]) - wrong.written
        return shifts

    def _inspect_alone(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Open a batch that stands behind damage or is large."""
        if size <= MAX_BATCH_BYTES:
            self._open(file.read_at(position, size), position)
            return []
        source, path = self.plan.log_dir.source, self._segment_path()
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
        for records in self._reader.opened(batch, position):
            self._bad.update(records.unread.tolist())
            every = np.ones(len(records.offsets), np.int64)
            self._add(records, state * every, flags * every, horizon * every)

    def _add(self, records: HashedRecords, states: "Ints", flags: "Ints", horizons: "Ints") -> None:
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
        rows[:, Row.PLACE] = pack_place(self.number, intervals[wanted], states[wanted])
        rows[:, Row.OFFSET] = records.offsets[wanted]
        rows[:, Row.VALUE] = np.where(deleted, 0, records.values[wanted])
        rows[:, Row.EXPIRY] = np.minimum(
            np.minimum(timestamps, INT64_MAX - self.delete_retention_ms) + self.delete_retention_ms, horizons[wanted]
        )
        rows[:, Row.FLAGS] = flags[wanted] + TOMBSTONE * deleted
        rows[:, Row.RECORDS] = 1
        rows[:, Row.KEY_SHOWN] = records.shown[wanted]
        self.runs.add(rows)


def _span_legacy(held: CollectedHashes, columns: "Ints", first: int, end: int) -> None:
    """Give compressed messages of the old formats the offsets and the number of the messages inside them, where these are held."""
    rows = columns[:, first:end]
    wrappers = (rows[BatchColumn.MAGIC] < 2) & (rows[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK != 0)
    for row in np.flatnonzero(wrappers & has_right_crc(rows)).tolist():
        offsets = held.hashed_records(rows[BatchColumn.POSITION, row : row + 1]).offsets
        if len(offsets):
            rows[BatchColumn.BASE_OFFSET, row], rows[BatchColumn.LAST_OFFSET, row] = offsets.min(), offsets.max()
            rows[BatchColumn.RECORDS_COUNT, row] = len(offsets)
