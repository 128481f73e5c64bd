"""Makes a real broker with groups of every kind: `python -m lab.group_kinds DIRECTORY`, one minute.

A broker of Kafka 4.3 on loopback, with consumer, share and streams groups run by `lab/java/GroupWorkload.java`. Golden dumps are
made of its logs of `__consumer_offsets` and `__share_group_state`.
"""

import argparse
import shutil
from pathlib import Path
from typing import Final

from lab.cluster import Cluster
from lab.errors import LabError
from lab.files import copy_tree
from lab.jvm import run_java
from lab.kafka_jars import LAB, WORK
from lab.settings import LOOPBACK
from lab.workload import Message, Writer, event

WORKLOAD: Final = LAB / "java" / "GroupWorkload.java"
TIMEOUT_SECONDS: Final = 240
TOPICS: Final = ("orders", "orders-eu")
RECORDS: Final = 100
BATCH_RECORDS: Final = 10
BROKER_SETTINGS: Final = {
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "transaction.state.log.replication.factor": "1",
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
}
"""For one broker, short heartbeats, and a full share snapshot after every three updates."""


def make_groups(directory: Path) -> None:
    """Write the log directory of a cleanly stopped broker with groups of every kind to `directory/broker-1`. Raises LabError."""
    with Cluster(WORK / "group-kinds", brokers=1, broker_settings=BROKER_SETTINGS) as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, assignment=[[1], [1]])
            writer = Writer(cluster)
            for partition in range(2):
                for first in range(0, RECORDS, BATCH_RECORDS):
                    numbers = range(first, first + BATCH_RECORDS)
                    writer.batch(
                        topic, [Message(event(topic, number), b"customer-%d" % (number % 9)) for number in numbers], partition
                    )
        done = run_java(WORKLOAD, [LOOPBACK, str(cluster.ports[1])], timeout_seconds=TIMEOUT_SECONDS)
        if done.exit_code != 0:
            raise LabError(f"the groups' work failed: {done.stderr[-3000:].decode(errors='replace')}")
        cluster.stop()
        copy_tree(cluster.log_dir(1), directory / "broker-1")
    shutil.rmtree(WORK / "group-kinds")


def main() -> None:
    """Make the log directory below the directory on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    make_groups(parser.parse_args().directory)


if __name__ == "__main__":
    main()
