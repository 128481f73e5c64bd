"""Missing starts of logs: records that other replicas have before a log's start, and that no deletion explains.

Retention and DeleteRecords move a log's start legally, at different times on each broker. They are checked first: ages against
`retention.ms`, sizes against `retention.bytes`, the log-start checkpoints of all replicas, and segments waiting for deletion. The
cleaner never moves it: the cleaned segment keeps the name of the first one.

If no copy has the records, a broker's own `leader-epoch-checkpoint` shows that they existed: whatever moves a log's start truncates
that file there before it deletes segments (UnifiedLog.maybeIncrementLogStartOffset, LeaderEpochFileCache.truncateFromStart; since
0.11).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.controller_state import electable
from kafka_forensics.analysis.replicas.diff import BatchReader, is_compacted
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.replication.retention import NO_RETENTION, Retention, explains, retention_of

if TYPE_CHECKING:
    from kafka_forensics.model.json_objects import Json

_IN_SERVER_PROPERTIES: Final = "log.retention.* in server.properties deletes sooner than Kafka's default"
_KILLED: Final = "the broker was killed, or the machine lost power, just as retention ran"
_CHANGED: Final = "retention was set lower for a while, or DeleteRecords ran within a minute before a crash"
_POLICY_CHANGED: Final = "cleanup.policy was delete for a while"


class MissingLogStart(Struct, frozen=True):
    """Offsets [start, end) before a replica's log start that no deletion explains, and who has them.

    `is_sure`: by known settings, or because they are younger than any retention in use. `moved_by_broker`: the broker cut its
    leader-epoch-checkpoint at this log start, as it does before it deletes segments, and when it starts with a log without them.
    """

    replica: Replica
    start: int
    end: int
    held_by: tuple[int | str, ...]
    retention: Retention
    head_timestamp_ms: int
    is_sure: bool
    moved_by_broker: bool


def missing_log_starts(replicas: Sequence[Replica], reader: BatchReader) -> list[MissingLogStart]:
    """Log starts that replicas of one partition lack for no known reason; also where logs differ further on.

    Nothing is reported of tiered topics, of live copies, and of logs that are not whole.
    """
    if len(replicas) < 2 or any(replica.context.live or replica.is_tiered for replica in replicas):
        return []
    deleted_to = max(replica.context.log_start_checkpoint or 0 for replica in replicas)
    starts = []
    for replica in replicas:
        end = replica.log_start_offset
        holders = [other for other in replicas if other.log_start_offset < end and _holds_before(other, end)]
        if holders and _starts_late(replica, deleted_to) and (start := _missing_start(replica, holders, reader)) is not None:
            starts.append(start)
    return starts


def log_starts_missing_by_epochs(replicas: Sequence[Replica]) -> list[Finding]:
    """`LOG_HEAD_MISSING` of logs whose own epochs begin before their first segment, if no other copy has the missing records.

    Epochs of a topic with remote storage begin with its records there; if the topic may have some, this is only info.
    """
    control = replicas[0].context.control if replicas else None
    if is_compacted(*replicas) or any(replica.context.live or replica.is_tiered for replica in replicas):
        return []
    findings = []
    first = min((replica.log_start_offset for replica in replicas), default=0)
    for replica in replicas:
        context, start = replica.context, replica.log_start_offset
        epochs = context.epoch_checkpoint
        if not epochs or start != first or not _starts_late(replica, context.log_start_checkpoint or 0):
            continue
        before = epochs[0].start_offset
        if before >= min(start, *context.segment_base_offsets) or context.segments_being_deleted:
            continue
        evidence: Json = {
            "log_start_offset": start,
            "loses": start - before,
            "held_by": [],
            "epochs_start": before,
            "premises": [f"leader-epoch-checkpoint begins at offset {before}"],
            "harmless_if": _KILLED if control is not None else f"{_KILLED}, or segments were moved to remote storage",
        }
        severity, confidence = (Severity.WARNING, None) if control is not None else (Severity.INFO, Confidence.SUSPECTED)
        place = context.place(offset_start=before, offset_end=start)
        findings.append(finding("LOG_HEAD_MISSING", place, evidence, severity=severity, confidence=confidence))
    return findings


def missing_snapshots(replicas: Sequence[Replica]) -> list[Finding]:
    """`LOG_HEAD_MISSING` of copies of the controller's log that begin after a snapshot, or after offset 0 without one.

    A node without a snapshot up to its log start does not start (KafkaRaftLog). With one, or in a copy of a running node, whose
    snapshot may be younger than the copy, it is only info.
    """
    findings = []
    for replica in replicas:
        context, start = replica.context, replica.log_start_offset
        if context.topic != CLUSTER_METADATA_TOPIC or context.snapshots is None:
            continue
        before = [offset for offset in context.snapshots if offset < start]
        is_covered = context.snapshot_end >= start
        if not replica.state.framing.batches or not start or (is_covered and not before):
            continue
        end = max(before, default=0)
        holders = [other.context.broker for other in replicas if other.context.snapshot_end >= start or other.covers(end, start)]
        evidence: Json = {"log_start_offset": start, "loses": start - end, "held_by": holders}
        evidence |= {"snapshot_end": context.snapshot_end} if is_covered else {"needs_snapshot": True}
        severity = Severity.INFO if context.live or is_covered else None
        place = context.place(offset_start=end, offset_end=start)
        findings.append(finding("LOG_HEAD_MISSING", place, evidence, severity=severity, confidence=Confidence.PROVEN))
    return findings


def _starts_late(replica: Replica, deleted_to: int) -> bool:
    """Whether a log that was read begins after what was deleted, and no earlier segment is waiting for deletion."""
    waiting = any(base < replica.log_start_offset for base in replica.context.segments_being_deleted)
    return replica.log_start_offset > deleted_to and not waiting and bool(replica.state.framing.batches) and replica.end_is_known


def _holds_before(replica: Replica, end: int) -> bool:
    """Whether a log has all its records before an offset; of a compacted one, some."""
    start = replica.first_batch_offset if replica.context.compacted else replica.log_start_offset
    return start < end and replica.covers(start, end)


def _missing_start(replica: Replica, holders: Sequence[Replica], reader: BatchReader) -> MissingLogStart | None:
    """The missing start of `replica` that `holders` have, unless retention explains it."""
    end = replica.log_start_offset
    rows = reader.batches(holders[0], end - 1, end)
    retention = retention_for(replica.context.control)
    if not rows.shape[1] and retention.deletes:
        return None
    timestamp = int(rows[BatchColumn.MAX_TIMESTAMP, -1]) if rows.shape[1] else -1
    now = newest_time((replica, *holders), reader)
    if explains(retention, timestamp, now, replica.state.framing.bytes_decoded) is not None:
        return None
    start = min(holder.log_start_offset for holder in holders)
    held_by = tuple(holder.broker for holder in holders if holder.log_start_offset == start)
    moved = _moved_by_broker(replica)
    is_sure = retention.is_sure(timestamp, now) and not moved
    return MissingLogStart(replica, start, end, held_by, retention, timestamp, is_sure, moved)


def _moved_by_broker(replica: Replica) -> bool:
    """Whether the epochs of a log begin with its first segment or later; never of a topic whose log start only a restart moves."""
    epochs = replica.context.epoch_checkpoint
    if not epochs or _is_compacted_alone(replica.context.control):
        return False
    return epochs[0].start_offset >= replica.log_start_offset


def retention_for(control: PartitionControl | None) -> Retention:
    """A topic's retention by the controller's log, none if its `cleanup.policy` is only compact; Kafka's defaults if that log does
    not say."""
    if _is_compacted_alone(control):
        return NO_RETENTION
    return Retention() if control is None else retention_of(control.setting("retention.ms"), control.setting("retention.bytes"))


def _is_compacted_alone(control: PartitionControl | None) -> bool:
    """Whether the controller's log has `cleanup.policy` compact: such a log is not deleted by age or size."""
    return control is not None and control.cleanup_policy == "compact"


