"""Writes controllers' logs record by record, and puts them into log directories as copies of `__cluster_metadata`."""

from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.parsers.internal_topics.metadata_log import decode_metadata_record
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.brokers import OFFSETS_ID_BYTES, TOPIC, TOPIC_ID, Brokers, put_meta_properties, put_partition
from tests.support.layouts.control import CONTROL_RECORD_KEY, CONTROL_RECORD_VALUES
from tests.support.layouts.metadata_records import MESSAGES, write_metadata_record
from tests.support.segments import BASE_TIMESTAMP

START_MS: Final = 1_700_001_000_000
"""Time of the first record; each batch is one second later."""
CONTROLLER: Final = 100
METADATA: Final = "__cluster_metadata-0"
HUGE_VARINT: Final = b"\xff\xff\xff\xff\x0f"
"""2^32 - 1 as an unsigned varint."""


def raw_id(topic_id: str) -> bytes:
    return urlsafe_b64decode(topic_id + "==")


def record(api_key: int, version: int | None = None, **fields: Any) -> bytes:
    """A record's value, by default of the newest version; topic ids may be text."""
    values = {name: raw_id(value) if name == "topic_id" and isinstance(value, str) else value for name, value in fields.items()}
    return write_metadata_record(api_key, len(MESSAGES[api_key]) - 1 if version is None else version, values)


def topic(name: str = TOPIC, topic_id: str | bytes = TOPIC_ID) -> bytes:
    return record(2, name=name, topic_id=topic_id)


def partition(isr: list[int], leader: int, **fields: Any) -> bytes:
    defaults: dict[str, Any] = {
        "partition_id": 0,
        "topic_id": TOPIC_ID,
        "replicas": isr,
        "isr": isr,
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": leader,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [],
    }
    return record(3, **defaults | fields)


def partition_change(**fields: Any) -> bytes:
    defaults: dict[str, Any] = {"partition_id": 0, "topic_id": TOPIC_ID}
    return record(5, **defaults | fields)


def setting(name: str, value: str | None, resource: str = TOPIC, resource_type: int = 2) -> bytes:
    return record(4, resource_type=resource_type, resource_name=resource, name=name, value=value)


def broker_registration(broker: int, epoch: int) -> bytes:
    """The RegisterBrokerRecord of a broker; its epoch is the offset of this record."""
    flags: dict[str, Any] = dict.fromkeys(("is_migrating_zk_broker", "in_controlled_shutdown"), False)
    fields: dict[str, Any] = {
        "broker_id": broker,
        "broker_epoch": epoch,
        "incarnation_id": bytes(15) + b"\1",
        "fenced": True,
        "rack": None,
    }
    return record(0, **fields, **flags, end_points=[], features=[], log_dirs=[])


def decode(value: bytes) -> MetadataRecord:
    return decode_metadata_record(value)


def control(control_type: int, **fields: Any) -> RecordToWrite:
    key = CONTROL_RECORD_KEY.build({"version": 0, "type": control_type})
    return RecordToWrite(key, CONTROL_RECORD_VALUES[control_type].build({"version": 0} | fields))


@dataclass(slots=True)
class ControllerLog:
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """(base offset, batch)."""
    next_offset: int = 0
    leader_epoch: int = 1
    start_ms: int = START_MS

    def lead(self, voters: list[int], leader_epoch: int = 1) -> "ControllerLog":
        self.leader_epoch = leader_epoch
        rows = [{"voter_id": voter} for voter in voters]
        return self._append([control(2, leader_id=voters[0], voters=rows, granting_voters=rows)], is_control_batch=True)

    def control(self, *records: RecordToWrite) -> "ControllerLog":
        return self._append(list(records), is_control_batch=True)

    def append(self, *values: bytes) -> "ControllerLog":
        return self._append([RecordToWrite(None, value) for value in values])

    def _append(self, records: list[RecordToWrite], *, is_control_batch: bool = False) -> "ControllerLog":
        batch = write_batch(
            records,
            base_offset=self.next_offset,
            base_timestamp=self.start_ms + 1000 * len(self.batches),
            partition_leader_epoch=self.leader_epoch,
            is_control_batch=is_control_batch,
        )
        self.batches.append((self.next_offset, batch))
        self.next_offset += len(records)
        return self

    def copy(self) -> "ControllerLog":
        return ControllerLog(list(self.batches), self.next_offset, self.leader_epoch, self.start_ms)

    def put(self, log_dir: Path, node_id: int = CONTROLLER, *, start: int = 0, without: tuple[int, ...] = ()) -> Path:
        """Write a copy into a node's log directory: batches from offset `start` on, except those with a base offset in
        `without`."""
        put_meta_properties(log_dir, node_id)
        kept = [batch for base, batch in self.batches if base >= start and base not in without]
        return put_partition(log_dir / METADATA, {start: kept}, empty_indexes=True)


def snapshot_file(offset: int) -> str:
    return f"{offset:020d}-{1:010d}.checkpoint"


def snapshot(*values: bytes, footer: bool = True) -> bytes:
    header = control(3, last_contained_log_timestamp=START_MS)
    batches = [write_batch([header], base_offset=0, base_timestamp=START_MS, is_control_batch=True)]
    batches.append(write_batch([RecordToWrite(None, value) for value in values], base_offset=1, base_timestamp=START_MS))
    if footer:
        end = len(values) + 1
        batches.append(write_batch([control(4)], base_offset=end, base_timestamp=START_MS, is_control_batch=True))
    return b"".join(batches)


def with_controller(brokers: Brokers, *values: bytes, start_ms: int = START_MS) -> Brokers:
    """Add a controller whose log holds these records, one per batch."""
    log = ControllerLog(start_ms=start_ms)
    log.lead([CONTROLLER])
    for value in values:
        log.append(value)
    log.put(brokers.root / f"c{CONTROLLER}")
    return brokers


def topic_with_isr(isr: list[int], elr: list[int] | None = None) -> tuple[bytes, bytes]:
    """The topic, and its partition with this ISR and ELR, led by the ISR's first member."""
    return topic(), partition(isr, isr[0] if isr else -1, replicas=[1, 2, 3], eligible_leader_replicas=elr)


def put_snapshot(directory: Path, offset: int, data: bytes) -> None:
    """Write a snapshot up to an offset, of epoch 1, into the directory of the controllers' log."""
    (directory / snapshot_file(offset)).write_bytes(data)


def put_controller(
    log_dir: Path, *, isr: list[int], replicas: list[int], leader: int, topic_id: bytes, topic_name: str = TOPIC
) -> None:
    """Write a `__cluster_metadata-0` with the state of partition 0 of a topic."""
    directories = [bytes(15) + b"\1"] * len(replicas)
    state = partition(isr, leader, topic_id=topic_id, replicas=replicas, directories=directories)
    log = ControllerLog(leader_epoch=0, start_ms=BASE_TIMESTAMP)
    log.append(topic(topic_name, topic_id), state, topic("__consumer_offsets", OFFSETS_ID_BYTES))
    put_partition(log_dir / METADATA, [batch for _, batch in log.batches], empty_indexes=True)
