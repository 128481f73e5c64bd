"""Splits: (segment, byte range beginning at a batch). A pure function of the files, so any attempt gives the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.parsers.indexes import parse_offset_index
from kafka_forensics.parsers.log import find_batch
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.storage.bundles import BundleSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

SPLIT_BYTES: Final = 64 << 20
"""Bytes of a split: large enough that a split's cost is its bytes, small enough that one segment feeds every core."""
SEARCHED_BYTES: Final = 8 << 20
"""How far beyond a wished split point a batch is searched before the split is given up."""


@dataclass(frozen=True, slots=True)
class Split:
    """Bytes `[start, end)` of the `.log` of one segment of one replica; `next_base_offset` is the next segment's, if any."""

    replica: int
    segment: SegmentFiles
    start: int
    end: int
    next_base_offset: int | None
    first: bool
    """Whether it begins its segment."""


def splits_of(replica: int, plan: ReplicaPlan) -> list[Split]:
    """Splits of one replica, in file order. Sources that cannot seek give one split a segment."""
    splits, split_bytes = [], SPLIT_BYTES
    for segment, log, following in plan.directory.logs():
        points = [0, *_points(plan, segment, range(1, split_count(plan, segment, split_bytes)), split_bytes)]
        ends = [*points[1:], log.size_in_bytes]
        splits += [Split(replica, segment, start, end, following, start == 0) for start, end in zip(points, ends, strict=True)]
    return splits


def split_count(plan: ReplicaPlan, segment: SegmentFiles, split_bytes: int) -> int:
    """How many splits a segment may have at most, by its size alone; at least one."""
    size = 0 if segment.log is None else segment.log.size_in_bytes
    if size < 2 * split_bytes or not plan.log_dir.source.seekable or isinstance(plan.log_dir.source, BundleSource):
        return 1
    return (size + split_bytes // 2 - 1) // split_bytes


def numbered_range(
    plan: ReplicaPlan, segment: SegmentFiles, number: int, split_bytes: int, hints: "NDArray[np.int64]"
) -> tuple[int, int] | None:
    """The bytes of the split of a number below `split_count`, found by itself; None where no batch was found to begin it.

    `hints` are the positions that the segment's index names, none if it cannot be read.
    """
    assert segment.log is not None
    count = split_count(plan, segment, split_bytes)
    start = next(iter(_points(plan, segment, [number], split_bytes, hints)), None) if number else 0
    if start is None:
        return None
    end = next(iter(_points(plan, segment, range(number + 1, count), split_bytes, hints)), segment.log.size_in_bytes)
    return start, end


def _points(
    plan: ReplicaPlan, segment: SegmentFiles, numbers: Sequence[int], split_bytes: int, hints: "NDArray[np.int64] | None" = None
) -> Iterator[int]:
    """Where the splits of these numbers begin, at batches: from the index, verified, or by searching. No point depends on another.

    A number near which no batch is found gives nothing. Without `hints`, the index is read for them.
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
                    size = max((stop for _, stop in file.data_ranges()), default=0)  # nothing begins in the hole at its end
                if hints is None:
                    hints = _hints(plan, segment)
                if (point := _point(file, hints, number * split_bytes, size, segment.base_offset, split_bytes)) is not None:
                    yield point
    except SourceError:
        return  # the fold that reads the file says what is wrong with it


def _hints(plan: ReplicaPlan, segment: SegmentFiles) -> "NDArray[np.int64]":
    """Positions that the index names."""
    if segment.index is None:
        return np.empty(0, np.int64)
    with plan.log_dir.source.open(segment.index.path) as file:
        return parse_offset_index(file, segment.base_offset).positions


def _point(file: "ByteFile", hints: "NDArray[np.int64]", wished: int, size: int, base_offset: int, split_bytes: int) -> int | None:
    """The first batch behind byte `wished`, less than half a split and what is searched away from it."""
    if wished >= size - split_bytes // 2:
        return None
    hint = int(np.searchsorted(hints, wished))
    near = int(hints[hint]) if hint < len(hints) and wished <= hints[hint] < wished + split_bytes // 2 else wished
    return find_batch(file, near, min(near + min(SEARCHED_BYTES, split_bytes // 2), size), base_offset)
