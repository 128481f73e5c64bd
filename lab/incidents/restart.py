"""Brings the cluster of an incident up again, on a copy of its log directories."""

import tarfile
from pathlib import Path

from lab.errors import LabError
from lab.incidents.incidents import STORED, VERSION, archive_of, cluster_of
from lab.kafka_scripts import write_scripts
from lab.settings import LOOPBACK
from lab.versions import VersionCluster


def unpack(name: str, directory: Path, stored: Path = STORED) -> VersionCluster:
    """Unpack the log directories of an incident to `directory/kafka`, with settings of each node beside them.

    Return the cluster, of which no node runs. Raises LabError if `directory` is not empty.
    """
    if directory.exists() and any(directory.iterdir()):
        raise LabError(f"{directory} is not empty")
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive_of(name, stored)) as tar:
        tar.extractall(directory, filter="data")
    (directory / name).rename(directory / "kafka")
    cluster = cluster_of(name, directory / "kafka")
    cluster.write_settings()
    return cluster


def prepare(name: str, directory: Path, stored: Path = STORED) -> str:
    """Unpack an incident, write Kafka's scripts to `directory/bin`, and return what a person needs to start the nodes."""
    cluster = unpack(name, directory, stored)
    write_scripts(directory / "bin", VERSION.jars)
    nodes = [*cluster.controllers, *cluster.brokers]
    lines = [
        f"Kafka {VERSION.name}; jars: {VERSION.jars}",
        f"log directories: {', '.join(str(cluster.log_dir(node)) for node in nodes)}",
        "Nothing runs yet. Start nodes in the order that the advice gives; each runs at most four hours and writes node-N.output:",
        f"  cd {directory.resolve()} && export PATH=$PWD/bin:$PATH",
        *(f"  kafka-server-start.sh -daemon kafka/node-{node}.properties" for node in nodes),
        f"  kafka-metadata-quorum.sh --bootstrap-controller {LOOPBACK}:{cluster.ports[cluster.controllers[0]]} describe --status",
        f"  kafka-topics.sh --bootstrap-server {cluster.bootstrap} --describe",
        f"  kafka-server-stop.sh {' '.join(f'kafka/node-{node}.properties' for node in reversed(nodes))}",
    ]
    return "\n".join(lines)
