"""Remote segments of a tiered topic against the logs of its replicas: which belong to a log, and which are the only remains of lost
records.

A segment is copied once all of it is below the last stable offset: a finished copy proves its records committed (RemoteLogManager).
Segments of another history than the leader's stay in the remote store, but no reader gets them.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica, place_of
from kafka_forensics.analysis.replicas.forks import last_epoch, lineage, premises
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.model.remote_log import RemoteLogHistory, RemoteSegment
from kafka_forensics.model.results import PartitionSummary
from kafka_forensics.replication.remote_segments import diverging_offsets, is_in_lineage, remote_fate

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import TieredEvidence
    from kafka_forensics.model.json_objects import Json

_SEGMENTS_LISTED: Final = 64
_TOPICS_LISTED: Final = 64


def finished_segments(replicas: Sequence[Replica]) -> Sequence[RemoteSegment]:
    """The partition's completely copied remote segments; those of the first replica's topic id."""
    log = next((replica.context.remote_log for replica in replicas if replica.context.remote_log is not None), None)
    return () if log is None else log.finished


def lacks_remote_epochs(replica: Replica) -> bool:
    """Whether the leader-epoch-checkpoint lacks the epochs of the log's start in remote storage.

    Retention moves its first entry with the log start, which a broker writes once a minute and at shutdown: after a kill it may be
    too low. If no remote segment ends before that entry, none is missing.
    """
    context = replica.context
    entries = context.epoch_checkpoint or ()
    if not entries or any(entry.start_offset <= replica.log_start_offset for entry in entries):
        return not entries
    if context.remote_log is None:
        return context.clean_shutdown
    return any(segment.end_offset < entries[0].start_offset for segment in context.remote_log.finished)


def was_copied_by(replicas: Sequence[Replica], offset: int, as_of_ms: int) -> bool:
    """Whether a record in remote storage is not newer than a time, by the segments with its offset; also without any, since what is
    there is older than what is on the disks."""
    segments = [segment for segment in finished_segments(replicas) if segment.start_offset <= offset <= segment.end_offset]
    return all(segment.max_timestamp_ms <= as_of_ms for segment in segments)


def remote_witness(replicas: Sequence[Replica]) -> tuple[int, str] | None:
    """Up to where remote segments prove the log of one of the replicas committed, and a description of the last such segment."""
    epochs = [lineage(replica) for replica in replicas]
    segments = [segment for segment in finished_segments(replicas) if any(is_in_lineage(segment, entries) for entries in epochs)]
    last = max(segments, key=lambda segment: segment.end_offset, default=None)
    return None if last is None else (last.end_offset + 1, f"remote segment {last.segment_id} copied by broker {last.broker_id}")


def left_out(log: Replica, segments: Sequence[RemoteSegment]) -> dict[RemoteSegment, Ranges]:
    """Segments of epochs before a log's last one with other records than the log, each with the offsets of these."""
    epochs, latest = lineage(log), last_epoch(log)
    older = [segment for segment in segments if segment.leader_epochs[-1].leader_epoch < latest]
    spans = {segment: diverging_offsets(segment, epochs, log.log_start_offset) for segment in older}
    return {segment: parts for segment, parts in spans.items() if parts}


def with_remote_losses(replicas: list[Replica], findings: list[Finding]) -> list[Finding]:
    """`findings` with the remote segments that have the records of an `UNCLEAN_LOSS`, and a finding for those that no log shows:
    segments that the present leader's epochs leave out, below its last epoch."""
    leader = max(replicas, key=last_epoch, default=None)
    if leader is None or not leader.end_is_known or leader.context.epoch_checkpoint is None:
        return findings
    lost = left_out(leader, finished_segments(replicas))
    with_segments = [_with_segments(found, replicas, leader, lost) for found in findings]
    covered = [span for found in with_segments if found.kind == "UNCLEAN_LOSS" for span in _span(found)]
    rest = without(normalised(span for spans in lost.values() for span in spans), normalised(covered))
    return [*with_segments, *(_loss(replicas, leader, span, lost) for span in rest)]


