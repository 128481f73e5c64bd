"""How transactions of a partition open and end, as kernels (ProducerStateManager, ProducerAppendInfo, TxnMetadata).

A producer has at most one transaction open in a partition: it begins with the first transactional batch after a marker and ends
with the next marker, whatever that one's epoch. What stands left of a stretch of log can change only what its producers did up
to their first marker there: this `lead` is kept as it is and judged when the left side is known.
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

# Columns of a producer's row behind its id.
MARKED: Final = 1
"""1 once it had a marker, 2 once what that ended is told among the others."""
SEEN: Final = 2
"""1 once it had a batch or a marker."""
LAST_EPOCH: Final = 3
LAST_OFFSET: Final = 4
"""Of its last batch or marker, inclusive."""
LEAD: Final = 5
"""Block of the transaction that the first marker ended, or the open one while there was no marker."""
CURRENT: Final = 15
"""Block of the transaction since the last marker."""
MARKER: Final = 25
"""Block of the first marker."""
TRANSACTION_WIDTH: Final = 31

# Columns of a transaction's block; it is zero all through while there is no transaction.
OPEN: Final = 0
FIRST_OFFSET: Final = 1
FIRST_LAST_OFFSET: Final = 2
"""Last offset of its first batch."""
SEGMENT: Final = 3
POSITION: Final = 4
SIZE: Final = 5
FIRST_TIMESTAMP: Final = 6
LAST_TIMESTAMP: Final = 7
LAST_DATA_OFFSET: Final = 8
EPOCH: Final = 9
BLOCK_WIDTH: Final = 10

# Columns of a marker's block.
MARKER_TYPE: Final = 0
MARKER_OFFSET: Final = 1
MARKER_EPOCH: Final = 2
MARKER_SEGMENT: Final = 3
MARKER_POSITION: Final = 4
MARKER_SIZE: Final = 5

# Counters behind the table's own.
FOUND_USED: Final = 1
COMMITTED: Final = 2
ABORTED: Final = 3
COUNTERS: Final = 3

# What is found, in the rows of `endings`.
COMMIT: Final = 1
ABORT: Final = 2
UNREADABLE: Final = 3
"""A marker that is cleaned away or does not say its type: the transaction ended, nobody knows how."""
LATE: Final = 4
FOUND_WIDTH: Final = 15
"""Segment, position, kind, size, offset (of a marker or first of a batch), last offset, producer id, epoch, and for a marker the
transaction's first offset (-1 for none), its segment and position, the epoch of its data, their first and last timestamp and last
offset; for a late batch the higher epoch and the offset that has it."""
DATA_EPOCH: Final = 11
DATA_FIRST_TIMESTAMP: Final = 12
DATA_LAST_TIMESTAMP: Final = 13
DATA_LAST_OFFSET: Final = 14


@kernel
def end_transaction(producers: "Column", producer: int, marker: "Column", endings: "Column", used: "Column") -> None:
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
        endings[at, 0] = marker[MARKER_SEGMENT]
        endings[at, 1] = marker[MARKER_POSITION]
        endings[at, 2] = kind
        endings[at, 3] = marker[MARKER_SIZE]
        endings[at, 4] = marker[MARKER_OFFSET]
        endings[at, 5] = marker[MARKER_OFFSET]
        endings[at, 6] = producers[producer, 0]
        endings[at, 7] = marker[MARKER_EPOCH]
        for column in range(8, FOUND_WIDTH):
            endings[at, column] = -1
        if is_open:
            endings[at, 8] = producers[producer, CURRENT + FIRST_OFFSET]
            endings[at, 9] = producers[producer, CURRENT + SEGMENT]
            endings[at, 10] = producers[producer, CURRENT + POSITION]
            endings[at, DATA_EPOCH] = producers[producer, CURRENT + EPOCH]
            endings[at, DATA_FIRST_TIMESTAMP] = producers[producer, CURRENT + FIRST_TIMESTAMP]
            endings[at, DATA_LAST_TIMESTAMP] = producers[producer, CURRENT + LAST_TIMESTAMP]
            endings[at, DATA_LAST_OFFSET] = producers[producer, CURRENT + LAST_DATA_OFFSET]
    for column in range(BLOCK_WIDTH):
        producers[producer, CURRENT + column] = 0


@kernel
def take_marker(producers: "Column", producer: int, marker: "Column", endings: "Column", used: "Column") -> None:
    """Take a marker of a producer: its first is kept beside the lead, any other ends the current transaction."""
    if producers[producer, MARKED] == 0:
        for column in range(MARKER_SIZE + 1):
            producers[producer, MARKER + column] = marker[column]
        producers[producer, MARKED] = 1
    else:
        end_transaction(producers, producer, marker, endings, used)
    producers[producer, SEEN] = 1
    producers[producer, LAST_EPOCH] = marker[MARKER_EPOCH]
    producers[producer, LAST_OFFSET] = marker[MARKER_OFFSET]


@kernel
def take_data(producers: "Column", producer: int, data: "Column", endings: "Column", used: "Column") -> None:
    """Take transactional batches of a producer as the block of a transaction they would be: one batch, or those of a lead."""
    behind = data[FIRST_OFFSET] > producers[producer, LAST_OFFSET]
    if producers[producer, SEEN] != 0 and producers[producer, LAST_EPOCH] > data[EPOCH] and behind:
        at = int(used[FOUND_USED])
        used[FOUND_USED] = at + 1
        endings[at, 0] = data[SEGMENT]
        endings[at, 1] = data[POSITION]
        endings[at, 2] = LATE
        endings[at, 3] = data[SIZE]
        endings[at, 4] = data[FIRST_OFFSET]
        endings[at, 5] = data[FIRST_LAST_OFFSET]
        endings[at, 6] = producers[producer, 0]
        endings[at, 7] = data[EPOCH]
        endings[at, 8] = producers[producer, LAST_EPOCH]
        endings[at, 9] = producers[producer, LAST_OFFSET]
        for column in range(10, FOUND_WIDTH):
            endings[at, column] = -1
    block = LEAD if producers[producer, MARKED] == 0 else CURRENT
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
def take_batches(start: int, rows: "Column", facts: "Arrays", segment: int, store: "Arrays", used: "Column", now: "Column") -> int:
    """Take the transactional batches and markers at `rows[start:]` of `facts`, in that order; the answer is where it had to stop
    for want of room. `store` is (producers, slots, keys, found), `now` room for a block."""
    (
        producer_ids,
        epochs,
        bases,
        lasts,
        base_timestamps,
        max_timestamps,
        positions,
        sizes,
        attributes,
        control_types,
        crcs,
        computed,
    ) = facts
    producers, slots, keys, endings = store
    known, producer = -1, 0
    for index in range(start, rows.size):
        row = int(rows[index])
        if producer_ids[row] < 0 or crcs[row] != computed[row] or not 0 <= bases[row] <= lasts[row]:
            continue
        attribute = int(attributes[row])
        control_type = int(control_types[row])
        is_control = (attribute & CONTROL_MASK) != 0
        if control_type > CONTROL_COMMIT if is_control else (attribute & TRANSACTIONAL_MASK) == 0:
            continue
        if used[0] >= producers.shape[0] or used[FOUND_USED] >= endings.shape[0]:
            return index
        if producer_ids[row] != known:
            known = int(producer_ids[row])
            producer = find_producer(known, producers, slots, keys, used)
        if is_control:
            now[MARKER_TYPE], now[MARKER_OFFSET], now[MARKER_EPOCH] = control_type, bases[row], epochs[row]
            now[MARKER_SEGMENT], now[MARKER_POSITION], now[MARKER_SIZE] = segment, positions[row], sizes[row]
            take_marker(producers, producer, now, endings, used)
            continue
        block = LEAD if producers[producer, MARKED] == 0 else CURRENT
        if producers[producer, block + OPEN] != 0 and producers[producer, LAST_EPOCH] <= epochs[row]:
            producers[producer, block + LAST_TIMESTAMP] = max_timestamps[row]
            producers[producer, block + LAST_DATA_OFFSET] = lasts[row]
            producers[producer, LAST_EPOCH] = epochs[row]
            producers[producer, LAST_OFFSET] = lasts[row]
            continue
        now[OPEN], now[FIRST_OFFSET], now[FIRST_LAST_OFFSET], now[EPOCH] = 1, bases[row], lasts[row], epochs[row]
        now[SEGMENT], now[POSITION], now[SIZE] = segment, positions[row], sizes[row]
        by_maximum = (attribute & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK)) != 0
        now[FIRST_TIMESTAMP] = max_timestamps[row] if by_maximum else base_timestamps[row]
        now[LAST_TIMESTAMP], now[LAST_DATA_OFFSET] = max_timestamps[row], lasts[row]
        take_data(producers, producer, now, endings, used)
    return rows.size


@kernel
def join_producers(start: int, theirs: "Column", store: "Arrays", used: "Column") -> int:
    """Take the producers `theirs[start:]` of the stretch behind ours; the answer is where it had to stop for want of room."""
    producers, slots, keys, endings = store
    for row in range(start, theirs.shape[0]):
        if used[0] >= producers.shape[0] or used[FOUND_USED] + 1 >= endings.shape[0]:
            return int(row)
        producer = find_producer(int(theirs[row, 0]), producers, slots, keys, used)
        if theirs[row, LEAD + OPEN] != 0:
            take_data(producers, producer, theirs[row, LEAD : LEAD + BLOCK_WIDTH], endings, used)
        if theirs[row, MARKED] != 0:
            take_marker(producers, producer, theirs[row, MARKER : MARKER + MARKER_SIZE + 1], endings, used)
            for column in range(BLOCK_WIDTH):
                producers[producer, CURRENT + column] = theirs[row, CURRENT + column]
        producers[producer, LAST_EPOCH] = theirs[row, LAST_EPOCH]
        producers[producer, LAST_OFFSET] = theirs[row, LAST_OFFSET]
    return int(theirs.shape[0])
