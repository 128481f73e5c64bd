"""Transactions of a partition as its log shows them: counts, open ones, aborted ones, writes behind their own marker.

A transaction may begin left of a stretch and end in it, or the other way round; merging joins the parts. At the real start of
a log a marker without data is legal: retention took the data, or there never was any.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from kafka_forensics.analysis import bounds
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.producers import FirstAndLastRows, OffsetRuns, ProducerTable, offset_behind
from kafka_forensics.analysis.transactions import rules
from kafka_forensics.analysis.transactions.endings import Endings
from kafka_forensics.analysis.transactions.markers import (
    COORDINATOR_EPOCH,
    MARKERS_KEPT,
    OFFSET,
    LastMarkers,
    LastRows,
    fallen_epochs,
)
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.model.findings import Confidence, Finding
from kafka_forensics.model.results import TransactionCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.kinds.evidence_classes import CoordinatorEpochEvidence, LateWriteEvidence
    from kafka_forensics.model.json_objects import Json


# What a partition's own transactional batches and markers should never show: data of a fenced epoch, a replaced coordinator.


FALLEN_TOLD: Final = 32


def fallen_epochs_told(context: "ReplicaContext", markers: "NDArray[np.int64]") -> "list[Finding]":
    """Markers of a coordinator that was replaced, among a log's last ones (rows of `transaction_markers`)."""
    fallen = fallen_epochs(markers)
    answer = []
    for row, higher in fallen[:FALLEN_TOLD]:
        segment, position, size, producer_id, epoch, offset, _, coordinator_epoch, _ = markers[row].tolist()
        place = context.log_place(segment, position, size, offset, offset_behind(offset))
        evidence: CoordinatorEpochEvidence = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "coordinator_epoch": coordinator_epoch,
            "previous_coordinator_epoch": int(markers[higher, COORDINATOR_EPOCH]),
            "previous_marker_offset": int(markers[higher, OFFSET]),
            "occurrences": len(fallen),
        }
        answer.append(finding("TXN_COORDINATOR_EPOCH_REGRESSION", place, evidence))
    return answer


def late_writes(context: "ReplicaContext", late: FirstAndLastRows) -> "list[Finding]":
    """Data behind the marker that fenced its producer; rows as the kernels of `transaction_rules` find them."""
    answer = []
    for row in late.rows.tolist():
        evidence: LateWriteEvidence = {
            "producer_id": row[6],
            "producer_epoch": row[7],
            "later_epoch": row[8],
            "later_epoch_offset": row[9],
        }
        if not late.complete:
            evidence["occurrences"] = late.count
        place = context.log_place(row[0], row[1], row[3], row[4], offset_behind(row[5]))
        answer.append(finding("TXN_LATE_WRITE", place, evidence))
    return answer


_FOUND_ROWS: Final = 1024
OPEN_TOLD: Final = 1024
"""Open transactions of one log that get a finding each; the oldest, which hold readers back."""
_KIND_OF_MARKER: Final = np.array([rules.UNREADABLE, rules.ABORT, rules.COMMIT])
"""By control record type + 1."""


