"""Results of scans in other forms: tables, the JSON document, and the short page that a notebook shows."""

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import IncompleteError, UsageError
from kafka_forensics.evidence.inputs import NodeIds
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts.answers import between_batches, change_batches
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.facts.rows import repeated
from kafka_forensics.model.changes import ChangeKind, SnapshotsResult
from kafka_forensics.model.findings import Finding, Severity, worst_first
from kafka_forensics.model.results import Drawing, PartitionSummary, ReplicaSummary, ScanResult
from kafka_forensics.model.safe_text import printable
from kafka_forensics.questions.changes import ComparedSnapshots
from kafka_forensics.wording import CHANGE_HEADS, advice, change_cells, message

if TYPE_CHECKING:
    import pyarrow as pa


MAX_PAGE_BYTES: Final = 100_000
_ROWS: Final = 60
_CELL_CHARACTERS: Final = 240
_COLOURS: Final = {
    "critical": "#a4121f",
    "error": "#b4530a",
    "warning": "#806600",
    "info": "#31618c",
    "unknown": "#7a3b91",
    "clean": "#256b2f",
}


class ScanViews:
    """The `DrawingViews` of a result; `reader` reads its facts, `document` makes the JSON, `draw` the lanes of a partition."""

    def __init__(
        self,
        reader: FactReader,
        document: Callable[[ScanResult], Iterable[str]],
        draw: Callable[[FactReader, str, int], Drawing] | None = None,
    ) -> None:
        self._reader = reader
        self._unread = {unread.path for unread in reader.result.incomplete}
        """What the scan itself could not read."""
        self._document = document
        self._draw = draw

    def table(self, fact: str, *, payloads: bool = False, allow_incomplete: bool = False) -> "pa.Table":
        """A fact as one table. Raises UsageError for an unknown fact, and IncompleteError."""
        reader = replace(self._reader, payloads=payloads, incomplete=[])
        table = reader.table(fact)
        reader.incomplete += reader.changed_files([fact])
        lost = [unread for unread in reader.incomplete if unread.path not in self._unread]
        if lost and not allow_incomplete:
            raise IncompleteError(lost[0].path, lost[0].reason, len({unread.path for unread in lost}) - 1)
        incomplete = reader.result.incomplete
        known = {(unread.path, unread.reason) for unread in incomplete}
        incomplete += [unread for unread in reader.unread_inputs() if (unread.path, unread.reason) not in known]
        return table

    def json(self) -> str:
        """The document that `scan --format json` prints."""
        return "".join(self._document(self._reader.result))

    def lanes(self, topic: str, partition: int) -> Drawing:
        """The lanes of a partition. Raises UsageError for an unknown partition, and if nothing draws lanes here."""
        if self._draw is None:
            raise UsageError("this function does not draw lanes", hint="`report` draws them, also from to_json()")
        return self._draw(self._reader, topic, partition)

    def html(self) -> str:
        """Verdict, totals, partitions that are not clean, the most severe findings; fewer rows if the page would be too large."""
        return page(self._reader.result)


def finding_text(finding: Finding) -> tuple[str, str | None]:
    """A finding's message and advice."""
    return message(finding), advice(finding)


def page(result: ScanResult) -> str:
    """The page of `ScanViews.html`."""
    return _within_limit(partial(_page, result))


def _within_limit(page_of: Callable[[int], str]) -> str:
    """A page with fewer than `MAX_PAGE_BYTES`; `page_of` makes one with a number of rows."""
    rows = _ROWS
    while len((text := page_of(rows)).encode()) >= MAX_PAGE_BYTES:
        rows //= 2
    return text


