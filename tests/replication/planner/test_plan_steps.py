"""The way to a planned election: who is copied first, who stays down, who is started when."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.elections import Candidates, elect
from kafka_forensics.replication.planner.plan_steps import Steps, steps
from kafka_forensics.replication.planner.planner import plan_partition
from kafka_forensics.replication.planner.plans import Missing, PlanControl, PlanPartition, PlanReplica

FIRST = (EpochEntry(0, 0),)


Brokers = tuple[int, ...]


def way(
    leader: int,
    copied: Brokers,
    stopped: Brokers,
    aside: Brokers,
    order: Brokers,
    *,
    unclean: bool = False,
    any_order: bool = False,
) -> Steps:
    return Steps(leader, copied, stopped, unclean, (), aside, order, any_order=any_order)


def to(partition: PlanPartition, broker: int | str) -> Steps:
    plan = plan_partition(partition)
    return steps(partition, plan, next(candidate for candidate in plan.candidates if candidate.broker == broker))


def lagging(control: PlanControl | None, ends: tuple[int, ...] = (200, 600, 600)) -> PlanPartition:
    replicas = [PlanReplica(broker, 0, end, end, FIRST, FIRST) for broker, end in enumerate(ends, 1)]
    return PlanPartition("clicks", 0, replicas, {}, control)


def test_the_leader_needs_no_election() -> None:
    assert to(lagging(PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2))), 3) == way(3, (), (), (), (3, 1, 2))


def test_members_of_the_isr_that_come_first_stay_down() -> None:
    control = PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2))
    assert to(lagging(control), 2) == way(2, (), (3, 1), (), (2, 3, 1))
    assert to(lagging(control), 1) == way(1, (2, 3), (3,), (), (1, 3, 2)), "those that would be cut are copied first"
    outside = replace(control, isr=(3, 2))
    assert to(lagging(outside), 2).keep_stopped == (3,), "who is not in the ISR is not elected before one who is"


def test_a_leader_that_was_not_stopped_cleanly_has_to_be_elected_again() -> None:
    """The controller fences it before it can register again: whoever of the ISR is alive by then leads."""
    partition = lagging(PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2)))
    crashed = replace(partition, replicas=[replace(replica, crashed=True) for replica in partition.replicas])
    assert to(crashed, 3) == way(3, (), (1, 2), (), (3, 1, 2))
    assert to(crashed, 1).keep_stopped == (3, 2)
    assert plan_partition(crashed).recommended == 3


def test_a_member_of_the_elr_waits_for_the_whole_isr() -> None:
    control = PlanControl(3, 3, 0, (3,), (2,), (1, 2, 3))
    assert to(lagging(control), 2) == way(2, (), (3,), (), (2, 1, 3))


def test_the_last_known_leader_need_not_be_forced() -> None:
    control = PlanControl(-1, 3, 0, (), (3,), (1, 2, 3), unclean_enabled=False)
    partition = lagging(control)
    crashed = replace(partition, replicas=[replace(replica, crashed=True) for replica in partition.replicas])
    assert not to(crashed, 3).unclean
    assert to(crashed, 2).unclean
    assert to(crashed, 2).keep_stopped == (1, 3)


def test_an_unclean_election_takes_the_first_that_is_alive() -> None:
    off = PlanControl(3, 3, 0, (3,), (5,), (4, 1, 2, 3, 5), unclean_enabled=False)
    five = lagging(off, (200, 600, 600, 600, 600))
    told = to(five, 1)
    assert told.unclean
    assert told.keep_stopped == (4, 3, 5), "who stands first in the assignment, the ISR, the ELR"
    assert told.copy_first == (2, 3, 4, 5)
    by_itself = replace(off, unclean_enabled=True)
    assert to(replace(five, control=by_itself), 1).keep_stopped == (4, 2, 3, 5), "the controller would take any other at once"
    assert to(replace(five, control=replace(off, unclean_enabled=None)), 1).keep_stopped == (4, 2, 3, 5), "it may be on"
    nobody = replace(off, leader=-1, last_leader=2, isr=(), elr=())
    assert to(replace(five, control=nobody), 1).keep_stopped == (4, 2), "the last leader is elected before others (KIP-966)"


def test_where_unclean_elections_are_on_all_wait_for_a_clean_one() -> None:
    control = PlanControl(3, 3, 0, (3, 2), (), (3, 1, 2), unclean_enabled=True)
    told = to(lagging(control), 2)
    assert (told.keep_stopped, told.unclean) == ((3, 1), False)


def test_without_a_controllers_log_all_others_stay_down() -> None:
    told = to(lagging(None), 2)
    assert (told.keep_stopped, told.unclean) == ((1, 3), True)


def test_a_replica_without_a_copy_is_asked_for() -> None:
    control = PlanControl(3, 3, 0, (3, 1, 2, 4), (), (4, 3, 1, 2), unclean_enabled=False)
    told = to(lagging(control), 1)
    assert (told.plan_again_with, told.keep_stopped, told.start_order) == ((4,), (4, 3), (1, 3, 2))


def test_the_dead_are_not_started() -> None:
    partition = lagging(PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2)))
    replica, two, three = partition.replicas
    told = to(replace(partition, replicas=[replica, two, replace(three, is_live=False)]), 2)
    assert told.start_order == (2, 1)
    assert told.keep_stopped == (1,)


def test_who_would_not_start_is_named_and_not_in_the_order() -> None:
    given_partition = lagging(PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2)))
    replica, two, three = given_partition.replicas
    told = to(replace(given_partition, replicas=(replace(replica, starts=False), two, three)), 3)
    assert (told.start_order, told.do_not_start) == ((3, 2), (1,))


def test_old_logs_that_would_keep_other_records_are_set_aside() -> None:
    replicas = [PlanReplica(1, 0, 10, 10), PlanReplica(2, 0, 10, 0), PlanReplica(3, 0, 3, 3)]
    ledger = PlanPartition("ledger", 0, replicas, {(0, 2): ((0, 3),), (1, 2): ((0, 3),)})
    assert to(ledger, 1) == way(1, (3,), (2, 3), (3,), (1, 2, 3), unclean=True)
    assert to(ledger, 3).set_aside == (1,), "it would halt, or keep three records of its own"


def test_whoever_would_keep_other_or_damaged_records_is_set_aside() -> None:
    control = PlanControl(1, 1, 0, (1, 2), (), (1, 2))
    alike = lagging(control, (8, 8))
    assert to(alike, 1).set_aside == ()
    assert to(replace(alike, differing={(0, 1): ((5, 8),)}), 1).set_aside == (2,), "epochs that are equal cut nothing"
    replica, two = alike.replicas
    rotten = replace(alike, replicas=(replica, replace(two, damaged=((2, 4),))))
    assert to(rotten, 1).set_aside == (2,), "else it keeps its damaged batch"
    assert to(rotten, 2).set_aside == (), "what the leader has damaged only, broker 1 has whole"
    gone = replace(alike, replicas=(replica, replace(two, damaged=((2, 4),), starts=False)))
    assert to(gone, 1).set_aside == (), "it does not start"


def test_where_nothing_can_be_lost_any_order_will_do() -> None:
    control = PlanControl(-1, 3, 0, (3, 1, 2), (), (3, 1, 2))
    alike = lagging(control, (8, 8, 8))
    told = to(alike, 3)
    assert (told.any_order, told.keep_stopped, told.start_order) == (True, (), (3, 1, 2))
    assert to(alike, 2) == way(2, (), (), (), (2, 3, 1), any_order=True), "nobody is forced where it makes no difference"
    assert not to(replace(alike, control=replace(control, assignment=(3, 1, 2, 4))), 3).any_order, "broker 4 may hold more"
    assert not to(lagging(control), 3).any_order
    replica, two, three = alike.replicas
    assert not to(replace(alike, replicas=(replace(replica, starts=False), two, three)), 3).any_order, "nobody planned what it does"
    assert not to(
        replace(alike, replicas=(replica, two, replace(three, is_live=False)), control=replace(control, isr=(3,))), 1
    ).any_order


def test_without_a_controllers_log_any_order_does_where_all_are_alike() -> None:
    alike = lagging(None, (8, 8, 8))
    assert to(alike, 2) == way(2, (), (), (), (2, 1, 3), any_order=True)
    replica, two, three = alike.replicas
    told = to(replace(alike, replicas=(replica, two, replace(three, is_live=False))), 1)
    assert (told.any_order, told.unclean) == (False, True), "broker 3 may have been the only one in the ISR"
    assert not to(replace(alike, replicas=(replica, two, replace(three, unread=((2, 4),)))), 1).any_order


def test_a_hole_that_the_leader_does_not_have_is_set_aside() -> None:
    """A follower fetches from its log end on."""
    control = PlanControl(1, 1, 0, (1, 2), (), (1, 2))
    alike = lagging(control, (8, 8))
    replica, two = alike.replicas
    holed = replace(two, held=((0, 2), (4, 8)))
    assert to(replace(alike, replicas=(replica, holed)), 1).set_aside == (2,)
    assert to(replace(alike, replicas=(replica, replace(two, held=((2, 8),)))), 1).set_aside == (2,), "at the start of its log"
    assert to(replace(alike, replicas=(replica, replace(two, log_start_offset=2, held=((2, 8),)))), 1).set_aside == ()
    assert to(replace(alike, replicas=(replica, holed), compacted=True), 1).set_aside == ()
    assert to(replace(alike, replicas=(replica, replace(holed, unread=((2, 4),)))), 1).set_aside == (), "it may be there"
    assert to(replace(alike, replicas=(replace(replica, held=((0, 2), (4, 8))), holed)), 1).set_aside == ()
    assert to(replace(alike, replicas=(replace(replica, damaged=((2, 4),)), holed)), 1).set_aside == (), "the leader has it damaged"
    short = replace(holed, log_end_offset=6, held=((0, 2), (4, 6)))
    assert to(replace(alike, replicas=(replica, short)), 1).set_aside == (2,)


def test_of_two_copies_of_one_broker_one_is_started() -> None:
    control = PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2))
    first, second, third = lagging(control, (200, 600, 600)).replicas
    twins = [first, replace(second, broker="new"), replace(second, broker="old", log_end_offset=300), third]
    partition = PlanPartition("clicks", 0, twins, {}, control, nodes={"new": 2, "old": 2})
    assert to(partition, 3).start_order == (3, 1, "new")
    assert to(partition, "old").start_order == ("old", 1, 3)
    assert [missing for missing in plan_partition(partition).missing if missing.kind == "same_broker"] == [
        Missing("same_broker", "new"),
        Missing("same_broker", "old"),
    ]


def test_an_unnamed_copy_is_no_further_replica() -> None:
    control = PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2))
    replicas = [replace(replica, broker="copy-2") if replica.broker == 2 else replica for replica in lagging(control).replicas]
    partition = replace(lagging(control), replicas=replicas)
    assert plan_partition(partition).missing == (Missing("copy_unnamed", "copy-2"),), "it may be broker 2's"
    assert to(partition, 1).plan_again_with == ()
    guessed = replace(partition, nodes={"copy-2": 2}, guessed=frozenset({"copy-2"}))
    assert plan_partition(guessed).missing == (Missing("copy_unnamed", "copy-2"),)
    assert not plan_partition(guessed).at_most_is_bound
    assert to(guessed, 1).keep_stopped == (3,)
    two_lack = replace(partition, replicas=replicas[:2])
    told = to(two_lack, 1)
    assert plan_partition(two_lack).missing[:2] == (Missing("copy_absent", 3), Missing("copy_absent", 2))
    assert (told.plan_again_with, told.keep_stopped) == ((3, 2), (3,))


def test_brokers_that_were_given_names_are_known_by_their_ids() -> None:
    control = PlanControl(3, 3, 0, (3, 1, 2), (), (3, 1, 2))
    replicas = [replace(replica, broker=f"rack-{replica.broker}") for replica in lagging(control).replicas]
    named = PlanPartition("clicks", 0, replicas, {}, control, nodes={"rack-1": 1, "rack-2": 2, "rack-3": 3})
    assert to(named, "rack-2").keep_stopped == ("rack-3", "rack-1")


BROKERS = (1, 2, 3, 4)
MEMBERS = st.lists(st.sampled_from(BROKERS), unique=True, max_size=4).map(tuple)


@st.composite
def controls(draw: st.DrawFn) -> PlanControl:
    """What a controller may say of four replicas; the leader is in the ISR, and the ELR beside it."""
    isr = draw(MEMBERS)
    leader = draw(st.sampled_from((*isr, -1)))
    elr = tuple(one for one in draw(MEMBERS) if one not in isr)
    last = leader if leader >= 0 else draw(st.sampled_from((None, *BROKERS)))
    return PlanControl(leader, last, 0, isr, elr, tuple(draw(st.permutations(BROKERS))), draw(st.none() | st.booleans()))


@pytest.mark.properties
@given(controls(), st.sampled_from(BROKERS), st.sets(st.sampled_from(BROKERS)), st.booleans())
def test_whoever_else_is_alive_the_candidate_is_elected(
    control: PlanControl, broker: int, running: set[int], crashed: bool
) -> None:
    """By the controller's own rule: with those down that have to be, nobody else can come first, nor while who crashed is away."""
    partition = lagging(control, (200, 600, 600, 600))
    replicas = [replace(replica, crashed=crashed and replica.broker == broker) for replica in partition.replicas]
    told = to(replace(partition, replicas=replicas), broker)
    others = frozenset(running - set(told.keep_stopped) - {broker})
    alive = others | {broker}
    isr, elr = frozenset(control.isr or ()), frozenset(control.elr or ())
    if crashed:
        assert broker not in isr or not isr & others, "whoever else is in the ISR is elected when the candidate is fenced"
        elr -= {broker}
        control = replace(control, leader=-1 if control.leader == broker else control.leader)
    if elr:
        elr, isr = elr | (isr - alive), isr & alive
    leader = control.leader if control.leader in alive else -1
    given_rule = Candidates(control.assignment or (), alive, isr, leader, elr, control.last_leader)
    done = elect(given_rule, unclean=told.unclean or control.unclean_enabled is True)
    assert done.leader == broker
    assert (done.kind == "unclean") is told.unclean
