"""What Kafka does to a log when a broker starts on it: which checks fire, what it cuts, renames, rebuilds or deletes.

Pure functions on small values that were read from files. The numbers of the checks are those of docs/recovery.md
(LogManager, LogLoader, LogSegment.recover, UnifiedLog, LeaderEpochFileCache, ProducerStateManager of Kafka 4).
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from typing import Final

from kafka_forensics.model.constants import MAX_RELATIVE_OFFSET, MAX_SEGMENT_SIZE
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication import small_files
from kafka_forensics.replication.small_files import STOPPING, is_read_on, start_outcome

# What the loading of a log starts from and leads to: the checks by number, segments as files show them, steps and forecasts.
#
# The numbers are those of docs/recovery.md.


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
SEGMENT_WALKED: Final = 17
HEADER_CUT: Final = 18
LENGTH_TOO_SMALL: Final = 19
BATCH_BEYOND_FILE: Final = 20
BATCH_INVALID: Final = 22
OFFSET_OVERFLOW: Final = 23
OFFSET_REGRESSION: Final = 24
PRODUCER_STATE: Final = 26
ABORTED_TXN_ORDER: Final = 27
SEGMENTS_BEHIND_CUT: Final = 29
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


@dataclass(frozen=True, slots=True)
class Stop:
    """Where recovery's walk of a segment ends before its file does: the rest is cut off.

    `end_offset` is the next offset behind the last batch kept; `check` says why.
    """

    position: int
    end_offset: int
    check: int


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as the loader meets it.

    `end_offset` is the next offset behind its last batch (its base offset if it holds none), walked to its end; `next_offset`
    what the loader reads as such through the index as it lies on disk, None where that reading throws.
    """

    base_offset: int
    size_in_bytes: int
    end_offset: int
    next_offset: int | None
    stop: Stop | None = None
    has_index: bool = True
    has_time_index: bool = True
    transaction_index: str = "sound"
    """`sound` (or absent), `below_base` (an entry ends below the segment), `version` (an entry of an unknown version)."""


