"""Where a follower cuts its log, by each of the rules that Kafka had, question by question.

All offsets are exclusive ends. A rule's answer names each question asked of the leader and what came back, so that a history can
be told; `epochs.truncation_offset` gives the newest rule's result at once.
"""

from dataclasses import dataclass

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import UNDEFINED, EpochEndOffset, end_offset_for


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
    """Where a log ends after all questions; `wiped` where nothing of it is kept and it begins anew at the leader's start."""

    log_end_offset: int
    questions: tuple[Question, ...] = ()
    wiped: bool = False


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
    asked = follower.epochs[-1].leader_epoch
    end_offset = _kip_101_end(leader, asked)
    if end_offset is None:
        cut, answer = min(follower.high_watermark, follower.log_end_offset), UNDEFINED
    else:
        cut, answer = min(end_offset, follower.log_end_offset), EpochEndOffset(asked, end_offset)
    return _out_of_range(follower.cut(cut), leader, (Question(asked, answer, cut),))


def by_kip_279(follower: Log, leader: Log) -> Truncated:
    """2.0 to 2.6: the answer names the largest epoch not above the one asked for, and where it ends; a follower that does not know
    that epoch cuts to the end of its own last one below, and asks again (AbstractFetcherThread.getOffsetTruncationState)."""
    log, questions = follower, list[Question]()
    while log.epochs:
        asked = log.epochs[-1].leader_epoch
        answer = end_offset_for(leader.epochs, asked, leader.log_end_offset)
        if answer == UNDEFINED:
            cut, final = min(log.high_watermark, log.log_end_offset), True
        else:
            cut, final = truncation_state(log, answer)
        questions.append(Question(asked, answer, cut))
        log = log.cut(cut)
        if final:
            break
    return _out_of_range(log, leader, tuple(questions)) if questions else by_high_watermark(follower, leader)


def by_fetch(follower: Log, leader: Log) -> Truncated:
    """2.7 on (KIP-320, KIP-595): every fetch carries the last epoch of the follower's log; a leader that knows better answers
    with the diverging epoch and its end, the follower cuts and fetches again, until the leader agrees."""
    log, questions = follower, list[Question]()
    while log.epochs:
        asked = log.epochs[-1].leader_epoch
        answer = end_offset_for(leader.epochs, asked, leader.log_end_offset)
        if answer == UNDEFINED or not diverges(answer, asked, log.log_end_offset):
            break
        cut, _ = truncation_state(log, answer)
        questions.append(Question(asked, answer, cut))
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


def _kip_101_end(leader: Log, asked: int) -> int | None:
    known = leader.epochs
    if known and known[-1].leader_epoch == asked:
        return leader.log_end_offset
    if not known or asked < known[0].leader_epoch:
        return None
    return next((entry.start_offset for entry in known if entry.leader_epoch > asked), None)


def _out_of_range(log: Log, leader: Log, questions: tuple[Question, ...]) -> Truncated:
    """What a follower does whose next fetch lies outside the leader's log: it cuts to the leader's end without asking for epochs,
    or drops all it has and begins at the leader's start (AbstractFetcherThread.fetchOffsetAndTruncate)."""
    if log.log_end_offset > leader.log_end_offset:
        return Truncated(leader.log_end_offset, questions)
    if log.log_end_offset < leader.log_start_offset:
        return Truncated(leader.log_start_offset, questions, wiped=True)
    return Truncated(log.log_end_offset, questions)
