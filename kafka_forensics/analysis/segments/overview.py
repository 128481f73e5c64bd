"""One look at a chunk before the folds step over it: most chunks are sound, and most rules then need no look of their own."""

from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.compiled import kernel
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, INT64_MAX, MIN_RECORD_SIZE, RECORD_BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CRC: Final = int(BatchColumn.CRC)
_CRC_COMPUTED: Final = int(BatchColumn.CRC_COMPUTED)
_BASE_OFFSET: Final = int(BatchColumn.BASE_OFFSET)
_LAST_OFFSET: Final = int(BatchColumn.LAST_OFFSET)
_ATTRIBUTES: Final = int(BatchColumn.ATTRIBUTES)
_BY_BROKER: Final = CONTROL_MASK | TIMESTAMP_TYPE_MASK
_EPOCH: Final = int(BatchColumn.PARTITION_LEADER_EPOCH)
_PRODUCER_ID: Final = int(BatchColumn.PRODUCER_ID)
_RECORDS_COUNT: Final = int(BatchColumn.RECORDS_COUNT)
_DELTA: Final = int(BatchColumn.LAST_OFFSET_DELTA)
_MAX_TIMESTAMP: Final = int(BatchColumn.MAX_TIMESTAMP)
_SIZE: Final = int(BatchColumn.SIZE_IN_BYTES)
_MOST_RECORDS: Final = 1 << 20
"""More records than this in one batch are not believed when they are counted."""


@kernel
def good_counts(columns: "NDArray[np.int64]") -> tuple[int, int, int]:
    """(records, largest timestamp, odd) of the batches with a right CRC, see `look_over`."""
    records = 0
    max_timestamp = -1
    odd = 0
    for row in range(columns.shape[1]):
        if columns[_CRC, row] != columns[_CRC_COMPUTED, row]:
            continue
        count = int(columns[_RECORDS_COUNT, row])
        records += min(max(count, 0), _MOST_RECORDS)
        max_timestamp = max(max_timestamp, int(columns[_MAX_TIMESTAMP, row]))
        too_many = count * MIN_RECORD_SIZE > int(columns[_SIZE, row]) - RECORD_BATCH_OVERHEAD
        odd += (count < 0) | too_many | (count != int(columns[_DELTA, row]) + 1)
    return records, max_timestamp, odd


@kernel
def all_counts(columns: "NDArray[np.int64]") -> tuple[int, int, int]:
    """The same of a matrix in which every CRC is right: no branch stops the compiler from taking several rows at once."""
    records = 0
    for row in range(columns.shape[1]):
        records += min(max(int(columns[_RECORDS_COUNT, row]), 0), _MOST_RECORDS)
    max_timestamp = -1
    for row in range(columns.shape[1]):
        max_timestamp = max(max_timestamp, int(columns[_MAX_TIMESTAMP, row]))
    odd = 0
    for row in range(columns.shape[1]):
        count = int(columns[_RECORDS_COUNT, row])
        too_many = count * MIN_RECORD_SIZE > int(columns[_SIZE, row]) - RECORD_BATCH_OVERHEAD
        odd += (count < 0) | too_many | (count != int(columns[_DELTA, row]) + 1)
    return records, max_timestamp, odd


@kernel
def look_over(columns: "NDArray[np.int64]") -> tuple[int, int, int, int, int, int, int]:
    """(rough, epoch changes, batches with a producer, records, largest timestamp, odd, timed) of a matrix of at least one batch.

    `rough` is 0 if every CRC is right and each batch starts where the one before it ends, from 0 up and below the largest offset
    there is. `timed` is not 0 if some batch may bear the time of a broker. The three before speak of the batches with a right CRC;
    `odd` are those whose count does not follow from their offsets and size. A loop for each question: simple ones run faster.
    """
    rows = columns.shape[1]
    wrong = 0
    for row in range(rows):
        wrong |= columns[_CRC, row] != columns[_CRC_COMPUTED, row]
    rough = 0
    for row in range(rows):
        base, last = int(columns[_BASE_OFFSET, row]), int(columns[_LAST_OFFSET, row])
        rough |= (base < 0) | (last < base) | (last == INT64_MAX)
    apart = 0
    for row in range(1, rows):
        apart |= int(columns[_BASE_OFFSET, row]) - 1 != int(columns[_LAST_OFFSET, row - 1])
    changes = 0
    epoch = int(columns[_EPOCH, 0])
    for row in range(rows):
        changes += int(columns[_EPOCH, row]) != epoch
    producers = 0
    for row in range(rows):
        producers += int(columns[_PRODUCER_ID, row]) >= 0
    timed = 0
    for row in range(rows):
        timed |= int(columns[_ATTRIBUTES, row])
    records, max_timestamp, odd = all_counts(columns) if wrong == 0 else good_counts(columns)
    return wrong | rough | apart, changes, producers, records, max_timestamp, odd, timed & _BY_BROKER


class Survey(NamedTuple):
    """What a chunk of at least one batch is like."""

    joined: bool
    """Every CRC is right, and each batch starts where the one before it ends."""
    one_epoch: bool
    """All batches have the same `partition_leader_epoch`."""
    producers: bool
    """Some batch has a producer id."""
    records: int
    max_timestamp: int
    """Largest of the good batches, -1 for none."""
    odd: int
    """Good batches whose number of records does not follow from their offsets and size."""
    timed: bool
    """Some batch is a control batch or of LogAppendTime: its timestamps are a broker's."""


def survey(columns: "NDArray[np.int64]") -> Survey:
    """Look over a chunk's (BATCH_COLUMNS, n) matrix, n ≥ 1."""
    rough, changes, producers, records, max_timestamp, odd, timed = look_over(columns)
    return Survey(not rough, changes == 0, producers > 0, int(records), int(max_timestamp), int(odd), timed != 0)
