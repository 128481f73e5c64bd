"""How to bring about a planned election: who must be down meanwhile, what to run, who starts when.

The controller elects the first replica, in the order of the assignment, that is alive and in the ISR or ELR; an unclean election
takes the first that is alive, and only while there is no leader (ReplicationControlManager, PartitionChangeBuilder).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from kafka_forensics.replication.offset_ranges import clipped, normalised, without
from kafka_forensics.replication.planner.plans import (
    CANNOT_TELL,
    NO_WORD,
    Broker,
    Candidate,
    FollowerPlan,
    Missing,
    Plan,
    PlanControl,
    PlanPartition,
    PlanReplica,
    TruncateBy,
)


@dataclass(frozen=True, slots=True)
class Steps:
    """What to do for one candidate, in this order: copy, set aside, start, elect, start the others.

    Brokers are named as in the plan.
    """

    leader: Broker
    copy_first: tuple[Broker, ...]
    """Whose log directories hold what the election would lose; of who will not come back there is nothing to copy any more."""
    keep_stopped: tuple[Broker, ...]
    """Who must not run before the candidate leads: they would be elected in its place. Brokers without a copy here among them."""
    unclean: bool
    """Whether the election must be forced, or may have to be where no controller's log says."""
    plan_again_with: tuple[Broker, ...]
    """Who holds a replica and has no copy here: it may hold what the others lack, and must not start before that is known."""
    set_aside: tuple[Broker, ...]
    """Whose copy of the partition must not be there when they start: they would keep other or damaged records for good, or a hole
    where the leader has records, or halt."""
    start_order: tuple[Broker, ...]
    """The leader, then who loses nothing, then the others."""
    do_not_start: tuple[Broker, ...] = ()
    """Who would not start on its copy as it is."""
    any_order: bool = False
    """Whether it makes no difference who leads, so that nobody need be stopped, nobody forced, and the order is no matter."""


def steps(given: PlanPartition, plan: Plan, candidate: Candidate) -> Steps:
    """What to do to have `candidate`, one of `plan`, elected, and to lose no last copy by it."""
    unseen = ("copy_absent", "copy_not_read", "not_copied")
    absent = [missing.broker for missing in plan.missing if missing.kind in unseen and missing.broker is not None]
    nodes = _nodes_of(given) | {broker: broker for broker in absent}
    before = _AssignmentOrder(given, nodes)
    followers = {follower_plan.broker: follower_plan for follower_plan in candidate.followers}
    others = _others(given, candidate.broker, nodes)
    others.sort(key=lambda replica: (_harm(followers[replica.broker]), before(replica.broker)))
    leader = next(replica for replica in given.replicas if replica.broker == candidate.broker)
    aside = tuple(other.broker for other in others if _stays(followers[other.broker], other, leader, compacted=given.compacted))
    named = [other.broker for other in others if not absent or isinstance(nodes[other.broker], int)]
    any_order = not aside and _any_order(given, plan)
    return Steps(
        candidate.broker,
        _copied_first(given, candidate),
        () if any_order else tuple(_rivals(given, candidate, [*named, *absent], before, away=leader.crashed)),
        not any_order and candidate.election in ("unclean", "unknown"),
        tuple(absent),
        aside,
        (candidate.broker, *(other.broker for other in others if other.starts)),
        tuple(other.broker for other in others if not other.starts),
        any_order,
    )


def _copied_first(given: PlanPartition, candidate: Candidate) -> tuple[Broker, ...]:
    holders = {broker for loss in candidate.losses for broker in loss.held_by}
    return tuple(replica.broker for replica in given.replicas if replica.broker in holders and replica.is_live)


def _nodes_of(given: PlanPartition) -> dict[Broker, Broker]:
    """Node id by the broker's name in the plan; where it is not known, that name."""
    return {replica.broker: given.node(replica.broker) for replica in given.replicas}