@dataclass(frozen=True, slots=True)
class ReplayFault:
    """A batch at `position` of a segment at which replaying producers throws: no catch is above it, so the broker does not start.

    Where an unreadable marker ends the walk itself, the batch is kept, and replaying it behind the walk throws again.
    """

    segment: int
    position: int
    base_offset: int
    check: int


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """A `.snapshot` file: the offset in its name and whether it can be read."""

    offset: int
    sound: bool = True


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One partition directory, and what its log directory's checkpoints say of it; None is "not in the file"."""

    segments: tuple[SegmentFacts, ...]
    end_offset: int
    """Next offset behind all batches that are there, whatever Kafka makes of them."""
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
    """Where replaying its producers throws, from `replayed_from` on; only the first is looked for."""
    is_tiered: bool = False
    """Whether the log begins in remote storage: then the checkpoint alone says where."""
    is_metadata: bool = False
    """Whether it is the controller's log; then `epochs` are those of its batches, too."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """Small files, of the log directory or of the partition, that are there and break their format, each with the kind of its
    damage (`small_files.damage_name`)."""


@dataclass(frozen=True, slots=True)
class LoaderStep:
    """One thing the loader does, in order: the check that fires, a verb, and the file it is done to ("" is the log itself)."""

    check: int
    action: str
    """delete | rename | recover | truncate | create | forget | set | split | refuse (the broker does not start)"""
    file: str = ""
    offset: int | None = None
    """Offset at which something is cut, created or set."""
    to: str = ""
    """New name, of a rename."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Offsets `[start_offset, end_offset)` that the log had and will not have: cut at `position` of a segment because of `check`.

    `position` is None where no byte is cut and only the log's end is read wrongly.
    """

    segment: int
    position: int | None
    check: int
    start_offset: int
    end_offset: int
    segments_deleted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """How the log comes up: its offsets (None: not foretold), what is cut, and every step in order.

    `refused`: the broker does not start, for the reason in the last step.
    """

    log_start_offset: int | None
    log_end_offset: int | None
    recovery_point: int | None
    high_watermark: int | None
    cuts: tuple[Cut, ...] = ()
    steps: tuple[LoaderStep, ...] = ()
    refused: bool = False
    segments: tuple[int, ...] = ()
    """Base offsets of the segments it comes up with."""


# What the controller's log does with its own snapshots when it is opened (KafkaRaftLog): check 42 of docs/recovery.md.


FINISHED, PARTIAL, DELETED = ".checkpoint", ".checkpoint.part", ".checkpoint.deleted"


@dataclass(frozen=True, slots=True)
class SnapshotOutcome:
    """Steps in order; `refused`: the node does not start; `start_at`: the log is emptied and begins at this offset."""

    steps: tuple[LoaderStep, ...] = ()
    refused: bool = False
    start_at: int | None = None


def snapshot_outcome(log: LogFacts, start: int, end: int) -> SnapshotOutcome:
    """What becomes of the snapshots of a log that was loaded as `[start, end)`.

    Unfinished ones, those marked to be deleted and those below the log start go. A log that does not begin at 0 needs one at or
    above its start, or the node does not start. The latest (by epoch, then offset) takes the log's place if it is of a later epoch
    than the log's last, or of the same and behind the log's end: a follower that crashed between fetching it and cutting
    (KafkaRaftLog.createLog).
    """
    snapshots = sorted((_epoch(name), _offset(name), name) for name in log.files if _is_snapshot(name))
    doomed = [name for _, offset, name in snapshots if not name.endswith(FINISHED) or offset < start]
    kept = [snapshot for snapshot in snapshots if snapshot[2] not in doomed]
    if start > 0 and (not kept or kept[-1][1] < start):
        return SnapshotOutcome((LoaderStep(METADATA_SNAPSHOT, "refuse", kept[-1][2] if kept else "", start),), refused=True)
    steps = [LoaderStep(METADATA_SNAPSHOT, "delete", name) for name in sorted(doomed)]
    if not kept:
        return SnapshotOutcome(tuple(steps))
    epoch, offset, latest = kept[-1]
    own = max((entry.leader_epoch for entry in log.epochs if entry.start_offset < end), default=0)
    if (epoch, offset) <= (own, end):
        return SnapshotOutcome(tuple(steps))
    steps.append(LoaderStep(METADATA_SNAPSHOT, "truncate", "", offset))
    steps += [LoaderStep(METADATA_SNAPSHOT, "rename", name, to=f"{name}.deleted") for _, _, name in kept if name != latest]
    return SnapshotOutcome(tuple(steps), start_at=offset)


def _is_snapshot(name: str) -> bool:
    digits = name[:20] + name[21:31]
    named = len(name) > 31 and name[20] == "-" and digits.isascii() and digits.isdigit()
    return named and name.endswith((FINISHED, PARTIAL, DELETED))


def _offset(name: str) -> int:
    return int(name[:20])


def _epoch(name: str) -> int:
    return int(name[21:31])


@dataclass(slots=True)
class _Loading:
    """A load under way; `ends` are the segments' ends where they differ from what the files say."""

    log: LogFacts
    segments: list[SegmentFacts]
    steps: list[LoaderStep] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    recovered: set[int] = field(default_factory=set)
    unknown: bool = False
    """A segment was split: what follows is not foretold."""


_UNREADABLE_CHECKS: Final = {small_files.META_PROPERTIES: META_PROPERTIES, small_files.PARTITION_METADATA: PARTITION_METADATA}


def foretell(log: LogFacts) -> Forecast:
    """What a broker makes of the log when it starts (LogManager.loadLog, LogLoader.load).

    What a damaged small file does to a start is in `small_files`: most end it, or take the log directory offline, which is the
    broker's end if it has no other; a recovery point or log start in which a word is no number counts as 0.
    """
    stopping = next((file for file, damage in log.unreadable if start_outcome(file, damage) in STOPPING), None)
    if stopping is not None:
        step = LoaderStep(_UNREADABLE_CHECKS.get(stopping, CHECKPOINT_UNREADABLE), "refuse", stopping)
        return Forecast(None, None, None, None, steps=(step,), refused=True)
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
        return Forecast(None, None, None, None, tuple(loading.cuts), tuple(loading.steps), refused)
    forecast = _offsets(loading)
    return _with_metadata_snapshots(log, forecast) if log.is_metadata and not forecast.refused else forecast


