"""The transaction coordinators' log replayed: the latest state of every transactional id, and how each transaction was decided.

Every record has the whole state of its id, so an unreadable record makes its id unknown until the next good record. An unreadable
key may belong to any id (TransactionStateManager, TransactionMetadata).
"""

from collections import deque
from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

from msgspec.structs import replace

from kafka_forensics.model.coordinators import OPEN_STATES, Decision, LoggedState, TransactionLog, TransactionMetadata

DECISIONS_KEPT: Final = 1 << 17
"""Decisions kept over all partitions of the log: those of the newest transactions."""
LISTED_KEPT: Final = 1 << 21
"""Partitions listed by all states and decisions that are kept. Beyond, decisions are dropped first, then ids become unknown."""
IDS_KEPT: Final = 1 << 18
"""Transactional ids kept, unknown ids kept, and half the number of owners kept. Beyond, ids without an open transaction are dropped
first, the least recent first; nothing is concluded about a dropped id or its producers."""
OWNERS_KEPT: Final = 16
"""Transactional ids kept per producer id; Kafka gives a producer id to one."""
MAX_PARTITIONS: Final = 10_000
"""The largest plausible number of partitions of `__transaction_state`."""
_PREPARED: Final = {"PrepareCommit": True, "PrepareAbort": False}
_COMPLETED: Final = {"CompleteCommit": True, "CompleteAbort": False}


