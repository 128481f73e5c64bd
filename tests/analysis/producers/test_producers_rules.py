"""Each sequence rule on a small log: defects that give findings, and legal logs."""

import itertools
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.producers.producers import BUMPS_KEPT, EpochBump, EpochBumps, ProducersFold, ProducerState
from kafka_forensics.analysis.producers.rules import ProducerTable, find_producer
from kafka_forensics.analysis.producers.runs import FirstAndLastRows, OffsetRuns, offset_after
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.model.findings import Confidence, Finding, Severity
from tests.analysis.producer_log import COMMIT, TRANSACTIONAL, Log, columns_of_rows, context
from tests.support.segments import add_batches, columns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


LAST = 2**31 - 1
DAY = 86_400_000
GAP, REGRESSION, DUPLICATE, EPOCH = "PRODUCER_SEQ_GAP", "PRODUCER_SEQ_REGRESSION", "DUPLICATE_BATCH", "PRODUCER_EPOCH_REGRESSION"


def run(batches: int, producer: int = 7, epoch: int = 0) -> Log:
    """Consecutive batches of ten records from sequence 0."""
    log = Log()
    for number in range(batches):
        log.data(producer, epoch, 10 * number, 10)
    return log


def findings_of(log: Log, topic: str = "t", **options: object) -> list[Finding]:
    return log.fold(ProducersFold).findings(context(topic, **options))


def kinds(log: Log, topic: str = "t", **options: object) -> list[str]:
    return [finding.kind for finding in findings_of(log, topic, **options)]


def with_copy(log: Log, row: int) -> Log:
    """Append a copy of a batch, bytes and offsets unchanged."""
    values = {column.name.lower(): value for column, value in log.rows[row].values.items()}
    values["position"] = log.position
    count = values["records_count"]
    offset = log.offset
    log.add(count, **values)
    log.offset = offset
    return log


def unbroken(log: Log, sequence: int, batches: int) -> Log:
    """Append consecutive batches of nine records from a sequence."""
    for number in range(batches):
        log.data(7, 0, sequence + 9 * number, 9)
    return log


LEGAL = {
    "a run": run(30),
    "the sequence wraps after 2^31-1": Log().data(7, 0, LAST - 9, 10).data(7, 0, 0, 10).data(7, 0, 10, 10),
    "a batch wraps inside": Log().data(7, 0, LAST - 4, 10).data(7, 0, 5, 10).data(7, 0, 15),
    "a higher epoch after lost state": run(3).data(7, 1, 77, 10).data(7, 1, 87, 10),
    "a gap after a day of silence": run(3).data(7, 0, 900, 10, max_timestamp=1_700_000_003_000 + DAY),
    "offsets are missing too": run(3).data(7, 0, 50, 10, base_offset=50),
    "offsets are missing between, by another producer": run(3).data(8, 0, 0, 10, base_offset=50).data(7, 0, 50, 10),
    "bytes were lost between": run(3).lost().data(7, 0, 50, 10),
    "a corrupt batch between, without an offset gap": run(3).corrupt(0).data(7, 0, 50, 10),
    "a lower sequence after lost bytes": run(8).lost().data(7, 0, 5, 10),
    "a producer without sequence": Log().data(7, 0, -1, 3).data(7, 0, -1, 3),
    "an older transactional epoch (a finding of the transaction)": Log()
    .data(7, 5, 0, 10, attributes=TRANSACTIONAL)
    .data(7, 4, 10, 10, attributes=TRANSACTIONAL),
    "two batches swapped": run(9)
    .data(7, 0, 100, 10, base_offset=100)
    .data(7, 0, 90, 10, base_offset=90)
    .data(7, 0, 110, 10, base_offset=110),
    "a batch without timestamp": run(3).data(7, 0, 30, 10, max_timestamp=-1).data(7, 0, 40),
    "an older epoch where offsets overlap": run(3, epoch=4).data(7, 2, 0, 10, base_offset=29),
    "after a header that claims offsets far beyond its records": run(3)
    .data(7, 0, 30, 1000, base_offset=30)
    .data(7, 0, 40, 10, base_offset=40)
    .data(7, 0, 50, 10, base_offset=50),
    "a negative delta": run(3).data(7, 0, 30, 10, last_offset_delta=-5).data(7, 0, 30, 10),
}

