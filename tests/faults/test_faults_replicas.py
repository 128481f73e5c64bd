"""Faults F34 to F40: histories that part, as elections leave them and as they cannot."""

from pathlib import Path

import pytest

from kafka_forensics.model.findings import Finding
from kafka_forensics.wording import advice, message
from kafka_forensics.writers.files import write_meta_properties, write_partition_metadata
from tests.support.controller_log import controlled_by, in_sync, partition, record, topic
from tests.support.faults import CLUSTER_ID, HEALTHY, TOPIC_ID, Brokers, healthy, histories, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, verdict
from tests.support.gallery_replicas import (
    OTHER_CLUSTER_ID,
    OTHER_TOPIC_ID,
    empty_leader,
    one_node_id,
    ordinary_fork,
    settled_fork,
    unclean_leader,
)
from tests.support.injections import history, rewritten

pytestmark = pytest.mark.faults

TARGET = HEALTHY.at(40)


def test_f34_settled_fork_under_equal_tails(tmp_path: Path) -> None:
    result = verdict(settled_fork(tmp_path))
    assert said(result) == [("FORK_BELOW_HW", "critical", None)]
    finding = only(result, "FORK_BELOW_HW")
    assert offsets(finding) == (0, 1)
    assert finding.evidence["truncation_offsets"] == []
    assert [(row["brokers"], row["epoch"], row["high_watermark"]) for row in finding.evidence["versions"]] == [
        ([1], 0, 1),
        ([2], 1, 1),
    ]
    assert finding.evidence["held_by"] == []
    agreement = result.partitions[0].agreement
    assert (agreement.kind, agreement.common_end_offset, agreement.fork_epochs) == ("conflict", 0, {"1": 0, "2": 1})


def test_f35_fork_above_the_high_watermark_is_what_a_failover_leaves(tmp_path: Path) -> None:
    result = verdict(ordinary_fork(tmp_path))
    assert said(result) == [("FORK_ABOVE_HW", "info", None)]
    finding = only(result, "FORK_ABOVE_HW")
    assert offsets(finding) == (12, 18)
    assert finding.evidence["truncation_offsets"] == [{"follower": 1, "leader": 2, "from_batches": 12, "from_checkpoint": 12}]


def test_f36_unclean_leader_with_records_of_its_own(tmp_path: Path) -> None:
    result = verdict(unclean_leader(tmp_path))
    assert said(result) == [("HW_UNKNOWN", "info", 3), ("UNCLEAN_LOSS", "critical", None)]
    finding = only(result, "UNCLEAN_LOSS")
    assert (offsets(finding), finding.evidence["held_by"], finding.evidence["loses"]) == ((0, 1), [1], 1)
    assert finding.evidence["truncation_offsets"] == [{"follower": 1, "leader": 3, "from_batches": 0, "from_checkpoint": 0}]


def test_f36_unclean_leader_that_has_written_nothing_yet(tmp_path: Path) -> None:
    result = verdict(empty_leader(tmp_path, (2, 0)))
    assert said(result) == [("UNCLEAN_LOSS", "critical", None)]
    finding = only(result, "UNCLEAN_LOSS")
    assert (offsets(finding), finding.evidence["held_by"], finding.evidence["loses"]) == ((0, 1), [1], 1)


def test_f36_an_empty_follower_is_only_suspected(tmp_path: Path) -> None:
    assert said(verdict(empty_leader(tmp_path))) == [("EMPTY_REPLICA_MAY_LEAD", "warning", 3), ("REPLICA_LAGS", "info", 3)]


@pytest.mark.parametrize(("different_on", "held_by"), [((2,), [1, 3]), ((1, 2, 3), [])])
def test_f38_other_bytes_under_the_same_epoch(tmp_path: Path, different_on: tuple[int, ...], held_by: list[int]) -> None:
    brokers = healthy(tmp_path)
    for broker in different_on:
        rewritten(brokers, broker, 40, byte=800)
    result = verdict(brokers)
    assert said(result) == [("SAME_EPOCH_DIVERGENCE", "critical", None)]
    finding = only(result, "SAME_EPOCH_DIVERGENCE")
    assert (offsets(finding), finding.evidence["held_by"], finding.evidence["record_offset"]) == ((39, 42), held_by, 40)
    assert "different records of one leader epoch at offset 40 (epoch 1 on " in message(finding)
    assert result.partitions[0].agreement.common_end_offset == 40
    assert {row["epoch"] for row in finding.evidence["versions"]} == {1}
    assert len(finding.evidence["versions"]) == len(different_on) + (len(different_on) == 1)
    places = {place["broker"]: place for version in finding.evidence["versions"] for place in version["places"]}
    file = {"file": "t-0/00000000000000000029.log", "byte_start": TARGET.position, "byte_end": TARGET.end}
    assert places == {broker: {"broker": broker} | file for broker in (1, 2, 3)}


@pytest.fixture(name="strangers")
def replicas_of_which_one_is_no_replica(tmp_path: Path) -> Brokers:
    """Broker 2's log differs below the high watermark: comparing it would give SAME_EPOCH_DIVERGENCE."""
    brokers = healthy(tmp_path)
    rewritten(brokers, 2, 40)
    return brokers


def test_f40_another_topic_of_the_same_name_is_not_compared(strangers: Brokers) -> None:
    strangers.named(2, "partition.metadata").write_bytes(write_partition_metadata(OTHER_TOPIC_ID))
    result = verdict(strangers)
    assert said(result) == [("TOPIC_ID_MISMATCH", "error", None)]
    assert only(result, "TOPIC_ID_MISMATCH").evidence["topic_ids"]["2"] == OTHER_TOPIC_ID
    assert result.partitions[0].agreement.kind == "not_compared"
    assert result.partitions[0].topic_id is None


