"""Starts a broker on a log without `partition.metadata`, to see how each version of Kafka reacts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.errors import LabError
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.versions import Version, VersionCluster, version_cluster
from lab.workload import Message, Writer, end_offsets, event

TOPIC: Final = "orders"
RECORDS: Final = 60
METADATA: Final = "partition.metadata"
_ROUND: Final = 20
_SHORT: Final = {"retention.ms": "1000", "segment.ms": "1000"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The log after its broker restarted."""

    before: Path
    """A copy of the log directory without the file."""
    topic_id: str
    """The topic id that was in the file."""
    starts: bool
    directories: dict[str, int]
    """Directory of the partition afterwards → size of its log in bytes."""
    served: int | None
    """The log end offset that the broker serves; None if it does not start."""


def start_without_topic_id(root: Path, version: Version, *, mended: bool = False, emptied: bool = False) -> Outcome:
    """Stop a broker cleanly, delete the `partition.metadata` of a log, and restart it.

    `mended`: write the file again before the restart. `emptied`: stop only after retention has deleted all records.
    """
    with version_cluster(root / "nodes", version, brokers=1) as cluster:
        cluster.create_topic(TOPIC, assignment=[[1]], settings=_SHORT if emptied else None)
        writer = Writer(cluster)
        for first in range(0, RECORDS, _ROUND):
            writer.batch(TOPIC, [Message(event("row", number)) for number in range(first, first + _ROUND)])
        if emptied:
            last = cluster.partition_dir(1, TOPIC) / f"{RECORDS:020d}.log"
            logs = last.parent
            wait_until("retention has deleted all", lambda: [*logs.glob("*.log")] == [last], timeout_seconds=60)
        cluster.stop(1)
        file = cluster.partition_dir(1, TOPIC) / METADATA
        topic_id = file.read_text().strip().removeprefix("version: 0\ntopic_id: ")
        file.unlink()
        before = root / "before" / "broker-1"
        copy_tree(cluster.log_dir(1), before)
        if mended:
            file.write_text(f"version: 0\ntopic_id: {topic_id}\n")
        return _started(cluster, before, topic_id)


def _started(cluster: VersionCluster, before: Path, topic_id: str) -> Outcome:
    try:
        cluster.start(1)
    except LabError:
        starts, served = False, None
    else:
        wait_until("the topic is led", lambda: cluster.leader_and_isr(TOPIC)[0] == 1, timeout_seconds=30)
        starts, served = True, end_offsets(cluster, {TOPIC: 1})[TOPIC, 0]
    directories = {
        path.name: sum(log.stat().st_size for log in path.glob("*.log")) for path in cluster.log_dir(1).glob(f"{TOPIC}-0*")
    }
    return Outcome(before, topic_id, starts, directories, served)
