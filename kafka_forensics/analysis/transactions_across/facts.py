"""What is kept of a partition's transactions until all partitions are read: the best copy's last markers and open transactions.

The total is bounded: if very many markers are kept, every partition keeps only its last ones.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct, field

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import damaged_offsets, electable
from kafka_forensics.analysis.transactions import OFFSET, PRODUCER_EPOCH, PRODUCER_ID, TIMESTAMP, TYPE, OpenTransaction, rules
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.results import ReadExtent

if TYPE_CHECKING:
    from numpy.typing import NDArray


ROWS_KEPT: Final = 1 << 18
"""Markers and ended transactions kept over all partitions, 120 bytes each at most."""
OPEN_KEPT: Final = 1 << 10
"""Open transactions of a partition that are examined, the oldest first."""
MARKERS_TRIED: Final = 64
"""Last markers of a copy that may prove that a shorter replica lacks records."""


class MarkersBeyond(Struct, frozen=True):
    """The last markers of one copy beyond the end of a replica that may be elected, and beyond every high watermark."""

    broker: int | str
    log_end_offset: int
    rows: "NDArray[np.int64]"
    """Columns of `LastMarkers`, in file order."""


class PartitionFacts(Struct):
    """The transactions of one partition, from the copy that extends furthest among the whole ones."""

    context: ReplicaContext
    brokers: list[int | str]
    """Of every copy."""
    compacted: bool
    clean: bool
    """The brokers of all copies were stopped cleanly, so no log continues."""
    whole: bool
    """No bytes of the copy are damaged or unread; offsets may be missing."""
    gaps: list[tuple[int, int]]
    """Offsets [start, end) that no copy has."""
    markers: "NDArray[np.int64]"
    """Columns of `LastMarkers`, in file order."""
    ended: "NDArray[np.int64]"
    """Columns of the kernels' reports (`rules.FOUND_WIDTH`), in file order."""
    open: dict[int, OpenTransaction]
    """Producer id → its open transaction."""
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    broker_timestamp: int
    """The newest timestamp set by a broker in any copy, in ms; -1: none."""
    elsewhere: "NDArray[np.int64]"
    """Markers that only other copies have."""
    forgotten: list[OpenTransaction]
    """Open in the newest snapshot of some copy, though no copy's log shows them."""
    ended_elsewhere: dict[int, list[int | str]] = field(default_factory=dict)
    """Producer id → brokers whose copy has the marker of the transaction that is open in this one."""
    open_elsewhere: set[int] = field(default_factory=set)
    """Producer ids with an open transaction in another copy that is not open in this one."""
    nodes: list[int | str] = field(default_factory=list)
    """Of every copy, its broker's id for the controller."""
    same_end_nodes: list[int | str] = field(default_factory=list)
    """The same of this copy and of whole copies with the same end, in epoch and offset."""
    all_whole: bool = True
    """As `whole`, of every copy."""
    entire_since: int | None = None
    """Time, in ms, from which on all markers ever written are kept; None: some may have been deleted legally."""
    beyond: list[MarkersBeyond] = field(default_factory=list)
    _rows_of: "dict[tuple[int, int], list[int]]" = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows kept."""
        return len(self.markers) + len(self.ended)

    def trim(self) -> None:
        """Keep the last half of the markers, and the transactions that they ended."""
        self.markers = self.markers[-(len(self.markers) // 2) or None :].copy()
        self.ended = self.ended[np.isin(self.ended[:, rules.FOUND_OFFSET], self.markers[:, OFFSET])]
        self._rows_of = {}
        self.entire_since = None

    def reaches_back(self, timestamp: int) -> bool:
        """Whether a marker of this time, and all after it, would be among those kept."""
        return any(since is not None and since <= timestamp for since in (self.first_marker_timestamp, self.entire_since))

    def markers_of(self, producer_id: int, producer_epoch: int) -> "NDArray[np.int64]":
        """Rows of a producer's markers with one epoch."""
        if not self._rows_of:
            for row, producer in enumerate(self.markers[:, [PRODUCER_ID, PRODUCER_EPOCH]].tolist()):
                self._rows_of.setdefault(tuple(producer), []).append(row)
        answer: NDArray[np.int64] = self.markers[self._rows_of.get((producer_id, producer_epoch), [])]
        return answer

    @property
    def first_marker_timestamp(self) -> int | None:
        """Of the earliest marker kept."""
        return int(self.markers[:, TIMESTAMP].min()) if len(self.markers) else None

    @property
    def last_marker_timestamp(self) -> int | None:
        """Of the latest marker kept."""
        return int(self.markers[:, TIMESTAMP].max()) if len(self.markers) else None

    def had_transaction_data(self, marker_offset: int) -> bool:
        """Whether the marker at this offset ended a transaction with data in this copy."""
        return bool((self.ended[:, rules.FOUND_OFFSET] == marker_offset).any())

    def marker_before(self, producer_id: int, offset: int, timestamp: int) -> int | None:
        """Offset of the producer's last marker before `offset`, if it is newer than `timestamp`: data after it that are older
        arrived late (KAFKA-9144)."""
        markers = self.markers
        before = markers[(markers[:, PRODUCER_ID] == producer_id) & (markers[:, OFFSET] < offset)]
        late = len(before) and int(before[-1, TIMESTAMP]) >= timestamp
        return int(before[-1, OFFSET]) if late else None

    def written_after(self, offset: int) -> int:
        """Timestamp of the newest marker before `offset`, by its broker's clock: what follows is not older. -1: none."""
        return int(self.markers[self.markers[:, OFFSET] < offset, TIMESTAMP].max(initial=-1))

    def previous_marker_offset(self, timestamp: int) -> int | None:
        """Offset of the last marker older than `timestamp`."""
        older = self.markers[self.markers[:, TIMESTAMP] < timestamp, OFFSET]
        return int(older.max()) if len(older) else None


