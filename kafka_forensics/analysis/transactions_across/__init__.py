"""Transactions as all partitions and the coordinators' log show them together."""

from kafka_forensics.analysis.transactions_across.across import TransactionsAcross, completed, proven_by
from kafka_forensics.analysis.transactions_across.decided import SKEW_MS, TV2
from kafka_forensics.analysis.transactions_across.facts import (
    DamagedLog,
    PartitionTransactionFacts,
    best_copy,
    damage_of,
    hidden_by_damage,
    partition_transactions,
)

__all__ = [
    "SKEW_MS",
    "TV2",
    "DamagedLog",
    "PartitionTransactionFacts",
    "TransactionsAcross",
    "best_copy",
    "completed",
    "damage_of",
    "hidden_by_damage",
    "partition_transactions",
    "proven_by",
]
