"""`plan`: what each possible election would cut and lose, whom to elect, and how."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, open_output, say, screen_of, writing_to
from kafka_forensics.errors import UsageError
from kafka_forensics.model.safe_text import unquoted

if TYPE_CHECKING:
    from kafka_forensics.cli.outputs.plan_steps import PlanArguments
    from kafka_forensics.questions.plan import Plans
    from kafka_forensics.replication.planner import TruncateBy


TRUNCATE_BY: Final = ("epochs", "high-watermark")
Elect = Annotated[str | None, typer.Option("--elect", metavar="N", help="Plan only the election of this broker.")]
Files = Annotated[
    Path | None,
    typer.Option(
        "--files",
        metavar="DIR",
        parser=options.directory_path,
        help="Write the files that the steps name to DIR.",
        rich_help_panel=options.OUTPUT,
    ),
    options.OutputMark("any"),
]
TruncateByOption = Annotated[
    str | None,
    options.choice(
        "--truncate-by",
        "rule",
        TRUNCATE_BY,
        "How followers truncate: epochs (Kafka 0.11 and later) or high-watermark [default: detected].",
        panel=options.INPUT,
    ),
]


@options.expand_option_groups
def plan(
    paths: options.Paths,
    selection: options.Selection,
    reading: options.ReadOptions,
    *,
    elect: Elect = None,
    dead: options.Dead = None,
    truncate_by: TruncateByOption = None,
    by: options.By = "incident",
    files: Files = None,
    output: options.PlanOutputOptions,
    console: options.ConsoleOptions,
) -> int:
    """Show what each possible election truncates and loses, which broker to elect, and in which order to start brokers.

    Lists partitions where an election would lose records. For one partition (--topic and --partition), lists every candidate
    and the steps to the best one.
    """
    format_name = output.chosen_format()
    rule = cast("TruncateBy | None", truncate_by and truncate_by.replace("-", "_"))
    scan_options = reading.scan_options(selection, deep=False)
    screen = screen_of(console)

    from kafka_forensics.questions.plan import PlanOptions, make_plans
    from kafka_forensics.questions.salvage import forecast

    with Progress(screen) as progress:
        plans = make_plans(paths, scan_options, PlanOptions(rule, frozenset(dead or ()), forecast=forecast), progress)
    _check_elect(plans, elect)
    with open_output(output.output, color=console.color) as to:
        from kafka_forensics.cli.outputs.plan import write_plans
        from kafka_forensics.cli.outputs.plan_steps import PlanArguments

        selected = _typed(("--topic", selection.topic), ("--partition", selection.partition))
        dead_options, rule_options = _typed(*(("--dead", broker) for broker in dead or ())), _typed(("--truncate-by", truncate_by))
        arguments = PlanArguments(elect, selected, dead_options, rule_options, None if files is None else str(files))
        written = [] if output.output is None else [str(output.output)]
        if files is not None:
            written += _write_files(files, plans, arguments)
        write_plans(plans, format_name, to, arguments, by=by)
    _print_summary(plans, screen, names_missing_copies=format_name != "text", live=scan_options.live)
    if written and not screen.quiet:
        say(screen, [f"wrote {unquoted(', '.join(written))}"])
    return options.EXIT_INCOMPLETE if plans.result is not None and plans.result.incomplete else 0


def _typed(*values: tuple[str, object]) -> tuple[str, ...]:
    """The options of these names and values, without those that the user did not give."""
    return tuple(text for option, value in values if value is not None for text in (option, str(value)))


def _write_files(directory: Path, plans: "Plans", arguments: "PlanArguments") -> list[str]:
    """Write the files that commands of the steps read, and return their paths. Raises UsageError."""
    from kafka_forensics.cli.outputs.plan_steps import steps_of

    files = [step.file for step in steps_of(plans, arguments) if step.file is not None]
    with writing_to(directory):
        if files:
            directory.mkdir(parents=True, exist_ok=True)
        for name, text in files:
            (directory / name).write_text(text)
    return [str(directory / name) for name, _ in files]


def _check_elect(plans: "Plans", elect: str | None) -> None:
    """Raise UsageError for a broker that cannot be elected, and if several partitions are selected."""
    if elect is None or not plans.partitions:
        return
    if plans.partitions > 1:
        raise UsageError(f"--elect needs one partition, {plans.partitions} are left", hint="add --topic and --partition")
    names = [str(candidate.broker) for candidate in plans.planned[0].plan.candidates]
    if elect not in names:
        can = f"brokers that can lead here: {', '.join(names)}" if names else "no replica can lead with these copies"
        raise UsageError(f"broker {elect} cannot lead with these copies", hint=can)


def _print_summary(plans: "Plans", screen: Screen, *, names_missing_copies: bool, live: bool) -> None:
    """Print what the answer does not contain: a summary, replicas without a copy if wanted, and inputs that could not be read."""
    from kafka_forensics.cli.outputs.plan_text import summary_line, unseen_lines
    from kafka_forensics.cli.outputs.words import incomplete_lines, live_lines

    lines = [] if screen.quiet else [summary_line(plans)]
    if names_missing_copies and not screen.quiet and plans.partitions != 1:
        lines += unseen_lines(plans)
    if plans.result is not None:
        lines += [] if live or screen.quiet else live_lines(plans.result, command="plan")
        lines += incomplete_lines(plans.result)
    say(screen, lines)
