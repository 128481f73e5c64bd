"""Changes between two snapshots: truncated committed records, damage and missing offsets, and legitimate changes."""

import copy
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.model.changes import ChangeKind
from kafka_forensics.model.findings import Confidence
from kafka_forensics.wording import advice, change_text, message
from lab.mutations import in_batch
from tests.gallery.of_tiered import LONG, tiered
from tests.support.brokers import BROKERS, DIRECTORY, Brokers, put_compacted, put_partition, put_topic_id, write_checkpoint
from tests.support.controllers import setting, topic_with_isr, with_controller
from tests.support.logs import CLEANED, HEALTHY, HIGH_WATERMARK, LOG_END, Log, history, keyed_history
from tests.support.segments import segment_file
from tests.support.snapshot_trees import NEW, OLD, Snapshots, change_rows, findings, on_every_broker
from tests.support.unread import refuse

LOST = 55
"""Start of the last segment of the healthy log, below the high watermark."""
TAIL = HIGH_WATERMARK
"""Start of the last batch of the healthy log, above every high watermark."""
KIND = "COMMITTED_TRUNCATED_SINCE"


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    """A folder without snapshots."""
    return Snapshots(tmp_path / "snapshots")


def test_truncated_committed_records_that_others_hold_are_a_warning(snapshots: Snapshots) -> None:
    result = snapshots.compare_logs(HEALTHY, {1: HEALTHY, 2: HEALTHY.truncated_to(LOST), 3: HEALTHY})
    assert change_rows(result, broker=2) == [(2, "truncated", None, LOST, LOG_END)]
    assert findings(result) == [(KIND, "warning", LOST, HIGH_WATERMARK)]
    (row,) = [change for change in result.changes if change.kind is ChangeKind.TRUNCATED]
    assert (row.committed_end_offset, row.held_by) == (HIGH_WATERMARK, (1, 3))
    assert message(result.findings[0]) == (
        f"t-0: offsets 55 to 71 were committed in snapshot {OLD} (replication-offset-checkpoint of broker 2) and are missing"
        f" on broker 2 in snapshot {NEW}; they are still on brokers 1 and 3."
    )


@pytest.mark.parametrize("replaced", [False, True], ids=["cut", "replaced"])
def test_committed_records_that_no_broker_holds_are_critical(snapshots: Snapshots, replaced: bool) -> None:
    shorter = HEALTHY.truncated_to(LOST)
    result = snapshots.compare_logs(HEALTHY, shorter.extended(2, epoch=7, tag="other", roll=True) if replaced else shorter)
    truncated = ("truncated", None, LOST, LOG_END)
    assert change_rows(result) == on_every_broker(*([truncated, ("appended", None, LOST, LOST + 6)] if replaced else [truncated]))
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK)]
    (finding,) = result.findings
    assert finding.evidence["replaced_by"] == ([7] if replaced else [])
    assert finding.evidence["held_before"] == [1, 2, 3]
    assert (advice(finding) or "").startswith(f"Keep snapshot {OLD} as it is: it has these records.")


def test_only_replaced_records_are_lost_and_none_after_them(snapshots: Snapshots) -> None:
    changed = copy.deepcopy(HEALTHY)
    number, batch = next(
        (number, batch) for number, batch in enumerate(changed.batches) if LOST - 20 <= batch.base_offset < batch.last_offset
    )
    value = len(batch.data) - 40
    data = in_batch(batch.data, 0, value, bytes([batch.data[value] ^ 1]), sealed=True)
    changed.batches[number] = replace(batch, data=data)
    result = snapshots.compare_logs(HEALTHY, {1: changed, 2: HEALTHY, 3: HEALTHY})
    offsets = (batch.base_offset, batch.last_offset + 1)
    assert change_rows(result, broker=1) == [(1, "rewritten", "content", *offsets)]
    assert findings(result) == [(KIND, "warning", *offsets)]
    (row,) = [change for change in result.changes if change.kind is ChangeKind.REWRITTEN]
    assert row.held_by == (2, 3)


