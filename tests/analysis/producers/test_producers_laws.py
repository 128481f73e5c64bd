"""Laws of the producers fold on any log: any cut, a naive fold, and both forms of the kernels give the same."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.producers.producers import ProducersFold, ProducerState
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn
from tests.analysis.producer_log import CONTROL, TRANSACTIONAL, Log, Row, columns_of_rows, context
from tests.support.kernels import kernels
from tests.support.segments import add_batches
from tests.support.strategies import logs

C = BatchColumn
RING = 2**31
DAY = 86_400_000
TOP = 2**63 - 1
BREAKS_KEPT = 32


def facts(fold: ProducersFold) -> list[Any]:
    """Everything that a fold returns."""
    runs = fold.runs
    shape = [runs.start_offset, runs.first_place, runs.last_offset, runs.breaks_count, runs.breaks.count, runs.breaks.rows.tolist()]
    return [*shape, runs.broken_between((-1, -1)), fold.view(), fold.findings(context()), fold.findings(context(compacted=True))]


@given(logs(), st.sets(st.integers(1, 60), max_size=6))
def test_any_cut_gives_the_same_result(log: Log, cuts: set[int]) -> None:
    whole = facts(log.fold(ProducersFold))
    assert facts(log.fold(ProducersFold, cuts)) == whole
    assert facts(log.fold(ProducersFold, cuts, from_right=True)) == whole


def good_rows(rows: list[Row]) -> Iterator[tuple[Row, dict[C, int], int]]:
    """The good batches, with the number of breaks before each."""
    breaks, damaged, previous = 0, False, None
    for row in rows:
        values = {column: row.values.get(column, 0) for column in C}
        sound = values[C.CRC] == values[C.CRC_COMPUTED] and 0 <= values[C.BASE_OFFSET] <= values[C.LAST_OFFSET]
        if row.lost or not sound:
            damaged = True
            continue
        if previous is not None and (damaged or values[C.BASE_OFFSET] != previous[C.LAST_OFFSET] + 1):
            breaks += 1
        yield row, values, breaks
        damaged, previous = False, values


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two ranges (first, last) of sequence numbers share one."""
    return (b[0] - a[0]) % RING <= (a[1] - a[0]) % RING or (a[0] - b[0]) % RING <= (b[1] - b[0]) % RING


