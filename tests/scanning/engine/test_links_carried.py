"""Links are followed by workers as they were where the work was cut: by the paths they lead to, which travel with the source."""

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
    """Broker 2's partition is a link to a disk beside it, and broker 3's middle segment one to another place there."""
    brokers = healthy(tmp_path / "brokers")
    store = tmp_path / "store"
    store.mkdir()
    (brokers.log_dir(2) / "t-0").rename(store / "moved")
    (brokers.log_dir(2) / "t-0").symlink_to(store / "moved")
    (brokers.log_dir(3) / "t-0" / SEGMENT).rename(store / "kept")
    (brokers.log_dir(3) / "t-0" / SEGMENT).symlink_to("../../../store/kept")
    return brokers


def text(result: ScanResult) -> str:
    return "".join(json_document.document(result))


@pytest.mark.parametrize("given", ["all", "not the store"])
def test_tasks_follow_links(linked: Brokers, tmp_path: Path, given: str) -> None:
    store = [str(tmp_path / "store")] if given == "all" else []
    paths = [*map(str, linked.log_dirs), *store]
    carried = task_engine.scan(paths, ScanOptions(), split_bytes=2048, work_bytes=10_000, seed=1)
    wanted = local.scan(paths, ScanOptions())
    assert text(carried) == text(wanted)
    assert len(wanted.incomplete) == (0 if store else 2)
    told = [replica.read.value for partition in wanted.partitions for replica in partition.replicas]
    assert told == ["whole", *(["whole"] * 2 if store else ["none", "part"])]


def test_a_log_that_is_read_elsewhere_is_refused_there_too(tmp_path: Path) -> None:
    place = healthy(tmp_path).log_dir(3) / "t-0" / SEGMENT
    place.unlink()
    place.symlink_to(f"../../b1/t-0/{SEGMENT}")
    paths = [str(tmp_path)]
    carried = task_engine.scan(paths, ScanOptions(), split_bytes=2048, work_bytes=10_000, seed=1)
    assert text(carried) == text(local.scan(paths, ScanOptions()))
    assert [incomplete.path for incomplete in carried.incomplete] == [str(place)]


@pytest.mark.parametrize("fact", ["batches", "spans", "index_entries"])
def test_tasks_of_facts_read_through_links(linked: Brokers, tmp_path: Path, fact: str) -> None:
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
