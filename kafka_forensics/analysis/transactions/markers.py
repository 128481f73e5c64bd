"""The last markers of a log, for questions about several logs: bounded, however many producers there are."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import CONTROL_COMMIT, CONTROL_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARKERS_KEPT: Final = 8192
"""Last markers, and last ended transactions, that are kept of one log."""

SEGMENT, POSITION, SIZE, PRODUCER_ID, PRODUCER_EPOCH, OFFSET, TYPE, COORDINATOR_EPOCH, TIMESTAMP = range(9)
"""Columns of a marker's row; `TYPE` is 0 for ABORT and 1 for COMMIT, `TIMESTAMP` ms by the leader's clock."""
MARKER_COLUMNS: Final = 9
_FACTS: Final = (
    BatchColumn.POSITION,
    BatchColumn.SIZE_IN_BYTES,
    BatchColumn.PRODUCER_ID,
    BatchColumn.PRODUCER_EPOCH,
    BatchColumn.BASE_OFFSET,
    BatchColumn.CONTROL_RECORD_TYPE,
    BatchColumn.COORDINATOR_EPOCH,
    BatchColumn.MAX_TIMESTAMP,
)


class LastRows:
    """The last `kept` of many rows in the order in which they are added, and the number of all."""

    __slots__ = ("_kept", "_parts", "_rows_count", "_width", "count")

    def __init__(self, width: int, kept: int = MARKERS_KEPT) -> None:
        self._width, self._kept = width, kept
        self._parts: list[NDArray[np.int64]] = []
        self._rows_count = 0
        self.count = 0

    def add(self, rows: "NDArray[np.int64]", count: int | None = None) -> None:
        """Add rows after all others; `count` is the number that they represent, if some were dropped before."""
        self.count += len(rows) if count is None else count
        if len(rows):
            self._parts.append(rows[-self._kept :])
            self._rows_count += len(self._parts[-1])
        if self._rows_count > 2 * self._kept:
            self._parts = [self.rows]
            self._rows_count = len(self._parts[0])

    def insert(self, rows: "NDArray[np.int64]") -> None:
        """Add rows between the others, by their columns 0 and 1, segment and position."""
        together = np.concatenate((self.rows, rows))
        together = together[np.lexsort((together[:, 1], together[:, 0]))]
        self._parts = [together[-self._kept :]]
        self._rows_count = len(self._parts[0])
        self.count += len(rows)

    def merge(self, right: "LastRows") -> None:
        """Add the rows that follow."""
        self.add(right.rows, right.count)

    @property
    def size_in_bytes(self) -> int:
        """Memory used."""
        return self._rows_count * self._width * 8

    @property
    def rows(self) -> "NDArray[np.int64]":
        """(n, width), n at most `kept`."""
        if not self._parts:
            return np.empty((0, self._width), np.int64)
        together: NDArray[np.int64] = np.concatenate(self._parts)[-self._kept :]
        return together

    @property
    def complete(self) -> bool:
        """Whether no row was dropped."""
        return self.count <= self._kept


class LastMarkers:
    """The last ABORT and COMMIT markers of a part of a log, and the newest timestamp of its good batches, in ms (-1: none)."""

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self.markers = LastRows(MARKER_COLUMNS)
        self.newest_timestamp = -1

    def step(self, columns: "NDArray[np.int64]") -> None:
        """Add consecutive batches of the segment, (BATCH_COLUMNS, n) int64 in file order; those with a wrong CRC are ignored."""
        timestamps = columns[BatchColumn.MAX_TIMESTAMP]
        if int(timestamps.max(initial=-1)) > self.newest_timestamp:
            good = timestamps[has_right_crc(columns)]
            self.newest_timestamp = max(self.newest_timestamp, int(good.max(initial=-1)))
        is_control = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK) != 0
        if not is_control.any():
            return
        types = columns[BatchColumn.CONTROL_RECORD_TYPE]
        readable = is_control & has_right_crc(columns) & (types >= 0) & (types <= CONTROL_COMMIT)
        rows = np.flatnonzero(readable & (columns[BatchColumn.PRODUCER_ID] >= 0))
        if rows.size:
            markers = columns[:, rows[-MARKERS_KEPT:]][list(_FACTS)].T
            self.markers.add(np.insert(markers, SEGMENT, self._segment, axis=1), rows.size)

    def merge(self, right: "LastMarkers") -> None:
        """Add the part of the log that follows."""
        self.markers.merge(right.markers)
        self.newest_timestamp = max(self.newest_timestamp, right.newest_timestamp)
        self._segment = right._segment


def lower_coordinator_epochs(markers: "NDArray[np.int64]") -> list[tuple[int, int]]:
    """(row, earlier row with a higher epoch) of every marker whose coordinator epoch is lower than an earlier one of its producer.

    Kafka's leaders refuse such a marker, which a replaced coordinator sent (ProducerAppendInfo.checkCoordinatorEpoch).
    """
    pairs: list[tuple[int, int]] = []
    epochs = markers[:, COORDINATOR_EPOCH]
    if not len(epochs) or int(epochs.min()) == int(epochs.max()):
        return pairs
    highest: dict[int, int] = {}
    order = np.lexsort((markers[:, POSITION], markers[:, SEGMENT]))
    for row in order.tolist():
        epoch, producer_id = int(markers[row, COORDINATOR_EPOCH]), int(markers[row, PRODUCER_ID])
        if epoch < 0:
            continue
        before = highest.get(producer_id)
        if before is not None and epoch < markers[before, COORDINATOR_EPOCH]:
            pairs.append((row, before))
        else:
            highest[producer_id] = row
    return pairs
