"""Changes between snapshots as JSON: a document, or an object for each line. `schema/changes-1.0.json` describes the document."""

from collections import Counter
from collections.abc import Iterator

from kafka_forensics.export.json_document import (
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
from kafka_forensics.model.json_objects import Json, json_text, with_number_texts
from kafka_forensics.model.results import SCHEMA_VERSION, Incomplete, ScanResult


def document(result: SnapshotsResult) -> Iterator[str]:
    """The JSON document in chunks, with a line for each row."""
    yield head(_engine(result))
    yield from json_list(' "snapshots"', (_snapshot(name, scan) for name, scan in result.snapshots.items()))
    yield f' "summary": {json_text(_summary(result))},\n'
    yield from json_list(' "changes"', map(_change, result.changes))
    yield from json_list(' "findings"', map(finding_object, result.findings))
    yield from json_list(' "incidents"', map(incident_object, result.incidents))
    yield f' "notes": {json_text(result.notes)},\n'
    yield from json_list(' "incomplete"', map(_incomplete, incomplete_rows(result)), "}\n")


def lines(result: SnapshotsResult) -> Iterator[str]:
    """The result as JSON Lines, objects with a `type`."""
    for name, scan in result.snapshots.items():
        yield json_line("snapshot", _snapshot(name, scan))
    for change in result.changes:
        yield json_line("change", _change(change))
    for finding in result.findings:
        yield json_line("finding", finding_object(finding))
    for incident in result.incidents:
        yield json_line("incident", incident_object(incident))
    for note in result.notes:
        yield json_line("note", {"note": note})
    for row in incomplete_rows(result):
        yield json_line("incomplete", _incomplete(row))
    yield json_line("summary", {"schema_version": SCHEMA_VERSION, "tool": tool(_engine(result)), **_summary(result)})


def incomplete_rows(result: SnapshotsResult) -> Iterator[tuple[str | None, Incomplete]]:
    """What could not be read, with the name of the scanned snapshot, or None if it was read to compare snapshots."""
    of_scans = [(name, incomplete) for name, scan in result.snapshots.items() for incomplete in scan.incomplete]
    yield from of_scans
    listed = {incomplete for _, incomplete in of_scans}
    yield from ((None, incomplete) for incomplete in result.incomplete if incomplete not in listed)


def _change(change: Change) -> Json:
    return {**change_values(change), "evidence": with_number_texts(change.evidence)}


def _engine(result: SnapshotsResult) -> str:
    return next(iter(result.snapshots.values())).engine


def _snapshot(name: str, scan: ScanResult) -> Json:
    return {
        "snapshot": name,
        "verdict": scan.verdict,
        "brokers": [{"broker": broker_summary.broker, "log_dirs": broker_summary.log_dirs} for broker_summary in scan.brokers],
        "partitions": len(scan.partitions),
        "replicas": len(scan.replicas),
        "bytes_total": scan.totals.bytes_total,
        "findings": counted(scan.findings),
    }


def _summary(result: SnapshotsResult) -> Json:
    counts = Counter(change.kind for change in result.changes)
    return {
        "verdict": result.verdict,
        "snapshots": len(result.snapshots),
        "changes": {kind.value: counts[kind] for kind in ChangeKind},
        "findings": counted(result.findings),
    }


def _incomplete(row: tuple[str | None, Incomplete]) -> Json:
    return {"snapshot": row[0], **incomplete_object(row[1])}
