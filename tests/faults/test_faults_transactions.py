"""Faults F41, F42 and F43: transactions that stay open, judged by the coordinators' log."""

from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.wording import advice, message
from tests.support.faults_verdict import Said, offsets, only, said, scan, span, verdict
from tests.support.transaction_logs import (
    APP,
    APP_ID,
    BROKERS,
    OTHER_ID,
    TOO_LATE,
    CoordinatorLog,
    DataLog,
    Logs,
    coordinator,
    epochs_of,
    forgotten,
    late_write,
    left_open,
    ms,
    retained,
    strangers,
    write_cluster,
    wrong_clock,
)

pytestmark = pytest.mark.faults

OPEN: Said = [("TXN_OPEN", "info", broker) for broker in BROKERS]


def judged(root: Path, data: DataLog, state: CoordinatorLog | None, **options: bool) -> ScanResult:
    """The verdict on `t-0` and the coordinators' log on all brokers."""
    logs = {"t-0": data} if state is None else {"t-0": data, "__transaction_state-0": state}
    return scan(write_cluster(root, logs), **options)


def test_transactions_that_end_as_decided_are_no_finding(tmp_path: Path) -> None:
    data = left_open(15)
    data.marker(16, commit=True)
    state = coordinator(15, (10, "Ongoing", (0,)), (15.99, "PrepareCommit", (0,)), (16.01, "CompleteCommit", ()))
    assert said(judged(tmp_path, data, state)) == []


@pytest.mark.parametrize("reason", ["partition_not_listed", "no_description", "no_transactional_id"])
def test_f41_hanging_transaction(tmp_path: Path, reason: str) -> None:
    later = 12 + TOO_LATE
    data = left_open(later)
    result = judged(tmp_path, data, forgotten(later, reason))
    assert said(result) == [("TXN_HANGING", "error", 1)]
    finding = only(result, "TXN_HANGING")
    opened = data.at(6)
    assert (span(finding), offsets(finding)) == ((opened.position, opened.end), (6, 13))
    expected = {
        "reason": reason,
        "producer_id": APP_ID,
        "producer_epoch": 0,
        "first_offset": 6,
        "last_offset": 12,
        "last_stable_offset": 6,
        "hidden_records": data.next_offset - 6,
        "open_on": [1, 2, 3],
        "safe_to_abort": True,
        "command": "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic t --partition 0 --start-offset 6",
    }
    assert {name: finding.evidence[name] for name in expected} == expected
    assert finding.evidence.get("transactional_id") == (None if reason == "no_transactional_id" else APP)
    for replica in result.partitions[-1].replicas:
        assert (replica.transactions.open, replica.transactions.hanging) == (1, 1)
    assert result.partitions[-1].verdict == "error"


def test_f41_a_commit_on_record_makes_it_unsafe_to_abort(tmp_path: Path) -> None:
    """The coordinator committed it, listing t-1 too, before it forgot the marker: not hanging but torn; see F44."""
    later = 12 + TOO_LATE
    data = left_open(later)
    state = coordinator(later, (10, "Ongoing", (0, 1)), (12.5, "PrepareCommit", (0, 1)), (12.6, "CompleteCommit", ()))
    result = judged(tmp_path, data, state)
    assert said(result) == [("TXN_TORN", "critical", 1)]


@pytest.mark.parametrize("later", [13, 12 + TOO_LATE - 2])
def test_f41_what_is_not_overdue_does_not_hang(tmp_path: Path, later: float) -> None:
    result = judged(tmp_path, left_open(later), coordinator(later))
    assert said(result) == OPEN
    assert {finding.evidence["coordinator"] for finding in result.findings} == {"does not list it"}


@pytest.mark.parametrize("state", [coordinator(13), coordinator(13, (12, "Ongoing", (0,))), None], ids=["forgot", "lists", "none"])
def test_f41_a_clients_wrong_clock_makes_nothing_overdue(tmp_path: Path, state: CoordinatorLog | None) -> None:
    """Ages are counted by the clocks of brokers: somebody's record in another topic is stamped 50,000 years ahead."""
    known = {} if state is None else {"__transaction_state-0": state}
    result = scan(write_cluster(tmp_path, {"t-0": left_open(13), "other-0": wrong_clock(), **known}))
    assert [one for one in said(result) if one[0].startswith("TXN")] == OPEN
    assert not any(finding.evidence["safe_to_abort"] for finding in result.findings if finding.kind == "TXN_OPEN")


