"""Starts brokers that lost records on the log directories of a salvage."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kafka_forensics.writers.files import write_offset_checkpoint
from lab.cluster import Cluster
from lab.errors import LabError, LabTimeoutError
from lab.files import copy_tree, read_offset_checkpoint
from lab.jvm import wait_until
from lab.unclean_election import fully_replicated, lose_audit
from lab.workload import SMALL_SEGMENTS, Message, Writer, write_append_time, write_orders, write_payments

POLL_SECONDS: Final = 20
CLEANED_WITHIN_SECONDS: Final = 90
METADATA: Final = "__cluster_metadata-0"
KEPT: Final = ("meta.properties", "bootstrap.checkpoint", METADATA)
"""Entries of a log directory that a broker keeps when it starts on several salvages."""
Served = dict[tuple[str, int], list[tuple[int, bytes | None, bytes | None]]]
"""(topic, partition) → (offset, key, value) of each record, in the order of delivery."""


@dataclass(frozen=True, slots=True)
class Started:
    """The records that brokers served after a start on a salvage, and their application logs."""

    served: Served
    output: Mapping[int, bytes]


def write_and_lose(cluster: Cluster, copies: Path) -> dict[str, int]:
    """Write topics with segments and transactions, make an unclean election, and copy the log directories. All nodes are stopped
    afterwards."""
    write_orders(cluster)
    write_payments(cluster)
    write_append_time(cluster)
    ends = lose_audit(cluster)
    cluster.kill(*cluster.brokers)
    for broker in cluster.brokers:
        copy_tree(cluster.log_dir(broker), copies / f"broker-{broker}")
    cluster.stop(*cluster.controllers)
    return ends


def write_compacted(cluster: Cluster, topic: str) -> dict[bytes, bytes]:
    """Write a compacted topic, wait until every broker has cleaned it, and return the last value of each key that was not
    deleted."""
    settings = {**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    cluster.create_topic(topic, settings=settings)
    writer, latest = Writer(cluster), dict[bytes, bytes | None]()
    for number in range(120):
        keys = [b"key-%02d" % (number * 7 % 40), b"once-%03d" % number]
        messages = [Message(None if number % 6 == 5 else b"%d" % number * 40, key) for key in keys]
        writer.batch(topic, messages)
        latest |= {key: message.value for key, message in zip(keys, messages, strict=True)}
    for broker in cluster.brokers:
        wait_until(
            f"broker {broker} cleans {topic}",
            lambda broker=broker: (  # type: ignore[misc]
                cluster.checkpointed(broker, "cleaner-offset-checkpoint").get((topic, 0), 0) > 0
            ),
            timeout_seconds=CLEANED_WITHIN_SECONDS,
        )
    return {key: value for key, value in latest.items() if value is not None}


def commit(cluster: Cluster, group: str, place: tuple[str, int], offsets: Iterable[int]) -> None:
    """Commit offsets of a partition, in order."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0, "enable.auto.commit": False})
    try:
        for offset in offsets:
            consumer.commit(offsets=[TopicPartition(*place, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed(cluster: Cluster, group: str, place: tuple[str, int]) -> int:
    """The committed offset of a group."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0, "enable.auto.commit": False})
    try:
        (row,) = consumer.committed([TopicPartition(*place)], timeout=POLL_SECONDS)
        return row.offset
    finally:
        consumer.close()


def put_in_place(cluster: Cluster, salvaged: Path) -> None:
    """Replace every broker's log directory by the salvaged one, as the steps of a salvage say.

    The old directory is renamed to `*.before`; the controllers' log is copied back if the salvage lacks it.
    """
    for broker in cluster.brokers:
        log_dir = cluster.log_dir(broker)
        before = log_dir.rename(log_dir.with_name(f"{log_dir.name}.before"))
        (new_log_dir,) = (salvaged / f"broker-{broker}").iterdir()
        copy_tree(new_log_dir, log_dir)
        if not (log_dir / METADATA).exists() and (before / METADATA).exists():
            copy_tree(before / METADATA, log_dir / METADATA)


def put_on(cluster: Cluster, salvages: Mapping[Path, Mapping[str, str]]) -> None:
    """Give every broker its log directories of several salvages, beside the entries in `KEPT`.

    A salvage's mapping renames topics (old → new); renamed topics keep the `partition.metadata` of this cluster.
    """
    for broker in cluster.brokers:
        log_dir = cluster.log_dir(broker)
        topic_ids = {path.parent.name: path.read_bytes() for path in log_dir.glob("*/partition.metadata")}
        for path in [path for path in log_dir.iterdir() if path.name not in KEPT]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        offsets: dict[str, dict[tuple[str, int], int]] = {}
        for salvaged, names in salvages.items():
            for path in [path for path in salvaged.glob(f"broker-{broker}/*/*") if path.is_dir()]:
                topic, _, partition = path.name.rpartition("-")
                directory = log_dir / f"{names.get(topic, topic)}-{partition}"
                copy_tree(path, directory)
                if topic in names and directory.name in topic_ids:
                    (directory / "partition.metadata").write_bytes(topic_ids[directory.name])
            for path in salvaged.glob(f"broker-{broker}/*/*-offset-checkpoint"):
                rows = read_offset_checkpoint(path).items()
                renamed = {(names.get(topic, topic), partition): offset for (topic, partition), offset in rows}
                offsets.setdefault(path.name, {}).update(renamed)
        for name, rows_by_partition in offsets.items():
            (log_dir / name).write_bytes(write_offset_checkpoint(rows_by_partition))


def start(cluster: Cluster) -> None:
    """Start all nodes and wait until every replica is in sync. Raises LabError if that does not happen."""
    cluster.start(*cluster.controllers, *cluster.brokers)
    wait_until("all replicas are in sync", lambda: fully_replicated(cluster), timeout_seconds=90, step_seconds=1.0)


def start_on(cluster: Cluster, salvaged: Path, ends: Mapping[tuple[str, int], tuple[int, int]]) -> Started:
    """Put a salvage on every broker, start all nodes, and read every partition of `ends` ((log start, log end)) to its end.

    Raises LabError if a broker does not start or a record is missing.
    """
    put_in_place(cluster, salvaged)
    start(cluster)
    wait_for_watermarks(cluster, ends)
    served = read(cluster, {place: begin for place, (begin, _) in ends.items()}, "read_uncommitted")
    return Started(served, {broker: cluster.server(broker).output.read_bytes() for broker in cluster.brokers})


def watermarks(cluster: Cluster, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Log start offset and high watermark of partitions, as leaders report them."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "nobody", "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        return {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=POLL_SECONDS) for place in places}
    finally:
        consumer.close()


def wait_for_watermarks(cluster: Cluster, ends: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    """Wait until leaders report these log starts and high watermarks. Raises LabError with those that differ.

    After a start the ISR may be the one from before, and a high watermark that of the checkpoint until followers fetch.
    """
    served: dict[tuple[str, int], tuple[int, int]] = {}

    def are_reached() -> bool:
        served.update(watermarks(cluster, ends))
        return served == ends

    try:
        wait_until("high watermarks are the log ends", are_reached, timeout_seconds=60, step_seconds=1.0)
    except LabTimeoutError as error:
        differing = {place: (offsets, ends[place]) for place, offsets in served.items() if offsets != ends[place]}
        raise LabError(f"{error}: {differing} (reported, expected)") from error


def read(cluster: Cluster, starts: Mapping[tuple[str, int], int], isolation: str) -> Served:
    """Read every record of partitions from an offset to the end. Raises LabError if the end is not reached."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.auto.commit": False})
    records: Served = {place: [] for place in starts}
    left = set(starts)
    try:
        consumer.assign([TopicPartition(*place, begin) for place, begin in starts.items()])
        while left:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                raise LabError(f"nothing more comes of {sorted(left)}")
            place, error = (str(message.topic()), int(str(message.partition()))), message.error()
            if error is None:
                records[place].append((int(str(message.offset())), message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(place)
            else:
                raise LabError(f"{place[0]}-{place[1]}: {error}")
    finally:
        consumer.close()
    return records
