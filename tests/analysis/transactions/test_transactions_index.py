"""`.txnindex` against the log: missing entries, entries without a transaction, and where the log is in doubt."""

from typing import Any

import pytest
from msgspec.structs import replace

from kafka_forensics.analysis.producers.producers import ProducersFold
from kafka_forensics.analysis.transactions.index_check import IndexCheck, compare_with_snapshot
from kafka_forensics.analysis.transactions.transactions import TransactionsFold
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.files import AbortedTxn, ProducerEntry, ProducerSnapshot, TransactionIndex
from kafka_forensics.model.findings import Confidence, Finding, Severity
from tests.analysis.producer_log import ABORT, COMMIT, CONTROL, TRANSACTIONAL, Log, context

MISSING, PHANTOM, WRONG = "TXNINDEX_MISSING_ABORT", "TXNINDEX_PHANTOM_ABORT", "INDEX_MISMATCH"
Entries = list[tuple[int, int, int]]


def log_of_three() -> Log:
    """Offsets 0-5, 6-11 in segment 0, 12-17 in segment 12: producer 7 aborts, commits, aborts."""
    log = Log()
    for number, control_type in enumerate((ABORT, COMMIT, ABORT)):
        if number == 2:
            log.roll()
        log.transactional(7, 0, 10 * number, 2).transactional(7, 0, 10 * number + 2, 3).marker(7, 0, control_type)
    return log


RIGHT: dict[int, Entries] = {0: [(7, 0, 5)], 12: [(7, 12, 17)]}


def indexes_of(entries: dict[int, Entries]) -> dict[int, TransactionIndex]:
    return {
        segment: TransactionIndex([AbortedTxn(*row, row[2] + 1, position=34 * number) for number, row in enumerate(rows)])
        for segment, rows in entries.items()
    }


def compared(
    log: Log, entries: dict[int, Entries], *, log_start_offset: int = 0, segments_given: set[int] | None = None, **options: object
) -> list[Finding]:
    segments = sorted({row.segment for row in log.rows})
    replica_context = context(segment_base_offsets=segments, **options)  # type: ignore[arg-type]
    runs = log.fold(ProducersFold).runs
    fold = log.fold(TransactionsFold)
    indexes = indexes_of(entries)
    check = IndexCheck(replica_context, set(segments) if segments_given is None else segments_given, indexes.get)
    return check.findings(fold, list(indexes), log_start_offset, runs)


def kinds(findings: list[Finding]) -> list[tuple[str, str]]:
    answer = []
    for finding in findings:
        assert finding.place.file is not None
        answer.append((finding.kind, finding.place.file.rpartition("/")[2].lstrip("0") or "0"))
    return answer


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (RIGHT, []),
        ({0: [], 12: RIGHT[12]}, [(MISSING, ".txnindex")]),
        ({0: RIGHT[0], 12: []}, [(MISSING, "12.txnindex")]),
        ({0: RIGHT[0]}, [(MISSING, "12.txnindex")]),
        ({}, [(MISSING, ".txnindex"), (MISSING, "12.txnindex")]),
        ({0: [(8, 0, 5)], 12: RIGHT[12]}, [(MISSING, ".txnindex"), (PHANTOM, ".txnindex")]),
        ({0: [*RIGHT[0], (7, 6, 11)], 12: RIGHT[12]}, [(PHANTOM, ".txnindex")]),
        ({0: [*RIGHT[0], (7, 6, 9)], 12: RIGHT[12]}, [(PHANTOM, ".txnindex")]),
        ({0: [*RIGHT[0], (7, 90, 3)], 12: RIGHT[12]}, [(PHANTOM, ".txnindex")]),
        ({0: [(7, 2, 5)], 12: RIGHT[12]}, [(WRONG, ".txnindex")]),
        ({0: RIGHT[0], 12: [(7, 6, 17)]}, [(WRONG, "12.txnindex")]),
        ({0: [*RIGHT[0], *RIGHT[12]], 12: []}, []),
    ],
)
def test_differences_of_an_index_are_found(entries: dict[int, Entries], expected: list[tuple[str, str]]) -> None:
    assert kinds(compared(log_of_three(), entries)) == expected


