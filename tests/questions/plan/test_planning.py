"""Elections planned on directories: written so that each witness counts alone, and damaged."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import Amount, Planned, PlanOptions, Plans, make_plans
from kafka_forensics.replication.planner.plans import Candidate, Missing
from tests.support import brokers
from tests.support.controllers import CONTROLLER, ControllerLog, partition as controlled_partition, setting, topic
from tests.support.groups import commit_key, commit_value, log_of
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP, batch, flipped, segment_file
from tests.support.unread import refuse


def planned_on(paths: Sequence[Path], topic: str | None = None, asked: PlanOptions | None = None) -> Plans:
    return make_plans([str(path) for path in paths], ScanOptions(topic), asked or PlanOptions())


def planned_on_named(named: dict[str, Path], others: Sequence[Path], asked: PlanOptions) -> Plans:
    paths = [f"{name}={path}" for name, path in named.items()]
    return make_plans([*paths, *map(str, others)], ScanOptions("audit"), asked)


def one_of(found: Plans) -> Planned:
    (planned,) = found.planned
    return planned


def candidate_of(planned: Planned, broker: int | str) -> Candidate:
    candidate = planned.candidate(broker)
    assert candidate is not None
    return candidate


def losses(planned: Planned, broker: int | str) -> list[tuple[int, int, tuple[int | str, ...], int]]:
    """(start, end, held by, proven committed) of an election's losses."""
    return [(loss.start, loss.end, loss.held_by, loss.committed) for loss in candidate_of(planned, broker).losses]


def test_what_lies_between_two_blocks_that_differ_counts_as_lost(tmp_path: Path) -> None:
    between = b"".join(batch(1000 + 30_000 * number, last_offset_delta=29_999) for number in range(4))
    for broker in (1, 2):
        own = b"of %d" % broker
        first, last = batch(1, 999, value=own), batch(121_000, value=own, last_offset_delta=29_999)
        brokers.put_replica(tmp_path, broker, batch(0) + first + between + last, high_watermark=1)
    assert [(start, end) for start, end, _, _ in losses(one_of(planned_on([tmp_path])), 1)] == [(1, 151_000)]


def test_a_batch_that_lies_in_two_losses_counts_once(tmp_path: Path) -> None:
    """Broker 2 lacks what is on broker 1 alone and what broker 3 has as well, of one batch."""
    whole, part = batch(0, 9), batch(0, 6)
    for broker, log, mark in ((1, whole, 7), (2, batch(0, 3), 3), (3, part, 3)):
        brokers.put_replica(tmp_path, broker, log, high_watermark=mark)
    planned = one_of(planned_on([tmp_path]))
    candidate = candidate_of(planned, 2)
    assert len(candidate.losses) > 1
    assert sum(planned.amount(loss).bytes or 0 for loss in candidate.losses if loss.held_by[0] == 1) > len(whole)
    assert planned.total(candidate.losses).records == candidate.at_most
    held = [loss for loss in candidate.losses if loss.held_by[0] == 3]
    assert planned.total(candidate.losses).bytes == len(whole) + (len(part) if held else 0)


@pytest.mark.parametrize(("epoch", "committed"), [(-1, 0), (0, 2), (2, 0)])
def test_where_logs_conflict_a_commit_must_name_the_epoch(tmp_path: Path, epoch: int, committed: int) -> None:
    shared = [batch(number, 1) for number in range(6)]
    first = brokers.put_replica(tmp_path, 1, [*shared, batch(6, 1, epoch=2, value=b"other")], partition="t-0")
    brokers.put_replica(tmp_path, 2, [*shared, *(batch(number, 1) for number in range(6, 10))], partition="t-0")
    brokers.put_offsets(first, log_of((commit_key(), commit_value(8, timestamp=BASE_TIMESTAMP + 100, leader_epoch=epoch))))
    assert losses(one_of(planned_on([tmp_path], "t")), 1) == [(6, 10, (2,), committed)]


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_tiered_topic_is_known_by_its_setting(tmp_path: Path, value: str) -> None:
    """Broker 1 has only its younger segment on disk; the older one is in remote storage, and deleted nowhere."""
    said = topic(), controlled_partition([1, 2], 1), setting("remote.storage.enable", value)
    ControllerLog().lead([CONTROLLER]).append(*said).put(tmp_path / f"controller-{CONTROLLER}")
    given: dict[str, Any] = {"partition": "t-0", "high_watermark": 8, "topic_id": brokers.TOPIC_ID, "epochs": [(0, 0)]}
    brokers.put_replica(tmp_path, 1, {4: batch(4, 4)}, **given)
    brokers.put_replica(tmp_path, 2, batch(0, 4) + batch(4, 4), **given)
    leads = candidate_of(one_of(planned_on([tmp_path])), 1)
    assert leads.followers[0].below_leaders_start == (0 if value == "true" else 4)
    lost = [(loss.start, loss.end, loss.held_by, loss.kept_by) for loss in leads.losses]
    assert lost == ([] if value == "true" else [(0, 4, (2,), ())]), "nothing deletes records so young"


