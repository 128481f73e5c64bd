"""Writes the state of a simulated cluster as log directories: one for each broker, and the controller's if the cluster uses KRaft.

The files are those of a copy made at that moment. A broker that runs or died uncleanly has its last checkpointed high watermarks,
no clean-shutdown file, and the recovery point of its last flush.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kafka_forensics.model.constants import MAX_SEQUENCE, TRANSACTION_STATE_TOPIC
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.model.json_objects import Json, attributes, object_of
from kafka_forensics.parsers.internal_topics import write_metadata_record
from kafka_forensics.parsers.log import write_control_value
from kafka_forensics.simulation.cluster import (
    ABORT,
    START_MS,
    Batch,
    Cluster,
    PartitionChange,
    SimulatedPartition,
    SimulatedReplica,
)
from kafka_forensics.simulation.transactions import Coordinator
from kafka_forensics.writers.batches import (
    RecordToWrite,
    write_batch,
    write_control_key,
    write_legacy_entry,
    write_marker,
    write_transaction_log_key,
    write_transaction_log_value,
)
from kafka_forensics.writers.files import (
    write_clean_shutdown,
    write_leader_epochs,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
    write_producer_snapshot,
    write_transaction_index,
)

CONTROLLER: Final = 100
"""Node id of the controller, which is not a broker."""
CLUSTER_ID: Final = "c2ltdWxhdGVkLWNsdXN0ZQ"
_LEADER_CHANGE: Final = 2
_TOPIC, _PARTITION, _CONFIG, _CHANGE, _FEATURE, _NO_OP = 2, 3, 4, 5, 12, 20
_TOPIC_RESOURCE: Final = 2
"""Resource type of a topic's configuration."""
_FIRST_SEGMENT: Final = f"{0:020d}"
_BROKER_EPOCH: Final = 7


def materialise(cluster: Cluster, root: Path, coordinator: Coordinator | None = None) -> list[Path]:
    """Write `broker-N` for each broker, and `controller-100`, below the existing directory `root`; returns their paths."""
    log_dirs = []
    for broker in cluster.brokers:
        log_dirs.append(root / f"broker-{broker}")
        log_dirs[-1].mkdir()
        _write_broker(cluster, broker, log_dirs[-1], coordinator)
    if cluster.fences_fetches:
        log_dirs.append(root / f"controller-{CONTROLLER}")
        _write_controller(cluster, log_dirs[-1], coordinator)
    return log_dirs


def topic_id(topic: str) -> str:
    """The topic id as 22 characters of base64url; it follows from the name."""
    return urlsafe_b64encode(sha256(topic.encode()).digest()[:16]).decode().rstrip("=").replace("-", "A").replace("_", "B")


def _write_segment(directory: Path, log: bytes) -> None:
    directory.mkdir()
    for suffix, content in (("log", log), ("index", b""), ("timeindex", b"")):
        (directory / f"{_FIRST_SEGMENT}.{suffix}").write_bytes(content)


# A broker's log directory.


def _write_broker(cluster: Cluster, broker: int, log_dir: Path, coordinator: Coordinator | None) -> None:
    offsets: dict[str, dict[tuple[str, int], int]] = {"replication": {}, "recovery-point": {}, "log-start": {}}
    clean = broker in cluster.stopped_cleanly
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is None:
            continue
        directory = log_dir / f"{partition.topic}-{partition.number}"
        _write_replica(cluster, replica, directory, clean=clean)
        if cluster.fences_fetches:
            (directory / "partition.metadata").write_bytes(write_partition_metadata(topic_id(partition.topic)))
        for name, offset in zip(offsets, (replica.checkpointed, replica.flushed_end, 0), strict=True):
            offsets[name][partition.name] = offset
    if coordinator is not None:
        _write_transaction_state(cluster, log_dir, coordinator, clean=clean)
        for name in offsets:
            offsets[name][TRANSACTION_STATE_TOPIC, 0] = 0 if name == "log-start" else len(coordinator.log)
    if not cluster.has_leader_epochs:
        del offsets["log-start"]
    for name, entries in {**offsets, "cleaner": {}}.items():
        (log_dir / f"{name}-offset-checkpoint").write_bytes(write_offset_checkpoint(entries))
    identity = {"cluster_id": CLUSTER_ID} if cluster.fences_fetches else {"version": 0}
    (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, **identity))
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_bytes(write_clean_shutdown(_BROKER_EPOCH if cluster.fences_fetches else None))


