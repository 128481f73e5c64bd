"""Ranges of offsets as people read them: both ends are in it. Data formats and `[300, 370)` leave the second one out."""


def offset_range(start: int, end: int) -> str:
    """`300 to 369` for [300, 370), `5` for [5, 6), `none` for an empty one."""
    if end <= start:
        return "none"
    return str(start) if end - start == 1 else f"{start} to {end - 1}"
