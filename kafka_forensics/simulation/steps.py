"""The steps of `model.ProtocolModel` as kernels, on states that are rows of small integers (`RowLayout`).

A row has a part for each replica: leader epoch + 1, high watermark, ISR as bits, then the numbers + 1 of its records (0: none).
The shared part follows: requests so far, the controller's ISR, records so far; leader + 1 and ISR of each request; epoch + 1 of
each record (0: in no log); and the records ever committed, as bits.
"""

from collections.abc import Iterable
from itertools import permutations
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from kafka_forensics.parsers.kernels.compiling import kernel
from kafka_forensics.simulation.model import Fence, Guard, ModelState, Protocol, Sizes, Truncation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.int64]
    Rows = NDArray[np.int64]


REPLICAS: Final = 0
LOG_SIZE: Final = 1
RECORDS: Final = 2
MAX_EPOCH: Final = 3
WIDTH: Final = 4
"""Fields in the part of one replica."""
SHARED: Final = 5
"""First field of the shared part."""
EPOCHS: Final = 6
"""First field of the records' epochs; the committed records come last. These seven are indexes of `RowLayout.shape`."""

HIGH_WATERMARK: Final = 1
ISR: Final = 2
LOG: Final = 3
"""Fields from the start of a replica's part, whose field 0 is the leader epoch."""
QUORUM_ISR: Final = 1
WRITTEN: Final = 2
REQUESTS: Final = 3
"""Fields from the start of the shared part, whose field 0 counts the requests."""

TRUNCATION: Final = 0
FETCH: Final = 1
RAISE: Final = 2
SHRINK: Final = 3
EXPAND: Final = 4
GUARDS: Final = 5
HISTORY: Final = 6
"""Indexes of `rules_of`."""

_FOLLOWS, _SAME_EPOCH, _REACHED, _RECORD_EPOCH = map(int, (Fence.FOLLOWS, Fence.SAME_EPOCH, Fence.REACHED, Fence.RECORD_EPOCH))
_ELECT_FROM_ISR, _NEWER_EPOCH = int(Guard.ELECT_FROM_ISR), int(Guard.NEWER_EPOCH)
_ISR_BY_TRUE_LEADER, _LEADER_WRITES = int(Guard.ISR_BY_TRUE_LEADER), int(Guard.LEADER_WRITES)
_TRUNCATION_FENCED, _EPOCH_START_REACHED = int(Guard.TRUNCATION_FENCED), int(Guard.EPOCH_START_REACHED)
_BEHIND_LEADER = int(Guard.BEHIND_LEADER)
_TO_HIGH_WATERMARK, _KIP_101 = int(Truncation.HIGH_WATERMARK), int(Truncation.KIP_101)
_KIP_279, _ON_FETCH = int(Truncation.KIP_279), int(Truncation.ON_FETCH)


@kernel
def end_of(state: "Row", shape: "Row", replica: int) -> int:
    """The log end of a replica."""
    base = replica * shape[WIDTH] + LOG
    end = 0
    while end < shape[LOG_SIZE] and state[base + end] > 0:
        end += 1
    return end


@kernel
def leader_seen(state: "Row", shape: "Row", replica: int) -> int:
    """The replica that a replica considers the leader, + 1; 0: none."""
    epoch = state[replica * shape[WIDTH]]
    return 0 if epoch == 0 else state[shape[SHARED] + REQUESTS + 2 * (epoch - 1)]


@kernel
def is_true_leader(state: "Row", shape: "Row", replica: int) -> int:
    """1 if the controller's last request names the replica as leader and it is in that epoch, else 0."""
    epochs = state[shape[SHARED]]
    if epochs == 0 or state[replica * shape[WIDTH]] != epochs:
        return 0
    return 1 if leader_seen(state, shape, replica) == replica + 1 else 0


@kernel
def epoch_at(state: "Row", shape: "Row", replica: int, offset: int) -> int:
    """Epoch + 1 of the record of a replica at an offset below its log end."""
    return state[shape[EPOCHS] + state[replica * shape[WIDTH] + LOG + offset] - 1]


