"""Comparison of the replicas of a compacted partition by the latest record of each key (Cleaner, LogCleanerManager).

Each broker cleans its replica separately, so batches differ and records are missing on one side or the other. Cleaning never
changes which record of a key is the latest. If two replicas have different latest records for a key, either a rule of the cleaner
explains it or the key is reported. Older records need no explanation: the latest record of their log replaces them.
"""

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct, field

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica, place_of
from kafka_forensics.analysis.replicas import replicas_disagree
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.model.offset_ranges import offset_range

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.json_objects import Json

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class KeyColumn(IntEnum):
    """Columns of a matrix (n, ROW_WIDTH) int64: a row for the last record of each key between two cuts of a replica's offsets.

    After `reduced`, the rows of a log are the same however it was split, read, sorted or spilled.
    """

    KEY_HIGH = 0
    KEY_LOW = 1
    """128 bits of a keyed hash of the key."""
    PLACE = 2
    """Replica, interval between cuts and `RecordState`, packed by `pack_place`."""
    OFFSET = 3
    """Of the last record."""
    VALUE = 4
    """Hash of its value."""
    EXPIRY = 5
    """Of a tombstone: the time (ms) from which a cleaner may remove it."""
    FLAGS = 6
    """TOMBSTONE, TRANSACTIONAL."""
    RECORDS = 7
    """How many records the row counts."""
    KEY_SHOWN = 8
    """64 bits of a hash of the key that is equal in every scan (XXH3), printed in place of the key."""


class RecordState(IntEnum):
    """Whether a read_committed consumer sees a record, by the markers of the record's log."""

    VISIBLE = 0
    ABORTED = 1
    OPEN = 2


ROW_WIDTH: Final = len(KeyColumn)
TOMBSTONE: Final = 1
TRANSACTIONAL: Final = 2


def pack_place(replica: int, interval: "Ints", state: "int | Ints") -> "Ints":
    """`KeyColumn.PLACE`, which sorts by replica, then by interval."""
    packed: Ints = (replica << 32) + (interval << 2) + state
    return packed


def reduce_rows(rows: "Ints") -> "Ints":
    """Rows sorted by key and place: for each place its last record, with the number of its records."""
    order = np.lexsort(
        (rows[:, KeyColumn.OFFSET], rows[:, KeyColumn.PLACE], rows[:, KeyColumn.KEY_LOW], rows[:, KeyColumn.KEY_HIGH])
    )
    rows = rows[order]
    if not len(rows):
        return rows
    changes = np.any(rows[1:, : KeyColumn.OFFSET] != rows[:-1, : KeyColumn.OFFSET], axis=1)
    first = np.flatnonzero(np.concatenate(([True], changes)))
    answer: Ints = rows[np.append(first[1:], len(rows)) - 1]
    answer[:, KeyColumn.RECORDS] = np.add.reduceat(rows[:, KeyColumn.RECORDS], first)
    return answer


class KeyBlock:
    """Reduced rows that include all rows of their keys. Methods return arrays with an entry per key, in the order of the rows.

    `cuts` are the ascending offsets that divide the intervals: interval n begins at cut n - 1.
    """

    def __init__(self, rows: "Ints", cuts: "Ints") -> None:
        changes = np.any(rows[1:, : KeyColumn.PLACE] != rows[:-1, : KeyColumn.PLACE], axis=1)
        self._rows = rows
        self._key = np.concatenate(([0], np.cumsum(changes)))
        self.keys = int(self._key[-1]) + 1
        self._cuts = cuts
        self._replica = rows[:, KeyColumn.PLACE] >> 32
        self._interval = (rows[:, KeyColumn.PLACE] & 0xFFFFFFFF) >> 2
        self._state = rows[:, KeyColumn.PLACE] & 3

    def _within(self, replica: int, state: int, start: int, end: int | None) -> "Ints":
        """Indices of the rows of a replica's records in `[start, end)`; both are cuts, None is the log's end."""
        low = np.searchsorted(self._cuts, start, side="right")
        mask = (self._replica == replica) & (self._state == state) & (self._interval >= low)
        if end is not None:
            mask &= self._interval < np.searchsorted(self._cuts, end, side="right")
        return np.flatnonzero(mask)

    def last(self, replica: int, state: int, start: int, end: int | None) -> "Ints":
        """The row of the replica's last record in this state in `[start, end)`; -1: none."""
        rows = self._within(replica, state, start, end)
        answer = np.full(self.keys, -1, np.int64)
        answer[self._key[rows]] = rows  # rows of a key ascend by offset, and of equal indexes numpy keeps the last
        return answer

    def records(self, replica: int, start: int, end: int) -> "Ints":
        """Number of visible records of the replica in `[start, end)`."""
        rows = self._within(replica, RecordState.VISIBLE, start, end)
        answer = np.zeros(self.keys, np.int64)
        np.add.at(answer, self._key[rows], self._rows[rows, KeyColumn.RECORDS])
        return answer

    def fact(self, rows: "Ints", column: int) -> "Ints":
        """A column of these rows, -1 where the row is -1."""
        return np.where(rows >= 0, self._rows[rows, column], -1)

    def has_flag(self, rows: "Ints", flag: int) -> "Mask":
        """Whether the row is not -1 and has the flag."""
        flagged: Mask = (rows >= 0) & (self._rows[rows, KeyColumn.FLAGS] & flag != 0)
        return flagged


