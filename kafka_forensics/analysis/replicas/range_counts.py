"""How many batches, records and bytes a range of a log's offsets has, where reading them again is cheap."""

from typing import Final, NamedTuple

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.diff import BatchReader, walked
from kafka_forensics.model.batches import BatchColumn

READ_AGAIN_BYTES: Final = 64 << 20
"""Segments of more bytes in all are not read again to be counted."""


class Counts(NamedTuple):
    """Batches, records and bytes."""

    batches: int
    records: int
    bytes: int


def counted(replica: Replica, reader: BatchReader, start: int, end: int) -> Counts | None:
    """Batches that hold an offset of `[start, end)`, with all their records and bytes; None where they are too many to read."""
    framing, first = replica.state.framing, replica.first_batch_offset
    start, end = max(start, first), min(end, replica.log_end_offset)
    if start >= end:
        return Counts(0, 0, 0)
    if start <= first and end >= replica.log_end_offset:
        return Counts(framing.batches, framing.records, framing.bytes_decoded)
    reached = (totals.end_position for base, totals in framing.by_segment.items() if base < end and totals.last_offset >= start)
    if sum(reached) > READ_AGAIN_BYTES:
        return None
    batches = records = size = 0
    for rows in walked(reader, replica, start, end):
        batches += rows.shape[1]
        records += int(rows[BatchColumn.RECORDS_COUNT].clip(0).sum())
        size += int(rows[BatchColumn.SIZE_IN_BYTES].sum())
    return Counts(batches, records, size)
