"""Plans by known histories: who cuts where, what is lost, what is proven committed, and what makes the bounds wider."""

from dataclasses import replace

import pytest

from kafka_forensics.replication.planner.plan_steps import steps
from kafka_forensics.replication.planner.planner import (
    election_kind,
    high_watermark_truncation,
    loaded_epochs,
    plan_partition,
    recovered_epochs,
    truncates_by,
)
from kafka_forensics.replication.planner.plans import (
    Candidate,
    Loss,
    Missing,
    PlanControl,
    TruncateBy,
    Witness,
)
from tests.support.plan_values import by_broker, entries, partition, replica

CONTROL = PlanControl(1, 1, 2, (1,), (), (2, 3, 1))
AUDIT = partition(
    replica(1, 345, (0, 0), (2, 300), hw=345),
    replica(2, 370, (0, 0), hw=370),
    replica(3, 300, (0, 0), hw=300),
    differing={(0, 1): ((300, 345),)},
    control=CONTROL,
)
LEDGER = partition(
    replica(1, 10, hw=10),
    replica(2, 10, hw=0),
    replica(3, 3, hw=3),
    differing={(0, 2): ((0, 3),), (1, 2): ((0, 3),)},
)


def ranges_of(candidate: Candidate) -> list[tuple[int, int, tuple[int | str, ...]]]:
    return [(loss.start, loss.end, loss.held_by) for loss in candidate.losses]


def cuts(candidate: Candidate) -> dict[int | str, int | None]:
    return {follower_plan.broker: follower_plan.truncation_offset for follower_plan in candidate.followers}


def test_an_unclean_election_costs_what_the_other_side_wrote() -> None:
    plan = plan_partition(AUDIT)
    found = by_broker(plan)
    assert plan.truncate_by == "epochs"
    assert ranges_of(found[1]) == [(300, 370, (2,))]
    assert ranges_of(found[2]) == [(300, 345, (1,))]
    assert ranges_of(found[3]) == [(300, 345, (1,)), (300, 370, (2,))]
    assert [cuts(found[broker]) for broker in (1, 2, 3)] == [{2: 300, 3: 300}, {1: 300, 3: 300}, {1: 300, 2: 300}]
    assert {broker: (candidate.at_least, candidate.at_most, candidate.election) for broker, candidate in found.items()} == {
        1: (70, 70, "leads"),
        2: (45, 45, "unclean"),
        3: (115, 115, "unclean"),
    }
    assert found[1].losses[0].witness == Witness(370, "high_watermark", 2)
    assert plan.recommended == 2
    assert plan.missing == ()
    assert plan.at_most_is_bound


def test_old_brokers_cut_to_their_watermarks_and_keep_what_differs_below() -> None:
    plan = plan_partition(LEDGER)
    found = by_broker(plan)
    assert plan.truncate_by == "high-watermark"
    assert cuts(found[3]) == {1: 3, 2: 0}
    first, second = found[3].followers
    assert (first.halts, second.halts) == (True, False), "broker 1 ends beyond the leader"
    assert (first.kept, second.kept) == (((0, 3),), ())
    assert found[3].losses == (
        Loss(0, 3, (1, 2), (1,), 3, Witness(10, "high_watermark", 1)),
        Loss(3, 10, (1, 2), (), 10, Witness(10, "high_watermark", 1)),
    )
    assert (found[3].committed, found[3].at_least, found[3].at_most) == (10, 7, 10)
    assert cuts(found[1]) == {2: 0, 3: 3}
    assert (found[1].committed, found[1].at_least, found[1].at_most) == (3, 0, 3)
    assert plan.recommended == 1, "of two that lose alike, the one with the higher watermark"
    assert plan.missing == (Missing("no_controller_log"),)
    assert not plan.at_most_is_bound


def test_what_high_watermark_truncation_already_did() -> None:
    (done,) = plan_partition(LEDGER).already_lost
    assert (done.brokers, done.start, done.replaced_end, done.end, done.held_by) == ((3,), 0, 3, 10, (1, 2))
    assert done.witness == Witness(10, "high_watermark", 1)
    healed = partition(replica(1, 3, hw=3), replica(2, 3, hw=3), replica(3, 3, hw=3), differing=LEDGER.differing)
    assert plan_partition(healed).already_lost == (), "nobody can tell which was right"
    assert plan_partition(AUDIT).already_lost == ()


