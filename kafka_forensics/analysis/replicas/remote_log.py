"""The remote log of a tiered partition: whether its segments cover what the leader deleted locally, and whether the store has them.

Legal, so silent: local logs that start anywhere; unfinished copies, which the next leader makes again under other ids; overlapping
segments of different leaders; deletions under way; segments below the log start (RemoteLogManager).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica, place_of
from kafka_forensics.analysis.replicas.forks import last_epoch, lineage
from kafka_forensics.analysis.replicas.holders import with_ranges
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.model.remote_log import RemoteLog, RemoteSegment, RemoteSegmentState, StoredLog
from kafka_forensics.replication.remote_segments import diverging_ranges, is_in_lineage

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import RemoteHoleEvidence, RemoteSegmentEvidence, UnreferencedEvidence
    from kafka_forensics.model.files import EpochEntry
    from kafka_forensics.model.json_objects import Json

_SEGMENTS_LISTED: Final = 64
_HOLES_LISTED: Final = 64
_NOT_GIVEN: Final = "the part of the remote store with this partition was not given"
_OTHERS_MISSING: Final = "other objects missing"
_DELETED: Final = (RemoteSegmentState.DELETE_SEGMENT_STARTED, RemoteSegmentState.DELETE_SEGMENT_FINISHED)


def remote_log_findings(replicas: Sequence[Replica]) -> list[Finding]:
    """Findings about the remote log of one partition, by the replica that leads or led last."""
    leader = max(replicas, key=lambda replica: (last_epoch(replica), replica.log_end_offset), default=None)
    if leader is None:
        return []
    log, stored = leader.context.remote_log, leader.context.stored_log
    findings = []
    if log is not None and leader.is_tiered and leader.context.epoch_checkpoint is not None:
        findings += _holes(replicas, leader, log)
        findings += [] if stored is None else _unreadable(replicas, leader, log, stored)
    if stored is not None:
        findings += unreferenced_objects(leader.context.topic, log, stored)
    return findings


def unreferenced_objects(topic: str, log: RemoteLog | None, stored: StoredLog) -> list[Finding]:
    """`REMOTE_OBJECT_UNREFERENCED` for segments of the store that no reader gets by their last event, or that have none.

    A broker writes the first event before it copies an object: without any event, events are missing, or the object is another
    cluster's.
    """
    states = {} if log is None else {segment.segment_id: segment for segment in log.segments}
    lost, left = [], []
    for segment in stored.segments.values():
        event = states.get(segment.segment_id)
        row: Json = {"segment_id": segment.segment_id, "offset_start": segment.start_offset}
        if event is None:
            lost.append(row)
        elif event.state in (RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.DELETE_SEGMENT_FINISHED):
            left.append(row | {"state": event.state.name, "offset_end": event.end_offset + 1})
    findings = []
    if lost and (log is None or (log.is_complete and not log.lacks_deleted)):
        findings.append(_unreferenced(topic, stored, lost, "no event"))
    if left:
        findings.append(_unreferenced(topic, stored, left, "copy not finished, or deleted", Severity.INFO))
    return findings


def _unreferenced(topic: str, stored: StoredLog, rows: "list[Json]", reason: str, severity: Severity | None = None) -> Finding:
    evidence: UnreferencedEvidence = {
        "reason": reason,
        "segments": sorted(rows, key=lambda row: (row["offset_start"], row["segment_id"]))[:_SEGMENTS_LISTED],
        "segments_count": len(rows),
    }
    start = min(row["offset_start"] for row in rows)
    ends = [row.get("offset_end") for row in rows]
    end = None if None in ends else max(end for end in ends if end is not None)
    place = Place(topic, stored.partition, offset_start=start, offset_end=end)
    return finding("REMOTE_OBJECT_UNREFERENCED", place, evidence, severity=severity)


def _holes(replicas: Sequence[Replica], leader: Replica, log: RemoteLog) -> list[Finding]:
    """`REMOTE_LOG_HOLE`: offsets before the leader's local log that no finished segment of its lineage covers."""
    if not log.is_complete:
        return []
    epochs = lineage(leader)
    covered = normalised(_range(segment) for segment in log.finished if is_in_lineage(segment, epochs))
    start = _expired_to(leader.log_start_offset, log)
    holes = without(clipped(leader.remote, start, leader.local_log_start_offset), covered)
    if log.lacks_deleted and holes and holes[0][0] == start:
        holes = holes[1:]  # retention may have deleted what was there
    return [_hole(replicas, leader, log, hole) for hole in holes[:_HOLES_LISTED]]


def _expired_to(start: int, log: RemoteLog) -> int:
    """Where the log starts once the deletions under way at its start are done: the checkpoint of log starts is older than these."""
    for low, high in normalised(_range(segment) for segment in log.segments if segment.state in _DELETED):
        start = high if low <= start < high else start
    return start


def _hole(replicas: Sequence[Replica], leader: Replica, log: RemoteLog, hole: tuple[int, int]) -> Finding:
    epochs, stored = lineage(leader), leader.context.stored_log
    others = [segment for segment in log.segments if clipped((_range(segment),), *hole)]
    in_store = [segment for segment in others if stored is not None and _log_size(segment, stored) is not None]
    evidence: RemoteHoleEvidence = {
        "log_start_offset": leader.log_start_offset,
        "local_log_start_offset": leader.local_log_start_offset,
        "leaders": [leader.broker],
        "held_by": [],
    }
    if others:
        states: list[Json] = [{"state": segment.state.name, "is_stored": segment in in_store} for segment in others]
        evidence["segments"] = [_row(segment) | state for segment, state in zip(others[:_SEGMENTS_LISTED], states, strict=False)]
        evidence["segments_count"] = len(others)
    return _with_holders(finding("REMOTE_LOG_HOLE", place_of([leader], *hole), evidence), replicas, in_store, epochs)


