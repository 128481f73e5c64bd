"""Transactions of a partition as its log shows them: counts, open and aborted ones, writes after the marker that fenced them.

A transaction may begin in one part of a log and end in another; a merge joins them. At the start of a log a marker without data is
legal: retention removed the data, or there was none.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from msgspec import Struct

from kafka_forensics.analysis import bounds
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.producers import FirstAndLastRows, OffsetRuns, ProducerTable, offset_after
from kafka_forensics.analysis.transactions import rules
from kafka_forensics.analysis.transactions.endings import NonCommitEndings
from kafka_forensics.analysis.transactions.markers import (
    COORDINATOR_EPOCH,
    MARKERS_KEPT,
    OFFSET,
    LastMarkers,
    LastRows,
    lower_coordinator_epochs,
)
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.model.findings import Confidence, Finding, Place
from kafka_forensics.model.results import TransactionCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.kinds.evidence_classes import CoordinatorEpochEvidence, LateWriteEvidence
    from kafka_forensics.model.json_objects import Json


EPOCH_REGRESSIONS_LISTED: Final = 32


def coordinator_epoch_regressions(context: ReplicaContext, markers: "NDArray[np.int64]") -> list[Finding]:
    """Markers of a replaced coordinator among the last ones of a log, rows of `LastMarkers`."""
    lower_epochs = lower_coordinator_epochs(markers)
    answer = []
    for row, higher in lower_epochs[:EPOCH_REGRESSIONS_LISTED]:
        segment, position, size, producer_id, epoch, offset, _, coordinator_epoch, _ = markers[row].tolist()
        place = context.log_place(segment, position, size, offset, offset_after(offset))
        evidence: CoordinatorEpochEvidence = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "coordinator_epoch": coordinator_epoch,
            "previous_coordinator_epoch": int(markers[higher, COORDINATOR_EPOCH]),
            "previous_marker_offset": int(markers[higher, OFFSET]),
            "occurrences": len(lower_epochs),
        }
        answer.append(finding("TXN_COORDINATOR_EPOCH_REGRESSION", place, evidence))
    return answer


def late_writes(context: ReplicaContext, late: FirstAndLastRows) -> list[Finding]:
    """Data after the marker that fenced its producer, rows as the kernels report them."""
    answer = []
    for row in late.rows.tolist():
        evidence: LateWriteEvidence = {
            "producer_id": row[rules.FOUND_PRODUCER_ID],
            "producer_epoch": row[rules.FOUND_EPOCH],
            "later_epoch": row[rules.LATER_EPOCH],
            "later_epoch_offset": row[rules.LATER_EPOCH_OFFSET],
        }
        if not late.complete:
            evidence["occurrences"] = late.count
        segment, position, _, size, offset, last_offset = row[:6]
        place = context.log_place(segment, position, size, offset, offset_after(last_offset))
        answer.append(finding("TXN_LATE_WRITE", place, evidence))
    return answer


_FOUND_ROWS: Final = 1024
OPEN_LISTED: Final = 1024
"""Open transactions of one log with a finding each: the oldest, which hold readers back."""
_KIND_OF_MARKER: Final = np.array([rules.UNREADABLE, rules.ABORT, rules.COMMIT])
"""By control record type + 1."""


_DATA_COLUMNS: Final = (
    (rules.DATA_FIRST_OFFSET, rules.FIRST_OFFSET),
    (rules.DATA_SEGMENT, rules.SEGMENT),
    (rules.DATA_POSITION, rules.POSITION),
    (rules.DATA_EPOCH, rules.EPOCH),
    (rules.DATA_FIRST_TIMESTAMP, rules.FIRST_TIMESTAMP),
    (rules.DATA_LAST_TIMESTAMP, rules.LAST_TIMESTAMP),
    (rules.DATA_LAST_OFFSET, rules.LAST_DATA_OFFSET),
)
"""Column of a report, and of the transaction's block."""


_OPEN_TRANSACTION_COLUMNS: Final = (
    *(rules.FIRST_OFFSET, rules.LAST_DATA_OFFSET, rules.FIRST_TIMESTAMP, rules.LAST_TIMESTAMP),
    *(rules.SEGMENT, rules.POSITION, rules.SIZE, rules.EPOCH),
)
"""Columns of a block: fields of OpenTransaction from `first_offset` on."""