def mismatch_told(strangers: Brokers, other: str, *records: bytes) -> Finding:
    """The mismatch where broker 2 has another id and the controller's log says this; its own topic is t."""
    strangers.named(2, "partition.metadata").write_bytes(write_partition_metadata(other))
    return only(verdict(controlled_by(strangers, *in_sync([1, 2, 3]), *records)), "TOPIC_ID_MISMATCH")


def test_f40_the_controllers_log_tells_which_topic_is_present_and_whose_the_other_id_is(strangers: Brokers) -> None:
    """Directories of two topics were swapped."""
    told = topic("orders", OTHER_TOPIC_ID), partition([2], 2, topic_id=OTHER_TOPIC_ID)
    finding = mismatch_told(strangers, OTHER_TOPIC_ID, *told)
    assert (finding.evidence["present_topic_id"], finding.evidence["present_on"]) == (TOPIC_ID, [1, 3])
    assert (finding.evidence["other_ids"], finding.evidence["misplaced_on"]) == ({OTHER_TOPIC_ID: "topic orders"}, [2])
    whose = f"is the present one (of the others, {OTHER_TOPIC_ID}: topic orders); "
    assert f"; by the controller's log {TOPIC_ID}, on brokers 1 and 3, {whose}" in message(finding)
    assert str(advice(finding)).startswith("The directory on broker 2 lies under another topic's name: ")
    assert "Find out which topic id" not in str(advice(finding))


def test_f40_an_id_of_a_deleted_topic_and_one_that_the_controllers_log_does_not_know(strangers: Brokers) -> None:
    finding = mismatch_told(strangers, OTHER_TOPIC_ID)
    assert finding.evidence["other_ids"] == {OTHER_TOPIC_ID: "no topic it knows"}
    assert "misplaced_on" not in finding.evidence
    assert str(advice(finding)).startswith(f"The present topic's copies are those with id {TOPIC_ID} ")


def test_f40_an_earlier_topic_of_that_name(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    brokers.named(2, "partition.metadata").write_bytes(write_partition_metadata(OTHER_TOPIC_ID))
    earlier = topic(topic_id=OTHER_TOPIC_ID), partition([2], 2, topic_id=OTHER_TOPIC_ID), record(9, topic_id=OTHER_TOPIC_ID)
    finding = only(verdict(controlled_by(brokers, *earlier, *in_sync([1, 2, 3]))), "TOPIC_ID_MISMATCH")
    assert finding.evidence["other_ids"] == {OTHER_TOPIC_ID: "t, deleted 2023-11-14T22:30:03Z"}


def test_f40_another_cluster_is_not_compared(strangers: Brokers) -> None:
    meta = write_meta_properties(node_id=2, cluster_id=OTHER_CLUSTER_ID)
    (strangers.log_dir(2) / "meta.properties").write_bytes(meta)
    result = verdict(strangers)
    assert said(result) == [("CLUSTER_ID_MISMATCH", "error", None)]
    assert only(result, "CLUSTER_ID_MISMATCH").evidence["cluster_ids"]["2"] == OTHER_CLUSTER_ID
    assert result.partitions[0].agreement.kind == "not_compared"


def test_f40_damage_is_still_found_beside_a_stranger(strangers: Brokers) -> None:
    strangers.named(2, "partition.metadata").write_bytes(write_partition_metadata(OTHER_TOPIC_ID))
    strangers.flip(3, HEALTHY.at(10), 100)
    result = verdict(strangers)
    assert said(result) == [
        ("BATCH_CRC_MISMATCH", "error", 3),
        ("REPLICA_DIFFERS", "error", 3),
        ("TOPIC_ID_MISMATCH", "error", None),
    ]
    assert only(result, "BATCH_CRC_MISMATCH").evidence["held_by"] == [1]


def test_f40_two_copies_under_one_node_id(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    one_node_id(brokers)
    result = verdict(brokers)
    assert said(result) == [("NODE_ID_CLASH", "error", 1)]
    assert only(result, "NODE_ID_CLASH").evidence["log_dirs"] == [str(brokers.log_dir(1)), str(brokers.log_dir(2))]


def test_a_follower_behind_the_high_watermark_only_lags(tmp_path: Path) -> None:
    long = history(*[("p", 0)] * 4)
    brokers = histories(tmp_path, {1: long, 2: history(*[("p", 0)] * 2), 3: long}, {1: 4, 2: 2, 3: 4})
    write_checkpoint(brokers.log_dir(2), "replication", 2)
    result = verdict(brokers)
    assert said(result) == [("REPLICA_LAGS", "info", 2)]
    assert offsets(only(result, "REPLICA_LAGS")) == (2, 4)


def test_f40_two_clusters_whose_brokers_have_one_id_are_two_clusters(strangers: Brokers) -> None:
    meta = write_meta_properties(node_id=1, cluster_id=OTHER_CLUSTER_ID)
    (strangers.log_dir(2) / "meta.properties").write_bytes(meta)
    (strangers.log_dir(2) / "t-0").rename(strangers.log_dir(2) / "u-0")
    ids = only(verdict(strangers), "CLUSTER_ID_MISMATCH").evidence["cluster_ids"]
    assert ids == {"1": CLUSTER_ID, str(strangers.log_dir(2)): OTHER_CLUSTER_ID, "3": CLUSTER_ID}
