"""The options that commands share, each declared once, and the exit statuses that follow from findings."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, TypeVar, get_args, get_type_hints

import typer
from msgspec import Struct
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.evidence import ledger
from kafka_forensics.evidence.options import ScanOptions, keep_code_below
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.results import ScanResult

if TYPE_CHECKING:
    from kafka_forensics.evidence.outputs import OutputKind

PROGRAM: Final = "kafka-forensics"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_DIGITS: Final = 8
"""20260301 is a day, not a number of milliseconds."""
_MOST_DIGITS: Final = 15


def choose(subject: str, name: str, names: Iterable[str]) -> str:
    """`name` if it is one of `names`. Raises UsageError with the nearest name, or all of them, as hint."""
    choices = list(names)
    if name in choices:
        return name
    hint = did_you_mean(name, choices, otherwise=f"choose from {', '.join(choices)}")
    raise UsageError(f"there is no {subject} {name!r}", hint=hint)


def choice(
    option: str, subject: str, names: Sequence[str], description: str, metavar: str = "", panel: str | None = None
) -> OptionInfo:
    """An option that takes one of `names`, which the shell completes. Any other value raises UsageError, as `choose` does."""
    info: OptionInfo = typer.Option(
        option,
        metavar=metavar or subject.upper(),
        parser=lambda value: choose(subject, value, names),
        autocompletion=lambda: list(names),
        help=description,
        rich_help_panel=panel,
    )
    return info


def time_ms(text: str, hint: str = "write it like 2026-03-01T12:00:00Z, or as milliseconds since 1970") -> int:
    """Milliseconds since 1970 of an ISO 8601 time (UTC if it names no zone) or of such a number. Raises UsageError."""
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and len(text) != _DATE_DIGITS:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a time", hint=hint) from None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def moment_ms(text: str) -> int:
    """Milliseconds since 1970 of a text that `time_ms` takes, or of `now`. Raises UsageError."""
    if text == "now":
        return time_ns() // 1_000_000
    return time_ms(text, "write it like 2026-03-01T12:00:00Z, as milliseconds since 1970, or now")


class OutputMark(Struct, frozen=True):
    """Marks an option or argument that names a file or directory that the command writes."""

    kind: "OutputKind" = "file"
    suffixes: tuple[str, ...] = ("",)
    """Endings that are appended to the name: the command writes one file for each."""


class InputMark(Struct, frozen=True):
    """Marks an option or argument that names a file or directory that the command reads."""


Mark = TypeVar("Mark", OutputMark, InputMark)

FORMATS: Final = ("text", "tsv", "json", "jsonl")
FAIL_ON: Final = ("none", "info", "warning", "error", "critical")
ENGINES: Final = ("local", "spark")
VIEWS: Final = ("incident", "partition")
COLOURS: Final = ("auto", "always", "never")

SCAN_FORMATS: Final = (*FORMATS, "prometheus")
PLAN_FORMATS: Final = (*FORMATS, "markdown")

INPUT: Final = "Input"
SELECTION: Final = "Selection"
STORAGE: Final = "Storage"
SPARK: Final = "Spark"
OUTPUT: Final = "Output"
PANELS: Final = (INPUT, SELECTION, STORAGE, SPARK, OUTPUT)
"""Headings of a command's help after "Options", which lists the options that most readers need: at most ten."""

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="A broker's log directory, a folder of them, a partition directory, a file, an archive of those (.tar, .tar.gz,"
        " .tar.xz, .tar.zst, .zip), a bundle from `collect` (.kfb), or a URI such as s3://bucket/broker-1. NAME=PATH names the"
        " broker.",
    ),
    InputMark(),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="E.g. endpoint=http://127.0.0.1:9000; repeatable. Set secrets in the environment.",
        rich_help_panel=STORAGE,
    ),
]
CacheDir = Annotated[
    str | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Keep compiled code in DIR [default: ~/.cache].",
        rich_help_panel=STORAGE,
    ),
    OutputMark("any"),
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="GLOB", help="Only topics that match, e.g. 'orders*'.")]
Partition = Annotated[int | None, typer.Option("--partition", metavar="N", min=0, help="Only this partition of each topic.")]
Broker = Annotated[str | None, typer.Option("--broker", metavar="N", help="Only this broker.", rich_help_panel=SELECTION)]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Use N cores [default: all].", rich_help_panel=INPUT)]
Engine = Annotated[str, choice("--engine", "engine", ENGINES, "Run on this machine (local) or on Spark.", "NAME", SPARK)]
SparkRemote = Annotated[
    str | None,
    typer.Option("--spark-remote", metavar="URL", help="A Spark Connect server, sc://host:port.", rich_help_panel=SPARK),
]
SparkMaster = Annotated[
    str | None,
    typer.Option("--spark-master", metavar="URL", help="A Spark master [default: local[JOBS]].", rich_help_panel=SPARK),
]


