"""The queries and examples of docs/sql.md, which `examples/replicas_in_sql.ipynb` asks too, give the right rows."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lab.doc_blocks import blocks_of
from tests.examples.notebooks import EXAMPLES, stored
from tests.export.datasets import UNCLEAN_ELECTION, append, files
from tests.support.places import SAMPLES

BLOCKS = blocks_of("docs/sql.md")
DIFFERING, GAPS, ABORTED, HOURLY, SHORT = (block.body for block in BLOCKS if block.language == "sql")
IN_DUCKDB, IN_SPARK, UNIFIED = (block.body for block in BLOCKS if block.language == "python")
LATER_COLUMNS = ["reference_broker", "agreement_with_reference"]
DAMAGED = "shop", "2026-03-02"
AUDIT = "bank", "2026-03-01", "audit", 0


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two nights of one cluster, and of one with an unclean election; in the second night broker 2 lacks a segment and
    broker 3 has a damaged byte."""
    folder: Path = tmp_path_factory.mktemp("sql")
    second = shutil.copytree(SAMPLES / "healthy", folder / "second")
    (second / "broker-2/orders-0/00000000000000000160.log").unlink()
    log = second / "broker-3/codec-gzip-0/00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[1750] ^= 1
    log.write_bytes(data)
    for cluster, snapshot, path in (
        ("shop", "2026-03-01", SAMPLES / "healthy"),
        ("shop", "2026-03-02", second),
        ("bank", "2026-03-01", UNCLEAN_ELECTION),
    ):
        assert append(folder / "nights", cluster, snapshot, path=path) == 0
    return folder / "nights"


@pytest.fixture(scope="module")
def in_duckdb(nights: Path) -> None:
    """Views of the dataset in DuckDB, as the page makes them."""
    exec(IN_DUCKDB.replace("NIGHTS", str(nights)), {})  # noqa: S102 - an example of the page


def table(query: str) -> pa.Table:
    relation = duckdb.sql(query)
    assert relation is not None
    answer: pa.Table = relation.to_arrow_table()
    return answer


def rows(query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table(query).to_pylist()]


@pytest.mark.usefixtures("in_duckdb")
def test_only_the_damaged_replicas_differ() -> None:
    assert rows(DIFFERING) == [
        (*AUDIT, "2", "conflict", "1"),
        (*DAMAGED, "codec-gzip", 0, "3", "content", "1"),
        (*DAMAGED, "orders", 0, "2", "missing", "1"),
    ]


@pytest.mark.usefixtures("in_duckdb")
def test_the_missing_segment_is_the_only_gap_below_a_high_watermark() -> None:
    assert rows(GAPS) == [(*DAMAGED, "orders", 0, "2", 160, 320, "missing")]


@pytest.mark.usefixtures("in_duckdb")
def test_aborted_transactions_are_counted_once_by_producer() -> None:
    aborted = [("teller-0", 1, 4, 20), ("teller-1", 2, 2, 10), ("teller-2", 3, 2, 10)]
    assert [row[2:] for row in rows(ABORTED)] == aborted * 3


@pytest.mark.usefixtures("in_duckdb")
def test_records_an_hour_are_those_of_one_replica() -> None:
    counts: dict[str, int] = {}
    for cluster, snapshot, _, _, count in rows(HOURLY.replace("date_trunc('hour', timestamp)", "epoch_ms(timestamp) // 3600000")):
        counts[f"{cluster} {snapshot}"] = counts.get(f"{cluster} {snapshot}", 0) + count
    assert counts == {"shop 2026-03-01": 1455, "shop 2026-03-02": 1455, "bank 2026-03-01": 1800}
    assert table(HOURLY).schema.field("hour").type == pa.timestamp("us", "UTC")


@pytest.mark.usefixtures("in_duckdb")
def test_the_isr_has_node_ids() -> None:
    assert rows(SHORT) == [(*AUDIT, "1", 345, 370, True), (*AUDIT, "3", 300, 370, False)]


def test_the_notebook_asks_the_queries_of_the_page() -> None:
    sources = ["".join(cell["source"]) for cell in stored(EXAMPLES / "replicas_in_sql.ipynb")["cells"]]
    assert [source for source in sources if source.startswith("ask(")] == [
        f'ask("""\n{query}""")' for query in (DIFFERING, GAPS, ABORTED, HOURLY, SHORT)
    ]


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.usefixtures("in_duckdb")
def test_spark_gives_the_rows_of_duckdb(spark: SparkSession, nights: Path) -> None:
    session = spark.newSession()  # the example sets options
    exec(IN_SPARK.replace("NIGHTS", str(nights)), {"spark": session})  # noqa: S102 - an example of the page
    for query in (DIFFERING, GAPS, ABORTED, HOURLY, SHORT):
        assert session.sql(query).toArrow().to_pylist() == table(query).to_pylist()


@pytest.mark.parametrize("oldest", [True, False])
def test_readers_unite_files_of_two_versions(tmp_path: Path, *, oldest: bool) -> None:
    """One file lacks the newest columns, as that of an older version: the first one that readers meet, or the last."""
    for snapshot in ("2026-03-01", "2026-03-02"):
        assert append(tmp_path / "nights", "bank", snapshot, path=UNCLEAN_ELECTION) == 0
    older = files(tmp_path / "nights", "replicas")[0 if oldest else 1]
    pq.write_table(pq.ParquetFile(older).read().drop_columns(LATER_COLUMNS), older)
    names: dict[str, Any] = {}
    exec(UNIFIED.replace("NIGHTS", str(tmp_path / "nights")), names)  # noqa: S102 - an example of the page
    read = [names["frame"].to_arrow(), names["table"], pa.Table.from_pandas(names["replicas"])]
    exec(IN_DUCKDB.replace("NIGHTS", str(tmp_path / "nights")), names)  # noqa: S102 - an example of the page
    read.append(table("FROM replicas"))
    for replicas in read:
        counted = replicas.group_by(["snapshot"]).aggregate([("agreement_with_reference", "count"), ("topic", "count")])
        assert sorted(counted.to_pylist(), key=lambda row: str(row["snapshot"])) == [
            {"snapshot": snapshot, "agreement_with_reference_count": 0 if is_older else 42, "topic_count": 42}
            for snapshot, is_older in (("2026-03-01", oldest), ("2026-03-02", not oldest))
        ]
