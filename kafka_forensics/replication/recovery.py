"""What a broker does to a log when it starts: which checks apply, and what it truncates, renames, rebuilds or deletes.

Pure functions on small values that were read from files. The numbers of the checks are those of docs/recovery.md
(LogManager, LogLoader, LogSegment.recover, UnifiedLog, LeaderEpochFileCache, ProducerStateManager of Kafka 4).
"""

import re
from collections.abc import Collection, Sequence
from enum import Enum
from math import inf
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.model.constants import MAX_INT32, MAX_RELATIVE_OFFSET, MAX_SEGMENT_SIZE
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication import small_files
from kafka_forensics.replication.small_files import NOT_ALL_SERVED, is_read_on, start_outcome

CLEAN_SHUTDOWN: Final = 1
META_PROPERTIES: Final = 2
CHECKPOINT_UNREADABLE: Final = 4
PARTITION_METADATA: Final = 6
DELETED_FILE: Final = 7
CLEANED_FILE: Final = 8
SWAP_FILE: Final = 9
INDEX_WITHOUT_LOG: Final = 10
LOG_NAME_OR_SIZE: Final = 11
INDEX_FILE_MISSING: Final = 12
TRANSACTION_INDEX: Final = 13
SEGMENT_RECOVERED: Final = 17
HEADER_CUT: Final = 18
LENGTH_TOO_SMALL: Final = 19
BATCH_BEYOND_FILE: Final = 20
BATCH_INVALID: Final = 22
OFFSET_OVERFLOW: Final = 23
OFFSET_REGRESSION: Final = 24
PRODUCER_STATE: Final = 26
ABORTED_TXN_ORDER: Final = 27
SEGMENTS_AFTER_TRUNCATION: Final = 29
END_BELOW_START: Final = 31
NO_SEGMENT: Final = 32
LEADER_EPOCHS: Final = 36
SNAPSHOT: Final = 37
NO_SNAPSHOT: Final = 38
NEXT_OFFSET: Final = 39
HIGH_WATERMARK: Final = 41
METADATA_SNAPSHOT: Final = 42

HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
EPOCHS_FILE: Final = "leader-epoch-checkpoint"


class RecoveryStop(Struct, frozen=True):
    """Where recovery of a segment stops before the end of the file; the rest is truncated.

    `end_offset` is the offset after the last batch kept; `check` is the reason.
    """

    position: int
    end_offset: int
    check: int


class SegmentFacts(Struct, frozen=True):
    """A segment as the loader finds it.

    `end_offset` is the offset after its last batch, read to the end (the base offset if it has none); `next_offset` what the loader
    reads as such through the offset index on disk, None where that read throws.
    """

    base_offset: int
    size_in_bytes: int
    end_offset: int
    next_offset: int | None
    stop: RecoveryStop | None = None
    has_index: bool = True
    has_time_index: bool = True
    transaction_index: str = "sound"
    """`sound` (or absent), `below_base` (an entry ends below the segment), `version` (an entry of an unknown version)."""


class ReplayFault(Struct, frozen=True):
    """A batch at `position` of a segment at which replaying producer state throws: the broker does not start.

    An unreadable marker also ends the recovery of its segment; that batch is kept, so the replay after recovery throws again.
    """

    segment: int
    position: int
    base_offset: int
    check: int


class SnapshotFacts(Struct, frozen=True):
    """A `.snapshot` file: the offset in its name, and whether it is readable."""

    offset: int
    sound: bool = True


