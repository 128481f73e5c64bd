"""Ranges of offsets against sets of offsets."""

from itertools import pairwise

from hypothesis import given, strategies as st

from kafka_forensics.replication.offset_ranges import Span, joined, outside

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def offsets(spans: list[Span]) -> set[int]:
    return {offset for start, end in spans for offset in range(start, end)}


@given(SPANS, SPANS)
def test_ranges_say_what_sets_say(spans: list[Span], covered: list[Span]) -> None:
    assert offsets(joined(spans)) == offsets(spans)
    rest = outside(spans, covered)
    assert offsets(rest) == offsets(spans) - offsets(covered)
    for found in (joined(spans), rest):
        assert all(start < end for start, end in found)
        assert all(left[1] <= right[0] for left, right in pairwise(found))
