"""The sequence rules of idempotent producers as a kernel (ProducerAppendInfo, ProducerStateEntry).

A batch is judged only by the five batches of its producer before it: a broker remembers no more. So a part of a log can be judged
without the part before it, except for the first five batches of each producer: these are kept in `first_batches` and judged once
the part before is merged. Sequence numbers wrap from 2^31 - 1 to 0.
"""

import secrets
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.constants import CONTROL_MASK, MAX_SEQUENCE, TRANSACTIONAL_MASK
from kafka_forensics.parsers.kernels.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    Arrays = tuple[Column, ...]


# An open-addressing hash table, filled and read by kernels: producer id → row of a matrix.
#
# Rows keep the order in which producers first appear, so no output depends on the hash. The hash has random keys: crafted producer
# ids cannot all share a slot and make a scan quadratic.

_FIRST_CAPACITY: Final = 16
_SLOTS_PER_ROW: Final = 4
_MOVED_AT_ONCE: Final = 1024
_PRIME: Final = 2**31 - 1
_LOW_BITS: Final = 2**31 - 1


@kernel
def first_slot(producer_id: int, key_low: int, key_high: int, mask: int) -> int:
    """First slot to search for a producer id >= 0; the sums stay below 2^62."""
    low = producer_id & _LOW_BITS
    high = (producer_id >> 31) & _LOW_BITS
    return ((low * key_low + high * key_high) % _PRIME) & mask


@kernel
def find_producer(producer_id: int, rows: "Column", slots: "Column", keys: "Column", used: "Column") -> int:
    """Row of a producer id >= 0, added if it is new; the caller ensures that a row is free. `used[0]` counts the rows."""
    mask = slots.size - 1
    slot = first_slot(producer_id, int(keys[0]), int(keys[1]), mask)
    while True:
        row = int(slots[slot])
        if row < 0:
            row = int(used[0])
            rows[row, 0] = producer_id
            slots[slot] = row
            used[0] = row + 1
            return row
        if rows[row, 0] == producer_id:
            return row
        slot = (slot + 1) & mask


@kernel
def fill_slots(rows: "Column", slots: "Column", keys: "Column", count: int) -> None:
    """Add the first `count` rows to empty slots."""
    mask = slots.size - 1
    for row in range(count):
        slot = first_slot(int(rows[row, 0]), int(keys[0]), int(keys[1]), mask)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row


@cache
def _hash_keys() -> "NDArray[np.int64]":
    return np.array([1 + secrets.randbelow(2**30), 1 + secrets.randbelow(2**30)], np.int64)


_NO_SLOTS: Final = np.full(_FIRST_CAPACITY * _SLOTS_PER_ROW, -1, np.int64)


class ProducerTable:
    """`rows` (capacity, width) int64, zeros where unused, column 0 the producer id; the first `used[0]` rows are in use.

    `used` has room for `counters` more counts of the caller. All state is arrays, so a copy works in another process.
    """

    def __init__(self, width: int, counters: int = 0) -> None:
        self.rows: Column = np.zeros((_FIRST_CAPACITY, width), np.int64)
        self.slots: Column = _NO_SLOTS.copy()
        self.keys: Column = _hash_keys().copy()
        self.used: Column = np.zeros(1 + counters, np.int64)

    def __len__(self) -> int:
        return int(self.used[0])

    @property
    def full(self) -> bool:
        """Whether `find_producer` may not add another row before `grow`."""
        return len(self) == len(self.rows)

    def grow(self) -> None:
        """Double the capacity."""
        self.rows = doubled(self.rows)
        self._rehash()

    def keep(self, kept: "Column") -> None:
        """Drop all rows except those numbered `kept`, ascending; these move to the front."""
        move_to_front(self.rows, kept)
        self.rows[len(kept) :] = 0
        self.used[0] = len(kept)
        self._rehash()

    def shrink(self) -> None:
        """Release the memory of unused rows."""
        capacity = _FIRST_CAPACITY
        while capacity < len(self):
            capacity *= 2
        self.rows = self.rows[:capacity].copy()
        self._rehash()

    def _rehash(self) -> None:
        self.slots = np.full(len(self.rows) * _SLOTS_PER_ROW, -1, np.int64)
        fill_slots(self.rows, self.slots, self.keys, len(self))

    def are_in(self, others: "ProducerTable") -> "NDArray[np.bool_]":
        """For each row in use, whether `others` has its producer."""
        return np.isin(self.used_rows()[:, 0], others.used_rows()[:, 0])

    def used_rows(self) -> "Column":
        """The rows in use, in the order in which producers first appear."""
        return self.rows[: len(self)]

    def find(self, producer_id: int) -> int:
        """Row of a producer, -1 if there is none."""
        if producer_id < 0:
            return -1
        mask = self.slots.size - 1
        slot = first_slot(producer_id, int(self.keys[0]), int(self.keys[1]), mask)
        while True:
            row = int(self.slots[slot])
            if row < 0 or self.rows[row, 0] == producer_id:
                return row
            slot = (slot + 1) & mask


