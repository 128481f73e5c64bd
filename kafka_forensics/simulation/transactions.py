"""A transaction coordinator: transactional ids, its log of decisions, and the markers it sends to partitions (KIP-98, KIP-890).

The coordinator's log is not replicated here; every broker ends with a complete copy. A late request is a late function call.
"""

from collections.abc import Iterable
from typing import Final, Unpack

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.model.coordinators import TransactionMetadata
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication.acks import ACKS_ALL, ProduceResponse
from kafka_forensics.simulation.actions import SendOptions, SimulatedBatchFields, append, receiving_broker
from kafka_forensics.simulation.cluster import ABORT, COMMIT, Cluster, ProduceRequest, SimulatedPartition, SimulatedReplica
from kafka_forensics.simulation.producers import FIRST_PRODUCER_ID, Producer, produce

TIMEOUT_MS: Final = 60_000
OK: Final = "ok"
FENCED: Final = "fenced"
INVALID: Final = "invalid state"
TV2: Final = 2
"""`transaction.version` 2."""


class Coordinator(Struct):
    """The current state of every transactional id, and the coordinator's log."""

    version: int = 0
    """`transaction.version`; from 2 on every transaction has its own producer epoch."""
    verifies: bool = True
    """Whether leaders ask the coordinator before they append the first batch of a transaction (KIP-890, since 3.6)."""
    epoch: int = 0
    """The coordinator epoch."""
    states: dict[str, TransactionMetadata] = field(default_factory=dict)
    log: list[tuple[int, str, TransactionMetadata]] = field(default_factory=list)
    """(time in ms, transactional id, state) in the order written."""
    unmarked: dict[str, list[TopicPartition]] = field(default_factory=dict)
    """Transactional id → partitions whose leader has not acknowledged the marker yet."""
    markers: dict[tuple[str, TopicPartition], ProduceRequest] = field(default_factory=dict)
    """The last marker sent to each partition."""

    def write(self, cluster: Cluster, transactional_id: str, state: TransactionMetadata) -> None:
        """Append a new state of a transactional id to the log."""
        stamped = replace(state, last_update_timestamp=cluster.now_ms)
        self.states[transactional_id] = stamped
        self.log.append((cluster.now_ms, transactional_id, stamped))


def init_producer_id(cluster: Cluster, coordinator: Coordinator, producer: Producer) -> str:
    """Give a client its producer id and the next producer epoch (InitProducerId); aborts its ongoing transaction first."""
    assert producer.transactional_id is not None
    transactional_id = producer.transactional_id
    state = coordinator.states.get(transactional_id)
    if state is None:
        producer_id = FIRST_PRODUCER_ID + 1000 * len(coordinator.states)
        version = TV2 if coordinator.version >= TV2 else 0
        state = TransactionMetadata(producer_id, -1, TIMEOUT_MS, "Empty", (), 0, -1, client_transaction_version=version)
    elif state.state == "Ongoing":
        _abort_in_next_epoch(cluster, coordinator, transactional_id)
        state = coordinator.states[transactional_id]
    if state.state.startswith("Prepare"):
        return INVALID
    state = replace(state, producer_epoch=state.producer_epoch + 1, state="Empty", partitions=(), start_timestamp=-1)
    coordinator.write(cluster, transactional_id, state)
    producer.begin_epoch(state.producer_id, state.producer_epoch)
    return OK


def add_partitions(cluster: Cluster, coordinator: Coordinator, producer: Producer, partitions: Iterable[TopicPartition]) -> str:
    """Add partitions to a transaction (AddPartitionsToTxn); the first call begins it."""
    assert producer.transactional_id is not None
    state = coordinator.states.get(producer.transactional_id)
    if state is None or state.producer_epoch != producer.producer_epoch:
        return FENCED
    if state.state.startswith("Prepare"):
        return INVALID
    is_ongoing = state.state == "Ongoing"
    all_partitions = tuple(dict.fromkeys([*(state.partitions if is_ongoing else ()), *partitions]))
    if not is_ongoing or all_partitions != state.partitions:
        started = state.start_timestamp if is_ongoing else cluster.now_ms
        ongoing = replace(state, state="Ongoing", partitions=all_partitions, start_timestamp=started)
        coordinator.write(cluster, producer.transactional_id, ongoing)
    return OK


def write(
    cluster: Cluster,
    coordinator: Coordinator,
    partition: SimulatedPartition,
    producer: Producer,
    count: int = 1,
    *,
    retry_of: ProduceRequest | None = None,
    **options: Unpack[SendOptions],
) -> ProduceRequest:
    """Send records of a transaction; a leader that verifies rejects them where the coordinator has no such transaction."""
    broker = receiving_broker(partition, options)
    replica = partition.replicas.get(broker)
    assert producer.transactional_id is not None
    if coordinator.verifies and replica is not None and not _has_open_transaction(replica, producer.producer_id):
        state = coordinator.states.get(producer.transactional_id)
        if state is None or state.producer_epoch != producer.producer_epoch:
            response = FENCED
        else:
            response = OK if state.state == "Ongoing" and partition.name in state.partitions else INVALID
        if response != OK:
            ids = cluster.new_ids(count) if retry_of is None else retry_of.ids
            return ProduceRequest(partition.name, ids, ACKS_ALL, broker, partition.leader_epoch, response)
    return produce(cluster, partition, producer, count, retry_of=retry_of, **options)


