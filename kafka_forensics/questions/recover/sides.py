"""Which side of a partition stays, by whom that was decided, and where nothing decides it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import Inputs, broker_order
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.questions.plan import Planned, dead_nodes, is_of_dead, name_here
from kafka_forensics.replication.planner import Candidate

ASKED: Final = "asked"
LEADER: Final = "leader"
RECOMMENDED: Final = "recommended"


@dataclass(frozen=True, slots=True)
class Kept:
    """The election that counts, and why: `asked` (--keep), `leader` (by the controllers' log), `recommended` (by the plan)."""

    candidate: Candidate
    why: str
    of_some: bool = False
    """Whether copies are here of brokers that will not come back, which may conflict with the others."""

    @property
    def sentence(self) -> str:
        """The same in words, without a full stop."""
        alike = "no leader is known whose copy is here, and no copies conflict"
        if self.of_some:
            alike = "no leader is known that comes back, and of brokers that do no copies conflict"
        reasons = {
            ASKED: "as --keep says",
            LEADER: "which leads, by the controller's last word",
            RECOMMENDED: f"whom the plan recommends: {alike}",
        }
        return f"broker {self.candidate.broker} is kept, {reasons[self.why]}"


@dataclass(frozen=True, slots=True)
class Undecided:
    """Why no side is taken, and what to do about it."""

    reason: str
    hint: str


def name_of_kept(keep: str | None, inputs: Inputs, dead: Collection[str]) -> str | None:
    """What the broker to be kept is called here. Raises UsageError if it is dead, or no copy of it is here."""
    if keep is not None:
        (node,) = dead_nodes([keep], inputs)
        both = [name for name in sorted(dead) if is_of_dead([keep, node], name, *dead_nodes([name], inputs))]
        if both:
            text = f"--keep {keep} and --dead {keep if keep in both else both[0]} contradict each other"
            raise UsageError(text, hint="a broker that will not come back keeps no records")
    of_data = {
        log_dir.broker
        for log_dir in inputs.log_dirs
        if any(directory.topic != CLUSTER_METADATA_TOPIC for directory in log_dir.found.partitions)
    }
    of_data |= {plan.context.broker for plan in inputs.replicas if plan.context.topic != CLUSTER_METADATA_TOPIC}
    names = [str(broker) for broker in sorted(of_data, key=broker_order)]
    here = None if keep is None else name_here(keep, inputs)
    if here is None or here in names or any(str(log_dir.broker) == here for log_dir in inputs.log_dirs):
        return here
    hint = f"--keep takes a broker whose copy is here: {listed(names)}" if names else "give the log directories of its replicas"
    raise UsageError(f"no copy here is of broker {keep}", hint=hint)


def kept_side(planned: Planned, keep: str | None) -> Kept | Undecided:
    """The side that stays: the one asked for, else the present leader, else the recommended one where no copies conflict."""
    candidates = planned.plan.candidates
    names = listed(str(candidate.broker) for candidate in candidates)
    if not candidates:
        return Undecided(
            "nobody can lead on these copies, so that no side stays", "`plan` says why, and what to mend before a broker starts"
        )
    given = planned.given
    is_live = [replica.is_live for replica in given.replicas]
    if keep is not None:
        chosen = next((candidate for candidate in candidates if str(candidate.broker) == keep), None)
        if chosen is None:
            return Undecided(f"broker {keep} cannot lead on these copies", f"brokers that can lead here: {names}")
        return Kept(chosen, ASKED)
    leader = None if given.control is None else given.control.leader
    if planned.leading is not None:
        return Kept(planned.leading, LEADER)
    if any(ranges for (i, j), ranges in given.differing.items() if is_live[i] and is_live[j]):
        who = "no controller's log here says who leads" if leader is None else "it has no leader"
        if leader is not None and leader >= 0:
            is_dead = leader in given.dead
            who = f"of its leader, broker {leader}, no copy is here that could start"
            who = f"its leader, broker {leader}, will not come back" if is_dead else who
        return Undecided(
            f"{who}, and the copies hold different records at the same offsets",
            f"say which copy stays with --keep N: {names}; `plan` says what each would lose",
        )
    best = planned.recommended
    assert best is not None
    return Kept(best, RECOMMENDED, of_some=not all(is_live))
