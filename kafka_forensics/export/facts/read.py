"""Reading a task of a fact: the rows of its pieces, in the columns that are asked for, as the local engine reads them."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Unpack

import numpy as np
import pyarrow as pa

from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import CHECKPOINTS, Inputs, LogDir, ReplicaPlan, typed_path
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts.log import FactReading, batch_facts, control_facts, record_facts
from kafka_forensics.export.facts.rows import FROM_FILES, FROM_SCANS, RANGED, FactQuery, cut, with_keys
from kafka_forensics.export.facts.small_files import checkpoint_facts, epoch_facts, index_facts, producer_facts
from kafka_forensics.export.facts.spans import span_facts
from kafka_forensics.export.facts.splits import Piece, decode
from kafka_forensics.model.batches import PAYLOAD_COLUMNS, BatchChunk, BatchColumn
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.checkpoints import parse_leader_epochs, parse_offset_checkpoint
from kafka_forensics.parsers.indexes import parse_offset_index, parse_producer_snapshot, parse_time_index, parse_transaction_index
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log import BatchChecks, SegmentReader, check_batch_in_file
from kafka_forensics.parsers.log_dir import LogDirectory, PartitionDirectory, SegmentFiles, max_plausible_offset
from kafka_forensics.scanning.rereading.record_states import LazyRecordStates, RecordStates
from kafka_forensics.scanning.rereading.seeking import start_position, start_position_for_time
from kafka_forensics.storage.open import open_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kafka_forensics.export.facts.log import Inspection
    from kafka_forensics.model.batches import Damage
    from kafka_forensics.model.files import OffsetIndex
    from kafka_forensics.model.schemas import ArrowField
    from kafka_forensics.storage.source import ByteFile, ByteSource, Entry


# Reading a part of a large `.log` so that all parts together give the rows of the whole, without a word between their readers.
#
# A batch belongs to the part in which its first byte lies. A reader begins somewhat before its part, at a batch that the index
# knows and that proves itself, and walks into its part as the reader of the whole would. So does the reader of the part before it
# with the end of its own, and says so if the two do not meet: then the index led into bytes that are no batches of this log.


_BEFORE: Final = 64
"""A reader begins at least a 64th of its part before it."""
_HARMLESS: Final = frozenset({"SEG_ZERO_TAIL"})
"""Damage that is none: what a broker leaves behind the last batch on purpose."""


@dataclass(slots=True)
class PieceReading(FactReading):
    """How a piece is read for a query: a part of a `.log`, or whole files; what cannot be read is an error here."""

    piece: Piece = field(kw_only=True)
    query: FactQuery = field(kw_only=True)
    _extents: dict[str, tuple[int, int]] = field(default_factory=dict)

    def chunks(self, segment: SegmentFiles, file: "ByteFile", **given: "Unpack[Inspection]") -> Iterator[BatchChunk]:
        """Chunks of what is asked for. Raises SourceError, and FormatError at the first bad byte if the query is strict."""
        assert segment.log is not None
        self._require_size(segment.log, file)
        if self.query.strict and self.query.fact == "records":
            given |= {"inspect": BatchChecks(deep=True), "inspect_alone": check_batch_in_file}
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
        following = self.following(segment)
        reach = max_plausible_offset(segment.base_offset, following)
        start, _ = self.extent(log)

        def read() -> RecordStates:
            try:
                return RecordStates(file, goes_on=following is not None, max_plausible_offset=reach, part=(start, self.piece.end))
            except SourceError as error:
                self.missing(log, error)
                raise

        return LazyRecordStates(read if "txn_state" in self.query.columns else None)

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

    def _asked(self, columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Rows that may hold what is asked for."""
        query = self.query
        wanted = np.ones(columns.shape[1], bool)
        if query.offset_from is not None:
            wanted &= columns[BatchColumn.LAST_OFFSET] >= query.offset_from
        if query.offset_to is not None:
            wanted &= columns[BatchColumn.BASE_OFFSET] < query.offset_to
        if query.timestamp_from is not None:
            wanted &= columns[BatchColumn.MAX_TIMESTAMP] >= query.timestamp_from
        return wanted

    def _walk(self, segment: SegmentFiles, file: "ByteFile", **given: "Unpack[Inspection]") -> Iterator[BatchChunk]:
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
        first_wanted = self._first_asked(segment, file)
        if first_wanted > landed:
            known = landed = first_wanted
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
            first = SegmentReader(file).first_chunk(position)
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
        replace(damage, size_in_bytes=max(end - damage.position, 0)) if damage.kind == "BUDGET_EXCEEDED" else damage
        for damage in chunk.damage
    ]
    return replace(chunk, damage=damage)


