"""State of groups and transactional ids that stands in a partition which its coordinator does not read.

A coordinator reads the partition that the hash of its group or transactional id gives, modulo the number of partitions
(GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor). Raise that number, and what was written before stays
where it is: after the next start of the brokers the coordinator of most ids is another, and knows nothing of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.internal_topics.transaction_log import java_hash
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.constants import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from kafka_forensics.model.coordinators import OPEN_STATES, Committed, GroupHistory, TransactionLog
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import MisplacedStateEvidence

DEFAULT_COUNT: Final = 50
"""Partitions of both topics unless brokers are configured otherwise."""
_LISTED: Final = 16


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """How many partitions an internal topic has; `is_exact` if the controller's log says so, and not the copies alone."""

    count: int
    is_exact: bool

    @property
    def is_sure(self) -> bool:
        """Whether the topic has no more partitions: by the controller's log, or because more than the default are here."""
        return self.is_exact or self.count > DEFAULT_COUNT

    def partition_of(self, name: str) -> int:
        """The partition that the coordinator of a group or transactional id reads."""
        return java_hash(name) % self.count


def misplaced_offsets(history: GroupHistory, known: PartitionCount) -> list[Finding]:
    """`COORDINATOR_STATE_MISPLACED` of `__consumer_offsets`: an error where a group's coordinator has no offset at all, a
    warning where it has, and this one is missing or smaller; those that have come further are silent. Notes all in `read_from`."""
    commits = [committed for log in history.logs for committed in log.committed]
    if _fit(known, ((commit.group, commit.log_partition) for commit in commits)):
        return []
    read_from = {group: known.partition_of(group) for group in {commit.group for commit in commits}}
    right: dict[tuple[str, str, int], Committed] = {}
    wrong: list[Committed] = []
    for commit in commits:
        if read_from[commit.group] == commit.log_partition:
            right[commit.group, commit.topic, commit.partition] = commit
        else:
            wrong.append(commit)
            history.read_from[commit.group] = read_from[commit.group]
    forgotten: dict[str, set[int]] = {}
    for commit in wrong:
        newer = right.get((commit.group, commit.topic, commit.partition))
        if newer is None or newer.last.offset < commit.last.offset:
            forgotten.setdefault(commit.group, set()).add(commit.log_partition)
    is_grave = known.is_sure and not forgotten.keys() <= {group for group, _, _ in right}
    return _found(CONSUMER_OFFSETS_TOPIC, known, forgotten, Severity.ERROR if is_grave else Severity.WARNING)


def misplaced_ids(log: TransactionLog, known: PartitionCount) -> list[Finding]:
    """The same of `__transaction_state`: an error where a transaction is open that no coordinator will end."""
    states = [state for state in log.states.values() if state.metadata is not None]
    if _fit(known, ((state.transactional_id, state.partition) for state in states)):
        return []
    wrong = [state for state in states if known.partition_of(state.transactional_id) != state.partition]
    is_open = any(state.metadata is not None and state.metadata.state in OPEN_STATES for state in wrong)
    forgotten = {state.transactional_id: {state.partition} for state in wrong}
    return _found(TRANSACTION_STATE_TOPIC, known, forgotten, Severity.ERROR if is_open and known.is_sure else Severity.WARNING)


def _fit(known: PartitionCount, placed: Iterable[tuple[str, int]]) -> bool:
    """Whether all stand where the default number of partitions puts them, of which the copies may lack some."""
    possible = not known.is_exact and known.count < DEFAULT_COUNT
    return possible and all(java_hash(name) % DEFAULT_COUNT == partition for name, partition in placed)


def _found(topic: str, known: PartitionCount, misplaced: Mapping[str, set[int]], severity: Severity) -> list[Finding]:
    if not misplaced:
        return []
    evidence: MisplacedStateEvidence = {
        "of_groups": topic == CONSUMER_OFFSETS_TOPIC,
        "names_count": len(misplaced),
        "partition_count": known.count,
        "in_partitions": {name: sorted(misplaced[name]) for name in sorted(misplaced)[:_LISTED]},
        "read_from": {name: known.partition_of(name) for name in sorted(misplaced)[:_LISTED]},
    }
    if not known.is_exact:
        evidence["premises"] = [f"the copies hold every partition of {topic}"]
    confidence = Confidence.PROVEN if known.is_exact else Confidence.INFERRED
    return [finding("COORDINATOR_STATE_MISPLACED", Place(topic), evidence, severity=severity, confidence=confidence)]
