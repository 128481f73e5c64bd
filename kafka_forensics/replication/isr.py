"""Who is in sync: how a leader judges its followers by replica.lag.time.max.ms (Partition, Replica, ReplicaState)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Progress:
    """What a leader knows of one follower, from its fetches alone; offsets exclusive ends, -1 where it never fetched.

    `last_caught_up_ms` is the latest moment of which the leader knows that the follower had all there was.
    """

    log_end_offset: int = UNKNOWN
    last_caught_up_ms: int = 0
    last_fetch_ms: int = 0
    last_fetch_leader_end: int = 0


def fetched(follower: Progress, fetch_offset: int, leader_end: int, now_ms: int) -> Progress:
    """What a fetch at `fetch_offset` tells the leader, whose log ends at `leader_end` (Replica.updateFetchStateOrThrow).

    A follower that asks for the leader's end has all there is now; one that asks for what was the end at its last fetch had all
    there was then.
    """
    caught_up = follower.last_caught_up_ms
    if fetch_offset >= leader_end:
        caught_up = max(caught_up, now_ms)
    elif fetch_offset >= follower.last_fetch_leader_end:
        caught_up = max(caught_up, follower.last_fetch_ms)
    return Progress(fetch_offset, caught_up, now_ms, leader_end)


def is_caught_up(follower: Progress, leader_end: int, now_ms: int, replica_lag_time_max_ms: int) -> bool:
    """Whether a follower is at the leader's end, or was not longer ago than replica.lag.time.max.ms (ReplicaState.isCaughtUp)."""
    return follower.log_end_offset == leader_end or now_ms - follower.last_caught_up_ms <= replica_lag_time_max_ms


def out_of_sync(
    isr: Iterable[int], leader: int, followers: Mapping[int, Progress], leader_end: int, now_ms: int, replica_lag_time_max_ms: int
) -> frozenset[int]:
    """Members of the ISR that the leader puts out of it (Partition.getOutOfSyncReplicas); it looks every half of that time, so a
    follower that stopped may stay for one and a half times replica.lag.time.max.ms."""
    return frozenset(
        one
        for one in isr
        if one != leader and not is_caught_up(followers.get(one, Progress()), leader_end, now_ms, replica_lag_time_max_ms)
    )


def may_join(follower_end: int, high_watermark: int, leader_epoch_start_offset: int) -> bool:
    """Whether a follower has come far enough to join the ISR (Partition.isFollowerInSync): to the high watermark, and to the
    first offset of the leader's own epoch, since a new leader's high watermark may be too low (KIP-320's fourth rule).

    It must also be alive, neither fenced nor shutting down (KIP-841).
    """
    return follower_end >= max(high_watermark, leader_epoch_start_offset)
