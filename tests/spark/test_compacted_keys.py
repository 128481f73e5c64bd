"""Keys of large compacted partitions, sorted and shuffled by Spark, give the findings of the local engine."""

import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.folding.keys.question import KeyAnswer
from kafka_forensics.spark import job, keys
from kafka_forensics.spark.job import TaskSizes, scan_inputs
from tests.spark.driver import document_text
from tests.support.brokers import TOPIC, put_checkpoint, put_compacted, put_differently_cleaned
from tests.support.logs import CLEANED, History, keyed_history

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

DEFERRED_KEYS = TaskSizes(deferred_keys_bytes=0, work_bytes=1)
REFUSED = "[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute."


def equal_kinds(spark: SparkSession, paths: list[str], sizes: TaskSizes = DEFERRED_KEYS) -> set[str]:
    """The kinds of findings; asserts that both engines give the same document."""
    result, _ = scan_inputs(spark, gather(paths, ScanOptions()), ScanOptions(), sizes)
    assert document_text(result) == document_text(local.scan(paths, ScanOptions()))
    return {finding.kind for finding in result.findings}


def test_many_keys_give_the_findings_of_the_local_engine(spark: SparkSession, tmp_path: Path) -> None:
    """250 keys: one record is lost, and many are cleaned on one broker only."""
    history = History()
    for number in range(420):
        history.put((f"key-{number % 250}", str(number)))
    logs = {1: history.left(roll=400), 2: history.left(set(range(150)) | {390}, roll=400), 3: history.left({411}, roll=400)}
    brokers = put_compacted(tmp_path, logs, {1: 0, 2: 400})
    kinds = equal_kinds(spark, [str(path) for path in brokers.log_dirs])
    assert {"COMPACTED_VALUE_DIFFERS", "COMPACTION_SKEW"} & kinds


@pytest.fixture
def two_partitions(tmp_path: Path) -> list[str]:
    """Log directories with two compacted partitions, in which different keys differ."""
    brokers = put_differently_cleaned(tmp_path / "brokers", keyed_history(), {2: {1}})
    others = put_differently_cleaned(tmp_path / "others", keyed_history(), {1: {3, 4}, 3: {6}})
    for log_dir, other in zip(brokers.log_dirs, others.log_dirs, strict=True):
        shutil.copytree(other / f"{TOPIC}-0", log_dir / f"{TOPIC}-1")
        put_checkpoint(log_dir, "cleaner", {"t-0": CLEANED, "t-1": CLEANED})
    return [str(path) for path in brokers.log_dirs]


@pytest.mark.parametrize("refused", [False, True])
def test_key_states_are_persisted_or_computed_twice(
    spark: SparkSession, two_partitions: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    slices: list[list[int]] = []
    states: list[DataFrame] = []
    plans: list[str] = []
    judge_with_states, answer_key_questions = job.judge_with_states, keys.answer_key_questions

    def record_slices(heads: DataFrame, key_states: DataFrame, tasks: int, task: job.Task) -> DataFrame:
        slices.append([row.slice for row in heads.select("slice").collect()])
        states.append(key_states)
        return judge_with_states(heads, key_states, tasks, task)

    def record_plan(*arguments: Any) -> list[KeyAnswer]:
        output = StringIO()
        with redirect_stdout(output):
            states[0].explain()
        plans.append(output.getvalue())
        return answer_key_questions(*arguments)

    def refuse(_: object) -> None:
        raise AnalysisException(REFUSED)

    monkeypatch.setattr(job, "judge_with_states", record_slices)
    monkeypatch.setattr(keys, "answer_key_questions", record_plan)
    if refused:
        monkeypatch.setattr(type(spark.range(1)), "persist", refuse)
    equal_kinds(spark, two_partitions)
    assert slices == [[0, 1], [0, 1]]
    assert ("InMemoryTableScan" in plans[0]) is not refused
    assert ("large compacted logs are read twice" in caplog.text) is refused
    assert not states[0].is_cached
    equal_kinds(spark, two_partitions, TaskSizes())
    assert len(slices) == 2, "small logs are compared by the task that judges them"


def test_any_other_refusal_ends_the_scan(spark: SparkSession, two_partitions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise AnalysisException("no such session")

    monkeypatch.setattr(type(spark.range(1)), "persist", refuse)
    with pytest.raises(AnalysisException, match="no such session"):
        equal_kinds(spark, two_partitions)