def partition_facts(replicas: Sequence[Replica]) -> PartitionFacts | None:
    """The facts of one partition; None if no copy could be read or has transactions, and no coordinator's decision lists it."""
    folds = [replica.state.transactions for replica in replicas]
    present = any(
        len(fold.last_markers.markers.rows) or fold.open_transactions(1) or replica.forgotten
        for fold, replica in zip(folds, replicas, strict=True)
    )
    if all(replica.read is ReadExtent.NONE for replica in replicas) or not (present or replicas[0].context.decided):
        return None
    best = best_copy(replicas)
    since = _entire_since(best)
    if not present and since is None:
        return None
    fold, context, gaps = best.state.transactions, best.context, best.offset_sequence.gaps()
    runs = [run for replica in replicas if gaps for run in replica.state.continuity.runs]
    same_end = [replica for replica in replicas if replica is best or (_is_whole(replica) and _end(replica) == _end(best))]
    facts = PartitionFacts(
        context,
        [replica.broker for replica in replicas],
        any(replica.context.compacted for replica in replicas),
        all(replica.context.clean_shutdown for replica in replicas),
        _is_whole(best),
        [gap for gap in gaps if not any(run.start_offset < gap[1] and gap[0] < run.end_offset for run in runs)],
        fold.last_markers.markers.rows,
        fold.ended(),
        {transaction.producer_id: transaction for transaction in fold.open_transactions(OPEN_KEPT)},
        fold.last_stable_offset(context.high_watermark, best.log_end_offset),
        best.local_log_start_offset,
        best.log_end_offset,
        max(replica.state.framing.broker_timestamp for replica in replicas),
        _rows_of_other_copies(fold.last_markers.markers.rows, replicas),
        [transaction for transaction in best.forgotten if not any(fold.knows(transaction.producer_id) for fold in folds)],
        nodes=[replica.context.node for replica in replicas],
        same_end_nodes=[replica.context.node for replica in same_end],
        all_whole=all(map(_is_whole, replicas)),
        entire_since=since,
        beyond=_markers_beyond(replicas),
    )
    for other in replicas:
        if other is not best:
            _take_other_copy(facts, other)
    return facts


