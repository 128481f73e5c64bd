"""An export by a real cluster whose driver is killed in the middle: no seal, evidence as it was, and the next attempt refused."""

import os
from pathlib import Path

import pytest

from tests.support import exports
from tests.support.replicas import RepeatedLogs, noisy_batch
from tests.support.spark_cluster import QUICK_JAVA, SECONDS_OF_A_SCAN, Cluster, driver, has_open, processes, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SECONDS_TO_CLEAN_UP = 60.0


def listed(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_a_driver_killed_in_the_middle_leaves_no_export(
    running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=4, batches=300, batch=noisy_batch(50, 100, "zstd"), records=50)
    evidence = listed(logs.folder)
    target = tmp_path / "out"
    with driver(tmp_path / "killed", running.python) as killed:
        killed.session(running.url, spark_executor_memory="512m", spark_executor_extraJavaOptions=QUICK_JAVA)
        killed.send_export(*logs.log_dirs, output=target, facts=["records", "findings"], split_bytes=1 << 20)
        wait_until(
            lambda: killed.ready() or any(has_open(pid, target, ".parquet") for pid in running.python_workers()),
            "a worker that writes",
            SECONDS_OF_A_SCAN,
            pause=0.002,
        )
        assert not killed.ready()
        killed.kill()
        session = killed.process.pid
        wait_until(lambda: session not in {process.session for process in processes()}, "the end of its Java", SECONDS_TO_CLEAN_UP)
        wait_until(lambda: not running.executors() and not running.python_workers(), "the end of executors", SECONDS_TO_CLEAN_UP)
    assert listed(logs.folder) == evidence
    assert set(os.listdir(target)) == {"_UNFINISHED", "_temporary"}
    left = listed(target)
    again = ("--engine", "spark", "--spark-master", running.url)
    assert exports.export(target, *logs.log_dirs, *again) == 2
    said = capsys.readouterr().err
    assert f"error: {target} holds an export that did not finish, or one that is running\n" in said
    assert "nothing is resumed: if none is running, remove the directory and export again" in said
    assert listed(target) == left
