"""Several copies of the controller's log made into one: forks, gaps, majorities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.analysis.internal_topics.controller import MetadataCopy, add_copy, agree


def copy(node: int, *batches: tuple[int, int, int], size: int = 2) -> MetadataCopy:
    """A copy that holds batches (base offset, leader epoch, content) of `size` offsets each."""
    bases = np.array([base for base, _, _ in batches], np.int64)
    identities = np.array([(epoch << 32) | content for _, epoch, content in batches], np.int64)
    return MetadataCopy(node, bases, bases + size - 1, identities, max((epoch for _, epoch, _ in batches), default=-1))


SAME = [(0, 1, 7), (2, 1, 8), (4, 1, 9)]


def test_a_longer_copy_of_an_older_epoch_does_not_win() -> None:
    log = agree([copy(1, *SAME, (6, 1, 1), (8, 1, 2)), copy(2, *SAME, (6, 2, 3)), copy(3, *SAME)])
    assert (log.start_offset, log.end_offset, log.gaps) == (0, 8, [])
    assert log.agreed_ends == {1: 6, 2: 8, 3: 6}
    assert (log.identities >> 32).tolist() == [1, 1, 1, 2]
    assert log.committed_end([1, 2, 3]) == 6
    assert log.committed_end([2]) == 8
    assert log.committed_end([2, 3]) == 6


@pytest.mark.parametrize("voters", [None, [], [4, 5, 6], [1, 4, 5]])
def test_too_few_voters_copies_show_no_majority(voters: list[int] | None) -> None:
    assert agree([copy(1, *SAME)]).committed_end(voters) is None


@pytest.mark.parametrize(
    ("voters", "ends"),
    [
        ([1, 2, 3], (6, 6)),
        ([1, 2, 4], (6, 8)),
        ([1, 2, 3, 4], (6, 6)),
        ([1, 2, 3, 4, 5], (6, 8)),
        ([2, 4, 5], (None, None)),
        ([2, 4], (None, 8)),
        ([], (None, None)),
    ],
)
def test_what_a_majority_may_hold_of_which_some_copies_are_missing(voters: list[int], ends: tuple[int | None, int | None]) -> None:
    """A voter whose copy was not given may hold everything."""
    log = agree([copy(1, *SAME), copy(2, *SAME, (6, 2, 3)), copy(3, *SAME)])
    assert (log.committed_end(voters), log.possible_end(voters)) == ends


def test_what_one_copy_lost_another_fills_in() -> None:
    log = agree([copy(1, SAME[0], SAME[2], (6, 1, 1)), copy(2, SAME[0], SAME[1])])
    assert (log.base_offsets.tolist(), log.gaps, log.end_offset) == ([0, 2, 4, 6], [], 8)


def test_what_all_copies_lost_is_a_gap() -> None:
    log = agree([copy(1, SAME[0], (6, 1, 1)), copy(2, SAME[0], (6, 1, 1), (12, 1, 2))])
    assert log.gaps == [(2, 6), (8, 12)]


def test_nothing_is_taken_from_behind_a_fork() -> None:
    log = agree([copy(1, SAME[0], (2, 2, 1), (8, 2, 2)), copy(2, *SAME)])
    assert (log.base_offsets.tolist(), log.gaps) == ([0, 2, 8], [(4, 8)])


def test_equal_copies_share_their_memory() -> None:
    copies: list[MetadataCopy] = []
    for number, batches in enumerate((SAME[:2], SAME, SAME[1:], [*SAME, (6, 1, 1)], [(0, 1, 7), (2, 2, 3)], [])):
        add_copy(copies, copy(number, *batches))
    assert [metadata_copy.base_offsets.tolist() for metadata_copy in copies] == [
        [0, 2],
        [0, 2, 4],
        [2, 4],
        [0, 2, 4, 6],
        [0, 2],
        [],
    ]
    longest = copies[3].base_offsets
    assert [np.shares_memory(metadata_copy.base_offsets, longest) for metadata_copy in copies] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_empty_copies() -> None:
    assert agree([copy(1)]).end_offset == 0
    log = agree([copy(1), copy(2, *SAME)])
    assert (log.end_offset, log.agreed_ends) == (6, {1: 0, 2: 6})
    assert log.committed_end([1, 2]) == 0


@pytest.mark.properties
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 2)), min_size=1, max_size=4))
def test_copies_that_are_stretches_of_one_log_agree(cuts: list[tuple[int, int, int]]) -> None:
    whole = [(2 * at, 1 + at // 3, at) for at in range(6)]
    copies: list[MetadataCopy] = []
    for node, (a, b, _) in enumerate(cuts):
        add_copy(copies, copy(node, *whole[min(a, b) : max(a, b) + 1]))
    log = agree(copies)
    held = {batch for a, b, _ in cuts for batch in whole[min(a, b) : max(a, b) + 1]}
    assert log.base_offsets.tolist() == sorted(base for base, _, _ in held)
    assert log.end_offset == max(metadata_copy.end_offset for metadata_copy in copies)
    assert log.agreed_ends == {metadata_copy.node: metadata_copy.end_offset for metadata_copy in copies}
