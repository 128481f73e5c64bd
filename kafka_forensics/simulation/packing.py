"""States as rows of small integers, rows as a few int64 words, and the one row that stands for all that differ only in names."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.simulation import steps
from kafka_forensics.simulation.model import Record, Replica, Request, Sizes, State
from kafka_forensics.simulation.protocols import Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD_BITS: Final = 62
"""Of an int64 that stays positive, whatever is done to it."""
PLAIN: Final = 0
ISR_BITS: Final = 1
LEADER: Final = 2
"""Kinds of a row's integers: of which renaming the replicas changes the value."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a row of `fields` integers packs into `words` words, under each of the P renamings of N replicas.

    `word` and `shift` (P, fields) say where an integer goes, `kind` (fields) how its value is renamed: by `isr_map` (P, 2^N) or
    `leader_map` (P, N + 1). `mask` (fields) has the bits of each. The first renaming changes nothing.
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


def layout_of(sizes: Sizes, *, history: bool) -> Layout:
    """The layout for states of these sizes."""
    replicas, requests = sizes.replicas, sizes.max_epoch + 1
    width = steps.LOG + sizes.log_size
    shared = replicas * width
    epochs = shared + steps.REQUESTS + 2 * requests
    shape = [replicas, sizes.log_size, sizes.records, sizes.max_epoch, width, shared, epochs]
    replica_part = [(requests, PLAIN), (sizes.log_size, PLAIN), (2**replicas - 1, ISR_BITS)]
    replica_part += [(sizes.records, PLAIN)] * sizes.log_size
    parts = replica_part * replicas + [(requests, PLAIN), (2**replicas - 1, ISR_BITS), (sizes.records, PLAIN)]
    parts += [(replicas, LEADER), (2**replicas - 1, ISR_BITS)] * requests
    parts += [(requests, PLAIN)] * sizes.records + [(2**sizes.records - 1 if history else 0, PLAIN)]
    places, words = _places([largest.bit_length() for largest, _ in parts])
    renamings = list(permutations(range(replicas)))
    target = [[_renamed_field(field, names, width, shared) for field in range(len(parts))] for names in renamings]
    return Layout(
        shape=np.array(shape, np.int64),
        word=np.array([[places[field][0] for field in row] for row in target], np.int64),
        shift=np.array([[places[field][1] for field in row] for row in target], np.int64),
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
    """A protocol as the kernels take it."""
    fences = (protocol.fetch, protocol.raise_high_watermark, protocol.shrink_isr, protocol.expand_isr)
    return np.array([protocol.truncation, *fences, protocol.guards, history], np.int64)


def row_of(state: State, layout: Layout, *, row: "NDArray[np.int64] | None" = None) -> "NDArray[np.int64]":
    """A state as a row (fields)."""
    found = np.zeros(layout.fields, np.int64) if row is None else row
    width, shared, epochs = (int(layout.shape[at]) for at in (steps.WIDTH, steps.SHARED, steps.EPOCHS))
    for number, replica in enumerate(state.replicas):
        base = number * width
        found[base] = replica.leader_epoch + 1
        found[base + steps.HIGH_WATERMARK] = replica.high_watermark
        found[base + steps.ISR] = bits_of(replica.isr)
        for offset, record in enumerate(replica.log):
            found[base + steps.LOG + offset] = record.number + 1
            found[epochs + record.number] = record.leader_epoch + 1
    found[shared] = len(state.requests)
    found[shared + steps.QUORUM_ISR] = bits_of(state.isr)
    found[shared + steps.WRITTEN] = state.records
    for epoch, request in enumerate(state.requests):
        found[shared + steps.REQUESTS + 2 * epoch] = 0 if request.leader is None else request.leader + 1
        found[shared + steps.REQUESTS + 2 * epoch + 1] = bits_of(request.isr)
    found[epochs + int(layout.shape[steps.RECORDS])] = bits_of(state.committed)
    return found


def state_of(row: "NDArray[np.int64]", layout: Layout) -> State:
    """The state that a row (fields) stands for."""
    values = [int(value) for value in row]
    replicas, log_size, records, _, width, shared, epochs = (int(value) for value in layout.shape)

    def replica(base: int) -> Replica:
        numbers = [value - 1 for value in values[base + steps.LOG : base + steps.LOG + log_size] if value]
        log = tuple(Record(number, values[epochs + number] - 1) for number in numbers)
        return Replica(values[base] - 1, values[base + steps.HIGH_WATERMARK], members(values[base + steps.ISR]), log)

    def request(epoch: int) -> Request:
        place = shared + steps.REQUESTS + 2 * epoch
        return Request(values[place] - 1 if values[place] else None, members(values[place + 1]))

    return State(
        tuple(replica(number * width) for number in range(replicas)),
        tuple(request(epoch) for epoch in range(values[shared])),
        members(values[shared + steps.QUORUM_ISR]),
        values[shared + steps.WRITTEN],
        members(values[epochs + records]),
    )


def bits_of(numbers: Iterable[int]) -> int:
    """A set of small numbers as bits."""
    return sum(1 << number for number in numbers)


def members(bits: int) -> frozenset[int]:
    """The numbers of the bits that are set."""
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


def _places(sizes_in_bits: list[int]) -> tuple[list[tuple[int, int]], int]:
    """(word, shift) of each field, none across two words, and the number of words."""
    places = []
    word = used = 0
    for bits in sizes_in_bits:
        if used + bits > WORD_BITS:
            word, used = word + 1, 0
        places.append((word, used))
        used += bits
    return places, word + 1


def _renamed_field(field: int, names: tuple[int, ...], width: int, shared: int) -> int:
    return field if field >= shared else names[field // width] * width + field % width
