"""Decisions of transaction coordinators against partitions: every completed decision has left a marker in each partition it lists.

A marker has the producer id and epoch of the decision's Prepare record, in every transaction version. Before version 2 many
transactions share them, so decisions and markers are paired by time, as many as possible; only a decision left over is judged, and
only if the partition's log is known to extend from before it to after it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.transactions import (
    COMMIT,
    DATA_EPOCH,
    OFFSET,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TIMESTAMP,
    TYPE,
    UNREADABLE,
    OpenTransaction,
    rules,
)
from kafka_forensics.analysis.transactions_across.facts import PartitionFacts
from kafka_forensics.model.constants import CONTROL_COMMIT
from kafka_forensics.model.coordinators import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS, Decision, TransactionLog
from kafka_forensics.model.findings import Confidence, Finding, Severity, TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.kinds.evidence_classes import MarkersDisagreeEvidence


SKEW_MS: Final = 10_000
"""How far the clocks of a coordinator and a partition's leader may differ."""
TV2: Final = 2
"""`client_transaction_version` from which each transaction has a different epoch."""


class Contradiction(Struct, frozen=True):
    """A decision that one of its partitions contradicts."""

    decision: Decision
    topic_partition: TopicPartition
    reason: str
    """opposite_marker | no_marker | nothing_left | records_missing"""
    offset_start: int | None = None
    offset_end: int | None = None
    marker: tuple[int, int, int] | None = None
    """(segment, position, size in bytes) of the marker that contradicts."""
    continuing_broker: int | str | None = None
    """The broker whose other logs continue after the decision, if its copy of this partition does not and it was not stopped
    cleanly; None: the copy does, or it was."""
    since_creation: bool = False
    """Only the topic's age proves that the log extends back before the decision."""

    @property
    def lost(self) -> bool:
        """Whether records of a committed transaction are missing, rather than ended differently."""
        return self.reason in ("nothing_left", "records_missing")


