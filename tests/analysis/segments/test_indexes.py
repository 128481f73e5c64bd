"""Index entries against batches: each rule, every merge, and a plain loop over the whole segment."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from kafka_forensics.analysis.segments.indexes import BadEntry, IndexFold, entries_agree
from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.files import OffsetIndex, TimeIndex
from tests.support.segments import add_batches, columns_of
from tests.support.strategies import fold_in_parts

SIZE = 100
Entry = tuple[int, int]
Rows = list[dict[BatchColumn, int]]


def segment_of(*batches: tuple[int, int, int]) -> Rows:
    """Batches of 100 bytes each: (base offset, last offset, largest timestamp)."""
    names = (BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET, BatchColumn.MAX_TIMESTAMP)
    return [dict(zip(names, values, strict=True)) | {BatchColumn.POSITION: n * SIZE} for n, values in enumerate(batches)]


def offset_index(*entries: Entry) -> OffsetIndex:
    """Entries of (offset, position)."""
    return OffsetIndex(np.array([a for a, _ in entries], np.int64), np.array([b for _, b in entries], np.int64), 0)


def time_index(*entries: Entry) -> TimeIndex:
    """Entries of (timestamp, offset)."""
    return TimeIndex(np.array([a for a, _ in entries], np.int64), np.array([b for _, b in entries], np.int64), 0)


LOG = segment_of((0, 4, 10), (5, 9, 20), (10, 14, 15), (15, 19, 30))


def judged(rows: Rows, offsets: tuple[Entry, ...] = (), times: tuple[Entry, ...] = ()) -> list[tuple[str, int, str]]:
    """(file, entry, reason) of the bad entries."""
    state = IndexFold(0, offset_index(*offsets), time_index(*times))
    add_batches(state, columns_of(rows))
    return sorted((bad.file_kind, bad.entry, bad.reason) for bad in state.finish())


@pytest.mark.parametrize(("entries", "entry", "reason"), [
    (((9, 0), (7, 100)), 1, "out_of_order"),
    (((9, 100), (9, 100)), 1, "out_of_order"),
    (((9, 100), (20, 300)), 1, "beyond_log"),
    (((9, 100), (19, 400)), 1, "beyond_log"),
    (((9, 100), (19, 2**31 - 1)), 1, "beyond_log"),
    (((9, -100),), 0, "beyond_log"),
])  # fmt: skip
def test_offset_entries_that_contradict_the_log(entries: tuple[Entry, ...], entry: int, reason: str) -> None:
    assert ("index", entry, reason) in judged(LOG, entries)
    assert {number for _, number, _ in judged(LOG, entries)} == {entry}


def test_an_offset_of_an_earlier_batch() -> None:
    """In a log whose offsets go back, the batch found may begin below earlier ones."""
    rows = segment_of((0, 4, 1), (5, 9, 1), (3, 7, 1))
    assert judged(rows, ((8, 200),)) == [("index", 0, "offset_in_earlier_batch")]
    rows = segment_of((0, 20, 1), (5, 9, 1), (3, 7, 1))
    assert judged(rows, ((15, 200),)) == [("index", 0, "offset_in_earlier_batch")]


@pytest.mark.parametrize(("entries", "entry", "reason"), [
    (((20, 9), (10, 4)), 1, "out_of_order"),
    (((20, 9), (20, 9)), 1, "out_of_order"),
    (((30, 19), (40, 20)), 1, "beyond_log"),
])  # fmt: skip
def test_time_entries_that_contradict_the_log(entries: tuple[Entry, ...], entry: int, reason: str) -> None:
    assert judged(LOG, (), entries) == [("timeindex", entry, reason)]


def test_a_bad_entry_carries_its_numbers() -> None:
    state = IndexFold(7, offset_index((9, 100), (12, 250)), time_index((25, 9)))
    add_batches(state, columns_of(LOG))
    assert state.finish() == [
        BadEntry("index", 7, 1, "position_inside_batch", 12, 250, 200),
        BadEntry("timeindex", 7, 0, "timestamp_of_no_batch_there", 9, 25, 20),
    ]


def test_every_entry_beyond_an_empty_log_is_reported() -> None:
    assert judged([], ((9, 100),), ((20, 9),)) == [("index", 0, "beyond_log"), ("timeindex", 0, "beyond_log")]


def test_only_a_few_of_many_entries_beyond_the_log_are_reported() -> None:
    assert len(judged(LOG, tuple((100 + n, 1000 + n) for n in range(500)))) <= 16


def test_damage_of_the_file_is_reported() -> None:
    index = replace(offset_index((9, 100)), damage=[Damage("INDEX_MISMATCH", 8, 3, detail={"reason": "odd_size"})])
    state = IndexFold(0, index, None)
    add_batches(state, columns_of(LOG))
    assert [(bad.file_kind, bad.entry, bad.reason) for bad in state.finish()] == [("index", 1, "odd_size")]


def parts(index: OffsetIndex, times: TimeIndex, *logs: Rows) -> list[IndexFold]:
    made = []
    for rows in logs:
        made.append(IndexFold(0, index, times))
        add_batches(made[-1], columns_of(rows))
    return made


def test_the_end_of_an_open_index_is_known_over_several_parts() -> None:
    """With entries or summaries, the last entry that agrees with the log is the same."""
    index = replace(offset_index((4, 0), (14, 200), (19, 300), (7, 100), (40, 900)), zero_tail_bytes=80)
    for drop_entries in (False, True):
        a, b = parts(index, time_index(), LOG[:2], LOG[2:])
        for state in (a, b) if drop_entries else ():
            state.drop_entries()
        a.merge(b)
        assert [(tail.file_kind, tail.entries, tail.last_sound) for tail in a.zero_tails()] == [("index", 5, 3)]


def test_the_newest_timestamp_of_all_earlier_parts_counts() -> None:
    """In either order of merging: the entry of the third part is older than the first part."""
    rows = segment_of((0, 0, 50), (1, 1, 5), (2, 2, 20))
    for first in ("left", "right"):
        a, b, c = parts(offset_index(), time_index((20, 2)), rows[:1], rows[1:2], rows[2:])
        if first == "left":
            a.merge(b)
            a.merge(c)
        else:
            b.merge(c)
            a.merge(b)
        assert [(bad.entry, bad.reason, bad.expected) for bad in a.bad] == [(0, "earlier_batch_is_newer", 50)]


def test_an_equal_earlier_offset_is_of_an_earlier_batch() -> None:
    rows = segment_of((0, 9, 1), (8, 9, 1))
    a, b = parts(offset_index((9, 100)), time_index(), rows[:1], rows[1:])
    a.merge(b)
    assert [(bad.entry, bad.reason, bad.expected) for bad in a.bad] == [(0, "offset_in_earlier_batch", 9)]


def plain(rows: Rows, offsets: list[Entry], times: list[Entry]) -> set[tuple[str, int, str]]:
    """The reason why each entry contradicts the log, without the checks of order and end."""
    found = set()
    for number, (offset, position) in enumerate(offsets):
        at = [n for n in range(len(rows)) if n * SIZE <= position < (n + 1) * SIZE]
        if not at:
            continue
        row = rows[at[0]]
        if position != row[BatchColumn.POSITION]:
            found.add(("index", number, "position_inside_batch"))
        elif row[BatchColumn.BASE_OFFSET] > offset:
            found.add(("index", number, "offset_before_batch"))
        elif max([row[BatchColumn.LAST_OFFSET] for row in rows[: at[0]]], default=-1) >= offset:
            found.add(("index", number, "offset_in_earlier_batch"))
    for number, (stamp, offset) in enumerate(times):
        at = [n for n, row in enumerate(rows) if row[BatchColumn.BASE_OFFSET] <= offset <= row[BatchColumn.LAST_OFFSET]]
        if not at:
            continue
        if rows[at[0]][BatchColumn.MAX_TIMESTAMP] != stamp:
            found.add(("timeindex", number, "timestamp_of_no_batch_there"))
        elif max([row[BatchColumn.MAX_TIMESTAMP] for row in rows[: at[0]]], default=-1) > stamp:
            found.add(("timeindex", number, "earlier_batch_is_newer"))
    return found


@st.composite
def rising_segments(draw: st.DrawFn) -> Rows:
    """Batches whose offsets rise, with gaps; timestamps as they come."""
    made, offset = [], draw(st.integers(0, 2))
    for _ in range(draw(st.integers(0, 6))):
        last = offset + draw(st.integers(0, 3))
        made.append((offset, last, draw(st.integers(0, 6))))
        offset = last + 1 + draw(st.sampled_from([0, 0, 2]))
    return segment_of(*made)


ENTRIES = st.lists(
    st.tuples(st.integers(-1, 30), st.one_of(st.integers(0, 7).map(lambda n: n * SIZE), st.integers(-5, 650))), max_size=7
)
TIMES = st.lists(st.tuples(st.integers(-1, 7), st.integers(-1, 30)), max_size=7)


@given(rising_segments(), ENTRIES, TIMES, st.data())
def test_any_cut_gives_what_a_plain_loop_gives(rows: Rows, offsets: list[Entry], times: list[Entry], draw: st.DataObject) -> None:
    index, time = replace(offset_index(*offsets), zero_tail_bytes=80), replace(time_index(*times), zero_tail_bytes=120)
    columns = columns_of(rows)
    state = fold_in_parts(draw, lambda: IndexFold(0, index, time), lambda fold, a, b: add_batches(fold, columns[:, a:b]), len(rows))
    assert {(bad.file_kind, bad.entry, bad.reason) for bad in state.bad} == plain(rows, offsets, times)
    assert state.bad.count == len(plain(rows, offsets, times))
    whole = IndexFold(0, index, time)
    add_batches(whole, columns_of(rows))
    assert state.zero_tails() == whole.zero_tails()
    without_expected = [{replace(bad, expected=None) for bad in index_fold.finish()} for index_fold in (state, whole)]
    assert without_expected[0] == without_expected[1]


@given(rising_segments(), st.data())
def test_indexes_as_a_broker_builds_them_are_sound_at_any_cut(rows: Rows, draw: st.DataObject) -> None:
    """Rebuilt by appending some of the batches' entries, as `LogSegment.append` does."""
    offsets, times, largest = [], [], -1
    for row in rows:
        newer = row[BatchColumn.MAX_TIMESTAMP] > largest
        largest = max(largest, row[BatchColumn.MAX_TIMESTAMP])
        if draw.draw(st.booleans()):
            offsets.append((row[BatchColumn.LAST_OFFSET], row[BatchColumn.POSITION]))
            if newer:
                times.append((largest, row[BatchColumn.LAST_OFFSET]))
    state = fold_in_parts(
        draw,
        lambda: IndexFold(0, offset_index(*offsets), time_index(*times)),
        lambda fold, a, b: add_batches(fold, columns_of(rows[a:b])),
        len(rows),
    )
    assert state.finish() == []


