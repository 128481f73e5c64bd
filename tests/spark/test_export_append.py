"""Snapshots that Spark's workers add to datasets of every table format have the rows of the local engine, once."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.cli import spark_session
from kafka_forensics.errors import IncompleteError, UsageError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.datasets import ExportOrder
from kafka_forensics.export.opening import TABLE_FORMATS, SnapshotOptions, open_export
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark import read_export
from kafka_forensics.spark.export_job import export_on_spark
from tests.export import datasets
from tests.export.datasets import UNCLEAN_ELECTION, leftover_paths, read, rows_without_labels, snapshots_in
from tests.export.exports import manifest, rows

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def append(spark: SparkSession, path: Path, target: Path, snapshot: str, table_format: str) -> None:
    """Add a snapshot with the workers of a running session."""
    options = ScanOptions()
    inputs = gather([str(path)], options, ids_later=True)
    with open_export(str(target), (), SnapshotOptions("a", snapshot, append=True, table_format=table_format), inputs) as opened:
        order = ExportOrder(opened, list(FACTS), payloads=True)
        export_on_spark(spark, inputs, options, order)


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_workers_add_what_the_local_engine_adds(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    target = tmp_path / "spark"
    assert datasets.append(target, "a", "n1", "--table-format", table_format) == 0
    append(spark, UNCLEAN_ELECTION, target, "n2", table_format)
    append(spark, UNCLEAN_ELECTION, target, "n1", table_format)
    for snapshot in ("n1", "n2"):
        assert datasets.append(tmp_path / "local", "a", snapshot, "--show-payloads", path=UNCLEAN_ELECTION) == 0
    for fact in FACTS:
        by_spark, local = read(target, fact, table_format), read(tmp_path / "local", fact)
        assert snapshots_in(by_spark) == snapshots_in(local)
        if table_format != "iceberg":  # PyIceberg reads null lists as empty lists
            assert rows_without_labels(by_spark, fact) == rows_without_labels(local, fact), fact
        assert by_spark.num_rows == local.num_rows
    if table_format == "parquet":
        assert leftover_paths(target) == []
        assert json.loads((target / "cluster=a" / "snapshot=n1" / "manifest.json").read_text())["tool"]["engine"] == "spark"


def test_spark_reads_snapshots_by_their_directories(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    names = ("2026-03-01", "a/b=c%20é", "_replaced-n1")
    for snapshot in names:
        assert datasets.append(target, "1", snapshot) == 0
    (target / "cluster=1" / f"_unfinished-{'d' * 32}" / "batches").mkdir(parents=True)
    (target / "cluster=1" / f"_unfinished-{'d' * 32}" / "batches" / "part.parquet").write_bytes(b"not Parquet")
    table = read_export(spark, str(target), "batches").toArrow()
    assert snapshots_in(table) == {("1", name) for name in names}
    assert rows(table.select(read(target, "batches").schema.names)) == rows(read(target, "batches"))


def test_only_whole_datasets_are_read_unless_allowed(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(UsageError, match=r"no snapshot in .* has the fact batches"):
        read_export(spark, str(target), "batches")
    for snapshot in ("n1", "n2"):
        assert datasets.append(target, "a", snapshot, *datasets.TWO_FACTS) == 0
    count = read_export(spark, str(target), "batches").count()
    with pytest.raises(UsageError, match=r"no snapshot in .* has the fact spans"):
        read_export(spark, str(target), "spans")
    folder = target / "cluster=a" / "snapshot=n2"
    (file,) = (folder / "batches").iterdir()
    file.rename(file.with_name("other.parquet"))
    with pytest.raises(IncompleteError, match="1 files of batches are missing"):
        read_export(spark, str(target), "batches")
    assert read_export(spark, str(target), "batches", allow_incomplete=True).count() == count
    file.with_name("other.parquet").rename(file)
    shutil.copy(file, file.with_name("other.parquet"))
    with pytest.raises(
        IncompleteError, match=r"1 files of batches are in no manifest, such as other\.parquet: a run has not finished"
    ):
        read_export(spark, str(target), "batches")
    file.with_name("other.parquet").unlink()
    folder.rename(target / "cluster=a" / "_replaced-n2")
    with pytest.raises(IncompleteError, match="snapshot n2 of cluster a was being replaced when the run was killed"):
        read_export(spark, str(target), "batches")
    (target / "cluster=a" / "_replaced-n2").rename(folder)
    shutil.rmtree(target / "cluster=a" / "snapshot=n1")
    folder.rename(target / "cluster=a" / f"_unfinished-{'d' * 32}")
    with pytest.raises(IncompleteError, match="no snapshot is finished"):
        read_export(spark, str(target), "batches")
    assert read_export(spark, str(target), "batches", allow_incomplete=True).count() == count // 2


def test_snapshots_without_a_fact_are_read_with_topics_as_directories(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "g[a]"
    for snapshot, path in (("n1", datasets.SILENT_DIVERGENCE), ("n2", UNCLEAN_ELECTION)):
        assert datasets.append(target, "a", snapshot, "--partition-by", "topic", path=path) == 0
    for fact in ("transactions", "control_records", "findings", "remote_segments"):
        table = read_export(spark, str(target), fact).toArrow()
        expected = kf.scan(str(UNCLEAN_ELECTION)).facts(fact).num_rows
        assert table.filter(pa.compute.field("snapshot") == "n2").num_rows == expected
    assert read_export(spark, str(target), "index_entries").count() >= 0


def test_the_command_adds_a_snapshot_on_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "running_session", lambda *_, **__: nullcontext(spark))
    for _ in range(2):
        assert datasets.append(tmp_path / "out", "a", "n1", *datasets.TWO_FACTS, "--engine", "spark") == 0
    assert snapshots_in(read(tmp_path / "out", "batches")) == {("a", "n1")}
    assert manifest(tmp_path / "out")["tool"]["engine"] == "spark"
    assert leftover_paths(tmp_path / "out") == []
