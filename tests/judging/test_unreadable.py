"""What cannot be listed is named as the user typed it, and the rest is analysed."""

from pathlib import Path

import pytest

from kafka_forensics.engine.local import scan
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import Entry
from tests.support.faults import healthy


@pytest.mark.parametrize("refused", ["", "t-0"])
def test_a_directory_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    brokers = healthy(tmp_path)
    broken = str(brokers.log_dir(2))
    listing = LocalSource.list

    def refusing(self: LocalSource, path: str = "") -> list[Entry]:
        if self.name == broken and path == refused:
            raise SourceError(path, "permission denied")
        return listing(self, path)

    monkeypatch.setattr(LocalSource, "list", refusing)
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    named = f"{broken}/{refused}" if refused else broken
    assert [(incomplete.path, incomplete.reason) for incomplete in result.incomplete] == [(named, "permission denied")]
    assert [replica.broker for replica in result.partitions[0].replicas] == ([1, 2, 3] if refused else [1, 3])
    assert result.partitions[0].not_read == ([2] if refused else [])
    assert [finding.kind for finding in result.findings if finding.severity.rank > 0] == []
