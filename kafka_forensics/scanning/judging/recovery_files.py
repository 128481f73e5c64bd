"""Files of a replica read for what a start on this copy would make of it; only what its folded log does not tell."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.replica import RecoveryFold, Replica
from kafka_forensics.analysis.replicas import (
    HeldAside,
    LoneIndex,
    Outlook,
    recovery_findings,
    regresses,
    summarised,
    swap_finding,
    with_lone_index_files,
    with_offsets_held_aside,
    with_unclean_restart,
)
from kafka_forensics.analysis.segments import ContinuityFold, Run
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import CHECKPOINTS, Inputs, LogDir, ReplicaPlan, typed_path
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONTROL_ABORT, CONTROL_COMMIT, CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.checkpoints import parse_partition_metadata
from kafka_forensics.parsers.indexes import (
    parse_offset_index,
    parse_producer_snapshot,
    parse_time_index,
    parse_transaction_index,
)
from kafka_forensics.parsers.log import (
    MAX_BATCH_BYTES,
    SegmentReader,
    decode_batch,
    last_entry,
    parse_control_record,
    read_batch,
    read_next_offset,
)
from kafka_forensics.parsers.log_dir import FileKind, PartitionDirectory, SegmentFiles, max_plausible_offset
from kafka_forensics.replication.recovery import (
    OFFSET_REGRESSION,
    LogFacts,
    Marker,
    ProducerReplay,
    ReplayedBatch,
    SegmentFacts,
    SnapshotFacts,
    Stop,
    foretell,
    replayed_from,
    swap_steps,
)
from kafka_forensics.replication.small_files import ABSENT, damage_name, is_movable
from kafka_forensics.scanning.judging.environment import log_dir_damage, partition_damage
from kafka_forensics.storage.source import ByteFile, Entry, EntryKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.replication.recovery import ReplayFault


# The part of a log whose producers a start would replay, read for what would end the start there.


MAX_REPLAYED_BYTES: Final = 64 << 20
"""Of more than this, only logs in which something of producers, transactions or offsets was found are read once more."""
_SUSPECT: Final = ("TXN_", "PRODUCER_", "OFFSET_", "RECORD_", "BATCH_")
"""How kinds of findings begin that make a long log worth another reading."""


def producer_faults(
    plan: "ReplicaPlan", facts: "LogFacts", inputs: "Inputs", kinds: set[str], *, transactions: int
) -> "tuple[ReplayFault, ...]":
    """The first fault that a start after a crash would meet, or none; nothing is read where there is nothing to replay.

    `kinds` are those of the replica's findings, `transactions` how many its log holds. Raises SourceError.
    """
    suspect = any(kind.startswith(_SUSPECT) for kind in kinds)
    if not suspect and not transactions:
        return ()
    first = replayed_from(facts)
    logs = [log for log in plan.directory.logs() if log.reaches(first)]
    size = sum(log.entry.size_in_bytes for log in logs)
    worth_it = suspect or size <= MAX_REPLAYED_BYTES
    if not logs or not worth_it or first >= facts.end_offset or _has_it_in_a_snapshot(facts):
        return ()
    replay = ProducerReplay(_open_producers(plan, inputs, first))
    for log in logs:
        replay.begin(log.base_offset)
        with plan.log_dir.source.open(log.entry.path) as file:
            for batch in _batches(file, first):
                if batch is None:
                    return ()
                if (fault := replay.step(batch)) is not None:
                    return (fault,)
    return ()


def _has_it_in_a_snapshot(facts: "LogFacts") -> bool:
    """Whether the broker was stopped cleanly and wrote down its producers at the log's end."""
    return facts.clean_shutdown and any(snapshot.sound and snapshot.offset == facts.end_offset for snapshot in facts.snapshots)


