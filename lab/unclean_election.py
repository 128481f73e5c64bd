"""Makes two samples of one cluster: stopped cleanly, and during an unclean election."""

import time
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster, settled
from lab.errors import LabError
from lab.jvm import wait_until
from lab.workload import (
    CODECS,
    FLUSH_TIMEOUT_SECONDS,
    Message,
    Writer,
    commit_group,
    end_offsets,
    event,
    write_append_time,
    write_codecs,
    write_orders,
    write_payments,
    write_profiles,
)

TOPICS: Final = {"orders": 2, "payments": 2, "append-time": 1, "profiles": 1, **{f"codec-{codec}": 1 for codec in CODECS}}
"""The healthy topics and their number of partitions."""
OLD_LEADER, STOPPED, STALE = 2, 3, 1
COMMON_END, ALONE, AFTERWARDS = 300, 70, 45


def write_companions(cluster: Cluster) -> None:
    """Write the healthy topics, commit offsets, and wait until logs are compacted and checkpoints written."""
    write_orders(cluster)
    write_payments(cluster)
    write_codecs(cluster)
    write_append_time(cluster)
    write_profiles(cluster)
    commit_group(cluster)
    wait_until("checkpoints follow", settled(cluster, end_offsets(cluster, TOPICS)), timeout_seconds=30)
    wait_until("profiles is compacted", lambda: all(compacted(cluster, broker) for broker in cluster.brokers), timeout_seconds=60)


def compacted(cluster: Cluster, broker: int) -> bool:
    """Whether a broker has cleaned `profiles` up to its active segment and deleted the segments it replaced."""
    directory = cluster.partition_dir(broker, "profiles")
    active = max(int(path.stem) for path in directory.glob("*.log"))
    cleaned = cluster.checkpointed(broker, "cleaner-offset-checkpoint").get(("profiles", 0), 0)
    unfinished = [path for path in directory.iterdir() if path.suffix in {".cleaned", ".swap", ".deleted"}]
    return active > 0 and cleaned == active and not unfinished


def fully_replicated(cluster: Cluster) -> bool:
    """Whether every partition has a leader and all its replicas in sync, as the answering broker knows."""
    admin = cluster.admin()
    try:
        topics = admin.list_topics(timeout=30).topics.values()
    except KafkaException:
        return False
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return bool(partitions) and all(
        partition.leader >= 0 and sorted(partition.isrs) == sorted(partition.replicas) for partition in partitions
    )


def audit_messages(kind: str, first: int, count: int) -> list[Message]:
    """`count` records for `audit`, numbered from `first`."""
    return [
        Message(event(kind, number, user=f"user-{number % 17:02}"), b"user-%02d" % (number % 17))
        for number in range(first, first + count)
    ]


def write_audit(cluster: Cluster, kind: str, first: int, count: int, batch: int, acks: str, topic: str = "audit") -> int:
    """Write records to a topic in batches; return the end offset that the leader acknowledged."""
    writer = Writer(cluster, acks=acks)
    for start in range(first, first + count, batch):
        writer.batch(topic, audit_messages(kind, start, batch))
    return writer.end_offset


def lose_audit(cluster: Cluster, also: Mapping[str, dict[str, str]] | None = None) -> dict[str, int]:
    """Make an unclean election of `audit`, and leave the cluster in that state; return the end offsets acknowledged on the way.

    Three replicas hold 300 records. One is stopped, one frozen; the leader, alone in sync, commits 70 more and dies. The frozen one
    resumes, is elected uncleanly, and appends 45 others at their offsets. The topics in `also` (name → settings) go through the
    same.
    """
    usual = {"min.insync.replicas": "1", "segment.index.bytes": "1024"}
    topics = {"audit": usual, **{topic: usual | settings for topic, settings in (also or {}).items()}}

    def written(kind: str, first: int, count: int, batch: int, acks: str) -> int:
        ends = {write_audit(cluster, kind, first, count, batch, acks, topic) for topic in topics}
        if len(ends) > 1:
            raise LabError(f"the topics end at {sorted(ends)}")
        return ends.pop()

    for topic, settings in topics.items():
        cluster.create_topic(topic, assignment=[[OLD_LEADER, STOPPED, STALE]], settings=settings)
    common_end = written("login", 0, COMMON_END, 20, "all")
    for broker, topic in product(cluster.brokers, topics):
        cluster.await_high_watermark(broker, topic, common_end)
    cluster.stop(STOPPED)
    cluster.freeze(STALE)
    for topic in topics:
        cluster.await_isr(topic, [OLD_LEADER])
    old_end = written("login", COMMON_END, ALONE, 10, "1")
    for topic in topics:
        cluster.await_high_watermark(OLD_LEADER, topic, old_end)
    cluster.kill(OLD_LEADER)
    cluster.thaw(STALE)
    for topic in topics:
        wait_until("the stale replica leads", partial(elected, cluster, topic), timeout_seconds=60, step_seconds=1.0)
    new_end = written("login-again", COMMON_END, AFTERWARDS, 15, "1")
    for topic in topics:
        cluster.await_high_watermark(STALE, topic, new_end)
    return {"common_end": common_end, "old_end": old_end, "new_end": new_end}


