"""`plan`: what each possible election would cut and lose, whom to elect, and how."""

from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import Destination, chosen_format, open_output, say, screen_of
from kafka_forensics.errors import UsageError

if TYPE_CHECKING:
    from kafka_forensics.questions.plan import Plans


TRUNCATE_BY: Final = ("epochs", "high-watermark")
Elect = Annotated[str | None, typer.Option("--elect", metavar="N", help="Plan only the election of this broker.")]
TruncateBy = Annotated[
    str | None,
    typer.Option(
        "--truncate-by",
        metavar="RULE",
        autocompletion=lambda: list(TRUNCATE_BY),
        help="How followers truncate: epochs (Kafka 0.11 and later) or high-watermark [default: as the logs tell].",
    ),
]


@options.flat
def plan(
    paths: options.Paths,
    selection: options.Selection,
    reading: options.Reading,
    *,
    elect: Elect = None,
    dead: options.Dead = None,
    truncate_by: TruncateBy = None,
    engine: options.Engine = "local",
    as_of: options.AsOf = None,
    form: options.Form,
    printing: options.Printing,
) -> int:
    """What each possible election would cut and lose, whom to elect, and the order in which to start brokers.

    Of one partition: every candidate, and the steps to the one that loses least. Of several: those where an election would lose
    something.
    """
    if choose("engine", engine, options.ENGINES) == "spark":
        raise UsageError("plan runs on this machine only", hint="leave out --engine")
    wanted = chosen_format(form.format_name, form.output)
    rule = None if truncate_by is None else cast('Literal["epochs", "high-watermark"]', choose("rule", truncate_by, TRUNCATE_BY))
    scan_options = reading.scan_options(selection, deep=False, as_of=as_of)
    screen = screen_of(printing)

    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.plan import PlanOptions, make_plans
    from kafka_forensics.questions.salvage import forecast

    with Progress(screen, quiet=printing.quiet) as progress:
        plans = make_plans(paths, scan_options, PlanOptions(rule, frozenset(dead or ()), forecast=forecast), progress)
    _check_elect(plans, elect)
    with open_output(form.output, color=printing.color) as to:
        from kafka_forensics.cli.outputs.plan import write_plans

        write_plans(plans, wanted, to, elect=elect)
    _say_rest(plans, screen, quiet=printing.quiet, absent=wanted == "tsv", live=scan_options.live)
    return 3 if plans.result is not None and plans.result.incomplete else 0


def _check_elect(plans: "Plans", elect: str | None) -> None:
    """Raise UsageError for a leader that is not possible, or asked for of several partitions."""
    if elect is None or not plans.partitions:
        return
    if plans.partitions > 1:
        raise UsageError(f"--elect needs one partition, {plans.partitions} are left", hint="add --topic and --partition")
    names = [str(candidate.broker) for candidate in plans.planned[0].plan.candidates]
    if elect not in names:
        can = f"brokers that can lead here: {', '.join(names)}" if names else "no replica can lead on these copies"
        raise UsageError(f"broker {elect} cannot lead on these copies", hint=can)


def _say_rest(plans: "Plans", screen: Destination, *, quiet: bool, absent: bool, live: bool) -> None:
    """What stdout does not say; `absent`: whose copies are not here among it. `live`: it was said that brokers ran."""
    from kafka_forensics.cli.outputs.plan import summary_line, unseen_lines
    from kafka_forensics.cli.outputs.words import incomplete_lines, live_lines

    lines = [] if quiet else [summary_line(plans)]
    if absent and not quiet and plans.partitions != 1:
        lines += unseen_lines(plans)
    if plans.result is not None:
        lines += [] if live or quiet else live_lines(plans.result, command="plan")
        lines += incomplete_lines(plans.result)
    say(screen, lines)
