"""What a planned election asks of brokers and their copies: what to copy first, to set aside, and who may start."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kafka_forensics.model.findings import Broker
from kafka_forensics.model.offset_ranges import clipped, normalised, without
from kafka_forensics.replication.planner.plans import (
    CANNOT_TELL,
    NO_WORD,
    Candidate,
    FollowerPlan,
    Missing,
    Plan,
    PlanPartition,
    PlanReplica,
    TruncateBy,
)


@dataclass(frozen=True, slots=True)
class ElectionNeeds:
    """What the election of one candidate asks for. Brokers are named as in the plan."""

    leader: Broker
    copy_first: tuple[Broker, ...]
    """Whose log directories hold what the election would lose; of who will not come back there is nothing to copy any more."""
    plan_again_with: tuple[Broker, ...]
    """Who holds a replica and has no copy here: it may hold what the others lack, and must not start before that is known."""
    set_aside: tuple[Broker, ...]
    """Whose copy of the partition must not be there when they start: they would keep other or damaged records for good, or a hole
    where the leader has records, or halt."""
    started: tuple[Broker, ...]
    """The leader, then everyone else who starts on its copy."""
    any_order: bool = False
    """Whether it makes no difference who leads, so that nobody need be stopped, nobody forced, and the order is no matter."""


def election_needs(given: PlanPartition, plan: Plan, candidate: Candidate) -> ElectionNeeds:
    """What to do to have `candidate`, one of `plan`, elected, and to lose no last copy by it."""
    unseen = ("copy_absent", "copy_not_read", "not_copied")
    absent = [missing.broker for missing in plan.missing if missing.kind in unseen and missing.broker is not None]
    followers = {follower_plan.broker: follower_plan for follower_plan in candidate.followers}
    others = _others(given, candidate.broker, _nodes_of(given))
    leader = next(replica for replica in given.replicas if replica.broker == candidate.broker)
    aside = tuple(other.broker for other in others if _stays(followers[other.broker], other, leader, compacted=given.compacted))
    return ElectionNeeds(
        candidate.broker,
        _copied_first(given, candidate),
        tuple(absent),
        aside,
        (candidate.broker, *(other.broker for other in others if other.starts)),
        not aside and _any_order(given, plan),
    )


def _copied_first(given: PlanPartition, candidate: Candidate) -> tuple[Broker, ...]:
    holders = {broker for loss in candidate.losses for broker in loss.held_by}
    return tuple(replica.broker for replica in given.replicas if replica.broker in holders and replica.is_live)


def _nodes_of(given: PlanPartition) -> dict[Broker, Broker]:
    """Node id by the broker's name in the plan; where it is not known, that name."""
    return {replica.broker: given.node(replica.broker) for replica in given.replicas}


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
    cannot_tell = any(missing.kind in CANNOT_TELL for missing in plan.missing)
    if plan.matters or cannot_tell or not all(replica.starts for replica in given.replicas):
        return False
    best = next(candidate.election for candidate in plan.candidates if candidate.broker == plan.recommended)
    return all(replica.is_live for replica in given.replicas) if best == "unknown" else best != "unclean"


def _stays(follower_plan: FollowerPlan, replica: PlanReplica, leader: PlanReplica, *, compacted: bool) -> bool:
    """Whether a follower would halt, keep what is not the leader's or damaged, or go on lacking what the leader has; not for what
    is damaged in the leader's log, of which it may be the better copy.

    A follower fetches from its log end on, so that offsets missing before it stay missing. In a cleaned log they are in order, and
    of what could not be read nobody knows.
    """
    if follower_plan.truncation_offset is None or follower_plan.begins_anew:
        return False
    start = replica.log_start_offset
    damaged = clipped(normalised((*replica.damaged, *replica.converted)), start, follower_plan.truncation_offset)
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
