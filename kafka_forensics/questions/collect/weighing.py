"""What logs take in a bundle, batch by batch and in blocks, by the beginnings of some; and which detail fits into a size."""

import heapq
import io
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import cramjam
import numpy as np

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import BLOCK_SHIFT, BatchColumn
from kafka_forensics.model.bundles import Detail
from kafka_forensics.model.constants import CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.parsers.log import read_batches
from kafka_forensics.questions.collect.blocks import NEWEST_BATCHES
from kafka_forensics.questions.collect.log_facts import FactsWanted, may_be_in_blocks, take_log
from kafka_forensics.storage.archives import MemberFile
from kafka_forensics.storage.bundles import LEVEL, SectionKind

if TYPE_CHECKING:
    from kafka_forensics.questions.collect.files import CollectedEntry

LOGS_SAMPLED: Final = 200
"""The largest ones."""
BYTES_SAMPLED: Final = 1 << 20
"""Of each."""
BLOCK_BYTES: Final = 60
"""About what a block takes."""
SECTION_BYTES: Final = 600
"""About what a log in blocks takes beside them: the sections around, and its row in the listing."""


INDEXES_SAMPLED: Final = 200
INDEX_BYTES_SAMPLED: Final = 1 << 16
"""Of each."""


class Weight(NamedTuple):
    """What a log takes in a bundle, with its indexes: bytes batch by batch, and in blocks where these may be made."""

    batches: float
    blocks: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Of logs by the beginnings that were read, for each byte: bytes of a bundle, batches, offsets, and which part of the batches
    stays by itself."""

    facts: float
    batches: float
    offsets: float
    by_itself: float
    packed: float
    """What a byte takes that is taken whole."""

    def weight(self, size_in_bytes: int, *, in_blocks: bool, is_active: bool) -> Weight:
        """What a log of so many bytes takes; `in_blocks`: blocks may be made of it."""
        facts = self.facts * size_in_bytes
        if not in_blocks:
            return Weight(facts, facts)
        newest = min(NEWEST_BATCHES if is_active else 0, self.batches * size_in_bytes)
        of_newest = newest * self.facts / self.batches if self.batches else 0.0
        blocks = BLOCK_BYTES * (1 + self.offsets * size_in_bytes / (1 << BLOCK_SHIFT)) + SECTION_BYTES
        return Weight(facts, min(facts, blocks + of_newest + self.by_itself * facts))


@dataclass(slots=True)
class _Weighing:
    """In the place of a bundle: what its sections would take."""

    buffer: io.BytesIO = field(default_factory=io.BytesIO)
    batches: int = 0
    by_itself: int = 0
    offsets: int = 0

    def add(self, _path: str, kind: SectionKind, _start: int, _end: int, data: bytes) -> None:
        """Weigh a section."""
        self.buffer.write(data)
        if kind is SectionKind.BATCHES:
            columns = read_batches(data).columns
            self.batches += columns.shape[1]
            self.by_itself += int(np.count_nonzero(columns[BatchColumn.ATTRIBUTES] & (CONTROL_MASK | TRANSACTIONAL_MASK)))
            if columns.shape[1]:
                self.offsets += max(int(columns[BatchColumn.LAST_OFFSET, -1] - columns[BatchColumn.BASE_OFFSET, 0]) + 1, 0)

    @property
    def size_in_bytes(self) -> int:
        """What all sections take, compressed."""
        return len(cramjam.zstd.compress(self.buffer.getvalue(), level=LEVEL))


@dataclass(slots=True)
class Weights:
    """What all logs take, by rates of the partitions of which some were read, and of all of these for the others."""

    rates: Mapping[str, Rates]
    """By directory."""
    all: Rates
    seconds: float
    """It took to read what was read,"""
    sampled_bytes: int

    def of(self, entry: "CollectedEntry", wanted: FactsWanted) -> Weight:
        """What a log takes of which this is wanted."""
        in_blocks = may_be_in_blocks(entry, wanted._replace(detail=Detail.BLOCKS))
        rates = self.rates_of(entry)
        return rates.weight(entry.entry.size_in_bytes, in_blocks=in_blocks, is_active=entry.is_active)

    def rates_of(self, entry: "CollectedEntry") -> Rates:
        """The rates of a log's partition."""
        return self.rates.get(entry.path.rpartition("/")[0], self.all)


