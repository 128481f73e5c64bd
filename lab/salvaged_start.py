"""Brokers that lost records and start again on a salvaged log directory, the same one for each of them."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from lab.cluster import Cluster
from lab.errors import LabError
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.unclean_election import fully_replicated, lose_audit
from lab.workload import write_append_time, write_orders, write_payments

POLL_SECONDS: Final = 20
KEPT: Final = ("meta.properties", "__cluster_metadata-0", "bootstrap.checkpoint")
"""What a broker keeps of its own log directory."""
Served = dict[tuple[str, int], list[tuple[int, bytes | None, bytes | None]]]
"""(topic, partition) → (offset, key, value) of each record, in the order in which it came."""


@dataclass(frozen=True, slots=True)
class Started:
    """What brokers served that started on a salvaged log directory, and what they wrote to their logs while they did."""

    served: Served
    said: Mapping[int, bytes]


def write_and_lose(cluster: Cluster, copies: Path) -> dict[str, int]:
    """Topics with segments, transactions and an unclean election; copies of the log directories. All nodes are stopped then."""
    write_orders(cluster)
    write_payments(cluster)
    write_append_time(cluster)
    ends = lose_audit(cluster)
    cluster.kill(*cluster.brokers)
    for broker in cluster.brokers:
        copy_tree(cluster.log_dir(broker), copies / f"broker-{broker}")
    cluster.stop(*cluster.controllers)
    return ends


def start_on(cluster: Cluster, salvaged: Path, ends: Mapping[tuple[str, int], tuple[int, int]]) -> Started:
    """Give every broker the salvaged log directory beside what it keeps, start all, and read every partition of `ends`, which are
    (log start, log end), to its end. Raises LabError where a broker does not start or a record does not come."""
    for broker in cluster.brokers:
        log_dir = cluster.log_dir(broker)
        for path in log_dir.iterdir():
            if path.name in KEPT:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for path in salvaged.iterdir():
            if path.is_dir():
                copy_tree(path, log_dir / path.name)
            else:
                shutil.copyfile(path, log_dir / path.name)
    cluster.start(*cluster.controllers, *cluster.brokers)
    wait_until("all replicas are in sync", lambda: fully_replicated(cluster), timeout_seconds=90, step_seconds=1.0)
    served = {place: _read(cluster, place, *offsets) for place, offsets in ends.items()}
    return Started(served, {broker: cluster.server(broker).output.read_bytes() for broker in cluster.brokers})


def _read(cluster: Cluster, place: tuple[str, int], start: int, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record that a partition serves from its start to its end, aborted ones too."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted", "enable.auto.commit": False})
    records: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=POLL_SECONDS)
        if (low, high) != (start, end):
            raise LabError(f"{place[0]}-{place[1]} is served from {low} to {high}, and was salvaged from {start} to {end}")
        consumer.assign([TopicPartition(*place, start)])
        while True:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                raise LabError(f"{place[0]}-{place[1]} serves nothing behind {records[-1][0] if records else 'its start'}")
            if message.error() is not None:
                return records
            records.append((int(str(message.offset())), message.key(), message.value()))
    finally:
        consumer.close()
