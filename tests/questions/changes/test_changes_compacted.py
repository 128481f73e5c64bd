"""Compacted partitions over time: what the cleaner may remove, and what it must keep."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.changes import SnapshotsResult
from kafka_forensics.wording import advice, message
from tests.scanning.engine.task_changes import changes_with_key_tasks
from tests.support.brokers import put_compacted
from tests.support.logs import CLEANED, FUTURE_MS, History, keyed_history
from tests.support.snapshot_trees import NEW, OLD, change_rows, findings

END = keyed_history().end
BROKERS = (1, 2, 3)


def cleaned_between(root: Path, dropped: set[int], *, later: History | None = None, as_of_ms: int | None = None) -> SnapshotsResult:
    """The changes if all three brokers drop these offsets between two snapshots; `later` is the history of the newer one."""
    put_compacted(root / OLD, {broker: keyed_history().left(roll=CLEANED) for broker in BROKERS}, dict.fromkeys(BROKERS, 1))
    history = later or keyed_history()
    put_compacted(root / NEW, {broker: history.left(dropped, roll=CLEANED) for broker in BROKERS}, dict.fromkeys(BROKERS, CLEANED))
    return changes_with_key_tasks(str(root), ScanOptions(as_of_ms=as_of_ms))


def test_a_key_superseded_after_the_older_logs_end_is_explained(tmp_path: Path) -> None:
    result = cleaned_between(tmp_path, {0, 1, 2}, later=keyed_history().put(("b", "9")).put(("a", "9")))
    kinds = [(change.broker, change.kind.value, change.offset_start, change.offset_end) for change in result.changes]
    assert kinds == [row for broker in BROKERS for row in ((broker, "cleaned", 0, CLEANED), (broker, "appended", END, END + 2))]
    assert {change.evidence.get("keys_superseded") for change in result.changes if change.kind == "cleaned"} == {2}
    assert result.findings == []


@pytest.mark.parametrize(
    ("dropped", "as_of_ms", "records"),
    [({0}, None, 1), ({0, 3, 4}, None, 3), ({0, 3, 4}, FUTURE_MS, 3)],
    ids=["superseded", "a tombstone and the records that it deleted", "the same at a later time"],
)
def test_legitimate_cleaning_is_explained(dropped: set[int], as_of_ms: int | None, records: int, tmp_path: Path) -> None:
    result = cleaned_between(tmp_path, dropped, as_of_ms=as_of_ms)
    assert change_rows(result) == [(broker, "cleaned", None, 0, CLEANED) for broker in BROKERS]
    assert {change.records for change in result.changes} == {records}
    assert result.findings == []


def test_removal_of_a_keys_latest_record_is_a_finding(tmp_path: Path) -> None:
    result = cleaned_between(tmp_path, {1})
    assert change_rows(result) == [(broker, "cleaned", "against_the_rules", 0, CLEANED) for broker in BROKERS]
    assert findings(result) == [("KEYS_LOST_SINCE", "critical", 1, 2)] * 3
    assert message(result.findings[0]) == (
        f"t-0 on broker 1: snapshot {NEW} lacks the latest record of 1 key at offset 1 that snapshot {OLD} has, and no rule of"
        " compaction explains it; it has no record of 1 key."
    )
    assert advice(result.findings[0]) == (
        f"Keep snapshot {OLD} as it is: it has these records. Look for them on the other replicas of the newer snapshot with"
        f" `kafka-forensics compare {tmp_path / NEW} --topic t --partition 0`."
    )
    within = [finding for scan in result.snapshots.values() for finding in scan.findings if finding.severity.rank > 0]
    assert within == []  # all replicas of a snapshot agree
