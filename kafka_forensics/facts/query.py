"""What is asked of a fact that is read in tasks: plain values, so that any engine may carry it anywhere."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.ledger import Reading

SPLIT_BYTES: Final = 256 << 20
"""Bytes of a task unless another number is asked for."""
RANGED: Final = {
    "batches": ("base_offset", "last_offset", "max_timestamp"),
    "records": ("offset", "offset", "timestamp"),
    "control_records": ("offset", "offset", "timestamp"),
}
"""Facts that can be limited to offsets and times → the columns of first offset, last offset and time that are compared."""
FROM_LOGS: Final = ("batches", "records", "spans", "control_records")
"""Facts for which `.log` files are read, in parts if they are large."""
FROM_FILES: Final = ("index_entries", "epoch_entries", "producer_states")
"""Facts of the small files in a partition's directory."""
INCOMPLETE: Final = "incomplete"
"""The fact that tells what could not be read, whose reading fails of nothing else."""
FROM_SCANS: Final = ("transactions", "metadata_history", "group_offsets", "replicas", "findings", INCOMPLETE)
"""Facts that no file tells by itself: one task reads all that is needed for them."""
FROM_COMPARISONS: Final = ("changes",)
"""Facts that only several snapshots yield, by being compared."""


@dataclass(frozen=True, slots=True)
class FactQuery:
    """A fact, its columns (in this order), and limits; an empty tuple and None are no limit.

    `partitions` are ranges, both ends inclusive; `offset_to` and `timestamp_to` (ms) are exclusive. `strict` is for an error at the
    first bad byte. Without `payloads`, keys, values and headers are null. `deep`, `live`, `copied` and `as_of_ms` are those of
    `ScanOptions`, for facts that take a scan, and `deep` for spans.
    """

    fact: str
    columns: tuple[str, ...]
    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[int, int], ...] = ()
    brokers: tuple[str, ...] = ()
    offset_from: int | None = None
    offset_to: int | None = None
    timestamp_from: int | None = None
    timestamp_to: int | None = None
    strict: bool = False
    split_bytes: int = SPLIT_BYTES
    payloads: bool = True
    deep: bool | None = None
    live: bool = False
    copied: Reading | None = None
    as_of_ms: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for limits that mean nothing for the fact."""
        for name in ("offset_from", "offset_to", "timestamp_from", "timestamp_to"):
            if getattr(self, name) is not None and self.fact not in RANGED:
                raise UsageError(f"{name} does not apply to the fact {self.fact}", hint=f"it applies to {', '.join(RANGED)}")
        if self.strict and self.fact in (*FROM_SCANS, *FROM_COMPARISONS):
            hint = f"it applies to {', '.join((*FROM_LOGS, *FROM_FILES, 'checkpoints'))}"
            raise UsageError(f"on_corrupt=strict does not apply to the fact {self.fact}", hint=hint)

    @property
    def is_ranged(self) -> bool:
        """Whether only some offsets or times are asked for."""
        return not (self.offset_from is self.offset_to is self.timestamp_from is self.timestamp_to is None)

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether a topic and partition are asked for; None is neither."""
        if self.topics and not any(fnmatchcase(topic or "", glob) for glob in self.topics):
            return False
        return not self.partitions or any(
            first <= (-1 if partition is None else partition) <= last for first, last in self.partitions
        )

    def wants_broker(self, broker: int | str | None) -> bool:
        """Whether a broker is asked for; None is none."""
        return not self.brokers or str(broker) in self.brokers
