"""Folding one split: the step that every engine runs somewhere."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.analysis.replica import Replica, ReplicaState, whole
from kafka_forensics.analysis.segments import Misplaced
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, read_leader_epochs, typed_path
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log import BatchChecks, KeySampler, SegmentReader, check_batch_in_file
from kafka_forensics.parsers.log_dir import SegmentFiles, max_plausible_offset
from kafka_forensics.scanning.folding.index_files import SnapshotCheck
from kafka_forensics.scanning.folding.segment_indexes import SegmentIndexes, read_indexes
from kafka_forensics.scanning.folding.splits import Split
from kafka_forensics.storage.local import holding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Pause = Callable[[int], None]
"""Called with the bytes that a stretch holds so far; may take its time."""

SEGMENTS_KEPT: Final = 4
"""Segments whose parsed indexes are kept for their next split."""


@dataclass(slots=True)
class Folded:
    """The state of a split, or of a stretch of one, where its walk landed, and why it is incomplete (None: it is not)."""

    split: Split
    state: ReplicaState
    landed: int
    incomplete: Incomplete | None = None


class RecentIndexes:
    """Indexes of the last few segments, so that the splits of one segment parse them once; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], SegmentIndexes] = OrderedDict()

    def of(self, replica: int, plan: ReplicaPlan, segment: SegmentFiles) -> SegmentIndexes:
        """The indexes of a segment of the replica of this number."""
        key = (replica, segment.base_offset)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = read_indexes(plan, segment)
                while len(self._kept) > SEGMENTS_KEPT:
                    self._kept.popitem(last=False)
            return self._kept[key]


class Folding(NamedTuple):
    """How all splits are folded: with which digest key, and whether every record is decoded."""

    key: "NDArray[np.int64]"
    deep: bool


def fold_split(
    plan: ReplicaPlan, split: Split, folding: Folding, indexes: SegmentIndexes, pause: Pause, moved: Mapping[int, int] | None = None
) -> Iterator[Folded]:
    """Read the split once and fold it, with the indexes of its segment: in one stretch, or in several that follow one another,
    where one state would hold too much. Each comes as a split of its own.

    A file that cannot be read (further) gives what was read, and says so. `moved` are right base offsets of batches of the segment
    where another is written, by byte position.
    """
    log = split.segment.log
    assert log is not None
    source = plan.log_dir.source

    def begun() -> ReplicaState:
        index, time_index = indexes.index, indexes.time_index
        compacted = plan.context.compacted
        return ReplicaState(split.segment.base_offset, compacted=compacted, index=index, time_index=time_index, moved=moved)

    state = begun()
    landed = split.start
    try:
        with source.open(log.path) as file:
            keys = KeySampler(plan.bytes) if folding.deep and plan.samples_keys else None
            reader = SegmentReader(
                file,
                max_plausible_offset(split.segment.base_offset, split.next_base_offset),
                key=folding.key,
                inspect=BatchChecks(deep=folding.deep, keys=keys),
                inspect_alone=check_batch_in_file if folding.deep else None,
            )
            for chunk in reader.chunks(split.start, split.end):
                state.step(chunk)
                if keys is not None:
                    state.keys.step(keys.take())
                landed = split.start + state.framing.bytes_decoded + state.framing.bytes_damaged + state.framing.bytes_skipped
                if state.filled and landed < split.end:
                    yield Folded(replace(split, end=landed), state, landed)
                    split = replace(split, start=landed, first=False)
                    state = begun()
                pause(state.size_in_bytes)
            landed = max(reader.landed, landed)
    except SourceError as error:
        state.framing.bytes_skipped += max(split.end - landed, 0)
        state.give_up(landed)
        yield Folded(split, state, split.end, Incomplete(typed_path(source, log.path), error.reason))
        return
    yield Folded(split, state, landed, indexes.incomplete)


# Putting a replica together from the stretches of its log, wherever they were folded.


Refold = Callable[[Split], Iterator[Folded]]
"""Folds a split once more."""
Merged = tuple[ReplicaPlan, Replica, SnapshotCheck]
"""A replica that is folded and whole."""


def merge_replica(
    plan: ReplicaPlan,
    inputs: Inputs,
    stretches: Iterable[Folded],
    refold: Refold,
    show: Callable[[Folded], None],
    misplaced: tuple[Misplaced, ...] = (),
) -> tuple[Replica, SnapshotCheck]:
    """The whole replica from its stretches in file order, with its epochs, snapshots and `.txnindex` files read on the way.

    Where a walk landed beyond the start of the next split, or before it, that one is folded again from there. `show` is shown every
    stretch that is merged. `misplaced` are batches that were folded where they belong, and not where their base offsets say.
    """
    snapshot = SnapshotCheck(plan, inputs)
    with holding(plan.log_dir.source, plan.directory.path):
        read_leader_epochs(inputs, plan)
        merged = _merged(stretches, refold, show, snapshot)
        state = merged or ReplicaState(0, compacted=plan.context.compacted)
        replica = whole(plan.context, state, misplaced)
        snapshot.at(replica.log_end_offset, state)
        snapshot.rest()
    state.close()
    return replica, snapshot


def _merged(
    stretches: Iterable[Folded], refold: Refold, show: Callable[[Folded], None], snapshot: SnapshotCheck
) -> ReplicaState | None:
    """The state of all stretches; None without any."""
    merged: ReplicaState | None = None
    landed = 0
    for folded in stretches:
        split = folded.split
        right = split.first or landed == split.start
        for again in [folded] if right else refold(replace(split, start=min(landed, split.end))):
            landed = again.landed if again.split.first else max(landed, again.landed)
            show(again)
            if merged is None:
                merged = again.state
                continue
            if again.split.first:
                snapshot.at(split.segment.base_offset, merged)
            merged.make_room(again.state)
            merged.merge(again.state)
            snapshot.merged(merged)
    return merged
