"""What proves records of one replica's log committed, beside its own high watermark: groups' offsets, transactions' markers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.transaction_markers import OFFSET, PRODUCER_EPOCH, PRODUCER_ID, TIMESTAMP, TYPE
from kafka_forensics.analysis.transactions_decided import SKEW_MS, TV2
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_COMMIT
from kafka_forensics.model.transaction_log import Decision, TransactionLog
from kafka_forensics.replication.plans import Witness

if TYPE_CHECKING:
    from kafka_forensics.engine.reader import LogReader

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
    """A coordinator completes a transaction when every partition's leader has its marker from the whole ISR, so that all up to the
    marker is committed. From transaction version 2 on each transaction has its own epoch; before, the marker must be older than a
    later completion of its producer, by more than clocks differ. A leader that is replaced before it answers may leave a marker
    that nobody else has, and the next one is sent another: where logs part nothing tells which of them was answered for."""
    rows = one.state.transactions.last_markers.markers.rows
    if not len(rows):
        return None
    decisions: dict[tuple[int, int], list[Decision]] = {}
    for each in log.decisions:
        decisions.setdefault((each.producer_id, each.producer_epoch), []).append(each)
    listed = (one.context.topic, one.context.partition)
    for row in rows[rows[:, OFFSET].argsort()[::-1]].tolist():
        if row[OFFSET] >= one.log_end_offset:
            continue
        for decision in _completed(decisions.get((row[PRODUCER_ID], row[PRODUCER_EPOCH]), ())):
            assert decision.completed_timestamp is not None
            same = decision.client_transaction_version >= TV2 and decision.commit == (row[TYPE] == CONTROL_COMMIT)
            older = 0 <= row[TIMESTAMP] <= decision.completed_timestamp - SKEW_MS
            if older or (same and listed in decision.partitions):
                return Witness(row[OFFSET] + 1, "transaction_marker", one.broker, decision.transactional_id)
    return None


def _completed(decisions: "list[Decision] | tuple[()]") -> Iterator[Decision]:
    return (one for one in decisions if one.completed_timestamp is not None)
