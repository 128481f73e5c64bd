"""`find`: every copy of the requested records, in every replica that holds it, reading no more than necessary."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import LogDir, ReplicaPlan, broker_order, require_requested_or_warn, typed_path
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.model.batches import (
    CHUNK_ROWS,
    PAYLOAD_COLUMNS,
    RECORD_TIMESTAMP_TYPES,
    BatchChunk,
    BatchColumn,
    Damage,
    Record,
    RecordColumn,
    has_right_crc,
)
from kafka_forensics.model.constants import COMPRESSION_MASK, CONTROL_MASK, INT64_MAX, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from kafka_forensics.model.json_objects import JsonRow
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.kernels.matching import mark_containing, match_records
from kafka_forensics.parsers.log import (
    HELD_BYTES,
    MAX_BATCH_BYTES,
    BatchChecks,
    FoundBlock,
    RecordMatcher,
    RecordQuery,
    SegmentReader,
    decode_batch,
    parse_control_record,
    record_query,
)
from kafka_forensics.parsers.log_dir import FileKind, PartitionDirectory, SegmentFiles, SegmentLog
from kafka_forensics.scanning.rereading.logs_in_order import OffsetCorrector, end_of_remote_segment
from kafka_forensics.scanning.rereading.seeking import chunks_until, start_position, start_position_for_time
from kafka_forensics.scanning.witnesses.remote_chains import gather_logs
from kafka_forensics.scanning.witnesses.tiered_topics import set_tiered_topics
from kafka_forensics.storage.archives import reading_order
from kafka_forensics.storage.bundles import CollectedLog, needed_records

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from kafka_forensics.analysis.segments import MisplacedBatch
    from kafka_forensics.evidence.context import ReplicaContext
    from kafka_forensics.model.arrow import ArrowArray
    from kafka_forensics.parsers.log import BatchHeader
    from kafka_forensics.storage.source import ByteFile, ByteSource


# The conditions of a search, and which batches cannot hold a match by their headers and undecoded bytes.


class Conditions(Struct, frozen=True):
    """Conditions that every record found fulfils; None (or no header) sets no condition. Ends are exclusive, times milliseconds.

    A header is (name, value), where the value None matches any. A record without a timestamp is outside every range of times.
    """

    key: bytes | None = None
    offset_start: int | None = None
    offset_end: int | None = None
    timestamp_start_ms: int | None = None
    timestamp_end_ms: int | None = None
    producer_id: int | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    value_part: bytes | None = None

    @property
    def needles(self) -> list[bytes]:
        """Bytes that occur in every batch with a match, the longest first."""
        parts = [self.key, self.value_part, *(part for header in self.headers for part in header)]
        return sorted({part for part in parts if part}, key=lambda part: (-len(part), part))

    def for_kernels(self) -> RecordQuery:
        """The conditions in the form that kernels take."""
        offsets, times = (self.offset_start, self.offset_end), (self.timestamp_start_ms, self.timestamp_end_ms)
        return record_query(offsets, times, key=self.key, value_part=self.value_part, headers=self.headers)

    @property
    def _has_time(self) -> bool:
        return self.timestamp_start_ms is not None or self.timestamp_end_ms is not None

    def batches(self, columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Which batches of a (BATCH_COLUMNS, n) matrix may hold a match by their headers alone.

        The base timestamp belongs to the first record and need not be the smallest: only the maximum excludes a batch, and only if
        the CRC is right. The header of a compressed message of magic 0 or 1 says nothing about the messages inside.
        """
        magic, attributes = columns[BatchColumn.MAGIC], columns[BatchColumn.ATTRIBUTES]
        wrapper = (magic < 2) & ((attributes & COMPRESSION_MASK) != 0)
        may = np.ones(columns.shape[1], np.bool_)
        if self.offset_start is not None:
            may &= columns[BatchColumn.LAST_OFFSET] >= self.offset_start
        if self.offset_end is not None:
            may &= (columns[BatchColumn.BASE_OFFSET] < self.offset_end) | wrapper
        if self.producer_id is not None:
            may &= columns[BatchColumn.PRODUCER_ID] == self.producer_id
        if self._has_time:
            last = columns[BatchColumn.MAX_TIMESTAMP]
            unsure = ~has_right_crc(columns) | wrapper
            may &= (last >= (self.timestamp_start_ms or 0)) | unsure
            if self.timestamp_end_ms is not None:
                is_append_time = (magic >= 2) & ((attributes & TIMESTAMP_TYPE_MASK) != 0)
                may &= ~is_append_time | (last < self.timestamp_end_ms) | unsure
        return may

    def records(
        self, header: "BatchHeader", window: bytes | memoryview | None, columns: "NDArray[np.int64]"
    ) -> "NDArray[np.bool_]":
        """Which records of a magic 2 batch may match by offset, timestamp and sizes, and by the bytes in `window` if there is one.

        `columns` is a (RECORD_COLUMNS, n) matrix whose positions count in `window`.
        """
        may = np.ones(columns.shape[1], np.bool_)
        offsets = columns[RecordColumn.OFFSET_DELTA] + np.int64(header.base_offset)
        if self.offset_start is not None:
            may &= offsets >= self.offset_start
        if self.offset_end is not None:
            may &= offsets < self.offset_end
        if self._has_time:
            is_append_time = header.attributes & TIMESTAMP_TYPE_MASK
            deltas = columns[RecordColumn.TIMESTAMP_DELTA]
            times = np.full_like(deltas, header.max_timestamp) if is_append_time else deltas + np.int64(header.base_timestamp)
            may &= times != NO_TIMESTAMP
            if self.timestamp_start_ms is not None:
                may &= times >= self.timestamp_start_ms
            if self.timestamp_end_ms is not None:
                may &= times < self.timestamp_end_ms
        if self.key is not None:
            may &= columns[RecordColumn.KEY_LENGTH] == len(self.key)
        if self.value_part is not None:
            may &= columns[RecordColumn.VALUE_LENGTH] >= len(self.value_part)
        if self.headers:
            may &= columns[RecordColumn.HEADERS_COUNT] > 0
        rows = np.flatnonzero(may)
        if window is None or not self.needles or not rows.size:
            return may
        starts, sizes = columns[RecordColumn.POSITION, rows], columns[RecordColumn.SIZE_IN_BYTES, rows]
        low, high = int(starts[0]), int(starts[-1] + sizes[-1])
        may[rows] = False
        may[rows[holding(bytes(window[low:high]), (starts - low).tolist(), sizes.tolist(), self.needles)]] = True
        return may

    def fits(self, record: Record) -> bool | None:
        """Whether a record matches; None if its content matters and is too large to be held."""
        if not _within(record.offset, self.offset_start, self.offset_end):
            return False
        has_time = record.timestamp != NO_TIMESTAMP
        if self._has_time and not (has_time and _within(record.timestamp, self.timestamp_start_ms, self.timestamp_end_ms)):
            return False
        if self.key is not None and record.key_length != len(self.key):
            return False
        if self.value_part is not None and record.value_length < len(self.value_part):
            return False
        if record.is_oversized:
            return None if self.key is not None or self.headers or self.value_part is not None else True
        if self.key is not None and record.key != self.key:
            return False
        if self.value_part is not None and self.value_part not in (record.value or b""):
            return False
        return all(
            any(found == name and value in (None, content) for found, content in record.headers) for name, value in self.headers
        )


