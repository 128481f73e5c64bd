"""What proves records of one replica's log committed, beside its own high watermark: groups' offsets, transactions' markers."""

from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.transactions_across import completed, proven_by
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.transaction_log import TransactionLog
from kafka_forensics.replication.planner import Witness

if TYPE_CHECKING:
    from kafka_forensics.rereading.reader import LogReader

_COMMITS_TRIED: Final = 8


def witnesses_of(replica: Replica, reader: "LogReader", log: TransactionLog | None, *, conflicts: bool) -> list[Witness]:
    """The furthest of each kind for one replica's log; `conflicts`: other replicas hold other records."""
    witnesses = [_group_offset(replica, reader, conflicts=conflicts), None if log is None or conflicts else _marker(replica, log)]
    return [witness for witness in witnesses if witness is not None]


def _group_offset(replica: Replica, reader: "LogReader", *, conflicts: bool) -> Witness | None:
    """A consumer reads what is committed, and commits the offset behind it. The record before it must be there and not younger than
    the commit; where replicas conflict the commit must also name that record's epoch, for it does not tell which log was read."""
    end, own_id = replica.log_end_offset, replica.context.topic_id
    commits = [
        committed_offset
        for committed_offset in replica.context.committed
        if 0 < committed_offset.greatest.offset <= end and (own_id is None or committed_offset.greatest.topic_id in (None, own_id))
    ]
    commits.sort(key=lambda committed_offset: (-committed_offset.greatest.offset, committed_offset.group))
    for committed_offset in commits[:_COMMITS_TRIED]:
        offset, moment, epoch = (
            committed_offset.greatest.offset,
            committed_offset.greatest.commit_timestamp,
            committed_offset.greatest.leader_epoch,
        )
        rows = reader.batches(replica, offset - 1, offset)
        if not rows.shape[1] or not 0 <= int(rows[BatchColumn.MAX_TIMESTAMP].max()) <= moment:
            continue
        if not conflicts or (epoch >= 0 and epoch == int(rows[BatchColumn.PARTITION_LEADER_EPOCH, 0])):
            return Witness(offset, "group_offset", replica.broker, committed_offset.group)
    return None


def _marker(replica: Replica, log: TransactionLog) -> Witness | None:
    rows = replica.state.transactions.last_markers.markers.rows
    if not len(rows):
        return None
    proof = proven_by(rows, replica.log_end_offset, (replica.context.topic, replica.context.partition), completed(log))
    return None if proof is None else Witness(proof.end_offset, "transaction_marker", replica.broker, proof.transactional_id)