@kernel
def passes(state: "Row", shape: "Row", leader: int, other: int, end: int, fence: int) -> int:
    """1 if a follower passes a fence for the offsets below `end`, else 0."""
    width = shape[WIDTH]
    if fence & _FOLLOWS and leader_seen(state, shape, other) != leader + 1:
        return 0
    if fence & _SAME_EPOCH and state[other * width] != state[leader * width]:
        return 0
    reached = min(end_of(state, shape, leader), end_of(state, shape, other))
    if fence & _REACHED and end > reached:
        return 0
    if not fence & _RECORD_EPOCH or end == 0 or end > reached:
        return 1
    return 1 if epoch_at(state, shape, leader, end - 1) == epoch_at(state, shape, other, end - 1) else 0


@kernel
def matching_end(state: "Row", shape: "Row", replica: int, other: int) -> int:
    """The offset after the last one at which both logs have the same record."""
    first, second = replica * shape[WIDTH] + LOG, other * shape[WIDTH] + LOG
    end = 0
    for offset in range(shape[LOG_SIZE]):
        if state[first + offset] > 0 and state[first + offset] == state[second + offset]:
            end = offset + 1
    return end


@kernel
def end_of_last_epoch(state: "Row", shape: "Row", replica: int, leader: int) -> int:
    """The end of the follower's last epoch in the leader's log; its high watermark where the leader does not know the epoch."""
    follower_end, end = end_of(state, shape, replica), end_of(state, shape, leader)
    if follower_end == 0:
        return 0
    epoch = epoch_at(state, shape, replica, follower_end - 1)
    if end > 0 and epoch_at(state, shape, leader, end - 1) == epoch:
        return end
    for offset in range(end):
        if epoch_at(state, shape, leader, offset) > epoch:
            return offset
    return state[replica * shape[WIDTH] + HIGH_WATERMARK]


@kernel
def truncation_offset(state: "Row", shape: "Row", rule: int, replica: int, leader: int) -> int:
    """The offset at which a replica truncates its log when it becomes a follower of `leader`."""
    if rule == _TO_HIGH_WATERMARK:
        return state[replica * shape[WIDTH] + HIGH_WATERMARK]
    if rule == _KIP_101:
        return end_of_last_epoch(state, shape, replica, leader)
    if rule == _KIP_279:
        return matching_end(state, shape, replica, leader)
    return end_of(state, shape, replica)


@kernel
def copy_to(state: "Row", out: "Rows", count: int) -> None:
    """Start row `count` of `out` as a copy of a state."""
    for number in range(state.shape[0]):
        out[count, number] = state[number]


@kernel
def truncate(out: "Rows", count: int, shape: "Row", replica: int, end: int) -> None:
    """Truncate a log of row `count` at `end`, lower its high watermark, and clear the epochs of records that are in no log."""
    width = shape[WIDTH]
    base = replica * width
    out[count, base + HIGH_WATERMARK] = min(end, out[count, base + HIGH_WATERMARK])
    for offset in range(end, shape[LOG_SIZE]):
        record = out[count, base + LOG + offset]
        out[count, base + LOG + offset] = 0
        remains = 0
        for other in range(shape[REPLICAS]):
            for other_offset in range(shape[LOG_SIZE]):
                if out[count, other * width + LOG + other_offset] == record:
                    remains = 1
        if record > 0 and remains == 0:
            out[count, shape[EPOCHS] + record - 1] = 0


@kernel
def send_request(state: "Row", shape: "Row", out: "Rows", count: int, leader: int, isr: int) -> int:
    """Add the controller's next request."""
    copy_to(state, out, count)
    shared = shape[SHARED]
    request = shared + REQUESTS + 2 * state[shared]
    out[count, request] = leader
    out[count, request + 1] = isr
    out[count, shared + QUORUM_ISR] = isr
    out[count, shared] += 1
    return count + 1


