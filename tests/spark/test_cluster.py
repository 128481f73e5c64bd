"""Scans and exports by a real cluster of Spark on loopback give the local engine's bytes, whatever is killed in the middle."""

import hashlib
import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from tests.export import exports
from tests.spark.cluster import SECONDS_OF_A_SCAN, Cluster, Driver, has_open, processes, wait_until
from tests.spark.driver import local_document
from tests.spark.repeated_logs import RepeatedLogs, moved, noisy_batch
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = SAMPLES / "unclean-election"
TASKS = {
    1: {"work_bytes": 1 << 40},
    2: {"work_bytes": 72 << 20, "small_bytes": -1},
    8: {"split_bytes": 1 << 20, "work_bytes": 17 << 20, "slices_a_task": 1, "small_bytes": -1},
}
"""Sizes that make so many tasks of `logs`; the one judges all partitions where it folds them."""
SPLIT_BYTES = {1: 1 << 40, 2: 5 << 20, 8: 1 << 20}
"""Sizes that make so many tasks of each fact of `small_logs`, of whole replicas each."""
FACTS = ["batches", "records", "transactions", "findings"]
"""What tasks write, and what the driver does."""
KINDS = {"SAME_EPOCH_DIVERGENCE", "FRAMING_LOST", "SEG_TORN_TAIL"}
JOBS_SENT = 5
"""At most, until a worker is seen at its work."""
ONCE = pytest.mark.parametrize("drives", [False], indirect=True, ids=["once"])
SPECULATING = pytest.mark.parametrize("drives", [True], indirect=True, ids=["speculating"])


def damaged_logs(folder: Path, partitions: int, batches: int, brokers: int) -> RepeatedLogs:
    """Logs that differ in one batch, in a torn tail, and in bytes that are none."""
    records, one = 50, noisy_batch(50, 100, "zstd")
    made = RepeatedLogs(folder, "orders", partitions=partitions, batches=batches, batch=one, records=records)
    other = batches // 2
    made.change(2, 1, other, moved(noisy_batch(records, 100, "zstd", seed=2), other * records)[: len(one)])
    made.change(1, 0, 77, bytes(30))
    made.cut(brokers, partitions - 1, (batches - 5) * len(one) - 7)
    del made.log_dirs[brokers:]
    return made


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> RepeatedLogs:
    """Of three brokers, some 120 MiB."""
    return damaged_logs(tmp_path_factory.mktemp("logs") / "evidence", 8, 1000, 3)


@pytest.fixture(scope="module")
def small_logs(tmp_path_factory: pytest.TempPathFactory) -> RepeatedLogs:
    """Of two brokers, some 6 MiB."""
    return damaged_logs(tmp_path_factory.mktemp("small") / "evidence", 4, 150, 2)


@pytest.fixture(scope="module")
def judged(logs: RepeatedLogs) -> str:
    """The local engine's answer about `logs`."""
    answer = local_document([str(path) for path in logs.log_dirs], ScanOptions(jobs=2))
    assert {finding["kind"] for finding in json.loads(answer)["findings"]} >= KINDS
    return answer


