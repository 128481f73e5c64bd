"""The remote log of a tiered partition: whether its segments cover what the leader deleted locally, and whether the store has them.

Legal, so silent: local logs that start anywhere; unfinished copies, which the next leader makes again under other ids; overlapping
segments of different leaders; deletions under way; segments below the log start (RemoteLogManager).
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.forks import last_epoch, lineage
from kafka_forensics.analysis.replicas.holders import with_ranges
from kafka_forensics.analysis.replicas.remote_segments import segment_row
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.model.remote_log import RemoteLog, RemoteSegment, RemoteSegmentState, StoredLog
from kafka_forensics.replication.remote_segments import diverging_ranges, is_in_lineage

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import RemoteHoleEvidence, RemoteSegmentEvidence, UnreferencedEvidence
    from kafka_forensics.model.files import EpochEntry
    from kafka_forensics.model.json_objects import Json

_SEGMENTS_LISTED: Final = 64
_FINDINGS_LISTED: Final = 64
_NO_EVENT: Final = "no event"
_LEFT: Final = "copy not finished, or deleted"
OTHERS_MISSING: Final = "other objects missing"
_ELSEWHERE: Final = "another part of the remote store has them"
_MAY_BE_DELETED: Final = "they were deleted, and the events of their deletion are lost"


class _TieredLog(NamedTuple):
    """The log that readers get: that of the leader, or by the events alone if no replica is known."""

    place: Place
    """The partition."""
    epochs: "Sequence[EpochEntry]"
    log_start_offset: int
    replicas: Sequence[Replica]


def remote_log_findings(replicas: Sequence[Replica]) -> list[Finding]:
    """Findings about the remote log of one partition, by the replica that leads or led last."""
    leader = max(replicas, key=lambda replica: (last_epoch(replica), replica.log_end_offset), default=None)
    if leader is None:
        return []
    context = leader.context
    log, stored = context.remote_log, context.stored_log
    findings = []
    if log is not None and leader.is_tiered and context.epoch_checkpoint is not None:
        tiered = _TieredLog(Place(context.topic, context.partition), lineage(leader), leader.log_start_offset, replicas)
        findings += _holes(tiered, leader, log)
        findings += [] if stored is None else _unreadable(tiered, log, stored)
    if stored is not None:
        findings += unreferenced_objects(context.topic, log, stored)
    return findings


def findings_without_replicas(topic: str, log: RemoteLog | None, stored: StoredLog) -> list[Finding]:
    """Findings about the objects of a partition without a replica among the inputs."""
    findings = unreferenced_objects(topic, log, stored)
    if log is not None and log.finished:
        epochs = sorted({entry for segment in log.finished for entry in segment.leader_epochs})
        tiered = _TieredLog(Place(topic, log.partition), epochs, 0, ())
        findings += _unreadable(tiered, log, stored)
    return findings


def unreferenced_objects(topic: str, log: RemoteLog | None, stored: StoredLog) -> list[Finding]:
    """`REMOTE_OBJECT_UNREFERENCED` for segments of the store that no reader gets by their last event, or that have none.

    A broker writes the first event before it copies an object: without any event, events are missing, or the object is another
    cluster's. Nothing is reported where the copies lack events.
    """
    if log is not None and not log.is_complete:
        return []
    states = {} if log is None else {segment.segment_id: segment for segment in log.segments}
    without_event, left = [], []
    for segment in stored.segments.values():
        event = states.get(segment.segment_id)
        row: Json = {"segment_id": segment.segment_id, "offset_start": segment.start_offset}
        if event is None:
            without_event.append(row)
        elif event.state in (RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.DELETE_SEGMENT_FINISHED):
            left.append(row | {"state": event.state.name, "offset_end": event.end_offset + 1})
    may_be_deleted = log is not None and log.lacks_deleted
    findings = []
    if without_event:
        severity = Severity.INFO if may_be_deleted else None
        findings.append(_unreferenced(topic, stored, without_event, _NO_EVENT, severity))
    if left:
        findings.append(_unreferenced(topic, stored, left, _LEFT, Severity.INFO))
    return findings


def _unreferenced(topic: str, stored: StoredLog, rows: "list[Json]", reason: str, severity: Severity | None) -> Finding:
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


def _holes(tiered: _TieredLog, leader: Replica, log: RemoteLog) -> list[Finding]:
    """`REMOTE_LOG_HOLE`: offsets before the leader's local log that no finished segment of its lineage covers."""
    if not log.is_complete:
        return []
    covered = normalised(segment.offsets for segment in log.finished if is_in_lineage(segment, tiered.epochs))
    start = _expired_to(leader.log_start_offset, log)
    holes = without(clipped(leader.remote, start, leader.local_log_start_offset), covered)
    if log.lacks_deleted and holes and holes[0][0] == start:
        holes = holes[1:]  # retention may have deleted what was there
    segments = _ByOffset(log.segments)
    return _limited([_hole(tiered, leader, segments, hole) for hole in holes[:_FINDINGS_LISTED]], len(holes))


