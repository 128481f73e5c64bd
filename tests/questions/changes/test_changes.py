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
def trees(tmp_path: Path) -> Snapshots:
    """No snapshots yet."""
    return Snapshots(tmp_path / "snapshots")


def test_truncated_committed_records_that_others_hold_are_a_warning(trees: Snapshots) -> None:
    result = trees.compare_logs(HEALTHY, {1: HEALTHY, 2: HEALTHY.truncated_to(LOST), 3: HEALTHY})
    assert change_rows(result, broker=2) == [(2, "truncated", None, LOST, LOG_END)]
    assert findings(result) == [(KIND, "warning", LOST, HIGH_WATERMARK)]
    (row,) = [change for change in result.changes if change.kind is ChangeKind.TRUNCATED]
    assert (row.committed_end, row.held_by) == (HIGH_WATERMARK, (1, 3))
    assert message(result.findings[0]) == (
        f"t-0: offsets 55 to 71 were committed in snapshot {OLD} (replication-offset-checkpoint of broker 2) and are gone on broker"
        f" 2 in snapshot {NEW}; they are still on brokers 1 and 3."
    )


@pytest.mark.parametrize("replaced", [False, True], ids=["cut", "replaced"])
def test_committed_records_that_no_broker_holds_are_critical(trees: Snapshots, replaced: bool) -> None:
    shorter = HEALTHY.truncated_to(LOST)
    result = trees.compare_logs(HEALTHY, shorter.extended(2, epoch=7, tag="other", roll=True) if replaced else shorter)
    gone = ("truncated", None, LOST, LOG_END)
    assert change_rows(result) == on_every_broker(*([gone, ("appended", None, LOST, LOST + 6)] if replaced else [gone]))
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK)]
    (finding,) = result.findings
    assert finding.evidence["replaced_by"] == ([7] if replaced else [])
    assert finding.evidence["held_before"] == [1, 2, 3]
    assert (advice(finding) or "").startswith(f"Keep snapshot {OLD} as it is, since it has these records.")


def test_only_replaced_records_are_lost_and_none_after_them(trees: Snapshots) -> None:
    changed = copy.deepcopy(HEALTHY)
    number, batch = next(
        (number, one) for number, one in enumerate(changed.batches) if LOST - 20 <= one.base_offset < one.last_offset
    )
    value = len(batch.data) - 40
    data = in_batch(batch.data, 0, value, bytes([batch.data[value] ^ 1]), sealed=True)
    changed.batches[number] = replace(batch, data=data)
    result = trees.compare_logs(HEALTHY, {1: changed, 2: HEALTHY, 3: HEALTHY})
    gone = (batch.base_offset, batch.last_offset + 1)
    assert change_rows(result, broker=1) == [(1, "rewritten", "content", *gone)]
    assert findings(result) == [(KIND, "warning", *gone)]
    (row,) = [change for change in result.changes if change.kind is ChangeKind.REWRITTEN]
    assert row.held_by == (2, 3)


def test_a_missing_replica_loses_only_what_no_other_holds(trees: Snapshots) -> None:
    shorter, forked = HEALTHY.truncated_to(LOST), HEALTHY.truncated_to(LOST).extended(3, epoch=7, tag="other", roll=True)
    trees.put(OLD, {1: forked, 2: HEALTHY, 3: shorter})
    shutil.rmtree(trees.put(NEW, {1: forked, 2: HEALTHY, 3: shorter}) / "b2" / DIRECTORY)
    result = trees.told()
    assert change_rows(result, broker=2) == [(2, "deleted", "replica_gone", 0, LOG_END)]
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK)]
    assert result.findings[0].evidence["missing"] == HIGH_WATERMARK - LOST
    (row,) = [change for change in result.changes if change.broker == 2]
    assert (row.committed_end, row.held_by) == (HIGH_WATERMARK, ())
    assert row.evidence["lost"] == [[LOST, HIGH_WATERMARK]]
    assert change_text(row).endswith("committed below 72, still on 1, 3 but for 55 to 71")


