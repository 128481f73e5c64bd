"""`transactions`: every transaction of the copies, one by one."""

from kafka_forensics.questions.transactions.listing import (
    KnownTransactions,
    PartitionTransactions,
    TransactionRow,
    TransactionsAnswer,
    replica_transactions,
    transactions,
)

__all__ = [
    "KnownTransactions",
    "PartitionTransactions",
    "TransactionRow",
    "TransactionsAnswer",
    "replica_transactions",
    "transactions",
]
