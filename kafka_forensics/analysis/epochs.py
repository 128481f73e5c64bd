"""Leader epochs according to the batches, compared with `leader-epoch-checkpoint` (LeaderEpochFileCache)."""

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.segments import ChunkFacts
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP
from kafka_forensics.model.controller import NO_LEADER, PartitionControl
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import UNDEFINED_EPOCH, end_offset_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_RUNS: Final = 4096
_START: Final = attrgetter("start_offset")


class EpochRun(Struct, frozen=True):
    """Consecutive batches of one leader epoch: offsets `[start_offset, end_offset)`, place of the first batch, batch count."""

    leader_epoch: int
    start_offset: int
    end_offset: int
    segment: int
    position: int
    size_in_bytes: int
    """Of the first batch."""
    batches: int
    first_timestamp: int = NO_TIMESTAMP
    """Largest timestamp of the first batch (ms); -1: none."""
    last_timestamp: int = NO_TIMESTAMP
    """Largest timestamp of the last batch (ms); -1: none."""


class EpochsFold:
    """State: runs of equal `partition_leader_epoch` in file order, without batches that have no epoch (-1)."""

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self.runs: list[EpochRun] = []
        self.dropped_runs = 0
        self.batches_without_epoch = 0

    def step(self, columns: "NDArray[np.int64]", facts: ChunkFacts) -> None:
        """Add the batches of a chunk."""
        epoch = columns[BatchColumn.PARTITION_LEADER_EPOCH]
        if epoch.size == 0:
            return
        if facts.joined and facts.one_epoch and epoch[0] != NO_PARTITION_LEADER_EPOCH:
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
        for start, end in itertools.pairwise([0, *cuts.tolist(), int(epoch.size)]):
            self._append(self._run(columns, start, end))

    def _run(self, columns: "NDArray[np.int64]", start: int, end: int) -> EpochRun:
        """The run that consists of rows `[start, end)`."""
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
        last = self.runs[-1] if self.runs else None
        if last is not None and last.leader_epoch == run.leader_epoch:
            batches = last.batches + run.batches
            self.runs[-1] = replace(last, end_offset=run.end_offset, batches=batches, last_timestamp=run.last_timestamp)
            return
        self.runs.append(run)
        if len(self.runs) > MAX_RUNS:
            del self.runs[MAX_RUNS // 2]
            self.dropped_runs += 1

    def merge(self, right: "EpochsFold") -> None:
        """Add the state of the batches that follow ours."""
        for run in right.runs:
            self._append(run)
        self.dropped_runs += right.dropped_runs
        self.batches_without_epoch += right.batches_without_epoch
        self._segment = right._segment

    def lineage(self) -> list[EpochEntry]:
        """(epoch, first offset), ascending: what recovery would put into a leader-epoch cache from these batches."""
        entries: list[EpochEntry] = []
        for run in self._without_contradicted():
            if run.leader_epoch > (entries[-1].leader_epoch if entries else -1):
                entries.append(EpochEntry(run.leader_epoch, run.start_offset))
        return entries

    def contradicted_runs(
        self, checkpoint: list[EpochEntry] | None, control: PartitionControl | None = None
    ) -> list[tuple[EpochRun, int]]:
        """Single batches whose epoch contradicts their neighbours or, at the log end, the checkpoint; each with the expected epoch.

        No CRC covers the epoch, so within a log only its neighbours confirm it. An epoch at the log end in which the controller
        had a leader is right: there the checkpoint lacks an entry.
        """
        contradicted_runs = []
        previous: EpochRun | None = None
        latest = None if checkpoint is None else max((entry.leader_epoch for entry in checkpoint), default=-1)
        if latest is not None and control is not None and self.runs and self.runs[-1].leader_epoch in _epochs_with_leader(control):
            latest = max(latest, self.runs[-1].leader_epoch)
        for index, run in enumerate(self.runs):
            if run.batches == 1 and _is_stray(previous, run, self.runs[index + 1 : index + 3], latest):
                neighbour = self.runs[index + 1] if previous is None else previous
                contradicted_runs.append((run, neighbour.leader_epoch))
            else:
                previous = run
        return contradicted_runs

    def regressions(self) -> list[tuple[EpochRun, int]]:
        """Runs, other than strays, whose epoch is lower than an earlier one; each with the highest earlier epoch."""
        regressions = []
        highest = -1
        for run in self._without_contradicted():
            if run.leader_epoch < highest:
                regressions.append((run, highest))
            highest = max(highest, run.leader_epoch)
        return regressions

    def _without_contradicted(self) -> Iterator[EpochRun]:
        contradicted_runs = {id(run) for run, _ in self.contradicted_runs(None)}
        return (run for run in self.runs if id(run) not in contradicted_runs)


def _epochs_with_leader(control: PartitionControl) -> set[int | None]:
    """Epochs in which the controller's log shows a leader of the partition."""
    events = [] if control.history is None else control.history.events
    epochs: set[int | None] = {event.state.leader_epoch for event in events if event.state.leader != NO_LEADER}
    return epochs | ({control.leader_epoch} if control.leader not in (None, NO_LEADER) else set())


def _is_stray(previous: EpochRun | None, run: EpochRun, following: list[EpochRun], latest: int | None) -> bool:
    """Whether a run of one batch is wrong: both neighbours contradict it or, at the end of the log, the checkpoint does.

    `following` holds at most the next two runs, `latest` the checkpoint's highest epoch. A batch with a higher epoch than the next
    is right if the next is a single batch and the epochs after it are as high again.
    """
    epoch = run.leader_epoch
    if previous is not None and epoch < previous.leader_epoch:
        return True
    if not following:
        return previous is not None and latest is not None and epoch > latest >= 0
    if epoch < 0 or (previous is not None and previous.leader_epoch == following[0].leader_epoch):
        return True
    rises_again = len(following) > 1 and following[0].batches == 1 and following[1].leader_epoch >= epoch
    return epoch > following[0].leader_epoch and not rises_again


def checkpoint_contradiction(
    checkpoint: list[EpochEntry], lineage: list[EpochEntry], log_start: int, log_end: int, *, compacted: bool
) -> str | None:
    """Why the checkpoint's entries cannot belong to these batches; None if they can.

    These contradict nothing: entries at or beyond the log end (a leader's empty epoch), entries before the log start, the start of
    the first entry (Kafka raises it to the log start), any entries where records were deleted up to the log end, and on compacted
    logs starts that moved up to the first batch kept.
    """
    if not _is_ascending(checkpoint):
        return "order"
    if log_start >= log_end:
        return None
    inside = _truncated_from_start(log_start, [entry for entry in checkpoint if entry.start_offset < log_end])
    above = [entry for entry in lineage if entry.start_offset >= log_start]
    present = above if compacted else _truncated_from_start(log_start, lineage)
    recorded = {entry.leader_epoch: entry.start_offset for entry in inside}
    for index, entry in enumerate(present):
        start = recorded.get(entry.leader_epoch)
        if start is None:
            return "entry_missing"
        earlier_is_fine = compacted or (index == 0 and start <= log_start)
        if start > entry.start_offset or (start < entry.start_offset and not earlier_is_fine):
            return "entry_shifted"
    epochs = {entry.leader_epoch for entry in present}
    without_batches = [entry for entry in inside if entry.leader_epoch not in epochs and entry.start_offset > log_start]
    starts = [entry.start_offset for entry in inside]
    # an epoch that wrote nothing before the next began has the start of another entry
    if not compacted and any(starts.count(entry.start_offset) == 1 for entry in without_batches):
        return "entry_without_batches"
    return None


def _is_ascending(entries: Iterable[EpochEntry]) -> bool:
    """Whether epochs rise from entry to entry and offsets do not fall."""
    pairs = itertools.pairwise(entries)
    return all(left.leader_epoch < right.leader_epoch and left.start_offset <= right.start_offset for left, right in pairs)


def _truncated_from_start(log_start: int, entries: list[EpochEntry]) -> list[EpochEntry]:
    """Ascending entries after LeaderEpochFileCache.truncateFromStart: the last at or below the log start is raised to it."""
    below = [entry for entry in entries if entry.start_offset <= log_start]
    return [EpochEntry(entry.leader_epoch, log_start) for entry in below[-1:]] + entries[len(below) :]


def differing_end(left: Sequence[EpochEntry], right: Sequence[EpochEntry], log_end_offset: int) -> tuple[int, int, int]:
    """The first epoch to which two lineages of one log give different ends, and both ends; the last epoch if all ends are equal.

    A follower that asks for this epoch truncates to the one or the other end; -1 where a lineage has no end for it.
    """
    left, right = sorted(left), sorted(right)
    answer = (UNDEFINED_EPOCH, log_end_offset, log_end_offset)
    for epoch in sorted({entry.leader_epoch for entry in (*left, *right)}):
        ends = [end_offset_for(entries, epoch, log_end_offset).end_offset for entries in (left, right)]
        answer = (epoch, ends[0], ends[1])
        if ends[0] != ends[1]:
            break
    return answer


def epoch_starts(fold: EpochsFold, checkpoint: Sequence[EpochEntry] | None, log_start: int) -> list[EpochEntry]:
    """(epoch, first offset) of a log, ascending, by its batches and, where batches are missing or damaged, by its checkpoint.

    An epoch begins with its first batch. If the offsets right before that have no good batch, the checkpoint is the log's only
    evidence for them, and counts as far as the neighbouring epochs allow. Epochs without batches are left out.
    """
    lineage, checkpoint = fold.lineage(), checkpoint or ()
    if fold.dropped_runs or not _is_ascending(checkpoint):
        return lineage
    starts: list[EpochEntry] = []
    for entry, end in zip(lineage, _ends_before(fold, lineage, log_start), strict=True):
        latest = starts[-1].leader_epoch if starts else -1
        hidden = checkpoint[bisect_left(checkpoint, end, key=_START) : bisect_left(checkpoint, entry.start_offset, key=_START)]
        for recorded in hidden:
            if latest < recorded.leader_epoch <= entry.leader_epoch:
                if starts and starts[-1].start_offset == recorded.start_offset:
                    starts.pop()
                starts.append(recorded)
        if not starts or starts[-1].leader_epoch < entry.leader_epoch:
            starts.append(entry)
    return starts


def add_remote_epochs(epochs: Sequence[EpochEntry], checkpoint: Sequence[EpochEntry], local_log_start: int) -> list[EpochEntry]:
    """The epochs of a tiered log: those of its remote part from the checkpoint, their only source on the disk, then `epochs`."""
    remote = [entry for entry in checkpoint if entry.start_offset < local_log_start]
    if not _is_ascending(remote):
        return list(epochs)
    latest = remote[-1].leader_epoch if remote else -1
    return remote + [entry for entry in epochs if entry.leader_epoch > latest]


def _ends_before(fold: EpochsFold, lineage: Sequence[EpochEntry], log_start: int) -> list[int]:
    """For each entry the offset where the good batches before it end; for the first entry the log start."""
    ends: list[int] = []
    end = log_start
    for run in fold.runs:
        if len(ends) < len(lineage) and lineage[len(ends)] == EpochEntry(run.leader_epoch, run.start_offset):
            ends.append(end)
        end = max(end, run.end_offset)
    return ends