def test_each_part_of_a_truncation_is_judged_by_its_holders(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    new = trees.put(NEW, {1: HEALTHY.truncated_to(29), 2: HEALTHY.truncated_to(29), 3: HEALTHY.truncated_to(LOST)})
    result = trees.told()
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK), (KIND, "warning", 29, LOST)]
    assert [finding.evidence.get("held_by") for finding in result.findings] == [None, [3]]
    assert [finding.evidence["brokers"] for finding in result.findings] == [[1, 2, 3], [1, 2]]
    (row,) = [change for change in result.changes if change.broker == 1]
    assert row.evidence["in_parts_on"] == [3]
    shutil.rmtree(new / "b3" / DIRECTORY)
    assert findings(trees.told()) == [(KIND, "critical", 29, HIGH_WATERMARK)]


@pytest.mark.parametrize(("policy", "reason"), [("compact", "head_gone"), ("compact,delete", "retention")])
@pytest.mark.parametrize("cleaned", [set(), {CLEANED - 1}], ids=["kept", "the last offset was cleaned"])
def test_retention_does_not_delete_segments_of_a_compacted_topic(
    tmp_path: Path, policy: str, reason: str, cleaned: set[int]
) -> None:
    trees = Snapshots(tmp_path)
    log = keyed_history().left(cleaned, roll=CLEANED)
    for name in (OLD, NEW):
        brokers = put_compacted(tmp_path / name, dict.fromkeys(BROKERS, log), dict.fromkeys(BROKERS, CLEANED))
        if name == NEW:
            brokers.remove(2, 0, "*")
        with_controller(brokers, *topic_with_isr([1, 2, 3]), setting("cleanup.policy", policy))
    assert change_rows(trees.told(), broker=2) == [(2, "deleted", reason, 0, CLEANED)]


def test_holes_that_no_other_replica_fills_are_counted_separately(trees: Snapshots) -> None:
    log = HEALTHY.extended(2, roll=True).extended(2, roll=True)
    trees.put(OLD, log, LOG_END + 12)
    new = trees.put(NEW, log, LOG_END + 12)
    for broker, segment in ((1, 29), (1, LOG_END), (3, 29), (3, LOG_END)):
        for path in (new / f"b{broker}" / DIRECTORY).glob(segment_file(segment, "*")):
            path.unlink()
    shutil.rmtree(new / "b2" / DIRECTORY)
    (finding,) = trees.told().findings
    assert (finding.severity.value, finding.place.offset_start, finding.place.offset_end) == ("critical", 29, LOG_END + 6)
    assert (finding.evidence["missing"], finding.evidence["ranges"]) == (32, [[29, LOST], [LOG_END, LOG_END + 6]])
    assert message(finding).startswith("t-0: 32 of offsets 29 to 80 were committed in snapshot")


def test_older_copies_of_brokers_that_truncated_nothing_are_listed(trees: Snapshots) -> None:
    """Broker 1 lost a middle segment, broker 2 the end, broker 3 never had all: offsets 29 to 54 are in no newer copy."""
    trees.put(OLD, {1: HEALTHY, 2: HEALTHY, 3: HEALTHY.truncated_to(29)})
    new = trees.put(NEW, {1: HEALTHY, 2: HEALTHY.truncated_to(29), 3: HEALTHY.truncated_to(29)})
    for path in (new / "b1" / DIRECTORY).glob(segment_file(29, "*")):
        path.unlink()
    critical = next(finding for finding in trees.told().findings if finding.severity.value == "critical")
    assert (critical.place.offset_start, critical.place.offset_end) == (29, LOST)
    assert (critical.evidence["brokers"], critical.evidence["held_before"]) == ([2], [1, 2])
    assert "no copy of the newer one has them, those of brokers 1 and 2 in the older one do" in message(critical)


def test_possible_holders_and_the_proof_of_commitment_are_listed(trees: Snapshots) -> None:
    trees.compare_logs(HEALTHY, {1: HEALTHY, 2: HEALTHY.truncated_to(LOST), 3: HEALTHY})
    assert findings(trees.told(broker="2")) == [(KIND, "error", LOST, HIGH_WATERMARK)], "those not asked for may have them"
    (trees.root / OLD / "b2" / "replication-offset-checkpoint").unlink()
    assert findings(trees.told()) == [(KIND, "warning", LOST, HIGH_WATERMARK)], "the watermark of another broker proves it"
    for broker in (1, 3):
        (trees.root / OLD / f"b{broker}" / "replication-offset-checkpoint").unlink()
    result = trees.told()
    assert change_rows(result, broker=2) == [(2, "truncated", None, LOST, LOG_END)]
    assert result.findings == [], "without any witness nothing is claimed"


