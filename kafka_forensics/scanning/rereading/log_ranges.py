"""Reading ranges of one replica's log in order, and how the transactions in them ended."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import MisplacedBatch, correct_base_offsets
from kafka_forensics.analysis.transactions_across import SKEW_MS, TV2
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.model.batches import BatchColumn, Record, has_right_crc
from kafka_forensics.model.bundles import NeededRecords
from kafka_forensics.model.constants import CONTROL_COMMIT, CONTROL_MASK, INT64_MAX
from kafka_forensics.model.coordinators import Decision, TransactionLog
from kafka_forensics.model.offset_ranges import Ranges
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, RecordFilter, SegmentReader, decode_batch
from kafka_forensics.scanning.rereading.logs_in_order import LogBatchBytes
from kafka_forensics.scanning.rereading.record_states import ABORTED, COMMITTED, MAX_MARKERS, NONE, OPEN, UNKNOWN, in_transactions
from kafka_forensics.scanning.rereading.seeking import chunks_until, start_position_of
from kafka_forensics.storage.bundles import BundleSource, CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.batches import BatchChunk
    from kafka_forensics.parsers.log_dir import SegmentLog
    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]

_ENDING: Final = {0: ABORTED, CONTROL_COMMIT: COMMITTED}


class ReadBatch(NamedTuple):
    """A good batch with an offset of the ranges: `facts` by BatchColumn, and its bytes; None if they are not available."""

    facts: list[int]
    segment: int
    data: bytes | None

    @property
    def is_control(self) -> bool:
        """Whether it holds no records of producers."""
        return self.facts[BatchColumn.MAGIC] >= 2 and bool(self.facts[BatchColumn.ATTRIBUTES] & CONTROL_MASK)

    def opened(self, choose: "RecordFilter | None" = None) -> tuple[Iterator[Record], bool]:
        """(records, of magic 2 only those that `choose` selects; whether all of them can be read)."""
        assert self.data is not None
        decoded = decode_batch(self.data, position=self.facts[BatchColumn.POSITION])
        return decoded.iter_records(choose), not decoded.problems


class LogRangeReader(Struct):
    """Reads ranges of the log of one replica; what could not be read is added to `incomplete` once."""

    replica: Replica
    plan: ReplicaPlan
    incomplete: list[Incomplete]
    requested: tuple[int, int]
    """Offsets `[start, end)` whose records are needed, named where a bundle lacks some of them."""
    not_compared: bool = False
    """Whether the bytes of a batch that may hold a lost record were not available."""

    @property
    def is_collected(self) -> bool:
        """Whether it is a collected log, which may lack records."""
        return isinstance(self.plan.log_dir.source, BundleSource)

    def batches(self, ranges: Ranges, requested: "Callable[[Ints], NDArray[np.bool_]] | None" = None) -> Iterator[ReadBatch]:
        """Every good batch with an offset of the ranges, in file order; of a (BATCH_COLUMNS, n) matrix only those that `requested`
        selects."""
        starts, ends = (np.array([span[side] for span in ranges], np.int64) for side in (0, 1))
        for log, file, chunk in self._chunks(ranges):
            columns, misplaced = self._corrected(chunk, log)
            base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
            at = np.searchsorted(ends, base, side="right")
            good = (at < len(ends)) & (starts[np.minimum(at, len(ends) - 1)] <= last)
            good &= has_right_crc(columns)
            if requested is not None:
                good &= requested(columns)
            batch_bytes = LogBatchBytes(file)
            for facts in columns[:, good].T.tolist():
                position, size = facts[BatchColumn.POSITION], facts[BatchColumn.SIZE_IN_BYTES]
                if isinstance(file, CollectedLog) or size > MAX_BATCH_BYTES:
                    data = self._collected_batch(log, file, facts)
                else:
                    data = batch_bytes.read(position, size)
                if data is not None and position in misplaced:
                    data = misplaced[position].rewritten(data)
                yield ReadBatch(facts, log.base_offset, data)

    def headers(self, ranges: Ranges) -> "Iterator[Ints]":
        """The good batches of the ranges, and others of the same files, as matrices by BatchColumn, each valid until the next."""
        for log, _, chunk in self._chunks(ranges):
            columns, _ = self._corrected(chunk, log)
            yield columns[:, has_right_crc(columns)]

    def log_path(self, segment: int) -> str:
        """The `.log` of a segment, as in findings."""
        context = self.replica.context
        return f"{context.directory}/{context.log_file(segment)}"

    def _chunks(self, ranges: Ranges) -> "Iterator[tuple[SegmentLog, ByteFile, BatchChunk]]":
        if not ranges:
            return
        first, end = ranges[0][0], ranges[-1][1]
        source = self.plan.log_dir.source
        for log in self.plan.directory.logs():
            if log.base_offset >= end or not log.reaches(first):
                continue
            try:
                with source.open(log.entry.path) as file:
                    reader = SegmentReader.with_checks(file, log.max_plausible_offset)
                    # an index of misplaced batches is not believed, and an archive that cannot seek is read from its start
                    can_seek = source.seekable and not self.replica.misplaced
                    position = start_position_of(self.plan, log, first) if can_seek else 0
                    for chunk in chunks_until(reader, position, file.size_in_bytes, end):
                        yield log, file, chunk
            except SourceError as error:
                self._add_incomplete(typed_path(source, error.path), error.reason)

    def _corrected(self, chunk: "BatchChunk", log: "SegmentLog") -> "tuple[Ints, dict[int, MisplacedBatch]]":
        """The chunk's columns with right base offsets, and the misplaced batches of the segment by byte position."""
        misplaced = {batch.position: batch for batch in self.replica.misplaced if batch.segment == log.base_offset}
        if not misplaced:
            return chunk.columns, {}
        return correct_base_offsets(chunk, {position: batch.offset for position, batch in misplaced.items()}).columns, misplaced

    def _collected_batch(self, log: "SegmentLog", file: "ByteFile", facts: list[int]) -> bytes | None:
        """A batch of a collected log, or a very large one; None if it is not available, which is noted."""
        path, position = typed_path(self.plan.log_dir.source, log.entry.path), facts[BatchColumn.POSITION]
        if not isinstance(file, CollectedLog):
            size = facts[BatchColumn.SIZE_IN_BYTES]
            self._add_incomplete(path, f"batch of {size} bytes at byte {position} is too large to be opened")
            return None
        data = file.batch(position)
        if data is not None and len(data) == facts[BatchColumn.SIZE_IN_BYTES]:
            return data
        error = file.missing_records_error(self.requested)
        self._add_incomplete(path, error.reason, error.needed)
        return None

    def _add_incomplete(self, path: str, reason: str, needed: NeededRecords | None = None) -> None:
        context = self.replica.context
        unread = Incomplete(path, reason, context.topic, context.partition, context.broker, needed)
        if unread not in self.incomplete:
            self.incomplete.append(unread)


