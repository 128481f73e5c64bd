"""The files that a broker derives from a log, built from its batches by the broker's rules (LogSegment.recover,
ProducerStateManager, ProducerAppendInfo, LeaderEpochFileCache): indexes, producer state, aborted transactions, leader epochs.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_ABORT, CONTROL_COMMIT, CONTROL_MASK, MAX_SEQUENCE, TRANSACTIONAL_MASK
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default of `index.interval.bytes`."""


def index_interval(setting: str | None) -> int:
    """`index.interval.bytes` by a topic's setting; Kafka's default where there is none that can be read."""
    return int(setting) if setting is not None and re.fullmatch(r"[0-9]{1,9}", setting) else INDEX_INTERVAL_BYTES


_POSITION: Final = int(BatchColumn.POSITION)
_LAST_OFFSET: Final = int(BatchColumn.LAST_OFFSET)
_MAX_TIMESTAMP: Final = int(BatchColumn.MAX_TIMESTAMP)


def index_entries(columns: "Ints", interval_bytes: int, state: "Ints") -> "Ints":
    """The entries that batches get, (BATCH_COLUMNS, n) in file order, as (4, entries).

    A batch gets one if it begins more than the interval after the last batch that did: its last offset and its byte, and the
    largest timestamp so far with the last offset of the first batch that had it. `state` is carried on to the next batches: the
    byte of the last entry, and that timestamp and offset.
    """
    position, last = columns[_POSITION], columns[_LAST_OFFSET]
    stamps = np.concatenate(([state[1]], columns[_MAX_TIMESTAMP]))
    rises = np.concatenate(([True], stamps[1:] > np.maximum.accumulate(stamps)[:-1]))
    source = np.maximum.accumulate(np.where(rises, np.arange(stamps.size), 0))
    offsets = np.concatenate(([state[2]], last))
    rows: list[int] = []
    positions, row, indexed_at = position.tolist(), 0, int(state[0])
    while (row := bisect_right(positions, indexed_at + interval_bytes, row)) < len(positions):
        indexed_at = positions[row]
        rows.append(row)
    met = source[np.array(rows, np.int64) + 1]
    state[:] = indexed_at, stamps[source[-1]], offsets[source[-1]]
    return np.stack((last[rows], position[rows], stamps[met], offsets[met]))