@kernel
def controller_steps(state: "Row", shape: "Row", rules: "Row", out: "Rows", count: int) -> int:
    """The controller elects a leader or removes a replica from the ISR."""
    shared = shape[SHARED]
    epochs, isr = state[shared], state[shared + QUORUM_ISR]
    if epochs > shape[MAX_EPOCH]:
        return count
    leader = 0
    if epochs > 0:
        leader = state[shared + REQUESTS + 2 * (epochs - 1)]
    for replica in range(shape[REPLICAS]):
        bit = 1 << replica
        member = isr & bit
        if leader != replica + 1 and (member or not rules[GUARDS] & _ELECT_FROM_ISR):
            count = send_request(state, shape, out, count, replica + 1, isr if member else bit)
        if leader == replica + 1:
            rest = isr & ~bit
            count = send_request(state, shape, out, count, 0, rest if rest > 0 else isr)
        elif member:
            count = send_request(state, shape, out, count, leader, isr & ~bit)
    return count


@kernel
def apply_requests(state: "Row", shape: "Row", rules: "Row", out: "Rows", count: int, replica: int) -> int:
    """A replica becomes leader or follower in the epoch of any request."""
    width, shared = shape[WIDTH], shape[SHARED]
    base = replica * width
    for epoch in range(1, state[shared] + 1):
        request = shared + REQUESTS + 2 * (epoch - 1)
        leader = state[request] - 1
        newer = epoch > state[base] if rules[GUARDS] & _NEWER_EPOCH else epoch != state[base]
        if not newer or leader < 0:
            continue
        end = end_of(state, shape, replica)
        if leader != replica:
            if rules[GUARDS] & _TRUNCATION_FENCED and state[leader * width] != epoch:
                continue
            offset = truncation_offset(state, shape, rules[TRUNCATION], replica, leader)
            if offset > end:
                continue
            end = offset
        copy_to(state, out, count)
        out[count, base] = epoch
        out[count, base + ISR] = state[request + 1]
        if leader != replica:
            truncate(out, count, shape, replica, end)
        count += 1
    return count


@kernel
def write(state: "Row", shape: "Row", out: "Rows", count: int, replica: int) -> int:
    """A replica appends a new record in its epoch."""
    base, shared = replica * shape[WIDTH], shape[SHARED]
    end, written = end_of(state, shape, replica), state[shared + WRITTEN]
    if state[base] == 0 or written >= shape[RECORDS] or end >= shape[LOG_SIZE]:
        return count
    copy_to(state, out, count)
    out[count, base + LOG + end] = written + 1
    out[count, shape[EPOCHS] + written] = state[base]
    out[count, shared + WRITTEN] += 1
    return count + 1


@kernel
def raise_high_watermark(state: "Row", shape: "Row", rules: "Row", out: "Rows", count: int, leader: int) -> int:
    """A leader raises its high watermark by one if all members of its ISR pass the fence."""
    base = leader * shape[WIDTH]
    mark = state[base + HIGH_WATERMARK]
    if mark >= end_of(state, shape, leader):
        return count
    for other in range(shape[REPLICAS]):
        if state[base + ISR] >> other & 1 and not passes(state, shape, leader, other, mark + 1, rules[RAISE]):
            return count
    copy_to(state, out, count)
    out[count, base + HIGH_WATERMARK] += 1
    if rules[HISTORY] and is_true_leader(state, shape, leader):
        out[count, shape[EPOCHS] + shape[RECORDS]] |= 1 << (state[base + LOG + mark] - 1)
    return count + 1


@kernel
def is_rejected(state: "Row", shape: "Row", leader: int, other: int) -> int:
    """1 if the leader rejects a fetch: the follower is longer, or the epochs of its last record differ; else 0."""
    leader_end, end = end_of(state, shape, leader), end_of(state, shape, other)
    if end > leader_end:
        return 1
    if end == 0:
        return 0
    return 1 if epoch_at(state, shape, leader, end - 1) != epoch_at(state, shape, other, end - 1) else 0


