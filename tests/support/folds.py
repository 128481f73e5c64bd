"""Cutting an input for a fold: into chunks anywhere, into stretches anywhere, merged in any association."""

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from hypothesis import strategies as st


class Fold(Protocol):
    """What every fold can do."""

    def merge(self, right: Self) -> None:
        """Add the stretch that follows."""


F = TypeVar("F", bound=Fold)


def cuts(draw: st.DataObject, length: int, at_most: int = 6) -> list[tuple[int, int]]:
    """Ranges that tile `length`, some of them empty."""
    points = sorted(draw.draw(st.lists(st.integers(0, length), max_size=at_most)))
    return list(zip([0, *points], [*points, length], strict=True))


def merged(draw: st.DataObject, states: list[F]) -> F:
    """All states merged in order, in an association that `draw` chooses."""
    while len(states) > 1:
        index = draw.draw(st.integers(0, len(states) - 2))
        left, right = states[index : index + 2]
        left.merge(right)
        states[index : index + 2] = [left]
    return states[0]


def folded(draw: st.DataObject, make: Callable[[], F], step: Callable[[F, int, int], None], length: int) -> F:
    """A fold over `length` items, cut into stretches and each stretch into chunks; `step(state, start, end)` adds items."""
    states = []
    for start, end in cuts(draw, length):
        state = make()
        for low, high in cuts(draw, end - start, 2):
            step(state, start + low, start + high)
        states.append(state)
    return merged(draw, states)
