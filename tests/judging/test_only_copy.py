"""What is advised where a single copy of a partition was given: nothing that needs another one."""

from pathlib import Path

import pytest

from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.wording import advice
from tests.support.faults import Brokers, healthy

ONLY = "Only one copy was looked at"


def damaged(root: Path) -> Brokers:
    """On broker 2 a batch has a flipped bit, and a segment is gone."""
    brokers = healthy(root)
    brokers.flip(2, brokers.log.at(5), 100)
    for suffix in ("log", "index", "timeindex"):
        brokers.file(2, 29, suffix).unlink()
    return brokers


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("broker", [None, "2"])
def test_comparing_is_advised_where_several_copies_were_given(tmp_path: Path, together: bool, broker: str | None) -> None:
    """Though one of them alone is looked at."""
    brokers = damaged(tmp_path)
    paths = brokers.log_dirs if together else [brokers.log_dir(2)]
    findings = scan([str(path) for path in paths], ScanOptions(broker=broker)).findings
    assert {finding.kind for finding in findings} >= {"BATCH_CRC_MISMATCH", "SEGMENT_MISSING"}
    texts = [
        advice(finding) or "" for finding in findings if finding.kind in ("BATCH_CRC_MISMATCH", "SEGMENT_MISSING", "OFFSET_GAP")
    ]
    assert all(("kafka-forensics compare" in text) is together for text in texts)
    assert all((ONLY in text) is not together for text in texts)
