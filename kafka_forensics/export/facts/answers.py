"""Facts from the scan's result and the internal topics: replicas, transactions, the controller's history, committed offsets."""

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from kafka_forensics.analysis.transactions import TransactionColumn
from kafka_forensics.evidence.inputs import Inputs, NodeIds, ReplicaPlan
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.export.facts.log import ReplicaReader
from kafka_forensics.export.facts.rows import MAX_ROWS, batch_without_keys, json_text, record_batches, rows_of, text
from kafka_forensics.model.arrow import TIME, dictionary_array, numbers, plain, repeated_dictionary, times
from kafka_forensics.model.changes import Change, change_values
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONTROL_ABORT, CONTROL_COMMIT
from kafka_forensics.model.coordinators import CommittedOffset, GroupLog, OffsetCommit, PendingCommit
from kafka_forensics.model.findings import Finding, worst_first
from kafka_forensics.model.json_objects import Columns, Json, attributes
from kafka_forensics.model.results import Incomplete, PartitionSummary
from kafka_forensics.model.schemas import CHANGES_FACT, FACTS, SNAPSHOT
from kafka_forensics.questions.metadata import event_rows
from kafka_forensics.questions.transactions import (
    ENDED,
    MARKERS,
    KnownTransactions,
    TransactionRow,
    paired_transactions,
)
from kafka_forensics.scanning.witnesses.witnesses import Witnesses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.model.schemas import ArrowArray

_REPLICA: Final[Columns] = {
    **attributes("topic partition", of="partition"),
    "broker": lambda item: str(item.replica.broker),
    **attributes("node_id"),
    **attributes("log_dir directory log_start_offset local_log_start_offset log_end_offset", of="replica"),
    **attributes("high_watermark last_stable_offset recovery_point", of="replica"),
    "leader_epochs": lambda item: _epochs(item.replica.leader_epochs),
    **attributes("segments batches records bytes missing_offsets", of="replica"),
    **attributes("committed aborted open hanging", of="replica.transactions"),
    **attributes("starts recovered_start=log_start_offset recovered_end=log_end_offset checks steps", of="replica.recovery"),
    **attributes("topic_id cleanup_policy is_tiered verdict leader leader_epoch isr replica_assignment", of="partition"),
    **attributes("high_watermark_at_least high_watermark_witness agreement=agreement.kind", of="partition"),
    **attributes("common_end_offset=agreement.common_end_offset", of="partition"),
    "fork_epoch": lambda item: item.partition.agreement.fork_epochs.get(str(item.replica.broker)),
    "reference_broker": lambda item: None if item.replica.reference_broker is None else text(str(item.replica.reference_broker)),
    **attributes("agreement_with_reference read=read.value read_end_offset", of="replica"),
}
_EVENT: Final[Columns] = {
    **attributes("topic partition topic_id offset=event.offset timestamp=event.timestamp_ms event=event.kind"),
    **attributes("leader", of="state"),
    **attributes("leader_epoch"),
    **attributes("partition_epoch isr elr last_known_elr replica_assignment adding_replicas removing_replicas", of="state"),
    **attributes("leader_recovery_state", of="state"),
    **attributes("is_unclean=event.is_unclean previous_leader is_committed=event.is_committed unknown_after=event.unknown_after"),
}


def replica_facts(partitions: Iterable[PartitionSummary], node_ids: NodeIds) -> Iterator[pa.RecordBatch]:
    """Record batches of `replicas`, in the order of a scan."""
    items = (
        SimpleNamespace(partition=partition, replica=replica, node_id=node_ids[replica.broker])
        for partition in partitions
        for replica in partition.replicas
    )
    return record_batches(FACTS["replicas"].schema, rows_of(_REPLICA, items))


def _epochs(epochs: list[tuple[int, int]] | None) -> list[Json] | None:
    return None if epochs is None else [{"leader_epoch": epoch, "start_offset": start} for epoch, start in epochs]


