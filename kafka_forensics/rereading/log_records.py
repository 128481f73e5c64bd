"""Records of a replica's log, batch by batch: for the internal topics, whose records are evidence themselves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import HARMLESS_TAILS, BatchChunk, BatchColumn, Record
from kafka_forensics.model.constants import CONTROL_COMMIT, CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, PlainRecord, decode_batch, plain_records
from kafka_forensics.rereading.misplaced import logs_of, rightly_placed

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    for segment, log, behind in logs_of(plan):
        with plan.log_dir.source.open(log.path) as file:
            for chunk, misplaced in rightly_placed(plan, segment, file, behind):
                good = _good(segment.base_offset, chunk, lost)
                start, window = 0, b""
                for position, size in chunk.columns[: BatchColumn.SIZE_IN_BYTES + 1, good].T.tolist():
                    if position + size > start + len(window):
                        start, window = position, file.read_at(position, max(size, WINDOW_BYTES))
                    data = window[position - start : position - start + size]
                    data = misplaced[position].rewritten(data) if position in misplaced else data
                    plain = plain_records(data)
                    if plain is not None:
                        yield LoggedRecords(segment.base_offset, position, size, plain, broken=False)
                        continue
                    batch = decode_batch(data, position=position)
                    if batch.header is None or not batch.header.is_control_batch:
                        yield LoggedRecords(
                            segment.base_offset, position, size, list(batch.iter_records()), broken=bool(batch.problems)
                        )


def _good(segment: int, chunk: BatchChunk, lost: list[tuple[int, int]]) -> "NDArray[np.int64]":
    """Rows with a right CRC and an ordinary size; the places of the others, and of damage, go into `lost`."""
    columns = chunk.columns
    good = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    good &= columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES
    lost += [(segment, int(position)) for position in columns[BatchColumn.POSITION, ~good]]
    lost += [(segment, damage.position) for damage in chunk.damage if damage.kind not in HARMLESS_TAILS]
    return np.flatnonzero(good)


# The batches of a log that belong to transactions, in file order.


def transactional_batches(plan: ReplicaPlan) -> Iterator[list[int]]:
    """The transactional batches and markers of a log in file order, good ones, as lists by BatchColumn, with the offsets that
    belong to their places. Raises SourceError."""
    for segment, log, behind in logs_of(plan):
        with plan.log_dir.source.open(log.path) as file:
            for chunk, _ in rightly_placed(plan, segment, file, behind):
                columns = chunk.columns
                attributes, control = columns[BatchColumn.ATTRIBUTES], columns[BatchColumn.CONTROL_RECORD_TYPE]
                is_marker = (attributes & CONTROL_MASK != 0) & (control <= CONTROL_COMMIT)
                is_data = attributes & (CONTROL_MASK | TRANSACTIONAL_MASK) == TRANSACTIONAL_MASK
                good = (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]) & (columns[BatchColumn.PRODUCER_ID] >= 0)
                yield from columns[:, np.flatnonzero(good & (is_marker | is_data))].T.tolist()