ILLEGAL = {
    "a gap": (run(3).data(7, 0, 50, 10), [GAP]),
    "a gap over the wrap": (Log().data(7, 0, LAST - 9, 10).data(7, 0, 3, 10), [GAP]),
    "a gap almost a day later": (run(3).data(7, 0, 50, 10, max_timestamp=1_700_000_003_000 + DAY - 1), [GAP]),
    "a gap though timestamps are missing": (run(3).data(7, 0, 50, 10, max_timestamp=-1), [GAP]),
    "a gap with another's damage long before": (Log().data(8, 0, 0).lost().data(7, 0, 0, 10).data(7, 0, 50, 10), [GAP]),
    "a gap long after lost bytes": (unbroken(run(3).lost().data(7, 0, 40, 10), 50, 6).data(7, 0, 200, 10), [GAP]),
    "a gap across segments": (run(3).roll().data(7, 0, 50, 10), [GAP]),
    "a restart": (run(9).data(7, 0, 0, 10).data(7, 0, 10, 10), [REGRESSION]),
    "an overlap": (run(9).data(7, 0, 85, 10).data(7, 0, 95, 10), [REGRESSION]),
    "a lower epoch": (run(3, epoch=4).data(7, 2, 0, 10), [EPOCH]),
    "a zombie, twice": (run(3, epoch=4).data(7, 2, 0, 10).data(7, 4, 30, 10).data(7, 2, 10, 10), [EPOCH, EPOCH]),
    "a batch twice, five back": (run(9).data(7, 0, 40, 10).data(7, 0, 90, 10), [DUPLICATE]),
    "all five in flight sent twice": (
        run(9).data(7, 0, 40, 10).data(7, 0, 50, 10).data(7, 0, 60, 10).data(7, 0, 70, 10).data(7, 0, 80, 10).data(7, 0, 90, 10),
        [DUPLICATE] * 5,
    ),
    "a batch four times": (
        run(8).data(7, 0, 70, 10).data(7, 0, 70, 10).data(7, 0, 80, 10).data(7, 0, 70, 10).data(7, 0, 90, 10),
        [DUPLICATE] * 3,
    ),
    "a copy of the last batch": (with_copy(run(9), 8).data(7, 0, 90, 10), [DUPLICATE]),
    "a copy of the first of many batches": (with_copy(run(40), 0).data(7, 0, 400, 10), [DUPLICATE]),
    "a copy of an old batch of an older epoch": (with_copy(run(40).data(7, 1, 0, 10), 2).data(7, 1, 10, 10), [DUPLICATE]),
    "a copy in a later segment": (with_copy(run(40).roll(), 5).data(7, 0, 400, 10), [DUPLICATE]),
}


@pytest.mark.parametrize("before", range(1, 14))
def test_an_overlapping_batch_is_found_among_many_that_continue(before: int) -> None:
    log = run(before)
    for number in range(14):
        log.data(7, 0, 10 * before - 1 + 10 * number, 10)
    assert [finding.kind for finding in log.fold(ProducersFold, chunk=100).findings(context())] == [REGRESSION]


@pytest.mark.parametrize("case", LEGAL)
def test_legal_logs_have_no_finding(case: str) -> None:
    assert findings_of(LEGAL[case]) == []


@pytest.mark.parametrize("case", ILLEGAL)
def test_defects_have_findings(case: str) -> None:
    log, expected = ILLEGAL[case]
    assert kinds(log) == expected


