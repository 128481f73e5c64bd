"""Scales keep order and a minimum distance of marks; texts of a picture fit a narrow screen."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.report.page import svg
from kafka_forensics.report.picture import Bar, Label, Picture, Scale
from kafka_forensics.report.templating import template_text

LARGEST = 2**63 - 1
NUMBERS = st.integers(-(2**63), LARGEST)


@given(st.lists(NUMBERS, max_size=40), st.lists(NUMBERS, max_size=20))
def test_a_scale_keeps_the_order_of_all_numbers_and_their_bounds(marks: list[int], others: list[int]) -> None:
    scale = Scale(marks)
    numbers = sorted({*marks, *others})
    places = [scale.place(number) for number in numbers]
    assert all(left <= right for left, right in pairwise(places))
    assert all(0 <= place <= 100 + 1e-6 for place in places)


@given(st.lists(NUMBERS, min_size=2, max_size=20, unique=True))
def test_marks_of_a_scale_keep_a_minimum_distance(marks: list[int]) -> None:
    places = sorted(map(Scale(marks).place, marks))
    assert min(right - left for left, right in pairwise(places)) >= 1.74


@pytest.mark.parametrize(
    ("marks", "is_true"), [([0, 300, 345, 370], True), ([0, 10**9, 10**9 + 70], False), ([7], True), ([], True)]
)
def test_a_scale_says_whether_distances_are_to_scale(marks: list[int], *, is_true: bool) -> None:
    assert Scale(marks).is_true is is_true


def test_a_picture_is_as_wide_as_its_page() -> None:
    picture = Picture("two bars & a line")
    picture.bar("kept", (0, 81.081), 20)
    picture.bar("lost", (81.081, 81.0811), 20)
    picture.tick("fork", 81.081, (0, 30))
    assert picture.shapes["lost"] == [Bar(81.081, 81.581, 20)]  # wide enough to be seen
    text = str(svg(picture))
    assert 'width="100%"' in text
    assert "viewBox" not in text
    assert 'aria-label="two bars &amp; a line"' in text
    assert '<g class="kept"><line x1="0%" x2="81.08%" y1="20" y2="20"/></g>' in text
    assert '<g class="fork"><line x1="81.08%" x2="81.08%" y1="0" y2="30"/></g>' in text


def test_long_texts_have_several_lines() -> None:
    picture = Picture("")
    picture.write("nm", "elect 2: brokers 1 and 3 lose 1,210–1,335, 126 records (unclean, recommended)")
    texts = [shape.text for shape in picture.shapes["nm"] if isinstance(shape, Label)]
    assert len(texts) == 2
    assert picture.height == 34


@pytest.mark.parametrize(("x", "place", "anchor"), [(0.0, 0.0, "start"), (40.0, 40.0, "start"), (99.0, 99.0, "end")])
def test_labels_stand_on_the_side_where_they_fit(x: float, place: float, anchor: str) -> None:
    picture = Picture("")
    picture.label_at("hwt", x, 12, "high watermark ≥ 370")
    assert picture.shapes["hwt"] == [(place, 12, "high watermark ≥ 370", anchor)]


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb` (WCAG 2)."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("pair", ["kept bg", "lost bg", "new bg", "kept lost", "mark bg"])
def test_colours_differ_in_lightness(scheme: int, pair: str) -> None:
    colours = dict(
        re.findall(r"--(\w+):(#[0-9a-f]{6})", template_text("picture.css").splitlines()[scheme].replace("#fff;", "#ffffff;"))
    )
    darker, lighter = sorted(luminance(colours[name]) for name in pair.split())
    assert (lighter + 0.05) / (darker + 0.05) >= 3  # WCAG AA of graphics
