"""`salvage`: write log directories on which brokers start, from the best of all copies."""

from pathlib import Path
from typing import Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import open_output, say, screen_of

Directory = Annotated[
    Path,
    typer.Option(
        "--output",
        metavar="DIR",
        help="An empty or new directory for the log directories.",
    ),
    options.OutputMark("new directory"),
]
PreferBroker = Annotated[
    str | None,
    typer.Option(
        "--prefer-broker",
        metavar="N",
        help="Keep the records of broker N where committed records conflict, and its complete copies of compacted topics.",
    ),
]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps",
        help="Also write partitions with offsets that no copy has, and compacted ones without a complete copy.",
    ),
]
RebuildMetadata = Annotated[
    bool,
    typer.Option(
        "--rebuild-metadata",
        help="Rebuild __remote_log_metadata from a remote store, even if copies of it exist: after brokers ran without it, it"
        " lacks older segments.",
        rich_help_panel=options.OUTPUT,
    ),
]
FromStore = Annotated[
    bool,
    typer.Option(
        "--from-store",
        help="Write tiered topics as local logs, with the records of a remote store, for brokers without remote storage.",
        rich_help_panel=options.OUTPUT,
    ),
]
MetadataPartitions = Annotated[
    int | None,
    typer.Option(
        "--metadata-partitions",
        metavar="N",
        min=1,
        help="Partitions of a rebuilt __remote_log_metadata, if no controller's log is given.",
        rich_help_panel=options.OUTPUT,
    ),
]
FORMATS: Final = ("text", "tsv", "json", "markdown")
ListFormat = Annotated[str, options.format_option(FORMATS)]


@options.expand_option_groups
def salvage(
    paths: options.Paths,
    output: Directory,
    selection: options.Selection,
    reading: options.ReadOptions,
    *,
    prefer_broker: PreferBroker = None,
    allow_gaps: AllowGaps = False,
    rebuild_metadata: RebuildMetadata = False,
    from_store: FromStore = False,
    metadata_partitions: MetadataPartitions = None,
    deep: options.Deep = None,
    by: options.By = "incident",
    format_name: ListFormat = "text",
    console: options.VerboseConsoleOptions,
) -> int:
    """Write log directories on which brokers start, from the best of all copies, and a manifest of their origin.

    DIR/broker-N/NAME replaces each given log directory. Give replaced disks as N=EMPTYDIR. Each partition is the copy that
    `plan` recommends; other copies that provably hold the same records fill its gaps, damage and missing start. Torn tails are
    cut, and no batch is changed. A compacted or internal topic is one complete copy. Partitions are refused, with the reason,
    if both sides of a fork were committed, no copy has some offsets, or no copy is complete. Scans the result, and lists
    findings that no copy has as `new`.
    """
    scan_options = reading.scan_options(selection, deep=deep)
    screen = screen_of(console)

    from kafka_forensics.cli.outputs.salvage import announcement, remote_warnings, summary_lines, write_salvaged
    from kafka_forensics.questions.salvage import Salvaged, SalvageOptions, salvage

    def announce(salvaged: Salvaged) -> None:
        if not screen.quiet:
            say(screen, [announcement(salvaged)])

    salvage_options = SalvageOptions(prefer_broker, allow_gaps, metadata_partitions, rebuild_metadata, from_store)
    with Progress(screen) as progress:
        salvaged = salvage(paths, output, scan_options, salvage_options, progress, announce)
    say(screen, remote_warnings(salvaged))
    with open_output(None, color=console.color) as to:
        write_salvaged(salvaged, format_name, to, by=by)
    say(screen, summary_lines(salvaged, quiet=screen.quiet))
    return options.EXIT_INCOMPLETE if not salvaged.is_whole else int(salvaged.has_new_findings)
