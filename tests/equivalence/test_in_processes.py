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

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are copied on Linux alone")

Counts = list[int]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Every partition is judged by a forked process, each in a separate task; the list has the number of tasks of each scan.

    No other thread runs at a fork, because it might hold a lock.
    """
    counts: Counts = []
    threads, fork = threading.active_count(), os.fork

    def forked_alone() -> int:
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

    monkeypatch.setattr(os, "fork", forked_alone)
    monkeypatch.setattr(local, "forked", forked)
    monkeypatch.setattr(local, "MANY", 1)
    monkeypatch.setattr(local, "TASK_REPLICAS", 1)
    return counts


def test_every_partition(tree: Tree, copies: Counts) -> None:
    assert text(local.scan([str(tree.root)], ScanOptions(jobs=2)), tree.root) == text(tree.answer, tree.root)
    assert copies == [len(tree.answer.partitions)]


def test_only_small_partitions(make_tree: MakeTree, copies: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make_tree("files", every=False)
    sizes: Counter[tuple[str, int]] = Counter()
    for plan in gather([str(tree.root)], ScanOptions()).replicas:
        sizes[plan.context.topic_partition] += plan.bytes
    most = sorted(sizes.values())[len(sizes) // 2]
    seen: list[tuple[int, int]] = []
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")  # so that threads fold partitions that are not small
    monkeypatch.setattr(local, "is_small", lambda plans: sum(plan.bytes for plan in plans) <= most)
    scanned = local.scan([str(tree.root)], ScanOptions(jobs=3), lambda done, total: seen.append((done, total)))
    assert text(scanned, tree.root) == text(tree.answer, tree.root)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (scanned.totals.bytes_total, scanned.totals.bytes_total)
    assert copies == [sum(size <= most for size in sizes.values())]
    assert 0 < copies[0] < len(sizes)


def test_archives_are_read_by_this_process(archives: Path, copies: Counts) -> None:
    local.scan([str(archives / "kafka-4.3.0-unclean.tar.xz")], ScanOptions(jobs=2))
    assert copies == []


def test_unreadable_and_changing_files(tmp_path: Path, copies: Counts) -> None:
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
    assert copies


def test_snapshots(tmp_path: Path, copies: Counts) -> None:
    trees = Snapshots(tmp_path)
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: HEALTHY, 2: HEALTHY.truncated_to(55), 3: HEALTHY})
    one_process, two_processes = (snapshots.changes(str(tmp_path), ScanOptions(jobs=jobs)).result for jobs in (1, 2))
    assert comparable(one_process) == comparable(two_processes)
    assert one_process.changes
    assert len(copies) == 1
