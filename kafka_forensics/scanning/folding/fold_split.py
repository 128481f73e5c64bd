"""Folding one split, and putting a replica together from its folded splits."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.replica import Replica, ReplicaState, whole
from kafka_forensics.analysis.segments import MisplacedBatch
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, read_leader_epochs, typed_path
from kafka_forensics.model.files import OffsetIndex, TimeIndex
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.indexes import parse_offset_index, parse_time_index
from kafka_forensics.parsers.log import BatchChecks, KeySampler, SegmentReader, check_batch_in_file
from kafka_forensics.parsers.log_dir import SegmentFiles, max_plausible_offset
from kafka_forensics.scanning.folding.index_files import SnapshotCheck
from kafka_forensics.scanning.folding.splits import Split, splits_of
from kafka_forensics.storage.local import directory_kept_open

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Pause = Callable[[int], None]
"""Called with the size in bytes of the current stretch; may block."""
Refold = Callable[[Split], Iterator["FoldedStretch"]]
"""Folds a split again."""
FoldedReplica = tuple[ReplicaPlan, Replica, SnapshotCheck]
"""A replica whose log is folded."""

SEGMENTS_KEPT: Final = 4
"""Segments whose parsed indexes are kept for their next split."""


class ParsedIndexes(Struct):
    """Both indexes of a segment; None where the file is absent or unreadable, with the reason for the latter."""

    index: OffsetIndex | None = None
    time_index: TimeIndex | None = None
    incomplete: Incomplete | None = None


def read_indexes(plan: ReplicaPlan, segment: SegmentFiles) -> ParsedIndexes:
    """Parse the indexes of a segment; if neither can be read, `incomplete` names the time index."""
    source, base_offset = plan.log_dir.source, segment.base_offset
    indexes = ParsedIndexes()
    for entry in (segment.index, segment.time_index):
        if entry is None:
            continue
        try:
            with source.open(entry.path) as file:
                if entry is segment.index:
                    indexes.index = parse_offset_index(file, base_offset)
                else:
                    indexes.time_index = parse_time_index(file, base_offset)
        except SourceError as error:
            indexes.incomplete = Incomplete(typed_path(source, entry.path), error.reason)
    return indexes


class RecentIndexes:
    """Parsed indexes of the last few segments: the splits of a segment parse them once; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], ParsedIndexes] = OrderedDict()

    def of(self, replica: int, plan: ReplicaPlan, segment: SegmentFiles) -> ParsedIndexes:
        """The indexes of a segment of the replica of this number."""
        key = (replica, segment.base_offset)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = read_indexes(plan, segment)
                while len(self._kept) > SEGMENTS_KEPT:
                    self._kept.popitem(last=False)
            return self._kept[key]


class FoldedStretch(Struct):
    """A folded split, or a stretch of one: its state, the byte at which the walk ended, and why it is incomplete, if it is."""

    split: Split
    state: ReplicaState
    end_position: int
    incomplete: Incomplete | None = None


class FoldOptions(NamedTuple):
    """How a scan folds its splits: `key` is the `digest_key`, `deep` says whether it decodes every record."""

    key: "NDArray[np.int64]"
    deep: bool


def no_wait(_size_in_bytes: int) -> None:
    """A `Pause` that returns at once."""