class TransactionLogReplay:
    """Takes the records of each partition of the log in offset order; `finish` returns the whole log."""

    def __init__(self) -> None:
        self._log = TransactionLog()
        self._ids_of: dict[int, tuple[str, ...]] = {}
        self._owners_count = 0
        """Transactional ids in all values of `_ids_of`."""
        self._pending: dict[str, Decision] = {}
        self._decided: deque[Decision] = deque()
        self._listed = 0
        """Partitions listed by states and decided transactions."""

    def take(
        self, transactional_id: str, partition: int, offset: int, timestamp: int, metadata: TransactionMetadata | None
    ) -> None:
        """Add a readable record; `metadata` None is a tombstone: the id expired."""
        log = self._log
        log.newest_timestamp = max(log.newest_timestamp, timestamp)
        log.unknown_ids.pop(transactional_id, None)
        before = log.states.pop(transactional_id, None)
        self._listed += _listed(metadata) - _listed(None if before is None else before.metadata)
        self._drop_decisions()
        if self._listed > LISTED_KEPT and metadata is not None:
            self._listed -= _listed(metadata)
            self.malformed(transactional_id, partition, offset)
            return
        log.states[transactional_id] = LoggedState(transactional_id, partition, offset, timestamp, metadata)
        if metadata is not None:
            for producer_id in (metadata.producer_id, metadata.previous_producer_id, metadata.next_producer_id):
                if producer_id >= 0:
                    self._add_owner(producer_id, transactional_id)
        self._drop_ids()
        pending = self._pending.get(transactional_id)
        if pending is not None:
            # only a Complete record can follow a Prepare one; if it is missing, the cleaner removed it
            # its last update time is that before the markers were sent (prepareComplete), the record's that after
            is_completed = metadata is not None and metadata.state in _COMPLETED
            completed = max(timestamp, metadata.last_update_timestamp) if metadata is not None and is_completed else timestamp
            self._pending.pop(transactional_id, None)
            self._keep(replace(pending, completed_timestamp=completed))
        if metadata is not None and metadata.state in _PREPARED:
            self._pending[transactional_id] = Decision(
                transactional_id,
                metadata.producer_id,
                metadata.producer_epoch,
                _PREPARED[metadata.state],
                metadata.partitions,
                metadata.start_timestamp,
                metadata.last_update_timestamp,
                None,
                partition,
                offset,
                metadata.client_transaction_version,
            )

    def malformed(self, transactional_id: str | None, partition: int, offset: int) -> None:
        """Add an unreadable record; the id is None if its key is unreadable, too."""
        if transactional_id is None:
            self._log.unknown_from.setdefault(partition, offset)
            return
        self._mark_unknown(transactional_id, partition, offset)
        pending = self._pending.pop(transactional_id, None)
        if pending is not None:
            self._keep(pending)  # decided, but what came after is not known

    def lost(self, partition: int, offset: int) -> None:
        """Note that records of a partition are missing from `offset` on."""
        self._log.unknown_from[partition] = min(offset, self._log.unknown_from.get(partition, offset))

    def read(self, partition: int, broker: int | str) -> None:
        """Note that the partition was read to its end, from the copy of `broker`."""
        self._log.partitions[partition] = broker

    @property
    def damaged(self) -> bool:
        """Whether records are missing, or keys unreadable."""
        return bool(self._log.unknown_from)

    def merge(self, other: "TransactionLogReplay") -> None:
        """Add the replay of other partitions. If their number was raised, an id may be in several: its newest state counts."""
        ours, theirs = self._log, other._log
        for name, state in theirs.states.items():
            our_state = ours.states.get(name)
            older = our_state if our_state is None or our_state.timestamp <= state.timestamp else state
            if older is not state:
                ours.states[name] = state
            self._listed -= 0 if older is None else _listed(older.metadata)
        ours.partitions |= theirs.partitions
        for partition, offset in theirs.unknown_from.items():
            self.lost(partition, offset)
        for name, (partition, offset) in theirs.unknown_ids.items():
            self._mark_unknown(name, partition, offset)
        ours.newest_timestamp = max(ours.newest_timestamp, theirs.newest_timestamp)
        ours.forgot |= theirs.forgot
        ours.any_partly_known |= theirs.any_partly_known
        for producer_id in theirs.partly_known:
            self._mark_partly_known(producer_id)
        for producer_id, names in other._ids_of.items():
            for name in names:
                self._add_owner(producer_id, name)
        self._decided.extend(other._pending[name] for name in self._pending.keys() & other._pending.keys())
        self._pending = other._pending | self._pending
        self._decided.extend(other._decided)
        self._listed += other._listed
        self._drop_ids()
        self._drop_decisions()

    def finish(self, known_partitions: Iterable[int] = (), *, are_names: bool = True) -> TransactionLog:
        """The replayed log. `known_partitions` are known to exist; ids show the number of partitions only if they `are_names`, not
        pseudonyms of a bundle."""
        log = self._log
        decided = [*self._decided, *self._pending.values()]
        log.decisions = sorted(decided, key=lambda decision: (decision.log_partition, decision.offset))
        log.ids_of_producer = self._ids_of
        known = {number for number in (*known_partitions, *log.partitions) if number < MAX_PARTITIONS}
        count = partition_count(
            max(known, default=-1) + 1, ((state.transactional_id, state.partition) for state in log.states.values() if are_names)
        )
        log.missing = sorted(set(range(count)) - set(log.partitions))
        return log

    def _mark_unknown(self, transactional_id: str, partition: int, offset: int) -> None:
        """Mark an id unknown from an offset on; beyond IDS_KEPT such ids, all ids of the partition."""
        unknown = self._log.unknown_ids
        if transactional_id in unknown or len(unknown) < IDS_KEPT:
            unknown[transactional_id] = (partition, offset)
        else:
            self.lost(partition, offset)

    def _add_owner(self, producer_id: int, transactional_id: str) -> None:
        names = self._ids_of.get(producer_id, ())
        if transactional_id in names:
            return
        if len(names) < OWNERS_KEPT:
            self._ids_of[producer_id] = (*names, transactional_id)
            self._owners_count += 1
        else:
            self._mark_partly_known(producer_id)

    def _mark_partly_known(self, producer_id: int) -> None:
        """Note that not all ids of a producer id are kept."""
        log = self._log
        log.forgot = True
        if len(log.partly_known) < 2 * IDS_KEPT:
            log.partly_known.add(producer_id)
        else:
            log.any_partly_known |= producer_id not in log.partly_known

    def _drop_ids(self) -> None:
        """Drop an eighth of the ids, and of the oldest producers, if there are too many."""
        states = self._log.states
        if len(states) > IDS_KEPT:
            self._log.forgot = True
            dropped = set()
            ended = (name for name, state in states.items() if state.metadata is None or state.metadata.state not in OPEN_STATES)
            for name in list(islice(chain(ended, list(states)), max(len(states) - IDS_KEPT * 7 // 8, 1))):
                state = states.pop(name, None)
                dropped.add(name)
                self._listed -= 0 if state is None else _listed(state.metadata)
                pending = self._pending.pop(name, None)
                if pending is not None:
                    self._keep(pending)
            for producer_id in [producer_id for producer_id, names in self._ids_of.items() if not dropped.isdisjoint(names)]:
                names = self._ids_of[producer_id]
                kept = self._ids_of[producer_id] = tuple(name for name in names if name not in dropped)
                self._owners_count -= len(names) - len(kept)
                self._mark_partly_known(producer_id)
                if not kept:
                    del self._ids_of[producer_id]
        if self._owners_count > 2 * IDS_KEPT:
            for producer_id in list(self._ids_of):
                if self._owners_count <= IDS_KEPT:
                    break
                self._owners_count -= len(self._ids_of.pop(producer_id))
                self._mark_partly_known(producer_id)

    def _keep(self, decision: Decision) -> None:
        self._decided.append(decision)
        self._listed += len(decision.partitions)
        self._drop_decisions()

    def _drop_decisions(self) -> None:
        """Drop the oldest decisions while there are too many, or they list too many partitions."""
        while self._decided and (len(self._decided) > DECISIONS_KEPT or self._listed > LISTED_KEPT):
            self._listed -= len(self._decided.popleft().partitions)


def _listed(metadata: TransactionMetadata | None) -> int:
    return 0 if metadata is None else len(metadata.partitions)


def partition_count(at_least: int, placed: Iterable[tuple[str, int]]) -> int:
    """The smallest number of partitions, from `at_least` on, with which every id belongs where it was `placed`; `at_least` if none.

    An id belongs to the partition given by its hash modulo the number of partitions (TransactionStateManager.partitionFor).
    """
    hashes = {(java_hash(name), partition) for name, partition in placed}
    for count in range(max(at_least, 1), MAX_PARTITIONS + 1):
        if all(value % count == partition for value, partition in hashes):
            return count if at_least else 0
    return at_least


def java_hash(text: str) -> int:
    """Java's `String.hashCode` made positive as in Kafka (Utils.abs): 0 for the smallest int."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    value -= (value & 0x80000000) << 1
    return 0 if value == -(1 << 31) else abs(value)


def will_be_ended(state: LoggedState, topic: str, partition: int) -> bool:
    """Whether the coordinator will end a transaction of this id in the partition (KIP-664: then it is not hanging)."""
    metadata = state.metadata
    return metadata is not None and metadata.state in OPEN_STATES and (topic, partition) in metadata.partitions
