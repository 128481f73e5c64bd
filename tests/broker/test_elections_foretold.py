"""Random elections and restarts of real brokers: leaders, truncations and losses are those that `plan` forecast."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
from msgspec.structs import replace

from kafka_forensics.cli.main import outcome as command_outcome
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import Planned, PlanOptions, make_plans
from kafka_forensics.questions.verify import ExecutedPlan, Outcome as Kept, read_promises, verify
from kafka_forensics.replication.elections import ElectionInput, ElectionResult, elect
from lab.elections import FORCE, TOPICS, ElectionRounds, Round, make_elections
from lab.fault_base import read_log
from lab.settings import LOOPBACK

pytestmark = pytest.mark.broker

SEED, ROUNDS = 7, 4
BROKERS = (1, 2, 3)
ELECTIONS = [(number, topic) for number in range(ROUNDS) for topic in TOPICS]


@dataclass(frozen=True)
class Outcome:
    """The result of an election: the leader after each step, truncations of the other replicas, and the records lost."""

    leaders: tuple[int, ...]
    cuts: Mapping[int, int]
    """Follower → the first offset at which its log changed; its old log end if nothing changed."""
    lost: Mapping[int, frozenset[int]]
    """Broker → its offsets that the leader's log lacks or has with other records."""


def records(tree: Path, broker: int, topic: str) -> dict[int, bytes]:
    """Offset → the whole batch with it, of a replica on disk."""
    batches = read_log(tree / f"broker-{broker}" / f"{topic}-0").batches
    return {offset: batch.data for batch in batches for offset in range(batch.base_offset, batch.last_offset + 1)}


def first_change(before: Mapping[int, bytes], after: Mapping[int, bytes]) -> int:
    """The first offset at which a log changed, or its old end."""
    changed = [offset for offset in before if before[offset] != after.get(offset)]
    return min(changed, default=max(before) + 1)


def outcome(done: Round, topic: str) -> Outcome:
    """The result of a round for a topic."""
    leaders = tuple(leader[topic] for leader in done.leaders)
    led = leaders[-1]
    before = {broker: records(done.before, broker, topic) for broker in BROKERS}
    after = {broker: records(done.after, broker, topic) for broker in BROKERS}
    assert after[1] == after[2] == after[3], "replicas in sync are equal"
    lost = {
        broker: frozenset(offset for offset, batch in batches.items() if after[led].get(offset) != batch)
        for broker, batches in before.items()
    }
    return Outcome(leaders, {broker: first_change(before[broker], after[broker]) for broker in BROKERS if broker != led}, lost)


def plan_of(done: Round, topic: str) -> Planned:
    """The plan made on the copies of the stopped brokers and the controller."""
    paths = sorted(str(path) for path in done.before.iterdir())
    (planned,) = make_plans(paths, ScanOptions(topic), PlanOptions()).planned
    return planned


def forecast_leaders(planned: Planned, steps: Iterable[int]) -> list[ElectionResult]:
    """The leader after each step, by the rules of elections and the controller's last state."""
    control = planned.planner_input.control
    assert control is not None
    assert control.assignment is not None
    assert control.isr is not None
    alive: set[int] = set()
    now = ElectionResult(control.leader or -1, "none", frozenset(control.isr), frozenset(control.elr or ()))
    electeds = []
    crashed = {replica.broker for replica in planned.planner_input.replicas if replica.crashed}
    for step in steps:
        if step != FORCE:
            alive.add(step)
        if step in crashed and now.leader < 0:
            now = replace(now, elr=now.elr - {step})
        unclean = step == FORCE or bool(control.unclean_enabled)
        given = ElectionInput(control.assignment, frozenset(alive), now.isr, now.leader, now.elr, control.last_leader)
        now = elect(given, unclean=unclean)
        electeds.append(now)
    return electeds


def forecast(planned: Planned, leaders: tuple[int, ...]) -> Outcome:
    """The plan's forecast for the broker that leads at the end."""
    candidate = planned.candidate(leaders[-1])
    assert candidate is not None
    cuts = {}
    lost: dict[int, frozenset[int]] = {leaders[-1]: frozenset()}
    for follower_plan in candidate.followers:
        assert isinstance(follower_plan.broker, int)
        assert follower_plan.truncation_offset is not None
        assert not follower_plan.disagrees
        cuts[follower_plan.broker] = follower_plan.truncation_offset
        lost[follower_plan.broker] = frozenset(chain.from_iterable(range(start, end) for start, end in follower_plan.lost))
    by_losses = {broker: set[int]() for broker in lost}
    for loss in candidate.losses:
        for holder in loss.held_by:
            assert isinstance(holder, int)
            by_losses[holder].update(range(loss.start, loss.end))
    assert by_losses == lost
    return Outcome(leaders, cuts, lost)


@dataclass(frozen=True)
class Election:
    """A topic in a round: the plan made on the copies, and the result."""

    done: Round
    planned: Planned
    real: Outcome


