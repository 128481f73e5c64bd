"""What must not happen between two snapshots: committed records cut off, keys lost, bytes that rot, offsets that vanish."""

import copy
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.model.changes import ChangeKind
from kafka_forensics.model.findings import Confidence
from kafka_forensics.wording import advice, change_words, message
from lab.mutations import in_batch
from tests.support.faults import DIRECTORY, HEALTHY, HIGH_WATERMARK, LOG_END, Brokers
from tests.support.snapshot_trees import NEW, OLD, Snapshots, cut, findings, grown, on_each, rows

LOST = 55
"""Where the last segment of the healthy log begins, below the high watermark."""
KIND = "COMMITTED_TRUNCATED_SINCE"


@pytest.fixture
def trees(tmp_path: Path) -> Snapshots:
    """No snapshots yet."""
    return Snapshots(tmp_path / "snapshots")


def test_a_broker_that_cut_committed_records_which_others_hold_is_a_warning(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: HEALTHY, 2: cut(HEALTHY, LOST), 3: HEALTHY})
    result = trees.told()
    assert rows(result, broker=2) == [(2, "truncated", None, LOST, LOG_END)]
    assert findings(result) == [(KIND, "warning", LOST, HIGH_WATERMARK)]
    (row,) = [change for change in result.changes if change.kind is ChangeKind.TRUNCATED]
    assert (row.committed_end, row.held_by) == (HIGH_WATERMARK, (1, 3))
    assert message(result.findings[0]) == (
        f"t-0: offsets 55 to 71 were committed in snapshot {OLD} (replication-offset-checkpoint of broker 2) and are gone on broker"
        f" 2 in snapshot {NEW}; they are still on brokers 1 and 3."
    )


@pytest.mark.parametrize("replaced", [False, True], ids=["cut", "replaced"])
def test_committed_records_that_nobody_has_any_more_are_critical(trees: Snapshots, replaced: bool) -> None:
    trees.put(OLD, HEALTHY)
    shorter = cut(HEALTHY, LOST)
    trees.put(NEW, grown(shorter, 2, epoch=7, tag="other", roll=True) if replaced else shorter)
    result = trees.told()
    gone = ("truncated", None, LOST, LOG_END)
    assert rows(result) == on_each(*([gone, ("appended", None, LOST, LOST + 6)] if replaced else [gone]))
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK)]
    (finding,) = result.findings
    assert finding.evidence["replaced_by"] == ([7] if replaced else [])
    assert finding.evidence["held_before"] == [1, 2, 3]
    assert (advice(finding) or "").startswith(f"Keep snapshot {OLD} as it is, since it has these records.")


def test_records_that_others_took_the_place_of_are_gone_and_nothing_behind_them(trees: Snapshots) -> None:
    changed = copy.deepcopy(HEALTHY)
    number, batch = next(
        (number, one) for number, one in enumerate(changed.batches) if LOST - 20 <= one.base_offset < one.last_offset
    )
    value = len(batch.data) - 40
    data = in_batch(batch.data, 0, value, bytes([batch.data[value] ^ 1]), sealed=True)
    changed.batches[number] = replace(batch, data=data)
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: changed, 2: HEALTHY, 3: HEALTHY})
    result = trees.told()
    gone = (batch.base_offset, batch.last_offset + 1)
    assert rows(result, broker=1) == [(1, "rewritten", "content", *gone)]
    assert findings(result) == [(KIND, "warning", *gone)]
    (row,) = [change for change in result.changes if change.kind is ChangeKind.REWRITTEN]
    assert row.held_by == (2, 3)


def test_of_a_replica_that_vanished_only_what_no_other_has_is_lost(trees: Snapshots) -> None:
    shorter, forked = cut(HEALTHY, LOST), grown(cut(HEALTHY, LOST), 3, epoch=7, tag="other", roll=True)
    trees.put(OLD, {1: forked, 2: HEALTHY, 3: shorter})
    shutil.rmtree(trees.put(NEW, {1: forked, 2: HEALTHY, 3: shorter}) / "b2" / DIRECTORY)
    result = trees.told()
    assert rows(result, broker=2) == [(2, "deleted", "replica_gone", 0, LOG_END)]
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK)]
    assert result.findings[0].evidence["missing"] == HIGH_WATERMARK - LOST
    (row,) = [change for change in result.changes if change.broker == 2]
    assert (row.committed_end, row.held_by) == (HIGH_WATERMARK, ())
    assert row.evidence["lost"] == [[LOST, HIGH_WATERMARK]]
    assert change_words(row).endswith("committed below 72, still on 1, 3 but for 55 to 71")


