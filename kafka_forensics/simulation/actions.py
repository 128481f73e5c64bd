"""What replicas of a partition do: append, fetch, truncate, raise watermarks, answer producers, change the ISR.

Each function changes the cluster in place and says what came of it; the rules are those of `replication`. Nothing is done by a
broker that is dead or frozen.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypedDict, Unpack

from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication import acks as promises, elections
from kafka_forensics.replication.elections import eligible_leader_replicas
from kafka_forensics.replication.epochs import Log, Truncated, assign_epoch, by_fetch, by_high_watermark, by_kip_101, by_kip_279
from kafka_forensics.replication.watermarks import LeaderState, follower_high_watermark, raised
from kafka_forensics.simulation.cluster import Batch, Cluster, Partition, PartitionChange, Sent, SimulatedReplica

UNREACHABLE: Final = "unreachable"
FENCED: Final = "fenced"
_RULES: Final = {"kip-101": by_kip_101, "kip-279": by_kip_279, "kip-320": by_fetch}


class DroppedBatches(NamedTuple):
    """Batches that a replica dropped, and where its log ends now."""

    broker: int
    end_offset: int
    batches: tuple[Batch, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of what went."""
        return tuple(record_id for batch in self.batches for record_id in batch.ids)


class Fetched(NamedTuple):
    """A fetch round: who was asked, what was cut before, offsets `[start, end)` copied; `failure` where nothing came of it."""

    leader: int
    cut: DroppedBatches | None = None
    start: int = 0
    end: int = 0
    joined: bool = False
    """Whether the follower came back into the ISR by it."""
    failure: str = ""


def leading(cluster: Cluster, partition: Partition) -> SimulatedReplica | None:
    """The replica that leads by the controller's word and knows it, if its broker runs."""
    replica = partition.replicas.get(partition.leader)
    if replica is None or not cluster.runs(replica.broker) or replica.leader_epoch != partition.leader_epoch:
        return None
    return replica


def leader_state(cluster: Cluster, partition: Partition, leader: SimulatedReplica) -> LeaderState:
    """A leader's view, as the rules of watermarks and acknowledgements take it."""
    ends = {
        replica: leader.followers[replica].log_end_offset if replica in leader.followers else -1 for replica in partition.replicas
    }
    del ends[leader.broker]
    return LeaderState(
        leader.broker,
        leader.log_end_offset,
        leader.high_watermark,
        leader.isr,
        ends,
        min_insync_replicas=partition.min_insync_replicas,
        freezes=cluster.fences,
    )


class Sending(TypedDict, total=False):
    """How a batch is sent, where that is not the usual: to the controller's leader, with acks=all, and the answer arrives."""

    acks: int
    leader: int | None
    """To whom, who may only take itself for the leader."""
    answered: bool
    """False: the leader gets it, and what it answers is lost."""


class BatchFields(TypedDict, total=False):
    """What a batch has that is numbered, or of a transaction."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    marker: str
    coordinator_epoch: int


def receiver(partition: Partition, how: Sending) -> int:
    """The broker that a batch is sent to."""
    leader = how.get("leader")
    return partition.leader if leader is None else leader


def append(
    cluster: Cluster, partition: Partition, ids: tuple[int, ...], fields: BatchFields | None = None, **how: Unpack[Sending]
) -> Sent:
    """A producer's batch, with further `fields`, at a broker; the answer may come later, with the watermark."""
    broker, acks = receiver(partition, how), how.get("acks", promises.ALL)
    replica = partition.replicas.get(broker)
    sent = Sent(partition.name, ids, acks, broker, partition.leader_epoch, answered=how.get("answered", True))
    if replica is None or not cluster.runs(broker) or not replica.leads:
        sent.answer = "acknowledged" if acks == promises.NONE else "not leader"
        return _heard(cluster, sent)
    sent.leader_epoch = replica.leader_epoch
    state = leader_state(cluster, partition, replica)
    refused = promises.before_append(acks, state)
    if refused is not promises.ProduceResponse.WAITING:
        sent.answer = refused.value
        return sent
    sent.base_offset = replica.log_end_offset
    sent.end_offset = sent.base_offset + len(ids)
    if cluster.epochs_known:
        replica.append(Batch(sent.base_offset, ids, replica.leader_epoch, cluster.now_ms, **(fields or {})))
    else:
        for offset, record_id in enumerate(ids, sent.base_offset):  # in format 1 every record stands alone
            replica.append(Batch(offset, (record_id,), replica.leader_epoch, cluster.now_ms), with_epochs=False)
    replica.waiting.append(sent)
    raise_high_watermark(cluster, partition, replica)
    return sent


