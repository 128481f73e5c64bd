"""Whether batches of different message formats hold the same records, as far as the older format can represent them.

For an old fetch request a broker converts batches down (RecordsUtil.downConvert), and a follower with an old
`inter.broker.protocol.version` stores the result. Offsets, keys, values and timestamps stay; format 1 has no headers, producers,
transactions and control batches, format 0 no timestamps either. A batch of format 2 becomes a message for each record, or one
compressed message.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from kafka_forensics.analysis.replicas import AcrossFormats
from kafka_forensics.model.batches import NO_TIMESTAMP_TYPE, TIMESTAMP_TYPES, BatchColumn, Record
from kafka_forensics.model.constants import CONTROL_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.parsers.log import HashedRecords


class Content(NamedTuple):
    """A record as it is compared: key and value, (timestamp in ms, timestamp type), and whether it has headers."""

    content: tuple[object, ...]
    time: tuple[int, str]
    has_headers: bool


class Contents(Struct, frozen=True):
    """The records of a batch by offset; a control batch has none."""

    records: dict[int, Content]
    offsets: list[int]
    """Ascending."""

    def between(self, start: int, end: int) -> Iterator[int]:
        """Offsets in `[start, end]`."""
        yield from self.offsets[bisect_left(self.offsets, start) : bisect_right(self.offsets, end)]


def contents_of_records(records: Iterable[Record], row: "NDArray[np.int64]") -> Contents:
    """The records of a decoded batch; values too large to be held differ by their sizes alone."""

    def content(record: Record) -> Content:
        payload = (record.key, record.value, record.key_length, record.value_length)
        return Content(payload, (record.timestamp, record.timestamp_type), bool(record.headers))

    return _contents(row, ((record.offset, content(record)) for record in records))


def contents_by_hash(records: "HashedRecords", row: "NDArray[np.int64]") -> Contents:
    """The hashed records of a batch, comparable with other hashed ones."""
    kind = TIMESTAMP_TYPES[bool(row[BatchColumn.ATTRIBUTES] & TIMESTAMP_TYPE_MASK)] if row[BatchColumn.MAGIC] else NO_TIMESTAMP_TYPE
    columns = (records.offsets, records.keys, records.key_lengths, records.values, records.value_lengths)
    rows = zip(*(column.tolist() for column in (*columns, records.timestamps, records.headers)), strict=True)

    def content(key: list[int], key_length: int, value: int, value_length: int, timestamp: int, headers: int) -> Content:
        payload = (tuple(key) if key_length >= 0 else None, key_length, value if value_length >= 0 else None, value_length)
        return Content(payload, (timestamp, kind), headers != 0)

    return _contents(row, ((offset, content(*hashes)) for offset, *hashes in rows))


def _contents(row: "NDArray[np.int64]", records: Iterable[tuple[int, Content]]) -> Contents:
    control = row[BatchColumn.MAGIC] >= 2 and row[BatchColumn.ATTRIBUTES] & CONTROL_MASK
    by_offset = {} if control else dict(records)
    return Contents(by_offset, sorted(by_offset))


def compared_across_formats(sides: list[Contents], rows: "list[NDArray[np.int64]]", *, common: bool) -> AcrossFormats:
    """How the records of two batches compare at the offsets that both span (`common`: only at the offsets that both hold)."""
    start = max(int(row[BatchColumn.BASE_OFFSET]) for row in rows)
    end = min(int(row[BatchColumn.LAST_OFFSET]) for row in rows)
    by_magic = sorted(zip(sides, rows, strict=True), key=lambda side: int(side[1][BatchColumn.MAGIC]))
    (older, _), (newer, newest) = by_magic
    in_older, in_newer = set(older.between(start, end)), set(newer.between(start, end))
    shared = in_older & in_newer
    different = {offset for offset in shared if not _equal(older.records[offset], newer.records[offset])}
    if not common:
        different |= in_older ^ in_newer
    if different:
        return AcrossFormats((min(different), max(different) + 1))
    not_held = set()
    if any(NO_TIMESTAMP_TYPE in {side.records[offset].time[1] for side in sides} for offset in shared):
        not_held.add("timestamps")
    if any(newer.records[offset].has_headers for offset in shared):
        not_held.add("headers")
    if newest[BatchColumn.MAGIC] >= 2 and newest[BatchColumn.ATTRIBUTES] & TRANSACTIONAL_MASK and shared:
        not_held.add("transactions")
    return AcrossFormats(None, frozenset(not_held))


def _equal(older: Content, newer: Content) -> bool:
    """Whether two records have the same key and value, and the same timestamp where both formats have one."""
    timed = NO_TIMESTAMP_TYPE not in (older.time[1], newer.time[1])
    return older.content == newer.content and (not timed or older.time == newer.time)
