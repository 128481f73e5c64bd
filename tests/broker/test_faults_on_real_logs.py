"""Injections of the fault gallery into log directories of real brokers give the same findings as on the written ones."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from kafka_forensics.model.findings import Severity
from lab.fault_base import layout
from lab.fault_gallery import scanned
from tests.gallery.case import Case, Injected
from tests.gallery.real_brokers import DIFFERENCES, UNTOUCHED_FINDINGS, Row, answer, expected, injections
from tests.support.brokers import Brokers
from tests.support.faults_verdict import scan_brokers
from tests.support.logs import HEALTHY, LOG_END

pytestmark = [pytest.mark.broker, pytest.mark.slice]

INJECTIONS = injections()


@pytest.fixture(scope="module")
def untouched(real_base: Brokers) -> Counter[Row]:
    return answer(scan_brokers(real_base))


def test_untouched_logs_of_real_brokers_are_clean(real_base: Brokers) -> None:
    result = scan_brokers(real_base)
    assert [row[:3] for row in answer(result).elements()] == list(UNTOUCHED_FINDINGS)
    assert result.totals.bytes_damaged == result.totals.bytes_skipped == 0
    [partition] = [partition for partition in result.partitions if partition.topic == "t"]
    assert partition.agreement.kind == "identical"
    assert [replica.log_end_offset for replica in partition.replicas] == [LOG_END] * 3
    assert partition.replicas[0].transactions.aborted == 3


def test_they_have_the_layout_of_the_written_base(real_base: Brokers) -> None:
    """So an injection changes the same bytes in both; ids, times and checksums differ."""
    assert layout(real_base.log) == layout(HEALTHY)
    assert all(ours.data != theirs.data for ours, theirs in zip(HEALTHY.batches, real_base.log.batches, strict=True))


@pytest.mark.parametrize(("heading", "case"), INJECTIONS, ids=[f"{case.fault} {case.injected}" for _, case in INJECTIONS])
def test_an_injection_gives_the_findings_of_written_logs(
    tmp_path: Path, real_base: Brokers, untouched: Counter[Row], heading: str, case: Case
) -> None:
    """The written base, tested in `tests/faults`, is committed to its end here, like the brokers'."""
    assert isinstance(case.make, Injected), heading
    written = case.make(tmp_path / "written", LOG_END)
    shutil.copytree(real_base.root, tmp_path / "real", symlinks=True)
    real = Brokers(tmp_path / "real", real_base.log)
    case.make.injection(real)
    result = scanned(case, real)
    wanted = expected(case, answer(scanned(case, written)), untouched)
    assert answer(result) == wanted
    above_info = [finding for finding in result.findings if finding.severity is not Severity.INFO]
    assert not (case.control and above_info)
    assert case.control or wanted - untouched


def test_every_declared_difference_belongs_to_a_case() -> None:
    assert set(DIFFERENCES) <= {case.injected for _, case in INJECTIONS}
