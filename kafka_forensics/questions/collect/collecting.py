"""Writes a bundle: all facts of log directories that are needed to judge them elsewhere, without any payload."""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, BinaryIO, Final

from msgspec import Struct, field

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.evidence.paths import OpenedPath, open_paths, typed_path
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, WITNESS_TOPICS
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.pseudonyms import NameKind, Pseudonyms
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.checkpoints import parse_meta_properties
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.parsers.log_dir import Discovery, FileKind
from kafka_forensics.questions.collect.estimate import INDEXES, Estimate, estimate_bundle
from kafka_forensics.questions.collect.files import NOT_KAFKAS, CollectedEntry, FileTree, file_tree
from kafka_forensics.questions.collect.log_facts import FactOptions, add_log
from kafka_forensics.questions.collect.low_priority import RateLimiter, bypass_page_cache
from kafka_forensics.questions.collect.names import BundleNames
from kafka_forensics.replication.recovery import CLEANER_FILE
from kafka_forensics.scanning.judging.whole_scan import is_deep
from kafka_forensics.scanning.witnesses.controller import read_controller
from kafka_forensics.scanning.witnesses.coordinators import read_transaction_log
from kafka_forensics.storage.bundles import TRANSACTION_PARTITIONS, SectionKind
from kafka_forensics.storage.open import sha256_of
from kafka_forensics.storage.page_cache import PageCache
from kafka_forensics.storage.source import BytesFile, EntryKind, place_of
from kafka_forensics.version import __version__
from kafka_forensics.writers.bundle_file import BundleWriter
from kafka_forensics.writers.redacted_files import redacted_file

if TYPE_CHECKING:
    from kafka_forensics.model.json_objects import Json
    from kafka_forensics.storage.source import ByteFile

READ_BYTES: Final = 1 << 20
Progress = Callable[[int, int], None]
"""Called with bytes done, and bytes in all."""
_LEFT_OUT: Final = 6
"""Index of the reason in the row of a file whose bytes are left out."""
_KIND_NAMES: Final = {EntryKind.FILE: "f", EntryKind.SYMLINK: "l", EntryKind.OTHER: "o"}


class RequestedRecords(Struct, frozen=True):
    """Offsets [start, end) of a partition whose batches are collected whole."""

    topic: str
    partition: int
    start: int
    end: int


class CollectOptions(Struct, frozen=True):
    """What to collect; `scan` selects partitions, and says how deep to read and whether brokers run."""

    scan: ScanOptions = field(default_factory=ScanOptions)
    records: tuple[RequestedRecords, ...] = ()
    compacted: str | None = None
    """Pattern of topics that are compacted although no input may say so."""
    hashes: bool = False
    """Whether to add the SHA-256 of every file."""
    max_rate: int | None = None
    """Bytes read per second at most."""
    pseudonyms: Pseudonyms | None = None
    """Replaces names; None: names are collected."""


class Collected(Struct):
    """What was collected."""

    files: int = 0
    logs: int = 0
    batches: int = 0
    bytes_in_all: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    """Of files whose facts were in the unfinished bundle."""
    bundle_bytes: int = 0
    is_deep: bool = False
    left_out: int = 0
    """Files whose bytes were not read."""
    incomplete: list[Incomplete] = field(default_factory=list)


def collect(paths: list[str], options: CollectOptions, output: BinaryIO, progress: Progress | None = None) -> Collected:
    """Write a bundle of the log directories at `paths` to `output`, which may have the start of the same bundle.

    Raises UsageError for paths without a log directory, for invalid options, and if `output` has the start of another bundle.
    """
    if options.pseudonyms is not None and options.records:
        hint = "leave out one of them: pseudonyms do not replace the content of records"
        raise UsageError("whole records cannot be collected with pseudonyms", hint=hint)
    with _without_names_in_logs(options.pseudonyms):
        return _Collecting(_CollectInputs(paths, options), output, progress or (lambda _done, _total: None)).run()


def estimate_of(paths: list[str], options: CollectOptions) -> Estimate:
    """The expected size of the bundle and time. Raises UsageError as `collect` does."""
    with _without_names_in_logs(options.pseudonyms):
        inputs = _CollectInputs(paths, options)
        return estimate_bundle(inputs.tree, inputs.fact_options, options.max_rate)


