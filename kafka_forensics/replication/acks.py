"""What a producer is promised with an acknowledgement (ReplicaManager), and what leaders make of numbered batches.

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


class ProduceResponse(Enum):
    """What the producer hears of a batch, so far."""

    ACKNOWLEDGED = "acknowledged"
    WAITING = "waiting"
    """For the high watermark, until the request times out: the records stay in the log all the same."""
    NOT_ENOUGH_REPLICAS = "not enough replicas"
    """Refused; nothing was appended."""
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "not enough replicas after append"
    """The ISR shrank meanwhile; the records are in the log, and may be committed, though the producer was told of a failure."""


def before_append(acks: int, state: LeaderState) -> ProduceResponse:
    """Whether a leader takes a batch at all: with acks=all only while the ISR has min.insync.replicas members
    (Partition.appendRecordsToLeader)."""
    return ProduceResponse.NOT_ENOUGH_REPLICAS if acks == ACKS_ALL and state.under_min_isr else ProduceResponse.WAITING


def after_append(acks: int, state: LeaderState, last_offset: int) -> ProduceResponse:
    """What the producer hears of a batch whose last record has `last_offset` (Partition.checkEnoughReplicasReachOffset).

    0: always as if all were well, even if the leader never got it; 1: once it is in the leader's log; all: once it lies below the
    high watermark.
    """
    if acks == ACKS_NONE:
        return ProduceResponse.ACKNOWLEDGED
    if acks == ACKS_LEADER:
        return ProduceResponse.ACKNOWLEDGED if last_offset < state.log_end_offset else ProduceResponse.WAITING
    if last_offset >= state.high_watermark:
        return ProduceResponse.WAITING
    needed = min(state.min_insync_replicas, len(state.follower_ends) + 1)
    return ProduceResponse.ACKNOWLEDGED if len(state.maximal_isr) >= needed else ProduceResponse.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# What a leader does with a numbered batch of a producer (ProducerStateManager, ProducerAppendInfo, KIP-98).
#
# A producer id, its epoch and the sequence number of the first record name a batch; a leader remembers the last five of each
# producer. Sequence numbers wrap from 2^31 - 1 to 0.


BATCHES_REMEMBERED: Final = 5


class SequenceVerdict(Enum):
    """What becomes of the batch."""

    APPEND = "append"
    DUPLICATE = "duplicate"
    """It is there already: answered as if it had just been appended."""
    OUT_OF_ORDER = "out of order"
    """Records before it are missing (OutOfOrderSequenceException)."""
    FENCED = "fenced"
    """A producer of a later epoch has its id (InvalidProducerEpochException)."""


class NumberedBatch(NamedTuple):
    """Epoch, first sequence number and number of records of a batch."""

    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def last_sequence(self) -> int:
        """Of its last record."""
        return (self.base_sequence + self.records - 1) & MAX_SEQUENCE


def sequence_verdict(batch: NumberedBatch, epoch: int | None, known: Sequence[NumberedBatch]) -> SequenceVerdict:
    """What a leader does with `batch` that has of its producer the last batches `known`, oldest first, and the last `epoch`, which
    a marker may have raised (None: nothing of it).

    A producer nothing is known of may begin anywhere; a new epoch begins at 0
    (ProducerAppendInfo.checkProducerEpoch, checkSequence).
    """
    if epoch is not None and batch.producer_epoch < epoch:
        return SequenceVerdict.FENCED
    of_epoch = [
        numbered_batch for numbered_batch in known[-BATCHES_REMEMBERED:] if numbered_batch.producer_epoch == batch.producer_epoch
    ]
    if batch in of_epoch:
        return SequenceVerdict.DUPLICATE
    if not of_epoch:
        return SequenceVerdict.APPEND if epoch is None or batch.base_sequence == 0 else SequenceVerdict.OUT_OF_ORDER
    follows = batch.base_sequence == (of_epoch[-1].last_sequence + 1) & MAX_SEQUENCE
    return SequenceVerdict.APPEND if follows else SequenceVerdict.OUT_OF_ORDER
