"""`salvage`: log directories on which brokers start, made of the best of all copies."""

from pathlib import Path
from typing import Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.streams import check_new_directory, check_output, chosen_format, open_output, say, screen_of
from kafka_forensics.errors import UsageError

Directory = Annotated[
    Path,
    typer.Option(
        "--output",
        metavar="DIR",
        help="An empty or new directory for the salvaged logs, never inside an input. It has its name only once it is whole.",
    ),
]
PreferBroker = Annotated[
    str | None,
    typer.Option(
        "--prefer-broker",
        metavar="N",
        help="Whose records stay where others were committed on another broker at the same offsets, and whose copy of a compacted"
        " topic is taken if it is whole: its name here, or its node id.",
    ),
]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps",
        help="Also write partitions with offsets that no copy has, and compacted ones without a whole copy, and name the gaps.",
    ),
]
Runbook = Annotated[
    Path | None, typer.Option("--runbook", metavar="FILE", help="Write a runbook too, as Markdown: what goes where, with commands.")
]
FORMATS: Final = ("table", "tsv", "json")
ListFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=lambda: list(FORMATS),
        help="Of what is printed at the end: table, tsv or json, which is the manifest.",
    ),
]


@options.flat
def salvage(
    paths: options.Paths,
    output: Directory,
    selection: options.Selection,
    reading: options.Reading,
    *,
    prefer_broker: PreferBroker = None,
    allow_gaps: AllowGaps = False,
    runbook: Runbook = None,
    at: options.At = None,
    deep: options.Deep = None,
    format_name: ListFormat = None,
    printing: options.VerbosePrinting,
) -> int:
    """Log directories on which brokers start, made of the best of all copies, with a manifest of what came from where.

    Of each partition one lineage is written, that of the copy that `plan` recommends: holes and damage are filled from copies that
    provably hold the same, heads are restored, torn tails cut, and no batch is changed. Of a compacted or internal topic one whole
    copy is taken. What a broker derives from logs is built anew. A partition is refused, with the reason, where both sides of a
    fork were committed, where no copy has some offsets, or none is whole. The result is scanned before it gets its name: findings
    that no copy has are listed as new.
    """
    wanted = chosen_format(format_name, None, FORMATS)
    check_new_directory(output, "--output")
    check_output(runbook, paths, "--runbook")
    if runbook is None and at:
        raise UsageError("--at goes with --runbook", hint="add --runbook FILE.md")
    if runbook is not None and output.resolve() in (runbook.resolve(), *runbook.resolve().parents):
        raise UsageError("--runbook lies in --output, which is made anew", hint="write it beside that directory")
    scan_options = reading.scan_options(selection, deep=deep)
    screen = screen_of(printing)

    from kafka_forensics.cli.outputs.salvage import summary_lines, write_salvaged
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.places import parse_place
    from kafka_forensics.questions.salvage import SalvageOptions, salvage

    with Progress(screen, quiet=printing.quiet) as progress:
        asked = SalvageOptions(prefer_broker, allow_gaps, tuple(map(parse_place, at or ())))
        salvaged = salvage(paths, output, scan_options, asked, progress)
    if runbook is not None:
        from kafka_forensics.cli.outputs.salvage_runbook import salvage_runbook

        with open_output(runbook, color="never", option="--runbook") as to:
            to.stream.writelines(salvage_runbook(salvaged))
    with open_output(None, color=printing.color) as to:
        write_salvaged(salvaged, wanted, to)
    say(screen, summary_lines(salvaged, quiet=printing.quiet))
    if not salvaged.is_whole:
        return 3
    return 1 if salvaged.has_new_findings else 0
