"""The facts of one log, section by section, as a bundle takes them."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    LOG_OVERHEAD,
    MIN_RECORD_SIZE,
    RECORD_BATCH_OVERHEAD,
    WITNESS_TOPICS,
)
from kafka_forensics.model.pseudonyms import Pseudonyms
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    ContentDigests,
    SegmentHashes,
    SegmentReader,
    StrongHasher,
    believed_to,
    check_batch_in_file,
    inspector,
)
from kafka_forensics.questions.collect.relaid_logs import BLANK_BATCH, CRC, MOST_LENGTH, NewLayout, hide_crcs, with_right_crc
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


MAGIC: Final = 2
RECORDS_COUNT_AT: Final = 57
_FRAME: Final = struct.Struct(">qiibihi")
_FRAME_BYTES: Final = _FRAME.size


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
    entry: "CollectedEntry",
    file: "ByteFile",
    writer: TakesSections,
    wanted: FactsWanted,
    passed: Callable[[int], None],
    layout: NewLayout | None = None,
) -> tuple[int, int]:
    """Add the sections of a log, where `layout` puts its batches or where they are; how many batches it has, and its size, which of
    one that is cut off meanwhile is less than when it was opened. Raises SourceError where it cannot be read further."""
    base_offset = 0 if entry.name is None or entry.name.offset is None else entry.name.offset
    checks = _Checks(wanted, is_relaid=layout is not None)
    reader = SegmentReader(
        file, next_base_offset=believed_to(base_offset, entry.behind), inspect=checks, inspect_alone=checks.alone
    )
    start, batches = 0, 0
    for chunk in reader.chunks():
        end = start + chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped
        if end == start:
            continue
        columns, damage = chunk.columns, checks.told(chunk.damage)
        frames = [_frame(file, found.position) for found, inside in damage if not inside]
        if wanted.pseudonyms is not None:
            damage, frames = _believed(damage, frames, file.size_in_bytes, believed_to(base_offset, entry.behind))
            columns, damage = hide_crcs(columns, damage, wanted.pseudonyms.digests_key())
        stretch = _Stretch(start, end, columns, checks.written(columns), damage, frames)
        if layout is None:
            _add_held(entry, file, writer, stretch, wanted)
            _add(entry, writer, checks, stretch)
        else:
            for relaid in _relaid(entry, file, writer, stretch, layout, checks):
                _add(entry, writer, checks, relaid)
        batches += chunk.rows
        passed(end - start)
        start = end
    return batches, start if layout is None else layout.size_in_bytes


class _Stretch(NamedTuple):
    """What is told of bytes `[start, end)` of a log."""

    start: int
    end: int
    columns: "Ints"
    written: "Ints"
    damage: list[tuple[Damage, bool]]
    frames: list[Frame]


def _add(entry: "CollectedEntry", writer: TakesSections, checks: "_Checks", stretch: _Stretch) -> None:
    """Add a stretch, but for the batches that are held."""
    start, end, columns = stretch.start, stretch.end, stretch.columns
    if stretch.frames:
        writer.add(entry.path, SectionKind.FRAMES, start, end, write_frames(stretch.frames))
    for block in checks.hashed():
        writer.add(entry.path, SectionKind.KEYS, start, end, block)
    # last, so that of a bundle that was cut short batches are known only with all that belongs to them
    section = write_batches(columns, stretch.damage, written=stretch.written, digests=checks.digests.take(columns))
    writer.add(entry.path, SectionKind.BATCHES, start, end, section)


def _add_held(entry: "CollectedEntry", file: "ByteFile", writer: TakesSections, stretch: _Stretch, wanted: FactsWanted) -> None:
    """Add what is held of a stretch; a batch that is held with pseudonyms has its CRC again."""
    columns = stretch.columns
    if entry.partition is not None and entry.partition.topic in WITNESS_TOPICS:
        held = _Held(entry, writer, SectionKind.TOLD, stretch.start)
        for first, batches in _substitutes(entry, file, columns, None):
            for row, batch in enumerate(batches, first):
                held.add(int(columns[BatchColumn.POSITION, row]), batch)
    else:
        held = _Held(entry, writer, SectionKind.KEPT, stretch.start)
        for row in np.flatnonzero(_whole(columns, wanted.records)).tolist():
            batch = file.read_at(*columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES], row].tolist())
            if wanted.pseudonyms is not None:
                if not is_marker(batch):
                    continue
                columns[[BatchColumn.CRC, BatchColumn.CRC_COMPUTED], row] = int.from_bytes(batch[CRC])
            held.add(int(columns[BatchColumn.POSITION, row]), batch)
    held.end(stretch.end)


def _relaid(
    entry: "CollectedEntry", file: "ByteFile", writer: TakesSections, stretch: _Stretch, layout: NewLayout, checks: "_Checks"
) -> Iterator[_Stretch]:
    """A stretch in pieces that are laid out anew, each after its substitutes were added."""
    starts, at = stretch.columns[BatchColumn.POSITION].tolist(), stretch.start
    for first, batches in _substitutes(entry, file, stretch.columns, checks.pseudonyms):
        end = first + len(batches)
        until = starts[end] if end < len(starts) else stretch.end
        damage = [(found, inside) for found, inside in stretch.damage if at <= found.position < until]
        frames = [frame for frame in stretch.frames if at <= frame.position < until]
        at, start = until, layout.size_in_bytes
        rooms = _rooms(stretch.columns[:, first:end])
        stored = [(batch or BLANK_BATCH).ljust(room, b"\0") for batch, room in zip(batches, rooms, strict=True)]
        columns, damage, frames = layout.placed(stretch.columns[:, first:end], damage, frames, stored)
        held, data = _Held(entry, writer, SectionKind.TOLD, start), bytearray(layout.size_in_bytes - start)
        for position, batch in zip(columns[BatchColumn.POSITION].tolist(), batches, strict=True):
            held.add(position, batch)
            data[position - start : position - start + len(batch)] = batch
        held.end(layout.size_in_bytes)
        checks.see_substitutes(bytes(data), start, columns)
        yield _Stretch(start, layout.size_in_bytes, columns, stretch.written[first:end], damage, frames)


def _rooms(columns: "Ints") -> list[int]:
    """The least size of batches that have room for the records that they count, and still have it; 0 of others."""
    size, count = columns[BatchColumn.SIZE_IN_BYTES], columns[BatchColumn.RECORDS_COUNT]
    plain = (columns[BatchColumn.MAGIC] >= MAGIC) & (columns[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK == 0)
    least = RECORD_BATCH_OVERHEAD + MIN_RECORD_SIZE * count
    has_room = with_right_crc(columns) & plain & (count > 0) & (least <= size) & (size <= MAX_BATCH_BYTES)
    rooms: list[int] = np.where(has_room, least, 0).tolist()
    return rooms


def _substitutes(
    entry: "CollectedEntry", file: "ByteFile", columns: "Ints", pseudonyms: Pseudonyms | None
) -> Iterator[tuple[int, list[bytes]]]:
    """What the analysis uses of the records of batches, piece by piece: the row of the first, and the batches that stand for them,
    which are empty if there is nothing in them."""
    topic = "" if entry.partition is None else entry.partition.topic
    good = (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]) & (columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES)
    places = columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]].T.tolist()
    first, batches, taken = 0, list[bytes](), 0
    block, at = b"", 0
    for row, ((position, size), is_good) in enumerate(zip(places, good.tolist(), strict=True)):
        if is_good and not at <= position <= position + size <= at + len(block):
            block, at = file.read_at(position, max(size, SECTION_BYTES)), position
        data = block[position - at : position - at + size] if is_good else b""
        batches.append(witness_batch(topic, data, pseudonyms) or b"" if data else b"")
        taken += len(batches[-1])
        if taken > SECTION_BYTES:
            yield first, batches
            first, batches, taken = row + 1, [], 0
    if batches or not first:
        yield first, batches


def _frame(file: "ByteFile", position: int) -> Frame:
    """What the bytes at a place say if they are taken for a batch's header."""
    data = file.read_at(position, _FRAME_BYTES).ljust(_FRAME_BYTES, b"\0")
    base_offset, batch_length, _, magic, _, _, delta = _FRAME.unpack(data)
    return Frame(position, base_offset, batch_length, magic, delta)


