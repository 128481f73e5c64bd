"""Changes between snapshots in every format of the contract."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from kafka_forensics.cli.outputs.rows import cell, markdown, tsv_lines
from kafka_forensics.cli.outputs.words import by_severity, plural
from kafka_forensics.cli.streams import Destination, printable, wrapped
from kafka_forensics.export.changes_document import document, lines
from kafka_forensics.export.json_document import Shape
from kafka_forensics.model.changes import CHANGE_COLUMNS, Change, ChangeKind, SnapshotsResult, change_values
from kafka_forensics.wording import advice, change_words, message, offset_range

_HEADS: Final = ("partition", "broker", "from", "to", "offsets", "what changed")


def write_changes(
    result: SnapshotsResult, format_name: str, to: Destination, *, verbose: bool = False, shape: Shape | None = None
) -> None:
    """Write `result` to `to` in one of the formats of `options.FORMATS`; tables leave out what is unchanged unless `verbose`.

    `shape` is that of JSON.
    """
    match format_name:
        case "table":
            to.stream.writelines(_table(result, to.width, verbose=verbose))
        case "tsv":
            to.stream.writelines(tsv_lines(CHANGE_COLUMNS, map(change_values, result.changes)))
        case "json":
            to.stream.writelines(document(result, shape))
        case "jsonl":
            to.stream.writelines(lines(result, shape))
        case "markdown":
            to.stream.writelines(_markdown(result, verbose=verbose))
        case _:
            raise AssertionError(format_name)


def summary_lines(result: SnapshotsResult) -> list[str]:
    """What was compared, what changed and what was found, in a few lines."""
    counts = Counter(change.kind for change in result.changes)
    told = (
        ", ".join(f"{counts[kind]} {kind.value.replace('_', ' ')}" for kind in ChangeKind if counts[kind]) or "nothing to compare"
    )
    found = by_severity(result.findings)
    names = list(map(printable, result.snapshots))
    spanned = " and ".join(names) if len(names) == 2 else f"{names[0]} to {names[-1]}"
    nothing = "nothing found" if result.verdict == "clean" else "nothing new"
    return [
        f"{result.verdict}: {found or nothing} between {plural(len(names), 'snapshot')}, {spanned}{_within_newest(result)}",
        f"changes: {told}",
    ]


def _within_newest(result: SnapshotsResult) -> str:
    """That the newest snapshot has findings of its own, which say nothing of what changed; the verdict counts them too."""
    name, scan = list(result.snapshots.items())[-1]
    if not scan.findings:
        return ""
    told = f"{printable(name)} by itself is {scan.verdict} ({by_severity(scan.findings)})"
    return f"; {told}: `kafka-forensics scan PATH...` of that snapshot shows it"


def _table(result: SnapshotsResult, width: int, *, verbose: bool) -> Iterator[str]:
    from kafka_forensics.cli.outputs.rows import table_lines

    yield from table_lines(_HEADS, (), (list(map(cell, _cells(change))) for change in _told(result, verbose=verbose)), width)
    for finding in result.findings:
        yield f"\n{finding.severity.value} {finding.kind} ({finding.confidence.value})\n"
        told = [printable(said) for said in (message(finding), advice(finding)) if said]
        yield from (f"  {line}\n" for line in wrapped(told, width - 2))


def _markdown(result: SnapshotsResult, *, verbose: bool) -> Iterator[str]:
    rows = [" | ".join(markdown(cell(each)) for each in _cells(change)) for change in _told(result, verbose=verbose)]
    for line in summary_lines(result):
        yield f"{markdown(line)}\n\n"
    if rows:
        yield f"| {' | '.join(_HEADS)} |\n|{' --- |' * len(_HEADS)}\n"
        yield from (f"| {row} |\n" for row in rows)
    for finding in result.findings:
        yield f"\n**{finding.severity.value}** {markdown(finding.kind)}: {markdown(message(finding))}"
        yield f" {markdown(advice(finding) or '')}\n"


def _told(result: SnapshotsResult, *, verbose: bool) -> Iterable[Change]:
    return (change for change in result.changes if verbose or change.kind is not ChangeKind.UNCHANGED)


def _cells(change: Change) -> tuple[str, ...]:
    offsets = offset_range(change.offset_start, change.offset_end) if change.has_offsets else "not known"
    return (
        f"{change.topic}-{change.partition}",
        str(change.broker),
        change.from_snapshot,
        change.to_snapshot,
        offsets,
        change_words(change),
    )
