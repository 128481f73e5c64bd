"""What a replication protocol promises, as predicates on one state of the model."""

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Final

from kafka_forensics.simulation.model import Replica, State, leader_of, true_leader


def strong_isr(state: State) -> bool:
    """What any who takes itself for the leader calls committed lies on every member of the controller's ISR, hence on every
    replica that may be elected."""
    return all(_all_hold(state, leader, state.isr) for leader in _presumed(state))


def weak_isr(state: State) -> bool:
    """The same for the ISR as that leader sees it."""
    return all(_all_hold(state, leader, leader.isr) for leader in _presumed(state))


def leader_in_isr(state: State) -> bool:
    """The controller's leader, if there is one, is in the controller's ISR."""
    leader = state.requests[-1].leader if state.requests else None
    return leader is None or leader in state.isr


def epoch_monotone(state: State) -> bool:
    """Within a log, epochs never go down."""
    return all(record.leader_epoch <= two.leader_epoch for replica in state.replicas for record, two in pairwise(replica.log))


def settled_agreement(state: State) -> bool:
    """A follower in the true leader's epoch holds the leader's records wherever both have any."""
    leader = true_leader(state)
    if leader is None:
        return True
    own = state.replicas[leader]
    return all(_agree(own, replica) for replica in state.replicas if replica.leader_epoch == own.leader_epoch)


def log_matching(state: State) -> bool:
    """Two replicas agree below the lower of their high watermarks."""
    return all(
        _agree(replica, two, min(replica.high_watermark, two.high_watermark)) for replica, two in combinations(state.replicas, 2)
    )


def same_epoch_agreement(state: State) -> bool:
    """Two replicas never hold different records of one epoch at one offset."""
    return not any(
        own != their and own.leader_epoch == their.leader_epoch
        for replica, two in combinations(state.replicas, 2)
        for own, their in zip(replica.log, two.log, strict=False)
    )


def committed_on_isr(state: State) -> bool:
    """Every member of the controller's ISR holds all that was ever committed."""
    return all(state.committed <= _numbers(state.replicas[one]) for one in state.isr)


def committed_on_leader(state: State) -> bool:
    """The true leader holds all that was ever committed."""
    leader = true_leader(state)
    return leader is None or state.committed <= _numbers(state.replicas[leader])


def committed_somewhere(state: State) -> bool:
    """All that was ever committed is left on some replica."""
    return state.committed <= frozenset().union(*map(_numbers, state.replicas))


INVARIANTS: Final[dict[str, Callable[[State], bool]]] = {
    "StrongIsr": strong_isr,
    "WeakIsr": weak_isr,
    "LeaderInIsr": leader_in_isr,
    "EpochMonotone": epoch_monotone,
    "SettledAgreement": settled_agreement,
    "LogMatching": log_matching,
    "SameEpochAgreement": same_epoch_agreement,
    "CommittedOnIsr": committed_on_isr,
    "CommittedOnLeader": committed_on_leader,
    "CommittedSomewhere": committed_somewhere,
}
"""By name; the first four are those of the specification, their numbers here are bits in `search.broken`."""
OF_HISTORY: Final = frozenset({"CommittedOnIsr", "CommittedOnLeader", "CommittedSomewhere"})
"""Those that need the history: which records were ever committed."""


def _presumed(state: State) -> list[Replica]:
    return [one for replica, one in enumerate(state.replicas) if leader_of(state, replica) == replica]


def _all_hold(state: State, leader: Replica, isr: frozenset[int]) -> bool:
    below = leader.log[: leader.high_watermark]
    whole = len(below) == leader.high_watermark
    return whole and all(state.replicas[one].log[: leader.high_watermark] == below for one in isr)


def _agree(replica: Replica, two: Replica, end: int | None = None) -> bool:
    return all(own == their for own, their in zip(replica.log[:end], two.log[:end], strict=False))


def _numbers(replica: Replica) -> frozenset[int]:
    return frozenset(record.number for record in replica.log)
