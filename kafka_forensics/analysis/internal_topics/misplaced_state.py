"""State of groups and transactional ids in a partition that their coordinator does not read.

A coordinator reads the partition given by the hash of its group or transactional id, modulo the number of partitions
(GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor). If that number is raised, existing records stay where
they are. After the next start of the brokers most ids have another coordinator, which does not have their state.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kafka_forensics.analysis.internal_topics.transaction_log import java_hash
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.constants import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from kafka_forensics.model.coordinators import OPEN_STATES, CommittedOffset, GroupHistory, TransactionLog
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import MisplacedStateEvidence

DEFAULT_COUNT: Final = 50
"""Kafka's default number of partitions of both topics."""
_LISTED: Final = 16


class PartitionCount(Struct, frozen=True):
    """Number of partitions of an internal topic; `is_exact` if it is from the controller's log, not from the copies."""

    count: int
    is_exact: bool

    @property
    def is_sure(self) -> bool:
        """Whether the topic has no more partitions: by the controller's log, or because the copies have more than the default."""
        return self.is_exact or self.count > DEFAULT_COUNT

    def partition_of(self, name: str) -> int:
        """The partition that the coordinator of a group or transactional id reads."""
        return java_hash(name) % self.count


def misplaced_offsets(history: GroupHistory, partition_count: PartitionCount) -> list[Finding]:
    """`COORDINATOR_STATE_MISPLACED` of `__consumer_offsets`; adds the partition to read to `history.read_from`.

    It is an error if a group's coordinator has no offset of the group, else a warning about offsets that are missing there or
    smaller. Groups whose coordinator has all offsets or larger ones are not reported.
    """
    commits = [committed for log in history.logs for committed in log.committed]
    if _fits_default(partition_count, ((commit.group, commit.log_partition) for commit in commits)):
        return []
    read_from = {group: partition_count.partition_of(group) for group in {commit.group for commit in commits}}
    read: dict[tuple[str, str, int], CommittedOffset] = {}
    misplaced: list[CommittedOffset] = []
    for commit in commits:
        if read_from[commit.group] == commit.log_partition:
            read[commit.group, commit.topic, commit.partition] = commit
        else:
            misplaced.append(commit)
            history.read_from[commit.group] = read_from[commit.group]
    reported: dict[str, set[int]] = {}
    for commit in misplaced:
        newer = read.get((commit.group, commit.topic, commit.partition))
        if newer is None or newer.last.offset < commit.last.offset:
            reported.setdefault(commit.group, set()).add(commit.log_partition)
    is_error = not reported.keys() <= {group for group, _, _ in read}
    return _misplaced(CONSUMER_OFFSETS_TOPIC, partition_count, reported, is_error=is_error)


def misplaced_ids(log: TransactionLog, partition_count: PartitionCount) -> list[Finding]:
    """`COORDINATOR_STATE_MISPLACED` of `__transaction_state`: an error if one of the transactions is open, else a warning."""
    states = [(state, state.metadata) for state in log.states.values() if state.metadata is not None]
    if _fits_default(partition_count, ((state.transactional_id, state.partition) for state, _ in states)):
        return []
    wrong = [row for row in states if partition_count.partition_of(row[0].transactional_id) != row[0].partition]
    misplaced = {state.transactional_id: {state.partition} for state, _ in wrong}
    is_error = any(metadata.state in OPEN_STATES for _, metadata in wrong)
    return _misplaced(TRANSACTION_STATE_TOPIC, partition_count, misplaced, is_error=is_error)


def _fits_default(partition_count: PartitionCount, placed: Iterable[tuple[str, int]]) -> bool:
    """Whether all ids are where the default number of partitions puts them; the copies may lack some partitions."""
    possible = not partition_count.is_exact and partition_count.count < DEFAULT_COUNT
    return possible and all(java_hash(name) % DEFAULT_COUNT == partition for name, partition in placed)


def _misplaced(topic: str, partition_count: PartitionCount, found_in: Mapping[str, set[int]], *, is_error: bool) -> list[Finding]:
    if not found_in:
        return []
    listed = sorted(found_in)[:_LISTED]
    evidence: MisplacedStateEvidence = {
        "of_groups": topic == CONSUMER_OFFSETS_TOPIC,
        "names_count": len(found_in),
        "partition_count": partition_count.count,
        "in_partitions": {name: sorted(found_in[name]) for name in listed},
        "read_from": {name: partition_count.partition_of(name) for name in listed},
    }
    if not partition_count.is_exact:
        evidence["premises"] = [f"the copies hold every partition of {topic}"]
    severity = Severity.ERROR if is_error and partition_count.is_sure else Severity.WARNING
    confidence = Confidence.PROVEN if partition_count.is_exact else Confidence.INFERRED
    return [finding("COORDINATOR_STATE_MISPLACED", Place(topic), evidence, severity=severity, confidence=confidence)]
