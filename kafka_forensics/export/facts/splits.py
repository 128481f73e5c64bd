"""Tasks of a fact: from paths to pieces of about equal bytes, by names and listings alone; of sparse logs the holes are asked for.

Small files go together, large `.log` files are cut. Where exactly a part begins, the task that reads it finds out by itself
(`parts`), so that a task is a pure function of the files: any attempt, anywhere, gives the same rows.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafka_forensics.errors import SourceError, UsageError, did_you_mean_prefix
from kafka_forensics.evidence.inputs import CHECKPOINTS, Inputs, LogDir, ReplicaPlan, broker_order, gather_log_dirs
from kafka_forensics.evidence.options import listed
from kafka_forensics.evidence.paths import skipped_members
from kafka_forensics.export.facts.rows import FROM_LOGS, FROM_SCANS, FactQuery
from kafka_forensics.export.facts.spans import SPAN_BYTES
from kafka_forensics.model.json_objects import JsonArray
from kafka_forensics.parsers.log_dir import PartitionDirectory, SegmentFiles
from kafka_forensics.scanning.engine.work_plan import file_cost, packed
from kafka_forensics.scanning.judging.whole_scan import is_deep
from kafka_forensics.storage.archives import reading_order
from kafka_forensics.storage.open import address_of
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind

# Pieces: what of a replica one task reads, as plain text, so that any process anywhere can read it.


@dataclass(slots=True)
class Piece:
    """Files of one replica, or a part of one large `.log`: batches that begin in bytes `[start, end)` (`end` None: to its end).

    `source` is what is opened, `log_dir` what its log directory is called; `next_base_offset` is that of the segment behind the
    last one here. `part_index` and `part_time_index` are the indexes of a part's segment, which are no facts of their own here.
    """

    source: str
    log_dir: str
    broker: int | str
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
    def is_part(self) -> bool:
        """Whether it is a part of one `.log`."""
        return self.start > 0 or self.end is not None


def encode(pieces: list[Piece], *, deep: bool) -> str:
    """A task: pieces as one line of ASCII; `deep` is what `FactReading.deep` is."""
    return json.dumps({"deep": deep, "pieces": [_packed(piece) for piece in pieces]}, separators=(",", ":"))


def decode(task: str) -> tuple[list[Piece], bool]:
    """The pieces of a task, and `deep`."""
    fields = json.loads(task)
    return [_unpacked(piece) for piece in fields["pieces"]], fields["deep"]


def _packed(piece: Piece) -> JsonArray:
    return [
        piece.source,
        piece.log_dir,
        piece.broker,
        piece.topic,
        piece.partition,
        piece.directory,
        [
            [segment.base_offset, *map(_file, (segment.log, segment.index, segment.time_index, segment.transaction_index))]
            for segment in piece.segments
        ],
        [[offset, _file(entry)] for offset, entry in piece.snapshots],
        {name: _file(entry) for name, entry in piece.entries.items()},
        piece.next_base_offset,
        piece.start,
        piece.end,
        _file(piece.part_index),
        _file(piece.part_time_index),
    ]


def _unpacked(fields: JsonArray) -> Piece:
    source, log_dir, broker, topic, partition, directory, segments, snapshots, entries, following, start, end, index, times = fields
    return Piece(
        source,
        log_dir,
        broker,
        topic,
        partition,
        directory,
        [SegmentFiles(base_offset, *map(_entry, files)) for base_offset, *files in segments],
        [(offset, _known(entry)) for offset, entry in snapshots],
        {name: _known(entry) for name, entry in entries.items()},
        following,
        start,
        end,
        _entry(index),
        _entry(times),
    )


def _file(entry: Entry | None) -> JsonArray | None:
    return None if entry is None else [entry.path, entry.size_in_bytes]


def _entry(file: JsonArray | None) -> Entry | None:
    return None if file is None else _known(file)


def _known(file: JsonArray) -> Entry:
    path, size_in_bytes = file
    return Entry(path, EntryKind.FILE, size_in_bytes, 0, None)


MAX_PARTS: Final = 4096
"""Parts of one file at most; they are as much larger as that takes."""

Unit = tuple[Piece, int]
"""A piece that is not cut further, and its weight in bytes."""


def plan_tasks(paths: list[str], query: FactQuery, storage_options: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """Tasks as text, by topic, partition, broker and offset; none if there is nothing to read.

    Raises UsageError for paths and limits that nothing fits, and SourceError for what cannot be listed or read.
    """
    if query.fact in FROM_SCANS:
        return [json.dumps({"scan": paths})]
    inputs = gather_log_dirs(paths, storage_options)
    require_readable(inputs)
    require_there(inputs, query)
    return tasks_of(inputs, query)


def tasks_of(inputs: Inputs, query: FactQuery) -> list[str]:
    """Tasks of a fact of files in what was gathered, in the same order; none of what is asked for and is not there."""
    if query.fact == "checkpoints":
        wanted = [log_dir for log_dir in inputs.log_dirs if query.wants_broker(log_dir.broker)]
        return _tasks([(log_dir.source, [_checkpoints(log_dir)]) for log_dir in wanted], query, deep=False)
    replicas = _replicas(inputs, query)
    total = sum(_size(segment.log) for _, directory in replicas for segment in directory.segments)
    deep = query.fact == "spans" and is_deep(query.deep, total)
    return _tasks(((replica[0].source, _units(*replica, query)) for replica in replicas), query, deep=deep)


def replica_tasks(plans: Iterable[ReplicaPlan], query: FactQuery, *, deep: bool) -> list[str]:
    """Tasks for the replicas that a scan has gathered, in their order; `deep` is what `FactReading.deep` is."""
    return _tasks(
        ((replica_plan.log_dir.source, _units(replica_plan.log_dir, replica_plan.directory, query)) for replica_plan in plans),
        query,
        deep=deep,
    )


def _tasks(units: Iterable[tuple[ByteSource, Iterable[Unit]]], query: FactQuery, *, deep: bool) -> list[str]:
    """Tasks of units by their sources; one for each source that cannot seek, which is then read once."""
    streams: dict[int, tuple[ByteSource, list[Unit]]] = {}

    def seekable() -> Iterator[Unit]:
        for source, source_units in units:
            if source.seekable:
                yield from source_units
            else:
                streams.setdefault(id(source), (source, []))[1].extend(source_units)

    tasks = [encode(_joined(pieces), deep=deep) for pieces in packed(seekable(), query.split_bytes)]
    return tasks + [encode(_in_order(source, source_units), deep=deep) for source, source_units in streams.values() if source_units]


def require_readable(inputs: Inputs) -> None:
    """Raise SourceError if something could not be listed or read; members of archives that are not read are only told of."""
    left_out = {(incomplete.path, incomplete.reason) for source in inputs.sources for incomplete in skipped_members(source)}
    missing = [incomplete for incomplete in inputs.incomplete if (incomplete.path, incomplete.reason) not in left_out]
    for incomplete in inputs.incomplete:
        if (incomplete.path, incomplete.reason) in left_out:
            logging.getLogger(__name__).warning("%s: %s", incomplete.path, incomplete.reason)
    if missing:
        more = f" (and {len(missing) - 1} more such paths)" if len(missing) > 1 else ""
        raise SourceError(missing[0].path, missing[0].reason + more)


def require_there(inputs: Inputs, query: FactQuery) -> None:
    """Raise UsageError for a broker, a topic or a partition that is asked for and not there."""
    require_brokers(inputs, query)
    if query.fact == "checkpoints":
        return
    every = _every(inputs)
    topics = sorted({directory.topic or "" for _, directory in every}, key=lambda topic: (topic.startswith("__"), topic))
    for glob in query.topics:
        only = FactQuery(query.fact, (), topics=(glob,))
        if not any(only.wants(topic, None) for topic in topics):
            raise _nothing("topics", glob, topics)
    if query.partitions and not any(query.wants(directory.topic, directory.partition) for _, directory in every):
        numbers = sorted(
            {directory.partition or 0 for _, directory in every if FactQuery("", (), topics=query.topics).wants(directory.topic, 0)}
        )
        wanted = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in query.partitions)
        raise _nothing("partitions", wanted, [str(number) for number in numbers])


def require_brokers(inputs: Inputs, query: FactQuery) -> None:
    """Raise UsageError if a broker that is asked for is not among the copies."""
    there = [str(broker) for broker in sorted({log_dir.broker for log_dir in inputs.log_dirs}, key=broker_order)]
    for broker in query.brokers:
        if broker not in there:
            raise _nothing("brokers", broker, there)


def _nothing(option: str, wanted: str, there: list[str]) -> UsageError:
    meant = did_you_mean_prefix(wanted, there)
    return UsageError(
        f"nothing fits {option}={wanted}", hint=f"{meant}there is {listed(there)}" if there else "there is none at all"
    )


def _every(inputs: Inputs) -> list[tuple[LogDir, PartitionDirectory]]:
    return [
        (log_dir, directory)
        for log_dir in inputs.log_dirs
        for directory in log_dir.found.partitions
        if directory.legal and directory.suffix is None
    ]


def _replicas(inputs: Inputs, query: FactQuery) -> list[tuple[LogDir, PartitionDirectory]]:
    """What is asked for, in the order of a scan."""
    wanted = [
        (log_dir, directory)
        for log_dir, directory in _every(inputs)
        if query.wants(directory.topic, directory.partition) and query.wants_broker(log_dir.broker)
    ]
    return sorted(
        wanted, key=lambda replica: (replica[1].topic, replica[1].partition, broker_order(replica[0].broker), replica[0].name)
    )


def _piece(log_dir: LogDir, directory: PartitionDirectory) -> Callable[..., Piece]:
    return partial(
        Piece,
        address_of(log_dir.source),
        log_dir.name,
        log_dir.broker,
        directory.topic or "",
        directory.partition or 0,
        directory.name,
    )


def _checkpoints(log_dir: LogDir) -> Unit:
    """The checkpoints of a log directory, as a piece without a partition."""
    nobody = PartitionDirectory("", "", None, None)
    entries = {name: log_dir.found.entries[name] for name in CHECKPOINTS if name in log_dir.found.entries}
    return _piece(log_dir, nobody)(entries=entries), _weight(log_dir.source, entries.values())


def _units(log_dir: LogDir, directory: PartitionDirectory, query: FactQuery) -> Iterator[Unit]:
    """What the fact needs of a replica."""
    if query.fact in FROM_LOGS:
        following = {log.base_offset: log.next_base_offset for log in directory.logs()}
        for segment in directory.segments if query.fact == "spans" else [log.segment for log in directory.logs()]:
            yield from _of_segment(log_dir, directory, segment, following.get(segment.base_offset), query)
    if query.fact == "index_entries":
        for segment in directory.segments:
            files = [entry for entry in (segment.index, segment.time_index, segment.transaction_index) if entry is not None]
            if files:
                indexes = SegmentFiles(segment.base_offset, None, segment.index, segment.time_index, segment.transaction_index)
                yield _piece(log_dir, directory)(segments=[indexes]), _weight(log_dir.source, files)
    if query.fact == "epoch_entries" and "leader-epoch-checkpoint" in directory.entries:
        entry = directory.entries["leader-epoch-checkpoint"]
        yield _piece(log_dir, directory)(entries={entry.name: entry}), _weight(log_dir.source, [entry])
    if query.fact in ("producer_states", "spans"):
        for offset, entry in directory.snapshots:
            yield _piece(log_dir, directory)(snapshots=[(offset, entry)]), _weight(log_dir.source, [entry])


def _of_segment(
    log_dir: LogDir, directory: PartitionDirectory, segment: SegmentFiles, following: int | None, query: FactQuery
) -> Iterator[Unit]:
    if query.offset_to is not None and segment.base_offset >= query.offset_to:
        return
    if query.offset_from is not None and following is not None and following <= query.offset_from:
        return
    every = query.fact == "spans"
    files = segment if every else SegmentFiles(segment.base_offset, segment.log)
    if query.is_ranged:
        files = SegmentFiles(segment.base_offset, segment.log, segment.index, segment.time_index)
    of_weight = (segment.log, *((segment.index, segment.time_index) if every else ()))
    weight = _weight(log_dir.source, [entry for entry in of_weight if entry is not None])
    points = _points(log_dir.source, segment, query)
    if len(points) == 1:
        yield _piece(log_dir, directory)(segments=[files], next_base_offset=following), weight
        return
    for start, end in zip(points, [*points[1:], None], strict=True):
        yield (
            _piece(log_dir, directory)(
                segments=[files if start == 0 else SegmentFiles(segment.base_offset, segment.log)],
                next_base_offset=following,
                start=start,
                end=end,
                part_index=segment.index,
                part_time_index=segment.time_index if query.is_ranged else None,
            ),
            _size(segment.log) // len(points) + file_cost(log_dir.source),
        )


def _points(source: ByteSource, segment: SegmentFiles, query: FactQuery) -> list[int]:
    """Bytes at which the parts of a `.log` begin, more or less; only one without an index to find batches by."""
    part = query.split_bytes
    if query.fact == "spans":
        part = -(-part // SPAN_BYTES) * SPAN_BYTES
    size = _size(segment.log)
    if segment.log is None or not source.seekable or not _size(segment.index) or size < part + part // 2:
        return [0]
    allocated = segment.log.allocated_bytes
    if allocated is not None and allocated < size:
        with source.open(segment.log.path) as file:  # nothing begins in the hole at a sparse file's end
            size = max((stop for _, stop in file.data_ranges()), default=0)
    part *= -(-size // (part * MAX_PARTS)) or 1
    return list(range(0, size - part // 2, part)) or [0]


def _size(entry: Entry | None) -> int:
    return 0 if entry is None else entry.size_in_bytes


def _weight(source: ByteSource, files: Iterable[Entry]) -> int:
    return sum(entry.size_in_bytes + file_cost(source) for entry in files)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one replica in one piece; parts stay alone."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is None or last.is_part or piece.is_part or _replica(last) != _replica(piece):
            joined.append(piece)
            continue
        last.segments += piece.segments
        last.snapshots += piece.snapshots
        last.entries |= piece.entries
        if piece.segments:
            last.next_base_offset = piece.next_base_offset
    return joined


def _replica(piece: Piece) -> tuple[object, ...]:
    return piece.source, piece.log_dir, piece.broker, piece.topic, piece.partition, piece.directory


def _in_order(source: ByteSource, units: list[Unit]) -> list[Piece]:
    """Pieces of a source that cannot seek, as they lie in it."""
    by_path = {path: piece for piece, _ in units if (path := _first_path(piece))}
    return _joined([by_path[path] for path in reading_order(source, by_path)])


def _first_path(piece: Piece) -> str:
    for segment in piece.segments:
        for entry in (segment.log, segment.index, segment.time_index, segment.transaction_index):
            if entry is not None:
                return entry.path
    entries = (*(entry for _, entry in piece.snapshots), *piece.entries.values())
    return entries[0].path if entries else ""
