"""Reading the records of some ranges of one replica's log, in order, and how the transaction of each of them ended."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import put_right
from kafka_forensics.analysis.transactions_across import SKEW_MS, TV2
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.model.batches import BatchColumn, Record, has_right_crc
from kafka_forensics.model.constants import CONTROL_COMMIT, CONTROL_MASK, INT64_MAX
from kafka_forensics.model.coordinators import Decision, TransactionLog
from kafka_forensics.model.offset_ranges import Ranges
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, SegmentReader, decode_batch
from kafka_forensics.scanning.rereading.logs_in_order import WINDOW_BYTES
from kafka_forensics.scanning.rereading.record_states import ABORTED, COMMITTED, MAX_MARKERS, NONE, OPEN, UNKNOWN, in_transactions
from kafka_forensics.scanning.rereading.seeking import chunks_until, start_position
from kafka_forensics.storage.bundles import BundleSource, CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.batches import BatchChunk
    from kafka_forensics.parsers.log import BatchHeader
    from kafka_forensics.parsers.log_dir import SegmentFiles
    from kafka_forensics.storage.source import ByteFile, Entry

    Ints = NDArray[np.int64]
    Choose = Callable[[BatchHeader, bytes | memoryview | None, Ints], NDArray[np.bool_]]

_ENDING: Final = {0: ABORTED, CONTROL_COMMIT: COMMITTED}


class ReadBatch(NamedTuple):
    """A good batch that holds offsets which were asked for; `facts` by BatchColumn; `data` is None where it cannot be had."""

    facts: list[int]
    segment: int
    data: bytes | None

    @property
    def is_control(self) -> bool:
        """Whether it holds no records of producers."""
        return self.facts[BatchColumn.MAGIC] >= 2 and bool(self.facts[BatchColumn.ATTRIBUTES] & CONTROL_MASK)

    def opened(self, choose: "Choose | None" = None) -> tuple[Iterator[Record], bool]:
        """Its records, of magic 2 those that `choose` marks; and whether all of them can be read."""
        assert self.data is not None
        decoded = decode_batch(self.data, position=self.facts[BatchColumn.POSITION])
        return decoded.iter_records(choose), not decoded.problems


@dataclass(slots=True)
class ReadLog:
    """The log of one replica, read as often as it is asked; what could not be read goes into `incomplete`, once."""

    replica: Replica
    plan: ReplicaPlan
    incomplete: list[Incomplete]
    asked: tuple[int, int]
    """Offsets whose records are needed, for what is said of a bundle without them."""
    not_compared: bool = False
    """Whether a batch that may hold a lost record as well could not be had."""

    @property
    def in_bundle(self) -> bool:
        """Whether it has no more records than were collected."""
        return isinstance(self.plan.log_dir.source, BundleSource)

    def batches(self, ranges: Ranges, wanted: "Callable[[Ints], NDArray[np.bool_]] | None" = None) -> Iterator[ReadBatch]:
        """Every good batch that has an offset of some ranges, in file order; `wanted` says of a (BATCH_COLUMNS, n) matrix which
        others are left out."""
        starts, ends = (np.array([span[side] for span in ranges], np.int64) for side in (0, 1))
        for segment, log, file, chunk in self._chunks(ranges):
            columns, moved = self._put_right(chunk, segment)
            base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
            at = np.searchsorted(ends, base, side="right")
            good = (at < len(ends)) & (starts[np.minimum(at, len(ends) - 1)] <= last)
            good &= has_right_crc(columns)
            if wanted is not None:
                good &= wanted(columns)
            window, start = b"", 0
            for facts in columns[:, good].T.tolist():
                position, size = facts[BatchColumn.POSITION], facts[BatchColumn.SIZE_IN_BYTES]
                if isinstance(file, CollectedLog) or size > MAX_BATCH_BYTES:
                    data = self._whole(log, file, facts)
                else:
                    if position + size > start + len(window):
                        start, window = position, file.read_at(position, max(size, WINDOW_BYTES))
                    data = window[position - start : position - start + size]
                if data is not None and position in moved:
                    data = moved[position](data)
                yield ReadBatch(facts, segment.base_offset, data)

    def headers(self, ranges: Ranges) -> "Iterator[Ints]":
        """The good batches of some ranges and others of the same files, as matrices by BatchColumn; each is used again."""
        for segment, _, _, chunk in self._chunks(ranges):
            columns, _ = self._put_right(chunk, segment)
            yield columns[:, has_right_crc(columns)]

    def shown(self, segment: int) -> str:
        """The `.log` of a segment, as in findings."""
        context = self.replica.context
        return f"{context.directory}/{context.log_file(segment)}"

    def _chunks(self, ranges: Ranges) -> "Iterator[tuple[SegmentFiles, Entry, ByteFile, BatchChunk]]":
        if not ranges:
            return
        first, end = ranges[0][0], ranges[-1][1]
        for log in self.plan.directory.logs():
            segment = log.segment
            if segment.base_offset >= end or not log.reaches(first):
                continue
            source = self.plan.log_dir.source
            try:
                with source.open(log.entry.path) as file:
                    reader = SegmentReader.with_checks(file, log.max_plausible_offset)
                    position = self._position(segment, log.entry, first)
                    for chunk in chunks_until(reader, position, file.size_in_bytes, end):
                        yield segment, log.entry, file, chunk
            except SourceError as error:
                self._say(typed_path(source, error.path), error.reason)

    def _position(self, segment: "SegmentFiles", log: "Entry", offset: int) -> int:
        """Where to begin reading for an offset; at the front of what cannot seek, and of logs whose offsets are put right."""
        source = self.plan.log_dir.source
        if segment.index is None or not source.seekable or self.replica.misplaced:
            return 0
        try:
            with source.open(segment.index.path) as index, source.open(log.path) as file:
                return start_position(file, index, segment.base_offset, offset)
        except SourceError:
            return 0  # the log may be readable without its index

    def _put_right(self, chunk: "BatchChunk", segment: "SegmentFiles") -> "tuple[Ints, dict[int, Callable[[bytes], bytes]]]":
        """The chunk's columns with the offsets that belong there, and how to put right the bytes of batches where others stand."""
        moved = {misplaced.position: misplaced for misplaced in self.replica.misplaced if misplaced.segment == segment.base_offset}
        if not moved:
            return chunk.columns, {}
        right = put_right(chunk, {position: misplaced.offset for position, misplaced in moved.items()})
        return right.columns, {position: misplaced.rewritten for position, misplaced in moved.items()}

    def _whole(self, log: "Entry", file: "ByteFile", facts: list[int]) -> bytes | None:
        """A batch that is in a bundle, or is very large; None where it cannot be had, which is said."""
        path, position = typed_path(self.plan.log_dir.source, log.path), facts[BatchColumn.POSITION]
        if not isinstance(file, CollectedLog):
            size = facts[BatchColumn.SIZE_IN_BYTES]
            self._say(path, f"batch of {size} bytes at byte {position} is too large to be opened")
            return None
        data = file.batch(position)
        if data is not None and len(data) == facts[BatchColumn.SIZE_IN_BYTES]:
            return data
        self._say(path, file.needs_records(self.asked).reason)
        return None

    def _say(self, path: str, reason: str) -> None:
        context = self.replica.context
        gap = Incomplete(path, reason, context.topic, context.partition, context.broker)
        if gap not in self.incomplete:
            self.incomplete.append(gap)


