"""A comparison of replicas in every format; at a terminal: verdict, replicas, findings, then the records at each offset, where one
line is for all replicas that have the same record."""

import base64
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.outputs.console_page import ConsolePage
from kafka_forensics.cli.outputs.rows import tsv_lines
from kafka_forensics.cli.outputs.words import (
    crowded_brokers,
    is_harmless,
    name,
    replica_words,
)
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import json_line, json_list
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.json_objects import Columns, Json, attributes, json_text, object_of, rfc3339, times
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.results import SCHEMA_VERSION, ReadExtent, ReplicaSummary
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.questions.compare import (
    HeldRecord,
    OffsetPresence,
    OffsetRow,
    ReplicaAtOffset,
    SideBySide,
    differ_at_offset,
)
from kafka_forensics.wording import is_background, offset_range

COLUMNS: Final = ("offset", "broker", "epoch", "time", "producer", "key", "value", "headers", "remarks")
_OPTIONAL: Final = frozenset({"epoch", "producer", "headers", "remarks"})
_LONG_NAME: Final = 12
_DIGEST_DIGITS: Final = 6
_ALL: Final = "all"
_OUTSIDE: Final = (OffsetPresence.BEFORE_LOG_START, OffsetPresence.IN_REMOTE_STORAGE, OffsetPresence.BEYOND_LOG_END)
_UNREADABLE_HERE: Final = (OffsetPresence.BEYOND_LOG_END, OffsetPresence.IN_REMOTE_STORAGE, OffsetPresence.NOT_READ)


class _TableLine(NamedTuple):
    """The record that some replicas have at an offset, as text by column, or in `no_record` why they have none."""

    offset: int
    differs: bool
    cells: dict[str, str]
    no_record: str | None
    record: HeldRecord | None


def _labels(compared: SideBySide) -> list[str]:
    """A short name for each replica: its broker, or `#1` where such names are long."""
    names = [unquoted(str(replica.broker)) for replica in compared.partition.replicas]
    names += [REMOTE if number == 1 else f"{REMOTE} {number}" for number in range(1, len(compared.remote) + 1)]
    return [f"#{number}" for number in range(1, len(names) + 1)] if max(map(len, names)) > _LONG_NAME else names


def _table_of(compared: SideBySide) -> tuple[list[_TableLine], list[str]]:
    """A line for each different record at each offset, and the columns that are filled in any of them."""
    date = _common_date(compared)
    replica_labels = _labels(compared)
    lines = []
    for row in compared.rows:
        for indexes, held in _groups(row):
            label = _ALL if len(indexes) == len(replica_labels) else ", ".join(replica_labels[index] for index in indexes)
            cells = {"offset": str(row.offset), "broker": label}
            no_record = None
            if held.record is None:
                no_record = _reason_without_record(held, compared.replicas[indexes[0]])
            else:
                cells |= _record_cells(held.record, date)
            lines.append(_TableLine(row.offset, row.differs, cells, no_record, held.record))
    filled = {column for line in lines for column, text in line.cells.items() if text}
    return lines, [column for column in COLUMNS if column in filled or column not in _OPTIONAL]


def _groups(row: OffsetRow) -> list[tuple[list[int], ReplicaAtOffset]]:
    """(indexes of replicas, what they have) for each different record at one offset, in the order of the replicas."""
    groups: dict[tuple[object, ...], tuple[list[int], ReplicaAtOffset]] = {}
    for index, held in enumerate(row.held):
        single = index if held.state in _OUTSIDE else None  # its reason names this replica's log start or end
        groups.setdefault((held.state, held.record, single), ([], held))[0].append(index)
    return list(groups.values())


def _common_date(compared: SideBySide) -> str | None:
    """The UTC date of all records shown, None if there are several or none."""
    times = (rfc3339(held.record.timestamp) for row in compared.rows for held in row.held if held.record is not None)
    dates = {time[:10] for time in times if time}
    return dates.pop() if len(dates) == 1 else None


