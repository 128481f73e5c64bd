"""Builds partitions as input of a plan, and checks a plan against the scan it was made from."""

from collections.abc import Iterator, Mapping

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.offset_ranges import Ranges
from kafka_forensics.questions.plan import Plans
from kafka_forensics.replication.planner.plans import PlanControl, PlanPartition, PlanReplica


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)


def replica(broker: int, end: int, *epochs: tuple[int, int], hw: int | None = None, start: int = 0) -> PlanReplica:
    """A replica whose leader-epoch checkpoint agrees with its batches; without epochs it has no checkpoint."""
    return PlanReplica(broker, start, end, hw, entries(*epochs), entries(*epochs) if epochs else None)


def partition(
    *replicas: PlanReplica, differing: Mapping[tuple[int, int], Ranges] | None = None, control: PlanControl | None = None
) -> PlanPartition:
    return PlanPartition("audit", 0, replicas, differing or {}, control)


def lagging(control: PlanControl | None, ends: tuple[int, ...] = (200, 600, 600), topic: str = "clicks") -> PlanPartition:
    """Replicas of one epoch that end at `ends`; the high watermark of each is its log end."""
    replicas = [replica(broker, end, (0, 0), hw=end) for broker, end in enumerate(ends, 1)]
    return PlanPartition(topic, 0, replicas, {}, control)


def unreported_losses(plans: Plans) -> Iterator[str]:
    """Partitions where the plan forecasts a loss by an ordinary start but the scan reports no error."""
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