def test_a_missing_replica_loses_only_what_no_other_holds(snapshots: Snapshots) -> None:
    shorter, forked = HEALTHY.truncated_to(LOST), HEALTHY.truncated_to(LOST).extended(3, epoch=7, tag="other", roll=True)
    snapshots.put(OLD, {1: forked, 2: HEALTHY, 3: shorter})
    shutil.rmtree(snapshots.put(NEW, {1: forked, 2: HEALTHY, 3: shorter}) / "b2" / DIRECTORY)
    result = snapshots.compare()
    assert change_rows(result, broker=2) == [(2, "deleted", "replica_missing", 0, LOG_END)]
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK)]
    assert result.findings[0].evidence["missing"] == HIGH_WATERMARK - LOST
    (row,) = [change for change in result.changes if change.broker == 2]
    assert (row.committed_end_offset, row.held_by) == (HIGH_WATERMARK, ())
    assert row.evidence["lost"] == [[LOST, HIGH_WATERMARK]]
    assert change_text(row).endswith("committed below 72, still on 1, 3 but for 55 to 71")


def test_each_part_of_a_truncation_is_judged_by_its_holders(snapshots: Snapshots) -> None:
    snapshots.put(OLD, HEALTHY)
    new = snapshots.put(NEW, {1: HEALTHY.truncated_to(29), 2: HEALTHY.truncated_to(29), 3: HEALTHY.truncated_to(LOST)})
    result = snapshots.compare()
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK), (KIND, "warning", 29, LOST)]
    assert [finding.evidence.get("held_by") for finding in result.findings] == [None, [3]]
    assert [finding.evidence["brokers"] for finding in result.findings] == [[1, 2, 3], [1, 2]]
    (row,) = [change for change in result.changes if change.broker == 1]
    assert row.evidence["in_parts_on"] == [3]
    shutil.rmtree(new / "b3" / DIRECTORY)
    assert findings(snapshots.compare()) == [(KIND, "critical", 29, HIGH_WATERMARK)]


@pytest.mark.parametrize(("policy", "reason"), [("compact", "log_start_missing"), ("compact,delete", "retention")])
@pytest.mark.parametrize("cleaned", [set(), {CLEANED - 1}], ids=["kept", "the last offset was cleaned"])
def test_retention_does_not_delete_segments_of_a_compacted_topic(
    tmp_path: Path, policy: str, reason: str, cleaned: set[int]
) -> None:
    snapshots = Snapshots(tmp_path)
    log = keyed_history().left(cleaned, roll=CLEANED)
    for name in (OLD, NEW):
        brokers = put_compacted(tmp_path / name, dict.fromkeys(BROKERS, log), dict.fromkeys(BROKERS, CLEANED))
        if name == NEW:
            brokers.remove(2, 0, "*")
        with_controller(brokers, *topic_with_isr([1, 2, 3]), setting("cleanup.policy", policy))
    assert change_rows(snapshots.compare(), broker=2) == [(2, "deleted", reason, 0, CLEANED)]


def test_holes_that_no_other_replica_fills_are_counted_separately(snapshots: Snapshots) -> None:
    log = HEALTHY.extended(2, roll=True).extended(2, roll=True)
    snapshots.put(OLD, log, LOG_END + 12)
    new = snapshots.put(NEW, log, LOG_END + 12)
    for broker, segment in ((1, 29), (1, LOG_END), (3, 29), (3, LOG_END)):
        for path in (new / f"b{broker}" / DIRECTORY).glob(segment_file(segment, "*")):
            path.unlink()
    shutil.rmtree(new / "b2" / DIRECTORY)
    (finding,) = snapshots.compare().findings
    assert (finding.severity.value, finding.place.offset_start, finding.place.offset_end) == ("critical", 29, LOG_END + 6)
    assert (finding.evidence["missing"], finding.evidence["ranges"]) == (32, [[29, LOST], [LOG_END, LOG_END + 6]])
    assert message(finding).startswith("t-0: 32 of offsets 29 to 80 were committed in snapshot")


