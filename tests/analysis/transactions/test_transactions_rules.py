"""Rules of transactions: their start and end, late writes, and the last stable offset."""

from time import process_time

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from kafka_forensics.analysis.producers.producers import ProducersFold
from kafka_forensics.analysis.transactions import Pairing, TransactionColumn, markers, pairing, rules
from kafka_forensics.analysis.transactions.endings import ENDING_WIDTH, FIRST_OFFSET, IS_ABORT, LAST_OFFSET, PRODUCER_ID, paired
from kafka_forensics.analysis.transactions.markers import LastRows, lower_coordinator_epochs
from kafka_forensics.analysis.transactions.transactions import TransactionsFold, TransactionState
from kafka_forensics.analysis.transactions_across.decisions import CommitDecisions
from kafka_forensics.analysis.transactions_across.facts import PartitionFacts
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK, DELETE_HORIZON_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK
from kafka_forensics.model.coordinators import Decision
from kafka_forensics.model.findings import Confidence, Finding
from kafka_forensics.model.results import TransactionCounts
from tests.analysis.producer_log import ABORT, COMMIT, CONTROL, Log, context

START = 1_700_000_000_000


def findings_of(log: Log, **options: object) -> list[Finding]:
    return log.fold(TransactionsFold).findings(context(**options), log.fold(ProducersFold).runs, log.offset)  # type: ignore[arg-type]


def kinds(log: Log) -> list[str]:
    return [finding.kind for finding in findings_of(log)]


def transactions_of_one_epoch(transactions: int) -> Log:
    """Transactions of one producer before KIP-890: one epoch, continuing sequences; every other one is aborted."""
    log = Log()
    for number in range(transactions):
        log.transactional(7, 0, 10 * number, 10).marker(7, 0, number % 2)
    return log


def transactions_with_bumped_epochs(transactions: int) -> Log:
    """Transactions since KIP-890: every marker bumps the epoch, and sequences start at 0 again."""
    log = Log()
    for number in range(transactions):
        log.transactional(7, number, 0, 10).marker(7, number + 1, number % 2)
    return log


COUNTED = {
    "one epoch for all": (transactions_of_one_epoch(7), (3, 4, 0)),
    "a marker without its data": (Log(offset=90).marker(7, 0, COMMIT).transactional(7, 0, 50).marker(7, 0, ABORT), (0, 1, 0)),
    "a fence ends it with a higher epoch": (Log().transactional(7, 3).marker(7, 4, ABORT).transactional(7, 5), (0, 1, 1)),
    "a marker of an older epoch ends it too": (Log().transactional(7, 3).marker(7, 2, ABORT), (0, 1, 0)),
    "a marker of an unknown type": (Log().transactional(7, 0).marker(7, 0, 9).marker(7, 0, 2), (0, 0, 1)),
    "a corrupt marker": (Log().transactional(7, 0).marker(7, 0, COMMIT, crc=5), (0, 0, 1)),
    "offsets below zero": (Log().transactional(7, 0, base_offset=-5, last_offset=3).transactional(8, 0, last_offset=-1), (0, 0, 0)),
    "a leader change is no marker": (Log().add(attributes=CONTROL, control_record_type=2).transactional(7, 0), (0, 0, 1)),
}


@pytest.mark.parametrize("case", COUNTED)
def test_transactions_are_counted(case: str) -> None:
    log, (committed, aborted, is_open) = COUNTED[case]
    for cuts in ((), (1,), (2,), (1, 2, 3), range(1, 9)):
        fold = log.fold(TransactionsFold, cuts)
        assert fold.counts() == TransactionCounts(committed, aborted, is_open)
        assert [finding.kind for finding in fold.findings(context(), log.fold(ProducersFold).runs, log.offset)] == [
            "TXN_OPEN"
        ] * is_open


