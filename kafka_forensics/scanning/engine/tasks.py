"""The steps of a scan as tasks that any process can run, with bytes as arguments and results.

Every task gets the packed `TaskArguments` and its own packed work. `read_witness_logs` reads the logs of internal topics, `fold`
turns a `FoldWork` into states of stretches, and `judge` turns a `PartitionSlice` and the states of its replicas into the answer
about a partition; `judge_small_slices` folds and judges many small slices. Results depend on the files alone, so every attempt
gives the same.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.segments import needs_entries
from kafka_forensics.errors import PathMissingError, SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, typed_path
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.checkpoints import parse_partition_metadata
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import (
    EDGES_FIRST,
    FoldPart,
    FoldWork,
    PartitionSlice,
    SliceAnswer,
    StretchEdges,
    StretchRow,
    TaskArguments,
    TaskNotes,
    WitnessAnswer,
    inputs_of,
    task_notes,
)
from kafka_forensics.scanning.engine.work_plan import mostly_waits
from kafka_forensics.scanning.folding.fold_split import (
    FoldedReplica,
    FoldedStretch,
    FoldOptions,
    RecentIndexes,
    Refold,
    fold_replica,
    fold_split,
    merge_replica,
    refolder,
)
from kafka_forensics.scanning.folding.keys import DeferredKeys, KeyAnswer
from kafka_forensics.scanning.folding.splits import Split, numbered_range
from kafka_forensics.scanning.folding.waiting import map_concurrently
from kafka_forensics.scanning.judging.recovery_files import with_leftovers
from kafka_forensics.scanning.judging.whole_scan import judge_logs
from kafka_forensics.scanning.rereading.right_offsets import with_right_offsets
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses
from kafka_forensics.storage.archives import ArchiveSource, reading_order
from kafka_forensics.storage.code_cache import exclude_input, set_cache_directory
from kafka_forensics.storage.open import open_address
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind, ListedSource, UnopenedSource

if TYPE_CHECKING:
    from kafka_forensics.analysis.replica import ReplicaState

SOURCES_KEPT: Final = 64
"""Sources that a process keeps open for the next tasks of a scan."""


@lru_cache(maxsize=SOURCES_KEPT)
def _opened(name: str, place: str, options: ScanOptions, scan: bytes) -> ByteSource:
    """A source, opened once for each `scan`, because files may have changed since an earlier scan."""
    assert scan
    source = open_address(place, options.storage_options)
    vars(source)["name"] = name  # as the user typed it, whatever this process's current directory is
    if isinstance(source, ArchiveSource):
        vars(source.container)["name"] = name
    return source


@lru_cache(maxsize=4)
def unpack_common(packed: bytes) -> TaskArguments:
    """Unpack `TaskArguments` once in a process, which then forgets the sources of other scans."""
    _opened.cache_clear()
    common: TaskArguments = unpack(packed)
    configure_code_cache(common)
    return common


def configure_code_cache(arguments: TaskArguments) -> None:
    """Cache compiled kernels in the directory that the user chose, and outside all of its sources, of which a process opens only
    some."""
    set_cache_directory(arguments.options.cache_dir)
    for place in arguments.shared.places:
        exclude_input(place)


def opener(arguments: TaskArguments) -> Callable[[str, str], ByteSource]:
    """A function that opens sources for `unpack`, and caches some; reading one that cannot be opened raises the error."""

    def open_cached(name: str, place: str) -> ByteSource:
        try:
            return _opened(name, place, arguments.options, arguments.key.tobytes())
        except (PathMissingError, SourceError) as error:
            return UnopenedSource(name, error)

    return open_cached


def read_witness_logs(common: bytes, plans: bytes, *, strict: bool = False) -> bytes:
    """Read the internal topics of packed replica plans: a packed `WitnessAnswer`.

    With `strict`, raises SourceError where a log cannot be read.
    """
    arguments = unpack_common(common)
    compile_as_needed(arguments.work_bytes)
    inputs = inputs_of(PartitionSlice("", -1, unpack(plans, opener(arguments))), arguments.shared)
    inputs.internal, inputs.replicas = inputs.replicas, []
    witnesses = read_witnesses(inputs)
    if strict:
        _raise_first(inputs.incomplete, inputs)
    return pack(WitnessAnswer(witnesses, task_notes(inputs)))


def parse_topic_ids(
    common: bytes, files: Iterable[tuple[int, str, int]], *, strict: bool = False
) -> Iterator[tuple[str | None, bool, str | None]]:
    """Read `partition.metadata` files, given as (number of the source in `SharedInputs`, path, size in bytes).

    Yields (topic id, whether the file is malformed, why it could not be read). With `strict`, raises SourceError for the latter.
    """
    arguments = unpack_common(common)
    sources = list(map(opener(arguments), arguments.shared.source_names, arguments.shared.places))

    def read(file: tuple[int, str, int]) -> tuple[str | None, bool, str | None]:
        number, path, size_in_bytes = file
        _accept_listing(sources[number], [Entry(path, EntryKind.FILE, size_in_bytes, 0, None)])
        try:
            with sources[number].open(path) as metadata:
                parsed = parse_partition_metadata(metadata)
                return parsed.topic_id, bool(parsed.damage), None
        except SourceError as error:
            if strict:
                raise SourceError(typed_path(sources[number], path), error.reason) from error
            return None, False, error.reason

    yield from map_concurrently(read, files)


def _accept_listing(source: ByteSource, files: Iterable[Entry]) -> None:
    """Let a source open files that the driver has listed, without listing them again."""
    if isinstance(source, ListedSource):
        source.accept_listing(files)


def _raise_first(gaps: Iterable[Incomplete], inputs: Inputs) -> None:
    """Raise SourceError for the first gap, which makes Spark repeat the task; not for broken archives, which stay broken."""
    if any(source.problems for source in inputs.sources):
        return
    for incomplete in gaps:
        raise SourceError(incomplete.path, incomplete.reason)


def fold(common: bytes, work: bytes, *, strict: bool) -> Iterator[StretchRow]:
    """Fold the splits of a packed `FoldWork`, each stretch into two rows.

    With `strict`, raises SourceError where a log cannot be read.
    """
    arguments = unpack_common(common)
    compile_as_needed(arguments.work_bytes)
    fold_work: FoldWork = unpack(work, opener(arguments))
    for part, split, recent in _in_reading_order(fold_work, arguments.split_bytes):
        indexes = recent.of(part.replica, part.plan, split.segment)
        for folded in fold_split(part.plan, split, FoldOptions(arguments.key, arguments.deep), indexes):
            if strict and folded.incomplete is not None and not part.plan.log_dir.source.problems:
                raise SourceError(folded.incomplete.path, folded.incomplete.reason)
            edges, segment = _edges(folded), split.segment.base_offset
            yield StretchRow(part.slice, part.replica, segment, edges.start - EDGES_FIRST, pack(edges))
            yield StretchRow(part.slice, part.replica, segment, edges.start, pack(folded.state))


def _in_reading_order(work: FoldWork, split_bytes: int) -> Iterator[tuple[FoldPart, Split, RecentIndexes]]:
    """The splits of a work; those of an archive that cannot seek, in the archive's order, to inflate it once."""
    by_path: dict[str, tuple[FoldPart, Split, RecentIndexes]] = {}
    for part in work.parts:
        recent, source = RecentIndexes(), part.plan.log_dir.source
        for piece in part.pieces:
            index = recent.of(part.replica, part.plan, piece.segment).index if source.seekable else None
            hints = np.empty(0, np.int64) if index is None else index.positions
            span = numbered_range(part.plan, piece.segment, piece.number, split_bytes, hints)
            if span is None:
                continue
            split = Split(part.replica, piece.segment, *span, piece.next_base_offset, piece.number == 0)
            if source.seekable:
                yield part, split, recent
            elif piece.segment.log is not None:
                by_path[piece.segment.log.path] = part, split, recent
    if by_path:
        source = next(iter(by_path.values()))[0].plan.log_dir.source
        for path in reading_order(source, by_path):
            yield by_path[path]