def _within(number: int, start: int | None, end: int | None) -> bool:
    return (start is None or number >= start) and (end is None or number < end)


def holding(data: bytes, starts: Sequence[int], sizes: Sequence[int], needles: Sequence[bytes]) -> list[int]:
    """Indices of the ranges `[start, start + size)` of `data`, ascending and disjoint, that hold every needle whole.

    One pass finds the first needle; the others are looked for only where it was found.
    """
    if not needles:
        return list(range(len(starts)))
    first, *others = needles
    indexes = []
    at = data.find(first, starts[0]) if starts else -1
    while at >= 0:
        index = bisect_right(starts, at) - 1
        end = starts[index] + sizes[index]
        if at + len(first) <= end:
            if all(data.find(needle, starts[index], end) >= 0 for needle in others):
                indexes.append(index)
            at = end - 1  # this range needs no second find
        elif at >= end:
            if index + 1 == len(starts):
                break
            at = starts[index + 1] - 1
        at = data.find(first, at + 1)
    return indexes


Progress = Callable[[int, int], None]
"""Called as `progress(bytes_done, bytes_total)`."""

FOUND_COLUMNS: Final = (
    *("topic", "partition", "broker", "offset", "timestamp", "timestamp_type", "partition_leader_epoch", "producer_id"),
    *("producer_epoch", "sequence", "key_size", "value_size", "is_valid", "control_record_type", "file", "position", "leftover"),
    "value_digest",
)
"""Columns of a row: `position` is that of the record's batch in `file`, `leftover` the suffix of a file outside the live log,
`value_digest` the SHA-256 of the value, None for null."""
HELD_ROWS_BYTES: Final = 32 << 20
"""Limit, roughly, for held rows of sources that cannot seek; segments with more are read a second time."""
_ROW_BYTES: Final = 1 << 10
_HEADER_BYTES: Final = 1 << 7
_FEW_OFFSETS: Final = 1 << 16
_BYTES_FOR_FEW: Final = 256 << 10
_MIN_HELD_BYTES: Final = 256 << 10
_SHOWN_BYTES: Final = 32 << 20
"""Records found wait for at most this many bytes of a file, at its beginning for fewer."""


