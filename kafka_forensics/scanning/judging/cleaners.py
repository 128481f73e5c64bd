"""Brokers whose log cleaner stopped, by `cleaner-offset-checkpoint` and file times, in comparison with other brokers.

A cleaner cleans the log with the largest dirty ratio above `min.cleanable.dirty.ratio`, and then writes its checkpoint
(LogCleanerManager.grabFilthiestCompactedLog, doneCleaning). Brokers clean independently, so an entry below that of another broker
is ordinary; a log that was due for hours is not.

Times are those of files, not of records: a broker that was down fetches a day's records in minutes, and producers set any
timestamps. A segment is written to until the next one begins, and a cleaned segment keeps the time of the last segment it was made
of (Cleaner.cleanSegments). A copy without file times makes all files new, and gives no finding.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.evidence.inputs import Inputs, LogDir, broker_order
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.findings import Finding, Place, TopicPartition
from kafka_forensics.replication.recovery import CLEANER_FILE

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import CleanerStoppedEvidence

_HOUR_MS: Final = 60 * 60 * 1000
DUE_MS: Final = 12 * _HOUR_MS
"""How long logs must have been due: an idle cleaner sleeps 15 seconds, but cleaning one log may take hours."""
PARTITIONS: Final = 2
"""How many logs must have been due: a cleaner skips a single partition that it failed to clean, until a restart."""
DIRTY_RATIO: Final = 0.8
"""Used for `min.cleanable.dirty.ratio` unless the topic sets it: the default is 0.5, but server.properties may set another."""
_LISTED: Final = 8


class _Segment(NamedTuple):
    base_offset: int
    size_in_bytes: int
    written_ms: int
    """Modification time of its file."""


class _CompactedLog(Struct):
    """A log with an entry in the checkpoint: cleaned up to offset `cleaned_end`; segments by base offset."""

    log_dir: str
    segments: list[_Segment]
    cleaned_end: int

    @property
    def cleaned(self) -> list[_Segment]:
        """The segments before `cleaned_end`; none if that is the log start offset."""
        return [segment for segment in self.segments if segment.base_offset < self.cleaned_end]


class _Broker(Struct):
    logs: dict[TopicPartition, _CompactedLog] = field(default_factory=dict)
    moving: set[TopicPartition] = field(default_factory=set)
    """Partitions that move to another of its log directories, which are not cleaned meanwhile (ReplicaManager)."""
    written_ms: list[int] = field(default_factory=list)
    """Times of all segments, ascending."""
    pauses_ms: list[int] = field(default_factory=list)
    """For each of these times, the longest pause after it."""

    @property
    def newest_ms(self) -> int:
        """When it last wrote a segment; -1 without any."""
        return self.written_ms[-1] if self.written_ms else -1

    @property
    def last_cleaned_ms(self) -> int:
        """The time of the newest cleaned segment, after which its cleaner cleaned a log."""
        return max((segment.written_ms for log in self.logs.values() for segment in log.cleaned), default=-1)


class _DueLog(NamedTuple):
    """A log that was due at least from `since_ms` to `until_ms`, and was not cleaned."""

    partition: TopicPartition
    log: _CompactedLog
    others_cleaned_end: int
    cleaned_on: int | str
    dirty_bytes: int
    clean_bytes: int
    since_ms: int
    until_ms: int


def stopped_cleaners(inputs: Inputs, controller: ControllerHistory | None) -> list[Finding]:
    """`CLEANER_STOPPED` for each running broker with several logs that were due for hours, and that other brokers cleaned further,
    if its cleaner cleaned nothing afterwards."""
    brokers = _brokers(inputs.log_dirs)
    partitions = {} if controller is None else controller.partitions
    findings = []
    for broker in sorted(brokers, key=broker_order):
        last_cleaned_ms = brokers[broker].last_cleaned_ms
        due = [log for log in _due_logs(broker, brokers, partitions) if log.since_ms >= last_cleaned_ms]
        if len(due) >= PARTITIONS:
            findings.append(_finding(broker, brokers[broker], due))
    return findings


def _brokers(log_dirs: Iterable[LogDir]) -> dict[int | str, _Broker]:
    brokers: dict[int | str, _Broker] = {}
    for log_dir in log_dirs:
        broker = brokers.setdefault(log_dir.broker, _Broker())
        for directory in log_dir.found.partitions:
            if directory.topic is None or directory.partition is None:
                continue
            partition, logs = (directory.topic, directory.partition), directory.logs()
            if directory.suffix == "future":
                broker.moving.add(partition)
            elif directory.suffix is None:
                segments = [_Segment(log.base_offset, log.entry.size_in_bytes, log.entry.mtime_ns // 1_000_000) for log in logs]
                cleaned_end = log_dir.offset(CLEANER_FILE, *partition)
                if cleaned_end is not None:
                    broker.logs.setdefault(partition, _CompactedLog(log_dir.name, segments, cleaned_end))
                broker.written_ms += [segment.written_ms for segment in segments]
    for broker in brokers.values():
        broker.written_ms.sort()
        pauses = [later - earlier for earlier, later in pairwise(broker.written_ms)]
        broker.pauses_ms = list(accumulate(reversed([*pauses, 0]), max))[::-1]
    return brokers


def _due_logs(
    broker: int | str, brokers: dict[int | str, _Broker], partitions: dict[TopicPartition, PartitionControl]
) -> Iterator[_DueLog]:
    """The logs of a broker that were due for `DUE_MS` while it ran, in comparison with copies that are not younger."""
    ours = brokers[broker]
    others = {name: other for name, other in brokers.items() if name != broker and other.newest_ms <= ours.newest_ms + _HOUR_MS}
    for partition, log in ours.logs.items():
        control = partitions.get(partition)
        cleaned_ends = {name: other.logs[partition].cleaned_end for name, other in others.items() if partition in other.logs}
        furthest = max(cleaned_ends, key=lambda name: cleaned_ends[name], default=broker)
        is_compacted = control is None or control.cleanup_policy is None or "compact" in control.cleanup_policy
        if furthest != broker and partition not in ours.moving and is_compacted:
            due = _due(log, cleaned_ends[furthest], _dirty_ratio(control))
            if due is not None and _was_running(ours, due[2], due[3]):
                yield _DueLog(partition, log, cleaned_ends[furthest], furthest, *due)


def _dirty_ratio(control: PartitionControl | None) -> float:
    text = None if control is None else control.setting("min.cleanable.dirty.ratio")
    try:
        return DIRTY_RATIO if text is None else float(text)
    except ValueError:
        return DIRTY_RATIO


def _due(log: _CompactedLog, others_cleaned_end: int, dirty_ratio: float) -> tuple[int, int, int, int] | None:
    """(dirty bytes, clean bytes, due since ms, due until ms) of a log; None if it was not due for `DUE_MS`.

    It was due when the segments that make it dirty enough were closed. Another broker cleaned them and segments written `DUE_MS`
    later, so neither `min.compaction.lag.ms` nor an open transaction kept them from being cleaned all the time.
    """
    clean = log.cleaned
    closed = [
        segment
        for segment, following in pairwise(log.segments)
        if segment.base_offset >= log.cleaned_end and following.base_offset <= others_cleaned_end
    ]
    times = [segment.written_ms for segment in closed]
    if not clean or not closed or times != sorted(times):
        return None
    count = sum(written_ms <= times[-1] - DUE_MS for written_ms in times)
    if count < 2:  # a dirty one, and the next, which began when that was closed
        return None
    dirty_bytes = sum(segment.size_in_bytes for segment in closed[: count - 1])
    clean_bytes = sum(segment.size_in_bytes for segment in clean)
    is_due = dirty_bytes > dirty_ratio * (dirty_bytes + clean_bytes)
    return (dirty_bytes, clean_bytes, times[count - 1], times[-1]) if is_due else None


def _was_running(broker: _Broker, since_ms: int, until_ms: int) -> bool:
    """Whether the broker ran from `since_ms`, the time of a segment: no pause between segments took half of the time."""
    return broker.pauses_ms[bisect_left(broker.written_ms, since_ms)] <= (until_ms - since_ms) / 2


def _finding(broker: int | str, cleaned_broker: _Broker, due: list[_DueLog]) -> Finding:
    log_dirs = {log.log.log_dir for log in due}
    evidence: CleanerStoppedEvidence = {
        "partitions": len(due),
        "dirty_bytes": sum(log.dirty_bytes for log in due),
        "clean_bytes": sum(log.clean_bytes for log in due),
        "due_since_ms": min(log.since_ms for log in due),
        "last_cleaned_ms": cleaned_broker.last_cleaned_ms,
        "last_written_ms": cleaned_broker.newest_ms,
        "logs": [
            {
                "partition": "-".join(map(str, log.partition)),
                "cleaned_end_offset": log.log.cleaned_end,
                "others_cleaned_end_offset": log.others_cleaned_end,
                "cleaned_on": log.cleaned_on,
                "dirty_bytes": log.dirty_bytes,
                "clean_bytes": log.clean_bytes,
            }
            for log in sorted(due, key=lambda log: (-log.dirty_bytes, log.partition))[:_LISTED]
        ],
        "premises": ["the times of segments are those at which the broker wrote them"],
    }
    place = Place(broker=broker, log_dir=log_dirs.pop() if len(log_dirs) == 1 else None, file=CLEANER_FILE)
    return finding("CLEANER_STOPPED", place, evidence)
