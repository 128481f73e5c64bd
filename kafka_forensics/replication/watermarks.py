"""Log end, high watermark and last stable offset of leader and followers, one fetch after another.

A leader learns how far a follower is from where that fetches next, so its high watermark is a round behind, and the follower,
who is told with the answer, one more (Partition.maybeIncrementLeaderHW, UnifiedLog.maybeUpdateHighWatermark).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class LeaderState:
    """A leader's view of its partition; `follower_ends` are the log ends that fetches told, for every other replica.

    `waiting` names followers outside the ISR that are caught up and may join it: the high watermark waits for them too.
    `min_insync_replicas` is the topic's; it never asks for more than there are replicas.
    """

    leader: int
    log_end_offset: int
    high_watermark: int
    isr: frozenset[int]
    follower_ends: Mapping[int, int] = field(default_factory=dict)
    pending_isr: frozenset[int] = frozenset()
    """Members that the controller was asked to add and has not confirmed: with `isr` the maximal ISR."""
    waiting: frozenset[int] = frozenset()
    min_insync_replicas: int = 1
    freezes: bool = True
    """Whether the version freezes the high watermark below min.insync.replicas (since 3.7)."""

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Whoever is in the ISR or may be already (KIP-497)."""
        return self.isr | self.pending_isr

    @property
    def under_min_isr(self) -> bool:
        """Whether the ISR is smaller than min.insync.replicas, or than all replicas if those are fewer
        (Partition.isUnderMinIsr)."""
        return len(self.isr) < min(self.min_insync_replicas, len(self.follower_ends) + 1)


def raised(state: LeaderState) -> LeaderState:
    """The leader after it looked at all log ends: its high watermark is the smallest of them, if that is higher.

    Counted are its own, those of the maximal ISR, and of who is about to join. A replica that never fetched holds it back
    (Partition.maybeIncrementLeaderHW).
    """
    if state.freezes and state.under_min_isr:
        return state
    counted = (state.maximal_isr | state.waiting) - {state.leader}
    lowest = min([state.log_end_offset, *(state.follower_ends.get(broker, -1) for broker in counted)])
    return replace(state, high_watermark=max(state.high_watermark, lowest))


def follower_high_watermark(leader_high_watermark: int, log_end_offset: int, log_start_offset: int = 0) -> int:
    """A follower's high watermark after it appended what a fetch brought: the leader's, within its own log. It may go down
    (UnifiedLog.updateHighWatermark)."""
    return max(log_start_offset, min(leader_high_watermark, log_end_offset))


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction's first offset, and the offset of its marker (None: none yet)."""

    first_offset: int
    last_offset: int | None = None


def last_stable_offset(high_watermark: int, transactions: Iterable[Transaction]) -> int:
    """Where readers of committed data stop: before the first offset of any transaction that is open, or whose marker is not below
    the high watermark yet (ProducerStateManager.firstUnstableOffset, UnifiedLog.fetchLastStableOffsetMetadata)."""
    unstable = (
        transaction.first_offset
        for transaction in transactions
        if transaction.last_offset is None or transaction.last_offset >= high_watermark
    )
    return min(high_watermark, min(unstable, default=high_watermark))
