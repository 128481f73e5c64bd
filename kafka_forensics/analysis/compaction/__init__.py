"""Compacted partitions, compared by the latest record of each key."""

from kafka_forensics.analysis.compaction.compaction import EXPLANATIONS, REASONS, KeyComparison, KeyTally, Pair, Side
from kafka_forensics.analysis.compaction.findings import Compared, Retention, cleaned_end, compaction_findings, retention, within
from kafka_forensics.analysis.compaction.key_rows import ROW_WIDTH, TOMBSTONE, TRANSACTIONAL, Row, State, place, reduced

__all__ = [
    "EXPLANATIONS",
    "REASONS",
    "ROW_WIDTH",
    "TOMBSTONE",
    "TRANSACTIONAL",
    "Compared",
    "KeyComparison",
    "KeyTally",
    "Pair",
    "Retention",
    "Row",
    "Side",
    "State",
    "cleaned_end",
    "compaction_findings",
    "place",
    "reduced",
    "retention",
    "within",
]
