"""Builds the files that a broker derives from a log from its batches: indexes, producer state, aborted transactions, leader epochs.

The rules are the broker's (LogSegment.recover, ProducerStateManager, ProducerAppendInfo, LeaderEpochFileCache).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_ABORT, CONTROL_COMMIT, CONTROL_MASK, MAX_SEQUENCE, TRANSACTIONAL_MASK
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_DEFAULT_INDEX_INTERVAL_BYTES: Final = 4096


def index_interval(setting: str | None) -> int:
    """`index.interval.bytes` by a topic's setting; Kafka's default if there is none that can be read."""
    return int(setting) if setting is not None and re.fullmatch(r"[0-9]{1,9}", setting) else _DEFAULT_INDEX_INTERVAL_BYTES


class IndexBuilder:
    """`.index` and `.timeindex` of one segment, as its recovery builds them.

    A batch gets an entry if it starts more than the interval after the last batch with one: its last offset and byte position,
    and the largest timestamp so far with the last offset of the first batch that has it.
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset, self._interval_bytes = base_offset, interval_bytes
        self._indexed_at = 0
        """Position of the batch of the last entry."""
        self.largest_timestamp = -1
        """Of all batches so far (ms)."""
        self._offset_of_largest = base_offset
        self._last_time = -1
        """Of the last entry of the time index."""
        self._offsets: list[Ints] = []
        self._times: list[Ints] = []

    def step(self, columns: "Ints") -> None:
        """Add batches, (BATCH_COLUMNS, n) int64 in file order."""
        position, last = columns[BatchColumn.POSITION], columns[BatchColumn.LAST_OFFSET]
        timestamps = np.concatenate(([self.largest_timestamp], columns[BatchColumn.MAX_TIMESTAMP]))
        rises = np.concatenate(([True], timestamps[1:] > np.maximum.accumulate(timestamps)[:-1]))
        row_of_largest = np.maximum.accumulate(np.where(rises, np.arange(timestamps.size), 0))
        offsets = np.concatenate(([self._offset_of_largest], last))
        rows: list[int] = []
        positions, row = position.tolist(), 0
        while (row := bisect_right(positions, self._indexed_at + self._interval_bytes, row)) < len(positions):
            self._indexed_at = positions[row]
            rows.append(row)
        self.largest_timestamp = int(timestamps[row_of_largest[-1]])
        self._offset_of_largest = int(offsets[row_of_largest[-1]])
        if rows:
            self._offsets.append(np.stack((last[rows] - self._base_offset, position[rows])))
            largest = row_of_largest[np.array(rows, np.int64) + 1]
            self._add_times(timestamps[largest], offsets[largest])

    def _add_times(self, timestamps: "Ints", offsets: "Ints") -> None:
        """Add those entries whose time is later than that of the one before."""
        later = timestamps > np.concatenate(([self._last_time], timestamps[:-1]))
        self._times.append(np.stack((timestamps[later], offsets[later] - self._base_offset)))
        self._last_time = max(self._last_time, int(timestamps[-1]))

    def finish(self) -> tuple[bytes, bytes]:
        """The bytes of both files; the time index ends with the largest timestamp."""
        self._add_times(np.array([self.largest_timestamp]), np.array([self._offset_of_largest]))
        index = np.concatenate([np.empty((2, 0), np.int64), *self._offsets], axis=1)
        times = np.concatenate(self._times, axis=1)
        rows = np.empty(times.shape[1], [("timestamp", ">i8"), ("relative_offset", ">i4")])
        rows["timestamp"], rows["relative_offset"] = times
        return index.T.astype(">i4").tobytes(), rows.tobytes()


