"""Damaged or absent identity files of controllers are as severe as those of brokers."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.wording import message
from kafka_forensics.writers.files import write_quorum_state
from tests.support.brokers import put_meta_properties
from tests.support.controllers import ControllerLog, topic


@pytest.mark.parametrize(
    ("data", "severity", "words"),
    [
        (None, "info", "it is not in this copy"),
        (b"", "error", "it has 0 bytes"),
        (
            b"version=1\nnode.id=100\ncluster.id=\n",
            "error",
            "its cluster.id is empty (line 3); its content is unknown; the node runs",
        ),
    ],
)
def test_of_a_controller(tmp_path: Path, data: bytes | None, severity: str, words: str) -> None:
    directory = ControllerLog().lead([100]).append(topic()).put(tmp_path / "c100", 100)
    (directory / "quorum-state").write_bytes(write_quorum_state(1, 0, [100]))
    path = directory.parent / "meta.properties"
    path.unlink() if data is None else path.write_bytes(data)
    (found,) = [
        finding for finding in scan([str(tmp_path)], ScanOptions(jobs=1)).findings if finding.kind == "CHECKPOINT_MALFORMED"
    ]
    assert str(found.severity) == severity
    assert words in message(found)
    put_meta_properties(directory.parent, 100)
    assert [finding.kind for finding in scan([str(tmp_path)], ScanOptions(jobs=1)).findings] == []
