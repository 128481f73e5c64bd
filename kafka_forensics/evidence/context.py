"""The facts of one replica from its small files and from other logs, gathered before its log is read."""

from collections.abc import Callable, Iterable
from typing import TypedDict, TypeVar, Unpack

from msgspec import Struct, field

from kafka_forensics.evidence.ledger import ExpectedReplica
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.coordinators import CommittedOffset
from kafka_forensics.model.files import EpochEntry, LeaderEpochs
from kafka_forensics.model.findings import Place, TopicPartition
from kafka_forensics.model.remote_log import RemoteLog, StoredLog

Log = TypeVar("Log")


class Bounds(TypedDict, total=False):
    """Ranges of bytes and offsets of a `Place`, ends exclusive."""

    byte_start: int | None
    byte_end: int | None
    offset_start: int | None
    offset_end: int | None


class ReplicaContext(Struct):
    """One replica of one partition; None means that the files do not say."""

    topic: str
    partition: int
    broker: int | str
    log_dir: str
    directory: str
    """Name of the partition directory, relative to `log_dir`."""
    topic_id: str | None = None
    has_damaged_topic_id: bool = False
    """Whether it has an invalid `partition.metadata`."""
    high_watermark: int | None = None
    """From `replication-offset-checkpoint`."""
    recovery_point: int | None = None
    log_start_checkpoint: int | None = None
    cleaner_checkpoint: int | None = None
    """From `cleaner-offset-checkpoint`, which lists compacted topics only: first dirty offset."""
    compacted: bool = False
    clean_shutdown: bool = False
    live: bool = False
    """Whether the copy was made of a running broker (`--live`)."""
    leader_epochs: LeaderEpochs | None = None
    """None without a `leader-epoch-checkpoint`, and until `read_leader_epochs`."""
    control: PartitionControl | None = None
    """The partition's latest state in the controllers' log."""
    node_id: int | str | None = None
    """The broker's node id, if `broker` is a name that was given."""
    remote_log: RemoteLog | None = None
    """The partition's remote segments by `__remote_log_metadata`; None if not read, or a missing partition of it may have them."""
    stored_log: StoredLog | None = None
    """Its objects in the remote store; None if no store was given, or not the one of this cluster."""
    is_tiered: bool = False
    """Whether the topic uses tiered storage (KIP-405): then the log begins before its first local segment."""
    is_remote: bool = False
    """Whether it is a log in a remote store, and not the replica of a broker; an object given by itself counts as a replica."""
    object_names: dict[int, str] | None = None
    """Of a log of objects of a remote store: base offset of a segment → name of the object with its records: the start offset in 20
    digits, `-`, the segment's id in 22 characters, and `.log`; with its directories if the segments are in several. None for a
    replica on a disk."""
    segment_ids: dict[int, str] = field(default_factory=dict)
    """Of a log in a remote store: base offset of a segment → its id."""
    committed: list[CommittedOffset] = field(default_factory=list)
    """Offsets that groups committed for the partition."""
    decided: bool = False
    """Whether the transaction coordinators' log has a decision that lists the partition."""
    without_copy: list[ExpectedReplica] = field(default_factory=list)
    """Expected replicas of the partition without a copy (`ledger`); equal for all its replicas."""
    segments_being_deleted: list[int] = field(default_factory=list)
    """Base offsets of `.log.deleted` files, which a broker is about to delete."""
    segment_base_offsets: list[int] = field(default_factory=list)
    """Base offsets of the live `.log` files, ascending."""
    not_followed: list[int] = field(default_factory=list)
    """Those of them whose file is a link that is not followed, or a special file: the log may end before them."""
    snapshots: list[int] | None = None
    """Of the controllers' log: end offsets of the snapshots from which the node may start; None if unknown, and for other logs."""
    log_unknown: bool = False
    """Whether its directory could not be listed, or was copied without `.log` files."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of this replica."""
        return self.topic, self.partition

    @property
    def node(self) -> int | str:
        """The replica's broker in the controllers' log."""
        return self.broker if self.node_id is None else self.node_id

    @property
    def snapshot_end(self) -> int:
        """A snapshot replaces all records of the controllers' log before this offset; 0 without one."""
        return max(self.snapshots or (), default=0)

    @property
    def epoch_checkpoint(self) -> list[EpochEntry] | None:
        """The entries of `leader-epoch-checkpoint`; None without one, and for an invalid one, which Kafka ignores completely."""
        epochs = self.leader_epochs
        return None if epochs is None or epochs.damage else epochs.entries

    def place(self, file: str | None = None, **bounds: Unpack[Bounds]) -> Place:
        """A place in this replica; `file` is a name inside the partition directory."""
        path = None if file is None else f"{self.directory}/{file}"
        return Place(self.topic, self.partition, self.broker, self.log_dir, path, **bounds)

    def log_place(
        self, segment_base_offset: int, position: int, size_in_bytes: int, offset_start: int | None, offset_end: int | None
    ) -> Place:
        """The place of `size_in_bytes` bytes at `position` of a segment's `.log`, and of offsets `[offset_start, offset_end)`."""
        return self.place(
            self.log_file(segment_base_offset),
            byte_start=position,
            byte_end=position + size_in_bytes,
            offset_start=offset_start,
            offset_end=offset_end,
        )

    def log_file(self, segment_base_offset: int) -> str:
        """Name of the `.log` file, or of the object, of the segment with this base offset."""
        name = f"{segment_base_offset:020d}.log"
        return name if self.object_names is None else self.object_names.get(segment_base_offset, name)


def local_and_remote(logs: Iterable[Log], context_of: "Callable[[Log], ReplicaContext]") -> tuple[list[Log], list[Log]]:
    """The logs of replicas, and those in remote stores."""
    parts: tuple[list[Log], list[Log]] = [], []
    for log in logs:
        parts[context_of(log).is_remote].append(log)
    return parts
