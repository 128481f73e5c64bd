"""Transactions by logs made for them: how they open and end, what is late, what holds readers back."""

import pytest

from kafka_forensics.analysis.producers.producers import ProducersFold
from kafka_forensics.analysis.transactions.transactions import OpenTransaction, TransactionsFold, TransactionState
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.model.results import TransactionCounts
from tests.support.producer_log import ABORT, COMMIT, CONTROL, TRANSACTIONAL, Log, context, matrix

START = 1_700_000_000_000


def found(log: Log, **given: object) -> list[Finding]:
    return log.fold(TransactionsFold).findings(context(**given), log.fold(ProducersFold).runs, log.offset)  # type: ignore[arg-type]


def kinds(log: Log) -> list[str]:
    return [finding.kind for finding in found(log)]


def first_version(transactions: int) -> Log:
    """Transactions of one producer as clients before KIP-890 write them: one epoch, sequences go on, every other aborted."""
    log = Log()
    for number in range(transactions):
        log.transactional(7, 0, 10 * number, 10).marker(7, 0, number % 2)
    return log


def second_version(transactions: int) -> Log:
    """Transactions as KIP-890 has them: every marker bumps the epoch, sequences start again."""
    log = Log()
    for number in range(transactions):
        log.transactional(7, number, 0, 10).marker(7, number + 1, number % 2)
    return log


COUNTED = {
    "nothing": (Log().add(5).data(7, 0, 0, 3), (0, 0, 0)),
    "one epoch for all": (first_version(7), (3, 4, 0)),
    "an epoch each": (second_version(7), (3, 4, 0)),
    "an open one": (first_version(2).transactional(7, 0, 20).transactional(7, 0, 21), (1, 1, 1)),
    "two producers at once": (
        Log().transactional(1, 0).transactional(2, 0).transactional(1, 0, 1).marker(2, 0, ABORT).marker(1, 0, COMMIT),
        (1, 1, 0),
    ),
    "repeated markers": (first_version(1).marker(7, 0, ABORT).marker(7, 0, ABORT).marker(7, 0, COMMIT), (0, 1, 0)),
    "a marker whose data retention took": (
        Log(offset=90).marker(7, 0, COMMIT).transactional(7, 0, 50).marker(7, 0, ABORT),
        (0, 1, 0),
    ),
    "a fence ends it with a higher epoch": (Log().transactional(7, 3).marker(7, 4, ABORT).transactional(7, 5), (0, 1, 1)),
    "a marker of an older epoch ends it too": (Log().transactional(7, 3).marker(7, 2, ABORT), (0, 1, 0)),
    "a marker that was cleaned": (Log().transactional(7, 0).add(producer_id=7, attributes=TRANSACTIONAL | CONTROL), (0, 0, 0)),
    "a marker of an unknown type": (Log().transactional(7, 0).marker(7, 0, 9).marker(7, 0, 2), (0, 0, 1)),
    "a rotten marker": (Log().transactional(7, 0).marker(7, 0, COMMIT, crc=5), (0, 0, 1)),
    "an offset below zero": (
        Log().transactional(7, 0, base_offset=-5, last_offset=3).transactional(8, 0, last_offset=-1),
        (0, 0, 0),
    ),
    "a leader change is no marker": (Log().add(attributes=CONTROL, control_record_type=2).transactional(7, 0), (0, 0, 1)),
    "plain data between": (Log().transactional(7, 0).data(8, 0, 0).add(4).marker(7, 0, COMMIT), (1, 0, 0)),
    "over three segments": (Log().transactional(7, 0).roll().transactional(7, 0, 1).roll().marker(7, 0, COMMIT), (1, 0, 0)),
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
    "behind a fence": Log().transactional(7, 0).marker(7, 1, ABORT).transactional(7, 0, 1),
    "behind the marker of a bumped epoch": second_version(3).transactional(7, 2, 10),
    "much later": second_version(3).transactional(7, 0, 10),
    "into the next transaction": second_version(2).transactional(7, 2, 0).transactional(7, 1, 10),
    "behind a marker that had nothing to end": Log().marker(7, 4, ABORT).transactional(7, 3, 0),
    "in the next segment": second_version(3).roll().transactional(7, 2, 10).transactional(7, 2, 11),
}


@pytest.mark.parametrize("case", LATE)
def test_data_of_an_epoch_whose_transaction_ended_is_late(case: str) -> None:
    log = LATE[case]
    whole = found(log)
    assert sorted(finding.kind for finding in whole) == ["TXN_LATE_WRITE", "TXN_OPEN"]
    for cut in range(1, len(log.rows)):
        fold = log.fold(TransactionsFold, (cut, len(log.rows) - 1))
        assert fold.findings(context(), log.fold(ProducersFold).runs, log.offset) == whole


@pytest.mark.parametrize(
    "log",
    [
        first_version(4),
        second_version(4),
        Log().transactional(7, 0).marker(7, 2, ABORT).transactional(7, 2).marker(7, 3, COMMIT),
        Log().transactional(7, 0).marker(7, 0, COMMIT).marker(7, 0, COMMIT).transactional(7, 0, 1).marker(7, 0, COMMIT),
        second_version(3).data(7, 0, 30),
    ],
)
def test_what_healthy_producers_do_is_not_late(log: Log) -> None:
    assert kinds(log) == []