@kernel
def replicate(state: "Row", shape: "Row", rules: "Row", out: "Rows", count: int, leader: int, other: int) -> int:
    """The follower fetches one record, or truncates after a rejected fetch."""
    source, base = leader * shape[WIDTH], other * shape[WIDTH]
    end = end_of(state, shape, other)
    if end < end_of(state, shape, leader) and passes(state, shape, leader, other, end, rules[FETCH]):
        copy_to(state, out, count)
        out[count, base + LOG + end] = state[source + LOG + end]
        mark = end + 1
        if rules[GUARDS] & _BEHIND_LEADER:
            mark = min(state[source + HIGH_WATERMARK], end + 1)
        out[count, base + HIGH_WATERMARK] = mark
        count += 1
    if (
        rules[TRUNCATION] == _ON_FETCH
        and leader_seen(state, shape, other) == leader + 1
        and is_rejected(state, shape, leader, other)
    ):
        copy_to(state, out, count)
        truncate(out, count, shape, other, matching_end(state, shape, other, leader))
        count += 1
    return count


@kernel
def leader_steps(state: "Row", shape: "Row", rules: "Row", out: "Rows", count: int, leader: int) -> int:
    """Steps between a replica that considers itself leader and the others."""
    base, shared = leader * shape[WIDTH], shape[SHARED]
    mark, end, isr = state[base + HIGH_WATERMARK], end_of(state, shape, leader), state[base + ISR]
    started = 1
    if rules[GUARDS] & _EPOCH_START_REACHED and mark < end and epoch_at(state, shape, leader, mark) != state[base]:
        started = 0
    count = raise_high_watermark(state, shape, rules, out, count, leader)
    for other in range(shape[REPLICAS]):
        if other == leader:
            continue
        count = replicate(state, shape, rules, out, count, leader, other)
        if rules[GUARDS] & _ISR_BY_TRUE_LEADER and not is_true_leader(state, shape, leader):
            continue
        member = isr >> other & 1
        passed = passes(state, shape, leader, other, end if member else mark, rules[SHRINK if member else EXPAND])
        if (member and not passed) or (not member and passed and started):
            copy_to(state, out, count)
            out[count, base + ISR] = isr ^ (1 << other)
            out[count, shared + QUORUM_ISR] = isr ^ (1 << other)
            count += 1
    return count


@kernel
def successors(state: "Row", shape: "Row", rules: "Row", out: "Rows") -> int:
    """Write every next state into the rows of `out`, which has `RowLayout.max_successors` rows; returns how many."""
    count = controller_steps(state, shape, rules, out, 0)
    for replica in range(shape[REPLICAS]):
        count = apply_requests(state, shape, rules, out, count, replica)
        leads = leader_seen(state, shape, replica) == replica + 1
        if leads or not rules[GUARDS] & _LEADER_WRITES:
            count = write(state, shape, out, count, replica)
        if leads:
            count = leader_steps(state, shape, rules, out, count, replica)
    return count


# A state as a row of small integers, a row packed into a few int64, and the smallest packing under all renamings of the replicas.


WORD_BITS: Final = 62
"""Bits used of an int64, which stays positive."""
PLAIN: Final = 0
ISR_BITS: Final = 1
LEADER: Final = 2
"""Kinds of fields: a renaming of the replicas changes the values of the last two."""


class RowLayout(Struct, frozen=True):
    """How a row of `fields` integers packs into `words` int64, under each of the P renamings of N replicas.

    `word` and `shift` (P, fields) are the position of a field, `kind` (fields) says how to rename its value: by `isr_map` (P, 2^N)
    or `leader_map` (P, N + 1). `mask` (fields) has the bits of each field. The first renaming is the identity.
    """

    shape: "NDArray[np.int64]"
    word: "NDArray[np.int64]"
    shift: "NDArray[np.int64]"
    kind: "NDArray[np.int64]"
    mask: "NDArray[np.int64]"
    isr_map: "NDArray[np.int64]"
    leader_map: "NDArray[np.int64]"
    words: int
    max_successors: int

    @property
    def fields(self) -> int:
        """Integers of a row."""
        return len(self.kind)

    @property
    def packing(self) -> "tuple[NDArray[np.int64], ...]":
        """The arrays that the kernels of `search` take."""
        return self.word, self.shift, self.kind, self.mask, self.isr_map, self.leader_map