class CommitDecisions:
    """Commit decisions by producer id and partition, for very many look-ups."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self._of_producer: dict[int, list[Decision]] = {}
        for decision in decisions:
            if decision.commit:
                self._of_producer.setdefault(decision.producer_id, []).append(decision)
        self._by_partition: dict[int, dict[TopicPartition, list[Decision]]] = {}

    def of(self, producer_id: int, where: TopicPartition) -> list[Decision]:
        """Those of a producer that list a partition, in the order of the log."""
        if producer_id not in self._by_partition:
            of_partition = self._by_partition[producer_id] = {}
            for decision in self._of_producer.get(producer_id, ()):
                for listed in dict.fromkeys(decision.partitions):
                    of_partition.setdefault(listed, []).append(decision)
        return self._by_partition[producer_id].get(where, [])


def contradictions(
    log: TransactionLog, partitions: dict[TopicPartition, PartitionFacts], as_of: int, reached: Mapping[int | str, int]
) -> list[Contradiction]:
    """Every decision that a partition contradicts, in the order of the partitions and of the log.

    `reached`: broker → the newest timestamp set by a broker in any of its logs, ms.
    """
    groups: dict[tuple[TopicPartition, int, int], list[Decision]] = {}
    for decision in log.decisions:
        for listed in dict.fromkeys(decision.partitions):
            if listed in partitions and not partitions[listed].compacted:
                groups.setdefault((listed, decision.producer_id, decision.producer_epoch), []).append(decision)
    contradictions: list[Contradiction] = []
    for (listed, _), of_producer in groupby(sorted(groups.items(), key=lambda item: item[0]), key=lambda item: item[0][:2]):
        facts = partitions[listed]
        unmatched: list[tuple[Decision, NDArray[np.int64]]] = []
        missing: list[Contradiction] = []
        for (_, producer_id, epoch), decisions in of_producer:
            pairs, without_marker = _paired_by_type(facts.markers_of(producer_id, epoch), decisions)
            unmatched += without_marker
            for decision, row in pairs[True].matched if facts.gaps else ():
                offset = int(row[OFFSET])
                gap = None if facts.had_transaction_data(offset) else _gap_at(facts, decision, offset)
                missing += [] if gap is None else [Contradiction(decision, listed, "records_missing", *gap)]
        ends = _ends_open(facts, [decision for decision, _ in unmatched])
        check = _PartitionCheck(listed, facts, log, as_of, reached)
        judged = (check.unmatched(decision, opposite, ends_open=ends is decision) for decision, opposite in unmatched)
        contradictions += [contradiction for contradiction in judged if contradiction is not None] + missing
    return contradictions


def _paired_by_type(
    markers: "NDArray[np.int64]", decisions: Sequence[Decision]
) -> "tuple[dict[bool, _PairedMarkers], list[tuple[Decision, NDArray[np.int64]]]]":
    """Decisions about one producer id and epoch paired with their markers in one partition, by whether they commit; and those that
    surely have none, each with the opposite markers left over."""
    pairs: dict[bool, _PairedMarkers] = {}
    for commit in (True, False):
        rows = markers[(markers[:, TYPE] == CONTROL_COMMIT) == commit]
        same_type = [decision for decision in decisions if decision.commit == commit]
        pairs[commit] = _paired(same_type, rows[rows[:, TIMESTAMP].argsort(kind="stable")])
    since = min(_start_timestamp(decision) for decision in decisions) - SKEW_MS
    without_marker = [
        (decision, pairs[not commit].spare)
        for commit, paired in pairs.items()
        if not (paired.spare[:, TIMESTAMP] >= since).any()
        for decision in paired.unmatched
    ]
    return pairs, without_marker


def _start_timestamp(decision: Decision) -> int:
    return decision.start_timestamp if decision.start_timestamp >= 0 else decision.decided_timestamp


def _ends_open(facts: PartitionFacts, unmatched: Sequence[Decision]) -> Decision | None:
    """The decision without a marker that ends the producer's open records; None if there is none.

    Records of an epoch are ended under the same epoch, or under the next if the coordinator fences or transaction version 2 raises
    it for every end (then never under the same one); a fence may precede such an end (KIP-890). Decisions of later epochs, or later
    ones of the same epoch, concern later records that are not in the log.
    """
    opened = facts.open.get(unmatched[0].producer_id) if unmatched else None
    if opened is None:
        return None
    possible = [
        (decision.producer_epoch, decision.decided_timestamp, number)
        for number, decision in enumerate(unmatched)
        if 0 <= decision.producer_epoch - opened.first_producer_epoch - (decision.client_transaction_version >= TV2) <= 1
    ]
    earliest = min((epoch for epoch, _, _ in possible), default=-1)
    first = [candidate for candidate in possible if candidate[0] == earliest]
    if len(first) > 1:
        first = [candidate for candidate in first if candidate[1] >= opened.first_timestamp - SKEW_MS]
    return unmatched[min(first)[2]] if first else None


class _PairedMarkers(Struct):
    """Decisions of one type with their markers, decisions without one, and markers left over."""

    matched: list[tuple[Decision, "NDArray[np.int64]"]]
    unmatched: list[Decision]
    spare: "NDArray[np.int64]"


def _paired(decisions: Sequence[Decision], rows: "NDArray[np.int64]") -> _PairedMarkers:
    """As many pairs as possible: each decision takes the earliest free marker in its time."""
    matched, unmatched, spare = [], [], []
    at = 0
    for decision in sorted(decisions, key=lambda decided: decided.decided_timestamp):
        while at < len(rows) and rows[at, TIMESTAMP] < decision.decided_timestamp - SKEW_MS:
            spare.append(at)
            at += 1
        end = decision.completed_timestamp
        if at < len(rows) and (end is None or rows[at, TIMESTAMP] <= end + SKEW_MS):
            matched.append((decision, rows[at]))
            at += 1
        else:
            unmatched.append(decision)
    return _PairedMarkers(matched, unmatched, rows[[*spare, *range(at, len(rows))]])


class _PartitionCheck(Struct, frozen=True):
    """A partition against decisions that list it and have no marker there."""

    listed: TopicPartition
    facts: PartitionFacts
    log: TransactionLog
    as_of: int
    reached: Mapping[int | str, int]

    def _must_have_marker(self, decision: Decision, moment: int, *, ends_before: bool) -> bool:
        """Whether the copy's log would have the marker of a decision if there ever was one, and no other copy has it."""
        facts = self.facts
        late = self.as_of - decision.decided_timestamp > DEFAULT_MAX_TIMEOUT_MS + LATE_BUFFER_MS
        if not facts.whole or (decision.completed_timestamp is None and not late):
            return False
        if not _has_all_committed(facts, moment, ends_before):
            return False
        if ends_before and not _broker_continued_after(facts, decision, self.log, self.reached):
            return False
        others = facts.elsewhere[:, [PRODUCER_ID, PRODUCER_EPOCH]]  # the comparison of the copies reports those
        return not (others == (decision.producer_id, decision.producer_epoch)).all(axis=1).any()

    def unmatched(self, decision: Decision, opposite: "NDArray[np.int64]", *, ends_open: bool) -> Contradiction | None:
        """The contradiction of a decision without a marker here; None if that may be right.

        `opposite`: the producer's markers of the other type; `ends_open`: this decision ends the producer's open records here, if
        any.
        """
        facts, end = self.facts, decision.completed_timestamp
        times = opposite[:, TIMESTAMP]
        near = opposite[(times >= decision.decided_timestamp) & ((times <= end + SKEW_MS) if end is not None else True)]
        if len(near):
            segment, position, size = near[0, :3].tolist()
            return self._opposite_marker(decision, int(near[0, OFFSET]), (segment, position, size))
        moment = decision.decided_timestamp if end is None else end
        last = facts.last_marker_timestamp
        ends_before = last is None or last < moment + SKEW_MS
        if not self._must_have_marker(decision, moment, ends_before=ends_before):
            return None
        continuing_broker = facts.context.broker if ends_before and not facts.clean else None
        if (ending := _ended_by_later(facts, decision)) is not None:
            segment, position, kind, size, offset = ending[:5].tolist()
            same = (kind == COMMIT) == decision.commit
            return None if same else self._opposite_marker(decision, offset, (segment, position, size), continuing_broker)
        opened = facts.open.get(decision.producer_id) if ends_open else None
        if opened is not None and not _may_be_of_later(self.log, decision, self.listed, opened):
            offsets = opened.first_offset, opened.last_offset + 1
            return Contradiction(decision, self.listed, "no_marker", *offsets, continuing_broker=continuing_broker)
        if opened is not None and opened.first_timestamp <= moment + SKEW_MS:
            return None  # it may be of either transaction
        return None if end is None else self._nothing_left(decision, continuing_broker)

    def _opposite_marker(
        self, decision: Decision, offset: int, place: tuple[int, int, int], continuing_broker: int | str | None = None
    ) -> Contradiction:
        """The marker at `offset` is of the other type; `place`: its segment, position and size in bytes."""
        return Contradiction(decision, self.listed, "opposite_marker", offset, offset + 1, place, continuing_broker)

    def _nothing_left(self, decision: Decision, continuing_broker: int | str | None) -> Contradiction | None:
        """Neither a marker nor records of a committed transaction; None if the log may have deleted them, or another copy has the
        records."""
        facts = self.facts
        if decision.producer_id in facts.open_elsewhere:
            return None
        if not decision.commit or not facts.reaches_back(decision.decided_timestamp - SKEW_MS):
            return None
        start, end = _gap_at(facts, decision, facts.log_end_offset) or (None, None)
        first = facts.first_marker_timestamp
        since_creation = first is None or first > decision.decided_timestamp - SKEW_MS
        return Contradiction(
            decision, self.listed, "nothing_left", start, end, continuing_broker=continuing_broker, since_creation=since_creation
        )


