"""Controllers that lost their logs: a real quorum elects one of them and truncates the others' logs exactly when a scan says so."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine.local import scan
from lab.combined import CombinedCluster
from lab.errors import LabError
from lab.jvm import wait_until
from tests.support.controllers import METADATA

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

TOPIC = "kept"
SECONDS = 60


def created_on(cluster: CombinedCluster, node: int) -> bool:
    """Whether a node's copy of the controllers' log has the record of the topic."""
    return any(TOPIC.encode() in log.read_bytes() for log in (cluster.log_dir(node) / METADATA).glob("*.log"))


def leader_epoch(cluster: CombinedCluster, node: int) -> int:
    return int(json.loads((cluster.log_dir(node) / METADATA / "quorum-state").read_text())["leaderEpoch"])


def await_topic_on_all(cluster: CombinedCluster) -> None:
    wait_until("all have the topic", lambda: all(created_on(cluster, node) for node in cluster.brokers), timeout_seconds=SECONDS)


def start_again(cluster: CombinedCluster) -> None:
    """Start all nodes and wait until all have the topic; a node that others take for the leader may end first."""
    for _ in range(5):
        with contextlib.suppress(LabError):
            cluster.start(*(node for node in cluster.brokers if not cluster.server(node).running))
    await_topic_on_all(cluster)


@pytest.mark.parametrize(
    ("voters_in_log", "count", "cuts"),
    [(False, 2, True), (False, 1, False), (True, 2, False)],
    ids=["two of three", "one of three", "two of three, voters in the log"],
)
def test_nodes_that_lost_the_log_elect_one_of_them(tmp_path: Path, voters_in_log: bool, count: int, cuts: bool) -> None:
    """The last leader keeps its log, because a node that others take for the leader ends when it starts without its log. The nodes
    that lost theirs need a higher epoch before the others follow them."""
    with CombinedCluster(tmp_path / "nodes", voters_in_log=voters_in_log) as cluster:
        cluster.create_topic(TOPIC)
        await_topic_on_all(cluster)
        leader = cluster.quorum_leader()
        assert leader is not None
        lost = [node for node in cluster.brokers if node != leader][:count]
        epoch = leader_epoch(cluster, leader)
        cluster.kill(*cluster.brokers)
        for node in lost:
            shutil.rmtree(cluster.log_dir(node) / METADATA)
        result = scan([str(cluster.log_dir(node)) for node in cluster.brokers], ScanOptions(jobs=1))
        found = [finding for finding in result.findings if finding.kind == "QUORUM_WOULD_TRUNCATE"]
        assert [(finding.evidence["leaders"], finding.evidence["held_by"]) for finding in found] == [(lost, [leader])] * cuts
        if cuts:
            cluster.start(*lost)
            wait_until("one of them leads", lambda: cluster.quorum_leader() in lost, timeout_seconds=SECONDS)
            while leader_epoch(cluster, lost[0]) <= epoch:
                cluster.restart(*lost)
                wait_until("one of them leads", lambda: cluster.quorum_leader() in lost, timeout_seconds=SECONDS)
            with contextlib.suppress(LabError):  # its broker may wait for lost metadata
                cluster.start(leader)
            wait_until("the log is cut", lambda: not created_on(cluster, leader), timeout_seconds=SECONDS)
        else:
            start_again(cluster)


@pytest.mark.parametrize("voters_in_log", [False, True], ids=["configured voters", "voters in the log"])
def test_a_copy_of_the_whole_log_restores_a_quorum(tmp_path: Path, voters_in_log: bool) -> None:
    """As the finding advises: stop all nodes, and copy the log without `quorum-state` to those that lost it."""
    with CombinedCluster(tmp_path / "nodes", voters_in_log=voters_in_log) as cluster:
        cluster.create_topic(TOPIC)
        await_topic_on_all(cluster)
        leader = cluster.quorum_leader()
        assert leader is not None
        cluster.kill(*cluster.brokers)
        for node in cluster.brokers:
            if node != leader:
                shutil.rmtree(cluster.log_dir(node) / METADATA)
                shutil.copytree(
                    cluster.log_dir(leader) / METADATA,
                    cluster.log_dir(node) / METADATA,
                    ignore=shutil.ignore_patterns("quorum-state"),
                )
        start_again(cluster)
        cluster.create_topic("more")