Batches = Iterator[pa.RecordBatch]
READERS: Final[dict[str, Callable[[FactReading], Batches]]] = {
    "batches": batch_facts,
    "records": record_facts,
    "spans": span_facts,
    "control_records": control_facts,
    "index_entries": index_facts,
    "epoch_entries": epoch_facts,
    "producer_states": producer_facts,
}
_ROWS_OF_A_PIECE: Final = 8 << 10
"""Smaller ones are made one."""


def read_task(task: str, query: FactQuery, storage_options: tuple[tuple[str, str], ...] = ()) -> Batches:
    """Rows of a task of `plan_tasks` in the columns of the query, at most 64 Ki rows and 16 MiB at once.

    Raises SourceError for what cannot be read, and FormatError at the first bad byte of a strict query; both with the path.
    """
    assert query.fact not in FROM_SCANS
    pieces, deep = decode(task)
    compile_as_needed(sum(map(_log_bytes, pieces)))
    sources: dict[str, ByteSource] = {}

    def source_of(piece: Piece) -> "ByteSource":
        if piece.source not in sources:
            sources[piece.source] = open_address(piece.source, storage_options or None)
        return sources[piece.source]

    batches = (batch for piece in pieces for batch in _piece_batches(piece, source_of(piece), query, deep=deep))
    yield from asked(batches, query, FACTS[query.fact].schema)
    for source in sources.values():
        if source.problems:
            raise SourceError(source.name, source.problems[0])


def asked(batches: Batches, query: FactQuery, schema: pa.Schema) -> Batches:
    """What the query asks for of rows with all the columns of `schema`, as large as batches may be."""
    columns: list[ArrowField] = [schema.field(name) for name in query.columns]
    for table in cut((projected(batch, query) for batch in batches), pa.schema(columns)):
        pieces = table.to_batches()
        yield from pieces if table.num_rows >= _ROWS_OF_A_PIECE * len(pieces) else table.combine_chunks().to_batches()


def projected(batch: pa.RecordBatch, query: FactQuery) -> pa.RecordBatch:
    """The rows within the query's offsets and times, in its columns."""
    import pyarrow.compute as pc

    keep: pa.BooleanArray | None = None
    if query.is_ranged:
        first, last, time = (batch.column(name) for name in RANGED[query.fact])
        for limit, rule, column in (
            (query.offset_from, pc.greater_equal, last),
            (query.offset_to, pc.less, first),
            (query.timestamp_from, pc.greater_equal, time),
            (query.timestamp_to, pc.less, time),
        ):
            if limit is not None:
                fits = rule(column, pa.scalar(limit))
                keep = fits if keep is None else pc.and_(keep, fits)
    columns: list[ArrowField] = [batch.schema.field(name) for name in query.columns]
    schema = pa.schema([field.remove_metadata() for field in columns])
    if not columns:
        return batch.select([]) if keep is None else batch.filter(keep).select([])
    chosen = pa.RecordBatch.from_arrays([batch.column(name) for name in query.columns], schema=schema)
    return chosen if keep is None else chosen.filter(keep)


def _log_bytes(piece: Piece) -> int:
    size = sum(segment.log.size_in_bytes for segment in piece.segments if segment.log is not None)
    return min(size, (piece.end or size) - piece.start) if piece.is_part else size


def _piece_batches(piece: Piece, source: "ByteSource", query: FactQuery, *, deep: bool) -> Batches:
    """Record batches of a piece with all columns of the fact that the query needs."""
    try:
        if query.fact == "checkpoints":
            yield from _checkpoints(piece, source, query)
            return
        reading = _reading(piece, source, query, deep=deep)
        if query.strict and query.fact in ("spans", *FROM_FILES):
            _require_sound_files(piece, source)
        compared = RANGED[query.fact] if query.is_ranged else ()
        names = [name for name in FACTS[query.fact].schema.names if name in {*query.columns, *compared}] or ["partition"]
        for batch in READERS[query.fact](reading):
            yield with_keys(batch, FACTS[query.fact], piece.topic, piece.partition, str(piece.broker), names)
    except SourceError as error:
        inside = error.path and not error.path.startswith(source.name)
        raise SourceError(typed_path(source, error.path) if inside else error.path or source.name, error.reason) from error