def _record_cells(record: HeldRecord, date: str | None) -> dict[str, str]:
    sequence = "" if record.sequence < 0 else f" #{record.sequence}"
    return {
        "epoch": "" if record.partition_leader_epoch < 0 else str(record.partition_leader_epoch),
        "time": _time(record.timestamp, date),
        "producer": "" if record.producer_id < 0 else f"{record.producer_id}/{record.producer_epoch}{sequence}",
        "key": record.control_record_type or _content_text(record.key_size, record.key_digest),
        "value": _content_text(record.value_size, record.value_digest),
        "headers": "" if not record.headers_count else f"{record.headers_count} {_short(record.headers_digest)}".rstrip(),
        "remarks": "" if record.is_valid else "CRC wrong",
    }


def _time(timestamp: int, date: str | None) -> str:
    stamp = rfc3339(timestamp)
    if stamp is None:
        return "none" if timestamp == -1 else str(timestamp)
    day, _, moment = stamp.rstrip("Z").partition("T")
    return moment if date else f"{day} {moment}"


def _content_text(size: int, digest: str | None) -> str:
    """`47 B f83d0a`, `empty` or `null`."""
    if size <= 0:
        return "null" if size < 0 else "empty"
    return f"{size} B {_short(digest)}".rstrip()


def _short(digest: str | None) -> str:
    return "" if digest is None else digest[:_DIGEST_DIGITS]


def _reason_without_record(held: ReplicaAtOffset, replica: ReplicaSummary) -> str:
    match held.state:
        case OffsetPresence.BEYOND_LOG_END:
            return f"nothing: its log ends at {replica.log_end_offset}"
        case OffsetPresence.BEFORE_LOG_START:
            return f"nothing: its log starts at {replica.log_start_offset}"
        case OffsetPresence.IN_REMOTE_STORAGE:
            return f"in remote storage: its segments here start at {replica.local_log_start_offset}"
        case OffsetPresence.NOT_COPIED:
            return "in no remote segment"
        case OffsetPresence.UNREADABLE:
            return "a batch that cannot be decoded"
        case OffsetPresence.NOT_READ:
            return "not known: its log could not be read"
    return "nothing at this offset"


def _shown_and_counted(findings: Iterable[Finding], *, verbose: bool) -> tuple[list[Finding], list[Finding]]:
    """Findings to show in full, those about the difference first, then worst first; and those to count, all of them info."""
    in_order = sorted(
        findings, key=lambda finding: (finding.kind not in kinds_with(Trait.PARTS_REPLICAS), -finding.severity.rank, finding.kind)
    )
    shown, counted = list[Finding](), list[Finding]()
    for finding in in_order:
        is_difference = finding.kind in kinds_with(Trait.PARTS_REPLICAS, Trait.HARMLESS_DIFFERENCE)
        is_shown = verbose or is_difference or is_background(finding) or finding.severity is not Severity.INFO
        (shown if is_shown else counted).append(finding)
    return shown, counted


def _difference_sentence(compared: SideBySide) -> str:
    """Where the replicas differ, in a sentence without a full stop."""
    partition = compared.partition
    first, replicas = compared.first_difference, partition.replicas
    starts = [replica.local_log_start_offset for replica in replicas if replica.local_log_start_offset is not None]
    ends = [replica.log_end_offset for replica in replicas if replica.log_end_offset is not None]
    read = [replica for replica in replicas if replica.read is not ReadExtent.NONE]
    if len(read) + len(compared.remote) < 2:
        which = f"only {plural(len(read), 'replica')}" if read else "no replica"
        return f"nothing could be compared: the log of {which} could be read"
    if first is None:
        return _no_difference(compared, max(starts), min(ends, default=0), len(read))
    rows = (row for row in compared.rows if row.offset == first)
    has_conflict = any(finding.kind in kinds_with(Trait.PARTS_REPLICAS) for finding in compared.result.findings)
    if has_conflict or any(differ_at_offset(row.held, _UNREADABLE_HERE) for row in rows):
        return f"first difference at offset {first}"
    short = [label for label, replica in zip(_labels(compared), replicas, strict=False) if replica.log_end_offset == first]
    lag = plural(max(ends) - first, "offset")
    who, verb = (f"broker {short[0]} lags", "holds") if len(short) == 1 else (f"brokers {', '.join(short)} lag", "hold")
    held = f"the same below {first}" if first > min(starts, default=0) else "nothing"
    return f"no conflict: {who} by {lag} and {verb} {held}"


