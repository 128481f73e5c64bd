"""A whole Kafka cluster on loopback, in one directory, for the length of a `with` block."""

import json
import shutil
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lab.errors import LabError
from lab.files import copy_tree, read_offset_checkpoint
from lab.jvm import KAFKA_SERVER, LEADER_ELECTION, QUIET, STORAGE_TOOL, JavaServer, run_tool, wait_until
from lab.kafka_jars import kafka_jars
from lab.settings import LOOPBACK, free_ports, node_settings, properties_text

FIRST_CONTROLLER: Final = 100
START_TIMEOUT_SECONDS: Final = 60
ADMIN_TIMEOUT_SECONDS: Final = 30
STARTED: Final = "Kafka Server started"
HEAP: Final = ("-Xms64m", "-Xmx384m", "-Djava.awt.headless=true")
LOG4J: Final = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def random_uuid() -> str:
    """A cluster id in Kafka's form, 22 characters of base64; without a leading `-`, which Kafka's tools take for an option."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


class Cluster:
    """Controllers 100, 101 … and brokers 1 … n, each with its log directory `controller-100`, `broker-1` … below `directory`.

    With `log_dirs=2` every broker also has `broker-1-b` …. `format_options` go to Kafka's storage tool.
    Everything listens only on 127.0.0.1, every wait is bounded, and leaving the `with` block ends every started process
    by its id, also after an exception. Raises LabError (with the end of the node's output) when a node does not start.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        controllers: int = 1,
        *,
        version_jars: Path | None = None,
        log_dirs: int = 1,
        format_options: Sequence[str] = (),
        broker_settings: Mapping[str, str] | None = None,
        controller_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.cluster_id = random_uuid()
        self.brokers = list(range(1, brokers + 1))
        self.controllers = list(range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers))
        self.ports = dict(zip([*self.controllers, *self.brokers], free_ports(brokers + controllers), strict=True))
        self.log_dirs_count = log_dirs
        self._jars = version_jars or kafka_jars()
        self._format_options = tuple(format_options)
        self._broker_settings = dict(broker_settings or {})
        self._controller_settings = dict(controller_settings or {})
        self._servers: dict[int, JavaServer] = {}

    def __enter__(self) -> Self:
        try:
            self._format()
            self.start(*self.controllers, *self.brokers)
        except BaseException:
            self.kill(*self._servers)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.stop()
        finally:
            self.kill(*self._servers)

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for clients: all brokers, up or not."""
        return ",".join(f"{LOOPBACK}:{self.ports[broker]}" for broker in self.brokers)

    @property
    def awake(self) -> str:
        """`bootstrap.servers` for clients that must not wait for a broker that is down or frozen."""
        return ",".join(f"{LOOPBACK}:{self.ports[broker]}" for broker in self.running())

    def log_dir(self, node: int) -> Path:
        """The log directory of a node; its first, if it has several."""
        return self.directory / (f"controller-{node}" if node in self.controllers else f"broker-{node}")

    def log_dirs(self, node: int) -> list[Path]:
        """All log directories of a node."""
        first = self.log_dir(node)
        more = 0 if node in self.controllers else self.log_dirs_count - 1
        return [first, *(first.with_name(f"{first.name}-{chr(ord('b') + number)}") for number in range(more))]

    def partition_dir(self, broker: int, topic: str, partition: int = 0) -> Path:
        """The directory of a replica, in any log directory of its broker; if it does not exist, its path in the first."""
        candidates = [directory / f"{topic}-{partition}" for directory in self.log_dirs(broker)]
        return next((candidate for candidate in candidates if candidate.exists()), candidates[0])

    def server(self, node: int) -> JavaServer:
        """The newest process of a node."""
        return self._servers[node]

    def running(self) -> list[int]:
        """Brokers whose process runs and is not frozen."""
        servers = {broker: self._servers[broker] for broker in self.brokers if broker in self._servers}
        return [broker for broker, server in servers.items() if server.running and not server.frozen]

    def start(self, *nodes: int) -> None:
        """Start or restart nodes, controllers first, and wait until each logs that it started."""
        for group in (self.controllers, self.brokers):
            for node in [node for node in nodes if node in group]:
                self._start(node)
        for node in nodes:
            self._await_start(node)

    def restart(self, *nodes: int) -> None:
        """Stop nodes cleanly if they run, and start them again."""
        self.stop(*nodes)
        self.start(*nodes)

    def freeze(self, *nodes: int) -> None:
        """Suspend nodes (SIGSTOP)."""
        for node in nodes:
            self._servers[node].freeze()

    def thaw(self, *nodes: int) -> None:
        """Resume frozen nodes (SIGCONT)."""
        for node in nodes:
            self._servers[node].thaw()

    def kill(self, *nodes: int) -> None:
        """End nodes as a crash would (SIGKILL)."""
        for node in nodes:
            self._servers[node].kill()

    def stop(self, *nodes: int) -> None:
        """Stop nodes cleanly, by default all; brokers first, because controlled shutdown needs a controller."""
        chosen = nodes or (*self.brokers, *self.controllers)
        for group in (self.brokers, self.controllers):
            members = [self._servers[node] for node in group if node in chosen and node in self._servers]
            with ThreadPoolExecutor(max_workers=max(len(members), 1)) as pool:
                list(pool.map(JavaServer.stop, members))

    def copy(self, destination: Path, nodes: Iterable[int] | None = None) -> None:
        """Copy log directories (default: the brokers') to `destination/<name>`; running nodes are frozen meanwhile."""
        chosen = list(self.brokers if nodes is None else nodes)
        awake = [node for node in chosen if self._servers[node].running and not self._servers[node].frozen]
        self.freeze(*awake)
        try:
            for directory in [directory for node in chosen for directory in self.log_dirs(node)]:
                copy_tree(directory, destination / directory.name)
        finally:
            self.thaw(*awake)

    def restore(self, source: Path, nodes: Iterable[int] | None = None) -> None:
        """Replace the log directories of stopped nodes (default: all) by those that `copy` wrote below `source`."""
        for directory in [directory for node in nodes or self.ports for directory in self.log_dirs(node)]:
            shutil.rmtree(directory)
            copy_tree(source / directory.name, directory)

    def admin(self) -> AdminClient:
        """An admin client of the brokers that are running and not frozen; keep a reference until its futures are done."""
        return AdminClient({"bootstrap.servers": self.awake, "socket.timeout.ms": 10_000, "log_level": 0})

    def create_topic(
        self, name: str, *, assignment: list[list[int]] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; `assignment` lists the replicas per partition, preferred leader first (default: one on all brokers)."""
        replicas = assignment or [self.brokers]
        topic = NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas, config=dict(settings or {}))
        admin, handled = self.admin(), {KafkaError._DESTROY_BROKER}

        def created() -> bool:
            """The client drops a request to a broker that its newest metadata lacks, as that of a broker that just joined may."""
            try:
                admin.create_topics([topic], request_timeout=ADMIN_TIMEOUT_SECONDS)[name].result(ADMIN_TIMEOUT_SECONDS)
            except KafkaException as error:
                code = error.args[0].code()
                if code not in handled:
                    raise
                handled.add(KafkaError.TOPIC_ALREADY_EXISTS)  # because the broker may have received the dropped request
                return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)
            return True

        wait_until(f"{name} is created", created, timeout_seconds=ADMIN_TIMEOUT_SECONDS)
        wait_until(f"{name} has leaders", lambda: self._has_leaders(name), timeout_seconds=ADMIN_TIMEOUT_SECONDS)

    def leader_and_isr(self, topic: str, partition: int = 0) -> tuple[int, list[int]]:
        """The leader (-1 = none) and the ISR as the answering broker knows them; (-1, []) while it does not know the topic."""
        admin = self.admin()
        metadata = admin.list_topics(topic, timeout=ADMIN_TIMEOUT_SECONDS).topics[topic].partitions.get(partition)
        return (metadata.leader, sorted(metadata.isrs)) if metadata else (-1, [])

    def await_isr(self, topic: str, isr: Iterable[int], *, timeout_seconds: float = 60) -> None:
        """Wait until partition 0 of `topic` has exactly this ISR."""
        wanted = sorted(isr)
        wait_until(
            f"ISR of {topic} is {wanted}",
            lambda: self.leader_and_isr(topic)[1] == wanted,
            timeout_seconds=timeout_seconds,
            step_seconds=0.5,
        )

    def elect_unclean(self, topic: str, partition: int = 0) -> None:
        """Make the controller elect any living replica as leader. Raises LabError if the election fails."""
        self.elect_unclean_all([(topic, partition)])

    def elect_unclean_all(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Elect leaders uncleanly for several partitions (topic, number) at once. Raises LabError if the election fails."""
        # Kafka's tool, because elect_leaders of confluent-kafka 2.16 fails in its argument parsing.
        listed = [{"topic": topic, "partition": partition} for topic, partition in partitions]
        chosen = self.directory / "election.json"
        chosen.write_text(json.dumps({"partitions": listed}))
        arguments = ["--bootstrap-server", self.awake, "--election-type", "unclean", "--path-to-json-file", str(chosen)]
        done = run_tool(LEADER_ELECTION, arguments)
        if done.exit_code != 0:
            raise LabError(f"no unclean election of {listed}: {done.stderr[-500:].decode(errors='replace')}")

    def checkpointed(self, broker: int, checkpoint: str = "replication-offset-checkpoint") -> dict[tuple[str, int], int]:
        """The offsets in a checkpoint file of all log directories of a broker; default: its high watermarks."""
        files = [read_offset_checkpoint(directory / checkpoint) for directory in self.log_dirs(broker)]
        return {place: offset for file in files for place, offset in file.items()}

    def await_high_watermark(
        self, broker: int, topic: str, offset: int, *, partition: int = 0, timeout_seconds: float = 30
    ) -> None:
        """Wait until a broker's high-watermark checkpoint has `offset`; Kafka writes it every 5 s."""

        def reached() -> bool:
            return self.checkpointed(broker).get((topic, partition)) == offset

        wait_until(f"broker {broker} checkpoints {topic}-{partition} at {offset}", reached, timeout_seconds=timeout_seconds)

    def write_settings(self) -> None:
        """Write the settings of each node to `node-N.properties`, for log directories that exist or will be formatted."""
        controller_ports = {node: self.ports[node] for node in self.controllers}
        for node, port in self.ports.items():
            extra = self._broker_settings if node in self.brokers else self._controller_settings
            settings = node_settings(node, port, self.log_dirs(node), controller_ports, extra)
            self._properties(node).write_text(properties_text(settings))

    def _has_leaders(self, topic: str) -> bool:
        try:
            admin = self.admin()
            metadata = admin.list_topics(topic, timeout=ADMIN_TIMEOUT_SECONDS).topics[topic]
        except KafkaException:
            return False
        partitions = metadata.partitions.values()
        return metadata.error is None and bool(partitions) and all(partition.leader >= 0 for partition in partitions)

    def _format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.write_settings()
        for node in self.ports:
            arguments = ["format", "--cluster-id", self.cluster_id, "--config", str(self._properties(node)), *self._format_options]
            done = run_tool(STORAGE_TOOL, arguments, jars=self._jars)
            if done.exit_code != 0:
                raise LabError(f"node {node} could not be formatted: {done.stderr[-1000:].decode(errors='replace')}")

    def _properties(self, node: int) -> Path:
        return self.directory / f"node-{node}.properties"

    def _start(self, node: int) -> None:
        output = self.directory / f"node-{node}.output"
        output.unlink(missing_ok=True)
        self._servers[node] = JavaServer(
            f"node {node}",
            self._main_class(node),
            [str(self._properties(node))],
            output=output,
            jars=self._jars,
            options=self._jvm_options(),
        )

    def _main_class(self, _node: int) -> str:
        return KAFKA_SERVER

    def _jvm_options(self) -> list[str]:
        """Options for a small heap and logging to stdout, by Log4j 1 or the logger of newer versions."""
        log4j = self.directory / "log4j.properties"
        log4j.write_text(LOG4J)
        return [*HEAP, QUIET.replace("warn", "info"), f"-Dlog4j.configuration=file:{log4j}"]

    def _is_up(self, node: int) -> bool:
        return self._servers[node].mentions(STARTED)

    def _await_start(self, node: int) -> None:
        server = self._servers[node]

        def up() -> bool:
            if not server.running:
                raise LabError(f"{server.name} ended while starting: {server.last_words()}")
            return self._is_up(node)

        wait_until(f"{server.name} starts", up, timeout_seconds=START_TIMEOUT_SECONDS)


def settled(cluster: Cluster, expected: Mapping[tuple[str, int], int]) -> Callable[[], bool]:
    """A condition: the high-watermark checkpoint of every running broker has the offsets in `expected`."""

    def holds() -> bool:
        files = [cluster.checkpointed(broker) for broker in cluster.running()]
        return all(file.get(place) == offset for file in files for place, offset in expected.items())

    return holds
