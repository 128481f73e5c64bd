"""`epochs`: the leader epochs of every replica by its checkpoint, its batches and the controllers' log."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Container
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.epochs import EpochRun
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.transactions_across import DamagedLog, damage_of
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.controller import PartitionControl, PartitionEvent
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import ReadExtent, ScanResult
from kafka_forensics.replication.epochs import end_offset_for
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader

DISAGREEMENTS: Final = frozenset({"stray", "regression", "starts_differ", "not_in_checkpoint", "no_batches"})
"""Values of `EpochRow.status` that need attention."""


class EpochRow(Struct, frozen=True):
    """One leader epoch on one replica. Offsets and times (ms) are None where their source does not have the epoch.

    `status` compares checkpoint and batches: `agrees` · `start_removed` (retention or compaction removed records at its start) ·
    `below_log_start` (it lies wholly below the log start) · `in_remote_storage` (wholly, or its first records) · `at_log_end`,
    `wrote_nothing`, `compacted_away` (legitimate entries without batches) · `no_checkpoint`, `malformed_checkpoint` (refused as a
    whole) · `controller_only` · `continues` (after a batch of another epoch) · `not_read` (its batches may lie in the unread part
    of the log) · and the values of `DISAGREEMENTS`.
    """

    topic: str
    partition: int
    broker: int | str
    log_dir: str
    leader_epoch: int
    status: str
    checkpoint_start_offset: int | None = None
    start_offset: int | None = None
    """Of its first batch."""
    end_offset: int | None = None
    """After its last batch."""
    batches: int | None = 0
    """None if the log could not be read at all."""
    first_timestamp_ms: int | None = None
    """The latest timestamp in its first batch."""
    last_timestamp_ms: int | None = None
    truncation_offset_by_checkpoint: int | None = None
    """Where a follower that requests the end of this epoch truncates; both are None where they are equal."""
    truncation_offset_by_batches: int | None = None
    leader: int | None = None
    """By the controllers' log; it was elected at `elected_ms`."""
    elected_ms: int | None = None
    is_unclean: bool | None = None
    controller: str | None = None
    """`known` or `unknown` to the controllers; None if their log does not cover the epoch, or is not among the copies."""


