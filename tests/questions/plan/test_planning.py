"""Elections planned on log directories, with single witnesses and with damage."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import LossSize, Planned, PlanOptions, Plans, make_plans
from kafka_forensics.replication.planner.plans import Candidate, Missing
from tests.support import brokers
from tests.support.controllers import CONTROLLER, ControllerLog, partition as controlled_partition, setting, topic
from tests.support.groups import commit_key, commit_value, coordinator_batches
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP, batch, flip_bit, segment_file
from tests.support.unread import refuse


def planned_on(paths: Sequence[Path], topic: str | None = None, plan_options: PlanOptions | None = None) -> Plans:
    return make_plans([str(path) for path in paths], ScanOptions(topic), plan_options or PlanOptions())


def planned_on_named(named: dict[str, Path], more_paths: Sequence[Path], plan_options: PlanOptions) -> Plans:
    paths = [f"{name}={path}" for name, path in named.items()]
    return make_plans([*paths, *map(str, more_paths)], ScanOptions("audit"), plan_options)


def only_plan(plans: Plans) -> Planned:
    (planned,) = plans.planned
    return planned


def candidate_of(planned: Planned, broker: int | str) -> Candidate:
    candidate = planned.candidate(broker)
    assert candidate is not None
    return candidate


def losses(planned: Planned, broker: int | str) -> list[tuple[int, int, tuple[int | str, ...], int]]:
    """(start, end, held_by, committed) of an election's losses."""
    return [(loss.start, loss.end, loss.held_by, loss.committed) for loss in candidate_of(planned, broker).losses]


def test_offsets_between_two_differing_blocks_count_as_lost(tmp_path: Path) -> None:
    between = b"".join(batch(1000 + 30_000 * number, last_offset_delta=29_999) for number in range(4))
    for broker in (1, 2):
        content = b"of %d" % broker
        first, last = batch(1, 999, value=content), batch(121_000, value=content, last_offset_delta=29_999)
        brokers.put_replica(tmp_path, broker, batch(0) + first + between + last, high_watermark=1)
    assert [(start, end) for start, end, _, _ in losses(only_plan(planned_on([tmp_path])), 1)] == [(1, 151_000)]


def test_a_batch_in_two_losses_counts_once(tmp_path: Path) -> None:
    """Broker 2 lacks a batch; broker 3 has the first part of it, broker 1 all."""
    whole_batch, first_part = batch(0, 9), batch(0, 6)
    for broker, log, mark in ((1, whole_batch, 7), (2, batch(0, 3), 3), (3, first_part, 3)):
        brokers.put_replica(tmp_path, broker, log, high_watermark=mark)
    planned = only_plan(planned_on([tmp_path]))
    candidate = candidate_of(planned, 2)
    assert len(candidate.losses) > 1
    assert sum(planned.amount(loss).bytes or 0 for loss in candidate.losses if loss.held_by[0] == 1) > len(whole_batch)
    assert planned.total(candidate.losses).records == candidate.at_most
    losses_on_broker_3 = [loss for loss in candidate.losses if loss.held_by[0] == 3]
    assert planned.total(candidate.losses).bytes == len(whole_batch) + (len(first_part) if losses_on_broker_3 else 0)


@pytest.mark.parametrize(("epoch", "committed"), [(-1, 0), (0, 2), (2, 0)])
def test_a_commit_must_name_the_epoch_where_logs_conflict(tmp_path: Path, epoch: int, committed: int) -> None:
    shared = [batch(number, 1) for number in range(6)]
    first = brokers.put_replica(tmp_path, 1, [*shared, batch(6, 1, epoch=2, value=b"other")], partition="t-0")
    brokers.put_replica(tmp_path, 2, [*shared, *(batch(number, 1) for number in range(6, 10))], partition="t-0")
    brokers.put_consumer_offsets(
        first, coordinator_batches((commit_key(), commit_value(8, timestamp=BASE_TIMESTAMP + 100, leader_epoch=epoch)))
    )
    assert losses(only_plan(planned_on([tmp_path], "t")), 1) == [(6, 10, (2,), committed)]


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_tiered_topic_is_recognised_by_its_config(tmp_path: Path, value: str) -> None:
    """Broker 1 has only its newer segment on disk; the older one is in remote storage, not deleted."""
    controller_records = topic(), controlled_partition([1, 2], 1), setting("remote.storage.enable", value)
    ControllerLog().lead([CONTROLLER]).append(*controller_records).put(tmp_path / f"controller-{CONTROLLER}")
    arguments: dict[str, Any] = {"partition": "t-0", "high_watermark": 8, "topic_id": brokers.TOPIC_ID, "epochs": [(0, 0)]}
    brokers.put_replica(tmp_path, 1, {4: batch(4, 4)}, **arguments)
    brokers.put_replica(tmp_path, 2, batch(0, 4) + batch(4, 4), **arguments)
    candidate = candidate_of(only_plan(planned_on([tmp_path])), 1)
    assert candidate.followers[0].below_leaders_start == (0 if value == "true" else 4)
    lost = [(loss.start, loss.end, loss.held_by, loss.kept_by) for loss in candidate.losses]
    assert lost == ([] if value == "true" else [(0, 4, (2,), ())]), "retention does not delete such new records"


