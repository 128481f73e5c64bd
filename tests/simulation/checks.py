"""Compares the planner on simulated histories with record ids and with simulated elections."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.planner import planner
from kafka_forensics.replication.planner.plans import Candidate, Plan, PlanPartition, PlanReplica
from kafka_forensics.simulation.cluster import Batch, Cluster, SimulatedPartition, SimulatedReplica
from kafka_forensics.simulation.truth import elections
from tests.simulation import record_ids
from tests.simulation.random_histories import RandomHistory
from tests.simulation.record_ids import Cut, Log


def logs_of(partition: SimulatedPartition) -> dict[int, Log]:
    """Every replica's log as (leader epoch, id), by broker."""
    return {
        broker: [(batch.leader_epoch, record_id) for batch in replica.batches for record_id in batch.ids]
        for broker, replica in sorted(partition.replicas.items())
    }


def acknowledged_of(cluster: Cluster, partition: SimulatedPartition) -> set[int]:
    """Ids of records that were acknowledged to the producer; with acks=0 there is no acknowledgement."""
    acknowledged = cluster.acknowledged.items()
    return {number for number, request in acknowledged if request.acks != 0 and request.topic_partition == partition.name}


def plan_partition_of(cluster: Cluster, partition: SimulatedPartition, logs: Mapping[int, Log]) -> PlanPartition:
    """The planner's input that a scan of the log directories would give."""
    replicas = [_replica(cluster, replica) for _, replica in sorted(partition.replicas.items())]
    pairs = combinations(enumerate(logs.values()), 2)
    differing = {(i, j): record_ids.differing(log, other, from_end=False) for (i, log), (j, other) in pairs}
    return PlanPartition(
        partition.topic, partition.number, replicas, {pair: ranges for pair, ranges in differing.items() if ranges}
    )


def _replica(cluster: Cluster, replica: SimulatedReplica) -> PlanReplica:
    clean = replica.broker in cluster.stopped_cleanly
    checkpoint = None
    if cluster.has_leader_epochs:
        runs = [(batch.leader_epoch, batch.base_offset, batch.end_offset) for batch in replica.batches]
        checkpoint = tuple(replica.epochs) if clean else planner.recovered_epochs(replica.epochs, runs, 0)
    return PlanReplica(
        replica.broker,
        0,
        replica.log_end_offset,
        replica.checkpointed,
        tuple(_epochs(replica.batches)) if cluster.has_leader_epochs else (),
        checkpoint,
        ((0, replica.log_end_offset),) if replica.log_end_offset else (),
        crashed=not clean,
    )


def _epochs(batches: list[Batch]) -> Iterator[EpochEntry]:
    latest = -1
    for batch in batches:
        if batch.leader_epoch != latest:
            latest = batch.leader_epoch
            yield EpochEntry(latest, batch.base_offset)


def disagreements(history: RandomHistory, counted: Counter[str]) -> Iterator[str]:
    """Disagreements between planner, simulated elections and record ids."""
    cluster = history.cluster
    for partition in cluster.partitions.values():
        logs = logs_of(partition)
        lost_everywhere = record_ids.lost(acknowledged_of(cluster, partition), logs.values())
        counted["partitions"] += 1
        counted["forked"] += bool(record_ids.forks(logs))
        counted["lost without a trace"] += bool(lost_everywhere)
        plan = planner.plan_partition(plan_partition_of(cluster, partition, logs))
        yield from planned_disagreements(cluster, partition, logs, plan, counted)
        if history.is_gentle:
            yield from _missing_on_isr(cluster, partition, logs)


def unfenced(cluster: Cluster, logs: Mapping[int, Log]) -> bool:
    """Whether logs agree again after a fork, as they may without fencing of fetches (before KIP-320).

    A follower that does not know a leader's new epoch copies its records without truncation; then epochs do not show the fork.
    """
    return cluster.has_leader_epochs and not cluster.fences_fetches and record_ids.agree_again(logs)


def planned_disagreements(
    cluster: Cluster, partition: SimulatedPartition, logs: Mapping[int, Log], plan: Plan, counted: Counter[str] | None = None
) -> Iterator[str]:
    """Compares simulated and planned elections with the record ids: where followers truncate, and what is lost.

    Where epochs do not show forks (`unfenced`), the simulated elections decide.
    """
    acknowledged = acknowledged_of(cluster, partition)
    lost_everywhere = record_ids.lost(acknowledged, logs.values())
    candidates = {candidate.broker: candidate for candidate in plan.candidates}
    for outcome in elections(cluster, partition.name):
        truth = record_ids.cuts(logs, outcome.leader)
        if not cluster.has_leader_epochs:
            truth = {broker: _by_high_watermark(partition, broker, outcome.leader, cut) for broker, cut in truth.items()}
        if unfenced(cluster, logs):
            truth = {
                truncation.broker: Cut(truncation.truncation_offset, truth[truncation.broker].lost)
                for truncation in outcome.followers
            }
        seen = {truncation.broker: Cut(truncation.truncation_offset, truncation.lost) for truncation in outcome.followers}
        if seen != truth:
            yield f"broker {outcome.leader} leads {partition.name}: followers do {seen}, ids say {truth}"
        candidate = candidates[outcome.leader]
        planned = {
            follower_plan.broker: (follower_plan.truncation_offset, follower_plan.lost) for follower_plan in candidate.followers
        }
        if planned != truth:
            yield f"broker {outcome.leader} leads {partition.name}: planned is {planned}, ids say {truth}"
        lost = record_ids.lost(acknowledged - lost_everywhere, [logs[outcome.leader]])
        losing = _losing(candidate, logs) & acknowledged - record_ids.ids_of([logs[outcome.leader]])
        if counted is not None:
            counted["costly elections"] += bool(lost)
        if losing != lost:
            yield f"broker {outcome.leader} leads {partition.name}: planned to lose {losing}, lost is {lost}"


def _losing(candidate: Candidate, logs: Mapping[int, Log]) -> set[int]:
    """Ids of the losses of an election; the log of the first holder has the records of a version."""
    return {
        record
        for loss in candidate.losses
        for record in record_ids.at_offsets(logs[int(loss.held_by[0])], [(loss.start, loss.end)])
    }


def _by_high_watermark(partition: SimulatedPartition, broker: int, leader: int, truth: Cut) -> Cut:
    """A follower of Kafka 0.10 truncates to its checkpointed high watermark and to the leader's log end, without a comparison."""
    replica = partition.replicas[broker]
    end = min(replica.checkpointed, replica.log_end_offset, partition.replicas[leader].log_end_offset)
    return Cut(end, truth.lost)


def _missing_on_isr(cluster: Cluster, partition: SimulatedPartition, logs: Mapping[int, Log]) -> Iterator[str]:
    """Records acknowledged with acks=all that an ISR member lacks, in a history that cannot lose any."""
    acknowledged = cluster.acknowledged.items()
    acknowledged_by_isr = {
        number for number, request in acknowledged if request.acks < 0 and request.topic_partition == partition.name
    }
    for broker in sorted(partition.isr):
        missing = record_ids.lost(acknowledged_by_isr, [logs[broker]])
        if missing:
            yield f"broker {broker} is in sync in {partition.name} and lacks {missing}"
