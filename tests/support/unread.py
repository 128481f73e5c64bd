"""Logs that exist and cannot be read: makes sources refuse files, and checks that results claim nothing about them."""

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
"""Fields of a replica's row that are null when nothing of its log could be read."""


def refuse(monkeypatch: pytest.MonkeyPatch, refused: Callable[[Path], bool], reason: str = REASON) -> None:
    """Make local sources fail to open the files for which `refused` is true."""
    original_open = LocalSource.open

    def refusing_open(self: LocalSource, path: str) -> ByteFile:
        if refused(Path(self.name) / path):
            raise SourceError(path, reason)
        return original_open(self, path)

    monkeypatch.setattr(LocalSource, "open", refusing_open)


def refuse_listing(monkeypatch: pytest.MonkeyPatch, refused: Callable[[str, str], bool]) -> None:
    """Make local sources fail to list the folders for which `refused(source name, path)` is true."""
    original_list = LocalSource.list

    def refusing_list(self: LocalSource, path: str = "") -> list[Entry]:
        if refused(self.name, path):
            raise SourceError(path, REASON)
        return original_list(self, path)

    monkeypatch.setattr(LocalSource, "list", refusing_list)


def refuse_logs(monkeypatch: pytest.MonkeyPatch, brokers: Brokers, of: Collection[int]) -> None:
    log_dirs = [brokers.log_dir(broker) for broker in of]
    refuse(monkeypatch, lambda path: path.suffix == ".log" and any(path.is_relative_to(log_dir) for log_dir in log_dirs))


def check_unread(replica: ReplicaSummary) -> None:
    """Assert that a replica's row claims nothing about its log."""
    assert replica.read is ReadExtent.NONE
    assert [name for name in NULLS if getattr(replica, name) is not None] == []
    assert replica.transactions == TransactionCounts(None, None, None, None)


def check_unknown(partition: PartitionSummary) -> None:
    """Assert that a partition's row claims nothing about its logs."""
    assert (partition.verdict, partition.read) == ("unknown", ReadExtent.NONE)
    assert (partition.high_watermark_at_least, partition.high_watermark_witness) == (None, None)
    assert (partition.agreement.kind, partition.agreement.common_end_offset) == ("not_compared", None)
    for replica in partition.replicas:
        check_unread(replica)
    assert partition.not_read == [replica.broker for replica in partition.replicas]
