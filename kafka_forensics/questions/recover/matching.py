"""Which lost records are there all the same: on the surviving side, or in another losing copy.

A producer's own count tells best: its id, epoch and sequence, and the same content. Without them key, value, headers and timestamp
must be the same, which is weaker: each record found speaks for one lost record only.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Record, RecordColumn
from kafka_forensics.model.constants import NO_PRODUCER_ID, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from kafka_forensics.model.offset_ranges import Ranges, clipped, holds, normalised
from kafka_forensics.scanning.rereading.log_ranges import Endings, ReadBatch, ReadLog
from kafka_forensics.scanning.rereading.record_states import COMMITTED, NONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from kafka_forensics.parsers.log import BatchHeader

    Ints = NDArray[np.int64]

ROUND_RECORDS: Final = 1 << 16
"""Lost records that are looked for at once, in some 50 MB; the surviving log is read once for each so many."""
_DIGEST_BYTES: Final = 16
_TRIED: Final = 64
"""Lost records of one content and timestamp that are compared with one found."""
_NEVER: Final = (-1, -2)
"""An offset and a time before all others; -1 is a record's that has none."""
_LENGTH: Final = struct.Struct(">q")


def digest(*parts: bytes | None) -> bytes:
    """16 bytes that tell these contents from others; null and empty are different."""
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        hasher.update(_LENGTH.pack(-1 if part is None else len(part)))
        hasher.update(part or b"")
    return hasher.digest()


def content(key: bytes | None, value: bytes | None, headers: Iterable[tuple[bytes | None, bytes | None]]) -> bytes:
    """The digest of key, value and headers."""
    return digest(key, value, *(part for header in headers for part in header))


class _Wanted(NamedTuple):
    """A lost record, by its offset, and its producer's id, epoch and sequence."""

    offset: int
    producer: tuple[int, int, int]


@dataclass(slots=True)
class Sought:
    """The lost records of one round, by what they are known again by."""

    with_keys: bool
    """Whether later records of the same keys are looked for, too: of a compacted topic."""
    count: int = 0
    by_producer: dict[tuple[bytes, tuple[int, int, int]], list[int]] = field(default_factory=dict)
    """Content, and producer id, epoch and sequence → offsets, ascending."""
    by_time: dict[tuple[bytes, int], list[_Wanted]] = field(default_factory=dict)
    """Content and timestamp → records, by offset."""
    by_key: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict)
    """Digest of the key → (offset, timestamp)."""
    _looked_for: "tuple[Ints, Ints] | None" = None

    @property
    def is_full(self) -> bool:
        """Whether no more records should be looked for at once."""
        return self.count >= ROUND_RECORDS

    def add(self, record: Record, facts: list[int]) -> None:
        """Look for a record of a batch by BatchColumn."""
        inside, producer = content(record.key, record.value, record.headers), _producer(record, facts)
        if producer[0] != NO_PRODUCER_ID:
            self.by_producer.setdefault((inside, producer), []).append(record.offset)
        self.by_time.setdefault((inside, record.timestamp), []).append(_Wanted(record.offset, producer))
        if self.with_keys and record.key is not None:
            self.by_key.setdefault(digest(record.key), []).append((record.offset, record.timestamp))
        self.count += 1
        self._looked_for = None

    def batches(self, columns: "Ints") -> "NDArray[np.bool_]":
        """Which batches of a matrix may hold one of them, or a later one of a key: a maximum timestamp is under the CRC."""
        if self.with_keys:
            return np.ones(columns.shape[1], np.bool_)
        producers, timestamps = self._arrays()
        least = timestamps[0] if timestamps.size else np.iinfo(np.int64).max
        may: NDArray[np.bool_] = np.isin(columns[BatchColumn.PRODUCER_ID], producers)
        may |= (columns[BatchColumn.MAX_TIMESTAMP] >= least) | (columns[BatchColumn.MAGIC] < 2)
        return may

    def records(self, header: "BatchHeader", _window: bytes | memoryview | None, columns: "Ints") -> "NDArray[np.bool_]":
        """Which records of a magic 2 batch may be."""
        producers, timestamps = self._arrays()
        if self.with_keys or header.producer_id in producers:
            return np.ones(columns.shape[1], np.bool_)
        deltas = columns[RecordColumn.TIMESTAMP_DELTA]
        by_broker = header.attributes & TIMESTAMP_TYPE_MASK
        times = np.full_like(deltas, header.max_timestamp) if by_broker else deltas + np.int64(header.base_timestamp)
        may: NDArray[np.bool_] = np.isin(times, timestamps)
        return may

    def _arrays(self) -> "tuple[Ints, Ints]":
        """Producer ids and timestamps, ascending."""
        if self._looked_for is None:
            ids = {producer[0] for _, producer in self.by_producer}
            times = {timestamp for _, timestamp in self.by_time}
            self._looked_for = np.array(sorted(ids), np.int64), np.array(sorted(times), np.int64)
        return self._looked_for


