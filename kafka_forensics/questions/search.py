"""`find`: every copy of the records that are asked for, in every replica that holds it, read no further than it must be."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import LogDir, ReplicaPlan, broker_order, gather, typed_path
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
)
from kafka_forensics.model.constants import COMPRESSION_MASK, CONTROL_MASK, INT64_MAX, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from kafka_forensics.model.json_objects import JsonRow
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.kernels.matching import mark_holding, match_records
from kafka_forensics.parsers.log import (
    HELD_BYTES,
    MAX_BATCH_BYTES,
    FoundBlock,
    RecordMatcher,
    SegmentReader,
    Sought,
    decode_batch,
    inspector,
    parse_control_record,
    sought,
)
from kafka_forensics.parsers.log_dir import FileKind, PartitionDirectory, SegmentFiles, SegmentLog
from kafka_forensics.scanning.rereading.logs_in_order import Placing
from kafka_forensics.scanning.rereading.seeking import chunks_until, start_position, start_position_for_time
from kafka_forensics.scanning.witnesses.tiered_topics import take_tiered_topics
from kafka_forensics.storage.archives import reading_order

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from kafka_forensics.analysis.segments import Misplaced
    from kafka_forensics.model.arrow import ArrowArray
    from kafka_forensics.parsers.log import BatchHeader, DecodedBatch
    from kafka_forensics.storage.source import ByteFile, ByteSource


# What a search asks of a record, and which batches cannot hold such a one: their headers and bytes say so undecoded.


@dataclass(frozen=True, slots=True)
class Conditions:
    """What every record found must fulfil; None (or no header) is "not asked". Ends are exclusive, times milliseconds.

    A header is (name, value), a value of None is any. A record without a timestamp lies in no range of times.
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
    def asks_time(self) -> bool:
        """Whether a range of times is asked for."""
        return self.timestamp_start_ms is not None or self.timestamp_end_ms is not None

    @property
    def asks_content(self) -> bool:
        """Whether keys, values or headers must be looked at."""
        return bool(self.key is not None or self.headers or self.value_part is not None)

    @property
    def needles(self) -> list[bytes]:
        """What must stand somewhere in the bytes of a batch that holds a match, the longest first."""
        parts = [self.key, self.value_part, *(part for header in self.headers for part in header)]
        return sorted({part for part in parts if part}, key=lambda part: (-len(part), part))

    def of_records(self) -> Sought:
        """What is asked of records, for the kernels."""
        return sought(
            (self.offset_start, self.offset_end),
            (self.timestamp_start_ms, self.timestamp_end_ms),
            key=self.key,
            value_part=self.value_part,
            headers=self.headers,
        )

    def batches(self, columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Which batches of a chunk's matrix may hold a match by their headers alone.

        The base timestamp is that of the first record and not the least, so only the maximum proves anything, and only under a
        right CRC. What a compressed message of the old formats holds is not told by its header.
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
        if self.asks_time:
            last = columns[BatchColumn.MAX_TIMESTAMP]
            unsure = (columns[BatchColumn.CRC] != columns[BatchColumn.CRC_COMPUTED]) | wrapper
            may &= (last >= (self.timestamp_start_ms or 0)) | unsure
            if self.timestamp_end_ms is not None:
                appended = (magic >= 2) & ((attributes & TIMESTAMP_TYPE_MASK) != 0)
                may &= ~appended | (last < self.timestamp_end_ms) | unsure
        return may

    def records(
        self, header: "BatchHeader", window: bytes | memoryview | None, columns: "NDArray[np.int64]"
    ) -> "NDArray[np.bool_]":
        """Which records of a magic 2 batch, a (RECORD_COLUMNS, n) matrix whose positions count in `window`, may fit.

        By their offsets, timestamps and sizes, and by what stands in their bytes; without a window nothing stands there.
        """
        may = np.ones(columns.shape[1], np.bool_)
        offsets = columns[RecordColumn.OFFSET_DELTA] + np.int64(header.base_offset)
        if self.offset_start is not None:
            may &= offsets >= self.offset_start
        if self.offset_end is not None:
            may &= offsets < self.offset_end
        if self.asks_time:
            by_broker = header.attributes & TIMESTAMP_TYPE_MASK
            deltas = columns[RecordColumn.TIMESTAMP_DELTA]
            times = np.full_like(deltas, header.max_timestamp) if by_broker else deltas + np.int64(header.base_timestamp)
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
        return may if window is None else _with_needles(window, columns, may, self.needles)

    def fits(self, record: Record) -> bool | None:
        """Whether a record of a batch that may hold a match is one; None if it is too large to be looked into."""
        if not self._may_fit(record):
            return False
        if record.is_oversized:
            return None if self.asks_content else True
        if self.key is not None and record.key != self.key:
            return False
        if self.value_part is not None and self.value_part not in (record.value or b""):
            return False
        return all(any(_same(header, wanted) for header in record.headers) for wanted in self.headers)

    def _may_fit(self, record: Record) -> bool:
        """By its offset, its timestamp and the sizes of key and value."""
        if not _within(record.offset, self.offset_start, self.offset_end):
            return False
        if self.asks_time and (
            record.timestamp == NO_TIMESTAMP or not _within(record.timestamp, self.timestamp_start_ms, self.timestamp_end_ms)
        ):
            return False
        if self.key is not None and record.key_length != len(self.key):
            return False
        return self.value_part is None or record.value_length >= len(self.value_part)


def _within(number: int, start: int | None, end: int | None) -> bool:
    return (start is None or number >= start) and (end is None or number < end)


def _same(header: tuple[bytes, bytes | None], header_asked: tuple[bytes, bytes | None]) -> bool:
    return header[0] == header_asked[0] and (header_asked[1] is None or header[1] == header_asked[1])


def holding(data: bytes, starts: Sequence[int], sizes: Sequence[int], needles: Sequence[bytes]) -> list[int]:
    """Indices of the stretches `[start, start + size)` of `data`, ascending and apart, that hold each of `needles` whole.

    One pass for the first needle, the others are looked for only where it was found.
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
            at = end - 1  # whatever else this stretch holds of it
        elif at >= end:
            if index + 1 == len(starts):
                break
            at = starts[index + 1] - 1
        at = data.find(first, at + 1)
    return indexes


def _with_needles(
    window: bytes | memoryview, columns: "NDArray[np.int64]", may: "NDArray[np.bool_]", needles: Sequence[bytes]
) -> "NDArray[np.bool_]":
    """Those records of `may` in whose bytes all needles stand."""
    rows = np.flatnonzero(may)
    if not needles or not rows.size:
        return may
    starts, sizes = columns[RecordColumn.POSITION, rows], columns[RecordColumn.SIZE_IN_BYTES, rows]
    low, high = int(starts[0]), int(starts[-1] + sizes[-1])
    kept = np.zeros_like(may)
    kept[rows[holding(bytes(window[low:high]), (starts - low).tolist(), sizes.tolist(), needles)]] = True
    return kept


def may_hold(decoded: "DecodedBatch", needles: Sequence[bytes]) -> bool:
    """Whether the payload of an opened batch holds all `needles`; one of which only a part is held may always."""
    if not needles or len(decoded.payload) >= HELD_BYTES:
        return True
    payload = decoded.payload if isinstance(decoded.payload, bytes) else bytes(decoded.payload)
    return all(needle in payload for needle in needles)


Progress = Callable[[int, int], None]
"""Called as `progress(bytes_done, bytes_total)`."""

FOUND_COLUMNS: Final = (
    "topic",
    "partition",
    "broker",
    "offset",
    "timestamp",
    "timestamp_type",
    "partition_leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "key_size",
    "value_size",
    "is_valid",
    "control_record_type",
    "file",
    "position",
    "leftover",
    "value_digest",
)
"""Of a row for a record found; `position` is that of its batch in `file`, `leftover` why the file is no part of the live log,
`value_digest` the SHA-256 of the value, None for null."""
HELD_ROWS_BYTES: Final = 32 << 20
"""Rows of sources that cannot seek are held up to about so many bytes; segments with more are read a second time."""
_ROW_BYTES: Final = 1 << 10
_HEADER_BYTES: Final = 1 << 7
_FEW_OFFSETS: Final = 1 << 16
_BYTES_FOR_FEW: Final = 256 << 10
_LEAST_HELD: Final = 256 << 10
_SHOWN_BYTES: Final = 32 << 20
"""What is found in as much is given at the latest; at the beginning of a file sooner."""


def found_columns(*, payloads: bool) -> tuple[str, ...]:
    """Columns of the rows that a search gives."""
    return FOUND_COLUMNS + PAYLOAD_COLUMNS if payloads else FOUND_COLUMNS


_Order = tuple[str, int, tuple[int, int, str, str, str, str], int, str, str]
"""Topic, partition, replica, base offset, what a leftover is, file."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One `.log` file to be searched: a segment of a live log (`leftover` None), or one on its way in or out."""

    topic: str
    partition: int
    log_dir: LogDir
    directory: PartitionDirectory
    log: SegmentLog
    leftover: str | None

    @property
    def segment(self) -> SegmentFiles:
        """The segment's files."""
        return self.log.segment

    @property
    def order(self) -> _Order:
        """Place in the answer: topic, partition, broker, offset; what is no part of the live log behind what is."""
        log_dir, directory = self.log_dir, self.directory
        where = (*broker_order(log_dir.broker), log_dir.name, directory.suffix or "", directory.name)
        return self.topic, self.partition, where, self.segment.base_offset, self.leftover or "", self.path

    @property
    def source(self) -> "ByteSource":
        """Where the file lies."""
        return self.log_dir.source

    @property
    def path(self) -> str:
        """Of the file within its source."""
        return self.log.entry.path

    @property
    def size_in_bytes(self) -> int:
        """Of the file."""
        return self.log.entry.size_in_bytes

    @property
    def shown(self) -> str:
        """The file as a person would type it."""
        return typed_path(self.source, self.path)


def _replica(piece: _Piece) -> str:
    return f"{piece.topic}-{piece.partition} on broker {piece.log_dir.broker}"


@dataclass(slots=True)
class Search:
    """A search of `pieces` for what `asked` says: `rows` gives the records, the other fields what a person should know beside.

    `payloads` adds keys, values and headers to the rows, `limit` ends them early.
    """

    asked: Conditions
    pieces: list[_Piece]
    payloads: bool = False
    limit: int | None = None
    sources: "list[ByteSource]" = field(default_factory=list)
    plans: list[ReplicaPlan] = field(default_factory=list)
    """What is known of the replicas beside their logs."""
    incomplete: list[Incomplete] = field(default_factory=list)
    damaged_places: int = 0
    """Places met that hold bytes of which no record could be read; `scan` tells of them."""
    found: int = 0
    bytes_total: int = field(init=False)
    """Of all files that are to be searched."""
    _begun: int = 0
    _done: int = 0
    _progress: Progress | None = None
    _plan_of: dict[int, ReplicaPlan] = field(init=False)
    """Plans by the identity of their directories."""

    def __post_init__(self) -> None:
        """Add up what is to be searched."""
        self.bytes_total = sum(piece.size_in_bytes for piece in self.pieces)
        self._plan_of = {id(plan.directory): plan for plan in self.plans}

    @property
    def in_remote_storage(self) -> dict[tuple[str, int], int]:
        """Partitions of tiered topics whose offsets that are asked for may be in remote storage, which is not searched → the first
        offset on a disk."""
        first: dict[tuple[str, int], int] = {}
        for plan in self.plans:
            context = plan.context
            if context.is_tiered and context.segment_base_offsets:
                key = context.topic, context.partition
                first[key] = min(context.segment_base_offsets[0], first.get(key, INT64_MAX))
        start = self.asked.offset_start or 0
        return {key: local_start for key, local_start in first.items() if start < local_start}

    @property
    def stopped(self) -> bool:
        """Whether the limit ended the search."""
        return self.limit is not None and self.found >= self.limit

    @property
    def replicas(self) -> list[str]:
        """Every replica that is to be searched, as `topic-partition on broker N`, in the order of the search."""
        return list(dict.fromkeys(map(_replica, self.pieces)))

    @property
    def not_reached(self) -> list[str]:
        """Replicas of which nothing was looked at when the limit ended the search, in order."""
        reached = {_replica(piece) for piece in self.pieces[: self._begun]}
        return [replica for replica in self.replicas if replica not in reached] if self.stopped else []

    def rows(self, progress: Progress | None = None) -> Iterator[JsonRow]:
        """Every record that fulfils the conditions, by topic, partition, broker and, within each file, as it stands there.

        Read while they are asked for. What could not be read stands in `incomplete` afterwards.
        """
        columns = found_columns(payloads=self.payloads)
        for run in self.runs(progress):
            if isinstance(run, FoundRecords):
                yield from run.rows(columns)
            else:
                yield run

    def runs(self, progress: Progress | None = None) -> "Iterator[JsonRow | FoundRecords]":
        """The same rows, many that follow each other as columns where kernels found them."""
        self._progress = progress
        compile_as_needed(sum(map(self._bytes_to_read, self.pieces)))
        packed = self._rows_of_packed()
        for piece in self.pieces:
            if self.stopped:
                break
            self._begun += 1
            held = packed.pop(piece.order, None)
            for row in self._rows_of(piece) if held is None else held:
                run = row if isinstance(row, tuple) or self.limit is None else row.first(self.limit - self.found)
                self.found += 1 if isinstance(run, tuple) else run.table.num_rows
                yield run
                if self.stopped:
                    break
        self.incomplete += [Incomplete(source.name, problem) for source in self.sources for problem in source.problems]

    def _bytes_to_read(self, piece: _Piece) -> int:
        conditions = self.asked
        few = conditions.offset_end is not None and conditions.offset_end - (conditions.offset_start or 0) <= _FEW_OFFSETS
        return min(piece.size_in_bytes, _BYTES_FOR_FEW) if few and piece.source.seekable else piece.size_in_bytes

    def _rows_of_packed(self) -> "dict[_Order, list[JsonRow | FoundRecords]]":
        """Rows of the files in sources that cannot seek, read as they lie there: one inflation each; without those of too many."""
        by_source: dict[int, tuple[ByteSource, dict[str, _Piece]]] = {}
        for piece in self.pieces:
            if not piece.source.seekable:
                _, pieces = by_source.setdefault(id(piece.source), (piece.source, {}))
                pieces[piece.path] = piece
        packed: dict[_Order, list[JsonRow | FoundRecords]] = {}
        room = HELD_ROWS_BYTES
        for source, pieces in by_source.values():
            for path in reading_order(source, pieces):
                before = (len(self.incomplete), self.damaged_places, self._done)
                held: list[JsonRow | FoundRecords] = []
                records = 0
                for row in self._rows_of(pieces[path]):
                    held.append(row)
                    records += 1 if isinstance(row, tuple) else row.table.num_rows
                    room -= _held_bytes(row)
                    if room < 0 or (self.limit is not None and records >= self.limit):
                        break
                if room >= 0:
                    packed[pieces[path].order] = held
                else:  # what is told of it now will be told when it is read again
                    del self.incomplete[before[0] :]
                    _, self.damaged_places, self._done = before
                    room = 0
        return packed

    def _rows_of(self, piece: _Piece) -> "Iterator[JsonRow | FoundRecords]":
        """Rows of one file; one that cannot be read (further) gives what was read, and says so."""
        if not self._may_hold(piece):
            self._report(piece, piece.size_in_bytes)
        else:
            candidates = _Candidates(self.asked)
            try:
                with piece.source.open(piece.path) as log:
                    yield from self._rows_in(piece, log, candidates)
            except SourceError as error:
                self.incomplete.append(Incomplete(piece.shown, error.reason))
            yield from self._waiting(piece, candidates)
            self._report(piece, piece.size_in_bytes)
        self._done += piece.size_in_bytes

    def _may_hold(self, piece: _Piece) -> bool:
        """Whether offsets asked for may lie in the file, as far as the names of it and of the next segment tell."""
        start, end = self.asked.offset_start, self.asked.offset_end
        if end is not None and piece.segment.base_offset >= end:
            return False
        return start is None or piece.log.reaches(start)

    def _report(self, piece: _Piece, position: int) -> None:
        if self._progress is not None:
            self._progress(self._done + min(position, piece.size_in_bytes), self.bytes_total)

    def _rows_in(self, piece: _Piece, log: "ByteFile", candidates: "_Candidates") -> "Iterator[JsonRow | FoundRecords]":
        reader = SegmentReader(log, max_plausible_offset=piece.log.max_plausible_offset, inspect=candidates.inspect)
        start = shown = self._start(piece, log)
        placing = self._placing(piece, log, None if start else piece.segment.base_offset)
        for chunk in chunks_until(reader, start, log.size_in_bytes, self.asked.offset_end):
            self.damaged_places += sum(damage.kind not in kinds_with(Trait.RECORDS_READ_ANYWAY) for damage in chunk.damage)
            right, moved = placing.put_right(chunk)
            for candidate in candidates.of(chunk, right, moved):
                if isinstance(candidate, FoundBlock):
                    yield self._table(piece, candidate)
                else:
                    yield from self._rows_of_candidate(piece, log, candidate, moved)
            if self.limit is not None or reader.landed - shown >= min(shown - start, _SHOWN_BYTES):
                yield from self._waiting(piece, candidates)
                shown = reader.landed
            self._report(piece, reader.landed)

    def _waiting(self, piece: _Piece, candidates: "_Candidates") -> "Iterator[FoundRecords]":
        """What was found and not yet given."""
        return (self._table(piece, found) for found in candidates.rest())

    def _rows_of_candidate(
        self, piece: _Piece, log: "ByteFile", candidate: "Candidate", moved: "dict[int, Misplaced]"
    ) -> Iterator[JsonRow]:
        column, held = candidate
        position, size = column[BatchColumn.POSITION], column[BatchColumn.SIZE_IN_BYTES]
        if held is None and size > MAX_BATCH_BYTES:
            reason = f"batch of {size} bytes at byte {position} is too large to be searched"
            self.incomplete.append(Incomplete(piece.shown, reason))
            return
        data = log.read_at(position, size) if held is None else held
        yield from self._rows_of_batch(piece, column, moved[position].rewritten(data) if position in moved else data)

    def _placing(self, piece: _Piece, log: "ByteFile", before: int | None) -> Placing:
        """What tells which batches of a file are misplaced; no other file speaks for the end of a leftover."""
        plan = self._plan_of.get(id(piece.directory)) if piece.leftover is None else None
        return Placing(log, piece.segment.base_offset, before, piece.log.next_base_offset, plan)

    def _start(self, piece: _Piece, log: "ByteFile") -> int:
        """Where to begin reading: what the indexes say, where they are there and right. A file that is none of the log has none."""
        if not piece.source.seekable:
            return 0
        start = 0
        for entry, find in ((piece.segment.index, self._by_offset), (piece.segment.time_index, self._by_time)):
            if entry is not None and piece.segment.index is not None:
                try:
                    with piece.source.open(piece.segment.index.path) as index, piece.source.open(entry.path) as own:
                        start = max(start, find(log, index, own, piece.segment.base_offset))
                except SourceError:
                    continue  # the log may be readable without its indexes
        return start

    def _by_offset(self, log: "ByteFile", index: "ByteFile", _: "ByteFile", base_offset: int) -> int:
        offset = self.asked.offset_start
        return 0 if offset is None else start_position(log, index, base_offset, offset)

    def _by_time(self, log: "ByteFile", index: "ByteFile", time_index: "ByteFile", base_offset: int) -> int:
        start = self.asked.timestamp_start_ms
        return 0 if start is None else start_position_for_time(log, index, time_index, base_offset, start)

    def _rows_of_batch(self, piece: _Piece, column: list[int], batch: bytes) -> Iterator[JsonRow]:
        position, conditions = column[BatchColumn.POSITION], self.asked
        decoded = decode_batch(batch, position=position, needles=conditions.needles)
        self.damaged_places += bool(decoded.problems)
        if decoded.legacy is not None and decoded.legacy.is_wrapper and not may_hold(decoded, conditions.needles):
            return
        is_control = column[BatchColumn.MAGIC] >= 2 and bool(column[BatchColumn.ATTRIBUTES] & CONTROL_MASK)
        is_valid = column[BatchColumn.CRC] == column[BatchColumn.CRC_COMPUTED]
        for record in decoded.iter_records(conditions.records):
            fits = conditions.fits(record)
            if fits is None:
                reason = f"record at offset {record.offset} is too large to be looked into"
                self.incomplete.append(Incomplete(piece.shown, reason))
            if fits:
                control = parse_control_record(record.key, record.value).name if is_control else None
                yield self._row(piece, column, record, is_valid=is_valid, control=control)

    def _table(self, piece: _Piece, found: FoundBlock) -> "FoundRecords":
        """The records of a block, whose bytes may be written over later; of magic 2, and no control records."""
        import pyarrow as pa

        from kafka_forensics.model.arrow import numbers
        from kafka_forensics.scanning.rereading.record_columns import byte_strings, header_lists, words_by_number

        own, block = found
        assert block.payload is not None
        columns = block.columns
        values = byte_strings(block.payload, columns[RecordColumn.VALUE_POSITION], columns[RecordColumn.VALUE_LENGTH])
        made: dict[str, ArrowArray] = {
            "offset": numbers(block.offsets),
            "timestamp": numbers(block.timestamps),
            "timestamp_type": words_by_number(block.timestamp_types, RECORD_TIMESTAMP_TYPES),
            "partition_leader_epoch": numbers(own[BatchColumn.PARTITION_LEADER_EPOCH]),
            "producer_id": numbers(own[BatchColumn.PRODUCER_ID]),
            "producer_epoch": numbers(own[BatchColumn.PRODUCER_EPOCH]),
            "sequence": numbers(block.sequences),
            "key_size": numbers(columns[RecordColumn.KEY_LENGTH].copy()),
            "value_size": numbers(columns[RecordColumn.VALUE_LENGTH].copy()),
            "is_valid": numbers(own[BatchColumn.CRC] == own[BatchColumn.CRC_COMPUTED]),
            "position": numbers(own[BatchColumn.POSITION]),
            "value_digest": _digests(values),
        }
        if self.payloads:
            made["key"] = byte_strings(block.payload, columns[RecordColumn.KEY_POSITION], columns[RecordColumn.KEY_LENGTH])
            made["value"] = values
            made["headers"] = header_lists(block.payload, columns)
        same = {
            "topic": piece.topic,
            "partition": piece.partition,
            "broker": piece.log_dir.broker,
            "control_record_type": None,
            "file": piece.shown,
            "leftover": piece.leftover,
        }
        return FoundRecords(same, pa.RecordBatch.from_pydict(made))

    def _row(self, piece: _Piece, column: list[int], record: Record, *, is_valid: bool, control: str | None) -> JsonRow:
        return (
            piece.topic,
            piece.partition,
            piece.log_dir.broker,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            column[BatchColumn.PARTITION_LEADER_EPOCH],
            column[BatchColumn.PRODUCER_ID],
            column[BatchColumn.PRODUCER_EPOCH],
            record.sequence,
            record.key_length,
            record.value_length,
            is_valid,
            control,
            piece.shown,
            column[BatchColumn.POSITION],
            piece.leftover,
            None if record.value is None else hashlib.sha256(record.value).hexdigest(),
            *((record.key, record.value, record.headers) if self.payloads else ()),
        )


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Rows for records of one file as columns: `same` has what is alike in all of them, `table` the others by name."""

    same: dict[str, object]
    table: "pa.RecordBatch"

    def first(self, count: int) -> "FoundRecords":
        """The first rows, at most so many."""
        return FoundRecords(self.same, self.table.slice(0, count))

    def rows(self, columns: Sequence[str]) -> Iterator[JsonRow]:
        """Each as its values by these columns."""
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
    """The SHA-256 of each of these binary values in hexadecimal, None for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    buffers: Any = values.buffers()
    _, offsets, data = buffers
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].tolist()
    held = memoryview(data or b"")
    sha256 = hashlib.sha256
    binary = b"".join([sha256(held[start:end]).digest() for start, end in pairwise(edges)])
    digits = _HEX[np.frombuffer(binary, np.uint8)]
    places = np.arange(0, (len(values) + 1) * 2 * _DIGEST_BYTES, 2 * _DIGEST_BYTES, dtype=np.int32)
    is_null = values.is_null() if values.null_count else None
    digests = pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(places.data), pa.py_buffer(digits.data)])
    return digests if is_null is None else pc.if_else(is_null, None, digests)