class ProducerStateBuilder:
    """A broker's producer state after the batches so far; it needs the memory of one entry per producer, as on the broker."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        """`entries` is the state before the first batch, without open transactions."""
        self._entries = {entry.producer_id: entry for entry in entries}
        self._open: dict[int, int] = {}
        """Producer id → first offset of its open transaction."""

    def step(self, columns: "Ints") -> list[AbortedTxn]:
        """Add batches, (BATCH_COLUMNS, n) int64 in file order; the transactions that they abort."""
        producer_id, attributes = columns[BatchColumn.PRODUCER_ID], columns[BatchColumn.ATTRIBUTES]
        rows = np.flatnonzero(producer_id >= 0)
        if not rows.size:
            return []
        transactional = np.unique(producer_id[rows][attributes[rows] & (TRANSACTIONAL_MASK | CONTROL_MASK) != 0])
        is_needed = np.isin(producer_id[rows], transactional) if transactional.size else np.zeros(rows.size, np.bool_)
        others = rows[~is_needed]  # the last batch of each of these producers is enough
        others = others[np.append(producer_id[others[1:]] != producer_id[others[:-1]], True)[: others.size]]
        _, backwards = np.unique(producer_id[others][::-1], return_index=True)
        needed = sorted((*others[others.size - 1 - backwards].tolist(), *rows[is_needed].tolist()))
        aborted = (self._add(columns[:, row].tolist()) for row in needed)
        return [transaction for transaction in aborted if transaction is not None]

    def _add(self, batch: list[int]) -> AbortedTxn | None:
        """Add one batch; the transaction that it aborts."""
        producer_id, attributes = batch[BatchColumn.PRODUCER_ID], batch[BatchColumn.ATTRIBUTES]
        entry = self._entries.get(producer_id)
        if attributes & CONTROL_MASK:
            return self._add_marker(entry, batch)
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
            -1 if entry is None else entry.coordinator_epoch,
            self._open.get(producer_id, -1),
        )
        return None

    def _add_marker(self, entry: ProducerEntry | None, batch: list[int]) -> AbortedTxn | None:
        """Add a marker; a marker of another epoch starts that epoch, without any sequence."""
        kind, producer_id, offset = (
            batch[column] for column in (BatchColumn.CONTROL_RECORD_TYPE, BatchColumn.PRODUCER_ID, BatchColumn.BASE_OFFSET)
        )
        if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
            return None
        epoch = batch[BatchColumn.PRODUCER_EPOCH]
        if entry is None or entry.producer_epoch != epoch:
            entry = ProducerEntry(producer_id, epoch, -1, -1, 0, -1, -1, -1)
        first = self._open.pop(producer_id, None)
        self._entries[producer_id] = replace(
            entry,
            timestamp=batch[BatchColumn.MAX_TIMESTAMP],
            coordinator_epoch=batch[BatchColumn.COORDINATOR_EPOCH],
            current_txn_first_offset=-1,
        )
        if first is None or kind == CONTROL_COMMIT:
            return None
        return AbortedTxn(producer_id, first, offset, min(self._open.values(), default=offset + 1))

    def entries(self) -> list[ProducerEntry]:
        """The producers, in the order of their first batches."""
        return list(self._entries.values())


class LeaderEpochBuilder:
    """`leader-epoch-checkpoint`: the epochs of the batches; `falls` if one is lower than an earlier one."""

    def __init__(self) -> None:
        self.entries: list[EpochEntry] = []
        self.falls = False

    def step(self, columns: "Ints") -> None:
        """Add batches, (BATCH_COLUMNS, n) int64 in file order."""
        epochs = columns[BatchColumn.PARTITION_LEADER_EPOCH]
        rows = np.flatnonzero(epochs >= 0)
        if not rows.size or (self.entries and (epochs == self.entries[-1].leader_epoch).all()):
            return
        all_epochs = np.concatenate(([self.entries[-1].leader_epoch if self.entries else -1], epochs[rows]))
        self.falls = self.falls or bool((all_epochs[1:] < all_epochs[:-1]).any())
        for row in rows[all_epochs[1:] > np.maximum.accumulate(all_epochs)[:-1]].tolist():
            self.entries.append(EpochEntry(int(epochs[row]), int(columns[BatchColumn.BASE_OFFSET, row])))
