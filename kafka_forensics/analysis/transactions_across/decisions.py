"""What the coordinator decided against what partitions show: every completed decision has left a marker in each partition it lists.

A marker carries the producer id and epoch of the decision's Prepare record, in every transaction version. Before version 2 many
transactions share them, so decisions and markers are paired by time, as many as can be; only a decision left over is judged, and
only where the partition's log is known to reach from before it to behind it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np

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
"""How far the clocks of a coordinator and a partition's leader may be apart."""
TV2: Final = 2
"""`client_transaction_version` from which on every transaction has an epoch of its own."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A decision that one of its partitions does not bear out."""

    decision: Decision
    topic_partition: TopicPartition
    reason: str
    """opposite_marker | no_marker | nothing_left | records_missing"""
    offset_start: int | None = None
    offset_end: int | None = None
    marker: tuple[int, int, int] | None = None
    """(segment, position, size in bytes) of the marker that contradicts."""
    continuing_broker: int | str | None = None
    """The broker whose other logs go on behind the decision, where its copy of this partition does not and it was not stopped
    cleanly; None: the copy does, or it was."""
    since_creation: bool = False
    """Only the topic's age says that the log reaches back before the decision."""

    @property
    def lost(self) -> bool:
        """Whether records of a committed transaction are gone, rather than shown with another ending."""
        return self.reason in ("nothing_left", "records_missing")


class CommitDecisions:
    """Decisions to commit by producer id and partition, for very many questions."""

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

    `reached`: broker → the newest that a broker stamped in any of its logs, ms.
    """
    groups: dict[tuple[TopicPartition, int, int], list[Decision]] = {}
    for decision in log.decisions:
        for listed in dict.fromkeys(decision.partitions):
            if listed in partitions and not partitions[listed].compacted:
                groups.setdefault((listed, decision.producer_id, decision.producer_epoch), []).append(decision)
    contradictions: list[Contradiction] = []
    for (listed, _), of_producer in groupby(sorted(groups.items(), key=lambda item: item[0]), key=lambda item: item[0][:2]):
        facts = partitions[listed]
        left: list[tuple[Decision, NDArray[np.int64]]] = []
        emptied: list[Contradiction] = []
        for (_, producer_id, epoch), decisions in of_producer:
            ours, unmatched = _of_group(facts.markers_of(producer_id, epoch), decisions)
            left += unmatched
            gaps = ((decision, _missing_records(facts, decision, row)) for decision, row in ours[True].matched)
            emptied += [Contradiction(decision, listed, "records_missing", *gap) for decision, gap in gaps if gap is not None]
        ends = _ends_open(facts, [decision for decision, _ in left])
        against = _PartitionCheck(listed, facts, log, as_of, reached)
        judged = (against.unmatched(decision, opposite, ends_open=ends is decision) for decision, opposite in left)
        contradictions += [contradiction for contradiction in judged if contradiction is not None] + emptied
    return contradictions


def _of_group(
    markers: "NDArray[np.int64]", decisions: Sequence[Decision]
) -> "tuple[dict[bool, _PairedMarkers], list[tuple[Decision, NDArray[np.int64]]]]":
    """Decisions about one producer id and epoch paired with their markers in one partition, and those that surely have none, each
    with the opposite markers that no decision has."""
    ours: dict[bool, _PairedMarkers] = {}
    for commit in (True, False):
        rows = markers[(markers[:, TYPE] == CONTROL_COMMIT) == commit]
        ours[commit] = _paired(
            [decision for decision in decisions if decision.commit == commit], rows[rows[:, TIMESTAMP].argsort(kind="stable")]
        )
    since = (
        min(decision.start_timestamp if decision.start_timestamp >= 0 else decision.decided_timestamp for decision in decisions)
        - SKEW_MS
    )
    left = [
        (decision, ours[not commit].spare)
        for commit, pairs in ours.items()
        if not (pairs.spare[:, TIMESTAMP] >= since).any()
        for decision in pairs.unmatched
    ]
    return ours, left


def _ends_open(facts: PartitionFacts, unmatched: Sequence[Decision]) -> Decision | None:
    """The one decision without a marker that can be about the producer's open records; None if it is not among them.

    An epoch's records are ended under the same epoch, or under the next where the coordinator fences or transaction version 2
    raises it for every end (then never under the same one), and a fence may come before such an end (KIP-890). What was decided
    under later epochs, or later under the same one, was about records that followed and are not in the log.
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


