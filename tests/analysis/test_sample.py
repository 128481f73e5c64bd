"""Samples keep the first and last items of a sequence and its exact count, for any cut."""

from hypothesis import given, strategies as st

from kafka_forensics.analysis.bounds import KEPT_AT_EACH_END, FirstAndLast
from tests.support.strategies import merge_randomly, random_ranges


class Mergeable(FirstAndLast[int]):
    """A sample with a fold's name for `extend`."""

    __slots__ = ()

    def merge(self, right: "Mergeable") -> None:
        self.extend(right)


@given(st.integers(0, 120), st.data())
def test_any_cut_and_association_keeps_the_ends(count: int, draw: st.DataObject) -> None:
    whole = merge_randomly(draw, [Mergeable(range(low, high)) for low, high in random_ranges(draw, count, 12)])
    ends = KEPT_AT_EACH_END
    assert whole.count == count
    assert list(whole) == (list(range(count)) if count <= 2 * ends else [*range(ends), *range(count - ends, count)])
    assert len(whole) == min(count, 2 * ends)


def test_extending_does_not_change_the_right_sample() -> None:
    left, right = FirstAndLast([1, 2]), FirstAndLast(range(100))
    kept = list(right)
    left.extend(right)
    left.append(7)
    assert (list(right), right.count) == (kept, 100)
