"""Sets of offsets as ascending, disjoint ranges `[start, end)`."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

Range = tuple[int, int]
Ranges = tuple[Range, ...]
_start, _end = itemgetter(0), itemgetter(1)


def normalised(ranges: Iterable[Range]) -> Ranges:
    """Any ranges as a set: without empty ranges, adjacent and overlapping ones joined."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return tuple(joined)


def clipped(ranges: Sequence[Range], start: int, end: int) -> Ranges:
    """The part of a set in `[start, end)`."""
    if len(ranges) == 1:  # nearly always
        low, high = ranges[0]
        if start <= low and high <= end:
            return (ranges[0],)
        low, high = max(low, start), min(high, end)
        return ((low, high),) if low < high else ()
    first, after = bisect_right(ranges, start, key=_end), bisect_left(ranges, end, key=_start)
    return tuple((max(low, start), min(high, end)) for low, high in ranges[first:after] if start < end)


def without(ranges: Sequence[Range], taken: Sequence[Range]) -> Ranges:
    """A set without the offsets of another."""
    left: list[Range] = []
    first = 0
    for start, end in ranges:
        at = start
        while first < len(taken) and taken[first][1] <= start:
            first += 1
        for number in range(first, len(taken)):
            low, high = taken[number]
            if low >= end:
                break
            if at < low:
                left.append((at, low))
            at = high
        if at < end:
            left.append((at, end))
    return tuple(left)


def holds(ranges: Sequence[Range], offset: int) -> bool:
    """Whether an offset is in a set."""
    if len(ranges) == 1:
        return ranges[0][0] <= offset < ranges[0][1]
    after = bisect_right(ranges, offset, key=_start)
    return after > 0 and offset < ranges[after - 1][1]


def counted(ranges: Sequence[Range]) -> int:
    """The number of offsets in a set."""
    return sum([end - start for start, end in ranges])
