"""What is wrong where the walk stopped, and where the next batch is."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn, Damage
from kafka_forensics.model.constants import INT64_MAX, LOG_OVERHEAD
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile


# A sliding window over a file of evidence: the bytes the kernels look at, and never many of them.


WINDOW_BYTES: Final = 2 << 20
"""Bytes of an ordinary window: few enough that what a read brought is still in a cache when the CRC passes over it."""
FIRST_WINDOW_BYTES: Final = 256 << 10
"""Bytes of the first window: a short call shows what kernels take for such batches, and whether to compile them."""
MAX_WINDOW_BYTES: Final = 16 << 20
"""A batch larger than this is never held whole; its CRC is streamed."""


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
        """Make the window begin at `position` and hold `needed` bytes or all up to the end of file; its length.

        A file that became shorter since it was opened ends where its bytes end: `size` is lowered.
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
        want = min(self.buffer.size, self.size - position) - kept
        if want > 0:
            got = self.file.read_into(position + kept, self.buffer.data[kept : kept + want])
            self.length += got
            if got < want:
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
"""A run of zeros this long inside damage is a page that never reached the disk."""
CRC_BYTES_PER_BYTE_SEARCHED: Final = 8
FIRST_BUDGET_BYTES: Final = 16 << 20
"""Bytes under CRC that a search may spend before it has searched any."""
VAIN_CRC_BYTES_PER_BYTE: Final = 64
"""Bytes under CRCs that prove nothing, for each byte of the file; then declared lengths are believed no more: many lengths that
lie would have a segment read again and again."""
MAX_CHAIN: Final = 1024
"""Damaged batches in a row that are told apart; more of them are one damaged range."""
MAX_CANDIDATES: Final = 4096
"""Batches found by searching that nothing sound follows, after which the search gives up."""
HEADER_BYTES: Final = 61
OUT_OF_FRAME: Final = 17
"""Fewer bytes than this cannot hold an entry of any format; Kafka ignores them. Of these, fewer than `LOG_OVERHEAD` zeros are no
zero tail but a header cut short: every offset begins with zeros, no length is zero."""


@dataclass(slots=True)
class SavedRows:
    """Rows saved from a damaged place, (BATCH_COLUMNS, n), the damage, and where to go on."""

    end: int
    damage: list[Damage]
    rows: "NDArray[np.int64]" = field(default_factory=lambda: np.empty((BATCH_COLUMNS, 0), np.int64))


