"""Keys of compacted partitions that tasks read, sort and compare give the local engine's answer."""

import tempfile
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given, settings, strategies as st

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.folding.keys.question import DamageEnd
from kafka_forensics.scanning.judging import compaction
from tests.scanning.engine import task_engine
from tests.support.brokers import DIRECTORY, put_compacted, put_differently_cleaned
from tests.support.logs import CLEANED, keyed_history
from tests.support.simulated_cleaners import KnownHistory, Replica, clusters, written


def text(result: ScanResult) -> str:
    return "".join(json_document.document(result))


@given(clusters(), st.integers(0, 99), st.sampled_from([1, 1 << 28]))
@settings(max_examples=40, deadline=None)
def test_generated_clusters_give_the_same_answer(cluster: tuple[KnownHistory, list[Replica]], seed: int, work_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = written(*cluster, Path(folder))
        task_result = task_engine.scan(paths, ScanOptions(), work_bytes=work_bytes, seed=seed, deferred_keys_bytes=0)
        assert text(task_result) == text(local.scan(paths, ScanOptions()))


class ReadLocallyError(Exception):
    """The task that judges the partition read keys."""


def refuse(_: list[str]) -> NoReturn:
    raise ReadLocallyError


def test_only_large_logs_have_key_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = put_differently_cleaned(tmp_path, keyed_history(), {2: {1}})
    paths = [str(path) for path in brokers.log_dirs]
    size = sum(file.stat().st_size for path in brokers.log_dirs for file in path.rglob("*.log"))
    expected = text(local.scan(paths, ScanOptions()))
    assert "COMPACTED_VALUE_DIFFERS" in expected
    monkeypatch.setattr(compaction, "KeyRuns", refuse)
    assert text(task_engine.scan(paths, ScanOptions(), deferred_keys_bytes=size)) == expected
    with pytest.raises(ReadLocallyError):
        task_engine.scan(paths, ScanOptions(), deferred_keys_bytes=size + 1)


@given(st.lists(st.tuples(st.booleans(), st.none() | st.integers(0, 99)), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_the_damage_end_is_the_same_for_any_parts(chunks: list[tuple[bool, int | None]], first_cut: int, second_cut: int) -> None:
    whole = damage(chunks)
    low, high = sorted((first_cut, second_cut))
    left, middle, right = (damage(part) for part in (chunks[:low], chunks[low:high], chunks[high:]))
    middle.merge(right)
    left.merge(middle)
    assert left == whole


def damage(chunks: list[tuple[bool, int | None]]) -> DamageEnd:
    end = DamageEnd()
    for bad, good in chunks:
        end.step(bad=bad, good=good)
    return end


def test_a_log_that_is_deleted_before_its_keys_are_read_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = put_differently_cleaned(tmp_path, keyed_history(), {2: {1}})
    paths = [str(path) for path in brokers.log_dirs]
    log = brokers.file(3, 0)
    raised: list[str] = []
    monkeypatch.setattr(task_engine, "answered", task_engine.answered_without(log, tmp_path / "aside", raised))
    result = task_engine.scan(paths, ScanOptions(), work_bytes=1, deferred_keys_bytes=0)
    assert [Path(path) for path in raised] == [log.relative_to(brokers.log_dir(3))]
    assert [Path(incomplete.path) for incomplete in result.incomplete] == [log]
    differs = next(finding for finding in result.findings if finding.kind == "COMPACTED_VALUE_DIFFERS")
    assert [(record["held_by"], record["not_on"]) for record in differs.evidence["records"]] == [([1], [2])]


def test_topics_of_one_name_have_separate_questions(tmp_path: Path) -> None:
    """Brokers 1 and 2 have one topic, brokers 3 and 4 the other; brokers 2 and 4 lack a record."""
    history = keyed_history()
    logs = {broker: history.left({1} if broker in (2, 4) else (), roll=CLEANED) for broker in (1, 2, 3, 4)}
    brokers = put_compacted(tmp_path, logs, dict.fromkeys(logs, CLEANED))
    for broker in (3, 4):
        metadata = brokers.log_dir(broker) / DIRECTORY / "partition.metadata"
        metadata.write_text(f"version: 0\ntopic_id: {'B' * 21}A\n")
    paths = [str(path) for path in brokers.log_dirs]
    kinds = [finding.kind for finding in task_engine.scan_with_key_tasks(paths, ScanOptions()).findings]
    assert kinds.count("COMPACTED_VALUE_DIFFERS") == 2
    assert "TOPIC_ID_MISMATCH" in kinds
