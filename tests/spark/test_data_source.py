"""The data source in the oldest and newest supported Spark, Classic and Connect, and its errors."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.spark.sessions import core_count
from tests.spark.cluster import NEWEST, OLDER, OLDER_VERSION
from tests.spark.data_source_checks import FACTS, FACTS_OF_OTHER_SPARKS, answers, digest, snapshots_of
from tests.spark.source_facts import as_source
from tests.support.brokers import put_meta_properties
from tests.support.places import ROOT, SAMPLES

pytestmark = pytest.mark.spark

SAMPLE = SAMPLES / "unclean-election"
SECONDS = 300
ERRORS = {
    "missing_path": f"PathMissingError: {SAMPLE}-x: no such file or directory: did you mean {SAMPLE}?",
    "unknown_column": "UsageError: the fact batches has no column 'ofset': did you mean ",
}


def assert_right(values: dict[str, Any], facts: tuple[str, ...]) -> None:
    """Assert that the values of these checks agree with the local engine."""
    snapshots = kf.scan_snapshots(snapshots_of(SAMPLE))
    of_snapshots = {fact: as_source(snapshots.facts(fact), fact) for fact in ("batches", "changes")}
    assert values["snapshots"] == {fact: digest(table) for fact, table in of_snapshots.items()}
    newer = of_snapshots["batches"]["snapshot"].to_pylist().count("after")
    columns, by_snapshot = values["snapshots_subset"]
    assert (columns, list(map(list, by_snapshot))) == (["last_offset", "snapshot"], [["after", newer]])
    result = kf.scan(str(SAMPLE))
    wanted = {fact: as_source(result.facts(fact, payloads=True), fact) for fact in ("batches", *facts)}
    assert values["digests"] | {"batches": values["batches"]} == {fact: digest(table) for fact, table in wanted.items()}
    assert values["table"] == values["batches"]
    topics = wanted["batches"]["topic"].to_pylist()
    counts = [topics.count("orders"), topics.count("payments")]
    union = [["orders", counts[0]], ["payments", counts[1]]]
    assert [list(map(list, values[name])) for name in ("union", "union_once_more")] == [union, union]
    assert values["whole_after_filter"] == sum(counts)
    two = [row["last_offset"] for row in wanted["batches"].to_pylist() if row["broker"] in {"1", "2"}]
    assert values["subset"] == [["last_offset", "topic"], [len(two), max(two)]]
    assert values["tasks"] > 1
    assert values["mistakes"].keys() == ERRORS.keys()
    for name, text in values["mistakes"].items():
        first_line, _, rest = text.partition("\n")
        assert ERRORS[name] in first_line
        assert "Traceback" not in rest


def test_the_data_source_works_in_the_installed_spark(spark: SparkSession) -> None:
    values = answers(spark, SAMPLE)
    assert_right(values, FACTS)
    assert values["version"].startswith("4.3.")


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(
    ("python", "where", "version"),
    [
        pytest.param(NEWEST, "remote=local[2]", "4.3.", id="4.3-connect"),
        pytest.param(OLDER, "local[2]", f"{OLDER_VERSION}.", id=f"{OLDER_VERSION}-classic"),
        pytest.param(OLDER, "remote=local[2]", f"{OLDER_VERSION}.", id=f"{OLDER_VERSION}-connect"),
    ],
)
def test_the_data_source_works_in_another_spark_without_activation(tmp_path: Path, python: str, where: str, version: str) -> None:
    """A broken module on the path, at which Spark's discovery of data sources fails, does no harm."""
    assert Path(python).is_file(), "`make nightly PART=spark` makes the environments"
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('this module is broken')\n")
    java = shutil.which("java")
    places = ["/usr/bin", "/bin", *([os.path.dirname(java)] if java else [])]
    environment = {"PATH": os.pathsep.join(places), "PYTHONPATH": f"{tmp_path}:{ROOT}", "HOME": str(Path.home())}
    environment |= {name: os.environ[name] for name in ("JAVA_HOME", "XDG_CACHE_HOME") if name in os.environ}
    command = [python, "-m", "tests.spark.data_source_checks", where, str(SAMPLE)]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    values = json.loads(ran.stdout)
    assert values["version"].startswith(version)
    assert_right(values, FACTS_OF_OTHER_SPARKS)


def test_damage_is_a_row_or_with_strict_an_error(spark: SparkSession, tmp_path: Path) -> None:
    copy = tmp_path / "broker-1"
    shutil.copytree(SAMPLE / "broker-1", copy)
    log = max(copy.glob("orders-*/*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[100] ^= 0xFF
    log.write_bytes(content)
    read = spark.read.format("kafka_log").option("fact", "spans")
    bad = read.load(str(copy)).filter("damage_kind IS NOT NULL").select("file", "damage_kind", "position").collect()
    assert [tuple(row) for row in bad] == [(f"{log.parent.name}/{log.name}", "BATCH_CRC_MISMATCH", 0)]
    with pytest.raises(PySparkException, match=rf"FormatError: {log}: BATCH_CRC_MISMATCH at byte 0"):
        read.option("on_corrupt", "strict").load(str(copy)).count()


def test_an_empty_log_directory_has_no_rows_and_a_missing_one_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    put_meta_properties(tmp_path / "broker", 1, cluster_id=None)
    assert spark.read.format("kafka_log").load(str(tmp_path / "broker")).collect() == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(PySparkException, match="there is no Kafka log in"):
        spark.read.format("kafka_log").load(str(tmp_path / "empty")).count()


def test_records_are_counted_by_columns_that_need_none(spark: SparkSession) -> None:
    """Also in SQL, and the plan of a range says how many tasks run at once."""
    copies, path = spark.read.format("kafka_log").option("fact", "records"), str(SAMPLE)
    records = copies.load(path).count()
    assert copies.option("columns", "partition").load(path).count() == records > 0
    options = f"fact 'records', columns 'topic,partition', path '{path}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW counted USING kafka_log OPTIONS ({options})")
    assert spark.sql("SELECT count(*) FROM counted").head() == (records,)
    assert core_count(spark) == spark.sparkContext.defaultParallelism