def test_f42_without_any_clock_of_a_broker_it_is_a_suspicion(tmp_path: Path) -> None:
    data = DataLog()
    data.data(10)
    for name, logs in (("none", {}), ("empty", {"__transaction_state-0": CoordinatorLog()})):
        result = scan(write_cluster(tmp_path / name, {"t-0": data, "other-0": wrong_clock(), **logs}))
        findings = [finding for finding in result.findings if finding.kind.startswith("TXN")]
        assert {(finding.kind, finding.severity.value, finding.confidence.value) for finding in findings} == {
            ("TXN_OPEN", "warning", "suspected")
        }
        assert {finding.evidence["safe_to_abort"] for finding in findings} == {None}
        scan_result = local.scan([str(path) for path in sorted((tmp_path / name).iterdir())], ScanOptions(jobs=1, as_of_ms=ms(60)))
        assert [finding.severity.value for finding in scan_result.findings if finding.kind == "TXN_OPEN"] == ["info"] * 3


def test_f41_records_older_than_a_marker_before_them_are_not_older_than_it(tmp_path: Path) -> None:
    """A producer that copies old records keeps their times: the marker before them tells when they were written at least."""
    data = DataLog()
    data.traffic(2 * TOO_LATE)
    data.data(10)
    data.traffic(2 * TOO_LATE + 1)
    assert said(judged(tmp_path, data, strangers(0, 2 * TOO_LATE))) == OPEN


@pytest.mark.parametrize("state", ["Ongoing", "PrepareAbort", "PrepareEpochFence"])
def test_f42_what_the_coordinator_will_end_never_hangs(tmp_path: Path, state: str) -> None:
    later = 12 + 100 * TOO_LATE
    result = judged(tmp_path, left_open(later), coordinator(later, (later, state, (0, 1))))
    assert said(result) == OPEN
    for finding in result.findings:
        assert (finding.evidence["transactional_id"], finding.evidence["coordinator_state"]) == (APP, state)
        assert (finding.evidence["last_stable_offset"], finding.evidence["safe_to_abort"]) == (6, False)
        assert finding.evidence["age_ms"] == 100 * TOO_LATE * 1000 + 90
    assert {replica.transactions.hanging for replica in result.partitions[-1].replicas} == {0}


def test_f42_without_the_coordinators_log_it_is_open_and_overdue(tmp_path: Path) -> None:
    assert said(judged(tmp_path / "recent", left_open(13), None)) == OPEN
    late = judged(tmp_path / "late", left_open(12 + TOO_LATE), None)
    assert said(late) == [("TXN_OPEN", "warning", broker) for broker in BROKERS]
    assert {(finding.confidence.value, finding.evidence["coordinator"]) for finding in late.findings} == {
        ("suspected", "not among the copies")
    }


def test_f42_past_its_timeout_the_coordinator_should_have_ended_it(tmp_path: Path) -> None:
    """Its timeout is a minute, and the evidence goes on for 20 more: nothing here says whether it was ended since."""
    later = 12 + TOO_LATE
    result = judged(tmp_path, left_open(later), coordinator(later, (10, "Ongoing", (0,))))
    assert said(result) == [("TXN_OPEN", "warning", broker) for broker in BROKERS]
    finding = result.findings[0]
    assert (finding.evidence["coordinator"], finding.evidence["safe_to_abort"]) == ("should have ended it", None)
    expected = "it was 20 min 3 s old, with a transaction timeout of 1 min, so that its coordinator should have ended it"
    assert expected in message(finding)
    assert "Normal" not in str(advice(finding))


@pytest.mark.parametrize("later", [13, 12 + TOO_LATE])
def test_f42_without_the_coordinators_log_nobody_can_tell_whether_it_is_safe_to_abort(tmp_path: Path, later: float) -> None:
    finding = judged(tmp_path, left_open(later), None).findings[0]
    assert finding.evidence["safe_to_abort"] is None
    assert "cannot tell whether it is safe to abort: add __transaction_state of every broker" in str(advice(finding))
    assert ("at 2023-11-14T22:33:33Z nothing had been written to it for 20 min 1 s" in message(finding)) == (later > TOO_LATE)


