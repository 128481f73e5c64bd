"""Settings of the laboratory's nodes: small, quick to notice a lost broker, and deterministic."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"

COMMON: Final[Mapping[str, str]] = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
}
BROKER: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.index.size.max.bytes": "4096",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "4000",
    "transaction.partition.verification.enable": "true",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
}


def free_ports(count: int) -> list[int]:
    """`count` different free loopback ports."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind((LOOPBACK, 0))
        return [int(listener.getsockname()[1]) for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def voters(controller_ports: Mapping[int, int]) -> str:
    """The value of `controller.quorum.voters` for controllers (node id → port)."""
    return ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in sorted(controller_ports.items()))


def node_settings(
    node: int, port: int, log_dirs: Sequence[Path], controller_ports: Mapping[int, int], extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """All properties of a node, which is a controller if its id is in `controller_ports`; `extra` overrides the others."""
    is_controller = node in controller_ports
    listener = f"{'CONTROLLER' if is_controller else 'PLAINTEXT'}://{LOOPBACK}:{port}"
    settings = {
        "process.roles": "controller" if is_controller else "broker",
        "node.id": str(node),
        "listeners": listener,
        "controller.quorum.voters": voters(controller_ports),
        "log.dirs": ",".join(str(directory) for directory in log_dirs),
        **COMMON,
    }
    if not is_controller:
        settings |= {"advertised.listeners": listener, **BROKER}
    return settings | dict(extra or {})


def properties_text(settings: Mapping[str, str]) -> str:
    """A properties file with one sorted `key=value` per line."""
    return "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))
