"""The healthy workload of a cluster of any version: all that the version can write, and what clients then read."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster, settled
from lab.errors import LabError
from lab.jvm import run_tool, wait_until
from lab.unclean_election import compacted
from lab.version_groups import read_as_share_group, read_as_streams_group
from lab.versions import Version, ZooKeeperCluster
from lab.workload import (
    SMALL_SEGMENTS,
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

EVENTS: Final = "events"
"""Three partitions with many segments, each first led by another broker; most histories change this topic."""
EVENTS_COUNT: Final = 400
SHARED_COUNT: Final = 100
"""Records of `orders` that a share group acknowledges and a streams group reads."""
TRIMMED: Final = "trimmed"
TRIMMED_COUNT, TRIMMED_START = 60, 31
READ_SECONDS: Final = 60
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
OLD_REASSIGN: Final = "kafka.admin.ReassignPartitionsCommand"

Place = tuple[str, int]
"""(topic, partition)."""
Contents = Mapping[Place, Mapping[int, bytes]]
"""What readers get: partition → offset → value."""


def topics_of(version: Version) -> dict[str, int]:
    """Client topic → number of partitions."""
    codecs = {f"codec-{codec}": 1 for codec in version.codecs}
    return {"orders": 2, "payments": 2, "append-time": 1, "profiles": 1, TRIMMED: 1, EVENTS: 3, **codecs}


def write_workload(cluster: Cluster, version: Version) -> None:
    """Write everything that the version can: codecs, idempotence, transactions, cleaning, groups, DeleteRecords, a move between
    disks.

    Returns when checkpoints are up to date. Raises LabError.
    """
    write_orders(cluster)
    write_payments(cluster)
    write_codecs(cluster, version.codecs)
    write_append_time(cluster)
    write_profiles(cluster)
    cluster.create_topic(EVENTS, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], settings=SMALL_SEGMENTS)
    for partition in range(3):
        write_events(cluster, EVENTS, EVENTS_COUNT, partition=partition)
    cluster.create_topic(TRIMMED, assignment=[[1, 2, 3]], settings=SMALL_SEGMENTS)
    write_events(cluster, TRIMMED, TRIMMED_COUNT, batch_records=3)
    commit_group(cluster)
    if version.share_groups:
        read_as_share_group(cluster, "orders", SHARED_COUNT)
    if version.streams_groups:
        read_as_streams_group(cluster, "orders", SHARED_COUNT)
    settle(cluster, topics_of(version))
    delete_records(cluster, TRIMMED, TRIMMED_START)
    if cluster.log_dirs_count > 1:
        move_replica(cluster, version, "orders", broker=1)
    wait_until("profiles is compacted", lambda: all(compacted(cluster, broker) for broker in cluster.brokers), timeout_seconds=60)
    settle(cluster, topics_of(version))


def write_events(
    cluster: Cluster, topic: str, count: int, *, first: int = 0, partition: int = 0, batch_records: int = 20, acks: str = "all"
) -> int:
    """Write `count` records in batches, numbered from `first`; return the end offset that the leader acknowledged."""
    writer = Writer(cluster, acks=acks, bootstrap_servers=cluster.awake, linger_ms=20)
    for number in range(first, first + count, batch_records):
        upto = min(number + batch_records, first + count)
        writer.batch(topic, [Message(event(topic, n), b"key-%d" % (n % 10)) for n in range(number, upto)], partition)
    return writer.end_offset


def settle(cluster: Cluster, topics: Mapping[str, int]) -> None:
    """Wait until the high-watermark checkpoint of every broker has the leaders' end offsets."""
    wait_until("checkpoints follow", settled(cluster, end_offsets(cluster, topics)), timeout_seconds=30)


def delete_records(cluster: Cluster, topic: str, before: int) -> None:
    """Delete the records of partition 0 before an offset."""
    place = TopicPartition(topic, 0, before)
    admin = cluster.admin()
    admin.delete_records([place])[TopicPartition(topic, 0)].result(ADMIN_TIMEOUT_SECONDS)