class LogFacts(Struct, frozen=True):
    """A partition directory, and its entries in the checkpoints of its log directory; None: no entry."""

    segments: tuple[SegmentFacts, ...]
    end_offset: int
    """The offset after all batches on disk, whether Kafka keeps them or not."""
    clean_shutdown: bool
    recovery_point: int | None = None
    log_start: int | None = None
    high_watermark: int | None = None
    swaps: tuple[SegmentFacts, ...] = ()
    """The `.log.swap` files."""
    files: tuple[str, ...] = ()
    """Names of all regular files of the directory."""
    snapshots: tuple[SnapshotFacts, ...] = ()
    epochs: tuple[EpochEntry, ...] = ()
    faults: tuple[ReplayFault, ...] = ()
    """Where replaying its producer state from `replayed_from` on throws; at most the first place."""
    is_tiered: bool = False
    """Whether the log starts in remote storage; then only the checkpoint has its start."""
    is_metadata: bool = False
    """Whether it is `__cluster_metadata`; then `epochs` include those of its batches."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """Invalid small files of the log directory or the partition, each with its damage (`small_files.damage_name`)."""


class LoaderStep(Struct, frozen=True):
    """An action of the loader: the check that applies, a verb, and the file ("": the log itself)."""

    check: int
    action: str
    """delete | rename | recover | truncate | create | forget | set | split | refuse (the broker does not start)"""
    file: str = ""
    offset: int | None = None
    """Offset of a truncation, a new file or a new value."""
    to: str = ""
    """New name of a renamed file."""


class LogTruncation(Struct, frozen=True):
    """Offsets `[start_offset, end_offset)` that the log loses: truncated at `position` of a segment because of `check`.

    `position` is None where no bytes are removed, but the broker reads a log end that is too low.
    """

    segment: int
    position: int | None
    check: int
    start_offset: int
    end_offset: int
    segments_deleted: tuple[int, ...] = ()


class LoadForecast(Struct, frozen=True):
    """The loaded log: its offsets (None: unknown), what is truncated, and every step in order.

    `refused`: the broker does not start, because of the last step.
    """

    log_start_offset: int | None
    log_end_offset: int | None
    recovery_point: int | None
    high_watermark: int | None
    cuts: tuple[LogTruncation, ...] = ()
    steps: tuple[LoaderStep, ...] = ()
    refused: bool = False
    segments: tuple[int, ...] = ()
    """Base offsets of the segments it has then."""


# Snapshots of the controller's log when it is opened (KafkaRaftLog): check 42.


FINISHED: Final = ".checkpoint"
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10}).*\.checkpoint(?:|\.part|\.deleted)", re.DOTALL)


class SnapshotOutcome(Struct, frozen=True):
    """Steps in order; `refused`: the node does not start; `start_at`: the log is emptied and starts at this offset."""

    steps: tuple[LoaderStep, ...] = ()
    refused: bool = False
    start_at: int | None = None


def snapshot_outcome(log: LogFacts, start: int, end: int) -> SnapshotOutcome:
    """What a node does with the snapshots of a log that was loaded as `[start, end)` (KafkaRaftLog.createLog).

    It deletes unfinished ones, those marked for deletion and those below the log start. A log that does not start at 0 needs a
    snapshot at or above its start, else the node does not start. The latest snapshot, by epoch and offset, replaces the log if its
    epoch is higher than the log's last, or equal and its offset after the log end: a follower that crashed between fetching the
    snapshot and truncating.
    """
    snapshots = sorted((int(match[2]), int(match[1]), match[0]) for match in map(_SNAPSHOT.fullmatch, log.files) if match)
    deleted = [name for _, offset, name in snapshots if not name.endswith(FINISHED) or offset < start]
    kept = [snapshot for snapshot in snapshots if snapshot[2] not in deleted]
    if start > 0 and (not kept or kept[-1][1] < start):
        return SnapshotOutcome((LoaderStep(METADATA_SNAPSHOT, "refuse", kept[-1][2] if kept else "", start),), refused=True)
    steps = [LoaderStep(METADATA_SNAPSHOT, "delete", name) for name in sorted(deleted)]
    if not kept:
        return SnapshotOutcome(tuple(steps))
    epoch, offset, latest = kept[-1]
    last_epoch = max((entry.leader_epoch for entry in log.epochs if entry.start_offset < end), default=0)
    if (epoch, offset) <= (last_epoch, end):
        return SnapshotOutcome(tuple(steps))
    steps.append(LoaderStep(METADATA_SNAPSHOT, "truncate", "", offset))
    steps += [LoaderStep(METADATA_SNAPSHOT, "rename", name, to=f"{name}.deleted") for _, _, name in kept if name != latest]
    return SnapshotOutcome(tuple(steps), start_at=offset)


class _Loading(Struct):
    """The state of loading a log; `segments` are changed as they are truncated."""

    log: LogFacts
    segments: list[SegmentFacts]
    steps: list[LoaderStep] = field(default_factory=list)
    cuts: list[LogTruncation] = field(default_factory=list)
    recovered: set[int] = field(default_factory=set)
    """Indexes of segments that were recovered."""
    unknown: bool = False
    """A segment was split: the rest is not predicted."""

    def refuse(self, check: int, file: str) -> bool:
        """Add the step that ends the start; True."""
        self.steps.append(LoaderStep(check, "refuse", file))
        return True

    def forecast(self, *, refused: bool) -> LoadForecast:
        """The forecast without offsets."""
        return LoadForecast(None, None, None, None, tuple(self.cuts), tuple(self.steps), refused)


_UNREADABLE_CHECKS: Final = {small_files.META_PROPERTIES: META_PROPERTIES, small_files.PARTITION_METADATA: PARTITION_METADATA}


def load_forecast(log: LogFacts) -> LoadForecast:
    """How a broker loads the log when it starts (LogManager.loadLog, LogLoader.load).

    Most damaged small files end the start, or take the log directory offline, which ends a broker without another one
    (`small_files`). A recovery point or log start that is not a number counts as 0.
    """
    stopping = next((file for file, damage in log.unreadable if start_outcome(file, damage) in NOT_ALL_SERVED), None)
    if stopping is not None:
        step = LoaderStep(_UNREADABLE_CHECKS.get(stopping, CHECKPOINT_UNREADABLE), "refuse", stopping)
        return LoadForecast(None, None, None, None, steps=(step,), refused=True)
    damaged = {file for file, damage in log.unreadable if not is_read_on(damage)}
    ignored = [name for name in (LOG_START_FILE, RECOVERY_POINT_FILE) if name in damaged]
    if ignored:
        log = replace(
            log,
            recovery_point=None if RECOVERY_POINT_FILE in ignored else log.recovery_point,
            log_start=None if LOG_START_FILE in ignored else log.log_start,
        )
    steps, segments = swap_steps(log)
    loading = _Loading(log, segments, [*(LoaderStep(CHECKPOINT_UNREADABLE, "forget", name) for name in ignored), *steps])
    refused = _is_refused(loading)
    if refused or loading.unknown:
        return loading.forecast(refused=refused)
    forecast = _offsets(loading)
    return _with_metadata_snapshots(log, forecast) if log.is_metadata and not forecast.refused else forecast


def _is_refused(loading: _Loading) -> bool:
    """Open the segments, and recover them or replay producer state; whether any of that ends the start."""
    log = loading.log
    if _has_invalid_file(loading) or _load_segments(loading):
        return True
    if not log.clean_shutdown:
        return _recover(loading)
    if not any(snapshot_facts.sound for snapshot_facts in log.snapshots):
        return False
    return _replay_refused(loading, _newest_snapshot(log, log.end_offset), log.end_offset)


def _with_metadata_snapshots(log: LogFacts, loaded: LoadForecast) -> LoadForecast:
    """The forecast of the controller's log after its snapshots are processed."""
    assert loaded.log_start_offset is not None
    assert loaded.log_end_offset is not None
    outcome = snapshot_outcome(log, loaded.log_start_offset, loaded.log_end_offset)
    steps = (*loaded.steps, *outcome.steps)
    if outcome.refused:
        return LoadForecast(None, None, None, None, loaded.cuts, steps, refused=True)
    at = outcome.start_at
    if at is None:
        return replace(loaded, steps=steps)
    emptied = [LoaderStep(METADATA_SNAPSHOT, "delete", segment_file(base_offset)) for base_offset in loaded.segments]
    created = LoaderStep(METADATA_SNAPSHOT, "create", segment_file(at), at)
    return LoadForecast(at, at, at, at, loaded.cuts, (*steps, *emptied, created), segments=(at,))


