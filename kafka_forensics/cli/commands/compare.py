"""`compare`: replicas of one partition side by side around their first difference, record by record."""

from typing import TYPE_CHECKING, Annotated

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, open_output, say, screen_of
from kafka_forensics.model.findings import without_payloads

if TYPE_CHECKING:
    from kafka_forensics.questions.compare import SideBySide


Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic; optional if there is one partition.")]
Partition = Annotated[int | None, typer.Option("--partition", metavar="N", min=0, help="The partition of the topic.")]
Context = Annotated[
    int, typer.Option("--context", metavar="N", min=0, max=10_000, help="Records shown before and after the first difference.")
]


class OnePartition(options.BrokerSelection, frozen=True, kw_only=True):
    """The partition to compare, and of which broker."""

    topic: Topic = None
    partition: Partition = None


@options.expand_option_groups
def compare(
    paths: options.Paths,
    selection: OnePartition,
    reading: options.ReadOptions,
    *,
    context: Context = 3,
    fail_on: options.FailOn = "error",
    show_payloads: options.ShowPayloads = False,
    output: options.OutputOptions,
    console: options.VerboseConsoleOptions,
) -> int:
    """Show the replicas of one partition side by side around their first difference, record by record.

    Shows numbers, sizes and digests; --show-payloads adds keys and values.
    """
    format_name = output.chosen_format()
    scan_options = reading.scan_options(selection)
    screen = screen_of(console)

    from kafka_forensics.questions.compare import compare as compare_replicas

    with Progress(screen) as progress:
        compared = compare_replicas(paths, scan_options, context=context, payloads=show_payloads, progress=progress)
    if not show_payloads:
        compared.result.findings = [without_payloads(finding) for finding in compared.result.findings]
    with open_output(output.output, color=console.color, private=show_payloads) as to:
        from kafka_forensics.cli.outputs.compare import write_comparison

        write_comparison(compared, format_name, to, payloads=show_payloads, verbose=console.is_verbose)
    _print_summary(compared, screen, live=reading.live)
    return options.exit_status(compared.result, fail_on)


def _print_summary(compared: "SideBySide", screen: Screen, *, live: bool) -> None:
    from kafka_forensics.cli.outputs.compare import summary_line
    from kafka_forensics.cli.outputs.words import incomplete_lines, live_lines

    summary = [] if screen.quiet else [summary_line(compared), *([] if live else live_lines(compared.result))]
    say(screen, [*summary, *incomplete_lines(compared.result)])
