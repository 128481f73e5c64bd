"""Reading logs in order without folding them: correcting base offsets, and decoding records."""

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.segments import (
    ContinuityFold,
    LogEndWitnesses,
    MisplacedBatch,
    chunk_facts,
    correct_base_offsets,
    misplaced_between_neighbours,
    misplaced_in_cleaned_log,
    misplaced_last_batch,
)
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Record, has_right_crc
from kafka_forensics.model.constants import CONTROL_COMMIT, CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    PlainRecord,
    SegmentReader,
    decode_batch,
    plain_records,
    read_batch,
    read_offset_and_length,
)
from kafka_forensics.scanning.folding.fold_split import read_indexes
from kafka_forensics.storage.bundles import CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.log_dir import SegmentLog
    from kafka_forensics.storage.source import ByteFile

_BATCH_START: Final = struct.Struct(">qi")
"""Base offset and batch length."""
_END_OF_OFFSETS: Final = 2**63
"""One more than the largest offset."""
WINDOW_BYTES: Final = 1 << 20


class OffsetCorrector:
    """Corrects wrong base offsets in the chunks of a `.log`, in file order.

    `before` is the log end offset before the first chunk, `next_base_offset` that of the next segment; None if not known. With
    a `plan`, the replica's other files decide about the last batch of the log.
    """

    def __init__(
        self, file: "ByteFile", segment: int, before: int | None, next_base_offset: int | None, plan: ReplicaPlan | None
    ) -> None:
        self._file = file
        self._segment = segment
        self._end_offset = before
        self._next_base_offset = next_base_offset
        self._plan = plan
        self._position = 0
        """End of the last good batch so far."""

    def correct_base_offsets(self, chunk: BatchChunk) -> tuple[BatchChunk, dict[int, MisplacedBatch]]:
        """The next chunk with right base offsets, and its misplaced batches by byte position.

        A chunk without any is returned as it is. Raises SourceError.
        """
        columns = chunk.columns
        good = np.flatnonzero(has_right_crc(columns))
        if not good.size:
            return chunk, {}
        next_offset, is_end = self._after(chunk)
        wrong = misplaced_between_neighbours(columns, self._segment, self._end_offset, next_offset)
        right = _moved(chunk, wrong)
        if self._plan is not None and self._plan.context.compacted:
            cleaned = self._out_of_line(right)
            wrong, right = [*wrong, *cleaned], _moved(right, cleaned)
        if is_end and next_offset is None and self._plan is not None and good[-1] == chunk.rows - 1:
            last = self._last(self._plan, right.columns[:, good])
            wrong, right = [*wrong, *last], _moved(right, last)
        end_offset = int(right.columns[BatchColumn.LAST_OFFSET, good[-1]]) + 1
        self._end_offset = end_offset if end_offset < _END_OF_OFFSETS else None
        self._position = _end_position(columns[:, good[-1]])
        return right, {batch.position: batch for batch in wrong}

    def _after(self, chunk: BatchChunk) -> tuple[int | None, bool]:
        """(base offset after the chunk, None if not known; whether the chunk's last batch is the file's)."""
        end = _end_position(chunk.columns[:, -1])
        header = read_offset_and_length(self._file, end)
        kinds = {damage.kind for damage in chunk.damage if damage.position >= end}
        if kinds - kinds_with(Trait.IS_TAIL):
            return None, False
        base_offset, batch_length = _BATCH_START.unpack(header) if len(header) == _BATCH_START.size else (0, 0)
        return (self._next_base_offset, True) if kinds or batch_length <= 0 else (base_offset, False)

    def _out_of_line(self, chunk: BatchChunk) -> list[MisplacedBatch]:
        """Batches of a cleaned log's chunk that contradict the order of the others; the first may follow on an earlier chunk."""
        fold = ContinuityFold(self._segment, compacted=True)
        fold.step(chunk.columns, chunk.damage, chunk_facts(chunk.columns))
        first = int(chunk.columns[BatchColumn.POSITION, 0]) if self._position else None
        return [batch for batch in misplaced_in_cleaned_log(fold.runs) if batch.position != first]

    def _last(self, plan: ReplicaPlan, columns: "NDArray[np.int64]") -> list[MisplacedBatch]:
        """The last batch of the log, if the replica's other files show that its base offset is wrong.

        `columns` are good batches; nothing is known of a batch after damage, which may begin at any offset.
        """
        position = int(columns[BatchColumn.POSITION, -1])
        is_only = columns.shape[1] == 1
        end_offset = self._end_offset if is_only else int(columns[BatchColumn.LAST_OFFSET, -2]) + 1
        joins = position == (self._position if is_only else _end_position(columns[:, -2]))
        base = int(columns[BatchColumn.BASE_OFFSET, -1])
        offsets = int(columns[BatchColumn.LAST_OFFSET, -1]) - base + 1
        if (
            not joins
            or end_offset is None
            or end_offset == base
            or end_offset < 0
            or offsets <= 0
            or end_offset + offsets > _END_OF_OFFSETS
        ):
            return []
        doubted = MisplacedBatch(self._segment, position, offsets, base, end_offset, end_offset)
        wrong = misplaced_last_batch(doubted, witnessed_by(plan, doubted), cleaned=plan.context.compacted)
        return [] if wrong is None else [wrong]