def _ended_by_later(facts: PartitionFacts, decision: Decision) -> "NDArray[np.int64] | None":
    """The row of `ended` of a decision's records if the marker of a later transaction ended them because theirs is lost;
    None otherwise. Before transaction version 2 a marker does not show whose records it ended."""
    if decision.client_transaction_version < TV2:
        return None
    ended = facts.ended
    ours = (ended[:, rules.FOUND_PRODUCER_ID] == decision.producer_id) & (ended[:, DATA_EPOCH] == decision.producer_epoch - 1)
    later = (ended[:, rules.FOUND_EPOCH] > decision.producer_epoch) & (ended[:, rules.FOUND_KIND] != UNREADABLE)
    rows = ended[ours & later]
    return rows[0] if len(rows) else None


def _broker_continued_after(
    facts: PartitionFacts, decision: Decision, log: TransactionLog, reached: Mapping[int | str, int]
) -> bool:
    """Whether the copy's broker ran longer than the copy shows: beyond the time at which every marker was acknowledged.

    Copies of stopped brokers show one moment: a partition that ends earlier lost its end. Copies of running brokers prove nothing.
    A broker with the Complete record itself ran so long by any clock; so did some replica, which took the marker.
    """
    end, broker = decision.completed_timestamp, facts.context.broker
    if facts.context.live or end is None:
        return False
    if (facts.all_whole and _has_all_replicas(facts)) or (facts.clean and _was_in_sync(facts, end)):
        return True
    return log.partitions.get(decision.log_partition) == broker or reached.get(broker, -1) >= end + SKEW_MS