class TransactionEndings:
    """How transactions in some offsets of one log ended: by the markers after their records, or else by the coordinators' log.

    Markers are read when the first transactional batch is looked up.
    """

    def __init__(
        self,
        log: LogRangeReader,
        offsets: tuple[int, int],
        doubtful: Ranges,
        *,
        open_end: bool,
        coordinators: TransactionLog | None,
    ) -> None:
        """`doubtful` are offsets at which markers may be lost; `open_end`: more batches may follow the last one."""
        self._log, self._offsets, self._doubtful, self._open_end = log, offsets, doubtful, open_end
        self._coordinators = coordinators
        self._markers: tuple[Ints, Ints, Ints] | None = None
        self._is_cut = False

    def state(self, facts: Sequence[int]) -> str:
        """State of the records of a batch by BatchColumn: none, committed, aborted, open or unknown."""
        column = np.array(facts, np.int64)[:, None]
        if not in_transactions(column)[0]:
            return NONE
        producer_id, last = facts[BatchColumn.PRODUCER_ID], facts[BatchColumn.LAST_OFFSET]
        if self._markers is None:
            self._markers = self._read()
        producers, offsets, kinds = self._markers
        first, end = (int(np.searchsorted(producers, producer_id, side=side)) for side in ("left", "right"))
        at = first + int(np.searchsorted(offsets[first:end], last, side="right"))
        marker = int(offsets[at]) if at < end else INT64_MAX
        if any(start < marker and stop > last + 1 for start, stop in self._doubtful):
            return UNKNOWN
        if at < end:
            return _ENDING[int(kinds[at])]
        return UNKNOWN if self._open_end or self._is_cut else self._decided(facts)

    def _read(self) -> "tuple[Ints, Ints, Ints]":
        """(producer id, offset, control record type) of the first `MAX_MARKERS` markers, by producer and offset."""
        parts, count = [np.empty((3, 0), np.int64)], 0
        for columns in self._log.headers((self._offsets,)):
            control = columns[BatchColumn.CONTROL_RECORD_TYPE]
            is_marker = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (columns[BatchColumn.MAGIC] >= 2)
            is_marker &= (control >= 0) & (control <= CONTROL_COMMIT) & (columns[BatchColumn.PRODUCER_ID] >= 0)
            is_marker &= columns[BatchColumn.LAST_OFFSET] < self._offsets[1]
            rows = np.flatnonzero(is_marker)
            self._is_cut = self._is_cut or count + rows.size > MAX_MARKERS
            rows = rows[: max(MAX_MARKERS - count, 0)]
            count += rows.size
            requested = [BatchColumn.PRODUCER_ID, BatchColumn.LAST_OFFSET, BatchColumn.CONTROL_RECORD_TYPE]
            parts.append(columns[requested][:, rows])
        producers, offsets, kinds = np.concatenate(parts, axis=1)
        order = np.lexsort((offsets, producers))
        return producers[order], offsets[order], kinds[order]

    def _decided(self, facts: Sequence[int]) -> str:
        """State of a transaction without a marker in the log: what its coordinator decided, else open."""
        context = self._log.replica.context
        partition, time_ms = context.topic_partition, facts[BatchColumn.MAX_TIMESTAMP]
        endings = {
            decision.commit
            for decision in (() if self._coordinators is None else self._coordinators.decisions)
            if decision.producer_id == facts[BatchColumn.PRODUCER_ID]
            and partition in decision.partitions
            and _may_end(decision, facts[BatchColumn.PRODUCER_EPOCH], time_ms)
        }
        if len(endings) != 1:
            return UNKNOWN if endings else OPEN
        return COMMITTED if endings.pop() else ABORTED


def _may_end(decision: Decision, producer_epoch: int, time_ms: int) -> bool:
    """Whether a decision may be about records of a producer epoch and time. With transaction version 2 (KIP-890) each transaction
    has an epoch, and its marker the next; before, it must have begun by that time and been decided later."""
    if decision.client_transaction_version >= TV2:
        return decision.producer_epoch == producer_epoch + 1
    began = decision.start_timestamp <= time_ms + SKEW_MS
    return decision.producer_epoch == producer_epoch and began and time_ms <= decision.decided_timestamp + SKEW_MS
