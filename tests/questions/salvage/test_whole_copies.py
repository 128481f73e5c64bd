"""Compacted and internal topics, whose copies may differ: one whole copy is used, if there is one."""

import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kafka_forensics.cli.outputs.salvage import summary_lines
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.questions.plan import PlanMaker, Planned
from kafka_forensics.questions.salvage.whole_copies import DIFFERING, _fork
from kafka_forensics.replication.planner import NO_END, Plan, PlanPartition, PlanReplica
from kafka_forensics.scanning.engine.local import scan
from tests.questions.salvage.salvaged import NAME, TOPIC, of_first, refused, salvaged_of, taken
from tests.support.brokers import put_epochs, put_meta_properties, put_replica, put_segment, write_checkpoint
from tests.support.controllers import ControllerLog, partition, setting, topic
from tests.support.segments import batch, flip_bit, producer_batch, segment_file, values

CLEANED = [batch(0, 2, value=b"first"), batch(4, 1, value=b"second"), batch(8, 2, value=b"third")]
REST = [batch(10, 2, value=b"fourth")]


def put_cleaned(folder: Path, broker: int, batches: list[bytes], dirty: int = 10) -> Path:
    """A copy of a compacted log."""
    segments = {0: batches[:3], 10: batches[3:]}
    return put_replica(folder, broker, segments, high_watermark=12, cleaned=dirty, epochs=[(0, 0)])


def test_of_several_whole_copies_the_recommended_or_preferred_one_is_used(tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        put_cleaned(tmp_path / "in", broker, [*CLEANED, *(REST if broker < 3 else [])])
    log_of_plan = salvaged_of(tmp_path / "in", tmp_path / "out").partitions[0]
    assert (log_of_plan.base_broker, log_of_plan.chosen_by) == (1, "plan")
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "two", prefer="2").partitions
    assert (partition.base_broker, partition.chosen_by, partition.left_behind, partition.warning) == (2, "prefer_broker", [], None)
    for output, allow_gaps in (("three", False), ("three-gaps", True)):
        salvaged = salvaged_of(tmp_path / "in", tmp_path / output, prefer="3", allow_gaps=allow_gaps)
        (partition,) = salvaged.partitions
        assert (partition.base_broker, partition.chosen_by) == (1, "plan"), "the copy of broker 3 ends too early"
        reason = "the copy of broker 1 was chosen, because the copy of broker 3 ends at offset 10, before 12"
        assert partition.warning == reason
        assert f"note: {NAME}: {reason}" in summary_lines(salvaged, quiet=False)
        assert salvaged.is_whole


def test_without_a_recommendation_the_longest_whole_copy_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for broker in (1, 2):
        put_cleaned(tmp_path / "in", broker, [*CLEANED, *REST])
    plan_of = PlanMaker.plan_of

    def without_recommendation(*arguments: Any) -> Planned:
        planned = plan_of(*arguments)
        return replace(planned, plan=replace(planned.plan, recommended=None))

    monkeypatch.setattr(PlanMaker, "plan_of", without_recommendation)
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert (partition.base_broker, partition.chosen_by) == (1, "longest")


def test_of_copies_with_different_values_the_preferred_one_is_used(tmp_path: Path) -> None:
    other = [*CLEANED[:2], batch(8, 2, value=b"other"), *REST]
    put_cleaned(tmp_path / "in", 1, [*CLEANED, *REST])
    put_cleaned(tmp_path / "in", 2, other)
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert refused.kind == "compacted"
    assert "its copies differ (SAME_EPOCH_DIVERGENCE)" in refused.reason
    assert "--prefer-broker" in str(refused.hint)
    for broker, batches in (("1", [*CLEANED, *REST]), ("2", other)):
        partition = taken(tmp_path, batches, broker, prefer=broker)
        assert (partition.base_broker, partition.chosen_by) == (int(broker), "prefer_broker")
        assert [(records.broker, records.start, records.end) for records in partition.left_behind] == [(3 - int(broker), 8, 12)]


def test_an_empty_segment_of_a_cleaner_is_not_lost(tmp_path: Path) -> None:
    """The cleaner removed every batch of segment 10. Its empty file stays until the segment is merged with the next."""
    segments = {0: b"".join(CLEANED), 10: b"", 20: batch(20, 2, value=b"fifth")}
    put_replica(tmp_path / "in", 1, segments, high_watermark=22, cleaned=20, epochs=[(0, 0)])
    salvaged = taken(tmp_path, segments.values())
    assert (salvaged.gaps, salvaged.warning, salvaged.log_end_offset) == ([], None, 22)


