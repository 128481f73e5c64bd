"""Records that fit what is asked, of many batches at once: payloads are opened side by side, in a buffer that is used again."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.model.batches import RECORD_COLUMNS, BatchColumn, RecordColumn
from kafka_forensics.model.constants import COMPRESSION_MASK, INT64_MAX, RECORD_BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK
from kafka_forensics.parsers.kernels.matching import NEVER, PAYLOAD_ROWS, WANTED, PayloadRow, Wanted, match_records, move_records
from kafka_forensics.parsers.log.blocks import BLOCK_RECORDS, RecordBlock, block_of
from kafka_forensics.parsers.log.codecs import HELD_BYTES, decompress, decompress_into

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

OPENED_BYTES: Final = 2 << 20
"""Of payloads that are opened before one look is taken at all of them; they stay in the cache of the processor until then."""
_SPARE_BYTES: Final = 256 << 10
"""Behind them, for one more; a larger one is opened by itself."""
_GATHERED_BYTES: Final = 1 << 20
"""Of records that fit, from some batches or many, that are given together."""
_SAMPLE_BYTES: Final = 16 << 10
_BYTES_WEIGHED: Final = 6
"""Of a piece, the rarest, of which two are chosen to be looked for."""


class Sought(NamedTuple):
    """What records are asked for, as the kernels of `matching` take it; None there is "not asked", ends are exclusive."""

    wanted: "Ints"
    headers: "Ints"
    text: "Bytes"
    spans: "Ints"


def sought(
    offsets: tuple[int | None, int | None],
    times: tuple[int | None, int | None],
    *,
    key: bytes | None = None,
    value_part: bytes | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> Sought:
    """What to ask of records: offset and time in these ranges, this key, this part of the value, each of these headers."""
    parts = {part for part in (key, value_part, *(part for header in headers for part in header)) if part is not None}
    pieces = sorted(parts, key=lambda part: (-len(part), part))
    number = {piece: index for index, piece in enumerate(pieces)} | {None: NEVER}
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64) if pieces else lengths
    wanted = np.empty(WANTED, np.int64)
    wanted[[Wanted.OFFSET_START, Wanted.OFFSET_END]] = _bounds(*offsets)
    wanted[Wanted.ASKS_TIME] = times != (None, None)
    wanted[[Wanted.TIME_START, Wanted.TIME_END]] = _bounds(*times)
    wanted[[Wanted.KEY, Wanted.VALUE_PART]] = number[key], number[value_part]
    named = np.array([[number[name], number[value]] for name, value in headers], np.int64).reshape(-1, 2)
    text = np.frombuffer(bytearray(b"".join(pieces) or b"\0"), np.uint8)
    spans = np.stack([begins, lengths, np.zeros_like(lengths), np.maximum(lengths - 1, 0)])
    return Sought(wanted, np.ascontiguousarray(named.T), text, spans)


def _bounds(start: int | None, end: int | None) -> tuple[int, int]:
    return (
        -INT64_MAX if start is None else min(max(start, -INT64_MAX), INT64_MAX),
        INT64_MAX if end is None else min(max(end, -INT64_MAX), INT64_MAX),
    )


def look_for_rare_bytes(asked: Sought, sample: "Bytes") -> None:
    """Choose the two bytes of each piece that are looked for first: those that stand together in the sample least often."""
    held = sample[:_SAMPLE_BYTES]
    often = np.bincount(held, minlength=256)
    for begin, length, piece in zip(*asked.spans[:2].tolist(), range(asked.spans.shape[1]), strict=True):
        own = asked.text[begin : begin + length]
        places = sorted(np.argsort(often[own], kind="stable")[:_BYTES_WEIGHED].tolist())
        pairs = [(left, right) for left in places for right in places if left < right <= left + len(held)]
        if pairs:
            together = [
                int(((held[: len(held) - right + left] == own[left]) & (held[right - left :] == own[right])).sum())
                for left, right in pairs
            ]
            asked.spans[2:, piece] = pairs[int(np.argmin(together))]


class FoundBlock(NamedTuple):
    """Records that fit, and of each the column of its batch: `block.batches` are the columns of `batches`."""

    batches: "Ints"
    block: RecordBlock


class RecordMatcher:
    """Gives the records that are `asked` for, compiled kernels only; a block is to be used before the next is asked for.

    Those that fit wait until there are many; `rest` gives what waits, in which other matrices of batches may have a part.
    """

    def __init__(self, asked: Sought) -> None:
        self._asked = asked
        self._is_tuned = not asked.spans.shape[1]
        self._room = np.empty(0, np.uint8)
        self._matrix = np.empty((RECORD_COLUMNS, 0), np.int64)
        self._batch_of = np.empty(0, np.int64)
        self._gathered = np.empty(0, np.uint8)
        self._waiting: list[tuple[Ints, Ints]] = []
        self._waiting_bytes = 0

    def blocks(self, batches: "Ints", rows: "Ints", data: "Bytes", places: "Ints") -> Iterator[FoundBlock | tuple[int, memoryview]]:
        """Records of the batches of these rows, rising and of magic 2, of a (BATCH_COLUMNS, n) matrix; (row, bytes) of one that may
        be broken, is large or can only be judged by itself. Each batch begins in `data` at its row's of `places`."""
        self._make_room()
        view = data.data
        for opened in self._opened(batches, rows, view, places):
            if isinstance(opened, int):
                yield from self.rest()
                yield opened, _bytes_of(batches, opened, view, places)
                continue
            buffer, payloads, owners = opened
            index = 0
            while index < len(owners):
                stop, records, _ = match_records.compiled(buffer, payloads, index, self._asked, self._matrix, self._batch_of)
                if records:
                    own = batches[:, owners[self._batch_of[:records]]]
                    yield from self._given(own, buffer, self._matrix[:, :records])
                elif stop < len(owners):
                    yield from self.rest()
                    yield int(owners[stop]), _bytes_of(batches, int(owners[stop]), view, places)
                    stop += 1
                index = stop

    def _make_room(self) -> None:
        """Take what is needed, once."""
        if not self._room.size:
            self._room = np.empty(OPENED_BYTES + _SPARE_BYTES, np.uint8)
            self._gathered = np.empty(_GATHERED_BYTES, np.uint8)
            self._matrix = np.empty((RECORD_COLUMNS, BLOCK_RECORDS), np.int64)
            self._batch_of = np.empty(BLOCK_RECORDS, np.int64)

    def rest(self) -> Iterator[FoundBlock]:
        """The records that wait."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting:
            columns, batches = (np.concatenate(parts, axis=1) for parts in zip(*waiting, strict=True))
            yield FoundBlock(batches, block_of(batches, self._gathered, columns, np.arange(batches.shape[1])))

    def _given(self, batches: "Ints", buffer: "Bytes", columns: "Ints") -> Iterator[FoundBlock]:
        """Records that were found, each with its batch, now or together with later ones."""
        size = int(columns[RecordColumn.SIZE_IN_BYTES].sum())
        if self._waiting_bytes + size > _GATHERED_BYTES:
            yield from self.rest()
        if size > _GATHERED_BYTES:
            yield FoundBlock(batches, block_of(batches, buffer, columns, np.arange(batches.shape[1])))
            return
        kept = columns.copy()
        self._waiting_bytes = int(move_records.compiled(buffer, kept, self._gathered, self._waiting_bytes))
        self._waiting.append((kept, batches))

    def _opened(
        self, batches: "Ints", rows: "Ints", data: memoryview, places: "Ints"
    ) -> "Iterator[tuple[Bytes, Ints, Ints] | int]":
        """(bytes, payloads in them as `match_records` takes them, row of each) of many batches; the row of one to judge alone."""
        plain = batches[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK == 0
        edges = np.flatnonzero(np.diff(plain)) + 1
        for run in np.split(rows, edges):
            if not run.size:
                continue
            if batches[BatchColumn.ATTRIBUTES, run[0]] & COMPRESSION_MASK == 0:
                starts, sizes = places[run], batches[BatchColumn.SIZE_IN_BYTES, run]
                spans = np.stack((starts, starts + RECORD_BATCH_OVERHEAD, starts + sizes))
                yield self._described(batches, run, np.frombuffer(data, np.uint8), spans)
            else:
                yield from self._inflated(batches, run, data, places)

    def _inflated(
        self, batches: "Ints", rows: "Ints", data: memoryview, places: "Ints"
    ) -> "Iterator[tuple[Bytes, Ints, Ints] | int]":
        """The same of compressed batches."""
        room = self._room.data
        ends: list[int] = [0]
        at = first = 0
        codecs = (batches[BatchColumn.ATTRIBUTES, rows] & COMPRESSION_MASK).tolist()
        starts = places[rows] + RECORD_BATCH_OVERHEAD
        stops = places[rows] + batches[BatchColumn.SIZE_IN_BYTES, rows]
        for index, (codec, start, stop) in enumerate(zip(codecs, starts.tolist(), stops.tolist(), strict=True)):
            stored = data[start:stop]
            given = decompress_into(codec, stored, room[at:])
            if given >= 0 and at + given < OPENED_BYTES:
                at += given
                ends.append(at)
                continue
            alone = b""
            if given < 0:
                opened = decompress(codec, stored)
                if opened.problem is None and 0 < len(opened.data) <= len(room) - at:
                    given = len(opened.data)
                    room[at : at + given] = opened.data
                elif opened.problem is None and 0 < len(opened.data) < HELD_BYTES:
                    alone = opened.data
            if given >= 0:
                ends.append(at + given)
            if len(ends) > 1 and (given < 0 or ends[-1] >= OPENED_BYTES):
                yield self._together(batches, rows[first : first + len(ends) - 1], ends)
                ends, first = [0], first + len(ends) - 1
            if given < 0:
                first = index + 1
                row = rows[index : index + 1]
                yield self._together(batches, row, [0, len(alone)], np.frombuffer(alone, np.uint8)) if alone else int(row[0])
            at = ends[-1]
        if len(ends) > 1:
            yield self._together(batches, rows[first:], ends)

    def _together(
        self, batches: "Ints", rows: "Ints", ends: list[int], buffer: "Bytes | None" = None
    ) -> "tuple[Bytes, Ints, Ints]":
        edges = np.array(ends, np.int64)
        spans = np.stack((edges[:-1], edges[:-1], edges[1:]))
        return self._described(batches, rows, self._room if buffer is None else buffer, spans)

    def _described(self, batches: "Ints", rows: "Ints", buffer: "Bytes", spans: "Ints") -> "tuple[Bytes, Ints, Ints]":
        """Payloads by where each is searched from, where its records start, and where they end."""
        if not self._is_tuned:
            self._is_tuned = True
            look_for_rare_bytes(self._asked, buffer[int(spans[0, 0]) : int(spans[2, 0])])
        payloads = np.empty((PAYLOAD_ROWS, len(rows)), np.int64)
        by_broker = batches[BatchColumn.ATTRIBUTES, rows] & TIMESTAMP_TYPE_MASK != 0
        payloads[[PayloadRow.SEARCHED, PayloadRow.START, PayloadRow.END]] = spans
        payloads[PayloadRow.RECORDS_COUNT] = batches[BatchColumn.RECORDS_COUNT, rows]
        payloads[PayloadRow.BASE_OFFSET] = batches[BatchColumn.BASE_OFFSET, rows]
        payloads[PayloadRow.BASE_TIMESTAMP] = np.where(
            by_broker, batches[BatchColumn.MAX_TIMESTAMP, rows], batches[BatchColumn.BASE_TIMESTAMP, rows]
        )
        payloads[PayloadRow.BY_BROKER] = by_broker
        return buffer, payloads, rows


def _bytes_of(batches: "Ints", row: int, data: memoryview, places: "Ints") -> memoryview:
    return data[int(places[row]) : int(places[row] + batches[BatchColumn.SIZE_IN_BYTES, row])]
