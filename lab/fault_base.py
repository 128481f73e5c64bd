"""Makes real brokers write the base log of the fault gallery, with the same batches, segments and epochs as
`tests.support.logs`."""

import struct
import time
from pathlib import Path
from typing import Final

from kafka_forensics.model.files import EpochEntry
from lab.cluster import Cluster
from lab.errors import LabError
from lab.jvm import wait_until
from lab.workload import FLUSH_TIMEOUT_SECONDS, Writer, end_offsets
from tests.support.brokers import TOPIC
from tests.support.logs import ABORTING, COMMITTING, HEALTHY, IDEMPOTENT, Log, WrittenBatch, write_healthy_history

ROLL_MS: Final = 300_000
BETWEEN_SEGMENTS_MS: Final = 600_000
"""Records of the next segment have timestamps so much later that the broker rolls; markers have the brokers' time."""
BETWEEN_OFFSETS_MS: Final = 1000
SETTINGS: Final = {"segment.ms": str(ROLL_MS), "index.interval.bytes": "1", "segment.index.bytes": "1024"}
"""With an index entry for every batch but the first of a segment."""
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


class BrokerHistory:
    """Writes the base through clients: one batch per call, new segments by record timestamps, new epochs by restarting the
    leader."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.base_ms = int(time.time() * 1000)
        self.next_offset = 0
        self.open: set[int] = set()
        self.writers = {IDEMPOTENT: Writer(cluster, enable_idempotence=True)}
        for producer in (COMMITTING, ABORTING):
            writer = Writer(cluster, transactional_id=f"{topic}-{producer}", transaction_timeout_ms=900_000)
            writer.producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
            self.writers[producer] = writer

    def produce(self, producer_id: int = IDEMPOTENT, count: int = 3, *, transactional: bool = False) -> None:
        """Write one batch; begin a transaction if the producer has none open. Raises LabError."""
        producer = self.writers[producer_id].producer
        if transactional and producer_id not in self.open:
            producer.begin_transaction()
            self.open.add(producer_id)
        stamp = self.base_ms + BETWEEN_OFFSETS_MS * self.next_offset
        expected = Log(next_offset=self.next_offset).records(count)
        delivered: list[tuple[str, int | None]] = []
        for record in expected:
            producer.produce(
                self.topic,
                record.value,
                record.key,
                0,
                timestamp=stamp,
                on_delivery=lambda error, message: delivered.append((str(error), message.offset())),
            )
        if producer.flush(FLUSH_TIMEOUT_SECONDS) or delivered[-1:] != [("None", self.next_offset + count - 1)]:
            raise LabError(f"{self.topic}: a batch at {self.next_offset} was not written: {delivered}")
        self.next_offset += count

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """End the transaction, and wait for the coordinator's marker."""
        producer = self.writers[producer_id].producer
        end = producer.commit_transaction if commit else producer.abort_transaction
        end(FLUSH_TIMEOUT_SECONDS)
        self.open.remove(producer_id)
        self.next_offset += 1
        awaited = f"the marker of {self.topic} at {self.next_offset - 1}"
        wait_until(
            awaited, lambda: end_offsets(self.cluster, {self.topic: 1})[self.topic, 0] == self.next_offset, timeout_seconds=20
        )

    def roll(self) -> None:
        """Make the next record so much later that it begins a segment."""
        self.base_ms += BETWEEN_SEGMENTS_MS

    def lead(self, leader_epoch: int) -> None:
        """Restart the leader, so that another broker leads the next epoch. Raises LabError."""
        leader, everyone = self.cluster.leader_and_isr(self.topic)
        self.cluster.restart(leader)
        self.cluster.await_isr(self.topic, everyone)
        if self.cluster.leader_and_isr(self.topic)[0] == leader:
            raise LabError(f"{self.topic}: broker {leader} leads epoch {leader_epoch} too")


def read_log(directory: Path) -> Log:
    """Read a partition's log: batches from their headers, segments from the file names, epochs from the batches."""
    log = Log()
    for path in sorted(directory.glob("*.log")):
        segment, data, position = int(path.stem), path.read_bytes(), 0
        log.segments.append(segment)
        while position + _HEADER.size <= len(data):
            base_offset, length, epoch, *_, last_delta, _, max_timestamp, _, _, _, _ = _HEADER.unpack_from(data, position)
            batch = data[position : position + 12 + length]
            log.batches.append(WrittenBatch(batch, base_offset, base_offset + last_delta, segment, position, max_timestamp))
            if not log.epochs or log.epochs[-1].leader_epoch < epoch:
                log.epochs.append(EpochEntry(epoch, base_offset))
            position += len(batch)
        log.leader_epoch = log.epochs[-1].leader_epoch
    log.next_offset = log.batches[-1].last_offset + 1
    return log


def layout(log: Log) -> tuple[list[tuple[int, int, int, int]], list[int], list[EpochEntry]]:
    """The parts of a log that injected faults depend on: offsets, segment and position of each batch; segments; epochs."""
    return (
        [(batch.base_offset, batch.last_offset, batch.segment, batch.position) for batch in log.batches],
        log.segments,
        log.epochs,
    )


def write_fault_base(cluster: Cluster, topic: str = TOPIC) -> None:
    """Write the base into partition 0 of a new topic on all three brokers, committed to its end. Raises LabError."""
    cluster.create_topic(topic, assignment=[[1, 2, 3]], settings=SETTINGS)
    history = BrokerHistory(cluster, topic)
    write_healthy_history(history)
    for broker in cluster.brokers:
        cluster.await_high_watermark(broker, topic, HEALTHY.next_offset)


def make_fault_base(cluster: Cluster, destination: Path) -> Log:
    """Write the base, stop the brokers, and copy their log directories to `b1`, `b2` and `b3` below `destination`.

    Broker 1 stops last, so that it alone is in the ISR, in every run. Raises LabError if the layout differs from the base.
    """
    write_fault_base(cluster)
    for broker in reversed(cluster.brokers):
        cluster.stop(broker)
    copy_brokers(cluster, destination)
    logs = [read_log(destination / f"b{broker}" / f"{TOPIC}-0") for broker in cluster.brokers]
    for broker, log in zip(cluster.brokers, logs, strict=True):
        if layout(log) != layout(HEALTHY):
            raise LabError(f"broker {broker} wrote another layout than the base's: {layout(log)}")
    return logs[0]


def copy_brokers(cluster: Cluster, destination: Path) -> None:
    """Copy the brokers' log directories as `b1`, `b2` and `b3`."""
    cluster.copy(destination)
    for broker in cluster.brokers:
        (destination / cluster.log_dir(broker).name).rename(destination / f"b{broker}")
