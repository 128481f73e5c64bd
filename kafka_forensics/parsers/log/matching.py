"""Records that match a query, from many batches at once."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.model.batches import RECORD_COLUMNS, BatchColumn, RecordColumn
from kafka_forensics.model.constants import COMPRESSION_MASK, INT64_MAX, RECORD_BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK
from kafka_forensics.parsers.kernels.matching import (
    CRITERIA,
    NO_STRING,
    PAYLOAD_ROWS,
    Criterion,
    PayloadRow,
    match_records,
    move_records,
)
from kafka_forensics.parsers.log.blocks import BLOCK_RECORDS, RecordBlock, block_of
from kafka_forensics.parsers.log.codecs import HELD_BYTES, decompress, decompress_into

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

OPENED_BYTES: Final = 2 << 20
"""Bytes of decompressed payloads per search; they stay in the CPU's cache until then."""
_SPARE_BYTES: Final = 256 << 10
"""Space for one more payload after them; a larger one is searched separately."""
_BLOCK_BYTES: Final = 1 << 20
"""Bytes of matching records that one block collects from several batches."""
_SAMPLE_BYTES: Final = 16 << 10
_RARE_BYTES: Final = 6
"""The rarest bytes of a byte string, from which two are chosen for the search."""


class RecordQuery(NamedTuple):
    """A query for records, as `kernels.matching` describes it."""

    criteria: "Ints"
    headers: "Ints"
    text: "Bytes"
    spans: "Ints"


