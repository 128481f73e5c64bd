"""Transactions paired many batches at a time are those of a walk from batch to batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafka_forensics.analysis.transactions import Pairing, TransactionColumn, pairing
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, DELETE_HORIZON_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK

BATCH = st.fixed_dictionaries(
    {
        BatchColumn.PRODUCER_ID: st.sampled_from([0, 1, 2, 5000, 2**62]),
        BatchColumn.PRODUCER_EPOCH: st.integers(0, 3),
        BatchColumn.ATTRIBUTES: st.sampled_from(
            [
                TRANSACTIONAL_MASK,
                TRANSACTIONAL_MASK | TIMESTAMP_TYPE_MASK,
                TRANSACTIONAL_MASK | DELETE_HORIZON_MASK,
                TRANSACTIONAL_MASK | CONTROL_MASK,
                CONTROL_MASK,
            ]
        ),
        BatchColumn.LAST_OFFSET_DELTA: st.integers(0, 9),
        BatchColumn.BASE_TIMESTAMP: st.integers(-1, 2**41),
        BatchColumn.MAX_TIMESTAMP: st.integers(-1, 2**41),
        BatchColumn.CONTROL_RECORD_TYPE: st.sampled_from([-1, 0, 1]),
        BatchColumn.COORDINATOR_EPOCH: st.integers(-1, 3),
    }
)


def columns_of(batches: list[dict[BatchColumn, int]]) -> NDArray[np.int64]:
    """Such batches one behind the other, as columns by BatchColumn."""
    columns = np.zeros((BATCH_COLUMNS, len(batches)), np.int64)
    offset = 0
    for row, batch in enumerate(batches):
        for column, value in batch.items():
            columns[column, row] = value
        columns[BatchColumn.BASE_OFFSET, row] = offset
        columns[BatchColumn.LAST_OFFSET, row] = offset + batch[BatchColumn.LAST_OFFSET_DELTA]
        offset += batch[BatchColumn.LAST_OFFSET_DELTA] + 1
    return columns


def walked(columns: NDArray[np.int64]) -> tuple[list[list[int]], list[list[int]]]:
    """(ended ones, open ones) as lists: the numbers of the data, then of the marker of those that ended."""
    opened: dict[int, list[int]] = {}
    ended = []
    for batch in columns.T.tolist():
        producer_id, offset, last = batch[BatchColumn.PRODUCER_ID], batch[BatchColumn.BASE_OFFSET], batch[BatchColumn.LAST_OFFSET]
        if batch[BatchColumn.ATTRIBUTES] & CONTROL_MASK:
            epoch, time = batch[BatchColumn.PRODUCER_EPOCH], batch[BatchColumn.MAX_TIMESTAMP]
            data = opened.pop(producer_id, [producer_id, epoch])
            marker = [batch[BatchColumn.CONTROL_RECORD_TYPE], offset, time, epoch, batch[BatchColumn.COORDINATOR_EPOCH]]
            ended.append([*data, *marker])
            continue
        by_maximum = batch[BatchColumn.ATTRIBUTES] & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK)
        time = batch[BatchColumn.MAX_TIMESTAMP if by_maximum else BatchColumn.BASE_TIMESTAMP]
        span = opened.setdefault(producer_id, [producer_id, batch[BatchColumn.PRODUCER_EPOCH], offset, time, 0, 0, 0, 0])
        span[4:6] = last, batch[BatchColumn.MAX_TIMESTAMP]
        span[6] += 1
        span[7] += last - offset + 1
    return ended, sorted(opened.values(), key=lambda span: (span[2], span[0]))


def plain(paired: NDArray[np.int64], *, ended: bool) -> list[list[int]]:
    """Only what the numbers mean."""
    answer = []
    for numbers in paired.T.tolist():
        data = numbers[: TransactionColumn.MARKER_TYPE] if numbers[TransactionColumn.BATCHES] else numbers[:2]
        answer.append([*data, *(numbers[TransactionColumn.MARKER_TYPE :] if ended else [])])
    return answer


@given(st.lists(BATCH, max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_pairing_is_the_walk_however_it_is_cut(batches: list[dict[BatchColumn, int]], cuts: list[int]) -> None:
    columns, paired = columns_of(batches), Pairing()
    ended, still_open = walked(columns)
    parts = np.split(columns, sorted(min(cut, len(batches)) for cut in cuts), axis=1)
    assert [transaction for part in parts for transaction in plain(paired.take(part), ended=True)] == ended
    assert plain(paired.still_open(), ended=False) == still_open


def test_only_so_many_are_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones; what ends of the others afterwards is a marker that ended nothing."""
    monkeypatch.setattr(pairing, "MAX_OPEN", 2)
    data = dict.fromkeys(BatchColumn, 0) | {BatchColumn.ATTRIBUTES: TRANSACTIONAL_MASK}
    columns = columns_of([data | {BatchColumn.PRODUCER_ID: producer_id} for producer_id in (9, 8, 7)])
    paired = Pairing()
    assert paired.take(columns).shape[1] == 0
    assert paired.still_open()[TransactionColumn.PRODUCER_ID].tolist() == [9, 8]
    marker = columns_of([data | {BatchColumn.ATTRIBUTES: CONTROL_MASK, BatchColumn.PRODUCER_ID: 7}])
    [of_nothing] = plain(paired.take(marker), ended=True)
    assert len(of_nothing) == 2 + len(TransactionColumn) - TransactionColumn.MARKER_TYPE
