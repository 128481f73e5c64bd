"""Counts of batches and bytes, damage, and headers that are wrong though their CRC is right."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.bounds import FirstAndLast
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    INT64_MAX,
    MIN_RECORD_SIZE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MAX_RECORDS: Final = 1 << 20
"""A batch is counted as at most this many records."""


class ChunkFacts(NamedTuple):
    """Properties of a chunk's batches, computed once for all folds, which take a shorter path for sound chunks: most are."""

    joined: bool
    """Every CRC is right, and each batch starts where the previous one ends."""
    one_epoch: bool
    """All batches have the same `partition_leader_epoch`."""
    producers: bool
    """Some batch has a producer id."""
    records: int
    max_timestamp: int
    """Largest of the good batches, -1 if there are none."""
    odd: int
    """Good batches whose number of records disagrees with their offsets or size."""
    timed: bool
    """Some batch is a control batch or uses LogAppendTime: its timestamps are a broker's."""


NO_BATCHES: Final = ChunkFacts(joined=False, one_epoch=False, producers=False, records=0, max_timestamp=-1, odd=0, timed=False)
"""Of a chunk that has only damage; it counts as not joined."""


def chunk_facts(columns: "NDArray[np.int64]") -> ChunkFacts:
    """Properties of a chunk's (BATCH_COLUMNS, n) matrix."""
    if columns.shape[1] == 0:
        return NO_BATCHES
    good = has_right_crc(columns)
    base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
    all_good = bool(good.all())
    is_odd_place = base.min() < 0 or last.max() == INT64_MAX or (last < base).any() or (base[1:] - 1 != last[:-1]).any()
    sound = columns if all_good else columns[:, good]
    count = sound[BatchColumn.RECORDS_COUNT]
    is_plausible = count.min(initial=0) >= 0 and count.max(initial=0) <= _MAX_RECORDS
    too_many = count * MIN_RECORD_SIZE > sound[BatchColumn.SIZE_IN_BYTES] - RECORD_BATCH_OVERHEAD
    return ChunkFacts(
        joined=all_good and not is_odd_place,
        one_epoch=not (columns[BatchColumn.PARTITION_LEADER_EPOCH] != columns[BatchColumn.PARTITION_LEADER_EPOCH, 0]).any(),
        producers=bool((columns[BatchColumn.PRODUCER_ID] >= 0).any()),
        records=int((count if is_plausible else np.clip(count, 0, _MAX_RECORDS)).sum()),
        max_timestamp=int(sound[BatchColumn.MAX_TIMESTAMP].max(initial=-1)),
        odd=int(np.count_nonzero((count < 0) | too_many | (count != sound[BatchColumn.LAST_OFFSET_DELTA] + 1))),
        timed=bool(np.bitwise_or.reduce(columns[BatchColumn.ATTRIBUTES]) & (CONTROL_MASK | TIMESTAMP_TYPE_MASK)),
    )


class SegmentTotals(Struct):
    """Batches of one segment, last offset of the last one and where its bytes end; first offset and newest timestamp."""

    batches: int = 0
    last_offset: int = -1
    end_position: int = 0
    first_offset: int = -1
    max_timestamp: int = -1


class ReadersStop(Struct, frozen=True):
    """The first place of a segment where Kafka's readers stop because the frame is lost.

    `runs_past_end`: silently, because the declared length reaches past the end of the file.
    """

    position: int
    runs_past_end: bool
    batches_before: int


