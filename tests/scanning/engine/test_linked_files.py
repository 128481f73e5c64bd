"""Tasks follow the same links as the local engine: the source that they receive lists the paths that links may lead to."""

import os
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.export.facts.read import read_task
from kafka_forensics.export.facts.rows import FactQuery
from kafka_forensics.export.facts.splits import plan_tasks
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.scanning.engine import local
from tests.scanning.engine import task_engine
from tests.support.brokers import Brokers, healthy
from tests.support.segments import segment_file

SEGMENT = segment_file(29)


@pytest.fixture
def linked(tmp_path: Path) -> Brokers:
    """Links into the folder `store`: broker 2's partition directory, and the middle segment of broker 3."""
    brokers = healthy(tmp_path / "brokers")
    store = tmp_path / "store"
    store.mkdir()
    (brokers.log_dir(2) / "t-0").rename(store / "moved")
    (brokers.log_dir(2) / "t-0").symlink_to(store / "moved")
    (brokers.log_dir(3) / "t-0" / SEGMENT).rename(store / "segment")
    (brokers.log_dir(3) / "t-0" / SEGMENT).symlink_to("../../../store/segment")
    return brokers


def text(result: ScanResult) -> str:
    return "".join(json_document.document(result))


@pytest.mark.parametrize("store_is_given", [True, False])
def test_tasks_follow_links(linked: Brokers, tmp_path: Path, store_is_given: bool) -> None:
    store = [str(tmp_path / "store")] if store_is_given else []
    paths = [*map(str, linked.log_dirs), *store]
    task_result = task_engine.scan(paths, ScanOptions(), split_bytes=2048, work_bytes=10_000, seed=1)
    expected = local.scan(paths, ScanOptions())
    assert text(task_result) == text(expected)
    assert len(expected.incomplete) == (0 if store else 2)
    reads = [replica.read.value for partition in expected.partitions for replica in partition.replicas]
    assert reads == ["whole", *(["whole"] * 2 if store else ["none", "part"])]


def test_a_link_to_a_log_of_another_broker_is_refused(tmp_path: Path) -> None:
    path = healthy(tmp_path).log_dir(3) / "t-0" / SEGMENT
    path.unlink()
    path.symlink_to(f"../../b1/t-0/{SEGMENT}")
    paths = [str(tmp_path)]
    task_result = task_engine.scan(paths, ScanOptions(), split_bytes=2048, work_bytes=10_000, seed=1)
    assert text(task_result) == text(local.scan(paths, ScanOptions()))
    assert [incomplete.path for incomplete in task_result.incomplete] == [str(path)]


@pytest.mark.parametrize("fact", ["batches", "spans", "index_entries"])
def test_facts_read_through_links_are_those_of_the_files(linked: Brokers, tmp_path: Path, fact: str) -> None:
    query = FactQuery(fact, tuple(FACTS[fact].schema.names))
    paths = [*map(str, linked.log_dirs), str(tmp_path / "store")]

    def rows() -> list[str]:
        return [repr(row) for task in plan_tasks(paths, query) for batch in read_task(task, query) for row in batch.to_pylist()]

    through_links = rows()
    for link in (linked.log_dir(2) / "t-0", linked.log_dir(3) / "t-0" / SEGMENT):
        target = os.path.realpath(link)
        link.unlink()
        Path(target).rename(link)
    paths.pop()
    assert sorted(rows()) == sorted(through_links)
