"""What groups can read on real brokers: after partitions were added to `__consumer_offsets`, below `min.insync.replicas`, and
during a transaction with their offsets. The truth is what brokers answer to clients."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from kafka_forensics.analysis.internal_topics.transaction_log import java_hash
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.groups import groups
from kafka_forensics.scanning.engine.local import scan
from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster
from lab.jvm import run_tool, wait_until
from lab.story import messages
from lab.workload import Writer

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

TOPIC = "events"
CONFIGS_TOOL = "kafka.admin.ConfigCommand"
RESET_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SECONDS = 60
ALONE = dict.fromkeys(("offsets.topic.replication.factor", "transaction.state.log.replication.factor"), "1")
"""Settings of a single broker."""
NO_OFFSET = -1001


def client(cluster: Cluster, group: str, **settings: str | int | bool) -> Consumer:
    base: dict[str, str | int | bool] = {"bootstrap.servers": cluster.awake, "group.id": group, "enable.auto.commit": False}
    return Consumer(base | settings)


def committed(cluster: Cluster, group: str) -> int:
    consumer = client(cluster, group)
    try:
        [answer] = consumer.committed([TopicPartition(TOPIC, 0)], timeout=ADMIN_TIMEOUT_SECONDS)
    finally:
        consumer.close()
    return int(answer.offset)


def commit(cluster: Cluster, group: str, offset: int) -> None:
    consumer = client(cluster, group)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def found(cluster: Cluster, kind: str, nodes: Iterable[int] = (), **options: object) -> list[Finding]:
    paths = [str(cluster.log_dir(node)) for node in (nodes or (*cluster.brokers, *cluster.controllers))]
    return [finding for finding in scan(paths, ScanOptions(jobs=1, **options)).findings if finding.kind == kind]  # type: ignore[arg-type]


def test_a_group_whose_coordinator_moved_after_partitions_were_added(tmp_path: Path) -> None:
    """The group's offsets are missing after a restart; after a reset as the finding advises, they are back, and a scan finds
    nothing."""
    names = [f"group-{number}" for number in range(40)]
    moved = next(name for name in names if java_hash(name) % 4 != java_hash(name) % 6)
    stays = next(name for name in names if java_hash(name) % 4 == java_hash(name) % 6)
    with Cluster(tmp_path / "nodes", brokers=1, broker_settings=ALONE | {"offsets.topic.num.partitions": "4"}) as cluster:
        cluster.create_topic(TOPIC)
        Writer(cluster).batch(TOPIC, messages("event", 0, 100))
        for group in (moved, stays):
            commit(cluster, group, 90)
            assert committed(cluster, group) == 90
        assert found(cluster, "COORDINATOR_STATE_MISPLACED", live=True) == []
        admin = cluster.admin()
        admin.create_partitions([NewPartitions("__consumer_offsets", 6)])["__consumer_offsets"].result(ADMIN_TIMEOUT_SECONDS)
        cluster.restart(1)
        wait_until("the coordinator answers", lambda: committed(cluster, stays) == 90, timeout_seconds=SECONDS)
        assert committed(cluster, moved) == NO_OFFSET
        [finding] = found(cluster, "COORDINATOR_STATE_MISPLACED", live=True)
        assert (finding.severity.value, finding.confidence.value) == ("error", "proven")
        in_partition, read_from = java_hash(moved) % 4, java_hash(moved) % 6
        assert (finding.evidence["in_partitions"], finding.evidence["read_from"]) == ({moved: [in_partition]}, {moved: read_from})
        arguments = ["--bootstrap-server", cluster.awake, "--group", moved, "--reset-offsets", "--topic", f"{TOPIC}:0"]
        done = run_tool(RESET_TOOL, [*arguments, "--to-offset", "90", "--execute"])
        assert done.exit_code == 0, done.stderr
        assert committed(cluster, moved) == 90
        assert found(cluster, "COORDINATOR_STATE_MISPLACED", live=True) == []


def test_cleanup_policy_delete_on_consumer_offsets_is_a_warning(tmp_path: Path) -> None:
    """The warning ends when the policy is set back as the finding advises."""
    with Cluster(tmp_path / "nodes", brokers=1, broker_settings=ALONE) as cluster:
        cluster.create_topic(TOPIC)
        commit(cluster, "billing", 0)
        for policy, severities in (("delete", ["warning"]), ("compact", [])):
            arguments = ["--bootstrap-server", cluster.awake, "--entity-type", "topics", "--entity-name", "__consumer_offsets"]
            done = run_tool(CONFIGS_TOOL, [*arguments, "--alter", "--add-config", f"cleanup.policy={policy}"])
            assert done.exit_code == 0, done.stderr
            risky = [finding for finding in found(cluster, "RISKY_CONFIG", live=True) if "of_coordinators" in finding.evidence]
            assert [finding.severity.value for finding in risky] == severities


def test_the_high_watermark_waits_while_the_isr_is_below_its_minimum(tmp_path: Path) -> None:
    """With one of two replicas down and `min.insync.replicas` 2, the leader accepts records with acks=1 but shows none of them."""
    with Cluster(tmp_path / "nodes", brokers=2, broker_settings={"offsets.topic.replication.factor": "2"}) as cluster:
        cluster.create_topic(TOPIC, assignment=[[1, 2]], settings={"min.insync.replicas": "2"})
        Writer(cluster).batch(TOPIC, messages("event", 0, 200))
        commit(cluster, "readers", 150)
        cluster.await_high_watermark(1, TOPIC, 200)
        cluster.kill(2)
        cluster.await_isr(TOPIC, [1])
        Writer(cluster, acks=1).batch(TOPIC, messages("event", 200, 60))
        consumer = client(cluster, "readers")
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=ADMIN_TIMEOUT_SECONDS) == (0, 200)
        consumer.close()
        cluster.kill(*cluster.controllers, 1)  # a clean shutdown would leave the partition without a leader
        paths = [str(cluster.log_dir(node)) for node in (1, *cluster.controllers)]
        [row] = [row for row in groups(paths, ScanOptions(jobs=1)).rows if row.group == "readers"]
        assert row.ends is not None
        answer = row.ends.readable
        assert (row.lag, row.readable, answer.log_end_offset) == (110, 50, 260)
        assert (answer.held_back_by, answer.held_back_at) == ("high_watermark", 200)
        assert (answer.isr, answer.min_insync_replicas) == ((1,), 2)
        [finding] = found(cluster, "READERS_HELD_BACK", nodes=(1, *cluster.controllers))
        assert (finding.evidence["reason"], finding.evidence["behind"]) == ("isr_below_minimum", 60)
        cluster.start(*cluster.controllers, *cluster.brokers)
        cluster.await_isr(TOPIC, [1, 2])
        cluster.await_high_watermark(1, TOPIC, 260)
        cluster.stop()
        assert found(cluster, "READERS_HELD_BACK") == []


def test_a_group_waits_for_the_transaction_that_holds_its_offsets(tmp_path: Path) -> None:
    """A reader of committed offsets gets none until the transaction ends; after its timeout the scan warns."""
    with Cluster(tmp_path / "nodes", brokers=1, broker_settings=ALONE) as cluster:
        cluster.create_topic(TOPIC)
        Writer(cluster).batch(TOPIC, messages("event", 0, 20))
        commit(cluster, "billing", 5)
        writer = Writer(cluster, transactional_id="app", transaction_timeout_ms=60_000)
        writer.producer.init_transactions(ADMIN_TIMEOUT_SECONDS)
        writer.producer.begin_transaction()
        consumer = client(cluster, "billing")
        offsets = [TopicPartition(TOPIC, 0, 9)]
        writer.producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), ADMIN_TIMEOUT_SECONDS)
        consumer.close()
        [young] = found(cluster, "TXN_OPEN", live=True)
        assert young.place.topic == "__consumer_offsets"
        assert (young.severity.value, young.evidence["waiting_groups"]) == ("info", ["billing"])
        now = int(time.time() * 1000)
        [old] = found(cluster, "TXN_OPEN", live=True, as_of_ms=now + 70_000)
        assert (old.severity.value, old.evidence["overdue"], old.evidence["waiting_groups"]) == ("warning", True, ["billing"])
        [late] = found(cluster, "TXN_OPEN", live=True, as_of_ms=now + 50_000)
        assert late.severity.value == "info"
        writer.producer.commit_transaction(ADMIN_TIMEOUT_SECONDS)
        wait_until("the commit counts", lambda: committed(cluster, "billing") == 9, timeout_seconds=SECONDS)
        assert found(cluster, "TXN_OPEN", live=True) == []
