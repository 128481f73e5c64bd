"""What a page shows beside a scan: plans, times of records, bytes of the first difference, hashes."""

import hashlib
import shutil
from pathlib import Path
from typing import Final

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions import report as report_module
from kafka_forensics.questions.report import ReportContent, ReportOptions, report
from tests.support.brokers import put_replica
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP, batch

SAMPLE: Final = SAMPLES / "unclean-election"


@pytest.fixture(scope="module")
def reported() -> ReportContent:
    return report([str(SAMPLE)], ScanOptions(), ReportOptions(payloads=True, hashes=True))


def test_partitions_that_elections_may_cost_have_a_plan(reported: ReportContent) -> None:
    planned = reported.facts.planned["audit", 0]
    assert set(reported.facts.planned) == {("audit", 0)}
    assert reported.plans is not None
    assert reported.plans.planned == [planned]
    assert planned.plan.recommended == 2


def test_times_of_records_are_those_of_the_batches(reported: ReportContent) -> None:
    facts = reported.facts
    assert facts.committed_ms == {1: 1795233370131, 2: 1795233359117, 3: 1795233347381}
    assert (facts.oldest_ms, facts.newest_ms) == (1795233325689, 1795233374386)
    size = facts.planned["audit", 0].sizes[300, 370, "(2,)"]
    assert (size.records, size.oldest_ms, size.newest_ms) == (70, 1795233359057, 1795233359117)


def test_the_newest_committed_record_is_below_the_high_watermark(tmp_path: Path) -> None:
    batches = [batch(offset, 5, base_timestamp=BASE_TIMESTAMP + offset) for offset in (0, 5, 10)]
    put_replica(tmp_path, 1, batches, high_watermark=10)
    put_replica(tmp_path, 2, batches, high_watermark=0)
    facts = report([str(tmp_path)], ScanOptions(), ReportOptions()).facts
    below = [time for time in facts.committed_ms.items() if time[0] == 1]
    assert below == [(1, facts.committed_ms[1])]
    assert 2 not in facts.committed_ms
    assert facts.newest_ms is not None
    assert facts.committed_ms[1] < facts.newest_ms
    assert facts.history is None


def test_a_fork_has_the_bytes_of_both_sides(reported: ReportContent) -> None:
    difference = reported.facts.differences["audit", 0]
    assert (difference.offset, [side.broker for side in difference.sides]) == (300, [1, 2])
    first, second = difference.sides
    assert [first.rows[number][4] for number in sorted(first.differing)][:3] == ["batch_length", "partition_leader_epoch", "crc"]
    assert first.rows[0][:6] == second.rows[0][:6] == ("batch header", 19105, 8, "00 00 00 00 00 00 01 2c", "base_offset", 300)
    assert 0 not in first.differing
    assert set(reported.facts.differences) == {("audit", 0)}


def test_brokers_with_equal_bytes_share_a_side() -> None:
    found = report([str(SAMPLE.parent / "silent-divergence")], ScanOptions(), ReportOptions(payloads=True))
    difference = found.facts.differences["ledger", 0]
    assert [(side.broker, side.equal_brokers) for side in difference.sides] == [(1, ()), (2, (3,))]
    assert {side.rows[0][0] for side in difference.sides} == {"entry"}


def test_every_file_is_hashed_once_by_path(reported: ReportContent) -> None:
    assert reported.facts.hashes is not None
    paths = [file.path for file in reported.facts.hashes]
    assert paths == sorted(set(paths))
    log = SAMPLE / "broker-2" / "audit-0" / "00000000000000000000.log"
    found = next(file for file in reported.facts.hashes if file.path == str(log))
    assert found.sha256 == hashlib.sha256(log.read_bytes()).hexdigest()
    assert found.size_in_bytes == log.stat().st_size


def test_bytes_are_kept_of_a_few_partitions_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report_module, "DIFFERENCES_KEPT", 1)
    for broker in (1, 2):
        for topic in ("audit-0", "ledger-0"):
            source = SAMPLE if topic == "audit-0" else SAMPLE.parent / "silent-divergence"
            shutil.copytree(source / f"broker-{broker}" / topic, tmp_path / str(broker) / topic)
    found = report([str(tmp_path)], ScanOptions(), ReportOptions(payloads=True))
    assert set(found.facts.differences) == {("audit", 0)}
    few = report([str(SAMPLE)], ScanOptions(), ReportOptions())
    assert (few.facts.hashes, few.facts.differences) == (None, {}), "only on request"


def test_a_file_with_a_huge_hole_is_not_hashed(tmp_path: Path) -> None:
    log = put_replica(tmp_path, 1, batch(0, 5)) / "orders-0" / "00000000000000000000.log"
    with log.open("r+b") as file:
        file.truncate(8 << 40)
    hashes = report([str(tmp_path)], ScanOptions(), ReportOptions(hashes=True)).facts.hashes
    assert hashes is not None
    assert [file.sha256 is None for file in hashes if file.path.endswith(".log")] == [True]