def found_columns(*, payloads: bool) -> tuple[str, ...]:
    """Columns of the rows of a search."""
    return FOUND_COLUMNS + PAYLOAD_COLUMNS if payloads else FOUND_COLUMNS


_Order = tuple[str, int, tuple[int, int, str, str, str, str], int, str, str]
"""Topic, partition, replica, base offset, suffix of a leftover, file."""


class _LogFile(Struct, frozen=True):
    """A `.log` file to search; `leftover` is None in a live log, else the suffix of a file that is being deleted or swapped in."""

    topic: str
    partition: int
    log_dir: LogDir
    directory: PartitionDirectory
    log: SegmentLog
    leftover: str | None

    @property
    def order(self) -> _Order:
        """Place in the answer: topic, partition, broker, offset; leftovers after the live log."""
        log_dir, directory = self.log_dir, self.directory
        replica = (*broker_order(log_dir.broker), log_dir.name, directory.suffix or "", directory.name)
        return self.topic, self.partition, replica, self.log.segment.base_offset, self.leftover or "", self.path

    @property
    def source(self) -> "ByteSource":
        return self.log_dir.source

    @property
    def path(self) -> str:
        return self.log.entry.path

    @property
    def shown(self) -> str:
        """The path as a person would type it."""
        return typed_path(self.source, self.path)

    @property
    def replica(self) -> str:
        if self.log_dir.broker == REMOTE:
            return f"{self.topic}-{self.partition} in remote storage"
        return f"{self.topic}-{self.partition} on broker {self.log_dir.broker}"


