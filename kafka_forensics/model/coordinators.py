"""What the transaction coordinators' log (`__transaction_state`) says: of a transactional id, and of its transactions."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_forensics.model.findings import TopicPartition

# What `__consumer_offsets` says: offsets that groups committed, and the groups themselves.


OFFSET_COMMIT_TYPES: Final = frozenset({0, 1})
GROUP_METADATA_TYPE: Final = 2
RECORD_TYPES: Final[dict[int, str]] = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    9: "ShareGroupPartitionMetadata",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
    24: "StreamsGroupTargetAssignmentResolvedTopicIds",
}
"""Kafka's names by the number a key begins with (KIP-848, KIP-932, KIP-1071); 9 and 18 are gone from released versions."""
MEMBER_TYPES: Final = frozenset({5, 7, 8, 10, 13, 14, 16, 19, 21, 22})
"""Types whose key names a member (16: a regular expression) behind the group."""
METADATA_OF_GROUP: Final = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Types whose value makes a group, and whose tombstone ends it → the kind of group."""
METADATA_OF_MEMBER: Final = frozenset({5, 10, 19})
"""Types that say that a member belongs to a new group."""
TARGET_EPOCHS: Final = frozenset({6, 12, 20})
"""Types that say for which epoch of a new group partitions, or tasks, have been assigned."""
SHARED_TOPICS: Final = 15
STREAMS_TOPOLOGY: Final = 23
MEMBERS_LISTED: Final = 1024


def group_kind(record_type: int) -> str:
    """classic, consumer, share or streams: the kind of group that a record type speaks of; `unknown` for types nobody knows."""
    name = RECORD_TYPES.get(record_type, "")
    for kind in ("Consumer", "Share", "Streams"):
        if name.startswith(kind):
            return kind.lower()
    return "classic" if name else "unknown"


class GroupKey(NamedTuple):
    """A key of the log; `topic` and `partition` only of offset commits, `member_id` only where a member is named."""

    record_type: int
    group: str
    topic: str | None = None
    partition: int | None = None
    member_id: str | None = None


class OffsetCommit(NamedTuple):
    """A committed offset as its record says it; -1 is "none", times are milliseconds."""

    offset: int
    """Of the next record the group will read."""
    leader_epoch: int
    """Of the last record it read, where the client told."""
    metadata: str
    """Whatever the client wanted to keep: payload."""
    commit_timestamp: int
    expire_timestamp: int
    topic_id: str | None
    """As `partition.metadata` spells it (Kafka 4.1 and later)."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a classic group: sizes of what it subscribed to and was assigned, in bytes; timeouts in ms, -1 none."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription_size: int
    assignment_size: int


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A classic group as its last record says it; `members` lists the first 1024 of `members_count`."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members_count: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group's log says of one partition.

    `last` is the commit in force, of the record at `record_offset`; `greatest` the largest offset committed since the last
    tombstone, as far as compaction left it. `unknown_after`: unreadable records behind that offset of the log may have changed it
    since, None if there are none.
    """

    group: str
    topic: str
    partition: int
    last: OffsetCommit
    record_offset: int
    greatest: OffsetCommit
    greatest_record_offset: int
    log_partition: int
    """Of `__consumer_offsets`."""
    broker: int | str
    """Whose copy of the log was read."""
    in_transaction: bool = False
    """Committed by a transaction, whose COMMIT marker is there."""
    unknown_after: int | None = None


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """An offset committed inside a transaction that the log has no marker for: it does not count yet."""

    group: str
    topic: str
    partition: int
    commit: OffsetCommit
    record_offset: int
    producer_id: int


@dataclass(slots=True)
class Group:
    """A group as the log leaves it; `metadata` only of classic ones, `members_count` None where the log does not tell."""

    group: str
    kind: str
    """classic | consumer | share | streams; simple: it only commits offsets."""
    state: str | None = None
    """Stable or Empty as a coordinator would load it, None where the log does not tell."""
    members_count: int | None = None
    generation: int | None = None
    metadata: GroupMetadata | None = None
    unknown_after: int | None = None
    assignment_epoch: int | None = None
    """Of new groups: the epoch (`generation`) for which members have been assigned what they shall read."""
    topology_epoch: int | None = None
    """Of streams groups."""


@dataclass(frozen=True, slots=True)
class MalformedRecord:
    """A record of an internal topic that is not laid out as its type and version promise, and the batch it stands in."""

    broker: int | str
    log_dir: str
    file: str
    """Relative to `log_dir`."""
    byte_start: int
    byte_end: int
    topic: str
    partition: int
    offset: int
    reason: str
    record_type: str | None
    """Kafka's name, None if the key does not tell."""


