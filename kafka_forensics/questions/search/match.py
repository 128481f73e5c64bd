"""What a search asks of a record, and which batches cannot hold such a one: their headers and bytes say so undecoded."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import COMPRESSION_MASK, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from kafka_forensics.model.records import Record, RecordColumn
from kafka_forensics.parsers.log import HELD_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.log import DecodedBatch


@dataclass(frozen=True, slots=True)
class Conditions:
    """What every record found must fulfil; None (or no header) is "not asked". Ends are exclusive, times milliseconds.

    A header is (name, value), a value of None is any. A record without a timestamp lies in no range of times.
    """

    key: bytes | None = None
    offset_start: int | None = None
    offset_end: int | None = None
    timestamp_start_ms: int | None = None
    timestamp_end_ms: int | None = None
    producer_id: int | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    value_part: bytes | None = None

    @property
    def asks_time(self) -> bool:
        """Whether a range of times is asked for."""
        return self.timestamp_start_ms is not None or self.timestamp_end_ms is not None

    @property
    def asks_content(self) -> bool:
        """Whether keys, values or headers must be looked at."""
        return bool(self.key is not None or self.headers or self.value_part is not None)

    @property
    def needles(self) -> list[bytes]:
        """What must stand somewhere in the bytes of a batch that holds a match, the longest first."""
        parts = [self.key, self.value_part, *(part for header in self.headers for part in header)]
        return sorted({part for part in parts if part}, key=lambda part: (-len(part), part))

    def batches(self, columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Which batches of a chunk's matrix may hold a match by their headers alone.

        The base timestamp is that of the first record and not the least, so only the maximum proves anything, and only under a
        right CRC. What a compressed message of the old formats holds is not told by its header.
        """
        magic, attributes = columns[BatchColumn.MAGIC], columns[BatchColumn.ATTRIBUTES]
        wrapper = (magic < 2) & ((attributes & COMPRESSION_MASK) != 0)
        may = np.ones(columns.shape[1], np.bool_)
        if self.offset_start is not None:
            may &= columns[BatchColumn.LAST_OFFSET] >= self.offset_start
        if self.offset_end is not None:
            may &= (columns[BatchColumn.BASE_OFFSET] < self.offset_end) | wrapper
        if self.producer_id is not None:
            may &= columns[BatchColumn.PRODUCER_ID] == self.producer_id
        if self.asks_time:
            last = columns[BatchColumn.MAX_TIMESTAMP]
            unsure = (columns[BatchColumn.CRC] != columns[BatchColumn.CRC_COMPUTED]) | wrapper
            may &= (last >= (self.timestamp_start_ms or 0)) | unsure
            if self.timestamp_end_ms is not None:
                appended = (magic >= 2) & ((attributes & TIMESTAMP_TYPE_MASK) != 0)
                may &= ~appended | (last < self.timestamp_end_ms) | unsure
        return may

    def records(self, base_offset: int, columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Which records of a magic 2 batch, a (RECORD_COLUMNS, n) matrix, may fit by their offsets and sizes."""
        may = np.ones(columns.shape[1], np.bool_)
        if self.offset_start is not None:
            may &= columns[RecordColumn.OFFSET_DELTA] >= self.offset_start - base_offset
        if self.offset_end is not None:
            may &= columns[RecordColumn.OFFSET_DELTA] < self.offset_end - base_offset
        if self.key is not None:
            may &= columns[RecordColumn.KEY_LENGTH] == len(self.key)
        if self.value_part is not None:
            may &= columns[RecordColumn.VALUE_LENGTH] >= len(self.value_part)
        if self.headers:
            may &= columns[RecordColumn.HEADERS_COUNT] > 0
        return may

    def fits(self, record: Record) -> bool | None:
        """Whether a record of a batch that may hold a match is one; None if it is too large to be looked into."""
        if not _within(record.offset, self.offset_start, self.offset_end):
            return False
        if self.asks_time and (
            record.timestamp == NO_TIMESTAMP or not _within(record.timestamp, self.timestamp_start_ms, self.timestamp_end_ms)
        ):
            return False
        if self.key is not None and record.key_length != len(self.key):
            return False
        if self.value_part is not None and record.value_length < len(self.value_part):
            return False
        if record.is_oversized:
            return None if self.asks_content else True
        if self.key is not None and record.key != self.key:
            return False
        if self.value_part is not None and self.value_part not in (record.value or b""):
            return False
        return all(any(_same(header, asked) for header in record.headers) for asked in self.headers)


def _within(number: int, start: int | None, end: int | None) -> bool:
    return (start is None or number >= start) and (end is None or number < end)


def _same(header: tuple[bytes, bytes | None], asked: tuple[bytes, bytes | None]) -> bool:
    return header[0] == asked[0] and (asked[1] is None or header[1] == asked[1])


def holding(data: bytes, starts: Sequence[int], sizes: Sequence[int], needles: Sequence[bytes]) -> list[int]:
    """Indices of the stretches `[start, start + size)` of `data`, ascending and apart, that hold each of `needles` whole.

    One pass for the first needle, the others are looked for only where it was found.
    """
    if not needles:
        return list(range(len(starts)))
    first, *others = needles
    found = []
    at = data.find(first, starts[0]) if starts else -1
    while at >= 0:
        index = bisect_right(starts, at) - 1
        end = starts[index] + sizes[index]
        if at + len(first) <= end:
            if all(data.find(each, starts[index], end) >= 0 for each in others):
                found.append(index)
            at = end - 1  # whatever else this stretch holds of it
        elif at >= end:
            if index + 1 == len(starts):
                break
            at = starts[index + 1] - 1
        at = data.find(first, at + 1)
    return found


def may_hold(decoded: "DecodedBatch", needles: Sequence[bytes]) -> bool:
    """Whether the payload of an opened batch holds all `needles`; one of which only a part is held may always."""
    if not needles or len(decoded.payload) >= HELD_BYTES:
        return True
    payload = decoded.payload if isinstance(decoded.payload, bytes) else bytes(decoded.payload)
    return all(needle in payload for needle in needles)
