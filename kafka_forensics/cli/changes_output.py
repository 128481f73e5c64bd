"""Changes between snapshots in every format of the contract. `schema/changes-1.0.json` describes the JSON document."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from kafka_forensics import __version__
from kafka_forensics.cli.output_json import finding_object, incomplete_object, severity_counts, with_twins
from kafka_forensics.cli.output_words import plural
from kafka_forensics.cli.rows import cell, json_text, markdown, tsv_lines
from kafka_forensics.cli.safe_text import printable
from kafka_forensics.cli.streams import Destination
from kafka_forensics.engine.change_rows import CHANGE_COLUMNS, change_values
from kafka_forensics.model.changes import Change, ChangeKind, SnapshotsResult
from kafka_forensics.model.results import SCHEMA_VERSION, Incomplete, ScanResult
from kafka_forensics.wording import advice, message
from kafka_forensics.wording.change_words import change_words

_HEADS: Final = ("partition", "broker", "from", "to", "offsets", "what changed")


def write_changes(result: SnapshotsResult, format_name: str, to: Destination, *, verbose: bool = False) -> None:
    """Write `result` to `to` in one of the formats of `options.FORMATS`; tables leave out what is unchanged unless `verbose`."""
    match format_name:
        case "table":
            to.stream.writelines(_table(result, to.width, verbose=verbose))
        case "tsv":
            to.stream.writelines(tsv_lines(CHANGE_COLUMNS, map(change_values, result.changes)))
        case "json":
            to.stream.writelines(document(result))
        case "jsonl":
            to.stream.writelines(lines(result))
        case "markdown":
            to.stream.writelines(_markdown(result, verbose=verbose))
        case _:
            raise AssertionError(format_name)


def document(result: SnapshotsResult) -> Iterator[str]:
    """The JSON document in pieces, a line a row."""
    yield f'{{"schema_version": {json_text(SCHEMA_VERSION)},\n "tool": {json_text(_tool(result))},\n'
    yield from _list("snapshots", (_snapshot(name, scan) for name, scan in result.snapshots.items()))
    yield f' "summary": {json_text(_summary(result))},\n'
    yield from _list("changes", map(_change, result.changes))
    yield from _list("findings", map(finding_object, result.findings))
    yield f' "notes": {json_text(result.notes)},\n'
    yield from _list("incomplete", (_gap(name, gap) for name, gap in incomplete_rows(result)), "}\n")


def lines(result: SnapshotsResult) -> Iterator[str]:
    """The same as JSON Lines, an object with its `type` each."""
    for name, scan in result.snapshots.items():
        yield _line("snapshot", _snapshot(name, scan))
    for one in result.changes:
        yield _line("change", _change(one))
    for found in result.findings:
        yield _line("finding", finding_object(found))
    for note in result.notes:
        yield _line("note", {"note": note})
    for snapshot, gap in incomplete_rows(result):
        yield _line("incomplete", _gap(snapshot, gap))
    yield _line("summary", {"schema_version": SCHEMA_VERSION, "tool": _tool(result), **_summary(result)})


def incomplete_rows(result: SnapshotsResult) -> Iterator[tuple[str | None, Incomplete]]:
    """What could not be read, with the snapshot whose scan it was of; None: comparing them."""
    for name, scan in result.snapshots.items():
        yield from ((name, gap) for gap in scan.incomplete)
    known = {gap for scan in result.snapshots.values() for gap in scan.incomplete}
    yield from ((None, gap) for gap in result.incomplete if gap not in known)


def summary_lines(result: SnapshotsResult) -> list[str]:
    """What was compared, what changed and what was found, in a few lines."""
    counts = Counter(one.kind for one in result.changes)
    told = (
        ", ".join(f"{counts[kind]} {kind.value.replace('_', ' ')}" for kind in ChangeKind if counts[kind]) or "nothing to compare"
    )
    found = ", ".join(f"{count} {severity.value}" for severity, count in severity_counts(result.findings).items() if count)
    names = list(map(printable, result.snapshots))
    spanned = " and ".join(names) if len(names) == 2 else f"{names[0]} to {names[-1]}"
    return [
        f"{result.verdict}: {found or 'nothing found'} between {plural(len(names), 'snapshot')}, {spanned}",
        f"changes: {told}",
    ]


def _table(result: SnapshotsResult, width: int, *, verbose: bool) -> Iterator[str]:
    from kafka_forensics.cli.plain_table import table_lines

    yield from table_lines(_HEADS, (), (list(map(cell, _cells(one))) for one in _told(result, verbose=verbose)), width)
    for found in result.findings:
        yield f"\n{found.severity.value} {found.kind} ({found.confidence.value})\n"
        yield from (f"  {printable(said)}\n" for said in (message(found), advice(found)) if said)


def _markdown(result: SnapshotsResult, *, verbose: bool) -> Iterator[str]:
    rows = [" | ".join(markdown(cell(each)) for each in _cells(one)) for one in _told(result, verbose=verbose)]
    for line in summary_lines(result):
        yield f"{markdown(line)}\n\n"
    if rows:
        yield f"| {' | '.join(_HEADS)} |\n|{' --- |' * len(_HEADS)}\n"
        yield from (f"| {row} |\n" for row in rows)
    for found in result.findings:
        yield f"\n**{found.severity.value}** {markdown(found.kind)}: {markdown(message(found))}"
        yield f" {markdown(advice(found) or '')}\n"


def _told(result: SnapshotsResult, *, verbose: bool) -> Iterable[Change]:
    return (one for one in result.changes if verbose or one.kind is not ChangeKind.UNCHANGED)


def _cells(one: Change) -> tuple[str, ...]:
    offsets = f"[{one.offset_start}, {one.offset_end})"
    return f"{one.topic}-{one.partition}", str(one.broker), one.from_snapshot, one.to_snapshot, offsets, change_words(one)


def _change(one: Change) -> dict[str, object]:
    return {**change_values(one), "evidence": with_twins(one.evidence)}


def _tool(result: SnapshotsResult) -> dict[str, object]:
    return {"name": "kafka-forensics", "version": __version__, "engine": next(iter(result.snapshots.values())).engine}


def _snapshot(name: str, scan: ScanResult) -> dict[str, object]:
    return {
        "snapshot": name,
        "verdict": scan.verdict,
        "brokers": [{"broker": one.broker, "log_dirs": one.log_dirs} for one in scan.brokers],
        "partitions": len(scan.partitions),
        "replicas": len(scan.replicas),
        "bytes_total": scan.totals.bytes_total,
        "findings": {severity.value: count for severity, count in severity_counts(scan.findings).items()},
    }


def _summary(result: SnapshotsResult) -> dict[str, object]:
    counts = Counter(one.kind for one in result.changes)
    return {
        "verdict": result.verdict,
        "snapshots": len(result.snapshots),
        "changes": {kind.value: counts[kind] for kind in ChangeKind},
        "findings": {severity.value: count for severity, count in severity_counts(result.findings).items()},
    }


def _gap(name: str | None, gap: Incomplete) -> dict[str, object]:
    return {"snapshot": name, **incomplete_object(gap)}


def _line(kind: str, content: dict[str, object]) -> str:
    return json_text({"type": kind, **content}) + "\n"


def _list(name: str, objects: Iterable[object], closing: str = ",\n") -> Iterator[str]:
    yield f' "{name}": ['
    for index, each in enumerate(objects):
        yield f"{',' if index else ''}\n  {json_text(each)}"
    yield f"]{closing}"