def _is_refused(loading: _Loading) -> bool:
    """Open the segments, and recover them or replay producers: whether any of it ends the start."""
    log = loading.log
    if _name_or_size(loading) or _load_segments(loading):
        return True
    if not log.clean_shutdown:
        return _recover(loading)
    if not any(snapshot_facts.sound for snapshot_facts in log.snapshots):
        return False
    return _replay_refused(loading, _newest_snapshot(log, log.end_offset), log.end_offset)


def _with_metadata_snapshots(log: LogFacts, loaded: Forecast) -> Forecast:
    """The forecast of the controller's log once its snapshots were looked at."""
    assert loaded.log_start_offset is not None
    assert loaded.log_end_offset is not None
    outcome = snapshot_outcome(log, loaded.log_start_offset, loaded.log_end_offset)
    steps = (*loaded.steps, *outcome.steps)
    if outcome.refused:
        return Forecast(None, None, None, None, loaded.cuts, steps, refused=True)
    at = outcome.start_at
    if at is None:
        return replace(loaded, steps=steps)
    emptied = [LoaderStep(METADATA_SNAPSHOT, "delete", segment_file(base_offset)) for base_offset in loaded.segments]
    created = LoaderStep(METADATA_SNAPSHOT, "create", segment_file(at), at)
    return Forecast(at, at, at, at, loaded.cuts, (*steps, *emptied, created), segments=(at,))


def segment_file(base_offset: int, suffix: str = "log") -> str:
    """Name of a segment's file."""
    return f"{base_offset:020d}.{suffix}"


def _unfinished_swaps(cleaned: list[str], swaps: list[str]) -> list[str]:
    smallest = min((number for name in cleaned if (number := _number(name)) is not None), default=inf)
    return [name for name in swaps if (_number(name) or 0) >= smallest]


_UNFINISHED: Final = (".deleted", ".cleaned", ".swap")


def swap_steps(log: LogFacts) -> tuple[list[LoaderStep], list[SegmentFacts]]:
    """What becomes of `.deleted`, `.cleaned` and `.swap` files, file by file in order, and the segments that are there then.

    A `.swap` at or above the smallest `.cleaned` is half of an unfinished split and goes; the others win: every file whose number
    lies in their range, snapshots too, goes before they are renamed (LogLoader.load).
    """
    if not any(name.endswith(_UNFINISHED) for name in log.files):
        return [], sorted(log.segments, key=lambda facts: facts.base_offset)
    files = sorted(log.files)
    deleted, cleaned, swaps = ([name for name in files if name.endswith(suffix)] for suffix in (".deleted", ".cleaned", ".swap"))
    deleted = [name for name in deleted if not name.endswith(".checkpoint.deleted")]
    invalid = _unfinished_swaps(cleaned, swaps)
    going = {*deleted, *cleaned, *invalid}
    kept = [facts for facts in log.swaps if segment_file(facts.base_offset, "log.swap") not in invalid]
    replaced = _in_the_range_of(kept, [name for name in files if name not in going and not name.endswith(".swap")])
    steps = [
        *(LoaderStep(DELETED_FILE, "delete", name) for name in deleted),
        *(LoaderStep(CLEANED_FILE, "delete", name) for name in (*invalid, *cleaned)),
        *(LoaderStep(SWAP_FILE, "delete", name) for name in replaced),
        *(LoaderStep(SWAP_FILE, "rename", name, to=name.removesuffix(".swap")) for name in swaps if name not in invalid),
    ]
    there = set(log.files) - set(replaced)
    segments = {facts.base_offset: facts for facts in log.segments if segment_file(facts.base_offset) not in replaced}
    segments |= {facts.base_offset: _renamed(facts, there) for facts in kept}
    return steps, [facts for _, facts in sorted(segments.items())]