def _producer(record: Record, facts: list[int]) -> tuple[int, int, int]:
    if facts[BatchColumn.MAGIC] < 2 or record.sequence < 0:
        return NO_PRODUCER_ID, -1, -1
    return facts[BatchColumn.PRODUCER_ID], facts[BatchColumn.PRODUCER_EPOCH], record.sequence


@dataclass(slots=True)
class Matches:
    """What was found of the lost records of a round: their offsets → those of the records that were found."""

    sought: Sought
    strong: dict[int, int] = field(default_factory=dict)
    weak: dict[int, int] = field(default_factory=dict)
    _tried: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """Content and timestamp → how many of its records are found, from the first on."""
    _latest: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Digest of a key → (largest offset where logs are alike, largest timestamp elsewhere), see `_NEVER`."""

    def look(self, log: ReadLog, ranges: Ranges, endings: Endings) -> None:
        """Look for them in some ranges of a log, in records that readers see."""
        for batch, record in _seen(log, ranges, endings, self.sought):
            self._match(record, _producer(record, batch.facts))

    def look_for_keys(self, log: ReadLog, own: Ranges, alike: Ranges, endings: Endings) -> None:
        """Look for later records of their keys: where the log is `alike` with the losing one by the offsets, where it has its
        `own` by the times."""
        for _, record in _seen(log, normalised((*own, *alike)), endings, self.sought):
            key = None if record.key is None else digest(record.key)
            if key is None or key not in self.sought.by_key:
                continue
            offset, time_ms = self._latest.get(key, _NEVER)
            if holds(alike, record.offset):
                self._latest[key] = max(offset, record.offset), time_ms
            else:
                self._latest[key] = offset, max(time_ms, record.timestamp)

    def superseded(self) -> set[int]:
        """Records of whose keys there are later ones."""
        return {
            offset
            for key, (last_offset, last_ms) in self._latest.items()
            for offset, time_ms in self.sought.by_key[key]
            if offset < last_offset or time_ms <= last_ms
        }

    def _match(self, record: Record, producer: tuple[int, int, int]) -> None:
        inside = content(record.key, record.value, record.headers)
        same = self.sought.by_producer.get((inside, producer), ())
        free = next((offset for offset in same[:_TRIED] if offset not in self.strong), None)
        if free is not None:
            self.strong[free] = record.offset
            self.weak.pop(free, None)
        elif record.timestamp != NO_TIMESTAMP:
            self._match_time((inside, record.timestamp), record.offset, producer)

    def _match_time(self, key: tuple[bytes, int], offset: int, producer: tuple[int, int, int]) -> None:
        """The first record with this content and timestamp that is not found yet; none that the same producer counted apart."""
        group, at = self.sought.by_time.get(key, []), self._tried.get(key, 0)
        while at < len(group) and (group[at].offset in self.strong or group[at].offset in self.weak):
            at += 1
        self._tried[key] = at
        for wanted in group[at : at + _TRIED]:
            is_free = wanted.offset not in self.strong and wanted.offset not in self.weak
            if is_free and (producer[0] == NO_PRODUCER_ID or wanted.producer[:2] != producer[:2]):
                self.weak[wanted.offset] = offset
                return


def _seen(log: ReadLog, ranges: Ranges, endings: Endings, sought: Sought) -> Iterator[tuple[ReadBatch, Record]]:
    """The records of some ranges that may be what is sought, of transactions that were committed."""
    if not sought.count or not ranges:
        return
    choose: Callable[[BatchHeader, bytes | memoryview | None, Ints], NDArray[np.bool_]] = sought.records
    for batch in log.batches(ranges, sought.batches):
        if batch.is_control or endings.state(batch.facts) not in (NONE, COMMITTED):
            continue
        if batch.data is None:
            log.not_compared = True
            continue
        inside = clipped(ranges, batch.facts[BatchColumn.BASE_OFFSET], batch.facts[BatchColumn.LAST_OFFSET] + 1)
        for record in batch.opened(choose)[0]:
            if not record.is_oversized and holds(inside, record.offset):
                yield batch, record
