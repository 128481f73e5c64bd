"""The options that commands share, each declared once."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo, ParameterInfo

from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.evidence import ledger
from kafka_forensics.evidence.options import ScanOptions, keep_code_below

if TYPE_CHECKING:
    from kafka_forensics.evidence.outputs import OutputKind

# Names to choose from, and what a mistyped one was probably meant to be.


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_DIGITS: Final = 8
"""20260301 is a day."""
_MOST_DIGITS: Final = 15


def choose(subject: str, name: str, names: Iterable[str]) -> str:
    """`name` if it is one of `names`. Raises UsageError with the nearest name, or all of them, as hint."""
    known = list(names)
    if name in known:
        return name
    raise UsageError(f"there is no {subject} {name!r}", hint=did_you_mean(name, known, otherwise=f"choose from {', '.join(known)}"))


def time_ms(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time (UTC if it names no zone) or of such a number. Raises UsageError."""
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and len(text) != _DATE_DIGITS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time", hint="write it like 2026-03-01T12:00:00Z, or as milliseconds since 1970"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Written:
    """Marks an option or argument that names what the command writes."""

    kind: "OutputKind" = "file"
    suffixes: tuple[str, ...] = ("",)
    """After its name: what is written."""


@dataclass(frozen=True, slots=True)
class Read:
    """Marks an option or argument that names what the command reads."""


Mark = TypeVar("Mark", Written, Read)

FORMATS: Final = ("table", "tsv", "json", "jsonl", "markdown")
FAIL_ON: Final = ("none", "info", "warning", "error", "critical")
ENGINES: Final = ("local", "spark")
VIEWS: Final = ("incident", "partition")
COLOURS: Final = ("auto", "always", "never")

SCAN_FORMATS: Final = (*FORMATS, "report", "prometheus")
"""A report is a table for a pipe or a pager, with the summary at its end."""

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="A broker's log directory, a folder of them, a partition directory, one file, or a .tar/.tar.gz/.tar.xz/.tar.zst/.zip"
        " of those, a bundle (.kfb) that collect made, or a URI such as s3://bucket/broker-1; NAME=PATH names the broker.",
    ),
    Read(),
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
    Written("any"),
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="GLOB", help="Only topics that match, e.g. 'orders*'.")]
Partition = Annotated[int | None, typer.Option("--partition", metavar="N", min=0, help="Only this partition of each topic.")]
Broker = Annotated[str | None, typer.Option("--broker", metavar="N", help="Only this broker.")]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Cores at work at once [default: all].")]
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


ScanFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=lambda: list(SCAN_FORMATS),
        help=f"{', '.join(SCAN_FORMATS[:-1])} or {SCAN_FORMATS[-1]}; report is the table without colours and with the summary at"
        " its end [default: table on a terminal, tsv elsewhere].",
    ),
]