@pytest.fixture(scope="module")
def export_on_spark(small_logs: RepeatedLogs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of what the local engine writes of `small_logs`."""
    target = tmp_path_factory.mktemp("here") / "out"
    chosen = [word for fact in FACTS for word in ("--fact", fact)]
    assert exports.export(target, *small_logs.log_dirs, "--show-payloads", *chosen) == 0
    assert set(exports.read_back(target, "findings").column("kind").to_pylist()) >= KINDS
    return digests(target)


def digests(target: Path) -> dict[str, str]:
    """Path below the target → SHA-256 of everything that lies there; the manifest without the name of the engine."""
    found = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    manifest = json.loads(found["_manifest.json"])
    manifest["tool"].pop("engine")
    found["_manifest.json"] = json.dumps(manifest).encode()
    return {path: hashlib.sha256(data).hexdigest() for path, data in sorted(found.items())}


def busy_worker(
    there: Cluster, drives: Driver, send: Callable[[], None], below: Path, end: str = ".log", *, halted: bool = False
) -> int:
    """A Python worker that has such a file open, for a job that is sent, and sent again where it ends before one is seen.

    With `halted` it is stopped with the file open: one that is done already would be missed by nobody.
    """
    found: list[int] = []

    def seen() -> bool:
        found[:] = [pid for pid in there.python_workers() if has_open(pid, below, end)]
        return bool(found) or drives.ready()

    for _ in range(JOBS_SENT):
        send()
        wait_until(seen, "a worker with an open file", SECONDS_OF_A_SCAN, pause=0.002)
        while found:
            if not halted:
                return found[0]
            os.kill(worker := found[0], signal.SIGSTOP)
            if has_open(worker, below, end):
                return worker
            os.kill(worker, signal.SIGCONT)
            wait_until(seen, "a worker with an open file", SECONDS_OF_A_SCAN, pause=0.002)
        drives.take().ok()
    raise AssertionError(f"{JOBS_SENT} jobs ended before a worker was seen with an open file")


def kill_executor_of(there: Cluster, worker: int) -> None:
    parents = {process.pid: process.parent for process in processes()}
    executor = parents[parents[worker]]
    assert executor in there.executors()
    os.kill(executor, signal.SIGKILL)


def sends_scan(drives: Driver, logs: RepeatedLogs, tasks: int) -> Callable[[], None]:
    return lambda: drives.send_scan(*logs.log_dirs, **TASKS[tasks])


def sends_export(drives: Driver, logs: RepeatedLogs, folder: Path, tasks: int) -> Callable[[], None]:
    """To a directory of its own each time, of which the last is `last(folder)`."""
    numbers = itertools.count()

    def send() -> None:
        drives.send_export(*logs.log_dirs, output=folder / str(next(numbers)), facts=FACTS, split_bytes=SPLIT_BYTES[tasks])

    return send


def last(folder: Path) -> Path:
    return max(folder.iterdir())


def test_a_sample_and_an_archive_are_judged_as_by_the_local_engine(drives: Driver, archives: Path) -> None:
    for paths in ([str(path) for path in sorted(SAMPLE.iterdir())], [str(archives / "kafka-4.3.0-unclean.tar.xz")]):
        assert drives.scan(*paths).document == local_document(paths, ScanOptions())


@pytest.mark.parametrize("tasks", TASKS)
def test_any_number_of_tasks_gives_the_same_bytes(
    drives: Driver,
    logs: RepeatedLogs,
    judged: str,
    small_logs: RepeatedLogs,
    export_on_spark: dict[str, str],
    tmp_path: Path,
    tasks: int,
) -> None:
    assert drives.scan(*logs.log_dirs, **TASKS[tasks]).document == judged
    there = drives.export(*small_logs.log_dirs, output=tmp_path / "out", facts=FACTS, split_bytes=SPLIT_BYTES[tasks]).tasks
    assert there == dict.fromkeys(["batches", "records", "transactions"], tasks)
    assert digests(tmp_path / "out") == export_on_spark


@pytest.mark.parametrize("tasks", [1, 8])
def test_a_python_worker_of_a_scan_killed_in_the_middle_changes_nothing(
    running: Cluster, drives: Driver, logs: RepeatedLogs, judged: str, tasks: int, request: pytest.FixtureRequest
) -> None:
    lost = drives.log.read_text().count("Python worker exited unexpectedly")
    os.kill(busy_worker(running, drives, sends_scan(drives, logs, tasks), logs.folder, halted=True), signal.SIGKILL)
    assert drives.take().document == judged
    twice = request.node.callspec.params["drives"]  # its task may have been done by another attempt, and the loss is not told then
    assert twice or drives.log.read_text().count("Python worker exited unexpectedly") > lost


def test_an_executor_killed_meanwhile_changes_nothing(running: Cluster, drives: Driver, logs: RepeatedLogs, judged: str) -> None:
    lost = drives.log.read_text().count("Lost executor")
    kill_executor_of(running, busy_worker(running, drives, sends_scan(drives, logs, 8), logs.folder))
    assert drives.take().document == judged
    assert drives.log.read_text().count("Lost executor") > lost


@ONCE
@pytest.mark.parametrize(("is_executor", "told"), [(False, "Python worker exited unexpectedly"), (True, "Lost executor")])
def test_a_worker_or_executor_of_an_export_killed_in_the_middle_changes_nothing(
    running: Cluster,
    drives: Driver,
    small_logs: RepeatedLogs,
    export_on_spark: dict[str, str],
    tmp_path: Path,
    is_executor: bool,
    told: str,
) -> None:
    lost = drives.log.read_text().count(told)
    send = sends_export(drives, small_logs, tmp_path, 8 if is_executor else 2)
    writer = busy_worker(running, drives, send, tmp_path, ".parquet")
    if is_executor:
        kill_executor_of(running, writer)
    else:
        os.kill(writer, signal.SIGKILL)
    drives.take().ok()
    assert digests(last(tmp_path)) == export_on_spark
    assert drives.log.read_text().count(told) > lost


@SPECULATING
def test_a_worker_that_stands_still_is_overtaken_and_leaves_nothing(
    running: Cluster, drives: Driver, small_logs: RepeatedLogs, export_on_spark: dict[str, str], tmp_path: Path
) -> None:
    writer = busy_worker(running, drives, sends_export(drives, small_logs, tmp_path, 8), tmp_path, ".parquet")
    os.kill(writer, signal.SIGSTOP)
    try:
        drives.take().ok()
        assert digests(last(tmp_path)) == export_on_spark
    finally:
        os.kill(writer, signal.SIGCONT)
    wait_until(lambda: not has_open(writer, tmp_path, ".parquet"), "the end of what it wrote", SECONDS_OF_A_SCAN)
    assert digests(last(tmp_path)) == export_on_spark