def weigh(logs: "Iterable[CollectedEntry]", wanted: "Callable[[CollectedEntry], FactsWanted]") -> Weights:
    """Read the beginnings of the largest logs; `wanted` says what is taken of each."""
    largest = heapq.nlargest(LOGS_SAMPLED, logs, key=lambda entry: entry.entry.size_in_bytes)
    started, sampled = time.monotonic(), 0
    sums: dict[str, list[float]] = {}
    every = [0.0] * 6
    for entry in largest:
        size = min(entry.entry.size_in_bytes, BYTES_SAMPLED)
        if not size:
            continue
        weighing = _Weighing()
        try:
            with entry.source.open(entry.entry.path) as file:
                whole = wanted(entry)._replace(detail=Detail.BATCHES, records=())
                take_log(entry, MemberFile(entry.entry.path, size, file, 0), weighing, whole, lambda _: None)
                packed = len(cramjam.zstd.compress(file.read_at(0, size), level=LEVEL))
        except SourceError:
            continue
        sampled += size
        told = size, weighing.size_in_bytes, weighing.batches, weighing.offsets, weighing.by_itself, packed
        heavy = entry.entry.size_in_bytes / size  # a beginning stands for the whole log
        for of_some in (sums.setdefault(entry.path.rpartition("/")[0], [0.0] * 6), every):
            of_some[:] = [before + heavy * more for before, more in zip(of_some, told, strict=True)]
    rates = {directory: _rates(of_some) for directory, of_some in sums.items()}
    return Weights(rates, _rates(every), time.monotonic() - started, sampled)


def _rates(sums: list[float]) -> Rates:
    size, facts, batches, offsets, by_itself, packed = sums
    if not size:
        return Rates(0.0, 0.0, 0.0, 0.0, 1.0)
    return Rates(facts / size, batches / size, offsets / size, by_itself / batches if batches else 0.0, packed / size)


class IndexWeights:
    """What indexes take in a bundle, by the beginnings of some; `add` each of them."""

    def __init__(self) -> None:
        self._sampled = self._packed = self._count = 0
        self._beside: dict[str, int] = {}
        """Bytes of the indexes of a segment, by the path of its log."""
        self._others = 0

    def add(self, entry: "CollectedEntry") -> None:
        """Add an index, of which a part that was never written takes nothing."""
        written = entry.entry.size_in_bytes
        if entry.entry.allocated_bytes is not None:
            written = min(written, entry.entry.allocated_bytes)
        if written and self._count < INDEXES_SAMPLED:
            self._count += 1
            try:
                with entry.source.open(entry.entry.path) as file:
                    data = file.read_at(0, min(written, INDEX_BYTES_SAMPLED, file.size_in_bytes))
            except SourceError:
                data = b""
            self._sampled += len(data)
            self._packed += len(cramjam.zstd.compress(data.rstrip(b"\0"), level=LEVEL))
        if entry.log is None:
            self._others += written
        else:
            self._beside[entry.log.path] = self._beside.get(entry.log.path, 0) + written

    def of(self, log: "CollectedEntry") -> float:
        """What the indexes beside a log take."""
        return self._rate * self._beside.get(log.path, 0)

    @property
    def others(self) -> float:
        """What the indexes take that lie beside no log."""
        return self._rate * self._others

    @property
    def _rate(self) -> float:
        return min(self._packed / self._sampled, 1.0) if self._sampled else 0.0


def chosen(weighed: "Iterable[tuple[CollectedEntry, Weight]]", room: float) -> tuple[dict[str, Detail], float]:
    """The detail of each log, by its path, so that all fit into `room` bytes, and what they take: batch by batch as many as fit,
    the segments that are written to first and then the newest; blocks of the others, which may be more than there is room for."""
    logs = list(weighed)
    taken = sum(weight.blocks for _, weight in logs)
    details = {}
    for entry, weight in sorted(logs, key=lambda log: (not log[0].is_active, -log[0].entry.mtime_ns, log[0].path)):
        more = weight.batches - weight.blocks
        fits = taken + more <= room
        details[entry.path] = Detail.BATCHES if fits else Detail.BLOCKS
        taken += more if fits else 0
    return details, taken
