"""Counts of what was read, damage as findings, and headers that lie though their CRC is right."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.analysis.bounds import Sample
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


# One look at a chunk before the folds step over it: most chunks are sound, and most rules then need no look of their own.


_CRC: Final = int(BatchColumn.CRC)
_CRC_COMPUTED: Final = int(BatchColumn.CRC_COMPUTED)
_BASE_OFFSET: Final = int(BatchColumn.BASE_OFFSET)
_LAST_OFFSET: Final = int(BatchColumn.LAST_OFFSET)
_ATTRIBUTES: Final = int(BatchColumn.ATTRIBUTES)
_BY_BROKER: Final = CONTROL_MASK | TIMESTAMP_TYPE_MASK
_EPOCH: Final = int(BatchColumn.PARTITION_LEADER_EPOCH)
_PRODUCER_ID: Final = int(BatchColumn.PRODUCER_ID)
_RECORDS_COUNT: Final = int(BatchColumn.RECORDS_COUNT)
_DELTA: Final = int(BatchColumn.LAST_OFFSET_DELTA)
_MAX_TIMESTAMP: Final = int(BatchColumn.MAX_TIMESTAMP)
_SIZE: Final = int(BatchColumn.SIZE_IN_BYTES)
_MOST_RECORDS: Final = 1 << 20
"""More records than this in one batch are not believed when they are counted."""


class Survey(NamedTuple):
    """What a chunk of at least one batch is like."""

    joined: bool
    """Every CRC is right, and each batch starts where the one before it ends."""
    one_epoch: bool
    """All batches have the same `partition_leader_epoch`."""
    producers: bool
    """Some batch has a producer id."""
    records: int
    max_timestamp: int
    """Largest of the good batches, -1 for none."""
    odd: int
    """Good batches whose number of records does not follow from their offsets and size."""
    timed: bool
    """Some batch is a control batch or of LogAppendTime: its timestamps are a broker's."""


def survey(columns: "NDArray[np.int64]") -> Survey:
    """Look over a chunk's (BATCH_COLUMNS, n) matrix, n ≥ 1."""
    good = columns[_CRC] == columns[_CRC_COMPUTED]
    base, last = columns[_BASE_OFFSET], columns[_LAST_OFFSET]
    all_good = bool(good.all())
    is_odd_place = base.min() < 0 or last.max() == INT64_MAX or (last < base).any() or (base[1:] - 1 != last[:-1]).any()
    sound = columns if all_good else columns[:, good]
    count = sound[_RECORDS_COUNT]
    believed = count.min(initial=0) >= 0 and count.max(initial=0) <= _MOST_RECORDS
    too_many = count * MIN_RECORD_SIZE > sound[_SIZE] - RECORD_BATCH_OVERHEAD
    return Survey(
        joined=all_good and not is_odd_place,
        one_epoch=not (columns[_EPOCH] != columns[_EPOCH, 0]).any(),
        producers=bool((columns[_PRODUCER_ID] >= 0).any()),
        records=int((count if believed else np.clip(count, 0, _MOST_RECORDS)).sum()),
        max_timestamp=int(sound[_MAX_TIMESTAMP].max(initial=-1)),
        odd=int(np.count_nonzero((count < 0) | too_many | (count != sound[_DELTA] + 1))),
        timed=bool(np.bitwise_or.reduce(columns[_ATTRIBUTES]) & _BY_BROKER),
    )


@dataclass(slots=True)
class SegmentTotals:
    """Batches of one segment, the last one's last offset and where its bytes end."""

    batches: int = 0
    last_offset: int = -1
    end_position: int = 0


@dataclass(frozen=True, slots=True)
class Hiding:
    """The first place of a segment behind which Kafka's readers see nothing: they stop at the frame that is lost there.

    `runs_past_end`: in silence, because the length declared there reaches beyond the file.
    """

    position: int
    runs_past_end: bool
    batches_before: int


