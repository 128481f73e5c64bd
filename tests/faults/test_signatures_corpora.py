"""Which incidents real brokers' log directories match: the two of Kafka 0.10.2.2 and the unclean election, and no healthy one."""

from pathlib import Path

import pytest

from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Confidence
from tests.support.archives import of_brokers

EXPECTED: dict[str, list[tuple[str, str, int, int]]] = {
    "kafka-0.10.2.2-hw-truncation": [("d4", "ledger", 0, 10)],
    "kafka-0.10.2.2-hw-divergence": [("d4", "ledger", 0, 3)],
    "kafka-4.3.0-unclean": [("d6", "audit", 300, 370)],
    "kafka-4.3.0-healthy": [],
    "kafka-4.3.0-lag": [],
    "kafka-4.3.0-clean-end": [],
    "public-five-brokers": [],
    "public-magic0-golden": [],
}


@pytest.mark.parametrize("name", of_brokers(*EXPECTED))
def test_what_real_directories_match(archives: Path, name: str) -> None:
    findings = scan([str(archives / f"{name}.tar.xz")], ScanOptions()).findings
    matched = [finding for finding in findings if finding.kind == "INCIDENT_SIGNATURE"]
    places = [
        (finding.evidence["incident"], finding.place.topic, finding.place.offset_start, finding.place.offset_end)
        for finding in matched
    ]
    assert places == EXPECTED[name]
    assert {finding.confidence for finding in matched} <= {Confidence.INFERRED}
    assert all(finding.evidence["does_not_fit"] == [] for finding in matched)
    if name == "kafka-4.3.0-unclean":
        assert matched[0].evidence["version_at_least"] == "4.3.0"
        assert matched[0].evidence["version_witnesses"][-1] == "metadata.version 30: 4.3.0 or later"