def _believed(
    damage: list[tuple[Damage, bool]], frames: list[Frame], size_in_bytes: int, end_offset: int
) -> tuple[list[tuple[Damage, bool]], list[Frame]]:
    """Damage and frames without numbers that no batch of the log can have, as they may be bytes of anything. A length that leads
    out of the log still does."""
    told = []
    for found, inside in damage:
        detail = {
            name: value
            for name, value in found.detail.items()
            if name != "declared_length" or not isinstance(value, int) or value <= size_in_bytes
        }
        offsets = (-1, -1) if max(found.base_offset, found.last_offset) > end_offset else (found.base_offset, found.last_offset)
        told.append((replace(found, base_offset=offsets[0], last_offset=offsets[1], detail=detail), inside))
    believed = []
    for frame in frames:
        length = frame.batch_length if frame.position + LOG_OVERHEAD + frame.batch_length <= size_in_bytes else MOST_LENGTH
        base_offset = min(max(frame.base_offset, -1), end_offset)
        delta = frame.last_offset_delta if base_offset == frame.base_offset else 0
        believed.append(frame._replace(base_offset=base_offset, batch_length=max(length, 0), last_offset_delta=delta))
    return told, believed


def _whole(columns: "Ints", records: Sequence[tuple[int, int]]) -> "NDArray[np.bool_]":
    """The batches that are taken whole: small control batches, and those that were asked for."""
    kept: NDArray[np.bool_] = columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0
    if not records and not kept.any():
        return kept
    kept &= columns[BatchColumn.MAGIC] >= 2
    kept &= columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    kept &= columns[BatchColumn.SIZE_IN_BYTES] <= CONTROL_BYTES
    for first, end in records:
        kept |= (columns[BatchColumn.LAST_OFFSET] >= first) & (columns[BatchColumn.BASE_OFFSET] < end)
    kept &= columns[BatchColumn.SIZE_IN_BYTES] <= MOST_WHOLE_BYTES
    return kept


