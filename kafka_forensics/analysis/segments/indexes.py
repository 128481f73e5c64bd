"""`.index` and `.timeindex` against the batches they point into (OffsetIndex, TimeIndex).

An offset-index entry names the last offset of what one append wrote and where that began: one batch since 3.9.1, possibly many
before. So what must hold is: the position begins a batch, that batch begins at or before the offset, and every batch before it
ends below the offset. A time-index entry names the largest timestamp so far and an offset inside the batch that holds it.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.bounds import Sample
from kafka_forensics.analysis.segments.framing import Survey
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import INDEX_ENTRY_SIZE, INT64_MAX, TIME_INDEX_ENTRY_SIZE
from kafka_forensics.model.files import OffsetIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from kafka_forensics.model.files import TimeIndex

    Numbers = NDArray[np.int64]
    Truths = NDArray[np.bool_]
    Reason = tuple[str, Truths, Numbers]
    """Its name, which entries it speaks against, and the number that each should have."""
    Earlier = tuple[str, Truths, int]
    """The same with one number for all."""


@dataclass(frozen=True, slots=True)
class BadEntry:
    """An index entry that contradicts the log: which file, which entry, why, its two numbers and the one it should have."""

    file_kind: str
    segment: int
    entry: int
    reason: str
    offset: int
    value: int
    """Byte position (`index`) or timestamp (`timeindex`)."""
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class ZeroTail:
    """Zeros behind the entries of an index file: how many entries stand before them, and the segment's largest timestamp (ms)."""

    file_kind: str
    """`index` or `timeindex`."""
    segment: int
    entries: int
    max_timestamp: int
    last_sound: int = -1
    """Number of the last entry that agrees with the log, wherever it stands; -1 of none."""


_POSITION: Final = int(BatchColumn.POSITION)
_BASE_OFFSET: Final = int(BatchColumn.BASE_OFFSET)
_LAST_OFFSET: Final = int(BatchColumn.LAST_OFFSET)


def entries_agree(
    columns: "NDArray[np.int64]",
    positions: "NDArray[np.int64]",
    offsets: "NDArray[np.int64]",
    entries: "NDArray[np.int64]",
    before: int,
) -> bool:
    """Whether the offset-index entries of these numbers are in the order of the batches they point to and contradict none of them.

    Positions of the batches rise, as the walk makes them. `before` is the largest offset in front of the chunk. False only means
    that somebody must look closer.
    """
    wished, starts, last = positions[entries], columns[_POSITION], columns[_LAST_OFFSET]
    rows = np.searchsorted(starts, wished)
    if (rows == starts.size).any() or (starts[rows] != wished).any() or (wished[1:] < wished[:-1]).any():
        return False
    highest = np.maximum.accumulate(np.concatenate(([before], last)))[rows]
    return not ((columns[_BASE_OFFSET, rows] > offsets[entries]) | (highest >= offsets[entries])).any()


