"""Scans and exports on a real Spark cluster give the answers of the local engine, even if workers or executors are killed."""

import hashlib
import itertools
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
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
"""Number of tasks of a scan of `logs` → sizes; a single task also judges all partitions."""
SPLIT_BYTES = {1: 1 << 40, 2: 5 << 20, 8: 1 << 20}
"""Number of tasks per fact of an export of `small_logs` → size; each task reads whole replicas."""
FACTS = ["batches", "records", "transactions", "findings"]
"""Tasks write the first three, the driver writes findings."""
KINDS = {"SAME_EPOCH_DIVERGENCE", "FRAMING_LOST", "SEG_TORN_TAIL"}
MAX_JOBS = 5
"""Jobs that are sent until a worker is seen with an open file."""
ONCE = pytest.mark.parametrize("drives", [False], indirect=True, ids=["once"])
SPECULATING = pytest.mark.parametrize("drives", [True], indirect=True, ids=["speculating"])


def damaged_logs(folder: Path, partitions: int, batches: int, brokers: int) -> RepeatedLogs:
    """Logs with a different batch on broker 2, zeros in place of a header on broker 1, and a torn tail."""
    records, batch = 50, noisy_batch(50, 100, "zstd")
    logs = RepeatedLogs(folder, "orders", partitions=partitions, batches=batches, batch=batch, records=records)
    other = batches // 2
    logs.change(2, 1, other, moved(noisy_batch(records, 100, "zstd", seed=2), other * records)[: len(batch)])
    logs.change(1, 0, 77, bytes(30))
    logs.cut(brokers, partitions - 1, (batches - 5) * len(batch) - 7)
    del logs.log_dirs[brokers:]
    return logs


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> RepeatedLogs:
    """Logs of three brokers, about 120 MiB."""
    return damaged_logs(tmp_path_factory.mktemp("logs") / "evidence", 8, 1000, 3)


@pytest.fixture(scope="module")
def small_logs(tmp_path_factory: pytest.TempPathFactory) -> RepeatedLogs:
    """Logs of two brokers, about 6 MiB."""
    return damaged_logs(tmp_path_factory.mktemp("small") / "evidence", 4, 150, 2)


@pytest.fixture(scope="module")
def local_scan(logs: RepeatedLogs) -> str:
    """The JSON document of the local engine for `logs`."""
    answer = local_document([str(path) for path in logs.log_dirs], ScanOptions(jobs=2))
    assert {finding["kind"] for finding in json.loads(answer)["findings"]} >= KINDS
    return answer