class Trouble:
    """Explains places at which the walk stopped; `last_offset` is that of the last good batch, -1 before the first."""

    def __init__(self, window: Window, key: "NDArray[np.int64]", max_plausible_offset: int) -> None:
        self._window = window
        self._key = key
        self._max_offset = max_plausible_offset
        self.last_offset = -1
        self.legacy = True
        """Whether batches of magic 0 or 1 may follow."""
        self._allowance = VAIN_CRC_BYTES_PER_BYTE * (window.size + (1 << 20))

    def explain(self, position: int) -> SavedRows:
        """The outcome for the place at byte `position`."""
        window = self._window
        if window.size - position >= LOG_OVERHEAD and window.all_zero_from(position):
            return SavedRows(window.size, [Damage("SEG_ZERO_TAIL", position, window.size - position)])
        window.move(position, HEADER_BYTES)
        rest = window.size - position
        if rest < OUT_OF_FRAME:
            return SavedRows(window.size, [Damage("SEG_TORN_TAIL", position, rest, detail={"reason": "header"})])
        size = int(load_i32(window.buffer, 8)) + 12
        magic = int(window.buffer[16])
        if HEADER_BYTES <= size <= min(rest, self._allowance):
            outcome = self._proved_in_spite(position, size, magic) or self._framed(position, size, magic)
            if outcome is not None:
                return outcome
            self._allowance -= size
        return self._lost(position, size, magic)

    def _framed(self, position: int, size: int, magic: int) -> SavedRows | None:
        """The damaged batch at `position` if its frame holds, as the walk would have seen had both batches fitted its window."""
        window = self._window
        end = position + size
        if magic != 2:
            return None
        if end < window.size:
            if window.move(end, HEADER_BYTES) < HEADER_BYTES:
                return None
            following = int(load_i32(window.buffer, 8)) + 12
            if size + following <= MAX_WINDOW_BYTES or not HEADER_BYTES <= following <= window.size - end:
                return None
            if int(window.buffer[16]) != 2 or not self._streamed(end, following):
                return None
        return self._chain(position, end)

    def _proved_in_spite(self, position: int, size: int, magic: int) -> SavedRows | None:
        """The batch at `position` if its CRC is right as magic 2 (or, streamed, as legacy): too large, or its magic byte lies."""
        window = self._window
        window.move(position, HEADER_BYTES)
        header = window.buffer[:HEADER_BYTES].copy()
        if magic < 2 and size > MAX_WINDOW_BYTES:
            computed = window.crc(position + 16, position + size, legacy=True)
            if computed == int(load_i32(header, 12)) & 0xFFFFFFFF:
                rows = np.empty((BATCH_COLUMNS, 1), np.int64)
                fill_legacy_row(header, 0, position, computed, self._key, rows, 0)
                return self._saved(position, size, rows, [])
        computed = window.crc(position + 21, position + size, legacy=False)
        if computed != int(load_i32(header, 17)) & 0xFFFFFFFF:
            return None
        rows = np.empty((BATCH_COLUMNS, 1), np.int64)
        fill_row(header, 0, position, computed, self._key, rows, 0)
        damage = []
        if magic != 2:
            kind = "BATCH_MAGIC_REGRESSION" if magic < 2 else "BATCH_MAGIC_UNKNOWN"
            first, last = int(rows[BatchColumn.BASE_OFFSET, 0]), int(rows[BatchColumn.LAST_OFFSET, 0])
            damage.append(Damage(kind, position, size, first, last, {"magic": magic, "crc_is_right_as_magic": 2}))
        return self._saved(position, size, rows, damage)

    def _saved(self, position: int, size: int, rows: "NDArray[np.int64]", damage: list[Damage]) -> SavedRows:
        self.last_offset = int(rows[BatchColumn.LAST_OFFSET, 0])
        return SavedRows(position + size, damage, rows)

    def _lost(self, position: int, size: int, magic: int) -> SavedRows:
        """No batch proves itself at `position`: find the next one, and name what lies between."""
        window = self._window
        rest = window.size - position
        next_position, candidates, spent = self.next_batch(position + 1)
        if next_position < 0 and spent:
            spent_on: dict[str, int | str | bool | list[int]] = {"limit": CRC_BYTES_PER_BYTE_SEARCHED, "reason": "search"}
            return SavedRows(window.size, [Damage("BUDGET_EXCEEDED", position, rest, detail=spent_on)])
        window.move(position, HEADER_BYTES)
        base_offset = int(load_i64(window.buffer, 0))
        detail: dict[str, int | str | bool | list[int]] = {"declared_length": size - 12, "magic": magic}
        if candidates:
            detail["candidates"] = candidates
        lie = self._length_lies(position, size, magic, base_offset, detail) if next_position < 0 else None
        if lie is not None:
            return SavedRows(window.size, [lie])
        chain = self._chain(position, window.size if next_position < 0 else next_position)
        if chain is not None:
            return chain
        if next_position < 0:
            return SavedRows(window.size, [self._tail(position, size, magic, base_offset, detail)])
        detail["found_at"] = next_position
        detail["runs_past_end"] = size > rest
        kind = "FRAMING_LOST"
        zeros = self._zero_run(position, next_position)
        if zeros >= HOLE_BYTES:
            kind = "SEG_HOLE"
            detail["zero_bytes"] = zeros
        return SavedRows(next_position, [Damage(kind, position, next_position - position, detail=detail)])

    def _length_lies(
        self, position: int, size: int, magic: int, base_offset: int, detail: dict[str, int | str | bool | list[int]]
    ) -> Damage | None:
        """Damage of the last batch if all bytes up to the end of the file give its CRC: only its length is wrong."""
        window = self._window
        rest = window.size - position
        if rest < HEADER_BYTES or magic != 2:
            return None
        window.move(position, HEADER_BYTES)
        header = window.buffer[:HEADER_BYTES].copy()
        if window.crc(position + 21, window.size, legacy=False) != int(load_i32(header, 17)) & 0xFFFFFFFF:
            return None
        delta = max(int(load_i32(header, 23)), 0)
        detail = detail | {"reason": "length_lies", "runs_past_end": size > rest}
        return Damage("FRAMING_LOST", position, rest, base_offset, min(base_offset + delta, INT64_MAX), detail)

    def _tail(
        self, position: int, size: int, magic: int, base_offset: int, detail: dict[str, int | str | bool | list[int]]
    ) -> Damage:
        """Damage up to the end of the file, behind which no batch proves itself."""
        window = self._window
        rest = window.size - position
        zeros = self._zero_run(position, window.size)
        if size > rest and magic <= 2:
            detail |= {"reason": "batch", "bytes_present": rest}
            return Damage("SEG_TORN_TAIL", position, rest, base_offset if base_offset > self.last_offset else -1, detail=detail)
        if zeros >= HOLE_BYTES:
            return Damage("SEG_HOLE", position, rest, detail=detail | {"zero_bytes": zeros})
        return Damage("FRAMING_LOST", position, rest, detail=detail | {"reason": "nothing_follows"})

    def next_batch(self, position: int, limit: int | None = None) -> tuple[int, int, bool]:
        """(position of the first batch from `position` on that proves itself or -1, candidates refused, budget spent or not)."""
        window = self._window
        candidates = refused = 0
        budget = FIRST_BUDGET_BYTES
        limit = window.size if limit is None else limit
        while position + HEADER_BYTES <= window.size and position < limit and candidates <= MAX_CANDIDATES:
            length = window.move(position, HEADER_BYTES)
            args = (window.size, self.last_offset, self._max_offset, self.legacy)
            stop, why, budget, passed = search(window.buffer, 0, length, position, *args, budget)
            budget += int(stop) * CRC_BYTES_PER_BYTE_SEARCHED
            position += int(stop)
            refused += int(passed)
            if why == EXHAUSTED:
                if window.position + window.length >= window.size:
                    break
                continue
            window.move(position, HEADER_BYTES)
            size = int(plausible_size(window.buffer, 0, position, *args))
            if why == PLAUSIBLE:
                budget -= size
            proved = why == FOUND or self._streamed(position, size)
            if proved and self._followed(position + size):
                return position, candidates, False
            candidates += int(proved)
            position += 1
        return -1, candidates, refused > 0 or candidates > MAX_CANDIDATES

    def _streamed(self, position: int, size: int) -> bool:
        """Whether the batch at `position`, longer than the window, proves itself."""
        window = self._window
        window.move(position, HEADER_BYTES)
        legacy = int(window.buffer[16]) < 2
        stored = int(load_i32(window.buffer, 12 if legacy else 17)) & 0xFFFFFFFF
        return window.crc(position + (16 if legacy else 21), position + size, legacy=legacy) == stored

    def _followed(self, position: int) -> bool:
        """Whether a believed batch may end at `position`: the file ends, or a sound length and magic byte follow."""
        window = self._window
        if position + OUT_OF_FRAME > window.size:
            return True
        window.move(position, OUT_OF_FRAME)
        size = int(load_i32(window.buffer, 8)) + 12
        return (size >= HEADER_BYTES - 35 and int(window.buffer[16]) <= 2) or not window.buffer[:OUT_OF_FRAME].any()

    def _chain(self, position: int, end: int) -> SavedRows | None:
        """Rows of the batches from `position` to `end` if their declared lengths lead there exactly: only bytes in them are bad.

        At the end of the file they may also lead to a zero tail, or to a torn batch that continues their offsets.
        """
        window = self._window
        rows: list[NDArray[np.int64]] = []
        damage: list[Damage] = []
        start = position
        while start < end:
            window.move(start, HEADER_BYTES)
            size = int(load_i32(window.buffer, 8)) + 12
            magic = int(window.buffer[16])
            legacy = magic < 2
            least, covered_from, fill = (26, 16, fill_legacy_row) if legacy else (HEADER_BYTES, 21, fill_row)
            whole = start + size <= end and size >= least
            if not whole and rows and end == window.size and self._ends_at(start, int(rows[-1][BatchColumn.LAST_OFFSET, 0])):
                break
            if not whole or len(rows) == MAX_CHAIN:
                return None
            header = window.buffer[:HEADER_BYTES].copy()
            proved = self._proved_in_spite(start, size, magic) if magic != 2 and size >= HEADER_BYTES else None
            if proved is not None:
                rows.append(proved.rows)
                damage += proved.damage
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
        return SavedRows(start, damage, np.concatenate(rows, axis=1))

    def _ends_at(self, position: int, last_offset: int) -> bool:
        """Whether whole batches may end at `position` before the file does: zeros to its end, or a batch cut short there."""
        window = self._window
        if window.all_zero_from(position):
            return True
        if window.move(position, OUT_OF_FRAME) < OUT_OF_FRAME:
            return False
        size = int(load_i32(window.buffer, 8)) + 12
        return size > window.size - position and int(window.buffer[16]) <= 2 and int(load_i64(window.buffer, 0)) == last_offset + 1

    def _zero_run(self, start: int, end: int) -> int:
        """Longest run of zeros in the first 16 MiB of file bytes `[start, end)`."""
        length = min(self._window.move(start, end - start), end - start)
        return int(longest_zero_run(self._window.buffer, 0, length))