def record_query(
    offsets: tuple[int | None, int | None],
    times: tuple[int | None, int | None],
    *,
    key: bytes | None = None,
    value_part: bytes | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> RecordQuery:
    """A query: offset and time in these ranges (ends exclusive, None: any), the key, a part of the value, all of the headers."""
    parts = {part for part in (key, value_part, *(part for header in headers for part in header)) if part is not None}
    strings = sorted(parts, key=lambda string: (-len(string), string))
    number = {string: index for index, string in enumerate(strings)} | {None: NO_STRING}
    lengths = np.array([len(string) for string in strings], np.int64)
    criteria = np.empty(CRITERIA, np.int64)
    criteria[[Criterion.OFFSET_START, Criterion.OFFSET_END]] = _bounds(*offsets)
    criteria[Criterion.HAS_TIME] = times != (None, None)
    criteria[[Criterion.TIME_START, Criterion.TIME_END]] = _bounds(*times)
    criteria[[Criterion.KEY, Criterion.VALUE_PART]] = number[key], number[value_part]
    named = np.array([[number[name], number[value]] for name, value in headers], np.int64).reshape(-1, 2)
    text = np.frombuffer(bytearray(b"".join(strings) or b"\0"), np.uint8)
    spans = np.stack([np.cumsum(lengths) - lengths, lengths, np.zeros_like(lengths), np.maximum(lengths - 1, 0)])
    return RecordQuery(criteria, np.ascontiguousarray(named.T), text, spans)


def _bounds(start: int | None, end: int | None) -> tuple[int, int]:
    return (
        -INT64_MAX if start is None else min(max(start, -INT64_MAX), INT64_MAX),
        INT64_MAX if end is None else min(max(end, -INT64_MAX), INT64_MAX),
    )


def choose_rare_bytes(query: RecordQuery, sample: "Bytes") -> None:
    """Choose the two bytes of each byte string that the search compares first: the pair that is rarest in `sample`."""
    sample = sample[:_SAMPLE_BYTES]
    counts = np.bincount(sample, minlength=256)
    for begin, length, spans in zip(*query.spans[:2].tolist(), query.spans.T, strict=True):
        string = query.text[begin : begin + length]
        rare = sorted(np.argsort(counts[string], kind="stable")[:_RARE_BYTES].tolist())
        pairs = [(left, right) for left in rare for right in rare if left < right <= left + len(sample)]
        if pairs:
            pair_counts = [
                int(((sample[: len(sample) - right + left] == string[left]) & (sample[right - left :] == string[right])).sum())
                for left, right in pairs
            ]
            spans[2:] = pairs[int(np.argmin(pair_counts))]


class FoundBlock(NamedTuple):
    """Matching records, and the matrix of their batches, (BATCH_COLUMNS, n): `block.batches` counts in `batches`."""

    batches: "Ints"
    block: RecordBlock


class RecordMatcher:
    """Finds the records that match `query`, with compiled kernels only; the next block overwrites each.

    Matches of several calls are collected into one block; `rest` returns those that are left.
    """

    def __init__(self, query: RecordQuery) -> None:
        self._query = query
        self._has_rare_bytes = not query.spans.shape[1]
        self._waiting: list[tuple[Ints, Ints]] = []
        self._waiting_bytes = 0

    @cached_property
    def _scratch(self) -> "Bytes":
        """Space for decompressed payloads."""
        return np.empty(OPENED_BYTES + _SPARE_BYTES, np.uint8)

    @cached_property
    def _gathered(self) -> "Bytes":
        """Bytes of the records that wait."""
        return np.empty(_BLOCK_BYTES, np.uint8)

    @cached_property
    def _output(self) -> "tuple[Ints, Ints]":
        """Space for records, and for the batch of each."""
        return np.empty((RECORD_COLUMNS, BLOCK_RECORDS), np.int64), np.empty(BLOCK_RECORDS, np.int64)

    def blocks(self, batches: "Ints", rows: "Ints", data: "Bytes", places: "Ints") -> Iterator[FoundBlock | tuple[int, memoryview]]:
        """Matching records of the batches of `rows`, ascending and of magic 2, of a (BATCH_COLUMNS, n) matrix; (row, bytes) of a
        batch that may be damaged, is large or must be searched separately. A batch begins in `data` at `places[row]`."""
        matrix, batch_of = self._output
        for opened in self._open_payloads(batches, rows, data.data, places):
            if isinstance(opened, int):
                yield from self.rest()
                yield opened, _bytes_of(batches, opened, data.data, places)
                continue
            buffer, payloads, owners = opened
            index = 0
            while index < len(owners):
                stop, records, _ = match_records.compiled(buffer, payloads, index, self._query, matrix, batch_of)
                if records:
                    yield from self._collect(batches[:, owners[batch_of[:records]]], buffer, matrix[:, :records])
                elif stop < len(owners):
                    yield from self.rest()
                    yield int(owners[stop]), _bytes_of(batches, int(owners[stop]), data.data, places)
                    stop += 1
                index = stop

    def rest(self) -> Iterator[FoundBlock]:
        """The matching records that no block has returned yet."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting:
            columns, batches = (np.concatenate(parts, axis=1) for parts in zip(*waiting, strict=True))
            yield FoundBlock(batches, block_of(batches, self._gathered, columns, np.arange(batches.shape[1])))

    def _collect(self, batches: "Ints", buffer: "Bytes", columns: "Ints") -> Iterator[FoundBlock]:
        """Collect matching records, each with its batch; blocks that are full or large."""
        size = int(columns[RecordColumn.SIZE_IN_BYTES].sum())
        if self._waiting_bytes + size > _BLOCK_BYTES:
            yield from self.rest()
        if size > _BLOCK_BYTES:
            yield FoundBlock(batches, block_of(batches, buffer, columns, np.arange(batches.shape[1])))
            return
        kept = columns.copy()
        self._waiting_bytes = int(move_records.compiled(buffer, kept, self._gathered, self._waiting_bytes))
        self._waiting.append((kept, batches))

    def _open_payloads(
        self, batches: "Ints", rows: "Ints", data: memoryview, places: "Ints"
    ) -> "Iterator[tuple[Bytes, Ints, Ints] | int]":
        """(bytes, payloads as `match_records` takes them, row of each) of many batches; the row of a batch to search separately."""
        is_plain = batches[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK == 0
        for run in np.split(rows, np.flatnonzero(np.diff(is_plain)) + 1):
            if run.size and batches[BatchColumn.ATTRIBUTES, run[0]] & COMPRESSION_MASK == 0:
                starts, sizes = places[run], batches[BatchColumn.SIZE_IN_BYTES, run]
                spans = np.stack((starts, starts + RECORD_BATCH_OVERHEAD, starts + sizes))
                yield self._payloads(batches, run, np.frombuffer(data, np.uint8), spans)
            elif run.size:
                yield from self._inflated(batches, run, data, places)

    def _inflated(
        self, batches: "Ints", rows: "Ints", data: memoryview, places: "Ints"
    ) -> "Iterator[tuple[Bytes, Ints, Ints] | int]":
        """The same for compressed batches."""
        scratch = self._scratch.data
        ends: list[int] = [0]
        at = first = 0
        codecs = (batches[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK).tolist()
        starts = places[rows] + RECORD_BATCH_OVERHEAD
        stops = places[rows] + batches[BatchColumn.SIZE_IN_BYTES, rows]
        for index, (codec, start, stop) in enumerate(zip(codecs, starts.tolist(), stops.tolist(), strict=True)):
            stored = data[start:stop]
            size = decompress_into(codec, stored, scratch[at:])
            if size >= 0 and at + size < OPENED_BYTES:
                at += size
                ends.append(at)
                continue
            inspect_batch = b""
            if size < 0:
                opened = decompress(codec, stored)
                if opened.problem is None and 0 < len(opened.data) <= len(scratch) - at:
                    size = len(opened.data)
                    scratch[at : at + size] = opened.data
                elif opened.problem is None and 0 < len(opened.data) < HELD_BYTES:
                    inspect_batch = opened.data
            if size >= 0:
                ends.append(at + size)
            if len(ends) > 1 and (size < 0 or ends[-1] >= OPENED_BYTES):
                yield self._adjacent(batches, rows[first : first + len(ends) - 1], ends)
                ends, first = [0], first + len(ends) - 1
            if size < 0:
                first = index + 1
                row = rows[index : index + 1]
                yield (
                    self._adjacent(batches, row, [0, len(inspect_batch)], np.frombuffer(inspect_batch, np.uint8))
                    if inspect_batch
                    else int(row[0])
                )
            at = ends[-1]
        if len(ends) > 1:
            yield self._adjacent(batches, rows[first:], ends)

    def _adjacent(
        self, batches: "Ints", rows: "Ints", ends: list[int], buffer: "Bytes | None" = None
    ) -> "tuple[Bytes, Ints, Ints]":
        """Payloads that are adjacent in the scratch space, or in `buffer`, by their ends."""
        edges = np.array(ends, np.int64)
        spans = np.stack((edges[:-1], edges[:-1], edges[1:]))
        return self._payloads(batches, rows, self._scratch if buffer is None else buffer, spans)

    def _payloads(self, batches: "Ints", rows: "Ints", buffer: "Bytes", spans: "Ints") -> "tuple[Bytes, Ints, Ints]":
        """Payloads; `spans` has the start of each search, and the start and the end of the records."""
        if not self._has_rare_bytes:
            self._has_rare_bytes = True
            choose_rare_bytes(self._query, buffer[int(spans[0, 0]) : int(spans[2, 0])])
        payloads = np.empty((PAYLOAD_ROWS, len(rows)), np.int64)
        by_broker = batches[BatchColumn.ATTRIBUTES, rows] & TIMESTAMP_TYPE_MASK != 0
        payloads[[PayloadRow.SEARCH_START, PayloadRow.START, PayloadRow.END]] = spans
        payloads[PayloadRow.RECORDS_COUNT] = batches[BatchColumn.RECORDS_COUNT, rows]
        payloads[PayloadRow.BASE_OFFSET] = batches[BatchColumn.BASE_OFFSET, rows]
        payloads[PayloadRow.BASE_TIMESTAMP] = np.where(
            by_broker, batches[BatchColumn.MAX_TIMESTAMP, rows], batches[BatchColumn.BASE_TIMESTAMP, rows]
        )
        payloads[PayloadRow.BY_BROKER] = by_broker
        return buffer, payloads, rows


def _bytes_of(batches: "Ints", row: int, data: memoryview, places: "Ints") -> memoryview:
    return data[int(places[row]) : int(places[row] + batches[BatchColumn.SIZE_IN_BYTES, row])]
