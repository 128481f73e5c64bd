"""Collecting: of log directories all that is needed to judge them elsewhere, and no payload."""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.evidence.paths import OpenedPath, open_paths, typed_path
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, WITNESS_TOPICS
from kafka_forensics.model.pseudonyms import Pseudonyms
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.checkpoints import parse_meta_properties
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log_dir import Discovery, FileKind
from kafka_forensics.questions.collect.estimate import INDEXES, Estimate, estimated
from kafka_forensics.questions.collect.files import NOT_KAFKAS, CollectedEntry, Tree, tree_of
from kafka_forensics.questions.collect.log_facts import FactsWanted, take_log
from kafka_forensics.questions.collect.names import BundleNames
from kafka_forensics.questions.collect.pace import Pace
from kafka_forensics.questions.collect.politeness import leave_page_cache
from kafka_forensics.replication.recovery import CLEANER_FILE
from kafka_forensics.scanning.judging.whole_scan import is_deep
from kafka_forensics.scanning.witnesses.controller import read_controller
from kafka_forensics.scanning.witnesses.coordinators import read_transaction_log
from kafka_forensics.storage.bundles import (
    TRANSACTION_PARTITIONS,
    SectionKind,
)
from kafka_forensics.storage.open import sha256_of
from kafka_forensics.storage.page_cache import PageCache
from kafka_forensics.storage.source import EntryKind, place_of
from kafka_forensics.version import __version__
from kafka_forensics.writers.bundle_file import BundleWriter
from kafka_forensics.writers.redacted_files import RewrittenFile, redacted_file

if TYPE_CHECKING:
    from kafka_forensics.model.json_objects import Json
    from kafka_forensics.storage.source import ByteFile

PIECE_BYTES: Final = 1 << 20
Progress = Callable[[int, int], None]
"""Called with bytes done, and bytes in all."""


@dataclass(frozen=True, slots=True)
class RecordsAsked:
    """Records of a partition whose batches are to be taken whole: offsets [start, end)."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What is collected, and how; `scan` selects partitions, and says how deep and whether brokers run."""

    scan: ScanOptions = field(default_factory=ScanOptions)
    records: tuple[RecordsAsked, ...] = ()
    compacted: str | None = None
    """Pattern of topics that are compacted though nothing here may tell."""
    hashes: bool = False
    """Whether the SHA-256 of every file is taken, too."""
    max_rate: int | None = None
    """Bytes a second that are read at most."""
    pseudonyms: Pseudonyms | None = None
    """What stands for names; None: they are collected as they are."""


@dataclass(slots=True)
class Collected:
    """What came of it."""

    files: int = 0
    logs: int = 0
    batches: int = 0
    bytes_in_all: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    """Of files whose facts were known already."""
    bundle_bytes: int = 0
    is_deep: bool = False
    left_out: int = 0
    """Files whose bytes were not looked at."""
    incomplete: list[Incomplete] = field(default_factory=list)


def collect(paths: list[str], options: CollectOptions, output: BinaryIO, progress: Progress | None = None) -> Collected:
    """Write a bundle of the log directories at `paths` to `output`, which may hold the beginning of the same one.

    Raises UsageError for paths that hold no log directory, for options that make no sense, and for the beginning of another bundle.
    """
    if options.pseudonyms is not None and options.records:
        hint = "leave out one of them: no pseudonym stands for what is in records"
        raise UsageError("records cannot be taken whole where pseudonyms stand for names", hint=hint)
    with _without_names_in_notes(options.pseudonyms):
        return _Collecting(paths, options, output, progress or (lambda _done, _total: None)).run()


@contextmanager
def _without_names_in_notes(pseudonyms: Pseudonyms | None) -> Iterator[None]:
    """Where pseudonyms stand for names, no note is made of what is found, which would name it; `scan` says it of the bundle."""
    if pseudonyms is None:
        yield
        return
    logger = logging.getLogger("kafka_forensics.evidence")
    usual = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(usual)


