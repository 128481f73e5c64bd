"""Whom the controller elects, and what becomes of ISR and ELR (PartitionChangeBuilder, KIP-966).

Before KRaft the rules were the same but for the ELR (PartitionLeaderElectionAlgorithms).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_forensics.model.controller import NO_LEADER


@dataclass(frozen=True, slots=True)
class Candidates:
    """What an election looks at: replicas in the order of their assignment, who is alive (not fenced), and who is known to have
    all that is committed.

    `last_known_leader` is set while there is no leader, where the ELR is enabled.
    """

    assignment: tuple[int, ...]
    alive: frozenset[int]
    isr: frozenset[int]
    leader: int = NO_LEADER
    elr: frozenset[int] = frozenset()
    last_known_leader: int | None = None


@dataclass(frozen=True, slots=True)
class Elected:
    """Who leads (-1: nobody), by which rule, with which ISR and ELR.

    `kind`: `stays`, `clean`, `elr`, `last-known-leader`, `unclean` or `none`. The last two elections may lose committed records;
    the leader is then marked as recovering.
    """

    leader: int
    kind: str
    isr: frozenset[int]
    elr: frozenset[int]

    @property
    def may_lose(self) -> bool:
        """Whether the leader may lack what was committed."""
        return self.kind in ("last-known-leader", "unclean")


def elect(given: Candidates, *, unclean: bool = False, preferred: bool = False) -> Elected:
    """The outcome of an election; `unclean` is unclean.leader.election.enable, or the operator's own request.

    A leader that may stay does, but for an election of the preferred replica, the first in the assignment. Else it is the first in
    the assignment that is alive and in the ISR, or in the ELR once the ISR is empty; then the last known leader, if neither
    has any member; then, uncleanly, the first that is alive, however short its log may be (PartitionChangeBuilder.electLeader).
    """
    if preferred and given.assignment and _is_electable(given, given.assignment[0]):
        return _elected(given, given.assignment[0])
    if _is_electable(given, given.leader):
        return _elected(given, given.leader)
    for broker in given.assignment:
        if _is_electable(given, broker):
            return _elected(given, broker)
    last = given.last_known_leader
    if last is not None and last in given.alive and not given.isr and not given.elr:
        return Elected(last, "last-known-leader", frozenset({last}), frozenset())
    first = next((broker for broker in given.assignment if broker in given.alive), None)
    if unclean and not preferred and first is not None:
        return Elected(first, "unclean", frozenset({first}), frozenset())
    return Elected(NO_LEADER, "none", given.isr, given.elr)


def without(isr: Iterable[int], gone: Iterable[int], *, elr_enabled: bool) -> frozenset[int]:
    """The ISR once `gone` replicas are taken out of it: its last member stays, unless there is an ELR to hold it
    (ReplicationControlManager, KIP-966)."""
    members = frozenset(isr)
    left = members - frozenset(gone)
    return left if left or elr_enabled else members


def eligible_leader_replicas(
    isr_before: Iterable[int],
    elr_before: Iterable[int],
    isr: Iterable[int],
    min_insync_replicas: int,
    unclean_shutdown: Iterable[int] = (),
) -> frozenset[int]:
    """The ELR after a change of the ISR: none once the ISR is large enough; else whoever left it since it was, because the high
    watermark has stood still since; not who came back from an unclean shutdown and may have lost its last records
    (PartitionChangeBuilder, KIP-966)."""
    members = frozenset(isr)
    if len(members) >= min_insync_replicas:
        return frozenset()
    return (frozenset(elr_before) | frozenset(isr_before)) - members - frozenset(unclean_shutdown)


def _is_electable(given: Candidates, replica: int) -> bool:
    return replica in given.alive and replica in (given.isr or given.elr)


def _elected(given: Candidates, leader: int) -> Elected:
    kind = "stays" if leader == given.leader else "clean" if given.isr else "elr"
    if given.isr:
        return Elected(leader, kind, given.isr, given.elr)
    return Elected(leader, kind, frozenset({leader}), given.elr - {leader})


# Who is in sync: how a leader judges its followers by replica.lag.time.max.ms (Partition, Replica, ReplicaState).


UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class FetchState:
    """What a leader knows of one follower, from its fetches alone; offsets exclusive ends, -1 where it never fetched.

    `last_caught_up_ms` is the latest moment of which the leader knows that the follower had all there was.
    """

    log_end_offset: int = UNKNOWN
    last_caught_up_ms: int = 0
    last_fetch_ms: int = 0
    last_fetch_leader_end: int = 0


def fetched(follower: FetchState, fetch_offset: int, leader_end: int, now_ms: int) -> FetchState:
    """What a fetch at `fetch_offset` tells the leader, whose log ends at `leader_end` (Replica.updateFetchStateOrThrow).

    A follower that asks for the leader's end has all there is now; one that asks for what was the end at its last fetch had all
    there was then.
    """
    caught_up = follower.last_caught_up_ms
    if fetch_offset >= leader_end:
        caught_up = max(caught_up, now_ms)
    elif fetch_offset >= follower.last_fetch_leader_end:
        caught_up = max(caught_up, follower.last_fetch_ms)
    return FetchState(fetch_offset, caught_up, now_ms, leader_end)


def is_caught_up(follower: FetchState, leader_end: int, now_ms: int, replica_lag_time_max_ms: int) -> bool:
    """Whether a follower is at the leader's end, or was not longer ago than replica.lag.time.max.ms (ReplicaState.isCaughtUp)."""
    return follower.log_end_offset == leader_end or now_ms - follower.last_caught_up_ms <= replica_lag_time_max_ms


def out_of_sync(
    isr: Iterable[int], leader: int, followers: Mapping[int, FetchState], leader_end: int, now_ms: int, replica_lag_time_max_ms: int
) -> frozenset[int]:
    """Members of the ISR that the leader puts out of it (Partition.getOutOfSyncReplicas); it looks every half of that time, so a
    follower that stopped may stay for one and a half times replica.lag.time.max.ms."""
    return frozenset(
        broker
        for broker in isr
        if broker != leader and not is_caught_up(followers.get(broker, FetchState()), leader_end, now_ms, replica_lag_time_max_ms)
    )


def may_join(follower_end: int, high_watermark: int, leader_epoch_start_offset: int) -> bool:
    """Whether a follower has come far enough to join the ISR (Partition.isFollowerInSync): to the high watermark, and to the
    first offset of the leader's own epoch, since a new leader's high watermark may be too low (KIP-320's fourth rule).

    It must also be alive, neither fenced nor shutting down (KIP-841).
    """
    return follower_end >= max(high_watermark, leader_epoch_start_offset)
