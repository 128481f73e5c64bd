"""What goes on every day between two snapshots: told as what it is, and never a finding."""

import shutil
from pathlib import Path

import pytest

from kafka_forensics.model.changes import ChangeKind
from tests.support.faults import DIRECTORY, HEALTHY, HIGH_WATERMARK, LOG_END, Log, write_checkpoint, write_files
from tests.support.snapshot_trees import EVERY, NEW, OLD, Snapshots, cut, expired, grown, on_each, rows, worst_within

TAIL = HIGH_WATERMARK
"""Where the last batch of the healthy log begins, above every high watermark."""


@pytest.fixture
def trees(tmp_path: Path) -> Snapshots:
    """No snapshots yet."""
    return Snapshots(tmp_path / "snapshots")


def test_a_copy_made_a_second_later_is_unchanged(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, HEALTHY)
    result = trees.told()
    assert rows(result) == on_each(("unchanged", None, 0, LOG_END))
    assert (result.findings, result.notes, result.verdict, worst_within(result)) == ([], [], "clean", 0)


@pytest.mark.parametrize("roll", [False, True], ids=["one segment", "a segment rolled"])
def test_what_was_appended_is_counted_with_its_epochs(trees: Snapshots, roll: bool) -> None:
    trees.put(OLD, HEALTHY)
    longer = grown(roll=roll, epoch=5)
    trees.put(NEW, longer, longer.next_offset)
    result = trees.told()
    assert rows(result) == on_each(("appended", None, LOG_END, LOG_END + 6))
    size = sum(len(batch.data) for batch in longer.batches[-2:])
    assert {(change.batches, change.records, change.bytes, change.leader_epochs) for change in result.changes} == {
        (2, 6, size, (5,))
    }
    assert (result.findings, result.notes, worst_within(result)) == ([], [], 0)


def test_what_retention_took_is_deleted(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, expired(HEALTHY, 29), log_start=29)
    result = trees.told()
    assert rows(result) == on_each(("deleted", "retention", 0, 29))
    gone = [batch for batch in HEALTHY.batches if batch.segment == 0]
    assert {(change.batches, change.bytes) for change in result.changes} == {(len(gone), sum(len(one.data) for one in gone))}
    assert (result.findings, result.notes) == ([], [])


def test_records_deleted_within_a_segment_are_deleted(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, HEALTHY, log_start=12)
    result = trees.told()
    assert rows(result) == on_each(("deleted", "log_start_moved", 0, 12))
    assert result.findings == []


def test_retention_may_pass_the_end_of_the_older_log(trees: Snapshots) -> None:
    trees.put(OLD, cut(HEALTHY, 29), 29)
    trees.put(NEW, expired(HEALTHY, 55), log_start=55)
    result = trees.told()
    assert rows(result) == on_each(("deleted", "retention", 0, 29), ("appended", None, 29, LOG_END))
    assert result.findings == []


def test_a_tail_above_the_high_watermark_that_an_election_cut_is_no_finding(trees: Snapshots) -> None:
    follower = cut(HEALTHY, TAIL)
    trees.put(OLD, {1: HEALTHY, 2: follower, 3: follower})
    trees.put(NEW, grown(follower, epoch=7, tag="other"), TAIL + 3)
    result = trees.told()
    assert rows(result, broker=1) == [(1, "truncated", None, TAIL, LOG_END), (1, "appended", None, TAIL, TAIL + 6)]
    assert rows(result, broker=2) == [(2, "appended", None, TAIL, TAIL + 6)]
    (lost,) = [change for change in result.changes if change.kind is ChangeKind.TRUNCATED]
    assert (lost.replaced_by, lost.leader_epochs, lost.committed_end, lost.records) == (7, (2,), None, 3)
    assert (result.findings, result.notes) == ([], [])