class _AssignmentOrder:
    """Sort key of brokers: whom the controller looks at first."""

    def __init__(self, given: PlanPartition, nodes: dict[Broker, Broker]) -> None:
        self.nodes = nodes
        control = given.control
        self._assignment = [] if control is None or control.assignment is None else list(control.assignment)

    def __call__(self, broker: Broker) -> tuple[int, int, str]:
        node, assignment = self.nodes[broker], self._assignment
        place = assignment.index(node) if isinstance(node, int) and node in assignment else len(assignment)
        return place, broker if isinstance(broker, int) else 1 << 31, str(broker)


def _others(given: PlanPartition, leader: Broker, nodes: dict[Broker, Broker]) -> list[PlanReplica]:
    """Who may be started beside the leader, of copies of one broker the first: it can start on one alone."""
    replicas: dict[Broker, PlanReplica] = {}
    for replica in given.replicas:
        if replica.is_live and nodes[replica.broker] != nodes[leader]:
            replicas.setdefault(nodes[replica.broker], replica)
    return list(replicas.values())


def _any_order(given: PlanPartition, plan: Plan) -> bool:
    """Whether no election can lose anything that is known of, and one comes about by itself when all brokers are started.

    A broker that does not start is one of which nothing is planned. Without a controller's log all brokers planned for must come
    back, for any of them may be the only one in the ISR; that there are no others nobody says.
    """
    if (
        plan.matters
        or any(missing.kind in CANNOT_TELL for missing in plan.missing)
        or not all(replica.starts for replica in given.replicas)
    ):
        return False
    best = next(candidate.election for candidate in plan.candidates if candidate.broker == plan.recommended)
    return all(replica.is_live for replica in given.replicas) if best == "unknown" else best != "unclean"


def _rivals(
    given: PlanPartition, candidate: Candidate, brokers: list[Broker], before: _AssignmentOrder, *, away: bool
) -> list[Broker]:
    """Which of `brokers` could be elected in the candidate's place if they were alive.

    Where unclean elections are on, the controller makes one as soon as nobody in sync is alive: then anyone could.
    """
    control, first = given.control, before(candidate.broker)
    if candidate.election == "leads":
        return []
    ordered = sorted(brokers, key=before)
    if candidate.election == "unknown" or control is None or control.unclean_enabled:
        return ordered
    return [
        broker
        for broker in ordered
        if _is_rival(control, candidate, before.nodes[broker], earlier=before(broker) < first, away=away)
    ]


def _is_rival(control: PlanControl, candidate: Candidate, node: Broker, *, earlier: bool, away: bool) -> bool:
    """Whether a broker could be elected before the candidate; `earlier`: the assignment names it first; `away`: the candidate was
    not stopped cleanly, so that it is fenced before it registers again."""
    if node in (control.leader, control.last_leader):
        return True
    in_isr, in_elr = node in (control.isr or ()), node in (control.elr or ())
    match candidate.election:
        case "clean":
            return in_isr and (earlier or away)
        case "elr":
            return in_isr or (in_elr and earlier)
        case _:
            return in_isr or in_elr or earlier or control.unclean_enabled is None


def _harm(follower_plan: FollowerPlan) -> int:
    return sum(end - start for start, end in follower_plan.lost)


def _stays(follower_plan: FollowerPlan, replica: PlanReplica, leader: PlanReplica, *, compacted: bool) -> bool:
    """Whether a follower would halt, keep what is not the leader's or damaged, or go on lacking what the leader has; not for what
    is damaged in the leader's log, of which it may be the better copy.

    A follower fetches from its log end on, so that offsets missing before it stay missing. In a cleaned log they are in order, and
    of what could not be read nobody knows.
    """
    if follower_plan.truncation_offset is None or follower_plan.begins_anew:
        return False
    start = replica.log_start_offset
    damaged = clipped(replica.damaged, start, follower_plan.truncation_offset)
    wanted = () if compacted else clipped(leader.on_disk, start, follower_plan.truncation_offset)
    lacking = without(wanted, normalised((*replica.on_disk, *replica.unread)))
    return follower_plan.halts or bool(without(normalised((*follower_plan.kept, *damaged, *lacking)), leader.damaged))


