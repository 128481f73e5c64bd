"""Reading a replica of a compacted partition as rows of its keys, in one pass."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from kafka_forensics.analysis.compaction import ROW_WIDTH, TOMBSTONE, TRANSACTIONAL, KeyColumn, RecordState, pack_place
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.segments import MisplacedBatch, move
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import COMPRESSION_MASK, DELETE_HORIZON_MASK, INT64_MAX, TRANSACTIONAL_MASK
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    BatchChecks,
    HashedRecords,
    HashingReader,
    SeededHasher,
    SegmentReader,
    data_batches,
    decode_batch,
    split_plain_rows,
)
from kafka_forensics.scanning.folding.keys.collected import CollectedHashes, hash_key_of, hasher_of
from kafka_forensics.scanning.folding.keys.question import KeyCounts, KeyPart, KeyReadOptions, KeyRuns, TransactionOutcomes
from kafka_forensics.storage.bundles import CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]

_inspect_legacy = BatchChecks(deep=False)


@dataclass(slots=True)
class KeyReader:
    """Reads a replica, `number` among those compared, into `runs`.

    The random seed of the hashes keeps keys from being crafted to collide. Tombstones expire `delete_retention_ms` after their
    timestamp or at their batch's delete horizon, whichever is earlier, because no replica's clock is known. If the plan has only
    some of the replica's segments, `next_base_offset` is that of the segment after them. With `strict`, a log that cannot be read
    raises SourceError.
    """

    plan: ReplicaPlan
    decided: TransactionOutcomes
    number: int
    options: KeyReadOptions
    runs: KeyRuns
    next_base_offset: int | None = None
    strict: bool = False
    part: KeyPart = field(init=False)
    _bad: set[int] = field(default_factory=set)
    _moved: dict[tuple[int, int], MisplacedBatch] = field(init=False)
    _segment: int = 0
    _reader: HashingReader = field(init=False)
    _collected: CollectedHashes | None = None

    def __post_init__(self) -> None:
        """Start without counts; hash keys and values as the collected logs among those compared."""
        self._reader = HashingReader(hasher_of(self.options.hash_key, self.options.seed) or SeededHasher(self.options.seed))
        self._moved = {misplaced.place: misplaced for misplaced in self.decided.misplaced}
        self.part = KeyPart(KeyCounts.none(len(self.options.cuts) + 1))

    def _hashes_of(self, file: "ByteFile") -> CollectedHashes | None:
        """The hashed records of a collected log, None of any other file. Raises SourceError if missing or not comparable."""
        if not isinstance(file, CollectedLog):
            if self.options.hash_key:
                reason = "its keys cannot be compared with those of a redacted bundle: collect it with the same --redact-map"
                raise SourceError(self._segment_path(), reason)
            return None
        if not file.has_hashes:
            raise file.missing_hashes_error()
        if self.options.hash_key is not None and self.options.hash_key != hash_key_of([self.plan]):
            reason = "its key hashes use another key: collect both with the same --redact-map, or both without one"
            raise SourceError(self._segment_path(), reason)
        return CollectedHashes(file)

    def _segment_path(self) -> str:
        segment = self.plan.directory.segment(self._segment)
        assert segment is not None
        assert segment.log is not None
        return segment.log.path

    def read(self) -> None:
        """Read the whole log. What cannot be read goes into `part.incomplete`, and counts as damage."""
        source = self.plan.log_dir.source
        for log in self.plan.directory.logs(self.next_base_offset):
            if not log.reaches(self.options.cuts[0]):
                continue
            self._segment = log.base_offset
            try:
                with source.open(log.entry.path) as file:
                    self._collected = self._hashes_of(file)
                    for chunk in self._chunks(file, log.max_plausible_offset):
                        self._note_damage(chunk, last=log.next_base_offset is None)
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
        """The chunks of a file; adds their records."""
        if self._collected is None:
            reader = SegmentReader(file, max_plausible_offset=limit, inspect=self._inspect, inspect_batch=self._inspect_batch)
            yield from reader.chunks()
            return
        for chunk in SegmentReader.with_checks(file, limit).chunks():
            if chunk.rows:
                self._inspect(np.empty(0, np.uint8), 0, chunk.columns, 0, chunk.rows)
            yield chunk

    def _note_damage(self, chunk: BatchChunk, *, last: bool) -> None:
        """Note where damage that may have destroyed records ends: at the next good batch."""
        columns = chunk.columns
        good = has_right_crc(columns)
        position = columns[BatchColumn.POSITION]
        kinds = kinds_with(Trait.HIDES_OFFSETS) | (frozenset() if last else {"SEG_TORN_TAIL"})
        damaged = [damage.position for damage in chunk.damage if damage.kind in kinds]
        if good.any():
            newest = int(columns[BatchColumn.MAX_TIMESTAMP, good].max())
            self.part.newest_timestamp = max(self.part.newest_timestamp, newest)
        if self._bad:
            good &= ~np.isin(position, list(self._bad))
            self._bad.clear()
        bad = max([*damaged, *position[~good].tolist()], default=-1)
        after = np.flatnonzero(good & (position > bad))
        self.part.damage.step(bad=bad >= 0, good=int(columns[BatchColumn.BASE_OFFSET, after[0]]) if len(after) else None)

    def _inspect(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """Add the records in the compared range of batches of rows `[first, end)`, see `Inspector`."""
        if self._collected is None:
            _inspect_legacy(buffer, position, columns, first, end)
        else:
            _span_legacy(self._collected, columns, first, end)
        for row in range(first, end) if self._moved else ():
            if (wrong := self._moved.get((self._segment, int(columns[BatchColumn.POSITION, row])))) is not None:
                move(columns[:, row], wrong.offset)
        reaches = columns[BatchColumn.LAST_OFFSET, first:end] >= self.options.cuts[0]
        requested, control = data_batches(columns, first, end)
        marked = columns[BatchColumn.BASE_OFFSET, first:end][reaches & control]
        np.add.at(self.part.counts.markers, np.searchsorted(self.options.cuts, marked, side="right"), 1)
        rows = np.flatnonzero(requested & reaches) + first
        if self._collected is not None:
            self._add_collected(self._collected, columns, rows)
            return []
        plain, others = split_plain_rows(columns, rows)
        to_decode = others.tolist()
        for batch_of, records in self._reader.plain(buffer, position, columns, plain):
            if records is None:
                to_decode += batch_of.tolist()
            else:
                self._add_records(columns, batch_of, records)
        for row in to_decode:
            start, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
            self._decode(buffer[start - position : start - position + size].tobytes(), start)
        return []

    def _add_records(self, columns: "Ints", batch_of: "Ints", records: HashedRecords) -> None:
        """Add records; `batch_of` is the row of each record's batch in `columns`, whose attributes are those of magic 2."""
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

    def _add_collected(self, collected: CollectedHashes, columns: "Ints", rows: "Ints") -> None:
        """Add the hashed records of batches of a collected log."""
        positions = columns[BatchColumn.POSITION, rows]
        records = collected.hashed_records(positions)
        self._bad.update(records.unread.tolist())
        batch_of = rows[np.searchsorted(positions, records.positions)]
        if self._moved:
            records = replace(records, offsets=records.offsets + self._shifts(columns, rows)[np.searchsorted(rows, batch_of)])
        legacy = columns[BatchColumn.MAGIC] < 2
        if legacy.any():
            columns = columns.copy()
            columns[BatchColumn.ATTRIBUTES, legacy] = 0
        self._add_records(columns, batch_of, records)

    def _shifts(self, columns: "Ints", rows: "Ints") -> "Ints":
        """The offset correction of the records in these batches; records in a wrapper of magic 0 have absolute offsets."""
        shifts = np.zeros(len(rows), np.int64)
        absolute = (columns[BatchColumn.MAGIC, rows] == 0) & (columns[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK != 0)
        for index in np.flatnonzero(~absolute).tolist():
            wrong = self._moved.get((self._segment, int(columns[BatchColumn.POSITION, rows[index]])))
            if wrong is not None:
                shifts[index : index + 1] = np.array([wrong.offset]) - wrong.written
        return shifts

    def _inspect_batch(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Add the records of a batch after damage, or of a large one."""
        if size <= MAX_BATCH_BYTES:
            self._decode(file.read_at(position, size), position)
            return []
        reason = f"batch of {size} bytes at byte {position} is too large to compare its records"
        self.part.incomplete.append(Incomplete(typed_path(self.plan.log_dir.source, self._segment_path()), reason))
        self._bad.add(position)
        return []

    def _decode(self, data: bytes, position: int) -> None:
        """Add the records of a batch; one that cannot be decoded counts as damage."""
        moved = self._moved.get((self._segment, position))
        batch = decode_batch(data if moved is None else moved.rewritten(data), position=position)
        header = batch.header
        if batch.problems:
            self.part.problems += [(self._segment, damage) for damage in batch.problems]
            self._bad.add(position)
            return
        if header is not None and header.is_control_batch:
            interval = int(np.searchsorted(self.options.cuts, header.base_offset, side="right"))
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
            ones = np.ones(len(records.offsets), np.int64)
            self._add(records, state * ones, flags * ones, horizon * ones)

    def _add(self, records: HashedRecords, states: "Ints", flags: "Ints", horizons: "Ints") -> None:
        """Add records as rows, each with its `RecordState`, its flags other than TOMBSTONE, and its batch's delete horizon."""
        intervals = np.searchsorted(self.options.cuts, records.offsets, side="right")
        requested = intervals > 0
        keyless = requested & (records.key_lengths < 0)
        np.add.at(self.part.counts.keyless, intervals[keyless], 1)
        requested &= ~keyless
        np.add.at(self.part.counts.records, (states[requested], intervals[requested]), 1)
        count = int(requested.sum())
        if not count:
            return
        deleted = records.value_lengths[requested] < 0
        timestamps = records.timestamps[requested]
        rows = np.empty((count, ROW_WIDTH), np.int64)
        rows[:, KeyColumn.KEY_HIGH : KeyColumn.PLACE] = records.keys[requested]
        rows[:, KeyColumn.PLACE] = pack_place(self.number, intervals[requested], states[requested])
        rows[:, KeyColumn.OFFSET] = records.offsets[requested]
        rows[:, KeyColumn.VALUE] = np.where(deleted, 0, records.values[requested])
        rows[:, KeyColumn.EXPIRY] = np.minimum(
            np.minimum(timestamps, INT64_MAX - self.options.delete_retention_ms) + self.options.delete_retention_ms,
            horizons[requested],
        )
        rows[:, KeyColumn.FLAGS] = flags[requested] + TOMBSTONE * deleted
        rows[:, KeyColumn.RECORDS] = 1
        rows[:, KeyColumn.KEY_SHOWN] = records.shown[requested]
        self.runs.add(rows)


def _span_legacy(collected: CollectedHashes, columns: "Ints", first: int, end: int) -> None:
    """Set offsets and record counts of compressed messages of old formats from the records hashed in them."""
    rows = columns[:, first:end]
    wrappers = (rows[BatchColumn.MAGIC] < 2) & (rows[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK != 0)
    for row in np.flatnonzero(wrappers & has_right_crc(rows)).tolist():
        offsets = collected.hashed_records(rows[BatchColumn.POSITION, row : row + 1]).offsets
        if len(offsets):
            rows[BatchColumn.BASE_OFFSET, row], rows[BatchColumn.LAST_OFFSET, row] = offsets.min(), offsets.max()
            rows[BatchColumn.RECORDS_COUNT, row] = len(offsets)
