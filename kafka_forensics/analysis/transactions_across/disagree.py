"""Markers of two partitions that end one transaction differently, where the coordinators' log is not among the copies.

From transaction version 2 on every transaction has a producer epoch of its own, and a COMMIT marker's epoch is above its data's:
then producer id and epoch name the transaction. Before that they do not, and only times can tell: a suspicion, not more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.transactions import OFFSET, TIMESTAMP, rules
from kafka_forensics.analysis.transactions_across.facts import PartitionFacts
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.model.transaction_log import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS, TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARKERS_APART_MS: Final = 10_000
"""Markers of one transaction are written at about one time."""
_OPEN: Final = 0
"""The kind of a transaction that no marker ended."""


@dataclass(frozen=True, slots=True)
class _Span:
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
    singles = {key: _singles(facts) for key, facts in sorted(partitions.items()) if not facts.compacted}
    shared: dict[tuple[int, int], list[tuple[TopicPartition, int]]] = {name: [] for name in _shared(singles)}
    for key, (names, rows) in singles.items():
        for (producer_id, epoch), row in zip(names.tolist(), rows.tolist(), strict=True):
            if (producer_id, epoch) in shared:
                shared[producer_id, epoch].append((key, row))
    findings: list[Finding] = []
    for (producer_id, epoch), places in shared.items():
        spans = [span for key, row in places for span in _spans(key, partitions[key], row, producer_id, epoch)]
        committed = [one for one in spans if one.kind == rules.COMMIT]
        for other in spans:
            against = next((one for one in committed if _disagree(one, other, partitions, as_of)), None)
            if against is not None:
                findings.append(_told(against, other, partitions[other.topic_partition], producer_id))
    return findings


def _singles(facts: PartitionFacts) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
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


def _spans(key: TopicPartition, facts: PartitionFacts, row: int, producer_id: int, epoch: int) -> Iterator[_Span]:
    """The transaction at this row of `ended`, or the producer's open one if it is -1; none if it has no marker here."""
    if row < 0:
        transaction = facts.open[producer_id]
        if producer_id not in facts.ended_elsewhere:
            yield _Span(
                key, _OPEN, transaction.first_offset, transaction.last_offset + 1, transaction.first_timestamp,
                transaction.last_timestamp, epoch, -1, None, None,
                transaction.segment, transaction.position, transaction.size_in_bytes,
            )  # fmt: skip
        return
    ended = [int(value) for value in facts.ended[row]]
    times = facts.markers[facts.markers[:, OFFSET] == ended[4], TIMESTAMP]
    if len(times):
        yield _Span(
            key, ended[2], ended[8], ended[4] + 1, ended[rules.DATA_FIRST_TIMESTAMP], ended[rules.DATA_LAST_TIMESTAMP], epoch,
            ended[7], ended[4], int(times[0]), ended[0], ended[1], ended[3],
        )  # fmt: skip


def _disagree(commit: _Span, other: _Span, partitions: dict[TopicPartition, PartitionFacts], as_of: int) -> bool:
    """Whether `other` shows the committed transaction with another ending."""
    if other.kind not in (_OPEN, rules.ABORT) or commit.marker_timestamp is None:
        return False
    own_epoch = commit.marker_epoch > commit.data_epoch
    together = commit.first_timestamp <= other.last_timestamp and other.first_timestamp <= commit.last_timestamp
    if not own_epoch and not together:
        return False
    if other.marker_timestamp is not None:
        return own_epoch or abs(other.marker_timestamp - commit.marker_timestamp) <= MARKERS_APART_MS
    late = as_of - max(other.last_timestamp, commit.marker_timestamp) > DEFAULT_MAX_TIMEOUT_MS + LATE_BUFFER_MS
    last = partitions[other.topic_partition].last_marker_timestamp
    reaches = last is not None and last >= commit.marker_timestamp + MARKERS_APART_MS
    return late and (reaches or partitions[other.topic_partition].clean)


def _told(commit: _Span, other: _Span, facts: PartitionFacts, producer_id: int) -> Finding:
    context = facts.context
    place = context.place(
        context.log_file(other.segment),
        byte_start=other.position,
        byte_end=other.position + other.size_in_bytes,
        offset_start=other.first_offset,
        offset_end=other.end_offset,
    )
    own_epoch = commit.marker_epoch > commit.data_epoch
    evidence = {
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
