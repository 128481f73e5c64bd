"""A snapshot that Spark's workers add to a dataset: the rows of the local engine, once, in every form."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.append import AddedSnapshot, opened_export
from kafka_forensics.export.datasets import ExportOrder
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark.export_job import exported
from tests.support import datasets
from tests.support.datasets import FORMS, ONE, OTHER, files, keys, left_over, of_snapshot, read, unlabelled
from tests.support.exports import manifest, rows
from tests.support.replicas import RepeatedLogs, noisy_batch
from tests.support.spark_cluster import kill_while_writing

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def append(spark: SparkSession, path: Path, target: Path, snapshot: str, form: str) -> None:
    """Add a snapshot by the workers of a session that goes on."""
    options = ScanOptions()
    with opened_export(str(target), [str(path)], (), AddedSnapshot("a", snapshot, form)) as opened:
        order = ExportOrder(opened.target, list(FACTS), opened.output, payloads=True, label=opened.label, commit=opened.commit)
        exported(spark, gather([str(path)], options, ids_later=True), options, order)


@pytest.mark.parametrize("form", FORMS)
def test_workers_add_what_the_local_engine_adds(spark: SparkSession, tmp_path: Path, form: str) -> None:
    target = tmp_path / "there"
    assert datasets.append(target, "a", "n1", "--table-format", form) == 0
    append(spark, OTHER, target, "n2", form)
    append(spark, OTHER, target, "n1", form)
    for snapshot in ("n1", "n2"):
        assert datasets.append(tmp_path / "here", "a", snapshot, "--show-payloads", path=OTHER) == 0
    for fact in FACTS:
        there, here = read(target, fact, form), read(tmp_path / "here", fact)
        assert keys(there) == keys(here)
        if form != "iceberg":  # whose library reads lists that are null as empty ones
            assert unlabelled(there, fact) == unlabelled(here, fact), fact
        assert there.num_rows == here.num_rows
    if form == "parquet":
        assert left_over(target) == []
        assert manifest(target / "cluster=a" / "snapshot=n1")["tool"]["engine"] == "spark"


def test_spark_reads_snapshots_by_their_directories(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    names = ("2026-03-01", "a/b=c%20é")
    for snapshot in names:
        assert datasets.append(target, "1", snapshot) == 0
    (target / "cluster=1" / f"_unfinished-{'d' * 32}" / "batches").mkdir(parents=True)
    (target / "cluster=1" / f"_unfinished-{'d' * 32}" / "batches" / "part.parquet").write_bytes(b"of a run that was killed")
    inference = "spark.sql.sources.partitionColumnTypeInference.enabled"
    spark.conf.set(inference, "false")
    try:
        frame = spark.read.option("basePath", str(target)).option("mergeSchema", "true")
        table = frame.parquet(f"{target}/cluster=*/snapshot=*/batches").toArrow()
    finally:
        spark.conf.unset(inference)
    assert keys(table) == {("1", name) for name in names}
    assert rows(table.select(read(target, "batches").schema.names)) == rows(read(target, "batches"))


def test_the_command_adds_by_spark_too(tmp_path: Path) -> None:
    where = ("--engine", "spark", "--spark-master", "local[2]", "--output", str(tmp_path / "out"), "-q")
    asked = ("export", str(ONE), "--append", "--cluster", "a", "--snapshot", "n1", *datasets.FEW, *where)
    for _ in range(2):  # in processes of their own, for a command ends its session
        done = subprocess.run([sys.executable, "-m", "kafka_forensics", *asked], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert keys(read(tmp_path / "out", "batches")) == {("a", "n1")}
    assert left_over(tmp_path / "out") == []


def test_a_killed_driver_leaves_what_was_there_and_the_next_goes_on(tmp_path: Path) -> None:
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=8, batches=300, batch=noisy_batch(50, 100, "zstd"), records=50)
    target = tmp_path / "out"
    assert datasets.append(target, "a", "n1", *datasets.FEW) == 0
    before = files(target, "batches")
    where = ["--engine", "spark", "--spark-master", "local[2]", "--output", str(target), "-q"]
    asked = ["export", *map(str, logs.log_dirs), "--append", "--cluster", "a", "--snapshot", "n1", *where]
    kill_while_writing(asked, target, tmp_path / "said")
    assert files(target, "batches") == before
    assert left_over(target) != []
    assert datasets.append(target, "a", "n1", *datasets.FEW, path=OTHER) == 0
    table = read(target, "batches")
    assert rows(of_snapshot(table, "n1")) == rows(kf.scan(str(OTHER)).facts("batches"))
    assert left_over(target) == []
