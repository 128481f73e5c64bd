"""Files that change while Spark scans them are reported as by the local engine, or are an error with the path."""

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
from tests.spark.driver import document_text, local_document
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = SAMPLES / "unclean-election"
CHANGED_AT_NS = 1_760_000_000_000_000_000
"""Modification time of changed files, equal in all answers."""
Change = Callable[[Path], object]


def to_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def cut(size_in_bytes: int, path: Path) -> None:
    os.truncate(path, size_in_bytes)


def apply_change(change: Change, path: Path) -> None:
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


def equal_documents(spark: SparkSession, evidence: Path, change: Change, path: Path) -> Any:
    """The document of a scan whose file changes after it was listed; asserts that both engines give the same."""
    options = ScanOptions()
    inputs = gather(paths_of(evidence), options, ids_later=True)
    apply_change(change, path)
    by_spark = document_text(job.scan_inputs(spark, inputs, options, job.DEFAULT_SIZES)[0])
    assert by_spark == local_answer(evidence, change, path)
    return json.loads(by_spark)


def local_answer(evidence: Path, change: Change, path: Path) -> str:
    """The document of the local engine for the same change of the restored files."""
    shutil.rmtree(evidence)
    shutil.copytree(SAMPLE, evidence)
    return local_document(paths_of(evidence), ScanOptions(), lambda: apply_change(change, path))


@pytest.mark.parametrize("change", [os.unlink, to_directory, to_pipe])
def test_a_log_that_is_no_longer_a_file_is_reported(spark: SparkSession, evidence: Path, change: Change) -> None:
    log = largest_log(evidence)
    assert [gap["path"] for gap in equal_documents(spark, evidence, change, log)["incomplete"]] == [str(log)]


def test_a_removed_partition_directory_is_reported(spark: SparkSession, evidence: Path) -> None:
    log = largest_log(evidence)
    gaps = equal_documents(spark, evidence, shutil.rmtree, log.parent)["incomplete"]
    assert log.name in {Path(gap["path"]).name for gap in gaps}


@pytest.mark.parametrize("size_in_bytes", [0, 61, 1000])
def test_a_log_cut_after_it_was_listed_is_reported_as_changed(spark: SparkSession, evidence: Path, size_in_bytes: int) -> None:
    answer = equal_documents(spark, evidence, partial(cut, size_in_bytes), largest_log(evidence))
    assert "EVIDENCE_CHANGED" in {finding["kind"] for finding in answer["findings"]}


@pytest.mark.parametrize("end", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "meta.properties"])
def test_a_removed_small_file_is_reported(spark: SparkSession, evidence: Path, end: str) -> None:
    equal_documents(spark, evidence, os.unlink, min((evidence / "broker-1").rglob(f"*{end}")))


def test_a_log_directory_that_workers_do_not_see_is_an_error(spark: SparkSession, evidence: Path) -> None:
    first = evidence / "broker-1"
    inputs = gather([str(first)], ScanOptions(), ids_later=True)
    shutil.rmtree(first)
    with pytest.raises(UsageError, match=rf"^a worker of Spark cannot read {first}: ") as caught:
        job.scan_inputs(spark, inputs, ScanOptions(), job.DEFAULT_SIZES)
    assert "shared storage" in str(caught.value.hint)


def test_a_log_directory_removed_during_the_scan_is_reported(
    spark: SparkSession, evidence: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed after the probe of the workers."""
    first = evidence / "broker-1"
    original_probe = job.probe

    def probe(*arguments: Any) -> None:
        original_probe(*arguments)
        shutil.rmtree(first)

    monkeypatch.setattr(job, "probe", probe)
    by_spark = document_text(
        job.scan_inputs(spark, gather(paths_of(evidence), ScanOptions(), ids_later=True), ScanOptions(), job.DEFAULT_SIZES)[0]
    )
    gaps = [gap["path"] for gap in json.loads(by_spark)["incomplete"]]
    assert gaps
    assert all(path.startswith(str(first)) for path in gaps)
    assert by_spark == local_answer(evidence, shutil.rmtree, first)
