"""What a dump is made of: the files that paths name or hold, and what each of them can be asked."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.errors import PathMissingError, SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions, fits, nothing_there, raise_unless_hidden
from kafka_forensics.evidence.paths import lone_file_name, members_left_out, not_listed, open_paths, typed_path
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INT64_MAX
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log_dir import (
    LOG_DIRECTORY_KINDS,
    LOG_KINDS,
    FileKind,
    LogDirectory,
    PartitionDirectory,
    max_plausible_offset,
    parse_file_name,
    parse_partition_name,
)
from kafka_forensics.scanning.rereading.record_states import base_offsets
from kafka_forensics.storage.open import open_beside

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile, ByteSource, Entry

BytesOf = Callable[[int, int], bytes | None]
"""The bytes of the batch at a position, of this size; None of one too large to be held."""


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One file to be dumped; `path` inside its source, `shown` as a person would name it.

    `base_offset` is what the name says, 0 where it says none; `next_base_offset` is the next segment's in the same directory;
    `is_leftover`: it is renamed, to be deleted or swapped in.
    """

    source: "ByteSource"
    path: str
    shown: str
    kind: FileKind
    base_offset: int
    size_in_bytes: int
    next_base_offset: int | None = None
    is_leftover: bool = False

    @property
    def name(self) -> str:
        """Last part of the path."""
        return os.path.basename(self.shown)

    def open(self) -> "ByteFile":
        """The file. Raises SourceError."""
        return self.source.open(self.path)

    @property
    def topic(self) -> str | None:
        """The topic by the name of the directory the file lies in; a KRaft snapshot is of the controller's log wherever it lies."""
        if self.kind is FileKind.METADATA_CHECKPOINT:
            return CLUSTER_METADATA_TOPIC
        directory = os.path.dirname(self.shown if self.path else os.path.abspath(self.shown))
        named = parse_partition_name(os.path.basename(directory))
        return None if named is None else named.topic

    @property
    def goes_on(self) -> bool:
        """Whether what follows its last record may stand in another file: of the newest segment and of a lone file it does not."""
        if self.kind is not FileKind.LOG:
            return False
        return self.next_base_offset is not None or self.is_leftover

    @property
    def reach(self) -> int:
        """The offset before which the batches of a `.log` file must begin."""
        named = parse_file_name(self.name)
        return INT64_MAX if named is None or named.offset is None else max_plausible_offset(named.offset, self.next_base_offset)

    def sibling(self, suffix: str) -> "ByteFile | None":
        """The file of the same segment with another suffix, e.g. `.index`; None if there is none or it cannot be read."""
        name = self.name.partition(".")[0] + suffix
        try:
            if self.path:
                folder, slash, _ = self.path.rpartition("/")
                return self.source.open(f"{folder}{slash}{name}")
            return open_beside(self.source).open(name)
        except (SourceError, PathMissingError):
            return None


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What is asked. Offsets `[offset_start, offset_end)`, None for no bound; `topic_glob` and `partition` choose directories."""

    records: bool = False
    show_payloads: bool = False
    offset_start: int | None = None
    offset_end: int | None = None
    topic_glob: str | None = None
    partition: int | None = None
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """How storage services are reached, as (name, value); may hold secrets."""

    def overlaps(self, first_offset: int, last_offset: int) -> bool:
        """Whether `[first_offset, last_offset]` holds an offset that is asked for."""
        return (self.offset_start is None or last_offset >= self.offset_start) and (
            self.offset_end is None or first_offset < self.offset_end
        )

    def overlapping(self, first_offsets: "NDArray[np.int64]", last_offsets: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """The same of many."""
        answer = np.ones(len(first_offsets), np.bool_)
        if self.offset_start is not None:
            answer &= last_offsets >= self.offset_start
        if self.offset_end is not None:
            answer &= first_offsets < self.offset_end
        return answer


@dataclass(slots=True)
class DumpInputs:
    """The files found, whether they came out of a directory or archive, and what could not be read or is not Kafka's."""

    files: list[DumpFile] = field(default_factory=list)
    several: bool = False
    incomplete: list[Incomplete] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def _take_lone_files(
    inputs: DumpInputs, source: "ByteSource", files: "list[Entry]", options: DumpOptions, *, alone: bool
) -> list[tuple[str, int]]:
    """Take the files given by themselves that `options` ask for; the partitions of all, where that is known."""
    there = []
    for entry in files:
        try:
            place = _lone_place(source, options)
        except UsageError:
            if alone:
                raise
            inputs.left_out.append(source.name)
            continue
        there += [] if place is None else [place]
        if place is None or fits(place, _asked(options)):
            inputs.files.append(_lone_file(source, entry))
    return there