def _edges(folded: FoldedStretch) -> StretchEdges:
    """The edges of a stretch; takes the index out of its state."""
    split, index = folded.split, folded.state.index
    if index is not None:
        index.drop_entries()
    folded.state.index = None
    return StretchEdges(split.start, split.end, split.first, split.next_base_offset, folded.end_position, folded.incomplete, index)


def judge(common: bytes, rows: Iterator[StretchRow], *, strict: bool = False) -> bytes:
    """Judge one slice from its rows: a packed `SliceAnswer`.

    The first row holds the packed `PartitionSlice`; stretches follow by replica, segment and start. If the answer has questions,
    the slice must be judged again with their answers. With `strict`, raises SourceError for what cannot be read but could when it
    was folded.
    """
    arguments = unpack_common(common)
    compile_as_needed(arguments.work_bytes)
    part: PartitionSlice = unpack(next(rows).packed, opener(arguments))
    deferred = deferred_keys(arguments, part.replicas, part.keys)
    answer, _ = answer_slice(part, arguments, SliceRows(rows), deferred, strict=strict)
    if deferred is not None and deferred.is_waiting:
        answer = SliceAnswer(None, [], [], TaskNotes(), deferred.questions)
    return pack(answer)


def judge_small_slices(common: bytes, work: bytes, *, strict: bool = False) -> Iterator[tuple[int, bytes]]:
    """Fold and judge every slice of a packed list of numbered ones: (number, packed `SliceAnswer`). `strict` as for `judge`."""
    arguments = unpack_common(common)
    compile_as_needed(arguments.work_bytes)
    parts: list[tuple[int, PartitionSlice]] = unpack(work, opener(arguments))
    for _, part in parts:
        for plan in part.replicas:
            _accept_listing(plan.log_dir.source, plan.directory.files())

    def packed_answer(numbered: tuple[int, PartitionSlice]) -> tuple[int, bytes]:
        return numbered[0], pack(answer_slice(numbered[1], arguments, None, None, strict=strict)[0])

    waits = all(mostly_waits(part.replicas) for _, part in parts)
    yield from map_concurrently(packed_answer, parts) if waits else map(packed_answer, parts)