def test_a_lagging_follower_costs_its_lag() -> None:
    control = PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2))
    plan = plan_partition(
        partition(replica(1, 200, (0, 0), hw=200), replica(2, 600, (0, 0)), replica(3, 600, (0, 0)), control=control)
    )
    found = by_broker(plan)
    assert ranges_of(found[1]) == [(200, 600, (2, 3))]
    assert (found[1].at_least, found[1].at_most, found[1].election) == (0, 400, "clean")
    assert not found[2].losses
    assert not found[3].losses
    assert plan.recommended == 3
    assert plan.missing == (Missing("no_high_watermark", 2), Missing("no_high_watermark", 3))


def test_equal_replicas_lose_nothing() -> None:
    plan = plan_partition(partition(*(replica(broker, 10, (0, 0), (3, 4), hw=10) for broker in (1, 2, 3)), control=CONTROL))
    assert [candidate.losses for candidate in plan.candidates] == [(), (), ()]
    assert not plan.matters
    assert plan.recommended == 1


def test_checkpoint_and_batches_that_cut_differently_are_told() -> None:
    stale = replace(replica(1, 10, (0, 0), (1, 5)), checkpoint=entries((0, 0)))
    leader = replica(2, 12, (0, 0), (1, 5), (2, 8))
    plan = plan_partition(partition(stale, leader, differing={(0, 1): ((8, 10),)}))
    (follower,) = by_broker(plan)[2].followers
    assert (follower.by_checkpoint, follower.by_batches, follower.truncation_offset) == (5, 8, 5)
    assert follower.disagrees
    assert plan.matters
    cleaned = plan_partition(replace(partition(stale, leader), compacted=True))
    assert not any(follower_plan.disagrees for candidate in cleaned.candidates for follower_plan in candidate.followers)


def test_epochs_that_cannot_see_a_difference_leave_it_for_good() -> None:
    """Equal epochs, other records: nobody cuts, and what the leader lacks stays on a follower."""
    plan = plan_partition(
        partition(replica(1, 8, (0, 0), hw=8), replica(2, 8, (0, 0), hw=8), differing={(0, 1): ((5, 8),)}, control=CONTROL)
    )
    candidate = by_broker(plan)[1]
    assert candidate.losses == (Loss(5, 8, (2,), (2,), 8, Witness(8, "high_watermark", 2)),)
    assert (candidate.committed, candidate.at_least) == (3, 0)


def test_holes_and_what_recovery_drops() -> None:
    """Broker 1 has a hole at [4, 6) and loses [8, 10) when it starts; broker 2 holds all."""
    torn = replace(replica(1, 8, (0, 0), hw=10), held=((0, 4), (6, 10)))
    plan = plan_partition(partition(torn, replica(2, 9, (0, 0)), control=CONTROL))
    candidate, other = plan.candidates
    assert candidate.own_cut == 2
    assert ranges_of(candidate) == [(4, 6, (2,)), (8, 9, (1, 2)), (9, 10, (1,))]
    assert [loss.committed for loss in candidate.losses] == [2, 1, 1], (
        "the watermark of a log with a hole speaks for the hole as well"
    )
    assert candidate.losses[0].kept_by == (2,)
    assert ranges_of(other) == [(9, 10, (1,))]
    assert other.losses[0].kept_by == ()
    assert plan.recommended == 2


@pytest.mark.parametrize(("theirs", "proven"), [(((1, 0),), 0), (((1, 0), (2, 4)), 2), ((), 2)], ids=["other", "same", "none"])
def test_a_log_with_a_hole_speaks_only_for_records_of_its_own_epochs(theirs: tuple[tuple[int, int], ...], proven: int) -> None:
    """Epoch 2 of broker 3 begins in its hole at [4, 6); [4, 6) of broker 2 is another history if it is of epoch 1."""
    holed = replace(replica(3, 10, (1, 0), (2, 4), hw=10), held=((0, 4), (6, 10)))
    plan = plan_partition(partition(replica(1, 4, (1, 0)), replica(2, 6, *theirs), holed, control=CONTROL), "epochs")
    candidate = by_broker(plan)[1]
    assert {(loss.start, loss.end, loss.committed) for loss in candidate.losses if loss.held_by == (2,)} == {(4, 6, proven)}


