"""Breadth-first search as kernels: canonical keys, a table of those seen, and the invariants of each new state."""

from typing import TYPE_CHECKING, Final

from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.simulation.steps import (
    EPOCHS,
    HIGH_WATERMARK,
    ISR,
    ISR_BITS,
    LOG,
    PLAIN,
    QUORUM_ISR,
    RECORDS,
    REPLICAS,
    REQUESTS,
    SHARED,
    WIDTH,
    end_of,
    epoch_at,
    is_true_leader,
    leader_seen,
    successors,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Row = NDArray[np.int64]
    Rows = NDArray[np.int64]
    Arrays = tuple[NDArray[np.int64], ...]

_LOW_BITS: Final = (1 << 31) - 1
_FIRST_FACTOR: Final = 1540483477
_SECOND_FACTOR: Final = 668265261
_ISR_BITS: Final = ISR_BITS
_PLAIN: Final = PLAIN


@kernel
def pack(row: "Row", packing: "Arrays", trial: "Row", key: "Row") -> None:
    """The smallest key (words) of a row under all renamings of its replicas; `trial` is room for one more. See `Layout.packing`."""
    word, shift, kind, _, isr_map, leader_map = packing
    for renaming in range(word.shape[0]):
        for part in range(trial.shape[0]):
            trial[part] = 0
        for field in range(row.shape[0]):
            value = row[field]
            if kind[field] == _ISR_BITS:
                value = isr_map[renaming, value]
            elif kind[field] != _PLAIN:
                value = leader_map[renaming, value]
            trial[word[renaming, field]] |= value << shift[renaming, field]
        smaller = renaming == 0
        for part in range(trial.shape[0]):
            if smaller or trial[part] != key[part]:
                smaller = smaller or trial[part] < key[part]
                break
        if smaller:
            for part in range(trial.shape[0]):
                key[part] = trial[part]


@kernel
def unpack(keys: "Rows", index: int, packing: "Arrays", row: "Row") -> None:
    """The row of a key."""
    word, shift, _, mask, _, _ = packing
    for field in range(row.shape[0]):
        row[field] = (keys[index, word[0, field]] >> shift[0, field]) & mask[field]


@kernel
def slot_of(keys: "Rows", index: int, table: "Row") -> int:
    """Place in the open hash table where the key at `index` is found, or would be put (table: index + 1, 0 is free)."""
    mixed = 0
    for part in range(keys.shape[1]):
        value = int(keys[index, part])
        mixed = ((mixed ^ (value & _LOW_BITS)) * _FIRST_FACTOR) >> 7 & _LOW_BITS
        mixed = ((mixed ^ (value >> 31)) * _SECOND_FACTOR) >> 11 & _LOW_BITS
    slot = mixed % table.shape[0]
    while table[slot] > 0:
        other = table[slot] - 1
        same = True
        for part in range(keys.shape[1]):
            if keys[other, part] != keys[index, part]:
                same = False
                break
        if same:
            return slot
        slot = slot + 1 if slot + 1 < table.shape[0] else 0
    return slot


@kernel
def fill(keys: "Rows", count: int, table: "Row") -> None:
    """Put the first `count` keys into an empty table."""
    for index in range(count):
        table[slot_of(keys, index, table)] = index + 1


@kernel
def explore(
    first: int, last: int, count: int, known: "Arrays", model: "tuple[Row, Row, Arrays]", room: "Arrays"
) -> tuple[int, int]:
    """Visit the states from `first` up to `last`: put every new next state behind the `count` that are known.

    Returns (next to visit, known states), early where the keys or half of the table is full. `known` is (keys, parents, table,
    for each invariant the first state that breaks it, -1: none yet), `model` (shape, rules, packing), `room` (a row, rows of
    successors, two keys).
    """
    keys, parents, table, breakers = known
    shape, rules, packing = model
    row, out, trial, key = room
    while first < last and count + out.shape[0] < keys.shape[0] and 2 * count < table.shape[0]:
        unpack(keys, first, packing, row)
        made = successors(row, shape, rules, out)
        for successor in range(made):
            pack(out[successor], packing, trial, key)
            for part in range(key.shape[0]):
                keys[count, part] = key[part]
            slot = slot_of(keys, count, table)
            if table[slot] > 0:
                continue
            table[slot] = count + 1
            parents[count] = first
            mark(out[successor], shape, count, breakers)
            count += 1
        first += 1
    return first, count


@kernel
def mark(row: "Row", shape: "Row", index: int, breakers: "Row") -> None:
    """Note for each invariant that this state is the first to break it."""
    bits = broken(row, shape)
    for invariant in range(breakers.shape[0]):
        if bits >> invariant & 1 and breakers[invariant] < 0:
            breakers[invariant] = index


@kernel
def broken(state: "Row", shape: "Row") -> int:
    """The invariants a state breaks, as bits in the order of `invariants.INVARIANTS`."""
    shared, width = shape[SHARED], shape[WIDTH]
    quorum_isr = state[shared + QUORUM_ISR]
    bits = 0
    for replica in range(shape[REPLICAS]):
        if leader_seen(state, shape, replica) == replica + 1:
            bits |= 0 if holds_below(state, shape, replica, quorum_isr) else 1
            bits |= 0 if holds_below(state, shape, replica, state[replica * width + ISR]) else 2
    epochs = state[shared]
    if epochs > 0:
        leader = state[shared + REQUESTS + 2 * (epochs - 1)]
        if leader > 0 and not quorum_isr >> (leader - 1) & 1:
            bits |= 4
    for replica in range(shape[REPLICAS]):
        for offset in range(1, end_of(state, shape, replica)):
            if epoch_at(state, shape, replica, offset) < epoch_at(state, shape, replica, offset - 1):
                bits |= 8
        for other in range(shape[REPLICAS]):
            if replica != other:
                bits |= disagreement(state, shape, replica, other)
    return bits | commitment(state, shape)


@kernel
def holds_below(state: "Row", shape: "Row", leader: int, isr: int) -> int:
    """1 if all of `isr` hold the leader's records below its high watermark, and it holds them itself, else 0."""
    width = shape[WIDTH]
    mark_at = state[leader * width + HIGH_WATERMARK]
    for offset in range(mark_at):
        record = state[leader * width + LOG + offset]
        if record == 0:
            return 0
        for other in range(shape[REPLICAS]):
            if isr >> other & 1 and state[other * width + LOG + offset] != record:
                return 0
    return 1


@kernel
def disagreement(state: "Row", shape: "Row", replica: int, other: int) -> int:
    """What two replicas' logs break: SettledAgreement (if the first is the true leader), LogMatching, SameEpochAgreement."""
    width = shape[WIDTH]
    first, second = replica * width, other * width
    settled = is_true_leader(state, shape, replica) and state[first] == state[second]
    mark_at = min(state[first + HIGH_WATERMARK], state[second + HIGH_WATERMARK])
    bits = 0
    for offset in range(min(end_of(state, shape, replica), end_of(state, shape, other))):
        if state[first + LOG + offset] != state[second + LOG + offset]:
            if settled:
                bits |= 16
            if offset < mark_at:
                bits |= 32
            if epoch_at(state, shape, replica, offset) == epoch_at(state, shape, other, offset):
                bits |= 64
    return bits


@kernel
def commitment(state: "Row", shape: "Row") -> int:
    """What is wrong with the records ever committed: CommittedOnIsr, CommittedOnLeader, CommittedSomewhere."""
    committed = state[shape[EPOCHS] + shape[RECORDS]]
    if committed == 0:
        return 0
    isr = state[shape[SHARED] + QUORUM_ISR]
    bits, everywhere = 0, 0
    for replica in range(shape[REPLICAS]):
        held = 0
        for offset in range(end_of(state, shape, replica)):
            held |= 1 << (state[replica * shape[WIDTH] + LOG + offset] - 1)
        everywhere |= held
        if committed & ~held:
            if isr >> replica & 1:
                bits |= 128
            if is_true_leader(state, shape, replica):
                bits |= 256
    if committed & ~everywhere:
        bits |= 512
    return bits