def test_older_copies_of_brokers_without_a_truncation_are_listed(snapshots: Snapshots) -> None:
    """Broker 1 lost a middle segment, broker 2 the end, broker 3 never had all: offsets 29 to 54 are in no newer copy."""
    snapshots.put(OLD, {1: HEALTHY, 2: HEALTHY, 3: HEALTHY.truncated_to(29)})
    new = snapshots.put(NEW, {1: HEALTHY, 2: HEALTHY.truncated_to(29), 3: HEALTHY.truncated_to(29)})
    for path in (new / "b1" / DIRECTORY).glob(segment_file(29, "*")):
        path.unlink()
    critical = next(finding for finding in snapshots.compare().findings if finding.severity.value == "critical")
    assert (critical.place.offset_start, critical.place.offset_end) == (29, LOST)
    assert (critical.evidence["brokers"], critical.evidence["held_before"]) == ([2], [1, 2])
    assert "no copy in the newer one has them; in the older one brokers 1 and 2 had them" in message(critical)


def test_possible_holders_and_the_proof_of_commitment_are_listed(snapshots: Snapshots) -> None:
    snapshots.compare_logs(HEALTHY, {1: HEALTHY, 2: HEALTHY.truncated_to(LOST), 3: HEALTHY})
    assert findings(snapshots.compare(broker="2")) == [(KIND, "error", LOST, HIGH_WATERMARK)], (
        "a broker outside the selection may have them"
    )
    (snapshots.root / OLD / "b2" / "replication-offset-checkpoint").unlink()
    assert findings(snapshots.compare()) == [(KIND, "warning", LOST, HIGH_WATERMARK)], "the watermark of another broker proves it"
    for broker in (1, 3):
        (snapshots.root / OLD / f"b{broker}" / "replication-offset-checkpoint").unlink()
    result = snapshots.compare()
    assert change_rows(result, broker=2) == [(2, "truncated", None, LOST, LOG_END)]
    assert result.findings == [], "without any witness nothing is claimed"


def test_a_broker_without_a_copy_may_hold_lost_records(snapshots: Snapshots) -> None:
    result = snapshots.compare_logs(HEALTHY, {1: HEALTHY.truncated_to(LOST), 2: HEALTHY.truncated_to(LOST)})
    assert findings(result) == [(KIND, "error", LOST, HIGH_WATERMARK)]
    (finding,) = result.findings
    assert (finding.evidence["not_given"], finding.confidence) == ([3], Confidence.SUSPECTED)


def test_snapshots_in_the_wrong_order_give_a_note(snapshots: Snapshots) -> None:
    younger, older = snapshots.put("b-old", HEALTHY.truncated_to(LOST)), snapshots.put("a-new", HEALTHY)
    for folder, moment in ((younger, 1_700_000_000), (older, 1_700_100_000)):
        for path in folder.rglob("*"):
            os.utime(path, (moment, moment))
    result = snapshots.compare()
    assert [finding[:2] for finding in findings(result)] == [(KIND, "warning")]
    assert result.findings[0].confidence is Confidence.SUSPECTED
    assert result.notes == ["snapshot b-old has shorter logs and older files than a-new: are the snapshots in the right order?"]


def test_a_corrupt_batch_is_damaged_and_a_repaired_one_rewritten(snapshots: Snapshots) -> None:
    snapshots.put(OLD, HEALTHY)
    snapshots.put(NEW, HEALTHY)
    snapshots.put(NEW + "x", HEALTHY)
    batch = HEALTHY.at(30)
    Brokers(snapshots.root / NEW, HEALTHY).flip(2, batch, 80)
    result = snapshots.compare()
    offsets = (batch.base_offset, batch.last_offset + 1)
    assert change_rows(result, broker=2) == [(2, "damaged", "batch", *offsets), (2, "rewritten", "repaired", *offsets)]
    assert result.findings == []  # the scan of that snapshot reports it
    assert any(finding.kind == "BATCH_CRC_MISMATCH" for finding in result.snapshots[NEW].findings)


