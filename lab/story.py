"""Runs a history on one cluster: its clients, what they write, and copies of the log directories."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_forensics.model.results import ScanResult
from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster, settled
from lab.fault_base import copy_brokers
from lab.jvm import wait_until
from lab.workload import FLUSH_TIMEOUT_SECONDS, Message, Writer, end_offsets, event

ANSWERED_SECONDS: Final = 0.5
"""Until then a waiting fetch has been answered."""


def messages(kind: str, first: int, count: int) -> list[Message]:
    """`count` records numbered from `first`."""
    return [Message(event(kind, number), b"key-%d" % (number % 10)) for number in range(first, first + count)]


@dataclass
class Story:
    """A cluster and the state of its clients between steps of a history. Copies go below `root`."""

    cluster: Cluster
    root: Path
    partitions: dict[str, int]
    """Topic → number of partitions."""
    producers: dict[str, Writer] = field(default_factory=dict)
    """Transactional producers that continue later, or never."""
    disturbed: dict[str, ScanResult] = field(default_factory=dict)
    """Topic → result of a scan while brokers changed its logs."""

    def write(
        self, topic: str, count: int, *, kind: str = "event", partition: int = 0, batch_records: int = 10, acks: str = "all"
    ) -> int:
        """Write records in batches; return the end offset that the leader acknowledged."""
        writer = Writer(self.cluster, acks=acks)
        for first in range(0, count, batch_records):
            writer.batch(topic, messages(kind, first, min(batch_records, count - first)), partition)
        return writer.end_offset

    def write_unfetched(self, topic: str) -> None:
        """Write to the leader, broker 1, while the others are frozen for less than their session timeout.

        A fetch that a follower sent earlier may take the first batch, but not both.
        """
        writer = Writer(self.cluster, acks="1")
        writer.producer.list_topics(topic, timeout=ADMIN_TIMEOUT_SECONDS)
        self.cluster.freeze(2, 3)
        for first in (0, 3):
            writer.batch(topic, messages("uncommitted", first, 3))
            time.sleep(ANSWERED_SECONDS)

    def transactional(self, name: str) -> Writer:
        """A transactional producer, initialized, with a short socket timeout because of frozen brokers."""
        writer = Writer(self.cluster, transactional_id=name, transaction_timeout_ms=900_000, socket_timeout_ms=5000)
        writer.producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
        return writer

    def settle(self, *topics: str) -> None:
        """Wait until the high-watermark checkpoint of every running broker has the leaders' end offsets."""
        ends = end_offsets(self.cluster, {topic: self.partitions[topic] for topic in topics})
        wait_until(f"checkpoints of {topics} follow", settled(self.cluster, ends), timeout_seconds=30)

    def copy(self, name: str) -> Path:
        """Copy all log directories."""
        copy_brokers(self.cluster, self.root / name)
        return self.root / name
