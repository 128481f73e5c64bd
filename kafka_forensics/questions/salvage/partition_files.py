"""One partition's directory, written from slices of the copies: segments, and beside them what a broker derives from these.

All that is derived comes from the copies of the bytes, read back: what is wrong there shows before anybody starts on it.
"""

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from kafka_forensics.errors import ForensicsError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import MAX_RELATIVE_OFFSET, MAX_SEGMENT_SIZE
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.parsers.log import SegmentReader, inspector
from kafka_forensics.questions.salvage.lineage import Lineage
from kafka_forensics.questions.salvage.rebuilding import EpochReplay, ProducerReplay, SegmentIndexes
from kafka_forensics.questions.salvage.sealing import Copied, Sealing, drop
from kafka_forensics.questions.salvage.slices import Slice
from kafka_forensics.replication.recovery import EPOCHS_FILE, segment_file
from kafka_forensics.storage.copying import Growth, copy_range, write_all
from kafka_forensics.storage.private import FILE_MODE
from kafka_forensics.writers.files import (
    write_leader_epochs,
    write_partition_metadata,
    write_producer_snapshot,
    write_transaction_index,
)

USUAL_SEGMENT_BYTES: Final = 1 << 30
"""`log.segment.bytes` as Kafka has it; segments become larger only where the copies' are."""
_AHEAD: Final = 1
"""Segments that may be copied while one is read back."""


class CopyChangedError(ForensicsError):
    """The bytes that were copied are not those that were scanned."""


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of a file of the output, and whence they came: whole batches of the offsets `[offset_start, offset_end)`."""

    file: str
    byte_start: int
    byte_end: int
    offset_start: int
    offset_end: int
    broker: int | str
    log_dir: str
    source_file: str
    source_byte_start: int
    source_byte_end: int
    why: str
    sha256: str = ""
    """Of the bytes as they stand in the output; known once these are on disk."""


@dataclass(slots=True)
class Written:
    """What was written of a partition."""

    epochs: list[EpochEntry] = field(default_factory=list)
    segments: int = 0
    size_in_bytes: int = 0
    """Of the `.log` files."""
    first_segment: tuple[int, int] = (-1, 0)
    """Its largest timestamp and its bytes."""
    sealed: list[tuple[list[Range], Copied]] = field(default_factory=list)
    """Of each segment its ranges, still without their SHA-256, and where these will be."""

    def ranges(self) -> list[Range]:
        """Whence its bytes came, once they are on disk. Raises OSError, SourceError."""
        return [
            replace(taken, sha256=digest)
            for ranges, copied in self.sealed
            for taken, digest in zip(ranges, copied.digests(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """What a partition's files need that is in none of its batches."""

    topic_id: str | None
    index_interval_bytes: int
    deep: bool
    """Whether batches are opened when they are read back."""
    epochs: list[EpochEntry] | None = None
    """Of a copy taken whole, where a cleaner may have taken the first batches of an epoch; those that begin before the segments;
    None: as the batches show them."""
    producers: Sequence[ProducerEntry] = ()
    """Known where the segments begin."""


@dataclass(slots=True)
class _Segment:
    """A segment of the output that is being filled."""

    base_offset: int
    slices: list[Slice] = field(default_factory=list)
    size_in_bytes: int = 0


def write_partition(
    directory: Path,
    slices: Iterable[Slice],
    plans: Sequence[ReplicaPlan],
    lineage: Lineage,
    settings: "PartitionSettings",
    sealing: Sealing,
) -> Written:
    """Fill an empty directory with the log of a lineage, in segments as its base has them, which `sealing` puts on disk by and by.

    Raises CopyChangedError where copies have changed since they were scanned, SourceError, OSError where nothing can be written.
    """
    sizes = [log.entry.size_in_bytes for plan in plans for log in plan.directory.logs()]
    largest = min(max(sizes, default=0), MAX_SEGMENT_SIZE)
    edges = [segment.base_offset for segment in plans[lineage.base].directory.segments]
    end = -1
    writer = _Writer(directory, plans, settings, sealing)
    try:
        for segment in _segments(slices, edges, max(USUAL_SEGMENT_BYTES, largest)):
            writer.add(segment)
            end = segment.slices[-1].end_offset
        if end < lineage.log_end_offset:
            writer.add(_Segment(lineage.log_end_offset))
        return writer.finish(lineage.log_end_offset, settings)
    finally:
        writer.drop()


