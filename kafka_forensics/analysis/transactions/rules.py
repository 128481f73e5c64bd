"""How transactions of a partition open and end, as kernels (ProducerStateManager, ProducerAppendInfo, TxnMetadata).

A producer has at most one open transaction in a partition: it begins with the first transactional batch after a marker and ends
with the next marker, whatever the epoch of that. What precedes a part of a log can change only what its producers did up to their
first marker there: these blocks (FIRST, MARKER) are kept and judged once the part before is merged.
"""

from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.producers import find_producer
from kafka_forensics.model.constants import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafka_forensics.parsers.kernels.compiling import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    Arrays = tuple[Column, ...]

# Columns of a producer's row after its id.
MARKED: Final = 1
"""1 once it has a marker, 2 once the end of its FIRST transaction is counted."""
SEEN: Final = 2
"""1 once it has a batch or a marker."""
LAST_EPOCH: Final = 3
LAST_OFFSET: Final = 4
"""Of its last batch or marker, inclusive."""
FIRST: Final = 5
"""Block of the transaction that the first marker ended; before the first marker, of the open transaction."""
CURRENT: Final = 15
"""Block of the transaction since the last marker."""
MARKER: Final = 25
"""Block of the first marker."""
TRANSACTION_WIDTH: Final = 31

OPEN, FIRST_OFFSET, FIRST_LAST_OFFSET, SEGMENT, POSITION, SIZE, FIRST_TIMESTAMP, LAST_TIMESTAMP, LAST_DATA_OFFSET, EPOCH = range(10)
"""Columns of a transaction's block, all zero while there is none. FIRST_LAST_OFFSET, SEGMENT to SIZE: of its first batch."""
BLOCK_WIDTH: Final = 10

MARKER_TYPE, MARKER_OFFSET, MARKER_EPOCH, MARKER_SEGMENT, MARKER_POSITION, MARKER_SIZE = range(6)
"""Columns of a marker's block."""

# Counters in `used` after the number of rows.
FOUND_USED, COMMITTED, ABORTED = range(1, 4)
COUNTERS: Final = 3

COMMIT, ABORT, UNREADABLE, LATE = range(1, 5)
"""Kinds of reports. UNREADABLE: a marker without a readable type; its transaction ended either way. LATE: a late batch."""
FOUND_SEGMENT, FOUND_POSITION, FOUND_KIND, FOUND_SIZE, FOUND_OFFSET, FOUND_LAST_OFFSET, FOUND_PRODUCER_ID, FOUND_EPOCH = range(8)
"""Columns of a report: those of the marker or late batch."""
DATA_FIRST_OFFSET, DATA_SEGMENT, DATA_POSITION, DATA_EPOCH = range(8, 12)
DATA_FIRST_TIMESTAMP, DATA_LAST_TIMESTAMP, DATA_LAST_OFFSET = range(12, 15)
"""Further columns of a marker's report: those of the data that it ended; -1 if there are none."""
LATER_EPOCH, LATER_EPOCH_OFFSET = range(8, 10)
"""Further columns of a late batch's report: the higher epoch and an earlier offset with it."""
FOUND_WIDTH: Final = 15