@pytest.mark.parametrize("stale", [(1,), (1, 2)])
def test_only_the_topic_of_the_controllers_log_is_planned(tmp_path: Path, stale: tuple[int, ...]) -> None:
    """Other copies are of a deleted topic with the same name; its high watermark does not apply to the new topic."""
    log = ControllerLog().lead([CONTROLLER]).append(topic(), controlled_partition([*stale, 3], 3))
    log.put(tmp_path / f"controller-{CONTROLLER}")
    for broker in stale:
        brokers.put_replica(tmp_path, broker, batch(0, 9), partition="t-0", high_watermark=9, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    brokers.put_replica(tmp_path, 3, batch(0, 3), partition="t-0", high_watermark=3, topic_id=brokers.TOPIC_ID)
    plans = planned_on([tmp_path])
    planned = only_plan(plans)
    assert [(candidate.broker, candidate.election) for candidate in planned.plan.candidates] == [(3, "clean")]
    missing = {
        missing_copy
        for missing_copy in planned.plan.missing
        if missing_copy.kind.endswith("absent") or "topic" in missing_copy.kind
    }
    assert missing == {Missing(kind, broker) for broker in stale for kind in ("copy_absent", "other_topic")}
    assert plans.result is not None
    (summary,) = (partition for partition in plans.result.partitions if partition.topic == "t")
    assert (summary.high_watermark_at_least, summary.high_watermark_witness) == (3, "replication-offset-checkpoint of broker 3")


@pytest.mark.parametrize("compacted", [True, False])
def test_records_cleaned_from_the_start_are_no_loss(tmp_path: Path, compacted: bool) -> None:
    whole = [batch(number, 1) for number in range(6)]
    for broker, log in ((1, whole[4:]), (2, whole)):
        log_dir = brokers.put_replica(tmp_path, broker, log, partition="t-0", high_watermark=6)
        brokers.put_checkpoint(log_dir, "cleaner", {"t-0": 4} if compacted else {})
    assert losses(only_plan(planned_on([tmp_path])), 1) == ([] if compacted else [(0, 4, (2,), 4)])


@pytest.mark.parametrize("clean", [True, False])
def test_only_recovery_repairs_a_stale_checkpoint(tmp_path: Path, clean: bool) -> None:
    """Broker 1's checkpoint lacks epoch 1. After a clean shutdown nothing adds it: it then truncates good records."""
    log = [*(batch(number, 1) for number in range(4)), *(batch(number, 1, epoch=1) for number in range(4, 8))]
    for broker in (1, 2):
        epochs = [(0, 0)] if broker == 1 else [(0, 0), (1, 4)]
        brokers.put_replica(tmp_path, broker, log, partition="t-0", high_watermark=8, epochs=epochs, clean=clean)
    second = candidate_of(only_plan(planned_on([tmp_path])), 2)
    (follower,) = second.followers
    assert (follower.by_checkpoint, follower.by_batches) == ((4, 8) if clean else (8, 8))
    assert follower.disagrees is clean
    assert not second.losses, "it copies the same again"


@pytest.mark.parametrize(
    ("state", "loaded_epochs", "cut"),
    [("clean", [], 8), ("crashed", [(0, 0), (2, 4)], 4), ("recovered from 4 on", [(2, 4)], 4), ("live", [(0, 0), (2, 4)], 4)],
)
def test_a_missing_checkpoint_counts_as_empty(tmp_path: Path, state: str, loaded_epochs: list[tuple[int, int]], cut: int) -> None:
    """The leader has no file: those epochs of its batches count that recovery, or a running broker, has read."""
    common, ours = batch(0, 4), batch(4, 4, epoch=2, value=b"ours")
    first = brokers.put_replica(tmp_path, 1, {0: common, 4: ours}, partition="t-0", high_watermark=4, clean=state == "clean")
    theirs = common + batch(4, 4, value=b"theirs")
    brokers.put_replica(tmp_path, 2, theirs, partition="t-0", high_watermark=4, epochs=[(0, 0)], clean=True)
    if state == "recovered from 4 on":
        brokers.write_checkpoint(first, "recovery-point", 4)
    (planned,) = make_plans([str(tmp_path)], ScanOptions(live=state == "live"), PlanOptions()).planned
    (replica,) = (replica for replica in planned.planner_input.replicas if replica.broker == 1)
    assert [(entry.leader_epoch, entry.start_offset) for entry in replica.brokers_epochs] == loaded_epochs
    assert (replica.checkpoint, planned.plan.truncate_by) == (None, "epochs")
    candidate = candidate_of(planned, 1)
    assert (candidate.followers[0].truncation_offset, candidate.followers[0].kept) == (cut, ((4, 8),) if cut == 8 else ())
    assert Missing("no_epoch_checkpoint", 1) in planned.plan.missing


@pytest.mark.parametrize("name", ["rack-1", "1"])
def test_a_dead_broker_with_a_named_copy_is_not_absent(name: str, tmp_path: Path) -> None:
    """Also without a controllers' log, and if the broker has no replica of the partition."""
    copies = shutil.copytree(SAMPLES / "unclean-election", tmp_path / "copies")
    for broker in (1, 2, 3):
        shutil.rmtree(copies / f"broker-{broker}" / "__cluster_metadata-0")
    more_paths = [copies / "broker-2", copies / "broker-3"]
    plans = planned_on_named({"rack-1": copies / "broker-1"}, more_paths, PlanOptions(dead=frozenset({name})))
    assert [missing.kind for missing in only_plan(plans).plan.missing] == ["no_controller_log", "not_live"]
    assert [*plans.dead, *only_plan(plans).planner_input.dead] == [1, 1]
    shutil.rmtree(copies / "broker-1" / "audit-0")
    plans = planned_on_named({"rack-1": copies / "broker-1"}, more_paths, PlanOptions(dead=frozenset({name})))
    assert [*plans.dead, *only_plan(plans).planner_input.dead] == [1, 1]


def test_a_dead_broker_is_recognised_by_the_folder_of_its_copy(tmp_path: Path) -> None:
    """The name of a folder without `meta.properties` is that of its copy, also if it has a number."""
    copies = shutil.copytree(SAMPLES / "unclean-election", tmp_path / "copies")
    (copies / "broker-1" / "meta.properties").unlink()
    paths = [(copies / "broker-1").rename(copies / "1"), copies / "broker-2", copies / "broker-3"]
    planned = only_plan(planned_on(paths, "audit", PlanOptions(dead=frozenset({"1"}))))
    assert [(str(replica.broker), replica.is_live) for replica in planned.planner_input.replicas if not replica.is_live] == [
        ("1", False)
    ]


# Damaged copies: one flipped byte hides no offset.

LOG = [batch(0, 3), batch(3, 3), batch(6, 4)]
WHOLE = b"".join(LOG)


def stop_cleanly(log_dir: Path) -> None:
    """No recovery runs at the next start, not even because an index is missing."""
    brokers.put_clean_shutdown(log_dir)
    for kind in ("index", "timeindex"):
        brokers.put_segment(log_dir / "orders-0", 0, b"", kind)


def planned_of(tmp_path: Path, *logs: bytes, clean: bool = True) -> Planned:
    for broker, log in enumerate(logs, 1):
        log_dir = brokers.put_replica(tmp_path, broker, log, high_watermark=10 if len(log) == len(WHOLE) else 6)
        if clean:
            stop_cleanly(log_dir)
    return only_plan(planned_on([tmp_path]))


def costs(planned: Planned, broker: int) -> tuple[int, int]:
    candidate = candidate_of(planned, broker)
    return candidate.at_least, candidate.at_most


def amounts(size: LossSize) -> tuple[int | None, int | None]:
    return size.records, size.bytes


@pytest.mark.parametrize("clean", [True, False])
def test_the_only_copy_of_the_tail_is_damaged(tmp_path: Path, clean: bool) -> None:
    planned = planned_of(tmp_path, b"".join(LOG[:2]), flip_bit(WHOLE, len(WHOLE) - 3, 6), clean=clean)
    (loss,) = candidate_of(planned, 1).losses
    assert (loss.start, loss.end, loss.held_by, loss.committed) == (6, 10, (2,), 4)
    assert amounts(planned.amount(loss)) == (4, len(LOG[2]))
    assert costs(planned, 1) == (4, 4)
    assert costs(planned, 2) == ((0, 4) if clean else (4, 4)), "what recovery does not cut stays there, damaged"
    assert planned.plan.at_most_is_bound is False, "no controller's log is here"
    assert {finding.kind for finding in planned.findings} == {"BATCH_CRC_MISMATCH"}


def test_a_loss_is_measured_in_the_good_copy(tmp_path: Path) -> None:
    """The first holder of the loss has a batch without a readable header."""
    damaged = LOG[0] + bytes((37 * number + 11) % 256 for number in range(len(LOG[1]))) + LOG[2]
    planned = planned_of(tmp_path, damaged, b"".join(LOG), LOG[0])
    third = candidate_of(planned, 3)
    (loss,) = third.losses
    assert (loss.start, loss.end, loss.held_by) == (3, 10, (1, 2))
    assert amounts(planned.amount(loss)) == amounts(planned.total(third.losses)) == (7, len(LOG[1] + LOG[2]))


def test_a_damaged_batch_of_another_epoch_is_a_version_of_its_own(tmp_path: Path) -> None:
    other = [*LOG[:2], batch(6, 4, epoch=1, value=b"other")]
    mine = b"".join([*LOG, batch(10, 2)])
    place = len(LOG[0]) + len(LOG[1]) + 70
    for broker, log, epochs in ((1, b"".join(other), [(0, 0), (1, 6)]), (2, flip_bit(mine, place, 6), [(0, 0)])):
        stop_cleanly(brokers.put_replica(tmp_path, broker, log, high_watermark=10, epochs=epochs))
    planned = only_plan(planned_on([tmp_path]))
    assert [(loss.start, loss.end, loss.held_by) for loss in candidate_of(planned, 1).losses] == [(6, 12, (2,))]
    assert costs(planned, 1) == (4, 6)


@pytest.mark.parametrize(("checkpoint", "epoch"), [(None, 0), ([(0, 0), (1, 6)], 1)])
def test_damage_at_the_log_start_without_an_epoch_is_another_version(tmp_path: Path, checkpoint: Any, epoch: int) -> None:
    """The epoch at the log start is unknown, or a different one follows: another leader may have written the damaged records."""
    zeroed = bytearray(b"".join(LOG[:2]))
    zeroed[len(LOG[0]) - 8 : len(LOG[0]) + 12] = bytes(20)
    for broker, log in ((1, bytes(zeroed)), (2, b"".join(LOG[:2]))):
        stop_cleanly(
            brokers.put_replica(tmp_path, broker, {0: log, 6: batch(6, 4, epoch=epoch)}, high_watermark=10, epochs=checkpoint)
        )
    assert only_plan(planned_on([tmp_path])).planner_input.differing == {(0, 1): ((0, 6),)}


def test_a_log_that_cannot_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of broker 1's two segments cannot be read, as without permission."""
    for broker in (1, 2):
        stop_cleanly(brokers.put_replica(tmp_path, broker, {0: LOG[:2], 6: LOG[2]}, high_watermark=10))
    refuse(monkeypatch, (tmp_path / "broker-1" / "orders-0" / segment_file(0)).__eq__)
    planned = only_plan(planned_on([tmp_path]))
    replica = planned.planner_input.replicas[0]
    assert (replica.damaged, replica.unread, replica.end_is_known) == ((), ((0, 6),), True)
    assert Missing("log_not_read", 1) in planned.plan.missing
    assert costs(planned, 2) == (0, 0)
    assert planned.plan.recommended == 2