def _page(result: ScanResult, rows: int) -> str:
    totals = result.totals
    bytes_read = f"{totals.bytes_decoded:,} bytes decoded, {totals.bytes_damaged:,} damaged, {totals.bytes_skipped:,} skipped"
    sums = (
        f"{totals.partitions:,} partitions, {totals.replicas:,} replicas on {totals.brokers:,} brokers;"
        f" {totals.segments:,} segments, {totals.batches:,} batches, {totals.records:,} records; {bytes_read}"
    )
    pieces = [f"<div><p><b>{html_severity(result.verdict)}</b> {html_cell(sums)}</p>"]
    if result.incomplete:
        first = result.incomplete[0]
        pieces.append(f"<p>incomplete: {len(result.incomplete):,} inputs, {html_cell(f'{first.path}: {first.reason}')}</p>")
    judged = [partition for partition in result.partitions if partition.verdict not in ("clean", "info") or partition.not_read]
    pieces.append(
        html_table(
            "partitions that are not clean", _PARTITION_HEADS, [_partition(partition) for partition in judged[:rows]], len(judged)
        )
    )
    worst = worst_first(result.findings)
    findings = [finding for finding in worst if finding.severity is not Severity.INFO] or worst
    pieces.append(
        html_table("findings, worst first", _FINDING_HEADS, [finding_cells(finding) for finding in findings[:rows]], len(findings))
    )
    return "".join(pieces) + "</div>"


_PARTITION_HEADS: Final = ("partition", "verdict", "agreement", "log ends", "high watermark at least")
_FINDING_HEADS: Final = ("kind", "severity", "confidence", "what", "advice")


def _partition(partition: PartitionSummary) -> list[str]:
    ends = ", ".join(f"{replica.broker}: {_end(replica)}" for replica in partition.replicas)
    least = "" if partition.high_watermark_at_least is None else str(partition.high_watermark_at_least)
    return [
        html_cell(f"{partition.topic}-{partition.partition}"),
        html_severity(partition.verdict) + html_cell(" of what could be read" if partition.not_read else ""),
        *map(html_cell, (partition.agreement.kind, ends, least)),
    ]


def _end(replica: ReplicaSummary) -> str:
    """The log end, or how far the log was read."""
    if replica.log_end_offset is not None:
        return str(replica.log_end_offset)
    return "not read" if replica.read_end_offset is None else f"read to {replica.read_end_offset}"


def finding_cells(finding: Finding) -> list[str]:
    """Cells of a row about a finding: kind, severity, confidence, what, advice."""
    texts = finding.confidence.value, message(finding), advice(finding) or ""
    return [html_cell(finding.kind), html_severity(finding.severity.value), *map(html_cell, texts)]


