"""Forecasting a broker's start on a copy, from the folded log and the files that folding does not read; leftover files."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from kafka_forensics.analysis.replica import RecoveryFold, Replica
from kafka_forensics.analysis.replicas import (
    IndexWithoutLog,
    LeftoverLog,
    StartForecasts,
    recovery_findings,
    recovery_outlook,
    regresses,
    swap_finding,
    with_leftover_findings,
    with_segments_of_indexes_without_log,
    with_unclean_restart,
)
from kafka_forensics.analysis.segments import ContinuityFold, Run, chunk_facts
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import CHECKPOINTS, Inputs, LogDir, ReplicaPlan, typed_path
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONTROL_ABORT, CONTROL_COMMIT, CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.checkpoints import parse_partition_metadata
from kafka_forensics.parsers.indexes import parse_offset_index, parse_producer_snapshot, parse_time_index, parse_transaction_index
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
    MarkerContent,
    ProducerReplay,
    RecoveryStop,
    ReplayedBatch,
    SegmentFacts,
    SnapshotFacts,
    load_forecast,
    replayed_from,
    swap_steps,
)
from kafka_forensics.replication.small_files import ABSENT, damage_name, is_movable
from kafka_forensics.scanning.judging.environment import log_dir_damage, partition_damage
from kafka_forensics.storage.source import ByteFile, Entry, EntryKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.replication.recovery import ReplayFault


MAX_REPLAYED_BYTES: Final = 64 << 20
"""Largest part of a log that is read again though no finding makes it suspect."""
_SUSPECT: Final = ("TXN_", "PRODUCER_", "OFFSET_", "RECORD_", "BATCH_")
"""Prefixes of the kinds of findings that make a log suspect."""


def producer_faults(
    plan: "ReplicaPlan", facts: "LogFacts", inputs: "Inputs", kinds: set[str], *, transactions: int
) -> "tuple[ReplayFault, ...]":
    """The first fault that replaying producers after a crash would meet, or none; the log is read only if there may be one.

    `kinds` are those of the replica's findings; its log holds so many `transactions`. Raises SourceError.
    """
    is_suspect = any(kind.startswith(_SUSPECT) for kind in kinds)
    first = replayed_from(facts)
    logs = [log for log in plan.directory.logs() if log.reaches(first)]
    is_small = sum(log.entry.size_in_bytes for log in logs) <= MAX_REPLAYED_BYTES
    # after a clean shutdown the broker loads the snapshot at the log's end, and replays nothing
    loads_snapshot = facts.clean_shutdown and any(
        snapshot.sound and snapshot.offset == facts.end_offset for snapshot in facts.snapshots
    )
    if not (is_suspect or (transactions and is_small)) or not logs or first >= facts.end_offset or loads_snapshot:
        return ()
    entry = dict(plan.directory.snapshots).get(first)
    snapshot = None if entry is None else inputs.read(plan.log_dir.source, entry, lambda file: parse_producer_snapshot(file, first))
    entries = [] if snapshot is None else snapshot.entries
    replay = ProducerReplay({producer.producer_id for producer in entries if producer.current_txn_first_offset >= 0})
    for log in logs:
        replay.begin(log.base_offset)
        with plan.log_dir.source.open(log.entry.path) as file:
            for batch in _replayed_batches(file, first):
                fault = None if batch is None else replay.step(batch)
                if batch is None or fault is not None:
                    return () if fault is None else (fault,)
    return ()


def _replayed_batches(file: "ByteFile", first: int) -> "Iterator[ReplayedBatch | None]":
    """Batches of producers from offset `first` on; a last None if damage ends the walk."""
    for chunk in SegmentReader(file).chunks():
        columns = chunk.columns
        good = has_right_crc(columns)
        stop = min([damage.position for damage in chunk.damage] + columns[BatchColumn.POSITION, ~good].tolist(), default=None)
        requested = (columns[BatchColumn.PRODUCER_ID] >= 0) & (columns[BatchColumn.MAGIC] >= 2)
        requested &= columns[BatchColumn.LAST_OFFSET] >= first
        if stop is not None:
            requested &= columns[BatchColumn.POSITION] < stop
        for column in columns[:, requested].T:
            attributes = int(column[BatchColumn.ATTRIBUTES])
            yield ReplayedBatch(
                int(column[BatchColumn.POSITION]),
                int(column[BatchColumn.BASE_OFFSET]),
                int(column[BatchColumn.PRODUCER_ID]),
                bool(attributes & TRANSACTIONAL_MASK),
                _marker(file, column) if attributes & CONTROL_MASK else None,
            )
        if stop is not None:
            yield None


def _marker(file: "ByteFile", column: "NDArray[np.int64]") -> MarkerContent:
    """The marker in a control batch, which is decoded only if its columns do not show it."""
    kind = {CONTROL_ABORT: MarkerContent.ABORT, CONTROL_COMMIT: MarkerContent.COMMIT}.get(
        int(column[BatchColumn.CONTROL_RECORD_TYPE])
    )
    if kind is not None and column[BatchColumn.COORDINATOR_EPOCH] >= 0:
        return kind
    position, size = int(column[BatchColumn.POSITION]), int(column[BatchColumn.SIZE_IN_BYTES])
    batch = decode_batch(read_batch(file, position, min(size, MAX_BATCH_BYTES)), position=position)
    record = next(batch.iter_records(), None)
    if record is None:
        return MarkerContent.INVALID if batch.problems else MarkerContent.EMPTY
    control_record = parse_control_record(record.key, record.value)
    return MarkerContent.INVALID if kind is None or control_record.problem is not None else kind


INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default of `index.interval.bytes`."""