def test_a_missing_file_is_one_finding_and_a_bad_one_at_most_a_few() -> None:
    log = Log()
    for number in range(100):
        log.transactional(7, 0, number).marker(7, 0, ABORT)
    (missing_file,) = compared(log, {})
    assert (missing_file.evidence["occurrences"], missing_file.evidence["file_missing"]) == (100, True)
    many = compared(log, {0: []})
    assert (len(many), {finding.evidence["occurrences"] for finding in many}) == (16, {100})
    unmatched_entries = compared(log, {0: [(7, 2 * n, 2 * n + 1) for n in range(100)] + [(8, 0, n) for n in range(50)]})
    assert (len(unmatched_entries), {finding.evidence["occurrences"] for finding in unmatched_entries}) == (16, {50})


def test_a_damaged_index_is_not_judged_against_the_log() -> None:
    log = log_of_three()
    index = TransactionIndex([AbortedTxn(8, 3, 9, 10)], [Damage("INDEX_MISMATCH", 34, 5)])
    findings = IndexCheck(context(), {0}, {0: index}.get).findings(log.fold(TransactionsFold), [0], 0, log.fold(ProducersFold).runs)
    assert [finding.kind for finding in findings] == [MISSING]


@pytest.mark.parametrize(
    ("log", "entries"),
    [
        (log_of_three().lost().transactional(7, 0, 40).lost().marker(7, 0, ABORT), RIGHT),
        (log_of_three().transactional(7, 0, 40).lost().marker(7, 0, ABORT), {0: RIGHT[0], 12: [*RIGHT[12], (7, 12, 19)]}),
        (log_of_three().corrupt(3).add(5), {0: RIGHT[0], 12: [*RIGHT[12], (7, 17, 19)]}),
        (log_of_three().corrupt(3).marker(7, 0, ABORT), {0: RIGHT[0], 12: [*RIGHT[12], (7, 19, 21)]}),
        (log_of_three(), {0: RIGHT[0], 12: [*RIGHT[12], (9, 30, 33)]}),
        (log_of_three().add(base_offset=22), {0: RIGHT[0], 12: [*RIGHT[12], (9, 18, 20)]}),
        (log_of_three().marker(7, 0, ABORT), RIGHT),
        (log_of_three().add(producer_id=7, attributes=TRANSACTIONAL | CONTROL), {0: RIGHT[0], 12: [*RIGHT[12], (7, 12, 18)]}),
    ],
    ids=["marker after lost bytes", "marker lost between", "marker corrupt", "data corrupt", "ahead", "gap", "empty", "cleaned"],
)
def test_the_index_is_not_judged_where_the_log_is_in_doubt(log: Log, entries: dict[int, Entries]) -> None:
    assert compared(log, entries) == []


LATER = Log(offset=50).marker(7, 0, ABORT).transactional(7, 0, 9).marker(7, 0, ABORT)
"""The first transaction began before the log starts."""
DELETED = Log().add(50).transactional(7, 0, 9).marker(7, 0, ABORT)
AFTER_LOST_BYTES = Log().add().lost().transactional(7, 0, 0, 2).transactional(7, 0, 2, 3).marker(7, 0, ABORT)
EMPTY_AT_THE_END = log_of_three().marker(7, 0, ABORT)
"""A marker that ended no transaction: brokers before 2.8 list it as a separate one."""
BOTH_WRONG: dict[int, Entries] = {0: [(8, 0, 5)], 12: [(8, 12, 17)]}
OF_12 = [(MISSING, "12.txnindex"), (PHANTOM, "12.txnindex")]
OF_BOTH = [(MISSING, ".txnindex"), (MISSING, "12.txnindex"), (PHANTOM, ".txnindex"), (PHANTOM, "12.txnindex")]


