"""The data source `kafka_log` without a JVM: planned and read in this process, as Spark's workers would."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from kafka_forensics.spark.data_source import KafkaLogDataSource, arrow_schema

BY_FILE = ("batches", "records", "spans", "control_records", "index_entries", "epoch_entries", "producer_states", "checkpoints")
"""Facts that are read file by file."""


def source(paths: Path | Sequence[Path], **options: object) -> KafkaLogDataSource:
    """The data source for a path or several."""
    several = [paths] if isinstance(paths, Path) else paths
    told = {name: str(value) for name, value in options.items()}
    return KafkaLogDataSource({"paths": json.dumps([str(path) for path in several]), **told})


def read(paths: Path | Sequence[Path], fact: str, **options: object) -> tuple[pa.Table, int]:
    """All columns of a fact, in the order of its tasks, and the number of tasks."""
    made = source(paths, fact=fact, **options)
    reader = made.reader(made.schema())
    tasks = reader.partitions()
    schema = arrow_schema(fact, tuple(made.schema().names), snapshots="snapshots" in options)
    batches = [batch for task in tasks for batch in reader.read(task)]
    assert all(batch.schema.equals(schema) for batch in batches)
    return pa.Table.from_batches(batches, schema), len(tasks)


def rows(table: pa.Table) -> list[str]:
    """The rows in an order of their own."""
    return sorted(map(repr, table.to_pylist()))
