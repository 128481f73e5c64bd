"""Clients of an incident: they write numbered records, count what brokers acknowledge, and commit offsets."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.cimpl import Producer, TopicPartition

from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster, settled
from lab.errors import LabError
from lab.jvm import wait_until
from lab.workload import FLUSH_TIMEOUT_SECONDS, Writer, end_offsets, event

Place = tuple[str, int]
"""(topic, partition)"""
BATCH_RECORDS: Final = 20
INTERNAL: Final = {"__consumer_offsets": 50, "__transaction_state": 50}
"""Internal topics with Kafka's default numbers of partitions."""
READ_SECONDS: Final = 60
COMMIT_ERRORS_TO_RETRY: Final = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors of a commit after which the consumer finds its coordinator or joins its group again."""
LINGER_MS: Final = 1000
"""Longer than a batch takes to be put together; a flush does not wait for it."""
KEYS: Final = 30
"""Keys of a partition; its records take turns."""


def replicas_in_turn(partitions: int) -> list[list[int]]:
    """The replicas of each partition on brokers 1 to 3; each broker is the preferred leader of every third partition."""
    return [[number % 3 + 1, (number + 1) % 3 + 1, (number + 2) % 3 + 1] for number in range(partitions)]


@dataclass
class Clients:
    """Producers and consumers of a cluster; they know what the leader of each partition holds."""

    cluster: Cluster
    topics: Mapping[str, int]
    """Topic → number of partitions, without internal topics."""
    transactional: Mapping[str, str] = field(default_factory=dict)
    """Transactional topic → transactional id of its producer."""
    records: Counter[Place] = field(default_factory=Counter)
    """Acknowledged records in each log."""
    markers: Counter[Place] = field(default_factory=Counter)
    """Transaction markers in each log."""
    written: Counter[Place] = field(default_factory=Counter)
    """All acknowledged records, also those that a later leader lacks: the number of the next record."""

    def write(self, counts: Mapping[str, Sequence[int]], *, first_ms: int = 0, step_ms: int = 0) -> None:
        """Write records with acks=all: topic → how many for each of its partitions. Raises LabError unless all are acknowledged.

        `first_ms` is the timestamp of the first record of each partition, `step_ms` the time to the next; by default all have
        the time of now. A producer of transactional topics commits a transaction after each batch.
        """
        chosen = {(topic, number): count for topic, row in counts.items() for number, count in enumerate(row) if count}
        plain = {place: count for place, count in chosen.items() if place[0] not in self.transactional}
        producer = Writer(self.cluster, enable_idempotence=True, linger_ms=LINGER_MS).producer
        for first in range(0, max(plain.values(), default=0), BATCH_RECORDS):
            stamp_ms = first_ms + first * step_ms if first_ms else 0
            self._produce(producer, _batch(plain, first), stamp_ms, step_ms)
        for topic in self.transactional:
            of_topic = {place: count for place, count in chosen.items() if place[0] == topic}
            if of_topic:
                self._write_transactions(self.transactional[topic], of_topic)

    def _write_transactions(self, transactional_id: str, counts: Mapping[Place, int]) -> None:
        producer = Writer(
            self.cluster, transactional_id=transactional_id, transaction_timeout_ms=60_000, linger_ms=LINGER_MS
        ).producer
        producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
        for first in range(0, max(counts.values()), BATCH_RECORDS):
            batch = _batch(counts, first)
            producer.begin_transaction()
            self._produce(producer, batch)
            producer.commit_transaction(FLUSH_TIMEOUT_SECONDS)
            self.markers.update(batch.keys())

    def begin(self, producer: Producer, places: Iterable[Place]) -> None:
        """Begin a transaction and write five records to each partition. Raises LabError."""
        producer.begin_transaction()
        self._produce(producer, dict.fromkeys(places, 5))

    def ends(self) -> dict[Place, int]:
        """The end offset of each partition without internal topics, by what was acknowledged."""
        places = [(topic, number) for topic, partitions in self.topics.items() for number in range(partitions)]
        return {place: self.records[place] + self.markers[place] for place in places}

    def settle(self) -> dict[Place, int]:
        """Wait until leaders report these ends, and brokers have checkpointed them; return all ends, of internal topics too."""
        wanted = self.ends()
        wait_until("leaders have all records", lambda: end_offsets(self.cluster, self.topics) == wanted, timeout_seconds=30)
        ends = wanted | end_offsets(self.cluster, INTERNAL)
        wait_until("checkpoints follow", settled(self.cluster, ends), timeout_seconds=30)
        return ends

    def read(self, group: str, topic: str) -> None:
        """Join a consumer group, read a topic to its end, commit, and leave. Raises LabError."""
        settings: dict[str, Any] = {"bootstrap.servers": self.cluster.awake, "group.id": group, "log_level": 0}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        wanted = [TopicPartition(topic, number, self.ends()[topic, number]) for number in range(self.topics[topic])]

        def has_committed() -> bool:
            consumer.consume(num_messages=500, timeout=1.0)
            if sorted(consumer.position(wanted)) != sorted(wanted):
                return False
            try:
                consumer.commit(offsets=wanted, asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in COMMIT_ERRORS_TO_RETRY:
                    raise
                return False
            return True

        try:
            consumer.subscribe([topic])
            wait_until(f"{group} reads {topic} to its end", has_committed, timeout_seconds=READ_SECONDS, step_seconds=0)
        finally:
            consumer.close()

    def _produce(self, producer: Producer, counts: Mapping[Place, int], first_ms: int = 0, step_ms: int = 0) -> None:
        """Write numbered records and wait for all acknowledgements. Raises LabError."""
        before = self.written.total()
        for (topic, partition), count in counts.items():
            first = self.written[topic, partition]
            for number in range(first, first + count):
                value = event(topic, number, partition=partition, amount=number * 37 % 1000)
                producer.produce(
                    topic,
                    value,
                    f"{topic}-{number % KEYS}",
                    partition,
                    on_delivery=self._count((topic, partition)),
                    timestamp=first_ms + (number - first) * step_ms,
                )
        if producer.flush(FLUSH_TIMEOUT_SECONDS) or self.written.total() - before != sum(counts.values()):
            raise LabError(f"{self.written.total() - before} of {sum(counts.values())} records were acknowledged")

    def _count(self, place: Place) -> Callable[[object, object], None]:
        def on_delivery(error: object, _message: object) -> None:
            if error is None:
                self.records[place] += 1
                self.written[place] += 1

        return on_delivery


def _batch(counts: Mapping[Place, int], first: int) -> dict[Place, int]:
    """How many records each partition has in the batch that begins with its record `first`."""
    return {place: min(BATCH_RECORDS, count - first) for place, count in counts.items() if count > first}


def everywhere(cluster: Cluster, leader: int, isr: Iterable[int]) -> Callable[[], bool]:
    """A condition: every partition has this leader and this ISR."""
    wanted = leader, sorted(isr)

    def holds() -> bool:
        admin = cluster.admin()
        topics = admin.list_topics(timeout=ADMIN_TIMEOUT_SECONDS).topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all((partition.leader, sorted(partition.isrs)) == wanted for partition in partitions)

    return holds
