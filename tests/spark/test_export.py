"""The export on Spark writes what the local engine writes, fact by fact, and leaves nothing else behind."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark import export
from tests.support import exports
from tests.support.exports import SAMPLES, manifest, read_back, rows

pytestmark = pytest.mark.spark


def assert_equal(there: Path, here: Path) -> None:
    """The same rows of every fact, the same sums of them, and the same options in the manifest."""
    told, expected = manifest(there), manifest(here)
    assert told["tool"]["engine"] == "spark"
    assert (told["options"], told["schema_version"]) == (expected["options"], expected["schema_version"])
    assert {(one["path"], one["reason"]) for one in told["incomplete"]} == {
        (one["path"], one["reason"]) for one in expected["incomplete"]
    }
    assert list(told["datasets"]) == list(expected["datasets"])
    for fact in expected["datasets"]:
        assert rows(read_back(there, fact)) == rows(read_back(here, fact)), fact
        assert told["datasets"][fact]["rows"] == expected["datasets"][fact]["rows"]


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_a_sample_is_exported_as_by_the_local_engine(spark: SparkSession, tmp_path: Path, sample: str) -> None:
    done = export(spark, str(SAMPLES / sample), str(tmp_path / "there"), payloads=True)
    assert exports.export(tmp_path / "here", SAMPLES / sample, "--show-payloads") == 0
    assert_equal(tmp_path / "there", tmp_path / "here")
    assert {one.fact: one.rows for one in done.datasets} == {
        fact: sums["rows"] for fact, sums in manifest(tmp_path / "here")["datasets"].items()
    }
    assert done.result.incomplete == []


@pytest.mark.corpora
def test_an_archive_is_exported_as_by_the_local_engine(spark: SparkSession, tmp_path: Path, corpora: Path) -> None:
    archive = corpora / "kafka-4.3.0-unclean.tar.xz"
    export(spark, str(archive), str(tmp_path / "there"))
    assert exports.export(tmp_path / "here", archive) == 0
    assert_equal(tmp_path / "there", tmp_path / "here")


def test_what_lies_there_is_what_the_manifest_says(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(spark, str(SAMPLES / "unclean-election"), str(target))
    told = manifest(target)
    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert found == {one["path"] for one in told["files"]} | {"_SUCCESS", "_manifest.json"}
    assert {path.name for path in target.iterdir()} == {*FACTS, "_SUCCESS", "_manifest.json"}
    for one in told["files"]:
        data = (target / one["path"]).read_bytes()
        assert (one["bytes"], one["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        file = pq.ParquetFile(target / one["path"])
        metadata = file.schema_arrow.metadata or {}
        assert file.metadata.num_rows == one["rows"]
        assert metadata[b"kf.schema_version"] == told["schema_version"].encode()
        if "topic" in one:
            assert [metadata[f"kf.{key}".encode()].decode() for key in ("topic", "partition", "broker")] == [
                one["topic"], str(one["partition"]), one["broker"],
            ]  # fmt: skip
    assert json.dumps(told)
