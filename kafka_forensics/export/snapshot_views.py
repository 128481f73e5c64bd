"""The answer about several snapshots in other forms: tables with their snapshot's name, the JSON document, a page for notebooks."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.views import MAX_PAGE_BYTES, ScanViews, finding_cells, html_cell, html_severity, html_table, words
from kafka_forensics.facts.change_rows import between_batches, change_batches
from kafka_forensics.facts.facts import FactReader
from kafka_forensics.facts.rows import repeated
from kafka_forensics.model.changes import Change, ChangeKind, SnapshotsResult
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.changes import Compared
from kafka_forensics.wording.change_words import change_words
from kafka_forensics.wording.offset_words import offset_range

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 60
_CHANGE_HEADS: Final = ("partition", "broker", "from", "to", "offsets", "what changed")
_FINDING_HEADS: Final = ("kind", "severity", "confidence", "what", "advice")
_SNAPSHOT_HEADS: Final = ("snapshot", "verdict", "partitions", "replicas", "findings")
_QUIET: Final = frozenset({ChangeKind.UNCHANGED, ChangeKind.APPENDED, ChangeKind.DELETED, ChangeKind.CLEANED})
"""What goes on every day; told behind everything else."""


class SnapshotsViews:
    """The `Views` of an answer, over the readers of each snapshot's facts; `document` makes the JSON."""

    def __init__(
        self, readers: dict[str, FactReader], result: SnapshotsResult, document: Callable[[SnapshotsResult], Iterable[str]]
    ) -> None:
        self._readers = readers
        self._result = result
        self._document = document

    def table(self, fact: str) -> "pa.Table":
        """`changes`, or a fact of every snapshot in their order. Raises UsageError if there is no such fact."""
        import pyarrow as pa

        from kafka_forensics.model.schemas import FACTS
        from kafka_forensics.model.schemas.changes import SNAPSHOT, SNAPSHOT_FACTS

        if fact in SNAPSHOT_FACTS:
            return pa.Table.from_batches(change_batches(self._result.changes), SNAPSHOT_FACTS[fact].schema)
        if fact not in FACTS:
            raise UsageError(f"there is no fact {fact[:80]!r}", hint=f"choose from {', '.join([*FACTS, *SNAPSHOT_FACTS])}")
        found = []
        for name, reader in self._readers.items():
            table = reader.table(fact)
            found.append(table.add_column(0, SNAPSHOT, repeated(name, table.num_rows)))
        if fact == "findings":
            row = next(iter(self._readers.values())).finding_row
            found.append(pa.Table.from_batches(between_batches(self._result.findings, row), found[0].schema))
        return pa.concat_tables(found).replace_schema_metadata(FACTS[fact].schema.metadata)

    def json(self) -> str:
        """The document that `changes --format json` prints."""
        return "".join(self._document(self._result))

    def html(self) -> str:
        """Snapshots, findings between them, changes with the uncommon first; fewer of them if they would not fit."""
        rows = _ROWS
        while len((text := _page(self._result, rows)).encode()) >= MAX_PAGE_BYTES:
            rows //= 2
        return text


def with_views(
    compared: Compared,
    options: ScanOptions,
    scan_document: Callable[[ScanResult], Iterable[str]],
    changes_document: Callable[[SnapshotsResult], Iterable[str]],
) -> SnapshotsResult:
    """The answer with what shows it in other forms; so are the scans in it."""
    readers = {}
    for snapshot in compared.snapshots:
        result = compared.result.snapshots[snapshot.name]
        readers[snapshot.name] = reader = FactReader(snapshot.inputs, options, result, snapshot.witnesses, words)
        result.views = ScanViews(reader, scan_document)
    compared.result.views = SnapshotsViews(readers, compared.result, changes_document)
    return compared.result


def _page(result: SnapshotsResult, rows: int) -> str:
    changed = [change for change in result.changes if change.kind is not ChangeKind.UNCHANGED]
    sums = (
        f"{len(result.snapshots):,} snapshots; {len(changed):,} changes, {len(result.changes) - len(changed):,} replicas unchanged"
    )
    pieces = [f"<div><p><b>{html_severity(result.verdict)}</b> {html_cell(sums)}</p>"]
    pieces += [f"<p>{html_cell(note)}</p>" for note in result.notes[:rows]]
    scans = [
        [
            html_cell(name),
            html_severity(scan_result.verdict),
            *(f"{count:,}" for count in (len(scan_result.partitions), len(scan_result.replicas), len(scan_result.findings))),
        ]
        for name, scan_result in result.snapshots.items()
    ]
    pieces.append(html_table("snapshots", _SNAPSHOT_HEADS, scans[:rows], len(scans)))
    worst = sorted(result.findings, key=lambda finding: -finding.severity.rank)
    pieces.append(html_table("findings between snapshots", _FINDING_HEADS, list(map(finding_cells, worst[:rows])), len(worst)))
    first = sorted(changed, key=lambda change: change.kind in _QUIET)
    pieces.append(html_table("changes", _CHANGE_HEADS, [_change(change) for change in first[:rows]], len(changed)))
    return "".join(pieces) + "</div>"


def _change(change: Change) -> list[str]:
    place = f"{change.topic}-{change.partition}", str(change.broker), change.from_snapshot, change.to_snapshot
    offsets = offset_range(change.offset_start, change.offset_end) if change.has_offsets else "not known"
    return [html_cell(each) for each in (*place, offsets, change_words(change))]
