"""Continuity: the fold against plain lists and any cut; the kind of each anomaly."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from kafka_forensics.analysis.segments import continuity
from kafka_forensics.analysis.segments.continuity import BadTail, ContinuityFold, OffsetSequence, Run, judge
from kafka_forensics.model.batches import BatchColumn, Damage
from tests.support.segments import add_batches, columns_of
from tests.support.strategies import fold_in_parts

INT64_MAX = 2**63 - 1
NEAR = st.integers(-2, 30)
ANY_OFFSET = st.one_of(NEAR, NEAR, st.sampled_from([-(2**63), -1, 2**31, 2**40, INT64_MAX - 1, INT64_MAX]))


@dataclass(frozen=True)
class Item:
    """A batch of a log, or (`kind`) damage at its place."""

    segment: int
    base: int
    last: int
    good: bool = True
    kind: str = ""
    count: int = 0
    """Records its header claims; 0 means as many as it has offsets."""
    position: int = 0

    @property
    def counted_end(self) -> int | None:
        """End of its records, if its header claims another one."""
        return self.base + self.count if self.count and self.count != self.last - self.base + 1 else None


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    """Any log: mostly batches that join."""
    made: list[Item] = []
    segment, offset = 0, draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 14))):
        segment += 1000 * draw(st.sampled_from([0, 0, 0, 1]))
        if draw(st.integers(0, 6)) == 0:
            made.append(Item(segment, 0, 0, kind=draw(st.sampled_from(["FRAMING_LOST", "SEG_HOLE", "SEG_TORN_TAIL"]))))
        base = offset if draw(st.integers(0, 3)) else draw(ANY_OFFSET)
        last = min(base + draw(st.integers(0, 3)), INT64_MAX)
        count = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
        made.append(Item(segment, base, last, good=draw(st.integers(0, 6)) != 0, count=count))
        offset = (base + count if count else last + 1) if -1 <= last < 1000 else offset
    return placed(made)


def placed(log: list[Item]) -> list[Item]:
    """The items at consecutive positions."""
    return [replace(item, position=100 * index) for index, item in enumerate(log)]


def step(state: ContinuityFold, log: list[Item]) -> None:
    """Feed `log`, all of one segment, as one chunk."""
    rows = [item for item in log if not item.kind]
    columns = columns_of(
        [
            {
                BatchColumn.BASE_OFFSET: item.base,
                BatchColumn.LAST_OFFSET: item.last,
                BatchColumn.CRC_COMPUTED: int(not item.good),
                BatchColumn.POSITION: item.position,
                BatchColumn.RECORDS_COUNT: item.count or item.last - item.base + 1,
            }
            for item in rows
        ]
    )
    add_batches(state, columns, [Damage(item.kind, item.position, 10) for item in log if item.kind])


def naive(log: list[Item], *, compacted: bool) -> tuple[list[Run], int]:
    """(runs, offsets missing by compaction), in a loop over the items."""
    runs: list[Run] = []
    missing = 0
    pending: tuple[int, int] | None = None
    for item in log:
        place = (item.segment, item.position)
        if item.kind or not item.good:
            if item.kind != "SEG_TORN_TAIL":
                pending = pending or place
            continue
        end = min(item.last + 1, INT64_MAX)
        counted = None if compacted else item.counted_end
        ends = (runs[-1].end_offset, runs[-1].counted_end) if runs else ()
        if item.base in ends or (compacted and runs and item.base > runs[-1].end_offset):
            missing += item.base - runs[-1].end_offset if compacted else 0
            run = runs[-1]
            runs[-1] = structs.replace(
                run,
                end_offset=end,
                batches=run.batches + 1,
                counted_end=counted,
                last=(*place, item.base),
                end_before_last=run.end_offset,
                second_start=item.base if run.batches == 1 else run.second_start,
                first_end=run.end_offset if run.batches == 1 else run.first_end,
            )
        else:
            runs.append(Run(item.base, end, *place, 1, pending, counted))
        pending = None
    return runs, missing


@given(items(), st.booleans(), st.data())
def test_any_cut_gives_what_a_plain_loop_gives(log: list[Item], compacted: bool, draw: st.DataObject) -> None:

    def feed(state: ContinuityFold, start: int, end: int) -> None:
        """Feed the items, with a new state for each segment."""
        for segment in sorted({item.segment for item in log[start:end]}):
            part = ContinuityFold(segment, compacted=compacted)
            step(part, [item for item in log[start:end] if item.segment == segment])
            state.merge(part)

    state = fold_in_parts(draw, lambda: ContinuityFold(0, compacted=compacted), feed, len(log))
    runs, missing = naive(log, compacted=compacted)
    assert state.runs == runs
    assert state.missing_by_compaction == missing
    firsts: dict[int, int] = {}
    for item in log:
        if item.good and not item.kind:
            firsts.setdefault(item.segment, item.base)
    assert state.first_in_segment == firsts


def bad(base: int, last: int) -> Item:
    return Item(0, base, last, good=False)


@pytest.mark.parametrize(
    ("log", "tail"),
    [
        ([Item(0, 0, 2), Item(0, 3, 4)], None),
        ([bad(0, 1), Item(0, 2, 3)], None),
        ([Item(0, 0, 2), bad(3, 4)], BadTail(3, 5)),
        ([Item(0, 0, 2), bad(3, 4), bad(5, 5)], BadTail(3, 6)),
        ([Item(0, 0, 2), bad(9, 9), Item(0, 3, 4), bad(5, 6)], BadTail(5, 7)),
        ([Item(0, 0, 2), bad(3, 4), bad(7, 7), bad(8, 8)], BadTail(3, 5, closed=True)),
        ([Item(0, 0, 2), bad(5, 3), bad(4, 4)], BadTail(-1, -1, closed=True)),
        ([Item(0, 0, 2), bad(-5, -3)], BadTail(-1, -1, closed=True)),
        ([Item(0, 0, 2), bad(3, INT64_MAX)], BadTail(-1, -1, closed=True)),
        ([bad(0, 1), bad(2, 2)], BadTail(0, 3)),
    ],
)
def test_bad_batches_after_the_last_good_one_keep_their_offsets_at_any_cut(log: list[Item], tail: BadTail | None) -> None:
    log = placed(log)
    for at in range(len(log) + 1):
        left, right = ContinuityFold(0), ContinuityFold(0)
        step(left, log[:at])
        step(right, log[at:])
        left.merge(right)
        assert left.bad_tail == tail, at


@given(st.integers(0, 40), st.data())
def test_the_first_and_last_of_too_many_runs_are_kept_at_any_cut(count: int, draw: st.DataObject) -> None:
    log = placed([Item(0, 0, 0)] * count)
    log = [replace(item, base=item.position, last=item.position) for item in log]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(continuity, "MAX_RUNS", 8)
        state = fold_in_parts(draw, lambda: ContinuityFold(0), lambda fold, a, b: step(fold, log[a:b]), count)
    runs, _ = naive(log, compacted=False)
    if count > 8:
        runs = [*runs[:4], structs.replace(runs[-4], after_damage=(0, runs[4].position)), *runs[-3:]]
    assert state.runs == runs
    assert state.dropped_runs == max(0, count - 8)


def course_of(*batches: tuple[int, int], damage: tuple[int, ...] = (), segment: int = 0) -> OffsetSequence:
    """The judged batches `[base, end)`, with damage before those whose number is in `damage`."""
    state = ContinuityFold(segment)
    rows = []
    for index, (base, end) in enumerate(batches):
        position = {BatchColumn.POSITION: 100 * index + 10}
        rows.append({BatchColumn.BASE_OFFSET: base, BatchColumn.LAST_OFFSET: end - 1, **position})
    add_batches(state, columns_of(rows), [Damage("FRAMING_LOST", 100 * index, 10) for index in damage])
    return judge(state.runs)


def kinds_and_offsets(offset_sequence: OffsetSequence) -> list[tuple[str, int, int]]:
    return [(anomaly.kind.removeprefix("OFFSET_"), anomaly.start, anomaly.end) for anomaly in offset_sequence.anomalies]


def log_of(*, without: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Ten batches of two offsets."""
    return [(2 * n, 2 * n + 2) for n in range(10) if n not in without]


