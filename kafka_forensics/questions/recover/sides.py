"""Which side of a partition `recover` keeps, who decides it, and why it may remain undecided."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec import Struct

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import Inputs, broker_order
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.questions.plan import Planned, is_dead, name_of_copy, node_ids
from kafka_forensics.replication.planner import Broker, Candidate, TruncateBy


class PlannedLeader(NamedTuple):
    """What a plan says about one partition: its leader, None where it recommends none, and how followers truncate."""

    broker: Broker | None
    truncate_by: TruncateBy


PlannedLeaders = Mapping[TopicPartition, PlannedLeader]
"""The leaders of a plan, of each partition that matters to it."""


class KeptSide(Struct, frozen=True):
    """The election whose losses count, and why: `requested` (--keep N), `plan` (--plan), `leader` (controllers' log),
    `recommended` (no copies conflict)."""

    candidate: Candidate
    why: str
    some_are_dead: bool = False
    """Whether some copies belong to dead brokers, and may conflict with the others."""

    @property
    def message(self) -> str:
        """The choice in words, without a full stop."""
        why = "no copy of a known leader was given, and no copies conflict"
        if self.some_are_dead:
            why = "no known leader comes back, and the copies of the other brokers do not conflict"
        reasons = {
            "requested": "as requested with --keep",
            "plan": "the leader of the plan",
            "leader": "the leader in the controller's log",
            "recommended": f"recommended by the plan: {why}",
        }
        return f"broker {self.candidate.broker} is kept, {reasons[self.why]}"


class Undecided(Struct, frozen=True):
    """Why no side is kept, and what to do about it."""

    reason: str
    hint: str


def name_of_kept(keep: str, inputs: Inputs, dead: Collection[str]) -> str:
    """The name here of the broker to keep. Raises UsageError if it is dead, or no copy of it is here."""
    (node,) = node_ids([keep], inputs)
    contradicting = [name for name in sorted(dead) if is_dead([keep, node], name, *node_ids([name], inputs))]
    if contradicting:
        text = f"--keep {keep} and --dead {keep if keep in contradicting else contradicting[0]} contradict each other"
        raise UsageError(text, hint="a broker that will not come back keeps no records")
    name = name_of_copy(keep, inputs)
    brokers = {plan.context.broker for plan in inputs.replicas if plan.context.topic != CLUSTER_METADATA_TOPIC}
    if name in map(str, {*brokers, *(log_dir.broker for log_dir in inputs.log_dirs)}):
        return name
    for log_dir in inputs.log_dirs:
        if any(directory.topic != CLUSTER_METADATA_TOPIC for directory in log_dir.found.partitions):
            brokers.add(log_dir.broker)
    names = listed(str(broker) for broker in sorted(brokers, key=broker_order))
    hint = f"--keep needs a broker with a given copy: {names}" if names else "give the log directories of its replicas"
    raise UsageError(f"no copy belongs to broker {keep}", hint=hint)


def kept_side(planned: Planned, keep: str | PlannedLeader | None) -> KeptSide | Undecided:
    """The requested or planned side, else that of the current leader, else the recommended one if no copies conflict."""
    partition, candidates = planned.planner_input, planned.plan.candidates
    if not candidates:
        hint = "`plan` shows why, and what to repair before a broker starts"
        return Undecided("no broker can lead with these copies, so no side stays", hint)
    absent = {replica.broker for replica in partition.replicas if replica.is_absent}
    names = listed(str(candidate.broker) for candidate in candidates if candidate.broker not in absent)
    is_live = [replica.is_live for replica in partition.replicas]
    if isinstance(keep, PlannedLeader) and keep.broker is None:
        return Undecided("the plan recommends no leader", f"choose the copy to keep with --keep N: {names}")
    if keep is not None:
        broker, why = (str(keep.broker), "plan") if isinstance(keep, PlannedLeader) else (keep, "requested")
        requested = next((candidate for candidate in candidates if str(candidate.broker) == broker), None)
        if requested is None:
            return Undecided(f"broker {broker} cannot lead with these copies", f"brokers that can lead here: {names}")
        return KeptSide(requested, why)
    current = planned.current_leader
    is_absent = current is not None and any(replica.is_absent for replica in partition.replicas if replica.broker == current.broker)
    if current is not None and not (is_absent and current.losses):
        return KeptSide(current, "leader")
    if is_absent or any(ranges for (i, j), ranges in partition.differing.items() if is_live[i] and is_live[j]):
        leader = None if partition.control is None else partition.control.leader
        if is_absent:
            why = f"its leader, broker {leader}, has no directory of this partition"
        elif leader is None:
            why = "no given controller's log shows the leader"
        elif leader < 0:
            why = "it has no leader"
        elif leader in partition.dead:
            why = f"its leader, broker {leader}, will not come back"
        else:
            why = f"no given copy of its leader, broker {leader}, can start"
        differ = "" if is_absent else ", and the copies have different records at the same offsets"
        return Undecided(
            f"{why}{differ}",
            f"choose the copy to keep with --keep N ({names}), or the leaders of a plan with --plan FILE",
        )
    assert planned.recommended is not None
    return KeptSide(planned.recommended, "recommended", some_are_dead=not all(is_live))
