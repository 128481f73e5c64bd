"""Tables of any length for a person: columns as wide as the first rows need, fitted to the terminal, nothing gathered.

A table that is wider than there is room says what is the same in all rows once, in a line above, times to the second with their
common date above as well, and moves its widest columns to a second, indented line of each row.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from kafka_forensics.cli.streams import Destination, printable
from kafka_forensics.model.json_objects import Columns, Json, json_text, object_of

if TYPE_CHECKING:
    from rich.table import Table

# Plain rows in every format, for commands whose answer is one list: values are what JSON knows, None is "not known".


Row = Mapping[str, object]

TIMES: Final = frozenset({"base_timestamp", "max_timestamp", "timestamp", "delete_horizon_ms"})
WIDE: Final = frozenset({"producer_id"})
"""Columns whose values JSON has twice: times as text, too, and wide integers as digits."""
_MARKDOWN_SPECIAL: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|~#!&$"})


def write_rows(columns: Sequence[str], rows: Iterable[Row], format_name: str, to: Destination) -> None:
    """Write `rows` with their `columns` in one of the formats of `options.FORMATS`."""
    match format_name:
        case "table":
            _write_table(columns, rows, to)
        case "tsv":
            to.stream.writelines(tsv_lines(columns, rows))
        case "json":
            items = ",\n ".join(json_text(picked(columns, row)) for row in rows)
            to.stream.write(f"[{items}]\n")
        case "jsonl":
            to.stream.writelines(json_text(picked(columns, row)) + "\n" for row in rows)
        case "markdown":
            to.stream.writelines(markdown_lines(columns, rows))
        case _:
            raise AssertionError(format_name)


@dataclass(frozen=True, slots=True)
class Listing:
    """How the items of an answer are listed: `columns` in formats for programs, a line of `cells` under `heads` for a person.

    Heads in `right` stand to the right.
    """

    columns: Columns
    heads: Sequence[str]
    right: Collection[str]
    cells: Callable[..., Sequence[str]]

    def write(self, items: Iterable[object], format_name: str, to: Destination) -> None:
        """Write `items` in one of the formats of `options.FORMATS`."""
        if format_name == "table":
            to.stream.writelines(table_lines(self.heads, self.right, map(self.cells, items), to.width))
        else:
            write_items(self.columns, items, format_name, to)


def write_items(columns: Columns, items: Iterable[object], format_name: str, to: Destination) -> None:
    """Write the `columns` of `items` in one of the formats of `options.FORMATS`."""
    write_rows(list(columns), (object_of(columns, item) for item in items), format_name, to)


def picked(columns: Sequence[str], row: Row) -> Json:
    """The `columns` of `row`, in their order."""
    return {name: row[name] for name in columns}


def cell(value: object) -> str:
    """`value` as one safe word of a row: nothing for None, JSON for what has parts."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return printable(str(value))


def text_of(value: object) -> str:
    """`value` as one safe word; bytes as text, see `printable`; what has parts as JSON."""
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, dict | list | tuple):
        return json_text(plain(value))
    return cell(value)


def plain(value: object) -> object:
    """`value` as JSON knows it: bytes as the text they are, or, where they are none, as `{"base64": ...}`."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def tsv_lines(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """A header line and a line a row, values in full."""
    yield "\t".join(columns) + "\n"
    for row in rows:
        yield "\t".join(cell(row[name]) for name in columns) + "\n"


def markdown_lines(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """A Markdown table."""
    yield f"| {' | '.join(map(markdown, columns))} |\n"
    yield f"|{' --- |' * len(columns)}\n"
    for row in rows:
        yield f"| {' | '.join(markdown(cell(row[name])) for name in columns)} |\n"


def markdown(text: str) -> str:
    """`text` so that Markdown shows it as it is."""
    return printable(text).translate(_MARKDOWN_SPECIAL)


def _write_table(columns: Sequence[str], rows: Iterable[Row], to: Destination) -> None:
    from rich.text import Text

    table = plain_table()
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row[name])) for name in columns))
    to.stream.writelines(drawn(table, to))


def plain_table() -> "Table":
    """A table without rules or edges."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, _GAP, 0, 0))


def drawn(table: "Table", to: Destination) -> Iterator[str]:
    """The lines of a table, as wide as there is room."""
    console = to.console()
    with console.capture() as page:
        console.print(table)
    return (line.rstrip() + "\n" for line in page.get().splitlines())


