"""Replicas of a compacted partition against each other by the latest record of each key (Cleaner, LogCleanerManager).

Each replica cleans by itself, so batches differ everywhere and records are missing on one side or another. What cleaning never
changes is which record of a key is the latest. Every key whose latest record is not the same on both sides of a pair is either
explained by the cleaner's rules or told. Older records are explained by the latest one of their own log, which stands for them.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.compaction.key_rows import TOMBSTONE, TRANSACTIONAL, KeyBlock, Row, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

DIFFERENCES_LISTED: Final = 8
"""Differing records that the evidence names."""
REASONS: Final = ("contents", "markers", "tombstones", "stale", "vanished", "missing")
"""How a key can differ; the first that fits on any pair is the key's.

contents: one offset, two values. markers: a record is hidden as aborted or undecided on one side only. tombstones: a tombstone on
one side, behind the other's latest value. stale: an older value on one side. vanished: nothing on one side, where a cleaner has
been: lost, or deleted by a tombstone that came and went. missing: nothing on one side, where no cleaner has been.
"""
EXPLANATIONS: Final = (
    "unreadable",
    "undecided",
    "superseded",
    "out_of_reach",
    "tombstones_expired",
    "tombstones_early",
    "same_value",
)
"""Why a latest record may be on one side only, in the order in which they are tried.

unreadable: damage may hide what explains it. undecided: the shorter log ends before the marker. superseded: a later record of the
key lies beyond the shorter log's end. out_of_reach: the longer log was cleaned past the end of the shorter, which cannot have what
deleted the key. tombstones_expired, tombstones_early: a tombstone that had done its work, past its delete horizon or before.
same_value: no rule, but the other side's latest record has the same value at a lower offset: written again and lost there, or a
base offset that is wrong.
"""


@dataclass(frozen=True, slots=True)
class Side:
    """A replica as the comparison sees it: the end of its log, and of the last damage that may have eaten records (-1: none)."""

    log_end_offset: int
    damaged_end: int = -1


@dataclass(frozen=True, slots=True)
class Pair:
    """Two replicas, by number, that are compared over `[start, end)`."""

    left: int
    right: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Listed:
    """A differing record: why, the hash its key is named by, replicas that have it as the key's latest, replicas that lack it."""

    reason: str
    key_hash: str
    holders: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)


