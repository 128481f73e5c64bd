"""`recover`: write the records that only losing copies hold to files from which they can be produced again."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, open_output, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.model.safe_text import printable

if TYPE_CHECKING:
    from kafka_forensics.questions.recover import PlannedLeaders, Recovery

Directory = Annotated[
    Path,
    typer.Option(
        "--output",
        metavar="DIR",
        parser=options.directory_path,
        help="A directory for the records, a script that produces them, and a report.",
    ),
    options.OutputMark("any"),
]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="N",
        help="The broker whose copy stays [default: the leader; if none is known and no copies conflict, the one that `plan`"
        " recommends].",
    ),
]
PlanFile = Annotated[
    str | None,
    typer.Option("--plan", metavar="FILE", help="Keep the leaders of this plan (JSON)."),
    options.InputMark(),
]


@options.expand_option_groups
def recover(
    paths: options.Paths,
    output: Directory,
    selection: options.Selection,
    reading: options.ReadOptions,
    *,
    keep: Keep = None,
    plan: PlanFile = None,
    dead: options.Dead = None,
    by: options.By = "incident",
    format_name: options.Format = "text",
    console: options.ConsoleOptions,
) -> int:
    """Write the records that only losing copies hold, with keys and values, to produce them again.

    Writes what the election of the broker that stays would lose, as `plan` computes it. Omits, and counts, records that the
    broker has elsewhere in its log, records of aborted or open transactions, control records, and records deleted since. Omits
    internal topics unless --topic names them. Also writes the script produce_back.py, which produces the records.
    """
    scan_options = reading.scan_options(selection, deep=False)
    screen = screen_of(console)

    from kafka_forensics.cli.outputs.recover import write_recovery
    from kafka_forensics.evidence.outputs import Output, check_kind
    from kafka_forensics.export.recovered import (
        may_be_replaced,
        recovered_files,
        recovery_directory,
        report_of,
        write_records_lists,
        write_report,
    )
    from kafka_forensics.model.bundles import collect_requests
    from kafka_forensics.questions.recover import recover as recover_records

    kept = keep if plan is None else _planned_leaders(plan, keep)
    if not may_be_replaced(output):
        check_kind(Output(str(output), kind="new directory"))

    with recovery_directory(output) as directory:
        with recovered_files(directory) as files, Progress(screen) as progress:
            recovery = recover_records(paths, scan_options, kept, files.take, progress, dead=dead or ())
            _check_decided(recovery)
        arguments = {
            "paths": list(recovery.given),
            "topic": selection.topic,
            "partition": selection.partition,
            "keep": keep,
            "plan": plan,
            "dead": sorted(set(dead or ())),
        }
        report = report_of(recovery, arguments, files.written)
        write_report(directory, report)
        needed = (gap.needed for gap in recovery.incomplete if gap.needed is not None)
        lists = write_records_lists(directory, collect_requests(needed))
    with open_output(None, color=console.color) as to:
        write_recovery(recovery, report, str(output), format_name, to, by=by)
    _print_summary(recovery, output, {bundle: str(output / name) for bundle, name in lists.items()}, screen)
    if not recovery.is_complete:
        return options.EXIT_INCOMPLETE
    return 1 if recovery.count.all.recovered else 0


def _planned_leaders(plan: str, keep: str | None) -> "PlannedLeaders":
    """The leader of each partition of a plan. Raises UsageError for another file, and if --keep is used, too."""
    from kafka_forensics.questions.recover import PlannedLeader
    from kafka_forensics.questions.verify import PlanDocument, read_promises

    if keep is not None:
        raise UsageError("--keep and --plan exclude each other", hint="use one of them")
    document = read_promises(plan)
    if not isinstance(document, PlanDocument):
        raise UsageError(f"{plan} is the manifest of a salvage", hint="use the file of `plan PATH... --output plan.json`")
    leaders = ((row, row.election(None)) for row in document.partitions)
    return {
        (row.topic, row.partition): PlannedLeader(None if election is None else election.broker, row.truncate_by)
        for row, election in leaders
    }


def _check_decided(recovery: "Recovery") -> None:
    """Raise UsageError if the only partition has no side to keep."""
    from kafka_forensics.questions.recover import Undecided

    if recovery.looked_at == 1 and isinstance(side := recovery.partitions[0].side, Undecided):
        partition = recovery.partitions[0]
        raise UsageError(f"{partition.topic}-{partition.partition}: {side.reason}", hint=side.hint)


def _print_summary(recovery: "Recovery", output: Path, lists: dict[str, str], screen: Screen) -> None:
    """Print the summary, and what could not be read; `lists` are files by bundle."""
    from kafka_forensics.cli.outputs.recover import more_lines, summary_line, unchecked_lines
    from kafka_forensics.cli.outputs.words import gap_lines

    lines = []
    if not screen.quiet:
        lines = [summary_line(recovery, printable(shlex.quote(str(output)))), *more_lines(recovery)]
    gaps = gap_lines(recovery.incomplete, lists)
    say(screen, [*lines, *unchecked_lines(recovery), *gaps])
