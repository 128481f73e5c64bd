"""Spans: where every byte of a replica's files went. The spans of a file tile it, from 0 to its size, whatever the bytes are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from kafka_forensics.errors import SourceError
from kafka_forensics.export.facts.log import FactReading
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
from kafka_forensics.parsers.log_dir import SegmentFiles

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile, Entry

SPAN_BYTES: Final = 64 << 20
"""Batches that begin on either side of a multiple of this many bytes are never in one span, so that a file may be read in parts."""


@dataclass(slots=True)
class Span:
    """Bytes `[start, end)` of a file; offsets are inclusive, -1 where the bytes do not tell."""

    start: int
    end: int
    kind: str
    damage_kind: str | None = None
    base_offset: int = -1
    last_offset: int = -1
    count: int = 0
    detail: Json = field(default_factory=dict)

    def row(self) -> tuple[object, ...]:
        """The row in the order of the columns, behind the place."""
        known = self.count > 0 or self.base_offset >= 0
        return (
            self.start,
            self.end - self.start,
            self.kind,
            self.damage_kind,
            self.base_offset if known else None,
            self.last_offset if known and self.last_offset >= self.base_offset else None,
            self.count,
            json_text(self.detail) if self.detail else None,
        )


def span_facts(reading: FactReading) -> Iterator[pa.RecordBatch]:
    """Record batches of `spans`, as `Fact.own` says."""
    return record_batches(FACTS["spans"].own, _rows(reading))


def _rows(reading: FactReading) -> Iterator[tuple[object, ...]]:
    directory = reading.plan.directory
    for segment in directory.segments:
        if segment.log is not None:
            yield from _file_rows(reading, segment.log, segment)
        for entry, kind in (
            (segment.index, "index"),
            (segment.time_index, "timeindex"),
            (segment.transaction_index, "txnindex"),
        ):
            if entry is not None:
                yield from _file_rows(reading, entry, (kind, segment.base_offset))
    for offset, entry in directory.snapshots:
        yield from _file_rows(reading, entry, ("snapshot", offset))


def _file_rows(reading: FactReading, entry: "Entry", content: SegmentFiles | tuple[str, int]) -> Iterator[tuple[object, ...]]:
    """Rows of one file: the `.log` of a segment, or another kind with the offset in its name."""
    place = reading.place(entry)
    for span in _tiled(_read(reading, entry, content), lambda: reading.extent(entry)):
        yield *place, *span.row()


def _read(reading: FactReading, entry: "Entry", content: SegmentFiles | tuple[str, int]) -> Iterator[Span]:
    """Spans in file order, as far as the file can be read."""
    try:
        with reading.plan.log_dir.source.open(entry.path) as file:
            if isinstance(content, SegmentFiles):
                yield from _log_spans(reading, content, file)
            else:
                yield from _small_spans(file, *content)
    except SourceError as error:
        reading.missing(entry, error)


def _tiled(spans: Iterator[Span], extent: Callable[[], tuple[int, int]]) -> Iterator[Span]:
    """`spans` cut and filled up so that they tile `extent`; neighbours that are whole batches become one.

    The beginning of the extent is asked for once there is a span, its end when there are no more.
    """
    cursor: int | None = None
    last: Span | None = None
    for span in spans:
        start, size = extent()
        cursor = start if cursor is None else cursor
        span.start, span.end = max(span.start, cursor), min(span.end, size)
        if span.start >= span.end:
            continue
        filler = Span(cursor, span.start, "damaged") if span.start > cursor else None
        for piece in (filler, span):
            if piece is None:
                continue
            if last is not None and _join(last, piece):
                continue
            if last is not None:
                yield last
            last = piece
        cursor = span.end
    if last is not None:
        yield last
    start, size = extent()
    cursor = start if cursor is None else cursor
    if cursor < size:
        yield Span(cursor, size, "skipped", detail={"reason": "could not be read"})


def _join(last: Span, span: Span) -> bool:
    """Let `last` take in `one` if both are batches with nothing wrong and offsets that rise."""
    if not last.kind == span.kind == "batches" or last.damage_kind or span.damage_kind or span.base_offset <= last.last_offset:
        return False
    if last.start // SPAN_BYTES != span.start // SPAN_BYTES:
        return False
    last.end, last.last_offset, last.count = span.end, span.last_offset, last.count + span.count
    return True


def _log_spans(reading: FactReading, segment: SegmentFiles, file: "ByteFile") -> Iterator[Span]:
    alone = check_batch_in_file if reading.deep else None
    for chunk in reading.chunks(segment, file, inspect=BatchChecks(deep=reading.deep), inspect_alone=alone):
        yield from _chunk_spans(chunk)
        reading.passed(chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped)


def _chunk_spans(chunk: BatchChunk) -> Iterator[Span]:
    """Runs of good batches, bad batches one by one, and what lies between, by position."""
    columns = chunk.columns
    positions, sizes = columns[BatchColumn.POSITION], columns[BatchColumn.SIZE_IN_BYTES]
    bases, lasts = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
    at = {int(position): row for row, position in enumerate(positions)} if chunk.damage else {}
    inside: dict[int, Damage] = {}
    spans: list[Span] = []
    for damage in chunk.damage:
        if damage.position in at:
            inside.setdefault(at[damage.position], damage)
        elif damage.size_in_bytes > 0:
            kind = _span_kind(damage.kind)
            end = damage.position + damage.size_in_bytes
            spans.append(
                Span(damage.position, end, kind, damage.kind, damage.base_offset, damage.last_offset, detail=dict(damage.detail))
            )
    bad = ~has_right_crc(columns)
    alone = bad.copy()
    alone[list(inside)] = True
    breaks = np.ones(chunk.rows, bool)
    breaks[1:] = alone[1:] | alone[:-1] | (positions[:-1] + sizes[:-1] != positions[1:]) | (bases[1:] <= lasts[:-1])
    breaks[1:] |= positions[:-1] // SPAN_BYTES != positions[1:] // SPAN_BYTES
    starts = np.flatnonzero(breaks)
    ends = [*starts[1:], chunk.rows] if chunk.rows else []
    for first, end in zip(starts, ends, strict=True):
        stop = int(positions[end - 1] + sizes[end - 1])
        span = Span(
            int(positions[first]),
            stop,
            "damaged" if bad[first] else "batches",
            None,
            int(bases[first]),
            int(lasts[end - 1]),
            int(end - first),
        )
        inner = inside.get(int(first))
        if inner is not None:
            span.damage_kind, span.detail = inner.kind, dict(inner.detail)
        spans.append(span)
    spans.sort(key=lambda span: (span.start, span.end))
    yield from spans


def _small_spans(file: "ByteFile", kind: str, base_offset: int) -> Iterator[Span]:
    """Spans of an index or a snapshot: header, entries, zeros, and damage, which wins where it speaks of the same bytes."""
    header = zeros = 0
    first = last = -1
    damage: list[Damage]
    if kind == "index":
        index = parse_offset_index(file, base_offset)
        width, count, zeros, damage = INDEX_ENTRY_SIZE, len(index.offsets), index.zero_tail_bytes, index.damage
        first, last = (int(index.offsets.min()), int(index.offsets.max())) if count else (-1, -1)
    elif kind == "timeindex":
        times = parse_time_index(file, base_offset)
        width, count, zeros, damage = TIME_INDEX_ENTRY_SIZE, len(times.offsets), times.zero_tail_bytes, times.damage
        first, last = (int(times.offsets.min()), int(times.offsets.max())) if count else (-1, -1)
    elif kind == "txnindex":
        transactions = parse_transaction_index(file)
        width, count, damage = TXN_INDEX_ENTRY_SIZE, len(transactions.entries), transactions.damage
    else:
        snapshot = parse_producer_snapshot(file, base_offset)
        header, width, count, damage = (
            PRODUCER_SNAPSHOT_HEADER_SIZE,
            PRODUCER_SNAPSHOT_ENTRY_SIZE,
            len(snapshot.entries),
            snapshot.damage,
        )
    size = file.size_in_bytes
    behind = size - (size - header) % width if size >= header else 0
    spans = [Span(0, min(header, size), "header")] if header else []
    spans.append(Span(header, header + width * count, "entries", None, first, last))
    spans.append(Span(behind - zeros, behind, "zero_tail"))
    yield from _overlaid(spans, damage, width)


def _span_kind(damage_kind: str) -> str:
    if damage_kind == "SEG_ZERO_TAIL":
        return "zero_tail"
    return "skipped" if damage_kind == "BUDGET_EXCEEDED" else "damaged"


def _overlaid(spans: list[Span], damage: list[Damage], width: int) -> Iterator[Span]:
    """`spans` with the damaged bytes cut out of them, and the damage, by position; entries of `width` bytes are counted."""
    cuts = []
    for item in sorted(damage, key=lambda item: (item.position, item.size_in_bytes)):
        kind, end = _span_kind(item.kind), item.position + item.size_in_bytes
        cuts.append(Span(item.position, end, kind, item.kind, item.base_offset, item.last_offset, detail=dict(item.detail)))
    pieces = list(cuts)
    for span in spans:
        start = span.start
        for cut in [*cuts, Span(span.end, span.end, "")]:
            stop = min(cut.start, span.end)
            if stop > start:
                whole = (stop - start) // width if span.kind == "entries" else 0
                pieces.append(Span(start, stop, span.kind, None, span.base_offset, span.last_offset, whole))
            start = max(start, cut.end)
    pieces.sort(key=lambda span: (span.start, span.end))
    yield from pieces
