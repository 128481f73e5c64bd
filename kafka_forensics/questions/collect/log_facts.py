"""The facts of one log, section by section, as a bundle takes them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import CONTROL_MASK, CURRENT_MAGIC, LOG_OVERHEAD, WITNESS_TOPICS
from kafka_forensics.model.pseudonyms import Pseudonyms
from kafka_forensics.parsers.internal_topics import is_no_op_batch
from kafka_forensics.parsers.log import (
    ContentDigests,
    SegmentHashes,
    SegmentReader,
    StrongHasher,
    check_batch_in_file,
    inspector,
)
from kafka_forensics.parsers.log_dir import max_plausible_offset
from kafka_forensics.questions.collect.redacted_logs import FRAME, MOST_LENGTH, redacted_log, right_batches
from kafka_forensics.storage.bundles import MAX_SECTION_BYTES, Frame, SectionKind, write_frames, write_held
from kafka_forensics.writers.bundle_columns import write_batches
from kafka_forensics.writers.record_hashes import write_record_hashes
from kafka_forensics.writers.witness_batches import is_marker, witness_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.questions.collect.files import CollectedEntry
    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]

SECTION_BYTES: Final = 1 << 20
MOST_WHOLE_BYTES: Final = MAX_SECTION_BYTES - 64
"""A batch of more bytes is not taken whole."""
CONTROL_BYTES: Final = 4096
"""A control batch of more bytes is no marker, whatever it says."""
_CRC: Final = slice(17, 21)
"""Where a batch has its CRC."""
_CRCS: Final = frozenset({"stored_crc", "computed_crc"})
HASHED_BATCHES: Final = 256
"""Of which records are hashed before they are packed."""
HASHED_RECORDS: Final = 1 << 16
"""Hashes that are held before they are packed, but for those of one batch."""


class TakesSections(Protocol):
    """What sections are added to."""

    def add(self, path: str, kind: SectionKind, start: int, end: int, data: bytes, /) -> None:
        """Add a section of the file at `path`, of its bytes `[start, end)`."""


class FactsWanted(NamedTuple):
    """What is taken of every log: whether each batch is opened, and which offsets' batches are taken whole."""

    deep: bool
    records: tuple[tuple[int, int], ...] = ()
    """Of this log: [start, end) each."""
    keys: bool = False
    """Whether keys and values are hashed."""
    pseudonyms: Pseudonyms | None = None
    """What stands for names; the key of digests comes of it."""


def take_log(
    entry: "CollectedEntry", file: "ByteFile", writer: TakesSections, wanted: FactsWanted, passed: Callable[[int], None]
) -> tuple[int, int]:
    """Add the sections of a log, or of its redacted one where pseudonyms stand for names in it; how many batches it has, and its
    size, which of one that is cut off meanwhile is less than when it was opened. Raises SourceError where it cannot be read
    further."""
    end_offset = max_plausible_offset((entry.name and entry.name.offset) or 0, entry.next_base_offset)
    topic = "" if entry.partition is None else entry.partition.topic
    parts: Iterable[ByteFile] = [file]
    if wanted.pseudonyms is not None and entry.has_names:
        parts = redacted_log(file, topic, end_offset, wanted.pseudonyms, passed)
    checks = _Checks(wanted)
    start, batches = 0, 0
    for part in parts:
        reader = SegmentReader(part, max_plausible_offset=end_offset, inspect=checks, inspect_alone=checks.alone)
        for chunk in reader.chunks(start):
            end = start + chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped
            if end == start:
                continue
            columns, damage = chunk.columns, checks.mark_inside(chunk.damage)
            frames = [_frame(part, found.position) for found, inside in damage if not inside]
            if wanted.pseudonyms is not None:
                damage, frames = _without_impossible_numbers(damage, frames, part.size_in_bytes, end_offset)
                columns, damage = _with_hidden_crcs(columns, damage, wanted.pseudonyms.digests_key())
            facts = _ChunkFacts(start, end, columns, checks.written(columns), damage, frames)
            _add_held(entry, part, writer, facts, wanted)
            _add(entry, writer, checks, facts)
            batches += chunk.rows
            if part is file:
                passed(end - start)
            start = end
    return batches, start


class _ChunkFacts(NamedTuple):
    """What a bundle has of bytes `[start, end)` of a log."""

    start: int
    end: int
    columns: "Ints"
    written: "Ints"
    damage: list[tuple[Damage, bool]]
    frames: list[Frame]


