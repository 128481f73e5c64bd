"""Contents of the coordinators' logs: `__consumer_offsets`, `__share_group_state` and `__transaction_state`."""

from typing import Final, NamedTuple

from msgspec import Struct, field

from kafka_forensics.model.findings import TopicPartition

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
"""Kafka's names by the first number of a key (KIP-848, KIP-932, KIP-1071); released versions do not have 9 and 18."""
MEMBER_TYPES: Final = frozenset({5, 7, 8, 10, 13, 14, 16, 19, 21, 22})
"""Types whose key has a member (16: a regular expression) after the group."""
METADATA_OF_GROUP: Final = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Types whose value creates a group and whose tombstone deletes it → the kind of group."""
METADATA_OF_MEMBER: Final = frozenset({5, 10, 19})
"""Types that add a member to a group of the new protocols."""
TARGET_EPOCHS: Final = frozenset({6, 12, 20})
"""Types with the epoch of the target assignment of a group of the new protocols."""
SHARED_TOPICS: Final = 15
STREAMS_TOPOLOGY: Final = 23
MEMBERS_LISTED: Final = 1024


def group_kind(record_type: int) -> str:
    """The kind of group of a record type: classic, consumer, share or streams; `unknown` for unknown types."""
    name = RECORD_TYPES.get(record_type, "")
    for kind in ("Consumer", "Share", "Streams"):
        if name.startswith(kind):
            return kind.lower()
    return "classic" if name else "unknown"


class GroupKey(NamedTuple):
    """A key of `__consumer_offsets`; only offset commits have `topic` and `partition`, only `MEMBER_TYPES` a `member_id`."""

    record_type: int
    group: str
    topic: str | None = None
    partition: int | None = None
    member_id: str | None = None


class OffsetCommit(NamedTuple):
    """The value of an offset commit; -1: none, times are milliseconds."""

    offset: int
    """Of the next record that the group will read."""
    leader_epoch: int
    """Of the last record it read, if the client sent it."""
    metadata: str
    """Arbitrary text of the client: payload."""
    commit_timestamp: int
    expire_timestamp: int
    topic_id: str | None
    """In the format of `partition.metadata` (Kafka 4.1 and later)."""


class GroupMember(Struct, frozen=True):
    """A member of a classic group; sizes of subscription and assignment in bytes, timeouts in ms, -1: none."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription_size: int
    assignment_size: int


class GroupMetadata(Struct, frozen=True):
    """The last record of a classic group; `members` has the first 1024 of `members_count`."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members_count: int
    members: tuple[GroupMember, ...]


class CommittedOffset(Struct, frozen=True):
    """The offsets that a group committed on one partition.

    `last` is the present commit, of the record at `record_offset`; `greatest` the largest offset committed since the last
    tombstone, as far as compaction left it. `unknown_after`: unreadable records after that offset of the log may have changed it;
    None: there are none.
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
    """The broker whose copy was read."""
    in_transaction: bool = False
    """Whether a committed transaction contains it."""
    unknown_after: int | None = None


class PendingCommit(Struct, frozen=True):
    """An offset commit in a transaction without a marker, which does not count yet."""

    group: str
    topic: str
    partition: int
    commit: OffsetCommit
    record_offset: int
    producer_id: int


class GroupState(Struct):
    """A group at the end of the log; only classic groups have `metadata`, `members_count` is None if unknown."""

    group: str
    kind: str
    """classic | consumer | share | streams | simple (it only commits offsets)"""
    state: str | None = None
    """Stable or Empty, as a coordinator would load it; None: unknown."""
    members_count: int | None = None
    generation: int | None = None
    metadata: GroupMetadata | None = None
    unknown_after: int | None = None
    assignment_epoch: int | None = None
    """Of the new protocols: the epoch (`generation`) of the target assignment."""
    topology_epoch: int | None = None
    """Of streams groups."""


class MalformedRecord(Struct, frozen=True):
    """A record of an internal topic with an invalid layout, and the position of its batch."""

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
    """Kafka's name; None: the key is unreadable."""


class GroupLog(Struct):
    """One replayed partition of `__consumer_offsets`, from one replica's copy, up to `end_offset` (exclusive)."""

    partition: int
    broker: int | str
    cluster_id: str | None = None
    """From `meta.properties`; None: unknown."""
    end_offset: int = 0
    committed: list[CommittedOffset] = field(default_factory=list)
    pending: list[PendingCommit] = field(default_factory=list)
    groups: dict[str, GroupState] = field(default_factory=dict)
    topic_names: dict[str, str] = field(default_factory=dict)
    """Topic id → name, from records of share groups."""
    malformed: list[MalformedRecord] = field(default_factory=list)
    """The first 1000 of `malformed_count`."""
    malformed_count: int = 0
    complete: bool = True
    """False where bytes of the log are damaged or could not be read: commits may be missing."""
    limited: bool = False
    """There was more than is followed: what was new after that is left out."""


