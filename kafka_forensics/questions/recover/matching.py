"""Which lost records exist elsewhere: on the surviving side, or in another losing copy.

The best match is by the producer's numbering: equal id, epoch, sequence and content. Without them key, value, headers and timestamp
must be equal, which is weaker: each record found accounts for one lost record only.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from kafka_forensics.model.batches import BatchColumn, Record, RecordColumn
from kafka_forensics.model.constants import INT64_MAX, NO_PRODUCER_ID, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from kafka_forensics.model.offset_ranges import Ranges, clipped, holds, normalised
from kafka_forensics.scanning.rereading.log_ranges import LogRangeReader, ReadBatch, TransactionEndings
from kafka_forensics.scanning.rereading.record_states import COMMITTED, NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.log import BatchHeader

    Ints = NDArray[np.int64]

ROUND_RECORDS: Final = 1 << 16
"""Lost records in one search, in about 50 MB; the surviving log is read once for each search."""
_DIGEST_BYTES: Final = 16
_COMPARED: Final = 64
"""Lost records with equal content and timestamp that are compared with a record found."""
_NEVER: Final = (-1, -2)
"""An offset and a time before all others; -1 is the time of a record without a timestamp."""
_LENGTH: Final = struct.Struct(">q")

Producer = tuple[int, int, int]
"""Producer id, epoch and sequence."""


def digest(*parts: bytes | None) -> bytes:
    """16 bytes that identify these contents; null and empty differ."""
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        hasher.update(_LENGTH.pack(-1 if part is None else len(part)))
        hasher.update(part or b"")
    return hasher.digest()


def content(key: bytes | None, value: bytes | None, headers: Iterable[tuple[bytes | None, bytes | None]]) -> bytes:
    """The digest of key, value and headers."""
    return digest(key, value, *(part for header in headers for part in header))


class _RecordToMatch(NamedTuple):
    offset: int
    producer: Producer


class SearchedRecords(Struct):
    """The lost records of one search, by the features that identify them."""

    with_keys: bool
    """Whether to look also for later records of the same keys, as in a compacted topic."""
    count: int = 0
    by_producer: dict[tuple[bytes, Producer], list[int]] = field(default_factory=dict)
    """Content and producer → offsets, ascending."""
    by_time: dict[tuple[bytes, int], list[_RecordToMatch]] = field(default_factory=dict)
    """Content and timestamp → records, by offset."""
    by_key: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict)
    """Digest of the key → (offset, timestamp)."""
    _arrays: "tuple[Ints, Ints] | None" = None

    @property
    def is_full(self) -> bool:
        """Whether the search has as many records as it should."""
        return self.count >= ROUND_RECORDS

    def add(self, record: Record, facts: list[int]) -> None:
        """Search for a record of a batch, whose `facts` are ordered as in BatchColumn."""
        inside, producer = content(record.key, record.value, record.headers), _producer(record, facts)
        if producer[0] != NO_PRODUCER_ID:
            self.by_producer.setdefault((inside, producer), []).append(record.offset)
        self.by_time.setdefault((inside, record.timestamp), []).append(_RecordToMatch(record.offset, producer))
        if self.with_keys and record.key is not None:
            self.by_key.setdefault(digest(record.key), []).append((record.offset, record.timestamp))
        self.count += 1
        self._arrays = None

    def may_match_batches(self, columns: "Ints") -> "NDArray[np.bool_]":
        """Which batches of a (BATCH_COLUMNS, n) matrix may hold a match; the CRC protects their maximum timestamps."""
        if self.with_keys:
            return np.ones(columns.shape[1], np.bool_)
        producers, timestamps = self._producers_and_times()
        least = timestamps[0] if timestamps.size else INT64_MAX
        may_match: NDArray[np.bool_] = np.isin(columns[BatchColumn.PRODUCER_ID], producers)
        may_match |= (columns[BatchColumn.MAX_TIMESTAMP] >= least) | (columns[BatchColumn.MAGIC] < 2)
        return may_match

    def may_match_records(self, header: "BatchHeader", _window: bytes | memoryview | None, columns: "Ints") -> "NDArray[np.bool_]":
        """Which records of a magic 2 batch may match."""
        producers, timestamps = self._producers_and_times()
        if self.with_keys or header.producer_id in producers:
            return np.ones(columns.shape[1], np.bool_)
        deltas = columns[RecordColumn.TIMESTAMP_DELTA]
        is_append_time = header.attributes & TIMESTAMP_TYPE_MASK
        times = np.full_like(deltas, header.max_timestamp) if is_append_time else deltas + np.int64(header.base_timestamp)
        return np.isin(times, timestamps)

    def _producers_and_times(self) -> "tuple[Ints, Ints]":
        if self._arrays is None:
            ids = {producer[0] for _, producer in self.by_producer}
            times = {timestamp for _, timestamp in self.by_time}
            self._arrays = np.array(sorted(ids), np.int64), np.array(sorted(times), np.int64)
        return self._arrays


def _producer(record: Record, facts: list[int]) -> Producer:
    if facts[BatchColumn.MAGIC] < 2 or record.sequence < 0:
        return NO_PRODUCER_ID, -1, -1
    return facts[BatchColumn.PRODUCER_ID], facts[BatchColumn.PRODUCER_EPOCH], record.sequence


class Matches(Struct):
    """Matches of the lost records of a search: offset of the lost record → offset of the record found."""

    searched: SearchedRecords
    by_producer: dict[int, int] = field(default_factory=dict)
    by_content: dict[int, int] = field(default_factory=dict)
    """Matches by content and timestamp alone."""
    _matched: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """Content and timestamp → how many of its records, from the first on, have a match."""
    _latest: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Digest of a key → (largest offset where logs are equal, largest timestamp elsewhere), see `_NEVER`."""

    def search(self, log: LogRangeReader, ranges: Ranges, endings: TransactionEndings) -> None:
        """Match them with the committed records in some ranges of a log."""
        for batch, record in _committed(log, ranges, endings, self.searched):
            self._match(record, _producer(record, batch.facts))

    def search_keys(self, log: LogRangeReader, equal: Ranges, others: Ranges, endings: TransactionEndings) -> None:
        """Find later records of their keys: by offset where the log equals the losing one, by timestamp in its other ranges."""
        for _, record in _committed(log, normalised((*others, *equal)), endings, self.searched):
            key = None if record.key is None else digest(record.key)
            if key is None or key not in self.searched.by_key:
                continue
            offset, time_ms = self._latest.get(key, _NEVER)
            if holds(equal, record.offset):
                self._latest[key] = max(offset, record.offset), time_ms
            else:
                self._latest[key] = offset, max(time_ms, record.timestamp)

    def superseded(self) -> set[int]:
        """Offsets of lost records whose keys have later records."""
        return {
            offset
            for key, (last_offset, last_ms) in self._latest.items()
            for offset, time_ms in self.searched.by_key[key]
            if offset < last_offset or time_ms <= last_ms
        }

    def _match(self, record: Record, producer: Producer) -> None:
        """Match by producer, else the first unmatched record of equal content and time that this producer did not number itself."""
        inside = content(record.key, record.value, record.headers)
        candidates = self.searched.by_producer.get((inside, producer), ())
        unmatched = next((offset for offset in candidates[:_COMPARED] if offset not in self.by_producer), None)
        if unmatched is not None:
            self.by_producer[unmatched] = record.offset
            self.by_content.pop(unmatched, None)
            return
        key = (inside, record.timestamp)
        group, at = self.searched.by_time.get(key, []), self._matched.get(key, 0)
        if record.timestamp == NO_TIMESTAMP or not group:
            return
        while at < len(group) and self._is_matched(group[at].offset):
            at += 1
        self._matched[key] = at
        for lost in group[at : at + _COMPARED]:
            is_other_producer = producer[0] == NO_PRODUCER_ID or lost.producer[:2] != producer[:2]
            if is_other_producer and not self._is_matched(lost.offset):
                self.by_content[lost.offset] = record.offset
                return

    def _is_matched(self, offset: int) -> bool:
        return offset in self.by_producer or offset in self.by_content


def _committed(
    log: LogRangeReader, ranges: Ranges, endings: TransactionEndings, searched: SearchedRecords
) -> Iterator[tuple[ReadBatch, Record]]:
    """Records of some ranges that consumers with `read_committed` see and that may match."""
    if not searched.count or not ranges:
        return
    for batch in log.batches(ranges, searched.may_match_batches):
        if batch.is_control or endings.state(batch.facts) not in (NONE, COMMITTED):
            continue
        if batch.data is None:
            log.not_compared = True
            continue
        inside = clipped(ranges, batch.facts[BatchColumn.BASE_OFFSET], batch.facts[BatchColumn.LAST_OFFSET] + 1)
        for record in batch.opened(searched.may_match_records)[0]:
            if not record.is_oversized and holds(inside, record.offset):
                yield batch, record