LATE = {
    "after a fence": Log().transactional(7, 0).marker(7, 1, ABORT).transactional(7, 0, 1),
    "after the marker of a bumped epoch": transactions_with_bumped_epochs(3).transactional(7, 2, 10),
    "much later": transactions_with_bumped_epochs(3).transactional(7, 0, 10),
    "into the next transaction": transactions_with_bumped_epochs(2).transactional(7, 2, 0).transactional(7, 1, 10),
    "after a marker that ended no transaction": Log().marker(7, 4, ABORT).transactional(7, 3, 0),
    "in the next segment": transactions_with_bumped_epochs(3).roll().transactional(7, 2, 10).transactional(7, 2, 11),
}


@pytest.mark.parametrize("case", LATE)
def test_data_of_an_epoch_whose_transaction_ended_is_late(case: str) -> None:
    log = LATE[case]
    whole = findings_of(log)
    assert sorted(finding.kind for finding in whole) == ["TXN_LATE_WRITE", "TXN_OPEN"]
    for cut in range(1, len(log.rows)):
        fold = log.fold(TransactionsFold, (cut, len(log.rows) - 1))
        assert fold.findings(context(), log.fold(ProducersFold).runs, log.offset) == whole


def test_lost_bytes_may_have_held_the_marker() -> None:
    log = Log().lost().transactional(7, 0).add(2)
    assert [finding.confidence for finding in findings_of(log)] == [Confidence.PROVEN]
    assert [finding.confidence for finding in findings_of(log.lost().add(2))] == [Confidence.INFERRED]


@pytest.mark.parametrize(
    ("log", "high_watermark", "expected"),
    [
        (Log().add(10), None, 10),
        (Log().add(10), 7, 7),
        (Log().add(10), 99, 10),
        (transactions_of_one_epoch(3), None, 33),
        (transactions_of_one_epoch(3), 33, 33),
        (transactions_of_one_epoch(3), 32, 22),
        (transactions_of_one_epoch(3), 22, 22),
        (transactions_of_one_epoch(3), 21, 11),
        (transactions_of_one_epoch(3), 10, 0),
        (transactions_of_one_epoch(3).add(5).transactional(7, 0, 30), None, 38),
        (transactions_of_one_epoch(3).add(5).transactional(7, 0, 30), 35, 35),
        (Log().transactional(1, 0).transactional(2, 0).marker(1, 0, COMMIT), None, 1),
        (Log(offset=50).marker(1, 0, COMMIT).add(4), 50, 50),
    ],
)
def test_the_last_stable_offset_is_before_open_or_unreplicated_transactions(
    log: Log, high_watermark: int | None, expected: int
) -> None:
    for cuts in ((), range(1, len(log.rows))):
        assert log.fold(TransactionsFold, cuts).last_stable_offset(high_watermark, log.offset) == expected


def test_the_view_is_of_every_transactional_producer() -> None:
    fold = transactions_with_bumped_epochs(1).data(5, 0, 0).transactional(8, 3, 0, 2).fold(TransactionsFold)
    states = {7: TransactionState(-1, (-1, -1), 1, 10), 8: TransactionState(12, (0, 300), 3, 13)}
    assert fold.view() == states
    assert fold.view([8, 5, 9, -1]) == {8: states[8]}


def test_the_first_and_last_of_many_late_writes_are_reported_and_all_counted() -> None:
    log = Log()
    for _ in range(100):
        log.marker(7, 1, ABORT).transactional(7, 0)
    late = [finding for finding in findings_of(log) if finding.kind == "TXN_LATE_WRITE"]
    assert len(late) == 32
    assert {finding.evidence["occurrences"] for finding in late} == {100}


@pytest.mark.parametrize(
    ("first_offset", "listed_first_offset", "is_abort", "agree"),
    [(3, 3, 1, True), (3, 4, 1, False), (-1, 9, 1, True), (-1, 3, 1, False), (-1, 9, 0, False), (9, 9, 0, False)],
)
def test_an_abort_without_data_agrees_with_an_entry_that_begins_with_itself(
    first_offset: int, listed_first_offset: int, is_abort: int, *, agree: bool
) -> None:
    endings = np.zeros((1, ENDING_WIDTH), np.int64)
    endings[0, [PRODUCER_ID, LAST_OFFSET, FIRST_OFFSET, IS_ABORT]] = (7, 9, first_offset, is_abort)
    of_endings, of_entries, named = paired(endings, np.array([[7, listed_first_offset, 9]], np.int64))
    assert (of_endings.tolist(), of_entries.tolist(), named.tolist()) == ([agree], [agree], [True])