def segment_file(base_offset: int, suffix: str = "log") -> str:
    """Name of a segment's file."""
    return f"{base_offset:020d}.{suffix}"


_UNFINISHED: Final = (".deleted", ".cleaned", ".swap")


def swap_steps(log: LogFacts) -> tuple[list[LoaderStep], list[SegmentFacts]]:
    """What happens to `.deleted`, `.cleaned` and `.swap` files, in order, and the segments afterwards (LogLoader.load).

    A `.swap` at or above the smallest `.cleaned` belongs to an unfinished split and is deleted. The others win: the loader deletes
    every file whose number is in their range, snapshots too, before it renames them.
    """
    if not any(name.endswith(_UNFINISHED) for name in log.files):
        return [], sorted(log.segments, key=lambda facts: facts.base_offset)
    files = sorted(log.files)
    deleted, cleaned, swaps = ([name for name in files if name.endswith(suffix)] for suffix in (".deleted", ".cleaned", ".swap"))
    deleted = [name for name in deleted if not name.endswith(".checkpoint.deleted")]
    smallest = min((number for name in cleaned if (number := _number(name)) is not None), default=inf)
    invalid = [name for name in swaps if (_number(name) or 0) >= smallest]
    going = {*deleted, *cleaned, *invalid}
    kept = [facts for facts in log.swaps if segment_file(facts.base_offset, "log.swap") not in invalid]
    replaced: list[str] = []
    if kept:
        start = min(facts.base_offset for facts in kept)
        end = max(facts.base_offset if facts.next_offset is None else facts.next_offset for facts in kept)
        others = [name for name in files if name not in going and not name.endswith(".swap")]
        replaced = [name for name in others if (number := _number(name)) is not None and start <= number < end]
    steps = [
        *(LoaderStep(DELETED_FILE, "delete", name) for name in deleted),
        *(LoaderStep(CLEANED_FILE, "delete", name) for name in (*invalid, *cleaned)),
        *(LoaderStep(SWAP_FILE, "delete", name) for name in replaced),
        *(LoaderStep(SWAP_FILE, "rename", name, to=name.removesuffix(".swap")) for name in swaps if name not in invalid),
    ]
    remaining = set(log.files) - set(replaced)
    segments = {facts.base_offset: facts for facts in log.segments if segment_file(facts.base_offset) not in replaced}
    segments |= {facts.base_offset: _renamed(facts, remaining) for facts in kept}
    return steps, [facts for _, facts in sorted(segments.items())]