@pytest.mark.parametrize("case", [*LEGAL, *ILLEGAL])
def test_chunks_and_cuts_change_nothing(case: str) -> None:
    """In one chunk, batch by batch, and in two and three parts."""
    log = LEGAL[case] if case in LEGAL else ILLEGAL[case][0]
    whole = findings_of(log)
    length = len(log.rows)
    for chunk in (1, 1000):
        assert log.fold(ProducersFold, chunk=chunk).findings(context()) == whole
    for first in range(1, length):
        for cuts in ((first,), (first, length - 1), (first, length - 2)):
            assert log.fold(ProducersFold, cuts).findings(context()) == whole


@pytest.mark.parametrize("case", ILLEGAL)
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_coordinators_topics_are_not_judged(case: str, topic: str) -> None:
    assert kinds(ILLEGAL[case][0], topic) == []


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (run(3).data(7, 0, 50, 10), []),
        (run(9).data(7, 0, 0, 10), []),
        (run(3).data(7, 0, 20, 10), [DUPLICATE]),
        (run(3, epoch=4).data(7, 2, 0, 10), [EPOCH]),
    ],
)
def test_cleaning_a_log_leaves_gaps_but_no_duplicates(log: Log, expected: list[str]) -> None:
    assert kinds(log, compacted=True) == expected


def test_a_duplicate_names_the_first_copy() -> None:
    (finding,) = findings_of(run(4).data(7, 0, 20, 10))
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.PROVEN)
    assert (finding.place.offset_start, finding.place.offset_end, finding.evidence["first_offset"]) == (40, 50, 20)
    (old,) = findings_of(with_copy(run(40), 2))
    assert (old.confidence, old.evidence["first_offset"], old.place.byte_start) == (Confidence.INFERRED, 20, 4000)


def test_later_batches_do_not_make_a_batch_a_duplicate() -> None:
    """A batch out of order fills missing offsets; a copy of a later batch follows."""
    log = run(5)
    for number in range(6, 14):
        log.data(7, 0, 10 * number, 10, base_offset=10 * number)
    log.data(7, 0, 50, 10, base_offset=50)
    for number in range(14, 24):
        log.data(7, 0, 10 * number, 10, base_offset=10 * number)
    (finding,) = findings_of(with_copy(log, 13))
    assert (finding.kind, finding.place.byte_start) == (DUPLICATE, 2400)


@pytest.mark.parametrize(("first_offset", "expected"), [(20, [DUPLICATE]), (30, []), (60, [])])
def test_offsets_written_before_a_producer_make_no_duplicate(first_offset: int, expected: list[str]) -> None:
    """A batch at [20, 30), offsets that the log already has: a duplicate only if its producer wrote them."""
    log = Log()
    while log.offset < first_offset:
        log.add(10)
    sequence = 400
    while log.offset < 90:
        log.data(7, 0, sequence, 10)
        sequence += 10
    log.data(7, 0, 100, 10, base_offset=20)
    assert kinds(log) == expected
    assert [finding.kind for finding in log.fold(ProducersFold, (4, 7)).findings(context())] == expected


def test_the_first_and_last_of_many_anomalies_are_reported_and_all_counted() -> None:
    log = Log()
    for number in range(500):
        log.data(7, 0, 20 * number, 10)
    findings = findings_of(log)
    assert len(findings) == 32
    assert {finding.evidence["occurrences"] for finding in findings} == {499}
    assert [finding.place.offset_start for finding in findings] == [10 * n for n in [*range(1, 17), *range(484, 500)]]


@pytest.mark.parametrize("batches", [1, 2, 5, 6, 13])
def test_the_view_is_of_the_last_data_batch(batches: int) -> None:
    fold = run(batches).marker(7, 1, COMMIT).fold(ProducersFold)
    last = 10 * batches - 1
    state = ProducerState(0, last - 9, last, last - 9, last, 1_700_000_000_000 + 1000 * batches)
    assert fold.view() == {7: state}
    assert fold.view([7, 8, -1]) == {7: state}
    assert len(fold) == 1


