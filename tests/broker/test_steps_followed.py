"""Follows the steps of a plan for more than a hundred partitions on real brokers that allow unclean elections."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_forensics.cli.main import outcome
from lab.cluster import Cluster
from lab.jvm import wait_until
from lab.kafka_scripts import write_scripts
from lab.unclean_election import ALLOWED, MANY, Acknowledged, fully_replicated, lose_partitions
from lab.versions import VERSIONS

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

PARTITIONS = 126


class Follower:
    """Does exactly what each step says; `server.properties` is the controller's."""

    def __init__(self, cluster: Cluster, folder: Path, jars: Path) -> None:
        self.cluster, self.folder = cluster, folder
        write_scripts(folder, jars)
        settings = cluster.directory / f"node-{cluster.controllers[0]}.properties"
        (folder / "server.properties").write_text(settings.read_text())

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; return its exit status and stdout."""
        controller = f"127.0.0.1:{self.cluster.ports[self.cluster.controllers[0]]}"
        shown = command.replace("--bootstrap-controller HOST:PORT", f"--bootstrap-controller {controller}")
        shown = shown.replace("--bootstrap-server HOST:PORT", f"--bootstrap-server {self.cluster.awake}")
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", shown], cwd=self.folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout

    def follow(self, step: dict[str, Any]) -> None:
        """Do one step within its time limit."""
        match step["kind"]:
            case "stop":
                self.cluster.stop(*(broker for broker in step["brokers"] if broker in self.cluster.running()))
                return
            case "start":
                assert step["command"] is None
                self.cluster.start(*step["brokers"])
                return
            case "controllers" | "forbid_unclean":
                self.cluster.start(*set(self.cluster.controllers).difference(self.cluster.running()))
            case "recover" | "produce" | "verify":  # tests/broker/test_from_loss_to_verified.py
                return
        last = ""
        until = time.monotonic() + step["limit_seconds"]
        while time.monotonic() < until:
            status, last = self.run(step["command"])
            if status == 0 and self.is_confirmed(step, last):
                return
            time.sleep(2)
        pytest.fail(f"{step['text']}\n{step['command']}\n{last}")

    def is_confirmed(self, step: dict[str, Any], printed: str) -> bool:
        """Whether the output of a command is what the step expects."""
        if step["kind"] == "check_unclean":
            return "unclean.leader.election.enable=true" in printed
        if step["kind"] != "leads":
            return True
        (broker,) = step["brokers"]
        numbers = [number for run in step["partitions"] for number in range(run["partition_start"], run["partition_end"])]
        if " | grep -cFf " in step["command"]:
            return printed == f"{len(numbers)}\n"
        led = [f"Partition: {number}\tLeader: {broker}\t" for number in numbers]
        return all(line in printed for line in led)


def read_back(cluster: Cluster) -> Iterator[tuple[tuple[int, int], bytes]]:
    """((partition, offset), value) of every record."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(MANY, partition, 0) for partition in range(PARTITIONS)])
    ended: set[int] = set()
    until = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until, f"only {len(ended)} partitions were read to their ends"
        for message in consumer.consume(500, timeout=1.0):
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            if message.error():
                ended.add(partition)
            else:
                assert offset is not None
                assert value is not None
                yield (partition, offset), value
    consumer.close()


def promised(plan: dict[str, Any], acknowledged: Acknowledged) -> dict[tuple[int, int], bytes]:
    """The acknowledged records that remain according to the plan."""
    left: dict[tuple[int, int], bytes] = {}
    for (broker, number, offset), value in acknowledged.items():
        partition = next(row for row in plan["partitions"] if row["partition"] == number)
        candidate = next(row for row in partition["candidates"] if row["is_recommended"])
        is_lost = any(
            broker in loss["held_by"] and loss["offset_start"] <= offset < loss["offset_end"] for loss in candidate["losses"]
        )
        if not is_lost:
            assert left.setdefault((number, offset), value) == value
    return left


@pytest.mark.parametrize("version", ["4.2.1", "4.3.0"])
@pytest.mark.parametrize("unharmed", [0, 4], ids=["one leader for all", "two leaders"])
def test_the_recommended_leaders_lead_and_promised_records_are_served(unharmed: int, version: str, tmp_path: Path) -> None:
    jars = VERSIONS[version].jars
    with Cluster(tmp_path / "cluster", version_jars=jars, broker_settings=ALLOWED, controller_settings=ALLOWED) as cluster:
        acknowledged = lose_partitions(cluster, PARTITIONS, unharmed)
        cluster.stop(*cluster.controllers)
        cluster.copy(tmp_path / "before", [*cluster.controllers, *cluster.brokers])
        file = tmp_path / "plan.json"
        files = str(tmp_path / "steps")
        assert outcome(["plan", str(tmp_path / "before"), "-q", "--output", str(file), "--files", files]) == 0
        plan = json.loads(file.read_text())
        assert len(plan["partitions"]) == PARTITIONS
        follower = Follower(cluster, tmp_path / "followed", jars)
        for step in plan["steps"]:
            follower.follow(step)
        wait_until("all replicas are in sync", lambda: fully_replicated(cluster), timeout_seconds=120, step_seconds=1.0)
        partitions = cluster.admin().list_topics(MANY, timeout=30).topics[MANY].partitions
        assert {number: partition.leader for number, partition in partitions.items()} == {
            row["partition"]: row["recommended"] for row in plan["partitions"]
        }
        kept = [number for number, partition in partitions.items() if partition.leader == 3]
        assert kept == list(range(PARTITIONS - unharmed))
        assert dict(read_back(cluster)) == promised(plan, acknowledged)
        cluster.stop()
        cluster.copy(tmp_path / "after", [*cluster.controllers, *cluster.brokers])
    assert outcome(["verify", "--against", str(file), str(tmp_path / "after"), "-q"]) == 0
