"""Two lineages of one log, as its checkpoint and its batches tell them: where they give an epoch different ends."""

from collections.abc import Sequence

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import UNDEFINED_EPOCH, end_offset_for


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
