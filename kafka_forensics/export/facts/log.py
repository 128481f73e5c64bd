"""Facts of a replica's `.log` files: batches, records, control records. What cannot be read of a file is noted, never raised."""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np
import pyarrow as pa

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.export.facts.rows import json_text, own_batch, place_columns, record_batches
from kafka_forensics.model.arrow import dictionary_array, numbers
from kafka_forensics.model.batches import BatchChunk, BatchColumn, MarkerColumn, has_right_crc
from kafka_forensics.model.constants import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_MASK,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
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
from kafka_forensics.parsers.log_dir import SegmentFiles, max_plausible_offset
from kafka_forensics.scanning.rereading.record_columns import record_arrays
from kafka_forensics.scanning.rereading.record_states import LazyRecordStates, RecordStates
from kafka_forensics.storage.bundles import CollectedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.batches import Damage
    from kafka_forensics.model.schemas import ArrowArray
    from kafka_forensics.storage.source import ByteFile, Entry


class Inspection(TypedDict, total=False):
    """What looks at the batches of a segment while it is walked, as `SegmentReader` takes it."""

    inspect: "Callable[[NDArray[np.uint8], int, NDArray[np.int64], int, int], list[Damage]] | None"
    inspect_alone: "Callable[[ByteFile, int, int], list[Damage]] | None"


@dataclass(slots=True)
class FactReading:
    """How facts are read of one replica: what could not be read goes to `incomplete`, bytes that were to `passed`."""

    plan: ReplicaPlan
    incomplete: Callable[[Incomplete], None]
    passed: Callable[[int], None]
    payloads: bool = True
    deep: bool = False

    def place(self, entry: "Entry") -> tuple[str, str]:
        """(log directory, partition directory and name of the file), as findings name a file of the replica."""
        name = entry.name or os.path.basename(self.plan.log_dir.source.name)
        return self.plan.log_dir.name, f"{self.plan.context.directory}/{name}"

    def reader(self, segment: SegmentFiles, file: "ByteFile", **given: "Unpack[Inspection]") -> SegmentReader:
        """A reader of a segment, which knows where the next one begins."""
        return SegmentReader(file, max_plausible_offset(segment.base_offset, self.following(segment)), **given)

    def following(self, segment: SegmentFiles) -> int | None:
        """The base offset of the next segment, None for the last one."""
        logs = self.plan.context.segment_base_offsets
        later = bisect_right(logs, segment.base_offset)
        return logs[later] if later < len(logs) else None

    def chunks(self, segment: SegmentFiles, file: "ByteFile", **given: "Unpack[Inspection]") -> Iterator[BatchChunk]:
        """Chunks of what is to be read of a `.log`: all of it."""
        return self.reader(segment, file, **given).chunks()

    def extent(self, entry: "Entry") -> tuple[int, int]:
        """Where in a file what has been read begins and ends: all of it."""
        return 0, entry.size_in_bytes

    def states(self, segment: SegmentFiles, file: "ByteFile") -> RecordStates:
        """How the transactions of a segment's records ended, read when the first of them asks."""
        following = self.following(segment)
        reach = max_plausible_offset(segment.base_offset, following)
        return LazyRecordStates(lambda: RecordStates(file, goes_on=following is not None, max_plausible_offset=reach))

    def missing(self, entry: "Entry", error: SourceError) -> None:
        """Note that a file could not be read (further)."""
        self.incomplete(Incomplete(typed_path(self.plan.log_dir.source, entry.path), error.reason))


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A chunk of a `.log`, with the open file and where it is."""

    segment: SegmentFiles
    file: "ByteFile"
    place: tuple[str, str]
    chunk: BatchChunk

    def good(self) -> "NDArray[np.bool_]":
        """Which rows have a right CRC."""
        return has_right_crc(self.chunk.columns)


def log_chunks(reading: FactReading) -> Iterator[LogChunk]:
    """Every chunk of every `.log` of the replica, in file order; each is to be used before the next is asked for."""
    plan = reading.plan
    for segment in plan.directory.segments:
        if segment.log is None:
            continue
        try:
            with plan.log_dir.source.open(segment.log.path) as file:
                for chunk in reading.chunks(segment, file, inspect=BatchChecks(deep=False)):
                    yield LogChunk(segment, file, reading.place(segment.log), chunk)
                    reading.passed(chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped)
        except SourceError as error:
            reading.missing(segment.log, error)


def batch_facts(reading: FactReading) -> Iterator[pa.RecordBatch]:
    """Record batches of `batches`, as `Fact.own` says."""
    fact = FACTS["batches"]
    assert fact.own.names[2:] == BATCHES.names
    for chunk in log_chunks(reading):
        yield own_batch(fact, [*place_columns(chunk.place, chunk.chunk.rows), *batch_arrays(chunk.chunk.columns)])


def record_facts(reading: FactReading) -> Iterator[pa.RecordBatch]:
    """Record batches of `records`, as `Fact.own` says; without payloads, where those are not wanted."""
    states: RecordStates | None = None
    of_segment: SegmentFiles | None = None
    for chunk in log_chunks(reading):
        if states is None or chunk.segment is not of_segment:
            of_segment = chunk.segment
            states = reading.states(chunk.segment, chunk.file)
        columns = chunk.chunk.columns
        rows = np.flatnonzero(chunk.good())
        large = columns[BatchColumn.SIZE_IN_BYTES, rows] > MAX_BATCH_BYTES
        for row in rows[large]:
            position, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
            reading.incomplete(_too_large(chunk, position, size))
        try:
            for arrays in record_arrays(chunk.file, columns, rows[~large], states, payloads=reading.payloads):
                yield own_batch(FACTS["records"], [*place_columns(chunk.place, len(arrays[0])), *arrays])
        except SourceError as error:
            assert chunk.segment.log is not None
            reading.missing(chunk.segment.log, error)


def _too_large(chunk: LogChunk, position: int, size: int) -> Incomplete:
    return Incomplete("/".join(chunk.place), f"a batch of {size} bytes at byte {position} is too large to open")


def control_facts(reading: FactReading) -> Iterator[pa.RecordBatch]:
    """Record batches of `control_records`, as `Fact.own` says."""
    fact = FACTS["control_records"]
    for chunk in log_chunks(reading):
        columns = chunk.chunk.columns
        control = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (columns[BatchColumn.MAGIC] >= 2)
        rows = np.flatnonzero(chunk.good() & control)
        markers = _markers(chunk, rows)
        if markers is None:
            yield from record_batches(fact.own, _control_rows(reading, chunk, rows))
        elif rows.size:
            yield own_batch(fact, markers)


def _markers(chunk: LogChunk, rows: "NDArray[np.int64]") -> "list[ArrowArray] | None":
    """The columns of `control_records` for these batches; None if they hold anything but plain markers of transactions."""
    batches = chunk.chunk.columns
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
        numbers(markers.timestamps),
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


def _control_rows(reading: FactReading, chunk: LogChunk, rows: "NDArray[np.int64]") -> Iterator[tuple[object, ...]]:
    """The same of any control records, one by one."""
    columns = chunk.chunk.columns
    for row in rows:
        position, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
        if size > MAX_BATCH_BYTES:
            reading.incomplete(_too_large(chunk, position, size))
            continue
        try:
            batch = decode_batch(read_batch(chunk.file, position, size), position=position)
        except SourceError as error:
            assert chunk.segment.log is not None
            reading.missing(chunk.segment.log, error)
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
