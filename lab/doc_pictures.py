"""Makes the drawings of docs/pictures: `python -m lab.doc_pictures`. The tests check that every file there is up to date.

Simulated histories are drawn by `simulate run SCENARIO --svg`; the boxes and arrows that show how a scan works are drawn here.
"""

from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kafka_forensics.cli.main import outcome

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SCENARIOS: Final = {
    "slow-follower": "slow-follower",
    "unclean-election": "unclean-election",
    "last-replica-standing": "last-replica-standing",
    "hanging-transaction": "txn-hanging",
    "power-loss-divergence": "hw-lag-divergence",
}
"""File name → scenario."""

_INK: Final = "#223"
_FILLS: Final = {"bytes": "#e8e8ee", "facts": "#cfe3f7", "summary": "#cdebc9", "answer": "#f7e3c4", "loss": "#f6cfcb"}


@dataclass(frozen=True, slots=True)
class Box:
    """A box with centered lines of text."""

    x: int
    y: int
    width: int
    height: int
    fill: str
    lines: tuple[str, ...]

    def svg(self) -> str:
        """The box as SVG elements."""
        first = self.y + self.height / 2 - 8 * (len(self.lines) - 1) + 4
        texts = "".join(
            f'<text x="{self.x + self.width / 2:g}" y="{first + 16 * number:g}" text-anchor="middle">{escape(line)}</text>\n'
            for number, line in enumerate(self.lines)
        )
        place = f'x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"'
        return f'<rect {place} rx="3" fill="{_FILLS[self.fill]}" stroke="#556" stroke-width="0.8"/>\n{texts}'


def arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    """An arrow from (x1, y1) to (x2, y2)."""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#556" stroke-width="1.2" marker-end="url(#head)"/>\n'


def words(x: int, y: int, text: str, *, bold: bool = False) -> str:
    """A line of text that starts at x."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}"{weight}>{escape(text)}</text>\n'


def drawing(title: str, width: int, height: int, elements: Iterable[str]) -> str:
    """An SVG document."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<title>{escape(title)}</title>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#556"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f'<g font-family="system-ui, Helvetica, Arial, sans-serif" font-size="12" fill="{_INK}">\n{"".join(elements)}</g>\n</svg>\n'
    )


def steps() -> str:
    """The steps of a scan, from bytes to text."""
    labels = (
        ("bytes", ("files of", "each broker")),
        ("facts", ("facts:", "batches, entries,", "checkpoints")),
        ("summary", ("one summary", "a replica")),
        ("summary", ("comparison", "of replicas")),
        ("answer", ("findings", "with evidence")),
        ("answer", ("words,", "JSON, tables")),
    )
    boxes = [Box(16 + 146 * number, 30, 116, 64, fill, lines) for number, (fill, lines) in enumerate(labels)]
    arrows = [arrow(left.x + left.width, 62, left.x + left.width + 30, 62) for left in boxes[:-1]]
    below = ["read only", "parsed", "folded", "compared", "judged", "told"]
    names = [words(box.x, 116, text) for box, text in zip(boxes, below, strict=True)]
    return drawing("From bytes to words", 878, 132, [box.svg() for box in boxes] + arrows + names)


def folds() -> str:
    """A segment folded in parts, and the merge of the states."""
    parts = [Box(16 + 180 * number, 30, 180, 36, "bytes", (f"bytes of part {number + 1}",)) for number in range(4)]
    states = [Box(46 + 180 * number, 106, 120, 48, "facts", (f"state {number + 1}", "first, last, counts")) for number in range(4)]
    pairs = [Box(136 + 360 * number, 194, 120, 48, "summary", ("merged,", "seam judged")) for number in range(2)]
    whole = Box(306, 282, 140, 48, "answer", ("summary of", "the whole replica"))
    lines = [arrow(box.x + 90, 66, state.x + 60, 106) for box, state in zip(parts, states, strict=True)]
    lines += [arrow(state.x + 60, 154, pairs[number // 2].x + 60, 194) for number, state in enumerate(states)]
    lines += [arrow(pair.x + 60, 242, whole.x + 70, 282) for pair in pairs]
    boxes = [box.svg() for box in (*parts, *states, *pairs, whole)]
    return drawing("How a log is folded in parts", 752, 346, [words(16, 20, "one segment", bold=True), *lines, *boxes])


def digests() -> str:
    """The digests of two replicas by blocks of offsets; only the first differing block is read again."""
    elements: list[str] = []
    for row, (broker, values) in enumerate(
        (("broker 1", ("a3", "77", "0c", "5e", "91")), ("broker 2", ("a3", "77", "0c", "b8", "4d")))
    ):
        elements.append(words(16, 62 + 70 * row, broker, bold=True))
        for number, value in enumerate(values):
            fill = "loss" if number >= 3 else "summary"
            elements.append(Box(100 + 130 * number, 40 + 70 * row, 130, 36, fill, (f"digest {value}…",)).svg())
    elements += [words(100 + 130 * number, 30, f"from {number * 65536:,}") for number in range(5)]
    elements += [words(100, 176, "equal: not read again"), words(490, 176, "first that differs: read again,")]
    elements.append(words(490, 192, "batch by batch, then record by record"))
    return drawing("How replicas are compared without moving them", 766, 208, elements)


def pictures() -> dict[str, str]:
    """File name → SVG text."""
    drawings = {"steps.svg": steps(), "folds.svg": folds(), "digests.svg": digests()}
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        for name, scenario in SCENARIOS.items():
            path = Path(folder, f"{name}.svg")
            outcome(["simulate", "run", scenario, "--svg", str(path)])
            drawings[path.name] = path.read_text()
    return drawings


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)
