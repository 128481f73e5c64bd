"""Pictures as wide as their page: places are in percent of the width, heights in pixels, and texts are as large at any width."""

import textwrap
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

NARROWEST: Final = 340
"""Width in pixels at which all texts of a picture fit."""
_LETTER: Final = 6.3
"""Width of a letter in pixels, a little more than the average."""
_COLUMNS: Final = 56
"""Letters of a line of text."""
_NEAREST: Final = 1.75
"""Least distance in percent of two marks that a reader can distinguish."""
_MAX_MARKS: Final = 24
LINE: Final = 17
"""Height of a line of text."""


class Scale:
    """Places numbers from 0 to 100 percent.

    `marks` are numbers that should stay distinguishable, the most important first; only the first few are. If marks would be too
    close, distances between marks are not to scale (`is_true` is False), but the order is kept, and the scale between two marks.
    """

    def __init__(self, marks: Iterable[int]) -> None:
        distinct = list(dict.fromkeys(marks)) or [0]
        low, high = min(distinct), max(distinct)
        self._points = sorted({low, high, *distinct[:_MAX_MARKS]})
        if low == high:
            self._points = [low, low + 1]
        gaps = [after - before for before, after in zip(self._points, self._points[1:], strict=False)]
        span = self._points[-1] - self._points[0]
        widths = [100 * (gap / span) for gap in gaps]
        self.is_true = min(widths) >= _NEAREST
        if not self.is_true:
            least = min(_NEAREST * 2, 100 / len(gaps))
            widths = [least + (100 - least * len(gaps)) * (gap / span) for gap in gaps]
        self._places = [0.0]
        for width in widths:
            self._places.append(self._places[-1] + width)

    def place(self, number: int) -> float:
        """The place of `number` in percent; outside of all marks, that of the nearest mark."""
        index = bisect_right(self._points, number) - 1
        if index < 0:
            return self._places[0]
        if index >= len(self._points) - 1:
            return self._places[-1]
        part = (number - self._points[index]) / (self._points[index + 1] - self._points[index])
        return self._places[index] + part * (self._places[index + 1] - self._places[index])

    def span(self, span: tuple[int, int]) -> tuple[float, float]:
        """The places of both ends of a range."""
        return self.place(span[0]), self.place(span[1])

    def ticks(self) -> list[tuple[float, int]]:
        """(place, number) of the marks whose numbers fit: the first and the last, and those that fit between them."""
        first, *between, last = zip(self._places, self._points, strict=True)
        shown = [first]
        for mark in between:
            if _fit_side_by_side(shown[-1], mark) and _fit_side_by_side(mark, last):
                shown.append(mark)
        return [*shown, last]


def _fit_side_by_side(left: tuple[float, int], right: tuple[float, int]) -> bool:
    letters = len(f"{left[1]:,}") + len(f"{right[1]:,}") + 1.5
    return (right[0] - left[0]) * NARROWEST / 100 >= letters * _LETTER


class Bar(NamedTuple):
    """A bar from `x1` to `x2` around the height `y`."""

    x1: float
    x2: float
    y: int


class Tick(NamedTuple):
    """A vertical line."""

    x: float
    y1: int
    y2: int


class Label(NamedTuple):
    """Text at a place."""

    x: float
    y: int
    text: str
    anchor: Literal["start", "middle", "end"] = "start"


class Picture(Struct):
    """Shapes by style; `label` describes them for a screen reader, `notes` say what they do not show."""

    label: str
    height: int = 0
    shapes: Mapping[str, list[Bar | Tick | Label]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)

    def layers(self) -> list[tuple[str, list[Bar | Tick | Label]]]:
        """Shapes by style, the later above the earlier: texts above all others."""
        return sorted(self.shapes.items(), key=lambda item: isinstance(next(iter(item[1]), None), Label))

    def bar(self, style: str, span: tuple[float, float], y: int) -> None:
        """A bar, wide enough to be seen."""
        left = min(span[0], 99.5)
        self.shapes[style].append(Bar(left, max(span[1], left + 0.5), y))

    def tick(self, style: str, x: float, y: tuple[int, int]) -> None:
        """A vertical line from `y[0]` to `y[1]`."""
        self.shapes[style].append(Tick(x, *y))

    def write(self, style: str, text: str) -> None:
        """Text in as many lines as it needs, below all that is there."""
        for line in textwrap.wrap(text, _COLUMNS):
            self.height += LINE
            self.shapes[style].append(Label(0, self.height - 4, line))

    def label_at(self, style: str, x: float, y: int, text: str) -> None:
        """Text beside a vertical line, on the side where it fits."""
        width, left = len(text) * _LETTER, x * NARROWEST / 100
        anchor: Literal["start", "end"] = "start" if left + width < NARROWEST or left < width else "end"
        self.shapes[style].append(Label(x if left + width < NARROWEST or anchor == "end" else 0, y, text, anchor))

    def axis(self, ticks: Iterable[tuple[float, str]]) -> None:
        """A horizontal axis with texts at these places, below all that is there."""
        self.bar("ax", (0, 100), self.height)
        for x, text in ticks:
            self.tick("ax", x, (self.height, self.height + 4))
            half = 50 * len(text) * _LETTER / NARROWEST
            anchor: Literal["start", "middle", "end"] = "start" if x < half else "end" if x > 100 - half else "middle"
            self.shapes["tk"].append(Label(x, self.height + LINE, text, anchor))
        self.height += LINE + 6
