"""What happens to brokers, and how the controller reacts: crashes, shutdowns, restarts, fencing, elections."""

from collections.abc import Iterable

from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.replication.elections import ElectionInput, ElectionResult, elect, isr_without
from kafka_forensics.simulation.actions import RemovedBatches, checkpoint_high_watermarks, flush, receive_metadata, set_isr
from kafka_forensics.simulation.cluster import Cluster, SimulatedPartition, SimulatedReplica


def run_election(
    cluster: Cluster,
    partition: SimulatedPartition,
    *,
    unclean: bool | None = None,
    preferred: bool = False,
    leader: int | None = None,
    receivers: Iterable[int] | None = None,
) -> ElectionResult:
    """The controller elects a leader, or only considers the broker `leader`; `receivers` (default: all that run) learn the result.

    `unclean` overrides the cluster's setting.
    """
    assignment = partition.assignment if leader is None else (leader,)
    current = partition.leader if leader in (None, partition.leader) else NO_LEADER
    last = partition.last_known_leader if cluster.elr_enabled else None
    candidates = ElectionInput(assignment, _alive(cluster, assignment), partition.isr, current, partition.elr, last)
    outcome = elect(candidates, unclean=cluster.unclean if unclean is None else unclean, preferred=preferred)
    if outcome.leader not in (NO_LEADER, partition.leader):
        _apply_election(cluster, partition, outcome)
        publish_metadata(cluster, partition, receivers)
    return outcome


def publish_metadata(cluster: Cluster, partition: SimulatedPartition, receivers: Iterable[int] | None = None) -> None:
    """Brokers that run (or those of `receivers`) learn the controller's state of a partition, the leader first."""
    for broker in sorted(partition.assignment if receivers is None else receivers, key=lambda broker: broker != partition.leader):
        receive_metadata(cluster, partition, broker)


def fence(cluster: Cluster, broker: int, *, receivers: Iterable[int] | None = None) -> None:
    """The controller considers a broker dead: removes it from every ISR, and elects other leaders where it led."""
    cluster.fenced.add(broker)
    for partition in cluster.partitions.values():
        led = partition.leader == broker
        if broker not in partition.assignment or not (led or broker in partition.isr):
            continue
        set_isr(cluster, partition, isr_without(partition.isr, {broker}, elr_enabled=cluster.elr_enabled))
        if led:
            last = broker if cluster.elr_enabled else None
            alive = _alive(cluster, partition.assignment)
            candidates = ElectionInput(partition.assignment, alive, partition.isr, NO_LEADER, partition.elr, last)
            _apply_election(cluster, partition, elect(candidates, unclean=cluster.unclean))
            if partition.leader == NO_LEADER:
                partition.last_known_leader = last
        else:
            cluster.record_change(partition, elected=False, kind="isr")
        publish_metadata(cluster, partition, receivers)


def kill(cluster: Cluster, broker: int, *, detected: bool = True) -> None:
    """A broker's process dies (kill -9): its logs stay whole, its high watermarks fall back to the last checkpoint."""
    cluster.stopped_cleanly.discard(broker)
    _end_process(cluster, broker)
    if detected:
        fence(cluster, broker)


def lose_power(cluster: Cluster, broker: int, *, detected: bool = True) -> list[RemovedBatches]:
    """A broker's machine loses power: its logs keep only what was flushed; returns what they lost."""
    removed = []
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is not None and replica.log_end_offset > replica.flushed_end:
            batches = replica.truncate(replica.flushed_end)
            removed.append(RemovedBatches(broker, replica.log_end_offset, batches))
    kill(cluster, broker, detected=detected)
    return removed


def stop(cluster: Cluster, broker: int) -> None:
    """A clean shutdown: leadership moves first, then logs and high watermarks reach the disk."""
    fence(cluster, broker)
    checkpoint_high_watermarks(cluster, broker)
    flush(cluster, broker)
    cluster.stopped_cleanly.add(broker)
    _end_process(cluster, broker)