class OpenTransaction(Struct, frozen=True):
    """A transaction without a marker: its data are in `[first_offset, last_offset]`, its first batch at `position` of a segment.

    `producer_epoch` is that of its last batch, `first_producer_epoch` that of its first; timestamps are ms, of its first and last
    batch.
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
        """A transaction that is open in a producer snapshot, without a place in the log or a time when it began."""
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

    def place(self, context: ReplicaContext) -> Place:
        """Its offsets and first batch in a log."""
        end_offset = offset_after(self.last_offset)
        return context.log_place(self.segment, self.position, self.size_in_bytes, self.first_offset, end_offset)


class TransactionState(Struct, frozen=True):
    """A producer's last state: `first_offset` and place of its open transaction, or -1; epoch and offset of its last transactional
    batch or marker."""

    first_offset: int
    place: tuple[int, int]
    last_epoch: int
    last_offset: int


class TransactionsFold:
    """State: a row for each transactional producer, the markers that did not commit, the last ended transactions and markers, late
    writes.

    The numbers of producers and of aborted transactions are bounded by `make_room` and `filled`. A producer that was forgotten and
    returns counts as new: open and ended transactions stay right, only a late write may be missed.
    """

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self._table = ProducerTable(rules.TRANSACTION_WIDTH, rules.COUNTERS)
        self.non_commit_endings = NonCommitEndings()
        """Without the first marker of each producer."""
        self._ended = LastRows(rules.FOUND_WIDTH)
        self.last_markers = LastMarkers(segment_base_offset)
        self._late = FirstAndLastRows(rules.FOUND_WIDTH)
        self.forgot = False
        self._producer_ids: NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def filled(self) -> bool:
        """Whether this part of a log has as many producers or aborted transactions as it may hold."""
        return len(self._table) > bounds.STRETCH_PRODUCERS or len(self.non_commit_endings) > bounds.STRETCH_BATCHES

    @property
    def size_in_bytes(self) -> int:
        """Memory used for producers and aborted transactions."""
        rows = self.non_commit_endings.size_in_bytes + self._ended.size_in_bytes + self.last_markers.markers.size_in_bytes
        return self._table.rows.nbytes + self._table.slots.nbytes + rows

    def make_room(self, right: "TransactionsFold") -> None:
        """Forget the producers that have been silent longest if a merge with `right` would exceed the limit; those with an open
        transaction only if these alone are too many, then the newest. No part of the log may precede this one."""
        together = len(self._table) + len(right._table)
        if together <= bounds.MAX_PRODUCERS:
            return
        returning = self._table.are_in(right._table)
        if together - int(returning.sum()) <= bounds.MAX_PRODUCERS:
            return
        self.apply_first_markers()
        table = self._table.used_rows()
        blocks = _newest_blocks(table)
        is_open = blocks[:, rules.OPEN] != 0
        silent = np.flatnonzero(~returning & ~is_open)
        opened = np.flatnonzero(is_open)
        oldest = opened[np.argsort(blocks[opened, rules.FIRST_OFFSET], kind="stable")][: bounds.MAX_OPEN]
        most = max(bounds.MAX_PRODUCERS // 2 - len(right._table) - len(oldest), 0)
        recent = silent[np.argsort(table[silent, rules.LAST_OFFSET], kind="stable")][max(len(silent) - most, 0) :]
        kept = returning & ~is_open
        kept[oldest] = True
        kept[recent] = True
        self._table.keep(np.flatnonzero(kept))
        self.forgot = True

    def close(self) -> None:
        """Keep only the ids of producers without an open transaction, once the log is complete."""
        if len(self._table) <= bounds.SETTLED_ABOVE:
            return
        self.apply_first_markers()
        table = self._table.used_rows()
        self._producer_ids = np.sort(table[:, 0])
        self._table.keep(np.flatnonzero(_newest_blocks(table)[:, rules.OPEN]))
        self._table.shrink()

    def knows(self, producer_id: int) -> bool:
        """Whether the log has, or may have had, a transactional batch or marker of the producer."""
        at = int(np.searchsorted(self._producer_ids, producer_id))
        closed = at < len(self._producer_ids) and int(self._producer_ids[at]) == producer_id
        return self.forgot or closed or self._table.find(producer_id) >= 0

    def apply_first_markers(self) -> None:
        """Count what the first marker of each producer ended. This part must be the start of the log."""
        endings = self._first_endings()
        if not len(endings):
            return
        table = self._table.used_rows()
        table[table[:, rules.MARKED] == 1, rules.MARKED] = 2
        with_data = _with_data(endings)
        for counter, kind in ((rules.COMMITTED, rules.COMMIT), (rules.ABORTED, rules.ABORT)):
            self._table.used[counter] += int((with_data[:, rules.FOUND_KIND] == kind).sum())
        self._ended.insert(with_data)
        self.non_commit_endings.add(endings)

    def step(self, columns: "NDArray[np.int64]") -> None:
        """Add consecutive batches of the segment, (BATCH_COLUMNS, n) int64 in file order; those with a wrong CRC are ignored."""
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
        self._run_kernel(
            rows.size, lambda done, store: rules.take_batches(done, rows, facts, self._segment, store, self._table.used)
        )

    def damage(self) -> None:
        """Bytes are missing after the last batch added. The producers fold remembers where; this one needs nothing."""

    def merge(self, right: "TransactionsFold") -> None:
        """Add the part of the log that follows; `right` stays unchanged."""
        theirs = right._table.used_rows()
        self._run_kernel(len(theirs), lambda done, store: rules.join_producers(done, theirs, store, self._table.used))
        for counter in (rules.COMMITTED, rules.ABORTED):
            self._table.used[counter] += right._table.used[counter]
        self.non_commit_endings.merge(right.non_commit_endings)
        self._ended.merge(right._ended)
        self.last_markers.merge(right.last_markers)
        self._late.merge(right._late)
        self._segment = right._segment

    def _run_kernel(self, count: int, kernel: "Callable[[int, tuple[NDArray[np.int64], ...]], int]") -> None:
        """Run a kernel that takes the number of items done and arrays until all are done; file its reports and enlarge the table
        between runs."""
        reports, block = np.empty((_FOUND_ROWS, rules.FOUND_WIDTH), np.int64), np.zeros(rules.BLOCK_WIDTH, np.int64)
        table, done = self._table, 0
        while done < count:
            done = kernel(done, (table.rows, table.slots, table.keys, reports, block))
            rows = reports[: int(table.used[rules.FOUND_USED])]
            table.used[rules.FOUND_USED] = 0
            late = rows[:, rules.FOUND_KIND] == rules.LATE
            self._late.add(rows[late])
            self._ended.add(_with_data(rows[~late]))
            self.non_commit_endings.add(rows[~late])
            if done < count and table.full:
                table.grow()

    def _first_endings(self) -> "NDArray[np.int64]":
        """What the first marker of each producer ended, rows as the kernel reports them; nothing after `apply_first_markers`. No
        part of the log may precede this one."""
        table = self._table.used_rows()
        ended = table[table[:, rules.MARKED] == 1]
        marker, first = ended[:, rules.MARKER :], ended[:, rules.FIRST :]
        rows = np.full((len(ended), rules.FOUND_WIDTH), -1, np.int64)
        kinds = _KIND_OF_MARKER[np.clip(marker[:, rules.MARKER_TYPE], -1, 1) + 1]
        rows[:, : rules.DATA_FIRST_OFFSET] = np.stack(
            (
                *(marker[:, rules.MARKER_SEGMENT], marker[:, rules.MARKER_POSITION], kinds, marker[:, rules.MARKER_SIZE]),
                *(marker[:, rules.MARKER_OFFSET], marker[:, rules.MARKER_OFFSET], ended[:, 0], marker[:, rules.MARKER_EPOCH]),
            ),
            axis=1,
        )
        for column, fact in _DATA_COLUMNS:
            rows[:, column] = np.where(first[:, rules.OPEN] != 0, first[:, fact], -1)
        return rows

    def counts(self) -> TransactionCounts:
        """Transactions with data in this log, by how they ended; one partition alone never shows that one hangs."""
        if self._is_empty:
            return TransactionCounts(0, 0, 0)
        kinds = _with_data(self._first_endings())[:, rules.FOUND_KIND]
        committed = int(self._table.used[rules.COMMITTED]) + int((kinds == rules.COMMIT).sum())
        aborted = int(self._table.used[rules.ABORTED]) + int((kinds == rules.ABORT).sum())
        return TransactionCounts(committed, aborted, len(self._open_blocks()[1]))

    def _open_blocks(self) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Rows of the producers with an open transaction, and their blocks."""
        table = self._table.used_rows()
        blocks = _newest_blocks(table)
        is_open = blocks[:, rules.OPEN] != 0
        return table[is_open], blocks[is_open]

    def open_transactions(self, limit: int | None = None) -> list[OpenTransaction]:
        """Open transactions in the order of their first offsets, at most the first `limit`."""
        if self._is_empty:
            return []
        producers, blocks = self._open_blocks()
        if limit is not None and len(blocks) > limit:
            oldest = np.argpartition(blocks[:, rules.FIRST_OFFSET], limit)[:limit]
            producers, blocks = producers[oldest], blocks[oldest]
        rows = np.hstack((producers[:, [0, rules.LAST_EPOCH]], blocks[:, _OPEN_TRANSACTION_COLUMNS]))
        transactions = [OpenTransaction(*row) for row in rows.tolist()]
        return sorted(transactions, key=lambda transaction: (transaction.first_offset, transaction.producer_id))

    def view(self, producer_ids: Collection[int] | None = None) -> dict[int, TransactionState]:
        """State after the last batch added, of the given producers that are transactional, or of all."""
        table = self._table.used_rows()
        if producer_ids is not None:
            rows = [self._table.find(producer_id) for producer_id in producer_ids]
            table = table[[row for row in rows if row >= 0]]
        answer = {}
        for row in table.tolist():
            block = row[rules.FIRST if row[rules.MARKED] == 0 else rules.CURRENT :]
            is_open, first_offset, _, segment, position = block[:5]
            first_offset, place = (first_offset, (segment, position)) if is_open else (-1, (-1, -1))
            answer[row[0]] = TransactionState(first_offset, place, row[rules.LAST_EPOCH], row[rules.LAST_OFFSET])
        return answer

    def last_stable_offset(self, high_watermark: int | None, log_end_offset: int) -> int:
        """First offset that read_committed readers may not read yet: of the oldest transaction that is open or whose marker is not
        below the high watermark, else the high watermark (the end of the log if that is unknown)."""
        limit = log_end_offset if high_watermark is None else min(high_watermark, log_end_offset)
        if self._is_empty:
            return limit
        ended = _with_data(np.concatenate((self._ended.rows, self._first_endings())))
        unstable = ended[ended[:, rules.FOUND_OFFSET] >= limit, rules.DATA_FIRST_OFFSET]
        blocks = self._open_blocks()[1]
        return int(min(unstable.min(initial=limit), blocks[:, rules.FIRST_OFFSET].min(initial=limit)))

    @property
    def _is_empty(self) -> bool:
        """Whether there never was a transactional batch or marker, as in most logs."""
        met = self._ended.count or self._late.count or self.last_markers.markers.count or len(self.non_commit_endings)
        return not met and not any(self._table.used.tolist())

    def ended(self) -> "NDArray[np.int64]":
        """The last transactions with data that a marker ended, in file order, rows as the kernels report them."""
        rows = np.concatenate((self._ended.rows, _with_data(self._first_endings())))
        answer: NDArray[np.int64] = rows[np.lexsort((rows[:, 1], rows[:, 0]))][-MARKERS_KEPT:]
        return answer

    def non_commit_ending_rows(self) -> "NDArray[np.int64]":
        """Every ABORT marker, and every unreadable one, in file order; `endings_of` makes objects of these rows."""
        if self._is_empty:
            return NonCommitEndings().rows()
        return self.non_commit_endings.rows(self._first_endings())

    def findings(self, context: ReplicaContext, runs: OffsetRuns, log_end_offset: int) -> list[Finding]:
        """Open transactions and late writes of the whole log; `runs` are those of the producers fold."""
        if self._is_empty:
            return []
        answer = late_writes(context, self._late) + coordinator_epoch_regressions(context, self.last_markers.markers.rows)
        last_stable_offset = self.last_stable_offset(context.high_watermark, log_end_offset)
        more = len(self._open_blocks()[1]) - OPEN_LISTED
        for transaction in self.open_transactions(OPEN_LISTED):
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
            if more > 0:
                evidence["more_open"] = more
            place = transaction.place(context)
            doubtful = runs.broken_between((transaction.segment, transaction.position))
            answer.append(finding("TXN_OPEN", place, evidence, confidence=Confidence.INFERRED if doubtful else None))
        return answer


def _newest_blocks(table: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """The block of each producer's transaction after its last marker, (rows, BLOCK_WIDTH)."""
    first, current = (table[:, block : block + rules.BLOCK_WIDTH] for block in (rules.FIRST, rules.CURRENT))
    answer: NDArray[np.int64] = np.where(table[:, rules.MARKED : rules.MARKED + 1] == 0, first, current)
    return answer


def _with_data(endings: "NDArray[np.int64]") -> "NDArray[np.int64]":
    answer: NDArray[np.int64] = endings[endings[:, rules.DATA_FIRST_OFFSET] >= 0]
    return answer
