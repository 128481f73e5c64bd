"""Where epochs begin in logs of which batches are missing: against the log as it was before."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.analysis.epochs import EpochsFold, epoch_starts
from kafka_forensics.model.batches import BatchColumn as Columns
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import epoch_at
from tests.support.segments import columns_of


def fold_of(batch_epochs: list[int], lost: set[int]) -> EpochsFold:
    """A log of one-offset batches of these epochs, without those at the lost offsets."""
    state = EpochsFold(0)
    kept = [(n, epoch) for n, epoch in enumerate(batch_epochs) if n not in lost]
    state.step(
        columns_of([{Columns.BASE_OFFSET: n, Columns.LAST_OFFSET: n, Columns.PARTITION_LEADER_EPOCH: epoch} for n, epoch in kept])
    )
    return state


def checkpoint_of(batch_epochs: list[int]) -> list[EpochEntry]:
    """What a broker writes of such a log."""
    return [
        EpochEntry(epoch, next(group)[0]) for epoch, group in itertools.groupby(enumerate(batch_epochs), key=lambda one: one[1])
    ]


@pytest.mark.properties
@given(st.lists(st.integers(0, 5), min_size=1, max_size=20).map(sorted), st.sets(st.integers(0, 19)))
def test_before_the_last_good_batch_every_offset_has_its_epoch(log: list[int], lost: set[int]) -> None:
    kept = [n for n in range(len(log)) if n not in lost]
    entries = epoch_starts(fold_of(log, lost), checkpoint_of(log), 0)
    assert [epoch_at(entries, offset) for offset in range(max(kept, default=-1) + 1)] == log[: max(kept, default=-1) + 1]


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        (None, [(1, 0), (4, 6)]),
        ([(1, 0), (4, 3)], [(1, 0), (4, 3)]),
        ([(1, 0), (2, 3), (4, 5)], [(1, 0), (2, 3), (4, 5)]),
        ([(1, 0), (2, 3), (3, 3), (4, 6)], [(1, 0), (3, 3), (4, 6)]),
        ([(1, 0), (4, 2)], [(1, 0), (4, 6)]),
        ([(1, 0), (5, 4)], [(1, 0), (4, 6)]),
        ([(4, 3), (1, 4)], [(1, 0), (4, 6)]),
        ([(0, 0), (1, 0), (4, 3)], [(1, 0), (4, 3)]),
        ([(1, 0), (1, 2), (4, 3)], [(1, 0), (4, 6)]),
    ],
    ids=[
        "none",
        "shifted",
        "an epoch lost",
        "one that wrote nothing",
        "against a batch",
        "later than the next",
        "order",
        "first",
        "an epoch twice",
    ],
)
def test_a_checkpoint_is_believed_where_no_good_batch_is(
    checkpoint: list[tuple[int, int]] | None, expected: list[tuple[int, int]]
) -> None:
    """A log of epochs 1 1 1 . . . 4 4."""
    entries = None if checkpoint is None else [EpochEntry(*one) for one in checkpoint]
    epoch_entries = epoch_starts(fold_of([1, 1, 1, 4, 4, 4, 4, 4], {3, 4, 5}), entries, 0)
    assert [(entry.leader_epoch, entry.start_offset) for entry in epoch_entries] == expected


def test_in_front_of_the_first_batch_it_is_believed_from_the_log_start_on() -> None:
    fold = fold_of([1, 1, 1, 4, 4, 4], {0, 1, 2, 3})
    checkpoint = [EpochEntry(1, 0), EpochEntry(4, 3)]
    assert epoch_starts(fold, checkpoint, 0) == checkpoint
    assert epoch_starts(fold, checkpoint, 3) == checkpoint[1:]
    assert epoch_starts(fold, checkpoint, 4) == [EpochEntry(4, 4)]
