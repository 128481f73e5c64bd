"""What a leader does with a numbered batch of a producer (ProducerStateManager, ProducerAppendInfo, KIP-98).

A producer id, its epoch and the sequence number of the first record name a batch; a leader remembers the last five of each
producer. Sequence numbers wrap from 2^31 - 1 to 0.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from kafka_forensics.model.constants import MAX_SEQUENCE

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


def judged(batch: NumberedBatch, epoch: int | None, known: Sequence[NumberedBatch]) -> SequenceVerdict:
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
