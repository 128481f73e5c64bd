"""Offset continuity inside and between segments: gaps, overlaps, regressions (UnifiedLog append rules).

Batches that join end to end form a run. A healthy log is one run, so a state is a handful of runs; what is wrong shows in how
runs follow each other, and is judged once, when all are known.
"""

import itertools
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.segments.framing import Survey
from kafka_forensics.model.batches import BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import INT64_MAX, MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_RUNS: Final = 4096
"""Runs a state keeps; past that the log is rubble, and the first and last half of them say so."""


@dataclass(frozen=True, slots=True)
class Run:
    """Batches that join: offsets `[start_offset, end_offset)`; where the first of them lies; how many they are.

    `after_damage` is the (segment, byte position) of the first damage that stands before the run and may have eaten what is
    missing; of the first run dropped, where runs were dropped before it.
    """

    start_offset: int
    end_offset: int
    segment: int
    position: int
    batches: int
    after_damage: tuple[int, int] | None = None
    counted_end: int | None = None
    """Where its last batch ends by its records, if its header gives it another last offset than they do; None on cleaned logs."""
    last: tuple[int, int, int] | None = field(default=None, compare=False)
    """(segment, byte position, base offset) of the last batch; None where that is the first."""
    end_before_last: int | None = field(default=None, compare=False)
    """Where the batch before the last one ends; None where there is none."""
    second_start: int | None = field(default=None, compare=False)
    """Base offset of the second batch; None where there is none."""
    first_end: int | None = field(default=None, compare=False)
    """Where the first batch ends; None where it is the only one."""

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
        """How many offsets the last batch has."""
        return self.end_offset - self.last_start

    @property
    def first_offsets(self) -> int:
        """How many offsets the first batch has."""
        return (self.end_offset if self.first_end is None else self.first_end) - self.start_offset

    def joined(self, right: "Run") -> "Run":
        """Ours with the one that continues it."""
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


@dataclass(frozen=True, slots=True)
class BadTail:
    """Batches behind the last good one that keep frame and offsets though their bytes are bad: offsets `[start, end)`.

    `closed`: one followed that joins them not, and what stands behind it says nothing.
    """

    start_offset: int
    end_offset: int
    closed: bool = False

    def followed(self, right: "BadTail") -> "BadTail":
        """Ours with those that follow."""
        if self.closed or right.start_offset != self.end_offset:
            return replace(self, closed=True)
        return replace(right, start_offset=self.start_offset)


class _Placed(NamedTuple):
    """Offsets and places of the batches of a chunk."""

    base: "NDArray[np.int64]"
    end_offset: "NDArray[np.int64]"
    position: "NDArray[np.int64]"

    @classmethod
    def of(cls, columns: "NDArray[np.int64]") -> "_Placed":
        """As the columns have them; no end is beyond the greatest offset."""
        last = columns[BatchColumn.LAST_OFFSET]
        return cls(columns[BatchColumn.BASE_OFFSET], last + (last < INT64_MAX), columns[BatchColumn.POSITION])


