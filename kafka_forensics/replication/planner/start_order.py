"""One order of starts for many partitions: a partition's intended leader starts before every other broker that could be elected.

A broker starts for all its partitions at once, so the best order for one partition may let a worse replica lead another. Where no
order serves all partitions, brokers that led stop again: an ISR with one member elects nobody else while unclean elections are not
allowed (ReplicationControlManager).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kafka_forensics.model.findings import Broker, TopicPartition
from kafka_forensics.replication.planner.election_needs import ElectionNeeds, election_needs
from kafka_forensics.replication.planner.plans import Candidate, Plan, PlanPartition


class LeaderRequest(Struct, frozen=True):
    """What a partition requires of the order; partitions with equal requests form a group."""

    leaders: tuple[Broker, ...]
    """The recommended broker, then those that lose as little and are elected in the same way."""
    replicas: tuple[Broker, ...]
    """Brokers that could be elected while unclean elections are allowed: all replicas."""
    rivals: tuple[Broker, ...]
    """Brokers that could be elected while they are not."""
    in_sync: tuple[Broker, ...]
    """Brokers that may stay eligible beside a cleanly elected leader; none after an unclean election."""
    forced: bool
    """Whether the partition has no leader until an unclean election is requested."""


class StartRound(Struct, frozen=True):
    """A broker that starts, and the partitions that it must lead before the next broker starts."""

    broker: Broker
    stopped: tuple[Broker, ...]
    """Brokers that led other partitions and stop before it starts."""
    leads: tuple[TopicPartition, ...]
    forced: tuple[TopicPartition, ...]
    """Those of `leads` that may need a requested election."""


class StartOrder(Struct, frozen=True):
    """The order for all partitions."""

    rounds: tuple[StartRound, ...]
    others: tuple[Broker, ...]
    """Brokers that start when all partitions have their leaders."""
    forbid_unclean: bool
    """Whether the order works only while unclean elections are not allowed."""
    impossible: tuple[TopicPartition, ...] = ()
    """Partitions whose leader stops again and would be replaced by another broker in sync; no order gives them their leaders."""

    def leader_of(self) -> dict[TopicPartition, Broker]:
        """The leader of each partition."""
        return {partition: start.broker for start in self.rounds for partition in start.leads}


def leader_request(partition: PlanPartition, plan: Plan, needs: ElectionNeeds) -> LeaderRequest | None:
    """What a partition's plan requires of the order; None where any order will do."""
    if needs.any_order:
        return None
    candidates = {candidate.broker: candidate for candidate in plan.candidates}
    best = candidates[needs.leader]
    is_forced = _is_forced(best)

    def is_as_good(other: Candidate) -> bool:
        """Whether another candidate with the same loss is elected in the same way and sets aside no more replicas."""
        aside = len(election_needs(partition, plan, other).set_aside)
        return _is_forced(other) == is_forced and aside <= len(election_needs(partition, plan, best).set_aside)

    equally_good = plan.equally_good if needs.leader == plan.recommended else ()
    leaders = (best.broker, *(broker for broker in equally_good if is_as_good(candidates[broker])))
    replicas = tuple(dict.fromkeys((*leaders, *needs.started, *needs.plan_again_with)))
    forced = is_forced or _may_have_left(partition, leaders)
    in_sync = tuple(candidate.broker for candidate in plan.candidates if not _is_forced(candidate))
    rivals = replicas if forced else tuple(dict.fromkeys((*leaders, *in_sync)))
    return LeaderRequest(leaders, replicas, rivals, () if is_forced else in_sync, forced)


def _may_have_left(partition: PlanPartition, leaders: Sequence[Broker]) -> bool:
    """Whether one of several brokers in sync crashed: the controller may have removed it from ISR and ELR by the time it registers
    again (KIP-966)."""
    in_sync = () if partition.control is None else (*(partition.control.isr or ()), *(partition.control.elr or ()))
    return len(in_sync) > 1 and any(replica.crashed for replica in partition.replicas if replica.broker in leaders)


def _is_forced(candidate: Candidate) -> bool:
    return candidate.election in ("unclean", "unknown")


def order_of_starts(requests: Mapping[TopicPartition, LeaderRequest], brokers: Sequence[Broker]) -> StartOrder:
    """The order in which `brokers` start; one that works even while unclean elections are allowed, if there is one.

    The time grows with the number of different requests, not of partitions.
    """
    for forbid_unclean in (False, True):
        left: defaultdict[LeaderRequest, list[TopicPartition]] = defaultdict(list)
        for partition, request in requests.items():
            left[request].append(partition)
        rounds = _rounds(left, brokers, forbid_unclean=forbid_unclean)
        if not left:
            break
    running = _running(rounds)
    others = tuple(broker for broker in dict.fromkeys((*(start.broker for start in rounds), *brokers)) if broker not in running)
    return StartOrder(tuple(rounds), others, forbid_unclean, tuple(_impossible(requests, rounds, others)))


def _impossible(
    requests: Mapping[TopicPartition, LeaderRequest], rounds: Sequence[StartRound], others: Sequence[Broker]
) -> Iterator[TopicPartition]:
    """Partitions of which another broker in sync starts between the stop and the next start of their leader."""
    for number, start in enumerate(rounds):
        stop = next((later for later in range(number + 1, len(rounds)) if start.broker in rounds[later].stopped), None)
        if stop is not None:
            meanwhile = {later.broker for later in rounds[stop:]}.union(others[: others.index(start.broker)])
            yield from (partition for partition in start.leads if meanwhile.intersection(requests[partition].in_sync))


def _rounds(
    left: dict[LeaderRequest, list[TopicPartition]], brokers: Sequence[Broker], *, forbid_unclean: bool
) -> list[StartRound]:
    """The rounds; removes the served requests from `left`. While unclean elections are allowed it ends where a broker would
    have to stop again."""
    rounds: list[StartRound] = []
    competing = {request: request.rivals if forbid_unclean else request.replicas for request in left}
    while left:
        contested = {broker for request in left for broker in competing[request] if broker not in request.leaders}
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
        ranks = {
            broker: (broker not in contested, -unsafe[broker] * forbid_unclean, leading[broker], best[broker]) for broker in able
        }
        chosen = max(able, key=ranks.__getitem__)
        started = {start.broker for start in rounds}
        to_stop: set[Broker] = set()
        leads, forced = [], []
        for request in [request for request in left if chosen in request.leaders]:
            partitions = left.pop(request)
            leads += partitions
            to_stop.update(competing[request])
            if request.forced or not started.isdisjoint(competing[request]):  # one of them has led it, and is the only one in sync
                forced += partitions
                to_stop.update(request.replicas)
        stopped = _running(rounds) & to_stop
        rounds.append(StartRound(chosen, tuple(broker for broker in brokers if broker in stopped), tuple(leads), tuple(forced)))
    return rounds


def _running(rounds: Sequence[StartRound]) -> set[Broker]:
    running: set[Broker] = set()
    for start in rounds:
        running = (running - set(start.stopped)) | {start.broker}
    return running
