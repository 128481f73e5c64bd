"""Batches that leaders accept because they dropped the producer's state too early: skipped sequence numbers, a fenced epoch."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.cluster import ADMIN_TIMEOUT_SECONDS
from lab.errors import LabError
from lab.fault_base import read_log
from lab.jvm import wait_until
from lab.raw_produce import raw_produce
from lab.story import Story
from lab.workload import Message, Writer, end_offsets, event

EXPIRATION: Final = "producer.id.expiration.ms"
CHECKED_EVERY_SECOND: Final = {"producer.id.expiration.check.interval.ms": "1000"}
"""A setting that brokers need at their start; by default they check every ten minutes."""
HOUR_MS: Final = 3_600_000
SKIPPED: Final = 3
"""The number of sequence numbers missing in `skipping`."""
_PRODUCER_ID: Final = slice(43, 51)
_PRODUCER_EPOCH: Final = slice(51, 53)


def forget_producers(story: Story) -> None:
    """Make leaders keep producer state for one second only, so that they accept two batches that they would refuse.

    `skipping`: offsets 0 to 5 of an idempotent producer, then a batch that skips `SKIPPED` sequence numbers. `fenced`: a
    transaction of epoch 0, aborted by its successor with a marker of epoch 1, then data of epoch 0 (KAFKA-9144).
    """
    cluster = story.cluster
    writer = Writer(cluster, enable_idempotence=True)
    for first in (0, 3):
        writer.batch("skipping", _messages(first, 3))
    fenced = story.transactional("fenced")
    fenced.producer.begin_transaction()
    fenced.batch("fenced", _messages(0, 5))
    story.producers["fenced"] = story.transactional("fenced")
    wait_until("the marker is written", lambda: end_offsets(cluster, {"fenced": 1})["fenced", 0] == 6, timeout_seconds=20)
    if _accepted(_sender(story, "skipping", 6 + SKIPPED)) or _accepted(_sender(story, "fenced", 5)):
        raise LabError("a leader that knows the producers took what it should refuse")
    _set_expiration(story, "1000")
    for topic, sequence in (("skipping", 6 + SKIPPED), ("fenced", 5)):
        accepted = partial(_accepted, _sender(story, topic, sequence))
        wait_until(f"the leader of {topic} forgot its producer", accepted, timeout_seconds=30)
    _set_expiration(story, None)
    for topic in ("skipping", "fenced"):
        story.write(topic, 5)


def _messages(first: int, count: int) -> list[Message]:
    return [Message(event("event", number), b"key-%d" % number) for number in range(first, first + count)]


def _sender(story: Story, topic: str, base_sequence: int) -> Callable[[], int]:
    """A function that sends three records, an hour old, as the producer that wrote the topic's first batch."""
    cluster = story.cluster
    leader, _ = cluster.leader_and_isr(topic)
    header = read_log(cluster.log_dir(leader) / f"{topic}-0").batches[0].data
    is_transactional = topic == "fenced"
    batch = write_batch(
        [RecordToWrite(b"key", b"stray-%d" % number) for number in range(3)],
        base_offset=0,
        base_timestamp=int(time.time() * 1000) - HOUR_MS,
        producer_id=int.from_bytes(header[_PRODUCER_ID], "big"),
        producer_epoch=int.from_bytes(header[_PRODUCER_EPOCH], "big"),
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    return lambda: raw_produce(cluster.ports[leader], topic, batch, transactional_id=topic if is_transactional else None)


def _accepted(send: Callable[[], int]) -> bool:
    """Send, and return whether the leader accepted."""
    try:
        send()
    except LabError:
        return False
    return True


def _set_expiration(story: Story, value: str | None) -> None:
    """Set `producer.id.expiration.ms` on every broker; None removes the setting."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    admin = story.cluster.admin()
    for broker in story.cluster.brokers:
        entry = ConfigEntry(EXPIRATION, value or "", incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(ADMIN_TIMEOUT_SECONDS)
