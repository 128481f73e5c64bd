"""The incidents, and how one is made: a history on a new cluster, an archive of all log directories, and the truth beside it."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_forensics.model.json_objects import Json
from lab.cluster import Cluster
from lab.errors import LabError
from lab.incidents import stuck_readers, unclean_127, wiped_disk
from lab.incidents.clients import INTERNAL
from lab.kafka_jars import LAB, WORK
from lab.make_archives import pack
from lab.processes import mentioning
from lab.versions import VERSIONS, VersionCluster, version_cluster

STORED: Final = LAB.parent / "tests" / "golden" / "incidents"
VERSION: Final = list(VERSIONS.values())[-1]
SETTINGS: Final = {
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "5000000",
    "offsets.topic.num.partitions": str(INTERNAL["__consumer_offsets"]),
    "transaction.state.log.num.partitions": str(INTERNAL["__transaction_state"]),
}
"""Of all brokers. A cluster that is started again after weeks keeps its records and its groups' offsets."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident: `play` runs its history on a new cluster and returns the truth. Nodes that still run are stopped afterwards."""

    play: Callable[[Cluster], Json]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of brokers."""


INCIDENTS: Final = {
    "unclean-127": Incident(unclean_127.play),
    "wiped-disk": Incident(wiped_disk.play, wiped_disk.CHECKPOINTS),
    "stuck-readers": Incident(stuck_readers.play, stuck_readers.SETTINGS),
}


def archive_of(name: str, stored: Path = STORED) -> Path:
    """The archive of an incident: a directory with the log directories `broker-1` … and `controller-100`."""
    return stored / f"{name}.tar.xz"


def truth_of(name: str, stored: Path = STORED) -> Json:
    """What the clients of an incident know: acknowledged records, and where they are left."""
    truth: Json = json.loads((stored / f"{name}.truth.json").read_text())
    return truth


def cluster_of(name: str, directory: Path) -> VersionCluster:
    """The cluster of an incident, not started."""
    return version_cluster(directory, VERSION, settings=SETTINGS | dict(INCIDENTS[name].settings))


def make(name: str, stored: Path = STORED, work: Path = WORK / "incidents") -> Path:
    """Play an incident in `work`, and replace its archive and its truth; return the archive. Raises LabError."""
    directory = work / name
    shutil.rmtree(directory, ignore_errors=True)
    with cluster_of(name, directory / "cluster") as cluster:
        truth = {"incident": name, "kafka": VERSION.name, "cluster_id": cluster.cluster_id} | INCIDENTS[name].play(cluster)
    if left := mentioning(str(directory)):
        raise LabError(f"processes are left: {left}")
    tree = directory / name
    tree.mkdir()
    for node in (*cluster.brokers, *cluster.controllers):
        cluster.log_dir(node).rename(tree / cluster.log_dir(node).name)
    stored.mkdir(parents=True, exist_ok=True)
    pack(tree, archive_of(name, stored))
    (stored / f"{name}.truth.json").write_text(truth_text(truth))
    shutil.rmtree(directory)
    return archive_of(name, stored)


def truth_text(truth: Json) -> str:
    """JSON with one line for each field, and for each row of a list."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_lines(value)}" for name, value in truth.items()) + "\n}\n"


def _lines(value: object) -> str:
    if not (isinstance(value, list) and value and isinstance(value[0], dict)):
        return json.dumps(value)
    return "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n]"