def test_a_tail_cut_without_anything_in_its_place_is_told(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: HEALTHY, 2: cut(HEALTHY, TAIL), 3: HEALTHY})
    result = trees.told()
    assert rows(result, broker=2) == [(2, "truncated", None, TAIL, LOG_END)]
    assert [change.replaced_by for change in result.changes if change.broker == 2] == [None]
    assert result.findings == []


def test_a_topic_made_anew_is_not_compared_with_its_namesake(trees: Snapshots) -> None:
    trees.put(OLD, HEALTHY)
    new = trees.put(NEW, grown(Log(tag="new"), 3), 3)
    for broker in EVERY:
        (new / f"b{broker}" / DIRECTORY / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    result = trees.told()
    assert rows(result) == on_each(("deleted", "topic_recreated", 0, LOG_END), ("created", "topic_recreated", 0, 9))
    assert result.findings == []


def test_a_topic_that_is_gone_and_one_that_is_new(trees: Snapshots) -> None:
    old, new = trees.put(OLD, HEALTHY), trees.put(NEW, HEALTHY)
    for broker in EVERY:
        write_files(old / f"b{broker}" / "former-0", HEALTHY)
        write_files(new / f"b{broker}" / "latter-0", HEALTHY)
    result = trees.told()
    assert rows(result, topic="former") == on_each(("deleted", "topic_gone", 0, LOG_END))
    assert rows(result, topic="latter") == on_each(("created", "topic_created", 0, LOG_END))
    assert result.findings == []


def test_a_partition_that_moved_to_another_broker(trees: Snapshots) -> None:
    trees.put(OLD, {1: HEALTHY, 2: HEALTHY, 3: Log()})
    shutil.rmtree(trees.root / OLD / "b3" / DIRECTORY)
    new = trees.put(NEW, {1: HEALTHY, 2: HEALTHY, 3: HEALTHY})
    shutil.rmtree(new / "b2" / DIRECTORY)
    result = trees.told()
    moved = [(2, "deleted", "moved_to_other_brokers", 0, LOG_END), (3, "created", "replica_added", 0, LOG_END)]
    assert rows(result) == [(1, "unchanged", None, 0, LOG_END), *moved]
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
    assert rows(result) == [(1, "moved", None, 0, LOG_END)]
    assert result.findings == []


def test_a_broker_that_one_snapshot_lacks_is_not_compared(trees: Snapshots) -> None:
    trees.put(OLD, {1: HEALTHY, 2: HEALTHY})
    trees.put(NEW, {1: HEALTHY, 3: HEALTHY})
    result = trees.told()
    unknown = [(broker, "not_compared", "broker_not_given", 0, LOG_END) for broker in (2, 3)]
    assert rows(result) == [(1, "unchanged", None, 0, LOG_END), *unknown]
    assert result.findings == []


@pytest.mark.parametrize(("suffix", "reason"), [("delete", "replica_being_deleted"), ("stray", "replica_stray")])
def test_a_replica_on_its_way_out(trees: Snapshots, suffix: str, reason: str) -> None:
    trees.put(OLD, HEALTHY)
    directory = trees.put(NEW, HEALTHY) / "b2" / DIRECTORY
    directory.rename(directory.with_name(f"t-0.0123456789abcdef0123456789abcdef-{suffix}"))
    result = trees.told()
    assert rows(result, broker=2) == [(2, "deleted", reason, 0, LOG_END)]
    assert result.findings == []


def test_of_several_snapshots_each_is_compared_with_the_next(trees: Snapshots) -> None:
    for number in (8, 9, 10):
        trees.put(f"day-{number}", grown(batches=number - 7))
    result = trees.told()
    assert list(result.snapshots) == ["day-8", "day-9", "day-10"]
    spans = [(change.from_snapshot, change.to_snapshot, change.offset_start) for change in result.changes if change.broker == 1]
    assert spans == [("day-8", "day-9", LOG_END + 3), ("day-9", "day-10", LOG_END + 6)]