def find_files(paths: list[str], options: DumpOptions) -> DumpInputs:
    """Every file that `paths` name or hold, in order.

    Raises UsageError for a path that is missing or no file of Kafka's, and if no partition is what `options` ask for.
    """
    inputs = DumpInputs(several=len(paths) > 1)
    there: list[tuple[str, int]] = []
    every = open_paths(paths, logs_only=False, storage_options=options.storage_options)
    for opened_path in every:
        source, discovery = opened_path.source, opened_path.discovery
        inputs.incomplete += not_listed(source, discovery) + members_left_out(source)
        inputs.incomplete += [Incomplete(source.name, problem) for problem in source.problems]
        inputs.left_out += [
            typed_path(source, entry.path) for entry in [*discovery.unknown, *discovery.unsearched, *_strange(discovery.irregular)]
        ]
        there += _take_lone_files(inputs, source, discovery.files, options, alone=len(every) == 1)
        inputs.several |= not discovery.files
        for log_directory in discovery.log_directories:
            _take_log_directory(inputs, source, log_directory, options)
            there += _places(log_directory)
    chosen = options.topic_glob is not None or options.partition is not None
    if chosen and not inputs.files and not any(fits(place, _asked(options)) for place in there):
        raise_unless_hidden(nothing_there(set(there), _asked(options)), hidden=bool(inputs.incomplete))
    compile_as_needed(sum(file.size_in_bytes for file in inputs.files if file.kind in LOG_KINDS))
    return inputs


def _lone_file(source: "ByteSource", entry: "Entry") -> DumpFile:
    parsed = lone_file_name(source)
    assert parsed is not None, source.name
    _, following = base_offsets(source) if parsed.kind is FileKind.LOG else (None, None)
    return DumpFile(source, entry.path, source.name, parsed.kind, parsed.offset or 0, entry.size_in_bytes, following)


def _lone_place(source: "ByteSource", options: DumpOptions) -> tuple[str, int] | None:
    """Topic and partition of a file that was given by itself, by the directory it lies in, where they are asked for.

    Raises UsageError if they are and that directory is no partition's.
    """
    if options.topic_glob is None and options.partition is None:
        return None
    folder = os.path.basename(os.path.dirname(os.path.abspath(source.name)))
    parsed, named = parse_partition_name(folder), lone_file_name(source)
    if parsed is None or (named is not None and named.kind in LOG_DIRECTORY_KINDS):
        hint = "--topic and --partition choose directories: leave them out for files given by themselves"
        raise UsageError(f"{source.name}: of which topic and partition it is cannot be told from its path", hint=hint)
    return parsed.topic, parsed.partition


def _take_log_directory(inputs: DumpInputs, source: "ByteSource", log_directory: LogDirectory, options: DumpOptions) -> None:
    chosen = options.topic_glob is not None or options.partition is not None
    if not chosen:
        inputs.files += _files(source, [(entry, None) for _, entry in sorted(log_directory.entries.items())])
        inputs.left_out += [
            typed_path(source, entry.path) for entry in [*log_directory.unknown, *_strange(log_directory.irregular)]
        ]
    for directory, place in zip(log_directory.partitions, _places(log_directory), strict=True):
        if not chosen or fits(place, _asked(options)):
            inputs.files += _files(source, _entries(directory))
            inputs.left_out += [typed_path(source, entry.path) for entry in [*directory.unknown, *_strange(directory.irregular)]]


def _strange(irregular: "list[Entry]") -> "list[Entry]":
    """Links, pipes and the like without a name of Kafka's; the others are files and directories that cannot be read."""
    return [entry for entry in irregular if parse_file_name(entry.name) is None and parse_partition_name(entry.name) is None]


def _asked(options: DumpOptions) -> ScanOptions:
    return ScanOptions(options.topic_glob, options.partition)


def _places(log_directory: LogDirectory) -> list[tuple[str, int]]:
    return [(directory.topic or "", directory.partition or 0) for directory in log_directory.partitions]


def _entries(directory: PartitionDirectory) -> Iterator[tuple["Entry", int | None]]:
    """Every file of a partition, segment by segment, each with the base offset of the segment behind it."""
    for _, entry in sorted(directory.entries.items()):
        yield entry, None
    following = [segment.base_offset for segment in directory.segments if segment.log is not None]
    for segment in directory.segments:
        behind = next((offset for offset in following if offset > segment.base_offset), None)
        for file in (segment.log, segment.index, segment.time_index, segment.transaction_index):
            if file is not None:
                yield file, behind
    for _, entry in directory.snapshots:
        yield entry, None
    for _, _, entry in directory.metadata_snapshots:
        yield entry, None
    for leftover in directory.leftovers:
        yield leftover.entry, None


def _files(source: "ByteSource", entries: "Iterator[tuple[Entry, int | None]] | list[tuple[Entry, None]]") -> Iterator[DumpFile]:
    for entry, behind in entries:
        parsed = parse_file_name(entry.name)
        if parsed is not None:
            shown = typed_path(source, entry.path)
            is_leftover = parsed.suffix is not None
            yield DumpFile(source, entry.path, shown, parsed.kind, parsed.offset or 0, entry.size_in_bytes, behind, is_leftover)
