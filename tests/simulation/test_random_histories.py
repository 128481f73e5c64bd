"""Random histories in memory: planner, played elections and records' ids agree on every one; a broken rule makes them differ."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafka_forensics.replication import acks, elections, epochs
from kafka_forensics.replication import elections as isr
from kafka_forensics.replication import epochs as truncation
from kafka_forensics.replication.epochs import UNDEFINED, EpochEndOffset, Log, Truncated, by_fetch, end_offset_for
from kafka_forensics.replication.planner import planner
from kafka_forensics.replication.watermarks import LeaderState
from kafka_forensics.simulation import actions, control
from tests.support import history_expected, history_truth
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

CHUNK = 2_000
"""Histories of a test; the nightly run has 50 such tests."""
RED_WITHIN = 500
"""A broken rule must show in one of the first so many histories."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        chunks = 50 if metafunc.config.getoption("--nightly") else 1
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


def imported(module: ModuleType) -> set[str]:
    """Names of all that a module imports."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    names = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return names | {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_the_truth_of_ids_uses_no_rule_of_replication() -> None:
    """Nothing of the package at all, where it says what is lost; the simulator's values, where it says what must be found."""
    assert imported(history_truth) == {"collections.abc", "itertools", "typing"}
    of_the_package = {name for name in imported(history_expected) if name.startswith("kafka_forensics")}
    assert of_the_package == {"kafka_forensics.simulation.cluster", "kafka_forensics.simulation.transactions"}


def ends_shifted(by: int) -> Callable[..., EpochEndOffset]:
    """A leader that names the end of an earlier epoch wrongly."""

    def answer(entries: Any, leader_epoch: int, log_end_offset: int) -> EpochEndOffset:
        right = end_offset_for(entries, leader_epoch, log_end_offset)
        if right == UNDEFINED or right.end_offset == log_end_offset:
            return right
        return EpochEndOffset(right.leader_epoch, max(right.end_offset + by, 0))

    return answer


def asks_once(follower: Log, leader: Log) -> Truncated:
    """A follower that is content with the first answer."""
    done = by_fetch(follower, leader)
    return Truncated(done.questions[0].truncation_offset, done.questions[:1]) if len(done.questions) > 1 else done


def planned_once(
    follower: Any, follower_end: int, leader: Any, leader_end: int, *, follower_high_watermark: int | None = None
) -> int:
    """The same, in the planner."""
    answer = end_offset_for(leader, follower[-1].leader_epoch, leader_end) if follower else UNDEFINED
    return min(follower_end, (follower_high_watermark or 0) if answer == UNDEFINED else answer.end_offset)


def anyone(given: elections.Candidates, *, unclean: bool = False, preferred: bool = False) -> elections.Elected:
    """A controller that takes everybody who is alive for being in sync."""
    return elections.elect(replace(given, isr=given.alive or given.isr), unclean=unclean, preferred=preferred)


def own_end(state: LeaderState) -> LeaderState:
    """A leader that waits for nobody."""
    return replace(state, high_watermark=state.log_end_offset)


ONCE = {**actions._RULES, "kip-320": asks_once}
KIP_101 = {**actions._RULES, "kip-320": truncation.by_kip_101}
MUTANTS: dict[str, list[tuple[Any, str, Any]]] = {
    "an epoch ends one too late, in all": [
        (epochs, "end_offset_for", ends_shifted(1)),
        (truncation, "end_offset_for", ends_shifted(1)),
    ],
    "an epoch ends one too early, in all": [
        (epochs, "end_offset_for", ends_shifted(-1)),
        (truncation, "end_offset_for", ends_shifted(-1)),
    ],
    "an epoch ends one too late, in plans": [(epochs, "end_offset_for", ends_shifted(1))],
    "an epoch ends one too late, in brokers": [(truncation, "end_offset_for", ends_shifted(1))],
    "followers skip their step": [(actions, "truncate", lambda *_: None)],
    "followers ask once": [(actions, "_RULES", ONCE)],
    "followers ask once, in plans": [(epochs, "truncation_offset", planned_once)],
    "followers of KIP-101": [(actions, "_RULES", KIP_101)],
    "followers cut to the leader's end, in plans": [
        (planner, "high_watermark_truncation", lambda end, _, led: (min(end, led), False))
    ],
    "leaders begin no epoch": [(actions, "assign_epoch", lambda *_: None)],
    "differing records count as kept": [(planner._Planning, "_differing", lambda *_: ())],
    "anyone is elected": [(control, "elect", anyone)],
    "the watermark waits for nobody": [(actions, "raised", own_end)],
    "followers join the ISR at once": [(isr, "may_join", lambda *_: True)],
    "acks=all waits for nobody": [(acks, "after_append", lambda *_: acks.ProduceResponse.ACKNOWLEDGED)],
}
"""A rule that is broken → what is put in its place."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name, wrong in MUTANTS[mutant]:
        monkeypatch.setattr(place, name, wrong)
    assert any(all_wrongs(RED_WITHIN)), "nothing went red"


def all_wrongs(histories: int) -> Iterator[str]:
    """What is wrong in the first histories."""
    for seed in range(histories):
        yield from wrongs(random_history(seed), Counter())
