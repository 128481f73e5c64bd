"""The state of a simulated cluster: partitions, their replicas, what each broker knows, and what the controller has decided.

`actions`, `control`, `producers` and `transactions` change this state in place. Batches are immutable, and replicas share them.
Times are milliseconds of simulated time; no code here reads a clock.
"""

from typing import Final, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication.elections import FetchState
from kafka_forensics.replication.epochs import assign_epoch

TruncationProtocol = Literal["truncate-to-hw", "kip-101", "kip-279", "kip-320"]
PROTOCOLS: Final[tuple[TruncationProtocol, ...]] = ("truncate-to-hw", "kip-101", "kip-279", "kip-320")
"""How followers truncate, oldest first."""
START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1000
"""Simulated time between two actions."""
NO_EPOCH: Final = -1
COMMIT: Final = "COMMIT"
ABORT: Final = "ABORT"


class Batch(NamedTuple):
    """A batch as its leader appended it: a record id for each offset from `base_offset` on; the id of a marker is negative."""

    base_offset: int
    ids: tuple[int, ...]
    leader_epoch: int
    timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: str | None = None
    """`COMMIT` or `ABORT` of a control batch."""
    coordinator_epoch: int = -1

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.base_offset + len(self.ids)


class ProduceRequest(Struct):
    """A request to append the records `ids`, and the leader's response to it."""

    topic_partition: TopicPartition
    ids: tuple[int, ...]
    acks: int
    leader: int
    """The broker that receives it."""
    leader_epoch: int
    response: str = "waiting"
    """A value of `ProduceResponse` or `SequenceVerdict`, or `not leader`, or `lost` (the broker stopped before it responded)."""
    base_offset: int = -1
    end_offset: int = -1
    """Exclusive; -1 where nothing was appended."""
    is_answered: bool = True
    """Whether the response reaches the producer."""
    is_duplicate: bool = False
    """Whether the log already had the batch: nothing was appended."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether the producer received an acknowledgement."""
        return self.is_answered and self.response == "acknowledged"


class SimulatedReplica(Struct):
    """A broker's replica of one partition: its log on disk, and what the broker knows about the partition."""

    broker: int
    batches: list[Batch] = field(default_factory=list)
    log_end_offset: int = 0
    high_watermark: int = 0
    epochs: list[EpochEntry] = field(default_factory=list)
    """Its leader-epoch-checkpoint; the last entry may start at the log end."""
    checkpointed: int = 0
    """The high watermark in replication-offset-checkpoint."""
    checkpoint_valid_end: int = 0
    """`checkpointed`, lowered by every truncation since: above it the checkpoint refers to records that were truncated."""
    flushed_end: int = 0
    """What survives a power failure; also the recovery point."""
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    """From the last LeaderAndIsr request that the broker received."""
    isr: frozenset[int] = frozenset()
    """As the broker knows it while it leads."""
    must_truncate: bool = False
    """Whether it became a follower and has not requested yet from the leader where to truncate."""
    followers: dict[int, FetchState] = field(default_factory=dict)
    """What it knows of its followers while it leads."""
    waiting: list[ProduceRequest] = field(default_factory=list)
    """Requests without a response while it leads."""

    @property
    def leads(self) -> bool:
        """Whether the broker considers itself leader."""
        return self.leader == self.broker

    @property
    def ids(self) -> list[int]:
        """The record ids by offset."""
        return [record_id for batch in self.batches for record_id in batch.ids]

    def append(self, batch: Batch, *, with_epochs: bool = True) -> None:
        """Append a batch at the log end."""
        self.batches.append(batch)
        self.log_end_offset = batch.end_offset
        if with_epochs and (not self.epochs or self.epochs[-1].leader_epoch != batch.leader_epoch):
            assign_epoch(self.epochs, EpochEntry(batch.leader_epoch, batch.base_offset))

    def truncate(self, end: int) -> tuple[Batch, ...]:
        """Remove whole batches until none ends after `end`, and the epochs that start at or after the new log end; the batches."""
        removed: list[Batch] = []
        while self.batches and self.batches[-1].end_offset > end:
            removed.insert(0, self.batches.pop())
        self.log_end_offset = self.batches[-1].end_offset if self.batches else 0
        self.drop_empty_epochs()
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.flushed_end = min(self.flushed_end, self.log_end_offset)
        self.checkpoint_valid_end = min(self.checkpoint_valid_end, self.log_end_offset)
        return tuple(removed)

    def drop_empty_epochs(self) -> None:
        """Remove epochs that start at or after the log end."""
        while self.epochs and self.epochs[-1].start_offset >= self.log_end_offset:
            self.epochs.pop()