def verdict(before: list[dict[str, int]], batch: dict[str, int], *, seen: bool) -> str | None:
    """Kind of a batch after the last five of its producer."""
    previous = before[-1]
    peers = [earlier for earlier in before if earlier["epoch"] == batch["epoch"]]
    repeated = any((peer["first"], peer["last"]) == (batch["first"], batch["last"]) for peer in peers)
    continues = batch["epoch"] == previous["epoch"] and batch["first"] == (previous["last"] + 1) % RING
    timed = batch["time"] >= 0 and previous["time"] >= 0
    if (continues and not repeated) or (timed and batch["time"] - previous["time"] >= DAY):
        return None
    if repeated:
        return "DUPLICATE_BATCH"
    back = any(earlier["start"] >= batch["start"] for earlier in before)
    if not back and any(earlier["end"] >= batch["start"] for earlier in before):
        return None  # a header before it claims more offsets than it has
    clean = not any(overlap((peer["first"], peer["last"]), (batch["first"], batch["last"])) for peer in peers)
    resumes = clean and any(batch["first"] == (peer["last"] + 1) % RING for peer in peers)
    if back:
        is_older = any((peer["last"] - batch["last"]) % RING < RING // 2 for peer in peers)
        oldest = all(earlier["epoch"] > batch["epoch"] for earlier in before)
        return "DUPLICATE_BATCH" if not resumes and (is_older or oldest) and seen else None
    if batch["epoch"] < previous["epoch"]:
        return None if batch["transactional"] else "PRODUCER_EPOCH_REGRESSION"
    if batch["epoch"] > previous["epoch"] or resumes or batch["breaks"] != previous["breaks"]:
        return None
    return "PRODUCER_SEQ_GAP" if (batch["first"] - previous["last"] - 1) % RING < RING // 2 else "PRODUCER_SEQ_REGRESSION"


def plain_answer(rows: list[Row]) -> tuple[dict[str, list[tuple[int, int]]], dict[int, ProducerState]]:
    """Places of the anomalies by kind, and every producer's last batch."""
    history: dict[int, list[dict[str, int]]] = {}
    covered: list[tuple[int, int]] = []
    answer: dict[str, list[tuple[int, int]]] = {}
    for row, values, breaks in good_rows(rows):
        start, end, first, delta = (values[c] for c in (C.BASE_OFFSET, C.LAST_OFFSET, C.BASE_SEQUENCE, C.LAST_OFFSET_DELTA))
        producer = values[C.PRODUCER_ID]
        if producer >= 0 and not values[C.ATTRIBUTES] & CONTROL and 0 <= first < RING and 0 <= delta < RING:
            batch = {"epoch": values[C.PRODUCER_EPOCH], "first": first, "last": (first + delta) % RING, "start": start, "end": end}
            batch |= {"time": values[C.MAX_TIMESTAMP], "breaks": breaks, "transactional": values[C.ATTRIBUTES] & TRANSACTIONAL}
            before = history.setdefault(producer, [])
            back = any(earlier["start"] >= start for earlier in before[-5:])
            seen = back and before[0]["start"] <= start and is_covered(start, end, covered)
            kind = verdict(before[-5:], batch, seen=seen) if before else None
            if kind is not None:
                answer.setdefault(kind, []).append((row.segment, values[C.POSITION]))
            before.append(batch)
        covered.append((start, end))
    last = {producer: batches[-1] for producer, batches in history.items()}
    names = ("epoch", "first", "last", "start", "end", "time")
    return answer, {producer: ProducerState(*(earlier[name] for name in names)) for producer, earlier in last.items()}


def is_covered(start: int, end: int, ranges: list[tuple[int, int]]) -> bool:
    needed = start
    for first, last in sorted(ranges):
        if first > needed:
            break
        needed = max(needed, last + 1)
    return needed > min(end, TOP - 1)


def places(fold: ProducersFold) -> dict[str, list[tuple[int, int]]]:
    answer: dict[str, list[tuple[int, int]]] = {}
    for finding in fold.findings(context()):
        assert finding.place.file is not None
        assert finding.place.byte_start is not None
        answer.setdefault(finding.kind, []).append((int(finding.place.file[4:24]), finding.place.byte_start))
    return {kind: sorted(rows) for kind, rows in answer.items()}


@given(logs(), st.sets(st.integers(1, 60), max_size=2))
def test_the_result_equals_that_of_a_naive_fold(log: Log, cuts: set[int]) -> None:
    fold = log.fold(ProducersFold, cuts)
    expected, view = plain_answer(log.rows)
    assert fold.view() == view
    if fold.runs.breaks.count <= BREAKS_KEPT and all(len(rows) <= 32 for rows in expected.values()):
        assert places(fold) == expected


@given(logs(), st.sets(st.integers(1, 60), max_size=3))
def test_compiled_kernels_agree(log: Log, cuts: set[int]) -> None:
    plain = facts(log.fold(ProducersFold, cuts))
    with kernels(compiled=True):
        assert facts(log.fold(ProducersFold, cuts)) == plain


def long_log(producers: int) -> Log:
    """Thousands of batches, with a gap, batches sent twice, wraps of the sequence numbers and a new epoch between long runs."""
    log = Log()
    sequence = 0

    def go_on(batches: int, count: int = 10) -> None:
        nonlocal sequence
        for _ in range(batches):
            for producer in range(producers):
                log.data(producer, 0, sequence, count)
            sequence = (sequence + count) % RING

    go_on(2)
    sequence += 7
    go_on(1200 // producers)
    sequence -= 50
    go_on(1200 // producers)
    go_on(12, RING)
    go_on(7, 2**28)
    log.data(0, 0, log.rows[-1].values[C.BASE_SEQUENCE], 10).data(0, 1, 0, 10)
    go_on(1200 // producers)
    return log


@pytest.mark.parametrize("form", ["interpreted", "compiled"])
@pytest.mark.parametrize("producers", [1, 3, 150])
def test_long_runs_are_judged_like_short_ones(form: str, producers: int) -> None:
    log = long_log(producers)
    fold = ProducersFold(0)
    with kernels(compiled=form == "compiled"):
        add_batches(fold, columns_of_rows(log.rows))
    expected, view = plain_answer(log.rows)
    assert fold.view() == view
    assert len(fold) == producers
    found = places(fold)
    for kind, rows in expected.items():
        assert found[kind] == (rows if len(rows) <= 32 else rows[:16] + rows[-16:])
    assert set(found) == set(expected) > {"DUPLICATE_BATCH"}


def test_no_batches_at_all() -> None:
    fold = ProducersFold(0)
    add_batches(fold, np.zeros((BATCH_COLUMNS, 0), np.int64))
    fold.merge(ProducersFold(5))
    assert (fold.view(), fold.findings(context()), fold.runs.start_offset) == ({}, [], -1)
