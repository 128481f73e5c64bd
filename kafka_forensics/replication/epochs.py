"""Rules of leader epochs: where an epoch ends, where a follower cuts (LeaderEpochFileCache, AbstractFetcherThread)."""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kafka_forensics.model.files import EpochEntry

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEndOffset(NamedTuple):
    """An epoch a log knows and the (exclusive) offset at which it ends there; both -1 if undefined."""

    leader_epoch: int
    end_offset: int


_EPOCH: Final = attrgetter("leader_epoch")
UNDEFINED: Final = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


def end_offset_for(entries: Sequence[EpochEntry], leader_epoch: int, log_end_offset: int) -> EpochEndOffset:
    """What a log with these epochs answers to OffsetsForLeaderEpoch (KIP-101, KIP-279): the largest epoch not above the one
    asked for, and where it ends. An epoch older than all known is answered with itself and the first known start."""
    if leader_epoch == UNDEFINED_EPOCH or not entries or leader_epoch > entries[-1].leader_epoch:
        return UNDEFINED
    if leader_epoch == entries[-1].leader_epoch:
        return EpochEndOffset(leader_epoch, log_end_offset)
    if leader_epoch < entries[0].leader_epoch:
        return EpochEndOffset(leader_epoch, entries[0].start_offset)
    behind = bisect_right(entries, leader_epoch, key=_EPOCH)
    return EpochEndOffset(entries[behind - 1].leader_epoch, entries[behind].start_offset)


def epoch_at(entries: Sequence[EpochEntry], offset: int) -> int | None:
    """Leader epoch of an offset by these entries, in any order; None before the first (LeaderEpochFileCache.epochForOffset)."""
    return max((entry.leader_epoch for entry in entries if entry.start_offset <= offset), default=None)


def assign_epoch(cache: list[EpochEntry], entry: EpochEntry) -> None:
    """Note in a log's epochs, in place, that one begins (LeaderEpochFileCache.assign): those behind it that are not older, or start
    not below it, are dropped."""
    while cache and (cache[-1].leader_epoch >= entry.leader_epoch or cache[-1].start_offset >= entry.start_offset):
        cache.pop()
    cache.append(entry)


def truncation_offset(
    follower: Sequence[EpochEntry],
    follower_end: int,
    leader: Sequence[EpochEntry],
    leader_end: int,
    *,
    follower_high_watermark: int | None = None,
) -> int:
    """Offset at which a follower with these epochs cuts its log when it follows this leader, asking again until both agree
    (AbstractFetcherThread.getOffsetTruncationState, KIP-279).

    Without epochs in the follower's log, or where the leader knows none as late, it is the follower's high watermark (the rule
    before KIP-101), 0 if that is unknown. Epochs that begin at the follower's end have written nothing and ask for nothing.
    Where no epoch is left to ask for, a log that is too long is cut to the leader's end.
    """
    end = follower_end
    if not follower:
        return min(end, follower_high_watermark or 0)
    known = [entry for entry in follower if entry.start_offset < end]
    while known:
        answer = end_offset_for(leader, known[-1].leader_epoch, leader_end)
        if answer == UNDEFINED:
            return min(end, follower_high_watermark or 0)
        own = end_offset_for(known, answer.leader_epoch, end)
        cut = min(own.end_offset, answer.end_offset) if own.leader_epoch == answer.leader_epoch else own.end_offset
        if cut >= end:
            break
        end = cut
        while known and known[-1].start_offset >= end:
            known.pop()
        if known and known[-1].leader_epoch == answer.leader_epoch:  # asked for again, it would be answered alike
            break
    return min(end, leader_end)


def follower_cut(
    follower: Sequence[EpochEntry],
    follower_start: int,
    follower_end: int,
    leader: Sequence[EpochEntry],
    leader_end: int,
    high_watermark: int | None,
) -> int:
    """Where a follower's log ends under a leader once it has cut, before it fetches; `leader` has the epoch that one begins, too.

    A log still longer than the leader's is out of its range, and cut to its end. No high watermark lies below its log start
    (UnifiedLog.updateHighWatermark). One that ends below the leader's log start then begins anew there.
    """
    watermark = max(high_watermark or 0, follower_start)
    return min(leader_end, truncation_offset(follower, follower_end, leader, leader_end, follower_high_watermark=watermark))
