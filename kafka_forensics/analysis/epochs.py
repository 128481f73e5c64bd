"""Leader epochs as the batches show them, and `leader-epoch-checkpoint` against them (LeaderEpochFileCache)."""

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.segments import Survey
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP
from kafka_forensics.model.controller import NO_LEADER, PartitionControl
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import UNDEFINED_EPOCH, end_offset_for

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
    first_timestamp: int = field(default=NO_TIMESTAMP, compare=False)
    """The latest in the first batch (ms); -1 is none."""
    last_timestamp: int = field(default=NO_TIMESTAMP, compare=False)
    """The latest in the last batch."""


class EpochsFold:
    """State: runs of equal `partition_leader_epoch` in file order, batches without an epoch (-1) left out."""

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self.runs: list[EpochRun] = []
        self.dropped_runs = 0
        self.batches_without_epoch = 0

    def step(self, columns: "NDArray[np.int64]", seen: Survey | None = None) -> None:
        """Add the batches of a chunk. `seen` is the survey of its columns, if there are any."""
        epoch = columns[BatchColumn.PARTITION_LEADER_EPOCH]
        if epoch.size == 0:
            return
        if seen is not None and seen.joined and seen.one_epoch and epoch[0] != NO_PARTITION_LEADER_EPOCH:
            self._append(self._run(columns, 0, epoch.size))
            return
        absent = epoch == NO_PARTITION_LEADER_EPOCH
        usable = has_right_crc(columns) & ~absent
        if not usable.all():
            self.batches_without_epoch += int(absent.sum())
            columns = columns[:, usable]
            epoch = columns[BatchColumn.PARTITION_LEADER_EPOCH]
            if epoch.size == 0:
                return
        cuts = np.flatnonzero(epoch[1:] != epoch[:-1]) + 1
        edges = [0, *cuts.tolist(), int(epoch.size)]
        for start, end in itertools.pairwise(edges):
            self._append(self._run(columns, start, end))

    def _run(self, columns: "NDArray[np.int64]", start: int, end: int) -> EpochRun:
        """The run that rows `[start, end)` are."""
        return EpochRun(
            int(columns[BatchColumn.PARTITION_LEADER_EPOCH, start]),
            int(columns[BatchColumn.BASE_OFFSET, start]),
            int(columns[BatchColumn.LAST_OFFSET, end - 1]) + 1,
            self._segment,
            int(columns[BatchColumn.POSITION, start]),
            int(columns[BatchColumn.SIZE_IN_BYTES, start]),
            end - start,
            int(columns[BatchColumn.MAX_TIMESTAMP, start]),
            int(columns[BatchColumn.MAX_TIMESTAMP, end - 1]),
        )

    def _append(self, run: EpochRun) -> None:
        if self.runs and self.runs[-1].leader_epoch == run.leader_epoch:
            last = self.runs[-1]
            place = (last.segment, last.position, last.size_in_bytes)
            counted = (last.batches + run.batches, last.first_timestamp, run.last_timestamp)
            self.runs[-1] = EpochRun(last.leader_epoch, last.start_offset, run.end_offset, *place, *counted)
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
        """(epoch, first offset) in order, as recovery would feed a leader-epoch cache from these batches: higher epochs only."""
        entries: list[EpochEntry] = []
        if len(self.runs) == 1:
            run = self.runs[0]
            return [EpochEntry(run.leader_epoch, run.start_offset)] if run.leader_epoch >= 0 else []
        strays = {id(run) for run, _ in self.strays(None)}
        for run in self.runs:
            highest = entries[-1].leader_epoch if entries else -1
            if id(run) not in strays and run.leader_epoch > highest:
                entries.append(EpochEntry(run.leader_epoch, run.start_offset))
        return entries

    def strays(self, checkpoint: list[EpochEntry] | None, control: PartitionControl | None = None) -> list[tuple[EpochRun, int]]:
        """Single batches whose epoch field contradicts their neighbours (or, at the end, the checkpoint), each with the epoch
        expected there. The field lies outside the CRC, so neighbours are its only witnesses within a log; an epoch in which the
        controller had a leader is none at the end: there the checkpoint lacks it."""
        strays = []
        previous: EpochRun | None = None
        known = None if checkpoint is None else max((entry.leader_epoch for entry in checkpoint), default=-1)
        if known is not None and control is not None and self.runs and self.runs[-1].leader_epoch in _led_epochs(control):
            known = max(known, self.runs[-1].leader_epoch)
        for index, run in enumerate(self.runs):
            if run.batches == 1 and _out_of_line(previous, run, self.runs[index + 1 : index + 3], known):
                beside = self.runs[index + 1] if previous is None else previous
                strays.append((run, beside.leader_epoch))
            else:
                previous = run
        return strays

    def regressions(self) -> list[tuple[EpochRun, int]]:
        """Runs of more than a stray batch whose epoch is lower than one before, each with that higher epoch."""
        strays = {id(run) for run, _ in self.strays(None)}
        raised = []
        highest = -1
        for run in self.runs:
            if id(run) in strays:
                continue
            if run.leader_epoch < highest:
                raised.append((run, highest))
            highest = max(highest, run.leader_epoch)
        return raised


