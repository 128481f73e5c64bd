"""Where followers cut and begin by what brokers load: without a checkpoint, and behind the leader's log start."""

from dataclasses import replace

import pytest

from kafka_forensics.replication.planner.plan_steps import steps
from kafka_forensics.replication.planner.planner import plan_partition
from kafka_forensics.replication.planner.plans import Missing, PlanControl, TruncateBy
from tests.support.plan_values import by_broker, entries, partition, replica

CONTROL = PlanControl(1, 1, 2, (1,), (), (2, 3, 1))


def test_a_checkpoint_that_is_not_there_is_loaded_as_an_empty_one() -> None:
    """Without epochs a follower cuts to its high watermark, and a leader corrects nobody."""
    lagging = replica(1, 10, (0, 0), hw=4)
    leader = replica(2, 12, (0, 0), (2, 8))
    apart = {(0, 1): ((8, 10),)}
    (follower,) = by_broker(plan_partition(partition(lagging, leader, differing=apart)))[2].followers
    assert (follower.truncation_offset, follower.kept, follower.disagrees) == (8, (), False)

    no_file = partition(replace(lagging, checkpoint=None), leader, differing=apart)
    plan = plan_partition(no_file)
    (follower,) = by_broker(plan)[2].followers
    assert (follower.by_checkpoint, follower.by_batches, follower.truncation_offset, follower.disagrees) == (4, 8, 4, True)
    assert Missing("no_epoch_checkpoint", 1) in plan.missing

    (follower,) = by_broker(plan_partition(partition(lagging, replace(leader, checkpoint=None), differing=apart)))[2].followers
    assert (follower.by_checkpoint, follower.by_batches, follower.kept) == (10, 8, ((8, 10),))

    walked = replace(leader, checkpoint=None, epochs_without_checkpoint=entries((2, 8)))
    (follower,) = by_broker(plan_partition(partition(lagging, walked, differing=apart)))[2].followers
    assert (follower.truncation_offset, follower.kept) == (8, ())


@pytest.mark.parametrize("regime", ["epochs", "high-watermark"])
def test_who_ends_below_the_leaders_log_start_begins_there(regime: TruncateBy) -> None:
    leader = replica(1, 20, (0, 10), start=10, hw=20)
    for follower, kept in ((replica(2, 5, (0, 0), hw=5), 0), (replica(2, 15, (0, 0), hw=10), 10), (replica(2, 0), 0)):
        plan = plan_partition(partition(leader, follower, control=CONTROL), regime)
        (done,) = by_broker(plan)[1].followers
        anew = follower.log_end_offset < 10
        cut = 10 if anew else kept if regime == "high-watermark" else 15
        assert (done.truncation_offset, done.begins_anew, done.kept) == (cut, anew, ())
    damaged = replace(replica(2, 5, (0, 0), hw=5), damaged=((2, 3),))
    given_partition = partition(leader, damaged, control=CONTROL)
    plan = plan_partition(given_partition, regime)
    assert steps(given_partition, plan, by_broker(plan)[1]).set_aside == (), "nothing of it stays"


@pytest.mark.parametrize(
    ("follower_start", "leader_start", "disagrees"),
    [(0, 0, True), (7, 0, True), (0, 7, True), (9, 0, False), (0, 9, False), (8, 8, False)],
)
def test_ways_to_cut_that_part_only_below_a_log_start_agree(follower_start: int, leader_start: int, disagrees: bool) -> None:
    """Its file would cut the follower at 4, its batches at 8: whichever log begins later, nothing is cut below that."""
    follower = replace(replica(1, 10, (0, follower_start), hw=4, start=follower_start), checkpoint=None)
    leader = replica(2, 12, (0, leader_start), (2, max(8, leader_start)), start=leader_start)
    (done,) = by_broker(plan_partition(partition(follower, leader, control=CONTROL)))[2].followers
    assert done.disagrees is disagrees


def test_no_high_watermark_lies_below_the_log_start() -> None:
    leader, follower = replica(1, 20, (0, 0)), replace(replica(2, 20, (0, 10), start=10), checkpoint=None)
    (done,) = by_broker(plan_partition(partition(leader, follower, control=CONTROL)))[1].followers
    assert (done.truncation_offset, done.begins_anew) == (10, False)


def test_what_is_below_the_leaders_local_log_start_is_not_deleted_where_segments_go_to_remote_storage() -> None:
    leader, follower, short = replica(1, 20, (0, 10), start=10), replica(2, 20, (0, 0)), replica(3, 5, (0, 0))
    for tiered, deleted in ((False, (10, 5)), (True, (0, 0))):
        plan = plan_partition(partition(leader, follower, short, control=replace(CONTROL, tiered=tiered)))
        done = by_broker(plan)[1].followers
        assert tuple(follower_plan.below_leaders_start for follower_plan in done) == deleted
        assert [(follower_plan.truncation_offset, follower_plan.begins_anew) for follower_plan in done] == [(20, False), (10, True)]
