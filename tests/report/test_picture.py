"""Scales keep order and a minimum distance of marks; pictures are paths in integer units."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.report.picture import LEFT, RIGHT, Picture, Scale

LARGEST = 2**63 - 1
NUMBERS = st.integers(-(2**63), LARGEST)


@given(st.lists(NUMBERS, max_size=40), st.lists(NUMBERS, max_size=20))
def test_a_scale_keeps_the_order_of_all_numbers_and_their_bounds(marks: list[int], others: list[int]) -> None:
    scale = Scale(marks)
    numbers = sorted({*marks, *others})
    places = [scale.place(number) for number in numbers]
    assert all(left <= right for left, right in pairwise(places))
    assert all(LEFT <= place <= RIGHT + 1e-6 for place in places)


@given(st.lists(NUMBERS, min_size=2, max_size=20, unique=True))
def test_marks_of_a_scale_keep_a_minimum_distance(marks: list[int]) -> None:
    places = sorted(map(Scale(marks).place, marks))
    assert min(right - left for left, right in pairwise(places)) >= 13.9


@pytest.mark.parametrize(
    ("marks", "is_true"), [([0, 300, 345, 370], True), ([0, 10**9, 10**9 + 70], False), ([7], True), ([], True)]
)
def test_a_scale_says_whether_distances_are_to_scale(marks: list[int], *, is_true: bool) -> None:
    assert Scale(marks).is_true is is_true


def test_boxes_of_one_style_are_one_path_and_upper_styles_follow() -> None:
    picture = Picture("")
    picture.box("dm", (200, 300), 10, 20)
    picture.box("e1", (132, 400.4), 10, 20)
    picture.box("dm", (310, 310.2), 40, 20, "damaged")
    picture.box("dm", (320, 330), 40, 20)
    picture.upright("hw", 500.6, (0, 30))
    assert list(picture.paths()) == [
        ("e1", "", "M132 10h268v20H132z"),
        ("dm", "damaged", "M310 40h2v20H310z"),
        ("dm", "", "M200 10h100v20H200zM320 40h10v20H320z"),
        ("hw", "", "M501 0v30"),
    ]