@dataclass(slots=True)
class KeyTally:
    """What the sweep found: keys by reason and by explanation, and the first few differing records."""

    keys: int = 0
    cleaned_differently: int = 0
    """Keys whose records differ and whose latest does not, or for a good reason."""
    beyond_checkpoint: int = 0
    """Those of them that lack a record where no cleaner is known to have been, though a later record takes its place."""
    transactional: int = 0
    """Differing keys whose latest record is part of a transaction."""
    reasons: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    explanations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EXPLANATIONS, 0))
    listed: "dict[int, Listed]" = field(default_factory=dict)
    """The first few differing records by offset."""
    lacking: set[int] = field(default_factory=set)
    """Replicas that lack any key's latest record."""
    first_offset: int | None = None
    end_offset: int = 0

    @property
    def differing(self) -> int:
        """Keys whose latest record differs without a rule."""
        return sum(self.reasons.values())

    def note(self, found: "Unexplained") -> None:
        """Keep the first differing records of a pair, who lacks any, and how far they reach."""
        if not len(found.keys):
            return
        for offset in np.unique(found.offsets)[:DIFFERENCES_LISTED].tolist():
            self._list(offset, found.listed(offset))
        self._shorten()
        self.lacking.update(np.unique(found.others).tolist())
        first = int(found.offsets.min())
        self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
        self.end_offset = max(self.end_offset, int(found.offsets.max()) + 1)

    def merge(self, other: "KeyTally") -> None:
        """Add what a sweep over other keys found; in whatever order tallies come together, they say the same."""
        self.keys += other.keys
        self.cleaned_differently += other.cleaned_differently
        self.beyond_checkpoint += other.beyond_checkpoint
        self.transactional += other.transactional
        for name in REASONS:
            self.reasons[name] += other.reasons[name]
        for name in EXPLANATIONS:
            self.explanations[name] += other.explanations[name]
        for offset, listed in other.listed.items():
            self._list(offset, listed)
        self._shorten()
        self.lacking |= other.lacking
        known = [tally.first_offset for tally in (self, other) if tally.first_offset is not None]
        self.first_offset = min(known, default=None)
        self.end_offset = max(self.end_offset, other.end_offset)

    def _list(self, offset: int, listed: Listed) -> None:
        known = self.listed.get(offset, listed)
        first = min(known, listed, key=lambda one: (REASONS.index(one.reason), one.key_hash))
        holders, others = known.holders | listed.holders, known.others | listed.others
        self.listed[offset] = Listed(first.reason, first.key_hash, holders, others)

    def _shorten(self) -> None:
        for offset in sorted(self.listed)[DIFFERENCES_LISTED:]:
            del self.listed[offset]


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Keys of a block that differ without a rule: arrays of one length, reasons as numbers in `REASONS`."""

    keys: "Ints"
    reasons: "Ints"
    offsets: "Ints"
    """Of the latest record, which `holders` have and `others` lack."""
    holders: "Ints"
    others: "Ints"
    transactional: "Mask"
    shown: "Ints"
    """`Row.KEY_SHOWN`."""

    def listed(self, offset: int) -> Listed:
        """What differs at an offset; of several keys there, the one with the first reason, and then the lowest hash."""
        here = np.flatnonzero(self.offsets == offset)
        reason = int(self.reasons[here].min())
        shown = self.shown[here][self.reasons[here] == reason].view(np.uint64).min()
        holders, others = (set(np.unique(one[here]).tolist()) for one in (self.holders, self.others))
        return Listed(REASONS[reason], f"{int(shown):016x}", holders, others)


class KeyComparison:
    """Fold over blocks of keys; blocks may come in any order.

    `cleaned_end` is up to where any replica may have been cleaned, or have copied from one that was; tombstones expire by
    `as_of_ms`, milliseconds since 1970.
    """

    def __init__(self, sides: dict[int, Side], pairs: list[Pair], cleaned_end: int, as_of_ms: int) -> None:
        self.tally = KeyTally()
        self.sides = sides
        self.pairs = pairs
        self.cleaned_end = cleaned_end
        self.as_of_ms = as_of_ms
        edges = {edge for pair in pairs for edge in (pair.start, pair.end, min(max(cleaned_end, pair.start), pair.end))}
        self.cuts = np.array(sorted(edges), np.int64)

    def step(self, rows: "Ints") -> None:
        """Judge every key of a block of reduced rows that holds all rows of its keys."""
        if not len(rows):
            return
        block = KeyBlock(rows, self.cuts)
        verdicts = np.full(block.keys, len(REASONS), np.int64)
        skewed, beyond, transactional = (np.zeros(block.keys, bool) for _ in range(3))
        explained = {name: np.zeros(block.keys, bool) for name in EXPLANATIONS}
        for pair in self.pairs:
            by_rule, found = self._latest(block, pair)
            for name, keys in by_rule.items():
                explained[name][keys] = True
                skewed[keys] = True
            skewed |= block.records(pair.left, pair.start, pair.end) != block.records(pair.right, pair.start, pair.end)
            beyond |= self._beyond_checkpoint(block, pair)
            for unexplained in (found, self._undecided(block, pair, pair.left), self._undecided(block, pair, pair.right)):
                np.minimum.at(verdicts, unexplained.keys, unexplained.reasons)
                transactional[unexplained.keys] |= unexplained.transactional
                self.tally.note(unexplained)
        differs = verdicts < len(REASONS)
        self.tally.keys += block.keys
        self.tally.cleaned_differently += int((skewed & ~differs).sum())
        self.tally.beyond_checkpoint += int((beyond & ~differs).sum())
        self.tally.transactional += int((transactional & differs).sum())
        for number, name in enumerate(REASONS):
            self.tally.reasons[name] += int((verdicts == number).sum())
        for name in EXPLANATIONS:
            self.tally.explanations[name] += int((explained[name] & ~differs).sum())

    def _latest(self, block: KeyBlock, pair: Pair) -> "tuple[dict[str, Ints], Unexplained]":
        """Compare the latest visible record of each key: keys by explanation, and the rest."""
        left, right = (block.last(number, State.VISIBLE, pair.start, pair.end) for number in (pair.left, pair.right))
        at_left, at_right = block.fact(left, Row.OFFSET), block.fact(right, Row.OFFSET)
        contents = (at_left == at_right) & (block.fact(left, Row.VALUE) != block.fact(right, Row.VALUE))
        keys = np.flatnonzero((at_left != at_right) | contents)
        left, right, contents = left[keys], right[keys], contents[keys]
        held_left = at_left[keys] >= at_right[keys]
        holder, other = np.where(held_left, left, right), np.where(held_left, right, left)
        holders, others = np.where(held_left, pair.left, pair.right), np.where(held_left, pair.right, pair.left)
        offsets = block.fact(holder, Row.OFFSET)
        deleted = block.has_flag(holder, TOMBSTONE)
        other_lives = (other >= 0) & ~block.has_flag(other, TOMBSTONE)
        is_open, hidden = self._hidden(block, pair, keys, others, offsets)
        sides = self.sides[pair.left], self.sides[pair.right]
        end_of_other = np.where(held_left, sides[1].log_end_offset, sides[0].log_end_offset)
        end_of_holder = np.where(held_left, sides[0].log_end_offset, sides[1].log_end_offset)
        later = np.maximum(*(block.last(number, State.VISIBLE, pair.end, None)[keys] for number in (pair.left, pair.right)))
        rules = {
            "unreadable": max(side.damaged_end for side in sides) > offsets,
            "undecided": is_open & (end_of_other < end_of_holder),
            "superseded": later >= 0,
            "out_of_reach": ~other_lives & ~hidden & (end_of_other > pair.end) & (self.cleaned_end > pair.end),
            "tombstones_expired": deleted & ~other_lives & (block.fact(holder, Row.EXPIRY) <= self.as_of_ms),
            "tombstones_early": deleted & ~other_lives,
            "same_value": other_lives & ~deleted & ~hidden & (block.fact(holder, Row.VALUE) == block.fact(other, Row.VALUE)),
        }
        rest = np.ones(len(keys), bool)
        by_rule = {}
        for name in EXPLANATIONS:
            fits = rest & rules[name] & ~contents
            by_rule[name] = keys[fits]
            rest &= ~fits
        tests = [contents, hidden, deleted, other >= 0, self.cleaned_end > offsets]
        reasons = np.select(tests, list(range(len(tests))), len(tests))
        transactional = block.has_flag(holder, TRANSACTIONAL)
        shown = block.fact(holder, Row.KEY_SHOWN)[rest]
        unexplained = Unexplained(keys[rest], reasons[rest], offsets[rest], holders[rest], others[rest], transactional[rest], shown)
        return by_rule, unexplained

    @staticmethod
    def _hidden(block: KeyBlock, pair: Pair, keys: "Ints", others: "Ints", offsets: "Ints") -> "tuple[Mask, Mask]":
        """Whether the side that shows no such record has one of its transaction undecided, or the record itself hidden."""
        states = []
        for state in (State.OPEN, State.ABORTED):
            of_left, of_right = (block.last(number, state, pair.start, pair.end)[keys] for number in (pair.left, pair.right))
            states.append(block.fact(np.where(others == pair.left, of_left, of_right), Row.OFFSET))
        opened, aborted = states
        return opened >= offsets, (opened == offsets) | (aborted == offsets)

    def _undecided(self, block: KeyBlock, pair: Pair, number: int) -> Unexplained:
        """Records that are undecided in a log that is not the shorter, gone from the other, and cleaned past there.

        No cleaner passes an open transaction: the other log held a marker that this one lacks, and removed it.
        """
        other = pair.right if number == pair.left else pair.left
        last = block.last(number, State.OPEN, pair.start, pair.end)
        opened = block.fact(last, Row.OFFSET)
        known = np.zeros(block.keys, bool)
        for state in State:
            known |= block.fact(block.last(other, state, pair.start, None), Row.OFFSET) >= opened
        ours, theirs = self.sides[number], self.sides[other]
        readable = opened >= max(ours.damaged_end, theirs.damaged_end, 0)
        possible = ours.log_end_offset >= theirs.log_end_offset
        keys = np.flatnonzero(readable & ~known & (opened < self.cleaned_end)) if possible else np.empty(0, np.int64)
        reasons = np.full(len(keys), REASONS.index("markers"))
        holders, others = np.full(len(keys), number), np.full(len(keys), other)
        shown = block.fact(last, Row.KEY_SHOWN)[keys]
        return Unexplained(keys, reasons, opened[keys], holders, others, np.ones(len(keys), bool), shown)

    def _beyond_checkpoint(self, block: KeyBlock, pair: Pair) -> "Mask":
        """Whether a key lacks a record above all cleaned ranges, or one below that only a record above takes the place of."""
        if max(self.sides[number].damaged_end for number in (pair.left, pair.right)) >= 0:
            return np.zeros(block.keys, bool)
        middle = min(max(self.cleaned_end, pair.start), pair.end)
        lacks: Mask = block.records(pair.left, middle, pair.end) != block.records(pair.right, middle, pair.end)
        if middle < pair.end:
            left, right = (block.last(number, State.VISIBLE, pair.start, middle) for number in (pair.left, pair.right))
            at_left, at_right = block.fact(left, Row.OFFSET), block.fact(right, Row.OFFSET)
            lacks |= (at_left > at_right) & ~block.has_flag(left, TOMBSTONE)
            lacks |= (at_right > at_left) & ~block.has_flag(right, TOMBSTONE)
        return lacks
