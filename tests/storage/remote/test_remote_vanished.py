"""Objects that were listed and are gone when they are read: unknown, not clean."""

from pathlib import Path
from typing import Any

import fsspec
import pytest

import kafka_forensics as kf
from kafka_forensics.engine import local
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from tests.support.faults import healthy
from tests.support.object_stores import S3Server
from tests.support.unread import check_unknown, check_unread


def check(result: ScanResult) -> None:
    """Of broker 1 alone nothing of the log was read."""
    check_unknown(result.partitions[0])
    assert {finding.kind for finding in result.findings if finding.severity.rank > 0} <= {"EVIDENCE_CHANGED"}  # as it was read
    assert {(incomplete.topic, incomplete.partition, incomplete.broker) for incomplete in result.incomplete} == {("t", 0, 1)}


@pytest.mark.usefixtures("credentials")
def test_an_object_that_vanished_after_it_was_listed(s3: S3Server, tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    s3.upload(brokers.log_dir(1), "vanishing", "broker-1")
    inputs = gather(["s3://vanishing/broker-1"], ScanOptions(jobs=1))
    for segment in (0, 29, 55):
        s3.client().delete_object(Bucket="vanishing", Key=f"broker-1/t-0/{segment:020d}.log")
    check(local.scan_inputs(inputs, ScanOptions(jobs=1)))


def test_a_file_that_vanished_from_a_store_of_fsspec(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    memory: Any = fsspec.filesystem("memory")
    for broker in (1, 2):
        for path in brokers.log_dir(broker).rglob("*"):
            if path.is_file():
                memory.pipe(f"/vanishing/broker-{broker}/{path.relative_to(brokers.log_dir(broker))}", path.read_bytes())
    whole = kf.scan("memory://vanishing")
    assert (whole.verdict, whole.partitions[0].agreement.kind) == ("clean", "identical")
    inputs = gather(["memory://vanishing/broker-1"], ScanOptions(jobs=1))
    both = gather(["memory://vanishing/broker-1", "memory://vanishing/broker-2"], ScanOptions(jobs=1))
    for segment in (0, 29, 55):
        memory.rm(f"/vanishing/broker-1/t-0/{segment:020d}.log")
    check(local.scan_inputs(inputs, ScanOptions(jobs=1)))
    [partition] = local.scan_inputs(both, ScanOptions(jobs=1)).partitions
    check_unread(partition.replicas[0])
    assert (partition.not_read, partition.replicas[1].log_end_offset) == ([1], 75)
    memory.rm("/vanishing", recursive=True)