def html_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], count: int) -> str:
    """A table of HTML cells under its title; empty without rows. `count` is the number of rows before the page was limited."""
    if not rows:
        return ""
    more = f" (the first {len(rows):,} of {count:,})" if len(rows) < count else ""
    head = "".join(f"<th>{html_cell(title)}</th>" for title in heads)
    cells = ("".join(f"<td style='text-align:left'>{cell}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{cell}</tr>" for cell in cells)
    return f"<p>{html_cell(title)}{more}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_severity(name: str) -> str:
    """The name of a severity in its colour."""
    return f'<span style="color:{_COLOURS.get(name, "inherit")}">{html_cell(name)}</span>'


def html_cell(value: str) -> str:
    """`value` as text of a page: shortened, without markup, with control and bidirectional characters escaped."""
    short = value if len(value) <= _CELL_CHARACTERS else value[: _CELL_CHARACTERS - 1] + "…"
    return html.escape(printable(short))


_SNAPSHOT_HEADS: Final = ("snapshot", "verdict", "partitions", "replicas", "findings")
_QUIET: Final = frozenset({ChangeKind.UNCHANGED, ChangeKind.APPENDED, ChangeKind.DELETED, ChangeKind.CLEANED})
"""Everyday changes, listed after all others."""


class SnapshotsViews:
    """The `Views` of a result about snapshots; `scans` are those of each, `between` has the node ids of all brokers, and makes rows
    of the findings between snapshots; `document` makes the JSON."""

    def __init__(
        self,
        scans: dict[str, ScanViews],
        between: FactReader,
        result: SnapshotsResult,
        document: Callable[[SnapshotsResult], Iterable[str]],
    ) -> None:
        self._scans = scans
        self._between = between
        self._result = result
        self._document = document

    def table(self, fact: str, *, payloads: bool = False, allow_incomplete: bool = False) -> "pa.Table":
        """`changes`, or a fact of every snapshot in order. Raises UsageError for an unknown fact, and IncompleteError."""
        import pyarrow as pa

        from kafka_forensics.model.schemas import FACTS, SNAPSHOT, SNAPSHOT_FACTS

        if fact in SNAPSHOT_FACTS:
            batches = change_batches(self._result.changes, self._between.node_ids)
            return pa.Table.from_batches(batches, SNAPSHOT_FACTS[fact].schema)
        if fact not in FACTS:
            raise UsageError(f"there is no fact {fact[:80]!r}", hint=f"choose from {', '.join([*FACTS, *SNAPSHOT_FACTS])}")
        tables = []
        for name, scan in self._scans.items():
            table = scan.table(fact, payloads=payloads, allow_incomplete=allow_incomplete)
            tables.append(table.add_column(0, SNAPSHOT, repeated(name, table.num_rows)))
        if fact == "findings":
            batches = between_batches(self._result.findings, self._between.finding_row)
            tables.append(pa.Table.from_batches(batches, tables[0].schema))
        return pa.concat_tables(tables).replace_schema_metadata(FACTS[fact].schema.metadata)

    def json(self) -> str:
        """The document that `changes --format json` prints."""
        return "".join(self._document(self._result))

    def html(self) -> str:
        """Snapshots, findings between them, changes with the uncommon first; fewer rows if the page would be too large."""
        return _within_limit(partial(_snapshots_page, self._result))


def with_views(
    compared: ComparedSnapshots,
    options: ScanOptions,
    scan_document: Callable[[ScanResult], Iterable[str]],
    changes_document: Callable[[SnapshotsResult], Iterable[str]],
) -> SnapshotsResult:
    """The result, with views of itself and of its scans."""
    views = {}
    for snapshot in compared.snapshots:
        result = compared.result.snapshots[snapshot.name]
        reader = FactReader(snapshot.inputs, options, result, snapshot.witnesses, finding_text)
        result.views = views[snapshot.name] = ScanViews(reader, scan_document)
    between = replace(reader)
    between.node_ids = NodeIds.of(log_dir for snapshot in compared.snapshots for log_dir in snapshot.inputs.log_dirs)
    compared.result.views = SnapshotsViews(views, between, compared.result, changes_document)
    return compared.result


def _snapshots_page(result: SnapshotsResult, rows: int) -> str:
    changed = [change for change in result.changes if change.kind is not ChangeKind.UNCHANGED]
    sums = (
        f"{len(result.snapshots):,} snapshots; {len(changed):,} changes, {len(result.changes) - len(changed):,} replicas unchanged"
    )
    pieces = [f"<div><p><b>{html_severity(result.verdict)}</b> {html_cell(sums)}</p>"]
    pieces += [f"<p>{html_cell(note)}</p>" for note in result.notes[:rows]]
    scans = []
    for name, scan in result.snapshots.items():
        counts = (f"{len(listed):,}" for listed in (scan.partitions, scan.replicas, scan.findings))
        scans.append([html_cell(name), html_severity(scan.verdict), *counts])
    pieces.append(html_table("snapshots", _SNAPSHOT_HEADS, scans[:rows], len(scans)))
    worst = worst_first(result.findings)
    pieces.append(html_table("findings between snapshots", _FINDING_HEADS, list(map(finding_cells, worst[:rows])), len(worst)))
    first = sorted(changed, key=lambda change: change.kind in _QUIET)
    pieces.append(
        html_table("changes", CHANGE_HEADS, [list(map(html_cell, change_cells(change))) for change in first[:rows]], len(changed))
    )
    return "".join(pieces) + "</div>"