BUMP = {BatchColumn.PRODUCER_ID: 7, BatchColumn.PRODUCER_EPOCH: 1, BatchColumn.BASE_SEQUENCE: 0}


def bumps(*rows: dict[BatchColumn, int]) -> list[EpochBump]:
    fold = EpochBumps()
    fold.step(columns_of(list(rows)))
    return fold.kept


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, True),
        ({BatchColumn.PRODUCER_EPOCH: 0}, False),
        ({BatchColumn.BASE_SEQUENCE: 3}, False),
        ({BatchColumn.ATTRIBUTES: TRANSACTIONAL_MASK}, False),
        ({BatchColumn.ATTRIBUTES: CONTROL_MASK}, False),
        ({BatchColumn.CRC_COMPUTED: 1}, False),
    ],
)
def test_sequence_0_of_a_raised_epoch_is_kept(changed: dict[BatchColumn, int], *, kept: bool) -> None:
    bump = BUMP | {BatchColumn.BASE_OFFSET: 4, BatchColumn.LAST_OFFSET: 6} | changed
    assert bumps({}, bump) == ([EpochBump(7, 1, 4, 6)] if kept else [])


@pytest.mark.parametrize("cut", [0, 1, BUMPS_KEPT - 1, BUMPS_KEPT, BUMPS_KEPT + 5])
def test_any_cut_gives_the_first_bumps(cut: int) -> None:
    columns = columns_of([BUMP | {BatchColumn.BASE_OFFSET: offset} for offset in range(BUMPS_KEPT + 5)])
    whole, left, right = EpochBumps(), EpochBumps(), EpochBumps()
    whole.step(columns)
    left.step(np.ascontiguousarray(columns[:, :cut]))
    right.step(np.ascontiguousarray(columns[:, cut:]))
    left.merge(right)
    assert left.kept == whole.kept
    assert [bump.base_offset for bump in whole.kept] == list(range(BUMPS_KEPT))


Place = tuple[int, int]


def keys(kept: FirstAndLastRows) -> list[Place]:
    return [(row[0], row[1]) for row in kept.rows.tolist()]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**6)), unique=True, max_size=120), st.randoms())
def test_kept_rows_depend_only_on_the_set_of_rows(rows: list[Place], random: Random) -> None:
    parts = [FirstAndLastRows(2) for _ in range(4)]
    for row in rows:
        parts[random.randrange(4)].add(np.array([row]))
    parts[0].merge(parts[1])
    parts[2].merge(parts[3])
    parts[2].merge(parts[0])
    ordered = sorted(rows)
    assert keys(parts[2]) == (ordered if len(rows) <= 32 else ordered[:16] + ordered[-16:])
    assert (parts[2].count, parts[2].complete) == (len(rows), len(rows) <= 32)


def runs_of(lengths: list[tuple[int, int]]) -> tuple[OffsetRuns, list[tuple[int, int, Place]]]:
    """A log of runs (offsets skipped since the last run, batches of one offset), and each batch's (base, last, place)."""
    log = Log(offset=1000)
    for step, batches in lengths:
        log.offset = max(0, log.offset + step)
        for _ in range(batches):
            log.add()
    runs = OffsetRuns(0)
    if log.rows:
        add_batches(runs, columns_of_rows(log.rows))
    values = [row.values for row in log.rows]
    return runs, [(v[BatchColumn.BASE_OFFSET], v[BatchColumn.LAST_OFFSET], (0, v[BatchColumn.POSITION])) for v in values]


LENGTHS = st.lists(st.tuples(st.integers(-6, 6), st.integers(1, 3)), max_size=50)


@given(LENGTHS, st.integers(0, 200), st.integers(0, 200))
def test_every_break_between_two_batches_is_reported(lengths: list[tuple[int, int]], first: int, second: int) -> None:
    runs, batches = runs_of(lengths)
    if not batches:
        return
    low, high = sorted((first % len(batches), second % len(batches)))
    part = batches[low : high + 1]
    broken = any(after[0] != before[1] + 1 for before, after in itertools.pairwise(part))
    answer = runs.broken_between(part[0][2], part[-1][2])
    assert answer >= broken
    if runs.breaks.complete:
        assert answer == broken
        assert runs.broken_between(part[0][2]) == any(b[0] != a[1] + 1 for a, b in itertools.pairwise(batches[low:]))