def _renamed(swap: SegmentFacts, files: Collection[str]) -> SegmentFacts:
    """A `.swap` after it is renamed; it then has the index files with its number."""
    index, times = (segment_file(swap.base_offset, suffix) in files for suffix in ("index", "timeindex"))
    return replace(swap, has_index=swap.has_index or index, has_time_index=swap.has_time_index or times)


def _number(name: str) -> int | None:
    """The number before the first dot of a file name; None: no number."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def _has_invalid_file(loading: _Loading) -> bool:
    """Whether a segment file has a name or size with which the broker does not start; deletes indexes without a log otherwise."""
    index_suffixes = (".index", ".timeindex", ".txnindex")
    for name in sorted(loading.log.files):
        if name.endswith((".log", *index_suffixes)) and _number(name) is None:
            return loading.refuse(LOG_NAME_OR_SIZE, name)
    for segment in loading.segments:
        if segment.size_in_bytes > MAX_SEGMENT_SIZE:
            return loading.refuse(LOG_NAME_OR_SIZE, segment_file(segment.base_offset))
    base_offsets = {segment.base_offset for segment in loading.segments}
    changed = {step.file for step in loading.steps}
    loading.steps += [
        LoaderStep(INDEX_WITHOUT_LOG, "delete", name)
        for name in sorted(loading.log.files)
        if name.endswith(index_suffixes) and name not in changed and _number(name) not in base_offsets
    ]
    return False


def _load_segments(loading: _Loading) -> bool:
    """Open every segment, and recover those without an offset index or with a bad `.txnindex`. True: refused.

    A truncation here leaves the following segments, and so a gap.
    """
    for number, segment in enumerate(loading.segments):
        name = segment_file(segment.base_offset)
        if segment.transaction_index == "version":
            return loading.refuse(TRANSACTION_INDEX, segment_file(segment.base_offset, "txnindex"))
        if not segment.has_time_index:
            loading.steps.append(LoaderStep(INDEX_FILE_MISSING, "create", segment_file(segment.base_offset, "timeindex")))
        if segment.has_index and segment.transaction_index == "sound":
            continue
        loading.steps.append(LoaderStep(TRANSACTION_INDEX if segment.has_index else INDEX_FILE_MISSING, "recover", name))
        loading.recovered.add(number)
        if segment.stop is None:
            continue
        if segment.stop.check == OFFSET_OVERFLOW:
            return _split(loading, segment)
        if segment.stop.check == OFFSET_REGRESSION:
            return loading.refuse(OFFSET_REGRESSION, name)
        later = loading.segments[number + 1 :]
        _cut(loading, number, segment.stop, later[0].base_offset if later else loading.log.end_offset, ())
    return False


def replayed_from(log: LogFacts) -> int:
    """The first offset whose producer state a start after a crash replays: the newest readable snapshot up to the first segment to
    recover, else the log start (UnifiedLog.rebuildProducerState)."""
    return _newest_snapshot(log, _first_to_recover(log, log.segments) or 0)


def _newest_snapshot(log: LogFacts, bound: int) -> int:
    start = log.log_start or 0
    return max(
        (snapshot.offset for snapshot in log.snapshots if snapshot.sound and start < snapshot.offset <= bound), default=start
    )


def _first_to_recover(log: LogFacts, segments: Sequence[SegmentFacts]) -> int | None:
    """Base offset of the first segment to recover after a crash, which has the recovery point; None: recover all."""
    return max((segment.base_offset for segment in segments if segment.base_offset <= (log.recovery_point or 0)), default=None)


def _replay_refused(loading: _Loading, first: int, bound: int) -> bool:
    """Whether replaying producer state from `first` up to `bound` ends the start; aborted transactions are not indexed there."""
    for fault in loading.log.faults:
        if first <= fault.base_offset < bound and fault.check == PRODUCER_STATE:
            return loading.refuse(fault.check, segment_file(fault.segment))
    return False


def _recovery_refused(loading: _Loading, segment: SegmentFacts) -> bool:
    """Whether replaying producer state while a segment is recovered ends the start, before recovery stops."""
    for fault in loading.log.faults:
        if fault.segment == segment.base_offset and (segment.stop is None or fault.position < segment.stop.position):
            return loading.refuse(fault.check, segment_file(segment.base_offset))
    return False


def _split(loading: _Loading, segment: SegmentFacts) -> bool:
    """Split a segment with an offset that its indexes cannot hold. True: the broker does not start.

    The split works, and loading starts again, only if the last batch overflows; else it finds nothing to do and throws
    (LocalLog.splitOverflowedSegment, measured with 4.3.0).
    """
    loading.unknown = segment.end_offset - segment.base_offset > MAX_RELATIVE_OFFSET
    loading.steps.append(LoaderStep(OFFSET_OVERFLOW, "split" if loading.unknown else "refuse", segment_file(segment.base_offset)))
    return not loading.unknown


def _cut(loading: _Loading, number: int, stop: RecoveryStop, end_offset: int, deleted: tuple[int, ...]) -> None:
    """Truncate a segment at its stop, or completely if its offsets decrease; `deleted` are segments removed after it."""
    segment = loading.segments[number]
    position, end = (0, segment.base_offset) if stop.check == OFFSET_REGRESSION else (stop.position, stop.end_offset)
    loading.steps.append(LoaderStep(stop.check, "truncate", segment_file(segment.base_offset), end))
    loading.cuts.append(LogTruncation(segment.base_offset, position, stop.check, end, max(end_offset, end), deleted))
    loading.segments[number] = replace(segment, size_in_bytes=position, end_offset=end, next_offset=end, stop=None)


def _recover(loading: _Loading) -> bool:
    """After an unclean shutdown: recover from the segment with the recovery point on; a truncation deletes all later segments.

    True: the broker does not start.
    """
    first = _first_to_recover(loading.log, loading.segments)
    if first is not None and _replay_refused(loading, _newest_snapshot(loading.log, first), first):
        return True
    for number, segment in enumerate(loading.segments):
        if first is not None and segment.base_offset < first:
            continue
        loading.steps.append(LoaderStep(SEGMENT_RECOVERED, "recover", segment_file(segment.base_offset)))
        loading.recovered.add(number)
        if _recovery_refused(loading, segment):
            return True
        if segment.stop is None:
            continue
        if segment.stop.check == OFFSET_OVERFLOW:
            return _split(loading, segment)
        later = [segment.base_offset for segment in loading.segments[number + 1 :]]
        _cut(loading, number, segment.stop, loading.log.end_offset, tuple(later))
        loading.steps += [LoaderStep(SEGMENTS_AFTER_TRUNCATION, "delete", segment_file(base_offset)) for base_offset in later]
        del loading.segments[number + 1 :]
        break
    return False


def _offsets(loading: _Loading) -> LoadForecast:
    """Log end, log start, recovery point and high watermark from the remaining segments."""
    log, segments = loading.log, loading.segments
    log_start, stored = log.log_start or 0, log.high_watermark or 0
    end = _next_offset(loading) if segments else None
    if segments and end is None:
        return loading.forecast(refused=loading.refuse(NEXT_OFFSET, segment_file(segments[-1].base_offset)))
    emptied = end is not None and end < log_start
    if emptied and end is not None:
        base_offsets = tuple(segment.base_offset for segment in segments)
        loading.steps += [LoaderStep(END_BELOW_START, "delete", segment_file(base_offset)) for base_offset in base_offsets]
        loading.cuts.append(LogTruncation(base_offsets[0], 0, END_BELOW_START, base_offsets[0], end, base_offsets))
    if end is None or emptied:
        loading.steps.append(LoaderStep(NO_SEGMENT, "create", segment_file(log_start), log_start))
        end = log_start
        segments = [SegmentFacts(log_start, 0, log_start, log_start)]
    start = log_start if log.is_tiered else max(log_start, segments[0].base_offset)
    dropped_epochs = [entry.start_offset for entry in log.epochs if entry.start_offset >= end]
    if dropped_epochs and not emptied:
        loading.steps.append(LoaderStep(LEADER_EPOCHS, "forget", EPOCHS_FILE, min(dropped_epochs)))
    loading.steps += _snapshot_steps(loading, segments, start, end)
    high_watermark = min(max(stored, start), end)
    if high_watermark != stored:
        loading.steps.append(LoaderStep(HIGH_WATERMARK, "set", HIGH_WATERMARK_FILE, high_watermark))
    point = end if log.clean_shutdown and not emptied else min(log.recovery_point or 0, end)
    base_offsets = tuple(segment.base_offset for segment in segments)
    return LoadForecast(start, end, point, high_watermark, tuple(loading.cuts), tuple(loading.steps), segments=base_offsets)


def _next_offset(loading: _Loading) -> int | None:
    """The log end as the broker reads it from the last segment, which may have more records; None: it cannot read it."""
    log, last = loading.log, loading.segments[-1]
    end = last.end_offset if len(loading.segments) - 1 in loading.recovered else last.next_offset
    is_newest = last.base_offset == max((segment.base_offset for segment in log.segments), default=None)
    is_cut_at_end = any(cut.end_offset >= log.end_offset for cut in loading.cuts)
    if end is not None and end < log.end_offset and is_newest and not is_cut_at_end:
        loading.steps.append(LoaderStep(NEXT_OFFSET, "set", segment_file(last.base_offset), end))
        loading.cuts.append(LogTruncation(last.base_offset, None, NEXT_OFFSET, end, log.end_offset))
    return end


def _snapshot_steps(loading: _Loading, segments: list[SegmentFacts], start: int, end: int) -> list[LoaderStep]:
    """Delete snapshots of no segment, except the largest above all segments, then unreadable ones down to the newest readable one,
    which is loaded (ProducerStateManager.removeStraySnapshots, truncateAndReload)."""
    base_offsets = {segment.base_offset for segment in segments}
    log = loading.log
    deleted = {step.file for step in loading.steps if step.action == "delete"}
    remaining = [snapshot for snapshot in log.snapshots if segment_file(snapshot.offset, "snapshot") not in deleted]
    sound = {snapshot.offset: snapshot.sound for snapshot in remaining}
    if log.clean_shutdown and not sound:
        return [LoaderStep(NO_SNAPSHOT, "create", segment_file(end, "snapshot"), end)]
    strays = [offset for offset in sorted(sound) if offset not in base_offsets]
    largest = strays[-1] if strays and strays[-1] > max(base_offsets) else None
    to_delete = [offset for offset in strays if offset != largest]
    to_delete += [offset for offset in sorted(sound) if offset not in to_delete and not start < offset <= end]
    for offset in sorted(sound.keys() - set(to_delete), reverse=True):
        if sound[offset]:
            break
        to_delete.append(offset)
    return [LoaderStep(SNAPSHOT, "delete", segment_file(offset, "snapshot")) for offset in to_delete]


# Producer state replayed as a start replays it: checks 26 and 27.
#
# A start accepts replicated batches whatever their sequence and epoch (AppendOrigin.REPLICATION). Any other exception ends it
# (ProducerAppendInfo, EndTransactionMarker, TransactionIndex.append of Kafka 4).


class MarkerContent(Enum):
    """The content of a control batch of a producer."""

    ABORT = "abort"
    COMMIT = "commit"
    EMPTY = "empty"
    """It has no record any more."""
    INVALID = "invalid"
    """Key or value is unreadable, or the type is neither ABORT nor COMMIT."""


class ReplayedBatch(Struct, frozen=True):
    """A batch of a producer; `marker` is None for data."""

    position: int
    base_offset: int
    producer_id: int
    is_transactional: bool
    marker: MarkerContent | None = None


class ProducerReplay(Struct):
    """Replays batches in order; `open_producers` are the ids of producers with an open transaction."""

    open_producers: set[int]
    _segment: int = -1
    _last_aborted: int | None = None
    """The last offset in the `.txnindex` of the current segment."""

    def begin(self, segment: int) -> None:
        """Start a segment, whose `.txnindex` is rebuilt."""
        self._segment, self._last_aborted = segment, None

    def step(self, batch: ReplayedBatch) -> ReplayFault | None:
        """Add a batch of the segment; returns the fault if the start ends at it."""
        check = self._failed_check(batch)
        return None if check is None else ReplayFault(self._segment, batch.position, batch.base_offset, check)

    def _failed_check(self, batch: ReplayedBatch) -> int | None:
        is_open = batch.producer_id in self.open_producers
        if batch.marker is MarkerContent.INVALID or (batch.marker is None and is_open and not batch.is_transactional):
            return PRODUCER_STATE
        if batch.marker is None:
            if batch.is_transactional:
                self.open_producers.add(batch.producer_id)
            return None
        if batch.marker is MarkerContent.EMPTY or not is_open:
            return None
        self.open_producers.discard(batch.producer_id)
        if batch.marker is MarkerContent.COMMIT:
            return None
        if self._last_aborted is not None and self._last_aborted >= batch.base_offset:
            return ABORTED_TXN_ORDER
        self._last_aborted = batch.base_offset
        return None


# Names of partition directories (LocalLog.parseTopicPartitionName, LogManager.loadLogs).


_RENAMED_DIRECTORY: Final = re.compile(r"\S+-\S+\.\S+-(?:delete|future|stray)")


def loads_as_partition(name: str) -> bool:
    """Whether a broker loads a directory with this name as a partition; with any other name, except a few, it does not start.

    The text before the last dash is the topic, legal or not; the partition is a 32-bit number.
    """
    if name.endswith(("-delete", "-future", "-stray")):
        if not _RENAMED_DIRECTORY.fullmatch(name):
            return False
        name = name.rpartition(".")[0]
    topic, dash, partition = name.rpartition("-")
    digits = partition.removeprefix("+")
    number = int(digits) if digits.isdecimal() and len(digits) <= 32 else None
    return bool(topic and dash) and number is not None and number <= MAX_INT32