def _add(entry: "CollectedEntry", writer: TakesSections, checks: "_Checks", facts: _ChunkFacts) -> None:
    """Add the facts of a chunk, but for the batches that are held."""
    start, end, columns = facts.start, facts.end, facts.columns
    if facts.frames:
        writer.add(entry.path, SectionKind.FRAMES, start, end, write_frames(facts.frames))
    for block in checks.hashed():
        writer.add(entry.path, SectionKind.KEYS, start, end, block)
    # last, so that of a bundle that was cut short batches are known only with all that belongs to them
    section = write_batches(columns, facts.damage, written=facts.written, digests=checks.digests.take(columns))
    writer.add(entry.path, SectionKind.BATCHES, start, end, section)


def _add_held(entry: "CollectedEntry", file: "ByteFile", writer: TakesSections, facts: _ChunkFacts, wanted: FactsWanted) -> None:
    """Add the batches of a chunk that are held; one that is held with pseudonyms has its CRC again."""
    columns = facts.columns
    if entry.partition is not None and entry.partition.topic in WITNESS_TOPICS:
        held = _Held(entry, writer, SectionKind.TOLD, facts.start)
        of_each = columns[[BatchColumn.POSITION, BatchColumn.MAGIC, BatchColumn.ATTRIBUTES]].T.tolist()
        for batch, (position, magic, attributes) in zip(right_batches(file, columns), of_each, strict=True):
            if wanted.pseudonyms is None:
                held.add(position, witness_batch(entry.partition.topic, batch) or b"")
            elif magic == CURRENT_MAGIC and not is_no_op_batch(batch, attributes):  # it is a substitute
                held.add(position, batch)
    else:
        held = _Held(entry, writer, SectionKind.KEPT, facts.start)
        for row in np.flatnonzero(_whole(columns, wanted.records)).tolist():
            batch = file.read_at(*columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES], row].tolist())
            if wanted.pseudonyms is not None:
                if not is_marker(batch):
                    continue
                columns[[BatchColumn.CRC, BatchColumn.CRC_COMPUTED], row] = int.from_bytes(batch[_CRC])
            held.add(int(columns[BatchColumn.POSITION, row]), batch)
    held.end(facts.end)


def _frame(file: "ByteFile", position: int) -> Frame:
    """What the bytes at a place say if they are taken for a batch's header."""
    data = file.read_at(position, FRAME.size).ljust(FRAME.size, b"\0")
    base_offset, batch_length, _, magic, _, _, delta = FRAME.unpack(data)
    return Frame(position, base_offset, batch_length, magic, delta)


def _with_hidden_crcs(columns: "Ints", damage: list[tuple[Damage, bool]], key: bytes) -> tuple["Ints", list[tuple[Damage, bool]]]:
    """Columns and damage with a digest in the place of each CRC: equal ones stay equal, and without the key nobody can test a guess
    at a batch."""

    @cache
    def hidden(crc: int) -> int:  # a wrong CRC becomes a right one once in 2**32, as rarely as wrong bytes have a right one
        return int.from_bytes(blake2b(crc.to_bytes(4), digest_size=4, key=key).digest())

    columns = columns.copy()
    for column in (BatchColumn.CRC, BatchColumn.CRC_COMPUTED):
        columns[column] = list(map(hidden, columns[column].tolist()))
    hidden_damage = []
    for found, inside in damage:
        crcs = {name: hidden(value) for name, value in found.detail.items() if name in _CRCS and isinstance(value, int)}
        hidden_damage.append((replace(found, detail={**found.detail, **crcs}), inside))
    return columns, hidden_damage


def _without_impossible_numbers(
    damage: list[tuple[Damage, bool]], frames: list[Frame], size_in_bytes: int, end_offset: int
) -> tuple[list[tuple[Damage, bool]], list[Frame]]:
    """Damage and frames without numbers that no batch of the log can have, as they may be bytes of anything. A length that leads
    out of the log still does."""
    possible_damage = []
    for found, inside in damage:
        detail = {
            name: value
            for name, value in found.detail.items()
            if name != "declared_length" or not isinstance(value, int) or value <= size_in_bytes
        }
        offsets = (-1, -1) if max(found.base_offset, found.last_offset) > end_offset else (found.base_offset, found.last_offset)
        possible_damage.append((replace(found, base_offset=offsets[0], last_offset=offsets[1], detail=detail), inside))
    possible_frames = []
    for frame in frames:
        length = frame.batch_length if frame.position + LOG_OVERHEAD + frame.batch_length <= size_in_bytes else MOST_LENGTH
        base_offset = min(max(frame.base_offset, -1), end_offset)
        delta = frame.last_offset_delta if base_offset == frame.base_offset else 0
        possible_frames.append(frame._replace(base_offset=base_offset, batch_length=max(length, 0), last_offset_delta=delta))
    return possible_damage, possible_frames