def elected(cluster: Cluster, topic: str) -> bool:
    """Request the unclean election; True once the stale replica leads."""
    try:
        cluster.elect_unclean(topic)
    except LabError:
        return False  # the controller still waits for the dead leader, or for the stale replica to return
    return cluster.leader_and_isr(topic)[0] == STALE


def check(ends: dict[str, int], tree: Path) -> None:
    """Check that the history went as planned and that the copies show it. Raises LabError."""
    planned = {"common_end": COMMON_END, "old_end": COMMON_END + ALONE, "new_end": COMMON_END + AFTERWARDS}
    if ends != planned:
        raise LabError(f"clients were told {ends}, planned was {planned}")
    logs = {broker: (tree / f"broker-{broker}" / "audit-0" / f"{0:020}.log").read_bytes() for broker in (1, 2, 3)}
    common = logs[STOPPED]
    for broker in (OLD_LEADER, STALE):
        if not logs[broker].startswith(common) or logs[broker] == common:
            raise LabError(f"broker {broker} does not go on from the common records of audit")


def make_unclean_election(work: Path) -> dict[str, int]:
    """Make the trees `healthy` and `unclean-election` below `work`, in one minute; return the acknowledged end offsets. Raises
    LabError."""
    with Cluster(work / "cluster") as cluster:
        write_companions(cluster)
        cluster.stop(*cluster.brokers)
        cluster.copy(work / "healthy")
        print("healthy: copied", flush=True)
        cluster.start(*cluster.brokers)
        wait_until("all replicas in sync", lambda: fully_replicated(cluster), timeout_seconds=60)
        wait_until("checkpoints follow", settled(cluster, end_offsets(cluster, TOPICS)), timeout_seconds=30)
        ends = lose_audit(cluster)
        cluster.copy(work / "unclean-election")
        print(f"unclean-election: copied, {ends}", flush=True)
    check(ends, work / "unclean-election")
    return ends


CHECKPOINTED_SECONDS: Final = 6
"""Kafka checkpoints high watermarks every 5 s."""
ALLOWED: Final = {"unclean.leader.election.enable": "true"}
"""Settings of every node that let the first broker that returns be elected, whatever it lacks."""
MANY: Final = "many"
Acknowledged = dict[tuple[int, int, int], bytes]
"""(leader, partition, offset) → value."""


def lose_partitions(cluster: Cluster, count: int, unharmed: int) -> Acknowledged:
    """Make an unclean election of `count` partitions by `ALLOWED` settings; return the acknowledged records. All brokers are down
    afterwards.

    As in `lose_audit`, broker 3 writes records alone and dies, broker 1 returns and is elected. In the last `unharmed` partitions
    only broker 1 has records that the others lack, so they need another leader than the rest.
    """
    kept, stopped, stale = 3, 2, 1
    acknowledged: Acknowledged = {}
    cluster.create_topic(MANY, assignment=[[stale, stopped, kept]] * count, settings={"min.insync.replicas": "1"})

    def write(leader: int, kind: str, partitions: Iterable[int], records: int, acks: str) -> None:
        producer = Writer(cluster, acks=acks, linger_ms=200).producer
        before = len(acknowledged)

        def delivered(error: object, message: Any) -> None:
            if error is None:
                acknowledged[leader, message.partition(), message.offset()] = message.value()

        rows = list(product(partitions, range(records)))
        for partition, number in rows:
            producer.produce(MANY, event(kind, number, partition=partition), partition=partition, on_delivery=delivered)
        if producer.flush(FLUSH_TIMEOUT_SECONDS) or len(acknowledged) - before != len(rows):
            raise LabError(f"{kind}: {len(acknowledged) - before} of {len(rows)} records were acknowledged")

    def led_alone(broker: int) -> bool:
        partitions = cluster.admin().list_topics(MANY, timeout=ADMIN_TIMEOUT_SECONDS).topics[MANY].partitions.values()
        return all((partition.leader, list(partition.isrs)) == (broker, [broker]) for partition in partitions)

    write(stale, "common", range(count), 5, "all")
    cluster.stop(stopped)
    cluster.freeze(stale)
    wait_until(f"broker {kept} leads alone", partial(led_alone, kept), timeout_seconds=60, step_seconds=1.0)
    write(kept, "kept", range(count - unharmed), 9, "1")
    time.sleep(CHECKPOINTED_SECONDS)
    cluster.kill(kept)
    cluster.thaw(stale)
    wait_until(f"broker {stale} leads alone", partial(led_alone, stale), timeout_seconds=60, step_seconds=1.0)
    write(stale, "again", range(count), 3, "1")
    time.sleep(CHECKPOINTED_SECONDS)
    cluster.stop(stale)
    return acknowledged
