"""Inputs of a dump: the files that paths name or contain, and the options."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct

from kafka_forensics.errors import PathMissingError, SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions, fits, no_match_error, raise_or_warn
from kafka_forensics.evidence.paths import not_read, open_paths, single_file_name, skipped_members, typed_path, unlisted_directories
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INT64_MAX
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log_dir import (
    LOG_DIRECTORY_KINDS,
    LOG_KINDS,
    FileKind,
    LogDirectory,
    PartitionDirectory,
    PartitionName,
    max_plausible_offset,
    parse_file_name,
    parse_partition_name,
)
from kafka_forensics.scanning.rereading.record_states import base_offsets
from kafka_forensics.storage.open import open_parent, place_of_log
from kafka_forensics.storage.source import place_of
from kafka_forensics.storage.tiered import RemotePart, list_store, stem_of, stored_object

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.remote_log import StoredLog
    from kafka_forensics.storage.source import ByteFile, ByteSource, Entry

BytesOf = Callable[[int, int], bytes | None]
"""`bytes_of(position, size)` of a batch; None if it is too large to be held."""


class DumpFile(Struct, frozen=True):
    """A file to dump; `path` is inside its source, `shown` as a person would write it.

    `base_offset` is that in the name, else 0; `next_base_offset` that of the next segment in the directory; `is_leftover` is a file
    with a suffix, which is being deleted or swapped in; `is_remote` is a segment in a remote store.
    """

    source: "ByteSource"
    path: str
    shown: str
    kind: FileKind
    base_offset: int
    size_in_bytes: int
    next_base_offset: int | None = None
    is_leftover: bool = False
    is_remote: bool = False

    @property
    def name(self) -> str:
        """Last part of the path."""
        return os.path.basename(self.shown)

    def open(self) -> "ByteFile":
        """Open the file. Raises SourceError."""
        return self.source.open(self.path)

    @property
    def topic(self) -> str | None:
        """The topic by the name of its directory; a KRaft snapshot always belongs to the controllers' log."""
        if self.kind is FileKind.METADATA_CHECKPOINT:
            return CLUSTER_METADATA_TOPIC
        directory = os.path.dirname(self.shown if self.path else os.path.abspath(self.shown))
        parsed = parse_partition_name(os.path.basename(directory))
        return None if parsed is None else parsed.topic

    @property
    def log_continues(self) -> bool:
        """Whether the log may continue in another file: not that of the newest segment, nor a file given by itself."""
        return self.kind is FileKind.LOG and (self.next_base_offset is not None or self.is_leftover or self.is_remote)

    @property
    def reach(self) -> int:
        """The offset before which the batches of a `.log` file must begin."""
        if self.is_remote:
            return max_plausible_offset(self.base_offset, self.next_base_offset)
        parsed = parse_file_name(self.name)
        return INT64_MAX if parsed is None or parsed.offset is None else max_plausible_offset(parsed.offset, self.next_base_offset)

    def open_index(self) -> "ByteFile | None":
        """The offset index of the same segment; None if there is none or it cannot be read."""
        name = self.name.partition(".")[0] + ".index"
        try:
            if self.path:
                folder, slash, _ = self.path.rpartition("/")
                return self.source.open(f"{folder}{slash}{name}")
            return open_parent(self.source).open(name)
        except (SourceError, PathMissingError):
            return None


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Offsets `[offset_start, offset_end)`, None for no bound; `topic_glob` and `partition` select directories."""

    records: bool = False
    show_payloads: bool = False
    offset_start: int | None = None
    offset_end: int | None = None
    topic_glob: str | None = None
    partition: int | None = None
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Options of storage services, as (name, value); may hold secrets."""

    @property
    def selection(self) -> ScanOptions | None:
        """The selected partitions; None if all files are."""
        has_selection = self.topic_glob is not None or self.partition is not None
        return ScanOptions(self.topic_glob, self.partition) if has_selection else None

    def overlaps(self, first_offset: int, last_offset: int) -> bool:
        """Whether `[first_offset, last_offset]` holds a selected offset."""
        return (self.offset_start is None or last_offset >= self.offset_start) and (
            self.offset_end is None or first_offset < self.offset_end
        )

    def overlapping(self, first_offsets: "NDArray[np.int64]", last_offsets: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """`overlaps` for arrays of offsets."""
        overlap = np.ones(len(first_offsets), np.bool_)
        if self.offset_start is not None:
            overlap &= last_offsets >= self.offset_start
        if self.offset_end is not None:
            overlap &= first_offsets < self.offset_end
        return overlap


class DumpInputs(Struct):
    """The files found, whether there may be several, what could not be read, and paths that are not files of Kafka."""

    files: list[DumpFile] = msgspec.field(default_factory=list)
    several: bool = False
    incomplete: list[Incomplete] = msgspec.field(default_factory=list)
    left_out: list[str] = msgspec.field(default_factory=list)


def find_files(paths: list[str], options: DumpOptions) -> DumpInputs:
    """Every file that `paths` name or contain, in order.

    Raises UsageError for a path that is missing or no file of Kafka, and if `options` select a partition that is not there.
    """
    inputs = DumpInputs(several=len(paths) > 1)
    partitions: set[tuple[str, int]] = set()
    opened_paths = open_paths(paths, logs_only=False, storage_options=options.storage_options)
    for opened_path in opened_paths:
        source, discovery = opened_path.source, opened_path.discovery
        inputs.incomplete += unlisted_directories(source, discovery) + skipped_members(source)
        inputs.incomplete += [Incomplete(source.name, problem) for problem in source.problems]
        _leave_out(inputs, source, [*discovery.unknown, *discovery.unsearched], discovery.irregular)
        partitions |= _take_single_files(inputs, source, discovery.files, options, is_only_path=len(opened_paths) == 1)
        inputs.several |= not discovery.files
        for log_directory in discovery.log_directories:
            partitions |= _take_log_directory(inputs, source, log_directory, options)
        for entry in discovery.remote_stores:
            partitions |= _take_store(inputs, source, entry.path, options)
    selection = options.selection
    if selection is not None and not inputs.files and not any(fits(partition, selection) for partition in partitions):
        raise_or_warn(no_match_error(partitions, selection), hidden=bool(inputs.incomplete))
    compile_as_needed(sum(file.size_in_bytes for file in inputs.files if file.kind in LOG_KINDS))
    return inputs


def _leave_out(inputs: DumpInputs, source: "ByteSource", unknown: "list[Entry]", irregular: "list[Entry]") -> None:
    """Note files that are not Kafka's; an irregular file with a name of Kafka's is one that cannot be read."""
    unknown = unknown + [
        entry for entry in irregular if parse_file_name(entry.name) is None and parse_partition_name(entry.name) is None
    ]
    inputs.left_out += [typed_path(source, entry.path) for entry in unknown]


def _take_single_files(
    inputs: DumpInputs, source: "ByteSource", files: "list[Entry]", options: DumpOptions, *, is_only_path: bool
) -> set[tuple[str, int]]:
    """Add the selected of the files given by themselves; returns the partitions of all, by the names of their directories.

    Raises UsageError for the only path if partitions are selected and its directory is not a partition's.
    """
    partitions = set()
    selection, named = options.selection, single_file_name(source) if files else None
    for entry in files:
        assert named is not None, source.name
        stored = stored_object(place_of(source)) if named.kind is FileKind.LOG else None
        if selection is not None:
            parsed = parse_partition_name(os.path.basename(os.path.dirname(os.path.abspath(source.name))))
            parsed = parsed if stored is None else PartitionName(stored.topic, stored.partition)
            if parsed is None or named.kind in LOG_DIRECTORY_KINDS:
                if is_only_path:
                    hint = "--topic and --partition choose directories: leave them out when you give files"
                    raise UsageError(f"{source.name}: its path does not show its topic and partition", hint=hint)
                inputs.left_out.append(source.name)
                continue
            partitions.add((parsed.topic, parsed.partition))
            if not fits((parsed.topic, parsed.partition), selection):
                continue
        if stored is not None:
            inputs.files.append(_object_by_itself(source, stored, entry))
            continue
        _, following = base_offsets(source) if named.kind is FileKind.LOG else (None, None)
        inputs.files.append(
            DumpFile(source, entry.path, source.name, named.kind, named.offset or 0, entry.size_in_bytes, following)
        )
    return partitions


def _object_by_itself(source: "ByteSource", stored: "StoredLog", entry: "Entry") -> DumpFile:
    (segment,) = stored.segments.values()
    parts, path = place_of_log(source)
    return DumpFile(parts, path, source.name, FileKind.LOG, segment.start_offset, entry.size_in_bytes, is_remote=True)


def _take_log_directory(
    inputs: DumpInputs, source: "ByteSource", log_directory: LogDirectory, options: DumpOptions
) -> set[tuple[str, int]]:
    """Add the selected files of a log directory; returns its partitions."""
    partitions = set()
    entries: list[tuple[Entry, int | None]] = []
    if options.selection is None:
        entries += [(entry, None) for _, entry in sorted(log_directory.entries.items())]
        _leave_out(inputs, source, log_directory.unknown, log_directory.irregular)
    for directory in log_directory.partitions:
        partition = (directory.topic or "", directory.partition or 0)
        partitions.add(partition)
        if options.selection is None or fits(partition, options.selection):
            entries += _entries(directory)
            _leave_out(inputs, source, directory.unknown, directory.irregular)
    for entry, following in entries:
        parsed = parse_file_name(entry.name)
        if parsed is not None:
            place = source, entry.path, typed_path(source, entry.path)
            is_leftover = parsed.suffix is not None
            inputs.files.append(DumpFile(*place, parsed.kind, parsed.offset or 0, entry.size_in_bytes, following, is_leftover))
    return partitions


def _take_store(inputs: DumpInputs, source: "ByteSource", path: str, options: DumpOptions) -> set[tuple[str, int]]:
    """Add the logs of the selected segments of a remote store, whatever their states are, without those that start after the
    selected offsets; returns its partitions."""
    try:
        store = list_store(source, path)
    except SourceError as error:
        inputs.incomplete.append(not_read(source, error))
        return set()
    logs = sorted(store.logs.values(), key=lambda log: (log.topic, log.partition, log.topic_id))
    parts, suffix = store.parts, store.layout.needed[0]
    for log in logs if options.selection is None else [log for log in logs if fits((log.topic, log.partition), options.selection)]:
        for segment in sorted(log.segments.values(), key=lambda segment: (segment.start_offset, segment.segment_id)):
            if suffix in segment.objects and options.overlaps(segment.start_offset, INT64_MAX):
                part_path = f"{stem_of(log, segment)}.{RemotePart.LOG.value}"
                place, size = (parts, part_path, typed_path(source, part_path)), segment.objects[suffix]
                inputs.files.append(DumpFile(*place, FileKind.LOG, segment.start_offset, size, is_remote=True))
    return {(log.topic, log.partition) for log in logs}


def _entries(directory: PartitionDirectory) -> Iterator[tuple["Entry", int | None]]:
    """Every file of a partition, segment by segment, each with the base offset of the next segment."""
    for _, entry in sorted(directory.entries.items()):
        yield entry, None
    base_offsets_of_logs = [segment.base_offset for segment in directory.segments if segment.log is not None]
    for segment in directory.segments:
        following = next((offset for offset in base_offsets_of_logs if offset > segment.base_offset), None)
        for file in (segment.log, segment.index, segment.time_index, segment.transaction_index):
            if file is not None:
                yield file, following
    for _, entry in directory.snapshots:
        yield entry, None
    for _, _, entry in directory.metadata_snapshots:
        yield entry, None
    for leftover in directory.leftovers:
        yield leftover.entry, None
