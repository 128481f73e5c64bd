"""Remote segments of tiered partitions (KIP-405): last states by `__remote_log_metadata`, and objects in a remote store."""

from enum import IntEnum
from typing import Final

from msgspec import Struct, field

from kafka_forensics.model.files import EpochEntry

REMOTE: Final = "remote"
"""Stands for the broker of a log that is read from a remote store; no broker gets this name."""


class RemoteSegmentState(IntEnum):
    """Kafka's states and their numbers (RemoteLogSegmentState)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    def may_follow(self, before: "RemoteSegmentState | None") -> bool:
        """Whether brokers accept this state after `before`; None: an unknown segment."""
        return before is self or (before, self) in _TRANSITIONS


_TRANSITIONS = frozenset(
    {
        (None, RemoteSegmentState.COPY_SEGMENT_STARTED),
        (RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.COPY_SEGMENT_FINISHED),
        (RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.DELETE_SEGMENT_STARTED),
        (RemoteSegmentState.COPY_SEGMENT_FINISHED, RemoteSegmentState.DELETE_SEGMENT_STARTED),
        (RemoteSegmentState.DELETE_SEGMENT_STARTED, RemoteSegmentState.DELETE_SEGMENT_FINISHED),
    }
)


class RemotePartitionDeleteState(IntEnum):
    """Kafka's states of deleting the remote log of a partition; Kafka 4.3.1 writes none of them."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


class RemoteSegment(Struct, frozen=True):
    """A remote segment, or one whose copy has started, after its last event."""

    segment_id: str
    """22 characters of base64url."""
    start_offset: int
    end_offset: int
    """The last offset, INCLUSIVE as in Kafka's record: the base offset of the next segment minus one."""
    leader_epochs: tuple[EpochEntry, ...]
    """The leader's epochs in the segment, ascending, never empty; the first starts at `start_offset`."""
    size_in_bytes: int
    """Of the local `.log`; the remote object may be smaller if the plugin compresses."""
    max_timestamp_ms: int
    broker_id: int
    """Of the last event."""
    state: RemoteSegmentState
    event_timestamp_ms: int
    """Time of the last event by its broker's clock."""
    metadata_partition: int
    metadata_offset: int
    """Partition of `__remote_log_metadata` and offset of the last event."""
    txn_index_empty: bool
    """Also False if unknown (before Kafka 3.9)."""
    custom_metadata: bytes | None
    """Data of the plugin; None: it has none, or the bundle is redacted."""

    @property
    def offsets(self) -> tuple[int, int]:
        """Its offsets `[start, end)`."""
        return self.start_offset, self.end_offset + 1

    @property
    def is_deleted(self) -> bool:
        """Whether its deletion has begun."""
        return self.state in (RemoteSegmentState.DELETE_SEGMENT_STARTED, RemoteSegmentState.DELETE_SEGMENT_FINISHED)


class RemoteLog(Struct, frozen=True):
    """The remote segments of one partition, by start offset, then in the order of their last events."""

    topic: str
    topic_id: str
    partition: int
    segments: tuple[RemoteSegment, ...]
    is_complete: bool = True
    """Whether all events of the partition were read."""
    lacks_deleted: bool = False
    """Whether deleted segments are left out because of the limit."""

    @property
    def finished(self) -> tuple[RemoteSegment, ...]:
        """Segments whose copy is finished, whether they belong to the leader's log or not."""
        return tuple(segment for segment in self.segments if segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED)


class RemoteLogHistory(Struct):
    """All replayed partitions of `__remote_log_metadata` on the copies."""

    logs: dict[tuple[str, int], RemoteLog] = field(default_factory=dict)
    """By topic id and partition."""
    partitions_read: set[int] = field(default_factory=set)
    """Partitions of `__remote_log_metadata` with a copy."""
    partitions_missing: set[int] = field(default_factory=set)
    """Partitions of it without a copy, by the controllers' log; any segment may have events there."""
    copies_read: set[tuple[int | str, str, int]] = field(default_factory=set)
    """Broker, log directory and partition of the replayed copies: one of each partition of a cluster."""
    damaged: bool = False
    """Whether events may be missing, because parts of a log are damaged or unreadable."""
    dropped: int = 0
    """Events that brokers drop: of an unknown segment, or with a state that may not follow."""
    forgotten: int = 0
    """Deleted segments left out because of the limit."""

    @property
    def names(self) -> set[str]:
        """Topics with a segment whose copy has ever started: they are or were tiered."""
        return {log.topic for log in self.logs.values()}

    def log_of(self, topic: str, partition: int, topic_id: str | None = None) -> RemoteLog | None:
        """The remote log of a partition; without a topic id, of the topic with this name that has the newest event."""
        if topic_id is not None:
            return self.logs.get((topic_id, partition))
        logs = [log for log in self.logs.values() if log.topic == topic and log.partition == partition]
        return max(logs, key=lambda log: max(segment.event_timestamp_ms for segment in log.segments), default=None)


class StoredSegment(Struct, frozen=True):
    """The objects of one segment in a remote store, as they were listed."""

    start_offset: int
    segment_id: str
    objects: dict[str, int]
    """Suffix of the object's name → size in bytes."""
    directory: str = ""
    """Path of the objects in the store's source."""


class StoredLog(Struct, frozen=True):
    """The objects of one partition in a remote store."""

    topic: str
    """By the objects' names; with the prefix of the store's configuration, if it has one without `/`."""
    topic_id: str
    partition: int
    segments: dict[str, StoredSegment]
    """By segment id, in the order of the listing; empty: the store has no object of the partition."""
    needed: tuple[str, ...] = ()
    """Suffixes of the objects without which brokers do not serve a segment; the first is that of the log."""
    is_plain: bool = False
    """Whether the object of a log has the size of the segment."""
    is_elsewhere: bool = False
    """Whether the store has none of its objects, but some of other partitions: it may be in a part that was not given."""
