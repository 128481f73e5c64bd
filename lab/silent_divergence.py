"""Makes replicas diverge silently with Kafka 0.10.2.2, the failure that leader epochs (KIP-101) prevent: in sync, and different
forever."""

import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lab.cluster import LOG4J
from lab.errors import LabError
from lab.files import copy_tree, read_offset_checkpoint
from lab.jvm import KAFKA_SERVER, JavaServer, wait_until
from lab.kafka_jars import LAB, kafka_jars
from lab.settings import LOOPBACK, free_ports, properties_text
from lab.versions import ON_A_NEW_JVM, ZOOKEEPER

OLD_VERSION: Final = "0.10.2.2"
OPTIONS: Final = ("-Xms32m", "-Xmx256m", *ON_A_NEW_JVM)
BROKERS: Final = (1, 2, 3)
TOPIC: Final = "ledger"
LOG: Final = f"{TOPIC}-0/{0:020}.log"
PAYMENTS, AFTERWARDS = 10, 3
PAID: Final = [b"payment-%d" % number for number in range(1, PAYMENTS + 1)]
AFTER: Final = [b"after-%d" % number for number in range(1, AFTERWARDS + 1)]
TIMEOUT_SECONDS: Final = 60
HALF_A_SESSION_SECONDS: Final = 3
SETTLING_SECONDS: Final = 180
"""A fetch waits up to 25 s, a lost one up to 30 s more; a follower may need two of them, and checkpoints are written every 5 s."""
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "min.insync.replicas": "2",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "replica.fetch.wait.max.ms": "25000",
    "replica.lag.time.max.ms": "60000",
    "unclean.leader.election.enable": "true",
    "zookeeper.session.timeout.ms": "6000",
}
"""Followers learn the high watermark by their next fetch, which waits 25 s for new records, so theirs is stale for that long."""


class OldCluster:
    """ZooKeeper and three brokers of Kafka 0.10.2.2 on loopback; leaving the `with` block ends every process by its id."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.jars = kafka_jars(OLD_VERSION, LAB / f"pom-{OLD_VERSION}.xml")
        self.zookeeper_port, *ports = free_ports(1 + len(BROKERS))
        self.ports = dict(zip(BROKERS, ports, strict=True))
        self.servers: list[JavaServer] = []
        self.brokers: dict[int, JavaServer] = {}

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True)
        try:
            self._start("zookeeper", ZOOKEEPER, self._zookeeper_settings())
            for broker in (3, 2, 1):  # the first broker becomes the controller, and must survive this history
                self.start_broker(broker)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def start_broker(self, broker: int) -> None:
        """Start a broker and wait until it answers. Raises LabError."""
        settings = SETTINGS | {
            "broker.id": str(broker),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.ports[broker]}",
            "log.dirs": str(self.log_dir(broker)),
            "zookeeper.connect": f"{LOOPBACK}:{self.zookeeper_port}",
        }
        server = self.brokers[broker] = self._start(f"broker-{broker}", KAFKA_SERVER, settings)

        def up() -> bool:
            if not server.running:
                raise LabError(f"broker {broker} ended while starting: {server.last_words()}")
            return broker in self.known_brokers(broker)

        wait_until(f"broker {broker} starts", up, timeout_seconds=TIMEOUT_SECONDS, step_seconds=0.5)

    def log_dir(self, broker: int) -> Path:
        """The log directory of a broker."""
        return self.directory / f"logs-{broker}"

    def admin(self, broker: int) -> AdminClient:
        """An admin client that connects to one broker."""
        return AdminClient({"bootstrap.servers": f"{LOOPBACK}:{self.ports[broker]}", "log_level": 0})

    def known_brokers(self, broker: int) -> set[int]:
        """The brokers that a broker knows; empty if it does not answer."""
        admin = self.admin(broker)
        try:
            return set(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return set()

    def leader_and_isr(self, broker: int) -> tuple[int, list[int]]:
        """The leader of the topic and its ISR as a broker knows them; (-1, []) while it knows none."""
        admin = self.admin(broker)
        metadata = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.get(0)
        if metadata is None:
            return -1, []
        return metadata.leader, sorted(metadata.isrs)

    def await_state(self, broker: int, leader: int, isr: list[int]) -> None:
        """Wait for a leader and an ISR."""
        awaited = f"leader {leader}, ISR {isr}"
        wait_until(awaited, lambda: self.leader_and_isr(broker) == (leader, isr), timeout_seconds=TIMEOUT_SECONDS)

    def high_watermark(self, broker: int) -> int | None:
        """The checkpointed high watermark of a broker; None if there is none yet."""
        return read_offset_checkpoint(self.log_dir(broker) / "replication-offset-checkpoint").get((TOPIC, 0))

    def write(self, broker: int, values: list[bytes], acks: str) -> None:
        """Write values as one message set with one timestamp, so that a time index has only the entry of the first, wherever the
        log is truncated."""
        failures: list[str] = []
        moment = int(time.time() * 1000)
        producer = Producer(
            {"bootstrap.servers": f"{LOOPBACK}:{self.ports[broker]}", "acks": acks, "linger.ms": 100, "log_level": 0}
        )
        for value in values:
            producer.produce(
                TOPIC,
                value,
                partition=0,
                timestamp=moment,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        if producer.flush(TIMEOUT_SECONDS) or failures:
            raise LabError(f"not written: {failures[:1] or 'no answer'}")

    def copy(self, tree: Path) -> None:
        """Copy the brokers' log directories to `broker-1` … below `tree`; running brokers are frozen meanwhile."""
        awake = [server for server in self.brokers.values() if server.running and not server.frozen]
        for server in awake:
            server.freeze()
        for broker in BROKERS:
            copy_tree(self.log_dir(broker), tree / f"broker-{broker}")
        for server in awake:
            server.thaw()

    def _zookeeper_settings(self) -> dict[str, str]:
        data = str(self.directory / "zookeeper-data")
        port = str(self.zookeeper_port)
        return {
            "dataDir": data,
            "clientPort": port,
            "clientPortAddress": LOOPBACK,
            "tickTime": "1000",
            "admin.enableServer": "false",
        }

    def _start(self, name: str, main_class: str, settings: dict[str, str]) -> JavaServer:
        (self.directory / "log4j.properties").write_text(LOG4J)
        properties = self.directory / f"{name}.properties"
        properties.write_text(properties_text(settings))
        output = self.directory / f"{name}.output"
        server = JavaServer(
            name,
            main_class,
            [str(properties)],
            output=output,
            jars=self.jars,
            options=[*OPTIONS, f"-Dlog4j.configuration=file:{self.directory}/log4j.properties"],
        )
        self.servers.append(server)
        return server

    def _end(self) -> None:
        for server in reversed(self.servers):
            server.kill()