def layout_of(sizes: Sizes, *, history: bool) -> RowLayout:
    """The layout of states of these sizes."""
    replicas, requests = sizes.replicas, sizes.max_epoch + 1
    width = LOG + sizes.log_size
    shared = replicas * width
    epochs = shared + REQUESTS + 2 * requests
    shape = [replicas, sizes.log_size, sizes.records, sizes.max_epoch, width, shared, epochs]
    replica_part = [(requests, PLAIN), (sizes.log_size, PLAIN), (2**replicas - 1, ISR_BITS)]
    replica_part += [(sizes.records, PLAIN)] * sizes.log_size
    parts = replica_part * replicas + [(requests, PLAIN), (2**replicas - 1, ISR_BITS), (sizes.records, PLAIN)]
    parts += [(replicas, LEADER), (2**replicas - 1, ISR_BITS)] * requests
    parts += [(requests, PLAIN)] * sizes.records + [(2**sizes.records - 1 if history else 0, PLAIN)]
    positions, words = _positions([largest.bit_length() for largest, _ in parts])
    renamings = list(permutations(range(replicas)))
    target = [[_renamed_field(field, names, width, shared) for field in range(len(parts))] for names in renamings]
    placed = np.array([[positions[field] for field in row] for row in target], np.int64)
    return RowLayout(
        shape=np.array(shape, np.int64),
        word=placed[:, :, 0].copy(),
        shift=placed[:, :, 1].copy(),
        kind=np.array([kind for _, kind in parts], np.int64),
        mask=np.array([2 ** largest.bit_length() - 1 for largest, _ in parts], np.int64),
        isr_map=np.array(
            [[bits_of(names[member] for member in members(bits)) for bits in range(2**replicas)] for names in renamings]
        ),
        leader_map=np.array([[0, *(name + 1 for name in names)] for names in renamings]),
        words=words,
        max_successors=2 * replicas + replicas * (requests + 2) + 3 * replicas * replicas,
    )


def rules_of(protocol: Protocol, *, history: bool) -> "NDArray[np.int64]":
    """A protocol as the array that the kernels take."""
    fences = (protocol.fetch, protocol.raise_high_watermark, protocol.shrink_isr, protocol.expand_isr)
    return np.array([protocol.truncation, *fences, protocol.guards, history], np.int64)


def row_of(state: ModelState, layout: RowLayout) -> "NDArray[np.int64]":
    """A state as a row (fields)."""
    row = np.zeros(layout.fields, np.int64)
    width, shared, epochs = (int(layout.shape[index]) for index in (WIDTH, SHARED, EPOCHS))
    for number, replica in enumerate(state.replicas):
        base = number * width
        row[base : base + LOG] = replica.leader_epoch + 1, replica.high_watermark, bits_of(replica.isr)
        for offset, record in enumerate(replica.log):
            row[base + LOG + offset] = record.number + 1
            row[epochs + record.number] = record.leader_epoch + 1
    row[shared : shared + REQUESTS] = len(state.requests), bits_of(state.isr), state.records
    for epoch, (leader, isr) in enumerate(state.requests):
        request = shared + REQUESTS + 2 * epoch
        row[request : request + 2] = 0 if leader is None else leader + 1, bits_of(isr)
    row[epochs + int(layout.shape[RECORDS])] = bits_of(state.committed)
    return row


def bits_of(numbers: Iterable[int]) -> int:
    """A set of small numbers as bits."""
    return sum(1 << number for number in numbers)


def members(bits: int) -> frozenset[int]:
    """The numbers of the bits that are set."""
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


def _positions(sizes_in_bits: list[int]) -> tuple[list[tuple[int, int]], int]:
    """(word, shift) of each field, no field across two words, and the number of words."""
    positions = []
    word = used = 0
    for bits in sizes_in_bits:
        if used + bits > WORD_BITS:
            word, used = word + 1, 0
        positions.append((word, used))
        used += bits
    return positions, word + 1


def _renamed_field(field: int, names: tuple[int, ...], width: int, shared: int) -> int:
    return field if field >= shared else names[field // width] * width + field % width
