"""One order of starts for many partitions, played by a simulated controller without the plans: the intended leaders lead, and
their logs are not truncated."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import given, strategies as st
from msgspec.structs import replace

from kafka_forensics.cli.outputs.plan_steps import steps_of
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication import planner
from kafka_forensics.replication.elections import ElectionInput, elect, isr_without
from tests.simulation.checks import logs_of, plan_partition_of
from tests.simulation.random_histories import random_history
from tests.support.plan_values import lagging

BROKERS: Sequence[int] = (1, 2, 3)


def partition(topic: str, control: planner.PlanControl | None, *ends: int) -> planner.PlanPartition:
    return lagging(control, ends, topic)


def request_of(planned_partition: planner.PlanPartition) -> planner.LeaderRequest | None:
    plan = planner.plan_partition(planned_partition)
    best = next(candidate for candidate in plan.candidates if candidate.broker == plan.recommended)
    return planner.leader_request(planned_partition, plan, planner.election_needs(planned_partition, plan, best))


def requests_of(partitions: Sequence[planner.PlanPartition]) -> dict[tuple[str, int], planner.LeaderRequest]:
    requests = {(partition.topic, partition.partition): request_of(partition) for partition in partitions}
    return {name: request for name, request in requests.items() if request is not None}


def order_of(*partitions: planner.PlanPartition) -> planner.StartOrder:
    return planner.order_of_starts(requests_of(partitions), BROKERS)


def in_sync(*isr: int, unclean: bool | None = None) -> planner.PlanControl:
    return planner.PlanControl(-1, isr[0], 0, isr, (), (1, 2, 3), unclean)


def test_partitions_that_lose_nothing_need_no_order() -> None:
    assert order_of(partition("t", in_sync(1, 2, 3), 8, 8, 8), partition("u", None, 8, 8, 8)).rounds == ()


def test_the_intended_leader_starts_before_brokers_that_an_unclean_election_could_take() -> None:
    starts = order_of(partition("t", in_sync(1), 5, 8, 5), partition("u", in_sync(1), 5, 9, 5))
    assert [(start.broker, len(start.leads), len(start.forced)) for start in starts.rounds] == [(2, 2, 2)]
    assert (starts.others, starts.forbid_unclean) == ((1, 3), False)


def test_unclean_elections_are_forbidden_if_partitions_need_different_first_starts() -> None:
    starts = order_of(partition("t", in_sync(1), 5, 8, 5), partition("u", in_sync(1), 8, 5, 5))
    assert [(start.broker, start.stopped, len(start.forced)) for start in starts.rounds] == [(2, (), 1), (1, (), 0)]
    assert (starts.others, starts.forbid_unclean) == ((3,), True)


def test_leaders_stop_again_if_no_order_suits_all_partitions() -> None:
    starts = order_of(partition("t", None, 5, 8, 5), partition("u", None, 8, 5, 5), partition("v", None, 5, 80, 5))
    assert [(start.broker, start.stopped, len(start.leads)) for start in starts.rounds] == [(2, (), 2), (1, (2,), 1)]
    assert (starts.others, starts.forbid_unclean) == ((2, 3), True)


def test_a_partition_whose_other_isr_member_would_lead_first_has_no_order() -> None:
    starts = order_of(partition("t", in_sync(1, 2), 5, 8, 5), partition("u", in_sync(1, 2), 18, 2, 2))
    assert [topic for topic, _ in starts.impossible] == ["u"]


def test_among_equal_leaders_the_one_that_saves_a_start_is_chosen() -> None:
    starts = order_of(partition("t", in_sync(1, 2), 8, 8, 5), partition("u", in_sync(2), 5, 8, 5))
    assert [(start.broker, len(start.leads)) for start in starts.rounds] == [(2, 2)]


def test_one_start_suits_partitions_that_lose_nothing_under_either_leader() -> None:
    """The only ISR member does not return, so an election must be forced."""
    controls = [planner.PlanControl(-1, 3, 0, (3,), (), assignment) for assignment in ((1, 2, 3), (2, 1, 3))]
    starts = order_of(*(lagging(control, (8, 8), topic) for control, topic in zip(controls, "tu", strict=True)))
    assert [(start.broker, len(start.leads), start.stopped) for start in starts.rounds] == [(1, 2, ())]


def test_settings_are_restored_to_their_values() -> None:
    """Unclean elections are allowed for all brokers, and also for topic u."""
    control = replace(in_sync(1), unclean_by_default=True)
    partitions = partition("t", control, 5, 8, 5), partition("u", replace(control, unclean_by_topic=True), 8, 5, 5)
    steps = steps_of(Plans([Planned(planned, planner.plan_partition(planned)) for planned in partitions], 2))
    commands = [str(step.command).partition("HOST:PORT ")[2] for step in steps if "forbid" in step.kind or "restore" in step.kind]
    all_brokers, topic = "--broker-defaults --alter", "--alter --entity-type topics --entity-name u"
    setting = "--add-config unclean.leader.election.enable="
    values = [(all_brokers, "false"), (topic, "false"), (all_brokers, "true"), (topic, "true")]
    assert commands == [f"{entity} {setting}{value}" for entity, value in values]


@dataclass
class PlayedPartition:
    """One partition of a controller and its replicas; `log_of` is the replica whose log each replica has."""

    assignment: tuple[int, ...]
    isr: frozenset[int]
    elr: frozenset[int]
    last: int | None
    log_of: dict[int, int]
    crashed: frozenset[int]
    leader: int = -1

    def start(self, broker: int, alive: frozenset[int], *, unclean: bool) -> None:
        """A stopped ISR member is in the ELR, if it is enabled; a crashed one leaves it."""
        if self.leader < 0 and self.elr:
            self.elr, self.isr = (self.elr | (self.isr - alive)) - (self.crashed & {broker}), self.isr & alive
        self.elect(alive, unclean=unclean)

    def elect(self, alive: frozenset[int], *, unclean: bool) -> None:
        election = elect(ElectionInput(self.assignment, alive, self.isr, self.leader, self.elr, self.last), unclean=unclean)
        self.leader, self.isr, self.elr = election.leader, election.isr, election.elr
        if self.leader >= 0:
            self.last = self.leader
            self.isr = isr_without(self.isr, self.isr - alive, elr_enabled=False)
            self.log_of.update(dict.fromkeys(alive & self.log_of.keys(), self.log_of[self.leader]))

    def stop(self, broker: int, alive: frozenset[int], *, unclean: bool) -> None:
        self.isr = isr_without(self.isr, {broker}, elr_enabled=False)
        self.leader = -1 if self.leader == broker else self.leader
        self.elect(alive, unclean=unclean)


def play(starts: planner.StartOrder, played: dict[str, PlayedPartition], *, allowed: bool) -> None:
    """Play an order of starts on a cluster whose settings allow unclean elections or not."""
    unclean = allowed and not starts.forbid_unclean
    alive: frozenset[int] = frozenset()
    for start in starts.rounds:
        for broker in start.stopped:
            assert isinstance(broker, int)
            alive -= {broker}
            for replicas in played.values():
                replicas.stop(broker, alive, unclean=unclean)
        assert isinstance(start.broker, int)
        alive |= {start.broker}
        for replicas in played.values():
            replicas.start(start.broker, alive, unclean=unclean)
        for topic, _ in start.forced:
            played[topic].elect(alive, unclean=True)
        assert {played[topic].leader for topic, _ in start.leads} <= {start.broker}, "the next step of the plan checks this"
    for broker in starts.others:
        assert isinstance(broker, int)
        alive |= {broker}
        for replicas in played.values():
            replicas.start(broker, alive, unclean=unclean)


ENDS = st.tuples(*[st.integers(0, 9)] * 3)


@st.composite
def clusters(draw: st.DrawFn) -> list[tuple[planner.PlanPartition, PlayedPartition]]:
    """Partitions of a random history and their state at the controller, which a plan may have or not."""
    cluster = random_history(draw(st.integers(0, 100_000))).cluster
    partitions = []
    for number in range(draw(st.integers(1, 5))):
        source = draw(st.sampled_from(sorted(cluster.partitions.values(), key=lambda partition: str(partition.name))))
        of_history = plan_partition_of(cluster, source, logs_of(source))
        planned_partition = draw(st.sampled_from([of_history, partition("t", None, *draw(ENDS))]))
        replicas = [replace(replica, crashed=draw(st.booleans())) for replica in planned_partition.replicas]
        brokers = [replica.broker for replica in replicas if isinstance(replica.broker, int)]
        assignment = tuple(draw(st.permutations(brokers)))
        isr = tuple(draw(st.lists(st.sampled_from(brokers), unique=True, max_size=2)))
        elr = tuple(draw(st.lists(st.sampled_from(brokers), unique=True, min_size=not isr, max_size=2)))
        elr = tuple(broker for broker in elr if broker not in isr)
        last = draw(st.sampled_from(isr or elr))
        control = draw(st.sampled_from([None, planner.PlanControl(-1, last, 0, isr, elr, assignment)]))
        isr, elr = (isr, elr) if control else (isr or elr, ())  # an operator who checks the leader would see an unknown ELR
        planned_partition = replace(planned_partition, topic=f"t{number}", partition=0, replicas=replicas, control=control)
        log_of = {broker: broker for broker in brokers}
        crashed = frozenset(replica.broker for replica in replicas if replica.crashed and isinstance(replica.broker, int))
        partitions.append((planned_partition, PlayedPartition(assignment, frozenset(isr), frozenset(elr), last, log_of, crashed)))
    return partitions


@given(clusters(), st.booleans())
def test_the_order_elects_recommended_leaders(cluster: list[tuple[planner.PlanPartition, PlayedPartition]], allowed: bool) -> None:
    plans = {planned_partition.topic: planner.plan_partition(planned_partition) for planned_partition, _ in cluster}
    requests = requests_of([planned_partition for planned_partition, _ in cluster])
    brokers: list[planner.Broker] = sorted({broker for _, replicas in cluster for broker in replicas.log_of})
    planned = [Planned(planned_partition, plans[planned_partition.topic]) for planned_partition, _ in cluster]
    starts = planner.order_of_starts(requests, brokers)
    assert sum(len(start.leads) for start in starts.rounds) == len(requests)
    assert {*(start.broker for start in starts.rounds), *starts.others} == set(brokers)
    if starts.impossible:
        assert {step.kind for step in steps_of(Plans(planned, len(planned)))} & {"start", "salvage"} == {"salvage"}
        return
    played = {planned_partition.topic: replicas for planned_partition, replicas in cluster}
    play(starts, played, allowed=allowed)
    for (topic, _), leader in starts.leader_of().items():
        assert played[topic].leader == leader
        assert played[topic].log_of[played[topic].leader] == leader, "the leader still has its log"
        assert lost(plans[topic], leader) == lost(plans[topic], plans[topic].recommended)
    final = Plans(planned, len(planned))
    final.recommend_by_start_order()
    leads = [step for step in steps_of(final) if step.kind in ("elect", "leads")]
    leaders = {topic: step.brokers for step in leads for topic, _ in step.partitions}
    assert leaders == {
        planned.plan.topic: (planned.plan.recommended,) for planned in final.planned if planned.plan.topic in leaders
    }
    assert leaders.keys() == {topic for topic, _ in requests}


def lost(plan: planner.Plan, broker: planner.Broker | None) -> tuple[int, int, int]:
    return next(candidate.costs() for candidate in plan.candidates if candidate.broker == broker)


def test_ten_thousand_partitions_of_few_kinds_are_ordered() -> None:
    requests = {}
    for n in range(10_000):
        leader, other = n % 5 + 1, (n + 1) % 5 + 1
        requests[f"t{n}", 0] = planner.LeaderRequest((leader,), (leader, other), (leader, other), (), forced=True)
    starts = planner.order_of_starts(requests, [1, 2, 3, 4, 5])
    assert sorted(start.broker for start in starts.rounds if isinstance(start.broker, int)) == [1, 2, 3, 4, 5]
    assert starts.forbid_unclean, "every broker must start first for some partition"


@given(st.integers(7, 40), st.randoms(use_true_random=False))
def test_an_order_that_suits_all_partitions_is_found_for_many_brokers(count: int, random: Random) -> None:
    hidden: list[planner.Broker] = random.sample(range(count), count)
    requests = {}
    for number in range(3 * count):
        replicas = sorted(random.sample(range(count), 3), key=hidden.index)
        requests["t", number] = planner.LeaderRequest(
            (replicas[0],), tuple(random.sample(replicas, 3)), tuple(replicas), (), forced=True
        )
    starts = planner.order_of_starts(requests, list(range(count)))
    assert not starts.forbid_unclean
    assert not any(start.stopped for start in starts.rounds)
