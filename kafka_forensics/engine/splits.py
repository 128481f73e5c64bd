"""Splits: (segment, byte range beginning at a batch). A pure function of the files, so any attempt gives the same."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.engine.inputs import ReplicaPlan
from kafka_forensics.errors import SourceError
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.parsers.offset_index import parse_offset_index
from kafka_forensics.parsers.segment import find_batch

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
    splits = []
    logs = [segment for segment in plan.directory.segments if segment.log is not None]
    for index, segment in enumerate(logs):
        assert segment.log is not None
        size = segment.log.size_in_bytes
        following = logs[index + 1].base_offset if index + 1 < len(logs) else None
        points = [0]
        if size >= 2 * SPLIT_BYTES and plan.log_dir.source.seekable:
            points += _split_points(plan, segment, size)
        ends = [*points[1:], size]
        splits += [Split(replica, segment, start, end, following, start == 0) for start, end in zip(points, ends, strict=True)]
    return splits


def _split_points(plan: ReplicaPlan, segment: SegmentFiles, size: int) -> list[int]:
    """Positions inside the file at which batches begin, about SPLIT_BYTES apart: from the index, verified, or by searching."""
    assert segment.log is not None
    source = plan.log_dir.source
    hints = np.empty(0, np.int64)
    try:
        if segment.index is not None:
            with source.open(segment.index.path) as file:
                hints = parse_offset_index(file, segment.base_offset).positions
        with source.open(segment.log.path) as file:
            return _points(file, hints, size, segment.base_offset)
    except SourceError:
        return []  # the fold that reads the file says what is wrong with it


def _points(file: "ByteFile", hints: "NDArray[np.int64]", size: int, base_offset: int) -> list[int]:
    size = max((stop for _, stop in file.data_ranges()), default=0)  # nothing begins in the hole at a sparse file's end
    points: list[int] = []
    wished = SPLIT_BYTES
    while wished < size - SPLIT_BYTES // 2:
        hint = int(np.searchsorted(hints, wished))
        near = int(hints[hint]) if hint < len(hints) and wished <= hints[hint] < wished + SPLIT_BYTES // 2 else wished
        found = find_batch(file, near, min(near + SEARCHED_BYTES, size), base_offset)
        if found is not None and (not points or found > points[-1]):
            points.append(found)
            wished = found
        wished += SPLIT_BYTES
    return points
