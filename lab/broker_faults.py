"""Faults that real brokers produce: one history of three brokers with a topic for every fault, copied at many moments."""

import time
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster
from lab.errors import LabError
from lab.fault_base import read_log
from lab.forgotten_producers import CHECKED_EVERY_SECOND, forget_producers
from lab.jvm import wait_until
from lab.live_evidence import TOPICS as LIVELY, take_live
from lab.power_failure import STEP, TOPICS as PARTLY_FLUSHED, fail_all_at_once, fail_the_last
from lab.raw_produce import raw_produce
from lab.story import Story, messages
from lab.unclean_election import fully_replicated
from lab.workload import CODECS, FLUSH_TIMEOUT_SECONDS, SMALL_SEGMENTS, Writer, end_offsets

OLD_LEADER, STOPPED, STALE = 2, 3, 1
"""Brokers of the unclean election: one dies with records that only it has, one is down before, one is frozen and then elected."""
BROKER_SETTINGS: Final = {
    "transaction.partition.verification.enable": "false",
    "log.segment.delete.delay.ms": "600000",
    **CHECKED_EVERY_SECOND,
}
"""As before Kafka 3.6, a leader accepts transactional batches unknown to the coordinator (KIP-890); deleted files stay 10
minutes."""
FORGOTTEN_PRODUCER: Final = 987_654
HOUR_MS: Final = 3_600_000
COMPACT: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": str(24 * HOUR_MS),
    "file.delete.delay.ms": "1000",
    **SMALL_SEGMENTS,
}
TOPICS: Final[dict[str, tuple[list[list[int]], dict[str, str]]]] = {
    "trim": ([[1, 2, 3]], SMALL_SEGMENTS),
    "codecs": ([[1, 2, 3]], {}),
    "reserved": ([[1, 2, 3]], {"preallocate": "true", "segment.bytes": "1048576"}),
    "open": ([[1, 2, 3]], {}),
    "hanging": ([[1, 2, 3]], {}),
    "late": ([[1, 2, 3]], {}),
    "skipping": ([[1, 2, 3]], {}),
    "fenced": ([[1, 2, 3]], {}),
    "fork": ([[1, 2, 3]], {}),
    "compacted": ([[2, 1, 3]], COMPACT),
    "again": ([[2, 1, 3]], {}),
    "gone": ([[2, 1, 3]], {}),
    "lag": ([[2, 3, 1]], {}),
    "loss": ([[2, 3, 1]], {}),
    "pay": ([[2, 3, 1]] * 2, {}),
    "torn": ([[2, 3, 1]] * 2, {}),
    **{topic: ([[1, 2, 3]], {}) for topic in PARTLY_FLUSHED},
    **{topic: ([[1, 2, 3]], settings) for topic, settings in LIVELY.items()},
}
"""Topic → replicas of its partitions (leader first), settings."""
EARLIER: Final = tuple(topic for topic in TOPICS if topic not in LIVELY)
"""Topics created at the start."""
LOST: Final = (("loss", 0), ("pay", 1), ("torn", 1))
"""Partitions with an unclean election."""
INTERNAL: Final = ("__transaction_state", "__consumer_offsets")


def create_all(cluster: Cluster) -> None:
    """Create every topic but those of `live_evidence`, each with its intended leader."""
    for topic in EARLIER:
        assignment, settings = TOPICS[topic]
        cluster.create_topic(topic, assignment=assignment, settings=settings)


def write_all(story: Story) -> None:
    """Write most topics while all brokers are in sync."""
    cluster = story.cluster
    for topic in ("trim", "fork", "again", "gone", "lag", "reserved", "loss"):
        story.write(topic, 60, batch_records=20 if topic == "loss" else 3)
    for topic in PARTLY_FLUSHED:
        story.write(topic, STEP)
    for codec in CODECS:
        Writer(cluster, compression_type=codec).batch("codecs", messages(codec * 20, 0, 10))
    profiles = Writer(cluster)
    for first in range(0, 500, 10):
        profiles.batch("compacted", messages("profile", first, 10))
    admin = cluster.admin()
    admin.delete_records([TopicPartition("trim", 0, 31)])[TopicPartition("trim", 0)].result(ADMIN_TIMEOUT_SECONDS)
    write_transactions(story)
    story.settle(*EARLIER)