BATCH = st.fixed_dictionaries(
    {
        BatchColumn.PRODUCER_ID: st.sampled_from([0, 1, 2, 5000, 2**62]),
        BatchColumn.PRODUCER_EPOCH: st.integers(0, 3),
        BatchColumn.ATTRIBUTES: st.sampled_from(
            [
                TRANSACTIONAL_MASK,
                TRANSACTIONAL_MASK | TIMESTAMP_TYPE_MASK,
                TRANSACTIONAL_MASK | DELETE_HORIZON_MASK,
                TRANSACTIONAL_MASK | CONTROL_MASK,
                CONTROL_MASK,
            ]
        ),
        BatchColumn.LAST_OFFSET_DELTA: st.integers(0, 9),
        BatchColumn.BASE_TIMESTAMP: st.integers(-1, 2**41),
        BatchColumn.MAX_TIMESTAMP: st.integers(-1, 2**41),
        BatchColumn.CONTROL_RECORD_TYPE: st.sampled_from([-1, 0, 1]),
        BatchColumn.COORDINATOR_EPOCH: st.integers(-1, 3),
    }
)


def columns_of(batches: list[dict[BatchColumn, int]]) -> NDArray[np.int64]:
    """Batches with these fields at consecutive offsets, as columns by BatchColumn."""
    columns = np.zeros((BATCH_COLUMNS, len(batches)), np.int64)
    offset = 0
    for row, batch in enumerate(batches):
        for column, value in batch.items():
            columns[column, row] = value
        columns[BatchColumn.BASE_OFFSET, row] = offset
        columns[BatchColumn.LAST_OFFSET, row] = offset + batch[BatchColumn.LAST_OFFSET_DELTA]
        offset += batch[BatchColumn.LAST_OFFSET_DELTA] + 1
    return columns


def read_in_steps(columns: NDArray[np.int64]) -> tuple[list[list[int]], list[list[int]]]:
    """(ended transactions, open transactions): the numbers of the data of each, and of the marker of ended ones."""
    opened: dict[int, list[int]] = {}
    ended = []
    for batch in columns.T.tolist():
        producer_id, offset, last = batch[BatchColumn.PRODUCER_ID], batch[BatchColumn.BASE_OFFSET], batch[BatchColumn.LAST_OFFSET]
        if batch[BatchColumn.ATTRIBUTES] & CONTROL_MASK:
            epoch, time = batch[BatchColumn.PRODUCER_EPOCH], batch[BatchColumn.MAX_TIMESTAMP]
            data = opened.pop(producer_id, [producer_id, epoch])
            marker = [batch[BatchColumn.CONTROL_RECORD_TYPE], offset, time, epoch, batch[BatchColumn.COORDINATOR_EPOCH]]
            ended.append([*data, *marker])
            continue
        by_maximum = batch[BatchColumn.ATTRIBUTES] & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK)
        time = batch[BatchColumn.MAX_TIMESTAMP if by_maximum else BatchColumn.BASE_TIMESTAMP]
        span = opened.setdefault(producer_id, [producer_id, batch[BatchColumn.PRODUCER_EPOCH], offset, time, 0, 0, 0, 0])
        span[4:6] = last, batch[BatchColumn.MAX_TIMESTAMP]
        span[6] += 1
        span[7] += last - offset + 1
    return ended, sorted(opened.values(), key=lambda span: (span[2], span[0]))