def end_transaction(cluster: Cluster, coordinator: Coordinator, transactional_id: str, producer_epoch: int, *, commit: bool) -> str:
    """Commit or abort a transaction (EndTxn), and send the markers.

    Before version 2 a late request for an earlier transaction with the same epoch ends the present one.
    """
    state = coordinator.states.get(transactional_id)
    if state is None or producer_epoch != state.producer_epoch:
        return FENCED
    if state.state == ("CompleteCommit" if commit else "CompleteAbort") and coordinator.version < TV2:
        return OK
    if state.state != "Ongoing":
        return INVALID
    next_epoch = state.producer_epoch + (coordinator.version >= TV2)
    _decide(cluster, coordinator, transactional_id, replace(state, producer_epoch=next_epoch), commit=commit)
    return OK


def take_next_epoch(coordinator: Coordinator, producer: Producer) -> None:
    """A client of version 2 takes the producer epoch of its next transaction from the response to EndTxn."""
    assert producer.transactional_id is not None
    state = coordinator.states[producer.transactional_id]
    if coordinator.version >= TV2 and state.producer_epoch != producer.producer_epoch:
        producer.begin_epoch(state.producer_id, state.producer_epoch)


def write_markers(cluster: Cluster, coordinator: Coordinator, transactional_id: str) -> list[TopicPartition]:
    """Send the markers of a decision, and resend those that were rejected or lost; returns the partitions still without one.

    A marker counts once the whole ISR has it. When all count, the coordinator writes Complete.
    """
    state = coordinator.states[transactional_id]
    for topic_partition in coordinator.unmarked.get(transactional_id, []):
        sent = coordinator.markers.get((transactional_id, topic_partition))
        if sent is not None and sent.response in (ProduceResponse.WAITING.value, ProduceResponse.ACKNOWLEDGED.value):
            continue
        fields: SimulatedBatchFields = {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "is_transactional": True,
            "marker": COMMIT if state.state == "PrepareCommit" else ABORT,
            "coordinator_epoch": coordinator.epoch,
        }
        partition = cluster.partitions[topic_partition]
        coordinator.markers[transactional_id, topic_partition] = append(cluster, partition, cluster.new_marker(), fields)
    complete(cluster, coordinator)
    return coordinator.unmarked.get(transactional_id, [])


def complete(cluster: Cluster, coordinator: Coordinator) -> None:
    """Write Complete for every decision whose markers are all acknowledged."""
    for transactional_id, partitions in coordinator.unmarked.items():
        state = coordinator.states[transactional_id]
        unmarked = [name for name in partitions if not coordinator.markers[transactional_id, name].is_acknowledged]
        coordinator.unmarked[transactional_id] = unmarked
        if state.state.startswith("Prepare") and not unmarked:
            completed = state.state.replace("Prepare", "Complete")
            coordinator.write(cluster, transactional_id, replace(state, state=completed, partitions=()))


def abort_timed_out(cluster: Cluster, coordinator: Coordinator) -> list[str]:
    """Abort every transaction past its timeout in the next producer epoch, which fences its producer; returns the ids."""
    timed_out = [
        transactional_id
        for transactional_id, state in coordinator.states.items()
        if state.state == "Ongoing" and cluster.now_ms - state.start_timestamp > state.transaction_timeout_ms
    ]
    for transactional_id in timed_out:
        _abort_in_next_epoch(cluster, coordinator, transactional_id)
    return timed_out


def _has_open_transaction(replica: SimulatedReplica, producer_id: int) -> bool:
    batches = (batch for batch in reversed(replica.batches) if batch.producer_id == producer_id and batch.is_transactional)
    last = next(batches, None)
    return last is not None and last.marker is None


def _abort_in_next_epoch(cluster: Cluster, coordinator: Coordinator, transactional_id: str) -> None:
    state = coordinator.states[transactional_id]
    _decide(cluster, coordinator, transactional_id, replace(state, producer_epoch=state.producer_epoch + 1), commit=False)


def _decide(cluster: Cluster, coordinator: Coordinator, transactional_id: str, state: TransactionMetadata, *, commit: bool) -> None:
    coordinator.write(cluster, transactional_id, replace(state, state="PrepareCommit" if commit else "PrepareAbort"))
    coordinator.unmarked[transactional_id] = list(state.partitions)
    coordinator.markers = {key: request for key, request in coordinator.markers.items() if key[0] != transactional_id}
    write_markers(cluster, coordinator, transactional_id)
