"""Pairs the transactional batches and markers of a log into transactions.

A producer's data and the next marker with its id are one transaction, whatever the epochs are: that is how Kafka ends one.
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
    """Of its first data batch, or of the marker if it has no data."""
    FIRST_OFFSET = 2
    FIRST_TIMESTAMP = 3
    LAST_OFFSET = 4
    """Of its data, inclusive."""
    LAST_TIMESTAMP = 5
    BATCHES = 6
    """Data batches: 0 for a marker that ended nothing; then the offsets and timestamps above mean nothing."""
    RECORDS = 7
    """Number of offsets of its data."""
    MARKER_TYPE = 8
    """`CONTROL_ABORT`, `CONTROL_COMMIT`, or -1 if unreadable. This and all below mean nothing while the transaction is open."""
    MARKER_OFFSET = 9
    MARKER_TIMESTAMP = 10
    MARKER_EPOCH = 11
    COORDINATOR_EPOCH = 12


_OF_FIRST_BATCH: Final = (TransactionColumn.PRODUCER_EPOCH, TransactionColumn.FIRST_OFFSET, TransactionColumn.FIRST_TIMESTAMP)
_OF_LAST_BATCH: Final = (TransactionColumn.LAST_OFFSET, TransactionColumn.LAST_TIMESTAMP)
_SUMS: Final = (TransactionColumn.BATCHES, TransactionColumn.RECORDS)
OPEN_KEPT: Final = 1 << 20
"""Open transactions of a partition that are kept; later ones are dropped: they hold no reader back while the others are open."""


class Pairing:
    """Pairs the batches of one log, added in file order, any number at a time."""

    def __init__(self) -> None:
        self._open = np.empty((len(TransactionColumn), 0), np.int64)
        """Open transactions, by producer."""

    def take(self, batches: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """The transactions that these markers ended, columns by TransactionColumn, in the order of the markers.

        `batches` are columns by BatchColumn: only transactional data and markers.
        """
        if not batches.shape[1]:
            return np.empty((len(TransactionColumn), 0), np.int64)
        producers = batches[BatchColumn.PRODUCER_ID]
        order = np.argsort(producers, kind="stable")
        producers, ends = producers[order], (batches[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0)[order]
        begins = np.ones(len(ends), bool)
        begins[1:] = (producers[1:] != producers[:-1]) | ends[:-1]
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(ends)) - 1
        ended = ends[last]
        paired = _as_transactions(batches, order, first, last, ended)
        self._join_open(paired)
        if not ended.all():
            self._keep_open(paired[:, ~ended])
        places = np.flatnonzero(ended)
        answer: NDArray[np.int64] = paired[:, places[np.argsort(order[last[places]])]]
        return answer

    def _join_open(self, transactions: "NDArray[np.int64]") -> None:
        """Join the first transaction of each producer with the one it has open; `transactions` are by producer."""
        open_producers, producers = self._open[TransactionColumn.PRODUCER_ID], transactions[TransactionColumn.PRODUCER_ID]
        if not len(open_producers):
            return
        firsts = np.flatnonzero(np.append(True, producers[1:] != producers[:-1]))
        places = np.searchsorted(open_producers, producers[firsts])
        is_open = open_producers[np.minimum(places, len(open_producers) - 1)] == producers[firsts]
        firsts, places = firsts[is_open], places[is_open]
        if not len(places):
            return
        already_open = self._open[:, places]
        self._open = np.delete(self._open, places, axis=1)
        without_data = transactions[TransactionColumn.BATCHES, firsts] == 0
        for column in _OF_FIRST_BATCH:
            transactions[column, firsts] = already_open[column]
        for column in _OF_LAST_BATCH:
            transactions[column, firsts] = np.where(without_data, already_open[column], transactions[column, firsts])
        for column in _SUMS:
            transactions[column, firsts] += already_open[column]

    def _keep_open(self, transactions: "NDArray[np.int64]") -> None:
        """Add open transactions, by producer; if they are too many, keep the oldest."""
        if not transactions.shape[1]:
            return
        places = np.searchsorted(self._open[TransactionColumn.PRODUCER_ID], transactions[TransactionColumn.PRODUCER_ID])
        self._open = np.insert(self._open, places, transactions, axis=1)
        if self._open.shape[1] > OPEN_KEPT:
            began = np.argsort(self._open[TransactionColumn.FIRST_OFFSET], kind="stable")
            self._open = self._open[:, np.sort(began[:OPEN_KEPT])]

    def still_open(self) -> "NDArray[np.int64]":
        """The transactions that no marker ended, by first offset and producer."""
        by_producer = (self._open[TransactionColumn.PRODUCER_ID], self._open[TransactionColumn.FIRST_OFFSET])
        return self._open[:, np.lexsort(by_producer)]


def _as_transactions(
    batches: "NDArray[np.int64]",
    order: "NDArray[np.int64]",
    first: "NDArray[np.int64]",
    last: "NDArray[np.int64]",
    ended: "NDArray[np.bool_]",
) -> "NDArray[np.int64]":
    """Transactions of the batches `first` to `last` of the `order`, the last one a marker if it `ended`."""
    firsts, lasts, last_of_data = order[first], order[last], order[np.maximum(last - ended, first)]
    by_maximum = batches[BatchColumn.ATTRIBUTES, firsts] & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK) != 0
    offsets = batches[BatchColumn.LAST_OFFSET] - batches[BatchColumn.BASE_OFFSET] + 1
    offsets[batches[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0] = 0
    rows = np.empty((len(TransactionColumn), len(first)), np.int64)
    rows[TransactionColumn.PRODUCER_ID] = batches[BatchColumn.PRODUCER_ID, firsts]
    rows[TransactionColumn.PRODUCER_EPOCH] = batches[BatchColumn.PRODUCER_EPOCH, firsts]
    rows[TransactionColumn.FIRST_OFFSET] = batches[BatchColumn.BASE_OFFSET, firsts]
    rows[TransactionColumn.FIRST_TIMESTAMP] = np.where(
        by_maximum, batches[BatchColumn.MAX_TIMESTAMP, firsts], batches[BatchColumn.BASE_TIMESTAMP, firsts]
    )
    rows[TransactionColumn.LAST_OFFSET] = batches[BatchColumn.LAST_OFFSET, last_of_data]
    rows[TransactionColumn.LAST_TIMESTAMP] = batches[BatchColumn.MAX_TIMESTAMP, last_of_data]
    rows[TransactionColumn.BATCHES] = last - first + 1 - ended
    rows[TransactionColumn.RECORDS] = np.add.reduceat(offsets[order], first)
    rows[TransactionColumn.MARKER_TYPE] = batches[BatchColumn.CONTROL_RECORD_TYPE, lasts]
    rows[TransactionColumn.MARKER_OFFSET] = batches[BatchColumn.BASE_OFFSET, lasts]
    rows[TransactionColumn.MARKER_TIMESTAMP] = batches[BatchColumn.MAX_TIMESTAMP, lasts]
    rows[TransactionColumn.MARKER_EPOCH] = batches[BatchColumn.PRODUCER_EPOCH, lasts]
    rows[TransactionColumn.COORDINATOR_EPOCH] = batches[BatchColumn.COORDINATOR_EPOCH, lasts]
    return rows
