"""Details of a report beyond a scan: transactions, bytes of the first difference, hashes."""

import hashlib
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions import report as report_module
from kafka_forensics.questions.report import Reported, ReportOptions, TransactionSpan, report, severity_order
from tests.support.brokers import put_replica
from tests.support.places import SAMPLES
from tests.support.segments import batch

SAMPLE: Final = SAMPLES / "unclean-election"


@pytest.fixture(scope="module")
def reported() -> Reported:
    return report([str(SAMPLE)], ScanOptions(), ReportOptions(payloads=True, hashes=True))


def test_open_and_aborted_transactions_are_listed_by_first_offset(reported: Reported) -> None:
    aborted_or_open = reported.details["payments", 0].transactions
    assert aborted_or_open is not None
    assert aborted_or_open.spans == [
        TransactionSpan(1, 0, 0, 4, 5),
        TransactionSpan(1, 0, 12, 16, 17),
        TransactionSpan(2, 0, 36, 40, 41),
        TransactionSpan(3, 0, 60, 64, 65),
        TransactionSpan(4, 0, 72, 74),
    ]
    assert aborted_or_open.left_out == 0
    assert reported.details["orders", 0].transactions is None


def test_the_newest_aborted_transactions_are_kept_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "TRANSACTIONS_KEPT", 2)
    aborted_or_open = (
        report([str(SAMPLE)], ScanOptions(topic_glob="payments", partition=0), ReportOptions()).details["payments", 0].transactions
    )
    assert aborted_or_open is not None
    assert [span.first_offset for span in aborted_or_open.spans] == [36, 60, 72]
    assert aborted_or_open.left_out == 2


def test_a_fork_has_the_bytes_of_both_sides(reported: Reported) -> None:
    difference = reported.details["audit", 0].difference
    assert difference is not None
    assert (difference.offset, [side.broker for side in difference.sides]) == (300, [1, 2])
    first, second = difference.sides
    assert [first.rows[number][4] for number in sorted(first.differing)][:3] == ["batch_length", "partition_leader_epoch", "crc"]
    assert first.rows[0][:6] == second.rows[0][:6] == ("batch header", 19105, 8, "00 00 00 00 00 00 01 2c", "base_offset", 300)
    assert 0 not in first.differing
    assert reported.details["orders", 0].difference is None


def test_brokers_with_equal_bytes_share_a_side() -> None:
    found = report([str(SAMPLE.parent / "silent-divergence")], ScanOptions(), ReportOptions(payloads=True))
    difference = found.details["ledger", 0].difference
    assert difference is not None
    assert [(side.broker, side.alike) for side in difference.sides] == [(1, ()), (2, (3,))]
    assert {side.rows[0][0] for side in difference.sides} == {"entry"}


def test_every_file_is_hashed_once_by_path(reported: Reported) -> None:
    assert reported.hashes is not None
    paths = [file.path for file in reported.hashes]
    assert paths == sorted(set(paths))
    log = SAMPLE / "broker-2" / "audit-0" / "00000000000000000000.log"
    found = next(file for file in reported.hashes if file.path == str(log))
    assert found.sha256 == hashlib.sha256(log.read_bytes()).hexdigest()
    assert found.size_in_bytes == log.stat().st_size


def test_only_the_most_severe_partitions_keep_details(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "DRAWN", 1)
    few = report([str(SAMPLE)], ScanOptions(), ReportOptions())
    assert (few.hashes, few.details["audit", 0].difference) == (None, None), "only when asked for"
    assert sorted(few.details) == [("__cluster_metadata", 0), ("audit", 0)]
    assert few.details["audit", 0].planned is not None


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (("critical", [], "identical"), ("error", [(0, 9)], "conflict")),
        (("critical", [(300, 370)], "prefix"), ("critical", [(300, 345)], "conflict")),
        (("critical", [(300, 370), (5, 6)], "prefix"), ("critical", [(300, 370), (5, None)], "prefix")),
        (("unknown", [], "conflict"), ("unknown", [], "compacted")),
    ],
)
def test_severity_is_by_verdict_then_loss_then_disagreement(worse: tuple[str, Any, str], better: tuple[str, Any, str]) -> None:
    assert severity_order(*worse) > severity_order(*better)


def test_a_file_with_a_huge_hole_is_not_hashed(tmp_path: Path) -> None:
    log = put_replica(tmp_path, 1, batch(0, 5)) / "orders-0" / "00000000000000000000.log"
    with log.open("r+b") as file:
        file.truncate(8 << 40)
    hashes = report([str(tmp_path)], ScanOptions(), ReportOptions(hashes=True)).hashes
    assert hashes is not None
    assert [file.sha256 is None for file in hashes if file.path.endswith(".log")] == [True]
