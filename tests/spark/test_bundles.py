"""Bundles on Spark: the answers and the facts of the directories that they were made of."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
import kafka_forensics.spark as kf_spark
from kafka_forensics.questions.collect import CollectOptions, collect
from tests.questions.collect.test_collect import bundled, extracted
from tests.support.archives import EVERY, of_brokers

pytestmark = pytest.mark.spark

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    for log_dir in sorted(SAMPLE.iterdir()):
        with (folder / f"{log_dir.name}.kfb").open("w+b") as file:
            assert collect([str(log_dir)], CollectOptions(), file).incomplete == []
    return folder


def test_a_scan_on_spark_says_what_one_here_says(spark: SparkSession, bundles: Path) -> None:
    assert verdict_of_both(spark, bundles) == "critical"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "archive",
    [
        "healthy",
        "silent-divergence",
        *of_brokers(*EVERY),
    ],
)
def test_archives_are_judged_on_spark_as_here(spark: SparkSession, archive: str, tmp_path: Path) -> None:
    sample = SAMPLE.parent / archive
    bundled(sample if sample.exists() else extracted(archive, tmp_path / "unpacked"), tmp_path / "bundles")
    assert verdict_of_both(spark, tmp_path / "bundles") != "unknown"


def verdict_of_both(spark: SparkSession, folder: Path) -> str:
    """The verdict on the bundles in a folder: all that either engine says of them is the same."""
    on_spark = json.loads(kf_spark.scan(spark, [str(folder)]).to_json())
    here = json.loads(kf.scan(str(folder)).to_json())
    assert on_spark["tool"].pop("engine") == "spark"
    assert here["tool"].pop("engine") == "local"
    assert on_spark == here
    verdict: str = here["summary"]["verdict"]
    return verdict


@pytest.mark.parametrize("fact", ["batches", "control_records", "index_entries"])
def test_facts_of_bundles_are_those_of_directories(spark: SparkSession, bundles: Path, fact: str) -> None:
    kf_spark.register(spark)

    def rows(path: Path) -> list[dict[str, object]]:
        read = spark.read.format("kafka_log").option("fact", fact).load(str(path)).drop("log_dir")
        return sorted((row.asDict() for row in read.collect()), key=lambda row: json.dumps(row, default=str))

    of_directories = rows(SAMPLE)
    assert of_directories
    assert rows(bundles) == of_directories
