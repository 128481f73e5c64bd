"""A segment as Kafka's loader steps over it: from frame to frame by their lengths, no CRC computed (FileLogInputStream)."""

import struct
from collections.abc import Iterator
from typing import Final

from kafka_forensics.storage.source import ByteFile

_HEADER: Final = struct.Struct(">qiib")
"""Base offset, length, and, if its magic is 2, the leader epoch before it."""
_HEADER_UP_TO_MAGIC: Final = 17
_DELTA: Final = struct.Struct(">i")
_DELTA_POSITION: Final = 23
_LOG_OVERHEAD: Final = 12
_SMALLEST_LENGTH: Final = 14
_WINDOW: Final = 64 << 10


def read_next_offset(log: ByteFile, base_offset: int, entry: tuple[int, int]) -> int | None:
    """The next offset behind the last batch, as found from an index entry (absolute offset, byte position); None if reading throws.

    From that position on the batch that holds the offset is looked for, by base offsets as Kafka 4.3 does; the last batch behind it
    counts. If none is found, the segment's base offset is taken for its end (LogSegment.readNextOffset,
    FileRecords.searchForOffsetFromPosition). Raises SourceError.
    """
    target = entry[0]
    found = False
    last: int | None = None
    for batch in _frames(log, max(entry[1], 0)):
        if batch is None:
            return None
        base, end = batch
        found = found or base >= target
        last = end
    if found or (last is not None and last > target):
        return last
    return base_offset


def _frames(log: ByteFile, position: int) -> Iterator[tuple[int, int] | None]:
    """(base offset, next offset) of every batch from a position on that fits; None where a length throws."""
    size = log.size_in_bytes
    window, start = b"", 0
    while position < size - _HEADER_UP_TO_MAGIC:
        if not start <= position <= start + len(window) - _DELTA_POSITION - _DELTA.size:
            window, start = log.read_at(position, _WINDOW), position
        if position + _HEADER_UP_TO_MAGIC > start + len(window):
            return
        offset, length, _, magic = _HEADER.unpack_from(window, position - start)
        if length < _SMALLEST_LENGTH:
            yield None
            return
        if position > size - _LOG_OVERHEAD - length:
            return
        delta = 0
        if magic >= 2 and position - start + _DELTA_POSITION + _DELTA.size <= len(window):
            (delta,) = _DELTA.unpack_from(window, position - start + _DELTA_POSITION)
        yield offset, offset + delta + 1
        position += _LOG_OVERHEAD + length


def last_entry(index: ByteFile, base_offset: int) -> tuple[int, int]:
    """The last entry of a `.index` as its length says, zeros and all: (absolute offset, byte position). Raises SourceError."""
    entries = index.size_in_bytes // 8
    if entries == 0:
        return base_offset, 0
    data = index.read_at(8 * (entries - 1), 8)
    if len(data) < 8:
        return base_offset, 0
    relative, position = struct.unpack(">ii", data)
    return base_offset + relative, position