def with_recovery(
    plan: ReplicaPlan, replica: Replica, inputs: Inputs, findings: list[Finding], incomplete: list[Incomplete]
) -> list[Finding]:
    """Add findings about what a start on this copy would do, and mark damage at which it would cut the log.

    What cannot be read is added to `incomplete`, and nothing is forecast then.
    """
    if not plan.log_dir.found.entries or replica.state.unread:
        return findings  # without its log directory's files, a copy does not show how its broker ended
    corrupt = {
        finding.place.file
        for finding in findings
        if finding.kind == "PRODUCER_SNAPSHOT_CORRUPT" and finding.place.byte_start is not None
    }
    loader = _LogFactsReader(plan, replica, inputs, corrupt)
    try:
        facts = loader.facts()
        transactions = replica.state.transactions.counts().total
        kinds = {finding.kind for finding in findings}
        if faults := producer_faults(plan, facts, inputs, kinds, transactions=transactions):
            facts = replace(facts, faults=faults)
    except SourceError as error:
        incomplete.append(not_read(plan.log_dir.source, error))
        return findings
    forecast = load_forecast(facts)
    replica.recovery = replica.recovery_once_repaired = recovery_outlook(forecast)
    if facts.unreadable:
        facts = replace(facts, unreadable=tuple((file, ABSENT) for file, _ in facts.unreadable if is_movable(file)))
        forecast = load_forecast(facts)
        replica.recovery_once_repaired = recovery_outlook(forecast)
    damaged = bool(replica.state.recovery.ends)
    unclean = load_forecast(replace(facts, clean_shutdown=False)) if facts.clean_shutdown and damaged else forecast
    outlook = StartForecasts(facts, forecast, unclean)
    judged = with_unclean_restart(findings, replica, outlook) + recovery_findings(replica, outlook)
    if any(name.endswith((".swap", ".cleaned")) for name in facts.files):
        judged.append(swap_finding(replica, facts, swap_steps(facts)[0], loader.swapped))
    return judged


