"""Many directories listed by copies of the process: what this process lists, whatever lies in them."""

import os
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from kafka_forensics.parsers.log_dir import discover
from kafka_forensics.processes import Task, can_fork, forked
from kafka_forensics.storage import listings
from kafka_forensics.storage.local import LocalSource, holding
from kafka_forensics.storage.source import EntryKind
from tests.storage.trees import make_tree

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes are copied on Linux alone")


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every directory listed by a copy; how many tasks there were."""
    tasks: list[int] = []

    def counted(task: Task, count: int, jobs: int) -> Generator[bytes, None, None]:
        tasks.append(count)
        return forked(task, count, jobs)

    monkeypatch.setattr(listings, "forked", counted)
    monkeypatch.setattr(listings, "MANY", 1)
    monkeypatch.setattr(listings, "TOGETHER", 2)
    return tasks


def odd_tree(root: Path) -> Path:
    """A broker with directories of every kind."""
    make_tree(root)
    broker = root / "broker-1"
    for name in ("linked-0", "piped-0", "b\udcff-0", "links-0"):
        (broker / name).mkdir()
        (broker / name / f"{0:020d}.log").write_bytes(b"x")
    os.mkfifo(broker / "piped-0" / "pipe")
    (broker / "linked-0" / f"{5:020d}.log").symlink_to("../orders-0/00000000000000000000.log")
    (broker / "links-1").symlink_to("links-0")
    (broker / "nowhere-0").symlink_to("/nowhere")
    os.utime(broker / "piped-0" / f"{0:020d}.log", ns=(-5, -5))
    return broker


def test_a_search_finds_the_same(tmp_path: Path, counts: list[int]) -> None:
    broker = odd_tree(tmp_path)
    for root in (broker, tmp_path):
        here, there = LocalSource(str(root)), LocalSource(str(root))
        assert discover(there, jobs=3) == discover(here)
        assert there.roots_used == here.roots_used
    assert counts
    assert max(counts) > 2


def test_a_directory_that_is_gone_is_left_to_its_source(tmp_path: Path, counts: list[int]) -> None:
    odd_tree(tmp_path)
    source = LocalSource(str(tmp_path))
    paths = [entry.path for entry in source.list("broker-1") if entry.kind is EntryKind.DIRECTORY]
    with closing(listings.listings(source, "broker-1", [*paths, "broker-1/gone-0"], 2)) as listed:
        every = list(listed)
    assert every[-1] is None
    assert every[paths.index("broker-1/linked-0")] is None
    plain = [(path, entries) for path, entries in zip(paths, every, strict=False) if entries is not None]
    assert len(plain) >= 5
    assert all(entries == source.list(path) for path, entries in plain)


def test_one_job_asks_the_source(tmp_path: Path, counts: list[int]) -> None:
    odd_tree(tmp_path)
    assert list(listings.listings(LocalSource(str(tmp_path)), "", ["broker-1"], 1)) == [None]
    assert counts == []


def test_a_held_directory_is_what_it_was(tmp_path: Path) -> None:
    odd_tree(tmp_path)
    source, broker = LocalSource(str(tmp_path)), tmp_path / "broker-1"
    before = len(os.listdir("/proc/self/fd"))
    with holding(source, "broker-1/orders-0"), holding(source, "broker-1/orders-0"):
        expected = source.list("broker-1/orders-0")
        (broker / "orders-0").rename(tmp_path / "renamed")
        (broker / "orders-0").mkdir()
        with source.open("broker-1/orders-0/leader-epoch-checkpoint") as file:
            assert file.read_at(0, 9) == b"0\n1\n0 0\n"
        assert source.stat(expected[0].path) == expected[0]
    assert source.list("broker-1/orders-0") == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_cannot_be_held_is_asked_for_as_ever(tmp_path: Path) -> None:
    broker = odd_tree(tmp_path)
    source = LocalSource(str(tmp_path))
    with holding(source, "broker-1/links-1"), holding(source, "broker-1/gone-0"):
        assert [entry.name for entry in source.list("broker-1/links-1")] == [f"{0:020d}.log"]
    with holding(source, "broker-1/linked-0"), source.open(f"broker-1/linked-0/{5:020d}.log") as file:
        assert file.size_in_bytes == (broker / "orders-0" / f"{0:020d}.log").stat().st_size