def test_a_log_that_ends_in_damage_was_not_truncated(snapshots: Snapshots) -> None:
    snapshots.put(OLD, HEALTHY)
    new = Brokers(snapshots.put(NEW, HEALTHY), HEALTHY)
    batch = HEALTHY.at(LOST)
    path = new.file(2, batch.segment)
    path.write_bytes(path.read_bytes()[: batch.position + 70])
    result = snapshots.compare()
    assert change_rows(result, broker=2) == [(2, "damaged", "tail", batch.base_offset, LOG_END)]
    assert findings(result) == [(KIND, "warning", batch.base_offset, HIGH_WATERMARK)]


def test_a_segment_is_missing_in_one_snapshot_and_restored_in_the_next(snapshots: Snapshots) -> None:
    for name in ("1", "2", "3"):
        snapshots.put(name, HEALTHY)
    for path in (snapshots.root / "2" / "b2" / DIRECTORY).glob("00000000000000000029.*"):
        path.unlink()
    result = snapshots.compare()
    assert change_rows(result, broker=2) == [(2, "missing", None, 29, 55), (2, "restored", "gap", 29, 55)]
    assert result.findings == []
    assert any(finding.kind == "OFFSET_GAP" for finding in result.snapshots["2"].findings)


def test_records_below_a_lowered_log_start_are_restored(snapshots: Snapshots) -> None:
    snapshots.put(OLD, HEALTHY, log_start=12)
    snapshots.put(NEW, HEALTHY)
    assert change_rows(snapshots.compare()) == on_every_broker(("restored", "log_start", 0, 12))


def test_a_log_that_cannot_be_read_is_not_compared(snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, lambda path: NEW in path.parts and path.match(f"b2/t-0/{55:020d}.log"))
    result = snapshots.compare_logs(HEALTHY, HEALTHY)
    assert change_rows(result, broker=2) == [(2, "not_compared", "unreadable", LOST, LOG_END)]
    assert result.findings == []
    assert result.is_incomplete


# Legitimate changes are listed, and never give a finding.


def test_records_deleted_within_a_segment_are_deleted(snapshots: Snapshots) -> None:
    result = snapshots.compare_logs(HEALTHY, HEALTHY, log_start=12)
    assert change_rows(result) == on_every_broker(("deleted", "log_start_moved", 0, 12))
    assert result.findings == []


def test_retention_may_delete_past_the_end_of_the_older_log(snapshots: Snapshots) -> None:
    result = snapshots.compare_logs(HEALTHY.truncated_to(29), HEALTHY.after_retention(55), log_start=55)
    rows = [("deleted", "came_and_went", 29, 55), ("appended", None, 55, LOG_END)]
    assert change_rows(result) == on_every_broker(("deleted", "retention", 0, 29), *rows)
    assert result.findings == []


def test_an_empty_log_that_starts_later_has_appended_records(snapshots: Snapshots) -> None:
    result = snapshots.compare_logs(Log(), HEALTHY.after_retention(55), log_start=60)
    assert change_rows(result) == on_every_broker(("deleted", "came_and_went", 0, 60), ("appended", None, 60, LOG_END))
    deleted, appended = result.changes[:2]
    assert (deleted.batches, deleted.records, deleted.bytes) == (None, None, None)
    assert appended.batches == sum(batch.last_offset >= 60 for batch in HEALTHY.batches)
    assert change_text(deleted).startswith("deleted; appended since the older snapshot and already below the log start")
    assert result.findings == []


def test_a_log_that_is_empty_again_has_nothing_appended(snapshots: Snapshots) -> None:
    result = snapshots.compare_logs(HEALTHY.truncated_to(29), HEALTHY, log_start=LOG_END)
    assert change_rows(result) == on_every_broker(("deleted", "log_start_moved", 0, 29), ("deleted", "came_and_went", 29, LOG_END))
    assert result.findings == []


