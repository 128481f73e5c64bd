"""What a planned election requires: which copies to save first, which to set aside, which brokers may start."""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from kafka_forensics.model.findings import Broker
from kafka_forensics.model.offset_ranges import clipped, normalised, without
from kafka_forensics.replication.planner.plans import (
    LOSS_UNKNOWN,
    NO_CONTROLLER_LOG,
    Candidate,
    FollowerPlan,
    Missing,
    Plan,
    PlanPartition,
    PlanReplica,
    TruncateBy,
)


class ElectionNeeds(Struct, frozen=True):
    """What the election of one candidate requires. Brokers are named as in the plan."""

    leader: Broker
    copy_first: tuple[Broker, ...]
    """Brokers with log directories that have what the election would lose, if they will come back."""
    plan_again_with: tuple[Broker, ...]
    """Brokers with a replica and no copy here: they may have what the others lack, and must not start before that is known."""
    set_aside: tuple[Broker, ...]
    """Brokers that must start without their copy of the partition: they would always keep other or damaged records, or a gap where
    the leader has records, or halt."""
    started: tuple[Broker, ...]
    """The leader, then all others that start with their copies."""
    any_order: bool = False
    """Whether any leader will do: no broker has to stay stopped, no election is forced, and any order works."""


def election_needs(partition: PlanPartition, plan: Plan, candidate: Candidate) -> ElectionNeeds:
    """What the election of `candidate`, one of `plan`, requires to keep every last copy."""
    absent_kinds = ("copy_absent", "copy_not_read", "not_copied")
    absent = [missing.broker for missing in plan.missing if missing.kind in absent_kinds and missing.broker is not None]
    followers = {follower.broker: follower for follower in candidate.followers}
    others: dict[Broker, PlanReplica] = {}  # of several copies of one broker the first: it can start with one only
    for replica in partition.replicas:
        if replica.is_live and partition.node(replica.broker) != partition.node(candidate.broker):
            others.setdefault(partition.node(replica.broker), replica)
    leader = next(replica for replica in partition.replicas if replica.broker == candidate.broker)
    aside = tuple(
        replica.broker
        for replica in others.values()
        if _must_be_set_aside(followers[replica.broker], replica, leader, compacted=partition.compacted)
    )
    holders = {broker for loss in candidate.losses for broker in loss.held_by}
    return ElectionNeeds(
        candidate.broker,
        tuple(replica.broker for replica in partition.replicas if replica.broker in holders and replica.is_live),
        tuple(absent),
        aside,
        (candidate.broker, *(replica.broker for replica in others.values() if replica.starts)),
        not aside and _works_in_any_order(partition, plan),
    )


def _works_in_any_order(partition: PlanPartition, plan: Plan) -> bool:
    """Whether no election can lose anything known, and starting all brokers elects a leader.

    Nothing is planned for a broker that does not start. Without a controller's log all brokers of the plan must come back, because
    any of them may be the only ISR member.
    """
    cannot_tell = any(missing.kind in LOSS_UNKNOWN for missing in plan.missing)
    if plan.matters or cannot_tell or not all(replica.starts for replica in partition.replicas):
        return False
    best = next(candidate.election for candidate in plan.candidates if candidate.broker == plan.recommended)
    return all(replica.is_live for replica in partition.replicas) if best == "unknown" else best != "unclean"


def _must_be_set_aside(follower: FollowerPlan, replica: PlanReplica, leader: PlanReplica, *, compacted: bool) -> bool:
    """Whether a follower would halt, keep damaged records or records that the leader lacks, or never get records of the leader.

    A follower fetches from its log end on, so offsets missing before it stay missing; in a compacted log they are normal, and
    unread offsets are unknown. What is damaged in the leader's log does not count: the follower's copy may be better.
    """
    if follower.truncation_offset is None or follower.restarts_empty:
        return False
    start = replica.log_start_offset
    damaged = clipped(normalised((*replica.damaged, *replica.converted)), start, follower.truncation_offset)
    wanted = () if compacted else clipped(leader.on_disk, start, follower.truncation_offset)
    lacking = without(wanted, normalised((*replica.on_disk, *replica.unread)))
    return follower.halts or bool(without(normalised((*follower.kept, *damaged, *lacking)), leader.damaged))


# Evidence that would make a plan's bounds narrower, and copies that no plan can use as they are.


def missing_witnesses(partition: PlanPartition, truncation_rule: TruncateBy) -> Iterator[Missing]:
    """Evidence that is missing, for the partition and then for each replica."""
    nodes = {replica.broker: partition.node(replica.broker) for replica in partition.replicas}
    if partition.strays is not None:
        yield Missing("topic_unknown")
    elif partition.control is None or partition.control.assignment is None:
        yield Missing(NO_CONTROLLER_LOG)
        present = set(nodes.values())
        yield from (Missing("dead_copy_absent", node) for node in sorted(partition.dead, key=str) if node not in present)
    else:
        unnamed = [broker for broker, node in nodes.items() if not isinstance(node, int)]
        if len(partition.absent) > len(unnamed):  # else each unnamed copy may belong to one of them
            for broker in partition.absent:
                yield Missing("dead_copy_absent" if broker in partition.dead else "copy_absent", broker)
        yield from (Missing("copy_unnamed", broker) for broker in nodes if broker in partition.guessed or broker in unnamed)
    copies = Counter(nodes.values())
    yield from (Missing("same_broker", broker) for broker, node in nodes.items() if copies[node] > 1)
    yield from (Missing("not_copied", broker) for broker in partition.not_copied)
    for replica in partition.replicas:
        is_empty = replica.log_end_offset <= replica.log_start_offset
        for kind, is_missing in (
            ("replica_absent", replica.is_absent),
            ("no_high_watermark", replica.high_watermark is None),
            ("no_epoch_checkpoint", truncation_rule == "epochs" and replica.checkpoint is None and not is_empty),
            ("log_not_read", not replica.end_is_known or replica.unread),
            ("unknown_bytes", replica.has_unknown_bytes),
            ("does_not_start", not replica.starts),
            ("not_live", not replica.is_live),
        ):
            if is_missing:
                yield Missing(kind, replica.broker)