@contextmanager
def _without_names_in_logs(pseudonyms: Pseudonyms | None) -> Iterator[None]:
    """With pseudonyms, suppress log messages about the inputs, which would contain names; `scan` gives them for the bundle."""
    logger = logging.getLogger("kafka_forensics.evidence")
    level = logger.level
    if pseudonyms is not None:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _CollectInputs:
    """The opened log directories, and what is known of them before their files are read."""

    def __init__(self, paths: list[str], options: CollectOptions) -> None:
        self.options, self._paths = options, paths
        self._cache = PageCache()
        opened = open_paths(paths, storage_options=options.scan.storage_options)
        bypass_page_cache((path.source for path in opened), self._cache)
        self.tree: FileTree = file_tree(opened, options.scan, options.pseudonyms)
        self.names = BundleNames(options.pseudonyms)
        self.broker = self.names.broker(next((name for name in map(_broker, opened) if name), None))
        root = "" if options.pseudonyms is None else "/"
        self.paths = [f"{root}{self.names.text(NameKind.OTHER, place_of(path.source))}" for path in opened]
        for path in opened:
            path.discovery = Discovery()  # it takes as much memory as everything else
        self._compacted = self._compacted_partitions()
        self.size_in_bytes = sum(entry.entry.size_in_bytes for entry in self.tree.entries() if entry.left_out is None)
        self.is_deep = is_deep(options.scan.deep, self.size_in_bytes)

    def fact_options(self, entry: CollectedEntry) -> FactOptions:
        """What to collect of a log."""
        if entry.partition is None:
            return FactOptions(self.is_deep, pseudonyms=self.options.pseudonyms)
        key = entry.partition.topic, entry.partition.partition
        is_segment = entry.name is not None and entry.name.kind is FileKind.LOG
        requested = [row for row in self.options.records if is_segment and (row.topic, row.partition) == key]
        keys = key[0] in INTERNAL_TOPICS or key in self._compacted
        keys = keys or (self.options.compacted is not None and fnmatchcase(key[0], self.options.compacted))
        return FactOptions(self.is_deep, tuple((row.start, row.end) for row in requested), keys, self.options.pseudonyms)

    def _compacted_partitions(self) -> set[TopicPartition]:
        """The compacted partitions, by the cleaner's checkpoints and the controller's log. Internal topics always are."""
        inputs = self._gather(CLUSTER_METADATA_TOPIC)
        files = [log_dir.checkpoints.get(CLEANER_FILE) for log_dir in inputs.log_dirs]
        cleaned = {key for file in files if file is not None for key in file.offsets}
        evidence = read_controller(inputs)
        controls = {} if evidence is None else evidence.history.partitions
        return cleaned | {key for key, control in controls.items() if control.was_compacted}

    def transaction_partitions(self) -> int:
        """The number of partitions of the transaction coordinators' log, by the transactional ids in it and their partitions, which
        pseudonyms do not show; 0 without pseudonyms."""
        if self.options.pseudonyms is None:
            return 0
        log, _ = read_transaction_log(self._gather(TRANSACTION_STATE_TOPIC))
        return 0 if log is None else max((*log.partitions, *log.missing), default=-1) + 1

    def _gather(self, topic: str) -> Inputs:
        inputs = gather(self._paths, replace(self.options.scan, topic_glob=topic, partition=None, broker=None), elsewhere=True)
        bypass_page_cache(inputs.sources, self._cache)
        return inputs


