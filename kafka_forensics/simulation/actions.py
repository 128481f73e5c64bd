"""What replicas of a partition do: append, fetch, truncate, raise high watermarks, respond to producers, change the ISR.

Each function changes the cluster in place by the rules of `replication`. A broker that is dead or paused does nothing.
"""

from typing import Final, NamedTuple, TypedDict, Unpack

from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication import elections
from kafka_forensics.replication.acks import ACKS_ALL, ACKS_NONE, ProduceResponse, after_append, before_append
from kafka_forensics.replication.epochs import (
    EpochLog,
    TruncationResult,
    assign_epoch,
    by_fetch,
    by_high_watermark,
    by_kip_101,
    by_kip_279,
)
from kafka_forensics.replication.watermarks import LeaderState, follower_high_watermark, raised
from kafka_forensics.simulation.cluster import Batch, Cluster, ProduceRequest, SimulatedPartition, SimulatedReplica

UNREACHABLE: Final = "unreachable"
FENCED: Final = "fenced"
_TRUNCATION_RULES: Final = {"kip-101": by_kip_101, "kip-279": by_kip_279, "kip-320": by_fetch}


class RemovedBatches(NamedTuple):
    """The batches that a replica truncated, and its log end afterwards."""

    broker: int
    end_offset: int
    batches: tuple[Batch, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of their records."""
        return tuple(record_id for batch in self.batches for record_id in batch.ids)


class FetchResult(NamedTuple):
    """The result of a fetch: the leader, what the follower truncated before, and the offsets `[start, end)` that it copied."""

    leader: int
    truncated: RemovedBatches | None = None
    start: int = 0
    end: int = 0
    joined: bool = False
    """Whether the fetch brought the follower back into the ISR."""
    failure: str = ""
    """`UNREACHABLE` or `FENCED` where the leader did not answer."""


class SendOptions(TypedDict, total=False):
    """How to send a batch; by default to the controller's leader, with acks=all, and the response arrives."""

    acks: int
    leader: int | None
    """The broker to send to; it may only consider itself leader."""
    answered: bool
    """False: the leader receives the batch and its response is lost."""


class SimulatedBatchFields(TypedDict, total=False):
    """Fields of a batch that is idempotent or transactional."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    marker: str
    coordinator_epoch: int


def receiving_broker(partition: SimulatedPartition, options: SendOptions) -> int:
    """The broker that a batch is sent to."""
    leader = options.get("leader")
    return partition.leader if leader is None else leader


def acting_leader(cluster: Cluster, partition: SimulatedPartition, broker: int) -> SimulatedReplica | None:
    """The replica of a broker if the broker runs and considers itself leader."""
    replica = partition.replicas.get(broker)
    return replica if replica is not None and cluster.is_running(broker) and replica.leads else None


def true_leader(cluster: Cluster, partition: SimulatedPartition) -> SimulatedReplica | None:
    """The replica of the controller's leader if its broker runs and is in the current leader epoch."""
    replica = partition.replicas.get(partition.leader)
    if replica is None or not cluster.is_running(replica.broker) or replica.leader_epoch != partition.leader_epoch:
        return None
    return replica


def leader_state(cluster: Cluster, partition: SimulatedPartition, leader: SimulatedReplica) -> LeaderState:
    """A leader's view of its partition as the rules of high watermarks and acknowledgements take it."""
    followers = {broker: leader.followers.get(broker) for broker in partition.replicas if broker != leader.broker}
    return LeaderState(
        leader.broker,
        leader.log_end_offset,
        leader.high_watermark,
        leader.isr,
        {broker: -1 if state is None else state.log_end_offset for broker, state in followers.items()},
        min_insync_replicas=partition.min_insync_replicas,
        freezes=cluster.fences_fetches,
    )


def append(
    cluster: Cluster,
    partition: SimulatedPartition,
    ids: tuple[int, ...],
    fields: SimulatedBatchFields | None = None,
    **options: Unpack[SendOptions],
) -> ProduceRequest:
    """Send a batch with the optional `fields`; the response may come later, when the high watermark rises."""
    broker, acks = receiving_broker(partition, options), options.get("acks", ACKS_ALL)
    replica = acting_leader(cluster, partition, broker)
    is_answered = options.get("answered", True)
    request = ProduceRequest(partition.name, ids, acks, broker, partition.leader_epoch, is_answered=is_answered)
    if replica is None:
        request.response = "acknowledged" if acks == ACKS_NONE else "not leader"
        _note_acknowledged(cluster, request)
        return request
    request.leader_epoch = replica.leader_epoch
    response = before_append(acks, leader_state(cluster, partition, replica))
    if response is not ProduceResponse.WAITING:
        request.response = response.value
        return request
    request.base_offset = replica.log_end_offset
    request.end_offset = request.base_offset + len(ids)
    if cluster.has_leader_epochs:
        replica.append(Batch(request.base_offset, ids, replica.leader_epoch, cluster.now_ms, **(fields or {})))
    else:
        for offset, record_id in enumerate(ids, request.base_offset):  # format 1 has an entry for each record
            replica.append(Batch(offset, (record_id,), replica.leader_epoch, cluster.now_ms), with_epochs=False)
    replica.waiting.append(request)
    raise_high_watermark(cluster, partition, replica)
    return request


def raise_high_watermark(cluster: Cluster, partition: SimulatedPartition, leader: SimulatedReplica) -> None:
    """Recompute a leader's high watermark from all log ends, and respond to the waiting requests below it."""
    state = raised(leader_state(cluster, partition, leader))
    if state.high_watermark > leader.high_watermark:
        leader.high_watermark = state.high_watermark
        below = [batch for batch in leader.batches if batch.end_offset <= leader.high_watermark and batch.marker is None]
        cluster.committed[partition.name].update(record_id for batch in below for record_id in batch.ids)
    still_waiting = []
    for request in leader.waiting:
        request.response = after_append(request.acks, state, request.end_offset - 1).value
        if request.response == ProduceResponse.WAITING.value:
            still_waiting.append(request)
        else:
            _note_acknowledged(cluster, request)
    leader.waiting = still_waiting


def fetch(
    cluster: Cluster, partition: SimulatedPartition, follower: int, *, answered: bool = True, limit: int | None = None
) -> FetchResult:
    """A follower truncates if it must, fetches from its log end, and appends the answer, at most `limit` batches.

    `answered=False`: the leader receives the request and its answer is lost.
    """
    replica = partition.replicas[follower]
    leader = acting_leader(cluster, partition, replica.leader)
    if not cluster.is_running(follower) or leader is None or leader is replica:
        return FetchResult(replica.leader, failure=UNREACHABLE)
    if cluster.fences_fetches and replica.leader_epoch != leader.leader_epoch:
        return FetchResult(leader.broker, failure=FENCED)
    truncated = _truncate(cluster, replica, leader)
    known, start = leader.followers.get(follower, elections.FetchState()), replica.log_end_offset
    leader.followers[follower] = elections.fetched(known, start, leader.log_end_offset, cluster.now_ms)
    joined = _expand_isr(cluster, partition, leader, follower)
    raise_high_watermark(cluster, partition, leader)
    is_inside_batch = any(batch.base_offset < start < batch.end_offset for batch in leader.batches)
    if not answered or is_inside_batch:  # a batch that starts below the log end is rejected: the logs differ, and nobody truncated
        return FetchResult(leader.broker, truncated, start, start, joined)
    for batch in [batch for batch in leader.batches if batch.base_offset >= start][:limit]:
        replica.append(batch, with_epochs=cluster.has_leader_epochs)
    replica.high_watermark = follower_high_watermark(leader.high_watermark, replica.log_end_offset)
    return FetchResult(leader.broker, truncated, start, replica.log_end_offset, joined)


def receive_metadata(
    cluster: Cluster, partition: SimulatedPartition, broker: int, *, restarted: bool = False
) -> RemovedBatches | None:
    """A broker learns the controller's current state of a partition and becomes leader or follower; what it truncated at once."""
    replica = partition.replicas[broker]
    if not cluster.is_running(broker) or partition.leader_epoch < replica.leader_epoch:
        return None
    if partition.leader == NO_LEADER and not cluster.has_leader_epochs:
        return None  # before KRaft the controller did not report the absence of a leader
    is_newer = restarted or partition.leader_epoch > replica.leader_epoch
    leader_changed = restarted or partition.leader != replica.leader
    replica.leader, replica.leader_epoch, replica.isr = partition.leader, partition.leader_epoch, partition.isr
    if not is_newer:
        return None
    for request in replica.waiting:
        request.response = "not leader"
    replica.waiting = []
    replica.must_truncate = not replica.leads
    if replica.leads:
        _become_leader(cluster, partition, replica)
    elif cluster.protocol == "truncate-to-hw" and leader_changed:
        log = _log_of(replica)
        return _truncate_to(replica, by_high_watermark(log, log))
    return None


def shrink_isr(cluster: Cluster, partition: SimulatedPartition) -> frozenset[int]:
    """The leader removes the ISR members that lag by its clock; returns them."""
    leader = true_leader(cluster, partition)
    if leader is None:
        return frozenset()
    lag_ms, end = cluster.replica_lag_time_max_ms, leader.log_end_offset
    lagging = elections.out_of_sync(partition.isr, leader.broker, leader.followers, end, cluster.now_ms, lag_ms)
    if lagging:
        _alter_isr(cluster, partition, leader, partition.isr - lagging)
        raise_high_watermark(cluster, partition, leader)
    return lagging


def set_isr(cluster: Cluster, partition: SimulatedPartition, isr: frozenset[int]) -> None:
    """Set the controller's ISR of a partition, and the ELR that follows from it."""
    if cluster.elr_enabled:
        minimum = min(partition.min_insync_replicas, len(partition.assignment))
        partition.elr = elections.eligible_leader_replicas(partition.isr, partition.elr, isr, minimum)
    partition.isr = isr


def checkpoint_high_watermarks(cluster: Cluster, broker: int) -> None:
    """A broker writes its high watermarks to replication-offset-checkpoint."""
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is not None:
            replica.checkpointed = replica.checkpoint_valid_end = replica.high_watermark


def flush(cluster: Cluster, broker: int) -> None:
    """A broker flushes its logs, which then survive a power failure."""
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is not None:
            replica.flushed_end = replica.log_end_offset


def _truncate(cluster: Cluster, replica: SimulatedReplica, leader: SimulatedReplica) -> RemovedBatches | None:
    """Truncate a follower's log by the rule of the protocol before it fetches."""
    log = _log_of(replica)
    if cluster.has_leader_epochs and (replica.must_truncate or cluster.fences_fetches):
        result = _TRUNCATION_RULES[cluster.protocol](log, _log_of(leader))
    else:
        result = by_fetch(EpochLog((), log.log_end_offset, log.high_watermark), _log_of(leader))
    replica.must_truncate = False
    return _truncate_to(replica, result)


def _truncate_to(replica: SimulatedReplica, result: TruncationResult) -> RemovedBatches | None:
    if not result.questions and result.log_end_offset == replica.log_end_offset:
        return None
    batches = replica.truncate(result.log_end_offset)
    return RemovedBatches(replica.broker, replica.log_end_offset, batches) if batches else None


def _log_of(replica: SimulatedReplica) -> EpochLog:
    return EpochLog(tuple(replica.epochs), replica.log_end_offset, replica.high_watermark)


def _become_leader(cluster: Cluster, partition: SimulatedPartition, replica: SimulatedReplica) -> None:
    """The leader epoch starts at the log end, and nothing is known of the followers yet (SimulatedPartition.makeLeader)."""
    if cluster.has_leader_epochs:
        assign_epoch(replica.epochs, EpochEntry(replica.leader_epoch, replica.log_end_offset))
    replica.followers = {
        broker: elections.FetchState(last_caught_up_ms=cluster.now_ms if broker in partition.isr else 0)
        for broker in partition.replicas
        if broker != replica.broker
    }
    raise_high_watermark(cluster, partition, replica)


def _expand_isr(cluster: Cluster, partition: SimulatedPartition, leader: SimulatedReplica, follower: int) -> bool:
    """Add a follower to the ISR if it has caught up and the controller agrees (AlterPartition); whether it was added."""
    is_current = leader.broker == partition.leader and leader.leader_epoch == partition.leader_epoch
    if follower in partition.isr or not is_current or follower in cluster.fenced:
        return False
    epoch_start = leader.epochs[-1].start_offset if cluster.fences_fetches and leader.epochs else 0
    if not elections.may_join(leader.followers[follower].log_end_offset, leader.high_watermark, epoch_start):
        return False
    partition.recovering = False
    _alter_isr(cluster, partition, leader, partition.isr | {follower})
    return True


def _alter_isr(cluster: Cluster, partition: SimulatedPartition, leader: SimulatedReplica, isr: frozenset[int]) -> None:
    """The leader changes the ISR, and the controller records that (AlterPartition)."""
    set_isr(cluster, partition, isr)
    cluster.record_change(partition, elected=False, kind="isr")
    leader.isr = isr


def _note_acknowledged(cluster: Cluster, request: ProduceRequest) -> None:
    if request.is_acknowledged and request.ids[0] >= 0:
        cluster.acknowledged.update(dict.fromkeys(request.ids, request))
