"""Keys of large compacted partitions, compared by Spark's own sorting and shuffling, give what the local engine gives."""

import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from kafka_forensics.engine import local
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.folding.keys.question import KeyAnswer
from kafka_forensics.spark import job, keys
from kafka_forensics.spark.job import TaskSizes, scan_inputs
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.support.compacted import CLEANED, History, compacted, hidden_by_damage, history, three
from tests.support.faults import TOPIC, Brokers
from tests.support.spark_driver import written

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

APART = TaskSizes(keys_apart_bytes=0, work_bytes=1)


def lost(root: Path) -> Brokers:
    """Broker 2 lacks a key's latest record."""
    return three(root, history(), {2: {1}})


def many(root: Path) -> Brokers:
    """Some hundreds of keys, of which one is lost and many were cleaned on one side."""
    story = History()
    for number in range(420):
        story.put((f"key-{number % 250}", str(number)))
    logs = {1: story.left(roll=400), 2: story.left(set(range(150)) | {390}, roll=400), 3: story.left({411}, roll=400)}
    return compacted(root, logs, {1: 0, 2: 400})


def transactions(root: Path) -> Brokers:
    """A marker is missing on one side, and a transaction stays open."""
    story = History().put(("a", "0")).transaction(7, ("a", "1"), ("b", "1"), commit=True).transaction(8, ("c", "1"), commit=False)
    story.fill(CLEANED + 3 - story.end).transaction(9, ("d", "1"), commit=None)
    return three(root, story, {2: {0}, 3: {3, 5}})


@pytest.mark.parametrize("make", [lost, many, transactions, hidden_by_damage])
def test_faults_are_judged_as_by_the_local_engine(spark: SparkSession, tmp_path: Path, make: Callable[[Path], Brokers]) -> None:
    paths, options = [str(path) for path in make(tmp_path).log_dirs], ScanOptions()
    inputs = gather(paths, options)
    result, _ = scan_inputs(spark, inputs, options, APART)
    here = local.scan(paths, options)
    assert {"COMPACTED_VALUE_DIFFERS", "COMPACTION_SKEW"} & {finding.kind for finding in here.findings}
    assert written(result) == written(here)


def two_partitions(root: Path) -> list[str]:
    """Log directories with two compacted partitions, which differ in different keys."""
    brokers = three(root / "brokers", history(), {2: {1}})
    others = three(root / "others", history(), {1: {3, 4}, 3: {6}})
    for log_dir, other in zip(brokers.log_dirs, others.log_dirs, strict=True):
        shutil.copytree(other / f"{TOPIC}-0", log_dir / f"{TOPIC}-1")
        cleaned = write_offset_checkpoint({(TOPIC, 0): CLEANED, (TOPIC, 1): CLEANED})
        (log_dir / "cleaner-offset-checkpoint").write_bytes(cleaned)
    return [str(path) for path in brokers.log_dirs]


@dataclass
class Seen:
    """What the scan asked of Spark: which slices it had judged, and their states."""

    slices: list[list[int]] = field(default_factory=list)
    states: list[DataFrame] = field(default_factory=list)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What the scans of a test ask for."""
    made = Seen()
    put_together = job.put_together

    def noting(heads: DataFrame, states: DataFrame, tasks: int, there: job.Task) -> DataFrame:
        made.slices.append([row.slice for row in heads.select("slice").collect()])
        made.states.append(states)
        return put_together(heads, states, tasks, there)

    monkeypatch.setattr(job, "put_together", noting)
    return made


def test_states_are_kept_for_the_slices_that_asked(
    spark: SparkSession, tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, options = two_partitions(tmp_path), ScanOptions()
    plans: list[str] = []
    right = keys.answered_keys

    def noting(*given: Any) -> list[KeyAnswer]:
        output = StringIO()
        with redirect_stdout(output):
            seen.states[0].explain()
        plans.append(output.getvalue())
        return right(*given)

    monkeypatch.setattr(keys, "answered_keys", noting)
    result, _ = scan_inputs(spark, gather(paths, options), options, APART)
    assert written(result) == written(local.scan(paths, options))
    assert seen.slices == [[0, 1], [0, 1]]
    assert "InMemoryTableScan" in plans[0]
    assert not seen.states[0].is_cached


REFUSED = "[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute."


def test_where_spark_keeps_no_rows_they_are_worked_out_again(
    spark: SparkSession, tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise AnalysisException(REFUSED)

    paths, options = two_partitions(tmp_path), ScanOptions()
    monkeypatch.setattr(type(spark.range(1)), "persist", refuse)
    result, _ = scan_inputs(spark, gather(paths, options), options, APART)
    assert written(result) == written(local.scan(paths, options))
    assert seen.slices == [[0, 1], [0, 1]]
    assert "large compacted logs are read twice" in caplog.text


def test_any_other_refusal_ends_the_scan(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise AnalysisException("no such session")

    paths, options = two_partitions(tmp_path), ScanOptions()
    monkeypatch.setattr(type(spark.range(1)), "persist", refuse)
    with pytest.raises(AnalysisException, match="no such session"):
        scan_inputs(spark, gather(paths, options), options, APART)


def test_small_logs_are_compared_where_they_are_judged(spark: SparkSession, tmp_path: Path, seen: Seen) -> None:
    paths, options = [str(path) for path in lost(tmp_path).log_dirs], ScanOptions()
    result, _ = scan_inputs(spark, gather(paths, options), options)
    assert written(result) == written(local.scan(paths, options))
    assert seen.slices == [], "it is no slice with states that are put together"
