"""Plans and reads the data source `kafka_log` in this process, as Spark's workers do, without a JVM."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from kafka_forensics.spark.columns import source_columns, spark_arrow_schema
from kafka_forensics.spark.data_source import KafkaLogDataSource

BY_FILE = ("batches", "records", "spans", "control_records", "index_entries", "epoch_entries", "producer_states", "checkpoints")
"""Facts that are read file by file."""


def source(paths: Path | Sequence[Path], **options: object) -> KafkaLogDataSource:
    path_list = [paths] if isinstance(paths, Path) else paths
    texts = {name: str(value) for name, value in options.items()}
    return KafkaLogDataSource({"paths": json.dumps([str(path) for path in path_list]), **texts})


def arrow_schema(fact: str, columns: tuple[str, ...], *, snapshots: bool = False) -> pa.Schema:
    """The Arrow schema in which Spark takes these columns of a fact."""
    by_name = {column.name: column for column in source_columns(fact, snapshots=snapshots)}
    return spark_arrow_schema([by_name[name] for name in columns])


def as_source(table: pa.Table, fact: str) -> pa.Table:
    """The rows of a fact in the types of the data source."""
    return table.cast(
        arrow_schema(fact, tuple(table.column_names), snapshots=table.column_names[0] == "snapshot" or fact == "changes")
    )


def read(paths: Path | Sequence[Path], fact: str, **options: object) -> tuple[pa.Table, int]:
    """All columns of a fact, payloads included, in the order of its tasks, and the number of tasks."""
    made = source(paths, fact=fact, **{"includePayloads": True, **options})
    reader = made.reader(made.schema())
    tasks = reader.partitions()
    schema = arrow_schema(fact, tuple(made.schema().names), snapshots="snapshots" in options)
    batches = [batch for task in tasks for batch in reader.read(task)]
    assert all(batch.schema.equals(schema) for batch in batches)
    return pa.Table.from_batches(batches, schema), len(tasks)


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))
