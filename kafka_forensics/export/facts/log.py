"""Facts of a replica's `.log` files: batches, records, control records. Files that cannot be read are noted, never raised."""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import numpy as np
import pyarrow as pa
from msgspec import Struct

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.export.facts.rows import MAX_ROWS, batch_without_keys, json_text, place_columns, record_batches
from kafka_forensics.model.arrow import dictionary_array, numbers, times
from kafka_forensics.model.batches import BatchChunk, BatchColumn, MarkerColumn, has_right_crc
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_MASK,
    MIN_RECORD_SIZE,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    RECORD_BATCH_OVERHEAD,
    control_record_name,
)
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import BATCHES, FACTS, batch_arrays
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    BatchChecks,
    SegmentReader,
    decode_batch,
    marker_block,
    parse_control_record,
    read_batch,
)
from kafka_forensics.parsers.log_dir import SegmentFiles, SegmentLog
from kafka_forensics.scanning.rereading.record_columns import record_arrays
from kafka_forensics.scanning.rereading.record_states import LazyRecordStates, RecordStates
from kafka_forensics.storage.bundles import CollectedLog, needed_records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.batches import Damage
    from kafka_forensics.model.schemas import ArrowArray
    from kafka_forensics.storage.source import ByteFile, Entry


COUNTED: Final = frozenset({"topic", "partition", "broker", "node_id", "log_dir", "file"})
"""Columns of `records` that are the same for all records of a file: rows of these need only the number of records."""
_RECORDS_A_BYTE: Final = 32
"""Most records that a byte of a compressed batch is believed to hold; of more, as in a hostile header, the batch is decoded."""


def count_nothing(_: int) -> None:
    """Ignore the number of bytes read."""


class BatchInspectors(TypedDict, total=False):
    """The functions that check the batches of a segment, as `SegmentReader` takes them."""

    inspect: "Callable[[NDArray[np.uint8], int, NDArray[np.int64], int, int], list[Damage]] | None"
    inspect_batch: "Callable[[ByteFile, int, int], list[Damage]] | None"


class ReplicaReader(Struct):
    """Reads the files of one replica for facts; `incomplete` takes what cannot be read, `passed` numbers of bytes that are read."""

    plan: ReplicaPlan
    incomplete: Callable[[Incomplete], None]
    passed: Callable[[int], None] = count_nothing
    payloads: bool = True
    deep: bool = False
    needs_records: bool = True
    """Whether a column of `records` is requested that is not in `COUNTED`; without any, ordinary batches are only counted."""
    remote: Sequence[ReplicaPlan] = ()
    """What remote stores have of the log before the replica's part, where that matters: for transactions."""

    def place(self, entry: "Entry") -> tuple[str, str]:
        """(log directory, partition directory and name of the file), as findings name a file of the replica."""
        name = entry.name or os.path.basename(self.plan.log_dir.source.name)
        return self.plan.log_dir.name, f"{self.plan.context.directory}/{name}"

    def segment_log(self, segment: SegmentFiles, entry: "Entry") -> SegmentLog:
        """The `.log` of a segment with the base offset of the next segment, whether or not that one can be read."""
        base_offsets = self.plan.context.segment_base_offsets
        later = bisect_right(base_offsets, segment.base_offset)
        return SegmentLog(segment, entry, base_offsets[later] if later < len(base_offsets) else None)

    def chunks(self, log: SegmentLog, file: "ByteFile", **inspectors: "Unpack[BatchInspectors]") -> Iterator[BatchChunk]:
        """The chunks of a `.log`. Raises SourceError."""
        return SegmentReader(file, max_plausible_offset=log.max_plausible_offset, **inspectors).chunks()

    def extent(self, entry: "Entry") -> tuple[int, int]:
        """The bytes `[start, end)` of a file that are read."""
        return 0, entry.size_in_bytes

    def states(self, log: SegmentLog, file: "ByteFile") -> RecordStates:
        """How the transactions of a segment's records ended, read when the first record of a transaction needs it."""
        return LazyRecordStates(lambda: self.read_states(log, file, (0, None)))

    def read_states(self, log: SegmentLog, file: "ByteFile", part: tuple[int, int | None]) -> RecordStates:
        """How the transactions of the records in a part of a segment ended. Raises SourceError."""
        log_continues = log.next_base_offset is not None
        return RecordStates(file, log_continues=log_continues, max_plausible_offset=log.max_plausible_offset, part=part)

    def missing(self, entry: "Entry", error: SourceError) -> None:
        """Note that a file cannot be read, or not to its end."""
        self.incomplete(Incomplete(typed_path(self.plan.log_dir.source, entry.path), error.reason, needed=needed_records(error)))