def move_to_front(array: "Column", kept: "Column") -> None:
    """Move the rows numbered `kept`, ascending, to the front: a few at a time, without a second array."""
    for start in range(0, len(kept), _MOVED_AT_ONCE):
        moved = kept[start : start + _MOVED_AT_ONCE]
        array[start : start + len(moved)] = array[moved]


def doubled(array: "Column") -> "Column":
    """A copy with twice the rows; the new rows are zero."""
    grown = np.zeros((2 * len(array), *array.shape[1:]), np.int64)
    grown[: len(array)] = array
    return grown


WINDOW: Final = 5
"""Batches of a producer that a broker remembers (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""
EXPIRATION_MS: Final = 86_400_000
"""Default of producer.id.expiration.ms: after this time a broker forgets a silent producer, which may continue with any
sequence."""
UNKNOWN_MS: Final = -(1 << 63)
"""Time since the previous batch where a timestamp is missing."""

# Columns of `facts` and `first_batches`; in `facts`, column 2 is the last offset delta. A window has the first seven.
EPOCH, FIRST_SEQUENCE, LAST_SEQUENCE, BASE_OFFSET, LAST_OFFSET, TIMESTAMP, BREAKS = range(7)
PRODUCER_ID, SEGMENT, POSITION, SIZE, ATTRIBUTES = range(7, 12)
WINDOW_WIDTH: Final = 7
FACTS: Final = 12

# Columns of a producer's row after its id.
COUNT: Final = 1
FIRST_BATCH: Final = 2
"""Row in `first_batches` of its only batch, while it has one."""
BLOCK: Final = 3
"""1 + number of its block of five rows in `windows`, used as a ring; 0 before its second batch."""
FIRST_OFFSET: Final = 4
"""Base offset of its first batch."""
PRODUCER_WIDTH: Final = 5

# Counters in `used` after the number of rows.
FIRST_BATCHES_USED, WINDOWS_USED, FOUND_USED = range(1, 4)
COUNTERS: Final = 3

LEGAL, DUPLICATE, BACKWARD, GAP, REGRESSION, EPOCH_REGRESSION = range(6)
"""What a batch is. BACKWARD: its offsets and its sequence are below the last of its producer; a duplicate if the log had these
offsets before."""
KINDS: Final = (DUPLICATE, BACKWARD, GAP, REGRESSION, EPOCH_REGRESSION)
FOUND_WIDTH: Final = 15
"""Columns of a report: segment, position, kind, size, base offset, last offset, producer id, epoch, expected, found and last
sequence, base offset, epoch and last offset of the previous batch (of the repeated one for DUPLICATE), ms since the previous
batch."""

_HALF_RING: Final = 2**30
_CONSECUTIVE: Final = 8
"""Consecutive batches of one producer after which the kernel searches for the end of such a run."""
_SHORT_DELTA: Final = 2**27
_KIND_BITS: Final = 8
_KIND_MASK: Final = 255


@kernel
def elapsed_ms(earlier: int, later: int) -> int:
    """Milliseconds between two batches, UNKNOWN_MS if either has no timestamp."""
    if earlier < 0 or later < 0:
        return UNKNOWN_MS
    return later - earlier


@kernel
def resumes(windows: "Column", base: int, kept: int, epoch: int, first: int, last: int) -> bool:
    """Whether a batch continues one of the window and shares no sequence number with any."""
    continues = False
    for row in range(base, base + kept):
        if windows[row, EPOCH] != epoch:
            continue
        other_first = int(windows[row, FIRST_SEQUENCE])
        other_last = int(windows[row, LAST_SEQUENCE])
        if ((first - other_first) & MAX_SEQUENCE) <= ((other_last - other_first) & MAX_SEQUENCE):
            return False
        if ((other_first - first) & MAX_SEQUENCE) <= ((last - first) & MAX_SEQUENCE):
            return False
        if ((first - other_last) & MAX_SEQUENCE) == 1:
            continues = True
    return continues


@kernel
def repeats(windows: "Column", row: int, epoch: int, first: int, last: int) -> bool:
    """Whether a row of a window has this epoch and these sequence numbers."""
    same = windows[row, FIRST_SEQUENCE] == first and windows[row, LAST_SEQUENCE] == last
    return bool(same and windows[row, EPOCH] == epoch)


@kernel
def find_repeated(windows: "Column", base: int, kept: int, newest: int, epoch: int, first: int, last: int) -> int:
    """Number of the oldest batch of the window with this epoch and these sequence numbers, -1 if there is none."""
    for number in range(kept):
        if windows[base + number, FIRST_SEQUENCE] == first and repeats(windows, base + number, epoch, first, last):
            oldest = number
            for back in range(kept):
                earlier = (newest - back) % WINDOW
                if repeats(windows, base + earlier, epoch, first, last):
                    oldest = earlier
            return oldest
    return -1


@kernel
def goes_back(windows: "Column", base: int, kept: int, base_offset: int, fact: int) -> bool:
    """Whether `base_offset` is at or below the largest `fact` of the window: BASE_OFFSET, the batch belongs before another one;
    LAST_OFFSET, it may only overlap one."""
    furthest = int(windows[base, fact])
    for row in range(base, base + kept):
        furthest = max(furthest, int(windows[row, fact]))
    return furthest >= base_offset


@kernel
def ends_before(windows: "Column", base: int, kept: int, epoch: int, last: int) -> bool:
    """Whether `last` is before the last sequence of a batch of the same epoch in the window, or all epochs of the window are
    higher."""
    has_epoch = False
    higher = True
    for row in range(base, base + kept):
        if windows[row, EPOCH] == epoch:
            has_epoch = True
            if ((int(windows[row, LAST_SEQUENCE]) - last) & MAX_SEQUENCE) < _HALF_RING:
                return True
        elif windows[row, EPOCH] < epoch:
            higher = False
    return higher and not has_epoch


@kernel
def judge(windows: "Column", base: int, count: int, batch: "Column") -> int:
    """Kind of `batch`, number `count` of its producer, by the up to five batches before it in the ring `windows[base:]`. The upper
    bits, from `_KIND_BITS` on, are the number of the batch that it repeats or follows."""
    newest = (count - 1) % WINDOW
    kept = min(count, WINDOW)
    previous = base + newest
    epoch, first, last = int(batch[EPOCH]), int(batch[FIRST_SEQUENCE]), int(batch[LAST_SEQUENCE])
    previous_epoch, previous_last = int(windows[previous, EPOCH]), int(windows[previous, LAST_SEQUENCE])
    duplicate = int(find_repeated(windows, base, kept, newest, epoch, first, last))
    if duplicate < 0 and epoch == previous_epoch and ((first - previous_last) & MAX_SEQUENCE) == 1:
        return LEGAL
    if elapsed_ms(int(windows[previous, TIMESTAMP]), int(batch[TIMESTAMP])) >= EXPIRATION_MS:
        return LEGAL
    if duplicate >= 0:
        return DUPLICATE | (duplicate << _KIND_BITS)
    backward = goes_back(windows, base, kept, int(batch[BASE_OFFSET]), BASE_OFFSET)
    if not backward and goes_back(windows, base, kept, int(batch[BASE_OFFSET]), LAST_OFFSET):
        return LEGAL  # an earlier header claims more offsets than its batch has: which has another finding
    if epoch > previous_epoch and not backward:
        return LEGAL
    if (backward or epoch == previous_epoch) and resumes(windows, base, kept, epoch, first, last):
        return LEGAL
    if backward:
        return (BACKWARD if ends_before(windows, base, kept, epoch, last) else LEGAL) | (newest << _KIND_BITS)
    if epoch < previous_epoch:
        transactional = (int(batch[ATTRIBUTES]) & TRANSACTIONAL_MASK) != 0  # reported as TXN_LATE_WRITE
        return LEGAL if transactional else EPOCH_REGRESSION | (newest << _KIND_BITS)
    if batch[BREAKS] != windows[previous, BREAKS]:
        return LEGAL
    ahead = (first - previous_last - 1) & MAX_SEQUENCE
    return (GAP if ahead < _HALF_RING else REGRESSION) | (newest << _KIND_BITS)


@kernel
def write_report(reports: "Column", at: int, judged: int, windows: "Column", base: int, newest: int, batch: "Column") -> None:
    """Write row `at` of `reports` for `batch`."""
    other, previous = base + (judged >> _KIND_BITS), base + newest
    reports[at, 0], reports[at, 1], reports[at, 2] = batch[SEGMENT], batch[POSITION], judged & _KIND_MASK
    reports[at, 3], reports[at, 4], reports[at, 5] = batch[SIZE], batch[BASE_OFFSET], batch[LAST_OFFSET]
    reports[at, 6], reports[at, 7] = batch[PRODUCER_ID], batch[EPOCH]
    reports[at, 8] = (int(windows[previous, LAST_SEQUENCE]) + 1) & MAX_SEQUENCE
    reports[at, 9], reports[at, 10] = batch[FIRST_SEQUENCE], batch[LAST_SEQUENCE]
    reports[at, 11], reports[at, 12], reports[at, 13] = (
        windows[other, BASE_OFFSET],
        windows[other, EPOCH],
        windows[other, LAST_OFFSET],
    )
    reports[at, 14] = elapsed_ms(int(windows[previous, TIMESTAMP]), int(batch[TIMESTAMP]))


@kernel
def consecutive_run(start: int, rows: "Column", facts: "Arrays", batch: "Column") -> int:
    """End of the run of `rows[start:]` whose batches continue one another and `batch`, all of one producer and far shorter than the
    range of sequence numbers: after five such batches none can repeat another."""
    epochs, firsts, deltas, _, _, _, _, producer_ids, _, _, _, attributes = facts
    producer_id, epoch = int(batch[PRODUCER_ID]), int(batch[EPOCH])
    expected = (int(batch[LAST_SEQUENCE]) + 1) & MAX_SEQUENCE
    for index in range(start, rows.size):
        row = int(rows[index])
        delta = int(deltas[row])
        if (
            firsts[row] != expected
            or producer_ids[row] != producer_id
            or epochs[row] != epoch
            or delta < 0
            or delta > _SHORT_DELTA
            or (int(attributes[row]) & CONTROL_MASK) != 0
        ):
            return index
        expected = (expected + delta + 1) & MAX_SEQUENCE
    return rows.size


@kernel
def write_window(windows: "Column", base: int, count: int, rows: "Column", facts: "Arrays") -> None:
    """Write the last five of `count` batches of a producer to its window."""
    epochs, firsts, deltas, bases, lasts, timestamps, breaks, _, _, _, _, _ = facts
    for number in range(WINDOW):
        row = int(rows[number])
        at = base + (count - WINDOW + number) % WINDOW
        windows[at, EPOCH], windows[at, FIRST_SEQUENCE] = epochs[row], firsts[row]
        windows[at, LAST_SEQUENCE] = (int(firsts[row]) + int(deltas[row])) & MAX_SEQUENCE
        windows[at, BASE_OFFSET], windows[at, LAST_OFFSET] = bases[row], lasts[row]
        windows[at, TIMESTAMP], windows[at, BREAKS] = timestamps[row], breaks[row]


@kernel
def lacks_room(used: "Column", producers: int, first_batches: int, windows: int, reports: int) -> bool:
    """Whether one more batch may not fit into arrays of these sizes."""
    blocks = (used[WINDOWS_USED] + 1) * WINDOW > windows
    return bool(used[0] >= producers or used[FIRST_BATCHES_USED] >= first_batches or blocks or used[FOUND_USED] >= reports)


@kernel
def write_facts(rows: "Column", at: int, batch: "Column", width: int) -> None:
    """Write the first `width` facts of a batch to row `at`."""
    for fact in range(width):
        rows[at, fact] = batch[fact]


@kernel
def take_batches(
    start: int, rows: "Column", facts: "Arrays", store: "Arrays", used: "Column", unjudged: int, duplicates_only: int
) -> int:
    """Take the batches at `rows[start:]` of `facts`, in that order; returns where it stopped because an array was full.

    `store` is (producers, slots, keys, first_batches, windows, reports, room for one batch). The first `unjudged` batches of a
    producer go to `first_batches` unjudged: five, or none if no part of the log precedes. Of its first `duplicates_only` batches
    only duplicates are reported: five if producers were forgotten, whose windows may lack batches.
    """
    epochs, firsts, deltas, bases, lasts, timestamps, breaks, producer_ids, segments, positions, sizes, attributes = facts
    producers, slots, keys, first_batches, windows, reports, batch = store
    key_low, key_high, mask = int(keys[0]), int(keys[1]), slots.size - 1
    producer, consecutive, resume = 0, 0, start
    batch[PRODUCER_ID] = -1
    for index in range(start, rows.size):
        if index < resume:
            continue
        row = int(rows[index])
        first, delta, producer_id = int(firsts[row]), int(deltas[row]), int(producer_ids[row])
        if (int(attributes[row]) & CONTROL_MASK) != 0 or first > MAX_SEQUENCE or delta < 0 or delta > MAX_SEQUENCE:
            continue
        if lacks_room(used, producers.shape[0], first_batches.shape[0], windows.shape[0], reports.shape[0]):
            return index
        if producer_id != batch[PRODUCER_ID]:
            slot = first_slot(producer_id, key_low, key_high, mask)
            producer = int(slots[slot])
            if producer < 0 or producers[producer, 0] != producer_id:
                producer = find_producer(producer_id, producers, slots, keys, used)
            consecutive = 0
        elif delta <= _SHORT_DELTA and epochs[row] == batch[EPOCH] and first == (batch[LAST_SEQUENCE] + 1) & MAX_SEQUENCE:
            consecutive += 1
        else:
            consecutive = 0
        batch[EPOCH], batch[FIRST_SEQUENCE], batch[LAST_SEQUENCE] = epochs[row], first, (first + delta) & MAX_SEQUENCE
        batch[BASE_OFFSET], batch[LAST_OFFSET], batch[TIMESTAMP] = bases[row], lasts[row], timestamps[row]
        batch[BREAKS], batch[PRODUCER_ID], batch[SEGMENT] = breaks[row], producer_id, segments[row]
        batch[POSITION], batch[SIZE], batch[ATTRIBUTES] = positions[row], sizes[row], attributes[row]
        count = int(producers[producer, COUNT])
        producers[producer, COUNT] = count + 1
        if count == 0:
            producers[producer, FIRST_OFFSET] = bases[row]
        if count < unjudged:
            first_batch = int(used[FIRST_BATCHES_USED])
            used[FIRST_BATCHES_USED] = first_batch + 1
            write_facts(first_batches, first_batch, batch, FACTS)
            if count == 0:
                producers[producer, FIRST_BATCH] = first_batch
                continue
        base = (int(producers[producer, BLOCK]) - 1) * WINDOW
        if base < 0:
            base = int(used[WINDOWS_USED]) * WINDOW
            used[WINDOWS_USED] += 1
            producers[producer, BLOCK] = used[WINDOWS_USED]
            if count == 1:
                write_facts(windows, base, first_batches[int(producers[producer, FIRST_BATCH])], WINDOW_WIDTH)
        elif count >= unjudged:
            judged = judge(windows, base, count, batch)
            if (judged & _KIND_MASK) == DUPLICATE or ((judged & _KIND_MASK) != LEGAL and count >= duplicates_only):
                write_report(reports, int(used[FOUND_USED]), judged, windows, base, (count - 1) % WINDOW, batch)
                used[FOUND_USED] += 1
        write_facts(windows, base + count % WINDOW, batch, WINDOW_WIDTH)
        if consecutive == _CONSECUTIVE:
            consecutive = 0
            end = consecutive_run(index + 1, rows, facts, batch)
            if end > index + WINDOW:
                producers[producer, COUNT] = count + end - index
                write_window(windows, base, count + end - index, rows[end - WINDOW : end], facts)
                batch[PRODUCER_ID] = -1
                resume = end
    return rows.size


@kernel
def merge_windows(theirs: "Column", their_windows: "Column", store: "Arrays", used: "Column", shift: int) -> None:
    """Take over the last five batches of the producers of the following part that have more, after all its first batches are
    taken; `shift` is added to their numbers of breaks."""
    producers, slots, keys, windows = store[0], store[1], store[2], store[4]
    for row in range(theirs.shape[0]):
        count = int(theirs[row, COUNT])
        if count <= WINDOW:
            continue
        producer = find_producer(int(theirs[row, 0]), producers, slots, keys, used)
        total = int(producers[producer, COUNT]) - WINDOW + count
        producers[producer, COUNT] = total
        source = (int(theirs[row, BLOCK]) - 1) * WINDOW
        target = (int(producers[producer, BLOCK]) - 1) * WINDOW
        for back in range(1, WINDOW + 1):
            at = target + (total - back) % WINDOW
            write_facts(windows, at, their_windows[source + (count - back) % WINDOW], WINDOW_WIDTH)
            windows[at, BREAKS] += shift
