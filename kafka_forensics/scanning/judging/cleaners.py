"""Brokers whose log cleaner stopped, by `cleaner-offset-checkpoint` and the times of segments, held against other brokers.

A cleaner cleans the log with the largest dirty ratio, if that is above `min.cleanable.dirty.ratio`, and then writes down how far it
was (LogCleanerManager.grabFilthiestCompactedLog, doneCleaning). Every broker does so by itself, so an entry that is behind another
broker's is ordinary. What no running cleaner leaves is a log that was due for hours.

Hours are counted by when files were written, not by timestamps of records: a broker that was down copies the records of a day in
minutes, and producers set timestamps as they like. A segment's file is written to until the next one begins, and a cleaned segment
keeps the time of the last one that it was made of (Cleaner.cleanSegments). Copying without the times makes all files new, and then
nothing is said.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.evidence.inputs import Inputs, LogDir, broker_order
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.findings import Finding, Place, TopicPartition
from kafka_forensics.parsers.log_dir import PartitionDirectory
from kafka_forensics.replication.recovery import CLEANER_FILE

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import CleanerStoppedEvidence

_HOUR_MS: Final = 60 * 60 * 1000
DUE_MS: Final = 12 * _HOUR_MS
"""How long logs have to be due. A cleaner sleeps 15 seconds where it finds nothing to do; one log may take it hours."""
PARTITIONS: Final = 2
"""How many logs have to be due: one alone may be a partition that the cleaner failed to clean, and passes over until a restart."""
DIRTY_RATIO: Final = 0.8
"""Taken for `min.cleanable.dirty.ratio` where no controller's log has it: the default is 0.5, and server.properties is not seen."""
_LISTED: Final = 8


class _Segment(NamedTuple):
    base_offset: int
    size_in_bytes: int
    written_ms: int
    """When its file was last written to."""


@dataclass(slots=True)
class _Log:
    """A log with an entry in the checkpoint, up to where it is cleaned, and its segments by base offset."""

    log_dir: str
    segments: list[_Segment]
    cleaned_end: int

    @property
    def cleaned(self) -> list[_Segment]:
        """The segments that a cleaner has been over; none where the entry only says where the log starts."""
        return [segment for segment in self.segments if segment.base_offset < self.cleaned_end]


@dataclass(slots=True)
class _Broker:
    logs: dict[TopicPartition, _Log] = field(default_factory=dict)
    moving: set[TopicPartition] = field(default_factory=set)
    """Partitions on their way to another of its log directories, which are not cleaned meanwhile (ReplicaManager)."""
    written_ms: list[int] = field(default_factory=list)
    """Of all segments, ascending."""
    pauses_ms: list[int] = field(default_factory=list)
    """For each of these times the longest pause behind it."""

    @property
    def newest_ms(self) -> int:
        """When it last wrote a segment; -1 without any."""
        return self.written_ms[-1] if self.written_ms else -1

    @property
    def last_cleaned_ms(self) -> int:
        """A time after which its cleaner has cleaned a log: when the newest of all cleaned segments was written."""
        return max((segment.written_ms for log in self.logs.values() for segment in log.cleaned), default=-1)


class _Due(NamedTuple):
    """A log that was due from `since_ms` to `until_ms` at least, and was not cleaned."""

    partition: TopicPartition
    log: _Log
    others_cleaned_end: int
    cleaned_on: int | str
    dirty_bytes: int
    clean_bytes: int
    since_ms: int
    until_ms: int


def stopped_cleaners(inputs: Inputs, controller: ControllerHistory | None) -> list[Finding]:
    """`CLEANER_STOPPED` for each broker with several logs that were due for hours while it ran, that other brokers cleaned further,
    and after which its cleaner cleaned nothing."""
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
            partition = directory.topic, directory.partition
            if directory.suffix == "future":
                broker.moving.add(partition)
            elif directory.suffix is None:
                segments = _segments(directory)
                cleaned_end = log_dir.offset(CLEANER_FILE, *partition)
                if cleaned_end is not None:
                    broker.logs.setdefault(partition, _Log(log_dir.name, segments, cleaned_end))
                broker.written_ms += [segment.written_ms for segment in segments]
    for broker in brokers.values():
        broker.written_ms.sort()
        pauses = [later - earlier for earlier, later in pairwise(broker.written_ms)]
        broker.pauses_ms = list(accumulate(reversed([*pauses, 0]), max))[::-1]
    return brokers


