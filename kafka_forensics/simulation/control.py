"""What happens to brokers, and what the controller makes of it: deaths, restarts, fencing, elections."""

from collections.abc import Iterable

from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.replication.elections import Candidates, Elected, elect, eligible_leader_replicas, without
from kafka_forensics.simulation.actions import DroppedBatches, checkpoint_high_watermarks, flush, hear, record_change
from kafka_forensics.simulation.cluster import Cluster, Partition, SimulatedReplica


def run_election(
    cluster: Cluster,
    partition: Partition,
    *,
    unclean: bool | None = None,
    preferred: bool = False,
    leader: int | None = None,
    hears: Iterable[int] | None = None,
) -> Elected:
    """The controller elects, and `hears` (everybody who runs) learn of it. `leader` restricts the choice to one broker.

    `unclean`: as the cluster is configured unless it is given.
    """
    allowed = cluster.unclean if unclean is None else unclean
    assignment = partition.assignment if leader is None else (leader,)
    alive = frozenset(broker for broker in assignment if broker not in cluster.dead and broker not in cluster.fenced)
    current = partition.leader if leader in (None, partition.leader) else NO_LEADER
    last = partition.last_known_leader if cluster.elr_enabled else None
    given = Candidates(assignment, alive, partition.isr, current, partition.elr, last)
    outcome = elect(given, unclean=allowed, preferred=preferred)
    if outcome.leader in (NO_LEADER, partition.leader):
        return outcome
    apply_election(cluster, partition, outcome)
    tell(cluster, partition, hears)
    return outcome


def apply_election(cluster: Cluster, partition: Partition, outcome: Elected) -> None:
    """Write an election down: a new leader, or none, in a new leader epoch."""
    partition.leader, partition.isr, partition.elr = outcome.leader, outcome.isr, outcome.elr
    partition.leader_epoch += 1
    partition.partition_epoch += 1
    partition.recovering = outcome.may_lose or (partition.recovering and outcome.leader == NO_LEADER)
    if outcome.leader != NO_LEADER:
        partition.last_known_leader = None
    record_change(cluster, partition, elected=True, kind=outcome.kind)


def tell(cluster: Cluster, partition: Partition, hears: Iterable[int] | None = None) -> list[DroppedBatches]:
    """Brokers learn what the controller last said of a partition; what they cut at once."""
    hearers = partition.assignment if hears is None else tuple(hears)
    order = sorted(hearers, key=lambda broker: broker != partition.leader)  # the leader first
    cuts = [hear(cluster, partition, broker) for broker in order if cluster.runs(broker)]
    return [cut for cut in cuts if cut is not None]


def fence(cluster: Cluster, broker: int, *, hears: Iterable[int] | None = None) -> None:
    """The controller takes a broker for dead: out of every ISR, and others are elected where it led."""
    cluster.fenced.add(broker)
    for partition in cluster.partitions.values():
        if broker not in partition.assignment:
            continue
        before, elr_before, led = partition.isr, partition.elr, partition.leader == broker
        if not led and broker not in before:
            continue
        partition.isr = without(before, {broker}, elr_enabled=cluster.elr_enabled)
        if cluster.elr_enabled:
            needed = min(partition.min_insync_replicas, len(partition.assignment))
            partition.elr = eligible_leader_replicas(before, elr_before, partition.isr, needed)
        if not led:
            partition.partition_epoch += 1
            record_change(cluster, partition, elected=False, kind="isr")
            tell(cluster, partition, hears)
            continue
        _replace_leader(cluster, partition, broker)
        tell(cluster, partition, hears)


def _replace_leader(cluster: Cluster, partition: Partition, gone: int) -> None:
    alive = frozenset(broker for broker in partition.assignment if broker not in cluster.dead and broker not in cluster.fenced)
    last = gone if cluster.elr_enabled else None
    outcome = elect(Candidates(partition.assignment, alive, partition.isr, NO_LEADER, partition.elr, last), unclean=cluster.unclean)
    apply_election(cluster, partition, outcome)
    if outcome.leader == NO_LEADER:
        partition.last_known_leader = last


def kill(cluster: Cluster, broker: int, *, noticed: bool = True) -> None:
    """A broker's process dies at once (kill -9): its logs keep all that was written, watermarks since the last checkpoint go."""
    cluster.dead.add(broker)
    cluster.frozen.discard(broker)
    cluster.clean.discard(broker)
    _forget(cluster, broker)
    if noticed:
        fence(cluster, broker)


