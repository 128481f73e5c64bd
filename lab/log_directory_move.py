"""Copies a broker while it moves a replica to its other log directory: the copy contains a `-future` log."""

import json
from pathlib import Path
from typing import Final

from lab.cluster import Cluster
from lab.errors import LabError
from lab.files import copy_tree
from lab.jvm import run_tool, wait_until
from lab.workload import SMALL_SEGMENTS, Message, Writer, event

TOPIC: Final = "moved"
RECORDS: Final = 2000
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ALONE: Final = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
_BYTES_A_SECOND: Final = 1


def copy_while_moving(root: Path) -> list[Path]:
    """Copy both log directories of a frozen broker below `root`, during a move; takes about 20 s. Raises LabError."""
    nodes = root / "nodes"
    first, second = nodes / "broker-1", nodes / "broker-1-more"
    with Cluster(nodes, brokers=1, broker_settings=ALONE | {"log.dirs": f"{first},{second}"}) as cluster:
        cluster.create_topic(TOPIC, assignment=[[1]], settings=SMALL_SEGMENTS)
        writer = Writer(cluster)
        for start in range(0, RECORDS, 100):
            writer.batch(TOPIC, [Message(event("row", number)) for number in range(start, start + 100)])
        source, target = (first, second) if (first / f"{TOPIC}-0").exists() else (second, first)
        _start_move(cluster, root / "plan.json", target)
        wait_until("a future copy begins", lambda: _future_log_bytes(target) > 0, timeout_seconds=30)
        cluster.freeze(1)
        for directory in (source, target):
            copy_tree(directory, root / "copies" / directory.name)
        cluster.thaw(1)
    return sorted((root / "copies").iterdir())


def _start_move(cluster: Cluster, plan: Path, target: Path) -> None:
    assignment = {"topic": TOPIC, "partition": 0, "replicas": [1], "log_dirs": [str(target)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [assignment]}))
    options = ["--reassignment-json-file", str(plan), "--replica-alter-log-dirs-throttle", str(_BYTES_A_SECOND)]
    done = run_tool(REASSIGN, ["--bootstrap-server", cluster.bootstrap, "--execute", *options])
    if done.exit_code != 0:
        raise LabError(f"no move to {target}: {done.stderr[-500:].decode(errors='replace')}")


def _future_log_bytes(directory: Path) -> int:
    """The size of the `-future` log in bytes."""
    return sum(path.stat().st_size for path in directory.glob(f"{TOPIC}-0.*-future/*.log"))