def _expired_to(start: int, log: RemoteLog) -> int:
    """Where the log starts once the deletions under way at its start are done: the checkpoint of log starts is older than these."""
    for low, high in normalised(segment.offsets for segment in log.segments if segment.is_deleted):
        start = high if low <= start < high else start
    return start


def _hole(tiered: _TieredLog, leader: Replica, segments: "_ByOffset", hole: tuple[int, int]) -> Finding:
    stored, others = leader.context.stored_log, segments.overlapping(*hole)
    in_store = [segment for segment in others if stored is not None and _log_size(segment, stored) is not None]
    evidence: RemoteHoleEvidence = {
        "log_start_offset": leader.log_start_offset,
        "local_log_start_offset": leader.local_log_start_offset,
        "leaders": [leader.broker],
        "held_by": [],
    }
    rows: list[Json] = [
        segment_row(segment) | {"state": segment.state.name, "is_stored": segment in in_store} for segment in others
    ]
    known = {segment.segment_id for segment in others}
    objects = [] if stored is None else _without_event(stored, known, *hole)
    rows += [row | {"state": _NO_EVENT, "is_stored": True} for row in objects]
    if rows:
        evidence["segments"], evidence["segments_count"] = rows[:_SEGMENTS_LISTED], len(rows)
    place = replace(tiered.place, offset_start=hole[0], offset_end=hole[1])
    ranges = [(row["offset_start"], row["offset_end"]) for row in objects]
    return _with_holders(finding("REMOTE_LOG_HOLE", place, evidence), tiered, _ByOffset(in_store), ranges=ranges)


def _without_event(stored: StoredLog, known: Container[str], start: int, end: int) -> "list[Json]":
    """The objects at offsets `[start, end)` whose events are lost; each is taken to go on to the next one."""
    segments = sorted(stored.segments.values(), key=lambda segment: segment.start_offset)
    ends = [*(segment.start_offset for segment in segments[1:]), end]
    return [
        {"segment_id": segment.segment_id, "offset_start": segment.start_offset, "offset_end": next_start}
        for segment, next_start in zip(segments, ends, strict=True)
        if segment.segment_id not in known
        and segment.start_offset < end
        and next_start > start
        and stored.needed[0] in segment.objects
    ]