class _Collecting:
    """One bundle being made."""

    def __init__(self, paths: list[str], options: CollectOptions, output: BinaryIO, progress: Progress) -> None:
        self._opened = open_paths(paths, storage_options=options.scan.storage_options)
        self._options = options
        cache = PageCache()
        leave_page_cache((opened_path.source for opened_path in self._opened), cache)
        self._pseudonyms = options.pseudonyms
        self._tree: Tree = tree_of(self._opened, options.scan, self._pseudonyms)
        self._names = BundleNames(self._pseudonyms)
        self._broker = self._names.broker(next((name for name in map(_broker, self._opened) if name), None))
        self._paths = tuple(self._names.path(place_of(opened_path.source)) for opened_path in self._opened)
        for opened_path in self._opened:
            opened_path.discovery = Discovery()  # it takes as much memory as all the rest
        self._progress = progress
        self._compacted = compacted_partitions(paths, options.scan, cache)
        self._transaction_partitions = 0 if self._pseudonyms is None else transaction_partitions(paths, options.scan, cache)
        self._total = self._required()
        self.collected = Collected(bytes_in_all=self._total, is_deep=is_deep(options.scan.deep, self._total))
        compile_as_needed(self._total)
        self._done = 0
        self._pace = Pace(options.max_rate)
        self._writer = BundleWriter(output, self._about())

    def run(self) -> Collected:
        """Take every file."""
        for entry in self._tree.entries():
            if self._may_be_known(entry) and self._writer.keep_file(
                entry.path,
                lambda row: row[1:4] == _stamp(entry) and row[_LEFT_OUT] == entry.left_out,  # noqa: B023
            ):
                self._keep(entry)
                continue
            self._writer.begin_file(entry.path)
            self._writer.end_file(self._take(entry))
        self.collected.incomplete = self._tree.incomplete + self.collected.incomplete
        self._writer.finish(self._tree.directories, {"ended_ms": int(time.time() * 1000)})
        self.collected.bundle_bytes = self._writer.size_in_bytes
        return self.collected

    def _about(self) -> "Json":
        """What the bundle says of itself; one that is begun is gone on with only if it says the same."""
        return {
            "tool_version": __version__,
            "host": self._names.host(socket.gethostname()),
            "broker": self._broker,
            "paths": list(self._paths),
            "live": self._options.scan.live,
            "deep": self.collected.is_deep,
            "hashes": self._options.hashes,
            "compacted": self._names.topics(self._options.compacted),
            "topics": self._names.topics(self._options.scan.topic_glob),
            "partition": self._options.scan.partition,
            "records": [[asked.topic, asked.partition, asked.start, asked.end] for asked in self._options.records],
            "redaction": None if self._pseudonyms is None else self._pseudonyms.key_name,
            TRANSACTION_PARTITIONS: self._transaction_partitions,
            "started_ms": int(time.time() * 1000),
        }

    def _required(self) -> int:
        """Bytes of all files that are looked at. Raises UsageError for records that may not be taken, or of partitions that are not
        there."""
        total = 0
        there: set[tuple[str, int]] = set()
        for entry in self._tree.entries():
            total += entry.entry.size_in_bytes if entry.left_out is None else 0
            if entry.partition is not None:
                there.add((entry.partition.topic, entry.partition.partition))
        for asked in self._options.records:
            if asked.topic in WITNESS_TOPICS:
                hint = "its records hold credentials and settings; what the analysis uses of them is always taken"
                raise UsageError(f"records of {asked.topic} are no part of a bundle", hint=hint)
            if (asked.topic, asked.partition) not in there:
                hint = "write --with-records TOPIC:PARTITION:FROM-TO, and give the log directory that holds it"
                raise UsageError(f"there is no partition {asked.topic}-{asked.partition} to take records of", hint=hint)
        return total

    def _take(self, entry: CollectedEntry) -> list[object]:
        """Add the sections of a file; its row in the listing."""
        left_out, hashed, stamp, allocated = entry.left_out, None, _stamp(entry), entry.entry.allocated_bytes
        if self._pseudonyms is not None and left_out is None and (entry.has_names or not entry.is_log):
            stamp[1], allocated = 0, None  # they are of what is replaced
        if left_out is not None:
            self.collected.left_out += left_out == NOT_KAFKAS
        elif entry.entry.kind is EntryKind.FILE:
            try:
                stamp[1], hashed = self._read(entry)
                self.collected.files += 1
            except SourceError as error:
                typed = typed_path(entry.source, entry.entry.path)
                self.collected.incomplete.append(self._names.incomplete(typed, entry.path, error.reason))
                left_out = f"could not be read when it was collected: {self._names.reason(error.reason)}"
        return [entry.path, *stamp, allocated, entry.refused, left_out, entry.is_log, hashed]

    def _read(self, entry: CollectedEntry) -> tuple[int, str | None]:
        """Add the sections of a file by reading it: its size as it was then, which of a live log is not that of its listing, and
        its SHA-256 if that is asked for. Raises SourceError."""
        with entry.source.open(entry.entry.path) as opened:
            file: ByteFile = self._pace.of(opened)
            size_in_bytes = file.size_in_bytes
            if entry.is_log:
                self.collected.logs += 1
                batches, size_in_bytes = take_log(entry, file, self._writer, self._wanted(entry), self._passed)
                self.collected.batches += batches
            else:
                file = self._redacted(entry, file)
                size_in_bytes = file.size_in_bytes
                self._take_bytes(entry, file)
            is_said = self._options.hashes and not (entry.is_log and self._pseudonyms is not None)
            return size_in_bytes, sha256_of(file) if is_said else None

    def _redacted(self, entry: CollectedEntry, file: "ByteFile") -> "ByteFile":
        """What a small file becomes. Raises SourceError."""
        if self._pseudonyms is None or entry.name is None:
            return file
        if entry.has_names and entry.name.kind in INDEXES:
            return RewrittenFile(b"")  # its entries are positions in a log that is written anew
        return redacted_file(entry.name.kind, file, self._pseudonyms)

    def _wanted(self, entry: CollectedEntry) -> FactsWanted:
        return facts_wanted(self._options, self._compacted, self.collected.is_deep, entry)

    def _may_be_known(self, entry: CollectedEntry) -> bool:
        """Whether what is known of a file already may stand for it: of one with names in it only if they are not redacted, or else
        the map of pseudonyms would not have them all."""
        if self._pseudonyms is None or entry.left_out is not None:
            return True
        return entry.is_log and not entry.has_names

    def _keep(self, entry: CollectedEntry) -> None:
        """What is known of a file is kept."""
        self.collected.files += entry.left_out is None
        self.collected.logs += entry.is_log
        self.collected.left_out += entry.left_out == NOT_KAFKAS
        if entry.left_out is None:
            self.collected.bytes_kept += entry.entry.size_in_bytes
            self._done += entry.entry.size_in_bytes
            self._progress(self._done, self._total)

    def _take_bytes(self, entry: CollectedEntry, file: "ByteFile") -> None:
        """Add a small file as it is, but for the zeros at its end."""
        for start, end in file.data_ranges():
            for position in range(start, end, PIECE_BYTES):
                data = file.read_at(position, min(PIECE_BYTES, end - position))
                self._passed(len(data))
                kept = data if position + len(data) < end else data.rstrip(b"\0")
                if kept:
                    self._writer.add(entry.path, SectionKind.BYTES, position, position + len(kept), kept)

    def _passed(self, size_in_bytes: int) -> None:
        """So many more bytes are read."""
        self._done += size_in_bytes
        self.collected.bytes_read += size_in_bytes
        self._progress(self._done, self._total)


