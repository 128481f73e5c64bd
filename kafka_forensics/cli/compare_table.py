"""A comparison for a person at a terminal: the verdict, the replicas, then what they hold, those that hold the same in one line."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

from kafka_forensics.cli import compare_words as words
from kafka_forensics.cli.output_table import STYLES, print_hanging
from kafka_forensics.cli.output_words import aligned, crowded_brokers, name, place_words, replica_words
from kafka_forensics.cli.safe_text import printable
from kafka_forensics.cli.streams import Destination
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.compare import HeldRecord, SideBySide
from kafka_forensics.wording import message

if TYPE_CHECKING:
    from rich.console import Console

_GUTTER: Final = 10
_INDENT: Final = 4
_GAP: Final = 2
_SHOWN_FINDINGS: Final = 8
_PAYLOAD_CHARACTERS: Final = 4096
"""Characters looked at of a payload of which a line is shown."""
_SECOND_LINE: Final = ("key", "value", "headers", "remarks")
_RIGHT: Final = frozenset({"offset"})


def write_table(compared: SideBySide, to: Destination, *, payloads: bool, verbose: bool) -> None:
    """Write the comparison to `to`, fitted to its width."""
    page = _Page(to.console())
    page.head(compared, verbose=verbose)
    if compared.rows:
        page.records(compared, payloads=payloads)


class _Page:
    def __init__(self, console: "Console") -> None:
        self._console = console

    def head(self, compared: SideBySide, *, verbose: bool) -> None:
        """Verdict, what the replicas are, and the findings in sentences."""
        partition, result = compared.partition, compared.result
        verdict = result.verdict
        title = Text.assemble((name(partition.topic, partition.partition), "bold"), f"  {words.title(compared)}")
        self._hanging(Text(verdict.upper() if verdict != "clean" else verdict, STYLES[verdict]), title, _GUTTER)
        self._replicas(compared)
        shown, brief = words.told(result.findings, verbose=verbose)
        crowded = crowded_brokers(result)
        kept = shown if verbose else shown[:_SHOWN_FINDINGS]
        for kind, findings in groupby(kept, key=lambda finding: (finding.kind, finding.severity, finding.confidence)):
            self._console.print()
            style = STYLES[kind[1].value]
            self._hanging(Text(), Text.assemble((kind[0], style), f"  {kind[1].value}, {kind[2].value}"), 2)
            for finding in findings:
                self._finding(finding, crowded)
        if hidden := len(shown) - len(kept):
            self._hanging(Text(), Text(f"... and {hidden} more findings; -v shows all", "dim"), 2)
        if brief:
            self._console.print()
            kinds = ", ".join(sorted({finding.kind for finding in brief}))
            self._hanging(Text(), Text(f"info, -v explains: {kinds}", "dim"), 2)

    def _finding(self, finding: Finding, crowded: Iterable[str]) -> None:
        self._hanging(Text(), Text(printable(message(finding))), _INDENT)
        if finding.place.file is not None:
            self._hanging(Text(" " * _INDENT + "where", "dim"), Text(place_words(finding.place, crowded)), _INDENT + 6)

    def _replicas(self, compared: SideBySide) -> None:
        labels = words.labels(compared)
        rows = []
        for label, replica in zip(labels, compared.partition.replicas, strict=True):
            told = replica_words(replica)
            rows.append([f"{label} {told[0]}" if label.startswith("#") else told[0], *told[1:]])
        for line in aligned(rows, self._console.width - 2):
            self._hanging(Text(), Text(line, "dim"), 2, deeper=4)

    def records(self, compared: SideBySide, *, payloads: bool) -> None:
        """The records around the first difference, a line for each thing held."""
        lines = words.lines_of(compared)
        columns = words.columns_of(lines)
        widths = {column: max(len(column), *(cell_len(line.cells.get(column, "")) for line in lines)) for column in columns}
        rows = [columns]
        if sum(widths.values()) + _GAP * len(columns) > self._console.width:
            rows = [[column for column in columns if column not in _SECOND_LINE], [c for c in columns if c in _SECOND_LINE]]
        at = dict.fromkeys(columns, 0)
        for row in rows:
            position = _GAP if row is rows[0] else at["broker"] + widths["broker"] + _GAP
            for column in row:
                at[column] = position
                position += widths[column] + _GAP
        self._console.print()
        self._print_all(_heading(row, at, widths) for row in rows)
        marked = False
        for offset, group in groupby(lines, key=lambda line: line.offset):
            held = list(group)
            if offset == compared.first_difference and not marked and lines[0].offset != offset:
                self._console.print(Text(" " * _GAP + "-" * (self._console.width - 2 * _GAP), "dim"), soft_wrap=True)
                marked = True
            differing = _differing(held, columns)
            for number, line in enumerate(held):
                self._print_all(_line(line, rows, at, widths, differing, first=number == 0))
                if payloads and line.record is not None:
                    self._payloads(line.record, at["broker"] + widths["broker"] + _GAP)
        self._legend(compared, payloads=payloads)

    def _payloads(self, record: HeldRecord, indent: int) -> None:
        parts = [("key", record.key), ("value", record.value)]
        for key, value in record.headers:
            parts.append((f"header {printable(key[:_PAYLOAD_CHARACTERS])}", value))
        for label, data in parts:
            if data is None:
                continue
            text = Text(f"{label:5}  {printable(data[:_PAYLOAD_CHARACTERS])}")
            text.truncate(max(20, self._console.width - indent), overflow="ellipsis")
            self._print_all([Text(" " * indent).append_text(text)])

    def _legend(self, compared: SideBySide, *, payloads: bool) -> None:
        date = words.common_date(compared)
        marks = "> differs; " if any(row.differs for row in compared.rows) else ""
        times = f"times of {date}, UTC" if date else "times UTC"
        more = "" if payloads else "; --show-payloads shows keys and values"
        self._console.print()
        self._hanging(Text(), Text(f"{marks}{times}; digests: first digits of SHA-256{more}", "dim"), 2)

    def _print_all(self, texts: Iterable[Text]) -> None:
        for text in texts:
            text.rstrip()
            self._console.print(text, soft_wrap=True)

    def _hanging(self, label: Text, body: Text, indent: int, deeper: int = 0) -> None:
        print_hanging(self._console, label, body, indent, deeper)


def _heading(row: list[str], at: dict[str, int], widths: dict[str, int]) -> Text:
    text = Text()
    for column in row:
        text.append(" " * (at[column] - text.cell_len))
        text.append(column.rjust(widths[column]) if column in _RIGHT else column, "bold")
    return text


def _differing(held: list[words.Line], columns: list[str]) -> set[str]:
    """Columns in which the records held at one offset differ."""
    records = [line for line in held if line.record is not None]
    return {column for column in columns[2:] if len({line.cells.get(column) for line in records}) > 1}


def _line(
    line: words.Line, rows: list[list[str]], at: dict[str, int], widths: dict[str, int], differing: set[str], *, first: bool
) -> Iterator[Text]:
    """What some replicas hold at an offset, in one line or two; the offset only in the `first` of several."""
    for row in rows:
        text = Text()
        if line.differs and row is rows[0]:
            text.append(">", "bold red")
        for column in row:
            word = line.cells.get(column, "")
            if not word or (column == "offset" and not first):
                continue
            text.append(" " * (at[column] - text.cell_len))
            style = "bold red" if column in differing else "" if line.differs or column in ("offset", "broker") else "dim"
            text.append(word.rjust(widths[column]) if column in _RIGHT else word, style)
        if line.nothing is not None and row is rows[0]:
            text.append(" " * (at["broker"] + widths["broker"] + _GAP - text.cell_len)).append(line.nothing, "yellow")
        if row is rows[0] or line.nothing is None:
            yield text
