"""Runs share groups and streams groups of Kafka 4.x: members that read, acknowledge or commit, and leave."""

import subprocess
from typing import Final

from lab.cluster import Cluster
from lab.errors import LabError
from lab.jvm import QUIET, java_command, run_tool
from lab.kafka_jars import KAFKA_VERSION, LAB, kafka_jars

SHARE_CONSUMER: Final = "org.apache.kafka.tools.VerifiableShareConsumer"
SHARE_GROUP: Final = "sharers"
STREAMS_GROUP: Final = "streamers"
MEMBER_SECONDS: Final = 90


def read_as_share_group(cluster: Cluster, topic: str, count: int) -> None:
    """Acknowledge `count` records of a topic in a share group. Raises LabError."""
    arguments = ["--bootstrap-server", cluster.awake, "--topic", topic, "--group-id", SHARE_GROUP]
    arguments += ["--max-messages", str(count), "--offset-reset-strategy", "earliest", "--acknowledgement-mode", "sync"]
    done = run_tool(SHARE_CONSUMER, arguments, timeout_seconds=MEMBER_SECONDS)
    if done.exit_code != 0:
        raise LabError(f"no share group: {(done.stdout + done.stderr)[-1000:].decode(errors='replace')}")


def read_as_streams_group(cluster: Cluster, topic: str, count: int) -> None:
    """Read `count` records of a topic in a streams group and commit. Raises LabError."""
    jars = kafka_jars(KAFKA_VERSION, LAB / "pom-streams.xml", "kafka-streams")
    arguments = [cluster.awake, STREAMS_GROUP, topic, str(count)]
    command = java_command(str(LAB / "StreamsGroup.java"), arguments, jars=jars, options=["-Xmx256m", QUIET])
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=MEMBER_SECONDS, check=False)
    if done.returncode != 0:
        raise LabError(f"no streams group: {(done.stdout + done.stderr)[-1000:].decode(errors='replace')}")
