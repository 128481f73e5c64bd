"""State of groups and transactional ids in partitions that their coordinators do not read, by Kafka's hash."""

import pytest

from kafka_forensics.analysis.internal_topics import PartitionCount, misplaced_ids, misplaced_offsets
from kafka_forensics.analysis.internal_topics.transaction_log import TransactionLogReplay, java_hash
from kafka_forensics.model.coordinators import CommittedOffset, GroupHistory, GroupLog, OffsetCommit, TransactionMetadata
from kafka_forensics.model.findings import Finding

EXACT, BY_COPIES = PartitionCount(60, is_exact=True), PartitionCount(60, is_exact=False)
OLD, NEW = 9, 49
"""The partition of the group `billing` among 50 partitions and among 60."""


def committed(partition: int, offset: int, group: str = "billing", topic: str = "t") -> CommittedOffset:
    commit = OffsetCommit(offset, -1, "", 1000, -1, None)
    return CommittedOffset(group, topic, 0, commit, 3, commit, 3, partition, 1)


def history(*commits: CommittedOffset) -> GroupHistory:
    logs = GroupHistory()
    for commit in commits:
        logs.add(GroupLog(commit.log_partition, 1, committed=[commit]))
    return logs


def described(findings: list[Finding]) -> list[tuple[str, str, dict[str, list[int]], dict[str, int]]]:
    return [
        (finding.severity.value, finding.confidence.value, finding.evidence["in_partitions"], finding.evidence["read_from"])
        for finding in findings
    ]


def test_the_hash_equals_that_of_kafka() -> None:
    assert (java_hash("billing") % 50, java_hash("billing") % 60) == (OLD, NEW)


@pytest.mark.parametrize(
    ("commits", "severity"),
    [
        ([committed(OLD, 90)], "error"),
        ([committed(OLD, 90), committed(NEW, 5)], "warning"),
        ([committed(OLD, 90), committed(NEW, 95)], None),
        ([committed(OLD, 90), committed(NEW, 90)], None),
        ([committed(OLD, 90), committed(NEW, 5, topic="other")], "warning"),
        ([committed(NEW, 90)], None),
        ([], None),
    ],
)
def test_offsets_in_a_partition_that_the_coordinator_does_not_read(commits: list[CommittedOffset], severity: str | None) -> None:
    """Nothing is reported once the group has an equal offset in the right partition."""
    logs = history(*commits)
    found = misplaced_offsets(logs, EXACT)
    assert described(found) == ([] if severity is None else [(severity, "proven", {"billing": [OLD]}, {"billing": NEW})])
    assert logs.read_from == ({"billing": NEW} if any(commit.log_partition == OLD for commit in commits) else {})


def test_the_number_of_partitions_without_a_controllers_log() -> None:
    """The copies decide if they have more than the default number, or a group that the default number puts elsewhere."""
    old = history(committed(OLD, 90))
    [finding] = misplaced_offsets(old, BY_COPIES)
    assert (finding.confidence.value, finding.evidence["premises"]) == (
        "inferred",
        ["the copies hold every partition of __consumer_offsets"],
    )
    some = PartitionCount(20, is_exact=False)
    assert misplaced_offsets(old, some) == []
    assert finding.severity.value == "error"
    elsewhere = next(name for name in map(str, range(99)) if java_hash(name) % 50 != OLD)
    [few] = misplaced_offsets(history(committed(OLD, 90), committed(OLD, 1, elsewhere)), some)
    assert few.severity.value == "warning"


def test_many_groups_are_counted_and_the_first_are_listed() -> None:
    names = [f"group-{number:03}" for number in range(100)]
    moved = [name for name in names if java_hash(name) % 50 != java_hash(name) % 60]
    [finding] = misplaced_offsets(history(*(committed(java_hash(name) % 50, 1, name) for name in names)), EXACT)
    assert (finding.evidence["names_count"], [*finding.evidence["read_from"]]) == (len(moved), moved[:16])


@pytest.mark.parametrize(
    ("states", "severity"),
    [
        ({OLD: "CompleteCommit"}, "warning"),
        ({OLD: "Ongoing"}, "error"),
        ({NEW: "Ongoing"}, None),
        ({OLD: "Ongoing", NEW: "CompleteCommit"}, None),
        ({NEW: "CompleteCommit", OLD: None}, None),
        ({OLD: None}, None),
    ],
)
def test_ids_in_a_partition_that_the_coordinator_does_not_read(states: dict[int, str | None], severity: str | None) -> None:
    """If an id is in two partitions, its newer state counts; an expired id has no state."""
    replay = TransactionLogReplay()
    for time, (partition, state) in enumerate(states.items()):
        of_partition = TransactionLogReplay()
        metadata = None if state is None else TransactionMetadata(7, 0, 60_000, state, (("t", 0),), time, time)
        of_partition.take("billing", partition, 0, time, metadata)
        replay.merge(of_partition)
    findings = misplaced_ids(replay.finish(), EXACT)
    assert [finding.severity.value for finding in findings] == ([] if severity is None else [severity])


def test_the_newest_state_of_an_id_counts_in_any_partition() -> None:
    old, new = TransactionLogReplay(), TransactionLogReplay()
    old.take("app", 7, 0, 1000, TransactionMetadata(7, 0, 60_000, "PrepareCommit", (("t", 0), ("t", 1)), 1000, 1000))
    new.take("app", 3, 0, 2000, TransactionMetadata(9, 0, 60_000, "PrepareAbort", (("t", 2),), 2000, 2000))
    for order in ((old, new), (new, old)):
        together = TransactionLogReplay()
        for replay in order:
            together.merge(replay)
        log = together.finish()
        assert log.states["app"].partition == 3
        assert [(decision.log_partition, decision.commit) for decision in log.decisions] == [(3, False), (7, True)]
