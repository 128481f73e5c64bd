"""Idempotent producers: sequence numbers and epochs that do not follow (ProducerAppendInfo; facts of the log, not of a broker).

What is legal is left alone: a first batch at any sequence, a wrap, a higher epoch, anything after the broker's memory of a
producer may have expired, a jump where batches or bytes are missing (that has its own finding), compaction's gaps, and topics
whose batches a coordinator writes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis import bounds
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.producers import rules
from kafka_forensics.analysis.producers.rules import ProducerTable, doubled, move_up
from kafka_forensics.analysis.producers.runs import Extremes, OffsetRuns, offset_behind
from kafka_forensics.analysis.segments import Survey, survey
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
_BY_COMPACTION: Final = frozenset({rules.BACKWARD, rules.GAP, rules.REGRESSION})
"""What cleaning a log may leave behind."""
_FOUND_ROWS: Final = 256
_FIRST_ROWS: Final = 16


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer's last data batch: epoch, sequences, offsets (inclusive), newest timestamp in ms."""

    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducersFold:
    """State: for each producer its first and last five data batches; `runs`, the log's breaks; the first and last few anomalies of
    each kind with their exact number.

    Bounded by the number of producers, and that by `make_room` and `filled`. A producer that was forgotten and comes back is met
    anew: of its first five batches only exact repetitions among them are told.
    """

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self._pending = rules.WINDOW
        self.forgot = False
        """Whether producers that the log has are missing here."""
        self._let_go = 0
        self.runs = OffsetRuns(segment_base_offset)
        self._table = ProducerTable(rules.PRODUCER_WIDTH, rules.COUNTERS)
        self._heads: NDArray[np.int64] = np.zeros((_FIRST_ROWS, rules.FACTS), np.int64)
        self._windows: NDArray[np.int64] = np.zeros((_FIRST_ROWS * rules.WINDOW, rules.WINDOW_WIDTH), np.int64)
        self._found = {kind: Extremes(rules.FOUND_WIDTH) for kind in rules.KINDS}

    def __len__(self) -> int:
        """Number of producers; of more than MAX_PRODUCERS, of those remembered."""
        return len(self._table) + self._let_go

    @property
    def filled(self) -> bool:
        """Whether as many producers were met as a stretch of log should hold."""
        return len(self._table) > bounds.STRETCH_PRODUCERS or int(self._table.used[rules.HEADS_USED]) > bounds.STRETCH_BATCHES

    @property
    def size_in_bytes(self) -> int:
        """Memory held for producers."""
        table = self._table
        return table.rows.nbytes + table.slots.nbytes + self._heads.nbytes + self._windows.nbytes

    def make_room(self, right: "ProducersFold") -> None:
        """Before a merge, nothing standing left of us: forget the producers silent longest if those of both are too many."""
        together = len(self._table) + len(right._table)
        if self._pending and together > min(bounds.SETTLED_ABOVE, bounds.MAX_PRODUCERS):
            self._become(self._settled())
        if together <= bounds.MAX_PRODUCERS:
            return
        returning = self._table.among(right._table)
        if together - int(returning.sum()) <= bounds.MAX_PRODUCERS:
            return
        silent = np.flatnonzero(~returning)
        last = self._last_rows()[silent, rules.LAST_OFFSET]
        most = max(bounds.MAX_PRODUCERS // 2 - len(right._table), 0)
        recent = silent[np.argsort(last, kind="stable")][max(len(silent) - most, 0) :]
        kept = np.isin(self._table.taken()[:, 0], self._found[rules.BACKWARD].rows[:, 6])
        kept |= returning
        kept[recent] = True
        self._keep_only(np.flatnonzero(kept))

    def close(self) -> None:
        """The log is whole, and only its findings are still asked for: let go of producers."""
        if len(self._table) <= bounds.SETTLED_ABOVE:
            return
        self._become(self._settled())
        count = len(self)
        self._keep_only(np.flatnonzero(np.isin(self._table.taken()[:, 0], self._found[rules.BACKWARD].rows[:, 6])))
        self._let_go = count - len(self._table)
        self._table.shrink()
        self._windows = self._windows[: len(self._table.rows) * rules.WINDOW].copy()

    def _settled(self) -> "ProducersFold":
        """The same with every first batch judged, nothing standing left of us."""
        if not self._pending:
            return self
        whole = ProducersFold(self._segment)
        whole._pending = 0
        whole.merge(self)
        return whole

    def _become(self, other: "ProducersFold") -> None:
        self._pending, self.runs, self._found = other._pending, other.runs, other._found
        self._table, self._heads, self._windows = other._table, other._heads, other._windows

    def _keep_only(self, kept: "NDArray[np.int64]") -> None:
        """Forget all producers but those in the rows `kept`, ascending; every one of ours has a window."""
        blocks = self._table.rows[kept, rules.BLOCK] - 1
        self._table.keep(kept)
        count = len(kept)
        self._table.rows[:count, rules.BLOCK] = np.arange(1, count + 1)
        self._table.used[rules.BLOCKS_USED] = count
        move_up(self._windows.reshape(-1, rules.WINDOW, rules.WINDOW_WIDTH), blocks)
        self.forgot = True

    def _last_rows(self) -> "NDArray[np.int64]":
        """The last batch of each producer, columns of a window; every one of ours has a window."""
        producers = self._table.taken()
        at = (producers[:, rules.BLOCK] - 1) * rules.WINDOW + (producers[:, rules.COUNT] - 1) % rules.WINDOW
        answer: NDArray[np.int64] = self._windows[at]
        return answer

    def step(self, columns: "NDArray[np.int64]", seen: Survey | None = None) -> None:
        """Add consecutive batches of the segment, (BATCH_COLUMNS, n) int64 in file order. A wrong CRC counts as damage.

        `seen` is the survey of the columns, if there are any.
        """
        if columns.shape[1] == 0:
            return
        seen = seen or survey(columns)
        verdict = self.runs.step(columns, seen)
        if not seen.producers:
            return
        producer_id = columns[BatchColumn.PRODUCER_ID]
        rows = np.flatnonzero((producer_id | columns[BatchColumn.BASE_SEQUENCE]) >= 0)
        if verdict is None:
            breaks = np.full(producer_id.size, self.runs.broken, np.int64)
        else:
            good, breaks = verdict
            rows = rows[good[rows]]
        facts = (
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
        self._take(rows, facts)

    def damage(self) -> None:
        """Bytes were lost behind the last batch given: the next jump of any producer is explained."""
        self.runs.damage()

    def merge(self, right: "ProducersFold") -> None:
        """Add the stretch that stands behind ours; `right`, which has forgotten nothing, is left as it was."""
        assert not right.forgot
        shift = self.runs.merge(right.runs)
        if len(right):
            self._merge_producers(right, shift)
        for kind, rows in right._found.items():
            self._found[kind].merge(rows)
        self._segment = right._segment

    def _merge_producers(self, right: "ProducersFold", shift: int) -> None:
        """Add the producers of the stretch behind ours, whose breaks count from `shift` on."""
        heads = right._heads[: int(right._table.used[rules.HEADS_USED])].copy()
        heads[:, rules.BREAKS] += shift
        heads[:, rules.LAST_SEQUENCE] = (heads[:, rules.LAST_SEQUENCE] - heads[:, rules.FIRST_SEQUENCE]) & MAX_SEQUENCE
        self._take(np.arange(len(heads)), tuple(np.ascontiguousarray(heads.T)))
        theirs = right._table.taken()
        matched = np.zeros(len(theirs), np.int64)
        rules.match_producers(theirs, self._store(heads), self._table.used, matched)
        rules.adopt_windows(theirs, right._windows, matched, self._table.rows, self._windows, shift)

    def _store(self, reports: "NDArray[np.int64]") -> "tuple[NDArray[np.int64], ...]":
        table = self._table
        return table.rows, table.slots, table.keys, self._heads, self._windows, reports

    def _take(self, rows: "NDArray[np.int64]", facts: "tuple[NDArray[np.int64], ...]") -> None:
        """Run the kernel over `rows` of `facts`, making room as it asks for it."""
        used = self._table.used
        columns = np.empty((_FOUND_ROWS, rules.FOUND_WIDTH), np.int64)
        now = np.zeros(rules.FACTS, np.int64)
        done = 0
        sure = rules.WINDOW if self.forgot else 0
        while True:
            done = rules.take_batches(done, rows, facts, self._store(columns), used, now, self._pending, sure)
            self._keep(columns[: int(used[rules.FOUND_USED])])
            used[rules.FOUND_USED] = 0
            if done == rows.size:
                return
            if self._table.full:
                self._table.grow()
            if used[rules.HEADS_USED] == len(self._heads):
                self._heads = doubled(self._heads)
            if (used[rules.BLOCKS_USED] + 1) * rules.WINDOW > len(self._windows):
                self._windows = doubled(self._windows)

    def _keep(self, reports: "NDArray[np.int64]") -> None:
        if len(reports):
            for kind, kept in self._found.items():
                kept.add(reports[reports[:, 2] == kind])

    def view(self, producer_ids: Collection[int] | None = None) -> dict[int, ProducerState]:
        """The last data batch of the producers asked for that have one, or of all."""
        if producer_ids is None:
            return {int(row[0]): self._state(row) for row in self._table.taken()}
        rows = {producer_id: self._table.find(producer_id) for producer_id in producer_ids}
        return {producer_id: self._state(self._table.rows[row]) for producer_id, row in rows.items() if row >= 0}

    def _state(self, producer: "NDArray[np.int64]") -> ProducerState:
        count, block = int(producer[rules.COUNT]), int(producer[rules.BLOCK])
        last = (
            self._heads[producer[rules.HEAD]]
            if block == 0
            else self._windows[(block - 1) * rules.WINDOW + (count - 1) % rules.WINDOW]
        )
        return ProducerState(*last[: rules.BREAKS].tolist())

    def findings(self, context: ReplicaContext) -> list[Finding]:
        """What is wrong with the whole log, this fold being of all of it. Each anomaly is a finding; of very many of a kind the
        first and last few, each with `occurrences`."""
        if context.topic in COORDINATOR_TOPICS or not len(self):
            return []
        whole = self._settled()
        answer: list[Finding] = []
        for kind, kept in whole._found.items():
            if context.compacted and kind in _BY_COMPACTION:
                continue
            rows = kept.rows.tolist()
            answer += [_finding(context, row, kept) for row in rows if kind != rules.BACKWARD or self._seen_before(row)]
        return answer

    def _seen_before(self, row: list[int]) -> bool:
        """Whether the log had all offsets of a batch, and its producer by then, before it came to the batch."""
        producer = self._table.find(row[6])
        known = producer >= 0 and int(self._table.rows[producer, rules.FIRST_OFFSET]) <= row[4]
        return known and self.runs.covers(row[4], offset_behind(row[5]), before=(row[0], row[1]))


def _finding(context: ReplicaContext, row: list[int], kept: Extremes) -> Finding:
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
    elif kind in _BY_COMPACTION - {rules.BACKWARD}:
        evidence["expected_sequence"] = expected
        evidence["found_sequence"] = first
    if not kept.complete:
        evidence["occurrences"] = kept.count
    place = context.log_place(segment, position, size, base_offset, offset_behind(last_offset))
    return finding(_KIND_NAMES[kind], place, evidence, confidence=Confidence.INFERRED if kind == rules.BACKWARD else None)


# Where a producer began anew under a higher epoch, outside of transactions: what it may have written before (KIP-360).


BUMPS_KEPT: Final = 32
"""Of more than that only the first are looked into."""


@dataclass(frozen=True, slots=True)
class EpochBump:
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
        """Add batches, (BATCH_COLUMNS, n) int64 in file order. Transactions, which raise epochs in any case, are left out."""
        epoch = columns[BatchColumn.PRODUCER_EPOCH]
        if len(self.kept) >= BUMPS_KEPT or not epoch.size or int(epoch.max()) < 1:
            return
        plain = (columns[BatchColumn.ATTRIBUTES] & (TRANSACTIONAL_MASK | CONTROL_MASK)) == 0
        good = has_right_crc(columns)
        rows = np.flatnonzero(plain & good & (epoch > 0) & (columns[BatchColumn.BASE_SEQUENCE] == 0))
        for row in rows[: BUMPS_KEPT - len(self.kept)]:
            producer_id, producer_epoch, base, last = (int(columns[column, row]) for column in _FACTS)
            self.kept.append(EpochBump(producer_id, producer_epoch, base, last))

    def merge(self, right: "EpochBumps") -> None:
        """Add the stretch that stands behind ours."""
        self.kept += right.kept[: BUMPS_KEPT - len(self.kept)]


_FACTS: Final = (BatchColumn.PRODUCER_ID, BatchColumn.PRODUCER_EPOCH, BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET)