class _LogFactsReader:
    """Gathers the facts on which a broker's start on one replica depends."""

    def __init__(self, plan: ReplicaPlan, replica: Replica, inputs: Inputs, corrupt: set[str | None]) -> None:
        self._plan = plan
        self._replica = replica
        self._inputs = inputs
        self._corrupt = corrupt
        self._leftovers = frozenset(file.entry.name for file in plan.directory.leftovers)
        self.swapped: dict[int, list[Run]] = {}
        """Offsets in the `.swap` files, by base offset."""

    def facts(self) -> LogFacts:
        """Everything that Kafka's LogLoader reads. Raises SourceError."""
        directory, context = self._plan.directory, self._replica.context
        logs = directory.logs()
        kraft = context.topic == CLUSTER_METADATA_TOPIC
        epochs = [] if context.leader_epochs is None else context.leader_epochs.entries
        swaps = [file for file in directory.leftovers if file.kind is FileKind.LOG and file.suffix == "swap"]
        names = [
            *(file.name for file in directory.files()),
            *(file.name for file in directory.unknown if file.kind is EntryKind.FILE),
        ]
        return LogFacts(
            segments=tuple(self._segment(log.segment, last=log.next_base_offset is None) for log in logs),
            end_offset=self._replica.log_end_offset,
            clean_shutdown=context.clean_shutdown and not kraft,
            recovery_point=0 if kraft else context.recovery_point,
            log_start=0 if kraft else context.log_start_checkpoint,
            high_watermark=context.high_watermark,
            swaps=tuple(self._swap(file.entry, file.base_offset or 0) for file in swaps),
            files=tuple(sorted(names)),
            snapshots=tuple(
                SnapshotFacts(offset, f"{directory.name}/{entry.name}" not in self._corrupt)
                for offset, entry in directory.snapshots
            ),
            # a start always walks the controllers' log, and takes the epochs of its batches
            epochs=(*epochs, *(self._replica.epochs if kraft else ())),
            is_tiered=self._replica.is_tiered,
            is_metadata=kraft,
            unreadable=tuple(self._unreadable(kraft=kraft)),
        )

    def _unreadable(self, *, kraft: bool) -> Iterator[tuple[str, str]]:
        """(name, kind of damage) of malformed small files. For the controllers' log, names include its directory, and the offset
        checkpoints, which have no entry for it, are left out."""
        log_dir, directory = self._plan.log_dir, self._plan.directory
        of_log_dir = {file: damage for file, damage in log_dir_damage(log_dir).items() if not (kraft and file in CHECKPOINTS)}
        of_partition = partition_damage(self._plan, self._inputs), directory.entries, f"{directory.name}/" * kraft
        for files, entries, prefix in ((of_log_dir, log_dir.found.entries, ""), of_partition):
            for file, damage in files.items():
                if damage:
                    yield f"{prefix}{file}", damage_name(damage, entries[file].size_in_bytes)

    def _segment(self, segment: SegmentFiles, *, last: bool) -> SegmentFacts:
        """Facts of a live segment; reads files only if the fold found something in it, and any `.txnindex`."""
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

    def _regression(self, log: Entry, base_offset: int) -> RecoveryStop | None:
        """Where rebuilding the segment's indexes throws, because an offset is not above that of the last entry."""
        interval = INDEX_INTERVAL_BYTES
        if self._replica.context.control is not None:
            setting = self._replica.context.control.configs.get("index.interval.bytes", "")
            interval = int(setting) if setting.isascii() and setting.isdigit() and len(setting) < 10 else interval
        with self._plan.log_dir.source.open(log.path) as file:
            position = index_regression(file, base_offset, interval)
        return None if position is None else RecoveryStop(position, base_offset, OFFSET_REGRESSION)

    def _swap(self, entry: Entry, base_offset: int) -> SegmentFacts:
        """Facts of a `.log.swap`."""
        walk, offsets = RecoveryFold(base_offset), ContinuityFold(base_offset, compacted=self._replica.context.compacted)
        end_offset = base_offset
        with self._plan.log_dir.source.open(entry.path) as file:
            for chunk in SegmentReader(file, max_plausible_offset(base_offset)).chunks():
                facts = chunk_facts(chunk.columns)
                walk.step(chunk, facts)
                offsets.step(chunk.columns, chunk.damage, facts)
                if chunk.rows:
                    end_offset = int(chunk.columns[BatchColumn.LAST_OFFSET, -1]) + 1
        self.swapped[base_offset] = offsets.runs
        has_index, has_time_index = (f"{base_offset:020d}.{kind}.swap" in self._leftovers for kind in ("index", "timeindex"))
        stop = walk.stop(base_offset)
        return SegmentFacts(base_offset, entry.size_in_bytes, end_offset, end_offset, stop, has_index, has_time_index)


def index_regression(file: ByteFile, base_offset: int, interval: int) -> int | None:
    """Byte position of the batch at which rebuilding the indexes of a segment throws InvalidOffsetException, None if it does not.

    An entry is appended for a batch that begins more than `interval` bytes after the last entry's. Raises SourceError.
    """
    last_indexed, last_offset, entries = 0, base_offset, 0
    max_timestamp, offset_of_max = -1, -1
    last_timestamp, last_time_offset, time_entries = -1, base_offset, 0
    for chunk in SegmentReader(file, max_plausible_offset=max_plausible_offset(base_offset)).chunks():
        facts = (chunk.columns[column].tolist() for column in _INDEXED)
        for position, last, timestamp, good in zip(*facts, has_right_crc(chunk.columns).tolist(), strict=True):
            if not good:
                return None
            if timestamp > max_timestamp:
                max_timestamp, offset_of_max = timestamp, last
            if position - last_indexed <= interval:
                continue
            if (entries and last <= last_offset) or (time_entries and offset_of_max < last_time_offset):
                return int(position)
            last_offset, entries, last_indexed = last, entries + 1, position
            if max_timestamp > last_timestamp:
                last_timestamp, last_time_offset, time_entries = max_timestamp, offset_of_max, time_entries + 1
        if chunk.damage:
            return None
    return None


_INDEXED: Final = (BatchColumn.POSITION, BatchColumn.LAST_OFFSET, BatchColumn.MAX_TIMESTAMP)


