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
        help="An empty or new directory for the log directories, never inside an input. It has its name only once it is whole.",
    ),
    options.OutputMark("new directory"),
]
PreferBroker = Annotated[
    str | None,
    typer.Option(
        "--prefer-broker",
        metavar="N",
        help="Whose records stay in partitions that are refused otherwise, and whose copy of a compacted topic is taken if it is"
        " whole: its name here, or its node id.",
    ),
]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps",
        help="Also write partitions with offsets that no copy has, and compacted ones without a whole copy, and name the gaps.",
    ),
]
RebuildMetadata = Annotated[
    bool,
    typer.Option(
        "--rebuild-metadata",
        help="Build __remote_log_metadata anew from a remote store among the paths, although copies of it are here: if brokers ran"
        " without it, it lacks the older segments.",
    ),
]
FromStore = Annotated[
    bool,
    typer.Option(
        "--from-store",
        help="Write tiered topics as plain logs, with the records of a remote store among the paths, for brokers without remote"
        " storage.",
    ),
]
MetadataPartitions = Annotated[
    int | None,
    typer.Option(
        "--metadata-partitions",
        metavar="N",
        min=1,
        help="Number of partitions of __remote_log_metadata, if it is rebuilt from a remote store and no controllers' log is here.",
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
    """Log directories on which brokers start, made of the best of all copies, with a manifest of what came from where.

    DIR/broker-N/NAME takes the place of each log directory that is given, replaced disks (N=EMPTYDIR) among them, with the
    replicas that the controllers' log assigns there, or else those of its copy. The size is told before anything is written. Of
    each partition one lineage is written, that of the copy that `plan` recommends: holes and damage are filled from copies that
    provably hold the same, heads are restored, torn tails cut, and no batch is changed. Of a compacted or internal topic one
    whole copy is taken. What a broker derives from logs is built anew. A partition is refused, with the reason, where both
    sides of a fork were committed, where no copy has some offsets, or none is whole. The result is scanned before it gets its
    name: findings that no copy has are listed as new.
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
