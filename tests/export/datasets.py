"""Adding snapshots to datasets in every form, and reading them back."""

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

FORMS: Final = ("parquet", "delta", "iceberg")
ONE: Final = SAMPLES / "silent-divergence"
OTHER: Final = SAMPLES / "unclean-election"
FEW: Final = ("--fact", "batches", "--fact", "findings")
NAMES: Final = [label.name for label in LABELS]
HIVE: Final = ds.partitioning(pa.schema(LABELS), flavor="hive")
_FILE: Final = re.compile(r"part-\d{5}-\d{3}-([0-9a-f]{32})\.parquet")


def append(target: object, cluster: str, snapshot: str, *arguments: object, path: object = ONE) -> int:
    asked = ["export", path, "--append", "--output", target, "--cluster", cluster, "--snapshot", snapshot, *arguments]
    return outcome([*map(str, asked), "-q", "--format", "tsv"])


def files(target: Path, fact: str) -> list[Path]:
    """The files of a fact in a dataset of Parquet files, as a reader finds them."""
    return sorted(target.glob(f"cluster=*/snapshot=*/{fact}/*.parquet"))


def opened(paths: list[Path], declaring: list[Path]) -> ds.Dataset:
    """Files of a fact with the columns of those `declaring` them, and cluster and snapshot first."""
    schema = pa.unify_schemas([pa.schema(LABELS), *(pq.read_schema(path).remove_metadata() for path in declaring)])
    return ds.dataset(list(map(str, paths)), schema, "parquet", partitioning=HIVE)


def read(target: Path, fact: str, form: str = "parquet") -> pa.Table:
    """All rows of a fact, as the form's own library reads them, cluster and snapshot first."""
    if form == "parquet":
        found = files(target, fact)
        table = opened(found, found).to_table()
    elif form == "delta":
        query = QueryBuilder().register("rows", DeltaTable(str(target / fact))).execute("SELECT * FROM rows")
        table = pa.table(query)
    else:
        catalog = load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{target / CATALOG}")
        try:
            table = catalog.load_table((NAMESPACE, fact)).scan().to_arrow()
        finally:
            catalog.close()
    return table


def keys(table: pa.Table) -> set[tuple[str, str]]:
    return set(zip(*(table[name].to_pylist() for name in NAMES), strict=True))


def of_snapshot(table: pa.Table, snapshot: str) -> pa.Table:
    return table.filter(pa.compute.field("snapshot") == snapshot).drop_columns(NAMES)


def runs(target: Path, fact: str, form: str = "parquet") -> list[str]:
    if form == "parquet":
        names = [path.name for path in files(target, fact)]
    elif form == "delta":
        names = [uri.rpartition("/")[2] for uri in DeltaTable(str(target / fact)).file_uris()]
    else:
        catalog = load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{target / CATALOG}")
        try:
            plan = catalog.load_table((NAMESPACE, fact)).scan().plan_files()
            names = [task.file.file_path.rpartition("/")[2] for task in plan]
        finally:
            catalog.close()
    return sorted({match[1] for name in names if (match := _FILE.fullmatch(name))})


def unlabelled(table: pa.Table, fact: str) -> list[Any]:
    rest = [name for name in table.schema.names if name not in NAMES]
    assert set(rest) == set(FACTS[fact].schema.names)
    return sorted(repr(sorted(row.items())) for row in table.select(rest).to_pylist())


def left_over(target: Path) -> list[str]:
    """What lies in a dataset of Parquet files and is neither a snapshot nor the lock."""
    names = [path.relative_to(target) for path in [*target.iterdir(), *target.glob("cluster=*/*")]]
    return sorted(str(path) for path in names if not re.fullmatch(r"_LOCK|cluster=[^/]+(/snapshot=[^/]+)?", path.as_posix()))