class Lineages(Struct):
    """Every epoch of every replica, in order, and the findings of the scan about epochs."""

    rows: list[EpochRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    replicas: int = 0
    damaged: list[tuple[str, int, int | str, DamagedLog]] = field(default_factory=list)
    """Logs with unreadable parts: topic, partition, broker, damage."""
    result: ScanResult | None = None


def epoch_lineages(paths: list[str], options: ScanOptions, progress: Progress | None = None) -> Lineages:
    """Read the epochs of every replica that `options` select. Raises UsageError for invalid paths."""
    epoch_lineages = Lineages()

    def on_partition(replicas: list[Replica], _reader: LogReader, _result: PartitionResult) -> None:
        epoch_lineages.replicas += len(replicas)
        for replica in replicas:
            epoch_lineages.rows += replica_rows(replica)
            damage = damage_of(replica)
            if damage is not None:
                epoch_lineages.damaged.append((replica.context.topic, replica.context.partition, replica.broker, damage))

    epoch_lineages.result = scan_inputs(gather(paths, options), options, progress, on_partition)
    epoch_lineages.findings = [
        finding
        for finding in epoch_lineages.result.findings
        if finding.kind in kinds_with(Trait.CONCERNS_EPOCHS) and finding.place.file != "meta.properties"
    ]
    return epoch_lineages


def replica_rows(replica: Replica) -> list[EpochRow]:
    """Every epoch in the checkpoint, the batches or the controllers' log of one replica, by epoch and place in the log."""
    context, epochs = replica.context, _ReplicaEpochs(replica)
    events = [] if context.control is None or context.control.history is None else context.control.history.events
    elections: dict[int, PartitionEvent] = {}
    for event in events:
        if event.kind != "deleted" and event.unknown_after is None:
            elections.setdefault(event.state.leader_epoch, event)
    rows = []
    for epoch in sorted({*epochs.entries, *epochs.runs, *elections}):
        election, entry = elections.get(epoch), epochs.entries.get(epoch)
        is_event = election is not None and election.kind != "snapshot"
        for run in epochs.runs.get(epoch, [None]):
            status = epochs.status(entry, run)
            by_checkpoint, by_batches = epochs.truncation_offsets(epoch, run, status)
            row = EpochRow(
                context.topic,
                context.partition,
                context.broker,
                context.log_dir,
                epoch,
                status,
                None if entry is None else entry.start_offset,
                batches=None if replica.read is ReadExtent.NONE else 0,
                truncation_offset_by_checkpoint=by_checkpoint,
                truncation_offset_by_batches=by_batches,
                leader=None if election is None else election.state.leader,
                elected_ms=election.timestamp_ms if election is not None and is_event else None,
                is_unclean=election.is_unclean if election is not None and is_event else None,
                controller=_controller_knows(context.control, epoch, elections),
            )
            if run is not None:
                row = replace(
                    row,
                    start_offset=run.start_offset,
                    end_offset=run.end_offset,
                    batches=run.batches,
                    first_timestamp_ms=None if run.first_timestamp < 0 else run.first_timestamp,
                    last_timestamp_ms=None if run.last_timestamp < 0 else run.last_timestamp,
                )
            rows.append(row)
    return rows


class _ReplicaEpochs:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        epochs, entries = replica.state.epochs, replica.context.epoch_checkpoint
        self._checkpoint = None if entries is None else sorted(entries)
        self.entries = {entry.leader_epoch: entry for entry in self._checkpoint or []}
        self.runs: dict[int, list[EpochRun | None]] = {}
        for run in epochs.runs:
            self.runs.setdefault(run.leader_epoch, []).append(run)
        self._first = epochs.runs[0] if epochs.runs else None
        self._contradicted_runs = {id(run) for run, _ in epochs.contradicted_runs(self._checkpoint, replica.context.control)}
        self._regressions = {id(run) for run, _ in epochs.regressions()}
        self._starts = Counter(entry.start_offset for entry in self._checkpoint or [])

    def status(self, entry: EpochEntry | None, run: EpochRun | None) -> str:
        """The status of an epoch with this checkpoint entry and run of batches, see `EpochRow`."""
        if run is None:
            return "controller_only" if entry is None else self._without_batches(entry)
        if id(run) in self._contradicted_runs:
            return "stray"
        if id(run) in self._regressions:
            return "regression"
        if self.runs[run.leader_epoch][0] is not run:
            return "continues"
        if self._checkpoint is None:
            return "no_checkpoint" if self._replica.context.leader_epochs is None else "malformed_checkpoint"
        log_start = self._replica.log_start_offset
        if entry is None:
            return "below_log_start" if run.end_offset <= log_start else "not_in_checkpoint"
        if entry.start_offset == run.start_offset:
            return "agrees"
        if entry.start_offset > run.start_offset:
            return "start_removed" if entry.start_offset <= log_start else "starts_differ"
        if entry.start_offset < run.start_offset == self._replica.local_log_start_offset and self._replica.is_tiered:
            return "in_remote_storage"
        if self._replica.state.unread:
            return "not_read"
        removed = self._replica.context.compacted or run.start_offset <= log_start or run is self._first
        return "start_removed" if removed else "starts_differ"

    def _without_batches(self, entry: EpochEntry) -> str:
        if self._replica.state.unread:
            return "not_read"
        if entry.start_offset >= self._replica.log_end_offset:
            return "at_log_end"
        if self._starts[entry.start_offset] > 1:
            return "wrote_nothing"
        following = self._around(self._checkpoint or [], entry.leader_epoch)[1:]
        if following and following[0].start_offset <= self._replica.log_start_offset:
            return "below_log_start"
        if self._replica.is_tiered and entry.start_offset < self._replica.local_log_start_offset:
            return "in_remote_storage"
        return "compacted_away" if self._replica.context.compacted else "no_batches"

    def truncation_offsets(self, epoch: int, run: EpochRun | None, status: str) -> tuple[int | None, int | None]:
        """Where a follower that requests the end of `epoch` truncates, by the checkpoint and by the batches, if these differ.

        Below the log start there is nothing to truncate.
        """
        is_compacted = self._replica.context.compacted and status not in DISAGREEMENTS
        is_of_other_row = (run is None and status != "no_batches") or status == "continues"
        if self._checkpoint is None or is_compacted or is_of_other_row or self._replica.state.unread:
            return None, None
        end = self._replica.log_end_offset
        entries_around = (self._around(entries, epoch) for entries in (self._checkpoint, self._replica.epochs))
        by_file, by_batches = (end_offset_for(entries, epoch, end).end_offset for entries in entries_around)
        is_deleted = min(by_file, by_batches) >= 0 and max(by_file, by_batches) <= self._replica.log_start_offset
        return (None, None) if by_file == by_batches or is_deleted else (by_file, by_batches)

    @staticmethod
    def _around(entries: list[EpochEntry], epoch: int) -> list[EpochEntry]:
        """The last of ascending `entries` not above `epoch`, and the next one: the end of the epoch depends on no others."""
        behind = bisect_right(entries, epoch, key=lambda entry: entry.leader_epoch)
        return entries[max(behind - 1, 0) : behind + 1]


def _controller_knows(control: PartitionControl | None, epoch: int, elections: Container[int]) -> str | None:
    """`known` or `unknown`; None where the controllers' log does not show it."""
    if epoch in elections:
        return "known"
    history = None if control is None else control.history
    if control is None or history is None or not history.events:
        return None
    is_covered = not history.dropped_events and control.unknown_after is None and history.events[0].state.leader_epoch <= epoch
    return "unknown" if is_covered else None
