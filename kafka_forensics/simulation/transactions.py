"""Transactions: a coordinator that knows them, writes its decisions down, and has markers written to partitions (KIP-98, KIP-890).

The coordinator's log is not replicated here: every broker ends with a whole copy of it. Requests of clients may arrive late: then
the function is called late.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Unpack

from kafka_forensics.model.coordinators import TransactionMetadata
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication import acks as promises
from kafka_forensics.replication.acks import ProduceResponse
from kafka_forensics.simulation.actions import BatchFields, Sending, append, receiver
from kafka_forensics.simulation.cluster import ABORT, COMMIT, Cluster, Partition, Sent, SimulatedReplica
from kafka_forensics.simulation.producers import FIRST_PRODUCER_ID, Producer, produce

TIMEOUT_MS: Final = 60_000
OK: Final = "ok"
FENCED: Final = "fenced"
INVALID: Final = "invalid state"
TV2: Final = 2


@dataclass(slots=True)
class Coordinator:
    """Transactional ids by their last state, and everything that was ever written of them."""

    version: int = 0
    """`transaction.version`: from 2 on every transaction has an epoch of its own."""
    verifies: bool = True
    """Whether leaders ask the coordinator before they take a transaction's first batch (KIP-890, since 3.6)."""
    epoch: int = 0
    """Of the coordinator."""
    states: dict[str, TransactionMetadata] = field(default_factory=dict)
    log: list[tuple[int, str, TransactionMetadata]] = field(default_factory=list)
    """(time in ms, transactional id, state) in the order written."""
    unmarked: dict[str, list[TopicPartition]] = field(default_factory=dict)
    """Partitions whose leader has not acknowledged the marker of a decision yet."""
    markers: dict[tuple[str, TopicPartition], Sent] = field(default_factory=dict)
    """The last marker that was sent for each of them."""

    def write(self, cluster: Cluster, transactional_id: str, state: TransactionMetadata) -> None:
        """Write down how a transactional id stands from now on."""
        stamped = replace(state, last_update_timestamp=cluster.now_ms)
        self.states[transactional_id] = stamped
        self.log.append((cluster.now_ms, transactional_id, stamped))


def init_producer_id(cluster: Cluster, coordinator: Coordinator, producer: Producer) -> str:
    """A client begins, or begins anew: an id, and an epoch above all before it; an ongoing transaction is aborted first."""
    assert producer.transactional_id is not None
    name = producer.transactional_id
    state = coordinator.states.get(name)
    if state is None:
        state = TransactionMetadata(
            FIRST_PRODUCER_ID + 1000 * len(coordinator.states),
            -1,
            TIMEOUT_MS,
            "Empty",
            (),
            0,
            -1,
            client_transaction_version=_client(coordinator),
        )
    elif state.state.startswith("Prepare"):
        return INVALID
    elif state.state == "Ongoing":
        _decide(cluster, coordinator, name, replace(state, producer_epoch=state.producer_epoch + 1), commit=False)
        state = coordinator.states[name]
        if state.state.startswith("Prepare"):
            return INVALID
    begun = replace(state, producer_epoch=state.producer_epoch + 1, state="Empty", partitions=(), start_timestamp=-1)
    coordinator.write(cluster, name, begun)
    producer.begin_epoch(begun.producer_id, begun.producer_epoch)
    return OK


def add_partitions(cluster: Cluster, coordinator: Coordinator, producer: Producer, partitions: Iterable[TopicPartition]) -> str:
    """A client names partitions that its transaction writes to (AddPartitionsToTxn); the first of them begins it."""
    assert producer.transactional_id is not None
    state = coordinator.states.get(producer.transactional_id)
    if state is None or state.producer_epoch != producer.producer_epoch:
        return FENCED
    if state.state.startswith("Prepare"):
        return INVALID
    ongoing = state.state == "Ongoing"
    listed = tuple(dict.fromkeys([*(state.partitions if ongoing else ()), *partitions]))
    if ongoing and listed == state.partitions:
        return OK
    started = state.start_timestamp if ongoing else cluster.now_ms
    coordinator.write(
        cluster, producer.transactional_id, replace(state, state="Ongoing", partitions=listed, start_timestamp=started)
    )
    return OK


def write(
    cluster: Cluster,
    coordinator: Coordinator,
    partition: Partition,
    producer: Producer,
    count: int = 1,
    *,
    again: Sent | None = None,
    **how: Unpack[Sending],
) -> Sent:
    """A transaction's records, with acks=all; a leader that verifies refuses them where the coordinator knows of no transaction."""
    broker = receiver(partition, how)
    replica = partition.replicas.get(broker)
    assert producer.transactional_id is not None
    if coordinator.verifies and replica is not None and open_since(replica, producer.producer_id) is None:
        refused = _verified(coordinator.states.get(producer.transactional_id), partition, producer)
        if refused != OK:
            ids = cluster.new_ids(count) if again is None else again.ids
            return Sent(partition.name, ids, promises.ALL, broker, partition.leader_epoch, refused)
    return produce(cluster, partition, producer, count, again=again, **how)


