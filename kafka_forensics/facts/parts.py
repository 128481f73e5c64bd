"""Reading a part of a large `.log` so that all parts together give the rows of the whole, without a word between their readers.

A batch belongs to the part in which its first byte lies. A reader begins somewhat before its part, at a batch that the index knows
and that proves itself, and walks into its part as the reader of the whole would. So does the reader of the part before it with the
end of its own, and says so if the two do not meet: then the index led into bytes that are no batches of this log.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.evidence.inputs import typed_path
from kafka_forensics.facts.log import Reading
from kafka_forensics.facts.pieces import Piece
from kafka_forensics.facts.query import FactQuery
from kafka_forensics.model.batches import BatchChunk, BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.parsers.indexes import parse_offset_index
from kafka_forensics.parsers.log import SegmentReader, check_batch_in_file, inspector
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.rereading.record_states import NONE, RecordStates
from kafka_forensics.rereading.seeking import start_position, start_position_for_time

if TYPE_CHECKING:
    from kafka_forensics.model.files import OffsetIndex
    from kafka_forensics.storage.source import ByteFile, Entry

_BEFORE: Final = 64
"""A reader begins at least a 64th of its part before it."""
_HARMLESS: Final = frozenset({"SEG_ZERO_TAIL"})
"""Damage that is none: what a broker leaves behind the last batch on purpose."""


@dataclass(slots=True)
class PieceReading(Reading):
    """How a piece is read for a query: a part of a `.log`, or whole files; what cannot be read is an error here."""

    piece: Piece = field(kw_only=True)
    query: FactQuery = field(kw_only=True)
    _extents: dict[str, tuple[int, int]] = field(default_factory=dict)

    def chunks(self, segment: SegmentFiles, file: "ByteFile", **given: Any) -> Iterator[BatchChunk]:
        """Chunks of what is asked for. Raises SourceError, and FormatError at the first bad byte if the query is strict."""
        assert segment.log is not None
        self._require_size(segment.log, file)
        if self.query.strict and self.query.fact == "records":
            given |= {"inspect": inspector(deep=True), "inspect_alone": check_batch_in_file}
        for chunk in self._walk(segment, file, **given):
            if self.query.strict:
                self._require_sound(segment.log, chunk)
            if not self.query.is_ranged:
                yield chunk
                continue
            yield replace(chunk, columns=chunk.columns[:, self._asked(chunk.columns)])
            bases = chunk.columns[BatchColumn.BASE_OFFSET]
            if self.query.offset_to is not None and chunk.rows and int(bases.min()) >= self.query.offset_to:
                return

    def extent(self, entry: "Entry") -> tuple[int, int]:
        """Where in a file what has been read begins and ends."""
        return self._extents.get(entry.path, (0, entry.size_in_bytes))

    def states(self, segment: SegmentFiles, file: "ByteFile") -> RecordStates:
        """How the transactions of the records that are asked for ended, read when the first of them asks."""
        log = segment.log
        assert log is not None
        goes_on = segment.base_offset < max(self.plan.context.segment_base_offsets, default=0)
        start, _ = self.extent(log)

        def read() -> RecordStates:
            try:
                return RecordStates(file, goes_on=goes_on, start=start, end=self.piece.end)
            except SourceError as error:
                self.missing(log, error)
                raise

        return _LateStates(read if "txn_state" in self.query.columns else None)

    def missing(self, entry: "Entry", error: SourceError) -> None:
        """Raise the error with the path as a person would type it."""
        raise SourceError(typed_path(self.plan.log_dir.source, entry.path), error.reason) from error

    def _require_size(self, entry: "Entry", file: "ByteFile") -> None:
        if file.size_in_bytes != entry.size_in_bytes:
            raise SourceError(entry.path, f"has {file.size_in_bytes} bytes now, and had {entry.size_in_bytes} when it was listed")

    def _require_sound(self, entry: "Entry", chunk: BatchChunk) -> None:
        for damage in chunk.damage:
            if damage.kind not in _HARMLESS:
                raise FormatError(damage.kind, path=typed_path(self.plan.log_dir.source, entry.path), position=damage.position)

    def _asked(self, columns: "np.ndarray[Any, np.dtype[np.int64]]") -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Rows that may hold what is asked for."""
        query = self.query
        asked = np.ones(columns.shape[1], bool)
        if query.offset_from is not None:
            asked &= columns[BatchColumn.LAST_OFFSET] >= query.offset_from
        if query.offset_to is not None:
            asked &= columns[BatchColumn.BASE_OFFSET] < query.offset_to
        if query.timestamp_from is not None:
            asked &= columns[BatchColumn.MAX_TIMESTAMP] >= query.timestamp_from
        return asked

    def _walk(self, segment: SegmentFiles, file: "ByteFile", **given: Any) -> Iterator[BatchChunk]:
        """Chunks of the piece; `extent` tells how far they reach."""
        piece, entry = self.piece, segment.log
        assert entry is not None
        size = file.size_in_bytes
        reader = self.reader(segment, file, **given)
        index = self._index(segment)
        known = landed = 0
        if piece.start:
            known = _known_batch(file, index, piece.start - self._before)
            landed = _landing(reader, known, piece.start)
        asked = self._first_asked(segment, file)
        if asked > landed:
            known = landed = asked
        end = size if piece.end is None else piece.end
        self._extents[entry.path] = (landed, size)
        following = size
        if piece.end is not None and landed < end:
            behind = _known_batch(file, index, piece.end - self._before)
            if behind > known:
                following = _landing(self.reader(segment, file), behind, piece.end)
        gave_up = False
        for chunk in reader.chunks(landed, end) if landed < end else ():
            gave_up |= any(
                damage.kind == "BUDGET_EXCEEDED" and damage.position + damage.size_in_bytes >= size for damage in chunk.damage
            )
            yield _until(chunk, following) if gave_up else chunk
        ended = reader.landed if landed < end else landed
        if gave_up:
            ended = following
        elif following < size and ended != following:
            raise SourceError(
                entry.path,
                f"the part that ends at byte {ended} and the next one, from byte {following}, do not meet: its index leads into"
                f" bytes that look like batches and are none; read it with split_bytes={2 * size}",
            )
        self._extents[entry.path] = (landed, ended)

    @property
    def _before(self) -> int:
        """How far before a part a reader begins at least, in bytes."""
        return self.query.split_bytes // _BEFORE

    def _index(self, segment: SegmentFiles) -> "OffsetIndex | None":
        """The offset index of a segment of which only a part is read; None if there is none that can be read."""
        entry = self.piece.part_index
        if entry is None:
            return None
        try:
            with self.plan.log_dir.source.open(entry.path) as file:
                return parse_offset_index(file, segment.base_offset)
        except SourceError as error:
            self.missing(entry, error)
            raise

    def _first_asked(self, segment: SegmentFiles, file: "ByteFile") -> int:
        """Byte before which nothing that is asked for lies, by the indexes as far as the log bears them out."""
        index, times = self.piece.part_index or segment.index, self.piece.part_time_index or segment.time_index
        offset, timestamp = self.query.offset_from, self.query.timestamp_from
        if index is None or (offset is None and (timestamp is None or times is None)):
            return 0
        source, base_offset, first = self.plan.log_dir.source, segment.base_offset, 0
        with source.open(index.path) as index_file:
            if offset is not None:
                first = start_position(file, index_file, base_offset, offset)
            if timestamp is not None and times is not None:
                with source.open(times.path) as time_file:
                    first = max(first, start_position_for_time(file, index_file, time_file, base_offset, timestamp))
        return first


