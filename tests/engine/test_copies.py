"""Partitions that copies of the process judge: to the byte what this process says of them."""

import os
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path

import pytest

from kafka_forensics.engine import local, processes
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.changes import snapshots
from tests.support.archives import of_brokers
from tests.support.gallery_case import Case
from tests.support.nightly import one_of_each_family
from tests.support.snapshot_trees import NEW, OLD
from tests.support.task_changes import said

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are copied on Linux alone")

Counts = list[int]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Every partition judged by a copy, each a task of its own; how many tasks there were, scan by scan.

    No thread works when a copy is made: it might hold a lock.
    """
    counts: Counts = []
    threads, fork = threading.active_count(), os.fork

    def forked_alone() -> int:
        assert threading.active_count() <= threads
        return fork()

    monkeypatch.setattr(os, "fork", forked_alone)

    def forked(task: Callable[[int], bytes], count: int, jobs: int) -> Generator[bytes, None, None]:
        counts.append(count)
        here = os.getpid()

        def there(number: int) -> bytes:
            if number == 0:
                return b""
            assert os.getpid() != here
            return task(number - 1)

        yield from islice(processes.forked(there, count + 1, jobs), 1, None)

    monkeypatch.setattr(local, "forked", forked)
    monkeypatch.setattr(local, "MANY", 1)
    monkeypatch.setattr(local, "TASK_REPLICAS", 1)
    return counts


def text(result: ScanResult) -> str:
    return "".join(document(result))


@pytest.mark.parametrize("case", one_of_each_family())
def test_a_fault_is_told_alike(case: Case, tmp_path: Path, copies: Counts) -> None:
    paths = [str(path) for path in case.make(tmp_path).log_dirs]
    here, there = (text(local.scan(paths, ScanOptions(jobs=jobs, deep=case.deep, live=case.live))) for jobs in (1, 2))
    assert there == here
    assert len(copies) == 1


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", of_brokers("kafka-4.3.0-healthy", "kafka-4.3.0-unclean", "kafka-0.10.2.2-hw-divergence"))
def test_real_logs_are_told_alike(
    name: str, mixed: bool, archives: Path, tmp_path: Path, copies: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(archives / f"{name}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    sizes: Counter[tuple[str, int]] = Counter()
    for plan in gather([str(tmp_path)], ScanOptions()).replicas:
        sizes[plan.context.topic, plan.context.partition] += plan.bytes
    small = sorted(sizes.values())[: len(sizes) // 2] if mixed else [*sizes.values()]
    most = max(small, default=0)
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")  # so that threads fold what is not small
    monkeypatch.setattr(local, "is_small", lambda plans: sum(plan.bytes for plan in plans) <= most)
    seen: list[tuple[int, int]] = []
    whole = text(local.scan([str(tmp_path)], ScanOptions(jobs=1)))
    again = local.scan([str(tmp_path)], ScanOptions(jobs=3), lambda done, total: seen.append((done, total)))
    assert text(again) == whole
    done = [so_far for so_far, _ in seen]
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1] == again.totals.bytes_total
    by_copies = sum(size <= most for size in sizes.values())
    assert copies == ([by_copies] if by_copies else [])
    assert (by_copies < len(sizes)) == mixed


def test_archives_are_read_by_this_process(archives: Path, copies: Counts) -> None:
    local.scan([str(archives / "kafka-4.3.0-unclean.tar.xz")], ScanOptions(jobs=2))
    assert copies == []


def test_what_cannot_be_read_and_what_changes_is_told_alike(
    tmp_path: Path, archives: Path, copies: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(archives / "kafka-4.3.0-healthy.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    logs = sorted(tmp_path.rglob("*.log"))
    logs[0].unlink()
    logs[0].symlink_to("nowhere")
    results = []
    for jobs in (1, 2):
        os.utime(logs[-1], ns=(0, 0))
        inputs = gather([str(tmp_path)], ScanOptions(jobs=jobs))
        os.utime(logs[-1], ns=(1, 1))
        results.append(text(local.scan_inputs(inputs, ScanOptions(jobs=jobs))))
    assert results[0] == results[1]
    assert "CHANGED" in results[0]
    assert copies


def test_snapshots_are_compared_alike(tmp_path: Path, archives: Path, copies: Counts) -> None:
    for name, archive in ((OLD, "kafka-4.3.0-healthy"), (NEW, "kafka-4.3.0-healthy")):
        with tarfile.open(archives / f"{archive}.tar.xz") as packed:
            packed.extractall(tmp_path / name, filter="data")
    log = max((tmp_path / NEW).rglob("*.log"), key=lambda path: path.stat().st_size)
    log.write_bytes(log.read_bytes()[:-100])
    here, there = (snapshots.changes(str(tmp_path), ScanOptions(jobs=jobs)).result for jobs in (1, 2))
    assert said(here) == said(there)
    assert here.changes
    assert len(copies) == 1