@dataclass(slots=True)
class Search:
    """A search in `pieces`, the `.log` files: `rows` yields the records, the other fields describe what was searched.

    `payloads` adds keys, values and headers to the rows, `limit` ends the search early.
    """

    conditions: Conditions
    log_files: list[_LogFile]
    payloads: bool = False
    limit: int | None = None
    sources: "list[ByteSource]" = field(default_factory=list)
    plans: list[ReplicaPlan] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    damaged_places: int = 0
    """Places with bytes of which no record could be read; `scan` describes them."""
    found: int = 0
    bytes_total: int = field(init=False)
    """Size of all files to search."""
    _begun: int = 0
    _done: int = 0
    _progress: Progress | None = None
    _plan_of: dict[int, ReplicaPlan] = field(init=False)
    """Plans by the identity of their directories."""

    def __post_init__(self) -> None:
        self.bytes_total = sum(file.log.entry.size_in_bytes for file in self.log_files)
        self._plan_of = {id(plan.directory): plan for plan in self.plans}

    @property
    def in_remote_storage(self) -> dict[tuple[str, int], int]:
        """Partitions with requested offsets that may be in remote storage, which was not given → first offset on a disk."""
        first: dict[tuple[str, int], int] = {}
        with_store = {plan.context.topic_partition for plan in self.plans if plan.context.is_remote}
        for context in (plan.context for plan in self.plans):
            key = context.topic_partition
            if context.is_tiered and context.segment_base_offsets and key not in with_store:
                first[key] = min(context.segment_base_offsets[0], first.get(key, INT64_MAX))
        start = self.conditions.offset_start or 0
        return {key: local_start for key, local_start in first.items() if start < local_start}

    @property
    def missing_in_stores(self) -> dict[tuple[str, int], Ranges]:
        """Partitions with requested offsets between the log start and the local logs that no object of the given stores has."""
        replicas: dict[tuple[str, int], list[ReplicaContext]] = {}
        stored: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for plan in self.plans:
            if plan.context.is_remote:
                logs = plan.directory.logs()
                ranges = [(log.base_offset, end_of_remote_segment(plan, log, INT64_MAX)) for log in logs]
                stored.setdefault(plan.context.topic_partition, []).extend(ranges)
            elif plan.context.segment_base_offsets:
                replicas.setdefault(plan.context.topic_partition, []).append(plan.context)
        missing = {}
        for key in stored.keys() & replicas.keys():
            log_starts = [context.log_start_checkpoint for context in replicas[key]]
            start = max((start for start in log_starts if start is not None), default=min(stored[key])[0])
            local_start = min(context.segment_base_offsets[0] for context in replicas[key])
            before_local = ((start, local_start),) if start < local_start else ()
            lacking = without(before_local, normalised(stored[key]))
            end = INT64_MAX if self.conditions.offset_end is None else self.conditions.offset_end
            missing[key] = clipped(lacking, self.conditions.offset_start or 0, end)
        return {key: missing[key] for key in sorted(missing) if missing[key]}

    @property
    def stopped(self) -> bool:
        """Whether the limit ended the search."""
        return self.limit is not None and self.found >= self.limit

    @property
    def replicas(self) -> list[str]:
        """Every replica to search, as `topic-partition on broker N`, in the order of the search."""
        return list(dict.fromkeys(file.replica for file in self.log_files))

    @property
    def not_reached(self) -> list[str]:
        """Replicas that were not searched at all when the limit ended the search, in order."""
        reached = {file.replica for file in self.log_files[: self._begun]}
        return [replica for replica in self.replicas if replica not in reached] if self.stopped else []

    def rows(self, progress: Progress | None = None) -> Iterator[JsonRow]:
        """Every record that fulfils the conditions, by topic, partition, broker and, within each file, in file order.

        Files are read while the rows are consumed; afterwards `incomplete` lists what could not be read.
        """
        columns = found_columns(payloads=self.payloads)
        for run in self.runs(progress):
            if isinstance(run, FoundRecords):
                yield from run.rows(columns)
            else:
                yield run

    def runs(self, progress: Progress | None = None) -> "Iterator[JsonRow | FoundRecords]":
        """The same rows; consecutive ones that kernels found come as columns."""
        self._progress = progress
        start, end = self.conditions.offset_start or 0, self.conditions.offset_end
        few = end is not None and end - start <= _FEW_OFFSETS
        sizes = ((file.log.entry.size_in_bytes, few and file.source.seekable) for file in self.log_files)
        compile_as_needed(sum(min(size, _BYTES_FOR_FEW) if is_small else size for size, is_small in sizes))
        packed = self._rows_of_packed()
        for file in self.log_files:
            if self.stopped:
                break
            self._begun += 1
            held = packed.pop(file.order, None)
            for row in self._rows_of(file) if held is None else held:
                run = row if isinstance(row, tuple) or self.limit is None else row.first(self.limit - self.found)
                self.found += 1 if isinstance(run, tuple) else run.table.num_rows
                yield run
                if self.stopped:
                    break
        self.incomplete += [Incomplete(source.name, problem) for source in self.sources for problem in source.problems]

    def _rows_of_packed(self) -> "dict[_Order, list[JsonRow | FoundRecords]]":
        """Rows of files in sources that cannot seek, read in archive order, one inflation each; not of files with too many rows."""
        by_source: dict[int, tuple[ByteSource, dict[str, _LogFile]]] = {}
        for file in self.log_files:
            if not file.source.seekable:
                _, files = by_source.setdefault(id(file.source), (file.source, {}))
                files[file.path] = file
        packed: dict[_Order, list[JsonRow | FoundRecords]] = {}
        left = HELD_ROWS_BYTES
        for source, files in by_source.values():
            for path in reading_order(source, files):
                before = (len(self.incomplete), self.damaged_places, self._done)
                held: list[JsonRow | FoundRecords] = []
                records = 0
                for row in self._rows_of(files[path]):
                    held.append(row)
                    records += 1 if isinstance(row, tuple) else row.table.num_rows
                    left -= _held_bytes(row)
                    if left < 0 or (self.limit is not None and records >= self.limit):
                        break
                if left >= 0:
                    packed[files[path].order] = held
                else:  # the second reading reports the same problems
                    del self.incomplete[before[0] :]
                    _, self.damaged_places, self._done = before
                    left = 0
        return packed

    def _rows_of(self, file: _LogFile) -> "Iterator[JsonRow | FoundRecords]":
        """Rows of one file, up to where it cannot be read; skipped if its name and the next segment's exclude the offsets."""
        start, end = self.conditions.offset_start, self.conditions.offset_end
        is_before_end = end is None or file.log.segment.base_offset < end
        if is_before_end and (start is None or file.log.reaches(start)):
            candidates = _Candidates(self.conditions)
            try:
                with file.source.open(file.path) as log:
                    yield from self._rows_in(file, log, candidates)
            except SourceError as error:
                self.incomplete.append(Incomplete(file.shown, error.reason, needed=needed_records(error)))
            yield from map(partial(self._table, file), candidates.rest())
        self._report(file, file.log.entry.size_in_bytes)
        self._done += file.log.entry.size_in_bytes

    def _report(self, file: _LogFile, position: int) -> None:
        if self._progress is not None:
            self._progress(self._done + min(position, file.log.entry.size_in_bytes), self.bytes_total)

    def _rows_in(self, file: _LogFile, log: "ByteFile", candidates: "_Candidates") -> "Iterator[JsonRow | FoundRecords]":
        inspect = None if isinstance(log, CollectedLog) else candidates.inspect
        reader = SegmentReader(log, max_plausible_offset=file.log.max_plausible_offset, inspect=inspect)
        start = shown = self._start(file, log)
        base_offset = file.log.segment.base_offset
        plan = self._plan_of.get(id(file.directory)) if file.leftover is None else None  # no other file shows a leftover's end
        placing = OffsetCorrector(log, base_offset, None if start else base_offset, file.log.next_base_offset, plan)
        for chunk in chunks_until(reader, start, log.size_in_bytes, self.conditions.offset_end):
            self.damaged_places += sum(damage.kind not in kinds_with(Trait.RECORDS_READ_ANYWAY) for damage in chunk.damage)
            corrected, moved = placing.correct_base_offsets(chunk)
            for candidate in candidates.of(chunk, corrected, moved):
                if isinstance(candidate, FoundBlock):
                    yield self._table(file, candidate)
                else:
                    yield from self._rows_of_batch(file, log, candidate, moved)
            if self.limit is not None or reader.end_position - shown >= min(shown - start, _SHOWN_BYTES):
                yield from map(partial(self._table, file), candidates.rest())
                shown = reader.end_position
            self._report(file, reader.end_position)

    def _start(self, file: _LogFile, log: "ByteFile") -> int:
        segment, conditions, start = file.log.segment, self.conditions, 0
        if segment.index is None or not file.source.seekable:
            return start
        offset, time_ms = conditions.offset_start, conditions.timestamp_start_ms
        try:
            with file.source.open(segment.index.path) as index:
                start = 0 if offset is None else start_position(log, index, segment.base_offset, offset)
                if time_ms is not None and segment.time_index is not None:
                    with file.source.open(segment.time_index.path) as time_index:
                        start = max(start, start_position_for_time(log, index, time_index, segment.base_offset, time_ms))
        except SourceError:
            pass  # the log may be readable without its indexes
        return start

    def _rows_of_batch(
        self, file: _LogFile, log: "ByteFile", candidate: "_CandidateBatch", moved: "dict[int, MisplacedBatch]"
    ) -> Iterator[JsonRow]:
        column, data = candidate
        position, size, conditions = column[BatchColumn.POSITION], column[BatchColumn.SIZE_IN_BYTES], self.conditions
        if data is None and size > MAX_BATCH_BYTES:
            reason = f"batch of {size} bytes at byte {position} is too large to be searched"
            self.incomplete.append(Incomplete(file.shown, reason))
            return
        if isinstance(log, CollectedLog) and log.batch(position) is None:
            end = INT64_MAX if conditions.offset_end is None else conditions.offset_end
            raise log.missing_records_error((max(column[BatchColumn.BASE_OFFSET], conditions.offset_start or 0), end))
        data = log.read_at(position, size) if data is None else data
        data = moved[position].rewritten(data) if position in moved else data
        decoded = decode_batch(data, position=position, needles=conditions.needles)
        self.damaged_places += bool(decoded.problems)
        if decoded.legacy is not None and decoded.legacy.is_wrapper and len(decoded.payload) < HELD_BYTES:  # held whole
            payload = bytes(decoded.payload)
            if not all(needle in payload for needle in conditions.needles):
                return
        is_control = column[BatchColumn.MAGIC] >= 2 and bool(column[BatchColumn.ATTRIBUTES] & CONTROL_MASK)
        for record in decoded.iter_records(conditions.records):
            fits = conditions.fits(record)
            if fits is None:
                reason = f"record at offset {record.offset} is too large to be searched"
                self.incomplete.append(Incomplete(file.shown, reason))
            if fits:
                control = parse_control_record(record.key, record.value).name if is_control else None
                yield self._row(file, column, record, control)

    def _table(self, file: _LogFile, found: FoundBlock) -> "FoundRecords":
        """The records of a block, copied because its buffers are used again; all are of magic 2, none is a control record."""
        import pyarrow as pa

        from kafka_forensics.model.arrow import numbers
        from kafka_forensics.scanning.rereading.record_columns import byte_strings, header_lists, texts_by_index

        batches, block = found
        assert block.payload is not None
        columns = block.columns
        values = byte_strings(block.payload, columns[RecordColumn.VALUE_POSITION], columns[RecordColumn.VALUE_LENGTH])
        arrays: dict[str, ArrowArray] = {
            "offset": numbers(block.offsets),
            "timestamp": numbers(block.timestamps),
            "timestamp_type": texts_by_index(block.timestamp_types, RECORD_TIMESTAMP_TYPES),
            "partition_leader_epoch": numbers(batches[BatchColumn.PARTITION_LEADER_EPOCH]),
            "producer_id": numbers(batches[BatchColumn.PRODUCER_ID]),
            "producer_epoch": numbers(batches[BatchColumn.PRODUCER_EPOCH]),
            "sequence": numbers(block.sequences),
            "key_size": numbers(columns[RecordColumn.KEY_LENGTH].copy()),
            "value_size": numbers(columns[RecordColumn.VALUE_LENGTH].copy()),
            "is_valid": numbers(has_right_crc(batches)),
            "position": numbers(batches[BatchColumn.POSITION]),
            "value_digest": _digests(values),
        }
        if self.payloads:
            arrays["key"] = byte_strings(block.payload, columns[RecordColumn.KEY_POSITION], columns[RecordColumn.KEY_LENGTH])
            arrays["value"] = values
            arrays["headers"] = header_lists(block.payload, columns)
        same = {
            "topic": file.topic,
            "partition": file.partition,
            "broker": file.log_dir.broker,
            "control_record_type": None,
            "file": file.shown,
            "leftover": file.leftover,
        }
        return FoundRecords(same, pa.RecordBatch.from_pydict(arrays))

    def _row(self, file: _LogFile, column: list[int], record: Record, control: str | None) -> JsonRow:
        return (
            file.topic,
            file.partition,
            file.log_dir.broker,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            column[BatchColumn.PARTITION_LEADER_EPOCH],
            column[BatchColumn.PRODUCER_ID],
            column[BatchColumn.PRODUCER_EPOCH],
            record.sequence,
            record.key_length,
            record.value_length,
            column[BatchColumn.CRC] == column[BatchColumn.CRC_COMPUTED],
            control,
            file.shown,
            column[BatchColumn.POSITION],
            file.leftover,
            None if record.value is None else hashlib.sha256(record.value).hexdigest(),
            *((record.key, record.value, record.headers) if self.payloads else ()),
        )


