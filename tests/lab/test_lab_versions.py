"""How the table of versions judges a scan: only by what clients and brokers report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.scanning.engine import local
from lab.version_histories import State
from lab.version_table import Cell
from tests.support.brokers import put_meta_properties, put_segment
from tests.support.segments import batch

EVENTS = ("events", 0)


def loss(topic: str = "events") -> Finding:
    return finding("UNCLEAN_LOSS", Place(topic, 0, 1, offset_start=3, offset_end=5), severity=Severity.CRITICAL)


def lag(severity: Severity = Severity.INFO, **evidence: int) -> Finding:
    return finding("REPLICA_LAGS", Place("events", 0, 1, offset_start=3, offset_end=5), evidence, severity=severity)


def cell(tmp_path: Path, state: State, *findings: Finding) -> Cell:
    put_meta_properties(tmp_path, 1)
    put_segment(tmp_path / "events-0", 0, batch(0))
    return Cell("9.9.9", state, replace(local.scan([str(tmp_path)], ScanOptions(jobs=1)), findings=list(findings)))


def lossy(name: str = "lossy", offsets: tuple[int, ...] = (3, 4), **more: Any) -> State:
    return State(name, (), **{"touched": frozenset({EVENTS}), "lost": {EVENTS: list(offsets)} if offsets else {}} | more)


@pytest.mark.parametrize(
    ("state", "said", "wrong"),
    [
        (State("healthy", ()), [lag()], []),
        (State("healthy", ()), [lag(Severity.WARNING)], ["false alarm: warning REPLICA_LAGS events-0 on 1 [3, 5)"]),
        (State("live", (), live=True), [loss()], ["false alarm: critical UNCLEAN_LOSS events-0 on 1 [3, 5)"]),
        (lossy(), [loss()], []),
        (lossy(), [lag()], ["missed: events-0 lost [(3, 5)]"]),
        (lossy(healed=True), [], []),
        (lossy("older", (3,), only_suspect=True), [lag(committed=2)], []),
        (lossy("older", (3,), touched=None, only_suspect=True), [lag()], ["missed: events-0 lost [(3, 4)]"]),
        (lossy(), [loss(), loss("orders")], ["false alarm: critical UNCLEAN_LOSS orders-0 on 1 [3, 5)"]),
        (lossy("damaged", (), started=True), [], ["missed: nothing said of events-0"]),
        (lossy("damaged", (), started=True), [lag()], []),
    ],
)
def test_a_scan_is_right_or_wrong(tmp_path: Path, state: State, said: list[Finding], wrong: list[str]) -> None:
    assert cell(tmp_path, state, *said).wrong == wrong