def witnessed_by(plan: ReplicaPlan, last: MisplacedBatch) -> LogEndWitnesses:
    """What a replica's own files say about the end of its log, of which `last` is the last batch."""
    context = plan.context
    offsets_before_end = [(context.high_watermark, "high watermark"), (context.recovery_point, "recovery point")]
    witnessed = LogEndWitnesses([(offset, witness) for offset, witness in offsets_before_end if offset], [])
    witnessed.ends += [(offset, f"snapshot {offset}") for offset, _ in plan.directory.snapshots]
    witnessed.starts += [(entry.start_offset, "leader-epoch-checkpoint") for entry in context.epoch_checkpoint or ()]
    if last.position == 0:
        witnessed.starts.append((last.segment, "segment name"))
    segment = plan.directory.segment(last.segment)
    if segment is not None:
        indexes = read_indexes(plan, segment)
        if indexes.index is not None:
            offsets = indexes.index.offsets[indexes.index.positions == last.position] if last.position else []
            witnessed.starts += [(int(offset) + 1 - last.offsets, "offset index") for offset in offsets]
        if indexes.time_index is not None:
            witnessed.ends += [(int(offset) + 1, "time index") for offset in indexes.time_index.offsets[-1:]]
    return witnessed


def _moved(chunk: BatchChunk, batches: list[MisplacedBatch]) -> BatchChunk:
    return correct_base_offsets(chunk, {batch.position: batch.offset for batch in batches}) if batches else chunk


def _end_position(batch: "NDArray[np.int64]") -> int:
    """The byte after a batch, a column by BatchColumn."""
    return int(batch[BatchColumn.POSITION] + batch[BatchColumn.SIZE_IN_BYTES])


def corrected_chunks(
    plan: ReplicaPlan, log: "SegmentLog", file: "ByteFile"
) -> Iterator[tuple[BatchChunk, dict[int, MisplacedBatch]]]:
    """Chunks of a `.log` with right base offsets, and their misplaced batches by byte position. Raises SourceError."""
    placing = OffsetCorrector(file, log.base_offset, log.base_offset, log.next_base_offset, plan)
    yield from map(placing.correct_base_offsets, SegmentReader(file, log.max_plausible_offset).chunks())


class LogBatchBytes:
    """Reads batches of a file, `WINDOW_BYTES` or more at a time; call it for batches in file order."""

    def __init__(self, file: "ByteFile") -> None:
        self._file = file
        self._start, self._window = 0, b""

    def read(self, position: int, size: int) -> bytes:
        """The bytes of a batch; fewer if the file ends before. Raises SourceError."""
        if position + size > self._start + len(self._window):
            self._start, self._window = position, self._file.read_at(position, max(size, WINDOW_BYTES))
        return self._window[position - self._start : position - self._start + size]


class LoggedRecords(Struct, frozen=True):
    """The records of a good batch other than a control batch; `broken` if some of them could not be read."""

    segment: int
    position: int
    size_in_bytes: int
    records: Sequence[PlainRecord | Record]
    broken: bool


def logged_records(plan: ReplicaPlan, lost: list[tuple[int, int]]) -> Iterator[LoggedRecords]:
    """The records of every batch with a right CRC, in file order over all segments, with right offsets.

    (segment, position) of damage goes into `lost` before any later batch is yielded, except of a tail that a crash leaves. Raises
    SourceError if a file cannot be read further.
    """
    for log in plan.directory.logs():
        with plan.log_dir.source.open(log.entry.path) as file:
            for chunk, misplaced in corrected_chunks(plan, log, file):
                good = _good(log.base_offset, chunk, lost)
                batch_bytes = LogBatchBytes(file)
                for position, size in chunk.columns[: BatchColumn.SIZE_IN_BYTES + 1, good].T.tolist():
                    is_collected = isinstance(file, CollectedLog)
                    data = read_batch(file, position, size) if is_collected else batch_bytes.read(position, size)
                    if not data:
                        continue
                    data = misplaced[position].rewritten(data) if position in misplaced else data
                    plain = plain_records(data)
                    if plain is not None:
                        yield LoggedRecords(log.base_offset, position, size, plain, broken=False)
                        continue
                    batch = decode_batch(data, position=position)
                    if batch.header is None or not batch.header.is_control_batch:
                        yield LoggedRecords(
                            log.base_offset, position, size, list(batch.iter_records()), broken=bool(batch.problems)
                        )


