"""An export by a real cluster of Spark on loopback: the local engine's bytes, whatever is killed in the middle."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.support import exports
from tests.support.replicas import RepeatedLogs, moved, noisy_batch
from tests.support.spark_cluster import SECONDS_OF_A_SCAN, Cluster, Driver, has_open, processes, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PARTITIONS, BATCHES, RECORDS = 4, 150, 50
FACTS = ["batches", "records", "transactions", "findings"]
"""What tasks write, and what the driver does."""
SPLIT_BYTES = {1: 1 << 40, 2: 5 << 20, 8: 1 << 20}
"""Sizes that make so many tasks of each fact of `logs`, of whole replicas each."""
EXPORTS_SENT = 5
"""At most, until a worker is seen writing."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> RepeatedLogs:
    """Two brokers with four partitions, some 6 MiB, that differ in one batch, in a torn tail, and in bytes that are none."""
    one = noisy_batch(RECORDS, 100, "zstd")
    made = RepeatedLogs(
        tmp_path_factory.mktemp("logs") / "evidence", "orders", partitions=PARTITIONS, batches=BATCHES, batch=one, records=RECORDS
    )
    made.change(2, 1, 100, moved(noisy_batch(RECORDS, 100, "zstd", seed=2), 100 * RECORDS)[: len(one)])
    made.change(1, 0, 77, bytes(30))
    made.cut(2, 3, (BATCHES - 5) * len(one) - 7)
    made.log_dirs.pop()
    return made


def digests(target: Path) -> dict[str, str]:
    """Path below the target → SHA-256 of everything that lies there; the manifest without the name of the engine."""
    found = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    manifest = json.loads(found["_manifest.json"])
    manifest["tool"].pop("engine")
    found["_manifest.json"] = json.dumps(manifest).encode()
    return {path: hashlib.sha256(data).hexdigest() for path, data in sorted(found.items())}


@pytest.fixture(scope="module")
def expected(logs: RepeatedLogs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the local engine writes."""
    target = tmp_path_factory.mktemp("here") / "out"
    chosen = [word for fact in FACTS for word in ("--fact", fact)]
    assert exports.export(target, *logs.log_dirs, "--show-payloads", *chosen) == 0
    assert set(exports.read_back(target, "findings").column("kind").to_pylist()) >= {
        "SAME_EPOCH_DIVERGENCE", "FRAMING_LOST", "SEG_TORN_TAIL",
    }  # fmt: skip
    return digests(target)


@pytest.mark.parametrize("tasks", SPLIT_BYTES)
def test_any_number_of_tasks_gives_the_same_bytes(
    drives: Driver, logs: RepeatedLogs, expected: dict[str, str], tmp_path: Path, tasks: int
) -> None:
    there = drives.export(*logs.log_dirs, output=tmp_path / "out", facts=FACTS, split_bytes=SPLIT_BYTES[tasks]).tasks
    assert there == dict.fromkeys(["batches", "records", "transactions"], tasks)
    assert digests(tmp_path / "out") == expected


@pytest.mark.parametrize("drives", [False], indirect=True, ids=["once"])
def test_a_python_worker_killed_in_the_middle_changes_nothing(
    running: Cluster, drives: Driver, logs: RepeatedLogs, expected: dict[str, str], tmp_path: Path
) -> None:
    lost = drives.log.read_text().count("Python worker exited unexpectedly")
    writer, target = writer_of_an_export(running, drives, logs, tmp_path, SPLIT_BYTES[2])
    os.kill(writer, signal.SIGKILL)
    drives.take().ok()
    assert digests(target) == expected
    assert drives.log.read_text().count("Python worker exited unexpectedly") > lost


@pytest.mark.parametrize("drives", [False], indirect=True, ids=["once"])
def test_an_executor_killed_in_the_middle_changes_nothing(
    running: Cluster, drives: Driver, logs: RepeatedLogs, expected: dict[str, str], tmp_path: Path
) -> None:
    lost = drives.log.read_text().count("Lost executor")
    writer, target = writer_of_an_export(running, drives, logs, tmp_path, SPLIT_BYTES[8])
    parents = {process.pid: process.parent for process in processes()}
    executor = parents[parents[writer]]
    assert executor in running.executors()
    os.kill(executor, signal.SIGKILL)
    drives.take().ok()
    assert digests(target) == expected
    assert drives.log.read_text().count("Lost executor") > lost


@pytest.mark.parametrize("drives", [True], indirect=True, ids=["speculating"])
def test_a_worker_that_stands_still_is_overtaken_and_leaves_nothing(
    running: Cluster, drives: Driver, logs: RepeatedLogs, expected: dict[str, str], tmp_path: Path
) -> None:
    writer, target = writer_of_an_export(running, drives, logs, tmp_path, SPLIT_BYTES[8])
    os.kill(writer, signal.SIGSTOP)
    try:
        drives.take().ok()
        assert digests(target) == expected
    finally:
        os.kill(writer, signal.SIGCONT)
    wait_until(lambda: not has_open(writer, tmp_path, ".parquet"), "the end of what it wrote", SECONDS_OF_A_SCAN)
    assert digests(target) == expected


def writer_of_an_export(there: Cluster, drives: Driver, logs: RepeatedLogs, folder: Path, split_bytes: int) -> tuple[int, Path]:
    """A Python worker that is just writing a file, and the target of its export below `folder`; an export that ends before one is
    seen is asked for again. Raises AssertionError if none ever is."""
    writers: list[int] = []
    for number in range(EXPORTS_SENT):
        target = folder / f"out-{number}"
        drives.send_export(*logs.log_dirs, output=target, facts=FACTS, split_bytes=split_bytes)

        def seen(target: Path = target) -> bool:
            writers[:] = [pid for pid in there.python_workers() if has_open(pid, target, ".parquet")]
            return bool(writers) or drives.ready()

        wait_until(seen, "a worker that writes", SECONDS_OF_A_SCAN, pause=0.002)
        if writers:
            return writers[0], target
        drives.take().ok()
    raise AssertionError(f"no worker was seen writing in {EXPORTS_SENT} exports")