@given(
    rows=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    entries=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4),
    before=st.integers(-1, 9),
    chosen=st.data(),
)
def test_all_entries_agree_if_each_one_agrees(rows: Rows, entries: list[Entry], before: int, chosen: st.DataObject) -> None:
    """Batches with ascending positions, as in any file; entries in any order."""
    columns = columns_of([{BatchColumn.BASE_OFFSET: base, BatchColumn.LAST_OFFSET: last} for _, base, last in rows])
    columns[BatchColumn.POSITION] = np.cumsum([size for size, _, _ in rows], dtype=np.int64)
    positions, offsets = (np.array([entry[part] for entry in entries], np.int64) for part in (0, 1))
    if chosen.draw(st.booleans()):
        positions.sort()
        offsets.sort()
    numbers = np.array(chosen.draw(st.lists(st.sampled_from(range(len(entries))), unique=True)) if entries else [], np.int64)
    expected = all_agree(columns, [(int(positions[number]), int(offsets[number])) for number in numbers], before)
    assert entries_agree(columns, positions, offsets, numbers, before) is expected


def all_agree(columns: "np.ndarray[Any, np.dtype[np.int64]]", entries: list[Entry], before: int) -> bool:
    """Whether each entry points to a batch after or at that of the previous one, which has its offset, and no earlier batch has
    it."""
    batches = columns[[BatchColumn.POSITION, BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET]].T.tolist()
    last_row = 0
    for position, offset in entries:
        row = next((row for row, (start, _, _) in enumerate(batches) if start == position), None)
        if row is None or row < last_row:
            return False
        if batches[row][1] > offset or max([before, *(last for _, _, last in batches[:row])]) >= offset:
            return False
        last_row = row
    return True