def test_each_part_of_a_cut_is_judged_by_who_still_has_it(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    new = trees.put(NEW, {1: cut(HEALTHY, 29), 2: cut(HEALTHY, 29), 3: cut(HEALTHY, LOST)})
    result = trees.told()
    assert findings(result) == [(KIND, "critical", LOST, HIGH_WATERMARK), (KIND, "warning", 29, LOST)]
    assert [finding.evidence.get("held_by") for finding in result.findings] == [None, [3]]
    assert [finding.evidence["brokers"] for finding in result.findings] == [[1, 2, 3], [1, 2]]
    (row,) = [change for change in result.changes if change.broker == 1]
    assert row.evidence["in_parts_on"] == [3]
    shutil.rmtree(new / "b3" / DIRECTORY)
    assert findings(trees.told()) == [(KIND, "critical", 29, HIGH_WATERMARK)]


def test_holes_that_no_other_fills_are_counted_apart(trees: Snapshots) -> None:
    log = grown(grown(HEALTHY, 2, roll=True), 2, roll=True)
    trees.put(OLD, log, LOG_END + 12)
    new = trees.put(NEW, log, LOG_END + 12)
    for broker, segment in ((1, 29), (1, LOG_END), (3, 29), (3, LOG_END)):
        for path in (new / f"b{broker}" / DIRECTORY).glob(f"{segment:020}.*"):
            path.unlink()
    shutil.rmtree(new / "b2" / DIRECTORY)
    (finding,) = trees.told().findings
    assert (finding.severity.value, finding.place.offset_start, finding.place.offset_end) == ("critical", 29, LOG_END + 6)
    assert (finding.evidence["missing"], finding.evidence["ranges"]) == (32, [[29, LOST], [LOG_END, LOG_END + 6]])
    assert message(finding).startswith("t-0: 32 of offsets 29 to 80 were committed in snapshot")


def test_older_copies_of_brokers_that_cut_nothing_are_told_too(trees: Snapshots) -> None:
    """Broker 1 lost a segment in the middle, broker 2 the end, broker 3 never had all of it: 29 to 54 are in no newer copy."""
    trees.put(OLD, {1: HEALTHY, 2: HEALTHY, 3: cut(HEALTHY, 29)})
    new = trees.put(NEW, {1: HEALTHY, 2: cut(HEALTHY, 29), 3: cut(HEALTHY, 29)})
    for path in (new / "b1" / DIRECTORY).glob(f"{29:020}.*"):
        path.unlink()
    critical = next(finding for finding in trees.told().findings if finding.severity.value == "critical")
    assert (critical.place.offset_start, critical.place.offset_end) == (29, LOST)
    assert (critical.evidence["brokers"], critical.evidence["held_before"]) == ([2], [1, 2])
    assert "no copy of the newer one has them, those of brokers 1 and 2 in the older one do" in message(critical)


def test_a_broker_not_given_may_have_them(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: cut(HEALTHY, LOST), 2: cut(HEALTHY, LOST)})
    result = trees.told()
    assert findings(result) == [(KIND, "error", LOST, HIGH_WATERMARK)]
    (finding,) = result.findings
    assert (finding.evidence["not_given"], finding.confidence) == ([3], Confidence.SUSPECTED)


def test_brokers_that_were_not_asked_for_may_have_them(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: HEALTHY, 2: cut(HEALTHY, LOST), 3: HEALTHY})
    result = trees.told(broker="2")
    assert findings(result) == [(KIND, "error", LOST, HIGH_WATERMARK)]