def write_transactions(story: Story) -> None:
    """Write transactions: one stays open, one ends later, one is unknown to the coordinator, one continues after its marker."""
    cluster = story.cluster
    for name in ("open", "torn"):
        story.producers[name] = story.transactional(name)
        story.producers[name].producer.begin_transaction()
    story.producers["open"].batch("open", messages("open", 0, 5))
    story.write("open", 5)
    pay = story.producers["pay"] = story.transactional("pay")
    late = story.transactional("late")
    late.producer.begin_transaction()
    late.batch("late", messages("late", 0, 5))
    late.producer.commit_transaction(FLUSH_TIMEOUT_SECONDS)
    for partition in (0, 1):
        story.producers["torn"].batch("torn", messages("torn", 0, 5), partition)
        story.write("torn", 5, partition=partition)
        story.write("pay", 5, partition=partition)
    pay_both(pay)
    leader, _ = cluster.leader_and_isr("late")
    ends = {("late", 0): 6, ("pay", 0): 11, ("pay", 1): 11}
    wait_until("markers are written", lambda: end_offsets(cluster, {"late": 1, "pay": 2}) == ends, timeout_seconds=20)
    header = read_log(cluster.log_dir(leader) / "late-0").batches[0].data
    producer_id, producer_epoch = int.from_bytes(header[43:51], "big"), int.from_bytes(header[51:53], "big")
    now = int(time.time() * 1000)
    raw_produce(cluster.ports[leader], "late", stray_batch(producer_id, producer_epoch, 5, now - HOUR_MS), transactional_id="late")
    story.write("late", 5)
    leader, _ = cluster.leader_and_isr("hanging")
    story.write("hanging", 5)
    batch = stray_batch(FORGOTTEN_PRODUCER, 0, 0, now - HOUR_MS)
    raw_produce(cluster.ports[leader], "hanging", batch, transactional_id="nobody")
    story.write("hanging", 5)


def pay_both(writer: Writer) -> None:
    """Commit a transaction over both partitions of `pay`."""
    writer.producer.begin_transaction()
    for partition in (0, 1):
        writer.batch("pay", messages("payment", 0, 5), partition)
    writer.producer.commit_transaction(2 * FLUSH_TIMEOUT_SECONDS)


def stray_batch(producer_id: int, producer_epoch: int, base_sequence: int, stamp: int) -> bytes:
    """A transactional batch of three records."""
    return write_batch(
        [RecordToWrite(b"key", b"stray-%d" % number) for number in range(3)],
        base_offset=0,
        base_timestamp=stamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=True,
    )


def part_above_the_high_watermark(story: Story) -> None:
    """Copy `forked`: the leader of `fork` dies with records that nobody fetched; the next leader, cleanly elected, appends
    others."""
    cluster = story.cluster
    story.write_unfetched("fork")
    cluster.kill(1)
    cluster.thaw(2, 3)
    wait_until("fork has another leader", lambda: cluster.leader_and_isr("fork")[0] in (2, 3), timeout_seconds=60)
    story.write("fork", 9, kind="committed", batch_records=3)
    wait_until(
        "the rest is led",
        lambda: all(led(cluster, topic) for topic in (*EARLIER, *INTERNAL)),
        timeout_seconds=30,
    )
    story.settle("fork")
    story.copy("forked")
    cluster.start(1)
    wait_until("all replicas in sync", lambda: fully_replicated(cluster), timeout_seconds=60)


def led(cluster: Cluster, topic: str) -> bool:
    """Whether all partitions of a topic have a leader that runs."""
    partitions = cluster.admin().list_topics(topic, timeout=ADMIN_TIMEOUT_SECONDS).topics[topic].partitions
    return all(partition.leader in cluster.running() for partition in partitions.values())


def change_while_one_is_down(story: Story) -> None:
    """While broker 3 is down, delete a topic, delete and recreate another, and compact a third on the other two brokers."""
    cluster = story.cluster
    cluster.stop(STOPPED)
    admin = cluster.admin()
    for topic, done in admin.delete_topics(["gone", "again"], operation_timeout=ADMIN_TIMEOUT_SECONDS).items():
        done.result(ADMIN_TIMEOUT_SECONDS)
        directory = f"{topic}-0"
        deleted = [cluster.log_dir(broker) / directory for broker in (OLD_LEADER, STALE)]
        wait_until(f"{directory} is set aside", partial(_all_missing, deleted), timeout_seconds=20)
    cluster.create_topic("again", assignment=TOPICS["again"][0])
    story.write("again", 12, kind="other", batch_records=3)
    entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "compacted", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(ADMIN_TIMEOUT_SECONDS)
    wait_until("compacted is cleaned", lambda: all(cleaned(cluster, broker) for broker in (OLD_LEADER, STALE)), timeout_seconds=60)


