"""Keys of compacted partitions over time in separate tasks: the questions, and logs that are missing when they are read."""

import random
from pathlib import Path
from typing import NoReturn

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.changes.snapshots import changes
from kafka_forensics.scanning.engine.key_tasks import KeyQuestionRun, read_keys
from kafka_forensics.scanning.engine.serialization import pack
from kafka_forensics.scanning.folding.keys.question import KeyAnswer
from kafka_forensics.scanning.judging import compaction
from tests.scanning.engine import task_changes, task_engine
from tests.scanning.engine.task_changes import said, with_keys_apart
from tests.support.brokers import DIRECTORY, put_compacted
from tests.support.logs import CLEANED, keyed_history
from tests.support.snapshot_trees import NEW, OLD

BROKERS = (1, 2, 3)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two snapshots whose replicas differ among each other and over time: broker 2 lacked a record, then 1 and 3 lack one."""
    story = keyed_history()
    older = {broker: story.left({0} if broker == 2 else (), roll=CLEANED) for broker in BROKERS}
    newer = {broker: story.left({0} if broker == 2 else {0, 1}, roll=CLEANED) for broker in BROKERS}
    put_compacted(tmp_path / OLD, older, dict.fromkeys(BROKERS, CLEANED))
    put_compacted(tmp_path / NEW, newer, dict.fromkeys(BROKERS, CLEANED))
    return tmp_path


def bytes_of(root: Path, name: str, broker: int) -> int:
    directory = next(root.glob(f"{name}/*{broker}/{DIRECTORY}"))
    return sum(file.stat().st_size for file in directory.glob("*.log"))


def test_all_questions_are_asked_in_one_round(root: Path) -> None:
    assert [finding.place.broker for finding in with_keys_apart(str(root), ScanOptions()).findings] == [1, 3]
    _, key_questions = task_changes.changes(str(root), ScanOptions(), deferred_keys_bytes=0)
    within = [sorted(keyed_log.plan for keyed_log in question.logs.values()) for question in key_questions]
    assert within == [[0, 1, 2], [3, 4, 5], [0, 3], [2, 5]]  # broker 2's log is unchanged


class ReadHereError(Exception):
    """Keys were read where the partition is judged."""


def refuse(_: list[str]) -> NoReturn:
    raise ReadHereError


def test_only_large_logs_are_read_separately(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = said(changes(str(root), ScanOptions()).result)
    least = min(bytes_of(root, OLD, broker) + bytes_of(root, NEW, broker) for broker in (1, 3))
    monkeypatch.setattr(compaction, "KeyRuns", refuse)
    result, key_questions = task_changes.changes(str(root), ScanOptions(), deferred_keys_bytes=least)
    assert (said(result), len(key_questions)) == (here, 4)
    with pytest.raises(ReadHereError):
        task_changes.changes(str(root), ScanOptions(), deferred_keys_bytes=least + 1)


def test_a_log_missing_when_its_keys_are_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = min(next(root.glob(f"{NEW}/*3/{DIRECTORY}")).glob("*.log"))
    right = task_engine.answered
    raised: list[str] = []

    def answered(common: bytes, under_way: KeyQuestionRun, work_bytes: int, order: random.Random) -> list[KeyAnswer]:
        aside = gone.rename(root.parent / "aside")
        for work in under_way.works(work_bytes):
            try:
                list(read_keys(common, pack(work), pack(under_way.decided()[work.log]), strict=True))
            except SourceError as error:
                raised.append(error.path)
        key_answers = right(common, under_way, work_bytes, order)
        aside.rename(gone)
        return key_answers

    monkeypatch.setattr(task_changes, "answered", answered)
    result, _ = task_changes.changes(str(root), ScanOptions(), deferred_keys_bytes=0)
    assert [Path(path).name for path in raised] == [gone.name] * 2, "within the newer snapshot, and between the two"
    assert [Path(incomplete.path) for incomplete in result.incomplete] == [gone]
    assert [Path(incomplete.path) for incomplete in result.snapshots[NEW].incomplete] == [gone]
    assert [finding.place.broker for finding in result.findings] == [1], "nothing is claimed of what was not read"
