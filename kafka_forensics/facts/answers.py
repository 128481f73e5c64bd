"""Facts that a scan and the internal topics tell: replicas, transactions, the controller's history, committed offsets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafka_forensics.analysis.internal_topics import Witnesses
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.facts.log import FactReading
from kafka_forensics.facts.rows import json_text, record_batches
from kafka_forensics.model.changes import CHANGE_COLUMNS, Change, change_values
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import NO_LEADER, PartitionEvent, TopicHistory
from kafka_forensics.model.coordinators import GroupLog, OffsetCommit
from kafka_forensics.model.results import Incomplete, PartitionSummary, ReplicaSummary
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.questions.transactions import KnownTransactions, TransactionRow, replica_transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from kafka_forensics.model.findings import Finding


_TRANSACTION = (
    "state",
    "producer_id",
    "producer_epoch",
    "transactional_id",
    "first_offset",
    "last_offset",
    "first_timestamp",
    "last_timestamp",
    "batches",
    "records",
    "marker",
    "marker_offset",
    "marker_timestamp",
    "marker_epoch",
    "coordinator_epoch",
    "coordinator_state",
    "partitions",
    "holds_last_stable_offset",
    "safe_to_abort",
    "reason",
    "command",
)


def replica_facts(partition: PartitionSummary, replica: ReplicaSummary) -> "Iterator[pa.RecordBatch]":
    """The one row of `replicas` about a replica, as `Fact.own` says."""
    counts, recovery, agreement = replica.transactions, replica.recovery, partition.agreement
    epochs = replica.leader_epochs
    foretold: tuple[Any, ...] = (None,) * 5
    if recovery is not None:
        ends = recovery.log_start_offset, recovery.log_end_offset
        foretold = (recovery.starts, *ends, recovery.checks, recovery.steps)
    row = (
        replica.log_dir,
        replica.directory,
        replica.log_start_offset,
        replica.log_end_offset,
        replica.high_watermark,
        replica.last_stable_offset,
        replica.recovery_point,
        None if epochs is None else [{"leader_epoch": epoch, "start_offset": start} for epoch, start in epochs],
        replica.segments,
        replica.batches,
        replica.records,
        replica.bytes,
        replica.missing_offsets,
        counts.committed,
        counts.aborted,
        counts.open,
        counts.hanging,
        *foretold,
        partition.topic_id,
        partition.cleanup_policy,
        partition.verdict,
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.replica_assignment,
        partition.high_watermark_at_least,
        partition.high_watermark_witness,
        agreement.kind,
        agreement.common_end_offset,
        agreement.fork_epochs.get(str(replica.broker)),
        replica.read.value,
        replica.read_end_offset,
    )
    return record_batches(FACTS["replicas"].own, [row])


def transaction_facts(reading: FactReading, last_stable_offset: int | None, known: KnownTransactions) -> "Iterator[pa.RecordBatch]":
    """Record batches of `transactions` of one replica, as `Fact.own` says; the controller's log has none."""
    if reading.plan.context.topic == CLUSTER_METADATA_TOPIC:
        reading.passed(reading.plan.bytes)
        return iter(())
    return record_batches(FACTS["transactions"].own, _transaction_rows(reading, last_stable_offset, known))


def _transaction_rows(reading: FactReading, last_stable_offset: int | None, known: KnownTransactions) -> Iterator[tuple[Any, ...]]:
    incomplete: list[Incomplete] = []
    for row in replica_transactions(reading.plan, last_stable_offset, known, incomplete):
        yield reading.plan.log_dir.name, *_transaction(row)
    reading.passed(reading.plan.bytes)
    for one in incomplete:
        reading.incomplete(one)


def _transaction(row: TransactionRow) -> Iterator[Any]:
    return (getattr(row, name) for name in _TRANSACTION)


def metadata_facts(witnesses: Witnesses, options: ScanOptions) -> "Iterator[pa.RecordBatch]":
    """Record batches of `metadata_history`, by topic, partition and offset."""
    return record_batches(FACTS["metadata_history"].schema, _metadata_rows(witnesses, options))


def _metadata_rows(witnesses: Witnesses, options: ScanOptions) -> Iterator[tuple[Any, ...]]:
    topics = [] if witnesses.controller is None else list(witnesses.controller.topics.values())
    for topic in sorted(topics, key=_topic_order):
        for partition, history in sorted(topic.partitions.items()):
            if fits((topic.topic, partition), options):
                for event in history.events:
                    yield topic.topic, partition, topic.topic_id, *_event(event)


