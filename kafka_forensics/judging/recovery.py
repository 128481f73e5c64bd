"""Files of a replica read for what a start on this copy would make of it; only what its folded log does not tell."""

from dataclasses import replace
from typing import Final

from kafka_forensics.analysis.replica import RecoveryFold, Replica
from kafka_forensics.analysis.replicas import (
    Outlook,
    add_recovery,
    recovery_findings,
    regresses,
    segment_facts,
    summarised,
    swap_finding,
)
from kafka_forensics.analysis.segments import ContinuityFold, Run
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, typed_path
from kafka_forensics.judging.producer_replay import producer_faults
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.indexes import parse_transaction_index
from kafka_forensics.parsers.log import SegmentReader, believed_to, last_entry, read_next_offset
from kafka_forensics.parsers.log_dir import FileKind, PartitionDirectory, SegmentFiles
from kafka_forensics.replication.recovery import foretell, swap_steps
from kafka_forensics.replication.recovery_facts import (
    EPOCHS_FILE,
    OFFSET_REGRESSION,
    LogFacts,
    SegmentFacts,
    SnapshotFacts,
    Stop,
)
from kafka_forensics.storage.source import ByteFile, Entry, EntryKind

INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default of `index.interval.bytes`."""


def recovery_judged(
    plan: ReplicaPlan, replica: Replica, inputs: Inputs, findings: list[Finding], incomplete: list[Incomplete]
) -> list[Finding]:
    """Findings about what a start on this copy would do; adds to the evidence of the `findings` of damage it would cut at.

    What cannot be read is added to `incomplete`, and nothing is foretold then.
    """
    if not plan.log_dir.found.entries or replica.state.unread:
        return []  # a directory by itself does not say how its broker ended
    corrupt = {
        finding.place.file
        for finding in findings
        if finding.kind == "PRODUCER_SNAPSHOT_CORRUPT" and finding.place.byte_start is not None
    }
    loader = _Loader(plan, replica, inputs, corrupt)
    try:
        facts = loader.facts()
        held = replica.state.transactions.counts().total
        kinds = {finding.kind for finding in findings}
        facts = replace(facts, faults=producer_faults(plan, facts, inputs, kinds, transactions=held))
    except SourceError as error:
        incomplete.append(Incomplete(typed_path(plan.log_dir.source, error.path), error.reason))
        return []
    forecast = foretell(facts)
    damaged = bool(replica.state.recovery.ends)
    unclean = foretell(replace(facts, clean_shutdown=False)) if facts.clean_shutdown and damaged else forecast
    outlook = Outlook(facts, forecast, unclean)
    replica.recovery = summarised(forecast)
    add_recovery(findings, replica, outlook)
    found = recovery_findings(replica, outlook)
    if any(name.endswith((".swap", ".cleaned")) for name in facts.files):
        found.append(swap_finding(replica, facts, swap_steps(facts)[0], loader.swapped))
    return found


class _Loader:
    """Gathers the facts of one replica."""

    def __init__(self, plan: ReplicaPlan, replica: Replica, inputs: Inputs, corrupt: set[str | None]) -> None:
        self._plan = plan
        self._replica = replica
        self._inputs = inputs
        self._corrupt = corrupt
        self._leftovers = frozenset(file.entry.name for file in plan.directory.leftovers)
        self.swapped: dict[int, list[Run]] = {}
        """Offsets in the `.swap` files, by base offset."""

    def facts(self) -> LogFacts:
        """Everything the loader would look at. Raises SourceError."""
        directory, context = self._plan.directory, self._replica.context
        logs = [segment for segment in directory.segments if segment.log is not None]
        kraft = context.topic == CLUSTER_METADATA_TOPIC
        swaps = [file for file in directory.leftovers if file.kind is FileKind.LOG and file.suffix == "swap"]
        return LogFacts(
            segments=tuple(self._segment(segment, last=segment is logs[-1]) for segment in logs),
            end_offset=self._replica.log_end_offset,
            clean_shutdown=context.clean_shutdown and not kraft,
            recovery_point=0 if kraft else context.recovery_point,
            log_start=0 if kraft else context.log_start_checkpoint,
            high_watermark=context.high_watermark,
            swaps=tuple(self._swap(file.entry, file.base_offset or 0) for file in swaps),
            files=tuple(sorted(_names(directory))),
            snapshots=tuple(
                SnapshotFacts(offset, f"{directory.name}/{entry.name}" not in self._corrupt)
                for offset, entry in directory.snapshots
            ),
            epochs=self._epochs(kraft=kraft),
            is_metadata=kraft,
            unreadable=() if kraft else tuple(self._unreadable()),
        )

    def _epochs(self, *, kraft: bool) -> tuple[EpochEntry, ...]:
        """Leader epochs by the checkpoint; of the controller's log, which is always walked, those of its batches as well."""
        epochs = self._replica.context.leader_epochs
        entries = [] if epochs is None else epochs.entries
        return (*entries, *(self._replica.epochs if kraft else ()))

    def _unreadable(self) -> list[str]:
        """Checkpoint files that break their format."""
        names = [name for name, file in self._plan.log_dir.checkpoints.items() if file.damage]
        epochs = self._replica.context.leader_epochs
        return [*names, EPOCHS_FILE] if epochs is not None and epochs.damage else names

    def _segment(self, segment: SegmentFiles, *, last: bool) -> SegmentFacts:
        """A live segment; files are opened only where the fold saw something odd in it, and for a `.txnindex`."""
        replica, base_offset = self._replica, segment.base_offset
        assert segment.log is not None
        totals = replica.state.framing.by_segment.get(base_offset)
        next_offset: int | None = base_offset
        if totals is not None:
            next_offset = replica.written_end(base_offset, totals.last_offset + 1)
        odd = regresses(replica, base_offset)
        if last and segment.index is not None:
            bad = any(entry.file_kind == "index" and entry.segment == base_offset for entry in replica.state.bad_entries)
            if bad or odd or base_offset in replica.state.recovery.ends:
                next_offset = self._next_offset(segment.log, segment.index, base_offset)
        return segment_facts(
            replica,
            base_offset,
            segment.log.size_in_bytes,
            next_offset=next_offset,
            regression=self._regression(segment.log, base_offset) if odd else None,
            has_index=segment.index is not None,
            has_time_index=segment.time_index is not None,
            transaction_index=self._transaction_index(segment),
        )

    def _next_offset(self, log: Entry, index: Entry, base_offset: int) -> int | None:
        source = self._plan.log_dir.source
        with source.open(index.path) as file:
            entry = last_entry(file, base_offset)
        with source.open(log.path) as file:
            return read_next_offset(file, base_offset, entry)

    def _transaction_index(self, segment: SegmentFiles) -> str:
        """What opening the `.txnindex` gives: its entries' versions and last offsets count (TransactionIndex.sanityCheck)."""
        if segment.transaction_index is None:
            return "sound"
        parsed = self._inputs.read(self._plan.log_dir.source, segment.transaction_index, parse_transaction_index)
        entries = [] if parsed is None else parsed.entries
        if any(txn.version >> 8 for txn in entries):
            return "version"
        return "below_base" if any(txn.last_offset < segment.base_offset for txn in entries) else "sound"

    def _regression(self, log: Entry, base_offset: int) -> Stop | None:
        """Where building the segment's indexes anew meets an offset that is not above its last entry: there it throws."""
        interval = INDEX_INTERVAL_BYTES
        if self._replica.context.control is not None:
            given = self._replica.context.control.configs.get("index.interval.bytes", "")
            interval = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else interval
        with self._plan.log_dir.source.open(log.path) as file:
            position = index_regression(file, base_offset, interval)
        return None if position is None else Stop(position, base_offset, OFFSET_REGRESSION)

    def _swap(self, entry: Entry, base_offset: int) -> SegmentFacts:
        """A `.log.swap`, folded by itself."""
        walk, offsets = RecoveryFold(base_offset), ContinuityFold(base_offset, compacted=self._replica.context.compacted)
        end_offset = base_offset
        with self._plan.log_dir.source.open(entry.path) as file:
            for chunk in SegmentReader(file, next_base_offset=believed_to(base_offset)).chunks():
                walk.step(chunk)
                offsets.step(chunk.columns, chunk.damage)
                if chunk.rows:
                    end_offset = int(chunk.columns[BatchColumn.LAST_OFFSET, -1]) + 1
        self.swapped[base_offset] = offsets.runs
        stop = walk.stop(base_offset)
        return SegmentFacts(
            base_offset,
            entry.size_in_bytes,
            end_offset,
            end_offset,
            stop,
            has_index=f"{base_offset:020d}.index.swap" in self._leftovers,
            has_time_index=f"{base_offset:020d}.timeindex.swap" in self._leftovers,
        )


