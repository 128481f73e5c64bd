"""Plain rows in every format, for commands whose answer is one list: values are what JSON knows, None is "not known"."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafka_forensics.cli.safe_text import printable
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export.json_document import json_text

Row = Mapping[str, Any]

_MARKDOWN_SPECIAL: Final = str.maketrans({each: f"\\{each}" for each in "\\`*_[]<>|~#!&$"})


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


def picked(columns: Sequence[str], row: Row) -> dict[str, Any]:
    """The `columns` of `row`, in their order."""
    return {name: row[name] for name in columns}


def cell(value: Any) -> str:
    """`value` as one safe word of a row: nothing for None, JSON for what has parts."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return printable(str(value))


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
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row[name])) for name in columns))
    console = to.console()
    with console.capture() as page:
        console.print(table)
    to.stream.writelines(line.rstrip() + "\n" for line in page.get().splitlines())
