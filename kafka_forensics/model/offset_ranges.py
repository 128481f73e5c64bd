"""Sets of offsets as ascending, disjoint ranges `[start, end)`; ranges as text, which names the first and the last offset."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from kafka_forensics.model.amounts import plural
from kafka_forensics.model.constants import INT64_MAX

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


def offset_range(start: object, end: object, noun: str = "") -> str:
    """The range `[start, end)` as every text shows it: `300 to 369`, with a noun `offsets 300 to 369`; `5` for [5, 6).

    Without an end it is the first offset alone. An empty range is `none`, with a noun `no offsets`; an invalid start gives an empty
    text.
    """
    if not isinstance(start, int) or not 0 <= start <= INT64_MAX:
        return ""
    last = min(end, INT64_MAX + 1) - 1 if isinstance(end, int) else start
    if last < start:
        return f"no {noun}s" if noun else "none"
    numbers = str(start) if last == start else f"{start} to {last}"
    return f"{noun}{'' if last == start else 's'} {numbers}" if noun else numbers


_RANGES_NAMED: Final = 3


def offset_ranges(ranges: Sequence[Range], noun: str = "offset") -> str:
    """The first ranges of a set as text: `offset 5`, `offsets 1 to 3, 7 and 2 more ranges`; without a noun only the numbers."""
    numbers = ", ".join(offset_range(start, end) for start, end in ranges[:_RANGES_NAMED])
    more = len(ranges) - _RANGES_NAMED
    numbers += f" and {plural(more, 'more range')}" if more > 0 else ""
    return f"{noun}{'' if numbers.isdigit() else 's'} {numbers}" if noun else numbers


def range_argument(start: int, end: int) -> str:
    """The range `[start, end)` as commands take it: `300..369`, `300..` up to the largest offset."""
    return f"{start}..{'' if end >= INT64_MAX else end - 1}"
