"""What is wrong where the walk over batches stopped, and where the next batch begins."""

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct, field

from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import (
    HEADER_SIZE_UP_TO_MAGIC,
    INT64_MAX,
    LEGACY_V0_OVERHEAD,
    LOG_OVERHEAD,
    RECORD_BATCH_OVERHEAD,
)
from kafka_forensics.parsers.kernels.compiling import have_compiled
from kafka_forensics.parsers.kernels.crc import crc32, crc32c, load_i32, load_i64
from kafka_forensics.parsers.kernels.walk import (
    EXHAUSTED,
    FOUND,
    PLAUSIBLE,
    fill_legacy_row,
    fill_row,
    longest_zero_run,
    plausible_size,
    search,
)
from kafka_forensics.parsers.log.collected import MIN_BATCH_BYTES
from kafka_forensics.parsers.spec import batch_header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile


# A sliding window over a file: the bytes that kernels read, of bounded size.


WINDOW_BYTES: Final = 2 << 20
"""Bytes of an ordinary window: few enough to be in the CPU's cache when the CRC is computed after the read."""
FIRST_WINDOW_BYTES: Final = 256 << 10
"""Bytes of the first window: a short call shows how long kernels take for these batches, and whether to compile them."""
MAX_WINDOW_BYTES: Final = 16 << 20
"""A larger batch is never read at once; its CRC is streamed."""


class Window:
    """Bytes `[position, position + length)` of `file` in `buffer`: 256 KiB, then `capacity` (2 MiB), up to 16 MiB on demand."""

    def __init__(self, file: "ByteFile", capacity: int | None = None) -> None:
        self.file = file
        self.size = file.size_in_bytes
        self._capacity = min(capacity or WINDOW_BYTES, max(self.size, 64))
        first = self._capacity if have_compiled() else min(self._capacity, FIRST_WINDOW_BYTES)
        self.buffer: NDArray[np.uint8] = np.empty(first, np.uint8)
        self.position = 0
        self.length = 0

    def move(self, position: int, needed: int = 1) -> int:
        """Move the window to `position`, with `needed` bytes or all up to the end of the file; returns its length.

        If the file has become shorter since it was opened, `size` becomes smaller.
        """
        needed = min(needed, MAX_WINDOW_BYTES, max(self.size - position, 0))
        if needed > self.buffer.size or (self.length and self.buffer.size < self._capacity):
            grown = np.empty(max(self._capacity, min(MAX_WINDOW_BYTES, 1 << (needed - 1).bit_length())), np.uint8)
            grown[: self.length] = self.buffer[: self.length]
            self.buffer = grown
        kept = 0
        if self.position <= position < self.position + self.length:
            kept = self.position + self.length - position
            start = position - self.position
            if start:
                self.buffer[:kept] = self.buffer[start : start + kept].copy() if kept > start else self.buffer[start : start + kept]
        self.position = position
        self.length = kept
        missing = min(self.buffer.size, self.size - position) - kept
        if missing > 0:
            read = self.file.read_into(position + kept, self.buffer.data[kept : kept + missing])
            self.length += read
            if read < missing:
                self.size = position + self.length
        return self.length

    def crc(self, start: int, end: int, *, legacy: bool) -> int:
        """CRC of file bytes `[start, end)` streamed through the window: CRC-32 for magic 0 and 1, else CRC-32C."""
        crc = 0
        while start < end:
            length = min(self.move(start, 1), end - start)
            if length <= 0:
                break
            crc = crc32(self.buffer, 0, length, crc) if legacy else crc32c(self.buffer, 0, length, crc)
            start += length
        return crc

    def all_zero_from(self, position: int) -> bool:
        """Whether every byte from `position` to the end of the file is zero; holes are not read."""
        for start, end in self.file.data_ranges():
            start = max(start, position)
            while start < min(end, self.size):
                length = min(self.move(start, 1), end - start)
                if length <= 0 or self.buffer[:length].any():
                    return False
                start += length
        return True


HOLE_BYTES: Final = 4096
"""At least this many zeros in a row inside damage are pages that never reached the disk."""
CRC_BYTES_PER_BYTE_SEARCHED: Final = 8
FIRST_BUDGET_BYTES: Final = 16 << 20
"""Bytes under CRCs that a search may compute before it has searched any."""
VAIN_CRC_BYTES_PER_BYTE: Final = 64
"""Bytes under wrong CRCs, for each byte of the file, after which declared lengths are ignored: otherwise many wrong lengths would
make a reader read the segment again and again."""
MAX_CHAIN: Final = 1024
"""Damaged batches in a row that become separate rows; more of them are one damaged range."""
MAX_CANDIDATES: Final = 4096
"""Batches found that no valid header follows, after which the search gives up."""
OUT_OF_FRAME: Final = HEADER_SIZE_UP_TO_MAGIC
"""Fewer bytes than this cannot contain an entry of any format; Kafka ignores them. Fewer than `LOG_OVERHEAD` zeros are not a zero
tail but a cut header: every offset begins with zeros, no length is zero."""

