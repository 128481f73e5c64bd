"""Real controllers start on a salvaged log of theirs, all on the same one: topics, records and settings are preserved, and the
quorum continues in a new epoch."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.questions.salvage import Salvaged, SalvagedPartition, SalvageOptions, salvage
from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster
from lab.combined import CombinedCluster
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.kafka_jars import kafka_jars
from lab.salvage_states import flip, logs, positions
from lab.salvaged_start import METADATA, Served, put_in_place, read, start, wait_for_watermarks, watermarks
from lab.story import messages
from lab.unclean_election import fully_replicated
from lab.workload import SMALL_SEGMENTS, Writer, write_orders
from tests.support.segments import segment_file

pytestmark = pytest.mark.broker

SNAPSHOTS = {
    "metadata.log.max.snapshot.interval.ms": "5000",
    "metadata.log.segment.ms": "4000",
    "metadata.max.retention.bytes": "1000",
    "metadata.max.retention.ms": "1000",
}
"""Snapshots every few seconds; the cleaner, which runs every 60 s, deletes what they contain from the log."""
CLEANED_WITHIN_SECONDS = 100
CONFIGURED = {"retention.ms": "123456789", "min.insync.replicas": "2"}
FORGETFUL = 2
Facts = dict[str, object]


@dataclass(frozen=True)
class State:
    """The state of a quorum when its nodes are killed."""

    name: str
    version: str = "4.3.0"
    voters_in_log: bool = False
    is_cut: bool = False
    """Whether the controllers' logs start above 0, after snapshots."""
    change: Callable[[CombinedCluster], None] | None = None
    """A change of the voters."""
    damaged: int = 1
    """The node whose log is damaged. The voters before a change need a majority too, unless a snapshot proves the change."""
    voters: tuple[int, ...] = (1, 2, 3)
    nightly: bool = True

    @property
    def ends_in_log(self) -> bool:
        """Whether the log has the voters in the end."""
        return self.voters_in_log or self.change is not None


def _leave_and_join(cluster: CombinedCluster) -> None:
    cluster.leave(3)
    cluster.join(3)


STATES = (
    State("configured", nightly=False),
    State("in-the-log", voters_in_log=True, is_cut=True, nightly=False),
    State("configured-3.9.1", "3.9.1"),
    State("configured-3.7.2", "3.7.2"),
    State("left", voters_in_log=True, change=lambda cluster: cluster.leave(3), damaged=3),
    State("left-and-cut", voters_in_log=True, is_cut=True, change=lambda cluster: cluster.leave(3), damaged=3, voters=(1, 2)),
    State("left-and-joined", voters_in_log=True, change=_leave_and_join, damaged=3),
    State("taken-into-the-log", change=CombinedCluster.take_voters_into_log),
)


@dataclass(frozen=True)
class Restarted:
    """A salvage with the controllers' log, and the cluster before and after it started on it."""

    state: State
    output: Path
    salvaged: Salvaged
    metadata: SalvagedPartition
    before: Facts
    after: Facts
    served: tuple[Served, Served]
    log_dirs: Mapping[int, Path]
    said: Mapping[int, bytes]
    copies: Path


def metadata_of(output: Path) -> Path:
    """The controllers' log of a salvage, of the first node."""
    return output / "broker-1" / "broker-1" / METADATA


def facts(cluster: Cluster) -> Facts:
    """Topics with partitions and replicas, and the settings of one topic."""
    admin = cluster.admin()
    listed = admin.list_topics(timeout=ADMIN_TIMEOUT_SECONDS).topics
    resource = ConfigResource(ResourceType.TOPIC, "kept")
    settings = admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_SECONDS)
    replicas: Facts = {
        name: {number: sorted(part.replicas) for number, part in topic.partitions.items()} for name, topic in listed.items()
    }
    return replicas | {"settings": {name: settings[name].value for name in CONFIGURED}}


