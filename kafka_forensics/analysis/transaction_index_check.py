"""`.txnindex` against the log: each aborted transaction must be listed, and nothing else (TransactionIndex, AbortedTxn.json).

Where the log itself is in doubt (bytes lost, offsets missing, cleaned, or not copied at the same time), the index is left alone.
"""

from typing import Any, Final

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.context import ReplicaContext
from kafka_forensics.analysis.producer_runs import OffsetRuns, offset_behind
from kafka_forensics.analysis.transaction_endings import Ending
from kafka_forensics.model.constants import TXN_INDEX_ENTRY_SIZE
from kafka_forensics.model.files import AbortedTxn, TransactionIndex
from kafka_forensics.model.findings import Finding

MAX_LISTED: Final = 16
"""Findings of a kind about one file; the first of them says how many there are."""


def compare_endings(
    endings: list[Ending],
    indexes: dict[int, TransactionIndex],
    context: ReplicaContext,
    log_start_offset: int,
    runs: OffsetRuns,
    has_index_files: set[int],
) -> list[Finding]:
    """Entries that are missing, of no transaction, or with a wrong first offset; `indexes` by segment base offset."""
    answer = _missing(endings, indexes, context, runs, has_index_files)
    by_key = {ending.key: ending for ending in endings}
    for segment, index in sorted(indexes.items()):
        if index.damage:
            continue
        phantoms, wrong = [], []
        for entry in index.entries:
            ending = by_key.get((entry.producer_id, entry.last_offset))
            if ending is None:
                if entry.last_offset >= log_start_offset and _is_certain(entry.last_offset, context, runs):
                    phantoms.append(entry)
            elif not _agrees(entry, ending, log_start_offset, context, runs):
                wrong.append((entry, ending))
        answer += _listed(context, segment, "TXNINDEX_PHANTOM_ABORT", [(entry, {}) for entry in phantoms])
        reasons = [(entry, {"reason": "first_offset", "found_first_offset": ending.first_offset}) for entry, ending in wrong]
        answer += _listed(context, segment, "INDEX_MISMATCH", reasons)
    return answer


def _is_certain(offset: int, context: ReplicaContext, runs: OffsetRuns) -> bool:
    """Whether the log is known to be whole at an offset: there, in good bytes, and not cleaned."""
    cleaned = context.compacted and (context.cleaner_checkpoint is None or offset < context.cleaner_checkpoint)
    return not cleaned and runs.covers(offset, offset_behind(offset))


def _agrees(entry: AbortedTxn, ending: Ending, log_start_offset: int, context: ReplicaContext, runs: OffsetRuns) -> bool:
    """Whether an entry has its transaction's first offset, or the log is not whole enough to say."""
    if entry.first_offset == ending.first_offset or not ending.is_abort:
        return True
    if entry.first_offset < max(log_start_offset, runs.start_offset):
        return True
    if not _is_certain(entry.first_offset, context, runs):
        return True
    return runs.broken_between(runs.first_place if ending.first_offset < 0 else ending.begins, ending.ends)


def _missing(
    endings: list[Ending],
    indexes: dict[int, TransactionIndex],
    context: ReplicaContext,
    runs: OffsetRuns,
    has_index_files: set[int],
) -> list[Finding]:
    listed = {(entry.producer_id, entry.last_offset) for index in indexes.values() for entry in index.entries}
    active = max(context.segment_base_offsets, default=-1)
    lacking: dict[int, list[AbortedTxn]] = {}
    for ending in endings:
        segment = ending.ends[0]
        if not ending.is_abort or ending.first_offset < 0 or ending.key in listed:
            continue
        if segment not in indexes and segment not in has_index_files:
            continue
        if context.live and segment >= active:
            continue
        if _is_certain(ending.last_offset, context, runs) and not runs.broken_between(ending.begins, ending.ends):
            lacking.setdefault(segment, []).append(
                AbortedTxn(ending.producer_id, ending.first_offset, ending.last_offset, last_stable_offset=-1)
            )
    answer = []
    for segment, entries in lacking.items():
        whole_file = segment not in indexes
        rows = [(entry, {"file_missing": True} if whole_file else {}) for entry in entries]
        answer += _listed(context, segment, "TXNINDEX_MISSING_ABORT", rows, most=1 if whole_file else MAX_LISTED)
    return answer


def _listed(
    context: ReplicaContext, segment: int, kind: str, rows: list[tuple[AbortedTxn, dict[str, Any]]], most: int = MAX_LISTED
) -> list[Finding]:
    """Findings about the entries of one file; `occurrences` says how many there are where not all are listed."""
    answer = []
    for entry, more in rows[:most]:
        evidence: dict[str, Any] = {
            "producer_id": entry.producer_id,
            "first_offset": entry.first_offset,
            "last_offset": entry.last_offset,
            **more,
        }
        if len(rows) > most:
            evidence["occurrences"] = len(rows)
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
