"""`compare`: replicas of one partition side by side around their first difference."""

from kafka_forensics.questions.compare.side_by_side import CONFLICTS, Held, HeldRecord, OffsetRow, OffsetState, SideBySide, compare

__all__ = ["CONFLICTS", "Held", "HeldRecord", "OffsetRow", "OffsetState", "SideBySide", "compare"]