def test_a_broker_without_a_copy_may_hold_lost_records(trees: Snapshots) -> None:
    result = trees.compare_logs(HEALTHY, {1: HEALTHY.truncated_to(LOST), 2: HEALTHY.truncated_to(LOST)})
    assert findings(result) == [(KIND, "error", LOST, HIGH_WATERMARK)]
    (finding,) = result.findings
    assert (finding.evidence["not_given"], finding.confidence) == ([3], Confidence.SUSPECTED)


def test_snapshots_in_the_wrong_order_are_doubted(trees: Snapshots) -> None:
    younger, older = trees.put("b-old", HEALTHY.truncated_to(LOST)), trees.put("a-new", HEALTHY)
    for folder, moment in ((younger, 1_700_000_000), (older, 1_700_100_000)):
        for path in folder.rglob("*"):
            os.utime(path, (moment, moment))
    result = trees.told()
    assert [finding[:2] for finding in findings(result)] == [(KIND, "warning")]
    assert result.findings[0].confidence is Confidence.SUSPECTED
    assert result.notes == ["snapshot b-old has shorter logs and older files than a-new: are the snapshots in the right order?"]


def test_a_batch_that_rots_is_damaged_and_a_repaired_one_rewritten(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, HEALTHY)
    trees.put(NEW + "x", HEALTHY)
    batch = HEALTHY.at(30)
    Brokers(trees.root / NEW, HEALTHY).flip(2, batch, 80)
    result = trees.told()
    there = (batch.base_offset, batch.last_offset + 1)
    assert change_rows(result, broker=2) == [(2, "damaged", "batch", *there), (2, "rewritten", "repaired", *there)]
    assert result.findings == []  # the scan of that snapshot says it
    assert any(finding.kind == "BATCH_CRC_MISMATCH" for finding in result.snapshots[NEW].findings)


