"""Leader epochs: where an epoch ends, and where a follower truncates (LeaderEpochFileCache, AbstractFetcherThread)."""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct

from kafka_forensics.model.files import EpochEntry

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEndOffset(NamedTuple):
    """A leader epoch and its end offset in a log, exclusive; both -1 if undefined."""

    leader_epoch: int
    end_offset: int


_EPOCH: Final = attrgetter("leader_epoch")
UNDEFINED: Final = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


def end_offset_for(entries: Sequence[EpochEntry], leader_epoch: int, log_end_offset: int) -> EpochEndOffset:
    """A leader's answer to OffsetsForLeaderEpoch (KIP-101, KIP-279): its largest epoch not above the requested one, and the end of
    that epoch. For an epoch older than all in its log it is the requested epoch and the start of the first."""
    if leader_epoch == UNDEFINED_EPOCH or not entries or leader_epoch > entries[-1].leader_epoch:
        return UNDEFINED
    if leader_epoch == entries[-1].leader_epoch:
        return EpochEndOffset(leader_epoch, log_end_offset)
    if leader_epoch < entries[0].leader_epoch:
        return EpochEndOffset(leader_epoch, entries[0].start_offset)
    following = bisect_right(entries, leader_epoch, key=_EPOCH)
    return EpochEndOffset(entries[following - 1].leader_epoch, entries[following].start_offset)


def epoch_at(entries: Sequence[EpochEntry], offset: int) -> int | None:
    """Leader epoch of an offset by entries in any order; None before the first (LeaderEpochFileCache.epochForOffset)."""
    return max((entry.leader_epoch for entry in entries if entry.start_offset <= offset), default=None)


def epochs_from(entries: Sequence[EpochEntry], offset: int) -> list[EpochEntry]:
    """The epochs of a log from an offset on; the first, which is that of the offset, starts there."""
    first = epoch_at(entries, offset)
    of_offset = [] if first is None else [EpochEntry(first, offset)]
    return [*of_offset, *(entry for entry in entries if entry.start_offset > offset)]


def assign_epoch(cache: list[EpochEntry], entry: EpochEntry) -> None:
    """Append an epoch to the cache, in place (LeaderEpochFileCache.assign); drops entries that are not older or do not start below
    it."""
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
    """The offset at which a follower truncates when it follows this leader (AbstractFetcherThread.getOffsetTruncationState,
    KIP-279); requests repeat until both agree.

    It is the follower's high watermark (the rule before KIP-101; 0 if unknown) if the follower's log has no epochs, or the leader
    has none as late. Epochs that start at the follower's log end have no records and are not requested. If no epoch is left, a log
    that is too long ends at the leader's log end.
    """
    end = follower_end
    if not follower:
        return min(end, follower_high_watermark or 0)
    known = [entry for entry in follower if entry.start_offset < end]
    while known:
        answer = end_offset_for(leader, known[-1].leader_epoch, leader_end)
        if answer == UNDEFINED:
            return min(end, follower_high_watermark or 0)
        follower_answer = end_offset_for(known, answer.leader_epoch, end)
        cut = (
            min(follower_answer.end_offset, answer.end_offset)
            if follower_answer.leader_epoch == answer.leader_epoch
            else follower_answer.end_offset
        )
        if cut >= end:
            break
        end = cut
        while known and known[-1].start_offset >= end:
            known.pop()
        if known and known[-1].leader_epoch == answer.leader_epoch:  # another request would get the same answer
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
    """The log end of a follower after it has truncated and before it fetches; `leader` includes the epoch that the leader begins.

    A log still longer than the leader's is out of range, and truncated to the leader's log end. A high watermark is never below the
    log start (UnifiedLog.updateHighWatermark). A follower whose log end is below the leader's log start restarts there.
    """
    watermark = max(high_watermark or 0, follower_start)
    return min(leader_end, truncation_offset(follower, follower_end, leader, leader_end, follower_high_watermark=watermark))


# Truncation by each rule that Kafka has had, request by request; `truncation_offset` gives the result of the newest rule at once.


class EpochLog(Struct, frozen=True):
    """A replica's log as truncation sees it: its epochs, ascending, and its start, end and high watermark."""

    epochs: tuple[EpochEntry, ...]
    log_end_offset: int
    high_watermark: int = 0
    log_start_offset: int = 0

    def cut(self, end: int) -> "EpochLog":
        """The log truncated at `end`, without epochs that start there or later (LeaderEpochFileCache.truncateFromEnd)."""
        epochs = tuple(entry for entry in self.epochs if entry.start_offset < end)
        return EpochLog(epochs, end, min(self.high_watermark, end), min(self.log_start_offset, end))


