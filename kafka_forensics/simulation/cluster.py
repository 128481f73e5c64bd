"""A small cluster as plain state: replicas of partitions, what their brokers know, and the controller's word on them.

Everything is changed in place by `actions`, `control`, `producers` and `transactions`; only batches are values, which replicas
share. Times are the history's own milliseconds: nothing here reads a clock.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication.elections import FetchState
from kafka_forensics.replication.epochs import assign_epoch

Truncating = Literal["truncate-to-hw", "kip-101", "kip-279", "kip-320"]
PROTOCOLS: Final[tuple[Truncating, ...]] = ("truncate-to-hw", "kip-101", "kip-279", "kip-320")
"""How followers truncate, oldest first."""
START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1000
"""Between two actions."""
NO_EPOCH: Final = -1
COMMIT: Final = "COMMIT"
ABORT: Final = "ABORT"


class Batch(NamedTuple):
    """A batch as its leader appended it: a record by its id at each offset from `base_offset` on, or a marker by a negative id."""

    base_offset: int
    ids: tuple[int, ...]
    leader_epoch: int
    timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: str | None = None
    """`COMMIT` or `ABORT`, of a control batch."""
    coordinator_epoch: int = -1

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.base_offset + len(self.ids)


@dataclass(slots=True)
class Sent:
    """A batch on its way to being acknowledged; `ids` are its records'."""

    topic_partition: TopicPartition
    ids: tuple[int, ...]
    acks: int
    leader: int
    leader_epoch: int
    answer: str = "waiting"
    """What the leader says: of `ProduceResponse`; `not leader`, `fenced`, `out of order`, `lost` (it died or was replaced)."""
    base_offset: int = -1
    end_offset: int = -1
    """Exclusive; -1 where nothing was appended."""
    answered: bool = True
    """False where the answer never reaches the producer."""
    duplicate: bool = False
    """Whether the leader had it before, and appended nothing."""

    @property
    def acknowledged(self) -> bool:
        """Whether the producer was told that all is well."""
        return self.answered and self.answer == "acknowledged"


@dataclass(slots=True)
class SimulatedReplica:
    """A broker's replica of one partition: what its disk holds, and what it takes for true."""

    broker: int
    batches: list[Batch] = field(default_factory=list)
    log_end_offset: int = 0
    high_watermark: int = 0
    epochs: list[EpochEntry] = field(default_factory=list)
    """Its leader-epoch-checkpoint; an entry may begin at the log end and have no record."""
    checkpointed: int = 0
    """The high watermark on disk."""
    vouched: int = 0
    """How far that speaks of this log: a cut since it was written makes it a word about records that are gone."""
    flushed: int = 0
    """Up to where the log survives a loss of power; also its recovery point."""
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    """The last word of the controller that it heard."""
    isr: frozenset[int] = frozenset()
    """As it knows it, while it leads."""
    truncates: bool = False
    """Whether it has yet to ask its leader where to cut."""
    followers: dict[int, FetchState] = field(default_factory=dict)
    """What fetches told it, while it leads."""
    waiting: list[Sent] = field(default_factory=list)
    """Batches it owes an answer, while it leads."""

    @property
    def leads(self) -> bool:
        """Whether it takes itself for the leader."""
        return self.leader == self.broker

    @property
    def ids(self) -> list[int]:
        """Ids by offset."""
        return [record_id for batch in self.batches for record_id in batch.ids]

    def append(self, batch: Batch, *, with_epochs: bool = True) -> None:
        """Add a batch at the log end."""
        self.batches.append(batch)
        self.log_end_offset = batch.end_offset
        if with_epochs and (not self.epochs or self.epochs[-1].leader_epoch != batch.leader_epoch):
            assign_epoch(self.epochs, EpochEntry(batch.leader_epoch, batch.base_offset))

    def cut(self, end: int) -> list[Batch]:
        """Truncate at `end`, whole batches at a time; what went. Epochs that begin at the new end or behind go as well."""
        gone: list[Batch] = []
        while self.batches and self.batches[-1].end_offset > end:
            gone.append(self.batches.pop())
        self.log_end_offset = self.batches[-1].end_offset if self.batches else 0
        while self.epochs and self.epochs[-1].start_offset >= self.log_end_offset:
            self.epochs.pop()
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.flushed = min(self.flushed, self.log_end_offset)
        self.vouched = min(self.vouched, self.log_end_offset)
        gone.reverse()
        return gone


