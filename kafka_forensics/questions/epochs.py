"""`epochs`: leader epochs of every replica as its checkpoint, its batches and the controller's log tell them, epoch by epoch."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.analysis.epochs import EpochRun
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.transactions_across import DamagedLog, damage_of
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.controller import PartitionControl, PartitionEvent
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Read, ScanResult
from kafka_forensics.replication.epochs import end_offset_for
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader

DISAGREEMENTS: Final = frozenset({"stray", "regression", "starts_differ", "not_in_checkpoint", "no_batches"})
"""Values of `EpochRow.status` that need a look."""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One leader epoch on one replica. Offsets and times (ms) are None where the witness does not know the epoch.

    `status` says how checkpoint and batches agree: `agrees` · `start_removed` (records at its start are gone by retention or
    compaction) · `below_log_start` (all of it is) · `in_remote_storage` (all of it, or its first records) · `at_log_end`,
    `wrote_nothing`, `compacted_away` (an entry without batches, as it may be) · `no_checkpoint`, `malformed_checkpoint` (refused
    whole) · `controller_only` · `continues` (behind a batch of another epoch) · `not_read` (its batches may lie in what could not
    be read of the log) · and those in `DISAGREEMENTS`.
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
    """Behind its last batch."""
    batches: int | None = 0
    """None if nothing of the log could be read."""
    first_timestamp_ms: int | None = None
    """The latest in its first batch."""
    last_timestamp_ms: int | None = None
    truncation_offset_by_checkpoint: int | None = None
    """Where a follower cuts that asks for this epoch; both are given only where they differ."""
    truncation_offset_by_batches: int | None = None
    leader: int | None = None
    """The controller's; it began to lead at `elected_ms`."""
    elected_ms: int | None = None
    is_unclean: bool | None = None
    controller: str | None = None
    """`known` or `unknown` to the controller; None: its log does not reach there, or is not among the copies."""


