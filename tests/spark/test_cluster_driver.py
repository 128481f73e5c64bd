"""A driver that is killed in the middle of a scan on a real cluster leaves nothing behind, and the cluster works on."""

import os
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from tests.support.replicas import RepeatedLogs, noisy_batch
from tests.support.spark_cluster import QUICK_JAVA, SECONDS_OF_A_SCAN, Cluster, Driver, driver, has_open, processes, wait_until
from tests.support.spark_driver import local_document

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election"
SECONDS_TO_CLEAN_UP = 60.0


def listed(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def begin(asked: Driver, master: str) -> None:
    asked.session(master, spark_executor_memory="512m", spark_executor_extraJavaOptions=QUICK_JAVA)


def test_a_driver_killed_in_the_middle_leaves_nothing_behind(running: Cluster, tmp_path: Path) -> None:
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=8, batches=1000, batch=noisy_batch(50, 100, "zstd"), records=50)
    before = listed(logs.folder)
    with driver(tmp_path / "killed", running.python) as killed:
        begin(killed, running.url)
        killed.send_scan(*logs.log_dirs, work_bytes=17 << 20)
        wait_until(
            lambda: killed.ready() or any(has_open(pid, logs.folder) for pid in running.python_workers()),
            "a worker that reads",
            SECONDS_OF_A_SCAN,
            pause=0.005,
        )
        assert not killed.ready()
        killed.kill()
        session = killed.process.pid
        wait_until(lambda: session not in {process.session for process in processes()}, "the end of its Java", SECONDS_TO_CLEAN_UP)
        wait_until(lambda: not running.executors() and not running.python_workers(), "the end of executors", SECONDS_TO_CLEAN_UP)
    assert listed(logs.folder) == before
    assert os.listdir(tmp_path / "killed" / "local") == []
    with driver(tmp_path / "next", running.python) as following:
        begin(following, running.url)
        paths = [str(path) for path in sorted(SAMPLE.iterdir())]
        assert following.scan(*paths).document == local_document(paths, ScanOptions())
    assert not [process for process in processes() if str(tmp_path) in process.command]