def _good(segment: int, chunk: BatchChunk, lost: list[tuple[int, int]]) -> "NDArray[np.int64]":
    """Rows with a right CRC and an ordinary size; adds the places of other rows, and of damage, to `lost`."""
    columns = chunk.columns
    good = has_right_crc(columns)
    good &= columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES
    lost += [(segment, int(position)) for position in columns[BatchColumn.POSITION, ~good]]
    lost += [(segment, damage.position) for damage in chunk.damage if damage.kind not in kinds_with(Trait.IS_TAIL)]
    return np.flatnonzero(good)


def transactional_batches(
    plan: ReplicaPlan, remote: Sequence[ReplicaPlan], incomplete: list[Incomplete]
) -> "Iterator[NDArray[np.int64] | None]":
    """The good transactional batches and markers of a log in file order, as columns by BatchColumn with right offsets.

    Before the replica's log comes what the logs in `remote` stores have of it, each offset once; what cannot be read of them goes
    to `incomplete`. None stands for missing offsets. Each matrix is valid until the next one. Raises SourceError for the replica.
    """
    logs = plan.directory.logs()
    local_start = logs[0].base_offset if logs else _END_OF_OFFSETS - 1
    at = end_of_whole = 0
    remote_segments = ((remote_log, log) for remote_log in remote for log in remote_log.directory.logs())
    for remote_log, log in sorted(remote_segments, key=lambda row: row[1].base_offset):
        if log.base_offset >= local_start:
            break
        if log.base_offset > end_of_whole:
            yield None
        end = at
        try:
            for columns in _transactional(remote_log, log):
                base = columns[BatchColumn.BASE_OFFSET]
                columns = columns[:, (base >= at) & (base < local_start) & _has_epochs_of(plan, columns)]
                if columns.shape[1]:
                    end = max(end, int(columns[BatchColumn.LAST_OFFSET].max()) + 1)
                    yield columns
            end_of_whole = max(end_of_whole, end_of_remote_segment(remote_log, log, local_start))
        except SourceError as error:
            incomplete.append(not_read(remote_log.log_dir.source, error))
        at = end
    if remote and end_of_whole < local_start:
        yield None
    for log in logs:
        yield from _transactional(plan, log)


def end_of_remote_segment(remote_log: ReplicaPlan, log: "SegmentLog", unknown: int) -> int:
    """The end offset of a remote segment, by its event, else by the next segment; `unknown` without one."""
    context = remote_log.context
    if context.remote_log is None:
        return unknown if log.next_base_offset is None else log.next_base_offset
    segment_id = context.segment_ids[log.base_offset]
    return next(segment.end_offset for segment in context.remote_log.finished if segment.segment_id == segment_id) + 1


def _has_epochs_of(plan: ReplicaPlan, columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
    """Which batches have the leader epoch that a replica's log has at their offsets; all if its epochs are unknown."""
    epochs = plan.context.epoch_checkpoint
    if not epochs:
        return np.ones(columns.shape[1], np.bool_)
    starts = np.array([entry.start_offset for entry in epochs], np.int64)
    at = np.searchsorted(starts, columns[BatchColumn.BASE_OFFSET], side="right") - 1
    numbers = np.array([entry.leader_epoch for entry in epochs], np.int64)
    is_equal: NDArray[np.bool_] = (at >= 0) & (numbers[at] == columns[BatchColumn.PARTITION_LEADER_EPOCH])
    return is_equal


def _transactional(plan: ReplicaPlan, log: "SegmentLog") -> "Iterator[NDArray[np.int64]]":
    with plan.log_dir.source.open(log.entry.path) as file:
        for chunk, _ in corrected_chunks(plan, log, file):
            columns = chunk.columns
            attributes, control = columns[BatchColumn.ATTRIBUTES], columns[BatchColumn.CONTROL_RECORD_TYPE]
            is_marker = (attributes & CONTROL_MASK != 0) & (control <= CONTROL_COMMIT)
            is_data = attributes & (CONTROL_MASK | TRANSACTIONAL_MASK) == TRANSACTIONAL_MASK
            good = has_right_crc(columns) & (columns[BatchColumn.PRODUCER_ID] >= 0)
            requested = good & (is_marker | is_data)
            yield columns if requested.all() else columns[:, np.flatnonzero(requested)]
