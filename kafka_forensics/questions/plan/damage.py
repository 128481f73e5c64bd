"""Damaged batches of replicas as a plan counts them: their offsets, and whether they are rotten copies of what another holds; and
what of a log could not be read, which is no damage."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import damaged_by_headers
from kafka_forensics.analysis.segments import MAX_RELATIVE_OFFSET
from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.offset_ranges import Range, Ranges, clipped, normalised, without

if TYPE_CHECKING:
    from kafka_forensics.rereading.reader import LogReader

_HIDING: Final = ("FRAMING_LOST", "BUDGET_EXCEEDED", "SEG_HOLE")
"""Damage that may hide whole batches; of the others the headers tell."""
OFFSETS_COMPARED: Final = 1 << 20
"""A damaged range of more offsets is not compared batch by batch."""

_Batch = tuple[int, int]
"""(first offset, last offset)."""


def damaged_offsets(replica: Replica) -> Ranges:
    """Offsets of bytes that are there and are not good batches: between good batches by these, behind the last by the headers.

    In cleaned logs offsets are missing anyway, so there only the headers tell. Bytes that are all zero hold nothing.
    """
    spans = normalised([*_between(replica), *damaged_by_headers(replica)])
    tail = replica.state.continuity.bad_tail
    if tail is not None and 0 <= tail.start_offset < tail.end_offset:
        spans = normalised([*spans, *without([(tail.start_offset, tail.end_offset)], _runs(replica))])
    lies = [
        damage for _, damage in replica.state.framing.damage.get("FRAMING_LOST", ()) if damage.detail.get("reason") == "length_lies"
    ]
    last = [(lie.base_offset, lie.last_offset + 1) for lie in lies if lie.base_offset == replica.course.end_offset]
    return normalised([*spans, *last])


def _between(replica: Replica) -> Iterator[Range]:
    """What damage between good batches has eaten, unless it is nothing but zeros, or was never read."""
    holes = {(segment, damage.position): damage for segment, damage in replica.state.framing.damage.get("SEG_HOLE", ())}
    unread = unread_offsets(replica)
    for place, offsets in replica.course.eaten.items():
        if not _is_empty(holes.get(place)) and offsets[1] - offsets[0] <= MAX_RELATIVE_OFFSET and offsets not in unread:
            yield offsets


def unread_offsets(replica: Replica) -> Ranges:
    """Offsets before the log's end that stood, if anywhere, in segments that could not be read, or not to their ends."""
    eaten = []
    for run in replica.state.continuity.runs if replica.state.unread else ():
        place = run.after_damage
        if place in replica.course.eaten and any(place[0] <= segment < run.segment for segment in replica.state.unread):
            eaten.append(replica.course.eaten[place])
    return tuple(eaten)


def _is_empty(damage: Damage | None) -> bool:
    return damage is not None and damage.detail.get("zero_bytes") == damage.size_in_bytes


def _runs(replica: Replica) -> Ranges:
    return normalised((run.start_offset, run.end_offset) for run in replica.state.continuity.runs)


def has_unknown_bytes(replica: Replica) -> bool:
    """Whether bytes behind the last good batch may hold records, and nothing tells their offsets."""
    continuity = replica.state.continuity
    if continuity.damage_at_end is None:
        return False
    if continuity.bad_tail is not None and continuity.bad_tail.closed:
        return True
    for kind in _HIDING:
        for segment, damage in replica.state.framing.damage.get(kind, ()):
            behind = (segment, damage.position) >= continuity.damage_at_end
            if behind and damage.base_offset < 0 and not _is_empty(damage):
                return True
    return False


def unproven(replicas: Sequence[Replica], reader: "LogReader") -> dict[tuple[int, int], Ranges]:
    """Damaged offsets that another replica has as well, and nothing proves that it was given the same records; by the numbers of
    the two in ascending order."""
    by_pair: dict[tuple[int, int], Ranges] = {}
    damaged = [damaged_offsets(replica) for replica in replicas]
    for i, j in permutations(range(len(replicas)), 2):
        both = normalised([*_runs(replicas[j]), *damaged[j]]) if damaged[i] else ()
        open_ones = [
            span
            for low, high in damaged[i]
            for part in clipped(both, low, high)
            for span in without([part], tuple(_same(replicas[i], replicas[j], reader, part)))
        ]
        if open_ones:
            pair = (min(i, j), max(i, j))
            by_pair[pair] = normalised((*by_pair.get(pair, ()), *open_ones))
    return by_pair


def _same(left: Replica, right: Replica, reader: "LogReader", part: Range) -> list[Range]:
    """What of `part` surely held the same batches in both: they stand in one leader epoch, or their headers keep one CRC."""
    start, end = part
    epochs = {epoch for replica in (left, right) for epoch in (_epoch_before(replica, start), epoch_at(replica.epochs, end))}
    inside = end < min(left.course.end_offset, right.log_end_offset)
    if inside and len(epochs) == 1 and min((epoch or 0) if epoch is not None else -1 for epoch in epochs) >= 0:
        return [part]
    if end - start > OFFSETS_COMPARED:
        return []
    ours, theirs = _headers(left, reader, part), _headers(right, reader, part)
    return list(
        normalised(
            (base, last + 1)
            for (base, last), (crc, epoch) in ours.items()
            if (base, last) in theirs and (crc == theirs[base, last][0] or (0 <= epoch == theirs[base, last][1]))
        )
    )


def _epoch_before(replica: Replica, start: int) -> int | None:
    """Leader epoch in which a range begins: that of the good batch before it, or at its start; where the log begins damaged, by its
    leader-epoch-checkpoint."""
    batches, file = replica.epochs, replica.context.epoch_checkpoint or ()
    tried = (epoch_at(batches, start - 1), epoch_at(batches, start), epoch_at(file, start))
    return next((epoch for epoch in tried if epoch is not None), None)


def _headers(replica: Replica, reader: "LogReader", part: Range) -> dict[_Batch, tuple[int, int]]:
    """Batches of a range → (CRC as stored, leader epoch)."""
    rows = reader.batches(replica, *part)
    columns = (BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET, BatchColumn.CRC, BatchColumn.PARTITION_LEADER_EPOCH)
    return {
        (base, last): (crc, epoch) for base, last, crc, epoch in zip(*(rows[column].tolist() for column in columns), strict=True)
    }
