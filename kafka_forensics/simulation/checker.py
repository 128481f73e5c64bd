"""Checks a protocol by breadth-first search of its states: counts them, and finds the shortest trace that breaks each invariant."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.errors import UsageError
from kafka_forensics.parsers.kernels.compiling import use_compiled, using_compiled
from kafka_forensics.simulation import search
from kafka_forensics.simulation.model import (
    HISTORY_INVARIANTS,
    INVARIANTS,
    ModelReplica,
    ModelState,
    ModelStep,
    Protocol,
    ProtocolModel,
    Sizes,
    leader_of,
)
from kafka_forensics.simulation.steps import RowLayout, layout_of, row_of, rules_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAX_BYTES: Final = 1 << 30
"""Size of keys, parents and table together; while they grow, half as much again is in use."""
MAX_REPLICAS: Final = 5
MAX_OTHER_SIZES: Final = 8
"""Largest log size, number of records and last epoch."""
COMPILE_ABOVE_STATES: Final = 1_000
"""Interpreted kernels search this many states in half a second; compiling the kernels may take ten seconds."""
_CHUNK: Final = 1 << 14
_FIRST_CAPACITY: Final = 1 << 12

Progress = Callable[[int, int, int], None]
"""Takes (states known, states still to visit, depth)."""


class InvariantVerdict(Struct, frozen=True):
    """Whether an invariant holds (None: not broken in an incomplete search), and the shortest trace that breaks it."""

    invariant: str
    holds: bool | None
    trace: tuple[tuple[ModelStep, ModelState], ...] = ()


class ProtocolCheck(Struct, frozen=True):
    """The number of states (states that differ only in replica names count once), the largest depth, and the verdicts in the
    order of `INVARIANTS`.

    `complete` is False where a memory bound or the `until_broken` argument ended the search early.
    """

    protocol: Protocol
    sizes: Sizes
    states: int
    depth: int
    complete: bool
    verdicts: tuple[InvariantVerdict, ...]

    def verdict(self, invariant: str) -> InvariantVerdict:
        """The verdict on one invariant."""
        return next(verdict for verdict in self.verdicts if verdict.invariant == invariant)


def check(
    protocol: Protocol,
    sizes: Sizes,
    *,
    until_broken: str | None = None,
    history: bool = True,
    max_bytes: int = MAX_BYTES,
    progress: Progress | None = None,
) -> ProtocolCheck:
    """Visit every state of a protocol and check every invariant in each.

    The history of committed records multiplies the states. So its invariants take a second search, which `history=False` skips;
    `states` and `depth` are those of the first search. `until_broken` ends a search after the level at which that invariant breaks.
    Raises UsageError for sizes that are out of bounds.
    """
    if not 1 <= sizes.replicas <= MAX_REPLICAS:
        raise UsageError(f"{sizes.replicas} replicas cannot be checked", hint=f"choose 1 to {MAX_REPLICAS}")
    for name, value, least in (("log size", sizes.log_size, 1), ("records", sizes.records, 1), ("last epoch", sizes.max_epoch, 0)):
        if not least <= value <= MAX_OTHER_SIZES:
            raise UsageError(f"a {name} of {value} cannot be checked", hint=f"choose {least} to {MAX_OTHER_SIZES}")
    search_result = _StateSearch(protocol, sizes, history=False, max_bytes=max_bytes).run(until_broken, progress)
    if not history:
        return search_result
    with_history = _StateSearch(protocol, sizes, history=True, max_bytes=max_bytes).run(until_broken, progress)
    return replace(
        search_result,
        complete=search_result.complete and with_history.complete,
        verdicts=(
            *search_result.verdicts,
            *(verdict for verdict in with_history.verdicts if verdict.invariant in HISTORY_INVARIANTS),
        ),
    )


class _StateSearch:
    """One breadth-first search; a state's number is its position in the order of discovery."""

    def __init__(self, protocol: Protocol, sizes: Sizes, *, history: bool, max_bytes: int) -> None:
        self.model = ProtocolModel(protocol, sizes, history=history)
        self.layout = layout_of(sizes, history=history)
        self.rules = rules_of(protocol, history=history)
        self.max_bytes = max_bytes
        words, fields = self.layout.words, self.layout.fields
        successors = np.zeros((self.layout.max_successors, fields), np.int64)
        self.scratch = np.zeros(fields, np.int64), successors, np.zeros(words, np.int64), np.zeros(words, np.int64)
        self.breaking_states = np.full(len(INVARIANTS), -1, np.int64)
        self.keys = np.zeros((_FIRST_CAPACITY, words), np.int64)
        self.parents = np.full(_FIRST_CAPACITY, -1, np.int32)
        self.table = np.zeros(4 * _FIRST_CAPACITY, np.int32)
        self.keys[0] = key_of(self.model.initial(), self.layout)
        self.count, self.depth = 1, 0
        search.fill(self.keys, 1, self.table)

    def run(self, until_broken: str | None, progress: Progress | None) -> ProtocolCheck:
        """Visit all states level by level, or the levels up to the first that breaks `until_broken`."""
        before = using_compiled()
        try:
            complete = self._visit_levels(None if until_broken is None else INVARIANTS.index(until_broken), progress)
        finally:
            use_compiled(before)
        verdicts = []
        for invariant, breaking_state in zip(INVARIANTS, self.breaking_states.tolist(), strict=True):
            if breaking_state >= 0:
                verdicts.append(InvariantVerdict(invariant, holds=False, trace=self._trace(breaking_state)))
            elif self.model.history or invariant not in HISTORY_INVARIANTS:
                verdicts.append(InvariantVerdict(invariant, True if complete else None))
        return ProtocolCheck(self.model.protocol, self.model.sizes, self.count, self.depth, complete, tuple(verdicts))

    def _visit_levels(self, until: int | None, progress: Progress | None) -> bool:
        """Whether all states were visited."""
        first, last = 0, 1
        model = self.layout.shape, self.rules, self.layout.packing
        while first < last:
            if until is not None and self.breaking_states[until] >= 0:
                return False
            while first < last:
                use_compiled(self.count > COMPILE_ABOVE_STATES)
                chunk_end = min(last, first + _CHUNK)
                while first < chunk_end:
                    known = self.keys, self.parents, self.table, self.breaking_states
                    first, self.count = search.explore(first, chunk_end, self.count, known, model, self.scratch)
                    if first < chunk_end and not self._grow():
                        return False
                if progress is not None:
                    progress(self.count, self.count - first, self.depth)
            last = self.count
            self.depth += first < last
        return True

    def _grow(self) -> bool:
        """Double the capacity; False where that exceeds `max_bytes`."""
        if 2 * (self.keys.nbytes + self.parents.nbytes + self.table.nbytes) > self.max_bytes:
            return False
        self.keys = np.concatenate([self.keys, np.zeros_like(self.keys)])
        self.parents = np.concatenate([self.parents, np.full_like(self.parents, -1)])
        self.table = np.zeros(2 * len(self.table), np.int32)
        search.fill(self.keys, self.count, self.table)
        return True

    def _trace(self, index: int) -> tuple[tuple[ModelStep, ModelState], ...]:
        """The steps to a state, replayed in the readable model, where a replica keeps its name."""
        path = []
        while index > 0:
            path.append(self.keys[index])
            index = int(self.parents[index])
        state, steps = self.model.initial(), []
        for key in reversed(path):
            successors = self.model.successors(state)
            step, state = next((step, after) for step, after in successors if np.array_equal(key_of(after, self.layout), key))
            steps.append((step, state))
        return tuple(steps)


