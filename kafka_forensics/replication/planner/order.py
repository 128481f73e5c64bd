"""One order in which to start brokers for many partitions: a broker starts for all its partitions at once, so that the order which
is best for one may let a worse replica lead another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from kafka_forensics.replication.planner.plan_steps import Steps
from kafka_forensics.replication.planner.plans import Broker, Plan, PlanPartition

_EXACT: Final = 6
"""Up to so many brokers every order is tried; of more, each next one is who then spoils least."""
Cost = tuple[int, int]
"""Offsets proven committed, and all offsets, that an election loses."""
NOTHING: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Wish:
    """What one partition wants of the order."""

    topic: str
    partition: int
    leader: Broker
    """Whom its plan recommends."""
    electable: tuple[Broker, ...]
    """Of whom the first that starts comes to lead."""
    costs: Mapping[Broker, Cost]
    """What the election of each loses."""

    def leader_under(self, order: Mapping[Broker, int]) -> Broker:
        """Who comes to lead if brokers are started by rising number, each when those before it lead what they can."""
        return min(self.electable, key=lambda broker: order.get(broker, len(order)))

    def cost_under(self, leader: Broker) -> Cost:
        """What it loses under a leader; under one whose costs are not known the most that any would."""
        return self.costs.get(leader) or max(self.costs.values())

    def spoiled_by(self, leader: Broker) -> Cost:
        """How much more than under the recommended leader it loses: offsets proven committed, and all."""
        got, wanted = self.cost_under(leader), self.cost_under(self.leader)
        return got[0] - wanted[0], got[1] - wanted[1]


@dataclass(frozen=True, slots=True)
class Against:
    """A partition that is led by another than its plan recommends, and loses more for it."""

    wish: Wish
    leader: Broker

    @property
    def more(self) -> Cost:
        """How much more it loses: offsets proven committed, and all."""
        return self.wish.spoiled_by(self.leader)


@dataclass(frozen=True, slots=True)
class StartOrder:
    """An order for all partitions, and those it is against; none where every partition has its way."""

    brokers: tuple[Broker, ...]
    against: tuple[Against, ...]


def wish_of(given: PlanPartition, plan: Plan, steps: Steps) -> Wish | None:
    """What a partition's plan, with the steps to its recommended leader, wants of the order; None where it does not matter.

    Where somebody who loses as little is elected without force, the first of those who are leads; where the election has to be
    forced, or nothing says who is in sync, whoever starts before the recommended one may be elected in its place.
    """
    costs = {candidate.broker: (candidate.committed, candidate.at_most) for candidate in plan.candidates}
    best = costs.get(steps.leader)
    if best is None or (all(cost == best for cost in costs.values()) and not steps.keep_stopped):
        return None
    anyone = given.control is None or bool(given.control.unclean_enabled)
    by_itself = not (anyone or steps.unclean) and best in [costs.get(broker) for broker in plan.ordinary]
    return Wish(
        plan.topic, plan.partition, steps.leader, plan.ordinary if by_itself else (steps.leader, *steps.keep_stopped), costs
    )


def start_order(wishes: Iterable[Wish], brokers: Sequence[Broker]) -> StartOrder | None:
    """The order of `brokers` in which all partitions together lose least; None where none of them wants any.

    An order that every partition has its way in is found wherever there is one. Work grows with the kinds of wishes, not with the
    partitions.
    """
    wanted = list(wishes)
    if not wanted or not brokers:
        return None
    kinds = _kinds(wanted)
    best = _of_all(kinds, brokers) if len(brokers) <= _EXACT else _one_by_one(kinds, brokers)
    places = {broker: place for place, broker in enumerate(best)}
    led = (Against(wish, wish.leader_under(places)) for wish in wanted)
    return StartOrder(best, tuple(against for against in led if against.more > NOTHING))


_Kind = Mapping[Broker, Cost]
"""Partitions of which the same brokers are electable: what starting each of these first would cost all of them."""


def _kinds(wishes: Sequence[Wish]) -> list[_Kind]:
    costs: dict[tuple[Broker, ...], dict[Broker, Cost]] = {}
    for wish in wishes:
        spoiled = costs.setdefault(wish.electable, dict.fromkeys(wish.electable, NOTHING))
        for broker in wish.electable:
            committed, lost = wish.spoiled_by(broker)
            spoiled[broker] = spoiled[broker][0] + committed, spoiled[broker][1] + lost
    return list(costs.values())


def _of_all(kinds: Sequence[_Kind], brokers: Sequence[Broker]) -> tuple[Broker, ...]:
    """The best of all orders, of equally good ones the first."""

    def cost(order: Sequence[Broker]) -> Cost:
        spoiled = [next((kind[broker] for broker in order if broker in kind), NOTHING) for kind in kinds]
        return sum(committed for committed, _ in spoiled), sum(lost for _, lost in spoiled)

    return min(permutations(brokers), key=cost)


def _one_by_one(kinds: Sequence[_Kind], brokers: Sequence[Broker]) -> tuple[Broker, ...]:
    """Always who costs least of the partitions that nobody leads yet."""
    costs = dict.fromkeys(brokers, NOTHING)
    of_broker: dict[Broker, list[int]] = {broker: [] for broker in brokers}
    for number, kind in enumerate(kinds):
        for broker in kind.keys() & costs.keys():
            costs[broker] = costs[broker][0] + kind[broker][0], costs[broker][1] + kind[broker][1]
            of_broker[broker].append(number)
    led: set[int] = set()
    order = []
    while costs:
        chosen = min(costs, key=lambda broker: costs[broker])
        order.append(chosen)
        del costs[chosen]
        for number in set(of_broker[chosen]) - led:
            led.add(number)
            for broker in kinds[number].keys() & costs.keys():
                costs[broker] = costs[broker][0] - kinds[number][broker][0], costs[broker][1] - kinds[number][broker][1]
    return tuple(order)
