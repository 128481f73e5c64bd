"""Reading replicas a second time: only the offsets that the comparison asks for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import put_right
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn, Damage
from kafka_forensics.model.records import Record
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, DecodedBatch, SegmentReader, believed_to, decode_batch, inspector
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.rereading.cleaned_batches import surely_equal_where_both
from kafka_forensics.rereading.seeking import start_position

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.folding.keys import KeysApart

_LYING_HEADERS = frozenset({"BATCH_COUNT_LIE", "BATCH_RANGE_INCONSISTENT"})
"""Problems of a batch whose records can be had all the same."""


class LogReader:
    """`BatchReader` over the plans of one partition; `plans` by the identity of their context.

    `as_of_ms` is the time that ages count to, None: the newest in the evidence.
    """

    def __init__(self, plans: list[ReplicaPlan], key: "NDArray[np.int64]", as_of_ms: int | None = None) -> None:
        self._plans = {id(plan.context): plan for plan in plans}
        self.as_of_ms = as_of_ms
        self.apart: KeysApart | None = None
        """Who has keys of large logs compared, None: they are compared here."""
        self._key = key
        self.incomplete: list[Incomplete] = []
        self.problems: list[tuple[Replica, int, Damage]] = []
        """(replica, segment, damage) of batches that could not be decoded to be compared."""

    def batches(self, replica: Replica, start: int, end: int) -> "NDArray[np.int64]":
        """Batches that hold an offset of `[start, end)`, with their segment in a last row, in file order."""
        plan = self._plans[id(replica.context)]
        moved = {misplaced.place: misplaced.offset for misplaced in replica.misplaced}
        found = [np.empty((BATCH_COLUMNS + 1, 0), np.int64)]
        logs = [segment for segment in plan.directory.segments if segment.log is not None]
        for segment, following in zip(logs, [*logs[1:], None], strict=False):
            if segment.base_offset >= end or (following is not None and following.base_offset <= start):
                continue
            try:
                reach = None if following is None else following.base_offset
                found += self._of_segment(plan, segment, reach, (start, end), moved)
            except SourceError as error:
                self.incomplete.append(Incomplete(typed_path(plan.log_dir.source, error.path), error.reason))
        return np.concatenate(found, axis=1)

    def _of_segment(
        self,
        plan: ReplicaPlan,
        segment: SegmentFiles,
        next_base_offset: int | None,
        offsets: tuple[int, int],
        moved: Mapping[tuple[int, int], int],
    ) -> list["NDArray[np.int64]"]:
        """Rows of a segment; `moved` are the right base offsets of batches where others are written, by segment and position."""
        assert segment.log is not None
        start, end = offsets
        here = {position: offset for (base_offset, position), offset in moved.items() if base_offset == segment.base_offset}
        found = []
        with plan.log_dir.source.open(segment.log.path) as file:
            limit = believed_to(segment.base_offset, next_base_offset)
            reader = SegmentReader(file, key=self._key, next_base_offset=limit, inspect=inspector(deep=False))
            for chunk in reader.chunks(self._position(plan, segment, start)):
                columns = put_right(chunk, here).columns if here else chunk.columns
                base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
                wanted = (last >= start) & (base < end)
                rows = np.empty((BATCH_COLUMNS + 1, int(wanted.sum())), np.int64)
                rows[:BATCH_COLUMNS] = columns[:, wanted]
                rows[BATCH_COLUMNS] = segment.base_offset
                found.append(rows)
                if base.size and int(base.min()) >= end:
                    break
        return found

    def batch_at(self, replica: Replica, place: tuple[int, int]) -> "NDArray[np.int64] | None":
        """The batch at a byte of a segment, a column by BatchColumn, as it is written there; None if none can be read."""
        plan, (base_offset, position) = self._plans[id(replica.context)], place
        segment = next((one for one in plan.directory.segments if one.base_offset == base_offset), None)
        if segment is None or segment.log is None:
            return None
        try:
            with plan.log_dir.source.open(segment.log.path) as file:
                first = next(SegmentReader(file).chunks(position, position + 1))
                there = first.rows > 0 and int(first.columns[BatchColumn.POSITION, 0]) == position
                return first.columns[:, 0].copy() if there else None
        except SourceError as error:
            self.incomplete.append(Incomplete(typed_path(plan.log_dir.source, error.path), error.reason))
            return None

    @staticmethod
    def _position(plan: ReplicaPlan, segment: SegmentFiles, offset: int) -> int:
        """Where to begin reading for `offset`: the last index entry below it that really begins a batch, else 0."""
        if segment.index is None or segment.log is None:
            return 0
        source = plan.log_dir.source
        try:
            with source.open(segment.index.path) as index, source.open(segment.log.path) as log:
                return start_position(log, index, segment.base_offset, offset)
        except SourceError:
            return 0  # the fold says what cannot be read; the log may be readable without its index

    def same_records(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]", *, common: bool
    ) -> bool | None:
        """Whether two batches hold equal records, see `BatchReader`."""
        ours, theirs = self._sound(left, left_row), self._sound(right, right_row)
        if ours is None or theirs is None:
            return None
        if common and surely_equal_where_both(ours, theirs):
            return True
        left_records, right_records = _records(ours, left_row), _records(theirs, right_row)
        if common:
            shared = left_records.keys() & right_records.keys()
            return all(left_records[offset] == right_records[offset] for offset in shared)
        return left_records == right_records

    def first_unlike(
        self, left: Replica, left_row: "NDArray[np.int64]", right: Replica, right_row: "NDArray[np.int64]"
    ) -> int | None:
        """The first offset at which two batches hold different records, see `BatchReader`."""
        ours, theirs = self.decoded(left, left_row), self.decoded(right, right_row)
        if ours is None or theirs is None:
            return None
        left_records, right_records = _records(ours, left_row), _records(theirs, right_row)
        shared = left_records.keys() & right_records.keys()
        return min((offset for offset in shared if left_records[offset] != right_records[offset]), default=None)

    def _sound(self, replica: Replica, row: "NDArray[np.int64]") -> DecodedBatch | None:
        """A batch opened; None if it cannot be, or there is something wrong inside, which is noted."""
        decoded = self.decoded(replica, row)
        if decoded is None or not decoded.problems:
            return decoded
        self.problems += [(replica, int(row[BATCH_COLUMNS]), damage) for damage in decoded.problems]
        return None

    def undecodable(self, replica: Replica, row: "NDArray[np.int64]") -> bool:
        """Whether a batch was read and cannot be decoded, see `BatchReader`."""
        decoded = self.decoded(replica, row)
        return decoded is not None and any(damage.kind not in _LYING_HEADERS for damage in decoded.problems)

    def decoded(self, replica: Replica, row: "NDArray[np.int64]") -> DecodedBatch | None:
        """A batch that `batches` gave, opened; None if it is too large to be, or cannot be read."""
        plan = self._plans[id(replica.context)]
        segment = next(one for one in plan.directory.segments if one.base_offset == int(row[BATCH_COLUMNS]))
        size = int(row[BatchColumn.SIZE_IN_BYTES])
        source = plan.log_dir.source
        if segment.log is None:
            return None
        if size > MAX_BATCH_BYTES:
            what = f"batch of {size} bytes at byte {int(row[BatchColumn.POSITION])} is too large to compare its records"
            self.incomplete.append(Incomplete(typed_path(source, segment.log.path), what))
            return None
        try:
            with source.open(segment.log.path) as file:
                position = int(row[BatchColumn.POSITION])
                data = file.read_at(position, size)
        except SourceError as error:
            self.incomplete.append(Incomplete(typed_path(source, segment.log.path), error.reason))
            return None
        moved = next((misplaced for misplaced in replica.misplaced if misplaced.place == (segment.base_offset, position)), None)
        return decode_batch(data if moved is None else moved.rewritten(data), position=position)


def _records(decoded: DecodedBatch, row: "NDArray[np.int64]") -> dict[int, tuple[object, ...]]:
    """Offset → what must be equal on every replica."""
    producer = tuple(int(row[c]) for c in (BatchColumn.PRODUCER_ID, BatchColumn.PRODUCER_EPOCH))
    return {record.offset: (*_content(record), *producer) for record in decoded.iter_records()}


def _content(record: Record) -> tuple[object, ...]:
    """Values too large to be held are told apart by their sizes alone."""
    return record.key, record.value, record.headers, record.timestamp, record.key_length, record.value_length
