"""Which files a bundle is made of, and by which names it holds them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.evidence.paths import OpenedPath, is_alone, may_repeat, typed_path
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.pseudonyms import Pseudonyms
from kafka_forensics.parsers.log_dir import (
    LOG_KINDS,
    FileKind,
    FileName,
    PartitionName,
    directory_key,
    parse_file_name,
    parse_partition_name,
)
from kafka_forensics.questions.collect.names import BundleNames, is_log_directory
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind

if TYPE_CHECKING:
    from kafka_forensics.model.results import Incomplete

MAX_DEPTH: Final = 5
"""Levels of directories below a path that are looked into: a folder of folders of log directories, and what is in those."""
TOPICS_OF_NAMES: Final = WITNESS_TOPICS | {"__remote_log_metadata"}
NOT_KAFKAS: Final = "no file of Kafka's: its bytes are not collected"


@dataclass(slots=True)
class CollectedEntry:
    """A file, link or pipe of a bundle: `path` is its name there, `next_base_offset` that of the next segment."""

    source: ByteSource
    entry: Entry
    path: str
    name: FileName | None
    partition: PartitionName | None
    """Whose directory it lies in."""
    left_out: str | None = None
    """Why its bytes are not looked at."""
    next_base_offset: int | None = None
    refused: str | None = None
    """Why a link was not followed, as the bundle says it."""

    @property
    def is_log(self) -> bool:
        """Whether it holds batches."""
        return self.name is not None and self.name.kind in LOG_KINDS

    @property
    def has_names(self) -> bool:
        """Whether its records, or those that it indexes, hold names: with pseudonyms nothing is taken as it is."""
        topic = None if self.partition is None else self.partition.topic
        return topic in TOPICS_OF_NAMES or (self.name is not None and self.name.kind is FileKind.METADATA_CHECKPOINT)


@dataclass(frozen=True, slots=True)
class _Directory:
    """One that is walked: its path in the source and its name, and in which directory of the bundle it lies."""

    path: str
    name: str
    """"" of a path that was given where the bundle holds it without a directory."""
    within: str
    depth: int
    entry: Entry | None = None
    in_log_directory: bool = False

    @property
    def is_given(self) -> bool:
        """Whether it is a path that was given, held in a directory of its name."""
        return self.entry is None and self.name != ""


def _joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory and name else directory or name


class Tree:
    """All that the paths hold, found directory by directory each time it is walked: a broker has more files than are kept in mind.

    What discovery found of the paths is needed no more.
    """

    def __init__(self, opened: Sequence[OpenedPath], options: ScanOptions, pseudonyms: Pseudonyms | None = None) -> None:
        self._options = options
        self._names = BundleNames(pseudonyms)
        self._roots = [(prefix, opened_path.source) for prefix, opened_path in zip(prefixes(opened), opened, strict=True)]
        self._read_as = _read_as(opened)
        self.directories: list[tuple[str, int]] = []
        """Those of the last walk with their times."""
        self.incomplete: list[Incomplete] = []
        """What could not be listed in it."""

    def entries(self) -> Iterator[CollectedEntry]:
        """Walk: files, links and pipes, directory by directory."""
        self.directories.clear()
        self.incomplete.clear()
        for prefix, source in self._roots:
            around, _, name = prefix.rpartition("/")
            yield from self._walk(source, _Directory("", name, around, 0))

    def _walk(self, source: ByteSource, walked: "_Directory") -> Iterator[CollectedEntry]:
        """Every entry below a directory, unless it is a partition's that was not asked for."""
        try:
            listed = source.list(walked.path)
        except SourceError as error:
            directory = _joined(walked.within, self._names.directory(walked.name))
            self.incomplete.append(self._names.incomplete(typed_path(source, walked.path), directory, error.reason))
            if walked.is_given:
                self.directories.append((directory, 0))
            return
        is_log_dir = is_log_directory(listed)
        partition = None if is_log_dir else parse_partition_name(walked.name)
        directory = _joined(walked.within, self._names.directory(walked.name, listed, in_log_directory=walked.in_log_directory))
        if walked.is_given:
            self.directories.append((directory, 0))
        if partition is not None and not self._is_asked_for(partition, listed):
            return
        if walked.entry is not None:
            self.directories.append((directory, walked.entry.mtime_ns))
        before: CollectedEntry | None = None
        found: list[CollectedEntry | Entry] = []
        for entry in listed:
            if entry.kind is EntryKind.DIRECTORY:
                found.append(entry)
                continue
            name = _joined(directory, self._names.file(entry))
            collected = CollectedEntry(source, entry, name, parse_file_name(entry.name), partition)
            collected.refused = self._names.reason(entry.refused)
            collected.left_out = _reason(collected)
            if collected.name is not None and collected.name.kind is FileKind.LOG and collected.name.suffix is None:
                if before is not None:
                    before.next_base_offset = collected.name.offset
                before = collected
            found.append(collected)
        found = [item for item in found if isinstance(item, CollectedEntry) or not self._is_read_elsewhere(source, item)]
        found.sort(key=lambda item: self._names.order((item.entry if isinstance(item, CollectedEntry) else item).name))
        for item in found:
            if isinstance(item, CollectedEntry):
                yield item
                continue
            if walked.depth < MAX_DEPTH:
                yield from self._walk(source, _Directory(item.path, item.name, directory, walked.depth + 1, item, is_log_dir))
            else:
                self.directories.append((_joined(directory, self._names.directory(item.name)), item.mtime_ns))

    def _is_read_elsewhere(self, source: ByteSource, directory: Entry) -> bool:
        """Whether a directory is one that is read by another name."""
        return self._read_as.get(directory_key(directory), (source, directory.path)) != (source, directory.path)

    def _is_asked_for(self, partition: PartitionName, listed: Sequence[Entry]) -> bool:
        """Whether a directory of a partition's name is to be taken: one that holds nothing but directories, too."""
        if partition.topic in WITNESS_TOPICS or fits((partition.topic, partition.partition), self._options):
            return True
        is_folder = any(entry.kind is EntryKind.DIRECTORY for entry in listed)
        return is_folder and all(parse_file_name(entry.name) is None for entry in listed)