def _no_difference(compared: SideBySide, start: int, end: int, replicas_read: int) -> str:
    """A sentence for replicas that agree in offsets `[start, end)`, as far as they were read."""
    partition = compared.partition
    if compared.remote:
        sure = "no difference found where readable" if compared.result.incomplete else "no difference"
        return f"{sure}: {plural(replicas_read, 'replica')} and remote storage have the same where any two have an offset"
    if end <= start:
        sure = "no difference found where readable" if partition.not_read else "no difference"
        remote = " outside remote storage" if partition.is_tiered else ""
        return f"{sure}: no offset is held by all of {plural(len(partition.replicas), 'replica')}{remote}"
    same = "the same values in" if partition.agreement.kind == "compacted" else "the same in"
    sure = "no difference" if is_harmless(compared.result.findings) else "no difference found"
    if compared.result.incomplete:
        sure = "no difference found where readable"
    return f"{sure}: {same} {offset_range(start, end, 'offset')} on {plural(replicas_read, 'replica')}"


def _title(compared: SideBySide) -> str:
    """Where the replicas differ, and which offsets are known to be committed."""
    partition = compared.partition
    text = _difference_sentence(compared)
    if partition.high_watermark_at_least is None:
        return text
    witness = f" ({unquoted(partition.high_watermark_witness)})" if partition.high_watermark_witness else ""
    return f"{text}; offsets below {partition.high_watermark_at_least} were committed{witness}"


def summary_line(compared: SideBySide) -> str:
    """`critical: audit-0 on 3 brokers: first difference at offset 300`."""
    partition = compared.partition
    where = name(partition.topic, partition.partition)
    on = f"{plural(len(partition.replicas), 'replica')}{' and in remote storage' if compared.remote else ''}"
    return f"{compared.result.verdict}: {where} on {on}: {_difference_sentence(compared)}"


RECORD_COLUMNS: Final[Columns] = {
    **attributes("partition_leader_epoch"),
    **times("timestamp", "timestamp"),
    **attributes("timestamp_type producer_id"),
    "producer_id_string": lambda record: str(record.producer_id),
    **attributes("producer_epoch sequence control_record_type key_size key_digest value_size value_digest"),
    **attributes("headers_count headers_digest is_valid"),
}
"""Columns of a record in TSV and JSON; null where a replica has no record."""
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
    if format_name == "text":
        page = _ComparisonPage(to.console())
        page.summary(compared, verbose=verbose)
        if compared.rows:
            page.records(compared, payloads=payloads)
        return
    columns = {**RECORD_COLUMNS, **PAYLOAD_COLUMNS} if payloads else RECORD_COLUMNS
    tsv_columns = ["offset", "differs", "broker", "state", *(column for column in columns if column not in _TSV_LEAVES_OUT)]
    answer = {
        "tsv": tsv_lines(tsv_columns, _replica_rows(compared, columns)),
        "json": _document(compared, columns),
        "jsonl": _json_lines(compared, columns),
    }
    to.stream.writelines(answer[format_name])


def _held_object(held: ReplicaAtOffset, columns: Columns) -> Json:
    """What one replica has at one offset."""
    values = dict.fromkeys(columns) if held.record is None else object_of(columns, held.record)
    return {"broker": held.broker, "state": held.state.value, **values}


