"""The data source in Spark: the oldest and the newest that are supported, Classic and Connect, and what they say about mistakes."""

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
from tests.spark.battery import ELSEWHERE, FACTS, answers, digest, snapshots_of
from tests.spark.cluster import NEWEST, OLDEST
from tests.spark.source_facts import as_source
from tests.support.brokers import put_meta_properties
from tests.support.places import ROOT, SAMPLES

pytestmark = pytest.mark.spark

SAMPLE = SAMPLES / "unclean-election"
SECONDS = 300
WORDS = {
    "missing_path": f"PathMissingError: {SAMPLE}-x: no such file or directory: did you mean {SAMPLE}?",
    "unknown_column": "UsageError: the fact batches has no column 'ofset': did you mean ",
}


def assert_right(told: dict[str, Any], facts: tuple[str, ...]) -> None:
    """The answers of the battery are those of the local engine."""
    times = kf.scan_snapshots(snapshots_of(SAMPLE))
    of_times = {fact: as_source(times.facts(fact), fact) for fact in ("batches", "changes")}
    assert told["snapshots"] == {fact: digest(table) for fact, table in of_times.items()}
    newer = of_times["batches"]["snapshot"].to_pylist().count("after")
    columns, by_snapshot = told["snapshots_subset"]
    assert (columns, list(map(list, by_snapshot))) == (["last_offset", "snapshot"], [["after", newer]])
    result = kf.scan(str(SAMPLE))
    wanted = {fact: as_source(result.facts(fact), fact) for fact in ("batches", *facts)}
    assert told["digests"] | {"batches": told["batches"]} == {fact: digest(table) for fact, table in wanted.items()}
    topics = wanted["batches"]["topic"].to_pylist()
    counts = [topics.count("orders"), topics.count("payments")]
    union = [["orders", counts[0]], ["payments", counts[1]]]
    assert [list(map(list, told[name])) for name in ("union", "union_once_more")] == [union, union]
    assert told["whole_after_filter"] == sum(counts)
    two = [row["last_offset"] for row in wanted["batches"].to_pylist() if row["broker"] in {"1", "2"}]
    assert told["subset"] == [["last_offset", "topic"], [len(two), max(two)]]
    assert told["tasks"] > 1
    assert told["mistakes"].keys() == WORDS.keys()
    for name, said in told["mistakes"].items():
        first, _, behind = said.partition("\n")
        assert WORDS[name] in first, "our sentence stands in the first line"
        assert "Traceback" not in behind


def test_in_this_spark(spark: SparkSession) -> None:
    told = answers(spark, SAMPLE)
    assert_right(told, FACTS)
    assert told["version"].startswith("4.3.")


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(
    ("python", "where", "version"),
    [
        pytest.param(NEWEST, "remote=local[2]", "4.3.", id="4.3-connect"),
        pytest.param(OLDEST, "local[2]", "4.0.", id="4.0-classic"),
        pytest.param(OLDEST, "remote=local[2]", "4.0.", id="4.0-connect"),
    ],
)
def test_in_another_spark_from_an_environment_that_is_not_activated(tmp_path: Path, python: str, where: str, version: str) -> None:
    """With a module beside it that breaks Spark's own discovery of data sources."""
    assert Path(python).is_file(), "`make nightly PART=spark` makes the environments"
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('this module is broken')\n")
    java = shutil.which("java")
    places = ["/usr/bin", "/bin", *([os.path.dirname(java)] if java else [])]
    environment = {"PATH": os.pathsep.join(places), "PYTHONPATH": f"{tmp_path}:{ROOT}", "HOME": str(Path.home())}
    environment |= {name: os.environ[name] for name in ("JAVA_HOME", "XDG_CACHE_HOME") if name in os.environ}
    command = [python, "-m", "tests.spark.battery", where, str(SAMPLE)]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout)
    assert told["version"].startswith(version)
    assert_right(told, ELSEWHERE)


def test_bad_bytes_are_rows_or_the_end(spark: SparkSession, tmp_path: Path) -> None:
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


def test_nothing_to_read_is_no_row_and_no_log_directory_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    put_meta_properties(tmp_path / "broker", 1, cluster_id=None)
    assert spark.read.format("kafka_log").load(str(tmp_path / "broker")).collect() == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(PySparkException, match="there is no Kafka log in"):
        spark.read.format("kafka_log").load(str(tmp_path / "empty")).count()
