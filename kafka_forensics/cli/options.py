"""The options that commands share, each declared once."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli.choices import choose, time_ms
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.ledger import Reading
from kafka_forensics.evidence.options import ScanOptions, keep_code_below

if TYPE_CHECKING:
    from kafka_forensics.export.schema_versions import Shape

FORMATS: Final = ("table", "tsv", "json", "jsonl", "markdown")
FAIL_ON: Final = ("none", "info", "warning", "error", "critical")
ENGINES: Final = ("local", "spark")
SCHEMAS: Final = ("1.0", "1.1")
SCHEMA: Final = SCHEMAS[-1]

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="A broker's log directory, a folder of them, a partition directory, one file, or a .tar/.tar.gz/.tar.xz/.tar.zst/.zip"
        " of those, or a URI such as s3://bucket/broker-1; NAME=PATH names the broker.",
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="How a storage service is reached, e.g. endpoint=http://127.0.0.1:9000; may be given again. The rest, and secrets,"
        " come from the environment (AWS_*, ...).",
    ),
]
CacheDir = Annotated[
    str | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Keep compiled kernels below this absolute path, if nobody else can write there [default: XDG_CACHE_HOME, if it is"
        " absolute, or ~/.cache].",
    ),
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="GLOB", help="Only topics that match, e.g. 'orders*'.")]
Partition = Annotated[int | None, typer.Option("--partition", metavar="N", min=0, help="Only this partition of each topic.")]
Broker = Annotated[str | None, typer.Option("--broker", metavar="N", help="Only this broker.")]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes at work at once [default: one a core].")]
Engine = Annotated[
    str, typer.Option("--engine", metavar="NAME", autocompletion=lambda: list(ENGINES), help="Where the work runs: local or spark.")
]
SparkRemote = Annotated[
    str | None,
    typer.Option("--spark-remote", metavar="URL", help="With --engine spark: a Spark Connect server, sc://host:port."),
]
SparkMaster = Annotated[
    str | None,
    typer.Option("--spark-master", metavar="URL", help="With --engine spark: a master [default: a Spark of its own, local[JOBS]]."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=lambda: list(FORMATS),
        help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]} [default: table on a terminal, tsv elsewhere].",
    ),
]


def file_path(given: str) -> Path:
    """The path of a file to be written. Raises UsageError for what names a directory, or standard output."""
    if given.endswith(os.sep):
        raise UsageError(f"cannot write to {given}: it names a directory", hint="name a file")
    if given == "-":
        raise UsageError("- is no file", hint="the answer goes to standard output without --output; a file of that name is ./-")
    return Path(given)


Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        parser=file_path,
        help="Write to FILE, never inside an input. Without --format its ending decides.",
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        "--fail-on",
        metavar="SEVERITY",
        autocompletion=lambda: list(FAIL_ON),
        help="End with status 1 from this severity on: none, info, warning, error or critical.",
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="The moment ages are counted to [default: the newest time in the evidence, by brokers' clocks if any].",
    ),
]
Live = Annotated[bool, typer.Option("--live", help="The copy was taken from running brokers.")]
Copied = Annotated[
    bool | None,
    typer.Option(
        "--whole/--partial",
        help="Log directories were copied whole, so that what is not there is gone, or in part [default: as each looks].",
    ),
]
Deep = Annotated[
    bool | None,
    typer.Option("--deep/--no-deep", help="Decode every record, or judge batches only [default: by size]."),
]
ShowPayloads = Annotated[bool, typer.Option("--show-payloads", help="Show bytes of keys, values and headers.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours; so do NO_COLOR and TERM=dumb.")]
Schema = Annotated[
    str,
    typer.Option(
        "--schema",
        metavar="VERSION",
        autocompletion=lambda: list(SCHEMAS),
        help=f"Of json and jsonl: {SCHEMAS[0]} or {SCHEMAS[1]} (docs/schema.md). Status 3 where {SCHEMAS[0]} cannot say all.",
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no summary.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show every finding, and what is being done.")]
Debug = Annotated[bool, typer.Option("--debug", help="Like -v, and show the traceback of an error.")]


def schema_shape(version: str, format_name: str) -> "Shape":
    """The shape of the schema that was asked for. Raises UsageError for a version that is none, and for an earlier one of a format
    without schema."""
    from kafka_forensics.export.schema_versions import Shape

    if choose("schema", version, SCHEMAS) != SCHEMA and format_name not in ("json", "jsonl"):
        raise UsageError(f"--schema {version} is a shape of JSON, not of {format_name}", hint="add --format json or jsonl")
    return Shape(version)


def on_spark(engine: str, remote: str | None, master: str | None) -> bool:
    """Whether Spark was asked for. Raises UsageError for an engine that is none, and for where Spark is without asking for it."""
    if choose("engine", engine, ENGINES) == "spark":
        if remote is not None and master is not None:
            raise UsageError("--spark-remote and --spark-master name two places", hint="give one of them")
        return True
    if remote is not None or master is not None:
        raise UsageError("--spark-remote and --spark-master go with --engine spark", hint="add --engine spark")
    return False


def scan_options(
    *,
    topic: str | None,
    partition: int | None,
    broker: str | None = None,
    jobs: int | None,
    live: bool,
    deep: bool | None = None,
    as_of: str | None = None,
    copied_whole: bool | None = None,
    storage: list[str] | None = None,
    cache_dir: str | None = None,
) -> ScanOptions:
    """What was asked for, every core at work unless `jobs` says otherwise; compiled kernels are kept in `cache_dir` from now on.

    Raises UsageError for a time that is none, a cache directory that is no absolute path, and storage options that cannot be.
    """
    keep_code_below(cache_dir)
    return ScanOptions(
        topic_glob=topic,
        partition=partition,
        broker=broker,
        jobs=jobs or len(os.sched_getaffinity(0)),
        copied=None if copied_whole is None else Reading.WHOLE if copied_whole else Reading.PARTIAL,
        live=live,
        deep=deep,
        as_of_ms=None if as_of is None else time_ms(as_of),
        storage_options=storage_pairs(storage),
        cache_dir=cache_dir,
    )


def storage_pairs(given: list[str] | None) -> tuple[tuple[str, str], ...]:
    """What `--storage-option` said, each once as (name, value). Raises UsageError, which repeats no value."""
    if not given:
        return ()
    from kafka_forensics.storage.remote import option_pair, storage_options

    pairs = tuple(map(option_pair, given))
    storage_options(pairs)
    return pairs
