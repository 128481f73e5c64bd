"""The sequence rules of idempotent producers as a kernel (ProducerAppendInfo, ProducerStateEntry).

A batch is judged by the five batches of its producer that stand before it, as many as a broker remembers, and by nothing else.
So a stretch of log can be judged without what stands left of it, but for each producer's first five batches: these are kept as
they are (`heads`), and judged when the left side is known. Sequence numbers form a ring of 2^31.
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


# Producer id → row of a matrix, as an open-addressing table that kernels fill and look up.
#
# Rows keep the order in which producers were met, so nothing that is counted or printed depends on the hash. The hash is keyed at
# random, so that crafted producer ids cannot all fall into one slot and make a scan quadratic.


_FIRST_CAPACITY: Final = 16
_SLOTS_PER_ROW: Final = 4
_MOVED_AT_ONCE: Final = 1024
_PRIME: Final = 2**31 - 1
_LOW_BITS: Final = 2**31 - 1


@kernel
def slot_of(producer_id: int, key_low: int, key_high: int, mask: int) -> int:
    """Where the search for a producer id >= 0 starts; the sums stay below 2^62."""
    low = producer_id & _LOW_BITS
    high = (producer_id >> 31) & _LOW_BITS
    return ((low * key_low + high * key_high) % _PRIME) & mask


@kernel
def find_producer(
    producer_id: int, rows: "NDArray[np.int64]", slots: "NDArray[np.int64]", keys: "NDArray[np.int64]", used: "NDArray[np.int64]"
) -> int:
    """Row of a producer id >= 0, added if it is new: there must be room for it. `used[0]` counts the rows."""
    mask = slots.size - 1
    slot = slot_of(producer_id, int(keys[0]), int(keys[1]), mask)
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
def fill_slots(rows: "NDArray[np.int64]", slots: "NDArray[np.int64]", keys: "NDArray[np.int64]", count: int) -> None:
    """Enter the first `count` rows into empty slots."""
    mask = slots.size - 1
    for row in range(count):
        slot = slot_of(int(rows[row, 0]), int(keys[0]), int(keys[1]), mask)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row


@cache
def _keys() -> "NDArray[np.int64]":
    """Of the hashes of this process, so that no file can hold producer ids that fall together."""
    return np.array([1 + secrets.randbelow(2**30), 1 + secrets.randbelow(2**30)], np.int64)


_NO_SLOTS: Final = np.full(_FIRST_CAPACITY * _SLOTS_PER_ROW, -1, np.int64)


class ProducerTable:
    """`rows` (capacity, width) int64, zeros where unused, column 0 the producer id; `used[0]` rows are taken.

    `used` has room for `counters` more counts of the caller's. Made of arrays only, so a copy in another process works alike.
    """

    def __init__(self, width: int, counters: int = 0) -> None:
        self.rows: NDArray[np.int64] = np.zeros((_FIRST_CAPACITY, width), np.int64)
        self.slots: NDArray[np.int64] = _NO_SLOTS.copy()
        self.keys: NDArray[np.int64] = _keys().copy()
        self.used: NDArray[np.int64] = np.zeros(1 + counters, np.int64)

    def __len__(self) -> int:
        return int(self.used[0])

    @property
    def full(self) -> bool:
        """Whether `find_producer` may not add another row before `grow`."""
        return len(self) == len(self.rows)

    def grow(self) -> None:
        """Double the room."""
        self.rows = doubled(self.rows)
        self.slots = np.full(len(self.rows) * _SLOTS_PER_ROW, -1, np.int64)
        fill_slots(self.rows, self.slots, self.keys, len(self))

    def keep(self, kept: "NDArray[np.int64]") -> None:
        """Forget all rows but those numbered `kept`, ascending; they move up."""
        count = len(kept)
        move_up(self.rows, kept)
        self.rows[count:] = 0
        self.used[0] = count
        self.slots.fill(-1)
        fill_slots(self.rows, self.slots, self.keys, count)

    def shrink(self) -> None:
        """Give back the room of rows that are not used."""
        capacity = _FIRST_CAPACITY
        while capacity < len(self):
            capacity *= 2
        self.rows = self.rows[:capacity].copy()
        self.slots = np.full(capacity * _SLOTS_PER_ROW, -1, np.int64)
        fill_slots(self.rows, self.slots, self.keys, len(self))

    def among(self, others: "ProducerTable") -> "NDArray[np.bool_]":
        """For each of our rows, whether `others` have its producer."""
        return np.isin(self.taken()[:, 0], others.taken()[:, 0])

    def taken(self) -> "NDArray[np.int64]":
        """The rows in use, in the order the producers were met."""
        return self.rows[: len(self)]

    def find(self, producer_id: int) -> int:
        """Row of a producer, -1 if it was never met."""
        if producer_id < 0:
            return -1
        mask = self.slots.size - 1
        slot = slot_of(producer_id, int(self.keys[0]), int(self.keys[1]), mask)
        while True:
            row = int(self.slots[slot])
            if row < 0 or self.rows[row, 0] == producer_id:
                return row
            slot = (slot + 1) & mask


def move_up(array: "NDArray[np.int64]", kept: "NDArray[np.int64]") -> None:
    """Move what is numbered `kept`, ascending, to the beginning, a little at a time, so that no second array is needed."""
    for start in range(0, len(kept), _MOVED_AT_ONCE):
        some = kept[start : start + _MOVED_AT_ONCE]
        array[start : start + len(some)] = array[some]


def doubled(array: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """A copy with twice the rows, the new ones zero."""
    grown = np.zeros((2 * len(array), *array.shape[1:]), np.int64)
    grown[: len(array)] = array
    return grown


WINDOW: Final = 5
"""Batches of a producer that a broker remembers (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""
EXPIRATION_MS: Final = 86_400_000
"""Default of producer.id.expiration.ms: a producer silent for longer is forgotten, and may go on with any sequence."""
UNKNOWN_MS: Final = -(1 << 63)
"""Time since the previous batch where a timestamp is missing."""

# Columns of facts and heads; of facts alone, column 2 is the last offset delta. A window has the first seven.
EPOCH: Final = 0
FIRST_SEQUENCE: Final = 1
LAST_SEQUENCE: Final = 2
BASE_OFFSET: Final = 3
LAST_OFFSET: Final = 4
TIMESTAMP: Final = 5
BREAKS: Final = 6
PRODUCER_ID: Final = 7
SEGMENT: Final = 8
POSITION: Final = 9
SIZE: Final = 10
ATTRIBUTES: Final = 11
WINDOW_WIDTH: Final = 7
FACTS: Final = 12

# Columns of a producer's row behind its id.
COUNT: Final = 1
HEAD: Final = 2
"""Row in `heads` of its only batch, while it has one."""
BLOCK: Final = 3
"""1 + number of its block of five rows in `windows`, a ring; 0 before its second batch."""
FIRST_OFFSET: Final = 4
"""Base offset of its first batch."""
PRODUCER_WIDTH: Final = 5

# Counters behind the table's own.
HEADS_USED: Final = 1
BLOCKS_USED: Final = 2
FOUND_USED: Final = 3
COUNTERS: Final = 3

# What a batch can be.
LEGAL: Final = 0
DUPLICATE: Final = 1
BACKWARD: Final = 2
"""Offsets and sequence both behind what the producer wrote last: a duplicate, if the log is known to have had these offsets."""
GAP: Final = 3
REGRESSION: Final = 4
EPOCH_REGRESSION: Final = 5
KINDS: Final = (DUPLICATE, BACKWARD, GAP, REGRESSION, EPOCH_REGRESSION)
FOUND_WIDTH: Final = 15
"""Segment, position, kind, size, base offset, last offset, producer id, epoch, expected, found and last sequence, previous batch's
base offset, epoch and last offset, ms since it."""

_HALF_RING: Final = 2**30
_PLAIN: Final = 8
"""Batches in a row that must continue one another before the long stretch of them is looked for."""
_PLAIN_DELTA: Final = 2**27
_KIND_BITS: Final = 8
_KIND_MASK: Final = 255


@kernel
def elapsed_ms(earlier: int, later: int) -> int:
    """Milliseconds from one batch to another, UNKNOWN_MS if either has no timestamp."""
    if earlier < 0 or later < 0:
        return UNKNOWN_MS
    return later - earlier


@kernel
def resumes(windows: "Column", base: int, kept: int, epoch: int, first: int, last: int) -> bool:
    """Whether a batch continues one of the window's, and repeats no sequence number of any."""
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
def is_repeated(windows: "Column", row: int, epoch: int, first: int, last: int) -> bool:
    """Whether row `row` of a window has this epoch and these sequence numbers."""
    same = windows[row, FIRST_SEQUENCE] == first and windows[row, LAST_SEQUENCE] == last
    return bool(same and windows[row, EPOCH] == epoch)


@kernel
def repeated(windows: "Column", base: int, kept: int, newest: int, epoch: int, first: int, last: int) -> int:
    """Number of the oldest batch of the window that has this epoch and these sequence numbers, -1 if none has."""
    for number in range(kept):
        if windows[base + number, FIRST_SEQUENCE] == first and is_repeated(windows, base + number, epoch, first, last):
            oldest = number
            for back in range(kept):
                earlier = (newest - back) % WINDOW
                if is_repeated(windows, base + earlier, epoch, first, last):
                    oldest = earlier
            return oldest
    return -1


@kernel
def goes_back(windows: "Column", base: int, kept: int, base_offset: int, fact: int) -> bool:
    """Whether a batch starts at or before what the window has of `fact`: BASE_OFFSET, it stands behind a batch that it should
    stand before; LAST_OFFSET, it may only overlap one."""
    furthest = int(windows[base, fact])
    for row in range(base, base + kept):
        furthest = max(furthest, int(windows[row, fact]))
    return furthest >= base_offset


@kernel
def stands_behind(windows: "Column", base: int, kept: int, epoch: int, last: int) -> bool:
    """Whether a batch ends behind what the window shows of its own epoch, or all of the window is of higher epochs."""
    own = False
    higher = True
    for row in range(base, base + kept):
        if windows[row, EPOCH] == epoch:
            own = True
            if ((int(windows[row, LAST_SEQUENCE]) - last) & MAX_SEQUENCE) < _HALF_RING:
                return True
        elif windows[row, EPOCH] < epoch:
            higher = False
    return higher and not own


@kernel
def judge(windows: "Column", base: int, count: int, now: "Column") -> int:
    """What the batch `now` is as number `count` of its producer, the up to five before it being in the ring `windows[base:]`. The
    answer is the kind, and, `_KIND_BITS` higher, the number of the batch it repeats or follows."""
    newest = (count - 1) % WINDOW
    kept = min(count, WINDOW)
    previous = base + newest
    epoch, first, last = int(now[EPOCH]), int(now[FIRST_SEQUENCE]), int(now[LAST_SEQUENCE])
    previous_epoch, previous_last = int(windows[previous, EPOCH]), int(windows[previous, LAST_SEQUENCE])
    duplicate = int(repeated(windows, base, kept, newest, epoch, first, last))
    if duplicate < 0 and epoch == previous_epoch and ((first - previous_last) & MAX_SEQUENCE) == 1:
        return LEGAL
    if elapsed_ms(int(windows[previous, TIMESTAMP]), int(now[TIMESTAMP])) >= EXPIRATION_MS:
        return LEGAL
    if duplicate >= 0:
        return DUPLICATE | (duplicate << _KIND_BITS)
    backward = goes_back(windows, base, kept, int(now[BASE_OFFSET]), BASE_OFFSET)
    if not backward and goes_back(windows, base, kept, int(now[BASE_OFFSET]), LAST_OFFSET):
        return LEGAL  # a header before it claims more offsets than it has: that is the fault, and nothing was written twice
    if epoch > previous_epoch and not backward:
        return LEGAL
    if (backward or epoch == previous_epoch) and resumes(windows, base, kept, epoch, first, last):
        return LEGAL
    if backward:
        return (BACKWARD if stands_behind(windows, base, kept, epoch, last) else LEGAL) | (newest << _KIND_BITS)
    if epoch < previous_epoch:
        transactional = (int(now[ATTRIBUTES]) & TRANSACTIONAL_MASK) != 0  # TXN_LATE_WRITE says it then
        return LEGAL if transactional else EPOCH_REGRESSION | (newest << _KIND_BITS)
    if now[BREAKS] != windows[previous, BREAKS]:
        return LEGAL
    ahead = (first - previous_last - 1) & MAX_SEQUENCE
    return (GAP if ahead < _HALF_RING else REGRESSION) | (newest << _KIND_BITS)


@kernel
def report(reports: "Column", at: int, judged: int, windows: "Column", base: int, newest: int, now: "Column") -> None:
    """Write row `at` of `reports` for the batch `now`."""
    other = base + (judged >> _KIND_BITS)
    reports[at, 0] = now[SEGMENT]
    reports[at, 1] = now[POSITION]
    reports[at, 2] = judged & _KIND_MASK
    reports[at, 3] = now[SIZE]
    reports[at, 4] = now[BASE_OFFSET]
    reports[at, 5] = now[LAST_OFFSET]
    reports[at, 6] = now[PRODUCER_ID]
    reports[at, 7] = now[EPOCH]
    reports[at, 8] = (int(windows[base + newest, LAST_SEQUENCE]) + 1) & MAX_SEQUENCE
    reports[at, 9] = now[FIRST_SEQUENCE]
    reports[at, 10] = now[LAST_SEQUENCE]
    reports[at, 11] = windows[other, BASE_OFFSET]
    reports[at, 12] = windows[other, EPOCH]
    reports[at, 13] = windows[other, LAST_OFFSET]
    reports[at, 14] = elapsed_ms(int(windows[base + newest, TIMESTAMP]), int(now[TIMESTAMP]))


@kernel
def plain_run(start: int, rows: "Column", facts: "Arrays", now: "Column") -> int:
    """End of the stretch of `rows[start:]` in which the batches of one producer, each far shorter than the ring, continue one
    another and the batch `now`: behind five such batches none can repeat another."""
    epochs, firsts, deltas, _, _, _, _, producer_ids, _, _, _, attributes = facts
    producer_id, epoch = int(now[PRODUCER_ID]), int(now[EPOCH])
    expected = (int(now[LAST_SEQUENCE]) + 1) & MAX_SEQUENCE
    for index in range(start, rows.size):
        row = int(rows[index])
        delta = int(deltas[row])
        if (
            firsts[row] != expected
            or producer_ids[row] != producer_id
            or epochs[row] != epoch
            or delta < 0
            or delta > _PLAIN_DELTA
            or (int(attributes[row]) & CONTROL_MASK) != 0
        ):
            return index
        expected = (expected + delta + 1) & MAX_SEQUENCE
    return rows.size


@kernel
def remember(windows: "Column", base: int, count: int, rows: "Column", facts: "Arrays") -> None:
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
def lacks_room(used: "Column", producers: int, heads: int, windows: int, reports: int) -> bool:
    """Whether one more batch might not fit into arrays of so many rows."""
    blocks = (used[BLOCKS_USED] + 1) * WINDOW > windows
    return bool(used[0] >= producers or used[HEADS_USED] >= heads or blocks or used[FOUND_USED] >= reports)


@kernel
def keep(rows: "Column", at: int, batch: "Column", width: int) -> None:
    """Write the first `width` facts of a batch to row `at`."""
    for fact in range(width):
        rows[at, fact] = batch[fact]


@kernel
def take_batches(
    start: int, rows: "Column", facts: "Arrays", store: "Arrays", used: "Column", now: "Column", pending: int, sure: int
) -> int:
    """Take the batches at `rows[start:]` of `facts`, in that order; the answer is where it had to stop for want of room.

    `store` is (producers, slots, keys, heads, windows, found), `now` room for one batch. A producer's first `pending` batches
    become heads and are not judged: five, or none where it is known that nothing stands left. Of its first `sure` batches only
    that one repeats another is said: five where it may have been forgotten, so that the window may lack some that it had.
    """
    epochs, firsts, deltas, bases, lasts, timestamps, breaks, producer_ids, segments, positions, sizes, attributes = facts
    producers, slots, keys, heads, windows, reports = store
    key_low, key_high, mask = int(keys[0]), int(keys[1]), slots.size - 1
    producer, plain, resume = 0, 0, start
    now[PRODUCER_ID] = -1
    for index in range(start, rows.size):
        if index < resume:
            continue
        row = int(rows[index])
        first, delta, producer_id = int(firsts[row]), int(deltas[row]), int(producer_ids[row])
        if (int(attributes[row]) & CONTROL_MASK) != 0 or first > MAX_SEQUENCE or delta < 0 or delta > MAX_SEQUENCE:
            continue
        if lacks_room(used, producers.shape[0], heads.shape[0], windows.shape[0], reports.shape[0]):
            return index
        if producer_id != now[PRODUCER_ID]:
            slot = slot_of(producer_id, key_low, key_high, mask)
            producer = int(slots[slot])
            if producer < 0 or producers[producer, 0] != producer_id:
                producer = find_producer(producer_id, producers, slots, keys, used)
            plain = 0
        elif delta <= _PLAIN_DELTA and epochs[row] == now[EPOCH] and first == (now[LAST_SEQUENCE] + 1) & MAX_SEQUENCE:
            plain += 1
        else:
            plain = 0
        now[EPOCH], now[FIRST_SEQUENCE], now[LAST_SEQUENCE] = epochs[row], first, (first + delta) & MAX_SEQUENCE
        now[BASE_OFFSET], now[LAST_OFFSET], now[TIMESTAMP] = bases[row], lasts[row], timestamps[row]
        now[BREAKS], now[PRODUCER_ID], now[SEGMENT] = breaks[row], producer_id, segments[row]
        now[POSITION], now[SIZE], now[ATTRIBUTES] = positions[row], sizes[row], attributes[row]
        count = int(producers[producer, COUNT])
        producers[producer, COUNT] = count + 1
        if count == 0:
            producers[producer, FIRST_OFFSET] = bases[row]
        if count < pending:
            head = int(used[HEADS_USED])
            used[HEADS_USED] = head + 1
            keep(heads, head, now, FACTS)
            if count == 0:
                producers[producer, HEAD] = head
                continue
        base = (int(producers[producer, BLOCK]) - 1) * WINDOW
        if base < 0:
            base = int(used[BLOCKS_USED]) * WINDOW
            used[BLOCKS_USED] += 1
            producers[producer, BLOCK] = used[BLOCKS_USED]
            if count == 1:
                keep(windows, base, heads[int(producers[producer, HEAD])], WINDOW_WIDTH)
        elif count >= pending:
            judged = judge(windows, base, count, now)
            if (judged & _KIND_MASK) == DUPLICATE or ((judged & _KIND_MASK) != LEGAL and count >= sure):
                report(reports, int(used[FOUND_USED]), judged, windows, base, (count - 1) % WINDOW, now)
                used[FOUND_USED] += 1
        keep(windows, base + count % WINDOW, now, WINDOW_WIDTH)
        if plain == _PLAIN:
            plain = 0
            end = plain_run(index + 1, rows, facts, now)
            if end > index + WINDOW:
                producers[producer, COUNT] = count + end - index
                remember(windows, base, count + end - index, rows[end - WINDOW : end], facts)
                now[PRODUCER_ID] = -1
                resume = end
    return rows.size


@kernel
def match_producers(theirs: "Column", store: "Arrays", used: "Column", ours: "Column") -> None:
    """Our row of each of `theirs`, all of whom are known."""
    for row in range(theirs.shape[0]):
        ours[row] = find_producer(int(theirs[row, 0]), store[0], store[1], store[2], used)


@kernel
def adopt_windows(
    theirs: "Column",
    their_windows: "Column",
    matched: "Column",
    ours: "Column",
    windows: "Column",
    shift: int,
) -> None:
    """When all heads of the right side are taken: the last five batches of those of its producers that had more. `matched` gives
    our row of each of `theirs`; `shift` is added to their numbers of breaks."""
    for row in range(theirs.shape[0]):
        count = int(theirs[row, COUNT])
        if count <= WINDOW:
            continue
        producer = int(matched[row])
        total = int(ours[producer, COUNT]) - WINDOW + count
        ours[producer, COUNT] = total
        source = (int(theirs[row, BLOCK]) - 1) * WINDOW
        target = (int(ours[producer, BLOCK]) - 1) * WINDOW
        for back in range(1, WINDOW + 1):
            at = target + (total - back) % WINDOW
            keep(windows, at, their_windows[source + (count - back) % WINDOW], WINDOW_WIDTH)
            windows[at, BREAKS] += shift