@given(LENGTHS, st.integers(960, 1060), st.integers(1, 5), st.integers(0, 200))
def test_only_existing_offsets_are_covered(lengths: list[tuple[int, int]], start: int, size: int, before: int) -> None:
    runs, batches = runs_of(lengths)
    offsets = {base for base, _, _ in batches}
    wanted = set(range(start, start + size))
    answer = runs.covers(start, start + size)
    assert answer <= (wanted <= offsets)
    place = (0, 100 * before)
    answer_before = runs.covers(start, start + size, before=place)
    assert answer_before <= (wanted <= {base for base, _, where in batches if where < place})
    if runs.breaks.complete:
        assert answer == (wanted <= offsets)


def test_many_breaks_hide_the_middle_but_not_the_ends() -> None:
    runs, batches = runs_of([(0, 5)] + [(10, 5)] * 50)
    assert (runs.breaks.count, len(runs.known_runs())) == (50, 32)
    assert runs.covers(1000, 1005)
    assert not runs.covers(1000, 1006)
    assert runs.covers(batches[-1][0] - 4, batches[-1][0] + 1)
    assert not runs.covers(batches[127][0], batches[127][0] + 1)
    assert runs.broken_between(batches[125][2], batches[129][2])
    assert not runs.broken_between(batches[250][2], batches[254][2])
    assert not runs.broken_between(batches[0][2], batches[4][2])


@pytest.mark.parametrize("last_offset", [5, 2**63 - 2, 2**63 - 1])
def test_the_offset_after_the_last_fits(last_offset: int) -> None:
    assert offset_after(last_offset) == min(last_offset + 1, 2**63 - 1)


def test_damage_is_a_break_at_its_place() -> None:
    log = Log().add().add()
    runs = OffsetRuns(0)
    runs.damage()
    add_batches(runs, columns_of_rows(log.rows[:1]))
    runs.damage()
    runs.damage()
    add_batches(runs, columns_of_rows(log.rows[1:]))
    assert (runs.breaks_count, runs.breaks.rows.tolist()) == (1, [[0, 100, 1, 1]])
    assert not runs.broken_between((0, 100))
    runs.damage()
    assert runs.broken_between((0, 100))
    assert not runs.broken_between((0, 100), (0, 100))


def entered(table: ProducerTable, producer_ids: list[int]) -> list[int]:
    rows = []
    for producer_id in producer_ids:
        if table.full:
            table.grow()
        rows.append(find_producer.interpreted(producer_id, table.rows, table.slots, table.keys, table.used))
    return rows


@given(st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2**63 - 1)), max_size=200))
def test_the_table_numbers_producers_in_order_of_appearance(producer_ids: list[int]) -> None:
    table = ProducerTable(1)
    order = list(dict.fromkeys(producer_ids))
    assert entered(table, producer_ids) == [order.index(producer_id) for producer_id in producer_ids]
    assert table.used_rows()[:, 0].tolist() == order
    assert [table.find(producer_id) for producer_id in order] == list(range(len(order)))
    assert [table.find(producer_id) for producer_id in (2**62 + 12345, -1) if producer_id not in order] in ([-1, -1], [-1])


@pytest.mark.parametrize("crafted", [range(0, 2**20 * 600, 2**20), range(0, 2**40 * 600, 2**40), range(600)])
def test_crafted_ids_do_not_share_slots(crafted: range) -> None:
    table = ProducerTable(1)
    entered(table, list(crafted))
    taken: NDArray[np.bool_] = table.slots >= 0
    longest = max(len(list(group)) for full, group in itertools.groupby(taken.tolist()) if full)
    assert longest < 60
