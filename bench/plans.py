"""Plans of very many partitions from their summaries, without reading any log."""

import gc
import time
from typing import Final

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.planner import PlanControl, PlanPartition, PlanReplica, plan_partition

EPOCHS: Final = (EpochEntry(0, 0), EpochEntry(3, 500), EpochEntry(7, 900))
OBJECTS_BETWEEN_COLLECTIONS: Final = 20_000
"""What the command line sets, too."""
CONTROL: Final = PlanControl(1, 7, 9, (1, 2, 3), (), (2, 3, 1))


def _replica(broker: int, end: int, epochs: tuple[EpochEntry, ...]) -> PlanReplica:
    return PlanReplica(broker, 0, end, min(end, 990), epochs, epochs)


def _partition(*, forked: bool) -> PlanPartition:
    """Three replicas: alike, or each with a leader epoch of its own behind offset 900."""
    if not forked:
        return PlanPartition("t", 0, [_replica(broker, 1000, EPOCHS) for broker in (1, 2, 3)], {}, CONTROL)
    own = [_replica(broker, 1000 + broker, (*EPOCHS, EpochEntry(7 + broker, 950))) for broker in (1, 2, 3)]
    apart = {pair: ((950, 1001 + min(pair)),) for pair in ((0, 1), (0, 2), (1, 2))}
    return PlanPartition("t", 0, own, apart, CONTROL)


def seconds(count: int, *, forked_of_20: int) -> float:
    """The least of three times, of so many partitions of three replicas, of which so many of 20 are forked."""
    given = [_partition(forked=number % 20 < forked_of_20) for number in range(count)]
    thresholds = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        plans = [plan_partition(partition) for partition in given]
        best = min(best, time.perf_counter() - began)
        del plans
    gc.set_threshold(*thresholds)
    return best


def many_plans(count: int) -> None:
    """Print how long plans take where one partition of 20 is forked, and where all are."""
    some, every = (seconds(count, forked_of_20=forked) for forked in (1, 20))
    print(f"{count:,} partitions x 3 replicas planned from summaries: {some:.2f} s with 5 % forked, {every:.2f} s with all forked")
