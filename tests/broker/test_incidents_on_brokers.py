"""The stored incidents on real brokers: each is made again, and its advice is followed."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_forensics.cli.main import outcome
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import SalvageOptions, salvage
from kafka_forensics.questions.transactions import transactions
from lab.incidents import INCIDENTS, VERSION, archive_of, make, truth_of, unpack
from lab.incidents.stuck_readers import last_stable_offsets
from lab.jvm import wait_until
from lab.kafka_scripts import write_scripts
from lab.salvaged_start import put_in_place, read, start
from lab.workload import Message, Writer
from tests.broker.test_steps_followed import Follower

pytestmark = [pytest.mark.broker, pytest.mark.nightly]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_made_again_has_the_same_truth(name: str, tmp_path: Path) -> None:
    archive = make(name, tmp_path / "stored", tmp_path / "work")
    assert archive == archive_of(name, tmp_path / "stored")
    stored, again = truth_of(name), truth_of(name, tmp_path / "stored")
    assert (again["totals"], again["partitions"]) == (stored["totals"], stored["partitions"])


@pytest.mark.timeout(600)
def test_readers_go_on_after_the_printed_commands(tmp_path: Path) -> None:
    cluster = unpack("stuck-readers", tmp_path / "again")
    write_scripts(tmp_path / "bin", VERSION.jars)
    copies = [str(archive_of("stuck-readers"))]
    hanging = [row for row in transactions(copies, ScanOptions()).rows if row.safe_to_abort]
    ends = {(row["topic"], row["partition"]): row["end"] for row in truth_of("stuck-readers")["partitions"]}
    programs = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])

    def printed_by(command: str | None) -> list[str]:
        """The lines that Kafka's tool prints, without its heading."""
        assert command is not None
        shown, environment = command.replace("HOST:PORT", cluster.bootstrap), os.environ | {"PATH": programs}
        done = subprocess.run(["sh", "-c", shown], env=environment, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
        return done.stdout.splitlines()[1:]

    try:
        cluster.start(*cluster.controllers, *cluster.brokers)
        for row in hanging:
            (listed,) = printed_by(row.find_hanging)
            fields = [row.topic, row.partition, row.producer_id, row.producer_epoch, -1, row.first_offset]
            assert listed.split()[:6] == list(map(str, fields))
            assert printed_by(row.command) == []
        wait_until(
            "no partition has an open transaction",
            lambda: all(offset >= ends[place] for place, offset in last_stable_offsets(cluster, ends).items()),
            timeout_seconds=90,
            step_seconds=1.0,
        )
        assert [printed_by(row.find_hanging) for row in hanging] == [[], [], []]
    finally:
        cluster.stop()


@pytest.mark.timeout(600)
def test_a_group_goes_on_where_it_stopped_to_read_the_elected_logs(tmp_path: Path) -> None:
    """Its coordinator lost what it read of the logs that the plan elects."""
    cluster = unpack("unclean-127", tmp_path / "again")
    file, files = tmp_path / "plan.json", str(tmp_path / "steps")
    assert outcome(["plan", str(archive_of("unclean-127")), "-q", "--output", str(file), "--files", files]) == 0
    follower = Follower(cluster, tmp_path / "followed", VERSION.jars)
    try:
        for step in json.loads(file.read_text())["steps"]:
            follower.follow(step)
        wanted = [TopicPartition("orders", partition) for partition in range(8)]
        with contextlib.closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing"})) as group:
            committed = [partition.offset for partition in group.committed(wanted, timeout=30)]
    finally:
        cluster.stop()
    assert committed == [300, 300, 300, 300, 300, 360, 360, 150]


@pytest.mark.timeout(600)
def test_every_record_of_the_salvage_is_served(tmp_path: Path) -> None:
    cluster, truth = unpack("wiped-disk", tmp_path / "again"), truth_of("wiped-disk")
    paths = [*(str(cluster.log_dir(node)) for node in (1, 2, *cluster.controllers)), f"3={cluster.log_dir(3)}"]
    salvaged = salvage(paths, tmp_path / "out", ScanOptions(), SalvageOptions(allow_gaps=True))
    starts = {(row.topic, row.partition): row.log_start_offset for row in salvaged.partitions if not row.topic.startswith("__")}
    counts = {(row["topic"], row["partition"]): row["acknowledged_records"] - row["lost_records"] for row in truth["partitions"]}
    try:
        put_in_place(cluster, tmp_path / "out")
        start(cluster)
        # A reader passes a gap at the end of a log with the next record.
        for topic, partition in counts:
            Writer(cluster).batch(topic, [Message(b"next", b"key")], partition)
        served = read(cluster, starts, "read_committed")
    finally:
        cluster.stop()
    assert {place: len(records) for place, records in served.items()} == {place: count + 1 for place, count in counts.items()}
