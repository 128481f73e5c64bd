"""Changes of compacted partitions whose keys are read in separate tasks: the questions, and logs deleted meanwhile."""

from pathlib import Path
from typing import NoReturn

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.changes.snapshots import changes
from kafka_forensics.scanning.judging import compaction
from tests.scanning.engine import task_changes, task_engine
from tests.scanning.engine.task_changes import changes_with_key_tasks, comparable
from tests.support.brokers import DIRECTORY, put_compacted
from tests.support.logs import CLEANED, keyed_history
from tests.support.snapshot_trees import NEW, OLD

BROKERS = (1, 2, 3)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two snapshots: broker 2 lacks a record in both, brokers 1 and 3 lack two in the newer one."""
    history = keyed_history()
    older = {broker: history.left({0} if broker == 2 else (), roll=CLEANED) for broker in BROKERS}
    newer = {broker: history.left({0} if broker == 2 else {0, 1}, roll=CLEANED) for broker in BROKERS}
    put_compacted(tmp_path / OLD, older, dict.fromkeys(BROKERS, CLEANED))
    put_compacted(tmp_path / NEW, newer, dict.fromkeys(BROKERS, CLEANED))
    return tmp_path


def bytes_of(root: Path, name: str, broker: int) -> int:
    directory = next(root.glob(f"{name}/*{broker}/{DIRECTORY}"))
    return sum(file.stat().st_size for file in directory.glob("*.log"))


def test_key_questions_within_and_between_snapshots_are_asked_together(root: Path) -> None:
    assert [finding.place.broker for finding in changes_with_key_tasks(str(root), ScanOptions()).findings] == [1, 3]
    _, key_questions = task_changes.changes(str(root), ScanOptions(), deferred_keys_bytes=0)
    plans = [sorted(keyed_log.plan for keyed_log in question.logs.values()) for question in key_questions]
    assert plans == [[0, 1, 2], [3, 4, 5], [0, 3], [2, 5]]  # broker 2's log is unchanged


class ReadLocallyError(Exception):
    """The task that judges the partition read keys."""


def refuse(_: list[str]) -> NoReturn:
    raise ReadLocallyError


def test_only_keys_of_large_logs_are_read_in_separate_tasks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_result = comparable(changes(str(root), ScanOptions()).result)
    least = min(bytes_of(root, OLD, broker) + bytes_of(root, NEW, broker) for broker in (1, 3))
    monkeypatch.setattr(compaction, "KeyRuns", refuse)
    result, key_questions = task_changes.changes(str(root), ScanOptions(), deferred_keys_bytes=least)
    assert (comparable(result), len(key_questions)) == (local_result, 4)
    with pytest.raises(ReadLocallyError):
        task_changes.changes(str(root), ScanOptions(), deferred_keys_bytes=least + 1)


def test_a_log_that_is_deleted_before_its_keys_are_read_is_incomplete(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = min(next(root.glob(f"{NEW}/*3/{DIRECTORY}")).glob("*.log"))
    raised: list[str] = []
    monkeypatch.setattr(task_changes, "answered", task_engine.answered_without(log, root.parent / "aside", raised))
    result, _ = task_changes.changes(str(root), ScanOptions(), deferred_keys_bytes=0)
    assert [Path(path).name for path in raised] == [log.name] * 2, "within the newer snapshot, and between the two"
    assert [Path(incomplete.path) for incomplete in result.incomplete] == [log]
    assert [Path(incomplete.path) for incomplete in result.snapshots[NEW].incomplete] == [log]
    assert [finding.place.broker for finding in result.findings] == [1], "a log that was not read has no finding"
