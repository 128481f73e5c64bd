"""Folds that remember few producers report no finding that a fold with all producers does not; open transactions stay right."""

import itertools
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis import bounds
from kafka_forensics.analysis.producers.producers import ProducersFold
from kafka_forensics.analysis.producers.runs import OffsetRuns
from kafka_forensics.analysis.transactions.endings import endings_of
from kafka_forensics.analysis.transactions.index_check import IndexCheck
from kafka_forensics.analysis.transactions.transactions import TransactionsFold
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.files import AbortedTxn, TransactionIndex
from kafka_forensics.model.findings import Finding
from tests.analysis.producer_log import ABORT, COMMIT, Log, context, fold_rows
from tests.support.strategies import logs

FoldKind = TypeVar("FoldKind", ProducersFold, TransactionsFold)
LOG_END = 2**63 - 1
LIMITS = (None, 0, 20, 45, 70)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit folds to two producers, and to no aborted transactions that the index lists."""
    for name, value in (("MAX_PRODUCERS", 2), ("SETTLED_ABOVE", 0), ("MAX_ENDINGS", 0), ("MAX_UNLISTED", 1)):
        monkeypatch.setattr(bounds, name, value)


def parts_of(kind: type[FoldKind], log: Log, cuts: Iterable[int]) -> list[FoldKind]:
    edges = sorted({0, len(log.rows), *(cut for cut in cuts if cut < len(log.rows))})
    return [fold_rows(kind, log.rows[start:end], 3) for start, end in itertools.pairwise(edges)] or [kind(0)]


def bounded(kind: type[FoldKind], log: Log, cuts: Iterable[int]) -> FoldKind:
    """The fold of a log as in the engine: each part is merged into the state that begins with the log."""
    whole, *later_parts = parts_of(kind, log, cuts)
    for right in later_parts:
        whole.make_room(right)  # type: ignore[arg-type]
        whole.merge(right)  # type: ignore[arg-type]
    return whole


def places(findings: list[Finding]) -> set[tuple[str, str | None, int | None]]:
    return {(finding.kind, finding.place.file, finding.place.byte_start) for finding in findings}


CUTS = st.sets(st.integers(1, 30), min_size=2, max_size=12)


@pytest.mark.usefixtures("few")
@given(logs(most=30), CUTS)
def test_a_fold_that_forgets_producers_reports_nothing_else(log: Log, cuts: set[int]) -> None:
    fold = bounded(ProducersFold, log, cuts)
    whole = log.fold(ProducersFold)
    assert places(fold.findings(context())) <= places(whole.findings(context()))
    view = whole.view()
    assert all(view[producer] == state for producer, state in fold.view().items())
    if not fold.forgot:
        assert (fold.view(), fold.findings(context())) == (view, whole.findings(context()))


@pytest.mark.usefixtures("few")
@given(logs(most=30), CUTS)
def test_a_fold_that_forgets_producers_counts_transactions_right(log: Log, cuts: set[int]) -> None:
    fold = bounded(TransactionsFold, log, cuts)
    whole = log.fold(TransactionsFold)

    def results(transactions_fold: TransactionsFold) -> list[Any]:
        stable = [transactions_fold.last_stable_offset(limit, LOG_END) for limit in LIMITS]
        return [
            transactions_fold.counts(),
            transactions_fold.open_transactions(),
            endings_of(transactions_fold.non_commit_ending_rows()),
            transactions_fold.ended().tolist(),
            stable,
        ]

    assert results(fold) == results(whole)
    runs = OffsetRuns(0)
    assert places(fold.findings(context(), runs, LOG_END)) <= places(whole.findings(context(), runs, LOG_END))
    assert all(whole.view()[producer] == state for producer, state in fold.view().items())
    fold.close()
    assert results(fold) == results(whole)
    assert all(map(fold.knows, whole.view()))
    assert fold.forgot or not fold.knows(77)


def test_producers_of_transactions_stay_known_when_their_ends_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = Log().transactional(5, 0).marker(5, 0, ABORT).transactional(9, 0).data(7, 0, 0).fold(TransactionsFold)
    for above in (100, 0):
        monkeypatch.setattr(bounds, "SETTLED_ABOVE", above)
        fold.close()
        assert [producer_id for producer_id in range(12) if fold.knows(producer_id)] == [5, 9]


@pytest.mark.usefixtures("few")
def test_the_producer_silent_longest_is_forgotten_and_added_again() -> None:
    log = Log()
    for producer in (1, 2, 3, 4):
        for number in range(6):
            log.data(producer, 0, 10 * number, 10)
    log.data(1, 0, 900, 10).data(4, 0, 900, 10)
    fold = bounded(ProducersFold, log, (6, 12, 18, 24))
    assert [finding.evidence["producer_id"] for finding in fold.findings(context())] == [4]
    assert [finding.evidence["producer_id"] for finding in log.fold(ProducersFold).findings(context())] == [1, 4]
    assert set(fold.view()) == {1, 4}


@pytest.mark.usefixtures("few")
def test_a_duplicate_batch_is_reported_after_its_producer_was_forgotten() -> None:
    log = Log()
    for producer in (1, 2, 3, 1, 1):
        log.data(producer, 0, 0, 10)
    fold = bounded(ProducersFold, log, (1, 2, 3))
    assert [(finding.kind, finding.evidence["first_offset"]) for finding in fold.findings(context())] == [("DUPLICATE_BATCH", 30)]
    fold.close()
    assert len(fold.findings(context())) == 1


def test_closing_a_fold_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    for number in range(160):
        log.data(number % 20, 0, 10 * (number // 20), 9 if number % 70 == 33 else 10)
    log.data(3, 0, 0, 10, base_offset=log.rows[3].values[BatchColumn.BASE_OFFSET])
    fold = log.fold(ProducersFold)
    expected = fold.findings(context())
    assert {finding.kind for finding in expected} == {"PRODUCER_SEQ_GAP", "DUPLICATE_BATCH"}
    monkeypatch.setattr(bounds, "SETTLED_ABOVE", 0)
    fold.close()
    assert fold.findings(context()) == expected
    assert (len(fold), len(fold.view())) == (20, 1)


def test_the_oldest_of_too_many_open_transactions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_PRODUCERS", 4)
    monkeypatch.setattr(bounds, "MAX_OPEN", 3)
    log = Log()
    for number in range(20):
        log.transactional(number, 0)
    log.marker(0, 0, COMMIT)
    fold = bounded(TransactionsFold, log, range(1, 21))
    assert [transaction.first_offset for transaction in fold.open_transactions()][:2] == [1, 2]
    assert fold.last_stable_offset(None, 21) == 1
    assert fold.counts().committed == 1
    assert (fold.counts().open or 0) <= 4


def aborting_log(segments: int, per_segment: int) -> tuple[Log, dict[int, list[AbortedTxn]]]:
    """Transactions of three producers, two of three aborted, and the entries of the indexes."""
    log = Log()
    indexes: dict[int, list[AbortedTxn]] = {}
    for _ in range(segments):
        entries = indexes[log.segment] = []
        for number in range(per_segment):
            first = log.offset
            log.transactional(number % 3, 0, 0, 2).marker(number % 3, 0, COMMIT if number % 3 == 1 else ABORT)
            if number % 3 != 1:
                entries.append(AbortedTxn(number % 3, first, log.offset - 1, log.offset, position=34 * len(entries)))
        log.roll()
    return log, indexes


def compared(log: Log, entries: dict[int, list[AbortedTxn]], cuts: Iterable[int]) -> list[Finding]:
    """The log against indexes, as the engine compares them while it merges."""
    indexes = {segment: TransactionIndex(rows) for segment, rows in entries.items()}
    segments = sorted({row.segment for row in log.rows})
    check = IndexCheck(context(segment_base_offsets=segments), set(segments), indexes.get)
    whole, *later_parts = parts_of(TransactionsFold, log, cuts)
    runs, *later_producers = parts_of(ProducersFold, log, cuts)
    for right, producers in zip(later_parts, later_producers, strict=True):
        whole.merge(right)
        runs.merge(producers)
        check.drop_listed(whole, runs.runs)
    return check.findings(whole, sorted(indexes), 0, runs.runs)


@pytest.mark.parametrize("fault", ["none", "missing", "missing file", "phantom", "first offset", "elsewhere", "twice"])
@pytest.mark.parametrize("cuts", [(), (5,), (4, 11, 12, 20, 29), range(1, 36)])
def test_dropped_endings_do_not_change_the_comparison_with_an_index(
    fault: str, cuts: Iterable[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, indexes = aborting_log(3, 6)
    segment = sorted(indexes)[1]
    entries = indexes[segment]
    if fault == "missing":
        del entries[2]
    elif fault == "missing file":
        del indexes[segment]
    elif fault == "phantom":
        entries.insert(1, AbortedTxn(77, entries[0].first_offset, entries[0].last_offset + 1, 0, position=340))
    elif fault == "first offset":
        entries[1] = AbortedTxn(entries[1].producer_id, entries[1].first_offset + 1, entries[1].last_offset, 0, position=34)
    elif fault == "elsewhere":
        indexes[0].append(entries.pop())
    elif fault == "twice":
        entries.append(entries[-1])
    expected = compared(log, indexes, cuts)
    assert bool(expected) == (fault in {"missing", "missing file", "phantom", "first offset"})
    monkeypatch.setattr(bounds, "MAX_ENDINGS", 0)
    assert compared(log, indexes, cuts) == expected
    monkeypatch.setattr(bounds, "MAX_UNLISTED", 1)
    assert compared(log, indexes, cuts) == expected


@pytest.mark.usefixtures("few")
@given(logs(most=30), CUTS, st.integers(0, 5))
def test_dropping_endings_adds_no_findings(log: Log, cuts: set[int], wrong: int) -> None:
    entries: dict[int, list[AbortedTxn]] = {row.segment: [] for row in log.rows}
    for number, ending in enumerate(endings_of(log.fold(TransactionsFold).non_commit_ending_rows())):
        if ending.is_abort and ending.first_offset >= 0 and number != wrong:
            rows = entries[ending.ends[0]]
            rows.append(AbortedTxn(ending.producer_id, ending.first_offset, ending.last_offset, 0, position=34 * len(rows)))
    found = places(compared(log, entries, cuts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "MAX_ENDINGS", 10**6)
        patch.setattr(bounds, "MAX_UNLISTED", 10**6)
        assert found <= places(compared(log, entries, cuts))