def _read_as(opened: Sequence[OpenedPath]) -> dict[object, tuple[ByteSource, str]]:
    """Of log directories and partitions' ones that may have several names the one by which they are read; none without links where
    one path was given."""
    if not may_repeat(opened):
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


def tree_of(opened: Sequence[OpenedPath], options: ScanOptions, pseudonyms: Pseudonyms | None = None) -> Tree:
    """The tree of a bundle of these paths, with `pseudonyms` for names. Raises UsageError for a path that is no directory."""
    for opened_path in opened:
        if isinstance(opened_path.source, BundleSource):
            raise UsageError(
                f"{opened_path.source.name} is a bundle already", hint="bundles are given to the other commands as they are"
            )
        if opened_path.discovery.files:
            hint = "give the broker's log directory, or the partition's directory in it"
            raise UsageError(f"{opened_path.source.name} is a file, and a bundle is made of log directories", hint=hint)
    return Tree(opened, options, pseudonyms)


def prefixes(opened: Sequence[OpenedPath]) -> list[str]:
    """The directory of the bundle that each path is put in: its own name; none for the only one, unless that is a partition's."""
    if len(opened) == 1 and not any(
        is_alone(directory) and not directory.path for directory in opened[0].discovery.log_directories
    ):
        return [""]
    names: list[str] = []
    for opened_path in opened:
        name = os.path.basename(os.path.abspath(opened_path.source.name)) or "logs"
        names.append(next(unused for unused in _numbered(name) if unused not in names))
    return names


def _numbered(name: str) -> Iterator[str]:
    """The name, and others below a number: those of partitions are what they are called."""
    yield name
    number = 2
    while True:
        yield f"{number}/{name}"
        number += 1


def _reason(entry: CollectedEntry) -> str | None:
    """Why the bytes of a file are not looked at; None if they are."""
    return NOT_KAFKAS if entry.entry.kind is EntryKind.FILE and entry.name is None else None