@pytest.fixture(scope="module")
def elections(tmp_path_factory: pytest.TempPathFactory) -> ElectionRounds:
    """Rounds of random elections, each of all topics."""
    root = tmp_path_factory.mktemp("elections")
    return make_elections(root / "nodes", root / "copies", seed=SEED, rounds=ROUNDS)


@pytest.fixture(scope="module")
def seen(elections: ElectionRounds) -> dict[tuple[int, str], Election]:
    assert len(elections.rounds) == ROUNDS
    rounds = {(number, topic): (elections.rounds[number], topic) for number, topic in ELECTIONS}
    return {key: Election(done, plan_of(done, topic), outcome(done, topic)) for key, (done, topic) in rounds.items()}


@pytest.mark.parametrize("which", ELECTIONS, ids=lambda which: f"{which[1]}, round {which[0]}")
def test_an_election_goes_as_planned(seen: dict[tuple[int, str], Election], which: tuple[int, str]) -> None:
    election = seen[which]
    leaders = tuple(elected.leader for elected in forecast_leaders(election.planned, election.done.steps))
    assert leaders == election.real.leaders
    assert forecast(election.planned, leaders) == election.real


@pytest.mark.parametrize("which", ELECTIONS, ids=lambda which: f"{which[1]}, round {which[0]}")
def test_the_steps_say_whether_the_first_must_be_forced(seen: dict[tuple[int, str], Election], which: tuple[int, str]) -> None:
    """Other candidates are down, as the steps demand. If the steps say that any order works, one of the brokers leads at the
    end."""
    election = seen[which]
    first, control = election.done.steps[0], election.planned.planner_input.control
    candidate = election.planned.candidate(first)
    assert candidate is not None
    assert control is not None
    steps = election.planned.needs(candidate)
    if steps.any_order:
        assert election.real.leaders[-1] in BROKERS
    else:
        by_itself = candidate.election not in ("unclean", "unknown") or bool(control.unclean_enabled)
        assert election.real.leaders[0] == (first if by_itself else -1)


@pytest.mark.parametrize("which", ELECTIONS, ids=lambda which: f"{which[1]}, round {which[0]}")
def test_brokers_log_the_forecast_truncations(seen: dict[tuple[int, str], Election], which: tuple[int, str]) -> None:
    """Their application logs have every truncation that removes records, and no other."""
    election, topic = seen[which], which[1]
    ends = {replica.broker: replica.log_end_offset for replica in election.planned.planner_input.replicas}
    expected = {broker: cut for broker, cut in election.real.cuts.items() if cut < ends[broker]}
    assert {
        broker: election.done.truncated[broker, topic] for broker in BROKERS if (broker, topic) in election.done.truncated
    } == expected


def _plan_file(folder: Path, done: Round, topic: str) -> Path:
    file = folder / "plan.json"
    copies = sorted(str(path) for path in done.before.iterdir())
    assert command_outcome(["plan", *copies, "--topic", topic, "--output", str(file), "--quiet"]) == 0
    return file


@pytest.mark.parametrize("which", ELECTIONS, ids=lambda which: f"{which[1]}, round {which[0]}")
def test_outcomes_equal_forecast(seen: dict[tuple[int, str], Election], which: tuple[int, str], tmp_path: Path) -> None:
    """Verified on the copies after the round: the plan of the first leader is kept, unless others led later; others were not
    elected."""
    election, topic = seen[which], which[1]
    first, *later = dict.fromkeys(leader for leader in election.real.leaders if leader >= 0)
    document = read_promises(str(_plan_file(tmp_path, election.done, topic)))
    after = sorted(str(path) for path in election.done.after.iterdir())
    for candidate in election.planned.plan.candidates:
        promises = verify(after, document, ScanOptions(topic), ExecutedPlan(str(candidate.broker))).promises
        by_name = {promise.promise: promise for promise in promises if promise.broker == candidate.broker}
        if candidate.broker != first:
            assert (by_name["leader"].reason, by_name["leader"].found) == ("other_elected", first)
        elif not later:
            assert {promise.outcome for promise in promises} == {Kept.KEPT}, promises
            assert by_name["end"].found == by_name["end"].planned
        else:
            assert by_name["leader"].outcome is Kept.KEPT


def test_there_were_enough_elections_of_every_kind(seen: dict[tuple[int, str], Election]) -> None:
    assert len(seen) >= 20
    kinds = {elected.kind for election in seen.values() for elected in forecast_leaders(election.planned, election.done.steps)}
    assert kinds >= {"elr", "last_known_leader", "unclean"}
    assert sum(any(election.real.lost.values()) for election in seen.values()) >= 8
    assert sum(bool(election.done.killed) for election in seen.values()) >= 16
    assert sum(election.real.leaders[election.done.steps.index(FORCE) - 1] < 0 for election in seen.values()) >= 4


def test_nodes_listen_on_loopback_alone(elections: ElectionRounds) -> None:
    assert elections.listens == {LOOPBACK}
