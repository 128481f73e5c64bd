"""A snapshot that Spark's workers add to a dataset: the rows of the local engine, once, in every form."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_forensics.cli import spark_session
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.append import AddedSnapshot, open_export
from kafka_forensics.export.datasets import ExportOrder
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark.export_job import export_on_spark
from tests.export import datasets
from tests.export.datasets import FORMS, OTHER, keys, left_over, read, unlabelled
from tests.export.exports import manifest, rows

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def append(spark: SparkSession, path: Path, target: Path, snapshot: str, form: str) -> None:
    """Add a snapshot by the workers of a session that goes on."""
    options = ScanOptions()
    with open_export(str(target), (), AddedSnapshot("a", snapshot, form)) as opened:
        order = ExportOrder(opened.target, list(FACTS), opened.output, payloads=True, label=opened.label, commit=opened.commit)
        export_on_spark(spark, gather([str(path)], options, ids_later=True), options, order)


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


def test_the_command_adds_by_spark_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "running_session", lambda *_, **__: nullcontext(spark))
    for _ in range(2):
        assert datasets.append(tmp_path / "out", "a", "n1", *datasets.FEW, "--engine", "spark") == 0
    assert keys(read(tmp_path / "out", "batches")) == {("a", "n1")}
    assert manifest(tmp_path / "out" / "cluster=a" / "snapshot=n1")["tool"]["engine"] == "spark"
    assert left_over(tmp_path / "out") == []