def _was_in_sync(facts: PartitionFacts, moment: int) -> bool:
    """Whether the copy's broker, or one with the same end, was in sync by the latest controller state after a time."""
    control = facts.context.control
    if control is None or control.isr is None or (control.as_of_ms or 0) < moment + SKEW_MS:
        return False
    return not {*control.isr, *(control.elr or ()), control.leader}.isdisjoint(facts.same_end_nodes)


def _has_all_replicas(facts: PartitionFacts) -> bool:
    """Whether the copies include every replica that the controller knows."""
    control = facts.context.control
    assignment = set() if control is None else set(control.replica_assignment or ())
    return bool(assignment) and assignment <= set(facts.nodes)


def _has_all_committed(facts: PartitionFacts, moment: int, ends_before: bool) -> bool:
    """Whether the judged copy must have all records committed until a time.

    So if its broker was in sync then or later, or if it is the best of all replicas and none is damaged. Without the controller's
    log, that these are all replicas is a premise, and a copy that continues after the time counts.
    """
    if facts.context.control is None:
        return facts.all_whole or not ends_before
    return _was_in_sync(facts, moment) or (facts.all_whole and _has_all_replicas(facts))


def _may_be_of_later(log: TransactionLog, decision: Decision, listed: TopicPartition, opened: OpenTransaction) -> bool:
    """Whether the partition's open records may begin with a later transaction of the same id: not if they have an earlier epoch, or
    are older."""
    state = log.states.get(decision.transactional_id)
    if decision.transactional_id in log.unknown_ids or state is None or state.metadata is None:
        return True
    later = state.metadata
    if state.offset <= decision.offset or later.state != "Ongoing" or listed not in later.partitions:
        return False
    if later.producer_id != opened.producer_id or later.producer_epoch > opened.first_producer_epoch:
        return False
    return not 0 <= opened.first_timestamp < later.start_timestamp - SKEW_MS


def _gap_at(facts: PartitionFacts, decision: Decision, end_offset: int) -> tuple[int, int] | None:
    """The last missing offsets before `end_offset` written after the transaction began, by the markers before it."""
    before = facts.previous_marker_offset(_start_timestamp(decision))
    gaps = [gap for gap in facts.gaps if gap[1] <= end_offset and (before is None or gap[0] > before)]
    return gaps[-1] if gaps else None


# Markers of two partitions that end one transaction differently, without the coordinators' log.
#
# From transaction version 2 on every transaction has a producer epoch of its own, and a COMMIT marker's epoch is above its data's:
# then producer id and epoch identify the transaction. Before that only times do, which is a suspicion.


SAME_TIME_MS: Final = 10_000
"""Markers of one transaction are written within this time."""
_OPEN: Final = 0
"""Kind of a transaction without a marker."""


class _SingleTransaction(Struct, frozen=True):
    """The only transaction of a producer id and epoch in a partition; offset and timestamp of its marker, None if it is open."""

    topic_partition: TopicPartition
    kind: int
    place: tuple[int, int, int, int, int]
    """For `ReplicaContext.log_place`: of its marker, or of its first batch, and its offsets."""
    first_timestamp: int
    last_timestamp: int
    data_epoch: int
    marker_epoch: int = -1
    marker_offset: int | None = None
    marker_timestamp: int | None = None

    @property
    def has_unique_epoch(self) -> bool:
        """Whether its marker's epoch shows that no other transaction has its epoch."""
        return self.marker_epoch > self.data_epoch


def disagreements(partitions: dict[TopicPartition, PartitionFacts], as_of: int) -> list[Finding]:
    """A finding for each transaction that one partition shows as committed and another as aborted, or as open and overdue."""
    singles = {key: _single_transactions(facts) for key, facts in sorted(partitions.items()) if not facts.compacted}
    all_names = np.concatenate([np.empty((0, 2), np.int64), *(names for names, _ in singles.values())])
    names, counts = np.unique(all_names, axis=0, return_counts=True)
    shared: dict[tuple[int, int], list[_SingleTransaction]] = {
        (producer_id, epoch): [] for producer_id, epoch in names[counts > 1].tolist()
    }
    for key, (names, rows) in singles.items():
        for (producer_id, epoch), row in zip(names.tolist(), rows.tolist(), strict=True):
            if (producer_id, epoch) in shared:
                shared[producer_id, epoch] += _transactions_at(key, partitions[key], row, producer_id, epoch)
    findings: list[Finding] = []
    for (producer_id, _), transactions in shared.items():
        committed = [transaction for transaction in transactions if transaction.kind == rules.COMMIT]
        for other in transactions:
            against = next((commit for commit in committed if _disagree(commit, other, partitions, as_of)), None)
            if against is not None:
                findings.append(_disagreement_finding(against, other, partitions[other.topic_partition], producer_id))
    return findings


