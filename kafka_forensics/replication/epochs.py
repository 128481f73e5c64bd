"""Rules of leader epochs: where an epoch ends, where a follower cuts (LeaderEpochFileCache, AbstractFetcherThread)."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
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


# Where a follower cuts its log, by each of the rules that Kafka had, question by question.
#
# All offsets are exclusive ends. A rule's answer names each question asked of the leader and what came back, so that a history can
# be told; `epochs.truncation_offset` gives the newest rule's result at once.


@dataclass(frozen=True, slots=True)
class Log:
    """A replica's log as truncation sees it: its epochs, ascending, and its start, end and high watermark."""

    epochs: tuple[EpochEntry, ...]
    log_end_offset: int
    high_watermark: int = 0
    log_start_offset: int = 0

    def cut(self, end: int) -> "Log":
        """The log truncated at `end`: no epoch begins at or behind it (LeaderEpochFileCache.truncateFromEnd)."""
        kept = tuple(entry for entry in self.epochs if entry.start_offset < end)
        return Log(kept, end, min(self.high_watermark, end), min(self.log_start_offset, end))


@dataclass(frozen=True, slots=True)
class Question:
    """The epoch a follower asked for, the leader's answer, and where the follower cut at (its end: nothing)."""

    leader_epoch: int
    answer: EpochEndOffset
    truncation_offset: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """Where a log ends after all questions."""

    log_end_offset: int
    questions: tuple[Question, ...] = ()


def by_high_watermark(follower: Log, leader: Log) -> Truncated:
    """Before 0.11: a follower cuts at its own high watermark, which lags behind what is committed, so that committed records
    may go (the bug of KIP-101). Who lags behind the leader's start begins anew there."""
    end = min(follower.high_watermark, follower.log_end_offset)
    return _out_of_range(follower.cut(end), leader, ())


def by_kip_101(follower: Log, leader: Log) -> Truncated:
    """0.11 to 1.1 (KIP-101): one question (OffsetsForLeaderEpoch v0), for the follower's last epoch; the answer names no epoch.

    The leader says where the first later epoch begins, or its end if the epoch is its latest; nothing if it knows no epoch
    as late, or only later ones: then the high watermark decides.
    """
    if not follower.epochs:
        return by_high_watermark(follower, leader)
    epoch_asked = follower.epochs[-1].leader_epoch
    end_offset = _kip_101_end(leader, epoch_asked)
    if end_offset is None:
        cut, answer = min(follower.high_watermark, follower.log_end_offset), UNDEFINED
    else:
        cut, answer = min(end_offset, follower.log_end_offset), EpochEndOffset(epoch_asked, end_offset)
    return _out_of_range(follower.cut(cut), leader, (Question(epoch_asked, answer, cut),))


def by_kip_279(follower: Log, leader: Log) -> Truncated:
    """2.0 to 2.6: the answer names the largest epoch not above the one asked for, and where it ends; a follower that does not know
    that epoch cuts to the end of its own last one below, and asks again (AbstractFetcherThread.getOffsetTruncationState)."""
    log, questions = follower, list[Question]()
    while log.epochs:
        epoch_asked = log.epochs[-1].leader_epoch
        answer = end_offset_for(leader.epochs, epoch_asked, leader.log_end_offset)
        if answer == UNDEFINED:
            cut, final = min(log.high_watermark, log.log_end_offset), True
        else:
            cut, final = truncation_state(log, answer)
        questions.append(Question(epoch_asked, answer, cut))
        log = log.cut(cut)
        if final:
            break
    return _out_of_range(log, leader, tuple(questions)) if questions else by_high_watermark(follower, leader)


def by_fetch(follower: Log, leader: Log) -> Truncated:
    """2.7 on (KIP-320, KIP-595): every fetch carries the last epoch of the follower's log; a leader that knows better answers
    with the diverging epoch and its end, the follower cuts and fetches again, until the leader agrees."""
    log, questions = follower, list[Question]()
    while log.epochs:
        epoch_asked = log.epochs[-1].leader_epoch
        answer = end_offset_for(leader.epochs, epoch_asked, leader.log_end_offset)
        if answer == UNDEFINED or not diverges(answer, epoch_asked, log.log_end_offset):
            break
        cut, _ = truncation_state(log, answer)
        questions.append(Question(epoch_asked, answer, cut))
        log = log.cut(cut)
    return _out_of_range(log, leader, tuple(questions))


def diverges(answer: EpochEndOffset, last_fetched_epoch: int, fetch_offset: int) -> bool:
    """Whether a leader refuses a fetch: it does not know the follower's last epoch, or that ends below the follower's log end
    (Partition.readRecords)."""
    return answer.leader_epoch < last_fetched_epoch or answer.end_offset < fetch_offset


def truncation_state(follower: Log, answer: EpochEndOffset) -> tuple[int, bool]:
    """Where a follower cuts on an answer that is defined, and whether that settles it
    (AbstractFetcherThread.getOffsetTruncationState).

    It knows the epoch: at the lower of both ends. It knows only earlier ones: at the end of the last of these, and it asks again.
    All it knows are later: at the start of its first, or the leader's end of that epoch if that is lower. It knows none at all:
    at the leader's end of it.
    """
    end = follower.log_end_offset
    own = end_offset_for(follower.epochs, answer.leader_epoch, end)
    if own == UNDEFINED:
        return min(answer.end_offset, end), True
    if own.leader_epoch != answer.leader_epoch:
        return min(own.end_offset, end), False
    return min(own.end_offset, answer.end_offset, end), True


def _kip_101_end(leader: Log, epoch_asked: int) -> int | None:
    known = leader.epochs
    if known and known[-1].leader_epoch == epoch_asked:
        return leader.log_end_offset
    if not known or epoch_asked < known[0].leader_epoch:
        return None
    return next((entry.start_offset for entry in known if entry.leader_epoch > epoch_asked), None)


def _out_of_range(log: Log, leader: Log, questions: tuple[Question, ...]) -> Truncated:
    """What a follower does whose next fetch lies outside the leader's log: it cuts to the leader's end without asking for epochs,
    or drops all it has and begins at the leader's start (AbstractFetcherThread.fetchOffsetAndTruncate)."""
    if log.log_end_offset > leader.log_end_offset:
        return Truncated(leader.log_end_offset, questions)
    if log.log_end_offset < leader.log_start_offset:
        return Truncated(leader.log_start_offset, questions)
    return Truncated(log.log_end_offset, questions)
