"""Batches of different message formats: whether they hold the same records, as far as the older format can hold them.

A broker that answers an old fetch request converts batches down (RecordsUtil.downConvert): offsets, keys, values and timestamps
stay; headers, producers, transactions and control batches do not exist before format 2, nor timestamps before format 1. A
follower that fetched so while its `inter.broker.protocol.version` was old stored what it got. One batch of format 2 becomes one
message a record or, if it is compressed, one compressed message.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafka_forensics.analysis.replicas import AcrossFormats
from kafka_forensics.model.batches import NO_TIMESTAMP_TYPE, TIMESTAMP_TYPES, BatchColumn, Record
from kafka_forensics.model.constants import CONTROL_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.parsers.log import HashedRecords


class Content(NamedTuple):
    """What a record holds: key and value as they are compared, its timestamp in milliseconds with its type, and whether it has
    headers."""

    content: tuple[object, ...]
    time: tuple[int, str]
    has_headers: bool


@dataclass(frozen=True, slots=True)
class Contents:
    """Records of a batch by offset, those of control batches left out."""

    records: dict[int, Content]
    offsets: list[int]
    """Ascending."""

    def between(self, start: int, end: int) -> Iterator[int]:
        """Offsets in `[start, end]`."""
        yield from self.offsets[bisect_left(self.offsets, start) : bisect_right(self.offsets, end)]


def contents_of(records: Iterable[Record], row: "NDArray[np.int64]") -> Contents:
    """Of a decoded batch; values too large to be held are told apart by their sizes alone."""

    def content(record: Record) -> Content:
        payload = (record.key, record.value, record.key_length, record.value_length)
        return Content(payload, (record.timestamp, record.timestamp_type), bool(record.headers))

    return _contents(row, ((record.offset, content(record)) for record in records))


def contents_by_hash(records: "HashedRecords", row: "NDArray[np.int64]") -> Contents:
    """Of a batch of which hashes are known, which can be compared with other hashes."""
    kind = TIMESTAMP_TYPES[bool(row[BatchColumn.ATTRIBUTES] & TIMESTAMP_TYPE_MASK)] if row[BatchColumn.MAGIC] else NO_TIMESTAMP_TYPE
    columns = (records.offsets, records.key_lengths, records.value_lengths, records.values, records.timestamps, records.headers)
    rows = zip(*(column.tolist() for column in columns), records.keys.tolist(), strict=True)

    def content(size: int, length: int, value: int, time: int, headers: int, key: list[int]) -> Content:
        payload = (tuple(key) if size >= 0 else None, size, value if length >= 0 else None, length)
        return Content(payload, (time, kind), headers != 0)

    return _contents(row, ((offset, content(*facts)) for offset, *facts in rows))


def _contents(row: "NDArray[np.int64]", records: Iterable[tuple[int, Content]]) -> Contents:
    control = row[BatchColumn.MAGIC] >= 2 and row[BatchColumn.ATTRIBUTES] & CONTROL_MASK
    by_offset = {} if control else dict(records)
    return Contents(by_offset, sorted(by_offset))


def compared_across_formats(sides: list[Contents], rows: "list[NDArray[np.int64]]", *, common: bool) -> AcrossFormats:
    """How the records of two batches compare at the offsets that both span (`common`: only where both hold the offset)."""
    start = max(int(row[BatchColumn.BASE_OFFSET]) for row in rows)
    end = min(int(row[BatchColumn.LAST_OFFSET]) for row in rows)
    older, newer = (sides[index] for index in sorted((0, 1), key=lambda index: int(rows[index][BatchColumn.MAGIC])))
    newest = max(rows, key=lambda row: int(row[BatchColumn.MAGIC]))
    held = set(older.between(start, end)), set(newer.between(start, end))
    shared = held[0] & held[1]
    unlike = {offset for offset in shared if not _alike(older.records[offset], newer.records[offset])}
    if not common:
        unlike |= held[0] ^ held[1]
    if unlike:
        return AcrossFormats((min(unlike), max(unlike) + 1))
    not_held = set()
    if any(NO_TIMESTAMP_TYPE in {side.records[offset].time[1] for side in sides} for offset in shared):
        not_held.add("timestamps")
    if any(newer.records[offset].has_headers for offset in shared):
        not_held.add("headers")
    if newest[BatchColumn.MAGIC] >= 2 and newest[BatchColumn.ATTRIBUTES] & TRANSACTIONAL_MASK and shared:
        not_held.add("transactions")
    return AcrossFormats(None, frozenset(not_held))


def _alike(older: Content, newer: Content) -> bool:
    """Whether two records have the same key and value, and the same timestamp where both formats have one."""
    timed = NO_TIMESTAMP_TYPE not in (older.time[1], newer.time[1])
    return older.content == newer.content and (not timed or older.time == newer.time)
