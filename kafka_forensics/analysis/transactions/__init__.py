"""Transactions of one log: which are open or aborted, and whether its indexes and snapshots agree."""

from kafka_forensics.analysis.transactions import endings, rules
from kafka_forensics.analysis.transactions.index_check import IndexCheck, compare_with_snapshot
from kafka_forensics.analysis.transactions.markers import OFFSET, PRODUCER_EPOCH, PRODUCER_ID, TIMESTAMP, TYPE
from kafka_forensics.analysis.transactions.pairing import Pairing, TransactionColumn
from kafka_forensics.analysis.transactions.rules import COMMIT, DATA_EPOCH, UNREADABLE
from kafka_forensics.analysis.transactions.transactions import OpenTransaction, TransactionsFold