def plain(paired: NDArray[np.int64], *, ended: bool) -> list[list[int]]:
    """The numbers of each transaction without unused columns."""
    answer = []
    for numbers in paired.T.tolist():
        data = numbers[: TransactionColumn.MARKER_TYPE] if numbers[TransactionColumn.BATCHES] else numbers[:2]
        answer.append([*data, *(numbers[TransactionColumn.MARKER_TYPE :] if ended else [])])
    return answer


@given(st.lists(BATCH, max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_pairing_equals_a_plain_loop_at_any_cut(batches: list[dict[BatchColumn, int]], cuts: list[int]) -> None:
    columns, paired = columns_of(batches), Pairing()
    ended, still_open = read_in_steps(columns)
    parts = np.split(columns, sorted(min(cut, len(batches)) for cut in cuts), axis=1)
    assert [transaction for part in parts for transaction in plain(paired.take(part), ended=True)] == ended
    assert plain(paired.still_open(), ended=False) == still_open


def test_only_the_oldest_open_transactions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker of a transaction that was not kept ends no known transaction."""
    monkeypatch.setattr(pairing, "OPEN_KEPT", 2)
    data = dict.fromkeys(BatchColumn, 0) | {BatchColumn.ATTRIBUTES: TRANSACTIONAL_MASK}
    columns = columns_of([data | {BatchColumn.PRODUCER_ID: producer_id} for producer_id in (9, 8, 7)])
    paired = Pairing()
    assert paired.take(columns).shape[1] == 0
    assert paired.still_open()[TransactionColumn.PRODUCER_ID].tolist() == [9, 8]
    marker = columns_of([data | {BatchColumn.ATTRIBUTES: CONTROL_MASK, BatchColumn.PRODUCER_ID: 7}])
    [ended_unknown] = plain(paired.take(marker), ended=True)
    assert len(ended_unknown) == 2 + len(TransactionColumn) - TransactionColumn.MARKER_TYPE


def busy() -> Log:
    """Interleaved transactions of three producers in two segments; one is open."""
    log = Log().transactional(1, 0).transactional(2, 0).marker(1, 0, COMMIT).transactional(3, 5).add(4)
    log.transactional(1, 0, 1).marker(2, 1, ABORT).roll().marker(1, 0, ABORT).marker(3, 6, COMMIT).marker(3, 6, COMMIT)
    return log.transactional(2, 1, 0, 3).marker(2, 1, 7).marker(2, 2, COMMIT).transactional(1, 0, 9)


def test_ended_transactions_and_markers_are_the_same_whatever_the_cuts() -> None:
    log = busy()
    whole = log.fold(TransactionsFold)
    ended = whole.ended()
    transactions = [(row[6], row[rules.DATA_EPOCH], row[8], row[rules.DATA_LAST_OFFSET], row[2]) for row in ended.tolist()]
    kinds = {rules.COMMIT, rules.ABORT}
    assert [row[:2] for row in transactions] == [(1, 0), (2, 0), (1, 0), (3, 5), (2, 1)]
    assert {row[4] for row in transactions} == kinds
    rows = whole.last_markers.markers.rows
    assert len(rows) == 6
    for cut in range(1, len(log.rows)):
        for cuts in ((cut,), (cut, len(log.rows) - 1), range(cut, len(log.rows))):
            fold = log.fold(TransactionsFold, cuts)
            assert fold.ended().tolist() == ended.tolist()
            assert fold.last_markers.markers.rows.tolist() == rows.tolist()
            assert fold.last_markers.newest_timestamp == whole.last_markers.newest_timestamp


def test_newest_timestamps_are_of_good_batches() -> None:
    log = Log().add(max_timestamp=START + 5).add(max_timestamp=START + 99, crc=5).marker(1, 0, COMMIT, max_timestamp=START + 3)
    assert log.fold(TransactionsFold).last_markers.newest_timestamp == START + 5
    assert log.fold(TransactionsFold).open_transactions() == []


@pytest.mark.parametrize("sizes", [[3], [1] * 40, [7, 0, 30, 2], [100]])
def test_the_last_rows_are_kept(sizes: list[int]) -> None:
    kept = LastRows(2, 5)
    together = np.arange(2 * sum(sizes)).reshape(-1, 2)
    at = 0
    for size in sizes:
        other = LastRows(2, 5)
        other.add(together[at : at + size])
        kept.merge(other)
        at += size
    assert kept.rows.tolist() == together[-5:].tolist()
    assert (kept.count, kept.complete) == (sum(sizes), sum(sizes) <= 5)


@pytest.mark.parametrize(
    ("epochs", "found"),
    [
        ([(1, 3), (1, 3), (1, 4)], []),
        ([(1, 3), (2, 1), (1, 4), (2, 1)], []),
        ([(1, 3), (1, 2), (1, 3), (1, 1)], [(1, 0), (3, 2)]),
        ([(1, -1), (1, 5), (1, -1)], []),
        ([], []),
    ],
)
def test_lower_coordinator_epochs_are_found(epochs: list[tuple[int, int]], found: list[tuple[int, int]]) -> None:
    rows = np.zeros((len(epochs), markers.MARKER_COLUMNS), np.int64)
    for at, (producer_id, epoch) in enumerate(epochs):
        rows[at, [markers.POSITION, markers.PRODUCER_ID, markers.COORDINATOR_EPOCH]] = at, producer_id, epoch
    assert lower_coordinator_epochs(rows) == found


def test_the_oldest_of_many_open_transactions_are_reported() -> None:
    log = Log()
    for producer_id in range(50):
        log.transactional(producer_id, 0)
    fold = log.fold(TransactionsFold)
    assert [transaction.producer_id for transaction in fold.open_transactions(3)] == [0, 1, 2]
    assert fold.counts().open == 50


def facts_of(partition: int, rows: NDArray[np.int64], ended: NDArray[np.int64]) -> PartitionFacts:
    """The facts of a partition with these markers and ended transactions, from one complete copy."""
    context, end = ReplicaContext("t", partition, 1, "", ""), len(rows)
    return PartitionFacts(
        context, [1], compacted=False, clean=True, whole=True, gaps=[], markers=rows, ended=ended, open={}, last_stable_offset=end,
        log_start_offset=0, log_end_offset=end, broker_timestamp=0, elsewhere=rows[:0], forgotten=[],
    )  # fmt: skip


def test_markers_are_dropped_with_the_transactions_they_ended() -> None:
    rows, ended = np.zeros((8, markers.MARKER_COLUMNS), np.int64), np.zeros((4, rules.FOUND_WIDTH), np.int64)
    rows[:, markers.OFFSET], ended[:, 4] = np.arange(8), np.arange(4, 8)
    facts = facts_of(0, rows, ended)
    facts.trim()
    assert [facts.had_transaction_data(offset) for offset in facts.markers[:, markers.OFFSET].tolist()] == [True] * 4


def test_commits_are_found_by_producer_and_partition_without_going_through_all() -> None:
    """As many lookups as decisions: of many producers with one each, and of one producer with many."""
    count = 20_000
    fields = {"producer_epoch": 0, "start_timestamp": 0, "decided_timestamp": 1, "completed_timestamp": 2, "log_partition": 0}
    of_producers = [
        Decision(f"id-{name}", name, commit=True, partitions=(("t", name % 50), ("u", name)), offset=name, **fields)
        for name in range(count)
    ]
    busy = [
        Decision("busy", count, commit=number % 2 == 0, partitions=(("t", number),), offset=number, **fields)
        for number in range(count)
    ]
    start = process_time()
    commits = CommitDecisions([*of_producers, *busy])
    assert [commits.of(name, ("t", name % 50)) for name in range(count)] == [[decision] for decision in of_producers]
    assert [len(commits.of(count, ("t", number))) for number in range(count)] == [1, 0] * (count // 2)
    assert process_time() - start < 5
    assert (commits.of(0, ("t", 1)), commits.of(-1, ("t", 0))) == ([], [])
