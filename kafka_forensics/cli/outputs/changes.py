"""Changes between snapshots in every format of the contract."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kafka_forensics.cli.outputs.rows import cell, table_lines, tsv_lines
from kafka_forensics.cli.outputs.scan_text import partition_lines
from kafka_forensics.cli.outputs.words import SHOWN_ROWS, by_severity, cost_words
from kafka_forensics.cli.streams import Destination, wrapped
from kafka_forensics.export.changes_document import document, lines
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.changes import CHANGE_COLUMNS, ChangeKind, SnapshotsResult, change_values
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.incidents import Incident
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.wording import (
    CHANGE_HEADS,
    advice,
    change_cells,
    incident_advice,
    incident_message,
    incident_title,
    message,
    rerun_command,
)


def write_changes(result: SnapshotsResult, format_name: str, to: Destination, *, verbose: bool = False) -> None:
    """Write `result` to `to` in one of the formats of `options.FORMATS`; tables leave out what is unchanged unless `verbose`."""
    answer = {
        "text": _table(result, to.width, verbose=verbose),
        "tsv": tsv_lines(CHANGE_COLUMNS, map(change_values, result.changes)),
        "json": document(result),
        "jsonl": lines(result),
    }
    to.stream.writelines(answer[format_name])


def summary_lines(result: SnapshotsResult) -> list[str]:
    """The verdict with the snapshots compared, and how many changes there are of each kind."""
    counts = Counter(change.kind for change in result.changes)
    counted = ", ".join(f"{counts[kind]} {kind.value.replace('_', ' ')}" for kind in ChangeKind if counts[kind]) or "none"
    severities = by_severity(result.findings)
    names = list(map(unquoted, result.snapshots))
    scope = " and ".join(names) if len(names) == 2 else f"{names[0]} to {names[-1]}"
    nothing = "nothing found" if result.verdict == "clean" else "nothing new"
    return [
        f"{result.verdict}: {severities or nothing} between {plural(len(names), 'snapshot')}, {scope}{_within_newest(result)}",
        f"changes: {counted}",
    ]


def _within_newest(result: SnapshotsResult) -> str:
    """A clause about findings of the newest snapshot itself: the verdict counts them, though they are not about changes."""
    name, scan = list(result.snapshots.items())[-1]
    if not scan.findings:
        return ""
    sentence = f"{unquoted(name)} alone is {scan.verdict} ({by_severity(scan.findings)})"
    return f"; {sentence}: `{rerun_command('scan', scan.rerun_arguments)}` shows it"


def _table(result: SnapshotsResult, width: int, *, verbose: bool) -> Iterator[str]:
    yield from table_lines(CHANGE_HEADS, (), _rows(result, verbose=verbose), width)
    in_incidents: set[int] = set()
    for incident in result.incidents:
        in_incidents.update(incident.findings)
        if len(incident.partitions) > 1:
            yield from _incident(incident, result, width)
        if len(incident.partitions) < 2 or verbose:
            yield from _findings((result.findings[number] for number in incident.findings), width)
    yield from _findings((finding for number, finding in enumerate(result.findings) if number not in in_incidents), width)


def _findings(findings: Iterable[Finding], width: int) -> Iterator[str]:
    for finding in findings:
        yield f"\n{finding.severity.value} {finding.kind} ({finding.confidence.value})\n"
        for text in filter(None, (message(finding), advice(finding))):
            yield from wrapped(printable(text), width, "    ", "  ")


def _incident(incident: Incident, result: SnapshotsResult, width: int) -> Iterator[str]:
    """An incident of several partitions between two snapshots, and these partitions, the longest loss first."""
    evidence = result.findings[incident.findings[0]].evidence
    between = f"{evidence['from_snapshot']} and {evidence['to_snapshot']}"
    cost = f", {lost}" if (lost := cost_words(incident)) else ""
    head = (
        f"{incident.severity.value} {incident_title(incident)}, between {between}: {plural(len(incident.partitions), 'partition')}"
    )
    yield f"\n{unquoted(head)}{cost} ({incident.confidence.value})\n"
    for text in (incident_message(incident), incident_advice(incident)):
        yield from wrapped(printable(text), width, "    ", "  ")
    yield from (f"  {line}" for line in partition_lines(incident, result.findings, SHOWN_ROWS, width - 2))


def _rows(result: SnapshotsResult, *, verbose: bool) -> Iterator[list[str]]:
    """The cells of each change that is shown."""
    changes = (change for change in result.changes if verbose or change.kind is not ChangeKind.UNCHANGED)
    return (list(map(cell, change_cells(change))) for change in changes)
