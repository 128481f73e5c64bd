"""Two nights and a rerun, in Parquet files, Delta and Iceberg tables, have the same rows and types of times in every engine.

Spark reads the Parquet files in tests/spark/test_export_append.py; docs/datasets.md says with which Spark the tables were read.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from polars.exceptions import PerformanceWarning
from pyiceberg.catalog import load_catalog

import kafka_forensics as kf
from kafka_forensics.export.iceberg import CATALOG, NAMESPACE
from kafka_forensics.export.opening import TABLE_FORMATS
from tests.export.datasets import SILENT_DIVERGENCE, UNCLEAN_ELECTION, append, files, read

FACTS = ("batches", "transactions")
HIVE_TYPES = {"cluster": pl.String, "snapshot": pl.String}


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in each format: two nights, the first of which was first exported from other copies."""
    root: Path = tmp_path_factory.mktemp("nights")
    chosen = [word for fact in FACTS for word in ("--fact", fact)]
    for table_format in TABLE_FORMATS:
        for snapshot, path in (("n1", SILENT_DIVERGENCE), ("n2", SILENT_DIVERGENCE), ("n1", UNCLEAN_ELECTION)):
            assert append(root / table_format, "a", snapshot, *chosen, "--table-format", table_format, path=path) == 0
    return root


def from_duckdb(target: Path, fact: str, table_format: str) -> pa.Table:
    if table_format != "parquet":
        rows = duckdb.from_arrow(read(target, fact, table_format))  # DuckDB reads Arrow tables in memory
    else:
        rows = duckdb.read_parquet(f"{target}/*/*/{fact}/*.parquet", hive_partitioning=True, union_by_name=True)
    return pa.table(rows.arrow())


def from_polars(target: Path, fact: str, table_format: str) -> pa.Table:
    if table_format == "delta":
        return pl.scan_delta(str(target / fact)).collect().to_arrow()
    if table_format == "iceberg":
        catalog = load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{target / CATALOG}")
        warnings.simplefilter("ignore", PerformanceWarning)  # a package would plan faster
        try:
            return pl.scan_iceberg(catalog.load_table((NAMESPACE, fact))).collect().to_arrow()
        finally:
            catalog.close()
    return pl.scan_parquet(f"{target}/*/*/{fact}/*.parquet", hive_schema=HIVE_TYPES).collect().to_arrow()


def from_pandas(target: Path, fact: str, table_format: str) -> pa.Table:
    if table_format == "delta":
        frame = DeltaTable(str(target / fact)).to_pandas()
    elif table_format == "iceberg":
        frame = read(target, fact, table_format).to_pandas()
    else:
        frames = []
        for path in files(target, fact):
            labels = dict(part.split("=") for part in path.parts[-4:-2])
            frames.append(pd.read_parquet(path).assign(**labels))
        frame = pd.concat(frames)
    return pa.Table.from_pandas(frame, preserve_index=False)


def keys(table: pa.Table, fact: str) -> list[tuple[Any, ...]]:
    """What identifies a row, with its time in milliseconds."""
    time, offset = {"batches": ("max_timestamp", "position"), "transactions": ("marker_timestamp", "producer_id")}[fact]
    assert pa.types.is_timestamp(table.schema.field(time).type)
    milliseconds = table[time].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    columns = [table[name].to_pylist() for name in ("snapshot", "topic", "partition", "broker", "node_id", offset)]
    return sorted(zip(*columns, milliseconds, strict=True), key=repr)


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("engine", [from_duckdb, from_polars, from_pandas, read], ids=["duckdb", "polars", "pandas", "library"])
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_engines_read_the_same_rows(
    nights: Path, engine: Callable[[Path, str, str], pa.Table], table_format: str, fact: str
) -> None:
    expected: list[tuple[Any, ...]] = []
    for snapshot, path in (("n1", UNCLEAN_ELECTION), ("n2", SILENT_DIVERGENCE)):
        table = kf.scan(str(path)).facts(fact)
        expected += keys(table.append_column("snapshot", pa.array([snapshot] * table.num_rows, pa.string())), fact)
    assert keys(engine(nights / table_format, fact, table_format), fact) == sorted(expected, key=repr)
