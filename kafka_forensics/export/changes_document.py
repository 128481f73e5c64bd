"""Changes between snapshots as JSON: one document, or one object a line. `schema/changes-1.1.json` describes the document."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kafka_forensics.export.json_document import Shape, finding_object, incomplete_object, json_text, severity_counts, with_twins
from kafka_forensics.model.changes import Change, ChangeKind, SnapshotsResult, change_values
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.version import __version__


def document(result: SnapshotsResult, shape: Shape | None = None) -> Iterator[str]:
    """The JSON document in pieces, a line a row; in another `shape` than the present one if asked."""
    shape = shape or Shape()
    yield f'{{"schema_version": {json_text(shape.version)},\n "tool": {json_text(_tool(result))},\n'
    yield from _list("snapshots", (_snapshot(name, scan, shape) for name, scan in result.snapshots.items()))
    yield f' "summary": {json_text(_summary(result, shape))},\n'
    yield from _list("changes", shape.changes(map(_change, result.changes)))
    yield from _list("findings", map(finding_object, result.findings))
    yield f' "notes": {json_text(result.notes)},\n'
    yield from _list("incomplete", (_gap(name, gap, shape) for name, gap in incomplete_rows(result)), "}\n")


def lines(result: SnapshotsResult, shape: Shape | None = None) -> Iterator[str]:
    """The same as JSON Lines, an object with its `type` each."""
    shape = shape or Shape()
    for name, scan in result.snapshots.items():
        yield _line("snapshot", _snapshot(name, scan, shape))
    for change in shape.changes(map(_change, result.changes)):
        yield _line("change", change)
    for finding in result.findings:
        yield _line("finding", finding_object(finding))
    for note in result.notes:
        yield _line("note", {"note": note})
    for snapshot, gap in incomplete_rows(result):
        yield _line("incomplete", _gap(snapshot, gap, shape))
    yield _line("summary", {"schema_version": shape.version, "tool": _tool(result), **_summary(result, shape)})


def incomplete_rows(result: SnapshotsResult) -> Iterator[tuple[str | None, Incomplete]]:
    """What could not be read, with the snapshot whose scan it was of; None: comparing them."""
    for name, scan in result.snapshots.items():
        yield from ((name, gap) for gap in scan.incomplete)
    known = {gap for scan in result.snapshots.values() for gap in scan.incomplete}
    yield from ((None, gap) for gap in result.incomplete if gap not in known)


def _change(change: Change) -> dict[str, object]:
    return {**change_values(change), "evidence": with_twins(change.evidence)}


def _tool(result: SnapshotsResult) -> dict[str, object]:
    return {"name": "kafka-forensics", "version": __version__, "engine": next(iter(result.snapshots.values())).engine}


def _snapshot(name: str, scan: ScanResult, shape: Shape) -> dict[str, object]:
    return {
        "snapshot": name,
        "verdict": shape.verdict(scan.verdict, scan.findings),
        "brokers": [{"broker": broker_summary.broker, "log_dirs": broker_summary.log_dirs} for broker_summary in scan.brokers],
        "partitions": len(scan.partitions),
        "replicas": len(scan.replicas),
        "bytes_total": scan.totals.bytes_total,
        "findings": {severity.value: count for severity, count in severity_counts(scan.findings).items()},
    }


def _summary(result: SnapshotsResult, shape: Shape) -> dict[str, object]:
    counts = Counter(change.kind for change in result.changes)
    return {
        "verdict": shape.verdict(result.verdict, result.judged),
        "snapshots": len(result.snapshots),
        "changes": {kind.value: counts[kind] for kind in ChangeKind},
        "findings": {severity.value: count for severity, count in severity_counts(result.findings).items()},
    }


def _gap(name: str | None, gap: Incomplete, shape: Shape) -> dict[str, object]:
    [told] = shape.gaps([incomplete_object(gap)])
    return {"snapshot": name, **told}


def _line(kind: str, content: dict[str, object]) -> str:
    return json_text({"type": kind, **content}) + "\n"


def _list(name: str, objects: Iterable[object], closing: str = ",\n") -> Iterator[str]:
    yield f' "{name}": ['
    for index, each in enumerate(objects):
        yield f"{',' if index else ''}\n  {json_text(each)}"
    yield f"]{closing}"
