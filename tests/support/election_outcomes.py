"""What an election did to every replica, from log files before and after alone, and what a plan of it had said."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import Planned, PlanOptions, make_plans
from kafka_forensics.replication.elections import Candidates, Elected, elect
from lab.elections import FORCE, Round
from lab.fault_base import read_log

BROKERS = (1, 2, 3)


@dataclass(frozen=True)
class Outcome:
    """One election: who led after each step, who at last, where each other replica cut, what each held that nobody has now."""

    leaders: tuple[int, ...]
    cuts: Mapping[int, int]
    """Follower → the first offset at which its log changed or went; its old end where nothing did."""
    lost: Mapping[int, frozenset[int]]
    """Broker → offsets it held and the leader's log now lacks or has differently."""


def records(tree: Path, broker: int, topic: str) -> dict[int, bytes]:
    """Offset → the whole batch that holds it, of a replica on disk."""
    batches = read_log(tree / f"broker-{broker}" / f"{topic}-0").batches
    return {offset: batch.data for batch in batches for offset in range(batch.base_offset, batch.last_offset + 1)}


def first_change(before: Mapping[int, bytes], after: Mapping[int, bytes]) -> int:
    """The first offset at which a log is not what it was, or its old end."""
    changed = [offset for offset in before if before[offset] != after.get(offset)]
    return min(changed, default=max(before) + 1)


def outcome(done: Round, topic: str) -> Outcome:
    """What became of a topic in a round."""
    leaders = tuple(leader[topic] for leader in done.leaders)
    led = leaders[-1]
    before = {broker: records(done.before, broker, topic) for broker in BROKERS}
    after = {broker: records(done.after, broker, topic) for broker in BROKERS}
    assert after[1] == after[2] == after[3], "in sync, and the same"
    lost = {
        broker: frozenset(offset for offset, batch in held.items() if after[led].get(offset) != batch)
        for broker, held in before.items()
    }
    return Outcome(leaders, {one: first_change(before[one], after[one]) for one in BROKERS if one != led}, lost)


def plan_of(done: Round, topic: str) -> Planned:
    """The plan made on the copies of the stopped brokers and the controller."""
    paths = sorted(str(path) for path in done.before.iterdir())
    (planned,) = make_plans(paths, ScanOptions(topic), PlanOptions()).planned
    return planned


def foretold_leaders(planned: Planned, steps: Iterable[int]) -> list[Elected]:
    """Who leads after each step, by the rules of elections and what the plan knows of the controller's last word."""
    control = planned.given.control
    assert control is not None
    assert control.assignment is not None
    assert control.isr is not None
    alive: set[int] = set()
    now = Elected(control.leader or -1, "none", frozenset(control.isr), frozenset(control.elr or ()))
    electeds = []
    crashed = {replica.broker for replica in planned.given.replicas if replica.crashed}
    for step in steps:
        if step != FORCE:
            alive.add(step)
        if step in crashed and now.leader < 0:
            now = replace(now, elr=now.elr - {step})
        unclean = step == FORCE or bool(control.unclean_enabled)
        given = Candidates(control.assignment, frozenset(alive), now.isr, now.leader, now.elr, control.last_leader)
        now = elect(given, unclean=unclean)
        electeds.append(now)
    return electeds


def foretold(planned: Planned, leaders: tuple[int, ...]) -> Outcome:
    """What the plan says of the election of whoever is to lead at last."""
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