@dataclass(slots=True)
class _PairedMarkers:
    """Decisions of one kind with their markers, decisions without, and markers left over."""

    matched: list[tuple[Decision, "NDArray[np.int64]"]]
    unmatched: list[Decision]
    spare: "NDArray[np.int64]"


def _paired(decisions: Sequence[Decision], rows: "NDArray[np.int64]") -> _PairedMarkers:
    """As many pairs as can be made: each decision takes the earliest marker in its time that no other has."""
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


@dataclass(frozen=True, slots=True)
class _PartitionCheck:
    """A partition against the decisions that list it and have no marker of theirs there."""

    listed: TopicPartition
    facts: PartitionFacts
    log: TransactionLog
    as_of: int
    reached: Mapping[int | str, int]

    def _must_have_marker(self, decision: Decision, moment: int, *, ends_before: bool) -> bool:
        """Whether the log of the copy, and no other alone, would hold the marker of a decision if there ever was one."""
        late = self.as_of - decision.decided_timestamp > DEFAULT_MAX_TIMEOUT_MS + LATE_BUFFER_MS
        if not self.facts.whole or (decision.completed_timestamp is None and not late):
            return False
        if not _has_all_committed(self.facts, moment, ends_before):
            return False
        if ends_before and not _broker_continued_after(self.facts, decision, self.log, self.reached):
            return False
        return not self._other_copy_has_it(decision)  # what that means, the comparison of the copies says

    def unmatched(self, decision: Decision, opposite: "NDArray[np.int64]", *, ends_open: bool) -> Contradiction | None:
        """What it means that a decision has no marker here; None if that may be right.

        `opposite`: markers of its producer that say otherwise; `ends_open`: it is the decision about what its producer has open
        here, if any is.
        """
        facts, end = self.facts, decision.completed_timestamp
        times = opposite[:, TIMESTAMP]
        near = opposite[(times >= decision.decided_timestamp) & ((times <= end + SKEW_MS) if end is not None else True)]
        if len(near):
            segment, position, size = near[0, :3].tolist()
            return self._opposite_marker(decision, int(near[0, OFFSET]), (segment, position, size))
        moment = decision.decided_timestamp if end is None else end
        ends_before = not _continues_after(facts, moment)
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
            return None  # nobody can say which of the two it is of
        return None if end is None else self._nothing_left(decision, continuing_broker)

    def _other_copy_has_it(self, decision: Decision) -> bool:
        strange = self.facts.elsewhere
        its = (strange[:, PRODUCER_ID] == decision.producer_id) & (strange[:, PRODUCER_EPOCH] == decision.producer_epoch)
        return bool(its.any())

    def _opposite_marker(
        self, decision: Decision, offset: int, place: tuple[int, int, int], continuing_broker: int | str | None = None
    ) -> Contradiction:
        """The marker at `offset` says otherwise than the decision; `place`: its segment, position and size in bytes."""
        return Contradiction(decision, self.listed, "opposite_marker", offset, offset + 1, place, continuing_broker)

    def _nothing_left(self, decision: Decision, continuing_broker: int | str | None) -> Contradiction | None:
        """Neither a marker nor records of a transaction that was committed; None where the log may have dropped them."""
        facts = self.facts
        if decision.producer_id in facts.open_elsewhere:
            return None  # it is not said here that another copy has the records
        if not decision.commit or not facts.reaches_back(decision.decided_timestamp - SKEW_MS):
            return None
        start, end = _gap_at(facts, decision, facts.log_end_offset) or (None, None)
        first = facts.first_marker_timestamp
        since_creation = first is None or first > decision.decided_timestamp - SKEW_MS
        return Contradiction(
            decision, self.listed, "nothing_left", start, end, continuing_broker=continuing_broker, since_creation=since_creation
        )


