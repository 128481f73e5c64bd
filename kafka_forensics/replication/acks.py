"""How a leader responds to a produce request (ReplicaManager), and how it checks sequence numbers (ProducerStateManager).

`acks` is the producer's setting: 0, 1, or -1 for `all`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.replication.watermarks import LeaderState

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
BATCHES_REMEMBERED: Final = 5
"""Batches of each producer whose sequence numbers a leader remembers."""


class ProduceResponse(Enum):
    """The response to a produce request."""

    ACKNOWLEDGED = "acknowledged"
    WAITING = "waiting"
    """For the high watermark, until the request times out; the records stay in the log in any case."""
    NOT_ENOUGH_REPLICAS = "not enough replicas"
    """Refused; nothing was appended."""
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "not enough replicas after append"
    """The ISR shrank meanwhile. The records are in the log and may be committed, though the producer receives an error."""


def before_append(acks: int, state: LeaderState) -> ProduceResponse:
    """NOT_ENOUGH_REPLICAS if the leader refuses a batch, which happens only with acks=all and an ISR below min.insync.replicas;
    else WAITING (Partition.appendRecordsToLeader)."""
    return ProduceResponse.NOT_ENOUGH_REPLICAS if acks == ACKS_ALL and state.under_min_isr else ProduceResponse.WAITING


def after_append(acks: int, state: LeaderState, last_offset: int) -> ProduceResponse:
    """The response to a batch whose last record has `last_offset` (Partition.checkEnoughReplicasReachOffset).

    0: always acknowledged, even if the leader never received it; 1: once it is in the leader's log; all: once it is below the high
    watermark.
    """
    if acks == ACKS_NONE:
        return ProduceResponse.ACKNOWLEDGED
    if acks == ACKS_LEADER:
        return ProduceResponse.ACKNOWLEDGED if last_offset < state.log_end_offset else ProduceResponse.WAITING
    if last_offset >= state.high_watermark:
        return ProduceResponse.WAITING
    return ProduceResponse.NOT_ENOUGH_REPLICAS_AFTER_APPEND if state.under_min_isr else ProduceResponse.ACKNOWLEDGED


class SequenceVerdict(Enum):
    """What a leader does with a batch that has sequence numbers."""

    APPEND = "append"
    DUPLICATE = "duplicate"
    """The log has it already; the leader responds as if it had just appended it."""
    OUT_OF_ORDER = "out of order"
    """Records before it are missing (OutOfOrderSequenceException)."""
    FENCED = "fenced"
    """The producer id has a later epoch (InvalidProducerEpochException)."""


class NumberedBatch(NamedTuple):
    """Producer epoch, base sequence and number of records of a batch; sequence numbers wrap from 2^31 - 1 to 0."""

    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record."""
        return (self.base_sequence + self.records - 1) & MAX_SEQUENCE


def sequence_verdict(batch: NumberedBatch, epoch: int | None, earlier: Sequence[NumberedBatch]) -> SequenceVerdict:
    """What a leader does with `batch` (ProducerAppendInfo.checkProducerEpoch, checkSequence, KIP-98).

    `earlier` are the producer's batches in the log, oldest first; `epoch` its last epoch, which a marker may have raised. A
    producer without entries in the log (`epoch` None) may start at any sequence number; a new epoch starts at 0.
    """
    if epoch is not None and batch.producer_epoch < epoch:
        return SequenceVerdict.FENCED
    of_epoch = [before for before in earlier[-BATCHES_REMEMBERED:] if before.producer_epoch == batch.producer_epoch]
    if batch in of_epoch:
        return SequenceVerdict.DUPLICATE
    if of_epoch:
        follows = batch.base_sequence == (of_epoch[-1].last_sequence + 1) & MAX_SEQUENCE
    else:
        follows = epoch is None or batch.base_sequence == 0
    return SequenceVerdict.APPEND if follows else SequenceVerdict.OUT_OF_ORDER
