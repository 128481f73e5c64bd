"""A comparison for a person at a terminal: the verdict, the replicas, then what they hold, those that hold the same in one line."""

import base64
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.outputs.rows import markdown, markdown_lines, tsv_lines
from kafka_forensics.cli.outputs.scan_table import STYLES, print_hanging
from kafka_forensics.cli.outputs.words import (
    aligned,
    crowded_brokers,
    incomplete_lines,
    is_harmless,
    name,
    place_words,
    replica_words,
)
from kafka_forensics.cli.streams import Destination, printable
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import json_line, json_list
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.json_objects import Columns, Json, attributes, json_text, object_of, rfc3339, times
from kafka_forensics.model.results import SCHEMA_VERSION, ReadExtent, ReplicaSummary
from kafka_forensics.questions.compare import HeldRecord, OffsetRow, OffsetState, ReplicaAtOffset, SideBySide, hold_different_things
from kafka_forensics.wording import is_background, message, span

if TYPE_CHECKING:
    from rich.console import Console


# What the formats of `compare` for people share: who holds the same, a record in a few short words. All of it safe to print.


COLUMNS: Final = ("offset", "broker", "epoch", "time", "producer", "key", "value", "headers", "remarks")
_OPTIONAL: Final = frozenset({"epoch", "producer", "headers", "remarks"})
_LONG_NAME: Final = 12
_DIGEST_DIGITS: Final = 6
_ALL: Final = "all"
_OUTSIDE: Final = (OffsetState.BEFORE_LOG_START, OffsetState.IN_REMOTE_STORAGE, OffsetState.BEYOND_LOG_END)
_BEYOND: Final = (OffsetState.BEYOND_LOG_END, OffsetState.IN_REMOTE_STORAGE, OffsetState.NOT_READ)


class Line(NamedTuple):
    """One line of the table: what some replicas hold at an offset, as words by column, or why they hold nothing."""

    offset: int
    differs: bool
    cells: dict[str, str]
    nothing: str | None
    record: HeldRecord | None


def labels(compared: SideBySide) -> list[str]:
    """A short name for each replica: its broker, or `#1` where such names are long."""
    names = [printable(str(replica.broker)) for replica in compared.partition.replicas]
    return [f"#{number}" for number in range(1, len(names) + 1)] if max(map(len, names)) > _LONG_NAME else names


def lines_of(compared: SideBySide) -> list[Line]:
    """A line for each thing held at each offset, replicas that hold the same together."""
    stamps = [rfc3339(held.record.timestamp) for row in compared.rows for held in row.held if held.record is not None]
    date = _common_date(stamps)
    named = labels(compared)
    lines = []
    for row in compared.rows:
        for members, held in groups(row):
            label = _ALL if len(members) == len(named) else ", ".join(named[member] for member in members)
            cells = {"offset": str(row.offset), "broker": label}
            nothing = None
            if held.record is None:
                nothing = _nothing(held, compared.partition.replicas[members[0]])
            else:
                cells |= _record_cells(held.record, date)
            lines.append(Line(row.offset, row.differs, cells, nothing, held.record))
    return lines


def groups(row: OffsetRow) -> list[tuple[list[int], ReplicaAtOffset]]:
    """(indexes of the replicas, what they hold) for each thing held at one offset, in the order of the replicas."""
    groups_by_held: dict[tuple[object, ...], tuple[list[int], ReplicaAtOffset]] = {}
    for index, held in enumerate(row.held):
        alone = index if held.state in _OUTSIDE else None
        groups_by_held.setdefault((held.state, held.record, alone), ([], held))[0].append(index)
    return list(groups_by_held.values())


def columns_of(lines: Iterable[Line]) -> list[str]:
    """The columns that say something in any of `lines`."""
    filled = {column for line in lines for column, word in line.cells.items() if word}
    return [column for column in COLUMNS if column in filled or column not in _OPTIONAL]


def common_date(compared: SideBySide) -> str | None:
    """The one UTC date of all records shown, None if there are several or none."""
    return _common_date([rfc3339(held.record.timestamp) for row in compared.rows for held in row.held if held.record is not None])


def _common_date(stamps: list[str | None]) -> str | None:
    dates = {stamp[:10] for stamp in stamps if stamp}
    return dates.pop() if len(dates) == 1 else None


def _record_cells(record: HeldRecord, date: str | None) -> dict[str, str]:
    return {
        "epoch": "" if record.partition_leader_epoch < 0 else str(record.partition_leader_epoch),
        "time": _time(record.timestamp, date),
        "producer": _producer(record),
        "key": record.control_record_type or content_words(record.key_size, record.key_digest),
        "value": content_words(record.value_size, record.value_digest),
        "headers": "" if not record.headers_count else f"{record.headers_count} {_short(record.headers_digest)}".rstrip(),
        "remarks": "" if record.is_valid else "CRC wrong",
    }


