"""Transactions as all partitions and the coordinators' log show them together."""

from kafka_forensics.analysis.transactions_across.decisions import SKEW_MS, TV2
from kafka_forensics.analysis.transactions_across.facts import (
    DamagedLog,
    PartitionTransactionFacts,
    best_copy,
    damage_of,
    hidden_by_damage,
    partition_transactions,
)
from kafka_forensics.analysis.transactions_across.judging import CrossPartitionTransactions, completed_decisions, proof_by_marker
