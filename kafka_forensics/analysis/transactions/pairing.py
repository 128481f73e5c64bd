"""Which data each marker of a log ended: transactional batches and markers in file order, paired into transactions.

A producer's data and the next marker of its id are one transaction, whatever the epochs are: that is how Kafka ends one.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, DELETE_HORIZON_MASK, TIMESTAMP_TYPE_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TransactionColumn(IntEnum):
    """Row of the matrix that holds each number of a transaction."""

    PRODUCER_ID = 0
    PRODUCER_EPOCH = 1
    """Of the first batch of its data, or of the marker where it has none."""
    FIRST_OFFSET = 2
    FIRST_TIMESTAMP = 3
    LAST_OFFSET = 4
    """Of its data, inclusive."""
    LAST_TIMESTAMP = 5
    BATCHES = 6
    """Of data: 0 for a marker that ended nothing, whose offsets and times above mean nothing."""
    RECORDS = 7
    """Offsets its data take."""
    MARKER_TYPE = 8
    """`CONTROL_ABORT`, `CONTROL_COMMIT`, or -1 where it cannot be read. This and all below mean nothing while it is open."""
    MARKER_OFFSET = 9
    MARKER_TIMESTAMP = 10
    MARKER_EPOCH = 11
    COORDINATOR_EPOCH = 12


MAX_OPEN: Final = 1 << 20
"""Transactions that are kept open in a partition; those that begin when there are so many are passed over: none of them holds
readers back while the others are open."""


class Pairing:
    """Pairs the batches of one log, given in file order, any number at a time."""

    def __init__(self) -> None:
        self._open = np.empty((len(TransactionColumn), 0), np.int64)
        """Transactions that are open, by producer."""

    def take(self, batches: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """The transactions that these markers ended, columns by TransactionColumn, in the order of the markers.

        `batches` are columns by BatchColumn: transactional data and markers, nothing else.
        """
        if not batches.shape[1]:
            return np.empty((len(TransactionColumn), 0), np.int64)
        begun = self._taken_from_open(batches[BatchColumn.PRODUCER_ID])
        rows = np.concatenate([begun, _as_transactions(batches)], axis=1)
        ends = np.concatenate([np.zeros(begun.shape[1], bool), batches[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0])
        order = np.argsort(rows[TransactionColumn.PRODUCER_ID], kind="stable")
        rows, ends = rows[:, order], ends[order]
        first_of_one = np.ones(len(ends), bool)
        first_of_one[1:] = (np.diff(rows[TransactionColumn.PRODUCER_ID]) != 0) | ends[:-1]
        first = np.flatnonzero(first_of_one)
        last = np.append(first[1:], len(ends)) - 1
        ended = ends[last]
        last_of_data = np.maximum(last - ended, first)
        paired = rows[:, first]
        for column in (TransactionColumn.LAST_OFFSET, TransactionColumn.LAST_TIMESTAMP):
            paired[column] = rows[column, last_of_data]
        for column in (TransactionColumn.BATCHES, TransactionColumn.RECORDS):
            paired[column] = np.add.reduceat(rows[column], first)
        paired[TransactionColumn.MARKER_TYPE :] = rows[TransactionColumn.MARKER_TYPE :, last]
        self._keep_open(paired[:, ~ended])
        return paired[:, ended][:, np.argsort(order[last[ended]])]

    def _taken_from_open(self, producer_ids: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """The open transactions of these producers, which are no more among the others."""
        known, wanted = self._open[TransactionColumn.PRODUCER_ID], np.unique(producer_ids)
        places = np.searchsorted(known, wanted)
        places = places[known[np.minimum(places, len(known) - 1)] == wanted] if len(known) else places[:0]
        taken = self._open[:, places]
        if len(places):
            self._open = np.delete(self._open, places, axis=1)
        return taken

    def _keep_open(self, transactions: "NDArray[np.int64]") -> None:
        """Take in transactions, by producer; of too many, those that begin first."""
        if not transactions.shape[1]:
            return
        places = np.searchsorted(self._open[TransactionColumn.PRODUCER_ID], transactions[TransactionColumn.PRODUCER_ID])
        self._open = np.insert(self._open, places, transactions, axis=1)
        if self._open.shape[1] > MAX_OPEN:
            began = np.argsort(self._open[TransactionColumn.FIRST_OFFSET], kind="stable")
            self._open = self._open[:, np.sort(began[:MAX_OPEN])]

    def still_open(self) -> "NDArray[np.int64]":
        """The transactions that no marker has ended, by first offset and producer."""
        by_producer = (self._open[TransactionColumn.PRODUCER_ID], self._open[TransactionColumn.FIRST_OFFSET])
        return self._open[:, np.lexsort(by_producer)]


def _as_transactions(batches: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """Each batch as a transaction of its own: data without a marker, a marker without data."""
    attributes = batches[BatchColumn.ATTRIBUTES]
    by_maximum = attributes & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK) != 0
    rows = np.empty((len(TransactionColumn), batches.shape[1]), np.int64)
    rows[TransactionColumn.PRODUCER_ID] = batches[BatchColumn.PRODUCER_ID]
    rows[TransactionColumn.PRODUCER_EPOCH] = batches[BatchColumn.PRODUCER_EPOCH]
    rows[TransactionColumn.FIRST_OFFSET] = batches[BatchColumn.BASE_OFFSET]
    rows[TransactionColumn.FIRST_TIMESTAMP] = np.where(
        by_maximum, batches[BatchColumn.MAX_TIMESTAMP], batches[BatchColumn.BASE_TIMESTAMP]
    )
    rows[TransactionColumn.LAST_OFFSET] = batches[BatchColumn.LAST_OFFSET]
    rows[TransactionColumn.LAST_TIMESTAMP] = batches[BatchColumn.MAX_TIMESTAMP]
    is_data = attributes & CONTROL_MASK == 0
    rows[TransactionColumn.BATCHES] = is_data
    rows[TransactionColumn.RECORDS] = np.where(is_data, batches[BatchColumn.LAST_OFFSET] - batches[BatchColumn.BASE_OFFSET] + 1, 0)
    rows[TransactionColumn.MARKER_TYPE] = batches[BatchColumn.CONTROL_RECORD_TYPE]
    rows[TransactionColumn.MARKER_OFFSET] = batches[BatchColumn.BASE_OFFSET]
    rows[TransactionColumn.MARKER_TIMESTAMP] = batches[BatchColumn.MAX_TIMESTAMP]
    rows[TransactionColumn.MARKER_EPOCH] = batches[BatchColumn.PRODUCER_EPOCH]
    rows[TransactionColumn.COORDINATOR_EPOCH] = batches[BatchColumn.COORDINATOR_EPOCH]
    return rows
