"""`.log` files: batches as chunks of columns, damage as rows, every byte accounted for (FileLogInputStream, DefaultRecordBatch).

Kafka's readers stop at the first length that lies. This one goes on: what cannot be explained becomes a `Damage`, and the next
batch is the next header that proves itself by its CRC (`damage`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.errors import FormatError
from kafka_forensics.model.batches import BATCH_COLUMNS, CHUNK_ROWS, BatchChunk, BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import INT64_MAX, LOG_OVERHEAD
from kafka_forensics.parsers.kernels.identities import fill_identities
from kafka_forensics.parsers.kernels.walk import DONE, FULL, MORE, walk
from kafka_forensics.parsers.log.collected import (
    LEAST_BATCH_BYTES,
    CollectedBatches,
    contradiction,
    contradiction_of_held,
    read_batches,
)
from kafka_forensics.parsers.log.damage import MAX_CHAIN, MAX_WINDOW_BYTES, Trouble, Window, contained_damage
from kafka_forensics.parsers.log_dir import max_plausible_offset
from kafka_forensics.storage.bundles import CollectedLog, Section
from kafka_forensics.storage.source import range_reader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

MAX_TROUBLES: Final = 4096
"""Damaged places after which the rest of a segment is given up, so that hostile bytes cannot make a scan endless."""

SEARCH_WINDOW_BYTES: Final = 64 << 10
"""Window of a search for a split point: a batch begins nearby in any sound log."""


class BatchChecks(ABC):
    """An inspector that only tells what is wrong inside of batches, which facts tell where the bytes are not at hand."""

    deep: bool
    """Whether it opens every batch."""

    @abstractmethod
    def __call__(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        """What is wrong in the batches of rows `[first, end)`."""


Inspector = Callable[["NDArray[np.uint8]", int, "NDArray[np.int64]", int, int], list[Damage]]
"""Called as `inspect(buffer, buffer_position, columns, first_row, end_row)` while the batches' bytes are at hand."""


def no_key() -> "NDArray[np.int64]":
    """The zero hash key: for reading, where nothing is compared."""
    return np.zeros((1, 2), np.int64)


