"""The simulated cluster, rule by rule: fetches, high watermarks, acknowledgements, truncation, ISR, elections, restarts."""

import pytest

from kafka_forensics.replication.acks import ACKS_LEADER
from kafka_forensics.simulation.actions import append, checkpoint_high_watermarks, fetch, flush, receive_metadata, shrink_isr
from kafka_forensics.simulation.cluster import PROTOCOLS, Cluster, SimulatedPartition, TruncationProtocol
from kafka_forensics.simulation.control import fence, kill, lose_power, pause, publish_metadata, resume, start
from kafka_forensics.simulation.producers import Producer, produce
from kafka_forensics.simulation.truth import acknowledged, lost

IDEMPOTENT = 1000


def new_cluster(protocol: TruncationProtocol = "kip-320", brokers: int = 3) -> tuple[Cluster, SimulatedPartition]:
    """A cluster with partition t-0, led by broker 1."""
    cluster = Cluster(tuple(range(1, brokers + 1)), protocol)
    partition = cluster.create("t")
    publish_metadata(cluster, partition)
    return cluster, partition


def fetch_all(cluster: Cluster, partition: SimulatedPartition) -> None:
    for _ in range(3):
        for broker in cluster.brokers:
            fetch(cluster, partition, broker)


def watermarks(partition: SimulatedPartition) -> list[int]:
    return [partition.replicas[replica].high_watermark for replica in sorted(partition.replicas)]


def ends(partition: SimulatedPartition) -> list[int]:
    return [partition.replicas[replica].log_end_offset for replica in sorted(partition.replicas)]


def test_requests_at_a_replaced_or_dead_leader_are_not_acknowledged() -> None:
    cluster, partition = new_cluster()
    waiting = append(cluster, partition, cluster.new_ids(1))
    pause(cluster, 1, detected=True)
    resume(cluster, 1)
    assert waiting.response == "not leader"
    second = append(cluster, partition, cluster.new_ids(1))
    kill(cluster, 2)
    assert second.response == "lost"
    assert acknowledged(cluster) == set()


def test_a_stale_leader_acknowledges_records_with_acks_1_and_loses_them() -> None:
    cluster, partition = new_cluster()
    pause(cluster, 1, detected=True)
    resume(cluster, 1, receives_metadata=False)
    sent = append(cluster, partition, cluster.new_ids(1), acks=ACKS_LEADER, leader=1)
    refused = append(cluster, partition, cluster.new_ids(1), leader=3)
    assert (sent.response, sent.leader_epoch, refused.response) == ("acknowledged", 0, "not leader")
    append(cluster, partition, cluster.new_ids(1))
    receive_metadata(cluster, partition, 1)
    fetch_all(cluster, partition)
    assert lost(cluster) == {0}
    assert partition.isr == {1, 2, 3}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_the_newest_protocol_refuses_followers_of_another_epoch(protocol: TruncationProtocol) -> None:
    cluster, partition = new_cluster(protocol)
    append(cluster, partition, cluster.new_ids(1))
    fence(cluster, 3)
    kill(cluster, 2)
    cluster.fenced.discard(3)
    partition.replicas[1].leader_epoch += 1
    done = fetch(cluster, partition, 3)
    assert (done.failure, done.end) == (("fenced", 0) if protocol == "kip-320" else ("", 1))


def test_no_replica_truncates_while_there_is_no_leader() -> None:
    cluster, partition = new_cluster("truncate-to-hw", brokers=2)
    append(cluster, partition, cluster.new_ids(1), acks=ACKS_LEADER)
    fetch(cluster, partition, 2)
    kill(cluster, 2)
    kill(cluster, 1)
    start(cluster, 2)
    assert (partition.leader, ends(partition)) == (-1, [1, 1])


def test_a_power_failure_loses_unflushed_batches_and_a_kill_loses_none() -> None:
    cluster, partition = new_cluster()
    append(cluster, partition, cluster.new_ids(2))
    flush(cluster, 1)
    append(cluster, partition, cluster.new_ids(2))
    kill(cluster, 1, detected=False)
    assert ends(partition)[0] == 4
    (cut,) = lose_power(cluster, 1)
    assert (cut.broker, cut.end_offset, cut.ids, ends(partition)[0]) == (1, 2, (2, 3), 2)


