"""The data source `kafka_log`: facts of log directories as DataFrames.

There is no `pushFilters`, and there must be none while Spark 4.3 and older are supported: they keep a pushed filter for every later
use of the DataFrame, which then gives wrong rows without a word. What shall not be read is said by options and by `schema`.
"""

import logging
import os
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from kafka_forensics.errors import PathMissingError, UsageError
from kafka_forensics.evidence.paths import open_paths, split_name
from kafka_forensics.spark.data_source_errors import in_words
from kafka_forensics.spark.options import SourceOptions, parse_options
from kafka_forensics.spark.reader import KafkaLogReader
from kafka_forensics.spark.schemas import chosen_columns, spark_schema


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
