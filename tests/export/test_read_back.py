"""What is exported is what every reader reads back: the facts of the scan, with their declared types."""

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS
from tests.support.exports import HIVE, SAMPLES, export, manifest, parquet_files, read_back, rows

DUCKDB_PLAIN = "SELECT * FROM read_parquet(?)"
DUCKDB_TYPED = "SELECT * FROM read_parquet(?, hive_types = {'topic': VARCHAR, 'partition': INTEGER, 'broker': VARCHAR})"
HIVE_SCHEMA = {"topic": pl.String, "partition": pl.Int32, "broker": pl.String}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exports") / "all"
    assert export(target, SAMPLES / "unclean-election", "--show-payloads") == 0
    return target


@pytest.fixture(scope="module")
def result() -> ScanResult:
    return kf.scan(str(SAMPLES / "unclean-election"))


@pytest.mark.parametrize("fact", FACTS)
def test_pyarrow_reads_the_facts_of_the_scan(exported: Path, result: ScanResult, fact: str) -> None:
    table, told = read_back(exported, fact), result.facts(fact)
    assert told.schema == FACTS[fact].schema
    assert told.num_rows > 0
    assert [field.type for field in table.schema] == [field.type for field in told.schema]
    assert rows(table) == rows(told)


@pytest.mark.parametrize("fact", FACTS)
def test_duckdb_reads_the_same(exported: Path, result: ScanResult, fact: str) -> None:
    found = duck(exported, fact, DUCKDB_TYPED if FACTS[fact].by_replica else DUCKDB_PLAIN).select(FACTS[fact].schema.names)
    assert rows(found.cast(plain(result.facts(fact).schema))) == rows(result.facts(fact))


@pytest.mark.parametrize("fact", FACTS)
def test_polars_reads_the_same(exported: Path, result: ScanResult, fact: str) -> None:
    hive: Any = HIVE_SCHEMA if FACTS[fact].by_replica else None
    frame = pl.scan_parquet(f"{exported}/{fact}/", hive_schema=hive).select(FACTS[fact].schema.names).collect()
    assert rows(frame.to_arrow().cast(plain(result.facts(fact).schema))) == rows(result.facts(fact))


@pytest.mark.parametrize("fact", FACTS)
def test_pandas_reads_the_same(exported: Path, result: ScanResult, fact: str) -> None:
    hive = {"partitioning": HIVE} if FACTS[fact].by_replica else {}
    names = FACTS[fact].schema.names
    frame = pd.read_parquet(exported / fact, dtype_backend="pyarrow", **hive)[names]
    assert rows(pa.Table.from_pandas(frame, plain(result.facts(fact).schema))) == rows(result.facts(fact))


@pytest.mark.parametrize("fact", FACTS)
def test_every_reader_opens_the_directory_without_an_option(exported: Path, fact: str) -> None:
    count = manifest(exported)["datasets"][fact]["rows"]
    assert len(pd.read_parquet(exported / fact)) == count
    assert len(pl.read_parquet(f"{exported}/{fact}/")) == count
    assert duck(exported, fact, DUCKDB_PLAIN).num_rows == count


def duck(exported: Path, fact: str, query: str) -> pa.Table:
    """All rows as DuckDB reads them."""
    relation = duckdb.connect().sql(query, params=[f"{exported}/{fact}/**/*.parquet"])
    assert relation is not None
    table: pa.Table = relation.to_arrow_table()
    return table


def plain(schema: pa.Schema) -> pa.Schema:
    """The declared types as other readers' Arrow has them: everything nullable, large strings cast back."""
    return pa.schema([pa.field(field.name, relaxed(field.type)) for field in schema])


def relaxed(kind: pa.DataType) -> pa.DataType:
    """A type with every part of it nullable."""
    if isinstance(kind, pa.ListType):
        return pa.list_(relaxed(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(part.name, relaxed(part.type)) for part in kind])
    return kind


def test_files_carry_the_version_the_keys_and_zstd(exported: Path) -> None:
    for path, file in parquet_files(exported).items():
        fact = path.split("/")[0]
        metadata = file.schema_arrow.metadata or {}
        assert metadata[b"kf.schema_version"] == b"1.0"
        assert metadata[b"kf.fact"] == fact.encode()
        assert file.schema_arrow.equals(FACTS[fact].own)
        if FACTS[fact].by_replica:
            keys = [metadata[f"kf.{key}".encode()].decode() for key in ("topic", "partition", "broker")]
            assert f"{fact}/topic={keys[0]}/partition={keys[1]}/broker={keys[2]}/part-00000.parquet" == path
        for group in range(file.metadata.num_row_groups):
            assert file.metadata.row_group(group).column(0).compression == "ZSTD"


def test_the_examples_of_the_page_work(exported: Path) -> None:
    page = (SAMPLES.parent / "docs" / "facts.md").read_text()
    code = page.split("```python\n")[1].split("```")[0].replace("DIR", str(exported))
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the page's own example
    count = manifest(exported)["datasets"]["batches"]["rows"]
    assert names["table"].num_rows == len(names["frame"]) == names["lazy"].collect().height == count
    assert sum(row[-1] for row in names["rows"].fetchall()) == count
    assert "UNCLEAN_LOSS" in set(names["findings"]["kind"])
