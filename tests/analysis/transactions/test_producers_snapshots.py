"""`.snapshot` against the log before it: only what no healthy broker writes is told."""

from dataclasses import replace

import pytest

from kafka_forensics.analysis.producers.producers import ProducersFold
from kafka_forensics.analysis.transactions.index_check import compare_with_snapshot
from kafka_forensics.analysis.transactions.transactions import TransactionsFold
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.files import ProducerEntry, ProducerSnapshot
from kafka_forensics.model.findings import Confidence, Finding, Severity
from tests.support.producer_log import COMMIT, Log, context

IDLE = ProducerEntry(5, 0, 19, 19, 9, 0, -1, -1)
COMMITTED = ProducerEntry(7, 2, 14, 34, 4, 0, 0, -1)
OPEN = ProducerEntry(8, 1, 2, 38, 2, 0, 0, 36)


def log() -> Log:
    """From offset 10: producer 5 idempotent (10-19), 7 commits (20-35), 8 has one open (36-38), then plain data to 50."""
    log = Log(offset=10).data(5, 0, 10, 10)
    log.transactional(7, 2, 0, 10).transactional(7, 2, 10, 5).marker(7, 2, COMMIT)
    return log.transactional(8, 1, 0, 3).add(11)


def compared(entries: list[ProducerEntry], made: Log | None = None, damage: list[Damage] | None = None) -> list[Finding]:
    made = made or log()
    producers = made.fold(ProducersFold)
    view = producers.view([entry.producer_id for entry in entries])
    snapshot = ProducerSnapshot(50, 1, 0, 0, entries, damage or [])
    return compare_with_snapshot(snapshot, view, made.fold(TransactionsFold).view(), producers.runs, context())


def test_what_a_broker_wrote_down_agrees() -> None:
    assert compared([IDLE, COMMITTED, OPEN]) == []


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [IDLE],
        [replace(COMMITTED, producer_epoch=3, last_sequence=-1, last_offset=-1)],
        [replace(IDLE, last_offset=9, last_sequence=9)],
        [replace(IDLE, producer_id=99, last_offset=3)],
        [replace(IDLE, producer_id=99, last_offset=-1, last_sequence=-1)],
        [replace(OPEN, current_txn_first_offset=4, producer_id=6, last_offset=-1)],
        [replace(IDLE, timestamp=-5, coordinator_epoch=77, offset_delta=1)],
    ],
    ids=[
        "forgot all",
        "forgot two",
        "epoch bumped by the marker",
        "before the log",
        "unknown",
        "marker only",
        "began before",
        "times",
    ],
)
def test_what_a_broker_may_forget_or_know_better_is_left_alone(entries: list[ProducerEntry]) -> None:
    assert compared(entries) == []


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
def test_what_no_broker_writes_is_told(entry: ProducerEntry, reason: str) -> None:
    (finding,) = compared([IDLE, entry, COMMITTED] if entry.producer_id != 5 else [entry])
    assert (finding.kind, finding.severity, finding.confidence) == (
        "PRODUCER_SNAPSHOT_CORRUPT",
        Severity.WARNING,
        Confidence.INFERRED,
    )
    assert finding.place.file == "t-0/00000000000000000050.snapshot"
    assert (finding.evidence["reason"], finding.evidence["producer_id"]) == (reason, entry.producer_id)
    assert finding.evidence["occurrences"] == 1


def test_many_contradictions_are_one_finding() -> None:
    (finding,) = compared([replace(IDLE, producer_id=100 + n, last_offset=45) for n in range(40)])
    assert (finding.evidence["occurrences"], len(finding.evidence["contradictions"])) == (40, 16)
    assert finding.evidence["contradictions"][3] == {
        "reason": "last_offset",
        "producer_id": 103,
        "snapshot": [0, 19, 45, -1],
        "log": [None, None, None, -1],
    }


@pytest.mark.parametrize(
    "made",
    [log().lost(), Log(offset=10).lost().add(10).lost().add(5), log().add(base_offset=90), Log()],
    ids=["lost", "empty", "gap", "none"],
)
def test_where_the_log_is_in_doubt_the_snapshot_is_left_alone(made: Log) -> None:
    assert compared([replace(IDLE, last_offset=15), replace(OPEN, current_txn_first_offset=-1)], made) == []
    assert [finding.evidence["reason"] for finding in compared([replace(IDLE, last_offset=50)], made)] == ["last_offset"]


def test_a_damaged_snapshot_has_its_own_finding() -> None:
    assert compared([replace(IDLE, last_offset=50)], damage=[Damage("PRODUCER_SNAPSHOT_CORRUPT", 2, 4)]) == []
