"""`.txnindex` against the log: each aborted transaction must be listed, and nothing else (TransactionIndex, AbortedTxn.json); and
`.snapshot` files against the log: a broker's snapshot of its producers must not contradict their batches (ProducerStateManager).

Where the log itself is in doubt (bytes or offsets missing, cleaned, or not copied at the same time), the files are not judged.
Brokers forget and rebuild producer state at their own times, so an entry missing from a snapshot proves nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.analysis import bounds
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.producers import OffsetRuns, ProducerState, offset_after
from kafka_forensics.analysis.transactions.endings import FIRST_OFFSET, IS_ABORT, LAST_OFFSET, SEGMENT, Ending, endings_of, paired
from kafka_forensics.analysis.transactions.transactions import TransactionState
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.constants import INT64_MAX, TXN_INDEX_ENTRY_SIZE
from kafka_forensics.model.files import AbortedTxn, AbortedTxns, ProducerEntry, ProducerSnapshot, TransactionIndex
from kafka_forensics.model.findings import Confidence, Finding
from kafka_forensics.model.json_objects import Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.transactions.transactions import TransactionsFold


MAX_LISTED: Final = 16
"""Findings of a kind about one file; the first of them gives the total number."""


class IndexCheck:
    """Compares the aborted transactions of a log with the entries of its `.txnindex` files.

    If they are many, those listed in the file of their segment are dropped while the log is folded, to bound the memory. Entries
    that a file has of another segment's offsets are then not judged.
    """

    def __init__(self, context: ReplicaContext, has_index_files: set[int], read: Callable[[int], TransactionIndex | None]) -> None:
        """`has_index_files`: segments with any copied index file; `read` parses the `.txnindex` of a segment, None
        if there is no readable one."""
        self._context = context
        self._has_index_files = has_index_files
        self._read = read
        self._partly_compared: dict[int, _Entries | None] = {}
        """Segment → its remaining entries, None if unreadable; of the segments that were compared in part."""
        self._dropped_ranges: dict[int, tuple[int, int]] = {}
        """Segment → first and last marker that was dropped."""
        self._unlisted_counts: dict[int, int] = {}
        """Segment → number of aborted transactions that were dropped though no entry lists them."""

    def drop_listed(self, fold: "TransactionsFold", runs: OffsetRuns) -> None:
        """Drop listed transactions if there are many, after a merge; no part of the log may precede `fold`. Compacted logs keep
        all, to know what readers see."""
        if len(fold.non_commit_endings) > bounds.MAX_ENDINGS and not self._context.compacted:
            fold.apply_first_markers()
            fold.non_commit_endings.replace(self._without_pairs(fold.non_commit_endings.rows(), runs))

    def findings(self, fold: "TransactionsFold", segments: list[int], log_start_offset: int, runs: OffsetRuns) -> list[Finding]:
        """Differences between the files of `segments` and the whole log; `runs` are those of the producers fold."""
        rows = fold.non_commit_ending_rows()
        if len(rows) > bounds.MAX_ENDINGS or self._partly_compared:
            rows = self._without_pairs(rows, runs)
        indexes: dict[int, TransactionIndex] = {}
        for segment in segments:
            if segment not in self._partly_compared and (index := self._read(segment)) is not None:
                if len(index.entries) > bounds.MAX_UNLISTED:
                    self._partly_compared[segment] = _Entries(index)
                    rows = self._without_pairs(rows, runs, only=segment)
                else:
                    indexes[segment] = index
        self._trim(keep=None)
        indexes |= {segment: entries.remaining() for segment, entries in self._partly_compared.items() if entries is not None}
        if runs.breaks.count:
            rows = self._without_repeated(rows)
        return self._compare(endings_of(rows), indexes, _Log(self._context, log_start_offset, runs))

    def _compare(self, endings: list[Ending], indexes: dict[int, TransactionIndex], log: "_Log") -> list[Finding]:
        """Aborted transactions without an entry, entries without one, and entries with a wrong first offset."""
        answer = self._unlisted(endings, indexes, log)
        by_key = {ending.key: ending for ending in endings}
        for segment, index in sorted(indexes.items()):
            if index.damage:
                continue
            unmatched_entries, wrong = [], []
            for entry in index.entries:
                ending = by_key.get((entry.producer_id, entry.last_offset))
                if ending is None:
                    certain = entry.last_offset >= log.start_offset and log.is_whole_at(entry.last_offset)
                    if certain and not self._may_be_dropped_elsewhere(segment, entry.last_offset):
                        unmatched_entries.append(entry)
                elif not _agrees(entry, ending, log):
                    wrong.append((entry, ending))
            answer += _listed(log.context, segment, "TXNINDEX_PHANTOM_ABORT", [(entry, {}) for entry in unmatched_entries])
            reasons = [(entry, {"reason": "first_offset", "found_first_offset": ending.first_offset}) for entry, ending in wrong]
            answer += _listed(log.context, segment, "INDEX_MISMATCH", reasons)
        return answer

    def _may_be_dropped_elsewhere(self, segment: int, offset: int) -> bool:
        """Whether a marker may be among the dropped ones of another segment."""
        return any(low <= offset <= high for other, (low, high) in self._dropped_ranges.items() if other != segment)

    def _unlisted(self, endings: list[Ending], indexes: dict[int, TransactionIndex], log: "_Log") -> list[Finding]:
        listed = {(entry.producer_id, entry.last_offset) for index in indexes.values() for entry in index.entries}
        missing: dict[int, list[AbortedTxn]] = {}
        for ending in endings:
            segment = ending.ends[0]
            if ending.key in listed or self._may_be_dropped_elsewhere(segment, ending.last_offset):
                continue
            if (segment in indexes or segment in self._has_index_files) and _must_be_listed(ending, log):
                entry = AbortedTxn(ending.producer_id, ending.first_offset, ending.last_offset, last_stable_offset=-1)
                missing.setdefault(segment, []).append(entry)
        answer = []
        for segment, entries in missing.items():
            has_file = segment in indexes
            rows = [(entry, {} if has_file else {"file_missing": True}) for entry in entries]
            unlisted = self._unlisted_counts.get(segment, 0)
            answer += _listed(log.context, segment, "TXNINDEX_MISSING_ABORT", rows, MAX_LISTED if has_file else 1, unlisted)
        return answer

    def _without_pairs(self, rows: "NDArray[np.int64]", runs: OffsetRuns, only: int | None = None) -> "NDArray[np.int64]":
        """The endings that may still lead to a finding."""
        kept = np.ones(len(rows), bool)
        for segment in np.unique(rows[:, SEGMENT]).tolist() if only is None else [only]:
            at = np.flatnonzero(rows[:, SEGMENT] == segment)
            if segment not in self._partly_compared:
                index = self._read(segment)
                self._partly_compared[segment] = None if index is None else _Entries(index)
            entries = self._partly_compared[segment]
            pairs = named = np.zeros(len(at), bool)
            if entries is not None and len(at):
                near = entries.near(rows[at])
                pairs, entry_pairs, named = paired(rows[at], entries.rows(near))
                entries.remain[near[entry_pairs]] = False
            unlisted = ~named & (rows[at, IS_ABORT] != 0) & (rows[at, FIRST_OFFSET] >= 0)
            unlisted &= entries is not None or segment in self._has_index_files
            surplus = np.flatnonzero(unlisted)[bounds.MAX_UNLISTED :]
            if not runs.breaks.count and not self._context.compacted:
                self._unlisted_counts[segment] = self._unlisted_counts.get(segment, 0) + len(surplus)
            unlisted[surplus] = False
            kept[at] = (named & ~pairs) | unlisted
            dropped = rows[at[~kept[at]], LAST_OFFSET]
            if len(dropped):
                low, high = self._dropped_ranges.get(segment, (INT64_MAX, -1))
                self._dropped_ranges[segment] = min(low, int(dropped.min())), max(high, int(dropped.max()))
        self._trim(keep=max(self._partly_compared, default=None))
        return rows[kept]

    def _trim(self, keep: int | None) -> None:
        """Limit the entries without a transaction, except those of the segment `keep`, whose transactions may still follow."""
        for segment, entries in self._partly_compared.items():
            if entries is not None and segment != keep:
                entries.trim()

    def _without_repeated(self, rows: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Without the endings whose entry was paired with another marker at the same offset: the log has that range twice."""
        kept = np.ones(len(rows), bool)
        for segment in self._dropped_ranges:
            at = np.flatnonzero(rows[:, SEGMENT] == segment)
            remaining, index = self._partly_compared.get(segment), self._read(segment) if at.size else None
            if remaining is not None and index is not None:
                kept[at] = ~_Entries(index).name(rows[at]) | remaining.name(rows[at])
        return rows[kept]


