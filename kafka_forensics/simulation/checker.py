"""All histories of a protocol, breadth first: how many states there are, and the shortest way to break each invariant."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.errors import UsageError
from kafka_forensics.parsers.kernels.compiling import use_compiled, using_compiled
from kafka_forensics.simulation import search
from kafka_forensics.simulation.model import INVARIANTS, OF_HISTORY, Model, ModelReplica, Protocol, Sizes, Step, World, leader_of
from kafka_forensics.simulation.steps import Layout, layout_of, row_of, rules_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAX_BYTES: Final = 1 << 30
"""Of keys, parents and table together; while they grow, half as much again is in use."""
MAX_REPLICAS: Final = 5
MAX_OTHERS: Final = 8
"""Of log size, records and last epoch."""
COMPILE_ABOVE_STATES: Final = 1_000
"""So many states are searched in half a second by interpreted kernels; compiling them may take ten."""
_CHUNK: Final = 1 << 14
_FIRST_CAPACITY: Final = 1 << 12

Progress = Callable[[int, int, int], None]
"""Told (states known, states still to visit, depth)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One invariant: whether it holds (None: not broken as far as was looked), and the steps of the shortest way to break it."""

    invariant: str
    holds: bool | None
    trace: tuple[tuple[Step, World], ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """States that differ in more than replicas' names, steps to the farthest, and the verdicts in the order of `INVARIANTS`.

    `complete` is False where the bound on memory, or the one asked for, ended the search early.
    """

    protocol: Protocol
    sizes: Sizes
    states: int
    depth: int
    complete: bool
    verdicts: tuple[Verdict, ...]

    def verdict(self, invariant: str) -> Verdict:
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
) -> Checked:
    """Visit every state of a protocol and judge every invariant in each.

    States are counted without history; what was ever committed makes two states of one, so the invariants of history take a
    second search, left out without `history`. `until_broken` ends the search with the level on which that invariant breaks; if
    that is one of history, there is only the search with it. Raises UsageError for sizes that no search would finish.
    """
    _refuse(sizes)
    verdicts: dict[str, Verdict] = {}
    counted: list[tuple[int, int, bool]] = []
    for remembers in _searches(until_broken, history):  # one after another: each may take all the memory that is allowed
        run = _Search(protocol, sizes, history=remembers, max_bytes=max_bytes)
        run.run(until_broken, progress)
        counted.append((run.count, run.depth, run.complete))
        judged = [name for name in INVARIANTS if (remembers or name not in OF_HISTORY) and name not in verdicts]
        verdicts.update((name, run.verdict(name)) for name in judged)
        del run
    states, depth, _ = counted[0]
    return Checked(protocol, sizes, states, depth, all(whole for _, _, whole in counted), tuple(verdicts.values()))


def _searches(until_broken: str | None, history: bool) -> tuple[bool, ...]:
    """Whether each search keeps the history."""
    if until_broken in OF_HISTORY:
        return (True,)
    return (False, True) if history else (False,)


def _refuse(sizes: Sizes) -> None:
    if not 1 <= sizes.replicas <= MAX_REPLICAS:
        raise UsageError(f"{sizes.replicas} replicas cannot be checked", hint=f"choose 1 to {MAX_REPLICAS}")
    for name, value, least in (("log size", sizes.log_size, 1), ("records", sizes.records, 1), ("last epoch", sizes.max_epoch, 0)):
        if not least <= value <= MAX_OTHERS:
            raise UsageError(f"a {name} of {value} cannot be checked", hint=f"choose {least} to {MAX_OTHERS}")


class _Search:
    """One breadth-first search; states are numbered as they are found."""

    def __init__(self, protocol: Protocol, sizes: Sizes, *, history: bool, max_bytes: int) -> None:
        self.model = Model(protocol, sizes, history=history)
        self.layout = layout_of(sizes, history=history)
        self.rules = rules_of(protocol, history=history)
        self.max_bytes = max_bytes
        words = self.layout.words
        self.row = np.zeros(self.layout.fields, np.int64)
        self.out = np.zeros((self.layout.max_successors, self.layout.fields), np.int64)
        self.trial, self.key = np.zeros(words, np.int64), np.zeros(words, np.int64)
        self.found = np.full(len(INVARIANTS), -1, np.int64)
        self.keys = np.zeros((_FIRST_CAPACITY, words), np.int64)
        self.parents = np.full(_FIRST_CAPACITY, -1, np.int32)
        self.table = np.zeros(4 * _FIRST_CAPACITY, np.int32)
        self.keys[0] = self.key_of(self.model.initial())
        self.count, self.depth = 1, 0
        self.complete = True
        search.fill(self.keys, 1, self.table)

    def run(self, until_broken: str | None, progress: Progress | None) -> None:
        """Visit all states level by level, or the levels up to the first that breaks an invariant."""
        before = using_compiled()
        try:
            self._levels(None if until_broken is None else list(INVARIANTS).index(until_broken), progress)
        finally:
            use_compiled(before)

    def _levels(self, until: int | None, progress: Progress | None) -> None:
        first, last = 0, 1
        while first < last:
            if until is not None and self.found[until] >= 0:
                self.complete = False
                return
            while first < last:
                use_compiled(self.count > COMPILE_ABOVE_STATES)
                first = self._visit(first, min(last, first + _CHUNK))
                if not self.complete:
                    return
                if progress is not None:
                    progress(self.count, self.count - first, self.depth)
            last = self.count
            self.depth += first < last

    def _visit(self, first: int, last: int) -> int:
        """Visit some states; the next to visit."""
        layout = self.layout
        while first < last:
            known = self.keys, self.parents, self.table, self.found
            room = self.row, self.out, self.trial, self.key
            model = layout.shape, self.rules, layout.packing
            first, self.count = search.explore(first, last, self.count, known, model, room)
            if first < last and not self._grow():
                self.complete = False
                break
        return first

    def _grow(self) -> bool:
        """Twice the room, unless that is more than is allowed."""
        bytes_now = self.keys.nbytes + self.parents.nbytes + self.table.nbytes
        if 2 * bytes_now > self.max_bytes:
            return False
        self.keys = np.concatenate([self.keys, np.zeros_like(self.keys)])
        self.parents = np.concatenate([self.parents, np.full_like(self.parents, -1)])
        self.table = np.zeros(2 * len(self.table), np.int32)
        search.fill(self.keys, self.count, self.table)
        return True

    def key_of(self, state: World) -> "NDArray[np.int64]":
        """The canonical key (words) of a state."""
        return key_of(state, self.layout)

    def verdict(self, invariant: str) -> Verdict:
        """What the search says of an invariant."""
        index = int(self.found[list(INVARIANTS).index(invariant)])
        if index < 0:
            return Verdict(invariant, True if self.complete else None)
        return Verdict(invariant, False, self._trace(index))  # noqa: FBT003 - the field says it

    def _trace(self, index: int) -> tuple[tuple[Step, World], ...]:
        """The steps to a state, replayed in the readable model so that a replica keeps its name all the way."""
        path = []
        while index > 0:
            path.append(self.keys[index])
            index = int(self.parents[index])
        state, steps = self.model.initial(), []
        for key in reversed(path):
            step, state = next(
                (step, after) for step, after in self.model.successors(state) if np.array_equal(self.key_of(after), key)
            )
            steps.append((step, state))
        return tuple(steps)


def key_of(state: World, layout: Layout) -> "NDArray[np.int64]":
    """The key (words) that stands for a state and all that differ from it only in the replicas' names."""
    key = np.zeros(layout.words, np.int64)
    search.pack.interpreted(row_of(state, layout), layout.packing, np.zeros(layout.words, np.int64), key)
    return key


