"""The archive of `make packed-environment` works on a cluster whose interpreter has no packages."""

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster, cluster, spark_environment, submitted
from tests.support.places import ROOT, SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

ARCHIVE = ROOT / "dist" / "environment.tar.gz"
AUDIT = ROOT / "examples" / "nightly_audit.py"
SAMPLE = SAMPLES / "silent-divergence"
BARE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKED = "environment/bin/python"
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
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without packages on its path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        with cluster(tmp_path_factory.mktemp("bare_cluster")) as made:
            yield made


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the unpacked archive `environment`, for the driver."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder / "environment", filter="tar")
    return folder


def submit(unpacked: Path, master: str, script: Path, *arguments: Path | str, python: str) -> "subprocess.CompletedProcess[str]":
    """Run `spark-submit` with the unpacked environment for the driver and `python` for the workers."""
    environment = spark_environment(unpacked) | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": f"./{PACKED}"}
    environment.pop("PYTHONPATH", None)
    archives = ("--archives", f"{ARCHIVE}#environment") if python == f"./{PACKED}" else ()
    return submitted(script, arguments, master=master, folder=unpacked, environment=environment, options=archives)


def to_output(folder: Path) -> list[str]:
    return ["--output", str(folder / "audits"), "--cluster", "ledger", "--snapshot", "today"]


def test_without_the_archive_the_missing_module_is_named(bare_cluster: Cluster, unpacked: Path, tmp_path: Path) -> None:
    for module in ("kafka_forensics", "pyarrow"):
        command = [str(BARE), "-I", "-c", f"import {module}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"No module named '{module}'" in done.stderr
    done = submit(unpacked, bare_cluster.url, AUDIT, SAMPLE, *to_output(tmp_path), python=str(BARE))
    assert done.returncode == 2, done.stderr[-4000:]
    hint = "install the same kafka-forensics for their interpreter (PYSPARK_PYTHON)"
    problem = f"error: Spark's workers have no module kafka_forensics: {hint}\n"
    assert problem in done.stdout  # spark-submit joins stdout and stderr of Python
    assert list(tmp_path.iterdir()) == []


def test_with_the_archive_workers_audit_and_read_the_data_source(bare_cluster: Cluster, unpacked: Path, tmp_path: Path) -> None:
    packed = f"./{PACKED}"
    done = submit(unpacked, bare_cluster.url, AUDIT, SAMPLE, *to_output(tmp_path), python=packed)
    assert done.returncode == 1, done.stdout + done.stderr[-4000:]
    assert "  critical  FORK_BELOW_HW  ledger-0\n" in done.stdout
    assert (tmp_path / "audits" / "cluster=ledger" / "snapshot=today" / "_SUCCESS").exists()
    (tmp_path / "read.py").write_text(READ)
    done = submit(unpacked, bare_cluster.url, tmp_path / "read.py", SAMPLE, python=packed)
    assert (done.returncode, done.stdout) == (0, "batches 9 3\n"), done.stderr[-4000:]
