"""Leader epochs as the batches show them, and `leader-epoch-checkpoint` against them (LeaderEpochFileCache)."""

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.files import EpochEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_RUNS: Final = 4096


@dataclass(frozen=True, slots=True)
class EpochRun:
    """Consecutive batches of one leader epoch: offsets `[start_offset, end_offset)`, place of the first, how many."""

    leader_epoch: int
    start_offset: int
    end_offset: int
    segment: int
    position: int
    size_in_bytes: int
    """Of the first batch."""
    batches: int


class EpochsFold:
    """State: runs of equal `partition_leader_epoch` in file order, batches without an epoch left out."""

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self.runs: list[EpochRun] = []
        self.dropped_runs = 0
        self.batches_without_epoch = 0

    def step(self, columns: "NDArray[np.int64]") -> None:
        """Add the batches of a chunk."""
        epoch = columns[BatchColumn.PARTITION_LEADER_EPOCH]
        if epoch.size == 0:
            return
        usable = (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]) & (epoch >= 0)
        if not usable.all():
            self.batches_without_epoch += int((epoch < 0).sum())
            columns = columns[:, usable]
            epoch = columns[BatchColumn.PARTITION_LEADER_EPOCH]
            if epoch.size == 0:
                return
        cuts = np.flatnonzero(epoch[1:] != epoch[:-1]) + 1
        edges = [0, *cuts.tolist(), int(epoch.size)]
        for start, end in itertools.pairwise(edges):
            first, last = columns[:, start], columns[:, end - 1]
            self._append(
                EpochRun(
                    int(epoch[start]),
                    int(first[BatchColumn.BASE_OFFSET]),
                    int(last[BatchColumn.LAST_OFFSET]) + 1,
                    self._segment,
                    int(first[BatchColumn.POSITION]),
                    int(first[BatchColumn.SIZE_IN_BYTES]),
                    end - start,
                )
            )

    def _append(self, run: EpochRun) -> None:
        if self.runs and self.runs[-1].leader_epoch == run.leader_epoch:
            last = self.runs[-1]
            self.runs[-1] = replace(last, end_offset=run.end_offset, batches=last.batches + run.batches)
            return
        self.runs.append(run)
        if len(self.runs) > MAX_RUNS:
            del self.runs[MAX_RUNS // 2]
            self.dropped_runs += 1

    def merge(self, right: "EpochsFold") -> None:
        """Add the stretch that follows ours."""
        for run in right.runs:
            self._append(run)
        self.dropped_runs += right.dropped_runs
        self.batches_without_epoch += right.batches_without_epoch
        self._segment = right._segment

    def lineage(self) -> list[EpochEntry]:
        """(epoch, first offset) in order, as a leader-epoch cache fed with these batches would hold them."""
        entries: list[EpochEntry] = []
        strays = {id(run) for run, _ in self.strays(None)}
        for run in self.runs:
            if id(run) not in strays and (not entries or run.leader_epoch > entries[-1].leader_epoch):
                entries.append(EpochEntry(run.leader_epoch, run.start_offset))
        return entries

    def strays(self, checkpoint: list[EpochEntry] | None) -> list[tuple[EpochRun, int]]:
        """Single batches whose epoch field contradicts their neighbours (or, at the end, the checkpoint), each with the epoch
        expected there. The field lies outside the CRC, so neighbours are its only witnesses within a log."""
        strays = []
        previous: EpochRun | None = None
        known = None if checkpoint is None else max((entry.leader_epoch for entry in checkpoint), default=-1)
        for index, run in enumerate(self.runs):
            following = self.runs[index + 1] if index + 1 < len(self.runs) else None
            if run.batches == 1 and _out_of_line(previous, run, following, known):
                beside = previous or following
                assert beside is not None
                strays.append((run, beside.leader_epoch))
            else:
                previous = run
        return strays

    def regressions(self) -> list[tuple[EpochRun, int]]:
        """Runs of more than a stray batch whose epoch is lower than one before, each with that higher epoch."""
        strays = {id(run) for run, _ in self.strays(None)}
        found = []
        highest = -1
        for run in self.runs:
            if id(run) in strays:
                continue
            if run.leader_epoch < highest:
                found.append((run, highest))
            highest = max(highest, run.leader_epoch)
        return found


def _out_of_line(previous: EpochRun | None, run: EpochRun, following: EpochRun | None, known: int | None) -> bool:
    """Whether a run of one batch stands out: both neighbours agree against it, or the log's edge and the checkpoint do."""
    if previous is not None and following is not None:
        return previous.leader_epoch == following.leader_epoch or run.leader_epoch < previous.leader_epoch
    if following is not None:
        return run.leader_epoch > following.leader_epoch
    return previous is not None and (
        run.leader_epoch < previous.leader_epoch or (known is not None and run.leader_epoch > known >= 0)
    )


def checkpoint_contradiction(
    checkpoint: list[EpochEntry], lineage: list[EpochEntry], log_start: int, log_end: int, *, compacted: bool
) -> str | None:
    """Why the checkpoint's entries cannot belong to these batches, or None.

    Left alone: entries at or beyond the log end (a leader's empty epoch), entries before the log start, the first entry's start
    (it is raised to the log start), and on compacted logs starts that moved up to the first batch kept.
    """
    for left, right in itertools.pairwise(checkpoint):
        if left.leader_epoch >= right.leader_epoch or left.start_offset > right.start_offset:
            return "order"
    inside = [entry for entry in checkpoint if entry.start_offset < log_end]
    recorded = {entry.leader_epoch: entry.start_offset for entry in inside}
    for index, seen in enumerate(lineage):
        if seen.leader_epoch not in recorded:
            return "entry_missing"
        start = recorded[seen.leader_epoch]
        moved = start > seen.start_offset if compacted or index == 0 else start != seen.start_offset
        if index == 0 and start > max(log_start, seen.start_offset):
            moved = True
        elif index == 0:
            moved = start < seen.start_offset and start > log_start and not compacted
        if moved:
            return "entry_shifted"
    present = {entry.leader_epoch for entry in lineage}
    ghosts = [entry for entry in inside if entry.leader_epoch not in present and entry.start_offset > log_start]
    if ghosts and not compacted and not _overwritten(ghosts, inside):
        return "entry_without_batches"
    return None


def _overwritten(ghosts: list[EpochEntry], inside: list[EpochEntry]) -> bool:
    """Whether every ghost starts where another entry does: an epoch that wrote nothing before the next began."""
    starts = [entry.start_offset for entry in inside]
    return all(starts.count(ghost.start_offset) > 1 for ghost in ghosts)