def contained_damage(window: Window, columns: "NDArray[np.int64]", first: int, end: int) -> list[Damage]:
    """Damage of the rows `[first, end)` whose CRC is wrong though their frame holds; their bytes lie in the window."""
    wrong = columns[BatchColumn.CRC, first:end] != columns[BatchColumn.CRC_COMPUTED, first:end]
    damage: list[Damage] = []
    if not wrong.any():
        return damage
    for row in np.flatnonzero(wrong):
        column = columns[:, first + int(row)]
        start = int(column[BatchColumn.POSITION]) - window.position
        size = int(column[BatchColumn.SIZE_IN_BYTES])
        damage.append(_crc_damage(column, int(longest_zero_run(window.buffer, start, start + size))))
    return damage


def _crc_damage(column: "NDArray[np.int64]", zeros: int) -> Damage:
    """Damage of a batch whose bytes do not give its CRC."""
    detail: dict[str, int | str | bool | list[int]] = {
        "stored_crc": int(column[BatchColumn.CRC]),
        "computed_crc": int(column[BatchColumn.CRC_COMPUTED]),
    }
    if zeros >= HOLE_BYTES:
        detail["zero_bytes"] = zeros
    return Damage(
        "SEG_HOLE" if zeros >= HOLE_BYTES else "BATCH_CRC_MISMATCH",
        int(column[BatchColumn.POSITION]),
        int(column[BatchColumn.SIZE_IN_BYTES]),
        int(column[BatchColumn.BASE_OFFSET]),
        int(column[BatchColumn.LAST_OFFSET]),
        detail,
    )