def _in_the_range_of(swaps: Sequence[SegmentFacts], names: Iterable[str]) -> list[str]:
    """Those of `names` whose number lies in the range of the `.swap` files."""
    if not swaps:
        return []
    start = min(facts.base_offset for facts in swaps)
    end = max(facts.base_offset if facts.next_offset is None else facts.next_offset for facts in swaps)
    return [name for name in names if start <= _in_range(name) < end]


def _renamed(swap: SegmentFacts, there: Collection[str]) -> SegmentFacts:
    """A `.swap` once it is renamed: it takes the indexes that are there by its number."""
    index, times = (segment_file(swap.base_offset, suffix) in there for suffix in ("index", "timeindex"))
    return replace(swap, has_index=swap.has_index or index, has_time_index=swap.has_time_index or times)


def _number(name: str) -> int | None:
    """The number before a file name's first dot, None if there is none."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def _in_range(name: str) -> int:
    number = _number(name)
    return -1 if number is None else number


def _name_or_size(loading: _Loading) -> bool:
    """Whether a segment's file has a name or a size at which the broker gives up; and indexes without a log go."""
    for name in sorted(loading.log.files):
        if name.endswith((".log", ".index", ".timeindex", ".txnindex")) and _number(name) is None:
            loading.steps.append(LoaderStep(LOG_NAME_OR_SIZE, "refuse", name))
            return True
    for segment_facts in loading.segments:
        if segment_facts.size_in_bytes > MAX_SEGMENT_SIZE:
            loading.steps.append(LoaderStep(LOG_NAME_OR_SIZE, "refuse", segment_file(segment_facts.base_offset)))
            return True
    bases = {segment_facts.base_offset for segment_facts in loading.segments}
    gone = {step.file for step in loading.steps}
    loading.steps += [
        LoaderStep(INDEX_WITHOUT_LOG, "delete", name)
        for name in sorted(loading.log.files)
        if name.endswith((".index", ".timeindex", ".txnindex")) and name not in gone and _number(name) not in bases
    ]
    return False


def _load_segments(loading: _Loading) -> bool:
    """Open every segment; one without an offset index, or with a bad `.txnindex`, is recovered at once. True: refused.

    A cut made here deletes nothing behind it, so that it leaves a hole.
    """
    for number, segment_facts in enumerate(loading.segments):
        name = segment_file(segment_facts.base_offset)
        if segment_facts.transaction_index == "version":
            loading.steps.append(LoaderStep(TRANSACTION_INDEX, "refuse", segment_file(segment_facts.base_offset, "txnindex")))
            return True
        if not segment_facts.has_time_index:
            loading.steps.append(LoaderStep(INDEX_FILE_MISSING, "create", segment_file(segment_facts.base_offset, "timeindex")))
        if segment_facts.has_index and segment_facts.transaction_index == "sound":
            continue
        check = TRANSACTION_INDEX if segment_facts.has_index else INDEX_FILE_MISSING
        loading.steps.append(LoaderStep(check, "recover", name))
        loading.recovered.add(number)
        if segment_facts.stop is None:
            continue
        if segment_facts.stop.check == OFFSET_OVERFLOW:
            return _split(loading, segment_facts)
        if segment_facts.stop.check == OFFSET_REGRESSION:
            loading.steps.append(LoaderStep(OFFSET_REGRESSION, "refuse", name))
            return True
        behind = loading.segments[number + 1].base_offset if number + 1 < len(loading.segments) else loading.log.end_offset
        _cut(loading, number, segment_facts.stop, behind, ())
    return False


def replayed_from(log: LogFacts) -> int:
    """The first offset whose producers a start after a crash replays: that of the newest sound snapshot up to the first segment it
    walks, else the log start (UnifiedLog.rebuildProducerState)."""
    return _newest_snapshot(log, _floor(log, log.segments) or 0)