@pytest.mark.parametrize("stale", [(1,), (1, 2)])
def test_the_topic_planned_is_the_one_that_the_controller_knows(tmp_path: Path, stale: tuple[int, ...]) -> None:
    """As many copies, or more, are left of a topic of this name that was deleted; their high watermark is not the new one's."""
    log = ControllerLog().lead([CONTROLLER]).append(topic(), controlled_partition([*stale, 3], 3))
    log.put(tmp_path / f"controller-{CONTROLLER}")
    for broker in stale:
        brokers.put_replica(tmp_path, broker, batch(0, 9), partition="t-0", high_watermark=9, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    brokers.put_replica(tmp_path, 3, batch(0, 3), partition="t-0", high_watermark=3, topic_id=brokers.TOPIC_ID)
    plans = planned_on([tmp_path])
    planned = one_of(plans)
    assert [(candidate.broker, candidate.election) for candidate in planned.plan.candidates] == [(3, "clean")]
    missing = {one for one in planned.plan.missing if one.kind.endswith("absent") or "topic" in one.kind}
    assert missing == {Missing(kind, broker) for broker in stale for kind in ("copy_absent", "other_topic")}
    assert plans.result is not None
    (summary,) = (partition for partition in plans.result.partitions if partition.topic == "t")
    assert (summary.high_watermark_at_least, summary.high_watermark_witness) == (3, "replication-offset-checkpoint of broker 3")


@pytest.mark.parametrize("compacted", [True, False])
def test_what_the_cleaner_took_from_the_start_is_no_loss(tmp_path: Path, compacted: bool) -> None:
    whole = [batch(number, 1) for number in range(6)]
    for broker, log in ((1, whole[4:]), (2, whole)):
        log_dir = brokers.put_replica(tmp_path, broker, log, partition="t-0", high_watermark=6)
        brokers.put_checkpoint(log_dir, "cleaner", {"t-0": 4} if compacted else {})
    assert losses(one_of(planned_on([tmp_path])), 1) == ([] if compacted else [(0, 4, (2,), 4)])


@pytest.mark.parametrize("clean", [True, False])
def test_a_stale_checkpoint_is_mended_by_recovery_alone(tmp_path: Path, clean: bool) -> None:
    """Broker 1's checkpoint lacks epoch 1. After a clean stop nothing adds it: it asks for epoch 0 and cuts good records."""
    log = [*(batch(number, 1) for number in range(4)), *(batch(number, 1, epoch=1) for number in range(4, 8))]
    for broker in (1, 2):
        epochs = [(0, 0)] if broker == 1 else [(0, 0), (1, 4)]
        brokers.put_replica(tmp_path, broker, log, partition="t-0", high_watermark=8, epochs=epochs, clean=clean)
    second = candidate_of(one_of(planned_on([tmp_path])), 2)
    (follower,) = second.followers
    assert (follower.by_checkpoint, follower.by_batches) == ((4, 8) if clean else (8, 8))
    assert follower.disagrees is clean
    assert not second.losses, "it copies the same again"


@pytest.mark.parametrize(
    ("state", "known", "cut"),
    [("clean", [], 8), ("crashed", [(0, 0), (2, 4)], 4), ("recovered from 4 on", [(2, 4)], 4), ("live", [(0, 0), (2, 4)], 4)],
)
def test_a_missing_checkpoint_is_loaded_as_an_empty_one(tmp_path: Path, state: str, known: list[tuple[int, int]], cut: int) -> None:
    """The leader has no file: the epochs of its batches count as far as recovery, or a broker that runs on, knows them."""
    common, ours = batch(0, 4), batch(4, 4, epoch=2, value=b"ours")
    first = brokers.put_replica(tmp_path, 1, {0: common, 4: ours}, partition="t-0", high_watermark=4, clean=state == "clean")
    theirs = common + batch(4, 4, value=b"theirs")
    brokers.put_replica(tmp_path, 2, theirs, partition="t-0", high_watermark=4, epochs=[(0, 0)], clean=True)
    if state == "recovered from 4 on":
        brokers.write_checkpoint(first, "recovery-point", 4)
    (planned,) = make_plans([str(tmp_path)], ScanOptions(live=state == "live"), PlanOptions()).planned
    (replica,) = (one for one in planned.given.replicas if one.broker == 1)
    assert [(entry.leader_epoch, entry.start_offset) for entry in replica.brokers_epochs] == known
    assert (replica.checkpoint, planned.plan.truncate_by) == (None, "epochs")
    leads = candidate_of(planned, 1)
    assert (leads.followers[0].truncation_offset, leads.followers[0].kept) == (cut, ((4, 8),) if cut == 8 else ())
    assert Missing("no_epoch_checkpoint", 1) in planned.plan.missing


@pytest.mark.parametrize("name", ["rack-1", "1"])
def test_a_dead_broker_whose_copy_has_a_name_is_not_absent(name: str, tmp_path: Path) -> None:
    """Nor without a controller's log; and where it has no replica of a partition, it is dead all the same."""
    copies = shutil.copytree(SAMPLES / "unclean-election", tmp_path / "copies")
    for broker in (1, 2, 3):
        shutil.rmtree(copies / f"broker-{broker}" / "__cluster_metadata-0")
    others = [copies / "broker-2", copies / "broker-3"]
    plans = planned_on_named({"rack-1": copies / "broker-1"}, others, PlanOptions(dead=frozenset({name})))
    assert [missing.kind for missing in one_of(plans).plan.missing] == ["no_controller_log", "not_live"]
    assert [*plans.dead, *one_of(plans).given.dead] == [1, 1]
    shutil.rmtree(copies / "broker-1" / "audit-0")
    plans = planned_on_named({"rack-1": copies / "broker-1"}, others, PlanOptions(dead=frozenset({name})))
    assert [*plans.dead, *one_of(plans).given.dead] == [1, 1]


def test_a_dead_broker_is_known_by_the_folder_of_its_copy(tmp_path: Path) -> None:
    """A folder without `meta.properties` names the copy in it, a number like any other."""
    copies = shutil.copytree(SAMPLES / "unclean-election", tmp_path / "copies")
    (copies / "broker-1" / "meta.properties").unlink()
    paths = [(copies / "broker-1").rename(copies / "1"), copies / "broker-2", copies / "broker-3"]
    planned = one_of(planned_on(paths, "audit", PlanOptions(dead=frozenset({"1"}))))
    assert [(str(replica.broker), replica.is_live) for replica in planned.given.replicas if not replica.is_live] == [("1", False)]


# Damaged copies: one flipped byte hides no offset.

LOG = [batch(0, 3), batch(3, 3), batch(6, 4)]
WHOLE = b"".join(LOG)


def stop_cleanly(log_dir: Path) -> None:
    """No recovery runs at the next start, not even for want of an index."""
    brokers.put_clean_shutdown(log_dir)
    for kind in ("index", "timeindex"):
        brokers.put_segment(log_dir / "orders-0", 0, b"", kind)


def planned_of(tmp_path: Path, *logs: bytes, clean: bool = True) -> Planned:
    for broker, log in enumerate(logs, 1):
        log_dir = brokers.put_replica(tmp_path, broker, log, high_watermark=10 if len(log) == len(WHOLE) else 6)
        if clean:
            stop_cleanly(log_dir)
    return one_of(planned_on([tmp_path]))


def costs(planned: Planned, broker: int) -> tuple[int, int]:
    candidate = candidate_of(planned, broker)
    return candidate.at_least, candidate.at_most


@pytest.mark.parametrize("clean", [True, False])
def test_the_only_copy_of_the_tail_is_damaged(tmp_path: Path, clean: bool) -> None:
    planned = planned_of(tmp_path, b"".join(LOG[:2]), flipped(WHOLE, len(WHOLE) - 3, 6), clean=clean)
    (loss,) = candidate_of(planned, 1).losses
    assert (loss.start, loss.end, loss.held_by, loss.committed) == (6, 10, (2,), 4)
    assert planned.amount(loss) == Amount(4, len(LOG[2]))
    assert costs(planned, 1) == (4, 4)
    assert costs(planned, 2) == ((0, 4) if clean else (4, 4)), "what recovery does not cut stays there, damaged"
    assert planned.plan.at_most_is_bound is False, "no controller's log is here"
    assert {finding.kind for finding in planned.findings} == {"BATCH_CRC_MISMATCH"}


def test_what_a_damaged_copy_does_not_tell_a_good_one_does(tmp_path: Path) -> None:
    """Not even the header is left of a batch of the first who holds what the third lacks."""
    rotten = LOG[0] + bytes((37 * number + 11) % 256 for number in range(len(LOG[1]))) + LOG[2]
    planned = planned_of(tmp_path, rotten, b"".join(LOG), LOG[0])
    third = candidate_of(planned, 3)
    (loss,) = third.losses
    assert (loss.start, loss.end, loss.held_by) == (3, 10, (1, 2))
    assert planned.amount(loss) == planned.total(third.losses) == Amount(7, len(LOG[1] + LOG[2]))


def test_a_damaged_batch_of_another_history_is_its_own_version(tmp_path: Path) -> None:
    other = [*LOG[:2], batch(6, 4, epoch=1, value=b"other")]
    mine = b"".join([*LOG, batch(10, 2)])
    place = len(LOG[0]) + len(LOG[1]) + 70
    for broker, log, epochs in ((1, b"".join(other), [(0, 0), (1, 6)]), (2, flipped(mine, place, 6), [(0, 0)])):
        stop_cleanly(brokers.put_replica(tmp_path, broker, log, high_watermark=10, epochs=epochs))
    planned = one_of(planned_on([tmp_path]))
    assert [(loss.start, loss.end, loss.held_by) for loss in candidate_of(planned, 1).losses] == [(6, 12, (2,))]
    assert costs(planned, 1) == (4, 6)


@pytest.mark.parametrize(("checkpoint", "epoch"), [(None, 0), ([(0, 0), (1, 6)], 1)])
def test_damage_at_the_head_that_no_epoch_joins_stays_another_version(tmp_path: Path, checkpoint: Any, epoch: int) -> None:
    """Nothing tells in which epoch the log begins, or it goes on in another: another leader may have written what stood there."""
    zeroed = bytearray(b"".join(LOG[:2]))
    zeroed[len(LOG[0]) - 8 : len(LOG[0]) + 12] = bytes(20)
    for broker, log in ((1, bytes(zeroed)), (2, b"".join(LOG[:2]))):
        stop_cleanly(
            brokers.put_replica(tmp_path, broker, {0: log, 6: batch(6, 4, epoch=epoch)}, high_watermark=10, epochs=checkpoint)
        )
    assert one_of(planned_on([tmp_path])).given.differing == {(0, 1): ((0, 6),)}


def test_a_log_that_cannot_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two segments of broker 1, as without the permission to read it."""
    for broker in (1, 2):
        stop_cleanly(brokers.put_replica(tmp_path, broker, {0: LOG[:2], 6: LOG[2]}, high_watermark=10))
    refuse(monkeypatch, (tmp_path / "broker-1" / "orders-0" / segment_file(0)).__eq__)
    planned = one_of(planned_on([tmp_path]))
    replica = planned.given.replicas[0]
    assert (replica.damaged, replica.unread, replica.end_is_known) == ((), ((0, 6),), True)
    assert Missing("log_not_read", 1) in planned.plan.missing
    assert costs(planned, 2) == (0, 0)
    assert planned.plan.recommended == 2