DIFFERENCES_LISTED: Final = 8
"""Differing records listed in the evidence."""
REASONS: Final = ("contents", "markers", "tombstones", "stale", "vanished", "missing")
"""How a key can differ. A key gets the first reason that fits any pair of replicas.

contents: different values at one offset. markers: a record is aborted or undecided on one side only. tombstones: a tombstone on
one side, after the other's latest value. stale: an older value on one side. vanished: no record on one side, within the cleaned
range: lost, or deleted by a tombstone that was removed since. missing: no record on one side, beyond the cleaned range.
"""
_SYMMETRIC: Final = ("contents", "markers")
EXPLANATIONS: Final = (
    "unreadable",
    "undecided",
    "superseded",
    "out_of_reach",
    "tombstones_expired",
    "tombstones_early",
    "same_value",
)
"""Why a latest record may be on one side only, in the order in which the rules are tried.

unreadable: the explanation may be in damaged bytes. undecided: the shorter log ends before the marker. superseded: a later record
of the key is beyond the shorter log's end. out_of_reach: the longer log was cleaned past the end of the shorter one, which cannot
have the tombstone that deleted the key. tombstones_expired, tombstones_early: a tombstone removed after or before its delete
horizon. same_value: no rule, but the other side's latest record has the same value at a lower offset: the later write was lost
there, or a base offset is wrong.
"""


class ComparedLog(Struct, frozen=True):
    """A compared replica: the end of its log, and the end of the last damage that may hide records (-1: none)."""

    log_end_offset: int
    damaged_end: int = -1


class ReplicaPair(Struct, frozen=True):
    """Two replicas, by number, compared over `[start, end)`."""

    left: int
    right: int
    start: int
    end: int


class DifferingRecord(Struct, frozen=True):
    """The reason, the printed hash of the key, the replicas whose latest record of the key this is, the replicas that lack it."""

    reason: str
    key_hash: str
    holders: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)