def test_a_lagging_follower_leaves_the_isr_and_rejoins_by_fetching() -> None:
    cluster, partition = new_cluster()
    pause(cluster, 3)
    append(cluster, partition, cluster.new_ids(1))
    fetch(cluster, partition, 2)
    assert shrink_isr(cluster, partition) == frozenset()
    cluster.tick(31_000)
    fetch(cluster, partition, 2)
    assert shrink_isr(cluster, partition) == {3}
    assert watermarks(partition)[0] == 1
    resume(cluster, 3)
    assert not fetch(cluster, partition, 3).joined
    assert fetch(cluster, partition, 3).joined
    assert partition.isr == {1, 2, 3}


def test_no_follower_joins_the_isr_before_the_leader_epoch_starts() -> None:
    cluster, partition = new_cluster()
    append(cluster, partition, cluster.new_ids(2))
    fetch(cluster, partition, 2)
    cluster.tick(31_000)
    fetch(cluster, partition, 2)
    assert shrink_isr(cluster, partition) == {3}
    kill(cluster, 1)
    assert (partition.leader, watermarks(partition)[1]) == (2, 2)
    partition.replicas[2].high_watermark = 0
    assert not fetch(cluster, partition, 3).joined
    assert fetch(cluster, partition, 3).joined


def test_every_leader_recognises_a_retry_by_its_sequence_number() -> None:
    cluster, partition = new_cluster()
    producer = Producer(IDEMPOTENT, 0)
    sent = produce(cluster, partition, producer, 2, answered=False)
    fetch_all(cluster, partition)
    assert acknowledged(cluster) == set()
    again = produce(cluster, partition, producer, retry_of=sent)
    assert (again.is_duplicate, again.base_offset, again.end_offset, again.response) == (True, 0, 2, "acknowledged")
    kill(cluster, 1)
    assert produce(cluster, partition, producer, retry_of=sent).is_duplicate
    assert acknowledged(cluster) == {0, 1}
    produce(cluster, partition, producer)
    skipped = Producer(IDEMPOTENT, 0, sequences={partition.name: 7})
    assert produce(cluster, partition, skipped).response == "out of order"


def test_brokers_before_0_11_ignore_sequence_numbers_and_write_single_records() -> None:
    cluster, partition = new_cluster("truncate-to-hw")
    producer = Producer(IDEMPOTENT, 0)
    produce(cluster, partition, producer, retry_of=produce(cluster, partition, producer, 2))
    batches = [(batch.base_offset, batch.ids, batch.producer_id) for batch in partition.replicas[1].batches]
    assert batches == [(0, (0,), -1), (1, (1,), -1), (2, (0,), -1), (3, (1,), -1)]
    assert partition.replicas[1].epochs == []


def test_a_truncation_lowers_the_valid_end_of_a_checkpoint() -> None:
    cluster, partition = new_cluster(brokers=1)
    append(cluster, partition, cluster.new_ids(2))
    flush(cluster, 1)
    append(cluster, partition, cluster.new_ids(1))
    checkpoint_high_watermarks(cluster, 1)
    replica = partition.replicas[1]
    assert (replica.checkpointed, replica.checkpoint_valid_end) == (3, 3)
    lose_power(cluster, 1)
    assert (replica.checkpointed, replica.checkpoint_valid_end) == (3, 2)
    start(cluster, 1)
    checkpoint_high_watermarks(cluster, 1)
    assert (replica.checkpointed, replica.checkpoint_valid_end) == (2, 2)


def test_a_batch_that_begins_below_the_followers_log_end_is_refused() -> None:
    """This can happen without truncation; the follower then makes no progress."""
    cluster, partition = new_cluster("kip-279", brokers=2)
    append(cluster, partition, cluster.new_ids(1))
    fetch(cluster, partition, 2)
    partition.replicas[1].truncate(0)
    append(cluster, partition, cluster.new_ids(2))
    assert fetch(cluster, partition, 2)[2:4] == (1, 1)
    assert partition.replicas[2].ids == [0]
