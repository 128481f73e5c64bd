"""Estimates the size of a bundle and the time to make it, from the start of some files."""

import heapq
import io
import time
from typing import TYPE_CHECKING, Final

import cramjam
from msgspec import Struct, field

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.log import read_batches
from kafka_forensics.parsers.log_dir import FileKind, max_plausible_offset
from kafka_forensics.questions.collect.log_facts import FactOptions, add_log
from kafka_forensics.storage.archives import MemberFile
from kafka_forensics.storage.bundles import LEVEL, SectionKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_forensics.questions.collect.files import CollectedEntry, FileTree

LOGS_SAMPLED: Final = 200
"""The largest ones."""
LOG_SAMPLE_BYTES: Final = 1 << 20
INDEXES_SAMPLED: Final = 200
INDEX_SAMPLE_BYTES: Final = 1 << 16
EMPTY_BYTES: Final = 4096
"""About the size of an empty bundle: its description, checksums and member headers."""
SMALL_FILE_BYTES: Final = 200
"""About what a small file takes, with its row in the listing."""
INDEXES: Final = (FileKind.INDEX, FileKind.TIME_INDEX)


class Estimate(Struct, frozen=True):
    """The expected size and time, and the bytes that were read for it."""

    files: int
    bytes_in_all: int
    bundle_bytes: int
    seconds: float
    sampled_bytes: int


def estimate_bundle(tree: "FileTree", options: "Callable[[CollectedEntry], FactOptions]", max_rate: int | None) -> Estimate:
    """Estimate the bundle of a tree, with `options` for each log, read at no more than `max_rate` bytes per second."""
    files, total, log_bytes = 0, 0, 0
    indexes, size = _IndexSizes(), float(EMPTY_BYTES)
    for entry in tree.entries():
        if entry.left_out is not None:
            continue
        files += 1
        total += entry.entry.size_in_bytes
        if entry.is_log:
            log_bytes += entry.entry.size_in_bytes
            size += _record_bytes(entry, options(entry))
        else:
            size += SMALL_FILE_BYTES
            if entry.name is not None and entry.name.kind in INDEXES:
                indexes.add(entry)
    logs = (entry for entry in tree.entries() if entry.left_out is None and entry.is_log)
    started, sampled, represented, facts = time.monotonic(), 0, 0, 0.0
    for entry in heapq.nlargest(LOGS_SAMPLED, logs, key=lambda entry: entry.entry.size_in_bytes):
        sample = _sample(entry, options(entry))
        if sample is not None:
            sampled += sample.bytes_read
            represented += entry.entry.size_in_bytes
            facts += _compressed_size(sample.buffer.getvalue()) * entry.entry.size_in_bytes / sample.bytes_read
    seconds = (time.monotonic() - started) * log_bytes / sampled if sampled else 0.0
    seconds = seconds if max_rate is None else max(seconds, total / max_rate)
    size += indexes.size_in_bytes + (facts * log_bytes / represented if represented else 0.0)
    return Estimate(files, total, int(size), seconds, sampled)


class _LogSample(Struct):
    """Takes the sections of the start of a log instead of a bundle."""

    bytes_read: int
    buffer: io.BytesIO = field(default_factory=io.BytesIO)
    offsets: int = 0

    def add(self, _path: str, kind: SectionKind, _start: int, _end: int, data: bytes) -> None:
        self.buffer.write(data)
        if kind is SectionKind.BATCHES and (columns := read_batches(data).columns).shape[1]:
            self.offsets += max(int(columns[BatchColumn.LAST_OFFSET, -1] - columns[BatchColumn.BASE_OFFSET, 0]) + 1, 0)


def _compressed_size(data: bytes) -> int:
    return len(cramjam.zstd.compress(data, level=LEVEL))


def _sample(entry: "CollectedEntry", options: FactOptions) -> _LogSample | None:
    """The facts of the start of a log, without records; None if it is empty or cannot be read."""
    sample = _LogSample(min(entry.entry.size_in_bytes, LOG_SAMPLE_BYTES))
    if not sample.bytes_read:
        return None
    try:
        with entry.source.open(entry.entry.path) as file:
            start = MemberFile(entry.entry.path, sample.bytes_read, file, 0)
            add_log(entry, start, sample, options._replace(records=()), lambda _: None)
    except SourceError:
        return None
    return sample


def _record_bytes(entry: "CollectedEntry", options: FactOptions) -> float:
    """The compressed size of the batches that are collected whole, in proportion to their offsets in the log."""
    if not options.records or entry.name is None or entry.name.offset is None or (sample := _sample(entry, options)) is None:
        return 0.0
    try:
        with entry.source.open(entry.entry.path) as file:
            ratio = _compressed_size(file.read_at(0, sample.bytes_read)) / sample.bytes_read
    except SourceError:
        return 0.0
    start, size = entry.name.offset, entry.entry.size_in_bytes
    sampled_end = start + sample.offsets * size // sample.bytes_read if entry.next_base_offset is None else entry.next_base_offset
    end = min(max_plausible_offset(start, entry.next_base_offset), sampled_end)
    offsets = sum(max(min(end, records_end) - max(start, records_start), 0) for records_start, records_end in options.records)
    return ratio * size * offsets / max(end - start, 1)


class _IndexSizes:
    """The compressed size of all indexes, by the start of some."""

    def __init__(self) -> None:
        self._written = self._sampled = self._compressed = self._count = 0

    def add(self, entry: "CollectedEntry") -> None:
        """Add an index; its preallocated part takes no space in the bundle."""
        written = entry.entry.size_in_bytes
        if entry.entry.allocated_bytes is not None:
            written = min(written, entry.entry.allocated_bytes)
        self._written += written
        if written and self._count < INDEXES_SAMPLED:
            self._count += 1
            try:
                with entry.source.open(entry.entry.path) as file:
                    data = file.read_at(0, min(written, INDEX_SAMPLE_BYTES, file.size_in_bytes))
            except SourceError:
                return
            self._sampled += len(data)
            self._compressed += _compressed_size(data.rstrip(b"\0"))

    @property
    def size_in_bytes(self) -> float:
        return self._written * min(self._compressed / self._sampled, 1.0) if self._sampled else 0.0
