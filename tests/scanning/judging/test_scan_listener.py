"""The lines that a running scan writes are those of its result."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import BrokerSummary, PartitionSummary, ScanResult
from kafka_forensics.scanning.engine import local
from tests.gallery.case import Case
from tests.gallery.cases import one_of_each_fault
from tests.support.places import SAMPLES


@dataclass
class LineListener:
    """The lines that a scan reports while it runs."""

    text: str = ""
    partitions: list[tuple[str, int]] = field(default_factory=list)

    def on_start(self, brokers: list[BrokerSummary]) -> None:
        assert not self.text
        self.text += "".join(json_document.broker_lines(brokers))

    def on_final(self, partition: PartitionSummary, findings: list[Finding]) -> None:
        self.text += "".join(json_document.partition_lines(partition, findings))
        self.partitions.append((partition.topic, partition.partition))


def listened_scan(paths: Sequence[str], options: ScanOptions) -> tuple[LineListener, ScanResult]:
    listener = LineListener()
    result = local.scan(list(paths), options, None, listener)
    text = listener.text + "".join(json_document.lines_at_end(result, len(listener.partitions)))
    assert text == "".join(json_document.lines(result))
    assert listener.partitions == sorted(listener.partitions)
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows[-1]["type"] == "summary"
    expected = [{"type": "partition", **json_document.partition_object(partition)} for partition in result.partitions]
    expected += [
        {"type": "replica", "topic": partition.topic, "partition": partition.partition, **json_document.replica_object(replica)}
        for partition in result.partitions
        for replica in partition.replicas
    ]
    expected += [{"type": "finding", **json_document.finding_object(finding)} for finding in result.findings]
    final = [row for row in rows if row["type"] in ("partition", "replica", "finding")]
    assert Counter(map(json.dumps, final)) == Counter(map(json.dumps, expected))
    findings = [row for row in rows if row["type"] == "finding"]
    numbered = sorted(number for row in rows if row["type"] == "incident" for number in row["findings"])
    assert numbered == [number for number, row in enumerate(findings) if row["severity"] != "info"]
    return listener, result


@pytest.mark.parametrize("sample", ["healthy", "silent-divergence", "unclean-election"])
@pytest.mark.parametrize("deep", [True, False])
def test_lines_of_samples_equal_those_of_the_result(sample: str, deep: bool) -> None:
    listener, result = listened_scan([str(SAMPLES / sample)], ScanOptions(deep=deep))
    deferred = {(partition.topic, partition.partition) for partition in result.partitions} - set(listener.partitions)
    assert ("orders", 0) not in deferred
    assert ("audit", 0) not in deferred
    assert (("payments", 0) in deferred) == (sample != "silent-divergence")  # it has transactions


@pytest.mark.parametrize("case", one_of_each_fault())
@pytest.mark.faults
def test_lines_of_faults_equal_those_of_the_result(case: Case, tmp_path: Path) -> None:
    case.make(tmp_path)
    for deep in {case.deep, False}:
        listened_scan([str(tmp_path)], ScanOptions(live=case.live, deep=deep))