def _text(data: bytes | None) -> str | None:
    return None if data is None else printable(data)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _replica_rows(compared: SideBySide, columns: Columns) -> Iterator[Json]:
    for row in compared.rows:
        for held in row.held:
            yield {"offset": row.offset, "differs": row.differs} | _held_object(held, columns)


def _document(compared: SideBySide, columns: Columns) -> Iterator[str]:
    """The JSON document in pieces, a line for each offset; `partition`, `findings` and `incomplete` as in a scan's document."""
    result, partition = compared.result, compared.partition
    yield json_document.head(result.engine)
    yield f' "verdict": {json_text(result.verdict)},\n'
    replicas = [json_document.replica_object(replica) for replica in compared.replicas]
    yield f' "partition": {json_text({**json_document.partition_object(partition), "replicas": replicas})},\n'
    yield f' "first_difference": {json_text(compared.first_difference)},\n'
    offsets = (
        {"offset": row.offset, "differs": row.differs, "replicas": [_held_object(held, columns) for held in row.held]}
        for row in compared.rows
    )
    yield from json_list(' "offsets"', offsets)
    yield from json_list(' "findings"', map(json_document.finding_object, result.findings))
    yield from json_list(' "incomplete"', map(json_document.incomplete_object, result.incomplete), "}\n")


def _json_lines(compared: SideBySide, columns: Columns) -> Iterator[str]:
    """An object with its `type` a line: the partition, its replicas, the records of each, findings, the summary."""
    result, partition = compared.result, compared.partition
    place = {"topic": partition.topic, "partition": partition.partition}
    yield json_line("partition", json_document.partition_object(partition))
    for replica in compared.replicas:
        yield json_line("replica", place | json_document.replica_object(replica))
    for row in _replica_rows(compared, columns):
        yield json_line("held", place | row)
    for finding in result.findings:
        yield json_line("finding", json_document.finding_object(finding))
    for unread in result.incomplete:
        yield json_line("incomplete", json_document.incomplete_object(unread))
    tool = {"schema_version": SCHEMA_VERSION, "tool": json_document.tool(result.engine)}
    yield json_line("summary", tool | {"verdict": result.verdict, "first_difference": compared.first_difference})


_GAP: Final = 2
_SHOWN_FINDINGS: Final = 8
_PAYLOAD_CHARACTERS: Final = 4096
"""Characters of a payload that are made safe before it is cut to one line."""
_SECOND_LINE: Final = ("key", "value", "headers", "remarks")
_RIGHT: Final = frozenset({"offset"})