def _take_other_copy(facts: PartitionFacts, other: Replica) -> None:
    """Add the transactions that are open only in another copy, and those open here that ended there."""
    fold = other.state.transactions
    ours = {(transaction.producer_id, transaction.first_offset) for transaction in facts.open.values()}
    theirs = {(transaction.producer_id, transaction.first_offset) for transaction in fold.open_transactions(OPEN_KEPT)}
    facts.open_elsewhere |= {producer_id for producer_id, _ in theirs - ours}
    if not ours:
        return
    ended = fold.ended()
    for transaction in facts.open.values():
        if (
            (ended[:, rules.FOUND_PRODUCER_ID] == transaction.producer_id)
            & (ended[:, rules.DATA_FIRST_OFFSET] == transaction.first_offset)
        ).any():
            facts.ended_elsewhere.setdefault(transaction.producer_id, []).append(other.broker)


def _markers_beyond(replicas: Sequence[Replica]) -> list[MarkersBeyond]:
    """Markers of each copy that could prove that an electable replica lacks records; none of live copies, nor without a
    controller's log."""
    control = replicas[0].context.control
    if control is None or any(replica.context.live or not replica.end_is_known for replica in replicas):
        return []
    members = electable(control)
    ends = [replica.log_end_offset for replica in replicas if replica.context.node in members]
    watermark = max(min(replica.context.high_watermark or 0, replica.log_end_offset) for replica in replicas)
    floor = max(min(ends, default=0), watermark)
    beyonds = []
    for replica in replicas if ends else ():
        rows = replica.state.transactions.last_markers.markers.rows
        rows = rows[rows[:, OFFSET] >= floor][-MARKERS_TRIED:]
        if len(rows):
            beyonds.append(MarkersBeyond(replica.broker, replica.log_end_offset, rows.copy()))
    return beyonds


def best_copy(replicas: Sequence[Replica]) -> Replica:
    """The copy that shows a partition's transactions best: whole ones first, then the leader's, then the furthest."""

    def order(replica: Replica) -> tuple[bool, bool, tuple[int, int]]:
        control = replica.context.control
        return _is_whole(replica), control is not None and control.leader == replica.context.node, _end(replica)

    return max(replicas, key=order)


def _entire_since(replica: Replica) -> int | None:
    """Since when a log has every marker: since the topic's creation, if it begins at offset 0 and is of that topic."""
    context, control = replica.context, replica.context.control
    if control is None or replica.local_log_start_offset != 0 or context.topic_id is None or context.topic_id != control.topic_id:
        return None
    return control.exists_since_ms if replica.state.transactions.last_markers.markers.complete else None


def _rows_of_other_copies(ours: "NDArray[np.int64]", replicas: Sequence[Replica]) -> "NDArray[np.int64]":
    """Rows of other copies about markers that our copy does not have at their offset."""
    others = [replica.state.transactions.last_markers.markers.rows for replica in replicas]
    facts = [PRODUCER_ID, PRODUCER_EPOCH, OFFSET, TYPE]
    differing = [rows for rows in others if not np.array_equal(rows[:, facts], ours[:, facts])]
    our_markers = set(map(tuple, ours[:, facts].tolist())) if differing else set()
    only_theirs = [rows[[tuple(fact) not in our_markers for fact in rows[:, facts].tolist()]] for rows in differing if len(rows)]
    return np.concatenate([ours[:0], *only_theirs])


def _is_whole(replica: Replica) -> bool:
    return not replica.state.framing.bytes_damaged and not replica.state.unread


def _end(replica: Replica) -> tuple[int, int]:
    """Last epoch and log end of a copy."""
    return max((entry.leader_epoch for entry in replica.epochs), default=-1), replica.log_end_offset


