"""What `__remote_log_metadata` says of the remote store (KIP-405): the segments of tiered partitions, each in its last state."""

from dataclasses import dataclass, field
from enum import IntEnum

from kafka_forensics.model.files import EpochEntry


class RemoteSegmentState(IntEnum):
    """Kafka's states and their numbers (RemoteLogSegmentState)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    def may_follow(self, before: "RemoteSegmentState | None") -> bool:
        """Whether brokers take this state after that one, None where they do not know the segment."""
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
    """Kafka's states of a partition whose remote log is to be deleted; Kafka 4.3.1 writes none of them."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment that was copied to the remote store, or was begun to be, as its last event leaves it."""

    segment_id: str
    """22 characters of base64url."""
    start_offset: int
    end_offset: int
    """The last offset, INCLUSIVE as in Kafka's record: the base offset of the next segment less one."""
    leader_epochs: tuple[EpochEntry, ...]
    """The leader's epochs within the segment, ascending; the first one starts at `start_offset`. Never empty."""
    size_in_bytes: int
    """Of the local `.log`; the object may be smaller where the plugin compresses."""
    max_timestamp_ms: int
    broker_id: int
    """Of the last event."""
    state: RemoteSegmentState
    event_timestamp_ms: int
    """When the last event was written, by its broker's clock."""
    metadata_partition: int
    metadata_offset: int
    """Partition of `__remote_log_metadata` and offset of the last event."""
    txn_index_empty: bool
    """False also where brokers did not tell (before Kafka 3.9)."""
    custom_metadata: bytes | None
    """What the plugin keeps with the segment; None where it keeps nothing, and in redacted bundles."""


@dataclass(frozen=True, slots=True)
class RemoteLog:
    """The remote segments of one partition, by start offset, then in the order of their last events."""

    topic: str
    topic_id: str
    partition: int
    segments: tuple[RemoteSegment, ...]

    @property
    def finished(self) -> tuple[RemoteSegment, ...]:
        """Segments that readers of the cluster can be given, in and out of the leader's lineage."""
        return tuple(segment for segment in self.segments if segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED)


@dataclass(slots=True)
class RemoteLogHistory:
    """Every partition of `__remote_log_metadata` among the copies, replayed."""

    logs: dict[tuple[str, int], RemoteLog] = field(default_factory=dict)
    """By topic id and partition."""
    partitions_read: set[int] = field(default_factory=set)
    """Those of `__remote_log_metadata` of which a copy is there."""
    partitions_missing: set[int] = field(default_factory=set)
    """Those that the controllers' log knows and of which no copy is there: any segment may have its events there."""
    copies_read: set[tuple[int | str, str, int]] = field(default_factory=set)
    """Broker, log directory and partition of the copies that were replayed: one of each partition of a cluster."""
    damaged: bool = False
    """Whether events may be missing: bytes of a log that was read are damaged, or could not be read, or are no such record."""
    dropped: int = 0
    """Events that no broker takes: of a segment that none began, or in a state that may not follow."""
    forgotten: int = 0
    """Deleted segments that are left out, because there are very many."""

    @property
    def names(self) -> set[str]:
        """Topics of which a segment was ever begun to be copied: they are, or were, tiered."""
        return {log.topic for log in self.logs.values()}

    def log_of(self, topic: str, partition: int, topic_id: str | None = None) -> RemoteLog | None:
        """The remote log of a partition; without a topic id that of the topic of this name which was written to last."""
        if topic_id is not None:
            return self.logs.get((topic_id, partition))
        logs = [log for log in self.logs.values() if log.topic == topic and log.partition == partition]
        return max(logs, key=lambda log: max(segment.event_timestamp_ms for segment in log.segments), default=None)