def swapped(first: int, second: int, batches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    batches[first], batches[second] = batches[second], batches[first]
    return batches


AGAIN = (4, 6)
SEVERAL = [*swapped(4, 5, log_of(without=(1,))), (2**50, 2**50 + 2), (22, 24), (6, 8)]
OF_SEVERAL = [("DISCONTINUITY", 20, 22), ("GAP", 2, 4), ("NON_MONOTONIC", 10, 12), ("REGRESSION", 6, 8)]


@pytest.mark.parametrize(
    ("batches", "damage", "expected", "end", "lost"),
    [
        pytest.param(log_of(), (), [], 20, {}, id="joined"),
        pytest.param([(7, 9), (9, 12)], (), [], 12, {}, id="begins above its name"),
        pytest.param(log_of(without=(3, 4, 7)), (), [("GAP", 6, 10), ("GAP", 14, 16)], 20, {}, id="never seen"),
        *(
            pytest.param([*log_of()[:at], AGAIN, *log_of()[at:]], (), [("REGRESSION", 4, 6)], 20, {}, id=f"older again at {at}")
            for at in (4, 6, 10)
        ),
        pytest.param([*log_of(), (10, 12), (12, 14), (14, 20), (20, 24)], (), [("REGRESSION", 10, 24)], 24, {}, id="a stretch"),
        *(
            pytest.param(swapped(n, n + 1, log_of()), (), [("NON_MONOTONIC", 2 * n, 2 * n + 2)], 20, {}, id=f"{n} with the next")
            for n in (1, 3, 7)
        ),
        *(
            pytest.param([*log_of()[:9], (wrong, wrong + 2)], (), [("DISCONTINUITY", 18, 20)], 20, {}, id=f"the last at {wrong}")
            for wrong in (2**40, 2**31 + 18, -(2**62))
        ),
        pytest.param([*log_of()[:9], (1000, 1002)], (), [("GAP", 18, 1000)], 1002, {}, id="the last might be right"),
        pytest.param(log_of(without=(3, 4, 7)), (3,), [("GAP", 14, 16)], 20, {(0, 300): (6, 10)}, id="lost to damage"),
        pytest.param(log_of(without=(0, 1)), (0,), [], 20, {(0, 0): (0, 4)}, id="lost to damage at the start, by the name"),
        pytest.param(log_of(), (2, 5), [], 20, {}, id="damage between batches that join"),
        pytest.param(SEVERAL, (), OF_SEVERAL, 24, {}, id="several"),
    ],
)
def test_kinds_of_irregularities(
    batches: list[tuple[int, int]], damage: tuple[int, ...], expected: list[tuple[str, int, int]], end: int, lost: object
) -> None:
    offset_sequence = course_of(*batches, damage=damage)
    assert (sorted(kinds_and_offsets(offset_sequence)), offset_sequence.end_offset, offset_sequence.lost_to_damage) == (
        expected,
        end,
        lost,
    )
    for anomaly in offset_sequence.anomalies:
        assert anomaly.kind != "OFFSET_GAP" or anomaly.run.start_offset == anomaly.end


@pytest.mark.parametrize("number", [0, 1, 4, 8])
@pytest.mark.parametrize("wrong", [2**40, 1000, -(2**62), -1])
def test_a_flipped_base_offset_is_a_discontinuity_of_its_batch(number: int, wrong: int) -> None:
    batches = log_of()
    batches[number] = (wrong, wrong + 2)
    offset_sequence = course_of(*batches)
    assert kinds_and_offsets(offset_sequence) == [("DISCONTINUITY", 2 * number, 2 * number + 2)]
    assert offset_sequence.anomalies[0].run.start_offset == wrong
    assert offset_sequence.end_offset == 20


def test_a_flipped_offset_in_the_first_batch_of_a_later_segment() -> None:
    left, right = ContinuityFold(0), ContinuityFold(4)
    add_batches(left, columns_of([{BatchColumn.BASE_OFFSET: n} for n in range(4)]), [])
    add_batches(right, columns_of([{BatchColumn.BASE_OFFSET: n} for n in (2**33, 5, 6)]), [])
    left.merge(right)
    offset_sequence = judge(left.runs)
    assert kinds_and_offsets(offset_sequence) == [("DISCONTINUITY", 4, 5)]
    assert (offset_sequence.anomalies[0].run.segment, offset_sequence.end_offset) == (4, 7)


@pytest.mark.parametrize(("delta", "count"), [(7, 2), (0, 2), (2**31 - 1, 2)])
def test_a_wrong_last_offset_is_no_break_if_the_records_join(delta: int, count: int) -> None:
    """F10: the header's range has another finding."""
    rows = [{BatchColumn.BASE_OFFSET: 2 * n, BatchColumn.LAST_OFFSET: 2 * n + 1} for n in range(5)]
    rows[2] |= {BatchColumn.LAST_OFFSET: 4 + delta, BatchColumn.LAST_OFFSET_DELTA: delta, BatchColumn.RECORDS_COUNT: count}
    state = ContinuityFold(0)
    add_batches(state, columns_of(rows), [])
    assert (kinds_and_offsets(judge(state.runs)), judge(state.runs).end_offset) == ([], 10)


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), max_size=3))
def test_missing_offsets_are_exactly_the_gaps(order: list[int], lost: set[int]) -> None:
    """With batches in any order, the gaps are the offsets between the first and the end that no batch has."""
    batches = [(2 * n, 2 * n + 2) for n in order if n not in lost]
    offset_sequence = course_of(*batches, segment=10**6)
    if any(kind == "DISCONTINUITY" for kind, _, _ in kinds_and_offsets(offset_sequence)) or not batches:
        return
    present = {offset for base, end in batches for offset in range(base, end)}
    gaps = {offset for kind, start, end in kinds_and_offsets(offset_sequence) if kind == "GAP" for offset in range(start, end)}
    assert gaps == set(range(batches[0][0], max(present) + 1)) - present
    assert offset_sequence.end_offset == max(present) + 1


@given(items())
def test_any_log_can_be_judged(log: list[Item]) -> None:
    runs, _ = naive(log, compacted=False)
    offset_sequence = judge(runs)
    for anomaly in offset_sequence.anomalies:
        assert anomaly.run in runs
        assert anomaly.kind in ("OFFSET_GAP", "OFFSET_REGRESSION", "OFFSET_NON_MONOTONIC", "OFFSET_DISCONTINUITY")
    if len(runs) == 1:
        assert offset_sequence.end_offset == runs[0].end_offset