def _write_replica(cluster: Cluster, replica: SimulatedReplica, directory: Path, *, clean: bool) -> None:
    """A partition directory with one segment, of format 1 without epochs for brokers of Kafka 0.10, else of format 2."""
    write = _batch if cluster.has_leader_epochs else _legacy_batch
    _write_segment(directory, b"".join(map(write, replica.batches)))
    if not cluster.has_leader_epochs:
        return
    producers, aborted = producer_state(replica.batches)
    if aborted:
        (directory / f"{_FIRST_SEGMENT}.txnindex").write_bytes(write_transaction_index(aborted))
    if clean:
        (directory / f"{replica.log_end_offset:020d}.snapshot").write_bytes(write_producer_snapshot(producers))
    (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs(replica.epochs))


def _write_transaction_state(cluster: Cluster, log_dir: Path, coordinator: Coordinator, *, clean: bool) -> None:
    """A complete copy of the coordinator's log, a record in each batch."""
    directory = log_dir / f"{TRANSACTION_STATE_TOPIC}-0"
    batches = (
        write_batch(
            [RecordToWrite(write_transaction_log_key(transactional_id), write_transaction_log_value(state))],
            base_offset=offset,
            base_timestamp=timestamp_ms,
        )
        for offset, (timestamp_ms, transactional_id, state) in enumerate(coordinator.log)
    )
    _write_segment(directory, b"".join(batches))
    if clean:
        (directory / f"{len(coordinator.log):020d}.snapshot").write_bytes(write_producer_snapshot([]))
    (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(0, 0)] if coordinator.log else []))
    if cluster.fences_fetches:
        (directory / "partition.metadata").write_bytes(write_partition_metadata(topic_id(TRANSACTION_STATE_TOPIC)))


def _batch(batch: Batch) -> bytes:
    header = object_of(attributes("base_offset partition_leader_epoch=leader_epoch producer_id producer_epoch"), batch)
    if batch.marker is not None:
        commit = batch.marker == "COMMIT"
        return write_marker(commit, coordinator_epoch=batch.coordinator_epoch, timestamp=batch.timestamp_ms, **header)
    return write_batch(
        [RecordToWrite(*_key_and_value(record_id)) for record_id in batch.ids],
        base_timestamp=batch.timestamp_ms,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        **header,
    )


def _legacy_batch(batch: Batch) -> bytes:
    return b"".join(
        write_legacy_entry(*_key_and_value(record_id), offset=offset, magic=1, timestamp=batch.timestamp_ms)
        for offset, record_id in enumerate(batch.ids, batch.base_offset)
    )


def _key_and_value(record_id: int) -> tuple[bytes, bytes]:
    return f"key-{record_id}".encode(), f"r{record_id}".encode()


def producer_state(batches: Iterable[Batch]) -> tuple[list[ProducerEntry], list[AbortedTxn]]:
    """The producers at the end of a log, as its snapshot lists them, and its aborted transactions (ProducerStateManager)."""
    producers: dict[int, ProducerEntry] = {}
    aborted: list[AbortedTxn] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        before = producers.get(batch.producer_id)
        first_offset = -1 if before is None else before.current_txn_first_offset
        if batch.marker is None:
            producers[batch.producer_id] = ProducerEntry(
                batch.producer_id,
                batch.producer_epoch,
                (batch.base_sequence + len(batch.ids) - 1) & MAX_SEQUENCE,
                batch.end_offset - 1,
                len(batch.ids) - 1,
                batch.timestamp_ms,
                -1 if before is None else before.coordinator_epoch,
                batch.base_offset if batch.is_transactional and first_offset < 0 else first_offset,
            )
            continue
        if before is None or before.producer_epoch != batch.producer_epoch:  # no data was written in the marker's epoch
            before = ProducerEntry(batch.producer_id, batch.producer_epoch, -1, -1, 0, -1, -1, -1)
        producers[batch.producer_id] = replace(
            before, timestamp=batch.timestamp_ms, coordinator_epoch=batch.coordinator_epoch, current_txn_first_offset=-1
        )
        if batch.marker == ABORT and first_offset >= 0:
            still_open = [entry.current_txn_first_offset for entry in producers.values() if entry.current_txn_first_offset >= 0]
            stable = min(still_open, default=batch.end_offset)
            aborted.append(AbortedTxn(batch.producer_id, first_offset, batch.base_offset, stable))
    return list(producers.values()), aborted


