"""Adding snapshots to datasets in every form, and reading them back."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.dataset_manifest import LABELS, DatasetManifest
from kafka_forensics.export.iceberg import CATALOG, NAMESPACE
from kafka_forensics.export.target import DATASET
from tests.support.exports import SAMPLES

FORMS: Final = ("parquet", "delta", "iceberg")
ONE: Final = SAMPLES / "silent-divergence"
OTHER: Final = SAMPLES / "unclean-election"
FEW: Final = ("--fact", "batches", "--fact", "findings")
NAMES: Final = [label.name for label in LABELS]


def append(target: object, cluster: str, snapshot: str, *arguments: object, path: object = ONE) -> int:
    """Add a snapshot quietly; the exit status."""
    asked = ["export", path, "--append", "--output", target, "--cluster", cluster, "--snapshot", snapshot, *arguments]
    return outcome([*map(str, asked), "-q", "--format", "tsv"])


def read(target: Path, fact: str, form: str = "parquet") -> pa.Table:
    """All rows of a fact, as the form's own library reads them."""
    if form == "parquet":
        table = kf.open_dataset(str(target), fact).to_table()
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


def runs(table: pa.Table) -> dict[tuple[str, str], list[str]]:
    """(cluster, snapshot) → the runs whose rows there are."""
    keys: dict[tuple[str, str], set[str]] = {}
    for cluster, snapshot, run in zip(*(table[name].to_pylist() for name in NAMES), strict=True):
        keys.setdefault((cluster, snapshot), set()).add(run)
    return {key: sorted(found) for key, found in keys.items()}


def unlabelled(table: pa.Table, fact: str) -> list[Any]:
    """The rows without their labels, sorted."""
    rest = [name for name in table.schema.names if name not in NAMES]
    assert set(rest) == set(kf.scan(str(ONE)).facts(fact).schema.names)
    return sorted(repr(sorted(row.items())) for row in table.select(rest).to_pylist())


def manifest_of(target: Path) -> DatasetManifest:
    """The manifest of a dataset."""
    return DatasetManifest.read((target / DATASET).read_bytes(), DATASET)


def left_over(target: Path) -> list[str]:
    """What lies in a dataset of Parquet files and is not named by its manifest."""
    named = {file.path for file in manifest_of(target).files} | {DATASET, "_LOCK"}
    return sorted({path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()} - named)
