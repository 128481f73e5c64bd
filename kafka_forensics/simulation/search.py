"""Breadth-first search as kernels: canonical keys, a hash table of the keys seen, and the invariants of each new state."""

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


@kernel
def pack(row: "Row", packing: "Arrays", trial: "Row", key: "Row") -> None:
    """Write the smallest key (words) of a row under all renamings of its replicas; `trial` is scratch space of the same size."""
    word, shift, kind, _, isr_map, leader_map = packing
    for renaming in range(word.shape[0]):
        for part in range(trial.shape[0]):
            trial[part] = 0
        for field in range(row.shape[0]):
            value = row[field]
            if kind[field] == ISR_BITS:
                value = isr_map[renaming, value]
            elif kind[field] != PLAIN:
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
    """Write the row of a key."""
    word, shift, _, mask, _, _ = packing
    for field in range(row.shape[0]):
        row[field] = (keys[index, word[0, field]] >> shift[0, field]) & mask[field]


@kernel
def slot_of(keys: "Rows", index: int, table: "Row") -> int:
    """The slot of the key at `index` in the open hash table, or the free slot for it (table: index + 1, 0: free)."""
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
    first: int, last: int, count: int, known: "Arrays", model: "tuple[Row, Row, Arrays]", scratch: "Arrays"
) -> tuple[int, int]:
    """Visit the states from `first` up to `last`, and append every new successor to the `count` known states.

    Returns (next state to visit, known states), early where the keys or half of the table are full. `known` is (keys, parents,
    table, for each invariant the first state that breaks it, -1: none), `model` (shape, rules, packing), `scratch` (a row, rows
    for successors, two keys).
    """
    keys, parents, table, breaking_states = known
    shape, rules, packing = model
    row, out, trial, key = scratch
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
            bits = broken(out[successor], shape)
            for invariant in range(breaking_states.shape[0]):
                if bits >> invariant & 1 and breaking_states[invariant] < 0:
                    breaking_states[invariant] = count
            count += 1
        first += 1
    return first, count


@kernel
def broken(state: "Row", shape: "Row") -> int:
    """The invariants that a state breaks, as bits in the order of `model.INVARIANTS`."""
    shared, width = shape[SHARED], shape[WIDTH]
    quorum_isr = state[shared + QUORUM_ISR]
    bits = 0
    for replica in range(shape[REPLICAS]):
        if leader_seen(state, shape, replica) == replica + 1:
            bits |= 0 if all_have_committed(state, shape, replica, quorum_isr) else 1
            bits |= 0 if all_have_committed(state, shape, replica, state[replica * width + ISR]) else 2
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
def all_have_committed(state: "Row", shape: "Row", leader: int, isr: int) -> int:
    """1 if the leader and all of `isr` have the leader's records below its high watermark, else 0."""
    width = shape[WIDTH]
    high_watermark = state[leader * width + HIGH_WATERMARK]
    for offset in range(high_watermark):
        record = state[leader * width + LOG + offset]
        if record == 0:
            return 0
        for other in range(shape[REPLICAS]):
            if isr >> other & 1 and state[other * width + LOG + offset] != record:
                return 0
    return 1


@kernel
def disagreement(state: "Row", shape: "Row", replica: int, other: int) -> int:
    """Bits of SettledAgreement (if the first replica is the true leader), LogMatching and SameEpochAgreement."""
    width = shape[WIDTH]
    first, second = replica * width, other * width
    settled = is_true_leader(state, shape, replica) and state[first] == state[second]
    both_committed = min(state[first + HIGH_WATERMARK], state[second + HIGH_WATERMARK])
    bits = 0
    for offset in range(min(end_of(state, shape, replica), end_of(state, shape, other))):
        if state[first + LOG + offset] != state[second + LOG + offset]:
            if settled:
                bits |= 16
            if offset < both_committed:
                bits |= 32
            if epoch_at(state, shape, replica, offset) == epoch_at(state, shape, other, offset):
                bits |= 64
    return bits


@kernel
def commitment(state: "Row", shape: "Row") -> int:
    """Bits of CommittedOnIsr, CommittedOnLeader and CommittedSomewhere."""
    committed = state[shape[EPOCHS] + shape[RECORDS]]
    if committed == 0:
        return 0
    isr = state[shape[SHARED] + QUORUM_ISR]
    bits, everywhere = 0, 0
    for replica in range(shape[REPLICAS]):
        present = 0
        for offset in range(end_of(state, shape, replica)):
            present |= 1 << (state[replica * shape[WIDTH] + LOG + offset] - 1)
        everywhere |= present
        if committed & ~present:
            if isr >> replica & 1:
                bits |= 128
            if is_true_leader(state, shape, replica):
                bits |= 256
    if committed & ~everywhere:
        bits |= 512
    return bits