def _single_transactions(facts: PartitionFacts) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """((producer id, data epoch), row of `ended` or -1 if open) of those with one transaction in the partition."""
    ended = facts.ended[:, [rules.FOUND_PRODUCER_ID, DATA_EPOCH]]
    opened = np.array(
        [[transaction.producer_id, transaction.producer_epoch] for transaction in facts.open.values()], np.int64
    ).reshape(-1, 2)
    names, first, counts = np.unique(np.concatenate((ended, opened)), axis=0, return_index=True, return_counts=True)
    first[first >= len(ended)] = -1
    return names[counts == 1], first[counts == 1]


def _transactions_at(
    key: TopicPartition, facts: PartitionFacts, row: int, producer_id: int, epoch: int
) -> Iterator[_SingleTransaction]:
    """The transaction at this row of `ended`, or the producer's open one if it is -1; None if its marker is missing."""
    if row < 0:
        opened = facts.open[producer_id]
        if producer_id not in facts.ended_elsewhere:
            place = opened.segment, opened.position, opened.size_in_bytes, opened.first_offset, opened.last_offset + 1
            yield _SingleTransaction(key, _OPEN, place, opened.first_timestamp, opened.last_timestamp, epoch)
        return
    ended = facts.ended[row].tolist()
    segment, position, kind, size, marker_offset, _, _, marker_epoch = ended[: rules.DATA_FIRST_OFFSET]
    timestamps = facts.markers[facts.markers[:, OFFSET] == marker_offset, TIMESTAMP]
    if len(timestamps):
        place = segment, position, size, ended[rules.DATA_FIRST_OFFSET], marker_offset + 1
        times = ended[rules.DATA_FIRST_TIMESTAMP], ended[rules.DATA_LAST_TIMESTAMP]
        yield _SingleTransaction(key, kind, place, *times, epoch, marker_epoch, marker_offset, int(timestamps[0]))


def _disagree(
    commit: _SingleTransaction, other: _SingleTransaction, partitions: dict[TopicPartition, PartitionFacts], as_of: int
) -> bool:
    """Whether `other` shows the committed transaction with another end."""
    if other.kind not in (_OPEN, rules.ABORT) or commit.marker_timestamp is None:
        return False
    overlaps = commit.first_timestamp <= other.last_timestamp and other.first_timestamp <= commit.last_timestamp
    if not commit.has_unique_epoch and not overlaps:
        return False
    if other.marker_timestamp is not None:
        return commit.has_unique_epoch or abs(other.marker_timestamp - commit.marker_timestamp) <= SAME_TIME_MS
    late = as_of - max(other.last_timestamp, commit.marker_timestamp) > DEFAULT_MAX_TIMEOUT_MS + LATE_BUFFER_MS
    last = partitions[other.topic_partition].last_marker_timestamp
    continues = last is not None and last >= commit.marker_timestamp + SAME_TIME_MS
    return late and (continues or partitions[other.topic_partition].clean)


def _disagreement_finding(
    commit: _SingleTransaction, other: _SingleTransaction, facts: PartitionFacts, producer_id: int
) -> Finding:
    place = facts.context.log_place(*other.place)
    evidence: MarkersDisagreeEvidence = {
        "producer_id": producer_id,
        "producer_epoch": commit.data_epoch,
        "committed_in": [f"{commit.topic_partition[0]}-{commit.topic_partition[1]}"],
        "committed_offset": commit.marker_offset,
        "shown_as": "aborted" if other.kind == rules.ABORT else "open",
        "first_offset": other.place[3],
        "marker_offset": other.marker_offset,
        "coordinator": "not among the copies",
        "brokers": facts.brokers,
        "premises": [
            "an epoch for each transaction (transaction version 2), as the markers' epochs show"
            if commit.has_unique_epoch
            else "written at the same time by one producer, so one transaction; before transaction version 2 it may be two"
        ],
    }
    if commit.has_unique_epoch:
        return finding("TXN_MARKERS_DISAGREE", place, evidence)
    return finding("TXN_MARKERS_DISAGREE", place, evidence, severity=Severity.WARNING, confidence=Confidence.SUSPECTED)