SAMPLED_ROWS: Final = 200
"""Rows a table looks at before it decides how wide its columns are."""
_GAP: Final = 2
_INDENT: Final = 4
_TIME: Final = re.compile(r"(\d{4,}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")
_NUMBER: Final = re.compile(r"-?[0-9]+")
_LONGEST_SHARED: Final = 40
"""Characters of a value that may stand above the table for all rows."""
_KEPT: Final = 2
"""Columns of the first line that are never moved."""
_NOTES: Final = frozenset({"notes", "what changed", "file", "meaning", "detail", "newest records"})
"""Columns whose values need no heading before them on a second line."""


def table_lines(
    heads: Sequence[str], right: Collection[str] | None, rows: Iterable[Sequence[str]], width: int | None = None
) -> Iterator[str]:
    """Lines of a table with these `heads`, of which those in `right` (None: of numbers) stand to the right; none without rows.

    Fitted to `width` columns, None for no bound. Columns that say nothing in a short table are left out. Later rows may stand
    out. Cells must be safe to print.
    """
    left = iter(rows)
    sample = [list(row) for row in islice(left, SAMPLED_ROWS)]
    if not sample:
        return
    layout = _Layout(list(heads), [at for at in range(len(heads)) if len(sample) == SAMPLED_ROWS or any(row[at] for row in sample)])
    if width is not None:
        yield from layout.fit(sample, width)
    numeric = {at for at in layout.first if heads[at] in right} if right is not None else layout.numbers(sample)
    widths = layout.widths(sample)
    for number, row in enumerate(chain([list(heads)], sample, left)):
        shown = [layout.cell(row, at) for at in layout.first]
        cells = (
            text.rjust(widths[at]) if at in numeric else text.ljust(widths[at])
            for at, text in zip(layout.first, shown, strict=True)
        )
        yield (" " * _GAP).join(cells).rstrip() + "\n"
        if number and layout.second:
            yield from layout.below(row, width or 0)


@dataclass(slots=True)
class _Layout:
    """Which columns (by index) stand on the first line of a row and which on the second, and how times are written."""

    heads: list[str]
    first: list[int]
    second: list[int] = field(default_factory=list)
    short_times: bool = False
    date: str | None = None

    def cell(self, row: Sequence[str], at: int) -> str:
        """A cell as it is shown."""
        if not self.short_times:
            return row[at]
        return _TIME.sub(lambda match: match[2] if match[1] == self.date else f"{match[1]} {match[2]}", row[at])

    def widths(self, sample: list[list[str]]) -> dict[int, int]:
        """Characters of each column of the first line."""
        return {at: max(len(self.heads[at]), *(len(self.cell(row, at)) for row in sample)) for at in self.first}

    def numbers(self, sample: list[list[str]]) -> set[int]:
        """Columns of the first line that hold nothing but numbers."""
        return {at for at in self.first if all(not row[at] or _NUMBER.fullmatch(row[at]) for row in sample)}

    def fit(self, sample: list[list[str]], width: int) -> Iterator[str]:
        """Make the first line at most `width` wide, if it can be; the lines that stand above the table for that."""
        if self._fits(sample, width):
            return
        is_whole = len(sample) < SAMPLED_ROWS
        dates = {match[1] for row in sample for at in self.first for match in _TIME.finditer(row[at])}
        self.short_times, self.date = True, dates.copy().pop() if is_whole and len(dates) == 1 else None
        shared = []
        if is_whole and len(sample) > 1 and not self._fits(sample, width):
            shared = [
                at for at in self.first if 0 < len(sample[0][at]) <= _LONGEST_SHARED and len({row[at] for row in sample}) == 1
            ]
            shared = shared[: len(self.first) - 1]
            self.first = [at for at in self.first if at not in shared]
        said = [f"{self.heads[at]} {self.cell(sample[0], at)}" for at in shared]
        if dates:
            said.append(f"times of {self.date}, UTC" if self.date else "times UTC")
        while len(self.first) > _KEPT and not self._fits(sample, width):
            widths = self.widths(sample)
            widest = max(self.first[_KEPT:], key=lambda at: (widths[at], at))
            self.first.remove(widest)
            self.second = sorted([*self.second, widest])
        yield from (line + "\n" for line in wrap("; ".join(said), width, break_on_hyphens=False))
        if said:
            yield "\n"

    def below(self, row: Sequence[str], width: int) -> Iterator[str]:
        """What stands below the first line of a row."""
        text = "; ".join(self._named(row, at) for at in self.second if row[at])
        indent = " " * _INDENT
        room = max(width, 2 * _INDENT)
        for line in wrap(
            text, room, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ):
            yield line + "\n"

    def _named(self, row: Sequence[str], at: int) -> str:
        text = self.cell(row, at)
        return text if self.heads[at] in _NOTES else f"{self.heads[at]} {text}"

    def _fits(self, sample: list[list[str]], width: int) -> bool:
        return sum(self.widths(sample).values()) + _GAP * (len(self.first) - 1) <= width
