"""The incident `unclean-127`: an old replica is elected for 127 partitions, and most of them lose committed records.

Broker 3 is down for maintenance and broker 1 crashes, so broker 2 leads every partition alone. It acknowledges records and dies.
Broker 1 starts, an operator elects it uncleanly for all partitions, and it takes other records; broker 3 follows it. Then the
operator stops the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from kafka_forensics.model.json_objects import Json
from lab.cluster import Cluster
from lab.errors import LabError
from lab.incidents.clients import INTERNAL, KEYS, Clients, Place, everywhere, replicas_in_turn
from lab.jvm import wait_until

ELECTED: Final = 1
ALONE: Final = 2
FOLLOWER: Final = 3
COMPACTED: Final = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many records each partition of a topic gets."""

    common: int
    """On all brokers."""
    alone: tuple[int, ...]
    """On broker 2 alone: one number for each partition."""
    afterwards: int
    """On brokers 1 and 3, after the unclean election."""
    maintenance: int = 0
    """On brokers 1 and 2, while broker 3 is down."""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.alone)


TOPICS: Final = {
    "audit": Traffic(80, (96,) * 8, 15),
    "clicks": Traffic(120, (320,) * 8, 60, 40, {"compression.type": "lz4"}),
    "customers": Traffic(50, (40,) * 8, 10, settings=COMPACTED),
    "emails": Traffic(60, (84,) * 8, 20, settings={"compression.type": "zstd"}),
    "inventory": Traffic(60, (110,) * 7 + (0,), 20, 20),
    "invoices": Traffic(40, (60,) * 4 + (0,) * 4, 5),
    "orders": Traffic(100, (180,) * 5 + (240,) * 2 + (0,), 30, 20),
    "payments": Traffic(60, (140,) * 6 + (0,) * 2, 20),
    "prices": Traffic(40, (30,) * 6 + (0,) * 2, 0, settings=COMPACTED),
    "recommendations": Traffic(40, (45,) * 5 + (0,) * 3, 0),
    "refunds": Traffic(20, (12,) * 3 + (0,) * 5, 3),
    "returns": Traffic(20, (0,) * 8, 0),
    "searches": Traffic(80, (150,) * 8, 25),
    "sessions": Traffic(100, (260,) * 6 + (130,) * 2, 40, 20, {"compression.type": "lz4"}),
    "shipments": Traffic(60, (75,) * 6 + (50, 0), 10),
    "telemetry": Traffic(120, (400,) * 7, 50, 40, {"compression.type": "zstd"}),
}


def play(cluster: Cluster) -> Json:
    """Play the incident on a new cluster until all brokers are down; return the truth. Raises LabError."""
    clients = Clients(cluster, {topic: traffic.partitions for topic, traffic in TOPICS.items()}, {"payments": "payment-gateway"})
    for topic, traffic in TOPICS.items():
        cluster.create_topic(topic, assignment=replicas_in_turn(traffic.partitions), settings=traffic.settings)
    clients.write({topic: (traffic.common,) * traffic.partitions for topic, traffic in TOPICS.items()})
    for group, topic in (("billing", "orders"), ("warehouse", "shipments")):
        clients.read(group, topic)
    clients.settle()
    cluster.stop(FOLLOWER)
    clients.write({topic: (traffic.maintenance,) * traffic.partitions for topic, traffic in TOPICS.items()})
    ends = {"common_end": clients.settle()}
    later = replace(clients, records=clients.records.copy(), markers=clients.markers.copy())
    common_records = clients.records.copy()
    cluster.kill(ELECTED)
    wait_until(f"broker {ALONE} is alone", everywhere(cluster, ALONE, [ALONE]), timeout_seconds=60, step_seconds=1.0)
    clients.write({topic: traffic.alone for topic, traffic in TOPICS.items()})
    clients.read("billing", "orders")
    ends["lost_end"] = clients.settle()
    cluster.kill(ALONE)
    cluster.start(ELECTED)
    elected = partial(_elect, cluster, list(ends["common_end"]))
    wait_until(f"broker {ELECTED} is elected everywhere", elected, timeout_seconds=90, step_seconds=1.0)
    later.write({topic: (traffic.afterwards,) * traffic.partitions for topic, traffic in TOPICS.items()})
    cluster.start(FOLLOWER)
    in_sync = everywhere(cluster, ELECTED, [ELECTED, FOLLOWER])
    wait_until(f"broker {FOLLOWER} follows", in_sync, timeout_seconds=60, step_seconds=1.0)
    later.read("billing", "orders")
    ends["new_end"] = later.settle()
    cluster.stop(FOLLOWER)
    cluster.stop(ELECTED)
    return _truth(ends, {"lost_records": clients.records - common_records, "new_records": later.records - common_records})


def _elect(cluster: Cluster, places: list[Place]) -> bool:
    """Request an unclean election of all partitions; True once broker 1 leads them."""
    try:
        cluster.elect_unclean_all(places)
    except LabError:
        return False  # the controller still waits for the dead leader
    return everywhere(cluster, ELECTED, [ELECTED])()


def _truth(ends: Mapping[str, Mapping[Place, int]], records: Mapping[str, Mapping[Place, int]]) -> Json:
    """A row for each partition with its exclusive ends; rows of topics of users have numbers of records without markers."""
    rows, internal = list[Json](), list[Json]()
    for place, common_end in ends["common_end"].items():
        row: Json = {"topic": place[0], "partition": place[1]} | {name: by_place[place] for name, by_place in ends.items()}
        if place[0] not in INTERNAL:
            row |= {name: by_place[place] for name, by_place in records.items()}
            rows.append(row | {"recoverable_records": row["lost_records"] - _superseded(row)})
        elif row["lost_end"] > common_end:
            internal.append(row)
    totals = {name: sum(row[name] for row in rows) for name in (*records, "recoverable_records")}
    losing = sum(row["lost_records"] > 0 for row in rows)
    return {
        "totals": {"partitions": len(rows), "losing_partitions": losing, **totals},
        "lost_are_on": [ALONE],
        "partitions": rows,
        "internal_partitions": internal,
    }


def _superseded(row: Json) -> int:
    """How many lost records of a compacted partition have a key that was written again after the election."""
    if TOPICS[row["topic"]].settings != COMPACTED:
        return 0
    first_new = row["lost_end"]
    new_keys = {number % KEYS for number in range(first_new, first_new + row["new_records"])}
    return sum(number % KEYS in new_keys for number in range(row["common_end"], row["lost_end"]))
