"""What is known about one replica beside its batches: the facts of its small files, gathered before judging."""

from dataclasses import dataclass, field

from kafka_forensics.evidence.ledger import ExpectedReplica
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.coordinators import Committed
from kafka_forensics.model.files import EpochEntry, LeaderEpochs
from kafka_forensics.model.findings import Place
from kafka_forensics.model.remote_log import RemoteLog


@dataclass(slots=True)
class ReplicaContext:
    """One replica of one partition; None is "the files do not say"."""

    topic: str
    partition: int
    broker: int | str
    log_dir: str
    directory: str
    """Name of the partition directory, relative to `log_dir`."""
    topic_id: str | None = None
    topic_id_damaged: bool = False
    """Whether `partition.metadata` is there and breaks its format."""
    high_watermark: int | None = None
    """From `replication-offset-checkpoint`."""
    recovery_point: int | None = None
    log_start_checkpoint: int | None = None
    cleaner_checkpoint: int | None = None
    """From `cleaner-offset-checkpoint`: first dirty offset; only compacted topics are listed there."""
    compacted: bool = False
    clean_shutdown: bool = False
    live: bool = False
    """The copy was taken from a running broker (`--live`)."""
    leader_epochs: LeaderEpochs | None = None
    """None if there is no `leader-epoch-checkpoint`, and until the replica is folded (`read_leader_epochs`)."""
    control: PartitionControl | None = None
    """The controller's last word on the partition."""
    node_id: int | str | None = None
    """The broker's id in the controller's log, where `broker` is a name that was given."""
    remote_log: RemoteLog | None = None
    """What `__remote_log_metadata` says of the partition's remote segments; None also where it has none yet."""
    is_tiered: bool = False
    """Whether segments of the topic are moved to remote storage (KIP-405): the log begins before its first local segment."""
    committed: list[Committed] = field(default_factory=list)
    """What groups committed on the partition."""
    decided: bool = False
    """The transaction coordinators' log has a decision that lists the partition."""
    without_copy: list[ExpectedReplica] = field(default_factory=list)
    """The partition's replicas of which no copy is there, by the ledger of expectation; the same for all its replicas."""
    segments_being_deleted: list[int] = field(default_factory=list)
    """Base offsets of `.log.deleted` files, which a broker renames before it deletes them."""
    segment_base_offsets: list[int] = field(default_factory=list)
    """Base offsets of the live `.log` files, ascending."""
    not_followed: list[int] = field(default_factory=list)
    """Those of them that are only in the names of links that are not followed, or of pipes: no log need have got there."""
    snapshots: list[int] | None = None
    """Of the controllers' log: each snapshot from which the node may start states all before one of these offsets; None where they
    are not known, and of other logs."""
    log_unknown: bool = False
    """Nothing is known of its log: its directory is there and could not be listed, or was copied without `.log` files."""

    @property
    def node(self) -> int | str:
        """What the controller calls the replica's broker."""
        return self.broker if self.node_id is None else self.node_id

    @property
    def snapshot_end(self) -> int:
        """Before this offset a snapshot states all of the controllers' log; 0 without one."""
        return max(self.snapshots or (), default=0)

    @property
    def epoch_checkpoint(self) -> list[EpochEntry] | None:
        """What `leader-epoch-checkpoint` says; None without one, and of a malformed one, which Kafka refuses whole."""
        epochs = self.leader_epochs
        return None if epochs is None or epochs.damage else epochs.entries

    def place(
        self,
        file: str | None = None,
        *,
        byte_start: int | None = None,
        byte_end: int | None = None,
        offset_start: int | None = None,
        offset_end: int | None = None,
    ) -> Place:
        """A place in this replica; `file` is a name inside the partition directory."""
        return Place(
            self.topic,
            self.partition,
            self.broker,
            self.log_dir,
            None if file is None else f"{self.directory}/{file}",
            byte_start,
            byte_end,
            offset_start,
            offset_end,
        )

    def log_place(
        self, segment_base_offset: int, position: int, size_in_bytes: int, offset_start: int | None, offset_end: int | None
    ) -> Place:
        """The place of bytes of the segment's `.log`, and of offsets `[start, end)`."""
        return self.place(
            self.log_file(segment_base_offset),
            byte_start=position,
            byte_end=position + size_in_bytes,
            offset_start=offset_start,
            offset_end=offset_end,
        )

    def log_file(self, segment_base_offset: int) -> str:
        """Name of the `.log` file of the segment with this base offset."""
        return f"{segment_base_offset:020d}.log"