def _names(directory: PartitionDirectory) -> list[str]:
    """Names of all regular files of a partition directory."""
    names = [file.entry.name for file in directory.leftovers] + list(directory.entries)
    names += [entry.name for _, entry in directory.snapshots] + [entry.name for _, _, entry in directory.metadata_snapshots]
    names += [entry.name for entry in directory.unknown if entry.kind is EntryKind.FILE]
    for segment in directory.segments:
        files = (segment.log, segment.index, segment.time_index, segment.transaction_index)
        names += [entry.name for entry in files if entry is not None]
    return names


def index_regression(file: ByteFile, base_offset: int, interval: int) -> int | None:
    """Byte position of the batch at which rebuilding the indexes of a segment throws InvalidOffsetException, None if it does not.

    An entry is due when more than `interval` bytes lie between a batch and the last entry. Raises SourceError.
    """
    last_indexed, last_offset, entries = 0, base_offset, 0
    newest, newest_offset = -1, -1
    time_stamp, time_offset, times = -1, base_offset, 0
    for chunk in SegmentReader(file, next_base_offset=believed_to(base_offset)).chunks():
        columns = chunk.columns
        facts = (columns[column].tolist() for column in _INDEXED)
        for position, last, stamp, crc, computed in zip(*facts, strict=True):
            if crc != computed:
                return None
            if stamp > newest:
                newest, newest_offset = stamp, last
            if position - last_indexed <= interval:
                continue
            if entries and last <= last_offset:
                return int(position)
            last_offset, entries, last_indexed = last, entries + 1, position
            if times and newest_offset < time_offset:
                return int(position)
            if newest > time_stamp:
                time_stamp, time_offset, times = newest, newest_offset, times + 1
        if chunk.damage:
            return None
    return None


_INDEXED: Final = (
    BatchColumn.POSITION,
    BatchColumn.LAST_OFFSET,
    BatchColumn.MAX_TIMESTAMP,
    BatchColumn.CRC,
    BatchColumn.CRC_COMPUTED,
)
