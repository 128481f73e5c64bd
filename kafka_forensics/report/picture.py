"""Pictures as lists of shapes, and scales that keep close marks distinguishable; a template makes SVG of them."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kafka_forensics.report.words import shown

WIDTH: Final = 960
LEFT: Final = 132
"""Where lanes begin, after their names."""
RIGHT: Final = 936
_NEAREST: Final = 14.0
"""Least distance of two marks that a reader can distinguish."""
_MOST_MARKS: Final = 24
_LABEL_UNITS: Final = 6.6
"""Width of a letter, a little more than the average."""
_NAME_UNITS: Final = 8.0
"""Width of a letter of a lane's name, which is bold."""


class Scale:
    """Places numbers from left to right.

    `marks` are numbers that should stay distinguishable, the most important first; only the first few are. If marks would be too
    close, distances between marks are not to scale (`is_true` is False), but the order is kept, and the scale between two marks.
    """

    def __init__(self, marks: Iterable[int]) -> None:
        distinct = list(dict.fromkeys(marks)) or [0]
        low, high = min(distinct), max(distinct)
        self._points = sorted({low, high, *distinct[:_MOST_MARKS]})
        if low == high:
            self._points = [low, low + 1]
        gaps = [after - before for before, after in zip(self._points, self._points[1:], strict=False)]
        span, room = self._points[-1] - self._points[0], RIGHT - LEFT
        widths = [room * (gap / span) for gap in gaps]
        self.is_true = min(widths) >= _NEAREST
        if not self.is_true:
            least = min(_NEAREST * 2, room / len(gaps))
            widths = [least + (room - least * len(gaps)) * (gap / span) for gap in gaps]
        self._places = [float(LEFT)]
        for width in widths:
            self._places.append(self._places[-1] + width)

    def place(self, number: int) -> float:
        """The x coordinate of `number`; outside of all marks, that of the nearest mark."""
        index = bisect_right(self._points, number) - 1
        if index < 0:
            return self._places[0]
        if index >= len(self._points) - 1:
            return self._places[-1]
        part = (number - self._points[index]) / (self._points[index + 1] - self._points[index])
        return self._places[index] + part * (self._places[index + 1] - self._places[index])

    def span(self, span: tuple[int, int]) -> tuple[float, float]:
        """The x coordinates of both ends of a range."""
        return self.place(span[0]), self.place(span[1])

    def ticks(self) -> list[tuple[float, int]]:
        """(x, number) of the marks whose numbers fit: the first and the last, and those that fit between them."""
        first, *between, last = zip(self._places, self._points, strict=True)
        shown = [first]
        for mark in between:
            if _fit_side_by_side(shown[-1], mark) and _fit_side_by_side(mark, last):
                shown.append(mark)
        return [*shown, last] if _fit_side_by_side(shown[-1], last) else shown


def _fit_side_by_side(left: tuple[float, int], right: tuple[float, int]) -> bool:
    letters = (len(str(left[1])) + len(str(right[1]))) / 2 + 1.5
    return right[0] - left[0] >= letters * _LABEL_UNITS


