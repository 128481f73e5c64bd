"""Writes one partition's directory from slices of the copies: segments, and the files that a broker derives from them.

The derived files are built from the output, which is read again: this detects copies that changed since the scan.
"""

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.errors import ForensicsError
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import MAX_RELATIVE_OFFSET, MAX_SEGMENT_SIZE
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.parsers.log import BatchChecks, SegmentReader
from kafka_forensics.questions.salvage.copy_and_hash import CopyAndHash, OutputFile, cancel
from kafka_forensics.questions.salvage.lineage import LogLineage
from kafka_forensics.questions.salvage.origins import SegmentOrigin
from kafka_forensics.questions.salvage.rebuilding import IndexBuilder, LeaderEpochBuilder, ProducerStateBuilder
from kafka_forensics.questions.salvage.slices import SegmentSlice
from kafka_forensics.replication.recovery import EPOCHS_FILE, segment_file
from kafka_forensics.storage.copying import WriteProgress, copy_range, write_all
from kafka_forensics.storage.private import FILE_MODE
from kafka_forensics.writers.files import (
    write_leader_epochs,
    write_partition_metadata,
    write_producer_snapshot,
    write_transaction_index,
)

DEFAULT_SEGMENT_BYTES: Final = 1 << 30
"""Kafka's default of `log.segment.bytes`; segments are larger only if those of the copies are."""


class CopyChangedError(ForensicsError):
    """The copied bytes are not those that were scanned."""


class OutputRange(Struct, frozen=True):
    """Bytes of a file of the output and their source: whole batches of the offsets `[offset_start, offset_end)`."""

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
    """Of the bytes in the output; set once these are on disk."""


class WrittenLog(Struct):
    """What was written of a partition."""

    epochs: list[EpochEntry] = field(default_factory=list)
    segments: int = 0
    size_in_bytes: int = 0
    """Of the `.log` files."""
    first_segment: tuple[int, int] = (-1, 0)
    """Its largest timestamp (ms) and its bytes."""
    hashed: list[tuple[list[OutputRange], OutputFile]] = field(default_factory=list)
    """The ranges of each segment, without SHA-256, and the file that gives these."""

    def ranges(self) -> list[OutputRange]:
        """The source of its bytes, once they are on disk. Raises OSError, SourceError."""
        return [
            replace(range_, sha256=digest)
            for ranges, output in self.hashed
            for range_, digest in zip(ranges, output.digests(), strict=True)
        ]


class PartitionSettings(Struct, frozen=True):
    """What a partition's files need and its batches do not have."""

    topic_id: str | None
    index_interval_bytes: int
    deep: bool
    """Whether batches are decompressed and checked when they are read back."""
    epochs: list[EpochEntry] | None = None
    """Epochs of a whole copy, if a cleaner may have removed the first batches of one, or those that start before the segments;
    None: all epochs are in the batches."""
    producers: Sequence[ProducerEntry] = ()
    """Producers at the start of the segments."""


class _OutputSegment(Struct):
    """A segment of the output with the slices it consists of."""

    base_offset: int
    slices: list[SegmentSlice] = field(default_factory=list)
    size_in_bytes: int = 0


def write_partition(
    directory: Path,
    slices: Iterable[SegmentSlice],
    origins: Sequence[SegmentOrigin],
    lineage: LogLineage,
    settings: PartitionSettings,
    copier: CopyAndHash,
) -> WrittenLog:
    """Fill an empty directory with the log of a lineage, in segments like those of its base; the bytes are on disk later.

    Raises CopyChangedError if copies have changed since the scan, SourceError, and OSError if nothing can be written.
    """
    largest = max(DEFAULT_SEGMENT_BYTES, min(max((origin.largest for origin in origins), default=0), MAX_SEGMENT_SIZE))
    end = -1
    writer = _PartitionWriter(directory, origins, settings, copier)
    try:
        for segment in _segments(slices, origins[lineage.base].base_offsets, largest):
            writer.add(segment)
            end = segment.slices[-1].end_offset
        if end < lineage.log_end_offset:
            writer.add(_OutputSegment(lineage.log_end_offset))
        return writer.finish(lineage.log_end_offset)
    finally:
        writer.cancel()