def with_leftovers(
    key: tuple[str, int], replicas: list[Replica], inputs: Inputs, findings: list[Finding], incomplete: list[Incomplete]
) -> list[Finding]:
    """Add findings about logs in a partition's leftovers: `.deleted`, `.swap` and `.cleaned` files, and directories `-delete`,
    `-stray` and `-future`. Findings about offsets that leftovers hold name them in `also_in`."""
    leftovers = []
    for log_dir, directory in inputs.renamed_directories.get(key, ()):
        leftovers += _leftover_logs(log_dir, directory, key, inputs, incomplete)
    return with_leftover_findings(replicas, leftovers, findings)


def leftovers_without_replica(inputs: Inputs) -> list[Finding]:
    """`with_leftovers` for partitions without a live replica."""
    live = {plan.context.topic_partition for plan in inputs.replicas}
    findings = []
    for key in sorted(inputs.renamed_directories.keys() - live):
        findings += with_leftovers(key, [], inputs, [], inputs.incomplete)
    return findings


def _leftover_logs(
    log_dir: LogDir, directory: PartitionDirectory, key: tuple[str, int], inputs: Inputs, incomplete: list[Incomplete]
) -> list[LeftoverLog]:
    """The leftover logs of a directory that hold a good batch."""
    entry = directory.entries.get("partition.metadata")
    metadata = None if entry is None else inputs.read(log_dir.source, entry, parse_partition_metadata)
    topic_id = None if metadata is None else metadata.topic_id
    files = [(file.entry, file.base_offset or 0, file.suffix) for file in directory.leftovers if file.kind is FileKind.LOG]
    if directory.suffix is not None:
        files += [(log.entry, log.base_offset, directory.suffix) for log in directory.logs()]
    leftovers = []
    for log, base_offset, suffix in sorted(files, key=lambda row: row[0].path):
        fold, batches = ContinuityFold(base_offset), 0
        try:
            with log_dir.source.open(log.path) as file:
                for chunk in SegmentReader(file, max_plausible_offset(base_offset)).chunks():
                    fold.step(chunk.columns, chunk.damage, chunk_facts(chunk.columns))
                    batches += int(has_right_crc(chunk.columns).sum())
        except SourceError as error:
            incomplete.append(Incomplete(typed_path(log_dir.source, log.path), error.reason))
        if fold.runs:
            name = f"{directory.name}/{log.name}"
            leftovers.append(LeftoverLog(*key, log_dir.broker, log_dir.name, name, suffix, topic_id, tuple(fold.runs), batches))
    return leftovers


def with_indexes_without_log(plan: ReplicaPlan, replica: Replica, inputs: Inputs, findings: list[Finding]) -> list[Finding]:
    """Add findings about index files whose `.log` is missing and is not among the leftovers."""
    leftovers = {file.base_offset for file in plan.directory.leftovers if file.kind is FileKind.LOG}
    missing = [segment for segment in plan.directory.segments if segment.log is None and segment.base_offset not in leftovers]
    indexes = [_index_without_log(segment, plan, inputs) for segment in missing]
    return with_segments_of_indexes_without_log(replica, indexes, [offset for offset, _ in plan.directory.snapshots], findings)


def _index_without_log(segment: SegmentFiles, plan: ReplicaPlan, inputs: Inputs) -> IndexWithoutLog:
    source, base_offset = plan.log_dir.source, segment.base_offset
    offsets: dict[str, NDArray[np.int64]] = {}
    if segment.index is not None:
        index = inputs.read(source, segment.index, lambda file: parse_offset_index(file, base_offset))
        offsets |= {} if index is None else {"offset index": index.offsets}
    if segment.time_index is not None:
        time_index = inputs.read(source, segment.time_index, lambda file: parse_time_index(file, base_offset))
        offsets |= {} if time_index is None else {"time index": time_index.offsets}
    ends: dict[str, int] = {}
    for name, of_index in offsets.items():
        if of_index.size:
            falls = np.flatnonzero(np.diff(of_index) < 0)  # offsets after the first fall are not believed
            ends[name] = int(of_index[falls[0] if falls.size else -1]) + 1
    if segment.transaction_index is not None:
        aborted = inputs.read(source, segment.transaction_index, parse_transaction_index)
        ends |= {"transaction index": aborted.entries[-1].last_offset + 1} if aborted is not None and aborted.entries else {}
    entries = [entry for entry in (segment.index, segment.time_index, segment.transaction_index) if entry is not None]
    return IndexWithoutLog(segment.base_offset, tuple(entry.name for entry in entries), ends)
