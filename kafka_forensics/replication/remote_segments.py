"""Which remote segments of a tiered topic belong to a log, and what its leader does with the others (RemoteLogManager)."""

import itertools
import struct
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.model.remote_log import RemoteSegment
from kafka_forensics.replication.epochs import epoch_at

_MASK: Final = 0xFFFFFFFF
_MURMUR2_SEED: Final = 0x9747B28C
_MURMUR2_FACTOR: Final = 0x5BD1E995


class RemoteFate(NamedTuple):
    """Numbers of remote segments outside a leader's log."""

    unreferenced: int = 0
    """Stay in the remote store, but no reader gets them."""
    expired: int = 0
    """Deleted, because they end below the leader's log start."""
    forgotten: int = 0
    """Deleted, though they do not, because the leader has no epoch as old as theirs."""

    @property
    def deleted(self) -> int:
        """All that the leader deletes."""
        return self.expired + self.forgotten


def is_in_lineage(segment: RemoteSegment, epochs: Sequence[EpochEntry]) -> bool:
    """Whether a segment belongs to a log with these epochs, ascending, of any length."""
    return are_in_lineage(segment.leader_epochs, segment.end_offset, epochs)


def are_in_lineage(segment_epochs: Sequence[EpochEntry], end_offset: int, epochs: Sequence[EpochEntry]) -> bool:
    """Whether a segment with these epochs (at least one), up to and including `end_offset`, belongs to a log with `epochs`."""
    first = next((number for number, entry in enumerate(epochs) if entry.leader_epoch == segment_epochs[0].leader_epoch), None)
    if first is None or (first > 0 and segment_epochs[0].start_offset < epochs[first].start_offset):
        return False
    following = first + len(segment_epochs)
    end = epochs[following].start_offset if following < len(epochs) else None
    return list(segment_epochs[1:]) == list(epochs[first + 1 : following]) and (end is None or end_offset < end)


def diverging_offsets(segment: RemoteSegment, epochs: Sequence[EpochEntry], log_start_offset: int) -> Ranges:
    """Offsets of a segment, from the log start on, at which a log with these epochs has records of another epoch."""
    if is_in_lineage(segment, epochs):
        return ()
    start = max(segment.start_offset, log_start_offset)
    return diverging_ranges(segment.leader_epochs, epochs, start, segment.end_offset + 1)


def diverging_ranges(left: Sequence[EpochEntry], right: Sequence[EpochEntry], start: int, end: int) -> Ranges:
    """Offsets in `[start, end)` at which logs with these epochs have records of different epochs, from the first of `right` on."""
    edges = sorted({start, end, *(entry.start_offset for entry in (*left, *right) if start < entry.start_offset < end)})
    return normalised(
        (low, high) for low, high in itertools.pairwise(edges) if epoch_at(right, low) not in (None, epoch_at(left, low))
    )


def with_equal_epochs(ranges: Ranges, left: Sequence[EpochEntry], right: Sequence[EpochEntry]) -> Ranges:
    """The offsets of a set at which two logs have the same leader epoch, and so the same records."""
    edges = sorted({entry.start_offset for entry in (*left, *right)})
    parts = (
        pair for start, end in ranges for pair in itertools.pairwise([start, *(edge for edge in edges if start < edge < end), end])
    )
    return normalised((start, end) for start, end in parts if epoch_at(left, start) == epoch_at(right, start) is not None)


def remote_fate(
    segments: Iterable[RemoteSegment], epochs: Sequence[EpochEntry], log_start_offset: int, log_end_offset: int
) -> RemoteFate:
    """What a leader does with finished segments; `epochs` are its epochs, including the one that it begins.

    It deletes segments that end below its log start, and segments whose epochs are all older than its first.
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


def metadata_partition(topic_id: str, partition: int, partitions_count: int) -> int:
    """The partition of `__remote_log_metadata` with the events of a partition (RemoteLogMetadataTopicPartitioner).

    `topic_id` is 22 characters of base64url, `partitions_count` the number of partitions of `__remote_log_metadata`.
    """
    most, least = struct.unpack(">QQ", urlsafe_b64decode(f"{topic_id}=="))
    digest = 1
    for number in (least ^ least >> 32, most ^ most >> 32, partition):  # Objects.hash of two longs and an int
        digest = (31 * digest + number) & _MASK
    return (_murmur2(digest.to_bytes(4, "big")) & 0x7FFFFFFF) % partitions_count


def _murmur2(four_bytes: bytes) -> int:
    """Kafka's murmur2 of four bytes (Utils.murmur2)."""
    word = int.from_bytes(four_bytes, "little") * _MURMUR2_FACTOR & _MASK
    word = (word ^ word >> 24) * _MURMUR2_FACTOR & _MASK
    digest = ((_MURMUR2_SEED ^ 4) * _MURMUR2_FACTOR & _MASK) ^ word
    digest = (digest ^ digest >> 13) * _MURMUR2_FACTOR & _MASK
    return digest ^ digest >> 15
