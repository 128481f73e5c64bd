"""Ranges of offsets as people read them: both ends are in it. Data formats and `[300, 370)` leave the second one out."""

from collections.abc import Sequence


def offset_range(start: int, end: int) -> str:
    """`300 to 369` for [300, 370), `5` for [5, 6), `none` for an empty one."""
    if end <= start:
        return "none"
    return str(start) if end - start == 1 else f"{start} to {end - 1}"


def damaged_bytes(size_in_bytes: int, spans: Sequence[tuple[int, int]]) -> str:
    """`126 bytes of the log (offsets 0 to 4) are damaged`; `spans` are [start, end) and may be unknown."""
    offsets = ", ".join(offset_range(start, end) for start, end in spans)
    where = f" (offset{'' if offsets.isdigit() else 's'} {offsets})" if offsets else ""
    noun, verb = ("byte", "is") if size_in_bytes == 1 else ("bytes", "are")
    return f"{size_in_bytes} {noun} of the log{where} {verb} damaged"
