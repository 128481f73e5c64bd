"""Topics, partitions and the quorum as the controller's log (`__cluster_metadata`) has them."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from kafka_forensics.model.json_objects import Json

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
RECOVERING: Final = 1
"""`leader_recovery_state` of a leader that was elected uncleanly."""

UNKNOWN_KIND: Final = "kind"
"""The problem of a record of an unknown kind, which need not be malformed."""


class MetadataRecord(Struct, frozen=True):
    """A record of `__cluster_metadata` or `__remote_log_metadata`; `fields` is None if its kind is not decoded, or it is
    unreadable."""

    api_key: int
    """-1 if the frame is unreadable."""
    name: str
    """Kafka's name of the kind, or UNKNOWN."""
    version: int
    size_in_bytes: int
    fields: Json | None
    """Kafka's names in snake case; ids as 22 characters of base64url."""
    problem: str | None = None
    """Why it is unreadable; None: it is not."""

    @property
    def is_unknown(self) -> bool:
        """Whether its kind is unknown."""
        return self.problem == UNKNOWN_KIND


class VoterSet(Struct, frozen=True):
    """The voters of the controllers' quorum: node id → directory id, None if it is not stated."""

    directories: Mapping[int, str | None]

    @property
    def majority(self) -> int:
        """The number of votes that decides."""
        return len(self.directories) // 2 + 1

    def has(self, node: int | str, directory_id: str | None) -> bool:
        """Whether a node with this directory id is a voter (KIP-853)."""
        if node not in self.directories:
            return False
        stated = self.directories[int(node)]
        return stated is None or stated == directory_id


class StatedVoters(Struct, frozen=True):
    """Voters stated by a record at `offset`, or by the snapshot of everything before `offset`."""

    offset: int
    voters: VoterSet
    in_snapshot: bool = False
    is_leader_change: bool = False
    """Whether a leader listed the voters that it knew (LeaderChangeMessage); otherwise it is the record that sets them."""


class QuorumLog(Struct, frozen=True):
    """One node's copy of the controllers' log after a start, as an election sees it."""

    node: int | str
    directory_id: str | None
    last_epoch: int
    """Leader epoch of its last record; -1 for an empty log."""
    end_offset: int
    agreed_end: int
    """The end up to which it equals the log assembled from all copies."""
    voters: VoterSet | None
    """The voters that the node knows; None: it knows none and cannot become leader."""

    @property
    def rank(self) -> tuple[int, int]:
        """Compares which log is more up-to-date in an election."""
        return self.last_epoch, self.end_offset


class MetadataBatch(Struct, frozen=True):
    """A decoded batch of `__cluster_metadata` or of a snapshot."""

    base_offset: int
    timestamp_ms: int
    """When the controller appended it."""
    records: tuple[tuple[int, MetadataRecord], ...] = ()
    """(offset, record); empty in a control batch."""
    voters: StatedVoters | None = None
    """The voters if a control record states them."""
    kraft_version: int | None = None
    """If a control record states it; from 1 on the log has the voters."""


class MetadataSnapshot(Struct, frozen=True):
    """A complete `.checkpoint` file: the state after all records before `offset`."""

    offset: int
    timestamp_ms: int
    """Of the last record in it."""
    batches: tuple[MetadataBatch, ...]


class PartitionState(Struct, frozen=True):
    """The state of a partition after a record (PartitionRegistration)."""

    leader: int
    """-1: none."""
    leader_epoch: int
    """Counted, because change records do not have it."""
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    replica_assignment: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    directories: tuple[str, ...]
    """Directory ids in the order of `replica_assignment`; empty if the records have none."""
    leader_recovery_state: int


class PartitionEvent(Struct, frozen=True):
    """A change of a partition, and the state afterwards."""

    offset: int
    """Of the record in `__cluster_metadata`; of a snapshot, its exclusive end."""
    timestamp_ms: int
    kind: str
    """created | changed | snapshot | deleted"""
    state: PartitionState
    is_unclean: bool = False
    """Whether it elected a leader from outside the ISR."""
    previous_leader: int = NO_LEADER
    """The last broker that led before."""
    previous_isr: tuple[int, ...] = ()
    unknown_after: int | None = None
    """Offset of an earlier unreadable record, after which the counted epoch may be too low."""
    is_committed: bool | None = None
    """Whether a majority of the voters has the record; None: too few of their copies are here."""


class BrokerEvent(Struct, frozen=True):
    """The controllers fence a broker (it is down, or sends no heartbeats), or unfence it."""

    timestamp_ms: int
    broker: int
    is_fenced: bool


class PartitionHistory(Struct):
    """Events of one partition in order; above a limit the oldest ordinary ones are dropped and counted."""

    events: list[PartitionEvent] = field(default_factory=list)
    dropped_events: int = 0


class TopicHistory(Struct):
    """The history of one topic id; None if it was created before the log starts, or not deleted."""

    topic: str
    topic_id: str
    created_offset: int | None = None
    created_ms: int | None = None
    deleted_offset: int | None = None
    deleted_ms: int | None = None
    partitions: dict[int, PartitionHistory] = field(default_factory=dict)
    policies: set[str | None] = field(default_factory=set)
    """Every `cleanup.policy` it had; None: the brokers' default."""


