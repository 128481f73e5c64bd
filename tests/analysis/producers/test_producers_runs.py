"""What the folds know of the log around a batch, and the table of producers: small parts, held to what they promise."""

import itertools
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.analysis.producers.rules import ProducerTable, find_producer
from kafka_forensics.analysis.producers.runs import Extremes, OffsetRuns, offset_behind
from kafka_forensics.model.batches import BatchColumn
from tests.support.producer_log import Log, matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

Place = tuple[int, int]


def keys(extremes: Extremes) -> list[Place]:
    return [(row[0], row[1]) for row in extremes.rows.tolist()]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**6)), unique=True, max_size=120), st.randoms())
def test_extremes_depend_on_the_set_of_rows_alone(rows: list[Place], random: Random) -> None:
    parts = [Extremes(2) for _ in range(4)]
    for row in rows:
        parts[random.randrange(4)].add(np.array([row]))
    parts[0].merge(parts[1])
    parts[2].merge(parts[3])
    parts[2].merge(parts[0])
    ordered = sorted(rows)
    assert keys(parts[2]) == (ordered if len(rows) <= 32 else ordered[:16] + ordered[-16:])
    assert (parts[2].count, parts[2].complete) == (len(rows), len(rows) <= 32)


def runs_of(lengths: list[tuple[int, int]]) -> tuple[OffsetRuns, list[tuple[int, int, Place]]]:
    """A log of runs (step from the end of the one before, batches of one offset); and each batch's (base, last, place)."""
    log = Log(offset=1000)
    for step, batches in lengths:
        log.offset = max(0, log.offset + step)
        for _ in range(batches):
            log.add()
    runs = OffsetRuns(0)
    if log.rows:
        runs.step(matrix(log.rows))
    values = [row.values for row in log.rows]
    return runs, [(v[BatchColumn.BASE_OFFSET], v[BatchColumn.LAST_OFFSET], (0, v[BatchColumn.POSITION])) for v in values]


LENGTHS = st.lists(st.tuples(st.integers(-6, 6), st.integers(1, 3)), max_size=50)


@given(LENGTHS, st.integers(0, 200), st.integers(0, 200))
def test_a_break_between_two_batches_is_never_denied(lengths: list[tuple[int, int]], first: int, second: int) -> None:
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
def test_only_offsets_that_are_there_are_covered(lengths: list[tuple[int, int]], start: int, size: int, before: int) -> None:
    runs, batches = runs_of(lengths)
    held = {base for base, _, _ in batches}
    wanted = set(range(start, start + size))
    answer = runs.covers(start, start + size)
    assert answer <= (wanted <= held)
    place = (0, 100 * before)
    answer_before = runs.covers(start, start + size, before=place)
    assert answer_before <= (wanted <= {base for base, _, where in batches if where < place})
    if runs.breaks.complete:
        assert answer == (wanted <= held)


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
def test_the_offset_behind_the_last_fits(last_offset: int) -> None:
    assert offset_behind(last_offset) == min(last_offset + 1, 2**63 - 1)


def test_damage_stands_where_it_was() -> None:
    log = Log().add().add()
    runs = OffsetRuns(0)
    runs.damage()
    runs.step(matrix(log.rows[:1]))
    runs.damage()
    runs.damage()
    runs.step(matrix(log.rows[1:]))
    assert (runs.broken, runs.breaks.rows.tolist()) == (1, [[0, 100, 1, 1]])
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
def test_the_table_numbers_producers_as_they_come(producer_ids: list[int]) -> None:
    table = ProducerTable(1)
    order = list(dict.fromkeys(producer_ids))
    assert entered(table, producer_ids) == [order.index(one) for one in producer_ids]
    assert table.taken()[:, 0].tolist() == order
    assert [table.find(one) for one in order] == list(range(len(order)))
    assert [table.find(one) for one in (2**62 + 12345, -1) if one not in order] in ([-1, -1], [-1])


@pytest.mark.parametrize("crafted", [range(0, 2**20 * 600, 2**20), range(0, 2**40 * 600, 2**40), range(600)])
def test_crafted_ids_do_not_pile_up_in_one_slot(crafted: range) -> None:
    table = ProducerTable(1)
    entered(table, list(crafted))
    taken: NDArray[np.bool_] = table.slots >= 0
    longest = max(len(list(group)) for full, group in itertools.groupby(taken.tolist()) if full)
    assert longest < 60
