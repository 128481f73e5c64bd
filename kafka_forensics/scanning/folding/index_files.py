"""A replica's `.txnindex` and `.snapshot` files, read when its log is folded, against what the log says."""

from typing import TYPE_CHECKING

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica, ReplicaState, forgotten_transactions, snapshot_open
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
    """Compares each `.snapshot` with the state of the log up to its offset, as the merge passes there, and `.txnindex` files."""

    def __init__(self, plan: ReplicaPlan, inputs: Inputs) -> None:
        self._plan = plan
        self.inputs = inputs
        self._snapshots = {} if plan.context.topic == CLUSTER_METADATA_TOPIC else dict(plan.directory.snapshots)
        self.findings: list[Finding] = []
        self.open_entries: list[ProducerEntry] = []
        """Producers with an open transaction, by the newest snapshot read so far."""
        self.newest_offset = -1
        """Offset of that snapshot."""
        self._indexes = {
            segment.base_offset: segment.transaction_index for segment in plan.directory.segments if segment.transaction_index
        }
        copied = {
            segment.base_offset
            for segment in plan.directory.segments
            if segment.index or segment.time_index or segment.transaction_index
        }
        self._aborted = IndexCheck(plan.context, copied, self._read_index)

    def at(self, offset: int, state: ReplicaState) -> None:
        """The log before `offset` is folded into `state`: judge the snapshot of that offset, if there is one."""
        entry = self._snapshots.pop(offset, None)
        snapshot = None if entry is None else self._read(entry, offset)
        if snapshot is not None:
            named = [producer_entry.producer_id for producer_entry in snapshot.entries]
            producers, transactions = state.producers.view(named), state.transactions.view(named)
            runs = state.producers.runs
            if runs.end_offset != offset and not self._plan.context.compacted:
                return  # what stands right before it is not here
            forgot = state.producers.forgot or state.transactions.forgot
            self.findings += compare_with_snapshot(snapshot, producers, transactions, runs, self._plan.context, forgot=forgot)

    def merged(self, state: ReplicaState) -> None:
        """A stretch of the log was added to `state`, which begins where the log does."""
        self._aborted.passed(state.transactions, state.producers.runs)

    def aborted(self, replica: Replica) -> list[Finding]:
        """What the `.txnindex` files do not say as the log does."""
        state = replica.state
        return self._aborted.findings(state.transactions, list(self._indexes), replica.local_log_start_offset, state.producers.runs)

    def _read_index(self, segment: int) -> TransactionIndex | None:
        entry = self._indexes.get(segment)
        return None if entry is None else self.inputs.read(self._plan.log_dir.source, entry, parse_transaction_index)

    def rest(self) -> None:
        """Of snapshots at which neither a segment begins nor the log ends, only their own bytes are judged."""
        for offset, entry in sorted(self._snapshots.items()):
            self._read(entry, offset)
        self._snapshots = {}

    def _read(self, entry: Entry, offset: int) -> ProducerSnapshot | None:
        """The snapshot parsed; its damage is a finding at once."""
        plan = self._plan
        snapshot = self.inputs.read(plan.log_dir.source, entry, lambda file: parse_producer_snapshot(file, offset))
        if snapshot is not None and offset > self.newest_offset:
            self.newest_offset = offset
            self.open_entries = [
                producer_entry for producer_entry in snapshot.entries if producer_entry.current_txn_first_offset >= 0
            ]
        if snapshot is not None and snapshot.damage:
            first = snapshot.damage[0]
            place = plan.context.place(
                entry.name, byte_start=first.position, byte_end=first.position + first.size_in_bytes, offset_end=offset
            )
            earlier = [start for start, _ in plan.directory.snapshots if start < offset] or plan.context.segment_base_offsets[:1]
            evidence = dict(first.detail) | {"places": len(snapshot.damage), "rebuilt_from": earlier[-1] if earlier else 0}
            self.findings.append(finding("PRODUCER_SNAPSHOT_CORRUPT", place, evidence))
        return snapshot


def transaction_findings(plan: ReplicaPlan, replica: Replica, snapshots: SnapshotCheck) -> list[Finding]:
    """Producers, transactions, `.txnindex` and `.snapshot` of one replica."""
    context, state = replica.context, replica.state
    runs = state.producers.runs
    findings = state.producers.findings(context)
    if context.topic != CLUSTER_METADATA_TOPIC:
        of_transactions = state.transactions.findings(context, runs, replica.log_end_offset)
        findings += [
            txn for txn in of_transactions if replica.end_is_known or txn.kind != "TXN_OPEN"
        ]  # its marker may be in what was not read
        findings += snapshots.aborted(replica)
        findings += _missing_snapshots(plan, replica)
        replica.forgotten = forgotten_transactions(replica, snapshots.open_entries, snapshots.newest_offset)
        replica.snapshot_open = snapshot_open(snapshots.open_entries)
    return findings + snapshots.findings


def _missing_snapshots(plan: ReplicaPlan, replica: Replica) -> list[Finding]:
    """`PRODUCER_SNAPSHOT_MISSING` where Kafka, started on this directory, would take no snapshot at all for an upgrade and forget
    the log's producers (UnifiedLog.rebuildProducerState); graver where the copy holds other partitions' snapshots."""
    producers = len(replica.state.producers)
    if not replica.context.clean_shutdown or plan.directory.snapshots or not producers:
        return []
    evidence: CountEvidence = {"count": producers}
    if still_open := replica.state.transactions.counts().open:
        evidence["open_transactions"] = still_open
    severity = Severity.WARNING if plan.log_dir.has_snapshots else None
    return [finding("PRODUCER_SNAPSHOT_MISSING", replica.context.place(), evidence, severity=severity)]
