"""Replaying the transaction coordinators' log: the last word on every transactional id, and how each transaction was decided.

Every record restates the whole state of its id, so a record that cannot be read makes that one id unknown until the next good
record about it; a key that cannot be read may have been anybody's (TransactionStateManager, TransactionMetadata).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from kafka_forensics.model.coordinators import OPEN_STATES, Decision, LoggedState, TransactionLog, TransactionMetadata

DECISIONS_KEPT: Final = 1 << 17
"""Decisions of the newest transactions that are kept, over all partitions of the log."""
LISTED_KEPT: Final = 1 << 21
"""Partitions listed by states and decisions that are kept in all: decisions give way first, then ids become unknown."""
IDS_KEPT: Final = 1 << 18
"""Transactional ids that are remembered at most, those that became unknown likewise, and twice as many for producers. Those without
a transaction in hand give way first, the ones last heard of longest ago before others; of an id that gave way nothing is concluded,
nor of its producers."""
OWNERS_KEPT: Final = 16
"""Transactional ids of one producer id that are remembered at most; Kafka gives a producer id to one."""
MAX_PARTITIONS: Final = 10_000
"""Partitions that `__transaction_state` is believed to have at most."""
_PREPARED: Final = {"PrepareCommit": True, "PrepareAbort": False}
_COMPLETED: Final = {"CompleteCommit": True, "CompleteAbort": False}


class TransactionLogReplay:
    """Takes the records of each partition of the log in offset order; `finish` gives what they say together."""

    def __init__(self) -> None:
        self._log = TransactionLog()
        self._ids_of: dict[int, tuple[str, ...]] = {}
        self._names = 0
        """Names in all of these."""
        self._pending: dict[str, Decision] = {}
        self._decided: deque[Decision] = deque()
        self._listed = 0
        """Partitions listed by states and decided transactions."""

    def take(
        self, transactional_id: str, partition: int, offset: int, timestamp: int, metadata: TransactionMetadata | None
    ) -> None:
        """A record that could be read; `metadata` None is a tombstone: the id expired."""
        log = self._log
        log.newest_timestamp = max(log.newest_timestamp, timestamp)
        log.unknown_ids.pop(transactional_id, None)
        before = log.states.pop(transactional_id, None)
        self._listed += _listed(metadata) - _listed(None if before is None else before.metadata)
        self._make_room()
        if self._listed > LISTED_KEPT and metadata is not None:
            self._listed -= _listed(metadata)
            self.malformed(transactional_id, partition, offset)
            return
        log.states[transactional_id] = LoggedState(transactional_id, partition, offset, timestamp, metadata)
        for producer_id in _producer_ids(metadata):
            self._owns(producer_id, transactional_id)
        self._forget()
        pending = self._pending.get(transactional_id)
        if metadata is None:
            if pending is not None:
                self._close(pending, timestamp)
            return
        if pending is not None and metadata.state not in _PREPARED:
            # only a Complete record can follow a Prepare one; where it is gone, the cleaner took it
            # its own time is that of before the markers were sent (prepareComplete), the record's that of after
            self._close(pending, max(timestamp, metadata.last_update_timestamp) if metadata.state in _COMPLETED else timestamp)
        if metadata.state in _PREPARED:
            if pending is not None:
                self._close(pending, timestamp)
            self._pending[transactional_id] = _decision(transactional_id, partition, offset, metadata)

    def malformed(self, transactional_id: str | None, partition: int, offset: int) -> None:
        """A record that could not be read; the id is None where its key could not be read either."""
        if transactional_id is None:
            self._log.unknown_from.setdefault(partition, offset)
            return
        self._unknown(transactional_id, partition, offset)
        pending = self._pending.pop(transactional_id, None)
        if pending is not None:
            self._keep(pending)  # decided, but what came after is not known

    def lost(self, partition: int, offset: int) -> None:
        """Records of a partition are missing from `offset` on."""
        self._log.unknown_from[partition] = min(offset, self._log.unknown_from.get(partition, offset))

    def read(self, partition: int, broker: int | str) -> None:
        """The copy of `broker` was read to the end of the partition."""
        self._log.partitions[partition] = broker

    @property
    def damaged(self) -> bool:
        """Whether records are missing, or were nobody's."""
        return bool(self._log.unknown_from)

    def merge(self, other: "TransactionLogReplay") -> None:
        """Add what was replayed of other partitions. An id is in several where their number was raised: its newest state counts."""
        ours, theirs = self._log, other._log
        for name, state in theirs.states.items():
            known = ours.states.get(name)
            older = known if known is None or known.timestamp <= state.timestamp else state
            if older is not state:
                ours.states[name] = state
            self._listed -= 0 if older is None else _listed(older.metadata)
        ours.partitions |= theirs.partitions
        for partition, offset in theirs.unknown_from.items():
            self.lost(partition, offset)
        for name, (partition, offset) in theirs.unknown_ids.items():
            self._unknown(name, partition, offset)
        ours.newest_timestamp = max(ours.newest_timestamp, theirs.newest_timestamp)
        ours.forgot |= theirs.forgot
        ours.any_partly_known |= theirs.any_partly_known
        for producer_id in theirs.partly_known:
            self._forget_of(producer_id)
        for producer_id, names in other._ids_of.items():
            for name in names:
                self._owns(producer_id, name)
        self._decided.extend(other._pending[name] for name in self._pending.keys() & other._pending.keys())
        self._pending = other._pending | self._pending
        self._decided.extend(other._decided)
        self._listed += other._listed
        self._forget()
        self._make_room()

    def finish(self, known_partitions: Iterable[int] = (), *, are_names: bool = True) -> TransactionLog:
        """The log as it was replayed; `known_partitions` are those that exist, as far as anything says. Ids that are pseudonyms
        and no names do not tell in how many partitions they are placed."""
        log = self._log
        decided = [*self._decided, *self._pending.values()]
        log.decisions = sorted(decided, key=lambda decision: (decision.log_partition, decision.offset))
        log.ids_of_producer = self._ids_of
        known = {number for number in (*known_partitions, *log.partitions) if number < MAX_PARTITIONS}
        count = partition_count(
            max(known, default=-1) + 1,
            ((state.transactional_id, state.partition) for state in log.states.values() if are_names),
        )
        log.missing = sorted(set(range(count)) - set(log.partitions))
        return log

    def _unknown(self, transactional_id: str, partition: int, offset: int) -> None:
        """Not to know an id from an offset on; where there are too many such ids, no id of the partition is known."""
        unknown = self._log.unknown_ids
        if transactional_id in unknown or len(unknown) < IDS_KEPT:
            unknown[transactional_id] = (partition, offset)
        else:
            self.lost(partition, offset)

    def _owns(self, producer_id: int, transactional_id: str) -> None:
        names = self._ids_of.get(producer_id, ())
        if transactional_id in names:
            return
        if len(names) < OWNERS_KEPT:
            self._ids_of[producer_id] = (*names, transactional_id)
            self._names += 1
        else:
            self._forget_of(producer_id)

    def _forget_of(self, producer_id: int) -> None:
        """A producer id's ids are not all remembered from now on."""
        log = self._log
        log.forgot = True
        if len(log.partly_known) < 2 * IDS_KEPT:
            log.partly_known.add(producer_id)
        else:
            log.any_partly_known |= producer_id not in log.partly_known

    def _forget(self) -> None:
        """Let go of an eighth of the ids, and of the oldest producers, when there are more than are remembered."""
        states = self._log.states
        if len(states) > IDS_KEPT:
            self._log.forgot = True
            gone = set()
            settled = (name for name, state in states.items() if state.metadata is None or state.metadata.state not in OPEN_STATES)
            for name in list(islice(chain(settled, list(states)), max(len(states) - IDS_KEPT * 7 // 8, 1))):
                state = states.pop(name, None)
                gone.add(name)
                self._listed -= 0 if state is None else _listed(state.metadata)
                pending = self._pending.pop(name, None)
                if pending is not None:
                    self._keep(pending)
            for producer_id in [producer_id for producer_id, names in self._ids_of.items() if not gone.isdisjoint(names)]:
                names = self._ids_of[producer_id]
                kept = self._ids_of[producer_id] = tuple(name for name in names if name not in gone)
                self._names -= len(names) - len(kept)
                self._forget_of(producer_id)
                if not kept:
                    del self._ids_of[producer_id]
        if self._names > 2 * IDS_KEPT:
            for producer_id in list(self._ids_of):
                if self._names <= IDS_KEPT:
                    break
                self._names -= len(self._ids_of.pop(producer_id))
                self._forget_of(producer_id)

    def _close(self, decision: Decision, completed_timestamp: int) -> None:
        self._pending.pop(decision.transactional_id, None)
        self._keep(replace(decision, completed_timestamp=completed_timestamp))

    def _keep(self, decision: Decision) -> None:
        self._decided.append(decision)
        self._listed += len(decision.partitions)
        self._make_room()

    def _make_room(self) -> None:
        """Let go of the oldest decisions while there are too many, or they list too much."""
        while self._decided and (len(self._decided) > DECISIONS_KEPT or self._listed > LISTED_KEPT):
            self._listed -= len(self._decided.popleft().partitions)


def _decision(transactional_id: str, partition: int, offset: int, metadata: TransactionMetadata) -> Decision:
    return Decision(
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


def _producer_ids(metadata: TransactionMetadata | None) -> tuple[int, ...]:
    if metadata is None:
        return ()
    return tuple(
        producer_id
        for producer_id in (metadata.producer_id, metadata.previous_producer_id, metadata.next_producer_id)
        if producer_id >= 0
    )


def _listed(metadata: TransactionMetadata | None) -> int:
    return 0 if metadata is None else len(metadata.partitions)


def partition_count(at_least: int, placed: Iterable[tuple[str, int]]) -> int:
    """How many partitions the log has: the fewest, not less than `at_least`, that put every id where it was found.

    An id stands in the partition given by its hash modulo their number (TransactionStateManager.partitionFor); where no number
    fits, `at_least` is the answer.
    """
    hashes = {(java_hash(name), partition) for name, partition in placed}
    for count in range(max(at_least, 1), MAX_PARTITIONS + 1):
        if all(value % count == partition for value, partition in hashes):
            return count if at_least else 0
    return at_least


def java_hash(text: str) -> int:
    """`String.hashCode` of Java as Kafka makes it positive (Utils.abs): 0 for the one value that has no positive twin."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    value -= (value & 0x80000000) << 1
    return 0 if value == -(1 << 31) else abs(value)


def describes(state: LoggedState, topic: str, partition: int) -> bool:
    """Whether the coordinator still has to end a transaction of this id in a partition (KIP-664: it is not hanging)."""
    metadata = state.metadata
    return metadata is not None and metadata.state in OPEN_STATES and (topic, partition) in metadata.partitions