# The log directory of the KRaft controller: topics, configurations, and every change of ISR, ELR and leader.


def _write_controller(cluster: Cluster, log_dir: Path, coordinator: Coordinator | None) -> None:
    log_dir.mkdir()
    leader = RecordToWrite(
        write_control_key(_LEADER_CHANGE),
        write_control_value(
            _LEADER_CHANGE,
            {
                "version": 0,
                "leader_id": CONTROLLER,
                "voters": [{"voter_id": CONTROLLER}],
                "granting_voters": [{"voter_id": CONTROLLER}],
            },
        ),
    )
    log = write_batch([leader], base_offset=0, base_timestamp=START_MS, partition_leader_epoch=1, is_control_batch=True)
    offset = 1
    for timestamp_ms, values in _metadata_batches(cluster, coordinator):
        records = [RecordToWrite(None, value) for value in values]
        log += write_batch(records, base_offset=offset, base_timestamp=timestamp_ms, partition_leader_epoch=1)
        offset += len(records)
    _write_segment(log_dir / "__cluster_metadata-0", log)
    (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=CONTROLLER, cluster_id=CLUSTER_ID))


def _metadata_batches(cluster: Cluster, coordinator: Coordinator | None) -> Iterator[tuple[int, Sequence[bytes]]]:
    """(time in ms, record values) of every batch after the leader change; the last one shows that the controller still runs."""
    transaction_version = 0 if coordinator is None else coordinator.version
    features = {"eligible.leader.replicas.version": int(cluster.elr_enabled), "transaction.version": transaction_version}
    levels = [_metadata_record(_FEATURE, name=name, feature_level=level) for name, level in features.items() if level]
    yield START_MS, levels or [_metadata_record(_NO_OP)]
    if coordinator is not None:
        yield START_MS, [_metadata_record(_TOPIC, name=TRANSACTION_STATE_TOPIC, topic_id=topic_id(TRANSACTION_STATE_TOPIC))]
    topics: set[str] = set()
    for change in cluster.changes:
        partition = cluster.partitions[change.topic_partition]
        is_new_topic = partition.topic not in topics
        topics.add(partition.topic)
        records = _topic_records(cluster, partition) if is_new_topic else []
        records.append(_partition_record(partition, change) if change.kind == "created" else _change_record(change))
        yield change.timestamp_ms, records
    yield cluster.now_ms, [_metadata_record(_NO_OP)]


def _topic_records(cluster: Cluster, partition: SimulatedPartition) -> list[bytes]:
    configs = {}
    if partition.min_insync_replicas != 1:
        configs["min.insync.replicas"] = str(partition.min_insync_replicas)
    if cluster.unclean:
        configs["unclean.leader.election.enable"] = "true"
    topic = partition.topic
    return [
        _metadata_record(_TOPIC, name=topic, topic_id=topic_id(topic)),
        *(
            _metadata_record(_CONFIG, resource_type=_TOPIC_RESOURCE, resource_name=topic, name=name, value=value)
            for name, value in configs.items()
        ),
    ]


def _partition_record(partition: SimulatedPartition, change: PartitionChange) -> bytes:
    return _metadata_record(
        _PARTITION,
        partition_id=partition.number,
        topic_id=topic_id(partition.topic),
        replicas=list(partition.assignment),
        isr=list(change.isr),
        removing_replicas=[],
        adding_replicas=[],
        leader=change.leader,
        leader_epoch=change.leader_epoch,
        partition_epoch=0,
        directories=[],
    )


def _change_record(change: PartitionChange) -> bytes:
    topic, number = change.topic_partition
    fields: Json = {"isr": list(change.isr), "eligible_leader_replicas": list(change.elr)}
    fields["leader_recovery_state"] = int(change.recovering)
    if change.elected:
        fields["leader"] = change.leader
    return _metadata_record(_CHANGE, partition_id=number, topic_id=topic_id(topic), **fields)


def _metadata_record(api_key: int, **fields: object) -> bytes:
    return write_metadata_record(api_key, None, fields)
