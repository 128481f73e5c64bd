"""Leader elections of the controller, and the ISR and ELR after them (PartitionChangeBuilder, KIP-966).

Before KRaft the rules were the same without the ELR (PartitionLeaderElectionAlgorithms).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from kafka_forensics.model.controller import NO_LEADER


class ElectionInput(Struct, frozen=True):
    """The input of an election: the assignment in order, the brokers that are alive (not fenced), ISR, ELR and present leader.

    `last_known_leader` is set while there is no leader, if the ELR is enabled.
    """

    assignment: tuple[int, ...]
    alive: frozenset[int]
    isr: frozenset[int]
    leader: int = NO_LEADER
    elr: frozenset[int] = frozenset()
    last_known_leader: int | None = None


class ElectionResult(Struct, frozen=True):
    """The leader (-1: none), the rule that elected it, and the ISR and ELR afterwards.

    `kind` is `stays`, `clean`, `elr`, `last_known_leader`, `unclean` or `none`. `last_known_leader` and `unclean` may lose
    committed records; the partition is then marked as recovering.
    """

    leader: int
    kind: str
    isr: frozenset[int]
    elr: frozenset[int]

    @property
    def may_lose(self) -> bool:
        """Whether the leader may lack committed records."""
        return self.kind in ("last_known_leader", "unclean")


def elect(candidates: ElectionInput, *, unclean: bool = False, preferred: bool = False) -> ElectionResult:
    """The outcome of an election (PartitionChangeBuilder.electLeader); `unclean` is unclean.leader.election.enable, or a request
    for an unclean election.

    The leader stays if it may, except in an election of the preferred replica. Otherwise the first broker in the assignment leads
    that is alive and in the ISR, or in the ELR while the ISR is empty; then the last known leader if ISR and ELR are empty; then,
    uncleanly, the first that is alive, whatever its log lacks.
    """
    order = [candidates.leader, *candidates.assignment]
    if preferred:
        order = [*candidates.assignment[:1], *order]
    for broker in order:
        if broker in candidates.alive and broker in (candidates.isr or candidates.elr):
            kind = "stays" if broker == candidates.leader else "clean" if candidates.isr else "elr"
            if candidates.isr:
                return ElectionResult(broker, kind, candidates.isr, candidates.elr)
            return ElectionResult(broker, kind, frozenset({broker}), candidates.elr - {broker})
    last = candidates.last_known_leader
    if last is not None and last in candidates.alive and not candidates.isr and not candidates.elr:
        return ElectionResult(last, "last_known_leader", frozenset({last}), frozenset())
    first = next((broker for broker in candidates.assignment if broker in candidates.alive), None)
    if unclean and not preferred and first is not None:
        return ElectionResult(first, "unclean", frozenset({first}), frozenset())
    return ElectionResult(NO_LEADER, "none", candidates.isr, candidates.elr)


def isr_without(isr: frozenset[int], removed: Iterable[int], *, elr_enabled: bool) -> frozenset[int]:
    """The ISR without some brokers; its last member stays unless the ELR is enabled (ReplicationControlManager, KIP-966)."""
    remaining = isr.difference(removed)
    return remaining if remaining or elr_enabled else isr


def eligible_leader_replicas(
    isr_before: Iterable[int], elr_before: Iterable[int], isr: Iterable[int], min_insync_replicas: int
) -> frozenset[int]:
    """The ELR after a change of the ISR (PartitionChangeBuilder, KIP-966).

    It is empty once the ISR has min.insync.replicas members. Otherwise every broker is in it that has left the ISR since then: the
    high watermark has stood still.
    """
    members = frozenset(isr)
    return frozenset() if len(members) >= min_insync_replicas else frozenset(elr_before).union(isr_before) - members


# In-sync replicas: how a leader applies replica.lag.time.max.ms to its followers (Partition, Replica, ReplicaState).


UNKNOWN: Final = -1


class FetchState(Struct, frozen=True):
    """What a leader knows of one follower from its fetches; offsets are exclusive ends, -1: it never fetched.

    `last_caught_up_ms` is the latest time at which the follower is known to have had the leader's whole log.
    """

    log_end_offset: int = UNKNOWN
    last_caught_up_ms: int = 0
    last_fetch_ms: int = 0
    last_fetch_leader_end: int = 0


def fetched(follower: FetchState, fetch_offset: int, leader_end: int, now_ms: int) -> FetchState:
    """The state of a follower after a fetch at `fetch_offset` from a log that ends at `leader_end`
    (Replica.updateFetchStateOrThrow).

    A fetch at the leader's log end means that the follower has everything now. A fetch at the leader's log end of the previous
    fetch means that it had everything then.
    """
    caught_up = follower.last_caught_up_ms
    if fetch_offset >= leader_end:
        caught_up = max(caught_up, now_ms)
    elif fetch_offset >= follower.last_fetch_leader_end:
        caught_up = max(caught_up, follower.last_fetch_ms)
    return FetchState(fetch_offset, caught_up, now_ms, leader_end)


def is_caught_up(follower: FetchState, leader_end: int, now_ms: int, replica_lag_time_max_ms: int) -> bool:
    """Whether a follower is at the leader's log end, or was within replica.lag.time.max.ms (ReplicaState.isCaughtUp)."""
    return follower.log_end_offset == leader_end or now_ms - follower.last_caught_up_ms <= replica_lag_time_max_ms


def out_of_sync(
    isr: Iterable[int], leader: int, followers: Mapping[int, FetchState], leader_end: int, now_ms: int, replica_lag_time_max_ms: int
) -> frozenset[int]:
    """ISR members that the leader removes (Partition.getOutOfSyncReplicas). It checks every half of replica.lag.time.max.ms, so a
    stopped follower may stay for one and a half times that."""
    return frozenset(
        broker
        for broker in isr
        if broker != leader and not is_caught_up(followers.get(broker, FetchState()), leader_end, now_ms, replica_lag_time_max_ms)
    )


def may_join(follower_end: int, high_watermark: int, leader_epoch_start_offset: int) -> bool:
    """Whether a follower may join the ISR (Partition.isFollowerInSync): it has reached the high watermark, and the start of the
    leader's epoch, because a new leader's high watermark may be too low (KIP-320).

    It must also be alive, neither fenced nor shutting down (KIP-841).
    """
    return follower_end >= max(high_watermark, leader_epoch_start_offset)
