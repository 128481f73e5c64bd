"""Adds the facts of one log to a bundle, as sections."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from kafka_forensics.model.batches import BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import CONTROL_MASK, CRC_AT, CRC_START, CURRENT_MAGIC, LOG_OVERHEAD, WITNESS_TOPICS
from kafka_forensics.model.pseudonyms import Pseudonyms
from kafka_forensics.parsers.internal_topics import is_no_op_batch
from kafka_forensics.parsers.log import (
    BatchChecks,
    ContentDigests,
    SegmentHashes,
    SegmentReader,
    StrongHasher,
    check_batch_in_file,
)
from kafka_forensics.parsers.log_dir import max_plausible_offset
from kafka_forensics.questions.collect.redacted_logs import FRAME, MAX_BATCH_LENGTH, redacted_log, right_batches
from kafka_forensics.storage.bundles import MAX_SECTION_BYTES, Frame, SectionKind, write_batches_section, write_frames
from kafka_forensics.writers.bundle_columns import write_batches
from kafka_forensics.writers.record_hashes import write_record_hashes
from kafka_forensics.writers.witness_batches import is_marker, witness_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.questions.collect.files import CollectedEntry
    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]

DamageRow = tuple[Damage, bool]
"""Damage, and whether it is inside a batch: then only opening the batch shows it."""

SECTION_BYTES: Final = 1 << 20
MAX_WHOLE_BYTES: Final = MAX_SECTION_BYTES - 64
"""A larger batch is not collected whole."""
MAX_CONTROL_BYTES: Final = 4096
"""A larger control batch is not a marker, whatever its header says."""
HASHED_BATCHES: Final = 256
"""Batches whose records are hashed at once."""
HASHED_RECORDS: Final = 1 << 16
"""Hashes that are held before they are compressed, except for those of one batch."""


class SectionWriter(Protocol):
    """Takes the sections of files."""

    def add(self, path: str, kind: SectionKind, start: int, end: int, data: bytes, /) -> None:
        """Add a section of the file at `path`, about its bytes `[start, end)`."""


class FactOptions(NamedTuple):
    """What to collect of a log."""

    deep: bool
    """Whether batches are decompressed and checked."""
    records: tuple[tuple[int, int], ...] = ()
    """Offsets [start, end) whose batches are collected whole."""
    keys: bool = False
    """Whether keys and values are hashed."""
    pseudonyms: Pseudonyms | None = None
    """Replaces names, and supplies the key of digests."""


def add_log(
    entry: "CollectedEntry", file: "ByteFile", writer: SectionWriter, options: FactOptions, progress: Callable[[int], None]
) -> tuple[int, int]:
    """Add the sections of a log, or of its redacted log if it has names; the number of its batches, and its size, which is smaller
    than when it was opened if it was truncated meanwhile. `progress` is called with the bytes that are read.

    Raises SourceError if the log cannot be read further.
    """
    end_offset = max_plausible_offset((entry.name and entry.name.offset) or 0, entry.next_base_offset)
    parts: Iterable[ByteFile] = [file]
    if options.pseudonyms is not None and entry.has_names:
        topic = "" if entry.partition is None else entry.partition.topic
        parts = redacted_log(file, topic, end_offset, options.pseudonyms, progress)
    inspect = _CollectInspector(options)
    start, batches = 0, 0
    for part in parts:
        reader = SegmentReader(part, max_plausible_offset=end_offset, inspect=inspect, inspect_batch=inspect.inspect_batch)
        for chunk in reader.chunks(start):
            end = start + chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped
            if end == start:
                continue
            columns, damage = chunk.columns, inspect.mark_inside(chunk.damage)
            frames = [_frame(part, found.position) for found, is_inside in damage if not is_inside]
            if options.pseudonyms is not None:
                damage, frames = _without_impossible_numbers(damage, frames, part.size_in_bytes, end_offset)
                columns, damage = _with_hidden_crcs(columns, damage, options.pseudonyms.digests_key())
            written = inspect.written_offsets(columns)
            for section in _held_batches(entry, part, columns, options, (start, end)):
                writer.add(entry.path, *section)
            if frames:
                writer.add(entry.path, SectionKind.FRAMES, start, end, write_frames(frames))
            for block in inspect.hash_blocks():
                writer.add(entry.path, SectionKind.KEYS, start, end, block)
            # last: a truncated bundle has batches only with everything that belongs to them
            data = write_batches(columns, damage, written=written, digests=inspect.digests.take(columns))
            writer.add(entry.path, SectionKind.BATCHES, start, end, data)
            batches += chunk.rows
            if part is file:
                progress(end - start)
            start = end
    return batches, start


def _held_batches(
    entry: "CollectedEntry", file: "ByteFile", columns: "Ints", options: FactOptions, span: tuple[int, int]
) -> Iterator[tuple[SectionKind, int, int, bytes]]:
    """Sections of no more than about SECTION_BYTES with the batches of bytes `[start, end)` that are collected themselves."""
    start, end = span
    topic = "" if entry.partition is None else entry.partition.topic
    is_witness = topic in WITNESS_TOPICS
    kind = SectionKind.REDUCED if is_witness else SectionKind.RAW
    rows = _witness_batches(topic, file, columns, options) if is_witness else _whole_batches(file, columns, options)
    pending: list[tuple[int, bytes]] = []
    size = 0
    for position, batch in rows:
        if pending and size + len(batch) > SECTION_BYTES:
            yield kind, start, position, write_batches_section(pending)
            start, pending, size = position, [], 0
        pending.append((position, batch))
        size += len(batch)
    if pending or is_witness:
        yield kind, start, end, write_batches_section(pending)


def _witness_batches(topic: str, file: "ByteFile", columns: "Ints", options: FactOptions) -> Iterator[tuple[int, bytes]]:
    """The batches of an internal topic with as much as the analysis needs, by position."""
    rows = columns[[BatchColumn.POSITION, BatchColumn.MAGIC, BatchColumn.ATTRIBUTES]].T.tolist()
    for batch, (position, magic, attributes) in zip(right_batches(file, columns), rows, strict=True):
        if options.pseudonyms is None:
            reduced = witness_batch(topic, batch) or b""
        else:  # the redacted log has them already
            reduced = batch if magic == CURRENT_MAGIC and not is_no_op_batch(batch, attributes) else b""
        if reduced:
            yield position, reduced


def _whole_batches(file: "ByteFile", columns: "Ints", options: FactOptions) -> Iterator[tuple[int, bytes]]:
    """The batches that are collected whole, by position; with pseudonyms only markers, which get their CRC in `columns` back."""
    for row in np.flatnonzero(_is_whole(columns, options.records)).tolist():
        position, size = columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES], row].tolist()
        batch = file.read_at(position, size)
        if options.pseudonyms is not None:
            if not is_marker(batch):
                continue
            columns[[BatchColumn.CRC, BatchColumn.CRC_COMPUTED], row] = int.from_bytes(batch[CRC_AT:CRC_START])
        if batch:
            yield position, batch


def _frame(file: "ByteFile", position: int) -> Frame:
    """The bytes at a position, read as the header of a batch."""
    data = file.read_at(position, FRAME.size).ljust(FRAME.size, b"\0")
    base_offset, batch_length, _, magic, _, _, delta = FRAME.unpack(data)
    return Frame(position, base_offset, batch_length, magic, delta)


def _with_hidden_crcs(columns: "Ints", damage: list[DamageRow], key: bytes) -> tuple["Ints", list[DamageRow]]:
    """Columns and damage with keyed digests instead of CRCs: equal CRCs stay equal, and only who has the key can test a guess at a
    batch."""

    @cache
    def hidden(crc: int) -> int:  # a wrong CRC becomes a right one once in 2**32, as rarely as wrong bytes have a right one
        return int.from_bytes(blake2b(crc.to_bytes(4), digest_size=4, key=key).digest())

    columns = columns.copy()
    for column in (BatchColumn.CRC, BatchColumn.CRC_COMPUTED):
        columns[column] = list(map(hidden, columns[column].tolist()))
    hidden_damage = []
    for found, is_inside in damage:
        values = ((name, found.detail.get(name)) for name in ("stored_crc", "computed_crc"))
        crcs = {name: hidden(value) for name, value in values if isinstance(value, int)}
        hidden_damage.append((replace(found, detail={**found.detail, **crcs}), is_inside))
    return columns, hidden_damage


def _without_impossible_numbers(
    damage: list[DamageRow], frames: list[Frame], size_in_bytes: int, end_offset: int
) -> tuple[list[DamageRow], list[Frame]]:
    """Damage and frames without numbers that no batch of the log can have, because these may be bytes of anything. A length that
    leads beyond the log still does."""
    possible_damage = []
    for found, is_inside in damage:
        length = found.detail.get("declared_length")
        is_possible = not isinstance(length, int) or length <= size_in_bytes
        detail = {name: value for name, value in found.detail.items() if name != "declared_length" or is_possible}
        offsets = (-1, -1) if max(found.base_offset, found.last_offset) > end_offset else (found.base_offset, found.last_offset)
        possible_damage.append((replace(found, base_offset=offsets[0], last_offset=offsets[1], detail=detail), is_inside))
    possible_frames = []
    for frame in frames:
        is_in_log = frame.position + LOG_OVERHEAD + frame.batch_length <= size_in_bytes
        length = max(frame.batch_length, 0) if is_in_log else MAX_BATCH_LENGTH
        base_offset = min(max(frame.base_offset, -1), end_offset)
        delta = frame.last_offset_delta if base_offset == frame.base_offset else 0
        possible_frames.append(frame._replace(base_offset=base_offset, batch_length=length, last_offset_delta=delta))
    return possible_damage, possible_frames


def _is_whole(columns: "Ints", records: Sequence[tuple[int, int]]) -> "NDArray[np.bool_]":
    """Which batches are collected whole: small control batches, and the requested ones."""
    whole: NDArray[np.bool_] = columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0
    if not records and not whole.any():
        return whole
    whole &= columns[BatchColumn.MAGIC] >= CURRENT_MAGIC
    whole &= has_right_crc(columns)
    whole &= columns[BatchColumn.SIZE_IN_BYTES] <= MAX_CONTROL_BYTES
    for first, end in records:
        whole |= (columns[BatchColumn.LAST_OFFSET] >= first) & (columns[BatchColumn.BASE_OFFSET] < end)
    whole &= columns[BatchColumn.SIZE_IN_BYTES] <= MAX_WHOLE_BYTES
    return whole


class _CollectInspector:
    """The inspector of a collected log: it keeps digests, hashes, damage inside batches, and the offsets of old entries."""

    def __init__(self, options: FactOptions) -> None:
        key = b"" if options.pseudonyms is None else options.pseudonyms.digests_key()
        self.digests = ContentDigests(key)
        self._hashes = SegmentHashes(StrongHasher(key)) if options.keys else None
        self._blocks: list[bytes] = []
        self._inner = BatchChecks(deep=options.deep)
        self._options = options
        self._inside: list[Damage] = []
        self._offsets: dict[int, int] = {}

    def __call__(self, buffer: "NDArray[np.uint8]", position: int, columns: "Ints", first: int, end: int) -> list[Damage]:
        old = np.flatnonzero(columns[BatchColumn.MAGIC, first:end] < CURRENT_MAGIC) + first
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

    def inspect_batch(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Inspect a batch after damage, or a large one."""
        self.digests.inspect_batch(file, position, size)
        if self._hashes is not None:
            self._hashes.inspect_batch(file, position, size)
            self._pack_hashes(self._hashes, HASHED_RECORDS)
        found = check_batch_in_file(file, position, size) if self._options.deep else []
        self._inside += found
        return found

    def _pack_hashes(self, hashes: SegmentHashes, min_count: int) -> None:
        """Make blocks of the hashes if there are so many."""
        if hashes.count >= min_count:
            records = hashes.take()
            if self._options.pseudonyms is not None:  # hide the lengths of keys and values, except that of null
                lengths = {name: np.minimum(getattr(records, name), 0) for name in ("key_lengths", "value_lengths")}
                records = replace(records, **lengths)
            self._blocks += write_record_hashes(records)

    def hash_blocks(self) -> list[bytes]:
        """Blocks of the hashes of all records of a chunk, if they are collected."""
        if self._hashes is not None:
            self._pack_hashes(self._hashes, 0)
        blocks, self._blocks = self._blocks, []
        return blocks

    def mark_inside(self, damage: Sequence[Damage]) -> list[DamageRow]:
        """The damage of a chunk, with whether it is inside a batch."""
        inside = {id(found) for found in self._inside}
        self._inside = []
        return [(found, id(found) in inside) for found in damage]

    def written_offsets(self, columns: "Ints") -> "Ints":
        """The offset in each entry of magic 0 and 1; the last offset of other batches."""
        written: Ints = columns[BatchColumn.LAST_OFFSET].copy()
        if self._offsets:
            for row in np.flatnonzero(columns[BatchColumn.MAGIC] < CURRENT_MAGIC).tolist():
                written[row] = self._offsets.get(int(columns[BatchColumn.POSITION, row]), written[row])
            self._offsets.clear()
        return written