def tiered_topics(
    partitions: Sequence[PartitionSummary], history: RemoteLogHistory | None, listed: Collection[str], *, are_events_lost: bool
) -> list[Finding]:
    """`TIERED_TOPICS`, if any partition is of one; `listed` are the topics whose objects were listed.

    An `error` if no copy of `__remote_log_metadata` is left on brokers that had it: they find no remote segment.
    """
    topics = sorted({partition.topic for partition in partitions if partition.is_tiered})
    if not topics:
        return []
    evidence: TieredEvidence = {"topics": topics[:_TOPICS_LISTED], "count": len(topics)}
    if history is None:
        evidence["metadata_not_read"] = True
    else:
        evidence["remote_segments_count"] = sum(len(log.finished) for log in history.logs.values() if log.topic in topics)
    if set(topics) <= set(listed):
        evidence["store_listed"] = True
    severity = None
    if are_events_lost:
        evidence["events_lost"], severity = True, Severity.ERROR
    return [finding("TIERED_TOPICS", Place(topics[0] if len(topics) == 1 else None), evidence, severity=severity)]


def _span(loss: Finding) -> Ranges:
    start, end = loss.place.offset_start, loss.place.offset_end
    return () if start is None or end is None else ((start, end),)


def _with_segments(loss: Finding, replicas: Sequence[Replica], leader: Replica, lost: dict[RemoteSegment, Ranges]) -> Finding:
    """An `UNCLEAN_LOSS` with the remote segments that have some of it; a broker with remote segments there has it only in part."""
    if loss.kind != "UNCLEAN_LOSS" or not (span := _span(loss)):
        return loss
    segments = {segment: clipped(spans, *span[0]) for segment, spans in lost.items()}
    segments = {segment: spans for segment, spans in segments.items() if spans}
    remote = {replica.broker: replica for replica in replicas if clipped(replica.remote, *span[0])}
    if not segments and not remote.keys() & {*loss.evidence["held_by"]}:
        return loss
    holders = [broker for broker in loss.evidence["held_by"] if broker not in remote]
    partly = [
        broker
        for broker in loss.evidence["held_by"]
        if broker in remote and remote[broker].local_log_start_offset < min(span[0][1], remote[broker].log_end_offset)
    ]
    evidence = {**loss.evidence, "held_by": holders, "in_remote_storage": True} | ({"partly_on": partly} if partly else {})
    return replace(loss, evidence=evidence | (_segments(segments, span, leader) if segments else {}))


def _segments(segments: dict[RemoteSegment, Ranges], span: Ranges, leader: Replica) -> dict[str, object]:
    """Evidence: the segments, how many of them the leader deletes, and which offsets they lack."""
    fate = remote_fate(segments, lineage(leader), leader.log_start_offset, leader.log_end_offset)
    missing = without(span, normalised(part for spans in segments.values() for part in spans))
    return {
        "remote_segments": [segment_row(segment) for segment in list(segments)[:_SEGMENTS_LISTED]],
        "remote_segments_count": len(segments),
        "remote_segments_deleted": fate.deleted,
    } | ({"not_in_remote_storage": [list(part) for part in missing]} if missing else {})


def segment_row(segment: RemoteSegment) -> "Json":
    """Evidence: the id and the offsets of a remote segment."""
    start, end = segment.offsets
    return {"segment_id": segment.segment_id, "offset_start": start, "offset_end": end}


def _loss(replicas: list[Replica], leader: Replica, span: tuple[int, int], lost: dict[RemoteSegment, Ranges]) -> Finding:
    """`UNCLEAN_LOSS` of offsets that only remote segments have."""
    start, end = span
    segments = {segment: parts for segment, spans in lost.items() if (parts := clipped(spans, start, end))}
    epoch = next(iter(segments)).leader_epochs[-1].leader_epoch
    versions = [
        {"brokers": [], "epoch": epoch, "log_end_offset": end, "high_watermark": end},
        {
            "brokers": [leader.broker],
            "epoch": last_epoch(leader),
            "log_end_offset": leader.log_end_offset,
            "high_watermark": leader.context.high_watermark or 0,
        },
    ]
    evidence = {
        "offset": start,
        "versions": versions,
        "held_by": [],
        "in_remote_storage": True,
        "loses": end - start,
        "premises": [
            *premises(replicas),
            f"{len(segments)} remote segments were copied completely in an epoch before {last_epoch(leader)}",
        ],
        "leaders": [leader.broker],
        "latest_epoch": last_epoch(leader),
        "truncation_offsets": [],
    } | _segments(segments, (span,), leader)
    return finding("UNCLEAN_LOSS", place_of(replicas, start, end), evidence)
