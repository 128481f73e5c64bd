"""Signatures of known incidents, held against a partition once all is known of it."""

from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.incidents import FILES, HISTORIES, RECORDS, TRANSACTIONS, Case, ReplicaFacts, Signature, matches
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.results import Read
from kafka_forensics.rereading.repeated import repeated_batches

if TYPE_CHECKING:
    from kafka_forensics.analysis.replica import Replica
    from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
    from kafka_forensics.folding.index_files import SnapshotCheck
    from kafka_forensics.model.findings import Finding
    from kafka_forensics.rereading.reader import LogReader

SIGNATURES: Final[tuple[Signature, ...]] = (*HISTORIES, *FILES, *RECORDS, *TRANSACTIONS)
"""Every signature."""


def partition_matches(
    plans: "list[ReplicaPlan]",
    replicas: "list[Replica]",
    snapshots: "list[SnapshotCheck]",
    reader: "LogReader",
    findings: "list[Finding]",
) -> "list[Finding]":
    """The incidents that a partition matches, given all its findings; the first three lists go together, one each a replica."""
    every = zip(plans, replicas, snapshots, strict=True)
    facts = [_facts(*one, reader) for one in every if one[1].read is not Read.NONE]
    features = snapshots[0].inputs.features if snapshots else {}
    return matches(Case(findings, facts, features), [signature for signature in SIGNATURES if not signature.whole_scan])


def scan_matches(findings: "list[Finding]", inputs: "Inputs") -> "list[Finding]":
    """The incidents that partitions match by findings made when all partitions were judged."""
    by_partition: dict[tuple[str | None, int | None], list[Finding]] = {}
    for finding in findings:
        by_partition.setdefault((finding.place.topic, finding.place.partition), []).append(finding)
    signatures = [signature for signature in SIGNATURES if signature.whole_scan]
    return [
        found for of_partition in by_partition.values() for found in matches(Case(of_partition, [], inputs.features), signatures)
    ]


def _facts(plan: "ReplicaPlan", replica: "Replica", snapshots: "SnapshotCheck", reader: "LogReader") -> ReplicaFacts:
    directory, log_dir = plan.directory, plan.log_dir
    inputs, context, meta = snapshots.inputs, plan.context, plan.log_dir.meta
    forgotten = {
        entry.producer_id: entry.current_txn_first_offset
        for entry in snapshots.open_entries
        if entry.current_txn_first_offset < replica.log_start_offset
    }
    return ReplicaFacts(
        replica,
        {segment.base_offset: segment.log.size_in_bytes for segment in directory.segments if segment.log is not None},
        sum(file.suffix == "deleted" for file in directory.leftovers),
        has_partition_metadata="partition.metadata" in directory.entries,
        has_snapshots=bool(directory.snapshots),
        meta_version=None if meta is None else meta.version,
        node_id=None if meta is None else meta.node_id,
        cluster_id=None if meta is None else meta.cluster_id,
        directory_id=None if meta is None else meta.directory_id,
        broker_epoch=None if log_dir.clean_shutdown is None else log_dir.clean_shutdown.broker_epoch,
        log_dirs=sum(one.broker == context.broker for one in inputs.log_dirs),
        relatives=sorted(inputs.relatives.get((context.broker, context.topic, context.partition), ())),
        ends_in_old_format=_ends_in_old_format(replica, reader),
        forgotten_transactions=forgotten,
        repeated_batches=repeated_batches(replica, reader),
    )


def _ends_in_old_format(replica: "Replica", reader: "LogReader") -> bool:
    """Whether the last batch has message format 0 or 1; only logs with batches that have no epoch are read again for that."""
    end = replica.log_end_offset
    if not replica.state.epochs.batches_without_epoch or replica.state.unread:
        return False
    last = reader.batches(replica, end - 1, end)
    return bool(last.shape[1]) and int(last[BatchColumn.MAGIC, -1]) < 2