def _ended_by_later(facts: PartitionFacts, decision: Decision) -> "NDArray[np.int64] | None":
    """The row of `ended` of a decision's records where the marker of a later transaction ended them, its own being lost; None where
    there is none. Before transaction version 2 nothing tells whose records a marker ended."""
    if decision.client_transaction_version < TV2:
        return None
    ours = (facts.ended[:, 6] == decision.producer_id) & (facts.ended[:, DATA_EPOCH] == decision.producer_epoch - 1)
    rows = facts.ended[ours & (facts.ended[:, 7] > decision.producer_epoch) & (facts.ended[:, 2] != UNREADABLE)]
    return rows[0] if len(rows) else None


def _continues_after(facts: PartitionFacts, moment: int) -> bool:
    """Whether a copy itself goes on behind a moment."""
    last = facts.last_marker_timestamp
    return last is not None and last >= moment + SKEW_MS


def _broker_continued_after(
    facts: PartitionFacts, decision: Decision, log: TransactionLog, reached: Mapping[int | str, int]
) -> bool:
    """Whether the copy's broker went on for longer than the copy does: beyond the time at which every marker was acknowledged.

    What stopped brokers leave is of one moment: this partition ends where it does because what followed is gone. Of brokers that
    were running nobody can say so. A broker that has the Complete record itself went on for so long by any clock; so did some of
    all replicas, for one of them took the marker.
    """
    end, broker = decision.completed_timestamp, facts.context.broker
    if facts.context.live or end is None:
        return False
    if (facts.all_whole and _has_all_replicas(facts)) or (facts.clean and _was_in_sync(facts, end)):
        return True
    return log.partitions.get(decision.log_partition) == broker or reached.get(broker, -1) >= end + SKEW_MS


def _was_in_sync(facts: PartitionFacts, moment: int) -> bool:
    """Whether the copy's broker, or one whose copy ends alike, was in sync by the last word of the controller, behind a moment."""
    control = facts.context.control
    if control is None or control.isr is None or (control.as_of_ms or 0) < moment + SKEW_MS:
        return False
    return not {*control.isr, *(control.elr or ()), control.leader}.isdisjoint(facts.same_end_nodes)


def _has_all_replicas(facts: PartitionFacts) -> bool:
    """Whether no replica that the controller knows of is left out."""
    control = facts.context.control
    assignment = set() if control is None else set(control.replica_assignment or ())
    return bool(assignment) and assignment <= set(facts.nodes)


def _has_all_committed(facts: PartitionFacts, moment: int, ends_before: bool) -> bool:
    """Whether the copy that is judged must have all that was committed until a moment.

    It does if the controller had its broker in sync then or later; or if it is the best of all replicas, none of them damaged.
    Without the controller's log that those are all is a premise, and a copy that goes on behind the moment is believed.
    """
    if facts.context.control is None:
        return facts.all_whole or not ends_before
    return _was_in_sync(facts, moment) or (facts.all_whole and _has_all_replicas(facts))


def _may_be_of_later(log: TransactionLog, decision: Decision, listed: TopicPartition, opened: OpenTransaction) -> bool:
    """Whether what is open in the partition may begin with a later transaction of the same id: not if its first records have an
    earlier epoch than that, or were made before it."""
    state = log.states.get(decision.transactional_id)
    if decision.transactional_id in log.unknown_ids or state is None or state.metadata is None:
        return True
    later = state.metadata
    if state.offset <= decision.offset or later.state != "Ongoing" or listed not in later.partitions:
        return False
    if later.producer_id != opened.producer_id or later.producer_epoch > opened.first_producer_epoch:
        return False
    return not 0 <= opened.first_timestamp < later.start_timestamp - SKEW_MS