def fold_split(
    plan: ReplicaPlan,
    split: Split,
    options: FoldOptions,
    indexes: ParsedIndexes,
    pause: Pause = no_wait,
    moved: Mapping[int, int] | None = None,
) -> Iterator[FoldedStretch]:
    """Read the split once and fold it, in several consecutive stretches if one state would grow too large.

    A file that cannot be read further gives what was read, as incomplete. `moved` has the right base offsets of batches of the
    segment that bear a wrong one, by byte position.
    """
    log = split.segment.log
    assert log is not None
    source = plan.log_dir.source

    def new_state() -> ReplicaState:
        index, time_index = indexes.index, indexes.time_index
        compacted = plan.context.compacted
        return ReplicaState(split.segment.base_offset, compacted=compacted, index=index, time_index=time_index, moved=moved)

    state = new_state()
    end_position = split.start
    try:
        with source.open(log.path) as file:
            keys = KeySampler(plan.bytes) if options.deep and plan.samples_keys else None
            reader = SegmentReader(
                file,
                key=options.key,
                max_plausible_offset=max_plausible_offset(split.segment.base_offset, split.next_base_offset),
                inspect=BatchChecks(deep=options.deep, keys=keys),
                inspect_batch=check_batch_in_file if options.deep else None,
            )
            for chunk in reader.chunks(split.start, split.end):
                state.step(chunk)
                if keys is not None:
                    state.keys.step(keys.take())
                end_position = split.start + state.framing.bytes_decoded + state.framing.bytes_damaged + state.framing.bytes_skipped
                if state.filled and end_position < split.end:
                    yield FoldedStretch(replace(split, end=end_position), state, end_position)
                    split = replace(split, start=end_position, first=False)
                    state = new_state()
                pause(state.size_in_bytes)
            end_position = max(reader.end_position, end_position)
    except SourceError as error:
        state.framing.bytes_skipped += max(split.end - end_position, 0)
        state.note_unread(end_position)
        yield FoldedStretch(split, state, split.end, Incomplete(typed_path(source, log.path), error.reason))
        return
    yield FoldedStretch(split, state, end_position, indexes.incomplete)


def refolder(plan: ReplicaPlan, options: FoldOptions, misplaced: Iterable[MisplacedBatch] = ()) -> Refold:
    """A function that folds splits of a replica, with the base offsets of `misplaced` batches corrected."""

    def refold(split: Split) -> Iterator[FoldedStretch]:
        moved = {batch.position: batch.offset for batch in misplaced if batch.segment == split.segment.base_offset}
        return fold_split(plan, split, options, read_indexes(plan, split.segment), moved=moved)

    return refold


def fold_replica(
    plan: ReplicaPlan,
    inputs: Inputs,
    options: FoldOptions,
    on_merged: Callable[[FoldedStretch], None] = lambda _: None,
    misplaced: tuple[MisplacedBatch, ...] = (),
) -> FoldedReplica:
    """Fold a whole replica here; `on_merged` and `misplaced` as for `merge_replica`."""
    refold = refolder(plan, options, misplaced)
    return merge_replica(plan, inputs, chain.from_iterable(map(refold, splits_of(0, plan))), refold, on_merged, misplaced)


def merge_replica(
    plan: ReplicaPlan,
    inputs: Inputs,
    stretches: Iterable[FoldedStretch],
    refold: Refold,
    on_merged: Callable[[FoldedStretch], None],
    misplaced: tuple[MisplacedBatch, ...] = (),
) -> FoldedReplica:
    """Merge the stretches of a replica, in file order, and read its epochs, snapshots and `.txnindex` files on the way.

    A stretch is folded again if the walk before it did not end at its start. `on_merged` gets every merged stretch. `misplaced`
    batches were folded at their right offsets.
    """
    snapshot = SnapshotCheck(plan, inputs)
    with directory_kept_open(plan.log_dir.source, plan.directory.path):
        read_leader_epochs(inputs, plan)
        merged = _merged(stretches, refold, on_merged, snapshot)
        state = merged or ReplicaState(0, compacted=plan.context.compacted)
        replica = whole(plan.context, state, misplaced)
        snapshot.at(replica.log_end_offset, state)
        snapshot.rest()
    state.close()
    return plan, replica, snapshot


def _merged(
    stretches: Iterable[FoldedStretch], refold: Refold, on_merged: Callable[[FoldedStretch], None], snapshot: SnapshotCheck
) -> ReplicaState | None:
    """The merged state of all stretches; None without any."""
    merged: ReplicaState | None = None
    end_position = 0
    for planned in stretches:
        split = planned.split
        fits = split.first or end_position == split.start
        for stretch in [planned] if fits else refold(replace(split, start=min(end_position, split.end))):
            end_position = stretch.end_position if stretch.split.first else max(end_position, stretch.end_position)
            on_merged(stretch)
            if merged is None:
                merged = stretch.state
                continue
            if stretch.split.first:
                snapshot.at(split.segment.base_offset, merged)
            merged.make_room(stretch.state)
            merged.merge(stretch.state)
            snapshot.merged(merged)
    return merged