class LogChunk(Struct, frozen=True):
    """A chunk of a `.log`, with the open file, its place, and how the transactions of its records ended."""

    log: SegmentLog
    file: "ByteFile"
    place: tuple[str, str]
    states: RecordStates
    batches: BatchChunk

    def rows_with_right_crc(self) -> "NDArray[np.bool_]":
        """Which batches have a right CRC."""
        return has_right_crc(self.batches.columns)


def log_chunks(replica: ReplicaReader) -> Iterator[LogChunk]:
    """Every chunk of every `.log` of the replica, in file order, valid until the next chunk is requested."""
    for segment in replica.plan.directory.segments:
        if segment.log is None:
            continue
        log = replica.segment_log(segment, segment.log)
        try:
            with replica.plan.log_dir.source.open(log.entry.path) as file:
                states = replica.states(log, file)
                for chunk in replica.chunks(log, file, inspect=BatchChecks(deep=False)):
                    yield LogChunk(log, file, replica.place(log.entry), states, chunk)
                    replica.passed(chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped)
        except SourceError as error:
            replica.missing(log.entry, error)


def batch_facts(replica: ReplicaReader) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the fact `batches`, with the columns `Fact.file_schema`."""
    fact = FACTS["batches"]
    assert fact.file_schema.names[2:] == BATCHES.names
    for chunk in log_chunks(replica):
        yield batch_without_keys(fact, [*place_columns(chunk.place, chunk.batches.rows), *batch_arrays(chunk.batches.columns)])


def record_facts(replica: ReplicaReader) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the fact `records`, with the columns `Fact.file_schema`; payloads are null where the reader leaves them
    out."""
    for chunk in log_chunks(replica):
        columns = chunk.batches.columns
        rows = np.flatnonzero(chunk.rows_with_right_crc())
        large = columns[BatchColumn.SIZE_IN_BYTES, rows] > MAX_BATCH_BYTES
        for row in rows[large]:
            position, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
            replica.incomplete(_too_large(chunk, position, size))
        rows = rows[~large]
        if not (replica.needs_records or isinstance(chunk.file, CollectedLog)):
            counted = _has_all_records(columns[:, rows])
            yield from _counted_rows(chunk.place, int(columns[BatchColumn.RECORDS_COUNT, rows[counted]].sum()))
            rows = rows[~counted]
        try:
            for arrays in record_arrays(chunk.file, columns, rows, chunk.states, payloads=replica.payloads):
                yield batch_without_keys(FACTS["records"], [*place_columns(chunk.place, len(arrays[0])), *arrays])
        except SourceError as error:
            replica.missing(chunk.log.entry, error)