def test_f41_an_unread_partition_of_the_coordinators_log_may_know_it(tmp_path: Path) -> None:
    """Only `__transaction_state-1` was copied, so that there must be a partition 0."""
    result = scan(write_cluster(tmp_path, {"t-0": left_open(12 + TOO_LATE), "__transaction_state-1": strangers(11)}))
    assert said(result) == OPEN
    assert all(0 in finding.evidence["missing_partitions"] for finding in result.findings)


def test_f41_a_live_copy_may_be_older_than_the_marker(tmp_path: Path) -> None:
    later = 12 + TOO_LATE
    data = left_open(13)
    result = judged(tmp_path / "live", data, coordinator(later, (later, "CompleteAbort", ())), live=True)
    assert said(result) == OPEN
    assert ("TXN_HANGING", "error", 1) in said(judged(tmp_path / "still", data, coordinator(later, (later, "CompleteAbort", ()))))


def test_f41_a_replica_that_lags_behind_the_marker_does_not_hang(tmp_path: Path) -> None:
    later = 12 + TOO_LATE
    behind, ahead = left_open(later), left_open(later)
    ahead.marker(later + 1, commit=False)
    logs: Logs = {"t-0": {1: ahead, 2: ahead, 3: behind}, "__transaction_state-0": coordinator(later)}
    result = scan(write_cluster(tmp_path, logs))
    assert [one for one in said(result) if one[0].startswith("TXN")] == [("TXN_OPEN", "info", 3)]
    assert only(result, "TXN_OPEN").evidence["ended_on"] == [1]


def test_f43_late_write_of_a_fenced_epoch_hangs(tmp_path: Path) -> None:
    """KAFKA-9144: the transaction timed out, was aborted with a bumped epoch, and then a delayed request arrived."""
    data, state = late_write(12 + TOO_LATE, 1)
    late = data.at(3)
    result = judged(tmp_path, data, state)
    hanging = [("TXN_HANGING", "error", 1)]
    regress = [("PRODUCER_EPOCH_REGRESSION", "warning", broker) for broker in BROKERS]
    written = [("TXN_LATE_WRITE", "error", broker) for broker in BROKERS]
    assert [one for one in said(result) if one not in regress] == sorted(hanging + written, key=str)
    for finding in (each for each in result.findings if each.kind != "INCIDENT_SIGNATURE"):
        assert (span(finding), offsets(finding)) == ((late.position, late.end), (3, 5))
    assert only(result, "TXN_HANGING").evidence["reason"] == "partition_not_listed"


def test_f43_late_write_of_the_same_epoch_hangs(tmp_path: Path) -> None:
    """Before KIP-890 the abort may carry the epoch of the data: then only the coordinator knows that the rest is late."""
    result = judged(tmp_path, *late_write(12 + TOO_LATE, 0))
    assert said(result) == [("TXN_HANGING", "error", 1)]
    finding = only(result, "TXN_HANGING")
    assert (finding.evidence["late_write_after"], offsets(finding)) == (2, (3, 5))


@pytest.mark.parametrize("client", [0, 2])
def test_epochs_of_every_version_are_no_finding(tmp_path: Path, client: int) -> None:
    """Version 2 raises the epoch by one a transaction (early 4.0: by two where it fenced); before, it stays."""
    data, state = epochs_of(client)
    result = judged(tmp_path, data, state)
    assert said(result) == []
    counts = result.partitions[-1].replicas[0].transactions
    assert (counts.committed, counts.aborted, counts.open) == (3, 3, 0)
    assert OTHER_ID not in data.producers


@pytest.mark.parametrize("listed", [True, False])
def test_f41_a_snapshot_remembers_what_retention_took(tmp_path: Path, listed: bool) -> None:
    """The transaction's records are gone with their segment; the snapshot at the log start still holds it open."""
    result = verdict(retained(tmp_path, 12 + TOO_LATE, listed=listed))
    [finding] = [each for each in result.findings if each.kind.startswith("TXN")]
    assert (finding.kind, finding.severity.value) == (("TXN_OPEN", "warning") if listed else ("TXN_HANGING", "error"))
    assert (finding.evidence["first_offset"], finding.evidence["last_stable_offset"], offsets(finding)) == (0, 2, (2, 5))
    assert (finding.evidence["hidden_by_retention"], finding.evidence["transactional_id"]) == (True, APP)
    assert {each.kind for each in result.findings} <= {finding.kind, "INCIDENT_SIGNATURE"}