@dataclass(slots=True)
class Partition:
    """A partition as the controller knows it, and its replicas."""

    topic: str
    number: int
    assignment: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = 0
    isr: frozenset[int] = frozenset()
    elr: frozenset[int] = frozenset()
    last_known_leader: int | None = None
    recovering: bool = False
    """Whether its leader was elected uncleanly."""
    min_insync_replicas: int = 1
    replicas: dict[int, SimulatedReplica] = field(default_factory=dict)

    @property
    def name(self) -> TopicPartition:
        """Topic and number."""
        return self.topic, self.number


class PartitionChange(NamedTuple):
    """What the controller wrote down of one partition; `elected` where it began a leader epoch."""

    timestamp_ms: int
    topic_partition: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    recovering: bool
    elected: bool
    kind: str
    """`created`, an election's kind, or `isr`."""


@dataclass(slots=True)
class Cluster:
    """Brokers, partitions, what the controller wrote, and what producers were told."""

    brokers: tuple[int, ...]
    protocol: Truncating = "kip-320"
    elr_enabled: bool = False
    unclean: bool = False
    """unclean.leader.election.enable"""
    replica_lag_time_max_ms: int = 30_000
    now_ms: int = START_MS
    next_id: int = 0
    next_marker: int = 0
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)
    """Stopped in the middle (SIGSTOP, a long pause): they do nothing and lose nothing."""
    fenced: set[int] = field(default_factory=set)
    """Whom the controller takes for dead."""
    clean: set[int] = field(default_factory=set)
    """Dead brokers that were shut down cleanly."""
    acknowledged: dict[int, Sent] = field(default_factory=dict)
    """Record id → what acknowledged it; with acks=0 that is no answer at all."""
    committed: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Ids of records that were ever below the high watermark of a leader."""
    changes: list[PartitionChange] = field(default_factory=list)

    def create(self, topic: str, number: int = 0, assignment: tuple[int, ...] = (), *, min_insync_replicas: int = 1) -> Partition:
        """A new partition, led by the first of its assignment, everyone in sync and aware of it."""
        order = assignment or self.brokers
        partition = Partition(topic, number, order, order[0], 0, 0, frozenset(order), min_insync_replicas=min_insync_replicas)
        self.partitions[partition.name] = partition
        self.committed[partition.name] = set()
        partition.replicas = {broker: SimulatedReplica(broker) for broker in order}
        self.changes.append(
            PartitionChange(self.now_ms, partition.name, order[0], 0, order, (), recovering=False, elected=True, kind="created")
        )
        return partition

    @property
    def epochs_known(self) -> bool:
        """Whether batches carry leader epochs (message format 2, Kafka 0.11)."""
        return self.protocol != "truncate-to-hw"

    @property
    def fences(self) -> bool:
        """Whether fetches carry the follower's leader epoch (KIP-320)."""
        return self.protocol == "kip-320"

    def runs(self, broker: int) -> bool:
        """Whether a broker does anything."""
        return broker not in self.dead and broker not in self.frozen

    def tick(self, milliseconds: int = STEP_MS) -> int:
        """Let time pass; the new time."""
        self.now_ms += milliseconds
        return self.now_ms

    def new_ids(self, count: int) -> tuple[int, ...]:
        """Ids nothing has yet."""
        first = self.next_id
        self.next_id += count
        return tuple(range(first, first + count))

    def new_marker(self) -> tuple[int, ...]:
        """An id for a marker: negative, for it is no record."""
        self.next_marker -= 1
        return (self.next_marker,)

    def copy(self) -> "Cluster":
        """Another cluster in the same state; batches and answers are shared, which nothing changes."""
        other = Cluster(**{name: getattr(self, name) for name in _PLAIN})
        for name in ("dead", "frozen", "fenced", "clean", "acknowledged", "changes"):
            setattr(other, name, getattr(self, name).copy())
        other.committed = {name: set(ids) for name, ids in self.committed.items()}
        other.partitions = {name: _copied(partition) for name, partition in self.partitions.items()}
        return other


_PLAIN: Final = ("brokers", "protocol", "elr_enabled", "unclean", "replica_lag_time_max_ms", "now_ms", "next_id", "next_marker")


def _copied(partition: Partition) -> Partition:
    values = {name: getattr(partition, name) for name in partition.__slots__}
    values["replicas"] = {broker: _copied_replica(replica) for broker, replica in partition.replicas.items()}
    return Partition(**values)


def _copied_replica(replica: SimulatedReplica) -> SimulatedReplica:
    values = {name: getattr(replica, name) for name in replica.__slots__}
    for name in ("batches", "epochs", "followers"):
        values[name] = values[name].copy()
    values["waiting"] = []
    return SimulatedReplica(**values)
