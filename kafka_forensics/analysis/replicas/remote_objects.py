"""The log of a partition in a remote store, read whole: against itself, against its events, and against the replicas.

Of its bytes nothing else is judged: it has no end, no checkpoints and no followers, and segments may be missing in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.diff import IN_REMOTE_STORAGE, BatchReader, Difference, differences
from kafka_forensics.analysis.replicas.single_replica import damage_findings
from kafka_forensics.model.findings import Broker, Finding
from kafka_forensics.model.remote_log import RemoteSegment
from kafka_forensics.replication.epochs import epoch_at

if TYPE_CHECKING:
    from kafka_forensics.analysis.epochs import EpochRun
    from kafka_forensics.analysis.kinds.evidence_classes import RemoteSegmentDiffersEvidence
    from kafka_forensics.analysis.segments import SegmentTotals

_ABOUT_BYTES: Final = kinds_with(Trait.WRONG_BYTES, Trait.RECORDS_IN_DOUBT, Trait.HIDES_OFFSETS)


class StoredSizes(NamedTuple):
    """What is in the store of a log."""

    sizes: Mapping[int, int]
    """Base offset of a segment → size in bytes of its log, as the broker copied it."""
    is_plain: bool
    """Whether the objects have these sizes: then their listing shows which of them are cut."""


def remote_object_findings(log: Replica, stored: StoredSizes, replicas: Sequence[Replica], reader: BatchReader) -> list[Finding]:
    """All findings about a log in a remote store; `replicas` are those of the same partition that were read."""
    segments = {f"{log.context.directory}/{log.context.log_file(segment.start_offset)}": segment for segment in _segments(log)}
    cut = _cut_objects(segments, stored)
    about_bytes = (found for found in damage_findings(log) if found.kind in _ABOUT_BYTES)
    findings = [found for found in about_bytes if not _is_end_of_object(found, cut)]
    with_copies = [_with_holders(found, log, replicas) for found in findings]
    unchecked = {*cut, *(found.place.file for found in findings)}
    checked = (segment for file, segment in segments.items() if file not in unchecked)
    by_events = [found for segment in checked for found in _contradictions(log, segment, stored)]
    return [*with_copies, *by_events, *_differences(log, replicas, reader)]


def _segments(log: Replica) -> list[RemoteSegment]:
    """The segments of a log, by their events, that were read to their end; none without events."""
    finished = () if log.context.remote_log is None else log.context.remote_log.finished
    ids = set(log.context.segment_ids.values())
    return [segment for segment in finished if segment.segment_id in ids and segment.start_offset not in log.state.unread]


def _cut_objects(segments: Mapping[str, RemoteSegment], stored: StoredSizes) -> dict[str, int]:
    """File → size of the objects that are smaller than their events say; their listing shows it, too."""
    sizes = {file: stored.sizes[segment.start_offset] for file, segment in segments.items()} if stored.is_plain else {}
    return {file: size for file, size in sizes.items() if size < segments[file].size_in_bytes}


def _is_end_of_object(found: Finding, cut: Mapping[str, int]) -> bool:
    """Whether damage is only the place where an object is cut."""
    file, end = found.place.file, found.place.byte_end
    return file is not None and file in cut and end is not None and end >= cut[file]


def _with_holders(found: Finding, log: Replica, replicas: Sequence[Replica]) -> Finding:
    """Damage with the brokers that have its offsets whole on their disks, of the same leader epoch."""
    start, end = found.place.offset_start, found.place.offset_end
    if start is None or end is None:
        return found
    epoch = epoch_at(log.epochs, start)
    same = (replica for replica in replicas if replica.covers(start, end) and epoch_at(replica.epochs, start) == epoch)
    return found.with_evidence(held_by=[replica.broker for replica in same])


def _contradictions(log: Replica, segment: RemoteSegment, stored: StoredSizes) -> Iterator[Finding]:
    """What the batches of an object have otherwise than the event of its segment says."""
    totals = log.state.framing.by_segment.get(segment.start_offset)
    if totals is None:
        return
    size = stored.sizes[segment.start_offset]
    pairs = (
        ("size_in_bytes", size, segment.size_in_bytes, not stored.is_plain and size != segment.size_in_bytes),
        ("start_offset", totals.first_offset, segment.start_offset, totals.first_offset < segment.start_offset),
        ("end_offset", totals.last_offset, segment.end_offset, totals.last_offset > segment.end_offset),
        ("max_timestamp_ms", totals.max_timestamp, segment.max_timestamp_ms, _is_other_time(totals, segment)),
    )
    for field, found, listed, differs in pairs:
        if differs:
            yield _contradiction(log, segment, field, (found, listed))
    for run in log.state.epochs.runs:
        start, end = max(run.start_offset, segment.start_offset), min(run.end_offset, segment.end_offset + 1)
        wrong = None if start >= end else _other_epoch(segment, run, start, end)
        if wrong is not None:
            yield _contradiction(log, segment, "leader_epoch", (run.leader_epoch, wrong), (start, end))


def _is_other_time(totals: "SegmentTotals", segment: RemoteSegment) -> bool:
    """Whether records are newer than the newest one by the event; without timestamps brokers take the time of the file."""
    return totals.max_timestamp > segment.max_timestamp_ms >= 0


def _other_epoch(segment: RemoteSegment, run: "EpochRun", start: int, end: int) -> int | None:
    """An epoch that the event lists for some of the offsets of batches of another epoch; None if there is none."""
    starts = [start, *(entry.start_offset for entry in segment.leader_epochs if start < entry.start_offset < end)]
    epochs = (epoch_at(segment.leader_epochs, offset) for offset in starts)
    return next((epoch for epoch in epochs if epoch is not None and epoch != run.leader_epoch), None)


def _differences(log: Replica, replicas: Sequence[Replica], reader: BatchReader) -> Iterator[Finding]:
    """Other records than replicas have on their disks at the same offsets of the same leader epoch; one finding a segment."""
    by_segment: dict[int, list[tuple[Difference, Broker]]] = {}
    for replica in replicas:
        for difference in differences(log, replica, reader):
            base_offset, (ours, theirs) = int(difference.left.row[-1]), difference.epochs
            if difference.kind == "content" and ours == theirs and base_offset != IN_REMOTE_STORAGE:
                by_segment.setdefault(base_offset, []).append((difference, replica.broker))
    for base_offset, differing in sorted(by_segment.items()):
        start, end = min(row.offset for row, _ in differing), max(row.end_offset for row, _ in differing)
        evidence: RemoteSegmentDiffersEvidence = {
            "segment_id": log.context.segment_ids[base_offset],
            "differs_in": "records",
            "than_brokers": list(dict.fromkeys(broker for _, broker in differing)),
            "leader_epoch": differing[0][0].epochs[0],
        }
        place = log.context.place(log.context.log_file(base_offset), offset_start=start, offset_end=end)
        yield finding("REMOTE_SEGMENT_DIFFERS", place, evidence)


def _contradiction(
    log: Replica, segment: RemoteSegment, field: str, values: tuple[int, int], offsets: tuple[int, int] | None = None
) -> Finding:
    """A field with (what the object has, what the event says), of some offsets of the segment or of all."""
    start, end = offsets or segment.offsets
    place = log.context.place(log.context.log_file(segment.start_offset), offset_start=start, offset_end=end)
    found, listed = values
    evidence: RemoteSegmentDiffersEvidence = {
        "segment_id": segment.segment_id,
        "differs_in": field,
        "found": found,
        "listed": listed,
    }
    return finding("REMOTE_SEGMENT_DIFFERS", place, evidence)
