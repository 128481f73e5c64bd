"""The last markers of a log: whatever way it is cut, and however many there are."""

from time import perf_counter

import numpy as np
import pytest
from numpy.typing import NDArray

from kafka_forensics.analysis.transactions import markers, rules
from kafka_forensics.analysis.transactions.markers import LastRows, fallen_epochs
from kafka_forensics.analysis.transactions.transactions import TransactionsFold
from kafka_forensics.analysis.transactions_across.decided import Commits, disagreements
from kafka_forensics.analysis.transactions_across.facts import PartitionFacts
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.coordinators import Decision
from tests.support.producer_log import ABORT, COMMIT, Log

START = 1_700_000_000_000


def busy() -> Log:
    """Three producers, their transactions across each other and a segment's border, and one left open."""
    log = Log().transactional(1, 0).transactional(2, 0).marker(1, 0, COMMIT).transactional(3, 5).add(4)
    log.transactional(1, 0, 1).marker(2, 1, ABORT).roll().marker(1, 0, ABORT).marker(3, 6, COMMIT).marker(3, 6, COMMIT)
    return log.transactional(2, 1, 0, 3).marker(2, 1, 7).marker(2, 2, COMMIT).transactional(1, 0, 9)


def test_ended_transactions_and_markers_are_the_same_whatever_the_cuts() -> None:
    log = busy()
    whole = log.fold(TransactionsFold)
    ended = whole.ended()
    told = [(row[6], row[rules.DATA_EPOCH], row[8], row[rules.DATA_LAST_OFFSET], row[2]) for row in ended.tolist()]
    kinds = {rules.COMMIT, rules.ABORT}
    assert [row[:2] for row in told] == [(1, 0), (2, 0), (1, 0), (3, 5), (2, 1)]
    assert {row[4] for row in told} == kinds
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
    fold = log.fold(TransactionsFold).last_markers
    assert fold.newest_timestamp == START + 5
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


def test_no_rows() -> None:
    assert LastRows(3).rows.shape == (0, 3)


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
def test_coordinator_epochs_may_not_fall(epochs: list[tuple[int, int]], found: list[tuple[int, int]]) -> None:
    rows = np.zeros((len(epochs), markers.MARKER_COLUMNS), np.int64)
    for at, (producer_id, epoch) in enumerate(epochs):
        rows[at, [markers.POSITION, markers.PRODUCER_ID, markers.COORDINATOR_EPOCH]] = at, producer_id, epoch
    assert fallen_epochs(rows) == found


def test_of_very_many_open_transactions_the_oldest_are_told() -> None:
    log = Log()
    for producer_id in range(50):
        log.transactional(producer_id, 0)
    fold = log.fold(TransactionsFold)
    assert [transaction.producer_id for transaction in fold.open_transactions(3)] == [0, 1, 2]
    assert fold.counts().open == 50


def facts_of(partition: int, rows: NDArray[np.int64], ended: NDArray[np.int64]) -> PartitionFacts:
    """What is kept of a partition with these markers and ended transactions, of which one whole copy was given."""
    context, end = ReplicaContext("t", partition, 1, "", ""), len(rows)
    return PartitionFacts(
        context, [1], compacted=False, clean=True, whole=True, gaps=[], markers=rows, ended=ended, open={}, last_stable_offset=end,
        log_start_offset=0, log_end_offset=end, broker_timestamp=0, elsewhere=rows[:0], forgotten=[],
    )  # fmt: skip


def test_markers_and_what_they_ended_are_let_go_of_together() -> None:
    rows, ended = np.zeros((8, markers.MARKER_COLUMNS), np.int64), np.zeros((4, rules.FOUND_WIDTH), np.int64)
    rows[:, markers.OFFSET], ended[:, 4] = np.arange(8), np.arange(4, 8)
    facts = facts_of(0, rows, ended)
    facts.trim()
    assert [facts.had_data(offset) for offset in facts.markers[:, markers.OFFSET].tolist()] == [True] * 4


def test_commits_are_found_by_producer_and_partition_without_going_through_all() -> None:
    """Of a producer each with its own partition, and of one with everything, as many questions as decisions."""
    count = 20_000
    told = {"producer_epoch": 0, "start_timestamp": 0, "decided_timestamp": 1, "completed_timestamp": 2, "log_partition": 0}
    own = [
        Decision(f"id-{name}", name, commit=True, partitions=(("t", name % 50), ("u", name)), offset=name, **told)
        for name in range(count)
    ]
    busy = [
        Decision("busy", count, commit=number % 2 == 0, partitions=(("t", number),), offset=number, **told)
        for number in range(count)
    ]
    start = perf_counter()
    commits = Commits([*own, *busy])
    assert [commits.of(name, ("t", name % 50)) for name in range(count)] == [[decision] for decision in own]
    assert [len(commits.of(count, ("t", number))) for number in range(count)] == [1, 0] * (count // 2)
    assert perf_counter() - start < 5
    assert (commits.of(0, ("t", 1)), commits.of(-1, ("t", 0))) == ([], [])


def test_transactions_of_many_partitions_are_compared_only_where_they_are() -> None:
    """Each of 20,000 in two of 200 partitions."""
    facts = {}
    for number in range(200):
        rows, ended = np.zeros((200, markers.MARKER_COLUMNS), np.int64), np.zeros((200, rules.FOUND_WIDTH), np.int64)
        rows[:, markers.OFFSET] = ended[:, 4] = np.arange(200)
        ended[:, 6], ended[:, 2] = np.arange(200) + 200 * (number // 2), rules.COMMIT
        facts["t", number] = facts_of(number, rows, ended)
    start = perf_counter()
    assert disagreements(facts, 1 << 50) == []
    assert perf_counter() - start < 5
