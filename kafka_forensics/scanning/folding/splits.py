"""Dividing segments into splits, byte ranges that begin at a batch. They depend on the files alone, so every attempt agrees."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.parsers.indexes import parse_offset_index
from kafka_forensics.parsers.log import find_batch
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.storage.bundles import BundleSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPLIT_BYTES: Final = 64 << 20
"""Size of a split: large enough that its cost is reading, small enough that one segment occupies every core."""
SEARCHED_BYTES: Final = 8 << 20
"""How far after the desired start of a split a batch is searched; without one there is no such split."""


class Split(Struct, frozen=True):
    """Bytes `[start, end)` of the `.log` of a segment of a numbered replica; `next_base_offset` is that of the next segment."""

    replica: int
    segment: SegmentFiles
    start: int
    end: int
    next_base_offset: int | None
    first: bool
    """Whether it is the first of its segment."""


def splits_of(replica: int, plan: ReplicaPlan) -> list[Split]:
    """Splits of one replica, in file order; one a segment for sources that cannot seek."""
    splits, split_bytes = [], SPLIT_BYTES
    for segment, log, next_base_offset in plan.directory.logs():
        starts = [0, *_starts(plan, segment, range(1, split_count(plan, segment, split_bytes)), split_bytes)]
        ends = [*starts[1:], log.size_in_bytes]
        splits += [
            Split(replica, segment, start, end, next_base_offset, start == 0) for start, end in zip(starts, ends, strict=True)
        ]
    return splits


def split_count(plan: ReplicaPlan, segment: SegmentFiles, split_bytes: int) -> int:
    """The largest number of splits of a segment, by its size alone; at least one."""
    size = 0 if segment.log is None else segment.log.size_in_bytes
    if size < 2 * split_bytes or not plan.log_dir.source.seekable or isinstance(plan.log_dir.source, BundleSource):
        return 1
    return (size + split_bytes // 2 - 1) // split_bytes


def numbered_range(
    plan: ReplicaPlan, segment: SegmentFiles, number: int, split_bytes: int, hints: "NDArray[np.int64]"
) -> tuple[int, int] | None:
    """(start, end) of the split of a number below `split_count`; None if no batch was found to begin it.

    `hints` are the positions in the segment's index, empty if it cannot be read.
    """
    assert segment.log is not None
    count = split_count(plan, segment, split_bytes)
    start = next(_starts(plan, segment, [number], split_bytes, hints), None) if number else 0
    if start is None:
        return None
    return start, next(_starts(plan, segment, range(number + 1, count), split_bytes, hints), segment.log.size_in_bytes)


def _starts(
    plan: ReplicaPlan, segment: SegmentFiles, numbers: Sequence[int], split_bytes: int, hints: "NDArray[np.int64] | None" = None
) -> Iterator[int]:
    """The bytes at which the splits of these numbers begin, each found independently; none for a number without a batch near it.

    They are taken from the index, and verified, or searched. Without `hints`, the index is read.
    """
    if not numbers:
        return
    assert segment.log is not None
    source = plan.log_dir.source
    try:
        with source.open(segment.log.path) as file:
            size = -1
            for number in numbers:
                if size < 0:
                    size = max((stop for _, stop in file.data_ranges()), default=0)  # no batch begins in the hole at its end
                if hints is None:
                    hints = _index_positions(plan, segment)
                half, near = split_bytes // 2, number * split_bytes
                if near >= size - half:
                    continue
                hint = int(np.searchsorted(hints, near))
                near = int(hints[hint]) if hint < len(hints) and near <= hints[hint] < near + half else near
                start = find_batch(file, near, min(near + min(SEARCHED_BYTES, half), size), segment.base_offset)
                if start is not None:
                    yield start
    except SourceError:
        return  # folding the file reports the error


def _index_positions(plan: ReplicaPlan, segment: SegmentFiles) -> "NDArray[np.int64]":
    if segment.index is None:
        return np.empty(0, np.int64)
    with plan.log_dir.source.open(segment.index.path) as file:
        return parse_offset_index(file, segment.base_offset).positions