@dataclass(slots=True)
class Lineages:
    """Every epoch of every replica, in order, and what the scan that read them found about epochs."""

    rows: list[EpochRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    replicas: int = 0
    damaged: list[tuple[str, int, int | str, DamagedLog]] = field(default_factory=list)
    """Logs of which some cannot be read: topic, partition, broker."""
    result: ScanResult | None = None


def lineages(paths: list[str], options: ScanOptions, progress: Progress | None = None) -> Lineages:
    """Read the epochs of every replica that `options` leave. Raises UsageError for paths that make no sense."""
    lineages = Lineages()

    def look(replicas: list[Replica], _reader: LogReader, _result: PartitionResult) -> None:
        lineages.replicas += len(replicas)
        for replica in replicas:
            lineages.rows += replica_rows(replica)
            damage = damage_of(replica)
            if damage is not None:
                lineages.damaged.append((replica.context.topic, replica.context.partition, replica.broker, damage))

    lineages.result = scan_inputs(gather(paths, options), options, progress, look)
    of_epochs = (finding for finding in lineages.result.findings if finding.kind in kinds_with(Trait.CONCERNS_EPOCHS))
    lineages.findings = [finding for finding in of_epochs if finding.place.file != "meta.properties"]
    return lineages


def replica_rows(replica: Replica) -> list[EpochRow]:
    """Every epoch that the checkpoint, the batches or the controller's log has for one replica, by epoch and place in the log."""
    context, testimony = replica.context, _Testimony(replica)
    elections = _elections(context.control)
    rows = []
    for epoch in sorted({*testimony.entries, *testimony.runs, *elections}):
        event, entry = elections.get(epoch), testimony.entries.get(epoch)
        for run in testimony.runs.get(epoch, [None]):
            status = testimony.status(entry, run)
            rows.append(
                EpochRow(
                    context.topic,
                    context.partition,
                    context.broker,
                    context.log_dir,
                    epoch,
                    status,
                    None if entry is None else entry.start_offset,
                    *_of_run(run, replica.read),
                    *testimony.cuts(epoch, run, status),
                    None if event is None else event.state.leader,
                    None if event is None or event.kind == "snapshot" else event.timestamp_ms,
                    None if event is None or event.kind == "snapshot" else event.is_unclean,
                    _known(context.control, epoch, known=event is not None),
                )
            )
    return rows


def _of_run(run: EpochRun | None, read: Read) -> tuple[int | None, int | None, int | None, int | None, int | None]:
    """Start, end, batches, first and last timestamp."""
    if run is None:
        return None, None, None if read is Read.NONE else 0, None, None
    first, last = (None if time < 0 else time for time in (run.first_timestamp, run.last_timestamp))
    return run.start_offset, run.end_offset, run.batches, first, last


class _Testimony:
    """What one replica's checkpoint and batches say, ready to be asked epoch by epoch."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        epochs, entries = replica.state.epochs, replica.context.epoch_checkpoint
        self._checkpoint = None if entries is None else sorted(entries)
        self.entries = {entry.leader_epoch: entry for entry in self._checkpoint or []}
        self.runs: dict[int, list[EpochRun | None]] = {}
        for run in epochs.runs:
            self.runs.setdefault(run.leader_epoch, []).append(run)
        self._first = epochs.runs[0] if epochs.runs else None
        self._strays = {id(run) for run, _ in epochs.strays(self._checkpoint, replica.context.control)}
        self._regressions = {id(run) for run, _ in epochs.regressions()}
        self._starts = Counter(entry.start_offset for entry in self._checkpoint or [])

    def status(self, entry: EpochEntry | None, run: EpochRun | None) -> str:
        """How checkpoint entry and run agree, see `EpochRow`."""
        if run is None:
            return "controller_only" if entry is None else self._without_batches(entry)
        if id(run) in self._strays:
            return "stray"
        if id(run) in self._regressions:
            return "regression"
        if self.runs[run.leader_epoch][0] is not run:
            return "continues"
        if self._checkpoint is None:
            return "no_checkpoint" if self._replica.context.leader_epochs is None else "malformed_checkpoint"
        if entry is None:
            return "below_log_start" if run.end_offset <= self._replica.log_start_offset else "not_in_checkpoint"
        return self._compared(entry, run)

    def _compared(self, entry: EpochEntry, run: EpochRun) -> str:
        log_start = self._replica.log_start_offset
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

    def cuts(self, epoch: int, run: EpochRun | None, status: str) -> tuple[int | None, int | None]:
        """Where a follower cuts that asks for `epoch`, by the checkpoint and by the batches, if that is not the same; below the log
        start there is nothing to cut."""
        harmless = self._replica.context.compacted and status not in DISAGREEMENTS
        elsewhere = (run is None and status != "no_batches") or status == "continues"
        if self._checkpoint is None or harmless or elsewhere or self._replica.state.unread:
            return None, None
        end = self._replica.log_end_offset
        both = (self._around(entries, epoch) for entries in (self._checkpoint, self._replica.epochs))
        by_file, by_batches = (end_offset_for(entries, epoch, end).end_offset for entries in both)
        deleted = min(by_file, by_batches) >= 0 and max(by_file, by_batches) <= self._replica.log_start_offset
        return (None, None) if by_file == by_batches or deleted else (by_file, by_batches)

    @staticmethod
    def _around(entries: list[EpochEntry], epoch: int) -> list[EpochEntry]:
        """The last of ascending `entries` that is not above `epoch` and the one behind it: all that its end depends on."""
        behind = bisect_right(entries, epoch, key=lambda entry: entry.leader_epoch)
        return entries[max(behind - 1, 0) : behind + 1]


def _elections(control: PartitionControl | None) -> dict[int, PartitionEvent]:
    """Leader epoch → the first event that tells of it, where the counted epoch is sure."""
    elections: dict[int, PartitionEvent] = {}
    for event in _events(control):
        if event.kind != "deleted" and event.unknown_after is None:
            elections.setdefault(event.state.leader_epoch, event)
    return elections


def _events(control: PartitionControl | None) -> Iterator[PartitionEvent]:
    if control is not None and control.history is not None:
        yield from control.history.events


def _known(control: PartitionControl | None, epoch: int, *, known: bool) -> str | None:
    """Whether the controller knows the epoch; None where its log does not tell."""
    if known:
        return "known"
    events = list(_events(control))
    if not events or control is None or control.history is None:
        return None
    certain = not control.history.dropped_events and control.unknown_after is None and events[0].state.leader_epoch <= epoch
    return "unknown" if certain else None
