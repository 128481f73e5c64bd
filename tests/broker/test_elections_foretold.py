"""Random elections and restarts of real brokers: who leads, where followers cut and what is lost is what `plan` said before."""

from dataclasses import dataclass

import pytest

from kafka_forensics.questions.plan.planning import Planned
from lab.elections import FORCE, TOPICS, Held, Round
from lab.settings import LOOPBACK
from tests.broker.conftest import ROUNDS
from tests.support.election_outcomes import BROKERS, Outcome, foretold, foretold_leaders, outcome, plan_of

pytestmark = pytest.mark.broker

ELECTIONS = [(number, topic) for number in range(ROUNDS) for topic in TOPICS]


@dataclass(frozen=True)
class Election:
    """One topic in one round: what was planned on the copies, and what came of it."""

    done: Round
    planned: Planned
    real: Outcome


@pytest.fixture(scope="module", name="seen")
def plans_and_outcomes(elections: Held) -> dict[tuple[int, str], Election]:
    assert len(elections.rounds) == ROUNDS
    rounds = {(number, topic): (elections.rounds[number], topic) for number, topic in ELECTIONS}
    return {key: Election(done, plan_of(done, topic), outcome(done, topic)) for key, (done, topic) in rounds.items()}


@pytest.mark.parametrize("which", ELECTIONS, ids=lambda which: f"{which[1]}, round {which[0]}")
def test_an_election_goes_as_planned(seen: dict[tuple[int, str], Election], which: tuple[int, str]) -> None:
    one = seen[which]
    leaders = tuple(each.leader for each in foretold_leaders(one.planned, one.done.steps))
    assert leaders == one.real.leaders
    assert foretold(one.planned, leaders) == one.real


@pytest.mark.parametrize("which", ELECTIONS, ids=lambda which: f"{which[1]}, round {which[0]}")
def test_the_steps_say_whether_the_first_to_start_must_be_forced(
    seen: dict[tuple[int, str], Election], which: tuple[int, str]
) -> None:
    """All others are down, as the steps want those to be that could be elected in its place. Where they say that any order will do,
    somebody leads once all are there, not always the first alone."""
    one = seen[which]
    first, control = one.done.steps[0], one.planned.given.control
    candidate = one.planned.candidate(first)
    assert candidate is not None
    assert control is not None
    steps = one.planned.steps(candidate)
    if steps.any_order:
        assert one.real.leaders[-1] in BROKERS
    else:
        by_itself = not steps.unclean or bool(control.unclean_enabled)
        assert one.real.leaders[0] == (first if by_itself else -1)


@pytest.mark.parametrize("which", ELECTIONS, ids=lambda which: f"{which[1]}, round {which[0]}")
def test_brokers_say_that_they_cut_there(seen: dict[tuple[int, str], Election], which: tuple[int, str]) -> None:
    """Their own log names every cut that takes something away, and no other."""
    one, topic = seen[which], which[1]
    ends = {each.broker: each.log_end_offset for each in one.planned.given.replicas}
    expected = {broker: cut for broker, cut in one.real.cuts.items() if cut < ends[broker]}
    assert {broker: one.done.truncated[broker, topic] for broker in BROKERS if (broker, topic) in one.done.truncated} == expected


def test_there_were_enough_elections_of_every_kind(seen: dict[tuple[int, str], Election]) -> None:
    assert len(seen) >= 20
    kinds = {each.kind for one in seen.values() for each in foretold_leaders(one.planned, one.done.steps)}
    assert kinds >= {"elr", "last-known-leader", "unclean"}
    assert sum(any(one.real.lost.values()) for one in seen.values()) >= 8
    assert sum(bool(one.done.killed) for one in seen.values()) >= 16
    assert sum(one.real.leaders[one.done.steps.index(FORCE) - 1] < 0 for one in seen.values()) >= 4


def test_nodes_listen_on_loopback_alone(elections: Held) -> None:
    assert elections.listens == {LOOPBACK}
