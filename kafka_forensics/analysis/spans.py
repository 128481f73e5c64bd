"""Ranges of offsets `(start, end)`, ends exclusive: joined, and what of some no others cover."""

from collections.abc import Iterable

Span = tuple[int, int]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same offsets in ranges that are ascending and apart; empty ranges are left out."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif start < end:
            found.append((start, end))
    return found


def outside(spans: Iterable[Span], covered: Iterable[Span]) -> list[Span]:
    """What of `spans` none of `covered` holds, joined; time in proportion to both, once they are sorted."""
    rest: list[Span] = []
    covers = joined(covered)
    number = 0
    for start, end in joined(spans):
        while number < len(covers) and covers[number][1] <= start:
            number += 1
        position, ahead = start, number
        while ahead < len(covers) and covers[ahead][0] < end:
            if covers[ahead][0] > position:
                rest.append((position, covers[ahead][0]))
            position = covers[ahead][1]
            ahead += 1
        if position < end:
            rest.append((position, end))
        number = max(ahead - 1, number)
    return rest
