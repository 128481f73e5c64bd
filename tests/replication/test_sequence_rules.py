"""What leaders make of numbered batches, and how epochs are noted."""

import pytest

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.acks import NumberedBatch, SequenceVerdict, judged
from kafka_forensics.replication.epochs import assign_epoch

SIX = [NumberedBatch(0, 2 * number, 2) for number in range(6)]


@pytest.mark.parametrize(
    ("batch", "epoch", "known", "verdict"),
    [
        (NumberedBatch(0, 7, 1), None, [], SequenceVerdict.APPEND),
        (NumberedBatch(0, 12, 2), 0, SIX, SequenceVerdict.APPEND),
        (NumberedBatch(0, 10, 2), 0, SIX, SequenceVerdict.DUPLICATE),
        (NumberedBatch(0, 2, 2), 0, SIX, SequenceVerdict.DUPLICATE),
        (NumberedBatch(0, 0, 2), 0, SIX, SequenceVerdict.OUT_OF_ORDER),
        (NumberedBatch(0, 10, 1), 0, SIX, SequenceVerdict.OUT_OF_ORDER),
        (NumberedBatch(0, 13, 1), 0, SIX, SequenceVerdict.OUT_OF_ORDER),
        (NumberedBatch(1, 0, 1), 0, SIX, SequenceVerdict.APPEND),
        (NumberedBatch(1, 12, 1), 0, SIX, SequenceVerdict.OUT_OF_ORDER),
        (NumberedBatch(0, 12, 2), 1, SIX, SequenceVerdict.FENCED),
        (NumberedBatch(0, 10, 2), 1, SIX, SequenceVerdict.FENCED),
        (NumberedBatch(1, 0, 1), 1, SIX, SequenceVerdict.APPEND),
        (NumberedBatch(0, 0, 1), 0, [NumberedBatch(0, MAX_SEQUENCE - 1, 2)], SequenceVerdict.APPEND),
        (NumberedBatch(0, 1, 1), 0, [NumberedBatch(0, MAX_SEQUENCE, 2)], SequenceVerdict.APPEND),
    ],
)
def test_what_becomes_of_a_batch(
    batch: NumberedBatch, epoch: int | None, known: list[NumberedBatch], verdict: SequenceVerdict
) -> None:
    assert judged(batch, epoch, known) is verdict


def test_sequence_numbers_wrap() -> None:
    assert NumberedBatch(0, MAX_SEQUENCE, 3).last_sequence == 1
    assert NumberedBatch(0, 5, 1).last_sequence == 5


@pytest.mark.parametrize(
    ("assigned", "kept"),
    [
        ((3, 30), [(0, 0), (1, 10), (2, 20), (3, 30)]),
        ((3, 20), [(0, 0), (1, 10), (3, 20)]),
        ((3, 15), [(0, 0), (1, 10), (3, 15)]),
        ((1, 25), [(0, 0), (1, 25)]),
        ((3, 0), [(3, 0)]),
    ],
)
def test_an_epoch_drops_what_it_contradicts(assigned: tuple[int, int], kept: list[tuple[int, int]]) -> None:
    cache = [EpochEntry(0, 0), EpochEntry(1, 10), EpochEntry(2, 20)]
    assign_epoch(cache, EpochEntry(*assigned))
    assert cache == [EpochEntry(*one) for one in kept]
