"""The versions of Kafka in the laboratory: what each can do, and a cluster of each, with KRaft or ZooKeeper."""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.cluster import FIRST_CONTROLLER, Cluster
from lab.jvm import wait_until
from lab.kafka_jars import LAB, kafka_jars
from lab.settings import BROKER, LOOPBACK, properties_text
from lab.workload import CODECS

ZOOKEEPER: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ON_A_NEW_JVM: Final = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "java.lang"))
EARLY_ACCESS: Final = {"unstable.feature.versions.enable": "true", "unstable.api.versions.enable": "true"}
SESSION: Final = {"broker.session.timeout.ms": "6000"}
SEGMENT_BYTES: Final = "8192"
SESSION_END_SECONDS: Final = 60
PROMPT: Final = {
    "file.delete.delay.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "transaction.partition.verification.enable": "true",
}
"""Deletions and checkpoints happen soon."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of Kafka and what it can do."""

    name: str
    zookeeper: bool = False
    codecs: tuple[str, ...] = CODECS
    moves: bool = True
    """Whether a replica can move between log directories in this mode."""
    share_groups: bool = False
    streams_groups: bool = False
    format_options: tuple[str, ...] = ()
    early_access: bool = False
    """Whether brokers and controllers need a setting to accept `format_options`."""
    pom: Path = LAB / "pom.xml"

    @property
    def jars(self) -> Path:
        """The folder of its jars, fetched once."""
        return kafka_jars(self.name, self.pom)


VERSIONS: Final = {
    version.name: version
    for version in (
        Version("1.1.1", zookeeper=True, codecs=("gzip", "snappy", "lz4"), pom=LAB / "pom-1.1.1.xml"),
        Version("2.8.2", zookeeper=True),
        Version("3.3.2", moves=False),
        Version("3.6.2", moves=False),
        Version("3.9.1"),
        Version(
            "4.1.1",
            share_groups=True,
            streams_groups=True,
            format_options=("--feature", "share.version=1", "--feature", "streams.version=1"),
            early_access=True,
        ),
        Version("4.2.1", share_groups=True, streams_groups=True),
        Version("4.3.0", share_groups=True, streams_groups=True),
        Version("4.4.0", share_groups=True, streams_groups=True),
    )
}


class VersionCluster(Cluster):
    """A cluster with small segments that roll by size, under the version's name of that setting.

    If full indexes rolled them, a broker might not start after a crash: a replica that fetched many batches at once has fewer index
    entries than recovery wants to write ("Attempt to append to a full time index").
    """

    segment_bytes = "segment.bytes"

    def create_topic(
        self, name: str, *, assignment: list[list[int]] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; settings for small indexes are replaced by small segments."""
        changed = dict(settings or {})
        if changed.pop("segment.index.bytes", None):
            changed.pop("index.interval.bytes", None)
            changed[self.segment_bytes] = SEGMENT_BYTES
        super().create_topic(name, assignment=assignment, settings=changed)


class SinceKafka4(VersionCluster):
    """Kafka 4 and later allow segments of less than a megabyte only by an internal setting."""

    segment_bytes = "internal.segment.bytes"


class ZooKeeperCluster(VersionCluster):
    """Brokers of a version without KRaft; node 100 is ZooKeeper, with its data in `zookeeper-100`."""

    @property
    def zookeeper(self) -> str:
        """Address of ZooKeeper."""
        return f"{LOOPBACK}:{self.ports[FIRST_CONTROLLER]}"

    def log_dir(self, node: int) -> Path:
        """The (first) log directory of a broker, or the data directory of ZooKeeper."""
        return self.directory / f"zookeeper-{node}" if node in self.controllers else super().log_dir(node)

    def start(self, *nodes: int) -> None:
        """Start nodes, ZooKeeper first; it must drop the sessions of killed brokers before these start."""
        super().start(*(node for node in nodes if node in self.controllers))
        brokers = [node for node in nodes if node in self.brokers]
        wait_until("old sessions end", lambda: not self._registered() & set(brokers), timeout_seconds=SESSION_END_SECONDS)
        super().start(*brokers)

    def _registered(self) -> set[int]:
        """The brokers registered in ZooKeeper; all while it does not answer."""
        try:
            with socket.create_connection((LOOPBACK, self.ports[FIRST_CONTROLLER]), timeout=10) as connection:
                connection.sendall(b"dump")
                received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        except OSError:
            return set(self.brokers)
        if b"ephemeral" not in received.lower():  # it listens but does not serve yet
            return set(self.brokers)
        return {int(broker) for broker in re.findall(rb"/brokers/ids/(\d+)", received)}

    def _format(self) -> None:
        """Write settings; ZooKeeper and its brokers create their directories."""
        self.directory.mkdir(parents=True, exist_ok=True)
        zookeeper = FIRST_CONTROLLER
        settings = {
            "dataDir": str(self.log_dir(zookeeper)),
            "clientPort": str(self.ports[zookeeper]),
            "clientPortAddress": LOOPBACK,
            "tickTime": "1000",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "dump",
        }
        self.log_dir(zookeeper).mkdir()
        self._properties(zookeeper).write_text(properties_text(settings))
        for broker in self.brokers:
            address = f"PLAINTEXT://{LOOPBACK}:{self.ports[broker]}"
            broker_settings = {
                **BROKER,
                "broker.id": str(broker),
                "listeners": address,
                "advertised.listeners": address,
                "log.dirs": ",".join(map(str, self.log_dirs(broker))),
                "zookeeper.connect": self.zookeeper,
                "zookeeper.session.timeout.ms": "6000",
                "zookeeper.connection.timeout.ms": "20000",
                "controlled.shutdown.max.retries": "2",
                "controlled.shutdown.retry.backoff.ms": "500",
                "num.network.threads": "1",
                "num.io.threads": "2",
                **self._broker_settings,
            }
            self._properties(broker).write_text(properties_text(broker_settings))

    def _main_class(self, node: int) -> str:
        return ZOOKEEPER if node in self.controllers else super()._main_class(node)

    def _jvm_options(self) -> list[str]:
        return [*super()._jvm_options(), *ON_A_NEW_JVM]

    def _is_up(self, node: int) -> bool:
        if node not in self.controllers:
            return self._servers[node].mentions(f"[KafkaServer id={node}] started")
        try:
            socket.create_connection((LOOPBACK, self.ports[node]), timeout=1).close()
        except OSError:
            return False
        return True


def version_cluster(
    directory: Path, version: Version, *, brokers: int = 3, log_dirs: int = 1, settings: Mapping[str, str] | None = None
) -> VersionCluster:
    """A cluster of a version, not yet started, of brokers 1 … n and one controller or ZooKeeper."""
    kind = ZooKeeperCluster if version.zookeeper else SinceKafka4 if version.name.startswith("4.") else VersionCluster
    replicas = str(min(brokers, 3))
    internal = {"offsets.topic.replication.factor": replicas, "transaction.state.log.replication.factor": replicas}
    if version.share_groups:
        internal |= {
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
            "group.share.initial.rebalance.delay.ms": "0",
        }
    allowed = EARLY_ACCESS if version.early_access else {}
    return kind(
        directory,
        brokers,
        version_jars=version.jars,
        log_dirs=log_dirs,
        format_options=version.format_options,
        broker_settings={**PROMPT, **internal, **allowed, **(settings or {})},
        controller_settings={**SESSION, **allowed},
    )
