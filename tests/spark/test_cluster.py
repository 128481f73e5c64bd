"""A real cluster of Spark on loopback gives the local engine's answer, whatever is killed in the middle."""

import json
import os
import signal
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from tests.support.nightly import nightly_but
from tests.support.replicas import RepeatedLogs, moved, noisy_batch
from tests.support.spark_cluster import SECONDS_OF_A_SCAN, Cluster, Driver, has_open, processes, wait_until
from tests.support.spark_driver import local_document

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
SAMPLE_NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())
PARTITIONS, BATCHES, RECORDS = 8, 1000, 50
TASKS = {
    1: {"work_bytes": 1 << 40},
    2: {"work_bytes": 72 << 20, "small_bytes": -1},
    8: {"split_bytes": 1 << 20, "work_bytes": 17 << 20, "slices_a_task": 1, "small_bytes": -1},
}
"""Sizes that make so many tasks of `logs`; the one judges all partitions where it folds them."""
SCANS_SENT = 5
"""At most, until a worker is seen reading."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> RepeatedLogs:
    """Three brokers with eight partitions, some 120 MiB, that differ in one batch, in a torn tail, and in bytes that are none."""
    one = noisy_batch(RECORDS, 100, "zstd")
    made = RepeatedLogs(
        tmp_path_factory.mktemp("logs") / "evidence", "orders", partitions=PARTITIONS, batches=BATCHES, batch=one, records=RECORDS
    )
    made.change(2, 1, 500, moved(noisy_batch(RECORDS, 100, "zstd", seed=2), 500 * RECORDS)[: len(one)])
    made.change(1, 0, 77, bytes(30))
    made.cut(3, 7, (BATCHES - 5) * len(one) - 7)
    return made


@pytest.fixture(scope="module")
def judged(logs: RepeatedLogs) -> str:
    """The local engine's answer about `logs`."""
    answer = local_document([str(path) for path in logs.log_dirs], ScanOptions(jobs=2))
    kinds = {one["kind"] for one in json.loads(answer)["findings"]}
    assert {"SAME_EPOCH_DIVERGENCE", "FRAMING_LOST", "SEG_TORN_TAIL"} <= kinds
    return answer


@pytest.mark.parametrize("sample", nightly_but(["unclean-election"], SAMPLE_NAMES))
def test_samples_are_judged_as_by_the_local_engine(drives: Driver, sample: str) -> None:
    paths = [str(path) for path in sorted((SAMPLES / sample).iterdir())]
    assert drives.scan(*paths).document == local_document(paths, ScanOptions())


@pytest.mark.corpora
def test_a_real_brokers_archive_is_judged_as_by_the_local_engine(drives: Driver, corpora: Path) -> None:
    archive = str(corpora / "kafka-4.3.0-unclean.tar.xz")
    assert drives.scan(archive).document == local_document([archive], ScanOptions())


@pytest.mark.parametrize("tasks", nightly_but(["1", "8"], TASKS))
def test_any_number_of_tasks_gives_the_same_bytes(drives: Driver, logs: RepeatedLogs, judged: str, tasks: int) -> None:
    assert drives.scan(*logs.log_dirs, **TASKS[tasks]).document == judged


@pytest.mark.parametrize("tasks", nightly_but(["1", "8"], TASKS))
def test_a_python_worker_killed_in_the_middle_changes_nothing(
    running: Cluster, drives: Driver, logs: RepeatedLogs, judged: str, tasks: int, request: pytest.FixtureRequest
) -> None:
    lost = drives.log.read_text().count("Python worker exited unexpectedly")
    os.kill(reader_of_a_scan(running, drives, logs, tasks, halted=True), signal.SIGKILL)
    assert drives.take().document == judged
    twice = request.node.callspec.params["drives"]  # its task may have been done by another attempt, and the loss is not told then
    assert twice or drives.log.read_text().count("Python worker exited unexpectedly") > lost


@pytest.mark.parametrize("tasks", nightly_but(["8"], [2, 8]))
def test_an_executor_killed_in_the_middle_changes_nothing(
    running: Cluster, drives: Driver, logs: RepeatedLogs, judged: str, tasks: int
) -> None:
    lost = drives.log.read_text().count("Lost executor")
    worker = reader_of_a_scan(running, drives, logs, tasks)
    parents = {process.pid: process.parent for process in processes()}
    executor = parents[parents[worker]]
    assert executor in running.executors()
    os.kill(executor, signal.SIGKILL)
    assert drives.take().document == judged
    assert drives.log.read_text().count("Lost executor") > lost


def reader_of_a_scan(there: Cluster, asked: Driver, logs: RepeatedLogs, tasks: int, *, halted: bool = False) -> int:
    """A Python worker that is just reading a log for a scan, which is sent for it, and again where it ends before one is seen.

    With `halted` it is stopped while it reads: one that is done already would be missed by nobody.
    """
    for _ in range(SCANS_SENT):
        asked.send_scan(*logs.log_dirs, **TASKS[tasks])
        while (worker := reader_of(there, asked, logs)) is not None:
            if not halted:
                return worker
            os.kill(worker, signal.SIGSTOP)
            if has_open(worker, logs.folder):
                return worker
            os.kill(worker, signal.SIGCONT)
        asked.take().ok()
    raise AssertionError(f"{SCANS_SENT} scans ended before a worker was seen reading")


def reader_of(there: Cluster, asked: Driver, logs: RepeatedLogs) -> int | None:
    """A Python worker that is just reading a log; None if the scan ends before one is seen."""
    found: list[int] = []

    def seen() -> bool:
        found[:] = [pid for pid in there.python_workers() if has_open(pid, logs.folder)]
        return bool(found) or asked.ready()

    wait_until(seen, "a worker that reads", SECONDS_OF_A_SCAN, pause=0.005)
    return found[0] if found else None
