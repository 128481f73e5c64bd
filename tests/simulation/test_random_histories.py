"""Random histories in memory: planner, played elections and records' ids agree on every one."""

from collections import Counter

import pytest

from tests.support.history_checks import logs_of, wrongs
from tests.support.random_histories import (
    ACTIONS,
    FEATURES,
    MAX_EPOCHS,
    MAX_RECORDS,
    MAX_REPLICAS,
    PROTOCOLS_DRAWN,
    random_history,
)

CHUNK = 1_000
"""Histories of a test; the nightly run has 100 such tests."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        chunks = 100 if metafunc.config.getoption("--nightly") else 1
        metafunc.parametrize("first_seed", range(0, chunks * CHUNK, CHUNK))


def test_planner_and_played_elections_agree_with_the_ids(first_seed: int) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + CHUNK):
        history = random_history(seed)
        assert list(wrongs(history, counted)) == [], f"seed {seed}"
        counted["gentle"] += history.is_gentle
    assert counted["forked"] > CHUNK // 10
    assert counted["costly elections"] > CHUNK // 2
    assert counted["gentle"] > CHUNK // 20
    # What no log holds any more is in no plan: nothing is left that an election could lose.
    assert CHUNK // 10 < counted["lost without a trace"] < CHUNK // 2


def test_a_history_follows_from_its_seed() -> None:
    for seed in range(20):
        first, second = random_history(seed), random_history(seed)
        assert first == second
        assert first.actions
    assert random_history(1).actions != random_history(2).actions


def test_histories_keep_to_their_limits_and_reach_them() -> None:
    seen: Counter[str] = Counter()
    for seed in range(300):
        history = random_history(seed)
        assert len(history.actions) <= ACTIONS + 1
        assert history.cluster.next_id <= MAX_RECORDS
        for partition in history.cluster.partitions.values():
            assert partition.leader_epoch < MAX_EPOCHS
        seen.update(history.features)
        seen.update([history.cluster.protocol, f"{len(history.cluster.brokers)} brokers"])
        seen["full"] += history.cluster.next_id == MAX_RECORDS
        seen["transactions that ended"] += any(
            one < 0 for each in history.cluster.partitions.values() for log in logs_of(each).values() for _, one in log
        )
    sizes = {f"{count} brokers" for count in range(2, MAX_REPLICAS + 1)}
    assert set(seen) == {*FEATURES, *PROTOCOLS_DRAWN, *sizes, "full", "transactions that ended"}
    assert min(seen.values()) > 20
