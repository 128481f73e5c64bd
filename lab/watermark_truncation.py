"""Runs one schedule of failures on two versions: 0.10.2.2 truncates acknowledged records at a stale high watermark, 4.3.0 keeps
them.

The schedule is that of `lab/silent_divergence.py`: all replicas acknowledge ten records, but followers do not know yet that they
are committed. The leader is killed, the next one is elected while it is frozen; the third is made its follower, and then elected.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from lab.cluster import Cluster
from lab.errors import LabError
from lab.jvm import wait_until
from lab.processes import listening
from lab.settings import LOOPBACK
from lab.silent_divergence import (
    AFTER,
    BROKERS,
    HALF_A_SESSION_SECONDS,
    PAID,
    SETTINGS,
    TOPIC,
    OldCluster,
    cut_to_watermark,
    diverge,
)
from lab.workload import Message, Writer

SESSION: Final = {"broker.session.timeout.ms": SETTINGS["zookeeper.session.timeout.ms"]}
NEW_SETTINGS: Final = {
    name: SETTINGS[name]
    for name in ("min.insync.replicas", "replica.fetch.wait.max.ms", "replica.lag.time.max.ms", "unclean.leader.election.enable")
}
READ_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class History:
    """What happened on one version. All paths are folders of log directories."""

    between: Path
    """Copies made when the third leader has appended three records, the first is dead and the second frozen."""
    after: Path
    """Copies made when all are in sync again."""
    read: tuple[bytes, ...]
    """The values that a consumer then reads from the beginning."""
    follower_watermarks: Mapping[int, int]
    """Follower → high watermark in its checkpoint when the first leader was killed; followers without one are missing."""
    listens: frozenset[str]
    """Addresses on which the nodes listen."""


def read_all(bootstrap: str, count: int) -> tuple[bytes, ...]:
    """Read `count` values of the topic from its beginning, and any that arrive within the next second. Raises LabError."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0})
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + READ_SECONDS
        while len(values) < count:
            if time.monotonic() > deadline:
                raise LabError(f"{len(values)} of {count} records read in {READ_SECONDS} s")
            values += _consume(consumer)
        values += _consume(consumer)
    finally:
        consumer.close()
    return tuple(values)


def _consume(consumer: Consumer) -> list[bytes]:
    messages = consumer.consume(num_messages=100, timeout=1.0)
    return [bytes(message.value() or b"") for message in messages if message.error() is None]


def on_old(directory: Path, root: Path) -> History:
    """Run the schedule on Kafka 0.10.2.2, about 50 s; copies go below `root`. Raises LabError."""
    between, after = root / "0.10.2.2-between", root / "0.10.2.2-after"
    with OldCluster(directory) as cluster:
        cut_to_watermark(cluster)
        watermarks = {broker: cluster.high_watermark(broker) for broker in BROKERS[1:]}
        cluster.copy(between)
        diverge(cluster)
        cluster.copy(after)
        read = read_all(f"{LOOPBACK}:{cluster.ports[3]}", len(AFTER))
        nodes = [server.pid for server in cluster.servers if server.running]
        listens = frozenset(address for node in nodes for address, _ in listening(node))
    return History(
        between, after, read, {broker: watermark for broker, watermark in watermarks.items() if watermark is not None}, listens
    )


def on_new(directory: Path, root: Path) -> History:
    """Run the schedule on Kafka 4.3.0, about 50 s; copies go below `root`. Raises LabError."""
    between, after = root / "4.3.0-between", root / "4.3.0-after"
    with Cluster(directory, broker_settings=NEW_SETTINGS, controller_settings=SESSION) as cluster:
        cluster.create_topic(TOPIC, assignment=[list(BROKERS)])
        Writer(cluster).batch(TOPIC, [Message(value) for value in PAID])
        cluster.await_high_watermark(1, TOPIC, len(PAID))
        watermarks = {broker: cluster.checkpointed(broker).get((TOPIC, 0)) for broker in BROKERS[1:]}
        cluster.kill(1)
        time.sleep(HALF_A_SESSION_SECONDS)
        cluster.freeze(2)
        wait_until("broker 2 leads, frozen", lambda: cluster.leader_and_isr(TOPIC)[0] == 2, timeout_seconds=30)
        wait_until("broker 3 leads", lambda: cluster.leader_and_isr(TOPIC) == (3, [3]), timeout_seconds=30)
        Writer(cluster, acks="1", bootstrap_servers=cluster.awake).batch(TOPIC, [Message(value) for value in AFTER])
        cluster.copy(between, [*cluster.controllers, *BROKERS])
        cluster.start(1)
        cluster.thaw(2)
        for broker in BROKERS:  # the checkpoints, not the ISR: a thawed broker still reports the old ISR
            cluster.await_high_watermark(broker, TOPIC, len(PAID + AFTER))
        cluster.copy(after, [*cluster.controllers, *BROKERS])
        read = read_all(cluster.awake, len(PAID + AFTER))
        nodes = [cluster.server(node).pid for node in (*cluster.controllers, *BROKERS)]
        listens = frozenset(address for node in nodes for address, _ in listening(node))
    return History(
        between, after, read, {broker: watermark for broker, watermark in watermarks.items() if watermark is not None}, listens
    )