class KeyTally(Struct):
    """The result of a sweep over keys: keys by reason and by explanation, and the first few differing records."""

    keys: int = 0
    cleaned_differently: int = 0
    """Keys whose records differ although their latest records are equal or explained."""
    beyond_checkpoint: int = 0
    """Those of them that lack a superseded record beyond the cleaned range."""
    transactional: int = 0
    """Differing keys whose latest record is part of a transaction."""
    reasons: Counter[str] = field(default_factory=Counter)
    explanations: Counter[str] = field(default_factory=Counter)
    listed: dict[int, DifferingRecord] = field(default_factory=dict)
    """The first few differing records by offset."""
    pairs: set[tuple[int, int, int]] = field(default_factory=set)
    """(index into `REASONS`, replica with the latest record of a key, replica that lacks it)."""
    first_offset: int | None = None
    end_offset: int = 0

    @property
    def differing(self) -> int:
        """Keys whose latest records differ without explanation."""
        return sum(self.reasons.values())

    @property
    def lacking(self) -> set[int]:
        """Replicas that lack a key's latest record."""
        return {lacking for _, _, lacking in self.pairs}

    def lacking_pairs(self) -> set[tuple[int, int]]:
        """(replica that lacks a key's latest record, replica that has it)."""
        return {(lacking, holder) for reason, holder, lacking in self.pairs if REASONS[reason] not in _SYMMETRIC}

    def differing_pairs(self) -> set[tuple[int, int]]:
        """Replicas, the lower number first, that have different values or outcomes at one offset: either may be wrong."""
        return {(min(pair), max(pair)) for reason, *pair in self.pairs if REASONS[reason] in _SYMMETRIC}

    def note(self, unexplained: "Unexplained") -> None:
        """Add the first differing records of a pair, the replicas that lack records, and the range of offsets."""
        if not len(unexplained.keys):
            return
        first_offsets = np.unique(unexplained.offsets)[:DIFFERENCES_LISTED].tolist()
        self._list((offset, unexplained.listed(offset)) for offset in first_offsets)
        pairs = np.unique(np.stack((unexplained.reasons, unexplained.holders, unexplained.others), axis=1), axis=0)
        self.pairs.update((reason, holder, lacking) for reason, holder, lacking in pairs.tolist())
        first = int(unexplained.offsets.min())
        self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
        self.end_offset = max(self.end_offset, int(unexplained.offsets.max()) + 1)

    def merge(self, other: "KeyTally") -> None:
        """Add the result of a sweep over other keys. The order of merging does not matter."""
        self.keys += other.keys
        self.cleaned_differently += other.cleaned_differently
        self.beyond_checkpoint += other.beyond_checkpoint
        self.transactional += other.transactional
        self.reasons.update(other.reasons)
        self.explanations.update(other.explanations)
        self._list(other.listed.items())
        self.pairs |= other.pairs
        first_offsets = [tally.first_offset for tally in (self, other) if tally.first_offset is not None]
        self.first_offset = min(first_offsets, default=None)
        self.end_offset = max(self.end_offset, other.end_offset)

    def _list(self, records: Iterable[tuple[int, DifferingRecord]]) -> None:
        for offset, record in records:
            before = self.listed.get(offset, record)
            first = min(before, record, key=lambda difference: (REASONS.index(difference.reason), difference.key_hash))
            holders, others = before.holders | record.holders, before.others | record.others
            self.listed[offset] = DifferingRecord(first.reason, first.key_hash, holders, others)
        for offset in sorted(self.listed)[DIFFERENCES_LISTED:]:
            del self.listed[offset]


class Unexplained(Struct, frozen=True):
    """Keys of a block that differ without explanation: arrays of one length; reasons are indices into `REASONS`."""

    keys: "Ints"
    reasons: "Ints"
    offsets: "Ints"
    """Of the latest record, which the replicas `holders` have and `others` lack."""
    holders: "Ints"
    others: "Ints"
    transactional: "Mask"
    shown: "Ints"
    """`KeyColumn.KEY_SHOWN`."""

    def listed(self, offset: int) -> DifferingRecord:
        """The record that differs at an offset; of several keys the one with the first reason, then with the lowest hash."""
        rows = np.flatnonzero(self.offsets == offset)
        reason = int(self.reasons[rows].min())
        shown = self.shown[rows][self.reasons[rows] == reason].view(np.uint64).min()
        holders, others = (set(np.unique(column[rows]).tolist()) for column in (self.holders, self.others))
        return DifferingRecord(REASONS[reason], f"{int(shown):016x}", holders, others)


