"""The truth about the final state of a history: every log, what was acknowledged and lost, and the cost of each election.

Logs are compared record by record, by ids. What an election truncates is found by running it on a copy of the cluster.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.json_objects import Json, attributes, object_of
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.simulation.actions import fetch, receive_metadata
from kafka_forensics.simulation.cluster import Batch, Cluster, SimulatedPartition
from kafka_forensics.simulation.control import run_election, start
from kafka_forensics.simulation.history import History, records_text

_EXPECTED: Final = attributes("kind severity topic partition broker offset_start offset_end held_by")
_TRUNCATED: Final = attributes("broker truncation_offset lost records=lost_ids")
_PARTITION: Final = attributes("topic partition=number leader leader_epoch")


class TruncatedLog(NamedTuple):
    """Where a follower truncates, and the offsets `[start, end)` of its records that the leader lacks or has differently."""

    broker: int
    truncation_offset: int
    lost: Ranges
    lost_ids: tuple[int, ...]


class ElectionOutcome(NamedTuple):
    """What the election of `leader` does to every other replica."""

    leader: int
    followers: tuple[TruncatedLog, ...]


def truth(history: History, name: str) -> Json:
    """The document truth.json."""
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
    """Ids of records that were acknowledged to the producer; with acks=0 there is no acknowledgement."""
    return {record_id for record_id, request in cluster.acknowledged.items() if request.acks != 0}


def lost(cluster: Cluster) -> set[int]:
    """Acknowledged records that no replica has."""
    replicas = (replica for partition in cluster.partitions.values() for replica in partition.replicas.values())
    return acknowledged(cluster).difference(*(replica.ids for replica in replicas))


def not_read(history: History) -> set[int]:
    """Acknowledged records that a replica has and no consumer reads, in either isolation level."""
    read = (consumed.read_uncommitted or () for consumed in history.consumed)
    return (acknowledged(history.cluster) - lost(history.cluster)).difference(*read)


def at_the_end(history: History) -> Iterator[str]:
    """What consumers read at the end, and which acknowledged records are missing, in sentences."""
    for (topic, number), read_uncommitted, read_committed in history.consumed:
        if read_uncommitted is None or read_committed is None:
            yield f"{topic}-{number}: it has no leader, so nothing can be read."
            continue
        yield f"{topic}-{number}: read_uncommitted reads {records_text(read_uncommitted)}."
        yield f"{topic}-{number}: read_committed reads {records_text(read_committed)}."
    lost_ids, hidden_ids = sorted(lost(history.cluster)), sorted(not_read(history))
    if lost_ids:
        yield f"Acknowledged, but no longer on any broker: {records_text(lost_ids)}."
    if hidden_ids:
        yield f"Acknowledged, and not read: {records_text(hidden_ids)}."
    if not lost_ids and not hidden_ids:
        yield "No acknowledged record is missing."


def forks(partition: SimulatedPartition) -> dict[tuple[int, int], int]:
    """Pairs of brokers whose logs have different records at an offset → the first such offset."""
    logs = {broker: _records(replica.batches) for broker, replica in sorted(partition.replicas.items())}
    offsets = {}
    for left, right in combinations(logs, 2):
        differing = [offset for offset in logs[left].keys() & logs[right].keys() if logs[left][offset] != logs[right][offset]]
        if differing:
            offsets[left, right] = min(differing)
    return offsets


def elections(cluster: Cluster, topic_partition: TopicPartition) -> Iterator[ElectionOutcome]:
    """The outcome of electing each replica, when all brokers start."""
    for leader in sorted(cluster.partitions[topic_partition].replicas):
        copy = cluster.copy()
        yield _run_election(copy, copy.partitions[topic_partition], leader)


def _run_election(cluster: Cluster, partition: SimulatedPartition, leader: int) -> ElectionOutcome:
    """Start all brokers, `leader` first as the only ISR member; changes the cluster."""
    cluster.paused.clear()
    cluster.dead.update(cluster.brokers)
    cluster.fenced.update(cluster.brokers)
    partition.leader, partition.isr, partition.elr, partition.last_known_leader = -1, frozenset({leader}), frozenset(), None
    logs = {broker: _records(replica.batches) for broker, replica in sorted(partition.replicas.items())}
    start(cluster, leader)
    if partition.leader != leader:
        run_election(cluster, partition, leader=leader, unclean=True)
    leader_log = _records(partition.replicas[leader].batches)
    followers = []
    for broker in sorted(logs.keys() - {leader}):
        # its log end before it copies anything
        ends = [partition.replicas[broker].log_end_offset]
        removed = [*start(cluster, broker), receive_metadata(cluster, partition, broker)]
        removed.append(fetch(cluster, partition, broker, limit=0).truncated)
        ends += [batches.end_offset for batches in removed if batches is not None and batches.broker == broker]
        lost_records = {offset: record for offset, record in logs[broker].items() if leader_log.get(offset) != record}
        lost_ranges = normalised((offset, offset + 1) for offset in lost_records)
        followers.append(TruncatedLog(broker, min(ends), lost_ranges, tuple(record for _, record in lost_records.values())))
    return ElectionOutcome(leader, tuple(followers))


def _partition(history: History, partition: SimulatedPartition) -> Json:
    consumed = next((consumed for consumed in history.consumed if consumed.topic_partition == partition.name), None)
    return {
        **object_of(_PARTITION, partition),
        "isr": sorted(partition.isr),
        "read_uncommitted": None if consumed is None else consumed.read_uncommitted,
        "read_committed": None if consumed is None else consumed.read_committed,
        "forks": [{"brokers": list(pair), "offset": offset} for pair, offset in forks(partition).items()],
        "replicas": [
            {
                "broker": broker,
                "clean_shutdown": broker in history.cluster.stopped_cleanly,
                "log_end_offset": replica.log_end_offset,
                "high_watermark": replica.checkpointed,
                "leader_epochs": [[entry.leader_epoch, entry.start_offset] for entry in replica.epochs],
                "batches": [_batch(batch) for batch in replica.batches],
            }
            for broker, replica in sorted(partition.replicas.items())
        ],
        "elections": [
            {"leader": outcome.leader, "followers": [object_of(_TRUNCATED, truncated) for truncated in outcome.followers]}
            for outcome in elections(history.cluster, partition.name)
        ],
    }


def _batch(batch: Batch) -> Json:
    return {**object_of(attributes("base_offset leader_epoch marker"), batch), "records": [] if batch.marker else list(batch.ids)}


def _records(batches: list[Batch]) -> dict[int, tuple[int, int]]:
    """Offset → (leader epoch, id)."""
    return {
        offset: (batch.leader_epoch, record_id)
        for batch in batches
        for offset, record_id in enumerate(batch.ids, batch.base_offset)
    }