Detail = dict[str, int | str | bool | list[int]]


class ScannedDamage(Struct):
    """Batches found in a damaged place, (BATCH_COLUMNS, n), the damage, and the position where the walk continues."""

    end: int
    damage: list[Damage]
    rows: "NDArray[np.int64]" = field(default_factory=lambda: np.empty((BATCH_COLUMNS, 0), np.int64))


class DamageScanner:
    """Finds out what is wrong where the walk stopped; `last_offset` is that of the last valid batch, -1 before the first."""

    def __init__(self, window: Window, key: "NDArray[np.int64]", max_plausible_offset: int) -> None:
        self._window = window
        self._key = key
        self._max_offset = max_plausible_offset
        self.last_offset = -1
        self.legacy = True
        """Whether batches of magic 0 or 1 may follow."""
        self._allowance = VAIN_CRC_BYTES_PER_BYTE * (window.size + (1 << 20))

    def scan(self, position: int) -> ScannedDamage:
        """What is at byte `position`, up to the next batch with the right CRC or the end of the file."""
        window = self._window
        rest = window.size - position
        if rest >= LOG_OVERHEAD and window.all_zero_from(position):
            return ScannedDamage(window.size, [Damage("SEG_ZERO_TAIL", position, window.size - position)])
        size, magic = self._size_and_magic(position)
        rest = window.size - position
        if rest < OUT_OF_FRAME:
            return ScannedDamage(window.size, [Damage("SEG_TORN_TAIL", position, rest, detail={"reason": "header"})])
        if RECORD_BATCH_OVERHEAD <= size <= min(rest, self._allowance):
            found = self._batch_of_right_crc(position, size, magic) or self._batch_of_right_length(position, size, magic)
            if found is not None:
                return found
            self._allowance -= size
        return self._search(position, size, magic)

    def _size_and_magic(self, position: int) -> tuple[int, int]:
        """Declared size and magic byte of the batch at `position`, to which the window moves; anything if its bytes are cut."""
        self._window.move(position, RECORD_BATCH_OVERHEAD)
        buffer = self._window.buffer
        return int(load_i32(buffer, batch_header.LENGTH_AT)) + LOG_OVERHEAD, int(buffer[batch_header.MAGIC_AT])

    def _header(self, position: int) -> "NDArray[np.uint8]":
        """A copy of the first 61 bytes at `position`."""
        self._window.move(position, RECORD_BATCH_OVERHEAD)
        return self._window.buffer[:RECORD_BATCH_OVERHEAD].copy()

    def _has_right_crc(self, position: int, end: int, *, legacy: bool = False) -> bool:
        """Whether the bytes up to `end` have the CRC that is stored in the header at `position`; streamed."""
        crc_at, covered_from = (12, 16) if legacy else (batch_header.CRC_AT, batch_header.ATTRIBUTES_AT)
        stored = int(load_i32(self._header(position), crc_at)) & 0xFFFFFFFF
        return self._window.crc(position + covered_from, end, legacy=legacy) == stored

    def _batch_of_right_length(self, position: int, size: int, magic: int) -> ScannedDamage | None:
        """The damaged batch at `position` if a valid batch or the end of the file follows, where one of both exceeds the window."""
        window = self._window
        end = position + size
        if magic != 2:
            return None
        if end < window.size:
            if window.move(end, RECORD_BATCH_OVERHEAD) < RECORD_BATCH_OVERHEAD:
                return None
            next_size, next_magic = self._size_and_magic(end)
            if size + next_size <= MAX_WINDOW_BYTES or not RECORD_BATCH_OVERHEAD <= next_size <= window.size - end:
                return None
            if next_magic != 2 or not self._has_right_crc(end, end + next_size):
                return None
        return self._chain(position, end)

    def _batch_of_right_crc(self, position: int, size: int, magic: int) -> ScannedDamage | None:
        """The batch at `position` if its CRC is right as magic 2 (a large batch, or a wrong magic byte) or, if large, as legacy."""
        row = np.empty((BATCH_COLUMNS, 1), np.int64)
        header = self._header(position)
        damage: list[Damage] = []
        if magic < 2 and size > MAX_WINDOW_BYTES and self._has_right_crc(position, position + size, legacy=True):
            computed = int(load_i32(header, 12)) & 0xFFFFFFFF
            fill_legacy_row(header, 0, position, computed, self._key, row, 0)
        elif self._has_right_crc(position, position + size):
            computed = int(load_i32(header, batch_header.CRC_AT)) & 0xFFFFFFFF
            fill_row(header, 0, position, computed, self._key, row, 0)
            if magic != 2:
                kind = "BATCH_MAGIC_REGRESSION" if magic < 2 else "BATCH_MAGIC_UNKNOWN"
                offsets = int(row[BatchColumn.BASE_OFFSET, 0]), int(row[BatchColumn.LAST_OFFSET, 0])
                damage.append(Damage(kind, position, size, *offsets, {"magic": magic, "crc_is_right_as_magic": 2}))
        else:
            return None
        self.last_offset = int(row[BatchColumn.LAST_OFFSET, 0])
        return ScannedDamage(position + size, damage, row)

    def _search(self, position: int, size: int, magic: int) -> ScannedDamage:
        """Search for the next batch, and name the bytes before it."""
        window = self._window
        rest = window.size - position
        found_at, candidates, gave_up = self.next_batch(position + 1)
        if found_at < 0 and gave_up:
            limit: Detail = {"limit": CRC_BYTES_PER_BYTE_SEARCHED, "reason": "search"}
            return ScannedDamage(window.size, [Damage("BUDGET_EXCEEDED", position, rest, detail=limit)])
        detail: Detail = {"declared_length": size - LOG_OVERHEAD, "magic": magic}
        if candidates:
            detail["candidates"] = candidates
        if found_at < 0 and (wrong_length := self._last_batch_of_wrong_length(position, size, magic, detail)) is not None:
            return ScannedDamage(window.size, [wrong_length])
        chain = self._chain(position, window.size if found_at < 0 else found_at)
        if chain is not None:
            return chain
        if found_at < 0:
            return ScannedDamage(window.size, [self._tail(position, size, magic, detail)])
        detail |= {"found_at": found_at, "runs_past_end": size > rest}
        zeros = self._zero_run(position, found_at)
        if zeros >= HOLE_BYTES:
            detail["zero_bytes"] = zeros
        kind = "SEG_HOLE" if zeros >= HOLE_BYTES else "FRAMING_LOST"
        return ScannedDamage(found_at, [Damage(kind, position, found_at - position, detail=detail)])

    def _last_batch_of_wrong_length(self, position: int, size: int, magic: int, detail: Detail) -> Damage | None:
        """Damage of the last batch if the CRC is right for all bytes up to the end of the file: only its length is wrong."""
        window = self._window
        rest = window.size - position
        if rest < RECORD_BATCH_OVERHEAD or magic != 2 or not self._has_right_crc(position, window.size):
            return None
        header = self._header(position)
        base_offset, delta = int(load_i64(header, 0)), max(int(load_i32(header, batch_header.DELTA_AT)), 0)
        detail = detail | {"reason": "wrong_length", "runs_past_end": size > rest}
        return Damage("FRAMING_LOST", position, rest, base_offset, min(base_offset + delta, INT64_MAX), detail)

    def _tail(self, position: int, size: int, magic: int, detail: Detail) -> Damage:
        """Damage up to the end of the file, with no valid batch after it."""
        window = self._window
        rest = window.size - position
        base_offset = int(load_i64(self._header(position), 0))
        zeros = self._zero_run(position, window.size)
        if size > rest and magic <= 2:
            detail |= {"reason": "batch", "bytes_present": rest}
            return Damage("SEG_TORN_TAIL", position, rest, base_offset if base_offset > self.last_offset else -1, detail=detail)
        if zeros >= HOLE_BYTES:
            return Damage("SEG_HOLE", position, rest, detail=detail | {"zero_bytes": zeros})
        return Damage("FRAMING_LOST", position, rest, detail=detail | {"reason": "nothing_follows"})

    def next_batch(self, position: int, limit: int | None = None) -> tuple[int, int, bool]:
        """(position of the first batch with the right CRC from `position` on or -1, candidates rejected, whether it gave up)."""
        window = self._window
        candidates = skipped = 0
        budget = FIRST_BUDGET_BYTES
        limit = window.size if limit is None else limit
        while position + RECORD_BATCH_OVERHEAD <= window.size and position < limit and candidates <= MAX_CANDIDATES:
            length = window.move(position, RECORD_BATCH_OVERHEAD)
            args = (window.size, self.last_offset, self._max_offset, self.legacy)
            stop, why, budget, too_large = search(window.buffer, 0, length, position, *args, budget)
            budget += int(stop) * CRC_BYTES_PER_BYTE_SEARCHED
            position += int(stop)
            skipped += int(too_large)
            if why == EXHAUSTED:
                if window.position + window.length >= window.size:
                    break
                continue
            window.move(position, RECORD_BATCH_OVERHEAD)
            size = int(plausible_size(window.buffer, 0, position, *args))
            legacy = int(window.buffer[batch_header.MAGIC_AT]) < 2
            if why == PLAUSIBLE:
                budget -= size
            is_batch = why == FOUND or self._has_right_crc(position, position + size, legacy=legacy)
            if is_batch and self._may_end_at(position + size):
                return position, candidates, False
            candidates += int(is_batch)
            position += 1
        return -1, candidates, skipped > 0 or candidates > MAX_CANDIDATES

    def _may_end_at(self, position: int) -> bool:
        """Whether a batch may end at `position`: the file ends, zeros follow, or a plausible length and magic byte."""
        if position + OUT_OF_FRAME > self._window.size:
            return True
        size, magic = self._size_and_magic(position)
        return (size >= LOG_OVERHEAD + LEGACY_V0_OVERHEAD and magic <= 2) or not self._window.buffer[:OUT_OF_FRAME].any()

    def _chain(self, position: int, end: int) -> ScannedDamage | None:
        """The batches from `position` to `end` if their declared lengths end there exactly: only bytes inside them are wrong.

        At the end of the file a zero tail may follow, or a torn batch with the next offset.
        """
        window = self._window
        rows: list[NDArray[np.int64]] = []
        damage: list[Damage] = []
        start = position
        while start < end:
            size, magic = self._size_and_magic(start)
            legacy = magic < 2
            fill = fill_legacy_row if legacy else fill_row
            least, covered_from = (MIN_BATCH_BYTES, 16) if legacy else (RECORD_BATCH_OVERHEAD, batch_header.ATTRIBUTES_AT)
            is_complete = start + size <= end and size >= least
            if not is_complete and rows and end == window.size and self._tail_follows(start, rows[-1]):
                break
            if not is_complete or len(rows) == MAX_CHAIN:
                return None
            header = self._header(start)
            found = self._batch_of_right_crc(start, size, magic) if magic != 2 and size >= RECORD_BATCH_OVERHEAD else None
            if found is not None:
                rows.append(found.rows)
                damage += found.damage
                start += size
                continue
            if magic > 2:
                return None
            computed = window.crc(start + covered_from, start + size, legacy=legacy)
            row = np.empty((BATCH_COLUMNS, 1), np.int64)
            fill(header, 0, start, computed, self._key, row, 0)
            rows.append(row)
            if row[BatchColumn.CRC, 0] != computed:
                damage.append(_crc_damage(row[:, 0], self._zero_run(start, start + size)))
            start += size
        return ScannedDamage(start, damage, np.concatenate(rows, axis=1))

    def _tail_follows(self, position: int, last_row: "NDArray[np.int64]") -> bool:
        """Whether only zeros follow at `position`, or a batch that the end of the file cuts and that continues the offsets."""
        window = self._window
        if window.all_zero_from(position):
            return True
        if window.move(position, OUT_OF_FRAME) < OUT_OF_FRAME:
            return False
        size, magic = self._size_and_magic(position)
        next_offset = int(last_row[BatchColumn.LAST_OFFSET, 0]) + 1
        return size > window.size - position and magic <= 2 and int(load_i64(window.buffer, 0)) == next_offset

    def _zero_run(self, start: int, end: int) -> int:
        """Length of the longest run of zeros in the first 16 MiB of `[start, end)`."""
        length = min(self._window.move(start, end - start), end - start)
        return int(longest_zero_run(self._window.buffer, 0, length))