def _held_bytes(row: "JsonRow | FoundRecords") -> int:
    """About how many bytes of memory a row takes, or several."""
    if isinstance(row, FoundRecords):
        return _ROW_BYTES + row.table.nbytes
    key, value, headers = row[len(FOUND_COLUMNS) :] or (None, None, ())
    inside = sum(_HEADER_BYTES + len(name) + len(content or b"") for name, content in headers)
    return _ROW_BYTES + len(key or b"") + len(value or b"") + inside


Candidate = tuple[list[int], bytes | None]
"""A batch as a list by BatchColumn, and its bytes, None where they are still to be read."""


class _Candidates:
    """Bytes of the batches of a portion that may hold a match, kept while a reader passes over them."""

    def __init__(self, conditions: Conditions) -> None:
        self._asked = conditions
        self._needles = conditions.needles
        self._sought = conditions.of_records()
        self._matcher = RecordMatcher(self._sought)
        self._open_wrappers = inspector(deep=False)
        self._looked = np.zeros(CHUNK_ROWS, np.bool_)
        self._held = np.empty(_LEAST_HELD, np.uint8)
        self._used = 0
        self._places = np.full(CHUNK_ROWS, -1, np.int64)
        """By row of the chunk, where in `_held` its bytes begin; -1 of one that is not held."""

    def inspect(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """Keep what cannot be ruled out by headers or, uncompressed, by not holding what is looked for."""
        damage = self._open_wrappers(buffer, position, columns, first, end)
        self._looked[first:end] = True
        rows = first + np.flatnonzero(self._asked.batches(columns[:, first:end]))
        if rows.size:
            is_plain = (columns[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK) == 0
            if is_plain.any() and self._needles:
                starts = columns[BatchColumn.POSITION, rows[is_plain]] - position
                is_out = np.zeros(rows.size, np.bool_)
                is_out[is_plain] = ~self._hold_all(buffer, starts, columns[BatchColumn.SIZE_IN_BYTES, rows[is_plain]])
                rows = rows[~is_out]
            for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
                self._keep(buffer, columns[BatchColumn.POSITION, run] - position, columns[BatchColumn.SIZE_IN_BYTES, run], run)
        return damage

    def _hold_all(
        self, buffer: "NDArray[np.uint8]", starts: "NDArray[np.int64]", sizes: "NDArray[np.int64]"
    ) -> "NDArray[np.bool_]":
        """Which of these stretches hold all that is looked for."""
        if mark_holding.is_ready():
            holding_all = np.empty(len(starts), np.int64)
            mark_holding.compiled(buffer, starts, sizes, self._sought.text, self._sought.spans, holding_all)
            return holding_all.astype(np.bool_)
        low, high = int(starts[0]), int(starts[-1] + sizes[-1])
        answer = np.zeros(len(starts), np.bool_)
        answer[holding(buffer[low:high].tobytes(), (starts - low).tolist(), sizes.tolist(), self._needles)] = True
        return answer

    def _keep(
        self, buffer: "NDArray[np.uint8]", starts: "NDArray[np.int64]", sizes: "NDArray[np.int64]", rows: "NDArray[np.int64]"
    ) -> None:
        """Copy the bytes of batches of these rows, which join."""
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

    def of(self, chunk: BatchChunk, right: BatchChunk, moved: "dict[int, Misplaced]") -> Iterator[FoundBlock | Candidate]:
        """What of a chunk is to be looked into, in order, then forget it: batches, and records that fit where they can be told at
        once, of which some may wait for `rest`. `right` is the chunk with the offsets that belong there, `moved` the batches where
        others are written."""
        columns = right.columns
        places = self._places[: chunk.rows]
        is_moved = np.isin(columns[BatchColumn.POSITION], list(moved)) if moved else np.zeros(chunk.rows, np.bool_)
        is_unseen = ~self._looked[: chunk.rows] | is_moved
        is_wanted = (places >= 0) & ~is_moved
        if is_unseen.any():
            is_wanted |= is_unseen & self._asked.batches(columns)
        rows = np.flatnonzero(is_wanted)
        is_control = columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0
        alone = (is_unseen | is_control | (columns[BatchColumn.MAGIC] < 2) | (not match_records.is_ready()))[rows]
        for run in np.split(rows, np.flatnonzero(np.diff(alone)) + 1):
            if run.size and alone[np.searchsorted(rows, run[0])]:
                yield from self.rest()
                for row in run.tolist():
                    yield self._candidate(columns, row, None if is_unseen[row] else places[row])
            elif run.size:
                for piece in self._matcher.blocks(columns, run, self._held, places):
                    yield piece if isinstance(piece, FoundBlock) else self._candidate(columns, piece[0], places[piece[0]])
        self._used = 0
        self._places[:] = -1
        self._looked[:] = False

    def rest(self) -> Iterator[FoundBlock]:
        """The records found that wait."""
        return self._matcher.rest()

    def _candidate(self, columns: "NDArray[np.int64]", row: int, place: int | None) -> Candidate:
        size = int(columns[BatchColumn.SIZE_IN_BYTES, row])
        return columns[:, row].tolist(), None if place is None else self._held[place : place + size].tobytes()


def search(
    paths: list[str], options: ScanOptions, conditions: Conditions, *, payloads: bool = False, limit: int | None = None
) -> Search:
    """Prepare a search of everything at `paths` that `options` leave (topic, partition, broker).

    Files on their way in or out are searched too: they may hold the last copy. Raises UsageError for paths that make no sense.
    """
    inputs = gather(paths, options)
    take_tiered_topics(inputs, None)
    pieces = [
        piece
        for log_dir in inputs.log_dirs
        if options.broker is None or str(log_dir.broker) == options.broker
        for directory in log_dir.found.partitions
        if directory.legal and fits((directory.topic or "", directory.partition), options)
        for piece in _pieces(log_dir, directory)
    ]
    pieces.sort(key=lambda piece: piece.order)
    return Search(conditions, pieces, payloads, limit, inputs.sources, inputs.replicas, list(inputs.incomplete))


def _pieces(log_dir: LogDir, directory: PartitionDirectory) -> Iterator[_Piece]:
    """The `.log` files of one partition directory, live or on their way."""
    topic, partition = directory.topic or "", directory.partition or 0
    for log in directory.logs():
        yield _Piece(topic, partition, log_dir, directory, log, directory.suffix)
    for file in directory.leftovers:
        if file.kind is FileKind.LOG:
            log = SegmentLog(SegmentFiles(file.base_offset or 0, log=file.entry), file.entry, None)
            yield _Piece(topic, partition, log_dir, directory, log, file.suffix)