def _segments(slices: Iterable[SegmentSlice], base_offsets: Sequence[int], max_bytes: int) -> Iterator[_OutputSegment]:
    """The slices by segments, which start at `base_offsets`, as those of the base copy do, or with a segment of another copy, or
    where the segment before would become too large."""
    segment: _OutputSegment | None = None
    end = -1
    for part in slices:
        base_offset = None if segment is None else _base_offset(segment.base_offset, part, base_offsets)
        if segment is not None:
            size, delta = segment.size_in_bytes + part.size_in_bytes, part.end_offset - 1 - segment.base_offset
            if base_offset is not None or size > max_bytes or delta > MAX_RELATIVE_OFFSET:
                yield segment
                segment = None
        if segment is None:
            if end < 0:
                base_offset = _base_offset(-1, part, base_offsets)
            segment = _OutputSegment(part.start_offset if base_offset is None or base_offset < end else base_offset)
        segment.slices.append(part)
        segment.size_in_bytes += part.size_in_bytes
        end = part.end_offset
    if segment is not None:
        yield segment


def _base_offset(after: int, part: SegmentSlice, base_offsets: Sequence[int]) -> int | None:
    """The last base offset after an offset and at or before the start of a slice."""
    at = bisect_right(base_offsets, part.start_offset)
    candidates = [*base_offsets[max(at - 1, 0) : at], *([part.segment] if part.byte_start == 0 else [])]
    return max((offset for offset in candidates if after < offset <= part.start_offset), default=None)


