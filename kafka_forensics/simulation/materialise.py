"""Any state of a cluster as log directories: one a broker, and one of the controller where there is a KRaft controller.

What stands there is what a copy of the disks would hold at that moment: a broker that runs, or died uncleanly, has the watermarks
of its last checkpoint, no mark of a clean shutdown, and its recovery point where it last flushed.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from kafka_forensics.model.constants import MAX_SEQUENCE, TRANSACTION_STATE_TOPIC
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.model.json_objects import Json, attributes, object_of
from kafka_forensics.parsers.spec.control import CONTROL_RECORD_KEY, CONTROL_RECORD_VALUES
from kafka_forensics.parsers.spec.metadata_records import MESSAGES, write_metadata_record
from kafka_forensics.simulation.cluster import ABORT, START_MS, Batch, Cluster, Partition, PartitionChange, SimulatedReplica
from kafka_forensics.simulation.transactions import Coordinator
from kafka_forensics.writers.batches import (
    RecordToWrite,
    write_batch,
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

# The log of a KRaft controller that saw a history: topics, settings, and every change of ISR, ELR and leader.


CONTROLLER: Final = 100
"""Node id of the one controller, which is not a broker."""
_LEADER_CHANGE: Final = 2
_TOPIC, _PARTITION, _CONFIG, _CHANGE, _FEATURE, _NO_OP = 2, 3, 4, 5, 12, 20
_OF_TOPIC: Final = 2
"""Resource type of a topic's setting."""


def write_controller_log(cluster: Cluster, log_dir: Path, ids: Mapping[str, str], *, transaction_version: int) -> Path:
    """Write `__cluster_metadata-0` below `log_dir`; `ids`: of the topics, internal ones too. The directory of the log."""
    directory = log_dir / "__cluster_metadata-0"
    directory.mkdir()
    leader = RecordToWrite(
        CONTROL_RECORD_KEY.build({"version": 0, "type": _LEADER_CHANGE}),
        CONTROL_RECORD_VALUES[_LEADER_CHANGE].build(
            {
                "version": 0,
                "leader_id": CONTROLLER,
                "voters": [{"voter_id": CONTROLLER}],
                "granting_voters": [{"voter_id": CONTROLLER}],
            }
        ),
    )
    data = write_batch([leader], base_offset=0, base_timestamp=START_MS, partition_leader_epoch=1, is_control_batch=True)
    offset = 1
    for timestamp_ms, values in _batches(cluster, ids, transaction_version):
        records = [RecordToWrite(None, value) for value in values]
        data += write_batch(records, base_offset=offset, base_timestamp=timestamp_ms, partition_leader_epoch=1)
        offset += len(records)
    for suffix, content in (("log", data), ("index", b""), ("timeindex", b"")):
        (directory / f"{0:020d}.{suffix}").write_bytes(content)
    return directory


def _batches(cluster: Cluster, ids: Mapping[str, str], transaction_version: int) -> Iterator[tuple[int, list[bytes]]]:
    """(time in ms, values) of every batch behind the controller's own election; the last says only that it is still there."""
    features = {"eligible.leader.replicas.version": int(cluster.elr_enabled), "transaction.version": transaction_version}
    yield (
        START_MS,
        [_value(_FEATURE, name=name, feature_level=level) for name, level in features.items() if level] or [_value(_NO_OP)],
    )
    internal = ids.keys() - {name for name, _ in cluster.partitions}
    yield from ((START_MS, [_value(_TOPIC, name=name, topic_id=_raw(ids[name]))]) for name in sorted(internal))
    topics: set[str] = set()
    for change in cluster.changes:
        partition = cluster.partitions[change.topic_partition]
        topic_id = _raw(ids[partition.topic])
        values = []
        if partition.topic not in topics:
            topics.add(partition.topic)
            values += _topic(cluster, partition, topic_id)
        values.append(_created(partition, change, topic_id) if change.kind == "created" else _changed(change, topic_id))
        yield change.timestamp_ms, values
    yield cluster.now_ms, [_value(_NO_OP)]


def _raw(topic_id: str) -> bytes:
    return urlsafe_b64decode(topic_id + "==")


def _topic(cluster: Cluster, partition: Partition, topic_id: bytes) -> list[bytes]:
    settings = {}
    if partition.min_insync_replicas != 1:
        settings["min.insync.replicas"] = str(partition.min_insync_replicas)
    if cluster.unclean:
        settings["unclean.leader.election.enable"] = "true"
    return [
        _value(_TOPIC, name=partition.topic, topic_id=topic_id),
        *(
            _value(_CONFIG, resource_type=_OF_TOPIC, resource_name=partition.topic, name=name, value=value)
            for name, value in settings.items()
        ),
    ]


