"""A broker moves a replica to another log directory, slowly: the copy named `-future` is no second replica, and lacks nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.files import copy_tree
from lab.jvm import run_tool, wait_until
from lab.workload import SMALL_SEGMENTS, Message, Writer, event
from tests.support.faults_verdict import said, scan

pytestmark = pytest.mark.broker

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ALONE = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
RECORDS = 2000


def held_by_future(directory: Path) -> int:
    """Bytes of log in the copy that is being made."""
    return sum(path.stat().st_size for path in directory.glob("moved-0.*-future/*.log"))


@pytest.fixture(scope="module", name="copies")
def copied_while_it_moves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    root = tmp_path_factory.mktemp("move")
    nodes = root / "nodes"
    first, second = nodes / "broker-1", nodes / "broker-1-more"
    with Cluster(nodes, brokers=1, broker_settings=ALONE | {"log.dirs": f"{first},{second}"}) as cluster:
        cluster.create_topic("moved", assignment=[[1]], settings=SMALL_SEGMENTS)
        writer = Writer(cluster)
        for start in range(0, RECORDS, 100):
            writer.batch("moved", [Message(event("row", number)) for number in range(start, start + 100)])
        source, target = (first, second) if (first / "moved-0").exists() else (second, first)
        plan = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": [str(target)]}]}
        (root / "plan.json").write_text(json.dumps(plan))
        options = ["--execute", "--reassignment-json-file", str(root / "plan.json"), "--replica-alter-log-dirs-throttle", "1"]
        done = run_tool(REASSIGN, ["--bootstrap-server", cluster.bootstrap, *options])
        assert done.exit_code == 0, done
        wait_until("a future copy begins", lambda: held_by_future(target) > 0, timeout_seconds=30)
        cluster.freeze(1)
        for directory in (source, target):
            copy_tree(directory, root / "copies" / directory.name)
        cluster.thaw(1)
        yield sorted((root / "copies").iterdir())


def test_a_future_copy_is_no_replica(copies: list[Path]) -> None:
    [future] = [path for directory in copies for path in directory.glob("moved-0.*-future")]
    assert not (future.parent / "moved-0").exists()
    result = scan(copies)
    assert {row[0] for row in said(result)} <= {"RISKY_CONFIG", "HW_UNKNOWN"}
    assert {row[1] for row in said(result)} <= {"info"}
    [moved] = [one for one in result.partitions if one.topic == "moved"]
    assert [one.log_end_offset for one in moved.replicas] == [RECORDS]


def test_without_the_directory_it_comes_from_it_holds_what_it_has(copies: list[Path]) -> None:
    [target] = [directory for directory in copies if any(directory.glob("moved-0.*-future"))]
    [held] = [one for one in scan([target]).findings if one.severity.value == "info" and one.kind == "LEFTOVER_HOLDS_DATA"]
    assert (held.place.offset_start, held.evidence["suffix"]) == (0, "future")
    assert 0 < (held.place.offset_end or 0) < RECORDS
