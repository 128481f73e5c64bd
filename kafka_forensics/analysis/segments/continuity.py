"""Offset continuity within and between segments: gaps, overlaps, regressions (UnifiedLog append rules).

Batches that join end to end form a run. A healthy log is one run, so a state holds few runs. Irregularities are differences between
consecutive runs; they are judged once all runs are known.
"""

import itertools
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.segments.framing import ChunkFacts
from kafka_forensics.model.batches import BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import INT64_MAX, MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_RUNS: Final = 4096
"""Runs that a state keeps; a log with more is too damaged to list, and the first and last half of them show that."""


class Run(Struct, frozen=True):
    """Joined batches: offsets `[start_offset, end_offset)`; place of the first batch; number of batches.

    `after_damage` is the (segment, byte position) of the first damage before the run, which may explain missing offsets; or of the
    first dropped run, if runs were dropped before it.
    """

    start_offset: int
    end_offset: int
    segment: int
    position: int
    batches: int
    after_damage: tuple[int, int] | None = None
    counted_end: int | None = None
    """Where its last batch ends by its number of records, if its header gives another last offset; None on cleaned logs."""
    last: tuple[int, int, int] | None = None
    """(segment, byte position, base offset) of the last batch; None if that is the first."""
    end_before_last: int | None = None
    """End of the batch before the last one; None if there is none."""
    second_start: int | None = None
    """Base offset of the second batch; None if there is none."""
    first_end: int | None = None
    """End of the first batch; None if it is the only one."""

    @property
    def last_place(self) -> tuple[int, int]:
        """Segment and byte position of the last batch."""
        return (self.segment, self.position) if self.last is None else self.last[:2]

    @property
    def last_start(self) -> int:
        """Base offset of the last batch."""
        return self.start_offset if self.last is None else self.last[2]

    @property
    def last_offsets(self) -> int:
        """Number of offsets of the last batch."""
        return self.end_offset - self.last_start

    @property
    def first_offsets(self) -> int:
        """Number of offsets of the first batch."""
        return (self.end_offset if self.first_end is None else self.first_end) - self.start_offset

    def joined(self, right: "Run") -> "Run":
        """This run with `right`, which continues it."""
        return replace(
            self,
            end_offset=right.end_offset,
            batches=self.batches + right.batches,
            counted_end=right.counted_end,
            last=right.last or (right.segment, right.position, right.start_offset),
            end_before_last=self.end_offset if right.last is None else right.end_before_last,
            second_start=right.start_offset if self.second_start is None else self.second_start,
            first_end=self.end_offset if self.first_end is None else self.first_end,
        )


class BadTail(Struct, frozen=True):
    """Batches after the last good one that keep frame and offsets though their bytes are bad: offsets `[start, end)`.

    `closed`: a batch followed that does not join, and what comes after it proves nothing.
    """

    start_offset: int
    end_offset: int
    closed: bool = False

    def followed(self, right: "BadTail") -> "BadTail":
        """This tail with the one that follows."""
        if self.closed or right.start_offset != self.end_offset:
            return replace(self, closed=True)
        return replace(right, start_offset=self.start_offset)


class _PlacedBatches(NamedTuple):
    """Offsets and places of the batches of a chunk."""

    base: "NDArray[np.int64]"
    end_offset: "NDArray[np.int64]"
    position: "NDArray[np.int64]"

    @classmethod
    def of(cls, columns: "NDArray[np.int64]") -> "_PlacedBatches":
        """From columns by BatchColumn; no end exceeds the largest offset."""
        last = columns[BatchColumn.LAST_OFFSET]
        return cls(columns[BatchColumn.BASE_OFFSET], last + (last < INT64_MAX), columns[BatchColumn.POSITION])


