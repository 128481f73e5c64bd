"""`changes`: what became of each replica from one snapshot of the brokers to the next."""

from typing import TYPE_CHECKING, Annotated

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.scan import status_of
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import Destination, chosen_format, open_output, printable, say, screen_of
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import without_payloads

if TYPE_CHECKING:
    from kafka_forensics.model.changes import SnapshotsResult


Snapshots = Annotated[
    list[str],
    typer.Argument(
        metavar="ROOT | OLD NEW...",
        help="A folder of snapshots (ROOT/2026-11-20/broker-1/...), also s3://bucket/snapshots; or two and more snapshots, the"
        " oldest first, each what `scan` takes. NAME=PATH names a snapshot, and the same NAME again adds a path to it.",
    ),
    options.Read(),
]
Chosen = Annotated[
    list[str] | None,
    typer.Option("--snapshot", metavar="NAME", help="Only this snapshot; given again, in this order [default: all, by name]."),
]


@options.flat
def changes(
    snapshots: Snapshots,
    selection: options.BrokerSelection,
    reading: options.Reading,
    *,
    snapshot: Chosen = None,
    where: options.Workplace,
    fail_on: options.FailOn = "error",
    as_of: options.AsOf = None,
    deep: options.Deep = None,
    show_payloads: options.ShowPayloads = False,
    form: options.Form,
    printing: options.VerbosePrinting,
) -> int:
    """What became of each replica from one snapshot to the next: appended, cut off, cleaned, deleted, moved, damaged.

    Scans every snapshot and compares each broker's replicas with themselves over time. Committed records that were cut off are
    findings; `scan` tells what is wrong within a snapshot.
    """
    spark = where.on_spark()
    wanted = chosen_format(form.format_name, form.output)
    choose("severity", fail_on, options.FAIL_ON)
    scan_options = reading.scan_options(selection, deep=deep, as_of=as_of)
    screen = screen_of(printing)
    if spark:
        result = _run_on_spark(snapshots, scan_options, screen, snapshot or [], where, quiet=printing.quiet)
    else:
        result = _run(snapshots, scan_options, screen, snapshot or [], quiet=printing.quiet)
    if not show_payloads:
        result.findings = [without_payloads(finding) for finding in result.findings]
    with open_output(form.output, color=printing.color, private=show_payloads) as to:
        from kafka_forensics.cli.outputs.changes import write_changes

        write_changes(result, wanted, to, verbose=printing.says_all)
    _say_summary(result, screen, quiet=printing.quiet)
    return status_of(result.judged, fail_on, incomplete=result.is_incomplete)


def _run(given: list[str], scan_options: ScanOptions, screen: Destination, chosen: list[str], *, quiet: bool) -> "SnapshotsResult":
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.changes import changes as compare_snapshots

    with Progress(screen, quiet=quiet) as progress:
        return compare_snapshots(given, scan_options, progress, chosen).result


def _run_on_spark(
    given: list[str],
    scan_options: ScanOptions,
    screen: Destination,
    chosen: list[str],
    where: options.Workplace,
    *,
    quiet: bool,
) -> "SnapshotsResult":
    from kafka_forensics.cli.spark_session import stopping
    from kafka_forensics.questions.changes import gather_snapshots, snapshot_paths, split_storage_options
    from kafka_forensics.spark.job import compare_inputs

    snapshots, scan_options = split_storage_options(given, scan_options)
    notes: list[str] = []
    gathered = gather_snapshots(snapshot_paths(snapshots, scan_options, chosen, notes), scan_options)
    with stopping(screen, where, scan_options.jobs, quiet=quiet) as spark:
        result = compare_inputs(spark, gathered, scan_options).result
    result.notes[:0] = notes
    return result


def _say_summary(result: "SnapshotsResult", screen: Destination, *, quiet: bool) -> None:
    from kafka_forensics.cli.outputs.changes import summary_lines
    from kafka_forensics.cli.outputs.words import gap_hints
    from kafka_forensics.export.changes_document import incomplete_rows

    lines = [] if quiet else summary_lines(result)
    lines += [f"note: {printable(note)}" for note in result.notes]
    for name, gap in incomplete_rows(result):
        where = "" if name is None else f"snapshot {printable(name)}: "
        lines.append(f"incomplete: {where}{printable(gap.path)}: {printable(gap.reason)}")
    lines += gap_hints(gap for _, gap in incomplete_rows(result))
    say(screen, lines)
