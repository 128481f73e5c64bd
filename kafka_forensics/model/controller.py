"""What the controller's log (`__cluster_metadata`) says of topics and partitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.model.json_objects import Json

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
RECOVERING: Final = 1
"""`leader_recovery_state` of a leader that was elected uncleanly."""

UNKNOWN_KIND: Final = "kind"
"""The problem of a record of a kind that is not known: nothing says that it is malformed."""


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of `__cluster_metadata` or `__remote_log_metadata`; `fields` None where the kind is only named and measured, or
    could not be read."""

    api_key: int
    """-1 if the frame could not be read."""
    name: str
    """Kafka's name of the kind, UNKNOWN for others."""
    version: int
    size_in_bytes: int
    fields: Json | None
    """Kafka's names in snake case; ids as 22 characters of base64url."""
    problem: str | None = None
    """Why it could not be read; None if nothing is wrong."""

    @property
    def is_unknown(self) -> bool:
        """Whether it is of a kind that is not known here, and so only measured."""
        return self.problem == UNKNOWN_KIND


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters of the controllers' quorum: node id → directory id, None where it is not stated."""

    directories: Mapping[int, str | None]

    @property
    def majority(self) -> int:
        """How many of them decide."""
        return len(self.directories) // 2 + 1

    def has(self, node: int | str, directory_id: str | None) -> bool:
        """Whether a node votes with the log directory that has this id (KIP-853)."""
        if node not in self.directories:
            return False
        stated = self.directories[int(node)]
        return stated is None or stated == directory_id


@dataclass(frozen=True, slots=True)
class StatedVoters:
    """Voters as a copy states them: in a record at `offset`, or in the snapshot of all before `offset`."""

    offset: int
    voters: VoterSet
    in_snapshot: bool = False
    is_leader_change: bool = False
    """A leader named the voters that it knew (LeaderChangeMessage); else it is the quorum's own record of them, which changes
    them."""


@dataclass(frozen=True, slots=True)
class QuorumLog:
    """What an election asks of one node's copy of the controllers' log, as a start leaves it."""

    node: int | str
    directory_id: str | None
    last_epoch: int
    """Leader epoch of its last record; -1 of an empty log."""
    end_offset: int
    agreed_end: int
    """Up to where it is the log that all copies together make."""
    voters: VoterSet | None
    """The voters that the node asks for votes; None if it knows no voters and cannot become leader."""

    @property
    def rank(self) -> tuple[int, int]:
        """What decides whose log is the more up-to-date in an election."""
        return self.last_epoch, self.end_offset


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """A batch of `__cluster_metadata`, or of a snapshot, opened."""

    base_offset: int
    timestamp_ms: int
    """Every record of a batch has the controller's time of appending it."""
    records: tuple[tuple[int, MetadataRecord], ...] = ()
    """(offset, record); none in a control batch."""
    voters: StatedVoters | None = None
    """The quorum's voters where a control record names them."""
    kraft_version: int | None = None
    """Where a control record states it: from 1 on the voters are in the log."""


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """A `.checkpoint` file, whole: the state that all records before `offset` add up to."""

    offset: int
    timestamp_ms: int
    """Of the last record in it."""
    batches: tuple[MetadataBatch, ...]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """How a partition stood after a record (PartitionRegistration)."""

    leader: int
    """-1: none."""
    leader_epoch: int
    """Counted: change records do not carry it."""
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    replica_assignment: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    directories: tuple[str, ...]
    """Directory id of each replica, in the order of `replica_assignment`; empty where records do not carry them."""
    leader_recovery_state: int


@dataclass(frozen=True, slots=True)
class PartitionEvent:
    """A change of a partition: where and when it was written, and how the partition stood afterwards."""

    offset: int
    """Of the record in `__cluster_metadata`; of a snapshot, the first offset it does not hold."""
    timestamp_ms: int
    kind: str
    """created | changed | snapshot | deleted"""
    state: PartitionState
    is_unclean: bool = False
    """Whether it elected a leader from outside the ISR."""
    previous_leader: int = NO_LEADER
    """The last broker that led before, over times without a leader."""
    previous_isr: tuple[int, ...] = ()
    unknown_after: int | None = None
    """Offset of a record before this one that could not be read, after which the counted epoch may be too low."""
    is_committed: bool | None = None
    """Whether a majority of the voters holds the record; None where too few of their copies were given."""


@dataclass(slots=True)
class PartitionHistory:
    """Events of one partition in order; of very many, the oldest ordinary ones are dropped and counted."""

    events: list[PartitionEvent] = field(default_factory=list)
    dropped_events: int = 0


@dataclass(slots=True)
class TopicHistory:
    """One topic id from its creation on; None for what the log does not say: created before it begins, not deleted."""

    topic: str
    topic_id: str
    created_offset: int | None = None
    created_ms: int | None = None
    deleted_offset: int | None = None
    deleted_ms: int | None = None
    partitions: dict[int, PartitionHistory] = field(default_factory=dict)
    policies: set[str | None] = field(default_factory=set)
    """Every `cleanup.policy` it was seen with; None: it had the brokers' default."""