def _segments(slices: Iterable[Slice], edges: Sequence[int], most: int) -> Iterator[_Segment]:
    """The slices by segments: those that begin at `edges`, as the base copy's do, or with a segment of another copy; and one more
    where one would become too large."""
    segment: _Segment | None = None
    end = -1
    for part in slices:
        edge = None if segment is None else _edge(segment.base_offset, part, edges)
        if segment is not None:
            size, reach = segment.size_in_bytes + part.size_in_bytes, part.end_offset - 1 - segment.base_offset
            if edge is not None or size > most or reach > MAX_RELATIVE_OFFSET:
                yield segment
                segment = None
        if segment is None:
            first = _edge(-1, part, edges) if edge is None and end < 0 else edge
            segment = _Segment(part.start_offset if first is None or first < end else first)
        segment.slices.append(part)
        segment.size_in_bytes += part.size_in_bytes
        end = part.end_offset
    if segment is not None:
        yield segment


def _edge(behind: int, part: Slice, edges: Sequence[int]) -> int | None:
    """The last edge between segments behind an offset and not behind the start of a slice."""
    own = [part.segment] if part.byte_start == 0 else []
    at = bisect_right(edges, part.start_offset)
    return max((edge for edge in (*edges[max(at - 1, 0) : at], *own) if behind < edge <= part.start_offset), default=None)