def raise_high_watermark(cluster: Cluster, partition: Partition, leader: SimulatedReplica) -> bool:
    """Let a leader look at all log ends, and answer who waited; whether its watermark moved."""
    before = leader.high_watermark
    state = raised(leader_state(cluster, partition, leader))
    leader.high_watermark = state.high_watermark
    if state.high_watermark > before:
        _note_committed(cluster, partition, leader)
    if leader.waiting:
        left = []
        for sent in leader.waiting:
            sent.answer = promises.after_append(sent.acks, state, sent.end_offset - 1).value
            if sent.answer == promises.ProduceResponse.WAITING.value:
                left.append(sent)
            else:
                _heard(cluster, sent)
        leader.waiting = left
    return state.high_watermark > before


def fetch(cluster: Cluster, partition: Partition, follower: int, *, answered: bool = True, limit: int | None = None) -> Fetched:
    """A follower truncates if it has to, asks its leader for what follows its log, and copies it (`limit`: batches at most).

    `answered=False`: the leader hears the request, its answer is lost.
    """
    replica = partition.replicas[follower]
    leader = partition.replicas.get(replica.leader)
    if not cluster.runs(follower) or leader is None or leader is replica or not cluster.runs(leader.broker) or not leader.leads:
        return Fetched(replica.leader, failure=UNREACHABLE)
    if cluster.fences and replica.leader_epoch != leader.leader_epoch:
        return Fetched(leader.broker, failure=FENCED)
    cut = truncate(cluster, replica, leader)
    known = leader.followers.get(follower, elections.FetchState())
    leader.followers[follower] = elections.fetched(known, replica.log_end_offset, leader.log_end_offset, cluster.now_ms)
    joined = _expand_isr(cluster, partition, leader, follower)
    raise_high_watermark(cluster, partition, leader)
    start = replica.log_end_offset
    inside = any(batch.base_offset < start < batch.end_offset for batch in leader.batches)
    if not answered or inside:  # a batch that begins below the log end is refused: logs that parted, and nobody cut
        return Fetched(leader.broker, cut, start, start, joined)
    missing = [batch for batch in leader.batches if batch.base_offset >= start]
    for batch in missing[:limit]:
        replica.append(batch, with_epochs=cluster.epochs_known)
    replica.high_watermark = follower_high_watermark(leader.high_watermark, replica.log_end_offset)
    return Fetched(leader.broker, cut, start, replica.log_end_offset, joined)


def truncate(cluster: Cluster, replica: SimulatedReplica, leader: SimulatedReplica) -> DroppedBatches | None:
    """Cut a follower's log as its protocol has it; None if nothing had to go."""
    own, theirs = log_of(replica), log_of(leader)
    if cluster.protocol == "truncate-to-hw":
        done = by_fetch(Log((), own.log_end_offset, own.high_watermark), theirs)
    elif replica.truncates or cluster.fences:
        done = _RULES[cluster.protocol](own, theirs)
    else:
        done = by_fetch(Log((), own.log_end_offset, own.high_watermark), theirs)
    replica.truncates = False
    return cut_to(replica, done)


def cut_to(replica: SimulatedReplica, done: Truncated) -> DroppedBatches | None:
    """Bring a log to where truncation ends."""
    if not done.questions and done.log_end_offset == replica.log_end_offset:
        return None
    gone = replica.cut(done.log_end_offset)
    return DroppedBatches(replica.broker, replica.log_end_offset, tuple(gone)) if gone else None


def log_of(replica: SimulatedReplica) -> Log:
    """A replica as the rules of truncation take it."""
    return Log(tuple(replica.epochs), replica.log_end_offset, replica.high_watermark)


def hear(cluster: Cluster, partition: Partition, broker: int, *, again: bool = False) -> DroppedBatches | None:
    """A broker learns what the controller last said of a partition, and becomes leader or follower; `again` after a restart."""
    replica = partition.replicas[broker]
    if not cluster.runs(broker) or partition.leader_epoch < replica.leader_epoch:
        return None
    news = again or partition.leader_epoch > replica.leader_epoch
    moved = again or partition.leader != replica.leader
    if partition.leader == NO_LEADER and not cluster.epochs_known:
        return None  # before KRaft nobody was told that there is no leader
    replica.leader, replica.leader_epoch, replica.isr = partition.leader, partition.leader_epoch, partition.isr
    if not news:
        return None
    for sent in replica.waiting:
        sent.answer = "not leader"
    replica.waiting = []
    if replica.leads:
        _begin_to_lead(cluster, partition, replica)
        return None
    replica.truncates = True
    if cluster.protocol != "truncate-to-hw" or not moved:
        return None
    own = log_of(replica)
    return cut_to(replica, by_high_watermark(own, own))


