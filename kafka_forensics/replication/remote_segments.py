"""Which remote segments of a tiered topic belong to a log, and what becomes of the others under its leader (RemoteLogManager)."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.model.remote_log import RemoteSegment
from kafka_forensics.replication.epochs import epoch_at


class RemoteFate(NamedTuple):
    """Numbers of remote segments that a leader's log does not have."""

    unreferenced: int = 0
    """They stay in the remote store, and no reader is given them."""
    expired: int = 0
    """The leader deletes them, for they end before its log start."""
    forgotten: int = 0
    """It deletes them though they do not, for it knows no epoch as old as theirs."""

    @property
    def deleted(self) -> int:
        """All that it deletes."""
        return self.expired + self.forgotten


def is_in_lineage(segment: RemoteSegment, epochs: Sequence[EpochEntry]) -> bool:
    """Whether a segment is part of a log with these epochs, ascending, however far the log goes."""
    own = segment.leader_epochs
    first = next((number for number, entry in enumerate(epochs) if entry.leader_epoch == own[0].leader_epoch), None)
    if first is None or (first > 0 and own[0].start_offset < epochs[first].start_offset):
        return False
    behind = first + len(own)
    ends = epochs[behind].start_offset if behind < len(epochs) else None
    return list(own[1:]) == list(epochs[first + 1 : behind]) and (ends is None or segment.end_offset < ends)


def left_out(segment: RemoteSegment, epochs: Sequence[EpochEntry], log_start_offset: int) -> Ranges:
    """The offsets of a segment at which a log with these epochs has other records, from its log start on."""
    if is_in_lineage(segment, epochs):
        return ()
    own = segment.leader_epochs
    begun = {log_start_offset, *(entry.start_offset for entry in (*own, *epochs))}
    edges = sorted({segment.start_offset, *(edge for edge in begun if segment.start_offset < edge <= segment.end_offset)})
    return normalised(
        (start, end)
        for start, end in itertools.pairwise([*edges, segment.end_offset + 1])
        if start >= log_start_offset and epoch_at(epochs, start) not in (None, epoch_at(own, start))
    )


def remote_fate(
    segments: Iterable[RemoteSegment], epochs: Sequence[EpochEntry], log_start_offset: int, log_end_offset: int
) -> RemoteFate:
    """What becomes of finished segments under a leader with these epochs, the one that it begins among them.

    It deletes what ends below its log start, and what is of epochs that are all older than its first.
    """
    unreferenced = expired = forgotten = 0
    first = epochs[0].leader_epoch if epochs else 0
    for segment in segments:
        if segment.end_offset < log_start_offset:
            expired += 1
        elif segment.leader_epochs[-1].leader_epoch < first:
            forgotten += 1
        elif segment.end_offset >= log_end_offset or not is_in_lineage(segment, epochs):
            unreferenced += 1
    return RemoteFate(unreferenced, expired, forgotten)