def _whole(columns: "Ints", records: Sequence[tuple[int, int]]) -> "NDArray[np.bool_]":
    """The batches that are taken whole: small control batches, and those that were asked for."""
    kept: NDArray[np.bool_] = columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0
    if not records and not kept.any():
        return kept
    kept &= columns[BatchColumn.MAGIC] >= 2
    kept &= has_right_crc(columns)
    kept &= columns[BatchColumn.SIZE_IN_BYTES] <= CONTROL_BYTES
    for first, end in records:
        kept |= (columns[BatchColumn.LAST_OFFSET] >= first) & (columns[BatchColumn.BASE_OFFSET] < end)
    kept &= columns[BatchColumn.SIZE_IN_BYTES] <= MOST_WHOLE_BYTES
    return kept


class _Held:
    """Batches of a facts of a log, in sections that are not too large."""

    def __init__(self, entry: "CollectedEntry", writer: TakesSections, kind: SectionKind, start: int) -> None:
        self.kind, self._entry, self._writer = kind, entry, writer
        self._start = start
        self._batches: list[tuple[int, bytes]] = []
        self._size = 0

    def add(self, position: int, batch: bytes) -> None:
        """Add the batch at a byte, unless it is empty."""
        if not batch:
            return
        if self._batches and self._size + len(batch) > SECTION_BYTES:
            self.end(position)
        self._batches.append((position, batch))
        self._size += len(batch)

    def end(self, end: int) -> None:
        """Nothing more up to this byte."""
        if self._batches or self.kind is SectionKind.TOLD:
            self._writer.add(self._entry.path, self.kind, self._start, end, write_held(self._batches))
        self._start, self._batches, self._size = end, [], 0


class _Checks:
    """The inspector of a log that is collected: it remembers digests, what only opening batches tells, and the offsets of old
    entries."""

    def __init__(self, wanted: FactsWanted) -> None:
        key = b"" if wanted.pseudonyms is None else wanted.pseudonyms.digests_key()
        self.digests = ContentDigests(key)
        self._hashes = SegmentHashes(StrongHasher(key)) if wanted.keys else None
        self._blocks: list[bytes] = []
        self._inner = inspector(deep=wanted.deep)
        self._deep = wanted.deep
        self._pseudonyms = wanted.pseudonyms
        self._inside: list[Damage] = []
        self._offsets: dict[int, int] = {}

    def __call__(self, buffer: "NDArray[np.uint8]", position: int, columns: "Ints", first: int, end: int) -> list[Damage]:
        old = np.flatnonzero(columns[BatchColumn.MAGIC, first:end] < 2) + first
        self._offsets.update(
            zip(columns[BatchColumn.POSITION, old].tolist(), columns[BatchColumn.BASE_OFFSET, old].tolist(), strict=True)
        )
        if first < end:
            self.digests.inspect(buffer, position, columns, first, end)
            if self._hashes is not None:
                for row in range(first, end, HASHED_BATCHES):
                    self._hashes.inspect(buffer, position, columns, row, min(row + HASHED_BATCHES, end))
                    self._pack_hashes(self._hashes, HASHED_RECORDS)
        found = self._inner(buffer, position, columns, first, end)
        self._inside += found
        return found

    def alone(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """A batch behind damage, or a large one."""
        self.digests.alone(file, position, size)
        if self._hashes is not None:
            self._hashes.alone(file, position, size)
            self._pack_hashes(self._hashes, HASHED_RECORDS)
        found = check_batch_in_file(file, position, size) if self._deep else []
        self._inside += found
        return found

    def _pack_hashes(self, hashes: SegmentHashes, least: int) -> None:
        """Make blocks of the hashes if there are so many."""
        if hashes.count >= least:
            records = hashes.take()
            if self._pseudonyms is not None:  # of keys and values no length but that of null
                lengths = {name: np.minimum(getattr(records, name), 0) for name in ("key_lengths", "value_lengths")}
                records = replace(records, **lengths)
            self._blocks += write_record_hashes(records)

    def hashed(self) -> list[bytes]:
        """Blocks of the hashes of all records of a chunk; none where they are not asked for."""
        if self._hashes is not None:
            self._pack_hashes(self._hashes, 0)
        blocks, self._blocks = self._blocks, []
        return blocks

    def mark_inside(self, damage: Sequence[Damage]) -> list[tuple[Damage, bool]]:
        """The damage of a chunk, each with whether only opening the batch tells."""
        inside = {id(found) for found in self._inside}
        self._inside = []
        return [(found, id(found) in inside) for found in damage]

    def written(self, columns: "Ints") -> "Ints":
        """The offset that each entry of magic 0 and 1 bears; of others the last one."""
        written: Ints = columns[BatchColumn.LAST_OFFSET].copy()
        if self._offsets:
            for row in np.flatnonzero(columns[BatchColumn.MAGIC] < 2).tolist():
                written[row] = self._offsets.get(int(columns[BatchColumn.POSITION, row]), written[row])
            self._offsets.clear()
        return written
