"""Any state of a cluster as log directories: one a broker, and one of the controller where there is a KRaft controller.

What stands there is what a copy of the disks would hold at that moment: a broker that runs, or died uncleanly, has the watermarks
of its last checkpoint, no mark of a clean shutdown, and its recovery point where it last flushed.
"""

from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Final

from kafka_forensics.model.constants import TRANSACTION_STATE_TOPIC
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.simulation.cluster import Batch, Cluster, Replica
from kafka_forensics.simulation.controller_log import CONTROLLER, write_controller_log
from kafka_forensics.simulation.producer_files import aborted_transactions, producer_entries
from kafka_forensics.simulation.transactions import Coordinator
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from kafka_forensics.writers.checkpoints import (
    write_clean_shutdown,
    write_leader_epochs,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
)
from kafka_forensics.writers.indexes import write_transaction_index
from kafka_forensics.writers.legacy import write_legacy_entry
from kafka_forensics.writers.snapshots import write_producer_snapshot
from kafka_forensics.writers.transaction_state import write_transaction_log_key, write_transaction_log_value

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
    if cluster.fences:
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
    return b"".join(_legacy(batch) if not cluster.epochs_known else _batch(batch) for batch in batches)


def _write_broker(cluster: Cluster, broker: int, log_dir: Path, coordinator: Coordinator | None) -> None:
    ends: dict[str, dict[tuple[str, int], int]] = {"replication": {}, "recovery-point": {}, "log-start": {}}
    clean = broker in cluster.clean
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is None:
            continue
        directory = log_dir / f"{partition.topic}-{partition.number}"
        directory.mkdir()
        _write_replica(cluster, replica, directory, clean=clean)
        if cluster.fences:
            (directory / "partition.metadata").write_bytes(write_partition_metadata(topic_id(partition.topic)))
        ends["replication"][partition.name] = replica.checkpointed
        ends["recovery-point"][partition.name] = replica.flushed
        ends["log-start"][partition.name] = 0
    if coordinator is not None:
        _write_transaction_state(cluster, log_dir, coordinator, clean=clean)
        for name in ends:
            ends[name][TRANSACTION_STATE_TOPIC, 0] = 0 if name == "log-start" else len(coordinator.log)
    for name, offsets in ends.items():
        if name != "log-start" or cluster.epochs_known:
            (log_dir / f"{name}-offset-checkpoint").write_bytes(write_offset_checkpoint(offsets))
    (log_dir / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint({}))
    if cluster.fences:
        (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, cluster_id=CLUSTER_ID))
    else:
        (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, version=0))
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_bytes(write_clean_shutdown(_BROKER_EPOCH if cluster.fences else None))


def _write_replica(cluster: Cluster, replica: Replica, directory: Path, *, clean: bool) -> None:
    """A partition directory with one segment."""
    (directory / f"{_FIRST}.log").write_bytes(log_bytes(cluster, replica.batches))
    for suffix in ("index", "timeindex"):
        (directory / f"{_FIRST}.{suffix}").write_bytes(b"")
    if not cluster.epochs_known:
        return
    aborted = aborted_transactions(replica.batches)
    if aborted:
        (directory / f"{_FIRST}.txnindex").write_bytes(write_transaction_index(aborted))
    if clean:
        name = f"{replica.log_end_offset:020d}.snapshot"
        (directory / name).write_bytes(write_producer_snapshot(producer_entries(replica.batches)))
    (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs(replica.epochs))


def _batch(batch: Batch) -> bytes:
    if batch.marker is not None:
        return write_marker(
            batch.marker == "COMMIT",
            base_offset=batch.base_offset,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            coordinator_epoch=batch.coordinator_epoch,
            timestamp=batch.timestamp_ms,
            partition_leader_epoch=batch.leader_epoch,
        )
    return write_batch(
        [RecordToWrite(record_key(each).encode(), record_value(each).encode()) for each in batch.ids],
        base_offset=batch.base_offset,
        base_timestamp=batch.timestamp_ms,
        partition_leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
    )


def _legacy(batch: Batch) -> bytes:
    return b"".join(
        write_legacy_entry(
            record_key(each).encode(), record_value(each).encode(), offset=offset, magic=1, timestamp=batch.timestamp_ms
        )
        for offset, each in enumerate(batch.ids, batch.base_offset)
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
    if cluster.fences:
        (directory / "partition.metadata").write_bytes(write_partition_metadata(topic_id(TRANSACTION_STATE_TOPIC)))
