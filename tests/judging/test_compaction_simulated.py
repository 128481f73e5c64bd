"""What cleaners do by their own rules, at times of their own, is never called a difference; what they never do always is."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from tests.support.simulated_cleaners import Replica, Told, clusters, written

pytestmark = pytest.mark.properties

EXPECTED = frozenset({"COMPACTION_SKEW", "REPLICA_LAGS", "TXN_OPEN", "HW_UNKNOWN"})


def scanned(told: Told, replicas: list[Replica]) -> ScanResult:
    with tempfile.TemporaryDirectory() as folder:
        return local.scan(written(told, replicas, Path(folder)), ScanOptions())


@given(clusters())
def test_cleaning_by_the_rules_is_no_difference(cluster: tuple[Told, list[Replica]]) -> None:
    result = scanned(*cluster)
    assert {finding.severity.value for finding in result.findings} <= {"info"}, result.findings
    assert {finding.kind for finding in result.findings} <= EXPECTED


@given(clusters(), st.data())
def test_a_latest_value_that_one_replica_lost_is_told(cluster: tuple[Told, list[Replica]], draw: st.DataObject) -> None:
    told, replicas = cluster
    replicas = replicas[:2]
    table: dict[str, int] = {}
    for offset, fact in enumerate(told.facts):
        if fact.key is not None and fact.commits:
            table[fact.key] = offset
    alive = sorted(offset for offset in table.values() if told.facts[offset].value is not None)
    victim = draw.draw(st.sampled_from(alive[:-1] or alive))
    others = [told.facts[one].value for one in replicas[1].kept - {victim} if told.facts[one].key == told.facts[victim].key]
    replicas[1].kept.discard(victim)
    findings = [finding for finding in scanned(told, replicas).findings if finding.kind == "COMPACTED_VALUE_DIFFERS"]
    if told.facts[victim].value in others:
        return  # the same value stood there before
    assert [(finding.severity.value, finding.place.offset_start, finding.evidence["keys"]) for finding in findings] == [
        ("critical", victim, 1)
    ]
    assert findings[0].evidence.get("held_by", [1]) == [1]
