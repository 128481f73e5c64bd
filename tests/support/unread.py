"""Logs that exist and cannot be read: files refused by the source, and what an answer may say of them."""

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.model.results import PartitionSummary, ReadExtent, ReplicaSummary, TransactionCounts
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteFile, Entry
from tests.support.brokers import Brokers

REASON = "input/output error"
NULLS = (
    *("log_start_offset", "log_end_offset", "last_stable_offset", "leader_epochs", "batches"),
    *("records", "bytes", "missing_offsets", "recovery", "read_end_offset"),
)
"""What the row of a replica does not say when nothing of its log could be read."""


def refuse(monkeypatch: pytest.MonkeyPatch, refused: Callable[[Path], bool], reason: str = REASON) -> None:
    """Files of local sources for which `refused` is true cannot be opened."""
    opening = LocalSource.open

    def refusing(self: LocalSource, path: str) -> ByteFile:
        if refused(Path(self.name) / path):
            raise SourceError(path, reason)
        return opening(self, path)

    monkeypatch.setattr(LocalSource, "open", refusing)


def refuse_listing(monkeypatch: pytest.MonkeyPatch, refused: Callable[[str, str], bool]) -> None:
    """Folders of local sources, by the source's name and the path in it, for which `refused` is true cannot be listed."""
    listing = LocalSource.list

    def refusing(self: LocalSource, path: str = "") -> list[Entry]:
        if refused(self.name, path):
            raise SourceError(path, REASON)
        return listing(self, path)

    monkeypatch.setattr(LocalSource, "list", refusing)


def refuse_logs(monkeypatch: pytest.MonkeyPatch, brokers: Brokers, of: Collection[int]) -> None:
    log_dirs = [brokers.log_dir(broker) for broker in of]
    refuse(monkeypatch, lambda path: path.suffix == ".log" and any(path.is_relative_to(each) for each in log_dirs))


def check_unread(replica: ReplicaSummary) -> None:
    """Nothing is said of the replica's log."""
    assert replica.read is ReadExtent.NONE
    assert [name for name in NULLS if getattr(replica, name) is not None] == []
    assert replica.transactions == TransactionCounts(None, None, None, None)


def check_unknown(partition: PartitionSummary) -> None:
    """Nothing is said of the partition."""
    assert (partition.verdict, partition.read) == ("unknown", ReadExtent.NONE)
    assert (partition.high_watermark_at_least, partition.high_watermark_witness) == (None, None)
    assert (partition.agreement.kind, partition.agreement.common_end_offset) == ("not_compared", None)
    for replica in partition.replicas:
        check_unread(replica)
    assert partition.not_read == [replica.broker for replica in partition.replicas]