class _Held:
    """Batches of a stretch of a log, in sections that are not too large."""

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

    def __init__(self, wanted: FactsWanted, *, is_relaid: bool) -> None:
        key = b"" if wanted.pseudonyms is None else wanted.pseudonyms.digests_key()
        self.digests = ContentDigests(key)
        self._hashes = SegmentHashes(StrongHasher(key)) if wanted.keys else None
        self._blocks: list[bytes] = []
        self._inner = inspector(deep=wanted.deep)
        self._deep = wanted.deep
        self._is_relaid, self.pseudonyms = is_relaid, wanted.pseudonyms
        self._inside: list[Damage] = []
        self._offsets: dict[int, int] = {}

    def __call__(self, buffer: "NDArray[np.uint8]", position: int, columns: "Ints", first: int, end: int) -> list[Damage]:
        old = np.flatnonzero(columns[BatchColumn.MAGIC, first:end] < 2) + first
        self._offsets.update(
            zip(columns[BatchColumn.POSITION, old].tolist(), columns[BatchColumn.BASE_OFFSET, old].tolist(), strict=True)
        )
        if not self._is_relaid:
            self._see(buffer, position, columns, first, end)
        found = self._inner(buffer, position, columns, first, end)
        self._inside += found
        return found

    def see_substitutes(self, data: bytes, position: int, columns: "Ints") -> None:
        """Take digests and hashes of the substitutes in `data`, which begins at byte `position`, by the columns of all batches."""
        plain = columns.copy()
        plain[BatchColumn.MAGIC] = MAGIC
        plain[BatchColumn.ATTRIBUTES] &= ~COMPRESSION_MASK
        for row, start in enumerate((columns[BatchColumn.POSITION] - position).tolist()):
            if count := int.from_bytes(data[start + RECORDS_COUNT_AT : start + RECORD_BATCH_OVERHEAD], "big"):
                plain[BatchColumn.RECORDS_COUNT, row] = count
        self._see(np.frombuffer(data, np.uint8), position, plain, 0, columns.shape[1])

    def _see(self, buffer: "NDArray[np.uint8]", position: int, columns: "Ints", first: int, end: int) -> None:
        """Take digests and hashes of the batches of rows `[first, end)`."""
        if first == end:
            return
        self.digests.inspect(buffer, position, columns, first, end)
        if self._hashes is not None:
            for row in range(first, end, HASHED_BATCHES):
                self._hashes.inspect(buffer, position, columns, row, min(row + HASHED_BATCHES, end))
                self._pack_hashes(self._hashes, HASHED_RECORDS)

    def alone(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """A batch behind damage, or a large one."""
        if not self._is_relaid:
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
            if self.pseudonyms is not None:  # of keys and values no length but that of null
                lengths = {name: np.minimum(getattr(records, name), 0) for name in ("key_lengths", "value_lengths")}
                records = replace(records, **lengths)
            self._blocks += write_record_hashes(records)

    def hashed(self) -> list[bytes]:
        """Blocks of the hashes of all records of a chunk; none where they are not asked for."""
        if self._hashes is not None:
            self._pack_hashes(self._hashes, 0)
        blocks, self._blocks = self._blocks, []
        return blocks

    def told(self, damage: Sequence[Damage]) -> list[tuple[Damage, bool]]:
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