def cores() -> int:
    """Those that this process may use; where the system does not say it, as macOS, those that there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def file_path(given: str) -> Path:
    """The path of a file to be written. Raises UsageError for what names a directory, or standard output."""
    if given.endswith(os.sep):
        raise UsageError(f"cannot write to {given}: it names a directory", hint="name a file")
    if given == "-":
        raise UsageError("- is no file", hint="the answer goes to standard output without --output; a file of that name is ./-")
    return Path(given)


def directory_path(given: str) -> Path:
    """The path of a directory to be written. Raises UsageError for an empty one, which would be the present directory."""
    if not given:
        raise UsageError("--output is empty, and names no directory", hint="name one; ./ is the directory you are in")
    return Path(given)


Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        parser=file_path,
        help="Write to FILE, never inside an input. Without --format its ending decides.",
    ),
    Written(),
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
Dead = Annotated[list[str] | None, typer.Option("--dead", metavar="N", help="A broker that will not come back; may be repeated.")]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        parser=file_path,
        help="Write the HTML page of `report` as well, of the same scan; never inside an input.",
    ),
    Written(),
]
ShowPayloads = Annotated[bool, typer.Option("--show-payloads", help="Show bytes of keys, values and headers.")]
By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="VIEW",
        autocompletion=lambda: list(VIEWS),
        help="Of a table or report: incident (what happened, and to which partitions) or partition (each with all its findings).",
    ),
]
Color = Annotated[
    str,
    typer.Option(
        "--color",
        metavar="WHEN",
        parser=lambda given: choose("colour", given, COLOURS),
        autocompletion=lambda: list(COLOURS),
        help="auto (on a terminal that shows them, unless NO_COLOR is set or TERM is dumb), always or never.",
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no summary.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show every finding, and what is being done.")]
Debug = Annotated[bool, typer.Option("--debug", help="Like -v, and show the traceback of an error.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where the work runs."""

    engine: Engine = "local"
    spark_remote: SparkRemote = None
    spark_master: SparkMaster = None

    def on_spark(self) -> bool:
        """Whether Spark was asked for. Raises UsageError for an engine that is none, and for Spark's place without Spark."""
        remote, master = self.spark_remote, self.spark_master
        if choose("engine", self.engine, ENGINES) == "spark":
            if remote is not None and master is not None:
                raise UsageError("--spark-remote and --spark-master name two places", hint="give one of them")
            return True
        if remote is not None or master is not None:
            raise UsageError("--spark-remote and --spark-master go with --engine spark", hint="add --engine spark")
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions are asked for."""

    topic: Topic = None
    partition: Partition = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSelection(Selection):
    """The same where one broker alone can be asked for."""

    broker: Broker = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How inputs are reached, and where compiled kernels are kept."""

    storage_option: StorageOption = None
    cache_dir: CacheDir = None

    def scope(self, selection: Selection) -> ScanOptions:
        """What was asked for; compiled kernels are kept in `cache_dir` from now on.

        Raises UsageError for a cache directory that is no absolute path, and for storage options that cannot be.
        """
        keep_code_below(self.cache_dir)
        return ScanOptions(
            topic_glob=selection.topic,
            partition=selection.partition,
            broker=selection.broker if isinstance(selection, BrokerSelection) else None,
            storage_options=storage_pairs(self.storage_option),
            cache_dir=self.cache_dir,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Access):
    """How the copies are read: of every command that judges logs."""

    jobs: Jobs = None
    live: Live = False
    copied_whole: Copied = None

    def scan_options(self, selection: Selection, *, deep: bool | None = None, as_of: str | None = None) -> ScanOptions:
        """What was asked for, every core at work unless `jobs` says otherwise.

        Raises UsageError as `scope` does, and for a time that is none.
        """
        return replace(
            self.scope(selection),
            jobs=self.jobs or cores(),
            copied=None
            if self.copied_whole is None
            else ledger.CopyExtent.WHOLE
            if self.copied_whole
            else ledger.CopyExtent.PARTIAL,
            live=self.live,
            deep=deep,
            as_of_ms=None if as_of is None else time_ms(as_of),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """In which form an answer is given, and where to."""

    format_name: Format = None
    output: Output = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanForm(Form):
    """The same of a scan, which has more forms."""

    format_name: ScanFormat = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """What is said on stderr, and how."""

    color: Color = "auto"
    quiet: Quiet = False
    debug: Debug = False

    @property
    def says_all(self) -> bool:
        """Whether every finding is shown, and what is being done."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbosePrinting(Printing):
    """The same where there is more to be said."""

    verbose: Verbose = False

    @property
    def says_all(self) -> bool:
        """Whether every finding is shown, and what is being done."""
        return self.verbose or self.debug


def flat(command: Callable[..., int]) -> Callable[..., int]:
    """`command` as typer can take it: with each field of its parameters that are groups of options as a parameter of its own.

    Before it runs, all that is marked as `Written` is held against what is marked as `Read`.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        own = parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        if parameter.name not in groups:
            parameters.append(own)
            continue
        types = get_type_hints(groups[parameter.name], include_extras=True)
        parameters += [
            own.replace(name=field.name, default=field.default, annotation=types[field.name]) for field in fields(groups[own.name])
        ]

    @wraps(command)
    def taking_each(**given: object) -> int:
        _check_outputs(parameters, given)
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    taking_each.__signature__ = Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    taking_each.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": int}
    return taking_each


def _check_outputs(parameters: Iterable[Parameter], given: dict[str, object]) -> None:
    """Raise UsageError for an output that would change what is read."""
    values = [(value, parameter) for parameter in parameters if (value := given.get(parameter.name)) not in (None, "")]
    written = [(value, parameter, mark) for value, parameter in values if (mark := marked(parameter, Written)) is not None]
    if not written:
        return
    from kafka_forensics.evidence.outputs import Output, check_outputs

    read = [value for value, parameter in values if marked(parameter, Read) is not None]
    paths = [str(path) for value in read for path in (value if isinstance(value, list) else [value])]
    check_outputs(
        [
            Output(f"{value}{suffix}", _typed_name(parameter), mark.kind)
            for value, parameter, mark in written
            for suffix in mark.suffixes
        ],
        paths,
    )


def marked(parameter: Parameter, mark: type[Mark]) -> Mark | None:
    """The mark of this kind that a parameter has, if any."""
    return next((found for found in get_args(parameter.annotation)[1:] if isinstance(found, mark)), None)


def _typed_name(parameter: Parameter) -> str:
    """What the user calls it: `--output`, or `DIR` of an argument."""
    declared = next(found for found in get_args(parameter.annotation) if isinstance(found, ParameterInfo))
    return str(declared.metavar if isinstance(declared, ArgumentInfo) else declared.default)


def storage_pairs(given: list[str] | None) -> tuple[tuple[str, str], ...]:
    """What `--storage-option` said, each once as (name, value). Raises UsageError, which repeats no value."""
    if not given:
        return ()
    from kafka_forensics.storage.remote import option_pair, storage_options

    pairs = tuple(map(option_pair, given))
    storage_options(pairs)
    return pairs
