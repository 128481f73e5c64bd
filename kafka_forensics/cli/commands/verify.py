"""`verify`: check the promises of a plan or a salvage against copies taken after the brokers started again."""

from typing import Annotated

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import open_output, say, screen_of

Against = Annotated[
    str,
    typer.Option("--against", metavar="FILE", help="A plan (JSON), or the manifest.json of a salvage."),
    options.InputMark(),
]
Elected = Annotated[str | None, typer.Option("--elected", metavar="N", help="The elected broker [default: as recommended].")]

Recovered = Annotated[
    str | None,
    typer.Option(
        "--recovered",
        metavar="DIR",
        help="The directory of `recover`, if you produced its records.",
        rich_help_panel=options.INPUT,
    ),
    options.InputMark(),
]


@options.expand_option_groups
def verify(
    paths: options.Paths,
    selection: options.Selection,
    reading: options.ReadOptions,
    *,
    against: Against,
    elected: Elected = None,
    recovered: Recovered = None,
    by: options.By = "incident",
    output: options.OutputOptions,
    console: options.VerboseConsoleOptions,
) -> int:
    """Check that a plan or a salvage was carried out: who leads, what logs kept, and whether all replicas follow.

    PATHs are copies, or bundles, made after the brokers started again.
    """
    format_name = output.chosen_format()
    scan_options = reading.scan_options(selection, deep=False)
    screen = screen_of(console)

    from kafka_forensics.cli.outputs.verify import summary_line, write_promises
    from kafka_forensics.cli.outputs.words import incomplete_lines
    from kafka_forensics.questions.verify import ExecutedPlan, Outcome, read_lost_records, read_promises, verify as verify_promises

    document = read_promises(against)
    executed = ExecutedPlan(elected, {} if recovered is None else read_lost_records(recovered))
    with Progress(screen) as progress:
        checked = verify_promises(paths, document, scan_options, executed, progress)
    with open_output(output.output, color=console.color) as to:
        write_promises(checked, format_name, to, verbose=console.is_verbose, by=by)
    result = checked.result
    say(screen, [*([] if screen.quiet else [summary_line(checked)]), *([] if result is None else incomplete_lines(result))])
    if result is not None and result.incomplete:
        return options.EXIT_INCOMPLETE
    if checked.count(Outcome.BROKEN):
        return 1
    return options.EXIT_INCOMPLETE if checked.count(Outcome.UNKNOWN) or not checked.promises else 0