def cut_to_watermark(cluster: OldCluster) -> None:
    """Write ten records that all replicas acknowledge; a follower truncates them all, is elected, and appends three others.

    Afterwards the first leader is dead and the second follower is frozen.
    """
    topic = NewTopic(TOPIC, num_partitions=1, replica_assignment=[list(BROKERS)])
    admin = cluster.admin(1)
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_SECONDS)
    cluster.await_state(1, 1, [1, 2, 3])
    cluster.write(1, PAID, "all")
    wait_until("the leader checkpoints", lambda: cluster.high_watermark(1) == PAYMENTS, timeout_seconds=15)
    cluster.brokers[1].kill()
    time.sleep(HALF_A_SESSION_SECONDS)  # so that broker 2's session outlives broker 1's, and it is elected although frozen
    cluster.brokers[2].freeze()
    log = cluster.log_dir(3) / LOG
    wait_until("broker 3 follows 2 and cuts its log to a stale watermark", lambda: log.stat().st_size == 0, timeout_seconds=30)
    cluster.await_state(3, 3, [3])
    cluster.write(3, AFTER, "1")


def diverge(cluster: OldCluster) -> None:
    """Continue: two replicas end with the three records in place of the ten, the third with three of the ten."""
    cluster.start_broker(1)
    cluster.brokers[2].thaw()
    cluster.await_state(3, 3, [1, 2, 3])
    wait_until(
        f"all checkpoint {AFTERWARDS}",
        lambda: all(cluster.high_watermark(broker) == AFTERWARDS for broker in BROKERS),
        timeout_seconds=SETTLING_SECONDS,
    )


def check(tree: Path) -> None:
    """Check that the copies hold two versions of three records. Raises LabError."""
    logs = {broker: (tree / f"broker-{broker}" / LOG).read_bytes() for broker in BROKERS}
    if logs[2] != logs[3] or logs[2].count(b"after-") != AFTERWARDS or logs[1].count(b"payment-") != AFTERWARDS:
        raise LabError(f"the replicas are not {{1}} against {{2, 3}}: {logs}")


def make_silent_divergence(work: Path) -> None:
    """Make the tree `silent-divergence` below `work`, in about a minute. Raises LabError if the race was lost."""
    tree = work / "silent-divergence"
    with OldCluster(work / "old-cluster") as cluster:
        cut_to_watermark(cluster)
        diverge(cluster)
        cluster.copy(tree)
    check(tree)
    print("silent-divergence: copied", flush=True)
