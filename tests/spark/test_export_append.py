"""A snapshot that Spark's workers add to a dataset: the rows of the local engine, once, in every form."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark import append, read_dataset
from tests.support import datasets
from tests.support.datasets import FORMS, NAMES, ONE, OTHER, left_over, manifest_of, read, runs, unlabelled
from tests.support.exports import rows
from tests.support.repeated_logs import RepeatedLogs, batch
from tests.support.spark_cluster import kill_while_writing

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("form", FORMS)
def test_workers_add_what_the_local_engine_adds(spark: SparkSession, tmp_path: Path, form: str) -> None:
    target = tmp_path / "there"
    assert datasets.append(target, "a", "n1", "--table-format", form) == 0
    done = append(spark, str(OTHER), str(target), "a", "n2", table_format=form, payloads=True)
    append(spark, str(OTHER), str(target), "a", "n1", table_format=form, payloads=True)
    assert datasets.append(tmp_path / "here", "a", "n1", "--show-payloads", path=OTHER) == 0
    assert datasets.append(tmp_path / "here", "a", "n2", "--show-payloads", path=OTHER) == 0
    for fact in FACTS:
        there, here = read(target, fact, form), read(tmp_path / "here", fact)
        assert set(runs(there)) == set(runs(here))
        assert all(len(found) == 1 for found in runs(there).values())
        if form != "iceberg":  # whose library reads lists that are null as empty ones
            assert unlabelled(there, fact) == unlabelled(here, fact), fact
        assert there.num_rows == here.num_rows
    assert {dataset.fact: dataset.rows for dataset in done.datasets} == {
        fact: sum(file.rows for file in manifest_of(tmp_path / "here").files_of(fact) if file.snapshot == "n2") for fact in FACTS
    }
    assert {entry.tool["engine"] for entry in manifest_of(target).snapshots} == {"spark"}
    if form == "parquet":
        assert left_over(target) == []
        assert rows(read(target, "batches").drop_columns(NAMES)) == sorted(2 * rows(kf.scan(str(OTHER)).facts("batches")))


def test_spark_reads_what_the_manifest_names(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    for snapshot, path in (("2024", OTHER), ("2025", ONE), ("2024", ONE)):
        assert datasets.append(target, "1", snapshot, path=path) == 0
    (target / "batches" / ("d" * 32)).mkdir()
    (target / "batches" / ("d" * 32) / "part-00000-000.parquet").write_bytes(b"of a run that was killed")
    for fact in ("batches", "findings", "group_offsets"):
        frame = read_dataset(spark, f"{target}/", fact)
        assert frame.columns == kf.open_dataset(str(target), fact).schema.names
        assert rows(frame.toArrow()) == rows(read(target, fact))
    assert read_dataset(spark, str(target), "batches").dtypes[:6] == [
        *((name, "string") for name in ("cluster", "snapshot", "run", "topic")), ("partition", "int"), ("broker", "string"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="is no dataset"):
        read_dataset(spark, str(tmp_path), "batches")


def test_what_makes_no_sense_is_said_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no table format 'orc'"):
        append(spark, str(ONE), str(tmp_path / "out"), "a", "n1", table_format="orc")
    with pytest.raises(UsageError, match="is no name"):
        append(spark, str(ONE), str(tmp_path / "out"), "a", " ")
    with pytest.raises(UsageError, match="evidence is never written to"):
        append(spark, str(ONE), str(ONE / "out"), "a", "n1")
    assert list(tmp_path.iterdir()) == []


def test_the_command_adds_by_spark_too(tmp_path: Path) -> None:
    where = ("--engine", "spark", "--spark-master", "local[2]", "--output", str(tmp_path / "out"), "-q")
    asked = ("export", str(ONE), "--append", "--cluster", "a", "--snapshot", "n1", *datasets.FEW, *where)
    for _ in range(2):  # in processes of their own, for a command ends its session
        done = subprocess.run([sys.executable, "-m", "kafka_forensics", *asked], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert set(runs(read(tmp_path / "out", "batches"))) == {("a", "n1")}
    assert manifest_of(tmp_path / "out").version == 2
    assert left_over(tmp_path / "out") == []


def test_a_killed_driver_leaves_what_was_there_and_the_next_goes_on(tmp_path: Path) -> None:
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=8, batches=300, batch=batch(50, 100, "zstd"), records=50)
    target = tmp_path / "out"
    assert datasets.append(target, "a", "n1", *datasets.FEW) == 0
    before = runs(read(target, "batches"))
    where = ["--engine", "spark", "--spark-master", "local[2]", "--output", str(target), "-q"]
    asked = ["export", *map(str, logs.log_dirs), "--append", "--cluster", "a", "--snapshot", "n1", *where]
    kill_while_writing(asked, target, tmp_path / "said")
    assert runs(read(target, "batches")) == before
    assert {"_UNFINISHED", "_temporary"} <= set(os.listdir(target))
    assert datasets.append(target, "a", "n1", *datasets.FEW, path=OTHER) == 0
    table = read(target, "batches")
    assert rows(table.drop_columns(NAMES)) == rows(kf.scan(str(OTHER)).facts("batches"))
    assert left_over(target) == []
    assert not {"_UNFINISHED", "_temporary"} & set(os.listdir(target))