@pytest.mark.parametrize(("start", "proven"), [(3, 2), (4, 0), (6, 0)])
def test_a_log_with_a_hole_that_begins_no_earlier_speaks_for_nothing_before_its_hole(start: int, proven: int) -> None:
    """Broker 1 ends at 4, broker 2 at 8; 3, which has no epochs, has a hole at [8, 9), and another at [4, 6) if it begins at 3."""
    held = ((3, 4), (6, 8), (9, 10)) if start == 3 else ((6, 8), (9, 10))
    holed = replace(replica(3, 10, hw=10, start=start), held=held)
    plan = plan_partition(partition(replica(1, 4, (1, 0)), replica(2, 8, (1, 0)), holed, control=CONTROL), "epochs")
    assert [loss.committed for loss in by_broker(plan)[1].losses if (loss.start, loss.end) == (4, 6)] == [proven]


def test_damaged_batches_are_held_and_at_risk() -> None:
    """The only copy of [300, 370) is damaged: whoever leads, nobody can read it any more."""
    one, two, three = AUDIT.replicas
    rotten = replace(two, held=((0, 300),), damaged=((300, 370),))
    plan = plan_partition(replace(AUDIT, replicas=(one, rotten, three)))
    found = by_broker(plan)
    assert ranges_of(found[1]) == [(300, 370, (2,))]
    assert (found[1].at_least, found[1].at_most) == (70, 70)
    assert [(loss.start, loss.end, loss.kept_by) for loss in found[2].losses] == [(300, 345, ()), (300, 370, (2,))]
    assert (found[2].committed, found[2].at_least, found[2].at_most, found[2].own_cut) == (115, 45, 115, 0)
    cut = by_broker(plan_partition(replace(AUDIT, replicas=(one, replace(rotten, log_end_offset=300), three))))[2]
    assert (cut.at_least, cut.at_most, cut.own_cut) == (115, 115, 70), "recovery drops it"
    assert plan.recommended == 1
    assert plan.at_most_is_bound


def test_a_damaged_leader_loses_what_others_hold_whole() -> None:
    rotten = replace(replica(1, 10, (0, 0), hw=10), held=((0, 4), (6, 10)), damaged=((4, 6),))
    plan = plan_partition(partition(rotten, replica(2, 10, (0, 0), hw=10), control=CONTROL))
    candidate, other = plan.candidates
    assert candidate.losses == (Loss(4, 6, (1, 2), (1, 2), 6, Witness(10, "high_watermark", 1)),)
    assert not other.losses
    assert plan.recommended == 2


def test_bytes_whose_offsets_nothing_tells_leave_no_bound() -> None:
    one, two, three = AUDIT.replicas
    plan = plan_partition(replace(AUDIT, replicas=(one, replace(two, has_unknown_bytes=True), three)))
    assert plan.missing == (Missing("unknown_bytes", 2),)
    assert not plan.at_most_is_bound


def test_what_decides_between_those_that_lose_alike_is_told() -> None:
    control = PlanControl(1, 1, 2, (1, 2), (), (2, 3, 1))
    fork = {(0, 1): ((5, 8),)}
    first, second = replica(1, 8, (0, 0), hw=8), replica(2, 8, (0, 0), hw=8)
    plan = plan_partition(partition(first, second, differing=fork, control=control))
    assert (plan.recommended, plan.alike, plan.chosen_by) == (1, (2,), ("election",))
    blind = replace(control, leader=-1, last_leader=None)
    plan = plan_partition(partition(first, second, differing=fork, control=blind))
    assert (plan.recommended, plan.alike, plan.chosen_by) == (2, (1,), ("assignment",))
    plan = plan_partition(partition(first, second, differing=fork))
    assert (plan.recommended, plan.alike, plan.chosen_by) == (1, (2,), ("order",))
    ahead = replace(second, high_watermark=9)
    plan = plan_partition(partition(first, ahead, differing=fork))
    assert (plan.recommended, plan.chosen_by) == (2, ("high_watermark",))
    third = replace(second, broker=3, is_live=False)
    plan = plan_partition(partition(first, second, third, differing={(0, 1): ((5, 8),), (0, 2): ((5, 8),)}))
    assert (plan.recommended, plan.alike, plan.chosen_by) == (2, (1,), ("replicas_to_mend",))
    assert plan_partition(AUDIT).chosen_by == ()
    assert plan_partition(AUDIT).alike == ()


