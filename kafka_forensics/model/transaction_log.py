"""What the transaction coordinators' log (`__transaction_state`) says: of a transactional id, and of its transactions."""

from dataclasses import dataclass, field
from typing import Final

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

TopicPartition = tuple[str, int]


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