def move_replica(cluster: Cluster, version: Version, topic: str, *, broker: int) -> None:
    """Move the replica of partition 0 to the other log directory of a broker, and wait for the end of the move. Raises LabError."""
    source = cluster.partition_dir(broker, topic)
    [target] = [directory for directory in cluster.log_dirs(broker) if directory != source.parent]
    begin_move(cluster, version, topic, broker, target)

    def moved() -> bool:
        left = [path for path in source.parent.glob(f"{topic}-0*") if path.is_dir()]
        return (target / f"{topic}-0").is_dir() and not left

    wait_until(f"{topic}-0 of broker {broker} moves", moved, timeout_seconds=60)


def begin_move(
    cluster: Cluster, version: Version, topic: str, broker: int, target: Path, *, bytes_a_second: int | None = None
) -> None:
    """Start to move partition 0 of a topic to the log directory `target` of a broker, throttled if `bytes_a_second` is set. Raises
    LabError."""
    admin = cluster.admin()
    partition = admin.list_topics(topic, timeout=ADMIN_TIMEOUT_SECONDS).topics[topic].partitions[0]
    replicas = list(partition.replicas)
    log_dirs = [str(target) if replica == broker else "any" for replica in replicas]
    plan = cluster.directory / "move.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas, "log_dirs": log_dirs}]})
    )
    arguments = ["--bootstrap-server", cluster.awake, "--reassignment-json-file", str(plan), "--execute"]
    if bytes_a_second is not None:
        arguments += ["--replica-alter-log-dirs-throttle", str(bytes_a_second)]
    if isinstance(cluster, ZooKeeperCluster) and version.name.startswith("1."):
        arguments += ["--zookeeper", cluster.zookeeper]
        done = run_tool(OLD_REASSIGN, arguments, jars=version.jars)
    else:
        done = run_tool(REASSIGN, arguments)
    if done.exit_code != 0:
        raise LabError(f"no move to {target}: {(done.stdout + done.stderr)[-1000:].decode(errors='replace')}")


def places_of(topics: Mapping[str, int]) -> list[Place]:
    """The partitions of topics, given their numbers of partitions."""
    return [(topic, partition) for topic, count in topics.items() for partition in range(count)]


def read_everything(cluster: Cluster, places: Iterable[Place]) -> dict[Place, dict[int, bytes]]:
    """What readers get from each of these partitions; partitions without a leader are left out. Raises LabError."""
    admin = cluster.admin()
    listed = admin.list_topics(timeout=ADMIN_TIMEOUT_SECONDS).topics
    led = [
        (topic, partition)
        for topic, partition in sorted(places)
        if topic in listed and partition in listed[topic].partitions and listed[topic].partitions[partition].leader >= 0
    ]
    return {place: _read(cluster, place) for place in led}


def _read(cluster: Cluster, place: Place) -> dict[int, bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.awake,
            "group.id": "readers-of-everything",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    values: dict[int, bytes] = {}
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=20)
        consumer.assign([TopicPartition(*place, start)])
        if start == end:
            return values
        for _ in range(READ_SECONDS * 2):
            for message in consumer.consume(num_messages=500, timeout=0.5):
                offset = message.offset()
                if message.error() is not None or offset is None:
                    return values  # the end of the partition, or a batch that consumers cannot read
                values[offset] = message.value() or b""
    finally:
        consumer.close()
    raise LabError(f"{place} was not read to its end {end} in {READ_SECONDS} s")


def lost(before: Contents, after: Contents) -> dict[Place, list[int]]:
    """Partition → offsets at which readers no longer get the record they got before."""
    missing = {
        place: [offset for offset, value in values.items() if after.get(place, {}).get(offset) != value]
        for place, values in before.items()
    }
    return {place: offsets for place, offsets in missing.items() if offsets}


def spans(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as ranges, ends exclusive."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges
