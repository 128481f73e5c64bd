"""Finds the files of a bundle, and their paths in it."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.evidence.paths import OpenedPath, is_without_log_dir, may_have_duplicates, typed_path
from kafka_forensics.model.constants import REMOTE_LOG_METADATA_TOPIC, WITNESS_TOPICS
from kafka_forensics.model.pseudonyms import Pseudonyms
from kafka_forensics.parsers.log_dir import (
    LOG_KINDS,
    FileKind,
    FileName,
    PartitionName,
    parse_file_name,
    parse_partition_name,
)
from kafka_forensics.questions.collect.names import BundleNames, is_log_directory
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind, directory_key

if TYPE_CHECKING:
    from kafka_forensics.model.results import Incomplete

MAX_DEPTH: Final = 5
"""Levels of directories below a path: a folder of folders of log directories, and what is in these."""
TOPICS_WITH_NAMES: Final = WITNESS_TOPICS | {REMOTE_LOG_METADATA_TOPIC}
NOT_KAFKAS: Final = "not a Kafka file: its bytes are not collected"


class CollectedEntry(Struct):
    """A file, link or pipe of a bundle: `path` is its path there, `next_base_offset` that of the next segment."""

    source: ByteSource
    entry: Entry
    path: str
    name: FileName | None
    partition: PartitionName | None
    """The partition whose directory contains it."""
    left_out: str | None = None
    """Why its bytes are not read."""
    next_base_offset: int | None = None
    refused: str | None = None
    """Why a link was not followed, without names."""

    @property
    def is_log(self) -> bool:
        """Whether it holds batches."""
        return self.name is not None and self.name.kind in LOG_KINDS

    @property
    def has_names(self) -> bool:
        """Whether its records, or those that it indexes, may have names."""
        topic = None if self.partition is None else self.partition.topic
        return topic in TOPICS_WITH_NAMES or (self.name is not None and self.name.kind is FileKind.METADATA_CHECKPOINT)


class _WalkedDirectory(Struct, frozen=True):
    """A directory: its path in the source, its name, and the directory of the bundle that contains it."""

    path: str
    name: str
    """"" for a given path whose entries are at the top of the bundle."""
    parent: str
    depth: int
    entry: Entry | None = None
    in_log_directory: bool = False


def _joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory and name else directory or name


class FileTree:
    """All entries below the given paths. Every walk lists the directories again: a broker has too many files to hold in memory."""

    def __init__(self, opened: Sequence[OpenedPath], options: ScanOptions, pseudonyms: Pseudonyms | None = None) -> None:
        self._options = options
        self._names = BundleNames(pseudonyms)
        self._roots = [(prefix, path.source) for prefix, path in zip(prefixes(opened), opened, strict=True)]
        self._read_as = _read_as(opened)
        self.directories: list[tuple[str, int]] = []
        """Directories of the last walk, with their times (ns)."""
        self.incomplete: list[Incomplete] = []
        """What the last walk could not list."""

    def entries(self) -> Iterator[CollectedEntry]:
        """Walk all files, links and pipes, directory by directory."""
        self.directories.clear()
        self.incomplete.clear()
        for prefix, source in self._roots:
            parent, _, name = prefix.rpartition("/")
            yield from self._walk(source, _WalkedDirectory("", name, parent, 0))

    def _walk(self, source: ByteSource, walked: _WalkedDirectory) -> Iterator[CollectedEntry]:
        """Every entry below a directory, except below a partition's that is not selected."""
        is_root = walked.entry is None and walked.name != ""
        try:
            listed = source.list(walked.path)
        except SourceError as error:
            directory = _joined(walked.parent, self._names.directory(walked.name))
            self.incomplete.append(self._names.incomplete(typed_path(source, walked.path), directory, error.reason))
            if is_root:
                self.directories.append((directory, 0))
            return
        is_log_dir = is_log_directory(listed)
        partition = None if is_log_dir else parse_partition_name(walked.name)
        directory = _joined(walked.parent, self._names.directory(walked.name, listed, in_log_directory=walked.in_log_directory))
        if is_root:
            self.directories.append((directory, 0))
        if partition is not None and not self._is_selected(partition, listed):
            return
        if walked.entry is not None:
            self.directories.append((directory, walked.entry.mtime_ns))
        files = self._files(source, directory, partition, listed)
        for entry in sorted(listed, key=lambda entry: self._names.order(entry.name)):
            if entry.kind is not EntryKind.DIRECTORY:
                yield files[entry.name]
            elif self._read_as.get(directory_key(entry), (source, entry.path)) != (source, entry.path):
                continue  # it is read under another name
            elif walked.depth < MAX_DEPTH:
                below = _WalkedDirectory(entry.path, entry.name, directory, walked.depth + 1, entry, is_log_dir)
                yield from self._walk(source, below)
            else:
                self.directories.append((_joined(directory, self._names.directory(entry.name)), entry.mtime_ns))

    def _files(
        self, source: ByteSource, directory: str, partition: PartitionName | None, listed: Sequence[Entry]
    ) -> dict[str, CollectedEntry]:
        """The entries of a directory that are not directories, by name."""
        files: dict[str, CollectedEntry] = {}
        last_log: CollectedEntry | None = None
        for entry in listed:
            if entry.kind is EntryKind.DIRECTORY:
                continue
            file = CollectedEntry(
                source, entry, _joined(directory, self._names.file(entry)), parse_file_name(entry.name), partition
            )
            file.refused = self._names.reason(entry.refused)
            file.left_out = NOT_KAFKAS if entry.kind is EntryKind.FILE and file.name is None else None
            if file.name is not None and file.name.kind is FileKind.LOG and file.name.suffix is None:
                if last_log is not None:
                    last_log.next_base_offset = file.name.offset
                last_log = file
            files[entry.name] = file
        return files

    def _is_selected(self, partition: PartitionName, listed: Sequence[Entry]) -> bool:
        """Whether a directory with a partition's name is collected; also if it has only directories, and so is not a partition."""
        if partition.topic in WITNESS_TOPICS or fits((partition.topic, partition.partition), self._options):
            return True
        is_folder = any(entry.kind is EntryKind.DIRECTORY for entry in listed)
        return is_folder and all(parse_file_name(entry.name) is None for entry in listed)


