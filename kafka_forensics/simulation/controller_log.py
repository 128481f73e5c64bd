"""The log of a KRaft controller that saw a history: topics, settings, and every change of ISR, ELR and leader."""

from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kafka_forensics.parsers.spec.control import CONTROL_RECORD_KEY, CONTROL_RECORD_VALUES
from kafka_forensics.parsers.spec.metadata_records import MESSAGES, write_metadata_record
from kafka_forensics.simulation.cluster import START_MS, Change, Cluster, Partition
from kafka_forensics.writers.batches import RecordToWrite, write_batch

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
    told: set[str] = set()
    for change in cluster.changes:
        partition = cluster.partitions[change.topic_partition]
        topic_id = _raw(ids[partition.topic])
        values = []
        if partition.topic not in told:
            told.add(partition.topic)
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


def _created(partition: Partition, change: Change, topic_id: bytes) -> bytes:
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


def _changed(change: Change, topic_id: bytes) -> bytes:
    fields: dict[str, Any] = {"isr": list(change.isr), "eligible_leader_replicas": list(change.elr)}
    fields["leader_recovery_state"] = int(change.recovering)
    if change.elected:
        fields["leader"] = change.leader
    return _value(_CHANGE, partition_id=change.topic_partition[1], topic_id=topic_id, **fields)


def _value(api_key: int, **fields: Any) -> bytes:
    return write_metadata_record(api_key, len(MESSAGES[api_key]) - 1, fields)
