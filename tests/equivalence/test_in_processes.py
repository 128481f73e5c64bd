"""Partitions judged by forked processes give the same result, byte for byte, as this process."""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path

import pytest

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.changes import snapshots
from kafka_forensics.scanning.engine import local, processes
from tests.equivalence.conftest import MakeTree, Tree
from tests.equivalence.documents import text
from tests.scanning.engine.task_changes import comparable
from tests.support.brokers import healthy
from tests.support.logs import HEALTHY
from tests.support.snapshot_trees import NEW, OLD, Snapshots

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes fork only on Linux")

Counts = list[int]
"""Number of tasks in each scan."""


@pytest.fixture
def forked_tasks(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Every partition is judged by a forked process, each in a separate task; the list has the number of tasks of each scan.

    No other thread runs at a fork, because it might hold a lock.
    """
    counts: Counts = []
    threads, fork = threading.active_count(), os.fork

    def fork_without_threads() -> int:
        assert threading.active_count() <= threads
        return fork()

    def forked(task: Callable[[int], bytes], count: int, jobs: int) -> Generator[bytes, None, None]:
        counts.append(count)
        parent = os.getpid()

        def in_child(number: int) -> bytes:
            if number == 0:
                return b""
            assert os.getpid() != parent
            return task(number - 1)

        yield from islice(processes.forked(in_child, count + 1, jobs), 1, None)

    monkeypatch.setattr(os, "fork", fork_without_threads)
    monkeypatch.setattr(local, "forked", forked)
    monkeypatch.setattr(local, "MANY", 1)
    monkeypatch.setattr(local, "TASK_REPLICAS", 1)
    return counts


def test_every_partition_is_judged_in_a_fork(tree: Tree, forked_tasks: Counts) -> None:
    assert text(local.scan([str(tree.root)], ScanOptions(jobs=2)), tree.root) == text(tree.result, tree.root)
    assert forked_tasks == [len(tree.result.partitions)]


def test_only_small_partitions_are_judged_in_forks(
    make_tree: MakeTree, forked_tasks: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree("files", every=False)
    sizes: Counter[tuple[str, int]] = Counter()
    for plan in gather([str(tree.root)], ScanOptions()).replicas:
        sizes[plan.context.topic_partition] += plan.bytes
    median = sorted(sizes.values())[len(sizes) // 2]
    progress: list[tuple[int, int]] = []
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")  # threads fold large partitions only with compiled kernels
    monkeypatch.setattr(local, "is_small", lambda plans: sum(plan.bytes for plan in plans) <= median)
    scanned = local.scan([str(tree.root)], ScanOptions(jobs=3), lambda done, total: progress.append((done, total)))
    assert text(scanned, tree.root) == text(tree.result, tree.root)
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert progress[-1] == (scanned.totals.bytes_total, scanned.totals.bytes_total)
    assert forked_tasks == [sum(size <= median for size in sizes.values())]
    assert 0 < forked_tasks[0] < len(sizes)


def test_archives_are_read_by_this_process(archives: Path, forked_tasks: Counts) -> None:
    local.scan([str(archives / "kafka-4.3.0-unclean.tar.xz")], ScanOptions(jobs=2))
    assert forked_tasks == []


def test_unreadable_and_changing_files_are_reported(tmp_path: Path, forked_tasks: Counts) -> None:
    brokers = healthy(tmp_path)
    brokers.file(1, 0).unlink()
    brokers.file(1, 0).symlink_to("nowhere")
    results = []
    for jobs in (1, 2):
        os.utime(brokers.file(2, 29), ns=(0, 0))
        inputs = gather([str(tmp_path)], ScanOptions(jobs=jobs))
        os.utime(brokers.file(2, 29), ns=(1, 1))
        results.append(text(local.scan_inputs(inputs, ScanOptions(jobs=jobs)), tmp_path))
    assert results[0] == results[1]
    assert "EVIDENCE_CHANGED" in results[0]
    assert forked_tasks


def test_snapshots_are_compared_in_forks(tmp_path: Path, forked_tasks: Counts) -> None:
    trees = Snapshots(tmp_path)
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: HEALTHY, 2: HEALTHY.truncated_to(55), 3: HEALTHY})
    one_process, two_processes = (snapshots.changes(str(tmp_path), ScanOptions(jobs=jobs)).result for jobs in (1, 2))
    assert comparable(one_process) == comparable(two_processes)
    assert one_process.changes
    assert len(forked_tasks) == 1
