"""`.index` and `.timeindex` against the batches they point into (OffsetIndex, TimeIndex).

An offset-index entry names the last offset that one append wrote and its byte position: one batch since 3.9.1, possibly several
before. So these must hold: the position is the start of a batch, that batch begins at or before the offset, and all batches before
it end below the offset. A time-index entry names the largest timestamp so far and an offset inside the batch that holds it.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.bounds import FirstAndLast
from kafka_forensics.analysis.segments.framing import ChunkFacts
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
    """Name, which entries are wrong, and the number that each should have."""


class BadEntry(Struct, frozen=True):
    """An index entry that contradicts the log: file, number of the entry, reason, its two numbers and the expected one."""

    file_kind: str
    segment: int
    entry: int
    reason: str
    offset: int
    value: int
    """Byte position (`index`) or timestamp (`timeindex`)."""
    expected: int | None = None


class ZeroTail(Struct, frozen=True):
    """Zeros after the entries of an index file: number of entries before them, and the segment's largest timestamp (ms)."""

    file_kind: str
    """`index` or `timeindex`."""
    segment: int
    entries: int
    max_timestamp: int
    last_sound: int = -1
    """Number of the last entry that agrees with the log, -1 if none does."""


def entries_agree(columns: "NDArray[np.int64]", positions: "Numbers", offsets: "Numbers", entries: "Numbers", before: int) -> bool:
    """Whether the offset-index entries of these numbers are in the order of their batches and agree with all of them.

    Positions of the batches ascend. `before` is the largest offset before the chunk. False only means that each entry must be
    checked.
    """
    expected, starts = positions[entries], columns[BatchColumn.POSITION]
    rows = np.searchsorted(starts, expected)
    if (rows == starts.size).any() or (starts[rows] != expected).any() or (expected[1:] < expected[:-1]).any():
        return False
    highest = np.maximum.accumulate(np.concatenate(([before], columns[BatchColumn.LAST_OFFSET])))[rows]
    return not ((columns[BatchColumn.BASE_OFFSET, rows] > offsets[entries]) | (highest >= offsets[entries])).any()


