"""How large a bundle will be, and how long it takes, by the beginnings of some logs."""

import heapq
import io
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import cramjam

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.paths import open_paths
from kafka_forensics.judging.scanning import is_deep
from kafka_forensics.questions.collect.collecting import CollectOptions, compacted_partitions, has_hashed_keys
from kafka_forensics.questions.collect.files import tree_of
from kafka_forensics.questions.collect.log_facts import FactsWanted, take_log
from kafka_forensics.questions.collect.politeness import leave_page_cache
from kafka_forensics.storage.archives import MemberFile
from kafka_forensics.storage.page_cache import PageCache

if TYPE_CHECKING:
    from kafka_forensics.storage.bundles import SectionKind

LOGS_SAMPLED: Final = 200
"""The largest ones."""
BYTES_SAMPLED: Final = 1 << 20
"""Of each."""
EMPTY_BYTES: Final = 4096
"""Of a bundle of nothing: what it says of itself, the seal, and the frames of its members."""
SMALL_FILE_BYTES: Final = 200
"""About what a small file takes, with its row in the listing."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is to be expected, and by how many bytes that is told."""

    files: int
    bytes_in_all: int
    bundle_bytes: int
    seconds: float
    sampled_bytes: int


@dataclass(slots=True)
class _Weighing:
    """In the place of a bundle: what its sections would take."""

    buffer: io.BytesIO = field(default_factory=io.BytesIO)

    def add(self, _path: str, _kind: "SectionKind", _start: int, _end: int, data: bytes) -> None:
        """Weigh a section."""
        self.buffer.write(data)

    @property
    def size_in_bytes(self) -> int:
        """What all sections take, compressed."""
        return len(cramjam.zstd.compress(self.buffer.getvalue(), level=1))


def estimate_of(paths: list[str], options: CollectOptions) -> Estimate:
    """What a bundle of these log directories will be, without what `options.records` adds. Raises UsageError as `collect` does."""
    opened = open_paths(paths, storage_options=options.scan.storage_options)
    cache = PageCache()
    leave_page_cache((opened_path.source for opened_path in opened), cache)
    tree = tree_of(opened, options.scan)
    files, total, logs_count, log_bytes = 0, 0, 0, 0
    for entry in tree.entries():
        if entry.left_out is None:
            files += 1
            total += entry.entry.size_in_bytes
            logs_count += entry.is_log
            log_bytes += entry.entry.size_in_bytes if entry.is_log else 0
    deep = is_deep(options.scan.deep, total)
    logs = (entry for entry in tree.entries() if entry.left_out is None and entry.is_log)
    largest = heapq.nlargest(LOGS_SAMPLED, logs, key=lambda entry: entry.entry.size_in_bytes)
    compacted = compacted_partitions(paths, options.scan, cache)
    started, sampled, facts = time.monotonic(), 0, 0.0
    seen = 0
    for entry in largest:
        size = min(entry.entry.size_in_bytes, BYTES_SAMPLED)
        if not size:
            continue
        weighing = _Weighing()
        try:
            with entry.source.open(entry.entry.path) as file:
                part = MemberFile(entry.entry.path, size, file, 0)
                wanted = FactsWanted(deep, options.digests.key, keys=has_hashed_keys(entry, options, compacted))
                take_log(entry, part, weighing, wanted, lambda _: None)
        except SourceError:
            continue
        sampled += size
        seen += entry.entry.size_in_bytes
        facts += weighing.size_in_bytes * entry.entry.size_in_bytes / size
    bundle = facts * log_bytes / seen if seen else 0.0
    spent = time.monotonic() - started
    seconds = spent * log_bytes / sampled if sampled else 0.0
    if options.max_rate is not None:
        seconds = max(seconds, total / options.max_rate)
    around = EMPTY_BYTES + SMALL_FILE_BYTES * (files - logs_count)
    return Estimate(files, total, int(bundle) + around, seconds, sampled)
