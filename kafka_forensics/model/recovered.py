"""Output of `recover`: the lost records, and the outcome of every offset that only losing copies have."""

from typing import Final

import pyarrow as pa
from msgspec import Struct, field

from kafka_forensics.model.batches import Record
from kafka_forensics.model.schemas import HEADER, PARTITION, TOPIC, column, fact, nullable_column, time_column

PRODUCE_BACK: Final = "produce_back.py"
"""The script that produces recovered records again."""
COMMITTED: Final = "committed"
MAYBE: Final = "maybe"


class Proof(Struct, frozen=True):
    """A witness that proves a record committed: its kind, the broker of the log, and the end offset (see the planner's
    `Witness`)."""

    kind: str
    broker: int | str
    name: str | None
    end_offset: int


class RecoveredRecord(Struct, frozen=True):
    """A record that only losing copies have and that may be produced again."""

    topic: str
    partition: int
    record: Record
    partition_leader_epoch: int
    producer_id: int
    producer_epoch: int
    txn_state: str
    """none · committed · unknown (its marker is unreadable, or may be in lost bytes)"""
    held_by: tuple[int | str, ...]
    proof: Proof | None
    """None: it may be committed, without proof."""
    source_broker: int | str
    """The broker broker whose copy it was read from."""
    file: str
    """Of that copy, in the format of findings."""
    batch_position: int

    @property
    def size_in_bytes(self) -> int:
        """Approximate size in memory."""
        record = self.record
        inside = sum(len(name) + len(value or b"") for name, value in record.headers)
        return len(record.key or b"") + len(record.value or b"") + inside


class OutcomeCounts(Struct):
    """The outcomes of the offsets of a range; each offset counts in one field."""

    recovered: int = 0
    surviving: int = 0
    """Records that the surviving log has: same producer, epoch, sequence and content."""
    surviving_by_content: int = 0
    """Records that it has by a weaker match: same key, value, headers and timestamp."""
    merged: int = 0
    """Records that an earlier losing copy has too."""
    superseded: int = 0
    """Records of a compacted topic with a later record of the same key in the surviving log."""
    aborted: int = 0
    """Records of aborted transactions."""
    open: int = 0
    """Records of transactions without an end."""
    control: int = 0
    """Offsets of transaction markers and other control records."""
    no_record: int = 0
    """Offsets without a record, after compaction or in a sparse batch."""
    unreadable: int = 0
    """Offsets whose records no copy has: damaged, too large, in a bundle without payloads, or in remote storage."""

    @property
    def offsets(self) -> int:
        """The number of offsets."""
        return sum(getattr(self, name) for name in OUTCOMES_COUNTED)

    @property
    def records(self) -> int:
        """The number of readable records."""
        return self.offsets - self.control - self.no_record - self.unreadable

    def add(self, other: "OutcomeCounts") -> None:
        """Add the outcomes of other offsets."""
        for name in OUTCOMES_COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


OUTCOMES_COUNTED: Final = OutcomeCounts.__struct_fields__
UNREADABLE: Final = ("damaged", "too_large", "not_collected", "in_remote_storage")
"""Reasons why no copy has the record at an offset."""


class CommittedCounts(Struct):
    """The outcomes of all offsets of a range, and of those proven committed."""

    all: OutcomeCounts = field(default_factory=OutcomeCounts)
    committed: OutcomeCounts = field(default_factory=OutcomeCounts)

    def note(self, reason: str, start: int, end: int, committed_end: int) -> None:
        """Count the outcome `reason` of offsets `[start, end)`, below `committed_end` also as committed."""
        setattr(self.all, reason, getattr(self.all, reason) + max(end - start, 0))
        proven = max(min(end, committed_end) - start, 0)
        setattr(self.committed, reason, getattr(self.committed, reason) + proven)

    def add(self, other: "CommittedCounts") -> None:
        """Add the outcomes of other offsets."""
        self.all.add(other.all)
        self.committed.add(other.committed)


RECOVERED_FACT: Final = fact(
    "recovered",
    "Records that only the losing copies have, in the order of their offsets in each partition.",
    [
        TOPIC,
        PARTITION,
        column("offset", pa.int64(), "that it had in the losing log"),
        time_column("timestamp", "of the record"),
        column("timestamp_type", pa.string(), "CreateTime, LogAppendTime or NoTimestampType"),
        nullable_column("key", pa.binary(), "null and empty are different"),
        nullable_column("value", pa.binary(), "null and empty are different"),
        column("headers", pa.list_(HEADER), "in order"),
        column("partition_leader_epoch", pa.int32(), "of the leader that appended it; -1: none"),
        column("producer_id", pa.int64(), "-1: none"),
        column("producer_epoch", pa.int16(), "-1: none"),
        column("sequence", pa.int32(), "-1: none"),
        column("txn_state", pa.string(), "none, committed, or unknown (its marker cannot be read, or may be in lost bytes)"),
        column("held_by", pa.list_(pa.string()), "brokers whose copies have it"),
        column("proof", pa.string(), "committed, or maybe: there is no proof"),
        nullable_column(
            "witness_kind",
            pa.string(),
            "high_watermark, group_offset, transaction_marker, remote_segment; null: there is no proof",
        ),
        nullable_column("witness_broker", pa.string(), "the broker whose log the witness covers"),
        nullable_column("witness_name", pa.string(), "the group or the transactional id"),
        nullable_column("witness_end_offset", pa.int64(), "end of the offsets that it proves committed in that log, exclusive"),
        column("source_broker", pa.string(), "broker whose copy it was read from"),
        column("file", pa.string(), "the file of that copy, with the partition's directory"),
        column("batch_position", pa.int64(), "byte at which its batch begins in the file"),
    ],
    by_replica=False,
)