class _Entries:
    """The entries of one file; `remain` marks those that were not dropped with their transaction."""

    def __init__(self, index: TransactionIndex) -> None:
        self._index = index
        self.remain = np.ones(len(index.entries), bool)

    def near(self, endings: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Numbers of the remaining entries whose markers are in the range of the markers of `endings`, at least one."""
        entries = self._index.entries
        last = (
            entries.last_offsets if isinstance(entries, AbortedTxns) else np.array([txn.last_offset for txn in entries], np.int64)
        )
        markers = endings[:, LAST_OFFSET]
        return np.flatnonzero(self.remain & (last >= markers.min()) & (last <= markers.max()))

    def rows(self, numbers: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Producer id, first offset and marker of the entries with these numbers."""
        entries = self._entries(numbers)
        if isinstance(entries, AbortedTxns):
            return entries.rows()[:, :3]
        return np.array([[txn.producer_id, txn.first_offset, txn.last_offset] for txn in entries], np.int64).reshape(-1, 3)

    def name(self, endings: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Which of these endings, at least one, a remaining entry names."""
        return paired(endings, self.rows(self.near(endings)))[2]

    def trim(self) -> None:
        """Keep only the first few of the remaining entries."""
        numbers = np.flatnonzero(self.remain)[: bounds.MAX_UNLISTED]
        if len(numbers) < len(self.remain):
            self._index = TransactionIndex(self._entries(numbers), self._index.damage)
            self.remain = np.ones(len(numbers), bool)

    def remaining(self) -> TransactionIndex:
        """An index of the remaining entries."""
        return TransactionIndex(self._entries(np.flatnonzero(self.remain)), self._index.damage)

    def _entries(self, numbers: "NDArray[np.int64]") -> Sequence[AbortedTxn]:
        entries = self._index.entries
        return entries.select(numbers) if isinstance(entries, AbortedTxns) else [entries[number] for number in numbers.tolist()]


class _Log(NamedTuple):
    context: ReplicaContext
    start_offset: int
    runs: OffsetRuns

    def is_whole_at(self, offset: int) -> bool:
        """Whether the log has an offset in good bytes and not cleaned."""
        checkpoint = self.context.cleaner_checkpoint
        cleaned = self.context.compacted and (checkpoint is None or offset < checkpoint)
        return not cleaned and self.runs.covers(offset, offset_after(offset))


def _agrees(entry: AbortedTxn, ending: Ending, log: _Log) -> bool:
    """Whether an entry has its transaction's first offset, or the log is not whole enough to tell.

    Brokers before 2.8 list a marker that ended nothing as a transaction which began with it (KAFKA-10702).
    """
    return (
        entry.first_offset == ending.first_offset
        or not ending.is_abort
        or (ending.first_offset < 0 and entry.first_offset == ending.last_offset)
        or entry.first_offset < max(log.start_offset, log.runs.start_offset)
        or not log.is_whole_at(entry.first_offset)
        or log.runs.broken_between(log.runs.first_place if ending.first_offset < 0 else ending.begins, ending.ends)
    )


def _must_be_listed(ending: Ending, log: _Log) -> bool:
    """Whether a transaction was aborted in a closed segment, and the log has all of it as proof."""
    if not ending.is_abort or ending.first_offset < 0:
        return False
    if log.context.live and ending.ends[0] >= max(log.context.segment_base_offsets, default=-1):
        return False
    return log.is_whole_at(ending.last_offset) and not log.runs.broken_between(ending.begins, ending.ends)


def _listed(
    context: ReplicaContext,
    segment: int,
    kind: str,
    rows: list[tuple[AbortedTxn, Json]],
    most: int = MAX_LISTED,
    others: int = 0,
) -> list[Finding]:
    """Findings about the entries of one file; `occurrences` is their number, with `others`, if not all have a finding."""
    answer = []
    for entry, details in rows[:most]:
        evidence: Json = {"producer_id": entry.producer_id, "first_offset": entry.first_offset, "last_offset": entry.last_offset}
        evidence |= details
        if len(rows) + others > most:
            evidence["occurrences"] = len(rows) + others
        byte_start = byte_end = None
        if entry.position >= 0:
            evidence["entry"] = entry.position // TXN_INDEX_ENTRY_SIZE
            byte_start, byte_end = entry.position, entry.position + TXN_INDEX_ENTRY_SIZE
        place = context.place(
            f"{segment:020d}.txnindex",
            byte_start=byte_start,
            byte_end=byte_end,
            offset_start=min(entry.first_offset, entry.last_offset),
            offset_end=offset_after(max(entry.first_offset, entry.last_offset)),
        )
        answer.append(finding(kind, place, evidence))
    return answer


def compare_with_snapshot(
    snapshot: ProducerSnapshot,
    producers: Mapping[int, ProducerState],
    transactions: Mapping[int, TransactionState],
    runs: OffsetRuns,
    context: ReplicaContext,
    *,
    forgot: bool = False,
) -> list[Finding]:
    """At most one finding about a readable snapshot: an entry that no healthy broker writes, where the log before the snapshot is
    whole.

    The arguments are the folds' state of the log before `snapshot.offset`: views of the producers that it names, of all
    transactional ones, and the producers fold's `runs`. If the folds `forgot` producers, only those that they have are judged.
    """
    if snapshot.damage:
        return []
    wrong: list[Json] = []
    for entry in snapshot.entries:
        state, transaction = producers.get(entry.producer_id), transactions.get(entry.producer_id)
        reason = _contradiction(snapshot.offset, entry, runs, state, transaction, forgot=forgot)
        if reason is not None:
            wrong.append(
                {
                    "reason": reason,
                    "producer_id": entry.producer_id,
                    "snapshot": [entry.producer_epoch, entry.last_sequence, entry.last_offset, entry.current_txn_first_offset],
                    "log": [
                        state.producer_epoch if state else None,
                        state.last_sequence if state else None,
                        state.last_offset if state else None,
                        transaction.first_offset if transaction else -1,
                    ],
                }
            )
    if not wrong:
        return []
    evidence: Json = {
        "snapshot_offset": snapshot.offset,
        **wrong[0],
        "contradictions": wrong[:MAX_LISTED],
        "occurrences": len(wrong),
    }
    place = context.place(f"{snapshot.offset:020d}.snapshot")
    return [finding("PRODUCER_SNAPSHOT_CORRUPT", place, evidence, confidence=Confidence.INFERRED)]


def _contradiction(
    offset: int,
    entry: ProducerEntry,
    runs: OffsetRuns,
    state: ProducerState | None,
    transaction: TransactionState | None,
    *,
    forgot: bool,
) -> str | None:
    """The field of an entry that contradicts the log before `offset`, None if there is none."""
    if entry.last_offset >= offset:
        return "last_offset"
    if entry.current_txn_first_offset >= offset:
        return "current_txn_first_offset"
    if runs.start_offset < 0 or runs.broken_between(runs.first_place) or (forgot and state is None):
        return None
    if state is None or state.last_offset != entry.last_offset:
        if runs.start_offset <= entry.last_offset < runs.end_offset:
            return "last_offset"
    elif state.producer_epoch != entry.producer_epoch:
        return "producer_epoch"
    elif state.last_sequence != entry.last_sequence:
        return "last_sequence"
    first_offset = -1 if transaction is None else transaction.first_offset
    if entry.current_txn_first_offset < 0:
        return "current_txn_first_offset" if first_offset >= 0 else None
    seen = not forgot and runs.start_offset <= entry.current_txn_first_offset
    return "current_txn_first_offset" if seen and first_offset != entry.current_txn_first_offset else None
