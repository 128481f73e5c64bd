"""`.log` files: batches as chunks of columns, damage as rows, every byte accounted for (FileLogInputStream, DefaultRecordBatch).

Kafka's readers stop at the first wrong length. This reader continues: bytes that are not a valid batch become a `Damage`, and the
next batch is the next header whose batch has the right CRC (`damage`).
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from kafka_forensics.model.batches import BATCH_COLUMNS, CHUNK_ROWS, BatchChunk, BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import INT64_MAX, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.kernels.identities import fill_identities
from kafka_forensics.parsers.kernels.walk import DONE, FULL, MORE, walk
from kafka_forensics.parsers.log.collected import (
    MIN_BATCH_BYTES,
    CollectedBatches,
    contradiction,
    contradiction_of_batches,
    read_section,
)
from kafka_forensics.parsers.log.damage import MAX_CHAIN, MAX_WINDOW_BYTES, DamageScanner, Window, crc_damage_of_rows
from kafka_forensics.parsers.log.records import BatchChecks
from kafka_forensics.parsers.log_dir import max_plausible_offset
from kafka_forensics.storage.bundles import BundleSection, CollectedLog
from kafka_forensics.storage.source import range_reader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

MAX_DAMAGED_PLACES: Final = 4096
"""Damaged places after which the rest of a segment is not read: hostile bytes cannot make a scan endless."""

SEARCH_WINDOW_BYTES: Final = 64 << 10
"""Window of a search for a split point: in an undamaged log a batch begins nearby."""

_SKIPPED: Final = frozenset({"SEG_ZERO_TAIL", "BUDGET_EXCEEDED"})

Inspector = Callable[["NDArray[np.uint8]", int, "NDArray[np.int64]", int, int], list[Damage]]
"""Called as `inspect(buffer, buffer_position, columns, first_row, end_row)` while the bytes of the batches are in `buffer`."""


def no_key() -> "NDArray[np.int64]":
    """The zero hash key, for readers that compare nothing."""
    return np.zeros((1, 2), np.int64)


class SegmentReader:
    """Reads the batches of one `.log` file.

    In a search after damage, batches from `max_plausible_offset` on are not accepted. `key` is the scan's hash key, (1, 2) int64.
    `inspect` is called once for the bytes of every batch in the window; `inspect_batch(file, position, size)` for each batch with
    the right CRC that is too large for the window or was found after damage. The next chunk overwrites the matrix of a chunk: copy
    what you keep.

    The chunks of a collected log come from its stored facts, which include what `BatchChecks` finds. Any other inspector needs the
    batches: `inspect_batch` is called for each with the right CRC.
    """

    def __init__(
        self,
        file: "ByteFile",
        max_plausible_offset: int = INT64_MAX,
        *,
        key: "NDArray[np.int64] | None" = None,
        inspect: Inspector | None = None,
        inspect_batch: "Callable[[ByteFile, int, int], list[Damage]] | None" = None,
    ) -> None:
        self._window = Window(file)
        self._key = no_key() if key is None else key
        self._inspect = inspect
        self._inspect_batch = inspect_batch
        self._columns = np.empty((BATCH_COLUMNS, min(CHUNK_ROWS, file.size_in_bytes // MIN_BATCH_BYTES + 1)), np.int64)
        self._damage: list[Damage] = []
        self._rows = 0
        self._chunk_start = 0
        self._damaged_places = 0
        self._scanner = DamageScanner(self._window, self._key, max_plausible_offset)
        self.end_position = 0
        """Where the walk ended: the first byte that belongs to the next range, or the end of the file."""

    @classmethod
    def with_checks(
        cls,
        file: "ByteFile",
        max_plausible_offset: int = INT64_MAX,
        *,
        key: "NDArray[np.int64] | None" = None,
    ) -> Self:
        """A reader with `BatchChecks`: it opens compressed messages of magic 0 and 1."""
        return cls(file, max_plausible_offset, key=key, inspect=BatchChecks(deep=False))

    def first_chunk(self, position: int) -> BatchChunk:
        """The chunk of the batch that begins at `position`; empty if none does. Raises SourceError if the file cannot be read."""
        return next(self.chunks(position, position + 1))

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[BatchChunk]:
        """Chunks of the batches that begin in `[start, end)`, in file order. Raises SourceError if the file cannot be read."""
        if isinstance(self._window.file, CollectedLog):
            yield from self._stored_chunks(self._window.file, start, end)
            return
        window = self._window
        position = self._chunk_start = start
        needed = RECORD_BATCH_OVERHEAD
        if end is not None and (remote := range_reader(window.file)) is not None:
            remote.will_read(start, end)
        end = window.size if end is None else end
        why, at = MORE, 0
        while True:
            if why != FULL:
                window.move(position, needed)
                end, at = min(end, window.size), 0
            before = self._rows
            stop, self._rows, why, needed = walk(
                window.buffer, at, window.length, window.position, end, window.size, self._key, self._columns, self._rows
            )
            self._check_rows(before)
            at = int(stop)
            position = window.position + at
            if why == DONE:
                break
            if why == FULL:
                yield self._chunk(position)
            elif why != MORE or needed > MAX_WINDOW_BYTES or window.position + window.length >= window.size:
                if self._rows + MAX_CHAIN > CHUNK_ROWS:
                    yield self._chunk(position)
                position = self._scan_damage(position)
                needed = RECORD_BATCH_OVERHEAD
        self.end_position = position
        yield self._chunk(position)

    def _stored_chunks(self, log: CollectedLog, start: int, end: int | None) -> Iterator[BatchChunk]:
        """The chunks of a collected log."""
        end = log.size_in_bytes if end is None else min(end, log.size_in_bytes)
        deep = isinstance(self._inspect, BatchChecks) and self._inspect.deep and log.is_deep
        opens = self._inspect is not None and not isinstance(self._inspect, BatchChecks)
        position = start
        for section, packed in log.batches(start, end):
            columns, damage = self._section(log, section, packed, deep=deep)
            section_end = section.end
            if section.start < start or section.end > end:
                positions = columns[BatchColumn.POSITION]
                columns = columns[:, (positions >= start) & (positions < end)]
                damage = [row for row in damage if start <= row.position < end]
                ends = (columns[BatchColumn.POSITION] + columns[BatchColumn.SIZE_IN_BYTES])[-1:].tolist()
                section_end = max([start, *ends, *(row.position + row.size_in_bytes for row in damage)])
            if opens:
                self._open_all(log, columns)
            yield _chunk_of(columns, damage, section_end - position)
            position = section_end
        self.end_position = position
        if position == start:
            yield _chunk_of(np.empty((BATCH_COLUMNS, 0), np.int64), [], 0)

    def _section(
        self, log: CollectedLog, section: BundleSection, packed: bytes, *, deep: bool
    ) -> "tuple[NDArray[np.int64], list[Damage]]":
        """The batches and the damage of a section. Raises SourceError where they contradict each other."""
        facts = read_section(log, packed)
        wrong = contradiction(facts, section.start, section.end)
        if wrong is None:
            wrong = contradiction_of_batches(facts, log.held(section.start, section.end))
        if wrong is not None:
            raise log.broken(wrong)
        fill_identities(facts.columns, facts.stored_offsets, self._key)
        return facts.columns, [damage for damage, inside in facts.damage if deep or not inside]

    def _open_all(self, log: CollectedLog, columns: "NDArray[np.int64]") -> None:
        """Call `inspect_batch` for every batch with the right CRC; the facts have its result. Raises SourceError without it."""
        rows = columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES, BatchColumn.BASE_OFFSET]]
        for position, size, base_offset in rows[:, has_right_crc(columns)].T.tolist():
            if self._inspect_batch is None:
                raise log.missing_records_error((base_offset, INT64_MAX))
            self._inspect_batch(log, position, size)

    def _check_rows(self, first: int) -> None:
        """Check the CRCs of the rows added since `first`, and call the inspector."""
        end = self._rows
        if first == end:
            return
        self._damage.extend(crc_damage_of_rows(self._window, self._columns, first, end))
        last = self._columns[:, end - 1]
        if has_right_crc(last):
            self._scanner.last_offset = int(last[BatchColumn.LAST_OFFSET])
            self._scanner.legacy = bool(last[BatchColumn.MAGIC] < 2)
        if self._inspect is not None:
            self._damage.extend(self._inspect(self._window.buffer, self._window.position, self._columns, first, end))

    def _scan_damage(self, position: int) -> int:
        """Add the damage at `position` and the batches found in it; returns the position where the walk continues."""
        self._damaged_places += 1
        if self._damaged_places > MAX_DAMAGED_PLACES:
            rest = self._window.size - position
            self._damage.append(Damage("BUDGET_EXCEEDED", position, rest, detail={"limit": MAX_DAMAGED_PLACES, "reason": "places"}))
            return self._window.size
        found = self._scanner.scan(position)
        added = found.rows.shape[1]
        self._columns[:, self._rows : self._rows + added] = found.rows
        self._rows += added
        self._damage.extend(found.damage)
        if self._inspect_batch is not None:
            positions = {damage.position for damage in found.damage}
            for row in found.rows[:, has_right_crc(found.rows)].T:
                start = int(row[BatchColumn.POSITION])
                if row[BatchColumn.MAGIC] >= 2 or start not in positions:
                    self._damage.extend(self._inspect_batch(self._window.file, start, int(row[BatchColumn.SIZE_IN_BYTES])))
        return found.end

    def _chunk(self, position: int) -> BatchChunk:
        """The chunk of all rows and damage up to `position`; the next one begins there."""
        columns = self._columns[:, : self._rows]
        damage, self._damage = self._damage, []
        total = position - self._chunk_start
        self._chunk_start = position
        self._rows = 0
        return _chunk_of(columns, damage, total)


def _chunk_of(columns: "NDArray[np.int64]", damage: list[Damage], total: int) -> BatchChunk:
    """A chunk of `total` bytes with these batches and the damage between and in them."""
    if not damage:
        return BatchChunk(columns, damage, total, 0, 0)
    decoded = int(columns[BatchColumn.SIZE_IN_BYTES, has_right_crc(columns)].sum())
    skipped = sum(row.size_in_bytes for row in damage if row.kind in _SKIPPED)
    return BatchChunk(columns, damage, decoded, total - decoded - skipped, skipped)


def read_batch(file: "ByteFile", position: int, size: int) -> bytes:
    """The bytes of a batch, fewer where the file ends. Raises SourceError.

    For a collected log, what the bundle has instead: a reduced batch has another size, one without any fact of use has no bytes.
    """
    if not isinstance(file, CollectedLog):
        return file.read_at(position, size)
    data = file.batch(position)
    if data is None:
        raise file.missing_records_error()
    return data


def read_digest(log: CollectedLog, position: int) -> bytes | None:
    """The content digest of the batch at `position` of a collected log; None if the bundle has none. Raises SourceError."""
    facts = _facts_at(log, position)
    if facts is None:
        return None
    rows = np.flatnonzero(facts.columns[BatchColumn.POSITION] == position)
    if not rows.size:
        return None
    digest = facts.digests[rows[0]].tobytes()
    return digest if any(digest) else None


def damage_inside_batch(log: CollectedLog, position: int) -> list[Damage] | None:
    """Damage inside the batch at `position` of a collected log; None if the bundle was not made with `deep`. Raises SourceError."""
    facts = _facts_at(log, position) if log.is_deep else None
    return None if facts is None else [damage for damage, inside in facts.damage if inside and damage.position == position]


def _facts_at(log: CollectedLog, position: int) -> CollectedBatches | None:
    """The facts of the section with byte `position` of a collected log. Raises SourceError."""
    for section, packed in log.batches(position, position + 1):
        facts = log.known(section)
        if not isinstance(facts, CollectedBatches):
            facts = read_section(log, packed)
            log.remember(section, facts)
        return facts
    return None


def read_offset_and_length(file: "ByteFile", position: int) -> bytes:
    """The stored base offset and length of the batch at `position`, 12 bytes; fewer where the file ends, or for a collected log
    where no batch begins. Raises SourceError."""
    if position >= file.size_in_bytes:
        return b""
    if not isinstance(file, CollectedLog):
        return file.read_at(position, LOG_OVERHEAD)
    first = SegmentReader(file).first_chunk(position)
    if not first.rows or int(first.columns[BatchColumn.POSITION, 0]) != position:
        return b""
    base_offset, size = int(first.columns[BatchColumn.BASE_OFFSET, 0]), int(first.columns[BatchColumn.SIZE_IN_BYTES, 0])
    return base_offset.to_bytes(8, "big", signed=True) + (size - LOG_OVERHEAD & 0xFFFFFFFF).to_bytes(4, "big")


def find_batch(file: "ByteFile", start: int, end: int, base_offset: int) -> int | None:
    """Position of the first batch in `[start, end)` with the right CRC that a valid header or the end of the file follows, or None.

    Its offsets must belong to a segment of this base offset. The result is only a candidate for a split point: the batch may be
    embedded in a record's value, which the walk from the left decides.
    """
    window = Window(file, SEARCH_WINDOW_BYTES)
    scanner = DamageScanner(window, no_key(), max_plausible_offset(base_offset))
    scanner.last_offset = base_offset - 1
    scanner.legacy = window.move(0, 17) < 17 or int(window.buffer[16]) < 2
    position, _, _ = scanner.next_batch(start, end)
    return position if 0 <= position < end else None
