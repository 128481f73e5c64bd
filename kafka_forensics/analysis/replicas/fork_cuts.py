"""Where one replica cuts its log under another, by the leader epochs of both."""

from typing import Any

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import follower_cut, truncation_offset
from kafka_forensics.replication.planner import loaded_epochs, recovered_epochs


def lineage(replica: Replica) -> list[EpochEntry]:
    """Epochs of the batches, with the checkpoint's last epoch if it began at the log end and has written nothing yet."""
    entries = list(replica.epochs)
    checkpoint = replica.context.epoch_checkpoint
    if checkpoint:
        last = max(checkpoint)
        if last.start_offset == replica.log_end_offset and (not entries or last.leader_epoch > entries[-1].leader_epoch):
            entries.append(last)
    return entries


def last_epoch(replica: Replica) -> int:
    """The last epoch of its lineage, -1 without any."""
    entries = lineage(replica)
    return entries[-1].leader_epoch if entries else -1


def cut_under(follower: Replica, leader: Replica) -> int | None:
    """Where `follower` would cut its log under `leader`; None unless the leader's last epoch is higher."""
    mine, theirs = lineage(follower), lineage(leader)
    if not mine or not theirs or theirs[-1].leader_epoch <= mine[-1].leader_epoch:
        return None
    return truncation_offset(mine, follower.log_end_offset, theirs, leader.log_end_offset)


def truncation(follower: Replica, leader: Replica) -> dict[str, Any] | None:
    """Where a replica would cut under another, by its checkpoint and its batches; None unless that one's last epoch is higher."""
    return None if cut_under(follower, leader) is None else truncation_when_leading(follower, leader)


def truncation_when_leading(follower: Replica, leader: Replica) -> dict[str, Any]:
    """Where a replica cuts once another leads in an epoch that begins at its log end, by the batches and by what both brokers load;
    the leader's log start if that is higher, where it begins anew. None where a broker refuses its checkpoint.
    """
    loaded = [loaded_epochs(brokers_epochs(replica), replica.log_end_offset) for replica in (follower, leader)]
    batches = [lineage(follower), lineage(leader)]
    latest = max((entry.leader_epoch for entries in (*batches, *loaded) for entry in entries), default=-1)
    begun = EpochEntry(latest + 1, leader.log_end_offset)

    def cut(mine: list[EpochEntry], theirs: list[EpochEntry]) -> int:
        ends = follower.log_start_offset, follower.log_end_offset
        kept = follower_cut(mine, *ends, [*theirs, begun], leader.log_end_offset, follower.context.high_watermark)
        return max(kept, leader.log_start_offset)

    refused = any(
        replica.context.epoch_checkpoint is None and replica.context.leader_epochs is not None for replica in (follower, leader)
    )
    cuts = {"from_batches": cut(*batches), "from_checkpoint": None if refused else cut(*loaded)}
    return {"follower": follower.broker, "leader": leader.broker} | cuts


def brokers_epochs(replica: Replica) -> tuple[EpochEntry, ...]:
    """The epochs a broker knows once it runs. It loads a checkpoint that is not there as an empty one; after an unclean stop,
    segments from that of the recovery point on are walked. One that was running when it was copied has the file's, and its batches'
    where the copy has none: running brokers write it with every epoch that begins (LeaderEpochFileCache.assign)."""
    context, checkpoint = replica.context, replica.context.epoch_checkpoint
    if context.live and checkpoint is None:
        return tuple(replica.epochs)
    if context.clean_shutdown or context.live:
        return tuple(checkpoint or ())
    point = context.recovery_point or 0
    walked_from = max((base for base in context.segment_base_offsets if base <= point), default=0)
    runs = ((run.leader_epoch, run.start_offset, run.end_offset) for run in replica.state.epochs.runs)
    return recovered_epochs(checkpoint or (), runs, walked_from)
