"""Splits folded ahead in bounded memory give the same bytes for any number of threads and stretches."""

import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_forensics.analysis import bounds
from kafka_forensics.analysis.replica import ReplicaState
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.results import ScanResult
from kafka_forensics.parsers.log import segment
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.folding import fold_split, prefetch, splits
from tests.support.brokers import Brokers, put_replicas
from tests.support.logs import Log

SEGMENTS, PRODUCED_PER_SEGMENT, PRODUCERS = 3, 120, 50


def busy_log() -> Log:
    """Fifty producers, half of them transactional, one in three transactions aborted, two sequence gaps, some left open."""
    log = Log()
    for number in range(SEGMENTS * PRODUCED_PER_SEGMENT):
        if number % PRODUCED_PER_SEGMENT == PRODUCED_PER_SEGMENT - 1:
            log.roll()
        producer = 100 + number * 7 % PRODUCERS
        transactional = producer % 2 == 0
        log.produce(producer, 2, transactional=transactional, skip=5 if number in (150, 301) else 0)
        if transactional and number % 4:
            log.end_transaction(producer, commit=bool(number % 3))
    return log


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    """Two brokers with the log; the second copy has a corrupt batch."""
    log = busy_log()
    made = put_replicas(tmp_path / "brokers", {1: log, 2: log})
    made.flip(2, log.batches[200], 90)
    return made


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, chunks of a few batches, several splits a segment."""
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")
    monkeypatch.setattr(segment, "CHUNK_ROWS", 16)
    monkeypatch.setattr(splits, "SPLIT_BYTES", 24 << 10)


def scan(paths: list[Path], jobs: int) -> ScanResult:
    return local.scan([str(path) for path in paths], ScanOptions(jobs=jobs))


def document(paths: list[Path], jobs: int) -> str:
    return "".join(json_document.document(scan(paths, jobs)))


def count_stretches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the states that are created from now on."""
    states_count = [0]

    class Counted(ReplicaState):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            states_count[0] += 1
            super().__init__(*arguments, **options)

    monkeypatch.setattr(fold_split, "ReplicaState", Counted)
    return states_count


@pytest.mark.parametrize(("bound", "value"), [("STRETCH_PRODUCERS", 3), ("STRETCH_BATCHES", 5)])
def test_small_limits_of_splits_do_not_change_the_answer(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    states_count = count_stretches(monkeypatch)
    expected = document(brokers.log_dirs, 1)
    assert '"kind": "PRODUCER_SEQ_GAP"' in expected
    assert '"kind": "TXN_OPEN"' in expected
    default_count = states_count[0]
    assert default_count > 2 * SEGMENTS
    assert document(brokers.log_dirs, 2) == expected
    monkeypatch.setattr(bounds, bound, value)
    for jobs in (1, 2, 3):
        states_count[0] = 0
        assert document(brokers.log_dirs, jobs) == expected
        assert states_count[0] > 2 * default_count


def test_without_memory_every_split_waits_for_its_turn(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = document(brokers.log_dirs, 1)
    monkeypatch.setattr(prefetch, "LARGE", 0)
    monkeypatch.setattr(prefetch, "MAX_WAITING_BYTES", 0)
    assert document(brokers.log_dirs, 3) == expected


@pytest.mark.parametrize("jobs", [1, 2])
def test_forgotten_producers_add_no_finding_with_any_number_of_threads(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    whole = scan(brokers.log_dirs, 1)
    kinds_and_places = {(finding.kind, finding.place) for finding in whole.findings}
    for name, value in (("STRETCH_PRODUCERS", 3), ("MAX_PRODUCERS", 24), ("SETTLED_ABOVE", 0), ("MAX_ENDINGS", 2)):
        monkeypatch.setattr(bounds, name, value)
    result = scan(brokers.log_dirs, jobs)
    assert {(finding.kind, finding.place) for finding in result.findings} < kinds_and_places
    for ours, theirs in zip(result.partitions[0].replicas, whole.partitions[0].replicas, strict=True):
        assert (ours.transactions, ours.last_stable_offset) == (theirs.transactions, theirs.last_stable_offset)
    lost = kinds_and_places - {(finding.kind, finding.place) for finding in result.findings}
    assert {kind for kind, _ in lost} == {"PRODUCER_SEQ_GAP"}
    assert "".join(json_document.document(result)) == document(brokers.log_dirs, 3 - jobs)


@pytest.mark.parametrize("most_bytes", [64 << 20, 1])
def test_unseekable_archives_are_folded_ahead(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    archive = tmp_path / "brokers.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in reversed(brokers.log_dirs):
            tar.add(path, path.name)
    expected = document([archive], 1)
    assert '"kind": "PRODUCER_SEQ_GAP"' in expected
    monkeypatch.setattr(bounds, "STRETCH_PRODUCERS", 3)
    monkeypatch.setattr(local, "LARGE", 0)
    monkeypatch.setattr(local, "MAX_WAITING_BYTES", most_bytes)
    for jobs in (1, 2):
        assert document([archive], jobs) == expected


def test_a_failure_in_the_merge_releases_waiting_threads(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "LARGE", 0)
    monkeypatch.setattr(prefetch, "MAX_WAITING_BYTES", 0)
    monkeypatch.setattr(ReplicaState, "merge", Mock(side_effect=RuntimeError("on purpose")))
    with pytest.raises(RuntimeError, match="on purpose"):
        scan(brokers.log_dirs, 2)


def test_a_large_stretch_waits_for_memory_or_its_turn() -> None:
    budget = prefetch.MemoryBudget()
    budget.wait_for_memory(0, prefetch.MAX_WAITING_BYTES)
    budget.wait_for_memory(1, prefetch.LARGE - 1)
    passed = threading.Event()

    def later() -> None:
        budget.wait_for_memory(1, prefetch.LARGE)
        passed.set()

    thread = threading.Thread(target=later)
    thread.start()
    assert not passed.wait(0.05)
    budget.start_merging(1)
    assert passed.wait(5)
    thread.join()


def test_threads_start_once_jobs_rises() -> None:
    """With one job the merging thread folds the splits."""
    folded: list[tuple[int, bool]] = []
    jobs = iter([1, 1, 2, 2])

    def fold(split: Any, _pause: object) -> Iterator[Any]:
        folded.append((split, threading.current_thread() is threading.main_thread()))
        yield split

    split_sequence: Any = iter([0, None, 1, 2, None, 3])
    answers: Iterator[Any] = prefetch.in_order(fold, split_sequence, lambda: next(jobs), lambda _split: False)
    assert next(answers) == 0
    assert folded == [(0, True)]
    assert list(answers) == [None, 1, 2, None, 3]
    assert sorted(folded) == [(0, True), (1, True), (2, False), (3, False)]
