"""A partition of `__remote_log_metadata` replayed like in a broker (RemoteLogMetadataCache)."""

from base64 import b64decode
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.constants import REMOTE_LOG_METADATA_TOPIC
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.remote_log import RemoteLog, RemoteLogHistory, RemoteSegment, RemoteSegmentState
from kafka_forensics.replication.remote_segments import metadata_partition

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import RemoteEventEvidence

MAX_DELETED: Final = 1 << 13
"""Deleted segments kept per partition of `__remote_log_metadata`, which retains the events of all segments."""
_REJECTED_LISTED: Final = 64
_Key = tuple[str, str, int]
"""Topic, topic id, partition."""


class RemoteLogReplay:
    """Takes events in offset order and keeps segments by their ids, including the last `max_deleted` deleted ones."""

    def __init__(self, metadata_partition: int, max_deleted: int = MAX_DELETED) -> None:
        self.metadata_partition = metadata_partition
        self.dropped = 0
        self.rejected: list[Json] = []
        """The first of the dropped events: offset in the metadata partition, segment id, state, and state before."""
        self.last_dropped = -1
        self.forgotten = 0
        self._max_deleted = max_deleted
        self._segments: dict[str, tuple[_Key, RemoteSegment]] = {}
        self._deleted: deque[str] = deque()

    def take(self, fields: Json, metadata_offset: int) -> bool:
        """Add an event; `fields` as from `parsers.internal_topics.decode_remote_log_record`. Returns whether brokers accept it.

        An invalid transition is dropped, as brokers do: a record of a whole segment must have the state COPY_SEGMENT_STARTED, an
        update must not. Events of partitions change no segment.
        """
        if "remote_log_segment_id" not in fields:
            if is_snapshot := "segment_id" in fields:
                self._reject(metadata_offset, fields["segment_id"], RemoteSegmentState(fields["remote_log_segment_state"]))
            return not is_snapshot
        segment_id = fields["remote_log_segment_id"]["id"]
        state = RemoteSegmentState(fields["remote_log_segment_state"])
        is_whole = "start_offset" in fields
        key, segment = self._segments.get(segment_id, (None, None))
        before = None if segment is None else segment.state
        if is_whole != (state is RemoteSegmentState.COPY_SEGMENT_STARTED) or not state.may_follow(before):
            self._reject(metadata_offset, segment_id, state, before)
            return False
        if is_whole:
            topic_partition = fields["remote_log_segment_id"]["topic_id_partition"]
            key = topic_partition["name"], topic_partition["id"], topic_partition["partition"]
            self._segments[segment_id] = key, _segment(fields, self.metadata_partition, metadata_offset)
        elif key is not None and segment is not None:
            self._segments[segment_id] = (
                key,
                replace(
                    segment,
                    broker_id=fields["broker_id"],
                    state=state,
                    event_timestamp_ms=fields["event_timestamp_ms"],
                    metadata_offset=metadata_offset,
                    custom_metadata=_custom_metadata(fields),
                ),
            )
        if state is RemoteSegmentState.DELETE_SEGMENT_FINISHED and before is not state:
            self._deleted.append(segment_id)
            if len(self._deleted) > self._max_deleted:
                del self._segments[self._deleted.popleft()]
                self.forgotten += 1
        return True

    def _reject(
        self, metadata_offset: int, segment_id: str, state: RemoteSegmentState, before: RemoteSegmentState | None = None
    ) -> None:
        self.dropped += 1
        self.last_dropped = metadata_offset
        if len(self.rejected) < _REJECTED_LISTED:
            event: Json = {"offset": metadata_offset, "segment_id": segment_id, "state": state.name}
            self.rejected.append(event | ({} if before is None else {"state_before": before.name}))

    def segments(self) -> Iterator[tuple[_Key, RemoteSegment]]:
        """Every segment kept, with its topic, topic id and partition."""
        yield from self._segments.values()