_OF_TRANSACTION: Final = (
    (8, rules.FIRST_OFFSET),
    (9, rules.SEGMENT),
    (10, rules.POSITION),
    (rules.DATA_EPOCH, rules.EPOCH),
    (rules.DATA_FIRST_TIMESTAMP, rules.FIRST_TIMESTAMP),
    (rules.DATA_LAST_TIMESTAMP, rules.LAST_TIMESTAMP),
    (rules.DATA_LAST_OFFSET, rules.LAST_DATA_OFFSET),
)
"""Column of what is found, and of a transaction's block."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker: its data lies in `[first_offset, last_offset]`, its first batch at `position` of a segment.

    `producer_epoch` is that of its last batch, `first_producer_epoch` of its first; timestamps are ms, of its first and last batch.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    first_timestamp: int
    last_timestamp: int
    segment: int
    position: int
    size_in_bytes: int
    first_producer_epoch: int

    @classmethod
    def of_snapshot(cls, entry: ProducerEntry) -> Self:
        """One that a producer snapshot holds open, without a place in the log; when it began is not known."""
        return cls(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            first_offset=entry.current_txn_first_offset,
            last_offset=entry.last_offset,
            first_timestamp=-1,
            last_timestamp=entry.timestamp,
            segment=-1,
            position=-1,
            size_in_bytes=0,
            first_producer_epoch=entry.producer_epoch,
        )


@dataclass(frozen=True, slots=True)
class TransactionState:
    """What a producer did last: `first_offset` of its open transaction and where that begins, or -1; epoch and offset of its last
    transactional batch or marker."""

    first_offset: int
    place: tuple[int, int]
    last_epoch: int
    last_offset: int


class TransactionsFold:
    """State: a row for each transactional producer, the ABORT markers, the latest ended transactions and markers, and late writes.

    Bounded by the number of producers and of aborted transactions, and these by `make_room` and `filled`. A producer that was
    forgotten and comes back is met anew: what is open and what ended is told right, only a late write may go unseen.
    """

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self._table = ProducerTable(rules.TRANSACTION_WIDTH, rules.COUNTERS)
        self.held_endings = Endings()
        """Markers that did not commit, but for each producer's first."""
        self._ended = LastRows(rules.FOUND_WIDTH)
        self.last_markers = LastMarkers(segment_base_offset)
        self._late = FirstAndLastRows(rules.FOUND_WIDTH)
        self.forgot = False
        """Whether producers that the log has are missing here."""
        self._known: NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def filled(self) -> bool:
        """Whether as many producers or aborted transactions were met as a stretch of log should hold."""
        return len(self._table) > bounds.STRETCH_PRODUCERS or len(self.held_endings) > bounds.STRETCH_BATCHES

    @property
    def size_in_bytes(self) -> int:
        """Memory held for producers and aborted transactions."""
        lasts = self._ended.size_in_bytes + self.last_markers.markers.size_in_bytes
        return self._table.rows.nbytes + self._table.slots.nbytes + self.held_endings.size_in_bytes + lasts

    def make_room(self, right: "TransactionsFold") -> None:
        """Before a merge, nothing standing left of us: forget the producers silent longest if those of both are too many. Of those
        with an open transaction only such as begin last, and only if these alone are too many."""
        together = len(self._table) + len(right._table)
        if together <= bounds.MAX_PRODUCERS:
            return
        returning = self._table.among(right._table)
        if together - int(returning.sum()) <= bounds.MAX_PRODUCERS:
            return
        self.settle()
        table = self._table.used_rows()
        blocks = _newest_blocks(table)
        is_open = blocks[:, rules.OPEN] != 0
        others = np.flatnonzero(~returning & ~is_open)
        opened = np.flatnonzero(is_open)
        oldest = opened[np.argsort(blocks[opened, rules.FIRST_OFFSET], kind="stable")][: bounds.MAX_OPEN]
        most = max(bounds.MAX_PRODUCERS // 2 - len(right._table) - len(oldest), 0)
        recent = others[np.argsort(table[others, rules.LAST_OFFSET], kind="stable")][max(len(others) - most, 0) :]
        kept = returning & ~is_open
        kept[oldest] = True
        kept[recent] = True
        self._table.keep(np.flatnonzero(kept))
        self.forgot = True

    def close(self) -> None:
        """The log is whole: of producers without an open transaction keep only who they are."""
        if len(self._table) <= bounds.SETTLED_ABOVE:
            return
        self.settle()
        table = self._table.used_rows()
        self._known = np.sort(table[:, 0])
        self._table.keep(np.flatnonzero(_newest_blocks(table)[:, rules.OPEN]))
        self._table.shrink()

    def knows(self, producer_id: int) -> bool:
        """Whether the log has, or may have, a transactional batch or marker of the producer."""
        at = int(np.searchsorted(self._known, producer_id))
        closed = at < len(self._known) and int(self._known[at]) == producer_id
        return self.forgot or closed or self._table.find(producer_id) >= 0

    def settle(self) -> None:
        """Take what the first marker of each producer ended as ended, nothing standing left of us."""
        leads = self._lead_endings()
        if not len(leads):
            return
        table = self._table.used_rows()
        table[table[:, rules.MARKED] == 1, rules.MARKED] = 2
        with_data = leads[leads[:, 8] >= 0]
        for counter, kind in ((rules.COMMITTED, rules.COMMIT), (rules.ABORTED, rules.ABORT)):
            self._table.used[counter] += int((with_data[:, 2] == kind).sum())
        self._ended.insert(with_data)
        self.held_endings.add(leads)

    def step(self, columns: "NDArray[np.int64]") -> None:
        """Add consecutive batches of the segment, (BATCH_COLUMNS, n) int64 in file order. A wrong CRC is passed over."""
        self.last_markers.step(columns)
        producer_id = columns[BatchColumn.PRODUCER_ID]
        if not producer_id.size or int(producer_id.max()) < 0:
            return
        attributes = columns[BatchColumn.ATTRIBUTES]
        rows = np.flatnonzero(attributes & (TRANSACTIONAL_MASK | CONTROL_MASK))
        if not rows.size:
            return
        facts = (
            producer_id,
            columns[BatchColumn.PRODUCER_EPOCH],
            columns[BatchColumn.BASE_OFFSET],
            columns[BatchColumn.LAST_OFFSET],
            columns[BatchColumn.BASE_TIMESTAMP],
            columns[BatchColumn.MAX_TIMESTAMP],
            columns[BatchColumn.POSITION],
            columns[BatchColumn.SIZE_IN_BYTES],
            attributes,
            columns[BatchColumn.CONTROL_RECORD_TYPE],
            columns[BatchColumn.CRC],
            columns[BatchColumn.CRC_COMPUTED],
        )
        now = np.zeros(rules.BLOCK_WIDTH, np.int64)
        endings = np.empty((_FOUND_ROWS, rules.FOUND_WIDTH), np.int64)
        done = 0
        while True:
            done = rules.take_batches(done, rows, facts, self._segment, self._store(endings), self._table.used, now)
            self._keep(endings)
            if done == rows.size:
                return
            if self._table.full:
                self._table.grow()

    def damage(self) -> None:
        """Bytes were lost behind the last batch given. Nothing to remember: the `OffsetRuns` of the producers fold know where."""

    def merge(self, right: "TransactionsFold") -> None:
        """Add the stretch that stands behind ours; `right` is left as it was."""
        theirs = right._table.used_rows()
        columns = np.empty((_FOUND_ROWS, rules.FOUND_WIDTH), np.int64)
        done = 0
        while done < len(theirs):
            done = rules.join_producers(done, theirs, self._store(columns), self._table.used)
            self._keep(columns)
            if done < len(theirs) and self._table.full:
                self._table.grow()
        for counter in (rules.COMMITTED, rules.ABORTED):
            self._table.used[counter] += right._table.used[counter]
        self.held_endings.merge(right.held_endings)
        self._ended.merge(right._ended)
        self.last_markers.merge(right.last_markers)
        self._late.merge(right._late)
        self._segment = right._segment

    def _store(self, endings: "NDArray[np.int64]") -> "tuple[NDArray[np.int64], ...]":
        return self._table.rows, self._table.slots, self._table.keys, endings

    def _keep(self, endings: "NDArray[np.int64]") -> None:
        """Sort what the kernel found, and make room for more."""
        rows = endings[: int(self._table.used[rules.FOUND_USED])]
        self._table.used[rules.FOUND_USED] = 0
        if len(rows):
            late = rows[:, 2] == rules.LATE
            self._late.add(rows[late])
            ended = rows[~late]
            with_data = ended[ended[:, 8] >= 0]
            self._ended.add(with_data)
            self.held_endings.add(ended)

    def _lead_endings(self) -> "NDArray[np.int64]":
        """What the first marker of each producer ended, nothing being left of us, unless `settle` took it; rows as the kernel
        finds them."""
        table = self._table.used_rows()
        if not len(table):
            return np.empty((0, rules.FOUND_WIDTH), np.int64)
        ended = table[table[:, rules.MARKED] == 1]
        marker, lead = ended[:, rules.MARKER :], ended[:, rules.LEAD :]
        is_open = lead[:, rules.OPEN] != 0
        answer = np.full((len(ended), rules.FOUND_WIDTH), -1, np.int64)
        answer[:, 0], answer[:, 1] = marker[:, rules.MARKER_SEGMENT], marker[:, rules.MARKER_POSITION]
        answer[:, 2] = _KIND_OF_MARKER[np.clip(marker[:, rules.MARKER_TYPE], -1, 1) + 1]
        answer[:, 3], answer[:, 7] = marker[:, rules.MARKER_SIZE], marker[:, rules.MARKER_EPOCH]
        answer[:, 4] = answer[:, 5] = marker[:, rules.MARKER_OFFSET]
        answer[:, 6] = ended[:, 0]
        for column, fact in _OF_TRANSACTION:
            answer[:, column] = np.where(is_open, lead[:, fact], -1)
        return answer

    def counts(self) -> TransactionCounts:
        """Transactions with data in this log, by how they ended; none is known to hang from one partition alone."""
        if self._is_empty:
            return TransactionCounts(0, 0, 0)
        leads = self._lead_endings()
        kinds = leads[leads[:, 8] >= 0, 2]
        used = self._table.used
        committed = int(used[rules.COMMITTED]) + int((kinds == rules.COMMIT).sum())
        aborted = int(used[rules.ABORTED]) + int((kinds == rules.ABORT).sum())
        return TransactionCounts(committed, aborted, self._open_count())

    def _open_blocks(self) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Rows of the producers with an open transaction, and their blocks."""
        table = self._table.used_rows()
        blocks = _newest_blocks(table)
        is_open = blocks[:, rules.OPEN] != 0
        return table[is_open], blocks[is_open]

    def _open_count(self) -> int:
        return len(self._open_blocks()[1])

    def open_transactions(self, limit: int | None = None) -> list[OpenTransaction]:
        """Open transactions in the order of their first offsets, at most the first `limit`."""
        if self._is_empty:
            return []
        producers, blocks = self._open_blocks()
        if limit is not None and len(blocks) > limit:
            oldest = np.argpartition(blocks[:, rules.FIRST_OFFSET], limit)[:limit]
            producers, blocks = producers[oldest], blocks[oldest]
        answer = [
            OpenTransaction(
                producer_id=int(row[0]),
                producer_epoch=int(row[rules.LAST_EPOCH]),
                first_offset=int(block[rules.FIRST_OFFSET]),
                last_offset=int(block[rules.LAST_DATA_OFFSET]),
                first_timestamp=int(block[rules.FIRST_TIMESTAMP]),
                last_timestamp=int(block[rules.LAST_TIMESTAMP]),
                segment=int(block[rules.SEGMENT]),
                position=int(block[rules.POSITION]),
                size_in_bytes=int(block[rules.SIZE]),
                first_producer_epoch=int(block[rules.EPOCH]),
            )
            for row, block in zip(producers, blocks, strict=True)
        ]
        return sorted(answer, key=lambda transaction: (transaction.first_offset, transaction.producer_id))

    def view(self, producer_ids: Collection[int] | None = None) -> dict[int, TransactionState]:
        """State behind the last batch given, of the producers asked for that are transactional, or of all."""
        table = self._table.used_rows()
        if producer_ids is not None:
            rows = [self._table.find(producer_id) for producer_id in producer_ids]
            table = table[[row for row in rows if row >= 0]]
        answer = {}
        for row in table.tolist():
            block = row[rules.LEAD if row[rules.MARKED] == 0 else rules.CURRENT :]
            first, place = (
                (block[rules.FIRST_OFFSET], (block[rules.SEGMENT], block[rules.POSITION])) if block[0] else (-1, (-1, -1))
            )
            answer[row[0]] = TransactionState(first, place, row[rules.LAST_EPOCH], row[rules.LAST_OFFSET])
        return answer

    def last_stable_offset(self, high_watermark: int | None, log_end_offset: int) -> int:
        """First offset that read_committed readers may not yet read: of the oldest transaction that is open or whose marker is not
        below the high watermark, else the high watermark (the log's end if that is unknown)."""
        limit = log_end_offset if high_watermark is None else min(high_watermark, log_end_offset)
        if self._is_empty:
            return limit
        ended = np.concatenate((self._ended.rows, self._lead_endings()))
        unstable = ended[(ended[:, 4] >= limit) & (ended[:, 8] >= 0), 8]
        blocks = self._open_blocks()[1]
        return int(min(unstable.min(initial=limit), blocks[:, rules.FIRST_OFFSET].min(initial=limit)))

    @property
    def _is_empty(self) -> bool:
        """Whether no transactional batch or marker was met, and so none forgotten, as in nearly all logs."""
        met = self._ended.count or self._late.count or self.last_markers.markers.count or len(self.held_endings)
        return not met and not any(self._table.used.tolist())

    def ended(self) -> "NDArray[np.int64]":
        """The last transactions with data that a marker ended, in file order, rows as the kernels find them."""
        leads = self._lead_endings()
        rows = np.concatenate((self._ended.rows, leads[leads[:, 8] >= 0]))
        answer: NDArray[np.int64] = rows[np.lexsort((rows[:, 1], rows[:, 0]))][-MARKERS_KEPT:]
        return answer

    def ending_rows(self) -> "NDArray[np.int64]":
        """Every ABORT marker, and every marker that cannot be read, in file order; `as_endings` makes objects of these rows."""
        if self._is_empty:
            return Endings().rows()
        return self.held_endings.rows([self._lead_endings()])

    def findings(self, context: ReplicaContext, runs: OffsetRuns, log_end_offset: int) -> list[Finding]:
        """Open transactions and late writes, this fold being of the whole log; `runs` are the producers fold's."""
        if self._is_empty:
            return []
        answer = late_writes(context, self._late) + fallen_epochs_told(context, self.last_markers.markers.rows)
        last_stable_offset = self.last_stable_offset(context.high_watermark, log_end_offset)
        more = int(self._open_count()) - OPEN_TOLD
        for transaction in self.open_transactions(OPEN_TOLD):
            evidence: Json = {
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "first_offset": transaction.first_offset,
                "last_offset": transaction.last_offset,
                "first_timestamp": transaction.first_timestamp,
                "last_timestamp": transaction.last_timestamp,
                "last_stable_offset": last_stable_offset,
                "hidden_records": max(log_end_offset - transaction.first_offset, 0),
            }
            place = context.log_place(
                transaction.segment,
                transaction.position,
                transaction.size_in_bytes,
                transaction.first_offset,
                offset_behind(transaction.last_offset),
            )
            if more > 0:
                evidence["more_open"] = more
            doubtful = runs.broken_between((transaction.segment, transaction.position))
            answer.append(finding("TXN_OPEN", place, evidence, confidence=Confidence.INFERRED if doubtful else None))
        return answer


def _newest_blocks(table: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """The block of each producer's transaction since its last marker, (rows, BLOCK_WIDTH)."""
    lead, current = (table[:, block : block + rules.BLOCK_WIDTH] for block in (rules.LEAD, rules.CURRENT))
    answer: NDArray[np.int64] = np.where(table[:, rules.MARKED : rules.MARKED + 1] == 0, lead, current)
    return answer
