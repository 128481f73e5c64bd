"""`.txnindex` against the log: each aborted transaction must be listed, and nothing else (TransactionIndex, AbortedTxn.json).

Where the log itself is in doubt (bytes lost, offsets missing, cleaned, or not copied at the same time), the index is left alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.analysis import bounds
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.producers import OffsetRuns, ProducerState, offset_behind
from kafka_forensics.analysis.transactions.endings import FIRST_OFFSET, IS_ABORT, LAST_OFFSET, SEGMENT, Ending, as_endings, paired
from kafka_forensics.analysis.transactions.transactions import TransactionState
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.constants import TXN_INDEX_ENTRY_SIZE
from kafka_forensics.model.files import AbortedTxn, AbortedTxns, ProducerEntry, ProducerSnapshot, TransactionIndex
from kafka_forensics.model.findings import Confidence, Finding
from kafka_forensics.model.json_objects import Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.analysis.transactions.transactions import TransactionsFold


MAX_LISTED: Final = 16
"""Findings of a kind about one file; the first of them says how many there are."""


class IndexCheck:
    """Compares the aborted transactions of a log with what its `.txnindex` files list.

    When they are many, those that the file of their segment lists are let go of while the log is folded, so that memory does not
    grow with them. What a file lists of another segment's offsets is then left alone.
    """

    def __init__(self, context: ReplicaContext, has_index_files: set[int], read: Callable[[int], TransactionIndex | None]) -> None:
        """`has_index_files` names segments of which any index file was copied; `read` parses the `.txnindex` of a segment, None
        where there is none that can be read."""
        self._context = context
        self._has_index_files = has_index_files
        self._read = read
        self._open: dict[int, _Entries | None] = {}
        """Of the segments that were compared in part, the entries left; None where they cannot be read."""
        self._passed: dict[int, tuple[int, int]] = {}
        """Of the same, first and last marker that was let go of."""
        self._unlisted: dict[int, int] = {}
        """Aborted transactions that were let go of though no entry has them."""

    def passed(self, fold: "TransactionsFold", runs: OffsetRuns) -> None:
        """After a merge, nothing standing left of `fold`: let go of transactions if they are many. On compacted logs they are
        needed to the end, to know what readers see."""
        if len(fold.held_endings) > bounds.MAX_ENDINGS and not self._context.compacted:
            fold.settle()
            fold.held_endings.replace(self._without_pairs(fold.held_endings.rows(), runs))

    def findings(self, fold: "TransactionsFold", segments: list[int], log_start_offset: int, runs: OffsetRuns) -> list[Finding]:
        """What the files of `segments` do not say as the log does, the fold being of all of it; `runs` are the producers fold's."""
        rows = fold.ending_rows()
        if len(rows) > bounds.MAX_ENDINGS or self._open:
            rows = self._without_pairs(rows, runs)
        indexes: dict[int, TransactionIndex] = {}
        for segment in segments:
            if segment not in self._open and (index := self._read(segment)) is not None:
                if len(index.entries) > bounds.MAX_UNLISTED:
                    self._open[segment] = _Entries(index)
                    rows = self._without_pairs(rows, runs, only=segment)
                else:
                    indexes[segment] = index
        self._trim(keep=None)
        indexes |= {segment: entries.left() for segment, entries in self._open.items() if entries is not None}
        if runs.breaks.count:
            rows = self._without_repeated(rows)
        files = _IndexFiles(indexes, self._has_index_files, self._passed, self._unlisted)
        return _compare_endings(as_endings(rows), files, _Log(self._context, log_start_offset, runs))

    def _without_pairs(self, rows: "NDArray[np.int64]", runs: OffsetRuns, only: int | None = None) -> "NDArray[np.int64]":
        """The endings that may still be told of."""
        kept = np.ones(len(rows), bool)
        for segment in np.unique(rows[:, SEGMENT]).tolist() if only is None else [only]:
            at = np.flatnonzero(rows[:, SEGMENT] == segment)
            if segment not in self._open:
                index = self._read(segment)
                self._open[segment] = None if index is None else _Entries(index)
            entries = self._open[segment]
            pairs = named = np.zeros(len(at), bool)
            if entries is not None and len(at):
                near = entries.near(rows[at])
                pairs, entry_pairs, named = paired(rows[at], entries.rows(near))
                entries.is_left[near[entry_pairs]] = False
            unlisted = ~named & (rows[at, IS_ABORT] != 0) & (rows[at, FIRST_OFFSET] >= 0)
            unlisted &= entries is not None or segment in self._has_index_files
            surplus = np.flatnonzero(unlisted)[bounds.MAX_UNLISTED :]
            if not runs.breaks.count and not self._context.compacted:
                self._unlisted[segment] = self._unlisted.get(segment, 0) + len(surplus)
            unlisted[surplus] = False
            kept[at] = (named & ~pairs) | unlisted
            gone = rows[at[~kept[at]], LAST_OFFSET]
            if len(gone):
                low, high = self._passed.get(segment, (int(gone[0]), int(gone[0])))
                self._passed[segment] = min(low, int(gone.min())), max(high, int(gone.max()))
        self._trim(keep=max(self._open, default=None))
        return rows[kept]

    def _trim(self, keep: int | None) -> None:
        """Of very many entries without a transaction a few are told; those of the segment `keep` may still find theirs."""
        for segment, entries in self._open.items():
            if entries is not None and segment != keep:
                entries.trim()

    def _without_repeated(self, rows: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Without the endings whose entry went with another marker at the same offset: a piece of the log stands there twice."""
        kept = np.ones(len(rows), bool)
        for segment in self._passed:
            at = np.flatnonzero(rows[:, SEGMENT] == segment)
            left, index = self._open.get(segment), self._read(segment) if at.size else None
            if left is not None and index is not None:
                whole = _Entries(index)
                named = paired(rows[at], whole.rows(whole.near(rows[at])))[2]
                kept[at] = ~named | paired(rows[at], left.rows(left.near(rows[at])))[2]
        return rows[kept]


class _Entries:
    """The entries of one file, and which of them were let go of with their transaction."""

    def __init__(self, index: TransactionIndex) -> None:
        self._index = index
        self.is_left = np.ones(len(index.entries), bool)

    def near(self, endings: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Numbers of the entries left whose markers lie among those of the endings, of which there are some."""
        entries = self._index.entries
        last = (
            entries.last_offsets if isinstance(entries, AbortedTxns) else np.array([txn.last_offset for txn in entries], np.int64)
        )
        markers = endings[:, LAST_OFFSET]
        return np.flatnonzero(self.is_left & (last >= markers.min()) & (last <= markers.max()))

    def rows(self, numbers: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Producer id, first offset and marker of the entries with these numbers."""
        entries = self._some(numbers)
        if isinstance(entries, AbortedTxns):
            return entries.rows()[:, :3]
        return np.array([[txn.producer_id, txn.first_offset, txn.last_offset] for txn in entries], np.int64).reshape(-1, 3)

    def trim(self) -> None:
        """Let go of all entries but a few of those left."""
        numbers = np.flatnonzero(self.is_left)[: bounds.MAX_UNLISTED]
        if len(numbers) < len(self.is_left):
            self._index = TransactionIndex(self._some(numbers), self._index.damage)
            self.is_left = np.ones(len(numbers), bool)

    def left(self) -> TransactionIndex:
        """An index of the entries left."""
        return TransactionIndex(self._some(np.flatnonzero(self.is_left)), self._index.damage)

    def _some(self, numbers: "NDArray[np.int64]") -> Sequence[AbortedTxn]:
        entries = self._index.entries
        return entries.among(numbers) if isinstance(entries, AbortedTxns) else [entries[number] for number in numbers.tolist()]


class _IndexFiles(NamedTuple):
    """The `.txnindex` files, by segment base offset. `passed` and `unlisted` tell of what was let go of: first and last marker, and
    how many that no entry has."""

    indexes: dict[int, TransactionIndex]
    present: set[int]
    """Segments that have a file, readable or not."""
    passed: dict[int, tuple[int, int]]
    unlisted: dict[int, int]

    def passed_elsewhere(self, segment: int, offset: int) -> bool:
        """Whether a marker may be among those of another segment that were let go of."""
        return any(low <= offset <= high for other, (low, high) in self.passed.items() if other != segment)


class _Log(NamedTuple):
    """The log that they are of."""

    context: ReplicaContext
    start_offset: int
    runs: OffsetRuns

    def is_whole_at(self, offset: int) -> bool:
        """Whether the log is known to be whole at an offset: there, in good bytes, and not cleaned."""
        checkpoint = self.context.cleaner_checkpoint
        cleaned = self.context.compacted and (checkpoint is None or offset < checkpoint)
        return not cleaned and self.runs.covers(offset, offset_behind(offset))


def _compare_endings(endings: list[Ending], files: _IndexFiles, log: _Log) -> list[Finding]:
    """Entries that are missing, of no transaction, or with a wrong first offset."""
    here = [ending for ending in endings if not files.passed_elsewhere(ending.ends[0], ending.last_offset)]
    answer = _missing(here, files, log)
    by_key = {ending.key: ending for ending in endings}
    for segment, index in sorted(files.indexes.items()):
        if index.damage:
            continue
        phantoms, wrong = [], []
        for entry in index.entries:
            ending = by_key.get((entry.producer_id, entry.last_offset))
            if ending is None:
                certain = entry.last_offset >= log.start_offset and log.is_whole_at(entry.last_offset)
                if certain and not files.passed_elsewhere(segment, entry.last_offset):
                    phantoms.append(entry)
            elif not _agrees(entry, ending, log):
                wrong.append((entry, ending))
        answer += _listed(log.context, segment, "TXNINDEX_PHANTOM_ABORT", [(entry, {}) for entry in phantoms])
        reasons = [(entry, {"reason": "first_offset", "found_first_offset": ending.first_offset}) for entry, ending in wrong]
        answer += _listed(log.context, segment, "INDEX_MISMATCH", reasons)
    return answer


def _agrees(entry: AbortedTxn, ending: Ending, log: _Log) -> bool:
    """Whether an entry has its transaction's first offset, or the log is not whole enough to say.

    Brokers before 2.8 list a marker that ended nothing as a transaction which began with it (KAFKA-10702).
    """
    if entry.first_offset == ending.first_offset or not ending.is_abort:
        return True
    if ending.first_offset < 0 and entry.first_offset == ending.last_offset:
        return True
    if entry.first_offset < max(log.start_offset, log.runs.start_offset):
        return True
    if not log.is_whole_at(entry.first_offset):
        return True
    return log.runs.broken_between(log.runs.first_place if ending.first_offset < 0 else ending.begins, ending.ends)


def _missing(endings: list[Ending], files: _IndexFiles, log: _Log) -> list[Finding]:
    listed = {(entry.producer_id, entry.last_offset) for index in files.indexes.values() for entry in index.entries}
    lacking: dict[int, list[AbortedTxn]] = {}
    for ending in endings:
        if ending.key not in listed and _must_be_listed(ending, files, log):
            entry = AbortedTxn(ending.producer_id, ending.first_offset, ending.last_offset, last_stable_offset=-1)
            lacking.setdefault(ending.ends[0], []).append(entry)
    answer = []
    for segment, entries in lacking.items():
        whole_file = segment not in files.indexes
        rows = [(entry, {"file_missing": True} if whole_file else {}) for entry in entries]
        most = 1 if whole_file else MAX_LISTED
        answer += _listed(log.context, segment, "TXNINDEX_MISSING_ABORT", rows, most, files.unlisted.get(segment, 0))
    return answer


def _must_be_listed(ending: Ending, files: _IndexFiles, log: _Log) -> bool:
    """Whether a transaction was aborted in a segment whose file is known, and all of it is there to prove it."""
    segment, context = ending.ends[0], log.context
    if not ending.is_abort or ending.first_offset < 0 or (segment not in files.indexes and segment not in files.present):
        return False
    if context.live and segment >= max(context.segment_base_offsets, default=-1):
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
    """Findings about the entries of one file; `occurrences` says how many there are, with `others`, where not all are listed."""
    answer = []
    for entry, more in rows[:most]:
        evidence: Json = {
            "producer_id": entry.producer_id,
            "first_offset": entry.first_offset,
            "last_offset": entry.last_offset,
            **more,
        }
        if len(rows) + others > most:
            evidence["occurrences"] = len(rows) + others
        if entry.position >= 0:
            evidence["entry"] = entry.position // TXN_INDEX_ENTRY_SIZE
        place = context.place(
            f"{segment:020d}.txnindex",
            byte_start=entry.position if entry.position >= 0 else None,
            byte_end=entry.position + TXN_INDEX_ENTRY_SIZE if entry.position >= 0 else None,
            offset_start=min(entry.first_offset, entry.last_offset),
            offset_end=offset_behind(max(entry.first_offset, entry.last_offset)),
        )
        answer.append(finding(kind, place, evidence))
    return answer


# `.snapshot` files against the log: what a broker wrote down of its producers must not contradict their batches.
#
# Brokers forget and rebuild this state on their own clocks, so what is missing from a snapshot says nothing; only what no healthy
# broker can have written counts, and only where the log before the snapshot is whole (ProducerStateManager).


def compare_with_snapshot(
    snapshot: ProducerSnapshot,
    producers: Mapping[int, ProducerState],
    transactions: Mapping[int, TransactionState],
    runs: OffsetRuns,
    context: ReplicaContext,
    *,
    forgot: bool = False,
) -> list[Finding]:
    """At most one finding about a readable snapshot, given what the folds hold of the log before `snapshot.offset`: the views of
    the producers it names, of all transactional ones, and the producers fold's `runs`. Where the folds `forgot` producers, only
    those that they hold are judged."""
    if snapshot.damage:
        return []
    wrong: list[Json] = []
    for entry in snapshot.entries:
        reason = _contradiction(snapshot.offset, entry, runs, producers, transactions, forgot=forgot)
        if reason is not None:
            state, transaction = producers.get(entry.producer_id), transactions.get(entry.producer_id)
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


def _contradiction_of_state(entry: ProducerEntry, state: ProducerState | None, runs: OffsetRuns) -> str | None:
    if state is None or state.last_offset != entry.last_offset:
        return "last_offset" if runs.start_offset <= entry.last_offset < runs.end_offset else None
    if state.producer_epoch != entry.producer_epoch:
        return "producer_epoch"
    return "last_sequence" if state.last_sequence != entry.last_sequence else None


def _contradiction(
    offset: int,
    entry: ProducerEntry,
    runs: OffsetRuns,
    producers: Mapping[int, ProducerState],
    transactions: Mapping[int, TransactionState],
    *,
    forgot: bool,
) -> str | None:
    """Field of an entry that cannot be, None if all can."""
    if entry.last_offset >= offset:
        return "last_offset"
    if entry.current_txn_first_offset >= offset:
        return "current_txn_first_offset"
    if runs.start_offset < 0 or runs.broken_between(runs.first_place):
        return None
    state, transaction = producers.get(entry.producer_id), transactions.get(entry.producer_id)
    if forgot and state is None:
        return None
    if (reason := _contradiction_of_state(entry, state, runs)) is not None:
        return reason
    is_open = transaction is not None and transaction.first_offset >= 0
    if entry.current_txn_first_offset < 0:
        return "current_txn_first_offset" if is_open else None
    if forgot:
        return None
    first_offset = transaction.first_offset if transaction is not None else -1
    seen = runs.start_offset <= entry.current_txn_first_offset
    return "current_txn_first_offset" if seen and first_offset != entry.current_txn_first_offset else None