def newest_time(replicas: Sequence[Replica], reader: BatchReader) -> int:
    """The time in ms to which ages count: the requested one, else the newest in these copies and the controller's log; -1 if they
    have none."""
    if reader.as_of_ms is not None:
        return reader.as_of_ms
    control = replicas[0].context.control
    times = [-1 if control is None else control.as_of_ms or -1]
    for replica in replicas:
        rows = reader.batches(replica, replica.log_end_offset - 1, replica.log_end_offset)
        times += [] if not rows.shape[1] else [int(rows[BatchColumn.MAX_TIMESTAMP, -1])]
    return max(times)


def missing_log_start_findings(missing: Sequence[MissingLogStart]) -> list[Finding]:
    """`LOG_HEAD_MISSING` of each; critical if the replica may lead by the controller's log."""
    findings = []
    for start in missing:
        context = start.replica.context
        premise, harmless_if = _why_not_deleted(start)
        evidence: Json = {
            "log_start_offset": start.end,
            "loses": start.end - start.start,
            "held_by": list(start.held_by),
            "retention_ms": start.retention.retention_ms,
            "retention_bytes": start.retention.retention_bytes,
            "head_timestamp_ms": start.head_timestamp_ms,
            "premises": [premise, f"no log-start-offset-checkpoint reaches {start.end}"],
            "harmless_if": harmless_if,
        }
        may_lead = context.control is not None and context.node in electable(context.control)
        severity = Severity.CRITICAL if may_lead else None
        if start.moved_by_broker:
            severity = Severity.INFO
            evidence["moved_by_broker"] = True
        elif not start.is_sure:
            severity = Severity.WARNING
        confidence = None if start.is_sure else Confidence.SUSPECTED
        place = context.place(offset_start=start.start, offset_end=start.end)
        findings.append(finding("LOG_HEAD_MISSING", place, evidence, severity=severity, confidence=confidence))
    return findings


def _why_not_deleted(start: MissingLogStart) -> tuple[str, str]:
    """The premise that retention did not delete the start, and what would make it harmless."""
    if _is_compacted_alone(start.replica.context.control):
        return "in the controller's log the topic is only compacted, and a cleaner does not move the log start", _POLICY_CHANGED
    if start.retention.is_known:
        return "retention from the controller's log", _CHANGED
    return "Kafka's default retention", _IN_SERVER_PROPERTIES


def with_missing_log_starts(missing_starts: Sequence[Finding], known_findings: Sequence[Finding]) -> list[Finding]:
    """`known_findings` and those about missing log starts; a missing segment at the start of its log replaces such a finding, with
    the higher severity."""
    by_place = {_place_of(missing): missing for missing in missing_starts}
    findings = []
    for found in known_findings:
        missing = by_place.pop(_place_of(found), None) if found.kind == "SEGMENT_MISSING" else None
        is_worse = missing is not None and missing.severity.rank > found.severity.rank
        findings.append(replace(found, severity=missing.severity) if missing is not None and is_worse else found)
    return [*findings, *by_place.values()]


def _place_of(finding: Finding) -> tuple[object, ...]:
    return finding.place.broker, finding.place.log_dir, finding.place.offset_end