def test_epochs_without_their_first_batches_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    """Epoch 1 has no batch left, and epoch 2 started before its first remaining batch. Entry 3 is after the end."""
    segments, epochs = {0: CLEANED[0], 20: batch(22, 2, epoch=2)}, [(0, 0), (1, 5), (2, 11), (3, 24)]
    log_dir = put_replica(tmp_path / "in", 1, segments, high_watermark=24, cleaned=20, epochs=epochs)
    (salvaged,) = salvaged_of(tmp_path / "in", tmp_path / "out").partitions
    assert [(entry.leader_epoch, entry.start_offset) for entry in salvaged.leader_epochs] == [(0, 0), (1, 5), (2, 11)]
    assert (of_first(tmp_path / "out") / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 5\n2 11\n"
    (log_dir / NAME / "leader-epoch-checkpoint").unlink()
    (salvaged,) = salvaged_of(tmp_path / "in", tmp_path / "none").partitions
    assert [(entry.leader_epoch, entry.start_offset) for entry in salvaged.leader_epochs] == [(0, 0), (2, 22)]


def put_without_start(folder: Path) -> None:
    """Broker 1 has everything, broker 2 starts with segment 10."""
    put_cleaned(folder, 1, [*CLEANED, *REST])
    put_cleaned(folder, 2, [*CLEANED, *REST])
    (folder / "broker-2" / NAME / segment_file(0)).unlink()


def base_of(folder: Path, output: Path, **options: Any) -> int | str:
    """The base of a salvage that prefers broker 2."""
    return next(
        partition.base_broker
        for partition in salvaged_of(folder, output, prefer="2", **options).partitions
        if partition.topic == TOPIC
    )


@pytest.mark.parametrize("broker", [1, 2])
def test_a_start_that_delete_records_may_have_moved_is_not_lost(broker: int, tmp_path: Path) -> None:
    put_without_start(tmp_path / "in")
    assert base_of(tmp_path / "in", tmp_path / "lost") == 1
    write_checkpoint(tmp_path / "in" / f"broker-{broker}", "log-start", 1 if broker == 1 else 10, "orders-0")
    assert base_of(tmp_path / "in", tmp_path / "deleted") == 2


@pytest.mark.parametrize(("policy", "base"), [("compact", 1), ("compact,delete", 2), ("delete", 2)])
def test_a_start_that_retention_may_have_moved_is_not_lost(policy: str, base: int, tmp_path: Path) -> None:
    put_without_start(tmp_path / "in")
    log = ControllerLog().lead([100])
    for value in (topic(TOPIC), partition([1, 2], 1), setting("cleanup.policy", policy, TOPIC)):
        log.append(value)
    log.put(tmp_path / "in" / "c100")
    assert base_of(tmp_path / "in", tmp_path / "out") == base


def test_a_copy_without_batches_does_not_say_where_the_log_starts(tmp_path: Path) -> None:
    put_without_start(tmp_path / "in")
    put_segment(tmp_path / "in" / "broker-1" / NAME, 0, b"")
    (tmp_path / "in" / "broker-1" / NAME / segment_file(10)).unlink()
    assert base_of(tmp_path / "in", tmp_path / "out") == 2


def test_a_high_watermark_of_a_live_copy_proves_nothing(tmp_path: Path) -> None:
    """The checkpoint may have been copied after the log."""
    write_checkpoint(put_cleaned(tmp_path / "in", 1, [*CLEANED, *REST]), "replication", 14, "orders-0")
    assert "the copy of broker 1 ends at offset 12, before 14" in refused(tmp_path).reason
    (salvaged,) = salvaged_of(tmp_path / "in", tmp_path / "out", live=True).partitions
    assert (salvaged.log_end_offset, salvaged.warning) == (12, None)


def test_a_missing_last_segment_with_an_index_is_noticed(tmp_path: Path) -> None:
    (put_cleaned(tmp_path / "in", 1, [*CLEANED, *REST]) / NAME / segment_file(16, "index")).touch()
    refusal = refused(tmp_path)
    assert (refusal.offsets, "ends at offset 12, before 16" in refusal.reason) == (((12, 16),), True)


OLD = [*CLEANED, *REST, batch(12, 2, value=b"old")]
NEW = [*CLEANED, *REST, batch(12, 2, value=b"new", epoch=2), batch(14, 2, value=b"newer", epoch=2)]


def put_rivals(folder: Path, damaged: dict[int, int] | None = None, *, high_watermark: int = 14) -> None:
    """Broker 1 has records that brokers 2 and 3 lack, which continue with another leader; some copies are damaged."""
    for broker, batches in ((1, OLD), (2, NEW), (3, NEW)):
        lost = (damaged or {}).get(broker)
        log = [flip_bit(batch, 70) if number == lost else batch for number, batch in enumerate(batches)]
        log_dir = put_cleaned(folder, broker, log)
        write_checkpoint(log_dir, "replication", high_watermark, "orders-0")
        put_epochs(log_dir / NAME, (0, 0), *([] if broker == 1 else [(2, 12)]))


def test_of_rival_histories_the_preferred_one_is_used(tmp_path: Path) -> None:
    put_rivals(tmp_path / "in")
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert (refused.kind, set(refused.brokers)) == ("compacted", {1, 2, 3})
    assert "its copies differ (UNCLEAN_LOSS)" in refused.reason
    for broker, batches in (("1", OLD), ("2", NEW)):
        partition = taken(tmp_path, batches, broker, prefer=broker)
        assert (partition.base_broker, partition.chosen_by, partition.gaps) == (int(broker), "prefer_broker", [])
    assert [(left.broker, left.start, left.end, left.committed_end, left.rival_of) for left in partition.left_behind] == [
        (1, 12, 14, 14, 2)
    ]


def test_other_copies_do_not_fill_a_damaged_copy_of_the_chosen_history(tmp_path: Path) -> None:
    """Not even copies that seem to have the same history: cleaned copies may not show their fork."""
    put_rivals(tmp_path / "in", {2: 2})
    refusal = refused(tmp_path, prefer="2")
    assert (refusal.kind, refusal.offsets) == ("compacted", ((5, 10),))
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="2", allow_gaps=True).partitions
    assert (partition.brokers, [(gap.start, gap.end) for gap in partition.gaps]) == ([2], [(5, 10)])
    in_the_gap = [(left.broker, left.rival_of) for left in partition.left_behind if left.start < 10 and left.end > 5]
    assert in_the_gap == [(1, None), (3, None)]
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "third", prefer="3").partitions
    assert (partition.base_broker, partition.gaps) == (3, [])


