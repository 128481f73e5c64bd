"""The data source `kafka_log`: facts of log directories as DataFrames.

There is no `pushFilters`, and there must be none while Spark 4.3 and older are supported: they keep a pushed filter for every later
use of the DataFrame, which then gives wrong rows without a word. What shall not be read is said by options and by `schema`.
"""

import glob
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kafka_forensics.errors import ForensicsError, PathMissingError, UsageError, did_you_mean
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.paths import open_paths, split_name
from kafka_forensics.export.facts.read import read_task
from kafka_forensics.export.facts.rows import FROM_SCANS, SPLIT_BYTES, FactQuery
from kafka_forensics.export.facts.splits import plan_tasks
from kafka_forensics.spark.columns import (
    FACT_NAMES,
    NAMES,
    SourceColumn,
    arrow_of,
    chosen_columns,
    require_known,
    source_columns,
    struct_of,
)
from kafka_forensics.storage.code_cache import exclude_input
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.remote import without_uri_options

if TYPE_CHECKING:
    import pyarrow as pa

# Options of the data source: what may be said, and what to say about what cannot be meant.


DEFAULT_FACT: Final = "batches"
OPTIONS: Final = (
    "fact",
    "path",
    "paths",
    "snapshots",
    "order",
    "topics",
    "partitions",
    "brokers",
    "offset_from",
    "offset_to",
    "timestamp_from",
    "timestamp_to",
    "on_corrupt",
    "split_bytes",
    "payloads",
    "includepayloads",
    "columns",
    "names",
    "deep",
    "live",
    "copied",
    "as_of",
)
"""In lower case; all but those of a storage service, whose names begin with `storage.`."""
_AS_WRITTEN: Final = {"includepayloads": "includePayloads"}
"""Options that people write with a capital, as Spark's own `includeHeaders`."""
STORAGE: Final = "storage."
_SMALLEST_SPLIT: Final = 1 << 10
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,15})\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_TRUTHS: Final = {"true": True, "false": False}
Value = TypeVar("Value")
_COPIED: Final = {reading.value: reading for reading in (CopyExtent.WHOLE, CopyExtent.PARTIAL)}
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader was told, columns aside; `storage` may hold secrets.

    With `snapshots` the paths are those of snapshots, or of a folder that holds some; `order` are the names of those wanted.
    `columns` are all that there are, or those that were asked for.
    """

    paths: list[str]
    query: FactQuery
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    snapshots: bool = False
    order: tuple[str, ...] = ()
    columns: tuple[SourceColumn, ...] = ()
    names: str = FACT_NAMES


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a reader, names in any case. Raises UsageError, in words, for whatever cannot be meant."""
    values = {name.lower(): value for name, value in given.items()}
    storage = tuple(sorted((name.removeprefix(STORAGE), value) for name, value in values.items() if name.startswith(STORAGE)))
    for name in values:
        if name not in OPTIONS and not name.startswith(STORAGE):
            known = [_AS_WRITTEN.get(option, option) for option in OPTIONS]
            choice = did_you_mean(name, known, otherwise=f"there are {', '.join(known)} and {STORAGE}*")
            raise UsageError(f"there is no option {name!r} of kafka_log", hint=choice)
    snapshots = _choice(values, "snapshots", _TRUTHS, "false")
    fact = values.get("fact", DEFAULT_FACT)
    names = _choice(values, "names", {name: name for name in NAMES}, FACT_NAMES)
    columns = _columns(values, fact, source_columns(fact, snapshots=snapshots, names=names))
    query = FactQuery(
        fact,
        (),
        topics=_names(values, "topics"),
        partitions=_partitions(values),
        brokers=_names(values, "brokers"),
        offset_from=_offset(values, "offset_from"),
        offset_to=_offset(values, "offset_to"),
        timestamp_from=_timestamp(values, "timestamp_from"),
        timestamp_to=_timestamp(values, "timestamp_to"),
        strict=_choice(values, "on_corrupt", {"report": False, "strict": True}, "report"),
        split_bytes=_split_bytes(values),
        payloads=_payloads(values),
        deep=_choice(values, "deep", _TRUTHS, "") if "deep" in values else None,
        live=_choice(values, "live", _TRUTHS, "false"),
        copied=_choice(values, "copied", _COPIED, "") if "copied" in values else None,
        as_of_ms=_timestamp(values, "as_of"),
    )
    order = _names(values, "order")
    if order and not snapshots:
        raise UsageError("order chooses among snapshots, and none are read", hint="say snapshots=true as well")
    paths, storage = without_uri_options(_paths(values), storage)
    return SourceOptions(paths, query, storage, snapshots, order, columns, names)


