"""Reading a task of a fact: the rows of its pieces, in the columns that are asked for, as the local engine reads them."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.compiled import use_compiled, using_compiled, worth_compiling
from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.inputs import CHECKPOINTS, Inputs, LogDir, ReplicaPlan, typed_path
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.facts.log import Reading, batch_facts, control_facts, record_facts
from kafka_forensics.facts.parts import PieceReading
from kafka_forensics.facts.pieces import Piece, decode
from kafka_forensics.facts.query import FROM_FILES, FROM_SCANS, RANGED, FactQuery
from kafka_forensics.facts.rows import cut, repeated
from kafka_forensics.facts.small_files import checkpoint_facts, epoch_facts, index_facts, producer_facts
from kafka_forensics.facts.spans import span_facts
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.checkpoints import parse_leader_epochs, parse_offset_checkpoint
from kafka_forensics.parsers.indexes import parse_offset_index, parse_producer_snapshot, parse_time_index, parse_transaction_index
from kafka_forensics.parsers.log_dir import LogDirectory, PartitionDirectory
from kafka_forensics.storage.open import open_address

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_forensics.storage.source import ByteFile, ByteSource, Entry

Batches = Iterator["pa.RecordBatch"]
_READERS: Final[dict[str, Callable[[Reading], Batches]]] = {
    "batches": batch_facts,
    "records": record_facts,
    "spans": span_facts,
    "control_records": control_facts,
    "index_entries": index_facts,
    "epoch_entries": epoch_facts,
    "producer_states": producer_facts,
}
_PAYLOADS: Final = frozenset({"key", "value", "headers"})


def read_task(task: str, query: FactQuery, storage_options: tuple[tuple[str, str], ...] = ()) -> Batches:
    """Rows of a task of `plan_tasks` in the columns of the query, at most 64 Ki rows and 16 MiB at once.

    Raises SourceError for what cannot be read, and FormatError at the first bad byte of a strict query; both with the path.
    """
    import pyarrow as pa

    assert query.fact not in FROM_SCANS
    pieces, deep = decode(task)
    use_compiled(using_compiled() or worth_compiling(sum(map(_log_bytes, pieces))))
    sources: dict[str, ByteSource] = {}

    def source_of(piece: Piece) -> "ByteSource":
        if piece.source not in sources:
            sources[piece.source] = open_address(piece.source, storage_options or None)
        return sources[piece.source]

    columns: list[Any] = [FACTS[query.fact].schema.field(name) for name in query.columns]
    batches = (batch for one in pieces for batch in _piece_batches(one, source_of(one), query, deep=deep))
    for table in cut((projected(batch, query) for batch in batches), pa.schema(columns)):
        yield from table.to_batches()
    for source in sources.values():
        if source.problems:
            raise SourceError(source.name, source.problems[0])


def projected(batch: "pa.RecordBatch", query: FactQuery) -> "pa.RecordBatch":
    """The rows within the query's offsets and times, in its columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    keep: Any = None
    if query.is_ranged:
        first, last, time = (batch.column(name) for name in RANGED[query.fact])
        for limit, rule, column in (
            (query.offset_from, compute.greater_equal, last),
            (query.offset_to, compute.less, first),
            (query.timestamp_from, compute.greater_equal, time),
            (query.timestamp_to, compute.less, time),
        ):
            if limit is not None:
                fits = rule(column, limit)
                keep = fits if keep is None else compute.and_(keep, fits)
    columns: list[Any] = [batch.schema.field(name) for name in query.columns]
    schema = pa.schema([field.remove_metadata() for field in columns])
    if not columns:
        return batch.select([]) if keep is None else batch.filter(keep).select([])
    chosen = pa.RecordBatch.from_arrays([batch.column(name) for name in query.columns], schema=schema)
    return chosen if keep is None else chosen.filter(keep)


def _log_bytes(piece: Piece) -> int:
    size = sum(segment.log.size_in_bytes for segment in piece.segments if segment.log is not None)
    return min(size, (piece.end or size) - piece.start) if piece.is_part else size