def test_the_plan_decides_about_uncommitted_records(tmp_path: Path) -> None:
    put_rivals(tmp_path / "in", high_watermark=12)
    partition = taken(tmp_path, NEW)
    assert (partition.base_broker, partition.chosen_by) == (2, "plan")
    assert {(left.broker, left.committed_end) for left in partition.left_behind} == {(1, 12)}
    (tmp_path / "in" / "broker-1" / "replication-offset-checkpoint").unlink()
    assert "--prefer-broker" in str(refused(tmp_path).hint), "broker 1 may have been told that it is committed"


def test_a_replica_without_a_copy_does_not_matter(tmp_path: Path) -> None:
    put_rivals(tmp_path / "in")
    replaced = tmp_path / "in" / "broker-4"
    put_meta_properties(replaced, 4)
    write_checkpoint(replaced, "replication", 14, "orders-0")
    assert {left.broker for left in taken(tmp_path, NEW, prefer="2").left_behind} == {1}


def test_a_rival_whose_different_records_were_cleaned_supplies_nothing(tmp_path: Path) -> None:
    """Broker 3 has no records where brokers 1 and 2 differ, and continues with those of broker 1's leader."""
    last_batches = [batch(16, 2, value=b"old too")]
    put_rivals(tmp_path / "in")
    for broker, log in ((1, [*OLD, batch(14, 2, value=b"old again"), *last_batches]), (3, [*CLEANED, *REST, *last_batches])):
        shutil.rmtree(tmp_path / "in" / f"broker-{broker}")
        put_cleaned(tmp_path / "in", broker, log, dirty=16)
    partition = taken(tmp_path, NEW, prefer="2")
    assert (partition.base_broker, partition.brokers) == (2, [2])
    left_behind = [(left.broker, left.start, left.end, left.rival_of) for left in partition.left_behind]
    assert left_behind == [(1, 12, 16, 2), (1, 16, 18, None), (3, 16, 18, None)]