def start(cluster: Cluster, broker: int, *, lossy: bool = False, receivers: Iterable[int] | None = None) -> list[RemovedBatches]:
    """A dead broker starts: it loads its checkpoints, and the controller unfences it and elects leaders where there are none.

    `lossy`: it reports an unclean shutdown, which removes it from the ELR (KIP-966). Returns what it truncated at once.
    """
    led = {name for name, partition in cluster.partitions.items() if partition.leader == broker}
    for brokers in (cluster.dead, cluster.stopped_cleanly, cluster.fenced):
        brokers.discard(broker)
    partitions = [partition for partition in cluster.partitions.values() if broker in partition.replicas]
    for partition in partitions:
        replica = partition.replicas[broker]
        _load_high_watermark(replica)
        replica.drop_empty_epochs()  # LogLoader
        if lossy and cluster.elr_enabled:
            _remove_after_unclean_shutdown(cluster, partition, broker)
    for other in sorted(cluster.dead - cluster.fenced):
        fence(cluster, other)
    removed = []
    for partition in partitions:
        replica = partition.replicas[broker]
        if partition.leader == NO_LEADER:
            run_election(cluster, partition, receivers=receivers)
        elif partition.name in led:  # it restarted quickly, and leads again in a new epoch
            kind = "clean" if broker in partition.isr else "elr"
            _apply_election(cluster, partition, ElectionResult(broker, kind, partition.isr | {broker}, partition.elr - {broker}))
            publish_metadata(cluster, partition, receivers)
        if replica.leader_epoch != partition.leader_epoch or not replica.leads:
            removed.append(receive_metadata(cluster, partition, broker, restarted=True))
    return [batches for batches in removed if batches is not None]


def pause(cluster: Cluster, broker: int, *, detected: bool = False) -> None:
    """A broker stops responding: a stopped process, a long garbage collection, a network partition."""
    cluster.paused.add(broker)
    if detected:
        fence(cluster, broker)


def resume(cluster: Cluster, broker: int, *, receives_metadata: bool = True) -> None:
    """A paused broker continues; without metadata it has not learned yet what happened meanwhile."""
    cluster.paused.discard(broker)
    cluster.fenced.discard(broker)
    for partition in cluster.partitions.values():
        if broker not in partition.replicas:
            continue
        if partition.leader == NO_LEADER:
            run_election(cluster, partition)
        if receives_metadata:
            receive_metadata(cluster, partition, broker)


def _apply_election(cluster: Cluster, partition: SimulatedPartition, outcome: ElectionResult) -> None:
    """Record a new leader, or none, in a new leader epoch."""
    partition.leader, partition.isr, partition.elr = outcome.leader, outcome.isr, outcome.elr
    partition.leader_epoch += 1
    partition.recovering = outcome.may_lose or (partition.recovering and outcome.leader == NO_LEADER)
    if outcome.leader != NO_LEADER:
        partition.last_known_leader = None
    cluster.record_change(partition, elected=True, kind=outcome.kind)


def _alive(cluster: Cluster, brokers: Iterable[int]) -> frozenset[int]:
    return frozenset(brokers) - cluster.dead - cluster.fenced


def _remove_after_unclean_shutdown(cluster: Cluster, partition: SimulatedPartition, broker: int) -> None:
    """Remove a broker that may lack its last records from the ELR, and from an ISR of which it is the only member."""
    is_only_member = partition.isr == {broker}
    if not is_only_member and broker not in partition.elr:
        return
    partition.elr -= {broker}
    if is_only_member:
        partition.isr = frozenset()
    if is_only_member and partition.leader == broker:
        partition.last_known_leader = broker
        _apply_election(cluster, partition, ElectionResult(NO_LEADER, "none", partition.isr, partition.elr))
    else:
        cluster.record_change(partition, elected=False, kind="isr")


def _load_high_watermark(replica: SimulatedReplica) -> None:
    replica.high_watermark = min(replica.checkpointed, replica.log_end_offset)


def _end_process(cluster: Cluster, broker: int) -> None:
    """The process loses its state, and waiting requests get no response."""
    cluster.dead.add(broker)
    cluster.paused.discard(broker)
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is None:
            continue
        for request in replica.waiting:
            request.response = "lost"
        replica.waiting, replica.followers = [], {}
        replica.leader, replica.isr = NO_LEADER, frozenset()
        _load_high_watermark(replica)