# What would have to be known to make a plan's bounds narrower, and copies that no plan can use as they are.


def missing_witnesses(given: PlanPartition, regime: TruncateBy) -> Iterator[Missing]:
    """Witnesses that are not there, of the partition and then replica by replica."""
    nodes = _nodes_of(given)
    yield from _of_assignment(given, nodes)
    copies = Counter(nodes.values())
    yield from (Missing("same_broker", broker) for broker, node in nodes.items() if copies[node] > 1)
    yield from (Missing("not_copied", broker) for broker in given.not_copied)
    for replica in given.replicas:
        yield from _of_replica(replica, regime)


def _of_assignment(given: PlanPartition, nodes: dict[Broker, Broker]) -> Iterator[Missing]:
    """Whose copies are missing of those that should be there."""
    if given.strays is not None:
        yield Missing("topic_unknown")
        return
    if given.control is None or given.control.assignment is None:
        yield Missing(NO_WORD)
        present = set(nodes.values())
        yield from (Missing("dead_copy_absent", node) for node in sorted(given.dead, key=str) if node not in present)
        return
    unnamed = [broker for broker, node in nodes.items() if not isinstance(node, int)]
    if len(given.absent) > len(unnamed):  # else each of the unnamed may be the copy of one of them
        for broker in given.absent:
            yield Missing("dead_copy_absent" if broker in given.dead else "copy_absent", broker)
    yield from (Missing("copy_unnamed", broker) for broker in nodes if broker in given.guessed or broker in unnamed)


def _of_replica(replica: PlanReplica, regime: TruncateBy) -> Iterator[Missing]:
    if replica.is_absent:
        yield Missing("replica_absent", replica.broker)
    if replica.high_watermark is None:
        yield Missing("no_high_watermark", replica.broker)
    if regime == "epochs" and replica.checkpoint is None and replica.log_end_offset > replica.log_start_offset:
        yield Missing("no_epoch_checkpoint", replica.broker)
    if not replica.end_is_known or replica.unread:
        yield Missing("log_not_read", replica.broker)
    if replica.has_unknown_bytes:
        yield Missing("unknown_bytes", replica.broker)
    if not replica.starts:
        yield Missing("does_not_start", replica.broker)
    if not replica.is_live:
        yield Missing("not_live", replica.broker)


# One order in which to start brokers for many partitions: a broker starts for all its partitions at once, so that the order which
# is best for one may let a worse replica lead another.


_EXACT: Final = 6
"""Up to so many brokers every order is tried; of more, each next one is who then spoils least."""
Cost = tuple[int, int]
"""Offsets proven committed, and all offsets, that an election loses."""
NOTHING: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Wish:
    """What one partition wants of the order."""

    topic: str
    partition: int
    leader: Broker
    """Whom its plan recommends."""
    electable: tuple[Broker, ...]
    """Of whom the first that starts comes to lead."""
    costs: Mapping[Broker, Cost]
    """What the election of each loses."""

    def leader_under(self, order: Mapping[Broker, int]) -> Broker:
        """Who comes to lead if brokers are started by rising number, each when those before it lead what they can."""
        return min(self.electable, key=lambda broker: order.get(broker, len(order)))

    def cost_under(self, leader: Broker) -> Cost:
        """What it loses under a leader; under one whose costs are not known the most that any would."""
        return self.costs.get(leader) or max(self.costs.values())

    def spoiled_by(self, leader: Broker) -> Cost:
        """How much more than under the recommended leader it loses: offsets proven committed, and all."""
        got, wanted = self.cost_under(leader), self.cost_under(self.leader)
        return got[0] - wanted[0], got[1] - wanted[1]


@dataclass(frozen=True, slots=True)
class Against:
    """A partition that is led by another than its plan recommends, and loses more for it."""

    wish: Wish
    leader: Broker

    @property
    def more(self) -> Cost:
        """How much more it loses: offsets proven committed, and all."""
        return self.wish.spoiled_by(self.leader)