def deferred_keys(arguments: TaskArguments, plans: list[ReplicaPlan], answers: list[KeyAnswer] | None) -> DeferredKeys | None:
    """The key questions of a partition that get separate tasks; None where all are answered at once."""
    return None if arguments.deferred_keys_bytes is None else DeferredKeys(arguments.deferred_keys_bytes, plans, answers)


def answer_slice(
    part: PartitionSlice,
    arguments: TaskArguments,
    stretches: "SliceRows | None",
    deferred: DeferredKeys | None,
    first: int = 0,
    *,
    strict: bool = False,
) -> tuple[SliceAnswer, list[FoldedReplica]]:
    """The answer about a slice, void while key questions wait for theirs, and its folded replicas.

    Rows of `stretches` number the replicas from `first` on; without `stretches`, the logs are folded here.
    """
    inputs = inputs_of(part, arguments.shared)
    incomplete: list[Incomplete] = []
    gaps_when_folded: set[Incomplete] = set()
    merged: list[FoldedReplica] = []
    for number, plan in enumerate(part.replicas, first):
        rows = None if stretches is None else stretches.of(number)
        merged.append(_replica(plan, inputs, rows, arguments, (incomplete, gaps_when_folded)))
    merged = with_right_offsets(merged, arguments.key, deep=arguments.deep)
    if merged:
        judged = judge_logs(merged, arguments.key, arguments.options, deferred=deferred)
        answer = SliceAnswer(judged, [], incomplete, TaskNotes())
        gaps_when_folded.update(() if deferred is None else deferred.gaps())
    else:
        leftover_findings = with_leftovers((part.topic, part.partition), [], inputs, [], inputs.incomplete)
        answer = SliceAnswer(None, leftover_findings, incomplete, TaskNotes())
    if strict:
        gaps = [*incomplete, *inputs.incomplete, *(answer.answer.incomplete if answer.answer is not None else ())]
        _raise_first((unread for unread in gaps if unread not in gaps_when_folded), inputs)
    answer.task_notes = task_notes(inputs)
    return answer, merged