def format_option(names: Sequence[str], default: str = "") -> OptionInfo:
    """The option --format of a command with the formats `names`; `default` is what the help adds about the default."""
    return choice("--format", "format", names, f"{', '.join(names[:-1])} or {names[-1]}{default}.")


_TEXT: Final = " [default: text]"
Format = Annotated[str, format_option(FORMATS)]
FileFormat = Annotated[str | None, format_option(FORMATS, _TEXT)]
ScanFormat = Annotated[str | None, format_option(SCAN_FORMATS, _TEXT)]
PlanFormat = Annotated[str | None, format_option(PLAN_FORMATS, _TEXT)]


def cores() -> int:
    """How many cores this process may use; on systems that do not tell, such as macOS, how many the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def file_path(text: str) -> Path:
    """The path of a file to be written. Raises UsageError for the name of a directory, and for `-`."""
    if text.endswith(os.sep):
        raise UsageError(f"cannot write to {text}: it is a directory", hint="name a file")
    if text == "-":
        raise UsageError("- is not a file", hint="the answer goes to standard output without --output; a file of that name is ./-")
    return Path(text)


def directory_path(text: str) -> Path:
    """The path of a directory to be written. Raises UsageError for an empty text, which would mean the current directory."""
    if not text:
        raise UsageError("--output is empty, and is not a directory", hint="name one; ./ is the directory you are in")
    return Path(text)


Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        parser=file_path,
        help="Write to FILE; its ending chooses the format.",
    ),
    OutputMark(),
]
FailOn = Annotated[
    str,
    choice("--fail-on", "severity", FAIL_ON, "Exit with 1 from this severity on: none, info, warning, error or critical."),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="Compute ages at TIME or now [default: newest in logs].",
        rich_help_panel=INPUT,
    ),
]
Live = Annotated[bool, typer.Option("--live", help="The brokers ran while they were copied.")]
Copied = Annotated[
    bool | None,
    typer.Option(
        "--whole/--partial",
        help="Copies are complete, or partial [default: detected].",
        rich_help_panel=INPUT,
    ),
]
Deep = Annotated[
    bool | None,
    typer.Option("--deep/--no-deep", help="Decode all records, or none [default: by size].", rich_help_panel=INPUT),
]
Dead = Annotated[list[str] | None, typer.Option("--dead", metavar="N", help="A broker that will not return; repeatable.")]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        parser=file_path,
        help="Also write the HTML page of `report`.",
    ),
    OutputMark(),
]
ShowPayloads = Annotated[
    bool, typer.Option("--show-payloads", help="Show keys, values and headers of records.", rich_help_panel=OUTPUT)
]
By = Annotated[
    str,
    choice(
        "--by",
        "view",
        VIEWS,
        "Text by incident (equal partitions share a line) or by partition.",
    ),
]
Color = Annotated[
    str,
    choice(
        "--color",
        "colour",
        COLOURS,
        "auto, always or never.",
        "WHEN",
        OUTPUT,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no summary.", rich_help_panel=OUTPUT)]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show every finding and each step.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show each step, and the traceback of an error.", rich_help_panel=OUTPUT)]


class EngineOptions(Struct, frozen=True, kw_only=True):
    """Where the work runs."""

    engine: Engine = "local"
    spark_remote: SparkRemote = None
    spark_master: SparkMaster = None

    def on_spark(self) -> bool:
        """Whether the work runs on Spark. Raises UsageError for two addresses of Spark, and for one without `--engine spark`."""
        remote, master = self.spark_remote, self.spark_master
        if self.engine == "spark":
            if remote is not None and master is not None:
                raise UsageError("--spark-remote and --spark-master name two places", hint="give one of them")
            return True
        if remote is not None or master is not None:
            raise UsageError("--spark-remote and --spark-master require --engine spark", hint="add --engine spark")
        return False


class Selection(Struct, frozen=True, kw_only=True):
    """Which partitions the command reads."""

    topic: Topic = None
    partition: Partition = None


class BrokerSelection(Selection, frozen=True, kw_only=True):
    """Which partitions the command reads, and of which broker."""

    broker: Broker = None


class AccessOptions(Struct, frozen=True, kw_only=True):
    """How inputs are reached, and where compiled kernels are kept."""

    storage_option: StorageOption = None
    cache_dir: CacheDir = None

    def scope(self, selection: Selection) -> ScanOptions:
        """The options of a scan of this selection. From this call on, compiled kernels are kept in `cache_dir`.

        Raises UsageError for a cache directory that is not an absolute path, and for invalid storage options.
        """
        keep_code_below(self.cache_dir)
        return ScanOptions(
            topic_glob=selection.topic,
            partition=selection.partition,
            broker=selection.broker if isinstance(selection, BrokerSelection) else None,
            storage_options=storage_pairs(self.storage_option),
            cache_dir=self.cache_dir,
        )


class ReadOptions(AccessOptions, frozen=True, kw_only=True):
    """How copies are read, for commands that judge logs."""

    jobs: Jobs = None
    live: Live = False
    as_of: AsOf = None
    copied_whole: Copied = None

    def scan_options(self, selection: Selection, *, deep: bool | None = None) -> ScanOptions:
        """The options of a scan of this selection, on all cores without `jobs`.

        Raises UsageError as `scope` does, and for an invalid time.
        """
        return replace(
            self.scope(selection),
            jobs=self.jobs or cores(),
            copied={None: None, True: ledger.CopyExtent.WHOLE, False: ledger.CopyExtent.PARTIAL}[self.copied_whole],
            live=self.live,
            deep=deep,
            as_of_ms=None if self.as_of is None else moment_ms(self.as_of),
        )


_FORMAT_OF_ENDING: Final = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".md": "markdown",
    ".tsv": "tsv",
    ".txt": "text",
    ".prom": "prometheus",
}


class OutputOptions(Struct, frozen=True, kw_only=True):
    """In which format the answer is written, and where."""

    format_name: FileFormat = None
    output: Output = None
    formats: ClassVar[Sequence[str]] = FORMATS

    def chosen_format(self) -> str:
        """The format of the answer: `format_name`, else by the ending of `output`, else the first of `formats`.

        Raises UsageError for an ending that belongs to no format.
        """
        if self.format_name is not None or self.output is None:
            return self.format_name or self.formats[0]
        ending = self.output.suffix.lower()
        by_ending = {suffix: name for suffix, name in _FORMAT_OF_ENDING.items() if name in self.formats}
        if ending and ending not in by_ending:
            endings = ", ".join(f"{suffix} ({name})" for suffix, name in by_ending.items())
            raise UsageError(f"no format has the ending {ending} of {self.output}", hint=f"give --format, or one of {endings}")
        return by_ending.get(ending, self.formats[0])


class ScanOutputOptions(OutputOptions, frozen=True, kw_only=True):
    """In which of the formats of a scan the answer is written, and where."""

    format_name: ScanFormat = None
    formats: ClassVar[Sequence[str]] = SCAN_FORMATS


class PlanOutputOptions(OutputOptions, frozen=True, kw_only=True):
    """In which of the formats of a plan the answer is written, and where."""

    format_name: PlanFormat = None
    formats: ClassVar[Sequence[str]] = PLAN_FORMATS


class ConsoleOptions(Struct, frozen=True, kw_only=True):
    """Colours, and what the command writes to standard error."""

    color: Color = "auto"
    quiet: Quiet = False
    debug: Debug = False

    @property
    def is_verbose(self) -> bool:
        """False: these commands have no --verbose."""
        return False


class VerboseConsoleOptions(ConsoleOptions, frozen=True, kw_only=True):
    """The same for commands that can show more."""

    verbose: Verbose = False

    @property
    def is_verbose(self) -> bool:
        """Whether the command shows every finding, and logs its progress."""
        return self.verbose or self.debug


def expand_option_groups(command: Callable[..., int]) -> Callable[..., int]:
    """`command` with a parameter for each field of its option groups, as typer takes it.

    Before the command runs, every output is checked against the inputs: a parameter that has an `OutputMark` against those that
    have an `InputMark`.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Struct)}
    parameters: list[Parameter] = []
    for declared in signature(command).parameters.values():
        parameter = declared.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[declared.name])
        if (group := groups.get(parameter.name)) is None:
            parameters.append(parameter)
            continue
        types = get_type_hints(group, include_extras=True)
        parameters += [
            parameter.replace(name=name, default=default, annotation=types[name])
            for name, default in zip(group.__struct_fields__, group.__struct_defaults__, strict=True)
        ]

    @wraps(command)
    def expanded(**values: object) -> int:
        _check_outputs(parameters, values)
        for name, group in groups.items():
            values[name] = group(**{name: values.pop(name) for name in group.__struct_fields__})
        return command(**values)

    expanded.__signature__ = Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": int}
    return expanded


