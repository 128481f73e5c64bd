"""The data source `kafka_log`: facts of log directories as DataFrames.

There is no `pushFilters`, and there must be none while Spark 4.3 and older are supported: they keep a pushed filter for every later
use of the DataFrame, which then silently gives wrong rows. Options and `schema` limit what is read.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kafka_forensics.errors import ForensicsError, PathMissingError, SourceError, UsageError, did_you_mean
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.paths import matching_paths, open_paths, split_name
from kafka_forensics.export.facts.listings import require_listed
from kafka_forensics.export.facts.read import read_task
from kafka_forensics.export.facts.rows import FROM_SCANS, FactQuery
from kafka_forensics.export.facts.splits import plan_tasks
from kafka_forensics.spark.columns import (
    FACT_NAMES,
    NAMES,
    SourceColumn,
    requested_columns,
    require_known,
    source_columns,
    spark_arrow_schema,
    spark_struct,
)
from kafka_forensics.spark.sessions import MORE_MEMORY
from kafka_forensics.storage.code_cache import exclude_input
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.remote import NON_SECRET_OPTIONS, variables_here, with_missing_variables, without_uri_options

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_FACT: Final = "batches"
_AS_WRITTEN: Final = {"includepayloads": "includePayloads"}
"""Options that users write with a capital, like Spark's `includeHeaders`."""
STORAGE: Final = "storage."
"""Prefix of the options of a storage service."""
_MIN_SPLIT_BYTES: Final = 1 << 10
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,15})\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_SIZE_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _text(_: str, value: str) -> str:
    return value


def _names(option: str, value: str) -> tuple[str, ...]:
    """Names between commas."""
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise UsageError(f"{option} is {value!r}: a name is missing", hint=f"like {option}=a,b, or leave it out for all")
    return names


def _partitions(option: str, value: str) -> tuple[tuple[int, int], ...]:
    ranges = []
    for name in _names(option, value):
        match = _RANGE.fullmatch(name)
        if match is None:
            raise UsageError(f"partitions is {value!r}: {name!r} is not a number", hint="like partitions=0,2,4-7")
        ranges.append((int(match[1]), int(match[2] or match[1])))
    return tuple(ranges)


def _offset(option: str, value: str) -> int:
    if not _NUMBER.fullmatch(value.strip()) or not -(1 << 63) <= int(value) < 1 << 63:
        raise UsageError(f"{option} is {value!r}, which is not an offset", hint=f"like {option}=1200")
    return int(value)