class EpochRequest(Struct, frozen=True):
    """A request of a follower: the epoch it names, the leader's answer, and where the follower truncates."""

    leader_epoch: int
    answer: EpochEndOffset
    truncation_offset: int


class TruncationResult(Struct, frozen=True):
    """Where a log ends after all requests."""

    log_end_offset: int
    questions: tuple[EpochRequest, ...] = ()


def by_high_watermark(follower: EpochLog, leader: EpochLog) -> TruncationResult:
    """Before 0.11: a follower truncates at its high watermark, which follows the leader's late, so it may remove committed records
    (the bug that KIP-101 fixes)."""
    return _in_range(follower.cut(min(follower.high_watermark, follower.log_end_offset)), leader, ())


def by_kip_101(follower: EpochLog, leader: EpochLog) -> TruncationResult:
    """0.11 to 1.1 (KIP-101): one request (OffsetsForLeaderEpoch v0) for the follower's last epoch; the answer names no epoch.

    The answer is the start of the first later epoch, or the leader's log end if the epoch is its last. The high watermark decides
    if the leader has no epoch as late, or only later ones.
    """
    if not follower.epochs:
        return by_high_watermark(follower, leader)
    epoch = follower.epochs[-1].leader_epoch
    later = [entry.start_offset for entry in leader.epochs if entry.leader_epoch > epoch]
    answer, cut = UNDEFINED, follower.high_watermark
    if leader.epochs and leader.epochs[0].leader_epoch <= epoch <= leader.epochs[-1].leader_epoch:
        cut = later[0] if later else leader.log_end_offset
        answer = EpochEndOffset(epoch, cut)
    cut = min(cut, follower.log_end_offset)
    return _in_range(follower.cut(cut), leader, (EpochRequest(epoch, answer, cut),))


def by_kip_279(follower: EpochLog, leader: EpochLog) -> TruncationResult:
    """2.0 to 2.6: the answer also names the epoch; a follower without that epoch truncates to the end of its last one below, and
    sends another request (AbstractFetcherThread.getOffsetTruncationState)."""
    log, questions = follower, list[EpochRequest]()
    while log.epochs:
        epoch = log.epochs[-1].leader_epoch
        answer = end_offset_for(leader.epochs, epoch, leader.log_end_offset)
        if answer == UNDEFINED:
            cut, final = min(log.high_watermark, log.log_end_offset), True
        else:
            cut, final = truncation_state(log, answer)
        questions.append(EpochRequest(epoch, answer, cut))
        log = log.cut(cut)
        if final:
            break
    return _in_range(log, leader, tuple(questions)) if questions else by_high_watermark(follower, leader)


def by_fetch(follower: EpochLog, leader: EpochLog) -> TruncationResult:
    """2.7 and later (KIP-320, KIP-595): every fetch names the last epoch of the follower's log. A leader whose log diverges answers
    with the diverging epoch and its end; the follower truncates and fetches again.

    A log diverges if the leader lacks the epoch, or the epoch ends below the fetch offset (Partition.readRecords).
    """
    log, questions = follower, list[EpochRequest]()
    while log.epochs:
        epoch = log.epochs[-1].leader_epoch
        answer = end_offset_for(leader.epochs, epoch, leader.log_end_offset)
        if answer == UNDEFINED or not (answer.leader_epoch < epoch or answer.end_offset < log.log_end_offset):
            break
        cut, _ = truncation_state(log, answer)
        questions.append(EpochRequest(epoch, answer, cut))
        log = log.cut(cut)
    return _in_range(log, leader, tuple(questions))


def truncation_state(follower: EpochLog, answer: EpochEndOffset) -> tuple[int, bool]:
    """Where a follower truncates on an answer that is defined, and whether that is final
    (AbstractFetcherThread.getOffsetTruncationState).

    With that epoch in its log: at the lower of both ends. With only earlier epochs: at the end of the last of these, and it sends
    another request. With only later epochs: at the start of the first, or the leader's end if that is lower. Without epochs: at the
    leader's end.
    """
    end = follower.log_end_offset
    follower_answer = end_offset_for(follower.epochs, answer.leader_epoch, end)
    if follower_answer == UNDEFINED:
        return min(answer.end_offset, end), True
    if follower_answer.leader_epoch != answer.leader_epoch:
        return min(follower_answer.end_offset, end), False
    return min(follower_answer.end_offset, answer.end_offset, end), True


def _in_range(log: EpochLog, leader: EpochLog, questions: tuple[EpochRequest, ...]) -> TruncationResult:
    """A follower whose fetch offset is out of the leader's range truncates to the leader's log end, or restarts at the leader's log
    start (AbstractFetcherThread.fetchOffsetAndTruncate)."""
    end = log.log_end_offset
    return TruncationResult(
        leader.log_start_offset if end < leader.log_start_offset else min(end, leader.log_end_offset), questions
    )
