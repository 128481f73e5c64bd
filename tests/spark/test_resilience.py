"""What happens to files while Spark scans them: an answer that says so, as the local engine's does, or an error with the path."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.spark import job
from tests.spark.driver import local_document, written
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = SAMPLES / "unclean-election"
CHANGED_AT_NS = 1_760_000_000_000_000_000
"""When it is said to have happened, so that every answer says the same."""
Change = Callable[[Path], object]


def to_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def cut(size_in_bytes: int, path: Path) -> None:
    os.truncate(path, size_in_bytes)


def happen(change: Change, path: Path) -> None:
    change(path)
    if path.exists():
        os.utime(path, ns=(CHANGED_AT_NS, CHANGED_AT_NS))


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """A copy of a sample cluster's log directories."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "evidence"))


def paths_of(evidence: Path) -> list[str]:
    return [str(path) for path in sorted(evidence.iterdir())]


def largest_log(evidence: Path) -> Path:
    return max((evidence / "broker-1").rglob("*.log"), key=lambda path: path.stat().st_size)


def judged_alike(spark: SparkSession, evidence: Path, change: Change, path: Path) -> Any:
    """The document that both engines give when this happens after the files were listed."""
    options = ScanOptions()
    inputs = gather(paths_of(evidence), options, ids_later=True)
    happen(change, path)
    there = written(job.scan_inputs(spark, inputs, options, job.DEFAULT_SIZES)[0])
    assert there == local_answer(evidence, change, path)
    return json.loads(there)


def local_answer(evidence: Path, change: Change, path: Path) -> str:
    """The local engine's when the same happens to the same files, which are there again."""
    shutil.rmtree(evidence)
    shutil.copytree(SAMPLE, evidence)
    return local_document(paths_of(evidence), ScanOptions(), lambda: happen(change, path))


@pytest.mark.parametrize("change", [os.unlink, to_directory, to_pipe])
def test_a_log_that_is_gone_or_becomes_no_file_is_reported(spark: SparkSession, evidence: Path, change: Change) -> None:
    log = largest_log(evidence)
    assert [gap["path"] for gap in judged_alike(spark, evidence, change, log)["incomplete"]] == [str(log)]


def test_a_partitions_directory_that_is_gone_is_reported(spark: SparkSession, evidence: Path) -> None:
    log = largest_log(evidence)
    gaps = judged_alike(spark, evidence, shutil.rmtree, log.parent)["incomplete"]
    assert log.name in {Path(gap["path"]).name for gap in gaps}


@pytest.mark.parametrize("size_in_bytes", [0, 61, 1000])
def test_a_log_cut_after_it_was_listed_is_said_to_have_changed(spark: SparkSession, evidence: Path, size_in_bytes: int) -> None:
    answer = judged_alike(spark, evidence, partial(cut, size_in_bytes), largest_log(evidence))
    assert "EVIDENCE_CHANGED" in {finding["kind"] for finding in answer["findings"]}


@pytest.mark.parametrize("end", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "meta.properties"])
def test_a_small_file_that_is_gone_is_reported(spark: SparkSession, evidence: Path, end: str) -> None:
    judged_alike(spark, evidence, os.unlink, min((evidence / "broker-1").rglob(f"*{end}")))


def test_a_log_directory_that_workers_do_not_see_is_an_error(spark: SparkSession, evidence: Path) -> None:
    first = evidence / "broker-1"
    inputs = gather([str(first)], ScanOptions(), ids_later=True)
    shutil.rmtree(first)
    with pytest.raises(UsageError, match=rf"^a worker of Spark cannot read {first}: ") as caught:
        job.scan_inputs(spark, inputs, ScanOptions(), job.DEFAULT_SIZES)
    assert "shared storage" in str(caught.value.hint)


def test_a_log_directory_lost_meanwhile_is_reported(spark: SparkSession, evidence: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After workers have been asked whether they can do the work."""
    first = evidence / "broker-1"
    right = job.probe

    def probe(*given: Any) -> None:
        right(*given)
        shutil.rmtree(first)

    monkeypatch.setattr(job, "probe", probe)
    there = written(
        job.scan_inputs(spark, gather(paths_of(evidence), ScanOptions(), ids_later=True), ScanOptions(), job.DEFAULT_SIZES)[0]
    )
    gaps = [gap["path"] for gap in json.loads(there)["incomplete"]]
    assert gaps
    assert all(path.startswith(str(first)) for path in gaps)
    assert there == local_answer(evidence, shutil.rmtree, first)
