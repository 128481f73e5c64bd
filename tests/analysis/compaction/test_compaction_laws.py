"""Comparison of compacted logs: the order of reading and spilling does not matter, and the result equals a naive one."""

import random
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, strategies as st

from kafka_forensics.analysis.compaction import (
    DIFFERENCES_LISTED,
    REASONS,
    ROW_WIDTH,
    TOMBSTONE,
    TRANSACTIONAL,
    ComparedLog,
    KeyColumn,
    KeyComparison,
    KeyTally,
    RecordState,
    ReplicaPair,
    Unexplained,
    pack_place,
    reduce_rows,
)
from kafka_forensics.scanning.folding.keys.question import KeyRuns

if TYPE_CHECKING:
    from numpy.typing import NDArray


AS_OF_MS = 100
LOG_END = 24


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record of one replica; `expiry` matters if `value` is None."""

    replica: int
    key: int
    offset: int
    value: int | None
    state: RecordState = RecordState.VISIBLE
    expiry: int = 0


@dataclass(frozen=True)
class Case:
    """Replicas of one history: their ends, their records, and the end of the cleaned range."""

    sides: dict[int, ComparedLog]
    pairs: list[ReplicaPair]
    cleaned_end: int
    records: list[KeptRecord]

    def comparison(self) -> KeyComparison:
        return KeyComparison(self.sides, self.pairs, self.cleaned_end, AS_OF_MS)

    def rows(self) -> "NDArray[np.int64]":
        cuts = self.comparison().cuts
        rows = np.zeros((len(self.records), ROW_WIDTH), np.int64)
        for row, record in zip(rows, self.records, strict=True):
            interval = np.searchsorted(cuts, [record.offset], side="right")
            row[KeyColumn.KEY_HIGH], row[KeyColumn.KEY_LOW] = record.key % 3 - 1, -record.key
            row[KeyColumn.PLACE] = pack_place(record.replica, interval, record.state)[0]
            row[KeyColumn.OFFSET], row[KeyColumn.RECORDS] = record.offset, 1
            row[KeyColumn.VALUE] = record.value or 0
            row[KeyColumn.EXPIRY] = record.expiry
            row[KeyColumn.FLAGS] = TOMBSTONE * (record.value is None) + TRANSACTIONAL * (record.state != RecordState.VISIBLE)
            row[KeyColumn.KEY_SHOWN] = record.key
        return rows[rows[:, KeyColumn.PLACE] & 0xFFFFFFFF >= 4]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    replicas = draw(st.integers(2, 3))
    ends = [draw(st.integers(12, LOG_END)) for _ in range(replicas)]
    starts = [draw(st.integers(0, 6)) for _ in range(replicas)]
    history = [
        KeptRecord(0, draw(st.integers(0, 4)), offset, draw(st.none() | st.integers(1, 3)), expiry=draw(st.sampled_from([0, 200])))
        for offset in range(LOG_END)
    ]
    records = []
    for number in range(replicas):
        for record in history:
            if starts[number] <= record.offset < ends[number] and draw(st.integers(0, 3)):
                state = draw(st.sampled_from([RecordState.VISIBLE] * 6 + [RecordState.ABORTED, RecordState.OPEN]))
                other = draw(st.integers(0, 9)) == 0 and record.value is not None
                records.append(replace(record, replica=number, state=state, value=9 if other else record.value))
    sides = {number: ComparedLog(end, draw(st.sampled_from([-1, -1, -1, 10]))) for number, end in enumerate(ends)}
    pairs = [
        ReplicaPair(i, j, max(starts[i], starts[j]), min(ends[i], ends[j])) for i in range(replicas) for j in range(i + 1, replicas)
    ]
    return Case(sides, pairs, draw(st.integers(0, LOG_END)), records)


def tallied(case: Case, blocks: Iterable["NDArray[np.int64]"]) -> KeyTally:
    comparison = case.comparison()
    for block in blocks:
        comparison.step(block)
    return comparison.tally


def naive(case: Case) -> tuple[Counter[str], Counter[str]]:
    """Number of keys by reason and by explanation, key by key and pair by pair."""
    reasons, explanations = Counter[str](), Counter[str]()
    for key in {record.key for record in case.records}:
        found: set[str] = set()
        for pair in case.pairs:
            found |= {*naive_latest(case, key, pair), *naive_stuck(case, key, pair)} - {""}
        different = [name for name in REASONS if name in found]
        if different:
            reasons[different[0]] += 1
        else:
            for name in found:
                explanations[name] += 1
    return reasons, explanations


def records_of(case: Case, key: int, replica: int, state: RecordState, low: int, high: int) -> dict[int, KeptRecord]:
    records = [record for record in case.records if (record.key, record.replica, record.state) == (key, replica, state)]
    return {record.offset: record for record in records if low <= record.offset < high}


def naive_latest(case: Case, key: int, pair: ReplicaPair) -> list[str]:
    """The reason why the latest records of a key differ, or the explanation."""
    left, right = (records_of(case, key, number, RecordState.VISIBLE, pair.start, pair.end) for number in (pair.left, pair.right))
    if not left and not right:
        return []
    if max(left, default=-1) == max(right, default=-1):
        latest = max(left)
        return [] if left[latest].value == right[latest].value else ["contents"]
    ahead = max(left, default=-1) > max(right, default=-1)
    holder, other = (pair.left, pair.right) if ahead else (pair.right, pair.left)
    record = left[max(left)] if ahead else right[max(right)]
    shorter_side = right if ahead else left
    other_value = shorter_side[max(shorter_side)].value if shorter_side else None
    opened = records_of(case, key, other, RecordState.OPEN, pair.start, pair.end)
    aborted = records_of(case, key, other, RecordState.ABORTED, pair.start, pair.end)
    hidden = max(opened, default=-1) == record.offset or max(aborted, default=-1) == record.offset
    ends = {number: case.sides[number].log_end_offset for number in (holder, other)}
    if max(case.sides[holder].damaged_end, case.sides[other].damaged_end) > record.offset:
        return ["unreadable"]
    if max(opened, default=-1) >= record.offset and ends[other] < ends[holder]:
        return ["undecided"]
    if any(records_of(case, key, number, RecordState.VISIBLE, pair.end, LOG_END) for number in (holder, other)):
        return ["superseded"]
    if other_value is None and not hidden and ends[other] > pair.end and case.cleaned_end > pair.end:
        return ["out_of_reach"]
    if record.value is None and other_value is None:
        return ["tombstones_expired" if record.expiry <= AS_OF_MS else "tombstones_early"]
    if hidden:
        return ["markers"]
    if record.value is not None and record.value == other_value:
        return ["same_value"]
    if record.value is None:
        return ["tombstones"]
    return ["stale" if shorter_side else "vanished" if case.cleaned_end > record.offset else "missing"]


def naive_stuck(case: Case, key: int, pair: ReplicaPair) -> list[str]:
    """`markers` if one side has a record of a transaction that stays undecided."""
    for mine, other in ((pair.left, pair.right), (pair.right, pair.left)):
        latest = max(records_of(case, key, mine, RecordState.OPEN, pair.start, pair.end), default=-1)
        reached = any(max(records_of(case, key, other, state, pair.start, LOG_END), default=-1) >= latest for state in RecordState)
        if latest < 0 or reached or latest >= case.cleaned_end:
            continue
        damaged = max(case.sides[mine].damaged_end, case.sides[other].damaged_end) > latest
        if not damaged and case.sides[mine].log_end_offset >= case.sides[other].log_end_offset:
            return ["markers"]
    return []


@given(cases())
def test_the_comparison_equals_a_naive_one(case: Case) -> None:
    tally = tallied(case, [reduce_rows(case.rows())])
    assert (tally.reasons, tally.explanations) == naive(case)
    if tally.differing:
        assert tally.first_offset == min(tally.listed)
        assert max(tally.listed) < tally.end_offset


@given(cases(), st.integers(2, 40), st.randoms(use_true_random=False))
def test_order_and_spilling_do_not_change_the_result(case: Case, capacity: int, order: random.Random) -> None:
    rows = case.rows()
    shuffled = rows[order.sample(range(len(rows)), len(rows))]
    with KeyRuns(capacity=capacity) as runs:
        position = 0
        while position < len(shuffled):
            step = order.randint(1, 9)
            runs.add(shuffled[position : position + step])
            position += step
        blocks = list(runs.blocks())
    assert np.array_equal(np.concatenate(blocks), reduce_rows(rows))
    order.shuffle(blocks)
    assert tallied(case, blocks) == tallied(case, [reduce_rows(rows)])


@given(cases(), st.lists(st.integers(0, 3), min_size=5, max_size=5), st.permutations(range(4)))
def test_tallies_of_any_split_of_the_keys_merge_to_the_same(case: Case, part_of: list[int], order: list[int]) -> None:
    rows = reduce_rows(case.rows())
    tallies = [tallied(case, [rows[np.isin(rows[:, KeyColumn.KEY_SHOWN], keys)]]) for keys in _keys_of_parts(part_of)]
    merged = KeyTally()
    for number in order:
        merged.merge(tallies[number])
    assert merged == tallied(case, [rows])
    left, right = deepcopy(tallies[order[0]]), deepcopy(tallies[order[2]])
    left.merge(tallies[order[1]])
    right.merge(tallies[order[3]])
    left.merge(right)
    assert left == merged


def _keys_of_parts(part_of: list[int]) -> list[list[int]]:
    return [[key for key, part in enumerate(part_of) if part == number] for number in range(4)]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.integers(-3, 3), st.booleans()), max_size=40), st.integers(0, 40)
)
def test_the_listed_records_do_not_depend_on_the_split(found: list[tuple[int, int, int, bool]], cut: int) -> None:
    whole, left, right = KeyTally(), KeyTally(), KeyTally()
    whole.note(_unexplained(found))
    left.note(_unexplained(found[:cut]))
    right.note(_unexplained(found[cut:]))
    right.merge(left)
    assert right == whole
    assert sorted(whole.listed) == sorted({offset for offset, _, _, _ in found})[:DIFFERENCES_LISTED]


def _unexplained(found: list[tuple[int, int, int, bool]]) -> Unexplained:
    offsets, reasons, shown, left = (np.array([row[column] for row in found], np.int64) for column in range(4))
    numbers = np.arange(len(found))
    return Unexplained(numbers, reasons, offsets, left, 1 - left, numbers < 0, shown)


@given(cases(), st.integers(0, 60))
def test_reducing_in_parts_gives_the_same_rows(case: Case, cut: int) -> None:
    rows = case.rows()
    assert np.array_equal(reduce_rows(np.concatenate((reduce_rows(rows[:cut]), reduce_rows(rows[cut:])))), reduce_rows(rows))