def _missing_records(facts: PartitionFacts, decision: Decision, marker: "NDArray[np.int64]") -> tuple[int, int] | None:
    """The missing offsets that must have held a committed transaction's records, where its marker ended nothing."""
    offset = int(marker[OFFSET])
    return _gap_at(facts, decision, offset) if facts.gaps and not facts.had_data(offset) else None


def _gap_at(facts: PartitionFacts, decision: Decision, end_offset: int) -> tuple[int, int] | None:
    """The last missing offsets before `end_offset` that were written after the transaction began, by the markers before it."""
    start = decision.start_timestamp if decision.start_timestamp >= 0 else decision.decided_timestamp
    before = facts.previous_marker_offset(start)
    gaps = [gap for gap in facts.gaps if gap[1] <= end_offset and (before is None or gap[0] > before)]
    return gaps[-1] if gaps else None


# Markers of two partitions that end one transaction differently, where the coordinators' log is not among the copies.
#
# From transaction version 2 on every transaction has a producer epoch of its own, and a COMMIT marker's epoch is above its data's:
# then producer id and epoch name the transaction. Before that they do not, and only times can tell: a suspicion, not more.


SAME_TIME_MS: Final = 10_000
"""Markers of one transaction are written at about one time."""
_OPEN: Final = 0
"""The kind of a transaction that no marker ended."""


@dataclass(frozen=True, slots=True)
class _SingleTransaction:
    """The only transaction of a producer id and epoch in a partition; offset and timestamp of its marker, None if it is open."""

    topic_partition: TopicPartition
    kind: int
    first_offset: int
    end_offset: int
    first_timestamp: int
    last_timestamp: int
    data_epoch: int
    marker_epoch: int
    marker_offset: int | None
    marker_timestamp: int | None
    segment: int
    position: int
    size_in_bytes: int


def disagreements(partitions: dict[TopicPartition, PartitionFacts], as_of: int) -> list[Finding]:
    """A finding for each transaction that one partition shows as committed and another as aborted, or as open and overdue."""
    singles = {key: _single_transactions(facts) for key, facts in sorted(partitions.items()) if not facts.compacted}
    shared: dict[tuple[int, int], list[tuple[TopicPartition, int]]] = {name: [] for name in _shared(singles)}
    for key, (names, rows) in singles.items():
        for (producer_id, epoch), row in zip(names.tolist(), rows.tolist(), strict=True):
            if (producer_id, epoch) in shared:
                shared[producer_id, epoch].append((key, row))
    findings: list[Finding] = []
    for (producer_id, epoch), places in shared.items():
        spans = [span for key, row in places for span in _spans(key, partitions[key], row, producer_id, epoch)]
        committed = [span for span in spans if span.kind == rules.COMMIT]
        for other in spans:
            against = next((span for span in committed if _disagree(span, other, partitions, as_of)), None)
            if against is not None:
                findings.append(_disagreement_finding(against, other, partitions[other.topic_partition], producer_id))
    return findings


def _single_transactions(facts: PartitionFacts) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """((producer id, data epoch), row of `ended` or -1 if open) of those that have one transaction in the partition."""
    ended = facts.ended[:, [6, rules.DATA_EPOCH]]
    opened = np.array(
        [[transaction.producer_id, transaction.producer_epoch] for transaction in facts.open.values()], np.int64
    ).reshape(-1, 2)
    names, first, counts = np.unique(np.concatenate((ended, opened)), axis=0, return_index=True, return_counts=True)
    first[first >= len(ended)] = -1
    return names[counts == 1], first[counts == 1]


