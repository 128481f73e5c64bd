"""Sequence numbers and epochs of idempotent producers that do not follow one another (ProducerAppendInfo).

These are legal: a first batch with any sequence, a wrap, a higher epoch, anything after a broker may have forgotten the producer, a
jump where batches or bytes are missing (which has another finding), gaps left by compaction, and topics that coordinators write.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from kafka_forensics.analysis import bounds
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.producers import rules
from kafka_forensics.analysis.producers.rules import ProducerTable, doubled, move_to_front
from kafka_forensics.analysis.producers.runs import FirstAndLastRows, OffsetRuns, offset_after
from kafka_forensics.analysis.segments import ChunkFacts
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import CONTROL_MASK, COORDINATOR_TOPICS, MAX_SEQUENCE, TRANSACTIONAL_MASK
from kafka_forensics.model.findings import Confidence, Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.json_objects import Json


_KIND_NAMES: Final = {
    rules.DUPLICATE: "DUPLICATE_BATCH",
    rules.BACKWARD: "DUPLICATE_BATCH",
    rules.GAP: "PRODUCER_SEQ_GAP",
    rules.REGRESSION: "PRODUCER_SEQ_REGRESSION",
    rules.EPOCH_REGRESSION: "PRODUCER_EPOCH_REGRESSION",
}
_MADE_BY_COMPACTION: Final = frozenset({rules.BACKWARD, rules.GAP, rules.REGRESSION})
"""Kinds that cleaning a log may cause."""
_FOUND_ROWS: Final = 256
_FIRST_ROWS: Final = 16


class ProducerState(Struct, frozen=True):
    """A producer's last data batch: epoch, sequences, offsets (inclusive), newest timestamp in ms."""

    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducersFold:
    """State: the first and last five data batches of each producer; `runs`, the breaks of the log; the first and last anomalies of
    each kind with their number.

    The number of producers is bounded by `make_room` and `filled`. A producer that was forgotten and returns counts as new: of its
    first five batches only exact repetitions are reported.
    """

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self._unjudged = rules.WINDOW
        self.forgot = False
        self._forgotten_count = 0
        self.runs = OffsetRuns(segment_base_offset)
        self._table = ProducerTable(rules.PRODUCER_WIDTH, rules.COUNTERS)
        self._first_batches: NDArray[np.int64] = np.zeros((_FIRST_ROWS, rules.FACTS), np.int64)
        self._windows: NDArray[np.int64] = np.zeros((_FIRST_ROWS * rules.WINDOW, rules.WINDOW_WIDTH), np.int64)
        self._found = {kind: FirstAndLastRows(rules.FOUND_WIDTH) for kind in rules.KINDS}

    def __len__(self) -> int:
        """Number of producers; if `forgot`, of those remembered."""
        return len(self._table) + self._forgotten_count

    @property
    def filled(self) -> bool:
        """Whether this part of a log has as many producers as it may hold."""
        return (
            len(self._table) > bounds.STRETCH_PRODUCERS or int(self._table.used[rules.FIRST_BATCHES_USED]) > bounds.STRETCH_BATCHES
        )

    @property
    def size_in_bytes(self) -> int:
        """Memory used for producers."""
        table = self._table
        return table.rows.nbytes + table.slots.nbytes + self._first_batches.nbytes + self._windows.nbytes

    def make_room(self, right: "ProducersFold") -> None:
        """Forget the producers that have been silent longest if a merge with `right` would exceed the limit.

        No part of the log may precede this one.
        """
        together = len(self._table) + len(right._table)
        if self._unjudged and together > min(bounds.SETTLED_ABOVE, bounds.MAX_PRODUCERS):
            self._replace_with(self._judged())
        returning = self._table.are_in(right._table) if together > bounds.MAX_PRODUCERS else np.empty(0, bool)
        if together - int(returning.sum()) <= bounds.MAX_PRODUCERS:
            return
        silent = np.flatnonzero(~returning)
        last = self._last_batches()[silent, rules.LAST_OFFSET]
        most = max(bounds.MAX_PRODUCERS // 2 - len(right._table), 0)
        kept = self._has_backward_batches() | returning
        kept[silent[np.argsort(last, kind="stable")][max(len(silent) - most, 0) :]] = True
        self._forget_except(np.flatnonzero(kept))

    def _has_backward_batches(self) -> "NDArray[np.bool_]":
        """For each producer, whether a backward batch of it is still to be judged."""
        return np.isin(self._table.used_rows()[:, 0], self._found[rules.BACKWARD].rows[:, 6])

    def close(self) -> None:
        """Forget producers once the log is complete and only its findings are needed."""
        if len(self._table) <= bounds.SETTLED_ABOVE:
            return
        self._replace_with(self._judged())
        count = len(self)
        self._forget_except(np.flatnonzero(self._has_backward_batches()))
        self._forgotten_count = count - len(self._table)
        self._table.shrink()
        self._windows = self._windows[: len(self._table.rows) * rules.WINDOW].copy()

    def _judged(self) -> "ProducersFold":
        """The same state with every first batch judged; no part of the log may precede this one."""
        if not self._unjudged:
            return self
        whole = ProducersFold(self._segment)
        whole._unjudged = 0
        whole.merge(self)
        return whole

    def _replace_with(self, other: "ProducersFold") -> None:
        self._unjudged, self.runs, self._found = other._unjudged, other.runs, other._found
        self._table, self._first_batches, self._windows = other._table, other._first_batches, other._windows

    def _forget_except(self, kept: "NDArray[np.int64]") -> None:
        """Forget all producers except those in the rows `kept`, ascending; every producer has a window."""
        blocks = self._table.rows[kept, rules.BLOCK] - 1
        self._table.keep(kept)
        count = len(kept)
        self._table.rows[:count, rules.BLOCK] = np.arange(1, count + 1)
        self._table.used[rules.WINDOWS_USED] = count
        move_to_front(self._windows.reshape(-1, rules.WINDOW, rules.WINDOW_WIDTH), blocks)
        self.forgot = True

    def _last_batches(self) -> "NDArray[np.int64]":
        """The last batch of each producer, columns of a window; every producer has a window."""
        producers = self._table.used_rows()
        at = (producers[:, rules.BLOCK] - 1) * rules.WINDOW + (producers[:, rules.COUNT] - 1) % rules.WINDOW
        answer: NDArray[np.int64] = self._windows[at]
        return answer

    def step(self, columns: "NDArray[np.int64]", facts: ChunkFacts) -> None:
        """Add consecutive batches of the segment, (BATCH_COLUMNS, n) int64 in file order; a wrong CRC counts as damage."""
        if columns.shape[1] == 0:
            return
        good_and_breaks = self.runs.step(columns, facts)
        if not facts.producers:
            return
        producer_id = columns[BatchColumn.PRODUCER_ID]
        rows = np.flatnonzero((producer_id | columns[BatchColumn.BASE_SEQUENCE]) >= 0)
        if good_and_breaks is None:
            breaks = np.full(producer_id.size, self.runs.breaks_count, np.int64)
        else:
            good, breaks = good_and_breaks
            rows = rows[good[rows]]
        values = (
            columns[BatchColumn.PRODUCER_EPOCH],
            columns[BatchColumn.BASE_SEQUENCE],
            columns[BatchColumn.LAST_OFFSET_DELTA],
            columns[BatchColumn.BASE_OFFSET],
            columns[BatchColumn.LAST_OFFSET],
            columns[BatchColumn.MAX_TIMESTAMP],
            breaks,
            producer_id,
            np.full(producer_id.size, self._segment, np.int64),
            columns[BatchColumn.POSITION],
            columns[BatchColumn.SIZE_IN_BYTES],
            columns[BatchColumn.ATTRIBUTES],
        )
        self._take(rows, values)

    def damage(self) -> None:
        """Bytes are missing after the last batch added: the next jump of any producer is explained."""
        self.runs.damage()

    def merge(self, right: "ProducersFold") -> None:
        """Add the part of the log that follows; `right`, which must not have forgotten producers, stays unchanged."""
        assert not right.forgot
        shift = self.runs.merge(right.runs)
        if len(right):
            self._merge_producers(right, shift)
        for kind, rows in right._found.items():
            self._found[kind].merge(rows)
        self._segment = right._segment

    def _merge_producers(self, right: "ProducersFold", shift: int) -> None:
        """Add the producers of the following part; `shift` is added to their numbers of breaks."""
        batches = right._first_batches[: int(right._table.used[rules.FIRST_BATCHES_USED])].copy()
        batches[:, rules.BREAKS] += shift
        batches[:, rules.LAST_SEQUENCE] = (batches[:, rules.LAST_SEQUENCE] - batches[:, rules.FIRST_SEQUENCE]) & MAX_SEQUENCE
        self._take(np.arange(len(batches)), tuple(np.ascontiguousarray(batches.T)))
        rules.merge_windows(right._table.used_rows(), right._windows, self._store(batches), self._table.used, shift)

    def _store(self, reports: "NDArray[np.int64]") -> "tuple[NDArray[np.int64], ...]":
        table, room = self._table, np.zeros(rules.FACTS, np.int64)
        return table.rows, table.slots, table.keys, self._first_batches, self._windows, reports, room

    def _take(self, rows: "NDArray[np.int64]", facts: "tuple[NDArray[np.int64], ...]") -> None:
        """Run the kernel over `rows` of `facts`, enlarging the arrays that become full."""
        used = self._table.used
        reports = np.empty((_FOUND_ROWS, rules.FOUND_WIDTH), np.int64)
        done = 0
        duplicates_only = rules.WINDOW if self.forgot else 0
        while True:
            done = rules.take_batches(done, rows, facts, self._store(reports), used, self._unjudged, duplicates_only)
            found = reports[: int(used[rules.FOUND_USED])]
            for kind, kept in self._found.items() if len(found) else ():
                kept.add(found[found[:, 2] == kind])
            used[rules.FOUND_USED] = 0
            if done == rows.size:
                return
            if self._table.full:
                self._table.grow()
            if used[rules.FIRST_BATCHES_USED] == len(self._first_batches):
                self._first_batches = doubled(self._first_batches)
            if (used[rules.WINDOWS_USED] + 1) * rules.WINDOW > len(self._windows):
                self._windows = doubled(self._windows)

    def view(self, producer_ids: Collection[int] | None = None) -> dict[int, ProducerState]:
        """The last data batch of the given producers that have one, or of all."""
        if producer_ids is None:
            return {int(row[0]): self._state(row) for row in self._table.used_rows()}
        rows = {producer_id: self._table.find(producer_id) for producer_id in producer_ids}
        return {producer_id: self._state(self._table.rows[row]) for producer_id, row in rows.items() if row >= 0}

    def _state(self, producer: "NDArray[np.int64]") -> ProducerState:
        count, block = int(producer[rules.COUNT]), int(producer[rules.BLOCK])
        last = (
            self._first_batches[producer[rules.FIRST_BATCH]]
            if block == 0
            else self._windows[(block - 1) * rules.WINDOW + (count - 1) % rules.WINDOW]
        )
        return ProducerState(*last[: rules.BREAKS].tolist())

    def findings(self, context: ReplicaContext) -> list[Finding]:
        """Anomalies of the whole log, a finding each; of very many of a kind only the first and last, with `occurrences`."""
        if context.topic in COORDINATOR_TOPICS or not len(self):
            return []
        return [
            _finding(context, row, kept)
            for kind, kept in self._judged()._found.items()
            if not (context.compacted and kind in _MADE_BY_COMPACTION)
            for row in kept.rows.tolist()
            if kind != rules.BACKWARD or self._repeats_known_offsets(row)
        ]

    def _repeats_known_offsets(self, row: list[int]) -> bool:
        """Whether the log had all offsets of a batch, and its producer was present at them, before the batch."""
        producer = self._table.find(row[6])
        present = producer >= 0 and int(self._table.rows[producer, rules.FIRST_OFFSET]) <= row[4]
        return present and self.runs.covers(row[4], offset_after(row[5]), before=(row[0], row[1]))


def _finding(context: ReplicaContext, row: list[int], kept: FirstAndLastRows) -> Finding:
    segment, position, kind, size, base_offset, last_offset, producer_id, epoch, expected, first, last = row[:11]
    evidence: Json = {"producer_id": producer_id, "producer_epoch": epoch, "first_sequence": first, "last_sequence": last}
    if kind == rules.BACKWARD:
        evidence["first_offset"] = base_offset
    elif kind == rules.DUPLICATE:
        evidence["first_offset"] = row[11]
    else:
        evidence["previous_offset"] = row[13]
        evidence["ms_since_previous"] = None if row[14] == rules.UNKNOWN_MS else row[14]
    if kind == rules.EPOCH_REGRESSION:
        evidence["previous_epoch"] = row[12]
    elif kind in _MADE_BY_COMPACTION - {rules.BACKWARD}:
        evidence["expected_sequence"] = expected
        evidence["found_sequence"] = first
    if not kept.complete:
        evidence["occurrences"] = kept.count
    place = context.log_place(segment, position, size, base_offset, offset_after(last_offset))
    return finding(_KIND_NAMES[kind], place, evidence, confidence=Confidence.INFERRED if kind == rules.BACKWARD else None)


# Producers that restart with a higher epoch outside of transactions may have written the same records before (KIP-360).
BUMPS_KEPT: Final = 32
"""Only the first are examined."""


class EpochBump(Struct, frozen=True):
    """A batch with sequence 0 in a producer epoch above 0; offsets are inclusive."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int


class EpochBumps:
    """State: the first batches of raised producer epochs, in file order."""

    def __init__(self) -> None:
        self.kept: list[EpochBump] = []

    def step(self, columns: "NDArray[np.int64]") -> None:
        """Add batches, (BATCH_COLUMNS, n) int64 in file order; transactions, which always raise epochs, are left out."""
        epoch = columns[BatchColumn.PRODUCER_EPOCH]
        if len(self.kept) >= BUMPS_KEPT or not epoch.size or int(epoch.max()) < 1:
            return
        plain = (columns[BatchColumn.ATTRIBUTES] & (TRANSACTIONAL_MASK | CONTROL_MASK)) == 0
        rows = np.flatnonzero(plain & has_right_crc(columns) & (epoch > 0) & (columns[BatchColumn.BASE_SEQUENCE] == 0))
        facts = columns[:, rows[: BUMPS_KEPT - len(self.kept)]][list(_BUMP_COLUMNS)]
        self.kept += [EpochBump(*batch) for batch in facts.T.tolist()]

    def merge(self, right: "EpochBumps") -> None:
        """Add the part of the log that follows."""
        self.kept += right.kept[: BUMPS_KEPT - len(self.kept)]


_BUMP_COLUMNS: Final = (BatchColumn.PRODUCER_ID, BatchColumn.PRODUCER_EPOCH, BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET)
