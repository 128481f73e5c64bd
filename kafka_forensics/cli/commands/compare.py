"""`compare`: replicas of one partition side by side around their first difference, record by record."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.scan import exit_status
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import Destination, chosen_format, open_output, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import without_payloads

if TYPE_CHECKING:
    from kafka_forensics.questions.compare import SideBySide


Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="The topic; may be left out where only one partition is there.")
]
Partition = Annotated[int | None, typer.Option("--partition", metavar="N", min=0, help="The partition of the topic.")]
Context = Annotated[
    int, typer.Option("--context", metavar="N", min=0, max=10_000, help="Records shown before and after the first difference.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePartition(options.BrokerSelection):
    """The partition that is compared, and whose replicas."""

    topic: Topic = None
    partition: Partition = None


@options.flat
def compare(
    paths: options.Paths,
    selection: OnePartition,
    reading: options.Reading,
    *,
    context: Context = 3,
    engine: options.Engine = "local",
    fail_on: options.FailOn = "error",
    as_of: options.AsOf = None,
    show_payloads: options.ShowPayloads = False,
    form: options.Form,
    printing: options.VerbosePrinting,
) -> int:
    """Two or more replicas of one partition side by side around their first difference, record by record.

    Shows what each replica holds before, at and after the first offset where they differ: numbers, sizes and digests; keys and
    values themselves with --show-payloads.
    """
    if choose("engine", engine, options.ENGINES) == "spark":
        raise UsageError("compare runs on this machine only", hint="leave out --engine")
    wanted = chosen_format(form.format_name, form.output)
    choose("severity", fail_on, options.FAIL_ON)
    scan_options = reading.scan_options(selection, as_of=as_of)
    screen = screen_of(printing)
    compared = _run(paths, scan_options, screen, context=context, payloads=show_payloads, quiet=printing.quiet)
    if not show_payloads:
        compared.result.findings = [without_payloads(finding) for finding in compared.result.findings]
    with open_output(form.output, color=printing.color, private=show_payloads) as to:
        from kafka_forensics.cli.outputs.compare import write_comparison

        write_comparison(compared, wanted, to, payloads=show_payloads, verbose=printing.says_all)
    _say_summary(compared, screen, quiet=printing.quiet, live=reading.live)
    return exit_status(compared.result, fail_on)


def _run(
    paths: list[str], scan_options: ScanOptions, screen: Destination, *, context: int, payloads: bool, quiet: bool
) -> "SideBySide":
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.compare import compare as side_by_side

    with Progress(screen, quiet=quiet) as progress:
        return side_by_side(paths, scan_options, context=context, payloads=payloads, progress=progress)


def _say_summary(compared: "SideBySide", screen: Destination, *, quiet: bool, live: bool) -> None:
    from kafka_forensics.cli.outputs.compare import summary_line
    from kafka_forensics.cli.outputs.words import incomplete_lines, live_lines

    lines = incomplete_lines(compared.result)
    hint = [] if live else live_lines(compared.result)
    say(screen, lines if quiet else [summary_line(compared), *hint, *lines])
