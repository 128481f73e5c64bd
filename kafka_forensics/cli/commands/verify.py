"""`verify`: whether what a plan or a salvage promised has come true, by copies taken after the brokers came up again."""

from typing import Annotated

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.streams import chosen_format, open_output, say, screen_of

Against = Annotated[
    str,
    typer.Option("--against", metavar="FILE", help="A plan, from `plan --format json`, or a salvage's manifest.json."),
    options.Read(),
]
Elected = Annotated[
    str | None, typer.Option("--elected", metavar="N", help="The broker that was made the leader [default: as recommended].")
]

Recovered = Annotated[
    str | None,
    typer.Option("--recovered", metavar="DIR", help="What `recover` wrote, if its records were produced again."),
    options.Read(),
]


@options.flat
def verify(
    paths: options.Paths,
    selection: options.Selection,
    reading: options.Reading,
    *,
    against: Against,
    elected: Elected = None,
    recovered: Recovered = None,
    form: options.Form,
    printing: options.Printing,
) -> int:
    """Whether what a plan or a salvage promised has come true: who leads, what logs kept, and whether all others follow.

    PATHs are copies, or bundles, taken after the brokers came up again.
    """
    wanted = chosen_format(form.format_name, form.output)
    scan_options = reading.scan_options(selection, deep=False)
    screen = screen_of(printing)

    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.verify import ExecutedPlan, Outcome, read_lost_records, read_promises, verify as checked_by

    document = read_promises(against)
    asked = ExecutedPlan(elected, {} if recovered is None else read_lost_records(recovered))
    with Progress(screen, quiet=printing.quiet) as progress:
        checked = checked_by(paths, document, scan_options, asked, progress)
    from kafka_forensics.cli.outputs.verify import summary_line, write_promises
    from kafka_forensics.cli.outputs.words import incomplete_lines

    with open_output(form.output, color=printing.color) as to:
        write_promises(checked.promises, wanted, to)
    result = checked.result
    say(screen, [*([] if printing.quiet else [summary_line(checked)]), *([] if result is None else incomplete_lines(result))])
    if result is not None and result.incomplete:
        return 3
    if checked.count(Outcome.BROKEN):
        return 1
    return 3 if checked.count(Outcome.UNKNOWN) or not checked.promises else 0