def crc_damage_of_rows(window: Window, columns: "NDArray[np.int64]", first: int, end: int) -> list[Damage]:
    """Damage of the rows `[first, end)` with a wrong CRC, whose bytes are in the window."""
    damage: list[Damage] = []
    for row in np.flatnonzero(~has_right_crc(columns[:, first:end])).tolist():
        column = columns[:, first + row]
        start = int(column[BatchColumn.POSITION]) - window.position
        zeros = longest_zero_run(window.buffer, start, start + int(column[BatchColumn.SIZE_IN_BYTES]))
        damage.append(_crc_damage(column, int(zeros)))
    return damage


def _crc_damage(column: "NDArray[np.int64]", zeros: int) -> Damage:
    """Damage of a batch with a wrong CRC and a run of `zeros` zero bytes."""
    rows = [BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES, BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET]
    position, size, base_offset, last_offset = column[rows].tolist()
    detail: Detail = {"stored_crc": int(column[BatchColumn.CRC]), "computed_crc": int(column[BatchColumn.CRC_COMPUTED])}
    if zeros >= HOLE_BYTES:
        detail["zero_bytes"] = zeros
    kind = "SEG_HOLE" if zeros >= HOLE_BYTES else "BATCH_CRC_MISMATCH"
    return Damage(kind, position, size, base_offset, last_offset, detail)