def rejected_events(replay: RemoteLogReplay) -> list[Finding]:
    """`REMOTE_EVENT_REJECTED` if brokers drop events of a metadata partition: what these say does not count."""
    if not replay.rejected:
        return []
    evidence: RemoteEventEvidence = {"reason": "transition", "events": replay.rejected, "events_count": replay.dropped}
    start, end = replay.rejected[0]["offset"], replay.last_dropped + 1
    place = Place(REMOTE_LOG_METADATA_TOPIC, replay.metadata_partition, offset_start=start, offset_end=end)
    return [finding("REMOTE_EVENT_REJECTED", place, evidence)]


def misplaced_events(history: RemoteLogHistory, partitions_count: int) -> list[Finding]:
    """`REMOTE_EVENT_REJECTED` for segments whose events are in a partition where no broker looks for them: the number of partitions
    of `__remote_log_metadata` was raised, or something else wrote them."""
    misplaced: dict[tuple[int, int], list[RemoteSegment]] = {}
    for (topic_id, partition), log in history.logs.items():
        expected = metadata_partition(topic_id, partition, partitions_count)
        for segment in log.segments:
            if segment.metadata_partition != expected:
                misplaced.setdefault((segment.metadata_partition, expected), []).append(segment)
    findings = []
    for (found_in, expected), segments in sorted(misplaced.items()):
        segments.sort(key=lambda segment: segment.metadata_offset)
        evidence: RemoteEventEvidence = {
            "reason": "partition",
            "events": [
                {"offset": segment.metadata_offset, "segment_id": segment.segment_id, "state": segment.state.name}
                for segment in segments[:_REJECTED_LISTED]
            ],
            "events_count": len(segments),
            "expected_partition": expected,
        }
        start, end = segments[0].metadata_offset, segments[-1].metadata_offset + 1
        place = Place(REMOTE_LOG_METADATA_TOPIC, found_in, offset_start=start, offset_end=end)
        findings.append(finding("REMOTE_EVENT_REJECTED", place, evidence))
    return findings


def remote_logs(replays: Sequence[RemoteLogReplay], *, is_complete: bool = True) -> dict[tuple[str, int], RemoteLog]:
    """The remote logs by topic id and partition; the name of a topic is that of its first segment. `is_complete`: no event of these
    metadata partitions is missing."""
    lacks_deleted = any(replay.forgotten for replay in replays)
    by_partition: dict[tuple[str, int], tuple[_Key, list[RemoteSegment]]] = {}
    for replay in replays:
        for key, segment in replay.segments():
            by_partition.setdefault(key[1:], (key, []))[1].append(segment)
    logs = {}
    for partition, (key, segments) in sorted(by_partition.items()):
        segments.sort(key=lambda segment: (segment.start_offset, segment.metadata_partition, segment.metadata_offset))
        logs[partition] = RemoteLog(*key, tuple(segments), is_complete, lacks_deleted)
    return logs


def _segment(fields: Json, metadata_partition: int, metadata_offset: int) -> RemoteSegment:
    epochs = {entry["leader_epoch"]: entry["offset"] for entry in fields["segment_leader_epochs"]}
    return RemoteSegment(
        segment_id=fields["remote_log_segment_id"]["id"],
        start_offset=fields["start_offset"],
        end_offset=fields["end_offset"],
        leader_epochs=tuple(EpochEntry(*entry) for entry in sorted(epochs.items())),
        size_in_bytes=fields["segment_size_in_bytes"],
        max_timestamp_ms=fields["max_timestamp_ms"],
        broker_id=fields["broker_id"],
        state=RemoteSegmentState(fields["remote_log_segment_state"]),
        event_timestamp_ms=fields["event_timestamp_ms"],
        metadata_partition=metadata_partition,
        metadata_offset=metadata_offset,
        txn_index_empty=fields["txn_index_empty"],
        custom_metadata=_custom_metadata(fields),
    )


def _custom_metadata(fields: Json) -> bytes | None:
    text = fields["custom_metadata"]
    return None if text is None else b64decode(text)