class FramingFold:
    """State: counts, a sample of damage with its segment, and where readers stop in each segment."""

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self.batches = 0
        self.records = 0
        self.bytes_decoded = 0
        self.bytes_damaged = 0
        self.bytes_skipped = 0
        self.max_timestamp = -1
        self.broker_timestamp = -1
        """The newest timestamp set by a broker, not a client: of control batches and of LogAppendTime, with right CRCs."""
        self.damage: dict[str, FirstAndLast[tuple[int, Damage]]] = {}
        self.by_segment: dict[int, SegmentTotals] = {}
        self.readers_stop: dict[int, ReadersStop] = {}

    def step(self, chunk: BatchChunk, facts: ChunkFacts) -> None:
        """Add a chunk: its batches, its damage, its bytes."""
        columns = chunk.columns
        self.bytes_decoded += chunk.bytes_decoded
        self.bytes_damaged += chunk.bytes_damaged
        self.bytes_skipped += chunk.bytes_skipped
        for damage in chunk.damage:
            self._add_damage(damage)
        if columns.shape[1] == 0:
            self._find_readers_stop(chunk)
            return
        self.batches += columns.shape[1]
        self.records += facts.records
        self.max_timestamp = max(self.max_timestamp, facts.max_timestamp)
        if facts.timed:
            by_broker = (columns[BatchColumn.ATTRIBUTES] & (CONTROL_MASK | TIMESTAMP_TYPE_MASK)) != 0
            timestamps = columns[BatchColumn.MAX_TIMESTAMP, has_right_crc(columns) & by_broker]
            self.broker_timestamp = max(self.broker_timestamp, int(timestamps.max(initial=-1)))
        if facts.odd:
            self._check_headers(columns, {(damage.kind, damage.position) for damage in chunk.damage})
        totals = self.by_segment.setdefault(self._segment, SegmentTotals())
        totals.first_offset = totals.first_offset if totals.batches else int(columns[BatchColumn.BASE_OFFSET, 0])
        totals.max_timestamp = max(totals.max_timestamp, facts.max_timestamp)
        totals.batches += columns.shape[1]
        totals.last_offset = int(columns[BatchColumn.LAST_OFFSET, -1])
        totals.end_position = int(columns[BatchColumn.POSITION, -1] + columns[BatchColumn.SIZE_IN_BYTES, -1])
        self._find_readers_stop(chunk)

    def _find_readers_stop(self, chunk: BatchChunk) -> None:
        for damage in chunk.damage if self._segment not in self.readers_stop else ():
            if damage.kind in kinds_with(Trait.STOPS_READERS) and "stored_crc" not in damage.detail:
                totals = self.by_segment.get(self._segment, SegmentTotals())
                after = int((chunk.columns[BatchColumn.POSITION] > damage.position).sum())
                runs_past_end = bool(damage.detail.get("runs_past_end"))
                self.readers_stop[self._segment] = ReadersStop(damage.position, runs_past_end, totals.batches - after)
                return

    def _add_damage(self, damage: Damage) -> None:
        self.damage.setdefault(damage.kind, FirstAndLast()).append((self._segment, damage))

    def _check_headers(self, columns: "NDArray[np.int64]", reported: set[tuple[str, int]]) -> None:
        """Report impossible counts and ranges: a record takes at least seven bytes and one offset. `reported` are (kind, position)
        of the damage found by decoding the batches."""
        current = has_right_crc(columns) & (columns[BatchColumn.MAGIC] >= 2)
        count, delta = columns[BatchColumn.RECORDS_COUNT], columns[BatchColumn.LAST_OFFSET_DELTA]
        uncompressed = (columns[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK) == 0
        most = (columns[BatchColumn.SIZE_IN_BYTES] - RECORD_BATCH_OVERHEAD) // MIN_RECORD_SIZE
        wrong_count = current & (
            (count < 0) | (uncompressed & (count > most)) | ((count > delta + 1) & (count > 1) & ~uncompressed)
        )
        wrong_range = current & ~wrong_count & (count != delta + 1)
        for kind, rows in (("BATCH_COUNT_LIE", wrong_count), ("BATCH_RANGE_INCONSISTENT", wrong_range)):
            for position, size, base, last, records, offsets in columns[:, rows][list(_HEADER_COLUMNS)].T.tolist():
                if (kind, position) not in reported:
                    detail: dict[str, int | str | bool | list[int]] = {"records_count": records, "last_offset_delta": offsets}
                    self._add_damage(Damage(kind, position, size, base, last, detail))

    def merge(self, right: "FramingFold") -> None:
        """Add the part of the log that follows."""
        for name in ("batches", "records", "bytes_decoded", "bytes_damaged", "bytes_skipped"):
            setattr(self, name, getattr(self, name) + getattr(right, name))
        self.max_timestamp = max(self.max_timestamp, right.max_timestamp)
        self.broker_timestamp = max(self.broker_timestamp, right.broker_timestamp)
        for kind, sample in right.damage.items():
            self.damage.setdefault(kind, FirstAndLast()).extend(sample)
        for segment, stop in right.readers_stop.items():
            if segment not in self.readers_stop:
                before = self.by_segment.get(segment, SegmentTotals()).batches
                self.readers_stop[segment] = replace(stop, batches_before=stop.batches_before + before)
        for segment, totals in right.by_segment.items():
            ours = self.by_segment.get(segment, SegmentTotals())
            self.by_segment[segment] = replace(
                totals,
                batches=ours.batches + totals.batches,
                first_offset=ours.first_offset if ours.batches else totals.first_offset,
                max_timestamp=max(ours.max_timestamp, totals.max_timestamp),
            )
        self._segment = right._segment


_HEADER_COLUMNS: Final = (
    BatchColumn.POSITION,
    BatchColumn.SIZE_IN_BYTES,
    BatchColumn.BASE_OFFSET,
    BatchColumn.LAST_OFFSET,
    BatchColumn.RECORDS_COUNT,
    BatchColumn.LAST_OFFSET_DELTA,
)
