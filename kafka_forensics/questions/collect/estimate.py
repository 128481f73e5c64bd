"""How large a bundle will be, and how long it takes, by the beginnings of some files."""

import heapq
import io
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import cramjam

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.log import read_batches
from kafka_forensics.parsers.log_dir import FileKind, max_plausible_offset
from kafka_forensics.questions.collect.log_facts import FactsWanted, take_log
from kafka_forensics.storage.archives import MemberFile
from kafka_forensics.storage.bundles import LEVEL, SectionKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_forensics.questions.collect.files import CollectedEntry, Tree

LOGS_SAMPLED: Final = 200
"""The largest ones."""
BYTES_SAMPLED: Final = 1 << 20
"""Of each."""
INDEXES_SAMPLED: Final = 200
INDEX_BYTES_SAMPLED: Final = 1 << 16
"""Of each."""
EMPTY_BYTES: Final = 4096
"""Of a bundle of nothing: what it says of itself, the seal, and the frames of its members."""
SMALL_FILE_BYTES: Final = 200
"""About what a small file takes, with its row in the listing."""
INDEXES: Final = (FileKind.INDEX, FileKind.TIME_INDEX)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is to be expected, and by how many bytes that is told."""

    files: int
    bytes_in_all: int
    bundle_bytes: int
    seconds: float
    sampled_bytes: int


def estimated(tree: "Tree", wanted: "Callable[[CollectedEntry], FactsWanted]", max_rate: int | None) -> Estimate:
    """Estimate the bundle of a tree, of whose logs this is `wanted`; reading `max_rate` bytes a second at most."""
    files, total, log_bytes = 0, 0, 0
    indexes, size = _Indexes(), float(EMPTY_BYTES)
    for entry in tree.entries():
        if entry.left_out is not None:
            continue
        files += 1
        total += entry.entry.size_in_bytes
        if entry.is_log:
            log_bytes += entry.entry.size_in_bytes
            size += _records(entry, wanted(entry))
        else:
            size += SMALL_FILE_BYTES
            if entry.name is not None and entry.name.kind in INDEXES:
                indexes.add(entry)
    logs = (entry for entry in tree.entries() if entry.left_out is None and entry.is_log)
    started, sampled, seen, facts = time.monotonic(), 0, 0, 0.0
    for entry in heapq.nlargest(LOGS_SAMPLED, logs, key=lambda entry: entry.entry.size_in_bytes):
        sample = _sample(entry, wanted(entry))
        if sample is not None:
            sampled += sample.bytes_read
            seen += entry.entry.size_in_bytes
            facts += sample.facts_bytes * entry.entry.size_in_bytes / sample.bytes_read  # a beginning stands for the whole log
    seconds = (time.monotonic() - started) * log_bytes / sampled if sampled else 0.0
    seconds = seconds if max_rate is None else max(seconds, total / max_rate)
    size += indexes.size_in_bytes + (facts * log_bytes / seen if seen else 0.0)
    return Estimate(files, total, int(size), seconds, sampled)


@dataclass(slots=True)
class _Sample:
    """In the place of a bundle: what the facts of the beginning of a log would take."""

    bytes_read: int
    buffer: io.BytesIO = field(default_factory=io.BytesIO)
    offsets: int = 0

    def add(self, _path: str, kind: SectionKind, _start: int, _end: int, data: bytes) -> None:
        """Add a section."""
        self.buffer.write(data)
        if kind is SectionKind.BATCHES and (columns := read_batches(data).columns).shape[1]:
            self.offsets += max(int(columns[BatchColumn.LAST_OFFSET, -1] - columns[BatchColumn.BASE_OFFSET, 0]) + 1, 0)

    @property
    def facts_bytes(self) -> int:
        """What all sections take, compressed."""
        return _packed(self.buffer.getvalue())


def _packed(data: bytes) -> int:
    return len(cramjam.zstd.compress(data, level=LEVEL))


def _sample(entry: "CollectedEntry", wanted: FactsWanted) -> _Sample | None:
    """The facts of the beginning of a log, without records; None of one that is empty or cannot be read."""
    sample = _Sample(min(entry.entry.size_in_bytes, BYTES_SAMPLED))
    if not sample.bytes_read:
        return None
    try:
        with entry.source.open(entry.entry.path) as file:
            beginning = MemberFile(entry.entry.path, sample.bytes_read, file, 0)
            take_log(entry, beginning, sample, wanted._replace(records=()), lambda _: None)
    except SourceError:
        return None
    return sample


def _records(entry: "CollectedEntry", wanted: FactsWanted) -> float:
    """What the batches take that are asked for whole, by how many of the log's offsets these are."""
    if not wanted.records or entry.name is None or entry.name.offset is None or (sample := _sample(entry, wanted)) is None:
        return 0.0
    try:
        with entry.source.open(entry.entry.path) as file:
            packed = _packed(file.read_at(0, sample.bytes_read)) / sample.bytes_read
    except SourceError:
        return 0.0
    start, size = entry.name.offset, entry.entry.size_in_bytes
    reach = start + sample.offsets * size // sample.bytes_read if entry.next_base_offset is None else entry.next_base_offset
    end = min(max_plausible_offset(start, entry.next_base_offset), reach)
    offsets = sum(max(min(end, until) - max(start, first), 0) for first, until in wanted.records)
    return packed * size * offsets / max(end - start, 1)


class _Indexes:
    """What indexes take in a bundle, by the beginnings of some; `add` each of them."""

    def __init__(self) -> None:
        self._written = self._sampled = self._packed = self._count = 0

    def add(self, entry: "CollectedEntry") -> None:
        """Add an index, of which a part that was never written takes nothing."""
        written = entry.entry.size_in_bytes
        if entry.entry.allocated_bytes is not None:
            written = min(written, entry.entry.allocated_bytes)
        self._written += written
        if written and self._count < INDEXES_SAMPLED:
            self._count += 1
            try:
                with entry.source.open(entry.entry.path) as file:
                    data = file.read_at(0, min(written, INDEX_BYTES_SAMPLED, file.size_in_bytes))
            except SourceError:
                return
            self._sampled += len(data)
            self._packed += _packed(data.rstrip(b"\0"))

    @property
    def size_in_bytes(self) -> float:
        """What they take, compressed."""
        return self._written * min(self._packed / self._sampled, 1.0) if self._sampled else 0.0