def _newest_snapshot(log: LogFacts, bound: int) -> int:
    start = log.log_start or 0
    return max(
        (
            snapshot_facts.offset
            for snapshot_facts in log.snapshots
            if snapshot_facts.sound and start < snapshot_facts.offset <= bound
        ),
        default=start,
    )


def _floor(log: LogFacts, segments: Sequence[SegmentFacts]) -> int | None:
    """Base offset of the first segment that is walked after a crash; None: all are."""
    return max(
        (segment_facts.base_offset for segment_facts in segments if segment_facts.base_offset <= (log.recovery_point or 0)),
        default=None,
    )


def _replay_refused(loading: _Loading, first: int, bound: int) -> bool:
    """Whether replaying producers from `first` up to `bound` ends the start; aborted transactions are not indexed there."""
    for fault in loading.log.faults:
        if first <= fault.base_offset < bound and fault.check == PRODUCER_STATE:
            loading.steps.append(LoaderStep(fault.check, "refuse", segment_file(fault.segment)))
            return True
    return False


def _walk_refused(loading: _Loading, segment_facts: SegmentFacts) -> bool:
    """Whether replaying the producers of a segment that is walked ends the start, before its walk ends."""
    for fault in loading.log.faults:
        if fault.segment == segment_facts.base_offset and (
            segment_facts.stop is None or fault.position < segment_facts.stop.position
        ):
            loading.steps.append(LoaderStep(fault.check, "refuse", segment_file(segment_facts.base_offset)))
            return True
    return False


def _split(loading: _Loading, segment_facts: SegmentFacts) -> bool:
    """A segment with an offset that its indexes cannot hold. True: the broker does not start.

    It is split, and loading begins anew, only if its last batch overflows; else the split finds nothing to do and throws
    (LocalLog.splitOverflowedSegment, measured with 4.3.0).
    """
    name = segment_file(segment_facts.base_offset)
    loading.unknown = segment_facts.end_offset - segment_facts.base_offset > MAX_RELATIVE_OFFSET
    loading.steps.append(LoaderStep(OFFSET_OVERFLOW, "split" if loading.unknown else "refuse", name))
    return not loading.unknown


def _cut(loading: _Loading, number: int, stop: Stop, end_offset: int, deleted: tuple[int, ...]) -> None:
    """Cut a segment at its stop: all of it if its offsets go back."""
    segment_facts = loading.segments[number]
    whole = stop.check == OFFSET_REGRESSION
    position, end = (0, segment_facts.base_offset) if whole else (stop.position, stop.end_offset)
    loading.steps.append(LoaderStep(stop.check, "truncate", segment_file(segment_facts.base_offset), end))
    loading.cuts.append(Cut(segment_facts.base_offset, position, stop.check, end, max(end_offset, end), deleted))
    loading.segments[number] = replace(segment_facts, size_in_bytes=position, end_offset=end, next_offset=end, stop=None)


def _recover(loading: _Loading) -> bool:
    """After an unclean shutdown: walk from the segment that holds the recovery point on; what stands behind a cut goes.

    True: the broker does not start.
    """
    floor = _floor(loading.log, loading.segments)
    if floor is not None and _replay_refused(loading, _newest_snapshot(loading.log, floor), floor):
        return True
    for number, segment_facts in enumerate(loading.segments):
        if floor is not None and segment_facts.base_offset < floor:
            continue
        loading.steps.append(LoaderStep(SEGMENT_WALKED, "recover", segment_file(segment_facts.base_offset)))
        loading.recovered.add(number)
        if _walk_refused(loading, segment_facts):
            return True
        if segment_facts.stop is None:
            continue
        if segment_facts.stop.check == OFFSET_OVERFLOW:
            return _split(loading, segment_facts)
        behind = loading.segments[number + 1 :]
        _cut(loading, number, segment_facts.stop, loading.log.end_offset, tuple(cut_off.base_offset for cut_off in behind))
        loading.steps += [LoaderStep(SEGMENTS_BEHIND_CUT, "delete", segment_file(cut_off.base_offset)) for cut_off in behind]
        del loading.segments[number + 1 :]
        break
    return False


