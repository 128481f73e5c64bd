"""`epochs`: leader epochs by every witness."""

from kafka_forensics.questions.epochs.lineage import DISAGREEMENTS, EpochRow, Lineages, lineages

__all__ = ["DISAGREEMENTS", "EpochRow", "Lineages", "lineages"]
