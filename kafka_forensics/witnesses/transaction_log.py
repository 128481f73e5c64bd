"""Reading `__transaction_state` from the copies: one copy of each partition, and a finding for every record that is malformed."""

from functools import partial

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.internal_topics import TransactionLogReplay
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, broker_order, typed_path
from kafka_forensics.model.constants import TRANSACTION_STATE_TOPIC
from kafka_forensics.model.coordinators import TransactionLog
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.records import Record
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.internal_topics import parse_transaction_log_key, parse_transaction_log_value
from kafka_forensics.parsers.log import PlainRecord
from kafka_forensics.rereading.log_records import LoggedRecords, logged_records
from kafka_forensics.witnesses.malformed_records import MalformedRecords


def read_transaction_log(inputs: Inputs, partitions_known: int = 0) -> tuple[TransactionLog | None, list[Finding]]:
    """The coordinators' log, None if no copy of it is among the inputs, and what is wrong with its records.

    `partitions_known` is how many partitions the topic has at least. Of several copies of a partition the one that reaches
    furthest is read; if that one is damaged and another is not, the other. A copy that cannot be read counts as incomplete.
    Among copies of several clusters, whose producer ids are not the same, no log is a witness: an empty one is the answer.
    """
    copies: dict[int, list[ReplicaPlan]] = {}
    for plan in inputs.internal:
        if plan.context.topic == TRANSACTION_STATE_TOPIC:
            copies.setdefault(plan.context.partition, []).append(plan)
    if len({log_dir.meta.cluster_id for log_dir in inputs.log_dirs if log_dir.meta is not None} - {None}) > 1:
        return TransactionLog(), []
    if not copies:
        return None, []
    together = TransactionLogReplay()
    records = MalformedRecords()
    for _, plans in sorted(copies.items()):
        first: tuple[TransactionLogReplay, MalformedRecords] | None = None
        for plan in sorted(plans, key=_reach, reverse=True):
            replayed = _replayed(plan, inputs)
            if replayed is not None and (first is None or not replayed[0].damaged):
                first = replayed
            if first is not None and not first[0].damaged:
                break
        if first is not None:
            together.merge(first[0])
            records.take(first[1])
    return together.finish([*copies, *range(partitions_known)]), records.findings()


def _reach(plan: ReplicaPlan) -> tuple[object, ...]:
    """Sort key of copies: last leader epoch, then the last segment and its size, then the high watermark, then the lower id."""
    context = plan.context
    entries = [] if context.leader_epochs is None else context.leader_epochs.entries
    logs = [(segment.base_offset, segment.log.size_in_bytes) for segment in plan.directory.segments if segment.log is not None]
    kind, number, name = broker_order(context.broker)
    epoch = max((entry.leader_epoch for entry in entries), default=-1)
    return epoch, max(logs, default=(-1, -1)), context.high_watermark or 0, -kind, -number, name


def _replayed(plan: ReplicaPlan, inputs: Inputs) -> tuple[TransactionLogReplay, MalformedRecords] | None:
    """One copy of a partition, replayed; None if it cannot be read."""
    replay = TransactionLogReplay()
    try:
        records = _replay(plan, replay)
    except SourceError as error:
        inputs.incomplete.append(Incomplete(typed_path(plan.log_dir.source, error.path), error.reason))
        return None
    replay.read(plan.context.partition, plan.context.broker)
    return replay, records


def _replay(plan: ReplicaPlan, replay: TransactionLogReplay) -> MalformedRecords:
    """Take every record of a copy, in offset order; those that are malformed. Raises SourceError."""
    records = MalformedRecords()
    partition = plan.context.partition
    lost: list[tuple[int, int]] = []
    behind = plan.context.segment_base_offsets[0] if plan.context.segment_base_offsets else 0
    for batch in logged_records(plan, lost):
        if lost:
            replay.lost(partition, behind)
        for record in batch.records:
            problem = _take(record, partition, replay)
            if problem is not None:
                records.add(partial(_malformed, plan, batch, record.offset, *problem))
            behind = record.offset + 1
        if batch.broken:
            replay.lost(partition, behind)
    if lost:
        replay.lost(partition, behind)
    return records


def _take(record: PlainRecord | Record, partition: int, replay: TransactionLogReplay) -> tuple[str, str | None] | None:
    """Hand one record on; (why it is malformed, transactional id) if it is."""
    name, problem = parse_transaction_log_key(record.key)
    if name is None:
        problem = "oversized" if isinstance(record, Record) and record.is_oversized else problem
        replay.malformed(None, partition, record.offset)
        return str(problem), None
    if record.value is None:
        replay.take(name, partition, record.offset, record.timestamp, None)
        return None
    metadata, problem = parse_transaction_log_value(record.value)
    if metadata is None:
        replay.malformed(name, partition, record.offset)
        return str(problem), name
    replay.take(name, partition, record.offset, record.timestamp, metadata)
    return None


def _malformed(plan: ReplicaPlan, batch: LoggedRecords, offset: int, reason: str, name: str | None) -> Finding:
    context = plan.context
    place = context.place(
        context.log_file(batch.segment),
        byte_start=batch.position,
        byte_end=batch.position + batch.size_in_bytes,
        offset_start=offset,
        offset_end=offset + 1,
    )
    evidence = {"reason": reason, "record_type": "transaction state", "unknown_after_offset": offset - 1}
    if name is not None:
        evidence["transactional_id"] = name
    return finding("METADATA_RECORD_MALFORMED", place, evidence)