def test_a_log_start_is_no_loss() -> None:
    plan = plan_partition(partition(replica(1, 10, (0, 0)), replica(2, 10, (0, 6), start=6), control=CONTROL))
    candidate = by_broker(plan)[2]
    assert not candidate.losses
    assert candidate.followers[0].below_leaders_start == 6


def test_who_cannot_lead() -> None:
    one, two, three = AUDIT.replicas
    dead = plan_partition(replace(AUDIT, replicas=(one, replace(two, is_live=False), three)))
    assert [candidate.broker for candidate in dead.candidates] == [1, 3]
    (loss,) = dead.candidates[0].losses
    assert (loss.start, loss.end, loss.kept_by) == (300, 370, ()), "what only the dead hold is lost"
    assert dead.candidates[0].at_least == 70
    refused = plan_partition(replace(AUDIT, replicas=(one, replace(two, starts=False), three)))
    assert refused.candidates[0].losses[0].kept_by == (2,), "a directory nobody starts on is not cut"
    assert Missing("not_live", 2) in dead.missing
    broken = plan_partition(replace(AUDIT, replicas=(replace(one, starts=False), two, three)))
    assert [candidate.broker for candidate in broken.candidates] == [2, 3]
    assert Missing("does_not_start", 1) in broken.missing
    nobody = plan_partition(replace(AUDIT, replicas=(replace(one, starts=False),)))
    assert (nobody.candidates, nobody.recommended) == ((), None)
    assert nobody.matters
    assert [(each.start, each.end, each.kept_by, each.committed) for each in nobody.at_stake] == [(0, 345, (1,), 345)]
    gone = plan_partition(replace(AUDIT, replicas=[replace(each, is_live=False) for each in AUDIT.replicas]))
    assert [(each.start, each.end, each.held_by, each.kept_by) for each in gone.at_stake] == [
        (0, 300, (1, 2, 3), ()),
        (300, 345, (1,), ()),
        (300, 370, (2,), ()),
    ]


def test_missing_witnesses_widen_the_bounds() -> None:
    one, two, three = AUDIT.replicas
    blind = plan_partition(replace(AUDIT, replicas=(one, replace(two, high_watermark=None), three)))
    assert (by_broker(blind)[1].at_least, by_broker(blind)[1].at_most) == (0, 70)
    assert Missing("no_high_watermark", 2) in blind.missing
    absent = plan_partition(replace(AUDIT, replicas=(one, two), differing=AUDIT.differing))
    assert absent.missing == (Missing("copy_absent", 3),)
    assert not absent.at_most_is_bound
    named = replace(AUDIT, replicas=tuple(replace(each, broker=f"b{each.broker}") for each in AUDIT.replicas))
    called = plan_partition(replace(named, nodes={"b1": 1, "b2": 2, "b3": 3}))
    assert called.missing == ()
    assert [candidate.election for candidate in called.candidates] == ["leads", "unclean", "unclean"]


def test_a_witness_speaks_for_its_own_log_only() -> None:
    one, two, three = AUDIT.replicas
    group = replace(two, high_watermark=300, witnesses=(Witness(350, "group_offset", 2, "billing"),))
    (loss,) = by_broker(plan_partition(replace(AUDIT, replicas=(one, group, three))))[1].losses
    assert (loss.start, loss.end, loss.committed_end) == (300, 370, 350)
    assert loss.witness == Witness(350, "group_offset", 2, "billing")
    beyond = replace(three, high_watermark=370)
    blind = replace(two, high_watermark=None)
    (loss,) = by_broker(plan_partition(replace(AUDIT, replicas=(one, blind, beyond))))[1].losses
    assert loss.committed == 0, "a watermark beyond its own log proves nothing about another's"


@pytest.mark.parametrize(
    ("end", "watermark", "leader_end", "answer"),
    [(10, 10, 3, (3, True)), (10, 0, 3, (0, False)), (10, None, 3, (0, False)), (10, 12, 10, (10, False)), (3, 3, 9, (3, False))],
)
def test_high_watermark_truncation(end: int, watermark: int | None, leader_end: int, answer: tuple[int, bool]) -> None:
    assert high_watermark_truncation(end, watermark, leader_end) == answer


