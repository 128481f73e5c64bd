"""Reading a task of a fact: the rows of its pieces in the requested columns, equal to the rows of the local engine.

All parts of a large `.log` together give the rows of the whole, although their readers do not communicate. A batch belongs to the
part that holds its first byte. A reader starts somewhat before its part, at a batch that the index names and that is valid, and
walks into its part as the reader of the whole log would. The reader of the previous part does the same with the end of its part,
and raises an error if the two do not meet: then damage or a wrong index makes them find different batches.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import pyarrow as pa
from msgspec import field
from msgspec.structs import replace

from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import CHECKPOINTS, Inputs, LogDir, ReplicaPlan, typed_path
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts.log import COUNTED, ReplicaReader, batch_facts, control_facts, record_facts
from kafka_forensics.export.facts.rows import FROM_FILES, FROM_SCANS, RANGED, FactQuery, add_keys, row_groups
from kafka_forensics.export.facts.small_files import checkpoint_facts, epoch_facts, index_facts, producer_facts
from kafka_forensics.export.facts.spans import span_facts
from kafka_forensics.export.facts.splits import FactPiece, decode
from kafka_forensics.model.batches import PAYLOAD_COLUMNS, BatchChunk, BatchColumn
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.checkpoints import parse_leader_epochs, parse_offset_checkpoint
from kafka_forensics.parsers.indexes import parse_offset_index, parse_producer_snapshot, parse_time_index, parse_transaction_index
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log import BatchChecks, SegmentReader, check_batch_in_file
from kafka_forensics.parsers.log_dir import LogDirectory, PartitionDirectory, SegmentFiles, SegmentLog
from kafka_forensics.scanning.rereading.record_states import LazyRecordStates, RecordStates
from kafka_forensics.scanning.rereading.seeking import start_position, start_position_for_time
from kafka_forensics.storage.bundles import needed_records
from kafka_forensics.storage.open import open_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from kafka_forensics.export.facts.log import BatchInspectors
    from kafka_forensics.model.batches import Damage
    from kafka_forensics.model.files import OffsetIndex
    from kafka_forensics.model.schemas import ArrowField
    from kafka_forensics.storage.source import ByteFile, ByteSource, Entry

_LEAD_FRACTION: Final = 64
"""A reader starts at least this fraction of a part before its part."""
_HARMLESS: Final = frozenset({"SEG_ZERO_TAIL"})
"""Not damage: zeros that a broker leaves after the last batch."""
Batches = Iterator[pa.RecordBatch]
READERS: Final[dict[str, Callable[[ReplicaReader], Batches]]] = {
    "batches": batch_facts,
    "records": record_facts,
    "spans": span_facts,
    "control_records": control_facts,
    "index_entries": index_facts,
    "epoch_entries": epoch_facts,
    "producer_states": producer_facts,
}
_MIN_BATCH_ROWS: Final = 8 << 10
"""Record batches with fewer rows on average are combined."""


def read_task(task: str, query: FactQuery, storage_options: tuple[tuple[str, str], ...] = ()) -> Batches:
    """Rows of a task of `plan_tasks` in the columns of the query, at most 64 Ki rows and 16 MiB in a batch.

    Raises SourceError for what cannot be read, and FormatError at the first bad byte of a strict query; both with the path.
    """
    assert query.fact not in FROM_SCANS
    pieces, deep = decode(task)
    compile_as_needed(sum(map(_log_bytes, pieces)))
    sources: dict[str, ByteSource] = {}

    def source_of(piece: FactPiece) -> "ByteSource":
        if piece.source not in sources:
            sources[piece.source] = open_address(piece.source, storage_options or None)
        return sources[piece.source]

    batches = (batch for piece in pieces for batch in _piece_batches(piece, source_of(piece), query, deep=deep))
    yield from select_batches(batches, query, FACTS[query.fact].schema)
    for source in sources.values():
        if source.problems:
            raise SourceError(source.name, source.problems[0])


def select_batches(batches: Batches, query: FactQuery, schema: pa.Schema) -> Batches:
    """The rows and columns of the query, of batches with the columns of `schema`; small batches are combined."""
    columns: list[ArrowField] = [schema.field(name) for name in query.columns]
    for group in row_groups((None, select_rows(batch, query)) for batch in batches):
        chunks = [batch for _, batch in group]
        table = pa.Table.from_batches(chunks, pa.schema(columns))
        yield from chunks if table.num_rows >= _MIN_BATCH_ROWS * len(chunks) else table.combine_chunks().to_batches()


def select_rows(batch: pa.RecordBatch, query: FactQuery) -> pa.RecordBatch:
    """The rows within the query's offsets and times, in its columns."""
    import pyarrow.compute as pc

    keep: pa.BooleanArray | None = None
    if query.is_ranged:
        first, last, time = (batch.column(name) for name in RANGED[query.fact])
        time = time.cast(pa.int64())  # null has no place in any range
        for limit, compare, column in (
            (query.offset_from, pc.greater_equal, last),
            (query.offset_to, pc.less, first),
            (query.timestamp_from, pc.greater_equal, time),
            (query.timestamp_to, pc.less, time),
        ):
            if limit is not None:
                fits = compare(column, pa.scalar(limit))
                keep = fits if keep is None else pc.and_(keep, fits)
    columns: list[ArrowField] = [batch.schema.field(name) for name in query.columns]
    if not columns:
        return batch.select([]) if keep is None else batch.filter(keep).select([])
    schema = pa.schema([field.remove_metadata() for field in columns])
    selected = pa.RecordBatch.from_arrays([batch.column(name) for name in query.columns], schema=schema)
    return selected if keep is None else selected.filter(keep)