def test_a_log_start_below_the_older_end_removes_no_new_records(snapshots: Snapshots) -> None:
    result = snapshots.compare_logs(HEALTHY.truncated_to(55), HEALTHY.after_retention(29), log_start=29)
    assert change_rows(result) == on_every_broker(("deleted", "retention", 0, 29), ("appended", None, 55, LOG_END))


@pytest.mark.parametrize("log_start", [0, 2])
def test_records_in_remote_storage_are_not_deleted(snapshots: Snapshots, log_start: int) -> None:
    snapshots.put(OLD, history(("p", 0)), 1)
    brokers = tiered(snapshots.root / NEW, dict.fromkeys(BROKERS, LONG), dict.fromkeys(BROKERS, 4))
    brokers.checkpoint("log-start", log_start)
    result = snapshots.compare()
    appended = ("appended", None, max(log_start, 1), LONG.next_offset)
    deleted = [("deleted", "retention", 0, 1), ("deleted", "came_and_went", 1, 2)] if log_start else []
    assert change_rows(result) == on_every_broker(*deleted, appended)
    assert [change.evidence for change in result.changes if change.kind is ChangeKind.APPENDED] == [{"in_remote_storage": True}] * 3


def test_partitions_created_empty_have_no_rows(snapshots: Snapshots) -> None:
    snapshots.put(OLD, HEALTHY)
    new = snapshots.put(NEW, HEALTHY)
    for broker in BROKERS:
        for name, log in (("empty-0", Log()), ("t-1", Log()), ("t-2", HEALTHY)):
            put_partition(new / f"b{broker}" / name, log)
    result = snapshots.compare()
    assert change_rows(result, topic="empty") == change_rows(result, topic="t", partition=1) == []
    assert change_rows(result, topic="t", partition=2) == on_every_broker(("created", "partition_added", 0, LOG_END))
    assert change_rows(result, topic="t", partition=0) == on_every_broker(("unchanged", None, 0, LOG_END))


def test_an_empty_replica_of_an_older_partition_has_a_row(snapshots: Snapshots) -> None:
    snapshots.put(OLD, {1: HEALTHY, 2: HEALTHY, 3: Log()})
    shutil.rmtree(snapshots.root / OLD / "b3" / DIRECTORY)
    snapshots.put(NEW, {1: HEALTHY, 2: HEALTHY, 3: Log()}, 0)
    assert change_rows(snapshots.compare(), broker=3) == [(3, "created", "replica_added", 0, 0)]


def test_truncation_above_the_high_watermark_is_no_finding(snapshots: Snapshots) -> None:
    follower = HEALTHY.truncated_to(TAIL)
    result = snapshots.compare_logs({1: HEALTHY, 2: follower, 3: follower}, follower.extended(epoch=7, tag="other"), TAIL + 3)
    assert change_rows(result, broker=1) == [(1, "truncated", None, TAIL, LOG_END), (1, "appended", None, TAIL, TAIL + 6)]
    assert change_rows(result, broker=2) == [(2, "appended", None, TAIL, TAIL + 6)]
    (lost,) = [change for change in result.changes if change.kind is ChangeKind.TRUNCATED]
    assert (lost.replaced_by, lost.leader_epochs, lost.committed_end_offset, lost.records) == (7, (2,), None, 3)
    assert (result.findings, result.notes) == ([], [])


