"""Where a log's leader epochs begin: by its batches, and where these are missing or damaged by its `leader-epoch-checkpoint`."""

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from kafka_forensics.analysis.epochs.epochs import EpochsFold
from kafka_forensics.model.files import EpochEntry

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