class SegmentIndexes:
    """`.index` and `.timeindex` of one segment, as its recovery builds them."""

    def __init__(self, base_offset: int, interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._state = np.array([0, -1, base_offset], np.int64)
        self._timed = -1
        self._offsets: list[Ints] = []
        self._times: list[Ints] = []

    @property
    def largest_timestamp(self) -> int:
        """Of all batches so far; -1 of none."""
        return int(self._state[1])

    def step(self, columns: "Ints") -> None:
        """Add batches, (BATCH_COLUMNS, n) int64 in file order."""
        last, position, stamps, offsets = index_entries(columns, self._interval_bytes, self._state)
        if last.size:
            self._offsets.append(np.stack((last - self._base_offset, position)))
            self._add_times(stamps, offsets)

    def _add_times(self, stamps: "Ints", offsets: "Ints") -> None:
        """Add entries, those whose time is later than that of the one before."""
        later = stamps > np.concatenate(([self._timed], stamps[:-1]))
        self._times.append(np.stack((stamps[later], offsets[later] - self._base_offset)))
        self._timed = max(self._timed, int(stamps[-1]))

    def finish(self) -> tuple[bytes, bytes]:
        """The bytes of both files; the time index ends with the largest timestamp."""
        self._add_times(self._state[1:2], self._state[2:3])
        index = np.concatenate([np.empty((2, 0), np.int64), *self._offsets], axis=1)
        times = np.concatenate(self._times, axis=1)
        rows = np.empty(times.shape[1], [("timestamp", ">i8"), ("relative_offset", ">i4")])
        rows["timestamp"], rows["relative_offset"] = times
        return index.T.astype(">i4").tobytes(), rows.tobytes()


class ProducerReplay:
    """What a broker knows of producers behind the batches replayed so far, and what of them was aborted.

    Held in memory is one entry a producer, as the broker does.
    """

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        """`entries` are known before the first batch, without open transactions."""
        self._entries = {entry.producer_id: entry for entry in entries}
        self._open: dict[int, int] = {}
        """Producer id → first offset of its open transaction."""

    def step(self, columns: "Ints") -> list[AbortedTxn]:
        """Replay batches, (BATCH_COLUMNS, n) int64 in file order; the transactions that they abort."""
        producer_id, attributes = columns[BatchColumn.PRODUCER_ID], columns[BatchColumn.ATTRIBUTES]
        rows = np.flatnonzero(producer_id >= 0)
        if not rows.size:
            return []
        special = np.unique(producer_id[rows][attributes[rows] & (TRANSACTIONAL_MASK | CONTROL_MASK) != 0])
        is_special = np.isin(producer_id[rows], special) if special.size else np.zeros(rows.size, np.bool_)
        plain = rows[~is_special]
        plain = plain[np.append(producer_id[plain[1:]] != producer_id[plain[:-1]], True)[: plain.size]]  # the last of each run
        _, backwards = np.unique(producer_id[plain][::-1], return_index=True)
        aborted = []
        for row in sorted((*plain[plain.size - 1 - backwards].tolist(), *rows[is_special].tolist())):
            ended = self._replay(columns[:, row].tolist())
            aborted += [] if ended is None else [ended]
        return aborted

    def _replay(self, batch: list[int]) -> AbortedTxn | None:
        """Replay one batch; the transaction that it aborts."""
        producer_id, attributes = batch[BatchColumn.PRODUCER_ID], batch[BatchColumn.ATTRIBUTES]
        known = self._entries.get(producer_id)
        if attributes & CONTROL_MASK:
            return self._end(known, batch)
        base_offset = batch[BatchColumn.BASE_OFFSET]
        if attributes & TRANSACTIONAL_MASK:
            self._open.setdefault(producer_id, base_offset)
        delta = batch[BatchColumn.LAST_OFFSET] - base_offset
        sequence = batch[BatchColumn.BASE_SEQUENCE]
        self._entries[producer_id] = ProducerEntry(
            producer_id,
            batch[BatchColumn.PRODUCER_EPOCH],
            -1 if sequence < 0 else (sequence + delta) & MAX_SEQUENCE,
            batch[BatchColumn.LAST_OFFSET],
            delta,
            batch[BatchColumn.MAX_TIMESTAMP],
            -1 if known is None else known.coordinator_epoch,
            self._open.get(producer_id, -1),
        )
        return None

    def _end(self, known: ProducerEntry | None, batch: list[int]) -> AbortedTxn | None:
        """Replay a marker: one of another epoch begins that, in which nothing is written yet."""
        kind, producer_id, offset = (
            batch[column] for column in (BatchColumn.CONTROL_RECORD_TYPE, BatchColumn.PRODUCER_ID, BatchColumn.BASE_OFFSET)
        )
        if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
            return None
        epoch = batch[BatchColumn.PRODUCER_EPOCH]
        if known is None or known.producer_epoch != epoch:
            known = ProducerEntry(producer_id, epoch, -1, -1, 0, -1, -1, -1)
        first = self._open.pop(producer_id, None)
        self._entries[producer_id] = replace(
            known,
            timestamp=batch[BatchColumn.MAX_TIMESTAMP],
            coordinator_epoch=batch[BatchColumn.COORDINATOR_EPOCH],
            current_txn_first_offset=-1,
        )
        if first is None or kind == CONTROL_COMMIT:
            return None
        return AbortedTxn(producer_id, first, offset, min(self._open.values(), default=offset + 1))

    def entries(self) -> list[ProducerEntry]:
        """The producers, in the order in which they came."""
        return list(self._entries.values())


class EpochReplay:
    """`leader-epoch-checkpoint`: the epochs of the batches; `falls` where one is lower than an earlier one."""

    def __init__(self) -> None:
        self.entries: list[EpochEntry] = []
        self.falls = False

    def step(self, columns: "Ints") -> None:
        """Add batches, (BATCH_COLUMNS, n) int64 in file order."""
        epochs = columns[BatchColumn.PARTITION_LEADER_EPOCH]
        rows = np.flatnonzero(epochs >= 0)
        if not rows.size or (self.entries and (epochs == self.entries[-1].leader_epoch).all()):
            return
        known = np.concatenate(([self.entries[-1].leader_epoch if self.entries else -1], epochs[rows]))
        self.falls = self.falls or bool((known[1:] < known[:-1]).any())
        for row in rows[known[1:] > np.maximum.accumulate(known)[:-1]].tolist():
            self.entries.append(EpochEntry(int(epochs[row]), int(columns[BatchColumn.BASE_OFFSET, row])))