def _led_epochs(control: PartitionControl) -> set[int | None]:
    """Epochs in which the controller is known to have had a leader of a partition."""
    events = [] if control.history is None else control.history.events
    led: set[int | None] = {event.state.leader_epoch for event in events if event.state.leader != NO_LEADER}
    return led | ({control.leader_epoch} if control.leader not in (None, NO_LEADER) else set())


def _out_of_line(previous: EpochRun | None, run: EpochRun, behind: list[EpochRun], known: int | None) -> bool:
    """Whether a run of one batch stands out: both neighbours agree against it, or the log's edge and the checkpoint do.

    `behind` holds the next two runs. A batch above the one behind it is right if that one stands alone and the log then goes on
    at or above it.
    """
    epoch = run.leader_epoch
    if previous is not None and epoch < previous.leader_epoch:
        return True
    if not behind:
        return previous is not None and known is not None and epoch > known >= 0
    if epoch < 0 or (previous is not None and previous.leader_epoch == behind[0].leader_epoch):
        return True
    rises_again = len(behind) > 1 and behind[0].batches == 1 and behind[1].leader_epoch >= epoch
    return epoch > behind[0].leader_epoch and not rises_again


def checkpoint_contradiction(
    checkpoint: list[EpochEntry], lineage: list[EpochEntry], log_start: int, log_end: int, *, compacted: bool
) -> str | None:
    """Why the checkpoint's entries cannot belong to these batches, or None.

    Left alone: entries at or beyond the log end (a leader's empty epoch), entries before the log start, the first entry's start
    (it is raised to the log start), all entries where records were deleted up to the log end, and on compacted logs starts that
    moved up to the first batch kept.
    """
    pairs = itertools.pairwise(checkpoint)
    if any(left.leader_epoch >= right.leader_epoch or left.start_offset > right.start_offset for left, right in pairs):
        return "order"
    if log_start >= log_end:
        return None
    inside = _from(log_start, [entry for entry in checkpoint if entry.start_offset < log_end])
    above = [entry for entry in lineage if entry.start_offset >= log_start]
    present = above if compacted else _from(log_start, lineage)
    if (reason := _missing_or_shifted(present, inside, log_start, compacted=compacted)) is not None:
        return reason
    epochs = {entry.leader_epoch for entry in present}
    ghosts = [entry for entry in inside if entry.leader_epoch not in epochs and entry.start_offset > log_start]
    if ghosts and not compacted and not _overwritten(ghosts, inside):
        return "entry_without_batches"
    return None


def _missing_or_shifted(present: list[EpochEntry], inside: list[EpochEntry], log_start: int, *, compacted: bool) -> str | None:
    """Whether an epoch that the batches have, `present`, is not among the entries `inside` the log, or begins elsewhere there."""
    recorded = {entry.leader_epoch: entry.start_offset for entry in inside}
    for index, seen in enumerate(present):
        start = recorded.get(seen.leader_epoch)
        if start is None:
            return "entry_missing"
        earlier_is_fine = compacted or (index == 0 and start <= log_start)
        if start > seen.start_offset or (start < seen.start_offset and not earlier_is_fine):
            return "entry_shifted"
    return None


