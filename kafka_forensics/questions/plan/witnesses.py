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


def witnesses_of(one: Replica, reader: "LogReader", log: TransactionLog | None, *, conflicts: bool) -> list[Witness]:
    """The furthest of each kind for one replica's log; `conflicts`: other replicas hold other records."""
    found = [_group_offset(one, reader, conflicts=conflicts), None if log is None or conflicts else _marker(one, log)]
    return [each for each in found if each is not None]


def _group_offset(one: Replica, reader: "LogReader", *, conflicts: bool) -> Witness | None:
    """A consumer reads what is committed, and commits the offset behind it. The record before it must be there and not younger than
    the commit; where replicas conflict the commit must also name that record's epoch, for it does not tell which log was read."""
    end, own_id = one.log_end_offset, one.context.topic_id
    commits = [
        each
        for each in one.context.committed
        if 0 < each.greatest.offset <= end and (own_id is None or each.greatest.topic_id in (None, own_id))
    ]
    commits.sort(key=lambda each: (-each.greatest.offset, each.group))
    for each in commits[:_COMMITS_TRIED]:
        offset, moment, epoch = each.greatest.offset, each.greatest.commit_timestamp, each.greatest.leader_epoch
        rows = reader.batches(one, offset - 1, offset)
        if not rows.shape[1] or not 0 <= int(rows[BatchColumn.MAX_TIMESTAMP].max()) <= moment:
            continue
        if not conflicts or (epoch >= 0 and epoch == int(rows[BatchColumn.PARTITION_LEADER_EPOCH, 0])):
            return Witness(offset, "group_offset", one.broker, each.group)
    return None


def _marker(one: Replica, log: TransactionLog) -> Witness | None:
    rows = one.state.transactions.last_markers.markers.rows
    if not len(rows):
        return None
    proof = proven_by(rows, one.log_end_offset, (one.context.topic, one.context.partition), completed(log))
    return None if proof is None else Witness(proof.end_offset, "transaction_marker", one.broker, proof.transactional_id)
