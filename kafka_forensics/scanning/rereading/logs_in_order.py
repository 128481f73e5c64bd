"""Logs read in order without being folded: which batches bear a wrong base offset, and what all of them hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.segments import ContinuityFold, Misplaced, Witnessed, at_end, by_neighbours, out_of_line, put_right
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Record, has_right_crc
from kafka_forensics.model.constants import CONTROL_COMMIT, CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    PlainRecord,
    SegmentReader,
    decode_batch,
    plain_records,
    read_batch,
    read_sizes,
)
from kafka_forensics.scanning.folding.segment_indexes import read_indexes
from kafka_forensics.storage.bundles import CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.log_dir import SegmentLog
    from kafka_forensics.storage.source import ByteFile

_OFFSET_BYTES: Final = 8
_SIZES_END: Final = 12
"""Bytes of a batch's base offset and length."""
_PAST_ALL: Final = 2**63
"""No offset, but what follows the largest; nothing stands behind it."""


class Placing:
    """Which batches of a `.log` bear a wrong base offset, told chunk by chunk in file order, where nothing is folded.

    `before` is where the log ends in front of the first chunk, `behind` the next segment's first offset; None where that is not
    known. Of a `plan` the last batch of the log is judged by the replica's other files, too.
    """

    def __init__(self, file: "ByteFile", segment: int, before: int | None, behind: int | None, plan: ReplicaPlan | None) -> None:
        self._file = file
        self._segment = segment
        self._before = before
        self._behind = behind
        self._plan = plan
        self._position = 0
        """Byte behind the last sound batch so far."""

    def put_right(self, chunk: BatchChunk) -> tuple[BatchChunk, dict[int, Misplaced]]:
        """The next chunk with the base offsets that belong there, and the batches where others are written, by byte position.

        A chunk in which none is wrong is given as it is. Raises SourceError.
        """
        columns = chunk.columns
        good = np.flatnonzero(has_right_crc(columns))
        if not good.size:
            return chunk, {}
        behind, is_end = self._behind_of(chunk)
        wrong = by_neighbours(columns, self._segment, self._before, behind)
        right = _moved(chunk, wrong)
        if self._plan is not None and self._plan.context.compacted:
            cleaned = self._out_of_line(right)
            wrong, right = [*wrong, *cleaned], _moved(right, cleaned)
        if is_end and behind is None and self._plan is not None and good[-1] == chunk.rows - 1:
            last = self._last(self._plan, right.columns[:, good])
            wrong, right = [*wrong, *last], _moved(right, last)
        before = int(right.columns[BatchColumn.LAST_OFFSET, good[-1]]) + 1
        self._before = before if before < _PAST_ALL else None
        self._position = _end_position(columns[:, good[-1]])
        return right, {batch.position: batch for batch in wrong}

    def _behind_of(self, chunk: BatchChunk) -> tuple[int | None, bool]:
        """Base offset of the batch behind the chunk, None if it is not known, and whether the chunk's last batch is the file's."""
        end = _end_position(chunk.columns[:, -1])
        header = read_sizes(self._file, end)
        kinds = {damage.kind for damage in chunk.damage if damage.position >= end}
        if kinds - kinds_with(Trait.IS_TAIL):
            return None, False
        if kinds or len(header) < _SIZES_END or int.from_bytes(header[_OFFSET_BYTES:], "big", signed=True) <= 0:
            return self._behind, True
        return int.from_bytes(header[:_OFFSET_BYTES], "big", signed=True), False

    def _out_of_line(self, chunk: BatchChunk) -> list[Misplaced]:
        """Batches of a cleaned log's chunk that contradict the order of the others in it; the first may join a chunk before."""
        fold = ContinuityFold(self._segment, compacted=True)
        fold.step(chunk.columns, chunk.damage)
        first = int(chunk.columns[BatchColumn.POSITION, 0]) if self._position else None
        return [batch for batch in out_of_line(fold.runs) if batch.position != first]

    def _last(self, plan: ReplicaPlan, columns: "NDArray[np.int64]") -> list[Misplaced]:
        """The last batch of the log, if the replica's other files say that its base offset is wrong.

        `columns` are of sound batches; one behind damage may have begun anywhere.
        """
        position = int(columns[BatchColumn.POSITION, -1])
        alone = columns.shape[1] == 1
        before = self._before if alone else int(columns[BatchColumn.LAST_OFFSET, -2]) + 1
        joins = position == (self._position if alone else _end_position(columns[:, -2]))
        base = int(columns[BatchColumn.BASE_OFFSET, -1])
        offsets = int(columns[BatchColumn.LAST_OFFSET, -1]) - base + 1
        if before is None or before == base or not joins or before < 0 or offsets <= 0 or before + offsets > _PAST_ALL:
            return []
        doubted = Misplaced(self._segment, position, offsets, base, before, before)
        wrong = at_end(doubted, witnessed_by(plan, doubted), cleaned=plan.context.compacted)
        return [] if wrong is None else [wrong]