class ContinuityFold:
    """State: the runs of a stretch of log, offsets missing inside compacted runs, damage waiting for what follows."""

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

    def step(self, columns: "NDArray[np.int64]", damage: list[Damage], seen: Survey | None = None) -> None:
        """Add the batches of a chunk and the damage between them. `seen` is the survey of its columns, if there are any."""
        explained = [place.position for place in damage if place.kind in kinds_with(Trait.HIDES_OFFSETS)]
        if seen is not None and seen.joined and not explained:
            self._add_joined(columns)
            return
        good = has_right_crc(columns)
        explained = sorted((*explained, *columns[BatchColumn.POSITION][~good].tolist()))
        if not good.all():
            self._follow(columns, good)
            columns = columns[:, good]
        elif good.size:
            self.bad_tail = None
        placed = _Placed.of(columns)
        if placed.base.size == 0:
            if explained and self.damage_at_end is None:
                self.damage_at_end = (self._segment, explained[0])
            return
        self.first_in_segment.setdefault(self._segment, int(placed.base[0]))
        for start, end in itertools.pairwise(self._edges(placed, explained)):
            after = self._damage_before(start, placed, explained)
            counted = None if self._compacted else _counted_end(columns[:, end - 1])
            self._append(self._run(placed, (start, end), after, counted))
        behind = bisect_right(explained, int(placed.position[-1]))
        self.damage_at_end = (self._segment, explained[behind]) if behind < len(explained) else None

    def _edges(self, placed: "_Placed", explained: list[int]) -> list[int]:
        """Rows at which runs begin, and the number of all; offsets that a cleaner may have taken are counted."""
        base, end_offset = placed.base, placed.end_offset
        steps = base[1:] != end_offset[:-1]
        behind_damage = {int(row) for row in np.searchsorted(placed.position, explained)}  # to be joined if nothing is missing
        if self._compacted:
            ahead = base[1:] > end_offset[:-1]
            steps &= ~ahead
            ahead[[row - 1 for row in behind_damage if 0 < row < base.size]] = False
            missing = base[1:][ahead].astype(np.uint64) - end_offset[:-1][ahead].astype(np.uint64)
            self.missing_by_compaction += sum(missing.tolist())
        cuts = set((np.flatnonzero(steps) + 1).tolist()) | behind_damage
        return [0, *sorted(cut for cut in cuts if 0 < cut < base.size), int(base.size)]

    def _damage_before(self, row: int, placed: "_Placed", explained: list[int]) -> tuple[int, int] | None:
        """The damage between a row and the one before it; before the first that which the stretch before ended with."""
        if row == 0 and self.damage_at_end is not None:
            return self.damage_at_end
        behind = bisect_right(explained, int(placed.position[row - 1]) if row else -1)
        if behind < len(explained) and explained[behind] < placed.position[row]:
            return self._segment, explained[behind]
        return None

    def _add_joined(self, columns: "NDArray[np.int64]") -> None:
        """Add the batches of a sound chunk: they are one run."""
        self.bad_tail = None
        placed = _Placed.of(columns)
        self.first_in_segment.setdefault(self._segment, int(placed.base[0]))
        counted = None if self._compacted else _counted_end(columns[:, -1])
        self._append(self._run(placed, (0, placed.base.size), self.damage_at_end, counted))
        self.damage_at_end = None

    def _run(self, placed: "_Placed", rows: tuple[int, int], after: tuple[int, int] | None, counted: int | None) -> Run:
        """The run that the batches of rows `[start, end)` are."""
        (start, end), (base, end_offset, position) = rows, placed
        of_all = int(base[start]), int(end_offset[end - 1]), self._segment, int(position[start]), end - start, after, counted
        if end - start == 1:
            return Run(*of_all)
        return Run(
            *of_all,
            last=(self._segment, int(position[end - 1]), int(base[end - 1])),
            end_before_last=int(end_offset[end - 2]),
            second_start=int(base[start + 1]),
            first_end=int(end_offset[start]),
        )

    def _follow(self, columns: "NDArray[np.int64]", good: "NDArray[np.bool_]") -> None:
        """Add the bad batches behind the last good one to those that stand there."""
        sound = np.flatnonzero(good)
        if sound.size:
            self.bad_tail = None
        for row in range(int(sound[-1]) + 1 if sound.size else 0, good.size):
            base, last = int(columns[BatchColumn.BASE_OFFSET, row]), int(columns[BatchColumn.LAST_OFFSET, row])
            possible = 0 <= base <= last <= base + MAX_RELATIVE_OFFSET and last < INT64_MAX
            tail = BadTail(base, last + 1) if possible else BadTail(-1, -1, closed=True)
            self.bad_tail = tail if self.bad_tail is None else self.bad_tail.followed(tail)

    def _append(self, run: Run) -> None:
        """Add the next run, joined to the last where it continues it."""
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
        """Add the stretch that follows ours."""
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
    """Offset behind the records of a batch, if its header says another; a batch of the old formats has none to count."""
    count = int(column[BatchColumn.RECORDS_COUNT])
    if column[BatchColumn.MAGIC] < 2 or count <= 0 or count == int(column[BatchColumn.LAST_OFFSET_DELTA]) + 1:
        return None
    return int(column[BatchColumn.BASE_OFFSET]) + count