class _LateStates(RecordStates):
    """The states of a segment's records, read by `read` when a record of a transaction is met; None: nobody wants to know."""

    def __init__(self, read: Callable[[], RecordStates] | None) -> None:
        self._read = read
        self._states: RecordStates | None = None

    def state(self, attributes: int, producer_id: int, position: int) -> str:
        """As `RecordStates.state`."""
        if self._read is None or not attributes & TRANSACTIONAL_MASK or attributes & CONTROL_MASK or producer_id < 0:
            return NONE
        if self._states is None:
            self._states = self._read()
        return self._states.state(attributes, producer_id, position)


def _known_batch(file: "ByteFile", index: "OffsetIndex | None", wanted: int) -> int:
    """The last byte up to `wanted` at which the index says that a batch begins, and one does, with a right CRC and its offset.

    Of entries that lie, ever earlier ones are tried; 0 if there is none.
    """
    if index is None:
        return 0
    at, step = int(np.searchsorted(index.positions, wanted, side="right")) - 1, 1
    while at >= 0:
        position, offset = int(index.positions[at]), int(index.offsets[at])
        before = int(index.offsets[at - 1]) if at else -1
        if 0 < position <= wanted:
            first = next(SegmentReader(file).chunks(position, position + 1))
            sound = first.rows == 1 and not first.damage and int(first.columns[BatchColumn.POSITION, 0]) == position
            if (
                sound
                and before < int(first.columns[BatchColumn.LAST_OFFSET, 0])
                and int(first.columns[BatchColumn.BASE_OFFSET, 0]) <= offset
            ):
                return position
        at, step = at - step, step * 2
    return 0


def _landing(reader: SegmentReader, start: int, end: int) -> int:
    """Where the first batch behind `end` begins, as the reader finds it on its way from `start`."""
    for _ in reader.chunks(start, end):
        pass
    return reader.landed


def _until(chunk: BatchChunk, end: int) -> BatchChunk:
    """The chunk with nothing given up behind `end`: another reader begins there."""
    damage = [
        replace(one, size_in_bytes=max(end - one.position, 0)) if one.kind == "BUDGET_EXCEEDED" else one for one in chunk.damage
    ]
    return replace(chunk, damage=damage)
