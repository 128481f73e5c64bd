"""Replicas made in memory from written batches, and a reader of their batches for comparisons."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kafka_forensics.analysis.replica import Replica, ReplicaState, whole
from kafka_forensics.analysis.replicas import AcrossFormats, ReplicaBatch
from kafka_forensics.analysis.replicas.diff import Difference, differences
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn
from kafka_forensics.model.files import EpochEntry, LeaderEpochs
from kafka_forensics.parsers.log import decode_batch
from kafka_forensics.scanning.rereading.message_formats import compared_across_formats, contents_of_records
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.segments import BASE_TIMESTAMP, legacy_entry, read

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY = np.array([[0x1B3C5D7E9F123456, 0x0FEDCBA987654321]], np.int64)


@dataclass(frozen=True)
class Batch:
    """A batch with the values of its records (None where the cleaner removed one); a legacy entry has one value."""

    base_offset: int
    values: Sequence[str | None]
    epoch: int = 0
    codec: str = "none"
    magic: int = 2
    span: int | None = None
    """Number of its offsets; None: as many as values."""

    @property
    def records(self) -> dict[int, str]:
        return {self.base_offset + delta: value for delta, value in enumerate(self.values) if value is not None}

    def written(self) -> bytes:
        if self.magic < 2:
            (value,) = self.values
            return legacy_entry(self.base_offset, self.magic, value=str(value).encode())
        records = [
            RecordToWrite(b"key", value.encode(), timestamp_delta=delta + 1, offset_delta=delta)
            for delta, value in enumerate(self.values)
            if value is not None
        ]
        return write_batch(
            records,
            base_offset=self.base_offset,
            base_timestamp=BASE_TIMESTAMP,
            partition_leader_epoch=self.epoch,
            compression_type=self.codec,
            last_offset_delta=(self.span or len(self.values)) - 1,
        )


def batches(*runs: tuple[int, str], start: int = 0, records_per_batch: int = 1, **options: Any) -> list[Batch]:
    """Batches of runs (epoch, letters) like `(0, "abc"), (2, "xy")`, one for each letter.

    Each holds `records_per_batch` records with that letter as their value, or one record and `span` offsets.
    """
    made: list[Batch] = []
    offset = start
    for epoch, letters in runs:
        for letter in letters:
            made.append(Batch(offset, [letter] * records_per_batch, epoch, **options))
            offset += options.get("span") or records_per_batch
    return made


@dataclass
class Logs:
    """Replicas of one partition, and a `BatchReader` over them; `ranges_read` are the (broker, start, end) that were read again."""

    data: dict[int | str, bytes] = field(default_factory=dict)
    batches_of: dict[int | str, list[Batch]] = field(default_factory=dict)
    as_of_ms: int | None = None
    ranges_read: list[tuple[int | str, int, int]] = field(default_factory=list)
    unreadable: set[int | str] = field(default_factory=set)
    """Brokers whose records cannot be read."""
    undecodable_batches: set[tuple[int | str, int]] = field(default_factory=set)
    """(broker, position) of batches that were read and cannot be decoded."""

    def add(
        self,
        broker: int,
        log: list[Batch],
        *,
        high_watermark: int | None = None,
        checkpoint: Sequence[tuple[int, int]] | None = None,
        data: bytes | None = None,
        start: int | None = None,
        compacted: bool = False,
    ) -> Replica:
        """A replica whose only segment holds these batches; `data` replaces their bytes."""
        base_offset = (log[0].base_offset if log else 0) if start is None else start
        context = ReplicaContext(
            "t",
            0,
            broker,
            f"broker-{broker}",
            "t-0",
            topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
            high_watermark=high_watermark,
            compacted=compacted,
            leader_epochs=None if checkpoint is None else LeaderEpochs([EpochEntry(*entry) for entry in checkpoint]),
            segment_base_offsets=[base_offset],
        )
        self.data[broker] = b"".join(batch.written() for batch in log) if data is None else data
        self.batches_of[broker] = log
        state = ReplicaState(base_offset, compacted=compacted)
        for chunk in read(self.data[broker], key=KEY).chunks:
            state.step(chunk)
        return whole(context, state)

    def batches(self, replica: Replica, start: int, end: int) -> "NDArray[np.int64]":
        """Batches that hold an offset of the range, see `BatchReader`."""
        self.ranges_read.append((replica.broker, start, end))
        columns = read(self.data[replica.broker], key=KEY).columns
        wanted = (columns[BatchColumn.LAST_OFFSET] >= start) & (columns[BatchColumn.BASE_OFFSET] < end)
        rows = np.full((BATCH_COLUMNS + 1, int(wanted.sum())), replica.context.segment_base_offsets[0], np.int64)
        rows[:BATCH_COLUMNS] = columns[:, wanted]
        return rows

    def same_records(self, left: ReplicaBatch, right: ReplicaBatch, *, common: bool) -> bool | None:
        """Whether two batches hold equal records, see `BatchReader`."""
        if {left.replica.broker, right.replica.broker} & self.unreadable:
            return None
        ours, theirs = self._records(left), self._records(right)
        if common:
            return all(ours[offset] == theirs[offset] for offset in ours.keys() & theirs.keys())
        return ours == theirs

    def across_formats(self, left: ReplicaBatch, right: ReplicaBatch, *, common: bool) -> AcrossFormats | None:
        """How two batches of different message formats compare, see `BatchReader`."""
        if {left.replica.broker, right.replica.broker} & self.unreadable:
            return None
        contents = []
        for replica, row in (left, right):
            position, size = int(row[BatchColumn.POSITION]), int(row[BatchColumn.SIZE_IN_BYTES])
            decoded = decode_batch(self.data[replica.broker][position : position + size])
            contents.append(contents_of_records(decoded.iter_records(), row))
        return compared_across_formats(contents, [left.row, right.row], common=common)

    def first_different_offset(self, left: ReplicaBatch, right: ReplicaBatch) -> int | None:
        """The first offset at which two batches hold different records, see `BatchReader`."""
        if {left.replica.broker, right.replica.broker} & self.unreadable:
            return None
        ours, theirs = self._records(left), self._records(right)
        return min((offset for offset in ours.keys() & theirs.keys() if ours[offset] != theirs[offset]), default=None)

    def undecodable(self, batch: ReplicaBatch) -> bool:
        """Whether a batch was read and cannot be decoded, see `BatchReader`."""
        return (batch.replica.broker, batch.place[1]) in self.undecodable_batches

    def _records(self, batch: ReplicaBatch) -> dict[int, str]:
        position = 0
        for written in self.batches_of[batch.replica.broker]:
            if position == batch.place[1]:
                return written.records
            position += len(written.written())
        raise AssertionError("no batch begins there")


def conflicts_of(logs: Logs, replicas: list[Replica]) -> dict[tuple[int, int], list[Difference]]:
    """Pairs (indices) of replicas whose records differ, with the differences, as `compare` passes them to forks."""
    found = {}
    for i, j in itertools.combinations(range(len(replicas)), 2):
        content = [difference for difference in differences(replicas[i], replicas[j], logs) if difference.kind == "content"]
        if content:
            found[i, j] = content
    return found
