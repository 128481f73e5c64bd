"""Plans of very many partitions from their summaries, without reading logs."""

import gc
import time
from typing import Final

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.planner import PlanControl, PlanPartition, PlanReplica, plan_partition

EPOCHS: Final = (EpochEntry(0, 0), EpochEntry(3, 500), EpochEntry(7, 900))
OBJECTS_BETWEEN_COLLECTIONS: Final = 20_000
"""The setting of the command line."""
CONTROL: Final = PlanControl(1, 7, 9, (1, 2, 3), (), (2, 3, 1))


def _replica(broker: int, end: int, epochs: tuple[EpochEntry, ...]) -> PlanReplica:
    return PlanReplica(broker, 0, end, min(end, 990), epochs, epochs)


def _partition(*, forked: bool) -> PlanPartition:
    """Three replicas: equal, or each with a different leader epoch from offset 950 on."""
    if not forked:
        return PlanPartition("t", 0, [_replica(broker, 1000, EPOCHS) for broker in (1, 2, 3)], {}, CONTROL)
    forked_replicas = [_replica(broker, 1000 + broker, (*EPOCHS, EpochEntry(7 + broker, 950))) for broker in (1, 2, 3)]
    differing = {pair: ((950, 1001 + min(pair)),) for pair in ((0, 1), (0, 2), (1, 2))}
    return PlanPartition("t", 0, forked_replicas, differing, CONTROL)


def seconds(count: int, *, forked_of_20: int) -> float:
    """The least of three times to plan `count` partitions of three replicas, of which `forked_of_20` in 20 are forked."""
    partitions = [_partition(forked=number % 20 < forked_of_20) for number in range(count)]
    thresholds = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        plans = [plan_partition(partition) for partition in partitions]
        best = min(best, time.perf_counter() - begin)
        del plans
    gc.set_threshold(*thresholds)
    return best


def many_plans(count: int) -> None:
    """Print the time of plans with one forked partition in 20, and with all forked."""
    some, every = (seconds(count, forked_of_20=forked) for forked in (1, 20))
    print(f"{count:,} partitions x 3 replicas planned from summaries: {some:.2f} s with 5 % forked, {every:.2f} s with all forked")
