"""Partitions as a plan is given them, in few words."""

from collections.abc import Mapping

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.offset_ranges import Ranges
from kafka_forensics.replication.planner.plans import Candidate, Plan, PlanControl, PlanPartition, PlanReplica


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    """(leader epoch, start offset) each."""
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)


def replica(broker: int, end: int, *epochs: tuple[int, int], hw: int | None = None, start: int = 0) -> PlanReplica:
    """A replica whose checkpoint says what its batches say; without epochs it has no checkpoint."""
    return PlanReplica(broker, start, end, hw, entries(*epochs), entries(*epochs) if epochs else None)


def partition(
    *replicas: PlanReplica, differing: Mapping[tuple[int, int], Ranges] | None = None, control: PlanControl | None = None
) -> PlanPartition:
    """Replicas of audit-0."""
    return PlanPartition("audit", 0, replicas, differing or {}, control)


def by_broker(plan: Plan) -> dict[int | str, Candidate]:
    """Its candidates by broker."""
    return {candidate.broker: candidate for candidate in plan.candidates}
