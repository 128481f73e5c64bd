"""Several snapshots on Spark give the local engine's answer, row for row: of ordinary days, of losses, of the samples."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.cli import spark_session
from kafka_forensics.cli.main import outcome
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.changes import SnapshotsResult
from kafka_forensics.questions.changes.snapshots import changes, gather_snapshots, snapshot_paths
from kafka_forensics.spark import keys, scan_snapshots
from kafka_forensics.spark.job import TaskSizes, compare_inputs
from tests.support.compacted import CLEANED, compacted, history
from tests.support.faults import DIRECTORY, HEALTHY, write_files
from tests.support.snapshot_trees import Snapshots, cut, expired, grown
from tests.support.task_changes import said

pytestmark = pytest.mark.spark

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"


def text(result: SnapshotsResult) -> str:
    """The JSON document and each scan's, but for the name of the engine."""
    documents = [result.to_json(), *(scan_result.to_json() for scan_result in result.snapshots.values())]
    return "".join(documents).replace('"engine": "spark"', '"engine": "local"')


def everything(root: Path) -> Path:
    """Four snapshots: appends, retention, a fork, a loss, a partition that comes and goes, damage, an absent broker."""
    trees = Snapshots(root)
    trees.put("1", HEALTHY)
    second = trees.put("2", {1: grown(), 2: cut(HEALTHY, 55), 3: grown(cut(HEALTHY, 72), epoch=9, tag="other")})
    write_files(second / "b1" / "later-0", HEALTHY)
    third = trees.put("3", expired(grown(), 29), log_start=29)
    log = third / "b2" / DIRECTORY / "00000000000000000055.log"
    log.write_bytes(log.read_bytes()[:-50])
    shutil.rmtree(trees.put("4", cut(HEALTHY, 29), 29) / "b3")
    return root


def test_on_many_histories_at_once(spark: SparkSession, tmp_path: Path) -> None:
    root = everything(tmp_path / "snapshots")
    result = scan_snapshots(spark, str(root))
    assert text(result) == text(kf.scan_snapshots(str(root)))
    assert len(result.findings) > 1
    assert {scan_result.engine for scan_result in result.snapshots.values()} == {"spark"}


@pytest.mark.nightly
def test_on_compacted_logs_in_small_pieces(spark: SparkSession, tmp_path: Path) -> None:
    brokers = (1, 2, 3)
    compacted(tmp_path / "a", {broker: history().left(roll=CLEANED) for broker in brokers}, dict.fromkeys(brokers, 1))
    compacted(tmp_path / "b", {broker: history().left({0, 1}, roll=CLEANED) for broker in brokers}, dict.fromkeys(brokers, CLEANED))
    options = ScanOptions()
    gathered = gather_snapshots(snapshot_paths(str(tmp_path), options, (), []), options)
    there = compare_inputs(spark, gathered, options, TaskSizes(64, 512, 1, small_bytes=-1)).result
    here = changes(str(tmp_path), options).result
    assert there.changes == here.changes
    assert there.findings == here.findings
    assert [finding.kind for finding in there.findings] == ["KEYS_LOST_SINCE"] * 3


@pytest.mark.nightly
def test_keys_are_compared_by_sorting_them_within_and_between_snapshots(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two partitions, of which nobody knows one as compacted."""
    brokers, story = (1, 2), history()
    given: dict[str, dict[int, set[int]]] = {"a": {}, "b": {1: {1}, 2: {0, 3}}}
    for name, dropped in given.items():
        logs = {broker: story.left(dropped.get(broker, ()), roll=CLEANED) for broker in brokers}
        compacted(tmp_path / "both" / name, logs, dict.fromkeys(brokers, CLEANED))
        for directory in (tmp_path / "both" / name).glob(f"*/{DIRECTORY}"):
            shutil.copytree(directory, directory.parent / "other-1")
    asked: list[int] = []
    right = keys.answered_keys

    def noting(*given: Any) -> Any:
        asked.append(len(given[2]))
        return right(*given)

    monkeypatch.setattr(keys, "answered_keys", noting)
    options, root = ScanOptions(), str(tmp_path / "both")
    gathered = gather_snapshots(snapshot_paths(root, options, (), []), options)
    there = compare_inputs(spark, gathered, options, TaskSizes(work_bytes=1, keys_apart_bytes=0)).result
    here = changes(root, options).result
    assert said(there) == said(here)
    assert asked == [3]
    assert [(finding.kind, finding.place.broker) for finding in there.findings] == [("KEYS_LOST_SINCE", 1)]
    small = compare_inputs(spark, gather_snapshots(snapshot_paths(root, options, (), []), options), options).result
    assert (said(small), asked) == (said(here), [3])


@pytest.mark.nightly
def test_on_the_samples_of_one_cluster(spark: SparkSession) -> None:
    given = {"before": str(SAMPLES / "healthy"), "after": str(SAMPLES / "unclean-election")}
    assert text(scan_snapshots(spark, given, topic="[a_]*")) == text(kf.scan_snapshots(given, topic="[a_]*"))


@pytest.mark.nightly
def test_on_the_command_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_session, "stopping", lambda *_, **__: nullcontext(spark))
    trees = Snapshots(tmp_path / "snapshots")
    trees.put("1", HEALTHY)
    trees.put("2", grown())
    answers = []
    for engine in ("local", "spark"):
        status = outcome(["changes", str(trees.root), "--engine", engine, "--format", "jsonl", "--quiet"])
        answers.append((status, capsys.readouterr().out.replace('"engine": "spark"', '"engine": "local"')))
    assert answers[0] == answers[1]
    assert answers[0][0] == 0
