"""`changes`: what became of each replica from one snapshot of the brokers to the next."""

from typing import TYPE_CHECKING, Annotated

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, open_output, say, screen_of
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import without_payloads
from kafka_forensics.model.safe_text import printable, unquoted

if TYPE_CHECKING:
    from kafka_forensics.model.changes import SnapshotsResult

Snapshots = Annotated[
    list[str],
    typer.Argument(
        metavar="ROOT | OLD NEW...",
        help="A folder of snapshots (ROOT/2026-11-20/broker-1/...) or its URI; or two or more snapshots, oldest first, each a"
        " PATH of `scan`. NAME=PATH names a snapshot; the same NAME again adds a path to it.",
    ),
    options.InputMark(),
]
SnapshotNames = Annotated[
    list[str] | None,
    typer.Option("--snapshot", metavar="NAME", help="Only this snapshot; repeatable, in this order [default: all, by name]."),
]


@options.expand_option_groups
def changes(
    snapshots: Snapshots,
    selection: options.BrokerSelection,
    reading: options.ReadOptions,
    *,
    snapshot: SnapshotNames = None,
    engine: options.EngineOptions,
    fail_on: options.FailOn = "error",
    deep: options.Deep = None,
    show_payloads: options.ShowPayloads = False,
    output: options.OutputOptions,
    console: options.VerboseConsoleOptions,
) -> int:
    """Show what happened to each replica from one snapshot to the next: appended, truncated, cleaned, deleted, moved, damaged.

    Scans every snapshot, and compares each replica with its older copy. Reports committed records that were truncated. `scan`
    reports what is wrong within one snapshot.
    """
    run = _run_on_spark if engine.on_spark() else _run
    format_name = output.chosen_format()
    scan_options = reading.scan_options(selection, deep=deep)
    screen = screen_of(console)
    result = run(snapshots, scan_options, snapshot or [], engine, screen)
    if not show_payloads:
        result.findings = [without_payloads(finding) for finding in result.findings]
    with open_output(output.output, color=console.color, private=show_payloads) as to:
        from kafka_forensics.cli.outputs.changes import write_changes

        write_changes(result, format_name, to, verbose=console.is_verbose)
    _print_summary(result, screen)
    severities = (finding.severity for finding in result.judged)
    return options.exit_status_of(severities, fail_on, incomplete=result.is_incomplete)


def _run(
    paths: list[str], scan_options: ScanOptions, names: list[str], _: options.EngineOptions, screen: Screen
) -> "SnapshotsResult":
    from kafka_forensics.questions.changes import changes as compare_snapshots

    with Progress(screen) as progress:
        return compare_snapshots(paths, scan_options, progress, names).result


def _run_on_spark(
    paths: list[str], scan_options: ScanOptions, names: list[str], engine: options.EngineOptions, screen: Screen
) -> "SnapshotsResult":
    from kafka_forensics.cli.spark_session import running_session
    from kafka_forensics.questions.changes import gather_snapshots, snapshot_paths, split_storage_options
    from kafka_forensics.spark.job import compare_inputs

    snapshots, scan_options = split_storage_options(paths, scan_options)
    notes: list[str] = []
    gathered = gather_snapshots(snapshot_paths(snapshots, scan_options, names, notes), scan_options)
    with running_session(screen, engine, scan_options.jobs) as spark:
        result = compare_inputs(spark, gathered, scan_options).result
    result.notes[:0] = notes
    return result


def _print_summary(result: "SnapshotsResult", screen: Screen) -> None:
    from kafka_forensics.cli.outputs.changes import summary_lines
    from kafka_forensics.cli.outputs.words import gap_hints
    from kafka_forensics.export.changes_document import incomplete_rows

    lines = [] if screen.quiet else summary_lines(result)
    lines += [f"note: {unquoted(note)}" for note in result.notes]
    for name, unread in incomplete_rows(result):
        snapshot = "" if name is None else f"snapshot {unquoted(name)}: "
        lines.append(f"incomplete: {snapshot}{unquoted(unread.path)}: {printable(unread.reason)}")
    say(screen, [*lines, *gap_hints(unread for _, unread in incomplete_rows(result))])
