"""Adds snapshots to datasets in every table format, and reads them back."""

import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog

from kafka_forensics.cli.main import outcome
from kafka_forensics.export.iceberg import CATALOG, NAMESPACE
from kafka_forensics.export.labels import LABELS
from kafka_forensics.model.schemas import FACTS
from tests.support.places import SAMPLES

SILENT_DIVERGENCE: Final = SAMPLES / "silent-divergence"
UNCLEAN_ELECTION: Final = SAMPLES / "unclean-election"
TWO_FACTS: Final = ("--fact", "batches", "--fact", "findings")
LABEL_NAMES: Final = [label.name for label in LABELS]
HIVE: Final = ds.partitioning(pa.schema(LABELS), flavor="hive")
_FILE: Final = re.compile(r"part-\d{5}-\d{3}-([0-9a-f]{32})\.parquet")


def append(target: object, cluster: str, snapshot: str, *arguments: object, path: object = SILENT_DIVERGENCE) -> int:
    """Run `export --append`; return its exit status."""
    command = ["export", path, "--append", "--output", target, "--cluster", cluster, "--snapshot", snapshot, *arguments]
    return outcome([*map(str, command), "-q", "--format", "tsv"])


def files(target: Path, fact: str) -> list[Path]:
    """The files of a fact in a dataset of Parquet files."""
    return sorted(target.glob(f"cluster=*/snapshot=*/{fact}/*.parquet"))


def read(target: Path, fact: str, table_format: str = "parquet") -> pa.Table:
    """All rows of a fact as the library of the table format reads them, with the columns `cluster` and `snapshot`."""
    if table_format == "parquet":
        paths = files(target, fact)
        schema = pa.unify_schemas([pa.schema(LABELS), *(pq.read_schema(path).remove_metadata() for path in paths)])
        table = ds.dataset(list(map(str, paths)), schema, "parquet", partitioning=HIVE).to_table()
    elif table_format == "delta":
        query = QueryBuilder().register("rows", DeltaTable(str(target / fact))).execute("SELECT * FROM rows")
        table = pa.table(query)
    else:
        catalog = load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{target / CATALOG}")
        try:
            table = catalog.load_table((NAMESPACE, fact)).scan().to_arrow()
        finally:
            catalog.close()
    return table


def snapshots_in(table: pa.Table) -> set[tuple[str, str]]:
    """The (cluster, snapshot) pairs of the rows."""
    return set(zip(*(table[name].to_pylist() for name in LABEL_NAMES), strict=True))


def snapshot_rows(table: pa.Table, snapshot: str) -> pa.Table:
    """The rows of a snapshot, without its labels."""
    return table.filter(pa.compute.field("snapshot") == snapshot).drop_columns(LABEL_NAMES)


def run_ids(target: Path, fact: str, table_format: str = "parquet") -> list[str]:
    """The ids of the runs that wrote the files of a fact."""
    if table_format == "parquet":
        names = [path.name for path in files(target, fact)]
    elif table_format == "delta":
        names = [uri.rpartition("/")[2] for uri in DeltaTable(str(target / fact)).file_uris()]
    else:
        catalog = load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{target / CATALOG}")
        try:
            plan = catalog.load_table((NAMESPACE, fact)).scan().plan_files()
            names = [task.file.file_path.rpartition("/")[2] for task in plan]
        finally:
            catalog.close()
    return sorted({match[1] for name in names if (match := _FILE.fullmatch(name))})


def rows_without_labels(table: pa.Table, fact: str) -> list[Any]:
    """The rows without labels as sorted text; all columns of the fact must be present."""
    rest = [name for name in table.schema.names if name not in LABEL_NAMES]
    assert set(rest) == set(FACTS[fact].schema.names)
    return sorted(repr(sorted(row.items())) for row in table.select(rest).to_pylist())


def leftover_paths(target: Path) -> list[str]:
    """Paths in a dataset of Parquet files that belong neither to a snapshot nor to the lock."""
    names = [path.relative_to(target) for path in [*target.iterdir(), *target.glob("cluster=*/*")]]
    return sorted(str(path) for path in names if not re.fullmatch(r"_LOCK|cluster=[^/]+(/snapshot=[^/]+)?", path.as_posix()))
