"""Comparing a replica's `.txnindex` and `.snapshot` files with its log while that is merged."""

from typing import TYPE_CHECKING

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica, ReplicaState, expired_open_transactions, snapshot_open
from kafka_forensics.analysis.transactions import IndexCheck, compare_with_snapshot
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.files import ProducerEntry, ProducerSnapshot, TransactionIndex
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.parsers.indexes import parse_producer_snapshot, parse_transaction_index
from kafka_forensics.storage.source import Entry

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import CountEvidence


class SnapshotCheck:
    """Compares each `.snapshot` with the state of the log at its offset, when the merge reaches it, and `.txnindex` files."""

    def __init__(self, plan: ReplicaPlan, inputs: Inputs) -> None:
        self._plan = plan
        self.inputs = inputs
        self._snapshots = {} if plan.context.topic == CLUSTER_METADATA_TOPIC else dict(plan.directory.snapshots)
        self.findings: list[Finding] = []
        self.open_entries: list[ProducerEntry] = []
        """Producers with an open transaction in the newest snapshot so far."""
        self.newest_offset = -1
        """Offset of that snapshot."""
        segments = plan.directory.segments
        self._indexes = {segment.base_offset: segment.transaction_index for segment in segments if segment.transaction_index}
        with_index = (segment for segment in segments if segment.index or segment.time_index or segment.transaction_index)
        self._aborted = IndexCheck(plan.context, {segment.base_offset for segment in with_index}, self._read_index)

    def at(self, offset: int, state: ReplicaState) -> None:
        """Compare the snapshot of this offset, if there is one, with `state`, which is that of the log before it."""
        entry = self._snapshots.pop(offset, None)
        snapshot = None if entry is None else self._read(entry, offset)
        runs = state.producers.runs
        # without the batches right before the snapshot, the state is not known
        if snapshot is not None and (runs.end_offset == offset or self._plan.context.compacted):
            producer_ids = [producer_entry.producer_id for producer_entry in snapshot.entries]
            producers, transactions = state.producers.view(producer_ids), state.transactions.view(producer_ids)
            forgot = state.producers.forgot or state.transactions.forgot
            self.findings += compare_with_snapshot(snapshot, producers, transactions, runs, self._plan.context, forgot=forgot)

    def merged(self, state: ReplicaState) -> None:
        """Call it when a stretch was merged into `state`, the state of the log from its start."""
        self._aborted.drop_listed(state.transactions, state.producers.runs)

    def aborted(self, replica: Replica) -> list[Finding]:
        """Differences between the `.txnindex` files and the log."""
        state = replica.state
        return self._aborted.findings(state.transactions, list(self._indexes), replica.local_log_start_offset, state.producers.runs)

    def _read_index(self, segment: int) -> TransactionIndex | None:
        entry = self._indexes.get(segment)
        return None if entry is None else self.inputs.read(self._plan.log_dir.source, entry, parse_transaction_index)

    def rest(self) -> None:
        """Check the format of the snapshots at whose offsets no segment begins and the log does not end."""
        for offset, entry in sorted(self._snapshots.items()):
            self._read(entry, offset)
        self._snapshots = {}

    def _read(self, entry: Entry, offset: int) -> ProducerSnapshot | None:
        """Parse a snapshot; damage becomes a finding."""
        plan = self._plan
        snapshot = self.inputs.read(plan.log_dir.source, entry, lambda file: parse_producer_snapshot(file, offset))
        if snapshot is None:
            return None
        if offset > self.newest_offset:
            self.newest_offset = offset
            self.open_entries = [producer for producer in snapshot.entries if producer.current_txn_first_offset >= 0]
        if snapshot.damage:
            first = snapshot.damage[0]
            place = plan.context.place(
                entry.name, byte_start=first.position, byte_end=first.position + first.size_in_bytes, offset_end=offset
            )
            earlier = [start for start, _ in plan.directory.snapshots if start < offset] or plan.context.segment_base_offsets[:1]
            evidence = dict(first.detail) | {"places": len(snapshot.damage), "rebuilt_from": earlier[-1] if earlier else 0}
            self.findings.append(finding("PRODUCER_SNAPSHOT_CORRUPT", place, evidence))
        return snapshot


def transaction_findings(plan: ReplicaPlan, replica: Replica, snapshots: SnapshotCheck) -> list[Finding]:
    """Findings about producers, transactions, `.txnindex` and `.snapshot` files of one replica."""
    context, state = replica.context, replica.state
    findings = state.producers.findings(context)
    if context.topic != CLUSTER_METADATA_TOPIC:
        of_transactions = state.transactions.findings(context, state.producers.runs, replica.log_end_offset)
        # the marker of an open transaction may be in what was not read
        findings += [txn for txn in of_transactions if replica.end_is_known or txn.kind != "TXN_OPEN"]
        findings += snapshots.aborted(replica)
        findings += _missing_snapshots(plan, replica)
        replica.forgotten = expired_open_transactions(replica, snapshots.open_entries, snapshots.newest_offset)
        replica.snapshot_open = snapshot_open(snapshots.open_entries)
    return findings + snapshots.findings


def _missing_snapshots(plan: ReplicaPlan, replica: Replica) -> list[Finding]:
    """`PRODUCER_SNAPSHOT_MISSING` if a start on this directory forgets the log's producers, because without any snapshot Kafka
    assumes an upgrade (UnifiedLog.rebuildProducerState); a warning if the copy has snapshots of other partitions."""
    producers = len(replica.state.producers)
    if not replica.context.clean_shutdown or plan.directory.snapshots or not producers:
        return []
    evidence: CountEvidence = {"count": producers}
    if still_open := replica.state.transactions.counts().open:
        evidence["open_transactions"] = still_open
    severity = Severity.WARNING if plan.log_dir.has_snapshots else None
    return [finding("PRODUCER_SNAPSHOT_MISSING", replica.context.place(), evidence, severity=severity)]
