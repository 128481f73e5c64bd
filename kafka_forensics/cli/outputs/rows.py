"""Rows in every output format, and tables of any length for a person.

A table writes each row as it arrives; the first rows decide how wide its columns are. A table that is wider than the terminal
states once above it what is the same in all rows, writes times to the second with their common date above the table, and moves its
widest columns to a second, indented line of each row.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from kafka_forensics.cli.streams import Destination, broken, wrapped
from kafka_forensics.model.json_objects import Columns, json_text, object_of, rfc3339
from kafka_forensics.model.safe_text import printable

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, object]
"""JSON values by column; None is "not known"."""

TIMES: Final = frozenset({"base_timestamp", "max_timestamp", "timestamp", "delete_horizon_ms"})
WIDE: Final = frozenset({"producer_id"})
"""Columns of `dump` and `find` that JSON has twice: times also as RFC 3339 text, as in TSV, 64-bit integers also as digits in
text."""
_MARKDOWN_SPECIAL: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|~#!&$"})


def write_rows(columns: Sequence[str], rows: Iterable[Row], format_name: str, to: Destination) -> None:
    """Write `rows` with their `columns` in one of the formats of `options.FORMATS`."""
    objects = (json_text({name: row[name] for name in columns}) for row in rows)
    lines: Mapping[str, Iterable[str]] = {
        "text": _rich_table_lines(columns, rows, to),
        "tsv": tsv_lines(columns, rows),
        "json": json_array(objects),
        "jsonl": (f"{text}\n" for text in objects),
    }
    to.stream.writelines(lines[format_name])


class AnswerList(Struct, frozen=True):
    """How the items of an answer are listed: `columns` in formats for programs, a line of `cells` under `heads` for a person.

    Columns whose heads are in `right` are right-aligned.
    """

    columns: Columns
    heads: Sequence[str]
    right: Collection[str]
    cells: Callable[..., Sequence[str]]

    def write(self, items: Iterable[object], format_name: str, to: Destination) -> None:
        """Write `items` in one of the formats of `options.FORMATS`."""
        if format_name == "text":
            to.stream.writelines(table_lines(self.heads, self.right, map(self.cells, items), to.width))
        else:
            write_items(self.columns, items, format_name, to)


def write_items(columns: Columns, items: Iterable[object], format_name: str, to: Destination) -> None:
    """Write the `columns` of `items` in one of the formats of `options.FORMATS`."""
    write_rows(list(columns), (object_of(columns, item) for item in items), format_name, to)


def cell(value: object) -> str:
    """`value` as text that is safe to print: empty for None, JSON for lists and dictionaries."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return printable(str(value))


def text_of(value: object) -> str:
    """The same for values that may be or contain bytes, see `printable` and `plain`."""
    if isinstance(value, bytes):
        return printable(value)
    return cell(plain(value) if isinstance(value, dict | list | tuple) else value)


def time_names(name: str) -> tuple[str, str]:
    """Names of the two columns of a time of `TIMES`: milliseconds, and text."""
    short = name.removesuffix("_ms")
    return f"{short}_ms", short


def spellings(name: str) -> "tuple[Callable[[object], str], ...]":
    """How TSV writes a value of this column: once, or twice as a time of `TIMES`."""
    return (text_of, _rfc3339_text) if name in TIMES else (text_of,)


def _rfc3339_text(time_ms: object) -> str:
    return (rfc3339(time_ms) or "") if isinstance(time_ms, int) else ""


def plain(value: object) -> object:
    """`value` as JSON can hold it: bytes as UTF-8 text, or as `{"base64": ...}` where they are not UTF-8."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def json_array(objects: Iterable[str]) -> Iterator[str]:
    """A JSON array in pieces, an object a line."""
    separator = "["
    for text in objects:
        yield separator + text
        separator = ",\n "
    yield "[]\n" if separator == "[" else "]\n"


def tsv_lines(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """A header line and a line a row, values in full."""
    yield "\t".join(columns) + "\n"
    for row in rows:
        yield "\t".join(cell(row[name]) for name in columns) + "\n"


def markdown_lines(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A Markdown table of `rows` of cells."""
    yield f"| {' | '.join(map(markdown, columns))} |\n"
    yield f"|{' --- |' * len(columns)}\n"
    for row in rows:
        yield f"| {' | '.join(map(markdown, row))} |\n"


def markdown(text: str) -> str:
    """`text` with the characters escaped that Markdown would interpret."""
    return printable(text).translate(_MARKDOWN_SPECIAL)


def _rich_table_lines(columns: Sequence[str], rows: Iterable[Row], to: Destination) -> Iterator[str]:
    from rich.text import Text

    table = plain_table()
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row[name])) for name in columns))
    yield from rich_lines(table, to)