def end_transaction(cluster: Cluster, coordinator: Coordinator, name: str, producer_epoch: int, *, commit: bool) -> str:
    """The coordinator gets EndTxn: it decides, has the markers written where leaders run, and says when all are.

    It cannot tell a late request of an earlier transaction from one of this, if both have the same epoch (before version 2).
    """
    state = coordinator.states.get(name)
    if state is None or producer_epoch != state.producer_epoch:
        return FENCED
    if state.state == f"Complete{_word(commit=commit)}" and coordinator.version < TV2:
        return OK
    if state.state != "Ongoing":
        return INVALID
    raised = state.producer_epoch + (coordinator.version >= TV2)
    _decide(cluster, coordinator, name, replace(state, producer_epoch=raised), commit=commit)
    return OK


def begin_next(coordinator: Coordinator, producer: Producer) -> None:
    """What a client of version 2 takes from the answer to EndTxn: the epoch of its next transaction."""
    assert producer.transactional_id is not None
    state = coordinator.states[producer.transactional_id]
    if coordinator.version >= TV2 and state.producer_epoch != producer.producer_epoch:
        producer.begin_epoch(state.producer_id, state.producer_epoch)


def write_markers(cluster: Cluster, coordinator: Coordinator, name: str) -> list[TopicPartition]:
    """Send the markers that are due to leaders that run, again where one was refused or its leader went; the partitions that keep
    lacking theirs, or the word of the whole ISR that it is there. Done, the coordinator writes Complete."""
    state = coordinator.states[name]
    for where in coordinator.unmarked.get(name, []):
        before = coordinator.markers.get((name, where))
        if before is not None and before.answer in (ProduceResponse.WAITING.value, ProduceResponse.ACKNOWLEDGED.value):
            continue
        marker: BatchFields = {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "is_transactional": True,
            "marker": COMMIT if state.state == "PrepareCommit" else ABORT,
            "coordinator_epoch": coordinator.epoch,
        }
        coordinator.markers[name, where] = append(cluster, cluster.partitions[where], cluster.new_marker(), marker)
    complete(cluster, coordinator, name)
    return coordinator.unmarked.get(name, [])


def complete(cluster: Cluster, coordinator: Coordinator, *names: str) -> None:
    """Let a coordinator look for answers to its markers (of all ids unless some are named), and write Complete where all came."""
    for name in names or [name for name, left in coordinator.unmarked.items() if left]:
        state, left = coordinator.states[name], coordinator.unmarked[name]
        coordinator.unmarked[name] = [where for where in left if not coordinator.markers[name, where].acknowledged]
        if state.state.startswith("Prepare") and not coordinator.unmarked[name]:
            done = state.state.replace("Prepare", "Complete")
            coordinator.write(cluster, name, replace(state, state=done, partitions=()))


def time_out(cluster: Cluster, coordinator: Coordinator) -> list[str]:
    """Abort whatever has been open for longer than its timeout, under the next epoch, so that its producer is fenced; which ids."""
    late = [
        name
        for name, state in coordinator.states.items()
        if state.state == "Ongoing" and cluster.now_ms - state.start_timestamp > state.transaction_timeout_ms
    ]
    for name in late:
        state = coordinator.states[name]
        _decide(cluster, coordinator, name, replace(state, producer_epoch=state.producer_epoch + 1), commit=False)
    return late


def open_since(replica: SimulatedReplica, producer_id: int) -> int | None:
    """First offset of a producer's open transaction in a log, None without one."""
    first = None
    for batch in replica.batches:
        if batch.producer_id == producer_id and batch.is_transactional:
            first = None if batch.marker else batch.base_offset if first is None else first
    return first


def _verified(state: TransactionMetadata | None, partition: Partition, producer: Producer) -> str:
    """What the coordinator tells a leader that asks whether a transaction is under way (KIP-890)."""
    if state is None or state.producer_epoch != producer.producer_epoch:
        return FENCED
    return OK if state.state == "Ongoing" and partition.name in state.partitions else INVALID


def _decide(cluster: Cluster, coordinator: Coordinator, name: str, state: TransactionMetadata, *, commit: bool) -> None:
    coordinator.write(cluster, name, replace(state, state=f"Prepare{_word(commit=commit)}"))
    coordinator.unmarked[name] = list(state.partitions)
    coordinator.markers = {key: sent for key, sent in coordinator.markers.items() if key[0] != name}
    write_markers(cluster, coordinator, name)


def _word(*, commit: bool) -> str:
    return "Commit" if commit else "Abort"


def _client(coordinator: Coordinator) -> int:
    return TV2 if coordinator.version >= TV2 else 0