def _highest(before: int, values: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """The largest value before each of `values` and after the last, starting from `before`; usually the previous value."""
    row = np.concatenate(([before], values))
    return row if np.all(row[1:] >= row[:-1]) else np.maximum.accumulate(row)


class _SortedEntries:
    """Numbers of index entries by one of their values, which ascends in any sound file."""

    def __init__(self, values: "NDArray[np.int64]") -> None:
        ascending = bool(np.all(values[1:] >= values[:-1]))
        self._order = None if ascending else np.argsort(values, kind="stable")
        self._values = values if self._order is None else values[self._order]

    def between(self, first: int, last: int) -> "NDArray[np.int64]":
        """Numbers of the entries with `first <= value <= last`, in file order."""
        start, end = np.searchsorted(self._values, first), np.searchsorted(self._values, last, side="right")
        return np.arange(start, end) if self._order is None else np.sort(self._order[start:end])


_NO_ENTRIES: Final = _SortedEntries(np.empty(0, np.int64))


class IndexSummary(Struct, frozen=True):
    """Summary of an index file and of its entries that agree with one part of its log: enough for a sound segment.

    Without entries, the least is INT64_MAX and the largest is -1.
    """

    damaged: list[BadEntry]
    """Bytes that are not entries."""
    out_of_order: list[BadEntry]
    entries: int
    has_zero_tail: bool
    least_position: int
    largest_position: int
    """For time indexes, both as without entries."""
    largest_offset: int
    least_sound: int
    """Least offset (`index`) or timestamp (`timeindex`) of the entries that agree with this part of the log."""
    last_sound: int
    """Number of the last of these entries, -1 if there are none."""


class IndexFold:
    """State: bad entries, and what a merge of two parts of a segment needs.

    After `drop_entries` it holds summaries instead of entries, which suffice unless `needs_entries` says otherwise.
    """

    def __init__(self, segment_base_offset: int, index: "OffsetIndex | None", time_index: "TimeIndex | None") -> None:
        self._segment = segment_base_offset
        self._index = index
        self._time = time_index
        self.bad: FirstAndLast[BadEntry] = FirstAndLast()
        self.max_timestamp = -1
        self.last_offset = -1
        self.end_position = 0
        self.summaries: dict[str, IndexSummary] | None = None
        """By kind of file, after `drop_entries`."""
        self._by_position = _SortedEntries(index.positions) if index is not None and index.positions.size else _NO_ENTRIES
        self._by_offset = _SortedEntries(time_index.offsets) if time_index is not None and time_index.offsets.size else _NO_ENTRIES
        self._sound: dict[str, list[NDArray[np.int64]]] = {"index": [], "timeindex": []}
        """Numbers of the entries that point into this part and agree with it; the part before may still contradict them."""

    def step(self, columns: "NDArray[np.int64]", facts: ChunkFacts) -> None:
        """Check the entries that point into this chunk."""
        if columns.shape[1] == 0:
            return
        if self._index is not None and self._index.positions.size:
            self._check_offsets(columns, self._index)
        if self._time is not None and self._time.offsets.size:
            self._check_times(columns, self._time)
        last_offset = columns[BatchColumn.LAST_OFFSET, -1] if facts.joined else columns[BatchColumn.LAST_OFFSET].max()
        self.last_offset = max(self.last_offset, int(last_offset))
        max_timestamp = facts.max_timestamp if facts.joined else columns[BatchColumn.MAX_TIMESTAMP].max()
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
        entry_positions, offsets = index.positions[inside], index.offsets[inside]
        rows = np.searchsorted(positions, entry_positions, side="right") - 1
        before = _highest(self.last_offset, columns[BatchColumn.LAST_OFFSET])[rows]
        reasons = (
            ("position_inside_batch", positions[rows] != entry_positions, positions[rows]),
            ("offset_before_batch", columns[BatchColumn.BASE_OFFSET][rows] > offsets, columns[BatchColumn.BASE_OFFSET][rows]),
            ("offset_in_earlier_batch", before >= offsets, before),
        )
        self._report("index", inside, offsets, entry_positions, reasons)

    def _check_times(self, columns: "NDArray[np.int64]", index: "TimeIndex") -> None:
        last, base = columns[BatchColumn.LAST_OFFSET], columns[BatchColumn.BASE_OFFSET]
        if np.any(last[1:] < last[:-1]):
            return  # out-of-order offsets, which have another finding, make a search by offset meaningless
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
        """Add a bad entry for each entry that some reason applies to, with the first such reason; remember the others as sound."""
        sound = np.ones(entries.size, np.bool_)
        for reason, wrong, expected in reasons:
            for row in np.flatnonzero(wrong & sound):
                numbers = (int(offsets[row]), int(values[row]), int(expected[row]))
                self.bad.append(BadEntry(kind, self._segment, int(entries[row]), reason, *numbers))
            sound &= ~wrong
        self._sound[kind].append(entries[sound])

    def drop_entries(self) -> None:
        """Replace the entries by summaries, which makes the state small; no batch can be added after that."""
        summaries = {}
        for kind, size, index in self._files():
            at = np.concatenate([np.empty(0, np.int64), *self._sound[kind]])
            positions = index.positions if isinstance(index, OffsetIndex) else np.empty(0, np.int64)
            values = index.offsets if isinstance(index, OffsetIndex) else index.timestamps
            summaries[kind] = IndexSummary(
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
        self.summaries = summaries
        self._index = self._time = None
        self._by_position = self._by_offset = _NO_ENTRIES
        self._sound = {"index": [], "timeindex": []}

    def merge(self, right: "IndexFold") -> None:
        """Add the part of the same segment that follows; both have their entries, or neither."""
        self.bad.extend(right.bad)
        if self.summaries is not None and right.summaries is not None:
            last = {kind: summary.last_sound for kind, summary in right.summaries.items()}
            self.summaries = {
                kind: replace(summary, last_sound=max(summary.last_sound, last.get(kind, -1)))
                for kind, summary in self.summaries.items()
            }
        if (index := self._index) is not None:
            for entries in right._sound["index"]:
                offsets, limit = index.offsets[entries], np.full(entries.size, self.last_offset)
                reasons = (("offset_in_earlier_batch", offsets <= self.last_offset, limit),)
                self._report("index", entries, offsets, index.positions[entries], reasons)
        if (times := self._time) is not None:
            for entries in right._sound["timeindex"]:
                timestamps, limit = times.timestamps[entries], np.full(entries.size, self.max_timestamp)
                reasons = (("earlier_batch_is_newer", timestamps < self.max_timestamp, limit),)
                self._report("timeindex", entries, times.offsets[entries], timestamps, reasons)
        self.last_offset = max(self.last_offset, right.last_offset)
        self.max_timestamp = max(self.max_timestamp, right.max_timestamp)
        self.end_position = max(self.end_position, right.end_position)

    def zero_tails(self) -> list[ZeroTail]:
        """The zeros at the end of the files, once the segment is complete."""
        if self.summaries is not None:
            return [
                ZeroTail(kind, self._segment, summary.entries, self.max_timestamp, summary.last_sound)
                for kind, summary in self.summaries.items()
                if summary.has_zero_tail
            ]
        return [
            ZeroTail(kind, self._segment, len(index.offsets), self.max_timestamp, self._last_sound(kind))
            for kind, _, index in self._files()
            if index.zero_tail_bytes
        ]

    def _last_sound(self, kind: str) -> int:
        """Number of the last sound entry, -1 if there is none."""
        return max((int(entries.max()) for entries in self._sound[kind] if entries.size), default=-1)

    def _files(self) -> "list[tuple[str, int, OffsetIndex | TimeIndex]]":
        """Kind, size of an entry and entries of the index files that exist."""
        files = (("index", INDEX_ENTRY_SIZE, self._index), ("timeindex", TIME_INDEX_ENTRY_SIZE, self._time))
        return [(kind, size, index) for kind, size, index in files if index is not None]

    def finish(self) -> list[BadEntry]:
        """Bad entries, including those beyond the end of the log and those out of order; once, when the segment is complete."""
        summaries, files = (self.summaries or {}).values(), self._files()
        bad = [*self.bad, *(entry for summary in summaries for entry in summary.damaged)]
        bad += [entry for summary in summaries for entry in summary.out_of_order]
        bad += [entry for kind, size, index in files for entry in self._damaged(kind, size, index)]
        for kind, _, index in files:
            if index.offsets.size:
                bad += self._out_of_order(kind, index)
                beyond = index.offsets > self.last_offset
                if isinstance(index, OffsetIndex):
                    beyond |= (index.positions >= self.end_position) | (index.positions < 0)
                bad += self._entries(kind, index, np.flatnonzero(beyond), "beyond_log")
        return bad

    def _damaged(self, kind: str, size: int, index: "OffsetIndex | TimeIndex") -> list[BadEntry]:
        return [BadEntry(kind, self._segment, bad.position // size, str(bad.detail["reason"]), -1, -1) for bad in index.damage]

    def _out_of_order(self, kind: str, index: "OffsetIndex | TimeIndex") -> list[BadEntry]:
        values = index.positions if isinstance(index, OffsetIndex) else index.timestamps
        steps = np.diff(index.offsets)
        wrong = (np.diff(values) <= 0) | (steps <= 0 if isinstance(index, OffsetIndex) else steps < 0)
        return self._entries(kind, index, np.flatnonzero(wrong) + 1, "out_of_order")

    def _entries(self, kind: str, index: "OffsetIndex | TimeIndex", rows: "Numbers", reason: str) -> list[BadEntry]:
        """The first eight of these entries as bad ones."""
        values = index.positions if isinstance(index, OffsetIndex) else index.timestamps
        return [BadEntry(kind, self._segment, row, reason, int(index.offsets[row]), int(values[row])) for row in rows[:8].tolist()]


def needs_entries(folds: "Sequence[IndexFold]") -> bool:
    """Whether summaries of the consecutive parts of one segment cannot replace the entries themselves."""
    last_offset = max_timestamp = -1
    for fold in folds:
        for kind, before in (("index", last_offset), ("timeindex", max_timestamp)):
            summary = (fold.summaries or {}).get(kind)
            if summary is not None and (summary.least_sound <= before if kind == "index" else summary.least_sound < before):
                return True
        last_offset, max_timestamp = max(last_offset, fold.last_offset), max(max_timestamp, fold.max_timestamp)
    end_position = max((fold.end_position for fold in folds), default=0)
    return any(
        summary.largest_position >= end_position or summary.largest_offset > last_offset or summary.least_position < 0
        for fold in folds[:1]
        for summary in (fold.summaries or {}).values()
    )