def _piece_batches(piece: Piece, source: "ByteSource", query: FactQuery, *, deep: bool) -> Batches:
    """Record batches of a piece with all columns of the fact."""
    try:
        if query.fact == "checkpoints":
            yield from _checkpoints(piece, source, query)
            return
        reading = _reading(piece, source, query, deep=deep)
        if query.strict and query.fact in ("spans", *FROM_FILES):
            _require_sound_files(piece, source)
        for batch in _READERS[query.fact](reading):
            yield _with_keys(batch, piece, query.fact)
    except SourceError as error:
        inside = error.path and not error.path.startswith(source.name)
        raise SourceError(typed_path(source, error.path) if inside else error.path or source.name, error.reason) from error


def piece_facts(
    piece: Piece, source: "ByteSource", query: FactQuery, note: Callable[[Incomplete], None], *, deep: bool, strict: bool
) -> Batches:
    """Record batches of a piece as `Fact.own` says; what could not be read goes to `note`, as in the local engine.

    With `strict`, raises SourceError for what may be readable at the next attempt.
    """
    reads = _READERS[query.fact]
    if not (strict or piece.is_part):
        yield from reads(Reading(_plan(piece, source), note, lambda _: None, payloads=query.payloads, deep=deep))
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

    payloads = query.payloads and not _PAYLOADS.isdisjoint(query.columns)
    return PieceReading(_plan(piece, source), note, lambda _: None, payloads=payloads, deep=deep, piece=piece, query=query)


def _plan(piece: Piece, source: "ByteSource") -> ReplicaPlan:
    log_dir = LogDir(source, piece.log_dir, LogDirectory("", {}, [], [], []), piece.broker)
    directory = PartitionDirectory(
        path="",
        name=piece.directory,
        topic=piece.topic,
        partition=piece.partition,
        suffix=None,
        unique_id=None,
        segments=piece.segments,
        leftovers=[],
        entries=piece.entries,
        snapshots=piece.snapshots,
        metadata_snapshots=[],
        unknown=[],
        irregular=[],
        legal=True,
    )
    context = ReplicaContext(piece.topic, piece.partition, piece.broker, piece.log_dir, piece.directory)
    following = [] if piece.next_base_offset is None else [piece.next_base_offset]
    context.segment_base_offsets = [*(segment.base_offset for segment in piece.segments if segment.log is not None), *following]
    return ReplicaPlan(log_dir, directory, context, _log_bytes(piece))


def _with_keys(batch: "pa.RecordBatch", piece: Piece, fact: str) -> "pa.RecordBatch":
    import pyarrow as pa

    schema, rows = FACTS[fact].schema, batch.num_rows
    keys = {
        "topic": repeated(piece.topic, rows),
        "partition": pa.repeat(pa.scalar(piece.partition, pa.int32()), rows),
        "broker": repeated(str(piece.broker), rows),
    }
    return pa.RecordBatch.from_arrays([keys[name] if name in keys else batch.column(name) for name in schema.names], schema=schema)


def _checkpoints(piece: Piece, source: "ByteSource", query: FactQuery) -> Batches:
    log_dir = LogDir(source, piece.log_dir, LogDirectory("", {}, [], [], []), piece.broker)
    for name in CHECKPOINTS:
        if name in piece.entries:
            with source.open(piece.entries[name].path) as file:
                parsed = parse_offset_checkpoint(file)
            if query.strict:
                _require_sound(source, piece.entries[name], parsed)
            offsets = {key: offset for key, offset in parsed.offsets.items() if query.wants(*key)}
            log_dir.checkpoints[name] = type(parsed)(offsets)
    return checkpoint_facts(Inputs(log_dirs=[log_dir]), ScanOptions())


def _require_sound_files(piece: Piece, source: "ByteSource") -> None:
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
                _require_sound(source, entry, parse(file))


def _require_sound(source: "ByteSource", entry: "Entry", parsed: Any) -> None:
    if parsed.damage:
        first = parsed.damage[0]
        raise FormatError(first.kind, path=typed_path(source, entry.path), position=first.position)
