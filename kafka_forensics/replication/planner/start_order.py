"""One order of starts for many partitions: whoever must lead a partition starts before everyone else who could be elected for it.

A broker starts for all its partitions at once, so that the order which is best for one may let a worse replica lead another.
Where no order serves all, brokers that led are stopped again: an in-sync set with one member elects nobody else while unclean
elections are not allowed (ReplicationControlManager).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_forensics.model.findings import Broker
from kafka_forensics.replication.planner.election_needs import ElectionNeeds, election_needs
from kafka_forensics.replication.planner.plans import Candidate, Plan, PlanPartition

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LeaderRequest:
    """What a partition needs of the order; those that need the same are one group."""

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
class Round:
    """A broker that starts, and the partitions that it must lead before anyone else starts."""

    broker: Broker
    stopped: tuple[Broker, ...]
    """Brokers that led others by then, and stop before it starts."""
    leads: tuple[Partition, ...]
    forced: tuple[Partition, ...]
    """Those of `leads` for which an election may have to be asked for."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """The order for all partitions."""

    rounds: tuple[Round, ...]
    others: tuple[Broker, ...]
    """Who starts when all partitions have their leaders."""
    forbid_unclean: bool
    """Whether it holds only while unclean elections are not allowed."""
    impossible: tuple[Partition, ...] = ()
    """Partitions of which somebody else in sync would be elected while their leaders are stopped: no order has these led."""

    def leader_of(self) -> dict[Partition, Broker]:
        """Who comes to lead each partition."""
        return {partition: start.broker for start in self.rounds for partition in start.leads}


def leader_request(given: PlanPartition, plan: Plan, needs: ElectionNeeds) -> LeaderRequest | None:
    """What a partition's plan needs of the order to have one of its leaders elected; None where any order will do."""
    if needs.any_order:
        return None
    ways = {candidate.broker: candidate for candidate in plan.candidates}
    best = ways[needs.leader]
    alike = plan.alike if needs.leader == plan.recommended else ()
    leaders = (best.broker, *(broker for broker in alike if _is_as_good(given, plan, ways[broker], best)))
    replicas = tuple(dict.fromkeys((*leaders, *needs.started, *needs.plan_again_with)))
    forced = _by_force(best.election) or _may_have_left(given, leaders)
    in_sync = tuple(way.broker for way in plan.candidates if not _by_force(way.election))
    rivals = replicas if forced else tuple(dict.fromkeys((*leaders, *in_sync)))
    return LeaderRequest(leaders, replicas, rivals, () if _by_force(best.election) else in_sync, forced)


def _may_have_left(given: PlanPartition, leaders: Sequence[Broker]) -> bool:
    """Whether one of several in sync crashed: the controller may have taken it out of the ISR, and out of the ELR, by the time it
    registers again (KIP-966)."""
    in_sync = () if given.control is None else (*(given.control.isr or ()), *(given.control.elr or ()))
    return len(in_sync) > 1 and any(replica.crashed for replica in given.replicas if replica.broker in leaders)


def _is_as_good(given: PlanPartition, plan: Plan, other: Candidate, best: Candidate) -> bool:
    """Whether another candidate, that loses as much, is elected in the same way and leaves as few replicas to mend."""
    mended = (len(election_needs(given, plan, candidate).set_aside) for candidate in (other, best))
    return _by_force(other.election) == _by_force(best.election) and next(mended) <= next(mended)


def _by_force(election: str) -> bool:
    return election in ("unclean", "unknown")


def order_of_starts(requests: Mapping[Partition, LeaderRequest], brokers: Sequence[Broker]) -> StartOrder:
    """In which order `brokers` start. One that holds whatever is allowed is found wherever there is one; work grows with the
    different requests, not with the partitions."""
    for forbid_unclean in (False, True):
        left: defaultdict[LeaderRequest, list[Partition]] = defaultdict(list)
        for partition, request in requests.items():
            left[request].append(partition)
        rounds = _rounds(left, brokers, forbid_unclean=forbid_unclean)
        if not left:
            break
    running = _running(rounds)
    others = tuple(broker for broker in dict.fromkeys((*(start.broker for start in rounds), *brokers)) if broker not in running)
    return StartOrder(tuple(rounds), others, forbid_unclean, tuple(_impossible(requests, rounds, others)))


def _impossible(
    requests: Mapping[Partition, LeaderRequest], rounds: Sequence[Round], others: Sequence[Broker]
) -> Iterator[Partition]:
    """Partitions of which somebody in sync starts between the stop of their leader and its next start."""
    for number, start in enumerate(rounds):
        stop = next((at for at in range(number + 1, len(rounds)) if start.broker in rounds[at].stopped), None)
        if stop is not None:
            meanwhile = {later.broker for later in rounds[stop:]}.union(others[: others.index(start.broker)])
            yield from (partition for partition in start.leads if meanwhile.intersection(requests[partition].in_sync))


def _rounds(left: dict[LeaderRequest, list[Partition]], brokers: Sequence[Broker], *, forbid_unclean: bool) -> list[Round]:
    """Brokers that start alone, until nothing is `left`; while unclean elections are allowed as far as nobody must stop again."""
    rounds: list[Round] = []
    contenders = {request: request.rivals if forbid_unclean else request.replicas for request in left}
    while left:
        contested = {broker for request in left for broker in contenders[request] if broker not in request.leaders}
        leading: Counter[Broker] = Counter()
        best: Counter[Broker] = Counter()
        unsafe: Counter[Broker] = Counter()
        for request, partitions in left.items():
            leading.update(dict.fromkeys(request.leaders, len(partitions)))
            best[request.leaders[0]] += len(partitions)
            unsafe.update(dict.fromkeys((broker for broker in request.leaders if {*request.in_sync} - {broker}), len(partitions)))
        able = [broker for broker in brokers if leading[broker] and (forbid_unclean or broker not in contested)]
        if not able:
            break
        ranks = {one: (one not in contested, -unsafe[one] * forbid_unclean, leading[one], best[one]) for one in able}
        chosen = max(able, key=ranks.__getitem__)
        started = {start.broker for start in rounds}
        in_the_way: set[Broker] = set()
        leads, forced = [], []
        for request in [request for request in left if chosen in request.leaders]:
            partitions = left.pop(request)
            leads += partitions
            in_the_way.update(contenders[request])
            if request.forced or not started.isdisjoint(contenders[request]):  # one of them has led it, and is alone in sync
                forced += partitions
                in_the_way.update(request.replicas)
        stopped = _running(rounds) & in_the_way
        rounds.append(Round(chosen, tuple(broker for broker in brokers if broker in stopped), tuple(leads), tuple(forced)))
    return rounds


def _running(rounds: Sequence[Round]) -> set[Broker]:
    running: set[Broker] = set()
    for start in rounds:
        running = (running - set(start.stopped)) | {start.broker}
    return running
