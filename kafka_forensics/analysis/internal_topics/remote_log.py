"""Replaying a partition of `__remote_log_metadata` as a broker would (RemoteLogMetadataCache)."""

from base64 import b64decode
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.remote_log import RemoteLog, RemoteSegment, RemoteSegmentState

MAX_DELETED: Final = 1 << 13
"""Deleted segments of one partition of `__remote_log_metadata` that are held: the topic keeps the events of all for good."""
_Key = tuple[str, str, int]
"""Topic, topic id, partition."""


class RemoteLogReplay:
    """Segments by their ids while events come in by offset; those that are deleted are held until there are `max_deleted`."""

    def __init__(self, metadata_partition: int, max_deleted: int = MAX_DELETED) -> None:
        self.metadata_partition = metadata_partition
        self.dropped = 0
        self.forgotten = 0
        self._max_deleted = max_deleted
        self._segments: dict[str, tuple[_Key, RemoteSegment]] = {}
        self._deleted: deque[str] = deque()

    def take(self, fields: Json, metadata_offset: int) -> bool:
        """One event; `fields` as `parsers.internal_topics.decode_remote_log_record` reads them. Whether brokers take it, too.

        An event that may not follow is dropped, as brokers drop it: a record of a whole segment has no other state than
        COPY_SEGMENT_STARTED, an update never has it. Events of whole partitions change no segment.
        """
        if "remote_log_segment_id" not in fields:
            is_snapshot = "segment_id" in fields
            self.dropped += is_snapshot
            return not is_snapshot
        segment_id = fields["remote_log_segment_id"]["id"]
        state = RemoteSegmentState(fields["remote_log_segment_state"])
        is_whole = "start_offset" in fields
        known = self._segments.get(segment_id)
        before = None if known is None else known[1].state
        if is_whole != (state is RemoteSegmentState.COPY_SEGMENT_STARTED) or not state.may_follow(before):
            self.dropped += 1
            return False
        if is_whole:
            self._segments[segment_id] = _key(fields), _segment(fields, self.metadata_partition, metadata_offset)
        elif known is not None:
            self._segments[segment_id] = (
                known[0],
                replace(
                    known[1],
                    broker_id=fields["broker_id"],
                    state=state,
                    event_timestamp_ms=fields["event_timestamp_ms"],
                    metadata_offset=metadata_offset,
                    custom_metadata=_custom_metadata(fields),
                ),
            )
        if state is RemoteSegmentState.DELETE_SEGMENT_FINISHED and before is not state:
            self._forget(segment_id)
        return True

    def _forget(self, segment_id: str) -> None:
        """Hold a deleted segment, and not the oldest one if there are too many."""
        self._deleted.append(segment_id)
        if len(self._deleted) > self._max_deleted:
            del self._segments[self._deleted.popleft()]
            self.forgotten += 1

    def segments(self) -> Iterator[tuple[_Key, RemoteSegment]]:
        """Every segment held, with its topic, topic id and partition."""
        yield from self._segments.values()


def remote_logs(replays: Iterable[RemoteLogReplay]) -> dict[tuple[str, int], RemoteLog]:
    """The remote log of each partition, by topic id and partition; a topic has the name that its first segment has."""
    by_partition: dict[tuple[str, int], tuple[_Key, list[RemoteSegment]]] = {}
    for replay in replays:
        for key, segment in replay.segments():
            by_partition.setdefault(key[1:], (key, []))[1].append(segment)
    logs = {}
    for partition, (key, segments) in sorted(by_partition.items()):
        segments.sort(key=lambda segment: (segment.start_offset, segment.metadata_partition, segment.metadata_offset))
        logs[partition] = RemoteLog(*key, tuple(segments))
    return logs


def _key(fields: Json) -> _Key:
    of = fields["remote_log_segment_id"]["topic_id_partition"]
    return of["name"], of["id"], of["partition"]


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