def _segments(directory: PartitionDirectory) -> list[_Segment]:
    return [_Segment(log.base_offset, log.entry.size_in_bytes, log.entry.mtime_ns // 1_000_000) for log in directory.logs()]


def _due_logs(
    broker: int | str, brokers: dict[int | str, _Broker], partitions: dict[TopicPartition, PartitionControl]
) -> Iterator[_Due]:
    """The logs of a broker that were due for `DUE_MS` while it ran.

    Younger copies of other brokers say nothing: these may have cleaned after it was copied."""
    ours = brokers[broker]
    others = {name: other for name, other in brokers.items() if name != broker and other.newest_ms <= ours.newest_ms + _HOUR_MS}
    for partition, log in ours.logs.items():
        control = partitions.get(partition)
        cleaned_ends = {name: other.logs[partition].cleaned_end for name, other in others.items() if partition in other.logs}
        furthest = max(cleaned_ends, key=lambda name: cleaned_ends[name], default=broker)
        if furthest != broker and partition not in ours.moving and _is_compacted(control):
            due = _due(log, cleaned_ends[furthest], _dirty_ratio(control))
            if due is not None and _ran(ours, due[2], due[3]):
                yield _Due(partition, log, cleaned_ends[furthest], furthest, *due)


def _is_compacted(control: PartitionControl | None) -> bool:
    """Whether the topic is still compacted, for all that the controller's log says."""
    return control is None or control.cleanup_policy is None or "compact" in control.cleanup_policy


def _dirty_ratio(control: PartitionControl | None) -> float:
    text = None if control is None else control.setting("min.cleanable.dirty.ratio")
    try:
        return DIRTY_RATIO if text is None else float(text)
    except ValueError:
        return DIRTY_RATIO


def _due(log: _Log, others_cleaned_end: int, dirty_ratio: float) -> tuple[int, int, int, int] | None:
    """Dirty bytes, clean bytes, and since and until when a log was due; None if it was not for `DUE_MS`.

    The log was due when the segments that make it so were closed. Another broker cleaned them and what was written `DUE_MS` later,
    so that neither `min.compaction.lag.ms` nor an open transaction held them back all the while.
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
    if count < 2:  # a dirty one, and one behind it, which was begun when that was closed
        return None
    dirty_bytes = sum(segment.size_in_bytes for segment in closed[: count - 1])
    clean_bytes = sum(segment.size_in_bytes for segment in clean)
    is_due = dirty_bytes > dirty_ratio * (dirty_bytes + clean_bytes)
    return (dirty_bytes, clean_bytes, times[count - 1], times[-1]) if is_due else None


def _ran(broker: _Broker, since_ms: int, until_ms: int) -> bool:
    """Whether the broker wrote segments all the while and until it was copied: no pause took half of the time.

    `since_ms` is when it wrote one of them."""
    return broker.pauses_ms[bisect_left(broker.written_ms, since_ms)] <= (until_ms - since_ms) / 2


def _finding(broker: int | str, known: _Broker, due: list[_Due]) -> Finding:
    log_dirs = {log.log.log_dir for log in due}
    evidence: CleanerStoppedEvidence = {
        "partitions": len(due),
        "dirty_bytes": sum(log.dirty_bytes for log in due),
        "clean_bytes": sum(log.clean_bytes for log in due),
        "due_since_ms": min(log.since_ms for log in due),
        "last_cleaned_ms": known.last_cleaned_ms,
        "last_written_ms": known.newest_ms,
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
