"""What is missing behind damage: bytes at a segment's end explain the loss of no more than they had room for."""

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.diff import BatchReader, walked
from kafka_forensics.analysis.segments import Irregularity
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import RECORD_BATCH_OVERHEAD
from kafka_forensics.replication.epochs import epoch_at


def uncover_gaps(replicas: list[Replica], reader: BatchReader) -> None:
    """Turn into gaps what damage at a segment's end is held to have eaten and cannot have held, where the next segment is missing.

    Fewer bytes than a batch's header held nothing. How many bytes the offsets take is else asked of another replica of the same
    history, of which no more is read than would have fitted.
    """
    for replica in replicas:
        if replica.context.compacted or replica.state.continuity.dropped_runs:
            continue
        for place, (start, end) in list(replica.course.eaten.items()):
            room = _bytes_behind(replica, *place)
            if place[0] >= end or end not in replica.context.segment_base_offsets or room is None:
                continue
            reach = start if room < RECORD_BATCH_OVERHEAD else _reach(replica, replicas, reader, (start, end), room)
            run = next((run for run in replica.state.continuity.runs if run.start_offset == end), None)
            if reach >= end or run is None:
                continue
            del replica.course.eaten[place]
            if reach > start:
                replica.course.eaten[place] = (start, reach)
            replica.course.irregularities.append(Irregularity("OFFSET_GAP", reach, end, run, reach))
            replica.gap_starts |= {reach}


def _bytes_behind(replica: Replica, segment: int, position: int) -> int | None:
    """Damaged bytes of a segment from a byte on; None if batches follow them there, or if not all of it is known."""
    framing = replica.state.framing
    totals = framing.by_segment.get(segment)
    samples = framing.damage.values()
    kept = [damage for sample in samples for at, damage in sample if at == segment and damage.position >= position]
    dropped = any(len(list(sample)) < sample.count for sample in samples)
    if segment in replica.state.unread or dropped or (totals is not None and totals.end_position > position):
        return None
    return sum(damage.size_in_bytes for damage in kept)


def _reach(replica: Replica, replicas: list[Replica], reader: BatchReader, offsets: tuple[int, int], room: int) -> int:
    """Offset behind the last batch from `start` on that fits into `room` bytes, by the first replica that tells; `end` if none."""
    start, end = offsets
    epoch = epoch_at(replica.epochs, end)
    for other in replicas:
        if other is replica or not other.covers(start, end) or epoch_at(other.epochs, end) != epoch:
            continue
        reach, size = start, 0
        for rows in walked(reader, other, start, end):
            for base, last, bytes_taken in rows[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET, BatchColumn.SIZE_IN_BYTES]].T:
                if base < reach:
                    continue  # begins before, and was not eaten whole
                size += int(bytes_taken)
                if size > room:
                    return reach
                reach = int(last) + 1
    return end
