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
    below = [batch for batch in batches if batch.end_offset <= high_watermark]
    stable = last_stable_offset(
        high_watermark, [Transaction(ended.first_offset, ended.last_offset) for ended in transactions(batches)]
    )
    aborted = [ended for ended in transactions(batches) if ended.aborted]
    uncommitted = tuple(each for batch in below if batch.marker is None for each in batch.ids)
    committed = tuple(
        each
        for batch in below
        if batch.marker is None and batch.end_offset <= stable and not any(_belongs(batch, other) for other in aborted)
        for each in batch.ids
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
    endeds = []
    for batch in batches:
        if not batch.is_transactional:
            continue
        if batch.marker is None:
            open_ones.setdefault(batch.producer_id, batch.base_offset)
        elif batch.producer_id in open_ones:
            endeds.append(Ended(batch.producer_id, open_ones.pop(batch.producer_id), batch.base_offset, batch.marker == ABORT))
    endeds += [Ended(producer_id, first, None, aborted=False) for producer_id, first in open_ones.items()]
    return sorted(endeds, key=lambda ended: ended.first_offset)


def _belongs(batch: Batch, ended: Ended) -> bool:
    """Whether a batch is of an ended transaction."""
    ours = batch.is_transactional and batch.producer_id == ended.producer_id
    return ours and ended.first_offset <= batch.base_offset and (ended.last_offset is None or batch.base_offset < ended.last_offset)
