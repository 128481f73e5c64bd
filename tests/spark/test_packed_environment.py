"""The archive of `make packed-environment` on a cluster whose interpreter knows nothing of this package, and of no other."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_cluster import Cluster, cluster, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "dist" / "environment.tar.gz"
SAMPLE = ROOT / "sample_logs" / "silent-divergence"
BARE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKED = "environment/bin/python"
SETTINGS = (
    "driver.bindAddress=127.0.0.1",
    "driver.host=127.0.0.1",
    "log.level=WARN",
    "ui.enabled=false",
    "sql.shuffle.partitions=2",
)
READ = """
import sys
from pyspark.sql import SparkSession
from kafka_forensics.spark import register
spark = SparkSession.builder.getOrCreate()
register(spark)
read = spark.read.format("kafka_log").load(sys.argv[1])
print("batches", read.count(), read.selectExpr("count(distinct broker)").first()[0])
"""


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that finds no package in its environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        with cluster(tmp_path_factory.mktemp("strangers")) as made:
            yield made


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the archive is unpacked for the driver, as `environment`."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder / "environment", filter="tar")
    return folder


def submitted(unpacked: Path, master: str, script: Path, *arguments: Path | str, python: str) -> "subprocess.CompletedProcess[str]":
    """What `spark-submit` did whose driver runs the unpacked environment, and its workers `python`."""
    environment = spark_environment(unpacked)
    environment |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": f"./{PACKED}"}
    environment.pop("PYTHONPATH", None)
    submit = os.path.join(environment["SPARK_HOME"], "bin", "spark-submit")
    settings = [word for setting in SETTINGS for word in ("--conf", f"spark.{setting}")]
    memory = ("--driver-memory", "512m", "--executor-memory", "512m")
    archives = ("--archives", f"{ARCHIVE}#environment") if python == f"./{PACKED}" else ()
    command = [submit, "--master", master, *memory, *archives, *settings, str(script), *map(str, arguments)]
    return subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, timeout=500, check=False)


def test_the_interpreter_of_this_cluster_has_no_package() -> None:
    for module in ("kafka_forensics", "pyarrow"):
        command = [str(BARE), "-I", "-c", f"import {module}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"No module named '{module}'" in done.stderr


def test_without_the_archive_its_workers_say_so(strangers: Cluster, unpacked: Path, tmp_path: Path) -> None:
    audit = ROOT / "examples" / "nightly_audit.py"
    done = submitted(unpacked, strangers.url, audit, SAMPLE, "--output", tmp_path, "--snapshot", "today", python=str(BARE))
    assert done.returncode == 2, done.stderr[-4000:]
    assert "error: Spark's workers have no module kafka_forensics\n" in done.stdout  # spark-submit puts both of Python's there
    assert not (tmp_path / "today").exists()


def test_with_the_archive_they_audit(strangers: Cluster, unpacked: Path, tmp_path: Path) -> None:
    audit = ROOT / "examples" / "nightly_audit.py"
    done = submitted(unpacked, strangers.url, audit, SAMPLE, "--output", tmp_path, "--snapshot", "today", python=f"./{PACKED}")
    assert done.returncode == 1, done.stdout + done.stderr[-4000:]
    assert "  critical  FORK_BELOW_HW  ledger-0\n" in done.stdout
    assert (tmp_path / "today" / "_SUCCESS").exists()


def test_with_the_archive_they_read_the_data_source(strangers: Cluster, unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(READ)
    done = submitted(unpacked, strangers.url, tmp_path / "read.py", SAMPLE, python=f"./{PACKED}")
    assert (done.returncode, done.stdout) == (0, "batches 9 3\n"), done.stderr[-4000:]