class _PartitionWriter:
    """Writes segments; each is read back while the next one is copied."""

    def __init__(self, directory: Path, origins: Sequence[SegmentOrigin], settings: PartitionSettings, copier: CopyAndHash) -> None:
        self._written = WrittenLog()
        self._directory, self._origins, self._settings, self._copier = directory, origins, settings, copier
        self._copying = deque[tuple[_OutputSegment, OutputFile]]()
        self._producers, self._epochs = ProducerStateBuilder(settings.producers), LeaderEpochBuilder()
        self._last_offset = -1

    def add(self, segment: _OutputSegment) -> None:
        """Start to copy a segment, and read back the one before."""
        name, sizes = segment_file(segment.base_offset), [part.size_in_bytes for part in segment.slices]
        copy = partial(self._copy, name, segment.slices)
        self._copying.append((segment, self._copier.start(copy, self._directory / name, sizes)))
        if len(self._copying) > 1:
            self._write_derived()

    def _write_derived(self) -> None:
        """Read the next segment back, and write the files that a broker derives from it."""
        segment, output = self._copying[0]
        written, base_offset, name = self._written, segment.base_offset, segment_file(segment.base_offset)
        if written.segments or self._settings.producers:
            self._write_snapshot(base_offset)
        indexes, aborted = self._read_back(output, name, segment)
        for kind, data in zip(("index", "timeindex"), indexes.finish(), strict=True):
            write_file(self._directory / segment_file(base_offset, kind), data)
        if aborted:
            write_file(self._directory / segment_file(base_offset, "txnindex"), write_transaction_index(aborted))
        if not written.segments:
            written.first_segment = indexes.largest_timestamp, segment.size_in_bytes
        written.segments += 1
        written.size_in_bytes += segment.size_in_bytes
        written.hashed.append((list(self._ranges(name, segment.slices)), output))
        self._copying.popleft()

    def finish(self, log_end_offset: int) -> WrittenLog:
        """Write the files that a partition has once; what was written in all."""
        while self._copying:
            self._write_derived()
        if not (self._directory / segment_file(log_end_offset, "snapshot")).exists():
            self._write_snapshot(log_end_offset)
        self._written.epochs = _earliest([*(self._settings.epochs or ()), *self._epochs.entries])
        write_file(self._directory / EPOCHS_FILE, write_leader_epochs(self._written.epochs))
        if self._settings.topic_id is not None:
            write_file(self._directory / "partition.metadata", write_partition_metadata(self._settings.topic_id))
        return self._written

    def cancel(self) -> None:
        """Return when no segment is copied any more."""
        cancel([output for _, output in self._copying])

    def _write_snapshot(self, offset: int) -> None:
        write_file(self._directory / segment_file(offset, "snapshot"), write_producer_snapshot(self._producers.entries()))

    def _copy(self, name: str, slices: Sequence[SegmentSlice], growth: WriteProgress) -> None:
        with new_file(self._directory / name) as descriptor:
            growth.begin()
            for part in slices:
                origin = self._origins[part.copy]
                with origin.open(part.segment) as file:
                    copy_range(file, origin.name(part.segment), part.byte_start, part.byte_end, descriptor, growth.grow)

    def _read_back(self, output: OutputFile, name: str, segment: _OutputSegment) -> tuple[IndexBuilder, list[AbortedTxn]]:
        """Read a segment and compare it with its slices; its indexes, and the transactions aborted in it."""
        indexes, aborted = IndexBuilder(segment.base_offset, self._settings.index_interval_bytes), list[AbortedTxn]()
        starts = np.array([part.start_offset for part in segment.slices], np.int64)
        found = 0
        with output.open() as file:
            for chunk in SegmentReader(file, inspect=BatchChecks(deep=self._settings.deep)).chunks():
                columns = chunk.columns
                if chunk.damage:
                    raise CopyChangedError(
                        f"{name} has damage at byte {chunk.damage[0].position} that the scan did not find in the copies"
                    )
                if not columns.shape[1]:
                    continue
                base, last = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
                if int(base[0]) <= self._last_offset or bool((base[1:] <= last[:-1]).any()) or int(base[0]) < segment.base_offset:
                    raise CopyChangedError(f"{name} has decreasing offsets, which the scan did not find in the copies")
                expected = starts[found : np.searchsorted(starts, base[-1], side="right")]
                if (base[np.searchsorted(base, expected)] != expected).any():
                    raise CopyChangedError(f"{name} has other batches than the scan found in the copies")
                found += expected.size
                self._last_offset = int(last[-1])
                indexes.step(columns)
                aborted += self._producers.step(columns)
                self._epochs.step(columns)
        if found < starts.size or (starts.size and self._last_offset + 1 != segment.slices[-1].end_offset):
            raise CopyChangedError(f"{name} has other batches than the scan found in the copies")
        if self._epochs.falls:
            raise CopyChangedError(f"leader epochs decrease in {name}: it does not belong to one lineage")
        return indexes, aborted

    def _ranges(self, name: str, slices: Sequence[SegmentSlice]) -> Iterator[OutputRange]:
        position = 0
        for part in slices:
            origin = self._origins[part.copy]
            yield OutputRange(
                f"{self._directory.name}/{name}",
                position,
                position + part.size_in_bytes,
                part.start_offset,
                part.end_offset,
                origin.broker,
                origin.log_dir,
                origin.name(part.segment),
                part.byte_start,
                part.byte_end,
                part.why,
            )
            position += part.size_in_bytes


@contextmanager
def new_file(path: Path) -> Iterator[int]:
    """The descriptor of a new file in a `with` block. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Write a new file. Raises OSError."""
    with new_file(path) as descriptor:
        write_all(descriptor, data)


def _earliest(entries: Iterable[EpochEntry]) -> list[EpochEntry]:
    """Each epoch with its lowest start: on a replica that copied a cleaned log, an epoch starts with its first remaining batch."""
    starts: dict[int, int] = {}
    for entry in entries:
        starts[entry.leader_epoch] = min(entry.start_offset, starts.get(entry.leader_epoch, entry.start_offset))
    return [EpochEntry(*item) for item in sorted(starts.items())]