def _time(timestamp: int, date: str | None) -> str:
    stamp = rfc3339(timestamp)
    if stamp is None:
        return "none" if timestamp == -1 else str(timestamp)
    day, _, moment = stamp.rstrip("Z").partition("T")
    return moment if date else f"{day} {moment}"


def _producer(record: HeldRecord) -> str:
    """`4000/0 #17`: producer id and epoch, and the sequence."""
    if record.producer_id < 0:
        return ""
    sequence = "" if record.sequence < 0 else f" #{record.sequence}"
    return f"{record.producer_id}/{record.producer_epoch}{sequence}"


def content_words(size: int, digest: str | None) -> str:
    """`47 B f83d0a`, `empty` or `null`."""
    if size <= 0:
        return "null" if size < 0 else "empty"
    return f"{size} B {_short(digest)}".rstrip()


def _short(digest: str | None) -> str:
    return "" if digest is None else digest[:_DIGEST_DIGITS]


def _nothing(held: ReplicaAtOffset, replica: ReplicaSummary) -> str:
    match held.state:
        case OffsetState.BEYOND_LOG_END:
            return f"nothing: its log ends at {replica.log_end_offset}"
        case OffsetState.BEFORE_LOG_START:
            return f"nothing: its log starts at {replica.log_start_offset}"
        case OffsetState.IN_REMOTE_STORAGE:
            return f"in remote storage: its segments here start at {replica.local_log_start_offset}"
        case OffsetState.UNREADABLE:
            return "a batch that cannot be decoded"
        case OffsetState.NOT_READ:
            return "not known: its log could not be read"
    return "nothing at this offset"


def told(findings: Iterable[Finding], *, verbose: bool) -> tuple[list[Finding], list[Finding]]:
    """Findings to be told in full, what speaks of the difference first and then worst first, and the rest, all info."""
    every = sorted(
        findings, key=lambda finding: (finding.kind not in kinds_with(Trait.PARTS_REPLICAS), -finding.severity.rank, finding.kind)
    )
    shown = [
        finding
        for finding in every
        if verbose
        or finding.kind in kinds_with(Trait.PARTS_REPLICAS, Trait.HARMLESS_DIFFERENCE)
        or is_background(finding)
        or finding.severity is not Severity.INFO
    ]
    return shown, [finding for finding in every if finding not in shown]


def difference_sentence(compared: SideBySide) -> str:
    """Where the replicas differ, in a sentence without a full stop."""
    partition = compared.partition
    first, replicas = compared.first_difference, partition.replicas
    starts = [replica.local_log_start_offset for replica in replicas if replica.local_log_start_offset is not None]
    ends = [replica.log_end_offset for replica in replicas if replica.log_end_offset is not None]
    read = [replica for replica in replicas if replica.read is not ReadExtent.NONE]
    if len(read) < 2:
        which = f"only {plural(len(read), 'replica')}" if read else "no replica"
        return f"nothing could be compared: the log of {which} could be read"
    if first is None:
        return _no_difference(compared, max(starts), min(ends, default=0), len(read))
    if any(finding.kind in kinds_with(Trait.PARTS_REPLICAS) for finding in compared.result.findings) or _held_differently(compared):
        return f"first difference at offset {first}"
    short = [label for label, replica in zip(labels(compared), replicas, strict=True) if replica.log_end_offset == first]
    behind = plural(max(ends) - first, "offset")
    who, verb = (f"broker {short[0]} is", "holds") if len(short) == 1 else (f"brokers {', '.join(short)} are", "hold")
    held = f"the same below {first}" if first > min(starts, default=0) else "nothing"
    return f"no conflict: {who} {behind} behind and {verb} {held}"


def _no_difference(compared: SideBySide, start: int, end: int, replicas_read: int) -> str:
    """That replicas agree in offsets `[start, end)`, as far as they were read."""
    partition = compared.partition
    if end <= start:
        sure = "no difference found where readable" if partition.not_read else "no difference"
        remote = " outside remote storage" if partition.is_tiered else ""
        return f"{sure}: no offset is held by all of {plural(len(partition.replicas), 'replica')}{remote}"
    same = "the same values in" if partition.agreement.kind == "compacted" else "the same in"
    sure = "no difference" if is_harmless(compared.result.findings) else "no difference found"
    if compared.result.incomplete:
        sure = "no difference found where readable"
    return f"{sure}: {same} {span(start, end, 'offset')} on {plural(replicas_read, 'replica')}"


