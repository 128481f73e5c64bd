"""Incidents: findings with one cause, on the same brokers, at the same time."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field

from kafka_forensics.model.findings import Broker, Confidence, Severity, TopicPartition
from kafka_forensics.model.json_objects import Json


class Cause(StrEnum):
    """The cause of an incident, as far as the files show it."""

    UNCLEAN_ELECTION = "unclean_election"
    """A controller's log shows the unclean election that caused the losses."""
    LAST_REPLICA_ELECTED = "last_replica_elected"
    """The last ISR member came back with a shorter log and was elected."""
    REPLICAS_DIVERGE = "replicas_diverge"
    """Replicas have different records at the same offsets, and no known election explains it."""
    LOG_DIRECTORY_MISSING = "log_directory_missing"
    """A broker's log directory, or partition directories in it, are empty or absent."""
    SHORT_REPLICA = "short_replica"
    """Replicas of one broker lack committed records, like an older copy or a log that lost its end."""
    UNCLEAN_SHUTDOWN = "unclean_shutdown"
    """Files after an unclean shutdown, and what a start would do with them."""
    DAMAGED_LOG = "damaged_log"
    """Bytes of segments are wrong or missing."""
    DAMAGED_FILES = "damaged_files"
    """Indexes, snapshots or checkpoints are wrong, segments are not."""
    TOPIC_RECREATED = "topic_recreated"
    """Directories with one topic name have different topic ids."""
    HANGING_TRANSACTION = "hanging_transaction"
    """Transactions that never end."""
    TORN_TRANSACTION = "torn_transaction"
    """Transactions that ended in different ways, or in some partitions only."""
    PRODUCER_SEQUENCE = "producer_sequence"
    """Sequence numbers or epochs of producers out of order."""
    READERS_HELD_BACK = "readers_held_back"
    """Readers wait for a high watermark that does not rise."""
    OLDER_FORMAT = "older_format"
    """A replica has its records in an older message format, without some of their fields."""
    CLEANER_STOPPED = "cleaner_stopped"
    """A broker has stopped cleaning its compacted logs."""
    COMMITTED_LOST = "committed_lost"
    """No copy has committed records, and no file shows why."""
    LOST_SINCE = "lost_since"
    """A newer snapshot lacks committed records of an older one."""
    MIXED_COPIES = "mixed_copies"
    """Copies of different clusters, nodes or times, or directories that do not belong to Kafka."""
    REMOTE_LOG = "remote_log"
    """Segments of tiered topics are missing in remote storage, or no reader gets them."""
    CONTROLLERS = "controllers"
    """Controllers lost metadata or cannot apply it."""
    UNREADABLE_RECORDS = "unreadable_records"
    """Records or parts of a log that were not read."""
    SETTINGS = "settings"
    """Risky settings or client behaviour."""


class CountedLoss(Protocol):
    """A loss of an incident or of its part in one partition, also as a row of a document. See `IncidentPartition`."""

    @property
    def lost_at_least(self) -> int: ...  # noqa: D102
    @property
    def lost_at_most(self) -> int: ...  # noqa: D102
    @property
    def records_lost_at_least(self) -> int | None: ...  # noqa: D102
    @property
    def records_lost_at_most(self) -> int | None: ...  # noqa: D102


class PartitionLoss(CountedLoss, Protocol):
    """The loss of one partition in an incident, also of a scan's document."""

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def offset_start(self) -> int | None: ...  # noqa: D102
    @property
    def offset_end(self) -> int | None: ...  # noqa: D102
    @property
    def held_by(self) -> Sequence[Broker]: ...  # noqa: D102
    @property
    def held_ranges(self) -> Sequence[Json]: ...  # noqa: D102


class IncidentLoss(CountedLoss, Protocol):
    """The loss of an incident, also of a scan's document."""

    @property
    def partitions(self) -> Sequence[PartitionLoss]: ...  # noqa: D102


class IncidentPartition(Struct, frozen=True):
    """The part of an incident in one partition. Losses are numbers of offsets; an end is exclusive; None: unknown offsets."""

    topic: str
    partition: int
    lost_at_least: int
    """Committed offsets that are proven lost, or exist only where Kafka will truncate them."""
    lost_at_most: int
    """The same, plus offsets at risk."""
    records_lost_at_least: int | None
    """Their records without transaction markers; None: no copy with them was read, or there are too many."""
    records_lost_at_most: int | None
    offset_start: int | None
    offset_end: int | None
    held_by: list[Broker]
    """Brokers with a good copy of some of the offsets."""
    held_ranges: list[Json] = field(default_factory=list)
    """Ranges of these offsets and the brokers that have them (`offset_start`, `offset_end`, `brokers`), finding by finding, if not
    all are on the same brokers."""

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition


class Incident(Struct, frozen=True):
    """A group of findings above `info`. Every such finding is in exactly one incident of its scan."""

    cause: Cause
    severity: Severity
    """The worst of its findings."""
    confidence: Confidence
    """The lowest of its worst findings that have this cause themselves; their consequences may be less sure."""
    known_as: str | None
    """The Kafka issue that explains all of its findings, such as KAFKA-10751."""
    from_ms: int | None
    """The first and last time of it, milliseconds since 1970; None: unknown."""
    to_ms: int | None
    brokers: list[Broker]
    """The affected brokers: the leader that was not elected, the owner of the missing directory; empty if there are none."""
    lost_at_least: int
    """The sums over its partitions."""
    lost_at_most: int
    records_lost_at_least: int | None
    """None: unknown in some partition."""
    records_lost_at_most: int | None
    held_by: list[Broker]
    partitions: list[IncidentPartition]
    """Longest loss first."""
    findings: list[int] = field(default_factory=list)
    """Indexes in the list of findings, ascending."""
    kinds: dict[str, int] = field(default_factory=dict)
    """Number of findings of each kind, the most severe kind first."""
