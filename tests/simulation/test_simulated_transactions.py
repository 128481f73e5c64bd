"""Transactions of histories: records of the coordinator, fencing, visible records, and producer state in files."""

import pytest

from kafka_forensics.model.files import AbortedTxn, ProducerEntry
from kafka_forensics.simulation import transactions
from kafka_forensics.simulation.actions import fetch
from kafka_forensics.simulation.cluster import Cluster, SimulatedPartition
from kafka_forensics.simulation.control import kill, publish_metadata, start
from kafka_forensics.simulation.materialise import producer_state
from kafka_forensics.simulation.producers import Producer, consume, visible_ids
from kafka_forensics.simulation.transactions import FENCED, INVALID, OK, Coordinator

APP = "app"


def new_cluster(coordinator: Coordinator, brokers: tuple[int, ...] = (1,)) -> tuple[Cluster, SimulatedPartition, Producer]:
    """A cluster with partition t-0, and a producer with an epoch."""
    cluster = Cluster(brokers)
    partition = cluster.create("t")
    publish_metadata(cluster, partition)
    producer = Producer(transactional_id=APP)
    assert transactions.init_producer_id(cluster, coordinator, producer) == OK
    return cluster, partition, producer


def open_and_aborted_transactions(coordinator: Coordinator, *, app_again: bool) -> tuple[Cluster, SimulatedPartition, Producer]:
    """Two clients write, then one of them again; the transaction of the second client is aborted."""
    cluster, partition, producer = new_cluster(coordinator)
    other = Producer(transactional_id="other")
    transactions.init_producer_id(cluster, coordinator, other)
    for writer in (producer, other, producer if app_again else other):
        write_in_transaction(cluster, coordinator, partition, writer)
    transactions.end_transaction(cluster, coordinator, "other", 0, commit=False)
    return cluster, partition, producer


def states(coordinator: Coordinator) -> list[tuple[str, int]]:
    return [(state.state, state.producer_epoch) for _, _, state in coordinator.log]


def write_in_transaction(cluster: Cluster, coordinator: Coordinator, partition: SimulatedPartition, producer: Producer) -> str:
    """Add the partition to the transaction and write a record; return the response."""
    added = transactions.add_partitions(cluster, coordinator, producer, [partition.name])
    return added if added != OK else transactions.write(cluster, coordinator, partition, producer).response


@pytest.mark.parametrize(("version", "epoch"), [(0, 0), (2, 1)])
def test_the_coordinator_writes_every_state_of_a_transaction(version: int, epoch: int) -> None:
    coordinator = Coordinator(version)
    cluster, partition, producer = new_cluster(coordinator)
    write_in_transaction(cluster, coordinator, partition, producer)
    write_in_transaction(cluster, coordinator, partition, producer)
    assert transactions.end_transaction(cluster, coordinator, APP, 0, commit=True) == OK
    transactions.take_next_epoch(coordinator, producer)
    assert states(coordinator) == [("Empty", 0), ("Ongoing", 0), ("PrepareCommit", epoch), ("CompleteCommit", epoch)]
    marker = partition.replicas[1].batches[-1]
    assert (marker.marker, marker.producer_epoch, marker.base_sequence, marker.ids) == ("COMMIT", epoch, -1, (-1,))
    assert producer.producer_epoch == epoch
    assert write_in_transaction(cluster, coordinator, partition, producer) == "acknowledged"
    assert partition.replicas[1].batches[-1].base_sequence == (0 if version else 2)


def test_a_late_request_ends_the_next_transaction_before_version_2_only() -> None:
    for version, answer in ((0, OK), (2, FENCED)):
        coordinator = Coordinator(version)
        cluster, partition, producer = new_cluster(coordinator)
        write_in_transaction(cluster, coordinator, partition, producer)
        transactions.end_transaction(cluster, coordinator, APP, 0, commit=True)
        transactions.take_next_epoch(coordinator, producer)
        write_in_transaction(cluster, coordinator, partition, producer)
        assert transactions.end_transaction(cluster, coordinator, APP, 0, commit=True) == answer


def test_a_repeated_end_succeeds_and_the_opposite_one_fails() -> None:
    coordinator = Coordinator()
    cluster, partition, producer = new_cluster(coordinator)
    assert transactions.end_transaction(cluster, coordinator, APP, 0, commit=True) == INVALID
    write_in_transaction(cluster, coordinator, partition, producer)
    transactions.end_transaction(cluster, coordinator, APP, 0, commit=True)
    assert transactions.end_transaction(cluster, coordinator, APP, 0, commit=True) == OK
    assert transactions.end_transaction(cluster, coordinator, APP, 0, commit=False) == INVALID
    assert len(partition.replicas[1].batches) == 2


@pytest.mark.parametrize("verifies", [True, False])
def test_an_older_instance_is_fenced(verifies: bool) -> None:
    coordinator = Coordinator(verifies=verifies)
    cluster, partition, producer = new_cluster(coordinator)
    write_in_transaction(cluster, coordinator, partition, producer)
    second = Producer(transactional_id=APP)
    assert transactions.init_producer_id(cluster, coordinator, second) == OK
    assert second.producer_epoch == 2
    assert [batch.marker for batch in partition.replicas[1].batches] == [None, "ABORT"]
    assert transactions.write(cluster, coordinator, partition, producer).response == FENCED
    assert write_in_transaction(cluster, coordinator, partition, producer) == FENCED
    assert write_in_transaction(cluster, coordinator, partition, second) == "acknowledged"


