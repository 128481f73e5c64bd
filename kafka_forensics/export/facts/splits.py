"""Dividing a fact into tasks of about equal bytes, from names and listings alone; of sparse logs the holes are looked up.

Small files are combined, large `.log` files are cut. The task that reads a part finds its exact start (`read`), so a task is a pure
function of the files: any attempt on any machine gives the same rows.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from kafka_forensics.errors import SourceError, UsageError, did_you_mean_prefix
from kafka_forensics.evidence.inputs import CHECKPOINTS, Inputs, LogDir, NodeIds, ReplicaPlan, broker_order, gather_log_dirs
from kafka_forensics.evidence.options import ScanOptions, listed
from kafka_forensics.evidence.paths import skipped_members
from kafka_forensics.export.facts.rows import FROM_LOGS, FROM_SCANS, FactQuery
from kafka_forensics.export.facts.spans import SPAN_BYTES
from kafka_forensics.model.json_objects import JsonArray
from kafka_forensics.model.schemas import ReplicaKeys
from kafka_forensics.parsers.log_dir import PartitionDirectory, SegmentFiles
from kafka_forensics.scanning.engine.work_plan import file_cost, packed_for_cores, read_bytes
from kafka_forensics.scanning.judging.whole_scan import is_deep
from kafka_forensics.scanning.witnesses.remote_chains import gather_logs
from kafka_forensics.storage.archives import reading_order
from kafka_forensics.storage.open import address_of
from kafka_forensics.storage.source import ByteSource, Entry


class FactPiece(Struct):
    """Files of one replica, or a part of one large `.log`: batches that begin in bytes `[start, end)` (`end` None: to its end).

    `source` is the address of the source, `log_dir` the name of the log directory, `next_base_offset` that of the segment after the
    last one. `part_index` and `part_time_index` are indexes of a part's segment that are only used to find batches.
    """

    source: str
    log_dir: str
    broker: int | str
    node_id: int | None
    topic: str
    partition: int
    directory: str
    segments: list[SegmentFiles] = field(default_factory=list)
    snapshots: list[tuple[int, Entry]] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    next_base_offset: int | None = None
    start: int = 0
    end: int | None = None
    part_index: Entry | None = None
    part_time_index: Entry | None = None

    @property
    def keys(self) -> ReplicaKeys:
        """The keys of its replica."""
        return ReplicaKeys(self.topic, self.partition, str(self.broker), self.node_id)

    @property
    def is_part(self) -> bool:
        """Whether it is part of a `.log`."""
        return self.start > 0 or self.end is not None


def encode(pieces: list[FactPiece], *, deep: bool) -> str:
    """A task: pieces as one line of ASCII; `deep` is that of `ReplicaReader`."""
    return json.dumps({"deep": deep, "pieces": pieces}, default=astuple, separators=(",", ":"))


def decode(task: str) -> tuple[list[FactPiece], bool]:
    """The pieces of a task, and `deep`."""
    decoded = json.loads(task)
    return [_decoded(values) for values in decoded["pieces"]], decoded["deep"]


def _decoded(values: JsonArray) -> FactPiece:
    piece = FactPiece(*values)
    piece.segments = [SegmentFiles(base_offset, *map(_entry, files)) for base_offset, *files in values[7]]
    piece.snapshots = [(offset, Entry(*entry)) for offset, entry in piece.snapshots]
    piece.entries = {name: Entry(*entry) for name, entry in piece.entries.items()}
    piece.part_index, piece.part_time_index = map(_entry, values[-2:])
    return piece


def _entry(values: JsonArray | None) -> Entry | None:
    return None if values is None else Entry(*values)


MAX_PARTS: Final = 4096
"""Of one file; its parts are larger if necessary."""
WeightedPiece = tuple[FactPiece, int, int]
"""A piece that is not cut further, the bytes that are read, and the cost of opening its files in bytes."""


def plan_tasks(
    paths: list[str],
    query: FactQuery,
    storage_options: tuple[tuple[str, str], ...] = (),
    require_listing: "Callable[[Inputs], None] | None" = None,
) -> list[str]:
    """Tasks as text, by topic, partition, broker and offset; none if there is nothing to read.

    `require_listing` may refuse what is listed. Raises UsageError for invalid paths and limits that nothing matches, and
    SourceError for what cannot be listed or read.
    """
    if query.fact in FROM_SCANS and require_listing is None:
        return [json.dumps({"scan": paths})]
    inputs = gather_files(paths, storage_options)
    if require_listing is not None:
        require_listing(inputs)
    if query.fact in FROM_SCANS:
        return [json.dumps({"scan": paths})]
    require_readable(inputs)
    require_matches(inputs, query)
    return tasks_of(inputs, query)


def gather_files(paths: list[str], storage_options: tuple[tuple[str, str], ...] = ()) -> Inputs:
    """The inputs of facts of files: all log directories, and the logs in remote stores. Raises UsageError for invalid paths."""
    inputs = gather_log_dirs(paths, storage_options)
    return gather_logs(paths, ScanOptions(storage_options=storage_options), inputs) if inputs.store_places else inputs


def tasks_of(inputs: Inputs, query: FactQuery) -> list[str]:
    """Tasks of a fact of files, in the order of `plan_tasks`; none for requested partitions that are missing."""
    node_ids = NodeIds.of(inputs.log_dirs)
    if query.fact == "checkpoints":
        requested = [log_dir for log_dir in inputs.log_dirs if query.includes_broker(log_dir.broker)]
        return _tasks([(log_dir.source, [_checkpoints(log_dir, node_ids)]) for log_dir in requested], query, deep=False)
    replicas = _replicas(inputs, query)
    total = sum(_size(segment.log) for _, directory in replicas for segment in directory.segments)
    deep = query.fact == "spans" and is_deep(query.deep, total)
    return _replica_tasks(replicas, node_ids, query, deep=deep)


def replica_tasks(
    plans: Iterable[ReplicaPlan], node_ids: NodeIds, query: FactQuery, *, deep: bool, cores: int | None = None
) -> list[str]:
    """Tasks for these logs, in their order, few for each of the cores if few bytes are read; `deep` is that of `ReplicaReader`."""
    return _replica_tasks(((plan.log_dir, plan.directory) for plan in plans), node_ids, query, deep=deep, cores=cores)


def _replica_tasks(
    replicas: Iterable[tuple[LogDir, PartitionDirectory]],
    node_ids: NodeIds,
    query: FactQuery,
    *,
    deep: bool,
    cores: int | None = None,
) -> list[str]:
    pieces = ((log_dir.source, _pieces(_piece(log_dir, directory, node_ids), log_dir.source, directory, query))
              for log_dir, directory in replicas)  # fmt: skip
    return _tasks(pieces, query, deep=deep, cores=cores)


def _tasks(
    pieces: Iterable[tuple[ByteSource, Iterable[WeightedPiece]]], query: FactQuery, *, deep: bool, cores: int | None = None
) -> list[str]:
    """Tasks of pieces by their sources; one task for each source that cannot seek, to read it once."""
    streams: dict[int, tuple[ByteSource, list[WeightedPiece]]] = {}

    def seekable() -> Iterator[WeightedPiece]:
        for source, source_pieces in pieces:
            if source.seekable:
                yield from source_pieces
            else:
                streams.setdefault(id(source), (source, []))[1].extend(source_pieces)

    tasks = [encode(_joined(together), deep=deep) for together in packed_for_cores(seekable(), query.split_bytes, cores)]
    return tasks + [encode(_in_order(source, together), deep=deep) for source, together in streams.values() if together]


def require_readable(inputs: Inputs) -> None:
    """Raise SourceError if something could not be listed or read; skipped members of archives are only logged."""
    left_out = {(incomplete.path, incomplete.reason) for source in inputs.sources for incomplete in skipped_members(source)}
    missing = [incomplete for incomplete in inputs.incomplete if (incomplete.path, incomplete.reason) not in left_out]
    for incomplete in inputs.incomplete:
        if (incomplete.path, incomplete.reason) in left_out:
            logging.getLogger(__name__).warning("%s: %s", incomplete.path, incomplete.reason)
    if missing:
        more = f" (and {len(missing) - 1} more such paths)" if len(missing) > 1 else ""
        raise SourceError(missing[0].path, missing[0].reason + more)


def require_matches(inputs: Inputs, query: FactQuery) -> None:
    """Raise UsageError for a requested broker, topic or partition that does not exist."""
    require_brokers(inputs, query)
    if query.fact == "checkpoints":
        return
    directories = [directory for _, directory in _all_replicas(inputs)]
    topics = sorted({directory.topic or "" for directory in directories}, key=lambda topic: (topic.startswith("__"), topic))
    for glob in query.topics:
        of_glob = FactQuery(query.fact, (), topics=(glob,))
        if not any(of_glob.includes(topic, None) for topic in topics):
            raise _no_match_error("topics", glob, topics)
    if query.partitions and not any(query.includes(directory.topic, directory.partition) for directory in directories):
        of_topics = FactQuery("", (), topics=query.topics)
        numbers = sorted({directory.partition or 0 for directory in directories if of_topics.includes(directory.topic, 0)})
        requested = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in query.partitions)
        raise _no_match_error("partitions", requested, [str(number) for number in numbers])


def require_brokers(inputs: Inputs, query: FactQuery) -> None:
    """Raise UsageError if there is no copy of a requested broker."""
    log_dirs = [*inputs.log_dirs, *(plan.log_dir for plan in inputs.remote)]
    brokers = [str(broker) for broker in sorted({log_dir.broker for log_dir in log_dirs}, key=broker_order)]
    for broker in query.brokers:
        if broker not in brokers:
            raise _no_match_error("brokers", broker, brokers)


def _no_match_error(option: str, requested: str, existing: list[str]) -> UsageError:
    hint = f"{did_you_mean_prefix(requested, existing)}there is {listed(existing)}" if existing else "there is none at all"
    return UsageError(f"nothing matches {option}={requested}", hint=hint)


def _all_replicas(inputs: Inputs) -> list[tuple[LogDir, PartitionDirectory]]:
    replicas = [
        (log_dir, directory) for log_dir in inputs.log_dirs for directory in log_dir.found.partitions if directory.is_replica
    ]
    return [*replicas, *((plan.log_dir, plan.directory) for plan in inputs.remote)]


def _replicas(inputs: Inputs, query: FactQuery) -> list[tuple[LogDir, PartitionDirectory]]:
    """The requested replicas, in the order of a scan."""
    requested = [
        (log_dir, directory)
        for log_dir, directory in _all_replicas(inputs)
        if query.includes(directory.topic, directory.partition) and query.includes_broker(log_dir.broker)
    ]
    return sorted(
        requested, key=lambda replica: (replica[1].topic, replica[1].partition, broker_order(replica[0].broker), replica[0].name)
    )


def _piece(log_dir: LogDir, directory: PartitionDirectory, node_ids: NodeIds) -> Callable[..., FactPiece]:
    return partial(
        FactPiece,
        address_of(log_dir.source),
        log_dir.name,
        log_dir.broker,
        node_ids[log_dir.broker],
        directory.topic or "",
        directory.partition or 0,
        directory.name,
    )


def _checkpoints(log_dir: LogDir, node_ids: NodeIds) -> WeightedPiece:
    """The checkpoints of a log directory, as a piece without a partition."""
    no_partition = PartitionDirectory("", "", None, None)
    entries = {name: log_dir.found.entries[name] for name in CHECKPOINTS if name in log_dir.found.entries}
    return _piece(log_dir, no_partition, node_ids)(entries=entries), *_weight(log_dir.source, entries.values())


def _pieces(
    piece: Callable[..., FactPiece], source: ByteSource, directory: PartitionDirectory, query: FactQuery
) -> Iterator[WeightedPiece]:
    """The files of a replica that the fact needs."""
    if query.fact in FROM_LOGS:
        following = {log.base_offset: log.next_base_offset for log in directory.logs()}
        for segment in directory.segments if query.fact == "spans" else [log.segment for log in directory.logs()]:
            next_base_offset = following.get(segment.base_offset)
            if query.offset_to is not None and segment.base_offset >= query.offset_to:
                continue
            if query.offset_from is not None and next_base_offset is not None and next_base_offset <= query.offset_from:
                continue
            yield from _segment_pieces(partial(piece, next_base_offset=next_base_offset), source, segment, query)
    if query.fact == "index_entries":
        for segment in directory.segments:
            files = [entry for entry in (segment.index, segment.time_index, segment.transaction_index) if entry is not None]
            if files:
                yield piece(segments=[replace(segment, log=None)]), *_weight(source, files)
    if query.fact == "epoch_entries" and "leader-epoch-checkpoint" in directory.entries:
        entry = directory.entries["leader-epoch-checkpoint"]
        yield piece(entries={entry.name: entry}), *_weight(source, [entry])
    if query.fact in ("producer_states", "spans"):
        for offset, entry in directory.snapshots:
            yield piece(snapshots=[(offset, entry)]), *_weight(source, [entry])


def _segment_pieces(
    piece: Callable[..., FactPiece], source: ByteSource, segment: SegmentFiles, query: FactQuery
) -> Iterator[WeightedPiece]:
    """A segment, or the parts of a large one."""
    log_only = SegmentFiles(segment.base_offset, segment.log)
    files = segment if query.fact == "spans" else log_only
    if query.is_ranged:
        files = replace(segment, transaction_index=None)
    starts = _part_starts(source, segment, query)
    if len(starts) == 1:
        weighed = (segment.log, *((segment.index, segment.time_index) if query.fact == "spans" else ()))
        yield piece(segments=[files]), *_weight(source, [entry for entry in weighed if entry is not None])
        return
    indexes = {"part_index": segment.index, "part_time_index": segment.time_index if query.is_ranged else None}
    read = (0 if segment.log is None else read_bytes(segment.log)) // len(starts)
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        yield piece(segments=[log_only if start else files], start=start, end=end, **indexes), read, file_cost(source)


def _part_starts(source: ByteSource, segment: SegmentFiles, query: FactQuery) -> list[int]:
    """About where the parts of a `.log` begin; one part if there is no index to find batches with."""
    part = query.split_bytes
    if query.fact == "spans":
        part = -(-part // SPAN_BYTES) * SPAN_BYTES
    size = _size(segment.log)
    if segment.log is None or not source.seekable or not _size(segment.index) or size < part + part // 2:
        return [0]
    allocated = segment.log.allocated_bytes
    if allocated is not None and allocated < size:
        with source.open(segment.log.path) as file:  # no batch begins in the hole at the end of a sparse file
            size = max((end for _, end in file.data_ranges()), default=0)
    part *= -(-size // (part * MAX_PARTS)) or 1
    return list(range(0, size - part // 2, part)) or [0]


def _size(entry: Entry | None) -> int:
    return 0 if entry is None else entry.size_in_bytes


def _weight(source: ByteSource, files: Collection[Entry]) -> tuple[int, int]:
    """The bytes that are read of these files, and the cost of opening them."""
    return sum(map(read_bytes, files)), len(files) * file_cost(source)


def _joined(pieces: list[FactPiece]) -> list[FactPiece]:
    """The pieces with neighbours of one replica joined, except for parts."""
    joined: list[FactPiece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is None or last.is_part or piece.is_part or not _continues(piece, last):
            joined.append(piece)
            continue
        last.segments += piece.segments
        last.snapshots += piece.snapshots
        last.entries |= piece.entries
        if piece.segments:
            last.next_base_offset = piece.next_base_offset
    return joined


def _continues(piece: FactPiece, last: FactPiece) -> bool:
    """Whether a piece belongs to the replica of another, and its segments follow; of logs in a remote store that overlap, not."""
    is_later = not (piece.segments and last.segments) or last.segments[-1].base_offset < piece.segments[0].base_offset
    return is_later and _replica_of(last) == _replica_of(piece)


def _replica_of(piece: FactPiece) -> tuple[object, ...]:
    return piece.source, piece.log_dir, piece.broker, piece.topic, piece.partition, piece.directory


def _in_order(source: ByteSource, pieces: list[WeightedPiece]) -> list[FactPiece]:
    """Pieces of a source that cannot seek, in the order of its files."""
    by_path = {path: piece for piece, *_ in pieces if (path := _first_path(piece))}
    return _joined([by_path[path] for path in reading_order(source, by_path)])


def _first_path(piece: FactPiece) -> str:
    of_segments = (
        entry for segment in piece.segments for entry in (segment.log, segment.index, segment.time_index, segment.transaction_index)
    )
    entries = (*of_segments, *(entry for _, entry in piece.snapshots), *piece.entries.values())
    return next((entry.path for entry in entries if entry is not None), "")
