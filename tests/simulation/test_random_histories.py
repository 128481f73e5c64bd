"""Random histories in memory: planner, simulated elections and record ids agree."""

from collections import Counter

import pytest

from tests.simulation.checks import disagreements
from tests.simulation.random_histories import random_history

CHUNK = 1_000
"""Histories of a test; the nightly run has 100 such tests."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        chunks = 100 if metafunc.config.getoption("--nightly") else 1
        metafunc.parametrize("first_seed", range(0, chunks * CHUNK, CHUNK))


def test_planner_and_simulated_elections_agree_with_record_ids(first_seed: int) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + CHUNK):
        history = random_history(seed)
        assert list(disagreements(history, counted)) == [], f"seed {seed}"
        counted["gentle"] += history.is_gentle
    assert counted["forked"] > CHUNK // 10
    assert counted["costly elections"] > CHUNK // 2
    assert counted["gentle"] > CHUNK // 20
    # A record that no log has is in no plan, because no election can lose it.
    assert CHUNK // 10 < counted["lost without a trace"] < CHUNK // 2


def test_a_seed_determines_its_history() -> None:
    for seed in range(20):
        first, second = random_history(seed), random_history(seed)
        assert first == second
        assert first.actions
    assert random_history(1).actions != random_history(2).actions