def plain_table() -> "Table":
    """A rich table without rules or edges."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, _GAP, 0, 0))


def rich_lines(table: "Table", to: Destination) -> Iterator[str]:
    """The lines of a rich table, as wide as the terminal."""
    console = to.console()
    with console.capture() as output:
        console.print(table)
    return (line.rstrip() + "\n" for line in output.get().splitlines())


SAMPLED_ROWS: Final = 200
"""Rows that decide how wide the columns of a table are."""
_GAP: Final = 2
_INDENT: Final = 4
_TIME: Final = re.compile(r"(\d{4,}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")
_NUMBER: Final = re.compile(r"-?[0-9]+")
_LONGEST_SHARED: Final = 40
"""Characters of a value that may be stated above the table for all rows."""
_NEVER_MOVED: Final = 2
"""Columns that always stay on the first line."""
_NEEDS_NO_HEADING: Final = frozenset({"notes", "what changed", "file", "meaning", "detail", "newest records"})
"""Columns whose values have no heading on a second line."""
_NOTES: Final = "notes"
"""The column that may have commands; the other cells of its table are `unquoted`."""


def table_lines(
    heads: Sequence[str], right: Collection[str] | None, rows: Iterable[Sequence[str]], width: int | None = None
) -> Iterator[str]:
    """Lines of a table with these `heads`; columns in `right` (None: columns of numbers) are right-aligned. Nothing without rows.

    The table is fitted to `width` columns; None means no limit. A table of fewer than SAMPLED_ROWS rows has no empty columns. Rows
    after the sample may be wider than their columns. Cells must be safe to print.
    """
    remaining = iter(rows)
    sample = [list(row) for row in islice(remaining, SAMPLED_ROWS)]
    if not sample:
        return
    is_long = len(sample) == SAMPLED_ROWS
    layout = _TableLayout(list(heads), [column for column in range(len(heads)) if is_long or any(row[column] for row in sample)])
    if width is not None:
        yield from layout.fit(sample, width)
    numeric = layout.numbers(sample) if right is None else {column for column in layout.first if heads[column] in right}
    widths = layout.widths(sample)
    for number, row in enumerate(chain([list(heads)], sample, remaining)):
        cells = ((column, layout.cell(row, column)) for column in layout.first)
        aligned = (text.rjust(widths[column]) if column in numeric else text.ljust(widths[column]) for column, text in cells)
        yield (" " * _GAP).join(aligned).rstrip() + "\n"
        if number and layout.second:
            yield from layout.second_line(row, width or 0)


class _TableLayout(Struct):
    """Which columns (by index) stand on the first line of a row and which on the second, and how times are written."""

    heads: list[str]
    first: list[int]
    second: list[int] = field(default_factory=list)
    short_times: bool = False
    date: str | None = None

    def cell(self, row: Sequence[str], column: int) -> str:
        """A cell with its times as this layout writes them."""
        if not self.short_times:
            return row[column]
        return _TIME.sub(lambda match: match[2] if match[1] == self.date else f"{match[1]} {match[2]}", row[column])

    def widths(self, sample: list[list[str]]) -> dict[int, int]:
        """Characters of each column of the first line."""
        return {column: max(len(self.heads[column]), *(len(self.cell(row, column)) for row in sample)) for column in self.first}

    def numbers(self, sample: list[list[str]]) -> set[int]:
        """Columns of the first line that hold only numbers."""
        return {column for column in self.first if all(not row[column] or _NUMBER.fullmatch(row[column]) for row in sample)}

    def fit(self, sample: list[list[str]], width: int) -> Iterator[str]:
        """Make the first line at most `width` wide, if possible; yields the lines that stand above the table for that."""
        if self._fits(sample, width):
            return
        is_whole = len(sample) < SAMPLED_ROWS
        dates = {match[1] for row in sample for column in self.first for match in _TIME.finditer(row[column])}
        self.short_times, self.date = True, next(iter(dates)) if is_whole and len(dates) == 1 else None
        shared: list[int] = []
        if is_whole and len(sample) > 1 and not self._fits(sample, width):
            equal_columns = [column for column in self.first if len({row[column] for row in sample}) == 1]
            shared = [column for column in equal_columns if 0 < len(sample[0][column]) <= _LONGEST_SHARED][: len(self.first) - 1]
            self.first = [column for column in self.first if column not in shared]
        equal_cells = "; ".join(f"{self.heads[column]} {self.cell(sample[0], column)}" for column in shared)
        above = [f"All rows: {equal_cells}"] if shared else []
        if dates:
            above.append(f"times of {self.date}, UTC" if self.date else "times UTC")
        while len(self.first) > _NEVER_MOVED and not self._fits(sample, width):
            widths = self.widths(sample)
            widest = max(self.first[_NEVER_MOVED:], key=lambda column: (widths[column], column))
            self.first.remove(widest)
            self.second = sorted([*self.second, widest])
        if above:
            yield from (f"{line}\n" for line in (*broken("; ".join(above), width, "", ""), ""))

    def second_line(self, row: Sequence[str], width: int) -> Iterator[str]:
        """The moved columns of a row, wrapped and indented; a command among them has lines that a shell reads as one."""
        texts = [
            self.cell(row, column) if self.heads[column] in _NEEDS_NO_HEADING else f"{self.heads[column]} {self.cell(row, column)}"
            for column in self.second
            if row[column]
        ]
        if texts:
            limits = max(width, 2 * _INDENT), " " * _INDENT, " " * _INDENT
            text = "; ".join(texts)
            yield from wrapped(text, *limits) if _NOTES in self.heads else (f"{line}\n" for line in broken(text, *limits))

    def _fits(self, sample: list[list[str]], width: int) -> bool:
        return sum(self.widths(sample).values()) + _GAP * (len(self.first) - 1) <= width
