"""Partitions as a plan is given them, in few words, and the law that binds a plan and a scan."""

from collections.abc import Iterator, Mapping

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.offset_ranges import Ranges
from kafka_forensics.questions.plan import Plans
from kafka_forensics.replication.planner.plans import PlanControl, PlanPartition, PlanReplica


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)


def replica(broker: int, end: int, *epochs: tuple[int, int], hw: int | None = None, start: int = 0) -> PlanReplica:
    """A replica whose checkpoint says what its batches say; without epochs it has no checkpoint."""
    return PlanReplica(broker, start, end, hw, entries(*epochs), entries(*epochs) if epochs else None)


def partition(
    *replicas: PlanReplica, differing: Mapping[tuple[int, int], Ranges] | None = None, control: PlanControl | None = None
) -> PlanPartition:
    return PlanPartition("audit", 0, replicas, differing or {}, control)


def lagging(control: PlanControl | None, ends: tuple[int, ...] = (200, 600, 600), topic: str = "clicks") -> PlanPartition:
    """Replicas of one epoch that end at `ends`; each knows of all that it holds that it is committed."""
    replicas = [replica(broker, end, (0, 0), hw=end) for broker, end in enumerate(ends, 1)]
    return PlanPartition(topic, 0, replicas, {}, control)


def broken_laws(plans: Plans) -> Iterator[str]:
    """Partitions of which the plan foretells a loss by an ordinary start, and the scan it was made from no error."""
    assert plans.result is not None
    worst: dict[tuple[str, int], int] = {}
    for finding in plans.result.findings:
        if finding.place.topic is not None and finding.place.partition is not None:
            key = (finding.place.topic, finding.place.partition)
            worst[key] = max(worst.get(key, 0), finding.severity.rank)
    for planned in plans.planned:
        plan = planned.plan
        if plan.ordinary_loss and worst.get((plan.topic, plan.partition), 0) < Severity.ERROR.rank:
            yield f"{plan.topic}-{plan.partition}: an ordinary start loses {plan.ordinary_loss} under one of {plan.ordinary}"