def test_an_old_batch_copied_behind_its_marker_is_not_late() -> None:
    log = second_version(3)
    log.transactional(7, 0, 0, 10, base_offset=0)
    assert "TXN_LATE_WRITE" not in kinds(log)


def test_a_late_write_is_told_with_its_place() -> None:
    (finding, _) = found(second_version(2).roll().add(3).transactional(7, 1, 10, 4))
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.INFERRED)
    assert (finding.place.file, finding.place.byte_start, finding.place.byte_end) == ("t-0/00000000000000000022.log", 100, 200)
    assert (finding.place.offset_start, finding.place.offset_end) == (25, 29)
    assert finding.evidence == {"producer_id": 7, "producer_epoch": 1, "later_epoch": 2, "later_epoch_offset": 21}


def test_an_open_transaction_is_told_with_what_it_hides() -> None:
    log = first_version(1).roll().add(5).transactional(7, 0, 10, 3).add(4).transactional(7, 0, 13, 2).add(10)
    (finding,) = found(log, high_watermark=30)
    assert (finding.kind, finding.severity, finding.confidence) == ("TXN_OPEN", Severity.INFO, Confidence.PROVEN)
    assert (finding.place.file, finding.place.byte_start, finding.place.byte_end) == ("t-0/00000000000000000011.log", 100, 200)
    assert (finding.place.offset_start, finding.place.offset_end) == (16, 25)
    assert finding.evidence == {
        "producer_id": 7,
        "producer_epoch": 0,
        "first_offset": 16,
        "last_offset": 24,
        "first_timestamp": START + 3700,
        "last_timestamp": START + 6000,
        "last_stable_offset": 16,
        "hidden_records": 19,
    }


def test_lost_bytes_may_have_held_the_marker() -> None:
    log = Log().lost().transactional(7, 0).add(2)
    assert [finding.confidence for finding in found(log)] == [Confidence.PROVEN]
    assert [finding.confidence for finding in found(log.lost().add(2))] == [Confidence.INFERRED]


def test_open_transactions_come_oldest_first() -> None:
    log = (
        Log().transactional(9, 0, 0, 2).transactional(3, 1, 0, 2).marker(9, 0, COMMIT).transactional(9, 0, 2).transactional(9, 1, 3)
    )
    assert log.fold(TransactionsFold).open_transactions() == [
        OpenTransaction(3, 1, 2, 3, START + 1700, START + 2000, 0, 100, 100, 1),
        OpenTransaction(9, 1, 5, 6, START + 3700, START + 5000, 0, 300, 100, 0),
    ]


@pytest.mark.parametrize(
    ("attributes", "first_timestamp"), [(0x10, 5), (0x18, START), (0x50, START)], ids=["create", "append", "horizon"]
)
def test_the_first_timestamp_is_one_of_a_record(attributes: int, first_timestamp: int) -> None:
    log = Log().add(producer_id=7, producer_epoch=0, attributes=attributes, base_timestamp=5, max_timestamp=START)
    (transaction,) = log.fold(TransactionsFold).open_transactions()
    assert transaction.first_timestamp == first_timestamp


@pytest.mark.parametrize(
    ("log", "high_watermark", "expected"),
    [
        (Log().add(10), None, 10),
        (Log().add(10), 7, 7),
        (Log().add(10), 99, 10),
        (first_version(3), None, 33),
        (first_version(3), 33, 33),
        (first_version(3), 32, 22),
        (first_version(3), 22, 22),
        (first_version(3), 21, 11),
        (first_version(3), 10, 0),
        (first_version(3).add(5).transactional(7, 0, 30), None, 38),
        (first_version(3).add(5).transactional(7, 0, 30), 35, 35),
        (Log().transactional(1, 0).transactional(2, 0).marker(1, 0, COMMIT), None, 1),
        (Log(offset=50).marker(1, 0, COMMIT).add(4), 50, 50),
    ],
)
def test_the_last_stable_offset(log: Log, high_watermark: int | None, expected: int) -> None:
    for cuts in ((), range(1, len(log.rows))):
        assert log.fold(TransactionsFold, cuts).last_stable_offset(high_watermark, log.offset) == expected


def test_the_view_is_of_every_transactional_producer() -> None:
    fold = second_version(1).data(5, 0, 0).transactional(8, 3, 0, 2).fold(TransactionsFold)
    both = {7: TransactionState(-1, (-1, -1), 1, 10), 8: TransactionState(12, (0, 300), 3, 13)}
    assert fold.view() == both
    assert fold.view([8, 5, 9, -1]) == {8: both[8]}


def test_a_merged_fold_goes_on_in_the_right_segment() -> None:
    fold = TransactionsFold(0)
    fold.merge(TransactionsFold(50))
    fold.step(matrix(Log().transactional(7, 0).rows))
    assert [transaction.segment for transaction in fold.open_transactions()] == [50]


def test_of_very_many_late_writes_the_first_and_last_are_told_and_all_counted() -> None:
    log = Log()
    for _ in range(100):
        log.marker(7, 1, ABORT).transactional(7, 0)
    late = [finding for finding in found(log) if finding.kind == "TXN_LATE_WRITE"]
    assert len(late) == 32
    assert {finding.evidence["occurrences"] for finding in late} == {100}