def _highest(before: int, values: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """The largest value so far in front of each of `values` and behind the last, which mostly is the one just before."""
    row = np.concatenate(([before], values))
    return row if np.all(row[1:] >= row[:-1]) else np.maximum.accumulate(row)


class _Sorted:
    """Entries of an index in the order of one of their numbers, which is how they stand in any sound file."""

    def __init__(self, values: "NDArray[np.int64]") -> None:
        ascending = bool(np.all(values[1:] >= values[:-1]))
        self._order = None if ascending else np.argsort(values, kind="stable")
        self._values = values if self._order is None else values[self._order]

    def between(self, first: int, last: int) -> "NDArray[np.int64]":
        """Numbers of the entries with `first <= value <= last`, in file order."""
        start, end = np.searchsorted(self._values, first), np.searchsorted(self._values, last, side="right")
        return np.arange(start, end) if self._order is None else np.sort(self._order[start:end])


_NOTHING: Final = _Sorted(np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class IndexEdges:
    """What an index file and the entries that agree with one stretch of its log come to: all that a sound segment needs.

    Of no entries, the least is beyond every number and the largest is -1.
    """

    damaged: list[BadEntry]
    """Of bytes that are no entries."""
    out_of_order: list[BadEntry]
    entries: int
    has_zero_tail: bool
    least_position: int
    largest_position: int
    """Of time indexes, both as without entries."""
    largest_offset: int
    least_sound: int
    """Least offset (`index`) or timestamp (`timeindex`) of the entries that agree with the stretch."""
    last_sound: int
    """Number of the last of these, -1 of none."""


class IndexFold:
    """State: bad entries, and what the seam between two stretches of a segment needs.

    `lightened`, it holds no entries but their edges, which suffice unless `needs_entries` says otherwise.
    """

    def __init__(self, segment_base_offset: int, index: "OffsetIndex | None", time_index: "TimeIndex | None") -> None:
        self._segment = segment_base_offset
        self._index = index
        self._time = time_index
        self.bad: Sample[BadEntry] = Sample()
        self.max_timestamp = -1
        self.last_offset = -1
        self.end_position = 0
        self.edges: dict[str, IndexEdges] | None = None
        """By kind of file, once lightened."""
        self._by_position = _Sorted(index.positions) if index is not None and index.positions.size else _NOTHING
        self._by_offset = _Sorted(time_index.offsets) if time_index is not None and time_index.offsets.size else _NOTHING
        self._sound: dict[str, list[NDArray[np.int64]]] = {"index": [], "timeindex": []}
        """Numbers of the entries that point into the stretch and agree with it: what stands before it may yet contradict them."""

    def step(self, columns: "NDArray[np.int64]", seen: Survey | None = None) -> None:
        """Check the entries that point into this chunk. `seen` is the survey of its columns, if there are any."""
        if columns.shape[1] == 0:
            return
        if self._index is not None and self._index.positions.size:
            self._check_offsets(columns, self._index)
        if self._time is not None and self._time.offsets.size:
            self._check_times(columns, self._time)
        plain = seen is not None and seen.joined
        last_offset = columns[BatchColumn.LAST_OFFSET, -1] if plain else columns[BatchColumn.LAST_OFFSET].max()
        self.last_offset = max(self.last_offset, int(last_offset))
        max_timestamp = seen.max_timestamp if seen is not None and plain else columns[BatchColumn.MAX_TIMESTAMP].max()
        self.max_timestamp = max(self.max_timestamp, int(max_timestamp))
        self.end_position = int(columns[BatchColumn.POSITION, -1] + columns[BatchColumn.SIZE_IN_BYTES, -1])

    def _check_offsets(self, columns: "NDArray[np.int64]", index: "OffsetIndex") -> None:
        positions = columns[BatchColumn.POSITION]
        end = int(positions[-1] + columns[BatchColumn.SIZE_IN_BYTES, -1])
        inside = self._by_position.between(int(positions[0]), end - 1)
        if not inside.size:
            return
        if entries_agree(columns, index.positions, index.offsets, inside, self.last_offset):
            self._sound["index"].append(inside)
            return
        wanted, offsets = index.positions[inside], index.offsets[inside]
        rows = np.searchsorted(positions, wanted, side="right") - 1
        before = _highest(self.last_offset, columns[BatchColumn.LAST_OFFSET])[rows]
        reasons = (
            ("position_inside_batch", positions[rows] != wanted, positions[rows]),
            ("offset_before_batch", columns[BatchColumn.BASE_OFFSET][rows] > offsets, columns[BatchColumn.BASE_OFFSET][rows]),
            ("offset_in_earlier_batch", before >= offsets, before),
        )
        self._report("index", inside, offsets, wanted, reasons)

    def _check_times(self, columns: "NDArray[np.int64]", index: "TimeIndex") -> None:
        last, base = columns[BatchColumn.LAST_OFFSET], columns[BatchColumn.BASE_OFFSET]
        if np.any(last[1:] < last[:-1]):
            return  # offsets out of order are a finding of their own; no search by offset can be trusted then
        inside = self._by_offset.between(int(base[0]), int(last[-1]))
        if not inside.size:
            return
        offsets, timestamps = index.offsets[inside], index.timestamps[inside]
        rows = np.searchsorted(last, offsets)
        stamped = columns[BatchColumn.MAX_TIMESTAMP]
        highest = _highest(self.max_timestamp, stamped)
        covered = base[rows] <= offsets
        reasons = (
            ("timestamp_of_no_batch_there", (stamped[rows] != timestamps)[covered], stamped[rows][covered]),
            ("earlier_batch_is_newer", (highest[rows] > timestamps)[covered], highest[rows][covered]),
        )
        self._report("timeindex", inside[covered], offsets[covered], timestamps[covered], reasons)

    def _report(self, kind: str, entries: "Numbers", offsets: "Numbers", values: "Numbers", reasons: "Iterable[Reason]") -> None:
        """Add one row for each entry that some reason speaks against, the first reason only; remember the others as sound."""
        sound = np.ones(entries.size, np.bool_)
        for reason, wrong, expected in reasons:
            for row in np.flatnonzero(wrong & sound):
                numbers = (int(offsets[row]), int(values[row]), int(expected[row]))
                self.bad.append(BadEntry(kind, self._segment, int(entries[row]), reason, *numbers))
            sound &= ~wrong
        self._sound[kind].append(entries[sound])

    def lighten(self) -> None:
        """Let go of the entries: the state can travel, and no batch be added to it any more."""
        edges = {}
        for kind, size, index in self._files():
            at = np.concatenate([np.empty(0, np.int64), *self._sound[kind]])
            values = index.offsets if isinstance(index, OffsetIndex) else index.timestamps
            positions = index.positions if isinstance(index, OffsetIndex) else np.empty(0, np.int64)
            edges[kind] = IndexEdges(
                self._damaged(kind, size, index),
                self._out_of_order(kind, index),
                len(index.offsets),
                index.zero_tail_bytes > 0,
                int(positions.min(initial=INT64_MAX)),
                int(positions.max(initial=-1)),
                int(index.offsets.max(initial=-1)),
                int(values[at].min(initial=INT64_MAX)),
                int(at.max(initial=-1)),
            )
        self.edges = edges
        self._index = self._time = None
        self._by_position = self._by_offset = _NOTHING
        self._sound = {"index": [], "timeindex": []}

    def merge(self, right: "IndexFold") -> None:
        """Add the stretch of the same segment that follows ours; both are lightened, or none is."""
        self.bad.extend(right.bad)
        if self.edges is not None and right.edges is not None:
            last = {kind: edges.last_sound for kind, edges in right.edges.items()}
            self.edges = {
                kind: replace(edges, last_sound=max(edges.last_sound, last.get(kind, -1))) for kind, edges in self.edges.items()
            }
        if self._index is not None:
            offsets, positions = self._index.offsets, self._index.positions
            earlier = ("offset_in_earlier_batch", offsets <= self.last_offset, self.last_offset)
            self._seam("index", right, offsets, positions, earlier)
        if self._time is not None:
            offsets, stamps = self._time.offsets, self._time.timestamps
            newer = ("earlier_batch_is_newer", stamps < self.max_timestamp, self.max_timestamp)
            self._seam("timeindex", right, offsets, stamps, newer)
        self.last_offset = max(self.last_offset, right.last_offset)
        self.max_timestamp = max(self.max_timestamp, right.max_timestamp)
        self.end_position = max(self.end_position, right.end_position)

    def _seam(
        self, kind: str, right: "IndexFold", offsets: "Numbers", values: "Numbers", reason: "tuple[str, Truths, int]"
    ) -> None:
        """Judge the entries that agree with the right stretch by what stands before it; `reason` is of all the file's entries."""
        name, wrong, expected = reason
        for entries in right._sound[kind]:
            reasons = ((name, wrong[entries], np.full(entries.size, expected)),)
            self._report(kind, entries, offsets[entries], values[entries], reasons)

    def zero_tails(self) -> list[ZeroTail]:
        """The zeros that the files end in, once the segment is whole."""
        if self.edges is not None:
            return [
                ZeroTail(kind, self._segment, edges.entries, self.max_timestamp, edges.last_sound)
                for kind, edges in self.edges.items()
                if edges.has_zero_tail
            ]
        return [
            ZeroTail(kind, self._segment, len(index.offsets), self.max_timestamp, self._last_sound(kind))
            for kind, _, index in self._files()
            if index.zero_tail_bytes
        ]

    def _files(self) -> "list[tuple[str, int, OffsetIndex | TimeIndex]]":
        """Kind, size of an entry and entries of the files that are there."""
        files = (("index", INDEX_ENTRY_SIZE, self._index), ("timeindex", TIME_INDEX_ENTRY_SIZE, self._time))
        return [(kind, size, index) for kind, size, index in files if index is not None]

    def _last_sound(self, kind: str) -> int:
        """Number of the last entry that agrees with the stretch, -1 of none."""
        return max((int(entries.max()) for entries in self._sound[kind] if entries.size), default=-1)

    def finish(self) -> list[BadEntry]:
        """Bad entries, with those that point beyond the log and those out of order; once, when the segment is whole."""
        bad = list(self.bad)
        if self.edges is not None:
            bad += [entry for edges in self.edges.values() for entry in edges.damaged]
            return bad + [entry for edges in self.edges.values() for entry in edges.out_of_order]
        for kind, size, index in self._files():
            bad += self._damaged(kind, size, index)
        if self._index is not None and self._index.positions.size:
            positions, offsets = self._index.positions, self._index.offsets
            bad += self._out_of_order("index", self._index)
            beyond = np.flatnonzero((positions >= self.end_position) | (offsets > self.last_offset) | (positions < 0))
            bad += [self._entry("index", int(row), "beyond_log", offsets, positions) for row in beyond[:8]]
        if self._time is not None and self._time.offsets.size:
            timestamps, offsets = self._time.timestamps, self._time.offsets
            bad += self._out_of_order("timeindex", self._time)
            beyond = np.flatnonzero(offsets > self.last_offset)
            bad += [self._entry("timeindex", int(row), "beyond_log", offsets, timestamps) for row in beyond[:8]]
        return bad

    def _damaged(self, kind: str, size: int, index: "OffsetIndex | TimeIndex") -> list[BadEntry]:
        return [
            BadEntry(kind, self._segment, damage.position // size, str(damage.detail["reason"]), -1, -1) for damage in index.damage
        ]

    def _out_of_order(self, kind: str, index: "OffsetIndex | TimeIndex") -> list[BadEntry]:
        offsets = index.offsets
        steps = np.diff(offsets) <= 0 if isinstance(index, OffsetIndex) else np.diff(offsets) < 0
        values = index.positions if isinstance(index, OffsetIndex) else index.timestamps
        wrong = steps | (np.diff(values) <= 0)
        return [self._entry(kind, int(row) + 1, "out_of_order", offsets, values) for row in np.flatnonzero(wrong)[:8]]

    def _entry(self, kind: str, row: int, reason: str, offsets: "Numbers", values: "Numbers") -> BadEntry:
        return BadEntry(kind, self._segment, row, reason, int(offsets[row]), int(values[row]))


def needs_entries(stretches: "Sequence[IndexFold]") -> bool:
    """Whether lightened states of one segment's stretches, in order, cannot tell what the entries themselves would."""
    last_offset = max_timestamp = -1
    for fold in stretches:
        for kind, before in (("index", last_offset), ("timeindex", max_timestamp)):
            edges = None if fold.edges is None else fold.edges.get(kind)
            if edges is not None and (edges.least_sound <= before if kind == "index" else edges.least_sound < before):
                return True
        last_offset, max_timestamp = max(last_offset, fold.last_offset), max(max_timestamp, fold.max_timestamp)
    end_position = max((fold.end_position for fold in stretches), default=0)
    known = [edges for fold in stretches[:1] if fold.edges is not None for edges in fold.edges.values()]
    return any(
        edges.largest_position >= end_position or edges.largest_offset > last_offset or edges.least_position < 0 for edges in known
    )
