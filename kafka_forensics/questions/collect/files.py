"""Which files a bundle is made of, and by which names it holds them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.evidence.paths import OpenedPath, is_alone, typed_path
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import (
    LOG_DIRECTORY_KINDS,
    FileKind,
    FileName,
    PartitionName,
    parse_file_name,
    parse_partition_name,
)
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind

MAX_DEPTH: Final = 5
"""Levels of directories below a path that are looked into: a folder of folders of log directories, and what is in those."""
LOG_KINDS: Final = (FileKind.LOG, FileKind.METADATA_CHECKPOINT)
"""Files of batches, of which facts are taken instead of bytes."""
NOT_KAFKAS: Final = "no file of Kafka's: its bytes are not collected"


@dataclass(slots=True)
class CollectedEntry:
    """A file, link or pipe to be told of: `path` is its name in the bundle, `behind` the base offset of the segment behind it."""

    source: ByteSource
    entry: Entry
    path: str
    name: FileName | None
    partition: PartitionName | None
    """Whose directory it lies in."""
    left_out: str | None = None
    """Why its bytes are not looked at."""
    behind: int | None = None
    is_active: bool = False
    """Whether it is of the last segment."""

    @property
    def is_log(self) -> bool:
        """Whether it holds batches."""
        return self.name is not None and self.name.kind in LOG_KINDS


class Tree:
    """All that the paths hold, found directory by directory each time it is walked: a broker has more files than are kept in mind.

    What discovery found of the paths is needed no more.
    """

    def __init__(self, opened: Sequence[OpenedPath], options: ScanOptions) -> None:
        self._options = options
        self._roots = [(prefix, opened_path.source) for prefix, opened_path in zip(prefixes(opened), opened, strict=True)]
        self.directories: list[tuple[str, int]] = []
        """Those of the last walk with their times."""
        self.incomplete: list[Incomplete] = []
        """What could not be listed in it."""

    def entries(self) -> Iterator[CollectedEntry]:
        """Walk: files, links and pipes in the order of paths."""
        self.directories.clear()
        self.incomplete.clear()
        for prefix, source in self._roots:
            self.directories += [(prefix, 0)] if prefix else []
            yield from self._walk(source, "", prefix, 0)

    def _walk(self, source: ByteSource, path: str, prefix: str, depth: int, above: Entry | None = None) -> Iterator[CollectedEntry]:
        """Every entry below the directory `path`, whose own entry is `above`, unless it is a partition's that was not asked for."""
        try:
            listed = source.list(path)
        except SourceError as error:
            self.incomplete.append(Incomplete(typed_path(source, path), error.reason))
            return
        directory = "/".join(filter(None, (prefix, path)))
        partition = parse_partition_name(directory.rpartition("/")[2])
        if partition is not None and _is_log_directory(listed):
            partition = None
        if partition is not None and not self._is_asked_for(partition, listed):
            return
        self.directories += [(directory, above.mtime_ns)] if above is not None else []
        before: CollectedEntry | None = None
        found: list[CollectedEntry | Entry] = []
        for entry in listed:
            if entry.kind is EntryKind.DIRECTORY:
                found.append(entry)
                continue
            name = f"{directory}/{entry.name}" if directory else entry.name
            collected = CollectedEntry(source, entry, name, parse_file_name(entry.name), partition)
            collected.left_out = _reason(collected)
            if collected.name is not None and collected.name.kind is FileKind.LOG and collected.name.suffix is None:
                if before is not None:
                    before.behind = collected.name.offset
                before = collected
            found.append(collected)
        for item in found:
            if isinstance(item, CollectedEntry):
                item.is_active = before is not None and item.name is not None and item.name.offset == _offset(before)
                yield item
                continue
            if depth < MAX_DEPTH:
                yield from self._walk(source, item.path, prefix, depth + 1, item)
            else:
                self.directories.append((f"{directory}/{item.name}" if directory else item.name, item.mtime_ns))

    def _is_asked_for(self, partition: PartitionName, listed: Sequence[Entry]) -> bool:
        """Whether a directory of a partition's name is to be taken: one that holds nothing but directories, too."""
        if partition.topic in WITNESS_TOPICS or fits((partition.topic, partition.partition), self._options):
            return True
        is_folder = any(entry.kind is EntryKind.DIRECTORY for entry in listed)
        return is_folder and all(parse_file_name(entry.name) is None for entry in listed)


def _offset(entry: CollectedEntry) -> int | None:
    return None if entry.name is None else entry.name.offset


def _is_log_directory(listed: Sequence[Entry]) -> bool:
    """Whether a directory is one entry of a broker's `log.dirs`, whatever its name is."""
    names = (parse_file_name(entry.name) for entry in listed)
    return any(name is not None and name.kind in LOG_DIRECTORY_KINDS for name in names)


def tree_of(opened: Sequence[OpenedPath], options: ScanOptions) -> Tree:
    """The tree of a bundle of these paths. Raises UsageError for a path that is no directory."""
    for opened_path in opened:
        if isinstance(opened_path.source, BundleSource):
            raise UsageError(
                f"{opened_path.source.name} is a bundle already", hint="bundles are given to the other commands as they are"
            )
        if opened_path.discovery.files:
            hint = "give the broker's log directory, or the partition's directory in it"
            raise UsageError(f"{opened_path.source.name} is a file, and a bundle is made of log directories", hint=hint)
    return Tree(opened, options)


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