def test_a_log_that_ends_in_damage_was_not_truncated(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    new = Brokers(trees.put(NEW, HEALTHY), HEALTHY)
    batch = HEALTHY.at(LOST)
    path = new.file(2, batch.segment)
    path.write_bytes(path.read_bytes()[: batch.position + 70])
    result = trees.told()
    assert change_rows(result, broker=2) == [(2, "damaged", "tail", batch.base_offset, LOG_END)]
    assert findings(result) == [(KIND, "warning", batch.base_offset, HIGH_WATERMARK)]


def test_a_middle_segment_goes_missing_and_comes_back(trees: Snapshots) -> None:
    for name in ("1", "2", "3"):
        trees.put(name, HEALTHY)
    for path in (trees.root / "2" / "b2" / DIRECTORY).glob("00000000000000000029.*"):
        path.unlink()
    result = trees.told()
    assert change_rows(result, broker=2) == [(2, "missing", None, 29, 55), (2, "restored", "gap", 29, 55)]
    assert result.findings == []
    assert any(finding.kind == "OFFSET_GAP" for finding in result.snapshots["2"].findings)


def test_a_lower_log_start_is_restored(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY, log_start=12)
    trees.put(NEW, HEALTHY)
    assert change_rows(trees.told()) == on_every_broker(("restored", "log_start", 0, 12))


def test_a_log_that_cannot_be_read_is_not_compared(trees: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, lambda path: NEW in path.parts and path.match(f"b2/t-0/{55:020d}.log"))
    result = trees.compare_logs(HEALTHY, HEALTHY)
    assert change_rows(result, broker=2) == [(2, "not_compared", "unreadable", LOST, LOG_END)]
    assert result.findings == []
    assert result.is_incomplete


# What goes on every day is told as what it is, and never a finding.


def test_records_deleted_within_a_segment_are_deleted(trees: Snapshots) -> None:
    result = trees.compare_logs(HEALTHY, HEALTHY, log_start=12)
    assert change_rows(result) == on_every_broker(("deleted", "log_start_moved", 0, 12))
    assert result.findings == []


def test_retention_may_pass_the_end_of_the_older_log(trees: Snapshots) -> None:
    result = trees.compare_logs(HEALTHY.truncated_to(29), HEALTHY.after_retention(55), log_start=55)
    came = [("deleted", "came_and_went", 29, 55), ("appended", None, 55, LOG_END)]
    assert change_rows(result) == on_every_broker(("deleted", "retention", 0, 29), *came)
    assert result.findings == []


def test_an_empty_log_that_starts_later_has_appended_records(trees: Snapshots) -> None:
    result = trees.compare_logs(Log(), HEALTHY.after_retention(55), log_start=60)
    assert change_rows(result) == on_every_broker(("deleted", "came_and_went", 0, 60), ("appended", None, 60, LOG_END))
    gone, came = result.changes[:2]
    assert (gone.batches, gone.records, gone.bytes) == (None, None, None)
    assert came.batches == sum(batch.last_offset >= 60 for batch in HEALTHY.batches)
    assert change_text(gone).startswith("deleted; appended since the older snapshot and below the log start again")
    assert result.findings == []


def test_a_log_that_is_empty_again_has_nothing_appended(trees: Snapshots) -> None:
    result = trees.compare_logs(HEALTHY.truncated_to(29), HEALTHY, log_start=LOG_END)
    assert change_rows(result) == on_every_broker(("deleted", "log_start_moved", 0, 29), ("deleted", "came_and_went", 29, LOG_END))
    assert result.findings == []


def test_a_log_start_below_the_older_end_removes_no_new_records(trees: Snapshots) -> None:
    result = trees.compare_logs(HEALTHY.truncated_to(55), HEALTHY.after_retention(29), log_start=29)
    assert change_rows(result) == on_every_broker(("deleted", "retention", 0, 29), ("appended", None, 55, LOG_END))


@pytest.mark.parametrize("log_start", [0, 2])
def test_records_in_remote_storage_are_not_deleted(trees: Snapshots, log_start: int) -> None:
    trees.put(OLD, history(("p", 0)), 1)
    brokers = tiered(trees.root / NEW, dict.fromkeys(BROKERS, LONG), dict.fromkeys(BROKERS, 4))
    brokers.checkpoint("log-start", log_start)
    result = trees.told()
    came = ("appended", None, max(log_start, 1), LONG.next_offset)
    gone = [("deleted", "retention", 0, 1), ("deleted", "came_and_went", 1, 2)] if log_start else []
    assert change_rows(result) == on_every_broker(*gone, came)
    assert [change.evidence for change in result.changes if change.kind is ChangeKind.APPENDED] == [{"in_remote_storage": True}] * 3


def test_partitions_created_empty_have_no_rows(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    new = trees.put(NEW, HEALTHY)
    for broker in BROKERS:
        for name, log in (("empty-0", Log()), ("t-1", Log()), ("t-2", HEALTHY)):
            put_partition(new / f"b{broker}" / name, log)
    result = trees.told()
    assert change_rows(result, topic="empty") == change_rows(result, topic="t", partition=1) == []
    assert change_rows(result, topic="t", partition=2) == on_every_broker(("created", "partition_added", 0, LOG_END))
    assert change_rows(result, topic="t", partition=0) == on_every_broker(("unchanged", None, 0, LOG_END))


def test_an_empty_replica_of_an_older_partition_has_a_row(trees: Snapshots) -> None:
    trees.put(OLD, {1: HEALTHY, 2: HEALTHY, 3: Log()})
    shutil.rmtree(trees.root / OLD / "b3" / DIRECTORY)
    trees.put(NEW, {1: HEALTHY, 2: HEALTHY, 3: Log()}, 0)
    assert change_rows(trees.told(), broker=3) == [(3, "created", "replica_added", 0, 0)]


def test_truncation_above_the_high_watermark_is_no_finding(trees: Snapshots) -> None:
    follower = HEALTHY.truncated_to(TAIL)
    result = trees.compare_logs({1: HEALTHY, 2: follower, 3: follower}, follower.extended(epoch=7, tag="other"), TAIL + 3)
    assert change_rows(result, broker=1) == [(1, "truncated", None, TAIL, LOG_END), (1, "appended", None, TAIL, TAIL + 6)]
    assert change_rows(result, broker=2) == [(2, "appended", None, TAIL, TAIL + 6)]
    (lost,) = [change for change in result.changes if change.kind is ChangeKind.TRUNCATED]
    assert (lost.replaced_by, lost.leader_epochs, lost.committed_end, lost.records) == (7, (2,), None, 3)
    assert (result.findings, result.notes) == ([], [])


def test_recreated_deleted_and_new_topics_are_not_compared(trees: Snapshots) -> None:
    old, new = trees.put(OLD, HEALTHY), trees.put(NEW, Log(tag="new").extended(3), 3)
    for broker in BROKERS:
        put_topic_id(new / f"b{broker}" / DIRECTORY, "AAAAAAAAAAAAAAAAAAAAAQ")
        put_partition(old / f"b{broker}" / "former-0", HEALTHY)
        put_partition(new / f"b{broker}" / "latter-0", HEALTHY)
    result = trees.told()
    anew = on_every_broker(("deleted", "topic_recreated", 0, LOG_END), ("created", "topic_recreated", 0, 9))
    assert change_rows(result, topic="t") == anew
    assert change_rows(result, topic="former") == on_every_broker(("deleted", "topic_gone", 0, LOG_END))
    assert change_rows(result, topic="latter") == on_every_broker(("created", "topic_created", 0, LOG_END))
    assert result.findings == []


def test_a_partition_that_moved_to_another_broker(trees: Snapshots) -> None:
    trees.put(OLD, {1: HEALTHY, 2: HEALTHY, 3: Log()})
    shutil.rmtree(trees.root / OLD / "b3" / DIRECTORY)
    shutil.rmtree(trees.put(NEW, {1: HEALTHY, 2: HEALTHY, 3: HEALTHY}) / "b2" / DIRECTORY)
    result = trees.told()
    moved = [(2, "deleted", "moved_to_other_brokers", 0, LOG_END), (3, "created", "replica_added", 0, LOG_END)]
    assert change_rows(result) == [(1, "unchanged", None, 0, LOG_END), *moved]
    (gone,) = [change for change in result.changes if change.kind is ChangeKind.DELETED]
    assert (gone.evidence, gone.committed_end, gone.held_by) == ({"brokers": [3]}, TAIL, (1, 3))
    assert result.findings == []


def test_a_replica_that_moved_to_another_log_directory_of_its_broker(trees: Snapshots) -> None:
    for name in (OLD, NEW):
        folder = trees.put(name, {1: HEALTHY})
        write_checkpoint(folder / "b1", "log-start", 0)
        disk = folder / "b1-disk-2"
        shutil.copytree(folder / "b1", disk)
        shutil.rmtree((disk if name == OLD else folder / "b1") / DIRECTORY)
    result = trees.told()
    assert change_rows(result) == [(1, "moved", None, 0, LOG_END)]
    assert result.findings == []


def test_a_broker_that_one_snapshot_lacks_is_not_compared(trees: Snapshots) -> None:
    result = trees.compare_logs({1: HEALTHY, 2: HEALTHY}, {1: HEALTHY, 3: HEALTHY})
    unknown = [(broker, "not_compared", "broker_not_given", 0, LOG_END) for broker in (2, 3)]
    assert change_rows(result) == [(1, "unchanged", None, 0, LOG_END), *unknown]
    assert result.findings == []


def test_replicas_being_deleted(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    new = trees.put(NEW, HEALTHY)
    for broker, suffix in ((2, "delete"), (3, "stray")):
        directory = new / f"b{broker}" / DIRECTORY
        directory.rename(directory.with_name(f"t-0.0123456789abcdef0123456789abcdef-{suffix}"))
    result = trees.told()
    out = [(2, "deleted", "replica_being_deleted", 0, LOG_END), (3, "deleted", "replica_stray", 0, LOG_END)]
    assert change_rows(result) == [(1, "unchanged", None, 0, LOG_END), *out]
    assert result.findings == []


def test_each_of_several_snapshots_is_compared_with_the_next(trees: Snapshots) -> None:
    for number in (8, 9, 10):
        trees.put(f"day-{number}", HEALTHY.extended(batches=number - 7))
    result = trees.told()
    assert list(result.snapshots) == ["day-8", "day-9", "day-10"]
    spans = [(change.from_snapshot, change.to_snapshot, change.offset_start) for change in result.changes if change.broker == 1]
    assert spans == [("day-8", "day-9", LOG_END + 3), ("day-9", "day-10", LOG_END + 6)]