class PartitionTransactionFacts(Struct):
    """The kept facts of one partition, with the newest timestamps in its copies, ms (-1: none)."""

    facts: PartitionFacts | None
    """None if no copy has transactions."""
    newest_timestamp: int
    """By any clock, also a client's."""
    broker_timestamp: int
    reached: dict[int | str, int] = field(default_factory=dict)
    """Broker → the newest timestamp set by a broker in its copy; in internal topics clients set none."""


def partition_transactions(replicas: Sequence[Replica]) -> PartitionTransactionFacts:
    """The kept facts of the copies of one partition."""
    reached: dict[int | str, int] = {}
    for replica in replicas:
        framing = replica.state.framing
        stamped = framing.max_timestamp if replica.context.topic in WITNESS_TOPICS else framing.broker_timestamp
        reached[replica.broker] = max(stamped, reached.get(replica.broker, -1))
    return PartitionTransactionFacts(
        partition_facts(replicas),
        max(replica.state.transactions.last_markers.newest_timestamp for replica in replicas),
        max(reached.values()),
        reached,
    )


class CollectedFacts(Struct):
    """The facts of every partition with transactions."""

    partitions: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    newest_timestamp: int = -1
    """By any clock, also a client's."""
    broker_timestamp: int = -1
    reached: dict[int | str, int] = field(default_factory=dict)
    """Broker → the newest timestamp set by a broker in any log of its copies."""
    _rows: int = 0

    def take(self, transactions: PartitionTransactionFacts) -> None:
        """Add a partition."""
        self.newest_timestamp = max(self.newest_timestamp, transactions.newest_timestamp)
        self.broker_timestamp = max(self.broker_timestamp, transactions.broker_timestamp)
        for broker, stamped in transactions.reached.items():
            self.reached[broker] = max(stamped, self.reached.get(broker, -1))
        facts = transactions.facts
        if facts is None:
            return
        self.partitions[facts.context.topic_partition] = facts
        self._rows += facts.rows
        if self._rows > ROWS_KEPT:
            for partition in self.partitions.values():
                partition.trim()
            self._rows = sum(partition.rows for partition in self.partitions.values())


SPANS_LISTED: Final = 16
"""Ranges of damaged offsets listed of one log."""


class DamagedLog(Struct, frozen=True):
    """Size of a log's unreadable bytes, and their offsets, ends exclusive: the first ranges; none if unknown. Transactions may have
    begun or ended there, so read_committed readers may have to wait at any of these offsets."""

    size_in_bytes: int
    spans: tuple[tuple[int, int], ...]


def damage_of(replica: Replica) -> DamagedLog | None:
    """The damage of a log, except a last batch that was cut off and not committed; None if there is none."""
    size = replica.state.framing.bytes_damaged
    if (replica.context.high_watermark or 0) <= replica.log_end_offset:
        last = max(replica.context.segment_base_offsets, default=-1)
        torn = replica.state.framing.damage.get("SEG_TORN_TAIL", ())
        size -= sum(damage.size_in_bytes for segment, damage in torn if segment == last)
    if size <= 0:
        return None
    spans = damaged_offsets(replica, replica.log_start_offset, replica.log_end_offset)
    return DamagedLog(size, tuple(spans[:SPANS_LISTED]))


def hidden_by_damage(replica: Replica, known: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    """The transactions of `known`, open in snapshots, that begin in damaged offsets and do not appear in the log since, by first
    offset. None of a producer that the fold may have forgotten."""
    damage = damage_of(replica)
    if damage is None or not replica.end_is_known:
        return []
    fold = replica.state.transactions
    hidden = {}
    for transaction in known:
        state = fold.view([transaction.producer_id]).get(transaction.producer_id)
        if state is None:
            is_absent = not fold.knows(transaction.producer_id)
        else:
            is_absent = state.first_offset < 0 and state.last_offset < transaction.first_offset
        if is_absent and any(start <= transaction.first_offset < end for start, end in damage.spans):
            hidden[transaction.producer_id] = transaction
    return sorted(hidden.values(), key=lambda transaction: (transaction.first_offset, transaction.producer_id))