def piece_facts(
    piece: Piece, source: "ByteSource", query: FactQuery, note: Callable[[Incomplete], None], *, deep: bool, strict: bool
) -> Batches:
    """Record batches of a piece as `Fact.own` says; what could not be read goes to `note`, as in the local engine.

    With `strict`, raises SourceError for what may be readable at the next attempt.
    """
    reads = READERS[query.fact]
    if not (strict or piece.is_part):
        yield from reads(FactReading(_plan(piece, source), note, lambda _: None, payloads=query.payloads, deep=deep))
        return
    reading = PieceReading(_plan(piece, source), note, lambda _: None, payloads=query.payloads, deep=deep, piece=piece, query=query)
    try:
        yield from reads(reading)
    except SourceError as error:
        if strict:
            raise
        note(Incomplete(error.path or source.name, error.reason))


def _reading(piece: Piece, source: "ByteSource", query: FactQuery, *, deep: bool) -> PieceReading:
    def note(incomplete: Incomplete) -> None:
        if query.strict:
            raise FormatError(incomplete.reason, path=incomplete.path)
        logging.getLogger(__name__).warning("%s: %s", incomplete.path, incomplete.reason)

    payloads = query.payloads and any(name in query.columns for name in PAYLOAD_COLUMNS)
    return PieceReading(_plan(piece, source), note, lambda _: None, payloads=payloads, deep=deep, piece=piece, query=query)


def _plan(piece: Piece, source: "ByteSource") -> ReplicaPlan:
    log_dir = LogDir(source, piece.log_dir, LogDirectory(""), piece.broker)
    directory = PartitionDirectory("", piece.directory, piece.topic, piece.partition, segments=piece.segments, legal=True)
    directory.entries.update(piece.entries)
    directory.snapshots.extend(piece.snapshots)
    context = ReplicaContext(piece.topic, piece.partition, piece.broker, piece.log_dir, piece.directory)
    following = [] if piece.next_base_offset is None else [piece.next_base_offset]
    context.segment_base_offsets = [*(segment.base_offset for segment in piece.segments if segment.log is not None), *following]
    return ReplicaPlan(log_dir, directory, context, _log_bytes(piece))


def _checkpoints(piece: Piece, source: "ByteSource", query: FactQuery) -> Batches:
    log_dir = LogDir(source, piece.log_dir, LogDirectory(""), piece.broker)
    for name in CHECKPOINTS:
        if name in piece.entries:
            with source.open(piece.entries[name].path) as file:
                parsed = parse_offset_checkpoint(file)
            if query.strict:
                _require_sound(source, piece.entries[name], parsed)
            offsets = {key: offset for key, offset in parsed.offsets.items() if query.wants(*key)}
            log_dir.checkpoints[name] = type(parsed)(offsets)
    return checkpoint_facts(Inputs(log_dirs=[log_dir]), ScanOptions())


class _Parsed(Protocol):
    @property
    def damage(self) -> "Sequence[Damage]": ...


def _require_sound_files(piece: Piece, source: "ByteSource") -> None:
    """Raise FormatError at the first bad byte of the small files of a piece."""
    parsers: list[tuple[Entry | None, Callable[[ByteFile], _Parsed]]] = []
    for segment in piece.segments:
        parsers.append((segment.index, partial(parse_offset_index, base_offset=segment.base_offset)))
        parsers.append((segment.time_index, partial(parse_time_index, base_offset=segment.base_offset)))
        parsers.append((segment.transaction_index, parse_transaction_index))
    parsers += [(entry, partial(parse_producer_snapshot, offset=offset)) for offset, entry in piece.snapshots]
    parsers += [(entry, parse_leader_epochs) for entry in piece.entries.values()]
    for entry, parse in parsers:
        if entry is not None:
            with source.open(entry.path) as file:
                _require_sound(source, entry, parse(file))


def _require_sound(source: "ByteSource", entry: "Entry", parsed: "_Parsed") -> None:
    if parsed.damage:
        first = parsed.damage[0]
        raise FormatError(first.kind, path=typed_path(source, entry.path), position=first.position)