@dataclass(frozen=True, slots=True)
class StartOrder:
    """An order for all partitions, and those it is against; none where every partition has its way."""

    brokers: tuple[Broker, ...]
    against: tuple[Against, ...]


def wish_of(given: PlanPartition, plan: Plan, steps: Steps) -> Wish | None:
    """What a partition's plan, with the steps to its recommended leader, wants of the order; None where it does not matter.

    Where somebody who loses as little is elected without force, the first of those who are leads; where the election has to be
    forced, or nothing says who is in sync, whoever starts before the recommended one may be elected in its place.
    """
    costs = {candidate.broker: (candidate.committed, candidate.at_most) for candidate in plan.candidates}
    best = costs.get(steps.leader)
    if best is None or (all(cost == best for cost in costs.values()) and not steps.keep_stopped):
        return None
    anyone = given.control is None or bool(given.control.unclean_enabled)
    by_itself = not (anyone or steps.unclean) and best in [costs.get(broker) for broker in plan.ordinary]
    return Wish(
        plan.topic, plan.partition, steps.leader, plan.ordinary if by_itself else (steps.leader, *steps.keep_stopped), costs
    )


def start_order(wishes: Iterable[Wish], brokers: Sequence[Broker]) -> StartOrder | None:
    """The order of `brokers` in which all partitions together lose least; None where none of them wants any.

    An order that every partition has its way in is found wherever there is one. Work grows with the kinds of wishes, not with the
    partitions.
    """
    wanted = list(wishes)
    if not wanted or not brokers:
        return None
    kinds = _kinds(wanted)
    best = _of_all(kinds, brokers) if len(brokers) <= _EXACT else _one_by_one(kinds, brokers)
    places = {broker: place for place, broker in enumerate(best)}
    led = (Against(wish, wish.leader_under(places)) for wish in wanted)
    return StartOrder(best, tuple(against for against in led if against.more > NOTHING))


_Kind = Mapping[Broker, Cost]
"""Partitions of which the same brokers are electable: what starting each of these first would cost all of them."""


def _kinds(wishes: Sequence[Wish]) -> list[_Kind]:
    costs: dict[tuple[Broker, ...], dict[Broker, Cost]] = {}
    for wish in wishes:
        spoiled = costs.setdefault(wish.electable, dict.fromkeys(wish.electable, NOTHING))
        for broker in wish.electable:
            committed, lost = wish.spoiled_by(broker)
            spoiled[broker] = spoiled[broker][0] + committed, spoiled[broker][1] + lost
    return list(costs.values())


def _of_all(kinds: Sequence[_Kind], brokers: Sequence[Broker]) -> tuple[Broker, ...]:
    """The best of all orders, of equally good ones the first."""

    def cost(order: Sequence[Broker]) -> Cost:
        spoiled = [next((kind[broker] for broker in order if broker in kind), NOTHING) for kind in kinds]
        return sum(committed for committed, _ in spoiled), sum(lost for _, lost in spoiled)

    return min(permutations(brokers), key=cost)


def _one_by_one(kinds: Sequence[_Kind], brokers: Sequence[Broker]) -> tuple[Broker, ...]:
    """Always who costs least of the partitions that nobody leads yet."""
    costs = dict.fromkeys(brokers, NOTHING)
    of_broker: dict[Broker, list[int]] = {broker: [] for broker in brokers}
    for number, kind in enumerate(kinds):
        for broker in kind.keys() & costs.keys():
            costs[broker] = costs[broker][0] + kind[broker][0], costs[broker][1] + kind[broker][1]
            of_broker[broker].append(number)
    led: set[int] = set()
    order = []
    while costs:
        chosen = min(costs, key=lambda broker: costs[broker])
        order.append(chosen)
        del costs[chosen]
        for number in set(of_broker[chosen]) - led:
            led.add(number)
            for broker in kinds[number].keys() & costs.keys():
                costs[broker] = costs[broker][0] - kinds[number][broker][0], costs[broker][1] - kinds[number][broker][1]
    return tuple(order)