def shrink_isr(cluster: Cluster, partition: Partition, out: Iterable[int] | None = None) -> frozenset[int]:
    """The leader puts members out of the ISR: those that lag by its clock, or `out`. Who went."""
    leader = leading(cluster, partition)
    if leader is None:
        return frozenset()
    if out is None:
        lag, end = cluster.replica_lag_time_max_ms, leader.log_end_offset
        gone = elections.out_of_sync(partition.isr, leader.broker, leader.followers, end, cluster.now_ms, lag)
    else:
        gone = partition.isr & frozenset(out) - {leader.broker}
    if gone:
        set_isr(cluster, partition, partition.isr - gone)
        leader.isr = partition.isr
        raise_high_watermark(cluster, partition, leader)
    return gone


def set_isr(cluster: Cluster, partition: Partition, isr: frozenset[int]) -> None:
    """The controller writes down another ISR, and with it the ELR."""
    if cluster.elr_enabled:
        needed = min(partition.min_insync_replicas, len(partition.assignment))
        partition.elr = eligible_leader_replicas(partition.isr, partition.elr, isr, needed)
    partition.isr = isr
    partition.partition_epoch += 1
    record_change(cluster, partition, elected=False, kind="isr")


def record_change(cluster: Cluster, partition: Partition, *, elected: bool, kind: str) -> None:
    """Put how a partition stands into the controller's log."""
    isr, elr = (tuple(broker for broker in partition.assignment if broker in members) for members in (partition.isr, partition.elr))
    change = PartitionChange(
        cluster.now_ms, partition.name, partition.leader, partition.leader_epoch, isr, elr, partition.recovering, elected, kind
    )
    cluster.changes.append(change)


def checkpoint_high_watermarks(cluster: Cluster, broker: int) -> None:
    """A broker writes down its high watermarks."""
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is not None:
            replica.checkpointed = replica.vouched = replica.high_watermark


def flush(cluster: Cluster, broker: int) -> None:
    """A broker's logs reach the disk: what was written until now survives a loss of power."""
    for partition in cluster.partitions.values():
        replica = partition.replicas.get(broker)
        if replica is not None:
            replica.flushed = replica.log_end_offset


def _begin_to_lead(cluster: Cluster, partition: Partition, replica: SimulatedReplica) -> None:
    """A leader begins its epoch at its log end and knows nothing of its followers yet (Partition.makeLeader)."""
    replica.truncates = False
    if cluster.epochs_known:
        assign_epoch(replica.epochs, EpochEntry(replica.leader_epoch, replica.log_end_offset))
    caught_up = {
        broker: cluster.now_ms if broker in partition.isr else 0 for broker in partition.replicas if broker != replica.broker
    }
    replica.followers = {broker: elections.FetchState(last_caught_up_ms=since) for broker, since in caught_up.items()}
    raise_high_watermark(cluster, partition, replica)


def _expand_isr(cluster: Cluster, partition: Partition, leader: SimulatedReplica, follower: int) -> bool:
    """Take a follower into the ISR if it has come far enough and the controller agrees that it is alive (AlterPartition)."""
    if follower in partition.isr or leader.leader_epoch != partition.leader_epoch or leader.broker != partition.leader:
        return False
    if follower in cluster.fenced:
        return False
    started = leader.epochs[-1].start_offset if cluster.fences and leader.epochs else 0
    if not elections.may_join(leader.followers[follower].log_end_offset, leader.high_watermark, started):
        return False
    partition.recovering = False
    set_isr(cluster, partition, partition.isr | {follower})
    leader.isr = partition.isr
    return True


def _note_committed(cluster: Cluster, partition: Partition, leader: SimulatedReplica) -> None:
    noted = cluster.committed[partition.name]
    for batch in leader.batches:
        if batch.end_offset <= leader.high_watermark and batch.marker is None:
            noted.update(batch.ids)


def _heard(cluster: Cluster, sent: Sent) -> Sent:
    if sent.acknowledged and sent.ids[0] >= 0:
        cluster.acknowledged.update(dict.fromkeys(sent.ids, sent))
    return sent