class _ByOffset:
    """Segments by offset, to find those that have some of a range."""

    def __init__(self, segments: Iterable[RemoteSegment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.start_offset)
        self._starts = [segment.start_offset for segment in self._segments]
        self._ends = list(accumulate((segment.end_offset for segment in self._segments), max))

    def overlapping(self, start: int, end: int) -> list[RemoteSegment]:
        """Those with an offset in `[start, end)`."""
        near = self._segments[bisect_left(self._ends, start) : bisect_left(self._starts, end)]
        return [segment for segment in near if segment.end_offset >= start]


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


def _unreadable(tiered: _TieredLog, log: RemoteLog, stored: StoredLog) -> list[Finding]:
    """`REMOTE_SEGMENT_UNREADABLE`: finished segments whose objects are missing, or have another size than the segment."""
    readable, broken = [], []
    for segment in log.finished:
        start, end = max(segment.start_offset, tiered.log_start_offset), segment.end_offset + 1
        if start >= end:
            continue
        reason, lacking = segment_problem(segment, stored)
        if reason:
            size, in_lineage = _log_size(segment, stored), not tiered.replicas or is_in_lineage(segment, tiered.epochs)
            broken.append(_Unreadable(segment, (start, end), reason, lacking, size, in_lineage))
        if has_log(segment, stored):
            readable.append(segment)
    runs, by_offset = _runs(broken), _ByOffset(readable)
    findings = [_unreadable_run(tiered, run, by_offset, stored) for run in runs[:_FINDINGS_LISTED]]
    if not log.is_complete:
        findings = [
            replace(found.with_evidence(harmless_if=_MAY_BE_DELETED), confidence=Confidence.SUSPECTED) for found in findings
        ]
    return _limited(findings, len(runs))


def _limited(findings: list[Finding], count: int) -> list[Finding]:
    """The findings, the last of which says how many further ones there are."""
    if count > len(findings):
        findings[-1] = findings[-1].with_evidence(ranges_more=count - len(findings))
    return findings


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
    return (OTHERS_MISSING if lacking else ""), lacking


def has_log(segment: RemoteSegment, stored: StoredLog) -> bool:
    """Whether the store has the whole log of a segment, as far as its listing shows."""
    return segment_problem(segment, stored)[0] in ("", OTHERS_MISSING)


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


def _unreadable_run(tiered: _TieredLog, run: list[_Unreadable], readable: _ByOffset, stored: StoredLog) -> Finding:
    first = run[0]
    evidence: RemoteSegmentEvidence = {
        "reason": first.reason,
        "lacking": list(first.lacking),
        "segments": [segment_row(item.segment) for item in run[:_SEGMENTS_LISTED]],
        "segments_count": len(run),
        "is_read": first.is_in_lineage,
    }
    if len(run) == 1 and first.log_size is not None:
        evidence |= {"size_in_bytes": first.log_size, "expected_bytes": first.segment.size_in_bytes}
    place = replace(tiered.place, offset_start=first.offsets[0], offset_end=run[-1].offsets[1])
    found = finding("REMOTE_SEGMENT_UNREADABLE", place, evidence)
    if not stored.segments:
        found = replace(found.with_evidence(harmless_if=_ELSEWHERE), confidence=Confidence.SUSPECTED)
    if stored.is_elsewhere:
        return replace(found, severity=Severity.WARNING)
    if first.reason == OTHERS_MISSING:
        return replace(found, severity=Severity.ERROR)
    epochs = tiered.epochs
    if not first.is_in_lineage:
        epochs = sorted({entry for item in run for entry in item.segment.leader_epochs})
        found = replace(found, severity=Severity.ERROR)
    return _with_holders(found, tiered, readable, epochs)


def _with_holders(
    subject: Finding,
    tiered: _TieredLog,
    segments: _ByOffset,
    epochs: "Sequence[EpochEntry] | None" = None,
    ranges: Iterable[tuple[int, int]] = (),
) -> Finding:
    """The finding with the brokers that hold its offsets locally, with these epochs (default: the leader's).

    It is an `error` if all of them are held: by brokers, by these other remote segments, or by objects with these `ranges`.
    """
    start, end = subject.place.offset_start or 0, subject.place.offset_end or 0
    right = tiered.epochs if epochs is None else epochs

    def with_same_records(held: Ranges, of: "Sequence[EpochEntry]") -> Ranges:
        return without(clipped(held, start, end), diverging_ranges(of, right, start, end))

    by_broker = [(replica.broker, with_same_records(replica.good_ranges, lineage(replica))) for replica in tiered.replicas]
    remote = [
        part
        for segment in segments.overlapping(start, end)
        for part in with_same_records((segment.offsets,), segment.leader_epochs)
    ]
    left = without(((start, end),), normalised([*ranges, *remote, *(part for _, held in by_broker for part in held)]))
    holders = [broker for broker, held in by_broker if held == ((start, end),)]
    in_store = {"in_remote_storage": True} if not left and not holders else {}
    with_holders = with_ranges(subject.with_evidence(held_by=holders, **in_store), by_broker)
    return with_holders if left else replace(with_holders, severity=Severity.ERROR)


def _log_size(segment: RemoteSegment, stored: StoredLog) -> int | None:
    """Size of the object with the log; None if it is missing."""
    found = stored.segments.get(segment.segment_id)
    return None if found is None else found.objects.get(stored.needed[0])
