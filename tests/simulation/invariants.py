"""The invariants of the protocol model as predicates on one state, with which `search.broken` is compared."""

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Final

from kafka_forensics.simulation.model import INVARIANTS, ModelReplica, ModelState, leader_of, true_leader


def strong_isr(state: ModelState) -> bool:
    """Every member of the controller's ISR has what any self-declared leader considers committed."""
    return all(_all_have_committed(state, leader, state.isr) for leader in _self_declared_leaders(state))


def weak_isr(state: ModelState) -> bool:
    """Every member of a self-declared leader's ISR has what that leader considers committed."""
    return all(_all_have_committed(state, leader, leader.isr) for leader in _self_declared_leaders(state))


def leader_in_isr(state: ModelState) -> bool:
    """The controller's leader, if there is one, is in the controller's ISR."""
    leader = state.requests[-1].leader if state.requests else None
    return leader is None or leader in state.isr


def epoch_monotone(state: ModelState) -> bool:
    """Epochs never decrease within a log."""
    return all(
        record.leader_epoch <= following.leader_epoch for replica in state.replicas for record, following in pairwise(replica.log)
    )


def settled_agreement(state: ModelState) -> bool:
    """A follower in the true leader's epoch has the leader's records wherever both have any."""
    leader = true_leader(state)
    if leader is None:
        return True
    source = state.replicas[leader]
    return all(_agree(source, replica) for replica in state.replicas if replica.leader_epoch == source.leader_epoch)


def log_matching(state: ModelState) -> bool:
    """Two replicas agree below the lower of their high watermarks."""
    return all(
        _agree(replica, other, min(replica.high_watermark, other.high_watermark))
        for replica, other in combinations(state.replicas, 2)
    )


def same_epoch_agreement(state: ModelState) -> bool:
    """Two replicas never have different records of one epoch at one offset."""
    return not any(
        record != counterpart and record.leader_epoch == counterpart.leader_epoch
        for replica, other in combinations(state.replicas, 2)
        for record, counterpart in zip(replica.log, other.log, strict=False)
    )


def committed_on_isr(state: ModelState) -> bool:
    """Every member of the controller's ISR has every record that was ever committed."""
    return all(state.committed <= _numbers(state.replicas[member]) for member in state.isr)


def committed_on_leader(state: ModelState) -> bool:
    """The true leader has every record that was ever committed."""
    leader = true_leader(state)
    return leader is None or state.committed <= _numbers(state.replicas[leader])


def committed_somewhere(state: ModelState) -> bool:
    """Every record that was ever committed is on some replica."""
    return state.committed <= frozenset().union(*map(_numbers, state.replicas))


PREDICATES: Final[dict[str, Callable[[ModelState], bool]]] = dict(
    zip(
        INVARIANTS,
        (
            *(strong_isr, weak_isr, leader_in_isr, epoch_monotone, settled_agreement, log_matching, same_epoch_agreement),
            *(committed_on_isr, committed_on_leader, committed_somewhere),
        ),
        strict=True,
    )
)
"""Name → predicate, in the order of `INVARIANTS`."""


def _self_declared_leaders(state: ModelState) -> list[ModelReplica]:
    return [replica for number, replica in enumerate(state.replicas) if leader_of(state, number) == number]


def _all_have_committed(state: ModelState, leader: ModelReplica, isr: frozenset[int]) -> bool:
    committed = leader.log[: leader.high_watermark]
    complete = len(committed) == leader.high_watermark
    return complete and all(state.replicas[member].log[: leader.high_watermark] == committed for member in isr)


def _agree(replica: ModelReplica, other: ModelReplica, end: int | None = None) -> bool:
    return all(record == counterpart for record, counterpart in zip(replica.log[:end], other.log[:end], strict=False))


def _numbers(replica: ModelReplica) -> frozenset[int]:
    return frozenset(record.number for record in replica.log)