def title(compared: SideBySide) -> str:
    """Where the replicas differ, and what is known to be committed."""
    partition = compared.partition
    text = difference_sentence(compared)
    if partition.high_watermark_at_least is None:
        return text
    witness = f" ({printable(partition.high_watermark_witness)})" if partition.high_watermark_witness else ""
    return f"{text}; offsets below {partition.high_watermark_at_least} were committed{witness}"


def _held_differently(compared: SideBySide) -> bool:
    row = next((offset_row for offset_row in compared.rows if offset_row.offset == compared.first_difference), None)
    return row is not None and hold_different_things(row.held, _BEYOND)


def summary_line(compared: SideBySide) -> str:
    """`critical: audit-0 on 3 brokers: first difference at offset 300`."""
    partition = compared.partition
    where = name(partition.topic, partition.partition)
    return f"{compared.result.verdict}: {where} on {plural(len(partition.replicas), 'replica')}: {difference_sentence(compared)}"


# A comparison in every format: one document, an object or a row for each replica at each offset, Markdown for a ticket.


RECORD_COLUMNS: Final[Columns] = {
    **attributes("partition_leader_epoch"),
    **times("timestamp", "timestamp"),
    **attributes("timestamp_type producer_id"),
    "producer_id_string": lambda record: str(record.producer_id),
    **attributes("producer_epoch sequence control_record_type key_size key_digest value_size value_digest"),
    **attributes("headers_count headers_digest is_valid"),
}
"""Of a record, in every data format; null where a replica holds none."""
PAYLOAD_COLUMNS: Final[Columns] = {
    "key": lambda record: _text(record.key),
    "key_base64": lambda record: _base64(record.key),
    "value": lambda record: _text(record.value),
    "value_base64": lambda record: _base64(record.value),
    "headers": lambda record: [{"key": _text(key), "value": _text(value)} for key, value in record.headers],
}
_TSV_LEAVES_OUT: Final = frozenset({"producer_id_string", "key_base64", "value_base64"})


def write_comparison(compared: SideBySide, format_name: str, to: Destination, *, payloads: bool, verbose: bool) -> None:
    """Write `compared` to `to` in one of the formats of `options.FORMATS`; `payloads` adds keys, values and headers."""
    match format_name:
        case "table":
            write_table(compared, to, payloads=payloads, verbose=verbose)
        case "tsv":
            columns = [column for column in _columns(payloads) if column not in _TSV_LEAVES_OUT]
            to.stream.writelines(tsv_lines(["offset", "differs", "broker", "state", *columns], _flat(compared, payloads)))
        case "json":
            to.stream.writelines(_document(compared, payloads))
        case "jsonl":
            to.stream.writelines(_lines(compared, payloads))
        case "markdown":
            to.stream.writelines(_report(compared, verbose=verbose))
        case _:
            raise AssertionError(format_name)


def _columns(payloads: bool) -> Columns:
    return {**RECORD_COLUMNS, **PAYLOAD_COLUMNS} if payloads else RECORD_COLUMNS


def _held_object(held: ReplicaAtOffset, payloads: bool) -> Json:
    """What one replica holds at one offset."""
    columns = _columns(payloads)
    values = dict.fromkeys(columns) if held.record is None else object_of(columns, held.record)
    return {"broker": held.broker, "state": held.state.value, **values}


def _text(data: bytes | None) -> str | None:
    return None if data is None else printable(data)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _flat(compared: SideBySide, payloads: bool) -> Iterator[Json]:
    for row in compared.rows:
        for held in row.held:
            yield {"offset": row.offset, "differs": row.differs} | _held_object(held, payloads)


def _offsets(compared: SideBySide, payloads: bool) -> Iterator[Json]:
    for row in compared.rows:
        held = [_held_object(held, payloads) for held in row.held]
        yield {"offset": row.offset, "differs": row.differs, "replicas": held}


def _document(compared: SideBySide, payloads: bool) -> Iterator[str]:
    """The JSON document in pieces, a line an offset; `partition`, `findings` and `incomplete` as in a scan's."""
    result, partition = compared.result, compared.partition
    yield json_document.head(result.engine)
    yield f' "verdict": {json_text(result.verdict)},\n'
    replicas = [json_document.replica_object(replica) for replica in partition.replicas]
    yield f' "partition": {json_text({**json_document.partition_object(partition), "replicas": replicas})},\n'
    yield f' "first_difference": {json_text(compared.first_difference)},\n'
    yield from json_list(' "offsets"', _offsets(compared, payloads))
    yield from json_list(' "findings"', map(json_document.finding_object, result.findings))
    yield from json_list(' "incomplete"', map(json_document.incomplete_object, result.incomplete), "}\n")