class SegmentReader:
    """Reads batches of one `.log` file in `[start, end)`; a batch belongs to the range in which it begins.

    `key` is the scan's hash key, (1, 2) int64. Batches from `max_plausible_offset` on are not believed in a search after damage.
    `inspect` sees the bytes of every good batch once (deep checks); `inspect_alone(file, position, size)` is asked about the good
    ones that were found behind damage or are too large for the window. The matrix of a chunk is used again for the next: copy what
    you keep.

    Of a collected log the chunks are its facts. What `BatchChecks` would tell is among them; any other inspector needs the batches,
    and `inspect_alone` is asked about every good one.
    """

    def __init__(
        self,
        file: "ByteFile",
        *,
        key: "NDArray[np.int64] | None" = None,
        max_plausible_offset: int = INT64_MAX,
        inspect: Inspector | None = None,
        inspect_alone: "Callable[[ByteFile, int, int], list[Damage]] | None" = None,
    ) -> None:
        self._window = Window(file)
        self._key = no_key() if key is None else key
        self._inspect = inspect
        self._inspect_alone = inspect_alone
        self._columns = np.empty((BATCH_COLUMNS, min(CHUNK_ROWS, file.size_in_bytes // LEAST_BATCH_BYTES + 1)), np.int64)
        self._damage: list[Damage] = []
        self._rows = 0
        self._chunk_start = 0
        self._troubles = 0
        self._trouble = Trouble(self._window, self._key, max_plausible_offset)
        self.landed = 0
        """Where the walk ended: the first byte that belongs to the next range, or the end of the file."""

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[BatchChunk]:
        """Chunks of the range, in file order. Raises SourceError if the file cannot be read."""
        if isinstance(self._window.file, CollectedLog):
            yield from self._facts(self._window.file, start, end)
            return
        window = self._window
        position = self._chunk_start = start
        needed = 61
        if end is not None and (fetched := range_reader(window.file)) is not None:
            fetched.will_read(start, end)
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
            self._look_at(before)
            at = int(stop)
            position = window.position + at
            if why == DONE:
                break
            if why == FULL:
                yield self._chunk(position)
            elif why != MORE or needed > MAX_WINDOW_BYTES or window.position + window.length >= window.size:
                if self._rows + MAX_CHAIN > CHUNK_ROWS:
                    yield self._chunk(position)
                position = self._repair(position)
                needed = 61
        self.landed = position
        yield self._chunk(position)

    def _facts(self, log: CollectedLog, start: int, end: int | None) -> Iterator[BatchChunk]:
        """The chunks of a collected log."""
        end = log.size_in_bytes if end is None else min(end, log.size_in_bytes)
        deep = isinstance(self._inspect, BatchChecks) and self._inspect.deep and log.is_deep
        opens = self._inspect is not None and not isinstance(self._inspect, BatchChecks)
        position = start
        for section, packed in log.batches(start, end):
            columns, damage = self._section(log, section, packed, deep=deep)
            if section.start < start or section.end > end:
                columns, damage, until = _within(columns, damage, start, end)
            else:
                until = section.end
            if opens:
                self._open_all(log, columns)
            yield _chunk_of(columns, damage, until - position)
            position = until
        self.landed = position
        if position == start:
            yield _chunk_of(np.empty((BATCH_COLUMNS, 0), np.int64), [], 0)

    def _section(
        self, log: CollectedLog, section: Section, packed: bytes, *, deep: bool
    ) -> "tuple[NDArray[np.int64], list[Damage]]":
        """The batches and the damage of a section. Raises SourceError where they contradict each other."""
        try:
            facts = read_batches(packed)
        except FormatError as error:
            raise log.broken(error.reason) from error
        wrong = contradiction(facts, section.start, section.end)
        if wrong is None:
            wrong = contradiction_of_held(facts, log.held(section.start, section.end))
        if wrong is not None:
            raise log.broken(wrong)
        fill_identities(facts.columns, facts.written, self._key)
        return facts.columns, [damage for damage, inside in facts.damage if deep or not inside]

    def _open_all(self, log: CollectedLog, columns: "NDArray[np.int64]") -> None:
        """Show every good batch of a collected log; what is found in them is among its facts. Raises SourceError if the batches are
        wanted and not there."""
        good = has_right_crc(columns)
        rows = columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES, BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET]]
        for position, size, base_offset, last_offset in rows[:, good].T.tolist():
            if self._inspect_alone is None:
                raise log.needs_records((base_offset, last_offset + 1))
            self._inspect_alone(log, position, size)

    def _look_at(self, first: int) -> None:
        """Let the damage rules and the inspector see the rows added since `first`."""
        end = self._rows
        if first == end:
            return
        bad = contained_damage(self._window, self._columns, first, end)
        self._damage.extend(bad)
        if self._columns[BatchColumn.CRC, end - 1] == self._columns[BatchColumn.CRC_COMPUTED, end - 1]:
            self._trouble.last_offset = int(self._columns[BatchColumn.LAST_OFFSET, end - 1])
            self._trouble.legacy = bool(self._columns[BatchColumn.MAGIC, end - 1] < 2)
        if self._inspect is not None:
            self._damage.extend(self._inspect(self._window.buffer, self._window.position, self._columns, first, end))

    def _repair(self, position: int) -> int:
        """Explain what stands at `position`, add the rows that can be saved; the position to go on from."""
        self._troubles += 1
        if self._troubles > MAX_TROUBLES:
            rest = self._window.size - position
            self._damage.append(Damage("BUDGET_EXCEEDED", position, rest, detail={"limit": MAX_TROUBLES, "reason": "places"}))
            return self._window.size
        outcome = self._trouble.explain(position)
        added = outcome.rows.shape[1]
        self._columns[:, self._rows : self._rows + added] = outcome.rows
        self._rows += added
        self._damage.extend(outcome.damage)
        if self._inspect_alone is not None:
            positions = {damage.position for damage in outcome.damage}
            for row in outcome.rows.T:
                readable = row[BatchColumn.MAGIC] >= 2 or int(row[BatchColumn.POSITION]) not in positions
                if readable and row[BatchColumn.CRC] == row[BatchColumn.CRC_COMPUTED]:
                    start, size = int(row[BatchColumn.POSITION]), int(row[BatchColumn.SIZE_IN_BYTES])
                    self._damage.extend(self._inspect_alone(self._window.file, start, size))
        return outcome.end

    def _chunk(self, position: int) -> BatchChunk:
        """What was gathered up to `position`, and start anew."""
        columns = self._columns[:, : self._rows]
        damage, self._damage = self._damage, []
        total = position - self._chunk_start
        self._chunk_start = position
        self._rows = 0
        return _chunk_of(columns, damage, total)


def _chunk_of(columns: "NDArray[np.int64]", damage: list[Damage], total: int) -> BatchChunk:
    """The chunk of some batches and what is damaged between and in them, `total` bytes in all."""
    if not damage:
        return BatchChunk(columns, damage, total, 0, 0)
    bad = ~has_right_crc(columns)
    decoded = int(columns[BatchColumn.SIZE_IN_BYTES].sum()) - int(columns[BatchColumn.SIZE_IN_BYTES][bad].sum())
    skipped = sum(damage_here.size_in_bytes for damage_here in damage if damage_here.kind in _SKIPPED)
    return BatchChunk(columns, damage, decoded, total - decoded - skipped, skipped)


def _within(
    columns: "NDArray[np.int64]", damage: list[Damage], start: int, end: int
) -> "tuple[NDArray[np.int64], list[Damage], int]":
    """The batches and the damage that begin in `[start, end)`, and the byte behind the last of them."""
    positions = columns[BatchColumn.POSITION]
    columns = columns[:, (positions >= start) & (positions < end)]
    damage = [found for found in damage if start <= found.position < end]
    ends = (columns[BatchColumn.POSITION] + columns[BatchColumn.SIZE_IN_BYTES])[-1:].tolist()
    return columns, damage, max([start, *ends, *(found.position + found.size_in_bytes for found in damage)])


def read_batch(file: "ByteFile", position: int, size: int) -> bytes:
    """The bytes of a batch, fewer where the file ends. Raises SourceError.

    Of a collected log what the bundle holds in its place: another size is that of a batch that tells less, none of one that tells
    nothing which is of use.
    """
    if not isinstance(file, CollectedLog):
        return file.read_at(position, size)
    data = file.batch(position)
    if data is None:
        raise file.needs_records()
    return data


def read_digest(log: CollectedLog, position: int) -> bytes | None:
    """The digest of the content of the batch at a byte of a collected log; None if the bundle has none. Raises SourceError."""
    facts = _facts_at(log, position)
    if facts is None:
        return None
    rows = np.flatnonzero(facts.columns[BatchColumn.POSITION] == position)
    if not rows.size:
        return None
    digest = facts.digests[rows[0]].tobytes()
    return digest if any(digest) else None


def found_inside(log: CollectedLog, position: int) -> list[Damage] | None:
    """What is wrong inside the batch at a byte of a collected log; None where nobody looked. Raises SourceError."""
    facts = _facts_at(log, position) if log.is_deep else None
    return None if facts is None else [damage for damage, inside in facts.damage if inside and damage.position == position]


def _facts_at(log: CollectedLog, position: int) -> CollectedBatches | None:
    """The facts of the section in which a byte of a collected log lies. Raises SourceError."""
    for section, packed in log.batches(position, position + 1):
        facts = log.known(section)
        if not isinstance(facts, CollectedBatches):
            try:
                facts = read_batches(packed)
            except FormatError as error:
                raise log.broken(error.reason) from error
            log.remember(section, facts)
        return facts
    return None


def read_sizes(file: "ByteFile", position: int) -> bytes:
    """Base offset and length of the batch at a byte, as they are written; fewer bytes where the file ends or nothing is known of
    one. Raises SourceError."""
    if position >= file.size_in_bytes:
        return b""
    if not isinstance(file, CollectedLog):
        return file.read_at(position, LOG_OVERHEAD)
    first = next(SegmentReader(file).chunks(position, position + 1))
    if not first.rows or int(first.columns[BatchColumn.POSITION, 0]) != position:
        return b""
    base_offset, size = int(first.columns[BatchColumn.BASE_OFFSET, 0]), int(first.columns[BatchColumn.SIZE_IN_BYTES, 0])
    return base_offset.to_bytes(8, "big", signed=True) + (size - LOG_OVERHEAD & 0xFFFFFFFF).to_bytes(4, "big")


def find_batch(file: "ByteFile", start: int, end: int, base_offset: int) -> int | None:
    """Position of the first batch in `[start, end)` that proves itself and is followed by something sound; None if there is none.

    Its offsets must belong to a segment of this base offset. For split points: what it finds may lie inside a record's value, so
    the walk from the left has the last word.
    """
    window = Window(file, SEARCH_WINDOW_BYTES)
    trouble = Trouble(window, no_key(), max_plausible_offset(base_offset))
    trouble.last_offset = base_offset - 1
    trouble.legacy = window.move(0, 17) < 17 or int(window.buffer[16]) < 2
    position, _, _ = trouble.next_batch(start, end)
    return position if 0 <= position < end else None


_SKIPPED: Final = frozenset({"SEG_ZERO_TAIL", "BUDGET_EXCEEDED"})