def _piece_batches(piece: FactPiece, source: "ByteSource", query: FactQuery, *, deep: bool) -> Batches:
    """Record batches of a piece with all columns of the fact that the query needs."""

    def note(incomplete: Incomplete) -> None:
        if query.strict:
            raise FormatError(incomplete.reason, path=incomplete.path)
        logging.getLogger(__name__).warning("%s: %s", incomplete.path, incomplete.reason)

    try:
        if query.fact == "checkpoints":
            yield from _checkpoints(piece, source, query)
            return
        if query.strict and query.fact in ("spans", *FROM_FILES):
            _require_sound_files(piece, source)
        compared = RANGED[query.fact] if query.is_ranged else ()
        names = [name for name in FACTS[query.fact].schema.names if name in {*query.columns, *compared}] or ["partition"]
        for batch in READERS[query.fact](PieceReader.of(piece, source, query, note, deep=deep)):
            yield add_keys(batch, FACTS[query.fact], piece.keys, names)
    except SourceError as error:
        inside = error.path and not error.path.startswith(source.name)
        raise SourceError(typed_path(source, error.path) if inside else error.path or source.name, error.reason) from error


def piece_facts(
    piece: FactPiece, source: "ByteSource", query: FactQuery, note: Callable[[Incomplete], None], *, deep: bool, strict: bool
) -> Batches:
    """Record batches of a piece with the columns `Fact.file_schema`; `note` takes what cannot be read, as in the local engine.

    With `strict`, raises SourceError for what may be readable at the next attempt.
    """
    read = READERS[query.fact]
    if not (strict or piece.is_part):
        yield from read(ReplicaReader(_plan(piece, source), note, payloads=query.payloads, deep=deep))
        return
    try:
        yield from read(PieceReader.of(piece, source, query, note, deep=deep))
    except SourceError as error:
        if strict:
            raise
        note(Incomplete(error.path or source.name, error.reason, needed=needed_records(error)))