@dataclass(slots=True)
class GroupLog:
    """One partition of `__consumer_offsets`, replayed from one replica's copy to `end_offset` (exclusive)."""

    partition: int
    broker: int | str
    cluster_id: str | None = None
    """From `meta.properties`; None if the copy does not tell."""
    end_offset: int = 0
    committed: list[Committed] = field(default_factory=list)
    pending: list[PendingCommit] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    topic_names: dict[str, str] = field(default_factory=dict)
    """Topic id → name, as share groups were told."""
    malformed: list[MalformedRecord] = field(default_factory=list)
    """The first 1000 of `malformed_count`."""
    malformed_count: int = 0
    complete: bool = True
    """False where bytes of the log are damaged or could not be read: commits may be missing."""
    limited: bool = False
    """There was more than is followed: what was new after that is left out."""


@dataclass(slots=True)
class GroupHistory:
    """Every partition of `__consumer_offsets` among the copies."""

    logs: list[GroupLog] = field(default_factory=list)
    read_from: dict[str, int] = field(default_factory=dict)
    """Group with offsets in a partition that its coordinator does not read → the one that it reads."""
    by_partition: dict[tuple[str, int], list[tuple[str | None, Committed]]] = field(default_factory=dict)
    """(topic, partition) → what groups committed there, each with the cluster it was committed in."""

    def add(self, log: GroupLog) -> None:
        """Add a partition's log."""
        self.logs.append(log)
        for committed_offset in log.committed:
            self.by_partition.setdefault((committed_offset.topic, committed_offset.partition), []).append(
                (log.cluster_id, committed_offset)
            )

    def waiting_for(self, log_partition: int, producer_id: int) -> list[str]:
        """Groups with offsets in an open transaction of a partition of `__consumer_offsets`; they must wait until it ends."""
        logs = [log for log in self.logs if log.partition == log_partition]
        return sorted({commit.group for log in logs for commit in log.pending if commit.producer_id == producer_id})

    def committed(self, topic: str, partition: int, cluster_id: str | None) -> list[Committed]:
        """What groups committed on a partition of a cluster; a log or a partition that does not tell its cluster is of any."""
        of_clusters = self.by_partition.get((topic, partition), [])
        return [
            committed_offset
            for cluster, committed_offset in of_clusters
            if cluster is None or cluster_id is None or cluster == cluster_id
        ]


# What `__share_group_state` says: from where share groups take the records of a partition, and how far each record has come.


class StateBatch(NamedTuple):
    """Records `first_offset` to `last_offset` (inclusive) that are in one state."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
    """How often they were handed to a member."""


@dataclass(frozen=True, slots=True)
class ShareState:
    """How far a share group is on a partition, as the last records of its key say."""

    group: str
    topic_id: str
    partition: int
    snapshot_epoch: int
    state_epoch: int | None
    """None where no snapshot is left."""
    leader_epoch: int
    start_offset: int
    """Of the first record that is not done with; -1 while nobody has read. It may be set by hand: it proves no records."""
    delivery_complete_count: int
    """Records from the start offset on that are done with; -1 is not known (before Kafka 4.2)."""
    batches: tuple[StateBatch, ...]
    """By offset, without overlaps; what no batch names is yet to be delivered, or is being so."""
    record_offset: int
    timestamp: int
    """Of the last record, in milliseconds."""
    unknown_after: int | None = None
    """Unreadable records behind that offset of the log may have changed it since, None if there are none."""

    def offsets_in(self, delivery_state: int) -> int:
        """How many offsets are in a state."""
        return sum(batch.last_offset - batch.first_offset + 1 for batch in self.batches if batch.delivery_state == delivery_state)


@dataclass(slots=True)
class ShareLog:
    """One partition of `__share_group_state`, replayed from one replica's copy."""

    partition: int
    broker: int | str
    states: list[ShareState] = field(default_factory=list)
    """By group, topic id and partition."""
    complete: bool = True
    """False where bytes of the log are damaged or could not be read: states may be missing."""
    limited: bool = False
    """There was more than is followed: what was new after that is left out."""


TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Kafka's names by status byte (TransactionState)."""
OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which the coordinator still has markers to write to the partitions it lists."""
DEFAULT_MAX_TIMEOUT_MS: Final = 15 * 60 * 1000
"""`transaction.max.timeout.ms` unless it is configured otherwise."""
LATE_BUFFER_MS: Final = 5 * 60 * 1000
"""What a broker grants on top before it counts a transaction as late (KIP-664)."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One value of the log: the whole state of a transactional id from then on. -1 is "none"; times are ms."""

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    state: str
    """One of `TRANSACTION_STATES`."""
    partitions: tuple[TopicPartition, ...]
    """Of the transaction in hand, as listed; empty in the states Empty and Complete."""
    last_update_timestamp: int
    start_timestamp: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_transaction_version: int = 0
    next_producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class LoggedState:
    """The last word of the log on a transactional id; `metadata` is None for one that expired (a tombstone)."""

    transactional_id: str
    partition: int
    """Of `__transaction_state`."""
    offset: int
    timestamp: int
    metadata: TransactionMetadata | None


@dataclass(frozen=True, slots=True)
class Decision:
    """How the coordinator decided one transaction: first a Prepare record with its partitions, then a Complete one.

    `producer_epoch` is that of the Prepare record; `completed_timestamp` is None while the log does not say that every marker is
    written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    start_timestamp: int
    decided_timestamp: int
    completed_timestamp: int | None
    log_partition: int
    offset: int
    """Of the Prepare record in `__transaction_state`."""
    client_transaction_version: int = 0

    @property
    def coordinator_state(self) -> str:
        """Kafka's name of the state it left the transaction in (TransactionState)."""
        return f"{'Prepare' if self.completed_timestamp is None else 'Complete'}{'Commit' if self.commit else 'Abort'}"


@dataclass(slots=True)
class TransactionLog:
    """The coordinators' log, replayed from one copy of each of its partitions."""

    states: dict[str, LoggedState] = field(default_factory=dict)
    """Transactional id → last word."""
    decisions: list[Decision] = field(default_factory=list)
    """Decisions whose Prepare record is still there, in the order of the log; the latest of very many."""
    ids_of_producer: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Producer id → transactional ids that have or had it, also those without a last word here."""
    partitions: dict[int, int | str] = field(default_factory=dict)
    """Partition of the log → broker whose copy was read."""
    missing: list[int] = field(default_factory=list)
    """Partitions known to exist and not read to the end."""
    unknown_ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Transactional id → (partition, offset) of a record that could not be read, with no later word on it."""
    unknown_from: dict[int, int] = field(default_factory=dict)
    """Partition → first offset of a record that may have been about any id."""
    newest_timestamp: int = -1
    """Of all its records, by the coordinators' clocks."""
    forgot: bool = False
    """Whether there were more ids or producers than are remembered, so that the log has some that are not here."""
    partly_known: set[int] = field(default_factory=set)
    """Producer ids that have or had a transactional id which was forgotten."""
    any_partly_known: bool = False
    """Whether these were too many to remember, so that any producer id may be one of them."""

    @property
    def complete(self) -> bool:
        """Whether it can be said that an id or a producer is *not* in the log."""
        return bool(self.partitions) and not (self.missing or self.unknown_from or self.unknown_ids or self.forgot)

    def owners(self, producer_id: int) -> list[LoggedState]:
        """The last word on every transactional id that has or had a producer id, as far as it is here (`knows_owners`)."""
        return [self.states[name] for name in self.ids_of_producer.get(producer_id, ()) if name in self.states]

    def knows_owners(self, producer_id: int) -> bool:
        """Whether no transactional id that has or had a producer id was forgotten, nor the last word on one."""
        if self.any_partly_known or producer_id in self.partly_known:
            return False
        return all(name in self.states for name in self.ids_of_producer.get(producer_id, ()))