class _Collecting:
    def __init__(self, inputs: _CollectInputs, output: BinaryIO, progress: Progress) -> None:
        self._inputs, self._options, self._tree, self._names = inputs, inputs.options, inputs.tree, inputs.names
        self._pseudonyms = inputs.options.pseudonyms
        self._check_records()
        self._progress = progress
        self.collected = Collected(bytes_in_all=inputs.size_in_bytes, is_deep=inputs.is_deep)
        compile_as_needed(inputs.size_in_bytes)
        self._bytes_done = 0
        self._limiter = RateLimiter(self._options.max_rate)
        self._writer = BundleWriter(output, self._about())

    def run(self) -> Collected:
        """Collect every file."""
        for entry in self._tree.entries():
            if self._may_be_kept(entry) and self._writer.keep_file(
                entry.path,
                lambda row: row[1:4] == _stamp(entry) and row[_LEFT_OUT] == entry.left_out,  # noqa: B023
            ):
                self._count_kept(entry)
                continue
            self._writer.begin_file(entry.path)
            self._writer.end_file(self._add(entry))
        self.collected.incomplete = self._tree.incomplete + self.collected.incomplete
        self._writer.finish(self._tree.directories, {"ended_ms": int(time.time() * 1000)})
        self.collected.bundle_bytes = self._writer.size_in_bytes
        return self.collected

    def _about(self) -> "Json":
        """The description of the bundle; an unfinished bundle is continued only if its description is the same."""
        options, names = self._options, self._names
        return {
            "tool_version": __version__,
            "host": names.text(NameKind.HOST, socket.gethostname()),
            "broker": self._inputs.broker,
            "paths": self._inputs.paths,
            "live": options.scan.live,
            "deep": self.collected.is_deep,
            "hashes": options.hashes,
            "compacted": names.text(NameKind.TOPIC, options.compacted),
            "topics": names.text(NameKind.TOPIC, options.scan.topic_glob),
            "partition": options.scan.partition,
            "records": [[row.topic, row.partition, row.start, row.end] for row in options.records],
            "redaction": None if self._pseudonyms is None else self._pseudonyms.key_name,
            TRANSACTION_PARTITIONS: self._inputs.transaction_partitions(),
            "started_ms": int(time.time() * 1000),
        }

    def _check_records(self) -> None:
        """Raise UsageError if records are requested of an internal topic or of a partition that is not in the inputs."""
        if not self._options.records:
            return
        partitions = [entry.partition for entry in self._tree.entries() if entry.partition is not None]
        keys = {(partition.topic, partition.partition) for partition in partitions}
        for records in self._options.records:
            if records.topic in WITNESS_TOPICS:
                hint = "its records hold credentials and settings; the parts that the analysis uses are always collected"
                raise UsageError(f"records of {records.topic} are not a part of a bundle", hint=hint)
            if (records.topic, records.partition) not in keys:
                hint = "write --with-records TOPIC:PARTITION:A..B, and give the log directory that has the partition"
                raise UsageError(f"there is no partition {records.topic}-{records.partition} to collect records from", hint=hint)

    def _add(self, entry: CollectedEntry) -> list[object]:
        """Add the sections of a file; its row in the listing."""
        left_out, digest, stamp, allocated = entry.left_out, None, _stamp(entry), entry.entry.allocated_bytes
        if self._pseudonyms is not None and left_out is None and (entry.has_names or not entry.is_log):
            stamp[1], allocated = 0, None  # sizes of the original
        if left_out is not None:
            self.collected.left_out += left_out == NOT_KAFKAS
        elif entry.entry.kind is EntryKind.FILE:
            try:
                stamp[1], digest = self._read(entry)
                self.collected.files += 1
            except SourceError as error:
                typed = typed_path(entry.source, entry.entry.path)
                self.collected.incomplete.append(self._names.incomplete(typed, entry.path, error.reason))
                left_out = f"could not be read when it was collected: {self._names.reason(error.reason)}"
        return [entry.path, *stamp, allocated, entry.refused, left_out, entry.is_log, digest]

    def _read(self, entry: CollectedEntry) -> tuple[int, str | None]:
        """Add the sections of a file; its size, which differs from the listed one for a live log, and its SHA-256 if requested.
        Raises SourceError."""
        with entry.source.open(entry.entry.path) as opened:
            file: ByteFile = self._limiter.limited(opened)
            size_in_bytes = file.size_in_bytes
            if entry.is_log:
                self.collected.logs += 1
                batches, size_in_bytes = add_log(entry, file, self._writer, self._inputs.fact_options(entry), self._count_read)
                self.collected.batches += batches
            else:
                file = self._redacted(entry, file)
                size_in_bytes = file.size_in_bytes
                self._add_bytes(entry, file)
            is_hashed = self._options.hashes and not (entry.is_log and self._pseudonyms is not None)
            return size_in_bytes, sha256_of(file) if is_hashed else None

    def _redacted(self, entry: CollectedEntry, file: "ByteFile") -> "ByteFile":
        """A small file with pseudonyms. Raises SourceError."""
        if self._pseudonyms is None or entry.name is None:
            return file
        if entry.has_names and entry.name.kind in INDEXES:
            return BytesFile(b"")  # its entries are positions in a log that is rewritten
        return redacted_file(entry.name.kind, file, self._pseudonyms)

    def _may_be_kept(self, entry: CollectedEntry) -> bool:
        """Whether facts of an unfinished bundle may be kept: with pseudonyms, files with names are read again to fill the map."""
        return self._pseudonyms is None or entry.left_out is not None or (entry.is_log and not entry.has_names)

    def _count_kept(self, entry: CollectedEntry) -> None:
        self.collected.files += entry.left_out is None
        self.collected.logs += entry.is_log
        self.collected.left_out += entry.left_out == NOT_KAFKAS
        if entry.left_out is None:
            self.collected.bytes_kept += entry.entry.size_in_bytes
            self._bytes_done += entry.entry.size_in_bytes
            self._progress(self._bytes_done, self._inputs.size_in_bytes)

    def _add_bytes(self, entry: CollectedEntry, file: "ByteFile") -> None:
        """Add a small file as it is, except the zeros at its end."""
        for start, end in file.data_ranges():
            for position in range(start, end, READ_BYTES):
                data = file.read_at(position, min(READ_BYTES, end - position))
                self._count_read(len(data))
                kept = data if position + len(data) < end else data.rstrip(b"\0")
                if kept:
                    self._writer.add(entry.path, SectionKind.BYTES, position, position + len(kept), kept)

    def _count_read(self, size_in_bytes: int) -> None:
        self._bytes_done += size_in_bytes
        self.collected.bytes_read += size_in_bytes
        self._progress(self._bytes_done, self._inputs.size_in_bytes)


def _stamp(entry: CollectedEntry) -> list[object]:
    """Kind, size and time of a file; a file for which they are unchanged is not read again."""
    return [_KIND_NAMES[entry.entry.kind], entry.entry.size_in_bytes, entry.entry.mtime_ns]


def _broker(opened_path: OpenedPath) -> int | str | None:
    """The broker's name, as the user gave it or by the first `meta.properties`."""
    if opened_path.broker_name is not None:
        return opened_path.broker_name
    for directory in opened_path.discovery.log_directories:
        entry = directory.entries.get(FileKind.META_PROPERTIES)
        if entry is not None:
            try:
                with opened_path.source.open(entry.path) as file:
                    return parse_meta_properties(file).node_id
            except SourceError:
                continue
    return None