def transaction_facts(reader: ReplicaReader, last_stable_offset: int | None, known: KnownTransactions) -> Iterator[pa.RecordBatch]:
    """Record batches of `transactions` of one replica, with the columns `Fact.file_schema`; the controller's log has none."""
    fact, plan = FACTS["transactions"], reader.plan
    incomplete: list[Incomplete] = []
    parts = (
        () if plan.context.topic == CLUSTER_METADATA_TOPIC else _joined_parts(paired_transactions(plan, incomplete, reader.remote))
    )
    for paired, ended in parts:
        if not paired.size:
            continue
        from_log_only = np.full(paired.shape[1], ended) & ~known.may_describe(paired[TransactionColumn.PRODUCER_ID])
        rows = known.rows(plan.context, paired[:, ~from_log_only], last_stable_offset, ended=ended)
        batches = list(record_batches(fact.file_schema, _transaction_rows(plan, rows)))
        if not batches:
            yield batch_without_keys(fact, _ended_columns(plan, paired))
        elif not from_log_only.any():
            yield from batches
        else:
            columns = [plain(column) for column in _ended_columns(plan, paired[:, from_log_only])]
            batches.insert(0, pa.RecordBatch.from_arrays(columns, schema=fact.file_schema))
            places = np.concatenate([np.flatnonzero(from_log_only), np.flatnonzero(~from_log_only)])
            yield from pa.Table.from_batches(batches).take(numbers(np.argsort(places))).to_batches()
    reader.passed(plan.bytes)
    for unread in incomplete:
        reader.incomplete(unread)


def _joined_parts(parts: "Iterable[tuple[NDArray[np.int64], bool]]") -> "Iterator[tuple[NDArray[np.int64], bool]]":
    """The parts with neighbours of ended transactions joined, up to the rows of a record batch."""
    pending: list[NDArray[np.int64]] = []
    rows = 0
    for paired, ended in parts:
        if pending and not (ended and rows + paired.shape[1] <= MAX_ROWS):
            yield np.concatenate(pending, axis=1), True
            pending, rows = [], 0
        if ended:
            pending.append(paired)
            rows += paired.shape[1]
        else:
            yield paired, False
    if pending:
        yield np.concatenate(pending, axis=1), True


def _transaction_rows(plan: ReplicaPlan, rows: Iterable[TransactionRow]) -> Iterator[tuple[object, ...]]:
    _, *names = FACTS["transactions"].file_schema.names
    return ((plan.log_dir.name, *row) for row in rows_of(attributes(" ".join(names)), rows))


def _ended_columns(plan: ReplicaPlan, paired: "NDArray[np.int64]") -> "list[ArrowArray]":
    """Columns of ended transactions that only the log describes; what it does not say is null."""
    rows = paired.shape[1]
    without_data = paired[TransactionColumn.BATCHES] == 0
    marker = paired[TransactionColumn.MARKER_TYPE]
    unread = (marker != CONTROL_ABORT) & (marker != CONTROL_COMMIT)
    states = np.where(without_data, 3, np.where(unread, 2, marker))
    columns: dict[str, ArrowArray] = {
        "log_dir": repeated_dictionary(text(plan.log_dir.name), rows),
        "state": dictionary_array(states, [ENDED[CONTROL_ABORT], ENDED[CONTROL_COMMIT], "unknown", "empty"]),
        "marker": dictionary_array(marker, [MARKERS[CONTROL_ABORT], MARKERS[CONTROL_COMMIT]], null=unread),
        "coordinator_epoch": numbers(paired[TransactionColumn.COORDINATOR_EPOCH].astype(np.int32), null=unread),
        "holds_last_stable_offset": numbers(np.zeros(rows, bool)),
    }
    schema = FACTS["transactions"].file_schema
    for field in schema:
        if field.name in columns:
            continue
        column = TransactionColumn.__members__.get(field.name.upper())
        if column is None:
            columns[field.name] = pa.nulls(rows, field.type)
        else:
            of_data = TransactionColumn.FIRST_OFFSET <= column <= TransactionColumn.LAST_TIMESTAMP
            null = without_data if of_data else None
            values = paired[column]
            if field.type == TIME:
                columns[field.name] = times(values, null=null)
            else:
                columns[field.name] = numbers(values.astype(field.type.to_pandas_dtype()), null=null)
    return [columns[name] for name in schema.names]