@pytest.mark.parametrize(
    ("log", "entries", "options", "expected"),
    [
        (AFTER_LOST_BYTES, {0: [(7, 1, 6)]}, {}, []),
        (AFTER_LOST_BYTES, {0: [(7, 3, 6)]}, {}, [(WRONG, ".txnindex")]),
        (EMPTY_AT_THE_END, {0: RIGHT[0], 12: [*RIGHT[12], (7, 18, 18)]}, {}, []),
        (EMPTY_AT_THE_END, {0: RIGHT[0], 12: [*RIGHT[12], (7, 14, 18)]}, {}, [(WRONG, "12.txnindex")]),
        (LATER, {0: [(7, 44, 50), (7, 51, 52)]}, {}, []),
        (LATER, {0: [(7, 50, 50), (7, 51, 52)]}, {}, []),
        (LATER, {0: [(7, 44, 50), (7, 51, 52), (6, 20, 30)]}, {"log_start_offset": 50}, []),
        (Log(offset=50).transactional(7, 0, 9).marker(7, 0, ABORT), {0: [(7, 44, 51)]}, {}, []),
        (DELETED, {0: [(7, 44, 51), (9, 3, 20)]}, {"log_start_offset": 48}, []),
        (DELETED, {0: [(7, 44, 51)]}, {}, [(WRONG, ".txnindex")]),
        (log_of_three(), BOTH_WRONG, {"compacted": True, "cleaner_checkpoint": None}, []),
        (log_of_three(), BOTH_WRONG, {"compacted": True, "cleaner_checkpoint": 100}, []),
        (log_of_three(), BOTH_WRONG, {"compacted": True, "cleaner_checkpoint": 17}, OF_12),
        (log_of_three(), BOTH_WRONG, {"compacted": True, "cleaner_checkpoint": 0}, OF_BOTH),
        (log_of_three(), {0: RIGHT[0], 12: []}, {"live": True}, []),
        (log_of_three(), {0: [], 12: RIGHT[12]}, {"live": True}, [(MISSING, ".txnindex")]),
        (log_of_three(), {}, {"segments_given": set()}, []),
        (log_of_three(), {}, {"segments_given": {12}}, [(MISSING, "12.txnindex")]),
    ],
)
def test_an_index_is_judged_as_far_as_the_log_and_the_copy_allow(
    log: Log, entries: dict[int, Entries], options: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert kinds(compared(log, entries, **options)) == expected


IDLE = ProducerEntry(5, 0, 19, 19, 9, 0, -1, -1)
COMMITTED = ProducerEntry(7, 2, 14, 34, 4, 0, 0, -1)
OPEN = ProducerEntry(8, 1, 2, 38, 2, 0, 0, 36)


def log() -> Log:
    """Producer 5 is idempotent (10-19), 7 commits (20-35), 8 has an open transaction (36-38); plain batches follow to 50."""
    log = Log(offset=10).data(5, 0, 10, 10)
    log.transactional(7, 2, 0, 10).transactional(7, 2, 10, 5).marker(7, 2, COMMIT)
    return log.transactional(8, 1, 0, 3).add(11)


def compared_snapshot(
    entries: list[ProducerEntry], replayed_log: Log | None = None, damage: list[Damage] | None = None
) -> list[Finding]:
    replayed_log = replayed_log or log()
    producers = replayed_log.fold(ProducersFold)
    view = producers.view([entry.producer_id for entry in entries])
    snapshot = ProducerSnapshot(50, 1, 0, 0, entries, damage or [])
    return compare_with_snapshot(snapshot, view, replayed_log.fold(TransactionsFold).view(), producers.runs, context())


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([IDLE, COMMITTED, OPEN], id="all"),
        pytest.param([], id="forgot all"),
        pytest.param([IDLE], id="forgot two"),
        pytest.param([replace(COMMITTED, producer_epoch=3, last_sequence=-1, last_offset=-1)], id="epoch bumped by the marker"),
        pytest.param([replace(IDLE, last_offset=9, last_sequence=9)], id="before the log"),
        pytest.param([replace(IDLE, producer_id=99, last_offset=3)], id="unknown"),
        pytest.param([replace(IDLE, producer_id=99, last_offset=-1, last_sequence=-1)], id="marker only"),
        pytest.param([replace(OPEN, current_txn_first_offset=4, producer_id=6, last_offset=-1)], id="began before"),
        pytest.param([replace(IDLE, timestamp=-5, coordinator_epoch=77, offset_delta=1)], id="times"),
    ],
)
def test_state_that_a_broker_may_forget_or_know_better_is_not_judged(entries: list[ProducerEntry]) -> None:
    assert compared_snapshot(entries) == []


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (replace(IDLE, last_offset=50), "last_offset"),
        (replace(IDLE, last_offset=49), "last_offset"),
        (replace(COMMITTED, last_offset=29, last_sequence=9), "last_offset"),
        (replace(IDLE, producer_id=99, last_offset=30), "last_offset"),
        (replace(IDLE, last_sequence=18), "last_sequence"),
        (replace(IDLE, producer_epoch=1), "producer_epoch"),
        (replace(OPEN, current_txn_first_offset=50), "current_txn_first_offset"),
        (replace(OPEN, current_txn_first_offset=-1), "current_txn_first_offset"),
        (replace(OPEN, current_txn_first_offset=35), "current_txn_first_offset"),
        (replace(COMMITTED, current_txn_first_offset=20), "current_txn_first_offset"),
        (replace(IDLE, current_txn_first_offset=10), "current_txn_first_offset"),
    ],
)
def test_state_that_no_broker_writes_is_reported(entry: ProducerEntry, reason: str) -> None:
    (finding,) = compared_snapshot([IDLE, entry, COMMITTED] if entry.producer_id != 5 else [entry])
    assert (finding.kind, finding.severity) == ("PRODUCER_SNAPSHOT_CORRUPT", Severity.WARNING)
    assert finding.confidence == Confidence.INFERRED
    assert finding.place.file == "t-0/00000000000000000050.snapshot"
    assert (finding.evidence["reason"], finding.evidence["producer_id"]) == (reason, entry.producer_id)
    assert finding.evidence["occurrences"] == 1


