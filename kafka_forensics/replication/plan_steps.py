"""How to bring about a planned election: who must be down meanwhile, what to run, who starts when.

The controller elects the first replica, in the order of the assignment, that is alive and in the ISR or ELR; an unclean election
takes the first that is alive, and only while there is no leader (ReplicationControlManager, PartitionChangeBuilder).
"""

from dataclasses import dataclass

from kafka_forensics.replication.offset_ranges import clipped, normalised, without
from kafka_forensics.replication.plans import Broker, Candidate, FollowerPlan, Plan, PlanPartition, PlanReplica


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
    """Whose copy of the partition must not be there when they start: they would keep other or damaged records for good, or halt."""
    start_order: tuple[Broker, ...]
    """The leader, then who loses nothing, then the others."""
    do_not_start: tuple[Broker, ...] = ()
    """Who would not start on its copy as it is."""
    any_order: bool = False
    """Whether it makes no difference who leads, so that nobody need be stopped and the order is no matter."""


def steps(given: PlanPartition, plan: Plan, candidate: Candidate) -> Steps:
    """What to do to have `candidate`, one of `plan`, elected, and to lose no last copy by it."""
    control = given.control
    nodes = {one.broker: given.nodes.get(one.broker, one.broker) for one in given.replicas}
    others = [one for one in given.replicas if one.broker != candidate.broker and one.is_live]
    refused = {one.broker for one in others if not one.starts}
    absent = [one.broker for one in plan.missing if one.kind == "copy_absent" and one.broker is not None]
    nodes |= {broker: broker for broker in absent}
    assignment = [] if control is None or control.assignment is None else list(control.assignment)

    def before(broker: Broker) -> tuple[int, int, str]:
        node = nodes[broker]
        place = assignment.index(node) if isinstance(node, int) and node in assignment else len(assignment)
        return place, broker if isinstance(broker, int) else 1 << 31, str(broker)

    followers = {one.broker: one for one in candidate.followers}
    ordered = sorted((one.broker for one in others), key=lambda broker: (_harm(followers[broker]), before(broker)))
    replicas = {one.broker: one for one in given.replicas}
    leader = replicas[candidate.broker]
    aside = tuple(broker for broker in ordered if _stays(followers[broker], replicas[broker], leader))
    possible = [*(one for one in ordered if not absent or isinstance(nodes[one], int)), *absent]  # the unnamed are among the absent
    rivals = [one for one in possible if _is_rival(given, candidate, nodes[one], earlier=before(one) < before(candidate.broker))]
    harmless = not plan.matters and plan.at_most_is_bound and candidate.broker == plan.recommended and not aside
    any_order = harmless and candidate.election not in ("unclean", "unknown")
    holders = {broker for one in candidate.losses for broker in one.held_by}
    return Steps(
        candidate.broker,
        tuple(one.broker for one in given.replicas if one.broker in holders and one.is_live),
        () if any_order else tuple(sorted(rivals, key=before)),
        candidate.election in ("unclean", "unknown"),
        tuple(absent),
        aside,
        (candidate.broker, *(broker for broker in ordered if broker not in refused)),
        tuple(broker for broker in ordered if broker in refused),
        any_order,
    )


def _is_rival(given: PlanPartition, candidate: Candidate, node: Broker, *, earlier: bool) -> bool:
    """Whether a broker could be elected in the candidate's place if it were alive; `earlier`: the assignment names it first.

    Where unclean elections are on, the controller makes one as soon as nobody in sync is alive: then anyone could.
    """
    control = given.control
    if candidate.election == "leads":
        return False
    if candidate.election == "unknown" or control is None or control.unclean_enabled:
        return True
    if node in (control.leader, control.last_leader):
        return True
    in_isr, in_elr = node in (control.isr or ()), node in (control.elr or ())
    match candidate.election:
        case "clean":
            return in_isr and earlier
        case "elr":
            return in_isr or (in_elr and earlier)
        case _:
            return in_isr or in_elr or earlier or control.unclean_enabled is None


def _harm(one: FollowerPlan) -> int:
    return sum(end - start for start, end in one.lost)


def _stays(one: FollowerPlan, replica: PlanReplica, leader: PlanReplica) -> bool:
    """Whether a follower would halt, or keep what is not the leader's or damaged; not for what is damaged in the leader's log, of
    which it may be the better copy."""
    if one.truncation_offset is None:
        return False
    damaged = clipped(replica.damaged, replica.log_start_offset, one.truncation_offset)
    return one.halts or bool(without(normalised((*one.kept, *damaged)), leader.damaged))