class _ComparisonPage(ConsolePage):
    def summary(self, compared: SideBySide, *, verbose: bool) -> None:
        """Verdict, replicas, and the findings in sentences."""
        partition, result = compared.partition, compared.result
        heading = Text.assemble((name(partition.topic, partition.partition), "bold"), f"  {_title(compared)}")
        self.heading(result.verdict, heading)
        replicas = []
        for label, replica in zip(_labels(compared), compared.replicas, strict=True):
            broker, *columns = replica_words(replica)
            replicas.append([f"{label} {broker}" if label.startswith("#") else broker, *columns])
        self.replicas(replicas, "dim")
        shown, counted = _shown_and_counted(result.findings, verbose=verbose)
        crowded = crowded_brokers(result)
        first = shown if verbose else shown[:_SHOWN_FINDINGS]
        for _, group in groupby(first, key=attrgetter("kind", "severity", "confidence")):
            findings = list(group)
            self.kind(findings[0])
            for finding in findings:
                self.finding(finding, crowded)
        if hidden := len(shown) - len(first):
            self.paragraph(f"... and {hidden} more findings; -v shows all", 2, "dim")
        if counted:
            self.console.print()
            self.paragraph(f"more with -v: {', '.join(sorted({finding.kind for finding in counted}))}", 2, "dim")

    def records(self, compared: SideBySide, *, payloads: bool) -> None:
        """The records around the first difference, a line for each different record."""
        lines, columns = _table_of(compared)
        widths = {column: max(len(column), *(cell_len(line.cells.get(column, "")) for line in lines)) for column in columns}
        rows = [columns]
        if sum(widths.values()) + _GAP * len(columns) > self.console.width:
            rows = [[column for column in columns if (column in _SECOND_LINE) is is_second] for is_second in (False, True)]
        starts = dict.fromkeys(columns, 0)
        for row in rows:
            start = _GAP if row is rows[0] else starts["broker"] + widths["broker"] + _GAP
            for column in row:
                starts[column] = start
                start += widths[column] + _GAP
        layout = _Layout(rows, starts, widths)
        self.console.print()
        self.print_lines(layout.headings())
        for offset, group in groupby(lines, key=lambda line: line.offset):
            lines_at_offset = list(group)
            if offset == compared.first_difference and lines[0].offset != offset:
                self.console.print(Text(" " * _GAP + "-" * (self.console.width - 2 * _GAP), "dim"), soft_wrap=True)
            differing = _differing(lines_at_offset, columns)
            for number, line in enumerate(lines_at_offset):
                self.print_lines(layout.line(line, differing, first=number == 0))
                if payloads and line.record is not None:
                    self._payloads(line.record, layout.after_broker)
        date = _common_date(compared)
        marks = "> differs; " if any(row.differs for row in compared.rows) else ""
        times = f"times of {date}, UTC" if date else "times UTC"
        more = "" if payloads else "; --show-payloads shows keys and values"
        self.console.print()
        self.paragraph(f"{marks}{times}; digests: first digits of SHA-256{more}", 2, "dim")

    def _payloads(self, record: HeldRecord, indent: int) -> None:
        parts = [("key", record.key), ("value", record.value)]
        for key, value in record.headers:
            parts.append((f"header {printable(key[:_PAYLOAD_CHARACTERS])}", value))
        for label, data in parts:
            if data is None:
                continue
            text = Text(f"{label:5}  {printable(data[:_PAYLOAD_CHARACTERS])}")
            text.truncate(max(20, self.console.width - indent), overflow="ellipsis")
            self.print_lines([Text(" " * indent).append_text(text)])


def _differing(lines: list[_TableLine], columns: list[str]) -> set[str]:
    """Columns in which the records at one offset differ."""
    records = [line for line in lines if line.record is not None]
    return {column for column in columns[2:] if len({line.cells.get(column) for line in records}) > 1}


class _Layout(NamedTuple):
    """Where the columns of the table stand: on one line or two, from which character on, how wide."""

    rows: list[list[str]]
    starts: dict[str, int]
    widths: dict[str, int]

    @property
    def after_broker(self) -> int:
        """The first character after the column of brokers."""
        return self.starts["broker"] + self.widths["broker"] + _GAP

    def headings(self) -> Iterator[Text]:
        for row in self.rows:
            text = Text()
            for column in row:
                self._append(text, column, column, "bold")
            yield text

    def line(self, line: _TableLine, differing: set[str], *, first: bool) -> Iterator[Text]:
        """A line of the table as one line or two; it shows the offset only if it is the `first` of its offset."""
        for row in self.rows[: None if line.no_record is None else 1]:
            text = Text.assemble((">", "bold red")) if line.differs and row is self.rows[0] else Text()
            for column in row:
                cell = line.cells.get(column, "")
                if cell and (column != "offset" or first):
                    style = "bold red" if column in differing else "" if line.differs or column in ("offset", "broker") else "dim"
                    self._append(text, column, cell, style)
            if line.no_record is not None:
                text.append(" " * (self.after_broker - text.cell_len)).append(line.no_record, "yellow")
            yield text

    def _append(self, text: Text, column: str, cell: str, style: str) -> None:
        text.append(" " * (self.starts[column] - text.cell_len))
        text.append(cell.rjust(self.widths[column]) if column in _RIGHT else cell, style)
