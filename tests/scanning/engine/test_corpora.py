"""Each archive of real log directories gives the findings that its README lists, and no others above `info`."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine.local import scan
from tests.support.archives import ALL_ARCHIVES, archive_params
from tests.support.json_schemas import json_schema


@cache
def scanned(archives: Path, name: str) -> ScanResult:
    """The result of an archive, shared by all tests, which must not change it."""
    return scan([str(archives / f"{name}.tar.xz")], ScanOptions())


def above_info(result: ScanResult) -> list[Finding]:
    return [finding for finding in result.findings if finding.severity is not Severity.INFO]


HEALTHY = ("kafka-4.3.0-healthy", "kafka-4.3.0-lag", "kafka-4.3.0-clean-end", "public-five-brokers", "public-magic0-golden")


@pytest.mark.parametrize("name", archive_params(*HEALTHY))
def test_healthy_archives_give_nothing_above_info(archives: Path, name: str) -> None:
    assert above_info(scanned(archives, name)) == []


@pytest.mark.parametrize("name", archive_params(*ALL_ARCHIVES))
def test_output_is_valid_and_every_byte_accounted_for(archives: Path, name: str) -> None:
    result = scanned(archives, name)
    parsed: dict[str, Any] = json.loads("".join(document(result)))
    jsonschema.validate(parsed, json_schema())
    totals = result.totals
    assert totals.bytes_total == totals.bytes_decoded + totals.bytes_damaged + totals.bytes_skipped > 0
    assert totals.bytes_damaged == 0
    assert totals.records_decoded
    assert result.incomplete == []


def test_transactions_of_the_healthy_cluster_are_counted(archives: Path) -> None:
    result = scanned(archives, "kafka-4.3.0-healthy")
    replicas = {(partition.topic, partition.partition): partition.replicas for partition in result.partitions}
    for replica in replicas["payments", 0]:
        assert (replica.transactions.committed, replica.transactions.aborted, replica.transactions.open) == (23, 17, 0)
        assert replica.segments == 3
    for replica in replicas["ledger", 0]:
        assert (replica.transactions.committed, replica.transactions.aborted, replica.transactions.open) == (5, 5, 1)
        assert replica.last_stable_offset == 0
    assert {replica.log_end_offset for replica in replicas["orders", 0]} == {30000}
    assert {replica.log_end_offset for replica in replicas["profiles", 0]} == {4850}
    opened = [finding for finding in result.findings if finding.kind == "TXN_OPEN"]
    assert {finding.place.topic for finding in opened} == {"ledger"}
    assert all(finding.evidence["last_stable_offset"] == 0 for finding in opened)
    assert next(partition for partition in result.partitions if partition.topic == "profiles").agreement.kind == "compacted"


@pytest.mark.corpora
def test_a_frozen_follower_is_a_prefix(archives: Path) -> None:
    result = scanned(archives, "kafka-4.3.0-lag")
    clicks = next(partition for partition in result.partitions if partition.topic == "clicks")
    assert clicks.agreement.kind == "prefix"
    lag = next(finding for finding in result.findings if finding.kind == "REPLICA_LAGS" and finding.place.topic == "clicks")
    assert (lag.place.offset_start, lag.place.offset_end, lag.evidence["behind"]) == (200, 600, 400)


def test_the_unclean_election_is_found_with_its_loss(archives: Path) -> None:
    [loss] = above_info(scanned(archives, "kafka-4.3.0-unclean"))
    assert (loss.kind, loss.severity, loss.place.topic) == ("UNCLEAN_LOSS", Severity.CRITICAL, "audit")
    assert (loss.place.offset_start, loss.place.offset_end, loss.evidence["held_by"]) == (300, 370, [2])
    assert {tuple(version["brokers"]): version["epoch"] for version in loss.evidence["versions"]} == {(1,): 2, (2,): 0}


def test_a_silent_divergence_is_found(archives: Path) -> None:
    result = scanned(archives, "kafka-0.10.2.2-hw-divergence")
    [fork] = above_info(result)
    assert (fork.kind, fork.severity) == ("FORK_BELOW_HW", Severity.CRITICAL)
    assert (fork.place.offset_start, fork.place.offset_end, fork.evidence["held_by"]) == (0, 3, [])
    assert [version["brokers"] for version in fork.evidence["versions"]] == [[1], [2, 3]]
    assert {(replica.log_end_offset, replica.high_watermark) for replica in result.partitions[0].replicas} == {(3, 3)}


def test_truncation_to_a_stale_high_watermark_is_found(archives: Path) -> None:
    [fork] = above_info(scanned(archives, "kafka-0.10.2.2-hw-truncation"))
    assert (fork.kind, fork.severity) == ("FORK_BELOW_HW", Severity.CRITICAL)
    assert (fork.place.offset_start, fork.place.offset_end, fork.evidence["held_by"]) == (0, 10, [1, 2])


@pytest.mark.corpora
def test_replicas_without_index_files_are_identical(archives: Path) -> None:
    result = scanned(archives, "public-five-brokers")
    assert {finding.kind for finding in result.findings} <= {"INDEX_MISSING", "FILE_UNKNOWN"}
    several = [partition for partition in result.partitions if len(partition.replicas) > 1]
    assert several
    assert {partition.agreement.kind for partition in several} == {"identical"}