def test_how_followers_truncate_is_told_by_the_logs() -> None:
    assert truncates_by(LEDGER.replicas) == "high-watermark"
    assert truncates_by([*LEDGER.replicas, replica(4, 3, (0, 0))]) == "epochs"
    assert truncates_by([replace(replica(1, 3), checkpoint=())]) == "epochs", "a checkpoint file is of Kafka 0.11"
    assert truncates_by([replica(1, 0)]) == "epochs"
    assert plan_partition(AUDIT, "high-watermark").truncate_by == "high-watermark"
    assert cuts(by_broker(plan_partition(LEDGER, "epochs"))[3]) == {1: 3, 2: 0}


def test_a_checkpoint_as_a_broker_loads_it() -> None:
    assert loaded_epochs(entries((0, 0), (2, 5), (3, 9)), 9) == list(entries((0, 0), (2, 5)))
    assert loaded_epochs(entries((0, 0), (4, 5), (3, 7)), 9) == list(entries((0, 0), (3, 7)))
    assert loaded_epochs(entries((0, 4), (1, 4)), 9) == list(entries((1, 4)))


def test_recovery_adds_the_epochs_it_walks_over() -> None:
    runs = [(0, 0, 5), (1, 5, 12), (3, 12, 20)]
    assert recovered_epochs(entries((0, 0)), runs, 0) == entries((0, 0), (1, 5), (3, 12))
    assert recovered_epochs(entries((0, 0)), runs, 8) == entries((0, 0), (1, 8), (3, 12)), "what lies before was not walked"
    assert recovered_epochs(entries((0, 0), (2, 7)), runs, 0) == entries((0, 0), (2, 7), (3, 12))
    assert recovered_epochs((), runs, 20) == ()


@pytest.mark.parametrize(("node", "kind"), [(1, "leads"), (2, "clean"), (3, "elr"), (4, "unclean"), ("x", "unknown")])
def test_how_an_election_is_called(node: int | str, kind: str) -> None:
    control = PlanControl(1, 1, 2, (1, 2), (3,), (1, 2, 3, 4))
    assert election_kind(control, node) == kind
    assert (election_kind(control, node, crashed=True) == kind) is (kind not in ("leads", "elr"))
    assert election_kind(None, node) == election_kind(replace(control, isr=None), node) == "unknown"


LEADERLESS = PlanControl(-1, 2, 2, (), (1, 2), (1, 2, 3))


@pytest.mark.parametrize(
    ("elr", "node", "crashed", "kind"),
    [
        ((1, 2), 1, False, "elr"),
        ((1, 2), 1, True, "unclean"),
        ((1, 2), 2, True, "unclean"),
        ((2,), 2, False, "elr"),
        ((2,), 2, True, "last-known-leader"),
        ((), 2, True, "last-known-leader"),
        ((), 2, False, "last-known-leader"),
        ((), 1, False, "unclean"),
        ((), 3, True, "unclean"),
    ],
)
def test_who_crashed_leaves_the_elr_and_who_led_last_is_elected_when_it_is_empty(
    elr: tuple[int, ...], node: int, crashed: bool, kind: str
) -> None:
    assert election_kind(replace(LEADERLESS, elr=elr), node, crashed=crashed) == kind


def test_the_last_known_leader_is_preferred_to_who_must_be_forced() -> None:
    control = replace(LEADERLESS, elr=(2,))
    alike = [replace(replica(broker, 10, (0, 0), hw=10), crashed=True) for broker in (1, 2, 3)]
    plan = plan_partition(partition(*alike, control=control))
    assert [candidate.election for candidate in plan.candidates] == ["unclean", "last-known-leader", "unclean"]
    assert plan.recommended == 2


def test_of_ten_thousand_partitions_those_with_a_fork_or_a_lag_matter() -> None:
    """How long that takes, `python -m bench --only many-plans` says."""
    healthy = partition(*(replica(broker, 1000, (0, 0), (3, 500), (7, 900), hw=990) for broker in (1, 2, 3)), control=CONTROL)
    lagging = partition(*(replica(broker, 1000 - broker, (0, 0), (3, 500)) for broker in (1, 2, 3)), control=CONTROL)
    given = [(healthy if number % 20 else (AUDIT if number % 40 else lagging)) for number in range(10_000)]
    plans = [plan_partition(one) for one in given]
    assert sum(plan.matters for plan in plans) == 500


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
