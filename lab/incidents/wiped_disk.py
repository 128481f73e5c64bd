"""The incident `wiped-disk`: after a power failure one broker has an empty disk, and another lost the ends of some logs.

Broker 1 is down for maintenance while brokers 2 and 3 acknowledge records of some partitions. Then the power of all nodes fails,
before the checkpoints have the high watermarks of the newest records. On broker 2 the last batch of some logs is cut short; broker
3 gets a new disk.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_forensics.model.json_objects import Json
from lab.cluster import Cluster
from lab.errors import LabError
from lab.fault_base import read_log
from lab.incidents.clients import Clients, replicas_in_turn
from lab.jvm import wait_until

BEHIND: Final = 1
TORN: Final = 2
WIPED: Final = 3


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many records each partition of a topic gets."""

    common: int
    """On all brokers."""
    later: tuple[int, ...]
    """On brokers 2 and 3, while broker 1 is down: one number for each partition."""
    newest: tuple[int, ...]
    """On brokers 2 and 3, just before the power fails."""
    bytes_left: Mapping[int, int] = field(default_factory=dict)
    """Partition → the size to which its last batch is cut on broker 2."""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.later)


TOPICS: Final = {
    "customers": Traffic(90, (20, 15), (5, 0), {0: 200}, {"cleanup.policy": "compact"}),
    "inventory": Traffic(120, (20, 0, 0), (10, 0, 0), {0: 300, 1: 700}),
    "orders": Traffic(200, (60, 40, 50, 0), (0, 5, 0, 0), {0: 500, 1: 40, 3: 900}),
    "payments": Traffic(100, (40, 20, 0), (0, 0, 0)),
}
CHECKPOINTS: Final = {"replica.high.watermark.checkpoint.interval.ms": "8000"}
"""Time to write the newest records and end the brokers between two checkpoints."""


def play(cluster: Cluster) -> Json:
    """Play the incident on a new cluster until all brokers are down; return the truth. Raises LabError."""
    clients = Clients(cluster, {topic: traffic.partitions for topic, traffic in TOPICS.items()}, {"payments": "payment-gateway"})
    for topic, traffic in TOPICS.items():
        cluster.create_topic(topic, assignment=replicas_in_turn(traffic.partitions), settings=traffic.settings)
    clients.write({topic: (traffic.common,) * traffic.partitions for topic, traffic in TOPICS.items()})
    clients.read("billing", "orders")
    clients.settle()
    cluster.stop(BEHIND)
    behind = clients.records.copy()
    clients.write({topic: traffic.later for topic, traffic in TOPICS.items()})
    clients.read("billing", "orders")
    proven = clients.settle()
    checkpoints = [cluster.log_dir(broker) / "replication-offset-checkpoint" for broker in (TORN, WIPED)]
    written_at = [path.stat().st_mtime_ns for path in checkpoints]
    wait_until(
        "new checkpoints are written",
        lambda: all(path.stat().st_mtime_ns > before for path, before in zip(checkpoints, written_at, strict=True)),
        timeout_seconds=30,
    )
    clients.write({topic: traffic.newest for topic, traffic in TOPICS.items()})
    cluster.freeze(TORN, WIPED)
    cluster.kill(TORN, WIPED)
    checkpointed = cluster.checkpointed(TORN)
    if early := [place for place in clients.ends() if checkpointed[place] != proven[place]]:
        raise LabError(f"the checkpoint has the newest records of {early}")
    for path in cluster.log_dir(WIPED).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    rows: list[Json] = []
    for place, end in clients.ends().items():
        topic, partition = place
        left = TOPICS[topic].bytes_left.get(partition)
        torn = 0 if left is None else cut_last_batch(cluster.partition_dir(TORN, topic, partition), left)
        later = clients.records[place] - behind[place]
        row: Json = {"topic": topic, "partition": partition, "end": end, "acknowledged_records": clients.records[place]}
        row |= {"torn_records": torn, "only_on_torn_copy": max(later - torn, 0), "lost_records": torn if later else 0}
        rows.append(row | {"proven_lost_records": row["lost_records"] if proven[place] == end else 0})
    names = ("acknowledged_records", "only_on_torn_copy", "lost_records", "proven_lost_records")
    totals = {name: sum(row[name] for row in rows) for name in names}
    return {"totals": totals, "behind": BEHIND, "torn": TORN, "wiped": WIPED, "partitions": rows}


def cut_last_batch(directory: Path, bytes_left: int) -> int:
    """Cut the last batch of a log to so many bytes; return how many offsets it had. Raises LabError if it is shorter."""
    batch = read_log(directory).batches[-1]
    if len(batch.data) <= bytes_left:
        raise LabError(f"the last batch of {directory.name} has only {len(batch.data)} bytes")
    with (directory / f"{batch.segment:020d}.log").open("r+b") as file:
        file.truncate(batch.position + bytes_left)
    return batch.last_offset - batch.base_offset + 1
