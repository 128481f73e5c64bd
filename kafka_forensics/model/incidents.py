"""Incidents: findings of one cause, on the same brokers, at the same time, as one thing that happened."""

from dataclasses import dataclass, field
from enum import StrEnum

from kafka_forensics.model.findings import Broker, Confidence, Severity
from kafka_forensics.model.json_objects import Json


class Cause(StrEnum):
    """What the findings of an incident have in common, as far as the files show it."""

    UNCLEAN_ELECTION = "unclean_election"
    """A controller's log shows the unclean election that cost what the findings speak of."""
    LAST_REPLICA_ELECTED = "last_replica_elected"
    """The last member of the ISR came back shorter and was elected."""
    REPLICAS_DIVERGE = "replicas_diverge"
    """Replicas hold different records of the same offsets, and no election is known to have done it."""
    LOG_DIRECTORY_GONE = "log_directory_gone"
    """A broker's log directory, or directories of partitions in it, are empty or not there."""
    SHORT_REPLICA = "short_replica"
    """Replicas of one broker lack committed records, as an older copy would, or a log that lost its end."""
    UNCLEAN_SHUTDOWN = "unclean_shutdown"
    """What a broker left behind that was not stopped cleanly, and what a start would make of it."""
    DAMAGED_LOG = "damaged_log"
    """Bytes of segments are wrong, or missing."""
    DAMAGED_FILES = "damaged_files"
    """Indexes, snapshots or checkpoints are wrong; the segments are not said to be."""
    TOPIC_RECREATED = "topic_recreated"
    """Directories of one topic's name are of different topics."""
    HANGING_TRANSACTION = "hanging_transaction"
    """Transactions that nobody ends."""
    TORN_TRANSACTION = "torn_transaction"
    """Transactions that ended in two ways, or in part."""
    PRODUCER_SEQUENCE = "producer_sequence"
    """Producers' sequences or epochs that do not follow each other."""
    READERS_HELD_BACK = "readers_held_back"
    """Readers wait for a high watermark that does not move."""
    OLDER_FORMAT = "older_format"
    """A replica has its records in an older message format, which cannot hold all that they have."""
    CLEANER_STOPPED = "cleaner_stopped"
    """A broker does not clean its compacted logs any more."""
    COMMITTED_LOST = "committed_lost"
    """Committed records are in no copy, and no file says why."""
    LOST_SINCE = "lost_since"
    """Committed records that an older snapshot has are gone in a newer one."""
    MIXED_COPIES = "mixed_copies"
    """Copies of different clusters, nodes or moments, or directories that are none of Kafka's."""
    CONTROLLERS = "controllers"
    """Controllers lost metadata, or cannot apply it."""
    UNREADABLE_RECORDS = "unreadable_records"
    """Records, or parts of a log, that were not read."""
    SETTINGS = "settings"
    """Settings, and what clients do, that may harm."""


@dataclass(frozen=True, slots=True)
class IncidentPartition:
    """What an incident means for one partition. Losses are numbers of offsets; an end is exclusive; None: no offsets are told."""

    topic: str
    partition: int
    lost_at_least: int
    """Committed offsets that are proven to be lost, or to survive only where Kafka will cut them."""
    lost_at_most: int
    """The same with those at risk."""
    records_lost_at_least: int | None
    """The records among them, transaction markers not counted; None where nobody who holds them was read, or they are too many."""
    records_lost_at_most: int | None
    offset_start: int | None
    offset_end: int | None
    held_by: list[Broker]
    """Brokers with a good copy of some of it."""
    held_ranges: list[Json] = field(default_factory=list)
    """Who holds which of these offsets (`offset_start`, `offset_end`, `brokers`), where not all of them are on the same brokers:
    finding by finding."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings above `info` that fold into one. Every such finding is in exactly one incident of its scan."""

    cause: Cause
    severity: Severity
    """The worst of its findings."""
    confidence: Confidence
    """The least of the worst findings that are of its cause by themselves; what follows of them may be less sure."""
    known_as: str | None
    """The issue of a known incident that explains all of its findings, such as KAFKA-10751."""
    from_ms: int | None
    """When it happened, the first and the last moment, milliseconds since 1970; None where no file tells."""
    to_ms: int | None
    brokers: list[Broker]
    """Those it happened to: the leader that was passed over, the one whose directory is gone; none where it is no broker's."""
    lost_at_least: int
    """The sums over its partitions."""
    lost_at_most: int
    records_lost_at_least: int | None
    """None where they are not known of every partition."""
    records_lost_at_most: int | None
    held_by: list[Broker]
    partitions: list[IncidentPartition]
    """Longest loss first."""
    findings: list[int] = field(default_factory=list)
    """Their places in the list of findings, ascending."""
    kinds: dict[str, int] = field(default_factory=dict)
    """How many findings of each kind, the gravest kind first."""
