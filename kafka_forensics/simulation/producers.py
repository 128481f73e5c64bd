"""Producers: what they send, send again, and are told. Idempotent ones number their batches, and leaders judge the numbers."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Unpack

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication import acks as promises
from kafka_forensics.replication.acks import NumberedBatch, SequenceVerdict, judged
from kafka_forensics.replication.watermarks import Transaction, last_stable_offset
from kafka_forensics.simulation.actions import BatchFields, Sending, append, leading, raise_high_watermark, receiver
from kafka_forensics.simulation.cluster import ABORT, Batch, Cluster, Partition, Sent, SimulatedReplica

FIRST_PRODUCER_ID: Final = 1000


@dataclass(slots=True)
class Producer:
    """A client; without an id it numbers nothing."""

    producer_id: int = -1
    producer_epoch: int = -1
    transactional_id: str | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the next record."""
    numbered: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Ids of a batch → its first sequence number, to send it again with."""

    @property
    def idempotent(self) -> bool:
        """Whether its batches are numbered."""
        return self.producer_id >= 0

    def begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Take an id and epoch from a coordinator: numbers begin anew."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.sequences.clear()
        self.numbered.clear()


def produce(
    cluster: Cluster,
    partition: Partition,
    producer: Producer,
    count: int = 1,
    *,
    again: Sent | None = None,
    **how: Unpack[Sending],
) -> Sent:
    """Send a new batch of `count` records, or `again` one that was sent before; brokers before 0.11 take no numbers."""
    ids = cluster.new_ids(count) if again is None else again.ids
    if not producer.idempotent or not cluster.epochs_known:
        return append(cluster, partition, ids, **how)
    batch = NumberedBatch(producer.producer_epoch, number(producer, partition, ids), len(ids))
    broker, acks = receiver(partition, how), how.get("acks", promises.ALL)
    replica = partition.replicas.get(broker)
    if replica is not None and cluster.runs(broker) and replica.leads:
        verdict, at = judge(replica, producer.producer_id, batch)
        if verdict is SequenceVerdict.DUPLICATE:
            return _answer_again(cluster, partition, replica, Sent(partition.name, ids, acks, broker, replica.leader_epoch), at)
        if verdict is not SequenceVerdict.APPEND:
            return Sent(partition.name, ids, acks, broker, replica.leader_epoch, verdict.value)
    numbered: BatchFields = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": producer.transactional_id is not None,
    }
    return append(cluster, partition, ids, numbered, **how)


def number(producer: Producer, partition: Partition, ids: tuple[int, ...]) -> int:
    """The first sequence number of a batch, which it keeps for good."""
    if ids not in producer.numbered:
        first = producer.sequences.get(partition.name, 0)
        producer.numbered[ids] = first
        producer.sequences[partition.name] = (first + len(ids)) & MAX_SEQUENCE
    return producer.numbered[ids]


def judge(replica: SimulatedReplica, producer_id: int, batch: NumberedBatch) -> tuple[SequenceVerdict, int]:
    """What a leader makes of a numbered batch by what is in its log, and the offset at which a duplicate lies (-1)."""
    known: list[NumberedBatch] = []
    epoch, at = None, -1
    for earlier in replica.batches:
        if earlier.producer_id != producer_id:
            continue
        epoch = earlier.producer_epoch
        if earlier.marker is None:
            known.append(NumberedBatch(earlier.producer_epoch, earlier.base_sequence, len(earlier.ids)))
            if known[-1] == batch:
                at = earlier.base_offset
    return judged(batch, epoch, known), at


def _answer_again(cluster: Cluster, partition: Partition, replica: SimulatedReplica, sent: Sent, at: int) -> Sent:
    """A duplicate is answered as the first was: once the watermark is behind it, where acks=all asks for that."""
    sent.duplicate, sent.base_offset, sent.end_offset = True, at, at + len(sent.ids)
    replica.waiting.append(sent)
    raise_high_watermark(cluster, partition, replica)
    return sent


# What consumers read of a partition: all below the high watermark, or of transactions only what was committed.


class ConsumedIds(NamedTuple):
    """Ids in the order of the log, from the leader `leader`; both None where nobody leads."""

    topic_partition: TopicPartition
    leader: int
    read_uncommitted: tuple[int, ...] | None
    read_committed: tuple[int, ...] | None


def read(cluster: Cluster, partition: Partition) -> ConsumedIds:
    """Read a partition from its beginning, in both isolation levels."""
    leader = leading(cluster, partition)
    if leader is None:
        return ConsumedIds(partition.name, -1, None, None)
    return ConsumedIds(partition.name, leader.broker, *visible(leader.batches, leader.high_watermark))


def visible(batches: list[Batch], high_watermark: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that read_uncommitted and read_committed show of a log, whole batches below the watermark."""
    below = [batch for batch in batches if batch.end_offset <= high_watermark]
    stable = last_stable_offset(
        high_watermark, [Transaction(ended.first_offset, ended.last_offset) for ended in transactions(batches)]
    )
    aborted = [ended for ended in transactions(batches) if ended.aborted]
    uncommitted = tuple(record_id for batch in below if batch.marker is None for record_id in batch.ids)
    committed = tuple(
        record_id
        for batch in below
        if batch.marker is None and batch.end_offset <= stable and not any(_belongs(batch, other) for other in aborted)
        for record_id in batch.ids
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