def _offsets(loading: _Loading) -> Forecast:
    """Log end, log start, recovery point and high watermark of the segments that are left."""
    log, segments = loading.log, loading.segments
    log_start, stored = log.log_start or 0, log.high_watermark or 0
    end = _next_offset(loading) if segments else None
    if segments and end is None:
        loading.steps.append(LoaderStep(NEXT_OFFSET, "refuse", segment_file(segments[-1].base_offset)))
        return Forecast(None, None, None, None, tuple(loading.cuts), tuple(loading.steps), refused=True)
    emptied = False
    if end is not None and end < log_start:
        _delete_below_start(loading, end)
        emptied, end = True, None
    if end is None:
        loading.steps.append(LoaderStep(NO_SEGMENT, "create", segment_file(log_start), log_start))
        end = log_start
        segments = [SegmentFacts(log_start, 0, log_start, log_start)]
    start = log_start if log.is_tiered else max(log_start, segments[0].base_offset)
    loading.steps += [] if emptied else _epoch_steps(log, end)
    loading.steps += _snapshot_steps(loading, segments, start, end)
    high_watermark = min(max(stored, start), end)
    if high_watermark != stored:
        loading.steps.append(LoaderStep(HIGH_WATERMARK, "set", HIGH_WATERMARK_FILE, high_watermark))
    point = end if log.clean_shutdown and not emptied else min(log.recovery_point or 0, end)
    bases = tuple(facts.base_offset for facts in segments)
    return Forecast(start, end, point, high_watermark, tuple(loading.cuts), tuple(loading.steps), segments=bases)


def _delete_below_start(loading: _Loading, end: int) -> None:
    bases = tuple(facts.base_offset for facts in loading.segments)
    loading.steps += [LoaderStep(END_BELOW_START, "delete", segment_file(base_offset)) for base_offset in bases]
    loading.cuts.append(Cut(bases[0], 0, END_BELOW_START, bases[0], end, bases))


def _next_offset(loading: _Loading) -> int | None:
    """Where the last segment ends, and the log with it, though its file may hold more; None: the broker cannot tell."""
    log, last = loading.log, loading.segments[-1]
    end = last.end_offset if len(loading.segments) - 1 in loading.recovered else last.next_offset
    is_newest = last.base_offset == max((facts.base_offset for facts in log.segments), default=None)
    if end is not None and end < log.end_offset and is_newest and not _cut_at_end(loading):
        loading.steps.append(LoaderStep(NEXT_OFFSET, "set", segment_file(last.base_offset), end))
        loading.cuts.append(Cut(last.base_offset, None, NEXT_OFFSET, end, log.end_offset))
    return end


def _cut_at_end(loading: _Loading) -> bool:
    """Whether a cut already accounts for all that is missing at the log's end."""
    return any(cut.end_offset >= loading.log.end_offset for cut in loading.cuts)


def _epoch_steps(log: LogFacts, end: int) -> list[LoaderStep]:
    """Epochs that begin at or behind the log's end are forgotten."""
    gone = [entry.start_offset for entry in log.epochs if entry.start_offset >= end]
    return [LoaderStep(LEADER_EPOCHS, "forget", EPOCHS_FILE, min(gone))] if gone else []