def lose_power(cluster: Cluster, broker: int, *, noticed: bool = True) -> list[DroppedBatches]:
    """A broker's machine dies: of its logs only what was flushed is left; what went."""
    cuts = []
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is not None and replica.log_end_offset > replica.flushed:
            gone = replica.cut(replica.flushed)
            cuts.append(DroppedBatches(broker, replica.log_end_offset, tuple(gone)))
    kill(cluster, broker, noticed=noticed)
    return cuts


def stop(cluster: Cluster, broker: int) -> None:
    """A clean shutdown: others lead first, logs and watermarks are written down, the log end is marked as good."""
    fence(cluster, broker)
    checkpoint_high_watermarks(cluster, broker)
    flush(cluster, broker)
    cluster.dead.add(broker)
    cluster.clean.add(broker)
    cluster.frozen.discard(broker)
    _forget(cluster, broker)


def start(cluster: Cluster, broker: int, *, lossy: bool = False, hears: Iterable[int] | None = None) -> list[DroppedBatches]:
    """A dead broker comes back: watermarks are those of the checkpoint, the controller unfences it and elects where nobody leads.

    `lossy`: it was stopped uncleanly and says so, which takes it out of the ELR (KIP-966). What it cut at once.
    """
    led = {name for name, partition in cluster.partitions.items() if partition.leader == broker}
    for members in (cluster.dead, cluster.clean, cluster.fenced):
        members.discard(broker)
    mine = [partition for partition in cluster.partitions.values() if broker in partition.replicas]
    for partition in mine:
        _load(partition.replicas[broker])
        if lossy and cluster.elr_enabled:
            _trust_no_more(cluster, partition, broker)
    for other in sorted(cluster.dead - cluster.fenced):
        fence(cluster, other)
    cuts = []
    for partition in mine:
        replica = partition.replicas[broker]
        if partition.leader == NO_LEADER:
            run_election(cluster, partition, hears=hears)
        elif partition.name in led:
            _lead_again(cluster, partition, broker)
            tell(cluster, partition, hears)
        if replica.leader_epoch != partition.leader_epoch or not replica.leads:
            cuts.append(hear(cluster, partition, broker, again=True))
    return [cut for cut in cuts if cut is not None]


def _trust_no_more(cluster: Cluster, partition: Partition, broker: int) -> None:
    """A broker that lost its end may lack anything: it leaves the ELR, and an ISR that is it alone; what it led, nobody leads."""
    alone = partition.isr == {broker}
    if not alone and broker not in partition.elr:
        return
    partition.elr -= {broker}
    partition.isr = frozenset() if alone else partition.isr
    if alone and partition.leader == broker:
        partition.last_known_leader = broker
        apply_election(cluster, partition, Elected(NO_LEADER, "none", partition.isr, partition.elr))
        return
    partition.partition_epoch += 1
    record_change(cluster, partition, elected=False, kind="isr")


def _load(replica: SimulatedReplica) -> None:
    """A log as it comes up: the watermark is that of the checkpoint, and no epoch begins at the log end (LogLoader)."""
    replica.high_watermark = min(replica.checkpointed, replica.log_end_offset)
    while replica.epochs and replica.epochs[-1].start_offset >= replica.log_end_offset:
        replica.epochs.pop()


def _lead_again(cluster: Cluster, partition: Partition, broker: int) -> None:
    """A leader that was away for a moment only leads on, in a new epoch."""
    kind = "clean" if broker in partition.isr else "elr"
    apply_election(cluster, partition, Elected(broker, kind, partition.isr | {broker}, partition.elr - {broker}))


def freeze(cluster: Cluster, broker: int, *, noticed: bool = False) -> None:
    """A broker stands still: a stopped process, a long collection of garbage, a network that is cut."""
    cluster.frozen.add(broker)
    if noticed:
        fence(cluster, broker)


def thaw(cluster: Cluster, broker: int, *, hears: bool = True) -> list[DroppedBatches]:
    """A frozen broker goes on; `hears=False`: it has not yet learnt what happened meanwhile. What it cut at once."""
    cluster.frozen.discard(broker)
    cluster.fenced.discard(broker)
    cuts = []
    for partition in cluster.partitions.values():
        if broker not in partition.replicas:
            continue
        if partition.leader == NO_LEADER:
            run_election(cluster, partition)
        if hears:
            cuts.append(hear(cluster, partition, broker))
    return [cut for cut in cuts if cut is not None]


def _forget(cluster: Cluster, broker: int) -> None:
    """What a process knew goes with it; who waited for its answer never gets one."""
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is None:
            continue
        for sent in replica.waiting:
            sent.answer = "lost"
        replica.waiting, replica.followers = [], {}
        replica.leader, replica.isr = NO_LEADER, frozenset()
        replica.high_watermark = min(replica.checkpointed, replica.log_end_offset)
