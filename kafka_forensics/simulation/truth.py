"""What a simulator knows of the end of a history: every log by record, what was acknowledged, what is lost, what elections cost.

Logs are compared record by record, by ids; what an election would cut is found by holding it on a copy of the cluster.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.json_objects import Json, attributes, object_of
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.simulation.actions import DroppedBatches, fetch, hear
from kafka_forensics.simulation.cluster import Batch, Cluster, Partition, SimulatedReplica
from kafka_forensics.simulation.control import run_election, start
from kafka_forensics.simulation.history import History, named

_EXPECTED: Final = attributes("kind severity topic partition broker offset_start offset_end held_by")
_TRUNCATED: Final = attributes("broker truncation_offset lost records=lost_ids")


class TruncatedLog(NamedTuple):
    """Where a follower cut its log, and offsets `[start, end)` of what it held and the leader lacks or has differently."""

    broker: int
    truncation_offset: int
    lost: Ranges
    lost_ids: tuple[int, ...]


class ElectionOutcome(NamedTuple):
    """An election of `leader`, played to its end."""

    leader: int
    followers: tuple[TruncatedLog, ...]


def truth(history: History, name: str) -> Json:
    """All of it, as JSON knows it."""
    cluster = history.cluster
    return {
        "scenario": name,
        "protocol": cluster.protocol,
        "steps": [{"step": event.step, "after_ms": event.after_ms, "what": event.text} for event in history.events],
        "acknowledged": sorted(acknowledged(cluster)),
        "lost": sorted(lost(cluster)),
        "partitions": [_partition(history, partition) for partition in cluster.partitions.values()],
        "findings": [object_of(_EXPECTED, expected) for expected in history.expected],
        "remarks": history.remarks,
    }


def acknowledged(cluster: Cluster) -> set[int]:
    """Ids of records whose producer was told that all is well; acks=0 is told nothing."""
    return {record_id for record_id, sent in cluster.acknowledged.items() if sent.acks != 0}


def lost(cluster: Cluster) -> set[int]:
    """Acknowledged records that no replica holds."""
    left = {
        record_id
        for partition in cluster.partitions.values()
        for replica in partition.replicas.values()
        for record_id in replica.ids
    }
    return acknowledged(cluster) - left


def not_read(history: History) -> set[int]:
    """Acknowledged records that a replica holds, and that no consumer reads, whatever transactions say."""
    shown = {record_id for reading in history.readings for record_id in reading.read_uncommitted or ()}
    return acknowledged(history.cluster) - lost(history.cluster) - shown


def at_the_end(history: History) -> Iterator[str]:
    """What consumers read at the end, and which acknowledged records are missing, in sentences."""
    for reading in history.readings:
        where = f"{reading.topic_partition[0]}-{reading.topic_partition[1]}"
        if reading.read_uncommitted is None or reading.read_committed is None:
            yield f"{where}: nobody leads, so nothing can be read."
            continue
        yield f"{where}: read_uncommitted reads {named(reading.read_uncommitted)}."
        yield f"{where}: read_committed reads {named(reading.read_committed)}."
    gone, hidden = sorted(lost(history.cluster)), sorted(not_read(history))
    if gone:
        yield f"Acknowledged, and on no broker any more: {named(gone)}."
    if hidden:
        yield f"Acknowledged, and not read: {named(hidden)}."
    if not gone and not hidden:
        yield "No acknowledged record is missing."


def forks(partition: Partition) -> dict[tuple[int, int], int]:
    """Pairs of brokers whose logs differ, and the first offset at which they do; one that is shorter does not differ."""
    brokers = sorted(partition.replicas)
    offsets = {}
    for number, left in enumerate(brokers):
        for right in brokers[number + 1 :]:
            ours, theirs = (_by_offset(partition.replicas[broker]) for broker in (left, right))
            at = next((offset for offset in sorted(ours.keys() & theirs.keys()) if ours[offset] != theirs[offset]), None)
            if at is not None:
                offsets[left, right] = at
    return offsets


def elections(cluster: Cluster, where: TopicPartition) -> Iterator[ElectionOutcome]:
    """What becomes of all replicas under each of them as the leader, all brokers up."""
    for leader in sorted(cluster.partitions[where].replicas):
        yield _elected(cluster.copy(), where, leader)


def _elected(world: Cluster, where: TopicPartition, leader: int) -> ElectionOutcome:
    partition = world.partitions[where]
    world.frozen.clear()
    world.dead.update(world.brokers)
    world.fenced.update(world.brokers)
    partition.leader, partition.isr, partition.elr, partition.last_known_leader = -1, frozenset({leader}), frozenset(), None
    logs = {broker: list(replica.batches) for broker, replica in partition.replicas.items()}
    start(world, leader)
    if partition.leader != leader:
        run_election(world, partition, leader=leader, unclean=True)
    done = []
    kept = _by_offset(partition.replicas[leader])
    for broker in sorted(partition.replicas):
        if broker == leader:
            continue
        end = _follow(world, partition, broker)
        gone = [(offset, record) for offset, record in _offsets(logs[broker]) if kept.get(offset) != record]
        lost = normalised((offset, offset + 1) for offset, _ in gone)
        done.append(TruncatedLog(broker, end, lost, tuple(record for _, (_, record) in gone)))
    return ElectionOutcome(leader, tuple(done))


def _follow(world: Cluster, partition: Partition, broker: int) -> int:
    """Where a broker that starts under the new leader has its log end before it copies anything."""
    replica = partition.replicas[broker]
    before = replica.log_end_offset
    cuts = [*start(world, broker), hear(world, partition, broker)]
    done = fetch(world, partition, broker, limit=0)
    ends = [cut.end_offset for cut in [*cuts, done.cut] if isinstance(cut, DroppedBatches) and cut.broker == broker]
    return min([before, *ends])


def _partition(history: History, partition: Partition) -> Json:
    reading = next((reading for reading in history.readings if reading.topic_partition == partition.name), None)
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": sorted(partition.isr),
        "read_uncommitted": None if reading is None else reading.read_uncommitted,
        "read_committed": None if reading is None else reading.read_committed,
        "forks": [{"brokers": list(pair), "offset": offset} for pair, offset in forks(partition).items()],
        "replicas": [_replica(replica, history.cluster) for _, replica in sorted(partition.replicas.items())],
        "elections": [
            {
                "leader": outcome.leader,
                "followers": [object_of(_TRUNCATED, truncated) for truncated in outcome.followers],
            }
            for outcome in elections(history.cluster, partition.name)
        ],
    }


def _replica(replica: SimulatedReplica, cluster: Cluster) -> Json:
    return {
        "broker": replica.broker,
        "clean_shutdown": replica.broker in cluster.clean,
        "log_end_offset": replica.log_end_offset,
        "high_watermark": replica.checkpointed,
        "leader_epochs": [[entry.leader_epoch, entry.start_offset] for entry in replica.epochs],
        "batches": [
            {**object_of(attributes("base_offset leader_epoch marker"), batch), "records": [] if batch.marker else list(batch.ids)}
            for batch in replica.batches
        ],
    }


def _by_offset(replica: SimulatedReplica) -> dict[int, tuple[int, int]]:
    """Offset → (leader epoch, id)."""
    return dict(_offsets(replica.batches))


def _offsets(batches: list[Batch]) -> Iterator[tuple[int, tuple[int, int]]]:
    for batch in batches:
        for offset, record_id in enumerate(batch.ids, batch.base_offset):
            yield offset, (batch.leader_epoch, record_id)