class ContinuityFold:
    """State: the runs of a part of a log, the number of offsets missing inside compacted runs, damage at the end of the part."""

    def __init__(self, segment_base_offset: int, *, compacted: bool = False) -> None:
        self._segment = segment_base_offset
        self._compacted = compacted
        self.runs: list[Run] = []
        self.dropped_runs = 0
        self.missing_by_compaction = 0
        self.damage_at_end: tuple[int, int] | None = None
        self.bad_tail: BadTail | None = None
        self.first_in_segment: dict[int, int] = {}
        """Segment base offset → base offset of its first batch."""

    def step(self, columns: "NDArray[np.int64]", damage: list[Damage], facts: ChunkFacts) -> None:
        """Add the batches of a chunk and the damage between them."""
        explained = [place.position for place in damage if place.kind in kinds_with(Trait.HIDES_OFFSETS)]
        if facts.joined and not explained:
            self._add_joined(columns)
            return
        good = has_right_crc(columns)
        explained = sorted((*explained, *columns[BatchColumn.POSITION][~good].tolist()))
        if not good.all():
            self._extend_bad_tail(columns, good)
            columns = columns[:, good]
        elif good.size:
            self.bad_tail = None
        placed = _PlacedBatches.of(columns)
        if placed.base.size == 0:
            if explained and self.damage_at_end is None:
                self.damage_at_end = (self._segment, explained[0])
            return
        self.first_in_segment.setdefault(self._segment, int(placed.base[0]))
        for start, end in itertools.pairwise(self._edges(placed, explained)):
            after = self._damage_before(start, placed, explained)
            counted = None if self._compacted else _counted_end(columns[:, end - 1])
            self._append(self._run(placed, (start, end), after, counted))
        index = bisect_right(explained, int(placed.position[-1]))
        self.damage_at_end = (self._segment, explained[index]) if index < len(explained) else None

    def _edges(self, placed: "_PlacedBatches", explained: list[int]) -> list[int]:
        """First rows of the runs, and the number of rows; counts the offsets that a cleaner may have removed."""
        base, end_offset = placed.base, placed.end_offset
        steps = base[1:] != end_offset[:-1]
        after_damage = {int(row) for row in np.searchsorted(placed.position, explained)}  # joined later if nothing is missing
        if self._compacted:
            ahead = base[1:] > end_offset[:-1]
            steps &= ~ahead
            ahead[[row - 1 for row in after_damage if 0 < row < base.size]] = False
            missing = base[1:][ahead].astype(np.uint64) - end_offset[:-1][ahead].astype(np.uint64)
            self.missing_by_compaction += sum(missing.tolist())
        cuts = set((np.flatnonzero(steps) + 1).tolist()) | after_damage
        return [0, *sorted(cut for cut in cuts if 0 < cut < base.size), int(base.size)]

    def _damage_before(self, row: int, placed: "_PlacedBatches", explained: list[int]) -> tuple[int, int] | None:
        """The damage between a row and the one before it; before row 0, also the damage at the end of the previous part."""
        if row == 0 and self.damage_at_end is not None:
            return self.damage_at_end
        index = bisect_right(explained, int(placed.position[row - 1]) if row else -1)
        if index < len(explained) and explained[index] < placed.position[row]:
            return self._segment, explained[index]
        return None

    def _add_joined(self, columns: "NDArray[np.int64]") -> None:
        """Add a chunk without irregularities, which is one run."""
        self.bad_tail = None
        placed = _PlacedBatches.of(columns)
        self.first_in_segment.setdefault(self._segment, int(placed.base[0]))
        counted = None if self._compacted else _counted_end(columns[:, -1])
        self._append(self._run(placed, (0, placed.base.size), self.damage_at_end, counted))
        self.damage_at_end = None

    def _run(self, placed: "_PlacedBatches", rows: tuple[int, int], after: tuple[int, int] | None, counted: int | None) -> Run:
        (start, end), (base, end_offset, position) = rows, placed
        extent = int(base[start]), int(end_offset[end - 1]), self._segment, int(position[start]), end - start, after, counted
        if end - start == 1:
            return Run(*extent)
        return Run(
            *extent,
            last=(self._segment, int(position[end - 1]), int(base[end - 1])),
            end_before_last=int(end_offset[end - 2]),
            second_start=int(base[start + 1]),
            first_end=int(end_offset[start]),
        )

    def _extend_bad_tail(self, columns: "NDArray[np.int64]", good: "NDArray[np.bool_]") -> None:
        good_rows = np.flatnonzero(good)
        if good_rows.size:
            self.bad_tail = None
        for row in range(int(good_rows[-1]) + 1 if good_rows.size else 0, good.size):
            base, last = int(columns[BatchColumn.BASE_OFFSET, row]), int(columns[BatchColumn.LAST_OFFSET, row])
            possible = 0 <= base <= last <= base + MAX_RELATIVE_OFFSET and last < INT64_MAX
            tail = BadTail(base, last + 1) if possible else BadTail(-1, -1, closed=True)
            self.bad_tail = tail if self.bad_tail is None else self.bad_tail.followed(tail)

    def _append(self, run: Run) -> None:
        """Add the next run, joined to the last one if it continues it."""
        if self.runs:
            last = self.runs[-1]
            ahead = run.start_offset - last.end_offset
            if ahead == 0 or (ahead > 0 and self._compacted) or run.start_offset == last.counted_end:
                self.missing_by_compaction += ahead if self._compacted else 0
                self.runs[-1] = last.joined(run)
                return
        self.runs.append(run)
        if len(self.runs) > MAX_RUNS:
            middle = MAX_RUNS // 2
            dropped = self.runs.pop(middle)
            place = dropped.after_damage or (dropped.segment, dropped.position)
            self.runs[middle] = replace(self.runs[middle], after_damage=place)
            self.dropped_runs += 1

    def merge(self, right: "ContinuityFold") -> None:
        """Add the part of the log that follows."""
        for index, run in enumerate(right.runs):
            after = (self.damage_at_end if index == 0 else None) or run.after_damage
            self._append(replace(run, after_damage=after))
        if right.runs or right.damage_at_end:
            self.damage_at_end = right.damage_at_end if right.runs else (self.damage_at_end or right.damage_at_end)
        if right.runs or self.bad_tail is None:
            self.bad_tail = right.bad_tail
        elif right.bad_tail is not None:
            self.bad_tail = self.bad_tail.followed(right.bad_tail)
        for segment, first in right.first_in_segment.items():
            self.first_in_segment.setdefault(segment, first)
        self.missing_by_compaction += right.missing_by_compaction
        self.dropped_runs += right.dropped_runs
        self._segment = right._segment