class PartitionControl(Struct, frozen=True):
    """The controller's last state of one partition; None: not in its log as far as it was read."""

    leader: int | None
    """-1: none."""
    leader_epoch: int | None
    isr: list[int] | None
    elr: list[int] | None
    replica_assignment: list[int] | None
    configs: dict[str, str] = field(default_factory=dict)
    """The topic's own settings; all others have the brokers' default."""
    topic_id: str | None = None
    defaults: dict[str, str] = field(default_factory=dict)
    """Settings of all brokers in the controller's log, by the topic settings' names."""
    directories: list[str] | None = None
    leader_recovery_state: int | None = None
    last_offset: int | None = None
    """Of the last record about the partition."""
    as_of_ms: int | None = None
    """Newest timestamp of the controller's log as it was read."""
    unknown_after: int | None = None
    """Offset in `__cluster_metadata` after which the state is unknown; None: it is known."""
    cleanup_policy: str | None = None
    """The effective `cleanup.policy`; None: unknown."""
    was_compacted: bool | None = None
    """Whether the policy ever had `compact`; None: unknown."""
    history: PartitionHistory | None = None
    unknown_records: int = 0
    """Number of skipped records of unknown kinds in the controller's log."""
    exists_since_ms: int | None = None
    """When the topic was created, or an upper bound of that; None: unknown."""
    metadata_version: int | None = None
    """The finalized level of `metadata.version`; None: unknown."""

    @property
    def premises(self) -> list[str]:
        """Premises of this state: empty if the log has no records of unknown kinds."""
        return unknown_records_premises(self.unknown_records)

    @property
    def is_tiered(self) -> bool:
        """Whether the topic's older segments are moved to remote storage (KIP-405)."""
        return (self.setting("remote.storage.enable") or "").lower() == "true"

    @property
    def min_insync_replicas(self) -> int | None:
        """The effective `min.insync.replicas`, at most the number of replicas; None: not in the controller's log."""
        text = self.setting("min.insync.replicas")
        if text is None or not (text.isascii() and text.isdigit() and len(text) < 10):
            return None
        return min([int(text), *([len(self.replica_assignment)] if self.replica_assignment else [])])

    @property
    def isr_is_below_minimum(self) -> bool:
        """Whether the ISR is smaller than `min.insync.replicas`; only then there is an ELR."""
        minimum = self.min_insync_replicas
        return self.isr is not None and (bool(self.elr) or (minimum is not None and len(self.isr) < minimum))

    def setting(self, name: str) -> str | None:
        """The effective value of a topic setting; None: not in the controller's log, so server.properties or Kafka's default
        decides."""
        return self.configs.get(name, self.defaults.get(name))


def unknown_records_premises(unknown_records: int) -> list[str]:
    """The premise of conclusions from a log with this number of records of unknown kinds; none for 0."""
    if not unknown_records:
        return []
    return [f"{unknown_records} records of unknown kinds in __cluster_metadata were skipped"]


class ControllerHistory(Struct):
    """The replayed controller's log."""

    partitions: dict[tuple[str, int], PartitionControl] = field(default_factory=dict)
    """(topic, partition) → its last state."""
    topics: dict[str, TopicHistory] = field(default_factory=dict)
    """Topic id → its history; deleted topics too."""
    brokers: list[BrokerEvent] = field(default_factory=list)
    """In order; above a limit the oldest are dropped."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Topic → its settings."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Settings of all brokers, by the topic settings' names."""
    features: dict[str, int] = field(default_factory=dict)
    """Feature → its finalized level: `metadata.version`, `transaction.version`, `kraft.version`, …"""
    malformed_records: int = 0
    unknown_records: int = 0
    """Records of unknown kinds."""
    log_start_offset: int = 0
    log_end_offset: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets [start, end) within the log that no copy has."""
    end_is_known: bool = True
    """False if a copy ends with damage or could not be read: the log may be longer."""
    committed_end_offset: int | None = None
    """The end up to which a majority of the voters is known to have the log, or a snapshot has it; None: unknown, because too few
    of their copies are here."""
    voters: list[int] | None = None
    voters_in_log: bool = False
    """Whether the voters come from records in the log (`kraft.version` 1), not from the nodes' settings."""
    quorum: list[QuorumLog] = field(default_factory=list)
    """Every node with a readable copy, voter or not."""
    unread: list[int | str] = field(default_factory=list)
    """Nodes with a copy that could not be read completely."""
    proven_end: int = 0
    """The end up to which records are known to be committed."""
    snapshots: dict[tuple[int | str, str], list[int] | None] = field(default_factory=dict)
    """(broker, log directory) → ends of the snapshots from which the node may start; None: one was not read."""
    copy_ends: dict[int | str, int] = field(default_factory=dict)
    """Node → the end up to which its copy equals this log."""
    last_ms: int | None = None
    """Newest timestamp of its records."""
    unknown_after: int | None = None
    """The first offset after which a record about partitions is unreadable and no later snapshot replaces it."""

    @property
    def is_complete(self) -> bool:
        """Whether the whole log was read: what is not in it does not exist."""
        return self.end_is_known and not self.gaps and not self.malformed_records and self.unknown_after is None
