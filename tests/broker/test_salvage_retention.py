"""Salvaged records older than the retention time: brokers delete them, unless the printed steps are followed."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_forensics.cli.outputs.salvage_steps import steps_of
from kafka_forensics.cli.outputs.steps import show_retention_command
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import SalvageOptions, salvage
from lab.cluster import Cluster
from lab.errors import LabTimeoutError
from lab.files import copy_tree
from lab.jvm import QUICK_START, wait_until
from lab.salvaged_start import put_in_place, watermarks
from lab.versions import VERSIONS

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

OLD = ("old", 0)
PROMPT = {"log.initial.task.delay.ms": "2000", "log.retention.check.interval.ms": "2000"}
IN_2023_MS = 1_700_000_000_000


def configs(cluster: Cluster, version: str, command: str | None) -> str:
    """The output of a kafka-configs.sh command, run on the controller."""
    assert command is not None
    java = f'java {" ".join(QUICK_START)} -cp "{VERSIONS[version].jars}/*" kafka.admin.ConfigCommand'
    address = f"127.0.0.1:{cluster.ports[cluster.controllers[0]]}"
    command = command.replace("kafka-configs.sh", java).replace("HOST:PORT", address)
    return subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=120, text=True).stdout


@pytest.mark.parametrize("version", ["4.2.1", "4.3.0"])
def test_old_records_stay_until_the_last_step_restores_retention(version: str, tmp_path: Path) -> None:
    jars = VERSIONS[version].jars
    with Cluster(tmp_path / "nodes", brokers=1, version_jars=jars, broker_settings=PROMPT) as cluster:
        cluster.create_topic("old", settings={"retention.ms": "-1"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(10):
            producer.produce("old", b"%d" % number, partition=0, timestamp=IN_2023_MS + number)
        assert producer.flush(30) == 0
        wait_until(
            "all is committed", lambda: cluster.checkpointed(1, "replication-offset-checkpoint").get(OLD) == 10, timeout_seconds=30
        )
        cluster.kill(*cluster.brokers)
        nodes = [*cluster.controllers, *cluster.brokers]
        topic = "--alter --entity-type topics --entity-name old"
        configs(cluster, version, f"kafka-configs.sh --bootstrap-controller HOST:PORT {topic} --delete-config retention.ms")
        cluster.stop(*cluster.controllers)
        for node in nodes:
            copy_tree(cluster.log_dir(node), tmp_path / "copies" / cluster.log_dir(node).name)
        salvaged = salvage([str(tmp_path / "copies")], tmp_path / "out", ScanOptions(), SalvageOptions())
        steps = {step.kind: step for step in steps_of(salvaged)}
        put_in_place(cluster, tmp_path / "out")
        cluster.start(*cluster.controllers)
        assert configs(cluster, version, show_retention_command(["old"])) == "All configs for topic old are:\n"
        configs(cluster, version, steps["keep_records"].command)
        assert "retention.ms=-1 " in configs(cluster, version, show_retention_command(["old"]))
        cluster.start(*cluster.brokers)

        def has_deleted() -> bool:
            return watermarks(cluster, [OLD])[OLD] == (10, 10)

        with pytest.raises(LabTimeoutError):
            wait_until("retention deletes the records", has_deleted, timeout_seconds=10)
        assert watermarks(cluster, [OLD])[OLD] == (0, 10)
        configs(cluster, version, steps["restore_retention"].command)
        wait_until("retention deletes the records", has_deleted, timeout_seconds=30)