def witnessed_by(plan: ReplicaPlan, last: Misplaced) -> Witnessed:
    """What a replica's own files say of the end of its log, of which `last` is the last batch."""
    context = plan.context
    known = [(context.high_watermark, "high watermark"), (context.recovery_point, "recovery point")]
    heard = Witnessed([(offset, witness) for offset, witness in known if offset], [])
    heard.ends += [(offset, f"snapshot {offset}") for offset, _ in plan.directory.snapshots]
    heard.starts += [(entry.start_offset, "leader-epoch-checkpoint") for entry in context.epoch_checkpoint or ()]
    if last.position == 0:
        heard.starts.append((last.segment, "segment name"))
    segment = plan.directory.segment(last.segment)
    if segment is not None:
        indexes = read_indexes(plan, segment)
        if indexes.index is not None:
            offsets = indexes.index.offsets[indexes.index.positions == last.position] if last.position else []
            heard.starts += [(int(offset) + 1 - last.offsets, "offset index") for offset in offsets]
        if indexes.time_index is not None:
            heard.ends += [(int(offset) + 1, "time index") for offset in indexes.time_index.offsets[-1:]]
    return heard


def _moved(chunk: BatchChunk, batches: list[Misplaced]) -> BatchChunk:
    return put_right(chunk, {batch.position: batch.offset for batch in batches}) if batches else chunk


def _end_position(batch: "NDArray[np.int64]") -> int:
    """Byte behind a batch, a column by BatchColumn."""
    return int(batch[BatchColumn.POSITION] + batch[BatchColumn.SIZE_IN_BYTES])


def rightly_placed(plan: ReplicaPlan, log: "SegmentLog", file: "ByteFile") -> Iterator[tuple[BatchChunk, dict[int, Misplaced]]]:
    """The chunks of a replica's `.log` with the base offsets that belong there, and the batches where others are written, by byte
    position. Raises SourceError."""
    placing = Placing(file, log.base_offset, log.base_offset, log.next_base_offset, plan)
    yield from map(placing.put_right, SegmentReader(file, log.max_plausible_offset).chunks())


# Records of a replica's log, batch by batch: for the internal topics, whose records are evidence themselves.


WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LoggedRecords:
    """The records of a good batch that is no control batch, the batch's place, and whether some of them could not be read."""

    segment: int
    position: int
    size_in_bytes: int
    records: Sequence[PlainRecord | Record]
    broken: bool


def logged_records(plan: ReplicaPlan, lost: list[tuple[int, int]]) -> Iterator[LoggedRecords]:
    """The records of every batch with a right CRC, in file order over all segments, by the offsets that belong to their places; the
    scan reports what is damaged.

    (segment, position) of what was left out goes into `lost` before anything behind it is handed out; a tail that a crash leaves
    is none of it. Raises SourceError if a file cannot be read (further).
    """
    for log in plan.directory.logs():
        with plan.log_dir.source.open(log.entry.path) as file:
            for chunk, misplaced in rightly_placed(plan, log, file):
                good = _good(log.base_offset, chunk, lost)
                start, window = 0, b""
                for position, size in chunk.columns[: BatchColumn.SIZE_IN_BYTES + 1, good].T.tolist():
                    if isinstance(file, CollectedLog):
                        data = read_batch(file, position, size)
                    else:
                        if position + size > start + len(window):
                            start, window = position, file.read_at(position, max(size, WINDOW_BYTES))
                        data = window[position - start : position - start + size]
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
    """Rows with a right CRC and an ordinary size; the places of the others, and of damage, go into `lost`."""
    columns = chunk.columns
    good = has_right_crc(columns)
    good &= columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES
    lost += [(segment, int(position)) for position in columns[BatchColumn.POSITION, ~good]]
    lost += [(segment, damage.position) for damage in chunk.damage if damage.kind not in kinds_with(Trait.IS_TAIL)]
    return np.flatnonzero(good)


# The batches of a log that belong to transactions, in file order.


def transactional_batches(plan: ReplicaPlan) -> "Iterator[NDArray[np.int64]]":
    """The transactional batches and markers of a log in file order, good ones, as columns by BatchColumn, with the offsets that
    belong to their places; the matrix is used again for the next. Raises SourceError."""
    for log in plan.directory.logs():
        with plan.log_dir.source.open(log.entry.path) as file:
            for chunk, _ in rightly_placed(plan, log, file):
                columns = chunk.columns
                attributes, control = columns[BatchColumn.ATTRIBUTES], columns[BatchColumn.CONTROL_RECORD_TYPE]
                is_marker = (attributes & CONTROL_MASK != 0) & (control <= CONTROL_COMMIT)
                is_data = attributes & (CONTROL_MASK | TRANSACTIONAL_MASK) == TRANSACTIONAL_MASK
                good = has_right_crc(columns) & (columns[BatchColumn.PRODUCER_ID] >= 0)
                wanted = good & (is_marker | is_data)
                yield columns if wanted.all() else columns[:, np.flatnonzero(wanted)]