class KeyComparison:
    """Fold over blocks of keys; blocks may come in any order.

    Below `cleaned_end` a replica may have been cleaned, or copied from a cleaned one. Tombstones expire by `as_of_ms`,
    milliseconds since 1970.
    """

    def __init__(self, sides: dict[int, ComparedLog], pairs: list[ReplicaPair], cleaned_end: int, as_of_ms: int) -> None:
        self.tally = KeyTally()
        self.sides = sides
        self.pairs = pairs
        self.cleaned_end = cleaned_end
        self.as_of_ms = as_of_ms
        edges = {edge for pair in pairs for edge in (pair.start, pair.end, min(max(cleaned_end, pair.start), pair.end))}
        self.cuts = np.array(sorted(edges), np.int64)

    def step(self, rows: "Ints") -> None:
        """Compare the keys of a block of reduced rows that includes all rows of its keys."""
        if not len(rows):
            return
        block = KeyBlock(rows, self.cuts)
        verdicts = np.full(block.keys, len(REASONS), np.int64)
        skewed, beyond, transactional = (np.zeros(block.keys, bool) for _ in range(3))
        explained = {name: np.zeros(block.keys, bool) for name in EXPLANATIONS}
        for pair in self.pairs:
            by_rule, latest = self._latest(block, pair)
            for name, keys in by_rule.items():
                explained[name][keys] = True
                skewed[keys] = True
            skewed |= block.records(pair.left, pair.start, pair.end) != block.records(pair.right, pair.start, pair.end)
            beyond |= self._beyond_checkpoint(block, pair)
            for unexplained in (latest, self._undecided(block, pair, pair.left), self._undecided(block, pair, pair.right)):
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

    def _latest(self, block: KeyBlock, pair: ReplicaPair) -> "tuple[dict[str, Ints], Unexplained]":
        """Compare the latest visible record of each key: the differing keys by explanation, and those without."""
        left, right = (block.last(number, RecordState.VISIBLE, pair.start, pair.end) for number in (pair.left, pair.right))
        at_left, at_right = block.fact(left, KeyColumn.OFFSET), block.fact(right, KeyColumn.OFFSET)
        contents = (at_left == at_right) & (block.fact(left, KeyColumn.VALUE) != block.fact(right, KeyColumn.VALUE))
        keys = np.flatnonzero((at_left != at_right) | contents)
        left, right, contents = left[keys], right[keys], contents[keys]
        left_is_newer = at_left[keys] >= at_right[keys]
        holder, other = np.where(left_is_newer, left, right), np.where(left_is_newer, right, left)
        holders, others = np.where(left_is_newer, pair.left, pair.right), np.where(left_is_newer, pair.right, pair.left)
        offsets = block.fact(holder, KeyColumn.OFFSET)
        deleted = block.has_flag(holder, TOMBSTONE)
        other_is_alive = (other >= 0) & ~block.has_flag(other, TOMBSTONE)
        is_open, hidden = self._hidden(block, pair, keys, others, offsets)
        sides = self.sides[pair.left], self.sides[pair.right]
        end_of_other = np.where(left_is_newer, sides[1].log_end_offset, sides[0].log_end_offset)
        end_of_holder = np.where(left_is_newer, sides[0].log_end_offset, sides[1].log_end_offset)
        later = np.maximum(*(block.last(number, RecordState.VISIBLE, pair.end, None)[keys] for number in (pair.left, pair.right)))
        rules = {
            "unreadable": max(side.damaged_end for side in sides) > offsets,
            "undecided": is_open & (end_of_other < end_of_holder),
            "superseded": later >= 0,
            "out_of_reach": ~other_is_alive & ~hidden & (end_of_other > pair.end) & (self.cleaned_end > pair.end),
            "tombstones_expired": deleted & ~other_is_alive & (block.fact(holder, KeyColumn.EXPIRY) <= self.as_of_ms),
            "tombstones_early": deleted & ~other_is_alive,
            "same_value": other_is_alive
            & ~deleted
            & ~hidden
            & (block.fact(holder, KeyColumn.VALUE) == block.fact(other, KeyColumn.VALUE)),
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
        shown = block.fact(holder, KeyColumn.KEY_SHOWN)[rest]
        unexplained = Unexplained(keys[rest], reasons[rest], offsets[rest], holders[rest], others[rest], transactional[rest], shown)
        return by_rule, unexplained

    @staticmethod
    def _hidden(block: KeyBlock, pair: ReplicaPair, keys: "Ints", others: "Ints", offsets: "Ints") -> "tuple[Mask, Mask]":
        """Whether the replica in `others`, which lacks the record, has an undecided record from there on; whether it hides it."""
        states = []
        for state in (RecordState.OPEN, RecordState.ABORTED):
            of_left, of_right = (block.last(number, state, pair.start, pair.end)[keys] for number in (pair.left, pair.right))
            states.append(block.fact(np.where(others == pair.left, of_left, of_right), KeyColumn.OFFSET))
        opened, aborted = states
        return opened >= offsets, (opened == offsets) | (aborted == offsets)

    def _undecided(self, block: KeyBlock, pair: ReplicaPair, number: int) -> Unexplained:
        """Records of an open transaction in a log that is not the shorter one, missing in the other log, below the cleaned end.

        No cleaner passes an open transaction: the other log had a marker that this log lacks, and removed it.
        """
        other = pair.right if number == pair.left else pair.left
        last = block.last(number, RecordState.OPEN, pair.start, pair.end)
        opened = block.fact(last, KeyColumn.OFFSET)
        reached = np.zeros(block.keys, bool)
        for state in RecordState:
            reached |= block.fact(block.last(other, state, pair.start, None), KeyColumn.OFFSET) >= opened
        ours, theirs = self.sides[number], self.sides[other]
        readable = opened >= max(ours.damaged_end, theirs.damaged_end, 0)
        possible = ours.log_end_offset >= theirs.log_end_offset
        keys = np.flatnonzero(readable & ~reached & (opened < self.cleaned_end)) if possible else np.empty(0, np.int64)
        reasons = np.full(len(keys), REASONS.index("markers"))
        holders, others = np.full(len(keys), number), np.full(len(keys), other)
        shown = block.fact(last, KeyColumn.KEY_SHOWN)[keys]
        return Unexplained(keys, reasons, opened[keys], holders, others, np.ones(len(keys), bool), shown)

    def _beyond_checkpoint(self, block: KeyBlock, pair: ReplicaPair) -> "Mask":
        """Whether a key lacks a record beyond the cleaned range, or one within it that only a record beyond supersedes."""
        if max(self.sides[number].damaged_end for number in (pair.left, pair.right)) >= 0:
            return np.zeros(block.keys, bool)
        middle = min(max(self.cleaned_end, pair.start), pair.end)
        lacks: Mask = block.records(pair.left, middle, pair.end) != block.records(pair.right, middle, pair.end)
        if middle < pair.end:
            left, right = (block.last(number, RecordState.VISIBLE, pair.start, middle) for number in (pair.left, pair.right))
            at_left, at_right = block.fact(left, KeyColumn.OFFSET), block.fact(right, KeyColumn.OFFSET)
            lacks |= (at_left > at_right) & ~block.has_flag(left, TOMBSTONE)
            lacks |= (at_right > at_left) & ~block.has_flag(right, TOMBSTONE)
        return lacks


DELETE_RETENTION_MS: Final = 24 * 60 * 60 * 1000
"""Kafka's default of `delete.retention.ms`."""
_MAX_RETENTION_MS: Final = 2**62


class TombstoneRetention(Struct, frozen=True):
    """`delete.retention.ms`, and whether the controller's log has it."""

    milliseconds: int
    is_known: bool


class ComparedRange(Struct, frozen=True):
    """Counts, by replica number, in the offsets `[start, end)` that all compared replicas have."""

    start: int
    end: int
    records: dict[int, int]
    aborted: dict[int, int]
    keyless: dict[int, int]
    markers: dict[int, int]


def retention(replicas: list[Replica]) -> TombstoneRetention:
    """`delete.retention.ms` from the controller's log, for the topic or all brokers, else Kafka's default."""
    for replica in replicas:
        control = replica.context.control
        settings = {} if control is None else control.defaults | control.configs
        text = settings.get("delete.retention.ms", "")
        if text.isascii() and text.isdigit():
            return TombstoneRetention(min(int(text[:19]), _MAX_RETENTION_MS), is_known=True)
    return TombstoneRetention(DELETE_RETENTION_MS, is_known=False)


def cleaned_end(replicas: list[Replica]) -> int:
    """The offset below which a replica may have been cleaned, or copied from a cleaned one; the log end without any checkpoint."""
    ends = [replica.context.cleaner_checkpoint for replica in replicas if replica.context.cleaner_checkpoint is not None]
    return max(ends) if ends else max(replica.log_end_offset for replica in replicas)


def compaction_findings(
    replicas: list[Replica], tally: KeyTally, compared: ComparedRange, kept: TombstoneRetention
) -> list[Finding]:
    """`COMPACTED_VALUE_DIFFERS` and `COMPACTION_SKEW`, if the comparison found them. `kept`: how long tombstones are kept."""
    findings = [_value_differs(replicas, tally, kept)] if tally.differing else []
    skewed = {
        name: {str(replicas[number].broker): amount for number, amount in sorted(by_replica.items())}
        for name, by_replica in (("aborted", compared.aborted), ("keyless", compared.keyless), ("markers", compared.markers))
        if len(set(by_replica.values())) > 1
    }
    if tally.cleaned_differently or skewed:
        findings.append(_skew(replicas, tally, compared, skewed, kept))
    return findings


def _value_differs(replicas: list[Replica], tally: KeyTally, kept: TombstoneRetention) -> Finding:
    def brokers(numbers: set[int]) -> list[int | str]:
        return [replicas[number].broker for number in sorted(numbers)]

    evidence: Json = {"keys": tally.differing}
    evidence |= {name: tally.reasons[name] for name in REASONS if tally.reasons[name]}
    if tally.transactional:
        evidence["transactional"] = tally.transactional
    evidence["records"] = [
        {"offset": offset, "reason": record.reason, "key_hash": record.key_hash}
        | {"held_by": brokers(record.holders), "not_on": brokers(record.others)}
        for offset, record in sorted(tally.listed.items())
    ]
    if not tally.reasons["contents"] and not tally.reasons["markers"]:
        evidence["held_by"] = brokers(set(range(len(replicas))) - tally.lacking)
    evidence["premises"] = _premises(replicas, kept)
    severity, confidence = None, None
    if any(replica.context.live for replica in replicas):
        severity, confidence = Severity.WARNING, Confidence.SUSPECTED
        # between the copying of two files a cleaner may have run that knew newer records; but if neither checkpoints nor logs show
        # one, no cleaner removed the value of a key
        lost = tally.reasons["missing"] and not tally.beyond_checkpoint
        if "held_by" in evidence and not lost:
            severity, evidence["capped_by"] = Severity.INFO, "--live"
    where = place_of(replicas, tally.first_offset or 0, tally.end_offset)
    return finding("COMPACTED_VALUE_DIFFERS", where, evidence, severity=severity, confidence=confidence)


def _skew(
    replicas: list[Replica], tally: KeyTally, compared: ComparedRange, skewed: dict[str, dict[str, int]], kept: TombstoneRetention
) -> Finding:
    explanations = {name: tally.explanations[name] for name in EXPLANATIONS if tally.explanations[name]}
    evidence: Json = {
        "brokers": [replicas[number].broker for number in sorted(compared.records)],
        "keys": tally.keys,
        "keys_cleaned_differently": tally.cleaned_differently,
        "records": {str(replicas[number].broker): amount for number, amount in sorted(compared.records.items())},
        **explanations,
        **skewed,
    }
    if tally.differing:
        evidence["keys_that_differ"] = tally.differing
    if tally.beyond_checkpoint:
        evidence["beyond_checkpoint"] = tally.beyond_checkpoint
    evidence["premises"] = _premises(replicas, kept)
    early = "tombstones_early" in explanations and kept.is_known
    severity, confidence = (Severity.WARNING, Confidence.SUSPECTED) if early else (None, None)
    where = place_of(replicas, compared.start, max(compared.end, compared.start))
    return finding("COMPACTION_SKEW", where, evidence, severity=severity, confidence=confidence)


def _premises(replicas: list[Replica], kept: TombstoneRetention) -> list[str]:
    """Up to where each log was cleaned, and how long tombstones are kept."""
    premises = []
    for replica in replicas:
        checkpoint = replica.context.cleaner_checkpoint
        cleaned = "no cleaner checkpoint" if checkpoint is None else f"cleaned up to offset {checkpoint}"
        premises.append(f"broker {replica.broker}: {cleaned}, log {offset_range(replica.log_start_offset, replica.log_end_offset)}")
    disagreement = replicas_disagree(replicas)
    premises += [] if disagreement is None else [disagreement]
    source = "by the controller's log" if kept.is_known else "by default"
    return [*premises, f"delete.retention.ms {kept.milliseconds} {source}"]


def sum_between_cuts(cuts: "Ints", counts: "Ints", start: int, end: int) -> int:
    """Sum of the counts of the intervals in `[start, end)`; both are cuts."""
    low, high = cuts.searchsorted([start, end], side="right")
    return int(counts[low:high].sum())