def _read_as(opened: Sequence[OpenedPath]) -> dict[object, tuple[ByteSource, str]]:
    """The path under which each log or partition directory is read, if several names may lead to it."""
    if not may_have_duplicates(opened):
        return {}
    return {
        directory_key(entry): (opened_path.source, path)
        for opened_path in opened
        for log_directory in opened_path.discovery.log_directories
        for entry, path in (
            (log_directory.entry, log_directory.path),
            *((partition.entry, partition.path) for partition in log_directory.partitions),
        )
        if entry is not None
    }


def file_tree(opened: Sequence[OpenedPath], options: ScanOptions, pseudonyms: Pseudonyms | None = None) -> FileTree:
    """The tree of a bundle of these paths. Raises UsageError for a path that is not a directory."""
    for opened_path in opened:
        name = opened_path.source.name
        if isinstance(opened_path.source, BundleSource):
            raise UsageError(f"{name} is already a bundle", hint="give bundles to the other commands directly")
        if opened_path.discovery.files:
            hint = "give the broker's log directory, or the partition's directory in it"
            raise UsageError(f"{name} is a file; a bundle is made of log directories", hint=hint)
    return FileTree(opened, options, pseudonyms)


def prefixes(opened: Sequence[OpenedPath]) -> list[str]:
    """The directory of the bundle for each path: its name, below a number if that is taken; none for a single path that is not a
    partition's."""
    if len(opened) == 1 and not any(
        is_without_log_dir(directory) and not directory.path for directory in opened[0].discovery.log_directories
    ):
        return [""]
    names: list[str] = []
    for opened_path in opened:
        name = os.path.basename(os.path.abspath(opened_path.source.name)) or "logs"
        candidates = chain([name], (f"{number}/{name}" for number in count(2)))  # the names of partitions must stay
        names.append(next(candidate for candidate in candidates if candidate not in names))
    return names
