"""How often Python looks for unreachable objects while many small values are made, of which next to none are ever in a circle."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OBJECTS_BETWEEN: Final = 20_000
"""Python's own 700 cost a scan a tenth of its start, one of many small partitions a fifth of its time, and free nothing there."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Let the collector of this process look more rarely until it is left; who has it look as rarely, or never, is left alone."""
    first, *others = gc.get_threshold()
    if not 0 < first < OBJECTS_BETWEEN:
        yield
        return
    gc.set_threshold(OBJECTS_BETWEEN, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