class SliceRows:
    """The rows of one slice, replica by replica."""

    def __init__(self, rows: Iterator[StretchRow]) -> None:
        self._groups = groupby(rows, key=lambda stretch_row: stretch_row.replica)
        self._next = next(self._groups, None)

    def of(self, replica: int) -> Iterator[StretchRow]:
        """The rows of a replica; call it for replicas in order."""
        if self._next is not None and self._next[0] == replica:
            yield from self._next[1]
            self._next = next(self._groups, None)


def _replica(
    plan: ReplicaPlan,
    inputs: Inputs,
    rows: Iterator[StretchRow] | None,
    arguments: TaskArguments,
    gaps: tuple[list[Incomplete], set[Incomplete]],
) -> FoldedReplica:
    """A replica merged from its rows, or folded here. What could not be read goes into the first of `gaps`; what a fold task could
    not read, into the second."""

    def note_gap(folded: FoldedStretch) -> None:
        if folded.incomplete is not None:
            gaps[0].append(folded.incomplete)

    options = FoldOptions(arguments.key, arguments.deep)
    if rows is None:
        return fold_replica(plan, inputs, options, note_gap)
    refold = refolder(plan, options)
    return merge_replica(plan, inputs, _folded(plan, rows, refold, gaps[1]), refold, note_gap)


def _folded(plan: ReplicaPlan, rows: Iterator[StretchRow], refold: Refold, gaps: set[Incomplete]) -> Iterator[FoldedStretch]:
    """The stretches of a replica. A segment is folded again if its stretches do not meet or its index needs the entries.

    Memory holds the edges of one segment and the state of one stretch.
    """
    files = {segment.base_offset: segment for segment in plan.directory.segments}
    for base_offset, of_segment in groupby(rows, key=lambda row: row.segment):
        segment, edges = files[base_offset], list[StretchEdges]()
        fits = False
        for row in of_segment:
            if row.start < 0:
                edges.append(unpack(row.packed))
                continue
            fits = fits or _are_contiguous(edges)
            if not fits:
                break
            stretch_edges = edges.pop(0)
            split = Split(0, segment, stretch_edges.start, stretch_edges.end, stretch_edges.next_base_offset, stretch_edges.first)
            state: ReplicaState = unpack(row.packed)
            state.index = stretch_edges.index
            gaps.update([] if stretch_edges.incomplete is None else [stretch_edges.incomplete])
            yield FoldedStretch(split, state, stretch_edges.end_position, stretch_edges.incomplete)
        if not fits:
            gaps.update(stretch_edges.incomplete for stretch_edges in edges if stretch_edges.incomplete is not None)
            end = max(stretch_edges.end for stretch_edges in edges)
            yield from refold(Split(0, segment, 0, end, edges[0].next_base_offset, first=True))


def _are_contiguous(edges: list[StretchEdges]) -> bool:
    """Whether each walk ended where the next one began, and the segment's index can be judged by its summaries."""
    indexes = [stretch_edges.index for stretch_edges in edges if stretch_edges.index is not None]
    if not edges[0].first or (len(indexes) == len(edges) and needs_entries(indexes)):
        return False
    end_position = edges[0].start
    for stretch_edges in edges:
        if not stretch_edges.first and stretch_edges.start != end_position:
            return False
        end_position = stretch_edges.end_position if stretch_edges.first else max(end_position, stretch_edges.end_position)
    return True
