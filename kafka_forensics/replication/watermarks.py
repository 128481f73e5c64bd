"""High watermark and last stable offset of leaders and followers, fetch by fetch.

A leader learns a follower's log end from the offset of its next fetch, and the follower learns the high watermark from the answer.
So both are a round late (Partition.maybeIncrementLeaderHW, UnifiedLog.maybeUpdateHighWatermark).
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace


class LeaderState(Struct, frozen=True):
    """A leader's view of its partition; `follower_ends` are the log ends of all other replicas, -1: it never fetched.

    `min_insync_replicas` is the topic's setting; at most the number of replicas counts.
    """

    leader: int
    log_end_offset: int
    high_watermark: int
    isr: frozenset[int]
    follower_ends: Mapping[int, int] = field(default_factory=dict)
    min_insync_replicas: int = 1
    freezes: bool = True
    """Whether the high watermark stands still below min.insync.replicas (since 3.7)."""

    @property
    def under_min_isr(self) -> bool:
        """Whether the ISR is smaller than min.insync.replicas (Partition.isUnderMinIsr)."""
        return len(self.isr) < min(self.min_insync_replicas, len(self.follower_ends) + 1)


def raised(state: LeaderState) -> LeaderState:
    """The leader with its high watermark raised to the smallest log end in the ISR (Partition.maybeIncrementLeaderHW)."""
    if state.freezes and state.under_min_isr:
        return state
    lowest = min([state.log_end_offset, *(state.follower_ends.get(broker, -1) for broker in state.isr - {state.leader})])
    return replace(state, high_watermark=max(state.high_watermark, lowest))


def follower_high_watermark(leader_high_watermark: int, log_end_offset: int) -> int:
    """A follower's high watermark after a fetch: the leader's, at most its own log end. It may decrease
    (UnifiedLog.updateHighWatermark)."""
    return min(leader_high_watermark, log_end_offset)


class Transaction(Struct, frozen=True):
    """The first offset of a transaction, and the offset of its marker (None: still open)."""

    first_offset: int
    last_offset: int | None = None


def last_stable_offset(high_watermark: int, transactions: Iterable[Transaction]) -> int:
    """Where read_committed consumers stop: before the first transaction that is open or whose marker is not below the high
    watermark (ProducerStateManager.firstUnstableOffset, UnifiedLog.fetchLastStableOffsetMetadata)."""
    unstable = (
        transaction.first_offset
        for transaction in transactions
        if transaction.last_offset is None or transaction.last_offset >= high_watermark
    )
    return min([high_watermark, *unstable])