# How transactions ended: by the markers behind their records, and where there is none by the coordinators' log.


class Endings:
    """The markers of some offsets of one log, read when the first record of a transaction is met."""

    def __init__(
        self, log: ReadLog, offsets: tuple[int, int], doubtful: Ranges, *, open_end: bool, coordinators: TransactionLog | None
    ) -> None:
        """`doubtful` are offsets whose bytes may have been markers, `open_end` says that more may stand behind the last batch."""
        self._log, self._offsets, self._doubtful, self._open_end = log, offsets, doubtful, open_end
        self._coordinators = coordinators
        self._markers: tuple[Ints, Ints, Ints] | None = None
        self._is_cut = False

    def state(self, facts: Sequence[int]) -> str:
        """none, committed, aborted, open or unknown, of the records of a batch by BatchColumn."""
        column = np.array(facts, np.int64)[:, None]
        if not in_transactions(column)[0]:
            return NONE
        producer_id, last = facts[BatchColumn.PRODUCER_ID], facts[BatchColumn.LAST_OFFSET]
        if self._markers is None:
            self._markers = self._read()
        producers, offsets, kinds = self._markers
        first, behind = (int(np.searchsorted(producers, producer_id, side=side)) for side in ("left", "right"))
        at = first + int(np.searchsorted(offsets[first:behind], last, side="right"))
        marker = int(offsets[at]) if at < behind else INT64_MAX
        if any(start < marker and end > last + 1 for start, end in self._doubtful):
            return UNKNOWN
        if at < behind:
            return _ENDING[int(kinds[at])]
        return UNKNOWN if self._open_end or self._is_cut else self._decided(facts)

    def _read(self) -> "tuple[Ints, Ints, Ints]":
        """(producer id, offset, kind) of every marker, by producer and offset."""
        parts, held = [np.empty((3, 0), np.int64)], 0
        for columns in self._log.headers((self._offsets,)):
            control = columns[BatchColumn.CONTROL_RECORD_TYPE]
            is_marker = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (columns[BatchColumn.MAGIC] >= 2)
            is_marker &= (control >= 0) & (control <= CONTROL_COMMIT) & (columns[BatchColumn.PRODUCER_ID] >= 0)
            is_marker &= columns[BatchColumn.LAST_OFFSET] < self._offsets[1]
            rows = np.flatnonzero(is_marker)
            self._is_cut = self._is_cut or held + rows.size > MAX_MARKERS
            rows = rows[: max(MAX_MARKERS - held, 0)]
            held += rows.size
            wanted = [BatchColumn.PRODUCER_ID, BatchColumn.LAST_OFFSET, BatchColumn.CONTROL_RECORD_TYPE]
            parts.append(columns[wanted][:, rows])
        producers, offsets, kinds = np.concatenate(parts, axis=1)
        order = np.lexsort((offsets, producers))
        return producers[order], offsets[order], kinds[order]

    def _decided(self, facts: Sequence[int]) -> str:
        """What the coordinators decided about a transaction that has no marker in the log; open where they do not say."""
        context = self._log.replica.context
        where, time_ms = (context.topic, context.partition), facts[BatchColumn.MAX_TIMESTAMP]
        decisions = () if self._coordinators is None else self._coordinators.decisions
        of_producer = [
            decision
            for decision in decisions
            if decision.producer_id == facts[BatchColumn.PRODUCER_ID]
            and where in decision.partitions
            and _may_end(decision, facts[BatchColumn.PRODUCER_EPOCH], time_ms)
        ]
        endings = {decision.commit for decision in of_producer}
        if len(endings) != 1:
            return UNKNOWN if endings else OPEN
        return COMMITTED if endings.pop() else ABORTED


def _may_end(decision: Decision, producer_epoch: int, time_ms: int) -> bool:
    """Whether a decision may be about records of an epoch and a time: since transaction version 2 the marker's epoch is one more,
    and each transaction has its own; before, it must have begun by then, and been decided later."""
    if decision.client_transaction_version >= TV2:
        return decision.producer_epoch == producer_epoch + 1
    began = decision.start_timestamp <= time_ms + SKEW_MS
    return decision.producer_epoch == producer_epoch and began and time_ms <= decision.decided_timestamp + SKEW_MS