def _snapshot_steps(loading: _Loading, segments: list[SegmentFacts], start: int, end: int) -> list[LoaderStep]:
    """Snapshots that belong to no segment go, but for the largest above all segments; of the rest the newest that can be read is
    loaded, those that cannot go as they are met (ProducerStateManager.removeStraySnapshots, truncateAndReload)."""
    bases = {segment_facts.base_offset for segment_facts in segments}
    log = loading.log
    gone = {step.file for step in loading.steps if step.action == "delete"}
    sound = {
        snapshot_facts.offset: snapshot_facts.sound
        for snapshot_facts in log.snapshots
        if segment_file(snapshot_facts.offset, "snapshot") not in gone
    }
    there = sorted(sound)
    if log.clean_shutdown and not there:
        return [LoaderStep(NO_SNAPSHOT, "create", segment_file(end, "snapshot"), end)]
    strays = [offset for offset in there if offset not in bases]
    largest = strays[-1] if strays and strays[-1] > max(bases) else None
    going = [offset for offset in strays if offset != largest]
    going += [offset for offset in there if offset not in going and not start < offset <= end]
    for offset in sorted(set(there) - set(going), reverse=True):
        if sound[offset]:
            break
        going.append(offset)
    return [LoaderStep(SNAPSHOT, "delete", segment_file(offset, "snapshot")) for offset in going]


# Producers and transactions replayed as a start replays them: checks 26 and 27 of docs/recovery.md.
#
# Nothing of a replicated batch is refused for its sequence or epoch (AppendOrigin.REPLICATION); what is left to throw ends the
# start (ProducerAppendInfo, EndTransactionMarker, TransactionIndex.append of Kafka 4).


class Marker(Enum):
    """What a control batch of a producer says."""

    ABORT = "abort"
    COMMIT = "commit"
    EMPTY = "empty"
    """No record is left of it."""
    INVALID = "invalid"
    """Key or value cannot be read, or its type ends no transaction."""


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """A batch of a producer; `marker` None of data."""

    position: int
    base_offset: int
    producer_id: int
    is_transactional: bool
    marker: Marker | None = None


@dataclass(slots=True)
class ProducerReplay:
    """State: producers with an open transaction; and the last offset in the aborted transactions of the current segment."""

    open_producers: set[int]
    _segment: int = -1
    _last_aborted: int | None = field(default=None)

    def begin(self, segment: int) -> None:
        """A segment's `.txnindex` is built anew."""
        self._segment, self._last_aborted = segment, None

    def step(self, batch: ReplayedBatch) -> ReplayFault | None:
        """Add a batch of the segment; the fault if the start ends at it."""
        if batch.marker is None:
            return self._data(batch)
        if batch.marker is Marker.EMPTY:
            return None
        if batch.marker is Marker.INVALID:
            return self._fault(batch, PRODUCER_STATE)
        if batch.producer_id not in self.open_producers:
            return None
        self.open_producers.discard(batch.producer_id)
        if batch.marker is Marker.COMMIT:
            return None
        if self._last_aborted is not None and self._last_aborted >= batch.base_offset:
            return self._fault(batch, ABORTED_TXN_ORDER)
        self._last_aborted = batch.base_offset
        return None

    def _data(self, batch: ReplayedBatch) -> ReplayFault | None:
        if batch.is_transactional:
            self.open_producers.add(batch.producer_id)
            return None
        if batch.producer_id in self.open_producers:
            return self._fault(batch, PRODUCER_STATE)
        return None

    def _fault(self, batch: ReplayedBatch, check: int) -> ReplayFault:
        return ReplayFault(self._segment, batch.position, batch.base_offset, check)


# Which directories a broker takes for partitions when it starts (LocalLog.parseTopicPartitionName, LogManager.loadLogs).


_ASIDE: Final = re.compile(r"\S+-\S+\.\S+-(?:delete|future|stray)")
_MAX_PARTITION: Final = 2**31 - 1


def loads_as_partition(name: str) -> bool:
    """Whether a broker loads a directory of this name as a partition's; at any other, but its own few, it refuses to start.

    What stands before the last dash counts as a topic, legal or not; the partition is a number of 32 bits
    (LocalLog.parseTopicPartitionName).
    """
    if name.endswith(("-delete", "-future", "-stray")):
        if not _ASIDE.fullmatch(name):
            return False
        name = name.rpartition(".")[0]
    topic, dash, partition = name.rpartition("-")
    digits = partition.removeprefix("+")
    number = int(digits) if digits.isdecimal() and len(digits) <= 32 else None
    return bool(topic and dash) and number is not None and number <= _MAX_PARTITION