def _created(partition: Partition, change: PartitionChange, topic_id: bytes) -> bytes:
    return _value(
        _PARTITION,
        partition_id=partition.number,
        topic_id=topic_id,
        replicas=list(partition.assignment),
        isr=list(change.isr),
        removing_replicas=[],
        adding_replicas=[],
        leader=change.leader,
        leader_epoch=change.leader_epoch,
        partition_epoch=0,
        directories=[],
    )


def _changed(change: PartitionChange, topic_id: bytes) -> bytes:
    fields: Json = {"isr": list(change.isr), "eligible_leader_replicas": list(change.elr)}
    fields["leader_recovery_state"] = int(change.recovering)
    if change.elected:
        fields["leader"] = change.leader
    return _value(_CHANGE, partition_id=change.topic_partition[1], topic_id=topic_id, **fields)


def _value(api_key: int, **fields: object) -> bytes:
    return write_metadata_record(api_key, len(MESSAGES[api_key]) - 1, fields)


# What a broker keeps of producers beside a log, worked out from its batches: the state of each, and aborted transactions.


def producer_entries(batches: Iterable[Batch]) -> list[ProducerEntry]:
    """The state of every producer at the end of a log, as its snapshot holds it (ProducerStateManager)."""
    return list(_replayed(batches)[0].values())


def aborted_transactions(batches: Iterable[Batch]) -> list[AbortedTxn]:
    """Every aborted transaction of a log, as its transaction index lists them."""
    return _replayed(batches)[1]


def _replayed(batches: Iterable[Batch]) -> tuple[dict[int, ProducerEntry], list[AbortedTxn]]:
    producers: dict[int, ProducerEntry] = {}
    aborted: list[AbortedTxn] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        known = producers.get(batch.producer_id)
        if batch.marker is None:
            producers[batch.producer_id] = _with_data(known, batch)
            continue
        first = -1 if known is None else known.current_txn_first_offset
        producers[batch.producer_id] = _with_marker(known, batch)
        if batch.marker == ABORT and first >= 0:
            still_open = [entry.current_txn_first_offset for entry in producers.values() if entry.current_txn_first_offset >= 0]
            stable = min(still_open, default=batch.end_offset)
            aborted.append(AbortedTxn(batch.producer_id, first, batch.base_offset, stable))
    return producers, aborted


def _with_data(known: ProducerEntry | None, batch: Batch) -> ProducerEntry:
    first = -1 if known is None else known.current_txn_first_offset
    return ProducerEntry(
        batch.producer_id,
        batch.producer_epoch,
        (batch.base_sequence + len(batch.ids) - 1) & MAX_SEQUENCE,
        batch.end_offset - 1,
        len(batch.ids) - 1,
        batch.timestamp_ms,
        -1 if known is None else known.coordinator_epoch,
        batch.base_offset if batch.is_transactional and first < 0 else first,
    )


def _with_marker(known: ProducerEntry | None, batch: Batch) -> ProducerEntry:
    """A marker of a later epoch begins that epoch, in which the producer has written nothing yet."""
    nothing = ProducerEntry(
        batch.producer_id, batch.producer_epoch, -1, -1, 0, batch.timestamp_ms, batch.coordinator_epoch, current_txn_first_offset=-1
    )
    if known is None or known.producer_epoch != batch.producer_epoch:
        return nothing
    return replace(known, timestamp=batch.timestamp_ms, coordinator_epoch=batch.coordinator_epoch, current_txn_first_offset=-1)


CLUSTER_ID: Final = "c2ltdWxhdGVkLWNsdXN0ZQ"
_FIRST: Final = f"{0:020d}"
_BROKER_EPOCH: Final = 7


def materialise(cluster: Cluster, root: Path, coordinator: Coordinator | None = None) -> list[Path]:
    """Write all log directories below `root`, which must exist: `broker-N`, and `controller-100`. Their paths, in that order."""
    made = []
    for broker in cluster.brokers:
        log_dir = root / f"broker-{broker}"
        log_dir.mkdir()
        _write_broker(cluster, broker, log_dir, coordinator)
        made.append(log_dir)
    if cluster.fences_fetches:
        log_dir = root / f"controller-{CONTROLLER}"
        log_dir.mkdir()
        topics = {topic for topic, _ in cluster.partitions} | (set() if coordinator is None else {TRANSACTION_STATE_TOPIC})
        ids = {topic: topic_id(topic) for topic in topics}
        version = 0 if coordinator is None else coordinator.version
        write_controller_log(cluster, log_dir, ids, transaction_version=version)
        (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=CONTROLLER, cluster_id=CLUSTER_ID))
        made.append(log_dir)
    return made


def record_key(record_id: int) -> str:
    """Key of a record by its id."""
    return f"key-{record_id}"


def record_value(record_id: int) -> str:
    """Value of a record by its id."""
    return f"r{record_id}"


def topic_id(topic: str) -> str:
    """A topic's id, 22 characters of base64url that follow from its name."""
    return urlsafe_b64encode(sha256(topic.encode()).digest()[:16]).decode().rstrip("=").replace("-", "A").replace("_", "B")