def _shared(singles: "dict[TopicPartition, tuple[NDArray[np.int64], NDArray[np.int64]]]") -> list[tuple[int, int]]:
    """Producer ids and epochs with one transaction each in several partitions."""
    names = np.concatenate([np.empty((0, 2), np.int64), *(names for names, _ in singles.values())])
    shared, counts = np.unique(names, axis=0, return_counts=True)
    return [(int(producer_id), int(epoch)) for producer_id, epoch in shared[counts > 1]]


def _spans(key: TopicPartition, facts: PartitionFacts, row: int, producer_id: int, epoch: int) -> Iterator[_SingleTransaction]:
    """The transaction at this row of `ended`, or the producer's open one if it is -1; none if it has no marker here."""
    if row < 0:
        transaction = facts.open[producer_id]
        if producer_id not in facts.ended_elsewhere:
            yield _SingleTransaction(
                key, _OPEN, transaction.first_offset, transaction.last_offset + 1, transaction.first_timestamp,
                transaction.last_timestamp, epoch, -1, None, None,
                transaction.segment, transaction.position, transaction.size_in_bytes,
            )  # fmt: skip
        return
    ended = [int(value) for value in facts.ended[row]]
    times = facts.markers[facts.markers[:, OFFSET] == ended[4], TIMESTAMP]
    if len(times):
        yield _SingleTransaction(
            key, ended[2], ended[8], ended[4] + 1, ended[rules.DATA_FIRST_TIMESTAMP], ended[rules.DATA_LAST_TIMESTAMP], epoch,
            ended[7], ended[4], int(times[0]), ended[0], ended[1], ended[3],
        )  # fmt: skip


def _disagree(
    commit: _SingleTransaction, other: _SingleTransaction, partitions: dict[TopicPartition, PartitionFacts], as_of: int
) -> bool:
    """Whether `other` shows the committed transaction with another ending."""
    if other.kind not in (_OPEN, rules.ABORT) or commit.marker_timestamp is None:
        return False
    own_epoch = commit.marker_epoch > commit.data_epoch
    together = commit.first_timestamp <= other.last_timestamp and other.first_timestamp <= commit.last_timestamp
    if not own_epoch and not together:
        return False
    if other.marker_timestamp is not None:
        return own_epoch or abs(other.marker_timestamp - commit.marker_timestamp) <= SAME_TIME_MS
    late = as_of - max(other.last_timestamp, commit.marker_timestamp) > DEFAULT_MAX_TIMEOUT_MS + LATE_BUFFER_MS
    last = partitions[other.topic_partition].last_marker_timestamp
    reaches = last is not None and last >= commit.marker_timestamp + SAME_TIME_MS
    return late and (reaches or partitions[other.topic_partition].clean)


def _disagreement_finding(
    commit: _SingleTransaction, other: _SingleTransaction, facts: PartitionFacts, producer_id: int
) -> Finding:
    context = facts.context
    place = context.log_place(other.segment, other.position, other.size_in_bytes, other.first_offset, other.end_offset)
    own_epoch = commit.marker_epoch > commit.data_epoch
    evidence: MarkersDisagreeEvidence = {
        "producer_id": producer_id,
        "producer_epoch": commit.data_epoch,
        "committed_in": [f"{commit.topic_partition[0]}-{commit.topic_partition[1]}"],
        "committed_offset": commit.marker_offset,
        "shown_as": "aborted" if other.kind == rules.ABORT else "open",
        "first_offset": other.first_offset,
        "marker_offset": other.marker_offset,
        "coordinator": "not among the copies",
        "brokers": facts.brokers,
        "premises": [
            "an epoch for each transaction (transaction version 2), as the markers' epochs show"
            if own_epoch
            else "written at the same time by one producer, so one transaction; before transaction version 2 it may be two"
        ],
    }
    if own_epoch:
        return finding("TXN_MARKERS_DISAGREE", place, evidence)
    return finding("TXN_MARKERS_DISAGREE", place, evidence, severity=Severity.WARNING, confidence=Confidence.SUSPECTED)
