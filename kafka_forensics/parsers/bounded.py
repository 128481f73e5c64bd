"""Reading small text files and index files in bounded time and memory."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct, field

from kafka_forensics.model.batches import Damage
from kafka_forensics.storage.source import ByteFile, range_reader

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_DAMAGE_ROWS: Final = 32
MAX_TEXT_BYTES: Final = 64 << 20
MAX_LINE_BYTES: Final = 64 << 10
MAX_LINES: Final = 1 << 20
"""Several times the partitions of any broker."""
MAX_INDEX_BYTES: Final = 64 << 20
"""Limit of decoded index entries: six times what a broker preallocates by default."""
MAX_SCANNED_BYTES: Final = 2**31 - 1
"""Limit up to which the zeros after the entries are read: Kafka maps an index at once, so none is longer."""
_WINDOW: Final = 1 << 20
FETCHED_BYTES: Final = 64 << 10
"""Bytes of an index per read from remote storage."""
ENOUGH_ZEROS: Final = FETCHED_BYTES // 2
"""If a read from remote storage ends with this many zeros, and the index ends in zeros, the rest is taken for zeros."""
_LINE: Final = re.compile(rb"([^\r\n]*)(\r\n|\r|\n)?")


class DamageList(Struct):
    """Damage rows of one `kind`: the first `limit`, and one row that counts the rest."""

    kind: str
    limit: int = MAX_DAMAGE_ROWS
    _rows: list[Damage] = field(default_factory=list)
    _more: int = 0
    _more_start: int = 0
    _more_end: int = 0

    def add(self, position: int, size_in_bytes: int, reason: str, **detail: int | str | bool) -> None:
        """Add bytes `[position, position + size_in_bytes)` with a short reason."""
        if len(self._rows) < self.limit:
            self._rows.append(Damage(self.kind, position, size_in_bytes, detail={"reason": reason, **detail}))
            return
        self._more_start = min(self._more_start, position) if self._more else position
        self._more_end = max(self._more_end, position + size_in_bytes)
        self._more += 1

    def rows(self) -> list[Damage]:
        """The rows in the order of `add`; after `limit` rows one with the reason `more` and the `count` of the others."""
        if not self._more:
            return list(self._rows)
        size = self._more_end - self._more_start
        return [*self._rows, Damage(self.kind, self._more_start, size, detail={"reason": "more", "count": self._more})]


class TextLine(Struct, frozen=True):
    """One line: `number` from 1, `content` without its line end, None if it is too long."""

    number: int
    position: int
    size_in_bytes: int
    """With the line end."""
    content: bytes | None
    terminated: bool


class Text(Struct):
    """A text file read up to a limit; `complete` is False if the rest is unread."""

    data: bytes
    complete: bool

    def lines(self, damage: DamageList) -> Iterator[TextLine]:
        """Lines that end with LF, CR LF or CR (as in Java), at most 2^20; omitted lines are added to `damage`."""
        for number, match in enumerate(_LINE.finditer(self.data), 1):
            start, end = match.span()
            if start == len(self.data):
                return
            if number > MAX_LINES:
                self.complete = False
                damage.add(start, len(self.data) - start, "too_many_lines", line=number)
                return
            if end == len(self.data) and match[2] is None and not self.complete:
                return
            short = match.end(1) - start <= MAX_LINE_BYTES
            if not short:
                damage.add(start, end - start, "line_too_long", line=number)
            yield TextLine(number, start, end - start, match[1] if short else None, match[2] is not None)


def read_text(file: ByteFile, damage: DamageList, limit: int = MAX_TEXT_BYTES) -> Text:
    """The first `limit` bytes of `file`; a longer file is damage `oversized`, one of only NUL bytes is damage `zeros` and empty."""
    size = file.size_in_bytes
    data = file.read_at(0, min(size, limit))
    if size > limit:
        damage.add(limit, size - limit, "oversized", limit=limit)
    if data and data.count(0) == len(data):
        damage.add(0, len(data), "zeros")
        return Text(b"", complete=False)
    return Text(data, complete=size <= limit)


_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,19}")


def parse_integer(token: bytes, smallest: int, largest: int) -> int | None:
    """The ASCII decimal number `token`, of at most 19 digits; None for anything else, or outside the bounds (inclusive)."""
    if not _INTEGER.fullmatch(token):
        return None
    value = int(token)
    return value if smallest <= value <= largest else None


class IndexEntries(Struct):
    """Fixed-size entries of an index file: a structured array, the zeros after it, and damage, which together tile the file."""

    entries: "NDArray[Any]"
    zero_tail_bytes: int
    damage: list[Damage]


def read_index_entries(file: ByteFile, entry: "np.dtype[Any]", limit: int = MAX_INDEX_BYTES) -> IndexEntries:
    """Every entry of type `entry` up to the last that is not all zeros; holes are not read.

    Trailing bytes without a full entry are damage `INDEX_MISMATCH` (`partial_entry`); data after `limit` is `BUDGET_EXCEEDED`
    and not decoded. Zeros between entries are entries.
    """
    size, width = file.size_in_bytes, entry.itemsize
    whole, limit = size - size % width, limit - limit % width
    scanned = min(whole, MAX_SCANNED_BYTES - MAX_SCANNED_BYTES % width)
    ranges = file.data_ranges()
    windows, data_end = _windows_with_data(file, ranges, scanned, limit)
    kept_end = min(-(-data_end // width) * width, limit)
    content = np.zeros(kept_end, np.uint8)
    while windows:  # popped, to free each at once
        position, data = windows.pop()
        kept = np.frombuffer(data, np.uint8)[: kept_end - position]
        content[position : position + len(kept)] = kept
    unread = whole
    if data_end > limit:
        unread = limit
    elif scanned < whole and any(stop > scanned for _, stop in ranges):
        unread = scanned
    damage = []
    if unread < whole:
        detail: dict[str, int | str | bool | list[int]] = {"reason": "index_too_large", "limit": limit}
        damage.append(Damage("BUDGET_EXCEEDED", unread, whole - unread, detail=detail))
    if whole < size:
        detail = {"reason": "partial_entry", "entry_size": width, "file_size": size}
        damage.append(Damage("INDEX_MISMATCH", whole, size - whole, detail=detail))
    return IndexEntries(content.view(entry), unread - kept_end, damage)


def _windows_with_data(file: ByteFile, ranges: list[tuple[int, int]], end: int, limit: int) -> tuple[list[tuple[int, bytes]], int]:
    """Windows (position, bytes without trailing zeros) that start below `limit`, and the end of the last byte that is not zero."""
    windows: list[tuple[int, bytes]] = []
    data_end = 0
    for position, read in _windows(file, ranges, end) if range_reader(file) is None else _fetched_windows(file, end):
        if data := read.rstrip(b"\0"):
            data_end = max(data_end, position + len(data))
            if position < limit:
                windows.append((position, data))
    return windows, data_end


def _windows(file: ByteFile, ranges: list[tuple[int, int]], end: int) -> Iterator[tuple[int, bytes]]:
    for start, stop in ranges:
        for position in range(start, min(stop, end), _WINDOW):
            yield position, file.read_at(position, min(_WINDOW, min(stop, end) - position))


def _fetched_windows(file: ByteFile, end: int) -> Iterator[tuple[int, bytes]]:
    """Windows of a file in remote storage, the last one first. If that ends in zeros, as in a preallocated index of 10 MiB, reading
    stops at the first window that ends in `ENOUGH_ZEROS`."""
    tail = max(0, end - FETCHED_BYTES)
    last = file.read_at(tail, end - tail)
    yield tail, last
    ends_in_zeros = not last.strip(b"\0")
    for position in range(0, tail, FETCHED_BYTES):
        window = file.read_at(position, min(FETCHED_BYTES, tail - position))
        yield position, window
        if ends_in_zeros and len(window.rstrip(b"\0")) <= len(window) - ENOUGH_ZEROS:
            return