def test_the_watermark_of_another_broker_proves_what_both_hold(trees: Snapshots) -> None:
    old = trees.put(OLD, HEALTHY)
    (old / "b2" / "replication-offset-checkpoint").unlink()
    trees.put(NEW, {1: HEALTHY, 2: cut(HEALTHY, LOST), 3: HEALTHY})
    assert findings(trees.told()) == [(KIND, "warning", LOST, HIGH_WATERMARK)]


def test_without_any_witness_nothing_is_claimed(trees: Snapshots) -> None:
    old = trees.put(OLD, HEALTHY)
    for broker in (1, 2, 3):
        (old / f"b{broker}" / "replication-offset-checkpoint").unlink()
    trees.put(NEW, cut(HEALTHY, LOST))
    result = trees.told()
    assert rows(result) == on_each(("truncated", None, LOST, LOG_END))
    assert result.findings == []


def test_snapshots_in_the_wrong_order_are_doubted(trees: Snapshots) -> None:
    younger, older = trees.put("b-old", cut(HEALTHY, LOST)), trees.put("a-new", HEALTHY)
    for folder, moment in ((younger, 1_700_000_000), (older, 1_700_100_000)):
        for path in folder.rglob("*"):
            os.utime(path, (moment, moment))
    result = trees.told()
    assert [finding[:2] for finding in findings(result)] == [(KIND, "warning")]
    assert result.findings[0].confidence is Confidence.SUSPECTED
    assert result.notes == ["snapshot b-old has shorter logs and older files than a-new: are the snapshots in the right order?"]


def test_a_batch_that_rotted_is_damaged_and_one_made_sound_is_rewritten(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, HEALTHY)
    trees.put(NEW + "x", HEALTHY)
    batch = HEALTHY.at(30)
    Brokers(trees.root / NEW, HEALTHY).flip(2, batch, 80)
    result = trees.told()
    there = (batch.base_offset, batch.last_offset + 1)
    assert rows(result, broker=2) == [(2, "damaged", "batch", *there), (2, "rewritten", "repaired", *there)]
    assert result.findings == []  # the scan of that snapshot says it
    assert any(finding.kind == "BATCH_CRC_MISMATCH" for finding in result.snapshots[NEW].findings)


def test_a_log_that_ends_in_damage_was_not_cut_on_purpose(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    new = Brokers(trees.put(NEW, HEALTHY), HEALTHY)
    batch = HEALTHY.at(LOST)
    path = new.file(2, batch.segment)
    path.write_bytes(path.read_bytes()[: batch.position + 70])
    result = trees.told()
    assert rows(result, broker=2) == [(2, "damaged", "tail", batch.base_offset, LOG_END)]
    assert findings(result) == [(KIND, "warning", batch.base_offset, HIGH_WATERMARK)]


def test_a_segment_that_vanished_from_the_middle_is_missing_and_may_come_back(trees: Snapshots) -> None:
    for name in ("1", "2", "3"):
        trees.put(name, HEALTHY)
    for path in (trees.root / "2" / "b2" / DIRECTORY).glob("00000000000000000029.*"):
        path.unlink()
    result = trees.told()
    assert rows(result, broker=2) == [(2, "missing", None, 29, 55), (2, "restored", "gap", 29, 55)]
    assert result.findings == []
    assert any(finding.kind == "OFFSET_GAP" for finding in result.snapshots["2"].findings)


def test_a_log_start_that_went_back_is_restored(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY, log_start=12)
    trees.put(NEW, HEALTHY)
    assert rows(trees.told()) == on_each(("restored", "log_start", 0, 12))


def test_a_log_that_cannot_be_read_is_not_compared(trees: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, HEALTHY)
    from kafka_forensics.errors import SourceError
    from kafka_forensics.storage.local import LocalSource

    opened = LocalSource.open

    def refuse(source: LocalSource, path: str) -> object:
        if path.endswith("b2/t-0/00000000000000000055.log") and NEW in source.name:
            raise SourceError(path, "input/output error")
        return opened(source, path)

    monkeypatch.setattr(LocalSource, "open", refuse)
    result = trees.told()
    assert rows(result, broker=2) == [(2, "not_compared", "unreadable", LOST, LOG_END)]
    assert result.findings == []
    assert result.is_incomplete
