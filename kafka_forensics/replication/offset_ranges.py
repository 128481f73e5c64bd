"""Sets of offsets as ascending, disjoint ranges `[start, end)`."""

from collections.abc import Iterable, Sequence

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def normalised(ranges: Iterable[Range]) -> Ranges:
    """Any ranges as a set: empty ones dropped, those that touch joined."""
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
    """What of a set lies in `[start, end)`."""
    return tuple((max(a, start), min(b, end)) for a, b in ranges if max(a, start) < min(b, end))


def without(ranges: Sequence[Range], taken: Sequence[Range]) -> Ranges:
    """A set without what another holds."""
    left: list[Range] = []
    for start, end in ranges:
        at = start
        for low, high in taken:
            if high <= at or low >= end:
                continue
            if at < low:
                left.append((at, low))
            at = high
        if at < end:
            left.append((at, end))
    return tuple(left)


def holds(ranges: Sequence[Range], offset: int) -> bool:
    """Whether an offset is in a set."""
    for start, end in ranges:  # noqa: SIM110 - twice as fast, and asked millions of times
        if start <= offset < end:
            return True
    return False


def counted(ranges: Sequence[Range]) -> int:
    """How many offsets a set has."""
    return sum(end - start for start, end in ranges)
