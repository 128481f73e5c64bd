"""How the table of versions judges a scan: by what clients and brokers say, and by that alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.version_histories import State
from lab.version_table import Cell

EVENTS = ("events", 0)


def loss(topic: str = "events") -> Finding:
    return finding("UNCLEAN_LOSS", Place(topic, 0, 1, offset_start=3, offset_end=5), severity=Severity.CRITICAL)


def lag(severity: Severity = Severity.INFO, **evidence: int) -> Finding:
    return finding("REPLICA_LAGS", Place("events", 0, 1, offset_start=3, offset_end=5), evidence, severity=severity)


def cell(tmp_path: Path, state: State, *findings: Finding) -> Cell:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=lab\nnode.id=1\n")
    (tmp_path / "events-0").mkdir(exist_ok=True)
    log = tmp_path / "events-0" / f"{0:020}.log"
    log.write_bytes(write_batch([RecordToWrite(b"k", b"v")], base_offset=0, base_timestamp=1_700_000_000_000))
    result = local.scan([str(tmp_path)], ScanOptions(jobs=1))
    return Cell("9.9.9", state, replace(result, findings=list(findings)))


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
