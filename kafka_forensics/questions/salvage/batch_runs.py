"""Batches of a copy in runs: those that follow each other in the bytes of one segment, as a few numbers.

A log of small batches has more of them than memory has room for, so none is kept. A run is cut by reading it again, and what two
copies hold of some offsets is compared by sums of hashes, which add however the runs are cut.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.errors import SourceError
from kafka_forensics.judging.scanning import digest_key
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.questions.salvage.slices import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = NDArray[np.int64]

RUN_BATCHES: Final = 8168
"""No run has more: one is read whole where it is cut."""
_RUN_BYTES_SHIFT: Final = 24
"""Nor does it reach over a multiple of 16 MiB but with its last batch."""
_RUNS_REMEMBERED: Final = 8
_LOW: Final = (1 << 32) - 1
_SUM_MASK: Final = (1 << 128) - 1


class Run(NamedTuple):
    """Good batches of one leader epoch whose bytes join and whose offsets rise."""

    place: int
    """Number of the segment in its copy and byte in it, see `place_of`: sorts as the log is written."""
    base_offset: int
    last_base_offset: int
    """Of its last batch."""
    end_offset: int
    epoch: int
    batches: int
    digest: int
    """The sum of their 128-bit hashes."""
    is_complete: bool
    """Whether it has every record that was ever written: offsets join, and no batch lacks any."""
    is_searched: bool
    """Whether it was found behind lost framing."""
    giver: int
    """Number of the copy whose bytes it is: another one's where the own are damaged and prove to have been the same."""
    segment: int
    position: int
    """Where it stands in that copy."""
    size_in_bytes: int


_SEGMENT_SHIFT: Final = 40
"""No position in a segment has more bits."""


def place_of(number: int, position: int) -> int:
    """A byte in the segment of this number, as `Run.place` has it."""
    return (number << _SEGMENT_SHIFT) + position


def place_in(place: int) -> tuple[int, int]:
    """(number of the segment, byte in it) of a place."""
    return place >> _SEGMENT_SHIFT, place & ((1 << _SEGMENT_SHIFT) - 1)


def held_alike(left: Sequence[Run], right: Sequence[Run]) -> bool:
    """Whether two lists of runs are the same batches."""
    return _summed(left) == _summed(right)


def _summed(runs: Sequence[Run]) -> tuple[int, int]:
    return sum([run.batches for run in runs]), sum([run.digest for run in runs]) & _SUM_MASK


class RunReader:
    """Makes runs of batches that are read, and reads them again, of some copies; sums are of a key that no evidence knows."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.key = digest_key()
        self._sources = sources
        self._remembered = lru_cache(maxsize=_RUNS_REMEMBERED)(self._read)

    def path(self, giver: int, segment: int) -> str:
        """Where a segment of a copy is in its log directory."""
        files = self._sources[giver].plan.directory.segment(segment)
        assert files is not None
        assert files.log is not None
        return files.log.path

    def columns(self, run: Run) -> "Columns":
        """The batches of a run, by `BatchColumn`. Raises SourceError where they are not there any more."""
        return self._remembered(run.giver, run.segment, run.position, run.size_in_bytes, run.batches)

    def _read(self, giver: int, segment: int, position: int, size: int, count: int) -> "Columns":
        source, path = self._sources[giver], self.path(giver, segment)
        with source.plan.log_dir.source.open(path) as file:
            chunks = [chunk.columns.copy() for chunk in SegmentReader(file, key=self.key).chunks(position, position + size)]
        columns = np.concatenate(chunks, axis=1)
        if columns.shape[1] != count:
            raise SourceError(path, "changed while it was read")
        return columns

    def part(self, run: Run, low: int, high: int) -> Run:
        """Batches `[low, high)` of a run, by their numbers in it; at least one."""
        if (low, high) == (0, run.batches):
            return run
        columns = self.columns(run)[:, low:high]
        return _run(columns, run.place - run.position, run.giver, run.segment, is_searched=run.is_searched)

    def split(self, run: Run, column: BatchColumn, offset: int) -> tuple[list[Run], list[Run]]:
        """A run's batches whose base or last offset is below some offset, and the others: each is one run, or none."""
        if (run.last_base_offset if column is BatchColumn.BASE_OFFSET else run.end_offset - 1) < offset:
            return [run], []
        if run.base_offset >= offset or run.batches == 1:
            return [], [run]
        at = int(np.searchsorted(self.columns(run)[column], offset))
        return [self.part(run, 0, at)] if at else [], [self.part(run, at, run.batches)]


def runs_of(
    columns: "Columns", searched: "NDArray[np.bool_]", cuts: Sequence[int], number: int, giver: int, segment: int
) -> Iterator[Run]:
    """The runs of batches as they stand in a segment, which has this number in its copy; none reaches over a byte of `cuts`."""
    if not columns.shape[1]:
        return
    base, position = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.POSITION]
    behind = position + columns[BatchColumn.SIZE_IN_BYTES]
    apart = (position[1:] != behind[:-1]) | (base[1:] <= columns[BatchColumn.LAST_OFFSET, :-1])
    between = np.searchsorted(np.array(cuts, np.int64), position, side="right")
    for facts in (columns[BatchColumn.PARTITION_LEADER_EPOCH], searched, position >> _RUN_BYTES_SHIFT, between):
        apart |= facts[1:] != facts[:-1]
    for low, high in pairwise([0, *(np.flatnonzero(apart) + 1).tolist(), base.size]):
        yield _run(columns[:, low:high], place_of(number, 0), giver, segment, is_searched=bool(searched[low]))


def _run(columns: "Columns", place: int, giver: int, segment: int, *, is_searched: bool) -> Run:
    """Of batches that make one; `place` is that of the first byte of their segment."""
    base, behind = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET] + 1
    is_complete = bool((base[1:] == behind[:-1]).all() and (columns[BatchColumn.RECORDS_COUNT] == behind - base).all())
    start, last = int(columns[BatchColumn.POSITION, 0]), columns[:, -1]
    return Run(
        place + start,
        int(base[0]),
        int(base[-1]),
        int(behind[-1]),
        int(columns[BatchColumn.PARTITION_LEADER_EPOCH, 0]),
        base.size,
        _sum(columns),
        is_complete,
        is_searched,
        giver,
        segment,
        start,
        int(last[BatchColumn.POSITION] + last[BatchColumn.SIZE_IN_BYTES]) - start,
    )


def _sum(columns: "Columns") -> int:
    """The sum of the hashes of batches, which are few enough that the sums of quarters are int64."""
    high, low = columns[BatchColumn.HASH_HIGH], columns[BatchColumn.HASH_LOW]
    quarters = ((low & _LOW, 0), (low >> 32 & _LOW, 32), (high & _LOW, 64), (high >> 32 & _LOW, 96))
    return sum(int(quarter.sum()) << shift for quarter, shift in quarters) & _SUM_MASK
