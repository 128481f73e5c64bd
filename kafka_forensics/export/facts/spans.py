"""The fact `spans`: what each byte of a replica's files is. The spans of a file tile it from 0 to its size, whatever it holds."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from kafka_forensics.errors import SourceError
from kafka_forensics.export.facts.log import ReplicaReader
from kafka_forensics.export.facts.rows import json_text, record_batches
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import (
    INDEX_ENTRY_SIZE,
    PRODUCER_SNAPSHOT_ENTRY_SIZE,
    PRODUCER_SNAPSHOT_HEADER_SIZE,
    TIME_INDEX_ENTRY_SIZE,
    TXN_INDEX_ENTRY_SIZE,
)
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.indexes import parse_offset_index, parse_producer_snapshot, parse_time_index, parse_transaction_index
from kafka_forensics.parsers.log import BatchChecks, check_batch_in_file
from kafka_forensics.parsers.log_dir import SegmentLog

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile, Entry

SPAN_BYTES: Final = 64 << 20
"""No span crosses a multiple of this many bytes between two batches: a file read in parts then has the same spans."""


class FileSpan(Struct):
    """Bytes `[start, end)` of a file; offsets are inclusive, -1 where the bytes hold none."""

    start: int
    end: int
    kind: str
    damage_kind: str | None = None
    base_offset: int = -1
    last_offset: int = -1
    count: int = 0
    detail: Json = field(default_factory=dict)

    def row(self) -> tuple[object, ...]:
        """The values of the columns that follow the place."""
        has_offsets = self.count > 0 or self.base_offset >= 0
        return (
            self.start,
            self.end - self.start,
            self.kind,
            self.damage_kind,
            self.base_offset if has_offsets else None,
            self.last_offset if has_offsets and self.last_offset >= self.base_offset else None,
            self.count,
            json_text(self.detail) if self.detail else None,
        )


def span_facts(replica: ReplicaReader) -> Iterator[pa.RecordBatch]:
    """Record batches of `spans`, with the columns `Fact.file_schema`."""
    return record_batches(FACTS["spans"].file_schema, _rows(replica))


def _rows(replica: ReplicaReader) -> Iterator[tuple[object, ...]]:
    directory = replica.plan.directory
    for segment in directory.segments:
        if segment.log is not None:
            yield from _file_rows(replica, segment.log, partial(_log_spans, replica, replica.segment_log(segment, segment.log)))
        for kind, entry in (
            ("index", segment.index),
            ("timeindex", segment.time_index),
            ("txnindex", segment.transaction_index),
        ):
            if entry is not None:
                yield from _file_rows(replica, entry, partial(_small_spans, kind, segment.base_offset))
    for offset, entry in directory.snapshots:
        yield from _file_rows(replica, entry, partial(_small_spans, "snapshot", offset))


def _file_rows(
    replica: ReplicaReader, entry: "Entry", spans_of: "Callable[[ByteFile], Iterator[FileSpan]]"
) -> Iterator[tuple[object, ...]]:
    """Rows of one file; `spans_of` reads its spans in file order."""

    def spans() -> Iterator[FileSpan]:
        try:
            with replica.plan.log_dir.source.open(entry.path) as file:
                yield from spans_of(file)
        except SourceError as error:
            replica.missing(entry, error)

    place = replica.place(entry)
    for span in _tiled(spans(), lambda: replica.extent(entry)):
        yield *place, *span.row()


def _tiled(spans: Iterator[FileSpan], extent: Callable[[], tuple[int, int]]) -> Iterator[FileSpan]:
    """`spans` cut and filled up to tile `extent`; neighbouring spans of good batches are merged.

    The start of the extent is final once the first span is read, its end after the last span.
    """
    cursor: int | None = None
    last: FileSpan | None = None
    for span in spans:
        start, size = extent()
        cursor = start if cursor is None else cursor
        span.start, span.end = max(span.start, cursor), min(span.end, size)
        if span.start >= span.end:
            continue
        filler = [FileSpan(cursor, span.start, "damaged")] if span.start > cursor else []
        for following in [*filler, span]:
            if last is None or not _merge(last, following):
                if last is not None:
                    yield last
                last = following
        cursor = span.end
    if last is not None:
        yield last
    start, size = extent()
    cursor = start if cursor is None else cursor
    if cursor < size:
        yield FileSpan(cursor, size, "skipped", detail={"reason": "could not be read"})


def _merge(last: FileSpan, span: FileSpan) -> bool:
    """Whether both are good batches with ascending offsets; `last` is extended over `span` then."""
    if not last.kind == span.kind == "batches" or last.damage_kind or span.damage_kind or span.base_offset <= last.last_offset:
        return False
    if last.start // SPAN_BYTES != span.start // SPAN_BYTES:
        return False
    last.end, last.last_offset, last.count = span.end, span.last_offset, last.count + span.count
    return True


def _log_spans(replica: ReplicaReader, log: SegmentLog, file: "ByteFile") -> Iterator[FileSpan]:
    inspect_batch = check_batch_in_file if replica.deep else None
    for chunk in replica.chunks(log, file, inspect=BatchChecks(deep=replica.deep), inspect_batch=inspect_batch):
        yield from _chunk_spans(chunk)
        replica.passed(chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped)


def _chunk_spans(chunk: BatchChunk) -> Iterator[FileSpan]:
    """Runs of good batches, single bad batches, and damage between batches, by position."""
    columns = chunk.columns
    positions, sizes = columns[BatchColumn.POSITION], columns[BatchColumn.SIZE_IN_BYTES]
    bases, lasts = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
    rows_at = {int(position): row for row, position in enumerate(positions)} if chunk.damage else {}
    damage_of_batch: dict[int, Damage] = {}
    spans: list[FileSpan] = []
    for damage in chunk.damage:
        if damage.position in rows_at:
            damage_of_batch.setdefault(rows_at[damage.position], damage)
        elif damage.size_in_bytes > 0:
            spans.append(_damage_span(damage))
    bad = ~has_right_crc(columns)
    single = bad.copy()
    single[list(damage_of_batch)] = True
    breaks = np.ones(chunk.rows, bool)
    breaks[1:] = single[1:] | single[:-1] | (positions[:-1] + sizes[:-1] != positions[1:]) | (bases[1:] <= lasts[:-1])
    breaks[1:] |= positions[:-1] // SPAN_BYTES != positions[1:] // SPAN_BYTES
    starts = np.flatnonzero(breaks).tolist()
    for first, end in zip(starts, [*starts[1:], chunk.rows], strict=False):
        bytes_end = int(positions[end - 1] + sizes[end - 1])
        kind = "damaged" if bad[first] else "batches"
        span = FileSpan(int(positions[first]), bytes_end, kind, None, int(bases[first]), int(lasts[end - 1]), end - first)
        if (batch_damage := damage_of_batch.get(first)) is not None:
            span.damage_kind, span.detail = batch_damage.kind, dict(batch_damage.detail)
        spans.append(span)
    spans.sort(key=lambda span: (span.start, span.end))
    yield from spans


def _small_spans(kind: str, base_offset: int, file: "ByteFile") -> Iterator[FileSpan]:
    """Spans of an index or a snapshot: header, entries, zero tail, and damage, which replaces the others at the same bytes."""
    header = zeros = 0
    first = last = -1
    damage: list[Damage]
    if kind in ("index", "timeindex"):
        width = INDEX_ENTRY_SIZE if kind == "index" else TIME_INDEX_ENTRY_SIZE
        index = parse_offset_index(file, base_offset) if kind == "index" else parse_time_index(file, base_offset)
        count, zeros, damage = len(index.offsets), index.zero_tail_bytes, index.damage
        first, last = (int(index.offsets.min()), int(index.offsets.max())) if count else (-1, -1)
    elif kind == "txnindex":
        transactions = parse_transaction_index(file)
        width, count, damage = TXN_INDEX_ENTRY_SIZE, len(transactions.entries), transactions.damage
    else:
        snapshot = parse_producer_snapshot(file, base_offset)
        header, width = PRODUCER_SNAPSHOT_HEADER_SIZE, PRODUCER_SNAPSHOT_ENTRY_SIZE
        count, damage = len(snapshot.entries), snapshot.damage
    size = file.size_in_bytes
    entries_end = size - (size - header) % width if size >= header else 0
    spans = [FileSpan(0, min(header, size), "header")] if header else []
    spans.append(FileSpan(header, header + width * count, "entries", None, first, last))
    spans.append(FileSpan(entries_end - zeros, entries_end, "zero_tail"))
    yield from _overlaid(spans, damage, width)


def _damage_span(damage: Damage) -> FileSpan:
    end, detail = damage.position + damage.size_in_bytes, dict(damage.detail)
    kind = _span_kind(damage.kind)
    return FileSpan(damage.position, end, kind, damage.kind, damage.base_offset, damage.last_offset, detail=detail)


def _span_kind(damage_kind: str) -> str:
    if damage_kind == "SEG_ZERO_TAIL":
        return "zero_tail"
    return "skipped" if damage_kind == "BUDGET_EXCEEDED" else "damaged"


def _overlaid(spans: list[FileSpan], damage: list[Damage], width: int) -> Iterator[FileSpan]:
    """`spans` without the damaged bytes, and the damage, by position; whole entries of `width` bytes are counted."""
    damaged = [_damage_span(item) for item in sorted(damage, key=lambda item: (item.position, item.size_in_bytes))]
    result = list(damaged)
    for span in spans:
        start = span.start
        for excluded in [*damaged, FileSpan(span.end, span.end, "")]:
            end = min(excluded.start, span.end)
            if end > start:
                entries = (end - start) // width if span.kind == "entries" else 0
                result.append(FileSpan(start, end, span.kind, None, span.base_offset, span.last_offset, entries))
            start = max(start, excluded.end)
    result.sort(key=lambda span: (span.start, span.end))
    yield from result