class PieceReader(ReplicaReader, kw_only=True):
    """Reads a piece for a query: a part of a `.log`, or whole files. What cannot be read is an error."""

    piece: FactPiece
    query: FactQuery
    _extents: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, piece: FactPiece, source: "ByteSource", query: FactQuery, note: Callable[[Incomplete], None], *, deep: bool
    ) -> "PieceReader":
        """A reader that decodes payloads only if the query has columns of them, and records only if it needs any."""
        payloads = query.payloads and any(name in query.columns for name in PAYLOAD_COLUMNS)
        needs_records = query.strict or query.is_ranged or not COUNTED.issuperset(query.columns)
        plan = _plan(piece, source)
        return cls(plan, note, payloads=payloads, deep=deep, needs_records=needs_records, piece=piece, query=query)

    def chunks(self, log: SegmentLog, file: "ByteFile", **inspectors: "Unpack[BatchInspectors]") -> Iterator[BatchChunk]:
        """The requested chunks of the piece. Raises SourceError, and FormatError at the first bad byte of a strict query."""
        entry, query = log.entry, self.query
        if file.size_in_bytes != entry.size_in_bytes:
            raise SourceError(entry.path, f"has {file.size_in_bytes} bytes now, and had {entry.size_in_bytes} when it was listed")
        if query.strict and query.fact == "records":
            inspectors |= {"inspect": BatchChecks(deep=True), "inspect_batch": check_batch_in_file}
        for chunk in self._walk(log, file, **inspectors):
            if query.strict:
                _require_sound(self.plan.log_dir.source, entry, chunk.damage)
            if not query.is_ranged:
                yield chunk
                continue
            yield replace(chunk, columns=chunk.columns[:, self._may_match(chunk.columns)])
            base_offsets = chunk.columns[BatchColumn.BASE_OFFSET]
            if query.offset_to is not None and chunk.rows and int(base_offsets.min()) >= query.offset_to:
                return

    def extent(self, entry: "Entry") -> tuple[int, int]:
        """The bytes `[start, end)` of a file that have been read."""
        return self._extents.get(entry.path, (0, entry.size_in_bytes))

    def states(self, log: SegmentLog, file: "ByteFile") -> RecordStates:
        """How the transactions of the requested records ended, read when the first of them needs it."""

        def read() -> RecordStates:
            try:
                return self.read_states(log, file, (self.extent(log.entry)[0], self.piece.end))
            except SourceError as error:
                self.missing(log.entry, error)
                raise

        return LazyRecordStates(read if "txn_state" in self.query.columns else None)

    def missing(self, entry: "Entry", error: SourceError) -> None:
        """Raise the error with the path as a user would type it."""
        raise SourceError(typed_path(self.plan.log_dir.source, entry.path), error.reason) from error

    def _may_match(self, columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Which batches may hold requested rows."""
        query = self.query
        may_match = np.ones(columns.shape[1], bool)
        if query.offset_from is not None:
            may_match &= columns[BatchColumn.LAST_OFFSET] >= query.offset_from
        if query.offset_to is not None:
            may_match &= columns[BatchColumn.BASE_OFFSET] < query.offset_to
        if query.timestamp_from is not None:
            may_match &= columns[BatchColumn.MAX_TIMESTAMP] >= query.timestamp_from
        return may_match

    def _walk(self, log: SegmentLog, file: "ByteFile", **inspectors: "Unpack[BatchInspectors]") -> Iterator[BatchChunk]:
        """Chunks of the piece; `extent` has how far they reach."""
        piece, path, size = self.piece, log.entry.path, file.size_in_bytes
        limit, lead = log.max_plausible_offset, self.query.split_bytes // _LEAD_FRACTION
        reader = SegmentReader(file, max_plausible_offset=limit, **inspectors)
        index = self._part_index(log.base_offset)
        walk_from = start = 0
        if piece.start:
            walk_from = _valid_batch_before(file, index, piece.start - lead)
            start = _first_batch_from(reader, walk_from, piece.start)
        requested = self._first_requested_position(log.segment, file)
        if requested > start:
            walk_from = start = requested
        end = size if piece.end is None else piece.end
        self._extents[path] = (start, size)
        next_start = None
        if piece.end is not None and requested < end:
            next_from = _valid_batch_before(file, index, piece.end - lead)
            if next_from > walk_from:
                next_start = _first_batch_from(SegmentReader(file, max_plausible_offset=limit), next_from, piece.end)
        gave_up, end_of_skipped = False, size if next_start is None else next_start
        for chunk in reader.chunks(start, end) if start < end else ():
            gave_up |= any(
                damage.kind == "BUDGET_EXCEEDED" and damage.position + damage.size_in_bytes >= size for damage in chunk.damage
            )
            yield _skipped_until(chunk, end_of_skipped) if gave_up else chunk
        ended = reader.end_position if start < end else start
        if gave_up:
            ended = end_of_skipped
        elif next_start not in (None, ended):
            raise SourceError(
                path,
                f"the part that ends at byte {ended} and the next one, from byte {next_start}, do not meet: damage or a wrong"
                f" index makes them find different batches; read it with split_bytes={2 * size}",
            )
        self._extents[path] = (start, ended)

    def _part_index(self, base_offset: int) -> "OffsetIndex | None":
        """The offset index of a segment that is read in parts; None if there is none."""
        entry = self.piece.part_index
        if entry is None:
            return None
        try:
            with self.plan.log_dir.source.open(entry.path) as file:
                return parse_offset_index(file, base_offset)
        except SourceError as error:
            self.missing(entry, error)
            raise

    def _first_requested_position(self, segment: SegmentFiles, file: "ByteFile") -> int:
        """The byte before which no requested rows are, according to index entries that the log confirms."""
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


def _valid_batch_before(file: "ByteFile", index: "OffsetIndex | None", limit: int) -> int:
    """The last position up to `limit` where the index names a batch, and one with a right CRC and that offset is.

    Tries ever earlier entries where an entry is wrong; 0 if none is right.
    """
    if index is None:
        return 0
    number, step = int(np.searchsorted(index.positions, limit, side="right")) - 1, 1
    while number >= 0:
        position, offset = int(index.positions[number]), int(index.offsets[number])
        previous_offset = int(index.offsets[number - 1]) if number else -1
        if 0 < position <= limit:
            first = SegmentReader(file).first_chunk(position)
            if (
                (first.rows == 1 and not first.damage and int(first.columns[BatchColumn.POSITION, 0]) == position)
                and previous_offset < int(first.columns[BatchColumn.LAST_OFFSET, 0])
                and int(first.columns[BatchColumn.BASE_OFFSET, 0]) <= offset
            ):
                return position
        number, step = number - step, step * 2
    return 0


def _first_batch_from(reader: SegmentReader, start: int, end: int) -> int:
    """The position of the first batch at or after `end` that the reader reaches from `start`."""
    for _ in reader.chunks(start, end):
        pass
    return reader.end_position


def _skipped_until(chunk: BatchChunk, end: int) -> BatchChunk:
    """The chunk with its skipped bytes cut at `end`, where another reader starts."""
    damage = [
        replace(damage, size_in_bytes=max(end - damage.position, 0)) if damage.kind == "BUDGET_EXCEEDED" else damage
        for damage in chunk.damage
    ]
    return replace(chunk, damage=damage)


def _log_bytes(piece: FactPiece) -> int:
    size = sum(segment.log.size_in_bytes for segment in piece.segments if segment.log is not None)
    return min(size, (piece.end or size) - piece.start) if piece.is_part else size


def _plan(piece: FactPiece, source: "ByteSource") -> ReplicaPlan:
    log_dir = LogDir(source, piece.log_dir, LogDirectory(""), piece.broker)
    directory = PartitionDirectory("", piece.directory, piece.topic, piece.partition, segments=piece.segments, legal=True)
    directory.entries.update(piece.entries)
    directory.snapshots.extend(piece.snapshots)
    context = ReplicaContext(piece.topic, piece.partition, piece.broker, piece.log_dir, piece.directory)
    following = [] if piece.next_base_offset is None else [piece.next_base_offset]
    context.segment_base_offsets = [*(segment.base_offset for segment in piece.segments if segment.log is not None), *following]
    return ReplicaPlan(log_dir, directory, context, _log_bytes(piece))


def _checkpoints(piece: FactPiece, source: "ByteSource", query: FactQuery) -> Batches:
    log_dir = LogDir(source, piece.log_dir, LogDirectory(""), piece.broker, node_id=piece.node_id)
    for name in CHECKPOINTS:
        if name in piece.entries:
            with source.open(piece.entries[name].path) as file:
                parsed = parse_offset_checkpoint(file)
            if query.strict:
                _require_sound(source, piece.entries[name], parsed.damage)
            offsets = {key: offset for key, offset in parsed.offsets.items() if query.includes(*key)}
            log_dir.checkpoints[name] = type(parsed)(offsets)
    return checkpoint_facts(Inputs(log_dirs=[log_dir]), ScanOptions())


def _require_sound_files(piece: FactPiece, source: "ByteSource") -> None:
    """Raise FormatError at the first bad byte of the small files of a piece."""
    parsers: list[tuple[Entry | None, Callable[[ByteFile], Any]]] = []
    for segment in piece.segments:
        parsers.append((segment.index, partial(parse_offset_index, base_offset=segment.base_offset)))
        parsers.append((segment.time_index, partial(parse_time_index, base_offset=segment.base_offset)))
        parsers.append((segment.transaction_index, parse_transaction_index))
    parsers += [(entry, partial(parse_producer_snapshot, offset=offset)) for offset, entry in piece.snapshots]
    parsers += [(entry, parse_leader_epochs) for entry in piece.entries.values()]
    for entry, parse in parsers:
        if entry is not None:
            with source.open(entry.path) as file:
                _require_sound(source, entry, parse(file).damage)


def _require_sound(source: "ByteSource", entry: "Entry", damage: "Iterable[Damage]") -> None:
    for found in damage:
        if found.kind not in _HARMLESS:
            raise FormatError(found.kind, path=typed_path(source, entry.path), position=found.position)
