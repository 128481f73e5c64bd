"""Changes between snapshots as JSON: one document, or one object a line. `schema/changes-1.1.json` describes the document."""

from collections import Counter
from collections.abc import Iterator

from kafka_forensics.export.json_document import (
    Shape,
    counted,
    finding_object,
    head,
    incident_object,
    incomplete_object,
    json_line,
    json_list,
    tool,
)
from kafka_forensics.model.changes import Change, ChangeKind, SnapshotsResult, change_values
from kafka_forensics.model.json_objects import Json, json_text, with_twins
from kafka_forensics.model.results import Incomplete, ScanResult


def document(result: SnapshotsResult, shape: Shape | None = None) -> Iterator[str]:
    """The JSON document in pieces, a line a row; in another `shape` than the present one if asked."""
    shape = shape or Shape()
    yield head(shape, _engine(result))
    yield from json_list(' "snapshots"', (_snapshot(name, scan, shape) for name, scan in result.snapshots.items()))
    yield f' "summary": {json_text(_summary(result, shape))},\n'
    yield from json_list(' "changes"', shape.changes(map(_change, result.changes)))
    yield from json_list(' "findings"', map(finding_object, result.findings))
    if incidents := shape.incidents(map(incident_object, result.incidents)):
        yield from json_list(' "incidents"', incidents)
    yield f' "notes": {json_text(result.notes)},\n'
    yield from json_list(' "incomplete"', (_gap(name, gap, shape) for name, gap in incomplete_rows(result)), "}\n")


def lines(result: SnapshotsResult, shape: Shape | None = None) -> Iterator[str]:
    """The same as JSON Lines, an object with its `type` each."""
    shape = shape or Shape()
    for name, scan in result.snapshots.items():
        yield json_line("snapshot", _snapshot(name, scan, shape))
    for change in shape.changes(map(_change, result.changes)):
        yield json_line("change", change)
    for finding in result.findings:
        yield json_line("finding", finding_object(finding))
    for incident in shape.incidents(map(incident_object, result.incidents)) or ():
        yield json_line("incident", incident)
    for note in result.notes:
        yield json_line("note", {"note": note})
    for snapshot, gap in incomplete_rows(result):
        yield json_line("incomplete", _gap(snapshot, gap, shape))
    yield json_line("summary", {"schema_version": shape.version, "tool": tool(_engine(result)), **_summary(result, shape)})


def incomplete_rows(result: SnapshotsResult) -> Iterator[tuple[str | None, Incomplete]]:
    """What could not be read, with the snapshot whose scan it was of; None: comparing them."""
    for name, scan in result.snapshots.items():
        yield from ((name, gap) for gap in scan.incomplete)
    known = {gap for scan in result.snapshots.values() for gap in scan.incomplete}
    yield from ((None, gap) for gap in result.incomplete if gap not in known)


def _change(change: Change) -> Json:
    return {**change_values(change), "evidence": with_twins(change.evidence)}


def _engine(result: SnapshotsResult) -> str:
    return next(iter(result.snapshots.values())).engine


def _snapshot(name: str, scan: ScanResult, shape: Shape) -> Json:
    return {
        "snapshot": name,
        "verdict": shape.verdict(scan.verdict, scan.findings),
        "brokers": [{"broker": broker_summary.broker, "log_dirs": broker_summary.log_dirs} for broker_summary in scan.brokers],
        "partitions": len(scan.partitions),
        "replicas": len(scan.replicas),
        "bytes_total": scan.totals.bytes_total,
        "findings": counted(scan.findings),
    }


def _summary(result: SnapshotsResult, shape: Shape) -> Json:
    counts = Counter(change.kind for change in result.changes)
    return {
        "verdict": shape.verdict(result.verdict, result.judged),
        "snapshots": len(result.snapshots),
        "changes": {kind.value: counts[kind] for kind in ChangeKind},
        "findings": counted(result.findings),
    }


def _gap(name: str | None, gap: Incomplete, shape: Shape) -> Json:
    [gap_object] = shape.gaps([incomplete_object(gap)])
    return {"snapshot": name, **gap_object}