class SimulatedPartition(Struct):
    """A partition as the controller knows it, and its replicas."""

    topic: str
    number: int
    assignment: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
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

    def in_order(self, brokers: frozenset[int]) -> tuple[int, ...]:
        """Brokers in the order of the assignment."""
        return tuple(broker for broker in self.assignment if broker in brokers)


class PartitionChange(NamedTuple):
    """A record of the controller's log about one partition; `elected` where it begins a leader epoch."""

    timestamp_ms: int
    topic_partition: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    recovering: bool
    elected: bool
    kind: str
    """`created`, `isr`, or the kind of an election (`Elected.kind`)."""


class Cluster(Struct):
    """Brokers, partitions, the controller's log, and the acknowledgements that producers received."""

    brokers: tuple[int, ...]
    protocol: TruncationProtocol = "kip-320"
    elr_enabled: bool = False
    unclean: bool = False
    """unclean.leader.election.enable"""
    replica_lag_time_max_ms: int = 30_000
    now_ms: int = START_MS
    next_id: int = 0
    next_marker: int = 0
    partitions: dict[TopicPartition, SimulatedPartition] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)
    """Brokers that do nothing and lose nothing: SIGSTOP, a long garbage collection, a network partition."""
    fenced: set[int] = field(default_factory=set)
    """Brokers that the controller considers dead."""
    stopped_cleanly: set[int] = field(default_factory=set)
    """Dead brokers that shut down cleanly."""
    acknowledged: dict[int, ProduceRequest] = field(default_factory=dict)
    """Record id → the acknowledged request; with acks=0 the producer received no response."""
    committed: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Ids of records that were ever below the high watermark of a leader."""
    changes: list[PartitionChange] = field(default_factory=list)

    def create(
        self, topic: str, number: int = 0, assignment: tuple[int, ...] = (), *, min_insync_replicas: int = 1
    ) -> SimulatedPartition:
        """Create a partition, led by the first of its assignment, with all replicas in sync."""
        order = assignment or self.brokers
        partition = SimulatedPartition(topic, number, order, order[0], 0, frozenset(order), min_insync_replicas=min_insync_replicas)
        self.partitions[partition.name] = partition
        self.committed[partition.name] = set()
        partition.replicas = {broker: SimulatedReplica(broker) for broker in order}
        self.record_change(partition, elected=True, kind="created")
        return partition

    def record_change(self, partition: SimulatedPartition, *, elected: bool, kind: str) -> None:
        """Append the present state of a partition to the controller's log."""
        isr, elr = partition.in_order(partition.isr), partition.in_order(partition.elr)
        state = partition.leader, partition.leader_epoch, isr, elr, partition.recovering
        self.changes.append(PartitionChange(self.now_ms, partition.name, *state, elected, kind))

    @property
    def has_leader_epochs(self) -> bool:
        """Whether batches carry leader epochs (message format 2, Kafka 0.11)."""
        return self.protocol != "truncate-to-hw"

    @property
    def fences_fetches(self) -> bool:
        """Whether fetches carry the follower's leader epoch (KIP-320)."""
        return self.protocol == "kip-320"

    def is_running(self, broker: int) -> bool:
        """Whether a broker is neither dead nor paused."""
        return broker not in self.dead and broker not in self.paused

    def tick(self, milliseconds: int = STEP_MS) -> int:
        """Advance the time; returns the new time."""
        self.now_ms += milliseconds
        return self.now_ms

    def new_ids(self, count: int) -> tuple[int, ...]:
        """Unused record ids."""
        first = self.next_id
        self.next_id += count
        return tuple(range(first, first + count))

    def new_marker(self) -> tuple[int, ...]:
        """An unused id for a marker: negative, because it is not a record."""
        self.next_marker -= 1
        return (self.next_marker,)

    def copy(self) -> "Cluster":
        """An independent copy of the state; it shares batches and requests, and has no waiting requests."""
        return replace(
            self,
            dead=set(self.dead),
            paused=set(self.paused),
            fenced=set(self.fenced),
            stopped_cleanly=set(self.stopped_cleanly),
            acknowledged=dict(self.acknowledged),
            committed={name: set(ids) for name, ids in self.committed.items()},
            changes=list(self.changes),
            partitions={
                name: replace(
                    partition,
                    replicas={
                        broker: replace(
                            replica,
                            batches=list(replica.batches),
                            epochs=list(replica.epochs),
                            followers=dict(replica.followers),
                            waiting=[],
                        )
                        for broker, replica in partition.replicas.items()
                    },
                )
                for name, partition in self.partitions.items()
            },
        )