class GroupHistory(Struct):
    """All partitions of `__consumer_offsets` on the copies."""

    logs: list[GroupLog] = field(default_factory=list)
    read_from: dict[str, int] = field(default_factory=dict)
    """Group with offsets in a wrong partition → the partition that its coordinator reads."""
    by_partition: dict[tuple[str, int], list[tuple[str | None, CommittedOffset]]] = field(default_factory=dict)
    """(topic, partition) → (cluster id, commit) of every group."""

    def add(self, log: GroupLog) -> None:
        """Add a partition's log."""
        self.logs.append(log)
        for commit in log.committed:
            self.by_partition.setdefault((commit.topic, commit.partition), []).append((log.cluster_id, commit))

    def waiting_for(self, log_partition: int, producer_id: int) -> list[str]:
        """Groups with offset commits in an open transaction of a partition of `__consumer_offsets`, which wait for its end."""
        logs = [log for log in self.logs if log.partition == log_partition]
        return sorted({commit.group for log in logs for commit in log.pending if commit.producer_id == producer_id})

    def committed(self, topic: str, partition: int, cluster_id: str | None) -> list[CommittedOffset]:
        """Commits of groups on a partition of a cluster; an unknown cluster id matches any."""
        commits = self.by_partition.get((topic, partition), [])
        return [commit for cluster, commit in commits if cluster is None or cluster_id is None or cluster == cluster_id]


# `__share_group_state`: from where share groups read a partition, and the delivery state of its records.


class StateBatch(NamedTuple):
    """Offsets `first_offset` to `last_offset` (inclusive) in one delivery state."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
    """How often they were delivered to a member."""


class ShareState(Struct, frozen=True):
    """The state of a share group on a partition, from the last records of its key."""

    group: str
    topic_id: str
    partition: int
    snapshot_epoch: int
    state_epoch: int | None
    """None: no snapshot is left."""
    leader_epoch: int
    start_offset: int
    """Of the first unfinished record; -1 before the first read. It can be set manually, so it does not prove that records exist."""
    delivery_complete_count: int
    """Number of finished records from the start offset on; -1: unknown (before Kafka 4.2)."""
    batches: tuple[StateBatch, ...]
    """By offset, without overlaps; all other records are not delivered yet, or in delivery."""
    record_offset: int
    timestamp: int
    """Of the last record, in milliseconds."""
    unknown_after: int | None = None
    """Unreadable records after that offset of the log may have changed it; None: there are none."""

    def offsets_in(self, delivery_state: int) -> int:
        """The number of offsets in a delivery state."""
        return sum(batch.last_offset - batch.first_offset + 1 for batch in self.batches if batch.delivery_state == delivery_state)


class ShareLog(Struct):
    """One replayed partition of `__share_group_state`, from one replica's copy."""

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
"""States with markers still to write to the listed partitions."""
DEFAULT_MAX_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Kafka's default of `transaction.max.timeout.ms`."""
LATE_BUFFER_MS: Final = 5 * 60 * 1000
"""Additional time before a broker considers a transaction late (KIP-664)."""


class TransactionMetadata(Struct, frozen=True):
    """A value of `__transaction_state`: the whole state of a transactional id. -1: none; times are ms."""

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    state: str
    """One of `TRANSACTION_STATES`."""
    partitions: tuple[TopicPartition, ...]
    """Of the present transaction; empty in the states Empty and Complete."""
    last_update_timestamp: int
    start_timestamp: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_transaction_version: int = 0
    next_producer_epoch: int = -1


class LoggedState(Struct, frozen=True):
    """The last record of a transactional id; `metadata` is None for a tombstone (the id expired)."""

    transactional_id: str
    partition: int
    """Of `__transaction_state`."""
    offset: int
    timestamp: int
    metadata: TransactionMetadata | None


class Decision(Struct, frozen=True):
    """The decision of one transaction: a Prepare record with its partitions, then a Complete record.

    `producer_epoch` is that of the Prepare record; `completed_timestamp` is None without a Complete record.
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
        """Kafka's name of the state after it (TransactionState)."""
        return f"{'Prepare' if self.completed_timestamp is None else 'Complete'}{'Commit' if self.commit else 'Abort'}"


class TransactionLog(Struct):
    """The replayed `__transaction_state`, from one copy of each partition."""

    states: dict[str, LoggedState] = field(default_factory=dict)
    """Transactional id → its last record."""
    decisions: list[Decision] = field(default_factory=list)
    """Decisions with a remaining Prepare record, in log order; above a limit the latest."""
    ids_of_producer: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Producer id → transactional ids that have or had it, also those not in `states`."""
    partitions: dict[int, int | str] = field(default_factory=dict)
    """Partition of `__transaction_state` → broker whose copy was read."""
    missing: list[int] = field(default_factory=list)
    """Partitions that exist and were not read to the end."""
    unknown_ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Transactional id → (partition, offset) of an unreadable record, without a later record."""
    unknown_from: dict[int, int] = field(default_factory=dict)
    """Partition → first offset of an unreadable record that may be about any id."""
    newest_timestamp: int = -1
    """Of all records, by the coordinators' clocks."""
    forgot: bool = False
    """Whether the log has more ids or producers than the limit: some are left out."""
    partly_known: set[int] = field(default_factory=set)
    """Producer ids of transactional ids that the limit leaves out."""
    any_partly_known: bool = False
    """Whether these exceed the limit: any producer id may be one of them."""

    @property
    def complete(self) -> bool:
        """Whether these are all ids and producers of the log."""
        return bool(self.partitions) and not (self.missing or self.unknown_from or self.unknown_ids or self.forgot)

    def owners(self, producer_id: int) -> list[LoggedState]:
        """The last records of all transactional ids that have or had a producer id, as far as they are here (`knows_owners`)."""
        return [self.states[name] for name in self.ids_of_producer.get(producer_id, ()) if name in self.states]

    def knows_owners(self, producer_id: int) -> bool:
        """Whether all transactional ids that have or had a producer id are here, with their last records."""
        if self.any_partly_known or producer_id in self.partly_known:
            return False
        return all(name in self.states for name in self.ids_of_producer.get(producer_id, ()))
