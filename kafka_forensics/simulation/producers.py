"""Producers and consumers: produce requests and retries, which idempotent producers number, and what consumers read."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Unpack

from msgspec import Struct, field

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication.acks import ACKS_ALL, NumberedBatch, SequenceVerdict, sequence_verdict
from kafka_forensics.replication.watermarks import Transaction, last_stable_offset
from kafka_forensics.simulation.actions import (
    SendOptions,
    SimulatedBatchFields,
    acting_leader,
    append,
    raise_high_watermark,
    receiving_broker,
    true_leader,
)
from kafka_forensics.simulation.cluster import ABORT, Batch, Cluster, ProduceRequest, SimulatedPartition, SimulatedReplica

FIRST_PRODUCER_ID: Final = 1000


class Producer(Struct):
    """A client; without a producer id it is not idempotent."""

    producer_id: int = -1
    producer_epoch: int = -1
    transactional_id: str | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    """Sequence number of the next record."""
    batch_sequences: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Record ids of a batch → its base sequence, which a retry repeats."""

    @property
    def is_idempotent(self) -> bool:
        """Whether its batches carry sequence numbers."""
        return self.producer_id >= 0

    def begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Take a producer id and epoch from a coordinator; sequence numbers start at 0 again."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.sequences.clear()
        self.batch_sequences.clear()


def produce(
    cluster: Cluster,
    partition: SimulatedPartition,
    producer: Producer,
    count: int = 1,
    *,
    retry_of: ProduceRequest | None = None,
    **options: Unpack[SendOptions],
) -> ProduceRequest:
    """Send a new batch of `count` records, or retry an earlier request; brokers before 0.11 ignore sequence numbers."""
    ids = cluster.new_ids(count) if retry_of is None else retry_of.ids
    if not producer.is_idempotent or not cluster.has_leader_epochs:
        return append(cluster, partition, ids, **options)
    batch = NumberedBatch(producer.producer_epoch, base_sequence_of(producer, partition, ids), len(ids))
    replica = acting_leader(cluster, partition, receiving_broker(partition, options))
    if replica is not None:
        verdict, offset = _check_sequence(replica, producer.producer_id, batch)
        if verdict is not SequenceVerdict.APPEND:
            request = ProduceRequest(partition.name, ids, options.get("acks", ACKS_ALL), replica.broker, replica.leader_epoch)
            if verdict is not SequenceVerdict.DUPLICATE:
                request.response = verdict.value
                return request
            request.is_duplicate, request.base_offset, request.end_offset = True, offset, offset + len(ids)
            replica.waiting.append(request)
            raise_high_watermark(cluster, partition, replica)
            return request
    fields: SimulatedBatchFields = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": producer.transactional_id is not None,
    }
    return append(cluster, partition, ids, fields, **options)


def base_sequence_of(producer: Producer, partition: SimulatedPartition, ids: tuple[int, ...]) -> int:
    """The base sequence of a batch; its first use assigns it."""
    if ids not in producer.batch_sequences:
        first = producer.sequences.get(partition.name, 0)
        producer.batch_sequences[ids] = first
        producer.sequences[partition.name] = (first + len(ids)) & MAX_SEQUENCE
    return producer.batch_sequences[ids]


def _check_sequence(replica: SimulatedReplica, producer_id: int, batch: NumberedBatch) -> tuple[SequenceVerdict, int]:
    """A leader's verdict on a batch by its log, and the base offset of the batch if it is a duplicate (-1 otherwise)."""
    numbered: list[NumberedBatch] = []
    epoch, duplicate_offset = None, -1
    for earlier in replica.batches:
        if earlier.producer_id != producer_id:
            continue
        epoch = earlier.producer_epoch
        if earlier.marker is None:
            numbered.append(NumberedBatch(earlier.producer_epoch, earlier.base_sequence, len(earlier.ids)))
            if numbered[-1] == batch:
                duplicate_offset = earlier.base_offset
    return sequence_verdict(batch, epoch, numbered), duplicate_offset


class ConsumedIds(NamedTuple):
    """The record ids that consumers read, in log order; None where the partition has no leader."""

    topic_partition: TopicPartition
    read_uncommitted: tuple[int, ...] | None
    read_committed: tuple[int, ...] | None


def consume(cluster: Cluster, partition: SimulatedPartition) -> ConsumedIds:
    """Read a partition from its start in both isolation levels."""
    leader = true_leader(cluster, partition)
    if leader is None:
        return ConsumedIds(partition.name, None, None)
    return ConsumedIds(partition.name, *visible_ids(leader.batches, leader.high_watermark))


def visible_ids(batches: Sequence[Batch], high_watermark: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The record ids that read_uncommitted and read_committed consumers see of a log."""
    transactions = _transactions(batches)
    stable_end = last_stable_offset(high_watermark, [transaction.offsets for transaction in transactions])
    data = [batch for batch in batches if batch.end_offset <= high_watermark and batch.marker is None]
    aborted = [transaction for transaction in transactions if transaction.is_aborted]
    committed = [
        batch
        for batch in data
        if batch.end_offset <= stable_end and not any(transaction.includes(batch) for transaction in aborted)
    ]
    return tuple(number for batch in data for number in batch.ids), tuple(number for batch in committed for number in batch.ids)


class _LogTransaction(NamedTuple):
    producer_id: int
    offsets: Transaction
    is_aborted: bool

    def includes(self, batch: Batch) -> bool:
        """Whether a batch is part of this transaction, which has ended."""
        first, last = self.offsets.first_offset, self.offsets.last_offset
        is_of_producer = batch.is_transactional and batch.producer_id == self.producer_id
        return is_of_producer and first <= batch.base_offset and (last is None or batch.base_offset < last)


def _transactions(batches: Sequence[Batch]) -> list[_LogTransaction]:
    """Every transaction with data in a log."""
    open_since: dict[int, int] = {}
    transactions = []
    for batch in batches:
        if not batch.is_transactional:
            continue
        if batch.marker is None:
            open_since.setdefault(batch.producer_id, batch.base_offset)
        elif batch.producer_id in open_since:
            offsets = Transaction(open_since.pop(batch.producer_id), batch.base_offset)
            transactions.append(_LogTransaction(batch.producer_id, offsets, batch.marker == ABORT))
    still_open = (_LogTransaction(producer_id, Transaction(first), is_aborted=False) for producer_id, first in open_since.items())
    return [*transactions, *still_open]
