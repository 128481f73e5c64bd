"""How to bring about a planned election: who must be down meanwhile, what to run, who starts when.

The controller elects the first replica, in the order of the assignment, that is alive and in the ISR or ELR; an unclean election
takes the first that is alive, and only while there is no leader (ReplicationControlManager, PartitionChangeBuilder).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

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