def _counted_end(column: "NDArray[np.int64]") -> int | None:
    """End of a batch by its number of records, if its header says otherwise; None for the old formats, which count no records."""
    count = int(column[BatchColumn.RECORDS_COUNT])
    if column[BatchColumn.MAGIC] < 2 or count <= 0 or count == int(column[BatchColumn.LAST_OFFSET_DELTA]) + 1:
        return None
    return int(column[BatchColumn.BASE_OFFSET]) + count


class OffsetAnomaly(Struct, frozen=True):
    """An irregularity in the order of runs: offsets `[start, end)`, and the run at which it shows."""

    kind: str
    start: int
    end: int
    run: Run
    expected: int


class OffsetSequence(Struct):
    """The offsets of a log: where they end, irregularities, offsets lost to damage."""

    end_offset: int
    anomalies: list[OffsetAnomaly]
    lost_to_damage: dict[tuple[int, int], tuple[int, int]]
    """(segment, byte position of damage) → missing offsets `[start, end)`."""

    def gaps(self) -> list[tuple[int, int]]:
        """Offsets `[start, end)` that no batch covers."""
        return [(gap.start, gap.end) for gap in self.anomalies if gap.kind == "OFFSET_GAP"]


def judge(runs: list[Run]) -> OffsetSequence:
    """Judge the runs in file order: offsets never seen are a gap, seen before a regression, filling an earlier gap non-monotonic; a
    single batch between neighbours that join without it, or that its segment cannot hold, is a discontinuity."""
    start = runs[0].start_offset if runs else 0
    if len(runs) > 1 and runs[0].batches == 1 and runs[1].start_offset == runs[0].segment + runs[0].end_offset - start:
        start = runs[0].segment  # only the first batch is wrong: the next run continues from the segment's name
    offset_sequence = OffsetSequence(start, [], {})
    gaps: list[OffsetAnomaly] = []
    expected = offset_sequence.end_offset
    for index, run in enumerate(runs):
        following = runs[index + 1] if index + 1 < len(runs) else None
        size = run.end_offset - run.start_offset
        joins = following is not None and following.start_offset == expected + size
        # Kafka refuses a batch with offsets that its segment cannot hold
        is_refused = run.start_offset < 0 or run.end_offset - 1 - run.segment > MAX_RELATIVE_OFFSET
        if index == 0 and run.after_damage is not None and run.after_damage[0] < run.start_offset:
            offset_sequence.lost_to_damage[run.after_damage] = (run.after_damage[0], run.start_offset)
        if run.start_offset == expected:
            expected = run.end_offset
        elif run.batches == 1 and (joins or (following is None and is_refused)):
            offset_sequence.anomalies.append(OffsetAnomaly("OFFSET_DISCONTINUITY", expected, expected + size, run, expected))
            expected += size
        elif run.start_offset > expected:
            if run.after_damage is not None:
                offset_sequence.lost_to_damage[run.after_damage] = (expected, run.start_offset)
            else:
                gaps.append(OffsetAnomaly("OFFSET_GAP", expected, run.start_offset, run, expected))
            expected = run.end_offset
        elif _fill(gaps, run):
            offset_sequence.anomalies.append(OffsetAnomaly("OFFSET_NON_MONOTONIC", run.start_offset, run.end_offset, run, expected))
        else:
            offset_sequence.anomalies.append(OffsetAnomaly("OFFSET_REGRESSION", run.start_offset, run.end_offset, run, expected))
            expected = max(expected, run.end_offset)
    offset_sequence.anomalies.extend(gaps)
    offset_sequence.end_offset = expected
    return offset_sequence


def _fill(gaps: list[OffsetAnomaly], run: Run) -> bool:
    """Whether `run` is inside one of `gaps`, which then shrinks to what is still missing."""
    for index, gap in enumerate(gaps):
        if gap.start <= run.start_offset and run.end_offset <= gap.end:
            rest = [(gap.start, run.start_offset), (run.end_offset, gap.end)]
            gaps[index : index + 1] = [replace(gap, start=start, end=end) for start, end in rest if start < end]
            return True
    return False