def _check_outputs(parameters: Iterable[Parameter], arguments: dict[str, object]) -> None:
    """Raise UsageError for an output that would change an input."""
    values = [(value, parameter) for parameter in parameters if (value := arguments.get(parameter.name)) not in (None, "")]
    outputs = [(value, parameter, mark) for value, parameter in values if (mark := mark_of(parameter, OutputMark)) is not None]
    if not outputs:
        return
    from kafka_forensics.evidence.outputs import Output, check_outputs

    inputs = [value for value, parameter in values if mark_of(parameter, InputMark) is not None]
    check_outputs(
        [
            Output(f"{value}{suffix}", _typed_name(parameter), mark.kind)
            for value, parameter, mark in outputs
            for suffix in mark.suffixes
        ],
        [str(path) for value in inputs for path in (value if isinstance(value, list) else [value])],
    )


def mark_of(parameter: Parameter, mark: type[Mark]) -> Mark | None:
    """The mark of this class that a parameter has, if any."""
    return next((metadata for metadata in get_args(parameter.annotation)[1:] if isinstance(metadata, mark)), None)


def _typed_name(parameter: Parameter) -> str:
    """The name of an option as the user types it, `--output`; of an argument its metavar, `DIR`."""
    info = next(metadata for metadata in get_args(parameter.annotation) if isinstance(metadata, ParameterInfo))
    return str(info.metavar if isinstance(info, ArgumentInfo) else info.default)


def storage_pairs(texts: list[str] | None) -> tuple[tuple[str, str], ...]:
    """(name, value) of each `--storage-option`. Raises UsageError, which repeats no value: values may be secret."""
    if not texts:
        return ()
    from kafka_forensics.storage.remote import option_pair, storage_options

    pairs = tuple(map(option_pair, texts))
    storage_options(pairs)
    return pairs


EXIT_INCOMPLETE: Final = 3
EXIT_INTERRUPTED: Final = 130


def exit_status(result: ScanResult, fail_on: str) -> int:
    """EXIT_INTERRUPTED if the user ended the scan, else as `exit_status_of`."""
    if result.is_interrupted:
        return EXIT_INTERRUPTED
    severities = (finding.severity for finding in result.findings)
    return exit_status_of(severities, fail_on, incomplete=bool(result.incomplete))


def exit_status_of(severities: Iterable[str], fail_on: str, *, incomplete: bool) -> int:
    """EXIT_INCOMPLETE if some input could not be read, else 1 if a finding's severity is at or above `fail_on`, else 0."""
    if incomplete:
        return EXIT_INCOMPLETE
    return int(fail_on != "none" and any(Severity(severity).rank >= Severity(fail_on).rank for severity in severities))