def estimate_of(paths: list[str], options: CollectOptions) -> Estimate:
    """What a bundle of these log directories will be. Raises UsageError as `collect` does."""
    with _without_names_in_notes(options.pseudonyms):
        opened = open_paths(paths, storage_options=options.scan.storage_options)
        cache = PageCache()
        leave_page_cache((opened_path.source for opened_path in opened), cache)
        tree = tree_of(opened, options.scan, options.pseudonyms)
        total = sum(entry.entry.size_in_bytes for entry in tree.entries() if entry.left_out is None)
        compacted = compacted_partitions(paths, options.scan, cache)
        deep = is_deep(options.scan.deep, total)
        return estimated(tree, partial(facts_wanted, options, compacted, deep), options.max_rate)


def facts_wanted(options: CollectOptions, compacted: set[tuple[str, int]], deep: bool, entry: CollectedEntry) -> FactsWanted:
    """What is taken of a log."""
    records = tuple((asked.start, asked.end) for asked in options.records if _is_of(entry, asked))
    keys = has_hashed_keys(entry, options, compacted)
    return FactsWanted(deep, records, keys, options.pseudonyms)


def compacted_partitions(paths: list[str], options: ScanOptions, cache: PageCache) -> set[tuple[str, int]]:
    """Partitions whose topics are compacted, by what the log directories at `paths` tell: checkpoints of the cleaner, and the
    controller's log. Internal topics always are."""
    only_controller = replace(options, topic_glob=CLUSTER_METADATA_TOPIC, partition=None, broker=None)
    inputs = gather(paths, only_controller, elsewhere=True)
    leave_page_cache(inputs.sources, cache)
    cleaned = {
        key for log_dir in inputs.log_dirs if (file := log_dir.checkpoints.get(CLEANER_FILE)) is not None for key in file.offsets
    }
    evidence = read_controller(inputs)
    controls = {} if evidence is None else evidence.history.partitions
    return cleaned | {key for key, control in controls.items() if control.was_compacted}


