"""`.snapshot` files against the log: what a broker wrote down of its producers must not contradict their batches.

Brokers forget and rebuild this state on their own clocks, so what is missing from a snapshot says nothing; only what no healthy
broker can have written counts, and only where the log before the snapshot is whole (ProducerStateManager).
"""

from collections.abc import Mapping
from typing import Any, Final

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.producers import OffsetRuns, ProducerState
from kafka_forensics.analysis.transactions.transactions import TransactionState
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.files import ProducerEntry, ProducerSnapshot
from kafka_forensics.model.findings import Confidence, Finding

MAX_LISTED: Final = 16


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
    wrong: list[dict[str, Any]] = []
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
    evidence = {"snapshot_offset": snapshot.offset, **wrong[0], "contradictions": wrong[:MAX_LISTED], "occurrences": len(wrong)}
    place = context.place(f"{snapshot.offset:020d}.snapshot")
    return [finding("PRODUCER_SNAPSHOT_CORRUPT", place, evidence, confidence=Confidence.INFERRED)]


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
    if state is not None and state.last_offset == entry.last_offset:
        if state.producer_epoch != entry.producer_epoch:
            return "producer_epoch"
        if state.last_sequence != entry.last_sequence:
            return "last_sequence"
    elif runs.start_offset <= entry.last_offset < runs.end_offset:
        return "last_offset"
    is_open = transaction is not None and transaction.first_offset >= 0
    if entry.current_txn_first_offset < 0:
        return "current_txn_first_offset" if is_open else None
    if forgot:
        return None
    first_offset = transaction.first_offset if transaction is not None else -1
    seen = runs.start_offset <= entry.current_txn_first_offset
    return "current_txn_first_offset" if seen and first_offset != entry.current_txn_first_offset else None