def _from(log_start: int, entries: list[EpochEntry]) -> list[EpochEntry]:
    """Ascending entries as truncation from the start leaves them: of those at or below it the last, raised to it."""
    below = [entry for entry in entries if entry.start_offset <= log_start]
    return [EpochEntry(entry.leader_epoch, log_start) for entry in below[-1:]] + entries[len(below) :]


def _overwritten(ghosts: list[EpochEntry], inside: list[EpochEntry]) -> bool:
    """Whether every ghost starts where another entry does: an epoch that wrote nothing before the next began."""
    starts = [entry.start_offset for entry in inside]
    return all(starts.count(ghost.start_offset) > 1 for ghost in ghosts)


# Two lineages of one log, as its checkpoint and its batches tell them: where they give an epoch different ends.


def differing_end(left: Sequence[EpochEntry], right: Sequence[EpochEntry], log_end_offset: int) -> tuple[int, int, int]:
    """The first epoch to which two lineages of one log give different ends, and both ends; the last epoch if they never do.

    That is where a follower cuts that asks for this epoch, by one lineage and by the other; -1 where one knows no end.
    """
    left, right = sorted(left), sorted(right)
    answer = (UNDEFINED_EPOCH, log_end_offset, log_end_offset)
    for epoch in sorted({entry.leader_epoch for entry in (*left, *right)}):
        ends = [end_offset_for(entries, epoch, log_end_offset).end_offset for entries in (left, right)]
        answer = (epoch, ends[0], ends[1])
        if ends[0] != ends[1]:
            break
    return answer


# Where a log's leader epochs begin: by its batches, and where these are missing or damaged by its `leader-epoch-checkpoint`.


_START: Final = attrgetter("start_offset")


def epoch_starts(fold: EpochsFold, checkpoint: Sequence[EpochEntry] | None, log_start: int) -> list[EpochEntry]:
    """(epoch, first offset) of a log, ascending.

    An epoch begins with its first batch, unless offsets right before that have no good batch: there the checkpoint is the only
    witness that the log itself has, and is believed as far as the epochs around allow. An epoch that wrote nothing is left out.
    """
    lineage, entries = fold.lineage(), checkpoint or ()
    if fold.dropped_runs or any(not _rises(left, right) for left, right in itertools.pairwise(entries)):
        return lineage
    epoch_entries: list[EpochEntry] = []
    for entry, end in zip(lineage, _ends_before(fold, lineage, log_start), strict=True):
        known = epoch_entries[-1].leader_epoch if epoch_entries else -1
        for epoch_entry in entries[bisect_left(entries, end, key=_START) : bisect_left(entries, entry.start_offset, key=_START)]:
            if known < epoch_entry.leader_epoch <= entry.leader_epoch:
                if epoch_entries and epoch_entries[-1].start_offset == epoch_entry.start_offset:
                    epoch_entries.pop()
                epoch_entries.append(epoch_entry)
        if not epoch_entries or epoch_entries[-1].leader_epoch < entry.leader_epoch:
            epoch_entries.append(entry)
    return epoch_entries


def with_remote_epochs(epochs: Sequence[EpochEntry], checkpoint: Sequence[EpochEntry], local_log_start: int) -> list[EpochEntry]:
    """The epochs of a tiered log: those of its remote part by the checkpoint, as nothing else on the disk tells them, then those of
    its batches."""
    remote = [entry for entry in checkpoint if entry.start_offset < local_log_start]
    if any(not _rises(left, right) for left, right in itertools.pairwise(remote)):
        return list(epochs)
    known = remote[-1].leader_epoch if remote else -1
    return remote + [entry for entry in epochs if entry.leader_epoch > known]


def _rises(left: EpochEntry, right: EpochEntry) -> bool:
    return left.leader_epoch < right.leader_epoch and left.start_offset <= right.start_offset


def _ends_before(fold: EpochsFold, lineage: Sequence[EpochEntry], log_start: int) -> list[int]:
    """For each entry where the good batches before it end; for the first the log start."""
    ends: list[int] = []
    end = log_start
    for run in fold.runs:
        if len(ends) < len(lineage) and lineage[len(ends)] == EpochEntry(run.leader_epoch, run.start_offset):
            ends.append(end)
        end = max(end, run.end_offset)
    return ends