class _Unreadable(NamedTuple):
    """A finished segment whose objects are missing or cut."""

    segment: RemoteSegment
    offsets: tuple[int, int]
    """From the log start on."""
    reason: str
    lacking: tuple[str, ...]
    """Suffixes of missing objects."""
    log_size: int | None
    is_in_lineage: bool


def _unreadable(replicas: Sequence[Replica], leader: Replica, log: RemoteLog, stored: StoredLog) -> list[Finding]:
    """`REMOTE_SEGMENT_UNREADABLE`: finished segments whose objects are missing, or have another size than the segment."""
    epochs, readable, broken = lineage(leader), [], []
    for segment in log.finished:
        start, end = max(segment.start_offset, leader.log_start_offset), segment.end_offset + 1
        if start >= end:
            continue
        reason, lacking = segment_problem(segment, stored)
        if reason:
            size, in_lineage = _log_size(segment, stored), is_in_lineage(segment, epochs)
            broken.append(_Unreadable(segment, (start, end), reason, lacking, size, in_lineage))
        if reason in ("", _OTHERS_MISSING):
            readable.append(segment)
    return [_unreadable_run(replicas, leader, run, readable, stored) for run in _runs(broken)]


def segment_problem(segment: RemoteSegment, stored: StoredLog) -> tuple[str, tuple[str, ...]]:
    """What is wrong with a segment's objects, and the suffixes of missing ones; an empty text if nothing is."""
    found = stored.segments.get(segment.segment_id)
    lacking = tuple(suffix for suffix in stored.needed if found is None or suffix not in found.objects)
    if lacking == stored.needed:
        return "all objects missing", lacking
    if stored.needed[0] in lacking:
        return "log missing", lacking
    size = _log_size(segment, stored)
    if stored.is_plain and size is not None and size != segment.size_in_bytes:
        return ("log cut" if size < segment.size_in_bytes else "log too large"), lacking
    return (_OTHERS_MISSING if lacking else ""), lacking


def _runs(broken: Iterable[_Unreadable]) -> list[list[_Unreadable]]:
    """Segments with the same defect that follow each other."""
    ordered = sorted(broken, key=lambda item: (not item.is_in_lineage, item.segment.start_offset, item.segment.segment_id))
    runs = [ordered[:1]] if ordered else []
    for before, item in pairwise(ordered):
        follows = before.offsets[1] == item.offsets[0] and before.is_in_lineage == item.is_in_lineage
        if follows and (before.reason, before.lacking) == (item.reason, item.lacking):
            runs[-1].append(item)
        else:
            runs.append([item])
    return runs


def _unreadable_run(
    replicas: Sequence[Replica], leader: Replica, run: list[_Unreadable], readable: Sequence[RemoteSegment], stored: StoredLog
) -> Finding:
    first = run[0]
    evidence: RemoteSegmentEvidence = {
        "reason": first.reason,
        "lacking": list(first.lacking),
        "segments": [_row(item.segment) for item in run[:_SEGMENTS_LISTED]],
        "segments_count": len(run),
        "is_read": first.is_in_lineage,
    }
    if len(run) == 1 and first.log_size is not None:
        evidence |= {"size_in_bytes": first.log_size, "expected_bytes": first.segment.size_in_bytes}
    confidence = None
    if not stored.segments:
        evidence["harmless_if"], confidence = _NOT_GIVEN, Confidence.SUSPECTED
    place = place_of([leader], first.offsets[0], run[-1].offsets[1])
    found = finding("REMOTE_SEGMENT_UNREADABLE", place, evidence, confidence=confidence)
    if first.reason == _OTHERS_MISSING:
        return replace(found, severity=Severity.ERROR)
    epochs = lineage(leader)
    if not first.is_in_lineage:
        epochs = sorted({entry for item in run for entry in item.segment.leader_epochs})
        found = replace(found, severity=Severity.ERROR)
    return _with_holders(found, replicas, readable, epochs)


def _with_holders(
    subject: Finding, replicas: Sequence[Replica], segments: Sequence[RemoteSegment], epochs: "Sequence[EpochEntry]"
) -> Finding:
    """The finding with the brokers that hold its offsets locally, with these epochs; `error` if all of them are held, there or in
    other remote segments."""
    start, end = subject.place.offset_start or 0, subject.place.offset_end or 0

    def with_same_records(ranges: Ranges, of: "Sequence[EpochEntry]") -> Ranges:
        return without(clipped(ranges, start, end), diverging_ranges(of, epochs, start, end))

    by_broker = [(replica.broker, with_same_records(replica.good_ranges, lineage(replica))) for replica in replicas]
    remote = [part for segment in segments for part in with_same_records((_range(segment),), segment.leader_epochs)]
    left = without(((start, end),), normalised([*remote, *(part for _, ranges in by_broker for part in ranges)]))
    holders = [broker for broker, ranges in by_broker if ranges == ((start, end),)]
    with_holders = with_ranges(subject.with_evidence(held_by=holders), by_broker)
    return with_holders if left else replace(with_holders, severity=Severity.ERROR)


def _log_size(segment: RemoteSegment, stored: StoredLog) -> int | None:
    """Size of the object with the log; None if it is missing."""
    found = stored.segments.get(segment.segment_id)
    return None if found is None else found.objects.get(stored.needed[0])


def _range(segment: RemoteSegment) -> tuple[int, int]:
    return segment.start_offset, segment.end_offset + 1


def _row(segment: RemoteSegment) -> "Json":
    return {"segment_id": segment.segment_id, "offset_start": segment.start_offset, "offset_end": segment.end_offset + 1}
