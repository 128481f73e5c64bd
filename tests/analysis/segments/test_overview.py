"""The facts of a chunk equal naive ones, and no fold gives another answer because of them."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from kafka_forensics.analysis.epochs import EpochsFold
from kafka_forensics.analysis.producers.producers import ProducersFold
from kafka_forensics.analysis.replica import BlockDigests
from kafka_forensics.analysis.segments.continuity import ContinuityFold
from kafka_forensics.analysis.segments.framing import FramingFold, chunk_facts
from kafka_forensics.analysis.segments.indexes import IndexFold
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchChunk, BatchColumn, Damage

TOP = 2**63 - 1
EDGES = st.sampled_from([-TOP - 1, -1, 0, 1, TOP - 1, TOP])


@st.composite
def chunks(draw: st.DrawFn) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """A mostly sound chunk: sometimes an offset jump, an extreme value, a bad CRC, another epoch or a producer."""
    rows = draw(st.integers(1, 8))
    columns = np.zeros((BATCH_COLUMNS, rows), np.int64)
    offset, position, epoch = draw(st.one_of(st.integers(0, 200_000), EDGES)), draw(st.integers(0, 1000)), draw(st.integers(-1, 3))
    rarely = st.integers(0, 19).map(lambda number: number == 0)
    for row in range(rows):
        if draw(rarely):
            offset = draw(st.one_of(st.integers(0, 200_000), EDGES))
        epoch += draw(rarely)
        delta = draw(st.integers(0, 70_000))
        last = draw(EDGES) if draw(rarely) else min(offset + delta, TOP)
        size = draw(st.integers(61, 90))
        values = {
            BatchColumn.POSITION: position,
            BatchColumn.SIZE_IN_BYTES: size,
            BatchColumn.BASE_OFFSET: offset,
            BatchColumn.LAST_OFFSET: last,
            BatchColumn.LAST_OFFSET_DELTA: delta,
            BatchColumn.PARTITION_LEADER_EPOCH: epoch,
            BatchColumn.MAGIC: 2,
            BatchColumn.ATTRIBUTES: draw(st.sampled_from([0, 0, 0, 3, 8, 0x20, 0x48])),
            BatchColumn.CRC: draw(rarely),
            BatchColumn.BASE_TIMESTAMP: draw(st.integers(-9, 9)),
            BatchColumn.MAX_TIMESTAMP: draw(st.integers(-1, 5)),
            BatchColumn.PRODUCER_ID: 7 if draw(rarely) else -1,
            BatchColumn.PRODUCER_EPOCH: draw(st.integers(100, 199)),
            BatchColumn.BASE_SEQUENCE: -1,
            BatchColumn.RECORDS_COUNT: draw(st.sampled_from([1, delta + 1, -1, 2**31 - 1])),
            BatchColumn.HASH_HIGH: draw(EDGES),
        }
        for column, value in values.items():
            columns[column, row] = value
        offset, position = min(last + 1, TOP), position + size
    return columns


def naive(columns: "np.ndarray[Any, np.dtype[np.int64]]") -> tuple[int, ...]:
    rows = [{column: int(columns[column, row]) for column in BatchColumn} for row in range(columns.shape[1])]
    good = [row for row in rows if row[BatchColumn.CRC] == row[BatchColumn.CRC_COMPUTED]]
    joins = [left[BatchColumn.LAST_OFFSET] + 1 == right[BatchColumn.BASE_OFFSET] for left, right in itertools.pairwise(rows)]
    possible = [0 <= row[BatchColumn.BASE_OFFSET] <= row[BatchColumn.LAST_OFFSET] < TOP for row in rows]
    wrong_counts = [
        row[BatchColumn.RECORDS_COUNT] < 0
        or 61 + 7 * row[BatchColumn.RECORDS_COUNT] > row[BatchColumn.SIZE_IN_BYTES]
        or row[BatchColumn.RECORDS_COUNT] != row[BatchColumn.LAST_OFFSET_DELTA] + 1
        for row in good
    ]
    return (
        int(not (len(good) == len(rows) and all(joins) and all(possible))),
        sum(row[BatchColumn.PARTITION_LEADER_EPOCH] != rows[0][BatchColumn.PARTITION_LEADER_EPOCH] for row in rows),
        sum(row[BatchColumn.PRODUCER_ID] >= 0 for row in rows),
        sum(min(max(row[BatchColumn.RECORDS_COUNT], 0), 1 << 20) for row in good),
        max((row[BatchColumn.MAX_TIMESTAMP] for row in good), default=-1),
        sum(wrong_counts),
        max(row[BatchColumn.ATTRIBUTES] & 0x28 for row in rows) != 0,
    )


@given(chunks())
def test_the_chunk_facts_equal_naive_ones(columns: "np.ndarray[Any, np.dtype[np.int64]]") -> None:
    rough, changes, producers, *counts = naive(columns)
    assert chunk_facts(columns) == (rough == 0, changes == 0, producers > 0, *counts)


def state_of(fold: Any) -> Any:
    """The state of a fold, as values that compare."""
    if isinstance(fold, np.ndarray):
        return fold.tolist()
    if isinstance(fold, list | tuple):
        return [state_of(part) for part in fold]
    if isinstance(fold, dict):
        return {key: state_of(value) for key, value in fold.items()}
    names = [*getattr(fold, "__slots__", ()), *getattr(fold, "__dict__", {})]
    return {name: state_of(getattr(fold, name)) for name in names if name != "keys"} if names else fold


@settings(max_examples=25)
@given(st.lists(chunks(), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_folds_give_the_same_on_the_shorter_path(parts: list[Any], compacted: bool, damaged: bool) -> None:
    def folds() -> list[Any]:
        continuity = ContinuityFold(0, compacted=compacted)
        return [continuity, EpochsFold(0), BlockDigests(), ProducersFold(0), IndexFold(0, None, None)]

    short, plain = folds(), folds()
    framings = FramingFold(0), FramingFold(0)
    for columns in parts:
        damage = [Damage("FRAMING_LOST", int(columns[BatchColumn.POSITION, -1]) + 61, 10)] if damaged else []
        facts = chunk_facts(columns)
        for states, framing, chunk_facts_used in zip((short, plain), framings, (facts, facts._replace(joined=False)), strict=True):
            continuity, *others = states
            continuity.step(columns, damage, chunk_facts_used)
            for fold in others:
                fold.step(columns, chunk_facts_used)
            framing.step(BatchChunk(columns, damage, 0, 0, 0), chunk_facts_used)
    assert [state_of(fold) for fold in (*short, framings[0])] == [state_of(fold) for fold in (*plain, framings[1])]