def test_a_timed_out_transaction_is_aborted_with_the_next_epoch() -> None:
    coordinator = Coordinator(verifies=False)
    cluster, partition, producer = new_cluster(coordinator)
    write_in_transaction(cluster, coordinator, partition, producer)
    assert transactions.abort_timed_out(cluster, coordinator) == []
    cluster.tick(60_001)
    assert transactions.abort_timed_out(cluster, coordinator) == [APP]
    assert states(coordinator)[-2:] == [("PrepareAbort", 1), ("CompleteAbort", 1)]
    assert transactions.write(cluster, coordinator, partition, producer).response == FENCED


def test_only_a_leader_that_verifies_refuses_a_record_after_the_marker() -> None:
    for verifies, answer in ((True, INVALID), (False, "acknowledged")):
        coordinator = Coordinator(verifies=verifies)
        cluster, partition, producer = new_cluster(coordinator)
        write_in_transaction(cluster, coordinator, partition, producer)
        transactions.end_transaction(cluster, coordinator, APP, 0, commit=False)
        assert transactions.write(cluster, coordinator, partition, producer).response == answer


def test_markers_wait_for_a_leader() -> None:
    coordinator = Coordinator()
    cluster, partition, producer = new_cluster(coordinator, (1, 2))
    write_in_transaction(cluster, coordinator, partition, producer)
    fetch(cluster, partition, 2)
    kill(cluster, 2)
    kill(cluster, 1)
    transactions.end_transaction(cluster, coordinator, APP, 0, commit=True)
    assert states(coordinator)[-1] == ("PrepareCommit", 0)
    assert transactions.init_producer_id(cluster, coordinator, producer) == INVALID
    assert transactions.write_markers(cluster, coordinator, APP) == [partition.name]
    start(cluster, 1)
    assert transactions.write_markers(cluster, coordinator, APP) == []
    assert states(coordinator)[-1] == ("CompleteCommit", 0)
    assert consume(cluster, partition).read_committed == (0,)


def test_a_decision_is_complete_when_the_whole_isr_has_its_marker() -> None:
    coordinator = Coordinator()
    cluster, partition, producer = new_cluster(coordinator, (1, 2))
    write_in_transaction(cluster, coordinator, partition, producer)
    transactions.end_transaction(cluster, coordinator, APP, 0, commit=True)
    assert transactions.write_markers(cluster, coordinator, APP) == [partition.name]
    assert len(partition.replicas[1].batches) == 2
    for state in ("PrepareCommit", "CompleteCommit"):
        fetch(cluster, partition, 2)
        transactions.complete(cluster, coordinator)
        assert states(coordinator)[-1] == (state, 0)


def test_a_marker_is_resent_if_its_leader_dies_before_a_follower_has_it() -> None:
    coordinator = Coordinator()
    cluster, partition, producer = new_cluster(coordinator, (1, 2))
    write_in_transaction(cluster, coordinator, partition, producer)
    fetch(cluster, partition, 2)
    transactions.end_transaction(cluster, coordinator, APP, 0, commit=False)
    kill(cluster, 1)
    assert transactions.write_markers(cluster, coordinator, APP) == []
    assert [batch.marker for batch in partition.replicas[2].batches] == [None, "ABORT"]
    assert states(coordinator)[-1] == ("CompleteAbort", 0)


def test_read_committed_stops_before_an_open_transaction() -> None:
    coordinator = Coordinator()
    cluster, partition, _ = open_and_aborted_transactions(coordinator, app_again=True)
    batches = partition.replicas[1].batches
    assert visible_ids(batches, 4) == ((0, 1, 2), ())
    transactions.end_transaction(cluster, coordinator, APP, 0, commit=True)
    assert visible_ids(batches, 4) == ((0, 1, 2), ())
    assert visible_ids(batches, 5) == ((0, 1, 2), (0, 2))
    assert visible_ids(batches, 1) == ((0,), ())


def test_producer_state_has_aborted_transactions_and_open_ones() -> None:
    coordinator = Coordinator()
    cluster, partition, producer = open_and_aborted_transactions(coordinator, app_again=False)
    batches, now = partition.replicas[1].batches, cluster.now_ms
    assert producer_state(batches)[1] == [AbortedTxn(2000, 1, 3, 0)]
    assert producer_state(batches)[0] == [ProducerEntry(1000, 0, 0, 0, 0, now, -1, 0), ProducerEntry(2000, 0, 1, 2, 0, now, 0, -1)]
    transactions.init_producer_id(cluster, coordinator, producer)
    assert producer_state(batches)[0][0] == ProducerEntry(1000, 1, -1, -1, 0, now, 0, -1)
    assert producer_state(batches)[1][1] == AbortedTxn(1000, 0, 4, 5)