@kernel
def end_transaction(producers: "Column", producer: int, marker: "Column", reports: "Column", used: "Column") -> None:
    """End the current transaction of a producer, if there is one, by a marker's block."""
    kind = UNREADABLE
    if marker[MARKER_TYPE] == CONTROL_COMMIT:
        kind = COMMIT
    elif marker[MARKER_TYPE] == CONTROL_ABORT:
        kind = ABORT
    is_open = producers[producer, CURRENT + OPEN] != 0
    if is_open and kind == COMMIT:
        used[COMMITTED] += 1
    elif is_open and kind == ABORT:
        used[ABORTED] += 1
    if is_open or kind != COMMIT:
        at = int(used[FOUND_USED])
        used[FOUND_USED] = at + 1
        reports[at, FOUND_SEGMENT], reports[at, FOUND_POSITION] = marker[MARKER_SEGMENT], marker[MARKER_POSITION]
        reports[at, FOUND_KIND], reports[at, FOUND_SIZE] = kind, marker[MARKER_SIZE]
        reports[at, FOUND_OFFSET], reports[at, FOUND_LAST_OFFSET] = marker[MARKER_OFFSET], marker[MARKER_OFFSET]
        reports[at, FOUND_PRODUCER_ID], reports[at, FOUND_EPOCH] = producers[producer, 0], marker[MARKER_EPOCH]
        for column in range(8, FOUND_WIDTH):
            reports[at, column] = -1
        if is_open:
            reports[at, DATA_FIRST_OFFSET] = producers[producer, CURRENT + FIRST_OFFSET]
            reports[at, DATA_SEGMENT] = producers[producer, CURRENT + SEGMENT]
            reports[at, DATA_POSITION] = producers[producer, CURRENT + POSITION]
            reports[at, DATA_EPOCH] = producers[producer, CURRENT + EPOCH]
            reports[at, DATA_FIRST_TIMESTAMP] = producers[producer, CURRENT + FIRST_TIMESTAMP]
            reports[at, DATA_LAST_TIMESTAMP] = producers[producer, CURRENT + LAST_TIMESTAMP]
            reports[at, DATA_LAST_OFFSET] = producers[producer, CURRENT + LAST_DATA_OFFSET]
    for column in range(BLOCK_WIDTH):
        producers[producer, CURRENT + column] = 0


@kernel
def take_marker(producers: "Column", producer: int, marker: "Column", reports: "Column", used: "Column") -> None:
    """Add a marker of a producer: the first is kept, any other ends the current transaction."""
    if producers[producer, MARKED] == 0:
        for column in range(MARKER_SIZE + 1):
            producers[producer, MARKER + column] = marker[column]
        producers[producer, MARKED] = 1
    else:
        end_transaction(producers, producer, marker, reports, used)
    producers[producer, SEEN] = 1
    producers[producer, LAST_EPOCH] = marker[MARKER_EPOCH]
    producers[producer, LAST_OFFSET] = marker[MARKER_OFFSET]


@kernel
def take_data(producers: "Column", producer: int, data: "Column", reports: "Column", used: "Column") -> None:
    """Add transactional batches of a producer as a transaction's block: of one batch, or of a FIRST transaction."""
    later = data[FIRST_OFFSET] > producers[producer, LAST_OFFSET]
    if producers[producer, SEEN] != 0 and producers[producer, LAST_EPOCH] > data[EPOCH] and later:
        at = int(used[FOUND_USED])
        used[FOUND_USED] = at + 1
        reports[at, FOUND_SEGMENT], reports[at, FOUND_POSITION] = data[SEGMENT], data[POSITION]
        reports[at, FOUND_KIND], reports[at, FOUND_SIZE] = LATE, data[SIZE]
        reports[at, FOUND_OFFSET], reports[at, FOUND_LAST_OFFSET] = data[FIRST_OFFSET], data[FIRST_LAST_OFFSET]
        reports[at, FOUND_PRODUCER_ID], reports[at, FOUND_EPOCH] = producers[producer, 0], data[EPOCH]
        reports[at, LATER_EPOCH] = producers[producer, LAST_EPOCH]
        reports[at, LATER_EPOCH_OFFSET] = producers[producer, LAST_OFFSET]
        for column in range(10, FOUND_WIDTH):
            reports[at, column] = -1
    block = FIRST if producers[producer, MARKED] == 0 else CURRENT
    if producers[producer, block + OPEN] == 0:
        for column in range(BLOCK_WIDTH):
            producers[producer, block + column] = data[column]
    else:
        producers[producer, block + LAST_TIMESTAMP] = data[LAST_TIMESTAMP]
        producers[producer, block + LAST_DATA_OFFSET] = data[LAST_DATA_OFFSET]
    producers[producer, SEEN] = 1
    producers[producer, LAST_EPOCH] = data[EPOCH]
    producers[producer, LAST_OFFSET] = data[LAST_DATA_OFFSET]


