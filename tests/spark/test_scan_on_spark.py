"""The scan on Spark gives the local engine's answer, byte for byte: of samples, archives, bundles and snapshots.

`tests/equivalence` compares both on trees with many faults.
"""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.cli import spark_session
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.changes import SnapshotsResult
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.changes.snapshots import changes, gather_snapshots, snapshot_paths
from kafka_forensics.spark import keys, scan, scan_snapshots
from kafka_forensics.spark.data_source import parse_options
from kafka_forensics.spark.job import TaskSizes, compare_inputs
from tests.scanning.engine.task_changes import comparable
from tests.spark.source_facts import rows
from tests.support.archives import ALL_ARCHIVES, archive_params
from tests.support.brokers import DIRECTORY, put_compacted, put_partition
from tests.support.bundles import make_bundle
from tests.support.logs import CLEANED, HEALTHY, keyed_history
from tests.support.places import SAMPLES
from tests.support.snapshot_trees import Snapshots

pytestmark = pytest.mark.spark

DAILY = ("kafka-4.3.0-unclean", "kafka-0.10.2.2-hw-divergence")


def text(*results: ScanResult | SnapshotsResult) -> str:
    """The JSON documents, and JSON Lines of scans, but for the name of the engine."""
    documents: list[str] = []
    for result in results:
        if isinstance(result, ScanResult):
            documents += [*json_document.document(result), *json_document.lines(result)]
        else:
            documents.append(result.to_json())
    return "".join(documents).replace('"engine": "spark"', '"engine": "local"')


def brokers(sample: str) -> list[str]:
    return [str(path) for path in sorted((SAMPLES / sample).iterdir()) if path.is_dir()]


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_a_sample_gives_the_same(spark: SparkSession, sample: str) -> None:
    assert text(scan(spark, brokers(sample))) == text(kf.scan(brokers(sample)))


@pytest.mark.parametrize("archive", archive_params(*ALL_ARCHIVES, nightly=[name for name in ALL_ARCHIVES if name not in DAILY]))
def test_an_archive_gives_the_same(spark: SparkSession, archive: str, archives: Path) -> None:
    paths = [str(archives / f"{archive}.tar.xz")]
    assert text(scan(spark, paths)) == text(kf.scan(paths))


def test_bundles_give_the_same(spark: SparkSession, tmp_path: Path) -> None:
    paths = [str(make_bundle(Path(log_dir), tmp_path / f"{Path(log_dir).name}.kfb")) for log_dir in brokers("unclean-election")]
    assert text(scan(spark, paths)) == text(kf.scan(paths))
    read = spark.read.format("kafka_log").load(paths).drop("log_dir").toArrow()
    assert rows(read) == rows(kf.scan(brokers("unclean-election")).facts("batches").drop_columns(["log_dir"]))


def test_a_result_has_dataframes_and_lanes(spark: SparkSession) -> None:
    """They keep the filters and options of the scan."""
    paths = brokers("unclean-election")
    options: dict[str, Any] = {"topic": "a*", "live": True, "deep": False, "as_of_ms": 1_900_000_000_000}
    by_spark, local = scan(spark, paths, **options), kf.scan(paths, **options)
    assert text(by_spark) == text(local)
    transactions = rows(by_spark.dataframe("transactions").toArrow())
    assert transactions == rows(local.facts("transactions"))
    assert transactions != rows(kf.scan(paths).facts("transactions"))
    query = parse_options({"path": paths[0], **by_spark.options}).query
    assert (query.live, query.deep, query.as_of_ms) == (True, False, 1_900_000_000_000)
    assert by_spark.dataframe("batches").count() == sum(replica.batches or 0 for replica in by_spark.replicas)
    lost = by_spark.dataframe("findings").filter("kind = 'UNCLEAN_LOSS'").select("offset_start", "offset_end").collect()
    assert [tuple(row) for row in lost] == [(300, 370)]
    drawn = by_spark.lanes("audit", 0)._repr_html_()
    assert drawn == local.lanes("audit", 0)._repr_html_()
    assert "elect 1: broker 2 loses 300–369, 70 records" in drawn
    with pytest.raises(UsageError, match="there is no fact 'batchs'"):
        by_spark.dataframe("batchs")


def test_a_path_without_a_log_is_refused_before_any_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no Kafka log in"):
        scan(spark, str(tmp_path))


def test_snapshots_give_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Appends, retention, a fork, a loss, a partition that comes and goes, damage, an absent broker."""
    trees = Snapshots(tmp_path)
    trees.put("1", HEALTHY)
    second = trees.put(
        "2", {1: HEALTHY.extended(), 2: HEALTHY.truncated_to(55), 3: HEALTHY.truncated_to(72).extended(epoch=9, tag="other")}
    )
    put_partition(second / "b1" / "later-0", HEALTHY)
    log = trees.put("3", HEALTHY.extended().after_retention(29), log_start=29) / "b2" / DIRECTORY / "00000000000000000055.log"
    log.write_bytes(log.read_bytes()[:-50])
    shutil.rmtree(trees.put("4", HEALTHY.truncated_to(29), 29) / "b3")
    by_spark, local = scan_snapshots(spark, str(tmp_path)), kf.scan_snapshots(str(tmp_path))
    assert text(by_spark, *by_spark.snapshots.values()) == text(local, *local.snapshots.values())
    assert len(by_spark.findings) > 1
    assert {scan_result.engine for scan_result in by_spark.snapshots.values()} == {"spark"}


@pytest.mark.nightly
def test_keys_are_compared_within_and_between_snapshots(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows that the second partition is compacted. Small logs are compared by the task that judges them."""
    broker_ids, history = (1, 2), keyed_history()
    dropped_keys: dict[str, dict[int, set[int]]] = {"a": {}, "b": {1: {1}, 2: {0, 3}}}
    for name, dropped in dropped_keys.items():
        logs = {broker: history.left(dropped.get(broker, ()), roll=CLEANED) for broker in broker_ids}
        put_compacted(tmp_path / name, logs, dict.fromkeys(broker_ids, CLEANED))
        for directory in (tmp_path / name).glob(f"*/{DIRECTORY}"):
            shutil.copytree(directory, directory.parent / "other-1")
    question_counts: list[int] = []
    answer_key_questions = keys.answer_key_questions

    def record_count(*arguments: Any) -> Any:
        question_counts.append(len(arguments[2]))
        return answer_key_questions(*arguments)

    monkeypatch.setattr(keys, "answer_key_questions", record_count)
    options = ScanOptions()
    local = changes(str(tmp_path), options).result
    for sizes in (TaskSizes(), TaskSizes(work_bytes=1, deferred_keys_bytes=0)):
        assert question_counts == []
        gathered = gather_snapshots(snapshot_paths(str(tmp_path), options, (), []), options)
        assert comparable(compare_inputs(spark, gathered, options, sizes).result) == comparable(local)
    assert question_counts == [3]
    assert [(finding.kind, finding.place.broker) for finding in local.findings] == [("KEYS_LOST_SINCE", 1)]


def test_commands_print_the_same(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_session, "running_session", lambda *_, **__: nullcontext(spark))
    trees = Snapshots(tmp_path)
    trees.put("1", HEALTHY)
    trees.put("2", HEALTHY.extended())
    for command, path, status in (("changes", trees.root, 0), ("scan", SAMPLES / "unclean-election", 1)):
        answers = []
        for engine in ("local", "spark"):
            assert outcome([command, str(path), "--engine", engine, "--format", "jsonl", "--quiet"]) == status
            answers.append(capsys.readouterr().out.replace('"engine": "spark"', '"engine": "local"'))
        assert answers[0] == answers[1]
