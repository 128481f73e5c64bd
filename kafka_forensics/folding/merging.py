"""Putting a replica together from the stretches of its log, wherever they were folded."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from kafka_forensics.analysis.replica import Replica, ReplicaState, whole
from kafka_forensics.analysis.segments import Misplaced
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.folding.fold_split import Folded
from kafka_forensics.folding.index_files import SnapshotCheck
from kafka_forensics.folding.splits import Split

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
    """The whole replica from its stretches in file order, with its snapshots and `.txnindex` files read on the way.

    Where a walk landed beyond the start of the next split, or before it, that one is folded again from there. `show` is shown every
    stretch that is merged. `misplaced` are batches that were folded where they belong, and not where their base offsets say.
    """
    merged: ReplicaState | None = None
    landed = 0
    snapshot = SnapshotCheck(plan, inputs)
    for folded in stretches:
        split = folded.split
        right = split.first or landed == split.start
        for one in [folded] if right else refold(replace(split, start=min(landed, split.end))):
            landed = one.landed if one.split.first else max(landed, one.landed)
            show(one)
            if merged is None:
                merged = one.state
                continue
            if one.split.first:
                snapshot.at(split.segment.base_offset, merged)
            merged.make_room(one.state)
            merged.merge(one.state)
            snapshot.merged(merged)
    state = merged or ReplicaState(0, compacted=plan.context.compacted)
    replica = whole(plan.context, state, misplaced)
    snapshot.at(replica.log_end_offset, state)
    snapshot.rest()
    state.close()
    return replica, snapshot