def _columns(values: Mapping[str, str], fact: str, known: list[SourceColumn]) -> tuple[SourceColumn, ...]:
    """The columns that are asked for, in that order; all of them if none are."""
    by_name = {column.name: column for column in known}
    return tuple(by_name[name] for name in require_known(fact, list(_names(values, "columns")) or [*by_name], [*by_name]))


def _payloads(values: Mapping[str, str]) -> bool:
    """Whether keys, values and headers are asked for, by either name of the option."""
    said = {_choice(values, name, _TRUTHS, "") for name in ("payloads", "includepayloads") if name in values}
    if len(said) > 1:
        raise UsageError("payloads and includePayloads contradict each other", hint="give one of them")
    return said == {True}


def _names(values: Mapping[str, str], option: str) -> tuple[str, ...]:
    """Names between commas."""
    if option not in values:
        return ()
    names = [name.strip() for name in values[option].split(",")]
    if not all(names):
        raise UsageError(
            f"{option} is {values[option]!r}: there is a name missing", hint=f"like {option}=a,b, or leave it away for all"
        )
    return tuple(names)


def _partitions(values: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    ranges = []
    for name in _names(values, "partitions"):
        match = _RANGE.fullmatch(name)
        if match is None:
            raise UsageError(f"partitions is {values['partitions']!r}: {name!r} is no number", hint="like partitions=0,2,4-7")
        ranges.append((int(match[1]), int(match[2] or match[1])))
    return tuple(ranges)


def _offset(values: Mapping[str, str], option: str) -> int | None:
    value = values.get(option)
    if value is None:
        return None
    if not _NUMBER.fullmatch(value.strip()) or not -(1 << 63) <= int(value) < 1 << 63:
        raise UsageError(f"{option} is {value!r}, which is no offset", hint=f"like {option}=1200")
    return int(value)


def _timestamp(values: Mapping[str, str], option: str) -> int | None:
    """Milliseconds since 1970; ISO 8601 without a zone is in UTC."""
    value = values.get(option)
    if value is None:
        return None
    if _NUMBER.fullmatch(value.strip()) and -(1 << 63) <= int(value) < 1 << 63 and len(value.strip()) != len("20261120"):
        return int(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError as error:
        hint = f"like {option}=2026-11-20T08:30:00Z, or milliseconds since 1970"
        raise UsageError(f"{option} is {value!r}, which is no time", hint=hint) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _choice(values: Mapping[str, str], option: str, choices: Mapping[str, Value], default: str) -> Value:
    value = values.get(option, default).strip().lower()
    if value not in choices:
        hint = did_you_mean(value, choices, otherwise=f"choose from {', '.join(choices)}")
        raise UsageError(f"{_AS_WRITTEN.get(option, option)} is {values[option]!r}, which is none of its values", hint=hint)
    return choices[value]


def _split_bytes(values: Mapping[str, str]) -> int:
    value = values.get("split_bytes", str(SPLIT_BYTES))
    match = _SIZE.fullmatch(value.strip())
    size = 0 if match is None else int(match[1]) << _UNITS[match[2].lower()]
    if size < _SMALLEST_SPLIT:
        raise UsageError(
            f"split_bytes is {value!r}, which is no size of at least {_SMALLEST_SPLIT} bytes", hint="like split_bytes=256m"
        )
    return size


def _paths(values: Mapping[str, str]) -> list[str]:
    """The paths of `load`, patterns replaced by what matches them."""
    given = [values["path"]] if "path" in values else []
    if "paths" in values:
        try:
            several = json.loads(values["paths"])
        except ValueError as error:
            raise UsageError(f"paths is {values['paths']!r}, which is no JSON list", hint="give the paths to load()") from error
        if not isinstance(several, list) or not all(isinstance(path, str) for path in several):
            raise UsageError(f"paths is {values['paths']!r}, which is no JSON list of texts", hint="give the paths to load()")
        given += several
    if not given:
        raise UsageError("no path was given", hint='like spark.read.format("kafka_log").load("/copies/broker-1")')
    return [path for pattern in given for path in _matches(pattern)]


def _matches(given: str) -> list[str]:
    """What a pattern of this machine matches; a path that exists as it stands, or has no pattern in it, or is a URI, is itself."""
    if not given.strip():
        raise UsageError("an empty path", hint="give log directories of brokers, or partition directories")
    name, path = split_name(given)
    here = path if os.path.lexists(path) else local_path(path)
    if here is None or os.path.lexists(here) or not glob.has_magic(here):
        return [given]
    paths = sorted(glob.glob(here))
    if not paths:
        raise PathMissingError(f"nothing matches {path}")
    return paths if name is None else [f"{name}={path}" for path in paths]


# Errors as a user of Spark meets them: our sentence first, and the hint with it, not our stack before it.


_OF_WORKERS: Final = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH", "PYTHON_WORKER_FACTORY_SOCK_DIR")
"""Variables of the environment by which a Python process knows that it is Spark's worker."""
_HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""What a worker looks at once an error has ended its work; it ends itself behind that, so nobody else's errors lose their stack."""


@contextmanager
def in_words() -> Iterator[None]:
    """Let errors that are raised on purpose reach the user as one sentence; of a bug the stack stays."""
    try:
        yield
    except ForensicsError as error:
        if any(name in os.environ for name in _OF_WORKERS):
            os.environ[_HIDE] = "1"
        if isinstance(error, UsageError) and error.hint is not None:
            raise type(error)(f"{error}: {error.hint}") from error
        raise


# The reader of `kafka_log`: tasks planned from listings, and rows read task by task as Arrow.


@dataclass
class FactTask(InputPartition):
    """One task: plain text, so that it means the same to any Python."""

    task: str


class KafkaLogReader(DataSourceReader):
    """Reads one fact, of the snapshots whose paths are given by their names if there are any; every attempt gives the same rows."""

    def __init__(self, options: SourceOptions, columns: tuple[SourceColumn, ...], snapshots: dict[str, list[str]] | None) -> None:
        self._options = options
        self._snapshots = snapshots
        self._columns = columns
        self._query = replace(options.query, columns=tuple(dict.fromkeys(column.source for column in columns)))

    def partitions(self) -> list[InputPartition]:
        """One for each task, by snapshot, topic, partition, broker and offset; none if there is nothing to read."""
        query, storage = self._query, self._options.storage
        with in_words():
            if self._snapshots is None:
                return [FactTask(task) for task in plan_tasks(self._options.paths, query, storage)]
            from kafka_forensics.export.facts.scan import plan_snapshots  # most reads are of one

            return [FactTask(snapshot) for snapshot in plan_snapshots(self._snapshots, query, storage)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a task, in the types that Spark takes."""
        if not isinstance(partition, FactTask):
            return  # how Spark calls this where there are no tasks
        for path in [*self._options.paths, *chain.from_iterable((self._snapshots or {}).values())]:
            if (here := local_path(split_name(path)[1])) is not None:
                exclude_input(here)
        schema = arrow_of(self._columns)
        with in_words():
            for batch in self._rows(partition.task):
                yield in_columns(batch, self._columns, schema)

    def _rows(self, task: str) -> "Iterator[pa.RecordBatch]":
        query, storage = self._query, self._options.storage
        if self._snapshots is None and query.fact not in FROM_SCANS:
            return read_task(task, query, storage)
        from kafka_forensics.export.facts.scan import read_scan, read_snapshots
        from kafka_forensics.export.views import words

        read = read_scan if self._snapshots is None else read_snapshots
        return read(task, query, words, storage)


def in_columns(batch: "pa.RecordBatch", columns: Sequence[SourceColumn], schema: "pa.Schema") -> "pa.RecordBatch":
    """The columns of a batch with the types, names and nullability of `schema`, every one of which Spark compares."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([column.values(batch) for column in columns], schema=schema)


class KafkaLogDataSource(DataSource):
    """`spark.read.format("kafka_log")`; options are told in docs/spark.md."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises UsageError for options and paths that make no sense, before anything is planned."""
        super().__init__(options)
        with in_words():
            self._parsed = parse_options(options)
            try:
                self._snapshots = _snapshots(self._parsed)
            except PathMissingError as error:
                raise _where_it_was_looked_for(error, self._parsed.paths) from error

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return "kafka_log"

    def schema(self) -> StructType:
        """The declared schema of the fact, or the columns of it that the options ask for."""
        return struct_of(self._parsed.columns)

    def reader(self, schema: StructType) -> KafkaLogReader:
        """A reader of the columns in `schema`. Raises UsageError for what the fact does not have."""
        parsed = self._parsed
        with in_words():
            fact, snapshots = parsed.query.fact, parsed.snapshots
            chosen = chosen_columns(fact, schema, snapshots=snapshots, names=parsed.names)
            every = {column.name: column for column in source_columns(fact, snapshots=snapshots, names=parsed.names)}
            if len(parsed.columns) < len(every) and {column.name for column in parsed.columns} != set(chosen):
                raise UsageError("the option columns and the schema ask for different columns", hint="give one of them")
            return KafkaLogReader(parsed, tuple(every[name] for name in chosen), self._snapshots)

    def streamReader(self, schema: StructType) -> "NoStream":  # noqa: ARG002, N802 - Spark's own signature
        """What refuses `readStream`."""
        return NoStream()

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002 - Spark's own signature
        """Refuses `write`."""
        _refuse("kafka_log has no write, for evidence is only ever read: kafka_forensics.spark.export writes facts as Parquet")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802 - Spark's own name
        """Refuses `writeStream`."""
        self.writer(schema, overwrite)


class NoStream(DataSourceStreamReader):
    """Refuses to be read: not when it is made, for Spark 4.3 and older would then tell of an error of their own instead."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's own name
        """Raises UsageError."""
        _refuse("kafka_log has no readStream, for the log directories it reads are copies and do not grow: use spark.read")

    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802 - Spark's own name
        """Raises UsageError."""
        self.initialOffset()

    def partitions(self, start: object, end: object) -> NoReturn:  # noqa: ARG002 - Spark's own signature
        """Raises UsageError."""
        self.initialOffset()

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002 - Spark's own signature
        """Raises UsageError."""
        self.initialOffset()


def _refuse(sentence: str) -> NoReturn:
    with in_words():
        raise UsageError(sentence)


def _snapshots(parsed: SourceOptions) -> dict[str, list[str]] | None:
    """The paths of each snapshot by its name, None if it is not snapshots that are read. All paths are there, and Kafka's."""
    if not parsed.snapshots:
        open_paths(parsed.paths, storage_options=parsed.storage)
        return None
    from kafka_forensics.evidence.options import ScanOptions
    from kafka_forensics.questions.changes import named_snapshots  # most reads are of one

    notes: list[str] = []
    snapshots = named_snapshots(parsed.paths, ScanOptions(storage_options=parsed.storage), parsed.order, notes)
    if not snapshots:
        hint = "; ".join(["every directory and archive in it would be one", *notes])
        raise UsageError(f"there is no snapshot in {parsed.paths[0]}", hint=hint)
    for note in notes:
        logging.getLogger(__name__).warning("%s", ascii(note)[1:-1])  # names of strangers are in it
    for paths in snapshots.values():
        open_paths(paths, storage_options=parsed.storage)
    return snapshots


def _where_it_was_looked_for(error: PathMissingError, paths: list[str]) -> PathMissingError:
    """The error, saying from where relative paths count: Spark's workers may run elsewhere than its user."""
    if all(os.path.isabs(split_name(path)[1]) for path in paths):
        return error
    hints = [*([error.hint] if error.hint else []), f"relative paths count from {os.getcwd()}, where Spark's Python runs"]
    return PathMissingError(str(error), hint="; ".join(hints))
