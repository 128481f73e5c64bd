"""Where one replica cuts its log under another, by the leader epochs of both."""

from typing import Any

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import truncation_offset


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
    by_batches = cut_under(follower, leader)
    if by_batches is None:
        return None
    entries, ours, theirs = sorted(follower.context.epoch_checkpoint or []), follower.log_end_offset, leader.log_end_offset
    by_file = truncation_offset(entries, ours, lineage(leader), theirs) if entries else None
    return {"follower": follower.broker, "leader": leader.broker, "from_batches": by_batches, "from_checkpoint": by_file}