def transaction_partitions(paths: list[str], options: ScanOptions, cache: PageCache) -> int:
    """How many partitions the transaction coordinators' log has, by the ids in it and where they stand: pseudonyms do not tell."""
    only_transactions = replace(options, topic_glob=TRANSACTION_STATE_TOPIC, partition=None, broker=None)
    inputs = gather(paths, only_transactions, elsewhere=True)
    leave_page_cache(inputs.sources, cache)
    log, _ = read_transaction_log(inputs)
    return 0 if log is None else max((*log.partitions, *log.missing), default=-1) + 1


def has_hashed_keys(entry: CollectedEntry, options: CollectOptions, compacted: set[tuple[str, int]]) -> bool:
    """Whether the records of a log are taken as hashes of their keys and values; `compacted` is by `compacted_partitions`."""
    if entry.partition is None:
        return False
    topic, partition = entry.partition.topic, entry.partition.partition
    known = topic in INTERNAL_TOPICS or (topic, partition) in compacted
    return known or (options.compacted is not None and fnmatchcase(topic, options.compacted))


def _is_of(entry: CollectedEntry, asked: RecordsAsked) -> bool:
    partition, is_segment = entry.partition, entry.name is not None and entry.name.kind is FileKind.LOG
    return is_segment and partition is not None and (partition.topic, partition.partition) == (asked.topic, asked.partition)


_LEFT_OUT: Final = 6
"""Where the row of a file says why its bytes were not looked at."""
_KIND_NAMES: Final = {EntryKind.FILE: "f", EntryKind.SYMLINK: "l", EntryKind.OTHER: "o"}


def _stamp(entry: CollectedEntry) -> list[object]:
    """Kind, size and time of a file: of one that has the same at another time nothing is read again."""
    return [_KIND_NAMES[entry.entry.kind], entry.entry.size_in_bytes, entry.entry.mtime_ns]


def _broker(opened_path: OpenedPath) -> int | str | None:
    """What the broker is called, by what was given or by its first `meta.properties`."""
    if opened_path.given is not None:
        return opened_path.given
    for directory in opened_path.discovery.log_directories:
        entry = directory.entries.get(FileKind.META_PROPERTIES)
        if entry is not None:
            try:
                with opened_path.source.open(entry.path) as file:
                    return parse_meta_properties(file).node_id
            except SourceError:
                continue
    return None