def test_many_contradictions_are_one_finding() -> None:
    (finding,) = compared_snapshot([replace(IDLE, producer_id=100 + n, last_offset=45) for n in range(40)])
    assert (finding.evidence["occurrences"], len(finding.evidence["contradictions"])) == (40, 16)
    contradiction = finding.evidence["contradictions"][3]
    assert contradiction == {
        "reason": "last_offset",
        "producer_id": 103,
        "snapshot": [0, 19, 45, -1],
        "log": [None, None, None, -1],
    }


@pytest.mark.parametrize(
    "replayed_log",
    [log().lost(), Log(offset=10).lost().add(10).lost().add(5), log().add(base_offset=90), Log()],
    ids=["lost", "empty", "gap", "none"],
)
def test_the_snapshot_is_not_judged_where_the_log_is_in_doubt(replayed_log: Log) -> None:
    assert compared_snapshot([replace(IDLE, last_offset=15), replace(OPEN, current_txn_first_offset=-1)], replayed_log) == []
    assert [finding.evidence["reason"] for finding in compared_snapshot([replace(IDLE, last_offset=50)], replayed_log)] == [
        "last_offset"
    ]


def test_a_damaged_snapshot_has_its_own_finding() -> None:
    assert compared_snapshot([replace(IDLE, last_offset=50)], damage=[Damage("PRODUCER_SNAPSHOT_CORRUPT", 2, 4)]) == []
