"""Random histories written as log directories: scan, plan and the list of transactions find what happened, and nothing else."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from tests.support.history_scans import wrongs_on_disk
from tests.support.random_histories import random_history

CHUNK = 50
"""Histories of a test; the nightly run has 20 such tests."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        chunks = 20 if metafunc.config.getoption("--nightly") else 1
        metafunc.parametrize("first_seed", range(0, chunks * CHUNK, CHUNK))


def test_scan_and_plan_find_what_the_simulator_knows(first_seed: int, tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + CHUNK):
        assert list(all_wrongs(seed, tmp_path, counted)) == [], f"seed {seed}"
    assert counted["forked"] > 0
    assert counted["transactions listed"] > 0
    assert counted["open transactions"] > 0
    # A loss that no watermark reaches to leaves no trace in any file.
    assert counted["records lost without a trace"] > counted["records lost with a trace"]


@pytest.mark.parametrize("seed", [375])
def test_histories_in_which_they_once_disagreed(seed: int, tmp_path: Path) -> None:
    """What a marker alone proves committed, a plan counted and a scan did not tell (375)."""
    counted = Counter[str]()
    assert list(all_wrongs(seed, tmp_path, counted)) == []
    assert counted["members short of a marker"] > 0


def all_wrongs(seed: int, folder: Path, counted: Counter[str]) -> Iterator[str]:
    """What is wrong in one history, whose directories are removed again."""
    root = folder / str(seed)
    root.mkdir()
    yield from wrongs_on_disk(random_history(seed), root, counted)
    rmtree(root)