def _timestamp(option: str, value: str) -> int:
    """Milliseconds since 1970; ISO 8601 without a zone is in UTC."""
    if _NUMBER.fullmatch(value.strip()) and -(1 << 63) <= int(value) < 1 << 63 and len(value.strip()) != len("20261120"):
        return int(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError as error:
        hint = f"like {option}=2026-11-20T08:30:00Z, or milliseconds since 1970"
        raise UsageError(f"{option} is {value!r}, which is not a time", hint=hint) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _choice_of(choices: Mapping[str, object]) -> Callable[[str, str], object]:
    def parse(option: str, value: str) -> object:
        chosen = value.strip().lower()
        if chosen not in choices:
            hint = did_you_mean(chosen, choices, otherwise=f"choose from {', '.join(choices)}")
            raise UsageError(f"{_AS_WRITTEN.get(option, option)} is {value!r}, which is not one of its values", hint=hint)
        return choices[chosen]

    return parse


def _size(option: str, value: str) -> int:
    match = _SIZE.fullmatch(value.strip())
    size = 0 if match is None else int(match[1]) << _SIZE_SHIFTS[match[2].lower()]
    if size < _MIN_SPLIT_BYTES:
        hint = f"like {option}=256m"
        raise UsageError(f"{option} is {value!r}, which is not a size of at least {_MIN_SPLIT_BYTES} bytes", hint=hint)
    return size


def _path_list(option: str, value: str) -> list[str]:
    hint = "give the paths to load()"
    try:
        paths = json.loads(value)
    except ValueError as error:
        raise UsageError(f"{option} is {value!r}, which is not a JSON list", hint=hint) from error
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError(f"{option} is {value!r}, which is not a JSON list of texts", hint=hint)
    return paths


_truth: Final = _choice_of({"true": True, "false": False})
OPTIONS: Final[dict[str, Callable[[str, str], Any]]] = {
    "fact": _text,
    "path": _text,
    "paths": _path_list,
    "snapshots": _truth,
    "order": _names,
    "topics": _names,
    "partitions": _partitions,
    "brokers": _names,
    "offset_from": _offset,
    "offset_to": _offset,
    "timestamp_from": _timestamp,
    "timestamp_to": _timestamp,
    "on_corrupt": _choice_of({"report": False, "strict": True}),
    "split_bytes": _size,
    "payloads": _truth,
    "includepayloads": _truth,
    "columns": _names,
    "names": _choice_of({name: name for name in NAMES}),
    "deep": _truth,
    "live": _truth,
    "copied": _choice_of({extent.value: extent for extent in (CopyExtent.WHOLE, CopyExtent.PARTIAL)}),
    "as_of": _timestamp,
    "scanned": _text,
}
"""Option in lower case → parser of (option, value), which raises UsageError; without the options of a storage service."""
_QUERY_FIELDS: Final = {
    **{name: name for name in ("topics", "partitions", "brokers", "offset_from", "offset_to", "timestamp_from", "timestamp_to")},
    "on_corrupt": "strict",
    "split_bytes": "split_bytes",
    "deep": "deep",
    "live": "live",
    "copied": "copied",
    "as_of": "as_of_ms",
}
"""Option → the field of `FactQuery` that has its value."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a reader; `storage` may hold secrets.

    With `snapshots` the paths are those of snapshots, or of a folder of snapshots; `order` has the names of the requested ones.
    `columns` are the requested columns, or all.
    """

    paths: list[str]
    query: FactQuery
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    snapshots: bool = False
    order: tuple[str, ...] = ()
    columns: tuple[SourceColumn, ...] = ()
    names: str = FACT_NAMES
    table: tuple[tuple[str, str], ...] = ()
    """All options, if they are of a table that is being created."""
    scanned: str | None = None
    """`listing_of` the scan to which the rows belong; other files are refused."""


_OF_TABLES: Final = frozenset({"provider", "owner", "location", "external", "is_managed_location", "comment", "collation"})
"""Properties of a table, which Spark mixes with its options where SQL creates it."""


def _without_properties(options: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """(options with names in lower case, whether they are of a table that is being created)."""
    texts = {name.lower(): value for name, value in options.items()}
    if "provider" not in texts:
        return texts, False
    if "location" not in texts:
        raise UsageError("a table of kafka_log needs the option path", hint="create a temporary view for the option paths")
    return {name: value for name, value in texts.items() if name not in _OF_TABLES and not name.startswith("option.")}, True


_NO_PATH: Final = 'like spark.read.format("kafka_log").load("/copies/broker-1"); create a table without a list of columns'


def _require_no_secrets(parsed: SourceOptions) -> None:
    """Raise UsageError for options of a table that Spark's catalog, and files written from the table, must not hold."""
    secret = [name for name, _ in parsed.storage if name not in NON_SECRET_OPTIONS]
    if secret:
        raise UsageError(
            "a table of kafka_log must not have credentials, because everyone can read a table's options",
            hint="give them to a temporary view, or set them in the environment of Spark's Python",
        )


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a reader, with names in any case. Raises UsageError for invalid options, and PathMissingError."""
    texts, is_table = _without_properties(options)
    table = tuple(sorted(texts.items())) if is_table else ()
    storage = tuple(sorted((name.removeprefix(STORAGE), texts.pop(name)) for name in [*texts] if name.startswith(STORAGE)))
    for name in texts:
        if name not in OPTIONS:
            known = [_AS_WRITTEN.get(option, option) for option in OPTIONS]
            choice = did_you_mean(name, known, otherwise=f"there are {', '.join(known)} and {STORAGE}*")
            raise UsageError(f"there is no option {name!r} of kafka_log", hint=choice)
    values = {name: parse(name, texts[name]) for name, parse in OPTIONS.items() if name in texts}
    fact, names = values.get("fact", DEFAULT_FACT), values.get("names", FACT_NAMES)
    snapshots, order = values.get("snapshots", False), values.get("order", ())
    by_name = {column.name: column for column in source_columns(fact, snapshots=snapshots, names=names)}
    columns = require_known(fact, list(values.get("columns", by_name)), [*by_name])
    payloads = {values[name] for name in ("payloads", "includepayloads") if name in values}
    if len(payloads) > 1:
        raise UsageError("payloads and includePayloads contradict each other", hint="give one of them")
    limits = {name: values[option] for option, name in _QUERY_FIELDS.items() if option in values}
    query = FactQuery(fact, (), payloads=True in payloads, **limits)
    if order and not snapshots:
        raise UsageError("order requires snapshots, but none are read", hint="also set snapshots=true")
    patterns = [*([values["path"]] if "path" in values else []), *values.get("paths", [])]
    if not patterns:
        raise UsageError("no path was given", hint=_NO_PATH)
    paths, storage = without_uri_options(matching_paths(patterns), storage)
    chosen = tuple(by_name[name] for name in columns)
    parsed = SourceOptions(paths, query, storage, snapshots, order, chosen, names, table, values.get("scanned"))
    if is_table:
        _require_no_secrets(parsed)
    return parsed


_OF_WORKERS: Final = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH", "PYTHON_WORKER_FACTORY_SOCK_DIR")
"""Environment variables that Spark sets in its Python workers."""
_HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""The variable that a worker reads after an error; the worker then ends, so no other error loses its stack trace."""


def _in_worker() -> bool:
    return any(name in os.environ for name in _OF_WORKERS)


@contextmanager
def readable_errors() -> Iterator[None]:
    """Show users our own errors as one sentence with its hint, and what to set for more memory; other errors keep their trace."""
    try:
        yield
    except MemoryError as error:  # of Python, numpy or Arrow
        if _in_worker():
            os.environ[_HIDE] = "1"
        raise ForensicsError(f"Spark's Python has too little memory ({error}): {MORE_MEMORY}") from error
    except ForensicsError as error:
        if _in_worker():
            os.environ[_HIDE] = "1"
        if isinstance(error, UsageError) and error.hint is not None:
            raise type(error)(f"{error}: {error.hint}") from error
        raise


@dataclass
class FactTask(InputPartition):
    """A task as plain text, readable by any Python version."""

    task: str


class KafkaLogReader(DataSourceReader):
    """Reads one fact; `snapshots` maps names of snapshots to their paths, None without snapshots."""

    def __init__(self, options: SourceOptions, columns: tuple[SourceColumn, ...], snapshots: dict[str, list[str]] | None) -> None:
        self._options = options
        self._snapshots = snapshots
        self._columns = columns
        self._query = replace(options.query, columns=tuple(dict.fromkeys(column.source for column in columns)))
        self._variables = variables_here()

    def partitions(self) -> list[InputPartition]:
        """The tasks, by snapshot, topic, partition, broker and offset; none if there is nothing to read."""
        query, storage = self._query, self._options.storage
        _log_no_notes()  # the notes were logged when the source was made
        with readable_errors():
            if self._snapshots is None:
                listed = self._options.scanned
                require = None if listed is None else partial(require_listed, query=query, listed=listed)
                return [FactTask(task) for task in plan_tasks(self._options.paths, query, storage, require)]
            from kafka_forensics.export.facts.scan import plan_snapshots  # slow to import, rarely needed

            return [FactTask(task) for task in plan_snapshots(self._snapshots, query, storage)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a task, in the types that Spark takes."""
        if not isinstance(partition, FactTask):
            return  # Spark calls it so if there are no tasks
        for path in [*self._options.paths, *chain.from_iterable((self._snapshots or {}).values())]:
            if (here := local_path(split_name(path)[1])) is not None:
                exclude_input(here)
        schema = spark_arrow_schema(self._columns)
        _log_no_notes()
        with readable_errors(), self._with_missing_variables():
            for batch in self._rows(partition.task):
                yield in_columns(batch, self._columns, schema)

    @contextmanager
    def _with_missing_variables(self) -> Iterator[None]:
        """Errors of storage services name what the environment of this worker lacks."""
        try:
            yield
        except SourceError as error:
            raise SourceError(error.path, with_missing_variables(error.reason, self._variables)) from error

    def _rows(self, task: str) -> "Iterator[pa.RecordBatch]":
        query, storage = self._query, self._options.storage
        if self._snapshots is None and query.fact not in FROM_SCANS:
            return read_task(task, query, storage)
        from kafka_forensics.export.facts.scan import read_scan, read_snapshots
        from kafka_forensics.export.views import finding_text

        read = read_scan if self._snapshots is None else read_snapshots
        return read(task, query, finding_text, storage)


def in_columns(batch: "pa.RecordBatch", columns: Sequence[SourceColumn], schema: "pa.Schema") -> "pa.RecordBatch":
    """The columns of a batch with the types, names and nullability of `schema`, all of which Spark checks."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([column.values(batch) for column in columns], schema=schema)


_TABLE_OPTIONS: Final = "kafka_log.options"


class KafkaLogDataSource(DataSource):
    """`spark.read.format("kafka_log")`; docs/spark.md describes the options."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises UsageError for invalid options and paths, before anything is planned; for no path, when it is read."""
        super().__init__(options)
        if {"path", "paths", "provider"}.intersection(map(str.lower, options)):
            self._open(options)

    def _open(self, options: Mapping[str, str]) -> None:
        with readable_errors():
            self._parsed = parse_options(options)
            if self._parsed.scanned is not None:
                _log_no_notes()  # the scan has logged the notes
            try:
                self._snapshots = _snapshots(self._parsed)
            except PathMissingError as error:
                raise _with_working_directory(error, self._parsed.paths) from error

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "kafka_log"

    def schema(self) -> StructType:
        """The declared schema of the fact, limited to the columns in the options.

        Spark 4.3 and older give a source the options of a table when it is created, and not when it is read. So the first column
        of a table has them in its metadata.
        """
        if not hasattr(self, "_parsed"):
            self._open(self.options)
        struct = spark_struct(self._parsed.columns)
        if self._parsed.table:
            struct[0].metadata[_TABLE_OPTIONS] = json.dumps(dict(self._parsed.table))
        return struct

    def reader(self, schema: StructType) -> KafkaLogReader:
        """A reader of the columns in `schema`. Raises UsageError for columns that the fact does not have."""
        if not hasattr(self, "_parsed"):
            of_table = [field.metadata[_TABLE_OPTIONS] for field in schema if _TABLE_OPTIONS in field.metadata]
            self._open({**(json.loads(of_table[0]) if of_table else {}), **self.options})
        parsed = self._parsed
        with readable_errors():
            fact, snapshots = parsed.query.fact, parsed.snapshots
            chosen = requested_columns(fact, schema, snapshots=snapshots, names=parsed.names)
            by_name = {column.name: column for column in source_columns(fact, snapshots=snapshots, names=parsed.names)}
            if len(parsed.columns) < len(by_name) and {column.name for column in parsed.columns} != set(chosen):
                raise UsageError("the option columns and the schema name different columns", hint="give one of them")
            return KafkaLogReader(parsed, tuple(by_name[name] for name in chosen), self._snapshots)

    def streamReader(self, schema: StructType) -> "RefusedStream":  # noqa: ARG002, N802 - Spark's own signature
        """Refuses `readStream`, when it is read."""
        return RefusedStream()

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002 - Spark's own signature
        """Refuses `write`."""
        _refuse("kafka_log cannot write, because evidence is only read: kafka_forensics.spark.export writes facts as Parquet")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802 - Spark's own name
        """Refuses `writeStream`."""
        self.writer(schema, overwrite)


class RefusedStream(DataSourceStreamReader):
    """Refuses to be read. An error at construction would be hidden by an error of Spark 4.3 and older."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's own name
        """Raises UsageError."""
        _refuse("kafka_log has no readStream, because copies of log directories do not grow: use spark.read")

    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802 - Spark's own name
        """Raises UsageError."""
        self.initialOffset()

    def partitions(self, start: object, end: object) -> NoReturn:  # noqa: ARG002 - Spark's own signature
        """Raises UsageError."""
        self.initialOffset()

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002 - Spark's own signature
        """Raises UsageError."""
        self.initialOffset()


def _log_no_notes() -> None:
    """Log no more notes about the inputs in this process, if it is one of Spark's."""
    if _in_worker():
        logging.getLogger("kafka_forensics.evidence").setLevel(logging.ERROR)


def _refuse(sentence: str) -> NoReturn:
    with readable_errors():
        raise UsageError(sentence)


def _snapshots(parsed: SourceOptions) -> dict[str, list[str]] | None:
    """The paths of each snapshot by its name; None without snapshots. Checks that all paths exist and hold files of Kafka."""
    if not parsed.snapshots:
        open_paths(parsed.paths, storage_options=parsed.storage)
        return None
    from kafka_forensics.evidence.options import ScanOptions
    from kafka_forensics.questions.changes import named_snapshots  # slow to import, rarely needed

    notes: list[str] = []
    snapshots = named_snapshots(parsed.paths, ScanOptions(storage_options=parsed.storage), parsed.order, notes)
    if not snapshots:
        hint = "; ".join(["every directory and archive in it would be a snapshot", *notes])
        raise UsageError(f"there is no snapshot in {parsed.paths[0]}", hint=hint)
    for note in notes:
        logging.getLogger(__name__).warning("%s", ascii(note)[1:-1])  # it contains untrusted names
    for paths in snapshots.values():
        open_paths(paths, storage_options=parsed.storage)
    return snapshots


def _with_working_directory(error: PathMissingError, paths: list[str]) -> PathMissingError:
    """The error with the directory that relative paths start from, which may differ from the user's."""
    if all(os.path.isabs(here) for path in paths if (here := local_path(split_name(path)[1])) is not None):
        return error
    hints = [*([error.hint] if error.hint else []), f"relative paths start at {os.getcwd()}, where Spark's Python runs"]
    return PathMissingError(str(error), hint="; ".join(hints))