# Steps and states of the model in words: replicas are A, B, C, …; `r0@2` is the first record written, in epoch 2.


def name_of(replica: int) -> str:
    """A replica's letter."""
    return chr(ord("A") + replica)


def told(step: Step, after: World) -> str:
    """One sentence on a step and what came of it."""
    who = name_of(step.replica)
    other = "" if step.other is None else name_of(step.other)
    match step.action:
        case "elect":
            return f"controller elects {who} in epoch {step.number}, ISR {isr_of(after.isr)}"
        case "remove":
            leader = after.requests[-1].leader
            lead = "no leader" if leader is None else f"leader {name_of(leader)}"
            return f"controller removes {who}: epoch {step.number}, {lead}, ISR {isr_of(after.isr)}"
        case "lead":
            return f"{who} hears that it leads in epoch {step.number}"
        case "follow":
            return f"{who} hears that {other} leads in epoch {step.number}, and keeps {log_of(after.replicas[step.replica])}"
        case "write":
            return f"{who} writes r{step.number}@{after.replicas[step.replica].log[-1].leader_epoch}"
        case "fetch":
            return f"{who} fetches r{step.number} from {other}"
        case "truncate":
            return f"{who} cuts its log at offset {step.number}, to match {other}"
        case "raise":
            return f"{who} raises its high watermark to {step.number}"
        case "shrink":
            return f"{who} puts {other} out of the ISR, now {isr_of(after.isr)}"
        case "expand":
            return f"{who} takes {other} into the ISR, now {isr_of(after.isr)}"
        case _:
            raise AssertionError(step.action)


def replica_in_words(state: World, replica: int) -> str:
    """What a replica is and has: role and epoch, log, high watermark."""
    own, leader = state.replicas[replica], leader_of(state, replica)
    if leader is None:
        role = "idle"
    else:
        role = f"leads e{own.leader_epoch}" if leader == replica else f"follows {name_of(leader)} e{own.leader_epoch}"
    return f"{role}, {log_of(own)}, hw {own.high_watermark}"


def log_of(replica: ModelReplica) -> str:
    """A log: its records in order."""
    return f"[{' '.join(f'r{record.number}@{record.leader_epoch}' for record in replica.log)}]"


def isr_of(isr: frozenset[int]) -> str:
    """A set of replicas."""
    return "{" + ", ".join(map(name_of, sorted(isr))) + "}"
