"""One order of starts for many partitions, simulated by a controller that does not know the plans: the intended leaders lead, and
their logs remain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from hypothesis import given, strategies as st

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


def request_of(given_partition: planner.PlanPartition) -> planner.LeaderRequest | None:
    plan = planner.plan_partition(given_partition)
    best = next(candidate for candidate in plan.candidates if candidate.broker == plan.recommended)
    return planner.leader_request(given_partition, plan, planner.election_needs(given_partition, plan, best))


def requests_of(partitions: Sequence[planner.PlanPartition]) -> dict[tuple[str, int], planner.LeaderRequest]:
    requests = {(given.topic, given.partition): request_of(given) for given in partitions}
    return {name: request for name, request in requests.items() if request is not None}


def ordered(*partitions: planner.PlanPartition) -> planner.StartOrder:
    return planner.order_of_starts(requests_of(partitions), BROKERS)


def in_sync(*isr: int, unclean: bool | None = None) -> planner.PlanControl:
    return planner.PlanControl(-1, isr[0], 0, isr, (), (1, 2, 3), unclean)


def test_where_nothing_can_be_lost_there_is_no_order() -> None:
    assert ordered(partition("t", in_sync(1, 2, 3), 8, 8, 8), partition("u", None, 8, 8, 8)).rounds == ()


def test_the_intended_leader_starts_before_all_that_could_be_elected_uncleanly() -> None:
    starts = ordered(partition("t", in_sync(1), 5, 8, 5), partition("u", in_sync(1), 5, 9, 5))
    assert [(start.broker, len(start.leads), len(start.forced)) for start in starts.rounds] == [(2, 2, 2)]
    assert (starts.others, starts.forbid_unclean) == ((1, 3), False)


def test_if_that_does_not_serve_all_partitions_unclean_elections_are_forbidden_first() -> None:
    starts = ordered(partition("t", in_sync(1), 5, 8, 5), partition("u", in_sync(1), 8, 5, 5))
    assert [(start.broker, start.stopped, len(start.forced)) for start in starts.rounds] == [(2, (), 1), (1, (), 0)]
    assert (starts.others, starts.forbid_unclean) == ((3,), True)


def test_if_no_order_serves_all_partitions_leaders_stop_again() -> None:
    starts = ordered(partition("t", None, 5, 8, 5), partition("u", None, 8, 5, 5), partition("v", None, 5, 80, 5))
    assert [(start.broker, start.stopped, len(start.leads)) for start in starts.rounds] == [(2, (), 2), (1, (2,), 1)]
    assert (starts.others, starts.forbid_unclean) == ((2, 3), True)


def test_where_the_other_in_sync_would_be_elected_meanwhile_no_order_serves() -> None:
    starts = ordered(partition("t", in_sync(1, 2), 5, 8, 5), partition("u", in_sync(1, 2), 18, 2, 2))
    assert [topic for topic, _ in starts.impossible] == ["u"]


def test_of_leaders_as_good_the_one_is_taken_that_one_start_serves() -> None:
    starts = ordered(partition("t", in_sync(1, 2), 8, 8, 5), partition("u", in_sync(2), 5, 8, 5))
    assert [(start.broker, len(start.leads)) for start in starts.rounds] == [(2, 2)]


def test_one_start_serves_partitions_that_lose_nothing_under_either_leader() -> None:
    """The only ISR member does not come back, so an election must be forced."""
    controls = [planner.PlanControl(-1, 3, 0, (3,), (), assignment) for assignment in ((1, 2, 3), (2, 1, 3))]
    starts = ordered(*(lagging(control, (8, 8), topic) for control, topic in zip(controls, "tu", strict=True)))
    assert [(start.broker, len(start.leads), start.stopped) for start in starts.rounds] == [(1, 2, ())]


def test_settings_are_restored_as_they_were() -> None:
    """Unclean elections are allowed for all brokers, and once more for u."""
    control = replace(in_sync(1), unclean_by_default=True)
    partitions = partition("t", control, 5, 8, 5), partition("u", replace(control, unclean_by_topic=True), 8, 5, 5)
    steps = steps_of(Plans([Planned(planned, planner.plan_partition(planned)) for planned in partitions], 2), None)
    commands = [str(step.command).partition(" --entity-")[2] for step in steps if "forbid" in step.kind or "restore" in step.kind]
    of_all, of_topic = "type brokers --entity-default", "type topics --entity-name u"
    setting = "--add-config unclean.leader.election.enable="
    values = [(of_all, "false"), (of_topic, "false"), (of_all, "true"), (of_topic, "true")]
    assert commands == [f"{of} {setting}{value}" for of, value in values]


@dataclass
class Played:
    """One partition of a controller and its replicas; `held` names the replica whose log each replica has copied."""

    assignment: tuple[int, ...]
    isr: frozenset[int]
    elr: frozenset[int]
    last: int | None
    held: dict[int, int]
    crashed: frozenset[int]
    leader: int = -1

    def start(self, broker: int, alive: frozenset[int], *, unclean: bool) -> None:
        """A stopped ISR member is in the ELR, if it is enabled; a crashed one leaves it."""
        if self.leader < 0 and self.elr:
            self.elr, self.isr = (self.elr | (self.isr - alive)) - (self.crashed & {broker}), self.isr & alive
        self.elect(alive, unclean=unclean)

    def elect(self, alive: frozenset[int], *, unclean: bool) -> None:
        done = elect(ElectionInput(self.assignment, alive, self.isr, self.leader, self.elr, self.last), unclean=unclean)
        self.leader, self.isr, self.elr = done.leader, done.isr, done.elr
        if self.leader >= 0:
            self.last = self.leader
            self.isr = isr_without(self.isr, self.isr - alive, elr_enabled=False)
            self.held.update(dict.fromkeys(alive & self.held.keys(), self.held[self.leader]))

    def stop(self, broker: int, alive: frozenset[int], *, unclean: bool) -> None:
        self.isr = isr_without(self.isr, {broker}, elr_enabled=False)
        self.leader = -1 if self.leader == broker else self.leader
        self.elect(alive, unclean=unclean)


def play(starts: planner.StartOrder, played: dict[str, Played], *, allowed: bool) -> None:
    """Do what an order of starts says, on a cluster whose settings allow unclean elections or not."""
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
        assert {played[topic].leader for topic, _ in start.leads} <= {start.broker}, "what the step after it looks at"
    for broker in starts.others:
        assert isinstance(broker, int)
        alive |= {broker}
        for replicas in played.values():
            replicas.start(broker, alive, unclean=unclean)


ENDS = st.tuples(*[st.integers(0, 9)] * 3)


@st.composite
def clusters(draw: st.DrawFn) -> list[tuple[planner.PlanPartition, Played]]:
    """Partitions of a random history, and what the controllers know of them, which a plan may know or not."""
    cluster = random_history(draw(st.integers(0, 100_000))).cluster
    some = []
    for number in range(draw(st.integers(1, 5))):
        source = draw(st.sampled_from(sorted(cluster.partitions.values(), key=lambda partition: str(partition.name))))
        of_history = plan_partition_of(cluster, source, logs_of(source))
        given_partition = draw(st.sampled_from([of_history, partition("t", None, *draw(ENDS))]))
        replicas = [replace(replica, crashed=draw(st.booleans())) for replica in given_partition.replicas]
        brokers = [replica.broker for replica in replicas if isinstance(replica.broker, int)]
        assignment = tuple(draw(st.permutations(brokers)))
        isr = tuple(draw(st.lists(st.sampled_from(brokers), unique=True, max_size=2)))
        elr = tuple(draw(st.lists(st.sampled_from(brokers), unique=True, min_size=not isr, max_size=2)))
        elr = tuple(broker for broker in elr if broker not in isr)
        last = draw(st.sampled_from(isr or elr))
        control = draw(st.sampled_from([None, planner.PlanControl(-1, last, 0, isr, elr, assignment)]))
        isr, elr = (isr, elr) if control else (isr or elr, ())  # an ELR nobody knows of is seen by who looks at the leader
        given_partition = replace(given_partition, topic=f"t{number}", partition=0, replicas=replicas, control=control)
        held = {broker: broker for broker in brokers}
        crashed = frozenset(replica.broker for replica in replicas if replica.crashed and isinstance(replica.broker, int))
        some.append((given_partition, Played(assignment, frozenset(isr), frozenset(elr), last, held, crashed)))
    return some


@given(clusters(), st.booleans())
def test_the_order_elects_recommended_leaders(played_clusters: list[tuple[planner.PlanPartition, Played]], allowed: bool) -> None:
    plans = {given_partition.topic: planner.plan_partition(given_partition) for given_partition, _ in played_clusters}
    requests = requests_of([given_partition for given_partition, _ in played_clusters])
    brokers: list[planner.Broker] = sorted({broker for _, replicas in played_clusters for broker in replicas.held})
    planned = [Planned(given_partition, plans[given_partition.topic]) for given_partition, _ in played_clusters]
    starts = planner.order_of_starts(requests, brokers)
    assert sum(len(start.leads) for start in starts.rounds) == len(requests)
    assert {*(start.broker for start in starts.rounds), *starts.others} == set(brokers)
    if starts.impossible:
        assert {step.kind for step in steps_of(Plans(planned, len(planned)), None)} & {"start", "salvage"} == {"salvage"}
        return
    played = {given_partition.topic: replicas for given_partition, replicas in played_clusters}
    play(starts, played, allowed=allowed)
    for (topic, _), leader in starts.leader_of().items():
        assert played[topic].leader == leader
        assert played[topic].held[played[topic].leader] == leader, "its log was never cut for another"
        assert lost(plans[topic], leader) == lost(plans[topic], plans[topic].recommended)
    settled = Plans(planned, len(planned))
    settled.recommend_by_start_order()
    leaders = {topic: step.brokers for step in steps_of(settled, None) if step.kind == "leads" for topic, _ in step.partitions}
    assert leaders == {
        planned.plan.topic: (planned.plan.recommended,) for planned in settled.planned if planned.plan.topic in leaders
    }
    assert leaders.keys() == {topic for topic, _ in requests}


def lost(plan: planner.Plan, broker: planner.Broker | None) -> tuple[int, int, int]:
    return next(candidate.costs() for candidate in plan.candidates if candidate.broker == broker)


def test_ten_thousand_partitions_are_ordered_by_their_kinds() -> None:
    requests = {}
    for n in range(10_000):
        leader, other = n % 5 + 1, (n + 1) % 5 + 1
        requests[f"t{n}", 0] = planner.LeaderRequest((leader,), (leader, other), (leader, other), (), forced=True)
    starts = planner.order_of_starts(requests, [1, 2, 3, 4, 5])
    assert sorted(start.broker for start in starts.rounds if isinstance(start.broker, int)) == [1, 2, 3, 4, 5]
    assert starts.forbid_unclean, "each wants to be first for some partition"


@given(st.integers(7, 40), st.randoms(use_true_random=False))
def test_where_some_order_serves_all_it_is_found_however_many_brokers_there_are(count: int, random: Random) -> None:
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