def _has_all_records(columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
    """Which of these batches with a right CRC have a record for every offset by their headers; brokers check this of producers.

    Headers of others prove no number: compacted batches, old formats, and headers that contradict themselves.
    """
    counts, sizes = columns[BatchColumn.RECORDS_COUNT], columns[BatchColumn.SIZE_IN_BYTES] - RECORD_BATCH_OVERHEAD
    is_compressed = columns[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK != 0
    is_plausible = (counts > 0) & (counts <= np.where(is_compressed, sizes * _RECORDS_A_BYTE, sizes // MIN_RECORD_SIZE))
    answer: NDArray[np.bool_] = (
        is_plausible & (columns[BatchColumn.MAGIC] >= 2) & (counts == columns[BatchColumn.LAST_OFFSET_DELTA] + 1)
    )
    return answer


def _counted_rows(place: tuple[str, str], rows: int) -> Iterator[pa.RecordBatch]:
    """Record batches of `records` with the columns of the place alone."""
    for start in range(0, rows, MAX_ROWS):
        columns = place_columns(place, min(MAX_ROWS, rows - start))
        yield pa.RecordBatch.from_arrays(columns, names=["log_dir", "file"])


def _too_large(chunk: LogChunk, position: int, size: int) -> Incomplete:
    return Incomplete("/".join(chunk.place), f"a batch of {size} bytes at byte {position} is too large to open")


def control_facts(replica: ReplicaReader) -> Iterator[pa.RecordBatch]:
    """Record batches of `control_records`, with the columns `Fact.file_schema`."""
    fact = FACTS["control_records"]
    for chunk in log_chunks(replica):
        columns = chunk.batches.columns
        control = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (columns[BatchColumn.MAGIC] >= 2)
        rows = np.flatnonzero(chunk.rows_with_right_crc() & control)
        markers = _marker_columns(chunk, rows)
        if markers is None:
            yield from record_batches(fact.file_schema, _control_rows(replica, chunk, rows))
        elif rows.size:
            yield batch_without_keys(fact, markers)


def _marker_columns(chunk: LogChunk, rows: "NDArray[np.int64]") -> "list[ArrowArray] | None":
    """The columns of `control_records` for these batches; None if they hold anything but transaction markers."""
    batches = chunk.batches.columns
    if (batches[BatchColumn.SIZE_IN_BYTES, rows] > MAX_BATCH_BYTES).any():
        return None
    if not rows.size:
        return []
    markers = marker_block(
        batches, rows, chunk.file.read_raw_batches if isinstance(chunk.file, CollectedLog) else chunk.file.read_at
    )
    if markers is None:
        return None
    kinds = markers.columns[MarkerColumn.CONTROL_RECORD_TYPE]
    return [
        *place_columns(chunk.place, len(rows)),
        numbers(batches[BatchColumn.POSITION, rows]),
        numbers(markers.offsets),
        times(markers.timestamps),
        numbers(batches[BatchColumn.PARTITION_LEADER_EPOCH, rows].astype(np.int32)),
        numbers(batches[BatchColumn.PRODUCER_ID, rows]),
        numbers(batches[BatchColumn.PRODUCER_EPOCH, rows].astype(np.int16)),
        numbers(kinds.astype(np.int16)),
        dictionary_array(kinds, [control_record_name(kind) for kind in (CONTROL_ABORT, CONTROL_COMMIT)]),
        numbers(markers.columns[MarkerColumn.VERSION].astype(np.int16)),
        numbers(markers.columns[MarkerColumn.COORDINATOR_EPOCH].astype(np.int32)),
        pa.nulls(len(rows), pa.string()),
        pa.nulls(len(rows), pa.string()),
    ]


def _control_rows(replica: ReplicaReader, chunk: LogChunk, rows: "NDArray[np.int64]") -> Iterator[tuple[object, ...]]:
    """Rows of `control_records` for these batches, of any types of control records."""
    columns = chunk.batches.columns
    for row in rows:
        position, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
        if size > MAX_BATCH_BYTES:
            replica.incomplete(_too_large(chunk, position, size))
            continue
        try:
            batch = decode_batch(read_batch(chunk.file, position, size), position=position)
        except SourceError as error:
            replica.missing(chunk.log.entry, error)
            return
        header = batch.header
        of_batch = (
            (NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            if header is None
            else (header.partition_leader_epoch, header.producer_id, header.producer_epoch)
        )
        for record in batch.iter_records():
            control_record = parse_control_record(record.key, record.value)
            fields = json_text(dict(control_record.fields)) if control_record.fields else None
            yield (
                *chunk.place,
                position,
                record.offset,
                record.timestamp,
                *of_batch,
                control_record.type,
                control_record.name,
                control_record.version,
                control_record.coordinator_epoch,
                fields,
                control_record.problem,
            )