def test_a_start_of_the_log_that_only_a_rival_has_is_reported(tmp_path: Path) -> None:
    put_rivals(tmp_path / "in")
    (tmp_path / "in" / "broker-2" / NAME / segment_file(0)).unlink()
    assert "the copy of broker 2 lacks the start of the log at offsets 0 to 9" in refused(tmp_path, prefer="2").reason
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="2", allow_gaps=True).partitions
    assert partition.log_start_offset == 10
    assert {(left.broker, left.start) for left in partition.left_behind if left.end <= 10} >= {(1, 0), (3, 0)}


def test_a_value_that_only_a_rival_has_is_refused(tmp_path: Path) -> None:
    """Below the fork, where no cleaner removes a value without a later one."""
    put_rivals(tmp_path / "in")
    below = [CLEANED[0], values(4, "precious", key=b"other"), CLEANED[2]]
    for broker, first in ((1, below), (2, [below[0], below[2]])):
        put_segment(tmp_path / "in" / f"broker-{broker}" / NAME, 0, first)
    shutil.rmtree(tmp_path / "in" / "broker-3")
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out", prefer="2").refused
    assert "lacks the latest value of a key that another copy has at offset 4" in refused.reason
    (partition,) = salvaged_of(tmp_path / "in", tmp_path / "gaps", prefer="2", allow_gaps=True).partitions
    assert (1, 4, 5) in [(records.broker, records.start, records.end) for records in partition.left_behind]
    assert not salvaged_of(tmp_path / "in", tmp_path / "other", prefer="1").refused


def test_if_a_record_is_committed_in_one_copy_only_the_preferred_one_is_used(tmp_path: Path) -> None:
    """One copy has a transaction's batch without its marker, and the other has neither."""
    within = producer_batch(4, "precious", key=b"other", is_transactional=True)
    put_cleaned(tmp_path / "in", 1, [CLEANED[0], within, CLEANED[2], *REST], dirty=8)
    put_cleaned(tmp_path / "in", 2, [CLEANED[0], CLEANED[2], *REST], dirty=10)
    (differing,) = (row for row in scan([str(tmp_path / "in")], ScanOptions()).findings if row.kind in DIFFERING)
    assert "versions" not in differing.evidence
    (refused,) = salvaged_of(tmp_path / "in", tmp_path / "out").refused
    assert "its copies differ (COMPACTED_VALUE_DIFFERS)" in refused.reason
    for prefer in ("1", "2"):
        (partition,) = salvaged_of(tmp_path / "in", tmp_path / prefer, prefer=prefer).partitions
        assert (str(partition.base_broker), partition.chosen_by) == (prefer, "prefer_broker")


@pytest.mark.parametrize(
    ("ours", "theirs", "fork"),
    [
        ([(0, 0), (2, 12)], [(0, 0)], 12),
        ([(0, 0), (2, 12)], [(0, 0), (1, 10)], 10),
        ([(0, 0), (2, 12)], [(0, 0), (2, 12)], 20),
        ([(2, 0)], [(1, 0)], 0),
        ([], [], NO_END),
    ],
)
def test_copies_fork_after_the_last_common_epoch(ours: list[tuple[int, int]], theirs: list[tuple[int, int]], fork: int) -> None:
    """The copies have no batches that differ."""
    replicas = [
        PlanReplica(number, 0, 20, epochs=tuple(EpochEntry(*entry) for entry in epochs))
        for number, epochs in enumerate((ours, theirs))
    ]
    assert _fork(0, 1, Planned(PlanPartition("orders", 0, replicas), cast("Plan", None))) == fork


def test_damage_is_no_fork() -> None:
    epochs = (EpochEntry(0, 0),)
    replicas = [
        PlanReplica(number, 0, 20, epochs=epochs, damaged=damaged) for number, damaged in enumerate((((14, 16),), ((12, 14),)))
    ]
    for differing, fork in (((12, 16), 20), ((12, 18), 16)):
        planned = Planned(PlanPartition("orders", 0, replicas, {(0, 1): (differing,)}), cast("Plan", None))
        assert _fork(0, 1, planned) == _fork(1, 0, planned) == fork