@dataclass(frozen=True, slots=True)
class PartitionControl:
    """What the controller last said of one partition; None is "its log, as far as it was read, does not say"."""

    leader: int | None
    """-1: it had none."""
    leader_epoch: int | None
    isr: list[int] | None
    elr: list[int] | None
    replica_assignment: list[int] | None
    configs: dict[str, str] = field(default_factory=dict)
    """The topic's own settings; what is not here has the brokers' default."""
    topic_id: str | None = None
    defaults: dict[str, str] = field(default_factory=dict)
    """Settings of all brokers that the controller's log holds, under the topics' names for them."""
    directories: list[str] | None = None
    leader_recovery_state: int | None = None
    last_offset: int | None = None
    """Of the last record about the partition."""
    as_of_ms: int | None = None
    """Newest timestamp of the controller's log as it was read."""
    unknown_after: int | None = None
    """Offset in `__cluster_metadata` after which the state is not known, so that it is not told; None: it is known."""
    cleanup_policy: str | None = None
    """The topic's `cleanup.policy` in force; None: not known."""
    was_compacted: bool | None = None
    """Whether a policy with `compact` was ever in force; None: not known."""
    history: PartitionHistory | None = None
    unknown_records: int = 0
    """Records of kinds not known here that the controller's log holds: all that is said here passed over them."""
    exists_since_ms: int | None = None
    """When the topic was created, or the earliest that is known to be later; None: not known."""
    metadata_version: int | None = None
    """The finalized level of `metadata.version`; None: not known."""

    @property
    def premises(self) -> list[str]:
        """What all of this stands on beside the log that was read; none where every kind of record in it is known."""
        return passed_over(self.unknown_records)

    @property
    def is_tiered(self) -> bool:
        """Whether the topic's older segments are moved to remote storage (KIP-405)."""
        return (self.setting("remote.storage.enable") or "").lower() == "true"

    @property
    def min_insync_replicas(self) -> int | None:
        """`min.insync.replicas` in force, never more than there are replicas; None: not in the controller's log."""
        text = self.setting("min.insync.replicas")
        if text is None or not (text.isascii() and text.isdigit() and len(text) < 10):
            return None
        return min([int(text), *([len(self.replica_assignment)] if self.replica_assignment else [])])

    @property
    def isr_is_below_minimum(self) -> bool:
        """Whether fewer replicas are in sync than `min.insync.replicas` asks for; only then are there eligible leader replicas."""
        minimum = self.min_insync_replicas
        return self.isr is not None and (bool(self.elr) or (minimum is not None and len(self.isr) < minimum))

    def setting(self, name: str) -> str | None:
        """A topic setting in force as far as the controller's log holds it; None: server.properties or Kafka's default decides."""
        return self.configs.get(name, self.defaults.get(name))


def passed_over(unknown_records: int) -> list[str]:
    """The premise of what a log with so many records of kinds not known here says; none without any."""
    if not unknown_records:
        return []
    return [f"{unknown_records} records of unknown kinds in __cluster_metadata were passed over"]


@dataclass(slots=True)
class ControllerHistory:
    """The controller's log, replayed."""

    partitions: dict[tuple[str, int], PartitionControl] = field(default_factory=dict)
    """(topic, partition) → the last word on it."""
    topics: dict[str, TopicHistory] = field(default_factory=dict)
    """topic id → its history, deleted topics included."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """topic → its settings."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Settings of all brokers, under the topics' names for them."""
    features: dict[str, int] = field(default_factory=dict)
    """Feature → its finalized level: `metadata.version`, `transaction.version`, `kraft.version`, …"""
    malformed_records: int = 0
    unknown_records: int = 0
    """Records of kinds that are not known here."""
    log_start_offset: int = 0
    log_end_offset: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets [start, end) within the log that are on none of the copies."""
    end_is_known: bool = True
    """Whether no copy ends with damage, or could not be read, so that the log may have gone on."""
    committed_end_offset: int | None = None
    """Up to where a majority of the voters is known to hold the log, or a snapshot states it; None: too few of them have it here,
    so nothing can be said."""
    voters: list[int] | None = None
    voters_in_log: bool = False
    """Whether the voters are those of the quorum's own records (`kraft.version` 1), not of every node's settings."""
    quorum: list[QuorumLog] = field(default_factory=list)
    """Every node with a copy that could be read, voter or not."""
    unread: list[int | str] = field(default_factory=list)
    """Nodes with a copy that could not be read whole."""
    proven_end: int = 0
    """Records before this offset are known to be committed, whoever holds them."""
    snapshots: dict[tuple[int | str, str], list[int] | None] = field(default_factory=dict)
    """(broker, log directory) → the ends of the snapshots from which the node may start; None where one was not read."""
    copy_ends: dict[int | str, int] = field(default_factory=dict)
    """Node → up to where its copy is this log."""
    last_ms: int | None = None
    """Newest timestamp of its records."""
    unknown_after: int | None = None
    """The first offset after which something about partitions could not be read and no snapshot states it anew."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the log is lost or could not be read, so that it does not know what it does not say."""
        return self.end_is_known and not self.gaps and not self.malformed_records and self.unknown_after is None
