"""Transactions that a producer snapshot holds open, and those of them that the log forgot."""

from collections.abc import Sequence
from typing import Final

from kafka_forensics.analysis.replica.replica import Replica
from kafka_forensics.analysis.transactions import OpenTransaction
from kafka_forensics.model.files import ProducerEntry

OPEN_KEPT: Final = 1 << 10
"""Open transactions that are taken from a snapshot, the oldest first."""


def snapshot_open(entries: Sequence[ProducerEntry]) -> list[OpenTransaction]:
    """The transactions that a snapshot holds open, without a place in the log."""
    return [
        OpenTransaction.of_snapshot(entry)
        for entry in sorted(entries, key=lambda entry: entry.current_txn_first_offset)[:OPEN_KEPT]
    ]


def forgotten_transactions(replica: Replica, entries: Sequence[ProducerEntry], snapshot_offset: int) -> list[OpenTransaction]:
    """Transactions that a snapshot at `snapshot_offset` holds open though the log, from before it on, has nothing of them.

    A broker that starts on this copy believes the snapshot: the last stable offset stays at the log start (UnifiedLog). Where the
    fold forgot producers, nobody can say that the log has nothing of one.
    """
    if snapshot_offset < replica.log_start_offset or not replica.end_is_known:
        return []
    gone = [entry for entry in entries if entry.current_txn_first_offset < replica.log_start_offset]
    return [
        OpenTransaction.of_snapshot(entry) for entry in gone[:OPEN_KEPT] if not replica.state.transactions.knows(entry.producer_id)
    ]
