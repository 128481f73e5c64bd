"""Digests of blocks: sums against naive ones, any cut, hostile offsets, and the ranges to read again."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis import replica
from kafka_forensics.analysis.replica import BlockDigests, differing_blocks
from kafka_forensics.model.batches import BatchColumn
from tests.support.segments import add_batches, columns_of
from tests.support.strategies import fold_in_parts

INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.one_of(st.integers(0, 10**6), st.sampled_from([-(2**63), -1, 0, 65535, 65536, 2**40, 2**62, 2**63 - 1]))
BATCHES = st.lists(st.tuples(OFFSETS, INT64, INT64), max_size=14)
BLOCK = 1 << 16

Batch = tuple[int, int, int]


def rows(batches: list[Batch]) -> list[dict[BatchColumn, int]]:
    names = (BatchColumn.LAST_OFFSET, BatchColumn.HASH_HIGH, BatchColumn.HASH_LOW)
    return [dict(zip(names, batch, strict=True)) for batch in batches]


def digest_of(batches: list[Batch]) -> BlockDigests:
    state = BlockDigests()
    add_batches(state, columns_of(rows(batches)))
    return state


def plain(batches: list[Batch], shift: int) -> dict[int, tuple[int, ...]]:
    """Block → (batches, sums of the four parts of their hashes), computed batch by batch."""
    sums: dict[int, Counter[int]] = {}
    for last, high, low in batches:
        parts = (1, high & 0xFFFFFFFF, high >> 32 & 0xFFFFFFFF, low & 0xFFFFFFFF, low >> 32 & 0xFFFFFFFF)
        block = sums.setdefault(max(last, 0) >> shift, Counter())
        for index, part in enumerate(parts):
            block[index] += part
    return {block: tuple(counts[index] for index in range(5)) for block, counts in sums.items()}


def as_dictionary(state: BlockDigests) -> dict[int, tuple[int, ...]]:
    return {state.first_block + n: tuple(row) for n, row in enumerate(state.sums.tolist()) if row[0]}


@given(BATCHES, st.sampled_from([1, 2, 8, 1 << 10]), st.data())
def test_any_cut_gives_the_naive_sums(batches: list[Batch], most: int, draw: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "MAX_BLOCKS", most)
        columns = columns_of(rows(batches))
        state = fold_in_parts(draw, BlockDigests, lambda fold, a, b: add_batches(fold, columns[:, a:b]), len(batches))
        whole = digest_of(batches)
    assert (state.shift, state.first_block) == (whole.shift, whole.first_block)
    assert np.array_equal(state.sums, whole.sums)
    assert as_dictionary(state) == plain(batches, state.shift)
    assert len(state.sums) <= most


@given(BATCHES)
def test_blocks_are_no_coarser_than_necessary(batches: list[Batch]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "MAX_BLOCKS", 64)
        state = digest_of(batches)
    last = [max(batch[0], 0) for batch in batches]
    if state.shift > replica.FIRST_SHIFT:
        finer = state.shift - 1
        assert (max(last) >> finer) - (min(last) >> finer) + 1 > 64


@given(BATCHES, st.integers(16, 64))
def test_coarser_blocks_have_the_same_sums(batches: list[Batch], shift: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "MAX_BLOCKS", 64)
        state = digest_of(batches)
    before = state.shift
    state.coarsen(shift)
    assert state.shift == max(shift, before)
    assert as_dictionary(state) == plain(batches, state.shift)


def test_a_step_does_not_change_the_chunk() -> None:
    columns = columns_of(rows([(-5, 1, 2), (7, 3, 4)]))
    before = columns.copy()
    add_batches(BlockDigests(), columns)
    assert np.array_equal(columns, before)


@given(
    st.lists(st.tuples(st.integers(0, 12 * BLOCK), st.integers(0, 3), st.just(0)), max_size=12),
    st.lists(st.tuples(st.integers(0, 12 * BLOCK), st.integers(0, 3), st.just(0)), max_size=12),
    st.integers(0, 12 * BLOCK),
    st.integers(0, 12 * BLOCK),
    st.sampled_from([4, 1 << 18]),
)
def test_ranges_to_read_again_contain_all_differing_blocks(
    ours: list[Batch], theirs: list[Batch], start: int, end: int, most: int
) -> None:
    """The ranges contain every block that differs, and no other."""
    common = [(last, 9, 9) for last in range(0, 12 * BLOCK, BLOCK // 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "MAX_BLOCKS", most)
        left, right = digest_of(common + ours), digest_of(common + theirs)
        ranges = differing_blocks(left, right, start, end)
    shift = left.shift
    assert shift == right.shift
    covered = [block for low, high in ranges for block in range(low >> shift, (high - 1 >> shift) + 1)]
    assert len(covered) == len(set(covered))
    assert all(start <= low < high <= end for low, high in ranges)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))
    if start >= end:
        assert ranges == []
        return
    mine, other = plain(common + ours, shift), plain(common + theirs, shift)
    for block in range(start >> shift, (end - 1 >> shift) + 1):
        assert (block in covered) is (mine.get(block) != other.get(block))


def test_digests_are_compared_in_blocks_of_the_coarser_one() -> None:
    near = [(last, 5, 6) for last in range(0, 4 * BLOCK, BLOCK)]
    left, right = digest_of(near), digest_of([*near, (2**62, 1, 1)])
    assert left.shift < right.shift
    assert differing_blocks(left, right, 0, 1 << right.shift) == []
    changed = digest_of([(0, 5, 7), *near[1:], (2**62, 1, 1)])
    assert differing_blocks(digest_of(near), changed, 0, 1 << right.shift) == [(0, 1 << right.shift)]


@pytest.mark.parametrize(("start", "end"), [(0, 2**63 - 1), (2**40, 2**62), (0, 2**63)])
def test_huge_offsets_need_little_memory(start: int, end: int) -> None:
    """Names of empty segments may claim any offsets."""
    rims = differing_blocks(BlockDigests(), BlockDigests(), start, end)
    assert len(rims) <= 2
    assert all(start <= low < high <= end for low, high in rims)
    left, right = digest_of([(7, 1, 1)]), digest_of([(7, 1, 2)])
    if start == 0:
        ((low, high), *_) = differing_blocks(left, right, start, end)
        assert low == 0 < high