class _Writer:
    """Writes segment after segment: each is read back as it is copied, and the next is copied meanwhile."""

    def __init__(self, directory: Path, plans: Sequence[ReplicaPlan], settings: PartitionSettings, sealing: Sealing) -> None:
        self._written = Written()
        self._directory, self._plans, self._settings = directory, plans, settings
        self._sealing, self._copied = sealing, deque[tuple[_Segment, Copied]]()
        self._producers, self._epochs = ProducerReplay(settings.producers), EpochReplay()
        self._end = -1

    def add(self, segment: _Segment) -> None:
        """Write a segment."""
        name, sizes = segment_file(segment.base_offset), [part.size_in_bytes for part in segment.slices]
        copy = partial(self._copy, name, segment.slices)
        self._copied.append((segment, self._sealing.copied(copy, self._directory / name, sizes)))
        while len(self._copied) > _AHEAD:
            self._derive()

    def _derive(self) -> None:
        """Write what a broker derives from the next segment."""
        segment, copied = self._copied[0]
        written, name = self._written, segment_file(segment.base_offset)
        if written.segments or self._settings.producers:
            self._write_snapshot(segment.base_offset)
        indexes, aborted = self._walk(copied, name, segment)
        for kind, data in zip(("index", "timeindex"), indexes.finish(), strict=True):
            self._write(segment_file(segment.base_offset, kind), data)
        if aborted:
            self._write(segment_file(segment.base_offset, "txnindex"), write_transaction_index(aborted))
        if not written.segments:
            written.first_segment = indexes.largest_timestamp, segment.size_in_bytes
        written.segments += 1
        written.size_in_bytes += segment.size_in_bytes
        written.sealed.append((list(self._ranges(name, segment.slices)), copied))
        self._copied.popleft()

    def finish(self, log_end_offset: int, settings: PartitionSettings) -> Written:
        """Write what a partition has once; all that was written."""
        while self._copied:
            self._derive()
        snapshot = segment_file(log_end_offset, "snapshot")
        if not (self._directory / snapshot).exists():
            self._write_snapshot(log_end_offset)
        written = self._written
        written.epochs = _earliest([*(settings.epochs or ()), *self._epochs.entries])
        self._write(EPOCHS_FILE, write_leader_epochs(written.epochs))
        if settings.topic_id is not None:
            self._write("partition.metadata", write_partition_metadata(settings.topic_id))
        return written

    def drop(self) -> None:
        """Return when no segment is copied any more: those that are not read back yet are not wanted."""
        drop([copied for _, copied in self._copied])

    def _write_snapshot(self, offset: int) -> None:
        self._write(segment_file(offset, "snapshot"), write_producer_snapshot(self._producers.entries()))

    def _copy(self, name: str, slices: Sequence[Slice], growth: Growth) -> None:
        with new_file(self._directory / name) as descriptor:
            growth.begin()
            for part in slices:
                plan = self._plans[part.copy]
                segment = plan.directory.segment(part.segment)
                assert segment is not None
                assert segment.log is not None
                with plan.log_dir.source.open(segment.log.path) as file:
                    copy_range(file, segment.log.path, part.byte_start, part.byte_end, descriptor, growth.grow)

    def _walk(self, copied: Copied, name: str, segment: _Segment) -> tuple[SegmentIndexes, list[AbortedTxn]]:
        """Read a segment back: its indexes, and the transactions aborted in it."""
        indexes, aborted = SegmentIndexes(segment.base_offset, self._settings.index_interval_bytes), list[AbortedTxn]()
        starts = np.array([part.start_offset for part in segment.slices], np.int64)
        met = 0
        with copied.open() as file:
            for chunk in SegmentReader(file, inspect=inspector(deep=self._settings.deep)).chunks():
                columns = chunk.columns
                if chunk.damage:
                    raise CopyChangedError(f"{name} has damage at byte {chunk.damage[0].position} that no scan saw in the copies")
                if not columns.shape[1]:
                    continue
                base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
                before = self._end
                if int(base[0]) <= before or bool((base[1:] <= last[:-1]).any()) or int(base[0]) < segment.base_offset:
                    raise CopyChangedError(f"{name} has offsets that fall, which no scan saw in the copies")
                due = starts[met : np.searchsorted(starts, base[-1], side="right")]
                if (base[np.searchsorted(base, due)] != due).any():
                    raise CopyChangedError(f"{name} has other batches than a scan saw in the copies")
                met += due.size
                self._end = int(last[-1])
                indexes.step(columns)
                aborted += self._producers.step(columns)
                self._epochs.step(columns)
        if met < starts.size or (starts.size and self._end + 1 != segment.slices[-1].end_offset):
            raise CopyChangedError(f"{name} has other batches than a scan saw in the copies")
        if self._epochs.falls:
            raise CopyChangedError(f"leader epochs fall in {name}: it is not of one lineage")
        return indexes, aborted

    def _ranges(self, name: str, slices: Sequence[Slice]) -> Iterator[Range]:
        """Whence the bytes of a segment come."""
        position = 0
        for part in slices:
            context = self._plans[part.copy].context
            yield Range(
                f"{context.topic}-{context.partition}/{name}",
                position,
                position + part.size_in_bytes,
                part.start_offset,
                part.end_offset,
                context.broker,
                context.log_dir,
                f"{context.directory}/{segment_file(part.segment)}",
                part.byte_start,
                part.byte_end,
                part.why,
            )
            position += part.size_in_bytes

    def _write(self, name: str, data: bytes) -> None:
        write_file(self._directory / name, data)


@contextmanager
def new_file(path: Path) -> Iterator[int]:
    """A new file's descriptor, for the length of a `with` block. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """A new file. Raises OSError."""
    with new_file(path) as descriptor:
        write_all(descriptor, data)


def _earliest(entries: Iterable[EpochEntry]) -> list[EpochEntry]:
    """Each epoch with the lowest of its starts: a replica that began anew from a cleaned log has it begin with its first batch."""
    starts: dict[int, int] = {}
    for entry in entries:
        starts[entry.leader_epoch] = min(entry.start_offset, starts.get(entry.leader_epoch, entry.start_offset))
    return [EpochEntry(*item) for item in sorted(starts.items())]
