"""The reader of `kafka_log`: tasks planned from listings, and rows read task by task as Arrow."""

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_forensics.compiled.code_cache import keep_out_of
from kafka_forensics.evidence.paths import split_name
from kafka_forensics.facts.query import FROM_SCANS
from kafka_forensics.facts.read import read_task
from kafka_forensics.facts.splits import plan_tasks
from kafka_forensics.spark.data_source_errors import in_words
from kafka_forensics.spark.options import SourceOptions
from kafka_forensics.spark.schemas import arrow_schema
from kafka_forensics.storage.open import local_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


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
            from kafka_forensics.facts.snapshots import plan_snapshots  # most reads are of one

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
        from kafka_forensics.facts.scan import read_scan
        from kafka_forensics.facts.snapshots import read_snapshots
        from kafka_forensics.wording import advice, message

        read = read_scan if self._snapshots is None else read_snapshots
        return read(task, query, lambda finding: (message(finding), advice(finding)), storage)


def in_schema(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    """The batch with the types, names and nullability of `schema`, every one of which Spark compares."""
    import pyarrow as pa

    arrays: list[Any] = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
