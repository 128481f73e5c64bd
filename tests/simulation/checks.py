"""The planner on simulated histories: fed from a cluster's state, held to records' ids and to elections as they are played."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.planner import planner
from kafka_forensics.replication.planner.plans import Candidate, Plan, PlanPartition, PlanReplica
from kafka_forensics.simulation.cluster import Batch, Cluster, Partition, SimulatedReplica
from kafka_forensics.simulation.truth import elections
from tests.simulation import truth as told
from tests.simulation.random_histories import RandomHistory
from tests.simulation.truth import Cut, Log


def logs_of(partition: Partition) -> dict[int, Log]:
    """Every replica's log by leader epoch and id, in the order of the brokers."""
    return {
        broker: [(batch.leader_epoch, one) for batch in replica.batches for one in batch.ids]
        for broker, replica in sorted(partition.replicas.items())
    }


def acknowledged_of(cluster: Cluster, partition: Partition) -> set[int]:
    """Ids of records whose producer was told that all is well; acks=0 is told nothing."""
    return {one for one, sent in cluster.acknowledged.items() if sent.acks != 0 and sent.topic_partition == partition.name}


def plan_partition_of(cluster: Cluster, partition: Partition, logs: Mapping[int, Log]) -> PlanPartition:
    """What a scan of the directories would give the planner, worked out without any."""
    replicas = [_replica(cluster, replica) for _, replica in sorted(partition.replicas.items())]
    apart = {}
    for (i, ours), (j, theirs) in combinations(enumerate(logs.values()), 2):
        ranges = told.differing(ours, theirs, from_end=False)
        if ranges:
            apart[i, j] = ranges
    return PlanPartition(partition.topic, partition.number, replicas, apart)


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


def wrongs(history: RandomHistory, counted: Counter[str]) -> Iterator[str]:
    """Everything in which the planner, the elections played and the ids disagree; nothing if all is well."""
    cluster = history.cluster
    for partition in cluster.partitions.values():
        logs = logs_of(partition)
        everywhere = told.lost(acknowledged_of(cluster, partition), logs.values())
        counted["partitions"] += 1
        counted["forked"] += bool(told.forks(logs))
        counted["lost without a trace"] += bool(everywhere)
        plan = planner.plan_partition(plan_partition_of(cluster, partition, logs))
        yield from planned_wrongs(cluster, partition, logs, plan, counted)
        if history.is_gentle:
            yield from _broken_promises(cluster, partition, logs)


def unfenced(cluster: Cluster, logs: Mapping[int, Log]) -> bool:
    """Whether logs agree again behind a fork, as they may where fetches are not fenced (before KIP-320).

    A follower that has not heard of a leader's new epoch takes its records without cutting, and epochs say no more where logs part.
    """
    return cluster.has_leader_epochs and not cluster.fences_fetches and told.agree_again(logs)


def planned_wrongs(
    cluster: Cluster, partition: Partition, logs: Mapping[int, Log], plan: Plan, counted: Counter[str] | None = None
) -> Iterator[str]:
    """Every election as it is played and as it is planned, against the ids: where followers cut, and what is lost.

    Where epochs cannot tell where logs part (`unfenced`), plans are held to what brokers do.
    """
    acknowledged = acknowledged_of(cluster, partition)
    everywhere = told.lost(acknowledged, logs.values())
    candidates = {one.broker: one for one in plan.candidates}
    for played in elections(cluster, partition.name):
        truth = told.cuts(logs, played.leader)
        if not cluster.has_leader_epochs:
            truth = {one: _by_high_watermark(partition, one, played.leader, cut) for one, cut in truth.items()}
        if unfenced(cluster, logs):
            truth = {
                truncation.broker: Cut(truncation.truncation_offset, truth[truncation.broker].lost)
                for truncation in played.followers
            }
        seen = {truncation.broker: Cut(truncation.truncation_offset, truncation.lost) for truncation in played.followers}
        if seen != truth:
            yield f"broker {played.leader} leads {partition.name}: followers do {seen}, ids say {truth}"
        candidate = candidates[played.leader]
        planned = {
            follower_plan.broker: (follower_plan.truncation_offset, follower_plan.lost) for follower_plan in candidate.followers
        }
        if planned != truth:
            yield f"broker {played.leader} leads {partition.name}: planned is {planned}, ids say {truth}"
        gone = told.lost(acknowledged - everywhere, [logs[played.leader]])
        losing = _losing(candidate, logs) & acknowledged - told.left([logs[played.leader]])
        if counted is not None:
            counted["costly elections"] += bool(gone)
        if losing != gone:
            yield f"broker {played.leader} leads {partition.name}: planned to lose {losing}, lost is {gone}"


def _losing(candidate: Candidate, logs: Mapping[int, Log]) -> set[int]:
    """Ids of the losses of an election, each version by the log of its first holder."""
    return {record for loss in candidate.losses for record in told.at_offsets(logs[int(loss.held_by[0])], [(loss.start, loss.end)])}


def _by_high_watermark(partition: Partition, broker: int, leader: int, truth: Cut) -> Cut:
    """Kafka 0.10 compares nothing: a follower cuts to its checkpointed watermark and to the leader's end, whatever lies below."""
    replica = partition.replicas[broker]
    end = min(replica.checkpointed, replica.log_end_offset, partition.replicas[leader].log_end_offset)
    return Cut(end, truth.lost)


def _broken_promises(cluster: Cluster, partition: Partition, logs: Mapping[int, Log]) -> Iterator[str]:
    """Records acknowledged with acks=all that a member of the ISR lacks, where nothing happened that may cost them."""
    promised = {
        one for one, sent in cluster.acknowledged.items() if sent.acks < 0 and sent.topic_partition == partition.name and one >= 0
    }
    for broker in sorted(partition.isr):
        missing = told.lost(promised, [logs[broker]])
        if missing:
            yield f"broker {broker} is in sync in {partition.name} and lacks {missing}"
