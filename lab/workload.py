"""What the laboratory's clients write: the same records in every run; only ids, times and the brokers' decisions differ."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from lab.cluster import Cluster
from lab.errors import LabError

FLUSH_TIMEOUT_SECONDS: Final = 30
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
SMALL_SEGMENTS: Final = {"segment.index.bytes": "96", "index.interval.bytes": "1024"}
"""A full index rolls a segment: after at most twelve entries, with a kilobyte of log between two entries."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def event(kind: str, number: int, **more: str | int) -> bytes:
    """A small JSON value that is easy to recognise."""
    return json.dumps({"event": kind, "number": number, **more}, separators=(",", ":")).encode()


class Writer:
    """A producer that writes each list of messages as one batch, and keeps the acknowledged end offset."""

    def __init__(self, cluster: Cluster, **settings: str | int | bool) -> None:
        configuration: dict[str, str | int | float | bool | None] = {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "linger.ms": 50,
            "message.timeout.ms": 20_000,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.producer = Producer(configuration)
        self.end_offset = -1

    def batch(self, topic: str, messages: Sequence[Message], partition: int = 0) -> None:
        """Write messages as one batch and wait for all acknowledgements. Raises LabError if one fails."""
        failures: list[str] = []

        def on_delivery(error: object, message: object) -> None:
            if error is not None:
                failures.append(str(error))
            else:
                self.end_offset = message.offset() + 1  # type: ignore[attr-defined]

        for message in messages:
            self.producer.produce(
                topic, message.value, message.key, partition, on_delivery=on_delivery, headers=list(message.headers)
            )
        if self.producer.flush(FLUSH_TIMEOUT_SECONDS) or failures:
            raise LabError(f"not written to {topic}-{partition}: {failures[:1] or 'no answer'}")


def write_orders(cluster: Cluster) -> None:
    """`orders`: partition 0 is idempotent with many segments; partition 1 has headers, nulls and values that are not text."""
    cluster.create_topic("orders", assignment=[[1, 2, 3], [2, 3, 1]], settings=SMALL_SEGMENTS)
    writer = Writer(cluster, enable_idempotence=True)
    for first in range(0, 500, 20):
        writer.batch(
            "orders",
            [Message(event("order", n, item=f"sku-{n % 37:03}"), b"customer-%03d" % (n % 50)) for n in range(first, first + 20)],
        )
    odd = [
        Message(b"a value without a key"),
        Message(None, b"a key without a value"),
        Message(None),
        Message(b"", b""),
        Message(b"\x00\xff\xfe\x80 not text", b"\xc3\x28\xed\xa0\x80"),
        Message("gr\u00fc\u00dfe \u20ac \U0001f600".encode(), "schl\u00fcssel".encode()),
        Message(b"two headers", b"h", [("trace-id", b"00-4bf92f35"), ("source", b"lab")]),
        Message(
            b"odd headers", b"h", [("empty", b""), ("null", None), ("bytes", b"\xff\x00"), ("trace-id", b"1"), ("trace-id", b"2")]
        ),
        Message(b"line one\nline two\ttab \x1b[31mred", b"control characters"),
    ]
    plain = Writer(cluster)
    plain.batch("orders", odd, 1)
    for first in range(0, 60, 15):
        plain.batch("orders", [Message(event("order", n), None, [("n", b"%d" % n)]) for n in range(first, first + 15)], 1)


def write_payments(cluster: Cluster) -> None:
    """`payments`: two partitions with nine committed and four aborted transactions, and one left open by a producer that ends."""
    cluster.create_topic("payments", assignment=[[3, 1, 2], [1, 2, 3]], settings={"segment.index.bytes": "1024"})
    for teller in range(3):
        writer = Writer(cluster, transactional_id=f"teller-{teller}", transaction_timeout_ms=900_000)
        writer.producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
        for turn in range(4):
            number = teller * 4 + turn
            writer.producer.begin_transaction()
            for partition in range(2):
                writer.batch(
                    "payments",
                    [Message(event("payment", number, step=step), b"teller-%d" % teller) for step in range(5)],
                    partition,
                )
            if turn == 2 or number == 0:
                writer.producer.abort_transaction(FLUSH_TIMEOUT_SECONDS)
            else:
                writer.producer.commit_transaction(FLUSH_TIMEOUT_SECONDS)
    writer = Writer(cluster, transactional_id="teller-who-left", transaction_timeout_ms=900_000)
    writer.producer.init_transactions(FLUSH_TIMEOUT_SECONDS)
    writer.producer.begin_transaction()
    writer.batch("payments", [Message(event("payment", 99, step=step), b"teller-who-left") for step in range(3)])
    Writer(cluster).batch("payments", [Message(event("cash", n)) for n in range(4)])


def write_codecs(cluster: Cluster, codecs: Sequence[str] = CODECS) -> None:
    """`codec-…`: batches of each codec, first compressed by the broker (Java), then by the client (C)."""
    for codec in codecs:
        name = f"codec-{codec}"
        cluster.create_topic(name, settings={"compression.type": codec, "segment.index.bytes": "1024"})
        for settings in ({}, {"compression_type": codec}):
            writer = Writer(cluster, **settings)
            for first in range(0, 60, 20):
                writer.batch(
                    name,
                    [Message(event(codec, n, text="the same words again " * 3), b"key-%d" % n) for n in range(first, first + 20)],
                )


def write_append_time(cluster: Cluster) -> None:
    """`append-time`: batches with timestamps of the broker, one of them compressed."""
    cluster.create_topic("append-time", settings={"message.timestamp.type": "LogAppendTime", "segment.index.bytes": "1024"})
    for settings in ({}, {"compression_type": "gzip"}):
        Writer(cluster, **settings).batch("append-time", [Message(event("tick", n), b"clock") for n in range(10)])


def write_profiles(cluster: Cluster) -> None:
    """`profiles`: compacted; ten keys written once, forty written many times, five of them deleted at the end."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "1000", **SMALL_SEGMENTS}
    cluster.create_topic("profiles", assignment=[[2, 1, 3]], settings=settings)
    writer = Writer(cluster)
    writer.batch("profiles", [Message(event("profile", n, since="the beginning"), b"founder-%02d" % n) for n in range(10)])
    for first in range(0, 600, 20):
        writer.batch("profiles", [Message(event("profile", n), b"user-%02d" % (n * 7 % 40)) for n in range(first, first + 20)])
    writer.batch("profiles", [Message(None, b"user-%02d" % user) for user in range(5)])
    for first in range(600, 760, 20):
        writer.batch("profiles", [Message(event("profile", n), b"user-%02d" % (10 + n % 20)) for n in range(first, first + 20)])


def commit_group(cluster: Cluster, group: str = "billing") -> None:
    """Read `orders` to its end in a consumer group, commit, and leave."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe(["orders"])
        count = 0
        for _ in range(60):
            count += len(consumer.consume(num_messages=500, timeout=1.0))
            if count == 569:
                break
        else:
            raise LabError(f"{group} read {count} of 569 records")
        consumer.commit(offsets=[TopicPartition("orders", 0, 500), TopicPartition("orders", 1, 69)], asynchronous=False)
    finally:
        consumer.close()


def end_offsets(cluster: Cluster, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """The high watermark of each partition, as leaders report it; `topics` is topic → number of partitions."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "nobody", "isolation.level": "read_uncommitted", "log_level": 0}
    )
    try:
        return {
            (topic, partition): consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
            for topic, partitions in topics.items()
            for partition in range(partitions)
        }
    finally:
        consumer.close()
