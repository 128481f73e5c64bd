"""A driver killed during a job leaves no processes or files on a real cluster; a full disk of workers is named."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from tests.export import exports
from tests.spark.cluster import QUICK_JAVA, SECONDS_OF_A_SCAN, Cluster, cluster, driver, has_open, processes, wait_until
from tests.spark.driver import local_document
from tests.spark.repeated_logs import RepeatedLogs, noisy_batch

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SETTINGS = {"spark_executor_memory": "512m", "spark_executor_extraJavaOptions": QUICK_JAVA, "spark_log_level": "WARN"}
SECONDS_TO_CLEAN_UP = 60.0


def listed(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("is_export", [False, True], ids=["scan", "export"])
def test_a_killed_driver_leaves_no_processes_or_files(running: Cluster, tmp_path: Path, is_export: bool) -> None:
    """An export leaves one directory that readers skip, and the next one removes it; the cluster runs the next scan."""
    batches = 300 if is_export else 1000
    logs = RepeatedLogs(
        tmp_path / "evidence", "orders", partitions=8, batches=batches, batch=noisy_batch(50, 100, "zstd"), records=50
    )
    before = listed(logs.folder)
    target = tmp_path / "out"
    with driver(tmp_path / "killed", running.python) as killed:
        killed.session(running.url, **SETTINGS)
        if is_export:
            killed.send_export(*logs.log_dirs, output=target, facts=["records", "findings"], split_bytes=1 << 20)
        else:
            killed.send_scan(*logs.log_dirs, work_bytes=17 << 20)
        place = (target, ".parquet") if is_export else (logs.folder, ".log")
        wait_until(
            lambda: killed.ready() or any(has_open(pid, *place) for pid in running.python_workers()),
            "a worker at its work",
            SECONDS_OF_A_SCAN,
            pause=0.002,
        )
        assert not killed.ready()
        killed.kill()
        session = killed.process.pid
        wait_until(lambda: session not in {process.session for process in processes()}, "the end of its Java", SECONDS_TO_CLEAN_UP)
        wait_until(lambda: not running.executors() and not running.python_workers(), "the end of executors", SECONDS_TO_CLEAN_UP)
    assert listed(logs.folder) == before
    if is_export:
        (cluster_folder,) = target.glob("cluster=*")
        (left,) = cluster_folder.iterdir()
        assert left.name.startswith("_unfinished-")
    else:
        assert os.listdir(tmp_path / "killed" / "local") == []
    with driver(tmp_path / "next", running.python) as following:
        following.session(running.url, **SETTINGS)
        paths = [str(path) for path in logs.log_dirs]
        if is_export:
            following.export(*paths, output=target, facts=["records", "findings"], split_bytes=1 << 20)
            assert [path.name for path in cluster_folder.iterdir()] == ["snapshot=1"]
            assert (exports.snapshot_of(target) / "_SUCCESS").exists()
        else:
            assert following.scan(*paths).document == local_document(paths, ScanOptions())
    assert not [process for process in processes() if str(tmp_path) in process.command]


@contextmanager
def small_disk(where: Path, size_in_bytes: int) -> Iterator[None]:
    """A small file system mounted at a directory during the block."""
    where.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_in_bytes}", "none", str(where)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


@pytest.mark.two_users  # only root may mount a disk
def test_a_full_disk_of_workers_is_named_and_a_larger_disk_is_enough(running: Cluster, tmp_path: Path) -> None:
    """Spark writes shuffled rows to its local directories."""
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=24, batches=20, batch=noisy_batch(50, 100, "zstd"), records=50)
    paths = [str(path) for path in logs.log_dirs]
    local_dir = tmp_path / "cluster" / "local"
    with (
        small_disk(local_dir, 64 << 10),
        cluster(tmp_path / "cluster", running.python) as full,
        driver(tmp_path / "driver", running.python) as started,
    ):
        started.session(full.url, **SETTINGS)
        name, text, _ = started.scan(*paths, small_bytes=-1, work_bytes=1, as_the_command=True).error
        assert name == "ForensicsError"
        assert "the disk of Spark's local directories is full on the worker 127.0.0." in text
        assert full.executor_stderr().count("Exception in task") >= 4, "each of four attempts failed"
        subprocess.run(["mount", "-o", f"remount,size={64 << 20}", str(local_dir)], check=True)
        assert started.scan(*paths, small_bytes=-1, work_bytes=1).document == local_document(paths, ScanOptions())
