"""Scans injected faults and reduces the findings to the few values that tests compare."""

from collections import Counter
from pathlib import Path
from typing import Any

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from tests.support.brokers import Brokers

FindingRows = list[tuple[str, str, int | str | None]]


def scan(paths: list[Path], *, live: bool = False, deep: bool | None = None) -> ScanResult:
    options = ScanOptions(jobs=1, live=live, deep=deep)
    result = local.scan([str(path) for path in paths], options)
    totals = result.totals
    assert totals.bytes_decoded + totals.bytes_damaged + totals.bytes_skipped == totals.bytes_total
    assert not result.incomplete
    return result


def scan_brokers(brokers: Brokers, **options: Any) -> ScanResult:
    return scan(brokers.log_dirs, **options)


def finding_rows(result: ScanResult) -> FindingRows:
    """Every finding as (kind, severity, broker), sorted; without INCIDENT_SIGNATURE, which has tests of its own."""
    rows = [
        (finding.kind, finding.severity.value, finding.place.broker)
        for finding in result.findings
        if finding.kind != "INCIDENT_SIGNATURE"
    ]
    return sorted(rows, key=str)


def kind_counts(result: ScanResult) -> Counter[tuple[str, str]]:
    """The number of findings by kind and severity, without INCIDENT_SIGNATURE."""
    return Counter((finding.kind, finding.severity.value) for finding in result.findings if finding.kind != "INCIDENT_SIGNATURE")


def only_finding(result: ScanResult, kind: str) -> Finding:
    findings = [finding for finding in result.findings if finding.kind == kind]
    assert len(findings) == 1, finding_rows(result)
    return findings[0]


def offset_range(finding: Finding) -> tuple[int | None, int | None]:
    return finding.place.offset_start, finding.place.offset_end


def byte_range(finding: Finding) -> tuple[int | None, int | None]:
    return finding.place.byte_start, finding.place.byte_end