class FramingFold:
    """State: counts, a sample of damage with its segment, and what a lying length hides behind it."""

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self.batches = 0
        self.records = 0
        self.bytes_decoded = 0
        self.bytes_damaged = 0
        self.bytes_skipped = 0
        self.max_timestamp = -1
        self.broker_timestamp = -1
        """The newest timestamp that a broker set, not a client: of control batches and of LogAppendTime, with good CRCs."""
        self.damage: dict[str, Sample[tuple[int, Damage]]] = {}
        self.by_segment: dict[int, SegmentTotals] = {}
        self.hiding: dict[int, Hiding] = {}

    def step(self, chunk: BatchChunk, seen: Survey | None = None) -> None:
        """Add a chunk: its batches, its damage, its bytes. `seen` is the survey of its columns, if there are any."""
        columns = chunk.columns
        self.bytes_decoded += chunk.bytes_decoded
        self.bytes_damaged += chunk.bytes_damaged
        self.bytes_skipped += chunk.bytes_skipped
        for damage in chunk.damage:
            self._add_damage(damage)
        if columns.shape[1] == 0:
            self._find_hiding(chunk)
            return
        self.batches += columns.shape[1]
        seen = seen or survey(columns)
        self.records += seen.records
        self.max_timestamp = max(self.max_timestamp, seen.max_timestamp)
        if seen.timed:
            self._see_brokers_clock(columns)
        if seen.odd:
            self._check_headers(columns, {(damage.kind, damage.position) for damage in chunk.damage})
        totals = self.by_segment.setdefault(self._segment, SegmentTotals())
        totals.batches += columns.shape[1]
        totals.last_offset = int(columns[BatchColumn.LAST_OFFSET, -1])
        totals.end_position = int(columns[BatchColumn.POSITION, -1] + columns[BatchColumn.SIZE_IN_BYTES, -1])
        self._find_hiding(chunk)

    def _see_brokers_clock(self, columns: "NDArray[np.int64]") -> None:
        rows = np.flatnonzero(columns[BatchColumn.ATTRIBUTES] & (CONTROL_MASK | TIMESTAMP_TYPE_MASK))
        if rows.size:
            rows = rows[columns[BatchColumn.CRC, rows] == columns[BatchColumn.CRC_COMPUTED, rows]]
            self.broker_timestamp = max(self.broker_timestamp, int(columns[BatchColumn.MAX_TIMESTAMP, rows].max(initial=-1)))

    def _find_hiding(self, chunk: BatchChunk) -> None:
        """Remember the first place of the segment behind which Kafka's readers see nothing."""
        for damage in chunk.damage:
            if (
                damage.kind in kinds_with(Trait.STOPS_READERS)
                and "stored_crc" not in damage.detail
                and self._segment not in self.hiding
            ):
                totals = self.by_segment.get(self._segment, SegmentTotals())
                behind = int((chunk.columns[BatchColumn.POSITION] > damage.position).sum())
                self.hiding[self._segment] = Hiding(
                    damage.position, bool(damage.detail.get("runs_past_end")), totals.batches - behind
                )

    def _add_damage(self, damage: Damage) -> None:
        self.damage.setdefault(damage.kind, Sample()).append((self._segment, damage))

    def _check_headers(self, columns: "NDArray[np.int64]", known: set[tuple[str, int]]) -> None:
        """Counts and ranges that cannot be: a batch has room for one record in seven bytes, and one offset for each. `known` are
        (kind, position) of what was found by looking into the batches."""
        good = has_right_crc(columns)
        current = good & (columns[BatchColumn.MAGIC] >= 2)
        count, delta = columns[BatchColumn.RECORDS_COUNT], columns[BatchColumn.LAST_OFFSET_DELTA]
        plain = (columns[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK) == 0
        room = (columns[BatchColumn.SIZE_IN_BYTES] - RECORD_BATCH_OVERHEAD) // MIN_RECORD_SIZE
        lies = current & ((count < 0) | (plain & (count > room)) | ((count > delta + 1) & (count > 1) & ~plain))
        uneven = current & ~lies & (count != delta + 1)
        for kind, rows in (("BATCH_COUNT_LIE", lies), ("BATCH_RANGE_INCONSISTENT", uneven)):
            for row in np.flatnonzero(rows):
                column = columns[:, row]
                if (kind, int(column[BatchColumn.POSITION])) in known:
                    continue
                detail: dict[str, int | str | bool | list[int]] = {
                    "records_count": int(column[BatchColumn.RECORDS_COUNT]),
                    "last_offset_delta": int(column[BatchColumn.LAST_OFFSET_DELTA]),
                }
                self._add_damage(_of_batch(kind, column, detail))

    def merge(self, right: "FramingFold") -> None:
        """Add the stretch that follows ours."""
        for name in ("batches", "records", "bytes_decoded", "bytes_damaged", "bytes_skipped"):
            setattr(self, name, getattr(self, name) + getattr(right, name))
        self.max_timestamp = max(self.max_timestamp, right.max_timestamp)
        self.broker_timestamp = max(self.broker_timestamp, right.broker_timestamp)
        for kind, sample in right.damage.items():
            self.damage.setdefault(kind, Sample()).extend(sample)
        for segment, hiding in right.hiding.items():
            if segment not in self.hiding:
                before = self.by_segment.get(segment, SegmentTotals()).batches
                self.hiding[segment] = replace(hiding, batches_before=hiding.batches_before + before)
        for segment, totals in right.by_segment.items():
            mine = self.by_segment.setdefault(segment, SegmentTotals())
            mine.batches += totals.batches
            mine.last_offset = totals.last_offset
            mine.end_position = totals.end_position
        self._segment = right._segment


def _of_batch(kind: str, column: "NDArray[np.int64]", detail: dict[str, int | str | bool | list[int]]) -> Damage:
    return Damage(
        kind,
        int(column[BatchColumn.POSITION]),
        int(column[BatchColumn.SIZE_IN_BYTES]),
        int(column[BatchColumn.BASE_OFFSET]),
        int(column[BatchColumn.LAST_OFFSET]),
        detail,
    )