def _open_producers(plan: "ReplicaPlan", inputs: "Inputs", offset: int) -> set[int]:
    """Producers with an open transaction by the snapshot of that offset, none if there is no such."""
    entry = dict(plan.directory.snapshots).get(offset)
    parsed = None if entry is None else inputs.read(plan.log_dir.source, entry, lambda file: parse_producer_snapshot(file, offset))
    return (
        set()
        if parsed is None
        else {producer_entry.producer_id for producer_entry in parsed.entries if producer_entry.current_txn_first_offset >= 0}
    )


def _batches(file: "ByteFile", first: int) -> "Iterator[ReplayedBatch | None]":
    """Batches of producers from offset `first` on; None last where the walk ends at damage."""
    for chunk in SegmentReader(file).chunks():
        columns = chunk.columns
        good = has_right_crc(columns)
        stop = min([damage.position for damage in chunk.damage] + columns[BatchColumn.POSITION, ~good].tolist(), default=None)
        wanted = (columns[BatchColumn.PRODUCER_ID] >= 0) & (columns[BatchColumn.MAGIC] >= 2)
        wanted &= columns[BatchColumn.LAST_OFFSET] >= first
        if stop is not None:
            wanted &= columns[BatchColumn.POSITION] < stop
        for row in np.flatnonzero(wanted).tolist():
            yield _batch(file, columns[:, row])
        if stop is not None:
            yield None


def _batch(file: "ByteFile", column: "NDArray[np.int64]") -> ReplayedBatch:
    attributes = int(column[BatchColumn.ATTRIBUTES])
    return ReplayedBatch(
        int(column[BatchColumn.POSITION]),
        int(column[BatchColumn.BASE_OFFSET]),
        int(column[BatchColumn.PRODUCER_ID]),
        bool(attributes & TRANSACTIONAL_MASK),
        _marker(file, column) if attributes & CONTROL_MASK else None,
    )


def _marker(file: "ByteFile", column: "NDArray[np.int64]") -> Marker:
    """What a control batch says; opened only where its columns do not tell."""
    kind = {CONTROL_ABORT: Marker.ABORT, CONTROL_COMMIT: Marker.COMMIT}.get(int(column[BatchColumn.CONTROL_RECORD_TYPE]))
    if kind is not None and column[BatchColumn.COORDINATOR_EPOCH] >= 0:
        return kind
    position, size = int(column[BatchColumn.POSITION]), int(column[BatchColumn.SIZE_IN_BYTES])
    batch = decode_batch(read_batch(file, position, min(size, MAX_BATCH_BYTES)), position=position)
    record = next(batch.iter_records(), None)
    if record is None:
        return Marker.INVALID if batch.problems else Marker.EMPTY
    control_record = parse_control_record(record.key, record.value)
    return Marker.INVALID if kind is None or control_record.problem is not None else kind


INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default of `index.interval.bytes`."""


def with_recovery(
    plan: ReplicaPlan, replica: Replica, inputs: Inputs, findings: list[Finding], incomplete: list[Incomplete]
) -> list[Finding]:
    """`findings` with those about what a start on this copy would do; the evidence of damage that it would cut at says so.

    What cannot be read is added to `incomplete`, and nothing is foretold then.
    """
    if not plan.log_dir.found.entries or replica.state.unread:
        return findings  # a directory by itself does not say how its broker ended
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
        if faults := producer_faults(plan, facts, inputs, kinds, transactions=held):
            facts = replace(facts, faults=faults)
    except SourceError as error:
        incomplete.append(not_read(plan.log_dir.source, error))
        return findings
    forecast = foretell(facts)
    replica.recovery = replica.recovery_once_mended = summarised(forecast)
    if facts.unreadable:
        facts = replace(facts, unreadable=tuple((file, ABSENT) for file, _ in facts.unreadable if is_movable(file)))
        forecast = foretell(facts)
        replica.recovery_once_mended = summarised(forecast)
    damaged = bool(replica.state.recovery.ends)
    unclean = foretell(replace(facts, clean_shutdown=False)) if facts.clean_shutdown and damaged else forecast
    outlook = Outlook(facts, forecast, unclean)
    judged = with_unclean_restart(findings, replica, outlook) + recovery_findings(replica, outlook)
    if any(name.endswith((".swap", ".cleaned")) for name in facts.files):
        judged.append(swap_finding(replica, facts, swap_steps(facts)[0], loader.swapped))
    return judged


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
        logs = directory.logs()
        kraft = context.topic == CLUSTER_METADATA_TOPIC
        swaps = [file for file in directory.leftovers if file.kind is FileKind.LOG and file.suffix == "swap"]
        return LogFacts(
            segments=tuple(self._segment(log.segment, last=log.next_base_offset is None) for log in logs),
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
            is_tiered=self._replica.is_tiered,
            is_metadata=kraft,
            unreadable=tuple(self._unreadable(kraft=kraft)),
        )

    def _epochs(self, *, kraft: bool) -> tuple[EpochEntry, ...]:
        """Leader epochs by the checkpoint; of the controller's log, which is always walked, those of its batches as well."""
        epochs = self._replica.context.leader_epochs
        entries = [] if epochs is None else epochs.entries
        return (*entries, *(self._replica.epochs if kraft else ()))

    def _unreadable(self, *, kraft: bool) -> Iterator[tuple[str, str]]:
        """Small files that break their format, with the kind of their damage; of the controllers' log named with its directory, and
        without the offset checkpoints, which do not speak of it."""
        log_dir, directory = self._plan.log_dir, self._plan.directory
        around = {file: damage for file, damage in log_dir_damage(log_dir).items() if not (kraft and file in CHECKPOINTS)}
        own = partition_damage(self._plan, self._inputs)
        for files, entries, prefix in ((around, log_dir.found.entries, ""), (own, directory.entries, f"{directory.name}/" * kraft)):
            for file, damage in files.items():
                if damage:
                    yield f"{prefix}{file}", damage_name(damage, entries[file].size_in_bytes)

    def _segment(self, segment: SegmentFiles, *, last: bool) -> SegmentFacts:
        """A live segment; files are opened only where the fold saw something odd in it, and for a `.txnindex`."""
        replica, base_offset = self._replica, segment.base_offset
        assert segment.log is not None
        totals = replica.state.framing.by_segment.get(base_offset)
        end_offset = base_offset if totals is None else replica.written_end(base_offset, totals.last_offset + 1)
        next_offset: int | None = end_offset
        odd = regresses(replica, base_offset)
        if last and segment.index is not None:
            bad = any(entry.file_kind == "index" and entry.segment == base_offset for entry in replica.state.bad_entries)
            if bad or odd or base_offset in replica.state.recovery.ends:
                next_offset = self._next_offset(segment.log, segment.index, base_offset)
        stop = replica.state.recovery.stop(base_offset)
        regression = self._regression(segment.log, base_offset) if odd else None
        if regression is not None and (stop is None or regression.position < stop.position):
            stop = regression
        return SegmentFacts(
            base_offset,
            segment.log.size_in_bytes,
            end_offset,
            next_offset,
            stop,
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
            for chunk in SegmentReader(file, max_plausible_offset(base_offset)).chunks():
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
    for chunk in SegmentReader(file, max_plausible_offset(base_offset)).chunks():
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


# Log files on their way out, read as evidence: `.deleted`, `.swap`, `.cleaned`, and directories `-delete`, `-stray`, `-future`.


def with_leftovers(
    key: tuple[str, int], replicas: list[Replica], inputs: Inputs, findings: list[Finding], incomplete: list[Incomplete]
) -> list[Finding]:
    """`findings` with those about what a partition's leftovers hold; those of offsets that they would fill say so (`also_in`)."""
    aside = []
    for log_dir, directory in inputs.aside.get(key, ()):
        aside += _held(log_dir, directory, key, inputs, incomplete)
    return with_offsets_held_aside(replicas, aside, findings)


def lone_leftovers(inputs: Inputs) -> list[Finding]:
    """The same for partitions of which no broker has a live replica."""
    live = {(plan.context.topic, plan.context.partition) for plan in inputs.replicas}
    findings = []
    for key in sorted(inputs.aside.keys() - live):
        findings += with_leftovers(key, [], inputs, [], inputs.incomplete)
    return findings


def _held(
    log_dir: LogDir, directory: PartitionDirectory, key: tuple[str, int], inputs: Inputs, incomplete: list[Incomplete]
) -> list[HeldAside]:
    """Every such log file of a directory, folded by itself; those that hold no good batch are left out."""
    entry = directory.entries.get("partition.metadata")
    metadata = None if entry is None else inputs.read(log_dir.source, entry, parse_partition_metadata)
    files: list[tuple[Entry, int, str]] = [
        (leftover_file.entry, leftover_file.base_offset or 0, leftover_file.suffix)
        for leftover_file in directory.leftovers
        if leftover_file.kind is FileKind.LOG
    ]
    if directory.suffix is not None:
        files += [(log.entry, log.base_offset, directory.suffix) for log in directory.logs()]
    held = []
    for log, base_offset, suffix in sorted(files, key=lambda row: row[0].path):
        fold, batches = ContinuityFold(base_offset), 0
        try:
            with log_dir.source.open(log.path) as file:
                for chunk in SegmentReader(file, max_plausible_offset(base_offset)).chunks():
                    fold.step(chunk.columns, chunk.damage)
                    batches += int(has_right_crc(chunk.columns).sum())
        except SourceError as error:
            incomplete.append(Incomplete(typed_path(log_dir.source, log.path), error.reason))
        if fold.runs:
            topic_id = None if metadata is None else metadata.topic_id
            file_name = f"{directory.name}/{log.name}"
            held.append(HeldAside(*key, log_dir.broker, log_dir.name, file_name, suffix, topic_id, tuple(fold.runs), batches))
    return held


def with_lone_indexes(plan: ReplicaPlan, replica: Replica, inputs: Inputs, findings: list[Finding]) -> list[Finding]:
    """`findings` with those about index files without their `.log`; nothing where that lies there by another name."""
    aside = {file.base_offset for file in plan.directory.leftovers if file.kind is FileKind.LOG}
    gone = [segment for segment in plan.directory.segments if segment.log is None and segment.base_offset not in aside]
    lone = [_lone(segment, plan, inputs) for segment in gone]
    return with_lone_index_files(replica, lone, [offset for offset, _ in plan.directory.snapshots], findings)


def _lone(segment: SegmentFiles, plan: ReplicaPlan, inputs: Inputs) -> LoneIndex:
    source, base_offset = plan.log_dir.source, segment.base_offset
    last_offsets: dict[str, int] = {}
    if segment.index is not None:
        index = inputs.read(source, segment.index, lambda file: parse_offset_index(file, base_offset))
        last_offsets |= {} if index is None else _last(index.offsets, "offset index")
    if segment.time_index is not None:
        times = inputs.read(source, segment.time_index, lambda file: parse_time_index(file, base_offset))
        last_offsets |= {} if times is None else _last(times.offsets, "time index")
    if segment.transaction_index is not None:
        aborted = inputs.read(source, segment.transaction_index, parse_transaction_index)
        last_offsets |= {"transaction index": aborted.entries[-1].last_offset} if aborted is not None and aborted.entries else {}
    entries = [entry for entry in (segment.index, segment.time_index, segment.transaction_index) if entry is not None]
    ends = {witness: last + 1 for witness, last in last_offsets.items()}
    return LoneIndex(segment.base_offset, tuple(entry.name for entry in entries), ends)


def _last(offsets: "NDArray[np.int64]", witness: str) -> dict[str, int]:
    """The last of an index's offsets up to where they fall, by its name; nothing where it has none."""
    if not offsets.size:
        return {}
    falls = np.flatnonzero(np.diff(offsets) < 0)
    return {witness: int(offsets[falls[0] if falls.size else -1])}
