"""Reading `__share_group_state` from the copies: one copy of each partition, and a finding for every record that is malformed."""

from functools import partial

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.internal_topics import ShareReplay
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, typed_path
from kafka_forensics.model.constants import SHARE_GROUP_STATE_TOPIC
from kafka_forensics.model.coordinators import ShareLog
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.records import Record
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.internal_topics import SHARE_RECORDS, SNAPSHOT, read_share_key, read_share_value
from kafka_forensics.parsers.log import PlainRecord
from kafka_forensics.rereading.log_records import LoggedRecords, logged_records
from kafka_forensics.witnesses.group_log import cluster_of, longest_first
from kafka_forensics.witnesses.malformed_records import MalformedRecords

_TOO_LARGE = "oversized"


def read_share_logs(inputs: Inputs) -> tuple[list[ShareLog], list[Finding]]:
    """Every partition of `__share_group_state` among the inputs, replayed, and what is wrong with their records.

    Of several copies the longest is read; if that one is damaged and another is not, the other. What cannot be read is listed in
    `inputs.incomplete`.
    """
    copies: dict[tuple[str, int], list[ReplicaPlan]] = {}
    for plan in inputs.internal:
        if plan.context.topic == SHARE_GROUP_STATE_TOPIC:
            copies.setdefault((cluster_of(plan) or "", plan.context.partition), []).append(plan)
    logs: list[ShareLog] = []
    malformed = MalformedRecords()
    for _, plans in sorted(copies.items()):
        best: tuple[ShareLog, MalformedRecords] | None = None
        for plan in sorted(plans, key=longest_first):
            replayed = _replayed(inputs, plan)
            if best is None or (replayed[0].complete and not best[0].complete):
                best = replayed
            if best[0].complete:
                break
        if best is not None:
            logs.append(best[0])
            malformed.take(best[1])
    return logs, malformed.findings()


def _replayed(inputs: Inputs, plan: ReplicaPlan) -> tuple[ShareLog, MalformedRecords]:
    """One copy of a partition, as far as it can be read."""
    log = ShareLog(plan.context.partition, plan.context.broker)
    replay = ShareReplay(log)
    records = MalformedRecords()
    lost: list[tuple[int, int]] = []
    try:
        for batch in logged_records(plan, lost):
            log.complete &= not batch.broken
            for record in batch.records:
                problem = _take(record, replay)
                if problem is not None:
                    records.add(partial(_malformed, plan, batch, record.offset, *problem))
    except SourceError as error:
        inputs.incomplete.append(Incomplete(typed_path(plan.log_dir.source, error.path), error.reason))
        log.complete = False
    log.complete &= not lost
    return replay.finish(), records


def _take(record: PlainRecord | Record, replay: ShareReplay) -> tuple[str, str | None] | None:
    """Hand one record on; (why it is malformed, Kafka's name of its kind) if it is. Those of unknown types are passed over."""
    key = _TOO_LARGE if isinstance(record, Record) and record.is_oversized else read_share_key(record.key)
    if isinstance(key, str):
        replay.unreadable(None, record.offset)
        return key, None
    if key.record_type not in SHARE_RECORDS:
        return None
    share_partition = key[1:]
    if record.value is None:
        if key.record_type == SNAPSHOT:
            replay.tombstone(share_partition)
        return None
    fields = read_share_value(key.record_type, record.value)
    if isinstance(fields, str):
        replay.unreadable(share_partition, record.offset)
        return fields, SHARE_RECORDS[key.record_type]
    take = replay.snapshot if key.record_type == SNAPSHOT else replay.update
    take(share_partition, fields, record.offset, record.timestamp)
    return None


def _malformed(plan: ReplicaPlan, batch: LoggedRecords, offset: int, reason: str, record_type: str | None) -> Finding:
    context = plan.context
    place = context.place(
        context.log_file(batch.segment),
        byte_start=batch.position,
        byte_end=batch.position + batch.size_in_bytes,
        offset_start=offset,
        offset_end=offset + 1,
    )
    evidence = {"reason": reason, "unknown_after_offset": offset - 1}
    if record_type is not None:
        evidence["record_type"] = record_type
    return finding("METADATA_RECORD_MALFORMED", place, evidence)