def _all_missing(paths: list[Path]) -> bool:
    return not any(path.exists() for path in paths)


def cleaned(cluster: Cluster, broker: int) -> bool:
    """Whether a broker cleaned `compacted` up to its active segment and deleted the segments it replaced."""
    directory = cluster.log_dir(broker) / "compacted-0"
    active = max(int(path.stem) for path in directory.glob("*.log"))
    unfinished = [path for path in directory.iterdir() if path.suffix in {".cleaned", ".swap", ".deleted"}]
    cleaned_offset = cluster.checkpointed(broker, "cleaner-offset-checkpoint").get(("compacted", 0), 0)
    return active > 0 and cleaned_offset == active and not unfinished


def lose(story: Story) -> None:
    """Copy `unclean`: a broker commits records alone and dies; an older replica is elected for some partitions."""
    cluster = story.cluster
    cluster.freeze(STALE)
    for topic in ("lag", "loss", "pay", "torn", *INTERNAL):
        cluster.await_isr(topic, [OLD_LEADER])
    story.write("loss", 30, kind="alone", acks="1")
    story.write("lag", 20, kind="alone", acks="1")
    commit_group(cluster, "loss", 90)
    pay_both(story.producers["pay"])
    story.producers["torn"].producer.commit_transaction(2 * FLUSH_TIMEOUT_SECONDS)
    high_watermarks = {"loss": {0: 90}, "lag": {0: 80}, "pay": {0: 17, 1: 17}, "torn": {0: 11, 1: 11}}
    for topic, ends in high_watermarks.items():
        for partition, end in ends.items():
            cluster.await_high_watermark(OLD_LEADER, topic, end, partition=partition)
    cluster.kill(OLD_LEADER)
    cluster.thaw(STALE)
    for topic, partition in LOST:
        wait_until(f"{topic} is led", partial(elected, cluster, topic, partition), timeout_seconds=60)
    for topic, partition in LOST:
        end = story.write(topic, 15, kind="instead", partition=partition, batch_records=5, acks="1")
        cluster.await_high_watermark(STALE, topic, end, partition=partition)
    story.copy("unclean")


def elected(cluster: Cluster, topic: str, partition: int) -> bool:
    """Request an unclean election; True once the stale replica leads."""
    try:
        cluster.elect_unclean(topic, partition)
    except LabError:
        return False  # the controller still waits for the dead leader, or for the stale replica to return
    return cluster.leader_and_isr(topic, partition)[0] == STALE


def commit_group(cluster: Cluster, topic: str, offset: int) -> None:
    """Commit `offset` for a consumer group."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def come_back(story: Story) -> None:
    """Copy `after`: all brokers start, come in sync, and stop."""
    cluster = story.cluster
    cluster.start(OLD_LEADER, STOPPED)
    wait_until("all replicas in sync", lambda: fully_replicated(cluster), timeout_seconds=60)
    story.settle(*(topic for topic in EARLIER if topic != "gone"))
    cluster.stop(*cluster.brokers)
    story.copy("after")


def make_broker_faults(cluster: Cluster, root: Path) -> Story:
    """Write the copies of all moments, each under its name below `root`. The brokers must be stopped, and are stopped
    afterwards."""
    cluster.start(*cluster.brokers)
    wait_until("all replicas in sync", lambda: fully_replicated(cluster), timeout_seconds=60)
    story = Story(cluster, root, {topic: len(assignment) for topic, (assignment, _) in TOPICS.items()})
    create_all(cluster)
    forget_producers(story)
    write_all(story)
    part_above_the_high_watermark(story)
    change_while_one_is_down(story)
    lose(story)
    come_back(story)
    fail_all_at_once(story)
    fail_the_last(story)
    take_live(story)
    cluster.stop(*cluster.brokers)
    return story
