"""Facts of `__remote_log_metadata`: remote segments in their latest states, and the events that led to these."""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, NodeIds, ReplicaPlan
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.export.facts.rows import record_batches, rows_of
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.json_objects import Columns, Json, attributes
from kafka_forensics.model.remote_log import RemotePartitionDeleteState, RemoteSegmentState
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.scanning.witnesses.remote_log import RemoteLogEvent, remote_log_events
from kafka_forensics.scanning.witnesses.witnesses import Witnesses

_SEGMENT: Final[Columns] = {
    **attributes("segment_id state=state.name start_offset last_offset=end_offset"),
    "leader_epochs": lambda segment: _epochs(segment.leader_epochs),
    **attributes("size_in_bytes max_timestamp=max_timestamp_ms txn_index_empty broker_id event_timestamp=event_timestamp_ms"),
    **attributes("metadata_partition metadata_offset"),
}


def remote_segment_facts(witnesses: Witnesses, options: ScanOptions, *, payloads: bool) -> Iterator[pa.RecordBatch]:
    """Record batches of `remote_segments`, by topic, topic id, partition and start offset."""
    return record_batches(FACTS["remote_segments"].schema, _segment_rows(witnesses, options, payloads=payloads))


def _segment_rows(witnesses: Witnesses, options: ScanOptions, *, payloads: bool) -> Iterator[tuple[object, ...]]:
    logs = {} if witnesses.remote_log is None else witnesses.remote_log.logs
    for log in sorted(logs.values(), key=lambda log: (log.topic, log.topic_id, log.partition)):
        if fits((log.topic, log.partition), options):
            for segment, row in zip(log.segments, rows_of(_SEGMENT, log.segments), strict=True):
                yield log.topic, log.partition, log.topic_id, *row, segment.custom_metadata if payloads else None


def remote_event_facts(
    inputs: Inputs, witnesses: Witnesses, options: ScanOptions, incomplete: list[Incomplete], *, payloads: bool
) -> Iterator[pa.RecordBatch]:
    """Record batches of `remote_events`, by partition of `__remote_log_metadata` and offset."""
    rows = _event_rows(inputs, witnesses, options, incomplete, payloads=payloads)
    return record_batches(FACTS["remote_events"].schema, rows)


def _event_rows(
    inputs: Inputs, witnesses: Witnesses, options: ScanOptions, incomplete: list[Incomplete], *, payloads: bool
) -> Iterator[tuple[object, ...]]:
    is_limited = options.topic_glob is not None or options.partition is not None
    node_ids = NodeIds.of(inputs.log_dirs)
    for plan, events in remote_log_events(inputs, witnesses.remote_log):
        try:
            for event in events:
                fields = event.decoded.fields or {}
                topic_id_partition = fields.get("remote_log_segment_id", fields).get("topic_id_partition", {})
                if not is_limited or (
                    topic_id_partition and fits((topic_id_partition["name"], topic_id_partition["partition"]), options)
                ):
                    yield _event_row(plan, node_ids, event, fields, topic_id_partition, payloads=payloads)
        except SourceError as error:
            incomplete.append(not_read(plan.log_dir.source, error))


def _event_row(
    plan: ReplicaPlan, node_ids: NodeIds, event: RemoteLogEvent, fields: Json, topic_id_partition: Json, *, payloads: bool
) -> tuple[object, ...]:
    custom_metadata = fields.get("custom_metadata") if payloads else None
    epochs = fields.get("segment_leader_epochs")
    return (
        *(
            topic_id_partition.get("name"),
            topic_id_partition.get("partition"),
            str(plan.context.broker),
            node_ids[plan.context.broker],
            plan.context.partition,
            event.offset,
            event.timestamp,
        ),
        *(event.decoded.name, event.decoded.problem, bool(fields) and not event.is_taken, topic_id_partition.get("id")),
        fields.get("remote_log_segment_id", {}).get("id", fields.get("segment_id")),
        *(_state(fields), fields.get("broker_id"), fields.get("event_timestamp_ms")),
        *(fields.get("start_offset"), fields.get("end_offset")),
        None if epochs is None else _epochs([EpochEntry(entry["leader_epoch"], entry["offset"]) for entry in epochs]),
        *(fields.get("segment_size_in_bytes"), fields.get("max_timestamp_ms"), fields.get("txn_index_empty")),
        None if custom_metadata is None else b64decode(custom_metadata),
    )


def _state(fields: Json) -> str | None:
    if "remote_partition_delete_state" in fields:
        return RemotePartitionDeleteState(fields["remote_partition_delete_state"]).name
    number = fields.get("remote_log_segment_state")
    return None if number is None else RemoteSegmentState(number).name


def _epochs(epochs: Sequence[EpochEntry]) -> list[Json]:
    return [{"leader_epoch": entry.leader_epoch, "start_offset": entry.start_offset} for entry in epochs]