class FoundRecords(Struct, frozen=True):
    """Rows of one file as columns: `same` has the values that are equal in all rows, `table` the other columns by name."""

    same: dict[str, object]
    table: "pa.RecordBatch"

    def first(self, count: int) -> "FoundRecords":
        """At most `count` rows from the beginning."""
        return FoundRecords(self.same, self.table.slice(0, count))

    def rows(self, columns: Sequence[str]) -> Iterator[JsonRow]:
        """The rows as tuples of these columns."""
        count = self.table.num_rows
        values: list[list[Any]] = [
            [self.same[name]] * count if name in self.same else self.table.column(name).to_pylist() for name in columns
        ]
        if "headers" in columns:
            headers = columns.index("headers")
            values[headers] = [tuple((pair["key"], pair["value"]) for pair in pairs) for pairs in values[headers]]
        return zip(*values, strict=True)


_DIGEST_BYTES: Final = 32
_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)


def _digests(values: "ArrowArray") -> "ArrowArray":
    """SHA-256 of each binary value in hexadecimal, null for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    buffers: Any = values.buffers()
    _, offsets, data = buffers
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].tolist()
    view = memoryview(data or b"")
    sha256 = hashlib.sha256
    binary = b"".join([sha256(view[start:end]).digest() for start, end in pairwise(edges)])
    digits = _HEX[np.frombuffer(binary, np.uint8)]
    places = np.arange(0, (len(values) + 1) * 2 * _DIGEST_BYTES, 2 * _DIGEST_BYTES, dtype=np.int32)
    is_null = values.is_null() if values.null_count else None
    digests = pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(places.data), pa.py_buffer(digits.data)])
    return digests if is_null is None else pc.if_else(is_null, None, digests)


def _held_bytes(row: "JsonRow | FoundRecords") -> int:
    """Estimate of the memory that one row or several take."""
    if isinstance(row, FoundRecords):
        return _ROW_BYTES + row.table.nbytes
    key, value, headers = row[len(FOUND_COLUMNS) :] or (None, None, ())
    inside = sum(_HEADER_BYTES + len(name) + len(content or b"") for name, content in headers)
    return _ROW_BYTES + len(key or b"") + len(value or b"") + inside


COMPILED_AFTER_BATCHES: Final = 4 << 10
"""Batches decoded one by one, which took about as long as compiling the kernel."""
_CandidateBatch = tuple[list[int], bytes | None]
"""A batch as a list by BatchColumn, and its bytes; None where they are not read yet."""


class _Candidates:
    """Batches of a chunk that may hold a match, with their bytes, which are copied while the reader has them in its buffer."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._kernel_query = conditions.for_kernels()
        self._matcher = RecordMatcher(self._kernel_query)
        self._open_wrappers = BatchChecks(deep=False)
        self._inspected = np.zeros(CHUNK_ROWS, np.bool_)
        self._held = np.empty(_MIN_HELD_BYTES, np.uint8)
        self._used = 0
        self._one_by_one = 0
        self._places = np.full(CHUNK_ROWS, -1, np.int64)
        """By row of the chunk, where in `_held` its bytes begin; -1 for a batch that is not held."""

    def inspect(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """Keep batches that may match by their headers and, if uncompressed, hold all needles."""
        damage = self._open_wrappers(buffer, position, columns, first, end)
        self._inspected[first:end] = True
        rows = first + np.flatnonzero(self._conditions.batches(columns[:, first:end]))
        if rows.size:
            is_plain = (columns[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK) == 0
            if is_plain.any() and self._conditions.needles:
                starts = columns[BatchColumn.POSITION, rows[is_plain]] - position
                sizes = columns[BatchColumn.SIZE_IN_BYTES, rows[is_plain]]
                holding_all = np.zeros(starts.size, np.int64)
                if mark_containing.is_ready():
                    mark_containing.compiled(buffer, starts, sizes, self._kernel_query.text, self._kernel_query.spans, holding_all)
                else:
                    low, high = int(starts[0]), int(starts[-1] + sizes[-1])
                    data = buffer[low:high].tobytes()
                    holding_all[holding(data, (starts - low).tolist(), sizes.tolist(), self._conditions.needles)] = True
                may_match = ~is_plain
                may_match[is_plain] = holding_all.astype(np.bool_)
                rows = rows[may_match]
            for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
                self._keep(buffer, columns[BatchColumn.POSITION, run] - position, columns[BatchColumn.SIZE_IN_BYTES, run], run)
        return damage

    def _keep(
        self, buffer: "NDArray[np.uint8]", starts: "NDArray[np.int64]", sizes: "NDArray[np.int64]", rows: "NDArray[np.int64]"
    ) -> None:
        """Copy the bytes of the batches of these rows, which are adjacent."""
        if not rows.size:
            return
        low, high = int(starts[0]), int(starts[-1] + sizes[-1])
        used = self._used + high - low
        if used > self._held.size:
            grown = np.empty(max(2 * self._held.size, used), np.uint8)
            grown[: self._used] = self._held[: self._used]
            self._held = grown
        self._held[self._used : used] = buffer[low:high]
        self._places[rows] = self._used + starts - low
        self._used = used

    def of(
        self, chunk: BatchChunk, corrected: BatchChunk, moved: "dict[int, MisplacedBatch]"
    ) -> Iterator[FoundBlock | _CandidateBatch]:
        """The batches of a chunk to decode, in order, and the records that kernels match, some of which may wait for `rest`.

        `corrected` is the chunk with the right offsets, `moved` the batches with wrong ones. At the end the bytes are dropped.
        """
        columns = corrected.columns
        places = self._places[: chunk.rows]
        is_moved = np.isin(columns[BatchColumn.POSITION], list(moved)) if moved else np.zeros(chunk.rows, np.bool_)
        is_unseen = ~self._inspected[: chunk.rows] | is_moved
        is_wanted = (places >= 0) & ~is_moved
        if is_unseen.any():
            is_wanted |= is_unseen & self._conditions.batches(columns)
        rows = np.flatnonzero(is_wanted)
        is_control = columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0
        by_kernel = match_records.is_ready(is_long=self._one_by_one > COMPILED_AFTER_BATCHES)
        one_by_one = (is_unseen | is_control | (columns[BatchColumn.MAGIC] < 2) | (not by_kernel))[rows]
        self._one_by_one += int(one_by_one.sum())
        for run in np.split(rows, np.flatnonzero(np.diff(one_by_one)) + 1):
            if run.size and one_by_one[np.searchsorted(rows, run[0])]:
                yield from self.rest()
                for row in run.tolist():
                    yield self._candidate(columns, row, None if is_unseen[row] else places[row])
            elif run.size:
                for found in self._matcher.blocks(columns, run, self._held, places):
                    yield found if isinstance(found, FoundBlock) else self._candidate(columns, found[0], places[found[0]])
        self._used = 0
        self._places[:] = -1
        self._inspected[:] = False

    def rest(self) -> Iterator[FoundBlock]:
        return self._matcher.rest()

    def _candidate(self, columns: "NDArray[np.int64]", row: int, place: int | None) -> _CandidateBatch:
        size = int(columns[BatchColumn.SIZE_IN_BYTES, row])
        return columns[:, row].tolist(), None if place is None else self._held[place : place + size].tobytes()


def search(
    paths: list[str], options: ScanOptions, conditions: Conditions, *, payloads: bool = False, limit: int | None = None
) -> Search:
    """Prepare a search of everything at `paths` that `options` select (topic, partition, broker).

    It includes files that are being deleted or swapped in: they may hold the last copy. Raises UsageError for invalid paths.
    """
    inputs = gather_logs(paths, options)
    require_requested_or_warn(inputs, options)
    set_tiered_topics(inputs, None)
    files = [
        file
        for log_dir in inputs.log_dirs
        if options.broker is None or str(log_dir.broker) == options.broker
        for directory in log_dir.found.partitions
        if directory.legal and fits((directory.topic or "", directory.partition), options)
        for file in _log_files(log_dir, directory)
    ]
    files += [file for plan in inputs.remote for file in _log_files(plan.log_dir, plan.directory)]
    files.sort(key=lambda file: file.order)
    return Search(conditions, files, payloads, limit, inputs.sources, inputs.logs, list(inputs.incomplete))


def _log_files(log_dir: LogDir, directory: PartitionDirectory) -> Iterator[_LogFile]:
    """The `.log` files of one partition directory, leftovers last."""
    topic, partition = directory.topic or "", directory.partition or 0
    for log in directory.logs():
        yield _LogFile(topic, partition, log_dir, directory, log, directory.suffix)
    for leftover in directory.leftovers:
        if leftover.kind is FileKind.LOG:
            log = SegmentLog(SegmentFiles(leftover.base_offset or 0, log=leftover.entry), leftover.entry, None)
            yield _LogFile(topic, partition, log_dir, directory, log, leftover.suffix)
