"""Findings: rows of evidence. Words are made from them at the very end (`wording`)."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad, in the contract's four steps."""

    CRITICAL = "critical"
    """Committed data is lost, or the next ordinary step would lose it."""
    ERROR = "error"
    """Damage, or data that readers would get wrong."""
    WARNING = "warning"
    """Suspicious, or damage that Kafka rebuilds by itself."""
    INFO = "info"
    """Explained and harmless."""

    @property
    def rank(self) -> int:
        """0 for info up to 3 for critical."""
        return _RANK[self]


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2, Severity.CRITICAL: 3}


class Confidence(StrEnum):
    """How sure."""

    PROVEN = "proven"
    """The bytes cited leave no other reading."""
    INFERRED = "inferred"
    """Follows from the bytes and Kafka's rules, given the premises."""
    SUSPECTED = "suspected"
    """Fits, but something harmless would look the same."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where: any field is None where it does not apply. Ends are exclusive."""

    topic: str | None = None
    partition: int | None = None
    broker: int | str | None = None
    log_dir: str | None = None
    file: str | None = None
    """Relative to `log_dir`, with `/`."""
    byte_start: int | None = None
    byte_end: int | None = None
    offset_start: int | None = None
    offset_end: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: kind, how bad, how sure, where, and the numbers that prove it.

    `evidence` holds only JSON values with stable keys; `held_by` (brokers with a good copy) and `premises` among them where they
    apply.
    """

    kind: str
    severity: Severity
    confidence: Confidence
    place: Place
    evidence: dict[str, Any] = field(default_factory=dict)
    alone: bool = False
    """Whether one copy of the partition was given, so that there is nothing to compare it with."""

    def sort_key(self) -> tuple[Any, ...]:
        """Order in a result: topic, partition, worst first, kind, broker, file, bytes, offsets."""
        place = self.place
        return (
            place.topic or "",
            -1 if place.partition is None else place.partition,
            -self.severity.rank,
            self.kind,
            str(place.broker or ""),
            place.log_dir or "",
            place.file or "",
            -1 if place.byte_start is None else place.byte_start,
            -1 if place.offset_start is None else place.offset_start,
        )
