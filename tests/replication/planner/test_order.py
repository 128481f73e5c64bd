"""One order of brokers for many partitions: none is better, and those it is against are named."""

from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.replication.planner.plan_steps import StartOrder, Wish, start_order, steps, wish_of
from kafka_forensics.replication.planner.planner import plan_partition
from kafka_forensics.replication.planner.plans import Broker, PlanControl, PlanPartition
from tests.support.plan_values import lagging


def partition(topic: str, control: PlanControl | None, *ends: int) -> PlanPartition:
    return lagging(control, ends, topic)


def wish(given: PlanPartition) -> Wish | None:
    plan = plan_partition(given)
    return wish_of(
        given, plan, steps(given, plan, next(candidate for candidate in plan.candidates if candidate.broker == plan.recommended))
    )


def ordered(*partitions: PlanPartition) -> StartOrder | None:
    return start_order([one for one in map(wish, partitions) if one is not None], [1, 2, 3])


def in_sync(*isr: int) -> PlanControl:
    return PlanControl(-1, isr[0], 0, isr, (), (1, 2, 3))


def test_where_nothing_can_be_lost_there_is_no_order() -> None:
    assert ordered(partition("t", in_sync(1, 2, 3), 8, 8, 8), partition("u", None, 8, 8, 8)) is None


def test_where_no_order_serves_all_least_is_lost_and_it_is_told() -> None:
    order = ordered(partition("t", in_sync(1, 2), 5, 8, 5), partition("u", in_sync(1, 2), 18, 2, 2))
    assert order is not None
    assert order.brokers.index(1) < order.brokers.index(2)
    [against] = order.against
    assert (against.wish.topic, against.wish.leader, against.leader, against.more) == ("t", 2, 1, (3, 3))


def test_without_a_controllers_log_anyone_who_starts_first_may_lead() -> None:
    order = ordered(partition("t", None, 5, 8, 5), partition("u", None, 8, 5, 5), partition("v", None, 5, 80, 5))
    assert order is not None
    assert order.brokers[0] == 2
    assert [(against.wish.topic, against.leader, against.more) for against in order.against] == [("u", 2, (3, 3))]


def test_where_unclean_elections_are_on_so_it_is_with_a_controllers_log() -> None:
    control = PlanControl(-1, 2, 0, (2,), (), (1, 2, 3), unclean_enabled=True)
    found = wish(partition("t", control, 5, 8, 5))
    assert found is not None
    assert found.leader_under({1: 0, 2: 1, 3: 2}) == 1


def cost(wishes: list[Wish], order: tuple[Broker, ...]) -> tuple[int, int]:
    places = {broker: place for place, broker in enumerate(order)}
    costs = [wishe.cost_under(wishe.leader_under(places)) for wishe in wishes]
    return sum(committed for committed, _ in costs), sum(lost for _, lost in costs)


ENDS = st.tuples(*[st.integers(0, 9)] * 3)
CONTROLS = st.one_of(st.none(), st.lists(st.sampled_from([1, 2, 3]), min_size=1, unique=True).map(lambda isr: in_sync(*isr)))


@given(st.lists(st.tuples(CONTROLS, ENDS), max_size=6))
def test_no_order_loses_less_and_what_it_is_against_is_the_difference(
    given_ones: list[tuple[PlanControl | None, tuple[int, ...]]],
) -> None:
    partitions = [partition(f"t{number}", control, *ends) for number, (control, ends) in enumerate(given_ones)]
    wishes = [one for one in map(wish, partitions) if one is not None]
    order = start_order(wishes, [1, 2, 3])
    assert (order is None) is (not wishes)
    if order is None:
        return
    costs = {permutation: cost(wishes, permutation) for permutation in permutations((1, 2, 3))}
    assert costs[tuple(int(broker) for broker in order.brokers)] == min(costs.values())
    wanted = [wishe.cost_under(wishe.leader) for wishe in wishes]
    more = [against.more for against in order.against]
    for at in (0, 1):
        assert sum(each[at] for each in wanted) + sum(each[at] for each in more) >= min(costs.values())[at]


def test_ten_thousand_partitions_are_ordered_by_their_kinds() -> None:
    wishes = []
    for n in range(10_000):
        costs: dict[Broker, tuple[int, int]] = {n % 5 + 1: (0, 0), (n + 1) % 5 + 1: (n, n)}
        wishes.append(Wish(f"t{n}", 0, n % 5 + 1, (n % 5 + 1, (n + 1) % 5 + 1), costs))
    order = start_order(wishes, [1, 2, 3, 4, 5])
    assert order is not None
    assert {against.wish.leader for against in order.against} == {order.brokers[-1]}


@given(st.integers(7, 40), st.randoms(use_true_random=False))
def test_where_some_order_serves_all_it_is_found_however_many_brokers_there_are(count: int, random: Random) -> None:
    hidden: list[Broker] = random.sample(range(count), count)
    wishes = []
    for number in range(3 * count):
        electable = sorted(random.sample(range(count), 3), key=hidden.index)
        wishes.append(
            Wish("t", number, electable[0], tuple(random.sample(electable, 3)), {electable[0]: (0, 0), electable[1]: (1, 4)})
        )
    order = start_order(wishes, list(range(count)))
    assert order is not None
    assert order.against == ()
