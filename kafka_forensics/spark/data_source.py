"""The data source `kafka_log`: facts of log directories as DataFrames.

There is no `pushFilters`, and there must be none while Spark 4.3 and older are supported: they keep a pushed filter for every later
use of the DataFrame, which then gives wrong rows without a word. What shall not be read is said by options and by `schema`.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafka_forensics.compiled.code_cache import keep_out_of
from kafka_forensics.errors import ForensicsError, PathMissingError, UsageError
from kafka_forensics.evidence.paths import open_paths, split_name
from kafka_forensics.facts.read import read_task
from kafka_forensics.facts.rows import FROM_SCANS
from kafka_forensics.facts.splits import plan_tasks
from kafka_forensics.spark.options import SourceOptions, arrow_schema, chosen_columns, parse_options, spark_schema
from kafka_forensics.storage.open import local_path

if TYPE_CHECKING:
    import pyarrow as pa


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

    def __init__(self, options: SourceOptions, columns: tuple[str, ...], snapshots: dict[str, list[str]] | None) -> None:
        self._options = options
        self._snapshots = snapshots
        self._query = replace(options.query, columns=columns)

    def partitions(self) -> list[InputPartition]:
        """One for each task, by snapshot, topic, partition, broker and offset; none if there is nothing to read."""
        query, storage = self._query, self._options.storage
        with in_words():
            if self._snapshots is None:
                return [FactTask(task) for task in plan_tasks(self._options.paths, query, storage)]
            from kafka_forensics.facts.scan import plan_snapshots  # most reads are of one

            return [FactTask(snapshot) for snapshot in plan_snapshots(self._snapshots, query, storage)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a task, in the types that Spark takes."""
        if not isinstance(partition, FactTask):
            return  # how Spark calls this where there are no tasks
        for path in [*self._options.paths, *chain.from_iterable((self._snapshots or {}).values())]:
            if (here := local_path(split_name(path)[1])) is not None:
                keep_out_of(here)
        schema = arrow_schema(self._query.fact, self._query.columns, snapshots=self._snapshots is not None)
        with in_words():
            for batch in self._rows(partition.task):
                yield in_schema(batch, schema)

    def _rows(self, task: str) -> "Iterator[pa.RecordBatch]":
        query, storage = self._query, self._options.storage
        if self._snapshots is None and query.fact not in FROM_SCANS:
            return read_task(task, query, storage)
        from kafka_forensics.facts.scan import read_scan, read_snapshots
        from kafka_forensics.wording import advice, message

        read = read_scan if self._snapshots is None else read_snapshots
        return read(task, query, lambda finding: (message(finding), advice(finding)), storage)


def in_schema(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    """The batch with the types, names and nullability of `schema`, every one of which Spark compares."""
    import pyarrow as pa

    arrays: list[Any] = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
        """The declared schema of the fact."""
        return spark_schema(self._parsed.query.fact, snapshots=self._parsed.snapshots)

    def reader(self, schema: Any) -> KafkaLogReader:
        """A reader of the columns in `schema`. Raises UsageError for what the fact does not have."""
        with in_words():
            columns = chosen_columns(self._parsed.query.fact, schema, snapshots=self._parsed.snapshots)
            return KafkaLogReader(self._parsed, columns, self._snapshots)


def _snapshots(parsed: SourceOptions) -> dict[str, list[str]] | None:
    """The paths of each snapshot by its name, None if it is not snapshots that are read. All paths are there, and Kafka's."""
    if not parsed.snapshots:
        open_paths(parsed.paths, storage_options=parsed.storage)
        return None
    from kafka_forensics.evidence.options import ScanOptions
    from kafka_forensics.questions.changes import named_snapshots  # most reads are of one

    notes: list[str] = []
    found = named_snapshots(parsed.paths, ScanOptions(storage_options=parsed.storage), parsed.order, notes)
    if not found:
        hint = "; ".join(["every directory and archive in it would be one", *notes])
        raise UsageError(f"there is no snapshot in {parsed.paths[0]}", hint=hint)
    for note in notes:
        logging.getLogger(__name__).warning("%s", ascii(note)[1:-1])  # names of strangers are in it
    for paths in found.values():
        open_paths(paths, storage_options=parsed.storage)
    return found


def _where_it_was_looked_for(error: PathMissingError, paths: list[str]) -> PathMissingError:
    """The error, saying from where relative paths count: Spark's workers may run elsewhere than its user."""
    if all(os.path.isabs(split_name(path)[1]) for path in paths):
        return error
    told = [*([error.hint] if error.hint else []), f"relative paths count from {os.getcwd()}, where Spark's Python runs"]
    return PathMissingError(str(error), hint="; ".join(told))
