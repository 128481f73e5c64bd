"""What consumers read of a partition: all below the high watermark, or of transactions only what was committed."""

from typing import NamedTuple

from kafka_forensics.replication.watermarks import Transaction, last_stable_offset
from kafka_forensics.simulation.actions import leading
from kafka_forensics.simulation.cluster import ABORT, Batch, Cluster, Partition, TopicPartition


class Reading(NamedTuple):
    """Ids in the order of the log, from the leader `leader`; both None where nobody leads."""

    topic_partition: TopicPartition
    leader: int
    read_uncommitted: tuple[int, ...] | None
    read_committed: tuple[int, ...] | None


def read(cluster: Cluster, partition: Partition) -> Reading:
    """Read a partition from its beginning, in both isolation levels."""
    leader = leading(cluster, partition)
    if leader is None:
        return Reading(partition.name, -1, None, None)
    return Reading(partition.name, leader.broker, *visible(leader.batches, leader.high_watermark))


def visible(batches: list[Batch], high_watermark: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that read_uncommitted and read_committed show of a log, whole batches below the watermark."""
    below = [one for one in batches if one.end_offset <= high_watermark]
    stable = last_stable_offset(high_watermark, [Transaction(one.first_offset, one.last_offset) for one in transactions(batches)])
    aborted = [one for one in transactions(batches) if one.aborted]
    uncommitted = tuple(each for one in below if one.marker is None for each in one.ids)
    committed = tuple(
        each
        for one in below
        if one.marker is None and one.end_offset <= stable and not any(_belongs(one, other) for other in aborted)
        for each in one.ids
    )
    return uncommitted, committed


class Ended(NamedTuple):
    """A transaction in one log; `last_offset` is its marker's, None while it is open."""

    producer_id: int
    first_offset: int
    last_offset: int | None
    aborted: bool


def transactions(batches: list[Batch]) -> list[Ended]:
    """Every transaction of a log that has records, in the order of their beginnings."""
    open_ones: dict[int, int] = {}
    found = []
    for one in batches:
        if not one.is_transactional:
            continue
        if one.marker is None:
            open_ones.setdefault(one.producer_id, one.base_offset)
        elif one.producer_id in open_ones:
            found.append(Ended(one.producer_id, open_ones.pop(one.producer_id), one.base_offset, one.marker == ABORT))
    found += [Ended(producer_id, first, None, aborted=False) for producer_id, first in open_ones.items()]
    return sorted(found, key=lambda one: one.first_offset)


def _belongs(batch: Batch, one: Ended) -> bool:
    """Whether a batch is of an ended transaction."""
    ours = batch.is_transactional and batch.producer_id == one.producer_id
    return ours and one.first_offset <= batch.base_offset and (one.last_offset is None or batch.base_offset < one.last_offset)
