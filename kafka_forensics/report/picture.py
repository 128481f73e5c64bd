"""Pictures as lists of shapes, and scales that keep near things apart: what an SVG is made of, before any markup."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from kafka_forensics.report.words import shown

WIDTH: Final = 960
LEFT: Final = 132
"""Where lanes begin; their names stand before."""
RIGHT: Final = 936
_NEAREST: Final = 14.0
"""Units between two marks that are to be told apart."""
_MOST_MARKS: Final = 24
_LABEL_UNITS: Final = 6.6
"""Width of a letter, a little more than most are wide."""
_NAME_UNITS: Final = 8.0
"""The same of a lane's name, which is bold."""


class Scale:
    """Places numbers from left to right.

    `marks` come in the order of their weight; of very many the last are not kept apart. Where marks stand so close that they could
    not be told apart, distances between marks are not in proportion (`is_true` is False), but their order is, and within each.
    """

    def __init__(self, marks: Iterable[int]) -> None:
        every = list(dict.fromkeys(marks)) or [0]
        low, high = min(every), max(every)
        self._points = sorted({low, high, *every[:_MOST_MARKS]})
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
        """Where `number` stands; outside of all marks, at the nearest."""
        at = bisect_right(self._points, number) - 1
        if at < 0:
            return self._places[0]
        if at >= len(self._points) - 1:
            return self._places[-1]
        part = (number - self._points[at]) / (self._points[at + 1] - self._points[at])
        return self._places[at] + part * (self._places[at + 1] - self._places[at])

    def ticks(self) -> list[tuple[float, int]]:
        """Marks that have room for their numbers: the first and the last, and what fits between."""
        last = (self._places[-1], self._points[-1])
        shown = [(self._places[0], self._points[0])]
        for place, number in zip(self._places[1:-1], self._points[1:-1], strict=True):
            if _apart(shown[-1], (place, number)) and _apart((place, number), last):
                shown.append((place, number))
        return [*shown, last] if _apart(shown[-1], last) else shown


def _apart(left: tuple[float, int], right: tuple[float, int]) -> bool:
    letters = (len(str(left[1])) + len(str(right[1]))) / 2 + 1.5
    return right[0] - left[0] >= letters * _LABEL_UNITS


_BELOW: Final = frozenset({"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "en", "og"})
"""Styles of boxes that stand below all others."""
_ANCHORS: Final = {"nm": "end", "in": "middle", "tk": "middle"}
"""Where words of a style end; words of others start at their point, unless they say otherwise."""


@dataclass(frozen=True, slots=True)
class Rect:
    """A box of a style, with what it says where a pointer rests on it."""

    style: str
    x: float
    y: float
    width: float
    height: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """Words at a point."""

    style: str
    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    style: str
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(slots=True)
class Picture:
    """Shapes, the later above the earlier; `label` says in words what they show, `notes` what they cannot."""

    label: str
    height: float = 0
    rects: list[Rect] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def paths(self) -> Iterator[tuple[str, str, str]]:
        """(style, title, path) of all boxes and then of all lines; what has one style and no title is one path."""
        for below in (True, False):
            plain: dict[str, list[str]] = {}
            for rect in self.rects:
                if (rect.style in _BELOW) is below:
                    if rect.title:
                        yield rect.style, rect.title, _outline(rect)
                    else:
                        plain.setdefault(rect.style, []).append(_outline(rect))
            yield from ((style, "", "".join(outlines)) for style, outlines in plain.items())
        lines: dict[str, list[str]] = {}
        for line in self.lines:
            way = f"h{round(line.x2) - round(line.x1)}" if line.y1 == line.y2 else f"v{round(line.y2) - round(line.y1)}"
            lines.setdefault(line.style, []).append(f"M{round(line.x1)} {round(line.y1)}{way}")
        yield from ((style, "", "".join(ways)) for style, ways in lines.items())

    def words(self) -> Iterator[tuple[str, list[Text]]]:
        """Texts by their style, with where they are anchored in it."""
        by_style: dict[str, list[Text]] = {}
        for text in self.texts:
            usual = _ANCHORS.get(text.style, "start")
            by_style.setdefault(text.style if text.anchor == usual else f"{text.style} {text.anchor}", []).append(text)
        yield from by_style.items()

    def box(self, style: str, span: tuple[float, float], y: float, height: float, title: str = "") -> None:
        """A box from left to right, wide enough to be seen."""
        left, right = span
        self.rects.append(Rect(style, left, y, max(right - left, 2.0), height, title))

    def upright(self, style: str, x: float, y: tuple[float, float]) -> None:
        """An upright line."""
        self.lines.append(Line(style, x, y[0], x, y[1]))

    def name(self, text: str, y: float, *, style: str = "nm") -> None:
        """The name of a lane, before it; a long one is cut."""
        self.texts.append(Text(style, LEFT - 8, y, shown(shown(text), int((LEFT - 12) / _NAME_UNITS)), "end"))

    def label_at(self, style: str, x: float, y: float, text: str) -> None:
        """Words beside an upright line, on the side where there is room."""
        fits = x + len(text) * _LABEL_UNITS < WIDTH
        self.texts.append(Text(style, x + 4 if fits else x - 4, y, text, "start" if fits else "end"))

    def beside(self, style: str, span: tuple[float, float], y: float, text: str) -> None:
        """Words left of a box, right of it where there is no room, else in it."""
        left, right = span
        needed = len(text) * _LABEL_UNITS + 8
        if left - LEFT >= needed:
            self.texts.append(Text(style, left - 6, y, text, "end"))
        else:
            self.texts.append(Text(style, right + 6 if WIDTH - right >= needed else left + 6, y, text))

    def inside(self, style: str, span: tuple[float, float], y: float, text: str) -> bool:
        """Words within a box, if they have room; whether they have."""
        left, right = span
        fits = len(text) * _LABEL_UNITS + 6 <= right - left
        if fits:
            self.texts.append(Text(style, (left + right) / 2, y, text, "middle"))
        return fits

    def axis(self, scale: Scale, y: float) -> None:
        """The numbers below the lanes."""
        self.lines.append(Line("ax", LEFT, y, RIGHT, y))
        for place, number in scale.ticks():
            self.upright("ax", place, (y, y + 4))
            self.texts.append(Text("tk", place, y + 16, str(number), "middle"))


def _outline(rect: Rect) -> str:
    """A box as a path, in whole units."""
    left, right, top = round(rect.x), round(rect.x + rect.width), round(rect.y)
    return f"M{left} {top}h{max(right - left, 1)}v{round(rect.height)}H{left}z"
