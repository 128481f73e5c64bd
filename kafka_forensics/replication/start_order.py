"""One order in which to start brokers for many partitions: a broker starts for all its partitions at once, so that the order which
is best for one may let a worse replica lead another."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from kafka_forensics.replication.plan_steps import Steps
from kafka_forensics.replication.plans import Broker, Plan, PlanPartition

_EXACT: Final = 6
"""Up to so many brokers every order is tried; of more, the best that single moves lead to."""
Cost = tuple[int, int]
"""Offsets proven committed, and all offsets, that an election loses."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What one partition wants of the order."""

    topic: str
    partition: int
    leader: Broker
    """Whom its plan recommends."""
    alone: tuple[Broker, ...]
    """Who must not start before the leader leads, where its election has to be forced, or nothing says who is in sync."""
    by_itself: tuple[Broker, ...]
    """Of whom the first that starts is elected."""
    costs: Mapping[Broker, Cost]
    """What the election of each loses."""

    def leader_under(self, order: Mapping[Broker, int]) -> Broker:
        """Who comes to lead if brokers are started by rising number, each when those before it lead what they can."""
        end = len(order)
        first = order.get(self.leader, end)
        if self.alone and all(first < order.get(broker, end) for broker in self.alone):
            return self.leader
        rivals = self.by_itself or (self.leader, *self.alone)
        return min(rivals, key=lambda broker: order.get(broker, end))

    def cost_under(self, leader: Broker) -> Cost:
        """What it loses under a leader; under one whose costs are not known the most that any would."""
        return self.costs.get(leader) or max(self.costs.values())


@dataclass(frozen=True, slots=True)
class Against:
    """A partition that is led by another than its plan recommends, and loses more for it."""

    wish: Wish
    leader: Broker

    @property
    def more(self) -> Cost:
        """How much more it loses: offsets proven committed, and all."""
        got, wanted = self.wish.cost_under(self.leader), self.wish.cost_under(self.wish.leader)
        return got[0] - wanted[0], got[1] - wanted[1]


@dataclass(frozen=True, slots=True)
class StartOrder:
    """An order for all partitions, and those it is against; none where every partition has its way."""

    brokers: tuple[Broker, ...]
    against: tuple[Against, ...]


def wish_of(given: PlanPartition, plan: Plan, steps: Steps) -> Wish | None:
    """What a partition's plan, with the steps to its recommended leader, wants of the order; None where it does not matter."""
    costs = {one.broker: (one.committed, one.at_most) for one in plan.candidates}
    best = costs.get(steps.leader)
    if best is None or (all(cost == best for cost in costs.values()) and not steps.keep_stopped):
        return None
    anyone = given.control is None or bool(given.control.unclean_enabled)
    by_itself = plan.ordinary if best in [costs.get(broker) for broker in plan.ordinary] and not (anyone or steps.unclean) else ()
    return Wish(plan.topic, plan.partition, steps.leader, () if by_itself else steps.keep_stopped, by_itself, costs)


def start_order(wishes: Iterable[Wish], brokers: Sequence[Broker]) -> StartOrder | None:
    """The order of `brokers` in which all partitions together lose least; None where none of them wants any.

    Work grows with the kinds of wishes, not with the partitions.
    """
    wanted = list(wishes)
    if not wanted or not brokers:
        return None
    kinds = _kinds(wanted)

    def cost(order: Sequence[Broker]) -> Cost:
        places = {broker: place for place, broker in enumerate(order)}
        parts = [costs[wish.leader_under(places)] for wish, costs in kinds]
        return sum(committed for committed, _ in parts), sum(lost for _, lost in parts)

    best = min(permutations(brokers), key=cost) if len(brokers) <= _EXACT else _by_moves(tuple(brokers), cost)
    places = {broker: place for place, broker in enumerate(best)}
    led = ((wish, wish.leader_under(places)) for wish in wanted)
    against = (Against(wish, leader) for wish, leader in led)
    return StartOrder(tuple(best), tuple(one for one in against if one.more > (0, 0)))


def _kinds(wishes: Sequence[Wish]) -> list[tuple[Wish, dict[Broker, Cost]]]:
    """Wishes that are served by the same orders as one, with what all of them lose under each leader."""
    found: dict[tuple[object, ...], tuple[Wish, dict[Broker, Cost]]] = {}
    for wish in wishes:
        possible = {wish.leader, *wish.alone, *wish.by_itself}
        _, costs = found.setdefault((wish.leader, wish.alone, wish.by_itself), (wish, dict.fromkeys(possible, (0, 0))))
        for broker in possible:
            committed, lost = wish.cost_under(broker)
            costs[broker] = costs[broker][0] + committed, costs[broker][1] + lost
    return list(found.values())


def _by_moves(order: tuple[Broker, ...], cost: Callable[[Sequence[Broker]], Cost]) -> tuple[Broker, ...]:
    """An order that no move of one broker to another place makes better."""
    least = cost(order)
    while True:
        better, told = min(((cost(moved), moved) for moved in _moved(order)), key=lambda one: one[0])
        if better >= least:
            return order
        least, order = better, told


def _moved(order: tuple[Broker, ...]) -> Iterator[tuple[Broker, ...]]:
    for place, broker in enumerate(order):
        rest = (*order[:place], *order[place + 1 :])
        yield from ((*rest[:at], broker, *rest[at:]) for at in range(len(order)))