def log_bytes(cluster: Cluster, batches: list[Batch]) -> bytes:
    """A replica's segment: format 2, or format 1 without epochs where brokers are of Kafka 0.10."""
    return b"".join(_legacy(batch) if not cluster.has_leader_epochs else _batch(batch) for batch in batches)


def _write_broker(cluster: Cluster, broker: int, log_dir: Path, coordinator: Coordinator | None) -> None:
    ends: dict[str, dict[tuple[str, int], int]] = {"replication": {}, "recovery-point": {}, "log-start": {}}
    clean = broker in cluster.stopped_cleanly
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is None:
            continue
        directory = log_dir / f"{partition.topic}-{partition.number}"
        directory.mkdir()
        _write_replica(cluster, replica, directory, clean=clean)
        if cluster.fences_fetches:
            (directory / "partition.metadata").write_bytes(write_partition_metadata(topic_id(partition.topic)))
        ends["replication"][partition.name] = replica.checkpointed
        ends["recovery-point"][partition.name] = replica.flushed_end
        ends["log-start"][partition.name] = 0
    if coordinator is not None:
        _write_transaction_state(cluster, log_dir, coordinator, clean=clean)
        for name in ends:
            ends[name][TRANSACTION_STATE_TOPIC, 0] = 0 if name == "log-start" else len(coordinator.log)
    for name, offsets in ends.items():
        if name != "log-start" or cluster.has_leader_epochs:
            (log_dir / f"{name}-offset-checkpoint").write_bytes(write_offset_checkpoint(offsets))
    (log_dir / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint({}))
    if cluster.fences_fetches:
        (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, cluster_id=CLUSTER_ID))
    else:
        (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, version=0))
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_bytes(write_clean_shutdown(_BROKER_EPOCH if cluster.fences_fetches else None))


def _write_replica(cluster: Cluster, replica: SimulatedReplica, directory: Path, *, clean: bool) -> None:
    """A partition directory with one segment."""
    (directory / f"{_FIRST}.log").write_bytes(log_bytes(cluster, replica.batches))
    for suffix in ("index", "timeindex"):
        (directory / f"{_FIRST}.{suffix}").write_bytes(b"")
    if not cluster.has_leader_epochs:
        return
    aborted = aborted_transactions(replica.batches)
    if aborted:
        (directory / f"{_FIRST}.txnindex").write_bytes(write_transaction_index(aborted))
    if clean:
        name = f"{replica.log_end_offset:020d}.snapshot"
        (directory / name).write_bytes(write_producer_snapshot(producer_entries(replica.batches)))
    (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs(replica.epochs))


def _batch(batch: Batch) -> bytes:
    header = object_of(attributes("base_offset partition_leader_epoch=leader_epoch producer_id producer_epoch"), batch)
    if batch.marker is not None:
        commit = batch.marker == "COMMIT"
        return write_marker(commit, coordinator_epoch=batch.coordinator_epoch, timestamp=batch.timestamp_ms, **header)
    return write_batch(
        [RecordToWrite(record_key(record_id).encode(), record_value(record_id).encode()) for record_id in batch.ids],
        base_timestamp=batch.timestamp_ms,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        **header,
    )


def _legacy(batch: Batch) -> bytes:
    return b"".join(
        write_legacy_entry(
            record_key(record_id).encode(), record_value(record_id).encode(), offset=offset, magic=1, timestamp=batch.timestamp_ms
        )
        for offset, record_id in enumerate(batch.ids, batch.base_offset)
    )


def _transaction_state(coordinator: Coordinator) -> bytes:
    """The coordinator's log, a record a batch."""
    return b"".join(
        write_batch(
            [RecordToWrite(write_transaction_log_key(name), write_transaction_log_value(state))],
            base_offset=offset,
            base_timestamp=timestamp_ms,
        )
        for offset, (timestamp_ms, name, state) in enumerate(coordinator.log)
    )


def _write_transaction_state(cluster: Cluster, log_dir: Path, coordinator: Coordinator, *, clean: bool) -> None:
    """A whole copy of the coordinator's log."""
    directory = log_dir / f"{TRANSACTION_STATE_TOPIC}-0"
    directory.mkdir()
    (directory / f"{_FIRST}.log").write_bytes(_transaction_state(coordinator))
    for suffix in ("index", "timeindex"):
        (directory / f"{_FIRST}.{suffix}").write_bytes(b"")
    if clean:
        (directory / f"{len(coordinator.log):020d}.snapshot").write_bytes(write_producer_snapshot([]))
    (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(0, 0)] if coordinator.log else []))
    if cluster.fences_fetches:
        (directory / "partition.metadata").write_bytes(write_partition_metadata(topic_id(TRANSACTION_STATE_TOPIC)))