@dataclass(frozen=True, slots=True)
class Irregularity:
    """One thing wrong with the order of runs: offsets `[start, end)`, and the run at which it shows."""

    kind: str
    start: int
    end: int
    run: Run
    expected: int


@dataclass(slots=True)
class Course:
    """The log's offsets as judged: where they end, what is irregular, what damage ate."""

    end_offset: int
    irregularities: list[Irregularity]
    eaten: dict[tuple[int, int], tuple[int, int]]
    """(segment, byte position of damage) → offsets `[start, end)` that were there."""

    def gaps(self) -> list[tuple[int, int]]:
        """Offsets `[start, end)` that no batch covers."""
        return [(gap.start, gap.end) for gap in self.irregularities if gap.kind == "OFFSET_GAP"]


def judge(runs: list[Run]) -> Course:
    """Walk the runs in file order: never seen = gap, seen before = regression, hole filled later = non-monotonic,
    one batch out of line between neighbours that join, or that no segment could hold = discontinuity."""
    course = Course(_first_expected(runs), [], {})
    holes: list[Irregularity] = []
    expected = course.end_offset
    for index, run in enumerate(runs):
        following = runs[index + 1] if index + 1 < len(runs) else None
        size = run.end_offset - run.start_offset
        joins = following is not None and following.start_offset == expected + size
        if index == 0 and run.after_damage is not None and run.after_damage[0] < run.start_offset:
            course.eaten[run.after_damage] = (run.after_damage[0], run.start_offset)
        if run.start_offset == expected:
            expected = run.end_offset
        elif run.batches == 1 and (joins or (following is None and _impossible(run))):
            course.irregularities.append(Irregularity("OFFSET_DISCONTINUITY", expected, expected + size, run, expected))
            expected += size
        elif run.start_offset > expected:
            _skip(course, holes, run, expected)
            expected = run.end_offset
        elif _fill(holes, run):
            course.irregularities.append(Irregularity("OFFSET_NON_MONOTONIC", run.start_offset, run.end_offset, run, expected))
        else:
            course.irregularities.append(Irregularity("OFFSET_REGRESSION", run.start_offset, run.end_offset, run, expected))
            expected = max(expected, run.end_offset)
    course.irregularities.extend(holes)
    course.end_offset = expected
    return course


def _first_expected(runs: list[Run]) -> int:
    """Offset at which the log begins: the first run's, unless that is a single batch and the rest continues from the name."""
    if not runs:
        return 0
    first = runs[0]
    named = first.segment + first.end_offset - first.start_offset
    joins = len(runs) > 1 and first.batches == 1 and runs[1].start_offset == named
    return first.segment if joins else first.start_offset


def _impossible(run: Run) -> bool:
    """Whether the segment cannot hold these offsets: Kafka would have refused the batch."""
    return run.start_offset < 0 or run.end_offset - 1 - run.segment > MAX_RELATIVE_OFFSET


def _skip(course: Course, holes: list[Irregularity], run: Run, expected: int) -> None:
    if run.after_damage is not None:
        course.eaten[run.after_damage] = (expected, run.start_offset)
    else:
        holes.append(Irregularity("OFFSET_GAP", expected, run.start_offset, run, expected))


def _fill(holes: list[Irregularity], run: Run) -> bool:
    """Whether `run` lies in a hole left before; the hole shrinks to what is still missing."""
    for index, hole in enumerate(holes):
        if hole.start <= run.start_offset and run.end_offset <= hole.end:
            rest = [(hole.start, run.start_offset), (run.end_offset, hole.end)]
            holes[index : index + 1] = [replace(hole, start=start, end=end) for start, end in rest if start < end]
            return True
    return False