def lose(cluster: CombinedCluster, copies: Path, state: State) -> tuple[Facts, dict[tuple[str, int], tuple[int, int]], Served]:
    """Write topics and records under several leaders of the quorum; kill all nodes, damage one log, delete the votes of one
    node."""
    write_orders(cluster)
    cluster.create_topic("kept", settings={**SMALL_SEGMENTS, **CONFIGURED})
    Writer(cluster).batch("kept", messages("kept", 0, 40))
    for _ in range(2):
        cluster.change_leader()
    if state.change is not None:
        state.change(cluster)
    wait_until("all replicas are in sync", lambda: fully_replicated(cluster), timeout_seconds=90, step_seconds=1.0)
    if state.is_cut:

        def are_cut() -> bool:
            return all(not (cluster.log_dir(node) / METADATA / segment_file(0)).exists() for node in cluster.brokers)

        wait_until("the controllers' logs are cut", are_cut, timeout_seconds=CLEANED_WITHIN_SECONDS, step_seconds=1.0)
    cluster.create_topic("last")
    Writer(cluster).batch("last", messages("last", 0, 10))
    ends = watermarks(cluster, [("kept", 0), ("last", 0), ("orders", 0), ("orders", 1)])
    served = read(cluster, {place: begin for place, (begin, _) in ends.items()}, "read_uncommitted")
    known = facts(cluster)
    cluster.kill(*cluster.brokers)
    for node in cluster.brokers:
        copy_tree(cluster.log_dir(node), copies / f"broker-{node}")
    damaged = copies / f"broker-{state.damaged}" / METADATA
    sizes = [path.stat().st_size for path in logs(damaged)]
    largest = sizes.index(max(sizes))
    flip(damaged, largest, len(positions(damaged, largest)) // 2)
    (copies / f"broker-{FORGETFUL}" / METADATA / "quorum-state").unlink()
    return known, ends, served


PARAMS = [pytest.param(state, marks=[pytest.mark.nightly] if state.nightly else [], id=state.name) for state in STATES]


@pytest.fixture(scope="module", params=PARAMS)
def restarted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    """Voters in settings, with the whole log; voters in the log (KIP-853), also with the start of the log only in snapshots;
    nightly those of older versions, and voters that changed."""
    root = tmp_path_factory.mktemp("quorum")
    state: State = request.param
    with CombinedCluster(
        root / "nodes",
        voters_in_log=state.voters_in_log,
        version_jars=kafka_jars(state.version),
        broker_settings=SNAPSHOTS if state.is_cut else {},
    ) as cluster:
        before, ends, served = lose(cluster, root / "copies", state)
        salvaged = salvage([str(root / "copies")], root / "out", ScanOptions(), SalvageOptions())
        metadata = next(partition for partition in salvaged.partitions if partition.topic == "__cluster_metadata")
        put_in_place(cluster, root / "out")
        start(cluster)
        wait_for_watermarks(cluster, ends)
        served_again = read(cluster, {place: begin for place, (begin, _) in ends.items()}, "read_uncommitted")
        after = facts(cluster)
        cluster.create_topic("new")
        Writer(cluster).batch("new", messages("new", 0, 5))
        said = {node: cluster.server(node).output.read_bytes() for node in cluster.brokers}
        cluster.stop()
        log_dirs = {node: cluster.log_dir(node) for node in cluster.brokers}
        yield Restarted(
            state, root / "out", salvaged, metadata, before, after, (served, served_again), log_dirs, said, root / "copies"
        )


def test_everything_is_salvaged_from_a_sound_majority(restarted: Restarted) -> None:
    assert restarted.salvaged.is_whole, restarted.salvaged.refused
    quorum = restarted.metadata.quorum
    assert quorum is not None
    damaged, voters = restarted.state.damaged, restarted.state.voters
    assert (quorum.voters, quorum.counted) == ([*voters], [node for node in voters if node != damaged])
    uncounted = [f"voter:{node}" for node in voters if node == damaged]
    assert restarted.metadata.unseen == [*uncounted, f"quorum_state:{FORGETFUL}"]
    states = [restarted.copies / f"broker-{node}" / METADATA / "quorum-state" for node in (1, 3)]
    written = json.loads((metadata_of(restarted.output) / "quorum-state").read_text())
    copied = restarted.copies / f"broker-{restarted.metadata.base_broker}" / METADATA / "quorum-state"
    in_log = int(restarted.state.ends_in_log)  # a node takes its voters into the log, and keeps its file until the next epoch
    assert written["data_version"] == (json.loads(copied.read_text())["data_version"] if copied.exists() else in_log)
    assert quorum.leader_epoch == 1 + max(json.loads(path.read_text())["leaderEpoch"] for path in states)


def test_topics_records_and_settings_are_preserved(restarted: Restarted) -> None:
    assert restarted.after == restarted.before
    assert restarted.after["settings"] == CONFIGURED
    assert restarted.served[1] == restarted.served[0]
    assert len(restarted.served[1]["kept", 0]) == 40


def test_every_controller_continues_after_it_in_a_new_epoch(restarted: Restarted) -> None:
    quorum = restarted.metadata.quorum
    assert quorum is not None
    for node, log_dir in restarted.log_dirs.items():
        state = json.loads((log_dir / METADATA / "quorum-state").read_text())
        assert state["leaderEpoch"] > quorum.leader_epoch
        assert state["data_version"] == int(restarted.state.ends_in_log)
        lines = (log_dir / METADATA / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        epochs = [EpochEntry(*map(int, line.split())) for line in lines]
        new = [entry for entry in epochs if entry.leader_epoch > quorum.leader_epoch]
        oldest_snapshot = min((int(path.name[:20]) for path in (log_dir / METADATA).glob("*.checkpoint")), default=0)
        deleted_up_to = oldest_snapshot if restarted.state.is_cut else 0  # the cleaner may have run again
        assert new[0].start_offset == max(restarted.metadata.log_end_offset, deleted_up_to)
        for path in metadata_of(restarted.output).glob("*.log"):
            theirs = log_dir / METADATA / path.name
            assert not theirs.exists() or theirs.read_bytes().startswith(path.read_bytes()), (node, path.name)


def test_no_controller_reports_a_fault_or_truncates_the_salvaged_log(restarted: Restarted) -> None:
    """Errors during an election are harmless: requests to a controller that is not ready, a slow machine. A controller that led
    briefly truncates what only it wrote after the salvaged log."""
    for node, said in restarted.said.items():
        for words in (b" fault: ", b"Truncating to", b"Truncated to", b"Corrupt", b"IllegalState"):
            found = [line for line in said.splitlines() if words in line and b"has no effect" not in line]
            assert [line for line in found if cut_at(line) < restarted.metadata.log_end_offset] == [], node


def cut_at(line: bytes) -> int:
    """The offset of a truncation in a line of a controller's output; -1 for another line."""
    found = re.search(rb"Truncat(?:ing|ed) to \D*(\d+)", line)
    return -1 if found is None else int(found[1])


def test_truncations_are_recognized_in_the_output() -> None:
    assert cut_at(b"[UnifiedLog partition=__cluster_metadata-0, dir=/a/broker-2] Truncating to offset 220") == 220
    assert cut_at(b"Truncated to offset OffsetAndEpoch(offset=7, epoch=4) from Fetch response") == 7
    assert cut_at(b"a fault: at offset 9") == -1


def test_snapshots_have_the_start_that_the_log_lacks(restarted: Restarted) -> None:
    assert (restarted.metadata.log_start_offset > 0) == restarted.state.is_cut
    names = [Path(copied.file).name for copied in restarted.metadata.files]
    assert restarted.metadata.log_start_offset <= max([0, *(int(name[:20]) for name in names)])
    for name in names:
        base = restarted.copies / f"broker-{restarted.metadata.base_broker}" / METADATA / name
        assert (metadata_of(restarted.output) / name).read_bytes() == base.read_bytes()
