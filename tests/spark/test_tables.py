"""SQL tables and views of the data source, and facts of a scan whose files change. Evidence is never written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.spark import export, scan, scan_snapshots
from kafka_forensics.spark.data_source import KafkaLogDataSource
from tests.support.places import SAMPLES

pytestmark = pytest.mark.spark

SAMPLE = SAMPLES / "unclean-election"
NO_LOCATION = {"provider": "kafka_log", "owner": "me", "fact": "batches", "option.fact": "batches"}
"""What Spark gives for a table without a path."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "copy"))


def listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*"))


@pytest.mark.parametrize("place", ["OPTIONS (path '{}/broker-*', fact 'batches')", "OPTIONS (fact 'batches') LOCATION '{}'"])
def test_a_table_is_read_again_and_dropped_without_touching_evidence(spark: SparkSession, copy: Path, place: str) -> None:
    before = listing(copy.parent)
    spark.sql(f"CREATE TABLE logs USING kafka_log {place.format(copy)}")
    try:
        count = kf.scan(str(copy)).facts("batches").num_rows
        for _ in range(2):
            assert spark.sql("SELECT count(*) FROM logs WHERE partition >= 0").collect()[0][0] == count
        with pytest.raises(PySparkException, match="evidence is only read"):
            spark.sql("INSERT INTO logs SELECT * FROM logs")
    finally:
        spark.sql("DROP TABLE logs PURGE")
    assert listing(copy.parent) == before


def test_a_temporary_view_is_read(spark: SparkSession, copy: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW replica_view USING kafka_log OPTIONS (path '{copy}', fact 'replicas')")
    assert spark.table("replica_view").count() == kf.scan(str(copy)).facts("replicas").num_rows
    spark.catalog.dropTempView("replica_view")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**NO_LOCATION, "paths": '["/x"]'}, "a table of kafka_log needs the option path: create a temporary view"),
        ({**NO_LOCATION, "path": "{}", "location": "{}", "storage.secret_key": "s"}, "must not have credentials"),
        ({**NO_LOCATION, "path": "{}", "location": "{}", "fcat": "x"}, "no option 'fcat' of kafka_log: did you mean fact"),
    ],
)
def test_tables_that_spark_would_own_or_that_hold_secrets_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        KafkaLogDataSource({name: value.format(SAMPLE) for name, value in options.items()})


def test_the_options_of_a_table_are_in_its_schema_alone() -> None:
    table = KafkaLogDataSource({**NO_LOCATION, "path": str(SAMPLE), "location": str(SAMPLE), "topics": "audit"})
    reader = KafkaLogDataSource({}).reader(table.schema())
    assert len(reader.partitions()) == len(table.reader(table.schema()).partitions()) > 0
    plain = KafkaLogDataSource({"path": str(SAMPLE)})
    assert all(field.metadata.keys() == {"comment"} for field in plain.schema())
    for use in (KafkaLogDataSource({}).schema, lambda: KafkaLogDataSource({}).reader(StructType([StructField("x", StringType())]))):
        with pytest.raises(UsageError, match="no path was given"):
            use()


def test_scans_take_patterns(spark: SparkSession, copy: Path, tmp_path: Path) -> None:
    pattern = f"{copy}/broker-*"
    assert [replica.broker for replica in scan(spark, pattern).replicas] == [
        replica.broker for replica in kf.scan(str(copy)).replicas
    ]
    assert export(spark, pattern, str(tmp_path / "out"), ["replicas"]).datasets[0].rows == len(scan(spark, str(copy)).replicas)
    shutil.copytree(copy, tmp_path / "copy2")
    assert list(scan_snapshots(spark, f"{tmp_path}/copy*").snapshots) == ["copy", "copy2"]
    assert list(scan_snapshots(spark, {"a": pattern, "b": [f"{tmp_path}/copy2/*"]}).snapshots) == ["a", "b"]


def remove(log: Path) -> None:
    log.unlink()


def grow(log: Path) -> None:
    with log.open("ab") as file:
        file.write(bytes(12))


def add(log: Path) -> None:
    log.with_name("00000000000000000900.log").touch()


@pytest.mark.parametrize("change", [remove, grow, add])
@pytest.mark.parametrize("fact", ["batches", "transactions"])
def test_facts_of_changed_files_are_refused(spark: SparkSession, copy: Path, change: Callable[[Path], None], fact: str) -> None:
    result = scan(spark, str(copy))
    rows = result.dataframe(fact).count()
    assert rows == kf.scan(str(copy)).facts(fact).num_rows
    frame = result.dataframe(fact)
    change(copy / "broker-2" / "orders-0" / "00000000000000000000.log")
    with pytest.raises(PySparkException) as caught:
        frame.count()
    (line,) = [line for line in str(caught.value).splitlines() if "IncompleteError" in line]
    assert f"{fact}: its files have changed since the scan (" in line
    assert line.rstrip().endswith("allow_incomplete=True reads the rest")
    assert result.dataframe(fact, allow_incomplete=True).count() <= rows
    assert result.dataframe("epoch_entries").count() == kf.scan(str(copy)).facts("epoch_entries").num_rows


def test_a_rewritten_checkpoint_matters_to_whole_scans_alone(spark: SparkSession, copy: Path) -> None:
    result = scan(spark, str(copy), topic="orders")
    (copy / "broker-2" / "replication-offset-checkpoint").touch()
    (copy / "broker-2" / "audit-0" / "00000000000000000000.log").touch()
    assert result.dataframe("batches").count() == result.facts("batches").num_rows
    assert result.dataframe("checkpoints").count() == result.facts("checkpoints").num_rows
    with pytest.raises(PySparkException, match="transactions: its files have changed"):
        result.dataframe("transactions").count()


def test_payloads_are_there_on_request(spark: SparkSession) -> None:
    result = scan(spark, str(SAMPLE), topic="orders")
    assert result.dataframe("records").filter("key is not null or value is not null").count() == 0
    assert result.dataframe("records", payloads=True).filter("value is not null").count() > 0