def metadata_facts(witnesses: Witnesses, options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Record batches of `metadata_history`, by topic, partition and offset."""
    rows = () if witnesses.controller is None else event_rows(witnesses.controller, options)
    return record_batches(FACTS["metadata_history"].schema, rows_of(_EVENT, rows))


_BY_GROUP: Final = itemgetter(*map(FACTS["group_offsets"].schema.names.index, ("topic", "partition", "broker", "group")))


def group_facts(inputs: Inputs, witnesses: Witnesses, options: ScanOptions, *, payloads: bool) -> Iterator[pa.RecordBatch]:
    """Record batches of `group_offsets`, by topic, partition, broker and group."""
    rows = sorted(_group_rows(inputs, witnesses, options, payloads=payloads), key=_BY_GROUP)
    return record_batches(FACTS["group_offsets"].schema, rows)


def _group_rows(inputs: Inputs, witnesses: Witnesses, options: ScanOptions, *, payloads: bool) -> Iterator[tuple[object, ...]]:
    logs, node_ids = [] if witnesses.groups is None else witnesses.groups.logs, NodeIds.of(inputs.log_dirs)
    for log in sorted(logs, key=lambda log: (log.partition, str(log.broker))):
        for committed in sorted(log.committed, key=lambda committed: committed.record_offset):
            if fits((committed.topic, committed.partition), options):
                values = *_commit(committed.last, payloads=payloads), committed.in_transaction, None
                place = log.partition, committed.record_offset, committed.unknown_after
                yield (*_group_place(log, committed, node_ids), "committed", *values, *place)
        for pending in sorted(log.pending, key=lambda pending: pending.record_offset):
            if fits((pending.topic, pending.partition), options):
                values = *_commit(pending.commit, payloads=payloads), True, pending.producer_id
                yield (*_group_place(log, pending, node_ids), "pending", *values, log.partition, pending.record_offset, None)


def _group_place(log: GroupLog, offset: CommittedOffset | PendingCommit, node_ids: NodeIds) -> tuple[object, ...]:
    group = log.groups.get(offset.group)
    kind_and_state = ("simple", None) if group is None else (group.kind, group.state)
    return *node_ids.replica(offset.topic, offset.partition, log.broker), offset.group, *kind_and_state


def _commit(commit: OffsetCommit, *, payloads: bool) -> tuple[object, ...]:
    times = commit.commit_timestamp, commit.expire_timestamp
    return commit.offset, commit.leader_epoch, commit.topic_id, *times, commit.metadata if payloads else None


def change_batches(changes: Iterable[Change], node_ids: NodeIds) -> Iterator[pa.RecordBatch]:
    """Changes between snapshots as record batches of the fact `changes`."""
    return record_batches(CHANGES_FACT.schema, (_change_row(change, node_ids) for change in changes))


def _change_row(change: Change, node_ids: NodeIds) -> tuple[object, ...]:
    values = change_values(change)
    values |= {
        "broker": str(change.broker),
        "node_id": node_ids[change.broker],
        "held_by": [str(broker) for broker in change.held_by],
        "evidence": json_text(change.evidence),
    }
    return tuple(values[name] for name in CHANGES_FACT.schema.names)


def between_batches(findings: Iterable[Finding], row: Callable[[Finding], tuple[object, ...]]) -> Iterator[pa.RecordBatch]:
    """Findings between snapshots as record batches of `findings`, each with the newer snapshot; `row` gives a finding's row."""
    rows = ((str(finding.evidence["to_snapshot"]), *row(finding)) for finding in worst_first(findings))
    yield from record_batches(pa.schema([SNAPSHOT, *FACTS["findings"].schema]), rows)