@kernel
def take_batches(start: int, rows: "Column", facts: "Arrays", segment: int, store: "Arrays", used: "Column") -> int:
    """Add the transactional batches and markers at `rows[start:]` of `facts`, in that order; returns where it stopped because an
    array was full. `store` is (producers, slots, keys, reports, room for a block)."""
    producer_ids, epochs, bases, lasts, base_timestamps, max_timestamps = facts[:6]
    positions, sizes, attributes, control_types, crcs, computed = facts[6:]
    producers, slots, keys, reports, block = store
    producer_id, producer = -1, 0
    for index in range(start, rows.size):
        row = int(rows[index])
        if producer_ids[row] < 0 or crcs[row] != computed[row] or not 0 <= bases[row] <= lasts[row]:
            continue
        attribute = int(attributes[row])
        control_type = int(control_types[row])
        is_control = (attribute & CONTROL_MASK) != 0
        if control_type > CONTROL_COMMIT if is_control else (attribute & TRANSACTIONAL_MASK) == 0:
            continue
        if used[0] >= producers.shape[0] or used[FOUND_USED] >= reports.shape[0]:
            return index
        if producer_ids[row] != producer_id:
            producer_id = int(producer_ids[row])
            producer = find_producer(producer_id, producers, slots, keys, used)
        if is_control:
            block[MARKER_TYPE], block[MARKER_OFFSET], block[MARKER_EPOCH] = control_type, bases[row], epochs[row]
            block[MARKER_SEGMENT], block[MARKER_POSITION], block[MARKER_SIZE] = segment, positions[row], sizes[row]
            take_marker(producers, producer, block, reports, used)
            continue
        current = FIRST if producers[producer, MARKED] == 0 else CURRENT
        if producers[producer, current + OPEN] != 0 and producers[producer, LAST_EPOCH] <= epochs[row]:
            producers[producer, current + LAST_TIMESTAMP] = max_timestamps[row]
            producers[producer, current + LAST_DATA_OFFSET] = lasts[row]
            producers[producer, LAST_EPOCH] = epochs[row]
            producers[producer, LAST_OFFSET] = lasts[row]
            continue
        block[OPEN], block[FIRST_OFFSET], block[FIRST_LAST_OFFSET], block[EPOCH] = 1, bases[row], lasts[row], epochs[row]
        block[SEGMENT], block[POSITION], block[SIZE] = segment, positions[row], sizes[row]
        by_maximum = (attribute & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK)) != 0
        block[FIRST_TIMESTAMP] = max_timestamps[row] if by_maximum else base_timestamps[row]
        block[LAST_TIMESTAMP], block[LAST_DATA_OFFSET] = max_timestamps[row], lasts[row]
        take_data(producers, producer, block, reports, used)
    return rows.size


@kernel
def join_producers(start: int, theirs: "Column", store: "Arrays", used: "Column") -> int:
    """Add the producers `theirs[start:]` of the part that follows; returns where it stopped because an array was full."""
    producers, slots, keys, reports = store[:4]
    for row in range(start, theirs.shape[0]):
        if used[0] >= producers.shape[0] or used[FOUND_USED] + 1 >= reports.shape[0]:
            return int(row)
        producer = find_producer(int(theirs[row, 0]), producers, slots, keys, used)
        if theirs[row, FIRST + OPEN] != 0:
            take_data(producers, producer, theirs[row, FIRST : FIRST + BLOCK_WIDTH], reports, used)
        if theirs[row, MARKED] != 0:
            take_marker(producers, producer, theirs[row, MARKER : MARKER + MARKER_SIZE + 1], reports, used)
            for column in range(BLOCK_WIDTH):
                producers[producer, CURRENT + column] = theirs[row, CURRENT + column]
        producers[producer, LAST_EPOCH] = theirs[row, LAST_EPOCH]
        producers[producer, LAST_OFFSET] = theirs[row, LAST_OFFSET]
    return int(theirs.shape[0])
