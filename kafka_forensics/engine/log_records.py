"""Records of a replica's log, batch by batch: for the internal topics, whose records are evidence themselves."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafka_forensics.engine.inputs import ReplicaPlan
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.records import DecodedBatch, decode_batch
from kafka_forensics.parsers.segment import SegmentReader

MAX_BATCH_BYTES = 64 << 20
"""A batch larger than this is passed over; no broker writes one to an internal topic."""
_TAILS = frozenset({"SEG_TORN_TAIL", "SEG_ZERO_TAIL"})


@dataclass(frozen=True, slots=True)
class OpenedBatch:
    """A good batch of a log: the segment it stands in, its byte position there, its size, and the batch opened."""

    segment: int
    position: int
    size_in_bytes: int
    batch: DecodedBatch


def opened_batches(plan: ReplicaPlan, lost: list[tuple[int, int]] | None = None) -> Iterator[OpenedBatch]:
    """Every batch with a right CRC, in file order over all segments; damaged stretches are left out, the scan reports those.

    (segment, position) of what was left out goes into `lost`, if given, before anything behind it is handed out; a tail that a
    crash leaves is none of it. Raises SourceError if a file cannot be read (further).
    """
    for segment in plan.directory.segments:
        if segment.log is None:
            continue
        with plan.log_dir.source.open(segment.log.path) as file:
            for chunk in SegmentReader(file).chunks():
                columns = chunk.columns
                sizes = columns[BatchColumn.SIZE_IN_BYTES]
                good = (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]) & (sizes <= MAX_BATCH_BYTES)
                if lost is not None:
                    lost += [(segment.base_offset, int(one)) for one in columns[BatchColumn.POSITION, ~good]]
                    lost += [(segment.base_offset, one.position) for one in chunk.damage if one.kind not in _TAILS]
                for row in np.flatnonzero(good):
                    position, size = int(columns[BatchColumn.POSITION, row]), int(sizes[row])
                    batch = decode_batch(file.read_at(position, size), position=position)
                    yield OpenedBatch(segment.base_offset, position, size, batch)