def _lines(compared: SideBySide, payloads: bool) -> Iterator[str]:
    """An object with its `type` a line: the partition, its replicas, what each holds, findings, the summary."""
    result, partition = compared.result, compared.partition
    place = {"topic": partition.topic, "partition": partition.partition}
    yield json_line("partition", json_document.partition_object(partition))
    for replica in partition.replicas:
        yield json_line("replica", place | json_document.replica_object(replica))
    for row in _flat(compared, payloads):
        yield json_line("held", place | row)
    for finding in result.findings:
        yield json_line("finding", json_document.finding_object(finding))
    for gap in result.incomplete:
        yield json_line("incomplete", json_document.incomplete_object(gap))
    tool = {"schema_version": SCHEMA_VERSION, "tool": json_document.tool(result.engine)}
    yield json_line("summary", tool | {"verdict": result.verdict, "first_difference": compared.first_difference})


def _report(compared: SideBySide, *, verbose: bool) -> Iterator[str]:
    """Verdict, replicas, findings and the table as Markdown."""
    partition, result = compared.partition, compared.result
    crowded = crowded_brokers(result)
    where = name(partition.topic, partition.partition)
    yield f"# kafka-forensics: {markdown(where)}: {result.verdict}\n\n"
    yield f"{markdown(title(compared))}.\n\n"
    for label, replica in zip(labels(compared), partition.replicas, strict=True):
        summary = ", ".join(word for word in replica_words(replica) if word)
        yield f"- {markdown(f'{label}: {summary}' if label.startswith('#') else summary)}\n"
    shown, _ = told(result.findings, verbose=verbose)
    for finding in shown:
        yield f"\n**{markdown(finding.kind)}** ({finding.severity.value}): {markdown(message(finding))}"
        place = "" if finding.place.file is None else place_words(finding.place, crowded)
        yield f" Where: {markdown(place)}\n" if place else "\n"
    yield from (f"\n{markdown(line)}\n" for line in incomplete_lines(result))
    lines = lines_of(compared)
    if lines:
        columns = columns_of(lines)
        yield "\n"
        yield from markdown_lines(["", *columns], (_cells(line, columns) for line in lines))
        date = common_date(compared)
        times = f"Times are of {date}, UTC. " if date else "Times are UTC. "
        yield f"\n{times}Digests are the first digits of the SHA-256.\n"


def _cells(line: Line, columns: list[str]) -> dict[str, str]:
    cells = {column: line.cells.get(column, "") for column in columns} | {"": ">" if line.differs else ""}
    return cells if line.nothing is None else cells | {"time": line.nothing}


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
        heading = Text.assemble((name(partition.topic, partition.partition), "bold"), f"  {title(compared)}")
        self._hanging(Text(verdict.upper() if verdict != "clean" else verdict, STYLES[verdict]), heading, _GUTTER)
        self._replicas(compared)
        shown, brief = told(result.findings, verbose=verbose)
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
            self._hanging(Text(), Text(f"more with -v: {kinds}", "dim"), 2)

    def _finding(self, finding: Finding, crowded: Iterable[str]) -> None:
        self._hanging(Text(), Text(printable(message(finding))), _INDENT)
        if finding.place.file is not None:
            self._hanging(Text(" " * _INDENT + "where", "dim"), Text(place_words(finding.place, crowded)), _INDENT + 6)

    def _replicas(self, compared: SideBySide) -> None:
        replica_labels = labels(compared)
        rows = []
        for label, replica in zip(replica_labels, compared.partition.replicas, strict=True):
            words = replica_words(replica)
            rows.append([f"{label} {words[0]}" if label.startswith("#") else words[0], *words[1:]])
        for line in aligned(rows, self._console.width - 2):
            self._hanging(Text(), Text(line, "dim"), 2, deeper=4)

    def records(self, compared: SideBySide, *, payloads: bool) -> None:
        """The records around the first difference, a line for each thing held."""
        lines = lines_of(compared)
        columns = columns_of(lines)
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
        date = common_date(compared)
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


def _differing(held: list[Line], columns: list[str]) -> set[str]:
    """Columns in which the records held at one offset differ."""
    records = [line for line in held if line.record is not None]
    return {column for column in columns[2:] if len({line.cells.get(column) for line in records}) > 1}


def _line(
    line: Line, rows: list[list[str]], at: dict[str, int], widths: dict[str, int], differing: set[str], *, first: bool
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
