"""One order of starts for many partitions: whoever must lead a partition starts before everyone else who could be elected for it.

A broker starts for all its partitions at once, so that the order which is best for one may let a worse replica lead another.
Where no order serves all, brokers that led are stopped again: an in-sync set with one member elects nobody else while unclean
elections are not allowed (ReplicationControlManager).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_forensics.replication.planner.plan_steps import Steps, steps as steps_to
from kafka_forensics.replication.planner.plans import Broker, Candidate, Plan, PlanPartition

_Kind = tuple[tuple[Broker, ...], tuple[Broker, ...], tuple[Broker, ...], tuple[Broker, ...], bool]
"""Partitions with the same `leaders`, contenders (`replicas` or `rivals`), `replicas`, `in_sync` and `forced`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one partition wants of the order."""

    topic: str
    partition: int
    leaders: tuple[Broker, ...]
    """Whom its plan recommends, then who loses as little and is elected in the same way."""
    replicas: tuple[Broker, ...]
    """Everyone who could be elected if unclean elections are allowed: any replica."""
    rivals: tuple[Broker, ...]
    """Everyone who could be elected if they are not allowed."""
    in_sync: tuple[Broker, ...]
    """Who may stay eligible beside a leader that is elected cleanly; an unclean election leaves nobody."""
    forced: bool
    """Whether nobody may lead until an unclean election is asked for."""


@dataclass(frozen=True, slots=True)
class Start:
    """A broker that starts, and the partitions that it must lead before anyone else starts."""

    broker: Broker
    stopped: tuple[Broker, ...]
    """Brokers that led others by then, and stop before it starts."""
    leads: tuple[Wanted, ...]
    forced: tuple[Wanted, ...]
    """Those of `leads` for which an election may have to be asked for."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The order for all partitions."""

    first: tuple[Start, ...]
    others: tuple[Broker, ...]
    """Who starts when all partitions have their leaders."""
    forbid_unclean: bool
    """Whether it holds only while unclean elections are not allowed."""
    unserved: tuple[Wanted, ...] = ()
    """Partitions of which somebody else in sync would be elected while their leaders are stopped: no order serves these."""

    def leader_of(self) -> dict[tuple[str, int], Broker]:
        """Who comes to lead each partition."""
        return {(wanted.topic, wanted.partition): start.broker for start in self.first for wanted in start.leads}


def wanted_of(given: PlanPartition, plan: Plan, steps: Steps) -> Wanted | None:
    """What a partition's plan, with the steps to one of its leaders, wants of the order; None where any order will do."""
    if steps.any_order:
        return None
    ways = {candidate.broker: candidate for candidate in plan.candidates}
    best = ways[steps.leader]
    alike = plan.alike if steps.leader == plan.recommended else ()
    leaders = (best.broker, *(broker for broker in alike if _is_as_good(given, plan, ways[broker], best)))
    replicas = tuple(dict.fromkeys((*leaders, *steps.started, *steps.plan_again_with)))
    forced = _by_force(best.election) or _may_have_left(given, leaders)
    in_sync = tuple(way.broker for way in plan.candidates if not _by_force(way.election))
    rivals = replicas if forced else tuple(dict.fromkeys((*leaders, *in_sync)))
    return Wanted(plan.topic, plan.partition, leaders, replicas, rivals, () if _by_force(best.election) else in_sync, forced)


def _may_have_left(given: PlanPartition, leaders: Sequence[Broker]) -> bool:
    """Whether one of several in sync crashed: the controller may have taken it out of the ISR, and out of the ELR, by the time it
    registers again (KIP-966)."""
    in_sync = () if given.control is None else (*(given.control.isr or ()), *(given.control.elr or ()))
    return len(in_sync) > 1 and any(replica.crashed for replica in given.replicas if replica.broker in leaders)


def _is_as_good(given: PlanPartition, plan: Plan, other: Candidate, best: Candidate) -> bool:
    """Whether another candidate, that loses as much, is elected in the same way and leaves as few replicas to mend."""
    mended = (len(steps_to(given, plan, candidate).set_aside) for candidate in (other, best))
    return _by_force(other.election) == _by_force(best.election) and next(mended) <= next(mended)


def _by_force(election: str) -> bool:
    return election in ("unclean", "unknown")


def order_of_starts(wanted: Iterable[Wanted], brokers: Sequence[Broker]) -> Starts:
    """In which order `brokers` start. One that holds whatever is allowed is found wherever there is one; work grows with the
    kinds of partitions, not with their number."""
    partitions = list(wanted)
    for forbid_unclean in (False, True):
        left: defaultdict[_Kind, list[Wanted]] = defaultdict(list)
        for partition in partitions:
            contenders = partition.rivals if forbid_unclean else partition.replicas
            kind = partition.leaders, contenders, partition.replicas, partition.in_sync, partition.forced
            left[kind].append(partition)
        first = _first(left, brokers, may_stop=forbid_unclean)
        if not left:
            break
    running = _running(first)
    waiting = dict.fromkeys((*(start.broker for start in first), *brokers))
    others = tuple(broker for broker in waiting if broker not in running)
    return Starts(tuple(first), others, forbid_unclean, tuple(_unserved(first, others)))


def _unserved(first: Sequence[Start], others: Sequence[Broker]) -> Iterator[Wanted]:
    """Partitions of which somebody in sync starts between the stop of their leader and its next start."""
    for number, start in enumerate(first):
        stop = next((at for at in range(number + 1, len(first)) if start.broker in first[at].stopped), None)
        if stop is not None:
            meanwhile = {later.broker for later in first[stop:]}.union(others[: others.index(start.broker)])
            yield from (wanted for wanted in start.leads if meanwhile.intersection(wanted.in_sync))


def _first(left: defaultdict[_Kind, list[Wanted]], brokers: Sequence[Broker], *, may_stop: bool) -> list[Start]:
    """Brokers that start alone, until nothing is `left`; without `may_stop` as far as nobody has to be stopped again."""
    first: list[Start] = []
    while left:
        spoils = {broker for leaders, contenders, *_ in left for broker in contenders if broker not in leaders}
        leading: Counter[Broker] = Counter()
        best: Counter[Broker] = Counter()
        unsafe: Counter[Broker] = Counter()
        for (leaders, _, _, in_sync, _), members in left.items():
            leading.update(dict.fromkeys(leaders, len(members)))
            best[leaders[0]] += len(members)
            unsafe.update(dict.fromkeys((broker for broker in leaders if {*in_sync} - {broker}), len(members)))
        able = [broker for broker in brokers if leading[broker] and (may_stop or broker not in spoils)]
        if not able:
            break
        chosen = max(able, key=lambda broker: (broker not in spoils, -unsafe[broker] * may_stop, leading[broker], best[broker]))
        started = {start.broker for start in first}
        in_the_way: set[Broker] = set()
        leads, forced = [], []
        for kind in [kind for kind in left if chosen in kind[0]]:
            _, contenders, replicas, _, by_force = kind
            members = left.pop(kind)
            leads += members
            if by_force or not started.isdisjoint(contenders):  # one of them has led it, and is alone in sync
                forced += members
                contenders = replicas
            in_the_way.update(contenders)
        stopped = _running(first) & in_the_way
        first.append(Start(chosen, tuple(broker for broker in brokers if broker in stopped), tuple(leads), tuple(forced)))
    return first


def _running(first: Sequence[Start]) -> set[Broker]:
    running: set[Broker] = set()
    for start in first:
        running = (running - set(start.stopped)) | {start.broker}
    return running
