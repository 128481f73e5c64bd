"""The incident `stuck-readers`: readers of committed records wait at the last stable offset of some partitions.

Three hours ago two producers wrote transactional batches that no coordinator will ever end: leaders accepted batches that the
coordinator does not know, as before Kafka 3.6. Since then another producer has committed and aborted transactions, and one has a
transaction open when the operator stops the cluster. A group that reads committed records waits; another group is slow.
"""

import re
import time
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import Producer

from kafka_forensics.model.json_objects import Json
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.cluster import Cluster
from lab.errors import LabError
from lab.incidents.clients import Clients, Place, replicas_in_turn
from lab.jvm import run_tool
from lab.raw_produce import raw_produce
from lab.workload import FLUSH_TIMEOUT_SECONDS, Writer

SETTINGS: Final = {"transaction.partition.verification.enable": "false"}
TOPICS: Final = {"orders": 3, "payments": 4, "refunds": 2}
HOUR_MS: Final = 3_600_000
EARLIER: Final = 80
"""Records of each partition in the hour before the hanging transactions."""
LATER: Final = {"orders": (150, 90, 400), "payments": (60, 120, 60, 90), "refunds": (20, 20)}
"""Records of each partition in the three hours after."""
STRAY_RECORDS: Final = 4
HANGING: Final[Mapping[str, tuple[Place, ...]]] = {
    "checkout-2": (("payments", 1), ("payments", 3)),
    "": (("orders", 0),),
}
"""Transactional id → partitions with a hanging transaction; the empty one is unknown to every coordinator."""
FORGOTTEN_PRODUCER: Final = 987_654
COMMITTED: Final[tuple[Place, ...]] = (("payments", 0), ("payments", 2), ("refunds", 0))
ABORTED: Final[tuple[Place, ...]] = (("orders", 1), ("payments", 0))
OPEN: Final[tuple[Place, ...]] = (("payments", 2), ("refunds", 1))
_TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"


def play(cluster: Cluster) -> Json:
    """Play the incident on a new cluster, which still runs afterwards; return the truth. Raises LabError."""
    clients, now_ms = Clients(cluster, TOPICS), int(time.time() * 1000)
    for topic, partitions in TOPICS.items():
        cluster.create_topic(topic, assignment=replicas_in_turn(partitions))
    earlier = {topic: (EARLIER,) * partitions for topic, partitions in TOPICS.items()}
    clients.write(earlier, first_ms=now_ms - 4 * HOUR_MS, step_ms=HOUR_MS // EARLIER)
    clients.read("warehouse", "refunds")
    _write_hanging(clients, now_ms - 3 * HOUR_MS)
    clients.write(LATER, first_ms=now_ms - 3 * HOUR_MS, step_ms=3 * HOUR_MS // 400)
    checkout = _transactional(cluster, "checkout-1")
    for places, end in ((COMMITTED, checkout.commit_transaction), (ABORTED, checkout.abort_transaction)):
        for _ in range(3):
            clients.begin(checkout, places)
            end(FLUSH_TIMEOUT_SECONDS)
            clients.markers.update(places)
    still_open = _transactional(cluster, "checkout-3")
    clients.begin(still_open, OPEN)
    clients.write({topic: (5,) * partitions for topic, partitions in TOPICS.items()})
    clients.settle()
    stable = last_stable_offsets(cluster, clients.ends())
    groups = _commit_groups(clients, stable)
    clients.settle()
    hanging = {place for places in HANGING.values() for place in places}
    rows = [
        {
            "topic": place[0],
            "partition": place[1],
            "end": end,
            "last_stable_offset": stable[place],
            "hanging": place in hanging,
            "committed_transactions": 3 * (place in COMMITTED),
            "aborted_transactions": 3 * (place in ABORTED),
            "open_transactions": int(place in OPEN),
        }
        for place, end in clients.ends().items()
    ]
    return {"totals": {"hanging": len(hanging), "open": len(OPEN)}, "partitions": rows, "groups": groups}


def _transactional(cluster: Cluster, transactional_id: str) -> Producer:
    """A transactional producer, initialized."""
    producer = Writer(cluster, transactional_id=transactional_id, transaction_timeout_ms=900_000).producer
    producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
    return producer


def _write_hanging(clients: Clients, stamp_ms: int) -> None:
    """Write a transactional batch to each partition of `HANGING`, which its coordinator does not know."""
    cluster = clients.cluster
    for transactional_id, places in HANGING.items():
        producer_id = FORGOTTEN_PRODUCER
        if transactional_id:
            _transactional(cluster, transactional_id)
            producer_id = _producer_id(cluster, transactional_id)
        for topic, partition in places:
            batch = write_batch(
                [RecordToWrite(b"key", b"stray-%d" % number) for number in range(STRAY_RECORDS)],
                base_offset=0,
                base_timestamp=stamp_ms,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            leader, _ = cluster.leader_and_isr(topic, partition)
            transactional = transactional_id or "checkout-0"
            raw_produce(cluster.ports[leader], topic, batch, partition=partition, transactional_id=transactional)
            clients.records[topic, partition] += STRAY_RECORDS


def _producer_id(cluster: Cluster, transactional_id: str) -> int:
    """The producer id of a transactional id, as its coordinator reports it. Raises LabError."""
    arguments = ["--bootstrap-server", cluster.awake, "describe", "--transactional-id", transactional_id]
    done = run_tool(_TRANSACTIONS, arguments)
    match = re.search(rf"^\d+\s+{transactional_id}\s+(\d+)\s", done.stdout.decode(), re.MULTILINE)
    if match is None:
        raise LabError(f"{transactional_id} is not described: {(done.stdout + done.stderr)[-500:].decode(errors='replace')}")
    return int(match[1])


def last_stable_offsets(cluster: Cluster, places: Iterable[Place]) -> dict[Place, int]:
    """The last stable offset of each partition, as leaders report it."""
    settings = {"bootstrap.servers": cluster.awake, "group.id": "nobody", "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    try:
        return {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=10)[1] for place in places}
    finally:
        consumer.close()


def _commit_groups(clients: Clients, stable: Mapping[Place, int]) -> list[Json]:
    """Commit offsets of a group that waits at the last stable offsets, and of one that is slow; return them with their lags."""
    ends, rows = clients.ends(), []
    slow = {("orders", 0): 84, ("orders", 1): 160, ("orders", 2): 130}
    for group, offsets in (("billing", {place: stable[place] for place in stable if place[0] == "payments"}), ("reporting", slow)):
        settings = {"bootstrap.servers": clients.cluster.awake, "group.id": group, "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        try:
            consumer.commit(offsets=[TopicPartition(*place, offset) for place, offset in offsets.items()], asynchronous=False)
        finally:
            consumer.close()
        rows += [
            {"group": group, "topic": place[0], "partition": place[1], "committed": offset, "lag": ends[place] - offset}
            for place, offset in offsets.items()
        ]
    return rows
