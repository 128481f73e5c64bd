"""The first batches of raised producer epochs: which they are, and that any cut of the log keeps them."""

import numpy as np
import pytest

from kafka_forensics.analysis.producers.producers import BUMPS_KEPT, EpochBump, EpochBumps
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, TRANSACTIONAL_MASK
from tests.support.segments import columns_of

BUMP = {BatchColumn.PRODUCER_ID: 7, BatchColumn.PRODUCER_EPOCH: 1, BatchColumn.BASE_SEQUENCE: 0}


def bumps(*rows: dict[BatchColumn, int]) -> list[EpochBump]:
    fold = EpochBumps()
    fold.step(columns_of(list(rows)))
    return fold.kept


def test_sequence_0_of_a_raised_epoch_is_kept() -> None:
    assert bumps({}, BUMP | {BatchColumn.BASE_OFFSET: 4, BatchColumn.LAST_OFFSET: 6}) == [EpochBump(7, 1, 4, 6)]


@pytest.mark.parametrize(
    "changed",
    [
        {BatchColumn.PRODUCER_EPOCH: 0},
        {BatchColumn.BASE_SEQUENCE: 3},
        {BatchColumn.ATTRIBUTES: TRANSACTIONAL_MASK},
        {BatchColumn.ATTRIBUTES: CONTROL_MASK},
        {BatchColumn.CRC_COMPUTED: 1},
    ],
)
def test_other_batches_are_not(changed: dict[BatchColumn, int]) -> None:
    assert bumps(BUMP | changed) == []


@pytest.mark.parametrize("cut", [0, 1, BUMPS_KEPT - 1, BUMPS_KEPT, BUMPS_KEPT + 5])
def test_any_cut_gives_the_first_ones(cut: int) -> None:
    columns = columns_of([BUMP | {BatchColumn.BASE_OFFSET: offset} for offset in range(BUMPS_KEPT + 5)])
    whole, left, right = EpochBumps(), EpochBumps(), EpochBumps()
    whole.step(columns)
    left.step(np.ascontiguousarray(columns[:, :cut]))
    right.step(np.ascontiguousarray(columns[:, cut:]))
    left.merge(right)
    assert left.kept == whole.kept
    assert [bump.base_offset for bump in whole.kept] == list(range(BUMPS_KEPT))