def _topic_order(topic: TopicHistory) -> tuple[str, int, str]:
    return topic.topic, -1 if topic.created_offset is None else topic.created_offset, topic.topic_id


def _event(event: PartitionEvent) -> tuple[Any, ...]:
    state = event.state
    after: tuple[Any, ...] = (None,) * 10
    if event.kind != "deleted":
        after = (
            state.leader,
            state.leader_epoch if event.unknown_after is None else None,
            state.partition_epoch,
            state.isr,
            state.elr,
            state.last_known_elr,
            state.replica_assignment,
            state.adding_replicas,
            state.removing_replicas,
            state.leader_recovery_state,
        )
    previous = None if event.previous_leader == NO_LEADER else event.previous_leader
    return (
        event.offset,
        event.timestamp_ms,
        event.kind,
        *after,
        event.is_unclean,
        previous,
        event.is_committed,
        event.unknown_after,
    )


def group_facts(witnesses: Witnesses, options: ScanOptions, *, payloads: bool) -> "Iterator[pa.RecordBatch]":
    """Record batches of `group_offsets`, by partition of the log, status, group, topic and partition."""
    return record_batches(FACTS["group_offsets"].schema, _group_rows(witnesses, options, payloads=payloads))


def _group_rows(witnesses: Witnesses, options: ScanOptions, *, payloads: bool) -> Iterator[tuple[Any, ...]]:
    for log in (
        []
        if witnesses.groups is None
        else sorted(witnesses.groups.logs, key=lambda group_log: (group_log.partition, str(group_log.broker)))
    ):
        for committed_offset in sorted(log.committed, key=lambda each: (each.group, each.topic, each.partition)):
            if fits((committed_offset.topic, committed_offset.partition), options):
                told = _commit(committed_offset.last, payloads=payloads)
                place = (
                    committed_offset.topic,
                    committed_offset.partition,
                    str(log.broker),
                    committed_offset.group,
                    *_about(log, committed_offset.group),
                )
                rest = (
                    committed_offset.in_transaction,
                    None,
                    log.partition,
                    committed_offset.record_offset,
                    committed_offset.unknown_after,
                )
                yield *place, "committed", *told, *rest
        for commit in sorted(
            log.pending,
            key=lambda pending_commit: (
                pending_commit.group,
                pending_commit.topic,
                pending_commit.partition,
                pending_commit.record_offset,
            ),
        ):
            if fits((commit.topic, commit.partition), options):
                told = _commit(commit.commit, payloads=payloads)
                place = commit.topic, commit.partition, str(log.broker), commit.group, *_about(log, commit.group)
                yield *place, "pending", *told, True, commit.producer_id, log.partition, commit.record_offset, None


def _about(log: GroupLog, group: str) -> tuple[str, str | None]:
    known = log.groups.get(group)
    return ("simple", None) if known is None else (known.kind, known.state)


def _commit(commit: OffsetCommit, *, payloads: bool) -> tuple[Any, ...]:
    return (
        commit.offset,
        commit.leader_epoch,
        commit.topic_id,
        commit.commit_timestamp,
        commit.expire_timestamp,
        commit.metadata if payloads else None,
    )


# What shows between snapshots as plain rows, for every output.


def change_batches(changes: "Iterable[Change]") -> "Iterator[pa.RecordBatch]":
    """The rows as record batches of the fact `changes`."""
    from kafka_forensics.model.schemas import CHANGES_FACT

    return record_batches(CHANGES_FACT.schema, map(_row, changes))


def _row(change: Change) -> tuple[Any, ...]:
    values = change_values(change)
    values |= {
        "broker": str(change.broker),
        "held_by": [str(each) for each in change.held_by],
        "evidence": json_text(change.evidence),
    }
    return tuple(values[name] for name in CHANGE_COLUMNS)


def between_batches(findings: "Iterable[Finding]", row: "Callable[[Finding], tuple[Any, ...]]") -> "Iterator[pa.RecordBatch]":
    """Findings between snapshots as record batches of `findings`, each under the newer snapshot; `row` is what makes one's row."""
    import pyarrow as pa

    from kafka_forensics.model.schemas import FACTS, SNAPSHOT

    schema = FACTS["findings"].schema
    rows = ((str(finding.evidence["to_snapshot"]), *row(finding)) for finding in findings)
    yield from record_batches(pa.schema([SNAPSHOT, *schema]), rows)