def key_of(state: ModelState, layout: RowLayout) -> "NDArray[np.int64]":
    """The key (words) of a state; states that differ only in replica names have the same key."""
    key = np.zeros(layout.words, np.int64)
    search.pack.interpreted(row_of(state, layout), layout.packing, np.zeros(layout.words, np.int64), key)
    return key


# Steps and states as text: replicas are A, B, C, …; `r0@2` is the first record, written in epoch 2.


def name_of(replica: int) -> str:
    """The letter of a replica."""
    return chr(ord("A") + replica)


def step_text(step: ModelStep, after: ModelState) -> str:
    """A step and its result in one sentence."""
    replica = name_of(step.replica)
    other = "" if step.other is None else name_of(step.other)
    match step.action:
        case "elect":
            return f"controller elects {replica} in epoch {step.number}, ISR {isr_text(after.isr)}"
        case "remove":
            leader = after.requests[-1].leader
            lead = "no leader" if leader is None else f"leader {name_of(leader)}"
            return f"controller removes {replica}: epoch {step.number}, {lead}, ISR {isr_text(after.isr)}"
        case "lead":
            return f"{replica} learns that it leads in epoch {step.number}"
        case "follow":
            return f"{replica} learns that {other} leads in epoch {step.number}, and keeps {log_of(after.replicas[step.replica])}"
        case "write":
            return f"{replica} writes r{step.number}@{after.replicas[step.replica].log[-1].leader_epoch}"
        case "fetch":
            return f"{replica} fetches r{step.number} from {other}"
        case "truncate":
            return f"{replica} cuts its log at offset {step.number}, to match {other}"
        case "raise":
            return f"{replica} raises its high watermark to {step.number}"
        case "shrink":
            return f"{replica} removes {other} from the ISR, now {isr_text(after.isr)}"
        case "expand":
            return f"{replica} adds {other} to the ISR, now {isr_text(after.isr)}"
        case _:
            raise AssertionError(step.action)


def replica_text(state: ModelState, number: int) -> str:
    """The role, epoch, log and high watermark of a replica."""
    replica, leader = state.replicas[number], leader_of(state, number)
    if leader is None:
        role = "idle"
    else:
        role = f"leads e{replica.leader_epoch}" if leader == number else f"follows {name_of(leader)} e{replica.leader_epoch}"
    return f"{role}, {log_of(replica)}, hw {replica.high_watermark}"


def log_of(replica: ModelReplica) -> str:
    """The records of a log in order."""
    return f"[{' '.join(f'r{record.number}@{record.leader_epoch}' for record in replica.log)}]"


def isr_text(isr: frozenset[int]) -> str:
    """A set of replicas."""
    return "{" + ", ".join(map(name_of, sorted(isr))) + "}"