def test_recreated_deleted_and_new_topics_are_not_compared(snapshots: Snapshots) -> None:
    old, new = snapshots.put(OLD, HEALTHY), snapshots.put(NEW, Log(tag="new").extended(3), 3)
    for broker in BROKERS:
        put_topic_id(new / f"b{broker}" / DIRECTORY, "AAAAAAAAAAAAAAAAAAAAAQ")
        put_partition(old / f"b{broker}" / "former-0", HEALTHY)
        put_partition(new / f"b{broker}" / "latter-0", HEALTHY)
    result = snapshots.compare()
    recreated = on_every_broker(("deleted", "topic_recreated", 0, LOG_END), ("created", "topic_recreated", 0, 9))
    assert change_rows(result, topic="t") == recreated
    assert change_rows(result, topic="former") == on_every_broker(("deleted", "topic_missing", 0, LOG_END))
    assert change_rows(result, topic="latter") == on_every_broker(("created", "topic_created", 0, LOG_END))
    assert result.findings == []


def test_a_partition_moved_to_another_broker_is_no_finding(snapshots: Snapshots) -> None:
    snapshots.put(OLD, {1: HEALTHY, 2: HEALTHY, 3: Log()})
    shutil.rmtree(snapshots.root / OLD / "b3" / DIRECTORY)
    shutil.rmtree(snapshots.put(NEW, {1: HEALTHY, 2: HEALTHY, 3: HEALTHY}) / "b2" / DIRECTORY)
    result = snapshots.compare()
    moved = [(2, "deleted", "moved_to_other_brokers", 0, LOG_END), (3, "created", "replica_added", 0, LOG_END)]
    assert change_rows(result) == [(1, "unchanged", None, 0, LOG_END), *moved]
    (deleted,) = [change for change in result.changes if change.kind is ChangeKind.DELETED]
    assert (deleted.evidence, deleted.committed_end_offset, deleted.held_by) == ({"brokers": [3]}, TAIL, (1, 3))
    assert result.findings == []


def test_a_replica_moved_to_another_log_directory_is_moved(snapshots: Snapshots) -> None:
    for name in (OLD, NEW):
        folder = snapshots.put(name, {1: HEALTHY})
        write_checkpoint(folder / "b1", "log-start", 0)
        disk = folder / "b1-disk-2"
        shutil.copytree(folder / "b1", disk)
        shutil.rmtree((disk if name == OLD else folder / "b1") / DIRECTORY)
    result = snapshots.compare()
    assert change_rows(result) == [(1, "moved", None, 0, LOG_END)]
    assert result.findings == []


def test_a_broker_that_one_snapshot_lacks_is_not_compared(snapshots: Snapshots) -> None:
    result = snapshots.compare_logs({1: HEALTHY, 2: HEALTHY}, {1: HEALTHY, 3: HEALTHY})
    unknown = [(broker, "not_compared", "broker_not_given", 0, LOG_END) for broker in (2, 3)]
    assert change_rows(result) == [(1, "unchanged", None, 0, LOG_END), *unknown]
    assert result.findings == []


def test_replicas_being_deleted_are_deleted(snapshots: Snapshots) -> None:
    snapshots.put(OLD, HEALTHY)
    new = snapshots.put(NEW, HEALTHY)
    for broker, suffix in ((2, "delete"), (3, "stray")):
        directory = new / f"b{broker}" / DIRECTORY
        directory.rename(directory.with_name(f"t-0.0123456789abcdef0123456789abcdef-{suffix}"))
    result = snapshots.compare()
    deleted = [(2, "deleted", "replica_being_deleted", 0, LOG_END), (3, "deleted", "replica_stray", 0, LOG_END)]
    assert change_rows(result) == [(1, "unchanged", None, 0, LOG_END), *deleted]
    assert result.findings == []


def test_each_of_several_snapshots_is_compared_with_the_next(snapshots: Snapshots) -> None:
    for number in (8, 9, 10):
        snapshots.put(f"day-{number}", HEALTHY.extended(batches=number - 7))
    result = snapshots.compare()
    assert list(result.snapshots) == ["day-8", "day-9", "day-10"]
    spans = [(change.from_snapshot, change.to_snapshot, change.offset_start) for change in result.changes if change.broker == 1]
    assert spans == [("day-8", "day-9", LOG_END + 3), ("day-9", "day-10", LOG_END + 6)]