_BELOW: Final = frozenset({"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "en", "og"})
"""Styles of boxes that are drawn below all others."""
_ANCHORS: Final = {"nm": "end", "in": "middle", "tk": "middle"}
"""The usual anchor of texts by style; "start" for other styles."""


class Rect(NamedTuple):
    """A box of a style; `title` is its tooltip."""

    style: str
    x: float
    y: float
    width: float
    height: float
    title: str = ""


class Label(NamedTuple):
    """Text at a point."""

    style: str
    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"


class Line(NamedTuple):
    """A horizontal or vertical line."""

    style: str
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(slots=True)
class Picture:
    """Shapes, the later above the earlier; `label` describes them for a screen reader, `notes` say what they do not show."""

    label: str
    height: float = 0
    rects: list[Rect] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    texts: list[Label] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def paths(self) -> Iterator[tuple[str, str, str]]:
        """(style, title, path) of all boxes and then of all lines; those of one style without a title are one path."""
        for is_below in (True, False):
            boxes: defaultdict[str, str] = defaultdict(str)
            for rect in self.rects:
                if (rect.style in _BELOW) is is_below and rect.title:
                    yield rect.style, rect.title, _outline(rect)
                elif (rect.style in _BELOW) is is_below:
                    boxes[rect.style] += _outline(rect)
            yield from ((style, "", path) for style, path in boxes.items())
        lines: defaultdict[str, str] = defaultdict(str)
        for style, *points in self.lines:
            x1, y1, x2, y2 = map(round, points)
            lines[style] += f"M{x1} {y1}" + (f"h{x2 - x1}" if points[1] == points[3] else f"v{y2 - y1}")
        yield from ((style, "", path) for style, path in lines.items())

    def texts_by_style(self) -> Iterable[tuple[str, list[Label]]]:
        """Texts by CSS classes: their style, and their anchor where it is not the usual one."""
        by_style: defaultdict[str, list[Label]] = defaultdict(list)
        for text in self.texts:
            usual = _ANCHORS.get(text.style, "start")
            by_style[text.style if text.anchor == usual else f"{text.style} {text.anchor}"].append(text)
        return by_style.items()

    def box(self, style: str, span: tuple[float, float], y: float, height: float, title: str = "") -> None:
        """A box from left to right, at least 2 units wide."""
        left, right = span
        self.rects.append(Rect(style, left, y, max(right - left, 2.0), height, title))

    def upright(self, style: str, x: float, y: tuple[float, float]) -> None:
        """A vertical line from `y[0]` to `y[1]`."""
        self.lines.append(Line(style, x, y[0], x, y[1]))

    def name(self, text: str, y: float, *, style: str = "nm") -> None:
        """The name of a lane, left of it; a long name is cut."""
        self.texts.append(Label(style, LEFT - 8, y, shown(shown(text), int((LEFT - 12) / _NAME_UNITS)), "end"))

    def label_at(self, style: str, x: float, y: float, text: str) -> None:
        """Text beside a vertical line, on the side where it fits."""
        fits = x + len(text) * _LABEL_UNITS < WIDTH
        self.texts.append(Label(style, x + 4 if fits else x - 4, y, text, "start" if fits else "end"))

    def beside(self, style: str, span: tuple[float, float], y: float, text: str) -> None:
        """Text left of a box, or right of it, or inside, where it fits first."""
        left, right = span
        needed = len(text) * _LABEL_UNITS + 8
        if left - LEFT >= needed:
            self.texts.append(Label(style, left - 6, y, text, "end"))
        else:
            self.texts.append(Label(style, right + 6 if WIDTH - right >= needed else left + 6, y, text))

    def inside(self, style: str, span: tuple[float, float], y: float, text: str) -> bool:
        """Text within a box if it fits; returns whether it does."""
        left, right = span
        fits = len(text) * _LABEL_UNITS + 6 <= right - left
        if fits:
            self.texts.append(Label(style, (left + right) / 2, y, text, "middle"))
        return fits

    def axis(self, scale: Scale, y: float) -> None:
        """A horizontal axis with the numbers of the scale."""
        self.lines.append(Line("ax", LEFT, y, RIGHT, y))
        for place, number in scale.ticks():
            self.upright("ax", place, (y, y + 4))
            self.texts.append(Label("tk", place, y + 16, str(number), "middle"))

    def note_scale(self, scale: Scale, marks: str = "marks") -> None:
        """Note if distances are not to scale."""
        if not scale.is_true:
            self.notes.append(f"Distances between marks are not to scale: {marks} that stand close are drawn apart.")


def _outline(rect: Rect) -> str:
    """A box as an SVG path in integers."""
    left, right, top = round(rect.x), round(rect.x + rect.width), round(rect.y)
    return f"M{left} {top}h{max(right - left, 1)}v{round(rect.height)}H{left}z"
