"""The scan on Spark gives the local engine's answer, row for row: on every sample, a case of every fault and every archive."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.engine import local
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import ScanResult
from kafka_forensics.spark import scan
from kafka_forensics.spark.data_source import parse_options
from kafka_forensics.spark.job import scanned
from tests.support.archives import EVERY, of_brokers
from tests.support.gallery_case import Case
from tests.support.nightly import one_of_each_family

pytestmark = pytest.mark.spark

DAILY = ("kafka-4.3.0-unclean", "public-magic0-golden")
SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"


def text(result: ScanResult) -> str:
    """The JSON document, and JSON Lines, but for the name of the engine."""
    both = [*json_document.document(result), *json_document.lines(result)]
    return "".join(both).replace('"engine": "spark"', '"engine": "local"')


def brokers(sample: str) -> list[str]:
    return [str(path) for path in sorted((SAMPLES / sample).iterdir()) if path.is_dir()]


class TestBothEngines:
    """One question, two engines, the same bytes."""

    @pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
    def test_on_a_sample(self, spark: SparkSession, sample: str) -> None:
        assert text(scan(spark, brokers(sample))) == text(kf.scan(brokers(sample)))

    @pytest.mark.nightly
    @pytest.mark.parametrize("case", one_of_each_family())
    def test_on_a_fault(self, spark: SparkSession, case: Case, tmp_path: Path) -> None:
        paths = [str(path) for path in case.make(tmp_path).log_dirs]
        options = ScanOptions(live=case.live, deep=case.deep)
        assert text(scanned(spark, paths, options)) == text(local.scan(paths, options))

    @pytest.mark.parametrize("archive", of_brokers(*EVERY, nightly=[name for name in EVERY if name not in DAILY]))
    def test_on_an_archive(self, spark: SparkSession, archive: str, archives: Path) -> None:
        paths = [str(archives / f"{archive}.tar.xz")]
        assert text(scan(spark, paths)) == text(kf.scan(paths))

    def test_on_a_part_of_what_is_there(self, spark: SparkSession) -> None:
        paths = brokers("unclean-election")
        options = ScanOptions(topic_glob="a*", partition=0, broker="2")
        assert text(scanned(spark, paths, options)) == text(local.scan(paths, options))


def test_the_answer_gives_dataframes(spark: SparkSession) -> None:
    result = scan(spark, brokers("unclean-election"), topic="audit")
    lost = result.dataframe("findings").filter("kind = 'UNCLEAN_LOSS'").select("offset_start", "offset_end").toArrow().to_pylist()
    assert lost == [
        {"offset_start": finding.place.offset_start, "offset_end": finding.place.offset_end} for finding in _losses(result)
    ]
    assert result.dataframe("batches").toArrow().num_rows == sum(replica.batches or 0 for replica in result.replicas)
    with pytest.raises(UsageError, match="there is no fact 'batchs'"):
        result.dataframe("batchs")


def test_it_draws_lanes_as_the_local_engine_does(spark: SparkSession) -> None:
    paths = brokers("unclean-election")
    drawn = scan(spark, paths, topic="audit").lanes("audit", 0)._repr_html_()
    assert drawn == kf.scan(paths, topic="audit").lanes("audit", 0)._repr_html_()
    assert "cut at 300: 70 offsets lost" in drawn


def test_its_dataframes_are_of_the_scan_as_it_was_asked_for(spark: SparkSession) -> None:
    paths = brokers("unclean-election")
    asked: dict[str, Any] = {"live": True, "deep": False, "as_of_ms": 1_900_000_000_000}
    there, here = scan(spark, paths, **asked), kf.scan(paths, **asked)
    told = sorted(map(repr, there.dataframe("transactions").toArrow().to_pylist()))
    assert told == sorted(map(repr, here.facts("transactions").to_pylist()))
    assert told != sorted(map(repr, kf.scan(paths).facts("transactions").to_pylist()))
    query = parse_options({"path": paths[0], **there.options}).query
    assert (query.live, query.deep, query.as_of_ms) == (True, False, 1_900_000_000_000)


def _losses(result: ScanResult) -> list[Finding]:
    findings = [finding for finding in result.findings if finding.kind == "UNCLEAN_LOSS"]
    assert findings
    return findings


def test_a_path_without_a_log_is_refused_before_any_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no Kafka log in"):
        scan(spark, str(tmp_path))