@pytest.fixture(scope="module")
def local_export(small_logs: RepeatedLogs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`exported` of `small_logs` by the local engine."""
    target = tmp_path_factory.mktemp("local") / "out"
    chosen = [word for fact in FACTS for word in ("--fact", fact)]
    assert exports.export(target, *small_logs.log_dirs, "--show-payloads", *chosen) == 0
    assert set(exports.read_back(target, "findings").column("kind").to_pylist()) >= KINDS
    return exported(target)


def exported(target: Path) -> dict[str, str]:
    """SHA-256 of the rows of each fact in their order, and of all in the manifest that does not depend on how tasks share rows.

    The manifest lists every file of the snapshot, and no other is left.
    """
    manifest = exports.manifest(target)
    listed = {file["path"] for file in manifest.pop("files")}
    assert listed == set(exports.parquet_files(target))
    del manifest["tool"]["engine"]
    rows = {fact: dataset["rows"] for fact, dataset in manifest.pop("datasets").items()}
    read = {fact: exports.read_back(target, fact).to_pylist() for fact in [*FACTS, "incomplete"]}
    assert {fact: len(lines) for fact, lines in read.items()} == rows
    names = {path.name for path in target.iterdir()} | {path.name for path in exports.snapshot_of(target).iterdir()}
    parts = {**read, "manifest": exports.RUN.sub("", json.dumps(manifest)), "names": sorted(names)}
    return {part: hashlib.sha256(repr(content).encode()).hexdigest() for part, content in parts.items()}


def busy_worker(
    cluster: Cluster, drives: Driver, send: Callable[[], None], below: Path, end: str = ".log", *, halted: bool = False
) -> int:
    """The pid of a Python worker with such a file open. The job is sent again if it ends before a worker is seen.

    With `halted`, the worker is stopped while the file is open, so that its task is not yet done.
    """
    pids: list[int] = []

    def is_seen() -> bool:
        pids[:] = [pid for pid in cluster.python_workers() if has_open(pid, below, end)]
        return bool(pids) or drives.ready()

    for _ in range(MAX_JOBS):
        send()
        wait_until(is_seen, "a worker with an open file", SECONDS_OF_A_SCAN, pause=0.002)
        while pids:
            if not halted:
                return pids[0]
            os.kill(worker := pids[0], signal.SIGSTOP)
            if has_open(worker, below, end):
                return worker
            os.kill(worker, signal.SIGCONT)
            wait_until(is_seen, "a worker with an open file", SECONDS_OF_A_SCAN, pause=0.002)
        drives.take().ok()
    raise AssertionError(f"{MAX_JOBS} jobs ended before a worker was seen with an open file")


def kill_executor_of(cluster: Cluster, worker: int) -> None:
    parents = {process.pid: process.parent for process in processes()}
    executor = parents[parents[worker]]
    assert executor in cluster.executors()
    os.kill(executor, signal.SIGKILL)


def sends_scan(drives: Driver, logs: RepeatedLogs, tasks: int) -> Callable[[], None]:
    return lambda: drives.send_scan(*logs.log_dirs, **TASKS[tasks])


def sends_export(drives: Driver, logs: RepeatedLogs, folder: Path, tasks: int) -> Callable[[], None]:
    """Each export goes to a new directory below `folder`; `last(folder)` is the last one."""
    numbers = itertools.count()

    def send() -> None:
        drives.send_export(*logs.log_dirs, output=folder / str(next(numbers)), facts=FACTS, split_bytes=SPLIT_BYTES[tasks])

    return send


def last(folder: Path) -> Path:
    return max(folder.iterdir())


def test_a_sample_and_an_archive_give_the_document_of_the_local_engine(drives: Driver, archives: Path) -> None:
    for paths in ([str(path) for path in sorted(SAMPLE.iterdir())], [str(archives / "kafka-4.3.0-unclean.tar.xz")]):
        assert drives.scan(*paths).document == local_document(paths, ScanOptions())


@pytest.mark.parametrize("tasks", TASKS)
def test_any_number_of_tasks_gives_the_same_document_and_rows(
    drives: Driver,
    logs: RepeatedLogs,
    local_scan: str,
    small_logs: RepeatedLogs,
    local_export: dict[str, str],
    tmp_path: Path,
    tasks: int,
) -> None:
    assert drives.scan(*logs.log_dirs, **TASKS[tasks]).document == local_scan
    tasks_of_facts = drives.export(*small_logs.log_dirs, output=tmp_path / "out", facts=FACTS, split_bytes=SPLIT_BYTES[tasks]).tasks
    assert tasks_of_facts == dict.fromkeys(["batches", "records", "transactions"], tasks)
    assert exported(tmp_path / "out") == local_export


@pytest.mark.parametrize("tasks", [1, 8])
def test_a_python_worker_killed_during_a_scan_changes_nothing(
    running: Cluster, drives: Driver, logs: RepeatedLogs, local_scan: str, tasks: int, request: pytest.FixtureRequest
) -> None:
    lost = drives.log.read_text().count("Python worker exited unexpectedly")
    os.kill(busy_worker(running, drives, sends_scan(drives, logs, tasks), logs.folder, halted=True), signal.SIGKILL)
    assert drives.take().document == local_scan
    speculating = request.node.callspec.params["drives"]  # Spark does not log the loss if another attempt finished first
    assert speculating or drives.log.read_text().count("Python worker exited unexpectedly") > lost


def test_an_executor_killed_during_a_scan_changes_nothing(
    running: Cluster, drives: Driver, logs: RepeatedLogs, local_scan: str
) -> None:
    lost = drives.log.read_text().count("Lost executor")
    kill_executor_of(running, busy_worker(running, drives, sends_scan(drives, logs, 8), logs.folder))
    assert drives.take().document == local_scan
    assert drives.log.read_text().count("Lost executor") > lost


@ONCE
@pytest.mark.parametrize(("is_executor", "message"), [(False, "Python worker exited unexpectedly"), (True, "Lost executor")])
def test_a_worker_or_executor_killed_during_an_export_changes_nothing(
    running: Cluster,
    drives: Driver,
    small_logs: RepeatedLogs,
    local_export: dict[str, str],
    tmp_path: Path,
    is_executor: bool,
    message: str,
) -> None:
    lost = drives.log.read_text().count(message)
    send = sends_export(drives, small_logs, tmp_path, 8 if is_executor else 2)
    writer = busy_worker(running, drives, send, tmp_path, ".parquet")
    if is_executor:
        kill_executor_of(running, writer)
    else:
        os.kill(writer, signal.SIGKILL)
    drives.take().ok()
    assert exported(last(tmp_path)) == local_export
    assert drives.log.read_text().count(message) > lost


@SPECULATING
def test_a_stopped_worker_is_replaced_and_leaves_no_files(
    running: Cluster, drives: Driver, small_logs: RepeatedLogs, local_export: dict[str, str], tmp_path: Path
) -> None:
    writer = busy_worker(running, drives, sends_export(drives, small_logs, tmp_path, 8), tmp_path, ".parquet")
    os.kill(writer, signal.SIGSTOP)
    try:
        drives.take().ok()
        assert exported(last(tmp_path)) == local_export
    finally:
        with suppress(ProcessLookupError):  # Spark may have killed it when another attempt finished first
            os.kill(writer, signal.SIGCONT)
    wait_until(lambda: not has_open(writer, tmp_path, ".parquet"), "the end of its output", SECONDS_OF_A_SCAN)
    assert exported(last(tmp_path)) == local_export
